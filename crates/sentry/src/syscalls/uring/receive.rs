//! Receiving from sockets (`io_uring/net.c`): once, or again and again into provided buffers.

use super::super::SysResult;
use super::super::io::buffer;
use super::super::messages::{Incoming, control_out, receive_on};
use super::super::sockets::socket_of;
use super::files::unused;
use super::net::{MSG_WAITALL, NetFlags, Transfer, more_waits, outcome};
use super::rw::{AT_ONCE, again, select};
use super::{Prepared, by, weighed};
use crate::task::Context;
use crate::task::uring::abi::SqeFlags;
use crate::task::uring::buffers::SelectedBuffer;
use crate::task::uring::{Cqe, Done, Outcome, Request, Ring, Sqe, result};
use abi::errno::*;
use abi::{Result, Va};
use mm::{UserIo, UserRange};
use net::sys::{MSG_DONTWAIT, SOCK_STREAM};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{File, Sink};
use wait::Events;
use zerocopy::IntoBytes;

/// Flags of a receive; whether it is one of many (`io_recvmsg_prep`).
fn receiving(e: &Sqe) -> Result<(Transfer, bool)> {
    unused(&[e.off, e.file_index.into()])?;
    let t = Transfer::new(e, NetFlags::POLL_FIRST | NetFlags::MULTISHOT)?;
    let multi = t.net.contains(NetFlags::MULTISHOT);
    let selects = e.has(SqeFlags::BUFFER_SELECT);
    if multi && (!selects || t.flags & MSG_WAITALL != 0) {
        return Err(EINVAL);
    }
    Ok((t, multi))
}

/// Whether there is nothing to receive now: no buffer is taken for that.
pub(super) fn is_empty(f: &File) -> bool {
    let events = Events::READABLE | Events::RDHUP | Events::ALWAYS;
    (f.poll(events) & events).is_empty()
}

pub(super) fn recv(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    let (t, multi) = receiving(e)?;
    if multi && e.len != 0 {
        return Err(EINVAL);
    }
    by(move |cx, r| {
        outcome(match multi {
            true => recv_many(cx, r, &t),
            false => recv_one(cx, r, &t),
        })
    })
}

fn recv_one(cx: &Context, r: &Arc<Request>, t: &Transfer) -> Result<Outcome> {
    let f = r.file()?;
    socket_of(&f)?;
    if let Some(o) = t.polls_first(&f, Events::READABLE) {
        return Ok(o);
    }
    let (va, len, taken) = match t.e.has(SqeFlags::BUFFER_SELECT) {
        true => {
            let (va, len, taken) = t.buffer(r, t.e.len)?;
            (va, len as usize, Some(taken))
        }
        false => (Va(t.e.addr), t.e.len as usize, None),
    };
    let mm = cx.mm();
    let done = t.done.load(Ordering::Relaxed);
    let mut dst = buffer(&mm, va.offset(done as u64), len.saturating_sub(done))?;
    let whole = Sink::remaining(&dst);
    let got = receive_on(cx, &f, &mut dst, t.flags | MSG_DONTWAIT).map(|r| r.without_files());
    Ok(received(r, t, f, got, whole, taken))
}

/// What an attempt to receive comes to.
fn received(
    r: &Request,
    t: &Transfer,
    f: Arc<File>,
    got: SysResult,
    whole: usize,
    taken: Option<SelectedBuffer>,
) -> Outcome {
    let nonempty = if got.is_ok() { more_waits(&f) } else { 0 };
    let o = match t.outcome(f, got, whole, Events::READABLE) {
        Outcome::Done(d) if d.res >= 0 => Outcome::Done(Done {
            flags: nonempty,
            ..d
        }),
        o => o,
    };
    t.after(r, taken, o)
}

fn recv_many(cx: &Context, r: &Arc<Request>, t: &Transfer) -> Result<Outcome> {
    let f = r.file()?;
    socket_of(&f)?;
    let mm = cx.mm();
    for _ in 0..AT_ONCE {
        let (va, len, taken) = select(r, 0)?;
        let mut dst = buffer(&mm, va, len as usize)?;
        let got = receive_on(cx, &f, &mut dst, t.flags | MSG_DONTWAIT).map(|r| r.without_files());
        let n = match got {
            Ok(n) if n > 0 => n,
            got => {
                r.ring.groups.give_back(taken);
                return Ok(match got {
                    Err(EAGAIN) if t.waits() => Outcome::Wait(f, Events::READABLE),
                    got => got.into(),
                });
            }
        };
        if let Some(end) = tell_one(r, t, &f, (n, &taken), Continuation::More) {
            return Ok(end);
        }
    }
    again(r, f, Events::READABLE)
}

