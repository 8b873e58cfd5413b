//! The error queue of a socket (`IP_RECVERR` of `ip(7)`): what ICMP told of what was sent, what was
//! too large to be sent, and when something went (SO_TIMESTAMPING).
//!
//! It takes no more than the receive buffer's size, and is its owner's memory.

use crate::addr::Endpoint;
use crate::control::Control;
use crate::inet::{IP_RECVERR, IPV6_RECVERR};
use crate::msgqueue::put_all;
use crate::options::Common;
use crate::protocol::Received;
use crate::receivers::Arrival;
use crate::stamps::StampOf;
use crate::sys::*;
use abi::errno::EAGAIN;
use abi::{Errno, Result};
use bytes::Bytes;
use netstack::ip::IcmpError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Sink;
use vfs::ucounts::{Charge, Kind};
use wait::Events;

/// `SO_EE_ORIGIN_*`.
const LOCAL: u8 = 1;
const ICMP: u8 = 2;
const ICMP6: u8 = 3;
const TIMESTAMPING: u8 = 4;
/// What a report costs beyond its bytes.
const OVERHEAD: usize = 768;

/// `SCM_TSTAMP_*`: what happened to what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Sent = 0,
    Queued = 1,
    /// Of TCP: its peer has it.
    Acknowledged = 2,
}

/// `struct sock_extended_err`, the addresses beside it, and what was sent.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    errno: Errno,
    origin: u8,
    kind: u8,
    code: u8,
    info: u32,
    data: u32,
    /// Where it was sent.
    to: Endpoint,
    /// Who tells of it; nobody, where this host refused it.
    offender: Option<IpAddr>,
    payload: Bytes,
    came: Arrival,
    time: i64,
}

impl Report {
    /// What an ICMP message says of what was sent `to`, from `offender`.
    pub fn icmp(
        e: &IcmpError,
        to: Endpoint,
        offender: IpAddr,
        payload: &[u8],
        came: Arrival,
    ) -> Report {
        Report {
            errno: e.errno,
            origin: if offender.is_ipv4() { ICMP } else { ICMP6 },
            kind: e.icmp_type,
            code: e.code,
            info: e.info,
            data: 0,
            to,
            offender: Some(offender),
            payload: Bytes::copy_from_slice(payload),
            came,
            time: hostcall::time::clock_nanos(0),
        }
    }

    /// A datagram was larger than `mtu`.
    pub fn too_big(to: Endpoint, mtu: u32) -> Report {
        Report {
            errno: abi::errno::EMSGSIZE,
            origin: LOCAL,
            kind: 0,
            code: 0,
            info: mtu,
            data: 0,
            to,
            offender: None,
            payload: Bytes::new(),
            came: Arrival::inside(to.ip, 0),
            time: hostcall::time::clock_nanos(0),
        }
    }

    /// What was sent, when it went; `number` is its own. `from`: where a program is told so.
    pub fn sent(
        step: Step,
        number: u32,
        (from, came): (Option<IpAddr>, Arrival),
        frame: &Bytes,
    ) -> Report {
        Report {
            errno: abi::errno::ENOMSG,
            origin: TIMESTAMPING,
            kind: 0,
            code: 0,
            info: step as u32,
            data: number,
            to: Endpoint::new(came.to, 0),
            offender: from,
            payload: frame.clone(),
            came,
            time: hostcall::time::clock_nanos(0),
        }
    }

    /// The same, at another time.
    pub fn at(self, time: i64) -> Report {
        Report { time, ..self }
    }

    fn size(&self) -> usize {
        self.payload.len() + OVERHEAD
    }

    /// The control message, with the offender's address.
    fn encode(&self, family: u16) -> (i32, i32, Vec<u8>) {
        let mut v = self.errno.raw().to_le_bytes().to_vec();
        v.extend_from_slice(&[self.origin, self.kind, self.code, 0]);
        v.extend_from_slice(&self.info.to_le_bytes());
        v.extend_from_slice(&self.data.to_le_bytes());
        let len = if family == AF_INET { 16 } else { 28 };
        match self.offender {
            Some(ip) => {
                let from = Endpoint { ip, port: 0 };
                v.extend_from_slice(&from.encode_from(family, self.came.device));
            }
            None => v.resize(16 + len, 0),
        }
        match family {
            AF_INET => (SOL_IP, IP_RECVERR, v),
            _ => (SOL_IPV6, IPV6_RECVERR, v),
        }
    }
}

/// See the module.
pub(crate) struct ErrorQueue {
    common: Arc<Common>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reports: VecDeque<Report>,
    bytes: usize,
    /// The same, as the owner's.
    memory: Option<Charge>,
}

impl State {
    fn set_bytes(&mut self, n: usize) {
        self.bytes = n;
        if let Some(m) = &mut self.memory {
            m.set(n as u64);
        }
    }
}

impl ErrorQueue {
    pub fn new(common: &Arc<Common>) -> ErrorQueue {
        ErrorQueue {
            common: common.clone(),
            state: Mutex::default(),
        }
    }

    /// Keeps a report; it is lost where there is no room.
    pub fn put(&self, r: Report) {
        {
            let mut q = self.state.lock();
            let most = self.common.rcvbuf.load(Ordering::Relaxed) as usize;
            let size = r.size();
            if q.bytes + size >= most {
                return;
            }
            if q.memory.is_none() {
                q.memory = self.common.user.get().map(|u| u.force(Kind::Kmem, 0));
            }
            let memory = q.memory.as_mut();
            if memory.is_some_and(|m| !m.grow(size as u64, u64::MAX)) {
                return;
            }
            q.bytes += size;
            q.reports.push_back(r);
        }
        self.common.notify(Events::ERR);
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().reports.is_empty()
    }

    pub fn clear(&self) {
        let old = std::mem::take(&mut *self.state.lock());
        drop(old);
    }

    /// The first one. SO_ERROR becomes that of the next ICMP message (`sock_dequeue_err_skb`).
    fn take(&self) -> Result<Report> {
        let is_icmp = |r: &Report| matches!(r.origin, ICMP | ICMP6);
        let mut q = self.state.lock();
        let r = q.reports.pop_front().ok_or(EAGAIN)?;
        let left = q.bytes - r.size();
        q.set_bytes(left);
        let next = q.reports.front().map(|n| (is_icmp(n), n.errno));
        drop(q);
        match next {
            Some((true, e)) => self.common.set_error(e),
            _ if is_icmp(&r) => drop(self.common.take_error()),
            _ => {}
        }
        if next.is_some() {
            self.common.notify(Events::ERR);
        }
        Ok(r)
    }

    /// A receive with MSG_ERRQUEUE: it never waits. `more` adds what the socket asked for beside
    /// it.
    pub fn receive(
        &self,
        dst: &mut dyn Sink,
        more: impl FnOnce(Arrival, &mut Control),
    ) -> Result<Received> {
        let r = self.take()?;
        let family = self.common.family;
        let n = put_all(dst, &r.payload)?;
        let mut control = Control::default();
        self.common
            .stamps
            .tell(r.time, StampOf::Error, &mut control);
        if r.offender.is_some() {
            more(r.came, &mut control);
        }
        control.other.push(r.encode(family));
        let cut = if n < r.payload.len() { MSG_TRUNC } else { 0 };
        Ok(Received {
            n,
            addr: match r.origin {
                TIMESTAMPING => Vec::new(),
                _ => r.to.encode_from(family, r.came.device),
            },
            control,
            flags: MSG_ERRQUEUE | cut,
            ..Received::default()
        })
    }
}
