//! io_uring: rings, and the requests that are taken from them (`io_uring/`, io_uring(7)).
//!
//! A request is tried in the call that submits it, without waiting (Linux's
//! `IO_URING_F_NONBLOCK`). What cannot go on listens on its file's wait queue; when that tells of
//! something the request is *work* for the task that submitted it, which tries again: at its
//! system-call boundary, for which it is kicked as for a signal, or in io_uring_enter(2)
//! ([`work`]). There are no worker threads: what is never ready by a queue (regular files, paths,
//! syncs) is done at once, in the call, as our Linux AIO does; so is what `IOSQE_ASYNC` asks to be
//! done elsewhere. A ring with `SQPOLL` has a thread of its own ([`sqpoll`]), which is a task of
//! its maker's process.
//!
//! The operations themselves are `crate::syscalls::uring`'s; here a request only has an
//! [`Operation`].
//!
//! # Invariants
//!
//! - The rings' memory is the application's ([`memory`]). Both heads' and tails' counterparts that
//!   are the kernel's are kept here, what the application says is masked or bounded, and an entry
//!   is copied once before anything of it is looked at.
//! - A request ends once ([`Request::finish`]), by whoever comes first: the task that tries it, a
//!   timer, a cancellation, its task's end, its ring's. Then it is in no queue and in no table,
//!   and lets its file go before its completion is told.
//! - Only the task that submitted a request tries it, and only one thread at a time: it is *busy*
//!   then, and who cancels it leaves a note instead of ending it.
//! - A request that waits is in [`Ring::pending`] and charged to the ring's user; so are those that
//!   are linked behind it, and those that wait for a drain. A full completion ring's overflow is
//!   charged, too; what is not to be had is counted as dropped.
//! - A request is of the program that its task was when it was submitted ([`Request::is_current`]):
//!   after an execve(2) nothing of it is tried any more, whoever held it meanwhile.
//! - No [`Request`] is dropped under a lock of the ring's: its end takes them.
//! - A task's execve(2) ends all its requests; at its end those that wait go on, to be cancelled
//!   when they are told, but for some ([`work::Leaves`]). The end of a ring's last reference (its
//!   descriptors and mappings) ends all of the ring's, on the thread `later` ([`RingFile`]).
//!   Neither leaves a cycle: a request holds its ring, its task and its file only until it ends; a
//!   ring does not register rings, and does not travel in messages (`EINVAL`, as on Linux).
//! - No lock here is held while application memory or files are touched; the *turn* of submitting
//!   ([`Turn`]) is, and is waited for so that SIGKILL ends the wait.
//!
//! Lock order: [`Turn`] → anything; `counted` → `cq`; a [`Request`]'s state → that of what is
//! linked behind it. All others are leaves: `Ring::cq`, `pending`, `drain`, `local`, resources,
//! groups, `TaskSide`'s. Listeners ([`told::Arm`]) run under a wait queue's lock and take `local`
//! or the task's list, and the kick.

pub mod abi;
pub mod buffers;
pub mod cancel;
pub mod file;
pub mod links;
pub mod memory;
pub mod request;
pub mod resources;
pub mod sqpoll;
pub mod told;
pub mod work;

pub use abi::{Cqe, Sqe};
pub use file::RingFile;
pub use request::{Done, Operation, Outcome, Request};
pub use work::TaskSide;

use crate::task::{Context, Sleep, Task};
use ::abi::errno::{EAGAIN, EINTR, ENOMEM};
use ::abi::{Errno, Result};
use abi::{CQ_EVENTFD_DISABLED, CQE_MORE, SQ_CQ_OVERFLOW, Setup};
use clas::Clas;
use ipc::EventFd;
use memory::{Shared, Sizes, Word};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, Kind, Ucounts};
use vfs::{Credentials, File};
use wait::{Events, WaitQueue};

/// What a ring takes of the kernel's memory beside what it shares, bytes.
const RING: u64 = 4096;
/// What a completion takes that found no room.
const OVERFLOW: u64 = 96;

