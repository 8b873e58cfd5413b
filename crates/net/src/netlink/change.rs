//! Requests of NETLINK_ROUTE that change something. All that they say is the application's: numbers
//! are checked where the objects are, attributes that are cut short are refused.

use super::message::{Request, attribute, word};
use super::{Netlink, Refused};
use crate::devices::{Address, How, LinkRequest, NO_DAD, NO_PREFIX_ROUTE, NewKind, PERMANENT};
use crate::ns::NetNamespace;
use crate::protocol::{Caller, NamespaceOf};
use crate::route::{Route, TABLE_MAIN, TYPE_UNICAST};
use abi::Result;
use abi::errno::{
    EADDRNOTAVAIL, EAFNOSUPPORT, EEXIST, EINVAL, ELOOP, ENETDOWN, ENETUNREACH, ENODEV, EOPNOTSUPP,
    EPERM, ERANGE, Errno,
};
use netstack::setup::Neighbour;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use vfs::Caps;

const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// `struct ifinfomsg`, `struct ifaddrmsg`, `struct rtmsg`, `struct ndmsg`.
pub(super) const IFINFO: usize = 16;
pub(super) const IFADDR: usize = 8;
pub(super) const RTMSG: usize = 12;
pub(super) const NDMSG: usize = 12;

const AF_BRIDGE: u8 = 7;

/// What is done with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    New,
    Delete,
}

fn how(req: &Request<'_>) -> How {
    let has = |flag: u16| req.flags & flag != 0;
    How {
        create: has(CREATE),
        exclusive: has(EXCLUSIVE),
        replace: has(REPLACE),
        append: has(APPEND),
    }
}

fn text(b: &[u8]) -> Result<String> {
    let end = b.iter().position(|&c| c == 0).unwrap_or(b.len());
    let name = String::from_utf8(b[..end].to_vec());
    name.map_err(|_| EINVAL)
}

fn number(b: Option<&[u8]>) -> Result<Option<u32>> {
    match b {
        None => Ok(None),
        Some(&[a, b, c, d, ..]) => Ok(Some(u32::from_le_bytes([a, b, c, d]))),
        Some(_) => Err(ERANGE),
    }
}

/// An address of a family.
pub(super) fn ip(family: u8, b: &[u8]) -> Result<IpAddr> {
    match family {
        2 => {
            let o: [u8; 4] = b.try_into().map_err(|_| EINVAL)?;
            Ok(Ipv4Addr::from(o).into())
        }
        10 => {
            let o: [u8; 16] = b.try_into().map_err(|_| EINVAL)?;
            Ok(Ipv6Addr::from(o).into())
        }
        _ => Err(EAFNOSUPPORT),
    }
}

/// `ifi_flags` and `ifi_change`; no change mask means all.
fn up(body: &[u8]) -> Option<bool> {
    let (flags, change) = (word(body, 8), word(body, 12));
    let said = change == 0 && flags != 0 || change & 1 != 0;
    said.then_some(flags & 1 != 0)
}

