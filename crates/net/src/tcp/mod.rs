//! TCP sockets.
//!
//! A connection between sockets of one namespace is two [`Half`]s. A connect finds the listener and
//! makes the other side's socket at once, unless the accept queue is full: then the connect waits
//! in the listener's `syns` until accept makes room. A connection that leads out is an [`Outside`].

mod outside;
mod shown;

pub(crate) use outside::Begin;
pub use outside::{Outside, accept_from_outside};

use crate::addr::{Endpoint, any_ip, family_of, parse_bind, parse_inet};
use crate::bindings::{self, Asked, Binding, Rule};
use crate::control::Control;
use crate::inet::{
    IP_BIND_ADDRESS_NO_PORT, IP_FREEBIND, IPV6_FREEBIND, IPV6_V6ONLY, InetOptions, TCP_CONGESTION,
};
use crate::interface::LO_INDEX;
use crate::ns::NetNamespace;
use crate::options::{Common, SO_ACCEPTCONN, SO_ERROR, SO_KEEPALIVE};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::stream::{End, Gone, Half, Take};
use crate::sys::*;
use abi::Result;
use abi::errno::{
    EACCES, EADDRNOTAVAIL, EAGAIN, EALREADY, ECONNABORTED, ECONNREFUSED, ECONNRESET, EINPROGRESS,
    EINVAL, EISCONN, ENETUNREACH, ENOBUFS, ENOENT, ENOPROTOOPT, ENOTCONN, EOPNOTSUPP, EPERM, EPIPE,
};
use netstack::tcp::Seq;
use parking_lot::{Mutex, RwLock};
use shown::{Shown, show_refusal};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vfs::{Caps, Credentials, Sink, Source};
use wait::Events;
use wait::offer::{Place, ReadSlots};

/// A TCP socket.
pub struct Tcp {
    me: Weak<Tcp>,
    common: Arc<Common>,
    /// A listener's, too: what is set later counts for the connections that come then.
    options: Arc<InetOptions>,
    state: RwLock<State>,
}

struct State {
    phase: Phase,
    local: Option<Endpoint>,
    binding: Option<Arc<Binding<Listener>>>,
    bound: Bound,
}

/// What bind(2) was asked for: it is kept when a connection is over.
#[derive(Clone, Copy, Default)]
struct Bound {
    /// `SOCK_BINDADDR_LOCK`.
    ip: Option<IpAddr>,
    /// `SOCK_BINDPORT_LOCK`.
    port: bool,
}

impl State {
    /// A connection is over, or none came of it: what bind(2) was not asked for is given up
    /// (`tcp_set_state`, `tcp_disconnect`).
    fn unconnect(&mut self, common: &Common) {
        if let Some(l) = &mut self.local {
            l.ip = self.bound.ip.unwrap_or_else(|| any_ip(common.family));
        }
        if let Some(b) = &self.binding {
            *b.remote.lock() = None;
            b.release();
        }
        if !self.bound.port
            && let Some(b) = self.binding.take()
        {
            common.ns.tcp.unbind(&b);
        }
    }
}

enum Phase {
    Idle,
    Listening(Arc<Listener>),
    /// The listener's queue is full.
    Connecting {
        listener: Arc<Listener>,
        local: Endpoint,
        remote: Endpoint,
    },
    /// A connect that did not wait was refused; the error is pending.
    Refused,
    Connected(Connection),
    /// With somebody outside.
    Outside(Arc<dyn Outside>),
}

struct Connection {
    rx: Arc<Half>,
    tx: Arc<Half>,
    local: Endpoint,
    remote: Endpoint,
    /// Whether a connect call has told of it.
    announced: bool,
    /// No other has them until it is over.
    ends: Option<Arc<bindings::Ends>>,
}

impl Connection {
    /// Reset, or finished by both sides: Linux's TCP_CLOSE.
    fn is_dead(&self) -> bool {
        let (rx, tx) = (self.rx.ends(), self.tx.ends());
        rx.end == End::Reset || tx.writer_dead || (rx.end == End::Fin && tx.end == End::Fin)
    }
}

