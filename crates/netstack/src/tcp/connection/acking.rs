//! When and what is acknowledged, and which window is offered (RFC 9293 3.8.6, RFC 2018, RFC 2883,
//! RFC 7323 2.3).

use super::{Connection, State};
use crate::counters::Mib;
use crate::tcp::receive_queue::Inserted;
use crate::tcp::segment::{Flags, Header, SackBlocks, Timestamps};
use crate::time::Instant;
use std::time::Duration;

/// How long an acknowledgement is put off.
pub(super) const DELAY: Duration = Duration::from_millis(40);
/// How many are not put off at a connection's start.
const QUICK: u32 = 16;

/// Segments that were joined to so much are acknowledged by their reader, as long as they are no
/// more than this.
const LARGE: u64 = 32 << 10;
const READERS_MOST: u64 = 512 << 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum AckDue {
    Nothing,
    Later,
    Now,
}

/// What is to be acknowledged.
pub(super) struct Acking {
    wanted: AckDue,
    /// The place that was acknowledged last.
    acknowledged: u64,
    /// The largest segment of the wire seen.
    frame: u64,
    /// How many acknowledgements go at once yet.
    quick: u32,
    /// Whether data goes back soon after data came: an acknowledgement rides on it.
    is_interactive: bool,
    /// A segment that was not full came since: its sender may wait for us before the next one.
    is_small: bool,
    duplicate: Option<(u64, u64)>,
    /// Places in the islands that changed last, the last one first.
    recent: [u64; 4],
}

impl Acking {
    pub fn new(_now: Instant) -> Acking {
        Acking {
            wanted: AckDue::Nothing,
            acknowledged: super::BASE + 1,
            frame: u64::from(super::DEFAULT_MSS),
            quick: QUICK,
            is_interactive: false,
            is_small: false,
            duplicate: None,
            recent: [0; 4],
        }
    }

    pub fn start(&mut self, mss: u64, window: u64) {
        self.frame = self.frame.min(mss);
        self.quick = ((window / (2 * mss)) as u32).clamp(2, QUICK);
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
    pub fn frame(&self) -> u64 {
        self.frame
    }
    pub fn is_due(&self) -> bool {
        self.wanted == AckDue::Now
    }
    /// One goes with the next transmission.
    pub fn now(&mut self) {
        self.wanted = AckDue::Now;
    }
    pub fn done(&mut self) {
        self.wanted = AckDue::Nothing;
    }
    /// The delay is over; true where something was put off.
    pub fn expire(&mut self) -> bool {
        let is_late = self.wanted == AckDue::Later;
        if is_late {
            self.wanted = AckDue::Now;
            self.is_interactive = false;
        }
        is_late
    }
    pub fn quicken(&mut self) {
        self.quick = QUICK;
        self.is_interactive = false;
        self.expire();
    }
    /// The next few go at once (Linux: tcp_enter_quickack_mode).
    pub fn quicken_by(&mut self, n: u32) {
        self.quick = self.quick.max(n);
        self.is_interactive = false;
    }
    /// All before `next` is acknowledged from outside of the usual course.
    pub fn offer(&mut self, next: u64) {
        self.acknowledged = next;
    }
    fn touch(&mut self, place: u64) {
        if let Some(i) = self.recent.iter().position(|&p| p == place) {
            self.recent[..=i].rotate_right(1);
        } else {
            self.recent.rotate_right(1);
            self.recent[0] = place;
        }
    }
}

/// The tuning of the receive buffer by what is read in a round trip (dynamic right-sizing; Linux:
/// tcp_rcv_space_adjust).
pub(super) struct Tuning {
    /// When the measured round began, and what was read by then.
    since: Instant,
    from: u64,
    /// The most that was read in a round.
    space: u64,
    /// The round trip as the receiver sees it.
    rtt: Option<Duration>,
    /// Without timestamps: when a window's worth began, and its end.
    window_since: Instant,
    window_end: u64,
}

impl Tuning {
    pub fn new(now: Instant) -> Tuning {
        Tuning {
            since: now,
            from: 0,
            space: 0,
            rtt: None,
            window_since: now,
            window_end: 0,
        }
    }
    pub fn start(&mut self, now: Instant, next: u64) {
        (self.since, self.from) = (now, next);
        (self.window_since, self.window_end) = (now, next);
    }
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
    pub fn space(&self) -> u64 {
        self.space
    }
}

impl Connection {
    /// A payload came: when is it acknowledged?
    pub(super) fn plan_ack(&mut self, now: Instant, went: Inserted, len: u64, joined: u16) {
        let frame = len.div_ceil(u64::from(joined.max(1)));
        self.acking.is_small |= frame < self.acking.frame;
        self.acking.frame = self.acking.frame.max(frame);
        if now.since(self.rcv.last) > self.rtt.base() {
            // After a silence the peer's window is small: it waits for each answer.
            self.acking.quick = self.acking.quick.max(QUICK);
            self.acking.is_interactive = false;
        }
        self.rcv.last = now;
        let is_put_off = self.is_readers(len, joined);
        let a = &mut self.acking;
        let at_once = match went {
            Inserted::InOrder { filled } => {
                let waiting = self.rcv.queue.next().saturating_sub(a.acknowledged);
                filled
                    || self.rcv.queue.has_early()
                    || (waiting > a.frame && !is_put_off)
                    || self.config.quick_ack
                    || (a.quick > 0 && !a.is_interactive)
            }
            Inserted::Early { left, .. } => {
                a.touch(left);
                true
            }
            Inserted::Duplicate | Inserted::Dropped => true,
        };
        self.acking.wanted =
            self.acking
                .wanted
                .max(if at_once { AckDue::Now } else { AckDue::Later });
        if !at_once && self.timers.delayed_ack.is_none() {
            self.timers.delayed_ack = Some(now + DELAY);
        }
    }

