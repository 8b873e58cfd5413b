//! What system calls are made of: the methods of [`PathCx`](crate::PathCx), one file a family.

mod attr;
mod counts;
pub(crate) mod file_flags;
mod fs_config;
mod handles;
mod landlock;
mod mount_api;
mod mounts;
mod names;
pub mod open;
mod protect;
mod record_locks;
mod rename;
mod tree_file;
mod xattr;

pub use attr::{Statx, UtimeArg, anonymous_magic, fstat, fstatfs, stat_path, statfs_path};
pub use counts::ExecGuard;
pub use fs_config::{Exclusive, FsConfig};
pub use handles::{Handle, Marked, Purpose, internal_dev};
pub use landlock::allow_beneath;
pub use mount_api::{Target, attr_change, fsmount_flags};
pub use mounts::MountArgs;
pub use open::{OpenHow, PathOnly};
pub use record_locks::Wait;
pub use tree_file::TreeFile;
pub use xattr::XattrOf;

use crate::context::PathCx;
use crate::cred::{Caps, Credentials};
use crate::dentry::Dentry;
use crate::inode::{FileFlags, Inode, NewNode, SetAttr};
use crate::mode::{FileType, Perm, Want};
use crate::mount::Path;
use crate::vfs::{DeviceUse, DeviceWant};
use crate::watch;
use abi::errno::{EBUSY, EEXIST, EISDIR, ENOENT, ENOTDIR, EOVERFLOW, EPERM, EROFS};
use abi::linux::{S_ISGID, S_ISUID, S_ISVTX};
use abi::{Errno, Result};
use std::sync::Arc;

impl PathCx<'_> {
    /// Permission to `want` at `p`, with read-only file systems (`inode_permission`).
    pub fn permission(&self, p: &Path, want: Want) -> Result<()> {
        self.permission_by(p, want, |i| i.permission(&self.caller, want))
    }

    /// The same for who does not use it now: access(2), chdir(2), chroot(2).
    fn access_permission(&self, p: &Path, want: Want) -> Result<()> {
        self.permission_by(p, want, |i| i.access(&self.caller, want))
    }

    fn permission_by(
        &self,
        p: &Path,
        want: Want,
        own: impl FnOnce(&dyn Inode) -> Result<()>,
    ) -> Result<()> {
        let inode = p.inode()?;
        if want.contains(Want::WRITE)
            && p.mnt.sb().is_read_only()
            && !inode.file_type().is_special()
        {
            return Err(EROFS);
        }
        if want.contains(Want::WRITE) && inode.ext().flags().contains(FileFlags::IMMUTABLE) {
            return Err(EPERM);
        }
        own(&**inode)?;
        match inode.file_type() {
            kind @ (FileType::Char | FileType::Block) => self.device_permission(inode, kind, want),
            _ => Ok(()),
        }
    }

    fn device_permission(&self, i: &Arc<dyn Inode>, kind: FileType, want: Want) -> Result<()> {
        let mut device = DeviceWant::empty();
        device.set(DeviceWant::READ, want.contains(Want::READ));
        device.set(DeviceWant::WRITE, want.contains(Want::WRITE));
        if device.is_empty() {
            return Ok(());
        }
        self.vfs.devices.may(|| {
            Ok(DeviceUse {
                kind,
                rdev: i.stat()?.rdev,
                want: device,
                caller: self.caller,
            })
        })
    }

    /// Changes attributes that were checked, and tells the watchers.
    fn set_attr(&self, p: &Path, a: &SetAttr) -> Result<()> {
        p.inode()?.set_attr(&self.caller, a)?;
        if let Some(mask) = told(a) {
            watch::happened(&p.dentry, mask);
        }
        Ok(())
    }

    /// Changes attributes as `decide` says by owner and mode, with the inode's lock held
    /// ([`Inode::lock_attributes`]): in one step for all in here, and for others as far as the file
    /// system can tell.
    fn change_attr(
        &self,
        p: &Path,
        decide: impl Fn(Perm) -> Result<Option<SetAttr>>,
    ) -> Result<()> {
        /// A caller that loses as often has somebody against it.
        const TRIES: u32 = 16;
        let inode = p.inode()?;
        for n in 1..=TRIES {
            let perm = inode.perm()?;
            let Some(mut a) = decide(perm)? else {
                return Ok(());
            };
            // A caller that may change everybody's files is not kept from it by them.
            a.seen = (n < TRIES || !self.cred().has(Caps::FOWNER)).then_some(perm);
            match self.set_attr(p, &a) {
                Err(EBUSY) => {}
                r => return r,
            }
        }
        Err(EBUSY)
    }

    /// Whether a name may be made in `dir` (`may_create`), whose lock is held.
    fn may_create(&self, dir: &Path) -> Result<()> {
        if dir.dentry.is_unhashed() && !dir.is_mount_root() {
            return Err(ENOENT);
        }
        // Its owner must have a number where the file system belongs (`fsuidgid_has_mapping`).
        let (users, cred) = (dir.dentry.sb().owner(), self.cred());
        if !users.is_initial()
            && (users.uid_number(cred.fsuid).is_none() || users.gid_number(cred.fsgid).is_none())
        {
            return Err(EOVERFLOW);
        }
        self.permission(dir, Want::WRITE | Want::EXEC)
    }

    /// What a file to be made in `dir`, whose lock is held, shall be like, if it may be made.
    fn may_make(&self, dir: &Path, mode: u32, kind: FileType) -> Result<NewNode> {
        dir.want_write()?;
        self.landlock(dir, landlock::to_make(kind))?;
        self.may_make_unnamed(dir, mode, kind)
    }

    /// As [`PathCx::may_make`], by a call that has no path (`mq_open(2)`): its hooks are the
    /// inode's.
    fn may_make_unnamed(&self, dir: &Path, mode: u32, kind: FileType) -> Result<NewNode> {
        dir.want_write()?;
        self.may_create(dir)?;
        self.new_node(dir, mode, kind)
    }

    /// Before a name is made in `dir`, whose lock is held, `EEXIST` where it is known to be there.
    /// Where others change names, only the making itself tells all; and asking costs.
    fn expect_missing(&self, dir: &Path, name: &[u8]) -> Result<()> {
        let old = if dir.dentry.sb().tells_by_making() {
            dir.dentry.peek(name)
        } else {
            Some(dir.dentry.lookup_locked(&self.caller, name)?)
        };
        match old {
            Some(d) if !d.is_negative() => Err(EEXIST),
            _ => Ok(()),
        }
    }

    /// Why a name cannot be made, after [`PathCx::expect_missing`]: not for `e` where it is there.
    fn not_made(&self, dir: &Path, name: &[u8], e: Errno) -> Errno {
        if e == EEXIST || !dir.dentry.sb().tells_by_making() {
            return e;
        }
        match dir.dentry.lookup_locked(&self.caller, name) {
            Ok(d) if !d.is_negative() => EEXIST,
            _ => e,
        }
    }

    /// Whether `victim` may be removed from `dir` (`may_delete`), whose lock is held.
    fn may_delete(&self, dir: &Path, victim: &Arc<Dentry>, as_dir: AsDir) -> Result<()> {
        let inode = victim.inode()?;
        self.permission(dir, Want::WRITE | Want::EXEC)?;
        if dir.inode()?.ext().flags().contains(FileFlags::APPEND) {
            return Err(EPERM);
        }
        file_flags::may_change(&**inode)?;
        let d = dir.inode()?.perm()?;
        if d.mode & S_ISVTX != 0 {
            let v = inode.perm()?;
            let fsuid = self.cred().fsuid;
            if v.uid != fsuid && d.uid != fsuid && !self.cred().has_over(Caps::FOWNER, v.uid, v.gid)
            {
                return Err(EPERM);
            }
        }
        let is_dir = inode.file_type() == FileType::Directory;
        match as_dir {
            AsDir::Yes if !is_dir => return Err(ENOTDIR),
            AsDir::Yes if victim.parent().is_none() => return Err(EBUSY),
            AsDir::No if is_dir => return Err(EISDIR),
            _ => {}
        }
        if dir.dentry.is_unhashed() && !dir.is_mount_root() {
            return Err(ENOENT);
        }
        Ok(())
    }

    /// The attributes of a file to be made in `dir` (`inode_init_owner`, and the umask).
    fn new_node(&self, dir: &Path, mode: u32, kind: FileType) -> Result<NewNode> {
        let mode = mode & 0o7777;
        let inode = &**dir.inode()?;
        let mode = match kind {
            FileType::Symlink => 0o777,
            _ if inode.takes_umask() => mode & !self.fs.umask(),
            _ => mode,
        };
        new_node(inode, self.cred(), mode, kind)
    }
}

