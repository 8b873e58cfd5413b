//! What the peer sends: bytes, their end, the urgent mark.

use super::{Changes, Connection, State, UrgentByte};
use crate::counters::Mib;
use crate::tcp::receive_queue::Inserted;
use crate::tcp::segment::{Flags, Header, Segment};
use crate::time::Instant;
use bytes::{Buf, Bytes};

/// The window's bytes for each early piece that is kept.
const BYTES_A_PIECE: usize = 512;
const LEAST_PIECES: usize = 64;

impl Connection {
    /// Takes payload and FIN of an acceptable segment that lies at `start`.
    pub(super) fn take_text(&mut self, now: Instant, segment: Segment, start: u64) -> Changes {
        let h = segment.header;
        let has_fin = h.flags.contains(Flags::FIN);
        let len = segment.payload.len() as u64;
        if len == 0 && !has_fin {
            return Changes::empty();
        }
        let end = start + len;
        if !matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        ) {
            // It has sent its FIN: this is a copy of something.
            self.acking.now();
            self.duplicate_came(start, end + u64::from(has_fin));
            if self.state == State::TimeWait {
                self.timers.life = Some(now + super::super::time_wait::LENGTH);
            }
            return Changes::empty();
        }
        if len > 0 && self.rcv.is_shut && end > self.rcv.next() {
            // RFC 2525 2.17: data that nobody will read.
            self.note(Mib::ExtAbortOnData);
            self.due.reset = super::super::reset_for(&segment);
            return self.end(None);
        }
        let mut changes = Changes::empty();
        if h.flags.contains(Flags::URG) {
            changes |= self.take_urgent(&h, start);
        }
        self.take_marks(&segment);
        self.counts.data_in += u64::from(segment.joined.max(1));
        let echo = h
            .options
            .timestamps
            .filter(|_| self.agreed.timestamps)
            .map(|t| t.echo);
        if has_fin && self.rcv.fin.is_none() && end <= self.rcv.edge && end >= self.rcv.queue.next()
        {
            self.rcv.fin = Some(end);
        }
        if len > 0 {
            changes |= self.take_payload(now, segment.payload, start, segment.joined);
        } else if self.rcv.fin != Some(self.rcv.queue.next()) {
            // The FIN came too early.
            self.acking.now();
        }
        if self.rcv.fin == Some(self.rcv.queue.next()) && !self.rcv.fin_came {
            changes |= self.fin_came(now);
        }
        self.tune(now, echo);
        changes
    }

    pub(super) fn take_payload(
        &mut self,
        now: Instant,
        mut payload: Bytes,
        start: u64,
        joined: u16,
    ) -> Changes {
        let len = payload.len() as u64;
        let end = start + len;
        let edge = self
            .rcv
            .fin
            .unwrap_or(u64::MAX)
            .min(self.rcv.edge.max(self.rcv.queue.next()));
        let next = self.rcv.queue.next();
        if start < next {
            self.duplicate_came(start, end.min(next));
        }
        // Below the window: had, above: not asked for.
        if end > edge {
            payload.truncate(edge.saturating_sub(start) as usize);
            self.acking.now();
        }
        if payload.is_empty() {
            return Changes::empty();
        }
        let cut = start.max(next).min(end);
        payload.advance(((cut - start) as usize).min(payload.len()));
        let most = (self.config.receive_buffer / BYTES_A_PIECE).max(LEAST_PIECES);
        let went = if payload.is_empty() {
            Inserted::Duplicate
        } else {
            self.rcv.queue.insert(cut, payload, most)
        };
        match went {
            Inserted::InOrder { .. } => self.counts.bytes_in += self.rcv.queue.next() - next,
            Inserted::Early { .. } => {
                self.counts.early_came += 1;
                self.note(Mib::ExtOfoQueue);
            }
            Inserted::Duplicate if start >= next => self.duplicate_came(start, end),
            Inserted::Duplicate => (),
            Inserted::Dropped => self.note(Mib::ExtOfoDrop),
        }
        self.plan_ack(now, went, len, joined);
        if self.rcv.queue.next() > next {
            self.take_urgent_byte();
            return Changes::READABLE;
        }
        Changes::empty()
    }

    /// All before the peer's FIN came.
    fn fin_came(&mut self, now: Instant) -> Changes {
        self.rcv.fin_came = true;
        self.rcv.edge = self.rcv.edge.max(self.rcv.next());
        self.acking.now();
        let mut changes = Changes::FIN | Changes::READABLE;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => changes |= self.enter_time_wait(now),
            _ => (),
        }
        changes
    }

    /// The urgent pointer is the place after the urgent byte, or, as all systems have it, the byte
    /// before (RFC 6093).
    fn take_urgent(&mut self, h: &Header, start: u64) -> Changes {
        let place = start + u64::from(h.urgent);
        // What came before it was told is not urgent any more (Linux: `tcp_check_urg`).
        let is_new = h.urgent > 0
            && place > self.rcv.queue.next()
            && self.rcv.urgent.is_none_or(|u| place > u);
        if !is_new {
            return Changes::empty();
        }
        let read = self.rcv.queue.read_place();
        let at_older = self.rcv.urgent == Some(read + 1) && read < self.rcv.queue.next();
        if at_older && !self.config.urgent_inline {
            // The reader stands before an older one, and would pass over it.
            self.rcv.queue.discard(1);
        }
        self.rcv.urgent = Some(place);
        self.rcv.urgent_byte = UrgentByte::NotYet;
        Changes::URGENT
    }

    /// Looks for the urgent byte where it has come.
    fn take_urgent_byte(&mut self) {
        let Some(u) = self.rcv.urgent else { return };
        let read = self.rcv.queue.read_place();
        let waits = self.rcv.urgent_byte == UrgentByte::NotYet;
        if !waits || self.rcv.queue.next() < u || u <= read {
            return;
        }
        let skip = (u - 1 - read) as usize;
        let mut byte = None;
        let _ = self.rcv.queue.peek::<()>(skip, 1, |b| {
            byte = b.first().copied();
            Ok(b.len())
        });
        self.rcv.urgent_byte = byte.map_or(UrgentByte::NotYet, UrgentByte::There);
    }
}
