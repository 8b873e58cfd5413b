//! Wake-ups that are made when the waker holds no lock any more (as Linux's `wake_q`).
//!
//! A thread that is woken often runs at once, in its waker's place; and the first that it does is
//! to take the lock under which it was woken: its queue's, to leave it. If its waker still holds
//! that, it was woken in vain: two switches and a `sched_yield`, of all that a hand-over by a pipe
//! costs on one CPU a tenth. So whoever wakes under a lock [`defer`]s its wake-ups first, then
//! takes the lock, and lets go in the opposite order.
//!
//! ## Invariants
//!
//! - Only the host's part of a wake-up waits. That the sleeper is woken is said at once
//!   ([`crate::Parker`]'s state, and the count of awake tasks): who looks, or spins, or comes to
//!   its deadline, finds it.
//! - A wake-up waits no longer than the outermost [`Deferral`] of its thread lives, and no thread
//!   sleeps in a [`crate::Parker`] before it has made those that it defers.
//! - As long as one lives its thread waits for nothing else that may need the one to be woken: it
//!   takes locks, but nobody sleeps in a parker with a lock held that it takes.
//! - They are made in the order in which they came.
//! - Nobody else's wake-up of the same sleeper waits for them: each waker that finds it woken makes
//!   that, too, since it may be late, and what must end or stop a task waits for none
//!   ([`crate::Parker::unpark_now`]).

use crate::lead::Lead;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::Thread;

/// Whom a wake-up is for, and how.
#[derive(Clone)]
pub(crate) enum Sleeper {
    Thread(Thread),
    /// It sleeps for work that it does itself.
    Leader(Arc<Lead>),
}

impl Sleeper {
    pub(crate) fn unpark(&self) {
        match self {
            Sleeper::Thread(t) => t.unpark(),
            Sleeper::Leader(l) => l.ring(),
        }
    }
}

/// The wake-ups of one thread, with how many ask that they wait. `T`: whom it is to wake.
pub(crate) struct Deferred<T> {
    /// How many [`Deferral`]s there are.
    deferrals: Cell<usize>,
    /// Empty where there is no [`Deferral`].
    waiting: RefCell<Vec<T>>,
}

impl<T> Deferred<T> {
    pub(crate) const fn new() -> Deferred<T> {
        Deferred {
            deferrals: Cell::new(0),
            waiting: RefCell::new(Vec::new()),
        }
    }
    pub(crate) fn defer(&self) {
        self.deferrals.set(self.deferrals.get() + 1);
    }
    /// One deferral less; makes those that wait if it was the last.
    pub(crate) fn end_deferral(&self, unpark: impl Fn(T)) {
        self.deferrals.set(self.deferrals.get() - 1);
        if self.deferrals.get() == 0 {
            self.make(unpark);
        }
    }
    /// A wake-up: given back where it is to be made at once.
    pub(crate) fn wake(&self, t: T) -> Option<T> {
        if self.deferrals.get() == 0 {
            return Some(t);
        }
        self.waiting.borrow_mut().push(t);
        None
    }
    /// Makes all that wait, in the order in which they came.
    pub(crate) fn make(&self, unpark: impl Fn(T)) {
        self.waiting.borrow_mut().drain(..).for_each(unpark);
    }
}

thread_local! {
    /// A host thread's, not a task's: a [`Deferral`] lives on a thread's stack, and no task leaves
    /// its thread, nor sleeps, while one does. (What a task defers from call to call, its own loop
    /// keeps.)
    static OWN: Deferred<Sleeper> = const { Deferred::new() };
    /// It has woken somebody since [`take_woke`]. The thread's, since that asks about its call just
    /// made.
    static WOKE: Cell<bool> = const { Cell::new(false) };
}

/// As long as it lives, its thread's wake-ups wait.
#[must_use]
#[derive(Debug)]
pub struct Deferral(PhantomData<*const ()>);

/// This thread's wake-ups wait until what is returned is dropped. To be called before a lock is
/// taken, so that it is dropped after that.
pub fn defer() -> Deferral {
    OWN.with(Deferred::defer);
    Deferral(PhantomData)
}

impl Drop for Deferral {
    fn drop(&mut self) {
        OWN.with(|o| o.end_deferral(|t| t.unpark()));
    }
}

/// Whether this thread's wake-ups wait.
#[must_use]
pub fn is_deferring() -> bool {
    OWN.with(|o| o.deferrals.get() != 0)
}

/// Whether this thread has woken a sleeper since it asked last.
#[must_use]
pub fn take_woke() -> bool {
    WOKE.take()
}

