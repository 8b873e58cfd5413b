//! A request's life.
//!
//! ```text
//!           issue            EAGAIN: listens           told: work
//! waiting ─────────▶ busy ───────────────────▶ waiting ──────────▶ busy …
//!    │                │                            │
//!    └── cancelled ───┴── result ──────────────────┴──▶ done
//! ```
//!
//! *Busy* belongs to the thread that tries it. What is linked behind a request is held by it alone.

use super::abi::{Setup, SqeFlags, keeps_links, op};
use super::resources::Node;
use super::told::Arm;
use super::{By, Cqe, Ring, Sqe, error, result};
use crate::task::{Context, Task};
use abi::errno::{EAGAIN, EALREADY, EBADF, ECANCELED, ENOTSOCK};
use abi::linux::O_PATH;
use abi::{Errno, Result};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use vfs::ucounts::Charge;
use vfs::{Credentials, File};
use wait::{Events, Listener, Ticket};

/// What a request takes of the kernel's memory that outlives its call, bytes.
const REQUEST: u64 = 2048;

const WAITING: u8 = 0;
const BUSY: u8 = 1;
const DONE: u8 = 2;

/// What an attempt gives.
pub enum Outcome {
    Done(Done),
    /// Not now: again when the file tells of one of these.
    Wait(Arc<File>, Events),
    /// It waits for something else, and has arranged to be told.
    Pending,
}

/// A request's end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub res: i32,
    pub flags: u32,
    pub extra: [u64; 2],
    /// What is linked behind it is cancelled.
    pub failed: bool,
}

impl Done {
    /// Errors fail it.
    #[must_use]
    pub fn plain(res: i32) -> Done {
        Done {
            res,
            failed: res < 0,
            ..Done::default()
        }
    }
    #[must_use]
    pub fn of(r: Result<usize>) -> Done {
        Done::plain(result(r))
    }
    #[must_use]
    pub fn error(e: Errno) -> Done {
        Done::plain(error(e))
    }
}

impl From<Result<usize>> for Outcome {
    fn from(r: Result<usize>) -> Outcome {
        Outcome::Done(Done::of(r))
    }
}

impl From<Errno> for Outcome {
    fn from(e: Errno) -> Outcome {
        Outcome::Done(Done::error(e))
    }
}

/// Whether an end is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tell {
    Yes,
    No,
}

/// What happens to what is linked behind a request that ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    Begins,
    Cancelled,
}

/// What a request is to do.
pub trait Operation: Send + Sync {
    /// Tries it, without waiting.
    fn issue(&self, cx: &mut Context, r: &Arc<Request>) -> Outcome;
    /// It has ended, by whoever: what it arranged is taken back. No lock is held.
    fn leave(&self, _r: &Request) {}
    /// What it holds of the kernel's memory beside itself, bytes.
    fn weight(&self) -> u64 {
        0
    }
    fn as_any(&self) -> &dyn Any;
}

/// What an entry that is no good asks for.
struct Faulty(Errno);

