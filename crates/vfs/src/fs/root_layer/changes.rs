//! What a root layer's user changed, told as layers of images tell it.

use super::RootLayer;
use super::dir::Entry;
use super::inode::LayerInode;
use crate::caller::Caller;
use crate::dentry::Dentry;
use crate::inode::{Inode, downcast_arc};
use crate::mode::FileType;
use abi::Result;
use abi::errno::{EINVAL, ENOENT};
use std::collections::HashSet;
use std::sync::Arc;

/// The longest path that is told.
const PATH_MAX: usize = 4096;

/// A difference from what lies below.
pub enum Change {
    /// The name below is gone.
    Hidden,
    /// A directory that hides all that is below it. Follows its [`Change::File`].
    Opaque,
    /// A file as it is now: new, changed, or the parent of one that is.
    File(Arc<dyn Inode>),
    /// A file whose path is longer than any that can be named; nothing below it is told.
    TooDeep,
}

/// A directory on the way.
struct Frame {
    dir: Arc<LayerInode>,
    /// Without a slash at its ends; empty for the root.
    path: Vec<u8>,
    /// The rest of its entries, from the back.
    entries: Vec<Entry>,
    told: bool,
    /// All of it is told: below, it has another name or none.
    whole: bool,
    /// Something else has its name below.
    opaque: bool,
}

/// Walks the tree whose root was given by [`RootLayer::mountable`] and tells each difference with
/// its path, parents first. What changes meanwhile may be told or not. `EINVAL` for a tree that has
/// no root layer.
pub fn changes(
    root: &Arc<Dentry>,
    tell: &mut dyn FnMut(&[u8], Change) -> Result<()>,
) -> Result<()> {
    let root: Arc<LayerInode> = downcast_arc(root.inode()?).ok_or(EINVAL)?;
    let fs = root.fs.clone();
    let caller = fs.caller();
    let changed = fs.changed();
    let mut stack = Vec::new();
    enter(&mut stack, root, Vec::new(), false, false, tell)?;
    loop {
        let Some(frame) = stack.last_mut() else {
            return Ok(());
        };
        let Some(e) = frame.entries.pop() else {
            if let Some(f) = stack.pop()
                && (f.dir.is_changed() || f.whole)
            {
                stack.push(f);
                tell_parents(&mut stack, tell)?;
                stack.pop();
            }
            continue;
        };
        let dir = frame.dir.clone();
        let whole = frame.whole;
        let is_dir = e.kind == FileType::Directory.dt();
        let listed = dir.has_own(&e.name);
        if !is_dir && !whole && !listed && !changed.contains(&e.ino) {
            continue;
        }
        let inode = match dir.lookup(&caller, &e.name) {
            Ok(i) => i,
            Err(ENOENT) => continue,
            Err(e) => return Err(e),
        };
        let Some(child) = downcast_arc::<LayerInode>(&inode) else {
            continue;
        };
        let mut path = frame.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&e.name);
        // Nobody could name it; and as deep as the tree may be, what is kept of it here is bounded.
        if path.len() >= PATH_MAX {
            tell(&path, Change::TooDeep)?;
            continue;
        }
        if is_dir {
            let below = if listed {
                dir.below_ino(&caller, &e.name)
            } else {
                None
            };
            let moved = listed && below != Some(child.ino);
            enter(
                &mut stack,
                child,
                path,
                whole || moved,
                moved && below.is_some(),
                tell,
            )?;
        } else {
            tell_parents(&mut stack, tell)?;
            tell(&path, Change::File(inode))?;
        }
    }
}

/// Begins a directory: what it hides comes first.
fn enter(
    stack: &mut Vec<Frame>,
    dir: Arc<LayerInode>,
    path: Vec<u8>,
    whole: bool,
    opaque: bool,
    tell: &mut dyn FnMut(&[u8], Change) -> Result<()>,
) -> Result<()> {
    let mut entries = dir.entries()?;
    entries.sort_by(|a, b| b.name.cmp(&a.name));
    let mut hidden = dir.hidden();
    hidden.sort();
    stack.push(Frame {
        dir,
        path: path.clone(),
        entries,
        told: false,
        whole,
        opaque,
    });
    if whole || hidden.is_empty() {
        return Ok(());
    }
    tell_parents(stack, tell)?;
    for name in hidden {
        let mut p = path.clone();
        if !p.is_empty() {
            p.push(b'/');
        }
        p.extend_from_slice(&name);
        tell(&p, Change::Hidden)?;
    }
    Ok(())
}

/// Tells the directories on the way that were not told yet.
fn tell_parents(
    stack: &mut [Frame],
    tell: &mut dyn FnMut(&[u8], Change) -> Result<()>,
) -> Result<()> {
    for f in stack.iter_mut().filter(|f| !f.told) {
        f.told = true;
        if f.path.is_empty() {
            continue;
        }
        tell(&f.path, Change::File(f.dir.clone()))?;
        if f.opaque {
            tell(&f.path, Change::Opaque)?;
        }
    }
    Ok(())
}

impl LayerInode {
    fn is_changed(&self) -> bool {
        self.state.read().upper.is_some()
    }
    /// Whether the name is one that was made, moved or linked here.
    fn has_own(&self, name: &[u8]) -> bool {
        matches!(self.state.read().delta.get(name), Some(Some(_)))
    }
    fn hidden(&self) -> Vec<Arc<[u8]>> {
        let s = self.state.read();
        let gone = s.delta.iter().filter(|d| d.1.is_none());
        gone.map(|d| d.0.clone()).collect()
    }
    /// The number of what the name is below.
    fn below_ino(&self, cx: &Caller<'_>, name: &[u8]) -> Option<u64> {
        self.below(cx, name).ok().map(|i| i.ino)
    }
}

impl RootLayer {
    /// The numbers of the files from below that were changed.
    fn changed(&self) -> HashSet<u64> {
        let pinned: Vec<_> = {
            let inodes = self.inodes.lock();
            inodes.values().filter_map(|s| s.pin.clone()).collect()
        };
        pinned.iter().map(|i| i.ino).collect()
    }
}
