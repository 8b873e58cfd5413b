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

/// Times the parts of something that is done once, for people who want to know where the time goes.
/// By default nobody does, and it costs nothing.
#[derive(Debug, Default)]
pub struct Laps {
    /// Of `CLOCK_MONOTONIC`; `None` where nobody wants to know.
    last: Option<i64>,
    told: String,
}

impl Laps {
    #[must_use]
    pub fn start() -> Laps {
        Laps {
            last: Some(clock_nanos(libc::CLOCK_MONOTONIC)),
            told: String::new(),
        }
    }
    /// A part has ended.
    pub fn lap(&mut self, name: &str) {
        let Some(last) = self.last else { return };
        let now = clock_nanos(libc::CLOCK_MONOTONIC);
        let comma = if self.told.is_empty() { "" } else { ", " };
        let ms = (now - last) as f64 / 1e6;
        self.told.push_str(&format!("{comma}{name} {ms:.2} ms"));
        self.last = Some(now);
    }
    /// All of them; empty where nobody wants to know.
    #[must_use]
    pub fn told(&self) -> &str {
        &self.told
    }
}
