//! A packet to a frame for its next hop.

use super::Ip;
use super::counters::count;
use super::device::Dev;
use super::icmp::quoted_packet;
use super::neighbour::{Ask, Hop, QueuedPacket};
use super::send::{PARTS, total};
use super::table::Table;
use super::types::{
    Cast, ErrorKind, FrameMeta, IcmpError, Info, Origin, Path, SendError, Sent, Severity, Upper,
};
use super::wire::{BROADCAST, Head, ICMP, ICMPV6, Mac, TYPE_IPV4, TYPE_IPV6, group_mac};
use crate::counters::Mib;
use crate::time::Instant;
use abi::errno;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

const IFF_NOARP: u32 = 0x80;

impl Ip {
    /// Sends a packet to its next hop, or lets it wait for it. `head` holds the headers.
    pub(super) fn output(
        &self,
        now: Instant,
        table: &Table,
        dev: &Dev,
        path: &Path,
        meta: &FrameMeta,
        head: &mut Head,
        payload: &[&[u8]],
    ) -> Result<Sent, SendError> {
        let v4 = path.next_hop.is_ipv4();
        let mac = match path.cast {
            Cast::Multicast => group_mac(path.next_hop),
            Cast::Broadcast => BROADCAST,
            // Nobody is asked on a device without addresses of its own.
            Cast::Unicast if dev.flags & IFF_NOARP != 0 => [0; 6],
            Cast::Unicast => {
                let waiting = || QueuedPacket {
                    meta: *meta,
                    packet: [head.packet(), &payload.concat()].concat(),
                };
                let mut neighbours = dev.link.neighbours.lock();
                let hop = neighbours.resolve(now, path.next_hop, path.gateway, waiting);
                let armed = neighbours.armed();
                drop(neighbours);
                dev.link.due.at_latest(armed);
                match hop {
                    Hop::Mac(mac) => mac,
                    Hop::Waits(ask) => {
                        if ask == Ask::All {
                            self.ask(table, dev, path.next_hop, ask);
                        }
                        return Ok(Sent::Yes);
                    }
                    Hop::Refused => {
                        let (v4_mib, v6_mib) = (Mib::IpOutDiscards, Mib::Ip6OutDiscards);
                        self.snmp.count_by(v4, v4_mib, v6_mib);
                        return Err(SendError::NoBuffers);
                    }
                }
            }
        };
        let ethertype = if v4 { TYPE_IPV4 } else { TYPE_IPV6 };
        head.ethernet(mac, dev.mac, ethertype);
        let sent = self.transmit(dev, meta, head, payload);
        if sent == Sent::Yes {
            self.count_sent(v4, head.packet().len() + total(payload));
        }
        Ok(sent)
    }

    /// Gives a frame to its device.
    pub(super) fn transmit(
        &self,
        dev: &Dev,
        meta: &FrameMeta,
        head: &Head,
        payload: &[&[u8]],
    ) -> Sent {
        let mut parts = [&[][..]; PARTS];
        parts[0] = head.bytes();
        let mut n = 1;
        for p in payload.iter().filter(|p| !p.is_empty()).take(PARTS - 1) {
            parts[n] = p;
            n += 1;
        }
        let sent = self.link.send(dev.index, meta, &parts[..n]);
        if sent == Sent::Yes {
            let counters = &dev.link.counters;
            count(&counters.tx_packets);
            counters
                .tx_bytes
                .fetch_add(total(&parts[..n]) as u64, Relaxed);
        }
        sent
    }

    /// Sends what has waited for a neighbour.
    pub(super) fn flush(&self, dev: &Dev, mac: Mac, waiting: VecDeque<QueuedPacket>) {
        for w in waiting {
            let v4 = w.packet.first().is_some_and(|b| b >> 4 == 4);
            let mut head = Head::new();
            head.ethernet(mac, dev.mac, if v4 { TYPE_IPV4 } else { TYPE_IPV6 });
            if self.transmit(dev, &w.meta, &head, &[&w.packet]) == Sent::Full {
                count(&dev.link.counters.tx_dropped);
            } else {
                self.count_sent(v4, w.packet.len());
            }
        }
    }

    pub(super) fn count_sent(&self, v4: bool, len: usize) {
        self.snmp
            .count_by(v4, Mib::IpOutRequests, Mib::Ip6OutRequests);
        let octets = if v4 {
            Mib::IpExtOutOctets
        } else {
            Mib::Ip6OutOctets
        };
        self.snmp.add(octets, len as u64);
    }

    /// A neighbour does not answer: the senders of what waited for it are told (as Linux's
    /// `arp_error_report`).
    pub(super) fn unreachable(
        &self,
        now: Instant,
        table: &Table,
        dev: &Dev,
        neighbour: IpAddr,
        waiting: VecDeque<QueuedPacket>,
        upper: &dyn Upper,
    ) {
        let v4 = neighbour.is_ipv4();
        let error = IcmpError {
            kind: ErrorKind::Unreachable,
            errno: errno::EHOSTUNREACH,
            severity: Severity::Soft,
            origin: Origin::Local,
            icmp_type: if v4 { 3 } else { 1 },
            code: if v4 { 1 } else { 3 },
            info: 0,
        };
        for w in waiting {
            count(&dev.link.counters.tx_dropped);
            if let Some(about) = quoted_packet(&w.packet, v4, dev.index)
                && table.is_local(about.pair.local.ip())
            {
                let info = Info {
                    device: dev.index,
                    ttl: 64,
                    tos: 0xc0,
                    protocol: if v4 { ICMP } else { ICMPV6 },
                    ..Info::default()
                };
                let own = about.pair.local.ip();
                upper.icmp_error(now, about, error, own, &w.packet, &info);
            }
        }
    }
}
