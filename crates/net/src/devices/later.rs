//! Devices of the host that come, change and go while programs run.
//!
//! # What holds
//!
//! - A device of the host's keeps its index and its name, unless a program's device has them: then
//!   it has others here. What the host says of it names it by its index there.
//! - What the host's namespace says now wins: a route by a gateway takes the place of what led to
//!   the same network before, an MTU that was changed there is the device's, whatever a program had
//!   set. What a program has taken away stays away, unless it is told of again.
//! - Numbers of all objects stay within those of [`super::table`]; what is beyond is left out.

use super::addresses::forget_v6;
use super::device::Kind;
use super::news::News;
use super::table::{Address, MOST_ADDRESSES, MOST_NEIGHBOURS, MOST_ROUTES, SECONDARY, Table};
use super::{Gate, Link, Setup};
use crate::ns::NetNamespace;
use crate::route::Route;
use crate::stack::Stack;
use abi::Result;
use abi::errno::{EBUSY, EINVAL, ENODEV};
use hostcall::HostFd;
use netstack::ip::{NeighbourInfo, NeighbourState};
use netstack::setup;
use std::collections::HashMap;
use std::sync::Arc;

/// What has become of the devices of a namespace of the host since they were told of last.
pub struct Change {
    /// Those that were told of and are there still, by their indices and hardware addresses on the
    /// host. All others have gone.
    pub there: Vec<(u32, [u8; 6])>,
    /// Those that are up or have something new: of those that were there with the addresses that
    /// are new, of those that have come with all; and of all, routes and neighbours that are new.
    pub setup: Setup,
    /// A socket for each of these, in their order.
    pub links: Vec<Link>,
    /// As of [`NetNamespace::attach_devices`]; for a namespace that had none.
    pub names: Option<HostFd>,
    /// What may leave, for a namespace that had no devices; else this host's addresses of it.
    pub gate: Gate,
}

/// The devices of the host: their indices there and here.
type Places = HashMap<u32, i32>;

impl NetNamespace {
    /// Follows what has become of the devices of the host.
    ///
    /// # Errors
    ///
    /// `EINVAL` where there is not one socket for each device; `ENODEV` where one that was there is
    /// not known here; `EBUSY` where there is another way out, or no [`NetNamespace::set_bells`];
    /// `EAGAIN` where no thread can be made; `ENOSPC` where there are too many devices.
    pub fn change_devices(self: &Arc<Self>, c: Change) -> Result<()> {
        if c.setup.devices.len() != c.links.len() {
            return Err(EINVAL);
        }
        let _one_at_a_time = self.taking.lock();
        let stack = self.stack_for_host(c.gate)?;
        let known = stack.taken_devices();
        let now: Vec<_> = c.setup.devices.iter().map(|d| (d.index, d.mac)).collect();
        let is_strange = |d: &&(u32, [u8; 6])| c.there.contains(d) && !known.contains(d);
        if now.iter().any(|d| is_strange(&d)) {
            return Err(ENODEV);
        }
        stack.learn_names(c.names);
        for d in &known {
            if !now.contains(d) && !c.there.contains(d) {
                self.lose(&stack, d.0);
            }
        }
        let before = stack.taken();
        let mut news = Vec::new();
        let done = {
            let mut t = self.table.lock();
            let mut places = before.clone();
            let of = Follow {
                ns: self,
                places: &mut places,
                news: &mut news,
            };
            let done = of.follow(&mut t, &stack, &c.setup, c.links);
            self.apply(&t);
            done
        };
        self.tell(&news);
        if done.is_err() {
            // All or none.
            let came = |d: &&setup::Device| !before.contains_key(&d.index);
            for d in c.setup.devices.iter().filter(came) {
                self.lose(&stack, d.index);
            }
        }
        done
    }

    /// The stack, with threads that receive.
    fn stack_for_host(self: &Arc<Self>, gate: Gate) -> Result<Arc<Stack>> {
        if self.host.is_some() || self.way_out.is_some() {
            return Err(EBUSY);
        }
        if let Some(s) = self.stack().filter(|s| s.serves()) {
            s.set_own_addresses(gate.rules.own);
            return Ok(s.clone());
        }
        let stack = self.need_stack();
        stack.bells(|| self.take_bells()).ok_or(EBUSY)?;
        stack.gate.tell_to(gate.log);
        stack.set_rules(gate.rules);
        stack.serve()?;
        Ok(stack.clone())
    }

    /// A device of the host's is gone.
    fn lose(self: &Arc<Self>, stack: &Stack, host: u32) {
        if let Some(index) = stack.taken().get(&host) {
            self.remove_orphan(*index);
            stack.leave_taken(host);
        }
    }
}

/// What has been found, and is told.
struct Follow<'a> {
    ns: &'a Arc<NetNamespace>,
    places: &'a mut Places,
    news: &'a mut Vec<News>,
}

