//! A network namespace: the ports, the abstract names and the addresses of one sandbox or
//! container.

use crate::addr::{Endpoint, any_ip};
use crate::datagrams::DeviceGroups;
use crate::devices::{Bell, Device, Kind, Table, Wanted};
use crate::host::HostNetwork;
use crate::inflight::InFlightRegistry;
use crate::interface::{Interface, LO_INDEX};
use crate::netlink::Listeners;
use crate::options::{Common, SO_REUSEADDR, SO_REUSEPORT};
use crate::packet::{self, Taps};
use crate::raw::RawSockets;
use crate::stack::Stack;
use crate::stack::names::Names;
use crate::sys::{AF_INET, AF_INET6};
use crate::tcp::Listener;
use crate::udp::UdpRx;
use crate::unix::UnixSock;
use crate::user::UserNetwork;
use crate::work::Worker;
use abi::Result;
use abi::errno::{EADDRINUSE, EADDRNOTAVAIL, EBUSY, ENODEV, EOPNOTSUPP};
use clas::Clas;
use netstack::ip::FrameMeta;

use parking_lot::{Mutex, RwLock};
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::userns::UserNs;

/// `net.ipv4.ip_local_port_range`.
pub const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

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
    bell: Mutex<Option<Bell>>,
    pub(crate) tcp: PortTable<Listener>,
    pub(crate) udp: PortTable<UdpRx>,
    pub(crate) raw: RawSockets,
    pub(crate) taps: Arc<Taps>,
    /// Its devices, addresses, routes and neighbours: [`crate::devices`].
    pub(crate) table: Mutex<Table>,
    /// Who is told of their changes.
    pub(crate) listeners: Listeners,
    /// One for the sandbox, as is the next one.
    pub(crate) worker: Arc<Worker>,
    memory: Arc<OnceLock<Arc<Clas>>>,
    /// The multicast groups that its devices are in.
    pub(crate) groups: DeviceGroups,
    pub(crate) abstract_names: Mutex<BTreeMap<Vec<u8>, Weak<UnixSock>>>,
    /// All UNIX sockets, by their inodes. Leaf lock.
    pub(crate) unix: Mutex<HashMap<u64, Weak<UnixSock>>>,
    /// One for the sandbox: a cycle of sockets may lead through several namespaces.
    pub(crate) in_flight: Arc<InFlightRegistry>,
    /// Whether the loopback interface is up, and whether it ever was: it gets its addresses then.
    pub(crate) up: AtomicBool,
    pub(crate) addressed: AtomicBool,
    /// Who may administer it.
    pub(crate) user: UserNs,
    /// Addresses of this host beyond the loopback ones, which programs may bind and connect to.
    local: RwLock<Vec<IpAddr>>,
    /// `net.ipv4.ip_unprivileged_port_start`.
    pub unprivileged_port_start: AtomicU16,
    /// Settings that mean nothing here, kept for who reads them back, by name.
    pub kept: Mutex<BTreeMap<&'static str, Vec<i64>>>,
    /// `net.core.somaxconn`.
    pub somaxconn: AtomicU32,
    /// `net.unix.max_dgram_qlen`.
    pub max_dgram_qlen: AtomicU32,
    /// See [`NetNamespace::was_missed`].
    missed: AtomicBool,
    next_ino: Arc<AtomicU64>,
    pub(crate) next_autobind: AtomicU32,
    pub(crate) next_netlink_port: AtomicU32,
}

/// What the namespaces of a sandbox share.
struct Shared {
    in_flight: Arc<InFlightRegistry>,
    next_ino: Arc<AtomicU64>,
    worker: Arc<Worker>,
    memory: Arc<OnceLock<Arc<Clas>>>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            in_flight: Arc::default(),
            next_ino: Arc::new(AtomicU64::new(20_000)),
            worker: Arc::default(),
            memory: Arc::default(),
        }
    }
}

