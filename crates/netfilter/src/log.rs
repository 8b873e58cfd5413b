//! What rules tell of packets: groups that programs listen to (`net/netfilter/nfnetlink_log.c`).
//!
//! A group belongs to one listener, until that lets it go or is gone. Linux keeps what it has to
//! tell for a second, or until there is much of it; here each packet is told of at once.
//!
//! # What holds
//!
//! - Who is told of a packet does not hold it up: a [`Sink`] takes a message or loses it.
//! - The lock of the groups is held to find one, not while it is told.

use crate::attr::Out;
use crate::packet::{Hook, Meta, Packet, Version};
use abi::Result;
use abi::errno::{EBUSY, ENODEV, EPERM};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// `NFULNL_COPY_PACKET`, the highest mode.
const COPY_PACKET: u8 = 2;
/// `NFULNL_COPY_RANGE_MAX`.
const MOST: u32 = 0xffff - 4;
/// `NFULNL_CFG_F_*`: numbers of the group's messages, and of all groups'.
const NUMBERED: u16 = 1;
const NUMBERED_OF_ALL: u16 = 2;

/// Who listens to a group.
pub trait Sink: Send + Sync {
    /// What is told of a packet of a family (`NFPROTO_*`): attributes.
    fn take(&self, group: u16, family: u8, attrs: &[u8]);
}

/// A group. Atomics, each for itself: its owner sets them while packets are told of.
pub struct Group {
    sink: Weak<dyn Sink>,
    owner: u64,
    mode: AtomicU8,
    range: AtomicU32,
    flags: AtomicU16,
    number: AtomicU32,
}

/// The groups of a namespace.
#[derive(Default)]
pub struct Logs {
    all: RwLock<BTreeMap<u16, Arc<Group>>>,
    number: AtomicU32,
}

/// What a rule says of a packet that it tells of.
pub struct Logged<'a> {
    pub group: u16,
    pub prefix: &'a [u8],
    /// The most bytes of a packet; none: as many as the listener wants.
    pub snap: Option<u32>,
}

impl Logs {
    /// A group is `owner`'s from now on.
    ///
    /// # Errors
    ///
    /// `EPERM`: it is another one's; `EBUSY`: it is his already.
    pub fn bind(&self, group: u16, owner: u64, sink: Weak<dyn Sink>) -> Result<()> {
        let mut all = self.all.write();
        if let Some(g) = all.get(&group) {
            return Err(if g.owner == owner { EBUSY } else { EPERM });
        }
        let new = Group {
            sink,
            owner,
            mode: AtomicU8::new(COPY_PACKET),
            range: AtomicU32::new(MOST),
            flags: AtomicU16::new(0),
            number: AtomicU32::new(0),
        };
        all.insert(group, Arc::new(new));
        Ok(())
    }

    /// A group that is `owner`'s.
    ///
    /// # Errors
    ///
    /// `ENODEV`: there is no such; `EPERM`: it is another one's.
    pub fn of(&self, group: u16, owner: u64) -> Result<Arc<Group>> {
        let found = self.all.read().get(&group).cloned().ok_or(ENODEV)?;
        if found.owner == owner {
            Ok(found)
        } else {
            Err(EPERM)
        }
    }

    /// Whether there is such a group, of another one.
    #[must_use]
    pub fn is_anothers(&self, group: u16, owner: u64) -> bool {
        let all = self.all.read();
        all.get(&group).is_some_and(|g| g.owner != owner)
    }

    /// Lets a group go.
    ///
    /// # Errors
    ///
    /// Those of [`Logs::of`].
    pub fn unbind(&self, group: u16, owner: u64) -> Result<()> {
        self.of(group, owner)?;
        self.all.write().remove(&group);
        Ok(())
    }

    /// An owner is gone.
    pub fn forget(&self, owner: u64) {
        if !self.all.read().is_empty() {
            self.all.write().retain(|_, g| g.owner != owner);
        }
    }

    /// Tells of a packet at a hook.
    pub fn tell(&self, l: &Logged<'_>, hook: Hook, p: &Packet<'_>, meta: &Meta) {
        let found = self.all.read().get(&l.group).cloned();
        let Some((g, sink)) = found.and_then(|g| Some((g.clone(), g.sink.upgrade()?))) else {
            return;
        };
        let (family, ethertype) = match p.version {
            Version::V4 => (2, 0x0800),
            Version::V6 => (10, 0x86dd),
        };
        let mut o = Out::default();
        let [high, low] = u16::to_be_bytes(ethertype);
        o.put(1, &[high, low, hook as u8, 0]);
        o.put(10, &[l.prefix, b"\0"].concat());
        let devices = [(4, p.input), (5, p.output)];
        for (kind, device) in devices {
            if let Some(d) = device {
                o.be32(kind, d.index);
            }
        }
        if meta.mark != 0 {
            o.be32(2, meta.mark);
        }
        if let Some((uid, gid)) = p.owner {
            o.be32(11, uid);
            o.be32(14, gid);
        }
        let flags = g.flags.load(Relaxed);
        if flags & NUMBERED != 0 {
            o.be32(12, g.number.fetch_add(1, Relaxed));
        }
        if flags & NUMBERED_OF_ALL != 0 {
            o.be32(13, self.number.fetch_add(1, Relaxed).wrapping_add(1));
        }
        if g.mode.load(Relaxed) == COPY_PACKET {
            let most = g.range.load(Relaxed).min(l.snap.unwrap_or(MOST));
            let len = p.bytes.len().min(most as usize);
            if len > 0 {
                o.put(9, &p.bytes[..len]);
            }
        }
        sink.take(l.group, family, &o.0);
    }
}

impl Group {
    /// What is told of packets (`NFULNL_COPY_*`), and the most bytes of one; 0: all. There is no
    /// other mode, and nobody is told so.
    pub fn set_mode(&self, mode: u8, range: u32) {
        if mode == COPY_PACKET {
            let range = if range == 0 { MOST } else { range.min(MOST) };
            self.range.store(range, Relaxed);
        }
        if mode <= COPY_PACKET {
            self.mode.store(mode, Relaxed);
        }
    }

    /// `NFULNL_CFG_F_*`, those of connections excepted.
    pub fn set_flags(&self, flags: u16) {
        self.flags.store(flags, Relaxed);
    }
}
