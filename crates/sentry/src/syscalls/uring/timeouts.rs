//! Timeouts (`io_uring/timeout.c`).

use super::super::args::*;
use super::{Prepared, call};
use crate::task::Context;
use crate::task::uring::links::LinkTimeout;
use crate::task::uring::{Cqe, Done, Operation, Outcome, Request, Ring, Sqe};
use abi::Va;
use abi::errno::*;
use abi::time::Timespec;
use ipc::timer::{Clock, From, Rearm, Setting, Timer};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

bitflags::bitflags! {
    /// `IORING_TIMEOUT_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct TimeoutFlags: u32 {
        const ABS = 1;
        const UPDATE = 2;
        const BOOTTIME = 4;
        const REALTIME = 8;
        const LINK_UPDATE = 16;
        const ETIME_SUCCESS = 32;
        const MULTISHOT = 64;
    }
}

impl TimeoutFlags {
    fn clock(self) -> abi::Result<Clock> {
        use TimeoutFlags as F;
        match self & (F::BOOTTIME | F::REALTIME) {
            F::BOOTTIME => Ok(Clock::Boottime),
            F::REALTIME => Ok(Clock::Realtime),
            f if f.is_empty() => Ok(Clock::Monotonic),
            _ => Err(EINVAL),
        }
    }
    fn from(self) -> From {
        match self.contains(TimeoutFlags::ABS) {
            true => From::Epoch,
            false => From::Now,
        }
    }
}

/// Nanoseconds of a time that lies at `va`; at least one, as timers count.
fn time(cx: &Context, va: u64) -> abi::Result<i64> {
    let t: Timespec = UserIn::<Timespec>::new(Va(va)).read(&cx.mm())?;
    if t.sec < 0 || t.nsec < 0 {
        return Err(EINVAL);
    }
    Ok(t.sec
        .saturating_mul(1_000_000_000)
        .saturating_add(t.nsec)
        .max(1))
}

/// `IORING_OP_TIMEOUT`: ends after a time, or so many completions.
struct Timeout {
    value: i64,
    flags: TimeoutFlags,
    clock: Clock,
    /// Completions, or how often it is told.
    count: u32,
    left: AtomicU64,
    timer: Mutex<Option<Timer>>,
    /// Where it is among those that count completions.
    due: Mutex<Option<i64>>,
}

pub(super) fn timeout(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    use TimeoutFlags as F;
    if e.buf_index != 0 || e.len != 1 || e.file_index != 0 {
        return Err(EINVAL);
    }
    let flags = F::from_bits(e.op_flags).ok_or(EINVAL)?;
    if flags.intersects(F::UPDATE | F::LINK_UPDATE) {
        return Err(EINVAL);
    }
    // Told again and again at one moment it would be.
    if flags.contains(F::MULTISHOT | F::ABS) {
        return Err(EINVAL);
    }
    let clock = flags.clock()?;
    Ok(Box::new(Timeout {
        value: time(cx, e.addr)?,
        flags,
        clock,
        count: e.off as u32,
        left: AtomicU64::new(e.off as u32 as u64),
        timer: Mutex::new(None),
        due: Mutex::new(None),
    }))
}

impl Timeout {
    fn end(&self) -> Done {
        let success = self.flags.contains(TimeoutFlags::ETIME_SUCCESS);
        Done {
            failed: !success,
            ..Done::error(ETIME)
        }
    }
    fn expired(&self, r: &Arc<Request>) -> Rearm {
        if !self.flags.contains(TimeoutFlags::MULTISHOT) {
            r.finish(self.end());
            return Rearm::Later;
        }
        let last = self.count != 0 && self.left.fetch_sub(1, Ordering::SeqCst) <= 1;
        let c = Cqe {
            user_data: r.sqe.user_data,
            res: -ETIME.raw(),
            ..Cqe::default()
        };
        if last || !r.ring.complete_more(c) {
            r.finish(self.end());
            return Rearm::Later;
        }
        Rearm::Now
    }
    fn set(&self, value: i64, from: From) -> bool {
        let multi = self.flags.contains(TimeoutFlags::MULTISHOT);
        let interval = if multi { value } else { 0 };
        match &*self.timer.lock() {
            Some(t) => {
                t.set(Setting { value, interval }, from);
                true
            }
            None => false,
        }
    }
}

