//! Hanging trees into others, moving and taking them down, with what goes on to the peers of the
//! mount below (Linux's fs/pnode.c and `attach_recursive_mnt`).
//!
//! All of it is under the mount lock. What can fail (room for the copies) is asked before anything
//! changes.

use super::trees::Copy;
use super::{
    Core, Detached, Keep, MountNamespace, Parting, Recursive, holds_mounts, lock_tree, subtree,
};
use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags, Path};
use crate::peers::Copied;
use abi::Result;
use abi::errno::{EBUSY, EINVAL, ELOOP, ENOENT};
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

    /// Whether the mounts of a plan have room for `len` more each.
    fn room_for(&self, steps: &[Step], len: usize) -> Result<()> {
        let mut more: HashMap<u64, (Arc<Core>, usize)> = HashMap::new();
        for s in steps {
            if let Some(core) = self.core_of(&s.to) {
                more.entry(core.id).or_insert((core, 0)).1 += len;
            }
        }
        more.values()
            .try_for_each(|(core, n)| core.room(&core.payer, *n))
    }

    /// Hangs the tree `m`, which hangs nowhere, at `t`, and copies of it where that goes on to.
    /// `core`: whose tree it is a part of afterwards; those that it is in have given it up.
    pub(super) fn hang(&self, m: &Arc<Mount>, t: &Path, core: &Core) -> Result<()> {
        let steps = self.hang_plan(m, t)?;
        self.hang_by(m, t, &steps);
        core.enter(&subtree(m));
        Ok(())
    }

    /// What hanging `m` at `t` brings with it, if there is room.
    fn hang_plan(&self, m: &Arc<Mount>, t: &Path) -> Result<Vec<Step>> {
        // A detached tree shares, and is not told.
        let fits = |to: &Arc<Mount>| {
            self.core_of(to).is_some_and(|c| c.origin.is_none()) && t.dentry.is_below(&to.root)
        };
        let steps = self.plan(&t.mnt, fits);
        if !steps.is_empty() {
            self.room_for(&steps, subtree(m).len())?;
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
            let copy = Copy {
                recursive: Recursive::Yes,
                unbindable: Keep::No,
                how: s.how,
            };
            let of = Path::root_of(&made[s.of]);
            let below = Self::copied_below(&of, copy);
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
        if t.dentry.is_unhashed() && !t.is_mount_root() {
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
        let shows_older =
            |m: &Arc<Mount>| holds_mounts(&m.root).is_some_and(|n| n > 0 && n <= self.id);
        if all.iter().any(shows_older) || is_ancestor(m, &t.mnt) {
            return Err(ELOOP);
        }
        debug_assert!(target.is_none() || !self.owns(&t.mnt));
        let steps = self.hang_plan(m, &t)?;
        match detached {
            None => {
                m.detach();
                self.hang_by(m, &t, &steps);
            }
            Some(old) => {
                let core = self.core_of(&t.mnt).ok_or(EINVAL)?;
                core.room(&core.payer, all.len())?;
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
