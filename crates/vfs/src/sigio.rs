//! Whom an open file signals: `fcntl(2)`'s F_SETOWN, F_SETSIG and O_ASYNC.
//!
//! The file keeps who it is, and a listener on its wait queue while O_ASYNC is set. Who listens,
//! and sends, knows tasks: it is the kernel's.

use crate::File;
use crate::landlock::Domain;
use parking_lot::Mutex;
use std::sync::Arc;
use wait::{Events, Listener, Ticket};

/// What an owner's id names. Ids are the kernel's own; they are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OwnerKind {
    #[default]
    Thread,
    Process,
    Group,
}

/// Who is signalled, and by whose right (`struct fown_struct`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    pub kind: OwnerKind,
    /// 0 for nobody.
    pub id: i32,
    /// The kernel's, which tells whether the id still names who it did.
    pub birth: u64,
    /// Of who made it the owner.
    pub uid: u32,
    pub euid: u32,
    /// What whoever made it the owner is confined to.
    pub domain: Option<Domain>,
}

/// Signals a file's owner of what no readiness tells (`POLL_MSG`): a lease is wanted back,
/// something happened in a directory.
pub trait Messenger: Send + Sync {
    /// One message. The caller may hold any lock but those of messengers' own lists.
    fn message(self: Arc<Self>);
}

/// An open file's part. Its locks are leaves.
#[derive(Default)]
pub struct Sigio {
    to: Mutex<(Owner, i32)>,
    watch: Mutex<Option<Ticket>>,
    urgent: Mutex<Option<Ticket>>,
}

impl Sigio {
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.to.lock().0.clone()
    }
    pub fn set_owner(&self, o: Owner) {
        let _old = std::mem::replace(&mut self.to.lock().0, o);
    }
    /// Makes it the owner unless there is one.
    pub fn set_owner_if_none(&self, o: Owner) {
        let to = &mut self.to.lock().0;
        if to.id == 0 {
            *to = o;
        }
    }
    /// The signal; 0 for SIGIO without information.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.to.lock().1
    }
    pub fn set_signal(&self, signal: i32) {
        self.to.lock().1 = signal;
    }
}

impl File {
    /// It is dropped.
    pub(crate) fn end_watch(&mut self) {
        let old = [
            self.sigio.watch.get_mut().take(),
            self.sigio.urgent.get_mut().take(),
        ];
        if let Some(q) = self.ops.wait_queue() {
            old.into_iter().flatten().for_each(|t| q.unregister(t));
        }
    }
    /// The listener that `l` makes is told of urgent data from now on, if none is yet.
    pub fn watch_urgent(&self, l: impl FnOnce() -> Arc<dyn Listener>) {
        let Some(q) = self.ops.wait_queue() else {
            return;
        };
        if self.sigio.urgent.lock().is_some() {
            return;
        }
        let new = q.register(l(), Events::PRI);
        if let Some(t) = self.sigio.urgent.lock().replace(new) {
            // Another was as fast.
            q.unregister(t);
        }
    }
    /// `l` is told from now on when the file becomes ready, instead of who was before (`None`:
    /// nobody). O_ASYNC says whether somebody is.
    pub fn set_watch(&self, l: Option<Arc<dyn Listener>>) {
        const WATCHED: Events = Events::READABLE
            .union(Events::WRITABLE)
            .union(Events::PRI)
            .union(Events::RDHUP);
        let Some(q) = self.ops.wait_queue() else {
            return;
        };
        self.set_async_flag(l.is_some());
        let new = l.map(|l| q.register(l, WATCHED));
        let old = std::mem::replace(&mut *self.sigio.watch.lock(), new);
        if let Some(t) = old {
            q.unregister(t);
        }
    }
}