impl Operation for Timeout {
    fn issue(&self, cx: &mut Context, r: &Arc<Request>) -> Outcome {
        if let Err(e) = r.enlist() {
            return e.into();
        }
        let me = Arc::downgrade(r);
        let t = Timer::new(&cx.kernel.timers, self.clock, move |_| {
            let r = me.upgrade();
            let op = r.as_ref().and_then(|r| Some((r, r.op::<Timeout>()?)));
            op.map_or(Rearm::Later, |(r, op)| op.expired(r))
        });
        *self.timer.lock() = Some(t);
        let counts = self.count != 0 && !self.flags.contains(TimeoutFlags::MULTISHOT);
        if counts {
            *self.due.lock() = Some(r.ring.count_for(r, self.count));
        }
        self.set(self.value, self.flags.from());
        if counts {
            r.ring.end_counted();
        }
        if r.is_done() {
            // It ended before all of it was there.
            self.leave(r);
        }
        Outcome::Pending
    }
    fn leave(&self, r: &Request) {
        let t = self.timer.lock().take();
        drop(t);
        if let Some(due) = self.due.lock().take() {
            r.ring.uncount(due, r);
        }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// `IORING_OP_LINK_TIMEOUT`.
pub(super) fn link_timeout(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    use TimeoutFlags as F;
    if e.buf_index != 0 || e.len != 1 || e.file_index != 0 || e.off != 0 {
        return Err(EINVAL);
    }
    let flags = F::from_bits(e.op_flags).ok_or(EINVAL)?;
    if flags.intersects(F::UPDATE | F::LINK_UPDATE | F::MULTISHOT) {
        return Err(EINVAL);
    }
    let value = time(cx, e.addr)?;
    Ok(Box::new(LinkTimeout::new(
        value,
        flags.from(),
        flags.clock()?,
    )))
}

/// `IORING_OP_TIMEOUT_REMOVE`: ends a timeout, or sets it anew.
pub(super) fn remove(cx: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    use TimeoutFlags as F;
    if e.buf_index != 0 || e.len != 0 || e.file_index != 0 {
        return Err(EINVAL);
    }
    let flags = F::from_bits_retain(e.op_flags);
    let name = e.addr;
    if !flags.intersects(F::UPDATE | F::LINK_UPDATE) {
        if !flags.is_empty() {
            return Err(EINVAL);
        }
        return call(move |_, r| {
            let found = r.ring.find_named(name, |x| x.op::<Timeout>().is_some());
            found.ok_or(ENOENT)?.cancel_after(r).map(|()| 0)
        });
    }
    let known = F::UPDATE | F::LINK_UPDATE | F::ABS | F::BOOTTIME | F::REALTIME;
    if !known.contains(flags) {
        return Err(EINVAL);
    }
    flags.clock()?;
    let value = time(cx, e.off)?;
    call(move |_, r| {
        if flags.contains(F::LINK_UPDATE) {
            let found = r.ring.find_named(name, |x| x.op::<LinkTimeout>().is_some());
            let op = found.as_ref().and_then(|x| x.op::<LinkTimeout>());
            return match op.is_some_and(|op| op.update(value, flags.from())) {
                true => Ok(0),
                false => Err(ENOENT),
            };
        }
        let found = r.ring.find_named(name, |x| x.op::<Timeout>().is_some());
        let op = found.as_ref().and_then(|x| x.op::<Timeout>());
        match op.is_some_and(|op| op.set(value, flags.from())) {
            true => Ok(0),
            false => Err(ENOENT),
        }
    })
}
