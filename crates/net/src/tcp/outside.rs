//! Connections that lead out of the namespace, and those that come in.

use super::fast_open::Opens;
use super::{Between, ExplicitBind, Listener, Phase, State, Tcp};
use crate::addr::Endpoint;
use crate::bindings::{Binding, Ends};
use crate::fast_open::Attempt;
use crate::inet::InetOptions;
use crate::lingering::Unacknowledged;
use crate::ns::{NetNamespace, Way};
use crate::options::Common;
use crate::protocol::{Block, Received, Shutdown};
use crate::user;
use crate::user::stream::Stream;
use abi::errno::{EAGAIN, EINPROGRESS};
use abi::{Errno, Result};
use hostcall::HostFd;
use netstack::tcp::Seq;
use netstack::time::Instant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Sink, Source};
use wait::Events;

/// A connection with somebody outside: by the broker's descriptor ([`Stream`]), or by our own
/// segments (the stack's). Its operations are the socket's; none waits.
pub trait Outside: Unacknowledged {
    fn local(&self) -> Endpoint;
    fn remote(&self) -> Endpoint;
    /// `ENOTCONN` where it is not connected, or no more.
    fn peer(&self) -> Result<Endpoint>;
    /// What a connect call gives that finds this connection, which was begun before: `EAGAIN` while
    /// it is not there, `Ok` once, `EISCONN`; why it failed, once. `None`: over, a new one may
    /// begin.
    fn again(&self) -> Option<Result<()>>;
    fn send(&self, src: &mut dyn Source, flags: u32) -> Result<usize>;
    /// What goes with the SYN, for segments of so many bytes: as much as can be read. How much that
    /// is.
    fn send_with_syn(&self, _mss: u16, _src: &mut dyn Source, _block: Block) -> usize {
        0
    }
    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received>;
    fn shutdown(&self, how: Shutdown) -> Result<()>;
    fn poll(&self) -> Events;
    /// SIOCINQ.
    fn unread(&self) -> Result<usize>;
    /// When the last bytes came, where that is known; nanoseconds of CLOCK_REALTIME.
    fn came(&self) -> i64 {
        0
    }
    /// SIOCATMARK.
    fn is_at_mark(&self) -> Result<bool>;
    /// SIOCOUTQ.
    fn unsent(&self) -> usize;
    /// `struct tcp_info`.
    fn info(&self) -> Result<Vec<u8>>;
    /// TCP_MAXSEG, where it is known.
    fn mss(&self) -> Option<i32>;
    /// The largest packet on its way.
    fn mtu(&self) -> u32;
    /// An option was set on the socket: what concerns the connection takes effect.
    fn set_option(&self, level: i32, name: i32, v: &[u8]) -> Result<()>;
    /// SO_ERROR, where the connection has its own beside the socket's; taken.
    fn take_error(&self) -> Option<Errno>;
    /// What was written last is to be told of. The host does not tell us of its connections'.
    fn tell_when_sent(&self, _what: super::Stamped) {}
    /// Whether it is made of segments of ours.
    fn has_segments(&self) -> bool {
        false
    }
    /// TCP_SAVED_SYN: the headers of what began it, if it was asked to keep them; taken where they
    /// fit in `room` bytes, else their length (`Err`).
    fn saved_syn(&self, _room: usize) -> std::result::Result<Vec<u8>, usize> {
        Ok(Vec::new())
    }
    /// Whether its handshake is under way, where that is known.
    fn is_connecting(&self) -> bool {
        false
    }
    /// Somebody has accepted it.
    fn accepted(&self) {}
    /// Ends it at once, with a reset.
    fn reset(&self);
    /// Its socket is gone. What it was bound to comes back where the connection does not need it
    /// any longer; else it is unbound when the connection is over.
    fn close(&self, binding: Option<Arc<Binding<Listener>>>) -> Option<Arc<Binding<Listener>>>;
}

/// What makes connections that lead out: the broker, or the stack.
pub(crate) trait Dialer {
    /// Begins one, with the options that were set before.
    ///
    /// # Errors
    ///
    /// There is no way there, or none that is allowed.
    fn connect(&self, new: Dial<'_>) -> Result<Arc<dyn Outside>>;

    /// Forgets a connection in TIME_WAIT between these ends, for a new one to follow it: its port,
    /// and the sequence number after all of its own. From port 0, of any port. Where others keep
    /// connections, there is none.
    fn recycle(&self, _ns: &NetNamespace, _from: Endpoint, _to: Endpoint) -> Option<(u16, Seq)> {
        None
    }
}

/// A connection that is to begin.
pub(crate) struct Dial<'a> {
    pub common: &'a Arc<Common>,
    pub options: &'a InetOptions,
    pub local: Endpoint,
    pub to: Endpoint,
    /// The least sequence number that it may begin with.
    pub least: Option<Seq>,
    /// What its SYN may do; where something goes with it, it waits for that.
    pub attempt: Attempt,
    /// Let go of when it is over: others may begin between them then.
    pub ends: Option<Arc<Ends>>,
}

