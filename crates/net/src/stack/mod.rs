//! The sockets' side of our own TCP/IP stack: `netstack` on the devices of a namespace of the host
//! that the container has been given. Who gets what comes is said in [`crate::arrivals`].
//!
//! ```text
//! mod          what goes out, and segments that come
//! connection   a TCP connection, as its socket and the threads here see it
//! passive      connections that somebody outside begins
//! paths        paths of connections, while they last
//! table        all connections, and what is left of them in TIME_WAIT
//! options      what a socket's options mean for it
//! timers       when connections must be looked at
//! info         struct tcp_info
//! names        Docker's name server
//! gate         what may leave, by rules
//! ports        the devices: where frames of each go, and what programs' own may be
//! receiving    by a thread, or by the task that waits
//! links        frames to and from the devices' sockets
//! ```
//!
//! # Threads
//!
//! One receives by the devices of the host, and does all that follows from a frame; or a task that
//! waits for frames does that itself meanwhile ([`receiving`]). One looks after timers. For devices
//! that programs made, and where there are only such, the worker does both ([`crate::work`]). Calls
//! of programs send in their own threads.
//!
//! # What holds
//!
//! - These threads never wait for a connection: whoever works on it takes over what they bring
//!   ([`connection`]). A call copies from a program's memory with its connection held, and a
//!   program can make that take long; it keeps nobody but those that use the same connection.
//! - All that is kept for somebody outside is bounded: half-open connections by their listener's
//!   backlog, queues by their socket's buffers.
//!
//! # Lock order
//!
//! ```text
//! Tcp::state → Remote::state → application memory, the stack's own locks (leaves)
//!   leaves: Remote::backlog, Connections, Timers; Questions' before Gate::state
//! ```
//!
//! Wait queues are notified without any of these.

pub(crate) mod connection;
pub(crate) mod gate;
mod info;
mod links;
pub(crate) mod names;
mod options;
mod passive;
mod paths;
mod ports;
mod receiving;
mod table;
mod timers;

pub(crate) use options::marks;
pub(crate) use ports::Made;
pub use receiving::Bells;

use crate::addr::Endpoint;
use crate::clock::now;
use crate::frames::Framed;
use crate::interface::ETHERNET;
use crate::ns::NetNamespace;
use crate::options::Common;
use crate::taps::At;
use crate::work::{Job, Next, Ticket};
use abi::Result;
use abi::errno::{EAGAIN, EBUSY};
use bytes::Bytes;
use gate::Gate;
use hostcall::HostFd;
use hostcall::packet::Link;
use names::Names;
use netstack::ip::{
    About, FrameMeta, IcmpError, Info, Ip, Marks, NoRoute, Pair, Path, Raw, SendError, Sent, Taken,
};
use netstack::setup::Setup;
use netstack::tcp::{Segment, secret::Secret};
use netstack::time::Instant;
use ports::Ports;
use receiving::Receiving;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use table::Connections;
use timers::Timers;
use wait::deadline_after;
use wait::lead::{Ask, Lead};

/// See the module.
pub(crate) struct Stack {
    me: Weak<Stack>,
    ns: Weak<NetNamespace>,
    pub(crate) ip: Ip,
    ports: Arc<Ports>,
    /// Has it work where it has no threads of its own.
    ticket: Ticket,
    connections: Connections,
    timers: Timers,
    /// Who receives by the devices of the host, where there are some; and what wakes him where
    /// there are others.
    lead: OnceLock<Arc<Lead>>,
    bells: OnceLock<Arc<Bells>>,
    /// Threads receive.
    serves: AtomicBool,
    /// Connections without a socket.
    orphans: AtomicUsize,
    secret: Secret,
    /// Docker's name server.
    pub(crate) names: OnceLock<Arc<Names>>,
    pub(crate) gate: Arc<Gate>,
}

pub(crate) fn random() -> [u8; 16] {
    let mut secret = [0; 16];
    hostcall::time::random(&mut secret);
    secret
}

