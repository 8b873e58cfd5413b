//! What a connection tells of itself (`struct tcp_info`).

use super::{Connection, State};
use crate::counters::Tally;
use crate::tcp::fast_open::Failed;
use crate::time::Instant;
use std::time::Duration;

/// Whether a loss is being repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    #[default]
    Open,
    /// Nothing is lost: the window comes down since a router has marked something.
    Slowed,
    /// Found by later segments that arrived.
    Recovery,
    /// Found by a time-out.
    Loss,
}

impl Phase {
    /// Whether nothing is believed to be lost.
    #[must_use]
    pub fn is_whole(self) -> bool {
        matches!(self, Phase::Open | Phase::Slowed)
    }
}

/// What a sender does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Doing {
    #[default]
    Nothing,
    /// Something is not acknowledged, or waits to be sent.
    Sends,
    /// The peer's window lets nothing go.
    AwaitsWindow,
}

/// For how long it did that (`tcp_chrono_set`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Busy {
    doing: Doing,
    since: Instant,
    sent: Duration,
    awaited: Duration,
}

impl Busy {
    pub(super) fn set(&mut self, now: Instant, doing: Doing) {
        if doing != self.doing {
            *self = Busy {
                doing,
                since: now,
                ..self.until(now)
            };
        }
    }

    fn until(&self, now: Instant) -> Busy {
        let (mut all, more) = (*self, now.since(self.since));
        match self.doing {
            Doing::Nothing => {}
            Doing::Sends => all.sent += more,
            Doing::AwaitsWindow => all.awaited += more,
        }
        all
    }

    /// How long something was to be sent or acknowledged, and how much of that the window let
    /// nothing go.
    #[must_use]
    pub fn times(&self, now: Instant) -> (Duration, Duration) {
        let all = self.until(now);
        (all.sent + all.awaited, all.awaited)
    }
}

/// What is only counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub began: Instant,
    pub last_ack: Instant,
    pub last_heard: Instant,
    /// When a segment out of the window was answered last.
    pub last_answer: Option<Instant>,
    pub syn_retransmits: u32,
    pub segments_in: u64,
    pub segments_out: u64,
    pub data_in: u64,
    pub data_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub bytes_resent: u64,
    pub resent: u64,
    pub delivered: u64,
    pub lost: u64,
    pub timeouts: u64,
    pub undone: u64,
    pub undone_at: Option<Instant>,
    rate: Rate,
    pub busy: Busy,
    pub duplicates_told: u64,
    pub duplicates_came: u64,
    pub early_came: u64,
    pub marks_in: u64,
    pub paws: u64,
    /// What the stack's counters are told.
    pub tally: Tally,
}

/// How fast bytes arrive, measured by round trips.
#[derive(Clone, Debug, Default)]
struct Rate {
    /// Bytes a second of the last round.
    last: u64,
    /// When the round began, what had arrived by then, and the place whose acknowledgement ends it.
    since: Instant,
    from: u64,
    until: u64,
}

impl Counts {
    /// An acknowledgement told of something that arrived.
    pub fn measure_rate(&mut self, now: Instant, una: u64, nxt: u64) {
        let (delivered, r) = (self.delivered, &mut self.rate);
        if una < r.until {
            return;
        }
        let took = now.since(r.since).as_micros() as u64;
        if r.until > 0 && took > 0 {
            r.last = (delivered - r.from).saturating_mul(1_000_000) / took;
        }
        (r.since, r.from, r.until) = (now, delivered, nxt);
    }

    pub fn new(now: Instant) -> Counts {
        Counts {
            began: now,
            last_ack: now,
            last_heard: now,
            ..Counts::default()
        }
    }
}

/// All numbers that `struct tcp_info` tells. Bytes, but where something else is said; packets are
/// bytes by `send_mss`.
#[derive(Clone, Debug)]
pub struct Info {
    pub state: State,
    pub phase: Phase,
    pub timestamps: bool,
    pub sack: bool,
    pub window_scaling: bool,
    /// Bytes went with our SYN and were acknowledged by its answer, or came with the peer's.
    pub syn_data: bool,
    /// Why none did.
    pub fast_open_failed: Option<Failed>,
    /// Explicit congestion notification is used; and the peer's packets can be marked.
    pub ecn: bool,
    pub ecn_seen: bool,
    pub send_scale: u8,
    pub receive_scale: u8,
    /// How often the time-out was doubled, and window and keep-alive probes without an answer.
    pub backoff: u32,
    pub probes: u32,
    pub timeout: Duration,
    pub delayed_ack: Duration,
    pub send_mss: u64,
    /// The largest segment that came.
    pub receive_mss: u64,
    pub advertised_mss: u16,
    /// Segments: sent and not acknowledged; of these acknowledged selectively, lost, sent again.
    pub unacked: u64,
    pub sacked: u64,
    pub lost: u64,
    pub retransmitted: u64,
    /// When it was last.
    pub last_data_sent: Instant,
    pub last_data_received: Instant,
    pub last_ack_received: Instant,
    /// Of the connection's start.
    pub began: Instant,
    pub rtt: Duration,
    pub rtt_variance: Duration,
    pub least_rtt: Duration,
    /// As the receiver sees it.
    pub receive_rtt: Duration,
    /// What the reader took in a round trip.
    pub receive_space: u64,
    /// `u64::MAX` where there is none yet.
    pub slow_start_threshold: u64,
    pub congestion_window: u64,
    pub reordering_seen: bool,
    /// How many segments may arrive before an earlier one.
    pub reordering: u32,
    pub send_window: u64,
    pub receive_window: u64,
    pub send_buffer: usize,
    pub receive_buffer: usize,
    /// What the queues hold in memory ([`Connection::memory`] is both).
    pub send_memory: usize,
    pub receive_memory: usize,
    pub unsent: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub bytes_retransmitted: u64,
    pub bytes_delivered: u64,
    /// Our SYN, or our answer to one, was acknowledged.
    pub syn_delivered: bool,
    /// How many arrived in a second, by the last round trip.
    pub delivery_rate: u64,
    /// How many may go in a second.
    pub pacing_rate: u64,
    pub busy: Busy,
    pub bytes_lost: u64,
    /// Segments.
    pub segments_in: u64,
    pub segments_out: u64,
    pub data_segments_in: u64,
    pub data_segments_out: u64,
    pub total_retransmitted: u64,
    pub out_of_order: u64,
    /// Duplicates that the peer told of, and that came.
    pub duplicates_told: u64,
    pub duplicates_received: u64,
    pub congestion_marks: u64,
    /// How often: a retransmission time-out, a recovery taken back, a segment refused as too old.
    pub timeouts: u64,
    pub undone: u64,
    pub too_old: u64,
}

