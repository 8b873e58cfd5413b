//! The connections of a stack, by their ends; and what is left of those in TIME_WAIT, which have no
//! socket any longer.
//!
//! # What holds
//!
//! - A connection is in it from its first segment to its end, or until it becomes an [`Old`].
//! - At most [`OLD_MOST`] are left in TIME_WAIT: one more ends the oldest
//!   (`net.ipv4.tcp_max_tw_buckets`). All last 60 s, so the queue is in the order of their ends;
//!   one that a late FIN makes last longer is looked at again when its first time is over.

use super::connection::Remote;
use crate::bindings::Binding;
use crate::ns::NetNamespace;
use crate::tcp::Listener;
use netstack::ip::Pair;
use netstack::tcp::{Segment, Seq, TimeWait, TimeWaitAnswer};
use netstack::time::Instant;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// See the module.
const OLD_MOST: usize = 32_768;

/// A connection may follow one by the same ends after a second of its 60 (`tcp_tw_reuse_delay`).
const RECYCLED_LEFT: Duration = Duration::from_secs(59);
/// How many are looked at for one to follow.
const LOOKED_AT: usize = 4096;

/// What is left of a connection.
struct Old {
    rest: TimeWait,
    /// Its port is taken until the end.
    binding: Option<Arc<Binding<Listener>>>,
    /// Its place in the queue: another's between the same ends has another.
    turn: u64,
}

#[derive(Default)]
pub(super) struct Connections {
    live: RwLock<HashMap<Pair, Arc<Remote>>>,
    old: Mutex<Olds>,
}

#[derive(Default)]
struct Olds {
    all: HashMap<Pair, Old>,
    /// When each is over, at the earliest. Places of those that have gone are passed over.
    order: VecDeque<(Instant, u64, Pair)>,
    turn: u64,
}

/// What an old connection makes of a segment.
pub(super) enum Late {
    /// There is none.
    Unknown,
    Answer(TimeWaitAnswer),
}

impl Connections {
    pub fn get(&self, pair: &Pair) -> Option<Arc<Remote>> {
        self.live.read().get(pair).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Remote>> {
        self.live.read().values().cloned().collect()
    }

    /// The ends of those in TIME_WAIT.
    pub fn old(&self) -> Vec<Pair> {
        self.old.lock().all.keys().copied().collect()
    }

    /// Whether it is there from now on: no, where these ends have a connection.
    pub fn insert(&self, pair: Pair, c: Arc<Remote>) -> bool {
        let mut live = self.live.write();
        if live.contains_key(&pair) || self.old.lock().all.contains_key(&pair) {
            return false;
        }
        live.insert(pair, c);
        true
    }

    /// Takes this one out, not another between the same ends.
    pub fn remove(&self, pair: &Pair, c: *const Remote) {
        let mut live = self.live.write();
        if live
            .get(pair)
            .is_some_and(|l| std::ptr::eq(Arc::as_ptr(l), c))
        {
            live.remove(pair);
        }
    }

    /// A connection without a socket has come to TIME_WAIT.
    pub fn retire(
        &self,
        ns: &NetNamespace,
        (pair, c): (Pair, *const Remote),
        rest: TimeWait,
        binding: Option<Arc<Binding<Listener>>>,
    ) {
        let (before, dropped) = {
            let mut o = self.old.lock();
            o.turn += 1;
            let turn = o.turn;
            o.order.push_back((rest.deadline(), turn, pair));
            let new = Old {
                rest,
                binding,
                turn,
            };
            let before = o.all.insert(pair, new);
            // Of those that were recycled, places are left.
            let over = o.all.len() > OLD_MOST || o.order.len() > 4 * OLD_MOST;
            (before, if over { o.oldest() } else { None })
        };
        self.remove(&pair, c);
        free(ns, before);
        free(ns, dropped);
    }

    /// A segment of no live connection.
    pub fn late(
        &self,
        ns: &NetNamespace,
        now: Instant,
        stamp: u32,
        pair: &Pair,
        segment: &Segment,
    ) -> Late {
        let mut o = self.old.lock();
        let Some(old) = o.all.get_mut(pair) else {
            return Late::Unknown;
        };
        let answer = old.rest.segment(now, stamp, segment);
        if matches!(answer, TimeWaitAnswer::Recycle(_) | TimeWaitAnswer::Gone) {
            let gone = o.all.remove(pair);
            drop(o);
            free(ns, gone);
        }
        Late::Answer(answer)
    }

    /// Takes the one between these ends out, where timestamps tell a new one's segments from its
    /// own (`tcp_twsk_unique`); the sequence number after all of its own.
    pub fn recycle(&self, ns: &NetNamespace, pair: &Pair) -> Option<Seq> {
        let gone = {
            let mut o = self.old.lock();
            o.all.get(pair).filter(|o| o.rest.timestamp().is_some())?;
            o.all.remove(pair)?
        };
        let next = gone.rest.next();
        free(ns, Some(gone));
        Some(next)
    }

    /// The oldest between an address of this host and `to` that is old enough for that, and whose
    /// port only connections have.
    pub fn recyclable(&self, now: Instant, (ip, to): (IpAddr, SocketAddr)) -> Option<Pair> {
        let o = self.old.lock();
        let fits = |pair: &&Pair| {
            let is_there = pair.local.ip() == ip && same(pair.remote, to);
            is_there
                && o.all.get(pair).is_some_and(|old| {
                    let shared = old.binding.as_ref().is_some_and(|b| b.is_shared());
                    let is_old = old.rest.deadline().since(now) <= RECYCLED_LEFT;
                    shared && is_old && old.rest.timestamp().is_some()
                })
        };
        let looked_at = o.order.iter().take(LOOKED_AT).map(|(_, _, pair)| pair);
        looked_at.into_iter().find(fits).copied()
    }

    /// Ends those whose time is over; when to come again.
    pub fn expire(&self, ns: &NetNamespace, now: Instant) -> Option<Instant> {
        loop {
            let gone = {
                let mut o = self.old.lock();
                match o.order.front() {
                    None => return None,
                    Some((at, ..)) if *at > now => return Some(*at),
                    Some(_) => o.first_if_over(now),
                }
            };
            free(ns, gone);
        }
    }
}

impl Olds {
    /// Takes the oldest one out.
    fn oldest(&mut self) -> Option<Old> {
        loop {
            let (_, turn, pair) = self.order.pop_front()?;
            if self.all.get(&pair).is_some_and(|o| o.turn == turn) {
                return self.all.remove(&pair);
            }
        }
    }

    /// Takes the first place of the queue: the one that has it ends, unless it lasts longer by now.
    fn first_if_over(&mut self, now: Instant) -> Option<Old> {
        let (_, turn, pair) = self.order.pop_front()?;
        let old = self.all.get(&pair).filter(|o| o.turn == turn)?;
        let end = old.rest.deadline();
        if end > now {
            self.order.push_back((end, turn, pair));
            return None;
        }
        self.all.remove(&pair)
    }
}

/// Whether two ends are the same, whatever device one of them names.
fn same(a: SocketAddr, b: SocketAddr) -> bool {
    a.ip() == b.ip() && a.port() == b.port()
}

fn free(ns: &NetNamespace, old: Option<Old>) {
    if let Some(b) = old.and_then(|o| o.binding) {
        ns.tcp.unbind(&b);
    }
}
