//! The receive queue of a socket of datagrams (UDP, ICMP, raw), and what it tells of each.
//!
//! Who brings a datagram never waits for who reads: a message is taken out of the queue, or shared
//! for a peek, before it is copied to a program's memory. One that cannot be copied is lost, as on
//! Linux.

use crate::addr::Endpoint;
use crate::control::Control;
use crate::inet::*;
use crate::msgqueue::put_all;
use crate::options::{Common, SO_MARK, SO_PRIORITY, SO_RCVMARK, SO_RCVPRIORITY, SO_RXQ_OVFL};
use crate::peeks;
use crate::protocol::Received;
use crate::receivers::Arrival;
use crate::sys::*;
use abi::Result;
use abi::errno::EAGAIN;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Sink;
use vfs::ucounts::{Charge, Kind};
use wait::Events;

/// What a datagram costs beyond its bytes.
const OVERHEAD: usize = 512;

/// See the module.
pub(crate) struct DatagramQueue {
    common: Arc<Common>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    msgs: VecDeque<Datagram>,
    bytes: usize,
    /// The same, as the owner's.
    memory: Option<Charge>,
    shut: bool,
    /// How many found no room.
    lost: u32,
}

/// One that came.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub data: Bytes,
    pub from: Endpoint,
    pub came: Arrival,
    /// CLOCK_REALTIME, in nanoseconds.
    time: i64,
    /// How many were lost until then.
    lost: u32,
    /// Of an empty one: a peek has shown it.
    shown: bool,
}

impl peeks::Message for Datagram {
    fn bytes(&self) -> usize {
        self.data.len()
    }
    fn shown(&mut self) -> &mut bool {
        &mut self.shown
    }
}

impl DatagramQueue {
    pub fn new(common: &Arc<Common>) -> DatagramQueue {
        DatagramQueue {
            common: common.clone(),
            state: Mutex::default(),
        }
    }

    /// A datagram comes; false where it is lost, for there is no room.
    pub fn put(&self, data: Bytes, from: Endpoint, came: Arrival) -> bool {
        {
            let mut q = self.state.lock();
            let limit = self.common.rcvbuf.load(Ordering::Relaxed) as usize;
            let size = data.len() + OVERHEAD;
            if q.shut {
                return true;
            }
            if q.bytes + size > limit.max(size) {
                q.lost = q.lost.wrapping_add(1);
                return false;
            }
            if q.memory.is_none() {
                q.memory = self.common.user.get().map(|u| u.force(Kind::Kmem, 0));
            }
            if q.memory
                .as_mut()
                .is_some_and(|m| !m.grow(size as u64, u64::MAX))
            {
                return false;
            }
            q.bytes += size;
            let lost = q.lost;
            q.msgs.push_back(Datagram {
                data,
                from,
                came,
                time: hostcall::time::clock_nanos(0),
                lost,
                shown: false,
            });
        }
        self.common.notify(Events::READABLE);
        true
    }

    /// The first one: taken, or shared with the queue (MSG_PEEK), where it is that at the offset of
    /// `skip` bytes; and how many bytes of it come before.
    fn first(&self, flags: u32, skip: Option<usize>) -> Result<Option<(Datagram, usize)>> {
        let mut q = self.state.lock();
        if flags & MSG_PEEK != 0 {
            if let Some((m, past)) = peeks::find(&mut q.msgs, skip) {
                return Ok(Some((m.clone(), past)));
            }
        } else if let Some(m) = q.msgs.pop_front() {
            q.bytes -= m.data.len() + OVERHEAD;
            let left = q.bytes as u64;
            if let Some(c) = &mut q.memory {
                c.set(left);
            }
            return Ok(Some((m, 0)));
        }
        if q.shut { Ok(None) } else { Err(EAGAIN) }
    }

    /// A receive; where peeks have an offset, from there on.
    pub fn receive(
        &self,
        dst: &mut dyn Sink,
        flags: u32,
        options: &InetOptions,
    ) -> Result<Received> {
        let peeks = &self.common.peeks;
        // (Pings keep the offset, and do not go by it.)
        let has_offset = self.common.protocol == IPPROTO_UDP;
        let skip = peeks.skip(flags).filter(|_| has_offset);
        let Some((m, past)) = self.first(flags, skip)? else {
            return Ok(Received::default());
        };
        let (len, room) = (m.data.len(), dst.remaining());
        let n = put_all(dst, &m.data[past..])?;
        // Who asks for more than is left is told of nothing, for as much of all that it is cut.
        let cut = room <= len - past && room < len;
        let told = if flags & MSG_TRUNC != 0 { len } else { n };
        if has_offset {
            peeks.received(flags, told);
        }
        Ok(Received {
            n: told,
            addr: m.from.encode_from(self.common.family, m.came.device),
            control: self.control(options, &m),
            flags: if cut { MSG_TRUNC } else { 0 },
            ..Received::default()
        })
    }

