//! The root layer: a writable tree over read-only ones, whose changes live in memory. A container's
//! root has one; what a program mounts by the name `overlay` is [`super::overlayfs`].
//!
//! Linux's overlayfs merges directory trees and keeps what changed in an upper *tree*, with
//! whiteouts and opaque directories in it. Here the upper layer is kept by inode: an [`LayerInode`]
//! stands for a file below (or for a new one), and once it was changed it has a tmpfs inode of its
//! own ([`Node`]) for attributes and contents, and, for a directory, the names that differ from
//! what lies below:
//!
//! ```text
//! name → inode      made here, moved here, or linked here
//! name → nothing    a whiteout: the name below is hidden
//! (no entry)        as below; a new directory has nothing below, so it is opaque by itself
//! ```
//!
//! What follows is what Linux's overlayfs does not do: nothing is copied for `chmod` but
//! attributes; a directory from below can be renamed without `EXDEV`; hard links from below stay
//! one file when written; a descriptor and a mapping opened before the copy-up see what is written
//! after it.
//!
//! A changed inode from below is *pinned* in [`RootLayer`] by its number below, since that is how a
//! later look-up finds it again. Inode numbers stay the same through a copy-up.
//!
//! Lock order: `LayerInode::copy_lock` → locks of the layers → `LayerInode::state`,
//! `RootLayer::inodes`, which are leaves except that `Node::meta` comes after `state`.

mod changes;
mod dir;
mod file;
mod inode;

pub use changes::{Change, changes};
pub use inode::LayerInode;

use super::tmpfs::{Node, Payer, Tmpfs};
use crate::cred::Credentials;
use crate::dentry::{Dentry, FileSystem, StatFs, SuperBlock};
use crate::inode::Inode;
use crate::mode::FileType;
use crate::vfs::Vfs;
use abi::Result;
use abi::errno::EINVAL;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

/// An inode's number in its layer: device and inode.
type Key = (u64, u64);

#[derive(Default)]
struct Slot {
    live: Weak<LayerInode>,
    /// Kept because it differs from what lies below.
    pin: Option<Arc<LayerInode>>,
}

/// A root layer's file system.
pub struct RootLayer {
    /// Makes the inodes and keeps the pages of what changed.
    upper: Arc<Tmpfs>,
    dev: u64,
    /// Whether there is more than one layer below: only then are whiteouts looked for in them.
    layered: bool,
    /// The devices of the layers below, in the order in which they were met.
    devs: Mutex<Vec<u64>>,
    /// Each name here keeps one of these: no more are worth keeping than they can.
    below: Vec<Arc<dyn FileSystem>>,
    inodes: Mutex<HashMap<Key, Slot>>,
    /// Names that directories remember as missing. Bounds memory alone: a race may exceed it.
    absent: AtomicUsize,
    /// The reader of the layers below for a copy-up.
    cred: Arc<Credentials>,
}

/// Numbers of new files have this bit, so that they are none of the first layer's.
const UPPER_BIT: u64 = 1 << 47;

impl RootLayer {
    /// The tree `lowers[0]` over `lowers[1]` and so on, writable, with changes in `upper`. The
    /// layers must not be changed by others. As many unused names are kept as are by all of
    /// `below`. Gives the root, ready to be mounted.
    pub fn mountable(
        vfs: &Vfs,
        lowers: Vec<Arc<dyn Inode>>,
        upper: &Arc<Tmpfs>,
        below: Vec<Arc<dyn FileSystem>>,
    ) -> Result<Arc<Dentry>> {
        if lowers.is_empty() {
            return Err(EINVAL);
        }
        if lowers.iter().any(|l| l.file_type() != FileType::Directory) {
            return Err(abi::errno::ENOTDIR);
        }
        let dev = vfs.new_dev();
        let fs = Arc::new(RootLayer {
            upper: upper.clone(),
            dev,
            layered: lowers.len() > 1,
            devs: Mutex::default(),
            below,
            inodes: Mutex::default(),
            absent: AtomicUsize::new(0),
            cred: Arc::new(Credentials::root()),
        });
        let root = fs.wrap(lowers)?;
        Ok(Dentry::new_root(&SuperBlock::new(dev, fs), root))
    }

    /// As [`RootLayer::mountable`], over the roots of file systems that need not be mounted
    /// themselves.
    pub fn over(vfs: &Vfs, lowers: &[Arc<Dentry>], upper: &Arc<Tmpfs>) -> Result<Arc<Dentry>> {
        let below = lowers.iter().map(|d| d.sb().fs.clone()).collect();
        let lowers = lowers
            .iter()
            .map(|d| d.inode().cloned())
            .collect::<Result<_>>()?;
        Self::mountable(vfs, lowers, upper, below)
    }

