//! The neighbours of a link (RFC 4861 7.3; Linux's net/core/neighbour.c), as a machine of
//! questions, answers and time.
//!
//! ```text
//!            no entry                              asked and not answered
//!               |  a packet: ask all                    three times
//!               v                                  ┌───────────────> FAILED ─ a packet ─┐
//!          INCOMPLETE ─────────────────────────────┤                                    │
//!               │ an answer                        │                                    v
//!               v          30 s                    │                               INCOMPLETE
//!           REACHABLE ───────────> STALE           │
//!               ^   ^                │ a packet    │
//!               │   └─ confirmed ─ DELAY           │
//!               │                    │ 5 s         │
//!               └────── answer ──  PROBE ──────────┘   (asked alone)
//! ```
//!
//! # What holds
//!
//! - There are at most [`MOST`] entries. One that only its owner asked for (a request that came)
//!   takes the place of none but its like; those that are fixed, routers or in use stay.
//! - Packets wait for [`MOST_WAITING`] of all neighbours together; of one the oldest is dropped
//!   for the newest.
//! - An entry that is merely known has no timer: an idle link costs nothing.

use super::keyed::Keyed;
use super::types::{FrameMeta, Gateway};
use super::wire::Mac;
use crate::time::Instant;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

pub(crate) const MOST: usize = 1024;
/// Bytes that wait on one link, and packets and bytes of them for one neighbour.
pub(crate) const MOST_WAITING: usize = 1 << 20;
const MOST_PACKETS: usize = 101;
const MOST_BYTES: usize = 212_992;

/// `base_reachable_time`: between half and one and a half of it.
const REACHABLE: Duration = Duration::from_secs(30);
/// `delay_first_probe_time`.
const DELAY: Duration = Duration::from_secs(5);
/// `retrans_time`.
const RETRANS: Duration = Duration::from_secs(1);
const PROBES: u8 = 3;
/// What was used as lately does not give way to others.
const IN_USE: Duration = Duration::from_secs(60);
/// Linux's `locktime`: the first of several answers holds as long.
const LOCKED: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Incomplete,
    /// Until its time is over; then it is stale.
    Reachable,
    Stale,
    Delay,
    Probe,
    Failed,
    /// Set by somebody, for ever.
    Permanent,
}

/// `NUD_*`, for those who list them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum NeighbourState {
    Incomplete = 1,
    Reachable = 2,
    Stale = 4,
    Delay = 8,
    Probe = 0x10,
    Failed = 0x20,
    Permanent = 0x80,
}

/// A packet that waits, with its frame's headers from the IP header on.
pub(crate) struct QueuedPacket {
    pub meta: FrameMeta,
    pub packet: Vec<u8>,
}

struct Entry {
    state: State,
    mac: Mac,
    /// When the address was last seen at this MAC.
    updated: Instant,
    /// Until when an answer counts.
    reachable_until: Instant,
    /// When a packet was last sent to it; none: it was only heard of.
    used: Option<Instant>,
    asked: u8,
    due: Option<Instant>,
    gateway: Gateway,
    router: bool,
    waiting: VecDeque<QueuedPacket>,
    waiting_bytes: usize,
    /// What waited is being sent: what comes now goes after it.
    is_flushing: bool,
}

/// Where a packet goes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Hop {
    Mac(Mac),
    /// It waits. `Ask::All`: the neighbour is to be asked for now.
    Waits(Ask),
    /// No more neighbours are kept.
    Refused,
}

/// Who is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    None,
    All,
    One(Mac),
}

/// What has been heard of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    pub mac: Mac,
    pub how: How,
    /// An IPv6 advertisement's: whether a router speaks.
    pub router: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// It asked for us: a new entry is made.
    Request,
    /// It told everybody, unasked.
    Gratuitous,
    /// It spoke to another.
    Overheard,
    /// It answered: it can be reached. `overrides`: also where its MAC is another one
    /// (RFC 4861 7.2.5).
    Answer { overrides: bool },
    /// An advertisement that nobody asked for.
    Told { overrides: bool },
}

