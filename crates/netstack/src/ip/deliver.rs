//! A packet for this host to its transport.

use super::Ip;
use super::errors::Cause;
use super::receive::Arrival;
use super::segment;
use super::types::{Cast, FrameMeta, Info, Pair, Path, Taken};
use super::wire::{ICMP, ICMPV6, IGMP, Sum, TCP, UDP, be16, is_link_local};
use crate::counters::Mib;
use crate::tcp::{self, Header, Segment};
use bytes::Bytes;
use netfilter::packet::Meta;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// A whole packet.
pub(super) struct Datagram {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    pub ttl: u8,
    pub tos: u8,
    pub flow: u32,
    pub cast: Cast,
    /// The bytes before the transport's header.
    pub header: usize,
    /// Where the field is that names the protocol.
    pub named: usize,
    /// Whether the transport's checksum is known to be right.
    pub is_summed: bool,
    /// From the IP header on.
    pub packet: Bytes,
    /// What rules know of it.
    pub track: Meta,
    /// They have given it another source.
    pub renamed: bool,
}

impl Datagram {
    /// From the transport's header on.
    pub(super) fn body(&self) -> &[u8] {
        self.packet.get(self.header..).unwrap_or_default()
    }

    pub(super) fn is_v4(&self) -> bool {
        self.from.is_ipv4()
    }

    fn info(&self, device: u32) -> Info {
        Info {
            device,
            ttl: self.ttl,
            tos: self.tos,
            cast: self.cast,
            flow: self.flow,
            protocol: self.protocol,
            header: self.header as u16,
            renamed: self.renamed,
        }
    }

    pub(super) fn pair(&self, device: u32, local: u16, remote: u16) -> Pair {
        Pair {
            local: socket_addr(self.to, local, device),
            remote: socket_addr(self.from, remote, device),
        }
    }

    /// Whether the transport's checksum is right.
    pub(super) fn sums_up(&self) -> bool {
        let b = self.body();
        self.is_summed
            || Sum::pseudo(self.from, self.to, self.protocol, b.len())
                .add(b)
                .is_right()
    }
}

/// A link-local address has the device as its scope.
pub(super) fn socket_addr(ip: IpAddr, port: u16, device: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => {
            let scope = if is_link_local(ip) { device } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope))
        }
    }
}

impl Ip {
    pub(super) fn deliver(&self, at: &Arrival<'_>, mut d: Datagram) {
        if self.rules.is_on() {
            match self.come_in(at, d) {
                Some(admitted) => d = admitted,
                None => return,
            }
        }
        let v4 = d.is_v4();
        self.snmp
            .count_by(v4, Mib::IpInDelivers, Mib::Ip6InDelivers);
        let info = d.info(at.dev.index);
        let raw = if at.upper.wants_raw() {
            at.upper.raw(at.now, &d.packet, &info)
        } else {
            Taken::No
        };
        match d.protocol {
            TCP => self.deliver_tcp(at, &d, &info),
            UDP => self.deliver_udp(at, &d, &info),
            ICMP if v4 => self.receive_icmp(at, &d, &info),
            ICMPV6 if !v4 => self.receive_icmpv6(at, &d, &info),
            IGMP if v4 => self.receive_igmp(at, &d),
            // "No next header" (RFC 8200 4.7).
            59 if !v4 => {}
            _ if raw == Taken::Yes => {}
            _ => {
                self.snmp
                    .count_by(v4, Mib::IpInUnknownProtos, Mib::Ip6InUnknownProtos);
                self.refuse(at, &d, Cause::Protocol);
            }
        }
    }

