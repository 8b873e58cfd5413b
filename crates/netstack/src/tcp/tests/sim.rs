//! Two ends, joined by a relay that loses, doubles, delays and reorders, in simulated time.

use crate::tcp::{
    Changes, Config, Connection, Emitted, Failure, Flags, Header, Output, Segment, Seq, State,
    Take, reset_for,
};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub const MS: Duration = Duration::from_millis(1);

/// The byte at a place of a stream.
pub fn byte(place: u64) -> u8 {
    (place ^ (place >> 8) ^ (place >> 15)) as u8
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }
    /// True `n` times of a thousand.
    pub fn happens(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }
}

/// One direction of the relay.
#[derive(Clone, Debug)]
pub struct Path {
    pub delay: Duration,
    /// At most so much more.
    pub jitter: Duration,
    /// Of a million.
    pub loss: u64,
    /// Of a thousand.
    pub twice: u64,
    /// Bytes a second, and how many wait at most; 0: no limit.
    pub rate: u64,
    pub queue: u64,
    /// Joins neighbours to one segment, as a device does.
    pub joins: bool,
    /// How often of a thousand the device is full.
    pub full: u64,
    /// After so many packets it takes only such payloads without options, and says so.
    pub narrows: Option<(u64, u16)>,
    pub packets: u64,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            delay: 10 * MS,
            jitter: Duration::ZERO,
            loss: 0,
            twice: 0,
            rate: 0,
            queue: 0,
            joins: false,
            full: 0,
            narrows: None,
            packets: 0,
        }
    }
}

pub struct Packet {
    pub header: Header,
    pub payload: Bytes,
}

/// What one end emitted in a call.
#[derive(Default)]
pub struct Sink {
    pub packets: Vec<Packet>,
    pub is_full: bool,
}

impl Output for Sink {
    fn emit(&mut self, header: &Header, payload: &[&[u8]], mss: u16) -> Emitted {
        if self.is_full {
            return Emitted::Full;
        }
        let all: Bytes = payload.concat().into();
        let mss = usize::from(mss.max(1));
        let n = all.len().div_ceil(mss).max(1);
        for i in 0..n {
            let mut header = *header;
            header.seq = header.seq.plus((i * mss) as u32);
            if i + 1 < n {
                header.flags -= Flags::FIN | Flags::PSH;
            }
            let payload = all.slice(i * mss..all.len().min((i + 1) * mss));
            self.packets.push(Packet { header, payload });
        }
        Emitted::Sent
    }
}

/// What an end's program does.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Bytes that it writes, and then closes its side.
    pub total: u64,
    /// It reads at most so much at once, each so often; 0: all at once.
    pub read: usize,
    pub pause: Duration,
    /// Closes all when so much has been read, or resets.
    pub close_after: Option<u64>,
    pub aborts: bool,
    /// Does not close its side.
    pub stays: bool,
}

pub struct End {
    pub c: Option<Connection>,
    pub program: Program,
    pub written: u64,
    pub read: u64,
    pub saw_fin: bool,
    pub ended: bool,
    pub failure: Option<Failure>,
    next_read: Instant,
    is_closed: bool,
    edge: Option<Seq>,
    scale: u8,
    pub send_memory: usize,
    pub receive_memory: usize,
    iss: Seq,
}

impl End {
    fn new(c: Option<Connection>, program: Program, iss: Seq) -> End {
        End {
            c,
            program,
            written: 0,
            read: 0,
            saw_fin: false,
            ended: false,
            failure: None,
            next_read: Instant(0),
            is_closed: false,
            edge: None,
            scale: 0,
            send_memory: 0,
            receive_memory: 0,
            iss,
        }
    }

    /// What the program does when something has changed.
    fn run(&mut self, now: Instant) {
        let Some(c) = &mut self.c else { return };
        let program = &self.program;
        let most = if program.read == 0 {
            usize::MAX
        } else {
            program.read
        };
        if now >= self.next_read && c.readable() > 0 {
            let mut left = most;
            let mut at = self.read;
            let n = c
                .read::<()>(Take::Out, |b| {
                    let n = b.len().min(left);
                    for &b in &b[..n] {
                        assert_eq!(b, byte(at), "at {at}");
                        at += 1;
                    }
                    left -= n;
                    Ok(n)
                })
                .unwrap();
            self.read += n as u64;
            self.next_read = now + program.pause;
        }
        if program.close_after.is_some_and(|n| self.read >= n) && !self.is_closed {
            self.is_closed = true;
            if program.aborts {
                c.abort();
            } else {
                c.close();
            }
            c.orphan(now);
        }
        if self.is_closed || c.state() == State::SynSent || c.state() == State::SynReceived {
            return;
        }
        let mut at = self.written;
        c.write::<()>(|to| {
            let n = to.len().min((program.total - at) as usize);
            for b in &mut to[..n] {
                *b = byte(at);
                at += 1;
            }
            Ok(n)
        })
        .unwrap();
        self.written = at;
        if self.written == program.total && !program.stays {
            c.close_write();
        }
    }