fn dialer<'a>(way: &'a Way<'_>) -> &'a dyn Dialer {
    match way {
        Way::Broker(out) => *out,
        Way::Stack(stack) => *stack,
    }
}

/// How many handshakes of one listener may be under way: its backlog, but at least and at most so
/// many.
pub(super) const HALF_OPEN: (usize, usize) = (16, 1024);

/// How long a cookie is good, in milliseconds.
const COOKIE_LIFE: u64 = 120_000;

/// Whether a listener takes one more handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    Yes,
    /// There are many already: without keeping anything for it.
    ByCookie,
    No(Refusal),
}

/// Why a listener takes no handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Nobody accepts what is there.
    AcceptQueueFull,
    /// Too many handshakes are under way, and cookies are off.
    SynQueueFull,
}

/// A connection to a published port comes from outside: it goes to whoever listens there, or is
/// reset.
pub fn accept_from_outside(ns: &Arc<NetNamespace>, port: u16, peer: Endpoint, fd: HostFd) {
    let Some(out) = &ns.way_out else { return };
    let ip = out.address(peer.ip).unwrap_or(user::ADDRESS_V6.0);
    let local = Endpoint { ip, port };
    // A server that listens on the loopback only is meant, too: whoever published the port said so.
    let loopback = if ip.is_ipv4() {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        IpAddr::V6(Ipv6Addr::LOCALHOST)
    };
    let at_loopback = Endpoint { ip: loopback, port };
    let found = ns.tcp.lookup(local, None, |_| Some(0));
    let Some(l) = found.or_else(|| ns.tcp.lookup(at_loopback, None, |_| Some(0))) else {
        return;
    };
    let common = l.common_for_peer();
    let Ok(stream) = Stream::accepted(out, &common, fd, local, peer) else {
        return;
    };
    l.admit_from_outside(stream, common, (local, peer));
}

impl Listener {
    /// How many wait to be accepted, and how many may.
    pub fn load(&self) -> (u32, u32) {
        let q = self.queue.lock();
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (small(q.ready.len()), small(q.backlog))
    }

    /// Whether it takes what comes by a device, as a score of
    /// [`crate::bindings::PortTable::lookup`].
    pub fn takes_from(&self, device: i32) -> Option<u32> {
        let only = u32::from(self.common.device() != 0);
        self.common.takes_from(device).then_some(only)
    }

    /// The shared part of a socket for a connection that comes from outside: its memory is the
    /// listener's.
    pub(crate) fn common_for_peer(&self) -> Arc<Common> {
        Common::inherit(&self.common, &self.common)
    }

    /// What bind(2) was asked for, as connections to it have it (`sk_clone_lock`).
    pub(super) fn bound(&self) -> ExplicitBind {
        ExplicitBind {
            ip: Some(self.binding.ip).filter(|ip| !ip.is_unspecified()),
            port: false,
        }
    }

    /// What connections to it begin with.
    pub(crate) fn options(&self) -> &InetOptions {
        &self.options
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Whether one more may begin: its handshake is not done, and then it waits to be accepted.
    pub(crate) fn may_begin(&self, now: Instant) -> Begin {
        let (full, backlog) = {
            let q = self.queue.lock();
            (q.closed || q.full(), q.backlog)
        };
        if full {
            return Begin::No(Refusal::AcceptQueueFull);
        }
        let half_open = self.half_open.load(Ordering::Relaxed);
        let is_few = half_open < backlog.clamp(HALF_OPEN.0, HALF_OPEN.1);
        match self.common.ns.kept_number("tcp_syncookies") {
            // Without cookies a part of the most is left (`tcp_conn_request`).
            Some(0) => {
                let most = self.common.ns.kept_number("tcp_max_syn_backlog");
                let most = most.map_or(HALF_OPEN.1, |n| usize::try_from(n).unwrap_or(0));
                return match is_few && half_open < most - most / 4 {
                    true => Begin::Yes,
                    false => Begin::No(Refusal::SynQueueFull),
                };
            }
            Some(2) => {}
            _ if is_few => return Begin::Yes,
            _ => {}
        }
        self.cookie_at.store(now.millis().max(1), Ordering::Relaxed);
        Begin::ByCookie
    }

    /// Whether a cookie may still be under way.
    pub(crate) fn has_sent_cookies(&self, now: Instant) -> bool {
        let at = self.cookie_at.load(Ordering::Relaxed);
        at != 0 && now.millis().saturating_sub(at) < COOKIE_LIFE
    }

    /// A handshake began, or is over.
    pub(crate) fn count_half_open(&self, more: isize) {
        self.half_open.fetch_add(more as usize, Ordering::Relaxed);
    }

    /// Puts an established connection into the accept queue, or resets it.
    pub(crate) fn admit_from_outside(
        &self,
        with: Arc<dyn Outside>,
        common: Arc<Common>,
        (local, peer): (Endpoint, Endpoint),
    ) {
        let binding = common.ns.tcp.share(&self.binding, local.ip, &common);
        *binding.remote.lock() = Some(peer);
        let state = State {
            phase: Phase::Outside(with),
            local: Some(local),
            binding: Some(binding),
            bound: self.bound(),
        };
        let t = Tcp::make(common, self.options.duplicate(), state);
        {
            let mut q = self.queue.lock();
            // Those that have begun while there was room may all come in.
            if q.closed || q.ready.len() > q.backlog + HALF_OPEN.1 {
                drop(q);
                t.abort();
                return;
            }
            q.ready.push_back(t);
        }
        self.common.notify(Events::READABLE);
    }
}

impl Tcp {
    /// The connection that leads out, if this is one.
    pub(super) fn outside(&self) -> Option<Arc<dyn Outside>> {
        match &self.state.read().phase {
            Phase::Outside(s) => Some(s.clone()),
            _ => None,
        }
    }

