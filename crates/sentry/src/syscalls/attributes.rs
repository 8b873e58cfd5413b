//! Files' attributes: mode, owner, times, length.

use super::SysResult;
use super::args::*;
use super::paths::with;
use crate::task::Context;
use abi::Result;
use abi::errno::*;
use abi::linux::*;
use abi::time::Timeval;
use vfs::ops::UtimeArg;

fn umask(cx: &mut Context, mask: Mode) -> SysResult {
    Ok(cx.fs().set_umask(mask.0) as usize)
}

fn chmod(cx: &mut Context, path: PathPtr, mode: Mode) -> SysResult {
    with(cx, DirFd::CWD, path, |p, at, path| {
        p.chmod(at, path, mode.0, 0)
    })
    .map(|()| 0)
}
fn fchmod(cx: &mut Context, fd: Fd, mode: Mode) -> SysResult {
    let f = fd.any_file(cx)?;
    cx.task.with_paths(|p| p.fchmod(&f, mode.0)).map(|()| 0)
}
fn fchmodat(cx: &mut Context, dirfd: DirFd, path: PathPtr, mode: Mode) -> SysResult {
    with(cx, dirfd, path, |p, at, path| p.chmod(at, path, mode.0, 0)).map(|()| 0)
}
fn fchmodat2(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    mode: Mode,
    flags: AtFlags,
) -> SysResult {
    with(cx, dirfd, path, |p, at, path| {
        p.chmod(at, path, mode.0, flags.bits())
    })
    .map(|()| 0)
}
/// The owners that the numbers of chown(2) mean: -1 leaves one. `EINVAL` for those that the
/// caller's user namespace does not have.
fn owners(cx: &Context, uid: Uid, gid: Gid) -> Result<[Option<u32>; 2]> {
    let ns = &cx.cred().user_ns;
    let user = (uid.0 != u32::MAX)
        .then(|| ns.uid_from(uid.0))
        .transpose()?;
    let group = (gid.0 != u32::MAX)
        .then(|| ns.gid_from(gid.0))
        .transpose()?;
    Ok([user, group])
}
fn chown(cx: &mut Context, path: PathPtr, uid: Uid, gid: Gid) -> SysResult {
    let [uid, gid] = owners(cx, uid, gid)?;
    with(cx, DirFd::CWD, path, |p, at, path| {
        p.chown(at, path, uid, gid, 0)
    })
    .map(|()| 0)
}
fn lchown(cx: &mut Context, path: PathPtr, uid: Uid, gid: Gid) -> SysResult {
    let [uid, gid] = owners(cx, uid, gid)?;
    with(cx, DirFd::CWD, path, |p, at, path| {
        p.chown(at, path, uid, gid, AT_SYMLINK_NOFOLLOW)
    })
    .map(|()| 0)
}
fn fchown(cx: &mut Context, fd: Fd, uid: Uid, gid: Gid) -> SysResult {
    let f = fd.any_file(cx)?;
    let [uid, gid] = owners(cx, uid, gid)?;
    cx.task.with_paths(|p| p.fchown(&f, uid, gid)).map(|()| 0)
}
fn fchownat(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    uid: Uid,
    gid: Gid,
    flags: AtFlags,
) -> SysResult {
    let [uid, gid] = owners(cx, uid, gid)?;
    with(cx, dirfd, path, |p, at, path| {
        p.chown(at, path, uid, gid, flags.bits())
    })
    .map(|()| 0)
}

fn set_times(
    cx: &Context,
    dirfd: DirFd,
    path: Option<PathPtr>,
    t: [UtimeArg; 2],
    flags: AtFlags,
) -> SysResult {
    match path {
        None if dirfd == DirFd::CWD => return Err(EFAULT),
        None if !flags.is_empty() => return Err(EINVAL),
        None => {
            let f = dirfd.fd().any_file(cx)?;
            cx.task.with_paths(|p| p.futimens(&f, t))
        }
        Some(path) => with(cx, dirfd, path, |p, at, path| {
            p.utimens(at, path, t, flags.bits())
        }),
    }
    .map(|()| 0)
}
fn utimensat(
    cx: &mut Context,
    dirfd: DirFd,
    path: Option<PathPtr>,
    times: Option<UserIn<[[i64; 2]; 2]>>,
    flags: AtFlags,
) -> SysResult {
    const UTIME_NOW: i64 = 0x3fff_ffff;
    const UTIME_OMIT: i64 = 0x3fff_fffe;
    let times = match times {
        None => [UtimeArg::Now; 2],
        Some(va) => {
            let raw = va.read(&cx.mm())?;
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
    set_times(cx, dirfd, path, times, flags)
}
fn timevals(cx: &Context, times: Option<UserIn<[i64; 4]>>) -> Result<[UtimeArg; 2]> {
    let Some(times) = times else {
        return Ok([UtimeArg::Now; 2]);
    };
    let [sa, ua, sm, um] = times.read(&cx.mm())?;
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
fn utimes(cx: &mut Context, path: PathPtr, times: Option<UserIn<[i64; 4]>>) -> SysResult {
    let t = timevals(cx, times)?;
    set_times(cx, DirFd::CWD, Some(path), t, AtFlags::empty())
}
fn futimesat(
    cx: &mut Context,
    dirfd: DirFd,
    path: Option<PathPtr>,
    times: Option<UserIn<[i64; 4]>>,
) -> SysResult {
    let t = timevals(cx, times)?;
    set_times(cx, dirfd, path, t, AtFlags::empty())
}
fn utime(cx: &mut Context, path: PathPtr, times: Option<UserIn<[i64; 2]>>) -> SysResult {
    let t = match times {
        None => [UtimeArg::Now; 2],
        Some(va) => {
            let [x, y] = va.read(&cx.mm())?;
            [x, y].map(|s| UtimeArg::At(s.saturating_mul(1_000_000_000)))
        }
    };
    set_times(cx, DirFd::CWD, Some(path), t, AtFlags::empty())
}

fn truncate(cx: &mut Context, path: PathPtr, length: i64) -> SysResult {
    super::io::check_size(cx, length)?;
    let task = cx.task.clone();
    let mut cut = || with(cx, DirFd::CWD, path, |p, _, path| p.truncate(path, length));
    task.with_room(&mut cut).map(|()| 0)
}
fn ftruncate(cx: &mut Context, fd: Fd, length: i64) -> SysResult {
    let f = fd.any_file(cx)?;
    super::io::check_size(cx, length)?;
    let cut = || cx.task.with_paths(|p| p.ftruncate(&f, length));
    cx.task.with_room(cut).map(|()| 0)
}

calls! {
    truncate,
    ftruncate,
    chmod,
    fchmod,
    chown,
    fchown,
    lchown,
    umask,
    utime,
    utimes,
    fchownat,
    futimesat,
    fchmodat,
    utimensat,
    fchmodat2,
}
