//! The host's clocks and random numbers.

use crate::sys;
use abi::time::Timespec;

/// `clock_gettime(2)` in nanoseconds; zero for a clock that the host does not know.
///
/// Goes through libc, whose vDSO answers the common clocks without a host call.
#[must_use]
pub fn clock_nanos(clock: i32) -> i64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for a timespec.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    Timespec {
        sec: ts.tv_sec,
        nsec: ts.tv_nsec,
    }
    .to_nanos()
    .unwrap_or(0)
}

/// Fills `buf` with random bytes (`getrandom(2)`).
pub fn random(mut buf: &mut [u8]) {
    while !buf.is_empty() {
        // SAFETY: the buffer is ours for the call.
        match unsafe { sys!(Getrandom, buf.as_mut_ptr(), buf.len().min(256), 0) } {
            Ok(n) => buf = &mut buf[n..],
            Err(abi::errno::EINTR) => {}
            Err(e) => panic!("the host gives no random numbers: {e}"),
        }
    }
}