impl Operation for Faulty {
    fn issue(&self, _: &mut Context, _: &Arc<Request>) -> Outcome {
        self.0.into()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A request (`struct io_kiocb`).
pub struct Request {
    pub ring: Arc<Ring>,
    /// Who submitted it, and tries it.
    pub task: Arc<Task>,
    pub sqe: Sqe,
    pub op: Box<dyn Operation>,
    /// As whom, if not as the task.
    pub identity: Option<Arc<Credentials>>,
    /// Its entry was no good.
    pub fault: Option<Errno>,
    pub number: u64,
    /// Which program its task was then.
    program: u64,
    phase: AtomicU8,
    /// It is to be cancelled; noted while it was busy.
    noted: AtomicBool,
    /// It is in its task's list of work.
    pub(super) queued: AtomicBool,
    /// It was told of by a completion of its own ring's, so that one more would tell it again.
    own: AtomicBool,
    /// It did not end in the call that submitted it.
    waited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<FileRef>,
    listens: Option<(Arc<File>, Events, Ticket)>,
    /// What is linked behind it.
    next: Option<Arc<Request>>,
    charge: Option<Charge>,
    /// What it has cancelled, to be told after its own end.
    after: Vec<Arc<Request>>,
}

/// A request's file.
#[derive(Clone)]
pub enum FileRef {
    Open(Arc<File>),
    Registered(Arc<Node<Arc<File>>>),
}

impl FileRef {
    #[must_use]
    pub fn file(&self) -> &Arc<File> {
        match self {
            FileRef::Open(f) => f,
            FileRef::Registered(n) => n.what(),
        }
    }
}

impl Request {
    #[must_use]
    pub fn new(
        ring: &Arc<Ring>,
        task: &Arc<Task>,
        sqe: Sqe,
        op: Result<Box<dyn Operation>>,
        identity: Option<Arc<Credentials>>,
    ) -> Arc<Request> {
        let fault = op.as_ref().err().copied();
        let op = op.unwrap_or_else(|e| Box::new(Faulty(e)));
        Arc::new(Request {
            ring: ring.clone(),
            task: task.clone(),
            sqe,
            op,
            identity,
            fault,
            number: ring.number(),
            program: task.uring.program(),
            phase: AtomicU8::new(WAITING),
            noted: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            own: AtomicBool::new(false),
            waited: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    #[must_use]
    pub fn has(&self, flag: SqeFlags) -> bool {
        self.sqe.has(flag)
    }
    pub(super) fn set_own(&self) {
        self.own.store(true, Ordering::SeqCst);
    }
    /// Whether a completion of its own ring's has told it of what there is; asked once.
    pub fn take_own(&self) -> bool {
        self.own.swap(false, Ordering::SeqCst)
    }
    /// Its operation as its own type.
    #[must_use]
    pub fn op<T: Operation + 'static>(&self) -> Option<&T> {
        self.op.as_any().downcast_ref()
    }
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == DONE
    }
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.noted.load(Ordering::SeqCst)
    }

    /// Whether its task still tries it: it has not ended, nor become another program, since.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.task.uring.tries(self.program)
    }

    /// Its file, found at the first attempt (`io_assign_file`); `EBADF`.
    pub fn file(&self) -> Result<Arc<File>> {
        if let Some(f) = &self.state.lock().file {
            return Ok(f.file().clone());
        }
        let found = match self.has(SqeFlags::FIXED_FILE) {
            true => self.registered_file(self.sqe.fd as u32)?,
            false => self.open_file(self.sqe.fd)?,
        };
        let file = found.file().clone();
        self.state.lock().file = Some(found);
        Ok(file)
    }
    /// Whether this is the file that was found.
    #[must_use]
    pub fn has_file(&self, f: &Arc<File>) -> bool {
        let s = self.state.lock();
        s.file
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own.file(), f))
    }
    /// A file that is registered with the ring; `EBADF`.
    pub fn registered_file(&self, slot: u32) -> Result<FileRef> {
        let node = self.ring.resources.files.get(slot).ok_or(EBADF)?;
        self.task.heed_confidential(node.what())?;
        Ok(FileRef::Registered(node))
    }
    /// A descriptor's file; `EBADF`.
    pub fn open_file(&self, fd: i32) -> Result<FileRef> {
        let f = self.task.fd(fd)?;
        match f.flags() & O_PATH {
            0 => Ok(FileRef::Open(f)),
            _ => Err(EBADF),
        }
    }

    /// Whether it waits at a word of its task's memory.
    #[must_use]
    pub fn waits_at_memory(&self) -> bool {
        matches!(self.sqe.opcode, op::FUTEX_WAIT | op::FUTEX_WAITV)
    }

    /// Whether its file is a ring.
    #[must_use]
    pub fn keeps_a_ring(&self) -> bool {
        let s = self.state.lock();
        let is_ring = |f: &FileRef| f.file().ops::<super::RingFile>().is_some();
        s.file.as_ref().is_some_and(is_ring)
    }

    /// It takes memory of the kernel's from now on; `ENOMEM`.
    pub fn charge(&self) -> Result<()> {
        let mut s = self.state.lock();
        if s.charge.is_none() {
            s.charge = Some(self.ring.charge(REQUEST + self.op.weight())?);
        }
        Ok(())
    }
    fn key(&self) -> (u64, u64) {
        (self.sqe.user_data, self.number)
    }
    /// It is to be found by who looks for what waits; `ENOMEM`, `ECANCELED` at the ring's end.
    pub fn enlist(self: &Arc<Self>) -> Result<()> {
        self.charge()?;
        self.waited.store(true, Ordering::Relaxed);
        self.ring.pending.lock().insert(self.key(), self.clone());
        if self.is_done() {
            // Somebody ended it before it was in the table.
            self.ring.pending.lock().remove(&self.key());
        }
        // Who ends the ring, or the task, looks at the table after this.
        if self.ring.is_dead() || !self.is_current() {
            return Err(ECANCELED);
        }
        Ok(())
    }

    /// What is linked behind it.
    pub fn set_next(&self, next: Arc<Request>) {
        self.state.lock().next = Some(next);
    }
    /// Looks at what is linked behind it, and may replace it.
    pub(super) fn with_next<R>(&self, f: impl FnOnce(&mut Option<Arc<Request>>) -> R) -> R {
        f(&mut self.state.lock().next)
    }

    /// Tries it, as often as it can go on. By its own task; false where another does, or it has
    /// ended.
    pub fn run(self: &Arc<Self>, cx: &mut Context) -> bool {
        let (done, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        let busy = self.phase.compare_exchange(WAITING, BUSY, done, failed);
        if busy.is_err() {
            return false;
        }
        loop {
            if self.is_noted() || self.ring.is_dead() || !self.is_current() {
                self.finish(Done::error(ECANCELED));
                return true;
            }
            let outcome = {
                let _as_another = self.identity.as_ref().map(|c| As::begin(cx, c));
                self.op.issue(cx, self)
            };
            let listens = match outcome {
                Outcome::Done(mut d) => {
                    // (Whose file is none, or no socket, fails as any.)
                    let is_none = [EBADF, ENOTSOCK].map(error).contains(&d.res);
                    d.failed &= is_none || !keeps_links(self.sqe.opcode);
                    self.finish(d);
                    let after = std::mem::take(&mut self.state.lock().after);
                    for r in after {
                        r.ended(Done::error(ECANCELED), !r.has(SqeFlags::IO_HARDLINK));
                    }
                    return true;
                }
                Outcome::Pending => Ok(true),
                Outcome::Wait(f, events) => self.listen(&f, events),
            };
            match listens {
                Ok(true) => break,
                Ok(false) => {}
                Err(e) => {
                    self.finish(Done::error(e));
                    return true;
                }
            }
        }
        super::links::begin_timeout(cx, self);
        if self
            .phase
            .compare_exchange(BUSY, WAITING, done, failed)
            .is_ok()
            && (self.is_noted() || self.ring.is_dead() || !self.is_current())
        {
            // Who cancelled it found it busy, or not at all.
            let _ = self.cancel();
        }
        true
    }

    /// Who is told for it, by what is no file: it is work then. Its end takes that back.
    #[must_use]
    pub fn listener(self: &Arc<Self>) -> Arc<dyn Listener> {
        Arc::new(Arm(Arc::downgrade(self)))
    }

    /// It goes on to listen on a file of which it has told what holds: what was told is not asked
    /// for again.
    pub fn listen_only(self: &Arc<Self>, f: &Arc<File>, events: Events) -> Result<()> {
        self.listen(f, events).map(|_| ())
    }

    /// Another takes its place, which tells nothing: `EALREADY` where it is busy, `ENOENT` where it
    /// has ended.
    pub fn replace(self: &Arc<Self>, new: &Arc<Request>) -> Result<()> {
        let (done, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.phase.compare_exchange(WAITING, DONE, done, failed) {
            Ok(_) => {}
            Err(BUSY) => return Err(EALREADY),
            Err(_) => return Err(abi::errno::ENOENT),
        }
        let (listens, file, next, charge) = {
            let mut s = self.state.lock();
            let file = s.file.take();
            (s.listens.take(), file, s.next.take(), s.charge.take())
        };
        leave_queue(listens);
        let own = self.ring.pending.lock().remove(&self.key());
        let mut s = new.state.lock();
        (s.file, s.next, s.charge) = (file, next, charge);
        drop(s);
        drop(own);
        Ok(())
    }

    /// Listens on the file; false where it may be ready meanwhile, so that it is to be tried again.
    fn listen(self: &Arc<Self>, f: &Arc<File>, events: Events) -> Result<bool> {
        let old = {
            let mut s = self.state.lock();
            match &s.listens {
                Some((g, e, _)) if Arc::ptr_eq(f, g) && *e == events => return Ok(true),
                _ => s.listens.take(),
            }
        };
        leave_queue(old);
        let q = f.ops.wait_queue().ok_or(EAGAIN)?;
        self.enlist()?;
        let arm = Arc::new(Arm(Arc::downgrade(self)));
        let ticket = match self.is_exclusive() {
            true => q.register_exclusive(arm, events),
            false => q.register(arm, events),
        };
        self.state.lock().listens = Some((f.clone(), events, ticket));
        if self.is_done() {
            // It ended before it had its ticket.
            let mine = self.state.lock().listens.take();
            leave_queue(mine);
        }
        Ok((f.poll(events) & (events | Events::ALWAYS)).is_empty())
    }

    fn is_exclusive(&self) -> bool {
        const EPOLLEXCLUSIVE: u32 = 1 << 28;
        self.sqe.opcode == op::POLL_ADD && self.sqe.op_flags & EPOLLEXCLUSIVE != 0
    }

    /// It is its task's work; false where that takes none any more, so that it is to be cancelled.
    /// May run under any lock.
    pub fn wake(self: &Arc<Self>) -> bool {
        self.queued.swap(true, Ordering::SeqCst) || super::work::push(self)
    }

    /// Ends it with `ECANCELED` if it waits: `EALREADY` where it is busy (it is noted then),
    /// `ENOENT` where it has ended.
    pub fn cancel(self: &Arc<Self>) -> Result<()> {
        self.end_waiting(Done::error(ECANCELED))
    }
    /// The same for another request, which is busy: its own end is told first.
    pub fn cancel_after(self: &Arc<Self>, by: &Request) -> Result<()> {
        self.claim()?;
        by.state.lock().after.push(self.clone());
        Ok(())
    }
    /// It waits, and will be ended by the caller.
    fn claim(&self) -> Result<()> {
        self.noted.store(true, Ordering::SeqCst);
        let (done, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.phase.compare_exchange(WAITING, DONE, done, failed) {
            Ok(_) => Ok(()),
            Err(BUSY) => Err(EALREADY),
            Err(_) => Err(abi::errno::ENOENT),
        }
    }
    /// The same with another result.
    pub fn end_waiting(self: &Arc<Self>, d: Done) -> Result<()> {
        self.claim()?;
        self.ended(d, d.failed && !self.has(SqeFlags::IO_HARDLINK));
        Ok(())
    }
    /// Ends one that never began, and all that is linked behind it: with what is wrong with its
    /// entry, or `ECANCELED`.
    pub fn end_unissued(self: &Arc<Self>) {
        if self.phase.swap(DONE, Ordering::SeqCst) != DONE {
            self.ended(self.cancelled(), true);
        }
    }

    /// Ends it; false where it had ended. The caller holds no lock.
    pub fn finish(self: &Arc<Self>, d: Done) -> bool {
        if self.phase.swap(DONE, Ordering::SeqCst) == DONE {
            return false;
        }
        self.ended(d, d.failed && !self.has(SqeFlags::IO_HARDLINK));
        true
    }

    fn cancelled(&self) -> Done {
        Done::error(self.fault.unwrap_or(ECANCELED))
    }

    /// What follows its end; and that of what is linked behind it, one after the other. What fails
    /// without wanting completions is told itself, and silences what it fails.
    fn ended(self: &Arc<Self>, d: Done, fails: bool) {
        let skips = self.has(SqeFlags::CQE_SKIP_SUCCESS);
        let tells = if d.failed || !skips {
            Tell::Yes
        } else {
            Tell::No
        };
        let then = if fails {
            Behind::Cancelled
        } else {
            Behind::Begins
        };
        let mut next = self.end_one(d, tells, then);
        let tells = if fails && skips { Tell::No } else { Tell::Yes };
        while let Some(n) = next {
            next = match n.phase.swap(DONE, Ordering::SeqCst) {
                DONE => None,
                _ => n.end_one(n.cancelled(), tells, Behind::Cancelled),
            };
        }
    }

    /// Its own end: gives what is to be cancelled behind it. What is to begin then is made work.
    fn end_one(self: &Arc<Self>, d: Done, tell: Tell, then: Behind) -> Option<Arc<Request>> {
        let (listens, file, charge) = {
            let mut s = self.state.lock();
            (s.listens.take(), s.file.take(), s.charge.take())
        };
        leave_queue(listens);
        self.op.leave(self);
        let own = self.ring.pending.lock().remove(&self.key());
        drop(file);
        if tell == Tell::Yes {
            let c = Cqe {
                user_data: self.sqe.user_data,
                res: d.res,
                flags: d.flags,
                extra: d.extra,
            };
            self.ring.complete(c, self.by());
        }
        let next = super::links::behind(self, then);
        self.ring.ended_one();
        drop((own, charge));
        next
    }

    fn by(&self) -> By {
        match self.sqe.opcode {
            op::TIMEOUT | op::LINK_TIMEOUT if self.waited.load(Ordering::Relaxed) => By::Timer,
            _ if self.has(SqeFlags::ASYNC) => By::Worker,
            _ => By::Task,
        }
    }

    /// Whether its work is its ring's, done only where its task asks for completions.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.ring.has(Setup::DEFER_TASKRUN)
    }
}

/// The caller holds no lock.
fn leave_queue(l: Option<(Arc<File>, Events, Ticket)>) {
    if let Some((f, _, t)) = l
        && let Some(q) = f.ops.wait_queue()
    {
        q.unregister(t);
    }
}

/// As long as it lives, the task acts as another.
struct As(Arc<Task>);

impl As {
    fn begin(cx: &Context, identity: &Arc<Credentials>) -> As {
        cx.task.act_as(identity.clone());
        As(cx.task.clone())
    }
}

impl Drop for As {
    fn drop(&mut self) {
        self.0.act_as_itself();
    }
}
