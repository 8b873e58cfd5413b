//! How long a thread of a stub process may take to start, or to end.
//!
//! Hostile code can make both last: it may hide the word that a start is told by, or keep a thread
//! from its end. So both have a limit, after which the process is ended. A host without a free CPU
//! makes them last, too, and that is not the application's fault. So time counts only as far as the
//! waiter itself got a CPU in it: it looks again and again, and of the time between two looks at
//! most [`LOOK`] counts. Where the host is busy a look comes late, as the thread does that is
//! waited for.
//!
//! Who waits is a thread of the same program, and the end of the process ends the wait.

use std::time::{Duration, Instant};

/// A waiter looks at least this often, where it gets a CPU.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Beyond this, time counts however busy the host is.
const LIMIT_MAX: Duration = Duration::from_secs(120);

/// How long something may take that begins now.
pub struct Patience {
    begun: Instant,
    looked: Instant,
    /// What is left of the time that counts.
    left: Duration,
}

impl Patience {
    pub fn new(limit: Duration) -> Patience {
        let now = Instant::now();
        Patience {
            begun: now,
            looked: now,
            left: limit,
        }
    }

    /// Whether the time is over. To be asked at least every [`LOOK`].
    pub fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.looked);
        self.left = self.left.saturating_sub(passed.min(2 * LOOK));
        self.looked = now;
        self.left.is_zero() || now.saturating_duration_since(self.begun) > LIMIT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the time lasts, of looks at this distance.
    fn lasts(limit: Duration, look: Duration) -> Duration {
        let mut p = Patience::new(limit);
        let begun = p.begun;
        let mut after = Duration::ZERO;
        while !p.is_over_at(begun + after) {
            after += look;
        }
        after
    }

    #[test]
    fn a_process_without_a_cpu_is_waited_for() {
        let limit = Duration::from_secs(10);
        assert_eq!(lasts(limit, LOOK), limit);
        assert_eq!(lasts(limit, 2 * LOOK), limit);
        // Looks that come late count as if they had not.
        assert_eq!(lasts(limit, 4 * LOOK), 2 * limit);
        let longest = lasts(limit, 100 * LOOK);
        assert!(longest > LIMIT_MAX && longest <= LIMIT_MAX + 100 * LOOK);
    }
}
