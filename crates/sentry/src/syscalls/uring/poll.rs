//! Polling and cancelling (`io_uring/poll.c`, `cancel.c`).

use super::super::SysResult;
use super::{Prepared, by, call};
use crate::task::Context;
use crate::task::signalfd::SignalFd;
use crate::task::uring::abi::SqeFlags;
use crate::task::uring::cancel::{CancelFlags, CancelTarget};
use crate::task::uring::{Cqe, Done, Operation, Outcome, Request, Ring, Sqe};
use abi::Result;
use abi::errno::*;
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vfs::File;
use wait::Events;

bitflags::bitflags! {
    /// `IORING_POLL_*`, in the entry's length.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct PollFlags: u32 {
        const ADD_MULTI = 1;
        const UPDATE_EVENTS = 2;
        const UPDATE_USER_DATA = 4;
        const ADD_LEVEL = 8;
    }
}

/// `EPOLLEXCLUSIVE`, `EPOLLONESHOT`, `EPOLLET`, and the other bits that are no events.
const NO_EVENTS: u32 = 0xf000_0000;
const EXCLUSIVE: u32 = 1 << 28;

/// `IORING_OP_POLL_ADD`.
pub(super) struct Poll {
    events: AtomicU32,
    multi: AtomicBool,
    /// With `ADD_LEVEL`: told as long as it holds.
    level: bool,
    /// A signalfd as its task sees it.
    view: Mutex<Option<Arc<File>>>,
}

impl Poll {
    fn file(&self, r: &Arc<Request>) -> Result<Arc<File>> {
        let f = r.file()?;
        let Some(s) = f.ops::<SignalFd>() else {
            return Ok(f);
        };
        let mut view = self.view.lock();
        Ok(view.get_or_insert_with(|| s.view(&r.task, &f)).clone())
    }
    fn attempt(&self, r: &Arc<Request>) -> Result<Outcome> {
        let f = self.file(r)?;
        let asked = self.events.load(Ordering::SeqCst);
        let events = Events::from_bits_retain(asked & !NO_EVENTS) | Events::ALWAYS | Events::RDHUP;
        let multi = self.multi.load(Ordering::SeqCst);
        let is_told = f.ops.wait_queue().is_some();
        if multi && is_told {
            // First, so that what comes after the look is told.
            r.listen_only(&f, events)?;
        }
        let now = f.poll(events) & events;
        if now.is_empty() {
            return Ok(Outcome::Wait(f, events));
        }
        let res = now.bits() as i32;
        // What its own completions tell of would never end.
        if !multi || !is_told || r.take_own() {
            return Ok(Outcome::Done(Done::plain(res)));
        }
        let told = r.ring.complete_more(Cqe {
            user_data: r.sqe.user_data,
            res,
            ..Cqe::default()
        });
        if !told {
            return Ok(Outcome::Done(Done::plain(res)));
        }
        if self.level {
            return super::rw::again(r, f, events);
        }
        Ok(Outcome::Pending)
    }
}

