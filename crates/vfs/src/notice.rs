//! Generated files that tell when they change.
//!
//! Where there are changes that who has such a file open has not seen, poll(2) says POLLERR and
//! POLLPRI beside what it says anyway. What was seen is of one of two kinds ([`Seen`]). Of the
//! first kind, who watches the file or its directory hears IN_MODIFY of nobody's, wherever the file
//! is open or watched. (Linux tells the directory's watchers where it has the file's inode in
//! memory, which outlives the last user for some time.) Nobody hears that the file is gone, as on
//! Linux.
//!
//! What changes does so under locks that others need, and who is told may be many: they are told
//! at the thread's boundary ([`wait::later`]), once for all changes up to then, as Linux does it by
//! a worker.
//!
//! Invariants:
//! - The number of changes is raised before anybody is told, and an open file takes it before it
//!   asks for the contents. So nobody misses what changed after the picture that it has.
//! - A place is listed as long as its inode lives: what is closed leaves nothing here.
//! - Where `is_due`, somebody is to tell of all changes up to now.

use crate::caller::ActsForNobody;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use wait::later::{self, Later};
use wait::{Events, WaitQueue};

/// When who has the file open has seen a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// When it has read the start since, and none before its first read (`kernfs_notify`,
    /// fs/kernfs/file.c).
    AtRead,
    /// When poll(2) has told of it, and all before the file was opened (`mounts_poll`,
    /// fs/proc_namespace.c).
    AtPoll,
}

/// Where a file is open or watched: a dentry.
pub(crate) trait Place: Send + Sync {
    /// Its file has changed. The caller holds no lock.
    fn modified(self: Arc<Self>);
}

/// The changes of one file, and who is told of them.
pub struct Notice {
    /// Immutable.
    seen: Seen,
    changes: AtomicU64,
    is_due: AtomicBool,
    queue: WaitQueue,
    /// Where it is open or watched, by their addresses: one for each mount. `None` for what is
    /// never told. A leaf lock.
    places: Option<Mutex<BTreeMap<usize, Weak<dyn Place>>>>,
}

/// A place that is told of changes as long as this lives.
pub(crate) struct Subscription {
    notice: Arc<Notice>,
    key: usize,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(p) = &self.notice.places {
            let gone = p.lock().remove(&self.key);
            drop(gone);
        }
    }
}

impl Later for Notice {
    fn run(&self) {
        self.is_due.store(false, Ordering::SeqCst);
        self.queue.notify(Self::EVENTS);
        let _nobody = ActsForNobody::begin();
        for d in self.places() {
            d.modified();
        }
    }
    fn elsewhere(self: Arc<Self>) {
        if !later::by_service(self.clone()) {
            // What changes next tells of this, too.
            self.is_due.store(false, Ordering::SeqCst);
        }
    }
}

impl Notice {
    /// What poll(2) says more where there are changes that were not seen.
    pub const EVENTS: Events = Events::ERR.union(Events::PRI);

    #[must_use]
    pub fn new(seen: Seen) -> Arc<Notice> {
        let told = seen == Seen::AtRead;
        Self::with(seen, told.then(Mutex::default))
    }

    /// Of files that never tell of a change.
    #[must_use]
    pub fn silent() -> Arc<Notice> {
        Self::with(Seen::AtRead, None)
    }

    fn with(seen: Seen, places: Option<Mutex<BTreeMap<usize, Weak<dyn Place>>>>) -> Arc<Notice> {
        Arc::new(Notice {
            seen,
            changes: AtomicU64::new(1),
            is_due: AtomicBool::new(false),
            queue: WaitQueue::new(),
            places,
        })
    }

    /// It has changed. Any lock may be held.
    pub fn tell(self: &Arc<Self>) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        // (Who listens from now on looks at the changes afterwards.)
        let some_listen = self.queue.is_watched() || self.has_places();
        if some_listen && !self.is_due.swap(true, Ordering::SeqCst) {
            later::put(self.clone());
        }
    }

    /// It has changed. The caller holds no lock, and may be held up by who is told.
    pub fn tell_here(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.run();
    }

    fn has_places(&self) -> bool {
        let all = self.places.as_ref();
        all.is_some_and(|p| !p.lock().is_empty())
    }

    fn places(&self) -> Vec<Arc<dyn Place>> {
        let Some(all) = &self.places else {
            return Vec::new();
        };
        all.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// How many changes there were, and one.
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// What a file has seen that is being opened.
    pub(crate) fn seen_at_open(&self) -> AtomicU64 {
        AtomicU64::new(match self.seen {
            Seen::AtRead => 0,
            Seen::AtPoll => self.changes(),
        })
    }

    /// What who reads the start now has seen afterwards; `None` where it is as before.
    pub(crate) fn seen_at_read(&self) -> Option<u64> {
        (self.seen == Seen::AtRead).then(|| self.changes())
    }

    /// What poll(2) says more to who has seen so much.
    pub fn poll(&self, seen: &AtomicU64) -> Events {
        let changes = self.changes();
        let old = match self.seen {
            Seen::AtRead => seen.load(Ordering::SeqCst),
            Seen::AtPoll => seen.swap(changes, Ordering::SeqCst),
        };
        match old == changes {
            true => Events::empty(),
            false => Self::EVENTS,
        }
    }

    pub(crate) fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    /// It is open or watched there, as long as what this gives lives.
    pub(crate) fn used_at(self: &Arc<Self>, d: &Arc<dyn Place>) -> Option<Subscription> {
        let key = Arc::as_ptr(d).cast::<()>().addr();
        let all = self.places.as_ref()?;
        all.lock().insert(key, Arc::downgrade(d));
        Some(Subscription {
            notice: self.clone(),
            key,
        })
    }
}
