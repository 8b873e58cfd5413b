//! Receiving: by the service thread, or by the task that waits ([`wait::lead`]).

use super::Stack;
use crate::clock::now;
use abi::Result;
use hostcall::packet::Bell;
use std::sync::Arc;
use std::time::Duration;
use wait::lead::{Role, Work, Worked};

/// How many frames of a device follow each other before the receiver looks at what it has done.
const BATCH: usize = 4;

/// What ends the sleep of who receives. To be made before the allow-lists.
#[derive(Debug)]
pub struct Bells {
    leader: Bell,
    service: Bell,
}

impl Bells {
    pub fn new() -> Result<Bells> {
        Ok(Bells {
            leader: Bell::new()?,
            service: Bell::new()?,
        })
    }
    /// There are other devices to be waited for.
    pub(super) fn ring(&self) {
        self.leader.ring();
        self.service.ring();
    }
}

/// The frames that come by the devices of a stack.
pub(super) struct Receiving {
    pub stack: Arc<Stack>,
    pub bells: Arc<Bells>,
}

impl Work for Receiving {
    fn work(&self) -> Worked {
        let stack = &self.stack;
        let mut all = Worked::Nothing;
        for device in stack.ports.taken().iter() {
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
            Role::Leader => &self.bells.leader,
            Role::Service => &self.bells.service,
        };
        self.stack.ports.wait(bell, most);
    }

    fn ring(&self) {
        self.bells.leader.ring();
    }
}
