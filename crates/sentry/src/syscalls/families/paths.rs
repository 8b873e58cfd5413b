//! Files by name: opening, attributes, directories, links, mounts.

use crate::syscalls::{Arg, Args, Call, SysResult, path_arg, read_sized};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;
use abi::time::{Timespec, Timeval};
use abi::{Result, Va};
use vfs::dentry::StatFs;
use vfs::fd_table::CloseOnExec;
use vfs::ops::{MountArgs, OpenHow, UtimeArg, XattrOf};
use vfs::walk::Walk;
use vfs::{At, PathCx, Stat};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Runs a path operation on `dirfd` and the path at `va`.
fn with<R>(
    cx: &Context,
    dirfd: i32,
    va: Va,
    f: impl FnOnce(&PathCx<'_>, &At, &[u8]) -> Result<R>,
) -> Result<R> {
    let path = path_arg(cx, va)?;
    let at = At::new(&cx.files(), dirfd, &path)?;
    cx.task.with_paths(|p| f(p, &at, &path))
}

const CWD: i32 = AT_FDCWD;

fn do_open(cx: &Context, dirfd: i32, va: Va, how: OpenHow) -> SysResult {
    let files = cx.files();
    let path = path_arg(cx, va)?;
    let at = if how.resolve.intersects(Walk::BENEATH | Walk::IN_ROOT) {
        At::scoped(&files, dirfd)?
    } else {
        At::new(&files, dirfd, &path)?
    };
    // The number first: a full table must not leave a new file behind.
    let slot = files.reserve(cx.nofile_limit())?;
    let f = cx.task.with_paths(|p| p.open(&at, &path, how))?;
    Ok(slot.install(f, CloseOnExec::from_flags(how.flags)) as usize)
}

fn open(cx: &mut Context, a: &Args) -> SysResult {
    do_open(cx, CWD, a.va(0), OpenHow::new(a.u32(1), a.u32(2)))
}
fn openat(cx: &mut Context, a: &Args) -> SysResult {
    do_open(cx, a.i32(0), a.va(1), OpenHow::new(a.u32(2), a.u32(3)))
}
fn creat(cx: &mut Context, a: &Args) -> SysResult {
    do_open(
        cx,
        CWD,
        a.va(0),
        OpenHow::new(O_CREAT | O_WRONLY | O_TRUNC, a.u32(1)),
    )
}
fn openat2(cx: &mut Context, a: &Args) -> SysResult {
    let size = a.usize(3);
    if size < 24 {
        return Err(EINVAL);
    }
    if size > 4096 {
        return Err(E2BIG);
    }
    let mut raw = [0u8; 24];
    read_sized(cx, a.va(2), size, &mut raw)?;
    let [flags, mode, resolve] = <[u64; 3]>::read_from_bytes(&raw).map_err(|_| EINVAL)?;
    do_open(
        cx,
        a.i32(0),
        a.va(1),
        OpenHow::strict(flags, mode, resolve)?,
    )
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

fn access(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, at, path| {
        p.access(at, path, a.u32(1), 0)
    })
    .map(|()| 0)
}
fn faccessat(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        p.access(at, path, a.u32(2), 0)
    })
    .map(|()| 0)
}
fn faccessat2(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        p.access(at, path, a.u32(2), a.u32(3))
    })
    .map(|()| 0)
}

fn mkdir(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, at, path| p.mkdir(at, path, a.u32(1))).map(|_| 0)
}
fn mkdirat(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        p.mkdir(at, path, a.u32(2))
    })
    .map(|_| 0)
}
/// mknod's device number has 32 bits: (major << 8) | minor, with the rest of the minor above.
fn mknod_dev(raw: u32) -> u64 {
    vfs::makedev((raw >> 8) & 0xfff, (raw & 0xff) | ((raw >> 12) & 0xf_ff00))
}
fn mknod(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, at, path| {
        p.mknod(at, path, a.u32(1), mknod_dev(a.u32(2)))
    })
    .map(|_| 0)
}
fn mknodat(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        p.mknod(at, path, a.u32(2), mknod_dev(a.u32(3)))
    })
    .map(|_| 0)
}
fn rmdir(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, at, path| p.rmdir(at, path)).map(|()| 0)
}
fn unlink(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, at, path| p.unlink(at, path)).map(|()| 0)
}
fn unlinkat(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u32(2);
    if flags & !AT_REMOVEDIR != 0 {
        return Err(EINVAL);
    }
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        if flags & AT_REMOVEDIR != 0 {
            p.rmdir(at, path)
        } else {
            p.unlink(at, path)
        }
    })
    .map(|()| 0)
}

