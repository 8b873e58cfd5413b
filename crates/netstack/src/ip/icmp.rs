//! ICMP messages: echoes are answered, errors are told to the transport that they are about.

use super::Ip;
use super::deliver::{Datagram, socket_addr};
use super::receive::Arrival;
use super::types::{About, Cast, ErrorKind, IcmpError, Info, Marks, Origin, Pair, Severity};
use super::wire::{ICMP, ICMPV6, Sum, TCP, UDP, be16, be32};
use super::{multicast, ndisc};
use crate::counters::Mib;
use crate::tcp::Seq;
use abi::errno;
use netfilter::packet::Meta;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The least MTU that an IPv4 router is believed (Linux's `min_pmtu`), and IPv6's own.
pub(super) const LEAST_V4: u32 = 552;
pub(super) const LEAST_V6: u32 = 1280;

impl Ip {
    pub(super) fn receive_icmp(&self, at: &Arrival<'_>, d: &Datagram, info: &Info) {
        self.snmp.count(Mib::IcmpInMsgs);
        let b = d.body();
        if !d.is_summed && !Sum::default().add(b).is_right() {
            self.snmp.count(Mib::IcmpInCsumErrors);
            return self.snmp.count(Mib::IcmpInErrors);
        }
        if b.len() < 8 {
            return self.snmp.count(Mib::IcmpInErrors);
        }
        let counter = match b[0] {
            0 => Mib::IcmpInEchoReps,
            3 => Mib::IcmpInDestUnreachs,
            5 => Mib::IcmpInRedirects,
            8 => Mib::IcmpInEchos,
            11 => Mib::IcmpInTimeExcds,
            12 => Mib::IcmpInParmProbs,
            _ => Mib::IcmpInMsgs,
        };
        if counter != Mib::IcmpInMsgs {
            self.snmp.count(counter);
        }
        match b[0] {
            8 if d.cast == Cast::Unicast => self.answer_echo(at, d, 0),
            // Echoes to all are not answered; who is the router is not for a stranger to say.
            5 | 8 => {}
            3 | 4 | 11 | 12 => self.receive_error(at, d, info),
            _ => self.tell(at, d, info),
        }
    }

    pub(super) fn receive_icmpv6(&self, at: &Arrival<'_>, d: &Datagram, info: &Info) {
        self.snmp.count(Mib::Icmp6InMsgs);
        let b = d.body();
        if !d.sums_up() {
            self.snmp.count(Mib::Icmp6InCsumErrors);
            return self.snmp.count(Mib::Icmp6InErrors);
        }
        if b.len() < 8 {
            return self.snmp.count(Mib::Icmp6InErrors);
        }
        let count = |mib| self.snmp.count(mib);
        match b[0] {
            1 => count(Mib::Icmp6InDestUnreachs),
            2 => count(Mib::Icmp6InPktTooBigs),
            3 => count(Mib::Icmp6InTimeExcds),
            4 => count(Mib::Icmp6InParmProblems),
            128 => count(Mib::Icmp6InEchos),
            129 => count(Mib::Icmp6InEchoReplies),
            133 => count(Mib::Icmp6InRouterSolicits),
            134 => count(Mib::Icmp6InRouterAdvertisements),
            137 => count(Mib::Icmp6InRedirects),
            _ => {}
        }
        match b[0] {
            1..=4 => self.receive_error(at, d, info),
            128 => self.answer_echo(at, d, 129),
            ndisc::SOLICITATION => self.receive_solicitation(at, d),
            ndisc::ADVERTISEMENT => self.receive_advertisement(at, d),
            multicast::MLD_QUERY | multicast::MLD_REPORT => self.receive_mld(at, d),
            // Routers are configured by others.
            133 | 134 | 137 => {}
            _ => self.tell(at, d, info),
        }
    }

    fn tell(&self, at: &Arrival<'_>, d: &Datagram, info: &Info) {
        let message = d.packet.slice(d.header..);
        at.upper.icmp(at.now, d.from, d.to, message, info);
    }

    fn answer_echo(&self, at: &Arrival<'_>, d: &Datagram, kind: u8) {
        let from = (d.cast == Cast::Unicast).then_some(d.to);
        let Some(path) = self.path_back(at, d, from) else {
            return;
        };
        let b = d.body();
        let mut head = [kind, 0, 0, 0, 0, 0, 0, 0];
        head[4..].copy_from_slice(&b[4..8]);
        let marks = Marks {
            tos: d.tos,
            ..Marks::default()
        };
        let ends = (from.unwrap_or(path.source), d.from);
        // An answer that finds no room is lost like any packet.
        let message = (head, &b[8..], &Meta::default());
        let _ = self.send_icmp_parts(at.now, &path, ends, message, &marks);
    }

    fn receive_error(&self, at: &Arrival<'_>, d: &Datagram, info: &Info) {
        let b = d.body();
        let error = if d.is_v4() { error_v4(b) } else { error_v6(b) };
        let quoted = &b[8..];
        let about = quoted_packet(quoted, d.is_v4(), at.dev.index);
        // Only what this host can have sent is spoken of.
        match about {
            Some(about) if at.table.is_local(about.pair.local.ip()) => {
                at.upper
                    .icmp_error(at.now, about, error, d.from, quoted, info);
            }
            _ => self
                .snmp
                .count_by(d.is_v4(), Mib::IcmpInErrors, Mib::Icmp6InErrors),
        }
    }
}

/// Linux's `icmp_err_convert`.
fn error_v4(b: &[u8]) -> IcmpError {
    let (kind, code) = (b[0], b[1]);
    let (soft, hard) = (Severity::Soft, Severity::Hard);
    let mut info = 0;
    let mut what = ErrorKind::Unreachable;
    let (errno, severity) = match (kind, code) {
        (3, 0) => (errno::ENETUNREACH, soft),
        (3, 2) => (errno::ENOPROTOOPT, hard),
        (3, 3) => (errno::ECONNREFUSED, hard),
        (3, 4) => {
            info = u32::from(be16(b, 6));
            what = ErrorKind::PacketTooBig(path_mtu_v4(info, &b[8..]));
            (errno::EMSGSIZE, soft)
        }
        (3, 5) => (errno::EOPNOTSUPP, soft),
        (3, 6 | 9) => (errno::ENETUNREACH, hard),
        (3, 7) => (errno::EHOSTDOWN, hard),
        (3, 8) => (errno::ENONET, hard),
        (3, 11) => (errno::ENETUNREACH, soft),
        (3, 10 | 13..=15) => (errno::EHOSTUNREACH, hard),
        (4, _) => {
            what = ErrorKind::SourceQuench;
            (errno::EHOSTUNREACH, soft)
        }
        (11, _) => {
            what = ErrorKind::TimeExceeded;
            (errno::EHOSTUNREACH, soft)
        }
        (12, _) => {
            info = u32::from(b[4]);
            what = ErrorKind::ParameterProblem;
            (errno::EPROTO, hard)
        }
        // 1, 12, and those that nobody knows.
        _ => (errno::EHOSTUNREACH, soft),
    };
    IcmpError {
        kind: what,
        errno,
        severity,
        origin: Origin::Icmp,
        icmp_type: kind,
        code,
        info,
    }
}

/// The MTU that a router names; an old one names none, and the next lower plateau is taken
/// (RFC 1191 7.1).
fn path_mtu_v4(named: u32, quoted: &[u8]) -> u32 {
    const PLATEAUS: [u32; 8] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 552];
    let mtu = match named {
        0 if quoted.len() >= 4 => {
            let len = u32::from(be16(quoted, 2));
            let lower = PLATEAUS.into_iter().find(|p| *p < len);
            lower.unwrap_or(LEAST_V4)
        }
        n => n,
    };
    mtu.max(LEAST_V4)
}

