//! The kernel's side of the fast paths ([`platform::lanes`]).
//!
//! The life of a system call ([`super::run`]) has one hook before application code runs
//! ([`Lanes::before`]) and one after it, before its event is served ([`Lanes::after`]); between
//! them [`Lanes::run`] runs it, and [`Lanes::called`] hears that a call has been served. On a
//! platform without lanes they do nothing.
//!
//! - [`local`]: what a thread answers itself: ids, names, its mask and alternate stack. What
//!   changes them withdraws the answers then ([`Task::withdraw_local`]).
//! - [`slots`]: reads and counts of sockets that are answered from what was laid ready, and changes
//!   of an epoll that are made later. The calls on sockets and epolls tell what they have done
//!   (`slots::after_*`).
//! - [`deferred`]: wake-ups that are made after the answer.
//!
//! Everything that comes from the application's side is checked here or by the object that takes
//! it; nothing of it is believed of another task.

mod deferred;
pub mod local;
pub mod slots;

use super::run::Context;
use abi::signal::SIGSEGV;
use platform::Event;
use platform::lanes::LocalState;
use platform::lanes::read_slots::Area;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wait::spin::SpinBudget;
use wait::spin::table::DEFERRED;
use wait::wakes::{self, Deferral};

/// What only the task's own thread knows of its lanes.
#[derive(Default)]
pub struct Known {
    /// The read slots of its address space; `None` if that is not known yet.
    read_slots: Option<Option<Arc<Area>>>,
    /// The call could have been answered where it was made, were its site patched.
    site_pays: bool,
}

/// What other tasks change of a task's lanes, too.
#[derive(Default)]
pub struct Shared {
    local: local::Stale,
    deferral: slots::Deferrals,
}

/// The hooks of one task's loop.
pub(super) struct Lanes {
    /// Whether its wake-ups wait for the answer.
    deferral: SpinBudget,
    /// What the last call woke, until it is answered.
    deferred: Option<Deferral>,
    /// When the application was let go on after a call that woke somebody.
    woke: Option<Instant>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes {
            deferral: SpinBudget::new(&DEFERRED),
            deferred: None,
            woke: None,
        }
    }
}

impl Lanes {
    /// Makes the wake-ups that wait: the task does not go on soon.
    pub fn wake(&mut self) {
        self.deferred = None;
    }

    /// Before others may look at the thread as one in application code.
    pub fn before(&mut self, cx: &mut Context) {
        self.woke = wakes::take_woke().then(Instant::now);
        cx.publish();
        let (mask, task) = (cx.task.mask.load(Ordering::Relaxed), &cx.task);
        if let Some(l) = cx.thread.lanes() {
            let stack = cx.altstack;
            l.put(&LocalState { mask, stack }, &|| task.waiting());
        }
    }

    /// Runs application code until the next event; what waits is woken when it runs.
    pub fn run(&mut self, cx: &mut Context) -> Event {
        slots::review(&cx.task);
        let deferred = self.deferred.take();
        let Some(l) = cx.thread.lanes() else {
            drop(deferred);
            return cx.thread.run();
        };
        let event = l.run(deferred);
        let own = l.own();
        cx.task.take_mask(own.mask);
        if own.stack != cx.altstack
            && let Ok(new) = own.stack.checked(&cx.altstack)
        {
            cx.altstack = new;
        }
        event
    }

    /// It has come out, and nobody looks at it as one in application code any more; before the
    /// event is served.
    pub fn after(&mut self, cx: &mut Context, event: &Event) {
        slots::apply_deferred(&cx.task);
        if let Some(t) = self.woke.take() {
            match self.deferral.is_soon(t.elapsed()) {
                true => self.deferral.came_soon(),
                false => self.deferral.forfeit(),
            }
        }
        if let Event::Syscall { nr, args, .. } = event {
            self.call(cx, *nr, args);
        }
    }

    /// Before a system call.
    fn call(&mut self, cx: &mut Context, nr: u64, args: &[u64; 6]) {
        let Some(l) = cx.thread.lanes() else { return };
        let came = l.came();
        if let Some((addr, error)) = came.missed {
            // The next time it is there; if it cannot be, the call says so.
            let info = mm::FaultInfo::from_event(SIGSEGV.number(), addr, error);
            let _ = cx.mm().handle_fault(info);
        }
        if let Some(site) = came.hot_site {
            cx.mm().patch_call(abi::Va(site), nr, args);
        }
        if self.deferral.suffices() && deferred::fits(&cx.files(), nr, args) {
            self.deferred = Some(wakes::defer());
        }
    }

    /// After it, before it is answered.
    pub fn called(&mut self, cx: &mut Context, nr: u64, args: &[u64; 6]) {
        if std::mem::take(&mut cx.lanes.site_pays)
            && let Some(site) = cx.thread.lanes().and_then(|l| l.note_site())
        {
            self.wake();
            cx.mm().patch_call(abi::Va(site), nr, args);
        }
    }
}
