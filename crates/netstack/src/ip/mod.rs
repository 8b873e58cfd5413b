//! Frames to datagrams and back.
//!
//! ```text
//! receive      a frame to a packet: Ethernet, IPv4, IPv6
//! extension    IPv6's extension headers, IPv4's options
//! reassembly   fragments to a packet
//! deliver      a packet to its transport: TCP, UDP, ICMP
//! forward      a packet for others to another device
//! rules        what netfilter's rules say of a packet, and what passes inside while there are some
//! send         a transport's message to packets and fragments
//! output       a packet to a frame for its next hop
//! table        devices, addresses and routes; the way to an address and its source
//! device       what is learnt and counted on a link
//! neighbour    who has which Ethernet address: a machine of time
//! arp, ndisc   how neighbours are asked
//! icmp         messages that are answered and told on
//! errors       errors that are sent, and how often
//! groups       the multicast groups of a link: a machine of queries and time
//! multicast    IGMP and MLD
//! pmtu         the largest packets of paths
//! wire         bytes, checksums
//! segment      TCP's header
//! ```
//!
//! # What holds
//!
//! - Neither [`Link`] nor [`Upper`] is called with a lock held; no two locks are held at once,
//!   but that of [`Ip::set`] with each of the others.
//!   The table is taken as it is at the start of a call and kept to its end.
//! - A received payload is a piece of its frame: nothing is copied but fragments, and packets that
//!   wait for a neighbour.
//! - No packet leaves whose source is not an address of this host, but those that are sent on by
//!   devices that are not guarded. Rules may translate; what they made is looked at again.
//! - [`Ip::deadline`] may come earlier by a call that sends or receives: it is asked after them.

mod arp;
mod counters;
mod deliver;
mod device;
mod errors;
mod extension;
mod forward;
mod groups;
mod icmp;
mod keyed;
mod limit;
mod multicast;
mod ndisc;
mod neighbour;
mod output;
mod pmtu;
mod reassembly;
mod receive;
mod rules;
mod segment;
mod send;
mod table;
mod types;
mod wire;

#[cfg(test)]
mod tests;

pub use counters::{Counts, DeviceCounts};
pub use neighbour::{NeighbourInfo, NeighbourState};
pub use segment::tcp_header_len;
pub use types::*;
pub use wire::pseudo_sum;

use crate::counters::{Mib, Snmp, Tally};
use crate::setup::{Device, Route, Setup};
use crate::time::Instant;
use counters::{DeviceCounters, count};
use device::{Dev, Due, LinkState};
use errors::Limits;
use groups::Groups;
use keyed::Keyed;
use neighbour::{Ask, Event, Heard, Neighbours};
use netfilter::Engine;
use parking_lot::{Mutex, RwLock};
use pmtu::PathMtus;
use reassembly::Reassembly;
use rules::Inside;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use table::Table;
use wire::bits;

/// How often what came meanwhile is sent behind what has waited for a neighbour.
const TURNS: usize = 8;
/// How many counters of identifications there are (Linux: `ip_idents`).
const IDENTS: usize = 1024;

/// The IP layer of a host.
pub struct Ip {
    table: RwLock<Arc<Table>>,
    link: Arc<dyn Link>,
    /// For tables that strangers fill.
    keyed: Keyed,
    /// For identifications.
    ident_key: Keyed,
    idents: Box<[AtomicU32]>,
    snmp: Snmp,
    limits: Mutex<Limits>,
    paths: Mutex<PathMtus>,
    reassembly: Mutex<Reassembly>,
    reassembly_due: Due,
    /// About now: the time of a call lately. Paths expire by it.
    clock: AtomicU64,
    generation: AtomicU64,
    /// Held while another setup is taken; no other lock is held where it is taken.
    setting: Mutex<()>,
    /// Addresses are announced once.
    announce: Due,
    rules: Arc<Engine>,
    inside: Inside,
}

impl Ip {
    /// `secret` is random and known to nobody: identifications and hashes come of it. `rules` are
    /// the namespace's.
    #[must_use]
    pub fn new(setup: &Setup, link: Arc<dyn Link>, secret: [u8; 16], rules: Arc<Engine>) -> Ip {
        let keyed = Keyed::new(secret, 1);
        let ident_key = Keyed::new(secret, 2);
        let idents = (0..IDENTS)
            .map(|n| AtomicU32::new(ident_key.hash(n) as u32))
            .collect();
        let empty = Table::new(&Setup::default(), Vec::new());
        let ip = Ip {
            table: RwLock::new(Arc::new(empty)),
            link,
            keyed,
            ident_key,
            idents,
            snmp: Snmp::new(),
            limits: Mutex::new(Limits::new(keyed)),
            paths: Mutex::new(PathMtus::new(keyed)),
            reassembly: Mutex::new(Reassembly::new(keyed)),
            reassembly_due: Due::never(),
            clock: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            setting: Mutex::new(()),
            announce: Due::never(),
            rules,
            inside: Inside::default(),
        };
        ip.set(setup);
        ip
    }

