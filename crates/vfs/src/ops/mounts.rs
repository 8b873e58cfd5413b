//! mount(2), umount2(2), pivot_root(2).

use super::fs_config::{may_mount_type, set_owner};
use super::mount_api::propagation_of;
use crate::context::{At, PathCx};
use crate::cred::Caps;
use crate::dentry::ReadOnly;
use crate::mount::{MountFlags, NewFlags, Path};
use crate::namespace::{Beneath, Recursive};
use crate::walk::Walk;
use abi::Result;
use abi::errno::{EBUSY, EINVAL, ENODEV, ENOENT, EPERM};
use abi::linux::{
    MNT_DETACH, MNT_EXPIRE, MNT_FORCE, MS_BIND, MS_MOVE, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT,
    MS_SHARED, MS_SILENT, MS_SLAVE, MS_UNBINDABLE, UMOUNT_NOFOLLOW,
};

/// The strings of mount(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct MountArgs<'a> {
    pub source: &'a [u8],
    pub fs_type: &'a [u8],
    pub data: &'a [u8],
}

fn text(s: &[u8]) -> Result<&str> {
    std::str::from_utf8(s).map_err(|_| EINVAL)
}

impl PathCx<'_> {
    /// `mount(2)`.
    pub fn mount(&self, target: &[u8], flags: u64, args: MountArgs<'_>) -> Result<()> {
        let mut flags = flags as u32;
        if flags & 0xffff_0000 == 0xc0ed_0000 {
            flags &= 0xffff;
        }
        let mut at = self.resolve(&At::Cwd, target, Walk::FOLLOW)?;
        self.landlock_mounts()?;
        self.may_mount()?;
        let ns = self.fs.ns();
        let recursive = if flags & MS_REC != 0 {
            Recursive::Yes
        } else {
            Recursive::No
        };
        const PROPAGATION: u32 = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
        if flags & MS_REMOUNT != 0 {
            at.follow_down();
            return self.remount(&at, flags, args.data);
        }
        if flags & MS_BIND != 0 {
            let from = self.mount_source(args.source)?;
            self.cred().hold(from.inode()?.host_user())?;
            ns.bind(&from, &at, recursive)?;
            return Ok(());
        }
        if flags & PROPAGATION != 0 {
            if flags & !(PROPAGATION | MS_REC | MS_SILENT) != 0 {
                return Err(EINVAL);
            }
            let to = propagation_of(flags & PROPAGATION).ok_or(EINVAL)?;
            at.follow_down();
            if !at.is_mount_root() {
                return Err(EINVAL);
            }
            self.may_change_propagation(&at)?;
            return ns.set_propagation(&at, to, recursive);
        }
        if flags & MS_MOVE != 0 {
            let from = self.mount_source(args.source)?;
            return ns.move_mount(&from, &at, Beneath::No, &self.fs.root());
        }
        self.mount_new(&at, flags, args)
    }

    /// `MS_REMOUNT`: of the mount alone, or of its file system.
    fn remount(&self, at: &Path, flags: u32, data: &[u8]) -> Result<()> {
        let ns = self.fs.ns();
        let new = at.mnt.flags().remounted(flags);
        if flags & MS_BIND != 0 {
            return ns.set_flags(at, new);
        }
        let sb = at.mnt.sb();
        // What is locked of the mount is looked at before the file system changes.
        ns.may_set_flags(at, new)?;
        if !self.cred().has_in(&sb.owner(), Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        let ro = read_only(flags);
        if ro == ReadOnly::Yes && !sb.is_read_only() && sb.has_writers() {
            return Err(EBUSY);
        }
        sb.fs.remount(text(data)?)?;
        sb.set_read_only(ro);
        ns.set_flags(at, new)
    }

    /// A mount of a file system that is made, or found, by its type.
    fn mount_new(&self, at: &Path, flags: u32, args: MountArgs<'_>) -> Result<()> {
        if args.fs_type.is_empty() {
            return Err(EINVAL);
        }
        let ns = self.fs.ns();
        let name = text(args.fs_type)?;
        let t = self.vfs.fs_type(name).map_err(|_| ENODEV)?;
        let source = String::from_utf8_lossy(args.source).into_owned();
        let own = MountFlags::from_ms(flags);
        may_mount_type(name, self.cred(), &self.cred().user_ns)?;
        let kept = self.shows_all(name, own)?;
        let named = (name, &*source);
        let root = t.mount_with(self.vfs, &self.caller, named, text(args.data)?)?;
        set_owner(root.sb(), self.cred());
        // A file system that was there already is read-only in this mount alone.
        if own.contains(MountFlags::RDONLY) && !root.sb().is_mounted() {
            root.sb().set_read_only(ReadOnly::Yes);
        }
        ns.mount(at, root, NewFlags { flags: own, kept }, &source)?;
        Ok(())
    }

    fn mount_source(&self, source: &[u8]) -> Result<Path> {
        if source.is_empty() {
            return Err(ENOENT);
        }
        self.resolve(&At::Cwd, source, Walk::FOLLOW)
    }

    /// `umount2(2)`.
    pub fn umount(&self, target: &[u8], flags: u32) -> Result<()> {
        if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 {
            return Err(EINVAL);
        }
        let walk = if flags & UMOUNT_NOFOLLOW != 0 {
            Walk::empty()
        } else {
            Walk::FOLLOW
        };
        let at = self.resolve(&At::Cwd, target, walk)?;
        self.may_mount()?;
        if at.is_mount_root() || at.clone().follow_down() {
            self.landlock_mounts()?;
        }
        if flags & MNT_FORCE != 0 && !self.cred().has(Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        self.fs.ns().umount(at, flags)
    }

    /// `pivot_root(2)`.
    pub fn pivot_root(&self, new_root: &[u8], put_old: &[u8]) -> Result<()> {
        self.may_mount()?;
        let dir = Walk::FOLLOW | Walk::DIRECTORY;
        let new = self.resolve(&At::Cwd, new_root, dir)?;
        let old = self.resolve(&At::Cwd, put_old, dir)?;
        self.landlock_mounts()?;
        self.fs.ns().pivot_root(&self.fs.root(), &new, &old)
    }
}

fn read_only(ms: u32) -> ReadOnly {
    if ms & MS_RDONLY != 0 {
        ReadOnly::Yes
    } else {
        ReadOnly::No
    }
}
