//! A TCP connection of the stack, as its socket and the stack's threads see it.
//!
//! # Who works on it
//!
//! Whoever holds [`Remote::state`] works on the connection, and before it lets go it does all that
//! others left in the backlog meanwhile: segments, errors, a timer. Who brings something puts it
//! there and then tries to get the state; if somebody else has it, that one finds what was brought:
//!
//! ```text
//! bring:   put into the backlog;  try_lock the state { got it: work, as below; else: go }
//! work:    …;  take the backlog until it is empty;  unlock;  backlog empty? done : try_lock, again,
//!          but after ROUNDS of that the timers' thread is asked to
//! look:    …;  unlock;  backlog empty? done : the timers' thread is asked to work
//! ```
//!
//! Who only looks may hold locks of the socket's, under which nothing is sent and nobody is told.
//!
//! A failed try_lock is before the unlock, so the look into the backlog that follows the unlock
//! sees what was put there before. Nothing is left behind, and nobody waits but callers of the
//! same socket.
//!
//! Who waits on the socket's queue is told after the state is free.

mod pressure;
mod socket;
#[cfg(test)]
mod tests;

use self::pressure::QueueMemory;
use super::timers::Place;
use super::{Stack, endpoint, pair};
use crate::addr::Endpoint;
use crate::bindings::{Binding, Ends};
use crate::clock::now;
use crate::inet::{self, InetOptions, TCP_SAVE_SYN};
use crate::interface::stays;
use crate::lingering::Unacknowledged;
use crate::ns::NetNamespace;
use crate::options::Common;
use crate::sys::SOL_TCP;
use crate::tcp::{Dial, Dialer, EarlyOpen, Greeting, Listener, Outside, Stamped};
use abi::errno::{
    EACCES, EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH, EPIPE,
    ETIMEDOUT,
};
use abi::{Errno, Result};
use bytes::Bytes;
use netstack::counters::Mib;
use netstack::ip::{Cast, ErrorKind, IcmpError, Marks, Pair, Path, Severity};
use netstack::tcp::{
    Changes, Connection, Emitted, Failure, Flags, Header, Output, Segment, Seq, State as Phase,
    Unreachable, secret,
};
use netstack::time::Instant;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use wait::{Events, Steady, block_until};

/// The most bytes that wait in a backlog: what comes beyond it is lost, as on a wire.
const BACKLOG: usize = 1 << 20;
/// How many connections without a socket there may be that have not said all.
const ORPHANS_MOST: usize = 4096;
/// A payload that is shorter than this may be a small piece of a large frame.
const PIECE: usize = 32 << 10;
/// How many backlogs are worked off at once.
const ROUNDS: u32 = 2;
/// What a segment takes beside its bytes.
const SEGMENT: usize = 256;

/// See the module.
pub(crate) struct Remote {
    me: Weak<Remote>,
    stack: Arc<Stack>,
    pub common: Arc<Common>,
    pair: Pair,
    /// Where rules are about it: the names by which its peer was reached.
    ruled_by: Option<Vec<String>>,
    state: Mutex<State>,
    backlog: Mutex<Backlog>,
    /// When bytes came last, where the socket is told; nanoseconds of CLOCK_REALTIME.
    came: AtomicI64,
}

struct State {
    engine: Connection,
    path: Path,
    proof: super::paths::Proof,
    marks: Marks,
    place: Option<Place>,
    /// Whether a connect call has told of it.
    announced: bool,
    /// `shutdown(SHUT_RD)`.
    read_shut: bool,
    /// What calls of the socket have changed, to be told.
    told: Changes,
    /// It began by a SYN from outside, and is not established yet.
    listener: Option<Arc<Listener>>,
    /// It may be used already: until its handshake is done it counts for its listener.
    early: Option<EarlyOpen>,
    /// TCP_DEFER_ACCEPT: until when it is not given to its listener without a byte.
    deferred: Option<Instant>,
    /// Its socket is gone.
    orphan: Option<Orphan>,
    /// Of such a one: to be unbound at the end.
    binding: Option<Arc<Binding<Listener>>>,
    /// Of one that began here: others may begin between its ends when it is over.
    ends: Option<Arc<Ends>>,
    /// It is in no table any longer.
    over: bool,
    held: QueueMemory,
    buffers: super::options::Buffers,
    /// TCP_SAVE_SYN: what it began with, until somebody takes it.
    saved_syn: Box<[u8]>,
    /// What is to be told of when it has gone, by the places after its last bytes.
    stamped: VecDeque<(u64, Progress, Stamped)>,
}

