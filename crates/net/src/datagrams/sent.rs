//! When datagrams went, for a socket that asked for it (SO_TIMESTAMPING; [`crate::stamps`]).

use super::{DatagramSocket, Wishes};
use crate::errors::{Report, Step};
use crate::receivers::Arrival;
use crate::stamps::{OPT_CMSG, OPT_TSONLY, TX_RECORD, TX_SCHED, TX_SOFTWARE};
use bytes::Bytes;
use std::net::IpAddr;

/// What one send asks for.
pub(crate) struct SendStamps<'a> {
    socket: &'a DatagramSocket,
    /// `SOF_TIMESTAMPING_*`.
    flags: u32,
    number: u32,
    queued: std::cell::Cell<i64>,
}

impl DatagramSocket {
    /// Which times of a send are told, by the socket's option and by its own.
    pub fn stamps(&self, w: &Wishes) -> SendStamps<'_> {
        let all = self.common.stamps.flags();
        let flags = w.stamps.map_or(all, |s| all & !TX_RECORD | s);
        let asks = flags & (TX_SOFTWARE | TX_SCHED) != 0;
        SendStamps {
            socket: self,
            flags,
            number: if asks { self.common.stamps.number() } else { 0 },
            queued: std::cell::Cell::new(0),
        }
    }
}

impl SendStamps<'_> {
    /// It comes to the device's queue.
    pub fn queued(&self) {
        if self.flags & TX_SCHED != 0 {
            self.queued.set(hostcall::time::clock_nanos(0));
        }
    }

    /// It has gone from `source`; `frame` gives the whole packet (`__skb_tstamp_tx`).
    pub fn sent(&self, source: IpAddr, to: Arrival, frame: impl FnOnce() -> Bytes) {
        if self.flags & (TX_SOFTWARE | TX_SCHED) == 0 {
            return;
        }
        let frame = match self.flags & OPT_TSONLY {
            0 => frame(),
            _ => Bytes::new(),
        };
        let shown = self.flags & OPT_CMSG != 0 && !frame.is_empty();
        let from = shown.then_some(source);
        let errors = &self.socket.errors;
        let put = |step| Report::sent(step, self.number, (from, to), &frame);
        if self.flags & TX_SCHED != 0 {
            errors.put(put(Step::Queued).at(self.queued.get()));
        }
        if self.flags & TX_SOFTWARE != 0 {
            errors.put(put(Step::Sent));
        }
    }
}
