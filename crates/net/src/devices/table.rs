//! What a namespace says of its devices: names, addresses, routes, neighbours (`rtnetlink(7)`).
//!
//! # What holds
//!
//! - The table is what programs are told and what they change. The stack and the devices are told
//!   of each change by [`NetNamespace::apply`], with the table's lock held; it is before the
//!   stack's own locks, the devices' and the sockets'. No two namespaces' tables are locked at
//!   once.
//! - Numbers of all objects are bounded, and each is charged to who made it.

use super::conf::Confs;
use super::device::{Device, Kind};
use super::tun::Layer;
use crate::interface::{Interface, LO_INDEX};
use crate::ns::{LOOPBACKS, Link, NetNamespace};
use crate::route::{Route, TABLE_MAIN};
use abi::Result;
use abi::errno::{ENOMEM, ENOSPC};
use netstack::setup::{self, Setup};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use vfs::ucounts::{Charge, Kind as Counted, Ucounts};

pub(super) const MOST_DEVICES: usize = 256;
pub(super) const MOST_ADDRESSES: usize = 1024;
pub(super) const MOST_ROUTES: usize = 4096;
pub(super) const MOST_NEIGHBOURS: usize = 1024;

/// `RT_SCOPE_*`.
pub(crate) const SCOPE_UNIVERSE: u8 = 0;
pub(crate) const SCOPE_LINK: u8 = 253;
pub(crate) const SCOPE_HOST: u8 = 254;

/// `IFA_F_*`.
pub(crate) const NO_DAD: u32 = 2;
pub(crate) const SECONDARY: u32 = 1;
pub(crate) const PERMANENT: u32 = 0x80;
pub(crate) const NO_PREFIX_ROUTE: u32 = 0x200;

const IFF_UP: u32 = 1;
const IFF_BROADCAST: u32 = 2;
const IFF_LOOPBACK: u32 = 8;
const IFF_POINTOPOINT: u32 = 0x10;
const IFF_RUNNING: u32 = 0x40;
const IFF_NOARP: u32 = 0x80;
const IFF_MULTICAST: u32 = 0x1000;
/// `IFF_LOWER_UP`, which only netlink tells.
pub(crate) const LOWER_UP: u32 = 0x1_0000;

/// An address of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub ip: IpAddr,
    pub prefix: u8,
    /// The other end of a link of two.
    pub peer: Option<IpAddr>,
    pub broadcast: Option<IpAddr>,
    pub scope: u8,
    /// `IFA_F_*`.
    pub flags: u32,
    pub label: Option<String>,
}

impl Address {
    /// One that is there for ever.
    pub fn new(ip: IpAddr, prefix: u8) -> Address {
        let scope = match ip {
            _ if ip.is_loopback() => SCOPE_HOST,
            IpAddr::V6(a) if a.is_unicast_link_local() => SCOPE_LINK,
            _ => SCOPE_UNIVERSE,
        };
        Address {
            ip,
            prefix,
            peer: None,
            broadcast: None,
            scope,
            flags: PERMANENT,
            label: None,
        }
    }

    /// As the host had it.
    pub fn of_setup(a: &setup::Address) -> Address {
        Address {
            broadcast: a.broadcast,
            scope: a.scope,
            ..Address::new(a.ip, a.prefix)
        }
    }

    /// The network that it makes reachable.
    pub fn network(&self) -> (IpAddr, u8) {
        let of = self.peer.unwrap_or(self.ip);
        (crate::route::network(of, self.prefix), self.prefix)
    }
}

/// A device as its namespace has it.
pub(crate) struct Entry {
    pub device: Arc<Device>,
    pub name: String,
    pub up: bool,
    pub mtu: u32,
    /// The largest that it may have.
    pub most_mtu: u32,
    pub mac: [u8; 6],
    pub addresses: Vec<(Address, Option<Charge>)>,
    /// The bridge that it is a port of.
    pub master: Option<i32>,
    pub queue: u32,
    pub group: u32,
    /// Whether it was ever up, and whether it gets a link-local address when it is.
    pub started: bool,
    pub link_local: bool,
    /// The host's `IFF_*`, of one that was taken over, and its `gso_max_size`.
    pub taken_flags: u32,
    pub gso_max: u32,
}

/// A device, as it is told.
#[derive(Clone, Debug)]
pub(crate) struct LinkInfo {
    pub interface: Interface,
    pub kind: Option<&'static str>,
    pub carrier: bool,
    /// Whether its state is not known.
    pub linkless: bool,
    pub master: Option<i32>,
    /// The other end's index, and whether it is in this namespace.
    pub peer: Option<(i32, bool)>,
    pub queue: u32,
    pub group: u32,
    /// Whether it was ever up.
    pub started: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Table {
    pub entries: BTreeMap<i32, Entry>,
    pub routes: Vec<(Route, Option<Charge>)>,
    pub neighbours: Vec<(setup::Neighbour, Option<Charge>)>,
    pub last: i32,
}

impl Entry {
    pub fn is_loopback(&self) -> bool {
        matches!(self.device.kind, Kind::Loopback)
    }

