//! ICMP errors that are sent (RFC 1122 3.2.2, RFC 1812 4.3.2, RFC 4443 2.4), and how often.

use super::Ip;
use super::deliver::Datagram;
use super::extension::Problem;
use super::icmp::quoted_packet;
use super::keyed::Keyed;
use super::limit::Bucket;
use super::reassembly::Expired;
use super::receive::Arrival;
use super::types::{Cast, Marks, Path};
use super::wire::{ICMP, ICMPV6};
use crate::counters::Mib;
use crate::time::Instant;
use netfilter::conntrack::Track;
use netfilter::packet::Meta;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Why a packet is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Port,
    Protocol,
    Parameter(Problem),
    /// Pieces have not come in time.
    Reassembly,
    /// Of packets for others: it has no hops left, no way, none that it may take, or is larger than
    /// the next link takes.
    Hops,
    NoRoute,
    Prohibited,
    TooBig(u32),
    /// Rules say so, with this code.
    Rejected(u8),
}

impl Cause {
    /// The message's type, code and second word. `named`: the place of the field that names the
    /// protocol.
    pub(super) fn message(self, is_v4: bool, named: usize) -> (u8, u8, u32) {
        match (self, is_v4) {
            (Cause::Port, true) => (3, 3, 0),
            (Cause::Protocol, true) => (3, 2, 0),
            (Cause::Parameter(p), true) => (12, p.code, p.pointer << 24),
            (Cause::Reassembly, true) => (11, 1, 0),
            (Cause::Hops, true) => (11, 0, 0),
            (Cause::NoRoute, true) => (3, 0, 0),
            (Cause::Prohibited, true) => (3, 13, 0),
            (Cause::Rejected(code), true) => (3, code, 0),
            (Cause::Rejected(code), false) => (1, code, 0),
            (Cause::TooBig(mtu), true) => (3, 4, mtu.min(0xffff)),
            (Cause::Hops, false) => (3, 0, 0),
            (Cause::NoRoute, false) => (1, 0, 0),
            (Cause::Prohibited, false) => (1, 1, 0),
            (Cause::TooBig(mtu), false) => (2, 0, mtu),
            (Cause::Port, false) => (1, 4, 0),
            (Cause::Protocol, false) => (4, 1, named as u32),
            (Cause::Parameter(p), false) => (4, p.code, p.pointer),
            (Cause::Reassembly, false) => (3, 1, 0),
        }
    }
}

/// Linux's `icmp_msgs_per_sec` and `icmp_msgs_burst`.
const ALL: Bucket = Bucket::new(50, Duration::from_millis(1));
/// Linux's `icmp_ratelimit` and its burst, for each destination.
const ONE: Bucket = Bucket::new(6, Duration::from_secs(1));
/// Destinations that are remembered. Where there are more, all are forgotten: the bucket for all
/// still holds.
const MOST: usize = 256;

pub(super) struct Limits {
    all: Bucket,
    one: HashMap<IpAddr, Bucket, Keyed>,
}

/// What a limit says.
enum Allowed {
    Yes,
    NotToAll,
    NotToOne,
}

impl Limits {
    pub(super) fn new(key: Keyed) -> Limits {
        Limits {
            all: ALL,
            one: HashMap::with_hasher(key),
        }
    }

    fn take(&mut self, now: Instant, to: IpAddr) -> Allowed {
        if !self.one.contains_key(&to) && self.one.len() >= MOST {
            self.one.clear();
        }
        if !self.one.entry(to).or_insert(ONE).take(now) {
            return Allowed::NotToOne;
        }
        match self.all.take(now) {
            true => Allowed::Yes,
            false => Allowed::NotToAll,
        }
    }
}

