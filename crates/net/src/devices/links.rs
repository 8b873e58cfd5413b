//! Devices that are made, changed and taken away (RTM_NEWLINK and its kin).

use super::bridge::Bridge;
use super::device::{Device, Kind};
use super::news::News;
use super::table::{Address, Entry, Table};
use super::tun::{Layer, Tun};
use crate::interface::LO_INDEX;
use crate::ns::NetNamespace;
use crate::route::network;
use abi::Result;
use abi::errno::{EADDRNOTAVAIL, EBUSY, EEXIST, EINVAL, ELOOP, ENODEV, ENOMEM, EOPNOTSUPP};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, OnceLock};
use vfs::ucounts::Ucounts;

/// What kinds can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NewKind {
    Dummy,
    Veth,
    Bridge,
    Tun(Layer),
}

impl NewKind {
    pub fn of(name: &[u8]) -> Result<NewKind> {
        match name {
            b"dummy" => Ok(NewKind::Dummy),
            b"veth" => Ok(NewKind::Veth),
            b"bridge" => Ok(NewKind::Bridge),
            _ => Err(EOPNOTSUPP),
        }
    }

    fn name(self) -> &'static str {
        match self {
            NewKind::Dummy => "dummy",
            NewKind::Veth => "veth",
            NewKind::Bridge => "bridge",
            NewKind::Tun(Layer::Ip) => "tun",
            NewKind::Tun(Layer::Ethernet) => "tap",
        }
    }
}

/// What a device is to be, where that is said: a new one, or another's change.
#[derive(Clone, Default)]
pub(crate) struct LinkRequest {
    pub name: Option<String>,
    /// Of a new one; 0: any.
    pub index: i32,
    pub mac: Option<[u8; 6]>,
    pub mtu: Option<u32>,
    pub up: Option<bool>,
    pub queue: Option<u32>,
    pub group: Option<u32>,
    /// 0: none.
    pub master: Option<i32>,
    /// Whether it gets a link-local address when it is up.
    pub link_local: Option<bool>,
    pub ns: Option<Arc<NetNamespace>>,
}

/// `dev_valid_name`.
pub(super) fn check_name(name: &str) -> Result<()> {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace();
    if name.is_empty() || name.len() > 15 || name == "." || name == ".." || name.contains(bad) {
        return Err(EINVAL);
    }
    Ok(())
}

/// A name that is free: as it was wished, or with a number in place of its `%d`.
pub(super) fn free_name(table: &Table, name: &str) -> Result<String> {
    check_name(name)?;
    if let Some((before, after)) = name.split_once("%d") {
        let all = (0..1024).map(|n| format!("{before}{n}{after}"));
        let mut free = all.filter(|n| table.by_name(n).is_none());
        let name = free.next().ok_or(EEXIST)?;
        return check_name(&name).map(|()| name);
    }
    if table.by_name(name).is_some() {
        return Err(EEXIST);
    }
    Ok(name.into())
}

/// Whether a device has no link headers, and so no address.
fn has_no_header(kind: &Kind) -> bool {
    matches!(kind, Kind::Tun(t) if t.layer == Layer::Ip)
}

fn random_mac() -> [u8; 6] {
    let mut mac = [0; 6];
    hostcall::time::random(&mut mac);
    mac[0] = mac[0] & !1 | 2;
    mac
}

/// The link-local address of a device (RFC 4291, appendix A).
fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.map(u16::from);
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        (a ^ 2) << 8 | b,
        c << 8 | 0xff,
        0xfe00 | d,
        e << 8 | f,
    )
}

