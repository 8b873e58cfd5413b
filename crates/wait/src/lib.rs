//! Waiting: how a task blocks until an object is ready, and how poll, select and epoll watch many.
//!
//! An object (pipe, socket, terminal, child list) owns a [`WaitQueue`]. Objects never block: an
//! operation that cannot go on gives `EAGAIN`, and the caller registers on the queue, **tries
//! again**, and only then sleeps (registering first is what makes a wake-up impossible to miss).
//! The object calls [`WaitQueue::notify`] after it changed, with the events that may now hold.
//!
//! | module | what it holds |
//! |---|---|
//! | `parker` | where a thread sleeps |
//! | [`spin`] | one budget for spinning |
//! | [`wakes`] | wake-ups that are deferred to the end of a call |
//! | [`later`] | work that may wait |
//! | [`lead`] | a sleeper that does the device's work meanwhile |
//! | [`read_slots`] | what a thread may read without a call |
//!
//! Lock order: an object's own locks → the queue's lock → the listener's lock. A listener must not
//! call back into the object from `notify`.
#![forbid(unsafe_code)]

pub mod later;
pub mod lead;
mod parker;
pub mod read_slots;
pub mod spin;
pub mod wakes;

use abi::errno::{self, Errno};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

bitflags::bitflags! {
    /// What poll(2) and epoll(7) watch, with their numbers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Events: u32 {
        const IN = 0x1;
        const PRI = 0x2;
        const OUT = 0x4;
        const ERR = 0x8;
        const HUP = 0x10;
        const NVAL = 0x20;
        const RDNORM = 0x40;
        const RDBAND = 0x80;
        const WRNORM = 0x100;
        const WRBAND = 0x200;
        const MSG = 0x400;
        const RDHUP = 0x2000;
        /// Not poll(2)'s: an end was opened, which makes nothing ready.
        const OPENED = 0x0800_0000;
        const _ = !0;
    }
}

impl Events {
    /// Readable, as pipes and files say it.
    pub const READABLE: Events = Events::IN.union(Events::RDNORM);
    /// Writable, as pipes and files say it.
    pub const WRITABLE: Events = Events::OUT.union(Events::WRNORM);
    /// Reported whether asked for or not.
    pub const ALWAYS: Events = Events::ERR.union(Events::HUP);
}

/// Who is told when an object changes.
pub trait Listener: Send + Sync {
    /// Some of `events` may hold now. Runs under the queue's lock: short, and never back into the
    /// object.
    fn notify(&self, events: Events);
    /// As [`Listener::notify`], for one that was registered by [`WaitQueue::register_exclusive`]:
    /// whether that woke somebody, so that the others can sleep on.
    fn notify_exclusive(&self, events: Events) -> bool {
        self.notify(events);
        true
    }
}

/// A registration's name in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(usize);

/// The listeners of one object. Register and unregister are O(1).
#[derive(Default)]
pub struct WaitQueue {
    /// Equal to `entries.len()`; lets `notify` skip the lock when nobody listens.
    count: AtomicUsize,
    entries: Mutex<slab::Slab<Entry>>,
    /// How many of them are exclusive.
    exclusive: AtomicUsize,
}

struct Entry {
    events: Events,
    listener: Arc<dyn Listener>,
    exclusive: bool,
}

impl WaitQueue {
    #[must_use]
    pub const fn new() -> WaitQueue {
        WaitQueue {
            count: AtomicUsize::new(0),
            entries: Mutex::new(slab::Slab::new()),
            exclusive: AtomicUsize::new(0),
        }
    }

    /// Asks that `listener` be told of `events` (and of [`Events::ALWAYS`]).
    pub fn register(&self, listener: Arc<dyn Listener>, events: Events) -> Ticket {
        self.add(Entry {
            events: events | Events::ALWAYS,
            listener,
            exclusive: false,
        })
    }

    /// As [`WaitQueue::register`]; but of all listeners registered so, a change is told to one that
    /// it wakes (`__wake_up` with one exclusive waiter).
    pub fn register_exclusive(&self, listener: Arc<dyn Listener>, events: Events) -> Ticket {
        self.exclusive.fetch_add(1, Ordering::SeqCst);
        self.add(Entry {
            events: events | Events::ALWAYS,
            listener,
            exclusive: true,
        })
    }

    fn add(&self, entry: Entry) -> Ticket {
        let mut e = self.entries.lock();
        let t = e.insert(entry);
        self.count.store(e.len(), Ordering::SeqCst);
        Ticket(t)
    }

    /// Ends a registration. Afterwards the listener is not called any more.
    pub fn unregister(&self, t: Ticket) {
        let mut e = self.entries.lock();
        let old = e.try_remove(t.0);
        if old.is_some_and(|o| o.exclusive) {
            self.exclusive.fetch_sub(1, Ordering::SeqCst);
        }
        self.count.store(e.len(), Ordering::SeqCst);
    }

