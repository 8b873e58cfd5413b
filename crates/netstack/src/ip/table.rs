//! Devices, addresses and routes as they are at one moment. A table never changes: another one
//! takes its place.

use super::device::Dev;
use super::types::{Cast, Gateway, NoRoute};
use super::wire::{bits, is_link_local, is_within, mask};
use crate::setup::{Address, Forwards, Route, RouteKind, Setup};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// `RT_SCOPE_LINK`, `RT_SCOPE_HOST`.
const SCOPE_LINK: u8 = 253;

pub(crate) struct Table {
    pub devices: Vec<Arc<Dev>>,
    pub routes: Vec<Route>,
    pub forwards: Forwards,
    v4: Routes,
    v6: Routes,
    /// This host's addresses, sorted, and the places of their devices.
    local: Vec<(IpAddr, usize)>,
    /// The place of the loopback device.
    loopback: Option<usize>,
    /// Sorted.
    broadcasts: Vec<Ipv4Addr>,
}

/// Where a packet goes next.
pub(crate) struct Way {
    pub device: usize,
    pub next_hop: IpAddr,
    pub gateway: Gateway,
    pub cast: Cast,
    pub source: Option<IpAddr>,
    /// The route's largest packet; 0: it says nothing.
    pub mtu: u32,
}