/// Linux's `icmpv6_err_convert`.
fn error_v6(b: &[u8]) -> IcmpError {
    let (kind, code) = (b[0], b[1]);
    let (soft, hard) = (Severity::Soft, Severity::Hard);
    let mut info = 0;
    let mut what = ErrorKind::Unreachable;
    let (errno, severity) = match (kind, code) {
        (1, 0) => (errno::ENETUNREACH, soft),
        (1, 1 | 5 | 6) => (errno::EACCES, hard),
        (1, 4) => (errno::ECONNREFUSED, hard),
        (2, _) => {
            info = be32(b, 4);
            what = ErrorKind::PacketTooBig(info.max(LEAST_V6));
            (errno::EMSGSIZE, soft)
        }
        (3, _) => {
            what = ErrorKind::TimeExceeded;
            (errno::EHOSTUNREACH, soft)
        }
        (4, _) => {
            info = be32(b, 4);
            what = ErrorKind::ParameterProblem;
            (errno::EPROTO, hard)
        }
        // 2, 3, and those that nobody knows.
        _ => (errno::EHOSTUNREACH, soft),
    };
    IcmpError {
        kind: what,
        errno,
        severity,
        origin: Origin::Icmp,
        icmp_type: kind,
        code,
        info,
    }
}

/// Which packet of ours this is the beginning of; none where that cannot be told.
pub(super) fn quoted_packet(b: &[u8], is_v4: bool, device: u32) -> Option<About> {
    let (from, to, protocol, header) = if is_v4 { quoted_v4(b)? } else { quoted_v6(b)? };
    let body = b.get(header..).unwrap_or_default();
    let (mut local, mut remote, mut tcp_seq) = (0, 0, None);
    match protocol {
        TCP | UDP if body.len() >= 8 => {
            local = be16(body, 0);
            remote = be16(body, 2);
            tcp_seq = (protocol == TCP).then(|| Seq(be32(body, 4)));
        }
        TCP | UDP => return None,
        // Of an echo request.
        ICMP if is_v4 && body.len() >= 8 && body[0] == 8 => local = be16(body, 4),
        ICMPV6 if !is_v4 && body.len() >= 8 && body[0] == 128 => local = be16(body, 4),
        _ => {}
    }
    Some(About {
        protocol,
        header: u16::try_from(header).ok()?,
        pair: Pair {
            local: socket_addr(from, local, device),
            remote: socket_addr(to, remote, device),
        },
        tcp_seq,
    })
}

