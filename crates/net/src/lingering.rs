//! SO_LINGER: a close that waits until what was sent is acknowledged (`socket(7)`;
//! `sk_stream_wait_close`).
//!
//! # What holds
//!
//! - The socket is closed before anybody waits: its end is on its way, and nothing depends on the
//!   wait. It only keeps who closed it.
//! - Who waits is told on the socket's queue (HUP, OUT) when nothing is unacknowledged any more.
//! - A reset (no time at all) never waits, nor does a process that ends.

use crate::options::Common;
use abi::Result;
use abi::errno::EAGAIN;
use std::sync::Arc;
use std::time::Duration;
use wait::{Events, WaitQueue};

/// A connection, as who closes its socket looks at it. See the module.
pub struct Lingering {
    common: Arc<Common>,
    time: Duration,
    what: Arc<dyn Unacknowledged>,
}

/// What a connection has still to say.
pub trait Unacknowledged: Send + Sync {
    /// Whether the other end has still to acknowledge something, the end included.
    fn awaits_the_last(&self) -> bool;
}

impl Lingering {
    pub(crate) fn new(common: &Arc<Common>, what: Arc<dyn Unacknowledged>) -> Option<Lingering> {
        let time = common.lingers().filter(|t| !t.is_zero())?;
        let common = common.clone();
        Some(Lingering { common, time, what })
    }

    /// How long its close waits at most.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Where it is told that nothing is left to wait for, and by what.
    #[must_use]
    pub fn queue(&self) -> (&WaitQueue, Events) {
        (&self.common.queue, Events::WRITABLE | Events::HUP)
    }

    /// `EAGAIN` while something is not acknowledged.
    ///
    /// # Errors
    ///
    /// No other.
    pub fn is_over(&self) -> Result<()> {
        match self.what.awaits_the_last() {
            true => Err(EAGAIN),
            false => Ok(()),
        }
    }
}
