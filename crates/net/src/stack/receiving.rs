//! Receiving: by the service thread, or by the task that waits ([`wait::lead`]).

use super::Stack;
use crate::clock::now;
use hostcall::packet::Bell;
use std::sync::Arc;
use std::time::Duration;
use wait::lead::{Role, Work, Worked};

/// How many frames of a device follow each other before the receiver looks at what it has done.
const BATCH: usize = 4;

/// The frames that come by the devices of a stack.
pub(super) struct Receiving {
    pub stack: Arc<Stack>,
    pub bell: Bell,
}

impl Work for Receiving {
    fn work(&self) -> Worked {
        let stack = &self.stack;
        let mut all = Worked::Nothing;
        for device in 0..stack.ports.taken() {
            let worked = stack.ports.receive(device, BATCH, |index, meta, frame| {
                stack.ip.receive(now(), index, meta, frame, &**stack);
            });
            match worked {
                Worked::Nothing => {}
                Worked::Something | Worked::Failed => all = worked,
            }
        }
        all
    }

    fn sleep(&self, most: Option<Duration>, by: Role) {
        let bell = match by {
            Role::Leader => Some(&self.bell),
            Role::Service => None,
        };
        self.stack.ports.wait(bell, most);
    }

    fn ring(&self) {
        self.bell.ring();
    }
}
