//! What rules say of packets ([`netfilter`]), and packets that stay on this host.
//!
//! Without rules, sockets of one host are joined in memory and nothing here runs. With rules, what
//! passes between them is packets of the loopback device, so that each hook sees it.
//!
//! # What holds
//!
//! - Rules are the application's. What they make of a packet is believed no more than what a
//!   program says: no source but this host's own leaves by a guarded device, and what goes
//!   elsewhere than its sender said is asked for again ([`Link::permits`](super::Link::permits)).
//! - Who has spoken, or answered a question, is who the wire says, not who rules say
//!   ([`Info::renamed`](super::Info::renamed)).
//! - A packet that passes inside keeps what is known of its connection: it is looked for once
//!   (as Linux's `loopback_xmit` keeps it).
//! - Who sends leaves a packet in a queue that is bounded, since he may hold a connection's lock.
//!   [`Ip::pass_inside`] is for when he holds none: then he takes a few of what waits, in order,
//!   unless somebody else does so just now. Where nobody does for a while, [`Ip::timer`] does.

use super::Ip;
use super::counters::count;
use super::deliver::{Datagram, socket_addr};
use super::device::{Dev, Due};
use super::errors::{Cause, is_icmp_error};
use super::receive::Arrival;
use super::segment;
use super::send::{Message, PARTS, check_source, cut, device_of, total};
use super::table::Table;
use super::types::{Cast, FrameMeta, Marks, Pair, Path, SendError, Sent, Upper};
use super::wire::{Head, TCP, TYPE_IPV4, TYPE_IPV6};
use crate::tcp::{self, Segment};
use crate::time::Instant;
use bytes::Bytes;
use netfilter::Outcome;
use netfilter::conntrack::{Direction, Track};
use netfilter::nat::Rewrite;
use netfilter::packet::{self, Hook, Meta, Packet, parse};
use netfilter::reject::Reject;
use netfilter::rewrite::{Checksum, apply};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Frames and bytes that wait (`net.core.netdev_max_backlog`), and how many are taken in one turn.
const MOST_FRAMES: usize = 1000;
const MOST_BYTES: usize = 4 << 20;
const TURN: usize = 64;
/// The same of a turn of the timer, which may be others', too.
pub(super) const TIMERS_TURN: usize = 8;
/// When the timer takes what nobody has taken.
const LATE: Duration = Duration::from_micros(500);
/// `ARPHRD_ETHER`, `ARPHRD_LOOPBACK`.
const ETHER: u16 = 1;
const LOOPBACK: u16 = 772;

/// A packet that stays on this host.
struct Looped {
    meta: FrameMeta,
    frame: Bytes,
    track: Meta,
}

#[derive(Default)]
struct Queue {
    all: VecDeque<Looped>,
    bytes: usize,
}

/// Packets that stay on this host and have not come in yet.
pub(super) struct Inside {
    queue: Mutex<Queue>,
    /// Who takes them has it.
    passing: Mutex<()>,
    due: Due,
}

impl Default for Inside {
    fn default() -> Inside {
        Inside {
            queue: Mutex::default(),
            passing: Mutex::default(),
            due: Due::never(),
        }
    }
}

impl Inside {
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.get()
    }

    fn push(&self, now: Instant, one: Looped) -> Sent {
        let mut q = self.queue.lock();
        if q.all.len() >= MOST_FRAMES || q.bytes + one.frame.len() > MOST_BYTES {
            return Sent::Full;
        }
        q.bytes += one.frame.len();
        q.all.push_back(one);
        drop(q);
        self.due.at_latest(Some(now + LATE));
        Sent::Yes
    }

    fn pop(&self) -> Option<Looped> {
        let mut q = self.queue.lock();
        let one = q.all.pop_front()?;
        q.bytes -= one.frame.len();
        Some(one)
    }
}

