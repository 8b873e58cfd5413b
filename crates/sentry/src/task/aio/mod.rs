//! Linux AIO: contexts, their rings, and requests that wait (`fs/aio.c`, io_setup(2)).
//!
//! Linux does buffered reads and writes in io_submit(2) itself, and so do we, all of them: what is
//! submitted is done when the call returns, but for requests that poll a file ([`poll`]). A
//! context's ring lies in memory that the application maps, so that it can take events without a
//! call (as libaio does).
//!
//! # Invariants
//!
//! - The ring's memory is the application's. Where the next event goes, how many requests there may
//!   be and which context it is are kept here. Of the ring the kernel reads: the id, to find a
//!   context, whose address must be the one that was asked for; `head` and `tail`, taken modulo the
//!   ring's length; and the events that the application is to get.
//! - A request that was taken ([`AioContext::take`]) ends as one event, or is given back. There are
//!   never more of them, with the events in the ring that nobody has taken, than there is room for.
//! - A polling request ends once, by whoever comes first: the file, io_cancel(2), or its context's
//!   end. Then it is no longer in its file's queue.
//! - A dead context is in no table and starts no waits. The last task that has a table ends all
//!   that is in it: at its exit, or when it becomes another program.
//!
//! Lock order: `Contexts::table`, `AioContext::polls` and `AioContext::completion` are leaves.
//! Neither application memory nor files are touched under them.

pub mod poll;
mod ring;

pub use ring::AioRing;

use abi::errno::{EAGAIN, EINVAL, ENOMEM};
use abi::{Result, Va};
use clas::Clas;
use parking_lot::Mutex;
use poll::PollRequest;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use vfs::ida::Ida;
use vfs::ucounts::{Charge, Kind, Ucounts};
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a context takes of the kernel's memory beside its ring, bytes.
const CONTEXT: u64 = 1024;
/// The most events of a ring, as Linux counts them (`ioctx_alloc`).
const MOST_EVENTS: u64 = 0x1000_0000 / EVENT;
/// `sizeof(struct io_event)`.
pub const EVENT: u64 = 32;

/// `struct io_event`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IoEvent {
    /// As the request has it (`aio_data`).
    pub data: u64,
    /// Where the request lies.
    pub request: u64,
    /// What a call would have given.
    pub result: i64,
    pub result2: i64,
}

/// The contexts of an address space (Linux's `mm->ioctx_table`), shared by the tasks that have it.
#[derive(Default)]
pub struct Contexts {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    contexts: BTreeMap<u32, Arc<AioContext>>,
    numbers: Ida,
}

impl Contexts {
    /// The context that says it is number `id`, if it lies at `at`.
    #[must_use]
    pub fn find(&self, id: u32, at: Va) -> Option<Arc<AioContext>> {
        let c = self.table.lock().contexts.get(&id).cloned();
        c.filter(|c| c.ring.address() == at)
    }

    /// Gives it a number.
    pub fn add(&self, c: &Arc<AioContext>) {
        let mut t = self.table.lock();
        let id = t.numbers.alloc();
        t.contexts.insert(id, c.clone());
        drop(t);
        c.ring.set_id(id);
    }

    /// Takes it out and ends it; false where somebody else did.
    pub fn end(&self, c: &Arc<AioContext>) -> bool {
        if c.dead.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut t = self.table.lock();
        let id = t.contexts.iter().find(|(_, x)| Arc::ptr_eq(x, c));
        if let Some(id) = id.map(|(id, _)| *id) {
            t.contexts.remove(&id);
            t.numbers.free(id);
        }
        drop(t);
        c.end_polls();
        c.queue.notify(Events::READABLE);
        true
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        let all = std::mem::take(&mut self.table.get_mut().contexts);
        for c in all.into_values() {
            c.dead.store(true, Ordering::SeqCst);
            c.end_polls();
        }
    }
}

/// Who makes a context, and of what.
pub struct Maker<'a> {
    pub clas: &'a Arc<Clas>,
    pub user: &'a Arc<Ucounts>,
    /// What its container has of requests.
    pub count: &'a Arc<AtomicU64>,
    pub cpus: u32,
}

/// A context.
pub struct AioContext {
    pub ring: Arc<AioRing>,
    completion: Mutex<Completion>,
    /// Requests that poll, by where they lie and a number of their own.
    polls: Mutex<BTreeMap<(u64, u64), Arc<PollRequest>>>,
    /// Notified at each event, and at the end.
    pub queue: WaitQueue,
    /// Set once.
    dead: AtomicBool,
    /// How many calls are doing a request. Atomic; then the queue is notified.
    busy: AtomicUsize,
    _counted: Counted,
    _charges: [Charge; 2],
}

