//! Operations on open files.

use super::super::SysResult;
use super::super::args::*;
use super::super::epoll::{EpollOp, epoll_ctl};
use super::super::io::check_size;
use super::super::splice::{Waits, splice_files, tee_files};
use super::super::sync::{FallocMode, FileAdvice, SyncRangeFlags, advise, allocate, sync_range};
use super::super::xattrs::{self, Of, XattrFlags};
use super::{Prepared, by, call};
use crate::task::Context;
use crate::task::uring::abi::{FILE_INDEX_ALLOC, SqeFlags};
use crate::task::uring::{Done, Outcome, Request, Ring, RingFile, Sqe};
use abi::errno::*;
use abi::{Result, Va};
use std::sync::Arc;
use vfs::File;
use vfs::fd_table::CloseOnExec;
use vfs::file::DataOnly;
use wait::Events;

/// `EINVAL` where one of the words that an operation does not know is not zero.
pub(super) fn unused(words: &[u64]) -> Result<()> {
    match words.iter().all(|w| *w == 0) {
        true => Ok(()),
        false => Err(EINVAL),
    }
}

/// `EBADF` where the entry's descriptor is to be a registered file, which means nothing here.
pub(super) fn no_fixed(e: &Sqe) -> Result<()> {
    match e.has(SqeFlags::FIXED_FILE) {
        true => Err(EBADF),
        false => Ok(()),
    }
}

/// `IORING_OP_FSYNC`.
pub(super) fn fsync(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    const DATASYNC: u32 = 1;
    unused(&[e.addr, e.buf_index.into(), e.file_index.into()])?;
    if e.op_flags & !DATASYNC != 0 {
        return Err(EINVAL);
    }
    let data_only = match e.op_flags {
        0 => DataOnly::No,
        _ => DataOnly::Yes,
    };
    call(move |_, r| r.file()?.ops.sync(data_only).map(|()| 0))
}

/// `IORING_OP_CLOSE`: of a descriptor, or a registered file.
pub(super) fn close(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[
        e.off,
        e.addr,
        e.len.into(),
        e.op_flags.into(),
        e.buf_index.into(),
    ])?;
    no_fixed(e)?;
    let (fd, slot) = (e.fd, e.file_index);
    if slot != 0 && fd != 0 {
        return Err(EINVAL);
    }
    call(move |cx, r| {
        if slot != 0 {
            return remove(&r.ring, slot - 1).map(|()| 0);
        }
        let f = Fd(fd).any_file(cx)?;
        // Rings are not closed so.
        if f.ops::<RingFile>().is_some() {
            return Err(EBADF);
        }
        drop(f);
        let (file, r) = cx.files().take(fd)?;
        crate::syscalls::descriptors::let_go(cx, file);
        r.map(|()| 0)
    })
}

/// Takes a file out of a slot; `EBADF` where there is none (`io_fixed_fd_remove`).
pub(super) fn remove(ring: &Ring, slot: u32) -> Result<()> {
    match ring.resources.files.set(slot, None)? {
        true => Ok(()),
        false => Err(EBADF),
    }
}

/// Registers a file that an operation has made: in a slot, counted from 1, or where there is a free
/// one. Gives 0, or which one was free (`io_fixed_fd_install`).
pub(super) fn install(ring: &Ring, f: Arc<File>, slot: u32) -> SysResult {
    if f.ops::<RingFile>().is_some() {
        return Err(EBADF);
    }
    f.may_stay()?;
    if slot == FILE_INDEX_ALLOC {
        return ring.resources.files.put_free(f).map(|n| n as usize);
    }
    ring.resources.files.set(slot - 1, Some((f, 0)))?;
    Ok(0)
}

pub(super) fn sync_file_range(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.addr, e.buf_index.into(), e.file_index.into()])?;
    let e = *e;
    let flags = SyncRangeFlags::from_bits_retain(e.op_flags);
    call(move |_, r| sync_range(&*r.file()?, e.off as i64, e.len.into(), flags))
}

pub(super) fn fallocate(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.buf_index.into(), e.op_flags.into(), e.file_index.into()])?;
    let e = *e;
    let mode = FallocMode::from_bits_retain(e.len);
    call(move |cx, r| allocate(cx, &r.file()?, mode, e.off as i64, e.addr as i64))
}

pub(super) fn fadvise(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.buf_index.into(), e.file_index.into()])?;
    let len = if e.addr != 0 { e.addr } else { e.len.into() };
    let advice = FileAdvice(e.op_flags);
    call(move |_, r| advise(&*r.file()?, len as i64, advice))
}

pub(super) fn madvise(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.buf_index.into(), e.file_index.into()])?;
    let e = *e;
    let len = if e.off != 0 { e.off } else { e.len.into() };
    call(move |cx, _| {
        let advice = e.op_flags as _;
        cx.mm().madvise(Va(e.addr), len, advice).map(|()| 0)
    })
}

pub(super) fn ftruncate(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.op_flags.into(), e.addr, e.len.into(), e.buf_index.into()])?;
    unused(&[e.file_index.into(), e.addr3])?;
    let size = e.off as i64;
    call(move |cx, r| {
        let f = r.file()?;
        check_size(cx, size)?;
        cx.task.with_paths(|p| p.ftruncate(&f, size)).map(|()| 0)
    })
}

