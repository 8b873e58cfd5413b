//! What is told of a change (rtnetlink's groups).

use super::device::{Device, Kind};
use super::table::{Address, LinkInfo};
use crate::interface::Interface;
use crate::ns::NetNamespace;
use crate::route::Route;
use netstack::ip::NeighbourInfo;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A change.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Link(LinkInfo),
    LinkGone(LinkInfo),
    /// Of a device, by its index and name.
    Address(i32, String, Address),
    AddressGone(i32, String, Address),
    Route(Route),
    RouteGone(Route),
    Neighbour(NeighbourInfo),
    NeighbourGone(NeighbourInfo),
}

impl NetNamespace {
    /// Tells those who listen.
    pub(crate) fn tell(self: &Arc<Self>, news: &[News]) {
        for n in news {
            self.listeners.tell(self, n);
        }
    }

    /// Tells of a device as it is now.
    pub(crate) fn tell_link(self: &Arc<Self>, index: i32) {
        let info = {
            let t = self.table.lock();
            t.entries.get(&index).map(|e| e.info(index, self))
        };
        if let Some(info) = info {
            self.tell(&[News::Link(info)]);
        }
    }
}

impl NetNamespace {
    /// The devices, as they are told.
    pub(crate) fn link_infos(self: &Arc<Self>) -> Vec<LinkInfo> {
        let plain = |interface: Interface| LinkInfo {
            kind: None,
            carrier: true,
            linkless: interface.is_loopback(),
            master: None,
            peer: None,
            queue: 1000,
            group: 0,
            started: true,
            interface,
        };
        if let Some(h) = &self.host {
            return h.interfaces.iter().cloned().map(plain).collect();
        }
        let t = self.table.lock();
        let all = t.entries.iter().map(|(i, e)| e.info(*i, self));
        let out = self.way_out.iter().map(|u| plain(u.interface()));
        all.chain(out).collect()
    }

    /// All addresses, with the indices and names of their devices.
    pub(crate) fn all_addresses(&self) -> Vec<(i32, String, Address)> {
        let plain = |i: Interface| {
            let of = |(ip, prefix): &(IpAddr, u8)| {
                let mut a = Address::new(*ip, *prefix);
                if let IpAddr::V4(ip) = ip
                    && !ip.is_loopback()
                    && *prefix < 31
                {
                    let last = ip.to_bits() | (u32::MAX >> prefix);
                    a.broadcast = Some(Ipv4Addr::from_bits(last).into());
                }
                (i.index, i.name.clone(), a)
            };
            i.addresses.iter().map(of).collect::<Vec<_>>()
        };
        if let Some(h) = &self.host {
            return h.interfaces.iter().cloned().flat_map(plain).collect();
        }
        let t = self.table.lock();
        let own = t.entries.iter().flat_map(|(i, e)| {
            let of = |(a, _): &(Address, _)| (*i, e.name.clone(), a.clone());
            e.addresses.iter().map(of)
        });
        let out = self.way_out.iter().flat_map(|u| plain(u.interface()));
        own.chain(out).collect()
    }

    /// The addresses that bridges have seen, with a bridge and its port.
    pub(crate) fn bridge_addresses(&self) -> Vec<((i32, i32), [u8; 6])> {
        let bridges: Vec<(i32, Arc<Device>)> = {
            let t = self.table.lock();
            t.entries
                .iter()
                .map(|(i, e)| (*i, e.device.clone()))
                .collect()
        };
        let of = |(i, d): &(i32, Arc<Device>)| match &d.kind {
            Kind::Bridge(b) => b
                .known()
                .into_iter()
                .map(|(mac, port)| ((*i, port), mac))
                .collect(),
            _ => Vec::new(),
        };
        bridges.iter().flat_map(of).collect()
    }
}