/// A ring (`struct io_ring_ctx`).
pub struct Ring {
    /// Whom its requests are charged to. Immutable, as the two below.
    pub user: Arc<Ucounts>,
    pub setup: Setup,
    pub shared: Shared,
    cq: Mutex<Cq>,
    /// Whether there is an overflow. Written under `cq`.
    overflows: AtomicBool,
    /// Whether completions were dropped: set once.
    dropped: AtomicBool,
    /// Notified at each completion, and when local work comes.
    pub queue: WaitQueue,
    pub turn: Turn,
    /// Where the next entry is taken. Changed by who has the turn.
    sq_head: AtomicU32,
    /// Requests that wait, by their names (`user_data`) and numbers.
    pending: Mutex<BTreeMap<(u64, u64), Arc<Request>>>,
    /// The number of the next request.
    next: AtomicU64,
    drain: Mutex<links::Drain>,
    /// The next chain waits for all before it. Changed by who has the turn.
    pub drain_next: AtomicBool,
    /// Work of a ring with DEFER_TASKRUN.
    local: Mutex<VecDeque<Arc<Request>>>,
    counted: Mutex<Counted>,
    has_counted: AtomicBool,
    /// SINGLE_ISSUER's task; 0 before there is one.
    issuer: AtomicU64,
    /// R_DISABLED; once cleared it stays so.
    disabled: AtomicBool,
    /// CQE_SKIP_SUCCESS was used: no drains any more. Set once.
    pub skips: AtomicBool,
    /// Set once, at the end.
    dead: AtomicBool,
    eventfd: Mutex<Option<CompletionEventFd>>,
    pub resources: resources::Resources,
    pub groups: buffers::Groups,
    pub personalities: Mutex<Personalities>,
    pub restrictions: Mutex<Option<Restrictions>>,
    pub workers: Mutex<[u32; 2]>,
    pub clock: AtomicU32,
    pub thread: Mutex<Option<Arc<sqpoll::Thread>>>,
    _charge: Charge,
}

/// An eventfd that is told of completions.
#[derive(Clone)]
struct CompletionEventFd {
    file: Arc<File>,
    /// Of those alone that did not end in the call that submitted them.
    only_async: bool,
}

/// Registered identities.
#[derive(Default)]
pub struct Personalities {
    pub all: BTreeMap<u16, (Arc<Credentials>, Charge)>,
    pub last: u16,
}

/// What a ring's requests and registrations are restricted to.
#[derive(Clone, Debug, Default)]
pub struct Restrictions {
    pub registers: u64,
    pub ops: u64,
    pub flags_allowed: u8,
    pub flags_required: u8,
    /// They hold since the ring was enabled: what is not named is refused.
    pub holds: bool,
}

/// The kernel's side of the completion ring.
#[derive(Default)]
struct Cq {
    tail: u32,
    /// How far the tail has moved, ever.
    moved: u64,
    overflow: VecDeque<(Cqe, Charge)>,
    /// How many completions were timeouts', which timeouts do not count.
    timeouts: u64,
}

impl Cq {
    /// The tail goes on by one.
    fn advance(&mut self) {
        self.tail = self.tail.wrapping_add(1);
        self.moved += 1;
    }
}

/// Timeouts that count completions.
#[derive(Default)]
struct Counted {
    /// By what is to be reached, and their numbers.
    all: BTreeMap<(i64, u64), Weak<Request>>,
    /// Somebody ends those that are due.
    ending: bool,
}

/// Who submits: one at a time, each a batch (Linux's `uring_lock`).
#[derive(Default)]
pub struct Turn {
    taken: AtomicBool,
    queue: WaitQueue,
}

/// As long as it lives, its holder submits.
#[must_use]
pub struct Turned<'a>(&'a Turn);

impl Turn {
    /// Waits for it; `EINTR` where the task is to end.
    pub fn take(&self, cx: &Context) -> Result<Turned<'_>> {
        let attempt = || match self.taken.swap(true, Ordering::SeqCst) {
            false => Ok(()),
            true => Err(EAGAIN),
        };
        let queues = [(&self.queue, Events::IN)];
        cx.task
            .block_as(Sleep::Killable, &queues, None, attempt)
            .map_err(|_| EINTR)?;
        Ok(Turned(self))
    }
}

impl Drop for Turned<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::SeqCst);
        self.0.queue.notify(Events::IN);
    }
}

/// What a ring is made of.
pub struct Maker<'a> {
    pub clas: &'a Arc<Clas>,
    pub user: &'a Arc<Ucounts>,
    pub setup: Setup,
}

