//! The CPUs of one Sentry, and the threads that want them.
//!
//! ## Invariants
//!
//! - Awake tasks and spinning threads of one Sentry are together no more than its CPUs when a
//!   thread begins to spin, but for [`Spinners::extra`]. A thread that spins looks all the time
//!   whether that still holds, and ends if not: a task that wakes is counted by its waker, before
//!   the host is asked to run it.
//! - A thread that is pre-empted by other processes of the host makes all stop for a while, longer
//!   each time; not where [`Spinners::extra`] holds, since being pre-empted says nothing there.
//!
//! The counts only guide: nothing depends on their being right but how much is spun.

use super::budget::{Kind, Totals, Turns};
use super::table::{
    BACK_OFF, BACK_OFF_FORGET, BACK_OFF_MOST, COMPARE_AGAIN, COMPARE_CPUS_EACH, IDLE, LOOKS,
    PREEMPTED,
};
use super::throughput::{CallCount, Comparisons, SeenAwake};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The CPUs of one Sentry, and what is on them.
#[derive(Debug)]
pub struct Spinners {
    cpus: u32,
    /// Tasks that do not sleep: in application code, or in a call.
    awake: AtomicU32,
    /// Threads that spin.
    now: AtomicU32,
    began: Instant,
    /// Nobody spins before this, in microseconds since `began`.
    not_before: AtomicU64,
    /// How long the last back-off was, in microseconds.
    back_off: AtomicU64,
    /// When there was last no CPU idle, in microseconds since `began`.
    crowded_at: AtomicU64,
    /// When others on the host last took a CPU from a thread that spun, in microseconds since
    /// `began`; 0: never.
    others_at: AtomicU64,
    /// Whatever the machine does: for tests.
    always: bool,
    comparisons: Comparisons,
    totals: [Totals; 3],
}

/// How spinning ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What was waited for has come.
    Found,
    /// The time is up, or the CPU is wanted.
    GaveUp,
}

/// When a thread may spin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaySpin {
    /// Where a CPU is idle, by what was seen last.
    WhereIdle,
    /// Nobody is asked whether a CPU is.
    Always,
}

impl Spinners {
    /// For a process that may use so many CPUs.
    #[must_use]
    pub fn new(cpus: u32, may: MaySpin) -> Spinners {
        Spinners {
            cpus,
            awake: AtomicU32::new(0),
            now: AtomicU32::new(0),
            began: Instant::now(),
            not_before: AtomicU64::new(0),
            back_off: AtomicU64::new(0),
            crowded_at: AtomicU64::new(0),
            others_at: AtomicU64::new(0),
            always: may == MaySpin::Always,
            comparisons: Comparisons::default(),
            totals: Default::default(),
        }
    }

    /// A task has made many calls that achieved something, and `more` that were answered where they
    /// were made.
    pub fn count_calls(&self, calls: &mut CallCount, more: u64) {
        if !self.possible() || self.always {
            calls.take();
            return;
        }
        let awake = self.awake.load(Relaxed);
        let now = self.clock();
        // Others on the host have wanted its CPUs of late: they would pay.
        let others_at = self.others_at.load(Relaxed);
        let alone = others_at == 0 || others_at + COMPARE_AGAIN[0].as_micros() as u64 <= now;
        let crowded = !self.quiet(awake, || now) && alone;
        self.comparisons
            .count(calls, more, now, (awake, self.cpus, crowded));
    }

    /// Whether threads may spin although no CPU is idle.
    fn oversubscribed(&self) -> bool {
        self.comparisons.oversubscribed(|| self.clock())
    }

    /// How many more may be awake and spin than there are CPUs.
    fn extra(&self) -> u32 {
        if self.oversubscribed() {
            self.cpus / COMPARE_CPUS_EACH
        } else {
            0
        }
    }

    pub(super) fn totals(&self, kind: Kind) -> &Totals {
        &self.totals[kind as usize]
    }

    /// What has been spun.
    #[must_use]
    pub fn turns(&self, kind: Kind) -> Turns {
        self.totals(kind).get()
    }

    /// Whether anybody ever spins.
    #[must_use]
    pub fn possible(&self) -> bool {
        self.cpus > 1 || self.always
    }

    /// Whether tests want all to spin.
    #[must_use]
    pub fn always(&self) -> bool {
        self.always
    }

    /// A task begins, or one that slept is about to run.
    pub fn wakes(&self, task: &SeenAwake) {
        self.comparisons.wakes(task);
        if self.awake.fetch_add(1, Relaxed).wrapping_add(1) >= self.cpus && self.possible() {
            self.crowded_at.store(self.clock(), Relaxed);
        }
    }

    /// A task goes to sleep, or has ended.
    pub fn sleeps(&self, task: &SeenAwake) {
        self.comparisons.sleeps(task);
        self.awake.fetch_sub(1, Relaxed);
    }