/// What those who watch hear of a change of attributes (`fsnotify_change`).
fn told(a: &SetAttr) -> Option<u32> {
    let owner = a.uid.is_some() || a.gid.is_some() || a.mode.is_some();
    let times = match (a.atime, a.mtime) {
        (None, None) => 0,
        (Some(_), Some(_)) => watch::IN_ATTRIB,
        (Some(_), None) => watch::IN_ACCESS,
        (None, Some(_)) => watch::IN_MODIFY,
    };
    let size = if a.size.is_some() {
        watch::IN_MODIFY
    } else {
        0
    };
    let owner = if owner { watch::IN_ATTRIB } else { 0 };
    // (None by a chown(2) that changes nothing.)
    Some(times | size | owner).filter(|mask| *mask != 0)
}

/// Whether what is removed must be a directory, or must not be one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AsDir {
    No,
    Yes,
}

fn new_node(dir: &dyn Inode, cred: &Credentials, mut mode: u32, kind: FileType) -> Result<NewNode> {
    let d = dir.perm()?;
    let mut gid = cred.fsgid;
    if d.mode & S_ISGID != 0 {
        gid = d.gid;
        if kind == FileType::Directory {
            mode |= S_ISGID;
        } else if mode & (S_ISGID | 0o010) == S_ISGID | 0o010
            && !cred.in_group(gid)
            && !cred.has_over(Caps::FSETID, d.uid, d.gid)
        {
            mode &= !S_ISGID;
        }
    }
    Ok(NewNode {
        mode,
        uid: cred.fsuid,
        gid,
    })
}

/// The mode without what a change of the contents by `cred` takes away
/// (`setattr_should_drop_suidgid`); `None` where it stays.
#[must_use]
pub fn without_privileges(p: Perm, cred: &Credentials) -> Option<u32> {
    if p.mode & (S_ISUID | S_ISGID) == 0 || cred.has(Caps::FSETID) {
        return None;
    }
    let new = p.mode & !S_ISUID & !dropped_sgid(p, cred);
    (new != p.mode).then_some(new)
}

/// The set-group-ID bit, where a change by `cred` takes it away (`setattr_should_drop_sgid`).
/// Without the group's execute bit it once meant mandatory locks, and stays for group members.
fn dropped_sgid(p: Perm, cred: &Credentials) -> u32 {
    let stays =
        p.mode & 0o010 == 0 && (cred.in_group(p.gid) || cred.has_over(Caps::FSETID, p.uid, p.gid));
    if stays { 0 } else { S_ISGID }
}
