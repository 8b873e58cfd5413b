//! What holds requests together: links, their timeouts, and drains.

use super::Ring;
use super::cancel::COUNTED;
use super::request::{Behind, Done, Operation, Outcome, Request};
use crate::task::Context;
use abi::Errno;
use abi::errno::{ECANCELED, ENOENT, ETIME};
use ipc::timer::{Clock, From, Rearm, Setting, Timer};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// What waits until all before it have ended.
#[derive(Default)]
pub(super) struct Drain {
    /// Requests that were submitted and have not ended, but for those here.
    active: u32,
    /// Heads of chains, with their lengths.
    waiting: VecDeque<(Arc<Request>, u32, Order)>,
    /// Somebody looks who may begin.
    releasing: bool,
}

/// How a chain stands to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// It waits for none of them but those that wait.
    Any,
    /// It waits for all of them (`IOSQE_IO_DRAIN`).
    Drain,
}

impl Drain {
    pub(super) fn take(&mut self, f: impl Fn(&Request) -> bool) -> Vec<Arc<Request>> {
        let all = std::mem::take(&mut self.waiting);
        let (out, keep): (Vec<_>, Vec<_>) = all.into_iter().partition(|(r, ..)| f(r));
        self.waiting = keep.into();
        // They end as those that are active.
        self.active += out.iter().map(|(_, n, _)| n).sum::<u32>();
        out.into_iter().map(|(r, ..)| r).collect()
    }
}

impl Ring {
    /// Whether a chain of so many may begin; else it waits for its turn (`io_drain_req`).
    pub fn may_begin(&self, head: &Arc<Request>, n: u32, order: Order) -> bool {
        let mut d = self.drain.lock();
        let waits = !d.waiting.is_empty() || order == Order::Drain && d.active > 0;
        if waits && head.charge().is_ok() {
            d.waiting.push_back((head.clone(), n, order));
            return false;
        }
        d.active += n;
        true
    }
    /// A chain of so many begins, to end at once.
    pub fn begins(&self, n: u32) {
        self.drain.lock().active += n;
    }

    /// One has ended: others may begin. What ends by that is seen by who is at it already: there
    /// may be many, one behind the other.
    pub(super) fn ended_one(&self) {
        let mut d = self.drain.lock();
        d.active = d.active.saturating_sub(1);
        if d.releasing {
            return;
        }
        d.releasing = true;
        while let Some((r, n, order)) = d.waiting.pop_front() {
            if d.active > 0 && order == Order::Drain {
                d.waiting.push_front((r, n, order));
                break;
            }
            d.active += n;
            // (It may be the last that holds it: its end takes locks, this one, too.)
            parking_lot::MutexGuard::unlocked(&mut d, move || {
                if !r.wake() {
                    r.end_unissued();
                }
                drop(r);
            });
        }
        d.releasing = false;
    }
}

/// What is behind a request that has ended: gives it where it is to be cancelled, else it begins.
pub(super) fn behind(r: &Request, then: Behind) -> Option<Arc<Request>> {
    let mut next = r.with_next(Option::take)?;
    if then == Behind::Cancelled {
        return Some(next);
    }
    if next.op::<LinkTimeout>().is_some() {
        let after = next.with_next(Option::take);
        next.finish(quietly(ECANCELED));
        next = after?;
    }
    (!next.wake()).then_some(next)
}

/// `IORING_OP_LINK_TIMEOUT`: ends the request before it.
pub struct LinkTimeout {
    pub setting: Mutex<(Setting, From)>,
    pub clock: Clock,
    of: Mutex<Weak<Request>>,
    timer: Mutex<Option<Timer>>,
}

impl LinkTimeout {
    #[must_use]
    pub fn new(value: i64, from: From, clock: Clock) -> LinkTimeout {
        let setting = Setting { value, interval: 0 };
        LinkTimeout {
            setting: Mutex::new((setting, from)),
            clock,
            of: Mutex::default(),
            timer: Mutex::new(None),
        }
    }
    /// Sets it anew; whether it was running.
    pub fn update(&self, value: i64, from: From) -> bool {
        let setting = Setting { value, interval: 0 };
        match &*self.timer.lock() {
            Some(t) => {
                t.set(setting, from);
                true
            }
            None => false,
        }
    }
}

impl Operation for LinkTimeout {
    /// It is never tried: the request before it begins it.
    fn issue(&self, _: &mut Context, _: &Arc<Request>) -> Outcome {
        Outcome::Done(Done::error(ECANCELED))
    }
    fn leave(&self, _: &Request) {
        let timer = self.timer.lock().take();
        drop(timer);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A request waits: the timeout that is linked behind it begins, if it has not.
pub(super) fn begin_timeout(cx: &Context, r: &Arc<Request>) {
    let next = r.with_next(|n| n.clone());
    let Some(t) = next else { return };
    let Some(op) = t.op::<LinkTimeout>() else {
        return;
    };
    let mut timer = op.timer.lock();
    if timer.is_some() || t.is_done() {
        return;
    }
    *op.of.lock() = Arc::downgrade(r);
    let me = Arc::downgrade(&t);
    let new = Timer::new(&cx.kernel.timers, op.clock, move |_| {
        if let Some(t) = me.upgrade() {
            fire(&t);
        }
        Rearm::Later
    });
    let (setting, from) = *op.setting.lock();
    new.set(setting, from);
    *timer = Some(new);
    drop(timer);
    if t.enlist().is_err() {
        let _ = r.cancel();
    }
}

/// The time is over (`io_req_task_link_timeout`).
fn fire(t: &Arc<Request>) {
    let Some(op) = t.op::<LinkTimeout>() else {
        return;
    };
    let of = op.of.lock().upgrade();
    let Some(r) = of else {
        t.finish(Done::error(ENOENT));
        return;
    };
    // It is linked there no more, unless the request has ended and it with it.
    let mine = r.with_next(|n| match n {
        Some(x) if Arc::ptr_eq(x, t) => {
            *n = t.with_next(Option::take);
            true
        }
        _ => false,
    });
    if mine {
        t.finish(match r.cancel() {
            // (As a cancellation tells it.)
            Ok(()) if COUNTED.contains(&r.sqe.opcode) => Done::plain(1),
            Ok(()) => quietly(ETIME),
            Err(e) => quietly(e),
        });
    }
}

/// A link's timeout that ends as it is to is no failure: who wants no completions has none.
fn quietly(e: Errno) -> Done {
    Done {
        failed: false,
        ..Done::error(e)
    }
}
