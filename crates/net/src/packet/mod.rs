//! Packet sockets (`packet(7)`): what passes on the devices of a namespace, with its link header
//! (SOCK_RAW) or without (SOCK_DGRAM), and frames that a program makes.
//!
//! ```text
//! mod      a socket: what its calls do
//! receive  what it gets of a frame
//! send     frames from programs, and transmit, rings of them
//! options  options, and rings
//! ring     rings of packets: TPACKET_V1 to V3
//! memory   a ring's memory
//! ```
//!
//! A socket sees the frames of its own namespace's devices only. What goes by the loopback device
//! is no frame here but for these sockets ([`crate::loopback`]).

mod options;
pub use options::FANOUT_DATA;
mod receive;
mod ring;
mod send;
mod transmit;

use crate::control::Control;
use crate::interface::NO_HEADER;
use crate::msgqueue::put_all;
use crate::ns::NetNamespace;
use crate::options::Common;
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::sys::*;
use abi::Result;
use abi::errno::{EINVAL, ENETDOWN, ENODEV, EOPNOTSUPP, EPERM, ESOCKTNOSUPPORT};
use clas::Mappable;
use options::Settings;
use parking_lot::Mutex;
use receive::{Mode, PacketRx};
use ring::Ring;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::ring::RingPair;
use vfs::{Caps, Credentials, Sink, Source};
use wait::Events;

const PACKET_AUXDATA: i32 = 8;
/// `struct sockaddr_ll`, and where its hardware address begins.
const ADDRESS: usize = 20;
const HARDWARE_ADDRESS: usize = 12;

/// See the module.
pub struct PacketSocket {
    common: Arc<Common>,
    rx: Arc<PacketRx>,
    settings: Mutex<Settings>,
    /// Leaf lock.
    tx: Mutex<Option<Ring>>,
}

/// Makes a packet socket: `EPERM` without CAP_NET_RAW, and in the host's namespace.
pub(crate) fn new(
    ns: &Arc<NetNamespace>,
    kind: u32,
    protocol: i32,
    who: &Caller<'_>,
) -> Result<Parts> {
    if !who.cred.has_in(&ns.user, Caps::NET_RAW) || ns.host.is_some() {
        return Err(EPERM);
    }
    if !matches!(kind, SOCK_RAW | SOCK_DGRAM) {
        return Err(ESOCKTNOSUPPORT);
    }
    let common = Common::new(ns, AF_PACKET, kind, protocol);
    let number = u16::from_be(protocol as u16);
    let mode = match kind {
        SOCK_RAW => Mode::Raw,
        _ => Mode::Cooked,
    };
    let rx = PacketRx::new(&common, mode, number);
    ns.taps.add(rx.clone())?;
    let socket = PacketSocket {
        common: common.clone(),
        rx,
        settings: Mutex::default(),
        tx: Mutex::default(),
    };
    Ok(Parts::new(common, Arc::new(socket)))
}

impl Protocol for PacketSocket {
    fn bind(&self, _: &Caller<'_>, addr: &[u8]) -> Result<()> {
        if addr.len() < ADDRESS || crate::addr::family_of(addr)? != AF_PACKET {
            return Err(EINVAL);
        }
        let device = i32::from_le_bytes([addr[4], addr[5], addr[6], addr[7]]);
        let found = match device {
            0 => None,
            n => Some(self.common.ns.interface(n).ok_or(ENODEV)?),
        };
        if self.rx.fanout.read().is_some() {
            return Err(EINVAL);
        }
        let mut b = self.rx.bound.write();
        b.device = device;
        let protocol = u16::from_be_bytes([addr[2], addr[3]]);
        if protocol != 0 {
            b.protocol = protocol;
        }
        drop(b);
        if found.is_some_and(|i| !i.is_up()) {
            self.common.set_error(ENETDOWN);
            self.common.notify(Events::ERR);
        }
        Ok(())
    }