    /// What is told with one.
    fn control(&self, options: &InetOptions, m: &Datagram) -> Control {
        let common = &self.common;
        let mut c = Control::default();
        common.stamps.came(m.time, &mut c);
        let mut put = |asked, name, v: u32| {
            if common.flag(asked) {
                c.other.push((SOL_SOCKET, name, v.to_le_bytes().to_vec()));
            }
        };
        if m.lost > 0 {
            put(SO_RXQ_OVFL, SO_RXQ_OVFL, m.lost);
        }
        put(SO_RCVMARK, SO_MARK, m.came.mark);
        put(SO_RCVPRIORITY, SO_PRIORITY, m.came.priority as u32);
        control_for(common, options, m.came, &mut c);
        c
    }

    /// A datagram comes that is not taken.
    pub fn lose(&self) {
        let mut q = self.state.lock();
        q.lost = q.lost.wrapping_add(1);
    }

    /// How many found no room.
    pub fn lost(&self) -> u32 {
        self.state.lock().lost
    }

    pub fn shut(&self) {
        self.state.lock().shut = true;
    }

    /// Whether there are some, and whether no more will be read.
    pub fn status(&self) -> (bool, bool) {
        let q = self.state.lock();
        (!q.msgs.is_empty(), q.shut)
    }

    /// What its datagrams take of its buffer.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    pub fn first_len(&self) -> usize {
        self.state.lock().msgs.front().map_or(0, |m| m.data.len())
    }

    pub fn clear(&self) {
        let old = std::mem::take(&mut *self.state.lock());
        drop(old);
    }
}

/// The control messages that its socket asked for.
pub(super) fn control_for(common: &Common, options: &InetOptions, came: Arrival, c: &mut Control) {
    let index = came.device.to_le_bytes();
    let ttl = i32::from(came.ttl).to_le_bytes().to_vec();
    if let IpAddr::V4(to) = came.to {
        if options.on(SOL_IP, IP_PKTINFO) {
            let mut v = index.to_vec();
            v.extend_from_slice(&to.octets());
            v.extend_from_slice(&to.octets());
            c.other.push((SOL_IP, IP_PKTINFO, v));
        }
        if options.on(SOL_IP, IP_RECVTTL) {
            c.other.push((SOL_IP, IP_TTL, ttl.clone()));
        }
        if options.on(SOL_IP, IP_RECVTOS) {
            c.other.push((SOL_IP, IP_TOS, vec![came.tos]));
        }
        if options.on(SOL_IP, IP_RECVORIGDSTADDR) {
            let to = Endpoint::new(came.to, came.port);
            c.other
                .push((SOL_IP, IP_RECVORIGDSTADDR, to.encode(AF_INET)));
        }
    }
    if common.family == AF_INET6 {
        let pktinfo = || {
            let ip = match came.to {
                IpAddr::V4(a) => a.to_ipv6_mapped(),
                IpAddr::V6(a) => a,
            };
            [&ip.octets()[..], &index].concat()
        };
        for (asked, name) in [
            (IPV6_RECVPKTINFO, IPV6_PKTINFO),
            (IPV6_2292PKTINFO, IPV6_2292PKTINFO),
        ] {
            if options.on(SOL_IPV6, asked) {
                c.other.push((SOL_IPV6, name, pktinfo()));
            }
        }
        // These are of IPv6's own packets (`ip6_datagram_recv_specific_ctl`).
        for (asked, name) in [
            (IPV6_RECVHOPLIMIT, IPV6_HOPLIMIT),
            (IPV6_2292HOPLIMIT, IPV6_2292HOPLIMIT),
        ] {
            if came.to.is_ipv6() && options.on(SOL_IPV6, asked) {
                c.other.push((SOL_IPV6, name, ttl.clone()));
            }
        }
        if came.to.is_ipv6() && options.on(SOL_IPV6, IPV6_RECVTCLASS) {
            let class = i32::from(came.tos).to_le_bytes().to_vec();
            c.other.push((SOL_IPV6, IPV6_TCLASS, class));
        }
        if options.on(SOL_IPV6, IPV6_RECVORIGDSTADDR) {
            let to = Endpoint::new(came.to, came.port);
            let v = to.encode_from(AF_INET6, came.device);
            c.other.push((SOL_IPV6, IPV6_RECVORIGDSTADDR, v));
        }
    }
}
