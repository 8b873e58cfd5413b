use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

const P: u64 = PAGE_SIZE;

#[test]
fn frames_read_as_zeros_when_reused() {
    let c = Clas::new().unwrap();
    let a = c.allocate(4, None).unwrap();
    c.slice(a, 5).copy_from(b"hello");
    c.decref(a, 4);
    let b = c.allocate(4, None).unwrap();
    assert_eq!(a, b);
    let mut buf = [1u8; 5];
    c.slice(b, 5).copy_to(&mut buf);
    assert_eq!(buf, [0; 5]);
}

#[test]
fn small_runs_stay_in_memory_and_read_as_zeros() {
    let c = Clas::new().unwrap();
    let page = [7u8; 4096];
    let resident = |at: Cla, pages: usize| {
        let mut r = vec![0u8; pages];
        c.residency(at, &mut r);
        r.iter().filter(|b| **b & 1 != 0).count()
    };
    let fill = |at: Cla, pages: u64| {
        (0..pages).for_each(|i| assert_eq!(c.slice(at.add(i * P), 4096).copy_from(&page), 4096))
    };
    let zero = |at: Cla, pages: u64| {
        let mut buf = vec![1u8; (pages * P) as usize];
        c.slice(at, buf.len()).copy_to(&mut buf);
        assert!(buf.iter().all(|b| *b == 0));
    };
    let a = c.allocate(16, None).unwrap();
    assert!(!c.was_written(a, 16));
    fill(a, 16);
    assert!(c.was_written(a, 16) && c.was_written(a.add(15 * P), 1));
    c.decref(a, 16);
    assert_eq!(resident(a, 16), 16);
    assert_eq!(c.inner.lock().kept.pages(), 16);
    // A part of it is used again.
    let b = c.allocate(4, None).unwrap();
    assert_eq!(c.inner.lock().kept.pages(), 12);
    zero(b, 4);
    fill(b, 1);
    c.decref(b, 4);
    // Kept: only what was in memory as a whole.
    let n = c.inner.lock().kept.pages();
    assert!(n == 16 || n == 12);
    // For a copy, what is in memory is best.
    let copy = c.copy_of(a, 2, PlacementHint::default()).unwrap();
    assert!(c.inner.lock().kept.pages() < n);
    c.decref(copy, 2);
    // Long ones, and those with holes, are given back.
    let long = c.allocate(300, None).unwrap();
    fill(long, 300);
    c.decref(long, 300);
    assert_eq!(resident(long, 300), 0);
    // Not more than there may be.
    let runs: Vec<Cla> = (0..60).map(|_| c.allocate(16, None).unwrap()).collect();
    for r in &runs {
        fill(*r, 16);
    }
    for r in runs {
        c.decref(r, 16);
    }
    assert!(c.inner.lock().kept.pages() <= 512);
    assert!(c.stats().resident <= 512 * P);
    assert_eq!(c.stats().allocated, 0);
    let all = c.allocate(1000, None).unwrap();
    zero(all, 1000);
}

#[test]
fn who_finds_no_room_waits_for_what_ends() {
    let c = Clas::with_limit(8 * P).unwrap();
    let a = c.allocate(8, None).unwrap();
    assert_eq!(c.allocate(1, None), Err(ENOMEM));
    c.is_ending();
    let other = c.clone();
    let t = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        other.decref(a, 8);
        other.has_ended();
    });
    c.await_room(4 * P, &Waiter::default()).unwrap();
    assert!(c.allocate(4, None).is_ok());
    t.join().unwrap();
    assert_eq!(c.allocate(5, None), Err(ENOMEM));
}

