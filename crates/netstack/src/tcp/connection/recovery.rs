//! Losses and what is done about them: fast recovery with proportional rate reduction (RFC 6937),
//! recovery after a time-out, the probe of the tail (RFC 8985 7), and taking all of it back where
//! nothing was lost (Eifel: RFC 3522, 4015; duplicates: RFC 3708).

use super::Connection;
use super::ack::Progress;
use super::info::Phase;
use crate::counters::Mib;
use crate::tcp::rack::Context;
use crate::tcp::segment::Header;
use crate::time::Instant;
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    pub phase: Phase,
    /// It ends once all before here is acknowledged.
    high: u64,
    /// Proportional rate reduction: bytes delivered and sent since it began, and what was out then.
    delivered: u64,
    pub out: u64,
    from: u64,
    undo: Option<Undo>,
    pub tail: Option<Tail>,
    /// Of a peer without selective acknowledgements: how often it has repeated the last one, and
    /// how many bytes have arrived as these tell.
    repeated: u32,
    pub arrived: u64,
}

/// What there was before the window was reduced.
#[derive(Debug)]
struct Undo {
    cwnd: u64,
    ssthresh: u64,
    /// The timestamp of the first thing sent again, and how much was, less what was needless.
    stamp: Option<u32>,
    resent: u64,
    duplicates: u64,
    marker: u64,
}

/// A probe of the tail that is not answered yet.
#[derive(Debug)]
pub(super) struct Tail {
    pub high: u64,
    pub is_resent: bool,
}

impl Recovery {
    pub fn start(&mut self, una: u64) {
        // The first recovery may begin with the first byte.
        self.high = una - 1;
    }
}

impl Connection {
    /// The windows and the scoreboard after an acknowledgement.
    pub(super) fn after_ack(&mut self, now: Instant, h: &Header, progress: &Progress) {
        if let Some((left, right)) = progress.duplicate {
            self.took_duplicate(left, right);
        }
        self.answered_tail(progress);
        if self.may_undo(now) && self.is_spurious(h, progress) {
            self.undo(now);
        }
        self.end_phase();
        if self.is_told_full(h) && progress.was_out && self.recovery.phase == Phase::Open {
            // As for a loss, but that nothing is to be taken back.
            self.begin(Phase::Slowed);
            self.recovery.undo = None;
        }
        self.window.took(progress.rtt, self.snd.una, self.snd.nxt);
        let lost = if progress.delivered > 0 {
            self.detect_losses(now)
        } else {
            0
        };
        match self.recovery.phase {
            Phase::Recovery | Phase::Slowed => self.reduce_proportionally(progress, lost),
            Phase::Open | Phase::Loss => {
                let n = if self.rack.reordering_seen {
                    progress.delivered
                } else {
                    progress.acked
                };
                if n > 0 && self.is_window_used() {
                    let rtt = self.rtt.smooth().unwrap_or_default();
                    self.window.grow(n, now, rtt);
                }
            }
        }
    }

    /// Ends what is over. A window that a mark has made smaller is left with more than what was out
    /// then: the same mark may be told until there (Linux: `tcp_fastretrans_alert`).
    fn end_phase(&mut self) {
        let (una, high) = (self.snd.una, self.recovery.high);
        match self.recovery.phase {
            Phase::Slowed if una > high => self.window.cwnd = self.window.ssthresh,
            Phase::Recovery if una >= high => {
                self.window.cwnd = self.window.ssthresh;
                self.rack.recovered();
            }
            Phase::Loss if una >= high => self.rack.recovered(),
            _ => return,
        }
        self.recovery.phase = Phase::Open;
    }

    /// Whether a larger congestion window would have been used (RFC 7661; Linux:
    /// tcp_is_cwnd_limited).
    fn is_window_used(&self) -> bool {
        self.snd.is_limited
            || (self.window.is_slow_start() && self.window.cwnd < 2 * self.snd.most_flight)
    }

    /// Lets RACK look; a first loss begins a recovery. Tells how many bytes are lost.
    pub(super) fn detect_losses(&mut self, now: Instant) -> u64 {
        if !self.agreed.sack {
            // What arrived behind a hole is not known.
            return 0;
        }
        let context = Context {
            least_rtt: self.rtt.least(),
            smooth_rtt: self.rtt.smooth(),
            recovering: !self.recovery.phase.is_whole(),
            sacked: self.snd.board.sacked(),
            mss: self.mss(),
            repetitions: self.config.repetitions,
        };
        let (lost, again) = self.rack.detect(&mut self.snd.board, now, &context);
        self.timers.reorder = again;
        if lost > 0 && self.recovery.phase.is_whole() {
            self.begin_recovery();
        }
        self.counts.lost += lost;
        lost
    }

