//! The network of `--net=user`: sockets of the host that a broker connects by policy.
//!
//! What stays inside (loopback, this host's own address) is joined in memory as ever. What leaves,
//! leaves by the broker: it connects TCP sockets and passes them here, where they are only read,
//! written, polled and shut down ([`stream`]); it sends and receives datagrams itself, which
//! travel by a socket of packets ([`wire`]). So nothing that this process may call can name a
//! peer.
//!
//! # What holds
//!
//! - A connected descriptor stays at its peer: `connect(2)`, `bind(2)`, `listen(2)`, `accept(2)`
//!   and `setsockopt(2)` are not on the Sentry's list, and `sendmsg(2)` is not with
//!   `MSG_FASTOPEN`, which connects.
//! - What comes from the broker is believed as far as the policy goes, and bounded: a datagram is
//!   put into a queue that has a limit, a connection into a listener's, whose backlog holds.
//! - A program sees its own address ([`ADDRESS_V4`]), never the host's.
//!
//! # Lock order
//!
//! A socket's state before [`UserNetwork`]'s tables, these before nothing. The channel to the
//! broker is held for one exchange; the broker answers at once, whatever the host's network does.

pub(crate) mod stream;
pub mod wire;

use stream::Stream;
pub use stream::is_hosts;

use crate::addr::Endpoint;
use crate::interface::Interface;
use crate::readiness::Readiness;
use abi::errno::{EIO, ENOBUFS};
use abi::{Errno, Result};
use hostcall::inet::Edges;
use hostcall::{HostFd, sock};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Weak};
use wire::{Answer, Datagrams, Request, ToBroker, ToSentry, User};

/// The sandbox's address, and the length of its prefix.
pub const ADDRESS_V4: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(10, 0, 2, 15)), 24);
/// The same by IPv6, where the host has a way there.
pub const ADDRESS_V6: (IpAddr, u8) = (
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x15)),
    64,
);
/// Where the default route leads.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The device that programs see.
pub(crate) const DEVICE: &str = "eth0";
pub(crate) const DEVICE_INDEX: i32 = 2;
/// The port of name servers.
const DNS: u16 = 53;

/// What a sandbox with this network starts with.
pub struct Start {
    /// For [`Request`].
    pub requests: HostFd,
    /// For [`ToBroker`] and [`ToSentry`].
    pub events: HostFd,
    /// The host's name servers: what goes there goes to the broker's resolver, even where the
    /// address is local.
    pub name_servers: Vec<IpAddr>,
    /// Whether the host has a way to the internet by IPv6.
    pub ipv6: bool,
}

/// A socket of datagrams, as the broker's news reach it.
pub(crate) trait Inside: Send + Sync {
    /// Its number, by which the broker knows it.
    fn number(&self) -> u64;
    /// Whose it is.
    fn user(&self) -> User;
    /// A datagram has come.
    fn received(&self, from: Endpoint, data: &[u8]);
    /// What was sent to `to` did not arrive.
    fn failed(&self, to: Endpoint, e: Errno);
}

/// See the module.
pub struct UserNetwork {
    requests: Mutex<HostFd>,
    events: HostFd,
    readiness: Arc<Readiness>,
    /// Sockets of datagrams that have sent something out, by their number.
    sockets: Mutex<HashMap<u64, Weak<dyn Inside>>>,
    /// Connections, by their descriptors. Leaf lock.
    streams: Mutex<HashMap<i32, Weak<Stream>>>,
    name_servers: Vec<IpAddr>,
    ipv6: bool,
}

impl UserNetwork {
    /// `edges` was made before the allow-list, which does not have that call.
    pub fn new(start: Start, edges: Edges) -> Result<Arc<UserNetwork>> {
        let readiness = Readiness::new(edges);
        readiness.watch_channel(&start.events)?;
        Ok(Arc::new(UserNetwork {
            requests: Mutex::new(start.requests),
            events: start.events,
            readiness,
            sockets: Mutex::default(),
            streams: Mutex::default(),
            name_servers: start.name_servers,
            ipv6: start.ipv6,
        }))
    }

    /// The device, as programs are told of it.
    pub(crate) fn interface(&self) -> Interface {
        const IFF_UP_BROADCAST_RUNNING_MULTICAST: u32 = 0x1043;
        let v6 = self.ipv6.then_some(ADDRESS_V6);
        Interface {
            name: DEVICE.into(),
            index: DEVICE_INDEX,
            flags: IFF_UP_BROADCAST_RUNNING_MULTICAST,
            mtu: 1500,
            mac: [0; 6],
            addresses: std::iter::once(ADDRESS_V4).chain(v6).collect(),
        }
    }