    /// Begins a connection that leads out, with the options that were set before.
    pub(super) fn leave_by(
        &self,
        s: &mut State,
        way: Way<'_>,
        between: &Between,
        (block, opens): (Block, Opens<'_>),
    ) -> Result<()> {
        let (from, to) = (between.local.ip, between.remote.ip);
        let is_ours = matches!(way, Way::Stack(_));
        let attempt = match opens {
            _ if !is_ours => Attempt::default(),
            Opens::Plainly => self.plain_attempt(from, to),
            Opens::BySend(_) => self.attempt(from, to),
        };
        let told = match (attempt.data, opens) {
            (None, _) => None,
            (Some(_), Opens::Plainly) => {
                s.phase = Phase::AwaitsData(*between);
                return Ok(());
            }
            (Some(mss), Opens::BySend(data)) => Some((mss, data)),
        };
        let new = dialer(&way).connect(Dial {
            common: &self.common,
            options: &self.options,
            local: between.local,
            to: between.remote,
            least: between.least,
            attempt,
            ends: s.binding.as_ref().and_then(|b| b.ends()),
        });
        let new = match new {
            Ok(new) => new,
            Err(e) => {
                s.unconnect(&self.common);
                return Err(e);
            }
        };
        if let Some(b) = &s.binding {
            *b.remote.lock() = Some(between.remote);
        }
        s.local = Some(new.local());
        if let Some((mss, data)) = told {
            *data = Some((mss, new.clone()));
        }
        s.phase = Phase::Outside(new);
        Err(if block == Block::Yes {
            EAGAIN
        } else {
            EINPROGRESS
        })
    }

    /// A port for a connection from `ip` to `to`; and the least sequence number that it may begin
    /// with, where it follows one that is not forgotten. `EADDRNOTAVAIL`.
    pub(super) fn take_port(
        &self,
        s: &mut State,
        uid: u32,
        ip: IpAddr,
        to: Endpoint,
    ) -> Result<(u16, Option<Seq>)> {
        match self.try_port(s, uid, ip, to) {
            Err(e) => {
                let port = s.binding.as_ref().map_or(0, |b| b.port);
                let from = Endpoint { ip, port };
                let (freed, least) = self.recycle(from, to).ok_or(e)?;
                let port = self.try_port(s, uid, ip, to)?;
                Ok((port, Some(least).filter(|_| port == freed)))
            }
            Ok(port) => Ok((port, None)),
        }
    }

    fn try_port(&self, s: &mut State, uid: u32, ip: IpAddr, to: Endpoint) -> Result<u16> {
        let table = &self.common.ns.tcp;
        if let Some(b) = &s.binding {
            table.connects(b, ip, to)?;
            return Ok(b.port);
        }
        let asked = self
            .options
            .asked(Endpoint { ip, port: 0 }, &self.common, uid);
        let b = table.bind_towards(&asked, to)?;
        Ok(s.binding.insert(b).port)
    }

    /// Forgets a connection in TIME_WAIT between these ends; from port 0, of any port.
    fn recycle(&self, from: Endpoint, to: Endpoint) -> Option<(u16, Seq)> {
        let ns = &self.common.ns;
        dialer(&ns.way_to(to)?).recycle(ns, from, to)
    }
}