/// What the time has brought.
pub(crate) enum Event {
    Ask(IpAddr, Ask),
    /// It does not answer; what waited for it.
    Failed(IpAddr, VecDeque<QueuedPacket>),
}

/// An entry, for those who list them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourInfo {
    pub device: u32,
    pub ip: IpAddr,
    pub mac: Option<[u8; 6]>,
    pub state: NeighbourState,
    pub router: bool,
}

pub(crate) struct Neighbours {
    entries: HashMap<IpAddr, Entry, Keyed>,
    waiting_bytes: usize,
    key: Keyed,
    /// A timer that has been set since the last look: when it is due.
    armed: Option<Instant>,
}

impl Neighbours {
    pub(crate) fn new(key: Keyed) -> Neighbours {
        Neighbours {
            entries: HashMap::with_hasher(key),
            waiting_bytes: 0,
            key,
            armed: None,
        }
    }

    /// Makes these the permanent ones. Who is a router is to be seen anew.
    pub(crate) fn fix(&mut self, fixed: impl Iterator<Item = (IpAddr, Mac)>) {
        self.entries.retain(|_, e| e.state != State::Permanent);
        for e in self.entries.values_mut() {
            e.gateway = Gateway::No;
        }
        for (ip, mac) in fixed.take(MOST / 2) {
            let mut e = Entry::new(State::Permanent, Instant::default());
            e.mac = mac;
            if let Some(old) = self.entries.insert(ip, e) {
                self.waiting_bytes -= old.waiting_bytes;
            }
        }
    }

    /// Forgets one that is not fixed; whether it was known. What waits for it is lost.
    pub(crate) fn forget(&mut self, ip: IpAddr) -> bool {
        let learnt = |e: &Entry| e.state != State::Permanent;
        if !self.entries.get(&ip).is_some_and(learnt) {
            return false;
        }
        if let Some(old) = self.entries.remove(&ip) {
            self.waiting_bytes -= old.waiting_bytes;
        }
        true
    }

    /// Where a packet to this neighbour goes now; `packet` is made where it has to wait.
    pub(crate) fn resolve(
        &mut self,
        now: Instant,
        ip: IpAddr,
        gateway: Gateway,
        packet: impl FnOnce() -> QueuedPacket,
    ) -> Hop {
        // The common case, with one look-up.
        if let Some(e) = self.entries.get_mut(&ip)
            && !e.is_flushing
            && (e.state == State::Permanent
                || e.state == State::Reachable && now <= e.reachable_until)
        {
            e.used = Some(now);
            if gateway == Gateway::Yes {
                e.gateway = Gateway::Yes;
            }
            return Hop::Mac(e.mac);
        }
        if !self.entries.contains_key(&ip) && !self.make_room(now, Wish::Ours) {
            return Hop::Refused;
        }
        let new = || Entry::new(State::Failed, now);
        let e = self.entries.entry(ip).or_insert_with(new);
        e.used = Some(now);
        if gateway == Gateway::Yes {
            e.gateway = Gateway::Yes;
        }
        if e.is_flushing {
            wait(e, &mut self.waiting_bytes, packet());
            return Hop::Waits(Ask::None);
        }
        match e.state {
            State::Permanent | State::Delay | State::Probe => Hop::Mac(e.mac),
            State::Reachable | State::Stale => {
                e.state = State::Delay;
                e.due = Some(now + DELAY);
                self.armed = e.due;
                Hop::Mac(e.mac)
            }
            State::Incomplete => {
                wait(e, &mut self.waiting_bytes, packet());
                Hop::Waits(Ask::None)
            }
            State::Failed => {
                e.state = State::Incomplete;
                e.asked = 1;
                e.due = Some(now + RETRANS);
                self.armed = e.due;
                wait(e, &mut self.waiting_bytes, packet());
                Hop::Waits(Ask::All)
            }
        }
    }