fn do_rename(cx: &Context, (d1, v1): (i32, Va), (d2, v2): (i32, Va), flags: u32) -> SysResult {
    let (old, new) = (path_arg(cx, v1)?, path_arg(cx, v2)?);
    let files = cx.files();
    let (at1, at2) = (At::new(&files, d1, &old)?, At::new(&files, d2, &new)?);
    cx.task
        .with_paths(|p| p.rename(&at1, &old, &at2, &new, flags))
        .map(|()| 0)
}
fn rename(cx: &mut Context, a: &Args) -> SysResult {
    do_rename(cx, (CWD, a.va(0)), (CWD, a.va(1)), 0)
}
fn renameat(cx: &mut Context, a: &Args) -> SysResult {
    do_rename(cx, (a.i32(0), a.va(1)), (a.i32(2), a.va(3)), 0)
}
fn renameat2(cx: &mut Context, a: &Args) -> SysResult {
    do_rename(cx, (a.i32(0), a.va(1)), (a.i32(2), a.va(3)), a.u32(4))
}

fn do_link(cx: &Context, (d1, v1): (i32, Va), (d2, v2): (i32, Va), flags: u32) -> SysResult {
    let (old, new) = (path_arg(cx, v1)?, path_arg(cx, v2)?);
    let files = cx.files();
    let (at1, at2) = (At::new(&files, d1, &old)?, At::new(&files, d2, &new)?);
    cx.task
        .with_paths(|p| p.link(&at1, &old, &at2, &new, flags))
        .map(|()| 0)
}
fn link(cx: &mut Context, a: &Args) -> SysResult {
    do_link(cx, (CWD, a.va(0)), (CWD, a.va(1)), 0)
}
fn linkat(cx: &mut Context, a: &Args) -> SysResult {
    do_link(cx, (a.i32(0), a.va(1)), (a.i32(2), a.va(3)), a.u32(4))
}
fn symlink(cx: &mut Context, a: &Args) -> SysResult {
    let target = path_arg(cx, a.va(0))?;
    with(cx, CWD, a.va(1), |p, at, path| p.symlink(&target, at, path)).map(|()| 0)
}
fn symlinkat(cx: &mut Context, a: &Args) -> SysResult {
    let target = path_arg(cx, a.va(0))?;
    with(cx, a.i32(1), a.va(2), |p, at, path| {
        p.symlink(&target, at, path)
    })
    .map(|()| 0)
}

fn do_readlink(cx: &Context, dirfd: i32, va: Va, buf: Va, len: i32) -> SysResult {
    if len <= 0 {
        return Err(EINVAL);
    }
    let t = with(cx, dirfd, va, |p, at, path| p.readlink(at, path))?;
    let n = t.len().min(len as usize);
    cx.mm().copy_out(buf, &t[..n])?;
    Ok(n)
}
fn readlink(cx: &mut Context, a: &Args) -> SysResult {
    do_readlink(cx, CWD, a.va(0), a.va(1), a.i32(2))
}
fn readlinkat(cx: &mut Context, a: &Args) -> SysResult {
    do_readlink(cx, a.i32(0), a.va(1), a.va(2), a.i32(3))
}

fn getcwd(cx: &mut Context, a: &Args) -> SysResult {
    let mut p = cx.task.with_paths(|p| p.getcwd())?;
    p.push(0);
    if p.len() > a.usize(1) {
        return Err(ERANGE);
    }
    cx.mm().copy_out(a.va(0), &p)?;
    Ok(p.len())
}
fn chdir(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, _, path| p.chdir(path)).map(|()| 0)
}
fn fchdir(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    cx.task.with_paths(|p| p.fchdir(&f)).map(|()| 0)
}
fn chroot(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, _, path| p.chroot(path)).map(|()| 0)
}
fn umask(cx: &mut Context, a: &Args) -> SysResult {
    Ok(cx.fs().set_umask(a.u32(0)) as usize)
}

