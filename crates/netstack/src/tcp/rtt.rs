//! Round trips and the time-out that follows from them (RFC 6298, with Linux's bounds).

use std::time::Duration;

pub(super) const INITIAL: Duration = Duration::from_secs(1);
const FLOOR: Duration = Duration::from_millis(200);
pub(super) const CAP: Duration = Duration::from_secs(120);
/// For how long a smallest round trip counts (Linux: tcp_min_rtt_wlen).
const WINDOW: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Rtt {
    smooth: Option<Duration>,
    variance: Duration,
    /// The smallest, and when it was seen.
    least: Option<(Duration, crate::time::Instant)>,
    backoff: u32,
}

impl Rtt {
    pub fn sample(&mut self, rtt: Duration, now: crate::time::Instant) {
        let rtt = rtt.max(Duration::from_micros(1));
        if self
            .least
            .is_none_or(|(l, at)| rtt <= l || now.since(at) > WINDOW)
        {
            self.least = Some((rtt, now));
        }
        match self.smooth {
            None => {
                self.smooth = Some(rtt);
                self.variance = rtt / 2;
            }
            Some(s) => {
                let error = s.abs_diff(rtt);
                self.variance = (self.variance * 3 + error) / 4;
                self.smooth = Some((s * 7 + rtt) / 8);
            }
        }
        self.backoff = 0;
    }

    pub fn smooth(&self) -> Option<Duration> {
        self.smooth
    }
    pub fn variance(&self) -> Duration {
        self.variance
    }
    pub fn least(&self) -> Option<Duration> {
        self.least.map(|l| l.0)
    }
    pub fn backoff(&self) -> u32 {
        self.backoff
    }
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }
    /// New data was acknowledged.
    pub fn recovered(&mut self) {
        self.backoff = 0;
    }

    /// Without back-off.
    pub fn base(&self) -> Duration {
        self.smooth
            .map_or(INITIAL, |s| s + (self.variance * 4).max(FLOOR))
            .min(CAP)
    }

    /// The retransmission time-out.
    pub fn timeout(&self) -> Duration {
        doubled(self.base(), self.backoff)
    }
}

/// `first`, doubled `times` times, at most [`CAP`].
pub(super) fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(20)).min(CAP)
}

/// How long it takes until `times` time-outs, each twice as long as the one before, have passed
/// (Linux: tcp_model_timeout).
pub(super) fn model(times: u32, first: Duration) -> Duration {
    (0..=times.min(64)).map(|i| doubled(first, i)).sum()
}

/// The same from the shortest time-out.
pub(super) fn model_from_floor(times: u32) -> Duration {
    model(times, FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    #[test]
    fn time_outs_are_linux_s() {
        let mut r = Rtt::default();
        assert_eq!(r.timeout(), Duration::from_secs(1));
        r.back_off();
        assert_eq!(r.timeout(), Duration::from_secs(2));
        for _ in 0..50 {
            r.sample(Duration::from_millis(20), Instant(0));
        }
        assert_eq!(r.timeout().as_millis(), 220);
        for _ in 0..30 {
            r.back_off();
        }
        assert_eq!(r.timeout(), CAP);
        // tcp_retries2 of 15, as ip-sysctl.rst has it.
        assert_eq!(model_from_floor(15).as_millis(), 924_600);
    }
}