impl packet::Host for Table {
    fn kind_of(&self, ip: IpAddr) -> u8 {
        const UNICAST: u8 = 1;
        const LOCAL: u8 = 2;
        const BROADCAST: u8 = 3;
        const MULTICAST: u8 = 5;
        const UNREACHABLE: u8 = 7;
        match self.cast(ip) {
            Cast::Multicast => MULTICAST,
            Cast::Broadcast => BROADCAST,
            Cast::Unicast if self.is_local(ip) => LOCAL,
            Cast::Unicast if self.way(ip, None, None).is_ok() => UNICAST,
            Cast::Unicast => UNREACHABLE,
        }
    }

    fn mtu_towards(&self, ip: IpAddr) -> u32 {
        let mtu = |way: super::table::Way| {
            let dev = self.devices.get(way.device)?;
            Some(match way.mtu {
                0 => dev.mtu,
                n => n.min(dev.mtu),
            })
        };
        self.way(ip, None, None).ok().and_then(mtu).unwrap_or(0)
    }

    fn address_on(&self, device: u32, to: IpAddr) -> Option<IpAddr> {
        let dev = self.by_index(device)?;
        self.address_of(dev, to)
    }
}

/// What is known of a packet at a hook.
struct Place<'a> {
    now: Instant,
    table: &'a Table,
    input: Option<&'a Dev>,
    output: Option<&'a Dev>,
    owner: Option<(u32, u32)>,
}

impl Place<'_> {
    fn device<'d>(&self, dev: Option<&'d Dev>) -> Option<packet::Device<'d>> {
        dev.map(|d| packet::Device {
            index: d.index,
            name: &d.setup.name,
            hardware: if d.is_loopback() { LOOPBACK } else { ETHER },
            guarded: self.table.is_guarded(d.index),
        })
    }
}

/// Whether an address is this host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Locality {
    Local,
    Remote,
}

/// The source and destination of a packet.
fn ends(b: &[u8]) -> Result<(IpAddr, IpAddr), SendError> {
    let (from, to, ..) = parse(b).ok_or(SendError::Invalid)?;
    Ok((from, to))
}

impl Ip {
    /// The rules of its namespace.
    #[must_use]
    pub fn rules(&self) -> &netfilter::Engine {
        &self.rules
    }

    fn hook(
        &self,
        hook: Hook,
        (bytes, len): (&[u8], usize),
        at: &Place<'_>,
        meta: &mut Meta,
    ) -> Outcome {
        let Some(mut p) = Packet::new(bytes, len, at.now.0, at.table) else {
            return Outcome::Drop;
        };
        (p.input, p.output) = (at.device(at.input), at.device(at.output));
        p.owner = at.owner;
        p.cast = match at.table.cast(p.to) {
            Cast::Unicast => packet::Cast::Host,
            Cast::Broadcast => packet::Cast::Broadcast,
            Cast::Multicast => packet::Cast::Multicast,
        };
        self.rules.run(hook, &p, meta)
    }

    /// Leads a packet of this host's through `output` and `postrouting`: by which path it goes,
    /// and what is known of its connection. `b` begins with its IP header, has all headers, and is
    /// `len` bytes long as a whole; it is written anew where rules translate. `known`: of what
    /// connection it is, where that is not to be looked for.
    pub(super) fn go_out(
        &self,
        (now, table): (Instant, &Table),
        path: &Path,
        (b, len, sum): (&mut [u8], usize, Checksum),
        marks: &Marks,
        known: &Meta,
    ) -> Result<(Path, Meta), SendError> {
        let mut track = Meta {
            mark: marks.mark,
            ..known.clone()
        };
        let mut place = Place {
            now,
            table,
            input: None,
            output: Some(device_of(table, path)?),
            owner: marks.owner,
        };
        let (from, asked) = ends(b)?;
        let mut elsewhere = false;
        match self.hook(Hook::Output, (b, len), &place, &mut track) {
            Outcome::Accept(None) => {}
            Outcome::Accept(Some(r)) => {
                elsewhere = r.is_translated;
                apply(b, &r, sum).ok_or(SendError::Invalid)?;
            }
            Outcome::Drop => return Err(SendError::Denied),
            Outcome::Reject(r) => {
                self.reject_own(now, b, r, &track.track);
                return Err(SendError::Denied);
            }
        }
        let (_, to) = ends(b)?;
        let mut path = *path;
        if to != asked {
            let other = self.path(to, Some(from), None);
            path = other.map_err(|_| SendError::Denied)?;
        }
        let dev = device_of(table, &path)?;
        place.output = Some(dev);
        match self.hook(Hook::Postrouting, (b, len), &place, &mut track) {
            Outcome::Accept(None) => {}
            Outcome::Accept(Some(r)) => apply(b, &r, sum).ok_or(SendError::Invalid)?,
            Outcome::Drop | Outcome::Reject(_) => return Err(SendError::Denied),
        }
        let (from, _) = ends(b)?;
        // (To networks inside, answers may come from whom was asked: a name of rules alone.)
        if table.is_guarded(dev.index) {
            check_source(table, dev, &path, from).map_err(|_| SendError::Denied)?;
            if elsewhere && !self.link.permits(b) {
                return Err(SendError::Denied);
            }
        }
        Ok((path, track))
    }

