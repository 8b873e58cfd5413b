//! The time that the network goes by.

use netstack::time::Instant;

/// The time now: CLOCK_MONOTONIC, as the stack counts it.
pub(crate) fn now() -> Instant {
    const CLOCK_MONOTONIC: i32 = 1;
    Instant(hostcall::time::clock_nanos(CLOCK_MONOTONIC) as u64)
}
