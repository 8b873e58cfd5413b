//! A network namespace: the ports, the abstract names and the addresses of one sandbox or
//! container.

use crate::addr::Endpoint;
use crate::bindings::{PortRange, PortTable};
use crate::devices::{Bells, Confs, Device, Kind, LinkRequest, Listeners, Table};
use crate::fast_open::Knowledge;
use crate::groups::DeviceGroups;
use crate::host::HostNetwork;
use crate::inflight::InFlightRegistry;
use crate::interface::{Interface, LO_INDEX};
use crate::receivers::{RawSockets, UdpReceiver};
use crate::stack::Stack;
use crate::stack::names::Names;
use crate::taps::{self, Taps};
use crate::tcp::Listener;
use crate::tcp_memory::TcpMemory;
use crate::unix_names::UnixNames;
use crate::user::UserNetwork;
use crate::work::Worker;
use abi::errno::{EADDRNOTAVAIL, EBUSY, EINVAL, ENETUNREACH, ENODEV, EOPNOTSUPP};
use abi::{Errno, Result};
use clas::Clas;
use netfilter::Engine;
use netstack::ip::FrameMeta;

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vfs::ucounts::Charge;
use vfs::userns::UserNs;

/// The loopback interface's addresses, with the lengths of their prefixes.
pub(crate) const LOOPBACKS: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];

/// See the module.
pub struct NetNamespace {
    /// The host's network, where this is it.
    pub(crate) host: Option<Arc<HostNetwork>>,
    /// The way out by a broker, where there is one.
    pub(crate) way_out: Option<Arc<UserNetwork>>,
    /// Our own packets on its devices, from when it has some.
    stack: OnceLock<Arc<Stack>>,
    /// For them.
    bells: Mutex<Option<Bells>>,
    /// Held while devices of the host come and go. Before all other locks here.
    pub(crate) taking: Mutex<()>,
    pub(crate) tcp: PortTable<Listener>,
    pub(crate) udp: PortTable<dyn UdpReceiver>,
    pub(crate) raw: RawSockets,
    pub(crate) taps: Arc<Taps>,
    pub(crate) fast_open: Knowledge,
    /// Its devices, addresses, routes and neighbours: [`crate::devices`].
    pub(crate) table: Mutex<Table>,
    /// Settings of devices. After `table`.
    pub(crate) confs: Mutex<Confs>,
    /// Who is told of their changes.
    pub(crate) listeners: Listeners,
    /// Who is told of changes of rules.
    pub(crate) rule_listeners: Listeners,
    /// Rules for packets, and whose memory they are: [`crate::rules`].
    pub(crate) rules: Arc<Engine>,
    pub(crate) rules_memory: Mutex<Option<Charge>>,
    /// Whether there have been rules: the stack has a loopback device since. Changed with the
    /// table locked.
    pub(crate) has_rules: AtomicBool,
    /// The same, once it has it: what passes inside may be packets since.
    pub(crate) ruled: AtomicBool,
    /// One for the sandbox, as is the next one.
    pub(crate) worker: Arc<Worker>,
    memory: Arc<OnceLock<Arc<Clas>>>,
    /// That of connections made of packets. One for the sandbox.
    pub tcp_memory: Arc<TcpMemory>,
    /// The multicast groups that its devices are in.
    pub(crate) groups: DeviceGroups,
    pub(crate) unix: UnixNames,
    /// One for the sandbox: a cycle of sockets may lead through several namespaces.
    pub(crate) in_flight: Arc<InFlightRegistry>,
    /// Whether the loopback interface is up, and whether it ever was: it gets its addresses then.
    pub(crate) up: AtomicBool,
    pub(crate) addressed: AtomicBool,
    /// Whether the loopback interface has no IPv6 (`disable_ipv6`).
    pub(crate) lacks_loopback_v6: AtomicBool,
    /// Who may administer it.
    pub(crate) user: UserNs,
    /// Addresses of this host beyond the loopback ones, which programs may bind and connect to.
    local: RwLock<Vec<IpAddr>>,
    /// `net.ipv4.ip_unprivileged_port_start`.
    pub unprivileged_port_start: AtomicU16,
    /// Among which ports the next socket gets one that asks for none.
    local_ports: RwLock<PortRange>,
    /// Settings that mean nothing here, kept for who reads them back, by name.
    pub kept: Mutex<BTreeMap<&'static str, Vec<i64>>>,
    /// `net.core.somaxconn`.
    pub somaxconn: AtomicU32,
    /// `net.unix.max_dgram_qlen`.
    pub max_dgram_qlen: AtomicU32,
    /// See [`NetNamespace::was_missed`].
    missed: AtomicBool,
    next_ino: Arc<AtomicU64>,
    pub(crate) next_netlink_port: AtomicU32,
}