/// How far what is to be told of has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Waits,
    Went,
}

/// The most of them.
const STAMPED_MOST: usize = 1024;

/// Who began a connection.
enum Begun {
    /// A program here, towards a peer of these names.
    Here(Vec<String>),
    /// Somebody outside, who wants to go to this listener.
    Outside(Arc<Listener>, Named),
}

/// A SYN from outside, and the way back.
pub(crate) struct Incoming<'a> {
    pub pair: Pair,
    pub path: Path,
    pub syn: &'a Segment,
    pub named: Named,
    /// The least sequence number that the connection may begin with, where one before between the
    /// same ends has not been forgotten.
    pub least: Option<Seq>,
}

/// Who says who somebody is that begins a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// The network that he is in.
    ByOthers,
    /// A program: by a device that it made, or by rules.
    ByPrograms,
}

/// What a connection without a socket has still to say, and since when that is so much.
struct Orphan {
    unsent: usize,
    since: Instant,
}

#[derive(Default)]
struct Backlog {
    all: VecDeque<Item>,
    bytes: usize,
    /// The timers' thread was asked to look at it, and has not yet.
    asked: bool,
}

/// What the stack's threads bring.
enum Item {
    Segment(Segment),
    /// An ICMP message about a segment of ours.
    Failed(Seq, IcmpError),
    /// It was at this place, and is there no longer.
    Timer(Place),
}

/// What to do once the state is free.
#[derive(Default)]
struct After {
    events: Events,
    established: Option<Arc<Listener>>,
}

/// The way out for an engine's segments.
struct Out<'a> {
    stack: &'a Stack,
    pair: Pair,
    path: &'a Path,
    marks: &'a Marks,
    now: Instant,
}

impl Output for Out<'_> {
    fn emit(&mut self, header: &Header, payload: &[&[u8]], mss: u16) -> Emitted {
        let (now, path, marks) = (self.now, self.path, self.marks);
        let ip = &self.stack.ip;
        let sent = ip.send_tcp(now, path, self.pair, header, payload, mss, marks);
        match sent {
            Ok(netstack::ip::Sent::Full) => Emitted::Full,
            // What cannot be sent is lost; it is sent again when its time has come.
            Ok(netstack::ip::Sent::Yes) | Err(_) => Emitted::Sent,
        }
    }
}

impl Dialer for Arc<Stack> {
    fn connect(&self, new: Dial<'_>) -> Result<Arc<dyn Outside>> {
        let released = new.ends.clone();
        let c = Remote::connect(self, new)?;
        if let Some(ends) = released {
            c.lets_go_of(ends);
        }
        Ok(c)
    }

    fn recycle(&self, ns: &NetNamespace, from: Endpoint, to: Endpoint) -> Option<(u16, Seq)> {
        self.forget(ns, from, to)
    }
}

