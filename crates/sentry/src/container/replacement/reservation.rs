//! `reservation`: ContainerVisor's (`docs/decisions/0028`).
//!
//! With u bytes here and r reserved, Δ = max(u − r, 0) can be taken. Those without a reservation
//! give first, as by `clock`; then those furthest above their own, by Δ/r, until all that have
//! given are level.

use super::clock::Clock;
use super::{Part, Policy, Share, parts};
use mm::{Pick, SwapOut};

#[derive(Debug, Default)]
pub(super) struct Reservation {
    /// Goes through those that have none.
    clock: Clock,
}

impl Policy for Reservation {
    fn plan(&self, all: &[Share], bytes: u64) -> Vec<Part> {
        let (with, without): (Vec<usize>, _) = (0..all.len()).partition(|i| all[*i].reserve > 0);
        let free: u64 = without.iter().map(|i| all[*i].here).sum();
        let mut out = self.clock.rounds(all, without);
        let n = level(all, bytes.saturating_sub(free));
        out.extend(parts(with, |i| (n[i], Pick::SecondChance)));
        out
    }

    fn gave(&self, id: u64, pick: Pick, sent: SwapOut) {
        self.clock.gave(id, pick, sent);
    }
}

/// How many of `bytes` each gives of those that have reservations; together less where they have
/// less.
fn level(shares: &[Share], bytes: u64) -> Vec<u64> {
    let mut out = vec![0; shares.len()];
    let mut order: Vec<(f64, usize)> = (shares.iter().enumerate())
        .filter(|(_, s)| s.reserve > 0 && s.above() > 0)
        .map(|(i, s)| (s.above() as f64 / s.reserve as f64, i))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    if bytes == 0 || order.is_empty() {
        return out;
    }
    // What is left of Δ/r with the first n of them level, once all is taken.
    let (mut above, mut reserved, mut left) = (0u64, 0u64, 0.0);
    for (n, (_, i)) in order.iter().enumerate() {
        above += shares[*i].above();
        reserved += shares[*i].reserve;
        left = above.saturating_sub(bytes) as f64 / reserved as f64;
        if above >= bytes && order.get(n + 1).is_none_or(|next| left >= next.0) {
            break;
        }
    }
    for (_, i) in order {
        let s = shares[i];
        out[i] = (s.above() as f64 - left * s.reserve as f64).max(0.0) as u64;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1 << 20;

    fn of(shares: &[(u64, u64)], bytes: u64) -> Vec<u64> {
        let shares: Vec<Share> = shares
            .iter()
            .map(|(here, reserve)| Share {
                here: here * MB,
                reserve: reserve * MB,
                ..Share::default()
            })
            .collect();
        let n = level(&shares, bytes * MB);
        n.iter().map(|n| n.div_ceil(MB)).collect()
    }

    #[test]
    fn the_papers_three_programs() {
        // Figure 12: of 150 MB with room for 100, the third gives none.
        let n = of(&[(60, 30), (50, 20), (40, 50)], 50);
        assert_eq!(n, [24, 26, 0]);
        // The one with the largest Δ/r alone, first.
        assert_eq!(of(&[(60, 30), (50, 20), (40, 50)], 10), [0, 10, 0]);
        assert_eq!(of(&[], 100), [0; 0]);
    }

    #[test]
    fn who_has_no_reservation_gives_before_all() {
        let of = |bytes: u64| {
            let share = |id, here: u64, reserve: u64| Share {
                id,
                here: here * MB,
                reserve: reserve * MB,
                ..Share::default()
            };
            let all = [
                share(1, 60, 30),
                share(2, 10, 0),
                share(3, 50, 20),
                share(4, 30, 0),
            ];
            let plan = Reservation::default().plan(&all, bytes * MB);
            plan.iter()
                .map(|p| (p.who, p.bytes.div_ceil(MB)))
                .collect::<Vec<_>>()
        };
        let laps = [(1, 10), (3, 30), (1, 10), (3, 30)];
        assert_eq!(of(40), laps);
        assert_eq!(of(50)[..4], laps);
        assert_eq!(of(50)[4..], [(2, 10)]);
    }

    proptest! {
        #[test]
        fn nobody_gives_of_what_is_reserved(
            of in prop::collection::vec((0u64..1 << 40, 1u64..1 << 40), 0..20),
            bytes in 0u64..1 << 42,
        ) {
            let shares: Vec<Share> = of
                .iter()
                .map(|(here, reserve)| Share { here: *here, reserve: *reserve, ..Share::default() })
                .collect();
            let n = level(&shares, bytes);
            let all: u64 = shares.iter().map(|s| s.above()).sum();
            for (n, s) in n.iter().zip(&shares) {
                prop_assert!(*n <= s.above());
            }
            let given: u64 = n.iter().sum();
            // (What is lost by rounding is a few bytes each.)
            let slack = 1024 * (shares.len() as u64 + 1);
            prop_assert!(given <= bytes + slack);
            prop_assert!(given + slack >= bytes.min(all));
        }
    }
}
