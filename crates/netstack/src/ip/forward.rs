//! Packets for others: from one device to another, where the setup says so (RFC 1812 5.2).
//!
//! # What holds
//!
//! - No packet of somebody else's leaves by a device that is guarded
//!   ([`Forwards::guarded`](crate::setup::Forwards)), but one that rules have made this host's own.
//! - Each step costs a packet one of its hops: what goes round ends.

use super::Ip;
use super::deliver::Datagram;
use super::device::Dev;
use super::errors::Cause;
use super::extension::{self, V4Options};
use super::receive::Arrival;
use super::types::{Cast, FrameMeta, NoRoute, Sent};
use super::wire::{Head, be16, is_link_local};
use crate::counters::Mib;
use crate::setup::ReversePath;
use std::net::IpAddr;
use std::sync::Arc;

const DONT_FRAGMENT: u16 = 0x4000;

impl Ip {
    /// Whether a packet that is not for this host is to be taken on.
    pub(super) fn takes_on(&self, at: &Arrival<'_>, from: IpAddr, to: IpAddr) -> bool {
        let f = &at.table.forwards;
        let on = if to.is_ipv4() {
            f.v4 && !at.dev.setup.conf.keeps
        } else {
            f.v6
        };
        let is_plain = |ip: IpAddr| {
            !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !is_link_local(ip)
        };
        on && at.cast == Cast::Unicast
            && is_plain(from)
            && is_plain(to)
            && at.table.cast(to) == Cast::Unicast
            && at.table.cast(from) == Cast::Unicast
            && !at.table.is_local(from)
            && !at.table.is_local(to)
    }

    /// Whether a packet's source is where the device that it came by does not lead
    /// (`fib_validate_source`). What passes inside has been looked at when it was sent.
    pub(super) fn is_from_elsewhere(&self, at: &Arrival<'_>, from: IpAddr) -> bool {
        let asks = at.dev.setup.conf.reverse_path;
        if !from.is_ipv4()
            || asks == ReversePath::Off
            || at.dev.is_loopback()
            || from.is_unspecified()
        {
            return false;
        }
        let Ok(way) = at.table.way(from, None, None) else {
            return true;
        };
        asks == ReversePath::Strict && way.device != at.dev.place
    }

    /// Sends a packet on.
    pub(super) fn forward(&self, at: &Arrival<'_>, d: &Datagram) {
        let v4 = d.is_v4();
        let discard = || {
            self.snmp
                .count_by(v4, Mib::IpOutDiscards, Mib::Ip6OutDiscards)
        };
        if v4
            && !matches!(
                extension::v4_options(&d.packet[..d.header]),
                V4Options::Fine
            )
        {
            return discard();
        }
        if d.ttl <= 1 {
            self.snmp
                .count_by(v4, Mib::IpInHdrErrors, Mib::Ip6InHdrErrors);
            return self.refuse(at, d, Cause::Hops);
        }
        let path = match self.path(d.to, None, None) {
            Ok(path) => path,
            Err(NoRoute::Blackhole) => return discard(),
            Err(NoRoute::Prohibited) => return self.refuse(at, d, Cause::Prohibited),
            Err(_) => return self.refuse(at, d, Cause::NoRoute),
        };
        let dev = at.table.by_index(path.index).filter(|dev| dev.is_up());
        // What rules let leave by a guarded one is looked at there.
        let ruled = self.rules.is_on();
        let may = |dev: &&Arc<Dev>| ruled || !at.table.is_guarded(dev.index);
        let Some(dev) = dev.filter(may) else {
            return self.refuse(at, d, Cause::Prohibited);
        };
        let mtu = path.mtu as usize;
        let piece = match at.meta.gso_kind() {
            FrameMeta::GSO_NONE => d.packet.len(),
            _ => usize::from(at.meta.hdr_len).saturating_sub(14) + usize::from(at.meta.gso_size),
        };
        if piece > mtu {
            let whole = v4 && be16(&d.packet, 6) & DONT_FRAGMENT == 0;
            // A sender that leaves it to others to cut is not told; nobody here does.
            if whole {
                return self.snmp.count(Mib::IpFragFails);
            }
            return self.refuse(at, d, Cause::TooBig(path.mtu));
        }
        let mut head = Head::new();
        let mut header = [0; 60];
        let header = &mut header[..d.header.min(60)];
        header.copy_from_slice(&d.packet[..header.len()]);
        if v4 {
            header[8] -= 1;
            // One less in the upper byte of a word is one more in the sum (RFC 1624).
            let sum = u32::from(be16(header, 10)) + 0x100;
            let sum = (sum & 0xffff) + (sum >> 16);
            header[10..12].copy_from_slice(&(sum as u16).to_be_bytes());
        } else {
            header[7] -= 1;
        }
        if ruled {
            let b = [header, &d.packet[header.len()..]].concat();
            if self.forward_by_rules(at, d, (&path, dev), b) != Sent::Yes {
                discard();
            }
            return;
        }
        head.push(header);
        let rest = &d.packet[header.len()..];
        let sent = self.output(at.now, at.table, dev, &path, &at.meta, &mut head, &[rest]);
        if sent != Ok(Sent::Yes) {
            discard();
        }
    }
}
