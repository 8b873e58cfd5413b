//! Tasks and thread groups.
//!
//! A [`Task`] is a thread of the application; a host thread runs its [`run::run`] loop and owns its
//! [`Context`], which holds what only that thread touches (the application thread and its
//! registers). What others may touch is in [`Task`] and [`ThreadGroup`]. Relations (parents,
//! children, groups, sessions, zombies) are in [`list::TaskList`], under one lock.
//!
//! ## Waking a task
//!
//! Whoever changes something that a task must look at (a signal, the group's end, a stop) makes the
//! change visible and calls [`Task::kick`]. A task is in one of two places: in the Sentry, where it
//! looks at the system-call boundary and in every interruptible sleep; or in application code,
//! marked by [`Task::in_app`]. Both sides store first and load second ([`notice`]), so one of them
//! sees the other.

pub mod access;
pub mod aio;
pub mod birth;
pub mod clone;
pub mod coredump;
pub mod cpu;
pub mod cpu_timers;
pub mod creds;
pub mod epoll;
pub mod exec;
pub mod exit;
pub mod fanotify;
pub mod frame;
pub mod futex;
pub mod group;
pub mod jobs;
pub mod keyrings;
pub mod lanes;
pub mod later;
pub mod launch;
pub mod limits;
pub mod list;
mod notice;
pub mod persona;
pub mod pidfd;
pub mod quota;
pub mod run;
pub mod sched;
pub mod seccomp;
pub mod sigio;
pub mod signal;
pub mod signalfd;
pub mod threads;
pub mod trace;
pub mod uring;
pub mod wait4;

pub use group::ThreadGroup;
pub use run::Context;

use crate::Kernel;
use crate::ns::NsProxy;
use crate::ns::pid::Pid;
use abi::errno::ENOMEM;
use abi::linux::O_PATH;
use abi::signal::{SI_USER, SIGPIPE};
use abi::{Result, SigInfo, SigSet};
use mm::Mm;
use parking_lot::{Mutex, RwLock};
use platform::Interrupter;
use signal::Pending;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use vfs::caller::Client;
use vfs::fd_table::Room;
use vfs::file::{File, IoCaller};
use vfs::{Credentials, FdTable, FsContext, MountFlags, PathCx};
use wait::{Blocker, Events, Parker, WaitQueue, block_until};