    /// Sends a message as rules have it.
    pub(super) fn send_by_rules(
        &self,
        now: Instant,
        table: &Table,
        path: &Path,
        m: &Message<'_>,
        marks: &Marks,
    ) -> Result<Sent, SendError> {
        let (mut b, header, shown) = m.beginning(marks)?;
        let sum = match m.offload.checksum {
            Some(_) => Checksum::Partial,
            None => Checksum::Whole,
        };
        let len = header + m.len();
        let whole = (&mut b[..], len, sum);
        let (path, track) = self.go_out((now, table), path, whole, marks, m.track)?;
        let (from, to) = ends(&b)?;
        let (head, first) = b[header..].split_at(m.head.len());
        let mut parts = [&[][..]; PARTS];
        parts[0] = first;
        let at = usize::from(!first.is_empty());
        let rest = shown..total(m.payload);
        let n = at + cut(m.payload, rest, &mut parts[at..]);
        let anew = Message {
            from,
            to,
            head,
            payload: &parts[..n],
            track: &track,
            ..*m
        };
        let dev = device_of(table, &path)?;
        self.send_message(now, (table, dev), &path, &anew, marks)
    }

    /// Takes a packet that stays on this host.
    pub(super) fn turn_round(
        &self,
        (now, dev): (Instant, &Dev),
        meta: &FrameMeta,
        (head, payload): (&mut Head, &[&[u8]]),
        track: &Meta,
    ) -> Sent {
        let v4 = head.packet().first().is_some_and(|b| b >> 4 == 4);
        head.ethernet([0; 6], [0; 6], if v4 { TYPE_IPV4 } else { TYPE_IPV6 });
        let mut frame = Vec::with_capacity(head.len() + total(payload));
        frame.extend_from_slice(head.bytes());
        payload.iter().for_each(|p| frame.extend_from_slice(p));
        let len = frame.len() as u64;
        let one = Looped {
            meta: *meta,
            frame: frame.into(),
            track: track.clone(),
        };
        let sent = self.inside.push(now, one);
        if sent == Sent::Yes {
            count(&dev.link.counters.tx_packets);
            dev.link.counters.tx_bytes.fetch_add(len, Relaxed);
            self.count_sent(v4, (len as usize).saturating_sub(super::wire::ETHERNET));
        }
        sent
    }

    /// Whether some wait that stay on this host.
    #[must_use]
    pub fn holds_inside(&self) -> bool {
        self.inside.due.get().is_some()
    }

    /// Takes a few packets in that stay on this host. Its caller holds no lock, and then looks at
    /// [`Ip::deadline`], as after a call that sends.
    pub fn pass_inside(&self, now: Instant, upper: &dyn Upper) {
        self.pass_some(now, TURN, upper);
    }

    pub(super) fn pass_some(&self, now: Instant, most: usize, upper: &dyn Upper) {
        let mut left = most;
        while left > 0 && self.inside.due.get().is_some() {
            // Whoever has it looks again when he has let go.
            let Some(passing) = self.inside.passing.try_lock() else {
                return;
            };
            self.inside.due.forget();
            let table = self.table();
            while left > 0
                && let Some(one) = self.inside.pop()
            {
                left -= 1;
                self.come_round(now, &table, one, upper);
            }
            if left == 0 {
                self.inside.due.at_latest(Some(now));
            }
            drop(passing);
        }
    }