    pub fn carrier(&self) -> bool {
        self.device.has_carrier()
    }

    /// `IFF_*`.
    pub fn flags(&self) -> u32 {
        let fixed = match &self.device.kind {
            Kind::Loopback => IFF_LOOPBACK,
            Kind::Taken => self.taken_flags & !(IFF_UP | IFF_RUNNING),
            Kind::Dummy => IFF_BROADCAST | IFF_NOARP,
            Kind::Tun(t) if t.layer == Layer::Ip => IFF_POINTOPOINT | IFF_NOARP | IFF_MULTICAST,
            _ => IFF_BROADCAST | IFF_MULTICAST,
        };
        match (self.up, self.carrier()) {
            (true, true) => fixed | IFF_UP | IFF_RUNNING,
            (true, false) => fixed | IFF_UP,
            _ => fixed,
        }
    }

    pub fn interface(&self, index: i32) -> Interface {
        Interface {
            name: self.name.clone(),
            index,
            flags: self.flags(),
            mtu: self.mtu,
            mac: self.mac,
            addresses: self
                .addresses
                .iter()
                .map(|(a, _)| (a.ip, a.prefix))
                .collect(),
        }
    }

    pub fn info(&self, index: i32, here: &Arc<NetNamespace>) -> LinkInfo {
        let peer = self.device.peer().map(|p| {
            let place = p.place();
            (
                place.index,
                std::ptr::eq(place.ns.as_ptr(), &raw const **here),
            )
        });
        LinkInfo {
            interface: self.interface(index),
            kind: self.device.name_of_kind(),
            carrier: self.carrier(),
            linkless: self.device.is_linkless(),
            master: self.master,
            peer,
            queue: self.queue,
            group: self.group,
            started: self.started,
        }
    }
}

impl Entry {
    /// Adds an address where Linux lists it: IPv4's first ones by scope, then the others of their
    /// networks (`__inet_insert_ifa`); IPv6's by scope, the newest first (`ipv6_link_dev_addr`).
    pub fn insert(&mut self, a: Address, memory: Option<Charge>) {
        let is_first = |o: &Address| o.ip.is_ipv4() && o.flags & SECONDARY == 0;
        let count = |f: &dyn Fn(&Address) -> bool| {
            self.addresses
                .iter()
                .rposition(|(o, _)| f(o))
                .map_or(0, |n| n + 1)
        };
        let at = match a.ip {
            IpAddr::V4(_) if is_first(&a) => count(&|o| is_first(o) && o.scope >= a.scope),
            IpAddr::V4(_) => count(&|o| o.ip.is_ipv4()),
            // A smaller number is a larger scope.
            IpAddr::V6(_) => count(&|o| o.ip.is_ipv4() || o.scope < a.scope),
        };
        self.addresses.insert(at, (a, memory));
    }
}

/// What an object of `n` bytes costs its maker.
pub(super) fn charge(owner: Option<&Arc<Ucounts>>, n: u64) -> Result<Option<Charge>> {
    match owner {
        Some(u) => Ok(Some(u.charge(Counted::Kmem, n, u64::MAX).ok_or(ENOMEM)?)),
        None => Ok(None),
    }
}

/// What passes between sockets of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inside {
    /// They are joined in memory.
    Joined,
    /// Rules see it.
    Packets,
}

impl Table {
    pub fn by_name(&self, name: &str) -> Option<i32> {
        let found = self.entries.iter().find(|(_, e)| e.name == name);
        found.map(|(index, _)| *index)
    }

    /// A free index.
    pub fn next_index(&mut self) -> Result<i32> {
        if self.entries.len() > MOST_DEVICES {
            return Err(ENOSPC);
        }
        loop {
            self.last = self.last.checked_add(1).unwrap_or(2).max(2);
            if !self.entries.contains_key(&self.last) {
                return Ok(self.last);
            }
        }
    }

    pub fn addresses(&self) -> usize {
        self.entries.values().map(|e| e.addresses.len()).sum()
    }

    /// The loopback device; one that is up has its addresses.
    pub fn add_loopback(&mut self, device: Arc<Device>, link: Link) {
        let is_up = link == Link::Up;
        let lo = Entry {
            device,
            name: "lo".into(),
            up: is_up,
            mtu: 65_536,
            most_mtu: u32::MAX,
            mac: [0; 6],
            addresses: Vec::new(),
            master: None,
            queue: 1000,
            group: 0,
            started: is_up,
            link_local: false,
            taken_flags: 0,
            gso_max: 0,
        };
        self.entries.insert(LO_INDEX, lo);
        self.last = LO_INDEX;
        if is_up {
            self.address_loopback(|_| true);
        }
    }

