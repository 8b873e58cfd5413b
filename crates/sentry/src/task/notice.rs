//! A kick against an entry into application code (Dekker's way).
//!
//! ```text
//! kick:    what there is to see; attention = true;   in_app?     then stop the application
//! enter:   in_app = true;                            attention?  then look instead
//! ```
//!
//! Both store first and load second, sequentially consistent; so at least one of them sees the
//! other. The tests try all orders.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A flag whose operations all threads see in one order.
pub(super) trait Flag {
    fn get(&self) -> bool;
    fn set(&self, value: bool);
}

impl Flag for AtomicBool {
    fn get(&self) -> bool {
        self.load(SeqCst)
    }
    fn set(&self, value: bool) {
        self.store(value, SeqCst);
    }
}

/// The task is about to go into application code. Whether it may; not where there is something to
/// look at first.
pub(super) fn enter(
    in_app: &impl Flag,
    attention: &impl Flag,
    has_work: impl FnOnce() -> bool,
) -> bool {
    in_app.set(true);
    if attention.get() && has_work() {
        in_app.set(false);
        return false;
    }
    true
}

/// The task is to look at what the caller has made visible. Whether it must be stopped for that.
pub(super) fn kick(in_app: &impl Flag, attention: &impl Flag) -> bool {
    attention.set(true);
    in_app.get()
}

#[cfg(test)]
mod tests;
