//! When what a stream sends goes, and when its peer has it (SO_TIMESTAMPING;
//! `tcp_tx_timestamp`): told in the error queue, by the number of the last byte of a send.

use super::shown::drain_seen;
use super::{Phase, Tcp};
use crate::addr::Endpoint;
use crate::control::Control;
use crate::errors::{ErrorQueue, Report, Step};
use crate::frames::sent_tcp_frame;
use crate::options::{Common, int_of};
use crate::receivers::Arrival;
use crate::stamps::{
    OPT_TSONLY, SO_TIMESTAMPING, SO_TIMESTAMPING_NEW, TX_ACK, TX_RECORD, TX_SCHED, TX_SOFTWARE,
};
use crate::sys::{MSG_DONTWAIT, SOL_SOCKET};
use abi::Result;
use abi::errno::EINVAL;
use bytes::Bytes;
use hostcall::MemSlice;
use std::sync::Arc;
use vfs::Source;
use vfs::ucounts::{Charge, Kind};

/// The most bytes of a send that are shown with its times.
const SHOWN: usize = 32 << 10;
const TOLD: u32 = TX_SCHED | TX_SOFTWARE | TX_ACK;

/// What one send asks for.
pub(crate) struct Stamped {
    pub errors: Arc<ErrorQueue>,
    flags: u32,
    number: u32,
    ends: (Endpoint, Endpoint),
    data: Bytes,
    /// It is its socket's owner's memory.
    _charge: Option<Charge>,
}

impl Stamped {
    pub fn wants_ack(&self) -> bool {
        self.flags & TX_ACK != 0
    }

    /// Its last byte goes.
    pub fn goes(&self) {
        for (flag, step) in [(TX_SCHED, Step::Queued), (TX_SOFTWARE, Step::Sent)] {
            if self.flags & flag != 0 {
                let (from, to) = self.ends;
                let frame = match self.data.is_empty() {
                    true => Bytes::new(),
                    false => sent_tcp_frame(from, to, &self.data).into(),
                };
                self.tell(step, &frame);
            }
        }
    }

    /// Its last byte is acknowledged.
    pub fn acknowledged(&self) {
        if self.wants_ack() {
            self.tell(Step::Acknowledged, &self.data);
        }
    }

    fn tell(&self, step: Step, frame: &Bytes) {
        let to = Arrival::inside(self.ends.1.ip, 0);
        let report = Report::sent(step, self.number, (None, to), frame);
        self.errors.put(report);
    }
}

/// The flags of one send, where some times are to be told: the socket's, but for those that its own
/// control message says.
pub(super) fn asked(common: &Common, control: &Control) -> Result<Option<u32>> {
    let mut flags = common.stamps.flags();
    for (level, name, v) in &control.other {
        if *level == SOL_SOCKET && matches!(*name, SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) {
            let own = int_of(v)? as u32;
            if v.len() != 4 || own & !TX_RECORD != 0 {
                return Err(EINVAL);
            }
            flags = flags & !TX_RECORD | own;
        }
    }
    Ok(Some(flags).filter(|f| f & TOLD != 0))
}

/// A source whose last bytes are kept.
pub(super) struct Kept<'a> {
    inner: &'a mut dyn Source,
    data: Option<Vec<u8>>,
}

impl<'a> Kept<'a> {
    pub fn new(inner: &'a mut dyn Source, flags: Option<u32>) -> Kept<'a> {
        let shows = flags.is_some_and(|f| f & OPT_TSONLY == 0);
        Kept {
            inner,
            data: shows.then(Vec::new),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if let Some(d) = &mut self.data {
            let bytes = &bytes[bytes.len().saturating_sub(SHOWN)..];
            let too_many = (d.len() + bytes.len()).saturating_sub(SHOWN);
            d.drain(..too_many.min(d.len()));
            d.extend_from_slice(bytes);
        }
    }
}

impl Source for Kept<'_> {
    fn remaining(&self) -> usize {
        self.inner.remaining()
    }
    fn take(&mut self, dst: &mut [u8]) -> Result<usize> {
        let n = self.inner.take(dst)?;
        self.keep(&dst[..n]);
        Ok(n)
    }
    fn drain(
        &mut self,
        max: usize,
        drain: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        if self.data.is_none() {
            return self.inner.drain(max, drain);
        }
        let (n, seen) = drain_seen(self.inner, max.min(SHOWN), drain)?;
        self.keep(&seen);
        Ok(n)
    }
}

impl Tcp {
    pub(super) fn errors(&self) -> &Arc<ErrorQueue> {
        let new = || Arc::new(ErrorQueue::new(&self.common));
        self.errors.get_or_init(new)
    }

    /// Sends, and has told what was asked for of it.
    pub(super) fn send_stamped(
        &self,
        src: &mut dyn Source,
        asks: Option<u32>,
        flags: u32,
        send: impl FnOnce(&mut dyn Source) -> Result<usize>,
    ) -> Result<usize> {
        let mut kept = Kept::new(src, asks);
        let n = send(&mut kept)?;
        if n == 0 {
            return Ok(n);
        }
        let number = self.common.stamps.number_of_last(n);
        // Of a send that goes on it is the last byte of all.
        let is_last = kept.remaining() == 0 || flags & MSG_DONTWAIT != 0;
        if let Some(asked) = asks.filter(|_| is_last) {
            let data = kept.data.take().unwrap_or_default().into();
            self.tell_of(asked, number, data);
        }
        Ok(n)
    }

    fn tell_of(&self, flags: u32, number: u32, data: Bytes) {
        // Who may have no more memory is not told, as where no room is in the error queue.
        let charge = match self.common.user.get() {
            Some(u) => {
                let bytes = size_of::<Stamped>() + data.len();
                let Some(c) = u.charge(Kind::Kmem, bytes as u64, u64::MAX) else {
                    return;
                };
                Some(c)
            }
            None => None,
        };
        let errors = self.errors().clone();
        let of = |ends| Stamped {
            errors,
            flags,
            number,
            ends,
            data,
            _charge: charge,
        };
        match &self.state.read().phase {
            // What is said inside has come by then.
            Phase::Connected(c) => {
                let s = of((c.local, c.remote));
                s.goes();
                s.acknowledged();
            }
            Phase::Outside(o) => o.clone().tell_when_sent(of((o.local(), o.remote()))),
            _ => {}
        }
    }
}