/// What a bound IPv6 address takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Families {
    /// The IPv4 address beside it, too.
    Both,
    /// `IPV6_V6ONLY`.
    V6Only,
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
        // All groups may make ping sockets, as most systems have it: what raw ones make does not leave
        // by a broker.
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
            bell: Mutex::default(),
            tcp: PortTable::new(),
            udp: PortTable::new(),
            raw: RawSockets::default(),
            taps: Arc::default(),
            table: Mutex::default(),
            listeners: Listeners::default(),
            worker: shared.worker,
            memory: shared.memory,
            groups: DeviceGroups::default(),
            abstract_names: Mutex::new(BTreeMap::new()),
            unix: Mutex::default(),
            in_flight: shared.in_flight,
            up: AtomicBool::new(up),
            addressed: AtomicBool::new(up),
            user,
            unprivileged_port_start: AtomicU16::new(1024),
            kept: Mutex::new(kept),
            somaxconn: AtomicU32::new(4096),
            max_dgram_qlen: AtomicU32::new(10),
            missed: AtomicBool::new(false),
            next_ino: shared.next_ino,
            next_autobind: AtomicU32::new(0),
            next_netlink_port: AtomicU32::new(1 << 31),
        });
        if let Some(d) = Device::new(&ns, Kind::Loopback, LO_INDEX, [0; 6], None) {
            ns.table.lock().add_loopback(d, up);
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
        let wanted = Wanted {
            up: Some(to == Link::Up),
            ..Wanted::default()
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

    /// What wakes a task that waits for devices' frames itself. To be made before the allow-lists.
    pub fn set_bell(&self, bell: Bell) {
        *self.bell.lock() = Some(bell);
    }

    pub(crate) fn take_bell(&self) -> Option<Bell> {
        self.bell.lock().take()
    }

    pub(crate) fn memory(&self) -> Option<&Arc<Clas>> {
        self.memory.get()
    }

    /// Sends a frame of the packet socket `by` on a device.
    pub(crate) fn send_frame(&self, i: &Interface, by: u64, frame: &[u8]) -> Result<()> {
        if i.is_loopback() {
            self.loop_frame(packet::Way::By(by), &FrameMeta::default(), frame);
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
    pub(crate) fn next_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }
    /// Whether the address is one of this host's.
    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.local.read().contains(&ip)
    }
    /// Whether there is a way to the address.
    pub(crate) fn reaches(&self, ip: IpAddr) -> bool {
        ip.is_loopback() && self.is_up()
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
        let names = stack.names.as_ref()?;
        Names::is_for(to).then_some((stack, names))
    }
    /// These rules for what may leave hold from now on. `ENODEV` where there are no devices.
    pub fn set_rules(&self, rules: egress::Rules) -> Result<()> {
        self.stack().ok_or(ENODEV)?.set_rules(rules);
        Ok(())
    }
    /// Whether anything leads out.
    pub(crate) fn has_way_out(&self) -> bool {
        self.way_out.is_some() || self.stack.get().is_some()
    }
    /// Whether the address is somebody else's, and something leads out.
    pub(crate) fn is_outside(&self, ip: IpAddr) -> bool {
        self.has_way_out() && !self.is_local(ip) && !ip.is_unspecified() && !ip.is_multicast()
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

/// A socket's hold on a local address and port.
pub struct Binding<T> {
    id: u64,
    pub ip: IpAddr,
    pub port: u16,
    /// Of an IPv6 wildcard: does not take IPv4.
    families: Families,
    pub common: Arc<Common>,
    pub uid: u32,
    /// The other end of a connection. Leaf lock.
    pub remote: Mutex<Option<Endpoint>>,
    /// Who takes what comes: a listener, or a UDP receive queue. Protected by the table's lock.
    target: Mutex<Option<Arc<T>>>,
}

impl<T> Binding<T> {
    pub fn target(&self) -> Option<Arc<T>> {
        self.target.lock().clone()
    }
    pub fn is_v6_only(&self) -> bool {
        self.families == Families::V6Only
    }
    fn families(&self) -> u8 {
        match self.ip {
            IpAddr::V4(_) => 1,
            IpAddr::V6(a) if a.is_unspecified() && self.families == Families::Both => 3,
            IpAddr::V6(_) => 2,
        }
    }
    fn overlaps(&self, o: &Binding<T>) -> bool {
        self.families() & o.families() != 0
            && (self.ip.is_unspecified() || o.ip.is_unspecified() || self.ip == o.ip)
    }
    /// How well it fits a destination: `None` not at all.
    fn score(&self, dest: IpAddr) -> Option<u32> {
        if self.ip == dest {
            return Some(4);
        }
        let family = if dest.is_ipv4() { 1 } else { 2 };
        if !self.ip.is_unspecified() || self.families() & family == 0 {
            return None;
        }
        // A wildcard of the destination's own family goes before a dual one.
        Some(if self.ip.is_ipv4() == dest.is_ipv4() {
            2
        } else {
            1
        })
    }
}

/// The bindings of one port.
struct Port<T> {
    all: HashMap<u64, Arc<Binding<T>>>,
    /// Those with a target, by their address: connections to a busy listener do not slow down the
    /// search for it, nor do those at other addresses. At most [`GROUP_MOST`] are at one.
    targets: HashMap<IpAddr, Vec<Arc<Binding<T>>>>,
}

/// How many sockets may share one address and port (`SO_REUSEPORT`): each is looked at for what comes
/// there, by a thread that serves all users.
const GROUP_MOST: usize = 512;

impl<T> Default for Port<T> {
    fn default() -> Port<T> {
        Port {
            all: HashMap::new(),
            targets: HashMap::new(),
        }
    }
}

impl<T> Port<T> {
    /// From now on it takes what comes; `EADDRINUSE` where too many do.
    fn add_target(&mut self, b: &Arc<Binding<T>>) -> Result<()> {
        let group = self.targets.entry(b.ip).or_default();
        if group.len() >= GROUP_MOST {
            return Err(EADDRINUSE);
        }
        group.push(b.clone());
        Ok(())
    }

    fn remove_target(&mut self, b: &Binding<T>) {
        if let Some(group) = self.targets.get_mut(&b.ip) {
            group.retain(|x| x.id != b.id);
            if group.is_empty() {
                self.targets.remove(&b.ip);
            }
        }
    }

    /// Those that may take what is sent to an address: at it, and at the wildcards.
    fn targets_at(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<Binding<T>>> {
        let any = [any_ip(AF_INET), any_ip(AF_INET6)];
        let wild = any.into_iter().filter(move |a| *a != ip);
        let places = std::iter::once(ip).chain(wild);
        places.filter_map(|a| self.targets.get(&a)).flatten()
    }
}

/// All bindings of one protocol.
pub struct PortTable<T> {
    ports: Mutex<HashMap<u16, Port<T>>>,
    next_id: AtomicU64,
    /// Where the search for a free port begins: a keyed hash of how many there were, which nobody
    /// outside foresees (RFC 6056).
    key: [u8; 16],
    next: AtomicU32,
    turn: AtomicU32,
}

/// Whether two bindings may share a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// SO_REUSEADDR shares unless one of them listens.
    Tcp,
    /// SO_REUSEADDR shares.
    Udp,
}

impl<T> PortTable<T> {
    fn new() -> PortTable<T> {
        let mut key = [0; 16];
        hostcall::time::random(&mut key);
        PortTable {
            ports: Mutex::new(HashMap::new()),
            next_id: AtomicU64::new(0),
            key,
            next: AtomicU32::new(0),
            turn: AtomicU32::new(0),
        }
    }

    fn conflict(port: &Port<T>, new: &Binding<T>, rule: Rule, listening: bool) -> bool {
        port.all.values().any(|b| {
            if std::ptr::eq(&**b, new) || !b.overlaps(new) {
                return false;
            }
            let both = |o| b.common.flag(o) && new.common.flag(o);
            let b_listens = b.target.lock().is_some();
            let share_addr = match rule {
                Rule::Tcp => both(SO_REUSEADDR) && !b_listens,
                Rule::Udp => both(SO_REUSEADDR),
            };
            let share_port = both(SO_REUSEPORT) && b.uid == new.uid;
            if listening {
                // Only another listener is in the way now.
                return b_listens && !share_port;
            }
            !share_addr && !share_port
        })
    }

    /// Takes an address; port 0 takes a free one.
    pub fn bind(
        &self,
        at: Endpoint,
        families: Families,
        common: &Arc<Common>,
        uid: u32,
        rule: Rule,
        target: Option<Arc<T>>,
    ) -> Result<Arc<Binding<T>>> {
        let mut ports = self.ports.lock();
        let make = |port| Binding {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            ip: at.ip,
            port,
            families,
            common: common.clone(),
            uid,
            remote: Mutex::new(None),
            target: Mutex::new(None),
        };
        let b = if at.port == 0 {
            let span = u32::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            let start = SipHasher13::new_with_key(&self.key).hash(&turn.to_ne_bytes()) as u32;
            (0..span)
                .map(|i| EPHEMERAL.start() + (start.wrapping_add(i) % span) as u16)
                .find(|p| !ports.contains_key(p))
                .map(make)
                .ok_or(EADDRINUSE)?
        } else {
            let b = make(at.port);
            if ports
                .get(&at.port)
                .is_some_and(|l| Self::conflict(l, &b, rule, false))
            {
                return Err(EADDRINUSE);
            }
            b
        };
        let b = Arc::new(b);
        let port = ports.entry(b.port).or_default();
        if target.is_some() {
            port.add_target(&b)?;
        }
        *b.target.lock() = target;
        port.all.insert(b.id, b.clone());
        Ok(b)
    }

    /// A port for an outgoing connection.
    pub fn bind_ephemeral(
        &self,
        ip: IpAddr,
        common: &Arc<Common>,
        uid: u32,
        target: Option<Arc<T>>,
    ) -> Result<Arc<Binding<T>>> {
        self.bind(
            Endpoint { ip, port: 0 },
            Families::Both,
            common,
            uid,
            Rule::Udp,
            target,
        )
        .map_err(|_| EADDRNOTAVAIL)
    }

    /// The same port as `b`, for a connection that came to it.
    pub fn share(&self, b: &Binding<T>, ip: IpAddr, common: &Arc<Common>) -> Arc<Binding<T>> {
        let new = Arc::new(Binding {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            ip,
            port: b.port,
            families: Families::Both,
            common: common.clone(),
            uid: b.uid,
            remote: Mutex::new(None),
            target: Mutex::new(None),
        });
        self.ports
            .lock()
            .entry(b.port)
            .or_default()
            .all
            .insert(new.id, new.clone());
        new
    }

    /// From now on `target` takes what comes; `EADDRINUSE` if another does already.
    pub fn set_target(&self, b: &Arc<Binding<T>>, target: Arc<T>) -> Result<()> {
        let mut ports = self.ports.lock();
        let port = ports.entry(b.port).or_default();
        if Self::conflict(port, b, Rule::Tcp, true) {
            return Err(EADDRINUSE);
        }
        port.add_target(b)?;
        *b.target.lock() = Some(target);
        Ok(())
    }

    /// Stops taking what comes, and keeps the port.
    pub fn clear_target(&self, b: &Arc<Binding<T>>) -> Option<Arc<T>> {
        let mut ports = self.ports.lock();
        if let Some(p) = ports.get_mut(&b.port) {
            p.remove_target(b);
        }
        b.target.lock().take()
    }

    pub fn unbind(&self, b: &Arc<Binding<T>>) {
        let mut ports = self.ports.lock();
        let target = b.target.lock().take();
        if let Some(p) = ports.get_mut(&b.port) {
            p.all.remove(&b.id);
            if target.is_some() {
                p.remove_target(b);
            }
            if p.all.is_empty() {
                ports.remove(&b.port);
            }
        }
        drop(ports);
        drop(target);
    }

    /// Who takes what is sent to `dest`. `better` adds to the score of a candidate (`None` rejects
    /// it). Among equals (SO_REUSEPORT) they take turns.
    pub fn lookup(&self, dest: Endpoint, better: impl Fn(&T) -> Option<u32>) -> Option<Arc<T>> {
        let ports = self.ports.lock();
        let mut best: Vec<Arc<T>> = Vec::new();
        let mut top = 0;
        for b in ports.get(&dest.port)?.targets_at(dest.ip) {
            let Some(t) = b.target.lock().clone() else {
                continue;
            };
            let Some(score) = b.score(dest.ip).and_then(|s| Some(s + better(&t)?)) else {
                continue;
            };
            if score > top {
                top = score;
                best.clear();
            }
            if score == top {
                best.push(t);
            }
        }
        match best.len() {
            0 => None,
            1 => best.pop(),
            n => {
                let i = self.turn.fetch_add(1, Ordering::Relaxed) as usize % n;
                Some(best.swap_remove(i))
            }
        }
    }

    /// All who take what is sent to `dest`, if `take` says so.
    pub fn matching(&self, dest: Endpoint, take: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let ports = self.ports.lock();
        let port = ports.get(&dest.port);
        let all = port.into_iter().flat_map(|p| p.targets_at(dest.ip));
        all.filter(|b| b.score(dest.ip).is_some())
            .filter_map(|b| b.target.lock().clone())
            .filter(|t| take(t))
            .collect()
    }

    /// All bindings, for `/proc/net`.
    pub fn all(&self) -> Vec<Arc<Binding<T>>> {
        self.ports
            .lock()
            .values()
            .flat_map(|p| p.all.values().cloned())
            .collect()
    }
}
