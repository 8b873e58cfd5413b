//! What the sandbox's network does beside its programs' calls: one thread for all namespaces, which
//! starts with the first piece of work.
//!
//! # What holds
//!
//! - A [`Job`] does a bounded piece of work each time, and waits for nobody: those that have more
//!   to do take turns.
//! - A job is in the queue once at most. The worker keeps none alive.
//! - No lock of the worker is held while a job works, nor while one is dropped: a job that is gone
//!   is in no queue of times ([`Ticket`]'s drop). So what a program closes leaves nothing behind.

use crate::clock::now;
use netstack::time::Instant;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

/// What has work to do now and then.
pub(crate) trait Job: Send + Sync {
    fn ticket(&self) -> &Ticket;
    /// Does a piece of work.
    fn work(&self, now: Instant) -> Next;
}

/// When a job has more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Nothing,
    /// After the others that wait.
    More,
    At(Instant),
}

/// A job's place in the queues. Protected by the worker's lock, but for its creation and end.
#[derive(Default)]
pub(crate) struct Ticket(Mutex<Place>);

#[derive(Default)]
struct Place {
    ready: bool,
    at: Option<Key>,
    /// Whose queue of times it was in.
    of: Weak<Worker>,
}

/// A time, and a number that nobody else has.
type Key = (Instant, u64);

impl Drop for Ticket {
    fn drop(&mut self) {
        let place = self.0.get_mut();
        if let (Some(key), Some(worker)) = (place.at, place.of.upgrade()) {
            let gone = worker.queues.lock().timed.remove(&key);
            drop(gone);
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Worker {
    queues: Mutex<Queues>,
    wake: Condvar,
    started: OnceLock<()>,
}

#[derive(Default)]
struct Queues {
    ready: VecDeque<Weak<dyn Job>>,
    timed: BTreeMap<Key, Weak<dyn Job>>,
    next: u64,
    turn: bool,
    /// Until when the thread sleeps; none: it is awake.
    asleep: Option<Option<Instant>>,
}

impl Queues {
    fn ready(&mut self, job: &Arc<dyn Job>) {
        let mut place = job.ticket().0.lock();
        if !std::mem::replace(&mut place.ready, true) {
            self.ready.push_back(Arc::downgrade(job));
        }
    }

    fn at(&mut self, worker: &Arc<Worker>, job: &Arc<dyn Job>, when: Instant) {
        let mut place = job.ticket().0.lock();
        if place.at.is_some_and(|(at, _)| at <= when) {
            return;
        }
        if let Some(old) = place.at.take() {
            self.timed.remove(&old);
        }
        self.next += 1;
        place.at = Some((when, self.next));
        if place.of.strong_count() == 0 {
            place.of = Arc::downgrade(worker);
        }
        self.timed.insert((when, self.next), Arc::downgrade(job));
    }

    /// The next job: those whose time has come and those that are ready take turns. None is dropped
    /// here, where the lock is held.
    fn take(&mut self, now: Instant) -> Option<Arc<dyn Job>> {
        self.turn = !self.turn;
        if self.turn {
            self.take_due(now).or_else(|| self.take_ready())
        } else {
            self.take_ready().or_else(|| self.take_due(now))
        }
    }

    fn take_due(&mut self, now: Instant) -> Option<Arc<dyn Job>> {
        while let Some(first) = self.timed.first_entry() {
            if first.key().0 > now {
                break;
            }
            if let Some(job) = first.remove().upgrade() {
                job.ticket().0.lock().at = None;
                return Some(job);
            }
        }
        None
    }

    fn take_ready(&mut self) -> Option<Arc<dyn Job>> {
        while let Some(job) = self.ready.pop_front() {
            if let Some(job) = job.upgrade() {
                job.ticket().0.lock().ready = false;
                return Some(job);
            }
        }
        None
    }
}

impl Worker {
    /// Has a job work soon.
    pub fn ready(self: &Arc<Self>, job: &Arc<dyn Job>) {
        let mut q = self.queues.lock();
        q.ready(job);
        self.woken(&mut q, None);
    }

    /// Has a job work by then.
    pub fn at(self: &Arc<Self>, job: &Arc<dyn Job>, when: Instant) {
        let mut q = self.queues.lock();
        q.at(self, job, when);
        self.woken(&mut q, Some(when));
    }

    fn woken(self: &Arc<Self>, q: &mut Queues, when: Option<Instant>) {
        let earlier = match (q.asleep, when) {
            (None, _) => false,
            (Some(None), _) | (_, None) => true,
            (Some(Some(until)), Some(when)) => when < until,
        };
        if earlier {
            q.asleep = None;
            self.wake.notify_one();
        }
        self.started.get_or_init(|| {
            let me = self.clone();
            // Without a thread nothing is done: as if all devices stood still.
            let _ = std::thread::Builder::new()
                .name("network-work".into())
                .stack_size(256 << 10)
                .spawn(move || me.run());
        });
    }

    fn run(self: Arc<Self>) -> ! {
        loop {
            let job = self.queues.lock().take(now());
            let Some(job) = job else {
                self.sleep();
                continue;
            };
            let next = job.work(now());
            match next {
                Next::Nothing => {}
                Next::More => self.queues.lock().ready(&job),
                Next::At(when) => self.queues.lock().at(&self, &job, when),
            }
        }
    }

    fn sleep(&self) {
        let mut q = self.queues.lock();
        if !q.ready.is_empty() {
            return;
        }
        let until = q.timed.keys().next().map(|p| p.0);
        q.asleep = Some(until);
        match until {
            None => self.wake.wait(&mut q),
            Some(until) => {
                let left = until.since(now());
                self.wake.wait_for(&mut q, left);
            }
        }
        q.asleep = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[derive(Default)]
    struct Counting {
        ticket: Ticket,
        times: AtomicUsize,
        more: AtomicUsize,
    }

    impl Job for Counting {
        fn ticket(&self) -> &Ticket {
            &self.ticket
        }
        fn work(&self, now: Instant) -> Next {
            self.times.fetch_add(1, Ordering::SeqCst);
            match self.more.fetch_sub(1, Ordering::SeqCst) {
                2 => Next::More,
                1 => Next::At(now + Duration::from_millis(5)),
                _ => Next::Nothing,
            }
        }
    }

    #[test]
    fn a_job_that_is_gone_leaves_nothing() {
        let worker = Arc::new(Worker::default());
        for _ in 0..10 {
            let job: Arc<dyn Job> = Arc::new(Counting::default());
            worker.at(&job, now() + Duration::from_secs(1000));
            worker.at(&job, now() + Duration::from_secs(900));
            assert_eq!(worker.queues.lock().timed.len(), 1);
        }
        assert!(worker.queues.lock().timed.is_empty());
    }

    #[test]
    fn a_job_goes_on_as_it_says() {
        let worker = Arc::new(Worker::default());
        let job = Arc::new(Counting::default());
        job.more.store(2, Ordering::SeqCst);
        let all: Arc<dyn Job> = job.clone();
        worker.ready(&all);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while job.times.load(Ordering::SeqCst) < 3 && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(job.times.load(Ordering::SeqCst), 3);
    }
}
