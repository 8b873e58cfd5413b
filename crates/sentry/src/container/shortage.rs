//! What a container has of those that see to its memory (`kernel::memory`, `kernel::reclaim`).

use super::replacement::{Policy, policy};
use config::Replacement;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
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
    /// How it is chosen what goes. A leaf.
    chosen: Mutex<Chosen>,
    /// Another policy was chosen.
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) runs: bool,
    /// Somebody has asked since it looked last.
    pub(crate) is_asked: bool,
}

#[derive(Debug)]
struct Chosen {
    name: Replacement,
    policy: Arc<dyn Policy>,
    /// A thread waits for its periods.
    has_thread: bool,
}

impl Default for Chosen {
    fn default() -> Chosen {
        let name = Replacement::default();
        Chosen {
            name,
            policy: policy(name),
            has_thread: false,
        }
    }
}

impl Shortage {
    /// Chooses a policy; whether a thread is to be made that waits for its periods
    /// ([`Shortage::await_period`]).
    pub(crate) fn choose(&self, name: Replacement) -> bool {
        let mut c = self.chosen.lock();
        if c.name != name {
            (c.name, c.policy) = (name, policy(name));
        }
        self.changed.notify_all();
        c.policy.period().is_some() && !std::mem::replace(&mut c.has_thread, true)
    }

    /// Its name.
    pub fn replacement(&self) -> Replacement {
        self.chosen.lock().name
    }

    pub(crate) fn policy(&self) -> Arc<dyn Policy> {
        self.chosen.lock().policy.clone()
    }

    /// Waits for the end of a period; `None` where the policy has none: the thread is to end.
    pub(crate) fn await_period(&self) -> Option<Arc<dyn Policy>> {
        let mut c = self.chosen.lock();
        loop {
            let Some(period) = c.policy.period() else {
                c.has_thread = false;
                return None;
            };
            if self.changed.wait_for(&mut c, period).timed_out() {
                return Some(c.policy.clone());
            }
        }
    }
}