impl NetNamespace {
    /// Makes a device; of a veth both ends. Its index.
    pub(crate) fn add_link(
        self: &Arc<Self>,
        kind: NewKind,
        wanted: &LinkRequest,
        peer: &LinkRequest,
        owner: Option<&Arc<Ucounts>>,
    ) -> Result<i32> {
        let (ours, theirs) = (wanted.ns.as_ref().unwrap_or(self), peer.ns.as_ref());
        let make = |kind| {
            move |ns: &Arc<NetNamespace>, w: &LinkRequest| {
                let has_none = has_no_header(&kind);
                let mac = match w.mac {
                    _ if has_none => [0; 6],
                    Some(mac) => mac,
                    None => random_mac(),
                };
                if mac[0] & 1 == 1 || mac == [0; 6] && !has_none {
                    return Err(EADDRNOTAVAIL);
                }
                Device::new(ns, kind, w.index, mac, owner).ok_or(ENOMEM)
            }
        };
        match kind {
            NewKind::Dummy => {
                let device = make(Kind::Dummy)(ours, wanted)?;
                ours.insert_link(device, kind, wanted)
            }
            NewKind::Tun(layer) => {
                let device = make(Kind::Tun(Tun::new(layer)))(ours, wanted)?;
                ours.insert_link(device, kind, wanted)
            }
            NewKind::Bridge => {
                let device = make(Kind::Bridge(Bridge::default()))(ours, wanted)?;
                ours.insert_link(device, kind, wanted)
            }
            NewKind::Veth => {
                let far = theirs.unwrap_or(ours);
                let a = make(Kind::Veth(OnceLock::new()))(ours, wanted)?;
                let b = make(Kind::Veth(OnceLock::new()))(far, peer)?;
                for (this, other) in [(&a, &b), (&b, &a)] {
                    if let Kind::Veth(at) = &this.kind {
                        let _ = at.set(other.weak());
                    }
                }
                let there = far.insert_link(b, kind, peer)?;
                let here = ours.insert_link(a, kind, wanted);
                if here.is_err() {
                    far.remove_orphan(there);
                }
                here
            }
        }
    }

    fn insert_link(
        self: &Arc<Self>,
        device: Arc<Device>,
        kind: NewKind,
        wanted: &LinkRequest,
    ) -> Result<i32> {
        if self.host.is_some() || self.way_out.is_some() {
            return Err(EOPNOTSUPP);
        }
        let index = {
            let mut t = self.table.lock();
            let numbered = format!("{}%d", kind.name());
            let name = free_name(&t, wanted.name.as_deref().unwrap_or(&numbered))?;
            let index = match wanted.index {
                0 => t.next_index()?,
                n if n < 0 => return Err(EINVAL),
                n if t.entries.contains_key(&n) => return Err(EBUSY),
                n => {
                    t.next_index()?;
                    n
                }
            };
            let mtu = wanted.mtu.unwrap_or(1500);
            if !(68..=65_535).contains(&mtu) {
                return Err(EINVAL);
            }
            let entry = Entry {
                name,
                up: false,
                mtu,
                most_mtu: 65_535,
                mac: device.place().mac,
                addresses: Vec::new(),
                master: None,
                queue: wanted.queue.unwrap_or(1000),
                group: wanted.group.unwrap_or(0),
                started: false,
                link_local: wanted.link_local.unwrap_or(true),
                taken_flags: 0,
                // Programs say whether they take super-segments.
                gso_max: if matches!(kind, NewKind::Tun(_)) {
                    0
                } else {
                    65_536
                },
                device,
            };
            t.entries.insert(index, entry);
            self.apply(&t);
            index
        };
        self.tell_link(index);
        let rest = LinkRequest {
            up: wanted.up,
            master: wanted.master,
            ..LinkRequest::default()
        };
        if let Err(e) = self.change_link(index, &rest) {
            self.remove_orphan(index);
            return Err(e);
        }
        Ok(index)
    }

    /// Changes a device.
    pub(crate) fn change_link(self: &Arc<Self>, index: i32, w: &LinkRequest) -> Result<()> {
        if self.host.is_some() || self.way_out.is_some() && index != LO_INDEX {
            return Err(EOPNOTSUPP);
        }
        if let Some(to) = w.ns.as_ref().filter(|to| !Arc::ptr_eq(to, self)) {
            let index = self.move_link(index, to, w.name.as_deref())?;
            let rest = LinkRequest {
                ns: None,
                name: None,
                ..w.clone()
            };
            return to.change_link(index, &rest);
        }
        let news = {
            let mut t = self.table.lock();
            let mut news = Vec::new();
            change(&mut t, index, w)?;
            if let Some(up) = w.up {
                set_up(&mut t, index, up, &mut news);
                if up && !self.confs_for(&t).lacks_v6(index) {
                    gains_v6(&mut t, index, &mut news);
                }
            }
            self.apply(&t);
            news
        };
        self.tell_link(index);
        if w.up == Some(false) {
            self.taps.device_gone(index);
        }
        // Its other end has a carrier now, or none.
        if w.up.is_some() {
            self.carrier_changed(index);
        }
        self.tell(&news);
        Ok(())
    }