    /// A packet of the transport has shown that the neighbour takes ours.
    pub(crate) fn confirm(&mut self, now: Instant, ip: IpAddr) {
        let until = now + self.reachable_time(ip, now);
        if let Some(e) = self.entries.get_mut(&ip)
            && matches!(
                e.state,
                State::Reachable | State::Stale | State::Delay | State::Probe
            )
        {
            e.reach(until);
        }
    }

    /// Takes what has been heard, and gives what waited for it.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        ip: IpAddr,
        heard: Heard,
    ) -> VecDeque<QueuedPacket> {
        let Heard { mac, how, router } = heard;
        if !self.entries.contains_key(&ip) {
            if how != How::Request || !self.make_room(now, Wish::Theirs) {
                return VecDeque::new();
            }
            let mut e = Entry::new(State::Stale, now);
            e.mac = mac;
            self.entries.insert(ip, e);
            return VecDeque::new();
        }
        let until = now + self.reachable_time(ip, now);
        let Some(e) = self.entries.get_mut(&ip) else {
            return VecDeque::new();
        };
        if e.state == State::Permanent {
            return VecDeque::new();
        }
        let known = !matches!(e.state, State::Incomplete | State::Failed);
        let moved = known && e.mac != mac;
        let overrides = match how {
            How::Request | How::Overheard => now.since(e.updated) >= LOCKED,
            How::Gratuitous => true,
            How::Answer { overrides } | How::Told { overrides } => overrides,
        };
        if moved && !overrides {
            // It may have moved: look again when a packet goes there.
            if e.state == State::Reachable {
                e.state = State::Stale;
            }
            return VecDeque::new();
        }
        e.router = router.unwrap_or(e.router);
        if !known || moved {
            e.mac = mac;
            e.updated = now;
        }
        match how {
            How::Answer { .. } => e.reach(until),
            _ if known && !moved => {}
            _ => {
                e.state = State::Stale;
                e.due = None;
            }
        }
        if e.is_flushing {
            // Who sends it comes back.
            return VecDeque::new();
        }
        self.flush(ip)
    }

    /// Gives what waits for a neighbour, in its order. Where it is not nothing, who gets it sends
    /// it and comes again.
    pub(crate) fn flush(&mut self, ip: IpAddr) -> VecDeque<QueuedPacket> {
        let Some(e) = self.entries.get_mut(&ip) else {
            return VecDeque::new();
        };
        self.waiting_bytes -= e.waiting_bytes;
        e.waiting_bytes = 0;
        let all = std::mem::take(&mut e.waiting);
        e.is_flushing = !all.is_empty();
        all
    }

    /// From now on what comes need not wait.
    pub(crate) fn go_on(&mut self, ip: IpAddr) {
        if let Some(e) = self.entries.get_mut(&ip) {
            e.is_flushing = false;
        }
    }

    /// What is due. The second: when the next is.
    pub(crate) fn timer(&mut self, now: Instant) -> (Vec<Event>, Option<Instant>) {
        let mut events = Vec::new();
        let mut next: Option<Instant> = None;
        for (ip, e) in &mut self.entries {
            if e.due.is_some_and(|due| due <= now) {
                events.extend(e.expire(now, *ip, &mut self.waiting_bytes));
            }
            next = [next, e.due].into_iter().flatten().min();
        }
        (events, next)
    }

    /// The timer that [`Neighbours::resolve`] has set, once.
    pub(crate) fn armed(&mut self) -> Option<Instant> {
        self.armed.take()
    }

    /// Bytes of all that waits.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting_bytes
    }

    pub(crate) fn list(&self, now: Instant, device: u32) -> Vec<NeighbourInfo> {
        let info = |(ip, e): (&IpAddr, &Entry)| NeighbourInfo {
            device,
            ip: *ip,
            mac: (!matches!(e.state, State::Incomplete | State::Failed)).then_some(e.mac),
            state: e.shown(now),
            router: e.router,
        };
        self.entries.iter().map(info).collect()
    }

    /// Between half and one and a half of the base, by the neighbour and the time.
    fn reachable_time(&self, ip: IpAddr, now: Instant) -> Duration {
        let part = self.key.hash((ip, now)) % 1000;
        REACHABLE / 2 + REACHABLE * part as u32 / 1000
    }

    /// Whether there is a place for one more; another may have to go for it.
    fn make_room(&mut self, now: Instant, wish: Wish) -> bool {
        if self.entries.len() < MOST {
            return true;
        }
        let worth = |e: &Entry| e.worth(now);
        let Some((worth, _, ip)) = self
            .entries
            .iter()
            .filter_map(|(ip, e)| Some((worth(e)?, e.used.unwrap_or(e.updated), *ip)))
            .min_by_key(|(worth, used, _)| (*worth, *used))
        else {
            return false;
        };
        if wish == Wish::Theirs && worth > Worth::Unused {
            return false;
        }
        if let Some(e) = self.entries.remove(&ip) {
            self.waiting_bytes -= e.waiting_bytes;
        }
        true
    }
}

