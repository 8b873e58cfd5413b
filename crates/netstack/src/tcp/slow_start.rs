//! The end of slow start before a queue overflows: round trips that become longer tell of it
//! (HyStart++, RFC 9406).
//!
//! ```text
//! doubling --- round trips are longer ---> careful --- five rounds ---> over
//!     ^                                       |
//!     +------- they are short again ----------+
//! ```

use std::time::Duration;

/// Round trips that are this much longer, or an eighth, tell of a queue.
const LEAST: Duration = Duration::from_millis(4);
const MOST: Duration = Duration::from_millis(16);
/// How many samples of a round it takes to tell.
const SAMPLES: u32 = 8;
/// By how much slower the window grows while it is not certain, and for how many rounds.
const SLOWER: u64 = 4;
const ROUNDS: u32 = 5;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowStart {
    /// The place whose acknowledgement ends the round.
    until: u64,
    /// The shortest round trip of the last round and of this one, of so many samples.
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    careful: Option<Careful>,
}

#[derive(Clone, Debug)]
struct Careful {
    /// Shorter than this is short again.
    baseline: Duration,
    rounds: u32,
}

impl SlowStart {
    /// An acknowledgement came, with a sample where it gave one. True when slow start is over.
    pub fn took(&mut self, rtt: Option<Duration>, una: u64, nxt: u64) -> bool {
        if una >= self.until {
            self.until = nxt;
            self.last = self.current.take();
            self.samples = 0;
            if let Some(c) = &mut self.careful {
                c.rounds += 1;
                if c.rounds >= ROUNDS {
                    return true;
                }
            }
        }
        let Some(rtt) = rtt else { return false };
        let current = self.current.map_or(rtt, |c| c.min(rtt));
        self.current = Some(current);
        self.samples += 1;
        if self.samples < SAMPLES {
            return false;
        }
        match &self.careful {
            None => {
                if let Some(last) = self.last
                    && current >= last + (last / 8).clamp(LEAST, MOST)
                {
                    self.careful = Some(Careful {
                        baseline: current,
                        rounds: 0,
                    });
                }
            }
            Some(c) if current < c.baseline => self.careful = None,
            Some(_) => (),
        }
        false
    }

    /// By how much the window grows when so much arrived.
    pub fn growth(&self, acked: u64) -> u64 {
        match self.careful {
            Some(_) => acked / SLOWER,
            None => acked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A round of ten acknowledgements.
    fn round(s: &mut SlowStart, n: u64, rtt: Duration) -> bool {
        (0..10).any(|i| s.took(Some(rtt), n * 10 + i, n * 10 + 10))
    }

    #[test]
    fn longer_round_trips_end_it() {
        let mut s = SlowStart::default();
        for n in 0..3 {
            assert!(!round(&mut s, n, 20 * MS));
        }
        assert_eq!(s.growth(1000), 1000);
        assert!(!round(&mut s, 3, 25 * MS));
        assert_eq!(s.growth(1000), 250);
        assert!((4..9).any(|n| round(&mut s, n, 26 * MS)));
    }

    #[test]
    fn a_short_delay_of_others_does_not() {
        let mut s = SlowStart::default();
        round(&mut s, 0, 20 * MS);
        round(&mut s, 1, 30 * MS);
        assert_eq!(s.growth(1000), 250);
        round(&mut s, 2, 20 * MS);
        assert_eq!(s.growth(1000), 1000);
        // On a fast path nothing is long enough.
        for n in 3..20 {
            assert!(!round(&mut s, n, (n as u32 * MS) / 10));
            assert_eq!(s.growth(1000), 1000);
        }
    }
}
