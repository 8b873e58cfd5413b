//! Work of tasks: requests to be tried by those that submitted them (Linux's task work).
//!
//! Who is told that a request may go on puts it into its task's list and kicks the task, as for a
//! signal; a task that sleeps in another call comes out of it, does its work at the boundary and
//! goes on with the call. Of a ring with `COOP_TASKRUN` the application is not interrupted; with
//! `DEFER_TASKRUN` the work waits in the ring until its task asks for completions.

use super::abi::{SQ_TASKRUN, Setup};
use super::request::Request;
use super::{By, Ring};
use crate::task::{Context, Task};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::File;
use wait::Events;
use wait::later::{self, Later};

/// Registered rings of a task (`IO_RINGFD_REG_MAX`).
pub const RING_FDS: usize = 16;

/// A request, or a ring, as a task holds it: a task's type is part of theirs, and the compiler
/// would go round and round to see that threads may share them.
pub trait Held<T>: Send + Sync {
    fn held(self: Arc<Self>) -> Arc<T>;
}

impl Held<Request> for Request {
    fn held(self: Arc<Self>) -> Arc<Request> {
        self
    }
}

impl Held<Ring> for Ring {
    fn held(self: Arc<Self>) -> Arc<Ring> {
        self
    }
}

/// What a task has to do with rings.
#[derive(Default)]
pub struct TaskSide {
    /// Whether there is work.
    due: AtomicBool,
    work: Mutex<VecDeque<Arc<dyn Held<Request>>>>,
    /// No work is taken any more: the task ends, or becomes another program.
    closed: AtomicBool,
    /// How often it became another program: requests of an earlier one are not its any more,
    /// whoever holds them just then. Changed while it is closed.
    program: AtomicU64,
    /// The rings that it has submitted to. Own.
    rings: Mutex<Vec<Weak<dyn Held<Ring>>>>,
    /// `IORING_REGISTER_RING_FDS`. Own.
    registered: Mutex<Vec<Option<Arc<File>>>>,
    /// It is a ring's thread. Set when it is made.
    thread: AtomicBool,
    /// What tells it from all other tasks; 0 before it was asked.
    identity: AtomicU64,
}

impl TaskSide {
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.due.load(Ordering::SeqCst)
    }
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
    /// Which program it is: for what it submits.
    #[must_use]
    pub fn program(&self) -> u64 {
        self.program.load(Ordering::SeqCst)
    }
    /// Whether it still tries what it submitted as this program.
    #[must_use]
    pub fn tries(&self, program: u64) -> bool {
        self.program() == program && !self.is_closed()
    }
    /// Whether it is a ring's thread, which runs no application.
    #[must_use]
    pub fn is_thread(&self) -> bool {
        self.thread.load(Ordering::Relaxed)
    }
    pub fn become_thread(&self) {
        self.thread.store(true, Ordering::Relaxed);
    }
    /// A number that no other task has had.
    pub fn identity(&self, _: &Task) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let known = self.identity.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let new = NEXT.fetch_add(1, Ordering::Relaxed);
        self.identity.store(new, Ordering::Relaxed);
        new
    }
    /// It submits to this ring.
    pub fn uses(&self, ring: &Arc<Ring>) {
        let mut all = self.rings.lock();
        let same = |w: &Weak<dyn Held<Ring>>| std::ptr::addr_eq(w.as_ptr(), Arc::as_ptr(ring));
        if !all.iter().any(same) {
            all.retain(|w| w.strong_count() > 0);
            let ring: Arc<dyn Held<Ring>> = ring.clone();
            all.push(Arc::downgrade(&ring));
        }
    }
    /// Changes its registered rings.
    pub fn with_registered<R>(&self, f: impl FnOnce(&mut Vec<Option<Arc<File>>>) -> R) -> R {
        f(&mut self.registered.lock())
    }
    /// The file of a registered ring.
    #[must_use]
    pub fn registered(&self, at: usize) -> Option<Arc<File>> {
        self.registered.lock().get(at)?.clone()
    }
}

