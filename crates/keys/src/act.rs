//! A task at work with keys.

use crate::Keys;
use crate::key::Serial;
use crate::rings::{Handle, Rings, TaskRing};
use crate::state::State;
use parking_lot::MutexGuard;
use std::sync::Arc;
use vfs::Credentials;

/// A task at work, with the lock of all keys.
pub struct Act<'a> {
    // Dropped first: the handles below take the lock.
    pub(crate) state: MutexGuard<'a, State>,
    pub(crate) keys: &'a Arc<Keys>,
    pub(crate) cred: &'a Credentials,
    pub(crate) rings: &'a mut Rings,
    pub(crate) now: i64,
    pub(crate) replaced: Vec<Handle>,
}

impl Act<'_> {
    fn ring_mut(&mut self, which: TaskRing) -> &mut Option<Handle> {
        match which {
            TaskRing::Thread => &mut self.rings.thread,
            TaskRing::Process => &mut self.rings.process,
            TaskRing::Session => &mut self.rings.session,
        }
    }
    pub(crate) fn ring(&self, which: TaskRing) -> Option<Serial> {
        let h = match which {
            TaskRing::Thread => &self.rings.thread,
            TaskRing::Process => &self.rings.process,
            TaskRing::Session => &self.rings.session,
        };
        h.as_ref().map(Handle::serial)
    }
    /// Makes a key the task's keyring.
    pub(crate) fn install(&mut self, which: TaskRing, serial: Serial) {
        self.state.hold(serial);
        let new = Handle::of_held(self.keys.clone(), serial);
        let old = self.ring_mut(which).replace(new);
        self.replaced.extend(old);
    }
}
