//! Whether to spin where no CPU is idle: tried, and compared.
//!
//! Tasks that ask often on busy CPUs may be served faster by threads that spin: a call costs less,
//! but its two threads need two CPUs at a time. Which is more differs from program to program
//! (nginx and wrk: half as much again; redis: a third less), and nothing known of a program tells
//! it before. So where all CPUs are busy with tasks that call all the time, both ways are run for
//! 20 ms each, in the order A B A ([`super::table::COMPARE_PARTS`]), and the better one is kept for
//! a while.
//!
//! The comparison is no budget of its own: while it has found spinning better,
//! [`super::Spinners::enter`] lets some more threads begin than CPUs are idle, and each still
//! spends its own [`super::SpinBudget`].
//!
//! ## Invariants
//!
//! - What is compared is what the tasks got done: calls that achieved something, those answered
//!   beside the Sentry included. What an application adds to that, it adds to a count that only
//!   guides how its own sandbox is run.
//! - A comparison begins, and what it showed is kept, only where every task that was awake in a
//!   slot called often in it: one that computes would pay for the others. [`SeenAwake`] tells a
//!   slot's tasks apart: it began with some awake, others woke.
//! - What was measured just after a change is not counted: affinities and call sites are still
//!   being changed.
//! - A comparison that is not finished counts as lost, and so does what a task that computes ends
//!   before it was compared again: a load with pauses does not begin it again and again. After the
//!   n-th lost one in a row nothing is tried for 2^(n-1) s, up to 16 s; what is found better is
//!   held for at least six times as long as the next comparison takes.
//! - [`Comparisons::oversubscribed`] ends by itself, soon after calls have become few: nobody has
//!   to end it.
//! - A thread's calls touch nothing that is shared but every [`super::table::CALLS_AT_ONCE`] calls.

use super::table::{
    CALLS_AT_ONCE, COMPARE_AGAIN, COMPARE_BETTER, COMPARE_CALLS_PER_MS, COMPARE_HOLDS,
    COMPARE_LATE, COMPARE_PARTS, COMPARE_SLOT, COMPARE_UNSUITED,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// All times here are in microseconds.
const fn us(t: Duration) -> u64 {
    t.as_micros() as u64
}

/// One thread's calls that have not been counted yet.
#[derive(Debug, Default)]
pub struct CallCount {
    calls: u32,
    /// The slot that it last was a caller in.
    slot: u32,
}

impl CallCount {
    /// A call has been answered that achieved something. Whether there are enough to be counted by
    /// [`super::Spinners::count_calls`].
    pub fn called(&mut self) -> bool {
        self.calls += 1;
        self.calls >= CALLS_AT_ONCE
    }

    pub(crate) fn take(&mut self) -> u32 {
        std::mem::take(&mut self.calls)
    }
}

/// The last slot that a task was seen awake in.
#[derive(Debug, Default)]
pub struct SeenAwake(AtomicU32);

impl SeenAwake {
    /// One of a task that was not seen yet.
    #[must_use]
    pub const fn new() -> SeenAwake {
        SeenAwake(AtomicU32::new(0))
    }
}

/// One Sentry's comparisons.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    /// Until when threads may spin where no CPU is idle; 0 where they may not.
    spins_until: AtomicU64,
    /// The slot: its number, its end, and what was counted in it.
    slot: AtomicU32,
    ends: AtomicU64,
    calls: AtomicU64,
    callers: AtomicU32,
    /// Tasks that were awake when the slot began, and those that woke first in it.
    tasks: AtomicU32,
    crowded: AtomicBool,
    turn: Mutex<Turn>,
}

/// What a slot has shown.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now: u64,
    calls: u64,
    /// All CPUs were wanted, and every task that was awake called often.
    suits: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is tried before `not_before`.
    #[default]
    Look,
    /// Of [`COMPARE_PARTS`].
    Part(usize),
    /// Spinning was better.
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
    /// Calls and time of this comparison, spinning and not.
    got: [(u64, u64); 2],
    /// What fewer calls in a second end a hold.
    floor: u64,
    unsuited: u32,
}

impl Turn {
    /// The slot has ended. Whether threads spin in the next, and how long it is.
    fn next(&mut self, seen: Seen, often: u64) -> (bool, u64) {
        let took = (seen.now - self.began).max(1);
        let rate = seen.calls * 1_000_000 / took;
        let late = took > COMPARE_LATE * self.len;
        match self.phase {
            Phase::Look => {
                if !late && seen.suits && rate >= often && seen.now >= self.not_before {
                    self.compare(0);
                }
            }
            Phase::Part(_) if late => self.lose(seen.now),
            Phase::Part(i) => {
                let part = COMPARE_PARTS[i];
                if part.counts {
                    let (calls, time) = &mut self.got[usize::from(!part.spins)];
                    *calls += seen.calls;
                    *time += took;
                }
                if i + 1 < COMPARE_PARTS.len() {
                    self.phase = Phase::Part(i + 1);
                } else {
                    self.decide(seen.now);
                }
            }
            Phase::Hold => self.keep(seen, rate, late),
        }
        self.began = seen.now;
        let (spins, len) = match self.phase {
            Phase::Look => (false, us(COMPARE_SLOT)),
            Phase::Part(i) => (COMPARE_PARTS[i].spins, us(COMPARE_PARTS[i].lasts)),
            Phase::Hold => (true, us(COMPARE_SLOT)),
        };
        self.len = len;
        (spins, len)
    }