/// One thread of the application.
///
/// Who may change what: *immutable* fields are set when the task is made; *own* ones are written by
/// the task's own thread only and read by all; an *atomic* is a value by itself, of which readers
/// see some moment's; a *cell* holds an `Arc` that the task replaces: clone it out and let go of
/// the lock, a leaf.
pub struct Task {
    /// The id; `pid` has its numbers. Immutable, as the four below.
    pub tid: i32,
    pub pid: Arc<Pid>,
    pub kernel: Arc<Kernel>,
    pub group: Arc<ThreadGroup>,
    /// Start, nanoseconds of CLOCK_BOOTTIME.
    pub start: i64,
    /// A cell, own.
    ns: RwLock<Arc<NsProxy>>,
    /// Shared by threads and by `CLONE_VM` children; replaced by execve(2), under the group's
    /// `exec_update`. A cell, own.
    mm: RwLock<Arc<Mm>>,
    /// Its contexts of asynchronous I/O: those of its memory. A cell, own.
    aio: RwLock<Arc<aio::Contexts>>,
    /// What it has to do with io_uring's rings. Has locks of its own, leaves.
    pub uring: uring::TaskSide,
    /// A cell, own.
    fs: RwLock<Arc<FsContext>>,
    /// `None` once the task has begun to exit. A cell, own.
    files: RwLock<Option<Arc<FdTable>>>,
    /// A cell, own; a program's are committed with its memory, under the group's `exec_update`.
    cred: RwLock<Arc<Credentials>>,
    /// Its keyrings. Locked before the container's keys, and before nothing else.
    pub keyrings: Mutex<keys::Rings>,
    /// Its own, while it acts as another; held while `cred` changes by that. A cell, own.
    real_cred: RwLock<Option<Arc<Credentials>>>,
    /// What it counts for its user; `None` once it has ended. A leaf.
    counted: Mutex<Option<quota::Counted>>,
    /// It changed to a user that has too many tasks. Own.
    over_limit: AtomicBool,
    /// Signals for this thread alone. Has a lock of its own.
    pub pending: Pending,
    /// The blocked signals. Own; in application code the thread's area has them ([`Task::mask`]).
    mask: AtomicU64,
    /// SIGKILL or the group's end: the task ends at the next boundary. Invariant: once true it
    /// stays so; then the task is kicked.
    killed: AtomicBool,
    /// Until when it waits for programs that serve its files; set when it ends, not by a signal.
    ends_until: OnceLock<Instant>,
    /// Whether it runs application code. Own; with `attention` see [`notice`].
    in_app: AtomicBool,
    /// Set by [`Task::kick`]; the boundary looks closer when it is, and takes it.
    attention: AtomicBool,
    /// Immutable; only this task sleeps there.
    parker: Arc<Parker>,
    /// Of the present application thread; `None` before it has one. A leaf; held while it is asked.
    interrupter: Mutex<Option<Arc<dyn Interrupter>>>,
    /// What others change of its fast paths.
    lanes: lanes::Shared,
    /// `comm`, at most 15 bytes. A leaf.
    comm: Mutex<Vec<u8>>,
    /// `set_tid_address(2)`: zeroed and woken at exit. Own.
    pub clear_child_tid: AtomicU64,
    /// `set_robust_list(2)`. Own.
    pub robust_list: AtomicU64,
    /// `prctl(PR_SET_PDEATHSIG)`. Own.
    pub pdeath_signal: AtomicI32,
    /// Invariant: once true it stays so. Set by the task, or by another thread's TSYNC under the
    /// task list's lock.
    pub no_new_privs: AtomicBool,
    /// Changed under the task list's lock.
    pub seccomp: seccomp::Seccomp,
    /// Has a lock of its own.
    pub trace: trace::Trace,
    /// Told when a vfork child lets go of the memory. A leaf.
    vfork_done: Mutex<Option<Arc<VforkDone>>>,
    /// It has left its registers for a core, or there was none when it ended: see [`coredump`].
    /// Changed under the lock of its process' core.
    has_joined_dump: AtomicBool,
    /// It stands still because of [`Task::must_hold`]. Own.
    pub held: AtomicBool,
    /// Its sleep is one that only SIGKILL ends (`TASK_KILLABLE`): see [`Sleep::Killable`]. Own.
    killable_sleep: AtomicBool,
    /// Nice value; scheduling is the host's, this is what is reported. Atomic, as those below that
    /// are told.
    pub nice: AtomicI32,
    /// A leaf.
    pub scheduling: RwLock<sched::Scheduling>,
    /// `ioprio_set(2)`: told, and without effect.
    pub io_priority: AtomicI32,
    /// Its NUMA policy, as [`mm::policy::Policy::bits`] gives it.
    pub numa_policy: AtomicU32,
    /// `personality(2)`. Atomic.
    pub persona: AtomicU32,
    /// Timer slack in nanoseconds: told, and without effect.
    pub timer_slack: AtomicU64,
    /// What it began with: its maker's at that time. Immutable.
    default_timer_slack: u64,
    /// Has atomics of its own.
    pub cpu: cpu::TaskCpu,
    /// The CPUs that sched_setaffinity(2) named, as bytes of a `cpu_set_t`: told, and not kept to.
    /// `None` for all. A leaf.
    pub affinity: RwLock<Option<Box<[u8]>>>,
}

/// The timer slack of a sandbox's first task, in nanoseconds.
pub const TIMER_SLACK: u64 = 50_000;

/// Makes those of a process's threads look that do not block all of what has been queued for it
/// (`retarget_shared_pending`).
///
/// A thread in application code changes its mask itself: it writes the mask, then looks at what it
/// was told that waits; it is told here, then its mask is read again.
pub fn redistribute(threads: &[Arc<Task>], waiting: SigSet) {
    let take = || {
        let mut took = 0;
        for t in threads.iter().filter(|t| !t.is_killed()) {
            if waiting.0 & !t.mask().0 & !took != 0 {
                t.kick();
                // It may have blocked it before the kick, and comes out without it.
                took |= waiting.0 & !t.mask().0;
            }
        }
        took
    };
    let left = waiting.0 & !take();
    if left != 0 {
        for t in threads {
            t.note_pending(SigSet(left));
        }
        take();
    }
}

/// The task that a caller of the VFS is.
#[must_use]
pub fn task_of(any: &dyn std::any::Any) -> Option<&Arc<Task>> {
    any.downcast_ref()
}

