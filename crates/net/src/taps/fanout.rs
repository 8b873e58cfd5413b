//! Groups of packet sockets of which one gets each packet (PACKET_FANOUT of `packet(7)`;
//! `fanout_add`, `packet_rcv_fanout`).
//!
//! # What holds
//!
//! - All members want the same: a protocol's frames, of one device or of all. None of them is bound
//!   anew.
//! - A group sees no frame that one of its own has sent.
//! - It lasts as long as it has members; there are no more of them than there may be taps.

use crate::filters::{Filter, Packet};
use crate::taps::{Seen, Tap};
use abi::Result;
use abi::errno::{EINVAL, ENOSPC};
use parking_lot::{Mutex, RwLock};
use siphasher::sip::SipHasher13;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// `PACKET_FANOUT_*`: by what a member is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Both ends of what the packet is of.
    Hash = 0,
    /// They take turns.
    LoadBalance = 1,
    /// The processor: all devices here deliver by the first one.
    Cpu = 2,
    /// The first that has room.
    Rollover = 3,
    Random = 4,
    /// The device's queue, of which each has one.
    Queue = 5,
    /// A program.
    Program = 6,
}

impl Kind {
    pub fn of(n: u8) -> Result<Kind> {
        Ok(match n {
            0 => Kind::Hash,
            1 => Kind::LoadBalance,
            2 => Kind::Cpu,
            3 => Kind::Rollover,
            4 => Kind::Random,
            5 => Kind::Queue,
            6 => Kind::Program,
            _ => return Err(EINVAL),
        })
    }
}

/// `PACKET_FANOUT_FLAG_*`, as the group has them.
pub(crate) const ROLLOVER: u8 = 0x10;
pub(crate) const UNIQUE_ID: u8 = 0x20;
const IGNORE_OUTGOING: u8 = 0x40;
/// Pieces are put together first: not here.
pub(crate) const DEFRAGMENT: u8 = 0x80;

/// What a socket asks for that joins one, and what it is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JoinRequest {
    pub id: u16,
    pub kind: Kind,
    pub flags: u8,
    /// How many members there may be; 0: as many as usual.
    pub most: u32,
    pub device: i32,
    pub protocol: u16,
}

/// See the module.
pub(crate) struct Fanout {
    asked: JoinRequest,
    /// Leaf lock. A packet goes by the members that it finds.
    members: Mutex<Arc<Vec<Arc<dyn Tap>>>>,
    turn: AtomicU32,
    key: [u8; 16],
    program: RwLock<Option<Arc<Filter>>>,
    /// Who has had room last, how often another one than was chosen got a packet, and how often
    /// none had room.
    roomy: AtomicUsize,
    rolled: AtomicU64,
    failed: AtomicU64,
}

/// As many members as a group has that does not say.
const USUAL: u32 = 256;
/// The most that it may say.
const MOST: u32 = 1 << 16;

