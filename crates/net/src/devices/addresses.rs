//! Addresses, routes and neighbours that are set and taken away.

use super::news::News;
use super::table::{
    Address, MOST_ADDRESSES, MOST_NEIGHBOURS, MOST_ROUTES, SECONDARY, Table, charge,
};
use crate::interface::LO_INDEX;
use crate::ns::NetNamespace;
use crate::route::{Route, TABLE_MAIN, network};
use abi::Result;
use abi::errno::{
    EACCES, EADDRNOTAVAIL, EEXIST, EHOSTUNREACH, EINVAL, ENETDOWN, ENETUNREACH, ENODEV, ENOENT,
    ENOSPC, EOPNOTSUPP, ESRCH,
};
use netstack::ip::{NeighbourInfo, NeighbourState};
use netstack::setup::Neighbour;
use std::net::IpAddr;
use std::sync::Arc;
use vfs::ucounts::Ucounts;

/// What an address, a route or a neighbour costs.
const OBJECT: u64 = 256;

/// What becomes of one that is there already (`NLM_F_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct How {
    pub create: bool,
    pub exclusive: bool,
    pub replace: bool,
    pub append: bool,
}

impl NetNamespace {
    fn may_change(&self, index: i32) -> Result<()> {
        if self.host.is_some() || self.way_out.is_some() && index != LO_INDEX {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }

    pub(crate) fn add_address(
        self: &Arc<Self>,
        index: i32,
        mut a: Address,
        how: How,
        owner: Option<&Arc<Ucounts>>,
    ) -> Result<()> {
        self.may_change(index)?;
        let most = if a.ip.is_ipv4() { 32 } else { 128 };
        if a.prefix > most || a.ip.is_multicast() || a.ip.is_unspecified() {
            return Err(EINVAL);
        }
        let news = {
            let mut t = self.table.lock();
            if a.ip.is_ipv6() && self.confs_for(&t).lacks_v6(index) {
                return Err(EACCES);
            }
            let full = t.addresses() >= MOST_ADDRESSES;
            let e = t.entries.get_mut(&index).ok_or(ENODEV)?;
            let same = |o: &Address| o.ip == a.ip && (a.ip.is_ipv6() || o.prefix == a.prefix);
            if let Some((old, _)) = e.addresses.iter_mut().find(|(o, _)| same(o)) {
                if how.exclusive || !how.replace {
                    return Err(EEXIST);
                }
                a.flags |= old.flags & SECONDARY;
                *old = a.clone();
                let name = e.name.clone();
                drop(t);
                self.tell(&[News::Address(index, name, a)]);
                return Ok(());
            }
            if full {
                return Err(ENOSPC);
            }
            let v4 = a.ip.is_ipv4();
            let in_net = |o: &Address| v4 && o.ip.is_ipv4() && o.network() == a.network();
            if e.addresses.iter().any(|(o, _)| in_net(o)) {
                a.flags |= SECONDARY;
            }
            if v4 && a.label.is_none() {
                a.label = Some(e.name.clone());
            }
            let memory = charge(owner, OBJECT)?;
            e.insert(a.clone(), memory);
            let mut news = vec![News::Address(index, e.name.clone(), a.clone())];
            t.connect(index, &a, &mut news);
            self.apply(&t);
            news
        };
        self.tell(&news);
        Ok(())
    }

    /// `prefix`: where it is said.
    pub(crate) fn delete_address(
        self: &Arc<Self>,
        index: i32,
        ip: IpAddr,
        prefix: Option<u8>,
    ) -> Result<()> {
        self.may_change(index)?;
        let news = {
            let mut t = self.table.lock();
            let promotes = self.confs_for(&t).promotes(index);
            let mut promoted = None;
            let e = t.entries.get_mut(&index).ok_or(ENODEV)?;
            let is_it = |a: &Address| a.ip == ip && prefix.is_none_or(|p| p == a.prefix);
            let at = e.addresses.iter().position(|(a, _)| is_it(a));
            let (a, _) = e.addresses.remove(at.ok_or(EADDRNOTAVAIL)?);
            let mut gone = vec![a.clone()];
            // With the first of a network the others go, unless the next one takes its place.
            let net = a.network();
            let is_next = |(o, _): &&mut (Address, _)| o.ip.is_ipv4() && o.network() == net;
            if ip.is_ipv4()
                && a.flags & SECONDARY == 0
                && promotes
                && let Some((next, _)) = e.addresses.iter_mut().find(is_next)
            {
                next.flags &= !SECONDARY;
                promoted = Some(next.clone());
            } else if ip.is_ipv4() && a.flags & SECONDARY == 0 {
                let net = a.network();
                let is_second = |o: &Address| o.ip.is_ipv4() && o.network() == net;
                let (second, rest) = std::mem::take(&mut e.addresses)
                    .into_iter()
                    .partition(|(o, _)| is_second(o));
                e.addresses = rest;
                let second: Vec<(Address, _)> = second;
                gone.extend(second.into_iter().map(|(o, _)| o));
            }
            let name = e.name.clone();
            let mut news = Vec::new();
            for a in gone {
                t.disconnect(index, &a, &mut news);
                news.push(News::AddressGone(index, name.clone(), a));
            }
            if let Some(next) = promoted {
                t.connect(index, &next, &mut news);
                news.push(News::Address(index, name, next));
            }
            self.apply(&t);
            news
        };
        self.tell(&news);
        Ok(())
    }

    /// Adds a route. Its device may be unsaid (0) where a gateway tells it.
    pub(crate) fn add_route(
        self: &Arc<Self>,
        mut r: Route,
        how: How,
        owner: Option<&Arc<Ucounts>>,
    ) -> Result<()> {
        self.may_change(0)?;
        if network(r.to, r.prefix) != r.to {
            return Err(EINVAL);
        }
        let news = {
            let mut t = self.table.lock();
            if r.has_device() {
                find_way(&t, &mut r)?;
            }
            let same = |o: &Route| {
                (o.to, o.prefix, o.metric, o.table) == (r.to, r.prefix, r.metric, r.table)
            };
            let v6 = r.to.is_ipv6();
            let equal = |o: &Route| same(o) && o.via == r.via && o.device == r.device;
            let there = t.routes.iter().any(|(o, _)| same(o));
            if there && how.exclusive {
                return Err(EEXIST);
            }
            if !there && !how.create {
                return Err(ENOENT);
            }
            if there && !how.replace && t.routes.iter().any(|(o, _)| equal(o)) {
                return Err(EEXIST);
            }
            if there && how.replace {
                // The first gives way, unless the same is there already: as the first, or behind.
                let first = t.routes.iter().position(|(o, _)| same(o));
                let known = t.routes.iter().position(|(o, _)| equal(o));
                if known.is_some() && known != first {
                    return Err(EEXIST);
                }
                if let Some((o, _)) = first.and_then(|at| t.routes.get_mut(at)) {
                    *o = r.clone();
                }
            } else {
                if t.routes.len() >= MOST_ROUTES {
                    return Err(ENOSPC);
                }
                let memory = charge(owner, OBJECT)?;
                let at = if there && !how.append && !v6 {
                    t.routes.iter().position(|(o, _)| same(o))
                } else {
                    None
                };
                let end = t.routes.len();
                t.routes.insert(at.unwrap_or(end), (r.clone(), memory));
            }
            t.sort_routes();
            self.apply(&t);
            vec![News::Route(r)]
        };
        self.tell(&news);
        Ok(())
    }

    /// Takes the first route away that fits.
    pub(crate) fn delete_route(self: &Arc<Self>, fits: impl Fn(&Route) -> bool) -> Result<()> {
        self.may_change(0)?;
        let gone = {
            let mut t = self.table.lock();
            let at = t.routes.iter().position(|(r, _)| fits(r)).ok_or(ESRCH)?;
            let (gone, _) = t.routes.remove(at);
            self.apply(&t);
            gone
        };
        self.tell(&[News::RouteGone(gone)]);
        Ok(())
    }

    pub(crate) fn add_neighbour(
        self: &Arc<Self>,
        n: Neighbour,
        how: How,
        owner: Option<&Arc<Ucounts>>,
    ) -> Result<()> {
        let index = n.device as i32;
        self.may_change(index)?;
        {
            let mut t = self.table.lock();
            if !t.entries.contains_key(&index) {
                return Err(ENODEV);
            }
            let same = |o: &Neighbour| (o.device, o.ip) == (n.device, n.ip);
            match t.neighbours.iter().position(|(o, _)| same(o)) {
                Some(_) if how.exclusive => return Err(EEXIST),
                Some(at) => t.neighbours[at].0 = n,
                None if !how.create => return Err(ENOENT),
                None if t.neighbours.len() >= MOST_NEIGHBOURS => return Err(ENOSPC),
                None => {
                    let memory = charge(owner, OBJECT)?;
                    t.neighbours.push((n, memory));
                }
            }
            self.apply(&t);
        }
        self.tell(&[News::Neighbour(told(&n))]);
        Ok(())
    }

    pub(crate) fn delete_neighbour(self: &Arc<Self>, device: u32, ip: IpAddr) -> Result<()> {
        self.may_change(device as i32)?;
        let fixed = {
            let mut t = self.table.lock();
            if !t.entries.contains_key(&(device as i32)) {
                return Err(ENODEV);
            }
            let at = t
                .neighbours
                .iter()
                .position(|(o, _)| (o.device, o.ip) == (device, ip));
            let gone = at.map(|at| t.neighbours.remove(at).0);
            if gone.is_some() {
                self.apply(&t);
            }
            gone
        };
        let learnt = self.stack().is_some_and(|s| s.ip.forget(device, ip));
        if fixed.is_none() && !learnt {
            return Err(ENOENT);
        }
        if let Some(n) = fixed {
            self.tell(&[News::NeighbourGone(told(&n))]);
        }
        Ok(())
    }
}

/// Finds the device of a route that leads somewhere, where it does not say it; whether its gateway
/// and its source can be, told by errors (`fib_check_nh`, `fib_valid_prefsrc`).
fn find_way(t: &Table, r: &mut Route) -> Result<()> {
    let unreachable = |via: IpAddr| {
        if via.is_ipv4() {
            ENETUNREACH
        } else {
            EHOSTUNREACH
        }
    };
    if r.device == 0 {
        let via = r.via.ok_or(ENODEV)?;
        r.device = t.link_to(via).ok_or(unreachable(via))?;
    }
    if !t.entries.get(&r.device).ok_or(ENODEV)?.up {
        return Err(ENETDOWN);
    }
    if let Some(via) = r.via
        && !r.on_link
        && !is_link_local(via)
        && t.link_to(via) != Some(r.device)
    {
        return Err(unreachable(via));
    }
    if let Some(source) = r.source
        && !t.has_address(source)
        && !source.is_loopback()
    {
        return Err(EINVAL);
    }
    Ok(())
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(a) if a.is_unicast_link_local())
}