impl Remote {
    /// Begins a connection as `new` says; its socket's owner waits for it. Where something goes with
    /// its SYN, that goes by `send_with_syn`.
    ///
    /// # Errors
    ///
    /// There is no way there (`ENETUNREACH`, `EHOSTUNREACH`, …).
    fn connect(stack: &Arc<Stack>, new: Dial<'_>) -> Result<Arc<Remote>> {
        let (common, options) = (new.common, new.options);
        let (local, to, least) = (new.local, new.to, new.least);
        let path = stack.path_for(common, to.ip, local.ip)?;
        if path.cast != Cast::Unicast {
            return Err(ENETUNREACH);
        }
        let rules = stack.gate.generation();
        let names = if stays(&path) {
            Vec::new()
        } else {
            stack.gate.connect(to)?
        };
        let pair = pair(local, to, &path);
        let ends = ends(pair);
        let offset = stack.secret.timestamp_offset(&ends);
        let config = super::options::config(offset, &path, pair, common, options);
        let iss = stack.secret.initial(&ends, now());
        let iss = least.filter(|l| iss.is_before(*l)).unwrap_or(iss);
        let mut engine = Connection::connect(config, iss, now());
        engine.set_fast_open_option(new.attempt.option);
        let begun = Begun::Here(names);
        let c = Self::new(stack, common, pair, path, options, engine, begun);
        if !c.enter() {
            return Err(EADDRNOTAVAIL);
        }
        stack.ip.count(Mib::TcpActiveOpens);
        // They may have changed before it could be seen: see `Stack::set_rules`.
        let other = stack.gate.generation() != rules && c.is_ruled();
        if other && !stack.gate.still_allows(to, c.names()) {
            stack.connections.remove(&pair, Arc::as_ptr(&c));
            return Err(EACCES);
        }
        if new.attempt.data.is_none() {
            c.work(|_, _| ());
        }
        Ok(c)
    }

    /// A connection that somebody outside begins.
    pub fn accept(stack: &Arc<Stack>, listener: &Arc<Listener>, now: Instant, new: Incoming<'_>) {
        let Incoming {
            pair,
            path,
            syn,
            named,
            least,
        } = new;
        let ends = ends(pair);
        let offset = stack.secret.timestamp_offset(&ends);
        let options = listener.options();
        let config = super::options::config(offset, &path, pair, listener.common(), options);
        let iss = stack.secret.initial(&ends, now);
        let iss = least.filter(|l| iss.is_before(*l)).unwrap_or(iss);
        let Greeting {
            early,
            option,
            missed,
        } = listener.greet(pair, syn, now);
        if let Some(mib) = missed {
            stack.ip.count(mib);
        }
        let mut engine = match &early {
            Some(_) => Connection::accept_fast(config, iss, now, syn),
            None => Connection::accept(config, iss, now, syn),
        };
        engine.set_fast_open_option(option);
        let is_early = early.is_some();
        let c = Self::half_open(stack, (listener, early), (pair, named), path, engine);
        let Some(c) = c else { return };
        c.work(|s, _| {
            if options.on(SOL_TCP, TCP_SAVE_SYN) {
                s.saved_syn = syn.headers[..].into();
            }
        });
        if is_early {
            stack.ip.count(Mib::TcpPassiveOpens);
            stack.ip.count(Mib::ExtFastOpenPassive);
            let ends = (endpoint(pair.local), endpoint(pair.remote));
            listener.admit_from_outside(c.clone(), c.common.clone(), ends);
        }
    }

    /// A connection whose handshake is under way: it goes to the listener when that is done. One that
    /// is open early the caller gives to it.
    pub fn half_open(
        stack: &Arc<Stack>,
        (listener, early): (&Arc<Listener>, Option<EarlyOpen>),
        (pair, named): (Pair, Named),
        path: Path,
        engine: Connection,
    ) -> Option<Arc<Remote>> {
        let common = listener.common_for_peer();
        let options = listener.options();
        let l = Begun::Outside(listener.clone(), named);
        let c = Self::new(stack, &common, pair, path, options, engine, l);
        let is_early = early.is_some();
        if is_early {
            let mut s = c.state.lock();
            (s.early, s.deferred, s.listener) = (early, None, None);
        }
        if !c.enter() {
            return None;
        }
        if !is_early {
            listener.count_half_open(1);
        }
        Some(c)
    }

