//! Reference counts of frames, kept by runs with equal counts. Units are pages.

use smallvec::SmallVec;
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
struct Run {
    end: u64,
    refs: u32,
}

/// Invariant: runs are disjoint, adjacent ones differ in their count, and no count is zero.
#[derive(Default)]
pub(crate) struct RefCounts {
    runs: BTreeMap<u64, Run>,
}

pub(crate) type Freed = SmallVec<[(u64, u64); 4]>;

impl RefCounts {
    /// `[start, end)` is new, with one reference.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        self.put(start, Run { end, refs: 1 });
    }

    /// Puts a run where there is none, merging it with its neighbours.
    fn put(&mut self, mut start: u64, mut run: Run) {
        if let Some((&s, &r)) = self.runs.range(..start).next_back()
            && r.end == start
            && r.refs == run.refs
        {
            self.runs.remove(&s);
            start = s;
        }
        if let Some(&r) = self.runs.get(&run.end)
            && r.refs == run.refs
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
    pub(crate) fn decref(&mut self, start: u64, end: u64) -> Freed {
        let mut freed = Freed::new();
        for (s, r) in self.take(start, end) {
            if r.refs > 1 {
                self.put(
                    s,
                    Run {
                        refs: r.refs - 1,
                        ..r
                    },
                );
            } else {
                freed.push((s, r.end));
            }
        }
        freed
    }

    /// How many references the frame `start` has, and up to where, of `end`, the same.
    pub(crate) fn shared_prefix(&self, start: u64, end: u64) -> (u32, u64) {
        match self.runs.range(..=start).next_back() {
            Some((_, r)) if r.end > start => (r.refs, r.end.min(end) - start),
            _ => (0, 0),
        }
    }

    pub(crate) fn exclusive_prefix(&self, start: u64, end: u64) -> u64 {
        // Adjacent runs differ, so the run that holds `start` tells all.
        match self.shared_prefix(start, end) {
            (1, n) => n,
            _ => 0,
        }
    }

    /// The run that holds `at`, if it has one reference.
    pub(crate) fn exclusive_run(&self, at: u64) -> Option<(u64, u64)> {
        let (s, r) = self.runs.range(..=at).next_back()?;
        (r.end > at && r.refs == 1).then_some((*s, r.end))
    }
}
