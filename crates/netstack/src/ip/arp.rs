//! ARP (RFC 826), with RFC 5227's announcements and defence.

use super::limit::Bucket;
use super::neighbour::{Ask, Heard, How};
use super::receive::Arrival;
use super::types::{Cast, FrameMeta, Sent};
use super::wire::{BROADCAST, Head, Mac, TYPE_ARP};
use super::{Ip, device::Dev};
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Of an address that somebody else uses: RFC 5227's DEFEND_INTERVAL.
pub(super) const fn defences() -> Bucket {
    Bucket::new(1, Duration::from_secs(10))
}

/// Whether a question about an address of this host's is answered (`arp_ignore`).
fn answers_for(at: &Arrival<'_>, target: IpAddr, sender: IpAddr) -> bool {
    const HOST: u8 = 254;
    let setup = &at.dev.setup;
    let own = setup.addresses.iter().find(|a| a.ip == target);
    match setup.conf.arp_ignore {
        0 | 4..=7 => true,
        1 => own.is_some(),
        2 => own.is_some() && at.table.is_on_link(at.dev, sender),
        3 => own.is_none_or(|a| a.scope != HOST),
        _ => false,
    }
}

/// The length of an ARP packet for IPv4 on Ethernet.
const LEN: usize = 28;

impl Ip {
    pub(super) fn receive_arp(&self, at: &Arrival<'_>, packet: &[u8]) {
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr: from,
            target_protocol_addr: to,
            ..
        }) = ArpPacket::new_checked(packet).and_then(|p| ArpRepr::parse(&p))
        else {
            return;
        };
        let mac = source_hardware_addr.0;
        let martian = from.is_multicast() || from.is_broadcast() || from.is_loopback();
        if martian || mac[0] & 1 != 0 || mac == at.dev.mac {
            return;
        }
        let (sender, target) = (IpAddr::V4(from), IpAddr::V4(to));
        let for_us = at.table.is_own(target, at.dev);
        if at.table.is_own(sender, at.dev) {
            // Somebody claims an address of ours: say whose it is.
            return self.defend(at, from);
        }
        let how = match operation {
            ArpOperation::Request if from == to => How::Gratuitous,
            ArpOperation::Request if for_us => How::Request,
            ArpOperation::Reply if from == to => How::Gratuitous,
            ArpOperation::Reply if for_us && at.cast == Cast::Unicast => {
                How::Answer { overrides: true }
            }
            _ => How::Overheard,
        };
        if !from.is_unspecified() && (how != How::Request || at.table.is_on_link(at.dev, sender)) {
            let router = None;
            self.heard(at.now, at.dev, sender, Heard { mac, how, router });
        }
        if operation == ArpOperation::Request && for_us && answers_for(at, target, sender) {
            self.send_arp(at.dev, ArpOperation::Reply, (mac, mac), to, from);
        }
    }

    /// Says whose an address is that somebody else uses (RFC 5227 2.4), once in ten
    /// seconds.
    fn defend(&self, at: &Arrival<'_>, ip: Ipv4Addr) {
        if at.dev.has(IpAddr::V4(ip)) && at.dev.link.defences.lock().take(at.now) {
            self.announce_v4(at.dev, ip);
        }
    }

    /// Tells everybody of an address (RFC 5227 2.3).
    pub(super) fn announce_v4(&self, dev: &Dev, ip: Ipv4Addr) {
        self.send_arp(dev, ArpOperation::Request, (BROADCAST, [0; 6]), ip, ip);
    }

    pub(super) fn ask_v4(&self, dev: &Dev, from: Ipv4Addr, target: Ipv4Addr, ask: Ask) {
        let to = match ask {
            Ask::None => return,
            Ask::All => BROADCAST,
            Ask::One(mac) => mac,
        };
        self.send_arp(dev, ArpOperation::Request, (to, [0; 6]), from, target);
    }

    /// `to`: the frame's destination, and the target's hardware address.
    fn send_arp(
        &self,
        dev: &Dev,
        operation: ArpOperation,
        to: (Mac, Mac),
        from: Ipv4Addr,
        target: Ipv4Addr,
    ) {
        let repr = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(dev.mac),
            source_protocol_addr: from,
            target_hardware_addr: EthernetAddress(to.1),
            target_protocol_addr: target,
        };
        let mut packet = [0; LEN];
        repr.emit(&mut ArpPacket::new_unchecked(&mut packet[..]));
        let mut head = Head::new();
        head.ethernet(to.0, dev.mac, TYPE_ARP);
        head.push(&packet);
        // Whoever asks asks again.
        let (Sent::Yes | Sent::Full) = self.transmit(dev, &FrameMeta::default(), &head, &[]);
    }
}
