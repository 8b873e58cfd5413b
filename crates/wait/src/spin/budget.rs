//! What one thread may spend on waiting for one thing.

use super::spinners::Spinners;
use super::table::{BUDGET_MOST, TURNS_KEPT};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The wake-up of a task that is about to sleep.
    Sleep,
    /// The next call of an application thread.
    Mailbox,
    /// The answer to a call that has woken another task. Nobody spins for it.
    Deferred,
}

/// Turns of one kind, of all threads. On a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Totals {
    won: AtomicU64,
    given_up: AtomicU64,
    nanos: AtomicU64,
}

impl Totals {
    fn add(&self, won: u64, given_up: u64, nanos: u64) {
        self.won.fetch_add(won, Relaxed);
        self.given_up.fetch_add(given_up, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    pub(super) fn get(&self) -> Turns {
        Turns {
            won: self.won.load(Relaxed),
            given_up: self.given_up.load(Relaxed),
            nanos: self.nanos.load(Relaxed),
        }
    }
}

/// What has been spun. The last [`TURNS_KEPT`] turns of a thread that won them all may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// What was waited for came.
    pub won: u64,
    /// The limit, the budget, or a CPU that was wanted ended it.
    pub given_up: u64,
    /// What both took, as the clock was read: a turn that ends before its first reading counts
    /// nothing.
    pub nanos: u64,
}

impl Turns {
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.won + self.given_up
    }
}

/// A use of the budget: a row of the [`super::table`]. What is saved and needed is in microseconds.
#[derive(Debug)]
pub struct Use {
    pub kind: Kind,
    /// What a thread may spend before it has saved anything.
    pub begins_with: i32,
    /// What it must have to begin.
    pub needs: i32,
    /// The longest that it spins at once.
    pub limit: Duration,
    /// What came within this came soon.
    pub soon: Duration,
    /// What was saved, or would have been, by being there for what came soon.
    pub soon_saves: i32,
    /// What finding it by spinning saves.
    pub found_saves: i32,
    /// The time that was spun is deducted from that.
    pub deducts: bool,
}

/// One thread's budget for one use. Only its own thread changes it.
#[derive(Debug)]
pub struct SpinBudget {
    of: &'static Use,
    /// In microseconds; below zero where more was spun in vain than was saved.
    left: AtomicI32,
    /// Turns won that are not in the totals yet, and nanoseconds that they took.
    won: AtomicU32,
    nanos: AtomicU64,
}

impl SpinBudget {
    #[must_use]
    pub const fn new(of: &'static Use) -> SpinBudget {
        SpinBudget {
            of,
            left: AtomicI32::new(of.begins_with),
            won: AtomicU32::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    /// Whether it is enough to begin.
    #[must_use]
    pub fn suffices(&self) -> bool {
        self.left() >= self.of.needs
    }

    /// Whether it is enough to go on.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.left() > 0
    }

    /// How long its thread may spin now.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let left = Duration::from_micros(self.left().max(0) as u64);
        self.of.limit.min(left)
    }

    /// What was waited for came after `t`, and nobody spun for it. Whether that was soon.
    #[must_use]
    pub fn is_soon(&self, t: Duration) -> bool {
        t <= self.of.soon
    }

    /// It came soon: spinning would have saved something.
    pub fn came_soon(&self) {
        self.earn(self.of.soon_saves);
    }

    /// It was found by spinning ([`Spinners::spin`]), which took so long.
    pub fn found(&self, all: &Spinners, spun: Duration) {
        let deducted = if self.of.deducts { micros(spun) } else { 0 };
        self.earn(self.of.found_saves - deducted);
        let won = self.won.load(Relaxed) + 1;
        self.won.store(won, Relaxed);
        let nanos = self.nanos.load(Relaxed) + spun.as_nanos() as u64;
        self.nanos.store(nanos, Relaxed);
        if won >= TURNS_KEPT {
            self.tell(all);
        }
    }

    /// So long was spun for nothing.
    pub fn in_vain(&self, all: &Spinners, spun: Duration) {
        self.pay(spun);
        all.totals(self.of.kind).add(0, 1, spun.as_nanos() as u64);
        self.tell(all);
    }

