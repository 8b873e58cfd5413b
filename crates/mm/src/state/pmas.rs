//! The PMAs of an address space, with the frames that are to be given back.
//!
//! # Invariants
//!
//! - Every PMA with frames, of the own CLAS or of another, holds a reference to each. Whoever puts
//!   one in hands those over; what takes one away keeps them until [`Pmas::take_freed`]: a frame
//!   goes when the host has nothing mapped of it any more, which the batch of [`HostMap`] sees to.
//! - Every PMA lies in VMAs ([`State::vma_remove`]).
//! - What the host has mapped lies in PMAs: what takes PMAs away unmaps them in the same step.
//! - No two PMAs that could be one lie side by side, except where fork(2) put them.
//!
//! [`State::vma_remove`]: crate::state::State::vma_remove

use crate::host_map::HostMap;
use crate::pma::{Pma, PmaKind};
use crate::{PAGE, Result};
use clas::{Access, Backing, Cla, Clas, Mappable, PlacementHint};
use gap_tree::GapTree;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// References to frames that are to be given back once nothing maps them.
#[derive(Default)]
pub(crate) struct Freed {
    own: Vec<(Cla, u64)>,
    foreign: Vec<(Arc<Clas>, Cla, u64)>,
}

impl Freed {
    /// How many pages are of the own CLAS.
    pub(crate) fn own_pages(&self) -> u64 {
        self.own.iter().map(|f| f.1).sum()
    }

    /// Gives them back.
    pub(crate) fn decref(self, own: &Clas) {
        for (at, pages) in self.own {
            own.decref(at, pages);
        }
        for (theirs, at, pages) in self.foreign {
            theirs.decref(at, pages);
        }
    }
}

/// The PMAs around a place that has none.
pub(crate) struct Hole {
    above: Option<(Range<u64>, Pma)>,
    below: Option<(Range<u64>, Pma)>,
}

impl Hole {
    /// The part of it in `r`.
    pub(crate) fn within(&self, r: &Range<u64>) -> Range<u64> {
        let start = self.below.as_ref().map_or(0, |(e, _)| e.end);
        let end = self.above.as_ref().map_or(u64::MAX, |(e, _)| e.start);
        r.start.max(start)..r.end.min(end)
    }

    /// The frames that `r` of it would continue, and those that would continue it.
    pub(crate) fn placement_hint(&self, r: &Range<u64>) -> PlacementHint {
        let above = self.above.as_ref().filter(|(e, _)| e.start == r.end);
        let below = self.below.as_ref().filter(|(e, _)| e.end == r.start);
        PlacementHint {
            before: above.and_then(|(_, p)| p.frames()),
            after: below.and_then(|(e, p)| p.after(e.end - e.start).frames()),
        }
    }
}

/// See the module's documentation. It is read as the tree that it holds.
#[derive(Default)]
pub(crate) struct Pmas {
    tree: GapTree<Pma>,
    /// Other CLAS that files mapped here have had frames of. Those stay while a PMA may have some:
    /// a PMA knows its frames' CLAS by its descriptor only.
    foreign: Vec<Arc<Clas>>,
    freed: Freed,
    charged: Arc<Charged>,
}

/// Bytes of frames of the own CLAS that PMAs have. Changed here alone, under the lock; read without
/// it.
#[derive(Debug, Default)]
pub(crate) struct Charged {
    all: AtomicU64,
    /// Of them, what was swapped out.
    swapped: AtomicU64,
}

impl Charged {
    pub(crate) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    pub(crate) fn swapped(&self) -> u64 {
        self.swapped.load(Ordering::Relaxed)
    }
}

impl Deref for Pmas {
    type Target = GapTree<Pma>;

    fn deref(&self) -> &GapTree<Pma> {
        &self.tree
    }
}

impl Pmas {
    /// What is to be given back. Where the application side is gone but may still run, the caller
    /// leaves it here.
    pub(crate) fn take_freed(&mut self) -> Freed {
        std::mem::take(&mut self.freed)
    }

