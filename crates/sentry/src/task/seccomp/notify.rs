//! Calls that a listener answers (`SECCOMP_RET_USER_NOTIF`, `seccomp_unotify(2)`,
//! `kernel/seccomp.c`).
//!
//! A filter that was installed with a listener has [`Notifications`], and the listener's file has
//! the same ones. A task whose call the filter hands on adds a [`PendingCall`] and sleeps; the
//! listener takes it, and answers. What only the task itself can do, which is to install a
//! descriptor among its own, it is asked to do in that sleep ([`AddFd`]).
//!
//! Always: `calls` has exactly the tasks that sleep in [`Notifications::ask`]; `fresh` and
//! `received` agree with their phases. A call that is [`Phase::Replied`] stays so, but for an
//! [`AddFd`] that was to be the reply and fails.
//!
//! Locks: `state`, and below it only wait queues. No descriptor is installed under it: one that is
//! replaced may be the listener itself, whose end takes it.

use crate::task::{Context, Sleep, Task};
use abi::Result;
use abi::errno::{EAGAIN, EBUSY, EINPROGRESS, ENOENT, ENOSYS, ERESTARTSYS, ESRCH};
use parking_lot::Mutex;
use seccomp::bpf::Data;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::File;
use wait::{Events, WaitQueue};

/// Whether a call that was received may still be interrupted
/// (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnceReceived {
    Interruptible,
    Killable,
}

/// What becomes of a call that was handed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// It is not made; this is in its result's register.
    Result(u64),
    /// It is made (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`).
    Continue,
}

const NO_LISTENER: Reply = Reply::Result((ENOSYS.raw() as i64).wrapping_neg() as u64);

/// A call as its listener reads it.
pub struct SeccompNotif {
    pub id: u64,
    /// The caller's kernel-wide id.
    pub tid: i32,
    pub data: Data,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No listener has received it.
    Fresh,
    Received,
    Replied,
}

/// A descriptor that the caller is to have (`SECCOMP_IOCTL_NOTIF_ADDFD`).
pub struct AddFd {
    pub file: Arc<File>,
    pub cloexec: CloseOnExec,
    /// In place of this one (`SECCOMP_ADDFD_FLAG_SETFD`); else the lowest that is free.
    pub at: Option<i32>,
    /// Its number is the call's result, too (`SECCOMP_ADDFD_FLAG_SEND`).
    pub is_reply: bool,
    done: Mutex<Option<Result<i32>>>,
    queue: WaitQueue,
}

impl AddFd {
    #[must_use]
    pub fn new(file: Arc<File>, cloexec: CloseOnExec) -> AddFd {
        AddFd {
            file,
            cloexec,
            at: None,
            is_reply: false,
            done: Mutex::new(None),
            queue: WaitQueue::new(),
        }
    }
    fn finish(&self, r: Result<i32>) {
        *self.done.lock() = Some(r);
        self.queue.notify(Events::IN);
    }
}

/// A task that waits for the answer to its call.
struct PendingCall {
    tid: i32,
    data: Data,
    phase: Phase,
    reply: Reply,
    /// The newest first, as Linux does them.
    adds: VecDeque<Arc<AddFd>>,
    /// Where the task sleeps.
    queue: Arc<WaitQueue>,
}

/// What a task that sleeps is to do.
enum Step {
    Add(Arc<AddFd>),
    Done(Reply),
    /// Its sleep is to be of the other kind.
    SleepAnew,
}

#[derive(Default)]
struct State {
    /// The listener's file is gone.
    closed: bool,
    /// No task has the filter any more.
    unused: bool,
    next: u64,
    /// How many receptions find a call, or found one that was interrupted since: as Linux counts
    /// them, so that such a reception ends by `ENOENT`.
    requests: u64,
    calls: BTreeMap<u64, PendingCall>,
    fresh: BTreeSet<u64>,
    received: usize,
}