impl Table {
    /// `devices` are those of `setup`, in its order.
    pub(crate) fn new(setup: &Setup, devices: Vec<Arc<Dev>>) -> Table {
        let mut local = Vec::new();
        let mut broadcasts = Vec::new();
        for d in &devices {
            for a in &d.addresses {
                local.push((a.ip, d.place));
                broadcasts.extend(broadcasts_of(a));
            }
        }
        local.sort_unstable();
        local.dedup_by_key(|(ip, _)| *ip);
        broadcasts.sort_unstable();
        broadcasts.dedup();
        Table {
            v4: Routes::new(setup, |ip| ip.is_ipv4()),
            v6: Routes::new(setup, |ip| ip.is_ipv6()),
            routes: setup.routes.clone(),
            loopback: devices.iter().position(|d| d.is_loopback()),
            forwards: setup.forwards.clone(),
            devices,
            local,
            broadcasts,
        }
    }

    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        self.place_of(ip).is_some()
    }

    /// The loopback device, where what passes inside is packets.
    pub(crate) fn loopback(&self) -> Option<&Arc<Dev>> {
        let place = self.loopback?;
        self.devices.get(place).filter(|d| d.is_up())
    }

    /// Whether nothing leaves by a device that is not this host's ([`Forwards::guarded`]).
    pub(crate) fn is_guarded(&self, index: u32) -> bool {
        self.forwards.guarded.contains(&index)
    }

    /// Whether an address is this host's where a packet comes or goes by this device: of another
    /// one's, too (the weak model), but for those of one link and of the loopback device.
    pub(crate) fn is_own(&self, ip: IpAddr, device: &Dev) -> bool {
        if is_link_local(ip) {
            device.has(ip)
        } else if ip.is_loopback() {
            device.is_loopback() || ip.is_ipv4() && device.setup.conf.takes_loopback
        } else {
            self.is_local(ip)
        }
    }

    /// The place of the device that has this address.
    fn place_of(&self, ip: IpAddr) -> Option<usize> {
        match self.local.binary_search_by_key(&ip, |(ip, _)| *ip) {
            Ok(found) => Some(self.local[found].1),
            // The whole network is this host's.
            Err(_) => self.loopback.filter(|_| ip.is_loopback()),
        }
    }

    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(Ipv4Addr::BROADCAST) => true,
            IpAddr::V4(ip) => self.broadcasts.binary_search(&ip).is_ok(),
            IpAddr::V6(_) => false,
        }
    }

    /// To how many a packet goes that has this destination.
    pub(crate) fn cast(&self, ip: IpAddr) -> Cast {
        if ip.is_multicast() {
            Cast::Multicast
        } else if self.is_broadcast(ip) {
            Cast::Broadcast
        } else {
            Cast::Unicast
        }
    }

    pub(crate) fn by_index(&self, index: u32) -> Option<&Arc<Dev>> {
        self.devices.iter().find(|d| d.index == index)
    }

    /// Whether a neighbour with this address can be on the device's link.
    pub(crate) fn is_on_link(&self, device: &Dev, ip: IpAddr) -> bool {
        if is_link_local(ip) {
            return true;
        }
        self.find(ip, Some(device))
            .is_some_and(|r| r.kind == RouteKind::Unicast && r.gateway.is_none())
    }

    /// The route to an address, by the device where one is given.
    fn find(&self, to: IpAddr, device: Option<&Dev>) -> Option<&Route> {
        let routes = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        routes
            .matching(to)
            .map(|place| &self.routes[place])
            .find(|r| match device {
                Some(d) => r.device == d.index && d.is_up(),
                None => {
                    r.kind != RouteKind::Unicast
                        || self.by_index(r.device).is_some_and(|d| d.is_up())
                }
            })
    }

    /// The way to an address from one of this host's, or by a device.
    pub(crate) fn way(
        &self,
        to: IpAddr,
        from: Option<IpAddr>,
        device: Option<u32>,
    ) -> Result<Way, NoRoute> {
        let from = from.filter(|ip| !ip.is_unspecified());
        if from.is_some_and(|ip| !self.is_local(ip)) {
            return Err(NoRoute::Source);
        }
        if self.is_local(to)
            && let Some(lo) = self.loopback()
        {
            return Ok(inside(lo, to));
        }
        let mut by = match device {
            Some(index) => {
                let d = self.by_index(index).filter(|d| d.is_up());
                Some(d.ok_or(NoRoute::Device)?)
            }
            None => None,
        };
        if by.map_or_else(|| self.is_local(to), |d| self.is_own(to, d)) {
            return Err(NoRoute::Local);
        }
        if by.is_some_and(|d| d.is_loopback()) {
            return Err(NoRoute::Network);
        }
        if !can_be_reached(to) {
            return Err(NoRoute::Network);
        }
        let cast = self.cast(to);
        // What stays on a link is told by the source where the device is not.
        if by.is_none() && (cast != Cast::Unicast || is_link_local(to)) {
            by = from
                .filter(|ip| cast != Cast::Unicast || is_link_local(*ip))
                .and_then(|ip| self.place_of(ip))
                .and_then(|place| self.devices.get(place))
                .filter(|d| d.is_up());
        }
        let on_link = |device: &Dev| Way {
            device: device.place,
            next_hop: to,
            gateway: Gateway::No,
            cast,
            source: None,
            mtu: 0,
        };
        let Some(route) = self.find(to, by.map(|d| &**d)) else {
            return match by {
                Some(d) if to.is_ipv4() || cast != Cast::Unicast || is_link_local(to) => {
                    Ok(on_link(d))
                }
                None if to == IpAddr::V4(Ipv4Addr::BROADCAST) || to.is_multicast() => {
                    let d = self.first_device(to).ok_or(NoRoute::Network)?;
                    Ok(on_link(d))
                }
                _ => Err(NoRoute::Network),
            };
        };
        match route.kind {
            RouteKind::Unicast => {}
            RouteKind::Blackhole => return Err(NoRoute::Blackhole),
            RouteKind::Unreachable => return Err(NoRoute::Host),
            RouteKind::Prohibit => return Err(NoRoute::Prohibited),
        }
        let device = self.by_index(route.device).ok_or(NoRoute::Device)?;
        let mut way = on_link(device);
        way.source = route.source;
        way.mtu = route.mtu;
        if let Some(gateway) = route.gateway.filter(|_| cast == Cast::Unicast) {
            way.next_hop = gateway;
            way.gateway = Gateway::Yes;
        }
        Ok(way)
    }

    /// The device that sends to all where nothing says which: the first one with an address.
    fn first_device(&self, to: IpAddr) -> Option<&Arc<Dev>> {
        let of_family =
            |d: &&Arc<Dev>| d.is_up() && d.addresses.iter().any(|a| a.ip.is_ipv4() == to.is_ipv4());
        let up = || {
            let all = self.devices.iter();
            all.filter(|d| d.is_up() && !d.is_loopback())
        };
        up().find(of_family).or_else(|| up().next())
    }

    /// The source address for a packet to `to` by this way: the route's; for IPv4 the first of the
    /// next hop's network, else of the device, else of any; for IPv6 by RFC 6724.
    pub(crate) fn source(&self, to: IpAddr, way: &Way) -> IpAddr {
        if let Some(source) = way.source.filter(|ip| self.is_local(*ip)) {
            return source;
        }
        match to {
            IpAddr::V4(_) => self.source_v4(way),
            IpAddr::V6(to) => self.source_v6(to, way.device),
        }
    }

    /// The address of this host on a device, towards a host on its link or behind it.
    pub(crate) fn address_of(&self, d: &Dev, to: IpAddr) -> Option<IpAddr> {
        let IpAddr::V6(v6) = to else {
            return address_v4(d, to);
        };
        match self.source_v6(v6, d.place) {
            ip if ip.is_unspecified() => None,
            ip => Some(ip),
        }
    }

    fn source_v4(&self, way: &Way) -> IpAddr {
        let others = || {
            self.devices
                .iter()
                .flat_map(|d| &d.addresses)
                .find(|a| a.ip.is_ipv4() && a.scope < SCOPE_LINK)
                .map(|a| a.ip)
        };
        self.devices
            .get(way.device)
            .and_then(|d| address_v4(d, way.next_hop))
            .or_else(others)
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    fn source_v6(&self, to: Ipv6Addr, device: usize) -> IpAddr {
        let mut best: Option<(SourceRank, Ipv6Addr)> = None;
        for d in &self.devices {
            for a in &d.addresses {
                let IpAddr::V6(ip) = a.ip else { continue };
                let here = d.place == device;
                // A link-local source says nothing on another link, nor to a host beyond.
                let stays = ip.is_unicast_link_local() || ip.is_loopback();
                if stays && !here {
                    continue;
                }
                let rank = source_rank(ip, to, here);
                if best.as_ref().is_none_or(|(than, _)| rank > *than) {
                    best = Some((rank, ip));
                }
            }
        }
        IpAddr::V6(best.map_or(Ipv6Addr::UNSPECIFIED, |(_, ip)| ip))
    }
}

