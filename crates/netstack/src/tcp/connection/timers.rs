//! What happens without segments: time-outs, probes, delayed acknowledgements, keep-alive, the end
//! of what waits too long.

use super::{Changes, Connection, Failure, State};
use crate::counters::Mib;
use crate::tcp::rtt;
use crate::time::Instant;
use std::time::Duration;

/// How long an orphan waits for the peer's FIN (net.ipv4.tcp_fin_timeout).
pub(super) const FIN_WAIT2: Duration = Duration::from_secs(60);
/// After which silence empty buffers are given back.
pub(super) const TRIM: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Retransmission.
    Timeout,
    /// The probe of the tail, before a time-out.
    Tail,
    /// The probe of a closed window.
    Window,
}

/// When each of them is due.
#[derive(Debug, Default)]
pub(super) struct Timers {
    pub retransmit: Option<(Kind, Instant)>,
    /// RACK looks again.
    pub reorder: Option<Instant>,
    pub delayed_ack: Option<Instant>,
    pub keep_alive: Option<Instant>,
    /// The end of FIN_WAIT2 or TIME_WAIT.
    pub life: Option<Instant>,
    pub cork: Option<Instant>,
    pub retry: Option<Instant>,
    pub syn: Option<Instant>,
    pub trim: Option<Instant>,
    /// When the SYN went last.
    pub syn_sent: Option<Instant>,
    /// Since when nothing new is acknowledged, or the window is closed.
    pub stalled: Option<Instant>,
    /// Probes of a closed window, and of a quiet peer, without an answer.
    pub probes: u32,
    pub quiet_probes: u32,
    /// How often the wait for a closed window was doubled.
    pub window_probes: u32,
}

impl Timers {
    pub fn stop_retransmission(&mut self) {
        self.retransmit = None;
        self.reorder = None;
        self.stalled = None;
    }
}

impl Connection {
    /// When [`Self::timer`] is to be called next.
    pub fn deadline(&self) -> Option<Instant> {
        let t = &self.timers;
        let all = [
            t.retransmit.map(|(_, at)| at),
            t.reorder,
            t.delayed_ack,
            t.keep_alive,
            t.life,
            t.cork,
            t.retry,
            t.syn,
            t.trim,
        ];
        all.into_iter().flatten().min()
    }

    /// To be called at or after [`Self::deadline`], and [`Self::transmit`] after it.
    pub fn timer(&mut self, now: Instant) -> Changes {
        self.clock = now;
        let is_over = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        is_over(&mut self.timers.retry);
        if is_over(&mut self.timers.trim) && self.snd.buffer.len() == 0 {
            self.snd.buffer.trim();
        }
        if is_over(&mut self.timers.delayed_ack) && self.acking.expire() {
            self.note(Mib::ExtDelayedAcks);
        }
        if is_over(&mut self.timers.cork) {
            self.snd.pushed = self.snd.buffer.end();
            self.send_partial();
        }
        if is_over(&mut self.timers.reorder) {
            self.detect_late_losses(now);
        }
        if is_over(&mut self.timers.life) {
            return self.end(None);
        }
        if is_over(&mut self.timers.syn) {
            return self.syn_timed_out(now);
        }
        if is_over(&mut self.timers.keep_alive) {
            let changes = self.kept_alive(now);
            if !changes.is_empty() {
                return changes;
            }
        }
        match self.timers.retransmit.take_if(|(_, at)| *at <= now) {
            Some((Kind::Tail, _)) => {
                self.due.tail = true;
                self.arm_timeout(now);
                Changes::empty()
            }
            Some((Kind::Timeout, _)) => self.retransmission_timed_out(now),
            Some((Kind::Window, _)) => self.window_probe(now),
            None => Changes::empty(),
        }
    }

    fn syn_timed_out(&mut self, now: Instant) -> Changes {
        let (sent, elapsed) = (self.counts.syn_retransmits, now.since(self.counts.began));
        let is_client = self.state == State::SynSent;
        let patience = self.config.user_timeout;
        if is_client {
            // The first ones go each second; it takes no longer for them (`tcp_write_timeout`).
            self.note(Mib::ExtTimeouts);
            let (retries, linear) = (self.config.syn_retries, self.config.syn_linear);
            let most = patience.unwrap_or_else(|| rtt::model(retries.into(), rtt::INITIAL));
            let many = u32::from(retries) + u32::from(linear);
            if sent >= many || sent > 0 && elapsed >= most {
                return self.give_up();
            }
            if sent >= u32::from(linear) {
                self.rtt.back_off();
            }
        } else {
            self.note(Mib::ExtTimeouts);
            // (`tcp_fastopen_synack_timer`)
            let more = u32::from(self.opening.began_early);
            let retries = u32::from(self.config.answer_retries) + more;
            if sent >= retries || patience.is_some_and(|t| elapsed >= t) {
                if self.opening.began_early {
                    self.note(Mib::TcpAttemptFails);
                    self.note(Mib::ExtAbortOnTimeout);
                }
                return self.end(Some(self.soft.unwrap_or(Failure::TimedOut)));
            }
            self.rtt.back_off();
        }
        self.note(Mib::TcpRetransSegs);
        self.note(Mib::ExtSynRetrans);
        self.counts.syn_retransmits += 1;
        self.counts.resent += 1;
        let mut wait = self.rtt.timeout();
        if let Some(most) = patience.filter(|_| is_client) {
            // (`tcp_clamp_rto_to_user_timeout`)
            wait = wait.min(most.saturating_sub(elapsed).max(Duration::from_millis(1)));
        }
        self.timers.syn = Some(now + wait);
        self.due.syn = true;
        Changes::empty()
    }

