//! ICMP errors that are sent (RFC 1122 3.2.2, RFC 1812 4.3.2, RFC 4443 2.4), and how often.

use super::Ip;
use super::counters::Mib;
use super::deliver::Datagram;
use super::keyed::Keyed;
use super::limit::Bucket;
use super::receive::Arrival;
use super::types::{Cast, Marks};
use super::wire::{ICMP, ICMPV6};
use crate::time::Instant;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Why a packet is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Port,
    Protocol,
}

impl Cause {
    /// The message's type, code and second word.
    fn message(self, d: &Datagram) -> (u8, u8, u32) {
        match (self, d.is_v4()) {
            (Cause::Port, true) => (3, 3, 0),
            (Cause::Protocol, true) => (3, 2, 0),
            (Cause::Port, false) => (1, 4, 0),
            // The place of the field that names the protocol.
            (Cause::Protocol, false) => (4, 1, 6),
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
        if at.cast != Cast::Unicast || d.cast != Cast::Unicast || d.from.is_unspecified() {
            return;
        }
        if is_icmp_error(d) {
            return;
        }
        let v4 = d.is_v4();
        let allowed = self.limits.lock().take(at.now, d.from);
        match allowed {
            Allowed::Yes => {}
            Allowed::NotToAll => return self.snmp.count(Mib::IcmpOutRateLimitGlobal),
            Allowed::NotToOne => {
                let (v4, v6) = (Mib::IcmpOutRateLimitHost, Mib::Icmp6OutRateLimitHost);
                return self.snmp.count_by(d.is_v4(), v4, v6);
            }
        }
        let Ok(path) = self.path(d.from, Some(d.to), self.only_device(at, d)) else {
            return;
        };
        let (kind, code, word) = cause.message(d);
        // As much of the packet as the least MTU takes (RFC 1812 4.3.2.3, RFC 4443 2.4).
        let most = if v4 { 576 - 28 } else { 1280 - 48 };
        let quote = &d.packet[..d.packet.len().min(most)];
        let mut head = [kind, code, 0, 0, 0, 0, 0, 0];
        head[4..].copy_from_slice(&word.to_be_bytes());
        let marks = Marks {
            tos: if v4 { d.tos & 0x1e | 0xc0 } else { 0 },
            ..Marks::default()
        };
        // An error that finds no room is not missed.
        let _ = self.send_icmp_parts(at.now, &path, (d.to, d.from), head, quote, &marks);
    }
}

/// Whether a packet is an ICMP error, or an ICMP message that is too short to tell.
fn is_icmp_error(d: &Datagram) -> bool {
    let kind = d.body().first();
    match d.protocol {
        ICMP if d.is_v4() => !matches!(kind, Some(0 | 8..=10 | 13..=18)),
        ICMPV6 if !d.is_v4() => !matches!(kind, Some(128..)),
        _ => false,
    }
}
