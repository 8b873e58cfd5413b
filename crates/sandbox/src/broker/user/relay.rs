//! Datagrams: a socket of the host for each socket inside and each of its peers.
//!
//! Each is connected to its peer, so nothing of anybody else comes back by it, and the host tells
//! where nobody is. One that nothing went by for [`IDLE`] seconds goes, as with a router that
//! translates addresses.

use super::{Broker, Shares, Source, TURN, now};
use abi::errno::{EACCES, EAGAIN};
use abi::{Errno, Result};
use egress::Protocol;
use hostcall::inet::{self, Interest};
use hostcall::{HostFd, mem};
use net::Endpoint;
use net::user::wire::{Datagrams, ToSentry, User};
use std::collections::HashMap;

/// Seconds.
const IDLE: u64 = 180;
/// How often idle ones are looked for.
const SWEEP: u64 = 10;
/// The most flows, but at most half of the descriptors that there may be; the one that was idle
/// for longest makes room.
const FLOWS: usize = 4096;

/// What the person is told where the host lets the broker make no ping sockets.
const NO_PINGS: &str = "ping: this machine lets the broker's group make no ping sockets (sysctl net.ipv4.ping_group_range)";

/// A socket inside and a peer.
pub type Key = (u64, Datagrams, Endpoint);

/// See the module.
#[derive(Default)]
pub struct Relay {
    flows: HashMap<Key, usize>,
    shares: Shares,
    swept: u64,
    most: usize,
}

impl Relay {
    /// Of a process that may have so many descriptors.
    pub fn new(descriptors: usize) -> Relay {
        Relay {
            most: FLOWS.min(descriptors / 2),
            ..Relay::default()
        }
    }
}

/// See the module.
pub struct Flow {
    fd: HostFd,
    user: User,
    key: Key,
    used: u64,
}

impl Broker {
    /// Sends a datagram to a peer, if it may be reached.
    pub fn relay(&mut self, user: User, key: Key, data: &[u8]) {
        let sent = self.flow(user, key).and_then(|token| {
            let Some(Source::Flow(f)) = self.sources.get_mut(token) else {
                return Ok(());
            };
            f.used = now();
            let fd = f.fd.raw();
            let mut copy = data.to_vec();
            mem::with_slice_mut(&mut copy, |m| inet::send(fd, &[m], None, &[], 0)).map(drop)
        });
        match sent {
            Ok(()) | Err(EAGAIN) => {}
            Err(e) => self.failed(key, e),
        }
    }

    fn failed(&self, (socket, _, to): Key, e: Errno) {
        let errno = e.raw();
        self.tell(ToSentry::Failed { socket, to, errno }, &[]);
    }

    /// The flow of that key; a new one by the policy.
    fn flow(&mut self, user: User, key: Key) -> Result<usize> {
        if let Some(token) = self.relay.flows.get(&key) {
            return Ok(*token);
        }
        let (_, protocol, to) = key;
        let (asked, number) = match (protocol, to.ip.is_ipv4()) {
            (Datagrams::Udp, _) => (Protocol::Udp, libc::IPPROTO_UDP),
            (Datagrams::Icmp, true) => (Protocol::Icmp, libc::IPPROTO_ICMP),
            (Datagrams::Icmp, false) => (Protocol::Icmp, libc::IPPROTO_ICMPV6),
        };
        self.allow(asked, to)?;
        if !self.relay.shares.has_room(user, self.relay.most) {
            self.drop_oldest(|f| f.user == user);
        } else if self.relay.flows.len() >= self.relay.most {
            self.drop_oldest(|_| true);
        }
        let addr = to.to_sockaddr();
        let family = i32::from(u16::from_le_bytes([addr[0], addr[1]]));
        let fd = inet::socket(family, libc::SOCK_DGRAM, number);
        if asked == Protocol::Icmp && matches!(fd, Err(EACCES)) {
            self.told.hint(NO_PINGS);
        }
        let fd = fd?;
        inet::connect(fd.raw(), &addr)?;
        let raw = fd.raw();
        let flow = Flow {
            fd,
            user,
            key,
            used: now(),
        };
        let token = self.add(raw, Source::Flow(flow), Interest::Read)?;
        self.relay.flows.insert(key, token);
        self.relay.shares.add(user);
        Ok(token)
    }

    /// Something came by a flow.
    pub fn flow_ready(&mut self, token: usize, packet: &mut [u8]) {
        for _ in 0..TURN {
            let Some(Source::Flow(f)) = self.sources.get_mut(token) else {
                return;
            };
            let (socket, _, from) = f.key;
            let fd = f.fd.raw();
            match mem::with_slice_mut(packet, |m| inet::receive(fd, &[m], 0)) {
                Ok(got) => {
                    f.used = now();
                    let data = &packet[..got.n.min(packet.len())];
                    self.tell(ToSentry::Received { socket, from, data }, &[]);
                }
                Err(EAGAIN) => return,
                Err(e) => {
                    let key = f.key;
                    return self.failed(key, e);
                }
            }
        }
    }

    fn remove_flow(&mut self, token: usize) {
        if let Some(Source::Flow(f)) = self.sources.try_remove(token) {
            self.relay.flows.remove(&f.key);
            self.relay.shares.remove(f.user);
        }
    }

    /// A socket inside is gone.
    pub fn close_flows(&mut self, socket: u64) {
        let of = |(key, token): (&Key, &usize)| (key.0 == socket).then_some(*token);
        let gone: Vec<usize> = self.relay.flows.iter().filter_map(of).collect();
        for token in gone {
            self.remove_flow(token);
        }
    }

    /// Makes room: of these flows the one goes that was idle for longest.
    fn drop_oldest(&mut self, of: impl Fn(&Flow) -> bool) {
        let flow = |t: &usize| match self.sources.get(*t) {
            Some(Source::Flow(f)) if of(f) => Some((f.used, *t)),
            _ => None,
        };
        if let Some((_, token)) = self.relay.flows.values().filter_map(flow).min() {
            self.remove_flow(token);
        }
    }

    /// Lets those go that are idle.
    pub fn relay_idle(&mut self) {
        let now = now();
        if now < self.relay.swept + SWEEP {
            return;
        }
        self.relay.swept = now;
        self.listen_again();
        // What the policy allowed once may have ended: a name's address.
        let mut idle = Vec::new();
        for ((_, protocol, to), token) in &self.relay.flows {
            let asked = match protocol {
                Datagrams::Udp => Protocol::Udp,
                Datagrams::Icmp => Protocol::Icmp,
            };
            let names = self.guard.names(to.ip, now);
            let may = self.guard.still_allows(asked, to.ip, to.port, &names);
            let used = match self.sources.get(*token) {
                Some(Source::Flow(f)) => f.used,
                _ => 0,
            };
            if !may || used + IDLE < now {
                idle.push(*token);
            }
        }
        for token in idle {
            self.remove_flow(token);
        }
    }
}
