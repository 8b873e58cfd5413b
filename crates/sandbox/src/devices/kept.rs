//! What a namespace had before its devices were taken over; taking it away, and putting it back.

use super::namespace::Namespace;
use super::read::goes_by;
use super::rtnetlink::Rtnetlink;
use crate::{Error, step};
use abi::errno::{EADDRNOTAVAIL, EBADMSG, EEXIST, ENOENT};
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
use netstack::setup::Device;
use serde::{Deserialize, Serialize};

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
}

/// A device, as it can be found again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct KeptDevice {
    index: u32,
    name: String,
    mac: [u8; 6],
    /// Whether it spoke IPv6; `None` where that cannot be told.
    ipv6: Option<bool>,
}

impl KeptDevice {
    pub(super) fn of(d: &Device) -> KeptDevice {
        KeptDevice {
            index: d.index,
            name: d.name.clone(),
            mac: d.mac,
            ipv6: has_ipv6(&d.name),
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
    fn read(&self) -> abi::Result<Rtnl> {
        match NetlinkMessage::deserialize(&self.0).map(|m| m.payload) {
            Ok(NetlinkPayload::InnerMessage(m)) => Ok(m),
            _ => Err(EBADMSG),
        }
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
    /// The namespace that it is of.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Takes away what the host would answer for.
    pub(super) fn clear(
        &self,
        host: &mut Rtnetlink,
        warnings: &mut Vec<String>,
    ) -> Result<(), Error> {
        for d in &self.devices {
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
        let what = "take the devices' addresses from the host";
        // What is secondary to an address may take its place, or go with it.
        const ROUNDS: u32 = 16;
        for _ in 0..ROUNDS {
            let ask = Rtnl::GetAddress(AddressMessage::default());
            let left = step(what, host.list(&ask))?.all;
            let left = left.into_iter().filter_map(|m| match m {
                Rtnl::NewAddress(a) if self.has(a.header.index) => Some(a),
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

    fn has(&self, device: u32) -> bool {
        self.devices.iter().any(|d| d.index == device)
    }

    /// Gives it all back to the host, in the network namespace of the calling thread. A device that
    /// is gone is left out, and what is there is left as it is.
    ///
    /// # Errors
    ///
    /// It is another namespace, or the first thing that could not be put back; all else was.
    pub fn put_back(&self) -> Result<(), Error> {
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
        step(what, first)
    }

    /// The devices that are still there: by index and hardware address, with the name of today.
    fn still_there(&self, host: &mut Rtnetlink) -> Result<Vec<KeptDevice>, Error> {
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
