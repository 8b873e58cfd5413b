//! Sets of ports, and the choice of one that is in none of them.

use abi::Result;
use abi::errno::EINVAL;

/// Ports that a choice is made among (`net.ipv4.ip_local_port_range`), from `low` to `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl Default for PortRange {
    fn default() -> PortRange {
        PortRange {
            low: 32768,
            high: 60999,
        }
    }
}

impl PortRange {
    /// `EINVAL` where it has none.
    pub fn new(low: u16, high: u16) -> Result<PortRange> {
        if low == 0 || low > high {
            return Err(EINVAL);
        }
        Ok(PortRange { low, high })
    }

    #[must_use]
    pub fn low(self) -> u16 {
        self.low
    }

    #[must_use]
    pub fn high(self) -> u16 {
        self.high
    }

    #[must_use]
    pub fn contains(self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }

    /// The part that a socket asks for (IP_LOCAL_PORT_RANGE: the upper end in the upper half). An
    /// end that is not within this range does not count (`inet_sk_get_local_port_range`).
    #[must_use]
    pub fn narrowed(self, asked: u32) -> PortRange {
        let (low, high) = (asked as u16, (asked >> 16) as u16);
        let mut range = self;
        if self.contains(low) {
            range.low = low;
        }
        if (range.low..=self.high).contains(&high) {
            range.high = high;
        }
        range
    }

    /// One of its ports, by a random number.
    pub(super) fn at(self, random: u32) -> u16 {
        let span = u32::from(self.high - self.low) + 1;
        self.low + (random % span) as u16
    }

    /// Of each pair of ports the one that connections are given first, as bits of a word of 64; the
    /// other one is for bind(2) (`__inet_hash_connect`, `inet_csk_find_open_port`).
    pub(super) fn preferred(self, by: For) -> u64 {
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let of_connections = EVEN << (self.low % 2);
        match by {
            For::Connection => of_connections,
            For::Binding => !of_connections,
        }
    }

    /// The first port from `start` on, and then from the range's beginning, that `used` has not and
    /// `mask` has (each a word of 64 ports). At most 1,025 words are looked at.
    pub(super) fn first_free(
        self,
        start: u16,
        mask: u64,
        used: impl Fn(usize) -> u64,
    ) -> Option<u16> {
        let (first, last) = (place(self.low).0, place(self.high).0);
        let within = |w: usize| {
            let mut m = u64::MAX;
            if w == first {
                m &= u64::MAX << (self.low % 64);
            }
            if w == last {
                m &= u64::MAX >> (63 - self.high % 64);
            }
            m
        };
        let begin = place(start).0;
        let mut after = u64::MAX << (start % 64);
        for w in (begin..=last).chain(first..=begin) {
            let free = !used(w) & within(w) & mask & after;
            // What is before the start in its word comes at the end.
            after = u64::MAX;
            if free != 0 {
                return Some((w * 64) as u16 + free.trailing_zeros() as u16);
            }
        }
        None
    }
}

/// What a port is chosen for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    Connection,
    Binding,
}

/// A port's word, and its bit there.
fn place(port: u16) -> (usize, u64) {
    (usize::from(port) / 64, 1 << (port % 64))
}

/// A set of ports: a bit each, as far as the highest one goes.
#[derive(Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub fn word(&self, n: usize) -> u64 {
        self.0.get(n).copied().unwrap_or(0)
    }

    pub fn contains(&self, port: u16) -> bool {
        let (w, bit) = place(port);
        self.word(w) & bit != 0
    }

    pub fn insert(&mut self, port: u16) {
        let (w, bit) = place(port);
        if w >= self.0.len() {
            self.0.resize(w + 1, 0);
        }
        self.0[w] |= bit;
    }

    pub fn remove(&mut self, port: u16) {
        let (w, bit) = place(port);
        if let Some(word) = self.0.get_mut(w) {
            *word &= !bit;
        }
    }
}

/// A set of ports that mostly has few.
pub(super) enum Used {
    /// In order.
    Few(Vec<u16>),
    /// And how many they are.
    Many(Bits, usize),
}