    /// The number here of a file of a layer below. Below 2^53: some programs keep numbers as
    /// doubles.
    fn lower_ino(&self, key: Key) -> u64 {
        let mut devs = self.devs.lock();
        let i = devs.iter().position(|d| *d == key.0).unwrap_or_else(|| {
            devs.push(key.0);
            devs.len() - 1
        });
        key.1 ^ ((i as u64 & 31) << 48)
    }

    /// The inode of what lies below: of a file, or of directories that are merged, topmost first.
    fn wrap(self: &Arc<Self>, lowers: Vec<Arc<dyn Inode>>) -> Result<Arc<LayerInode>> {
        let top = lowers.first().ok_or(EINVAL)?;
        let s = top.stat()?;
        let key = (s.dev, s.ino);
        let ino = self.lower_ino(key);
        let mut inodes = self.inodes.lock();
        let slot = inodes.entry(key).or_default();
        if let Some(i) = slot.live.upgrade() {
            return Ok(i);
        }
        let i = LayerInode::from_below(self, ino, key, lowers);
        slot.live = Arc::downgrade(&i);
        Ok(i)
    }

    fn pin(&self, i: &Arc<LayerInode>) {
        if let Some(key) = i.key() {
            let mut inodes = self.inodes.lock();
            let slot = inodes.entry(key).or_default();
            slot.live = Arc::downgrade(i);
            slot.pin = Some(i.clone());
        }
    }

    /// The file has no name any more: it lives only as long as it is used.
    fn unpin(&self, i: &LayerInode) {
        let _gone = i
            .key()
            .and_then(|key| self.inodes.lock().get_mut(&key)?.pin.take());
    }

    /// Names that are remembered as missing.
    #[cfg(test)]
    pub(crate) fn absent(&self) -> usize {
        self.absent.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// An inode is being dropped.
    fn forget(&self, key: Key) {
        let mut inodes = self.inodes.lock();
        if inodes
            .get(&key)
            .is_some_and(|s| s.live.strong_count() == 0 && s.pin.is_none())
        {
            inodes.remove(&key);
        }
    }
}

impl FileSystem for RootLayer {
    fn name(&self) -> &'static str {
        "overlay"
    }
    fn max_cached(&self) -> usize {
        let most = self.below.iter().map(|fs| fs.max_cached());
        most.min().unwrap_or(0)
    }
    fn shrink(&self) {
        let live: Vec<_> = {
            let mut inodes = self.inodes.lock();
            inodes.shrink_to_fit();
            inodes.values().filter_map(|s| s.live.upgrade()).collect()
        };
        for inode in live {
            inode.forget_absent();
        }
    }
    fn stat_fs(&self) -> Result<StatFs> {
        let mut s = self.upper.stat_fs()?;
        if s.blocks == 0 {
            // Without a limit: as much as a large disk, for programs that look before they write.
            s.blocks = 1 << 28;
            s.bfree = s.blocks;
            s.bavail = s.blocks;
            s.files = 1 << 28;
            s.ffree = s.files;
        }
        s.magic = u64::from(abi::linux::OVERLAYFS_SUPER_MAGIC);
        s.fsid = self.dev;
        Ok(s)
    }
    fn options(&self) -> String {
        String::from(",lowerdir=/,upperdir=/,workdir=/")
    }
    fn shut_down(&self) {
        let all = std::mem::take(&mut *self.inodes.lock());
        drop(all);
    }
}

/// A whiteout in a layer below: a character device with the number 0:0.
fn is_whiteout(i: &Arc<dyn Inode>) -> bool {
    i.file_type() == FileType::Char && i.stat().is_ok_and(|s| s.rdev == 0)
}

/// Whether a directory of a layer hides those further below.
fn is_opaque(i: &Arc<dyn Inode>) -> bool {
    let yes = |name: &[u8]| i.get_xattr(name).is_ok_and(|v| v == b"y");
    yes(b"trusted.overlay.opaque") || yes(b"user.overlay.opaque")
}

/// A tmpfs inode for a new file, or for a changed one.
fn new_node(
    fs: &RootLayer,
    kind: FileType,
    rdev: u64,
    new: crate::NewNode,
    target: &[u8],
    payer: Payer<'_>,
) -> Result<Arc<Node>> {
    Node::detached(&fs.upper, kind, rdev, new, target, payer)
}
