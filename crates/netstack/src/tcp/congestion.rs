//! The congestion window: CUBIC (RFC 9438) and Reno (RFC 5681), in bytes.

use super::config::Congestion;
use super::slow_start::SlowStart;
use crate::time::Instant;
use std::time::Duration;

/// RFC 6928: ten segments.
const INITIAL: u64 = 10;
/// CUBIC's constants.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub kind: Congestion,
    /// The congestion window and the slow-start threshold.
    pub cwnd: u64,
    pub ssthresh: u64,
    mss: u64,
    /// Bytes acknowledged that have not grown the window yet.
    credit: u64,
    cubic: Cubic,
    slow_start: SlowStart,
}

#[derive(Clone, Debug, Default)]
struct Cubic {
    /// The window before the last loss, in segments.
    max: f64,
    epoch: Option<Instant>,
    /// The time from the epoch until the window is `max` again, in seconds.
    k: f64,
    origin: f64,
    /// What Reno would have.
    reno: f64,
}

impl Window {
    pub fn new(kind: Congestion, mss: u64) -> Window {
        Window {
            kind,
            cwnd: INITIAL * mss,
            ssthresh: u64::MAX,
            mss,
            credit: 0,
            cubic: Cubic::default(),
            slow_start: SlowStart::default(),
        }
    }

    /// Segments have another size: the window has as many.
    pub fn set_mss(&mut self, mss: u64) {
        if mss != self.mss {
            self.cwnd = (self.cwnd / self.mss).max(1) * mss;
            if self.ssthresh != u64::MAX {
                self.ssthresh = (self.ssthresh / self.mss).max(2) * mss;
            }
            self.mss = mss;
        }
    }

    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// An acknowledgement came, with a round trip where it gave one. The first slow start may be
    /// over.
    pub fn took(&mut self, rtt: Option<Duration>, una: u64, nxt: u64) {
        if self.ssthresh == u64::MAX && self.slow_start.took(rtt, una, nxt) {
            self.ssthresh = self.cwnd;
        }
    }

    /// `acked` bytes arrived while the window was the limit.
    pub fn grow(&mut self, mut acked: u64, now: Instant, rtt: Duration) {
        if self.is_slow_start() {
            let n = acked.min(self.ssthresh - self.cwnd);
            self.cwnd += if self.ssthresh == u64::MAX {
                self.slow_start.growth(n)
            } else {
                n
            };
            acked -= n;
            if acked == 0 {
                return;
            }
        }
        let need = match self.kind {
            Congestion::Reno => self.cwnd,
            Congestion::Cubic => self.cubic_need(acked, now, rtt),
        };
        // One segment for each `need` bytes.
        self.credit += acked;
        if self.credit >= need {
            let n = self.credit / need;
            self.credit -= n * need;
            self.cwnd += (n * self.mss).min(acked.max(self.mss));
        }
    }

    /// How many bytes are acknowledged until the window grows by a segment.
    fn cubic_need(&mut self, acked: u64, now: Instant, rtt: Duration) -> u64 {
        let mss = self.mss as f64;
        let cwnd = self.cwnd as f64 / mss;
        let c = &mut self.cubic;
        let epoch = *c.epoch.get_or_insert_with(|| {
            c.k = if cwnd < c.max {
                ((c.max - cwnd) / C).cbrt()
            } else {
                0.0
            };
            c.origin = c.max.max(cwnd);
            c.reno = cwnd;
            now
        });
        let t = (now.since(epoch) + rtt).as_secs_f64();
        let cubic = c.origin + C * (t - c.k).powi(3);
        // RFC 9438 4.3: as fast as Reno with this beta would be on average.
        let alpha = if c.reno < c.max {
            3.0 * (1.0 - BETA) / (1.0 + BETA)
        } else {
            1.0
        };
        c.reno += alpha * (acked as f64 / mss) / cwnd;
        let target = cubic.max(c.reno).min(cwnd * 1.5);
        let need = if target > cwnd {
            cwnd / (target - cwnd)
        } else {
            100.0 * cwnd
        };
        ((need.max(2.0) * mss) as u64).max(1)
    }

    /// A loss: the threshold is what the window is to come down to. `flight` is what was out.
    pub fn reduce(&mut self) {
        let least = 2 * self.mss;
        match self.kind {
            Congestion::Reno => self.ssthresh = (self.cwnd / 2).max(least),
            Congestion::Cubic => {
                let cwnd = self.cwnd as f64 / self.mss as f64;
                // Fast convergence: there is less room than before.
                let c = &mut self.cubic;
                c.max = if cwnd < c.max {
                    cwnd * (1.0 + BETA) / 2.0
                } else {
                    cwnd
                };
                c.epoch = None;
                self.ssthresh = ((self.cwnd as f64 * BETA) as u64).max(least);
            }
        }
        self.credit = 0;
    }

    /// After a time-out: one segment at a time again.
    pub fn collapse(&mut self) {
        self.cwnd = self.mss;
        self.cubic.epoch = None;
        self.credit = 0;
    }

    /// Nothing was sent for `idle`: half as much for each time-out that passed (RFC 2861).
    pub fn restart(&mut self, idle: Duration, timeout: Duration) {
        let least = self.cwnd.min(INITIAL * self.mss);
        if self.ssthresh != u64::MAX || self.cwnd > least {
            self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        }
        let mut left = idle;
        while left > timeout && self.cwnd > least {
            self.cwnd = (self.cwnd / 2).max(least);
            left -= timeout;
        }
        self.cubic.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack_a_window(w: &mut Window, now: Instant, rtt: Duration) {
        let n = w.cwnd / w.mss;
        for _ in 0..n {
            w.grow(w.mss, now, rtt);
        }
    }

    #[test]
    fn slow_start_doubles_and_reno_adds_one() {
        let rtt = Duration::from_millis(20);
        let mut w = Window::new(Congestion::Reno, 1000);
        ack_a_window(&mut w, Instant(0), rtt);
        assert_eq!(w.cwnd, 20_000);
        w.reduce();
        w.cwnd = w.ssthresh;
        ack_a_window(&mut w, Instant(0), rtt);
        assert_eq!(w.cwnd, 11_000);
    }

    #[test]
    fn cubic_comes_back_to_where_it_was() {
        let rtt = Duration::from_millis(100);
        let mut w = Window::new(Congestion::Cubic, 1000);
        w.cwnd = 400_000;
        w.ssthresh = 300_000;
        w.reduce();
        assert_eq!(w.ssthresh, 280_000);
        w.cwnd = w.ssthresh;
        let mut now = Instant(0);
        // K is (400 * 0.3 / 0.4) ^ (1/3) = 6.7 s.
        for _ in 0..67 {
            ack_a_window(&mut w, now, rtt);
            now = now + rtt;
        }
        assert!((380_000..=420_000).contains(&w.cwnd), "{}", w.cwnd);
    }

    #[test]
    fn an_idle_window_decays_to_ten() {
        let mut w = Window::new(Congestion::Cubic, 1000);
        w.cwnd = 100_000;
        w.restart(Duration::from_secs(10), Duration::from_secs(1));
        assert_eq!(w.cwnd, 10_000);
        assert_eq!(w.ssthresh, u64::MAX);
    }
}