/// A vfork(2) parent waits here.
#[derive(Default)]
pub struct VforkDone {
    pub done: AtomicBool,
    pub queue: WaitQueue,
}

/// Whether who has this file is confidential: it is where files are so
/// ([`MountFlags::CONFIDENTIAL`]), and can be read by this.
fn marks_readers(f: &File) -> bool {
    let is_it = |p: &vfs::Path| p.mnt.flags().contains(MountFlags::CONFIDENTIAL) && !p.is_dir();
    f.flags() & O_PATH == 0 && f.path.as_ref().is_some_and(is_it)
}

impl Task {
    /// How urgent it is, as Linux's `task->prio` tells it: less is more urgent.
    #[must_use]
    pub fn urgency(&self) -> i32 {
        let nice = self.nice.load(Ordering::Relaxed);
        self.scheduling.read().urgency(nice)
    }

    #[must_use]
    pub fn mm(&self) -> Arc<Mm> {
        self.mm.read().clone()
    }
    #[must_use]
    pub fn fs(&self) -> Arc<FsContext> {
        self.fs.read().clone()
    }
    #[must_use]
    pub fn aio(&self) -> Arc<aio::Contexts> {
        self.aio.read().clone()
    }
    /// It has no contexts any more (execve, exit); gives those that it had.
    pub fn leave_aio(&self) -> Arc<aio::Contexts> {
        std::mem::take(&mut *self.aio.write())
    }
    /// Replaces the memory (execve); gives the old one.
    pub fn replace_mm(&self, mm: Arc<Mm>) -> Arc<Mm> {
        std::mem::replace(&mut *self.mm.write(), mm)
    }
    pub fn set_fs(&self, fs: Arc<FsContext>) {
        *self.fs.write() = fs;
    }
    /// The descriptor table; an empty one while exiting.
    #[must_use]
    pub fn files(&self) -> Arc<FdTable> {
        self.files.read().clone().unwrap_or_else(FdTable::new)
    }
    pub fn set_files(&self, files: Arc<FdTable>) {
        *self.files.write() = Some(files);
    }
    /// Lets the descriptor table go (exit); gives it.
    pub fn take_files(&self) -> Option<Arc<FdTable>> {
        self.files.write().take()
    }
    #[must_use]
    pub fn cred(&self) -> Arc<Credentials> {
        self.cred.read().clone()
    }
    pub fn set_cred(&self, c: Credentials) {
        let new = Arc::new(c);
        let old = std::mem::replace(&mut *self.cred.write(), new.clone());
        self.keyring_follows(&old, &new);
        self.local_is_stale();
        self.recount(&new);
    }
    /// It acts with other credentials for a while, and counts as before (`override_creds`). Own.
    pub(in crate::task) fn act_as(&self, c: Arc<Credentials>) {
        let mut real = self.real_cred.write();
        let old = std::mem::replace(&mut *self.cred.write(), c);
        real.get_or_insert(old);
    }
    /// It acts as itself again. Own.
    pub(in crate::task) fn act_as_itself(&self) {
        let mut real = self.real_cred.write();
        if let Some(c) = real.take() {
            *self.cred.write() = c;
        }
    }
    /// Whose it is for others, whoever it acts as just now (`real_cred`).
    #[must_use]
    pub fn real_cred(&self) -> Arc<Credentials> {
        let real = self.real_cred.read();
        real.clone().unwrap_or_else(|| self.cred())
    }
    /// It counts for the user of its new credentials.
    fn recount(&self, cred: &Credentials) {
        let mut counted = self.counted.lock();
        if counted.as_ref().is_some_and(|c| !c.is_of(cred)) {
            *counted = Some(quota::Counted::force(cred));
            drop(counted);
            let over = quota::is_over(self);
            self.over_limit.store(over, Ordering::Relaxed);
        }
    }
    /// It has ended.
    pub(crate) fn take_counted(&self) -> Option<quota::Counted> {
        self.counted.lock().take()
    }
    /// Whether it may become another program: not one that has changed to a user with too many
    /// tasks, until that has fewer (execve(2)'s `EAGAIN`).
    pub fn may_exec(&self) -> Result<()> {
        if self.over_limit.load(Ordering::Relaxed) && quota::is_over(self) {
            return Err(abi::errno::EAGAIN);
        }
        self.over_limit.store(false, Ordering::Relaxed);
        Ok(())
    }
    /// Its namespaces.
    #[must_use]
    pub fn ns(&self) -> Arc<NsProxy> {
        self.ns.read().clone()
    }
    /// Of this task only: it stands still, and is told its new names when it goes on.
    pub fn set_ns(&self, ns: Arc<NsProxy>) {
        // The old ones are dropped after the lock.
        let _old = std::mem::replace(&mut *self.ns.write(), ns);
        self.local_is_stale();
    }
    /// The id that a number stands for where this task is. It may be nobody's.
    pub fn id_of(&self, number: i32) -> Result<i32> {
        self.pid.ns.id_of(number).ok_or(abi::errno::ESRCH)
    }
    /// An id's number as this task sees it; 0 if it does not.
    #[must_use]
    pub fn number_of(&self, id: i32) -> i32 {
        if self.pid.ns.is_initial() {
            return id;
        }
        self.kernel.tasks.lock().number(id, &self.pid.ns)
    }
    /// The thread with this number; `ESRCH`.
    pub fn find_task(&self, number: i32) -> Result<Arc<Task>> {
        let l = self.kernel.tasks.lock();
        l.task(self.id_of(number)?).ok_or(abi::errno::ESRCH)
    }
    /// The process with this number; `ESRCH`.
    pub fn find_group(&self, number: i32) -> Result<Arc<ThreadGroup>> {
        let l = self.kernel.tasks.lock();
        l.group(self.id_of(number)?).ok_or(abi::errno::ESRCH)
    }
    /// The open file behind a descriptor; `EBADF`.
    pub fn fd(&self, fd: i32) -> Result<Arc<File>> {
        match &*self.files.read() {
            Some(f) => f.get(fd),
            None => Err(abi::errno::EBADF),
        }
    }
    /// The blocked signals. In application code they are where the application changes them itself.
    #[must_use]
    pub fn mask(&self) -> SigSet {
        let own = || SigSet(self.mask.load(Ordering::SeqCst));
        if !self.in_app.load(Ordering::SeqCst) {
            return own();
        }
        let shared = self
            .interrupter
            .lock()
            .as_ref()
            .and_then(|i| i.lanes()?.mask());
        shared.map_or_else(own, |m| SigSet(m).minus(SigSet::UNBLOCKABLE))
    }
    /// It comes out of application code, and has changed its mask there perhaps.
    fn take_mask(&self, m: u64) {
        let new = SigSet(m).minus(SigSet::UNBLOCKABLE);
        if new.0 != self.mask.load(Ordering::Relaxed) {
            self.mask.store(new.0, Ordering::SeqCst);
            self.attention.store(true, Ordering::SeqCst);
        }
        // Whoever saw it blocked sent no kick; and it may be as it was when it went in.
        if self.waiting() & !new.0 != 0 {
            self.attention.store(true, Ordering::SeqCst);
        }
        // Who sent something may have seen any mask that it had meanwhile, and chosen this thread:
        // with a kick, and then another look at the mask ([`redistribute`]), so here or there it is
        // seen that it blocks the signal now.
        if self.attention.load(Ordering::SeqCst) {
            self.leave_signals(new);
        }
    }
    /// What waits, and may be for this thread.
    fn waiting(&self) -> u64 {
        self.pending.bits().0 | self.group.shared.bits().0
    }
    /// Replaces the blocked signals; SIGKILL and SIGSTOP stay unblocked. By this task only.
    pub fn set_mask(&self, m: SigSet) {
        let new = m.minus(SigSet::UNBLOCKABLE).0;
        let old = self.mask.swap(new, Ordering::SeqCst);
        // Unblocked signals may be pending.
        self.attention.store(true, Ordering::SeqCst);
        self.leave_signals(SigSet(new & !old));
    }
    /// This task takes no more of the process's signals in `set`; what waits there may have been
    /// sent with a kick for this task alone, so the others are told (`retarget_shared_pending`).
    /// The sender queues, then reads masks; we wrote ours, and look at the queue now: one of us
    /// sees the other.
    pub fn leave_signals(&self, set: SigSet) {
        let waiting = self.group.shared.bits().0 & set.0;
        if waiting == 0 {
            return;
        }
        let mut threads = self.kernel.tasks.lock().threads(self.group.tgid);
        threads.retain(|t| t.tid != self.tid);
        redistribute(&threads, SigSet(waiting));
    }
    /// These signals of its process wait: its thread comes out when it does not block them any
    /// more.
    fn note_pending(&self, set: SigSet) {
        if let Some(i) = &*self.interrupter.lock()
            && let Some(l) = i.lanes()
        {
            l.note_pending(set.0);
        }
    }
    /// Sets its timer slack in nanoseconds; 0 for what it began with.
    pub fn set_timer_slack(&self, nanos: u64) {
        let n = match nanos {
            0 => self.default_timer_slack,
            n => n,
        };
        self.timer_slack.store(n, Ordering::Relaxed);
    }
    #[must_use]
    pub fn comm(&self) -> Vec<u8> {
        self.comm.lock().clone()
    }
    pub fn set_comm(&self, name: &[u8]) {
        *self.comm.lock() = name[..name.len().min(15)].to_vec();
    }
    /// Makes the task look: at the boundary, in its sleep, or by stopping application code.
    pub fn kick(&self) {
        self.stop_app();
        self.parker.unpark_now();
    }
    /// The same, but for its sleep.
    fn stop_app(&self) {
        if notice::kick(&self.in_app, &self.attention)
            && let Some(i) = &*self.interrupter.lock()
        {
            i.interrupt();
        }
    }
    /// Whether the task must end.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }
    /// It ends of its own will: programs that serve its files may hear of that while it waits.
    fn may_take_its_time(&self) {
        /// Less than those wait who end containers, and who look for memory ([`kernel::memory`]):
        /// nothing ends it sooner.
        ///
        /// [`kernel::memory`]: crate::kernel::memory
        const PATIENCE: Duration = Duration::from_secs(4);
        let _ = self.ends_until.set(Instant::now() + PATIENCE);
    }
    /// Ends the task at its next boundary.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.kick();
    }
    /// Whether something is pending that interrupts a sleep: a deliverable signal, the end, a stop,
    /// work for a ring.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.has_signal_work() || self.uring.is_due()
    }
    /// The same without what is no signal, stop or end: what ends io_uring_enter(2).
    #[must_use]
    pub fn has_signal_work(&self) -> bool {
        self.is_killed()
            || self.waiting() & !self.mask().0 != 0
            || self.must_stop()
            || self.must_hold()
    }
    /// Whether it stands still at the boundary: its container, or its control group, is frozen.
    #[must_use]
    pub fn must_hold(&self) -> bool {
        self.group.frozen.load(Ordering::SeqCst) || self.group.container.is_frozen()
    }
    /// What path operations run with.
    pub fn with_paths<R>(self: &Arc<Self>, f: impl FnOnce(&PathCx<'_>) -> R) -> R {
        let (fs, cred) = (self.fs(), self.cred());
        f(&PathCx {
            vfs: &self.kernel.vfs,
            fs: &fs,
            caller: vfs::Caller {
                cred: &cred,
                task: self,
            },
            blocker: &**self,
        })
    }
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.tid == self.group.tgid
    }
    /// How far it may make its table of descriptors grow, and at whose cost.
    #[must_use]
    pub fn room(&self) -> Room {
        Room {
            limit: self.nofile_limit(),
            cred: self.cred(),
        }
    }
    /// The process gets this file: it is confidential from now on where the file is
    /// ([`MountFlags::CONFIDENTIAL`]). `ENOMEM` where it cannot be. To be asked before a
    /// descriptor is installed, and where a ring's own files are used.
    pub fn heed_confidential(&self, f: &File) -> Result<()> {
        match marks_readers(f) {
            true => self.mm().set_confidential(),
            false => Ok(()),
        }
    }
    /// `RLIMIT_NOFILE`.
    #[must_use]
    pub fn nofile_limit(&self) -> u64 {
        self.group.limits.lock().0[limits::NOFILE].current
    }
    /// The limits that concern memory.
    #[must_use]
    pub fn mm_limits(&self) -> mm::Limits {
        let l = self.group.limits.lock();
        let locked = if self.cred().has(vfs::Caps::IPC_LOCK) {
            u64::MAX
        } else {
            l.0[limits::MEMLOCK].current
        };
        mm::Limits {
            address_space: l.0[limits::AS].current,
            data: l.0[limits::DATA].current,
            stack: l.0[limits::STACK].current,
            memlock: locked,
        }
    }
}