    fn connect(&self, _: &Caller<'_>, _: &[u8], _: Block) -> Result<()> {
        Err(EOPNOTSUPP)
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        let b = *self.rx.bound.read();
        let i = self.common.ns.interface(b.device);
        let (hardware, mac) = i
            .as_ref()
            .map_or((0, [0; 6]), |i| (i.hardware_kind(), i.mac));
        let mut a = receive::address(b.protocol, b.device, hardware, 0, mac).to_vec();
        if i.is_none() || hardware == NO_HEADER {
            a[11] = 0;
            a.truncate(HARDWARE_ADDRESS);
        } else {
            a.truncate(HARDWARE_ADDRESS + 6);
        }
        Ok(a)
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        Err(EOPNOTSUPP)
    }

    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        _: Control,
        flags: u32,
    ) -> Result<usize> {
        let _ = flags & (MSG_DONTWAIT | MSG_NOSIGNAL);
        self.send_frame(who, src, dest)
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        const KNOWN: u32 = MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC | MSG_ERRQUEUE;
        if flags & !KNOWN != 0 {
            return Err(EINVAL);
        }
        self.common.take_error()?;
        let w = self.rx.first(flags & MSG_PEEK != 0)?;
        let n = put_all(dst, &w.data)?;
        let mut control = Control::default();
        self.common.stamps.came(w.time, &mut control);
        if self.settings.lock().auxdata {
            let mut v = w.status.to_le_bytes().to_vec();
            v.extend_from_slice(&(w.len as u32).to_le_bytes());
            v.extend_from_slice(&(w.data.len() as u32).to_le_bytes());
            v.extend_from_slice(&[0, 0]);
            v.extend_from_slice(&(w.network as u16).to_le_bytes());
            v.extend_from_slice(&[0; 4]);
            control.other.push((SOL_PACKET, PACKET_AUXDATA, v));
        }
        Ok(Received {
            n: if flags & MSG_TRUNC != 0 {
                w.data.len()
            } else {
                n
            },
            addr: w.from.to_vec(),
            control,
            flags: if n < w.data.len() { MSG_TRUNC } else { 0 },
            ..Received::default()
        })
    }

    fn shutdown(&self, _: Shutdown) -> Result<()> {
        Err(EOPNOTSUPP)
    }

    fn poll(&self) -> Events {
        let mut e = Events::WRITABLE;
        if self.rx.is_readable() {
            e |= Events::READABLE;
        }
        if self.common.has_error() {
            e |= Events::ERR;
        }
        e
    }

    fn set_option(&self, _: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        self.set(level, name, v)
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        self.get(level, name)
    }

    fn option_of(&self, level: i32, name: i32, v: &[u8]) -> Option<Result<Vec<u8>>> {
        self.get_of(level, name, v)
    }

    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        let rx = self
            .rx
            .queue
            .lock()
            .ring
            .as_ref()
            .map(|r| r.memory().clone());
        let tx = self.tx.lock().as_ref().map(|r| r.memory().clone());
        match (rx, tx) {
            (None, None) => Err(EINVAL),
            (Some(one), None) | (None, Some(one)) => Ok(one),
            (Some(rx), Some(tx)) => Ok(Arc::new(RingPair::new(rx, tx))),
        }
    }

    fn unread(&self) -> Result<usize> {
        let q = self.rx.queue.lock();
        Ok(q.waiting.front().map_or(0, |w| w.data.len()))
    }

    fn close(&self) {
        self.common.ns.taps.remove(&*self.rx);
        if let Some(f) = self.rx.fanout.write().take() {
            f.leave(&*self.rx);
        }
        let old = std::mem::take(&mut *self.rx.queue.lock());
        drop(old);
    }
}

/// How much a program may send at once.
fn send_room(common: &Common) -> usize {
    common.sndbuf.load(Ordering::Relaxed) as usize
}

#[cfg(test)]
mod tests {
    use super::options::FANOUT;
    use crate::socket::Socket;
    use crate::sys::{AF_PACKET, SOCK_RAW, SOL_PACKET};
    use crate::testing::World;
    use abi::errno::ENOSPC;
    use std::sync::{Arc, Barrier};
    use vfs::Credentials;

    /// Of those that ask for a group of one member at the same time one gets it.
    #[test]
    fn a_group_is_made_once() {
        let w = World {
            cred: Arc::new(Credentials::user(0, 0, vec![])),
            ..World::new()
        };
        let all = i32::from(u16::to_be(3));
        let make = || crate::socket(&w.ns, AF_PACKET.into(), SOCK_RAW, all, &w.who()).unwrap();
        for id in 1..60u32 {
            let both: [Arc<Socket>; 2] = [make(), make()];
            // PACKET_FANOUT_LB.
            let asked = [id | 1 << 16, 1].map(u32::to_le_bytes).concat();
            let barrier = Barrier::new(2);
            let join = |s: &Socket| {
                barrier.wait();
                s.set_option(&w.cred, SOL_PACKET, FANOUT, &asked)
            };
            let (a, b) = std::thread::scope(|t| {
                let other = t.spawn(|| join(&both[0]));
                (join(&both[1]), other.join().unwrap())
            });
            assert_eq!([a, b].iter().filter(|r| **r == Err(ENOSPC)).count(), 1);
        }
    }
}
