//! What a file's mode says: its type and its rights.

use crate::cred::{Caps, Credentials};
use abi::Result;
pub use abi::attr::Perm;
use abi::errno::EACCES;
use abi::linux::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};

/// The type of a file: the `S_IFMT` bits of its mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileType {
    Regular,
    Directory,
    Symlink,
    Char,
    Block,
    Fifo,
    Socket,
}

impl FileType {
    /// From `st_mode`; `None` for bits that mean nothing.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & S_IFMT {
            S_IFREG => FileType::Regular,
            S_IFDIR => FileType::Directory,
            S_IFLNK => FileType::Symlink,
            S_IFCHR => FileType::Char,
            S_IFBLK => FileType::Block,
            S_IFIFO => FileType::Fifo,
            S_IFSOCK => FileType::Socket,
            _ => return None,
        })
    }
    /// The bits of `st_mode`.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            FileType::Regular => S_IFREG,
            FileType::Directory => S_IFDIR,
            FileType::Symlink => S_IFLNK,
            FileType::Char => S_IFCHR,
            FileType::Block => S_IFBLK,
            FileType::Fifo => S_IFIFO,
            FileType::Socket => S_IFSOCK,
        }
    }
    /// `DT_*` of `getdents64(2)`.
    #[must_use]
    pub fn dt(self) -> u8 {
        (self.bits() >> 12) as u8
    }
    /// Whether it is a device, a FIFO or a socket.
    #[must_use]
    pub fn is_special(self) -> bool {
        !matches!(
            self,
            FileType::Regular | FileType::Directory | FileType::Symlink
        )
    }
}

bitflags::bitflags! {
    /// What a permission is asked for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Want: u32 {
        const EXEC = 1;
        const WRITE = 2;
        const READ = 4;
    }
}

/// `generic_permission`: mode bits, then capabilities.
pub fn generic_permission(p: Perm, kind: FileType, cred: &Credentials, want: Want) -> Result<()> {
    let bits = if cred.fsuid == p.uid {
        p.mode >> 6
    } else if cred.in_group(p.gid) {
        p.mode >> 3
    } else {
        p.mode
    } & 7;
    if want.bits() & !bits == 0 {
        return Ok(());
    }
    if capable_over(p, kind, cred, want) {
        Ok(())
    } else {
        Err(EACCES)
    }
}

/// Whether capabilities give the right (`generic_permission`'s second half).
#[must_use]
pub fn capable_over(p: Perm, kind: FileType, cred: &Credentials, want: Want) -> bool {
    let over = |cap| cred.has_over(cap, p.uid, p.gid);
    if kind == FileType::Directory {
        return !want.contains(Want::WRITE) && over(Caps::DAC_READ_SEARCH)
            || over(Caps::DAC_OVERRIDE);
    }
    want == Want::READ && over(Caps::DAC_READ_SEARCH)
        || (!want.contains(Want::EXEC) || p.mode & 0o111 != 0) && over(Caps::DAC_OVERRIDE)
}

/// `inode_owner_or_capable`.
#[must_use]
pub fn owner_or_capable(p: Perm, cred: &Credentials) -> bool {
    cred.fsuid == p.uid || cred.has_over_user(Caps::FOWNER, p.uid)
}
