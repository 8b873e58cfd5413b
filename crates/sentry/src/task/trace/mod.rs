//! Tracing (`ptrace(2)`, `kernel/ptrace.c`, `kernel/signal.c`): a tracer, one thread, sees what its
//! tracees do, and changes it while they stand still.
//!
//! ## What Linux does
//!
//! A link is between two threads, and a thread has one tracer at most. A tracee stops at signals,
//! system calls and events, tells its tracer by SIGCHLD and wait4(2), and stands still until a
//! request lets it go on. Requests come from the tracer's very thread only.
//!
//! ## Where things are
//!
//! - [`links`]: who traces whom, and traced threads that have ended ([`links::Links`], a part of
//!   the task list).
//! - [`Trace`]: a tracee's own state: its link, its stop.
//! - [`stops`]: the tracee's side, on its own thread: where it stops, and how it goes on.
//! - [`requests`]: the tracer's side.
//! - [`registers`]: what a tracer sees of the CPU, and may set.
//!
//! ## Invariants
//!
//! 1. A link changes with the task list's lock *and* the tracee's `state` held, so either lock
//!    shows it. `Trace::on` follows it, under both: a task that nobody traces pays one load.
//! 2. A tracee's registers are its own thread's ([`Context`](super::Context)). At a stop it lays a
//!    copy into its [`Stop`], and takes it back when it goes on. A tracer reads and writes the copy
//!    with `state` held, and only while the stop is in force, its tracee not killed, and itself the
//!    tracer. So no request ever meets a tracee that runs, and neither waits for the other.
//! 3. `state` is a leaf: nothing is copied from or to an application's memory with it held, nobody
//!    is woken or signalled, and nothing sleeps. A hostile tracer can keep its tracee, and nothing
//!    else: who waits for the tracee's end waits as for any process that goes on.
//! 4. SIGKILL ends a stop at once: the tracee's sleep ends, and what was changed in the copy is
//!    dropped. Only the stop at a thread's own end ([`stops::at_exit`]) comes after that; it ends
//!    when the process is killed again, when its tracer is being killed, or the container ends.
//! 5. A tracer's end unlinks its tracees under the list's lock, after its own mark that it leaves
//!    ([`TaskList::leave`](super::list::TaskList::leave)): PTRACE_TRACEME, which looks at that mark
//!    under the same lock, never links to somebody who is past that.
//! 6. Attaching holds the tracee's [`CredMutex`](super::access::CredMutex): between execve(2)'s
//!    look at the tracer and the new credentials nobody attaches. A program that would gain
//!    privileges gets none where its tracer's, when it was linked, do not suffice
//!    ([`Task::tracer_may`]).
//! 7. A traced thread's address space has no patched call sites
//!    ([`Mm::end_patches`](mm::Mm::end_patches)): each of its calls comes to the Sentry, and its
//!    code is its own.
//!
//! Lock order: the task list → [`Trace`]'s `state` (a leaf).

pub mod links;
pub mod registers;
pub mod requests;
pub mod stops;

use super::Task;
use abi::ptrace::*;
use abi::signal::{SIGCHLD, SIGTRAP};
use abi::{SigInfo, SigSet};
use bitflags::bitflags;
use parking_lot::Mutex;
use platform::Regs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::SeqCst};
use vfs::userns::UserNs;
use vfs::{Caps, Credentials};

bitflags! {
    /// PTRACE_SETOPTIONS.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Options: u32 {
        const SYSGOOD = PTRACE_O_TRACESYSGOOD;
        const FORK = PTRACE_O_TRACEFORK;
        const VFORK = PTRACE_O_TRACEVFORK;
        const CLONE = PTRACE_O_TRACECLONE;
        const EXEC = PTRACE_O_TRACEEXEC;
        const VFORK_DONE = PTRACE_O_TRACEVFORKDONE;
        const EXIT = PTRACE_O_TRACEEXIT;
        const SECCOMP = PTRACE_O_TRACESECCOMP;
        const EXITKILL = PTRACE_O_EXITKILL;
        const SUSPEND_SECCOMP = PTRACE_O_SUSPEND_SECCOMP;
    }
}