    /// [`Self::detect_losses`] without an acknowledgement: a recovery that begins so sends one
    /// segment, not all that the window took before.
    pub(super) fn detect_late_losses(&mut self, now: Instant) {
        let lost = self.detect_losses(now);
        if lost > 0 && self.recovery.phase == Phase::Recovery {
            self.reduce_proportionally(&Progress::default(), lost);
        }
    }

    /// A first loss. Where a mark has the window come down already, it does not come down twice,
    /// and that is not taken back (Linux: `tcp_enter_recovery`).
    fn begin_recovery(&mut self) {
        self.note(match self.agreed.sack {
            true => Mib::ExtSackRecovery,
            false => Mib::ExtRenoRecovery,
        });
        if self.recovery.phase != Phase::Slowed {
            self.begin(Phase::Recovery);
            return;
        }
        let r = &mut self.recovery;
        r.phase = Phase::Recovery;
        r.high = self.snd.nxt;
        r.undo = Some(Undo {
            cwnd: 0,
            ssthresh: 0,
            stamp: None,
            resent: 0,
            duplicates: 0,
            marker: self.snd.una,
        });
    }

    fn begin(&mut self, phase: Phase) {
        self.recovery = Recovery {
            phase,
            high: self.snd.nxt,
            delivered: 0,
            out: 0,
            from: (self.snd.nxt - self.snd.una).max(1),
            undo: Some(Undo {
                cwnd: self.window.cwnd,
                ssthresh: self.window.ssthresh,
                stamp: None,
                resent: 0,
                duplicates: 0,
                marker: self.snd.una,
            }),
            tail: None,
            repeated: self.recovery.repeated,
            arrived: self.recovery.arrived,
        };
        self.window.reduce();
        self.slowed();
    }

    /// Bytes that are believed to be in the network.
    pub(super) fn in_flight(&self) -> u64 {
        self.snd
            .board
            .flight()
            .saturating_sub(self.recovery.arrived)
    }

    /// Of a peer without selective acknowledgements: three that repeat the last one tell of a hole,
    /// and one that does not fill all tells of the next (RFC 6582).
    pub(super) fn count_repeated(&mut self, progress: &mut Progress, is_repeated: bool) {
        if self.agreed.sack {
            return;
        }
        let mss = self.mss();
        let r = &mut self.recovery;
        if progress.acked > 0 {
            r.repeated = 0;
            r.arrived = r.arrived.saturating_sub(progress.acked.saturating_sub(mss));
            if self.snd.una >= r.high {
                r.arrived = 0;
            } else if r.phase == Phase::Recovery {
                self.counts.lost += self.snd.board.lose_head(mss);
            }
        } else if is_repeated && !self.snd.board.is_empty() {
            r.repeated += 1;
            let n = mss.min(self.snd.board.flight().saturating_sub(r.arrived));
            r.arrived += n;
            progress.delivered += n;
            let begins = match r.phase {
                Phase::Open => self.snd.una > r.high,
                Phase::Slowed => true,
                Phase::Recovery | Phase::Loss => false,
            };
            if r.repeated >= self.config.repetitions && begins {
                self.begin_recovery();
                self.counts.lost += self.snd.board.lose_head(mss);
            }
        }
    }

    /// RFC 6937 3.1, with the bound that depends on progress (Linux: tcp_cwnd_reduction).
    fn reduce_proportionally(&mut self, progress: &Progress, lost: u64) {
        let (mss, pipe) = (self.mss(), self.in_flight());
        let target = self.window.ssthresh;
        let r = &mut self.recovery;
        r.delivered += progress.delivered;
        let owed = r.delivered.saturating_sub(r.out);
        let send = if pipe > target {
            let share = u128::from(r.delivered) * u128::from(target);
            (share.div_ceil(u128::from(r.from)) as u64).saturating_sub(r.out)
        } else {
            let slow_start = if progress.acked > 0 && lost == 0 {
                mss
            } else {
                0
            };
            (target - pipe).min(owed.max(progress.delivered) + slow_start)
        };
        // The first retransmission goes at once.
        let send = match r.phase {
            Phase::Recovery if r.out == 0 => send.max(mss),
            _ => send,
        };
        self.window.cwnd = (pipe + send).max(mss);
    }

