//! The thread that submits for a ring with `SQPOLL`.

use super::Ring;
use wait::{Events, WaitQueue};

/// A thread that submits.
#[derive(Default)]
pub struct Thread {
    pub queue: WaitQueue,
}

impl Thread {
    /// A ring has come to its end.
    pub fn leave(&self, _: &Ring) {
        self.queue.notify(Events::IN);
    }
}
