//! What a segment does: whether it is acceptable at all, and then each of its parts in order
//! (RFC 9293 3.10.7.4, RFC 5961, RFC 7323 5.3; Linux: tcp_validate_incoming).

use super::{BASE, Changes, Connection, Failure, State};
use crate::counters::Mib;
use crate::tcp::segment::{Flags, Segment};
use crate::time::Instant;
use std::time::Duration;

/// How long a timestamp counts (RFC 7323 5.5).
const TIMESTAMP_AGE: Duration = Duration::from_secs(24 * 24 * 3600);

/// How a segment lies in the window.
struct Extent {
    start: u64,
    /// With SYN and FIN.
    end: u64,
}

impl Connection {
    /// Takes a segment of this connection. [`Self::transmit`] is to be called afterwards (after a
    /// batch of segments once is enough).
    pub fn segment(&mut self, now: Instant, segment: Segment) -> Changes {
        self.clock = now;
        // What was written since the last transmission may have filled the buffer.
        self.was_writable &= self.is_writable();
        self.let_go();
        self.counts.segments_in += u64::from(segment.joined.max(1));
        if segment.congestion {
            self.counts.marks_in += 1;
        }
        let mut changes = match self.state {
            State::Closed => {
                self.due.reset = super::super::reset_for(&segment);
                Changes::empty()
            }
            State::SynSent => self.in_syn_sent(now, &segment),
            _ => self.in_order(now, segment),
        };
        if !self.was_writable && self.is_writable() {
            self.was_writable = true;
            changes |= Changes::WRITABLE;
        }
        changes
    }

    fn in_order(&mut self, now: Instant, segment: Segment) -> Changes {
        let h = segment.header;
        let start = self.rcv.place(h.seq);
        let controls =
            u64::from(h.flags.contains(Flags::SYN)) + u64::from(h.flags.contains(Flags::FIN));
        let extent = Extent {
            start,
            end: start + segment.payload.len() as u64 + controls,
        };
        if !self.is_acceptable(now, &segment, &extent) {
            return Changes::empty();
        }
        if h.flags.contains(Flags::RST) {
            return self.reset_came(now, start);
        }
        if h.flags.contains(Flags::SYN) {
            if self.state == State::SynReceived && start == BASE {
                // The answer was lost. (Simultaneous: the peer's answer, which acknowledges.)
                if !h.flags.contains(Flags::ACK) {
                    self.due.syn = self.may_answer(now);
                    if self.due.syn {
                        self.note(Mib::TcpRetransSegs);
                        self.note(Mib::ExtSynRetrans);
                    }
                    return Changes::empty();
                }
            } else {
                self.note(Mib::ExtSynChallenge);
                self.challenge(now);
                return Changes::empty();
            }
        }
        if !h.flags.contains(Flags::ACK) {
            return Changes::empty();
        }
        let mut changes = Changes::empty();
        if self.state == State::SynReceived {
            if !(BASE + 1..=self.snd.nxt).contains(&self.snd.place(h.ack)) {
                self.due.reset = super::super::reset_for(&segment);
                return changes;
            }
            changes |= self.established(now, &h);
        }
        self.touch(now);
        self.update_recent(now, &segment, &extent);
        match self.take_ack(now, &segment) {
            Some(c) => changes |= c,
            None => return changes,
        }
        if self.state == State::Closed {
            return changes;
        }
        changes | self.take_text(now, segment, extent.start)
    }