    /// The connections that there are.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        // (Of one that is going, the last reference may be this one: not with the table held.)
        let all: Vec<_> = self.streams.lock().values().cloned().collect();
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// The own address of the family, if it has one.
    pub(crate) fn address(&self, like: IpAddr) -> Option<IpAddr> {
        match like {
            IpAddr::V4(_) => Some(ADDRESS_V4.0),
            IpAddr::V6(_) => self.ipv6.then_some(ADDRESS_V6.0),
        }
    }

    /// Whether it is one of the host's name servers, by any protocol.
    pub(crate) fn is_name_server(&self, to: Endpoint) -> bool {
        to.port == DNS && self.name_servers.contains(&to.ip)
    }

    /// Has the broker connect; the descriptor, and the end here.
    fn connect(&self, user: User, to: Endpoint) -> Result<(HostFd, Endpoint)> {
        let (answer, fd) = self.ask(Request::Connect { user, to }, &[])?;
        let local = answer.local.ok_or(EIO)?;
        Ok((fd.ok_or(EIO)?, local))
    }

    fn set_option(&self, fd: &HostFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let request = Request::SetOption { level, name, value };
        self.ask(request, &[fd.raw()]).map(drop)
    }

    fn ask(&self, request: Request<'_>, given: &[i32]) -> Result<(Answer, Option<HostFd>)> {
        let channel = self.requests.lock();
        sock::send(channel.raw(), &request.encode(), given)?;
        let mut bytes = [0; wire::REQUEST_MAX];
        let (n, mut fds) = sock::recv(channel.raw(), &mut bytes)?;
        // (Nothing comes where the broker is gone.)
        let answer = Answer::decode(&bytes[..n]).ok_or(EIO)?;
        match Errno::new(answer.errno) {
            Some(e) => Err(e),
            None => Ok((answer, fds.pop())),
        }
    }

    /// Sends a datagram out; waits for room, which the broker always makes soon.
    pub(crate) fn send(
        &self,
        rx: &Arc<dyn Inside>,
        protocol: Datagrams,
        to: Endpoint,
        data: &[u8],
    ) -> Result<()> {
        let socket = rx.number();
        self.sockets
            .lock()
            .entry(socket)
            .or_insert_with(|| Arc::downgrade(rx));
        let message = ToBroker::Send {
            user: rx.user(),
            socket,
            protocol,
            to,
            data,
        }
        .encode();
        sock::send(self.events.raw(), &message, &[])
            .map(drop)
            .map_err(|_| ENOBUFS)
    }

    /// A socket of datagrams is gone.
    pub(crate) fn close(&self, socket: u64) {
        if self.sockets.lock().remove(&socket).is_some() {
            // Where there is no room for it, the broker forgets it after a while.
            let _ = sock::try_send(self.events.raw(), &ToBroker::Close { socket }.encode(), &[]);
        }
    }

    /// Takes what the broker tells, and the host's readiness: connections go to `accepted`; on a
    /// thread of its own; for ever.
    pub(crate) fn serve(&self, mut accepted: impl FnMut(u16, Endpoint, HostFd)) {
        let mut packet = vec![0; wire::MAX];
        self.readiness
            .serve(|| self.hear(&mut packet, &mut accepted));
    }

    fn hear(&self, packet: &mut [u8], accepted: &mut impl FnMut(u16, Endpoint, HostFd)) {
        while let Ok((n, mut fds)) = sock::try_recv(self.events.raw(), packet) {
            if n == 0 {
                return;
            }
            let find = |s: &u64| self.sockets.lock().get(s).and_then(Weak::upgrade);
            match ToSentry::decode(&packet[..n]) {
                Some(ToSentry::Received { socket, from, data }) => {
                    if let Some(rx) = find(&socket) {
                        rx.received(from, data);
                    }
                }
                Some(ToSentry::Failed { socket, to, errno }) => {
                    if let (Some(rx), Some(e)) = (find(&socket), Errno::new(errno)) {
                        rx.failed(to, e);
                    }
                }
                Some(ToSentry::Accepted { port, peer }) => {
                    if let Some(fd) = fds.pop() {
                        accepted(port, peer, fd);
                    }
                }
                None => {}
            }
        }
    }
}
