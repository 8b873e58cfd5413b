//! The receiving side of a packet socket: what it gets of a frame that passes.

use super::ring::{CSUM_NOT_READY, CSUM_VALID, Put, Ring};
use crate::filters::Packet;
use crate::interface::NO_HEADER;
use crate::options::Common;
use crate::taps::fanout::Fanout;
use crate::taps::{At, Census, OUTGOING, Seen, Tap, Way};
use crate::work::{Job, Next, Ticket, Worker};
use abi::Result;
use abi::errno::EAGAIN;
use bytes::Bytes;
use netstack::ip::FrameMeta;
use netstack::time::Instant;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, Kind};
use wait::Events;

/// What a waiting packet costs beyond its bytes.
const OVERHEAD: usize = 512;
const ETH_P_ALL: u16 = 3;
const AF_PACKET: u16 = 17;

impl Seen<'_> {
    /// `struct sockaddr_ll`.
    pub fn address(&self) -> [u8; 20] {
        let mut from = [0; 6];
        let bare = self.at.hardware == NO_HEADER;
        if let Some(mac) = self.frame.get(6..12).filter(|_| !bare) {
            from.copy_from_slice(mac);
        }
        let At {
            device, hardware, ..
        } = self.at;
        let mut a = address(self.protocol, device, hardware, self.kind, from);
        if bare {
            a[11] = 0;
        }
        a
    }

    /// What a status says of checksums.
    pub fn sums(&self) -> u32 {
        if self.meta.flags & FrameMeta::NEEDS_CSUM != 0 {
            CSUM_NOT_READY
        } else if self.kind != OUTGOING && self.meta.flags & FrameMeta::DATA_VALID != 0 {
            CSUM_VALID
        } else {
            0
        }
    }
}

/// `struct sockaddr_ll`, with an address of six bytes.
pub(super) fn address(
    protocol: u16,
    device: i32,
    hardware: u16,
    kind: u8,
    mac: [u8; 6],
) -> [u8; 20] {
    let mut a = [0; 20];
    a[..2].copy_from_slice(&AF_PACKET.to_le_bytes());
    a[2..4].copy_from_slice(&protocol.to_be_bytes());
    a[4..8].copy_from_slice(&device.to_le_bytes());
    a[8..10].copy_from_slice(&hardware.to_le_bytes());
    a[10] = kind;
    a[11] = 6;
    a[12..18].copy_from_slice(&mac);
    a
}

/// A packet that waits.
#[derive(Clone)]
pub(super) struct ReceivedPacket {
    pub data: Bytes,
    /// Its whole length.
    pub len: usize,
    pub from: [u8; 20],
    pub status: u32,
    pub network: usize,
    pub time: i64,
}

/// What a socket asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PacketBinding {
    /// 0: all devices.
    pub device: i32,
    /// 0: nothing.
    pub protocol: u16,
    pub ignores_outgoing: bool,
}

/// What of packets a socket is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// SOCK_RAW: with their link header.
    Raw,
    /// SOCK_DGRAM: without it.
    Cooked,
}

/// The receiving side of a packet socket.
pub(crate) struct PacketRx {
    pub(super) common: Arc<Common>,
    pub(super) mode: Mode,
    pub(super) bound: RwLock<PacketBinding>,
    pub(super) queue: Mutex<Queue>,
    /// Leaf lock.
    pub(super) fanout: RwLock<Option<Arc<Fanout>>>,
    worker: Arc<Worker>,
    me: Weak<PacketRx>,
    ticket: Ticket,
}

#[derive(Default)]
pub(super) struct Queue {
    pub waiting: VecDeque<ReceivedPacket>,
    pub bytes: usize,
    memory: Option<Charge>,
    pub ring: Option<Ring>,
    pub packets: u32,
    pub drops: u32,
}

impl PacketRx {
    pub(super) fn new(common: &Arc<Common>, mode: Mode, protocol: u16) -> Arc<PacketRx> {
        Arc::new_cyclic(|me| PacketRx {
            common: common.clone(),
            mode,
            bound: RwLock::new(PacketBinding {
                protocol,
                ..PacketBinding::default()
            }),
            queue: Mutex::default(),
            fanout: RwLock::default(),
            worker: common.ns.worker.clone(),
            me: me.clone(),
            ticket: Ticket::default(),
        })
    }