    fn retransmission_timed_out(&mut self, now: Instant) -> Changes {
        if self.snd.board.is_empty() {
            return Changes::empty();
        }
        // A peer that has taken its window back, but answers, is only slow.
        let answers = now.since(self.counts.last_ack) < rtt::CAP && !self.is_orphan;
        if self.snd.window == 0 && answers {
            self.timers.stalled = None;
        }
        let since = *self.timers.stalled.get_or_insert(now);
        let retries = if self.is_orphan {
            self.config.orphan_retries.min(self.config.retries)
        } else {
            self.config.retries
        };
        let retries = u32::from(retries);
        self.note(Mib::ExtTimeouts);
        if self.is_given_up(now, since, rtt::model_from_floor(retries)) {
            return self.give_up();
        }
        self.counts.timeouts += 1;
        let before = self.rtt.backoff();
        self.timed_out(now);
        self.suspect_black_hole(now, before + 1);
        self.arm_timeout(now);
        Changes::empty()
    }

    /// Whether what is unanswered since then is so for too long.
    fn is_given_up(&self, now: Instant, since: Instant, most: Duration) -> bool {
        let most = self.config.user_timeout.unwrap_or(most);
        now.since(since) >= most
    }

    fn give_up(&mut self) -> Changes {
        self.note(Mib::ExtAbortOnTimeout);
        self.end(Some(self.soft.unwrap_or(Failure::TimedOut)))
    }

    fn window_probe(&mut self, now: Instant) -> Changes {
        if self.snd.nxt >= self.snd.limit() {
            return Changes::empty();
        }
        let since = *self.timers.stalled.get_or_insert(now);
        let retries = u32::from(if self.is_orphan {
            self.config.orphan_retries
        } else {
            self.config.retries
        });
        let is_late = match self.config.user_timeout {
            Some(t) => now.since(since) >= t,
            None => self.timers.probes > retries,
        };
        if is_late {
            return self.give_up();
        }
        self.timers.probes += 1;
        self.timers.window_probes += 1;
        self.due.sliver = true;
        Changes::empty()
    }

    /// A window is closed: it is asked for, less often with time.
    pub(super) fn arm_window_probe(&mut self, now: Instant) {
        if !matches!(self.timers.retransmit, Some((Kind::Window, _))) {
            let wait = rtt::doubled(self.rtt.base(), self.timers.window_probes);
            self.timers.retransmit = Some((Kind::Window, now + self.bounded(now, wait)));
        }
    }

    /// Not longer than TCP_USER_TIMEOUT has left.
    fn bounded(&self, now: Instant, wait: Duration) -> Duration {
        match (self.config.user_timeout, self.timers.stalled) {
            (Some(most), Some(since)) => {
                let left = most.saturating_sub(now.since(since));
                wait.min(left.max(Duration::from_millis(1)))
            }
            _ => wait,
        }
    }

    /// The retransmission timer from now on.
    pub(super) fn arm_timeout(&mut self, now: Instant) {
        let wait = self.bounded(now, self.rtt.timeout());
        self.timers.retransmit = Some((Kind::Timeout, now + wait));
    }

    /// The retransmission timer, or before it the probe of the tail (RFC 8985 7.2).
    pub(super) fn rearm(&mut self, now: Instant) {
        self.timers.window_probes = 0;
        if self.snd.board.is_empty() || self.state == State::SynReceived {
            self.timers.retransmit = None;
            return;
        }
        self.arm_timeout(now);
        let may_probe = self.agreed.sack
            && self.config.tail_probes
            && self.recovery.phase.is_whole()
            && self.recovery.tail.is_none()
            && self.snd.board.lost() == 0;
        if let (true, Some(rtt)) = (may_probe, self.rtt.smooth()) {
            let is_one = self.snd.board.flight() <= self.mss();
            let slack = Duration::from_millis(if is_one { 200 } else { 2 });
            // Never later than the time-out, which follows it then.
            let wait = (2 * rtt + slack).min(self.bounded(now, self.rtt.timeout()));
            self.timers.retransmit = Some((Kind::Tail, now + wait));
        }
    }

    /// The peer was heard of.
    pub(super) fn touch(&mut self, now: Instant) {
        self.counts.last_heard = now;
        self.timers.quiet_probes = 0;
    }

    pub(super) fn set_keep_alive(&mut self, now: Instant) {
        let is_on = self.is_synchronized() && self.state != State::TimeWait;
        self.timers.quiet_probes = 0;
        let k = self.config.keep_alive;
        let probe = (self.counts.last_heard + k.idle).max(now);
        self.timers.keep_alive = (is_on && k.is_on).then_some(probe);
    }

    /// The keep-alive timer is over; it is not moved by each segment.
    fn kept_alive(&mut self, now: Instant) -> Changes {
        let k = self.config.keep_alive;
        if !k.is_on {
            return Changes::empty();
        }
        let silence = now.since(self.counts.last_heard);
        // Where something is outstanding, that finds a dead peer.
        if !self.snd.board.is_empty() || self.snd.nxt < self.snd.limit() {
            self.timers.keep_alive = Some(now + k.idle);
            return Changes::empty();
        }
        if silence < k.idle {
            self.timers.keep_alive = Some(self.counts.last_heard + k.idle);
            return Changes::empty();
        }
        let sent = self.timers.quiet_probes;
        let is_dead = match self.config.user_timeout {
            Some(t) => silence >= t && sent > 0,
            None => sent >= k.count,
        };
        if is_dead {
            self.reset_peer();
            return self.give_up();
        }
        self.timers.quiet_probes += 1;
        self.note(Mib::ExtKeepAlive);
        self.due.probe = true;
        self.timers.keep_alive = Some(now + k.interval.max(Duration::from_millis(1)));
        Changes::empty()
    }
}
