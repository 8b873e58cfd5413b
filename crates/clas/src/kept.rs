//! Free frames that stay in memory. They were overwritten with zeros rather than given back,
//! because what is freed in small pieces is soon wanted again, and giving a page back and getting
//! it costs more than clearing it. Units are pages.

use std::collections::BTreeMap;

/// The longest run that is kept, and the most in all: what an idle container has in memory for
/// nothing.
pub(crate) const RUN: u64 = 256;
const BUDGET: u64 = 512;

/// Invariant: runs are disjoint; `pages` is their sum. A frame in here is free.
#[derive(Default)]
pub(crate) struct Kept {
    /// Start to end.
    runs: BTreeMap<u64, u64>,
    pages: u64,
}

impl Kept {
    /// `[start, end)` is free and zero, and in memory.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        self.remove(start, end);
        self.runs.insert(start, end);
        self.pages += end - start;
    }

    /// `[start, end)` is about to be used.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        while let Some((&s, &e)) = self.runs.range(..end).next_back()
            && e > start
        {
            self.runs.remove(&s);
            self.pages -= e - s;
            for (s, e) in [(s, start.min(e)), (end.max(s), e)] {
                if s < e {
                    self.runs.insert(s, e);
                    self.pages += e - s;
                }
            }
        }
    }

    /// The start of a run of `pages` that are kept.
    pub(crate) fn fit(&self, pages: u64) -> Option<u64> {
        // There are at most `BUDGET` runs.
        let found = self.runs.iter().find(|(s, e)| *e - *s >= pages);
        found.map(|(s, _)| *s)
    }

    /// A run to be given back, where there are too many.
    pub(crate) fn excess(&mut self) -> Option<(u64, u64)> {
        if self.pages <= BUDGET {
            None
        } else {
            self.pop()
        }
    }

    /// A run to be given back, while there is one.
    pub(crate) fn pop(&mut self) -> Option<(u64, u64)> {
        let (s, e) = self.runs.pop_first()?;
        self.pages -= e - s;
        Some((s, e))
    }

    /// The sum of all.
    pub(crate) fn pages(&self) -> u64 {
        debug_assert_eq!(
            self.pages,
            self.runs.iter().map(|(s, e)| e - s).sum::<u64>()
        );
        self.pages
    }
}