/// What the namespaces of a sandbox share.
struct Shared {
    in_flight: Arc<InFlightRegistry>,
    next_ino: Arc<AtomicU64>,
    worker: Arc<Worker>,
    memory: Arc<OnceLock<Arc<Clas>>>,
    tcp_memory: Arc<TcpMemory>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            in_flight: Arc::default(),
            next_ino: Arc::new(AtomicU64::new(20_000)),
            worker: Arc::default(),
            memory: Arc::default(),
            tcp_memory: Arc::default(),
        }
    }
}

/// What leads to somebody outside.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    Broker(&'a Arc<UserNetwork>),
    Stack(&'a Arc<Stack>),
}

/// Whether an interface is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    Up,
    Down,
}

impl Link {
    /// By `IFF_UP` of an interface's flags.
    #[must_use]
    pub const fn of_flags(flags: u32) -> Link {
        match flags & 1 {
            0 => Link::Down,
            _ => Link::Up,
        }
    }
}

impl NetNamespace {
    /// A namespace with a loopback interface that is up.
    #[must_use]
    pub fn new() -> Arc<NetNamespace> {
        Self::on(None, None)
    }

    /// The host's: AF_INET and AF_INET6 are its sockets.
    #[must_use]
    pub fn of_host(host: Arc<HostNetwork>) -> Arc<NetNamespace> {
        Self::on(Some(host), None)
    }

    /// One with a way out by a broker.
    #[must_use]
    pub fn of_user(user: Arc<UserNetwork>) -> Arc<NetNamespace> {
        Self::on(None, Some(user))
    }

    fn on(host: Option<Arc<HostNetwork>>, way_out: Option<Arc<UserNetwork>>) -> Arc<NetNamespace> {
        Self::with(
            host,
            way_out,
            Shared::default(),
            UserNs::default(),
            Link::Up,
        )
    }

