//! NETLINK_ROUTE (`rtnetlink(7)`): what is asked about interfaces, addresses, routes, neighbours
//! and rules.

use super::change::{Deed, IFINFO};
use super::message::{Request, attribute, word};
use super::objects::{
    address, bridge_address, bridge_port, inet_of, link, neighbour, route, rules, way,
};
use super::*;
use crate::devices::LinkInfo;
use crate::ns::LOOPBACKS;
use crate::route::Route;
use abi::errno::{ENETUNREACH, ENODEV};
use netstack::ip::DeviceCounts;
use std::net::{IpAddr, Ipv4Addr};

const AF_BRIDGE: u16 = 7;

impl Netlink {
    fn counts(&self, i: &LinkInfo) -> DeviceCounts {
        self.common.ns.device_counts(i.interface.index)
    }

    /// Whether a dump is to be of what its header says (NETLINK_GET_STRICT_CHK).
    fn is_strict(&self) -> bool {
        const STRICT: i32 = 12;
        self.state.lock().options >> STRICT & 1 == 1
    }

    /// The messages that answer a dump; `None` for a kind of object that cannot be asked for.
    pub(super) fn dump(&self, req: &Request<'_>, port: u32) -> Option<Vec<Vec<u8>>> {
        let f = NLM_F_MULTI;
        let family = u16::from(req.family());
        let wanted = |ip: &IpAddr| family == AF_UNSPEC || family == u16::from(inet_of(*ip));
        let ns = &self.common.ns;
        match req.kind {
            RTM_GETLINK => Some(self.dump_links(req, port)),
            RTM_GETNEIGH if family == AF_BRIDGE => {
                let all = ns.bridge_addresses().into_iter();
                Some(
                    all.map(|(at, mac)| bridge_address(req, f, port, at, mac))
                        .collect(),
                )
            }
            RTM_GETNEIGH => {
                let device = word(req.body(), 4);
                let all = ns.neighbours().into_iter();
                let all = all.filter(|n| wanted(&n.ip) && (device == 0 || device == n.device));
                Some(all.map(|n| neighbour(req, f, port, &n)).collect())
            }
            RTM_GETADDR => {
                let device = if self.is_strict() {
                    word(req.body(), 4) as i32
                } else {
                    0
                };
                let all = ns.all_addresses().into_iter();
                let all = all.filter(|(i, _, a)| wanted(&a.ip) && (device == 0 || device == *i));
                Some(
                    all.map(|(i, name, a)| address(req, f, port, (i, &name), &a))
                        .collect(),
                )
            }
            RTM_GETROUTE => {
                let there = ns.has_addresses();
                let ips = LOOPBACKS.iter().filter(|(ip, _)| there && wanted(ip));
                let own = ips.map(|(ip, p)| {
                    let net = if ip.is_ipv4() {
                        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0))
                    } else {
                        *ip
                    };
                    Route::to_loopback(net, *p)
                });
                let others = ns.routes().into_iter().filter(|r| wanted(&r.to));
                Some(own.chain(others).map(|r| route(req, f, port, &r)).collect())
            }
            RTM_GETRULE => Some(rules(req, f, port)),
            // Queueing disciplines, …: there are none.
            k if k >= NLMSG_MIN_TYPE && k % 4 == 2 => Some(Vec::new()),
            _ => None,
        }
    }

    /// Devices; of a bridge, or of a kind, where that is said.
    fn dump_links(&self, req: &Request<'_>, port: u32) -> Vec<Vec<u8>> {
        const MASTER: u16 = 10;
        let f = NLM_F_MULTI;
        let all = self.common.ns.link_infos();
        if u16::from(req.family()) == AF_BRIDGE {
            let ports = all.iter().filter(|i| i.master.is_some());
            return ports.map(|i| bridge_port(req, f, port, i)).collect();
        }
        let master = req.attr(IFINFO, MASTER).map(|b| word(b, 0) as i32);
        let kind = req.attr(IFINFO, 18).and_then(|b| attribute(b, 1));
        let kind = kind.map(|k| k.strip_suffix(b"\0").unwrap_or(k));
        let fits = |i: &&LinkInfo| {
            master.is_none_or(|m| i.master == Some(m))
                && kind.is_none_or(|k| i.kind.map(str::as_bytes) == Some(k))
        };
        let all = all.iter().filter(fits);
        all.map(|i| link(req, f, port, i, &self.counts(i)))
            .collect()
    }

    fn get_link(&self, req: &Request<'_>, port: u32) -> Result<()> {
        let index = word(req.body(), 4) as i32;
        let name = req.attr(IFINFO, 3).or_else(|| req.attr(IFINFO, 53));
        let name = name.and_then(|n| n.split(|&b| b == 0).next());
        let all = self.common.ns.link_infos();
        let found = all.iter().find(|i| match index {
            0 => Some(i.interface.name.as_bytes()) == name,
            _ => i.interface.index == index,
        });
        let found = found.ok_or(ENODEV)?;
        self.reply(link(req, 0, port, found, &self.counts(found)));
        Ok(())
    }

    fn get_route(&self, who: &Caller<'_>, req: &Request<'_>, port: u32) -> Result<()> {
        const FIB_MATCH: u32 = 0x2000;
        let to = req.attr(super::change::RTMSG, 1).ok_or(EINVAL)?;
        let ip = super::change::ip(req.family(), to)?;
        if !self.common.ns.reaches(ip) {
            return Err(ENETUNREACH);
        }
        let r = self.common.ns.route_to(ip);
        let asked = req.body().get(8..12).and_then(|b| b.first_chunk());
        let asked = asked.map_or(0, |b| u32::from_ne_bytes(*b));
        self.reply(match ip.is_ipv4() && asked & FIB_MATCH == 0 {
            true => way(req, port, (ip, who.cred.uid), &r),
            false => route(req, 0, port, &r),
        });
        Ok(())
    }

    /// Asks for one object, or changes one.
    pub(super) fn route_request(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
    ) -> core::result::Result<(), Refused> {
        if req.kind % 4 == 2 {
            return Ok(match req.kind {
                RTM_GETLINK => self.get_link(req, port),
                RTM_GETROUTE => self.get_route(who, req, port),
                RTM_GETNSID => {
                    // NETNSA_NSID: none is assigned.
                    let b = Builder::new(RTM_NEWNSID, 0, req, port).bytes(&[0; 4]);
                    self.reply(b.attr(1, &(-1i32).to_le_bytes()).finish());
                    Ok(())
                }
                _ => Err(EOPNOTSUPP),
            }?);
        }
        self.may_administer(who)?;
        match req.kind {
            RTM_NEWLINK | RTM_SETLINK => self.change_link(who, req, Deed::New),
            RTM_DELLINK => self.change_link(who, req, Deed::Delete),
            RTM_NEWADDR => self.change_address(who, req, Deed::New),
            RTM_DELADDR => self.change_address(who, req, Deed::Delete),
            RTM_NEWROUTE => self.change_route(who, req, Deed::New),
            RTM_DELROUTE => self.change_route(who, req, Deed::Delete),
            RTM_NEWNEIGH => self.change_neighbour(who, req, Deed::New),
            RTM_DELNEIGH => self.change_neighbour(who, req, Deed::Delete),
            _ => Err(EOPNOTSUPP.into()),
        }
    }
}
