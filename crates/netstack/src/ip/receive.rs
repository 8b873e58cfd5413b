//! A frame to a packet for this host.

use super::counters::count;
use super::device::Dev;
use super::errors::Cause;
use super::extension::{self, Fragment, Fragments, V4Options, Walk};
use super::reassembly::{Key, Outcome, Piece, Reassembly, Whole};
use super::table::Table;
use super::types::{Cast, FrameMeta, Upper};
use super::wire::{
    BROADCAST, ETHERNET, Mac, Sum, TYPE_ARP, TYPE_IPV4, TYPE_IPV6, TYPE_QINQ, TYPE_VLAN, be16,
};
use super::{Ip, deliver::Datagram};
use crate::counters::Mib;
use crate::time::Instant;
use bytes::Bytes;
use netfilter::packet::Meta;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;

/// A frame that is being received.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub now: Instant,
    pub table: &'a Table,
    pub dev: &'a Dev,
    pub meta: FrameMeta,
    /// To how many the frame was sent.
    pub cast: Cast,
    pub from: Mac,
    pub upper: &'a dyn Upper,
    /// What rules know of a packet that has passed inside.
    pub track: Option<&'a Meta>,
}

impl Arrival<'_> {
    /// As if the device had said nothing of the frame.
    fn alone(&self) -> Self {
        Arrival {
            meta: FrameMeta::default(),
            ..*self
        }
    }
}

impl Ip {
    /// Takes a frame that came by the device of this index.
    pub fn receive(
        &self,
        now: Instant,
        device: u32,
        meta: &FrameMeta,
        frame: Bytes,
        upper: &dyn Upper,
    ) {
        self.tick(now);
        let table = self.table();
        let Some(dev) = table.by_index(device).filter(|d| d.is_up()) else {
            return;
        };
        let counters = &dev.link.counters;
        count(&counters.rx_packets);
        counters.rx_bytes.fetch_add(frame.len() as u64, Relaxed);
        if frame.len() < ETHERNET {
            count(&counters.rx_errors);
            return;
        }
        let mut macs: [Mac; 2] = [[0; 6]; 2];
        macs[0].copy_from_slice(&frame[..6]);
        macs[1].copy_from_slice(&frame[6..12]);
        let [to, from] = macs;
        let cast = match to {
            to if to == dev.mac => Cast::Unicast,
            BROADCAST => Cast::Broadcast,
            to if to[0] & 1 == 1 => {
                count(&counters.multicast);
                if !dev.link.groups.lock().has_mac(to) {
                    count(&counters.rx_dropped);
                    return;
                }
                Cast::Multicast
            }
            _ => {
                count(&counters.rx_dropped);
                return;
            }
        };
        let at = Arrival {
            now,
            table: &table,
            dev,
            meta: *meta,
            cast,
            from,
            upper,
            track: None,
        };
        self.receive_frame(&at, frame);
    }

    /// What is in a frame.
    pub(super) fn receive_frame(&self, at: &Arrival<'_>, frame: Bytes) {
        match be16(&frame, 12) {
            TYPE_IPV4 => self.receive_v4(at, frame.slice(ETHERNET..)),
            TYPE_IPV6 => self.receive_v6(at, frame.slice(ETHERNET..)),
            TYPE_ARP => self.receive_arp(at, &frame[ETHERNET..]),
            kind => {
                let counters = &at.dev.link.counters;
                if matches!(kind, TYPE_VLAN | TYPE_QINQ) {
                    count(&counters.rx_vlan);
                }
                count(&counters.rx_dropped);
            }
        }
    }

    fn receive_v4(&self, at: &Arrival<'_>, mut packet: Bytes) {
        self.snmp.count(Mib::IpInReceives);
        self.snmp.add(Mib::IpExtInOctets, packet.len() as u64);
        let Ok(p) = Ipv4Packet::new_checked(&packet[..]) else {
            return self.snmp.count(Mib::IpInHdrErrors);
        };
        let header = usize::from(p.header_len());
        if p.version() != 4 {
            return self.snmp.count(Mib::IpInHdrErrors);
        }
        if !Sum::default().add(&packet[..header]).is_right() {
            self.snmp.count(Mib::IpExtInCsumErrors);
            return self.snmp.count(Mib::IpInHdrErrors);
        }
        let (from, to) = (p.src_addr(), p.dst_addr());
        let fragment = (usize::from(p.frag_offset()), p.more_frags());
        let tos = p.dscp() << 2 | p.ecn();
        let (ttl, protocol) = (p.hop_limit(), p.next_header().into());
        packet.truncate(usize::from(p.total_len()));
        let d = Datagram {
            from: IpAddr::V4(from),
            to: IpAddr::V4(to),
            protocol,
            ttl,
            tos,
            flow: 0,
            cast: Cast::default(),
            header,
            named: 9,
            is_summed: at.meta.is_summed(),
            packet,
            track: Meta::default(),
            renamed: false,
        };
        if is_martian_v4(at, from, to) {
            return self.snmp.count(Mib::IpInAddrErrors);
        }
        let Some(d) = self.find_way(at, d, fragment == (0, false)) else {
            return;
        };
        match extension::v4_options(&d.packet[..header]) {
            V4Options::Fine => {}
            // No route but the routers' is followed.
            V4Options::SourceRoute => return self.snmp.count(Mib::IpInHdrErrors),
            V4Options::Wrong(problem) => {
                self.snmp.count(Mib::IpInHdrErrors);
                return self.refuse(at, &d, Cause::Parameter(problem));
            }
        }
        match fragment {
            (0, false) => self.deliver(at, d),
            (offset, more) => self.receive_fragment_v4(at, d, offset, more),
        }
    }

