//! Reads and writes (`io_uring/rw.c`).

use super::super::SysResult;
use super::super::io::{At, RwFlags, buffer, do_read, do_write, user_ranges};
use super::{Prepared, by};
use crate::task::Context;
use crate::task::uring::abi::{Setup, SqeFlags};
use crate::task::uring::buffers::SelectedBuffer;
use crate::task::uring::resources::{Buffer, Node};
use crate::task::uring::{Cqe, Done, Outcome, Request, Ring, Sqe, result};
use abi::errno::*;
use abi::{Result, Va};
use mm::{Mm, UserIo, UserRange};
use smallvec::SmallVec;
use std::sync::Arc;
use vfs::{File, Sink, Source};
use wait::Events;

/// Where a request's bytes are.
enum Place {
    Range(Va, u32),
    Ranges(SmallVec<[UserRange; 8]>),
    /// A buffer of the entry's group, so much of it; 0 for all.
    Provided(u32),
    /// A part of a registered buffer, which stays what it was when the entry was taken.
    Registered(Arc<Node<Buffer>>, UserRange),
}

/// The flags of what is asked, and the place in the file.
#[derive(Clone, Copy)]
struct RwArgs {
    at: At,
    flags: u32,
}

fn asked(cx: &Context, ring: &Ring, e: &Sqe) -> Result<RwArgs> {
    if e.ioprio != 0 {
        super::super::sched::check_io_priority(cx, e.ioprio.into())?;
    }
    let flags = RwFlags::from_bits_retain(e.op_flags);
    flags.check(1)?;
    if flags.contains(RwFlags::RWF_HIPRI) && !ring.has(Setup::IOPOLL) {
        return Err(EINVAL);
    }
    let at = match e.off as i64 {
        -1 => At::Position,
        _ => At::Offset(e.off),
    };
    Ok(RwArgs {
        at,
        flags: flags.bits(),
    })
}

fn plain(e: &Sqe) -> Place {
    match e.has(SqeFlags::BUFFER_SELECT) {
        true => Place::Provided(e.len),
        false => Place::Range(Va(e.addr), e.len),
    }
}

fn vector(cx: &Context, e: &Sqe) -> Result<Place> {
    let ranges = user_ranges(&cx.mm(), Va(e.addr), e.len as usize)?;
    if !e.has(SqeFlags::BUFFER_SELECT) {
        return Ok(Place::Ranges(ranges));
    }
    if e.len != 1 {
        return Err(EINVAL);
    }
    let len = ranges.first().map_or(0, |r| r.len);
    Ok(Place::Provided(u32::try_from(len).map_err(|_| EINVAL)?))
}

fn registered(ring: &Ring, e: &Sqe) -> Result<Place> {
    let node = ring.resources.buffers.get(e.buf_index.into());
    let node = node.ok_or(EFAULT)?;
    let range = node.what().part(Va(e.addr), e.len.into())?;
    Ok(Place::Registered(node, range))
}

pub(super) fn read(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    reads(asked(cx, ring, e)?, plain(e))
}
pub(super) fn readv(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    reads(asked(cx, ring, e)?, vector(cx, e)?)
}
pub(super) fn read_fixed(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    reads(asked(cx, ring, e)?, registered(ring, e)?)
}
pub(super) fn write(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    writes(asked(cx, ring, e)?, plain(e))
}
pub(super) fn writev(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    writes(asked(cx, ring, e)?, vector(cx, e)?)
}
pub(super) fn write_fixed(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    writes(asked(cx, ring, e)?, registered(ring, e)?)
}

/// The memory that a place is in, the caller's: a buffer is not pinned, and what another process
/// has mapped there now is not the caller's to reach.
fn memory(cx: &Context, place: &Place) -> Result<Arc<Mm>> {
    let own = cx.mm();
    match place {
        Place::Registered(node, _) if !std::ptr::eq(node.what().mm.as_ptr(), &*own) => Err(EFAULT),
        _ => Ok(own),
    }
}

/// The bytes of a place; and the buffer that was taken for it.
fn bytes<'a>(
    mm: &'a Mm,
    r: &Request,
    place: &Place,
) -> Result<(UserIo<'a>, Option<SelectedBuffer>)> {
    match place {
        Place::Range(va, len) => Ok((buffer(mm, *va, *len as usize)?, None)),
        Place::Ranges(all) => Ok((UserIo::vectored(mm, all.iter().copied()), None)),
        Place::Provided(len) => {
            let (va, len, taken) = select(r, *len)?;
            Ok((buffer(mm, va, len as usize)?, Some(taken)))
        }
        // What came there since is no page that Linux would have pinned.
        Place::Registered(_, range) if mm.is_secret(range.va, range.len) => Err(EFAULT),
        Place::Registered(_, range) => Ok((UserIo::vectored(mm, [*range]), None)),
    }
}

/// Takes a provided buffer, for at most `most` bytes (0: all): where, how long.
pub(super) fn select(r: &Request, most: u32) -> Result<(Va, u32, SelectedBuffer)> {
    let taken = r.ring.groups.take(r.sqe.buf_index)?;
    Ok((Va(taken.buffer.addr), used_of(&taken, most), taken))
}

/// What of a provided buffer is used, of at most `most` bytes (0: all).
pub(super) fn used_of(b: &SelectedBuffer, most: u32) -> u32 {
    match most {
        0 => b.buffer.len,
        n => n.min(b.buffer.len),
    }
}

const RWF_NOWAIT: u32 = RwFlags::RWF_NOWAIT.bits();