/// A listening socket, as connects see it.
pub struct Listener {
    common: Arc<Common>,
    options: Arc<InetOptions>,
    binding: Arc<Binding<Listener>>,
    queue: Mutex<AcceptQueue>,
    /// Handshakes with somebody outside that are not done.
    half_open: AtomicUsize,
    /// When a cookie was sent last, in milliseconds of the monotonic clock; 0: never.
    cookie_at: AtomicU64,
}

#[derive(Default)]
struct AcceptQueue {
    ready: VecDeque<Arc<Tcp>>,
    /// Connects that found `ready` full.
    syns: VecDeque<Weak<Tcp>>,
    /// Where `syns` is swept of those that have gone.
    sweep_at: usize,
    backlog: usize,
    closed: bool,
}

impl AcceptQueue {
    fn full(&self) -> bool {
        self.ready.len() > self.backlog
    }
    fn wait(&mut self, t: Weak<Tcp>) {
        if self.syns.len() >= self.sweep_at {
            self.syns.retain(|t| t.strong_count() > 0);
            self.sweep_at = (2 * self.syns.len()).max(64);
        }
        self.syns.push_back(t);
    }
}

pub fn new(ns: &Arc<NetNamespace>, family: u16) -> Parts {
    let common = Common::new(ns, family, SOCK_STREAM, IPPROTO_TCP);
    let state = State {
        phase: Phase::Idle,
        local: None,
        binding: None,
        bound: Bound::default(),
    };
    let tcp = Tcp::make(common.clone(), InetOptions::default(), state);
    Parts::new(common, tcp)
}

/// The address that a caller may bind (`EADDRNOTAVAIL`, `EACCES`), for TCP and UDP.
pub fn bindable(
    common: &Common,
    options: &InetOptions,
    who: &Caller<'_>,
    addr: &[u8],
) -> Result<Endpoint> {
    let at = parse_bind(addr, common.family)?;
    if common.family == AF_INET6 && at.ip.is_ipv4() && options.on(SOL_IPV6, IPV6_V6ONLY) {
        return Err(EINVAL);
    }
    let free = options.on(SOL_IP, IP_FREEBIND) || options.on(SOL_IPV6, IPV6_FREEBIND);
    let group =
        common.kind == SOCK_DGRAM && (at.ip.is_multicast() || common.ns.is_broadcast(at.ip));
    if !at.ip.is_unspecified() && !common.ns.is_local(at.ip) && !free && !group {
        return Err(EADDRNOTAVAIL);
    }
    let first = common.ns.unprivileged_port_start.load(Ordering::Relaxed);
    if at.port != 0 && at.port < first && !who.cred.has_in(&common.ns.user, Caps::NET_BIND_SERVICE)
    {
        return Err(EACCES);
    }
    Ok(at)
}

/// The destination that an address means, from a socket bound to `local`, and the source address.
pub fn route(
    common: &Common,
    options: &InetOptions,
    local: Option<Endpoint>,
    to: Endpoint,
) -> Result<(Endpoint, IpAddr)> {
    let mut ip = common.ns.resolve(to.ip);
    let bound = local.map(|l| l.ip).filter(|ip| !ip.is_unspecified());
    if to.ip.is_unspecified()
        && let Some(b) = bound
    {
        // "This host" from an address of one family stays in it.
        ip = if b.is_ipv4() == ip.is_ipv4() { ip } else { b };
    }
    let v6only = common.family == AF_INET6 && options.on(SOL_IPV6, IPV6_V6ONLY);
    if (ip.is_ipv4() && v6only) || !common.ns.reaches(ip) {
        common.ns.miss(ip);
        return Err(ENETUNREACH);
    }
    if bound.is_some_and(|b| b.is_ipv4() != ip.is_ipv4()) {
        return Err(ENETUNREACH);
    }
    let source = bound.unwrap_or_else(|| common.ns.source_for(ip));
    Ok((Endpoint { ip, port: to.port }, source))
}

/// The ends of a connection that begins.
struct Between {
    local: Endpoint,
    remote: Endpoint,
    /// The least sequence number that it may begin with, where it follows one that is not forgotten.
    least: Option<Seq>,
}

/// What a connection is between, seen from the socket that connects.
struct Ends {
    local: Endpoint,
    remote: Endpoint,
    /// The application knows of it.
    announced: bool,
}

impl Tcp {
    fn make(common: Arc<Common>, options: InetOptions, state: State) -> Arc<Tcp> {
        Arc::new_cyclic(|me| Tcp {
            me: me.clone(),
            common,
            options: Arc::new(options),
            state: RwLock::new(state),
        })
    }

