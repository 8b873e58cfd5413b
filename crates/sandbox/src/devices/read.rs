//! What a namespace has: rtnetlink's words as a [`Setup`], and as what is to be put back.

use super::kept::{Kept, KeptDevice};
use super::namespace::Namespace;
use super::rtnetlink::{Dump, Rtnetlink};
use crate::{Error, step};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteNextHop, RouteType,
    RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Rtnl};
use netstack::setup::{Address, Device, Neighbour, Route, RouteKind, Setup};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What there is in a namespace.
pub struct Seen {
    pub setup: Setup,
    pub kept: Kept,
    /// What the sandbox will not have of it, a sentence each.
    pub warnings: Vec<String>,
}

/// Whether there is a device beside the loopback.
pub fn is_alone(host: &mut Rtnetlink) -> std::result::Result<bool, Error> {
    let ask = Rtnl::GetLink(LinkMessage::default());
    let links = step("read the network's devices", host.list(&ask))?.all;
    Ok(links.iter().all(|m| match m {
        Rtnl::NewLink(l) => l.header.flags.contains(LinkFlags::Loopback),
        _ => true,
    }))
}

/// Reads all that concerns Ethernet devices which are up or have addresses.
pub fn see(host: &mut Rtnetlink) -> std::result::Result<Seen, Error> {
    let mut warnings = Vec::new();
    let mut list = |what: &str, ask: Rtnl| {
        let Dump { all, unknown } = step(&format!("read the network's {what}"), host.list(&ask))?;
        if unknown > 0 {
            warnings.push(format!(
                "{unknown} of the network's {what} are not understood, and left out"
            ));
        }
        Ok::<_, Error>(all)
    };
    let links = list("devices", Rtnl::GetLink(LinkMessage::default()))?;
    let addresses = list("addresses", Rtnl::GetAddress(AddressMessage::default()))?;
    let routes = list("routes", Rtnl::GetRoute(RouteMessage::default()))?;
    let ask = Rtnl::GetNeighbour(NeighbourMessage::default());
    let neighbours = list("neighbours", ask)?;

    let addresses = addresses.into_iter().filter_map(|m| match m {
        Rtnl::NewAddress(a) => Some(a),
        _ => None,
    });
    let addresses: Vec<AddressMessage> = addresses.collect();
    let mut devices = Vec::new();
    for m in &links {
        if let Rtnl::NewLink(l) = m {
            devices.extend(device(l, &addresses, &mut warnings));
        }
    }
    let is_ours = |index: u32| devices.iter().any(|d| d.index == index);
    let mut kept = Kept {
        namespace: Namespace::here()?,
        devices: devices.iter().map(KeptDevice::of).collect(),
        ..Kept::default()
    };
    let mut setup = Setup::default();
    for m in addresses.into_iter().filter(|a| is_ours(a.header.index)) {
        kept.addresses.push(Rtnl::NewAddress(m).into());
    }
    let mut others = 0;
    for m in routes {
        let Rtnl::NewRoute(r) = m else { continue };
        setup.routes.extend(route(&r, &is_ours, &mut warnings));
        if is_worth_keeping(&r, &is_ours) {
            others += usize::from(table(&r) != MAIN);
            kept.routes.push(Rtnl::NewRoute(r).into());
        }
    }
    if others > 0 {
        warnings.push(format!(
            "{others} routes of other tables than the main one are not used"
        ));
    }
    for m in neighbours {
        let Rtnl::NewNeighbour(n) = m else { continue };
        if n.header.state == NeighbourState::Permanent && is_ours(n.header.ifindex) {
            setup.neighbours.extend(neighbour(&n));
            kept.neighbours.push(Rtnl::NewNeighbour(n).into());
        }
    }
    let nowhere = setup.routes.iter().filter(|r| r.kind != RouteKind::Unicast);
    kept.nowhere = nowhere.cloned().collect();
    setup.devices = devices;
    Ok(Seen {
        setup,
        kept,
        warnings,
    })
}

/// A device that is taken over, with its addresses.
fn device(
    link: &LinkMessage,
    addresses: &[AddressMessage],
    warnings: &mut Vec<String>,
) -> Option<Device> {
    let (index, flags) = (link.header.index, link.header.flags);
    let mut d = Device {
        name: String::new(),
        index,
        mac: [0; 6],
        flags: flags.bits(),
        mtu: 0,
        gso_max: 0,
        conf: Default::default(),
        addresses: Vec::new(),
    };
    let mut mac = None;
    let mut is_port = false;
    for a in &link.attributes {
        match a {
            LinkAttribute::IfName(n) => d.name.clone_from(n),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::Mtu(n) => d.mtu = *n,
            LinkAttribute::GsoMaxSize(n) => d.gso_max = *n,
            // Frames of a bridge's ports come in by the bridge.
            LinkAttribute::Controller(n) => is_port = *n != 0,
            _ => {}
        }
    }
    let own = addresses.iter().filter(|a| a.header.index == index);
    d.addresses = own.filter_map(address).collect();
    let is_used = flags.contains(LinkFlags::Up) || !d.addresses.is_empty();
    if flags.contains(LinkFlags::Loopback) || is_port || !is_used {
        return None;
    }
    let is_ethernet = link.header.link_layer_type == LinkLayerType::Ether;
    let Some(mac) = mac.filter(|_| is_ethernet) else {
        warnings.push(format!(
            "the device {} is no Ethernet device: it is not used",
            d.name
        ));
        return None;
    };
    d.mac = mac;
    Some(d)
}

