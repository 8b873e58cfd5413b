//! From which process memory is taken where a container has too little: ContainerVisor's policy of
//! reservations (`docs/decisions/0028`).
//!
//! With u bytes here and r reserved, Δ = max(u − r, 0) can be taken. Who has no reservation gives
//! first, each by its share; then those furthest above their own, by Δ/r, until all that have given
//! are level.

/// What a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    /// Bytes that are here.
    pub here: u64,
    /// Bytes that stay.
    pub reserve: u64,
}

impl Share {
    /// Δ.
    pub(super) fn above(self) -> u64 {
        self.here.saturating_sub(self.reserve)
    }
}

/// How many of `bytes` each is to give; together less where they have less.
pub(super) fn parts(shares: &[Share], bytes: u64) -> Vec<u64> {
    let mut out = vec![0; shares.len()];
    let free: u64 = (shares.iter().filter(|s| s.reserve == 0))
        .map(|s| s.here)
        .sum();
    let first = bytes.min(free);
    for (n, s) in out.iter_mut().zip(shares) {
        if s.reserve == 0 && free > 0 {
            *n = (u128::from(first) * u128::from(s.here) / u128::from(free)) as u64;
        }
    }
    level(shares, bytes - first, &mut out);
    out
}

/// Takes `bytes` of those that have reservations.
fn level(shares: &[Share], bytes: u64, out: &mut [u64]) {
    let mut order: Vec<(f64, usize)> = (shares.iter().enumerate())
        .filter(|(_, s)| s.reserve > 0 && s.above() > 0)
        .map(|(i, s)| (s.above() as f64 / s.reserve as f64, i))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    if bytes == 0 || order.is_empty() {
        return;
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
            })
            .collect();
        parts(&shares, bytes * MB)
            .iter()
            .map(|n| n.div_ceil(MB))
            .collect()
    }

    #[test]
    fn without_reservations_each_gives_its_share() {
        assert_eq!(of(&[(60, 0), (30, 0), (10, 0)], 10), [6, 3, 1]);
        assert_eq!(of(&[(60, 0), (0, 0)], 100), [60, 0]);
        assert_eq!(of(&[], 100), [0; 0]);
    }

    #[test]
    fn the_papers_three_programs() {
        // Figure 12: of 150 MB with room for 100, the third gives none.
        let n = of(&[(60, 30), (50, 20), (40, 50)], 50);
        assert_eq!(n, [24, 26, 0]);
        // The one with the largest Δ/r alone, first.
        assert_eq!(of(&[(60, 30), (50, 20), (40, 50)], 10), [0, 10, 0]);
        // Who has no reservation before all.
        assert_eq!(of(&[(60, 30), (50, 20), (40, 0)], 40), [0, 0, 40]);
    }

    proptest! {
        #[test]
        fn nobody_gives_of_what_is_reserved(
            of in prop::collection::vec((0u64..1 << 40, 0u64..1 << 40), 0..20),
            bytes in 0u64..1 << 42,
        ) {
            let shares: Vec<Share> = of
                .iter()
                .map(|(here, reserve)| Share { here: *here, reserve: *reserve })
                .collect();
            let n = parts(&shares, bytes);
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