fn chmod(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, at, path| {
        p.chmod(at, path, a.u32(1), 0)
    })
    .map(|()| 0)
}
fn fchmod(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    cx.task.with_paths(|p| p.fchmod(&f, a.u32(1))).map(|()| 0)
}
fn fchmodat(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        p.chmod(at, path, a.u32(2), 0)
    })
    .map(|()| 0)
}
fn fchmodat2(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        p.chmod(at, path, a.u32(2), a.u32(3))
    })
    .map(|()| 0)
}
/// The owners that the numbers of chown(2) mean: -1 leaves one. `EINVAL` for those that the caller's user
/// namespace does not have.
fn owners(cx: &Context, uid: u32, gid: u32) -> Result<[Option<u32>; 2]> {
    let ns = &cx.cred().user_ns;
    let user = (uid != u32::MAX).then(|| ns.uid_from(uid)).transpose()?;
    let group = (gid != u32::MAX).then(|| ns.gid_from(gid)).transpose()?;
    Ok([user, group])
}
fn chown(cx: &mut Context, a: &Args) -> SysResult {
    let [uid, gid] = owners(cx, a.u32(1), a.u32(2))?;
    with(cx, CWD, a.va(0), |p, at, path| {
        p.chown(at, path, uid, gid, 0)
    })
    .map(|()| 0)
}
fn lchown(cx: &mut Context, a: &Args) -> SysResult {
    let [uid, gid] = owners(cx, a.u32(1), a.u32(2))?;
    with(cx, CWD, a.va(0), |p, at, path| {
        p.chown(at, path, uid, gid, AT_SYMLINK_NOFOLLOW)
    })
    .map(|()| 0)
}
fn fchown(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    let [uid, gid] = owners(cx, a.u32(1), a.u32(2))?;
    cx.task.with_paths(|p| p.fchown(&f, uid, gid)).map(|()| 0)
}
fn fchownat(cx: &mut Context, a: &Args) -> SysResult {
    let [uid, gid] = owners(cx, a.u32(2), a.u32(3))?;
    with(cx, a.i32(0), a.va(1), |p, at, path| {
        p.chown(at, path, uid, gid, a.u32(4))
    })
    .map(|()| 0)
}

fn set_times(cx: &Context, dirfd: i32, va: Option<Va>, t: [UtimeArg; 2], flags: u32) -> SysResult {
    match va {
        None => {
            let f = cx.fd(dirfd)?;
            cx.task.with_paths(|p| p.futimens(&f, t))
        }
        Some(va) => with(cx, dirfd, va, |p, at, path| p.utimens(at, path, t, flags)),
    }
    .map(|()| 0)
}
fn utimensat(cx: &mut Context, a: &Args) -> SysResult {
    const UTIME_NOW: i64 = 0x3fff_ffff;
    const UTIME_OMIT: i64 = 0x3fff_fffe;
    let times = match a.va_opt(2) {
        None => [UtimeArg::Now; 2],
        Some(va) => {
            let raw: [[i64; 2]; 2] = cx.mm().read_obj(va)?;
            let mut out = [UtimeArg::Now; 2];
            for (o, [sec, nsec]) in out.iter_mut().zip(raw) {
                *o = match nsec {
                    UTIME_NOW => UtimeArg::Now,
                    UTIME_OMIT => UtimeArg::Omit,
                    0..=999_999_999 => {
                        UtimeArg::At(sec.saturating_mul(1_000_000_000).saturating_add(nsec))
                    }
                    _ => return Err(EINVAL),
                };
            }
            out
        }
    };
    set_times(cx, a.i32(0), a.va_opt(1), times, a.u32(3))
}
fn timevals(cx: &Context, va: Option<Va>) -> Result<[UtimeArg; 2]> {
    let Some(va) = va else {
        return Ok([UtimeArg::Now; 2]);
    };
    let [sa, ua, sm, um]: [i64; 4] = cx.mm().read_obj(va)?;
    let ns = |s: i64, u: i64| {
        let t = Timeval { sec: s, usec: u };
        if (0..1_000_000).contains(&u) {
            Ok(UtimeArg::At(
                t.sec.saturating_mul(1_000_000_000).saturating_add(u * 1000),
            ))
        } else {
            Err(EINVAL)
        }
    };
    Ok([ns(sa, ua)?, ns(sm, um)?])
}
fn utimes(cx: &mut Context, a: &Args) -> SysResult {
    let t = timevals(cx, a.va_opt(1))?;
    set_times(cx, CWD, Some(a.va(0)), t, 0)
}
fn futimesat(cx: &mut Context, a: &Args) -> SysResult {
    let t = timevals(cx, a.va_opt(2))?;
    set_times(cx, a.i32(0), a.va_opt(1), t, 0)
}
fn utime(cx: &mut Context, a: &Args) -> SysResult {
    let t = match a.va_opt(1) {
        None => [UtimeArg::Now; 2],
        Some(va) => {
            let [x, y]: [i64; 2] = cx.mm().read_obj(va)?;
            [x, y].map(|s| UtimeArg::At(s.saturating_mul(1_000_000_000)))
        }
    };
    set_times(cx, CWD, Some(a.va(0)), t, 0)
}

