//! Who takes datagrams and packets that come, as those know them that bring them; and what is told
//! of what was sent and did not arrive.

use crate::addr::Endpoint;
use crate::interface::LO_INDEX;
use crate::ip_packet::{Packet, take_apart};
use crate::options::Common;
use crate::sys::{AF_INET, AF_INET6};
use bytes::Bytes;
use netstack::ip::{IcmpError, Info, Marks, Taken};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// How a datagram came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Where it was sent.
    pub to: IpAddr,
    pub device: i32,
    pub tos: u8,
    pub ttl: u8,
    /// The port where it was sent; 0 where there are none.
    pub port: u16,
    /// SO_MARK and SO_PRIORITY of who sent it on this host.
    pub mark: u32,
    pub priority: i32,
}

impl Arrival {
    /// From a socket of this host.
    pub fn inside(to: IpAddr, tos: u8) -> Arrival {
        Arrival {
            to,
            device: LO_INDEX,
            tos,
            ttl: 64,
            port: 0,
            mark: 0,
            priority: 0,
        }
    }

    /// From a socket of this host, by way of a device.
    pub fn looped(to: IpAddr, device: i32, marks: &Marks) -> Arrival {
        Arrival {
            to,
            device,
            tos: marks.tos,
            ttl: marks.ttl,
            port: 0,
            mark: marks.mark,
            priority: 0,
        }
    }

    /// From somebody outside.
    pub fn outside(to: IpAddr, info: &Info) -> Arrival {
        Arrival {
            to,
            device: info.device as i32,
            tos: info.tos,
            ttl: info.ttl,
            port: 0,
            mark: 0,
            priority: 0,
        }
    }

    /// The same, at a port.
    pub fn at(self, port: u16) -> Arrival {
        Arrival { port, ..self }
    }
}

/// An ICMP message about a packet of ours, or what is told as if it were one.
pub(crate) struct Quote<'a> {
    pub error: IcmpError,
    /// Who tells of it.
    pub offender: IpAddr,
    /// The packet's source and destination. Of an echo the source's port is its number.
    pub from: Endpoint,
    pub to: Endpoint,
    pub protocol: u8,
    /// The packet's beginning, from its IP header on.
    pub packet: &'a [u8],
    /// Where its transport's header begins.
    pub header: usize,
    /// How the message came.
    pub came: Arrival,
}

impl Quote<'_> {
    /// The packet's beginning without `n` bytes of its transport's header.
    pub fn payload(&self, n: usize) -> &[u8] {
        self.packet.get(self.header + n..).unwrap_or_default()
    }
}