    fn new(
        stack: &Arc<Stack>,
        common: &Arc<Common>,
        pair: Pair,
        path: Path,
        options: &InetOptions,
        engine: Connection,
        begun: Begun,
    ) -> Arc<Remote> {
        let (ruled_by, listener) = match begun {
            Begun::Here(names) => (Some(names), None),
            Begun::Outside(l, Named::ByPrograms) => (Some(Vec::new()), Some(l)),
            // (Routes change.)
            Begun::Outside(l, Named::ByOthers) => {
                let inner = !stack.ports.is_taken(path.index);
                (inner.then(Vec::new), Some(l))
            }
        };
        let ruled_by = ruled_by.filter(|_| !stays(&path));
        let sizes = super::options::buffers(common);
        let defers = listener.as_ref().and_then(|l| l.defers());
        Arc::new_cyclic(|me| Remote {
            me: me.clone(),
            stack: stack.clone(),
            common: common.clone(),
            pair,
            ruled_by,
            state: Mutex::new(State {
                engine,
                path,
                proof: super::paths::Proof::default(),
                marks: super::options::marks(common, options, pair.remote.ip()),
                place: None,
                announced: listener.is_some(),
                read_shut: false,
                told: Changes::empty(),
                listener,
                early: None,
                deferred: defers.map(|time| now() + time),
                orphan: None,
                binding: None,
                ends: None,
                over: false,
                held: QueueMemory::new(common),
                buffers: sizes,
                saved_syn: Box::default(),
                stamped: VecDeque::new(),
            }),
            backlog: Mutex::default(),
            came: AtomicI64::new(0),
        })
    }

    /// Others may begin between its ends when it is over.
    fn lets_go_of(&self, ends: Arc<Ends>) {
        self.look(|s| {
            if s.over {
                ends.release();
            } else {
                s.ends = Some(ends);
            }
        });
    }

    /// Whether rules are about it: a program began it, or its peer is one.
    pub fn is_ruled(&self) -> bool {
        self.ruled_by.is_some()
    }

    /// The names by which its peer was reached, then.
    pub fn names(&self) -> &[String] {
        self.ruled_by.as_deref().unwrap_or_default()
    }

    pub fn peer_end(&self) -> Endpoint {
        endpoint(self.pair.remote)
    }

    /// Whether its socket is gone.
    pub fn is_orphan(&self) -> bool {
        self.look(|s| s.orphan.is_some())
    }

    /// Waits until its peer has acknowledged all, where it has no socket and leaves by a device of
    /// the host.
    pub fn await_the_last(&self, until: Option<std::time::Instant>) {
        let left = || {
            self.look(|s| {
                let leaves = !stays(&s.path) && self.stack.ports.is_taken(s.path.index);
                leaves && s.orphan.is_some() && awaits_the_last(s.engine.standing())
            })
        };
        let change = [(&self.common.queue, Events::WRITABLE | Events::HUP)];
        let _ = block_until(&Steady::default(), &change, until, || match left() {
            true => Err(EAGAIN),
            false => Ok(()),
        });
    }

