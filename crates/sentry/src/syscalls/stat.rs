//! What there is to know of files and file systems: stat, statx, statfs.

use super::paths::{CWD, with};
use crate::syscalls::{Arg, Args, Call, SysResult, path_arg};
use crate::task::Context;
use abi::Va;
use abi::errno::*;
use abi::linux::*;
use abi::time::Timespec;
use vfs::dentry::StatFs;
use vfs::{At, Stat};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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

fn put_stat(cx: &Context, va: Va, s: &Stat) -> SysResult {
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
    cx.mm().write_obj(va, &k)?;
    Ok(0)
}

fn stat(cx: &mut Context, a: &Args) -> SysResult {
    let s = with(cx, CWD, a.va(0), |p, at, path| p.stat(at, path, 0))?;
    put_stat(cx, a.va(1), &s)
}
fn lstat(cx: &mut Context, a: &Args) -> SysResult {
    let s = with(cx, CWD, a.va(0), |p, at, path| {
        p.stat(at, path, AT_SYMLINK_NOFOLLOW)
    })?;
    put_stat(cx, a.va(1), &s)
}
fn fstat(cx: &mut Context, a: &Args) -> SysResult {
    let s = vfs::ops::fstat(&*cx.fd(a.i32(0))?)?;
    put_stat(cx, a.va(1), &s)
}
fn newfstatat(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u32(3);
    // AT_STATX_SYNC_TYPE is taken too.
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | 0x6000) != 0 {
        return Err(EINVAL);
    }
    let flags = flags & !0x6000;
    // An empty path with AT_EMPTY_PATH is fstat: glibc's fstat is this.
    let path = if a.u64(1) == 0 && flags & AT_EMPTY_PATH != 0 {
        Vec::new()
    } else {
        path_arg(cx, a.va(1))?
    };
    if path.is_empty() && flags & AT_EMPTY_PATH != 0 && a.i32(0) >= 0 {
        let s = vfs::ops::fstat(&*cx.fd(a.i32(0))?)?;
        return put_stat(cx, a.va(2), &s);
    }
    let at = At::new(&cx.files(), a.i32(0), &path)?;
    let s = cx.task.with_paths(|p| p.stat(&at, &path, flags))?;
    put_stat(cx, a.va(2), &s)
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
struct Statx {
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

fn statx(cx: &mut Context, a: &Args) -> SysResult {
    let (flags, mask) = (a.u32(2), a.u32(3));
    if mask & 0x8000_0000 != 0 {
        return Err(EINVAL);
    }
    // Both kinds of synchronization at once.
    if flags & 0x6000 == 0x6000 {
        return Err(EINVAL);
    }
    let path = if a.u64(1) == 0 && flags & AT_EMPTY_PATH != 0 {
        Vec::new()
    } else {
        path_arg(cx, a.va(1))?
    };
    let at = At::new(&cx.files(), a.i32(0), &path)?;
    let pass = flags & !0x6000;
    let (s, mnt_id, is_root) = if path.is_empty() && flags & AT_EMPTY_PATH != 0 && a.i32(0) >= 0 {
        let f = cx.fd(a.i32(0))?;
        (
            vfs::ops::fstat(&f)?,
            f.path.as_ref().map_or(0, |p| p.mnt.id),
            false,
        )
    } else {
        cx.task.with_paths(|p| p.statx(&at, &path, pass))?
    };
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
    const BASIC: u32 = 0x7ff;
    const BTIME: u32 = 0x800;
    const MNT_ID: u32 = 0x1000;
    const ATTR_MOUNT_ROOT: u64 = 0x2000;
    let x = Statx {
        mask: BASIC | MNT_ID | if s.btime != 0 { BTIME } else { 0 },
        blksize: s.blksize,
        attributes: if is_root { ATTR_MOUNT_ROOT } else { 0 },
        nlink: s.nlink,
        uid: cx.cred().user_ns.uid_shown(s.uid),
        gid: cx.cred().user_ns.gid_shown(s.gid),
        mode: s.mode as u16,
        pad: 0,
        ino: s.ino,
        size: s.size,
        blocks: s.blocks,
        attributes_mask: ATTR_MOUNT_ROOT,
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
    };
    cx.mm().write_obj(a.va(4), &x)?;
    Ok(0)
}

fn put_statfs(cx: &Context, va: Va, s: &StatFs) -> SysResult {
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
        s.bsize,
        s.flags | 0x20,
        0,
        0,
        0,
        0,
    ];
    cx.mm().write_obj(va, &k)?;
    Ok(0)
}
fn statfs(cx: &mut Context, a: &Args) -> SysResult {
    let s = with(cx, CWD, a.va(0), |p, _, path| p.statfs(path))?;
    put_statfs(cx, a.va(1), &s)
}
fn fstatfs(cx: &mut Context, a: &Args) -> SysResult {
    let s = vfs::ops::fstatfs(&*cx.fd(a.i32(0))?)?;
    put_statfs(cx, a.va(1), &s)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(4, "stat", &[Arg::Path, Arg::Stat], stat),
    Call::new(5, "fstat", &[Arg::Fd, Arg::Stat], fstat),
    Call::new(6, "lstat", &[Arg::Path, Arg::Stat], lstat),
    Call::new(137, "statfs", &[Arg::Path, Arg::Ptr], statfs),
    Call::new(138, "fstatfs", &[Arg::Fd, Arg::Ptr], fstatfs),
    Call::new(
        262,
        "newfstatat",
        &[Arg::DirFd, Arg::Path, Arg::Stat, Arg::Hex],
        newfstatat,
    ),
    Call::new(
        332,
        "statx",
        &[Arg::DirFd, Arg::Path, Arg::Hex, Arg::Hex, Arg::Ptr],
        statx,
    ),
];
