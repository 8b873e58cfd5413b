//! All that is sent: the SYN, what was lost, new bytes, probes, acknowledgements, resets.

use super::info::{Doing, Phase};
use super::timers::Kind;
use super::{BASE, Changes, Connection, Emitted, Output, Record, State};
use crate::counters::Mib;
use crate::tcp::segment::{Flags, Header};
use crate::time::Instant;
use std::time::Duration;

/// When it is tried again after a device took no more.
const RETRY: Duration = Duration::from_millis(1);
/// A corked segment waits at least so long (Linux probes the peer's window then, with it).
const CORK: Duration = Duration::from_millis(200);

/// A device takes no more.
pub(super) struct Full;
pub(super) type Went = Result<(), Full>;

impl Connection {
    /// Emits all that may go now. To be called after each of the other operations. What has gone
    /// may let more be written.
    #[must_use]
    pub fn transmit(&mut self, now: Instant, out: &mut dyn Output) -> Changes {
        self.clock = now;
        self.timers.retry = self.transmit_all(now, out).err().map(|Full| now + RETRY);
        let is_writable = self.is_writable();
        match std::mem::replace(&mut self.was_writable, is_writable) {
            false if is_writable => Changes::WRITABLE,
            _ => Changes::empty(),
        }
    }

    fn transmit_all(&mut self, now: Instant, out: &mut dyn Output) -> Went {
        if let Some(mut h) = self.due.reset {
            if let Some(t) = &mut h.options.timestamps {
                t.value = self.stamp(now);
            }
            self.emit(out, &h)?;
            self.note(Mib::TcpOutRsts);
            self.due.reset = None;
        }
        if self.state == State::Closed {
            return Ok(());
        }
        if self.due.syn {
            self.send_syn(now, out)?;
        }
        if self.is_synchronized() || self.is_open_early() {
            self.resend_lost(now, out)?;
            self.send_tail(now, out)?;
            self.send_new(now, out)?;
            self.send_sliver(now, out)?;
            self.set_idle_timers(now);
        }
        if self.acking.is_due() && self.state != State::SynSent {
            let h = self.header(now, self.snd.nxt, Flags::empty());
            self.emit(out, &h)?;
            self.ack_went();
        }
        Ok(())
    }

    /// Emits a segment without data.
    fn emit(&mut self, out: &mut dyn Output, h: &Header) -> Went {
        match out.emit(h, &[], 0) {
            Emitted::Sent => {
                self.counts.segments_out += 1;
                self.note(Mib::TcpOutSegs);
                Ok(())
            }
            Emitted::Full => Err(Full),
        }
    }

    fn send_syn(&mut self, now: Instant, out: &mut dyn Output) -> Went {
        let is_answer = self.state == State::SynReceived;
        let mut h = self.plain_ack();
        h.seq = self.snd.iss;
        h.flags = Flags::SYN;
        if is_answer {
            h.flags |= Flags::ACK;
        } else {
            h.ack = crate::tcp::Seq(0);
        }
        h.flags |= self.syn_marks();
        h.window = self.window_field(0).0;
        h.options = self.syn_options(now);
        let is_first = self.snd.nxt == BASE;
        let data = if is_first {
            self.snd.buffer.len() as u64
        } else {
            0
        };
        let emitted = self
            .snd
            .buffer
            .slices(BASE + 1, BASE + 1 + data, |s| out.emit(&h, s, u16::MAX));
        if emitted == Emitted::Full {
            return Err(Full);
        }
        self.counts.segments_out += 1;
        // (An answer counts whenever it goes: `tcp_make_synack`.)
        if is_first || is_answer {
            self.note(Mib::TcpOutSegs);
        }
        self.ack_went();
        self.due.syn = false;
        self.opening.option = None;
        if data > 0 {
            self.syn_data_went(now, data);
        }
        self.snd.nxt = self.snd.nxt.max(BASE + 1);
        self.timers.syn_sent = Some(now);
        if self.timers.syn.is_none() {
            self.timers.syn = Some(now + self.rtt.timeout());
        }
        Ok(())
    }

    /// The most bytes of a piece.
    fn most_piece(&self, mss: u64) -> u64 {
        // Not more than half of the largest window (Linux: tcp_xmit_size_goal).
        let half = self.snd.most_window / 2;
        (u64::from(self.config.gso_max).min(half) / mss).max(1) * mss
    }

    /// What a segment takes now, beside selective acknowledgements.
    pub(super) fn mss_now(&self) -> u64 {
        self.mss().saturating_sub(self.sack_len()).max(8)
    }

