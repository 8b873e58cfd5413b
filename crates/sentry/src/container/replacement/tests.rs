//! What policies plan.

use super::*;

const MB: u64 = 1 << 20;

/// An address space with so many MB, of which so many are old.
fn share(id: u64, here: u64, old: [u64; AGES]) -> Share {
    Share {
        id,
        here: here * MB,
        old: old.map(|n| n * MB),
        ..Share::default()
    }
}

fn sent(mb: u64, at_end: bool) -> SwapOut {
    SwapOut {
        bytes: mb * MB,
        at_end,
    }
}

/// Who is asked for what.
fn of(plan: &[Part]) -> Vec<(usize, u64, Pick)> {
    plan.iter().map(|p| (p.who, p.bytes / MB, p.pick)).collect()
}

#[test]
fn the_oldest_goes_first_whose_it_may_be() {
    let all = [
        share(1, 100, [10, 0, 0]),
        share(2, 50, [5, 5, 20]),
        Share {
            reserve: 40 * MB,
            ..share(3, 50, [0, 50, 0])
        },
    ];
    let p = policy(Replacement::Lru);
    let plan = [
        (1, 20, Pick::Older(3)),
        (1, 25, Pick::Older(2)),
        (2, 10, Pick::Older(2)),
        (0, 10, Pick::Older(1)),
        (1, 30, Pick::Older(1)),
        (2, 10, Pick::Older(1)),
    ];
    let made = of(&p.plan(&all, 4 * MB));
    assert_eq!(made[..6], plan);
    // Then the clock's hand goes round.
    assert_eq!(
        made[6..9],
        [(0, 100, Pick::Lap), (1, 50, Pick::Lap), (2, 10, Pick::Lap)]
    );
    // There is enough that is old; then a part of all goes before anybody looks again.
    let ends = |mb: u64| {
        let (bytes, here) = (mb * MB, 200 * MB);
        p.needs_ages(Need { bytes, here }, 70 * MB)
    };
    assert!(!ends(4) && !ends(100));
    p.gave(2, Pick::Older(1), sent(20, true));
    assert!(!ends(4) && ends(100) && !ends(100));
}

#[test]
fn the_clocks_hand_goes_on_where_it_was() {
    let all = [
        share(7, 10, [0; 3]),
        share(3, 20, [0; 3]),
        share(5, 0, [0; 3]),
    ];
    let p = policy(Replacement::Clock);
    let who =
        |p: &Arc<dyn Policy>| -> Vec<usize> { p.plan(&all, MB).iter().map(|p| p.who).collect() };
    assert_eq!(who(&p), [1, 0, 1, 0]);
    p.gave(3, Pick::Lap, sent(0, false));
    assert_eq!(who(&p), [1, 0, 1, 0]);
    p.gave(3, Pick::Lap, sent(1, true));
    p.gave(5, Pick::SecondChance, sent(1, true));
    assert_eq!(who(&p), [0, 1, 0, 1]);
    // It was in one that is gone.
    p.gave(8, Pick::Lap, sent(0, false));
    assert_eq!(who(&p), [1, 0, 1, 0]);
}

#[test]
fn less_important_ones_give_all_before() {
    let adj = |adj, s| Share { adj, ..s };
    let all = [
        adj(-500, share(1, 100, [0; 3])),
        adj(300, share(2, 10, [0; 3])),
        adj(0, share(3, 30, [0; 3])),
        adj(0, share(4, 10, [0; 3])),
    ];
    let p = policy(Replacement::Priority);
    let who =
        |bytes: u64| -> Vec<usize> { p.plan(&all, bytes * MB).iter().map(|p| p.who).collect() };
    assert_eq!(who(4), [1, 1]);
    assert_eq!(who(30), [1, 1, 2, 3, 2, 3]);
    assert_eq!(who(60), [1, 1, 2, 3, 2, 3, 0, 0]);
    // The others only where it is late.
    let rest = |late| -> Vec<usize> { p.rest(&all, late).iter().map(|p| p.who).collect() };
    assert_eq!((rest(false), rest(true)), (vec![1], vec![1, 2, 3, 0]));
}

#[test]
fn unasked_goes_what_was_long_unused() {
    let all = [share(1, 100, [10, 20, 30])];
    let p = policy(Replacement::WorkingSet);
    assert!(p.period().is_some());
    assert_eq!(of(&p.unasked(&all, 0.0)), [(0, 50, Pick::Older(2))]);
    // Where that hurts, less.
    assert_eq!(of(&p.unasked(&all, 0.01)), [(0, 30, Pick::Older(3))]);
    for (_, name) in Replacement::ALL {
        let is_proactive = policy(name).period().is_some();
        assert_eq!(is_proactive, name == Replacement::WorkingSet);
    }
}
