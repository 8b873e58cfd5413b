//! What a directory that others change, too, was seen to hold.
//!
//! A name is known as long as the directory's change time is the one at which it was seen (see the
//! crate's documentation). What the container itself changes there gives it a new one, and what was
//! known is gone, though most of it is as it was. So names that are asked for again after a change
//! are looked at by the request that makes the next one.

use super::{GoferInode, own};
use crate::GoferFs;
use abi::Result;
use gofer::proto::{NameTarget, Seen as Told};
use gofer::wire::MAX_ALSO;
use gofer::{CreatedFile, In};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::inode::Seen;
use vfs::{Caller, Inode};

/// Names that are remembered of all shared directories of a mount: some 300 bytes each.
const MAX_KNOWN: usize = 1 << 16;
/// Names of a directory that were known before its last changes.
const MAX_BEFORE: usize = 8;
/// Changes for which a name is looked at that nobody asks for.
const PATIENCE: u8 = 2;

/// True as long as the directory's change time is `version`.
#[derive(Default)]
pub(super) struct Known {
    version: i64,
    /// Which inode a name leads to; `None`: there is none.
    names: HashMap<Box<[u8]>, Option<Weak<GoferInode>>>,
    /// Names that were known at earlier versions, oldest first.
    before: VecDeque<Box<[u8]>>,
    /// Those that were asked for again, and for how many changes they are still looked at.
    often: Vec<(Box<[u8]>, u8)>,
}

impl Known {
    /// `name` was asked for, and not known.
    fn asked(&mut self, name: &[u8]) {
        if let Some(o) = self.often.iter_mut().find(|o| *o.0 == *name) {
            o.1 = PATIENCE;
        } else if let Some(at) = self.before.iter().position(|n| **n == *name) {
            let name = self.before.remove(at).unwrap_or_default();
            if self.often.len() == MAX_ALSO {
                self.often.remove(0);
            }
            self.often.push((name, PATIENCE));
        }
    }
}

/// A directory's change time, and whether what is seen there next may be remembered by it.
#[derive(Clone, Copy)]
pub(crate) struct Version {
    pub(crate) ctime: i64,
    pub(crate) is_stable: bool,
}

impl GoferFs {
    /// The inode of a file that is in use.
    fn in_use(&self, key: (u64, u64)) -> Option<Arc<GoferInode>> {
        self.inodes.lock().get(&key).and_then(Weak::upgrade)
    }
    /// Of all directories in use.
    pub(crate) fn forget_all_known(&self) {
        let all: Vec<_> = {
            let mut inodes = self.inodes.lock();
            inodes.shrink_to_fit();
            inodes.values().filter_map(Weak::upgrade).collect()
        };
        for inode in all {
            inode.forget_known();
        }
    }
}

impl GoferInode {
    pub(super) fn forget_known(&self) {
        let old = std::mem::take(&mut *self.known.lock());
        self.fs.known.fetch_sub(old.names.len(), Ordering::Relaxed);
    }

    /// What a name is that was remembered as `child`, as far as it is known at this version.
    pub(super) fn seen_at(&self, at: Version, name: &[u8], child: Option<&GoferInode>) -> Seen {
        match self.known(at, name) {
            Some(None) => Seen::Missing,
            Some(Some(known)) if child.is_some_and(|c| std::ptr::eq(known.as_ptr(), c)) => {
                // Its name is true; its attributes may not be.
                if let Some(c) = child {
                    c.changed();
                }
                Seen::Same
            }
            _ => Seen::Unknown,
        }
    }
    /// What this name was seen to be.
    pub(crate) fn known(&self, at: Version, name: &[u8]) -> Option<Option<Weak<GoferInode>>> {
        let mut k = self.known.lock();
        if k.version != at.ctime {
            return None;
        }
        let known = k.names.get(name)?.clone();
        if let Some(o) = k.often.iter_mut().find(|o| *o.0 == *name) {
            o.1 = PATIENCE;
        }
        Some(known)
    }
    /// `name` was looked up after the directory was at `at`, because it was not known.
    pub(super) fn asked_for(
        &self,
        at: Option<Version>,
        name: &[u8],
        inode: Option<&Arc<GoferInode>>,
    ) {
        if at.is_some() {
            self.known.lock().asked(name);
        }
        self.learn(at, name, inode);
    }
    /// `name` was looked up after the directory was at `at`.
    pub(crate) fn learn(&self, at: Option<Version>, name: &[u8], inode: Option<&Arc<GoferInode>>) {
        let Some(at) = at.filter(|v| v.is_stable) else {
            return;
        };
        let mut k = self.known.lock();
        if k.version != at.ctime {
            let old = std::mem::take(&mut k.names);
            self.fs.known.fetch_sub(old.len(), Ordering::Relaxed);
            k.version = at.ctime;
            for n in old.into_keys().take(MAX_BEFORE) {
                if !k.before.contains(&n) && k.often.iter().all(|o| o.0 != n) {
                    k.before.push_back(n);
                }
            }
            let more = k.before.len().saturating_sub(MAX_BEFORE);
            k.before.drain(..more);
        }
        // Only what goes with the descriptor: those are bounded, too.
        if self.fds.lock().look.is_none() || self.fs.known.load(Ordering::Relaxed) >= MAX_KNOWN {
            return;
        }
        if k.names
            .insert(name.into(), inode.map(Arc::downgrade))
            .is_none()
        {
            self.fs.known.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Names to look at when `name` is changed.
    pub(super) fn also(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let mut k = self.known.lock();
        if k.often.is_empty() {
            return Vec::new();
        }
        k.often.retain(|o| o.1 > 0);
        for o in &mut k.often {
            o.1 -= 1;
        }
        let others = k.often.iter().filter(|o| *o.0 != *name);
        others.map(|o| o.0.to_vec()).collect()
    }
    /// This directory, in which a name is changed.
    pub(super) fn with<'a>(&self, also: &'a [Vec<u8>]) -> In<'a> {
        let dir = self.handle;
        In { dir, also }
    }
    /// What the Gofer saw after `name` was changed.
    pub(super) fn told(&self, told: Option<Told>, name: &[u8], also: &[Vec<u8>]) {
        let Some(told) = told else { return };
        let at = Some(Version {
            ctime: told.version,
            // The Gofer has looked afterwards.
            is_stable: true,
        });
        let names = std::iter::once(name).chain(also.iter().map(Vec::as_slice));
        for (name, is) in names.zip(told.names) {
            match is {
                NameTarget::Unknown => {}
                NameTarget::Missing => self.learn(at, name, None),
                NameTarget::File(dev, ino) => {
                    if let Some(i) = self.fs.in_use((dev, ino)) {
                        self.learn(at, name, Some(&i));
                    }
                }
            }
        }
    }
    /// What was made in this directory, by this name.
    pub(super) fn made(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        node: CreatedFile,
        target: Option<Vec<u8>>,
        also: &[Vec<u8>],
    ) -> Arc<GoferInode> {
        // Of a number that was used before, nothing is known that is younger.
        let since = self.fs.changes.load(Ordering::Relaxed);
        let inode = self
            .fs
            .inode(node.attr, node.handle, target, since, cx.cred);
        self.names_changed();
        self.told(node.dir, name, also);
        inode
    }
    /// A name was removed.
    pub(super) fn removed(
        &self,
        name: &[u8],
        child: &Arc<dyn Inode>,
        told: Option<Told>,
        also: &[Vec<u8>],
    ) -> Result<()> {
        own(child)?.changed();
        self.names_changed();
        self.told(told, name, also);
        Ok(())
    }
}
