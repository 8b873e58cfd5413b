//! When connections must be looked at.

use super::connection::Remote;
use crate::clock::now;
use crate::work::{Job, Worker};
use netstack::time::Instant;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// The place of a connection in the queue.
pub(super) type Place = (Instant, u64);

/// See the module. Each connection is in it once at most.
#[derive(Default)]
pub(super) struct Timers {
    queue: Mutex<Queue>,
    earlier: Condvar,
    /// Who looks at them where no thread waits.
    worker: OnceLock<(Arc<Worker>, Weak<dyn Job>)>,
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

impl Queue {
    fn take(&mut self, now: Instant) -> Vec<Arc<Remote>> {
        let later = self.all.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.all, later);
        due.into_values().filter_map(|w| w.upgrade()).collect()
    }
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
            match self.worker.get() {
                None => drop(self.earlier.notify_one()),
                Some((worker, job)) => {
                    if let Some(job) = job.upgrade() {
                        worker.at(&job, deadline);
                    }
                }
            }
        }
    }

    /// From now on the worker has `job` look at them.
    pub fn serve_by(&self, worker: Arc<Worker>, job: Weak<dyn Job>) {
        let _ = self.worker.set((worker, job));
    }

    /// The connections that have come to their time, for the worker's job, which says by
    /// [`Timers::rest`] when it is done. They have no place any longer.
    pub fn take(&self) -> Vec<Arc<Remote>> {
        let mut q = self.queue.lock();
        // Awake: who comes now need not wake it.
        q.until = Some(Instant(0));
        q.take(now())
    }

    /// When the job is to look again; `beside` is something else's time.
    pub fn rest(&self, beside: Option<Instant>) -> Option<Instant> {
        let mut q = self.queue.lock();
        let first = q.all.keys().next().map(|p| p.0);
        let until = [first, beside, q.beside.take()];
        q.until = until.into_iter().flatten().min();
        q.until
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
        q.take(now())
    }
}
