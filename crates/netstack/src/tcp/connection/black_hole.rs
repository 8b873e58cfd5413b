//! Paths on which large segments vanish and nobody tells (RFC 4821 7.7; Linux: tcp_mtu_probing of
//! 1).
//!
//! Where time-outs follow each other and what is out is large, segments become smaller. Once these
//! arrive, a single segment of the old size asks whether it was the size: if it arrives, all was an
//! outage, and the old size is back; else it is asked again after ten minutes.

use super::{Connection, Emitted, Output, Phase};
use crate::time::Instant;
use std::time::Duration;

/// How many time-outs follow each other.
const TIMEOUTS: u32 = 3;
/// The smaller sizes, without options (Linux: tcp_base_mss, and half of it).
const SIZES: [u16; 2] = [1024, 512];
/// How many segments are to arrive before the old size is tried.
const ENOUGH: u64 = 10;
const AGAIN: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Default)]
pub(super) struct BlackHole {
    /// The size, where it is smaller than the path's is said to be.
    pub size: Option<u16>,
    /// When the old size may be tried, and up to where all is to have arrived before.
    try_at: Option<(Instant, u64)>,
    /// Where the segment lies that tries it.
    probe: Option<(u64, u64)>,
}

impl Connection {
    /// Another time-out, right after `timeouts` others.
    pub(super) fn suspect_black_hole(&mut self, now: Instant, timeouts: u32) {
        let now_is = self.black_hole.size.unwrap_or(self.config.mss);
        let Some(&smaller) = SIZES.iter().find(|&&s| s < now_is) else {
            return;
        };
        if timeouts < TIMEOUTS || self.snd.nxt - self.snd.una <= u64::from(smaller) {
            return;
        }
        let until = self.snd.una + ENOUGH * u64::from(smaller);
        self.set_mss(|c| {
            c.black_hole = BlackHole {
                size: Some(smaller),
                try_at: Some((now, until)),
                probe: None,
            };
        });
    }

    /// All before `una` has arrived.
    pub(super) fn answered_black_hole(&mut self) {
        if self
            .black_hole
            .probe
            .is_some_and(|(_, end)| self.snd.una >= end)
        {
            self.set_mss(|c| c.black_hole = BlackHole::default());
        }
    }

    /// This was sent again: where it is the large segment, that was lost.
    pub(super) fn resent_black_hole(&mut self, now: Instant, start: u64, end: u64) {
        if let Some((s, e)) = self.black_hole.probe
            && start < e
            && s < end
        {
            self.black_hole.probe = None;
            self.black_hole.try_at = Some((now + AGAIN, 0));
        }
    }

    /// Sends one segment of the old size, where it is time.
    pub(super) fn try_black_hole(&mut self, now: Instant, out: &mut dyn Output) -> Emitted {
        let Some((at, until)) = self.black_hole.try_at else {
            return Emitted::Sent;
        };
        if now < at || self.snd.una < until || self.recovery.phase != Phase::Open {
            return Emitted::Sent;
        }
        let smaller = self.black_hole.size.take();
        let len = self.mss_now();
        let (start, end) = (self.snd.nxt, self.snd.nxt + len);
        let fits = end < self.snd.buffer.end()
            && self.within_record(start, end) == end
            && end <= self.snd.edge()
            && self.in_flight() + len <= self.window.cwnd;
        let sent = if fits {
            self.emit_new(now, out, end)
        } else {
            Ok(())
        };
        self.black_hole.size = smaller;
        if sent.is_err() {
            return Emitted::Full;
        }
        if fits {
            self.black_hole.try_at = None;
            self.black_hole.probe = Some((start, end));
        }
        Emitted::Sent
    }
}