#[test]
fn huge_pages_keep_contents() {
    let c = Clas::new().unwrap();
    let a = c.allocate_near(2048, None, None, Va(0)).unwrap();
    assert_eq!(a.0 % huge::LEN, 0);
    c.slice(a.add(5), 5).copy_from(b"hello");
    let in_memory = || {
        let mut r = [0u8; 2048];
        c.residency(a, &mut r);
        r.iter().filter(|b| **b & 1 != 0).count()
    };
    // Less than a whole one.
    c.make_huge(a.add(1), a.add(2 * huge::LEN - 1));
    assert_eq!(in_memory(), 1);
    // Where somebody writes already, nothing is made. (Elsewhere neither, where the host cannot, or
    // is slow.)
    c.make_huge(a, a.add(2048 * P));
    let n = in_memory();
    assert!((1..=1 + 3 * 512).contains(&n), "{n}");
    // Where the host can, and is quick often enough, some are made.
    let scratch = c.allocate_near(512, None, None, Va(0)).unwrap();
    c.slice(scratch, 1).copy_from(b"x");
    let can = hostcall::mem::collapse(c.slice(scratch, huge::LEN as usize)).is_ok();
    c.decref(scratch, 512);
    let made = || {
        let a = c.allocate_near(512, None, None, Va(0)).unwrap();
        c.make_huge(a, a.add(huge::LEN));
        let made = c.is_full(a.add(511 * P), 1);
        c.decref(a, 512);
        made
    };
    assert!(!can || (0..2000).any(|_| made()));
    let mut buf = [0u8; 5];
    c.slice(a.add(5), 5).copy_to(&mut buf);
    assert_eq!(&buf, b"hello");
    c.decref(a, 2048);
    assert_eq!(c.stats().allocated, 0);
    let b = c.allocate_near(2048, None, None, Va(0)).unwrap();
    let mut buf = vec![1u8; 8 << 20];
    c.slice(b, buf.len()).copy_to(&mut buf);
    assert!(buf.iter().all(|b| *b == 0));
}