    /// The stack may make super-segments of so many bytes for it; 0: none.
    pub(crate) fn set_gso_max(self: &Arc<Self>, index: i32, max: u32) {
        let mut t = self.table.lock();
        let entry = t.entries.get_mut(&index);
        if let Some(e) = entry.filter(|e| e.gso_max != max) {
            e.gso_max = max;
            self.apply(&t);
        }
    }

    fn carrier_changed(&self, index: i32) {
        let peer = self
            .table
            .lock()
            .entries
            .get(&index)
            .and_then(|e| e.device.peer());
        let Some(place) = peer.map(|p| p.place()) else {
            return;
        };
        if let Some(ns) = place.ns.upgrade() {
            ns.tell_link(place.index);
        }
    }

    /// Moves a device to another namespace, where it is down and has no addresses; its index there.
    fn move_link(
        self: &Arc<Self>,
        index: i32,
        to: &Arc<NetNamespace>,
        name: Option<&str>,
    ) -> Result<i32> {
        if to.host.is_some() || to.way_out.is_some() {
            return Err(EOPNOTSUPP);
        }
        if let Some(n) = name {
            check_name(n)?;
        }
        // Looked at before, so that it does not vanish for nothing.
        let own = self.interface(index).map(|i| i.name).ok_or(ENODEV)?;
        if to.has_link(name.unwrap_or(&own)) {
            return Err(EEXIST);
        }
        let (mut entry, gone, news) = {
            let mut t = self.table.lock();
            let e = t.entries.get(&index).ok_or(ENODEV)?;
            if matches!(
                e.device.kind,
                Kind::Loopback | Kind::Taken | Kind::Bridge(_)
            ) {
                return Err(EINVAL);
            }
            let gone = e.info(index, self);
            let mut news = Vec::new();
            let entry = take_out(&mut t, index, &mut news).ok_or(ENODEV)?;
            self.apply(&t);
            (entry, gone, news)
        };
        self.tell(&news);
        self.tell(&[News::LinkGone(gone)]);
        if let Some(n) = name {
            entry.name = n.into();
        }
        entry.addresses.clear();
        (entry.up, entry.started, entry.master) = (false, false, None);
        let new = {
            let mut t = to.table.lock();
            let next = t.next_index()?;
            let new = if t.entries.contains_key(&index) {
                next
            } else {
                index
            };
            if t.by_name(&entry.name).is_some() {
                entry.name = format!("dev{new}");
            }
            let ns = Arc::downgrade(to);
            entry
                .device
                .set_place(|p| (p.ns, p.index, p.up, p.bridge) = (ns, new, false, None));
            t.entries.insert(new, entry);
            to.apply(&t);
            new
        };
        to.tell_link(new);
        Ok(new)
    }

    pub(crate) fn has_link(&self, name: &str) -> bool {
        self.table.lock().by_name(name).is_some()
    }

    /// Takes a device away; of a veth both ends.
    pub(crate) fn delete_link(self: &Arc<Self>, index: i32) -> Result<()> {
        let peer = {
            let t = self.table.lock();
            let e = t.entries.get(&index).ok_or(ENODEV)?;
            if matches!(e.device.kind, Kind::Loopback | Kind::Taken) {
                return Err(EOPNOTSUPP);
            }
            e.device.peer().map(|p| p.place())
        };
        self.remove_orphan(index);
        if let Some(place) = peer
            && let Some(ns) = place.ns.upgrade()
        {
            ns.remove_orphan(place.index);
        }
        Ok(())
    }