/// Whether a request waits where its file has nothing yet.
fn may_wait(f: &File, flags: u32) -> bool {
    // (Also what was opened with O_NONBLOCK.)
    f.ops.io_queue().is_some() && flags & RWF_NOWAIT == 0
}

fn no_polling(r: &Request) -> Result<()> {
    // No file of ours can be polled for completions.
    match r.ring.has(Setup::IOPOLL) {
        true => Err(EOPNOTSUPP),
        false => Ok(()),
    }
}

/// A transfer's end: short ones fail what is linked behind them.
fn ended(n: usize, whole: usize, taken: Option<&SelectedBuffer>) -> Outcome {
    Outcome::Done(Done {
        res: result(Ok(n)),
        flags: taken.map_or(0, SelectedBuffer::flags),
        failed: n < whole,
        ..Done::default()
    })
}

fn reads(asked: RwArgs, place: Place) -> Prepared {
    by(move |cx, r| match attempt_read(cx, r, asked, &place) {
        Ok(o) => o,
        Err(e) => e.into(),
    })
}

fn attempt_read(cx: &Context, r: &Arc<Request>, asked: RwArgs, place: &Place) -> Result<Outcome> {
    let f = r.file()?;
    if !f.readable() {
        return Err(EBADF);
    }
    no_polling(r)?;
    let mm = memory(cx, place)?;
    let (mut to, taken) = bytes(&mm, r, place)?;
    let whole = Sink::remaining(&to);
    match do_read(
        cx,
        &f,
        &mut to,
        place_in(&f, asked.at),
        asked.flags | RWF_NOWAIT,
    ) {
        Ok(n) => Ok(ended(n, whole, taken.as_ref())),
        Err(e) => {
            if let Some(t) = taken {
                r.ring.groups.give_back(t);
            }
            match e {
                EAGAIN if may_wait(&f, asked.flags) => Ok(Outcome::Wait(f, Events::READABLE)),
                e => Err(e),
            }
        }
    }
}

/// Streams have no places (`io_kiocb_update_pos`).
fn place_in(f: &File, at: At) -> At {
    if f.ops.seekable() { at } else { At::Position }
}

fn writes(asked: RwArgs, place: Place) -> Prepared {
    by(move |cx, r| match attempt_write(cx, r, asked, &place) {
        Ok(o) => o,
        Err(e) => e.into(),
    })
}

fn attempt_write(cx: &Context, r: &Arc<Request>, asked: RwArgs, place: &Place) -> Result<Outcome> {
    let f = r.file()?;
    if !f.writable() {
        return Err(EBADF);
    }
    no_polling(r)?;
    let mm = memory(cx, place)?;
    let (mut from, taken) = bytes(&mm, r, place)?;
    let whole = Source::remaining(&from);
    let r = do_write(
        cx,
        &f,
        &mut from,
        place_in(&f, asked.at),
        asked.flags | RWF_NOWAIT,
    );
    match r {
        Ok(n) => Ok(ended(n, whole, taken.as_ref())),
        Err(EAGAIN) if may_wait(&f, asked.flags) => Ok(Outcome::Wait(f, Events::WRITABLE)),
        Err(e) => Err(e),
    }
}

/// `IORING_OP_READ_MULTISHOT`: reads into provided buffers again and again, until the end or an
/// error.
pub(super) fn read_multishot(cx: &mut Context, ring: &Arc<Ring>, e: &Sqe) -> Prepared {
    if !e.has(SqeFlags::BUFFER_SELECT) || e.addr != 0 || e.len != 0 {
        return Err(EINVAL);
    }
    let asked = asked(cx, ring, e)?;
    by(move |cx, r| match many(cx, r, asked) {
        Ok(o) => o,
        Err(e) => e.into(),
    })
}

/// So many are told at a time, before others have their turn (`MULTISHOT_MAX_RETRY`).
pub(super) const AT_ONCE: u32 = 32;

fn many(cx: &Context, r: &Arc<Request>, asked: RwArgs) -> Result<Outcome> {
    let f = r.file()?;
    if !f.readable() {
        return Err(EBADF);
    }
    if f.ops.wait_queue().is_none() {
        return Err(EBADFD);
    }
    let mm = cx.mm();
    for _ in 0..AT_ONCE {
        let (mut to, taken) = bytes(&mm, r, &Place::Provided(0))?;
        let got: SysResult = do_read(cx, &f, &mut to, At::Position, asked.flags | RWF_NOWAIT);
        let Some(taken) = taken else { continue };
        let n = match got {
            Ok(n) if n > 0 => n,
            r0 => {
                r.ring.groups.give_back(taken);
                return match r0 {
                    Err(EAGAIN) if may_wait(&f, asked.flags) => {
                        Ok(Outcome::Wait(f, Events::READABLE))
                    }
                    r0 => Ok(r0.into()),
                };
            }
        };
        let told = r.ring.complete_more(Cqe {
            user_data: r.sqe.user_data,
            res: result(Ok(n)),
            flags: taken.flags(),
            ..Cqe::default()
        });
        if !told {
            return Ok(ended(n, 0, Some(&taken)));
        }
        if may_wait(&f, asked.flags) && super::receive::is_empty(&f) {
            return Ok(Outcome::Wait(f, Events::READABLE));
        }
    }
    // There may be more: its turn comes again.
    again(r, f, Events::READABLE)
}

/// A request that could go on at once lets others have their turn: it is work again.
pub(super) fn again(r: &Arc<Request>, f: Arc<File>, events: Events) -> Result<Outcome> {
    r.enlist()?;
    if !r.wake() {
        return Err(ECANCELED);
    }
    Ok(Outcome::Wait(f, events))
}