/// How a task's sleep shows, and what ends it early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// A signal ends it (`TASK_INTERRUPTIBLE`).
    Interruptible,
    /// Only the task's end does (`TASK_KILLABLE`).
    Killable,
    /// As that; but what it stands still for is shown elsewhere: a stop, a freezer.
    Still,
}

/// A task that sleeps so that only its end ends it.
struct Killably<'a> {
    task: &'a Task,
    sleep: Sleep,
}

impl<'a> Killably<'a> {
    fn new(task: &'a Task, sleep: Sleep) -> Self {
        task.killable_sleep
            .store(sleep == Sleep::Killable, Ordering::Relaxed);
        Killably { task, sleep }
    }
}

impl Blocker for Killably<'_> {
    fn parker(&self) -> &Arc<Parker> {
        &self.task.parker
    }
    fn interrupted(&self) -> bool {
        self.task.is_killed()
    }
}

impl Drop for Killably<'_> {
    fn drop(&mut self) {
        if self.sleep == Sleep::Killable {
            self.task.killable_sleep.store(false, Ordering::Relaxed);
        }
    }
}

impl Task {
    /// How far it is from running, as `/proc/PID/stat` says it of what is neither stopped nor
    /// ended: `R` runs or could, `S` sleeps, `D` sleeps so that only SIGKILL ends it. It follows
    /// from where its thread is: whatever it waits for, it waits in [`wait::retry_until`].
    #[must_use]
    pub fn state_letter(&self) -> char {
        match (
            self.parker.is_parked(),
            self.killable_sleep.load(Ordering::Relaxed),
        ) {
            (false, _) => 'R',
            (true, false) => 'S',
            (true, true) => 'D',
        }
    }