    fn asked(&self, at: Endpoint, uid: u32) -> Asked<'_> {
        Asked {
            at,
            ports: self.options.local_ports(&self.common.ns),
            families: self.options.families(),
            common: &self.common,
            uid,
        }
    }

    /// The ends of a connection to `addr`: this socket's own, bound by now, and the other one.
    fn ends(&self, s: &mut State, who: &Caller<'_>, addr: &[u8]) -> Result<Between> {
        let to = parse_inet(addr, self.common.family)?;
        who.cred.may_take_more(ENOBUFS)?;
        let bound = s.bound.ip.map(|ip| Endpoint { ip, port: 0 });
        let (remote, ip) = route(&self.common, &self.options, bound, to)?;
        let (port, least) = self.take_port(s, who.cred.euid, ip, remote)?;
        let local = Endpoint { ip, port };
        s.local = Some(local);
        Ok(Between {
            local,
            remote,
            least,
        })
    }

    /// Joins this socket to `l` with a new socket on the other side, which goes into the accept
    /// queue. The caller holds this socket's state lock (`state`) and knows that the queue `q` is
    /// `l`'s.
    fn establish(&self, state: &mut State, l: &Listener, q: &mut AcceptQueue, ends: Ends) {
        let Ends {
            local,
            remote,
            announced,
        } = ends;
        let theirs = Common::inherit(&l.common, &self.common);
        let out = Half::new(&self.common, &theirs, 0);
        let back = Half::new(&theirs, &self.common, 0);
        let binding = self.common.ns.tcp.share(&l.binding, remote.ip, &theirs);
        *binding.remote.lock() = Some(local);
        if let Some(b) = &state.binding {
            *b.remote.lock() = Some(remote);
        }
        let held = state.binding.as_ref().and_then(|b| b.ends());
        let server = Tcp::make(
            theirs,
            l.options.duplicate(),
            State {
                phase: Phase::Connected(Connection {
                    rx: out.clone(),
                    tx: back.clone(),
                    local: remote,
                    remote: local,
                    announced: true,
                    ends: held.clone(),
                }),
                local: Some(remote),
                binding: Some(binding),
                bound: l.bound(),
            },
        );
        q.ready.push_back(server);
        state.local = Some(local);
        let c = Connection {
            rx: back,
            tx: out,
            local,
            remote,
            announced,
            ends: held,
        };
        c.show_handshake(&self.common.ns);
        state.phase = Phase::Connected(c);
    }

    /// There is room in the queue: connects that wait go on, past those that have given up.
    fn admit(l: &Arc<Listener>) {
        loop {
            let next = {
                let mut q = l.queue.lock();
                if q.full() || q.closed {
                    return;
                }
                q.syns.pop_front()
            };
            match next {
                None => return,
                Some(t) => {
                    if let Some(t) = t.upgrade() {
                        t.complete(l);
                    }
                }
            }
        }
    }

    /// A waiting connect goes on.
    fn complete(&self, l: &Arc<Listener>) {
        {
            let mut s = self.state.write();
            let Phase::Connecting {
                listener,
                local,
                remote,
            } = &s.phase
            else {
                return;
            };
            if !Arc::ptr_eq(listener, l) {
                return;
            }
            let (local, remote) = (*local, *remote);
            let mut q = l.queue.lock();
            if q.closed {
                drop(q);
                s.phase = Phase::Refused;
                s.unconnect(&self.common);
                self.common.set_error(ECONNREFUSED);
            } else {
                let ends = Ends {
                    local,
                    remote,
                    announced: false,
                };
                self.establish(&mut s, l, &mut q, ends);
            }
        }
        l.common.notify(Events::READABLE);
        self.common
            .notify(Events::WRITABLE | Events::READABLE | Events::ERR | Events::HUP);
    }

    /// Ends a connection for good. `reset`: whatever was read.
    fn end(&self, c: &Connection, reset: bool) {
        let unread = c.rx.close_reader();
        let linger0 = self.common.linger.load(Ordering::Relaxed) == 0;
        if reset || unread || linger0 {
            let before = c.tx.ends();
            if !before.reader_closed {
                // The peer had our FIN already: its reset reads as a broken pipe.
                c.rx.writer.set_error(if before.end == End::Fin {
                    EPIPE
                } else {
                    ECONNRESET
                });
                // Its next read must find that, before anybody tells it.
                c.tx.settle();
                c.rx.kill_writer();
            }
            c.show_end(&self.common.ns, End::Reset);
            c.tx.finish(End::Reset);
        } else {
            c.show_end(&self.common.ns, End::Fin);
            c.tx.finish(End::Fin);
            if !c.is_dead() {
                return;
            }
        }
        if let Some(e) = &c.ends {
            e.release();
        }
    }

    /// Closes what `phase` was.
    fn leave(&self, phase: Phase) {
        match phase {
            Phase::Idle | Phase::Refused | Phase::Connecting { .. } | Phase::Outside(_) => {}
            Phase::Connected(c) => self.end(&c, false),
            Phase::Listening(l) => {
                let (ready, syns) = {
                    let mut q = l.queue.lock();
                    q.closed = true;
                    (std::mem::take(&mut q.ready), std::mem::take(&mut q.syns))
                };
                for t in ready {
                    t.abort();
                }
                for t in syns.iter().filter_map(Weak::upgrade) {
                    t.complete(&l);
                }
                self.common.notify(Events::READABLE | Events::HUP);
            }
        }
    }

    /// Resets a connection that was never accepted.
    fn abort(&self) {
        let (phase, binding) = {
            let mut s = self.state.write();
            (
                std::mem::replace(&mut s.phase, Phase::Idle),
                s.binding.take(),
            )
        };
        match phase {
            Phase::Connected(c) => self.end(&c, true),
            Phase::Outside(o) => {
                o.reset();
                o.close(None);
            }
            _ => {}
        }
        if let Some(b) = binding {
            self.common.ns.tcp.unbind(&b);
        }
    }

    fn disconnect(&self) {
        let phase = {
            let mut s = self.state.write();
            if let (Phase::Listening(_), Some(b)) = (&s.phase, &s.binding) {
                self.common.ns.tcp.clear_target(b);
            }
            s.unconnect(&self.common);
            std::mem::replace(&mut s.phase, Phase::Idle)
        };
        match phase {
            Phase::Connected(c) => self.end(&c, true),
            Phase::Outside(o) => {
                o.reset();
                o.close(None);
            }
            p => self.leave(p),
        }
        self.common.notify(Events::HUP | Events::WRITABLE);
    }

    fn connection<R>(
        &self,
        f: impl FnOnce(&Connection) -> Result<R>,
        idle: abi::Errno,
    ) -> Result<R> {
        match &self.state.read().phase {
            Phase::Connected(c) => f(c),
            Phase::Connecting { .. } => Err(EAGAIN),
            Phase::Refused => {
                self.common.take_error()?;
                Err(idle)
            }
            _ => Err(idle),
        }
    }

    fn start(&self, who: &Caller<'_>, addr: &[u8], block: Block) -> Result<()> {
        let mut s = self.state.write();
        match &mut s.phase {
            Phase::Idle => {}
            Phase::Listening(_) => return Err(EISCONN),
            Phase::Refused => {
                s.phase = Phase::Idle;
                self.common.take_error()?;
                return Err(ECONNABORTED);
            }
            Phase::Connecting { .. } => {
                return Err(if block == Block::Yes {
                    EAGAIN
                } else {
                    EALREADY
                });
            }
            Phase::Connected(c) if c.announced => return Err(EISCONN),
            Phase::Connected(c) => {
                c.announced = true;
                return Ok(());
            }
            Phase::Outside(o) => match o.again() {
                Some(Err(EAGAIN)) if block == Block::No => return Err(EALREADY),
                Some(Ok(())) => return Ok(()),
                Some(Err(e)) => {
                    if !matches!(e, EAGAIN | EISCONN) {
                        s.phase = Phase::Idle;
                        s.unconnect(&self.common);
                    }
                    return Err(e);
                }
                None => {
                    s.phase = Phase::Idle;
                    s.unconnect(&self.common);
                }
            },
        }
        let between = self.ends(&mut s, who, addr)?;
        let (local, remote) = (between.local, between.remote);
        let waits = block == Block::Yes;
        let done = |ok| if waits { ok } else { Err(EINPROGRESS) };
        let ns = &self.common.ns;
        // A wildcard's listener is for this host's addresses, not for others' that leave.
        let inside = !ns.is_outside(remote.ip);
        let by_loopback = |l: &Listener| l.takes_from(LO_INDEX);
        let listener = ns.tcp.lookup(remote, by_loopback).filter(|_| inside);
        if listener.is_none()
            && let Some(way) = ns.way_to(remote)
        {
            return self.leave_by(&mut s, way, &between, block);
        }
        if let Some(l) = listener {
            let mut q = l.queue.lock();
            if !q.closed && q.full() {
                q.wait(self.me.clone());
                drop(q);
                s.phase = Phase::Connecting {
                    listener: l,
                    local,
                    remote,
                };
                return done(Err(EAGAIN));
            }
            if !q.closed {
                let ends = Ends {
                    local,
                    remote,
                    announced: waits,
                };
                self.establish(&mut s, &l, &mut q, ends);
                drop(q);
                drop(s);
                l.common.notify(Events::READABLE);
                self.common.notify(Events::WRITABLE);
                return done(Ok(()));
            }
        }
        show_refusal(ns, local, remote);
        s.unconnect(&self.common);
        if waits {
            return Err(ECONNREFUSED);
        }
        // As on Linux, a connect that does not wait learns it from SO_ERROR.
        s.phase = Phase::Refused;
        self.common.set_error(ECONNREFUSED);
        drop(s);
        self.common
            .notify(Events::WRITABLE | Events::READABLE | Events::ERR | Events::HUP);
        Err(EINPROGRESS)
    }

    fn info(&self) -> Vec<u8> {
        let mut v = vec![0; 248];
        v[0] = match &self.state.read().phase {
            Phase::Idle | Phase::Refused => 7,
            Phase::Listening(_) => 10,
            Phase::Connecting { .. } => 2,
            Phase::Connected(c) if c.is_dead() => 7,
            Phase::Connected(c) => match (c.rx.ends().end, c.tx.ends().end) {
                (End::Open, End::Open) => 1,
                (End::Open, _) => 5,
                (_, End::Open) => 8,
                _ => 7,
            },
            Phase::Outside(_) => 1,
        };
        let mut put = |at: usize, n: u32| v[at..at + 4].copy_from_slice(&n.to_le_bytes());
        put(8, 204_000); // rto
        put(12, 40_000); // ato
        put(16, 65_483); // snd_mss
        put(20, 65_483); // rcv_mss
        put(60, 65_535); // pmtu
        put(64, 65_483); // rcv_ssthresh
        put(68, 20); // rtt
        put(72, 10); // rttvar
        put(76, 0x7fff_ffff); // snd_ssthresh
        put(80, 10); // snd_cwnd
        put(84, 65_483); // advmss
        put(88, 3); // reordering
        put(96, 65_483); // rcv_space
        v
    }
}