    fn keep(&self, q: &mut Queue, seen: &Seen<'_>, data: &[u8], len: usize) -> Put {
        let size = data.len() + OVERHEAD;
        let most = self.common.rcvbuf.load(Ordering::Relaxed) as usize;
        if q.bytes + size > most {
            return Put::Full;
        }
        if q.memory.is_none() {
            q.memory = self.common.user.get().map(|u| u.force(Kind::Kmem, 0));
        }
        let memory = q.memory.as_mut();
        if memory.is_some_and(|m| !m.grow(size as u64, u64::MAX)) {
            return Put::Full;
        }
        q.bytes += size;
        q.waiting.push_back(ReceivedPacket {
            data: Bytes::copy_from_slice(data),
            len,
            from: seen.address(),
            status: 1 | seen.sums(),
            network: match self.mode {
                Mode::Raw => seen.network,
                Mode::Cooked => 0,
            },
            time: seen.time,
        });
        Put::Shown
    }

    /// The first packet: taken, or shared with the queue (MSG_PEEK).
    pub(super) fn first(&self, peek: bool) -> Result<ReceivedPacket> {
        let mut q = self.queue.lock();
        if peek {
            return q.waiting.front().cloned().ok_or(EAGAIN);
        }
        let w = q.waiting.pop_front().ok_or(EAGAIN)?;
        q.bytes -= w.data.len() + OVERHEAD;
        let left = q.bytes as u64;
        if let Some(m) = &mut q.memory {
            m.set(left);
        }
        Ok(w)
    }

    pub(super) fn is_readable(&self) -> bool {
        let q = self.queue.lock();
        !q.waiting.is_empty() || q.ring.as_ref().is_some_and(Ring::is_readable)
    }
}

impl Tap for PacketRx {
    fn wants(&self, device: i32, protocol: u16, way: Way) -> bool {
        let b = *self.bound.read();
        let all = b.protocol == ETH_P_ALL;
        let by_way = match way {
            Way::In => true,
            // Those of one protocol see what comes only.
            Way::Out => all && !b.ignores_outgoing,
            Way::By(ino) => all && !b.ignores_outgoing && ino != self.common.ino,
        };
        by_way
            && (all || b.protocol == protocol && protocol != 0)
            && (b.device == 0 || b.device == device)
    }

    fn put(&self, seen: &Seen<'_>) {
        let data = match self.mode {
            Mode::Raw => seen.frame,
            Mode::Cooked => &seen.frame[seen.network..],
        };
        let most = match self.common.filter.is_on() {
            false => Some(data.len()),
            true => {
                let p = Packet {
                    data,
                    frame: seen.frame,
                    network: seen.network,
                    protocol: seen.protocol,
                    kind: seen.kind,
                    device: seen.at.device,
                    hardware: seen.at.hardware,
                };
                self.common.filter.admits(&p, 0)
            }
        };
        let Some(cut) = most.and_then(|n| data.get(..n)) else {
            return;
        };
        let mut q = self.queue.lock();
        let drops = q.drops;
        let (put, due) = match &mut q.ring {
            Some(ring) => {
                let put = ring.put(seen, self.mode, (cut, data.len()), drops);
                (put, ring.due())
            }
            None => (self.keep(&mut q, seen, cut, data.len()), None),
        };
        match put {
            Put::Full => q.drops = q.drops.wrapping_add(1),
            Put::Shown | Put::Kept => q.packets = q.packets.wrapping_add(1),
        }
        drop(q);
        if put == Put::Shown {
            self.common.notify(Events::READABLE);
        }
        if let (Some(due), Some(me)) = (due, self.me.upgrade()) {
            let job: Arc<dyn Job> = me;
            self.worker.at(&job, due);
        }
    }

    fn number(&self) -> u64 {
        self.common.ino
    }

    fn fanout(&self) -> Option<Arc<Fanout>> {
        self.fanout.read().clone()
    }

    /// As `packet_rcv_has_room`'s ROOM_NORMAL: a quarter.
    fn has_room(&self) -> bool {
        let q = self.queue.lock();
        match &q.ring {
            Some(r) => r.has_room(),
            None => {
                let most = self.common.rcvbuf.load(Ordering::Relaxed) as usize;
                most.saturating_sub(q.bytes) > most / 4
            }
        }
    }

    /// One that is bound to it is told.
    fn device_gone(&self, device: i32) {
        if self.bound.read().device == device {
            self.common.set_error(abi::errno::ENETDOWN);
            self.common.notify(Events::READABLE | Events::ERR);
        }
    }

    fn census(&self) -> Census {
        let b = *self.bound.read();
        Census {
            common: self.common.clone(),
            kind: self.common.kind,
            protocol: b.protocol,
            device: b.device,
            bytes: self.queue.lock().bytes,
        }
    }
}

impl Job for PacketRx {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    fn work(&self, now: Instant) -> Next {
        let (over, due) = match &mut self.queue.lock().ring {
            Some(r) => (r.expire(now), r.due()),
            None => return Next::Nothing,
        };
        if over {
            self.common.notify(Events::READABLE);
        }
        due.map_or(Next::Nothing, Next::At)
    }
}
