//! IGMP and MLD: queries that come, reports that are sent.

use super::Ip;
use super::deliver::Datagram;
use super::device::Dev;
use super::groups::{News, Version};
use super::receive::Arrival;
use super::table::Table;
use super::types::{Cast, FrameMeta, Gateway, Sent};
use super::wire::{
    Head, ICMPV6, IGMP, Sum, TYPE_IPV4, TYPE_IPV6, V4, V6, be16, be32, group_mac, is_link_local,
};
use crate::counters::Mib;
use crate::time::Instant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Whom newer reports go to, and IGMPv2's and MLDv1's farewells.
const ROUTERS_V3: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const ROUTERS_V2: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const MLD_ROUTERS_V2: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
const MLD_ROUTERS_V1: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The records of a report: what the least MTU of IPv6 takes.
const RECORDS: usize = 32;

pub(super) const MLD_QUERY: u8 = 130;
pub(super) const MLD_REPORT: u8 = 131;

impl Ip {
    pub(super) fn receive_igmp(&self, at: &Arrival<'_>, d: &Datagram) {
        let b = d.body();
        if b.len() < 8 || !Sum::default().add(b).is_right() {
            return;
        }
        let group = IpAddr::V4(Ipv4Addr::from_bits(be32(b, 4)));
        let mut groups = at.dev.link.groups.lock();
        match b[0] {
            0x11 => {
                let (version, tenths) = match (b.len(), b[1]) {
                    (8, 0) => (Version::One, 100),
                    (8, n) => (Version::Two, u32::from(n)),
                    (12.., n) => (Version::Three, u32::from(decoded8(n))),
                    _ => return,
                };
                let max = Duration::from_millis(100) * tenths;
                groups.query(at.now, group, version, max);
                at.dev.link.due.at_latest(groups.due());
            }
            0x12 | 0x16 => groups.answered(at.now, group),
            _ => {}
        }
    }

    pub(super) fn receive_mld(&self, at: &Arrival<'_>, d: &Datagram) {
        let b = d.body();
        // From a neighbour (RFC 3810 5.1.14).
        if b.len() < 24 || d.ttl != 1 || !is_link_local(d.from) {
            return self.snmp.count(Mib::Icmp6InErrors);
        }
        let mut octets = [0; 16];
        octets.copy_from_slice(&b[8..24]);
        let group = IpAddr::V6(Ipv6Addr::from(octets));
        let mut groups = at.dev.link.groups.lock();
        match b[0] {
            MLD_QUERY => {
                let code = be16(b, 4);
                let (version, millis) = match b.len() {
                    24 => (Version::Two, u32::from(code)),
                    28.. => (Version::Three, decoded16(code)),
                    _ => return,
                };
                let max = Duration::from_millis(u64::from(millis));
                groups.query(at.now, group, version, max);
                at.dev.link.due.at_latest(groups.due());
            }
            _ => groups.answered(at.now, group),
        }
    }

    /// Tells the routers of a link what is due.
    pub(super) fn report(&self, now: Instant, table: &Table, dev: &Dev, news: &[(IpAddr, News)]) {
        for v4 in [true, false] {
            let all = news.iter().filter(|(g, _)| g.is_ipv4() == v4);
            let all: Vec<(IpAddr, News)> = all.copied().collect();
            let Some((first, _)) = all.first() else {
                continue;
            };
            let version = dev.link.groups.lock().version(now, *first);
            if version == Version::Three {
                for some in all.chunks(RECORDS) {
                    self.send_report(table, dev, some);
                }
            } else {
                for (group, news) in &all {
                    self.send_old_report(table, dev, version, *group, *news);
                }
            }
        }
    }

    /// IGMPv3's and MLDv2's.
    fn send_report(&self, table: &Table, dev: &Dev, news: &[(IpAddr, News)]) {
        let v4 = news.iter().all(|(g, _)| g.is_ipv4());
        let mut m = vec![if v4 { 0x22 } else { 143 }, 0, 0, 0, 0, 0];
        m.extend_from_slice(&(news.len() as u16).to_be_bytes());
        for (group, news) in news {
            let kind = match news {
                News::Member => 2,
                News::Left => 3,
                News::Joined => 4,
            };
            m.extend_from_slice(&[kind, 0, 0, 0]);
            match group {
                IpAddr::V4(g) => m.extend_from_slice(&g.octets()),
                IpAddr::V6(g) => m.extend_from_slice(&g.octets()),
            }
        }
        if v4 {
            self.send_igmp(table, dev, ROUTERS_V3, m);
        } else {
            self.snmp.count(Mib::Icmp6OutMldv2Reports);
            self.send_mld(table, dev, MLD_ROUTERS_V2, m);
        }
    }

