//! Resource limits (`getrlimit(2)`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct rlimit64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limit {
    pub current: u64,
    pub max: u64,
}

pub const CPU: usize = 0;
pub const FSIZE: usize = 1;
pub const DATA: usize = 2;
pub const STACK: usize = 3;
pub const CORE: usize = 4;
pub const RSS: usize = 5;
pub const NPROC: usize = 6;
pub const NOFILE: usize = 7;
pub const MEMLOCK: usize = 8;
pub const AS: usize = 9;
pub const LOCKS: usize = 10;
pub const SIGPENDING: usize = 11;
pub const MSGQUEUE: usize = 12;
pub const NICE: usize = 13;
pub const RTPRIO: usize = 14;
pub const RTTIME: usize = 15;
/// How many there are.
pub const COUNT: usize = 16;

/// All limits of a process.
#[derive(Clone, Debug)]
pub struct Limits(pub [Limit; COUNT]);

impl Default for Limits {
    /// What Linux gives its first process (`INIT_RLIMITS`).
    fn default() -> Self {
        const NONE: u64 = u64::MAX;
        let both = |n| Limit { current: n, max: n };
        let mut l = [both(NONE); COUNT];
        l[STACK] = Limit {
            current: 8 << 20,
            max: NONE,
        };
        l[CORE] = Limit {
            current: 0,
            max: NONE,
        };
        l[NPROC] = both(95_000);
        l[NOFILE] = Limit {
            current: 1024,
            max: 1 << 20,
        };
        l[MEMLOCK] = both(8 << 20);
        l[SIGPENDING] = both(95_000);
        l[MSGQUEUE] = both(819_200);
        l[NICE] = both(0);
        l[RTPRIO] = both(0);
        Limits(l)
    }
}
