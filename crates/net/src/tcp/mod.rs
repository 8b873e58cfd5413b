//! TCP sockets.
//!
//! A connection between sockets of one namespace is two [`Half`]s. A connect finds the listener and
//! makes the other side's socket at once, unless the accept queue is full: then the connect waits
//! in the listener's `syns` until accept makes room. A connection that leads out is an [`Outside`].

mod by_broker;
mod calls;
mod deferred;
mod ends;
mod fast_open;
mod options;
mod outside;
mod shown;
mod stamped;

pub use options::{default_congestion, set_default_congestion};

use deferred::{Deferral, Deferred, First};
use ends::{Between, Ends};
pub use ends::{bindable, route};
use fast_open::Opens;
pub(crate) use fast_open::{EarlyOpen, Greeting};
pub(crate) use outside::{Begin, Dial, Dialer, Refusal};
pub use outside::{Outside, accept_from_outside};
pub(crate) use stamped::Stamped;

use crate::addr::{Endpoint, any_ip};
use crate::bindings::{self, Binding, Coming};
use crate::errors::ErrorQueue;
use crate::filters::Filter;
use crate::frames::ask_of_syn;
use crate::inet::{BY_SETTING, IP_MULTICAST_ALL, InetOptions, TCP_SAVE_SYN};
use crate::interface::LO_INDEX;
use crate::lingering::Unacknowledged;
use crate::ns::{NetNamespace, Way};
use crate::options::Common;
use crate::protocol::{Block, Caller, Parts};
use crate::stream::{End, Half};
use crate::sys::*;
use crate::work::Ticket;
use abi::Result;
use abi::errno::{
    EAGAIN, EALREADY, ECONNABORTED, ECONNREFUSED, ECONNRESET, EINPROGRESS, EISCONN, ENOMEM, EPIPE,
};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use shown::show_refusal;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use wait::Events;
use wait::read_slots::{ReadSlots, SlotSource};

/// A TCP socket.
pub struct Tcp {
    me: Weak<Tcp>,
    common: Arc<Common>,
    /// A listener's, too: what is set later counts for the connections that come then.
    options: Arc<InetOptions>,
    state: RwLock<State>,
    /// Its phase is [`Phase::Connecting`]: who accepts need not wait for the lock to see that it is
    /// not. Changed with the lock held.
    is_queued: AtomicBool,
    /// What is told of what was sent, from when something is.
    errors: OnceLock<Arc<ErrorQueue>>,
}

struct State {
    phase: Phase,
    local: Option<Endpoint>,
    binding: Option<Arc<Binding<Listener>>>,
    bound: ExplicitBind,
}

/// What bind(2) was asked for: it is kept when a connection is over.
#[derive(Clone, Copy, Default)]
struct ExplicitBind {
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
    /// A connect is done, but waits for what goes with its SYN: TCP_FASTOPEN_CONNECT.
    AwaitsData(Between),
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
    deferral: Deferral,
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
    /// For those that wait to be accepted until their first byte.
    ticket: Ticket,
    /// Those that Fast Open began.
    early: Mutex<fast_open::Queue>,
}

#[derive(Default)]
struct AcceptQueue {
    ready: VecDeque<Arc<Tcp>>,
    /// Those that TCP_DEFER_ACCEPT keeps back, as many as there may be handshakes.
    deferred: Vec<Deferred>,
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

/// Whether a socket is asked for something that needs segments: what is joined in memory has none.
fn looks_at_segments(common: &Common, options: &InetOptions) -> bool {
    common.filter.is_on() || options.on(SOL_TCP, TCP_SAVE_SYN)
}

pub fn new(ns: &Arc<NetNamespace>, family: u16) -> Parts {
    let common = Common::new(ns, family, SOCK_STREAM, IPPROTO_TCP);
    let state = State {
        phase: Phase::Idle,
        local: None,
        binding: None,
        bound: ExplicitBind::default(),
    };
    let options = InetOptions::default();
    for (setting, option) in BY_SETTING {
        if let Some(n) = ns.kept_number(setting).and_then(|n| i32::try_from(n).ok()) {
            options.keep(SOL_TCP, option, n);
        }
    }
    if family == AF_INET6 {
        options.keep(SOL_IP, IP_MULTICAST_ALL, 0);
    }
    let tcp = Tcp::make(common.clone(), options, state);
    Parts::new(common, tcp)
}

impl Tcp {
    fn make(common: Arc<Common>, options: InetOptions, state: State) -> Arc<Tcp> {
        Arc::new_cyclic(|me| Tcp {
            me: me.clone(),
            common,
            options: Arc::new(options),
            state: RwLock::new(state),
            is_queued: AtomicBool::new(false),
            errors: OnceLock::new(),
        })
    }