    fn come_round(&self, now: Instant, table: &Table, one: Looped, upper: &dyn Upper) {
        self.link.looped(&one.meta, &one.frame);
        let Some(dev) = table.loopback() else { return };
        let at = Arrival {
            now,
            table,
            dev,
            meta: one.meta,
            cast: Cast::Unicast,
            from: [0; 6],
            upper,
            track: Some(&one.track),
        };
        self.receive_frame(&at, one.frame);
    }

    /// A packet that has come, before it is known whom it is for: through `prerouting`.
    pub(super) fn come(&self, at: &Arrival<'_>, mut d: Datagram) -> Option<Datagram> {
        d.track = at.track.cloned().unwrap_or_default();
        self.led(Hook::Prerouting, at, d)
    }

    /// A packet for this host: through `input`.
    pub(super) fn come_in(&self, at: &Arrival<'_>, d: Datagram) -> Option<Datagram> {
        self.led(Hook::Input, at, d)
    }

    fn led(&self, hook: Hook, at: &Arrival<'_>, mut d: Datagram) -> Option<Datagram> {
        let place = Place {
            now: at.now,
            table: at.table,
            input: Some(at.dev),
            output: None,
            owner: None,
        };
        let mut track = std::mem::take(&mut d.track);
        let whole = (&d.packet[..], d.packet.len());
        let outcome = self.hook(hook, whole, &place, &mut track);
        d.track = track;
        match outcome {
            Outcome::Accept(None) => Some(d),
            Outcome::Accept(Some(r)) => d.rewritten(&r, at.sum()),
            Outcome::Drop => None,
            Outcome::Reject(r) => {
                self.reject(at, &d, r);
                None
            }
        }
    }

    /// A packet for others: through `forward` and `postrouting`, and on by `dev`. `b` is the whole
    /// of it.
    pub(super) fn forward_by_rules(
        &self,
        at: &Arrival<'_>,
        d: &Datagram,
        (path, dev): (&Path, &Dev),
        mut b: Vec<u8>,
    ) -> Sent {
        let mut track = d.track.clone();
        let place = Place {
            now: at.now,
            table: at.table,
            input: Some(at.dev),
            output: Some(dev),
            owner: None,
        };
        for hook in [Hook::Forward, Hook::Postrouting] {
            match self.hook(hook, (&b, b.len()), &place, &mut track) {
                Outcome::Accept(None) => {}
                Outcome::Accept(Some(r)) if apply(&mut b, &r, at.sum()).is_some() => {}
                Outcome::Accept(Some(_)) | Outcome::Drop => return Sent::Full,
                Outcome::Reject(r) => {
                    self.reject(at, d, r);
                    return Sent::Yes;
                }
            }
        }
        if at.table.is_guarded(dev.index) && !self.may_leave((at.now, at.table), dev, &b, &track) {
            self.refuse(at, d, Cause::Prohibited);
            return Sent::Yes;
        }
        let mut head = Head::new();
        let (first, rest) = b.split_at(d.header.min(60));
        head.push(first);
        let sent = self.output(at.now, at.table, dev, path, &at.meta, &mut head, &[rest]);
        sent.unwrap_or(Sent::Full)
    }

    /// Whether what somebody else sent leaves by a guarded device: as this host's own, to who has
    /// begun to speak or where packets of this host may go.
    fn may_leave(
        &self,
        (now, table): (Instant, &Table),
        dev: &Dev,
        b: &[u8],
        track: &Meta,
    ) -> bool {
        let Ok((from, to)) = ends(b) else {
            return false;
        };
        // (Who sends an error says himself whom it is for.)
        let answers = || {
            let flow = track.track.flow().filter(|f| f.from_outside);
            let begun_by = flow.map(|f| f.original.from.0);
            let lately = flow.is_some_and(|f| f.has_spoken(now.0));
            let is_reply = track.track.direction() == Direction::Reply;
            is_reply && begun_by == Some(to) && lately && !self.link.denies(b)
        };
        table.is_own(from, dev) && (answers() || self.link.permits(b))
    }

