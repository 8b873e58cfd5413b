//! What there is to know of files and file systems: stat, statx, statfs.

use super::SysResult;
use super::args::*;
use super::paths::with;
use crate::task::Context;
use abi::errno::*;
use abi::linux::AT_SYMLINK_NOFOLLOW;
use abi::time::Timespec;
use abi::{Result, Va};
use vfs::FileFlags;
use vfs::dentry::StatFs;
use vfs::{At, Stat};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

flags! {
    /// What statx(2) is asked for.
    pub(super) struct StatxMask: u32, kept {
        STATX_BASIC_STATS,
        STATX_TYPE,
        STATX_MODE,
        STATX_NLINK,
        STATX_UID,
        STATX_GID,
        STATX_ATIME,
        STATX_MTIME,
        STATX_CTIME,
        STATX_INO,
        STATX_SIZE,
        STATX_BLOCKS,
        STATX_BTIME,
        STATX_MNT_ID,
        STATX_MNT_ID_UNIQUE,
        STATX__RESERVED,
    }
}

/// `struct stat` of x86-64.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct KernelStat {
    dev: u64,
    ino: u64,
    nlink: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    pad: u32,
    rdev: u64,
    size: i64,
    blksize: i64,
    blocks: i64,
    atime: Timespec,
    mtime: Timespec,
    ctime: Timespec,
    unused: [i64; 3],
}

impl Pointee for KernelStat {
    fn text(&self) -> Option<String> {
        let (mode, size) = (text::octal(self.mode), self.size);
        Some(format!("{{st_mode={mode}, st_size={size}, ...}}"))
    }
}

opaque! { Statx }

fn put_stat(cx: &Context, out: UserOut<KernelStat>, s: &Stat) -> SysResult {
    let k = KernelStat {
        dev: s.dev,
        ino: s.ino,
        nlink: u64::from(s.nlink),
        mode: s.mode,
        uid: cx.cred().user_ns.uid_shown(s.uid),
        gid: cx.cred().user_ns.gid_shown(s.gid),
        rdev: s.rdev,
        size: s.size as i64,
        blksize: i64::from(s.blksize),
        blocks: s.blocks as i64,
        atime: Timespec::from_nanos(s.atime),
        mtime: Timespec::from_nanos(s.mtime),
        ctime: Timespec::from_nanos(s.ctime),
        ..KernelStat::default()
    };
    out.write(&cx.mm(), &k)?;
    Ok(0)
}

fn stat(cx: &mut Context, path: PathPtr, out: UserOut<KernelStat>) -> SysResult {
    let s = with(cx, DirFd::CWD, path, |p, at, path| p.stat(at, path, 0))?;
    put_stat(cx, out, &s)
}
fn lstat(cx: &mut Context, path: PathPtr, out: UserOut<KernelStat>) -> SysResult {
    let s = with(cx, DirFd::CWD, path, |p, at, path| {
        p.stat(at, path, AT_SYMLINK_NOFOLLOW)
    })?;
    put_stat(cx, out, &s)
}
fn fstat(cx: &mut Context, fd: Fd, out: UserOut<KernelStat>) -> SysResult {
    let s = vfs::ops::fstat(&*fd.any_file(cx)?)?;
    put_stat(cx, out, &s)
}
/// How fresh what statx(2) tells must be.
pub(super) const SYNC_TYPE: AtFlags =
    AtFlags::AT_STATX_FORCE_SYNC.union(AtFlags::AT_STATX_DONT_SYNC);

/// The path of a call that takes an empty one, or none at all, for the descriptor itself:
/// glibc's fstat is this.
pub(super) fn path_or_empty(
    cx: &Context,
    path: Option<PathPtr>,
    flags: AtFlags,
) -> Result<Vec<u8>> {
    match path {
        None if flags.contains(AtFlags::AT_EMPTY_PATH) => Ok(Vec::new()),
        path => path.unwrap_or(PathPtr(Va(0))).read(cx),
    }
}

/// Whether the call is about the descriptor itself.
fn is_fstat(dirfd: DirFd, path: &[u8], flags: AtFlags) -> bool {
    path.is_empty() && flags.contains(AtFlags::AT_EMPTY_PATH) && dirfd.0 >= 0
}

fn newfstatat(
    cx: &mut Context,
    dirfd: DirFd,
    path: Option<PathPtr>,
    out: UserOut<KernelStat>,
    flags: AtFlags,
) -> SysResult {
    const KNOWN: AtFlags = AtFlags::AT_SYMLINK_NOFOLLOW
        .union(AtFlags::AT_NO_AUTOMOUNT)
        .union(AtFlags::AT_EMPTY_PATH)
        .union(SYNC_TYPE);
    if !KNOWN.contains(flags) {
        return Err(EINVAL);
    }
    let path = path_or_empty(cx, path, flags)?;
    if is_fstat(dirfd, &path, flags) {
        let s = vfs::ops::fstat(&*dirfd.fd().any_file(cx)?)?;
        return put_stat(cx, out, &s);
    }
    let at = At::new(&cx.files(), dirfd.0, &path)?;
    let flags = (flags - SYNC_TYPE).bits();
    let s = cx.task.with_paths(|p| p.stat(&at, &path, flags))?;
    put_stat(cx, out, &s)
}

/// `struct statx_timestamp`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StatxTime {
    sec: i64,
    nsec: u32,
    pad: i32,
}

