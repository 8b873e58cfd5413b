//! Connections: which packets belong together, and in which state they are (Linux's
//! `nf_conntrack`).
//!
//! # What holds
//!
//! - There are at most [`Flows::most`] connections. Where there is no room, one of those that are
//!   over goes, or one that both ends have not spoken in (`early_drop`); else the packet is
//!   dropped. So many are looked at for that at most ([`SEARCH`]), from a place that nobody
//!   foresees.
//! - A connection is in the table by both of its tuples, or by none: until its first packet has
//!   passed all hooks it is that packet's alone.
//! - The window of TCP is not looked at: what is in no order is no other state (as with Linux's
//!   `nf_conntrack_tcp_be_liberal`).

use crate::events::{Event, Events};
use crate::nat::Translation;
use crate::packet::{ICMP, ICMPV6, Packet, TCP, UDP, parse};
pub use crate::tcp::Phase;
use crate::tcp::{After, Kind, UNANSWERED, after};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The most connections of a namespace, until its setting says another number; and the most that it
/// may say.
pub const MOST: usize = 16_384;
pub const MOST_OF_ALL: usize = 65_536;
/// About what one takes, in bytes.
pub const ONE: usize = 640;
/// How many are looked at for one that may go.
const SEARCH: usize = 64;
const SECOND: u64 = 1_000_000_000;

pub const SEEN_REPLY: u32 = 2;
pub const ASSURED: u32 = 4;
pub const CONFIRMED: u32 = 8;
pub const SRC_NAT: u32 = 16;
pub const DST_NAT: u32 = 32;

/// Two ends of packets. Of ICMP the source's port is the identifier, the destination's type and
/// code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuple {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
    pub protocol: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    #[default]
    Original = 0,
    Reply = 1,
}

impl Direction {
    #[must_use]
    pub fn other(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }
}

/// The type of the answer to an ICMP message.
fn icmp_answer(protocol: u8, kind: u8) -> Option<u8> {
    match (protocol, kind) {
        (ICMP, 8) => Some(0),
        (ICMP, 0) => Some(8),
        (ICMP, 13) => Some(14),
        (ICMP, 14) => Some(13),
        (ICMP, 15) => Some(16),
        (ICMP, 16) => Some(15),
        (ICMP, 17) => Some(18),
        (ICMP, 18) => Some(17),
        (ICMPV6, 128) => Some(129),
        (ICMPV6, 129) => Some(128),
        _ => None,
    }
}

impl Tuple {
    /// That of the answers.
    #[must_use]
    pub fn inverse(&self) -> Tuple {
        let is_icmp = matches!(self.protocol, ICMP | ICMPV6);
        let (from, to) = if is_icmp {
            let [kind, code] = self.to.1.to_be_bytes();
            let kind = icmp_answer(self.protocol, kind).unwrap_or(kind);
            let answer = u16::from_be_bytes([kind, code]);
            ((self.to.0, self.from.1), (self.from.0, answer))
        } else {
            (self.to, self.from)
        };
        Tuple {
            from,
            to,
            protocol: self.protocol,
        }
    }

    /// Of a header and what follows it.
    fn of(from: IpAddr, to: IpAddr, protocol: u8, body: &[u8]) -> Option<Tuple> {
        let (a, b) = match protocol {
            ICMP | ICMPV6 => {
                let [kind, code, _, _, id, id2, ..] = body else {
                    return None;
                };
                icmp_answer(protocol, *kind)?;
                let id = u16::from_be_bytes([*id, *id2]);
                (id, u16::from_be_bytes([*kind, *code]))
            }
            TCP | UDP | 33 | 132 | 136 => {
                let [a, b, c, d, ..] = body else { return None };
                (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
            }
            _ => (0, 0),
        };
        Some(Tuple {
            from: (from, a),
            to: (to, b),
            protocol,
        })
    }

    #[must_use]
    pub fn of_packet(p: &Packet<'_>) -> Option<Tuple> {
        if p.is_rest() {
            return None;
        }
        Tuple::of(p.from, p.to, p.protocol, p.body())
    }

    fn is_request(&self) -> bool {
        let kind = self.to.1.to_be_bytes()[0];
        match self.protocol {
            ICMP => matches!(kind, 8 | 13 | 15 | 17),
            ICMPV6 => kind == 128,
            _ => true,
        }
    }
}

/// A connection.
pub struct Flow {
    pub original: Tuple,
    pub id: u32,
    /// It began by a device that leads outside.
    pub from_outside: bool,
    /// In [`Table::all`]. Protected by the table's lock.
    slot: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    reply: Tuple,
    status: u32,
    mark: u32,
    phase: Phase,
    /// What came last that said something, and from where.
    last: Option<(Kind, Direction)>,
    /// An end has finished.
    closing: bool,
    expires: u64,
    /// From when on datagrams in both directions are a stream.
    streams: u64,
    counters: [(u64, u64); 2],
    /// When who began it was heard last.
    heard: u64,
    translation: Translation,
}

/// What a packet is to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    Part,
    Invalid,
    /// The connection is over, and another one begins.
    Reopens,
}

