//! Copies of trees, and trees that hang nowhere (`open_tree(2)`, `fsmount(2)`).

use super::{
    ById, Core, Keep, MountNamespace, Parting, Recursive, Registry, end, holds_mounts, subtree,
};
use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags, NewFlags, Path};
use crate::peers::Copied;
use abi::Result;
use abi::errno::{EINVAL, EPERM};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What a copy has of a tree.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    pub recursive: Recursive,
    pub unbindable: Keep,
    pub how: Copied,
}

/// A tree that hangs nowhere, until it is moved to a place. Its descriptor's last close ends it
/// (`dissolve_on_fput`); what was moved away is somebody else's.
pub struct Detached {
    registry: Arc<Registry>,
    core: Arc<Core>,
    root: std::sync::Weak<Mount>,
    /// Holds the tree as long as it hangs nowhere.
    held: parking_lot::Mutex<Option<Arc<Mount>>>,
}

impl Detached {
    fn new(registry: &Arc<Registry>, core: Arc<Core>, root: Arc<Mount>) -> Arc<Detached> {
        let d = Arc::new(Detached {
            registry: registry.clone(),
            core,
            root: Arc::downgrade(&root),
            held: parking_lot::Mutex::new(Some(root)),
        });
        registry
            .detached
            .lock()
            .insert(d.core.id, Arc::downgrade(&d));
        d
    }
    /// The tree hangs somewhere now.
    pub(super) fn let_go(&self) {
        // Whoever moved it has it.
        let _moved = self.held.lock().take();
    }
    /// The root of the tree, if it has not ended.
    #[must_use]
    pub fn root(&self) -> Option<Arc<Mount>> {
        self.root.upgrade()
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.registry.detached.lock().remove(&self.core.id);
        match self.held.get_mut().take() {
            Some(root) => end(self.core.end(&self.registry, &root, Parting::Together)),
            None => {
                self.registry.cores.lock().remove(&self.core.id);
            }
        }
    }
}

impl MountNamespace {
    /// Whether `from` may be copied (`may_copy_tree`, `__do_loopback`). A namespace's file is on no
    /// mount of a tree.
    pub(super) fn may_copy(&self, from: &Path, recursive: Recursive) -> Result<()> {
        let own = self.owns(&from.mnt) || self.may_use_detached(&from.mnt);
        if from.mnt.flags().contains(MountFlags::UNBINDABLE)
            || !own && holds_mounts(&from.dentry).is_none()
            || recursive == Recursive::No && from.mnt.has_locked_below(&from.dentry)
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// What a copy from `from` down has besides the mount itself, parents before children. `EPERM`
    /// where it would leave out an unbindable mount that is locked to what it covers: the copy
    /// would show that (`copy_tree`).
    pub(super) fn copied_below(from: &Path, copy: Copy) -> Result<Vec<Arc<Mount>>> {
        if copy.recursive == Recursive::No {
            return Ok(Vec::new());
        }
        let m = &from.mnt;
        let mut copied = HashSet::from([m.id]);
        let mut all = Vec::new();
        for old in subtree(m) {
            let Some((parent, at)) = old.parent() else {
                continue;
            };
            if !copied.contains(&parent.id) || Arc::ptr_eq(&parent, m) && !at.is_below(&from.dentry)
            {
                continue;
            }
            if copy.unbindable == Keep::No && old.flags().contains(MountFlags::UNBINDABLE) {
                if old.is_locked() {
                    return Err(EPERM);
                }
                continue;
            }
            if holds_mounts(&old.root).is_some_and(|n| n > 0) {
                continue;
            }
            copied.insert(old.id);
            all.push(old);
        }
        Ok(all)
    }

    /// A copy of the mount of `from` with its dentry as the root, and of those of
    /// [`Self::copied_below`]. It is in no tree yet. Under the mount lock.
    pub(super) fn copy_tree(
        &self,
        from: &Path,
        below: &[Arc<Mount>],
        copy: Copy,
    ) -> (Arc<Mount>, ById) {
        let make = |m: &Mount, root: Arc<Dentry>| {
            let mut flags = m.flags() - MountFlags::INTERNAL;
            if copy.unbindable == Keep::No {
                flags -= MountFlags::UNBINDABLE;
            }
            let new = Mount::new(self.registry.new_id(), root, flags, &m.source);
            new.keep(m.kept());
            self.registry.peers.copied(m, &new, copy.how);
            new
        };
        let top = make(&from.mnt, from.dentry.clone());
        top.set_flags(top.flags() - MountFlags::LOCKED);
        let mut map = HashMap::from([(from.mnt.id, top.clone())]);
        for old in below {
            let Some((parent, at)) = old.parent() else {
                continue;
            };
            if let Some(new_parent) = map.get(&parent.id) {
                let new = make(old, old.root.clone());
                new.attach(new_parent, &at);
                map.insert(old.id, new);
            }
        }
        (top, map)
    }

    /// `OPEN_TREE_CLONE`: a copy that hangs nowhere.
    pub fn detached_copy(&self, from: &Path, recursive: Recursive) -> Result<Arc<Detached>> {
        let _g = self.registry.lock.lock();
        self.may_copy(from, recursive)?;
        let origin = match self.core_of(&from.mnt) {
            None => 0,
            Some(c) => c.origin.unwrap_or(c.id),
        };
        let copy = Copy {
            recursive,
            unbindable: Keep::No,
            how: Copied::Alike,
        };
        let below = Self::copied_below(from, copy)?;
        self.core.room(&self.core.payer, below.len() + 1)?;
        let core = Core::new(&self.registry, self.user(), Some(origin));
        let (top, _) = self.copy_tree(from, &below, copy);
        core.enter(&subtree(&top));
        Ok(Detached::new(&self.registry, core, top))
    }

    /// `fsmount(2)`: a mount of the file system with this root that hangs nowhere.
    pub fn detached(
        &self,
        root: Arc<Dentry>,
        flags: NewFlags,
        source: &str,
    ) -> Result<Arc<Detached>> {
        let _g = self.registry.lock.lock();
        self.core.room(&self.core.payer, 1)?;
        let core = Core::new(&self.registry, self.user(), Some(0));
        let m = self.new_mount(root, flags, source);
        core.enter(std::slice::from_ref(&m));
        Ok(Detached::new(&self.registry, core, m))
    }
}
