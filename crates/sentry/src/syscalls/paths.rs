//! Files by name: opening, making, removing, renaming, links.

use super::time::sleep_until;
use crate::syscalls::{Arg, Args, Call, SysResult, path_arg, read_sized};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;
use abi::{Result, Va};
use std::time::{Duration, Instant};
use vfs::fd_table::CloseOnExec;
use vfs::ops::OpenHow;
use vfs::walk::Walk;
use vfs::{At, PathCx};
use zerocopy::FromBytes;

/// Runs a path operation on `dirfd` and the path at `va`.
pub(super) fn with<R>(
    cx: &Context,
    dirfd: i32,
    va: Va,
    f: impl FnOnce(&PathCx<'_>, &At, &[u8]) -> Result<R>,
) -> Result<R> {
    let path = path_arg(cx, va)?;
    let at = At::new(&cx.files(), dirfd, &path)?;
    cx.task.with_paths(|p| f(p, &at, &path))
}

pub(super) const CWD: i32 = AT_FDCWD;

/// How often an open that a lease of the host delays is tried again.
const LEASE_POLL: Duration = Duration::from_millis(10);

fn do_open(cx: &Context, dirfd: i32, va: Va, how: OpenHow) -> SysResult {
    let files = cx.files();
    let path = path_arg(cx, va)?;
    let scoped = how.resolve.intersects(Walk::BENEATH | Walk::IN_ROOT);
    let at = if scoped {
        At::scoped(&files, dirfd)?
    } else {
        At::new(&files, dirfd, &path)?
    };
    // The number first: a full table must not leave a new file behind.
    cx.cred().may_take_more(ENFILE)?;
    let slot = files.reserve(&cx.room())?;
    let f = loop {
        match cx.task.with_paths(|p| p.open(&at, &path, how)) {
            // Somebody on the host has a lease on the file (fcntl(2)). The host has asked for it back, and takes it
            // after `fs.lease-break-time`. (Of a walk that may not leave a directory, openat2(2) says it of a race, too:
            // the caller's to try again.)
            Err(EAGAIN) if how.flags & O_NONBLOCK == 0 && !scoped => {
                sleep_until(cx, Some(Instant::now() + LEASE_POLL))?;
            }
            r => break r?,
        }
    };
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

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(2, "open", &[Arg::Path, Arg::OpenFlags, Arg::Mode], open),
    Call::new(21, "access", &[Arg::Path, Arg::Mode], access),
    Call::new(82, "rename", &[Arg::Path, Arg::Path], rename),
    Call::new(83, "mkdir", &[Arg::Path, Arg::Mode], mkdir),
    Call::new(84, "rmdir", &[Arg::Path], rmdir),
    Call::new(85, "creat", &[Arg::Path, Arg::Mode], creat),
    Call::new(86, "link", &[Arg::Path, Arg::Path], link),
    Call::new(87, "unlink", &[Arg::Path], unlink),
    Call::new(88, "symlink", &[Arg::Path, Arg::Path], symlink),
    Call::new(89, "readlink", &[Arg::Path, Arg::Out, Arg::Uint], readlink),
    Call::new(133, "mknod", &[Arg::Path, Arg::Mode, Arg::Hex], mknod),
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
        269,
        "faccessat",
        &[Arg::DirFd, Arg::Path, Arg::Mode],
        faccessat,
    ),
    Call::new(
        316,
        "renameat2",
        &[Arg::DirFd, Arg::Path, Arg::DirFd, Arg::Path, Arg::Hex],
        renameat2,
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
];
