//! Routes, as programs are told of them.

use crate::interface::LO_INDEX;
use crate::ns::{LOOPBACKS, NetNamespace};
use crate::user;
use netstack::setup;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `RT_TABLE_*`, `RT_SCOPE_*`, `RTPROT_*` and `RTN_*` (`rtnetlink(7)`).
pub(crate) const TABLE_MAIN: u8 = 254;
pub(crate) const TABLE_LOCAL: u8 = 255;
pub(crate) const SCOPE_UNIVERSE: u8 = 0;
pub(crate) const SCOPE_LINK: u8 = 253;
const SCOPE_HOST: u8 = 254;
const PROTOCOL_KERNEL: u8 = 2;
pub(crate) const PROTOCOL_BOOT: u8 = 3;
const RTM_F_CLONED: u32 = 0x200;
pub(crate) const TYPE_UNICAST: u8 = 1;
pub(crate) const TYPE_LOCAL: u8 = 2;
pub(crate) const TYPE_BLACKHOLE: u8 = 6;
pub(crate) const TYPE_UNREACHABLE: u8 = 7;
pub(crate) const TYPE_PROHIBIT: u8 = 8;

/// A route, as `struct rtmsg` and its attributes have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub to: IpAddr,
    pub prefix: u8,
    pub via: Option<IpAddr>,
    pub source: Option<IpAddr>,
    pub device: i32,
    pub metric: u32,
    pub mtu: u32,
    pub table: u8,
    pub protocol: u8,
    pub scope: u8,
    pub kind: u8,
    /// `RTM_F_*`.
    pub flags: u32,
    /// The gateway is on the link, whatever the addresses say (`RTNH_F_ONLINK`).
    pub on_link: bool,
}

impl Route {
    /// To this host by its loopback interface.
    pub fn to_loopback(to: IpAddr, prefix: u8) -> Route {
        Route {
            to,
            prefix,
            via: None,
            source: Some(LOOPBACKS[usize::from(to.is_ipv6())].0),
            device: LO_INDEX,
            metric: 0,
            mtu: 0,
            table: TABLE_LOCAL,
            protocol: PROTOCOL_KERNEL,
            scope: SCOPE_HOST,
            kind: TYPE_LOCAL,
            flags: 0,
            on_link: false,
        }
    }

    /// A device's own network, or what lies behind a gateway.
    pub fn by_device(
        device: i32,
        (to, prefix): (IpAddr, u8),
        via: Option<IpAddr>,
        source: Option<IpAddr>,
    ) -> Route {
        let (protocol, scope) = match via {
            Some(_) => (PROTOCOL_BOOT, SCOPE_UNIVERSE),
            // IPv6 knows no scopes of routes.
            None if to.is_ipv6() => (PROTOCOL_KERNEL, SCOPE_UNIVERSE),
            None => (PROTOCOL_KERNEL, SCOPE_LINK),
        };
        Route {
            to,
            prefix,
            via,
            source,
            device,
            metric: 0,
            mtu: 0,
            table: TABLE_MAIN,
            protocol,
            scope,
            kind: TYPE_UNICAST,
            flags: 0,
            on_link: false,
        }
    }

    pub fn of_setup(r: &setup::Route) -> Route {
        let kind = match r.kind {
            setup::RouteKind::Unicast => TYPE_UNICAST,
            setup::RouteKind::Blackhole => TYPE_BLACKHOLE,
            setup::RouteKind::Unreachable => TYPE_UNREACHABLE,
            setup::RouteKind::Prohibit => TYPE_PROHIBIT,
        };
        Route {
            metric: r.metric,
            mtu: r.mtu,
            kind,
            ..Route::by_device(r.device as i32, (r.network, r.prefix), r.gateway, r.source)
        }
    }
}

impl Route {
    /// A network that is reached by a device that has an address in it.
    pub fn connected(device: i32, net: (IpAddr, u8), source: IpAddr) -> Route {
        let source = source.is_ipv4().then_some(source);
        let metric = if net.0.is_ipv4() { 0 } else { 256 };
        Route {
            metric,
            ..Route::by_device(device, net, None, source)
        }
    }

    /// Whether it is one of those.
    pub fn is_connected(&self) -> bool {
        self.protocol == PROTOCOL_KERNEL && self.via.is_none()
    }

    /// Whether it leads somewhere.
    pub fn has_device(&self) -> bool {
        !matches!(self.kind, TYPE_BLACKHOLE | TYPE_UNREACHABLE | TYPE_PROHIBIT)
    }

    /// As the stack takes it.
    pub fn to_setup(&self) -> Option<setup::Route> {
        let kind = match self.kind {
            TYPE_UNICAST => setup::RouteKind::Unicast,
            TYPE_BLACKHOLE => setup::RouteKind::Blackhole,
            TYPE_UNREACHABLE => setup::RouteKind::Unreachable,
            TYPE_PROHIBIT => setup::RouteKind::Prohibit,
            _ => return None,
        };
        Some(setup::Route {
            network: self.to,
            prefix: self.prefix,
            gateway: self.via,
            device: self.device as u32,
            source: self.source,
            metric: self.metric,
            mtu: self.mtu,
            kind,
        })
    }
}

/// The network of an address.
pub(crate) fn network(ip: IpAddr, prefix: u8) -> IpAddr {
    let p = u32::from(prefix);
    match ip {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - p.min(32)).unwrap_or(0);
            Ipv4Addr::from_bits(a.to_bits() & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - p.min(128)).unwrap_or(0);
            Ipv6Addr::from_bits(a.to_bits() & mask).into()
        }
    }
}

impl NetNamespace {
    /// The routes of the devices that lead out, if there are some.
    pub(crate) fn routes(&self) -> Vec<Route> {
        let Some(out) = &self.way_out else {
            let t = self.table.lock();
            return t.routes.iter().map(|(r, _)| r.clone()).collect();
        };
        let mut all = Vec::new();
        for (ip, prefix) in out.interface().addresses {
            let (any, via) = match ip {
                IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Some(user::GATEWAY_V4.into())),
                IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), None),
            };
            let source = Some(ip);
            let device = user::DEVICE_INDEX;
            all.push(Route::by_device(device, (any, 0), via, source));
            let own = (network(ip, prefix), prefix);
            all.push(Route::by_device(device, own, None, source));
        }
        all
    }

    /// The route that a packet to the address takes.
    pub(crate) fn route_to(&self, ip: IpAddr) -> Route {
        let prefix = if ip.is_ipv4() { 32 } else { 128 };
        let source = Some(self.source_for(ip));
        if self.leaves(ip).is_some() {
            let via = ip.is_ipv4().then_some(user::GATEWAY_V4.into());
            return Route::by_device(user::DEVICE_INDEX, (ip, prefix), via, source);
        }
        let by_stack = self.stack().filter(|_| self.is_outside(ip));
        match by_stack.and_then(|s| s.path(ip, None).ok()) {
            Some(p) => {
                let via = Some(p.next_hop).filter(|hop| *hop != ip);
                let found = Route::by_device(p.index as i32, (ip, prefix), via, source);
                match ip {
                    // As of a cache (`rt_fill_info`).
                    IpAddr::V4(_) => Route {
                        protocol: 0,
                        flags: RTM_F_CLONED,
                        scope: SCOPE_UNIVERSE,
                        ..found
                    },
                    IpAddr::V6(_) => found,
                }
            }
            None => Route::to_loopback(ip, prefix),
        }
    }
}
