//! NETLINK_ROUTE (`rtnetlink(7)`): what can be asked about interfaces, addresses, routes and
//! neighbours, and what can be set of the loopback interface.

use super::message::{Request, word};
use super::objects::{address, inet_of, link, neighbour, octets, route};
use super::*;
use crate::interface::{Interface, LO_INDEX};
use crate::ns::{LOOPBACKS, Link};
use crate::route::Route;
use abi::errno::{EEXIST, ENETUNREACH, ENODEV};
use netstack::ip::DeviceCounts;
use std::net::{IpAddr, Ipv4Addr};

impl Netlink {
    fn counts(&self, i: &Interface) -> DeviceCounts {
        self.common.ns.device_counts(i.index)
    }

    /// The messages that answer a dump; `None` for a kind of object that cannot be asked for.
    pub(super) fn dump(&self, req: &Request<'_>, port: u32) -> Option<Vec<Vec<u8>>> {
        let f = NLM_F_MULTI;
        let family = u16::from(req.family());
        let wanted = |ip: &IpAddr| family == AF_UNSPEC || family == u16::from(inet_of(*ip));
        let there = self.common.ns.has_addresses();
        let ips = LOOPBACKS.iter().filter(|(ip, _)| there && wanted(ip));
        let all = self.common.ns.interfaces();
        match req.kind {
            RTM_GETLINK => {
                let of = |i: &Interface| link(req, f, port, i, &self.counts(i));
                Some(all.iter().map(of).collect())
            }
            RTM_GETNEIGH => {
                let device = word(req.body(), 4);
                let all = self.common.ns.neighbours().into_iter();
                let all = all.filter(|n| wanted(&n.ip) && (device == 0 || device == n.device));
                Some(all.map(|n| neighbour(req, f, port, &n)).collect())
            }
            RTM_GETADDR => Some(
                all.iter()
                    .flat_map(|i| i.addresses.iter().map(move |a| (i, *a)))
                    .filter(|(_, (ip, _))| wanted(ip))
                    .map(|(i, a)| address(req, f, port, i, a))
                    .collect(),
            ),
            RTM_GETROUTE => Some(
                ips.map(|(ip, p)| {
                    let net = if ip.is_ipv4() {
                        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0))
                    } else {
                        *ip
                    };
                    Route::to_loopback(net, *p)
                })
                .chain(
                    self.common
                        .ns
                        .routes()
                        .into_iter()
                        .filter(|r| wanted(&r.to)),
                )
                .map(|r| route(req, f, port, &r))
                .collect(),
            ),
            // Rules, queueing disciplines, …: there are none.
            k if k >= NLMSG_MIN_TYPE && k % 4 == 2 => Some(Vec::new()),
            _ => None,
        }
    }

    fn get_link(&self, req: &Request<'_>, port: u32) -> core::result::Result<(), Errno> {
        let index = word(req.body(), 4) as i32;
        let name = req.attr(16, 3).or_else(|| req.attr(16, 53));
        let name = name.and_then(|n| n.split(|&b| b == 0).next());
        let all = self.common.ns.interfaces();
        let found = all.iter().find(|i| match index {
            0 => Some(i.name.as_bytes()) == name,
            _ => i.index == index,
        });
        let found = found.ok_or(ENODEV)?;
        self.reply(link(req, 0, port, found, &self.counts(found)));
        Ok(())
    }

    fn get_route(&self, req: &Request<'_>, port: u32) -> core::result::Result<(), Errno> {
        let ip = match req.attr(12, 1) {
            Some([a, b, c, d]) => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
            Some(b) if b.len() == 16 => {
                let mut o = [0; 16];
                o.copy_from_slice(b);
                IpAddr::from(o)
            }
            _ => return Err(EINVAL),
        };
        if !self.common.ns.reaches(ip) {
            return Err(ENETUNREACH);
        }
        let r = self.common.ns.route_to(ip);
        self.reply(route(req, 0, port, &r));
        Ok(())
    }

    /// Adds an address to the loopback: it has its own from the first time that it is up, and no
    /// others.
    fn add_address(&self, req: &Request<'_>) -> core::result::Result<(), Errno> {
        let bytes = req.attr(8, 2).or_else(|| req.attr(8, 1)).ok_or(EINVAL)?;
        let prefix = req.body()[1];
        let is_own = |(ip, p): &(IpAddr, u8)| {
            u16::from(req.family()) == u16::from(inet_of(*ip))
                && prefix == *p
                && octets(*ip) == bytes
        };
        if !LOOPBACKS.iter().any(is_own) {
            return Err(EOPNOTSUPP);
        }
        if self.common.ns.set_addressed() {
            return Err(EEXIST);
        }
        Ok(())
    }

    /// Asks for one object, or changes one.
    pub(super) fn route_request(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
    ) -> core::result::Result<(), Errno> {
        if req.kind % 4 == 2 {
            return match req.kind {
                RTM_GETLINK => self.get_link(req, port),
                RTM_GETROUTE => self.get_route(req, port),
                _ => Err(EOPNOTSUPP),
            };
        }
        if !who.cred.has_in(&self.common.ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        match req.kind {
            RTM_NEWLINK | RTM_SETLINK if word(req.body(), 4) as i32 == LO_INDEX => {
                // `ifi_flags` and `ifi_change`; no change mask means all.
                let (flags, change) = (word(req.body(), 8), word(req.body(), 12));
                if (change == 0 && flags != 0) || change & 1 != 0 {
                    self.common.ns.set_loopback(Link::of_flags(flags))?;
                }
                Ok(())
            }
            RTM_NEWADDR if word(req.body(), 4) as i32 == LO_INDEX => self.add_address(req),
            _ => Err(EOPNOTSUPP),
        }
    }
}
