//! Who does what is put off until no lock is held ([`wait::later`]): a task at its boundary.

use super::Task;
use std::sync::atomic::Ordering;
use wait::later::Boundary;

impl Boundary for Task {
    fn ask(&self) {
        self.attention.store(true, Ordering::SeqCst);
    }
}
