//! Who works, and the service thread that sleeps meanwhile: the steps of these words, apart from
//! what they are made of, so that the model tries all their orders.
//!
//! Leaving and falling asleep are the halves of Dekker's protocol: each stores its own word first,
//! and looks at the other's then. So a leader that leaves tells a service thread that sleeps, or
//! that sees it leave.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

pub(super) const FREE: usize = 0;
pub(super) const SERVICE: usize = 1;
/// Somebody who makes a call, for a moment.
pub(super) const CALLER: usize = 2;

/// Each operation is one step that all threads see in one order.
pub(super) trait Seat {
    fn holder(&self) -> usize;
    /// Whether `from` held it, and `to` does now.
    fn pass(&self, from: usize, to: usize) -> bool;
    /// By the holder, but for the service thread.
    fn put(&self, who: usize);
    /// Whether the service thread sleeps until it is told.
    fn is_dormant(&self) -> bool;
    fn set_dormant(&self, is: Dormant);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dormant {
    Yes,
    No,
}

pub(super) struct Words {
    holder: AtomicUsize,
    is_dormant: AtomicBool,
}

impl Words {
    pub const fn new(holder: usize) -> Words {
        Words {
            holder: AtomicUsize::new(holder),
            is_dormant: AtomicBool::new(false),
        }
    }
}

impl Seat for Words {
    fn holder(&self) -> usize {
        self.holder.load(SeqCst)
    }
    fn pass(&self, from: usize, to: usize) -> bool {
        self.holder
            .compare_exchange(from, to, SeqCst, SeqCst)
            .is_ok()
    }
    fn put(&self, who: usize) {
        self.holder.store(who, SeqCst);
    }
    fn is_dormant(&self) -> bool {
        self.is_dormant.load(SeqCst)
    }
    fn set_dormant(&self, is: Dormant) {
        self.is_dormant.store(is == Dormant::Yes, SeqCst);
    }
}

/// By its holder; whether the service thread is to be told.
pub(super) fn leave(seat: &impl Seat, next: usize) -> bool {
    seat.put(next);
    next == SERVICE || seat.is_dormant()
}

/// By the service thread, which has its lock until it waits. [`sleeps_on`] follows.
pub(super) fn fall_asleep(seat: &impl Seat) {
    seat.set_dormant(Dormant::Yes);
}

/// Whether nobody has told it, and somebody sits there who will.
pub(super) fn sleeps_on(seat: &impl Seat) -> bool {
    seat.is_dormant() && !matches!(seat.holder(), FREE | SERVICE)
}

/// With the service thread's lock.
pub(super) fn wake(seat: &impl Seat) {
    seat.set_dormant(Dormant::No);
}

#[cfg(test)]
mod model {
    use super::*;
    use loom::sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{AcqRel, Acquire, Release, SeqCst},
        fence,
    };
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    struct Model {
        holder: AtomicUsize,
        is_dormant: AtomicBool,
        lock: Mutex<()>,
        left: Condvar,
        /// How many work.
        working: AtomicUsize,
    }

    /// As the compiler makes a SeqCst store (a locked instruction) and a load. (loom takes SeqCst
    /// of other than fences for AcqRel.)
    fn locked<R>(f: impl FnOnce() -> R) -> R {
        fence(SeqCst);
        let r = f();
        fence(SeqCst);
        r
    }

    impl Seat for Model {
        fn holder(&self) -> usize {
            self.holder.load(Acquire)
        }
        fn pass(&self, from: usize, to: usize) -> bool {
            locked(|| {
                self.holder
                    .compare_exchange(from, to, AcqRel, Acquire)
                    .is_ok()
            })
        }
        fn put(&self, who: usize) {
            locked(|| self.holder.store(who, Release));
        }
        fn is_dormant(&self) -> bool {
            self.is_dormant.load(Acquire)
        }
        fn set_dormant(&self, is: Dormant) {
            locked(|| self.is_dormant.store(is == Dormant::Yes, Release));
        }
    }

    impl Model {
        fn new(holder: usize) -> Arc<Model> {
            Arc::new(Model {
                holder: AtomicUsize::new(holder),
                is_dormant: AtomicBool::new(false),
                lock: Mutex::new(()),
                left: Condvar::new(),
                working: AtomicUsize::new(0),
            })
        }
        fn turn(&self, me: usize, next: usize) {
            let next = match me {
                _ if self.pass(FREE, me) => next,
                CALLER if self.pass(SERVICE, me) => SERVICE,
                CALLER => return,
                _ if self.pass(SERVICE, me) => next,
                _ => return,
            };
            assert_eq!(self.working.fetch_add(1, AcqRel), 0);
            self.working.fetch_sub(1, AcqRel);
            if leave(self, next) {
                let _l = self.lock.lock().unwrap();
                wake(self);
                self.left.notify_one();
            }
        }
        /// Sleeps as long as others sit there; then the seat is the service thread's.
        fn serve(&self) {
            while !self.pass(FREE, SERVICE) && self.holder() != SERVICE {
                let mut l = self.lock.lock().unwrap();
                fall_asleep(self);
                while sleeps_on(self) {
                    l = self.left.wait(l).unwrap();
                }
                wake(self);
            }
        }
    }

    /// However leaders come and leave, and callers between them, at the end the service thread
    /// works.
    #[test]
    fn nobody_is_left_without_a_worker() {
        for begin in [FREE, SERVICE] {
            for next in [FREE, SERVICE] {
                let mut b = loom::model::Builder::new();
                b.preemption_bound = Some(3);
                b.check(move || {
                    let m = Model::new(begin);
                    let others: Vec<_> = [(64, next), (CALLER, FREE)]
                        .into_iter()
                        .map(|(who, next)| {
                            let m = m.clone();
                            thread::spawn(move || m.turn(who, next))
                        })
                        .collect();
                    m.serve();
                    for t in others {
                        t.join().unwrap();
                    }
                    m.serve();
                });
            }
        }
    }

    /// One that leads while it falls asleep is followed by another.
    #[test]
    fn who_follows_a_leader_tells() {
        let mut b = loom::model::Builder::new();
        b.preemption_bound = Some(3);
        b.check(|| {
            let m = Model::new(FREE);
            let t = {
                let m = m.clone();
                thread::spawn(move || {
                    m.turn(64, FREE);
                    m.turn(72, FREE);
                })
            };
            m.serve();
            t.join().unwrap();
        });
    }
}