    /// In microseconds.
    fn clock(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Whether a CPU has been idle for a while, or all are to spin as if one had.
    #[must_use]
    pub fn has_idle_cpu(&self) -> bool {
        self.always
            || self.oversubscribed()
            || self.quiet(self.awake.load(Relaxed), || self.clock())
    }

    /// Whether a CPU has been idle for a while. The clock is read only if it matters.
    fn quiet(&self, awake: u32, now: impl FnOnce() -> u64) -> bool {
        awake < self.cpus && self.crowded_at.load(Relaxed) + (IDLE.as_micros() as u64) < now()
    }

    /// Whether more want CPUs than there are.
    fn crowded(&self) -> bool {
        let wanted = self.awake.load(Relaxed) + self.now.load(Relaxed);
        wanted > self.cpus && !self.always && wanted > self.cpus + self.extra()
    }

    /// Whether one more thread may spin; it counts as spinning from then on, until
    /// [`Spinners::leave`].
    #[must_use]
    pub fn enter(&self) -> bool {
        if self.always {
            self.now.fetch_add(1, Relaxed);
            return true;
        }
        let not_before = self.not_before.load(Relaxed);
        let extra = self.extra();
        let backs_off = extra == 0 && not_before != 0 && self.clock() < not_before;
        if !self.possible() || backs_off {
            return false;
        }
        let awake = self.awake.load(Relaxed);
        let one_more = |n: u32| (n + awake < self.cpus + extra).then_some(n + 1);
        self.now.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// It spins no more.
    pub fn leave(&self) {
        self.now.fetch_sub(1, Relaxed);
    }

    /// Spins until `done` or `limit`; between [`Spinners::enter`] and [`Spinners::leave`]. How long
    /// it took comes with it. `aside` is asked every few microseconds whether there is no sense in
    /// it any more.
    pub fn spin(
        &self,
        limit: Duration,
        mut done: impl FnMut() -> bool,
        mut aside: impl FnMut(Duration) -> bool,
    ) -> (End, Duration) {
        let begin = Instant::now();
        let mut last = begin;
        loop {
            for _ in 0..LOOKS {
                if done() {
                    return (End::Found, last - begin);
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            let pre_empted = now - last > PREEMPTED && !self.always;
            if pre_empted && !self.oversubscribed() {
                self.note_others(now - last);
                self.back_off();
            }
            if pre_empted || now - begin > limit || self.crowded() || aside(now - begin) {
                return (End::GaveUp, now - begin);
            }
            last = now;
        }
    }

    /// One that spun did not run for so long: if not for tasks of this sandbox, then for others.
    fn note_others(&self, gap: Duration) {
        let now = self.clock();
        let own = self.crowded_at.load(Relaxed) + gap.as_micros() as u64 >= now;
        if !own && !self.crowded() {
            self.others_at.store(now, Relaxed);
        }
    }

    /// Two at once may count once: that only guides.
    fn back_off(&self) {
        let (now, until) = (self.clock(), self.not_before.load(Relaxed));
        let last = self.back_off.load(Relaxed);
        let least = BACK_OFF.as_micros() as u64;
        let next = if now > until + BACK_OFF_FORGET * last {
            least
        } else {
            (2 * last).clamp(least, BACK_OFF_MOST.as_micros() as u64)
        };
        self.back_off.store(next, Relaxed);
        self.not_before.fetch_max(now + next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_spins_where_no_cpu_is_idle() {
        let all = Spinners::new(3, MaySpin::WhereIdle);
        // The caller's own task is one of those that are awake.
        all.wakes(&SeenAwake::default());
        assert!(all.enter() && all.enter() && !all.enter());
        all.leave();
        all.wakes(&SeenAwake::default());
        assert!(!all.enter());
        all.sleeps(&SeenAwake::default());
        assert!(all.enter());
        let one = Spinners::new(1, MaySpin::WhereIdle);
        assert!(!one.enter());
        let two = Spinners::new(2, MaySpin::WhereIdle);
        two.wakes(&SeenAwake::default());
        assert!(two.enter());
        two.leave();
        two.back_off();
        assert!(!two.enter());
        assert!(Spinners::new(1, MaySpin::Always).enter());
    }

    /// Where all CPUs were wanted a moment ago, nobody is moved.
    #[test]
    fn an_idle_cpu_takes_time() {
        let all = Spinners::new(2, MaySpin::WhereIdle);
        let wait = || std::thread::sleep(IDLE + Duration::from_millis(1));
        wait();
        all.wakes(&SeenAwake::default());
        assert!(all.has_idle_cpu());
        all.wakes(&SeenAwake::default());
        assert!(!all.has_idle_cpu());
        wait();
        assert!(!all.has_idle_cpu());
        all.sleeps(&SeenAwake::default());
        assert!(all.has_idle_cpu());
        all.wakes(&SeenAwake::default());
        all.sleeps(&SeenAwake::default());
        assert!(!all.has_idle_cpu());
    }

    /// Whoever wakes a task ends the spinning that keeps a CPU from it, however long that was to
    /// be.
    #[test]
    fn who_wakes_has_the_cpu() {
        let all = Spinners::new(2, MaySpin::WhereIdle);
        all.wakes(&SeenAwake::default());
        assert!(all.enter());
        let mut looks = 0;
        let long = Duration::from_secs(3600);
        let (end, _) = all.spin(
            long,
            || {
                looks += 1;
                if looks == 100 {
                    all.wakes(&SeenAwake::default());
                }
                false
            },
            |_| false,
        );
        assert_eq!(end, End::GaveUp);
        // But for a host that pre-empted this very test.
        assert!((32..=128).contains(&looks), "{looks}");
    }

    /// However long the machine is busy: little is spun for nothing; and what is over is forgotten.
    #[test]
    fn back_offs_grow() {
        let all = Spinners::new(2, MaySpin::WhereIdle);
        let left = || all.not_before.load(Relaxed).saturating_sub(all.clock());
        all.back_off();
        assert!(left() <= 2000);
        for _ in 0..20 {
            all.back_off();
        }
        assert!((400_000..=500_000).contains(&left()));
        all.not_before.store(0, Relaxed);
        all.back_off.store(1, Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        all.back_off();
        assert!(left() <= 2000);
    }
}
