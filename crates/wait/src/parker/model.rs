//! Parkers and deferred wake-ups in all orders of their steps that an x86 CPU may show.

use super::steps::{ASLEEP, IDLE, SleeperState, WOKEN, Word, sleep, take, wake};
use crate::wakes::Deferred;
use loom::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
    fence,
};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A locked instruction: no load or store of its thread passes it. (loom takes SeqCst of other than
/// fences for AcqRel.)
fn locked<R>(f: impl FnOnce() -> R) -> R {
    fence(SeqCst);
    let r = f();
    fence(SeqCst);
    r
}

impl Word for AtomicU32 {
    fn get(&self) -> u32 {
        self.load(Acquire)
    }
    fn exchange(&self, value: u32) -> u32 {
        locked(|| self.swap(value, AcqRel))
    }
    fn replace(&self, from: u32, to: u32) -> bool {
        locked(|| self.compare_exchange(from, to, AcqRel, Acquire).is_ok())
    }
}

/// A thread as std::thread::park knows it: a token that an unpark leaves. (loom's own threads also
/// wait for others by it, and take one wake-up for the other.)
#[derive(Clone)]
struct Thread(Arc<(Mutex<bool>, Condvar)>);

impl Thread {
    fn new() -> Thread {
        Thread(Arc::new((Mutex::new(false), Condvar::new())))
    }
    fn park(&self) {
        let mut token = self.0.0.lock().unwrap();
        while !std::mem::take(&mut *token) {
            token = self.0.1.wait(token).unwrap();
        }
    }
    fn unpark(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }
}

/// [`crate::Parker`] without spinning.
struct Sleeper {
    state: AtomicU32,
    me: Thread,
    thread: Mutex<Option<Thread>>,
}

type Wakes = Deferred<Thread>;

impl Sleeper {
    fn new() -> Arc<Sleeper> {
        Arc::new(Sleeper {
            state: AtomicU32::new(IDLE),
            me: Thread::new(),
            thread: Mutex::new(None),
        })
    }
    fn park(&self, own: &Wakes) {
        if take(&self.state, WOKEN) {
            return;
        }
        own.make(|t| t.unpark());
        *self.thread.lock().unwrap() = Some(self.me.clone());
        self.state.replace(IDLE, ASLEEP);
        sleep(&self.state, || {
            self.me.park();
            false
        });
    }
    fn unpark(&self, own: &Wakes) {
        if wake(&self.state) != SleeperState::Awake {
            let t = self.thread.lock().unwrap().clone();
            if let Some(t) = t.and_then(|t| own.wake(t)) {
                t.unpark();
            }
        }
    }
}

fn in_all_orders(f: impl Fn() + Sync + Send + 'static) {
    let mut b = loom::model::Builder::new();
    b.preemption_bound = Some(3);
    b.check(f);
}

/// Who looks, then sleeps, is woken by who changes, then wakes: also twice, and by two.
#[test]
fn no_wake_up_is_lost() {
    for wakers in [1, 2] {
        in_all_orders(move || {
            let (p, done) = (Sleeper::new(), Arc::new(AtomicU32::new(0)));
            let all: Vec<_> = (0..wakers)
                .map(|_| {
                    let (p, done) = (p.clone(), done.clone());
                    thread::spawn(move || {
                        let own = Wakes::new();
                        done.fetch_add(1, SeqCst);
                        p.unpark(&own);
                    })
                })
                .collect();
            let own = Wakes::new();
            while done.load(SeqCst) != wakers {
                p.park(&own);
            }
            for t in all {
                t.join().unwrap();
            }
        });
    }
}

/// A deadline that comes beside the wake-up: it is the one or the other, and no second wake-up
/// stays behind.
#[test]
fn a_deadline_or_a_wake_up() {
    in_all_orders(|| {
        let p = Sleeper::new();
        p.state.replace(IDLE, ASLEEP);
        let waker = {
            let p = p.clone();
            thread::spawn(move || wake(&p.state))
        };
        let woken = sleep(&p.state, || true);
        let found = waker.join().unwrap();
        let left = p.state.get();
        match woken {
            true => assert_eq!((found, left), (SleeperState::Asleep, IDLE)),
            // Whoever moves the state away from ASLEEP counts the sleeper, and the other does not.
            false => assert_eq!((found, left), (SleeperState::Awake, WOKEN)),
        }
    });
}

/// A waker that defers its wake-up may be late: another that comes makes it, though it finds the
/// sleeper woken.
#[test]
fn nobody_waits_for_anothers_deferral() {
    in_all_orders(|| {
        let p = Sleeper::new();
        let (late, end) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let first = {
            let (p, late, end) = (p.clone(), late.clone(), end.clone());
            thread::spawn(move || {
                let own = Wakes::new();
                own.defer();
                p.unpark(&own);
                late.store(true, SeqCst);
                // It lets go only when the sleeper has gone on.
                while !end.load(Acquire) {
                    thread::yield_now();
                }
                own.end_deferral(|t| t.unpark());
            })
        };
        let second = {
            let (p, late) = (p.clone(), late.clone());
            thread::spawn(move || {
                let own = Wakes::new();
                while !late.load(Acquire) {
                    thread::yield_now();
                }
                p.unpark(&own);
            })
        };
        let own = Wakes::new();
        while !late.load(Acquire) {
            p.park(&own);
        }
        end.store(true, SeqCst);
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// Two that defer their wake-ups all the time, and wait for each other: who sleeps makes its own
/// first.
#[test]
fn who_sleeps_wakes_first() {
    in_all_orders(|| {
        let (mine, other) = (Sleeper::new(), Sleeper::new());
        let turn = Arc::new(AtomicU32::new(0));
        let t = {
            let (mine, other, turn) = (mine.clone(), other.clone(), turn.clone());
            thread::spawn(move || {
                let own = Wakes::new();
                own.defer();
                while turn.load(SeqCst) != 1 {
                    other.park(&own);
                }
                turn.store(2, SeqCst);
                mine.unpark(&own);
                own.end_deferral(|t| t.unpark());
            })
        };
        let own = Wakes::new();
        own.defer();
        turn.store(1, SeqCst);
        other.unpark(&own);
        while turn.load(Relaxed) != 2 {
            mine.park(&own);
        }
        own.end_deferral(|t| t.unpark());
        t.join().unwrap();
    });
}