impl Stack {
    /// Of devices of the host, in the order of their sockets. `ENOSPC` where those are too many.
    pub fn new(
        ns: &Arc<NetNamespace>,
        setup: &Setup,
        links: Vec<Link>,
        names: Option<HostFd>,
        rules: gate::Start,
    ) -> Result<Arc<Stack>> {
        let stack = Stack::empty(ns, rules);
        for (d, link) in setup.devices.iter().zip(links) {
            stack.take(d.index, d.index as i32, d.mac, link)?;
        }
        stack.learn_names(names);
        Ok(stack)
    }

    fn empty(ns: &Arc<NetNamespace>, rules: gate::Start) -> Arc<Stack> {
        let gate = Arc::new(Gate::new(rules));
        let ports = Arc::new(Ports::new(ns.taps.clone(), gate.clone()));
        Arc::new_cyclic(|me| Stack {
            me: me.clone(),
            ns: Arc::downgrade(ns),
            ip: Ip::new(&Setup::default(), ports.clone(), random(), ns.rules.clone()),
            ports,
            ticket: Ticket::default(),
            connections: Connections::default(),
            timers: Timers::default(),
            lead: OnceLock::new(),
            bells: OnceLock::new(),
            serves: AtomicBool::new(false),
            orphans: AtomicUsize::new(0),
            secret: Secret::new(random()),
            names: OnceLock::new(),
            gate,
        })
    }

    /// Of devices that programs make: the worker has it look after timers.
    pub fn of_programs(ns: &Arc<NetNamespace>) -> Arc<Stack> {
        let stack = Stack::empty(ns, gate::Start::default());
        let me: Weak<dyn Job> = Arc::downgrade(&stack) as Weak<Stack>;
        stack.timers.serve_by(ns.worker.clone(), me);
        stack
    }

    /// Takes other devices, addresses and routes; `devices` are those that programs made.
    pub fn set(&self, setup: &Setup, devices: HashMap<u32, Arc<dyn Made>>) {
        self.ports.set(devices);
        self.ip.set(setup);
        self.timers.look_at(self.ip.deadline());
    }

    /// No frames leave any more by devices that programs made.
    pub fn close(&self) {
        self.ports.set(HashMap::new());
    }

    /// A frame came by a device that a program made.
    pub fn receive(&self, now: Instant, device: i32, meta: &FrameMeta, frame: Bytes) {
        self.ip.receive(now, device as u32, meta, frame, self);
        self.timers.look_at(self.ip.deadline());
    }

    /// There is a device of the host's, known by this index here. `ENOSPC` where there are too many.
    pub fn take(&self, host: u32, device: i32, mac: [u8; 6], link: Link) -> Result<()> {
        let at = At {
            device,
            hardware: ETHERNET,
            mac,
        };
        self.ports.add(host, at, link.fd)?;
        self.ring();
        Ok(())
    }

    /// One has another socket, by its index on the host.
    pub fn renew(&self, host: u32, link: Link) {
        self.ports.renew(host, link.fd);
        self.ring();
    }

    /// One has gone, by its index on the host.
    pub fn leave_taken(&self, host: u32) {
        self.ports.remove(host);
        self.ring();
    }

    /// The devices of the host: their indices there and here.
    pub fn taken(&self) -> HashMap<u32, i32> {
        let all = self.ports.taken();
        all.iter().map(|t| (t.host, t.at.device)).collect()
    }

    /// The same: their indices and hardware addresses there.
    pub fn taken_devices(&self) -> Vec<(u32, [u8; 6])> {
        let all = self.ports.taken();
        all.iter().map(|t| (t.host, t.at.mac)).collect()
    }

    /// Has who waits for frames wait for those of all devices.
    fn ring(&self) {
        if let Some(b) = self.bells.get() {
            b.ring();
        }
    }