impl Ip {
    /// Tells the sender of a packet why it is not taken, where that is allowed.
    pub(super) fn refuse(&self, at: &Arrival<'_>, d: &Datagram, cause: Cause) {
        let even_to_all = matches!(cause, Cause::Parameter(p) if p.even_to_all);
        let to_one = at.cast == Cast::Unicast && d.cast == Cast::Unicast;
        if !to_one && !even_to_all || is_icmp_error(d.protocol, d.is_v4(), d.body()) {
            return;
        }
        // What was for others is refused by the address towards its sender.
        let ours = d.cast == Cast::Unicast && at.table.is_own(d.to, at.dev);
        let from = ours.then_some(d.to);
        let message = cause.message(d.is_v4(), d.named);
        let path = || self.path_back(at, d, from);
        let about = (&d.packet[..], &d.track.track);
        self.send_error(at.now, (from, d.from), path, d.tos, message, about);
    }

    /// Tells the sender of a datagram that not all of it came in time, if its beginning did.
    pub(super) fn reassembly_expired(&self, now: Instant, expired: &Expired) {
        let key = &expired.key;
        let v4 = key.from.is_ipv4();
        self.snmp
            .count_by(v4, Mib::IpReasmTimeout, Mib::Ip6ReasmTimeout);
        self.snmp
            .count_by(v4, Mib::IpReasmFails, Mib::Ip6ReasmFails);
        let Some(first) = &expired.first else { return };
        let to_one = self.is_local(key.to);
        let about = quoted_packet(first, v4, key.device);
        if !to_one || about.is_none_or(|a| matches!(a.protocol, ICMP | ICMPV6)) {
            return;
        }
        let message = Cause::Reassembly.message(v4, 0);
        let path = || self.path(key.from, Some(key.to), Some(key.device)).ok();
        let ends = (Some(key.to), key.from);
        let about = (&first[..], &Track::default());
        self.send_error(now, ends, path, 0, message, about);
    }

    /// `ends`: the source and the destination. `message`: type, code and second word. `packet`: the
    /// one that it is about, and its connection.
    pub(super) fn send_error(
        &self,
        now: Instant,
        ends: (Option<IpAddr>, IpAddr),
        path: impl Fn() -> Option<Path>,
        tos: u8,
        message: (u8, u8, u32),
        (packet, track): (&[u8], &Track),
    ) {
        let (from, to) = ends;
        if to.is_unspecified() || to.is_multicast() || self.is_broadcast(to) {
            return;
        }
        let v4 = to.is_ipv4();
        // What stays here is not limited.
        let allowed = (!self.is_local(to)).then(|| self.limits.lock().take(now, to));
        match allowed.unwrap_or(Allowed::Yes) {
            Allowed::Yes => {}
            Allowed::NotToAll => return self.snmp.count(Mib::IcmpOutRateLimitGlobal),
            Allowed::NotToOne => {
                let host = (Mib::IcmpOutRateLimitHost, Mib::Icmp6OutRateLimitHost);
                return self.snmp.count_by(v4, host.0, host.1);
            }
        }
        let Some(path) = path() else { return };
        // As much of the packet as the least MTU takes (RFC 1812 4.3.2.3, RFC 4443 2.4).
        let most = if v4 { 576 - 28 } else { 1280 - 48 };
        let quote = &packet[..packet.len().min(most)];
        let (kind, code, word) = message;
        let mut head = [kind, code, 0, 0, 0, 0, 0, 0];
        head[4..].copy_from_slice(&word.to_be_bytes());
        let marks = Marks {
            tos: if v4 { tos & 0x1e | 0xc0 } else { 0 },
            ..Marks::default()
        };
        let ends = (from.unwrap_or(path.source), to);
        // An error that finds no room is not missed.
        let known = Meta {
            track: track.of_answer(),
            ..Meta::default()
        };
        let message = (head, quote, &known);
        let _ = self.send_icmp_parts(now, &path, ends, message, &marks);
    }
}

/// Whether a packet is an ICMP error, or an ICMP message that is too short to tell.
pub(super) fn is_icmp_error(protocol: u8, is_v4: bool, body: &[u8]) -> bool {
    let kind = body.first();
    match protocol {
        ICMP if is_v4 => !matches!(kind, Some(0 | 8..=10 | 13..=18)),
        ICMPV6 if !is_v4 => !matches!(kind, Some(128..)),
        _ => false,
    }
}