    /// Blocks until `attempt` gives something other than `EAGAIN`, as [`wait::block_until`] tells
    /// it: the one way in which a system call sleeps. `ERESTARTSYS` when a signal comes,
    /// `ETIMEDOUT` at the deadline.
    pub fn block<T>(
        &self,
        queues: &[(&WaitQueue, Events)],
        deadline: Option<Instant>,
        attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        block_until(self, queues, deadline, attempt)
    }

    /// Does what may find no room for a file's frames: once more when there is room.
    pub fn with_room<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        /// Where there is room, something else is missing; unless others had freed it just then.
        const TRIES: u32 = 3;
        let clas = &self.group.container.clas;
        let mut tries = 0;
        loop {
            match attempt() {
                Err(ENOMEM) if tries < TRIES => {
                    tries += u32::from(clas.has_room(abi::PAGE_SIZE));
                    self.mm().await_room()?;
                }
                r => return r,
            }
        }
    }

    /// As [`Task::block`], for a sleep of another kind.
    pub fn block_as<T>(
        &self,
        sleep: Sleep,
        queues: &[(&WaitQueue, Events)],
        deadline: Option<Instant>,
        attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match sleep {
            Sleep::Interruptible => self.block(queues, deadline, attempt),
            s => block_until(&Killably::new(self, s), queues, deadline, attempt),
        }
    }
}