pub fn address(m: &AddressMessage) -> Option<Address> {
    let (mut local, mut there, mut broadcast) = (None, None, None);
    for a in &m.attributes {
        match a {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => there = Some(*ip),
            AddressAttribute::Broadcast(ip) => broadcast = Some(IpAddr::V4(*ip)),
            AddressAttribute::Flags(f) if f.contains(AddressFlags::Dadfailed) => return None,
            _ => {}
        }
    }
    let ip = local.or(there)?;
    // Where they differ, the prefix is the other side's; its route says so, too.
    let is_peer = there.is_some_and(|t| t != ip);
    Some(Address {
        ip,
        prefix: match (is_peer, ip) {
            (false, _) => m.header.prefix_len,
            (true, IpAddr::V4(_)) => 32,
            (true, IpAddr::V6(_)) => 128,
        },
        broadcast,
        scope: m.header.scope.into(),
    })
}

const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;
/// Kept by the host itself, by the addresses.
const LOCAL: u32 = 255;

fn table(m: &RouteMessage) -> u32 {
    let of = |a: &RouteAttribute| match a {
        RouteAttribute::Table(t) => Some(*t),
        _ => None,
    };
    let long = m.attributes.iter().find_map(of);
    long.unwrap_or_else(|| m.header.table.into())
}

/// The way of a route or of one of its next hops: device and gateway.
fn hop(attributes: &[RouteAttribute]) -> (Option<u32>, Option<IpAddr>) {
    let (mut device, mut gateway) = (None, None);
    for a in attributes {
        match a {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(g) => gateway = ip(g),
            RouteAttribute::Via(RouteVia::Inet(g)) => gateway = Some(IpAddr::V4(*g)),
            RouteAttribute::Via(RouteVia::Inet6(g)) => gateway = Some(IpAddr::V6(*g)),
            _ => {}
        }
    }
    (device, gateway)
}

fn hops(m: &RouteMessage) -> &[RouteNextHop] {
    fn of(a: &RouteAttribute) -> Option<&[RouteNextHop]> {
        match a {
            RouteAttribute::MultiPath(all) => Some(all),
            _ => None,
        }
    }
    m.attributes.iter().find_map(of).unwrap_or_default()
}

fn ip(a: &RouteAddress) -> Option<IpAddr> {
    match a {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

fn unspecified(family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
        AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

fn route(
    m: &RouteMessage,
    is_ours: &dyn Fn(u32) -> bool,
    warnings: &mut Vec<String>,
) -> Option<Route> {
    let kind = match m.header.kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::BlackHole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        _ => return None,
    };
    let mut r = Route {
        network: unspecified(m.header.address_family)?,
        prefix: m.header.destination_prefix_length,
        gateway: None,
        device: 0,
        source: None,
        metric: 0,
        mtu: 0,
        kind,
    };
    let mut is_tunnel = false;
    for a in &m.attributes {
        match a {
            RouteAttribute::Destination(d) => r.network = ip(d)?,
            RouteAttribute::PrefSource(s) => r.source = ip(s),
            RouteAttribute::Priority(n) => r.metric = *n,
            RouteAttribute::EncapType(_) => is_tunnel = true,
            RouteAttribute::Metrics(all) => {
                let mtu = all.iter().find_map(|m| match m {
                    RouteMetric::Mtu(n) => Some(*n),
                    _ => None,
                });
                r.mtu = mtu.unwrap_or(0);
            }
            _ => {}
        }
    }
    // What an IPv6 table without a default route ends in is no route of anybody's.
    let is_end = kind != RouteKind::Unicast && r.metric == u32::MAX;
    if table(m) != MAIN || is_end {
        return None;
    }
    if kind != RouteKind::Unicast {
        return Some(r);
    }
    let (device, gateway) = match hops(m) {
        [] => hop(&m.attributes),
        [first, ..] => {
            warnings.push(format!(
                "the route to {}/{} has several ways: only the first one is used",
                r.network, r.prefix
            ));
            (Some(first.interface_index), hop(&first.attributes).1)
        }
    };
    r.gateway = gateway;
    r.device = device.filter(|index| is_ours(*index))?;
    if is_tunnel || m.header.tos != 0 {
        warnings.push(format!(
            "the route to {}/{} is for some packets, or changes them: it is not used",
            r.network, r.prefix
        ));
        return None;
    }
    Some(r)
}

/// Whether a route goes with its device's addresses, and does not come back with them.
pub fn is_worth_keeping(m: &RouteMessage, is_ours: &dyn Fn(u32) -> bool) -> bool {
    m.header.kind == RouteType::Unicast && table(m) != LOCAL && goes_by(m, is_ours)
}

/// Whether a route leads to such a device.
pub fn goes_by(m: &RouteMessage, device: &dyn Fn(u32) -> bool) -> bool {
    hop(&m.attributes).0.is_some_and(device) || hops(m).iter().any(|h| device(h.interface_index))
}

pub fn neighbour(m: &NeighbourMessage) -> Option<Neighbour> {
    let (mut ip, mut mac) = (None, None);
    for a in &m.attributes {
        match a {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => ip = Some((*a).into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => ip = Some((*a).into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    Some(Neighbour {
        device: m.header.ifindex,
        ip: ip?,
        mac: mac?,
    })
}
