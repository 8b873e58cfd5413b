//! The host's descriptors whose readiness is the sandbox's sockets'.
//!
//! # Invariants
//!
//! - Each descriptor never blocks, and is watched from before its first use until it is closed,
//!   edge-triggered; so a caller that got `EAGAIN` and waits on the socket's queue is woken by the
//!   next change.
//! - A token of a socket that is gone wakes another socket for nothing at worst.
//! - Who takes a change tells of it before anybody else takes one. What is left of the channel is
//!   a change once more, for whoever waits.

use crate::options::Common;
use abi::Result;
use hostcall::HostFd;
use hostcall::inet::{Edges, RingEnds};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use wait::Events;
use wait::lead::{Ask, Lead, Role, Work, Worked};

/// The token of what is no socket: see [`Readiness::watch_channel`].
const CHANNEL: u64 = u64::MAX;

/// See the module.
pub struct Readiness {
    edges: Edges,
    sockets: Mutex<Table>,
    lead: OnceLock<Arc<Lead>>,
    /// The channel's descriptor, which stays open.
    channel: OnceLock<i32>,
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
            lead: OnceLock::new(),
            channel: OnceLock::new(),
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
        let _ = self.channel.set(fd.raw());
        self.edges.add(fd.raw(), CHANNEL)
    }

    /// There may be more in the channel: whoever waits for changes hears of it.
    fn tell_again(&self) {
        if let Some(fd) = self.channel.get() {
            let _ = self.edges.tell_again(*fd, CHANNEL);
        }
    }

    /// Turns the host's readiness into notifications, on a thread of its own, or by the task that
    /// waits ([`wait::lead`]); for ever. `channel` takes a little of what has come by
    /// one, and says whether there may be more.
    pub fn serve(self: &Arc<Self>, channel: impl Fn() -> Left + Send + Sync + 'static) {
        let changes = Changes {
            readiness: self.clone(),
            channel: Mutex::new(Box::new(channel)),
        };
        let lead = Lead::new(Box::new(changes));
        self.lead.get_or_init(|| lead).serve()
    }

    /// Turns what has changed into notifications, where nobody else does just now; whether there
    /// was something. For calls, before they look or where they find nothing: without any lock.
    pub fn catch_up(&self, ask: Ask) -> bool {
        self.lead.get().is_some_and(|l| l.catch_up(ask))
    }

    /// The socket that is watched by a token.
    fn socket(&self, token: u64) -> Option<Arc<Common>> {
        let t = self.sockets.lock();
        t.all.get(token as usize)?.as_ref()?.upgrade()
    }
}

/// The changes of a set of descriptors, as work.
struct Changes {
    readiness: Arc<Readiness>,
    /// Its turn: who works holds it until all that it took is told.
    channel: Mutex<Box<dyn Fn() -> Left + Send + Sync>>,
}

/// Whether there may be more in a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Nothing,
    Something,
}

impl Work for Changes {
    fn work(&self) -> Worked {
        // (Another one is at the end of its turn.)
        let Some(channel) = self.channel.try_lock() else {
            return Worked::Nothing;
        };
        let told = self.readiness.edges.take(|token, bits| match token {
            CHANNEL => {
                if channel() == Left::Something {
                    self.readiness.tell_again();
                }
            }
            _ => {
                if let Some(c) = self.readiness.socket(token) {
                    c.notify(widen(Events::from_bits_retain(bits)));
                }
            }
        });
        match told {
            Ok(0) => Worked::Nothing,
            Ok(_) => Worked::Something,
            Err(_) => Worked::Failed,
        }
    }

    fn sleep(&self, most: Option<Duration>, by: Role) {
        let most = most.map_or(-1, |d| i32::try_from(d.as_millis()).unwrap_or(i32::MAX));
        let ends = match by {
            Role::Leader => RingEnds::Yes,
            Role::Service => RingEnds::No,
        };
        // (A signal ends it, too.)
        let _ = self.readiness.edges.wait(most, ends);
    }

    fn ring(&self) {
        self.readiness.edges.ring();
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