    /// The name of its congestion control.
    pub fn congestion(&self) -> &'static str {
        self.look(|s| inet::congestion(s.engine.config().congestion as usize))
    }

    /// From now on segments find it; or not, where these ends have a connection already.
    fn enter(self: &Arc<Self>) -> bool {
        self.stack.connections.insert(self.pair, self.clone())
    }

    /// A segment came for it.
    pub fn deliver(&self, mut segment: Segment) {
        // Where there is no memory, nobody's backlog grows.
        if self.state.is_locked() && self.common.lacks_tcp_memory() {
            return;
        }
        if !segment.payload.is_empty() && self.common.stamps.of_arrivals() {
            let now = hostcall::time::clock_nanos(0);
            self.came.store(now, Ordering::Relaxed);
        }
        let bytes = segment.payload.len() + SEGMENT;
        // What waits does not keep a whole frame for a piece of it.
        if bytes < PIECE && self.state.is_locked() {
            segment.payload = Bytes::copy_from_slice(&segment.payload);
        }
        self.bring(Item::Segment(segment), bytes);
    }

    /// An ICMP message came about a segment that was sent at `seq`.
    pub fn failed(&self, seq: Seq, error: IcmpError) {
        self.bring(Item::Failed(seq, error), SEGMENT);
    }

    /// Its time has come.
    pub fn timer(&self, place: Place) {
        // It has to come through, and there is at most one.
        self.bring(Item::Timer(place), 0);
    }

    fn bring(&self, item: Item, bytes: usize) {
        {
            let mut b = self.backlog.lock();
            if bytes > 0 && b.bytes + bytes > BACKLOG {
                return self.stack.ip.count(Mib::ExtBacklogDrop);
            }
            b.bytes += bytes;
            b.all.push_back(item);
        }
        self.work_off();
    }

    fn work_off(&self) {
        if let Some(s) = self.state.try_lock() {
            self.finish(s, now());
        }
    }

    /// What is left in the backlog is done, if nobody is at it.
    pub fn catch_up(&self) {
        self.backlog.lock().asked = false;
        self.work_off();
    }

    /// Looks at it, and sees to it that what others have left meanwhile is done.
    fn look<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let r = f(&mut self.state.lock());
        self.ask_for_rest(self.backlog.lock());
        r
    }

    /// Has the timers' thread do what is left in the backlog, unless it was asked to.
    fn ask_for_rest(&self, mut b: MutexGuard<'_, Backlog>) {
        if !b.all.is_empty() && !std::mem::replace(&mut b.asked, true) {
            drop(b);
            self.stack.timers.soon(&self.me);
        }
    }

    /// Works on it, then does what others have left meanwhile.
    fn work<R>(&self, f: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut s = self.state.lock();
        let t = now();
        let r = f(&mut s, t);
        self.finish(s, t);
        r
    }

    /// The same, where `f` reads a program's memory, which may take its time.
    fn work_by_program<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut s = self.state.lock();
        let r = f(&mut s);
        self.finish(s, now());
        r
    }

    fn finish<'a>(&'a self, mut s: MutexGuard<'a, State>, mut t: Instant) {
        let mut rounds = 0;
        loop {
            let mut after = After::default();
            loop {
                let items = {
                    let mut b = self.backlog.lock();
                    if b.all.is_empty() {
                        // What is counted is what came since the state was taken: who has it gets
                        // free of it, whatever comes.
                        b.bytes = 0;
                        break;
                    }
                    std::mem::take(&mut b.all)
                };
                for item in items {
                    self.take_item(&mut s, t, item, &mut after);
                }
            }
            self.transmit_and_rearm(&mut s, t, &mut after);
            drop(s);
            self.tell(after);
            rounds += 1;
            let b = self.backlog.lock();
            if rounds == ROUNDS {
                // Others bring more than this one takes: it does not work for them for ever.
                return self.ask_for_rest(b);
            }
            if b.all.is_empty() {
                return;
            }
            drop(b);
            match self.state.try_lock() {
                Some(again) => s = again,
                None => return,
            }
            t = now();
        }
    }

    fn take_item(&self, s: &mut State, t: Instant, item: Item, after: &mut After) {
        let changes = match item {
            Item::Segment(mut segment) => {
                if self.common.lacks_tcp_memory() {
                    pressure::shorten(&mut segment, s.engine.receive_memory());
                }
                let resets = segment.header.flags.contains(Flags::RST);
                let changes = s.engine.segment(t, segment);
                if resets
                    && changes.contains(Changes::ENDED)
                    && let Some(early) = s.early.take()
                {
                    early.was_reset(t);
                }
                changes
            }
            Item::Failed(seq, error) => self.take_error_message(s, t, seq, error),
            Item::Timer(place) => {
                // It may have another one since.
                s.place.take_if(|p| *p == place);
                match s.engine.deadline() {
                    Some(d) if d <= t => s.engine.timer(t),
                    _ => return,
                }
            }
        };
        after.events |= events(changes);
        if changes.contains(Changes::ESTABLISHED) {
            s.early = None;
            if s.listener.is_some() {
                self.stack.ip.count(Mib::TcpPassiveOpens);
            }
            if let Some(learnt) = s.engine.take_learnt() {
                self.common.ns.fast_open.learn(self.pair, learnt);
            }
            if s.deferred.is_none() {
                after.established = s.listener.take();
            }
        }
    }

    fn take_error_message(&self, s: &mut State, t: Instant, seq: Seq, e: IcmpError) -> Changes {
        let how = match e.severity {
            Severity::Soft => Unreachable::Soft(e.errno.raw()),
            Severity::Hard => Unreachable::Hard(e.errno.raw()),
        };
        match e.kind {
            ErrorKind::PacketTooBig(mtu) => {
                if !s.engine.is_outstanding(seq) {
                    self.stack.ip.count(Mib::ExtOutOfWindowIcmps);
                } else {
                    self.stack.ip.path_mtu_learnt(t, self.pair.remote.ip(), mtu);
                    if let Ok(p) = self.stack.path_again(&self.common, self.pair, &s.path) {
                        s.path = p;
                    }
                    s.engine.path_mtu(super::options::mss(&s.path, self.pair));
                }
                Changes::empty()
            }
            _ => s.engine.unreachable(t, seq, how),
        }
    }

    /// Sends what may be sent, and sets the time when it must be looked at again.
    fn transmit_and_rearm(&self, s: &mut State, t: Instant, after: &mut After) {
        let (stack, common) = (&self.stack, &self.common);
        Self::undefer(s, t, after);
        stack.look_after(
            common,
            self.pair,
            &mut s.path,
            &mut s.proof,
            &mut s.engine,
            t,
        );
        let mut out = Out {
            stack: &self.stack,
            pair: self.pair,
            path: &s.path,
            marks: &Marks {
                mark: self.common.mark() as u32,
                ..s.marks
            },
            now: t,
        };
        s.told |= s.engine.transmit(t, &mut out);
        Self::tell_stamped(s);
        after.events |= events(std::mem::take(&mut s.told));
        self.stack.timers.look_at(self.stack.ip.deadline());
        if let Some(f) = s.engine.take_failure() {
            self.common.set_error(errno(f));
            after.events |= Events::ERR | Events::READABLE | Events::WRITABLE | Events::HUP;
        }
        s.held.set(s.engine.memory());
        self.relieve(s);
        self.hurry_orphan(s, t);
        if let Some(counts) = s.engine.take_counts() {
            self.stack.ip.add_counts(&counts);
        }
        if s.orphan.is_some() && !s.over && s.engine.state() == Phase::TimeWait {
            self.retire(s);
        }
        if s.orphan.is_some() && !awaits_the_last(s.engine.standing()) {
            // Who closed it may wait for that.
            after.events |= Events::HUP;
        }
        if s.over {
            return;
        }
        let deferred = s
            .deferred
            .filter(|_| s.engine.state() != Phase::SynReceived);
        let next = [s.engine.deadline(), deferred].into_iter().flatten().min();
        match next {
            Some(d) => self.stack.timers.set(&mut s.place, d, &self.me),
            None => self.stack.timers.forget(&mut s.place),
        }
        if s.engine.state() == Phase::Closed && !s.over {
            s.over = true;
            s.early = None;
            s.stamped = VecDeque::new();
            self.stack.timers.forget(&mut s.place);
            self.stack.connections.remove(&self.pair, self);
            if let Some(b) = s.binding.take() {
                self.common.ns.tcp.unbind(&b);
            }
            if let Some(e) = s.ends.take() {
                e.release();
            }
            if let Some(l) = s.listener.take() {
                l.count_half_open(-1);
            }
        }
    }

    /// Tells of what has gone, and of what is acknowledged.
    fn tell_stamped(s: &mut State) {
        let (sent, acknowledged) = (s.engine.sent_until(), s.engine.acknowledged_until());
        // Those that went are the first ones.
        let new = s.stamped.partition_point(|(_, p, _)| *p == Progress::Went);
        for (place, progress, what) in s.stamped.range_mut(new..) {
            if *place > sent {
                break;
            }
            *progress = Progress::Went;
            what.goes();
        }
        while let Some((place, Progress::Went, what)) = s.stamped.front()
            && (*place <= acknowledged || !what.wants_ack())
        {
            what.acknowledged();
            s.stamped.pop_front();
        }
    }

    /// Gives it to its listener where something came, or its time is over (`tcp_check_req`).
    fn undefer(s: &mut State, t: Instant, after: &mut After) {
        let Some(until) = s.deferred else { return };
        let has_said = s.engine.readable() > 0 || s.engine.has_fin();
        if has_said || (t >= until && s.engine.state() == Phase::Established) {
            s.deferred = None;
            after.established = s.listener.take();
        }
    }

    /// What is left of it needs no socket, and little memory.
    fn retire(&self, s: &mut State) {
        let Some(rest) = s.engine.time_wait() else {
            return;
        };
        s.over = true;
        s.stamped = VecDeque::new();
        self.stack.timers.forget(&mut s.place);
        self.stack.timers.look_at(Some(rest.deadline()));
        let (ns, binding) = (&self.common.ns, s.binding.take());
        let this = (self.pair, std::ptr::from_ref(self));
        self.stack.connections.retire(ns, this, rest, binding);
    }

    fn tell(&self, after: After) {
        if let (Some(l), Some(me)) = (after.established, self.me.upgrade()) {
            let ends = (endpoint(self.pair.local), endpoint(self.pair.remote));
            l.count_half_open(-1);
            l.admit_from_outside(me, self.common.clone(), ends);
        }
        if !after.events.is_empty() {
            self.common.notify(after.events);
        }
    }

    /// The socket's buffers may have been set anew.
    fn resize(&self, s: &mut State) {
        let sizes = super::options::buffers(&self.common);
        if s.buffers != sizes {
            s.buffers = sizes;
            s.engine
                .configure(|c| super::options::set_buffers(c, &self.common));
        }
    }
}