    /// See the field.
    pub(crate) fn charged(&self) -> &Arc<Charged> {
        &self.charged
    }

    fn count(&self, r: &Range<u64>, pma: &Pma, change: impl Fn(u64, u64) -> u64) {
        let count = |n: &AtomicU64| {
            let then = change(n.load(Ordering::Relaxed), r.end - r.start);
            n.store(then, Ordering::Relaxed);
        };
        if pma.frames().is_some() {
            count(&self.charged.all);
        }
        if !pma.is_here() {
            count(&self.charged.swapped);
        }
    }

    /// What serves `r`, which one PMA does, goes on as this kind.
    pub(crate) fn set_kind(&mut self, r: &Range<u64>, kind: PmaKind) {
        self.cut(r);
        if let Some((e, p)) = self.tree.get_mut(r.start) {
            let old = std::mem::replace(p, Pma { kind, ..*p });
            let new = *p;
            self.count(&e, &old, u64::wrapping_sub);
            self.count(&e, &new, u64::wrapping_add);
        }
        self.merge(r.start);
        self.merge(r.end);
    }

    #[cfg(test)]
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.own.is_empty()
    }

    /// Adds a PMA where there is none, and joins it with its neighbours.
    pub(crate) fn insert(&mut self, r: Range<u64>, pma: Pma) {
        self.inherit(r.clone(), pma);
        self.merge(r.start);
        self.merge(r.end);
    }

    /// Adds a PMA where there is none, as the parent of a fork has it.
    pub(crate) fn inherit(&mut self, r: Range<u64>, pma: Pma) {
        self.count(&r, &pma, u64::wrapping_add);
        let free = self.tree.insert(r, pma).is_ok();
        assert!(free, "two PMAs of the same address");
    }

    /// In a fork's child, which has no PMA yet: it will have frames of the same CLAS.
    pub(crate) fn inherit_foreign(&mut self, parent: &Pmas) {
        self.foreign = parent.foreign.clone();
    }

    fn merge(&mut self, at: u64) {
        if let Some((a, low)) = self.tree.last_below(at)
            && a.end == at
            && let Some((b, high)) = self.tree.get(at)
            && low.after(a.end - a.start) == *high
        {
            self.tree.remove(b.start);
            self.tree.resize(a.start, a.start..b.end);
        }
    }

    /// Makes the borders of `r` borders of PMAs.
    pub(crate) fn cut(&mut self, r: &Range<u64>) {
        for at in [r.start, r.end] {
            self.tree.split(at, |p, e| p.after(at - e.start));
        }
    }

    /// Takes the PMAs of `r` out, with their references, and unmaps what the host has mapped of
    /// them.
    pub(crate) fn take(&mut self, r: Range<u64>, host: &mut HostMap) -> Vec<(Range<u64>, Pma)> {
        host.unmap(r.clone());
        self.cut(&r);
        let mut out = Vec::new();
        while let Some((e, _)) = self.tree.first_from(r.start)
            && e.start < r.end
        {
            out.extend(self.tree.remove(e.start));
        }
        out.iter()
            .for_each(|(e, p)| self.count(e, p, u64::wrapping_sub));
        out
    }

    /// Removes the PMAs of `r` and what the host has mapped of them.
    pub(crate) fn remove(&mut self, r: Range<u64>, host: &mut HostMap) {
        host.unmap(r.clone());
        self.kill(r);
    }

    fn kill(&mut self, r: Range<u64>) {
        self.cut(&r);
        while let Some((e, p)) = self.tree.first_from(r.start)
            && e.start < r.end
        {
            let p = *p;
            self.count(&e, &p, u64::wrapping_sub);
            self.release(p.backing, (e.end - e.start) / PAGE);
            self.tree.remove(e.start);
        }
    }

    /// Puts `pma` in the place of what serves `r`. Gives whether the host has mapped what was
    /// there: then the caller maps it anew.
    #[must_use]
    pub(crate) fn replace(&mut self, r: Range<u64>, pma: Pma, host: &HostMap) -> bool {
        self.kill(r.clone());
        self.insert(r.clone(), pma);
        host.overlaps(r)
    }

    /// Takes over `r` of a PMA: nobody else has its frames (any more).
    pub(crate) fn own(&mut self, r: &Range<u64>) {
        self.cut(r);
        if let Some((_, p)) = self.tree.get_mut(r.start) {
            p.kind = PmaKind::Anon;
        }
        self.merge(r.start);
        self.merge(r.end);
    }

    /// Before a fork's child gets what serves `r`: frames that may be written are copied on write
    /// from now on, but those that are `kept`. Gives whether any of `r` is no file's, so that less
    /// may be mapped on the host.
    pub(crate) fn share(&mut self, r: Range<u64>, kept: impl Fn(&Range<u64>) -> bool) -> bool {
        let mut hid = false;
        self.tree.for_each_mut(r, |e, p| {
            // A PMA may reach over several VMAs: one before may have marked it already.
            hid |= !p.is_file();
            if p.kind == PmaKind::Anon && !kept(&e) {
                p.kind = PmaKind::AnonCow;
            }
        });
        hid
    }

    /// The frames that lie before and behind `r` in memory: what is made for `r` goes beside them.
    pub(crate) fn placement_hint(&self, r: &Range<u64>) -> PlacementHint {
        let around = Hole {
            above: self.tree.get(r.end).map(|(e, p)| (e, *p)),
            below: self.tree.last_below(r.start).map(|(e, p)| (e, *p)),
        };
        around.placement_hint(r)
    }

    /// What is around `va`, which has no PMA.
    pub(crate) fn hole(&self, va: u64) -> Hole {
        Hole {
            above: self.tree.first_from(va).map(|(e, p)| (e, *p)),
            below: self.tree.last_below(va).map(|(e, p)| (e, *p)),
        }
    }

    /// The frames that serve `r` from its start on, and how many.
    pub(crate) fn frames_of(&self, r: &Range<u64>) -> Option<(Cla, u64)> {
        let (e, p) = self.tree.get(r.start)?;
        let at = p.after(r.start - e.start).frames()?;
        Some((at, (r.end.min(e.end) - r.start) / PAGE))
    }

    /// What backs a part of a file. Frames of another CLAS are given as what they are on the host,
    /// a part of a file; with their references, for [`Pmas::release`] to give back: what maps them
    /// may move, or be copied by fork(2), while the one that cuts the file short looks for it.
    pub(crate) fn backing(
        &mut self,
        own: &Arc<Clas>,
        file: &dyn Mappable,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<(Backing, u64)> {
        let (backing, got) = file.backing(offset, len, access)?;
        let (Backing::Frames(at), Some(theirs)) = (backing, file.memory()) else {
            return Ok((backing, got));
        };
        if Arc::ptr_eq(theirs, own) {
            return Ok((backing, got));
        }
        if !self.foreign.iter().any(|c| Arc::ptr_eq(c, theirs)) {
            self.foreign.push(theirs.clone());
        }
        let host = Backing::Host {
            fd: theirs.memory_fd(),
            offset: at.0,
        };
        Ok((host, got))
    }

    /// Whose frames a part of a host file is, if it is memory of another container or on a disk.
    pub(crate) fn foreign_frames(&self, b: Backing) -> Option<(&Arc<Clas>, Cla)> {
        let Backing::Host { fd, offset } = b else {
            return None;
        };
        let theirs = self.foreign.iter().find(|c| c.memory_fd() == fd)?;
        Some((theirs, Cla(offset)))
    }

    /// Gives the references of a PMA's frames back, later.
    pub(crate) fn release(&mut self, b: Backing, pages: u64) {
        if let Backing::Frames(at) = b {
            self.freed.own.push((at, pages));
        } else if let Some((theirs, at)) = self.foreign_frames(b) {
            let dead = (theirs.clone(), at, pages);
            self.freed.foreign.push(dead);
        }
    }
}
