//! The raw and ping sockets of a namespace: who gets a packet, who is told of an error.

use super::{ECHO_V4, ECHO_V6, Kind, RawRx};
use crate::addr::Endpoint;
use crate::datagrams::{Arrival, Peer, Quote};
use crate::ip_packet::{ICMP_V4, ICMP_V6, Packet, header_v4, sum_icmp, take_apart};
use crate::ns::NetNamespace;
use crate::options::Common;
use crate::sys::{AF_INET, AF_INET6};
use bytes::Bytes;
use netstack::ip::{Info, Origin};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// What is told of a raw socket.
type Census = (Arc<Common>, u8, Option<IpAddr>, Option<IpAddr>, usize);

/// The raw and ping sockets of a namespace.
#[derive(Default)]
pub(crate) struct RawSockets {
    /// How many raw ones there are: mostly none.
    count: AtomicUsize,
    all: Mutex<HashMap<u64, Weak<RawRx>>>,
    /// Ping sockets by family and number.
    pub(super) idents: Mutex<HashMap<(u16, u16), Weak<RawRx>>>,
}

impl RawRx {
    fn wants(&self, p: &Packet<'_>, device: i32) -> bool {
        let e = *self.ends.lock();
        let family = if p.to.is_ipv4() { AF_INET } else { AF_INET6 };
        let filtered = || {
            let f = self.filter.lock();
            let kind = p.payload.first().copied().unwrap_or(0);
            matches!(p.protocol, ICMP_V4 | ICMP_V6)
                && f[usize::from(kind) / 32] & (1 << (kind % 32)) != 0
        };
        self.family == family
            && self.kind == Kind::Raw(p.protocol)
            && e.local.is_none_or(|a| a == p.to)
            && e.peer.is_none_or(|a| a == p.from)
            && self.socket.admits(p.to, device)
            && !filtered()
    }
}

impl RawSockets {
    pub(super) fn add(&self, ino: u64, rx: &Arc<RawRx>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.all.lock().insert(ino, Arc::downgrade(rx));
    }

