//! A sleeper that does the work for which it would be woken.
//!
//! Work comes from outside: frames by a network device. A service thread does it, and wakes the
//! tasks that wait for what it brings. Where it wakes the same task again and again, that task's
//! thread does the work itself while it is parked, as *leader*: one wake-up less for each answer,
//! and what came is still in its processor's cache.
//!
//! # Who does it
//!
//! ```text
//!            a task parks                   it is woken
//!   SERVICE ──────────────► the leader ──────────────────► FREE
//!    ▲  ▲                       │ woke another               │
//!    │  └───────────────────────┘                            │ within two ticks
//!    └───────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - One thread works at a time: who is in `holder`. (The service thread may be at the end of its
//!   turn when a leader begins; [`Work`] has a lock of its own.)
//! - A task leads only within [`crate::Parker::park`], and leaves before that returns: what it does
//!   afterwards, and for how long, keeps nobody's work from being done. It takes no lock there that
//!   a sleeper may hold.
//! - Work that comes while nobody leads waits for two [`TICK`]s at most: as long as leaders come and
//!   go the service thread looks each [`TICK`], and works where none has come since the last one.
//!   Who asks before that finds it done ([`Lead::catch_up`]). Once they do not come and go any more, it sleeps for the work itself, or is woken by the leader that leaves.
//! - A task leads only if the last [`ENOUGH`] wake-ups by the work were all its own. Another's ends
//!   that at once: those that wait beside it are not left waiting for a tick each time.
//! - What wakes a leader for another reason (a signal, its end, another object) rings: see
//!   [`Work::ring`]. A ring that nobody needs any more only ends a later sleep early.

use crate::Parker;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

/// How many wake-ups in a row make a leader.
const ENOUGH: u32 = 16;
/// How often the service thread looks whether somebody leads.
const TICK: Duration = Duration::from_micros(500);
/// After so many ticks without a new leader the service thread sleeps until the one that there is
/// leaves.
const QUIET: u32 = 40;

/// Before it is tried again, where that failed.
const PAUSE: Duration = Duration::from_millis(100);

const FREE: usize = 0;
const SERVICE: usize = 1;
/// Somebody who makes a call, for a moment.
const CALLER: usize = 2;

/// What became of an attempt to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worked {
    /// There was nothing to do.
    Nothing,
    /// There may be more.
    Something,
    /// It cannot be done now.
    Failed,
}

/// Work that comes from outside.
pub trait Work: Send + Sync {
    /// Does a little of what is to be done, if anything is. Does not wait for more.
    fn work(&self) -> Worked;
    /// Sleeps until there is something to do, or it is rung, or the time is over. The service thread
    /// sleeps without limit, and is not rung.
    fn sleep(&self, most: Option<Duration>, by: Role);
    /// Ends the leader's sleep, or the next one if there is none.
    fn ring(&self);
}

/// Whose sleep it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Service,
    Leader,
}

/// See the module.
pub struct Lead {
    work: Box<dyn Work>,
    /// [`FREE`], [`SERVICE`], [`CALLER`], or the leader's parker by its address.
    holder: AtomicUsize,
    /// How often a leader began.
    turns: AtomicU32,
    /// Whom the work woke last, by its parker's address, and how often in a row.
    woke: AtomicUsize,
    streak: AtomicU32,
    /// The service thread waits for a leader to leave.
    is_dormant: AtomicBool,
    service: Mutex<()>,
    left: Condvar,
}

thread_local! {
    /// The work that this thread is at.
    static AT: RefCell<Option<Arc<Lead>>> = const { RefCell::new(None) };
}

/// This thread wakes `p`: the work that it is at takes note of it.
pub(crate) fn note(p: &Parker) {
    AT.with(|at| {
        if let Ok(at) = at.try_borrow()
            && let Some(lead) = &*at
        {
            lead.woke(p);
        }
    });
}

fn address(p: &Parker) -> usize {
    std::ptr::from_ref(p).addr()
}

impl Lead {
    #[must_use]
    pub fn new(work: Box<dyn Work>) -> Arc<Lead> {
        Arc::new(Lead {
            work,
            holder: AtomicUsize::new(SERVICE),
            turns: AtomicU32::new(0),
            woke: AtomicUsize::new(0),
            streak: AtomicU32::new(0),
            is_dormant: AtomicBool::new(false),
            service: Mutex::new(()),
            left: Condvar::new(),
        })
    }

    /// Works for ever where no leader does: the service thread's.
    pub fn serve(self: &Arc<Self>) -> ! {
        let (mut seen, mut quiet) = (0, 0);
        loop {
            let turns = self.turns.load(SeqCst);
            let is_recent = std::mem::replace(&mut seen, turns) != turns;
            // A leader that has just left will soon be back.
            if is_recent || !(self.is_held_by(SERVICE) || self.pass(FREE, SERVICE)) {
                quiet = if is_recent { 0 } else { quiet + 1 };
                if !self.is_held_by(SERVICE) {
                    self.wait_for_leave(quiet >= QUIET);
                }
                continue;
            }
            match self.work_once() {
                Worked::Something => {}
                Worked::Failed => std::thread::sleep(PAUSE),
                Worked::Nothing => self.work.sleep(None, Role::Service),
            }
        }
    }