fn truncate(cx: &mut Context, a: &Args) -> SysResult {
    super::io::check_size(cx, a.i64(1))?;
    with(cx, CWD, a.va(0), |p, _, path| p.truncate(path, a.i64(1))).map(|()| 0)
}
fn ftruncate(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    super::io::check_size(cx, a.i64(1))?;
    cx.task
        .with_paths(|p| p.ftruncate(&f, a.i64(1)))
        .map(|()| 0)
}

/// Writes directory entries; `old` is getdents(2)'s layout, with the type at the end.
fn dirents(cx: &Context, a: &Args, old: bool) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    // A directory that was removed (`IS_DEADDIR`).
    if let Some(p) = &f.path
        && p.dentry.is_unhashed()
        && p.is_dir()
        && p.inode()?.stat()?.nlink == 0
    {
        return Err(ENOENT);
    }
    let room = (a.u64(2) as u32 as usize).min(1 << 20);
    let mut out: Vec<u8> = Vec::with_capacity(room.min(32 << 10));
    let mut too_small = false;
    let mut pos = f.pos.lock();
    let mut p = *pos;
    f.ops.read_dir(&f, &mut p, &mut |e| {
        let head = if old { 18 } else { 19 };
        let len = (head + e.name.len() + 1 + usize::from(old)).next_multiple_of(8);
        if out.len() + len > room {
            too_small = out.is_empty();
            return false;
        }
        let at = out.len();
        out.resize(at + len, 0);
        out[at..at + 8].copy_from_slice(&e.ino.to_le_bytes());
        out[at + 8..at + 16].copy_from_slice(&e.next.to_le_bytes());
        out[at + 16..at + 18].copy_from_slice(&(len as u16).to_le_bytes());
        if old {
            out[at + 18..at + 18 + e.name.len()].copy_from_slice(e.name);
            out[at + len - 1] = e.kind;
        } else {
            out[at + 18] = e.kind;
            out[at + 19..at + 19 + e.name.len()].copy_from_slice(e.name);
        }
        true
    })?;
    if too_small {
        return Err(EINVAL);
    }
    cx.mm().copy_out(a.va(1), &out)?;
    *pos = p;
    Ok(out.len())
}
fn getdents(cx: &mut Context, a: &Args) -> SysResult {
    dirents(cx, a, true)
}
fn getdents64(cx: &mut Context, a: &Args) -> SysResult {
    dirents(cx, a, false)
}

/// The longest name and value of an extended attribute.
const XATTR_NAME: usize = 255;
const XATTR_VALUE: usize = 65_536;

