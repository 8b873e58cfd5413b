//! What a namespace had before its devices were taken over; taking it away, and putting it back.

use super::namespace::Namespace;
use super::read::{self, goes_by, is_worth_keeping};
use super::rtnetlink::Rtnetlink;
use crate::{Error, step};
use abi::errno::{EADDRNOTAVAIL, EBADMSG, EEXIST, ENOENT, ESRCH};
use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_REPLACE, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Rtnl};
use netstack::setup::{Device, Route};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The words by which the host tells of addresses, routes and neighbours are those that it takes
/// them by; so they are kept as they are, with all that a [`Setup`](super::Setup) leaves out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    pub(super) namespace: Namespace,
    pub(super) devices: Vec<KeptDevice>,
    pub(super) addresses: Vec<Message>,
    /// Of all tables but the local one.
    pub(super) routes: Vec<Message>,
    pub(super) neighbours: Vec<Message>,
    /// Routes that lead nowhere, and stay: those that the sandbox was told of.
    #[serde(default)]
    pub(super) nowhere: Vec<Route>,
    /// Whether the sandbox has a socket to Docker's name server.
    #[serde(default)]
    pub(super) has_names: bool,
    /// What was taken away later, and the sandbox has not yet said that it has it: it is put back
    /// before anybody looks again.
    #[serde(default)]
    pub(super) unanswered: Option<Box<Kept>>,
}

/// A device, as it can be found again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct KeptDevice {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mac: [u8; 6],
    /// Whether it spoke IPv6; `None` where that cannot be told.
    pub(super) ipv6: Option<bool>,
    /// 0 where nobody has written it down.
    #[serde(default)]
    pub(super) mtu: u32,
}

impl KeptDevice {
    pub(super) fn of(d: &Device) -> KeptDevice {
        KeptDevice {
            index: d.index,
            name: d.name.clone(),
            mac: d.mac,
            ipv6: has_ipv6(&d.name),
            mtu: d.mtu,
        }
    }
}

/// A message of rtnetlink.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Message(Vec<u8>);

impl From<Rtnl> for Message {
    fn from(m: Rtnl) -> Message {
        let payload = NetlinkPayload::InnerMessage(m);
        let mut m = NetlinkMessage::new(NetlinkHeader::default(), payload);
        m.finalize();
        let mut bytes = vec![0; m.buffer_len()];
        m.serialize(&mut bytes);
        Message(bytes)
    }
}

impl Message {
    pub(super) fn read(&self) -> abi::Result<Rtnl> {
        match NetlinkMessage::deserialize(&self.0).map(|m| m.payload) {
            Ok(NetlinkPayload::InnerMessage(m)) => Ok(m),
            _ => Err(EBADMSG),
        }
    }

    /// What it is about.
    pub(super) fn key(&self) -> Option<Key> {
        Some(match self.read().ok()? {
            Rtnl::NewAddress(a) => Key::of_address(&a)?,
            Rtnl::NewNeighbour(n) => {
                let of = read::neighbour(&n)?;
                Key::Neighbour(of.device, of.ip)
            }
            Rtnl::NewRoute(r) => Key::of_route(r),
            _ => return None,
        })
    }
}

/// By what two words about the same thing are known.
#[derive(PartialEq)]
pub(super) enum Key {
    Address(u32, IpAddr, u8),
    Neighbour(u32, IpAddr),
    Route(Message),
}

impl Key {
    fn of_address(a: &AddressMessage) -> Option<Key> {
        let of = read::address(a)?;
        Some(Key::Address(a.header.index, of.ip, of.prefix))
    }

    fn of_route(r: RouteMessage) -> Key {
        Key::Route(Rtnl::NewRoute(old_route(r)).into())
    }
}

/// Where a device's IPv6 is turned off, in the network namespace of the thread that opens it.
fn switch(device: &str) -> String {
    format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6")
}

fn has_ipv6(device: &str) -> Option<bool> {
    let text = std::fs::read_to_string(switch(device)).ok()?;
    Some(text.trim() == "0")
}

