//! Attributes: stat, access, chmod, chown, times, truncate, statfs.

use super::file_flags;
use crate::context::{At, PathCx};
use crate::cred::{Caps, Credentials};
use crate::dentry::StatFs;
use crate::file::File;
use crate::inode::{FileFlags, Inode, SetAttr};
use crate::landlock::{Denied, FsAccess};
use crate::locks::LockKind;
use crate::mode::{FileType, Perm, Want, owner_or_capable};
use crate::mount::{MountFlags, Path};
use crate::walk::{Place, Walk};
use crate::watch;
use crate::{Stat, now};
use abi::Result;
use abi::errno::{EACCES, EBADF, EINVAL, EISDIR, ENOSYS, EOPNOTSUPP, EPERM, EROFS};
use abi::linux::{AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use abi::linux::{S_IFIFO, S_IFMT, S_IFSOCK, S_ISGID, S_ISUID};
use std::sync::Arc;

/// One time of utimensat(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UtimeArg {
    /// `UTIME_NOW`.
    Now,
    /// `UTIME_OMIT`.
    Omit,
    /// Nanoseconds since the epoch.
    At(i64),
}

/// The walk that `AT_*` flags of most calls ask for: links are followed unless
/// `AT_SYMLINK_NOFOLLOW`.
fn walk_flags(flags: u32) -> Walk {
    let mut w = Walk::FOLLOW;
    if flags & AT_SYMLINK_NOFOLLOW != 0 {
        w = Walk::empty();
    }
    if flags & AT_EMPTY_PATH != 0 {
        w |= Walk::EMPTY;
    }
    w
}

/// `fstat(2)`: a file opened by a path shows what is at the path, even a device or a FIFO.
pub fn fstat(file: &File) -> Result<Stat> {
    match &file.path {
        Some(p) => p.inode()?.stat(),
        None => file.ops.stat(),
    }
}

/// What `stat(2)` tells of a place.
pub fn stat_path(p: &Path) -> Result<Stat> {
    p.inode()?.stat()
}

/// `fstatfs(2)`.
pub fn fstatfs(file: &File) -> Result<StatFs> {
    match &file.path {
        Some(p) => statfs_path(p),
        None => Ok(StatFs {
            magic: anonymous_magic(file),
            bsize: 4096,
            namelen: 255,
            ..StatFs::default()
        }),
    }
}

/// The file system of a file without a path: pipefs, sockfs, or that of all others.
#[must_use]
pub fn anonymous_magic(file: &File) -> u64 {
    const PIPEFS: u64 = 0x5049_5045;
    const SOCKFS: u64 = 0x534f_434b;
    const ANON_INODEFS: u64 = 0x0904_1934;
    match file.ops.stat().map(|s| s.mode & S_IFMT) {
        Ok(S_IFIFO) => PIPEFS,
        Ok(S_IFSOCK) => SOCKFS,
        _ => ANON_INODEFS,
    }
}

/// What `statfs(2)` tells of a place.
pub fn statfs_path(p: &Path) -> Result<StatFs> {
    let mut s = p.mnt.sb().fs.stat_fs()?;
    // ST_VALID, and the mount's flags by their ST_* numbers.
    s.flags |= 0x20;
    let f = p.mnt.flags();
    for (flag, st) in [
        (MountFlags::NOSUID, 2),
        (MountFlags::NODEV, 4),
        (MountFlags::NOEXEC, 8),
        (MountFlags::NOATIME, 1024),
        (MountFlags::NODIRATIME, 2048),
        (MountFlags::RELATIME, 4096),
    ] {
        if f.contains(flag) {
            s.flags |= st;
        }
    }
    if p.mnt.is_read_only() {
        s.flags |= 1;
    }
    Ok(s)
}

/// `FALLOC_FL_KEEP_SIZE`.
const FALLOC_FL_KEEP_SIZE: i32 = 1;

/// What statx(2) tells of a place.
pub struct Statx {
    pub stat: Stat,
    /// The mount's id, and whether this is its root.
    pub mnt_id: u64,
    pub is_mount_root: bool,
    /// `None` where the file can have none.
    pub flags: Option<FileFlags>,
}

impl Statx {
    /// Of a place.
    pub fn of_path(p: &Path) -> Result<Statx> {
        let inode = p.inode()?;
        Ok(Statx {
            stat: stat_path(p)?,
            mnt_id: p.mnt.id,
            is_mount_root: p.is_mount_root(),
            flags: inode.has_flags().then(|| inode.ext().flags()),
        })
    }
    /// Of an open file without a place.
    pub fn of_file(f: &File) -> Result<Statx> {
        Ok(Statx {
            stat: f.ops.stat()?,
            mnt_id: 0,
            is_mount_root: false,
            flags: None,
        })
    }
}

