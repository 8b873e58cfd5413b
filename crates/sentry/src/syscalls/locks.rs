//! Locks on files: those of fcntl and of flock.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::Result;
use abi::errno::*;
use std::sync::Arc;
use vfs::file::File;
use vfs::locks::{LockKind, LockRange, Owner};
use vfs::ops::Wait;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

opaque! { Flock }

flags! {
    /// What flock(2) does: one of the first three, and perhaps LOCK_NB.
    struct FlockOp: u32, kept {
        LOCK_SH,
        LOCK_EX,
        LOCK_UN,
        LOCK_NB,
    }
}

/// `struct flock`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Flock {
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

/// Whose the locks of fcntl(2) are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockOwner {
    Process,
    /// The open file's: `F_OFD_*`.
    OpenFile,
}

/// What is to be done with one.
#[derive(Clone, Copy)]
pub(super) enum LockWhat {
    /// Told which lock stands against it.
    Get,
    Set(Wait),
}

/// A command of fcntl(2) about locks.
#[derive(Clone, Copy)]
pub(super) struct LockCmd {
    pub owner: LockOwner,
    pub what: LockWhat,
    pub at: UserPtr<Flock>,
}

pub(super) fn fcntl_lock(cx: &Context, fd: Fd, f: &Arc<File>, cmd: LockCmd) -> Result<()> {
    let mm = cx.mm();
    let mut l = cmd.at.read(&mm)?;
    if cmd.owner == LockOwner::OpenFile && l.pid != 0 {
        return Err(EINVAL);
    }
    let (owner, pid) = match cmd.owner {
        LockOwner::OpenFile => (Owner::OpenFile(f.id), -1),
        LockOwner::Process => (Owner::Posix(cx.files().id()), cx.group.tgid),
    };
    let kind = match l.kind {
        0 => Some(LockKind::Read),
        1 => Some(LockKind::Write),
        2 => None,
        _ => return Err(EINVAL),
    };
    let range = lock_range(f, &l)?;
    let LockWhat::Set(wait) = cmd.what else {
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
        return cmd.at.write(&mm, &l);
    };
    match kind {
        Some(LockKind::Read) if !f.readable() => return Err(EBADF),
        Some(LockKind::Write) if !f.writable() => return Err(EBADF),
        _ => {}
    }
    cx.task
        .with_paths(|p| p.set_lock(f, owner, kind, range, pid, wait))?;
    // A close of the descriptor in the meantime found nothing to let go.
    if cmd.owner == LockOwner::Process
        && kind.is_some()
        && !fd.any_file(cx).is_ok_and(|now| Arc::ptr_eq(&now, f))
    {
        cx.task
            .with_paths(|p| p.set_lock(f, owner, None, range, pid, Wait::No))?;
        return Err(EBADF);
    }
    Ok(())
}

fn flock(cx: &mut Context, fd: Fd, op: FlockOp) -> SysResult {
    let f = fd.file(cx)?;
    let wait = if op.contains(FlockOp::LOCK_NB) {
        Wait::No
    } else {
        Wait::Yes
    };
    let kind = match op - FlockOp::LOCK_NB {
        FlockOp::LOCK_SH => Some(LockKind::Read),
        FlockOp::LOCK_EX => Some(LockKind::Write),
        FlockOp::LOCK_UN => None,
        _ => return Err(EINVAL),
    };
    let pid = cx.group.tgid;
    cx.task.with_paths(|p| p.flock(&f, kind, pid, wait))?;
    Ok(0)
}

calls! {
    flock,
}