    /// Questions to Docker's name server go by this socket, if none has come before.
    pub fn learn_names(&self, socket: Option<HostFd>) {
        if let Some(s) = socket {
            let _ = self.names.set(Names::new(s));
        }
    }

    /// What wakes who receives: these, if it has none yet.
    pub fn bells(&self, make: impl FnOnce() -> Option<Bells>) -> Option<&Arc<Bells>> {
        if self.bells.get().is_none() {
            let _ = self.bells.set(Arc::new(make()?));
        }
        self.bells.get()
    }

    /// Has threads receive and look after timers, for ever. Where it fails, it may be tried again.
    /// `EBUSY` without [`Stack::bells`].
    pub fn serve(self: &Arc<Self>) -> Result<()> {
        let bells = self.bells.get().ok_or(EBUSY)?.clone();
        let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let made = std::thread::Builder::new()
                .name(name.into())
                .stack_size(256 << 10)
                .spawn(run);
            made.map(drop).map_err(|_| EAGAIN)
        };
        let stack = self.clone();
        let lead = Lead::new(Box::new(Receiving { stack, bells }));
        let lead = self.lead.get_or_init(|| lead).clone();
        thread("network", Box::new(move || lead.serve()))?;
        if !self.timers.has_worker() {
            let me = self.clone();
            thread("network-timers", Box::new(move || me.serve_timers()))?;
        }
        self.serves.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether there are devices of the host.
    pub fn serves(&self) -> bool {
        self.serves.load(Ordering::Acquire)
    }

    /// See [`NetNamespace::say_last_words`]. Those of devices that programs made have nobody to
    /// hear them: their peers are programs, too.
    pub fn say_last_words(&self, most: Duration) {
        let until = deadline_after(most);
        for c in self.live() {
            c.await_the_last(until);
        }
    }

    /// Takes what has come by the host's devices, where nobody else does just now; whether there
    /// was something. For calls, before they look or where they find nothing: without any lock.
    pub fn catch_up(&self, ask: Ask) -> bool {
        self.lead.get().is_some_and(|l| l.catch_up(ask))
    }

    fn serve_timers(&self) {
        let mut old = None;
        loop {
            let beside = [self.ip.deadline(), old];
            let due = self.timers.wait(beside.into_iter().flatten().min());
            old = self.on_time(due);
        }
    }

    /// Does what is due; when connections that are over are to be looked at again.
    fn on_time(&self, due: timers::Due) -> Option<Instant> {
        for (place, c) in due.timed {
            c.timer(place);
        }
        for c in due.behind {
            c.catch_up();
        }
        let now = now();
        if self.ip.deadline().is_some_and(|d| d <= now) {
            self.ip.timer(now, self);
        }
        let ns = self.ns.upgrade()?;
        self.connections.expire(&ns, now)
    }

    /// The way to an address; from an own one, if that is said.
    pub fn path(&self, to: IpAddr, from: Option<IpAddr>) -> Result<Path> {
        self.ip.path(to, from, None).map_err(NoRoute::errno)
    }

    /// The source address towards another one.
    pub fn source_for(&self, to: IpAddr) -> Result<IpAddr> {
        self.path(to, None).map(|p| p.source)
    }

    /// A path is known to work.
    pub fn confirm(&self, path: &Path) {
        self.ip.confirm(now(), path);
    }

    /// Sends a datagram of UDP out.
    pub fn send_udp(
        &self,
        path: &Path,
        from: Endpoint,
        to: Endpoint,
        data: &[u8],
        segment: Option<u16>,
        marks: &Marks,
    ) -> std::result::Result<Sent, SendError> {
        let pair = pair(from, to, path);
        let sent = self.ip.send_udp(now(), path, pair, &[data], segment, marks);
        self.timers.look_at(self.ip.deadline());
        sent
    }

    /// Sends a packet of a raw socket.
    pub fn send_raw(
        &self,
        path: &Path,
        packet: Raw<'_>,
        marks: &Marks,
    ) -> std::result::Result<Sent, SendError> {
        let sent = self.ip.send_raw(now(), path, packet, marks);
        self.timers.look_at(self.ip.deadline());
        sent
    }

