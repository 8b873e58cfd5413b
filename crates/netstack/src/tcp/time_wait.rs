//! What is left of a connection in TIME_WAIT (RFC 9293 3.6.1, RFC 6191; Linux:
//! tcp_timewait_state_process).

use super::segment::{Flags, Header, Segment, Seq, Timestamps};
use crate::time::Instant;
use std::time::Duration;

/// How long it lasts.
pub(super) const LENGTH: Duration = Duration::from_secs(60);
/// At most so often what asks for nothing is answered.
const GAP: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Clone, Debug)]
pub struct TimeWait {
    /// What it answers with; its acknowledgement is what is expected next.
    answer: Header,
    /// The last timestamp of the peer.
    recent: Option<u32>,
    deadline: Instant,
    answered: Option<Instant>,
}

/// What a segment does to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeWaitAnswer {
    Nothing,
    /// To be sent back.
    Acknowledge(Header),
    /// A new connection of the same addresses: it may be taken, with an initial sequence number of
    /// at least this, and this one forgotten.
    Recycle(Seq),
    /// It is over.
    Gone,
}

impl TimeWait {
    pub(super) fn new(answer: Header, recent: Option<u32>, deadline: Instant) -> TimeWait {
        TimeWait {
            answer,
            recent,
            deadline,
            answered: None,
        }
    }

    /// When it is over.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The peer's last timestamp: an outgoing connection of the same addresses may replace this one
    /// where it is known (Linux: tcp_tw_reuse), and begins after [`Self::next`].
    pub fn timestamp(&self) -> Option<u32> {
        self.recent
    }

    /// An initial sequence number that no segment of the old connection reaches.
    pub fn next(&self) -> Seq {
        self.answer.seq.plus(65_535 + 2)
    }

    /// Takes a segment. `stamp` is the clock of our timestamps.
    pub fn segment(&mut self, now: Instant, stamp: u32, segment: &Segment) -> TimeWaitAnswer {
        let h = &segment.header;
        let newer = match (self.recent, h.options.timestamps) {
            (Some(recent), Some(t)) => Some(t.value.wrapping_sub(recent) as i32),
            _ => None,
        };
        let is_old = newer.is_some_and(|n| n < 0);
        let expected = self.answer.ack;
        let is_next = h.seq == expected && segment.payload.is_empty();
        if !is_old && h.flags.contains(Flags::RST) && h.seq == expected {
            return TimeWaitAnswer::Gone;
        }
        let is_syn = h.flags & (Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN;
        if is_syn && !is_old && (h.seq.is_after(expected) || newer.is_some_and(|n| n > 0)) {
            return TimeWaitAnswer::Recycle(self.next());
        }
        if h.flags.contains(Flags::RST) {
            return TimeWaitAnswer::Nothing;
        }
        let asks =
            h.flags.intersects(Flags::SYN | Flags::FIN) || !segment.payload.is_empty() || is_old;
        if !is_old && h.flags.contains(Flags::FIN) {
            self.deadline = now + LENGTH;
        }
        if let (Some(recent), Some(t)) = (&mut self.recent, h.options.timestamps)
            && !is_old
            && is_next
        {
            *recent = t.value;
        }
        if (is_next && !asks) || self.answered.is_some_and(|at| now.since(at) < GAP) {
            return TimeWaitAnswer::Nothing;
        }
        self.answered = Some(now);
        let mut answer = self.answer;
        answer.options.timestamps = self.recent.map(|echo| Timestamps { value: stamp, echo });
        TimeWaitAnswer::Acknowledge(answer)
    }
}
