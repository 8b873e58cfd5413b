//! Faults of an unknown kind that found nothing missing.

use platform::MapOp;
use std::collections::VecDeque;
use std::thread::ThreadId;

/// Threads and where each of them faulted last, though all that is allowed was mapped there. (An
/// application's thread is served by one thread of the Sentry's.)
#[derive(Default)]
pub(crate) struct Suspects(VecDeque<(ThreadId, u64)>);

impl Suspects {
    /// Beyond, the oldest is forgotten: its thread just faults once more.
    const MAX: usize = 64;

    /// Whether the caller is suspected at `va`; it is not any more.
    pub(crate) fn take(&mut self, va: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let me = std::thread::current().id();
        let found = self.0.iter().position(|s| s.0 == me);
        found
            .and_then(|i| self.0.remove(i))
            .is_some_and(|s| s.1 == va)
    }

    pub(crate) fn add(&mut self, va: u64) {
        if self.0.len() == Self::MAX {
            self.0.pop_front();
        }
        self.0.push_back((std::thread::current().id(), va));
    }

    /// The caller will serve another application's thread.
    pub(crate) fn forget(&mut self) {
        let me = std::thread::current().id();
        self.0.retain(|s| s.0 != me);
    }

    /// A fault where one of these took something away says nothing.
    pub(crate) fn clear_changed(&mut self, ops: &[MapOp]) {
        if self.0.is_empty() {
            return;
        }
        for op in ops {
            if let MapOp::Unmap { va, len } | MapOp::Protect { va, len, .. } = *op {
                self.0.retain(|s| s.1 < va || s.1 - va >= len);
            }
        }
    }
}