    /// Tells the sender of a packet that rules refuse it.
    fn reject(&self, at: &Arrival<'_>, d: &Datagram, r: Reject) {
        match r {
            Reject::Unreachable(code) => self.refuse(at, d, Cause::Rejected(code)),
            Reject::Reset => self.reject_by_reset(at, d),
        }
    }

    /// By TCP's reset, as if it came from where the packet was to go. To who is behind a guarded
    /// device, nobody but this host speaks.
    fn reject_by_reset(&self, at: &Arrival<'_>, d: &Datagram) {
        if d.protocol != TCP || d.cast != Cast::Unicast {
            return;
        }
        let Some((pair, reset)) =
            reset_for(d.packet.slice(d.header..), (d.from, d.to), at.dev.index)
        else {
            return;
        };
        let is_own = at.table.is_own(d.to, at.dev);
        let Some(path) = self.path_back(at, d, is_own.then_some(d.to)) else {
            return;
        };
        if !is_own && at.table.is_guarded(path.index) {
            self.refuse(at, d, Cause::Port);
            return;
        }
        let own = if is_own {
            Locality::Local
        } else {
            Locality::Remote
        };
        // One that finds no room is asked for again.
        let _ = self.send_reset(at.now, &path, (pair, &reset), own, &d.track.track);
    }

    /// Tells a program of this host that rules refuse its packet.
    fn reject_own(&self, now: Instant, b: &[u8], r: Reject, track: &Track) {
        let Some((from, to, protocol, Some(at))) = parse(b) else {
            return;
        };
        let path = || self.path(from, Some(from), None).ok();
        let body = b.get(at..).unwrap_or_default();
        match r {
            Reject::Unreachable(code) => {
                if !is_icmp_error(protocol, from.is_ipv4(), body) {
                    let message = Cause::Rejected(code).message(from.is_ipv4(), 0);
                    let ends = (Some(from), from);
                    self.send_error(now, ends, path, 0, message, (b, track));
                }
            }
            Reject::Reset if protocol == TCP => {
                if let Some(path) = path()
                    && let Some((pair, reset)) =
                        reset_for(Bytes::copy_from_slice(body), (from, to), path.index)
                {
                    let _ = self.send_reset(now, &path, (pair, &reset), Locality::Remote, track);
                }
            }
            Reject::Reset => {}
        }
    }
}

/// The ends of what answers a segment, and the reset that does.
fn reset_for(
    body: Bytes,
    (from, to): (IpAddr, IpAddr),
    device: u32,
) -> Option<(Pair, tcp::Header)> {
    let read = segment::read(&body)?;
    let segment = Segment {
        header: read.header,
        payload: body.slice(read.len..),
        congestion: false,
        joined: 1,
        headers: Bytes::new(),
    };
    let pair = Pair {
        local: socket_addr(to, read.to, device),
        remote: socket_addr(from, read.from, device),
    };
    Some((pair, tcp::reset_for(&segment)?))
}

impl Arrival<'_> {
    /// Of what kind the checksums of transports are.
    fn sum(&self) -> Checksum {
        if self.meta.flags & FrameMeta::NEEDS_CSUM != 0 {
            Checksum::Partial
        } else {
            Checksum::Whole
        }
    }
}

impl Datagram {
    /// The same with other ends.
    fn rewritten(self, r: &Rewrite, sum: Checksum) -> Option<Datagram> {
        let mut b = self.packet.to_vec();
        apply(&mut b, r, sum)?;
        // The port that it is said to come from; of an echo its number is no port.
        let port = |b: &[u8]| b.get(self.header..self.header + 2).map(<[u8]>::to_vec);
        let other_port = port(&b) != port(&self.packet);
        let (from, to) = ends(&b).ok()?;
        Some(Datagram {
            renamed: self.renamed || from != self.from || other_port,
            from,
            to,
            packet: b.into(),
            ..self
        })
    }
}
