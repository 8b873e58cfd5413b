//! Free runs of frames, by place and by length. Units are pages.

use std::collections::{BTreeMap, BTreeSet};

/// Pages in a huge page of the host.
const HUGE: u64 = 512;

/// Invariant: runs are not empty, disjoint and not adjacent; both maps hold the same runs.
#[derive(Default)]
pub(crate) struct FreeRuns {
    /// Start to end.
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_len: BTreeSet<(u64, u64)>,
}

impl FreeRuns {
    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_start.insert(start, end);
            self.by_len.insert((end - start, start));
        }
    }
    fn remove(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(end - start, start));
    }
    /// The run that `page` lies in.
    fn around(&self, page: u64) -> Option<(u64, u64)> {
        let (&s, &e) = self.by_start.range(..=page).next_back()?;
        (page < e).then_some((s, e))
    }

    /// Adds `[start, end)`, of which nothing is free yet.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        let (mut s, mut e) = (start, end);
        if let Some((&ps, &pe)) = self.by_start.range(..start).next_back() {
            debug_assert!(pe <= start, "freed twice");
            if pe == start {
                self.remove(ps, pe);
                s = ps;
            }
        }
        if let Some(&ne) = self.by_start.get(&end) {
            self.remove(end, ne);
            e = ne;
        }
        self.add(s, e);
    }

    /// Takes `[start, end)`, all of which is free.
    pub(crate) fn take(&mut self, start: u64, end: u64) {
        let (s, e) = self.around(start).expect("a place that is free");
        debug_assert!(end <= e);
        self.remove(s, e);
        self.add(s, start);
        self.add(end, e);
    }

    /// Whether all of `[start, end)` is free.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        self.around(start).is_some_and(|(_, e)| end <= e)
    }

    pub(crate) fn largest(&self) -> u64 {
        self.by_len.last().map_or(0, |r| r.0)
    }

    /// The end of the shortest run that is long enough: packed, as small allocations should be.
    pub(crate) fn best_fit(&self, pages: u64) -> Option<u64> {
        let &(len, start) = self.by_len.range((pages, 0)..).next()?;
        Some(start + len - pages)
    }

    /// The middle of the longest run, congruent to `like` modulo a huge page if there is room.
    pub(crate) fn apart(&self, pages: u64, like: u64) -> Option<u64> {
        let &(len, start) = self.by_len.last().filter(|r| r.0 >= pages)?;
        let last = start + len - pages;
        let middle = start + (len - pages) / 2;
        let back = (middle % HUGE + HUGE - like % HUGE) % HUGE;
        let place = match middle.checked_sub(back) {
            Some(p) if p >= start => p,
            _ => middle - back.min(middle) + HUGE,
        };
        Some(if (start..=last).contains(&place) {
            place
        } else {
            middle
        })
    }
}