impl State {
    /// A segment has come: for how many seconds the connection is remembered; none: it says
    /// nothing. `answered`: the other end had spoken before.
    fn segment(
        &mut self,
        flags: u8,
        d: Direction,
        answered: bool,
    ) -> core::result::Result<Option<u64>, Came> {
        let kind = Kind::of(flags).ok_or(Came::Invalid)?;
        let old = self.phase;
        let last = self.last.replace((kind, d));
        let new = match after(old, kind, d) {
            After::Invalid => {
                self.last = last;
                return Err(Came::Invalid);
            }
            After::Ignored => return Ok(None),
            After::Reopens if self.closing || last == Some((Kind::Rst, d)) => {
                return Err(Came::Reopens);
            }
            After::Reopens => return Ok(None),
            After::To(p) => p,
        };
        self.phase = new;
        self.closing |= new == Phase::FinWait;
        if !answered {
            return Ok(match (kind, old, new) {
                // There was none.
                (Kind::Rst, ..) => Some(0),
                // Who asks again and again is not remembered for longer.
                (Kind::Syn, Phase::SynSent, _) if last.is_some() => None,
                (.., Phase::Established) => Some(UNANSWERED),
                _ => Some(new.seconds()),
            });
        }
        let was = matches!(old, Phase::SynReceived | Phase::Established);
        if was && new == Phase::Established {
            self.status |= ASSURED;
        }
        Ok(Some(new.seconds()))
    }
}

impl Flow {
    #[must_use]
    pub fn tuple(&self, d: Direction) -> Tuple {
        match d {
            Direction::Original => self.original,
            Direction::Reply => self.state.lock().reply,
        }
    }
    #[must_use]
    pub fn status(&self) -> u32 {
        self.state.lock().status
    }
    #[must_use]
    pub fn mark(&self) -> u32 {
        self.state.lock().mark
    }
    pub fn set_mark(&self, mark: u32) {
        self.state.lock().mark = mark;
    }
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.state.lock().phase
    }
    /// Milliseconds until it is forgotten.
    #[must_use]
    pub fn left(&self, now: u64) -> u32 {
        let ns = self.state.lock().expires.saturating_sub(now);
        u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX)
    }
    /// Packets and bytes of a direction, or of both.
    #[must_use]
    pub fn counters(&self, d: Option<Direction>) -> (u64, u64) {
        let [a, b] = self.state.lock().counters;
        match d {
            Some(Direction::Original) => a,
            Some(Direction::Reply) => b,
            None => (a.0 + b.0, a.1 + b.1),
        }
    }
    /// Whether who began it has spoken lately, where that tells: an end of a connection that has
    /// gone says so, one of datagrams does not.
    #[must_use]
    pub fn has_spoken(&self, now: u64) -> bool {
        const LATELY: u64 = 180 * SECOND;
        let heard = self.state.lock().heard;
        self.original.protocol == TCP || now.saturating_sub(heard) < LATELY
    }
    /// Whether it is translated.
    #[must_use]
    pub fn is_translated(&self) -> bool {
        self.status() & (SRC_NAT | DST_NAT) != 0
    }

    pub(crate) fn with_translation<R>(
        &self,
        f: impl FnOnce(&mut Translation, &mut Tuple, &mut u32) -> R,
    ) -> R {
        let s = &mut *self.state.lock();
        f(&mut s.translation, &mut s.reply, &mut s.status)
    }

    fn is_over(&self, now: u64) -> bool {
        self.state.lock().expires <= now
    }

    /// What others are told of that changes.
    fn standing(&self) -> (u32, Phase) {
        let s = self.state.lock();
        (s.status, s.phase)
    }

    /// A packet of it has come.
    fn came(&self, p: &Packet<'_>, d: Direction) -> Came {
        let mut s = self.state.lock();
        let answered = s.status & SEEN_REPLY != 0;
        let seconds = match self.original.protocol {
            TCP => match s.segment(p.tcp_flags().unwrap_or(0), d, answered) {
                Ok(seconds) => seconds,
                Err(other) => return other,
            },
            UDP if answered && p.now > s.streams => {
                s.status |= ASSURED;
                Some(120)
            }
            UDP | ICMP | ICMPV6 => Some(30),
            _ => Some(Phase::None.seconds()),
        };
        match d {
            // (By a device of a program's, anybody may have his name.)
            Direction::Original if p.input.is_some_and(|d| d.guarded) => s.heard = p.now,
            Direction::Original => {}
            Direction::Reply => s.status |= SEEN_REPLY,
        }
        if let Some(seconds) = seconds {
            let c = &mut s.counters[d as usize];
            (c.0, c.1) = (c.0 + 1, c.1 + p.len as u64);
            s.expires = p.now.saturating_add(seconds * SECOND);
        }
        Came::Part
    }
}