const TCP_MAXSEG: i32 = 2;
/// What TCP_CONGESTION takes; the option is kept as the place here.
const CONGESTION: [&str; 2] = ["cubic", "reno"];

/// The name of a congestion control, by its place.
pub(crate) fn congestion(place: usize) -> &'static str {
    CONGESTION.get(place).unwrap_or(&CONGESTION[0])
}

impl Tcp {
    /// The largest segment: the connection's, else what was set, else what all take (536 bytes).
    fn maxseg(&self) -> i32 {
        let set = self.options.set_values();
        let set = set.iter().find(|v| (v.0, v.1) == (SOL_TCP, TCP_MAXSEG));
        let s = self.state.read();
        match &s.phase {
            Phase::Outside(o) => o.mss().unwrap_or(536),
            Phase::Connected(_) => self.options.value(SOL_TCP, TCP_MAXSEG),
            _ => set.map_or(536, |v| v.2),
        }
    }

    fn set_congestion(&self, v: &[u8]) -> Result<()> {
        let name = v.split(|&b| b == 0).next().unwrap_or(&[]);
        let n = CONGESTION.iter().position(|c| c.as_bytes() == name);
        let n = n.ok_or(ENOENT)? as i32;
        self.options.keep(SOL_TCP, TCP_CONGESTION, n);
        match self.outside() {
            Some(o) => o.set_option(SOL_TCP, TCP_CONGESTION, &n.to_ne_bytes()),
            None => Ok(()),
        }
    }
}

