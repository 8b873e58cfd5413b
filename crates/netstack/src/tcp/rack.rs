//! RACK: what was sent long enough before something that arrived is lost (RFC 8985).

use super::scoreboard::{Delivery, Scoreboard};
use crate::time::Instant;
use std::time::Duration;

/// For how many recoveries a widened reordering window stays.
const PERSIST: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Rack {
    /// When the latest sent of what has arrived was sent, and its end.
    at: Instant,
    end: u64,
    rtt: Duration,
    /// The highest end that has arrived.
    fack: u64,
    pub reordering_seen: bool,
    /// Duplicates until here belong to a round that has widened the window.
    round: Option<u64>,
    factor: u32,
    persist: u32,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            at: Instant(0),
            end: 0,
            rtt: Duration::ZERO,
            fack: 0,
            reordering_seen: false,
            round: None,
            factor: 1,
            persist: 0,
        }
    }
}

impl Rack {
    /// Something arrived. `echo_after_resend` tells for what was sent again whether the peer's
    /// timestamp, where it has one, may answer that copy.
    pub fn delivered(
        &mut self,
        d: &Delivery,
        now: Instant,
        least_rtt: Option<Duration>,
        is_too_old: impl Fn(Instant) -> bool,
    ) {
        let rtt = now.since(d.at);
        if d.end > self.fack {
            self.fack = d.end;
        } else if !d.retransmitted {
            self.reordering_seen = true;
        }
        if d.retransmitted && (is_too_old(d.at) || least_rtt.is_some_and(|l| rtt < l)) {
            return;
        }
        self.rtt = rtt;
        if (d.at, d.end) > (self.at, self.end) {
            (self.at, self.end) = (d.at, d.end);
        }
    }

    /// The peer got something twice: what was sent again was not lost, the window is to be wider.
    pub fn duplicate(&mut self, una: u64, nxt: u64) {
        if self.round.is_none_or(|r| una >= r) {
            self.round = Some(nxt);
            self.factor = (self.factor + 1).min(200);
            self.persist = PERSIST;
        }
    }

    /// A recovery has ended.
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.factor = 1;
        }
    }

    /// How much later than expected something may arrive and is only reordered.
    fn window(&self, context: &Context) -> Duration {
        if !self.reordering_seen
            && (context.recovering
                || context.sacked >= u64::from(context.repetitions) * context.mss)
        {
            return Duration::ZERO;
        }
        let least = context.least_rtt.unwrap_or_default();
        (least * self.factor / 4).min(context.smooth_rtt.unwrap_or_default())
    }

    /// Marks what is lost; tells how many bytes, and when to look again.
    pub fn detect(
        &self,
        board: &mut Scoreboard,
        now: Instant,
        context: &Context,
    ) -> (u64, Option<Instant>) {
        let wait = self.rtt + self.window(context);
        let mut lost = 0;
        while let Some((at, end)) = board.oldest() {
            if (at, end) >= (self.at, self.end) {
                break;
            }
            if now < at + wait {
                return (lost, Some(at + wait));
            }
            lost += board.lose_oldest().unwrap_or(0);
        }
        (lost, None)
    }
}

/// What [`Rack`] has to know of the connection.
pub(super) struct Context {
    pub least_rtt: Option<Duration>,
    pub smooth_rtt: Option<Duration>,
    /// Whether a loss is being repaired.
    pub recovering: bool,
    pub sacked: u64,
    pub mss: u64,
    /// So many segments that arrived after one tell that it is lost ([`super::Config::repetitions`]).
    pub repetitions: u32,
}
