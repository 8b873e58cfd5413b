//! What UDP_CORK and MSG_MORE hold back (`udp(7)`): the bytes of several sends become one datagram.
//!
//! It holds one datagram's bytes at most, as the owner's memory. What is too long is dropped with
//! all before it, as Linux drops it (`udp_flush_pending_frames`).

use super::{Message, max_payload};
use crate::options::Common;
use abi::Result;
use abi::errno::{EMSGSIZE, ENOBUFS};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::ucounts::{Charge, Kind};

/// See the module. A leaf lock.
#[derive(Default)]
pub(super) struct Cork {
    held: Mutex<Option<PendingDatagram>>,
    /// Whether something is held.
    used: AtomicBool,
}

struct PendingDatagram {
    message: Message,
    data: Vec<u8>,
    memory: Option<Charge>,
}

impl Cork {
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Begins a datagram, unless one was begun.
    pub fn begin(&self, message: Message) {
        let mut held = self.held.lock();
        held.get_or_insert_with(|| PendingDatagram {
            message,
            data: Vec::new(),
            memory: None,
        });
        self.used.store(true, Ordering::Relaxed);
    }

    /// Adds to it.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`, `ENOBUFS`: all is dropped.
    pub fn add(&self, common: &Common, data: &[u8]) -> Result<()> {
        let mut held = self.held.lock();
        let Some(h) = &mut *held else { return Ok(()) };
        let fits = h.data.len() + data.len() <= max_payload(h.message.to.ip);
        if h.memory.is_none() {
            h.memory = common.user.get().map(|u| u.force(Kind::Kmem, 0));
        }
        let more = data.len() as u64;
        let has_memory = fits && h.memory.as_mut().is_none_or(|m| m.grow(more, u64::MAX));
        if !has_memory {
            *held = None;
            self.used.store(false, Ordering::Relaxed);
            return Err(if fits { ENOBUFS } else { EMSGSIZE });
        }
        h.data.extend_from_slice(data);
        Ok(())
    }

    /// Takes it out.
    pub fn take(&self) -> Option<(Message, Vec<u8>)> {
        let held = self.held.lock().take();
        self.used.store(false, Ordering::Relaxed);
        held.map(|h| (h.message, h.data))
    }
}
