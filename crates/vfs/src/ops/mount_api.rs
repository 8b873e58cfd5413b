//! open_tree(2), move_mount(2), fsmount(2), fspick(2), mount_setattr(2) (Linux's fs/namespace.c).

use super::FsConfig;
use crate::context::{At, PathCx};
use crate::cred::Caps;
use crate::file::{File, O_PATH};
use crate::mount::{MountFlags, NewFlags, Path};
use crate::namespace::{AttrChange, Beneath, Detached, Recursive};
use crate::peers::Propagation;
use crate::walk::Walk;
use abi::Result;
use abi::errno::{EINVAL, EPERM};
use abi::linux::{
    MOUNT_ATTR__ATIME, MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODEV, MOUNT_ATTR_NODIRATIME,
    MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR_RDONLY,
    MOUNT_ATTR_RELATIME, MOUNT_ATTR_STRICTATIME, MS_PRIVATE, MS_SHARED, MS_SLAVE, MS_UNBINDABLE,
};
use std::sync::Arc;

/// The rule for access times that a word has among its bits: one of three.
fn atime(attrs: u64) -> Result<MountFlags> {
    match attrs as u32 & MOUNT_ATTR__ATIME {
        MOUNT_ATTR_RELATIME => Ok(MountFlags::RELATIME),
        MOUNT_ATTR_NOATIME => Ok(MountFlags::NOATIME),
        MOUNT_ATTR_STRICTATIME => Ok(MountFlags::empty()),
        _ => Err(EINVAL),
    }
}

/// What fsmount(2) may be told.
const KNOWN: u32 = MOUNT_ATTR_RDONLY
    | MOUNT_ATTR_NOSUID
    | MOUNT_ATTR_NODEV
    | MOUNT_ATTR_NOEXEC
    | MOUNT_ATTR__ATIME
    | MOUNT_ATTR_NODIRATIME
    | MOUNT_ATTR_NOSYMFOLLOW;

/// The flags of a new mount, from fsmount(2)'s word.
pub fn fsmount_flags(attrs: u64) -> Result<MountFlags> {
    if attrs & !u64::from(KNOWN) != 0 {
        return Err(EINVAL);
    }
    Ok(MountFlags::from_attrs(attrs) | atime(attrs)?)
}

/// What mount_setattr(2) does, from its words but `MOUNT_ATTR_IDMAP` (`build_mount_kattr`).
pub fn attr_change(set: u64, clear: u64, propagation: u64) -> Result<AttrChange> {
    const ATIME: u64 = MOUNT_ATTR__ATIME as u64;
    let propagation = match propagation {
        0 => None,
        p => Some(propagation_of(u32::try_from(p).map_err(|_| EINVAL)?).ok_or(EINVAL)?),
    };
    if (set | clear) & !u64::from(KNOWN) != 0 {
        return Err(EINVAL);
    }
    let mut c = AttrChange {
        set: MountFlags::from_attrs(set),
        clear: MountFlags::from_attrs(clear),
        propagation,
    };
    // The rules for access times are numbers, not bits: they are changed as a whole.
    match clear & ATIME {
        0 if set & ATIME != 0 => return Err(EINVAL),
        0 => {}
        ATIME => {
            c.clear |= MountFlags::RELATIME | MountFlags::NOATIME;
            c.set |= atime(set)?;
        }
        _ => return Err(EINVAL),
    }
    Ok(c)
}

/// From one of `MS_SHARED` and its kin.
pub(super) fn propagation_of(ms: u32) -> Option<Propagation> {
    Some(match ms {
        MS_PRIVATE => Propagation::Private,
        MS_SHARED => Propagation::Shared,
        MS_SLAVE => Propagation::Slave,
        MS_UNBINDABLE => Propagation::Unbindable,
        _ => return None,
    })
}

/// Where a call's path leads, with what it asked of the walk.
pub struct Target<'a> {
    pub at: At,
    pub path: &'a [u8],
    pub walk: Walk,
}