    /// Whether the reader acknowledges a segment when it has read: one for all that it took (Linux:
    /// __tcp_ack_snd_check, tcp_cleanup_rbuf). That is a large one that leaves less room than was
    /// offered last, and not too many of them.
    fn is_readers(&self, len: u64, joined: u16) -> bool {
        let (next, acknowledged) = (self.rcv.next(), self.acking.acknowledged);
        let room = self.target_edge().saturating_sub(next);
        joined >= 2
            && len >= LARGE
            && next.saturating_sub(acknowledged) < READERS_MOST
            && room < self.rcv.edge.saturating_sub(acknowledged)
    }

    /// Something came that had come: the next acknowledgement tells.
    pub(super) fn duplicate_came(&mut self, start: u64, end: u64) {
        if end > start
            && end
                <= self
                    .rcv
                    .queue
                    .next()
                    .max(self.rcv.queue.highest().unwrap_or(0))
        {
            self.acking.duplicate = Some((start.max(super::BASE + 1), end));
            self.counts.duplicates_came += 1;
            let is_old = start < self.rcv.queue.next();
            if is_old {
                self.note(Mib::ExtDelayedAckLost);
            }
            if self.agreed.sack && self.config.dsack {
                self.note(match is_old {
                    true => Mib::ExtDsackOldSent,
                    false => Mib::ExtDsackOfoSent,
                });
            }
        }
    }

    /// What goes soon acknowledges what came.
    pub(super) fn acknowledge_later(&mut self, now: Instant) {
        self.acking.wanted = self.acking.wanted.max(AckDue::Later);
        self.acking.is_interactive = true;
        self.timers.delayed_ack = Some(now + DELAY);
    }

    /// Data went out: an acknowledgement rides on what comes next, too (Linux:
    /// tcp_event_data_sent).
    pub(super) fn data_went(&mut self, now: Instant) {
        if self.counts.data_in > 0 && now.since(self.rcv.last) < DELAY {
            self.acking.is_interactive = true;
        }
    }

    /// The selective blocks that go now: what came twice, and the islands that changed last.
    pub(super) fn sack_blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if !self.agreed.sack || (self.acking.duplicate.is_none() && !self.rcv.queue.has_early()) {
            return blocks;
        }
        let most = if self.agreed.timestamps { 3 } else { 4 };
        let mut n = 0;
        let mut put = |(l, r): (u64, u64)| {
            let b = Some((self.rcv.seq(l), self.rcv.seq(r)));
            if n < most && !blocks[..n].contains(&b) {
                blocks[n] = b;
                n += 1;
            }
        };
        let told = self.acking.duplicate.filter(|_| self.config.dsack);
        if let Some(d) = told.filter(|d| d.0 < d.1) {
            put(d);
        }
        if self.rcv.queue.has_early() {
            self.acking
                .recent
                .iter()
                .filter_map(|&p| self.rcv.queue.island(p))
                .for_each(&mut put);
            self.rcv
                .queue
                .islands_after(self.rcv.queue.next())
                .take(most)
                .for_each(&mut put);
        }
        blocks
    }

    /// How many bytes [`Self::sack_blocks`] takes of a header.
    pub(super) fn sack_len(&self) -> u64 {
        match self.sack_blocks().iter().flatten().count() {
            0 => 0,
            n => 4 + 8 * n as u64,
        }
    }

    pub(super) fn timestamps(&self, now: Instant) -> Timestamps {
        Timestamps {
            value: self.stamp(now),
            echo: self.rcv.recent,
        }
    }

    /// The header of what goes now, with acknowledgement and window. It counts once
    /// [`Self::ack_went`] is told that it was sent.
    pub(super) fn header(&self, now: Instant, place: u64, flags: Flags) -> Header {
        let mut h = self.plain_ack();
        h.seq = self.snd.seq(place);
        h.flags = flags | Flags::ACK | self.told_marks();
        if self.agreed.timestamps {
            h.options.timestamps = Some(self.timestamps(now));
        }
        h.options.sack = self.sack_blocks();
        h
    }