/// The way to an address of this host.
fn inside(lo: &Dev, to: IpAddr) -> Way {
    Way {
        device: lo.place,
        next_hop: to,
        gateway: Gateway::No,
        cast: Cast::Unicast,
        source: match to {
            IpAddr::V4(a) if a.is_loopback() => Some(Ipv4Addr::LOCALHOST.into()),
            _ => Some(to),
        },
        mtu: 0,
    }
}

/// Of a device's addresses the first of a host's network, else of those that others reach.
fn address_v4(d: &Dev, to: IpAddr) -> Option<IpAddr> {
    let v4 = || d.addresses.iter().filter(|a| a.ip.is_ipv4());
    v4().find(|a| is_within(to, a.ip, a.prefix))
        .or_else(|| v4().find(|a| a.scope < SCOPE_LINK))
        .or_else(|| v4().next())
        .map(|a| a.ip)
}

fn broadcasts_of(a: &Address) -> impl Iterator<Item = Ipv4Addr> + use<> {
    let set = match a.broadcast {
        Some(IpAddr::V4(ip)) => Some(ip),
        _ => None,
    };
    let directed = match a.ip {
        IpAddr::V4(ip) if a.prefix < 31 => {
            Some(Ipv4Addr::from_bits(ip.to_bits() | (u32::MAX >> a.prefix)))
        }
        _ => None,
    };
    set.into_iter().chain(directed)
}