fn told(n: &Neighbour) -> NeighbourInfo {
    NeighbourInfo {
        device: n.device,
        ip: n.ip,
        mac: Some(n.mac),
        state: NeighbourState::Permanent,
        router: false,
    }
}

/// A device has no IPv6 any longer: its addresses go, and its routes.
pub(super) fn forget_v6(t: &mut Table, index: i32, news: &mut Vec<News>) {
    let Some(e) = t.entries.get_mut(&index) else {
        return;
    };
    let name = e.name.clone();
    let (gone, rest) = std::mem::take(&mut e.addresses)
        .into_iter()
        .partition(|(a, _)| a.ip.is_ipv6());
    e.addresses = rest;
    let gone: Vec<(Address, _)> = gone;
    for (a, _) in gone {
        t.disconnect(index, &a, news);
        news.push(News::AddressGone(index, name.clone(), a));
    }
    let stays = |r: &Route| r.to.is_ipv4() || r.device != index || !r.has_device();
    t.routes.retain(|(r, _)| stays(r));
}

impl Table {
    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        let mut all = self.entries.values().flat_map(|e| &e.addresses);
        all.any(|(a, _)| a.ip == ip)
    }

    /// The device on whose link an address is.
    fn link_to(&self, ip: IpAddr) -> Option<i32> {
        let on_link = |r: &&Route| {
            r.table == TABLE_MAIN
                && r.has_device()
                && r.via.is_none()
                && r.to.is_ipv4() == ip.is_ipv4()
                && network(ip, r.prefix) == r.to
        };
        let all = self.routes.iter().map(|(r, _)| r).filter(on_link);
        all.max_by_key(|r| r.prefix).map(|r| r.device)
    }
}
