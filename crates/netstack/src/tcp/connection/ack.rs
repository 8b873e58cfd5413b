//! What the peer says to have: acknowledgements, selective ones, duplicates, its window
//! (RFC 9293 3.10.7.4, RFC 2018, RFC 2883).

use super::{BASE, Changes, Connection, State};
use crate::counters::Mib;
use crate::tcp::scoreboard::Delivery;
use crate::tcp::segment::{Flags, Header, Segment};
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// What one acknowledgement has brought.
#[derive(Default)]
pub(super) struct Progress {
    /// Bytes that are acknowledged in order now.
    pub acked: u64,
    /// Bytes that arrived, as this acknowledgement tells for the first time.
    pub delivered: u64,
    /// The part of them that is acknowledged selectively.
    pub sacked: u64,
    /// What the peer got twice.
    pub duplicate: Option<(u64, u64)>,
    /// The earliest sent of what was sent once, in order and selectively.
    first: Option<Instant>,
    first_sacked: Option<Instant>,
    /// When the latest sent of what was sent again went.
    resent: Option<Instant>,
    /// The round trip that it gave.
    pub rtt: Option<Duration>,
    /// Whether it neither brought data nor moved the window.
    pub is_pure: bool,
    /// Whether something was not acknowledged when it came.
    pub was_out: bool,
}

/// RFC 2883 4: the first block tells of something that came twice where it is acknowledged, or lies
/// in the second block.
fn is_duplicate(blocks: &[Option<(u64, u64)>; 4], ack: u64) -> bool {
    let Some((left, right)) = blocks[0] else {
        return false;
    };
    left < ack || blocks[1].is_some_and(|(l, r)| l <= left && right <= r)
}

impl Connection {
    /// Takes the acknowledgement. None: the whole segment is dropped.
    pub(super) fn take_ack(&mut self, now: Instant, segment: &Segment) -> Option<Changes> {
        let h = &segment.header;
        let ack = self.snd.place(h.ack);
        if ack > self.snd.nxt || ack + self.snd.most_window.max(1) < self.snd.una {
            self.challenge(now);
            return None;
        }
        self.counts.last_ack = now;
        self.timers.probes = 0;
        let mut progress = Progress {
            was_out: !self.snd.board.is_empty(),
            ..Progress::default()
        };
        let window_moved = self.update_window(h, ack);
        progress.is_pure = segment.payload.is_empty() && !window_moved;
        self.take_deliveries(now, h, ack, &mut progress);
        progress.rtt = self.round_trip(now, h, &progress);
        if let Some(rtt) = progress.rtt {
            self.rtt.sample(rtt, now);
        }
        let is_repeated = ack == self.snd.una && progress.is_pure && !h.flags.contains(Flags::FIN);
        self.count_repeated(&mut progress, is_repeated);
        self.after_ack(now, h, &progress);
        if progress.delivered > 0 {
            let (una, nxt) = (self.snd.una, self.snd.nxt);
            self.counts.measure_rate(now, una, nxt);
        }
        let mut changes = Changes::empty();
        if progress.acked > 0 {
            self.answered_black_hole();
            self.timers.stalled = None;
            self.expand_send_buffer();
            changes |= self.acknowledged(now);
            if self.state == State::Closed {
                return Some(changes);
            }
        }
        if self.snd.board.is_empty() {
            self.timers.stop_retransmission();
        } else if progress.acked > 0 || progress.sacked > 0 {
            self.rearm(now);
        }
        Some(changes)
    }

    /// True where the window is another one.
    fn update_window(&mut self, h: &Header, ack: u64) -> bool {
        let from = self.rcv.place(h.seq);
        let window = u64::from(h.window) << self.snd.scale;
        let snd = &mut self.snd;
        let is_newer = ack > snd.una
            || (ack == snd.una
                && (from > snd.window_from
                    || (from == snd.window_from && (window > snd.window || window == 0))));
        if !is_newer {
            return false;
        }
        snd.window_from = from;
        let moved = window != snd.window;
        snd.window = window;
        snd.most_window = snd.most_window.max(window);
        moved
    }