    /// Works where nobody leads just now: what has come before a call is made counts for it. Whether
    /// there was anything. The caller holds no lock that the work takes.
    pub fn catch_up(self: &Arc<Self>) -> bool {
        if !self.is_held_by(FREE) || !self.pass(FREE, CALLER) {
            return false;
        }
        let _turn = Turn {
            lead: self,
            hands_over: false,
        };
        self.work_once() == Worked::Something
    }

    fn pass(&self, from: usize, to: usize) -> bool {
        self.holder
            .compare_exchange(from, to, SeqCst, SeqCst)
            .is_ok()
    }

    fn is_held_by(&self, who: usize) -> bool {
        self.holder.load(SeqCst) == who
    }

    /// For a tick; or until it is told, however long that is.
    fn wait_for_leave(&self, is_quiet: bool) {
        let mut l = self.service.lock();
        if !is_quiet {
            self.left.wait_for(&mut l, TICK);
            return;
        }
        self.is_dormant.store(true, SeqCst);
        // One that has left before that did not see it.
        let is_led = || !self.is_held_by(FREE) && !self.is_held_by(SERVICE);
        while self.is_dormant.load(SeqCst) && is_led() {
            self.left.wait(&mut l);
        }
        self.is_dormant.store(false, SeqCst);
    }

    fn tell_service(&self) {
        let _l = self.service.lock();
        self.is_dormant.store(false, SeqCst);
        self.left.notify_one();
    }

    /// Works, and takes note of who is woken by it.
    pub(crate) fn work_once(self: &Arc<Self>) -> Worked {
        AT.with(|at| *at.borrow_mut() = Some(self.clone()));
        let worked = self.work.work();
        AT.with(|at| *at.borrow_mut() = None);
        worked
    }

    fn woke(self: &Arc<Self>, p: &Parker) {
        let it = address(p);
        if self.woke.load(Relaxed) != it {
            self.woke.store(it, Relaxed);
            self.streak.store(1, Relaxed);
            return;
        }
        let n = self.streak.load(Relaxed).saturating_add(1);
        self.streak.store(n, Relaxed);
        if n == ENOUGH {
            p.may_lead(self);
        }
    }

    /// Whether this is the one that the work wakes.
    pub(crate) fn is_for(&self, p: &Parker) -> bool {
        self.woke.load(Relaxed) == address(p) && self.streak.load(Relaxed) >= ENOUGH
    }

    /// The parker's thread leads from now on, if nobody else does.
    pub(crate) fn take(&self, p: &Parker) -> Option<Turn<'_>> {
        let me = address(p);
        if !self.is_for(p) || !(self.pass(FREE, me) || self.pass(SERVICE, me)) {
            return None;
        }
        self.turns.fetch_add(1, SeqCst);
        Some(Turn {
            lead: self,
            hands_over: true,
        })
    }

    pub(crate) fn sleep(&self, most: Option<Duration>) {
        self.work.sleep(most, Role::Leader);
    }

    pub(crate) fn ring(&self) {
        self.work.ring();
    }
}

/// A leader's turn, which ends when this is dropped.
pub(crate) struct Turn<'a> {
    lead: &'a Lead,
    /// Somebody else is to go on at once.
    hands_over: bool,
}