/// `struct statx`, 256 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Statx {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    pad: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    atime: StatxTime,
    btime: StatxTime,
    ctime: StatxTime,
    mtime: StatxTime,
    rdev_major: u32,
    rdev_minor: u32,
    dev_major: u32,
    dev_minor: u32,
    mnt_id: u64,
    dio: [u32; 2],
    spare: [u64; 12],
}

/// Splits a `dev_t` as stat(2) has it.
fn major_minor(dev: u64) -> (u32, u32) {
    let major = ((dev >> 8) & 0xfff) | ((dev >> 32) & 0xffff_f000);
    let minor = (dev & 0xff) | ((dev >> 12) & 0xffff_ff00);
    (major as u32, minor as u32)
}

fn statx(
    cx: &mut Context,
    dirfd: DirFd,
    path: Option<PathPtr>,
    flags: AtFlags,
    mask: StatxMask,
    out: UserOut<Statx>,
) -> SysResult {
    if mask.contains(StatxMask::STATX__RESERVED) || flags.contains(SYNC_TYPE) {
        return Err(EINVAL);
    }
    let path = path_or_empty(cx, path, flags)?;
    do_statx(cx, dirfd, &path, flags, mask, out)
}

/// statx(2) of a path that has been read, and flags that go together.
pub(super) fn do_statx(
    cx: &Context,
    dirfd: DirFd,
    path: &[u8],
    flags: AtFlags,
    mask: StatxMask,
    out: UserOut<Statx>,
) -> SysResult {
    let at = At::new(&cx.files(), dirfd.0, path)?;
    let found = if is_fstat(dirfd, path, flags) {
        let f = dirfd.fd().any_file(cx)?;
        match &f.path {
            Some(p) => vfs::ops::Statx::of_path(p)?,
            None => vfs::ops::Statx::of_file(&f)?,
        }
    } else {
        let flags = (flags - SYNC_TYPE).bits();
        cx.task.with_paths(|p| p.statx(&at, path, flags))?
    };
    out.write(&cx.mm(), &shown_statx(cx, &found, mask))?;
    Ok(0)
}

/// What statx(2) shows of it.
fn shown_statx(cx: &Context, found: &vfs::ops::Statx, mask: StatxMask) -> Statx {
    let s = &found.stat;
    let t = |ns: i64| {
        let t = Timespec::from_nanos(ns);
        StatxTime {
            sec: t.sec,
            nsec: t.nsec as u32,
            pad: 0,
        }
    };
    let (rmaj, rmin) = major_minor(s.rdev);
    let (dmaj, dmin) = major_minor(s.dev);
    const ATTR_MOUNT_ROOT: u64 = 0x2000;
    // (Their numbers are those of FS_IOC_GETFLAGS.)
    let shown = FileFlags::IMMUTABLE | FileFlags::APPEND | FileFlags::NODUMP;
    let of_root = if found.is_mount_root {
        ATTR_MOUNT_ROOT
    } else {
        0
    };
    let of_file = found.flags.map_or(0, |f| u64::from((f & shown).bits()));
    let known = found.flags.map_or(0, |_| u64::from(shown.bits()));
    let mut has = StatxMask::STATX_BASIC_STATS | StatxMask::STATX_MNT_ID;
    has.set(StatxMask::STATX_BTIME, s.btime != 0);
    let mut mnt_id = found.mnt_id;
    if mask.contains(StatxMask::STATX_MNT_ID_UNIQUE) {
        has = (has - StatxMask::STATX_MNT_ID) | StatxMask::STATX_MNT_ID_UNIQUE;
        mnt_id += vfs::mount::UNIQUE;
    }
    Statx {
        mask: has.bits(),
        blksize: s.blksize,
        attributes: of_root | of_file,
        nlink: s.nlink,
        uid: cx.cred().user_ns.uid_shown(s.uid),
        gid: cx.cred().user_ns.gid_shown(s.gid),
        mode: s.mode as u16,
        pad: 0,
        ino: s.ino,
        size: s.size,
        blocks: s.blocks,
        attributes_mask: ATTR_MOUNT_ROOT | known,
        atime: t(s.atime),
        btime: t(s.btime),
        ctime: t(s.ctime),
        mtime: t(s.mtime),
        rdev_major: rmaj,
        rdev_minor: rmin,
        dev_major: dmaj,
        dev_minor: dmin,
        mnt_id,
        dio: [0; 2],
        spare: [0; 12],
    }
}

fn put_statfs(cx: &Context, out: UserOut<[u64; 15]>, s: &StatFs) -> SysResult {
    let (low, high) = (s.fsid & 0xffff_ffff, s.fsid >> 32);
    let k: [u64; 15] = [
        s.magic,
        s.bsize,
        s.blocks,
        s.bfree,
        s.bavail,
        s.files,
        s.ffree,
        low | (high << 32),
        s.namelen,
        if s.frsize == 0 { s.bsize } else { s.frsize },
        s.flags | 0x20,
        0,
        0,
        0,
        0,
    ];
    out.write(&cx.mm(), &k)?;
    Ok(0)
}
fn statfs(cx: &mut Context, path: PathPtr, out: UserOut<[u64; 15]>) -> SysResult {
    let s = with(cx, DirFd::CWD, path, |p, _, path| p.statfs(path))?;
    put_statfs(cx, out, &s)
}
fn fstatfs(cx: &mut Context, fd: Fd, out: UserOut<[u64; 15]>) -> SysResult {
    let s = vfs::ops::fstatfs(&*fd.any_file(cx)?)?;
    put_statfs(cx, out, &s)
}

calls! {
    stat,
    fstat,
    lstat,
    statfs,
    fstatfs,
    newfstatat,
    statx,
}