impl Blocker for Context {
    fn parker(&self) -> &Arc<Parker> {
        &self.task.parker
    }
    fn interrupted(&self) -> bool {
        self.task.has_work()
    }
    fn killed(&self) -> bool {
        self.task.is_killed()
    }
}

impl IoCaller for Context {
    fn task(&self) -> &dyn std::any::Any {
        &self.task
    }
    fn credentials(&self) -> Arc<Credentials> {
        self.cred()
    }
    fn process(&self) -> (i32, i32) {
        (self.group.tgid, self.group.pid.own())
    }
    fn broken_pipe(&self) {
        let c = self.cred();
        let (pid, uid) = (self.group.pid.own(), c.user_ns.uid_shown(c.uid));
        let info = SigInfo::from_sender(SIGPIPE, SI_USER, pid, uid);
        let _ = self.kernel.send_to_task(self, info);
    }
}

impl Blocker for Task {
    fn parker(&self) -> &Arc<Parker> {
        &self.parker
    }
    fn interrupted(&self) -> bool {
        self.has_work()
    }
    fn killed(&self) -> bool {
        self.is_killed()
    }
}

impl Client for Task {
    fn credentials(&self) -> Arc<Credentials> {
        self.cred()
    }
    fn umask(&self) -> u32 {
        self.fs().umask()
    }
    fn waits_at_end(&self) -> bool {
        (self.ends_until.get()).is_some_and(|t| Instant::now() < *t)
    }
    fn task(&self) -> &dyn std::any::Any {
        self
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({})", self.tid)
    }
}

#[cfg(test)]
mod tests;