pub(super) fn epoll(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.buf_index.into(), e.file_index.into()])?;
    let e = *e;
    call(move |cx, _| {
        let event = UserIn::new(Va(e.addr));
        epoll_ctl(cx, Fd(e.fd), EpollOp(e.len), Fd(e.off as i32), event)
    })
}

/// `SPLICE_F_FD_IN_FIXED`, and the flags of splice(2).
const IN_FIXED: u32 = 1 << 31;
const SPLICE_ALL: u32 = 0xf;
const SPLICE_NONBLOCK: u32 = 2;

/// Both files of a splice; `EBADF`.
fn both(r: &Request, e: &Sqe) -> Result<(Arc<File>, Arc<File>)> {
    let from = match e.op_flags & IN_FIXED {
        0 => r.open_file(e.file_index as i32)?,
        _ => r.registered_file(e.file_index)?,
    };
    Ok((from.file().clone(), r.file()?))
}

/// What a splice that cannot go on waits for: the side that is not ready.
fn wait_for_side(r: SysResult, e: &Sqe, (from, to): (Arc<File>, Arc<File>)) -> Outcome {
    match r {
        Err(EAGAIN) if e.op_flags & SPLICE_NONBLOCK == 0 => {
            let ready = from.poll(Events::READABLE) & (Events::READABLE | Events::ALWAYS);
            let waits = from.ops.wait_queue().is_some() && ready.is_empty();
            match waits {
                true => Outcome::Wait(from, Events::READABLE),
                false => Outcome::Wait(to, Events::WRITABLE),
            }
        }
        // (A short one fails what is linked behind it.)
        r => Outcome::Done(Done {
            failed: r != Ok(e.len as usize),
            ..Done::of(r)
        }),
    }
}

pub(super) fn splice(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    if e.op_flags & !(SPLICE_ALL | IN_FIXED) != 0 {
        return Err(EINVAL);
    }
    let e = *e;
    let offset = |raw: u64| (raw != u64::MAX).then_some(raw);
    by(move |cx, r| {
        if e.len == 0 {
            return Ok(0).into();
        }
        let (from, to) = match both(r, &e) {
            Ok(b) => b,
            Err(e) => return e.into(),
        };
        let starts = (offset(e.addr), offset(e.off));
        let done = splice_files(cx, (&from, &to), starts, e.len as usize, Waits::Never);
        wait_for_side(done, &e, (from, to))
    })
}

pub(super) fn tee(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.addr, e.off])?;
    if e.op_flags & !(SPLICE_ALL | IN_FIXED) != 0 {
        return Err(EINVAL);
    }
    let e = *e;
    by(move |cx, r| {
        if e.len == 0 {
            return Ok(0).into();
        }
        let (from, to) = match both(r, &e) {
            Ok(b) => b,
            Err(e) => return e.into(),
        };
        let done = tee_files(cx, &from, &to, e.len as usize, Waits::Never);
        wait_for_side(done, &e, (from, to))
    })
}

/// Attributes of a file, or of a path.
fn xattr(e: &Sqe, f: fn(&Context, Of<'_>, &Sqe) -> SysResult, by_path: bool) -> Prepared {
    no_fixed(e).or_else(|e| if by_path { Err(e) } else { Ok(()) })?;
    unused(&[e.buf_index.into(), e.file_index.into()])?;
    let e = *e;
    call(move |cx, r| {
        if by_path {
            return f(cx, Of::Path(PathPtr(Va(e.addr3))), &e);
        }
        f(cx, Of::File(&r.file()?), &e)
    })
}

fn set(cx: &Context, of: Of<'_>, e: &Sqe) -> SysResult {
    let value = BytesIn {
        va: Va(e.off),
        len: e.len as usize,
    };
    let flags = XattrFlags::from_bits(e.op_flags).ok_or(EINVAL)?;
    xattrs::set(cx, of, StrPtr(Va(e.addr)), value, flags)
}

fn get(cx: &Context, of: Of<'_>, e: &Sqe) -> SysResult {
    let value = BytesOut {
        va: Va(e.off),
        len: e.len as usize,
    };
    xattrs::get(cx, of, StrPtr(Va(e.addr)), value)
}

pub(super) fn fsetxattr(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    xattr(e, set, false)
}
pub(super) fn setxattr(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    xattr(e, set, true)
}
pub(super) fn fgetxattr(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.op_flags.into()])?;
    xattr(e, get, false)
}
pub(super) fn getxattr(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.op_flags.into()])?;
    xattr(e, get, true)
}

/// `IORING_OP_FIXED_FD_INSTALL`: a registered file gets a descriptor.
pub(super) fn fd_install(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    const NO_CLOEXEC: u32 = 1;
    unused(&[e.off, e.addr, e.len.into(), e.buf_index.into()])?;
    unused(&[e.file_index.into(), e.addr3])?;
    if !e.has(SqeFlags::FIXED_FILE) {
        return Err(EBADF);
    }
    if e.op_flags & !NO_CLOEXEC != 0 {
        return Err(EINVAL);
    }
    if e.personality != 0 {
        return Err(EPERM);
    }
    let close = match e.op_flags {
        0 => CloseOnExec::Yes,
        _ => CloseOnExec::No,
    };
    call(move |cx, r| {
        let fd = cx.files().install(r.file()?, close, &cx.room())?;
        Ok(fd as usize)
    })
}
