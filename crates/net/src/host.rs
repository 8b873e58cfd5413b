//! The host's network, for sandboxes that are given it (`--net=host`).
//!
//! The Sentry can neither make nor bind sockets: a broker in the host's network namespace does, and
//! passes descriptors. What stands for one here is in [`crate::host_socket`].

use crate::interface::Interface;
use crate::readiness::Readiness;
use abi::errno::EIO;
use abi::{Errno, Result};
use hostcall::inet::Edges;
use hostcall::{HostFd, sock};
use parking_lot::Mutex;
use std::sync::Arc;

/// The broker's protocol: a request is a [`u32`] of these and its words, little-endian; the answer
/// an errno or 0, with the socket's descriptor.
pub mod broker {
    /// Family, type, protocol.
    pub const SOCKET: u32 = 1;
    /// Then an address; with the socket's descriptor.
    pub const BIND: u32 = 2;
    /// The longest request.
    pub const REQUEST_MAX: usize = 4 + hostcall::inet::ADDR_MAX;
}

/// The host's network.
pub struct HostNetwork {
    broker: Mutex<HostFd>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) interfaces: Vec<Interface>,
}

impl HostNetwork {
    /// `edges` was made before the allow-list, which does not have that call.
    #[must_use]
    pub fn new(broker: HostFd, edges: Edges, interfaces: Vec<Interface>) -> Arc<HostNetwork> {
        Arc::new(HostNetwork {
            broker: Mutex::new(broker),
            readiness: Readiness::new(edges),
            interfaces,
        })
    }

    /// Turns the host's readiness into notifications, on a thread of its own; for ever.
    pub fn serve(&self) {
        self.readiness.serve(|| ());
    }

    fn ask(&self, request: &[u8], given: &[i32]) -> Result<Vec<HostFd>> {
        let b = self.broker.lock();
        sock::send(b.raw(), request, given)?;
        let mut answer = [0; 4];
        let (n, fds) = sock::recv(b.raw(), &mut answer)?;
        match Errno::new(i32::from_le_bytes(answer)) {
            Some(e) => Err(e),
            None if n == answer.len() => Ok(fds),
            // The broker is gone.
            None => Err(EIO),
        }
    }

    /// Has the broker make a socket.
    pub(crate) fn socket(&self, family: u16, kind: u32, protocol: i32) -> Result<HostFd> {
        let words = [broker::SOCKET, family.into(), kind, protocol as u32];
        let request: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.ask(&request, &[])?.pop().ok_or(EIO)
    }

    /// Has the broker bind one.
    pub(crate) fn bind(&self, fd: &HostFd, addr: &[u8]) -> Result<()> {
        let request = [&broker::BIND.to_le_bytes(), addr].concat();
        self.ask(&request, &[fd.raw()]).map(drop)
    }
}
