//! What an ipc namespace allows of System V objects (`/proc/sys/kernel`; Linux's
//! `ipc/ipc_sysctl.c`). Each may be set to what Linux allows; what one call can take at most is
//! bounded besides ([`Limits::bounded`]).

use super::{MAX_OBJECTS, msg, sem, shm};
use abi::Result;
use abi::errno::{EINVAL, ERANGE};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit. Those of semaphores are one file together, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    ShmMax,
    ShmAll,
    ShmMni,
    MsgMax,
    MsgMnb,
    MsgMni,
    SemMsl,
    SemMns,
    SemOpm,
    SemMni,
}

impl Limit {
    const ALL: [Limit; 10] = [
        Limit::ShmMax,
        Limit::ShmAll,
        Limit::ShmMni,
        Limit::MsgMax,
        Limit::MsgMnb,
        Limit::MsgMni,
        Limit::SemMsl,
        Limit::SemMns,
        Limit::SemOpm,
        Limit::SemMni,
    ];
    /// Those with a file of their own.
    pub const FILES: [(&'static str, Limit); 6] = [
        ("shmmax", Limit::ShmMax),
        ("shmall", Limit::ShmAll),
        ("shmmni", Limit::ShmMni),
        ("msgmax", Limit::MsgMax),
        ("msgmnb", Limit::MsgMnb),
        ("msgmni", Limit::MsgMni),
    ];
    /// Those of the file `sem`.
    pub const OF_SEM: [Limit; 4] = [Limit::SemMsl, Limit::SemMns, Limit::SemOpm, Limit::SemMni];

    const fn first(self) -> u64 {
        match self {
            Limit::ShmMax => shm::SHMMAX,
            Limit::ShmAll => shm::SHMALL,
            Limit::ShmMni => 4096,
            Limit::MsgMax => msg::MSGMAX as u64,
            Limit::MsgMnb => msg::MSGMNB as u64,
            Limit::MsgMni | Limit::SemMni => 32_000,
            Limit::SemMsl => sem::SEMMSL as u64,
            Limit::SemMns => 32_000 * sem::SEMMSL as u64,
            Limit::SemOpm => sem::SEMOPM as u64,
        }
    }
    /// What may be written to it.
    const fn range(self) -> RangeInclusive<u64> {
        match self {
            Limit::ShmMax | Limit::ShmAll => 0..=u64::MAX,
            Limit::ShmMni | Limit::MsgMni | Limit::SemMni => 0..=MAX_OBJECTS as u64,
            _ => 0..=i32::MAX as u64,
        }
    }
    /// The most that it comes to, whatever was written.
    const fn most(self) -> u64 {
        match self {
            Limit::MsgMax => 1 << 20,
            Limit::MsgMnb => 64 << 20,
            Limit::SemMsl => sem::SEMMSL as u64,
            Limit::SemOpm => sem::SEMOPM as u64,
            _ => u64::MAX,
        }
    }
}

/// The limits of a namespace.
pub struct Limits([AtomicU64; 10]);

impl Default for Limits {
    fn default() -> Limits {
        Limits(Limit::ALL.map(|l| AtomicU64::new(l.first())))
    }
}

impl Limits {
    /// As it was set.
    #[must_use]
    pub fn get(&self, l: Limit) -> u64 {
        self.0[l as usize].load(Ordering::Relaxed)
    }
    /// As it holds.
    #[must_use]
    pub fn bounded(&self, l: Limit) -> usize {
        self.get(l).min(l.most()) as usize
    }
    /// `EINVAL` for what it cannot be, and `ERANGE` where it is one of several.
    pub fn set(&self, l: Limit, n: u64) -> Result<()> {
        if !l.range().contains(&n) {
            let e = if l == Limit::SemMni { ERANGE } else { EINVAL };
            return Err(e);
        }
        self.0[l as usize].store(n, Ordering::Relaxed);
        Ok(())
    }
}