    /// Something was sent again.
    pub(super) fn counted_resend(&mut self, now: Instant, bytes: u64) {
        let stamp = self.stamp(now);
        if let Some(u) = &mut self.recovery.undo {
            u.stamp.get_or_insert(stamp);
            u.resent += bytes;
        }
        self.recovery.out += bytes;
    }

    fn took_duplicate(&mut self, left: u64, right: u64) {
        self.counts.duplicates_told += 1;
        self.note(match left < self.snd.una {
            true => Mib::ExtDsackRecv,
            false => Mib::ExtDsackOfoRecv,
        });
        let nxt = self.snd.nxt;
        if let Some(u) = &mut self.recovery.undo
            && left >= u.marker
            && u.resent > 0
        {
            u.duplicates += right - left;
            self.rack.duplicate(self.snd.una, nxt);
        }
    }

    /// Whether what was sent again had arrived: the peer answers the first copy, or has got all of
    /// it twice.
    fn is_spurious(&self, h: &Header, progress: &Progress) -> bool {
        let Some(u) = &self.recovery.undo else {
            return false;
        };
        let echoes_first = progress.acked > 0
            && self.recovery.phase != Phase::Open
            && self.agreed.timestamps
            && h.options.timestamps.is_some_and(|t| {
                t.echo != 0 && u.stamp.is_some_and(|s| (t.echo.wrapping_sub(s) as i32) < 0)
            });
        echoes_first || (u.resent > 0 && u.duplicates >= u.resent)
    }

    /// It costs time in proportion to what is lost: not more often than once in a round trip, and
    /// not whenever a peer wishes that makes round trips short.
    fn may_undo(&self, now: Instant) -> bool {
        const GAP: Duration = Duration::from_millis(10);
        let gap = self.rtt.smooth().unwrap_or_default().max(GAP);
        let last = self.counts.undone_at;
        last.is_none_or(|at| now.since(at) >= gap)
    }

    fn undo(&mut self, now: Instant) {
        let Some(u) = self.recovery.undo.take() else {
            return;
        };
        self.note(match self.recovery.phase {
            Phase::Loss => Mib::ExtLossUndo,
            _ if u.resent > 0 && u.duplicates >= u.resent => Mib::ExtDsackUndo,
            _ if self.snd.una >= self.recovery.high => Mib::ExtFullUndo,
            _ => Mib::ExtPartialUndo,
        });
        self.counts.undone_at = Some(now);
        self.window.cwnd = self.window.cwnd.max(u.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(u.ssthresh);
        self.snd.board.unlose();
        self.recovery.phase = Phase::Open;
        self.rack.reordering_seen = true;
        self.counts.undone += 1;
        self.rearm(now);
    }

    /// The answer to a probe of the tail: was the probe what repaired a loss?
    fn answered_tail(&mut self, progress: &Progress) {
        let Some(t) = &self.recovery.tail else { return };
        if self.snd.una < t.high {
            return;
        }
        if !t.is_resent || progress.duplicate.is_some() {
            self.recovery.tail = None;
        } else if self.snd.una > t.high {
            self.recovery.tail = None;
            self.note(Mib::ExtLossProbeRecovery);
            if self.recovery.phase == Phase::Open {
                self.window.reduce();
                self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
            }
        } else if progress.acked == 0 && progress.sacked == 0 && progress.is_pure {
            self.recovery.tail = None;
        }
    }

    /// The retransmission timer has run out (RFC 6298 5, RFC 8985 6.3).
    pub(super) fn timed_out(&mut self, now: Instant) {
        if self.recovery.phase == Phase::Open || self.snd.una >= self.recovery.high {
            self.begin(Phase::Loss);
        }
        self.recovery.phase = Phase::Loss;
        self.recovery.high = self.snd.nxt;
        self.recovery.tail = None;
        if self.snd.board.is_reneged() {
            self.note(Mib::ExtSackReneging);
            self.snd.board.forget_sacks();
        }
        let before = self.snd.board.lost();
        self.recovery.arrived = 0;
        self.snd.board.lose_head(u64::MAX);
        // What was sent just now may be on its way.
        let recent = self.rtt.smooth().unwrap_or_default() + self.rtt.variance();
        while let Some((at, _)) = self.snd.board.oldest()
            && at + recent <= now
        {
            self.snd.board.lose_oldest();
        }
        self.counts.lost += self.snd.board.lost() - before;
        self.window.collapse();
        self.window.cwnd = self.snd.board.flight() + self.mss();
        self.timers.reorder = None;
        self.rtt.back_off();
    }
}