/// A part of `fs.aio-nr`.
struct Counted(Arc<AtomicU64>, u64);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// The kernel's side of a ring.
struct Completion {
    /// Where the next event goes.
    tail: u32,
    /// How many requests may still be taken.
    free: u32,
    /// Events that were put and not seen to be taken.
    untaken: u32,
}

/// How many events a ring for `requests` has, and how many bytes (`ioctx_alloc`, `aio_setup_ring`).
fn ring_for(requests: u32, cpus: u32) -> Result<(u32, u64)> {
    let events = u64::from(requests.max(cpus * 4)) * 2;
    if events > MOST_EVENTS {
        return Err(EINVAL);
    }
    let len = (ring::HEADER + (events + 2) * EVENT).next_multiple_of(abi::PAGE_SIZE);
    Ok((((len - ring::HEADER) / EVENT) as u32, len))
}

impl AioContext {
    /// A context for `requests`, in no table yet. Each user may have requests up to
    /// `fs.aio-max-nr`: on Linux all have them together, and one can take them from the others.
    pub fn new(requests: u32, maker: &Maker<'_>) -> Result<Arc<AioContext>> {
        let (events, len) = ring_for(requests, maker.cpus)?;
        let charge = |kind, n| maker.user.charge(kind, n, u64::MAX);
        let counted = charge(Kind::AioRequests, requests.into()).ok_or(EAGAIN)?;
        let memory = charge(Kind::Kmem, CONTEXT).ok_or(ENOMEM)?;
        let of_ring = charge(Kind::Kmem, len).ok_or(ENOMEM)?;
        // Linux gives requests to its CPUs in such parts.
        let part = ((events - 1) / (maker.cpus * 4)).max(1);
        let count = maker.count.clone();
        count.fetch_add(requests.into(), Ordering::Relaxed);
        Ok(Arc::new(AioContext {
            ring: AioRing::new(maker.clas, len, events, of_ring)?,
            completion: Mutex::new(Completion {
                tail: 0,
                free: (events - 1) / part * part,
                untaken: 0,
            }),
            polls: Mutex::default(),
            queue: WaitQueue::new(),
            dead: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            _counted: Counted(count, requests.into()),
            _charges: [counted, memory],
        }))
    }

    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Whether a call is doing a request.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) != 0
    }

    /// As long as it lives, a call is doing requests.
    pub fn enter(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        Busy(self.clone())
    }

    /// Takes room for a request and its event; `EAGAIN`.
    pub fn take(&self) -> Result<()> {
        let mut c = self.completion.lock();
        if c.free == 0 {
            self.see_taken(&mut c);
        }
        c.free = c.free.checked_sub(1).ok_or(EAGAIN)?;
        Ok(())
    }

    /// Gives the room of a request back that did not begin.
    pub fn give_back(&self) {
        self.completion.lock().free += 1;
    }

    /// Events that the application has taken make room (`refill_reqs_available`).
    fn see_taken(&self, c: &mut Completion) {
        let n = self.ring.events;
        let head = self.ring.head() % n;
        let inside = (c.tail + n - head) % n;
        let taken = c.untaken.saturating_sub(inside);
        c.untaken -= taken;
        c.free += taken;
    }

    /// A request's end: its event (`aio_complete`).
    pub fn complete(&self, event: &IoEvent) {
        let mut c = self.completion.lock();
        self.ring.put(c.tail, event);
        c.tail = (c.tail + 1) % self.ring.events;
        self.ring.set_tail(c.tail);
        c.untaken += 1;
        if c.untaken > 1 {
            self.see_taken(&mut c);
        }
        drop(c);
        self.queue.notify(Events::READABLE);
    }

    fn end_polls(&self) {
        let all = std::mem::take(&mut *self.polls.lock());
        for r in all.into_values() {
            r.finish(self, 0);
        }
    }

    /// The first polling request that lies at `at`.
    #[must_use]
    pub fn find_poll(&self, at: u64) -> Option<Arc<PollRequest>> {
        let polls = self.polls.lock();
        polls
            .range((at, 0)..=(at, u64::MAX))
            .next()
            .map(|(_, r)| r.clone())
    }
}

/// See [`AioContext::enter`].
#[must_use]
pub struct Busy(Arc<AioContext>);

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_dead() {
            self.0.queue.notify(Events::READABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_as_large_as_on_linux() {
        assert_eq!(ring_for(1, 2), Ok((127, 4096)));
        assert_eq!(ring_for(64, 2), Ok((255, 8192)));
        assert_eq!(ring_for(u32::MAX, 2), Err(EINVAL));
        assert_eq!(ring_for(1 << 22, 2).map(|r| r.1), Ok((1 << 28) + 4096));
    }
}