impl Netlink {
    /// The namespace that a device is to go to: whose network its caller may administer.
    fn target(&self, who: &Caller<'_>, attrs: &[u8]) -> Result<Option<Arc<NetNamespace>>> {
        const NET_NS_PID: u16 = 19;
        const NET_NS_FD: u16 = 28;
        let by = if let Some(pid) = number(attribute(attrs, NET_NS_PID))? {
            NamespaceOf::Process(pid as i32)
        } else if let Some(fd) = number(attribute(attrs, NET_NS_FD))? {
            NamespaceOf::File(fd as i32)
        } else {
            return Ok(None);
        };
        let ns = who.paths.net_namespace(by)?;
        if !who.cred.has_in(&ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        Ok(Some(ns))
    }

    /// What attributes say a device is to be.
    fn wanted(&self, who: &Caller<'_>, body: &[u8]) -> Result<LinkRequest> {
        let attrs = body.get(IFINFO..).ok_or(EINVAL)?;
        let get = |kind: u16| attribute(attrs, kind);
        let mac = match get(1) {
            None => None,
            Some(b) => Some(*b.first_chunk::<6>().ok_or(EINVAL)?),
        };
        // IFLA_AF_SPEC: AF_INET6: IFLA_INET6_ADDR_GEN_MODE; 1 is none.
        let v6 = get(26).and_then(|b| attribute(b, 10));
        let mode = v6.and_then(|b| attribute(b, 8)).and_then(|b| b.first());
        if get(3).is_some_and(|n| n.len() > 16) {
            return Err(ERANGE);
        }
        Ok(LinkRequest {
            link_local: mode.map(|m| *m != 1),
            name: get(3).map(text).transpose()?.filter(|n| !n.is_empty()),
            index: word(body, 4) as i32,
            mac,
            mtu: number(get(4))?,
            up: up(body),
            queue: number(get(13))?,
            group: number(get(27))?,
            master: number(get(10))?.map(|n| n as i32),
            ns: self.target(who, attrs)?,
        })
    }

    /// The device that a message means: by its index, or by a name.
    fn device_of(&self, req: &Request<'_>) -> Result<Option<i32>> {
        let index = word(req.body(), 4) as i32;
        let ns = &self.common.ns;
        if index != 0 {
            return Ok(ns.has_device(index).then_some(index));
        }
        let name = req.attr(IFINFO, 3).or_else(|| req.attr(IFINFO, 53));
        let name = name.map(text).transpose()?;
        Ok(name.and_then(|n| ns.device_by_name(n.as_bytes())))
    }

    /// RTM_NEWLINK, RTM_SETLINK and RTM_DELLINK.
    pub(super) fn change_link(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        deed: Deed,
    ) -> std::result::Result<(), Refused> {
        let body = req.body();
        if body.len() < IFINFO {
            return Err(EINVAL.into());
        }
        let ns = &self.common.ns;
        let found = self.device_of(req)?;
        if deed == Deed::Delete {
            return Ok(ns.delete_link(found.ok_or(ENODEV)?)?);
        }
        let is_new = req.kind == super::RTM_NEWLINK;
        let policy = |e| Refused::if_is(e, ERANGE, "Attribute failed policy validation");
        let wanted = self.wanted(who, body).map_err(policy)?;
        let why = |e: Errno| match (e, wanted.mtu) {
            (EINVAL, Some(mtu)) if mtu < 68 => Refused::with(e, "mtu less than device minimum"),
            (EINVAL, Some(_)) => Refused::with(e, "mtu greater than device maximum"),
            (ELOOP, _) => Refused::with(e, "Can not enslave a bridge to a bridge"),
            _ => e.into(),
        };
        if let Some(index) = found {
            if is_new && req.flags & EXCLUSIVE != 0 {
                return Err(EEXIST.into());
            }
            // Of bridges' ports there is nothing to set.
            if body[0] == AF_BRIDGE {
                return Err(EOPNOTSUPP.into());
            }
            return ns.change_link(index, &wanted).map_err(why);
        }
        if !is_new || req.flags & CREATE == 0 {
            return Err(ENODEV.into());
        }
        let info = req.attr(IFINFO, 18).ok_or(EOPNOTSUPP)?;
        let kind = attribute(info, 1).ok_or(EOPNOTSUPP)?;
        let kind = kind.strip_suffix(b"\0").unwrap_or(kind);
        let kind = NewKind::of(kind).map_err(|e| Refused::with(e, "Unknown device type"))?;
        let peer = attribute(info, 2).and_then(|data| attribute(data, 1));
        let peer = match peer.filter(|_| kind == NewKind::Veth) {
            Some(b) => self.wanted(who, b)?,
            None => LinkRequest::default(),
        };
        let owner = Some(who.cred.ucounts());
        ns.add_link(kind, &wanted, &peer, owner).map_err(why)?;
        Ok(())
    }

    /// RTM_NEWADDR and RTM_DELADDR.
    pub(super) fn change_address(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        deed: Deed,
    ) -> std::result::Result<(), Refused> {
        let b = req.body();
        if b.len() < IFADDR {
            return Err(EINVAL.into());
        }
        let (family, prefix, scope) = (b[0], b[1], b[3]);
        let index = word(b, 4) as i32;
        let get = |kind: u16| req.attr(IFADDR, kind).map(|b| ip(family, b)).transpose();
        let (other, local) = (get(1)?, get(2)?);
        let own = local.or(other).ok_or(EINVAL)?;
        let ns = &self.common.ns;
        if deed == Deed::Delete {
            let missing = match own {
                IpAddr::V4(_) => "ipv4: Address not found",
                IpAddr::V6(_) => "ipv6: address not found",
            };
            let done = ns.delete_address(index, own, Some(prefix));
            return done.map_err(|e| Refused::if_is(e, EADDRNOTAVAIL, missing));
        }
        let flags = number(req.attr(IFADDR, 8))?.unwrap_or(b[2].into());
        let mut a = Address::new(own, prefix);
        a.flags = PERMANENT | flags & NO_PREFIX_ROUTE;
        if own.is_ipv6() {
            a.flags |= flags & NO_DAD;
        }
        a.peer = other.filter(|o| *o != own);
        a.broadcast = get(4)?;
        a.label = req.attr(IFADDR, 3).map(text).transpose()?;
        if own.is_ipv4() {
            a.scope = scope;
        }
        let there = match own {
            IpAddr::V4(_) => "ipv4: Address already assigned",
            IpAddr::V6(_) => "ipv6: address already assigned",
        };
        let done = ns.add_address(index, a, how(req), Some(who.cred.ucounts()));
        done.map_err(|e| Refused::if_is(e, EEXIST, there))
    }

    /// A route as a message says it; what is not said is 0.
    fn route_of(&self, req: &Request<'_>) -> Result<Route> {
        let b = req.body();
        if b.len() < RTMSG {
            return Err(EINVAL);
        }
        let family = b[0];
        let get = |kind: u16| req.attr(RTMSG, kind).map(|b| ip(family, b)).transpose();
        let (any, most): (IpAddr, u8) = match family {
            2 => (Ipv4Addr::UNSPECIFIED.into(), 32),
            10 => (Ipv6Addr::UNSPECIFIED.into(), 128),
            _ => return Err(EAFNOSUPPORT),
        };
        // By source, by type of service, several hops, another family's gateway.
        if b[1] > most || b[2] != 0 || b[3] != 0 {
            return Err(EINVAL);
        }
        if req.attr(RTMSG, 9).is_some() || req.attr(RTMSG, 18).is_some() {
            return Err(EOPNOTSUPP);
        }
        let table = number(req.attr(RTMSG, 15))?.unwrap_or(b[4].into());
        let table = match u8::try_from(table).map_err(|_| EOPNOTSUPP)? {
            0 => TABLE_MAIN,
            n => n,
        };
        let metrics = req.attr(RTMSG, 8).unwrap_or_default();
        const ON_LINK: u32 = 4;
        Ok(Route {
            to: get(1)?.unwrap_or(any),
            prefix: b[1],
            via: get(5)?.filter(|ip| !ip.is_unspecified()),
            source: get(7)?,
            device: number(req.attr(RTMSG, 4))?.unwrap_or(0) as i32,
            metric: number(req.attr(RTMSG, 6))?.unwrap_or(0),
            mtu: number(attribute(metrics, 2))?.unwrap_or(0),
            table,
            protocol: b[5],
            scope: b[6],
            kind: b[7],
            flags: 0,
            on_link: word(b, 8) & ON_LINK != 0,
        })
    }

    /// RTM_NEWROUTE and RTM_DELROUTE.
    pub(super) fn change_route(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        deed: Deed,
    ) -> std::result::Result<(), Refused> {
        const NOWHERE: u8 = 255;
        let ns = &self.common.ns;
        let mut r = self.route_of(req)?;
        if deed == Deed::Delete {
            let fits = |o: &Route| {
                (o.to, o.prefix, o.table) == (r.to, r.prefix, r.table)
                    && (r.device == 0 || r.device == o.device || !o.has_device())
                    && (r.via.is_none() || r.via == o.via)
                    && (r.metric == 0 || r.metric == o.metric)
                    && (r.protocol == 0 || r.protocol == o.protocol)
                    && (r.kind == 0 || r.kind == o.kind)
                    && (r.source.is_none() || r.source == o.source)
                    && (r.to.is_ipv6() || r.scope == NOWHERE || r.scope == o.scope)
            };
            return Ok(ns.delete_route(fits)?);
        }
        if r.kind == 0 {
            r.kind = TYPE_UNICAST;
        }
        if r.to_setup().is_none() || r.scope == NOWHERE {
            return Err(EINVAL.into());
        }
        if r.to.is_ipv6() {
            r.scope = 0;
            if r.metric == 0 {
                r.metric = 1024;
            }
            if !r.has_device() {
                r.device = crate::interface::LO_INDEX;
            }
        }
        if r.to.is_ipv4() && crate::route::network(r.to, r.prefix) != r.to {
            let text = "Invalid prefix for given prefix length";
            return Err(Refused::with(EINVAL, text));
        }
        let has_source = r.source.is_some();
        let done = ns.add_route(r, how(req), Some(who.cred.ucounts()));
        done.map_err(|e| match e {
            ENETUNREACH => Refused::with(e, "Nexthop has invalid gateway"),
            ENETDOWN => Refused::with(e, "Device for nexthop is not up"),
            EINVAL if has_source => Refused::with(e, "Invalid prefsrc address"),
            e => e.into(),
        })
    }

    /// RTM_NEWNEIGH and RTM_DELNEIGH.
    pub(super) fn change_neighbour(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        deed: Deed,
    ) -> std::result::Result<(), Refused> {
        let b = req.body();
        if b.len() < NDMSG {
            return Err(EINVAL.into());
        }
        if b[0] == AF_BRIDGE {
            return Err(EOPNOTSUPP.into());
        }
        let device = word(b, 4);
        let at = ip(b[0], req.attr(NDMSG, 1).ok_or(EINVAL)?)?;
        let ns = &self.common.ns;
        if deed == Deed::Delete {
            return Ok(ns.delete_neighbour(device, at)?);
        }
        let mac = req.attr(NDMSG, 2).ok_or(EINVAL)?;
        let mac = *mac.first_chunk::<6>().ok_or(EINVAL)?;
        let n = Neighbour {
            device,
            ip: at,
            mac,
        };
        Ok(ns.add_neighbour(n, how(req), Some(who.cred.ucounts()))?)
    }
}
