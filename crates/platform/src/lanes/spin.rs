//! Spinning for a mailbox: who does, and how long.
//!
//! Who may spin at all, [`wait::spin`] tells. Who spins also looks, every few microseconds, whether
//! the thread has come another way.

use super::words::mailbox::{self, AfterAnswer};
use abi::nr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stub::lane;
use wait::spin::table::{FIRST_LIMIT, LATE_ANSWER_COSTS, LOOK_ASIDE, MAILBOX};
use wait::spin::{End, SpinBudget, Spinners};

/// Whether a call has got something done, by its result: waits that end with nothing, and what
/// fails, may be made the more often the longer others take.
pub fn achieves(nr: u64, result: u64) -> bool {
    let waits = [
        nr::POLL,
        nr::PPOLL,
        nr::SELECT,
        nr::PSELECT6,
        nr::EPOLL_WAIT,
        nr::EPOLL_PWAIT,
        nr::EPOLL_PWAIT2,
        nr::FUTEX,
        nr::NANOSLEEP,
        nr::CLOCK_NANOSLEEP,
    ];
    result as i64 > 0 || result == 0 && !waits.contains(&(nr as u32))
}

/// The spinning of one thread of the Sentry for its application thread's mailbox.
#[derive(Debug)]
pub struct MailboxSpin {
    budget: SpinBudget,
    /// When the last answer was given; `None` where that says nothing of the next call.
    answered: Option<Instant>,
    /// See [`crate::CpuClock::spun`]; written by this thread alone.
    pub spun: Arc<AtomicU64>,
    /// It is among the spinners.
    pub spins: bool,
    /// It has just begun to: the other side is being woken on another CPU.
    first: bool,
}

impl Default for MailboxSpin {
    fn default() -> MailboxSpin {
        MailboxSpin {
            budget: SpinBudget::new(&MAILBOX),
            answered: None,
            spun: Arc::default(),
            spins: false,
            first: false,
        }
    }
}

/// Where a call that is not in the mailbox was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallPlace {
    /// In the lane's code.
    InLane,
    /// At a site of the application's.
    AtSite,
}

impl MailboxSpin {
    /// A call has come, but not from the mailbox. Whether it came soon after the answer to the one
    /// before.
    pub fn called(&mut self, made: CallPlace) -> bool {
        let answered = self.answered.take();
        let soon = answered.is_some_and(|t| self.budget.is_soon(t.elapsed()));
        if soon && made == CallPlace::InLane {
            self.budget.came_soon();
        }
        soon
    }

    /// An answer is about to be given. Whether the thread begins to spin with it.
    pub fn answering(&mut self, all: &Spinners) -> bool {
        if self.spins {
            return false;
        }
        self.answered = all.possible().then(Instant::now);
        if (self.budget.suffices() || all.always()) && all.has_idle_cpu() && all.enter() {
            self.spins = true;
            self.first = true;
            return true;
        }
        false
    }

    /// A call from the mailbox is about to be answered. What the thread does then.
    pub fn again(&mut self, all: &Spinners) -> AfterAnswer {
        self.spins = self.spins || (self.budget.has_any() || all.always()) && all.enter();
        match self.spins {
            true => AfterAnswer::Spins,
            false => AfterAnswer::Stops,
        }
    }

    /// Spins until the state has [`lane::ASKED`]; whether it has. If not, it spins no more.
    /// `elsewhere`: whether the other has come another way, which the state need not tell.
    pub fn spin(
        &mut self,
        state: &AtomicU32,
        all: &Spinners,
        mut elsewhere: impl FnMut() -> bool,
    ) -> bool {
        let limit = match std::mem::take(&mut self.first) {
            true => FIRST_LIMIT,
            false if all.always() => MAILBOX.limit,
            false => self.budget.limit(),
        };
        // No more spun for: it comes another way.
        let done = || state.load(Ordering::Acquire) & (lane::ASKED | lane::SPINS) != lane::SPINS;
        let mut looked = Duration::ZERO;
        let aside = |now: Duration| {
            let due = now - looked > LOOK_ASIDE;
            if due {
                looked = now;
            }
            due && elsewhere()
        };
        let (end, t) = all.spin(limit, done, aside);
        self.count(t.min(limit));
        if end == End::Found && state.load(Ordering::Acquire) & lane::ASKED != 0 {
            self.budget.found(all, t);
            // The call may take long: others may spin meanwhile.
            self.spins = false;
            all.leave();
            return true;
        }
        self.budget.in_vain(all, t);
        self.stop(all);
        // A call that comes from a site that is not patched yet comes soon, too.
        self.answered = Instant::now().checked_sub(t);
        // Asked in the last moment: it is answered as any other.
        mailbox::give_up(state)
    }

    /// What is above the limit the thread did not run for.
    fn count(&self, spun: Duration) {
        let so_far = self.spun.load(Ordering::Relaxed);
        let now = so_far + spun.as_nanos() as u64;
        self.spun.store(now, Ordering::Relaxed);
    }

    /// The answer came so late that the other looks for it no more.
    pub fn late(&mut self, all: &Spinners) {
        self.budget.pay(LATE_ANSWER_COSTS);
        self.stop(all);
    }

    /// Spins no more.
    pub fn stop(&mut self, all: &Spinners) {
        if std::mem::take(&mut self.spins) {
            all.leave();
        }
        self.budget.tell(all);
        self.answered = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wait::MaySpin;

    fn spinning(all: &Spinners) -> MailboxSpin {
        assert!(all.enter());
        MailboxSpin {
            spins: true,
            first: true,
            ..MailboxSpin::default()
        }
    }

    #[test]
    fn a_thread_that_spins_looks_aside() {
        let all = Spinners::new(2, MaySpin::WhereIdle);
        let state = AtomicU32::new(lane::SPINS);
        let mut looks = 0;
        let mut m = spinning(&all);
        let asked = m.spin(&state, &all, || {
            looks += 1;
            looks == 2
        });
        assert!(!asked && !m.spins && looks <= 2);
        assert_eq!(state.load(Ordering::Relaxed), 0);
        // Both CPUs can be had again.
        assert!(all.enter() && all.enter());
    }

    /// A thread that spins in vain again and again needs many calls for each time.
    #[test]
    fn spinning_is_paid_for() {
        let all = Spinners::new(8, MaySpin::WhereIdle);
        while !all.has_idle_cpu() {
            std::thread::yield_now();
        }
        let mut m = MailboxSpin::default();
        let mut begun = 0;
        for _ in 0..2000 {
            m.budget.came_soon();
            if m.answering(&all) {
                begun += 1;
                let state = AtomicU32::new(lane::SPINS);
                assert!(!m.spin(&state, &all, || false));
                assert!(!m.budget.suffices());
            }
        }
        // Each takes 200 us, 100 calls' worth, unless the host pre-empted it.
        assert!((1..=40).contains(&begun), "{begun}");
        // One that no neighbour has made stop.
        let all = Spinners::new(8, MaySpin::WhereIdle);
        let state = AtomicU32::new(lane::SPINS | lane::ASKED);
        while m.budget.left() < 100 {
            assert!(all.enter());
            (m.spins, m.first) = (true, true);
            assert!(m.spin(&state, &all, || false));
        }
        assert_eq!(m.again(&all), AfterAnswer::Spins);
    }
}