impl PathCx<'_> {
    /// `EPERM` for who may not change the mounts of its namespace (`may_mount`).
    pub fn may_mount(&self) -> Result<()> {
        if self.cred().has_in(self.fs.ns().user(), Caps::SYS_ADMIN) {
            Ok(())
        } else {
            Err(EPERM)
        }
    }

    fn find(&self, t: &Target<'_>) -> Result<Path> {
        self.resolve(&t.at, t.path, t.walk)
    }

    /// The descriptor of a tree that hangs nowhere.
    fn tree_file(&self, tree: &Arc<Detached>) -> Result<Arc<File>> {
        let root = tree.root().map(|m| Path::root_of(&m)).ok_or(EINVAL)?;
        let ops = Arc::new(super::TreeFile::new(tree, &root)?);
        Ok(File::new(ops, O_PATH, Some(root), self.cred().clone()))
    }

    /// `open_tree(2)`: with `copy`, of a copy of the tree; else as `O_PATH`.
    pub fn open_tree(&self, t: &Target<'_>, copy: Option<Recursive>) -> Result<Arc<File>> {
        if copy.is_some() {
            self.may_mount()?;
        }
        let p = self.find(t)?;
        self.cred().hold(p.inode()?.host_user())?;
        match copy {
            Some(recursive) => self.tree_file(&self.fs.ns().detached_copy(&p, recursive)?),
            None => {
                let ops = Arc::new(super::PathOnly::new(p.inode()?.clone()));
                Ok(File::new(ops, O_PATH, Some(p), self.cred().clone()))
            }
        }
    }

    /// `move_mount(2)` without `MOVE_MOUNT_SET_GROUP`.
    pub fn move_tree(&self, from: &Target<'_>, to: &Target<'_>, beneath: Beneath) -> Result<()> {
        let to = self.find(to)?;
        let from = self.find(from)?;
        self.landlock_mounts()?;
        self.fs
            .ns()
            .move_mount(&from, &to, beneath, &self.fs.root())
    }

    /// `MOVE_MOUNT_SET_GROUP`.
    pub fn set_group(&self, from: &Target<'_>, to: &Target<'_>) -> Result<()> {
        let to = self.find(to)?;
        let from = self.find(from)?;
        self.landlock_mounts()?;
        self.may_change_propagation(&from)?;
        self.may_change_propagation(&to)?;
        self.fs.ns().set_group(&from, &to)
    }

    /// `may_change_propagation`: the mount is in a tree, whose administrator the caller is.
    pub(super) fn may_change_propagation(&self, p: &Path) -> Result<()> {
        let core = self.fs.ns().core_of(&p.mnt).ok_or(EINVAL)?;
        if self.cred().has_in(&core.user, Caps::SYS_ADMIN) {
            Ok(())
        } else {
            Err(EPERM)
        }
    }

    /// `fsmount(2)`: mounts what was configured, nowhere yet.
    pub fn fsmount(&self, config: &FsConfig, flags: MountFlags) -> Result<Arc<File>> {
        let ns = self.fs.ns();
        let shows_all = |root: &Arc<crate::Dentry>| self.shows_all(root.sb().fs.name(), flags);
        let mount = |root, source: &str, kept| ns.detached(root, NewFlags { flags, kept }, source);
        self.tree_file(&config.mounted(shows_all, mount)?)
    }

    /// `fspick(2)`.
    pub fn fspick(&self, t: &Target<'_>) -> Result<FsConfig> {
        let p = self.find(t)?;
        if !p.is_mount_root() {
            return Err(EINVAL);
        }
        FsConfig::pick(self.vfs, &p, self.cred())
    }

    /// `mount_setattr(2)`.
    pub fn mount_setattr(
        &self,
        t: &Target<'_>,
        change: AttrChange,
        recursive: Recursive,
    ) -> Result<()> {
        let p = self.find(t)?;
        self.fs.ns().change(&p, change, recursive)
    }

    /// `EPERM` where the administrator of a user namespace would see more by a new mount of this
    /// type than what it has (`mount_too_revealing`). Gives what the mount keeps of its flags.
    pub(super) fn shows_all(&self, fs: &str, flags: MountFlags) -> Result<MountFlags> {
        if self.cred().has(Caps::SYS_ADMIN) || !matches!(fs, "proc" | "sysfs") {
            return Ok(MountFlags::empty());
        }
        self.fs.ns().shows_all(fs, flags).ok_or(EPERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_checked() {
        assert_eq!(fsmount_flags(0), Ok(MountFlags::RELATIME));
        assert_eq!(fsmount_flags(0x30), Err(EINVAL));
        assert_eq!(fsmount_flags(0x10_0000), Err(EINVAL));
        let strict = fsmount_flags(0x20 | 1).unwrap();
        assert_eq!(strict, MountFlags::RDONLY);
        assert_eq!(strict.attrs(), 0x21);
        assert_eq!(fsmount_flags(0x9e).unwrap().attrs(), 0x9e);
    }

    #[test]
    fn changes_are_checked() {
        // Access times are set only where they are cleared, all of them.
        assert_eq!(attr_change(0x10, 0, 0), Err(EINVAL));
        assert_eq!(attr_change(0x10, 0x10, 0), Err(EINVAL));
        let c = attr_change(0x10, 0x70, 0).unwrap();
        assert_eq!(c.set, MountFlags::NOATIME);
        assert_eq!(c.clear, MountFlags::NOATIME | MountFlags::RELATIME);
        assert_eq!(
            attr_change(0, 0, u64::from(MS_SHARED | MS_SLAVE)),
            Err(EINVAL)
        );
        let c = attr_change(1, 2, u64::from(MS_SLAVE)).unwrap();
        assert_eq!(c.propagation, Some(Propagation::Slave));
    }
}