impl State {
    fn set_phase(&mut self, id: u64, phase: Phase) {
        let Some(w) = self.calls.get_mut(&id) else {
            return;
        };
        let old = std::mem::replace(&mut w.phase, phase);
        self.uncount(id, old);
        match phase {
            Phase::Fresh => drop(self.fresh.insert(id)),
            Phase::Received => self.received += 1,
            Phase::Replied => {}
        }
    }
    fn uncount(&mut self, id: u64, phase: Phase) {
        match phase {
            Phase::Fresh => drop(self.fresh.remove(&id)),
            Phase::Received => self.received -= 1,
            Phase::Replied => {}
        }
    }
    /// The call, if it was received and has no reply.
    fn open(&mut self, id: u64) -> Result<&mut PendingCall> {
        let w = self.calls.get_mut(&id).ok_or(ENOENT)?;
        match w.phase {
            Phase::Received => Ok(w),
            _ => Err(EINPROGRESS),
        }
    }
    fn forget(&mut self, id: u64) -> VecDeque<Arc<AddFd>> {
        let Some(w) = self.calls.remove(&id) else {
            return VecDeque::new();
        };
        self.uncount(id, w.phase);
        w.adds
    }
}

/// The calls that a filter hands on to its listener.
pub struct Notifications {
    state: Mutex<State>,
    /// Told of calls that come, that are received, and of the filter's end.
    pub(super) queue: WaitQueue,
    once_received: OnceReceived,
}

/// The caller's side.
impl Notifications {
    #[must_use]
    pub fn new(once_received: OnceReceived) -> Arc<Notifications> {
        let mut random = [0; 8];
        hostcall::time::random(&mut random);
        let state = State {
            // Half of all numbers are left to count through.
            next: u64::from_le_bytes(random) >> 1,
            ..State::default()
        };
        Arc::new(Notifications {
            state: Mutex::new(state),
            queue: WaitQueue::new(),
            once_received,
        })
    }
    /// Whether it has its listener.
    pub(super) fn is_open(&self) -> bool {
        !self.state.lock().closed
    }
    /// Asks the listener about the task's call, and waits for its answer. `ERESTARTSYS` where a
    /// signal comes first.
    pub(super) fn ask(&self, cx: &Context, data: Data) -> Result<Reply> {
        let Some((id, queue)) = self.begin(cx.tid, data) else {
            return Ok(NO_LISTENER);
        };
        let result = self.await_reply(cx, id, &queue);
        let left = self.state.lock().forget(id);
        for add in left {
            add.finish(Err(ESRCH));
        }
        result
    }
    fn await_reply(&self, cx: &Context, id: u64, queue: &WaitQueue) -> Result<Reply> {
        loop {
            let sleep = self.sleep_of(id);
            let step = || self.step(id, sleep);
            match cx.block_as(sleep, &[(queue, Events::IN)], None, step) {
                Ok(Step::Add(add)) => {
                    if let Some(reply) = self.add(cx, id, &add) {
                        return Ok(reply);
                    }
                }
                Ok(Step::Done(reply)) => return Ok(reply),
                Ok(Step::SleepAnew) => {}
                Err(_) if sleep != self.sleep_of(id) => {}
                Err(e) => return Err(e),
            }
        }
    }
    fn begin(&self, tid: i32, data: Data) -> Option<(u64, Arc<WaitQueue>)> {
        let queue = Arc::new(WaitQueue::new());
        let mut s = self.state.lock();
        if s.closed {
            return None;
        }
        let id = s.next;
        s.next = s.next.wrapping_add(1);
        let waiting = PendingCall {
            tid,
            data,
            phase: Phase::Fresh,
            reply: Reply::Result(0),
            adds: VecDeque::new(),
            queue: queue.clone(),
        };
        s.calls.insert(id, waiting);
        s.fresh.insert(id);
        s.requests += 1;
        drop(s);
        self.queue.notify(Events::READABLE);
        Some((id, queue))
    }
    fn sleep_of(&self, id: u64) -> Sleep {
        let is_received = |w: &PendingCall| w.phase != Phase::Fresh;
        match self.once_received {
            OnceReceived::Killable if self.state.lock().calls.get(&id).is_some_and(is_received) => {
                Sleep::Killable
            }
            _ => Sleep::Interruptible,
        }
    }
    fn step(&self, id: u64, sleep: Sleep) -> Result<Step> {
        let mut s = self.state.lock();
        let w = s.calls.get_mut(&id).ok_or(ERESTARTSYS)?;
        if let Some(add) = w.adds.pop_front() {
            return Ok(Step::Add(add));
        }
        match w.phase {
            Phase::Replied => Ok(Step::Done(w.reply)),
            Phase::Fresh if sleep == Sleep::Killable => Ok(Step::SleepAnew),
            _ => Err(EAGAIN),
        }
    }
    /// Installs a descriptor among the task's own. Gives the call's reply, if it has one then: what
    /// the listener does when it knows of the descriptor comes after that.
    fn add(&self, task: &Task, id: u64, add: &AddFd) -> Option<Reply> {
        let (files, room, file) = (task.files(), task.room(), add.file.clone());
        let fd = task.heed_confidential(&file).and_then(|()| match add.at {
            None => files.install(file, add.cloexec, &room),
            Some(at) => files.install_at(at, file, add.cloexec, &room),
        });
        let reply = self.added(id, add, fd);
        add.finish(fd);
        reply
    }
    fn added(&self, id: u64, add: &AddFd, fd: Result<i32>) -> Option<Reply> {
        let mut s = self.state.lock();
        let closed = s.closed;
        let w = s.calls.get_mut(&id)?;
        match fd {
            _ if !add.is_reply => {}
            Ok(fd) => w.reply = Reply::Result(fd as u64),
            // Nobody is left to answer.
            Err(_) if closed => w.reply = NO_LISTENER,
            Err(_) => s.set_phase(id, Phase::Received),
        }
        let w = s.calls.get(&id)?;
        // One that is to be the reply, and has come meanwhile, is alone.
        let is_open = w.phase != Phase::Replied || w.adds.front().is_some_and(|a| a.is_reply);
        (!is_open).then_some(w.reply)
    }
}