    /// Takes a device away, and nothing else.
    pub(crate) fn remove_orphan(self: &Arc<Self>, index: i32) {
        let (entry, gone, news, ports) = {
            let mut t = self.table.lock();
            let Some(e) = t.entries.get(&index) else {
                return;
            };
            let gone = e.info(index, self);
            let mut news = Vec::new();
            let mut ports = Vec::new();
            for (port, e) in &mut t.entries {
                if e.master == Some(index) {
                    e.master = None;
                    ports.push(*port);
                }
            }
            let entry = take_out(&mut t, index, &mut news);
            self.apply(&t);
            (entry, gone, news, ports)
        };
        // Without the table's lock: it may be the last of it.
        drop(entry);
        self.taps.device_gone(index);
        self.tell(&news);
        for p in ports {
            self.tell_link(p);
        }
        self.tell(&[News::LinkGone(gone)]);
    }
}

/// Takes a device out of the table, with its routes, its place in a bridge and its neighbours.
fn take_out(t: &mut Table, index: i32, news: &mut Vec<News>) -> Option<Entry> {
    set_up(t, index, false, news);
    set_master(t, index, 0).ok();
    t.neighbours.retain(|(n, _)| n.device != index as u32);
    let e = t.entries.remove(&index)?;
    for (a, _) in &e.addresses {
        news.push(News::AddressGone(index, e.name.clone(), a.clone()));
    }
    Some(e)
}

fn change(t: &mut Table, index: i32, w: &LinkRequest) -> Result<()> {
    let e = t.entries.get(&index).ok_or(ENODEV)?;
    let taken = matches!(e.device.kind, Kind::Taken);
    let loopback = e.is_loopback();
    if let Some(name) = &w.name
        && *name != e.name
    {
        check_name(name)?;
        if t.by_name(name).is_some() {
            return Err(EEXIST);
        }
    }
    if let Some(mac) = w.mac {
        // Frames for another address would not come.
        if loopback || taken && mac != e.mac || has_no_header(&e.device.kind) {
            return Err(EOPNOTSUPP);
        }
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return Err(EADDRNOTAVAIL);
        }
    }
    if let Some(mtu) = w.mtu {
        let least = if loopback { 0 } else { 68 };
        if mtu < least || mtu > e.most_mtu {
            return Err(EINVAL);
        }
    }
    if let Some(master) = w.master {
        set_master(t, index, master)?;
    }
    let e = t.entries.get_mut(&index).ok_or(ENODEV)?;
    if let Some(name) = &w.name {
        e.name.clone_from(name);
    }
    e.mac = w.mac.unwrap_or(e.mac);
    e.mtu = w.mtu.unwrap_or(e.mtu);
    e.queue = w.queue.unwrap_or(e.queue);
    e.group = w.group.unwrap_or(e.group);
    e.link_local = w.link_local.unwrap_or(e.link_local);
    Ok(())
}

/// Makes a device a port of a bridge, or of none (0).
fn set_master(t: &mut Table, index: i32, master: i32) -> Result<()> {
    let e = t.entries.get(&index).ok_or(ENODEV)?;
    let port = e.device.clone();
    let old = e.master;
    if old == Some(master) || old.is_none() && master == 0 {
        return Ok(());
    }
    let new = match master {
        0 => None,
        n => {
            let b = t.entries.get(&n).ok_or(ENODEV)?;
            if !matches!(b.device.kind, Kind::Bridge(_)) {
                return Err(EOPNOTSUPP);
            }
            match port.kind {
                Kind::Bridge(_) => return Err(ELOOP),
                Kind::Loopback => return Err(EINVAL),
                _ if has_no_header(&port.kind) => return Err(EINVAL),
                // Frames for others do not come by it.
                Kind::Taken => return Err(EOPNOTSUPP),
                _ => Some(b.device.clone()),
            }
        }
    };
    let leave = old
        .and_then(|n| t.entries.get(&n))
        .map(|e| e.device.clone());
    if let Some(Kind::Bridge(b)) = leave.as_ref().map(|d| &d.kind) {
        b.remove(&port);
    }
    if let Some(Kind::Bridge(b)) = new.as_ref().map(|d| &d.kind) {
        b.add(&port);
    }
    if let Some(e) = t.entries.get_mut(&index) {
        e.master = new.as_ref().map(|_| master);
    }
    Ok(())
}