    fn send_old_report(
        &self,
        table: &Table,
        dev: &Dev,
        version: Version,
        group: IpAddr,
        news: News,
    ) {
        match (group, news) {
            // Version 1 has no farewell.
            (IpAddr::V4(_), News::Left) if version == Version::One => {}
            (IpAddr::V4(g), _) => {
                let (kind, to) = match (news, version) {
                    (News::Left, _) => (0x17, ROUTERS_V2),
                    (_, Version::One) => (0x12, g),
                    _ => (0x16, g),
                };
                let mut m = vec![kind, 0, 0, 0];
                m.extend_from_slice(&g.octets());
                self.send_igmp(table, dev, to, m);
            }
            (IpAddr::V6(g), _) => {
                let (kind, to) = match news {
                    News::Left => (132, MLD_ROUTERS_V1),
                    _ => (MLD_REPORT, g),
                };
                let mut m = vec![kind, 0, 0, 0, 0, 0, 0, 0];
                m.extend_from_slice(&g.octets());
                self.send_mld(table, dev, to, m);
            }
        }
    }

    fn send_igmp(&self, table: &Table, dev: &Dev, to: Ipv4Addr, mut m: Vec<u8>) {
        let IpAddr::V4(from) = own_source(table, dev, IpAddr::V4(to)) else {
            return;
        };
        let sum = Sum::default().add(&m).finish();
        m[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut head = Head::new();
        head.ethernet(group_mac(IpAddr::V4(to)), dev.mac, TYPE_IPV4);
        // A router's alert (RFC 2113).
        const ALERT: [u8; 4] = [0x94, 4, 0, 0];
        V4 {
            tos: 0xc0,
            total: (24 + m.len()) as u16,
            id: self.next_ident(u64::from(from.to_bits()) << 32) as u16,
            fragment: super::wire::DONT_FRAGMENT,
            ttl: 1,
            protocol: IGMP,
            from,
            to,
        }
        .write(&mut head, &ALERT);
        self.count_sent(true, head.packet().len() + m.len());
        // What finds no room is told once more.
        let (Sent::Yes | Sent::Full) = self.transmit(dev, &FrameMeta::default(), &head, &[&m]);
    }

    fn send_mld(&self, table: &Table, dev: &Dev, to: Ipv6Addr, mut m: Vec<u8>) {
        // From the link's own address, or from none (RFC 3810 5.2.13).
        let IpAddr::V6(from) = own_source(table, dev, IpAddr::V6(to)) else {
            return;
        };
        let sum = Sum::pseudo(IpAddr::V6(from), IpAddr::V6(to), ICMPV6, m.len()).add(&m);
        m[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let mut head = Head::new();
        head.ethernet(group_mac(IpAddr::V6(to)), dev.mac, TYPE_IPV6);
        V6 {
            tos: 0,
            flow: 0,
            len: (8 + m.len()) as u16,
            next: 0,
            ttl: 1,
            from,
            to,
        }
        .write(&mut head);
        // Hop by hop, with a router's alert (RFC 2711).
        head.push(&[ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
        self.count_sent(false, head.packet().len() + m.len());
        self.snmp.count(Mib::Icmp6OutMsgs);
        let (Sent::Yes | Sent::Full) = self.transmit(dev, &FrameMeta::default(), &head, &[&m]);
    }
}

/// The device's address for packets to a group; IPv6's is link-local or unspecified.
fn own_source(table: &Table, dev: &Dev, to: IpAddr) -> IpAddr {
    let way = super::table::Way {
        device: dev.place,
        next_hop: to,
        gateway: Gateway::No,
        cast: Cast::Multicast,
        source: None,
        mtu: 0,
    };
    match table.source(to, &way) {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ip => ip,
    }
}

/// RFC 3376 4.1.1.
fn decoded8(code: u8) -> u16 {
    match code {
        0..128 => u16::from(code),
        _ => (u16::from(code & 15) | 16) << ((code >> 4 & 7) + 3),
    }
}

/// RFC 3810 5.1.3.
fn decoded16(code: u16) -> u32 {
    match code {
        0..0x8000 => u32::from(code),
        _ => (u32::from(code & 0xfff) | 0x1000) << ((code >> 12 & 7) + 3),
    }
}