/// The listener's side.
impl Notifications {
    /// Whether a reception need not wait any more: `EAGAIN` if it must.
    pub(super) fn take_request(&self) -> Result<()> {
        let mut s = self.state.lock();
        if s.unused {
            return Ok(());
        }
        s.requests = s.requests.checked_sub(1).ok_or(EAGAIN)?;
        Ok(())
    }
    /// Receives the oldest call; `ENOENT` where there is none any more.
    pub(super) fn receive(&self) -> Result<SeccompNotif> {
        let mut s = self.state.lock();
        let id = *s.fresh.first().ok_or(ENOENT)?;
        s.set_phase(id, Phase::Received);
        let w = s.calls.get(&id).ok_or(ENOENT)?;
        let told = SeccompNotif {
            id,
            tid: w.tid,
            data: w.data,
        };
        drop(s);
        self.queue.notify(Events::WRITABLE);
        Ok(told)
    }
    /// A call that was received could not be told.
    pub(super) fn put_back(&self, id: u64) {
        let mut s = self.state.lock();
        if s.open(id).is_err() {
            return;
        }
        s.set_phase(id, Phase::Fresh);
        s.requests += 1;
        let sleeper = s.calls.get(&id).map(|w| w.queue.clone());
        drop(s);
        if let Some(q) = sleeper {
            q.notify(Events::IN);
        }
        self.queue.notify(Events::READABLE);
    }
    /// Answers a call: `ENOENT`, `EINPROGRESS`.
    pub(super) fn send(&self, id: u64, reply: Reply) -> Result<()> {
        let mut s = self.state.lock();
        let w = s.open(id)?;
        w.reply = reply;
        let sleeper = w.queue.clone();
        s.set_phase(id, Phase::Replied);
        drop(s);
        sleeper.notify(Events::IN);
        Ok(())
    }
    /// Whether a call still waits for its answer.
    pub(super) fn is_valid(&self, id: u64) -> bool {
        self.state.lock().open(id).is_ok()
    }
    /// Gives a call's caller a descriptor, and waits until it has it: its number there.
    pub(super) fn add_fd(&self, task: &Task, id: u64, add: AddFd) -> Result<i32> {
        let add = Arc::new(add);
        let mut s = self.state.lock();
        let w = s.open(id)?;
        if add.is_reply && !w.adds.is_empty() {
            return Err(EBUSY);
        }
        w.adds.push_front(add.clone());
        let sleeper = w.queue.clone();
        if add.is_reply {
            s.set_phase(id, Phase::Replied);
        }
        drop(s);
        sleeper.notify(Events::IN);
        let done = || (*add.done.lock()).unwrap_or(Err(EAGAIN));
        match task.block(&[(&add.queue, Events::IN)], None, done) {
            Err(ERESTARTSYS) if self.withdraw(id, &add) => Err(ERESTARTSYS),
            // The caller is about to do it.
            Err(ERESTARTSYS) => {
                task.block_as(Sleep::Killable, &[(&add.queue, Events::IN)], None, done)
            }
            r => r,
        }
    }
    /// Takes a descriptor back that its caller has not seen.
    fn withdraw(&self, id: u64, add: &Arc<AddFd>) -> bool {
        let mut s = self.state.lock();
        let Some(w) = s.calls.get_mut(&id) else {
            return false;
        };
        let before = w.adds.len();
        w.adds.retain(|a| !Arc::ptr_eq(a, add));
        w.adds.len() != before
    }
    /// What poll(2) says.
    pub(super) fn ready(&self) -> Events {
        let s = self.state.lock();
        let mut e = Events::empty();
        e.set(Events::READABLE, !s.fresh.is_empty());
        e.set(Events::WRITABLE, s.received != 0);
        e.set(Events::HUP, s.unused);
        e
    }
    /// The listener is gone: nobody waits for it any more.
    pub(super) fn close(&self) {
        let mut s = self.state.lock();
        s.closed = true;
        let ids: Vec<u64> = s.calls.keys().copied().collect();
        let mut sleepers = Vec::new();
        for id in ids {
            if let Some(w) = s.calls.get_mut(&id)
                && w.phase != Phase::Replied
            {
                w.reply = NO_LISTENER;
                sleepers.push(w.queue.clone());
            }
            s.set_phase(id, Phase::Replied);
        }
        drop(s);
        for q in sleepers {
            q.notify(Events::IN);
        }
    }
}