    fn compare(&mut self, from: usize) {
        self.phase = Phase::Part(from);
        self.got = Default::default();
    }

    fn look(&mut self, not_before: u64) {
        self.phase = Phase::Look;
        self.not_before = not_before;
    }

    fn lose(&mut self, now: u64) {
        self.hold = 0;
        self.wait = (2 * self.wait).clamp(us(COMPARE_AGAIN[0]), us(COMPARE_AGAIN[1]));
        self.look(now + self.wait);
    }

    fn decide(&mut self, now: u64) {
        let [with, without] = self
            .got
            .map(|(calls, time)| calls * 1_000_000 / time.max(1));
        if with * 100 <= without * COMPARE_BETTER {
            return self.lose(now);
        }
        self.phase = Phase::Hold;
        // It is not the first in a row.
        if self.hold > 0 {
            self.wait = 0;
        }
        self.hold = (2 * self.hold).clamp(us(COMPARE_HOLDS[0]), us(COMPARE_HOLDS[1]));
        self.unsuited = 0;
        self.hold_until = now + self.hold;
        self.floor = without;
    }

    /// A slot of a hold. A late one says nothing: there was little to do.
    fn keep(&mut self, seen: Seen, rate: u64, late: bool) {
        self.unsuited = if seen.suits || late {
            0
        } else {
            self.unsuited + 1
        };
        if self.unsuited == COMPARE_UNSUITED && self.hold == us(COMPARE_HOLDS[0]) {
            self.lose(seen.now);
        } else if self.unsuited == COMPARE_UNSUITED || !late && rate < self.floor {
            // It no longer is better, or another load has begun.
            self.hold = 0;
            self.look(seen.now + us(COMPARE_HOLDS[0]));
        } else if seen.now >= self.hold_until {
            self.compare(1);
        }
    }
}

impl Comparisons {
    /// Whether threads may spin at `now` although no CPU is idle. The clock is read only if it
    /// matters.
    pub(crate) fn oversubscribed(&self, now: impl FnOnce() -> u64) -> bool {
        let until = self.spins_until.load(Relaxed);
        until != 0 && now() < until
    }

    /// A task begins, or has been woken.
    pub(crate) fn wakes(&self, task: &SeenAwake) {
        let slot = self.slot.load(Relaxed);
        if task.0.load(Relaxed) != slot {
            task.0.store(slot, Relaxed);
            self.tasks.fetch_add(1, Relaxed);
        }
    }

    /// A task goes to sleep: if it did not wake in this slot, the slot began with it.
    pub(crate) fn sleeps(&self, task: &SeenAwake) {
        let slot = self.slot.load(Relaxed);
        if task.0.load(Relaxed) != slot {
            task.0.store(slot, Relaxed);
        }
    }

