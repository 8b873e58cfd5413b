//! A sleeper that does the work for which it would be woken.
//!
//! Work comes from outside: frames by a network device. A service thread does it, and wakes the
//! tasks that wait for what it brings. Where it wakes the same task again and again, that task's
//! thread does the work itself while it is parked, as *leader*: one wake-up less for each answer,
//! and what came is still in its processor's cache.
//!
//! # Who does it
//!
//! ```text
//!            a task parks                   it is woken
//!   SERVICE ──────────────► the leader ──────────────────► FREE
//!    ▲  ▲                       │ woke another, or           │
//!    │  │                       │ has no time left           │
//!    │  └───────────────────────┘                            │ a tick without a leader
//!    └───────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - One thread works at a time: `holder` names it. (The service thread may be at the end of its
//!   turn when a leader begins; [`Work`] has a lock of its own.)
//! - A task leads only within [`crate::Parker::park`], and leaves before that returns: what its
//!   program does afterwards, and for how long, keeps nobody's work from being done. The work
//!   waits for no memory of a program, and takes no lock that a sleeper may hold. So a leader is
//!   held up by nothing but the host's scheduler, which programs' nice values, affinities and
//!   control groups do not reach.
//! - Whatever ends a task's sleep ends its turn: its end, a stop, a freezer, a tracer, another
//!   thread's execve and each signal come by [`crate::Parker::unpark_now`], which rings
//!   ([`Work::ring`]). A ring that nobody needs any more only ends a later sleep early. A flood of
//!   work puts off neither that nor a deadline: both are looked at after each piece.
//! - The service thread looks each [`TICK`] where the seat is FREE. It sleeps longer only where
//!   work wakes it, or while somebody sits there who tells it ([`seat`]; a model has all orders).
//! - So work waits for a tick at most, and only where it came after a leader left: who asks before
//!   that finds it done ([`Lead::catch_up`]).
//! - FREE is only where one task may lead; a task may lead only if the last wake-ups by the work
//!   were all its own. Another's ends that at once: those that wait beside it are not left waiting
//!   for a tick each time.
//! - How many these are is [`ENOUGH`] at first, and doubles with each turn that another's wake-up
//!   soon ended. So a program that has itself woken on purpose makes a neighbour's work wait for a
//!   tick only once in many of its own wake-ups.

mod seat;

use crate::{Parker, wakes};
use parking_lot::{Condvar, Mutex};
use seat::{CALLER, FREE, SERVICE, Seat, Words};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

/// How many wake-ups in a row make a leader; at first, and at most.
const ENOUGH: u32 = 16;
const ENOUGH_MOST: u32 = 4096;
/// So many times as many wake-ups make a turn that was worth it.
const WORTH: u32 = 8;
/// How often the service thread looks whether somebody leads.
const TICK: Duration = Duration::from_micros(500);
/// After so many ticks without a new leader the service thread sleeps until the one that there is
/// leaves.
const QUIET: u32 = 40;

/// The most pieces of work of a call.
const PIECES: usize = 64;
/// Before it is tried again, where that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of an attempt to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worked {
    /// There was nothing to do.
    Nothing,
    /// There may be more.
    Something,
    /// It cannot be done now.
    Failed,
}

/// Work that comes from outside.
pub trait Work: Send + Sync {
    /// Does a little of what is to be done, if anything is. Does not wait for more.
    fn work(&self) -> Worked;
    /// Sleeps until there is something to do, or it is rung, or the time is over. The service
    /// thread sleeps without limit, and is not rung.
    fn sleep(&self, most: Option<Duration>, by: Role);
    /// Ends the leader's sleep, or the next one if there is none.
    fn ring(&self);
}

/// How much a call that is not woken by the work wants it done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    Quickly,
    Surely,
}

/// Whose sleep it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Service,
    Leader,
}

/// See the module.
pub struct Lead {
    work: Box<dyn Work>,
    /// [`FREE`], [`SERVICE`], [`CALLER`], or the leader's parker by its address.
    seat: Words,
    /// How often a leader began.
    turns: AtomicU32,
    /// Whom the work woke last, by its parker's address, how often in a row, and how often is
    /// enough. They only guide; who works writes them.
    woke: AtomicUsize,
    streak: AtomicU32,
    enough: AtomicU32,
    /// The service thread waits for a leader to leave.
    service: Mutex<()>,
    left: Condvar,
}

thread_local! {
    /// The work that this thread is at.
    static AT: RefCell<Option<Arc<Lead>>> = const { RefCell::new(None) };
}

/// This thread wakes `p`: the work that it is at takes note of it.
pub(crate) fn note(p: &Parker) {
    AT.with(|at| {
        if let Ok(at) = at.try_borrow()
            && let Some(lead) = &*at
        {
            lead.woke(p);
        }
    });
}

fn address(p: &Parker) -> usize {
    std::ptr::from_ref(p).addr()
}

impl Lead {
    #[must_use]
    pub fn new(work: Box<dyn Work>) -> Arc<Lead> {
        Arc::new(Lead {
            work,
            seat: Words::new(SERVICE),
            turns: AtomicU32::new(0),
            woke: AtomicUsize::new(0),
            streak: AtomicU32::new(0),
            enough: AtomicU32::new(ENOUGH),
            service: Mutex::new(()),
            left: Condvar::new(),
        })
    }

