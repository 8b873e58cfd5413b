//! Operations on paths. Paths are read when an entry is taken, so that its memory may be used again
//! then.

use super::super::SysResult;
use super::super::args::*;
use super::super::paths::{link_paths, open_at, open_how, rename_paths, with_path};
use super::super::stat::{SYNC_TYPE, Statx, StatxMask, do_statx, path_or_empty};
use super::files::{install, no_fixed, unused};
use super::{Prepared, call};
use crate::task::Context;
use crate::task::uring::{Request, Ring, Sqe};
use abi::errno::*;
use abi::linux::{AT_REMOVEDIR, O_CLOEXEC, O_NONBLOCK};
use abi::{Result, Va};
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::ops::OpenHow;

fn path(cx: &Context, va: u64) -> Result<Vec<u8>> {
    PathPtr(Va(va)).read(cx)
}

pub(super) fn openat(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    let how = OpenHow::new(e.op_flags, e.len);
    open(cx, e, how)
}

pub(super) fn openat2(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    let how = open_how(cx, Va(e.off), e.len as usize)?;
    open(cx, e, how)
}

fn open(cx: &Context, e: &Sqe, how: OpenHow) -> Prepared {
    unused(&[e.buf_index.into()])?;
    no_fixed(e)?;
    let (dir, slot) = (DirFd(e.fd), e.file_index);
    if slot != 0 && how.flags & O_CLOEXEC != 0 {
        return Err(EINVAL);
    }
    let path = path(cx, e.addr)?;
    call(move |cx, r| do_open(cx, r, (dir, &path), how, slot))
}

/// Opens without waiting: Linux opens a path that it remembers with O_NONBLOCK, so that a FIFO does
/// not wait for its other end (`io_openat2`). (So `EAGAIN` tells of a lease, for which Linux
/// waits.)
fn do_open(
    cx: &Context,
    r: &Request,
    (dir, path): (DirFd, &[u8]),
    how: OpenHow,
    slot: u32,
) -> SysResult {
    let at = open_at(cx, dir, path, &how)?;
    cx.cred().may_take_more(ENFILE)?;
    let table = cx.files();
    let number = match slot {
        0 => Some(table.reserve(&cx.room())?),
        _ => None,
    };
    let mut now = how;
    now.flags |= O_NONBLOCK;
    let f = cx.task.with_paths(|p| p.open(&at, path, now))?;
    if how.flags & O_NONBLOCK == 0 {
        f.set_flags(f.flags() & !O_NONBLOCK);
    }
    cx.task.heed_confidential(&f)?;
    match number {
        Some(n) => Ok(n.install(f, CloseOnExec::from_flags(how.flags)) as usize),
        None => install(&r.ring, f, slot),
    }
}

pub(super) fn statx(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    const RESERVED: u32 = 0x8000_0000;
    unused(&[e.buf_index.into(), e.file_index.into()])?;
    no_fixed(e)?;
    let flags = AtFlags::from_bits_retain(e.op_flags);
    let ptr = (e.addr != 0).then_some(PathPtr(Va(e.addr)));
    let path = path_or_empty(cx, ptr, flags)?;
    let (dir, mask, out) = (DirFd(e.fd), e.len, UserOut::<Statx>::new(Va(e.off)));
    call(move |cx, _| {
        if mask & RESERVED != 0 || flags.contains(SYNC_TYPE) {
            return Err(EINVAL);
        }
        do_statx(
            cx,
            dir,
            &path,
            flags,
            StatxMask::from_bits_retain(mask),
            out,
        )
    })
}

pub(super) fn renameat(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.buf_index.into(), e.file_index.into()])?;
    no_fixed(e)?;
    let (old, new) = (path(cx, e.addr)?, path(cx, e.off)?);
    let (from, to, flags) = (DirFd(e.fd), DirFd(e.len as i32), e.op_flags);
    call(move |cx, _| rename_paths(cx, (from, &old), (to, &new), flags))
}

pub(super) fn linkat(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.buf_index.into(), e.file_index.into()])?;
    no_fixed(e)?;
    let (old, new) = (path(cx, e.addr)?, path(cx, e.off)?);
    let (from, to, flags) = (DirFd(e.fd), DirFd(e.len as i32), e.op_flags);
    call(move |cx, _| link_paths(cx, (from, &old), (to, &new), flags))
}

pub(super) fn unlinkat(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.off, e.len.into(), e.buf_index.into(), e.file_index.into()])?;
    no_fixed(e)?;
    let (dir, flags) = (DirFd(e.fd), e.op_flags);
    if flags & !AT_REMOVEDIR != 0 {
        return Err(EINVAL);
    }
    let path = path(cx, e.addr)?;
    call(move |cx, _| {
        let done = with_path(cx, dir, &path, |p, at, path| match flags {
            0 => p.unlink(at, path),
            _ => p.rmdir(at, path),
        });
        done.map(|()| 0)
    })
}

pub(super) fn mkdirat(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.off, e.op_flags.into(), e.buf_index.into()])?;
    unused(&[e.file_index.into()])?;
    no_fixed(e)?;
    let (dir, mode, path) = (DirFd(e.fd), e.len, path(cx, e.addr)?);
    call(move |cx, _| with_path(cx, dir, &path, |p, at, path| p.mkdir(at, path, mode)).map(|_| 0))
}

pub(super) fn symlinkat(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.len.into(), e.op_flags.into(), e.buf_index.into()])?;
    unused(&[e.file_index.into()])?;
    no_fixed(e)?;
    let (target, link, dir) = (path(cx, e.addr)?, path(cx, e.off)?, DirFd(e.fd));
    call(move |cx, _| {
        let done = with_path(cx, dir, &link, |p, at, path| p.symlink(&target, at, path));
        done.map(|()| 0)
    })
}
