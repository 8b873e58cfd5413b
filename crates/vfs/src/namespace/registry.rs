//! What all mount namespaces of a kernel share.

use super::{Core, Detached, MountNamespace};
use crate::mount::Path;
use crate::peers::Peers;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Places that somebody stands at: a root and a working directory (Linux's `fs_struct`, of which
/// `chroot_fs_refs` has those that a pivot moves).
pub trait Standpoint: Send + Sync {
    /// `pivot_root(2)`: a process that stands at `old` stands at `new` afterwards. Runs with the
    /// mount lock held.
    fn replace(&self, old: &Path, new: &Path);
}

/// One in a kernel.
#[derive(Default)]
pub struct Registry {
    last_id: AtomicU64,
    /// Held by every change of a mount tree.
    pub(crate) lock: Mutex<()>,
    pub(super) peers: Peers,
    /// Those that have mounts, by number.
    pub(super) cores: Mutex<BTreeMap<u64, Weak<Core>>>,
    /// Mount namespaces, by the same number.
    pub(super) namespaces: Mutex<BTreeMap<u64, Weak<MountNamespace>>>,
    /// Trees that hang nowhere, by the same number.
    pub(super) detached: Mutex<BTreeMap<u64, Weak<Detached>>>,
    /// Those that [`Standpoint::replace`] is told to.
    standpoints: Mutex<Vec<Weak<dyn Standpoint>>>,
}

impl Registry {
    /// A number that nothing else of the VFS has: mounts, lock owners.
    pub fn new_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
    pub(crate) fn register_standpoint(&self, new: Weak<dyn Standpoint>) {
        let mut all = self.standpoints.lock();
        if all.len() == all.capacity() {
            all.retain(|w| w.strong_count() > 0);
        }
        all.push(new);
    }
    pub(crate) fn standpoints(&self) -> Vec<Arc<dyn Standpoint>> {
        self.standpoints
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}