    /// Emits a range of the stream; its last place may be the FIN.
    fn emit_range(&mut self, now: Instant, out: &mut dyn Output, start: u64, end: u64) -> Went {
        let last = self.snd.buffer.end();
        let mut flags = Flags::empty();
        let is_new = start >= self.snd.nxt && start < last;
        // Several that go at once are told apart from what follows, so that the peer need not wait
        // for more of them (Linux: __tcp_transmit_skb). What goes again mostly goes one by one.
        let are_many = is_new && end.min(last) > start + self.mss_now();
        let ends_record = self
            .snd
            .records
            .binary_search(&Record {
                end,
                ends_write: true,
            })
            .is_ok();
        if are_many || ends_record || end >= last && start < last && self.snd.pushed == last {
            flags |= Flags::PSH;
        }
        if end > last {
            flags |= Flags::FIN;
        }
        let mut h = self.header(now, start, flags);
        if let Some(u) = self
            .snd
            .urgent
            .filter(|&u| u > start && u - start <= u64::from(u16::MAX))
        {
            h.flags |= Flags::URG;
            h.urgent = (u - start) as u16;
        }
        if is_new {
            self.mark_new(&mut h);
        }
        let mss = self.mss_now();
        let emitted = self
            .snd
            .buffer
            .slices(start, end.min(last), |s| out.emit(&h, s, mss as u16));
        if emitted == Emitted::Full {
            return Err(Full);
        }
        // (An end goes with the last bytes.)
        let data = end.min(last).saturating_sub(start);
        let segments = data.div_ceil(mss).max(1);
        self.counts.segments_out += segments;
        if start >= self.snd.nxt {
            self.counts.tally.add(Mib::TcpOutSegs, segments);
            self.counts.tally.add(Mib::ExtOrigDataSent, segments);
        }
        if is_new {
            self.new_went();
        }
        // (An end alone is no data: tcp_event_data_sent.)
        if data > 0 {
            self.counts.data_out += segments;
            self.counts.bytes_out += data;
            self.data_went(now);
            self.snd.last = now;
        }
        self.ack_went();
        Ok(())
    }

    /// Sends again what is lost, as far as the congestion window permits.
    fn resend_lost(&mut self, now: Instant, out: &mut dyn Output) -> Went {
        let mss = self.mss_now();
        let most = self.most_piece(mss);
        loop {
            let flight = self.in_flight();
            let room = self.window.cwnd.saturating_sub(flight);
            if room == 0 && flight > 0 {
                break;
            }
            // Whole segments, as far as there is room.
            let whole = (room / mss).max(1) * mss;
            let Some((start, end)) = self.snd.board.first_lost(most.min(whole)) else {
                break;
            };
            let end = self.within_record(start, end);
            if start >= self.snd.edge() && start != self.snd.una {
                break;
            }
            if room < end - start && flight > 0 {
                break;
            }
            self.emit_range(now, out, start, end)?;
            // (What a time-out itself sends counts as neither.)
            let by_ack = match self.recovery.phase {
                Phase::Loss => (self.recovery.out > 0).then_some(Mib::ExtSlowStartRetrans),
                _ => Some(Mib::ExtFastRetrans),
            };
            if let Some(mib) = by_ack {
                self.counts.tally.add(mib, (end - start).div_ceil(mss));
            }
            self.resent(now, start, end);
        }
        Ok(())
    }

    fn resent(&mut self, now: Instant, start: u64, end: u64) {
        self.snd.board.resend(start, end, now);
        self.resent_black_hole(now, start, end);
        self.counted_resend(now, end - start);
        self.counts.bytes_resent += end - start;
        let segments = (end - start).div_ceil(self.mss());
        self.counts.resent += segments;
        self.counts.tally.add(Mib::TcpRetransSegs, segments);
        if self.timers.retransmit.is_none() {
            self.rearm(now);
        }
    }

    /// The probe of the tail: new bytes where there are some, else the last ones again.
    fn send_tail(&mut self, now: Instant, out: &mut dyn Output) -> Went {
        if !self.due.tail {
            return Ok(());
        }
        let mss = self.mss_now();
        let snd = &self.snd;
        let end = self.within_record(snd.nxt, snd.buffer.end().min(snd.nxt + mss));
        if end > snd.nxt && end <= snd.edge() {
            self.emit_new(now, out, end)?;
            self.set_tail(false);
        } else if let Some((start, end)) = self.snd.board.tail(mss) {
            let start = self.start_of_record(start, end);
            self.emit_range(now, out, start, end)?;
            self.resent(now, start, end);
            self.set_tail(true);
        }
        self.due.tail = false;
        self.arm_timeout(now);
        Ok(())
    }