    /// An acknowledgement without options.
    pub(super) fn plain_ack(&self) -> Header {
        Header {
            seq: self.snd.seq(self.snd.nxt),
            ack: self.rcv.seq(self.rcv.next()),
            flags: Flags::ACK,
            window: self.window_field(self.scale_now()).0,
            ..Header::default()
        }
    }

    /// A segment with this header left.
    pub(super) fn ack_went(&mut self) {
        self.rcv.edge = self.window_field(self.scale_now()).1;
        if self.acking.wanted != AckDue::Nothing {
            self.acking.quick = self.acking.quick.saturating_sub(1);
        }
        self.acking.wanted = AckDue::Nothing;
        self.acking.is_small = false;
        self.acking.acknowledged = self.rcv.next();
        self.acking.duplicate = None;
        self.timers.delayed_ack = None;
    }

    /// Up to where the buffer takes bytes.
    pub(super) fn target_edge(&self) -> u64 {
        let edge = self.rcv.queue.read_place() + self.config.receive_buffer as u64;
        match self.config.window_clamp {
            Some(c) => edge.min(self.rcv.next() + u64::from(c)),
            None => edge,
        }
    }

    /// The scale of a window that is offered now, but for a SYN's.
    fn scale_now(&self) -> u8 {
        match self.standing() {
            State::SynSent | State::SynReceived => 0,
            _ => self.rcv.scale,
        }
    }

    /// The window field, and the right edge that it offers: the old one, until it can go on by a
    /// segment or half the buffer (RFC 9293 3.8.6.2.2).
    pub(super) fn window_field(&self, scale: u8) -> (u16, u64) {
        let next = self.rcv.next();
        let least = self.mss().min(self.config.receive_buffer as u64 / 2).max(1);
        let old = self.rcv.edge.max(next);
        let mut target = self.target_edge();
        if self.rcv.fin_came || target < old + least {
            target = old;
        }
        let unit = 1u64 << scale;
        let most = u64::from(u16::MAX) << scale;
        let window = (target - next).min(most) / unit * unit;
        // Where that is less than what was offered, it is rounded up: an edge never goes back.
        let window = if next + window < old {
            (old - next).next_multiple_of(unit)
        } else {
            window
        };
        let field = u16::try_from(window >> scale).unwrap_or(u16::MAX);
        (field, old.max(next + (u64::from(field) << scale)))
    }

    /// The reader took something: is it worth telling?
    pub(super) fn was_read(&mut self) {
        if !self.is_synchronized() || self.rcv.fin_came {
            return;
        }
        let next = self.rcv.next();
        let now = self.rcv.edge.saturating_sub(next);
        let target = self.target_edge().saturating_sub(next);
        let least = self
            .acking
            .frame
            .min(self.config.receive_buffer as u64 / 2)
            .max(1);
        let opens = target >= 2 * now && target >= now + least;
        let waiting = next.saturating_sub(self.acking.acknowledged);
        // (Linux: tcp_cleanup_rbuf.)
        let is_all = self.rcv.queue.readable() == 0 && !self.acking.is_interactive;
        if opens
            || (self.acking.wanted == AckDue::Later
                && (waiting > self.acking.frame || (is_all && waiting > 0 && self.acking.is_small)))
        {
            self.acking.now();
        }
    }

    /// Data came: measures the round trip and what is read in one, and lets the buffer grow.
    pub(super) fn tune(&mut self, now: Instant, echo: Option<u32>) {
        if self.config.receive_buffer >= self.config.receive_most {
            return;
        }
        let next = self.rcv.next();
        let stamp = self.stamp(now);
        let edge = self.rcv.edge;
        let t = &mut self.rcv.tuning;
        let sample = match echo.filter(|&e| e != 0) {
            Some(e) => {
                let millis = stamp.wrapping_sub(e);
                (millis < 1 << 20).then(|| Duration::from_millis(u64::from(millis.max(1))))
            }
            None if next >= t.window_end => {
                let took = now.since(t.window_since);
                let is_first = t.window_end <= super::BASE + 1;
                (t.window_since, t.window_end) = (now, edge);
                (!is_first).then_some(took)
            }
            None => None,
        };
        if let Some(s) = sample {
            t.rtt = Some(t.rtt.map_or(s, |r| if s < r { s } else { (r * 7 + s) / 8 }));
        }
        let Some(rtt) = t.rtt else { return };
        if now.since(t.since) < rtt {
            return;
        }
        let read = self.rcv.queue.read_place();
        let copied = read.saturating_sub(t.from);
        (t.since, t.from) = (now, read);
        if copied <= t.space {
            return;
        }
        // Twice as much, for the sender may double its window meanwhile, and more where it grows.
        let growth = (copied - t.space).min(copied) * 2;
        t.space = copied;
        let want = 2 * copied + 16 * self.acking.frame + growth;
        let want = usize::try_from(want)
            .unwrap_or(usize::MAX)
            .min(self.config.receive_most);
        self.config.receive_buffer = self.config.receive_buffer.max(want);
    }
}