    fn changed(&mut self, changes: Changes) {
        self.saw_fin |= changes.contains(Changes::FIN);
        if changes.contains(Changes::ENDED) {
            self.ended = true;
            self.failure = self.c.as_mut().and_then(Connection::take_failure);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let c = self.c.as_ref()?;
        let reads = (c.readable() > 0).then_some(self.next_read);
        c.deadline().into_iter().chain(reads).min()
    }

    /// What holds of all that is emitted.
    fn check(&mut self, p: &Packet) {
        let h = &p.header;
        self.scale = self.c.as_ref().map_or(0, |c| c.info().receive_scale);
        if !h.flags.contains(Flags::ACK) || h.flags.contains(Flags::RST) {
            return;
        }
        let scale = if h.flags.contains(Flags::SYN) {
            0
        } else {
            self.scale
        };
        let edge = h.ack.plus(u32::from(h.window) << scale);
        if let Some(old) = self.edge {
            assert!(!edge.is_before(old), "the window shrinks: {old:?} {edge:?}");
        }
        self.edge = Some(edge);
        let mss = self.c.as_ref().map_or(0, |c| usize::from(c.config().mss));
        let options = if h.options.timestamps.is_some() {
            12
        } else {
            0
        };
        let blocks = h.options.sack.iter().flatten().count();
        let options = options + if blocks > 0 { 4 + 8 * blocks } else { 0 };
        assert!(h.flags.contains(Flags::SYN) || options <= 40);
        assert!(
            p.payload.len() + options <= mss.max(48),
            "{} {options} {mss}",
            p.payload.len()
        );
    }
}

/// Of a segment without SYN.
fn options_len(h: &Header) -> usize {
    let blocks = h.options.sack.iter().flatten().count();
    let sack = if blocks > 0 { 4 + 8 * blocks } else { 0 };
    sack + if h.options.timestamps.is_some() {
        12
    } else {
        0
    }
}

pub struct Sim {
    /// A packet was too long: its sender is to send again.
    too_long: bool,
    pub now: Instant,
    pub ends: [End; 2],
    pub paths: [Path; 2],
    pub random: Random,
    /// By arrival and number.
    flights: [BTreeMap<(Instant, u64), Packet>; 2],
    /// Until when the bottleneck is busy.
    busy: [Instant; 2],
    number: u64,
    accept: Option<Config>,
    pub steps: u64,
    /// Packets, by chance or for lack of a queue.
    pub lost: u64,
    trace: VecDeque<String>,
    traces: bool,
}

impl Sim {
    pub fn new(configs: [Config; 2], paths: [Path; 2], programs: [Program; 2], seed: u64) -> Sim {
        let mut random = Random(seed);
        let now = Instant(1_000_000_000 + random.below(1 << 40));
        let (a, b) = (Seq(random.next() as u32), Seq(random.next() as u32));
        let [client, server] = configs;
        let [pa, pb] = programs;
        Sim {
            now,
            ends: [
                End::new(Some(Connection::connect(client, a, now)), pa, a),
                End::new(None, pb, b),
            ],
            paths,
            random,
            flights: Default::default(),
            busy: [now; 2],
            number: 0,
            accept: Some(server),
            too_long: false,
            steps: 0,
            lost: 0,
            trace: VecDeque::new(),
            traces: std::env::var_os("NETSTACK_TRACE").is_some(),
        }
    }

    fn note(&mut self, s: impl FnOnce() -> String) {
        if !self.traces {
            return;
        }
        self.trace.push_back(s());
        if self.trace.len() > 400 {
            self.trace.pop_front();
        }
    }

    fn put(&mut self, from: usize, p: Packet) {
        let path = self.paths[from].clone();
        let at = self.now;
        self.note(|| {
            let len = p.payload.len();
            format!("{} {from} sends {:?} {len} bytes", at.0 / 1000, p.header)
        });
        if self.random.below(1_000_000) < path.loss {
            self.lost += 1;
            self.note(|| "lost".into());
            return;
        }
        self.paths[from].packets += 1;
        if let Some((after, mss)) = path.narrows
            && path.packets >= after
            && !p.payload.is_empty()
            && p.payload.len() + options_len(&p.header) > usize::from(mss)
        {
            self.note(|| "too long".into());
            if let Some(c) = &mut self.ends[from].c {
                c.path_mtu(mss);
            }
            self.too_long = true;
            return;
        }
        let copies = 1 + u64::from(self.random.happens(path.twice));
        for _ in 0..copies {
            let mut leaves = self.now;
            if path.rate > 0 {
                let len = p.payload.len() as u64 + 66;
                let waits = self.busy[from].since(self.now);
                let waiting = waits.as_nanos() as u64 * path.rate / 1_000_000_000;
                if waiting + len > path.queue {
                    self.note(|| "dropped by the queue".into());
                    self.lost += 1;
                    continue;
                }
                let took = Duration::from_nanos(len * 1_000_000_000 / path.rate);
                leaves = self.now + waits + took;
                self.busy[from] = leaves;
            }
            let more = self.random.below(path.jitter.as_nanos() as u64 + 1);
            let at = leaves + path.delay + Duration::from_nanos(more);
            self.number += 1;
            let p = Packet {
                header: p.header,
                payload: p.payload.clone(),
            };
            self.flights[from].insert((at, self.number), p);
        }
    }