    /// The order of Linux: PAWS, the window, and what is challenged.
    fn is_acceptable(&mut self, now: Instant, segment: &Segment, extent: &Extent) -> bool {
        let h = &segment.header;
        let is_reset = h.flags.contains(Flags::RST);
        // The SYN that was answered may come again.
        let is_again = self.state == State::SynReceived && h.flags.contains(Flags::SYN);
        if self.is_old(now, segment) && !is_reset && !is_again {
            self.counts.paws += 1;
            self.note(match h.flags.contains(Flags::SYN) {
                true => Mib::ExtSynChallenge,
                false => Mib::ExtPawsEstab,
            });
            self.answer(now, segment, Mib::ExtAckSkippedPaws);
            return false;
        }
        let next = self.rcv.next();
        // A SYN in SYN_RECEIVED lies before the window: it is the one that was answered.
        if self.state == State::SynReceived && h.flags.contains(Flags::SYN) && extent.start == BASE
        {
            return true;
        }
        let edge = self.rcv.edge.max(next);
        // What was already taken may come again with something new behind it.
        let is_in = extent.end >= self.acking.acknowledged() && extent.start <= edge;
        if !is_in && !is_reset {
            if h.flags.contains(Flags::SYN) {
                self.note(Mib::ExtSynChallenge);
                self.challenge(now);
            } else {
                self.duplicate_came(extent.start, extent.end);
                self.answer(now, segment, Mib::ExtAckSkippedSeq);
            }
        }
        is_in
    }

    /// Protection against wrapped sequence numbers (RFC 7323 5). As on Linux one tick is no matter
    /// (TCP_PAWS_WINDOW).
    fn is_old(&self, now: Instant, segment: &Segment) -> bool {
        let Some(t) = segment.header.options.timestamps else {
            return false;
        };
        self.agreed.timestamps
            && self.recent_distance(t.value) < -1
            && now.since(self.rcv.recent_at) < TIMESTAMP_AGE
    }

    fn recent_distance(&self, value: u32) -> i32 {
        value.wrapping_sub(self.rcv.recent) as i32
    }

    /// RFC 7323 4.3: the timestamp of the segment that the next acknowledgement answers.
    fn update_recent(&mut self, now: Instant, segment: &Segment, extent: &Extent) {
        if let Some(t) = segment.header.options.timestamps
            && self.agreed.timestamps
            && extent.start <= self.acking.acknowledged()
            && self.recent_distance(t.value) >= 0
        {
            (self.rcv.recent, self.rcv.recent_at) = (t.value, now);
        }
    }

    /// RFC 5961 3: only the next byte's place ends the connection.
    fn reset_came(&mut self, now: Instant, start: u64) -> Changes {
        let next = self.rcv.next();
        let exact = start == next || self.rcv.queue.highest().is_some_and(|h| h == start);
        if !exact {
            self.challenge(now);
            return Changes::empty();
        }
        if self.state == State::SynReceived && !self.opening.began_early {
            self.note(Mib::TcpAttemptFails);
            self.note(Mib::ExtEmbryonicRsts);
        }
        let failure = match self.state {
            State::SynReceived if !self.opening.began_early => Some(Failure::Refused),
            State::CloseWait => Some(Failure::Pipe),
            State::TimeWait | State::LastAck | State::Closing if self.is_orphan => None,
            State::TimeWait => None,
            _ => Some(Failure::Reset),
        };
        self.end(failure)
    }

    /// An answer that a blind attacker cannot use (RFC 5961): the peer, if it is that, corrects us.
    pub(super) fn challenge(&mut self, now: Instant) {
        if self.may_answer(now) {
            self.note(Mib::ExtChallengeAck);
            self.acking.now();
        } else {
            self.note(Mib::ExtAckSkippedChallenge);
        }
    }

    /// The answer to a segment out of the window. Without data they are limited: two ends that
    /// disagree would answer each other for ever.
    fn answer(&mut self, now: Instant, segment: &Segment, skipped: Mib) {
        let has_data = !segment.payload.is_empty() && !segment.header.flags.contains(Flags::SYN);
        if has_data || self.may_answer(now) {
            self.acking.now();
        } else {
            self.note(skipped);
        }
    }

    fn may_answer(&mut self, now: Instant) -> bool {
        const GAP: Duration = Duration::from_millis(500);
        let may = self
            .counts
            .last_answer
            .is_none_or(|at| now.since(at) >= GAP);
        if may {
            self.counts.last_answer = Some(now);
        }
        may
    }
}