    /// Works for ever where no leader does: the service thread's.
    pub fn serve(self: &Arc<Self>) -> ! {
        let (mut seen, mut quiet) = (0, 0);
        loop {
            let turns = self.turns.load(SeqCst);
            let is_recent = std::mem::replace(&mut seen, turns) != turns;
            quiet = if is_recent { 0 } else { quiet + 1 };
            let was_free = self.seat.pass(FREE, SERVICE);
            if !was_free && self.seat.holder() != SERVICE {
                self.wait_for_leave(quiet >= QUIET);
                continue;
            }
            match self.work_on() {
                // Somebody leads.
                Worked::Something => {}
                Worked::Failed => std::thread::sleep(PAUSE),
                // A leader that has just left will soon be back.
                Worked::Nothing if was_free && is_recent && self.has_one() => {
                    if self.seat.pass(SERVICE, FREE) {
                        self.wait_for_leave(false);
                    }
                }
                Worked::Nothing => self.work.sleep(None, Role::Service),
            }
        }
    }

    /// As long as there is something, and nobody leads.
    fn work_on(self: &Arc<Self>) -> Worked {
        loop {
            let worked = self.work_once();
            if worked != Worked::Something || self.seat.holder() != SERVICE {
                return worked;
            }
        }
    }

    /// What has come before a call is made counts for it: works where nobody leads just now; with
    /// [`Ask::Surely`] where the service thread is to, too, but may not have come to it. Whether
    /// there was anything. The caller holds no lock that the work takes.
    pub fn catch_up(self: &Arc<Self>, ask: Ask) -> bool {
        let passes = |from| self.seat.holder() == from && self.seat.pass(from, CALLER);
        let was_free = passes(FREE);
        let most = match ask {
            Ask::Quickly if was_free => 1,
            Ask::Surely if was_free || passes(SERVICE) => PIECES,
            _ => return false,
        };
        let mut turn = Turn {
            lead: self,
            hands_over: true,
        };
        // Others are woken now, not when the call is answered.
        let done = wakes::without_deferral(|| {
            let pieces = (0..most).map(|_| self.work_once());
            pieces.take_while(|w| *w == Worked::Something).count()
        });
        turn.hands_over = !(was_free && self.has_one());
        done != 0
    }

    /// For a tick; or until it is told, however long that is.
    fn wait_for_leave(&self, is_quiet: bool) {
        let mut l = self.service.lock();
        if !is_quiet {
            // One that has handed over before that notified nobody.
            if self.seat.holder() != SERVICE {
                self.left.wait_for(&mut l, TICK);
            }
            return;
        }
        seat::fall_asleep(&self.seat);
        while seat::sleeps_on(&self.seat) {
            self.left.wait(&mut l);
        }
        seat::wake(&self.seat);
    }

    fn tell_service(&self) {
        let _l = self.service.lock();
        seat::wake(&self.seat);
        self.left.notify_one();
    }

    /// Works, and takes note of who is woken by it.
    pub(crate) fn work_once(self: &Arc<Self>) -> Worked {
        AT.with(|at| *at.borrow_mut() = Some(self.clone()));
        let worked = self.work.work();
        AT.with(|at| *at.borrow_mut() = None);
        worked
    }

    fn woke(self: &Arc<Self>, p: &Parker) {
        let it = address(p);
        let enough = self.enough.load(Relaxed);
        if self.woke.load(Relaxed) != it {
            self.woke.store(it, Relaxed);
            let n = self.streak.swap(1, Relaxed);
            let worth = enough.saturating_mul(WORTH);
            if n >= worth {
                self.enough.store((enough / 2).max(ENOUGH), Relaxed);
            } else if n >= enough {
                self.enough.store((enough * 2).min(ENOUGH_MOST), Relaxed);
            }
            return;
        }
        let n = self.streak.load(Relaxed).saturating_add(1);
        self.streak.store(n, Relaxed);
        // (Again and again: another may be where one was that has ended.)
        if n >= enough && n.is_multiple_of(ENOUGH) {
            p.may_lead(self);
        }
    }

    /// Whether there is one that the work wakes.
    fn has_one(&self) -> bool {
        self.streak.load(Relaxed) >= self.enough.load(Relaxed)
    }

    /// Whether this is the one that the work wakes.
    pub(crate) fn is_for(&self, p: &Parker) -> bool {
        self.woke.load(Relaxed) == address(p) && self.has_one()
    }

    /// The parker's thread leads from now on, if nobody else does.
    pub(crate) fn take(&self, p: &Parker) -> Option<Turn<'_>> {
        let me = address(p);
        if !self.is_for(p) || !(self.seat.pass(FREE, me) || self.seat.pass(SERVICE, me)) {
            return None;
        }
        self.turns.fetch_add(1, SeqCst);
        Some(Turn {
            lead: self,
            hands_over: true,
        })
    }

    /// The one that the work wakes sleeps without working: the service thread is to be at it when
    /// something comes, not a tick later.
    pub(crate) fn let_serve(&self, p: &Parker) {
        if self.is_for(p) && self.seat.pass(FREE, SERVICE) {
            self.tell_service();
        }
    }

    pub(crate) fn sleep(&self, most: Option<Duration>) {
        self.work.sleep(most, Role::Leader);
    }

    pub(crate) fn ring(&self) {
        self.work.ring();
    }
}

/// A leader's turn, which ends when this is dropped.
pub(crate) struct Turn<'a> {
    lead: &'a Lead,
    /// Somebody else is to go on at once.
    hands_over: bool,
}

impl Turn<'_> {
    /// The leader has what it waited for, and is soon back; unless the work has woken others, too.
    pub fn leave(mut self, p: &Parker) {
        self.hands_over = !self.lead.is_for(p);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = if self.hands_over { SERVICE } else { FREE };
        if seat::leave(&self.lead.seat, next) {
            self.lead.tell_service();
        }
    }
}

#[cfg(test)]
mod tests;