impl Connection {
    /// Bytes a second: what the congestion window lets go in a round trip, and some more
    /// (`tcp_update_pacing_rate`). Nothing is held back for it.
    fn rate(&self) -> u64 {
        let w = &self.window;
        let share = match w.cwnd < w.ssthresh / 2 {
            true => self.config.bursts.slow_start,
            false => self.config.bursts.avoidance,
        };
        let out = w.cwnd.max(self.snd.nxt - self.snd.una);
        let micros = self.rtt.smooth().unwrap_or_default().as_micros().max(1);
        let rate = u128::from(out) * u128::from(share) * 10_000 / micros;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// All numbers that `struct tcp_info` tells.
    pub fn info(&self) -> Info {
        let (snd, rcv, c) = (&self.snd, &self.rcv, &self.counts);
        let mss = self.mss();
        let segments = |bytes: u64| bytes.div_ceil(mss);
        let is_whole = self.recovery.phase.is_whole();
        Info {
            state: self.state,
            phase: self.recovery.phase,
            timestamps: self.agreed.timestamps,
            sack: self.agreed.sack,
            window_scaling: self.agreed.scaling,
            syn_data: self.opening.syn_data,
            fast_open_failed: self.opening.failed,
            ecn: self.marks.is_on,
            ecn_seen: self.marks.is_seen(),
            send_scale: snd.scale,
            receive_scale: rcv.scale,
            backoff: self.rtt.backoff(),
            probes: self.timers.probes.max(self.timers.quiet_probes),
            timeout: self.rtt.timeout(),
            delayed_ack: super::acking::DELAY,
            send_mss: mss,
            receive_mss: self.acking.frame(),
            advertised_mss: self.config.mss,
            unacked: segments(snd.nxt - snd.una),
            sacked: segments(snd.board.sacked()),
            // What was lost and sent again is in both (Linux: lost_out, retrans_out).
            lost: segments(snd.board.lost() + if is_whole { 0 } else { snd.board.resent() }),
            retransmitted: segments(snd.board.resent()),
            last_data_sent: snd.last,
            last_data_received: rcv.last,
            last_ack_received: c.last_ack,
            began: c.began,
            rtt: self.rtt.smooth().unwrap_or_default(),
            rtt_variance: self.rtt.variance(),
            least_rtt: self.rtt.least().unwrap_or_default(),
            receive_rtt: rcv.tuning.rtt().unwrap_or_default(),
            receive_space: rcv.tuning.space(),
            slow_start_threshold: self.window.ssthresh,
            congestion_window: self.window.cwnd,
            reordering_seen: self.rack.reordering_seen,
            reordering: self.config.repetitions,
            send_window: snd.window,
            receive_window: rcv.edge.saturating_sub(rcv.next()),
            send_buffer: self.config.send_buffer,
            receive_buffer: self.config.receive_buffer,
            send_memory: snd.buffer.memory() + snd.board.memory(),
            receive_memory: rcv.queue.memory(),
            unsent: self.never_sent() as u64,
            bytes_acked: snd.una.saturating_sub(super::BASE + 1),
            bytes_received: c.bytes_in,
            bytes_sent: c.bytes_out,
            bytes_retransmitted: c.bytes_resent,
            bytes_delivered: c.delivered,
            // (Both are the beginning's until an acknowledgement has come.)
            syn_delivered: c.last_ack > c.began,
            delivery_rate: c.rate.last,
            pacing_rate: self.rate(),
            busy: c.busy,
            bytes_lost: c.lost,
            segments_in: c.segments_in,
            segments_out: c.segments_out,
            data_segments_in: c.data_in,
            data_segments_out: c.data_out,
            total_retransmitted: c.resent,
            out_of_order: c.early_came,
            duplicates_told: c.duplicates_told,
            duplicates_received: c.duplicates_came,
            congestion_marks: c.marks_in,
            timeouts: c.timeouts,
            undone: c.undone,
            too_old: c.paws,
        }
    }
}