    pub(super) fn remove(&self, ino: u64) {
        if self.all.lock().remove(&ino).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether there is a raw socket.
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The raw ones: protocol, ends, and the bytes that wait.
    pub fn census(&self) -> Vec<Census> {
        let all: Vec<_> = self.all.lock().values().filter_map(Weak::upgrade).collect();
        let of = |rx: &Arc<RawRx>| {
            let e = *rx.ends.lock();
            let Kind::Raw(protocol) = rx.kind else {
                return None;
            };
            let bytes = rx.socket.queue.bytes();
            Some((rx.socket.common.clone(), protocol, e.local, e.peer, bytes))
        };
        all.iter().filter_map(of).collect()
    }

    fn deliver(&self, p: &Packet<'_>, came: Arrival) -> bool {
        if !self.is_used() {
            return false;
        }
        let all: Vec<_> = self.all.lock().values().filter_map(Weak::upgrade).collect();
        let mut taken = false;
        for rx in all.iter().filter(|rx| rx.wants(p, came.device)) {
            let bytes = if p.to.is_ipv4() { p.whole } else { p.payload };
            let from = Endpoint::new(p.from, 0);
            let data = Bytes::copy_from_slice(bytes);
            rx.socket.queue.put(data, from, came);
            taken = true;
        }
        taken
    }

    /// An ICMP message that is no echo request, to the ping socket that asked for it.
    pub fn icmp(&self, from: IpAddr, message: &[u8], came: Arrival) {
        let (family, reply) = if from.is_ipv4() {
            (AF_INET, 0)
        } else {
            (AF_INET6, 129)
        };
        let [kind, _, _, _, a, b, ..] = *message else {
            return;
        };
        if kind != reply {
            return;
        }
        let ident = u16::from_be_bytes([a, b]);
        let found = self.idents.lock().get(&(family, ident)).cloned();
        if let Some(rx) = found.and_then(|w| w.upgrade())
            && rx.socket.common.takes_from(came.device)
        {
            let data = Bytes::copy_from_slice(message);
            rx.socket.queue.put(data, Endpoint::new(from, 0), came);
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
}

/// Gives a packet of this host to its own sockets.
pub(super) fn give(
    ns: &NetNamespace,
    (from, to): (IpAddr, IpAddr),
    protocol: u8,
    payload: &[u8],
    came: Arrival,
) {
    let mut whole = header_v4(from, to, protocol, came.ttl, came.tos, payload.len());
    whole.extend_from_slice(payload);
    let p = Packet {
        from,
        to,
        protocol,
        payload,
        whole: &whole,
    };
    ns.raw.deliver(&p, came);
    if matches!(protocol, ICMP_V4 | ICMP_V6) {
        ns.raw.icmp(from, payload, came);
    }
}

/// A packet of this host to itself: to its raw sockets, and an echo is answered.
pub(super) fn inside(ns: &NetNamespace, from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) {
    ns.loop_packet(from, to, protocol, 0, payload);
    give(ns, (from, to), protocol, payload, Arrival::inside(to, 0));
    let reply = match (protocol, payload.first()) {
        (ICMP_V4, Some(&ECHO_V4)) => 0,
        (ICMP_V6, Some(&ECHO_V6)) => 129,
        _ => return,
    };
    let mut answer = payload.to_vec();
    answer[0] = reply;
    sum_icmp(&mut answer, to, from);
    ns.loop_packet(to, from, protocol, 0, &answer);
    give(ns, (to, from), protocol, &answer, Arrival::inside(from, 0));
}

impl RawSockets {
    /// What a ping socket has sent did not arrive; whether there is one.
    pub fn ping_failed(&self, q: &Quote<'_>) -> bool {
        let family = if q.to.ip.is_ipv4() { AF_INET } else { AF_INET6 };
        let found = self.idents.lock().get(&(family, q.from.port)).cloned();
        let Some(rx) = found.and_then(|w| w.upgrade()) else {
            return false;
        };
        let peer = rx.ends.lock().peer;
        let to = Endpoint {
            ip: q.to.ip,
            port: 0,
        };
        rx.socket.failed(to, of_peer(peer), q, q.payload(0));
        true
    }

    /// What a raw socket may have sent did not arrive; whether there is one that can have.
    pub fn failed(&self, ns: &NetNamespace, q: &Quote<'_>) -> bool {
        if !self.is_used() {
            return false;
        }
        if q.error.origin == Origin::Local {
            tell_ourselves(ns, q);
        }
        let family = if q.to.ip.is_ipv4() { AF_INET } else { AF_INET6 };
        let all: Vec<_> = self.all.lock().values().filter_map(Weak::upgrade).collect();
        let mut known = false;
        for rx in all {
            let ends = *rx.ends.lock();
            let fits = rx.family == family
                && rx.kind == Kind::Raw(q.protocol)
                && ends.local.is_none_or(|a| a == q.from.ip)
                && ends.peer.is_none_or(|a| a == q.to.ip)
                && rx.socket.common.takes_from(q.came.device);
            if !fits {
                continue;
            }
            known = true;
            let payload = if rx.header_included.load(Ordering::Relaxed) {
                q.packet
            } else {
                q.payload(0)
            };
            let to = Endpoint {
                ip: q.to.ip,
                port: 0,
            };
            rx.socket.failed(to, of_peer(ends.peer), q, payload);
        }
        known
    }
}

fn of_peer(peer: Option<IpAddr>) -> Peer {
    match peer {
        Some(_) => Peer::Connected,
        None => Peer::Any,
    }
}

/// The message that this host sends itself about a neighbour that does not answer, for raw sockets.
fn tell_ourselves(ns: &NetNamespace, q: &Quote<'_>) {
    let v4 = q.offender.is_ipv4();
    let most = if v4 { 576 - 28 } else { 1280 - 48 };
    let quoted = &q.packet[..q.packet.len().min(most)];
    let mut message = vec![q.error.icmp_type, q.error.code, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(quoted);
    sum_icmp(&mut message, q.offender, q.offender);
    let protocol = if v4 { ICMP_V4 } else { ICMP_V6 };
    inside(ns, q.offender, q.offender, protocol, &message);
}