/// What follows what is told of a multishot request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Continuation {
    More,
    Nothing,
}

/// Tells what came into a buffer; what the attempt comes to where it goes on no more.
fn tell_one(
    r: &Request,
    t: &Transfer,
    f: &Arc<File>,
    (n, taken): (usize, &SelectedBuffer),
    then: Continuation,
) -> Option<Outcome> {
    let (res, flags) = (result(Ok(n)), taken.flags() | more_waits(f));
    let told = Cqe {
        user_data: r.sqe.user_data,
        res,
        flags,
        ..Cqe::default()
    };
    if then == Continuation::Nothing || !r.ring.complete_more(told) {
        return Some(Outcome::Done(Done {
            res,
            flags,
            ..Done::default()
        }));
    }
    let is_over = t.waits() && is_empty(f);
    is_over.then(|| Outcome::Wait(f.clone(), Events::READABLE))
}

pub(super) fn recvmsg(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    let (t, multi) = receiving(e)?;
    let m = Incoming::gather(cx, Va(e.addr))?;
    let weight = m.weight();
    let op = move |cx: &mut Context, r: &Arc<Request>| {
        outcome(match multi {
            true => recvmsg_many(cx, r, &t, &m),
            false => recvmsg_one(cx, r, &t, &m),
        })
    };
    weighed(weight, by(op))
}

fn recvmsg_one(cx: &Context, r: &Arc<Request>, t: &Transfer, m: &Incoming) -> Result<Outcome> {
    let f = r.file()?;
    socket_of(&f)?;
    if let Some(o) = t.polls_first(&f, Events::READABLE) {
        return Ok(o);
    }
    let mm = cx.mm();
    let mut taken = None;
    let mut dst = match t.e.has(SqeFlags::BUFFER_SELECT) {
        true => {
            let most = m.ranges.first().map_or(0, |r| r.len);
            let (va, len, b) = t.buffer(r, u32::try_from(most).unwrap_or(0))?;
            taken = Some(b);
            buffer(&mm, va, len as usize)?
        }
        false => UserIo::vectored(&mm, m.ranges.iter().copied()),
    };
    let _before = dst.split(t.done.load(Ordering::Relaxed));
    let whole = Sink::remaining(&dst);
    let got = m.receive(cx, &f, &mut dst, t.flags | MSG_DONTWAIT);
    Ok(received(r, t, f, got, whole, taken))
}

/// Each message goes into a provided buffer: `struct io_uring_recvmsg_out`, the address, ancillary
/// data, and the bytes.
fn recvmsg_many(cx: &Context, r: &Arc<Request>, t: &Transfer, m: &Incoming) -> Result<Outcome> {
    const HEADER: usize = 16;
    let f = r.file()?;
    socket_of(&f)?;
    let mm = cx.mm();
    let (name_room, control_room) = m.room();
    let at = HEADER + name_room + control_room;
    for _ in 0..AT_ONCE {
        let (va, len, taken) = select(r, 0)?;
        if (len as usize) < at {
            r.ring.groups.give_back(taken);
            return Err(EFAULT);
        }
        let range = UserRange {
            va: va.offset(at as u64),
            len: (len as usize - at) as u64,
        };
        let mut dst = UserIo::vectored(&mm, [range]);
        let got = match receive_on(cx, &f, &mut dst, t.flags | MSG_DONTWAIT) {
            Ok(got) => got,
            Err(e) => {
                r.ring.groups.give_back(taken);
                return match e {
                    EAGAIN if t.waits() => Ok(Outcome::Wait(f, Events::READABLE)),
                    e => Err(e),
                };
            }
        };
        let n = got.n;
        let name = got.addr.clone();
        let stream_end = n == 0 && socket_of(&f).is_ok_and(|s| s.kind() == SOCK_STREAM);
        let control = control_out(cx, got, control_room, t.flags);
        let head = [
            name.len() as u32,
            control.bytes.len() as u32,
            n as u32,
            control.flags,
        ];
        let written = mm
            .copy_out(va, head.as_bytes())
            .and_then(|()| {
                let cut = &name[..name.len().min(name_room)];
                mm.copy_out(va.offset(HEADER as u64), cut)
            })
            .and_then(|()| {
                let at = va.offset((HEADER + name_room) as u64);
                mm.copy_out(at, &control.bytes)
            });
        if let Err(e) = written {
            control.take_back(cx);
            return Err(e);
        }
        let whole = at + n.min(range.len as usize);
        let then = if stream_end {
            Continuation::Nothing
        } else {
            Continuation::More
        };
        if let Some(end) = tell_one(r, t, &f, (whole, &taken), then) {
            return Ok(end);
        }
    }
    again(r, f, Events::READABLE)
}