fn xattr_name(cx: &Context, va: Va) -> Result<Vec<u8>> {
    let n = cx
        .mm()
        .read_cstr(va, XATTR_NAME + 1)
        .map_err(|e| if e == ENAMETOOLONG { ERANGE } else { e })?;
    if n.is_empty() { Err(ERANGE) } else { Ok(n) }
}
/// Runs `f` on what the first argument names: a path, a link itself, or a descriptor.
fn on<R>(
    cx: &Context,
    a: &Args,
    kind: Of,
    f: impl FnOnce(&PathCx<'_>, &XattrOf<'_>) -> Result<R>,
) -> Result<R> {
    if kind == Of::Fd {
        let file = cx.fd(a.i32(0))?;
        return cx.task.with_paths(|p| f(p, &XattrOf::File(&file)));
    }
    let path = path_arg(cx, a.va(0))?;
    let walk = if kind == Of::Path {
        Walk::FOLLOW
    } else {
        Walk::empty()
    };
    cx.task.with_paths(|p| {
        f(
            p,
            &XattrOf::Path {
                at: At::Cwd,
                path: &path,
                walk,
            },
        )
    })
}
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Path,
    Link,
    Fd,
}
fn give(cx: &Context, v: &[u8], va: Va, size: usize) -> SysResult {
    if size == 0 {
        return Ok(v.len());
    }
    if v.len() > size {
        return Err(ERANGE);
    }
    cx.mm().copy_out(va, v)?;
    Ok(v.len())
}
fn do_getxattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    let name = xattr_name(cx, a.va(1))?;
    let v = on(cx, a, kind, |p, of| p.get_xattr(of, &name))?;
    give(cx, &v, a.va(2), a.usize(3))
}
fn do_setxattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    if a.u32(4) & !3 != 0 {
        return Err(EINVAL);
    }
    let name = xattr_name(cx, a.va(1))?;
    if a.usize(3) > XATTR_VALUE {
        return Err(E2BIG);
    }
    let mut v = vec![0u8; a.usize(3)];
    cx.mm().copy_in(a.va(2), &mut v)?;
    on(cx, a, kind, |p, of| p.set_xattr(of, &name, &v, a.u32(4))).map(|()| 0)
}
fn do_listxattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    let v = on(cx, a, kind, |p, of| p.list_xattr(of))?;
    give(cx, &v, a.va(1), a.usize(2))
}
fn do_removexattr(cx: &Context, a: &Args, kind: Of) -> SysResult {
    let name = xattr_name(cx, a.va(1))?;
    on(cx, a, kind, |p, of| p.remove_xattr(of, &name)).map(|()| 0)
}
macro_rules! xattr_calls {
    ($($name:ident = $f:ident $kind:ident;)*) => {
        $(fn $name(cx: &mut Context, a: &Args) -> SysResult { $f(cx, a, Of::$kind) })*
    };
}
xattr_calls! {
    setxattr = do_setxattr Path;
    lsetxattr = do_setxattr Link;
    fsetxattr = do_setxattr Fd;
    getxattr = do_getxattr Path;
    lgetxattr = do_getxattr Link;
    fgetxattr = do_getxattr Fd;
    listxattr = do_listxattr Path;
    llistxattr = do_listxattr Link;
    flistxattr = do_listxattr Fd;
    removexattr = do_removexattr Path;
    lremovexattr = do_removexattr Link;
    fremovexattr = do_removexattr Fd;
}

/// `mount(source, target, type, flags, data)`.
fn mount(cx: &mut Context, a: &Args) -> SysResult {
    let text = |va: Va| {
        if va.is_null() {
            Ok(Vec::new())
        } else {
            path_arg(cx, va)
        }
    };
    let (source, fs_type, data) = (text(a.va(0))?, text(a.va(2))?, text(a.va(4))?);
    let target = path_arg(cx, a.va(1))?;
    let args = MountArgs {
        source: &source,
        fs_type: &fs_type,
        data: &data,
    };
    cx.task
        .with_paths(|p| p.mount(&target, a.u64(3), args))
        .map(|()| 0)
}
fn umount2(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, _, path| p.umount(path, a.u32(1))).map(|()| 0)
}
fn pivot_root(cx: &mut Context, a: &Args) -> SysResult {
    let (new, old) = (path_arg(cx, a.va(0))?, path_arg(cx, a.va(1))?);
    cx.task.with_paths(|p| p.pivot_root(&new, &old)).map(|()| 0)
}

/// `unshare(flags)`.
fn unshare(cx: &mut Context, a: &Args) -> SysResult {
    crate::ns::change::unshare(cx, a.u32(0)).map(|()| 0)
}