    /// Lets an end's program run, and sends what it has.
    pub fn pump(&mut self, i: usize) {
        let now = self.now;
        self.ends[i].run(now);
        let full = self.random.happens(self.paths[i].full);
        let mut sink = Sink {
            is_full: full,
            ..Sink::default()
        };
        let end = &mut self.ends[i];
        if let Some(c) = &mut end.c {
            let _ = c.transmit(now, &mut sink);
            let info = c.info();
            end.send_memory = end.send_memory.max(info.send_memory);
            end.receive_memory = end.receive_memory.max(info.receive_memory);
        }
        sink.packets.iter().for_each(|p| self.ends[i].check(p));
        for p in sink.packets {
            self.put(i, p);
        }
        if std::mem::take(&mut self.too_long) {
            self.pump(i);
        }
    }

    fn arrive(&mut self, from: usize) {
        let to = 1 - from;
        let mut came: Vec<Segment> = Vec::new();
        while let Some(entry) = self.flights[from].first_entry()
            && entry.key().0 <= self.now
        {
            let p = entry.remove();
            let joins = self.paths[from].joins;
            if let Some(last) = came.last_mut()
                && joins
                && last.header.seq.plus(last.payload.len() as u32) == p.header.seq
                && last.header.flags == Flags::ACK
                && p.header.flags - Flags::PSH == Flags::ACK
                && p.header.ack == last.header.ack
                && p.header.options == last.header.options
                && !p.payload.is_empty()
                && last.payload.len() + p.payload.len() < 65_000
            {
                last.payload = [&last.payload[..], &p.payload[..]].concat().into();
                last.header.flags = p.header.flags;
                last.joined += 1;
                continue;
            }
            came.push(Segment {
                header: p.header,
                payload: p.payload,
                // Some of those that may be.
                congestion: p.header.can_be_marked && p.header.seq.0 % 7 == 3,
                joined: 1,
                ..Segment::default()
            });
        }
        for s in came {
            let now = self.now;
            let end = &mut self.ends[to];
            match &mut end.c {
                Some(c) => {
                    let changes = c.segment(now, s);
                    end.changed(changes);
                }
                None if s.header.flags.contains(Flags::SYN) && self.accept.is_some() => {
                    let config = self.accept.take().unwrap();
                    end.c = Some(Connection::accept(config, end.iss, now, &s));
                }
                None => {
                    if let Some(header) = reset_for(&s) {
                        self.put(
                            to,
                            Packet {
                                header,
                                payload: Bytes::new(),
                            },
                        );
                    }
                }
            }
        }
        self.pump(to);
    }

    /// One event. False where there is none.
    pub fn step(&mut self) -> bool {
        self.steps += 1;
        let arrivals = self
            .flights
            .iter()
            .filter_map(|f| f.first_key_value())
            .map(|(k, _)| k.0);
        let timers = self.ends.iter().filter_map(End::deadline);
        let Some(next) = arrivals.chain(timers).min() else {
            return false;
        };
        self.now = self.now.max(next);
        for from in 0..2 {
            if self.flights[from]
                .first_key_value()
                .is_some_and(|(k, _)| k.0 <= self.now)
            {
                self.arrive(from);
            }
        }
        for i in 0..2 {
            if self.ends[i].deadline().is_some_and(|d| d <= self.now) {
                let now = self.now;
                let end = &mut self.ends[i];
                if let Some(c) = &mut end.c
                    && c.deadline().is_some_and(|d| d <= now)
                {
                    let changes = c.timer(now);
                    end.changed(changes);
                }
                self.pump(i);
            }
        }
        true
    }

    /// Until nothing more happens, or `until` is true.
    pub fn run(&mut self, mut until: impl FnMut(&Sim) -> bool) {
        self.pump(0);
        let most = 3_000_000;
        while !until(self) {
            if !self.step() {
                return;
            }
            if self.steps > most {
                self.print();
                panic!("it goes on for ever");
            }
        }
    }

    /// What went before, where `NETSTACK_TRACE` is set.
    pub fn print(&self) {
        if !self.traces {
            return;
        }
        for t in &self.trace {
            eprintln!("{t}");
        }
        for e in &self.ends {
            eprintln!("{:?}", e.c.as_ref().map(Connection::info));
            eprintln!("written {} read {} {:?}", e.written, e.read, e.program);
        }
    }
}