impl Ring {
    pub fn new(sizes: Sizes, maker: &Maker<'_>) -> Result<Arc<Ring>> {
        let charge = |n| maker.user.charge(Kind::Kmem, n, u64::MAX).ok_or(ENOMEM);
        let charges = [charge(sizes.rings)?, charge(sizes.sqes)?];
        let own = charge(RING)?;
        let shared = Shared::new(maker.clas, sizes, charges)?;
        Ok(Arc::new_cyclic(|me| Ring {
            user: maker.user.clone(),
            setup: maker.setup,
            shared,
            cq: Mutex::default(),
            overflows: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            queue: WaitQueue::new(),
            turn: Turn::default(),
            sq_head: AtomicU32::new(0),
            pending: Mutex::default(),
            next: AtomicU64::new(0),
            drain: Mutex::default(),
            drain_next: AtomicBool::new(false),
            local: Mutex::default(),
            counted: Mutex::default(),
            has_counted: AtomicBool::new(false),
            issuer: AtomicU64::new(0),
            disabled: AtomicBool::new(maker.setup.contains(Setup::R_DISABLED)),
            skips: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            eventfd: Mutex::new(None),
            resources: resources::Resources::new(me.clone()),
            groups: buffers::Groups::default(),
            personalities: Mutex::default(),
            restrictions: Mutex::new(None),
            workers: Mutex::new([0, 0]),
            clock: AtomicU32::new(1),
            thread: Mutex::new(None),
            _charge: own,
        }))
    }