    fn with(
        host: Option<Arc<HostNetwork>>,
        way_out: Option<Arc<UserNetwork>>,
        shared: Shared,
        user: UserNs,
        lo: Link,
    ) -> Arc<NetNamespace> {
        // All groups may make ping sockets, as most systems have it: what raw ones make does not
        // leave by a broker.
        let pings = way_out
            .iter()
            .map(|_| ("ping_group_range", vec![0, 2_147_483_647]));
        let kept: BTreeMap<_, _> = pings.collect();
        let local = way_out.iter().flat_map(|u| u.interface().addresses);
        let up = lo == Link::Up;
        let ns = Arc::new(NetNamespace {
            local: RwLock::new(local.map(|(ip, _)| ip).collect()),
            host,
            way_out,
            stack: OnceLock::new(),
            bells: Mutex::default(),
            taking: Mutex::default(),
            tcp: PortTable::new(),
            udp: PortTable::new(),
            raw: RawSockets::default(),
            taps: Arc::default(),
            fast_open: Knowledge::default(),
            table: Mutex::default(),
            confs: Mutex::default(),
            listeners: Listeners::default(),
            rule_listeners: Listeners::default(),
            rules: Arc::default(),
            rules_memory: Mutex::default(),
            has_rules: AtomicBool::new(false),
            ruled: AtomicBool::new(false),
            worker: shared.worker,
            memory: shared.memory,
            tcp_memory: shared.tcp_memory,
            groups: DeviceGroups::default(),
            unix: UnixNames::default(),
            in_flight: shared.in_flight,
            up: AtomicBool::new(up),
            addressed: AtomicBool::new(up),
            lacks_loopback_v6: AtomicBool::new(false),
            user,
            unprivileged_port_start: AtomicU16::new(1024),
            local_ports: RwLock::default(),
            kept: Mutex::new(kept),
            somaxconn: AtomicU32::new(4096),
            max_dgram_qlen: AtomicU32::new(10),
            missed: AtomicBool::new(false),
            next_ino: shared.next_ino,
            next_netlink_port: AtomicU32::new(1 << 31),
        });
        if let Some(d) = Device::new(&ns, Kind::Loopback, LO_INDEX, [0; 6], None) {
            ns.table.lock().add_loopback(d, lo);
        }
        ns
    }
    /// Whether sockets of the host are served here: [`crate::outside`].
    #[must_use]
    pub fn has_outside(&self) -> bool {
        self.host.is_some() || self.way_out.is_some()
    }
    /// Whether somebody has asked for an address outside in vain: there is no way out.
    #[must_use]
    pub fn was_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed)
    }
    /// Somebody asks for this address, to which there is no way.
    pub(crate) fn miss(&self, ip: IpAddr) {
        if !self.has_outside() && self.stack().is_none() && !ip.is_loopback() && !ip.is_multicast()
        {
            self.missed.store(true, Ordering::Relaxed);
        }
    }
    /// Whether the loopback interface is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }
    /// Takes the loopback interface up or down. `EOPNOTSUPP` for the host's, which is not ours to
    /// change.
    pub fn set_loopback(self: &Arc<Self>, to: Link) -> Result<()> {
        if self.host.is_some() {
            return if to == Link::Up {
                Ok(())
            } else {
                Err(EOPNOTSUPP)
            };
        }
        let wanted = LinkRequest {
            up: Some(to == Link::Up),
            ..LinkRequest::default()
        };
        self.change_link(LO_INDEX, &wanted)
    }
    /// Whether it has its addresses: from the first time that it is up.
    #[must_use]
    pub fn has_addresses(&self) -> bool {
        self.addressed.load(Ordering::Relaxed)
    }
    /// A new namespace of the same sandbox that belongs to a user namespace. Its loopback interface
    /// is down.
    #[must_use]
    pub fn sibling(&self, user: &UserNs) -> Arc<NetNamespace> {
        let shared = Shared {
            in_flight: self.in_flight.clone(),
            next_ino: self.next_ino.clone(),
            worker: self.worker.clone(),
            memory: self.memory.clone(),
            tcp_memory: self.tcp_memory.clone(),
        };
        Self::with(None, None, shared, user.clone(), Link::Down)
    }
    /// The interfaces, as programs are told of them.
    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        if let Some(h) = &self.host {
            return h.interfaces.clone();
        }
        let table = self.table.lock();
        let all = table.entries.iter().map(|(i, e)| e.interface(*i));
        all.chain(self.way_out.iter().map(|u| u.interface()))
            .collect()
    }
    /// A device, by its index.
    pub(crate) fn interface(&self, index: i32) -> Option<Interface> {
        self.interfaces().into_iter().find(|i| i.index == index)
    }

    /// Where the memory comes from that sockets and programs share.
    pub fn set_memory(&self, memory: &Arc<Clas>) {
        let _ = self.memory.set(memory.clone());
    }

    /// What wakes who waits for devices' frames. To be made before the allow-lists.
    pub fn set_bells(&self, bells: Bells) {
        *self.bells.lock() = Some(bells);
    }

    pub(crate) fn take_bells(&self) -> Option<Bells> {
        self.bells.lock().take()
    }

    pub(crate) fn memory(&self) -> Option<&Arc<Clas>> {
        self.memory.get()
    }

    /// Sends a frame of the packet socket `by` on a device.
    pub(crate) fn send_frame(&self, i: &Interface, by: u64, frame: &[u8]) -> Result<()> {
        if i.is_loopback() {
            self.loop_frame(taps::Way::By(by), &FrameMeta::default(), frame);
            return Ok(());
        }
        match self.stack() {
            Some(s) => s.send_frame(i, by, frame),
            // The broker takes no frames.
            None => Ok(()),
        }
    }

    /// The loopback network's broadcast address.
    pub(crate) const LOOPBACK_BROADCAST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255));

    /// The index of a device.
    pub(crate) fn device_by_name(&self, name: &[u8]) -> Option<i32> {
        if name == b"lo" && self.host.is_none() {
            return Some(LO_INDEX);
        }
        let all = self.interfaces();
        let found = all.iter().find(|i| i.name.as_bytes() == name);
        found.map(|i| i.index)
    }
    pub(crate) fn device_name(&self, index: i32) -> Option<String> {
        let all = self.interfaces();
        let found = all.into_iter().find(|i| i.index == index);
        found.map(|i| i.name)
    }
    pub(crate) fn has_device(&self, index: i32) -> bool {
        index == LO_INDEX && self.host.is_none() || self.device_name(index).is_some()
    }
    /// The index of the device that has an address.
    pub(crate) fn device_of(&self, ip: IpAddr) -> Option<i32> {
        if ip.is_loopback() {
            return self.has_addresses().then_some(LO_INDEX);
        }
        let all = self.interfaces();
        let found = all.iter().find(|i| i.addresses.iter().any(|a| a.0 == ip));
        found.map(|i| i.index)
    }
    /// Whether what is sent there is for all on a network.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(Ipv4Addr::BROADCAST) => true,
            IpAddr::V4(_) if ip == Self::LOOPBACK_BROADCAST => self.has_addresses(),
            IpAddr::V4(_) => self.stack().is_some_and(|s| s.ip.is_broadcast(ip)),
            IpAddr::V6(_) => false,
        }
    }
    /// The source of what is sent to all on the loopback interface.
    pub(crate) fn loopback_source(&self, to: IpAddr) -> IpAddr {
        LOOPBACKS[usize::from(to.is_ipv6())].0
    }
    /// A setting that was written, where it is one number.
    pub(crate) fn kept_number(&self, name: &str) -> Option<i64> {
        self.kept_at(name, 0)
    }
    /// One number of such a setting.
    pub(crate) fn kept_at(&self, name: &str, at: usize) -> Option<i64> {
        self.kept.lock().get(name)?.get(at).copied()
    }
    /// `net.ipv4.ip_local_port_range`.
    pub fn local_ports(&self) -> PortRange {
        *self.local_ports.read()
    }
    /// `EINVAL` for a range with ports that only the privileged may have (`ipv4_local_port_range`).
    pub fn set_local_ports(&self, low: u16, high: u16) -> Result<()> {
        let range = PortRange::new(low, high)?;
        if low < self.unprivileged_port_start.load(Ordering::Relaxed) {
            return Err(EINVAL);
        }
        *self.local_ports.write() = range;
        Ok(())
    }
    pub(crate) fn next_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }
    /// Whether it is an address of the loopback interface.
    fn is_loopback(&self, ip: IpAddr) -> bool {
        let lacks = || ip.is_ipv6() && self.lacks_loopback_v6.load(Ordering::Relaxed);
        ip.is_loopback() && !lacks()
    }
    /// Why there is no way to an address that is not reached.
    pub(crate) fn why_unreached(&self, ip: IpAddr) -> Errno {
        match ip.is_loopback() && !self.is_loopback(ip) {
            true => EADDRNOTAVAIL,
            false => ENETUNREACH,
        }
    }
    /// Whether the address is one of this host's.
    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        self.is_loopback(ip) || self.local.read().contains(&ip)
    }
    /// Whether there is a way to the address.
    pub(crate) fn reaches(&self, ip: IpAddr) -> bool {
        self.is_loopback(ip) && self.is_up()
            || self.local.read().contains(&ip)
            || self.leaves(ip).is_some_and(|u| u.address(ip).is_some())
            || self.stack().is_some_and(|s| s.source_for(ip).is_ok())
    }
    /// The source address towards a destination.
    pub(crate) fn source_for(&self, dest: IpAddr) -> IpAddr {
        match dest {
            IpAddr::V4(a) if a.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip if self.is_local(ip) => ip,
            ip => {
                let by_stack = || self.stack()?.source_for(ip).ok();
                let by_broker = self.leaves(ip).and_then(|u| u.address(ip));
                by_broker.or_else(by_stack).unwrap_or(ip)
            }
        }
    }
    /// Has a stack serve devices from now on: `EBUSY` if there is one, or another way out.
    pub(crate) fn set_stack(&self, stack: &Arc<Stack>) -> Result<()> {
        if self.host.is_some() || self.way_out.is_some() {
            return Err(EBUSY);
        }
        self.stack.set(stack.clone()).map_err(|_| EBUSY)
    }
    /// The stack, which is made with the first device.
    pub(crate) fn need_stack(self: &Arc<Self>) -> &Arc<Stack> {
        self.stack.get_or_init(|| Stack::of_programs(self))
    }
    /// The addresses of this host beyond the loopback ones, as sockets ask.
    pub(crate) fn set_local(&self, t: &Table) {
        let out = self.way_out.iter().flat_map(|u| u.interface().addresses);
        let all = t.entries.values().flat_map(|e| &e.addresses);
        let own = all.map(|(a, _)| a.ip).filter(|ip| !ip.is_loopback());
        *self.local.write() = own.chain(out.map(|(ip, _)| ip)).collect();
    }
    /// Our own packets, if there are devices.
    pub(crate) fn stack(&self) -> Option<&Arc<Stack>> {
        self.stack.get()
    }
    /// Who answers for the name server at this endpoint.
    pub(crate) fn names_at(&self, to: Endpoint) -> Option<(&Arc<Stack>, &Arc<Names>)> {
        let stack = self.stack()?;
        let names = stack.names.get()?;
        Names::is_for(to).then_some((stack, names))
    }
    /// These rules for what may leave hold from now on. `ENODEV` where there are no devices.
    pub fn set_rules(&self, rules: egress::Rules) -> Result<()> {
        let stack = self.stack().filter(|s| s.serves()).ok_or(ENODEV)?;
        stack.set_rules(rules);
        Ok(())
    }
    /// Whether it has devices of the host, by which others are reached.
    #[must_use]
    pub fn has_devices(&self) -> bool {
        self.stack().is_some_and(|s| s.serves())
    }
    /// Waits until the peers of closed connections have acknowledged all, at most so long: what is
    /// lost meanwhile is sent again. For the end of a sandbox, with which that would stop; Linux's
    /// network namespace outlasts its processes as long as such connections do.
    pub fn say_last_words(&self, most: Duration) {
        if let Some(s) = self.stack() {
            s.say_last_words(most);
        }
    }
    /// Whether anything leads out.
    pub(crate) fn has_way_out(&self) -> bool {
        self.way_out.is_some() || self.stack.get().is_some()
    }
    /// Whether the address is somebody else's, and something leads out.
    pub(crate) fn is_outside(&self, ip: IpAddr) -> bool {
        self.has_way_out()
            && !self.is_local(ip)
            && !ip.is_loopback()
            && !ip.is_unspecified()
            && !ip.is_multicast()
    }
    /// What leads to an endpoint, if it is not one of this host's: the host's name servers are
    /// outside, whatever their address is.
    pub(crate) fn way_to(&self, to: Endpoint) -> Option<Way<'_>> {
        let by_stack = self.stack().filter(|_| self.is_outside(to.ip));
        let by_broker = self.leaves_to(to).map(Way::Broker);
        by_broker.or(by_stack.map(Way::Stack))
    }
    /// The way out by the broker that leads to an address, if it is not one of this host's.
    pub(crate) fn leaves(&self, ip: IpAddr) -> Option<&Arc<UserNetwork>> {
        let inside = self.is_local(ip) || ip.is_unspecified() || ip.is_multicast();
        self.way_out.as_ref().filter(|_| !inside)
    }
    /// The same for an endpoint: the host's name servers are outside, whatever their address is.
    pub(crate) fn leaves_to(&self, to: Endpoint) -> Option<&Arc<UserNetwork>> {
        let server = self.way_out.as_ref().filter(|u| u.is_name_server(to));
        self.leaves(to.ip).or(server)
    }
    /// Where a packet to this address goes: wildcards mean this host.
    pub(crate) fn resolve(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(a) if a.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(a) if a.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        }
    }
}

impl Drop for NetNamespace {
    /// Its devices go with it, whatever still has its stack.
    fn drop(&mut self) {
        if let Some(s) = self.stack.get() {
            s.close();
        }
    }
}