type Quoted = (IpAddr, IpAddr, u8, usize);

fn quoted_v4(b: &[u8]) -> Option<Quoted> {
    let header = usize::from(b.first()? & 15) * 4;
    if b.len() < 20 || b[0] >> 4 != 4 || header < 20 || be16(b, 6) & 0x1fff != 0 {
        return None;
    }
    let from = Ipv4Addr::from_bits(be32(b, 12));
    let to = Ipv4Addr::from_bits(be32(b, 16));
    Some((IpAddr::V4(from), IpAddr::V4(to), b[9], header))
}

fn quoted_v6(b: &[u8]) -> Option<Quoted> {
    if b.len() < 40 || b[0] >> 4 != 6 {
        return None;
    }
    let ip = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&b[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let (mut next, mut at) = (b[6], 40);
    // This host sends none but a fragment's; a program may send others.
    for _ in 0..4 {
        let head = b.get(at..at + 8);
        match (next, head) {
            (0 | 43 | 60, Some(h)) => {
                next = h[0];
                at += (usize::from(h[1]) + 1) * 8;
            }
            (44, Some(h)) if be16(h, 2) & 0xfff8 == 0 => {
                next = h[0];
                at += 8;
            }
            (44, Some(_)) => return None,
            _ => break,
        }
    }
    Some((ip(8), ip(24), next, at))
}
