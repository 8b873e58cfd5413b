//! Generated files that tell when they change (`kernfs_notify`, fs/kernfs/file.c).
//!
//! Who has such a file open has seen the changes up to its last read of the start, and none before
//! the first. Where there are more, poll(2) says POLLERR and POLLPRI beside what it says anyway.
//! Who watches the file (inotify(7)) hears IN_MODIFY; who watches its directory does not.
//!
//! Invariant: the number of changes is raised before anybody is told, and an open file takes it
//! before it asks for the contents. So nobody misses what changed after the picture that it has.

use crate::inode::Watcher;
use crate::watch::IN_MODIFY;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use wait::{Events, WaitQueue};

/// The changes of one file, and who is told of them.
pub struct Notice {
    changes: AtomicU64,
    queue: WaitQueue,
    /// One for each mount through which it is watched. A leaf lock.
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
}

impl Default for Notice {
    fn default() -> Notice {
        Notice {
            changes: AtomicU64::new(1),
            queue: WaitQueue::new(),
            watchers: Mutex::default(),
        }
    }
}

impl Notice {
    /// What poll(2) says more where there are changes that were not seen.
    pub const EVENTS: Events = Events::ERR.union(Events::PRI);

    /// It has changed. Takes leaf locks alone.
    pub fn tell(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.queue.notify(Self::EVENTS);
        let watchers: Vec<_> = {
            let all = self.watchers.lock();
            all.iter().filter_map(Weak::upgrade).collect()
        };
        for w in watchers {
            w.event(IN_MODIFY, 0, b"");
        }
    }

    /// How many changes there were, and one.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub(super) fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    pub(super) fn add_watcher(&self, w: &Arc<dyn Watcher>) {
        let new = Arc::downgrade(w);
        let mut all = self.watchers.lock();
        all.retain(|old| old.strong_count() > 0 && !old.ptr_eq(&new));
        all.push(new);
    }
}