/// On whose behalf an entry is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Ours,
    Theirs,
}

/// What goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// Never sent to.
    Unused,
    Failed,
    /// Not sent to for a minute.
    Old,
    /// Asked for in vain for a second: strangers have us ask, by packets that we answer.
    Silent,
}

impl Entry {
    fn new(state: State, now: Instant) -> Entry {
        Entry {
            state,
            mac: [0; 6],
            updated: now,
            reachable_until: now,
            used: None,
            asked: 0,
            due: None,
            gateway: Gateway::No,
            router: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_flushing: false,
        }
    }

    fn reach(&mut self, until: Instant) {
        self.state = State::Reachable;
        self.reachable_until = until;
        self.asked = 0;
        self.due = None;
    }

    fn worth(&self, now: Instant) -> Option<Worth> {
        if self.state == State::Permanent || self.gateway == Gateway::Yes {
            return None;
        }
        match self.used {
            None => Some(Worth::Unused),
            Some(_) if self.state == State::Failed => Some(Worth::Failed),
            Some(used) if now.since(used) >= IN_USE => Some(Worth::Old),
            Some(_) if self.state == State::Incomplete && self.asked > 1 => Some(Worth::Silent),
            Some(_) => None,
        }
    }

    fn expire(&mut self, now: Instant, ip: IpAddr, waiting: &mut usize) -> Option<Event> {
        self.due = None;
        let ask = match self.state {
            State::Incomplete if self.asked < PROBES => Ask::All,
            State::Probe if self.asked < PROBES => Ask::One(self.mac),
            State::Delay => {
                self.state = State::Probe;
                self.asked = 0;
                Ask::One(self.mac)
            }
            State::Incomplete | State::Probe => {
                self.state = State::Failed;
                *waiting -= self.waiting_bytes;
                self.waiting_bytes = 0;
                return Some(Event::Failed(ip, std::mem::take(&mut self.waiting)));
            }
            _ => return None,
        };
        self.asked += 1;
        self.due = Some(now + RETRANS);
        Some(Event::Ask(ip, ask))
    }

    fn shown(&self, now: Instant) -> NeighbourState {
        match self.state {
            State::Incomplete => NeighbourState::Incomplete,
            State::Reachable if now > self.reachable_until => NeighbourState::Stale,
            State::Reachable => NeighbourState::Reachable,
            State::Stale => NeighbourState::Stale,
            State::Delay => NeighbourState::Delay,
            State::Probe => NeighbourState::Probe,
            State::Failed => NeighbourState::Failed,
            State::Permanent => NeighbourState::Permanent,
        }
    }
}

/// Puts a packet behind those that wait for the same neighbour.
fn wait(e: &mut Entry, all: &mut usize, packet: QueuedPacket) {
    let len = packet.packet.len();
    while !e.waiting.is_empty()
        && (e.waiting.len() >= MOST_PACKETS || e.waiting_bytes + len > MOST_BYTES)
    {
        let old = e.waiting.pop_front().map_or(0, |w| w.packet.len());
        e.waiting_bytes -= old;
        *all -= old;
    }
    if *all + len > MOST_WAITING {
        return;
    }
    e.waiting_bytes += len;
    *all += len;
    e.waiting.push_back(packet);
}
