//! Options of packet sockets (SOL_PACKET of `packet(7)`), and their rings.

use super::ring::{Request, Ring, Version};
use super::{PACKET_AUXDATA, PacketSocket};
use crate::filters::Filter;
use crate::options::{SO_ACCEPTCONN, SO_LOCK_FILTER, int_of};
use crate::sys::{SOL_PACKET, SOL_SOCKET};
use crate::taps::fanout::{DEFRAGMENT, Fanout, JoinRequest, Kind, ROLLOVER, UNIQUE_ID};
use abi::Result;
use abi::errno::{EALREADY, EBUSY, EINVAL, ENODEV, ENOMEM, ENOPROTOOPT, EPERM};
use vfs::ring::RingMemory;
use vfs::ucounts::Kind::Kmem;

const ADD_MEMBERSHIP: i32 = 1;
const DROP_MEMBERSHIP: i32 = 2;
const RX_RING: i32 = 5;
const TX_RING: i32 = 13;
pub(super) const FANOUT: i32 = 18;
const TX_HAS_OFF: i32 = 19;
const ROLLOVER_STATS: i32 = 21;
pub const FANOUT_DATA: i32 = 22;
const STATISTICS: i32 = 6;
const COPY_THRESH: i32 = 7;
const ORIGDEV: i32 = 9;
const VERSION: i32 = 10;
const HDRLEN: i32 = 11;
const RESERVE: i32 = 12;
const LOSS: i32 = 14;
/// It is off.
const VNET_HDR: i32 = 15;
const TIMESTAMP: i32 = 17;
const QDISC_BYPASS: i32 = 20;
const IGNORE_OUTGOING: i32 = 23;

/// `PACKET_MR_MULTICAST`, `PACKET_MR_UNICAST`.
const MULTICAST: u16 = 0;
const UNICAST: u16 = 3;
/// The most memberships of a socket.
const MOST: usize = 64;

/// What a socket was told.
#[derive(Default)]
pub(super) struct Settings {
    pub auxdata: bool,
    version: Version,
    reserve: u32,
    /// What is only kept, by the option's number.
    kept: Vec<(i32, i32)>,
    /// `struct packet_mreq` without its padding: device, kind, address.
    memberships: Vec<(i32, u16, Vec<u8>)>,
}

impl Settings {
    fn kept(&self, name: i32) -> i32 {
        let found = self.kept.iter().find(|(n, _)| *n == name);
        found.map_or(0, |(_, v)| *v)
    }
}

impl Settings {
    /// PACKET_LOSS, PACKET_TX_HAS_OFF.
    pub fn loses(&self) -> bool {
        self.kept(LOSS) != 0
    }
    pub fn has_offset(&self) -> bool {
        self.kept(TX_HAS_OFF) != 0
    }
}

