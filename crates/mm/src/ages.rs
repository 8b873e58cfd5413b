//! What is known of how long memory was not used: hints, by clusters; see [`crate::age`].

use crate::hands::CLUSTER;
use std::collections::BTreeMap;
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// The generation in which it was used last.
    pub(crate) used: u64,
    /// Its mapping was dropped at the end of the last generation.
    pub(crate) dropped: bool,
    /// How often in a row it was used after that.
    streak: u8,
    /// When its mapping is dropped again, if it has one then.
    due: u64,
}

impl Seen {
    pub(crate) fn used_in(self, generation: u64) -> Seen {
        Seen {
            used: generation,
            ..self
        }
    }
}

/// Clusters in a row of which the same is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    end: u64,
    seen: Seen,
}

/// Runs that are made, upwards.
#[derive(Debug, Default)]
pub(crate) struct Runs(Vec<(u64, Run)>);

impl Runs {
    /// What was said of this cluster, if it is the last.
    pub(crate) fn last(&self, key: u64) -> Option<Seen> {
        let (_, run) = self.0.last().filter(|(_, r)| r.end == key + 1)?;
        Some(run.seen)
    }

    /// Says it of the next cluster, or of the last anew.
    pub(crate) fn put(&mut self, key: u64, seen: Seen) {
        if let Some((start, run)) = self.0.last_mut().filter(|(_, r)| r.end == key + 1) {
            if run.seen == seen {
                return;
            }
            run.end = key;
            if *start == key {
                self.0.pop();
            }
        }
        match self.0.last_mut() {
            Some((_, run)) if run.end == key && run.seen == seen => run.end += 1,
            _ => self.0.push((key, Run { end: key + 1, seen })),
        }
    }
}

/// The clusters of an address space.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    pub(crate) generation: u64,
    /// Where the look at the clusters that ends it goes on; 0 where none was begun. And what it has
    /// found so far.
    pub(crate) at: u64,
    pub(crate) old: [u64; AGES],
    /// By their first clusters; they do not overlap.
    runs: BTreeMap<u64, Run>,
}

impl Ages {
    pub(crate) fn get(&self, key: u64) -> Option<Seen> {
        let (_, run) = self.runs.range(..=key).next_back()?;
        (key < run.end).then_some(run.seen)
    }

    /// For how many generations the cluster at `va` was not used.
    pub(crate) fn of(&self, va: u64) -> u32 {
        let seen = self.get(va / CLUSTER);
        seen.map_or(0, |s| {
            (self.generation - s.used).min(u32::MAX.into()) as u32
        })
    }

    /// The cluster at `va` is used now.
    pub(crate) fn note_use(&mut self, va: u64) {
        let key = va / CLUSTER;
        if let Some(seen) = self.get(key).filter(|s| s.used != self.generation) {
            let mut now = Runs::default();
            now.put(key, seen.used_in(self.generation));
            self.replace(key..key + 1, now);
        }
    }

    /// This is known of these clusters now, and of the others among them nothing.
    pub(crate) fn replace(&mut self, clusters: Range<u64>, now: Runs) {
        // (Who begins before, and who ends behind.)
        let before = self.runs.range(..clusters.start).next_back();
        let before = before
            .map(|(s, r)| (*s, *r))
            .filter(|(_, r)| r.end > clusters.start);
        let over = self.runs.range(clusters.clone()).next_back();
        let behind = over.map(|(_, r)| *r).or(before.map(|(_, r)| r));
        let behind = behind.filter(|r| r.end > clusters.end);
        let within: Vec<u64> = self.runs.range(clusters.clone()).map(|(s, _)| *s).collect();
        for start in within {
            self.runs.remove(&start);
        }
        if let Some((start, run)) = before {
            let end = clusters.start;
            self.runs.insert(start, Run { end, ..run });
        }
        if let Some(run) = behind {
            self.runs.insert(clusters.end, run);
        }
        self.runs.extend(now.0);
    }

    /// How many entries it takes.
    pub(crate) fn entries(&self) -> usize {
        self.runs.len()
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self) {
        self.runs.clear();
    }
}

/// What becomes of a cluster as a generation begins, by what was known of it.
pub(crate) fn next(old: Option<Seen>, generation: u64, is_mapped: bool) -> Seen {
    let mut s = old.unwrap_or(Seen {
        used: generation,
        dropped: false,
        streak: 0,
        due: 0,
    });
    if !is_mapped {
        return Seen {
            dropped: false,
            streak: 0,
            due: 0,
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

    fn seen(used: u64) -> Seen {
        next(None, used, true)
    }

    #[test]
    fn runs_join_and_are_cut() {
        let mut a = Ages {
            generation: 9,
            ..Ages::default()
        };
        let mut made = Runs::default();
        for key in 10..20 {
            made.put(key, seen(3));
        }
        // Of the last, something else is said; then the same again.
        made.put(19, seen(4));
        assert_eq!(made.last(19), Some(seen(4)));
        made.put(19, seen(3));
        made.put(30, seen(3));
        a.replace(0..100, made);
        assert_eq!(a.entries(), 2);
        a.note_use(15 * CLUSTER);
        assert_eq!(a.entries(), 4);
        let of: Vec<u32> = (13..17).map(|k| a.of(k * CLUSTER)).collect();
        assert_eq!(of, [6, 6, 0, 6]);
        assert_eq!(
            (a.get(9), a.get(20), a.get(30)),
            (None, None, Some(seen(3)))
        );
        // A part in the middle is forgotten.
        a.replace(12..31, Runs::default());
        assert_eq!(
            (a.get(11), a.get(12), a.get(30)),
            (Some(seen(3)), None, None)
        );
        let mut all = Runs::default();
        all.put(0, seen(1));
        a.replace(0..11, all);
        assert_eq!(
            (a.get(0), a.get(10), a.get(11)),
            (Some(seen(1)), None, Some(seen(3)))
        );
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
