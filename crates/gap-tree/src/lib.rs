//! A B+-tree of disjoint ranges `[start, end)` with values, augmented with the largest gap per
//! subtree.
//!
//! What it is for: an address space's mappings. Looking up the range that holds an address, the
//! next range after it, and *free space of a given length* (the lowest or the highest) all take
//! O(log n) and allocate nothing.
//!
//! ```
//! let mut t = gap_tree::GapTree::new();
//! t.insert(0x1000..0x3000, "a").unwrap();
//! t.insert(0x8000..0x9000, "b").unwrap();
//! assert_eq!(t.get(0x2fff), Some((0x1000..0x3000, &"a")));
//! assert_eq!(t.highest_gap(0x2000, 0..0x9000), Some(0x6000));
//! assert_eq!(t.lowest_gap(0x2000, 0x1000..0x9000), Some(0x3000));
//! ```
//!
//! Invariants: ranges are not empty and disjoint; all leaves have the same depth; every node but
//! the root holds `MIN..=CAP` items, and an inner root at least two; a child's [`Span`] in its
//! parent is what its subtree holds.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod iter;
mod node;
mod search;

use core::fmt;
use core::ops::Range;
use node::{Entry, Node};

pub use iter::Iter;

/// The tree. Keys are plain numbers; the caller gives them their meaning.
pub struct GapTree<V> {
    root: Node<V>,
    len: usize,
}

impl<V> Default for GapTree<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> GapTree<V> {
    #[must_use]
    pub const fn new() -> Self {
        GapTree {
            root: Node::empty(),
            len: 0,
        }
    }

    /// The number of ranges.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The range that holds `point`.
    #[must_use]
    pub fn get(&self, point: u64) -> Option<(Range<u64>, &V)> {
        self.first_from(point).filter(|(r, _)| r.start <= point)
    }

    /// As [`GapTree::get`], with the value to change.
    pub fn get_mut(&mut self, point: u64) -> Option<(Range<u64>, &mut V)> {
        self.first_from_mut(point).filter(|(r, _)| r.start <= point)
    }

    /// The lowest range that ends after `point`: the one that holds it, or else the next.
    #[must_use]
    pub fn first_from(&self, point: u64) -> Option<(Range<u64>, &V)> {
        search::first_from(&self.root, point).map(|e| (e.range(), &e.value))
    }

    /// As [`GapTree::first_from`], with the value to change.
    pub fn first_from_mut(&mut self, point: u64) -> Option<(Range<u64>, &mut V)> {
        search::first_from_mut(&mut self.root, point).map(|e| (e.range(), &mut e.value))
    }

    /// The highest range that starts below `point`.
    #[must_use]
    pub fn last_below(&self, point: u64) -> Option<(Range<u64>, &V)> {
        search::last_below(&self.root, point).map(|e| (e.range(), &e.value))
    }

    /// Whether a range has a part of `range`.
    #[must_use]
    pub fn overlaps(&self, range: Range<u64>) -> bool {
        range.start < range.end
            && self
                .first_from(range.start)
                .is_some_and(|(r, _)| r.start < range.end)
    }

    /// Adds a range; gives the value back if it is empty or overlaps another.
    pub fn insert(&mut self, range: Range<u64>, value: V) -> Result<(), V> {
        if range.start >= range.end || self.overlaps(range.clone()) {
            return Err(value);
        }
        node::insert_root(
            &mut self.root,
            Entry {
                start: range.start,
                end: range.end,
                value,
            },
        );
        self.len += 1;
        Ok(())
    }

    /// Removes the range that holds `point`.
    pub fn remove(&mut self, point: u64) -> Option<(Range<u64>, V)> {
        let e = node::remove_root(&mut self.root, point)?;
        self.len -= 1;
        Some((e.range(), e.value))
    }

    /// Gives the range that holds `point` other borders, which must not be empty nor overlap
    /// another range; otherwise (or if there is none) nothing changes, and it gives `false`.
    pub fn resize(&mut self, point: u64, new: Range<u64>) -> bool {
        let Some((old, _)) = self.get(point) else {
            return false;
        };
        let below_free = self
            .last_below(old.start)
            .is_none_or(|(r, _)| r.end <= new.start);
        let above_free = self
            .first_from(old.end)
            .is_none_or(|(r, _)| new.end <= r.start);
        if new.start >= new.end || !below_free || !above_free {
            return false;
        }
        node::resize(&mut self.root, point, &new)
    }

    /// Cuts the range that holds `at` in two there; `tail` makes the upper part's value (and may
    /// change the lower's). Nothing happens where no range holds `at` or one starts there.
    pub fn split(&mut self, at: u64, tail: impl FnOnce(&mut V, Range<u64>) -> V) {
        let Some((range, value)) = self.get_mut(at) else {
            return;
        };
        if range.start == at {
            return;
        }
        let value = tail(value, range.clone());
        node::resize(&mut self.root, range.start, &(range.start..at));
        node::insert_root(
            &mut self.root,
            Entry {
                start: at,
                end: range.end,
                value,
            },
        );
        self.len += 1;
    }

    /// The lowest start of `len` free units inside `within`.
    #[must_use]
    pub fn lowest_gap(&self, len: u64, within: Range<u64>) -> Option<u64> {
        search::lowest_gap(&self.root, len, within)
    }

    /// The highest start of `len` free units inside `within`.
    #[must_use]
    pub fn highest_gap(&self, len: u64, within: Range<u64>) -> Option<u64> {
        search::highest_gap(&self.root, len, within)
    }

    /// All ranges, upwards.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, V> {
        self.iter_from(0)
    }

    /// The ranges that end after `point`, upwards.
    #[must_use]
    pub fn iter_from(&self, point: u64) -> Iter<'_, V> {
        Iter::new(&self.root, point, u64::MAX)
    }

    /// The ranges that have a part of `range`, upwards.
    #[must_use]
    pub fn range(&self, range: Range<u64>) -> Iter<'_, V> {
        // Nothing is in an empty range, not even in the middle of another.
        let end = if range.is_empty() { 0 } else { range.end };
        Iter::new(&self.root, range.start, end)
    }

    /// Calls `f` with each range that has a part of `range`, upwards, and its value to change.
    pub fn for_each_mut(&mut self, range: Range<u64>, mut f: impl FnMut(Range<u64>, &mut V)) {
        if !range.is_empty() {
            node::for_each_mut(&mut self.root, &range, &mut f);
        }
    }

    /// Checks the invariants.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn check(&self) {
        let n = node::check(&self.root, true).map_or(0, |c| c.1);
        assert_eq!(n, self.len);
    }
}

impl<V: fmt::Debug> fmt::Debug for GapTree<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'a, V> IntoIterator for &'a GapTree<V> {
    type Item = (Range<u64>, &'a V);
    type IntoIter = Iter<'a, V>;
    fn into_iter(self) -> Iter<'a, V> {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
