//! Where one host thread sleeps.
//!
//! ## The state
//!
//! ```text
//!              unpark                       park
//!   IDLE ─────────────────► WOKEN ◄──────────────────► (taken: IDLE)
//!    │ ▲                     ▲ ▲
//!    │ │ the deadline        │ │ unpark: counts the task as awake, and wakes the thread
//!    │ └──────────── ASLEEP ─┘ │
//!    │                 ▲       │ unpark: nothing else to do
//!    └── SPINNING ─────┴───────┘
//! ```
//!
//! Only the thread itself leaves IDLE but for WOKEN, and only it leaves WOKEN. Whoever moves the
//! state away from ASLEEP, a waker or the sleeper at its deadline, is the one who counts the task
//! as awake again: so each sleep is counted once. The sleeper says which thread it is before it is
//! ASLEEP; a waker looks there after it has changed the state, and unparks that thread, whose next
//! `park` of the standard library's ends at once if it has not begun: so no wake-up is missed,
//! however late it is ([`crate::wakes`]). An unpark that finds WOKEN does so, too: the one before
//! may be late. One too many only makes the sleeper look at the state.

#[cfg(test)]
mod model;
mod steps;

use crate::lead::{self, Lead, Worked};
use crate::spin::table::{SAME_CPU_SAVES, SLEEP};
use crate::spin::{End, SeenAwake, SpinBudget, Spinners};
use crate::wakes::{self, Sleeper};
use hostcall::process::current_cpu;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::time::{Duration, Instant};
use steps::{ASLEEP, IDLE, SPINNING, SleeperState, WOKEN, Word};

/// A leader's sleep may last a millisecond too long: so near to its deadline nobody leads.
const EXACT: Duration = Duration::from_millis(2);

/// A flag that is set by wake-ups and taken by the one thread that sleeps here.
pub struct Parker {
    state: AtomicU32,
    /// Whose sleep it is: written by the sleeper before it is ASLEEP.
    thread: Mutex<Option<Sleeper>>,
    /// Work that its thread may do while it waits, and whether there is some ([`crate::lead`]).
    lead: Mutex<Option<Arc<Lead>>>,
    has_lead: AtomicBool,
    /// For a task: the CPUs that it may spin on.
    spinners: Option<Arc<Spinners>>,
    seen: SeenAwake,
    budget: SpinBudget,
    /// The CPU that the last waker ran on. It only guides.
    woken_on: AtomicU32,
    /// How often it spun in vain.
    #[cfg(test)]
    in_vain: AtomicU32,
}

impl Default for Parker {
    fn default() -> Parker {
        Parker::new()
    }
}

impl Parker {
    /// One whose thread never spins.
    #[must_use]
    pub const fn new() -> Parker {
        Parker {
            state: AtomicU32::new(IDLE),
            thread: Mutex::new(None),
            lead: Mutex::new(None),
            has_lead: AtomicBool::new(false),
            spinners: None,
            seen: SeenAwake::new(),
            budget: SpinBudget::new(&SLEEP),
            woken_on: AtomicU32::new(0),
            #[cfg(test)]
            in_vain: AtomicU32::new(0),
        }
    }

    /// One of a task, which counts in `spinners` from [`Parker::begins`] to [`Parker::ends`]: as
    /// awake, but while it sleeps.
    #[must_use]
    pub fn of_task(spinners: Option<Arc<Spinners>>) -> Parker {
        Parker {
            spinners: spinners.filter(|s| s.possible()),
            ..Parker::new()
        }
    }

    /// Its task begins.
    pub fn begins(&self) {
        self.count();
    }

    /// Its task has ended.
    pub fn ends(&self) {
        if let Some(s) = &self.spinners {
            s.sleeps(&self.seen);
            self.budget.tell(s);
        }
    }

    /// Wakes the sleeper, or makes its next sleep end at once.
    pub fn unpark(&self) {
        self.unpark_by(wakes::wake);
    }

    /// As [`Parker::unpark`], whatever the calling thread defers, or one that has woken it and
    /// defers that.
    pub fn unpark_now(&self) {
        self.unpark_by(|t, _| t.unpark());
    }

    /// `wake` is told whether it slept until now.
    fn unpark_by(&self, wake: impl FnOnce(Sleeper, bool)) {
        lead::note(self);
        if self.spinners.is_some() {
            self.woken_on.store(current_cpu(), Relaxed);
        }
        let found = steps::wake(&self.state);
        let slept = found == SleeperState::Asleep;
        if slept {
            self.count();
        }
        if found != SleeperState::Awake
            && let Some(t) = self.sleeper()
        {
            wake(t, slept);
        }
    }

    /// The task is awake from here on.
    fn count(&self) {
        if let Some(s) = &self.spinners {
            s.wakes(&self.seen);
        }
    }

    fn sleeper(&self) -> Option<Sleeper> {
        self.thread.lock().clone()
    }

