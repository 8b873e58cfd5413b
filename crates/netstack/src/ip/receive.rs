//! A frame to a packet for this host.

use super::counters::{Mib, count};
use super::device::Dev;
use super::table::Table;
use super::types::{Cast, FrameMeta, Upper};
use super::wire::{
    BROADCAST, ETHERNET, Mac, Sum, TYPE_ARP, TYPE_IPV4, TYPE_IPV6, TYPE_QINQ, TYPE_VLAN, be16,
};
use super::{Ip, deliver::Datagram};
use crate::time::Instant;
use bytes::Bytes;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;

/// A frame that is being received.
pub(super) struct Arrival<'a> {
    pub now: Instant,
    pub table: &'a Table,
    pub dev: &'a Dev,
    pub meta: FrameMeta,
    /// To how many the frame was sent.
    pub cast: Cast,
    pub from: Mac,
    pub upper: &'a dyn Upper,
}

impl Ip {
    /// Takes a frame that came by the device at this place in `Setup::devices`.
    pub fn receive(
        &self,
        now: Instant,
        device: usize,
        meta: &FrameMeta,
        frame: Bytes,
        upper: &dyn Upper,
    ) {
        self.tick(now);
        let table = self.table();
        let Some(dev) = table.devices.get(device).filter(|d| d.is_up()) else {
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
        };
        match be16(&frame, 12) {
            TYPE_IPV4 => self.receive_v4(&at, frame.slice(ETHERNET..)),
            TYPE_IPV6 => self.receive_v6(&at, frame.slice(ETHERNET..)),
            TYPE_ARP => self.receive_arp(&at, &frame[ETHERNET..]),
            kind => {
                if matches!(kind, TYPE_VLAN | TYPE_QINQ) {
                    count(&counters.rx_vlan);
                }
                count(&counters.rx_dropped);
            }
        }
    }

    fn receive_v4(&self, at: &Arrival<'_>, mut packet: Bytes) {
        self.snmp.count(Mib::IpInReceives);
        let Ok(p) = Ipv4Packet::new_checked(&packet[..]) else {
            self.snmp.count(Mib::IpInHdrErrors);
            return;
        };
        let header = usize::from(p.header_len());
        if p.version() != 4 {
            self.snmp.count(Mib::IpInHdrErrors);
            return;
        }
        if !Sum::default().add(&packet[..header]).is_right() {
            self.snmp.count(Mib::IpExtInCsumErrors);
            self.snmp.count(Mib::IpInHdrErrors);
            return;
        }
        let (from, to) = (p.src_addr(), p.dst_addr());
        let is_fragment = p.more_frags() || p.frag_offset() != 0;
        let tos = p.dscp() << 2 | p.ecn();
        let (ttl, protocol) = (p.hop_limit(), p.next_header().into());
        packet.truncate(usize::from(p.total_len()));
        let Some(cast) = self.admits_v4(at, from, to) else {
            self.snmp.count(Mib::IpInAddrErrors);
            return;
        };
        let d = Datagram {
            from: IpAddr::V4(from),
            to: IpAddr::V4(to),
            protocol,
            ttl,
            tos,
            flow: 0,
            cast,
            header,
            is_summed: at.meta.is_summed(),
            packet,
        };
        if is_fragment {
            self.snmp.count(Mib::IpReasmReqds);
            self.snmp.count(Mib::IpReasmFails);
            return;
        }
        self.deliver(at, d);
    }

    /// To how many a packet was sent, if it is for this host and its addresses can be.
    fn admits_v4(&self, at: &Arrival<'_>, from: Ipv4Addr, to: Ipv4Addr) -> Option<Cast> {
        let source = IpAddr::V4(from);
        let to_all = to.is_multicast() || to.is_broadcast();
        let martian = from.is_multicast()
            || from.is_loopback()
            || from.octets()[0] >= 240
            || from.is_unspecified() && !to_all
            || from.octets()[0] == 0 && !from.is_unspecified()
            || at.table.is_local(source)
            || at.table.is_broadcast(source);
        if martian || to.is_loopback() || to.is_unspecified() {
            return None;
        }
        self.admits(at, IpAddr::V4(to))
    }

    fn admits(&self, at: &Arrival<'_>, to: IpAddr) -> Option<Cast> {
        match at.table.cast(to) {
            // A packet for one host in a frame for all is not answered (RFC 1122 3.3.6).
            Cast::Unicast => {
                (at.cast == Cast::Unicast && at.table.is_local(to)).then_some(Cast::Unicast)
            }
            Cast::Broadcast => Some(Cast::Broadcast),
            Cast::Multicast => at.dev.link.groups.lock().has(to).then_some(Cast::Multicast),
        }
    }

    fn receive_v6(&self, at: &Arrival<'_>, mut packet: Bytes) {
        self.snmp.count(Mib::Ip6InReceives);
        let Ok(p) = Ipv6Packet::new_checked(&packet[..]) else {
            self.snmp.count(Mib::Ip6InTruncatedPkts);
            return;
        };
        if p.version() != 6 {
            self.snmp.count(Mib::Ip6InHdrErrors);
            return;
        }
        let (from, to) = (p.src_addr(), p.dst_addr());
        let (tos, flow) = (p.traffic_class(), p.flow_label());
        let (ttl, next): (u8, u8) = (p.hop_limit(), p.next_header().into());
        packet.truncate(p.total_len());
        let Some(cast) = self.admits_v6(at, from, to) else {
            self.snmp.count(Mib::Ip6InAddrErrors);
            return;
        };
        let d = Datagram {
            from: IpAddr::V6(from),
            to: IpAddr::V6(to),
            protocol: next,
            ttl,
            tos,
            flow,
            cast,
            header: 40,
            is_summed: at.meta.is_summed(),
            packet,
        };
        self.deliver(at, d);
    }

    fn admits_v6(&self, at: &Arrival<'_>, from: Ipv6Addr, to: Ipv6Addr) -> Option<Cast> {
        let martian = from.is_multicast()
            || from.is_loopback()
            || from.to_ipv4_mapped().is_some()
            || from.is_unspecified() && !to.is_multicast()
            || at.table.is_local(IpAddr::V6(from));
        let nowhere = to.is_loopback()
            || to.is_unspecified()
            || to.to_ipv4_mapped().is_some()
            || to.is_multicast() && to.octets()[1] & 15 < 2;
        if martian || nowhere {
            return None;
        }
        self.admits(at, IpAddr::V6(to))
    }
}
