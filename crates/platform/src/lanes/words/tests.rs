//! Each protocol, in all orders of its steps that an x86 CPU may show. The application's half is
//! written as the instructions of `stub` are: a plain load or store, or a locked operation, which
//! is a fence besides.

use super::mailbox::AfterAnswer;
use super::{Word, mailbox, signals, slot};
use loom::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Release, SeqCst},
    fence,
};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use stub::lane::{ANSWERED, ASKED, PARKED, SPINS};
use stub::read_slots::{CLOSED, LEN_SHIFT, LIVE, TAKEN_SHIFT};

/// A locked instruction: no load or store of its thread passes it. (loom takes SeqCst of other than
/// fences for AcqRel.)
fn locked<R>(f: impl FnOnce() -> R) -> R {
    fence(SeqCst);
    let r = f();
    fence(SeqCst);
    r
}

macro_rules! loom_words {
    ($($atomic:ty, $of:ty;)*) => {$(
        impl Word<$of> for $atomic {
            fn get(&self) -> $of {
                self.load(Acquire)
            }
            fn set(&self, value: $of) {
                locked(|| self.swap(value, AcqRel));
            }
            fn exchange(&self, value: $of) -> $of {
                locked(|| self.swap(value, AcqRel))
            }
            fn and(&self, bits: $of) -> $of {
                locked(|| self.fetch_and(bits, AcqRel))
            }
            fn or(&self, bits: $of) -> $of {
                locked(|| self.fetch_or(bits, AcqRel))
            }
            fn change(&self, to: impl Fn($of) -> $of) -> $of {
                locked(|| self.fetch_update(AcqRel, Acquire, |v| Some(to(v))).unwrap())
            }
        }
    )*};
}
loom_words! {
    AtomicU32, u32;
    AtomicU64, u64;
}

fn cmpxchg(word: &AtomicU64, from: u64, to: u64) -> bool {
    locked(|| word.compare_exchange(from, to, AcqRel, Acquire).is_ok())
}

/// All orders in which no more than three times another thread goes on that did not have to.
fn in_all_orders(f: impl Fn() + Sync + Send + 'static) {
    let mut b = loom::model::Builder::new();
    b.preemption_bound = Some(3);
    b.check(f);
}

/// What a thread comes to the Sentry with by a system call.
#[derive(Clone, Copy, PartialEq)]
enum Came {
    Call(u64),
    Parked,
    Ends,
}

/// A thread's mailbox, and the listener of its system calls.
#[derive(Default)]
struct Lane {
    state: AtomicU32,
    argument: AtomicU64,
    result: AtomicU64,
    /// What has come, and the answer.
    call: Mutex<(Option<Came>, Option<u64>)>,
    came: Condvar,
    answered: Condvar,
}

impl Lane {
    /// A system call of the application's thread.
    fn syscall(&self, what: Came) -> u64 {
        let mut c = self.call.lock().unwrap();
        c.0 = Some(what);
        self.came.notify_one();
        loop {
            if let Some(r) = c.1.take() {
                return r;
            }
            c = self.answered.wait(c).unwrap();
        }
    }
    fn receive(&self) -> Came {
        let mut c = self.call.lock().unwrap();
        loop {
            if let Some(w) = c.0.take() {
                return w;
            }
            c = self.came.wait(c).unwrap();
        }
    }
    fn send(&self, answer: u64) {
        self.call.lock().unwrap().1 = Some(answer);
        self.answered.notify_one();
    }

    /// `cloister_lane_mailbox`, with a patience of one look.
    fn call(&self, argument: u64) -> u64 {
        let answered = || self.state.load(Acquire) & ANSWERED != 0;
        if self.state.load(Acquire) == SPINS {
            self.argument.store(argument, Release);
            let asks = || {
                let to = SPINS | ASKED;
                self.state.compare_exchange(SPINS, to, AcqRel, Acquire)
            };
            if locked(asks).is_ok() {
                let mut there = answered();
                while !there {
                    locked(|| self.state.fetch_or(PARKED, AcqRel));
                    if answered() {
                        break;
                    }
                    self.syscall(Came::Parked);
                    there = answered();
                }
                locked(|| self.state.fetch_and(SPINS, AcqRel));
                return self.result.load(Acquire);
            }
        }
        locked(|| self.state.fetch_and(!SPINS, AcqRel));
        self.syscall(Came::Call(argument))
    }

