//! What a container has of those that see to its memory (`kernel::memory`, `kernel::reclaim`).

use super::replacement::{Policy, policy};
use clas::{AccountId, Clas};
use config::Replacement;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

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
    /// A leaf.
    pub(crate) caches: Mutex<Caches>,
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

/// What the kernel remembers without need, and forgets for lack of memory.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    is_shrinking: bool,
    /// When that began last.
    last: Option<Instant>,
}

impl Caches {
    /// Whether they are to be shrunk now. Not again and again: they are of use to others.
    pub(crate) fn begin(&mut self) -> bool {
        const PAUSE: Duration = Duration::from_secs(1);
        let begins = !self.is_shrinking && self.last.is_none_or(|t| t.elapsed() > PAUSE);
        if begins {
            (self.is_shrinking, self.last) = (true, Some(Instant::now()));
        }
        begins
    }

    pub(crate) fn end(&mut self) {
        self.is_shrinking = false;
    }

    pub(crate) fn is_shrinking(&self) -> bool {
        self.is_shrinking
    }
}

#[derive(Debug)]
struct Chosen {
    name: Replacement,
    /// The container's, and those of control groups that had too little.
    policy: Arc<dyn Policy>,
    of_groups: HashMap<AccountId, Arc<dyn Policy>>,
    /// A thread waits for its periods.
    has_thread: bool,
}

impl Default for Chosen {
    fn default() -> Chosen {
        let name = Replacement::default();
        Chosen {
            name,
            policy: policy(name),
            of_groups: HashMap::new(),
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
            c.of_groups.clear();
        }
        self.changed.notify_all();
        c.policy.period().is_some() && !std::mem::replace(&mut c.has_thread, true)
    }

    /// Its name.
    pub fn replacement(&self) -> Replacement {
        self.chosen.lock().name
    }

    /// That which plans for this account.
    pub(crate) fn policy(&self, clas: &Clas, account: AccountId) -> Arc<dyn Policy> {
        let mut c = self.chosen.lock();
        if account == AccountId::ROOT {
            return c.policy.clone();
        }
        // Now and then, so that each costs little.
        if !c.of_groups.contains_key(&account) && c.of_groups.len().is_power_of_two() {
            c.of_groups.retain(|id, _| clas.has_account(*id));
        }
        let name = c.name;
        c.of_groups
            .entry(account)
            .or_insert_with(|| policy(name))
            .clone()
    }

    /// No thread waits for periods after all.
    pub(crate) fn has_no_thread(&self) {
        self.chosen.lock().has_thread = false;
    }

    /// Waits for the end of a period, so long at least; `None` where the policy has none: the
    /// thread is to end.
    pub(crate) fn await_period(&self, least: Duration) -> Option<Arc<dyn Policy>> {
        let mut c = self.chosen.lock();
        loop {
            let Some(period) = c.policy.period() else {
                c.has_thread = false;
                return None;
            };
            if self.changed.wait_for(&mut c, period.max(least)).timed_out() {
                return Some(c.policy.clone());
            }
        }
    }
}
