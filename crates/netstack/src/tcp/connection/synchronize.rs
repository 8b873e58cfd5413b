//! The handshake (RFC 9293 3.5), from both sides and at once.

use super::{BASE, Changes, Connection, DEFAULT_MSS, Failure, LEAST_MSS, State};
use crate::counters::Mib;
use crate::tcp::congestion::Window;
use crate::tcp::segment::{Flags, Header, Segment};
use crate::time::Instant;

impl Connection {
    /// What the peer's SYN says.
    pub(super) fn take_syn(&mut self, now: Instant, syn: &Header) {
        let o = &syn.options;
        self.rcv.irs = syn.seq;
        self.agreed.timestamps = self.config.timestamps && o.timestamps.is_some();
        self.agreed.sack = self.config.sack && o.sack_permitted;
        self.agreed.scaling = self.config.window_scaling && o.window_scale.is_some();
        if !self.agreed.scaling {
            self.rcv.scale = 0;
        }
        self.snd.scale = if self.agreed.scaling {
            o.window_scale.unwrap_or(0).min(14)
        } else {
            0
        };
        self.take_syn_marks(syn);
        if let Some(t) = o.timestamps {
            (self.rcv.recent, self.rcv.recent_at) = (t.value, now);
        }
        self.snd.peer_mss = o
            .mss
            .filter(|&m| m > 0)
            .unwrap_or(DEFAULT_MSS)
            .max(LEAST_MSS);
        // The window of a SYN is never scaled.
        self.snd.window = u64::from(syn.window);
        self.snd.most_window = self.snd.window;
        self.snd.window_from = BASE;
        self.window = Window::new(self.config.congestion, self.mss());
        self.acking
            .start(self.mss(), self.config.receive_buffer as u64);
    }

    pub(super) fn in_syn_sent(&mut self, now: Instant, segment: &Segment) -> Changes {
        let h = &segment.header;
        let has_ack = h.flags.contains(Flags::ACK);
        let is_of_ours = (BASE + 1..=self.snd.nxt).contains(&self.snd.place(h.ack));
        let is_strange = self.is_strange(now, h);
        if has_ack && is_of_ours && is_strange {
            self.note(Mib::ExtPawsActive);
        }
        if has_ack && (!is_of_ours || is_strange) {
            if !h.flags.contains(Flags::RST) {
                self.due.reset = super::super::reset_for(segment);
            }
            return Changes::empty();
        }
        if h.flags.contains(Flags::RST) {
            return if has_ack {
                self.end(Some(Failure::Refused))
            } else {
                Changes::empty()
            };
        }
        if !h.flags.contains(Flags::SYN) {
            return Changes::empty();
        }
        self.take_syn(now, h);
        if !has_ack {
            // Both ends open at once.
            self.state = State::SynReceived;
            self.due.syn = true;
            return Changes::empty();
        }
        let mut changes = self.established(now, h);
        self.acknowledge_answer(now);
        changes |= self.answer_came(now, segment);
        changes
    }

    /// Whether it echoes a time that no SYN of ours had.
    fn is_strange(&self, now: Instant, h: &Header) -> bool {
        let echo = h.options.timestamps.map_or(0, |t| t.echo);
        let since = |at: Instant| echo.wrapping_sub(self.stamp(at)) as i32;
        self.config.timestamps && echo != 0 && (since(self.counts.began) < 0 || since(now) > 0)
    }

    /// The peer has acknowledged our SYN.
    pub(super) fn established(&mut self, now: Instant, h: &Header) -> Changes {
        if self.state == State::SynSent {
            self.note(Mib::ExtDelivered);
        }
        if self.counts.syn_retransmits == 0
            && let Some(at) = self.timers.syn_sent
        {
            self.rtt.sample(now.since(at), now);
        } else {
            self.rtt.recovered();
            if self.counts.syn_retransmits > 1 {
                // The path loses (RFC 5681 3.1).
                self.window.cwnd = self.mss();
            }
        }
        self.state = State::Established;
        self.snd.una = BASE + 1;
        self.snd.nxt = self.snd.nxt.max(BASE + 1);
        if self.snd.fin {
            self.state = State::FinWait1;
        }
        if !h.flags.contains(Flags::SYN) {
            self.snd.window = u64::from(h.window) << self.snd.scale;
        }
        self.snd.window_from = self.rcv.place(h.seq);
        self.snd.most_window = self.snd.most_window.max(self.snd.window);
        self.timers.syn = None;
        self.timers.syn_sent = None;
        self.due.syn = false;
        self.recovery.start(self.snd.una);
        self.rcv.tuning.start(now, self.rcv.next());
        self.counts.last_ack = now;
        // (tcp_finish_connect)
        (self.snd.last, self.rcv.last) = (now, now);
        self.touch(now);
        self.set_keep_alive(now);
        Changes::ESTABLISHED | Changes::WRITABLE
    }
}
