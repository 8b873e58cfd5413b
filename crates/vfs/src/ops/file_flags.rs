//! The flags of chattr(1): who may set them (`vfs_fileattr_set`), and what they forbid.

use crate::context::PathCx;
use crate::cred::Caps;
use crate::file::{File, O_ACCMODE, O_APPEND, O_RDONLY, O_TRUNC};
use crate::inode::{FileFlags, Inode};
use crate::mode::owner_or_capable;
use crate::mount::Path;
use abi::Result;
use abi::errno::{ENOTTY, EOPNOTSUPP, EPERM};

/// Flags that take a right of their own to change.
const GUARDED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

/// `EPERM` for what has one of `flags`.
fn without(inode: &dyn Inode, flags: FileFlags) -> Result<()> {
    match inode.ext().flags().intersects(flags) {
        true => Err(EPERM),
        false => Ok(()),
    }
}

/// Whether owner, mode, times, attributes and names may be changed.
pub(crate) fn may_change(inode: &dyn Inode) -> Result<()> {
    without(inode, GUARDED)
}

/// Whether bytes that are there may go.
pub(super) fn may_cut(inode: &dyn Inode) -> Result<()> {
    without(inode, FileFlags::APPEND)
}

pub(crate) fn not_immutable(inode: &dyn Inode) -> Result<()> {
    without(inode, FileFlags::IMMUTABLE)
}

/// Whether what can only be added to may be opened so (`may_open`).
pub(super) fn may_open(inode: &dyn Inode, flags: u32) -> Result<()> {
    let writes = flags & O_ACCMODE != O_RDONLY;
    if writes && flags & O_APPEND == 0 || flags & O_TRUNC != 0 {
        return may_cut(inode);
    }
    Ok(())
}

/// Gives a new file what it has of its directory's.
pub(super) fn inherit(dir: &Path, new: &dyn Inode) -> Result<()> {
    let flags = dir.inode()?.ext().flags() & FileFlags::INHERITED;
    match (flags.is_empty(), new.has_flags()) {
        (true, _) => Ok(()),
        (false, true) => new.set_flags(flags),
        (false, false) => {
            new.ext().set_flags(flags);
            Ok(())
        }
    }
}

impl File {
    /// The flags of the file; `ENOTTY` where it can have none.
    pub fn file_flags(&self) -> Result<FileFlags> {
        let inode = self.path.as_ref().ok_or(ENOTTY)?.inode()?;
        match inode.has_flags() {
            true => Ok(inode.ext().flags()),
            false => Err(ENOTTY),
        }
    }

    /// Whether it has one of these.
    #[must_use]
    pub fn is_flagged(&self, flags: FileFlags) -> bool {
        self.file_flags().is_ok_and(|f| f.intersects(flags))
    }
}

impl PathCx<'_> {
    /// `FS_IOC_SETFLAGS`: `flags` by their numbers.
    pub fn set_file_flags(&self, file: &File, flags: u32) -> Result<()> {
        let p = file.path.as_ref().ok_or(ENOTTY)?;
        p.want_write()?;
        let inode = p.inode()?;
        if !inode.has_flags() {
            return Err(ENOTTY);
        }
        if !owner_or_capable(inode.perm()?, self.cred()) {
            return Err(EPERM);
        }
        let _held = inode.lock_attributes();
        let changed = flags ^ inode.ext().flags().bits();
        if changed & GUARDED.bits() != 0 && !self.cred().has(Caps::LINUX_IMMUTABLE) {
            return Err(EPERM);
        }
        inode.set_flags(FileFlags::from_bits(flags).ok_or(EOPNOTSUPP)?)
    }
}