    /// Tells all who listen for any of `events`. Call after the change is visible.
    pub fn notify(&self, events: Events) {
        // Pairs with the SeqCst store in `register`: who registered before our change sees it by
        // trying again, who registered after is counted here.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        // Whoever is woken takes the same lock first.
        let _deferral = wakes::defer();
        let entries = self.entries.lock();
        for (_, e) in entries.iter() {
            if !e.exclusive && e.events.intersects(events) {
                e.listener.notify(events);
            }
        }
        if self.exclusive.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (_, e) in entries.iter() {
            if e.exclusive && e.events.intersects(events) && e.listener.notify_exclusive(events) {
                break;
            }
        }
    }

    /// Whether anyone listens.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::SeqCst) != 0
    }
}

pub use parker::Parker;
pub use spin::{MaySpin, Spinners};

impl Listener for Parker {
    fn notify(&self, _: Events) {
        self.unpark();
    }
}

/// Something that can block: a task. Lets file systems and sockets block without knowing tasks.
pub trait Blocker {
    /// Where the task sleeps; signals for it unpark it too.
    fn parker(&self) -> &Arc<Parker>;
    /// Whether a signal is pending that must interrupt a sleep.
    fn interrupted(&self) -> bool;
    /// Whether it must end: what interrupts any sleep.
    fn killed(&self) -> bool {
        false
    }
}

/// A blocker that only its end interrupts.
pub struct UntilKilled<'a>(pub &'a dyn Blocker);

impl Blocker for UntilKilled<'_> {
    fn parker(&self) -> &Arc<Parker> {
        self.0.parker()
    }
    fn interrupted(&self) -> bool {
        self.0.killed()
    }
}

/// A thread of our own that waits: no signal interrupts it.
#[derive(Default)]
pub struct Steady(pub Arc<Parker>);

impl Blocker for Steady {
    fn parker(&self) -> &Arc<Parker> {
        &self.0
    }
    fn interrupted(&self) -> bool {
        false
    }
}

/// Blocks until `attempt` gives something other than `Err(EAGAIN)`.
///
/// `attempt` runs at once, and again whenever one of `queues` is notified of its events. Gives
/// `ERESTARTSYS` when a signal interrupts and `ETIMEDOUT` past the deadline; in both cases
/// `attempt` has just failed with `EAGAIN`, so nothing was done.
pub fn block_until<T>(
    b: &dyn Blocker,
    queues: &[(&WaitQueue, Events)],
    deadline: Option<Instant>,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match attempt() {
        Err(errno::EAGAIN) => retry_until(b, queues, deadline, attempt),
        r => r,
    }
}

/// As [`block_until`], for a caller whose first attempt has failed. Nothing else parks a thread.
pub fn retry_until<T>(
    b: &dyn Blocker,
    queues: &[(&WaitQueue, Events)],
    deadline: Option<Instant>,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let parker = b.parker();
    let tickets: SmallVec<[(&WaitQueue, Ticket); 4]> = queues
        .iter()
        .map(|(q, e)| (*q, q.register(parker.clone() as Arc<dyn Listener>, *e)))
        .collect();
    let r = loop {
        match attempt() {
            Err(errno::EAGAIN) => {}
            r => break r,
        }
        if b.interrupted() {
            break Err(errno::ERESTARTSYS);
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            break Err(errno::ETIMEDOUT);
        }
        let _away = later::Away::begin();
        parker.park(deadline);
    };
    for (q, t) in tickets {
        q.unregister(t);
    }
    r
}

/// The instant `timeout` from now; `None` (no limit) where that cannot be represented.
#[must_use]
pub fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_between_try_and_sleep_is_not_lost() {
        let q = Arc::new(WaitQueue::new());
        let ready = Arc::new(AtomicUsize::new(0));
        for _ in 0..200 {
            ready.store(0, Ordering::SeqCst);
            let (q2, r2) = (q.clone(), ready.clone());
            let t = std::thread::spawn(move || {
                r2.store(1, Ordering::SeqCst);
                q2.notify(Events::IN);
            });
            let b = Steady::default();
            let got = block_until(&b, &[(&q, Events::IN)], None, || {
                if ready.load(Ordering::SeqCst) == 1 {
                    Ok(7)
                } else {
                    Err(errno::EAGAIN)
                }
            });
            assert_eq!(got, Ok(7));
            t.join().unwrap();
            assert!(!q.is_watched());
        }
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let q = WaitQueue::new();
        let b = Steady::default();
        let r: Result<(), _> = block_until(
            &b,
            &[(&q, Events::IN)],
            deadline_after(Duration::from_millis(5)),
            || Err(errno::EAGAIN),
        );
        assert_eq!(r, Err(errno::ETIMEDOUT));
    }
}