/// The receiving side of a UDP socket.
pub(crate) trait UdpReceiver: Send + Sync {
    /// How well it fits what comes from there by a device; `None`: not at all.
    fn takes(&self, from: Endpoint, to: Endpoint, device: i32) -> Option<u32>;
    /// A datagram comes; it may be lost, for there is no room, or refused.
    fn put(&self, data: Bytes, from: Endpoint, came: Arrival) -> Taken;
    /// The only end that it has to do with, where it is connected.
    fn peer(&self) -> Option<Endpoint>;
    /// What it sent did not arrive.
    fn failed(&self, q: &Quote<'_>);
    /// The address that it has by a connection, its peer, and the bytes that wait.
    fn census(&self) -> (Option<IpAddr>, Option<Endpoint>, usize);
}

/// The receiving side of a raw or a ping socket.
pub(crate) trait RawReceiver: Send + Sync {
    /// Whether it takes a packet that comes by a device.
    fn wants(&self, p: &Packet<'_>, device: i32) -> bool;
    /// Whether it takes what comes by a device at all.
    fn takes_from(&self, device: i32) -> bool;
    /// A packet, or what follows its header, comes; it is lost where there is no room.
    fn put(&self, data: Bytes, from: IpAddr, came: Arrival);
    /// A ping that it sent did not arrive.
    fn ping_failed(&self, q: &Quote<'_>);
    /// What a raw socket may have sent did not arrive; whether it can have.
    fn failed(&self, q: &Quote<'_>) -> bool;
    /// What is told of a raw one.
    fn census(&self) -> Option<RawCensus>;
}

/// What is told of a raw socket.
pub(crate) struct RawCensus {
    pub common: Arc<Common>,
    pub protocol: u8,
    pub local: Option<IpAddr>,
    pub peer: Option<IpAddr>,
    /// That wait.
    pub bytes: usize,
}

/// The raw and ping sockets of a namespace.
#[derive(Default)]
pub(crate) struct RawSockets {
    /// How many raw ones there are: mostly none.
    count: AtomicUsize,
    all: Mutex<HashMap<u64, Weak<dyn RawReceiver>>>,
    /// Ping sockets by family and number.
    pub idents: Mutex<HashMap<(u16, u16), Weak<dyn RawReceiver>>>,
}

fn family_of(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

impl RawSockets {
    pub fn add(&self, ino: u64, rx: Weak<dyn RawReceiver>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.all.lock().insert(ino, rx);
    }

    pub fn remove(&self, ino: u64) {
        if self.all.lock().remove(&ino).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether there is a raw socket.
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The raw ones.
    fn all(&self) -> Vec<Arc<dyn RawReceiver>> {
        let all = self.all.lock();
        all.values().filter_map(Weak::upgrade).collect()
    }

    /// The ping socket of a number.
    fn of_ident(&self, family: u16, ident: u16) -> Option<Arc<dyn RawReceiver>> {
        let found = self.idents.lock().get(&(family, ident)).cloned();
        found.and_then(|w| w.upgrade())
    }

    /// What is told of each raw one.
    pub fn census(&self) -> Vec<RawCensus> {
        self.all().iter().filter_map(|rx| rx.census()).collect()
    }

    /// Gives a packet to all that want it; whether there were some.
    pub fn deliver(&self, p: &Packet<'_>, came: Arrival) -> bool {
        if !self.is_used() {
            return false;
        }
        let mut taken = false;
        for rx in self.all().iter().filter(|rx| rx.wants(p, came.device)) {
            let bytes = if p.to.is_ipv4() { p.whole } else { p.payload };
            rx.put(Bytes::copy_from_slice(bytes), p.from, came);
            taken = true;
        }
        taken
    }

    /// An ICMP message that is no echo request, to the ping socket that asked for it.
    pub fn icmp(&self, from: IpAddr, message: &[u8], came: Arrival) {
        let reply = if from.is_ipv4() { 0 } else { 129 };
        let [kind, _, _, _, a, b, ..] = *message else {
            return;
        };
        if kind != reply {
            return;
        }
        let ident = u16::from_be_bytes([a, b]);
        if let Some(rx) = self.of_ident(family_of(from), ident)
            && rx.takes_from(came.device)
        {
            rx.put(Bytes::copy_from_slice(message), from, came);
        }
    }

    /// A packet came by a device; whether a raw socket takes it.
    pub fn packet(&self, packet: &[u8], info: &Info) -> bool {
        let Some(p) = take_apart(packet, info) else {
            return false;
        };
        let came = Arrival::outside(p.to, info);
        self.deliver(&p, came)
    }

    /// What a ping socket has sent did not arrive; whether there is one.
    pub fn ping_failed(&self, q: &Quote<'_>) -> bool {
        let found = self.of_ident(family_of(q.to.ip), q.from.port);
        if let Some(rx) = &found {
            rx.ping_failed(q);
        }
        found.is_some()
    }

    /// What a raw socket may have sent did not arrive; whether there is one that can have. Each is
    /// told.
    pub fn failed(&self, q: &Quote<'_>) -> bool {
        let mut known = false;
        for rx in self.all() {
            known |= rx.failed(q);
        }
        known
    }
}
