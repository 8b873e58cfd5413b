//! Whether to spin where no CPU is idle: tried, and compared.
//!
//! Tasks that ask often on busy CPUs may be served faster by threads that spin: a call costs less, but its two threads
//! need two CPUs at a time. Which is more differs from program to program (nginx and wrk: half as much again; redis: a
//! third less), and nothing known of a program tells it before. So where all CPUs are busy with tasks that call all the
//! time, both ways are run for some slots of 10 ms each, in the order A B B A, and the better one is kept for a while.
//!
//! ## Invariants
//!
//! - What is compared is what the tasks got done: calls that succeeded, those answered beside the Sentry included, but
//!   not waits that ended with nothing. What an application adds to that, it adds to a count that only guides how its own
//!   sandbox is run.
//! - A trial begins only where each task that wants a CPU calls often: one that computes would pay for the others.
//! - [`Trials::eager`] ends by itself, soon after calls have become few: nobody has to end it.
//! - Of a second, less than a tenth goes to trials, and the less the more often the same came out.
//! - A thread's calls touch nothing that is shared but every [`Pace::MANY`] calls.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How long a slot is in which nothing is tried, in microseconds, as all times here.
const LOOK: u64 = 20_000;
/// How long call sites are given to be found and patched before anything is measured.
const WARM: u64 = 30_000;
/// How long a slot is that counts.
const MEASURE: u64 = 10_000;
/// How many calls of a CPU in a millisecond are often.
const OFTEN: u64 = 30;
/// So much better must eager be, in hundredths.
const BETTER: u64 = 115;
/// For so long what came out holds, at first and at most: where eager was better, and where not.
const HOLD: (u64, u64) = (500_000, 4_000_000);
const WAIT: (u64, u64) = (1_000_000, 16_000_000);
/// A slot that takes so many times as long has few calls in it.
const LATE: u64 = 4;

/// One thread's calls that have not been counted yet.
#[derive(Debug, Default)]
pub struct Pace {
    calls: u32,
    /// The slot that it last was a caller in.
    slot: u32,
}

impl Pace {
    /// So many calls are counted at once.
    pub const MANY: u32 = 64;

    /// A call has been answered. Whether there are enough to be counted by [`super::Spinners::count`].
    pub fn called(&mut self) -> bool {
        self.calls += 1;
        self.calls >= Pace::MANY
    }
}

/// One Sentry's trials.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    /// Until when threads may spin where no CPU is idle; 0 where they may not.
    eager_until: AtomicU64,
    /// The slot: its number, its end, and what was counted in it.
    slot: AtomicU32,
    ends: AtomicU64,
    calls: AtomicU64,
    callers: AtomicU32,
    awake: AtomicU64,
    looks: AtomicU32,
    crowded: AtomicBool,
    turn: Mutex<Turn>,
}

/// What a slot has shown.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now: u64,
    calls: u64,
    /// All CPUs were wanted, by tasks that call often.
    suits: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is tried before `not_before`.
    #[default]
    Look,
    Warm,
    /// The slot of A B B A.
    Measure(u8),
    /// Eager was better.
    Hold,
}

#[derive(Debug, Default)]
struct Turn {
    phase: Phase,
    /// When the slot began, and how long it was to be.
    began: u64,
    len: u64,
    not_before: u64,
    hold_until: u64,
    hold: u64,
    wait: u64,
    /// Calls and time of this trial, eager and not.
    got: [(u64, u64); 2],
    /// What fewer calls in a second end a hold.
    floor: u64,
}

impl Turn {
    fn look(&mut self, not_before: u64) {
        self.phase = Phase::Look;
        self.not_before = not_before;
    }

    /// The slot has ended. Whether the next is eager, and how long it is.
    fn next(&mut self, seen: Seen, often: u64) -> (bool, u64) {
        let took = (seen.now - self.began).max(1);
        let rate = seen.calls * 1_000_000 / took;
        let late = took > LATE * self.len;
        match self.phase {
            _ if late => self.look(seen.now),
            Phase::Look => {
                if seen.suits && rate >= often && seen.now >= self.not_before {
                    self.phase = Phase::Warm;
                }
            }
            Phase::Warm => self.measure(),
            Phase::Measure(i) => {
                let (calls, time) = &mut self.got[usize::from(matches!(i, 1 | 2))];
                *calls += seen.calls;
                *time += took;
                if i < 3 {
                    self.phase = Phase::Measure(i + 1);
                } else {
                    self.decide(seen.now);
                }
            }
            // It no longer is, or another load has begun.
            Phase::Hold if rate < self.floor => {
                self.hold = 0;
                self.look(seen.now + HOLD.0);
            }
            Phase::Hold if seen.now >= self.hold_until => self.measure(),
            Phase::Hold => {}
        }
        self.began = seen.now;
        let (eager, len) = match self.phase {
            Phase::Look => (false, LOOK),
            Phase::Warm => (true, WARM),
            Phase::Measure(i) => (matches!(i, 0 | 3), MEASURE),
            Phase::Hold => (true, LOOK),
        };
        self.len = len;
        (eager, len)
    }

    fn measure(&mut self) {
        self.phase = Phase::Measure(0);
        self.got = Default::default();
    }

    fn decide(&mut self, now: u64) {
        let [eager, modest] = self
            .got
            .map(|(calls, time)| calls * 1_000_000 / time.max(1));
        let longer = |t: u64, (first, most): (u64, u64)| (2 * t).clamp(first, most);
        if eager * 100 > modest * BETTER {
            self.phase = Phase::Hold;
            self.hold = longer(self.hold, HOLD);
            self.wait = 0;
            self.hold_until = now + self.hold;
            self.floor = modest;
        } else {
            self.hold = 0;
            self.wait = longer(self.wait, WAIT);
            self.look(now + self.wait);
        }
    }
}