impl Turn<'_> {
    /// The leader has what it waited for, and is soon back; unless the work has woken others, too.
    pub fn leave(mut self, p: &Parker) {
        self.hands_over = !self.lead.is_for(p);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = if self.hands_over { SERVICE } else { FREE };
        self.lead.holder.store(next, SeqCst);
        if self.hands_over || self.lead.is_dormant.load(SeqCst) {
            self.lead.tell_service();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spin::{MaySpin, SeenAwake, Spinners};
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicUsize;
    use std::thread::ThreadId;
    use std::time::Instant;

    /// Work whose items are parkers to be woken.
    #[derive(Default)]
    struct Items {
        all: Mutex<(VecDeque<Arc<Parker>>, bool)>,
        some: Condvar,
        /// Who has done them.
        by: Mutex<Vec<ThreadId>>,
        leaders: AtomicUsize,
    }

    struct Shared(Arc<Items>);

    impl Work for Shared {
        fn work(&self) -> Worked {
            let item = self.0.all.lock().0.pop_front();
            let Some(p) = item else {
                return Worked::Nothing;
            };
            self.0.by.lock().push(std::thread::current().id());
            p.unpark();
            Worked::Something
        }
        fn sleep(&self, most: Option<Duration>, by: Role) {
            let mut a = self.0.all.lock();
            let is_leader = by == Role::Leader;
            if is_leader {
                assert_eq!(self.0.leaders.fetch_add(1, SeqCst), 0, "two leaders");
            }
            let until = Instant::now() + most.unwrap_or(Duration::from_secs(60));
            while a.0.is_empty() && !(is_leader && a.1) && Instant::now() < until {
                self.0.some.wait_until(&mut a, until);
            }
            if is_leader {
                a.1 = false;
                self.0.leaders.fetch_sub(1, SeqCst);
            }
        }
        fn ring(&self) {
            self.0.all.lock().1 = true;
            self.0.some.notify_all();
        }
    }

    impl Items {
        fn new() -> Arc<Items> {
            let items = Arc::new(Items::default());
            let lead = Lead::new(Box::new(Shared(items.clone())));
            std::thread::spawn(move || lead.serve());
            items
        }
        fn put(&self, p: &Arc<Parker>) {
            self.all.lock().0.push_back(p.clone());
            self.some.notify_all();
        }
        fn done(&self) -> usize {
            self.by.lock().len()
        }
        fn last_by(&self) -> Option<ThreadId> {
            self.by.lock().last().copied()
        }
    }

    fn parker() -> Arc<Parker> {
        let s = Arc::new(Spinners::new(4, MaySpin::WhereIdle));
        s.wakes(&SeenAwake::default());
        Arc::new(Parker::of_task(Some(s)))
    }

    const LONG: Duration = Duration::from_secs(20);

    /// Parks until so many are done.
    fn wait_for(items: &Items, p: &Parker, n: usize) {
        let until = Instant::now() + LONG;
        while items.done() < n {
            assert!(Instant::now() < until, "{} of {n}", items.done());
            p.park(Some(until));
        }
        p.park(Some(Instant::now()));
    }

    fn lead(items: &Arc<Items>, p: &Arc<Parker>) {
        for _ in 0..200 {
            let n = items.done();
            items.put(p);
            wait_for(items, p, n + 1);
            if items.last_by() == Some(std::thread::current().id()) {
                return;
            }
        }
        panic!("it never leads");
    }

    #[test]
    fn who_is_woken_again_and_again_leads() {
        let (items, p) = (Items::new(), parker());
        lead(&items, &p);
        // What comes while it does something else is done, soon.
        let n = items.done();
        for _ in 0..50 {
            items.put(&p);
        }
        let until = Instant::now() + LONG;
        while items.done() < n + 50 {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        assert_ne!(items.last_by(), Some(std::thread::current().id()));
    }

    #[test]
    fn a_leader_is_woken_by_others() {
        for pause in [0, 1, 60] {
            let (items, p) = (Items::new(), parker());
            lead(&items, &p);
            let other = p.clone();
            let t = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(pause));
                other.unpark_now();
            });
            assert!(p.park(Some(Instant::now() + LONG)));
            t.join().unwrap();
            assert_eq!(items.leaders.load(SeqCst), 0);
            // It has left: the service thread goes on, however long it has slept.
            let n = items.done();
            items.put(&p);
            let until = Instant::now() + LONG;
            while items.done() == n {
                assert!(Instant::now() < until);
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_deadline_ends_a_turn() {
        let (items, p) = (Items::new(), parker());
        lead(&items, &p);
        for ms in [0, 1, 2, 5, 30] {
            let (began, most) = (Instant::now(), Duration::from_millis(ms));
            assert!(!p.park(Some(began + most)));
            assert!(began.elapsed() >= most);
        }
        lead(&items, &p);
    }

    #[test]
    fn who_asks_finds_it_done() {
        let items = Items::new();
        let p = parker();
        // The service thread is at it, and so nobody else.
        let work = Lead::new(Box::new(Shared(items.clone())));
        assert!(!work.catch_up());
        work.holder.store(FREE, SeqCst);
        assert!(!work.catch_up());
        items.all.lock().0.extend([p.clone(), p.clone()]);
        assert!(work.catch_up());
        assert_eq!(items.last_by(), Some(std::thread::current().id()));
        assert!(work.is_held_by(FREE));
    }

    #[test]
    fn another_that_is_woken_ends_a_turn() {
        let (items, p, other) = (Items::new(), parker(), parker());
        lead(&items, &p);
        let me = std::thread::current().id();
        let (i, o) = (items.clone(), other.clone());
        let t = std::thread::spawn(move || {
            for n in 0..100 {
                std::thread::sleep(Duration::from_micros(n * 10));
                i.put(&o);
                assert!(o.park(Some(Instant::now() + LONG)));
            }
        });
        let n = items.done();
        while !t.is_finished() {
            p.park(Some(Instant::now() + Duration::from_millis(50)));
        }
        t.join().unwrap();
        let by = items.by.lock().clone();
        assert!(by[n..].iter().filter(|t| **t == me).count() <= 1);
    }
}
