//! What comes to a raw or a ping socket, and what is told of an error; packets of this host to
//! itself.

use super::{ECHO_V4, ECHO_V6, Kind, RawRx};
use crate::addr::Endpoint;
use crate::datagrams::Peer;
use crate::frames::Framed;
use crate::ip_packet::{ICMP_V4, ICMP_V6, Packet, header_v4, sum_icmp};
use crate::ns::NetNamespace;
use crate::receivers::{Arrival, Quote, RawCensus, RawReceiver};
use crate::sys::{AF_INET, AF_INET6};
use bytes::Bytes;
use netstack::ip::Origin;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

impl RawReceiver for RawRx {
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
            && self.socket.admits(p.from, p.to, device)
            && !filtered()
    }

    fn takes_from(&self, device: i32) -> bool {
        self.socket.common.takes_from(device)
    }

    fn put(&self, mut data: Bytes, from: IpAddr, came: Arrival) {
        let filter = &self.socket.common.filter;
        if filter.is_on() {
            let (made, behind) = match self.kind {
                Kind::Raw(_) if from.is_ipv4() => (Framed::whole(&data, came.device), None),
                Kind::Raw(p) => (Framed::of(from, &came, p, &data), Some(0)),
                Kind::Ping => (Framed::of(from, &came, icmp_of(from), &data), Some(0)),
            };
            match filter.admits(&made.seen(behind), 1) {
                Some(n) => data.truncate(n),
                None => return,
            }
        }
        self.socket.queue.put(data, Endpoint::new(from, 0), came);
    }

    fn ping_failed(&self, q: &Quote<'_>) {
        let peer = self.ends.lock().peer;
        let to = Endpoint {
            ip: q.to.ip,
            port: 0,
        };
        self.socket.failed(to, of_peer(peer), q, q.payload(0));
    }

    fn failed(&self, q: &Quote<'_>) -> bool {
        let family = if q.to.ip.is_ipv4() { AF_INET } else { AF_INET6 };
        let ends = *self.ends.lock();
        let fits = self.family == family
            && self.kind == Kind::Raw(q.protocol)
            && ends.local.is_none_or(|a| a == q.from.ip)
            && ends.peer.is_none_or(|a| a == q.to.ip)
            && self.takes_from(q.came.device);
        if !fits {
            return false;
        }
        let payload = if self.header_included.load(Ordering::Relaxed) {
            q.packet
        } else {
            q.payload(0)
        };
        let to = Endpoint {
            ip: q.to.ip,
            port: 0,
        };
        self.socket.failed(to, of_peer(ends.peer), q, payload);
        true
    }

    fn census(&self) -> Option<RawCensus> {
        let e = *self.ends.lock();
        let Kind::Raw(protocol) = self.kind else {
            return None;
        };
        Some(RawCensus {
            common: self.socket.common.clone(),
            protocol,
            local: e.local,
            peer: e.peer,
            bytes: self.socket.queue.bytes(),
        })
    }
}

/// What raw sockets may have sent did not arrive; whether there is one that can have.
pub(crate) fn failed(ns: &NetNamespace, q: &Quote<'_>) -> bool {
    if !ns.raw.is_used() {
        return false;
    }
    if q.error.origin == Origin::Local {
        tell_ourselves(ns, q);
    }
    ns.raw.failed(q)
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

fn icmp_of(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { ICMP_V4 } else { ICMP_V6 }
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