bitflags! {
    /// How a tracee was let go on.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Mode: u8 {
        /// PTRACE_SYSCALL: it stops at both ends of a call.
        const SYSCALL = 1;
        /// PTRACE_SYSEMU: it stops at a call's beginning, and the call is not made.
        const EMULATE = 2;
        /// PTRACE_SINGLESTEP.
        const STEP = 4;
    }
}

bitflags! {
    /// Why a tracee is to stop as soon as it can.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Traps: u8 {
        /// PTRACE_INTERRUPT, or it was made by a seized one (`JOBCTL_TRAP_STOP`).
        const STOP = 1;
        /// The state of its group has changed (`JOBCTL_TRAP_NOTIFY`).
        const NOTIFY = 2;
    }
}

/// How a tracee was made one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// PTRACE_TRACEME, PTRACE_ATTACH.
    Attaching,
    /// PTRACE_SEIZE.
    Seizing,
}

/// A tracee's link to its tracer.
#[derive(Clone)]
pub struct Link {
    pub tracer: Arc<Task>,
    /// Whose privileges a program that gains some is measured by.
    pub cred: Arc<Credentials>,
    pub by: By,
    pub options: Options,
}

/// A tracee's state.
#[derive(Default)]
pub struct Trace {
    /// Whether it has a tracer.
    on: AtomicBool,
    /// [`Mode`]'s bits, as it was let go on last; none without a tracer.
    mode: AtomicU8,
    /// [`Traps`]'s bits. Set by anybody, then the task is kicked.
    traps: AtomicU8,
    /// The stop of its group that it has shown to its tracer
    /// ([`ThreadGroup::stop_number`](super::ThreadGroup::stop_number)).
    seen_stop: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    stop: Option<Stop>,
    /// The wait status of its end, once that is known.
    status: i32,
}

/// A stop that is in force.
struct Stop {
    /// What wait4(2) tells; 0 once it was told.
    code: i32,
    /// `None` for the group's stop, where nobody is seized.
    info: Option<SigInfo>,
    /// PTRACE_GETEVENTMSG.
    message: u64,
    /// PTRACE_LISTEN: it counts as one that runs, and stays.
    listening: bool,
    /// It is to go on, with this signal or none (0).
    resumed: Option<i32>,
    /// It comes after the task was killed.
    at_exit: bool,
    copy: CpuCopy,
}

/// What a tracer sees of its tracee's CPU and signals, and may change.
pub(in crate::task) struct CpuCopy {
    regs: Regs,
    regs_changed: bool,
    /// In a signal frame's format; empty: as at a program's start.
    fp: Vec<u8>,
    fp_changed: bool,
    mask: SigSet,
    /// The mask that a handler will return to, if that is another.
    saved_mask: Option<SigSet>,
    mask_changed: bool,
}

impl Stop {
    /// Whether requests find the tracee standing still.
    fn is_still(&self) -> bool {
        self.resumed.is_none() && !self.listening
    }
    /// Whether it is one of PTRACE_SEIZE's.
    fn is_event_stop(&self) -> bool {
        self.info
            .is_some_and(|i| i.code >> 8 == PTRACE_EVENT_STOP as i32)
    }
}

/// Whether what was told may be told again (`WNOWAIT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    Yes,
    No,
}