    /// Takes another setup: addresses, routes, fixed neighbours and MTU are replaced; a device of
    /// the same index keeps what it has learnt and counted. Places of devices are those of the new
    /// setup. Where there are new addresses, all are announced by the next [`Ip::timer`].
    pub fn set(&self, setup: &Setup) {
        let _one_at_a_time = self.setting.lock();
        let old = self.table();
        let devices: Vec<Arc<Dev>> = setup
            .devices
            .iter()
            .enumerate()
            .map(|(place, d)| {
                let link = match old.by_index(d.index) {
                    Some(dev) => dev.link.clone(),
                    None => Arc::new(LinkState::new(self.keyed)),
                };
                Arc::new(Dev::new(place, d, link))
            })
            .collect();
        for dev in &devices {
            let fixed = setup.neighbours.iter().filter(|n| n.device == dev.index);
            let mut neighbours = dev.link.neighbours.lock();
            neighbours.fix(fixed.map(|n| (n.ip, n.mac)));
        }
        for (dev, before) in devices.iter().map(|d| (d, old.by_index(d.index))) {
            self.take_groups(dev, before.map(|d| &**d));
        }
        let table = Table::new(setup, devices);
        let is_new = |d: &Arc<Dev>| d.addresses.iter().any(|a| !old.is_local(a.ip));
        let any_new = table.devices.iter().any(is_new);
        *self.table.write() = Arc::new(table);
        self.new_generation();
        if any_new {
            self.announce.at_latest(Some(Instant(0)));
        }
    }

    /// A device is in the solicited-node groups of its addresses.
    fn take_groups(&self, dev: &Dev, before: Option<&Dev>) {
        let groups_of = |d: &Dev| -> Vec<IpAddr> {
            d.addresses
                .iter()
                .filter_map(|a| match a.ip {
                    IpAddr::V6(ip) => Some(IpAddr::V6(wire::solicited_node(ip))),
                    IpAddr::V4(_) => None,
                })
                .collect()
        };
        if dev.is_loopback() {
            return;
        }
        let now = self.about_now();
        let mut groups = dev.link.groups.lock();
        for g in groups_of(dev) {
            groups.join(now, g);
        }
        for g in before.map(groups_of).unwrap_or_default() {
            groups.leave(now, g);
        }
        dev.link.due.at_latest(groups.due());
    }

    fn table(&self) -> Arc<Table> {
        self.table.read().clone()
    }

    /// Changes whenever a [`Path`] that was given out may be another one now.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// The way to an address; `from` is a source that is wished for, `device` the index of the
    /// only device that may be taken.
    pub fn path(
        &self,
        to: IpAddr,
        from: Option<IpAddr>,
        device: Option<u32>,
    ) -> Result<Path, NoRoute> {
        // Before the table: a path that is older than its generation is asked for once too often.
        let generation = self.generation();
        let table = self.table();
        let way = table.way(to, from, device).inspect_err(|e| {
            if *e == NoRoute::Network {
                self.snmp
                    .count_by(to.is_ipv4(), Mib::IpOutNoRoutes, Mib::Ip6OutNoRoutes);
            }
        })?;
        let dev = table.devices.get(way.device).ok_or(NoRoute::Device)?;
        let source = match from.filter(|ip| !ip.is_unspecified()) {
            Some(from) => from,
            None => table.source(to, &way),
        };
        let mtu = match way.mtu {
            0 => dev.mtu,
            n => n.clamp(68, dev.mtu),
        };
        let learnt = self.paths.lock().get(self.about_now(), to);
        let learnt = learnt.filter(|l| l.mtu < mtu);
        Ok(Path {
            device: way.device,
            index: dev.index,
            to,
            source,
            ident: self.ident_key.hash((bits(source), bits(to))),
            next_hop: way.next_hop,
            gateway: way.gateway,
            cast: way.cast,
            mtu: learnt.map_or(mtu, |l| l.mtu),
            link_mtu: dev.mtu,
            gso_max: dev.gso_max,
            generation,
            expires: learnt.map(|l| l.expires),
        })
    }

