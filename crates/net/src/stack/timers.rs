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
    /// Connections with something in their backlog.
    soon: Vec<Weak<Remote>>,
    next: u64,
    /// When something beside connections has to be looked at.
    beside: Option<Instant>,
    /// Until when the thread sleeps; none: for ever.
    until: Option<Instant>,
}

/// Connections that have to be looked at.
pub(super) struct Due {
    /// They have come to their time, and have no place any longer.
    pub timed: Vec<(Place, Arc<Remote>)>,
    /// Something is in their backlog.
    pub behind: Vec<Arc<Remote>>,
}

impl Queue {
    /// Somebody was put into `soon` while nobody slept: it is looked at after all that are due.
    fn now(&self) -> Option<Instant> {
        (!self.soon.is_empty()).then(now)
    }
    fn take(&mut self, now: Instant) -> Due {
        let later = self.all.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.all, later);
        let soon = std::mem::take(&mut self.soon);
        Due {
            timed: due
                .into_iter()
                .filter_map(|(at, w)| Some((at, w.upgrade()?)))
                .collect(),
            behind: soon.into_iter().filter_map(|w| w.upgrade()).collect(),
        }
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

    /// Has `c` looked at now: who saw something in its backlog may not do it.
    pub fn soon(&self, c: &Weak<Remote>) {
        let mut q = self.queue.lock();
        q.soon.push(c.clone());
        self.wake(&mut q, now());
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

    /// Whether it does.
    pub fn has_worker(&self) -> bool {
        self.worker.get().is_some()
    }

    /// What is due, for the worker's job, which says by [`Timers::rest`] when it is done.
    pub fn take(&self) -> Due {
        let mut q = self.queue.lock();
        // Awake: who comes now need not wake it.
        q.until = Some(Instant(0));
        q.take(now())
    }

    /// When the job is to look again; `beside` is something else's time.
    pub fn rest(&self, beside: Option<Instant>) -> Option<Instant> {
        let mut q = self.queue.lock();
        let first = q.all.keys().next().map(|p| p.0);
        let until = [first, beside, q.beside.take(), q.now()];
        q.until = until.into_iter().flatten().min();
        q.until
    }

    /// Waits until `beside` at most, or until something is due.
    pub fn wait(&self, beside: Option<Instant>) -> Due {
        let mut q = self.queue.lock();
        let first = q.all.keys().next().map(|p| p.0);
        let until = [first, beside, q.beside.take(), q.now()];
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