/// Wakes a thread, or does so later. `slept`: nobody had before.
pub(crate) fn wake(t: Sleeper, slept: bool) {
    if slept {
        WOKE.set(true);
    }
    if let Some(t) = OWN.with(|o| o.wake(t)) {
        t.unpark();
    }
}

/// Makes all wake-ups that wait, and has those wait for nothing that `f` makes: it takes long.
pub fn without_deferral<R>(f: impl FnOnce() -> R) -> R {
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            OWN.with(|o| o.deferrals.set(self.0));
        }
    }
    let _back = Back(OWN.with(|o| o.deferrals.replace(0)));
    make();
    f()
}

/// Makes all wake-ups that wait.
pub(crate) fn make() {
    OWN.with(|o| o.make(|t| t.unpark()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parker;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    /// A thread that sleeps in the parker; it says when it has been woken.
    fn sleeper(p: &Arc<Parker>) -> (std::thread::JoinHandle<()>, Arc<AtomicBool>) {
        let (p, ran) = (p.clone(), Arc::new(AtomicBool::new(false)));
        let says = ran.clone();
        let t = std::thread::spawn(move || {
            p.park(None);
            says.store(true, SeqCst);
        });
        (t, ran)
    }

    /// Who is woken under a deferral runs when the last of them is gone, and not before.
    #[test]
    fn the_last_deferral_wakes() {
        let p = Arc::new(Parker::new());
        let (t, ran) = sleeper(&p);
        while !p.is_asleep() {
            std::thread::yield_now();
        }
        let outer = defer();
        let inner = defer();
        assert!(!take_woke());
        p.unpark();
        assert!(take_woke() && !take_woke());
        drop(inner);
        std::thread::sleep(Duration::from_millis(30));
        assert!(!ran.load(SeqCst));
        drop(outer);
        t.join().unwrap();
    }

    /// What takes long waits for no deferral.
    #[test]
    fn a_deferral_is_put_aside() {
        let parkers: [Arc<Parker>; 2] = std::array::from_fn(|_| Arc::new(Parker::new()));
        let [a, b] = parkers.each_ref().map(sleeper);
        while !parkers.iter().all(|p| p.is_asleep()) {
            std::thread::yield_now();
        }
        let outer = defer();
        parkers[0].unpark();
        without_deferral(|| {
            a.0.join().unwrap();
            parkers[1].unpark();
            b.0.join().unwrap();
        });
        assert!(is_deferring());
        drop(outer);
        assert!(!is_deferring());
    }

    /// Two that wait for each other, each with a deferral all the time: whoever sleeps wakes the
    /// other first.
    #[test]
    fn who_sleeps_wakes_first() {
        let parkers: [Arc<Parker>; 2] = std::array::from_fn(|_| Arc::new(Parker::new()));
        let turn = Arc::new(Mutex::new(0usize));
        let threads: Vec<_> = (0..2)
            .map(|me| {
                let (p, turn) = (parkers.clone(), turn.clone());
                std::thread::spawn(move || {
                    let _all_the_time = defer();
                    for _ in 0..500 {
                        while *turn.lock() % 2 != me {
                            p[me].park(None);
                        }
                        *turn.lock() += 1;
                        p[1 - me].unpark();
                    }
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
        assert_eq!(*turn.lock(), 1000);
    }

    /// A deadline that comes while the wake-up waits finds it: woken, not late.
    #[test]
    fn what_waits_is_said() {
        let p = Arc::new(Parker::new());
        let own = p.clone();
        let until = Instant::now() + Duration::from_secs(2);
        let t = std::thread::spawn(move || own.park(Some(until)));
        while !p.is_asleep() && Instant::now() < until {
            std::thread::yield_now();
        }
        let deferral = defer();
        p.unpark();
        assert!(!p.is_asleep());
        assert!(t.join().unwrap());
        drop(deferral);
    }

    /// One that defers its wake-ups keeps neither another waker's from the sleeper, nor an end.
    #[test]
    fn nobody_waits_for_anothers_deferral() {
        for now in [false, true] {
            let p = Arc::new(Parker::new());
            let own = p.clone();
            let t = std::thread::spawn(move || own.park(None));
            while !p.is_asleep() {
                std::thread::yield_now();
            }
            let deferral = defer();
            p.unpark();
            std::thread::sleep(Duration::from_millis(20));
            assert!(!t.is_finished());
            let other = p.clone();
            let wakes = move || match now {
                true => other.unpark_now(),
                false => other.unpark(),
            };
            std::thread::spawn(wakes).join().unwrap();
            assert!(t.join().unwrap());
            drop(deferral);
        }
    }
}
