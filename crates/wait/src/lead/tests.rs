//! A leader beside a service thread, whose work is parkers to be woken.

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
    p.forget();
}

fn lead(items: &Arc<Items>, p: &Arc<Parker>) {
    let until = Instant::now() + LONG;
    while Instant::now() < until {
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
    let items = Arc::new(Items::default());
    let p = parker();
    let work = Lead::new(Box::new(Shared(items.clone())));
    let put = |n| items.all.lock().0.extend((0..n).map(|_| p.clone()));
    put(3);
    // The service thread is at it, and so nobody else; but who has to know.
    assert!(!work.catch_up(Ask::Quickly));
    assert!(work.catch_up(Ask::Surely));
    assert_eq!((items.done(), work.seat.holder()), (3, SERVICE));
    assert!(!work.catch_up(Ask::Surely));
    work.seat.put(FREE);
    work.streak.store(ENOUGH, SeqCst);
    assert!(!work.catch_up(Ask::Quickly));
    assert_eq!(work.seat.holder(), FREE);
    put(2);
    assert!(work.catch_up(Ask::Quickly));
    assert_eq!((items.done(), work.seat.holder()), (4, FREE));
    assert_eq!(items.last_by(), Some(std::thread::current().id()));
    // Another was woken: the service thread is to go on.
    items.all.lock().0.push_front(parker());
    assert!(work.catch_up(Ask::Quickly));
    assert_eq!(work.seat.holder(), SERVICE);
    // Not while somebody leads.
    work.seat.put(address(&p));
    assert!(!work.catch_up(Ask::Surely));
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

/// Work that never ends, and wakes nobody: a flood.
struct Flood {
    begun: AtomicUsize,
    is_on: AtomicUsize,
}

impl Work for Arc<Flood> {
    fn work(&self) -> Worked {
        if self.is_on.load(SeqCst) == 0 {
            return Worked::Nothing;
        }
        self.begun.fetch_add(1, SeqCst);
        Worked::Something
    }
    fn sleep(&self, most: Option<Duration>, _: Role) {
        std::thread::sleep(most.unwrap_or(LONG).min(Duration::from_millis(1)));
    }
    fn ring(&self) {}
}

#[test]
fn a_flood_puts_off_neither_a_deadline_nor_a_wake_up() {
    let flood = Arc::new(Flood {
        begun: AtomicUsize::new(0),
        is_on: AtomicUsize::new(1),
    });
    // (Without a service thread, which would go on for ever.)
    let (lead, p) = (Lead::new(Box::new(flood.clone())), parker());
    let earn = || {
        lead.seat.put(SERVICE);
        for _ in 0..ENOUGH {
            lead.woke(&p);
        }
    };
    earn();
    let (began, most) = (Instant::now(), Duration::from_millis(20));
    assert!(!p.park(Some(began + most)));
    assert!(flood.begun.swap(0, SeqCst) != 0, "it led");
    assert!(began.elapsed() >= most && began.elapsed() < LONG / 2);
    // The service thread is to go on.
    assert_eq!(lead.seat.holder(), SERVICE);
    earn();
    let other = p.clone();
    let t = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        other.unpark_now();
    });
    assert!(p.park(Some(Instant::now() + LONG)));
    t.join().unwrap();
    assert!(flood.begun.load(SeqCst) != 0, "it led");
    assert_eq!(lead.seat.holder(), FREE);
    // Too near to its end to lead: nobody is left waiting for a tick.
    assert!(!p.park(Some(Instant::now() + EXACT_LESS)));
    assert_eq!(lead.seat.holder(), SERVICE);
}

const EXACT_LESS: Duration = Duration::from_micros(100);

#[test]
fn turns_that_others_end_become_dear() {
    let (lead, p, other) = (
        Lead::new(Box::new(Shared(Arc::default()))),
        parker(),
        parker(),
    );
    // A program that has itself woken beside another that is woken now and then.
    for n in 0..6 {
        for _ in 0..ENOUGH << n {
            assert!(!lead.is_for(&p));
            lead.woke(&p);
        }
        assert!(lead.is_for(&p));
        lead.woke(&other);
        assert!(!lead.has_one());
    }
    // Long turns make it cheap again.
    for _ in 0..20 {
        for _ in 0..2 * WORTH * ENOUGH_MOST {
            lead.woke(&p);
        }
        lead.woke(&other);
    }
    assert_eq!(lead.enough.load(SeqCst), ENOUGH);
}

/// What comes while a leader comes and goes, but works on other things, waits for a tick.
#[test]
fn a_leader_that_comes_and_goes_keeps_nobody_waiting() {
    let (items, p) = (Items::new(), parker());
    lead(&items, &p);
    let end = Instant::now() + Duration::from_millis(200);
    let mut worst = Duration::ZERO;
    while Instant::now() < end {
        let n = items.done();
        items.put(&p);
        let began = Instant::now();
        while items.done() == n && began.elapsed() < LONG {
            std::thread::yield_now();
        }
        worst = worst.max(began.elapsed());
        p.park(Some(Instant::now() + Duration::from_millis(3)));
    }
    // (The scheduler's part is not ours.)
    assert!(worst < Duration::from_millis(100), "{worst:?}");
}