impl Follow<'_> {
    fn follow(
        mut self,
        t: &mut Table,
        stack: &Stack,
        setup: &Setup,
        links: Vec<Link>,
    ) -> Result<()> {
        for (d, link) in setup.devices.iter().zip(links) {
            if self.places.contains_key(&d.index) {
                // It may have left its namespace meanwhile: no frame comes by the old socket then.
                stack.renew(d.index, link);
                self.stay(t, d);
            } else {
                self.come(t, stack, d, link)?;
            }
        }
        for r in &setup.routes {
            self.route(t, r);
        }
        t.sort_routes();
        for n in &setup.neighbours {
            self.neighbour(t, n);
        }
        Ok(())
    }

    /// A device has come.
    fn come(&mut self, t: &mut Table, stack: &Stack, d: &setup::Device, link: Link) -> Result<()> {
        let free = |i: &i32| *i > 1 && !t.entries.contains_key(i);
        let own = i32::try_from(d.index).ok().filter(free);
        let next = t.next_index()?;
        let index = own.unwrap_or(next);
        let name = match t.by_name(&d.name) {
            None if super::links::check_name(&d.name).is_ok() => d.name.clone(),
            _ => super::links::free_name(t, "eth%d")?,
        };
        stack.take(d.index, index, d.mac, link)?;
        self.places.insert(d.index, index);
        t.take_device(self.ns, d, index, name.clone());
        if self.ns.confs_for(t).lacks_v6(index) {
            forget_v6(t, index, &mut Vec::new());
        }
        let room = MOST_ADDRESSES.saturating_sub(t.addresses());
        let Some(e) = t.entries.get_mut(&index) else {
            return Ok(());
        };
        if room == 0 {
            e.addresses.clear();
        }
        self.news.push(News::Link(e.info(index, self.ns)));
        for (a, _) in &e.addresses {
            let told = News::Address(index, name.clone(), a.clone());
            self.news.push(told);
        }
        Ok(())
    }

    /// A device is there still.
    fn stay(&mut self, t: &mut Table, d: &setup::Device) {
        let Some(index) = self.places.get(&d.index).copied() else {
            return;
        };
        let lacks_v6 = self.ns.confs_for(t).lacks_v6(index);
        let mut room = MOST_ADDRESSES.saturating_sub(t.addresses());
        let Some(e) = t.entries.get_mut(&index) else {
            return;
        };
        if !matches!(e.device.kind, Kind::Taken) {
            return;
        }
        if d.mtu != e.most_mtu {
            (e.most_mtu, e.mtu) = (d.mtu, d.mtu);
            self.news.push(News::Link(e.info(index, self.ns)));
        }
        for a in &d.addresses {
            let Some(e) = t.entries.get_mut(&index) else {
                return;
            };
            let known = |o: &Address| o.ip == a.ip && (a.ip.is_ipv6() || o.prefix == a.prefix);
            let is_known = e.addresses.iter().any(|(o, _)| known(o));
            if is_known || a.ip.is_ipv6() && lacks_v6 || room == 0 {
                continue;
            }
            room -= 1;
            let mut new = Address::of_setup(a);
            let in_net = |o: &Address| o.ip.is_ipv4() && o.network() == new.network();
            if a.ip.is_ipv4() && e.addresses.iter().any(|(o, _)| in_net(o)) {
                new.flags |= SECONDARY;
            }
            e.insert(new.clone(), None);
            let told = News::Address(index, e.name.clone(), new.clone());
            self.news.push(told);
            t.connect(index, &new, self.news);
        }
    }

    fn route(&mut self, t: &mut Table, r: &setup::Route) {
        let mut new = Route::of_setup(r);
        if new.has_device() {
            let Some(index) = self.places.get(&r.device) else {
                return;
            };
            new.device = *index;
            // As on Linux, none leads by a device that is down.
            if !t.entries.get(index).is_some_and(|e| e.up) {
                return;
            }
            if r.network.is_ipv6() && self.ns.confs_for(t).lacks_v6(*index) {
                return;
            }
        }
        let same = |o: &Route| {
            (o.to, o.prefix, o.metric, o.table) == (new.to, new.prefix, new.metric, new.table)
        };
        let way = |o: &Route| (o.via, o.kind, o.has_device().then_some(o.device));
        let is_known = |o: &Route| same(o) && way(o) == way(&new);
        if t.routes.iter().any(|(o, _)| is_known(o)) {
            return;
        }
        if new.via.is_some() {
            for (o, _) in t.routes.iter().filter(|(o, _)| same(o)) {
                self.news.push(News::RouteGone(o.clone()));
            }
            t.routes.retain(|(o, _)| !same(o));
        }
        if t.routes.len() < MOST_ROUTES {
            self.news.push(News::Route(new.clone()));
            t.routes.push((new, None));
        }
    }

    fn neighbour(&mut self, t: &mut Table, n: &setup::Neighbour) {
        let Some(index) = self.places.get(&n.device) else {
            return;
        };
        let new = setup::Neighbour {
            device: *index as u32,
            ..*n
        };
        let same = |(o, _): &&mut (setup::Neighbour, _)| (o.device, o.ip) == (new.device, new.ip);
        let is_full = t.neighbours.len() >= MOST_NEIGHBOURS;
        match t.neighbours.iter_mut().find(same) {
            Some((o, _)) => *o = new,
            None if is_full => return,
            None => t.neighbours.push((new, None)),
        }
        self.news.push(News::Neighbour(NeighbourInfo {
            device: new.device,
            ip: new.ip,
            mac: Some(new.mac),
            state: NeighbourState::Permanent,
            router: false,
        }));
    }
}