    /// The connections that there are.
    pub fn live(&self) -> Vec<Arc<connection::Remote>> {
        self.connections.all()
    }

    /// The ends of those in TIME_WAIT without a socket, this host's first.
    pub fn left(&self) -> Vec<(Endpoint, Endpoint)> {
        let all = self.connections.old().into_iter();
        all.map(|p| (endpoint(p.local), endpoint(p.remote)))
            .collect()
    }

    /// Takes in what stays on this host. Its caller holds no lock.
    pub fn pass_inside(&self) {
        if self.ip.holds_inside() {
            self.ip.pass_inside(now(), self);
            self.timers.look_at(self.ip.deadline());
        }
    }

    /// Joins a group on a device, by its index.
    pub fn join(&self, device: u32, group: IpAddr) -> std::result::Result<(), SendError> {
        let joined = self.ip.join(device, group);
        self.timers.look_at(self.ip.deadline());
        joined
    }

    pub fn leave(&self, device: u32, group: IpAddr) {
        self.ip.leave(device, group);
        self.timers.look_at(self.ip.deadline());
    }
}

impl Job for Stack {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    fn work(&self, _: Instant) -> Next {
        let old = self.on_time(self.timers.take());
        let beside = [self.ip.deadline(), old];
        let next = self.timers.rest(beside.into_iter().flatten().min());
        next.map_or(Next::Nothing, Next::At)
    }
}

impl Stack {
    /// The namespace whose it is, while that is there.
    pub fn namespace(&self) -> Option<Arc<NetNamespace>> {
        self.ns.upgrade()
    }

    /// A segment came: for its connection, or to begin one.
    pub fn segment(&self, now: Instant, pair: Pair, mut segment: Segment, info: &Info) -> Taken {
        match self.connections.get(&pair) {
            Some(c) => {
                if admits(&c.common, &mut segment, info) {
                    // What waits keeps no more of a frame than it needs.
                    segment.headers = Bytes::new();
                    c.deliver(segment);
                }
                Taken::Yes
            }
            None => self.stranger(now, pair, segment, info),
        }
    }

    /// A segment that was sent did not arrive.
    pub fn segment_failed(&self, about: &About, error: IcmpError) {
        let known = self.connections.get(&about.pair);
        if let (Some(c), Some(seq)) = (known, about.tcp_seq) {
            c.failed(seq, error);
        }
    }

    /// Whether rules look at what came so. (What programs make devices for is no outside.)
    pub fn is_ruled(&self, info: &Info) -> bool {
        self.gate.is_on() && self.ports.is_taken(info.device) && !info.renamed
    }
}

/// Whether a socket's filter lets a segment in, which may cut it (`tcp_filter`).
fn admits(common: &Common, segment: &mut Segment, info: &Info) -> bool {
    if !common.filter.is_on() {
        return true;
    }
    let made = Framed::whole(
        &[&segment.headers[..], &segment.payload].concat(),
        info.device as i32,
    );
    let header = segment.headers.len() - usize::from(info.header);
    let Some(n) = common
        .filter
        .admits(&made.behind(info.header.into()), header)
    else {
        return false;
    };
    segment.payload.truncate(n - header);
    true
}

pub(crate) fn endpoint(a: std::net::SocketAddr) -> Endpoint {
    Endpoint::new(a.ip(), a.port())
}

/// Two ends on the way by a device: addresses of a link have it as their scope.
fn pair(local: Endpoint, remote: Endpoint, path: &Path) -> Pair {
    let of = |e: Endpoint| match e.ip {
        IpAddr::V6(a) if a.is_unicast_link_local() => {
            SocketAddrV6::new(a, e.port, 0, path.index).into()
        }
        ip => (ip, e.port).into(),
    };
    Pair {
        local: of(local),
        remote: of(remote),
    }
}