    /// Believes that the path to an address takes no larger packets. The transport says so, which
    /// knows whether the error was about a packet of its own ([`ErrorKind::PacketTooBig`]): a
    /// stranger could make all packets small.
    pub fn path_mtu_learnt(&self, now: Instant, to: IpAddr, mtu: u32) {
        self.tick(now);
        let changed = self.paths.lock().learn(now, to, mtu);
        if changed {
            self.new_generation();
        }
    }

    /// Paths that have been given out are to be asked for anew.
    fn new_generation(&self) -> u64 {
        self.generation.fetch_add(1, Relaxed) + 1
    }

    /// The time of a call lately.
    fn about_now(&self) -> Instant {
        Instant(self.clock.load(Relaxed))
    }

    fn tick(&self, now: Instant) {
        const OFTEN: u64 = 100_000_000;
        if now.0 > self.clock.load(Relaxed).saturating_add(OFTEN) {
            self.clock.store(now.0, Relaxed);
        }
    }

    /// Does what is due: neighbours are asked again, addresses announced.
    pub fn timer(&self, now: Instant, upper: &dyn Upper) {
        self.tick(now);
        // Before the table is looked at: a newer one asks for it again.
        let announce = self.announce.take(now);
        let table = self.table();
        if announce {
            self.announce(&table);
        }
        if self.reassembly_due.take(now) {
            let (expired, next) = self.reassembly.lock().timer(now);
            self.reassembly_due.at_latest(next);
            for e in &expired {
                self.reassembly_expired(now, e);
            }
        }
        self.pass_some(now, rules::TIMERS_TURN, upper);
        for dev in &table.devices {
            if dev.link.due.take(now) {
                self.device_timer(now, &table, dev, upper);
            }
        }
    }

    fn device_timer(&self, now: Instant, table: &Table, dev: &Dev, upper: &dyn Upper) {
        let (events, next) = dev.link.neighbours.lock().timer(now);
        dev.link.due.at_latest(next);
        for e in events {
            match e {
                Event::Ask(ip, ask) => self.ask(table, dev, ip, ask),
                Event::Failed(ip, waiting) => {
                    self.unreachable(now, table, dev, ip, waiting, upper);
                }
            }
        }
        let (news, next) = dev.link.groups.lock().timer(now);
        dev.link.due.at_latest(next);
        if dev.is_up() {
            self.report(now, table, dev, &news);
        }
    }

