//! Who looks at the frames that pass on the devices of a namespace: its packet sockets
//! ([`crate::packet`]), as those know them that bring frames.
//!
//! # What holds
//!
//! - Who brings a frame never waits for a program: a tap's queues and rings are bounded, and what
//!   finds no room is counted and lost.
//! - There are at most [`MOST`] taps in a namespace: each is looked at for each frame.

pub(crate) mod fanout;

use self::fanout::Fanout;
use crate::clock::now;
use crate::interface::{LO_INDEX, LOOPBACK, NO_HEADER};
use crate::options::Common;
use abi::Result;
use abi::errno::ENOBUFS;
use netstack::ip::FrameMeta;
use netstack::time::Instant;
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MOST: usize = 128;

/// `PACKET_HOST` and its kin.
const HOST: u8 = 0;
const BROADCAST: u8 = 1;
const MULTICAST: u8 = 2;
const OTHER: u8 = 3;
pub(crate) const OUTGOING: u8 = 4;

/// The device by which a frame passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub device: i32,
    /// `ARPHRD_*`.
    pub hardware: u16,
    pub mac: [u8; 6],
}

impl At {
    pub const LOOPBACK: At = At {
        device: LO_INDEX,
        hardware: LOOPBACK,
        mac: [0; 6],
    };
}

/// Which way a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    In,
    Out,
    /// From the packet socket of this number, which does not see it.
    By(u64),
}

/// A frame that passes.
pub(crate) struct Seen<'a> {
    pub at: At,
    pub frame: &'a [u8],
    /// Where its network header begins.
    pub network: usize,
    pub protocol: u16,
    /// `PACKET_HOST` and its kin.
    pub kind: u8,
    pub meta: FrameMeta,
    /// CLOCK_REALTIME, in nanoseconds.
    pub time: i64,
    pub now: Instant,
}

/// Who looks at frames.
pub(crate) trait Tap: Send + Sync {
    /// Whether it takes frames of a protocol (`ETH_P_*`) that pass by a device.
    fn wants(&self, device: i32, protocol: u16, way: Way) -> bool;
    /// A frame that it wants passes.
    fn put(&self, seen: &Seen<'_>);
    /// A device has gone, or is down.
    fn device_gone(&self, device: i32);
    /// Its socket's number.
    fn number(&self) -> u64;
    /// The group that it is in, of which one gets each frame.
    fn fanout(&self) -> Option<Arc<Fanout>>;
    /// Whether its queue has a good deal of room.
    fn has_room(&self) -> bool;
    /// What is told of it.
    fn census(&self) -> Census;
}

/// What is told of a packet socket in `/proc/net/packet`.
pub(crate) struct Census {
    pub common: Arc<Common>,
    pub kind: u32,
    pub protocol: u16,
    pub device: i32,
    pub bytes: usize,
}

/// Those of a namespace.
#[derive(Default)]
pub(crate) struct Taps {
    /// How many are bound to a protocol: mostly none.
    count: AtomicUsize,
    all: RwLock<Arc<Vec<Arc<dyn Tap>>>>,
    /// Held while one looks for a group and joins it. Before all other locks here.
    pub grouping: Mutex<()>,
}

impl Taps {
    /// `ENOBUFS` where there are as many as may be.
    pub fn add(&self, tap: Arc<dyn Tap>) -> Result<()> {
        let mut all = self.all.write();
        if all.len() >= MOST {
            return Err(ENOBUFS);
        }
        Arc::make_mut(&mut *all).push(tap);
        self.count.store(all.len(), Ordering::Release);
        Ok(())
    }

    pub fn remove(&self, tap: &dyn Tap) {
        let mut all = self.all.write();
        Arc::make_mut(&mut *all).retain(|t| !std::ptr::addr_eq(Arc::as_ptr(t), tap));
        self.count.store(all.len(), Ordering::Release);
    }

    fn all(&self) -> Arc<Vec<Arc<dyn Tap>>> {
        self.all.read().clone()
    }

    /// The group of a number, where it has members.
    pub fn fanout(&self, id: u16) -> Option<Arc<Fanout>> {
        let all = self.all();
        all.iter().filter_map(|t| t.fanout()).find(|g| g.id() == id)
    }

    /// A number that no group has.
    pub fn free_fanout(&self) -> Option<u16> {
        let all = self.all();
        let ids = all.iter().filter_map(|t| t.fanout()).map(|g| g.id());
        let used: HashSet<u16> = ids.collect();
        (0..=u16::MAX).find(|id| !used.contains(id))
    }

    /// What is told of each.
    pub fn census(&self) -> Vec<Census> {
        self.all().iter().map(|t| t.census()).collect()
    }

    /// A device has gone, or is down.
    pub fn device_gone(&self, device: i32) {
        self.all().iter().for_each(|t| t.device_gone(device));
    }

    /// Whether somebody may look at what passes.
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// A frame passes, in parts.
    pub fn frame(&self, at: At, way: Way, meta: &FrameMeta, parts: &[&[u8]]) {
        if self.is_used() {
            self.show(at, way, meta, parts);
        }
    }

    #[cold]
    fn show(&self, at: At, way: Way, meta: &FrameMeta, parts: &[&[u8]]) {
        const HEADER: usize = 14;
        let Some([a, b]) = parts.first().and_then(|p| p.get(12..HEADER)) else {
            return;
        };
        let protocol = match u16::from_be_bytes([*a, *b]) {
            // A length: 802.2 (`eth_type_trans`).
            n if n < 0x600 => 4,
            n => n,
        };
        let all = self.all();
        let wants = |t: &&Arc<dyn Tap>| t.wants(at.device, protocol, way);
        let mut wanted = all.iter().filter(wants).peekable();
        if wanted.peek().is_none() {
            return;
        }
        let frame = match parts {
            [one] => Cow::Borrowed(*one),
            many => Cow::Owned(many.concat()),
        };
        let bare = at.hardware == NO_HEADER;
        let kind = match way {
            Way::Out | Way::By(_) => OUTGOING,
            Way::In if at.hardware == LOOPBACK || bare => HOST,
            Way::In => match &frame[..6] {
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => BROADCAST,
                to if to[0] & 1 == 1 => MULTICAST,
                to if *to == at.mac => HOST,
                _ => OTHER,
            },
        };
        let seen = Seen {
            at,
            frame: if bare { &frame[HEADER..] } else { &frame },
            network: if bare { 0 } else { HEADER },
            protocol,
            kind,
            meta: *meta,
            time: hostcall::time::clock_nanos(0),
            now: now(),
        };
        let mut groups: Vec<Arc<Fanout>> = Vec::new();
        for tap in wanted {
            let Some(group) = tap.fanout() else {
                tap.put(&seen);
                continue;
            };
            if groups.iter().any(|g| Arc::ptr_eq(g, &group)) {
                continue;
            }
            let is_own = matches!(way, Way::By(number) if group.has(number));
            if !is_own && let Some(chosen) = group.choose(&seen) {
                chosen.put(&seen);
            }
            groups.push(group);
        }
    }
}