#[test]
fn guesses_do_not_wait_and_others_not_for_ever() {
    let c = Clas::with_limit(8 * P).unwrap();
    let a = c.allocate(8, None).unwrap();
    c.is_ending();
    let start = Instant::now();
    assert_eq!(c.allocate_near(2, None, None, Va(0)), Err(ENOMEM));
    assert_eq!(c.copy_of(a, 1, PlacementHint::default()), Err(ENOMEM));
    assert!(start.elapsed() < Duration::from_secs(1));
    // Others that end, and give nothing: one deadline.
    let other = c.clone();
    let t = std::thread::spawn(move || {
        for _ in 0..30 {
            other.is_ending();
            other.has_ended();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(c.await_room(P, &Waiter::default()), Err(ENOMEM));
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_millis(2900));
    t.join().unwrap();
}

#[test]
fn mappings_are_counted() {
    let c = Clas::new().unwrap();
    assert!(c.take_mappings(MAPPINGS - 1));
    assert!(!c.take_mappings(2));
    assert!(c.take_mappings(1));
    c.give_mappings(5);
    assert!(c.take_mappings(5) && !c.take_mappings(1));
}

#[test]
fn references_and_limit() {
    let c = Clas::with_limit(8 * P).unwrap();
    let a = c.allocate(8, None).unwrap();
    assert_eq!(c.allocate(1, None), Err(ENOMEM));
    c.incref(a.add(2 * P), 2);
    assert!(!c.is_exclusive(a, 8));
    assert_eq!(c.exclusive_prefix(a, 8), 2);
    c.decref(a, 8);
    assert_eq!(c.stats().allocated, 2 * P);
    assert!(c.is_exclusive(a.add(2 * P), 2));
    c.decref(a.add(2 * P), 2);
    assert_eq!(c.stats().allocated, 0);
    assert_eq!(c.inner.lock().free.largest(), STEP / P);
}

#[test]
fn neighbours_meet() {
    let c = Clas::new().unwrap();
    let va = Va(0x7000_0000_3000);
    let a = c.allocate_near(16, None, None, va).unwrap();
    assert_eq!(a.0 % (2 << 20), va.0 % (2 << 20));
    assert_eq!(
        c.allocate_near(4, Some(a), None, va).unwrap(),
        Cla(a.0 - 4 * P)
    );
    assert_eq!(
        c.allocate_near(4, Some(a), Some(a.add(16 * P)), va)
            .unwrap(),
        a.add(16 * P)
    );
    assert_eq!(
        c.allocate(3, Some(Cla(a.0 - 4 * P))).unwrap(),
        Cla(a.0 - 7 * P)
    );
    // Larger than a step.
    let big = c.allocate(3 * STEP / P, None).unwrap();
    c.slice(Cla(big.0 + 3 * STEP - 1), 1).copy_from(b"x");
}

struct Seen(Mutex<Vec<(u64, u64)>>);
impl MappingObserver for Seen {
    fn invalidate(&self, places: &[(Va, u64)]) {
        self.0
            .lock()
            .extend(places.iter().map(|(va, len)| (va.0, *len)));
    }
}

#[test]
fn registry_splits() {
    let seen = Arc::new(Seen(Mutex::new(Vec::new())));
    let dynamic: Arc<dyn MappingObserver> = seen.clone();
    let weak = Arc::downgrade(&dynamic);
    let r = MappingRegistry::new();
    r.add(weak.clone(), Va(100 * P), 10 * P, 10 * P);
    r.remove(&weak, Va(103 * P), 13 * P, 2 * P);
    r.invalidate(0, u64::MAX);
    assert_eq!(
        std::mem::take(&mut *seen.0.lock()),
        vec![(100 * P, 3 * P), (105 * P, 5 * P)]
    );
    r.invalidate(12 * P, 4 * P);
    assert_eq!(
        std::mem::take(&mut *seen.0.lock()),
        vec![(102 * P, P), (105 * P, P)]
    );
    r.remove(&weak, Va(0), 0, 200 * P);
    assert!(r.is_empty());
}

proptest! {
    /// Counts agree with a naive array, whatever is done.
    #[test]
    fn counts_agree(ops in prop::collection::vec((0u8..3, 0usize..64, 1usize..16), 1..200)) {
        let c = Clas::new().unwrap();
        let mut runs: Vec<(Cla, u64)> = Vec::new();
        for (op, i, n) in ops {
            match op {
                0 => runs.push((c.allocate_near(n as u64, runs.last().map(|r| r.0), None, Va(0)).unwrap(), n as u64)),
                1 if !runs.is_empty() => {
                    let (a, l) = runs[i % runs.len()];
                    let k = (n as u64).min(l);
                    c.incref(a, k);
                    runs.push((a, k));
                }
                _ if !runs.is_empty() => {
                    let (a, l) = runs.swap_remove(i % runs.len());
                    c.decref(a, l);
                }
                _ => {}
            }
            let mut count = std::collections::BTreeMap::new();
            for (a, l) in &runs {
                for p in 0..*l {
                    *count.entry(a.0 / P + p).or_insert(0u32) += 1;
                }
            }
            prop_assert_eq!(c.stats().allocated / P, count.len() as u64);
            for (p, n) in count {
                prop_assert_eq!(c.is_exclusive(Cla(p * P), 1), n == 1);
            }
        }
    }
}

/// What is filled does not stay in the Sentry's own page tables.
#[test]
fn the_view_of_what_was_filled_is_dropped() {
    fn shared() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(2).unwrap().parse::<u64>().unwrap() * PAGE_SIZE
    }
    const MB: u64 = 1 << 20;
    let c = Clas::new().unwrap();
    c.limit_view(8 * MB);
    let at = c.allocate(64 * MB / PAGE_SIZE, None).unwrap();
    let before = shared();
    for n in 0..64 {
        c.slice(at.add(n * MB), MB as usize)
            .copy_from(&[7; MB as usize]);
    }
    let grown = shared().saturating_sub(before);
    // (Other tests fill memory meanwhile, little of it.)
    assert!(grown < 32 * MB, "{grown}");
    let mut last = [0];
    c.slice(at, 1).copy_to(&mut last);
    assert_eq!(last, [7]);
}