/// See [`crate::syscalls::families::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(2, "open", &[Arg::Path, Arg::OpenFlags, Arg::Mode], open),
    Call::new(4, "stat", &[Arg::Path, Arg::Stat], stat),
    Call::new(5, "fstat", &[Arg::Fd, Arg::Stat], fstat),
    Call::new(6, "lstat", &[Arg::Path, Arg::Stat], lstat),
    Call::new(21, "access", &[Arg::Path, Arg::Mode], access),
    Call::new(76, "truncate", &[Arg::Path, Arg::Uint], truncate),
    Call::new(77, "ftruncate", &[Arg::Fd, Arg::Uint], ftruncate),
    Call::new(78, "getdents", &[Arg::Fd, Arg::Ptr, Arg::Uint], getdents),
    Call::new(79, "getcwd", &[Arg::Out, Arg::Uint], getcwd),
    Call::new(80, "chdir", &[Arg::Path], chdir),
    Call::new(81, "fchdir", &[Arg::Fd], fchdir),
    Call::new(82, "rename", &[Arg::Path, Arg::Path], rename),
    Call::new(83, "mkdir", &[Arg::Path, Arg::Mode], mkdir),
    Call::new(84, "rmdir", &[Arg::Path], rmdir),
    Call::new(85, "creat", &[Arg::Path, Arg::Mode], creat),
    Call::new(86, "link", &[Arg::Path, Arg::Path], link),
    Call::new(87, "unlink", &[Arg::Path], unlink),
    Call::new(88, "symlink", &[Arg::Path, Arg::Path], symlink),
    Call::new(89, "readlink", &[Arg::Path, Arg::Out, Arg::Uint], readlink),
    Call::new(90, "chmod", &[Arg::Path, Arg::Mode], chmod),
    Call::new(91, "fchmod", &[Arg::Fd, Arg::Mode], fchmod),
    Call::new(92, "chown", &[Arg::Path, Arg::Int, Arg::Int], chown),
    Call::new(93, "fchown", &[Arg::Fd, Arg::Int, Arg::Int], fchown),
    Call::new(94, "lchown", &[Arg::Path, Arg::Int, Arg::Int], lchown),
    Call::new(95, "umask", &[Arg::Mode], umask),
    Call::new(132, "utime", &[Arg::Path, Arg::Ptr], utime),
    Call::new(133, "mknod", &[Arg::Path, Arg::Mode, Arg::Hex], mknod),
    Call::new(137, "statfs", &[Arg::Path, Arg::Ptr], statfs),
    Call::new(138, "fstatfs", &[Arg::Fd, Arg::Ptr], fstatfs),
    Call::new(155, "pivot_root", &[Arg::Path, Arg::Path], pivot_root),
    Call::new(161, "chroot", &[Arg::Path], chroot),
    Call::new(
        165,
        "mount",
        &[Arg::Path, Arg::Path, Arg::Path, Arg::Hex, Arg::Ptr],
        mount,
    ),
    Call::new(166, "umount2", &[Arg::Path, Arg::Hex], umount2),
    Call::new(
        188,
        "setxattr",
        &[Arg::Path, Arg::Path, Arg::In(3), Arg::Uint, Arg::Hex],
        setxattr,
    ),
    Call::new(
        189,
        "lsetxattr",
        &[Arg::Path, Arg::Path, Arg::In(3), Arg::Uint, Arg::Hex],
        lsetxattr,
    ),
    Call::new(
        190,
        "fsetxattr",
        &[Arg::Fd, Arg::Path, Arg::In(3), Arg::Uint, Arg::Hex],
        fsetxattr,
    ),
    Call::new(
        191,
        "getxattr",
        &[Arg::Path, Arg::Path, Arg::Ptr, Arg::Uint],
        getxattr,
    ),
    Call::new(
        192,
        "lgetxattr",
        &[Arg::Path, Arg::Path, Arg::Ptr, Arg::Uint],
        lgetxattr,
    ),
    Call::new(
        193,
        "fgetxattr",
        &[Arg::Fd, Arg::Path, Arg::Ptr, Arg::Uint],
        fgetxattr,
    ),
    Call::new(
        194,
        "listxattr",
        &[Arg::Path, Arg::Ptr, Arg::Uint],
        listxattr,
    ),
    Call::new(
        195,
        "llistxattr",
        &[Arg::Path, Arg::Ptr, Arg::Uint],
        llistxattr,
    ),
    Call::new(
        196,
        "flistxattr",
        &[Arg::Fd, Arg::Ptr, Arg::Uint],
        flistxattr,
    ),
    Call::new(197, "removexattr", &[Arg::Path, Arg::Path], removexattr),
    Call::new(198, "lremovexattr", &[Arg::Path, Arg::Path], lremovexattr),
    Call::new(199, "fremovexattr", &[Arg::Fd, Arg::Path], fremovexattr),
    Call::new(
        217,
        "getdents64",
        &[Arg::Fd, Arg::Ptr, Arg::Uint],
        getdents64,
    ),
    Call::new(235, "utimes", &[Arg::Path, Arg::Ptr], utimes),
    Call::new(
        257,
        "openat",
        &[Arg::DirFd, Arg::Path, Arg::OpenFlags, Arg::Mode],
        openat,
    ),
    Call::new(258, "mkdirat", &[Arg::DirFd, Arg::Path, Arg::Mode], mkdirat),
    Call::new(
        259,
        "mknodat",
        &[Arg::DirFd, Arg::Path, Arg::Mode, Arg::Hex],
        mknodat,
    ),
    Call::new(
        260,
        "fchownat",
        &[Arg::DirFd, Arg::Path, Arg::Int, Arg::Int, Arg::Hex],
        fchownat,
    ),
    Call::new(
        261,
        "futimesat",
        &[Arg::DirFd, Arg::Path, Arg::Ptr],
        futimesat,
    ),
    Call::new(
        262,
        "newfstatat",
        &[Arg::DirFd, Arg::Path, Arg::Stat, Arg::Hex],
        newfstatat,
    ),
    Call::new(
        263,
        "unlinkat",
        &[Arg::DirFd, Arg::Path, Arg::Hex],
        unlinkat,
    ),
    Call::new(
        264,
        "renameat",
        &[Arg::DirFd, Arg::Path, Arg::DirFd, Arg::Path],
        renameat,
    ),
    Call::new(
        265,
        "linkat",
        &[Arg::DirFd, Arg::Path, Arg::DirFd, Arg::Path, Arg::Hex],
        linkat,
    ),
    Call::new(
        266,
        "symlinkat",
        &[Arg::Path, Arg::DirFd, Arg::Path],
        symlinkat,
    ),
    Call::new(
        267,
        "readlinkat",
        &[Arg::DirFd, Arg::Path, Arg::Out, Arg::Uint],
        readlinkat,
    ),
    Call::new(
        268,
        "fchmodat",
        &[Arg::DirFd, Arg::Path, Arg::Mode],
        fchmodat,
    ),
    Call::new(
        269,
        "faccessat",
        &[Arg::DirFd, Arg::Path, Arg::Mode],
        faccessat,
    ),
    Call::new(272, "unshare", &[Arg::Hex], unshare).note("no time namespaces"),
    Call::new(
        280,
        "utimensat",
        &[Arg::DirFd, Arg::Path, Arg::Ptr, Arg::Hex],
        utimensat,
    ),
    Call::new(
        316,
        "renameat2",
        &[Arg::DirFd, Arg::Path, Arg::DirFd, Arg::Path, Arg::Hex],
        renameat2,
    ),
    Call::new(
        332,
        "statx",
        &[Arg::DirFd, Arg::Path, Arg::Hex, Arg::Hex, Arg::Ptr],
        statx,
    ),
    Call::new(
        437,
        "openat2",
        &[Arg::DirFd, Arg::Path, Arg::Ptr, Arg::Uint],
        openat2,
    ),
    Call::new(
        439,
        "faccessat2",
        &[Arg::DirFd, Arg::Path, Arg::Mode, Arg::Hex],
        faccessat2,
    ),
    Call::new(
        452,
        "fchmodat2",
        &[Arg::DirFd, Arg::Path, Arg::Mode, Arg::Hex],
        fchmodat2,
    ),
];
