//! A device: what the setup says of it, and what is learnt on its link.

use super::counters::DeviceCounters;
use super::groups::Groups;
use super::limit::Bucket;
use super::neighbour::Neighbours;
use super::wire::Mac;
use crate::setup::{Address, Device};
use crate::time::Instant;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;

/// A device as one table has it.
pub(crate) struct Dev {
    /// The place in `Setup::devices`.
    pub place: usize,
    pub index: u32,
    pub mac: Mac,
    pub mtu: u32,
    pub gso_max: u32,
    pub flags: u32,
    pub addresses: Vec<Address>,
    pub setup: Device,
    /// Outlives the table: it goes on with the device of the same index.
    pub link: Arc<LinkState>,
}

impl Dev {
    pub(crate) fn new(place: usize, d: &Device, link: Arc<LinkState>) -> Dev {
        Dev {
            place,
            index: d.index,
            mac: d.mac,
            mtu: d.mtu.clamp(68, 65_535),
            gso_max: d.gso_max,
            flags: d.flags,
            addresses: d.addresses.clone(),
            setup: d.clone(),
            link,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.flags & IFF_LOOPBACK != 0
    }

    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.ip == ip)
    }
}

/// What is learnt on a link, and counted.
pub(crate) struct LinkState {
    pub neighbours: Mutex<Neighbours>,
    pub groups: Mutex<Groups>,
    pub counters: DeviceCounters,
    /// When the neighbours' and the groups' timers are due, at the earliest.
    pub due: Due,
    /// How often an address of ours is defended.
    pub defences: Mutex<Bucket>,
}

/// The earliest moment at which somebody's timers are due. It may be too early, never too late.
pub(crate) struct Due(AtomicU64);

impl Due {
    pub(crate) const fn never() -> Due {
        Due(AtomicU64::new(u64::MAX))
    }

    pub(crate) fn at_latest(&self, when: Option<Instant>) {
        if let Some(Instant(when)) = when {
            self.0.fetch_min(when, Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Option<Instant> {
        match self.0.load(Relaxed) {
            u64::MAX => None,
            when => Some(Instant(when)),
        }
    }

    pub(crate) fn forget(&self) {
        self.0.store(u64::MAX, Relaxed);
    }

    /// Whether it has come; then it is forgotten, and the caller looks at all timers.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let due = self.0.load(Relaxed) <= now.0;
        if due {
            self.0.store(u64::MAX, Relaxed);
        }
        due
    }
}