    /// When [`Ip::timer`] is to be called, at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let table = self.table.read();
        let links = table.devices.iter().filter_map(|d| d.link.due.get());
        links
            .chain(self.announce.get())
            .chain(self.reassembly_due.get())
            .chain(self.inside.due())
            .min()
    }

    fn announce(&self, table: &Table) {
        for dev in table
            .devices
            .iter()
            .filter(|d| d.is_up() && !d.is_loopback())
        {
            for a in &dev.addresses {
                match a.ip {
                    IpAddr::V4(ip) => self.announce_v4(dev, ip),
                    IpAddr::V6(ip) => self.announce_v6(dev, ip),
                }
            }
        }
    }

    /// A neighbour is heard of: what waited for it goes.
    fn heard(&self, now: Instant, dev: &Dev, ip: IpAddr, heard: Heard) {
        let mut neighbours = dev.link.neighbours.lock();
        let mut waiting = neighbours.hear(now, ip, heard);
        drop(neighbours);
        // In order, as long as who sends more meanwhile does not keep this from ending.
        for turn in 0..TURNS {
            if waiting.is_empty() {
                return;
            }
            self.flush(dev, heard.mac, waiting);
            let mut neighbours = dev.link.neighbours.lock();
            waiting = neighbours.flush(ip);
            if turn == TURNS - 1 {
                neighbours.go_on(ip);
            }
        }
        self.flush(dev, heard.mac, waiting);
    }

    /// Asks for a neighbour.
    fn ask(&self, table: &Table, dev: &Dev, ip: IpAddr, ask: Ask) {
        let way = table::Way {
            device: dev.place,
            next_hop: ip,
            gateway: Gateway::No,
            cast: Cast::Unicast,
            source: None,
            mtu: 0,
        };
        match (ip, table.source(ip, &way)) {
            (IpAddr::V4(to), IpAddr::V4(from)) => self.ask_v4(dev, from, to, ask),
            (IpAddr::V6(to), IpAddr::V6(from)) => self.ask_v6(dev, from, to, ask),
            _ => {}
        }
    }

    /// A path is known to work: the neighbour needs no probe. To be called now and then, not for
    /// each packet.
    pub fn confirm(&self, now: Instant, path: &Path) {
        let table = self.table();
        if let Some(dev) = table.by_index(path.index) {
            dev.link.neighbours.lock().confirm(now, path.next_hop);
        }
    }

    /// Joins a group on a device (by its index); each join wants a [`Ip::leave`]. Routers are told
    /// by [`Ip::timer`], which is due at once.
    pub fn join(&self, device: u32, group: IpAddr) -> Result<(), SendError> {
        if !group.is_multicast() {
            return Err(SendError::Invalid);
        }
        let table = self.table();
        let dev = table.by_index(device).ok_or(SendError::Device)?;
        let mut groups = dev.link.groups.lock();
        if !groups.join(self.about_now(), group) {
            return Err(SendError::NoBuffers);
        }
        dev.link.due.at_latest(groups.due());
        Ok(())
    }

    pub fn leave(&self, device: u32, group: IpAddr) {
        if let Some(dev) = self.table().by_index(device) {
            let mut groups = dev.link.groups.lock();
            groups.leave(self.about_now(), group);
            dev.link.due.at_latest(groups.due());
        }
    }

    #[must_use]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.table.read().is_local(ip)
    }

    /// 255.255.255.255, or the broadcast address of a network of ours.
    #[must_use]
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        self.table.read().is_broadcast(ip)
    }

    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let table = self.table();
        table.devices.iter().map(|d| d.setup.clone()).collect()
    }

    #[must_use]
    pub fn routes(&self) -> Vec<Route> {
        self.table().routes.clone()
    }

    /// A frame that somebody else made was sent by a device, by its index.
    pub fn sent(&self, device: u32, len: usize) {
        if let Some(d) = self.table().by_index(device) {
            count(&d.link.counters.tx_packets);
            d.link.counters.tx_bytes.fetch_add(len as u64, Relaxed);
        }
    }

    /// One came that goes elsewhere.
    pub fn came(&self, device: u32, len: usize) {
        if let Some(d) = self.table().by_index(device) {
            count(&d.link.counters.rx_packets);
            d.link.counters.rx_bytes.fetch_add(len as u64, Relaxed);
        }
    }

    /// Forgets a neighbour that nobody has fixed; whether it was known.
    pub fn forget(&self, device: u32, ip: IpAddr) -> bool {
        let table = self.table();
        let dev = table.by_index(device);
        dev.is_some_and(|d| d.link.neighbours.lock().forget(ip))
    }

    /// One was not.
    pub fn dropped(&self, device: u32) {
        if let Some(d) = self.table().by_index(device) {
            count(&d.link.counters.tx_dropped);
        }
    }

    #[must_use]
    pub fn neighbours(&self, now: Instant) -> Vec<NeighbourInfo> {
        let table = self.table();
        let of = |d: &Arc<Dev>| d.link.neighbours.lock().list(now, d.index);
        table.devices.iter().flat_map(of).collect()
    }

    /// What a connection has counted.
    pub fn add_counts(&self, tally: &Tally) {
        self.snmp.add_all(tally);
    }

    pub fn count(&self, mib: Mib) {
        self.snmp.count(mib);
    }

    #[must_use]
    pub fn counters(&self) -> Counts {
        let table = self.table();
        let of = |d: &Arc<Dev>| (d.index, d.link.counters.read());
        Counts {
            devices: table.devices.iter().map(of).collect(),
            mib: Mib::ALL.iter().map(|m| (*m, self.snmp.get(*m))).collect(),
        }
    }

    /// Bytes that are kept for others: fragments, and packets that wait for a neighbour. They are
    /// bounded, whatever comes: 4 MiB, and 1 MiB for each device.
    #[must_use]
    pub fn held(&self) -> usize {
        let table = self.table();
        let of = |d: &Arc<Dev>| d.link.neighbours.lock().waiting();
        let waiting: usize = table.devices.iter().map(of).sum();
        waiting + self.reassembly.lock().bytes()
    }

    /// An identification that nobody guesses and that does not repeat soon (RFC 7739 5.3): a
    /// counter for a keyed hash of the two ends.
    fn ident(&self, path: &Path, from: IpAddr, to: IpAddr) -> u32 {
        let hash = if (path.source, path.to) == (from, to) {
            path.ident
        } else {
            self.ident_key.hash((bits(from), bits(to)))
        };
        self.next_ident(hash)
    }

    fn next_ident(&self, hash: u64) -> u32 {
        let counter = &self.idents[hash as usize % IDENTS];
        (hash >> 32) as u32 ^ counter.fetch_add(1, Relaxed)
    }
}

impl LinkState {
    fn new(key: Keyed) -> LinkState {
        LinkState {
            neighbours: Mutex::new(Neighbours::new(key)),
            groups: Mutex::new(Groups::new(key)),
            counters: DeviceCounters::default(),
            due: Due::never(),
            defences: Mutex::new(arp::defences()),
        }
    }
}
