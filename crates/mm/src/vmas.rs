//! The VMAs of an address space, with their counts.
//!
//! # Invariants
//!
//! - The counts are those of the tree: both change in the same methods, and in no other place.
//! - A file that is mapped knows of it ([`clas::Mappable::add_mapping`]).
//! - No two VMAs that could be one lie side by side, except where fork(2) or mremap(2) put them.
//! - A file is dropped by whoever takes [`Vmas::take_dropped`], without a lock: its last reference
//!   may have much to do.

use crate::vma::{FileRef, Vma, VmaFlags};
use crate::{PAGE, STACK_GUARD_PAGES};
use abi::Va;
use clas::MappingObserver;
use gap_tree::GapTree;
use platform::{Prot, USER_MAX};
use std::ops::{Deref, Range};
use std::sync::{Arc, Weak};

/// Pages of each kind, as Linux's `mm_struct` counts them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) total: u64,
    pub(crate) data: u64,
    pub(crate) stack: u64,
    pub(crate) exec: u64,
    pub(crate) locked: u64,
    /// The highest `total` has been.
    pub(crate) peak: u64,
}

impl Counts {
    /// Counts `len` bytes of such a VMA in or, if `sign` is negative, out.
    fn add(&mut self, prot: Prot, flags: VmaFlags, len: u64, sign: i64) {
        let pages = (len / PAGE) as i64 * sign;
        let add = |n: &mut u64| *n = n.saturating_add_signed(pages);
        add(&mut self.total);
        if Vma::is_data(prot, flags) {
            add(&mut self.data);
        } else if flags.contains(VmaFlags::GROWSDOWN) {
            add(&mut self.stack);
        } else if prot.contains(Prot::EXEC) && !prot.contains(Prot::WRITE) {
            add(&mut self.exec);
        }
        if flags.contains(VmaFlags::LOCKED) {
            add(&mut self.locked);
        }
        self.peak = self.peak.max(self.total);
    }
}

/// See the module's documentation. It is read as the tree that it holds.
pub(crate) struct Vmas {
    tree: GapTree<Vma>,
    counts: Counts,
    /// The `Mm` itself, for files. Immutable.
    me: Weak<dyn MappingObserver>,
    /// Of VMAs that are gone: to be dropped without the lock.
    dropped: Vec<Arc<FileRef>>,
}

impl Deref for Vmas {
    type Target = GapTree<Vma>;

    fn deref(&self) -> &GapTree<Vma> {
        &self.tree
    }
}