impl ReadSlots for Tcp {
    fn offer(&self, place: &Arc<dyn Place>, slot: u32, nonblocking: &dyn Fn() -> bool) {
        if let Phase::Connected(c) = &self.state.read().phase
            && !c.is_dead()
        {
            c.rx.offer(place, slot, nonblocking);
        }
    }

    fn end_offer(&self) {
        if let Phase::Connected(c) = &self.state.read().phase {
            c.rx.settle();
        }
    }
}

impl Protocol for Tcp {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let at = bindable(&self.common, &self.options, who, addr)?;
        let mut s = self.state.write();
        match &s.phase {
            Phase::Idle => {}
            Phase::Connected(c) if c.is_dead() => s.unconnect(&self.common),
            _ => return Err(EINVAL),
        }
        if s.binding.is_some() {
            return Err(EINVAL);
        }
        let mut local = at;
        if at.port != 0 || !self.options.on(SOL_IP, IP_BIND_ADDRESS_NO_PORT) {
            let asked = self.asked(at, who.cred.euid);
            let b = self.common.ns.tcp.bind(&asked, Rule::Tcp, None)?;
            local.port = b.port;
            s.binding = Some(b);
        }
        s.local = Some(local);
        s.bound = Bound {
            ip: Some(at.ip).filter(|ip| !ip.is_unspecified()),
            port: at.port != 0,
        };
        s.phase = Phase::Idle;
        Ok(())
    }

    fn connect(&self, who: &Caller<'_>, addr: &[u8], block: Block) -> Result<()> {
        if family_of(addr)? == AF_UNSPEC {
            self.disconnect();
            return Ok(());
        }
        self.start(who, addr, block)
    }

    fn listen(&self, who: &Caller<'_>, backlog: i32) -> Result<()> {
        let max = self.common.ns.somaxconn.load(Ordering::Relaxed);
        // A negative backlog is a huge one.
        let backlog = (backlog as u32).min(max) as usize;
        let mut s = self.state.write();
        match &s.phase {
            Phase::Idle => {}
            Phase::Listening(l) => {
                let l = l.clone();
                drop(s);
                l.queue.lock().backlog = backlog;
                Tcp::admit(&l);
                return Ok(());
            }
            _ => return Err(EINVAL),
        }
        let table = &self.common.ns.tcp;
        let binding = match &s.binding {
            Some(b) => b.clone(),
            None => {
                let ip = s.bound.ip.unwrap_or_else(|| any_ip(self.common.family));
                let asked = self.asked(Endpoint { ip, port: 0 }, who.cred.euid);
                let b = table.bind(&asked, Rule::Tcp, None)?;
                s.local = Some(Endpoint { ip, port: b.port });
                s.binding = Some(b.clone());
                b
            }
        };
        let l = Arc::new(Listener {
            common: self.common.clone(),
            options: self.options.clone(),
            binding: binding.clone(),
            queue: Mutex::new(AcceptQueue {
                backlog,
                ..AcceptQueue::default()
            }),
            half_open: AtomicUsize::new(0),
            cookie_at: AtomicU64::new(0),
        });
        table.set_target(&binding, l.clone())?;
        s.phase = Phase::Listening(l);
        Ok(())
    }

    fn accept(&self) -> Result<Parts> {
        let l = match &self.state.read().phase {
            Phase::Listening(l) => l.clone(),
            _ => return Err(EINVAL),
        };
        let got = {
            let mut q = l.queue.lock();
            if q.closed {
                return Err(EINVAL);
            }
            q.ready.pop_front().ok_or(EAGAIN)?
        };
        Tcp::admit(&l);
        Ok(Parts::new(got.common.clone(), got))
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        let l = self.state.read().local;
        Ok(l.unwrap_or_else(|| Endpoint::any(self.common.family))
            .encode(self.common.family))
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        match &self.state.read().phase {
            Phase::Connected(c) if !c.is_dead() => Ok(c.remote.encode(self.common.family)),
            Phase::Outside(o) => Ok(o.peer()?.encode(self.common.family)),
            _ => Err(ENOTCONN),
        }
    }

    fn accepted_name(&self) -> Result<Vec<u8>> {
        match &self.state.read().phase {
            Phase::Connected(c) => Ok(c.remote.encode(self.common.family)),
            Phase::Outside(o) => Ok(o.remote().encode(self.common.family)),
            _ => Err(ENOTCONN),
        }
    }

    fn is_outside(&self) -> bool {
        self.common.ns.has_way_out() && self.outside().is_some()
    }

    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        _control: Control,
        flags: u32,
    ) -> Result<usize> {
        if let Some(o) = self.outside() {
            return o.send(src, flags);
        }
        if flags & MSG_OOB != 0 {
            return Err(EINVAL);
        }
        if flags & MSG_FASTOPEN != 0
            && let Some(d) = dest
            && matches!(self.state.read().phase, Phase::Idle)
        {
            self.start(who, d, Block::Yes)?;
        }
        self.common.take_error()?;
        let write = |c: &Connection| {
            let ns = &*self.common.ns;
            let r = if ns.taps.is_used() {
                let (connection, inner) = (c, &mut *src);
                let mut src = Shown {
                    ns,
                    connection,
                    inner,
                };
                c.tx.write(&mut src, Gone::ResetLater, None)
            } else {
                c.tx.write(src, Gone::ResetLater, None)
            };
            // A reset that comes back is the next read's, too.
            if self.common.has_error() {
                c.rx.settle();
            }
            r
        };
        self.connection(write, EPIPE)
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if let Some(o) = self.outside() {
            return o.receive(dst, flags);
        }
        if flags & MSG_OOB != 0 {
            return Err(EINVAL);
        }
        let n = self.connection(
            |c| {
                if flags & MSG_TRUNC != 0 && flags & MSG_PEEK == 0 {
                    return c.rx.discard(dst.remaining());
                }
                c.rx.read(
                    dst,
                    if flags & MSG_PEEK != 0 {
                        Take::Peek
                    } else {
                        Take::Out
                    },
                )
            },
            ENOTCONN,
        )?;
        Ok(Received {
            n,
            ..Received::default()
        })
    }

    fn read_slots(&self) -> Option<&dyn ReadSlots> {
        Some(self)
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        if let Some(o) = self.outside() {
            o.shutdown(how)?;
            let changed = Events::WRITABLE | Events::READABLE | Events::HUP;
            self.common.notify(changed);
            return Ok(());
        }
        {
            let s = self.state.read();
            match &s.phase {
                Phase::Connected(c) if !c.is_dead() => {
                    if how.write {
                        c.show_end(&self.common.ns, End::Fin);
                        c.tx.finish(End::Fin);
                    }
                    if how.read {
                        c.rx.shut_reader();
                    }
                    self.common
                        .notify(Events::WRITABLE | Events::READABLE | Events::HUP);
                    return Ok(());
                }
                Phase::Listening(_) if !how.read => return Ok(()),
                Phase::Listening(_) | Phase::Connecting { .. } => {}
                _ => return Err(ENOTCONN),
            }
        }
        self.disconnect();
        Ok(())
    }

    fn poll(&self) -> Events {
        let mut e = Events::empty();
        match &self.state.read().phase {
            Phase::Idle => e |= Events::WRITABLE | Events::HUP,
            Phase::Connecting { .. } => {}
            Phase::Outside(o) => e |= o.poll(),
            Phase::Refused => {
                e |= Events::WRITABLE | Events::READABLE | Events::RDHUP | Events::HUP;
            }
            Phase::Listening(l) => {
                if !l.queue.lock().ready.is_empty() {
                    e |= Events::READABLE;
                }
            }
            Phase::Connected(c) => {
                let (rx, tx) = (c.rx.view(), c.tx.ends());
                let no_receive = rx.end != End::Open || rx.reader_shut;
                let no_send = tx.end != End::Open || tx.writer_dead;
                if no_receive {
                    e |= Events::READABLE | Events::RDHUP;
                }
                if no_receive && no_send {
                    e |= Events::HUP;
                }
                if rx.len >= self.common.rcvlowat() {
                    e |= Events::READABLE;
                }
                if no_send || tx.writable {
                    e |= Events::WRITABLE;
                }
            }
        }
        if self.common.has_error() {
            e |= Events::ERR;
        }
        e
    }

    fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        const TCP_REPAIR: i32 = 19;
        const TCP_ULP: i32 = 31;
        match (level, name) {
            (SOL_IPV6, _) if self.common.family == AF_INET => return Err(ENOPROTOOPT),
            (SOL_IPV6, IPV6_V6ONLY) if self.state.read().binding.is_some() => return Err(EINVAL),
            (SOL_TCP, TCP_CONGESTION) => return self.set_congestion(v),
            (SOL_TCP, TCP_REPAIR) => return Err(EPERM),
            (SOL_TCP, TCP_ULP) => return Err(ENOENT),
            (SOL_UDP, _) => return Err(ENOPROTOOPT),
            _ => {}
        }
        self.options.set(level, name, v, cred)?;
        match self.outside() {
            Some(o) => o.set_option(level, name, v),
            None => Ok(()),
        }
    }

    /// An error of the host's connection is the host's to tell.
    fn socket_option(&self, name: i32) -> Option<Result<Vec<u8>>> {
        if name != SO_ERROR || !self.common.ns.has_way_out() {
            return None;
        }
        let e = self.outside()?.take_error()?;
        Some(Ok(e.raw().to_le_bytes().to_vec()))
    }

    fn set_socket_option(&self, name: i32, v: &[u8]) -> Option<Result<()>> {
        if name == SO_KEEPALIVE
            && self.common.ns.has_way_out()
            && let Some(o) = self.outside()
        {
            let _ = o.set_option(SOL_SOCKET, name, v);
            // It goes by these, which may have been set before.
            for (level, name, value) in self.options.set_values() {
                if level == SOL_TCP && (4..=6).contains(&name) {
                    let _ = o.set_option(level, name, &value.to_ne_bytes());
                }
            }
        }
        None
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        const TCP_INFO: i32 = 11;
        const TCP_CC_INFO: i32 = 26;
        const TCP_ULP: i32 = 31;
        const IP_MTU: i32 = 14;
        const IPV6_MTU: i32 = 24;
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => {
                let on = matches!(self.state.read().phase, Phase::Listening(_));
                Ok(i32::from(on).to_le_bytes().to_vec())
            }
            (SOL_SOCKET, _) => Err(ENOPROTOOPT),
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(EOPNOTSUPP),
            (SOL_TCP, TCP_INFO) => self.outside().map_or_else(|| Ok(self.info()), |o| o.info()),
            (SOL_TCP, TCP_MAXSEG) => Ok(self.maxseg().to_le_bytes().to_vec()),
            (SOL_TCP, TCP_CONGESTION) => {
                let n = self.options.value(SOL_TCP, TCP_CONGESTION);
                let name = congestion(n as usize);
                let mut v = name.as_bytes().to_vec();
                v.resize(16, 0);
                Ok(v)
            }
            // Neither CUBIC nor Reno tells anything.
            (SOL_TCP, TCP_ULP | TCP_CC_INFO) => Ok(Vec::new()),
            (SOL_IP, IP_MTU) | (SOL_IPV6, IPV6_MTU) => {
                self.peer_name()?;
                let mtu = self.outside().map_or(65535, |o| o.mtu());
                Ok(mtu.to_le_bytes().to_vec())
            }
            (SOL_UDP, _) => Err(ENOPROTOOPT),
            _ => self.options.get(level, name),
        }
    }

    fn unread(&self) -> Result<usize> {
        match &self.state.read().phase {
            Phase::Connected(c) => Ok(c.rx.view().len),
            Phase::Outside(o) => o.unread(),
            Phase::Listening(_) => Err(EINVAL),
            _ => Ok(0),
        }
    }
    fn unsent(&self) -> usize {
        match &self.state.read().phase {
            Phase::Connected(c) => c.tx.view().len,
            Phase::Outside(o) => o.unsent(),
            _ => 0,
        }
    }

    fn close(&self) {
        let (phase, binding) = {
            let mut s = self.state.write();
            (
                std::mem::replace(&mut s.phase, Phase::Idle),
                s.binding.take(),
            )
        };
        let free = match &phase {
            Phase::Outside(o) => {
                if self.common.linger.load(Ordering::Relaxed) == 0 {
                    o.reset();
                }
                o.close(binding)
            }
            _ => binding,
        };
        if let Some(b) = free {
            self.common.ns.tcp.unbind(&b);
        }
        self.leave(phase);
    }
}