impl Trials {
    /// Whether threads may spin at `now` although no CPU is idle. The clock is read only if it matters.
    pub(crate) fn eager(&self, now: impl FnOnce() -> u64) -> bool {
        let until = self.eager_until.load(Relaxed);
        until != 0 && now() < until
    }

    /// A thread has made [`Pace::MANY`] calls, and `more` beside. So many tasks are awake, on so many CPUs; whether all
    /// CPUs were wanted a moment ago.
    pub(crate) fn count(
        &self,
        pace: &mut Pace,
        more: u64,
        now: u64,
        (awake, cpus, crowded): (u32, u32, bool),
    ) {
        let calls = u64::from(std::mem::take(&mut pace.calls)) + more;
        self.calls.fetch_add(calls, Relaxed);
        self.awake.fetch_add(u64::from(awake), Relaxed);
        self.looks.fetch_add(1, Relaxed);
        let slot = self.slot.load(Relaxed);
        // The first slot is 0: who has called in none is no caller in it, which only delays.
        if std::mem::replace(&mut pace.slot, slot) != slot {
            self.callers.fetch_add(1, Relaxed);
        }
        if crowded {
            self.crowded.store(true, Relaxed);
        }
        if now < self.ends.load(Relaxed) {
            return;
        }
        // Whoever comes first ends the slot.
        let Some(mut turn) = self.turn.try_lock() else {
            return;
        };
        if now < self.ends.load(Relaxed) {
            return;
        }
        let awake = self.awake.swap(0, Relaxed);
        let looks = u64::from(self.looks.swap(0, Relaxed));
        let callers = u64::from(self.callers.swap(0, Relaxed));
        // Nine tenths: tasks sleep at times, and are seen awake when they count.
        let all_call = callers * looks * 10 >= awake * 9;
        let all_busy = awake * 10 >= looks * u64::from(cpus) * 9;
        let seen = Seen {
            now,
            calls: self.calls.swap(0, Relaxed),
            suits: self.crowded.swap(false, Relaxed) && all_busy && all_call,
        };
        let (eager, len) = turn.next(seen, 1000 * OFTEN * u64::from(cpus));
        self.slot.fetch_add(1, Relaxed);
        self.ends.store(now + len, Relaxed);
        let until = if eager { now + LATE * len } else { 0 };
        self.eager_until.store(until, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFTEN: u64 = 60_000;

    /// Slots until `end`, with so many calls in a second, eager and not; what part of the time was eager.
    fn run(t: &mut Turn, now: &mut u64, end: u64, suits: bool, rates: (u64, u64)) -> f64 {
        let (mut eager_for, begin) = (0, *now);
        let (mut eager, mut len) = (matches!(t.phase, Phase::Hold), LOOK);
        while *now < end {
            *now += len;
            let rate = if eager { rates.0 } else { rates.1 };
            eager_for += if eager { len } else { 0 };
            let calls = rate * len / 1_000_000;
            let seen = Seen {
                now: *now,
                calls,
                suits,
            };
            (eager, len) = t.next(seen, OFTEN);
        }
        eager_for as f64 / (*now - begin) as f64
    }

    fn turn() -> Turn {
        Turn {
            len: LOOK,
            ..Turn::default()
        }
    }

    #[test]
    fn the_better_way_is_kept() {
        let (mut t, mut now) = (turn(), 0);
        let part = run(&mut t, &mut now, 10_000_000, true, (300_000, 200_000));
        assert!(part > 0.9, "{part}");
        // It becomes the worse one: seen at once, since less is done than the other did.
        let part = run(&mut t, &mut now, 20_000_000, true, (150_000, 200_000));
        assert!(part < 0.06, "{part}");
    }

    #[test]
    fn the_worse_way_is_tried_seldom() {
        let (mut t, mut now) = (turn(), 0);
        run(&mut t, &mut now, 10_000_000, true, (200_000, 200_000));
        let part = run(&mut t, &mut now, 60_000_000, true, (200_000, 200_000));
        assert!(part > 0.0 && part < 0.01, "{part}");
        // And found better as late as 16 s after.
        run(&mut t, &mut now, 80_000_000, true, (300_000, 200_000));
        let part = run(&mut t, &mut now, 90_000_000, true, (300_000, 200_000));
        assert!(part > 0.9, "{part}");
    }

    #[test]
    fn nothing_is_tried_where_some_compute_or_calls_are_few() {
        for (suits, rate) in [(false, 900_000), (true, OFTEN / 2)] {
            let (mut t, mut now) = (turn(), 0);
            assert_eq!(run(&mut t, &mut now, 10_000_000, suits, (rate, rate)), 0.0);
        }
    }

    /// It ends with the calls, without anybody who ends it.
    #[test]
    fn eager_ends_by_itself() {
        let t = Trials::default();
        let (mut a, mut b) = (Pace::default(), Pace::default());
        let mut now = 1000;
        let mut tried = false;
        while now < 200_000 {
            for p in [&mut a, &mut b] {
                while !p.called() {}
                t.count(p, 0, now, (2, 2, true));
            }
            tried |= t.eager(|| now);
            now += 200;
        }
        assert!(tried);
        assert!(!t.eager(|| now + LATE * WARM));
        // Who computes beside them is awake, and does not call. One alone leaves a CPU idle.
        for (awake, callers) in [(3, 2), (1, 1)] {
            let t = Trials::default();
            let end = now + 1_000_000;
            while now < end {
                for p in [&mut a, &mut b].into_iter().take(callers) {
                    while !p.called() {}
                    t.count(p, 0, now, (awake, 2, true));
                }
                assert!(!t.eager(|| now));
                now += 200;
            }
        }
    }
}
