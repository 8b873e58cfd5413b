//! What file systems show of tasks: proc, sys, terminals, pidfds, signalfds; and the vDSO's mapping.

pub mod console;
pub mod dev;
pub mod host_stream;
pub mod overlay;
pub mod pidfd;
pub mod proc;
pub mod signalfd;
pub mod sys;
pub mod terminals;

use crate::Kernel;

/// Memory in all and free, bytes: the container's limit, or the host's size.
#[must_use]
pub fn meminfo(k: &Kernel) -> (u64, u64) {
    let s = k.root.clas.stats();
    let total = k.total_memory.min(s.limit);
    (total, total.saturating_sub(s.resident))
}