/// How a packet stands to its connection, as rules see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Standing {
    /// Nobody has looked yet, or it belongs to none.
    #[default]
    None,
    Invalid,
    Untracked,
    New,
    Established,
    Related,
}

/// A packet's connection.
#[derive(Clone, Default)]
pub struct Track {
    flow: Option<Arc<Flow>>,
    standing: Standing,
    direction: Direction,
}

impl Track {
    #[must_use]
    pub fn flow(&self) -> Option<&Arc<Flow>> {
        self.flow.as_ref()
    }

    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether it is the first of its connection.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.standing == Standing::New
    }

    /// Whether it is an error about a packet of its connection, or what else answers one.
    #[must_use]
    pub fn is_related(&self) -> bool {
        self.standing == Standing::Related
    }

    /// That of what this host answers a packet of it with: it is related to the same connection, in
    /// the other direction (`nf_conntrack_attach`).
    #[must_use]
    pub fn of_answer(&self) -> Track {
        match &self.flow {
            None => Track::default(),
            Some(flow) => Track {
                flow: Some(flow.clone()),
                standing: Standing::Related,
                direction: self.direction.other(),
            },
        }
    }

    /// `notrack`.
    pub fn leave_alone(&mut self) {
        if self.standing == Standing::None {
            self.standing = Standing::Untracked;
        }
    }

    /// Its state as rules have it: one bit.
    #[must_use]
    pub fn bits(&self) -> u32 {
        match self.standing {
            Standing::None | Standing::Invalid => 1,
            Standing::Established => 2,
            Standing::Related => 4,
            Standing::New => 8,
            Standing::Untracked => 64,
        }
    }
}

/// The connections of a namespace.
pub struct Flows {
    table: Mutex<Table>,
    most: AtomicUsize,
    next: AtomicU32,
    seed: AtomicU64,
    /// Who is told of them.
    pub events: Events,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows {
            table: Mutex::default(),
            most: AtomicUsize::new(MOST),
            next: AtomicU32::new(0),
            seed: AtomicU64::new(1),
            events: Events::default(),
        }
    }
}

#[derive(Default)]
struct Table {
    by: HashMap<Tuple, (Arc<Flow>, Direction)>,
    all: Vec<Arc<Flow>>,
}

impl Table {
    fn insert(&mut self, flow: &Arc<Flow>) {
        flow.slot.store(self.all.len(), Relaxed);
        self.all.push(flow.clone());
        let reply = flow.tuple(Direction::Reply);
        self.by
            .insert(flow.original, (flow.clone(), Direction::Original));
        self.by.insert(reply, (flow.clone(), Direction::Reply));
    }

