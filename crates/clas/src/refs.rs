//! Reference counts and owners of frames, kept by runs with equal ones. Units are pages.

use crate::accounts::Owner;
use smallvec::SmallVec;
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
struct Run {
    end: u64,
    refs: u32,
    owner: Owner,
}

impl Run {
    /// Whether two that are adjacent could be one.
    fn is_like(&self, other: &Run) -> bool {
        self.refs == other.refs && self.owner == other.owner
    }
}

/// Invariant: runs are disjoint, adjacent ones differ in their count or owner, and no count is
/// zero.
#[derive(Default)]
pub(crate) struct RefCounts {
    runs: BTreeMap<u64, Run>,
}

/// Starts and ends.
pub(crate) type Runs = SmallVec<[(u64, u64); 4]>;

/// Frames that have no reference any more.
#[derive(Clone, Copy)]
pub(crate) struct Freed {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) owner: Owner,
}

impl RefCounts {
    /// `[start, end)` is new, with one reference.
    pub(crate) fn insert(&mut self, start: u64, end: u64, owner: Owner) {
        let refs = 1;
        self.put(start, Run { end, refs, owner });
    }

    /// Whose the frame `at` is.
    pub(crate) fn owner(&self, at: u64) -> Option<Owner> {
        let (_, r) = self.runs.range(..=at).next_back()?;
        (r.end > at).then_some(r.owner)
    }

    /// Changes the owners of `[start, end)`.
    pub(crate) fn change_owners(&mut self, start: u64, end: u64, to: impl Fn(Owner) -> Owner) {
        for (s, r) in self.take(start, end) {
            let owner = to(r.owner);
            self.put(s, Run { owner, ..r });
        }
    }

    /// Whether all of `[start, end)` has owners that are so.
    pub(crate) fn all_owners(&self, start: u64, end: u64, are: impl Fn(Owner) -> bool) -> bool {
        self.from(start).take_while(|r| r.0 < end).all(|r| are(r.2))
    }

    /// The runs that end behind `at`: where they start and end, and whose they are.
    pub(crate) fn from(&self, at: u64) -> impl Iterator<Item = (u64, u64, Owner)> {
        let first = self.runs.range(..=at).next_back().filter(|r| r.1.end > at);
        let start = first.map_or(at, |(s, _)| *s);
        self.runs.range(start..).map(|(s, r)| (*s, r.end, r.owner))
    }

    /// Puts a run where there is none, merging it with its neighbours.
    fn put(&mut self, mut start: u64, mut run: Run) {
        if let Some((&s, &r)) = self.runs.range(..start).next_back()
            && r.end == start
            && r.is_like(&run)
        {
            self.runs.remove(&s);
            start = s;
        }
        if let Some(&r) = self.runs.get(&run.end)
            && r.is_like(&run)
        {
            self.runs.remove(&run.end);
            run.end = r.end;
        }
        self.runs.insert(start, run);
    }

    /// Makes `at` a border between runs.
    fn split(&mut self, at: u64) {
        if let Some((_, r)) = self.runs.range_mut(..at).next_back()
            && r.end > at
        {
            let tail = *r;
            r.end = at;
            self.runs.insert(at, tail);
        }
    }

    /// Takes the runs of `[start, end)` out.
    fn take(&mut self, start: u64, end: u64) -> SmallVec<[(u64, Run); 4]> {
        self.split(start);
        self.split(end);
        let taken: SmallVec<[(u64, Run); 4]> =
            self.runs.range(start..end).map(|(s, r)| (*s, *r)).collect();
        let mut at = start;
        for (s, r) in &taken {
            assert!(*s == at, "a reference to a free frame");
            at = r.end;
            self.runs.remove(s);
        }
        assert!(at == end, "a reference to a free frame");
        taken
    }

    pub(crate) fn incref(&mut self, start: u64, end: u64) {
        for (s, r) in self.take(start, end) {
            let refs = r.refs.checked_add(1).expect("fewer references than 2^32");
            self.put(s, Run { refs, ..r });
        }
    }

    /// Gives the runs that have no reference any more.
    pub(crate) fn decref(&mut self, start: u64, end: u64) -> SmallVec<[Freed; 4]> {
        let mut freed = SmallVec::new();
        for (s, r) in self.take(start, end) {
            if r.refs > 1 {
                let refs = r.refs - 1;
                self.put(s, Run { refs, ..r });
            } else {
                freed.push(Freed {
                    start: s,
                    end: r.end,
                    owner: r.owner,
                });
            }
        }
        freed
    }

    /// How many references the frame `start` has, and how many from it on, up to `end`, have as
    /// many and the same owner.
    pub(crate) fn shared_prefix(&self, start: u64, end: u64) -> (u32, u64) {
        match self.runs.range(..=start).next_back() {
            Some((_, r)) if r.end > start => (r.refs, r.end.min(end) - start),
            _ => (0, 0),
        }
    }

    pub(crate) fn exclusive_prefix(&self, start: u64, end: u64) -> u64 {
        let mut at = start;
        while at < end
            && let (1, n) = self.shared_prefix(at, end)
        {
            at += n;
        }
        at - start
    }

    /// The run that holds `at`, if it has one reference.
    pub(crate) fn exclusive_run(&self, at: u64) -> Option<(u64, u64)> {
        let (s, r) = self.runs.range(..=at).next_back()?;
        (r.end > at && r.refs == 1).then_some((*s, r.end))
    }
}