pub(super) fn ends(pair: Pair) -> secret::Ends {
    secret::Ends {
        local: pair.local,
        remote: pair.remote,
    }
}

fn is_connecting(p: Phase) -> bool {
    matches!(p, Phase::SynSent | Phase::SynReceived)
}

/// Whether it has a peer: Linux's sockets have none any longer in TIME_WAIT.
fn is_connected(p: Phase) -> bool {
    !is_connecting(p) && !matches!(p, Phase::TimeWait | Phase::Closed)
}

/// Whether the end that was said is not acknowledged.
fn awaits_the_last(p: Phase) -> bool {
    matches!(p, Phase::FinWait1 | Phase::Closing | Phase::LastAck)
}

fn may_send(p: Phase) -> bool {
    matches!(p, Phase::Established | Phase::CloseWait)
}

fn may_receive(p: Phase) -> bool {
    matches!(p, Phase::Established | Phase::FinWait1 | Phase::FinWait2)
}

fn events(c: Changes) -> Events {
    let mut e = Events::empty();
    if c.contains(Changes::READABLE) {
        e |= Events::READABLE;
    }
    if c.contains(Changes::URGENT) {
        e |= Events::PRI;
    }
    if c.intersects(Changes::WRITABLE | Changes::ESTABLISHED) {
        e |= Events::WRITABLE;
    }
    if c.contains(Changes::FIN) {
        e |= Events::READABLE | Events::RDHUP;
    }
    if c.contains(Changes::ENDED) {
        e |= Events::READABLE | Events::WRITABLE | Events::RDHUP | Events::HUP | Events::ERR;
    }
    e
}

fn errno(f: Failure) -> Errno {
    match f {
        Failure::Refused => ECONNREFUSED,
        Failure::Reset => ECONNRESET,
        Failure::Pipe => EPIPE,
        Failure::TimedOut => ETIMEDOUT,
        Failure::Unreachable(n) => Errno::new(n).unwrap_or(EHOSTUNREACH),
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.state.get_mut().orphan.is_some() {
            self.stack.orphans.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Unacknowledged for Remote {
    /// After the close of its socket (`TCPF_FIN_WAIT1 | TCPF_CLOSING | TCPF_LAST_ACK`). The
    /// socket's queue is told of the change.
    fn awaits_the_last(&self) -> bool {
        self.look(|s| awaits_the_last(s.engine.standing()))
    }
}
