//! Guesses: what they save, and that they change nothing.

use super::*;
use crate::Writers;
use abi::linux::*;
use vfs::ucounts::Kind;

const RW: u32 = PROT_READ | PROT_WRITE;

fn mapped(a: &App) -> usize {
    a.space.pages.lock().len()
}

#[test]
fn what_is_not_touched_is_not_mapped() {
    let a = App::new(&Clas::new().unwrap());
    for _ in 0..50 {
        a.anon(P, RW, 0).unwrap();
    }
    assert!(mapped(&a) < 5);
    // It can be touched all the same, and then the next is mapped again.
    let late = a.anon(3 * P, RW, 0).unwrap();
    a.store(late.0 + P, 7).unwrap();
    assert_eq!(a.load(late.0 + P), Ok(7));
    let before = mapped(&a);
    a.anon(2 * P, RW, 0).unwrap();
    a.anon(2 * P, RW, 0).unwrap();
    assert!(mapped(&a) > before);
    // What was never mapped is not mapped by a neighbour.
    let (vma, lowest) = (a.mm.vmas(), a.mm.vmas()[0].start);
    assert_eq!(vma.len(), 1);
    assert!(a.load(lowest - P).is_err());
    a.check();
}

/// An anonymous mapping that is to be filled from its first whole huge page on.
fn to_fill(a: &App, len: u64) -> u64 {
    a.anon(len, RW, 0).unwrap().0.next_multiple_of(2 << 20)
}

/// Writes, with a fault first where the host has no page.
fn write_at(a: &App, va: u64, bytes: &[u8]) {
    if !a.space.pages.lock().contains_key(&(va / P)) {
        a.store(va, 1).unwrap();
    }
    a.mm.copy_out(Va(va), bytes).unwrap();
}

/// Whether a touch of shared memory may bring a huge page, whatever we do.
fn host_makes_huge_pages() -> bool {
    let at = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    std::fs::read_to_string(at).is_ok_and(|s| {
        !["[never]", "[advise]", "[deny]"]
            .iter()
            .any(|w| s.contains(w))
    })
}

#[test]
fn steps_grow_where_memory_is_filled() {
    let clas = Clas::new().unwrap();
    let a = App::new(&clas);
    let len = 60u64 << 20;
    let at = to_fill(&a, len);
    let page = [1u8; P as usize];
    let before = a.mm.sizes().faults;
    for i in 0..(50 << 20) / P {
        write_at(&a, at + i * P, &page);
        if i % 100 == 0 {
            // Little more is in memory than was touched.
            let (touched, there) = (i * P, clas.stats().resident);
            assert!(
                there <= touched + (touched / 8).max(2 << 20) + (2 << 20),
                "{there} of {touched}"
            );
        }
    }
    let faults = a.mm.sizes().faults - before;
    assert!((10..=25).contains(&faults), "{faults} faults");
    a.mm.munmap(Va(at), 4 << 20).unwrap();
    assert!(a.load(at + P).is_err());
    a.check_but_references();

    // Filled, and unmapped behind: little more than is there.
    let clas = Clas::new().unwrap();
    let d = App::new(&clas);
    let at = to_fill(&d, 200 << 20);
    for i in 0..(180 << 20) / P {
        write_at(&d, at + i * P, &page);
        if i >= 1024 && i % 512 == 0 {
            d.mm.munmap(Va(at + (i - 1024) * P), 512 * P).unwrap();
            let there = clas.stats().resident;
            assert!(there <= 8 << 20 || host_makes_huge_pages(), "{there}");
        }
    }

    // Filled at first, then a word here and there: what nobody has written is no reason for more.
    let clas = Clas::new().unwrap();
    let c = App::new(&clas);
    let at = to_fill(&c, 200 << 20);
    for i in 0..(4 << 20) / P {
        write_at(&c, at + i * P, &page);
    }
    for i in 2..90 {
        write_at(&c, at + (i << 21), &[1]);
    }
    let there = clas.stats().resident;
    assert!(there <= 10 << 20 || host_makes_huge_pages(), "{there}");

    // Here and there: small steps.
    let b = App::new(&Clas::new().unwrap());
    let at = b.anon(len, RW, 0).unwrap();
    for i in 0..5 {
        b.store(at.0 + (i << 22), 1).unwrap();
    }
    assert!(mapped(&b) as u64 * P <= 10 << 20);
    b.check();
}