impl Operation for Poll {
    fn issue(&self, _: &mut Context, r: &Arc<Request>) -> Outcome {
        self.attempt(r).unwrap_or_else(Outcome::from)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn add(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    if e.buf_index != 0 || e.off != 0 || e.addr != 0 {
        return Err(EINVAL);
    }
    let flags = PollFlags::from_bits(e.len).ok_or(EINVAL)?;
    if flags.intersects(PollFlags::UPDATE_EVENTS | PollFlags::UPDATE_USER_DATA) {
        return Err(EINVAL);
    }
    let multi = flags.contains(PollFlags::ADD_MULTI);
    if multi && e.has(SqeFlags::CQE_SKIP_SUCCESS) {
        return Err(EINVAL);
    }
    if multi && e.op_flags & EXCLUSIVE != 0 {
        return Err(EINVAL);
    }
    Ok(Box::new(Poll {
        events: AtomicU32::new(e.op_flags),
        multi: AtomicBool::new(multi),
        level: flags.contains(PollFlags::ADD_LEVEL) && multi,
        view: Mutex::new(None),
    }))
}

/// `IORING_OP_POLL_REMOVE`: ends a poll, or changes it.
pub(super) fn remove(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    if e.buf_index != 0 || e.file_index != 0 {
        return Err(EINVAL);
    }
    let flags = PollFlags::from_bits(e.len).ok_or(EINVAL)?;
    let update = PollFlags::UPDATE_EVENTS | PollFlags::UPDATE_USER_DATA;
    // The events of a poll without a change are none.
    if !update.union(PollFlags::ADD_MULTI).contains(flags)
        || flags == PollFlags::ADD_MULTI
        || !flags.contains(PollFlags::UPDATE_USER_DATA) && e.off != 0
        || !flags.contains(PollFlags::UPDATE_EVENTS) && e.op_flags != 0
    {
        return Err(EINVAL);
    }
    let (old, new, events) = (e.addr, e.off, e.op_flags);
    call(move |cx, r| {
        let found = r.ring.find_named(old, |x| x.op::<Poll>().is_some());
        let found = &found.ok_or(ENOENT)?;
        if flags.is_empty() {
            return found.cancel_after(r).map(|()| 0);
        }
        update_poll(cx, found, flags, new, events)
    })
}

/// A poll with other events, or another name: the old one is taken out silently, and a new one
/// begins.
fn update_poll(
    cx: &mut Context,
    old: &Arc<Request>,
    flags: PollFlags,
    user_data: u64,
    events: u32,
) -> SysResult {
    let op = old.op::<Poll>().ok_or(ENOENT)?;
    let mut sqe = old.sqe;
    if flags.contains(PollFlags::UPDATE_USER_DATA) {
        sqe.user_data = user_data;
    }
    let asked = match flags.contains(PollFlags::UPDATE_EVENTS) {
        true => events,
        false => op.events.load(Ordering::SeqCst),
    };
    let multi = match flags.contains(PollFlags::UPDATE_EVENTS) {
        true => flags.contains(PollFlags::ADD_MULTI),
        false => op.multi.load(Ordering::SeqCst),
    };
    let new = Request::new(
        &old.ring,
        &old.task,
        sqe,
        Ok(Box::new(Poll {
            events: AtomicU32::new(asked),
            multi: AtomicBool::new(multi),
            level: op.level,
            view: Mutex::new(None),
        })),
        old.identity.clone(),
    );
    old.replace(&new)?;
    if Arc::ptr_eq(&new.task, &cx.task) {
        new.run(cx);
    } else if !new.wake() {
        new.end_unissued();
    }
    Ok(0)
}

/// `IORING_OP_ASYNC_CANCEL`.
pub(super) fn cancel(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    if e.has(SqeFlags::BUFFER_SELECT) || e.off != 0 || e.file_index != 0 {
        return Err(EINVAL);
    }
    let flags = CancelFlags::from_bits(e.op_flags).ok_or(EINVAL)?;
    CancelTarget::check(flags)?;
    if flags.contains(CancelFlags::ANY) && e.addr != 0 {
        return Err(EINVAL);
    }
    let e = *e;
    by(move |_, r| {
        let file = match flags.contains(CancelFlags::FD) {
            false => None,
            true => {
                let registered =
                    flags.contains(CancelFlags::FD_FIXED) || e.has(SqeFlags::FIXED_FILE);
                let found = match registered {
                    true => r.registered_file(e.fd as u32),
                    false => r.open_file(e.fd),
                };
                match found {
                    Ok(f) => Some(f.file().clone()),
                    Err(e) => return e.into(),
                }
            }
        };
        let wanted = CancelTarget {
            flags,
            user_data: e.addr,
            file,
            opcode: e.len as u8,
            but: r.number,
        };
        wanted.cancel(&r.ring, Some(r)).into()
    })
}