impl Kept {
    /// Of the namespace where this thread is, of whose devices none were taken over yet.
    pub fn nothing() -> Result<Kept, Error> {
        Ok(Kept {
            namespace: Namespace::here()?,
            ..Kept::default()
        })
    }

    /// The namespace that it is of.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Takes away what the host would answer for: what is written down here, and no more.
    pub(super) fn clear(
        &self,
        host: &mut Rtnetlink,
        warnings: &mut Vec<String>,
    ) -> Result<(), Error> {
        for d in self.devices.iter().filter(|d| d.ipv6 != Some(false)) {
            let Err(e) = std::fs::write(switch(&d.name), "1") else {
                continue;
            };
            let is_missing = e.kind() == std::io::ErrorKind::NotFound;
            // A host without IPv6 answers none.
            if host.change(without_own_addresses(d.index), 0).is_ok() && !is_missing {
                warnings.push(format!(
                    "the host's IPv6 stays on for the device {} ({e}): it may answer to router advertisements",
                    d.name
                ));
            }
        }
        self.clear_addresses(host)?;
        self.clear_routes(host)
    }

    fn clear_addresses(&self, host: &mut Rtnetlink) -> Result<(), Error> {
        let what = "take the devices' addresses from the host";
        let keys: Vec<Option<Key>> = self.addresses.iter().map(Message::key).collect();
        // What is secondary to an address may take its place, or go with it.
        const ROUNDS: u32 = 16;
        for _ in 0..ROUNDS {
            let ask = Rtnl::GetAddress(AddressMessage::default());
            let left = step(what, host.list(&ask))?.all;
            let left = left.into_iter().filter_map(|m| match m {
                Rtnl::NewAddress(a) if keys.contains(&Key::of_address(&a)) => Some(a),
                _ => None,
            });
            let left: Vec<AddressMessage> = left.collect();
            if left.is_empty() {
                return Ok(());
            }
            for a in left {
                match host.change(Rtnl::DelAddress(a), 0) {
                    Err(EADDRNOTAVAIL) => {}
                    r => step(what, r)?,
                }
            }
        }
        Err(Error::step(what, EEXIST))
    }

    /// Routes that have not gone with their device's addresses: those were not new.
    fn clear_routes(&self, host: &mut Rtnetlink) -> Result<(), Error> {
        let what = "take the devices' routes from the host";
        let keys: Vec<Option<Key>> = self.routes.iter().map(Message::key).collect();
        let is_ours = |index| self.devices.iter().any(|d| d.index == index);
        let ask = Rtnl::GetRoute(RouteMessage::default());
        for m in step(what, host.list(&ask))?.all {
            if let Rtnl::NewRoute(r) = m
                && is_worth_keeping(&r, &is_ours)
                && keys.contains(&Some(Key::of_route(r.clone())))
            {
                match host.change(Rtnl::DelRoute(old_route(r)), 0) {
                    Err(ESRCH) => {}
                    r => step(what, r)?,
                }
            }
        }
        Ok(())
    }

    /// Gives it all back to the host, in the network namespace of the calling thread. A device that
    /// is gone is left out, and what is there is left as it is.
    ///
    /// # Errors
    ///
    /// It is another namespace, or the first thing that could not be put back; all else was.
    pub fn put_back(&self) -> Result<(), Error> {
        let whole = std::iter::once(self).chain(self.unanswered.as_deref());
        let mut first = Ok(());
        for k in whole {
            let refused = k.put_back_own().unwrap_or_else(Some);
            first = first.and(refused.map_or(Ok(()), Err));
        }
        first
    }