#[test]
fn fork_learns_what_children_write() {
    let a = App::new(&Clas::new().unwrap());
    let at = a.anon(64 * P, RW, 0).unwrap().0;
    let other = a.anon(8 * P, PROT_READ, 0).unwrap().0;
    for i in 0..64 {
        a.store(at + i * P, i as u8).unwrap();
    }
    let run = |n: u8| {
        let c = a.fork();
        c.store(at + 5 * P, n).unwrap();
        c.store(at + 40 * P, n).unwrap();
        assert_eq!(c.load(other), Ok(0));
        a.store(at + 6 * P, n).unwrap();
        assert_eq!(
            (c.load(at + 6 * P), a.load(at + 5 * P)),
            (Ok(if n == 1 { 6 } else { n - 1 }), Ok(5))
        );
        c.check();
        a.check();
        c.mm.sizes().faults
    };
    assert!(run(1) >= 3);
    run(2);
    for n in 3..100 {
        let faults = run(n);
        // Places are forgotten in the end, and learned again.
        assert!(faults == 0 || n > 60, "{faults} faults of child {n}");
    }
    // With other threads nothing is copied before a fault, but all is still right.
    let space = Arc::new(FakeSpace::default());
    let mm = a.mm.fork(space.clone(), Writers::Others, None).unwrap();
    let c = App { mm, space };
    c.store(at + 5 * P, 200).unwrap();
    assert_eq!((a.load(at + 5 * P), c.load(at + 5 * P)), (Ok(5), Ok(200)));
    a.check();
    c.check();
}

#[test]
fn a_copy_for_fork_that_nobody_inherits_is_given_back() {
    let clas = Clas::new().unwrap();
    let a = App::new(&clas);
    let at = a.anon(8 * P, RW, 0).unwrap();
    a.store(at.0, 1).unwrap();
    a.fork().store(at.0, 2).unwrap();
    a.store(at.0, 3).unwrap();
    a.mm.madvise(at, 8 * P, MADV_DONTFORK).unwrap();
    drop(a.fork());
    a.mm.madvise(at, 8 * P, MADV_DOFORK).unwrap();
    a.mm.madvise(at, 8 * P, MADV_WIPEONFORK).unwrap();
    let c = a.fork();
    assert_eq!(c.load(at.0), Ok(0));
    c.check();
    a.check();
    drop(c);
    assert_eq!(clas.stats().allocated, 8 * P);
    assert_eq!(a.load(at.0), Ok(3));
}

#[test]
fn files_that_are_read_soon_are_mapped_at_once() {
    let clas = Clas::new().unwrap();
    let a = App::new(&clas);
    let f = TestFile::host(&clas, 4 * P);
    f.put(0, b"x");
    let map = || a.map(Va(0), P, PROT_READ, 0, Some(f.file())).unwrap().0;
    for _ in 0..20 {
        map();
    }
    assert_eq!(mapped(&a), 0);
    for _ in 0..20 {
        assert_eq!(a.load(map()), Ok(b'x'));
    }
    let faults = a.mm.sizes().faults;
    for _ in 0..8 {
        assert_eq!(a.load(map()), Ok(b'x'));
    }
    assert!(a.mm.sizes().faults - faults <= 1);
    a.check();
}

#[test]
fn frames_that_stay_in_memory_do_not_look_touched() {
    let clas = Clas::new().unwrap();
    let a = App::new(&clas);
    // What was just in use stays in memory.
    let at = a.anon(16 * P, RW, 0).unwrap();
    a.mm.copy_out(at, &[1; 16 * P as usize]).unwrap();
    a.mm.munmap(at, 16 * P).unwrap();
    let mut mapped_at_once = 0;
    for _ in 0..200 {
        let at = a.anon(16 * P, RW, 0).unwrap();
        mapped_at_once += usize::from(mapped(&a) > 0);
        a.mm.munmap(at, 16 * P).unwrap();
    }
    assert!(mapped_at_once < 60, "{mapped_at_once} of 200");
}

