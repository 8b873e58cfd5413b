//! How long memory was not used, by clusters ([`CLUSTER`]).
//!
//! What the host has mapped was used since its mapping was dropped the last time: an access of
//! what is not mapped costs a fault, which maps a cluster around it. [`Mm::age`] looks at each
//! cluster and drops the mappings that it finds; each call of it ends a *generation*. What stays
//! unmapped becomes older by one each time (Linux's multi-generation LRU does the same by access
//! bits: mm/vmscan.c).
//!
//! # Invariants
//!
//! - Ages are hints: a cluster that has none was used just now. Whatever they say, what is sent out
//!   is not mapped on the host, and brought back by the next access ([`crate::swap`]).
//! - What is used again and again costs a fault less and less often: a cluster that was used in
//!   each of n looks after its mapping was dropped is looked at again 2^n generations later, 32 at
//!   most ([`RESTS`]).

use crate::pma::PmaKind;
use crate::state::State;
use crate::swap::{CLUSTER, clusters};
use crate::{Mm, PAGE};
use std::collections::HashMap;
use std::ops::Range;
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
    fn set(&self, bytes: [u64; AGES]) {
        for (n, b) in self.0.iter().zip(bytes) {
            n.store(b, Ordering::Relaxed);
        }
    }

    /// So many bytes of at least this age are gone.
    fn went(&self, age: u32, mut bytes: u64) {
        for n in self.0[index(age)..].iter().rev() {
            let had = n.load(Ordering::Relaxed);
            let part = had.min(bytes);
            n.store(had - part, Ordering::Relaxed);
            bytes -= part;
        }
    }
}

/// Where bytes of this age, 1 or more, are counted.
fn index(age: u32) -> usize {
    (age as usize).clamp(1, AGES) - 1
}

/// What is known of a cluster.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The generation in which it was used last.
    used: u64,
    /// Its mapping was dropped at the end of the last generation.
    dropped: bool,
    /// How often in a row it was used after that.
    streak: u8,
    /// When its mapping is dropped again, if it has one then.
    due: u64,
}

/// The clusters of an address space.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    generation: u64,
    seen: HashMap<u64, Seen>,
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
fn next(old: Option<Seen>, generation: u64, is_mapped: bool) -> Seen {
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

impl Mm {
    /// Begins a generation. False where somebody is busy with the address space.
    pub fn age(&self) -> bool {
        let Some(mut st) = self.state.try_lock() else {
            return false;
        };
        let old = st.age();
        self.old.set(old);
        true
    }

    /// How many bytes that could be sent out were not used for one generation, for two, and for more.
    #[must_use]
    pub fn old(&self) -> [u64; AGES] {
        self.old.0.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
}

impl State {
    fn age(&mut self) -> [u64; AGES] {
        self.swap.matters = true;
        let generation = self.ages.generation + 1;
        let mut seen: HashMap<u64, Seen> = HashMap::with_capacity(self.ages.seen.len());
        let mut dropped: Vec<Range<u64>> = Vec::new();
        let mut old = [0; AGES];
        for (r, pma) in self.pmas.iter() {
            if !matches!(pma.kind, PmaKind::Anon | PmaKind::AnonCow) {
                continue;
            }
            for part in clusters(r) {
                if self.stays(&part) {
                    continue;
                }
                let key = part.start / CLUSTER;
                let is_mapped = self.host.overlaps(part.clone());
                // (Several PMAs may lie in one cluster.)
                let s = match seen.get(&key) {
                    Some(s) if is_mapped => Seen {
                        used: generation,
                        ..*s
                    },
                    Some(s) => *s,
                    None => next(self.ages.seen.get(&key).copied(), generation, is_mapped),
                };
                let bytes = part.end - part.start;
                if is_mapped && s.dropped {
                    dropped.push(part);
                } else if !is_mapped && s.used < generation {
                    old[index((generation - s.used) as u32)] += bytes;
                }
                seen.insert(key, s);
            }
        }
        for part in dropped {
            self.host.unmap(part);
        }
        self.host.flush();
        self.ages = Ages { generation, seen };
        old
    }

    /// Sends out up to so many bytes of what was not used for so many generations and is not mapped.
    pub(crate) fn send_older(&mut self, bytes: u64, age: u32) -> u64 {
        let bytes = self.spare(bytes.next_multiple_of(PAGE));
        if bytes == 0 || !self.can_send() {
            return 0;
        }
        let found = self.look_older(bytes, age);
        let done = self.send_unused(&found, bytes);
        self.old
            .went(age, if done < bytes { u64::MAX } else { done });
        done
    }
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
        assert_eq!(
            old.0.each_ref().map(|n| n.load(Ordering::Relaxed)),
            [10, 15, 0]
        );
        old.went(1, u64::MAX);
        assert_eq!(
            old.0.each_ref().map(|n| n.load(Ordering::Relaxed)),
            [0, 0, 0]
        );
    }
}
