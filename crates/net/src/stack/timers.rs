//! When connections must be looked at.

use super::connection::Remote;
use super::now;
use netstack::time::Instant;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// The place of a connection in the queue.
pub(super) type Place = (Instant, u64);

/// See the module. Each connection is in it once at most.
#[derive(Default)]
pub(super) struct Timers {
    queue: Mutex<Queue>,
    earlier: Condvar,
}

#[derive(Default)]
struct Queue {
    all: BTreeMap<Place, Weak<Remote>>,
    next: u64,
    /// When something beside connections has to be looked at.
    beside: Option<Instant>,
    /// Until when the thread sleeps; none: for ever.
    until: Option<Instant>,
}

impl Timers {
    /// Has `c` looked at by `deadline`: puts it there unless it has an earlier place.
    pub fn set(&self, place: &mut Option<Place>, deadline: Instant, c: &Weak<Remote>) {
        if place.is_some_and(|(at, _)| at <= deadline) {
            return;
        }
        let mut q = self.queue.lock();
        if let Some(old) = place.take() {
            q.all.remove(&old);
        }
        q.next += 1;
        let new = (deadline, q.next);
        q.all.insert(new, c.clone());
        *place = Some(new);
        self.wake(&mut q, deadline);
    }

    pub fn forget(&self, place: &mut Option<Place>) {
        if let Some(old) = place.take() {
            self.queue.lock().all.remove(&old);
        }
    }

    /// Something else has to be looked at by then.
    pub fn look_at(&self, deadline: Option<Instant>) {
        if let Some(d) = deadline {
            let mut q = self.queue.lock();
            q.beside = Some(q.beside.map_or(d, |b| b.min(d)));
            self.wake(&mut q, d);
        }
    }

    fn wake(&self, q: &mut Queue, deadline: Instant) {
        if q.until.is_none_or(|u| deadline < u) {
            q.until = Some(deadline);
            self.earlier.notify_one();
        }
    }

    /// Waits until `beside` at most, or until connections have come to their time. Those have no
    /// place any longer.
    pub fn wait(&self, beside: Option<Instant>) -> Vec<Arc<Remote>> {
        let mut q = self.queue.lock();
        let first = q.all.keys().next().map(|p| p.0);
        let until = [first, beside, q.beside.take()];
        let until = until.into_iter().flatten().min();
        let t = now();
        if until.is_none_or(|u| u > t) {
            q.until = until;
            match until {
                Some(u) => {
                    self.earlier.wait_for(&mut q, u.since(t));
                }
                None => self.earlier.wait(&mut q),
            }
        }
        // Awake: who comes now need not wake it.
        q.until = Some(Instant(0));
        let t = now();
        let later = q.all.split_off(&(t, u64::MAX));
        let due = std::mem::replace(&mut q.all, later);
        due.into_values().filter_map(|w| w.upgrade()).collect()
    }
}
