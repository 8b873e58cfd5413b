//! What is told of a change, and to whom (rtnetlink's groups).

use super::device::{Device, Kind};
use super::table::{Address, LinkInfo};
use crate::interface::Interface;
use crate::ns::NetNamespace;
use crate::route::Route;
use netstack::ip::NeighbourInfo;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

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
    /// Of nf_tables' rules: the message.
    Rules(Vec<u8>),
}

/// Who may be told of changes: a socket of netlink.
pub(crate) trait Listener: Send + Sync {
    /// Whether it asked for news of this kind.
    fn wants(&self, news: &News) -> bool;
    /// The message about it, which is the same for all.
    fn encode(&self, ns: &NetNamespace, news: &News) -> Vec<u8>;
    /// Takes that message.
    fn hear(&self, news: &News, message: Vec<u8>);
}

/// Those of a namespace.
#[derive(Default)]
pub(crate) struct Listeners {
    count: AtomicUsize,
    all: Mutex<Vec<Weak<dyn Listener>>>,
}

impl Listeners {
    /// It may ask for news from now on.
    pub fn add(&self, new: Arc<dyn Listener>) {
        let mut all = self.all.lock();
        let is_it = |l: &Weak<dyn Listener>| std::ptr::addr_eq(l.as_ptr(), Arc::as_ptr(&new));
        all.retain(|l| l.strong_count() > 0 && !is_it(l));
        all.push(Arc::downgrade(&new));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Whether there may be somebody.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn tell(&self, ns: &NetNamespace, news: &News) {
        if !self.any() {
            return;
        }
        let all: Vec<_> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        let wants = |l: &&Arc<dyn Listener>| l.wants(news);
        let mut wanted = all.iter().filter(wants).peekable();
        let Some(first) = wanted.peek() else { return };
        let message = first.encode(ns, news);
        for l in wanted {
            l.hear(news, message.clone());
        }
    }
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