    /// Gives the loopback device its addresses: IPv4's where it has none, and IPv6's. Those that it
    /// got, of the families that `of` says.
    pub fn address_loopback(&mut self, of: impl Fn(&IpAddr) -> bool) -> Vec<Address> {
        let Some(lo) = self.entries.get_mut(&LO_INDEX) else {
            return Vec::new();
        };
        let has = |a: &Address| match a.ip {
            IpAddr::V4(_) => lo.addresses.iter().any(|(o, _)| o.ip.is_ipv4()),
            IpAddr::V6(_) => lo.addresses.iter().any(|(o, _)| o.ip == a.ip),
        };
        let own = LOOPBACKS.map(|(ip, prefix)| Address::new(ip, prefix));
        let missing: Vec<Address> = own.into_iter().filter(|a| of(&a.ip) && !has(a)).collect();
        for a in &missing {
            lo.insert(a.clone(), None);
        }
        missing
    }

    /// The order in which Linux lists routes: IPv4's by network, the longest prefix first; IPv6's
    /// as its tree is walked, what lies inside of another before it.
    pub fn sort_routes(&mut self) {
        self.routes.sort_by_key(|(r, _)| {
            let first = match r.to {
                IpAddr::V4(ip) => u128::from(ip.to_bits()),
                IpAddr::V6(ip) => {
                    // The last address: what holds others ends with them or behind them.
                    let rest = u128::MAX.checked_shr(r.prefix.into()).unwrap_or(0);
                    ip.to_bits() | rest
                }
            };
            (r.to.is_ipv6(), first, Reverse(r.prefix), r.metric)
        });
    }

    /// What the stack is told: the loopback device only where packets pass by it; whether packets
    /// for others are sent on, by `confs`. By devices of
    /// the host it never does, unless rules have made them this host's own.
    pub fn setup(&self, confs: &Confs, inside: Inside) -> Setup {
        let of_stack = |d: &Device| inside == Inside::Packets || !matches!(d.kind, Kind::Loopback);
        let all = self.entries.iter().filter(|(_, e)| of_stack(&e.device));
        let mut devices: Vec<setup::Device> = all
            .map(|(index, e)| setup::Device {
                name: e.name.clone(),
                index: *index as u32,
                mac: e.mac,
                flags: e.flags(),
                mtu: e.mtu,
                gso_max: e.gso_max,
                addresses: e.addresses.iter().map(|(a, _)| of_address(a)).collect(),
                conf: confs.conf(*index),
            })
            .collect();
        devices.sort_by_key(|d| d.index);
        let routes = self.routes.iter().map(|(r, _)| r);
        let of_host = |(_, e): &(&i32, &Entry)| matches!(e.device.kind, Kind::Taken);
        let taken = self.entries.iter().filter(of_host);
        let guarded = taken.map(|(index, _)| *index as u32).collect();
        Setup {
            devices,
            routes: routes
                .filter(|r| r.table == TABLE_MAIN)
                .filter_map(Route::to_setup)
                .collect(),
            neighbours: self.neighbours.iter().map(|(n, _)| *n).collect(),
            forwards: setup::Forwards {
                v4: confs.forwards(),
                v6: confs.forwards_v6(),
                guarded,
            },
        }
    }

    /// Takes what was in a namespace of the host's over, devices and routes.
    pub fn take(&mut self, ns: &Arc<NetNamespace>, setup: &Setup) {
        for d in &setup.devices {
            self.take_device(ns, d, d.index as i32, d.name.clone());
        }
        let routes = setup.routes.iter().map(|r| (Route::of_setup(r), None));
        self.routes.extend(routes);
        self.sort_routes();
        let neighbours = setup.neighbours.iter().map(|n| (*n, None));
        self.neighbours.extend(neighbours);
    }

    /// Takes a device of the host's with its addresses, by an index and a name that are free.
    pub fn take_device(
        &mut self,
        ns: &Arc<NetNamespace>,
        d: &setup::Device,
        index: i32,
        name: String,
    ) {
        let Some(device) = Device::new(ns, Kind::Taken, index, d.mac, None) else {
            return;
        };
        let addresses = d.addresses.iter().map(|a| (Address::of_setup(a), None));
        let entry = Entry {
            device,
            name,
            up: d.flags & IFF_UP != 0,
            mtu: d.mtu,
            most_mtu: d.mtu,
            mac: d.mac,
            addresses: addresses.collect(),
            master: None,
            queue: 1000,
            group: 0,
            started: true,
            link_local: true,
            taken_flags: d.flags,
            gso_max: d.gso_max,
        };
        self.entries.insert(index, entry);
        self.last = self.last.max(index);
    }
}

fn of_address(a: &Address) -> setup::Address {
    setup::Address {
        ip: a.ip,
        prefix: if a.peer.is_some() {
            if a.ip.is_ipv4() { 32 } else { 128 }
        } else {
            a.prefix
        },
        broadcast: a.broadcast,
        scope: a.scope,
    }
}
