//! Hanging trees into others, moving and taking them down, with what goes on to the peers of the
//! mount below (Linux's fs/pnode.c and `attach_recursive_mnt`).
//!
//! All of it is under the mount lock. What can fail is asked before anything changes: whether all
//! that comes has room, the tree itself and its copies together, however many of them one user pays
//! for ([`Need`]).

use super::trees::Copy;
use super::{
    Core, Detached, Keep, MOUNT, MountNamespace, Parting, Recursive, holds_mounts, lock_tree,
    subtree,
};
use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags, Path};
use crate::peers::Copied;
use crate::ucounts::Kind;
use abi::Result;
use abi::errno::{EBUSY, EINVAL, ELOOP, ENOENT, ENOSPC};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Whether a mount goes below the one at its place (`MOVE_MOUNT_BENEATH`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beneath {
    No,
    Yes,
}

/// A mount that gets a copy.
struct Step {
    to: Arc<Mount>,
    /// What is copied: 0 is the tree itself, n the copy of the step n - 1.
    of: usize,
    how: Copied,
}

/// What is to come into trees: how many mounts into each, and how many of them its payer does not
/// pay for yet.
#[derive(Default)]
struct Need(HashMap<u64, (Arc<Core>, usize, usize)>);

impl Need {
    fn add(&mut self, core: &Arc<Core>, mounts: usize, unpaid: usize) {
        let n = self.0.entry(core.id).or_insert((core.clone(), 0, 0));
        n.1 = n.1.saturating_add(mounts);
        n.2 = n.2.saturating_add(unpaid);
    }
    /// `ENOSPC` where not all of it has room.
    fn has_room(&self) -> Result<()> {
        // Charged together, then given back: payers may be one, or have one above them.
        let mut charged = Vec::with_capacity(self.0.len());
        for (core, mounts, unpaid) in self.0.values() {
            core.places(*mounts)?;
            let bytes = (*unpaid as u64).saturating_mul(MOUNT);
            let charge = core.payer.charge(Kind::Kmem, bytes, u64::MAX);
            charged.push(charge.ok_or(ENOSPC)?);
        }
        Ok(())
    }
}

/// The mount that covers all others on the root of `m` (`topmost_overmount`).
fn topmost(m: &Arc<Mount>) -> Arc<Mount> {
    let mut m = m.clone();
    while let Some(over) = m.child_at(&m.root) {
        m = over;
    }
    m
}

/// Hangs `m` at a place; what is there comes to lie over it.
fn tuck(m: &Arc<Mount>, to: &Arc<Mount>, at: &Arc<Dentry>) {
    let over = to.child_at(at);
    if let Some(o) = &over {
        o.detach();
    }
    m.attach(to, at);
    if let Some(o) = over {
        let top = topmost(m);
        o.attach(&top, &top.root.clone());
    }
}

/// Whether `above` is `m` or lies above it (`mount_is_ancestor`).
fn is_ancestor(above: &Arc<Mount>, m: &Arc<Mount>) -> bool {
    let mut up = Some(m.clone());
    while let Some(m) = up {
        if Arc::ptr_eq(&m, above) {
            return true;
        }
        up = m.parent().map(|p| p.0);
    }
    false
}

impl MountNamespace {
    /// What becomes of a mount below `from` in the other mounts that are told: members of its
    /// group, their slaves, and so on, where `fits`.
    fn plan(&self, from: &Arc<Mount>, fits: impl Fn(&Arc<Mount>) -> bool) -> Vec<Step> {
        let (peers, first) = (&self.registry.peers, from.sharing().group);
        let mut steps = Vec::new();
        if first == 0 {
            return steps;
        }
        let mut seen = HashSet::from([first]);
        let mut work = vec![(first, 0)];
        while let Some((group, mut of)) = work.pop() {
            let mut has_copy = group == first;
            for to in peers.members(group) {
                if Arc::ptr_eq(&to, from) || !fits(&to) {
                    continue;
                }
                let how = if has_copy {
                    Copied::Alike
                } else {
                    Copied::SharedSlave
                };
                steps.push(Step { to, of, how });
                if !has_copy {
                    (of, has_copy) = (steps.len(), true);
                }
            }
            for to in peers.slaves(group) {
                let own = to.sharing().group;
                if own != 0 {
                    if seen.insert(own) {
                        work.push((own, of));
                    }
                } else if fits(&to) {
                    steps.push(Step {
                        to,
                        of,
                        how: Copied::Slave,
                    });
                }
            }
        }
        steps
    }

    /// What the mounts of a plan take, for a tree of `len`.
    fn need(&self, steps: &[Step], len: usize) -> Need {
        let mut need = Need::default();
        for s in steps {
            if let Some(core) = self.core_of(&s.to) {
                need.add(&core, len, len);
            }
        }
        need
    }

    /// Hangs the tree that `make` makes, `len` mounts whose first has this root, at `t` in this
    /// namespace, and copies of it where that goes on to. It is made only if all of it has room.
    pub(super) fn hang(
        &self,
        t: &Path,
        root: &Arc<Dentry>,
        len: usize,
        make: impl FnOnce() -> Arc<Mount>,
    ) -> Result<Arc<Mount>> {
        let steps = self.hang_plan(root, t)?;
        let mut need = self.need(&steps, len);
        need.add(&self.core, len, len);
        need.has_room()?;
        let m = make();
        self.hang_by(&m, t, &steps);
        self.core.enter(&subtree(&m));
        Ok(m)
    }

    /// What hanging a tree with this root at `t` brings with it. `EINVAL` for a mount namespace's
    /// file that would go on to others: they have no copies of it (`copy_tree`).
    fn hang_plan(&self, root: &Arc<Dentry>, t: &Path) -> Result<Vec<Step>> {
        // A detached tree shares, and is not told.
        let fits = |to: &Arc<Mount>| {
            self.core_of(to).is_some_and(|c| c.origin.is_none()) && t.dentry.is_below(&to.root)
        };
        let steps = self.plan(&t.mnt, fits);
        if !steps.is_empty() && holds_mounts(root).is_some_and(|n| n > 0) {
            return Err(EINVAL);
        }
        Ok(steps)
    }

    fn hang_by(&self, m: &Arc<Mount>, t: &Path, steps: &[Step]) {
        if t.mnt.is_shared() {
            for m in subtree(m) {
                m.set_flags(m.flags() - MountFlags::UNBINDABLE);
                self.registry.peers.share(&m);
            }
        }
        // All copies first: none has what another brings.
        let mut made = vec![m.clone()];
        for s in steps {
            // None is unbindable by now, so none is left out that hides something.
            let copy = Copy {
                recursive: Recursive::Yes,
                unbindable: Keep::Yes,
                how: s.how,
            };
            let of = Path::root_of(&made[s.of]);
            let below = Self::copied_below(&of, copy).unwrap_or_default();
            made.push(self.copy_tree(&of, &below, copy).0);
        }
        tuck(m, &t.mnt, &t.dentry);
        for (s, c) in steps.iter().zip(&made[1..]) {
            let core = self.core_of(&s.to);
            let came = core.and_then(|core| {
                core.while_alive(|| {
                    let all = subtree(c);
                    tuck(c, &s.to, &t.dentry);
                    if core.user != *self.user() {
                        lock_tree(c);
                    }
                    core.enter(&all);
                })
            });
            if came.is_none() {
                subtree(c).iter().for_each(|m| self.registry.peers.leave(m));
            }
        }
    }

    /// Where a mount on `to` goes: on top of what is there, or below the topmost there.
    fn place(&self, to: &Path, beneath: Beneath) -> Result<Path> {
        if beneath == Beneath::No {
            let mut t = to.clone();
            t.follow_down();
            return Ok(t);
        }
        if !to.is_mount_root() {
            return Err(EINVAL);
        }
        let (mnt, at) = topmost(&to.mnt).parent().ok_or(EINVAL)?;
        Ok(Path::new(mnt, at))
    }

    /// `can_move_mount_beneath`: `over` is what will lie over `from`. `root`: the caller's.
    fn may_go_beneath(&self, from: &Arc<Mount>, t: &Path, root: &Path) -> Result<()> {
        let over = t.mnt.child_at(&t.dentry).ok_or(EINVAL)?;
        let overmounts = |to: &Arc<Mount>| {
            Arc::ptr_eq(&to.root, &t.dentry)
                && self
                    .plan(&t.mnt, |m| Arc::ptr_eq(m, to))
                    .iter()
                    .any(|s| Arc::ptr_eq(&s.to, to))
        };
        if over.is_locked()
            || over.child_at(&over.root).is_some()
            || Arc::ptr_eq(&over, &root.mnt)
            || is_ancestor(&over, from)
            || overmounts(&over)
            || self.owns(from) && overmounts(from)
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// The detached tree that a mount is in, so that it does not end meanwhile; `None` for one in a
    /// namespace. `EINVAL` where it has begun to end.
    fn tree_of(&self, m: &Mount) -> Result<Option<Arc<Detached>>> {
        match self.core_of(m) {
            Some(core) if core.origin.is_some() => {
                let trees = self.registry.detached.lock();
                let tree = trees.get(&core.id).and_then(std::sync::Weak::upgrade);
                tree.map(Some).ok_or(EINVAL)
            }
            _ => Ok(None),
        }
    }

    /// `MS_MOVE` and move_mount(2); `root` is the caller's root directory.
    pub fn move_mount(&self, from: &Path, to: &Path, beneath: Beneath, root: &Path) -> Result<()> {
        // Dropped without the mount lock: one may be the last.
        let (source, target);
        let _g = self.registry.lock.lock();
        if !from.is_mount_root() || to.is_dir() != from.is_dir() {
            return Err(EINVAL);
        }
        let (m, t) = (&from.mnt, self.place(to, beneath)?);
        if t.dentry.is_unhashed() && !t.is_mount_root() || t.inode()?.takes_no_mounts() {
            return Err(ENOENT);
        }
        target = self.tree_of(&t.mnt)?;
        source = self.tree_of(m)?;
        let detached = if self.owns(m) {
            let (parent, _) = m.parent().ok_or(EINVAL)?;
            if m.is_locked() || parent.is_shared() || !self.owns(&t.mnt) {
                return Err(EINVAL);
            }
            None
        } else {
            let core = self.detached_root(m).ok_or(EINVAL)?;
            let usable = self.owns(&t.mnt) || self.may_use_detached(&t.mnt);
            if t.mnt.namespace() == core.id || !usable {
                return Err(EINVAL);
            }
            Some(core)
        };
        if beneath == Beneath::Yes {
            self.may_go_beneath(m, &t, root)?;
        }
        let all = subtree(m);
        if t.mnt.is_shared()
            && all
                .iter()
                .any(|m| m.flags().contains(MountFlags::UNBINDABLE))
        {
            return Err(EINVAL);
        }
        if all.iter().any(|m| self.shows_older(&m.root)) || is_ancestor(m, &t.mnt) {
            return Err(ELOOP);
        }
        debug_assert!(target.is_none() || !self.owns(&t.mnt));
        let steps = self.hang_plan(&m.root, &t)?;
        let mut need = self.need(&steps, all.len());
        match detached {
            None => {
                need.has_room()?;
                m.detach();
                self.hang_by(m, &t, &steps);
                self.core.changed.tell();
            }
            Some(old) => {
                let core = self.core_of(&t.mnt).ok_or(EINVAL)?;
                // What each takes was charged when it was made, and stays so.
                need.add(&core, all.len(), 0);
                need.has_room()?;
                old.give_up(all.len());
                self.hang_by(m, &t, &steps);
                core.enter(&all);
                if let Some(tree) = &source {
                    tree.let_go();
                }
            }
        }
        Ok(())
    }

    /// `EBUSY` where a mount that goes with `m`, among its peers, is in use
    /// (`propagate_mount_busy`).
    pub(super) fn peers_busy(&self, m: &Arc<Mount>) -> Result<()> {
        let Some((parent, at)) = m.parent() else {
            return Ok(());
        };
        for s in self.plan(&parent, |_| true) {
            if let Some(c) = s.to.child_at(&at)
                && c.children().is_empty()
                // Held by its parent and by us.
                && Arc::strong_count(&c) > 2
            {
                return Err(EBUSY);
            }
        }
        Ok(())
    }

    /// Takes a mount down with all below it, and what that goes on to. Gives them, to be dropped
    /// without the mount lock.
    pub(super) fn take_down(&self, m: &Arc<Mount>) -> Vec<Arc<Mount>> {
        let peers = &self.registry.peers;
        let all = subtree(m);
        let going: HashSet<u64> = all.iter().map(|m| m.id).collect();
        let mut others: HashMap<u64, Arc<Mount>> = HashMap::new();
        for m in &all {
            let Some((parent, at)) = m.parent() else {
                continue;
            };
            for s in self.plan(&parent, |_| true) {
                if let Some(c) = s.to.child_at(&at).filter(|c| !going.contains(&c.id)) {
                    others.insert(c.id, c);
                }
            }
        }
        let mut gone = self.core.leave(peers, m, Parting::Cut);
        for c in removable(others) {
            let Some((parent, at)) = c.parent() else {
                continue;
            };
            let Some(core) = self.core_of(&c) else {
                continue;
            };
            let left = core.while_alive(|| {
                // What covers it stays, and covers what it covered.
                let over = c.child_at(&c.root);
                if let Some(o) = &over {
                    o.detach();
                }
                let left = core.leave(peers, &c, Parting::Cut);
                if let Some(o) = over {
                    o.attach(&parent, &at);
                }
                left
            });
            gone.extend(left.into_iter().flatten());
        }
        gone
    }

    /// `MOVE_MOUNT_SET_GROUP`: a private mount shares as `from` does (`do_set_group`).
    pub fn set_group(&self, from: &Path, to: &Path) -> Result<()> {
        let _g = self.registry.lock.lock();
        let (a, b) = (&from.mnt, &to.mnt);
        if !from.is_mount_root()
            || !to.is_mount_root()
            || !Arc::ptr_eq(a.sb(), b.sb())
            || !b.root.is_below(&a.root)
            || a.has_locked_below(&b.root)
            || b.sharing() != Default::default()
            || a.sharing() == Default::default()
        {
            return Err(EINVAL);
        }
        let core = self.core_of(b).ok_or(EINVAL)?;
        let set = core.while_alive(|| {
            b.set_flags(b.flags() - MountFlags::UNBINDABLE);
            self.registry.peers.set_group(b, a);
        });
        set.ok_or(EINVAL)
    }
}

/// Those of the mounts that nothing keeps: all below them go, too, but for what covers them whole,
/// and they are not locked to a mount that stays. Deepest first.
fn removable(of: HashMap<u64, Arc<Mount>>) -> Vec<Arc<Mount>> {
    let depth = |m: &Arc<Mount>| {
        let (mut n, mut up) = (0_usize, m.parent());
        while let Some((m, _)) = up {
            n += 1;
            up = m.parent();
        }
        n
    };
    let mut sorted: Vec<_> = of.values().map(|m| (depth(m), m.clone())).collect();
    sorted.sort_by_key(|(d, m)| (std::cmp::Reverse(*d), m.id));
    let mut gone = HashSet::new();
    let mut all = Vec::new();
    for (_, m) in sorted {
        let parent = m.parent().map_or(0, |p| p.0.id);
        let kept = m.is_locked() && !of.contains_key(&parent);
        let covers = |c: &Mount| c.parent().is_some_and(|(_, at)| Arc::ptr_eq(&at, &m.root));
        if !kept
            && m.children()
                .iter()
                .all(|c| gone.contains(&c.id) || covers(c))
        {
            gone.insert(m.id);
            all.push(m);
        }
    }
    all
}