    #[must_use]
    pub fn has(&self, flag: Setup) -> bool {
        self.setup.contains(flag)
    }
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.disabled.load(Ordering::SeqCst)
    }
    /// Requests may be submitted from now on; its restrictions hold.
    pub fn enable(&self) {
        if let Some(r) = &mut *self.restrictions.lock() {
            r.holds = true;
        }
        self.disabled.store(false, Ordering::SeqCst);
    }
    /// Whether this task may submit: with SINGLE_ISSUER the first is the only one.
    pub fn is_issuer(&self, task: &Task) -> bool {
        let me = task.uring.identity(task);
        let (done, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.issuer.compare_exchange(0, me, done, failed) {
            Ok(_) => true,
            Err(who) => who == me,
        }
    }

    /// The next entry's place, for who has the turn.
    #[must_use]
    pub fn sq_head(&self) -> u32 {
        self.sq_head.load(Ordering::Relaxed)
    }
    pub fn set_sq_head(&self, head: u32) {
        self.sq_head.store(head, Ordering::Relaxed);
    }
    /// Whether there is room in the submission ring.
    #[must_use]
    pub fn sq_has_room(&self) -> bool {
        self.shared.submitted(self.sq_head()) < self.shared.sizes.sq_entries
    }

    // Completions.

    /// Tells a completion: in the ring, or behind what found no room there.
    pub fn complete(&self, c: Cqe, by: By) {
        self.tell(c, by, Full::Keep);
    }
    /// One of a request's several; false where there is no room for it: the request is to end then.
    pub fn complete_more(&self, mut c: Cqe) -> bool {
        c.flags |= CQE_MORE;
        self.tell(c, By::Task, Full::Refuse)
    }
    /// One that no request of this ring's makes (`io_post_aux_cqe`); false where it is not to be
    /// kept.
    pub fn complete_for(&self, c: Cqe) -> bool {
        self.tell(c, By::Task, Full::Keep)
    }

    fn tell(&self, c: Cqe, by: By, full: Full) -> bool {
        if self.is_dead() {
            return true;
        }
        let mut cq = self.cq.lock();
        if by == By::Timer {
            cq.timeouts += 1;
        }
        let kept = if !self.overflows.load(Ordering::Relaxed) && self.has_cq_room(cq.tail) {
            self.shared.put(cq.tail, &c);
            cq.advance();
            self.shared.set(Word::CqTail, cq.tail);
            true
        } else {
            full == Full::Keep && self.overflow(&mut cq, c)
        };
        drop(cq);
        if kept || full == Full::Keep {
            self.told(by);
        }
        kept
    }

    /// What is to happen when there is something new to see.
    fn told(&self, by: By) {
        told::by_ring(self, || {
            self.queue.notify(Events::READABLE);
            self.tell_eventfd(by);
        });
        if self.has_counted.load(Ordering::SeqCst) {
            self.end_counted();
        }
    }

    fn has_cq_room(&self, tail: u32) -> bool {
        let used = tail.wrapping_sub(self.shared.get(Word::CqHead));
        used < self.shared.sizes.cq_entries
    }

    fn overflow(&self, cq: &mut Cq, c: Cqe) -> bool {
        let Some(charge) = self.user.charge(Kind::Kmem, OVERFLOW, u64::MAX) else {
            self.shared.count(Word::CqOverflow);
            self.dropped.store(true, Ordering::SeqCst);
            return false;
        };
        if cq.overflow.is_empty() {
            self.overflows.store(true, Ordering::SeqCst);
            self.shared.raise(SQ_CQ_OVERFLOW);
        }
        cq.overflow.push_back((c, charge));
        true
    }

    /// Brings what found no room to the ring, as far as there is some now.
    pub fn flush_overflow(&self) {
        if !self.overflows.load(Ordering::SeqCst) {
            return;
        }
        let mut cq = self.cq.lock();
        let mut some = false;
        while self.has_cq_room(cq.tail)
            && let Some((c, _charge)) = cq.overflow.pop_front()
        {
            self.shared.put(cq.tail, &c);
            cq.advance();
            some = true;
        }
        self.shared.set(Word::CqTail, cq.tail);
        if cq.overflow.is_empty() {
            self.overflows.store(false, Ordering::SeqCst);
            self.shared.clear(SQ_CQ_OVERFLOW);
        }
        drop(cq);
        if some {
            self.queue.notify(Events::READABLE);
            if self.has_counted.load(Ordering::SeqCst) {
                self.end_counted();
            }
        }
    }

    /// Whether completions were lost (`EBADR`); asked once for each time.
    pub fn take_dropped(&self) -> bool {
        self.dropped.swap(false, Ordering::SeqCst)
    }
    #[must_use]
    pub fn has_overflow(&self) -> bool {
        self.overflows.load(Ordering::SeqCst)
    }
    /// The kernel's tail of the completion ring.
    #[must_use]
    pub fn cq_tail(&self) -> u32 {
        self.cq.lock().tail
    }
    /// How many completions the application has not taken.
    #[must_use]
    pub fn cq_ready(&self) -> u32 {
        self.cq_tail().wrapping_sub(self.shared.get(Word::CqHead))
    }
    /// How many completions were timeouts'.
    #[must_use]
    pub fn cq_timeouts(&self) -> u64 {
        self.cq.lock().timeouts
    }
    /// The completions so far without those of timeouts, as timeouts count. (Of those some may
    /// still be an overflow.)
    fn cq_count(&self) -> i64 {
        let cq = self.cq.lock();
        cq.moved as i64 - cq.timeouts as i64
    }

    /// A timeout that is to end when so many more completions were told; where it is found
    /// ([`Ring::uncount`]).
    #[must_use]
    pub fn count_for(&self, r: &Arc<Request>, count: u32) -> i64 {
        let due = self.cq_count() + i64::from(count);
        let mut c = self.counted.lock();
        c.all.insert((due, r.number), Arc::downgrade(r));
        self.has_counted.store(true, Ordering::SeqCst);
        due
    }
    /// It has ended.
    pub fn uncount(&self, due: i64, r: &Request) {
        self.counted.lock().all.remove(&(due, r.number));
    }

    /// Ends the timeouts that have seen enough completions. What is told by that is seen by who is
    /// at it already.
    pub fn end_counted(&self) {
        let mut c = self.counted.lock();
        if c.ending {
            return;
        }
        c.ending = true;
        loop {
            let now = self.cq_count();
            let is_due = |e: &std::collections::btree_map::OccupiedEntry<'_, _, _>| {
                let (due, _): &(i64, u64) = e.key();
                *due <= now
            };
            let Some(first) = c.all.first_entry().filter(is_due) else {
                break;
            };
            let r = first.remove();
            parking_lot::MutexGuard::unlocked(&mut c, move || {
                if let Some(r) = r.upgrade() {
                    r.finish(Done::plain(0));
                }
            });
        }
        c.ending = false;
        self.has_counted.store(!c.all.is_empty(), Ordering::SeqCst);
    }

    // What is told of completions.

    /// Registers an eventfd, or takes it back; false where there is one, or none.
    pub fn set_eventfd(&self, f: Option<(Arc<File>, bool)>) -> bool {
        let new = f.map(|(file, only_async)| CompletionEventFd { file, only_async });
        let mut e = self.eventfd.lock();
        if e.is_some() == new.is_some() {
            return false;
        }
        let old = std::mem::replace(&mut *e, new);
        drop(e);
        drop(old);
        true
    }

    pub(super) fn tell_eventfd(&self, by: By) {
        let told = self.eventfd.lock().clone();
        let Some(told) = told else { return };
        let off = self.shared.get(Word::CqFlags) & CQ_EVENTFD_DISABLED != 0;
        if off || told.only_async && by != By::Worker {
            return;
        }
        if let Some(e) = told.file.ops::<EventFd>() {
            e.signal(1);
        }
    }

    // Requests that wait.

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
    /// Charges what a request takes that outlives its call.
    fn charge(&self, bytes: u64) -> Result<Charge> {
        let charge = self.user.charge(Kind::Kmem, bytes, u64::MAX);
        charge.ok_or(ENOMEM)
    }
    /// The oldest request with this name that waits, of which `f` says yes.
    pub fn find_named(&self, name: u64, f: impl Fn(&Request) -> bool) -> Option<Arc<Request>> {
        let pending = self.pending.lock();
        let mut all = pending.range((name, 0)..=(name, u64::MAX)).map(|(_, r)| r);
        all.find(|r| f(r)).cloned()
    }
    /// The requests that wait, of which `f` says yes, by their names; at most `most`.
    pub fn find(&self, most: usize, f: impl Fn(&Request) -> bool) -> Vec<Arc<Request>> {
        let pending = self.pending.lock();
        let all = pending.values().filter(|r| f(r));
        all.take(most).cloned().collect()
    }

    /// The end of the last reference, or of the maker of a ring that nobody got.
    pub fn end(&self) {
        self.dead.store(true, Ordering::SeqCst);
        let thread = self.thread.lock().take();
        if let Some(t) = thread {
            t.leave(self);
        }
        self.cancel_all(|_| true);
        // Files that it registered may hold what waits for this ring.
        self.resources.clear();
        let eventfd = self.eventfd.lock().take();
        drop(eventfd);
        let all = std::mem::take(&mut self.personalities.lock().all);
        drop(all);
        self.groups.clear();
    }

    /// Ends all requests of which `f` says yes, whatever they wait for.
    pub fn cancel_all(&self, f: impl Fn(&Request) -> bool) {
        let waiting = self.drain.lock().take(&f);
        for r in waiting {
            r.end_unissued();
        }
        // What ends may let others begin to wait.
        loop {
            let all = self.find(256, |r| f(r) && !r.is_noted());
            if all.is_empty() {
                break;
            }
            for r in all {
                let _ = r.cancel();
            }
        }
        let local: Vec<_> = {
            let mut l = self.local.lock();
            let (out, keep): (Vec<_>, Vec<_>) = l.drain(..).partition(|r| f(r));
            *l = keep.into();
            out
        };
        for r in local {
            r.end_unissued();
        }
    }

    /// As `/proc/PID/fdinfo` tells of it.
    #[must_use]
    pub fn describe(&self) -> String {
        let s = &self.shared;
        let sizes = &s.sizes;
        let word = |w| s.get(w).to_string();
        let rows = [
            ("SqMask", format!("{:#x}", sizes.sq_entries - 1)),
            ("SqHead", word(Word::SqHead)),
            ("SqTail", word(Word::SqTail)),
            ("CachedSqHead", self.sq_head().to_string()),
            ("CqMask", format!("{:#x}", sizes.cq_entries - 1)),
            ("CqHead", word(Word::CqHead)),
            ("CqTail", word(Word::CqTail)),
            ("CachedCqTail", self.cq_tail().to_string()),
            ("UserFiles", self.resources.files.count().to_string()),
            ("UserBufs", self.resources.buffers.count().to_string()),
        ];
        let line = |(name, value)| format!("{name}:\t{value}\n");
        rows.into_iter().map(line).collect()
    }
}

/// Who ends a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Task,
    /// What Linux's workers would have done.
    Worker,
    Timer,
}

/// What is to happen to a completion for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Full {
    Keep,
    Refuse,
}

/// A result as a completion has it.
#[must_use]
pub fn result(r: Result<usize>) -> i32 {
    match r {
        Ok(n) => n.min(i32::MAX as usize) as i32,
        Err(e) => error(e),
    }
}

/// No request is restarted (`io_rw_done`).
#[must_use]
pub fn error(e: Errno) -> i32 {
    -if e.is_restart() { EINTR } else { e }.raw()
}
