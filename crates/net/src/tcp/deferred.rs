//! TCP_DEFER_ACCEPT in memory (`tcp(7)`): a connection is given to its listener's accept queue when
//! who connects has said something, or when the time is over. (By packets: `stack::connection`.)
//!
//! # What holds
//!
//! - A connection is in [`AcceptQueue::deferred`] or in `ready`, or it was accepted; who takes it
//!   out of the first puts it into the second, or ends it.
//! - Who connects sees a connection all the same. Its first byte or its end tells the listener,
//!   its reset takes the connection away (`tcp_check_req`).
//! - Not more wait than handshakes with somebody outside may be under way; more are not deferred,
//!   as with cookies.

use super::{AcceptQueue, Connection, Listener, Tcp};
use crate::clock::now;
use crate::inet::TCP_DEFER_ACCEPT;
use crate::stream::Half;
use crate::sys::SOL_TCP;
use crate::work::{Job, Next, Ticket};
use netstack::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wait::Events;

/// A connection that waits to be accepted until its first byte comes.
pub(super) struct Deferred {
    pub tcp: Arc<Tcp>,
    /// What it receives by.
    rx: Arc<Half>,
    until: Instant,
}

/// Of who connects: whom its first byte is told.
#[derive(Default)]
pub(super) struct Deferral {
    listener: Weak<Listener>,
    waits: AtomicBool,
}

/// What ends the wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// A byte, or the end.
    Said,
    Reset,
}

impl Listener {
    /// How long it waits for a connection's first byte; none: it does not.
    pub(crate) fn defers(&self) -> Option<Duration> {
        let secs = self.options.value(SOL_TCP, TCP_DEFER_ACCEPT);
        u64::try_from(secs)
            .ok()
            .filter(|n| *n > 0)
            .map(Duration::from_secs)
    }

    /// Gives it a new connection, which receives by `rx`. Its queue is held.
    pub(super) fn add(
        self: &Arc<Self>,
        q: &mut AcceptQueue,
        tcp: Arc<Tcp>,
        rx: &Arc<Half>,
    ) -> Deferral {
        let most = super::outside::HALF_OPEN;
        let room = q.deferred.len() < q.backlog.clamp(most.0, most.1);
        let Some(time) = self.defers().filter(|_| room) else {
            q.ready.push_back(tcp);
            return Deferral::default();
        };
        let until = now() + time;
        q.deferred.push(Deferred {
            tcp,
            rx: rx.clone(),
            until,
        });
        let job: Arc<dyn Job> = self.clone();
        self.common.ns.worker.at(&job, until);
        Deferral {
            listener: Arc::downgrade(self),
            waits: AtomicBool::new(true),
        }
    }

    /// The one that receives by `rx` waits no more; it is given back where it was reset.
    fn undefer(&self, rx: &Arc<Half>, first: First) -> Option<Arc<Tcp>> {
        let mut q = self.queue.lock();
        let at = q.deferred.iter().position(|d| Arc::ptr_eq(&d.rx, rx))?;
        let tcp = q.deferred.remove(at).tcp;
        if first == First::Reset {
            return Some(tcp);
        }
        q.ready.push_back(tcp);
        drop(q);
        self.common.notify(Events::READABLE);
        None
    }
}

impl Job for Listener {
    fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Those whose time is over are accepted without a byte.
    fn work(&self, now: Instant) -> Next {
        let mut q = self.queue.lock();
        let (over, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut q.deferred)
            .into_iter()
            .partition(|d| d.until <= now);
        q.deferred = rest;
        let next = q.deferred.iter().map(|d| d.until).min();
        let some = !over.is_empty();
        q.ready.extend(over.into_iter().map(|d| d.tcp));
        drop(q);
        if some {
            self.common.notify(Events::READABLE);
        }
        next.map_or(Next::Nothing, Next::At)
    }
}

impl Connection {
    /// The first that this end says, if it is that. The caller holds no lock where it is a reset.
    pub(super) fn says(&self, first: First) {
        let d = &self.deferral;
        if !d.waits.load(Ordering::Relaxed) || !d.waits.swap(false, Ordering::Relaxed) {
            return;
        }
        let reset = d
            .listener
            .upgrade()
            .and_then(|l| l.undefer(&self.tx, first));
        if let Some(tcp) = reset {
            tcp.abort();
        }
    }
}