    fn receive_fragment_v4(&self, at: &Arrival<'_>, d: Datagram, offset: usize, more: bool) {
        let key = Key {
            from: d.from,
            to: d.to,
            id: u32::from(be16(&d.packet, 4)),
            protocol: d.protocol,
            device: at.dev.index,
        };
        let mut data = d.body();
        if more {
            // As Linux: what is left of eight bytes does not count.
            data = &data[..data.len() & !7];
        }
        let head = &d.packet[..d.header];
        let piece = Piece {
            offset,
            more,
            data,
            head,
            came: head,
            congestion: d.tos & 3 == 3,
        };
        let Some(Whole {
            mut packet,
            head: header,
            congestion,
        }) = self.collect(at, key, &piece)
        else {
            return;
        };
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[6..8].fill(0);
        if congestion && packet[1] & 3 != 0 {
            packet[1] |= 3;
        }
        packet[10..12].fill(0);
        let sum = Sum::default().add(&packet[..header]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let d = Datagram {
            tos: packet[1],
            ttl: packet[8],
            header,
            is_summed: false,
            packet: Bytes::from(packet),
            ..d
        };
        if let Some(d) = self.come_whole(&at.alone(), d) {
            self.deliver(&at.alone(), d);
        }
    }

    /// A packet that came in pieces, each of which was for this host: rules see the whole.
    fn come_whole(&self, at: &Arrival<'_>, d: Datagram) -> Option<Datagram> {
        if self.rules.is_on() {
            self.find_way(at, d, true)
        } else {
            Some(d)
        }
    }

    /// Where a packet goes, once rules have seen it if it is `whole`: given back if it is for this
    /// host.
    fn find_way(&self, at: &Arrival<'_>, d: Datagram, whole: bool) -> Option<Datagram> {
        let ruled = whole && self.rules.is_on();
        let d = if ruled { self.come(at, d)? } else { d };
        self.for_this_host(at, d)
    }

    /// A packet for this host, with to how many it was sent; another one is sent on or refused.
    fn for_this_host(&self, at: &Arrival<'_>, d: Datagram) -> Option<Datagram> {
        if self.is_from_elsewhere(at, d.from) {
            return None;
        }
        if let Some(cast) = self.admits(at, d.to) {
            return Some(Datagram { cast, ..d });
        }
        if self.takes_on(at, d.from, d.to) {
            self.forward(at, &d);
        } else {
            let v4 = d.is_v4();
            self.snmp
                .count_by(v4, Mib::IpInAddrErrors, Mib::Ip6InAddrErrors);
        }
        None
    }

    /// Keeps a fragment; gives the whole that it completes.
    fn collect(&self, at: &Arrival<'_>, key: Key, piece: &Piece<'_>) -> Option<Whole> {
        let v4 = key.from.is_ipv4();
        self.snmp
            .count_by(v4, Mib::IpReasmReqds, Mib::Ip6ReasmReqds);
        let outcome = self.reassembly.lock().add(at.now, key, piece);
        match outcome {
            Outcome::Kept => {
                let due = Reassembly::due(at.now, &key);
                self.reassembly_due.at_latest(Some(due));
                None
            }
            Outcome::Again => None,
            Outcome::Dropped => {
                self.snmp
                    .count_by(v4, Mib::IpReasmFails, Mib::Ip6ReasmFails);
                None
            }
            Outcome::Whole(whole) => {
                self.snmp.count_by(v4, Mib::IpReasmOks, Mib::Ip6ReasmOks);
                Some(whole)
            }
        }
    }

    /// To how many a packet was sent, if it is for this host.
    fn admits(&self, at: &Arrival<'_>, to: IpAddr) -> Option<Cast> {
        // (Rules may have sent it there.)
        if !at.dev.is_loopback() && to.is_loopback() {
            let takes = to.is_ipv4() && at.dev.setup.conf.takes_loopback;
            return takes.then_some(Cast::Unicast);
        }
        match at.table.cast(to) {
            // A packet for one host in a frame for all is not answered (RFC 1122 3.3.6).
            Cast::Unicast => {
                (at.cast == Cast::Unicast && at.table.is_own(to, at.dev)).then_some(Cast::Unicast)
            }
            Cast::Broadcast => Some(Cast::Broadcast),
            Cast::Multicast => at.dev.link.groups.lock().has(to).then_some(Cast::Multicast),
        }
    }

    fn receive_v6(&self, at: &Arrival<'_>, mut packet: Bytes) {
        self.snmp.count(Mib::Ip6InReceives);
        self.snmp.add(Mib::Ip6InOctets, packet.len() as u64);
        let Ok(p) = Ipv6Packet::new_checked(&packet[..]) else {
            return self.snmp.count(Mib::Ip6InTruncatedPkts);
        };
        if p.version() != 6 {
            return self.snmp.count(Mib::Ip6InHdrErrors);
        }
        let (from, to) = (p.src_addr(), p.dst_addr());
        let (tos, flow) = (p.traffic_class(), p.flow_label());
        let (ttl, next): (u8, u8) = (p.hop_limit(), p.next_header().into());
        packet.truncate(p.total_len());
        if is_martian_v6(at, from, to) {
            return self.snmp.count(Mib::Ip6InAddrErrors);
        }
        let d = Datagram {
            from: IpAddr::V6(from),
            to: IpAddr::V6(to),
            protocol: next,
            ttl,
            tos,
            flow,
            cast: Cast::default(),
            header: 40,
            named: 6,
            is_summed: at.meta.is_summed(),
            packet,
            track: Meta::default(),
            renamed: false,
        };
        let is_piece = |p: &[u8]| {
            let walked = extension::walk(p, Fragments::Possible);
            matches!(walked, Walk::Fragment(_))
        };
        let whole = !self.rules.is_on() || !is_piece(&d.packet);
        if let Some(d) = self.find_way(at, d, whole) {
            self.walk(at, d, Fragments::Possible);
        }
    }

    /// Walks the extension headers of a packet.
    fn walk(&self, at: &Arrival<'_>, mut d: Datagram, fragments: Fragments) {
        match extension::walk(&d.packet, fragments) {
            Walk::Transport {
                protocol,
                at: header,
                named,
            } => {
                (d.protocol, d.header, d.named) = (protocol, header, named);
                self.deliver(at, d);
            }
            Walk::Fragment(f) => self.receive_fragment_v6(at, d, f),
            Walk::Drop => self.snmp.count(Mib::Ip6InHdrErrors),
            Walk::Cut => self.snmp.count(Mib::Ip6InTruncatedPkts),
            Walk::Refuse(problem) => {
                self.snmp.count(Mib::Ip6InHdrErrors);
                self.refuse(at, &d, Cause::Parameter(problem));
            }
        }
    }

    fn receive_fragment_v6(&self, at: &Arrival<'_>, d: Datagram, f: Fragment) {
        let key = Key {
            from: d.from,
            to: d.to,
            id: f.id,
            protocol: 0,
            device: at.dev.index,
        };
        let (came, data) = d.packet.split_at(f.at + 8);
        let mut head = came[..f.at].to_vec();
        head[f.named] = f.next;
        let piece = Piece {
            offset: f.offset,
            more: f.more,
            data,
            head: &head,
            came,
            congestion: d.tos & 3 == 3,
        };
        let Some(Whole {
            mut packet,
            congestion,
            ..
        }) = self.collect(at, key, &piece)
        else {
            return;
        };
        let len = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&len.to_be_bytes());
        if congestion && packet[1] & 0x30 != 0 {
            packet[1] |= 0x30;
        }
        let d = Datagram {
            tos: packet[0] << 4 | packet[1] >> 4,
            ttl: packet[7],
            is_summed: false,
            packet: Bytes::from(packet),
            ..d
        };
        if let Some(d) = self.come_whole(&at.alone(), d) {
            self.walk(&at.alone(), d, Fragments::Done);
        }
    }
}