    /// Puts what arrived to the scoreboard.
    pub(super) fn take_deliveries(
        &mut self,
        now: Instant,
        h: &Header,
        ack: u64,
        progress: &mut Progress,
    ) {
        let least = self.rtt.least();
        let echo = h
            .options
            .timestamps
            .filter(|_| self.agreed.timestamps)
            .map(|t| t.echo);
        let offset = self.config.timestamp_offset;
        let is_too_old = |at: Instant| {
            let stamp = (at.millis() as u32).wrapping_add(offset);
            echo.is_some_and(|e| (e.wrapping_sub(stamp) as i32) < 0)
        };
        let blocks = if self.agreed.sack {
            self.places(h)
        } else {
            [None; 4]
        };
        let has_duplicate = is_duplicate(&blocks, ack);
        let Connection { snd, rack, .. } = self;
        let mut take = |d: Delivery, first: &mut Option<Instant>, resent: &mut Option<Instant>| {
            rack.delivered(&d, now, least, is_too_old);
            if d.retransmitted {
                *resent = (*resent).max(Some(d.at));
            } else if first.is_none_or(|f| d.at < f) {
                *first = Some(d.at);
            }
            d.end - d.start
        };
        if ack > snd.una {
            let (first, resent) = (&mut progress.first, &mut progress.resent);
            snd.board
                .ack(ack, |d| progress.delivered += take(d, first, resent));
            progress.acked = ack - snd.una;
            snd.una = ack;
            snd.buffer.release(ack);
            let past = snd.records.partition_point(|r| r.end <= ack);
            snd.records.drain(..past);
            if snd.records.is_empty() {
                snd.records = VecDeque::new();
            }
        }
        for (i, (left, right)) in blocks.into_iter().flatten().enumerate() {
            if i == 0 && has_duplicate {
                progress.duplicate = Some((left, right));
                continue;
            }
            let (first, mut resent) = (&mut progress.first_sacked, None);
            let mut n = 0;
            snd.board
                .sack(left, right, |d| n += take(d, first, &mut resent));
            progress.sacked += n;
            progress.delivered += n;
        }
        self.counts.delivered += progress.delivered;
        let segments = progress.delivered.div_ceil(self.mss());
        self.counts.tally.add(Mib::ExtDelivered, segments);
    }

    /// The selective blocks as places; those that make no sense are left out.
    fn places(&self, h: &Header) -> [Option<(u64, u64)>; 4] {
        h.options.sack.map(|block| {
            let (left, right) = block?;
            let (left, right) = (self.snd.place(left), self.snd.place(right));
            (left > BASE && left < right && right <= self.snd.nxt).then_some((left, right))
        })
    }

    /// The round trip that an acknowledgement tells of (RFC 6298 3: Karn's rule).
    fn round_trip(&self, now: Instant, h: &Header, progress: &Progress) -> Option<Duration> {
        let of_ack = progress.first.filter(|_| progress.resent.is_none());
        if let Some(at) = of_ack.or(progress.first_sacked) {
            return Some(now.since(at));
        }
        if progress.acked > 0
            && self.agreed.timestamps
            && let Some(t) = h.options.timestamps.filter(|t| t.echo != 0)
        {
            // A peer answers a copy of what it had with the first one's timestamp: where the last
            // copy may be what is answered, this tells nothing (or each lost acknowledgement would
            // double the time-out).
            let is_ambiguous = progress.resent.is_some_and(|at| {
                let is_first = (t.echo.wrapping_sub(self.stamp(at)) as i32) < 0;
                is_first && self.rtt.least().is_none_or(|l| now.since(at) >= l)
            });
            let millis = self.stamp(now).wrapping_sub(t.echo);
            if millis < 1 << 24 && !is_ambiguous {
                return Some(Duration::from_millis(u64::from(millis.max(1))));
            }
        }
        None
    }

    /// The send buffer follows the congestion window (Linux: tcp_sndbuf_expand).
    fn expand_send_buffer(&mut self) {
        let want = usize::try_from(self.window.cwnd * 2).unwrap_or(usize::MAX);
        let c = &mut self.config;
        c.send_buffer = c.send_buffer.max(want.min(c.send_most));
    }

    /// The peer has more: its state follows where it has our FIN.
    fn acknowledged(&mut self, now: Instant) -> Changes {
        if !self.snd.fin || self.snd.una != self.snd.limit() {
            if self.snd.buffer.len() == 0 && self.snd.buffer.has_spare() {
                self.timers.trim = Some(now + super::timers::TRIM);
            }
            return Changes::empty();
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.snd.buffer.trim();
                if self.is_orphan {
                    return self.await_fin(now);
                }
                Changes::empty()
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.end(None),
            _ => Changes::empty(),
        }
    }

    /// FIN_WAIT2 of an orphan lasts only so long.
    pub(super) fn await_fin(&mut self, now: Instant) -> Changes {
        let wait = self.config.linger2.unwrap_or(super::timers::FIN_WAIT2);
        if wait.is_zero() {
            self.note(Mib::ExtAbortOnLinger);
            self.reset_peer();
            return self.end(None);
        }
        self.note(Mib::ExtTw);
        self.timers.life = Some(now + wait);
        Changes::empty()
    }
}
