use super::*;
use std::sync::Arc;

const P: u64 = PAGE_SIZE;

fn filled(pages: u64, limit: u64, swap: u64) -> (Arc<Clas>, Cla) {
    let c = Clas::with_limit(limit * P).unwrap();
    c.swap_in_memory(swap * P).unwrap();
    let at = c.allocate(pages, None).unwrap();
    for i in 0..pages {
        c.slice(at.add(i * P), PAGE)
            .copy_from(&vec![i as u8 + 1; PAGE]);
    }
    (c, at)
}

fn first_byte(c: &Clas, at: Cla, page: u64) -> u8 {
    let mut b = [0];
    c.slice(at.add(page * P), 1).copy_to(&mut b);
    b[0]
}

#[test]
fn what_goes_out_makes_room_and_comes_back() {
    let (c, at) = filled(40, 40, 100);
    assert_eq!(c.allocate(1, None), Err(ENOMEM));
    assert_eq!(c.send_out(at, 30), 30);
    assert_eq!(c.stats().resident, 10 * P);
    assert_eq!(c.swap_stats().used, 30 * P);
    let other = c.allocate(30, None).unwrap();
    assert_eq!(c.bring_in(at, 1), Err(ENOMEM));
    c.decref(other, 30);
    for i in 0..40 {
        c.bring_in(at.add(i * P), 1).unwrap();
        assert_eq!(first_byte(&c, at, i), i as u8 + 1);
    }
    assert_eq!(c.swap_stats().used, 0);
    assert_eq!(c.allocate(1, None), Err(ENOMEM));
    c.decref(at, 40);
    assert_eq!(c.stats().allocated, 0);
}

#[test]
fn a_full_swap_takes_what_it_can() {
    let (c, at) = filled(40, 40, 20);
    assert_eq!(c.send_out(at, 40), 20);
    assert!(!c.can_swap() && c.has_swap());
    assert_eq!(c.send_out(at.add(20 * P), 20), 0);
    assert_eq!(first_byte(&c, at, 25), 26);
    // Freed frames take their slots along.
    c.decref(at, 40);
    assert_eq!(c.swap_stats().used, 0);
    assert_eq!(c.swap_stats().memory, 0);
    let b = c.allocate(40, None).unwrap();
    assert_eq!(first_byte(&c, b, 5), 0);
    c.decref(b, 40);
}

#[test]
fn who_comes_second_waits_and_finds_it() {
    let (c, at) = filled(64, u64::MAX / P, 100);
    for _ in 0..50 {
        assert_eq!(c.send_out(at, 64), 64);
        std::thread::scope(|s| {
            for t in 0..4 {
                let c = &c;
                s.spawn(move || {
                    for i in (0..64).map(|i| (i + t * 7) % 61) {
                        c.bring_in(at.add(i * P), 4).unwrap();
                        assert_eq!(first_byte(c, at, i + 3), i as u8 + 4);
                    }
                });
            }
        });
        assert_eq!(c.swap_stats().used, 0);
    }
    c.decref(at, 64);
}

#[test]
fn what_nobody_touched_takes_no_swap() {
    let c = Clas::with_limit(200 * P).unwrap();
    c.swap_in_memory(10 * P).unwrap();
    let at = c.allocate(200, None).unwrap();
    c.slice(at, 1).copy_from(&[1]);
    // A page, and zeros as far as the table may grow.
    let went = (0..20)
        .map(|i| c.send_out(at.add(i * 10 * P), 10))
        .sum::<u64>();
    assert!((160..=180).contains(&went), "{went}");
    assert_eq!(c.swap_stats().used, P);
    c.bring_in(at, 10).unwrap();
    assert_eq!((first_byte(&c, at, 0), first_byte(&c, at, 1)), (1, 0));
    assert_eq!(c.swap_stats().used, 0);
    c.decref(at, 200);
    assert_eq!(c.stats().allocated, 0);
}

/// What is here between what is away, over the borders of the table's chunks.
#[test]
fn the_next_that_are_here() {
    let mut t = Table::default();
    for page in (500..520).chain(1024..1536).chain(1600..1601) {
        t.set(page, State::Zeros);
    }
    for end in [505, 1030, 1700, 4000] {
        for start in (490..530).chain(1020..1030).chain(1530..1610) {
            for is_here in [true, false] {
                let fits = |p: &u64| (t.get(*p) == State::Here) == is_here;
                let want = (start..end).find(fits);
                assert_eq!(
                    t.first(start, end, is_here),
                    want,
                    "{start} {end} {is_here}"
                );
            }
        }
    }
}
