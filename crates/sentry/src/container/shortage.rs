//! What a container has of the worker that makes room (`kernel::memory`).

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::AtomicU64;

/// A container's shortages of memory.
#[derive(Debug, Default)]
pub struct Shortage {
    /// A leaf.
    pub(crate) worker: Mutex<Worker>,
    /// The worker is asked for something.
    pub(crate) asked: Condvar,
    /// Held while a process's limit or reservation changes: before the task list's.
    pub(crate) bounds: Mutex<()>,
    /// Processes that were ended for lack of memory. Atomic.
    pub kills: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) runs: bool,
    /// Somebody has asked since it looked last.
    pub(crate) is_asked: bool,
}
