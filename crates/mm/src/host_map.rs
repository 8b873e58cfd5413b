//! The cache of host mappings, with the batch of changes that the host is still to be told.
//!
//! # Invariants
//!
//! - The tree is what the host has mapped once the batch is made ([`HostMap::flush`]): both change
//!   together.
//! - An entry may go at any moment. It lies in PMAs, and grants no more than VMA and PMA do:
//!   [`State::host_map`] and [`State::host_protect`] see to that, and what removes a PMA unmaps it
//!   first.
//! - Where the host cannot make a batch, nothing is mapped any more; where it cannot unmap all
//!   either, the application is ended.
//!
//! [`State::host_map`]: crate::state::State::host_map
//! [`State::host_protect`]: crate::state::State::host_protect

use crate::suspects::Suspects;
use abi::errno::ESRCH;
use gap_tree::GapTree;
use platform::{AddressSpace, MapOp, Prot, Sharing, USER_MAX, USER_MIN};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// What the host is to map somewhere.
pub(crate) struct Target {
    pub(crate) prot: Prot,
    pub(crate) fd: i32,
    pub(crate) offset: u64,
    pub(crate) sharing: Sharing,
}

/// See the module's documentation. It is read as the tree that it holds: what is mapped, with
/// which protection.
pub(crate) struct HostMap {
    tree: GapTree<Prot>,
    /// Changes that [`HostMap::flush`] makes.
    batch: Vec<MapOp>,
    /// Immutable.
    space: Arc<dyn AddressSpace>,
    /// The application side was ended, and changes of its mappings are not made any more.
    gone: bool,
    /// Where faults of an unknown kind found nothing missing.
    suspects: Suspects,
    random_drop: RandomDrop,
}

impl Deref for HostMap {
    type Target = GapTree<Prot>;

    fn deref(&self) -> &GapTree<Prot> {
        &self.tree
    }
}

impl HostMap {
    pub(crate) fn new(space: Arc<dyn AddressSpace>) -> HostMap {
        HostMap {
            tree: GapTree::new(),
            batch: Vec::new(),
            space,
            gone: false,
            suspects: Suspects::default(),
            random_drop: RandomDrop::default(),
        }
    }

    pub(crate) fn space(&self) -> &dyn AddressSpace {
        &*self.space
    }

    /// Whether the application side was ended. It may still run, for a moment.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    #[cfg(test)]
    pub(crate) fn is_flushed(&self) -> bool {
        self.batch.is_empty()
    }

    /// Unmaps what is mapped of `r`.
    pub(crate) fn unmap(&mut self, r: Range<u64>) {
        let mut hull: Option<Range<u64>> = None;
        for (e, _) in self.tree.range(r.clone()) {
            let (s, e) = (e.start.max(r.start), e.end.min(r.end));
            hull = Some(hull.map_or(s, |h| h.start)..e);
        }
        let Some(h) = hull else { return };
        let (va, len) = (h.start, h.end - h.start);
        clear(&mut self.tree, h);
        if let Some(MapOp::Unmap { va: v, len: l }) = self.batch.last_mut()
            && *v + *l == va
        {
            *l += len;
            return;
        }
        self.batch.push(MapOp::Unmap { va, len });
    }

    /// Maps `to` at `x`, replacing what is mapped there.
    pub(crate) fn map(&mut self, x: Range<u64>, to: Target) {
        let Target {
            prot,
            fd,
            offset,
            sharing,
        } = to;
        set(&mut self.tree, x.clone(), prot);
        let (va, len) = (x.start, x.end - x.start);
        if let Some(MapOp::Map {
            va: v,
            len: l,
            prot: p,
            fd: f,
            offset: o,
            sharing: s,
        }) = self.batch.last_mut()
            && *v + *l == va
            && *o + *l == offset
            && (*p, *f, *s) == (prot, fd, sharing)
        {
            *l += len;
            return;
        }
        self.batch.push(MapOp::Map {
            va,
            len,
            prot,
            fd,
            offset,
            sharing,
        });
    }

    /// Gives `x`, which is mapped, another protection.
    pub(crate) fn protect(&mut self, x: Range<u64>, prot: Prot) {
        set(&mut self.tree, x.clone(), prot);
        let (va, len) = (x.start, x.end - x.start);
        if let Some(MapOp::Protect {
            va: v,
            len: l,
            prot: p,
        }) = self.batch.last_mut()
            && *v + *l == va
            && *p == prot
        {
            *l += len;
            return;
        }
        self.batch.push(MapOp::Protect { va, len, prot });
    }

    /// Has the host advised on `x`, which is mapped, in the batch.
    pub(crate) fn advise(&mut self, x: Range<u64>, advice: u32) {
        self.batch.push(MapOp::Advise {
            va: x.start,
            len: x.end - x.start,
            advice: advice as i32,
        });
    }

