//! Copies of trees, and trees that hang nowhere (`open_tree(2)`, `fsmount(2)`).

use super::{ById, Core, Keep, MountNamespace, Parting, Recursive, end, holds_mounts, subtree};
use crate::dentry::Dentry;
use crate::file::{DataOnly, File, FileOps, IoctlContext};
use crate::mount::{Mount, MountFlags, Path};
use crate::ops::PathOnly;
use crate::peers::Copied;
use crate::vfs::Vfs;
use crate::{Sink, Source, Stat};
use abi::Result;
use abi::errno::EINVAL;
use std::any::Any;
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
    vfs: Arc<Vfs>,
    core: Arc<Core>,
    root: std::sync::Weak<Mount>,
    /// Holds the tree as long as it hangs nowhere.
    held: parking_lot::Mutex<Option<Arc<Mount>>>,
}

impl Detached {
    fn new(vfs: &Arc<Vfs>, core: Arc<Core>, root: Arc<Mount>) -> Arc<Detached> {
        let d = Arc::new(Detached {
            vfs: vfs.clone(),
            core,
            root: Arc::downgrade(&root),
            held: parking_lot::Mutex::new(Some(root)),
        });
        vfs.detached.lock().insert(d.core.id, Arc::downgrade(&d));
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
        self.vfs.detached.lock().remove(&self.core.id);
        match self.held.get_mut().take() {
            Some(root) => end(self.core.end(&self.vfs, &root, Parting::Together)),
            None => {
                self.vfs.namespaces.lock().remove(&self.core.id);
            }
        }
    }
}

/// The descriptor of a detached tree: its root as `O_PATH` names it.
pub struct TreeFile {
    place: PathOnly,
    /// Held for its end.
    _tree: Arc<Detached>,
}

impl TreeFile {
    pub fn new(tree: &Arc<Detached>, root: &Path) -> Result<TreeFile> {
        Ok(TreeFile {
            place: PathOnly::new(root.inode()?.clone()),
            _tree: tree.clone(),
        })
    }
}

impl FileOps for TreeFile {
    fn stat(&self) -> Result<Stat> {
        self.place.stat()
    }
    fn read(&self, f: &File, dst: &mut dyn Sink, at: u64) -> Result<usize> {
        self.place.read(f, dst, at)
    }
    fn write(&self, f: &File, src: &mut dyn Source, at: u64) -> Result<usize> {
        self.place.write(f, src, at)
    }
    fn ioctl(&self, f: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        self.place.ioctl(f, cx, cmd, arg)
    }
    fn mappable(&self) -> Result<Arc<dyn clas::Mappable>> {
        self.place.mappable()
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.place.truncate(size)
    }
    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<()> {
        self.place.allocate(mode, offset, len)
    }
    fn sync(&self, data_only: DataOnly) -> Result<()> {
        self.place.sync(data_only)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl MountNamespace {
    /// Whether `from` may be copied (`__do_loopback`).
    pub(super) fn may_copy(&self, from: &Path, recursive: Recursive) -> Result<()> {
        let own = self.owns(&from.mnt) || self.may_use_detached(&from.mnt);
        if from.mnt.flags().contains(MountFlags::UNBINDABLE)
            || !own && !self.may_show_namespace(&from.dentry)
            || recursive == Recursive::No && from.mnt.has_locked_below(&from.dentry)
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// What a copy from `from` down has besides the mount itself, parents before children.
    pub(super) fn copied_below(from: &Path, copy: Copy) -> Vec<Arc<Mount>> {
        if copy.recursive == Recursive::No {
            return Vec::new();
        }
        let m = &from.mnt;
        let mut copied = HashSet::from([m.id]);
        let mut all = subtree(m);
        let left_out =
            |m: &Mount| copy.unbindable == Keep::No && m.flags().contains(MountFlags::UNBINDABLE);
        all.retain(|old| {
            let Some((parent, at)) = old.parent() else {
                return false;
            };
            let names_mounts = holds_mounts(&old.root).is_some_and(|n| n > 0);
            copied.contains(&parent.id)
                && !left_out(old)
                && !names_mounts
                && (!Arc::ptr_eq(&parent, m) || at.is_below(&from.dentry))
                && copied.insert(old.id)
        });
        all
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
            let mut flags = m.flags();
            if copy.unbindable == Keep::No {
                flags -= MountFlags::UNBINDABLE;
            }
            let new = Mount::new(self.vfs.new_id(), root, flags, &m.source);
            new.keep(m.kept());
            self.vfs.peers.copied(m, &new, copy.how);
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
        let _g = self.vfs.mount_lock.lock();
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
        let below = Self::copied_below(from, copy);
        self.core.room(&self.core.payer, below.len() + 1)?;
        let core = Core::new(&self.vfs, self.user(), Some(origin));
        let (top, _) = self.copy_tree(from, &below, copy);
        core.enter(&subtree(&top));
        Ok(Detached::new(&self.vfs, core, top))
    }

    /// `fsmount(2)`: a mount of the file system with this root that hangs nowhere.
    pub fn detached(
        &self,
        root: Arc<Dentry>,
        flags: MountFlags,
        source: &str,
    ) -> Result<Arc<Detached>> {
        let _g = self.vfs.mount_lock.lock();
        self.core.room(&self.core.payer, 1)?;
        let core = Core::new(&self.vfs, self.user(), Some(0));
        let m = Mount::new(self.vfs.new_id(), root, flags, source);
        core.enter(std::slice::from_ref(&m));
        Ok(Detached::new(&self.vfs, core, m))
    }
}
