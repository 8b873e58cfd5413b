//! What comes by a stack, and who gets it: connections, listeners, sockets of datagrams.
//!
//! These stand on the stack, by which they send. So the stack does not name them: what it gives to
//! an [`Upper`] is passed on here.

use crate::raw;
use crate::receivers::{Arrival, Quote};
use crate::stack::{Stack, endpoint};
use crate::udp;
use bytes::Bytes;
use netstack::ip::{About, ErrorKind, IcmpError, Info, Pair, Taken, Upper};
use netstack::tcp::Segment;
use netstack::time::Instant;
use std::net::IpAddr;

impl Upper for Stack {
    fn tcp(&self, now: Instant, pair: Pair, segment: Segment, info: &Info) -> Taken {
        self.segment(now, pair, segment, info)
    }

    fn udp(&self, _: Instant, pair: Pair, data: Bytes, _: Option<u16>, info: &Info) -> Taken {
        let Some(ns) = self.namespace() else {
            return Taken::Yes;
        };
        let (from, to) = (endpoint(pair.remote), endpoint(pair.local));
        let ruled = self.is_ruled(info);
        if ruled && self.answer_came(from, to.port, &data) {
            return Taken::Yes;
        }
        let taken = udp::arrived(&ns, from, to, &data, info);
        if ruled && taken != Taken::No {
            self.gate.heard(to.port, from);
        }
        taken
    }

    fn icmp_error(
        &self,
        now: Instant,
        about: About,
        error: IcmpError,
        offender: IpAddr,
        quoted: &[u8],
        info: &Info,
    ) {
        let Some(ns) = self.namespace() else {
            return;
        };
        let quote = Quote {
            error,
            offender,
            from: endpoint(about.pair.local),
            to: endpoint(about.pair.remote),
            protocol: about.protocol,
            packet: quoted,
            header: about.header.into(),
            came: Arrival::outside(about.pair.local.ip(), info),
        };
        let known = match about.protocol {
            6 => {
                self.segment_failed(&about, error);
                false
            }
            17 => udp::failed(&ns, &quote),
            1 | 58 => ns.raw.ping_failed(&quote),
            _ => false,
        };
        let known = raw::failed(&ns, &quote) || known;
        // Of a connection that is its own affair: it looks at the sequence number.
        if let (true, ErrorKind::PacketTooBig(mtu)) = (known, error.kind) {
            self.ip.path_mtu_learnt(now, quote.to.ip, mtu);
        }
    }

    fn icmp(&self, _: Instant, from: IpAddr, to: IpAddr, message: Bytes, info: &Info) {
        if let Some(ns) = self.namespace() {
            ns.raw.icmp(from, &message, Arrival::outside(to, info));
        }
    }

    fn raw(&self, _: Instant, packet: &[u8], info: &Info) -> Taken {
        match self.namespace() {
            Some(ns) if ns.raw.packet(packet, info) => Taken::Yes,
            _ => Taken::No,
        }
    }

    fn wants_raw(&self) -> bool {
        self.namespace().is_some_and(|ns| ns.raw.is_used())
    }
}
