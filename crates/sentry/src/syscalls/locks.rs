//! Locks on files: those of fcntl and of flock.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;
use abi::{Result, Va};
use std::sync::Arc;
use vfs::file::File;
use vfs::locks::{LockKind, LockRange, Owner};
use vfs::ops::Wait;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct flock`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    pad: i32,
    start: i64,
    len: i64,
    pid: i32,
    pad2: i32,
}

fn lock_range(f: &File, l: &Flock) -> Result<LockRange> {
    let base = match l.whence {
        0 => 0,
        1 => f.position()?,
        2 => f.ops.stat()?.size,
        _ => return Err(EINVAL),
    };
    LockRange::new(base, l.start, l.len)
}

pub(super) fn fcntl_lock(cx: &Context, fd: i32, f: &Arc<File>, cmd: u32, va: Va) -> SysResult {
    let mm = cx.mm();
    let mut l: Flock = mm.read_obj(va)?;
    let ofd = cmd >= F_OFD_GETLK;
    if ofd && l.pid != 0 {
        return Err(EINVAL);
    }
    let (owner, pid) = if ofd {
        (Owner::OpenFile(f.id), -1)
    } else {
        (Owner::Posix(cx.files().id()), cx.group.tgid)
    };
    let kind = match l.kind {
        0 => Some(LockKind::Read),
        1 => Some(LockKind::Write),
        2 => None,
        _ => return Err(EINVAL),
    };
    let range = lock_range(f, &l)?;
    if matches!(cmd, F_GETLK | F_OFD_GETLK) {
        let kind = kind.ok_or(EINVAL)?;
        match cx.task.with_paths(|p| p.get_lock(f, owner, kind, range))? {
            None => l.kind = 2,
            Some(c) => {
                l.kind = if c.kind == LockKind::Read { 0 } else { 1 };
                l.whence = 0;
                l.start = c.range.start as i64;
                l.len = if c.range.end >= i64::MAX as u64 {
                    0
                } else {
                    (c.range.end - c.range.start + 1) as i64
                };
                l.pid = if c.pid > 0 {
                    cx.number_of(c.pid)
                } else {
                    c.pid
                };
            }
        }
        mm.write_obj(va, &l)?;
        return Ok(0);
    }
    match kind {
        Some(LockKind::Read) if !f.readable() => return Err(EBADF),
        Some(LockKind::Write) if !f.writable() => return Err(EBADF),
        _ => {}
    }
    let wait = if matches!(cmd, F_SETLKW | F_OFD_SETLKW) {
        Wait::Yes
    } else {
        Wait::No
    };
    cx.task
        .with_paths(|p| p.set_lock(f, owner, kind, range, pid, wait))?;
    // A close of the descriptor in the meantime found nothing to let go.
    if !ofd && kind.is_some() && !cx.fd(fd).is_ok_and(|now| Arc::ptr_eq(&now, f)) {
        cx.task
            .with_paths(|p| p.set_lock(f, owner, None, range, pid, Wait::No))?;
        return Err(EBADF);
    }
    Ok(0)
}

fn flock(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    let op = a.u32(1);
    let wait = if op & 4 != 0 { Wait::No } else { Wait::Yes };
    let kind = match op & !4 {
        1 => Some(LockKind::Read),
        2 => Some(LockKind::Write),
        8 => None,
        _ => return Err(EINVAL),
    };
    cx.task.with_paths(|p| p.flock(&f, kind, wait))?;
    Ok(0)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[Call::new(73, "flock", &[Arg::Fd, Arg::Hex], flock)];