    /// The Sentry's thread: answers each call with twice its argument, and spins after those in
    /// `spins_after`.
    fn serve(&self, spins_after: u32) {
        let mut spins = false;
        for n in 0.. {
            let again = spins_after >> n & 1 != 0;
            // One look, or none, before it gives up.
            let mail = std::mem::take(&mut spins)
                && (self.state.get() & ASKED != 0 || mailbox::give_up(&self.state));
            if mail {
                self.result.store(2 * self.argument.load(Acquire), Release);
                let then = match again {
                    true => AfterAnswer::Spins,
                    false => AfterAnswer::Stops,
                };
                spins = !mailbox::answer(&self.state, then) && again;
                continue;
            }
            match self.receive_call() {
                Came::Call(a) => {
                    if again {
                        mailbox::begin(&self.state);
                        spins = true;
                    }
                    self.send(2 * a);
                }
                _ => return self.send(0),
            }
        }
    }
    fn receive_call(&self) -> Came {
        loop {
            match self.receive() {
                // It looks again.
                Came::Parked => self.send(0),
                other => return other,
            }
        }
    }
}

fn calls_are_answered(calls: u64, spins_after: u32) {
    in_all_orders(move || {
        let lane = Arc::new(Lane::default());
        mailbox::reset(&lane.state);
        let sentry = {
            let lane = lane.clone();
            thread::spawn(move || lane.serve(spins_after))
        };
        for n in 1..=calls {
            assert_eq!(lane.call(n), 2 * n);
        }
        lane.syscall(Came::Ends);
        sentry.join().unwrap();
    });
}

#[test]
fn each_call_is_answered_once() {
    for (calls, spins_after) in [(2, 0), (2, 1), (3, 0b11)] {
        calls_are_answered(calls, spins_after);
    }
}

const SIGNAL: u64 = 1 << 9;

/// A thread that may take a signal of its process.
#[derive(Default)]
struct Thread {
    /// Its mask as the Sentry knows it: while it is not in application code, the one that counts.
    own: AtomicU64,
    in_app: AtomicBool,
    mask: AtomicU64,
    pending: AtomicU64,
    queued: AtomicU64,
    kicked: AtomicBool,
}

impl Thread {
    /// As `sentry::task::redistribute` does.
    fn send(&self) {
        self.queued.or(SIGNAL);
        if !self.take() {
            signals::note(&self.pending, SIGNAL);
            self.take();
        }
    }
    fn take(&self) -> bool {
        let mask = match self.in_app.load(Acquire) {
            true => self.mask.get(),
            false => self.own.get(),
        };
        let takes = mask & SIGNAL == 0;
        if takes {
            locked(|| self.kicked.swap(true, AcqRel));
        }
        takes
    }
    /// Goes into application code, which unblocks the signal: `cloister_lane_mask_given`. Whether
    /// it comes out by itself.
    fn run(&self) -> bool {
        signals::enter(&self.mask, &self.pending, SIGNAL, || self.queued.get());
        locked(|| self.in_app.swap(true, AcqRel));
        locked(|| self.mask.swap(0, AcqRel));
        self.pending.load(Acquire) & SIGNAL != 0
    }
}

#[test]
fn no_signal_waits_unseen() {
    for noted_before in [0, SIGNAL] {
        loom::model(move || {
            let t = Arc::new(Thread::default());
            t.own.set(SIGNAL);
            t.pending.set(noted_before);
            let sender = {
                let t = t.clone();
                thread::spawn(move || t.send())
            };
            let comes_out = t.run();
            sender.join().unwrap();
            assert!(comes_out || t.kicked.load(Acquire));
        });
    }
}

const TWO_BYTES: u64 = LIVE | 2 << LEN_SHIFT;

/// A read of one byte beside the Sentry: `find_slot`, `count_left` and the claim.
fn claim(word: &AtomicU64) -> bool {
    let w = word.load(Acquire);
    if w & (LIVE | CLOSED) != LIVE || w >> TAKEN_SHIFT & 3 == 2 {
        return false;
    }
    cmpxchg(word, w, w + (1 << TAKEN_SHIFT))
}

/// What was taken of a slot, and nothing else, is told to the one that revokes it.
#[test]
fn what_was_claimed_is_told_once() {
    loom::model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let app = {
            let word = word.clone();
            thread::spawn(move || u64::from(claim(&word)) + u64::from(claim(&word)))
        };
        assert!(slot::fill(&*word, TWO_BYTES, || false));
        let told = slot::revoke(&*word);
        assert_eq!(app.join().unwrap(), told);
    });
}

/// Once all slots were ended nothing is claimed, though one is being filled meanwhile.
#[test]
fn the_end_of_all_is_final() {
    loom::model(|| {
        let ended = Arc::new(AtomicBool::new(false));
        // Whose the slot is, and its word.
        let slot = Arc::new((AtomicU32::new(0), AtomicU64::new(0)));
        let maker = {
            let (ended, slot) = (ended.clone(), slot.clone());
            thread::spawn(move || {
                slot.0.exchange(1);
                let has_ended = || ended.load(Acquire);
                slot::fill(&slot.1, TWO_BYTES, has_ended);
            })
        };
        locked(|| ended.swap(true, AcqRel));
        if slot.0.get() != 0 {
            slot::close(&slot.1);
        }
        assert!(!claim(&slot.1));
        maker.join().unwrap();
        assert!(!claim(&slot.1));
    });
}