/// From how many ports on bits take no more memory than their numbers.
const MANY: usize = 512;

impl Default for Used {
    fn default() -> Used {
        Used::Few(Vec::new())
    }
}

impl Used {
    /// Whether it was not there.
    pub fn insert(&mut self, port: u16) -> bool {
        match self {
            Used::Few(all) => {
                let Err(at) = all.binary_search(&port) else {
                    return false;
                };
                all.insert(at, port);
                if all.len() >= MANY {
                    let mut bits = Bits::default();
                    all.iter().for_each(|p| bits.insert(*p));
                    *self = Used::Many(bits, MANY);
                }
            }
            Used::Many(bits, n) => {
                if bits.contains(port) {
                    return false;
                }
                bits.insert(port);
                *n += 1;
            }
        }
        true
    }

    /// Whether none is left.
    pub fn remove(&mut self, port: u16) -> bool {
        match self {
            Used::Few(all) => {
                if let Ok(at) = all.binary_search(&port) {
                    all.remove(at);
                }
                all.is_empty()
            }
            Used::Many(bits, n) => {
                if bits.contains(port) {
                    bits.remove(port);
                    *n -= 1;
                }
                *n == 0
            }
        }
    }

    pub fn word(&self, n: usize) -> u64 {
        match self {
            Used::Few(all) => {
                let from = all.partition_point(|p| place(*p).0 < n);
                let here = all[from..].iter().take_while(|p| place(**p).0 == n);
                here.fold(0, |word, p| word | place(*p).1)
            }
            Used::Many(bits, _) => bits.word(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// What is chosen is what a walk over all ports finds.
        #[test]
        fn the_first_that_is_free(
            low in 1..400u16,
            more in 0..400u16,
            start in 0..1000u32,
            taken in proptest::collection::btree_set(1..900u16, 0..400),
            mask in any::<u64>(),
        ) {
            let range = PortRange::new(low, low + more).unwrap();
            let mut used = Used::default();
            for p in &taken {
                prop_assert!(used.insert(*p));
                prop_assert!(!used.insert(*p));
            }
            let start = range.at(start);
            let found = range.first_free(start, mask, |w| used.word(w));
            let all = (start..=range.high()).chain(low..start);
            let is_free = |p: &u16| !taken.contains(p) && mask & (1 << (p % 64)) != 0;
            prop_assert_eq!(found, all.into_iter().find(is_free));
        }

        /// Few or many, a set is a set.
        #[test]
        fn sets(steps in proptest::collection::vec((1..2000u16, any::<bool>()), 0..3000)) {
            let (mut used, mut model) = (Used::default(), BTreeSet::new());
            for (p, add) in steps {
                if add {
                    prop_assert_eq!(used.insert(p), model.insert(p));
                } else {
                    model.remove(&p);
                    prop_assert_eq!(used.remove(p), model.is_empty());
                }
            }
            let in_word = |w: usize, p: u16| used.word(w) & (1 << (p % 64)) != 0;
            let has = (0..2048u16).filter(|p| in_word(usize::from(*p) / 64, *p));
            prop_assert!(has.eq(model.into_iter()));
        }
    }

    #[test]
    fn ranges_of_sockets() {
        let all = PortRange::default();
        let of = |low: u32, high: u32| all.narrowed(high << 16 | low);
        assert_eq!(of(0, 0), all);
        assert_eq!(of(40_000, 0), PortRange::new(40_000, 60_999).unwrap());
        assert_eq!(of(0, 40_000), PortRange::new(32_768, 40_000).unwrap());
        assert_eq!(of(40_000, 41_000), PortRange::new(40_000, 41_000).unwrap());
        assert_eq!(of(1, 65_000), all);
        assert!(PortRange::new(0, 5).is_err() && PortRange::new(6, 5).is_err());
        assert_eq!(all.preferred(For::Connection) & 3, 1);
        assert_eq!(
            PortRange::new(7, 9).unwrap().preferred(For::Connection) & 3,
            2
        );
    }
}