    fn remove(&mut self, flow: &Arc<Flow>) {
        for tuple in [flow.original, flow.tuple(Direction::Reply)] {
            if self
                .by
                .get(&tuple)
                .is_some_and(|(f, _)| Arc::ptr_eq(f, flow))
            {
                self.by.remove(&tuple);
            }
        }
        let slot = flow.slot.load(Relaxed);
        if self.all.get(slot).is_some_and(|f| Arc::ptr_eq(f, flow)) {
            self.all.swap_remove(slot);
            if let Some(moved) = self.all.get(slot) {
                moved.slot.store(slot, Relaxed);
            }
        }
    }

    /// Those from a place on.
    fn from(&self, at: usize) -> impl Iterator<Item = &Arc<Flow>> {
        let at = at % self.all.len().max(1);
        self.all[at..].iter().chain(&self.all[..at])
    }

    /// Takes one away for another one.
    fn make_room(&mut self, at: usize, now: u64) -> Option<Arc<Flow>> {
        let over = self.from(at).take(SEARCH).find(|f| f.is_over(now));
        let weak = || {
            let mut some = self.from(at).take(SEARCH);
            some.find(|f| f.status() & ASSURED == 0)
        };
        let found = over.or_else(weak).cloned();
        if let Some(f) = &found {
            self.remove(f);
        }
        found
    }
}

impl Flows {
    /// `seed`: what nobody foresees.
    pub fn set_seed(&self, seed: u64) {
        self.seed.store(seed | 1, Relaxed);
    }