impl Vmas {
    pub(crate) fn new(me: Weak<dyn MappingObserver>) -> Vmas {
        Vmas {
            tree: GapTree::new(),
            counts: Counts::default(),
            me,
            dropped: Vec::new(),
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The files to be dropped once the lock is released.
    pub(crate) fn take_dropped(&mut self) -> Vec<Arc<FileRef>> {
        std::mem::take(&mut self.dropped)
    }

    #[cfg(test)]
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// How many more VMAs there would be if `r` were cut out.
    pub(crate) fn cuts(&self, r: &Range<u64>) -> usize {
        let cut = |at: u64| usize::from(self.tree.get(at).is_some_and(|(e, _)| e.start < at));
        cut(r.start) + cut(r.end)
    }

    /// Adds a VMA where there is none, and joins it with its neighbours.
    pub(crate) fn insert(&mut self, r: Range<u64>, vma: Vma) {
        self.inherit(r.clone(), vma);
        self.merge(r.start);
        self.merge(r.end);
    }

    /// Adds a VMA where there is none, as the parent of a fork has it.
    pub(crate) fn inherit(&mut self, r: Range<u64>, vma: Vma) {
        let len = r.end - r.start;
        self.counts.add(vma.prot, vma.flags, len, 1);
        if let Some(f) = &vma.file {
            let m = &f.file.mappable;
            m.add_mapping(self.me.clone(), Va(r.start), f.offset, len);
        }
        let free = self.tree.insert(r, vma).is_ok();
        assert!(free, "two mappings of the same address");
    }

    /// Lets the VMA at `r`, anonymous, begin at `start` below; whether that was free.
    pub(crate) fn grow_down(&mut self, r: &Range<u64>, start: u64) -> bool {
        let Some((_, vma)) = self.tree.get(r.start) else {
            return false;
        };
        let (prot, flags) = (vma.prot, vma.flags);
        let grown = self.tree.resize(r.start, start..r.end);
        if grown {
            self.counts.add(prot, flags, r.start - start, 1);
        }
        grown
    }

    /// Takes the VMAs of `r` out. [`State::vma_remove`] has taken what serves them.
    ///
    /// [`State::vma_remove`]: crate::state::State::vma_remove
    pub(crate) fn remove(&mut self, r: Range<u64>) {
        self.split(r.start);
        self.split(r.end);
        while let Some((e, _)) = self.tree.first_from(r.start)
            && e.start < r.end
        {
            let Some((e, vma)) = self.tree.remove(e.start) else {
                return;
            };
            let len = e.end - e.start;
            self.counts.add(vma.prot, vma.flags, len, -1);
            if let Some(f) = vma.file {
                let m = &f.file.mappable;
                m.remove_mapping(&self.me, Va(e.start), f.offset, len);
                self.dropped.push(f.file);
            }
        }
    }

    /// Changes the protection and flags of every VMA of `r`, for which the caller has checked that
    /// there may be two more, and joins what can be joined.
    pub(crate) fn change(&mut self, r: Range<u64>, mut f: impl FnMut(&mut Prot, &mut VmaFlags)) {
        self.split(r.start);
        self.split(r.end);
        let counts = &mut self.counts;
        self.tree.for_each_mut(r.clone(), |e, v| {
            let len = e.end - e.start;
            counts.add(v.prot, v.flags, len, -1);
            f(&mut v.prot, &mut v.flags);
            counts.add(v.prot, v.flags, len, 1);
        });
        self.merge_range(r);
    }

    /// Makes `at` a border between VMAs.
    fn split(&mut self, at: u64) {
        self.tree.split(at, |v, r| v.after(at - r.start));
    }

    /// Joins the VMAs that meet at `at`, if they fit together.
    fn merge(&mut self, at: u64) {
        let Some((a, low)) = self.tree.last_below(at) else {
            return;
        };
        let Some((b, high)) = self.tree.get(at) else {
            return;
        };
        if a.end != at || !low.continues(a.end - a.start, high) {
            return;
        }
        if let Some((_, v)) = self.tree.remove(b.start) {
            self.dropped.extend(v.file.map(|f| f.file));
        }
        self.tree.resize(a.start, a.start..b.end);
    }

    /// Joins what can be joined in and around `r`.
    fn merge_range(&mut self, r: Range<u64>) {
        self.merge(r.end);
        let mut at = r.end;
        while let Some((e, _)) = self.tree.last_below(at)
            && e.end > r.start
        {
            self.merge(e.start);
            at = e.start;
        }
    }

    /// How far below `at` a mapping must end: stacks keep a gap below them.
    fn guarded(&self, at: u64) -> Option<(u64, u64)> {
        let (e, v) = self.tree.first_from(at)?;
        let guard = if v.flags.contains(VmaFlags::GROWSDOWN) {
            STACK_GUARD_PAGES * PAGE
        } else {
            0
        };
        Some((e.start.saturating_sub(guard), e.end))
    }

    /// The highest place for `len` bytes, with the gap that a stack above keeps.
    pub(crate) fn find_highest(&self, len: u64, within: Range<u64>) -> Option<u64> {
        let mut end = within.end;
        loop {
            let at = self.tree.highest_gap(len, within.start..end)?;
            match self.guarded(at + len) {
                Some((limit, _)) if limit < at + len => end = limit,
                _ => return Some(at),
            }
        }
    }

    /// The lowest place for `len` bytes, with the gap that a stack above keeps.
    pub(crate) fn find_lowest(&self, len: u64, within: Range<u64>) -> Option<u64> {
        let mut start = within.start;
        loop {
            let at = self.tree.lowest_gap(len, start..within.end)?;
            match self.guarded(at + len) {
                Some((limit, next)) if limit < at + len => start = next,
                _ => return Some(at),
            }
        }
    }

    /// Whether `[at, at + len)` is free, with the gap that a stack above keeps.
    pub(crate) fn is_free(&self, at: u64, len: u64) -> bool {
        at.checked_add(len)
            .is_some_and(|end| end <= USER_MAX && self.find_highest(len, at..end).is_some())
    }
}