/// Addresses that are on no wire.
fn can_be_reached(to: IpAddr) -> bool {
    match to {
        IpAddr::V4(to) => !to.is_unspecified() && !to.is_loopback(),
        IpAddr::V6(to) => {
            !to.is_unspecified() && !to.is_loopback() && to.to_ipv4_mapped().is_none()
        }
    }
}

/// Rules 1, 2, 5, 6 and 8 of RFC 6724 5, the first the strongest.
type SourceRank = (bool, (bool, i16), bool, bool, u32);

fn source_rank(source: Ipv6Addr, to: Ipv6Addr, here: bool) -> SourceRank {
    let (s, d) = (scope(source), scope(to));
    // Of scopes that are large enough the smallest, else the largest.
    let by_scope = if s >= d {
        (true, -i16::from(s))
    } else {
        (false, i16::from(s))
    };
    let common = (source.to_bits() ^ to.to_bits()).leading_zeros().min(64);
    (
        source == to,
        by_scope,
        here,
        label(source) == label(to),
        common,
    )
}

fn scope(ip: Ipv6Addr) -> u8 {
    if ip.is_multicast() {
        ip.octets()[1] & 15
    } else if ip.is_unicast_link_local() || ip.is_loopback() {
        2
    } else {
        14
    }
}

/// The labels of RFC 6724 2.1, as Linux has them.
fn label(ip: Ipv6Addr) -> u8 {
    let s = ip.segments();
    match s {
        [0, 0, 0, 0, 0, 0, 0, 1] => 0,
        [0, 0, 0, 0, 0, 0xffff, ..] => 4,
        [0, 0, 0, 0, 0, 0, ..] => 3,
        [0x2001, 0, ..] => 6,
        [0x2001, n, ..] if (0x10..0x20).contains(&n) => 7,
        [0x2002, ..] => 2,
        [0x3ffe, ..] => 12,
        [n, ..] if n & 0xffc0 == 0xfec0 => 11,
        [n, ..] if n & 0xfe00 == 0xfc00 => 5,
        _ => 1,
    }
}

/// The routes of a family: the longest prefix first, in each the networks in order.
struct Routes {
    by_prefix: Vec<(u8, Vec<Entry>)>,
}

/// In the order in which they are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    network: u128,
    metric: u32,
    /// In `Table::routes`.
    place: usize,
}

impl Routes {
    fn new(setup: &Setup, is_ours: impl Fn(&IpAddr) -> bool) -> Routes {
        let mut by_prefix: Vec<(u8, Vec<Entry>)> = Vec::new();
        for (place, r) in setup.routes.iter().enumerate() {
            if !is_ours(&r.network) {
                continue;
            }
            let entry = Entry {
                network: bits(r.network) & mask(r.prefix),
                metric: r.metric,
                place,
            };
            match by_prefix.iter_mut().find(|(prefix, _)| *prefix == r.prefix) {
                Some((_, routes)) => routes.push(entry),
                None => by_prefix.push((r.prefix, vec![entry])),
            }
        }
        by_prefix.sort_unstable_by_key(|(prefix, _)| u8::MAX - prefix);
        for (_, routes) in &mut by_prefix {
            routes.sort_unstable();
        }
        Routes { by_prefix }
    }

    /// The places of those that hold the address, the best first.
    fn matching(&self, to: IpAddr) -> impl Iterator<Item = usize> + '_ {
        let to = bits(to);
        self.by_prefix.iter().flat_map(move |(prefix, routes)| {
            let network = to & mask(*prefix);
            let first = routes.partition_point(|e| e.network < network);
            routes[first..]
                .iter()
                .take_while(move |e| e.network == network)
                .map(|e| e.place)
        })
    }
}