impl Fanout {
    pub fn new(mut asked: JoinRequest) -> Result<Arc<Fanout>> {
        if asked.most > MOST {
            return Err(EINVAL);
        }
        if asked.most == 0 {
            asked.most = USUAL;
        }
        let mut key = [0; 16];
        hostcall::time::random(&mut key);
        Ok(Arc::new(Fanout {
            asked,
            members: Mutex::default(),
            turn: AtomicU32::new(0),
            key,
            program: RwLock::default(),
            roomy: AtomicUsize::new(0),
            rolled: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    pub fn id(&self) -> u16 {
        self.asked.id
    }

    /// As `getsockopt(2)` tells it.
    pub fn number(&self) -> u32 {
        let a = &self.asked;
        u32::from(a.id) | (a.kind as u32) << 16 | u32::from(a.flags) << 24
    }

    /// `struct tpacket_rollover_stats`; none where nobody rolls over.
    pub fn rollovers(&self) -> Option<[u64; 3]> {
        let load = |a: &AtomicU64| a.load(Ordering::Relaxed);
        self.rolls()
            .then(|| [load(&self.rolled), 0, load(&self.failed)])
    }

    fn rolls(&self) -> bool {
        self.asked.kind == Kind::Rollover || self.asked.flags & ROLLOVER != 0
    }

    pub fn kind(&self) -> Kind {
        self.asked.kind
    }

    pub fn set_program(&self, f: Filter) {
        let old = self.program.write().replace(Arc::new(f));
        drop(old);
    }

    /// A member more.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is of another kind, or wants something else. `ENOSPC`: there are too many.
    pub fn join(&self, asked: &JoinRequest, member: Arc<dyn Tap>) -> Result<()> {
        let own = &self.asked;
        let same = JoinRequest {
            most: own.most,
            ..*asked
        };
        if same != *own || asked.most != 0 && asked.most != own.most {
            return Err(EINVAL);
        }
        let mut members = self.members.lock();
        if members.len() >= own.most as usize {
            return Err(ENOSPC);
        }
        Arc::make_mut(&mut members).push(member);
        Ok(())
    }

    /// One goes: the last takes its place.
    pub fn leave(&self, member: &dyn Tap) {
        let mut members = self.members.lock();
        let is_it = |t: &Arc<dyn Tap>| std::ptr::addr_eq(Arc::as_ptr(t), member);
        let gone = members
            .iter()
            .position(is_it)
            .map(|i| Arc::make_mut(&mut members).swap_remove(i));
        drop(members);
        drop(gone);
    }

    /// Whether the packet socket of this number is a member.
    pub fn has(&self, number: u64) -> bool {
        self.members.lock().iter().any(|t| t.number() == number)
    }

    /// Who gets a packet.
    pub fn choose(&self, seen: &Seen<'_>) -> Option<Arc<dyn Tap>> {
        if self.asked.flags & IGNORE_OUTGOING != 0 && seen.kind == crate::taps::OUTGOING {
            return None;
        }
        let members = self.members.lock().clone();
        let n = members.len();
        if n == 0 {
            return None;
        }
        let i = match self.asked.kind {
            Kind::Hash => self.hash(seen) as usize % n,
            Kind::LoadBalance => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                turn.wrapping_add(1) as usize % n
            }
            Kind::Cpu | Kind::Queue | Kind::Rollover => 0,
            Kind::Random => fastrand::usize(..n),
            Kind::Program => {
                let program = self.program.read().clone();
                program.map_or(0, |p| p.run(&packet(seen)) as usize % n)
            }
        };
        members.get(self.with_room(i, &members)).cloned()
    }

    /// The one that was chosen, or another one that has room where that has none.
    fn with_room(&self, chosen: usize, all: &[Arc<dyn Tap>]) -> usize {
        if !self.rolls() {
            return chosen;
        }
        let has_room = |i: usize| all.get(i).is_some_and(|t| t.has_room());
        if self.asked.kind != Kind::Rollover && has_room(chosen) {
            return chosen;
        }
        let first = self.roomy.load(Ordering::Relaxed).min(all.len() - 1);
        let mut others = (first..all.len()).chain(0..first);
        match others.find(|i| has_room(*i)) {
            Some(i) => {
                self.roomy.store(i, Ordering::Relaxed);
                self.rolled.fetch_add(1, Ordering::Relaxed);
                i
            }
            None => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                chosen
            }
        }
    }

    /// The same for both directions of what a packet is of (`__skb_get_hash_symmetric`).
    fn hash(&self, seen: &Seen<'_>) -> u64 {
        let b = seen.frame.get(seen.network..).unwrap_or_default();
        let mut h = SipHasher13::new_with_key(&self.key);
        seen.protocol.hash(&mut h);
        if let Some((protocol, a, b)) = ends(b) {
            (protocol, a.min(b), a.max(b)).hash(&mut h);
        }
        h.finish() >> 16
    }
}

/// The transport and both ends of an IP packet: addresses, and ports of what has some.
fn ends(b: &[u8]) -> Option<(u8, [u8; 18], [u8; 18])> {
    let v4 = b.first()? >> 4 == 4;
    let (protocol, header, at, len) = match v4 {
        true => (*b.get(9)?, usize::from(b[0] & 15) * 4, 12, 4),
        false => (*b.get(6)?, 40, 8, 16),
    };
    let (mut from, mut to) = ([0; 18], [0; 18]);
    from[..len].copy_from_slice(b.get(at..at + len)?);
    to[..len].copy_from_slice(b.get(at + len..at + 2 * len)?);
    let is_piece = v4 && (b.get(6)? & 0x3f != 0 || *b.get(7)? != 0);
    let has_ports = matches!(protocol, 6 | 17 | 132 | 136) && !is_piece;
    if let Some(ports) = b.get(header..header + 4).filter(|_| has_ports) {
        from[16..].copy_from_slice(&ports[..2]);
        to[16..].copy_from_slice(&ports[2..]);
    }
    Some((protocol, from, to))
}

/// As a program sees it, that chooses.
fn packet<'a>(seen: &'a Seen<'_>) -> Packet<'a> {
    Packet {
        data: seen.frame.get(seen.network..).unwrap_or_default(),
        frame: seen.frame,
        network: seen.network,
        protocol: seen.protocol,
        kind: seen.kind,
        device: seen.at.device,
        hardware: seen.at.hardware,
    }
}