    /// Without what is not answered for. What the host refuses first, if anything; an error where
    /// nothing was tried.
    pub(super) fn put_back_own(&self) -> Result<Option<Error>, Error> {
        let what = "give the devices back to the host";
        if Namespace::here()? != self.namespace {
            return Err(Error::step(what, ENOENT));
        }
        let mut host = step(what, Rtnetlink::open())?;
        let there = self.still_there(&mut host)?;
        for d in &there {
            if d.ipv6 == Some(true) {
                let _ = std::fs::write(switch(&d.name), "0");
            }
        }
        let mut first = Ok(());
        let mut put = |m: Rtnl| match host.change(m, NLM_F_CREATE | NLM_F_REPLACE) {
            Ok(()) | Err(EEXIST) => {}
            Err(e) => first = first.and(Err(e)),
        };
        let is_there = |index| there.iter().any(|d| d.index == index);
        for m in &self.addresses {
            if let Ok(Rtnl::NewAddress(a)) = m.read()
                && is_there(a.header.index)
            {
                put(Rtnl::NewAddress(old_address(a)));
            }
        }
        for r in ordered(self.routes.iter().filter_map(|m| m.read().ok())) {
            if goes_by(&r, &is_there) {
                put(Rtnl::NewRoute(r));
            }
        }
        for m in &self.neighbours {
            if let Ok(Rtnl::NewNeighbour(n)) = m.read()
                && is_there(n.header.ifindex)
            {
                put(Rtnl::NewNeighbour(n));
            }
        }
        Ok(step(what, first).err())
    }

    /// The devices that are still there: by index and hardware address, with the name of today.
    pub(super) fn still_there(&self, host: &mut Rtnetlink) -> Result<Vec<KeptDevice>, Error> {
        let ask = Rtnl::GetLink(LinkMessage::default());
        let links = step("read the network's devices", host.list(&ask))?.all;
        let found = links.into_iter().filter_map(|m| {
            let Rtnl::NewLink(l) = m else { return None };
            let old = self.devices.iter().find(|d| d.index == l.header.index)?;
            let (mut is_same, mut name) = (false, old.name.clone());
            for a in l.attributes {
                match a {
                    LinkAttribute::Address(mac) => is_same = mac == old.mac,
                    LinkAttribute::IfName(n) => name = n,
                    _ => {}
                }
            }
            is_same.then(|| KeptDevice {
                name,
                ..old.clone()
            })
        });
        Ok(found.collect())
    }
}

/// The host makes no IPv6 address for a device by itself.
fn without_own_addresses(device: u32) -> Rtnl {
    let mut link = LinkMessage::default();
    link.header.index = device;
    let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    let spec = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]);
    link.attributes.push(spec);
    Rtnl::SetLink(link)
}

/// An address that was there before: nobody else has it.
fn old_address(mut a: AddressMessage) -> AddressMessage {
    for attribute in &mut a.attributes {
        if let AddressAttribute::Flags(f) = attribute {
            f.remove(AddressFlags::Tentative | AddressFlags::Dadfailed);
            if a.header.family == AddressFamily::Inet6 {
                f.insert(AddressFlags::Nodad);
            }
        }
    }
    a
}

/// Routes in the order in which they can be made: each gateway is reached by an earlier one.
fn ordered(all: impl Iterator<Item = Rtnl>) -> Vec<RouteMessage> {
    let mut routes: Vec<RouteMessage> = all
        .filter_map(|m| match m {
            // Those of router advertisements come by themselves.
            Rtnl::NewRoute(r) if r.header.protocol != RouteProtocol::Ra => Some(r),
            _ => None,
        })
        .map(old_route)
        .collect();
    let is_far = |a: &RouteAttribute| {
        matches!(
            a,
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) | RouteAttribute::MultiPath(_)
        )
    };
    routes.sort_by_key(|r| r.attributes.iter().any(is_far));
    routes
}

/// Without what only the host says of a route.
fn old_route(mut r: RouteMessage) -> RouteMessage {
    r.header.flags &= RouteFlags::Onlink | RouteFlags::Pervasive;
    r.attributes
        .retain(|a| !matches!(a, RouteAttribute::CacheInfo(_)));
    for a in &mut r.attributes {
        if let RouteAttribute::MultiPath(hops) = a {
            for h in hops {
                h.flags &= RouteNextHopFlags::Onlink | RouteNextHopFlags::Pervasive;
            }
        }
    }
    r
}
