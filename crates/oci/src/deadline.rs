//! Moments until which something is waited for.

use std::time::Instant;

/// Milliseconds for poll(2) until then; at most an hour, after which one looks again. -1 without a
/// deadline.
pub fn left(deadline: Option<Instant>) -> i32 {
    deadline.map_or(-1, |d| {
        let left = d.saturating_duration_since(Instant::now());
        left.as_millis().min(3_600_000) as i32
    })
}