impl PathCx<'_> {
    /// `newfstatat(2)`, and `statx(2)` (whose further fields are the caller's).
    pub fn stat(&self, at: &At, path: &[u8], flags: u32) -> Result<Stat> {
        match self.resolve_or_file(at, path, walk_flags(flags))? {
            Place::Path(p) => stat_path(&p),
            Place::File(f) => f.ops.stat(),
        }
    }

    /// For `statx(2)`.
    pub fn statx(&self, at: &At, path: &[u8], flags: u32) -> Result<Statx> {
        match self.resolve_or_file(at, path, walk_flags(flags))? {
            Place::Path(p) => Statx::of_path(&p),
            Place::File(f) => Statx::of_file(&f),
        }
    }

    /// Whether the caller may know what of a file is in memory: its writers, and who owns it or
    /// could write to it (`can_do_cachestat`).
    #[must_use]
    pub fn may_see_cache(&self, f: &File) -> bool {
        let owns = |i: &Arc<dyn Inode>| {
            i.perm().is_ok_and(|p| owner_or_capable(p, self.cred()))
                || i.permission(&self.caller, Want::WRITE).is_ok()
        };
        f.writable()
            || f.path
                .as_ref()
                .and_then(|p| p.inode().ok())
                .is_some_and(owns)
    }

    /// `statfs(2)`.
    pub fn statfs(&self, path: &[u8]) -> Result<StatFs> {
        statfs_path(&self.resolve(&At::Cwd, path, Walk::FOLLOW)?)
    }

    /// `faccessat2(2)`: by the real ids, unless `AT_EACCESS`.
    pub fn access(&self, at: &At, path: &[u8], mode: u32, flags: u32) -> Result<()> {
        if mode & !7 != 0 || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(EINVAL);
        }
        let cred = if flags & AT_EACCESS != 0 {
            self.cred().clone()
        } else {
            real_credentials(self.cred())
        };
        let mut cx = *self;
        cx.caller.cred = &cred;
        let p = match cx.resolve_or_file(at, path, walk_flags(flags))? {
            Place::Path(p) => p,
            Place::File(f) => {
                let perm = f.ops.stat()?.perm();
                let want = Want::from_bits_truncate(mode);
                return crate::mode::generic_permission(perm, FileType::Fifo, &cred, want);
            }
        };
        let inode = p.inode()?;
        let want = Want::from_bits_truncate(mode);
        if want.contains(Want::EXEC)
            && inode.file_type() == FileType::Regular
            && (p.mnt.flags().contains(MountFlags::NOEXEC) || p.mnt.sb().fs.no_exec())
        {
            return Err(EACCES);
        }
        cx.access_permission(&p, want)?;
        if want.contains(Want::WRITE) && !inode.file_type().is_special() && p.mnt.is_read_only() {
            return Err(EROFS);
        }
        Ok(())
    }

    /// `fchmodat2(2)`.
    pub fn chmod(&self, at: &At, path: &[u8], mode: u32, flags: u32) -> Result<()> {
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(EINVAL);
        }
        match self.resolve_or_file(at, path, walk_flags(flags))? {
            Place::Path(p) => self.chmod_path(&p, mode),
            Place::File(_) => Ok(()),
        }
    }

    /// `fchmod(2)`. Files without a path (pipes, sockets) take any mode and forget it.
    pub fn fchmod(&self, file: &File, mode: u32) -> Result<()> {
        not_path_only(file)?;
        file.path
            .as_ref()
            .map_or(Ok(()), |p| self.chmod_path(p, mode))
    }

    fn chmod_path(&self, p: &Path, mode: u32) -> Result<()> {
        p.want_write()?;
        let inode = p.inode()?;
        if inode.file_type() == FileType::Symlink {
            return Err(EOPNOTSUPP);
        }
        let _held = inode.lock_attributes();
        file_flags::may_change(&**inode)?;
        self.change_attr(p, |perm| {
            if inode.decides_changes() {
                return Ok(Some(SetAttr {
                    mode: Some(mode & 0o7777),
                    ..SetAttr::default()
                }));
            }
            if !owner_or_capable(perm, self.cred()) {
                return Err(EPERM);
            }
            let mut mode = mode & 0o7777;
            if !self.cred().in_group(perm.gid)
                && !self.cred().has_over(Caps::FSETID, perm.uid, perm.gid)
            {
                mode &= !S_ISGID;
            }
            Ok(Some(SetAttr {
                mode: Some(mode),
                ..SetAttr::default()
            }))
        })
    }

    /// `fchownat(2)`: `None` leaves an id as it is.
    pub fn chown(
        &self,
        at: &At,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        flags: u32,
    ) -> Result<()> {
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(EINVAL);
        }
        match self.resolve_or_file(at, path, walk_flags(flags))? {
            Place::Path(p) => self.chown_path(&p, uid, gid),
            Place::File(_) => Ok(()),
        }
    }

    /// `fchown(2)`.
    pub fn fchown(&self, file: &File, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        not_path_only(file)?;
        file.path
            .as_ref()
            .map_or(Ok(()), |p| self.chown_path(p, uid, gid))
    }

    fn chown_path(&self, p: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        p.want_write()?;
        let inode = p.inode()?;
        let is_dir = inode.file_type() == FileType::Directory;
        let _held = inode.lock_attributes();
        file_flags::may_change(&**inode)?;
        self.change_attr(p, |perm| {
            let decides = inode.decides_changes();
            if !decides {
                self.may_chown(perm, uid, gid)?;
            }
            let mut mode = None;
            if !is_dir {
                let cred = self.cred();
                let m = perm.mode & !S_ISUID & !super::dropped_sgid(perm, cred);
                if m != perm.mode {
                    // That is a change of the mode, too (`setattr_prepare`).
                    if !decides && !owner_or_capable(perm, cred) {
                        return Err(EPERM);
                    }
                    mode = Some(m);
                }
            }
            Ok(Some(SetAttr {
                uid,
                gid,
                mode,
                ..SetAttr::default()
            }))
        })?;
        if !is_dir {
            inode.forget_capabilities();
        }
        Ok(())
    }

    /// Whether a file may be given to others (`chown_ok`, `chgrp_ok`).
    fn may_chown(&self, perm: Perm, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let cred = self.cred();
        let owner = cred.fsuid == perm.uid;
        if !cred.has_over(Caps::CHOWN, perm.uid, perm.gid) {
            if uid.is_some_and(|u| !owner || u != perm.uid) {
                return Err(EPERM);
            }
            if gid.is_some_and(|g| !owner || (g != perm.gid && !cred.in_group(g))) {
                return Err(EPERM);
            }
        }
        Ok(())
    }

    /// `utimensat(2)` with a path: access and modification time.
    pub fn utimens(&self, at: &At, path: &[u8], times: [UtimeArg; 2], flags: u32) -> Result<()> {
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(EINVAL);
        }
        if times == [UtimeArg::Omit; 2] {
            return Ok(());
        }
        match self.resolve_or_file(at, path, walk_flags(flags))? {
            Place::Path(p) => self.utimens_path(&p, times),
            Place::File(_) => Ok(()),
        }
    }

    /// `utimensat(2)` without a path: futimens(3).
    pub fn futimens(&self, file: &File, times: [UtimeArg; 2]) -> Result<()> {
        not_path_only(file)?;
        match &file.path {
            Some(p) if times != [UtimeArg::Omit; 2] => self.utimens_path(p, times),
            _ => Ok(()),
        }
    }

    fn utimens_path(&self, p: &Path, times: [UtimeArg; 2]) -> Result<()> {
        p.want_write()?;
        let inode = p.inode()?;
        let _held = inode.lock_attributes();
        match times {
            [UtimeArg::Now, UtimeArg::Now] => file_flags::not_immutable(&**inode)?,
            _ => file_flags::may_change(&**inode)?,
        }
        let now = now();
        let time = |t| match t {
            UtimeArg::Now => Some(now),
            UtimeArg::Omit => None,
            UtimeArg::At(t) => Some(t),
        };
        let attr = SetAttr {
            atime: time(times[0]),
            mtime: time(times[1]),
            atime_now: times[0] == UtimeArg::Now,
            mtime_now: times[1] == UtimeArg::Now,
            ..SetAttr::default()
        };
        self.change_attr(p, |perm| {
            if !inode.decides_changes() && !owner_or_capable(perm, self.cred()) {
                if times != [UtimeArg::Now; 2] {
                    return Err(EPERM);
                }
                // Now, for both, needs only the right to write.
                self.permission(p, Want::WRITE)?;
            }
            Ok(Some(attr))
        })
    }

    /// Sets the size, which was checked, with what that takes away.
    pub(super) fn change_size(&self, p: &Path, size: u64) -> Result<()> {
        let inode = p.inode()?;
        let _held = inode.lock_attributes();
        self.change_attr(p, |perm| {
            Ok(Some(SetAttr {
                size: Some(size),
                mode: super::without_privileges(perm, self.cred()),
                ..SetAttr::default()
            }))
        })?;
        inode.forget_capabilities();
        Ok(())
    }

    /// `truncate(2)`.
    pub fn truncate(&self, path: &[u8], len: i64) -> Result<()> {
        let size = u64::try_from(len).map_err(|_| EINVAL)?;
        let p = self.resolve(&At::Cwd, path, Walk::FOLLOW)?;
        let inode = p.inode()?;
        match inode.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(EISDIR),
            _ => return Err(EINVAL),
        }
        p.want_write()?;
        self.permission(&p, Want::WRITE)?;
        file_flags::may_cut(&**inode)?;
        inode.ext().get_write_access()?;
        let free = inode
            .ext()
            .break_leases(LockKind::Write, Some(self.blocker));
        let r = free
            .and_then(|()| self.landlock(&p, FsAccess::TRUNCATE))
            .and_then(|()| self.change_size(&p, size));
        inode.ext().put_write_access();
        r
    }

    /// `ftruncate(2)`.
    pub fn ftruncate(&self, file: &File, len: i64) -> Result<()> {
        let size = u64::try_from(len).map_err(|_| EINVAL)?;
        not_path_only(file)?;
        if !file.writable() {
            return Err(EINVAL);
        }
        if let Some(p) = &file.path {
            let inode = p.inode()?;
            if inode.file_type() != FileType::Regular {
                return Err(EINVAL);
            }
            file_flags::may_cut(&**inode)?;
            if file.denied().contains(Denied::TRUNCATE) {
                return Err(EACCES);
            }
            self.remove_privileges(p)?;
        }
        file.ops.truncate(size)?;
        if let Some(p) = &file.path {
            watch::happened(&p.dentry, watch::IN_MODIFY);
        }
        Ok(())
    }

    /// `fallocate(2)`; the range is checked.
    pub fn fallocate(&self, file: &File, mode: i32, offset: u64, len: u64) -> Result<()> {
        if let Some(p) = &file.path {
            let inode = p.inode()?;
            if mode & !FALLOC_FL_KEEP_SIZE != 0 {
                file_flags::may_cut(&**inode)?;
            }
            file_flags::not_immutable(&**inode)?;
        }
        file.ops.allocate(mode, offset, len)?;
        file.modified();
        self.contents_changed(file)
    }

    /// Takes away what a file loses when the caller changes its contents.
    pub fn contents_changed(&self, file: &File) -> Result<()> {
        file.path
            .as_ref()
            .map_or(Ok(()), |p| self.remove_privileges(p))
    }

    /// With a change of a file's contents (`file_remove_privs`).
    fn remove_privileges(&self, p: &Path) -> Result<()> {
        let inode = p.inode()?;
        if inode.file_type() != FileType::Regular {
            return Ok(());
        }
        let drops = |perm| super::without_privileges(perm, self.cred());
        // The lock only where there is something to do: this is asked at each write.
        if drops(inode.perm()?).is_some() {
            let _held = inode.lock_attributes();
            self.change_attr(p, |perm| {
                Ok(drops(perm).map(|mode| SetAttr {
                    mode: Some(mode),
                    ..SetAttr::default()
                }))
            })?;
        }
        inode.forget_capabilities();
        Ok(())
    }

    /// `syncfs(2)`.
    pub fn syncfs(&self, file: &File) -> Result<()> {
        not_path_only(file)?;
        file.path.as_ref().ok_or(ENOSYS)?.mnt.sb().fs.sync()
    }
}

fn not_path_only(file: &File) -> Result<()> {
    if file.flags() & crate::file::O_PATH != 0 {
        Err(EBADF)
    } else {
        Ok(())
    }
}

/// The credentials that access(2) asks with (`access_override_creds`).
fn real_credentials(c: &Arc<Credentials>) -> Arc<Credentials> {
    const NO_SETUID_FIXUP: u32 = 1 << 2;
    let mut r = Credentials::clone(c);
    r.fsuid = c.uid;
    r.fsgid = c.gid;
    if c.securebits & NO_SETUID_FIXUP == 0 {
        r.effective = if c.uid == c.user_ns.root_uid() {
            c.permitted
        } else {
            Caps::empty()
        };
    }
    if r == **c { c.clone() } else { Arc::new(r) }
}