    /// Has the host advised, now, on what is mapped of `r`, where the batch is made. It is a head
    /// start only: it may fail for many reasons.
    pub(crate) fn advise_now(&self, r: Range<u64>, advice: impl Fn(Prot) -> u32) {
        for (e, p) in self.tree.range(r.clone()) {
            let (va, end) = (e.start.max(r.start), e.end.min(r.end));
            let _ = self.space.apply(&[MapOp::Advise {
                va,
                len: end - va,
                advice: advice(*p) as i32,
            }]);
        }
    }

    /// The part of `r` around `va` where nothing is mapped; `Err` with the mapped part if `va` is
    /// mapped.
    pub(crate) fn hole(&self, va: u64, r: Range<u64>) -> Result<Range<u64>, (Range<u64>, Prot)> {
        let mut hole = r.clone();
        if let Some((e, p)) = self.tree.first_from(va) {
            if e.start <= va {
                return Err((e.start.max(r.start)..e.end.min(r.end), *p));
            }
            hole.end = hole.end.min(e.start);
        }
        if let Some((e, _)) = self.tree.last_below(va) {
            hole.start = hole.start.max(e.end);
        }
        Ok(hole)
    }

    /// Makes the batch; whether it could be made. If not, nothing is mapped any more.
    pub(crate) fn flush(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        let done = self.space.apply(&self.batch);
        self.suspects.clear_changed(&self.batch);
        self.batch.clear();
        match done {
            Ok(()) => true,
            // The application side is gone, and its mappings with it, soon.
            Err(ESRCH) => {
                self.tree.clear();
                self.gone = true;
                true
            }
            Err(_) => {
                self.reset();
                false
            }
        }
    }

    /// Drops every host mapping, whatever state they are in.
    fn reset(&mut self) {
        self.forget();
        self.suspects = Suspects::default();
        let all = MapOp::Unmap {
            va: USER_MIN,
            len: USER_MAX - USER_MIN,
        };
        if self.space.apply(&[all]).is_err() {
            // What is still mapped may be given to others: nothing may run on it.
            self.space.kill();
            self.gone = true;
        }
    }

    /// The application side goes as a whole: nothing of it need be unmapped.
    pub(crate) fn forget(&mut self) {
        self.batch.clear();
        self.tree.clear();
    }

    /// Where the caller's application thread faulted last, though all that is allowed was mapped
    /// there.
    pub(crate) fn suspects(&mut self) -> &mut Suspects {
        &mut self.suspects
    }

    /// For tests: see [`crate::Mm::set_random_drop`].
    pub(crate) fn set_random_drop(&mut self, seed: u64, every: u32) {
        self.random_drop = RandomDrop::new(seed, every);
    }

    /// What this operation maps must stay until the application gets to use it.
    pub(crate) fn hold(&mut self) {
        self.random_drop.hold = true;
    }

    /// For tests: drops a mapping every so often.
    pub(crate) fn drop_at_random(&mut self) {
        if let Some(point) = self.random_drop.next()
            && let Some((r, _)) = self
                .tree
                .first_from(point % USER_MAX)
                .or_else(|| self.tree.iter().next())
        {
            self.unmap(r);
        }
    }
}

fn clear(tree: &mut GapTree<Prot>, r: Range<u64>) {
    tree.split(r.start, |p, _| *p);
    tree.split(r.end, |p, _| *p);
    while let Some((e, _)) = tree.first_from(r.start)
        && e.start < r.end
    {
        tree.remove(e.start);
    }
}

fn set(tree: &mut GapTree<Prot>, r: Range<u64>, prot: Prot) {
    clear(tree, r.clone());
    let (mut start, mut end) = (r.start, r.end);
    if let Some((e, &p)) = tree.last_below(start)
        && e.end == start
        && p == prot
    {
        start = e.start;
        tree.remove(e.start);
    }
    if let Some((e, &p)) = tree.get(end)
        && p == prot
    {
        end = e.end;
        tree.remove(e.start);
    }
    let free = tree.insert(start..end, prot).is_ok();
    debug_assert!(free);
}

/// When to drop a host mapping for no reason.
#[derive(Default)]
struct RandomDrop {
    seed: u64,
    every: u32,
    count: u32,
    /// Set by faults: what they have mapped must stay until the application gets to use it.
    hold: bool,
}

impl RandomDrop {
    fn new(seed: u64, every: u32) -> Self {
        RandomDrop {
            seed: seed | 1,
            every,
            count: 0,
            hold: false,
        }
    }

    /// An address, every so often.
    fn next(&mut self) -> Option<u64> {
        if self.every == 0 || std::mem::take(&mut self.hold) {
            return None;
        }
        self.count += 1;
        if self.count < self.every {
            return None;
        }
        self.count = 0;
        // Xorshift.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        Some(self.seed)
    }
}