    fn set_tail(&mut self, is_resent: bool) {
        self.note(Mib::ExtLossProbes);
        let high = self.snd.nxt;
        self.recovery.tail = Some(super::recovery::Tail { high, is_resent });
    }

    pub(super) fn emit_new(&mut self, now: Instant, out: &mut dyn Output, end: u64) -> Went {
        let start = self.snd.nxt;
        self.emit_range(now, out, start, end)?;
        if !(end.min(self.snd.buffer.end()) - start).is_multiple_of(self.mss_now()) {
            self.snd.small_end = end;
        }
        self.snd.board.send(start, end, now);
        self.snd.nxt = end;
        self.recovery.out += end - start;
        if !matches!(self.timers.retransmit, Some((Kind::Timeout, _))) || self.due.tail {
            self.rearm(now);
        }
        Ok(())
    }

    fn send_new(&mut self, now: Instant, out: &mut dyn Output) -> Went {
        self.restart_after_idle(now);
        if self.try_black_hole(now, out) == Emitted::Full {
            return Err(Full);
        }
        let (mut is_limited, mut awaits_window) = (false, false);
        while self.snd.nxt < self.snd.limit() && !self.snd.board.is_full() {
            let end = match self.next_end(now) {
                Ok(end) => end,
                Err(SendBlock::Congestion) => {
                    is_limited = true;
                    break;
                }
                Err(block) => {
                    awaits_window = block == SendBlock::Window;
                    break;
                }
            };
            self.emit_new(now, out, end)?;
        }
        self.due_is_over();
        let doing = match self.snd.buffer.len() {
            0 => Doing::Nothing,
            _ if awaits_window => Doing::AwaitsWindow,
            _ => Doing::Sends,
        };
        self.counts.busy.set(now, doing);
        let snd = &mut self.snd;
        let flight = snd.board.flight();
        // What the window was used for is measured by rounds (Linux: tcp_cwnd_validate).
        if is_limited || flight >= snd.most_flight || snd.una >= snd.usage_until {
            snd.is_limited = is_limited;
            snd.most_flight = flight;
            snd.usage_until = snd.nxt;
        }
        Ok(())
    }

    fn due_is_over(&mut self) {
        if self.snd.nxt == self.snd.limit() {
            self.due.partial = false;
            self.timers.cork = None;
        }
    }

    /// Up to where the next piece goes.
    fn next_end(&mut self, now: Instant) -> Result<u64, SendBlock> {
        let mss = self.mss_now();
        let snd = &self.snd;
        let last = self.within_record(snd.nxt, snd.buffer.end());
        let available = last.saturating_sub(snd.nxt);
        if available == 0 {
            // The FIN alone: no window is asked.
            return Ok(snd.limit());
        }
        let flight = self.in_flight();
        let room = self.window.cwnd.saturating_sub(flight);
        let window = snd.edge().saturating_sub(snd.nxt);
        let most = match self.says_slowed() {
            true => mss,
            false => self
                .most_piece(mss)
                .min((self.most_burst() / mss).max(1) * mss),
        };
        let len = available.min(window).min(most);
        // Congestion windows count whole segments, but what is left may be shorter.
        let len = if flight == 0 {
            len.min(room.max(mss))
        } else {
            len.min(room)
        };
        if len < available {
            let whole = len / mss * mss;
            if whole == 0 {
                let by_window = window < mss.min(available) && window <= room;
                return Err(if by_window {
                    SendBlock::Window
                } else {
                    SendBlock::Congestion
                });
            }
            if self.is_worth_waiting(now, whole, most.min(available), window.min(room)) {
                return Err(SendBlock::Congestion);
            }
            return Ok(snd.nxt + whole);
        }
        let partial = len % mss;
        if partial != 0 && last == snd.buffer.end() && !self.may_send_partial() {
            if len > partial {
                return Ok(snd.nxt + len - partial);
            }
            if self.is_corked() && self.timers.cork.is_none() {
                self.timers.cork = Some(now + self.rtt.timeout().max(CORK));
            }
            return Err(SendBlock::Other);
        }
        Ok(snd.nxt + len + u64::from(snd.fin && snd.nxt + len == snd.buffer.end()))
    }