/// Whether a packet's addresses cannot be on the wire that it came by.
fn is_martian_v4(at: &Arrival<'_>, from: Ipv4Addr, to: Ipv4Addr) -> bool {
    let source = IpAddr::V4(from);
    let to_all = to.is_multicast() || to.is_broadcast();
    let inside = at.dev.is_loopback();
    let conf = at.dev.setup.conf;
    from.is_multicast()
        || from.octets()[0] >= 240
        || from.is_unspecified() && !to_all
        || from.octets()[0] == 0 && !from.is_unspecified()
        || at.table.is_broadcast(source)
        || !inside && (from.is_loopback() || to.is_loopback()) && !conf.takes_loopback
        || !inside && at.table.is_local(source) && !conf.takes_own
        || to.is_unspecified()
}

fn is_martian_v6(at: &Arrival<'_>, from: Ipv6Addr, to: Ipv6Addr) -> bool {
    let inside = at.dev.is_loopback();
    from.is_multicast()
        || from.to_ipv4_mapped().is_some()
        || from.is_unspecified() && !to.is_multicast()
        || !inside && (from.is_loopback() || to.is_loopback())
        || !inside && at.table.is_own(IpAddr::V6(from), at.dev)
        || to.is_unspecified()
        || to.to_ipv4_mapped().is_some()
        || to.is_multicast() && to.octets()[1] & 15 < 2
}
