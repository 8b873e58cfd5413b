//! Times as they cross the system-call boundary.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const NSEC_PER_SEC: i64 = 1_000_000_000;

/// `struct timespec` (`timespec(3type)`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Timespec {
    pub sec: i64,
    pub nsec: i64,
}

impl Timespec {
    /// From nanoseconds since the clock's epoch.
    #[must_use]
    pub const fn from_nanos(ns: i64) -> Self {
        Self {
            sec: ns.div_euclid(NSEC_PER_SEC),
            nsec: ns.rem_euclid(NSEC_PER_SEC),
        }
    }
    /// In nanoseconds, saturating; `None` where the kernel's `timespec64_valid` says no.
    #[must_use]
    pub const fn to_nanos(self) -> Option<i64> {
        if self.sec < 0 || self.nsec < 0 || self.nsec >= NSEC_PER_SEC {
            return None;
        }
        Some(
            self.sec
                .saturating_mul(NSEC_PER_SEC)
                .saturating_add(self.nsec),
        )
    }
}

/// `struct timeval`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Timeval {
    pub sec: i64,
    pub usec: i64,
}

impl Timeval {
    #[must_use]
    pub const fn from_nanos(ns: i64) -> Self {
        Self {
            sec: ns.div_euclid(NSEC_PER_SEC),
            usec: ns.rem_euclid(NSEC_PER_SEC) / 1000,
        }
    }
    #[must_use]
    pub const fn to_nanos(self) -> Option<i64> {
        if self.sec < 0 || self.usec < 0 || self.usec >= 1_000_000 {
            return None;
        }
        Some(
            self.sec
                .saturating_mul(NSEC_PER_SEC)
                .saturating_add(self.usec * 1000),
        )
    }
}
