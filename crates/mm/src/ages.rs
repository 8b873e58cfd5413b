//! What is known of how long memory was not used: hints, by clusters; see [`crate::age`].

use crate::hands::CLUSTER;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The ages that are told one by one: 1, 2, and all from 3 on.
pub const AGES: usize = 3;
/// What is always used is looked at each 2^5 generations.
const RESTS: u8 = 5;

/// How many bytes were not used for so many generations, when they were counted last; what was sent
/// out since is not in it. Atomics, each for itself: they are hints.
#[derive(Debug, Default)]
pub(crate) struct Old([AtomicU64; AGES]);

impl Old {
    pub(crate) fn get(&self) -> [u64; AGES] {
        self.0.each_ref().map(|n| n.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, bytes: [u64; AGES]) {
        for (n, b) in self.0.iter().zip(bytes) {
            n.store(b, Ordering::Relaxed);
        }
    }

    /// So many bytes of at least this age are gone.
    pub(crate) fn went(&self, age: u32, mut bytes: u64) {
        for n in self.0[index(age)..].iter().rev() {
            let had = n.load(Ordering::Relaxed);
            let part = had.min(bytes);
            n.store(had - part, Ordering::Relaxed);
            bytes -= part;
        }
    }
}

/// Where bytes of this age, 1 or more, are counted.
pub(crate) fn index(age: u32) -> usize {
    (age as usize).clamp(1, AGES) - 1
}

/// What is known of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The generation in which it was used last.
    pub(crate) used: u64,
    /// Its mapping was dropped at the end of the last generation.
    pub(crate) dropped: bool,
    /// How often in a row it was used after that.
    pub(crate) streak: u8,
    /// When its mapping is dropped again, if it has one then.
    pub(crate) due: u64,
}

/// The clusters of an address space.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    pub(crate) generation: u64,
    pub(crate) seen: HashMap<u64, Seen>,
}

impl Ages {
    /// For how many generations the cluster at `va` was not used.
    pub(crate) fn of(&self, va: u64) -> u32 {
        let seen = self.seen.get(&(va / CLUSTER));
        seen.map_or(0, |s| {
            (self.generation - s.used).min(u32::MAX.into()) as u32
        })
    }

    /// The cluster at `va` is used now.
    pub(crate) fn note_use(&mut self, va: u64) {
        if let Some(s) = self.seen.get_mut(&(va / CLUSTER)) {
            s.used = self.generation;
        }
    }
}

/// What becomes of a cluster as a generation begins, by what was known of it.
pub(crate) fn next(old: Option<Seen>, generation: u64, is_mapped: bool) -> Seen {
    let mut s = old.unwrap_or(Seen {
        used: generation,
        dropped: false,
        streak: 0,
        due: generation,
    });
    if !is_mapped {
        return Seen {
            dropped: false,
            streak: 0,
            due: generation,
            ..s
        };
    }
    if s.dropped {
        s.streak = (s.streak + 1).min(RESTS);
        s.due = generation + (1 << s.streak) - 1;
    }
    s.used = generation;
    s.dropped = s.due <= generation;
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether its mapping was dropped, for each generation, where it is used as `is_used` says.
    fn drops(n: u64, is_used: impl Fn(u64) -> bool) -> Vec<bool> {
        let (mut s, mut is_mapped) = (None, true);
        let mut out = Vec::new();
        for generation in 1..=n {
            is_mapped |= is_used(generation);
            let next = next(s, generation, is_mapped);
            if next.dropped {
                is_mapped = false;
            }
            out.push(next.dropped);
            s = Some(next);
        }
        out
    }

    #[test]
    fn what_is_always_used_is_asked_less_and_less() {
        let dropped = drops(400, |_| true);
        let at: Vec<usize> = (0..400).filter(|i| dropped[*i]).collect();
        let gaps: Vec<usize> = at.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(gaps[..6], [2, 4, 8, 16, 32, 32]);
    }

    #[test]
    fn what_is_not_used_becomes_older() {
        let mut s = next(None, 1, true);
        assert!(s.dropped);
        for generation in 2..6 {
            s = next(Some(s), generation, false);
            assert_eq!(s.used, 1);
        }
        // Used again, it is young, and asked at once.
        s = next(Some(s), 6, true);
        assert_eq!((s.used, s.dropped, s.streak), (6, true, 0));
    }

    #[test]
    fn what_went_is_of_the_oldest() {
        let old = Old::default();
        old.set([10, 20, 30]);
        old.went(2, 35);
        assert_eq!(old.get(), [10, 15, 0]);
        old.went(1, u64::MAX);
        assert_eq!(old.get(), [0, 0, 0]);
    }
}