    /// Whether its thread waits here, asleep or looking for its wake-up.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        matches!(self.state.load(SeqCst), SPINNING | ASLEEP)
    }

    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.load(SeqCst) == ASLEEP
    }

    /// A wake-up that has come already does not count.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.take(WOKEN);
    }

    /// Sleeps until woken or until `deadline`. True if woken.
    pub(crate) fn park(&self, deadline: Option<Instant>) -> bool {
        if self.take(WOKEN) {
            return true;
        }
        // Nobody else would make those that this thread defers.
        wakes::make();
        if self.has_lead.load(Acquire)
            && let Some(woken) = self.lead(deadline)
        {
            return woken;
        }
        self.is_mine();
        match &self.spinners {
            Some(s) => self.spin(s, deadline) || self.sleep_counted(s, deadline),
            None => {
                self.state.replace(IDLE, ASLEEP);
                self.sleep(deadline)
            }
        }
    }

    fn take(&self, from: u32) -> bool {
        steps::take(&self.state, from)
    }

    /// Looks for a wake-up for a while; if none comes, or it may not look, the state is IDLE.
    fn spin(&self, s: &Spinners, deadline: Option<Instant>) -> bool {
        if !self.budget.suffices() {
            return false;
        }
        let mut limit = self.budget.limit();
        if let Some(d) = deadline {
            limit = limit.min(d.saturating_duration_since(Instant::now()));
        }
        if limit.is_zero() {
            return false;
        }
        s.sleeps(&self.seen);
        if !s.enter() {
            s.wakes(&self.seen);
            return false;
        }
        self.state.replace(IDLE, SPINNING);
        let woken = || self.state.load(SeqCst) == WOKEN;
        let (end, t) = s.spin(limit, woken, |_| false);
        s.leave();
        s.wakes(&self.seen);
        if end == End::Found {
            self.budget.found(s, t);
        } else {
            self.budget.in_vain(s, t);
            #[cfg(test)]
            self.in_vain.fetch_add(1, Relaxed);
            if self.take(SPINNING) {
                return false;
            }
        }
        self.take(WOKEN)
    }

    fn sleep_counted(&self, s: &Spinners, deadline: Option<Instant>) -> bool {
        let (begin, here) = (Instant::now(), current_cpu());
        s.sleeps(&self.seen);
        if !self.state.replace(IDLE, ASLEEP) {
            s.wakes(&self.seen);
            return self.take(WOKEN);
        }
        let woken = self.sleep(deadline);
        if !woken {
            s.wakes(&self.seen);
        } else if self.budget.is_soon(begin.elapsed()) {
            if self.woken_on.load(Relaxed) != here {
                self.budget.came_soon();
            } else {
                self.budget.earn(SAME_CPU_SAVES);
            }
        }
        woken
    }

    /// The calling thread is the one to wake.
    fn is_mine(&self) {
        let mut t = self.thread.lock();
        let me = std::thread::current();
        if !matches!(&*t, Some(Sleeper::Thread(t)) if t.id() == me.id()) {
            *t = Some(Sleeper::Thread(me));
        }
    }

    /// Its thread may do this work while it waits, if it is a task's.
    pub(crate) fn may_lead(&self, lead: &Arc<Lead>) {
        if self.spinners.is_some() {
            *self.lead.lock() = Some(lead.clone());
            self.has_lead.store(true, Release);
        }
    }

    /// Works until woken or until the deadline; none where others do that, or are to.
    fn lead(&self, deadline: Option<Instant>) -> Option<bool> {
        let (lead, spinners) = (self.lead.lock().clone()?, self.spinners.as_ref()?);
        let left = || deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if left().is_some_and(|l| l < EXACT) {
            lead.let_serve(self);
            return None;
        }
        let turn = lead.take(self)?;
        *self.thread.lock() = Some(Sleeper::Leader(lead.clone()));
        loop {
            let worked = lead.work_once();
            wakes::make();
            if self.take(WOKEN) {
                turn.leave(self);
                return Some(true);
            }
            // However much comes.
            let most = left();
            if worked == Worked::Failed || !lead.is_for(self) || most.is_some_and(|m| m < EXACT) {
                return None;
            }
            if worked == Worked::Something {
                continue;
            }
            spinners.sleeps(&self.seen);
            if self.state.replace(IDLE, ASLEEP) {
                lead.sleep(most.map(|m| m - EXACT / 2));
                if self.take(ASLEEP) {
                    spinners.wakes(&self.seen);
                }
            } else {
                spinners.wakes(&self.seen);
            }
            if self.take(WOKEN) {
                turn.leave(self);
                return Some(true);
            }
        }
    }

    /// ASLEEP, or woken meanwhile. False if it was the deadline that ended it.
    fn sleep(&self, deadline: Option<Instant>) -> bool {
        steps::sleep(&self.state, || match deadline {
            None => {
                std::thread::park();
                false
            }
            Some(d) => {
                let left = d.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return true;
                }
                std::thread::park_timeout(left);
                false
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spin::MaySpin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    fn task(cpus: u32) -> (Arc<Spinners>, Arc<Parker>) {
        let s = Arc::new(Spinners::new(cpus, MaySpin::WhereIdle));
        s.wakes(&SeenAwake::default());
        (s.clone(), Arc::new(Parker::of_task(Some(s))))
    }

    #[test]
    fn a_wake_up_before_the_sleep_ends_it() {
        let (_, p) = task(2);
        p.unpark();
        p.unpark();
        assert!(p.park(None));
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(!p.park(Some(soon)));
    }

    /// Two tasks wake each other as fast as they can, with deadlines that expire beside the
    /// wake-ups: none is lost, and the counts are at the end what they were.
    #[test]
    fn two_wake_each_other() {
        for cpus in [1, 2, 8] {
            let s = Arc::new(Spinners::new(cpus, MaySpin::WhereIdle));
            let parkers: [Arc<Parker>; 2] =
                std::array::from_fn(|_| Arc::new(Parker::of_task(Some(s.clone()))));
            let turn = Arc::new(AtomicU32::new(0));
            let threads: Vec<_> = (0..2usize)
                .map(|me| {
                    let (p, turn, s) = (parkers.clone(), turn.clone(), s.clone());
                    std::thread::spawn(move || {
                        s.wakes(&SeenAwake::default());
                        for n in 0..3000 {
                            while turn.load(Ordering::SeqCst) % 2 != me as u32 {
                                let d = (n % 3 == 0)
                                    .then(|| Instant::now() + Duration::from_micros(n % 70));
                                p[me].park(d);
                            }
                            turn.fetch_add(1, Ordering::SeqCst);
                            p[1 - me].unpark();
                        }
                        s.sleeps(&SeenAwake::default());
                    })
                })
                .collect();
            for t in threads {
                t.join().unwrap();
            }
            assert_eq!(turn.load(Ordering::SeqCst), 6000);
            let shown = format!("{s:?}");
            assert!(shown.contains("awake: 0, now: 0"), "{shown}");
        }
    }

    /// Who sleeps long again and again spins no more.
    #[test]
    fn long_sleeps_are_not_spun_for() {
        let (s, p) = task(64);
        // Some turns are enough, where no other process wants the CPU.
        let most = Instant::now() + Duration::from_secs(20);
        while p.budget.suffices() && Instant::now() < most {
            assert!(!p.park(Some(Instant::now() + Duration::from_millis(2))));
        }
        // A rest that is too little to begin with may be left.
        assert!(!p.budget.suffices());
        assert!(!p.spin(&s, None));
    }

    /// Two on one CPU, though there seem to be more: whoever spins keeps the other from it, and so
    /// spins seldom.
    #[test]
    fn nobody_spins_for_its_own_cpu() {
        in_turns_on_one_cpu(Parker::unpark);
        in_turns_on_one_cpu(Parker::unpark_now);
    }

    fn in_turns_on_one_cpu(wake: fn(&Parker)) {
        const ROUNDS: u32 = 2000;
        let s = Arc::new(Spinners::new(8, MaySpin::WhereIdle));
        let parkers: [Arc<Parker>; 2] =
            std::array::from_fn(|_| Arc::new(Parker::of_task(Some(s.clone()))));
        let turn = Arc::new(AtomicU32::new(0));
        // Not the first: its number would be what nobody has noted.
        let cpu = *hostcall::process::cpus().last().unwrap();
        let threads: Vec<_> = (0..2usize)
            .map(|me| {
                let (p, turn, s) = (parkers.clone(), turn.clone(), s.clone());
                std::thread::spawn(move || {
                    hostcall::process::keep_on(0, vec![cpu]).unwrap();
                    s.wakes(&SeenAwake::default());
                    while turn.load(SeqCst) < ROUNDS {
                        if turn.load(SeqCst) as usize % 2 == me {
                            turn.fetch_add(1, SeqCst);
                            wake(&p[1 - me]);
                        } else {
                            p[me].park(Some(Instant::now() + Duration::from_millis(100)));
                        }
                    }
                    p[1 - me].unpark();
                    s.sleeps(&SeenAwake::default());
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
        for p in &parkers {
            let vain = p.in_vain.load(SeqCst);
            assert!(vain <= 2 + ROUNDS / 2 / 25, "{vain}");
        }
    }

    /// A sleeper does not count as awake, and its waker counts it before it runs.
    #[test]
    fn sleepers_are_counted() {
        let (s, p) = task(2);
        let asleep = Arc::new(AtomicBool::new(false));
        let t = {
            let (p, asleep) = (p.clone(), asleep.clone());
            std::thread::spawn(move || {
                while !asleep.load(Ordering::SeqCst) {
                    p.park(None);
                }
            })
        };
        let awake = |n: u32| format!("{s:?}").contains(&format!("awake: {n}"));
        while !awake(0) || p.state.load(SeqCst) != ASLEEP {
            std::thread::yield_now();
        }
        asleep.store(true, Ordering::SeqCst);
        p.unpark();
        assert!(awake(1));
        t.join().unwrap();
        assert!(awake(1));
    }
}
