//! The connections of a stack, by their ends; and what is left of those in TIME_WAIT, which have no
//! socket any longer.
//!
//! # What holds
//!
//! - A connection is in it from its first segment to its end, or until it becomes an [`Old`].
//! - At most [`OLD_MOST`] are left in TIME_WAIT: one more ends the oldest
//!   (`net.ipv4.tcp_max_tw_buckets`). All last 60 s, so the queue is in the order of their ends; one
//!   that a late FIN makes last longer is looked at again when its first time is over.

use super::connection::Remote;
use crate::ns::{Binding, NetNamespace};
use crate::tcp::Listener;
use netstack::ip::Pair;
use netstack::tcp::{Segment, TimeWait, TimeWaitAnswer};
use netstack::time::Instant;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// See the module.
const OLD_MOST: usize = 32_768;

/// What is left of a connection.
struct Old {
    rest: TimeWait,
    /// Its port is taken until the end.
    binding: Option<Arc<Binding<Listener>>>,
}

#[derive(Default)]
pub(super) struct Connections {
    live: RwLock<HashMap<Pair, Arc<Remote>>>,
    old: Mutex<Olds>,
}

#[derive(Default)]
struct Olds {
    all: HashMap<Pair, Old>,
    order: VecDeque<(Instant, Pair)>,
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

    pub fn insert(&self, pair: Pair, c: Arc<Remote>) {
        self.live.write().insert(pair, c);
    }

    pub fn remove(&self, pair: &Pair) {
        self.live.write().remove(pair);
    }

    /// A connection without a socket has come to TIME_WAIT.
    pub fn retire(
        &self,
        ns: &NetNamespace,
        pair: Pair,
        rest: TimeWait,
        binding: Option<Arc<Binding<Listener>>>,
    ) {
        let dropped = {
            let mut o = self.old.lock();
            o.order.push_back((rest.deadline(), pair));
            o.all.insert(pair, Old { rest, binding });
            match o.all.len() > OLD_MOST {
                true => o.oldest(),
                false => None,
            }
        };
        self.live.write().remove(&pair);
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

    /// Ends those whose time is over; when to come again.
    pub fn expire(&self, ns: &NetNamespace, now: Instant) -> Option<Instant> {
        loop {
            let gone = {
                let mut o = self.old.lock();
                match o.order.front() {
                    None => return None,
                    Some((at, _)) if *at > now => return Some(*at),
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
            let (_, pair) = self.order.pop_front()?;
            if let Some(old) = self.all.remove(&pair) {
                return Some(old);
            }
        }
    }

    /// Takes the first place of the queue: the one that has it ends, unless it lasts longer by now.
    fn first_if_over(&mut self, now: Instant) -> Option<Old> {
        let (_, pair) = self.order.pop_front()?;
        let end = self.all.get(&pair)?.rest.deadline();
        if end > now {
            self.order.push_back((end, pair));
            return None;
        }
        self.all.remove(&pair)
    }
}

fn free(ns: &NetNamespace, old: Option<Old>) {
    if let Some(b) = old.and_then(|o| o.binding) {
        ns.tcp.unbind(&b);
    }
}