    fn deliver_tcp(&self, at: &Arrival<'_>, d: &Datagram, info: &Info) {
        if d.cast != Cast::Unicast {
            return;
        }
        self.snmp.count(Mib::TcpInSegs);
        let body = d.body();
        let Some(read) = segment::read(body) else {
            self.snmp.count(Mib::TcpInErrs);
            return;
        };
        if !d.sums_up() {
            self.snmp.count(Mib::TcpInCsumErrors);
            self.snmp.count(Mib::TcpInErrs);
            return;
        }
        let payload = d.packet.slice(d.header + read.len..);
        let joined = match (at.meta.gso_kind(), at.meta.gso_size) {
            (FrameMeta::GSO_TCPV4 | FrameMeta::GSO_TCPV6, size @ 1..) => {
                payload.len().div_ceil(usize::from(size)).max(1)
            }
            _ => 1,
        };
        let segment = Segment {
            header: Header {
                can_be_marked: d.tos & 3 != 0,
                ..read.header
            },
            payload,
            congestion: d.tos & 3 == 3,
            joined: joined as u16,
            headers: d.packet.slice(..d.header + read.len),
        };
        let pair = d.pair(at.dev.index, read.to, read.from);
        let reset = tcp::reset_for(&segment);
        if at.upper.tcp(at.now, pair, segment, info) == Taken::No
            && let Some(reset) = reset
            && let Some(path) = self.path_back(at, d, Some(d.to))
        {
            // A reset that finds no room is asked for again.
            let _ = self.send_answer(at.now, &path, pair, &reset);
        }
    }

    /// The way of what this host answers by itself to a packet's sender, from that address.
    ///
    /// There is none from a device that programs made, or the loopback one, to one that is
    /// guarded, nor to somebody of whom rules say that he sent it
    /// ([`Forwards::guarded`](crate::setup::Forwards)): answers repeat what a packet says, and its
    /// source is whatever the program wrote.
    pub(super) fn path_back(
        &self,
        at: &Arrival<'_>,
        d: &Datagram,
        from: Option<IpAddr>,
    ) -> Option<Path> {
        // Answers to link-local addresses go where the question came from.
        let is_near = is_link_local(d.from) || d.from.is_multicast();
        let only = is_near.then_some(at.dev.index);
        let path = self.path(d.from, from, only).ok()?;
        let strange = d.renamed || !at.table.is_guarded(at.dev.index);
        let leaves = at.table.is_guarded(path.index) && strange;
        (!leaves).then_some(path)
    }

    fn deliver_udp(&self, at: &Arrival<'_>, d: &Datagram, info: &Info) {
        let v4 = d.is_v4();
        let errors = || self.snmp.count_by(v4, Mib::UdpInErrors, Mib::Udp6InErrors);
        let body = d.body();
        if body.len() < 8 {
            return errors();
        }
        let len = usize::from(be16(body, 4));
        if len < 8 || len > body.len() {
            return errors();
        }
        let sum = be16(body, 6);
        let right = match sum {
            // None was made: IPv6 wants one (RFC 8200 8.1).
            0 => d.is_summed || v4,
            _ => {
                d.is_summed
                    || Sum::pseudo(d.from, d.to, UDP, len)
                        .add(&body[..len])
                        .is_right()
            }
        };
        if !right {
            self.snmp
                .count_by(v4, Mib::UdpInCsumErrors, Mib::Udp6InCsumErrors);
            return errors();
        }
        let payload = d.packet.slice(d.header + 8..d.header + len);
        let pair = d.pair(at.dev.index, be16(body, 2), be16(body, 0));
        let size = usize::from(at.meta.gso_size);
        let many = at.meta.gso_kind() == FrameMeta::GSO_UDP_L4 && size > 0 && payload.len() > size;
        let put = |payload, gro| {
            let taken = at.upper.udp(at.now, pair, payload, gro, info);
            match taken {
                Taken::Yes => self
                    .snmp
                    .count_by(v4, Mib::UdpInDatagrams, Mib::Udp6InDatagrams),
                Taken::Lost => {
                    errors();
                    self.snmp
                        .count_by(v4, Mib::UdpRcvbufErrors, Mib::Udp6RcvbufErrors);
                }
                Taken::Refused => errors(),
                Taken::No => {}
            }
            taken
        };
        let taken = if many && at.upper.wants_joined(&pair) {
            put(payload, Some(at.meta.gso_size))
        } else if many {
            let mut taken = Taken::Yes;
            for first in (0..payload.len()).step_by(size) {
                let one = payload.slice(first..payload.len().min(first + size));
                taken = put(one, None);
                if taken == Taken::No {
                    break;
                }
            }
            taken
        } else {
            put(payload, None)
        };
        if taken == Taken::No {
            self.snmp.count_by(v4, Mib::UdpNoPorts, Mib::Udp6NoPorts);
            self.refuse(at, d, Cause::Port);
        }
    }
}