    /// Joins this socket to `l` with a new socket on the other side, which goes into the accept
    /// queue. The caller holds this socket's state lock (`state`) and knows that the queue `q` is
    /// `l`'s.
    fn establish(&self, state: &mut State, l: &Arc<Listener>, q: &mut AcceptQueue, ends: Ends) {
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
                    deferral: Deferral::default(),
                }),
                local: Some(remote),
                binding: Some(binding),
                bound: l.bound(),
            },
        );
        let deferral = l.add(q, server, &out);
        state.local = Some(local);
        let c = Connection {
            rx: back,
            tx: out,
            local,
            remote,
            announced,
            ends: held,
            deferral,
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
        // (One that has gone elsewhere may be sending, by memory that takes its time.)
        if !self.is_queued.load(Ordering::Relaxed) {
            return;
        }
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
            self.is_queued.store(false, Ordering::Relaxed);
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
        if reset || unread || self.common.closes_by_reset() {
            let before = c.tx.ends();
            if !before.reader_closed {
                // The peer had our FIN already: its reset reads as a broken pipe.
                let had_end = before.end == End::Fin && !c.tx.awaits_the_last();
                c.rx.writer
                    .set_error(if had_end { EPIPE } else { ECONNRESET });
                // Its next read must find that, before anybody tells it.
                c.tx.revoke_slot();
                c.rx.kill_writer();
            }
            c.show_end(&self.common.ns, End::Reset);
            c.tx.finish(End::Reset);
            c.says(First::Reset);
        } else {
            c.show_end(&self.common.ns, End::Fin);
            c.tx.finish(End::Fin);
            c.says(First::Said);
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
            Phase::Idle
            | Phase::Refused
            | Phase::Connecting { .. }
            | Phase::AwaitsData(_)
            | Phase::Outside(_) => {}
            Phase::Connected(c) => self.end(&c, false),
            Phase::Listening(l) => {
                let (ready, deferred, syns) = {
                    let mut q = l.queue.lock();
                    q.closed = true;
                    (
                        std::mem::take(&mut q.ready),
                        std::mem::take(&mut q.deferred),
                        std::mem::take(&mut q.syns),
                    )
                };
                for t in ready.into_iter().chain(deferred.into_iter().map(|d| d.tcp)) {
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
            self.is_queued.store(false, Ordering::Relaxed);
            std::mem::replace(&mut s.phase, Phase::Idle)
        };
        match phase {
            Phase::Connected(c) => self.end(&c, true),
            Phase::Outside(o) => {
                if o.is_connecting() {
                    self.common.set_error(ECONNRESET);
                }
                o.reset();
                o.close(None);
            }
            Phase::AwaitsData(_) => self.common.set_error(ECONNRESET),
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
            Phase::Connecting { .. } | Phase::AwaitsData(_) => Err(EAGAIN),
            Phase::Refused => {
                self.common.take_error()?;
                Err(idle)
            }
            _ => Err(idle),
        }
    }

    /// What is to be said to a connect call, if no connection is to begin.
    fn answer_connect(&self, s: &mut State, block: Block) -> Option<Result<()>> {
        let answer = match &mut s.phase {
            Phase::Idle => return None,
            Phase::Listening(_) | Phase::AwaitsData(_) => Err(EISCONN),
            Phase::Refused => {
                s.phase = Phase::Idle;
                self.common.take_error().and(Err(ECONNABORTED))
            }
            Phase::Connecting { .. } if block == Block::Yes => Err(EAGAIN),
            Phase::Connecting { .. } => Err(EALREADY),
            Phase::Connected(c) if c.announced => Err(EISCONN),
            Phase::Connected(c) => {
                c.announced = true;
                Ok(())
            }
            Phase::Outside(o) => match o.again() {
                Some(Err(EAGAIN)) if block == Block::No => Err(EALREADY),
                Some(r @ (Ok(()) | Err(EAGAIN | EISCONN))) => r,
                over => {
                    s.phase = Phase::Idle;
                    s.unconnect(&self.common);
                    return over;
                }
            },
        };
        Some(answer)
    }

    /// Who listens at an endpoint of this host.
    fn listener_at(&self, local: Endpoint, remote: Endpoint) -> Option<Arc<Listener>> {
        let ask = |f: &Filter| ask_of_syn(f, local, remote);
        let coming = Coming {
            from: local,
            ask: &ask,
        };
        let by_loopback = |l: &Listener| l.takes_from(LO_INDEX);
        let table = &self.common.ns.tcp;
        table.lookup(remote, Some(coming), by_loopback)
    }

    /// What was asked for looks at segments: connections that begin from now on are made of some.
    /// `ENOMEM` where this one has none.
    fn need_segments(&self) -> Result<()> {
        match &self.state.read().phase {
            Phase::Connected(_) | Phase::Connecting { .. } => return Err(ENOMEM),
            Phase::Outside(o) if o.has_segments() => return Ok(()),
            Phase::Outside(_) => return Err(ENOMEM),
            _ => {}
        }
        self.common.ns.begin_packets()
    }

    fn start(
        &self,
        mut s: RwLockWriteGuard<'_, State>,
        who: &Caller<'_>,
        addr: &[u8],
        block: Block,
        opens: Opens<'_>,
    ) -> Result<()> {
        if let Some(answer) = self.answer_connect(&mut s, block) {
            return answer;
        }
        let between = self.ends(&mut s, who, addr)?;
        self.begin(s, &between, block, opens)
    }

    /// Begins a connection between these ends. Of what leads out there may be one that defers.
    fn begin(
        &self,
        mut s: RwLockWriteGuard<'_, State>,
        between: &Between,
        block: Block,
        opens: Opens<'_>,
    ) -> Result<()> {
        let (local, remote) = (between.local, between.remote);
        let waits = block == Block::Yes;
        let done = |ok| if waits { ok } else { Err(EINPROGRESS) };
        let ns = &self.common.ns;
        if let Some(stack) = ns.packets_to(remote) {
            return self.leave_by(&mut s, Way::Stack(stack), between, (block, opens));
        }
        // A wildcard's listener is for this host's addresses, not for others' that leave.
        let inside = !ns.is_outside(remote.ip);
        let listener = self.listener_at(local, remote).filter(|_| inside);
        let looks = |l: &Arc<Listener>| looks_at_segments(&l.common, &l.options);
        if (looks_at_segments(&self.common, &self.options) || listener.as_ref().is_some_and(looks))
            && let Some(stack) = ns.packets_inside(remote)
        {
            return self.leave_by(&mut s, Way::Stack(stack), between, (block, opens));
        }
        if listener.is_none()
            && let Some(way) = ns.way_to(remote)
        {
            return self.leave_by(&mut s, way, between, (block, opens));
        }
        if let Some(l) = listener {
            let mut q = l.queue.lock();
            if !q.closed && q.full() {
                q.wait(self.me.clone());
                self.is_queued.store(true, Ordering::Relaxed);
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
}

impl SlotSource for Tcp {
    fn fill_slot(&self, slots: &Arc<dyn ReadSlots>, slot: u32, nonblocking: &dyn Fn() -> bool) {
        if let Phase::Connected(c) = &self.state.read().phase
            && !c.is_dead()
        {
            c.rx.fill_slot(slots, slot, nonblocking);
        }
    }

    fn revoke_slot(&self) {
        if let Phase::Connected(c) = &self.state.read().phase {
            c.rx.revoke_slot();
        }
    }
}