    /// A number that is not foreseen by those who do not see many of them.
    pub fn random(&self) -> u32 {
        let mut x = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) as u32
    }

    /// Finds the connection of a packet that comes in, or goes out; or begins one.
    pub fn track(&self, p: &Packet<'_>, meta: &mut crate::packet::Meta) {
        let track = &mut meta.track;
        if track.standing != Standing::None {
            return;
        }
        if let Some((flow, d)) = self.spoken_of(p) {
            *track = Track {
                flow: Some(flow),
                standing: Standing::Related,
                direction: d,
            };
            return;
        }
        let Some(tuple) = Tuple::of_packet(p) else {
            // Neighbours and groups of IPv6 are no connections.
            let kind = p.body().first().copied().unwrap_or(0);
            let apart = p.protocol == ICMPV6 && (130..=137).contains(&kind);
            track.standing = if apart {
                Standing::Untracked
            } else {
                Standing::Invalid
            };
            return;
        };
        match self.find(&tuple, p.now) {
            Some((flow, d)) => self.known(p, track, (flow, d), tuple),
            None => self.begin(p, track, tuple),
        }
    }

    fn known(
        &self,
        p: &Packet<'_>,
        track: &mut Track,
        (flow, d): (Arc<Flow>, Direction),
        tuple: Tuple,
    ) {
        let answered = d == Direction::Reply || flow.status() & SEEN_REPLY != 0;
        let before = flow.standing();
        match flow.came(p, d) {
            Came::Part => {}
            Came::Invalid => {
                track.standing = Standing::Invalid;
                return;
            }
            Came::Reopens => {
                self.table.lock().remove(&flow);
                self.events.tell(Event::Gone, &flow, p.now);
                return self.begin(p, track, tuple);
            }
        }
        if self.events.is_heard(Event::Changed) && flow.standing() != before {
            self.events.tell(Event::Changed, &flow, p.now);
        }
        *track = Track {
            standing: if answered {
                Standing::Established
            } else {
                Standing::New
            },
            flow: Some(flow),
            direction: d,
        };
    }

    fn begin(&self, p: &Packet<'_>, track: &mut Track, tuple: Tuple) {
        let flow = Flow {
            original: tuple,
            id: self.next.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b1),
            from_outside: p.input.is_some_and(|d| d.guarded),
            slot: AtomicUsize::new(0),
            state: Mutex::new(State {
                reply: tuple.inverse(),
                status: 0,
                mark: 0,
                phase: Phase::None,
                last: None,
                closing: false,
                expires: 0,
                streams: p.now.saturating_add(2 * SECOND),
                counters: [(0, 0); 2],
                heard: p.now,
                translation: Translation::default(),
            }),
        };
        // Of TCP also one that was there before anybody looked (`nf_conntrack_tcp_loose`).
        if !tuple.is_request() || flow.came(p, Direction::Original) != Came::Part {
            track.standing = Standing::Invalid;
            return;
        }
        *track = Track {
            flow: Some(Arc::new(flow)),
            standing: Standing::New,
            direction: Direction::Original,
        };
    }

    /// The connection that an ICMP error is about, and the direction of the error in it.
    fn spoken_of(&self, p: &Packet<'_>) -> Option<(Arc<Flow>, Direction)> {
        let body = p.body();
        let kind = *body.first()?;
        let is_error = match p.protocol {
            ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
            ICMPV6 => (1..=4).contains(&kind),
            _ => false,
        };
        let quoted = body.get(8..).filter(|_| is_error)?;
        let (from, to, protocol, at) = parse(quoted)?;
        let tuple = Tuple::of(from, to, protocol, quoted.get(at?..)?)?;
        // The packet may look otherwise than its connection's first: answers to it do not.
        self.find(&tuple.inverse(), p.now)
    }

    fn find(&self, tuple: &Tuple, now: u64) -> Option<(Arc<Flow>, Direction)> {
        let mut table = self.table.lock();
        let (flow, d) = table.by.get(tuple)?.clone();
        if flow.is_over(now) {
            table.remove(&flow);
            drop(table);
            self.events.tell(Event::Gone, &flow, now);
            return None;
        }
        Some((flow, d))
    }

    /// Whether a tuple is another connection's.
    pub fn is_taken(&self, tuple: &Tuple, flow: &Arc<Flow>) -> bool {
        let table = self.table.lock();
        table
            .by
            .get(tuple)
            .is_some_and(|(f, _)| !Arc::ptr_eq(f, flow))
    }

    /// A connection's first packet has passed: from now on it is known. Whether there is room.
    pub fn confirm(&self, track: &Track, now: u64) -> bool {
        let Some(flow) = track.flow.as_ref().filter(|_| track.is_new()) else {
            return true;
        };
        if flow.status() & CONFIRMED != 0 {
            return true;
        }
        let (original, reply) = (flow.original, flow.tuple(Direction::Reply));
        let mut table = self.table.lock();
        if table.by.contains_key(&original) || table.by.contains_key(&reply) {
            // Two first packets at once: the other one's connection stays.
            return original.protocol == UDP;
        }
        // Those that are over go in time, though nobody asks for them.
        let at = self.random() as usize;
        let over = table.from(at).take(2).find(|f| f.is_over(now)).cloned();
        if let Some(f) = &over {
            table.remove(f);
        }
        let is_full = table.all.len() >= self.most();
        let made_room = if is_full {
            table.make_room(at, now)
        } else {
            None
        };
        let is_in = !is_full || made_room.is_some();
        if is_in {
            flow.state.lock().status |= CONFIRMED;
            table.insert(flow);
        }
        drop(table);
        for gone in over.iter().chain(&made_room) {
            self.events.tell(Event::Gone, gone, now);
        }
        if is_in {
            self.events.tell(Event::New, flow, now);
        }
        is_in
    }

    /// The most connections.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    /// Has there be at most so many; 0 means the most of all.
    pub fn set_most(&self, most: usize) {
        self.most.store(Flows::bounded(most), Relaxed);
    }

    /// How many may be where so many are asked for.
    #[must_use]
    pub fn bounded(most: usize) -> usize {
        match most {
            0 => MOST_OF_ALL,
            n => n.min(MOST_OF_ALL),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.lock().all.len()
    }

    /// All that are not over.
    #[must_use]
    pub fn all(&self, now: u64) -> Vec<Arc<Flow>> {
        let all = self.table.lock().all.clone();
        all.into_iter().filter(|f| !f.is_over(now)).collect()
    }

    /// Forgets those that `which` names; how many there were.
    pub fn forget(&self, now: u64, which: impl Fn(&Flow) -> bool) -> usize {
        let all = self.table.lock().all.clone();
        let found: Vec<_> = all.into_iter().filter(|f| which(f)).collect();
        let mut table = self.table.lock();
        for f in &found {
            table.remove(f);
        }
        drop(table);
        for f in &found {
            self.events.tell(Event::Gone, f, now);
        }
        found.len()
    }

    /// The connection of a tuple, in either direction.
    #[must_use]
    pub fn get(&self, tuple: &Tuple, now: u64) -> Option<(Arc<Flow>, Direction)> {
        self.find(tuple, now)
    }
}