impl Trace {
    /// Whether the task has a tracer.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(SeqCst)
    }
    /// How it was let go on.
    #[must_use]
    pub fn mode(&self) -> Mode {
        Mode::from_bits_retain(self.mode.load(SeqCst))
    }
    fn set_mode(&self, m: Mode) {
        self.mode.store(m.bits(), SeqCst);
    }
    fn add_traps(&self, t: Traps) {
        self.traps.fetch_or(t.bits(), SeqCst);
    }
    fn end_traps(&self, t: Traps) {
        self.traps.fetch_and(!t.bits(), SeqCst);
    }
    fn wants(&self, t: Traps) -> bool {
        self.traps.load(SeqCst) & t.bits() != 0
    }
    /// Its link, if it has a tracer.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        self.is_on().then(|| self.state.lock().link.clone())?
    }
    /// Its tracer.
    #[must_use]
    pub fn tracer(&self) -> Option<Arc<Task>> {
        self.link().map(|l| l.tracer)
    }
    /// Whether it has a tracer with one of these options.
    #[must_use]
    pub fn has(&self, o: Options) -> bool {
        self.has_tracer(|l| l.options.intersects(o))
    }
    /// Whether it was made a tracee by PTRACE_SEIZE.
    #[must_use]
    pub fn is_seized(&self) -> bool {
        self.has_tracer(|l| l.by == By::Seizing)
    }
    fn has_tracer(&self, of_kind: impl Fn(&Link) -> bool) -> bool {
        self.is_on() && self.state.lock().link.as_ref().is_some_and(of_kind)
    }
    /// Whether it stands still for its tracer (`t` in /proc).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_on() && self.state.lock().stop.is_some()
    }
    /// What wait4(2) tells of its stop, once unless `keep`.
    #[must_use]
    pub fn tell(&self, keep: Keep) -> Option<i32> {
        let mut s = self.state.lock();
        let stop = s.stop.as_mut().filter(|s| s.is_still() && s.code != 0)?;
        let code = stop.code;
        if keep == Keep::No {
            stop.code = 0;
        }
        Some(code << 8 | 0x7f)
    }
    /// The wait status that its end will have.
    pub fn set_status(&self, status: i32) {
        self.state.lock().status = status;
    }
    /// The main thread that an execve(2) makes of another one goes on with that one's link. With
    /// the list's lock held.
    fn take_from(&self, old: &Trace) {
        let mut from = old.state.lock();
        let mut to = self.state.lock();
        to.link = from.link.take();
        for (a, b) in [(&self.mode, &old.mode), (&self.traps, &old.traps)] {
            a.store(b.load(SeqCst), SeqCst);
        }
        self.seen_stop.store(old.seen_stop.load(SeqCst), SeqCst);
        self.on.store(to.link.is_some(), SeqCst);
        old.on.store(false, SeqCst);
    }
}

impl Task {
    /// Whether it is to stop for its group or its tracer: each stop of the group once, if it has a
    /// tracer, who decides how long.
    #[must_use]
    pub fn must_stop(&self) -> bool {
        let (t, g) = (&self.trace, &self.group);
        if !t.is_on() {
            return g.is_stopping();
        }
        t.wants(Traps::all()) || g.is_stopping() && t.seen_stop.load(SeqCst) != g.stop_number()
    }

    /// Whether its tracer, if it has one, may trace a program with all capabilities in `ns`
    /// (`ptracer_capable`).
    #[must_use]
    pub fn tracer_may(&self, ns: &UserNs) -> bool {
        self.trace
            .link()
            .is_none_or(|l| l.cred.has_in(ns, Caps::SYS_PTRACE))
    }

    /// Has a seized tracee show that its group's state has changed.
    pub(super) fn trap_notify(&self) {
        if self.trace.is_seized() {
            self.trace.add_traps(Traps::NOTIFY);
            self.kick();
        }
    }
}

/// The info of a stop that no signal makes.
fn trap_info(code: i32, pid: i32, uid: u32) -> SigInfo {
    SigInfo::from_sender(SIGTRAP, code, pid, uid)
}

/// What a tracer is told by its signal.
fn child_info(why: i32, pid: i32, uid: u32, status: i32) -> SigInfo {
    let mut i = SigInfo::child(why, pid, uid, status);
    i.signo = SIGCHLD.number();
    i
}