/// A filter's side of its notifications: without it no call comes any more.
pub(super) struct Source(pub Arc<Notifications>);

impl Drop for Source {
    fn drop(&mut self) {
        self.0.state.lock().unused = true;
        self.0.queue.notify(Events::HUP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> (Arc<Notifications>, u64) {
        let n = Notifications::new(OnceReceived::Killable);
        let (id, _) = n.begin(7, [0; 16]).unwrap();
        (n, id)
    }

    #[test]
    fn a_call_is_received_once_and_answered_once() {
        let (n, id) = one();
        assert_eq!(n.ready(), Events::READABLE);
        assert_eq!(n.send(id, Reply::Continue), Err(EINPROGRESS));
        assert!(!n.is_valid(id));
        assert_eq!(n.take_request(), Ok(()));
        assert_eq!(n.receive().unwrap().id, id);
        assert_eq!(n.take_request(), Err(EAGAIN));
        assert_eq!(n.ready(), Events::WRITABLE);
        assert!(n.is_valid(id));
        assert_eq!(n.send(id, Reply::Continue), Ok(()));
        assert_eq!(n.send(id, Reply::Continue), Err(EINPROGRESS));
        assert!(matches!(
            n.step(id, Sleep::Interruptible),
            Ok(Step::Done(Reply::Continue))
        ));
        n.state.lock().forget(id);
        assert_eq!(n.send(id, Reply::Continue), Err(ENOENT));
        assert_eq!(n.ready(), Events::empty());
    }

    #[test]
    fn what_could_not_be_told_is_told_again() {
        let (n, id) = one();
        n.take_request().unwrap();
        n.receive().unwrap();
        assert_eq!(n.sleep_of(id), Sleep::Killable);
        n.put_back(id);
        assert_eq!(n.sleep_of(id), Sleep::Interruptible);
        assert!(matches!(n.step(id, Sleep::Killable), Ok(Step::SleepAnew)));
        n.take_request().unwrap();
        assert_eq!(n.receive().unwrap().id, id);
    }

    #[test]
    fn an_interrupted_call_leaves_its_request() {
        let (n, id) = one();
        n.state.lock().forget(id);
        assert_eq!(n.take_request(), Ok(()));
        assert_eq!(n.receive().err(), Some(ENOENT));
    }

    #[test]
    fn ends_are_told_to_the_other_side() {
        let (n, id) = one();
        drop(Source(n.clone()));
        assert!(n.ready().contains(Events::HUP));
        assert_eq!(n.take_request(), Ok(()));
        n.close();
        let step = n.step(id, Sleep::Killable);
        assert!(matches!(step, Ok(Step::Done(NO_LISTENER))));
        assert!(n.begin(7, [0; 16]).is_none());
    }
}
