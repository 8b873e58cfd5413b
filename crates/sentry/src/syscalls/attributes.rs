//! Files' attributes: mode, owner, times, length.

use super::paths::{CWD, with};
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;
use abi::time::Timeval;
use abi::{Result, Va};
use vfs::ops::UtimeArg;

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

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(76, "truncate", &[Arg::Path, Arg::Uint], truncate),
    Call::new(77, "ftruncate", &[Arg::Fd, Arg::Uint], ftruncate),
    Call::new(90, "chmod", &[Arg::Path, Arg::Mode], chmod),
    Call::new(91, "fchmod", &[Arg::Fd, Arg::Mode], fchmod),
    Call::new(92, "chown", &[Arg::Path, Arg::Int, Arg::Int], chown),
    Call::new(93, "fchown", &[Arg::Fd, Arg::Int, Arg::Int], fchown),
    Call::new(94, "lchown", &[Arg::Path, Arg::Int, Arg::Int], lchown),
    Call::new(95, "umask", &[Arg::Mode], umask),
    Call::new(132, "utime", &[Arg::Path, Arg::Ptr], utime),
    Call::new(235, "utimes", &[Arg::Path, Arg::Ptr], utimes),
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
        268,
        "fchmodat",
        &[Arg::DirFd, Arg::Path, Arg::Mode],
        fchmodat,
    ),
    Call::new(
        280,
        "utimensat",
        &[Arg::DirFd, Arg::Path, Arg::Ptr, Arg::Hex],
        utimensat,
    ),
    Call::new(
        452,
        "fchmodat2",
        &[Arg::DirFd, Arg::Path, Arg::Mode, Arg::Hex],
        fchmodat2,
    ),
];