impl PacketSocket {
    pub(super) fn set(&self, level: i32, name: i32, v: &[u8]) -> Result<()> {
        if level != SOL_PACKET {
            return Err(ENOPROTOOPT);
        }
        let has_ring = || self.rx.queue.lock().ring.is_some() || self.tx.lock().is_some();
        match name {
            ADD_MEMBERSHIP | DROP_MEMBERSHIP => self.membership(name == ADD_MEMBERSHIP, v),
            RX_RING => self.set_ring(v),
            TX_RING => self.set_send_ring(v),
            FANOUT => self.set_fanout(v),
            FANOUT_DATA => self.set_fanout_program(v),
            // Which is not so for a ring that there is, and not told.
            TX_HAS_OFF if has_ring() => int_of(v).map(drop),
            VERSION => {
                let version = Version::of(int_of(v)?)?;
                // Held, so that no ring is made meanwhile.
                let mut s = self.settings.lock();
                if has_ring() {
                    return Err(EBUSY);
                }
                s.version = version;
                Ok(())
            }
            RESERVE => {
                let n = int_of(v)? as u32;
                if n > i32::MAX as u32 {
                    return Err(EINVAL);
                }
                let mut s = self.settings.lock();
                if has_ring() {
                    return Err(EBUSY);
                }
                s.reserve = n;
                Ok(())
            }
            PACKET_AUXDATA => {
                self.settings.lock().auxdata = int_of(v)? != 0;
                Ok(())
            }
            IGNORE_OUTGOING => {
                let n = int_of(v)?;
                if !(0..=1).contains(&n) {
                    return Err(EINVAL);
                }
                self.rx.bound.write().ignores_outgoing = n == 1;
                Ok(())
            }
            LOSS if has_ring() => Err(EBUSY),
            COPY_THRESH | ORIGDEV | LOSS | TIMESTAMP | QDISC_BYPASS | TX_HAS_OFF => {
                let n = match (name, int_of(v)?) {
                    (ORIGDEV | LOSS | QDISC_BYPASS | TX_HAS_OFF, n) => i32::from(n != 0),
                    (_, n) => n,
                };
                let mut s = self.settings.lock();
                s.kept.retain(|(other, _)| *other != name);
                s.kept.push((name, n));
                Ok(())
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    /// The devices' sockets bring what is for their address, for all and for groups: being in a
    /// group or promiscuous changes nothing.
    fn membership(&self, joins: bool, v: &[u8]) -> Result<()> {
        const PACKET_MREQ: usize = 16;
        if v.len() < PACKET_MREQ {
            return Err(EINVAL);
        }
        let device = int_of(v)?;
        let kind = u16::from_le_bytes([v[4], v[5]]);
        let len = usize::from(u16::from_le_bytes([v[6], v[7]]));
        if len > 8 || v.len() < 8 + len {
            return Err(EINVAL);
        }
        let it = (device, kind, v[8..8 + len].to_vec());
        let mut s = self.settings.lock();
        if joins {
            self.common.ns.interface(device).ok_or(ENODEV)?;
            // An address is a whole one.
            if len > 6 || matches!(kind, MULTICAST | UNICAST) && len != 6 {
                return Err(EINVAL);
            }
            if s.memberships.len() >= MOST {
                return Err(abi::errno::ENOBUFS);
            }
            s.memberships.push(it);
            return Ok(());
        }
        if let Some(at) = s.memberships.iter().position(|m| *m == it) {
            s.memberships.remove(at);
        }
        Ok(())
    }

    /// Has it join a group of which one gets each packet (`fanout_add`).
    fn set_fanout(&self, v: &[u8]) -> Result<()> {
        let word = int_of(v)? as u32;
        let most = match v.len() {
            4 => 0,
            8 => int_of(&v[4..])? as u32,
            _ => return Err(EINVAL),
        };
        let bound = *self.rx.bound.read();
        let (kind, flags) = (Kind::of((word >> 16) as u8)?, (word >> 24) as u8);
        let mut asked = JoinRequest {
            id: word as u16,
            kind,
            flags: flags & !UNIQUE_ID,
            most,
            device: bound.device,
            protocol: bound.protocol,
        };
        if flags & DEFRAGMENT != 0 || kind == Kind::Rollover && flags & ROLLOVER != 0 {
            return Err(EINVAL);
        }
        // Nobody else makes the same group meanwhile.
        let taps = &self.common.ns.taps;
        let grouping = taps.grouping.lock();
        if self.rx.fanout.read().is_some() {
            return Err(EALREADY);
        }
        if flags & UNIQUE_ID != 0 {
            if asked.id != 0 {
                return Err(EINVAL);
            }
            asked.id = taps.free_fanout().ok_or(ENOMEM)?;
        }
        if bound.protocol == 0 {
            return Err(EINVAL);
        }
        let group = match taps.fanout(asked.id) {
            Some(g) => g,
            None => Fanout::new(asked)?,
        };
        group.join(&asked, self.rx.clone())?;
        *self.rx.fanout.write() = Some(group);
        drop(grouping);
        Ok(())
    }

    /// PACKET_FANOUT_DATA: what chooses, as `struct sock_fprog` says it.
    fn set_fanout_program(&self, v: &[u8]) -> Result<()> {
        let group = self.rx.fanout.read().clone().ok_or(EINVAL)?;
        if group.kind() != Kind::Program {
            return Err(EINVAL);
        }
        if self.common.flag(SO_LOCK_FILTER) {
            return Err(EPERM);
        }
        group.set_program(Filter::new(v, self.common.user.get())?);
        Ok(())
    }

    /// Makes a ring of frames to be sent, or takes it away.
    fn set_send_ring(&self, v: &[u8]) -> Result<()> {
        let s = self.settings.lock();
        let version = s.version;
        let request = Request::read(v, version)?;
        if self.is_mapped() {
            return Err(EBUSY);
        }
        let mut tx = self.tx.lock();
        if request.block_nr == 0 {
            if !request.is_empty() {
                return Err(EINVAL);
            }
            let old = tx.take();
            drop(tx);
            drop(old);
            return Ok(());
        }
        if tx.is_some() {
            return Err(EBUSY);
        }
        if version == Version::V3 && request.asks_for_blocks() {
            return Err(EINVAL);
        }
        *tx = Some(self.new_ring(request, version, 0)?);
        Ok(())
    }

    /// Whether somebody maps one of the rings: both stay as they are then.
    fn is_mapped(&self) -> bool {
        let of = |r: &Option<Ring>| r.as_ref().is_some_and(|r| r.memory().is_mapped());
        of(&self.rx.queue.lock().ring) || of(&self.tx.lock())
    }

    fn new_ring(&self, request: Request, version: Version, reserve: usize) -> Result<Ring> {
        let len = request.check(version, reserve)?;
        let user = self.common.user.get();
        let charge = match user {
            Some(u) => Some(u.charge(Kmem, len, u64::MAX).ok_or(ENOMEM)?),
            None => None,
        };
        let memory = self.common.ns.memory().ok_or(ENOMEM)?;
        let memory = RingMemory::new(memory, len, charge)?;
        Ok(Ring::new(memory, version, request, reserve))
    }

    /// Makes a ring, or takes it away (`packet_set_ring`).
    fn set_ring(&self, v: &[u8]) -> Result<()> {
        let s = self.settings.lock();
        let (version, reserve) = (s.version, s.reserve as usize);
        let request = Request::read(v, version)?;
        if self.is_mapped() {
            return Err(EBUSY);
        }
        if request.block_nr == 0 {
            if !request.is_empty() {
                return Err(EINVAL);
            }
            self.rx.queue.lock().ring = None;
            return Ok(());
        }
        if self.rx.queue.lock().ring.is_some() {
            return Err(EBUSY);
        }
        let ring = self.new_ring(request, version, reserve)?;
        self.rx.queue.lock().ring = Some(ring);
        Ok(())
    }

    pub(super) fn get(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        let int = |n: i32| Ok(n.to_le_bytes().to_vec());
        let s = self.settings.lock();
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => int(0),
            (SOL_PACKET, STATISTICS) => {
                let mut q = self.rx.queue.lock();
                let (packets, drops) =
                    (std::mem::take(&mut q.packets), std::mem::take(&mut q.drops));
                let mut v = packets.wrapping_add(drops).to_le_bytes().to_vec();
                v.extend_from_slice(&drops.to_le_bytes());
                if s.version == Version::V3 {
                    let freezes = q.ring.as_mut().map(|r| std::mem::take(&mut r.freezes));
                    v.extend_from_slice(&freezes.unwrap_or(0).to_le_bytes());
                }
                Ok(v)
            }
            (SOL_PACKET, FANOUT) => {
                let f = self.rx.fanout.read();
                int(f.as_ref().map_or(0, |f| f.number() as i32))
            }
            (SOL_PACKET, ROLLOVER_STATS) => {
                let f = self.rx.fanout.read();
                let counts = f.as_ref().and_then(|f| f.rollovers()).ok_or(EINVAL)?;
                Ok(counts.iter().flat_map(|n| n.to_le_bytes()).collect())
            }
            (SOL_PACKET, VERSION) => int(s.version as i32),
            (SOL_PACKET, RESERVE) => int(s.reserve as i32),
            (SOL_PACKET, PACKET_AUXDATA) => int(s.auxdata.into()),
            (SOL_PACKET, IGNORE_OUTGOING) => int(self.rx.bound.read().ignores_outgoing.into()),
            (SOL_PACKET, ORIGDEV | LOSS | VNET_HDR | TIMESTAMP | QDISC_BYPASS | TX_HAS_OFF) => {
                int(s.kept(name))
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    /// PACKET_HDRLEN is asked with a version.
    pub(super) fn get_of(&self, level: i32, name: i32, v: &[u8]) -> Option<Result<Vec<u8>>> {
        if (level, name) != (SOL_PACKET, HDRLEN) {
            return None;
        }
        let of = |n: i32| Version::of(n).map(|v| (v.header() as i32).to_le_bytes().to_vec());
        Some(int_of(v).and_then(of))
    }
}