    /// Adds what it counted to the totals.
    pub fn tell(&self, all: &Spinners) {
        let won = self.won.load(Relaxed);
        if won != 0 {
            let nanos = self.nanos.load(Relaxed);
            all.totals(self.of.kind).add(won.into(), 0, nanos);
            self.won.store(0, Relaxed);
            self.nanos.store(0, Relaxed);
        }
    }

    /// Spends what is not spinning.
    pub fn pay(&self, t: Duration) {
        let us = micros(t).clamp(1, BUDGET_MOST);
        self.left
            .store((self.left() - us).max(-BUDGET_MOST), Relaxed);
    }

    /// Nothing is left: it begins anew.
    pub fn forfeit(&self) {
        self.left.store(0, Relaxed);
    }

    pub(crate) fn earn(&self, us: i32) {
        self.left
            .store((self.left() + us).min(BUDGET_MOST), Relaxed);
    }

    /// In microseconds.
    #[must_use]
    pub fn left(&self) -> i32 {
        self.left.load(Relaxed)
    }
}

fn micros(t: Duration) -> i32 {
    i32::try_from(t.as_micros()).unwrap_or(BUDGET_MOST)
}

#[cfg(test)]
mod tests {
    use super::super::spinners::MaySpin;
    use super::super::table::{DEFERRED, MAILBOX, SLEEP};
    use super::*;

    #[test]
    fn spinning_is_paid_for() {
        let all = Spinners::new(2, MaySpin::WhereIdle);
        let b = SpinBudget::new(&SLEEP);
        assert!(b.suffices());
        b.in_vain(&all, Duration::from_micros(130));
        assert_eq!((b.left(), b.limit()), (-30, Duration::ZERO));
        b.earn(70);
        assert_eq!(b.limit(), Duration::from_micros(40));
        assert!(b.has_any() && !b.suffices());
        b.earn(5000);
        assert_eq!(b.limit(), SLEEP.limit);
        b.pay(Duration::from_secs(9));
        assert_eq!(b.left(), 0);
        b.pay(Duration::from_secs(9));
        assert_eq!(b.left(), -1000);
    }

    /// What a turn took is deducted from what it saved, but not where the application ran
    /// meanwhile.
    #[test]
    fn what_is_found_saves() {
        let all = Spinners::new(2, MaySpin::WhereIdle);
        let t = Duration::from_micros(40);
        let sleep = SpinBudget::new(&SLEEP);
        sleep.found(&all, t);
        assert_eq!(sleep.left(), 85);
        let mailbox = SpinBudget::new(&MAILBOX);
        mailbox.found(&all, t);
        assert_eq!(mailbox.left(), 5);
    }

    /// A task whose wake-ups are deferred goes on to compute: they are not for a long time.
    #[test]
    fn one_late_return_costs_all() {
        let b = SpinBudget::new(&DEFERRED);
        for turns in [8, 8, 1000] {
            for _ in 0..turns {
                assert!(turns == 1000 || !b.suffices());
                b.came_soon();
            }
            assert!(b.suffices());
            b.forfeit();
        }
    }

    /// Turns come to the totals when one is given up, when there are many, and when they are asked
    /// for.
    #[test]
    fn turns_are_counted() {
        let all = Spinners::new(2, MaySpin::WhereIdle);
        let b = SpinBudget::new(&MAILBOX);
        let us = Duration::from_micros(1);
        let turns = || {
            let t = all.turns(Kind::Mailbox);
            (t.begun(), t.won, t.given_up, t.nanos)
        };
        b.found(&all, us);
        assert_eq!(turns(), (0, 0, 0, 0));
        b.in_vain(&all, us);
        assert_eq!(turns(), (2, 1, 1, 2000));
        for _ in 0..TURNS_KEPT + 1 {
            b.found(&all, us);
        }
        assert_eq!(turns().1, u64::from(TURNS_KEPT) + 1);
        b.tell(&all);
        b.tell(&all);
        assert_eq!(turns().1, u64::from(TURNS_KEPT) + 2);
        assert_eq!(all.turns(Kind::Sleep), Turns::default());
    }
}
