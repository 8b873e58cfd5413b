//! The host's descriptors whose readiness is the sandbox's sockets'.
//!
//! # Invariants
//!
//! - Each descriptor never blocks, and is watched from before its first use until it is closed,
//!   edge-triggered; so a caller that got `EAGAIN` and waits on the socket's queue is woken by the
//!   next change.
//! - A token of a socket that is gone wakes another socket for nothing at worst.

use crate::options::Common;
use abi::Result;
use hostcall::HostFd;
use hostcall::inet::Edges;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use wait::Events;

/// The token of what is no socket: see [`Readiness::watch_channel`].
const CHANNEL: u64 = u64::MAX;

/// See the module.
pub struct Readiness {
    edges: Edges,
    sockets: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    all: Vec<Option<Weak<Common>>>,
    free: Vec<usize>,
}

/// A socket that is watched, until this is dropped.
pub struct Watched {
    by: Arc<Readiness>,
    token: usize,
}

impl Readiness {
    /// `edges` was made before the allow-list, which does not have that call.
    pub fn new(edges: Edges) -> Arc<Readiness> {
        Arc::new(Readiness {
            edges,
            sockets: Mutex::default(),
        })
    }

    /// From now on changes of `fd` are told to those that wait for `common`.
    pub fn watch(self: &Arc<Self>, fd: &HostFd, common: &Arc<Common>) -> Result<Watched> {
        let token = {
            let mut t = self.sockets.lock();
            let at = t.free.pop().unwrap_or_else(|| {
                t.all.push(None);
                t.all.len() - 1
            });
            t.all[at] = Some(Arc::downgrade(common));
            at
        };
        let watched = Watched {
            by: self.clone(),
            token,
        };
        self.edges.add(fd.raw(), token as u64)?;
        Ok(watched)
    }

    /// Has [`Readiness::serve`] call its function when something comes by a channel.
    pub fn watch_channel(&self, fd: &HostFd) -> Result<()> {
        self.edges.add(fd.raw(), CHANNEL)
    }

    /// Turns the host's readiness into notifications, on a thread of its own; for ever.
    pub fn serve(&self, mut channel: impl FnMut()) {
        loop {
            let Ok(events) = self.edges.wait() else {
                continue;
            };
            for (token, bits) in events {
                if token == CHANNEL {
                    channel();
                    continue;
                }
                let common = {
                    let t = self.sockets.lock();
                    t.all
                        .get(token as usize)
                        .and_then(|s| s.as_ref()?.upgrade())
                };
                if let Some(c) = common {
                    c.notify(widen(Events::from_bits_retain(bits)));
                }
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut t = self.by.sockets.lock();
        t.all[self.token] = None;
        t.free.push(self.token);
    }
}

/// Readiness as programs ask for it: the host tells of `POLLIN` and `POLLOUT` only.
pub fn widen(e: Events) -> Events {
    let mut all = e;
    if e.contains(Events::IN) {
        all |= Events::RDNORM;
    }
    if e.contains(Events::OUT) {
        all |= Events::WRNORM;
    }
    all
}

/// What poll(2) tells of a descriptor now.
pub fn now(fd: &HostFd) -> Events {
    const POLLIN: i16 = 1;
    const POLLPRI: i16 = 2;
    const POLLOUT: i16 = 4;
    const POLLRDHUP: i16 = 0x2000;
    let mut p = [hostcall::file::PollFd {
        fd: fd.raw(),
        events: POLLIN | POLLPRI | POLLOUT | POLLRDHUP,
        revents: 0,
    }];
    match hostcall::file::poll(&mut p, 0) {
        Ok(_) => widen(Events::from_bits_retain(u32::from(p[0].revents as u16))),
        Err(_) => Events::ERR,
    }
}
