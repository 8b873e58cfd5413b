//! Operations that wait for what is no file: futexes (`io_uring/futex.c`), children (`waitid.c`).

use super::super::args::*;
use super::super::futex::{Flags2, Waitv, word};
use super::super::process::{WaitFor, WaitIdOptions, has_change, waitid as do_waitid};
use super::files::unused;
use super::{Prepared, call};
use crate::task::Context;
use crate::task::futex::{self, Place, Queued};
use crate::task::uring::{Done, Operation, Outcome, Request, Ring, Sqe};
use abi::errno::*;
use abi::linux::WNOHANG;
use abi::{Result, Va};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use vfs::ucounts::{Charge, Kind};
use wait::{Events, Ticket};

/// `FUTEX_WAITV_MAX`.
const WAITV_MAX: u32 = 128;

/// `IORING_OP_FUTEX_WAIT` and `IORING_OP_FUTEX_WAITV`.
struct FutexWait {
    words: Vec<(Place, u32)>,
    mask: u32,
    /// Gives which was woken.
    tells: bool,
    queued: Mutex<Option<(Vec<Queued>, Charge)>>,
}

/// So many words one user's requests may wait at: each wake-up looks at those that wait at its own.
const WORDS_MAX: u64 = 4096;

impl FutexWait {
    fn woken(&self) -> Option<usize> {
        let q = self.queued.lock();
        q.as_ref()?.0.iter().rposition(Queued::is_woken)
    }
    fn begin(&self, cx: &Context, r: &Arc<Request>) -> Result<Option<usize>> {
        if self.queued.lock().is_some() {
            return Ok(self.woken());
        }
        r.enlist()?;
        let words = self.words.len() as u64;
        let charge = r.ring.user.charge(Kind::FutexWaits, words, WORDS_MAX);
        let charge = charge.ok_or(EAGAIN)?;
        let mut all = Vec::new();
        for (place, expected) in &self.words {
            match Queued::begin(cx, *place, *expected, self.mask, r.listener()) {
                Ok(q) => all.push(q),
                // One of them may have been woken meanwhile.
                Err(e) => return all.iter().rposition(Queued::is_woken).map(Some).ok_or(e),
            }
        }
        *self.queued.lock() = Some((all, charge));
        Ok(self.woken())
    }
}

impl Operation for FutexWait {
    fn issue(&self, cx: &mut Context, r: &Arc<Request>) -> Outcome {
        match self.begin(cx, r) {
            Ok(Some(n)) => Outcome::Done(Done::plain(if self.tells { n as i32 } else { 0 })),
            Ok(None) => Outcome::Pending,
            Err(e) => e.into(),
        }
    }
    fn leave(&self, _: &Request) {
        let q = self.queued.lock().take();
        drop(q);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Where a futex is, what it is to be, and the mask.
fn futex_words(e: &Sqe) -> Result<(Place, u32, u32)> {
    unused(&[e.len.into(), e.op_flags.into(), e.buf_index.into()])?;
    unused(&[e.file_index.into()])?;
    let (scope, va) = (Flags2(e.fd as u32).scope()?, Va(e.addr));
    let mask = word(e.addr3)?;
    Ok((Place { va, scope }, word(e.off)?, mask))
}

pub(super) fn futex_wait(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    let (place, expected, mask) = futex_words(e)?;
    Ok(Box::new(FutexWait {
        words: vec![(place, expected)],
        mask,
        tells: false,
        queued: Mutex::new(None),
    }))
}

pub(super) fn futex_wake(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    let (place, count, mask) = futex_words(e)?;
    call(move |cx, _| futex::wake_exactly(cx, place, count as i32, mask))
}

pub(super) fn futex_waitv(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.fd as u32 as u64, e.buf_index.into(), e.file_index.into()])?;
    unused(&[e.off, e.op_flags.into(), e.addr3])?;
    if e.addr == 0 || !(1..=WAITV_MAX).contains(&e.len) {
        return Err(EINVAL);
    }
    let (at, mm) = (UserArray::<Waitv>::new(Va(e.addr)), cx.mm());
    let words = (0..e.len.into()).map(|i| at.at(i).read(&mm)?.checked());
    Ok(Box::new(FutexWait {
        words: words.collect::<Result<_>>()?,
        mask: !0,
        tells: true,
        queued: Mutex::new(None),
    }))
}

/// `IORING_OP_WAITID`.
struct WaitId {
    e: Sqe,
    ticket: Mutex<Option<Ticket>>,
}

impl WaitId {
    fn attempt(&self, cx: &mut Context) -> Result<bool> {
        let e = &self.e;
        let options = e.file_index;
        let which = WaitFor(e.len);
        let flags = WaitIdOptions::from_bits(options | WNOHANG).ok_or(EINVAL)?;
        let info = (e.off != 0).then_some(Va(e.off));
        // Whether there was anything is told by the info alone: it is looked at without taking it
        // first.
        let peek = WaitIdOptions::WNOWAIT;
        // (Errors are the call's own, which writes the info then.)
        let found = has_change(cx, which, e.fd, flags | peek).unwrap_or(true);
        if !found && options & WNOHANG == 0 {
            return Ok(false);
        }
        do_waitid(cx, which, e.fd, info, flags, None)?;
        Ok(true)
    }
}

impl Operation for WaitId {
    fn issue(&self, cx: &mut Context, r: &Arc<Request>) -> Outcome {
        // First, so that what changes after the look is told.
        if self.e.file_index & WNOHANG == 0 {
            if let Err(e) = r.enlist() {
                return e.into();
            }
            let q = &r.task.group.child_wait;
            let mut t = self.ticket.lock();
            if t.is_none() {
                *t = Some(q.register(r.listener(), Events::IN));
            }
        }
        match self.attempt(cx) {
            Ok(true) => Ok(0).into(),
            Ok(false) => Outcome::Pending,
            Err(e) => e.into(),
        }
    }
    fn leave(&self, r: &Request) {
        let t = self.ticket.lock().take();
        if let Some(t) = t {
            r.task.group.child_wait.unregister(t);
        }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn waitid(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.addr, e.buf_index.into(), e.addr3, e.op_flags.into()])?;
    Ok(Box::new(WaitId {
        e: *e,
        ticket: Mutex::new(None),
    }))
}
