//! How often something may be sent: buckets of tokens.

use crate::time::Instant;
use std::time::Duration;

/// One bucket: it holds at most `burst` tokens and gets one each `period`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    burst: u32,
    period: Duration,
    tokens: u32,
    since: Instant,
}

impl Bucket {
    pub(crate) const fn new(burst: u32, period: Duration) -> Bucket {
        Bucket {
            burst,
            period,
            tokens: burst,
            since: Instant(0),
        }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let period = self.period.as_nanos().max(1) as u64;
        let passed = now.0.saturating_sub(self.since.0) / period;
        if passed > 0 {
            let passed32 = u32::try_from(passed).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(passed32).min(self.burst);
            self.since = Instant(self.since.0.saturating_add(passed.saturating_mul(period)));
        }
        let has = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        has
    }
}