    /// A thread has made [`super::table::CALLS_AT_ONCE`] calls, and `more` beside. So many tasks
    /// are awake, on so many CPUs; whether all CPUs were wanted a moment ago, by this sandbox
    /// alone.
    pub(crate) fn count(
        &self,
        of: &mut CallCount,
        more: u64,
        now: u64,
        (awake, cpus, crowded): (u32, u32, bool),
    ) {
        let calls = u64::from(of.take()) + more;
        self.calls.fetch_add(calls, Relaxed);
        let slot = self.slot.load(Relaxed);
        // The first slot is 0: who has called in none is no caller in it, which only delays.
        if std::mem::replace(&mut of.slot, slot) != slot {
            self.callers.fetch_add(1, Relaxed);
        }
        if crowded && !self.crowded.load(Relaxed) {
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
        // Who wakes between these is counted in one slot or in both: that only guides.
        self.slot.fetch_add(1, Relaxed);
        let tasks = self.tasks.swap(awake, Relaxed);
        let callers = self.callers.swap(0, Relaxed);
        let seen = Seen {
            now,
            calls: self.calls.swap(0, Relaxed),
            suits: self.crowded.swap(false, Relaxed) && tasks >= cpus && tasks <= callers,
        };
        let (spins, len) = turn.next(seen, 1000 * COMPARE_CALLS_PER_MS * u64::from(cpus));
        self.ends.store(now + len, Relaxed);
        let until = if spins { now + COMPARE_LATE * len } else { 0 };
        self.spins_until.store(until, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFTEN: u64 = 60_000;

    struct Load {
        turn: Turn,
        now: u64,
        /// Calls in a second, spinning and not.
        rates: (u64, u64),
        suits: bool,
        /// Busy and idle for so long, by turns.
        bursts: (u64, u64),
    }

    impl Load {
        fn new(rates: (u64, u64)) -> Load {
            let turn = Turn {
                len: us(COMPARE_SLOT),
                ..Turn::default()
            };
            Load {
                turn,
                now: 0,
                rates,
                suits: true,
                bursts: (u64::MAX, 0),
            }
        }

        /// Goes on until `end`; what part of the busy time was spun in.
        fn run(&mut self, end: u64) -> f64 {
            const STEP: u64 = 500;
            let (mut spun_for, mut busy_for, mut calls) = (0, 0, 0);
            let (mut spins, mut len) = (false, us(COMPARE_SLOT));
            let mut until = 0;
            while self.now < end {
                self.now += STEP;
                let (on, off) = self.bursts;
                if off != 0 && self.now % (on + off) >= on {
                    continue;
                }
                busy_for += STEP;
                let spins_now = spins && self.now < until;
                spun_for += if spins_now { STEP } else { 0 };
                let rate = if spins_now {
                    self.rates.0
                } else {
                    self.rates.1
                };
                calls += rate * STEP / 1_000_000;
                if self.now >= self.turn.began + len {
                    let seen = Seen {
                        now: self.now,
                        calls: std::mem::take(&mut calls),
                        suits: self.suits,
                    };
                    (spins, len) = self.turn.next(seen, OFTEN);
                    until = self.now + COMPARE_LATE * len;
                }
            }
            spun_for as f64 / busy_for as f64
        }
    }

    #[test]
    fn the_better_way_is_kept() {
        let mut l = Load::new((300_000, 200_000));
        let part = l.run(10_000_000);
        assert!(part > 0.9, "{part}");
        // It becomes the worse one: seen at once, since less is done than the other did.
        l.rates.0 = 150_000;
        let part = l.run(20_000_000);
        assert!(part < 0.06, "{part}");
        // Somebody computes.
        let mut l = Load::new((300_000, 200_000));
        l.run(10_000_000);
        l.suits = false;
        assert!(l.run(20_000_000) < 0.02);
    }

    #[test]
    fn the_worse_way_is_tried_seldom() {
        let mut l = Load::new((200_000, 200_000));
        l.run(10_000_000);
        let part = l.run(60_000_000);
        assert!(part > 0.0 && part < 0.01, "{part}");
        // And found better as late as 16 s after.
        l.rates.0 = 300_000;
        l.run(80_000_000);
        let part = l.run(90_000_000);
        assert!(part > 0.9, "{part}");
    }

    /// Pauses neither begin comparisons anew nor end what is held.
    #[test]
    fn loads_with_pauses() {
        for ms in [
            (60, 50),
            (100, 81),
            (100, 100),
            (200, 300),
            (500, 500),
            (30, 200),
        ] {
            let mut l = Load::new((120_000, 200_000));
            l.bursts = (ms.0 * 1000, ms.1 * 1000);
            let part = l.run(60_000_000);
            assert!(part < 0.04, "{ms:?}: {part}");
        }
        let mut l = Load::new((300_000, 200_000));
        l.bursts = (300_000, 100_000);
        l.run(30_000_000);
        let part = l.run(60_000_000);
        assert!(part > 0.5, "{part}");
    }

    #[test]
    fn nothing_is_tried_where_some_compute_or_calls_are_few() {
        for (suits, rate) in [(false, 900_000), (true, OFTEN / 2)] {
            let mut l = Load::new((rate, rate));
            l.suits = suits;
            assert_eq!(l.run(10_000_000), 0.0);
        }
    }

    /// One task calls, the other sleeps; `others` are awake all the time. Whether it was ever
    /// tried.
    fn in_turns(t: &Comparisons, others: u32, now: &mut u64, end: u64) -> bool {
        let mut counts = [CallCount::default(), CallCount::default()];
        let tasks = [SeenAwake::default(), SeenAwake::default()];
        let mut tried = false;
        t.wakes(&tasks[0]);
        while *now < end {
            for (i, p) in counts.iter_mut().enumerate() {
                while !p.called() {}
                t.count(p, 0, *now, (1 + others, 2, true));
                t.wakes(&tasks[1 - i]);
                t.sleeps(&tasks[i]);
            }
            tried |= t.oversubscribed(|| *now);
            *now += 200;
        }
        tried
    }

    #[test]
    fn who_computes_prevents_it() {
        let mut now = 1000;
        assert!(in_turns(&Comparisons::default(), 0, &mut now, 1_000_000));
        for others in [1, 2, 50] {
            let end = now + 2_000_000;
            let t = Comparisons::default();
            t.tasks.store(others, Relaxed);
            assert!(!in_turns(&t, others, &mut now, end), "{others}");
        }
    }

    /// It ends with the calls, without anybody who ends it.
    #[test]
    fn it_ends_by_itself() {
        let (t, mut now) = (Comparisons::default(), 1000);
        loop {
            let end = now + 10_000;
            if in_turns(&t, 0, &mut now, end) {
                break;
            }
        }
        assert!(t.oversubscribed(|| now));
        assert!(!t.oversubscribed(|| now + COMPARE_LATE * us(COMPARE_PARTS[0].lasts)));
    }
}
