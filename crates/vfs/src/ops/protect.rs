//! What keeps users of a shared directory from each other's traps (`fs/namei.c`; `fs.protected_*`).

use crate::context::PathCx;
use crate::inode::Inode;
use crate::mode::{FileType, Perm, Want, owner_or_capable};
use crate::mount::Path;
use abi::Result;
use abi::errno::{EACCES, EPERM};
use abi::linux::{S_ISGID, S_ISUID, S_ISVTX};
use std::sync::atomic::Ordering;

const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;

impl PathCx<'_> {
    /// Whether a link at the end of a path may be followed (`may_follow_link`): not another user's
    /// in a sticky directory that everybody may write to.
    pub(crate) fn may_follow(&self, dir: &Path, link: &Path) -> Result<()> {
        if self.vfs.protections.symlinks.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let d = dir.inode()?.perm()?;
        if d.mode & (S_ISVTX | OTHERS_WRITE) != S_ISVTX | OTHERS_WRITE {
            return Ok(());
        }
        let owner = link.inode()?.perm()?.uid;
        if owner == self.cred().fsuid || owner == d.uid {
            Ok(())
        } else {
            Err(EACCES)
        }
    }

    /// Whether a file that is there may be opened by a caller that would make it
    /// (`may_create_in_sticky`).
    pub(super) fn may_reuse(&self, dir: &Path, file: &Path) -> Result<()> {
        let d = dir.inode()?.perm()?;
        let inode = file.inode()?;
        let kind = inode.file_type();
        if d.mode & S_ISVTX == 0 || kind == FileType::Directory {
            return Ok(());
        }
        let p = &self.vfs.protections;
        let level = match kind {
            FileType::Regular => p.regular.load(Ordering::Relaxed),
            FileType::Fifo => p.fifos.load(Ordering::Relaxed),
            // Others always; not for the group's sake.
            _ => 1,
        };
        let owner = inode.perm()?.uid;
        if level == 0 || owner == d.uid || owner == self.cred().fsuid {
            return Ok(());
        }
        if d.mode & OTHERS_WRITE != 0 || d.mode & GROUP_WRITES != 0 && level >= 2 {
            return Err(EACCES);
        }
        Ok(())
    }

    /// Whether a second name may be given to a file (`may_linkat`): by its owner, or where the file
    /// could be read and written anyway and gives nobody rights.
    pub(super) fn may_link(&self, inode: &dyn Inode) -> Result<()> {
        if self.vfs.protections.hardlinks.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let p = inode.perm()?;
        if owner_or_capable(p, self.cred()) || self.is_harmless(inode, p) {
            Ok(())
        } else {
            Err(EPERM)
        }
    }

    /// `safe_hardlink_source`.
    fn is_harmless(&self, inode: &dyn Inode, p: Perm) -> bool {
        inode.file_type() == FileType::Regular
            && p.mode & S_ISUID == 0
            && p.mode & (S_ISGID | 0o010) != S_ISGID | 0o010
            && inode
                .permission(&self.caller, Want::READ | Want::WRITE)
                .is_ok()
    }
}