/// Takes a device up or down, with what follows: its networks are reached or not, and IPv6 has its
/// addresses while it is up.
fn set_up(t: &mut Table, index: i32, up: bool, news: &mut Vec<News>) {
    let Some(e) = t.entries.get_mut(&index) else {
        return;
    };
    if e.up == up {
        return;
    }
    e.up = up;
    e.started |= up;
    let name = e.name.clone();
    if !up {
        let is_v6 = |a: &Address| a.ip.is_ipv6();
        for (a, _) in e.addresses.iter().filter(|(a, _)| is_v6(a)) {
            news.push(News::AddressGone(index, name.clone(), a.clone()));
        }
        e.addresses.retain(|(a, _)| !is_v6(a));
    }
    if e.is_loopback() {
        if up {
            address_loopback(t, IpAddr::is_ipv4, news);
        }
        return;
    }
    if !up {
        t.routes
            .retain(|(r, _)| r.device != index || !r.has_device());
        return;
    }
    let all: Vec<Address> = e.addresses.iter().map(|(a, _)| a.clone()).collect();
    for a in all {
        t.connect(index, &a, news);
    }
}

fn address_loopback(t: &mut Table, of: impl Fn(&IpAddr) -> bool, news: &mut Vec<News>) {
    let new = t.address_loopback(of);
    let name = t.entries.get(&LO_INDEX).map(|e| e.name.clone());
    let name = name.unwrap_or_default();
    news.extend(
        new.into_iter()
            .map(|a| News::Address(LO_INDEX, name.clone(), a)),
    );
}

/// A device that is up has IPv6 from now on: the address that it makes itself.
pub(super) fn gains_v6(t: &mut Table, index: i32, news: &mut Vec<News>) {
    let Some(e) = t.entries.get_mut(&index).filter(|e| e.up) else {
        return;
    };
    if e.is_loopback() {
        return address_loopback(t, IpAddr::is_ipv6, news);
    }
    let is_local = |a: &Address| matches!(a.ip, IpAddr::V6(i) if i.is_unicast_link_local());
    let has_local = e.addresses.iter().any(|(a, _)| is_local(a));
    if e.master.is_some() || has_local || !e.link_local {
        return;
    }
    let a = Address::new(link_local(e.mac).into(), 64);
    news.push(News::Address(index, e.name.clone(), a.clone()));
    e.insert(a.clone(), None);
    t.connect(index, &a, news);
}

impl Table {
    /// The network of an address is reached by its device from now on.
    pub(super) fn connect(&mut self, index: i32, a: &Address, news: &mut Vec<News>) {
        use super::table::{NO_PREFIX_ROUTE, SECONDARY};
        let up = self
            .entries
            .get(&index)
            .is_some_and(|e| e.up && !e.is_loopback());
        if !up || a.flags & (NO_PREFIX_ROUTE | SECONDARY) != 0 {
            return;
        }
        if a.ip.is_ipv4() && a.prefix == 32 && a.peer.is_none() {
            return;
        }
        let r = crate::route::Route::connected(index, a.network(), a.ip);
        let known = |o: &crate::route::Route| {
            (o.to, o.prefix, o.device, o.metric, o.table)
                == (r.to, r.prefix, r.device, r.metric, r.table)
        };
        if !self.routes.iter().any(|(o, _)| known(o)) {
            news.push(News::Route(r.clone()));
            self.routes.push((r, None));
            self.sort_routes();
        }
    }

    /// The network of an address that has gone is reached no more, unless another one is in it.
    pub(super) fn disconnect(&mut self, index: i32, a: &Address, news: &mut Vec<News>) {
        let net = a.network();
        let others = self.entries.get(&index).is_some_and(|e| {
            let same = |o: &Address| {
                o.network() == net || o.prefix == net.1 && network(o.ip, net.1) == net.0
            };
            e.addresses.iter().any(|(o, _)| same(o))
        });
        if others {
            return;
        }
        let is_its = |r: &crate::route::Route| {
            r.device == index && (r.to, r.prefix) == net && r.is_connected()
        };
        for (r, _) in self.routes.iter().filter(|(r, _)| is_its(r)) {
            news.push(News::RouteGone(r.clone()));
        }
        self.routes.retain(|(r, _)| !is_its(r));
        // Routes that prefer it as their source go, too.
        self.routes
            .retain(|(r, _)| r.source != Some(a.ip) || r.device != index);
    }
}
