//! Landlock: a process's own limits on which files it may open (`landlock(7)`).

use crate::{HostFd, RawFd, sys};
use abi::Result;

/// Rights on files and directories (`LANDLOCK_ACCESS_FS_*`).
pub const EXECUTE: u64 = 1 << 0;
pub const WRITE_FILE: u64 = 1 << 1;
pub const READ_FILE: u64 = 1 << 2;
pub const READ_DIR: u64 = 1 << 3;
pub const TRUNCATE: u64 = 1 << 14;
/// All rights of version 3 (Linux 6.2).
pub const ALL: u64 = (1 << 15) - 1;
/// Those that a file can have.
pub const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

/// The host's version of it; 0 for none.
#[must_use]
pub fn version() -> usize {
    const VERSION: u32 = 1;
    // SAFETY: no pointers.
    unsafe { sys!(LandlockCreateRuleset, 0, 0, VERSION) }.unwrap_or(0)
}

/// Rules that are being written.
#[derive(Debug)]
pub struct Ruleset(HostFd);

impl Ruleset {
    /// Takes every right of `handled` away where no rule gives it.
    pub fn new(handled: u64) -> Result<Ruleset> {
        // SAFETY: a struct landlock_ruleset_attr of its first version's size.
        let fd = unsafe { sys!(LandlockCreateRuleset, &raw const handled, 8, 0) }?;
        Ok(Ruleset(HostFd::from_raw(fd as RawFd)))
    }
    /// Gives `rights` at `fd` and below it.
    pub fn allow(&self, fd: RawFd, rights: u64) -> Result<()> {
        const PATH_BENEATH: u32 = 1;
        let mut attr = [0u8; 12];
        attr[..8].copy_from_slice(&rights.to_le_bytes());
        attr[8..].copy_from_slice(&fd.to_le_bytes());
        let rules = self.0.raw();
        // SAFETY: a packed struct landlock_path_beneath_attr.
        unsafe { sys!(LandlockAddRule, rules, PATH_BENEATH, attr.as_ptr(), 0) }?;
        Ok(())
    }
    /// Binds the calling thread for ever. It must have given up new privileges
    /// (`PR_SET_NO_NEW_PRIVS`).
    pub fn restrict_self(self) -> Result<()> {
        // SAFETY: no pointers.
        unsafe { sys!(LandlockRestrictSelf, self.0.raw(), 0) }?;
        Ok(())
    }
}