#[test]
fn frames_of_a_process_that_dies_are_not_given_to_others() {
    let clas = Clas::new().unwrap();
    let a = App::new(&clas);
    let at = a.anon(16 * P, RW, 0).unwrap();
    a.store(at.0, 1).unwrap();
    a.space.ended.store(true, Ordering::Relaxed);
    let before = clas.stats().allocated;
    // Its host mappings are as they were, for a moment.
    a.mm.munmap(at, 16 * P).unwrap();
    a.anon(16 * P, RW, 0).unwrap();
    assert!(clas.stats().allocated >= before);
    let space = a.space.clone();
    drop(a);
    assert!(clas.stats().allocated >= before);
    let late = std::mem::take(&mut *space.late.lock());
    late.into_iter().for_each(|then| then());
    assert_eq!(clas.stats().allocated, 0);
}

/// Many areas are their user's memory, and so are the copies that fork makes.
#[test]
fn many_areas_are_charged() {
    let clas = Clas::new().unwrap();
    let u = vfs::Credentials::user(77_160, 77_160, vec![]);
    let u = u.ucounts();
    let held = || u.count(Kind::Kmem) as u64;
    let a = App::new(&clas);
    a.mm.charge_to(u);
    let base = 0x1000_0000;
    for i in 0..10_000 {
        let prot = if i % 2 == 0 { PROT_READ } else { PROT_NONE };
        a.map(Va(base + i * P), P, prot, MAP_ANONYMOUS | MAP_FIXED, None)
            .unwrap();
    }
    let one = held();
    assert!((500_000..5_000_000).contains(&one), "{one}");
    let fork = || {
        let space = Arc::new(FakeSpace::default());
        a.mm.fork(space, Writers::None, Some(u))
    };
    let child = fork().unwrap();
    assert!(held() >= 2 * one - 300_000);
    drop(child);
    assert_eq!(held(), one);
    let rest = vfs::userns::UserNs::default().limits().get(Kind::Kmem) as u64;
    let full = u.force(Kind::Kmem, rest - one);
    assert_eq!(fork().err(), Some(abi::errno::ENOMEM));
    drop(full);
    a.mm.munmap(Va(base), 10_000 * P).unwrap();
    assert!(held() < 500_000);
    drop(a);
    assert_eq!(held(), 0);
}

#[test]
fn many_mappings_are_the_containers() {
    let clas = Clas::new().unwrap();
    // Others have nearly all.
    assert!(clas.take_mappings(clas::MAPPINGS - 3000));
    let a = App::new(&clas);
    // Such that do not merge.
    let base = 0x1000_0000;
    let map = |a: &App, i: u64| {
        let prot = if i.is_multiple_of(2) {
            PROT_READ
        } else {
            PROT_NONE
        };
        a.map(Va(base + i * P), P, prot, MAP_ANONYMOUS | MAP_FIXED, None)
    };
    let mut n = 0;
    while map(&a, n).is_ok() {
        n += 1;
    }
    let own = OWN_MAPPINGS as u64;
    assert!((own + 2990..=own + 3000).contains(&n), "{n}");
    assert!(!clas.take_mappings(20));
    // A child would have as many.
    let space = Arc::new(FakeSpace::default());
    assert_eq!(
        a.mm.fork(space, Writers::None, None).err(),
        Some(abi::errno::ENOMEM)
    );
    a.mm.munmap(Va(base), 5000 * P).unwrap();
    assert!(clas.take_mappings(2900));
    clas.give_mappings(2900);
    for i in 0..4990 {
        map(&a, i).unwrap();
    }
    drop(a);
    assert!(clas.take_mappings(3000));
}
