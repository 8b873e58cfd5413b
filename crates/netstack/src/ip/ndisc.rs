//! IPv6's neighbour discovery (RFC 4861) of a host that is configured by others: it answers for
//! its addresses and asks for neighbours; routers' advertisements and redirects are counted only.

use super::deliver::Datagram;
use super::groups::ALL_NODES;
use super::neighbour::{Ask, Heard, How};
use super::receive::Arrival;
use super::types::{Cast, FrameMeta, Sent};
use super::wire::{Head, ICMPV6, Mac, Sum, TYPE_IPV6, V6, group_mac, solicited_node};
use super::{Ip, device::Dev};
use crate::counters::Mib;
use smoltcp::wire::{NdiscOption, NdiscOptionType};
use std::net::{IpAddr, Ipv6Addr};

pub(super) const SOLICITATION: u8 = 135;
pub(super) const ADVERTISEMENT: u8 = 136;

/// The bits of an advertisement.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// The length of either message with its option.
const LEN: usize = 32;

/// What either message says.
struct Message {
    flags: u8,
    target: Ipv6Addr,
    mac: Option<Mac>,
}

impl Ip {
    pub(super) fn receive_solicitation(&self, at: &Arrival<'_>, d: &Datagram) {
        self.snmp.count(Mib::Icmp6InNeighborSolicits);
        let (IpAddr::V6(from), IpAddr::V6(to)) = (d.from, d.to) else {
            return;
        };
        let Some(m) = message(d, NdiscOptionType::SourceLinkLayerAddr) else {
            return self.snmp.count(Mib::Icmp6InErrors);
        };
        let target = IpAddr::V6(m.target);
        if from.is_unspecified() && (m.mac.is_some() || to != solicited_node(m.target)) {
            return self.snmp.count(Mib::Icmp6InErrors);
        }
        if !at.dev.has(target) {
            return;
        }
        if from.is_unspecified() {
            // Somebody is about to take an address of ours (RFC 4862 5.4.3): say whose it is.
            let to = (ALL_NODES, group_mac(IpAddr::V6(ALL_NODES)));
            return self.send_advertisement(at.dev, m.target, to, OVERRIDE);
        }
        if let Some(mac) = m.mac
            && at.table.is_on_link(at.dev, d.from)
        {
            let heard = Heard {
                mac,
                how: How::Request,
                router: None,
            };
            self.heard(at.now, at.dev, d.from, heard);
        }
        let to = (from, m.mac.unwrap_or(at.from));
        self.send_advertisement(at.dev, m.target, to, SOLICITED | OVERRIDE);
    }

    pub(super) fn receive_advertisement(&self, at: &Arrival<'_>, d: &Datagram) {
        self.snmp.count(Mib::Icmp6InNeighborAdvertisements);
        let Some(m) = message(d, NdiscOptionType::TargetLinkLayerAddr) else {
            return self.snmp.count(Mib::Icmp6InErrors);
        };
        let solicited = m.flags & SOLICITED != 0;
        let target = IpAddr::V6(m.target);
        if solicited && d.cast != Cast::Unicast || at.table.is_local(target) {
            return self.snmp.count(Mib::Icmp6InErrors);
        }
        // Without the option it says nothing that is not known, but to one that was asked alone.
        let Some(mac) = m.mac.or(solicited.then_some(at.from)) else {
            return;
        };
        let overrides = m.flags & OVERRIDE != 0;
        let how = if solicited {
            How::Answer { overrides }
        } else {
            How::Told { overrides }
        };
        let router = Some(m.flags & ROUTER != 0);
        self.heard(at.now, at.dev, target, Heard { mac, how, router });
    }

    /// Tells everybody of an address (RFC 4861 7.2.6).
    pub(super) fn announce_v6(&self, dev: &Dev, ip: Ipv6Addr) {
        let to = (ALL_NODES, group_mac(IpAddr::V6(ALL_NODES)));
        self.send_advertisement(dev, ip, to, OVERRIDE);
    }

    fn send_advertisement(&self, dev: &Dev, target: Ipv6Addr, to: (Ipv6Addr, Mac), flags: u8) {
        self.snmp.count(Mib::Icmp6OutNeighborAdvertisements);
        let option = 2;
        self.send_ndisc(dev, (ADVERTISEMENT, flags, option), target, target, to);
    }

    pub(super) fn ask_v6(&self, dev: &Dev, from: Ipv6Addr, target: Ipv6Addr, ask: Ask) {
        let to = match ask {
            Ask::None => return,
            Ask::All => {
                let group = solicited_node(target);
                (group, group_mac(IpAddr::V6(group)))
            }
            Ask::One(mac) => (target, mac),
        };
        if from.is_unspecified() {
            return;
        }
        self.snmp.count(Mib::Icmp6OutNeighborSolicits);
        let option = 1;
        self.send_ndisc(dev, (SOLICITATION, 0, option), from, target, to);
    }

    /// `kind`: the message's type, its flags, the type of the option with our MAC.
    fn send_ndisc(
        &self,
        dev: &Dev,
        kind: (u8, u8, u8),
        from: Ipv6Addr,
        target: Ipv6Addr,
        to: (Ipv6Addr, Mac),
    ) {
        let mut m = [0; LEN];
        m[0] = kind.0;
        m[4] = kind.1;
        m[8..24].copy_from_slice(&target.octets());
        m[24] = kind.2;
        m[25] = 1;
        m[26..32].copy_from_slice(&dev.mac);
        let sum = Sum::pseudo(IpAddr::V6(from), IpAddr::V6(to.0), ICMPV6, LEN).add(&m);
        m[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let mut head = Head::new();
        head.ethernet(to.1, dev.mac, TYPE_IPV6);
        V6 {
            tos: 0,
            flow: 0,
            len: LEN as u16,
            next: ICMPV6,
            ttl: 255,
            from,
            to: to.0,
        }
        .write(&mut head);
        head.push(&m);
        self.snmp.count(Mib::Icmp6OutMsgs);
        self.count_sent(false, head.packet().len());
        // Whoever asks asks again.
        let (Sent::Yes | Sent::Full) = self.transmit(dev, &FrameMeta::default(), &head, &[]);
    }
}

/// Reads either message: it comes from the link itself (its hop limit shows that), its options
/// are whole (RFC 4861 7.1).
fn message(d: &Datagram, wanted: NdiscOptionType) -> Option<Message> {
    let b = d.body();
    if d.ttl != 255 || b.len() < 24 || b[1] != 0 {
        return None;
    }
    let mut octets = [0; 16];
    octets.copy_from_slice(&b[8..24]);
    let target = Ipv6Addr::from(octets);
    if target.is_multicast() {
        return None;
    }
    let mut mac = None;
    let mut rest = &b[24..];
    while !rest.is_empty() {
        let option = NdiscOption::new_checked(rest).ok()?;
        let len = usize::from(option.data_len()) * 8;
        if option.option_type() == wanted && len == 8 {
            let mut m: Mac = [0; 6];
            m.copy_from_slice(&rest[2..8]);
            // A group's is nobody's.
            if m[0] & 1 != 0 {
                return None;
            }
            mac = Some(m);
        }
        rest = &rest[len..];
    }
    Some(Message {
        flags: b[4],
        target,
        mac,
    })
}