/// Makes a request work; false where its task takes none any more. May run under any lock.
pub(super) fn push(r: &Arc<Request>) -> bool {
    let task = &r.task;
    let ring = &r.ring;
    if ring.has(Setup::TASKRUN_FLAG) {
        ring.shared.raise(SQ_TASKRUN);
    }
    if r.is_deferred() {
        let mut local = ring.local.lock();
        // Who closes it looks at what is there afterwards.
        if ring.is_dead() || !r.is_current() {
            return false;
        }
        local.push_back(r.clone());
        drop(local);
        task.parker.unpark();
        // Who watches the ring is told when nobody holds a lock.
        let tells = match super::told::is_by(ring) {
            // The eventfd has just told of what made this work.
            true => Tells::Watchers,
            false => Tells::EventFdToo,
        };
        later::put(Arc::new(LocalWork(Arc::downgrade(ring), tells)));
        return true;
    }
    let mut work = task.uring.work.lock();
    if !r.is_current() {
        return false;
    }
    work.push_back(r.clone());
    drop(work);
    task.uring.due.store(true, Ordering::SeqCst);
    if ring.has(Setup::COOP_TASKRUN) {
        task.attention.store(true, Ordering::SeqCst);
    } else {
        task.stop_app();
    }
    task.parker.unpark();
    true
}

/// Tells who watches a ring that there is work for its task.
struct LocalWork(Weak<Ring>, Tells);

/// Whom it tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tells {
    Watchers,
    EventFdToo,
}

impl Later for LocalWork {
    fn run(&self) {
        if let Some(r) = self.0.upgrade() {
            r.queue.notify(Events::READABLE);
            if self.1 == Tells::EventFdToo {
                r.tell_eventfd(By::Task);
            }
        }
    }
    fn elsewhere(self: Arc<Self>) {
        let _ = later::by_service(self);
    }
}

/// Does the task's work that there is now.
pub fn run(cx: &mut Context) {
    if !cx.task.uring.due.swap(false, Ordering::SeqCst) {
        return;
    }
    let task = cx.task.clone();
    let list = std::mem::take(&mut *task.uring.work.lock());
    run_all(cx, list.into_iter().map(Held::held));
}

/// Does the work that a ring's task left for when it asks for completions.
pub fn run_local(cx: &mut Context, ring: &Ring) -> bool {
    if !ring.has(Setup::DEFER_TASKRUN) {
        return false;
    }
    if ring.has(Setup::TASKRUN_FLAG) {
        ring.shared.clear(SQ_TASKRUN);
    }
    let list = std::mem::take(&mut *ring.local.lock());
    let some = !list.is_empty();
    run_all(cx, list.into_iter());
    some
}

/// In the order in which they were submitted: a queue tells those that wait in any.
fn run_all(cx: &mut Context, list: impl Iterator<Item = Arc<Request>>) {
    let mut list: Vec<_> = list.collect();
    list.sort_by_key(|r| r.number);
    for r in list {
        if r.ring.has(Setup::TASKRUN_FLAG) && !r.is_deferred() {
            r.ring.shared.clear(SQ_TASKRUN);
        }
        r.queued.store(false, Ordering::SeqCst);
        if cx.is_killed() || !r.is_current() {
            r.end_unissued();
        } else {
            r.run(cx);
        }
    }
}

impl Ring {
    /// Whether its task has left work here.
    #[must_use]
    pub fn has_local_work(&self) -> bool {
        self.has(Setup::DEFER_TASKRUN) && !self.local.lock().is_empty()
    }
}

/// Why a task leaves its rings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// It ends: what waits goes on to wait, and is cancelled when it is told that it could go on;
    /// but for what waits for rings, which would keep itself (`REQ_F_INFLIGHT`), and at its memory.
    AtExit,
    /// It becomes another program.
    AtExec,
}

impl Task {
    /// It ends, or becomes another program: it takes no work any more.
    pub fn leave_uring(&self, why: Leaves) {
        let side = &self.uring;
        side.closed.store(true, Ordering::SeqCst);
        side.program.fetch_add(1, Ordering::SeqCst);
        let rings = std::mem::take(&mut *side.rings.lock());
        let registered = std::mem::take(&mut *side.registered.lock());
        loop {
            for ring in rings.iter().filter_map(Weak::upgrade) {
                let mine = |r: &Request| {
                    let is_mine = std::ptr::eq(&*r.task, self);
                    is_mine && (why == Leaves::AtExec || r.keeps_a_ring() || r.waits_at_memory())
                };
                ring.held().cancel_all(mine);
            }
            let list = std::mem::take(&mut *side.work.lock());
            if list.is_empty() {
                break;
            }
            for r in list {
                r.held().end_unissued();
            }
        }
        side.due.store(false, Ordering::SeqCst);
        drop(registered);
    }
    /// It is another program now, and may submit.
    pub fn begin_uring(&self) {
        self.uring.closed.store(false, Ordering::SeqCst);
    }
}
