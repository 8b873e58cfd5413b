//! Devices of the host that were taken over: each has a socket of its own for its frames.

use crate::NetNamespace;
use crate::stack::Stack;
use abi::Result;
use abi::errno::EINVAL;
use hostcall::HostFd;
pub use hostcall::packet::Link;
pub use netstack::setup::Setup;
use std::sync::Arc;

impl NetNamespace {
    /// Takes devices with their addresses and routes, and a socket for each, in the order of the
    /// setup's devices; and a UDP socket of their namespace that is connected to Docker's name
    /// server, if there may be one. To be called once, after the allow-lists and before the first
    /// program runs.
    ///
    /// # Errors
    ///
    /// `EINVAL` where there is not one socket for each device, `EBUSY` where there are devices
    /// already, or another way out; `EAGAIN` where no thread can be made.
    pub fn attach_devices(
        self: &Arc<Self>,
        setup: Setup,
        links: Vec<Link>,
        names: Option<HostFd>,
    ) -> Result<()> {
        if setup.devices.len() != links.len() {
            return Err(EINVAL);
        }
        let stack = Stack::new(self, setup, links, names);
        self.set_stack(&stack)?;
        stack.serve()
    }
}