    /// Nagle's rule in Minshall's variant, and the cork.
    fn may_send_partial(&self) -> bool {
        // Nor do they hold back what is urgent (Linux: tcp_nagle_test).
        let is_urgent = self.snd.urgent.is_some_and(|u| u > self.snd.una);
        if self.snd.fin || self.due.partial || is_urgent {
            return true;
        }
        !self.is_corked() && (self.config.no_delay || self.snd.small_end <= self.snd.una)
    }

    pub(super) fn is_corked(&self) -> bool {
        self.config.cork || self.snd.holds
    }

    /// Whether acknowledgements that come soon let more go at once (Linux: tcp_tso_should_defer).
    fn is_worth_waiting(&self, now: Instant, len: u64, most: u64, room: u64) -> bool {
        if !self.recovery.phase.is_whole() || self.snd.board.flight() < 2 * len {
            return false;
        }
        // It must come soon: something goes on just now, and half a round trip is over.
        let half = self.rtt.smooth().unwrap_or_default() / 2;
        let is_soon = now.since(self.snd.last) <= Duration::from_millis(1)
            && self
                .snd
                .board
                .first_sent()
                .is_some_and(|at| now.since(at) >= half);
        if !is_soon {
            return false;
        }
        let share = match self.config.bursts.share {
            0 => 3 * self.mss() + 1,
            parts => self.window.cwnd.min(self.snd.window) / u64::from(parts),
        };
        len < most.min(share) && len <= room
    }

    /// The most of a piece, so that bursts are short: the bytes of a millisecond, and more on short
    /// paths, where bursts are short anyway (Linux: tcp_tso_autosize).
    fn most_burst(&self) -> u64 {
        const UNIT: u128 = Duration::from_micros(512).as_nanos();
        let (Some(smooth), Some(least)) = (self.rtt.smooth(), self.rtt.least()) else {
            return u64::MAX;
        };
        let cwnd = u128::from(self.window.cwnd);
        let bursts = self.config.bursts;
        let ahead = match self.window.is_slow_start() {
            true => bursts.slow_start,
            false => bursts.avoidance,
        };
        let millisecond = cwnd * u128::from(ahead) / 100 * 1_000_000 / smooth.as_nanos().max(1);
        let short = u64::from(self.config.gso_max)
            .checked_shr((least.as_nanos() / UNIT) as u32)
            .unwrap_or(0);
        let most = (millisecond as u64).saturating_add(short);
        most.max(u64::from(bursts.least) * self.mss())
    }

    fn restart_after_idle(&mut self, now: Instant) {
        if !self.config.slow_start_after_idle {
            return;
        }
        if self.snd.board.is_empty() && self.snd.nxt < self.snd.buffer.end() {
            let (idle, timeout) = (now.since(self.snd.last), self.rtt.base());
            if idle > timeout && self.snd.last != Instant(0) {
                self.window.restart(idle, timeout);
            }
        }
    }

    /// What a closed window gets: as much as it takes, or a question.
    fn send_sliver(&mut self, now: Instant, out: &mut dyn Output) -> Went {
        if self.due.sliver {
            let snd = &self.snd;
            let window = snd.edge().saturating_sub(snd.nxt).min(self.mss_now());
            let end = self.within_record(snd.nxt, snd.buffer.end().min(snd.nxt + window));
            if end > snd.nxt {
                self.emit_new(now, out, end)?;
            } else {
                self.note(Mib::ExtWinProbe);
                self.due.probe = true;
            }
            self.due.sliver = false;
        }
        if self.due.probe {
            let h = self.header(now, self.snd.una - 1, Flags::empty());
            self.emit(out, &h)?;
            self.ack_went();
            self.due.probe = false;
        }
        Ok(())
    }

    /// Timers of what waits without anything in flight.
    fn set_idle_timers(&mut self, now: Instant) {
        if self.state == State::SynReceived {
            // The answer to the SYN has one.
            return;
        }
        if !self.snd.board.is_empty() {
            if self.timers.retransmit.is_none() {
                self.rearm(now);
            }
            return;
        }
        if self.snd.nxt < self.snd.limit() && self.timers.cork.is_none() {
            self.arm_window_probe(now);
        } else {
            self.timers.stop_retransmission();
        }
    }
}

/// Why nothing goes.
#[derive(PartialEq, Eq)]
enum SendBlock {
    Congestion,
    /// The peer's.
    Window,
    /// A partial segment waits.
    Other,
}
