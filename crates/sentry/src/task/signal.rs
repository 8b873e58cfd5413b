//! Signals: queues, dispositions, sending (`signal(7)`, `kernel/signal.c`).
//!
//! Standard signals are pending at most once in each queue, real-time ones queue. A signal that is
//! ignored is dropped when sent, unless it is blocked (its disposition may change). SIGCONT and the
//! stop signals act when sent, whatever their disposition: each removes the others from the queues.

use super::list::TaskList;
use super::{Task, ThreadGroup};
use crate::Kernel;
use abi::errno::{EAGAIN, EPERM};
use abi::signal::*;
use abi::{Result, SigInfo, SigSet, Signal};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::Caps;
use vfs::landlock::{Scope, is_kept_from};
use vfs::ucounts::{Charge, Kind};
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A queue of pending signals.
#[derive(Default)]
pub struct Pending {
    /// The set of what is in `queue`, readable without the lock.
    bits: AtomicU64,
    queue: Mutex<VecDeque<Queued>>,
    /// For signalfd: notified when a signal is queued.
    pub wait: WaitQueue,
}

/// A signal that waits. Real-time ones are counted: each time they are sent they take room.
struct Queued {
    info: SigInfo,
    _counted: Option<Charge>,
}

/// How many real-time signals may be queued for a user whatever RLIMIT_SIGPENDING says.
const QUEUED_MAX: u64 = 131_072;

impl Pending {
    #[must_use]
    pub fn bits(&self) -> SigSet {
        SigSet(self.bits.load(Ordering::SeqCst))
    }
    /// Queues a signal for `to` or its process. `EAGAIN` if a real-time one finds `limit` of them
    /// queued for the user.
    pub(super) fn push(&self, info: SigInfo, to: &Task, limit: u64, from: From) -> Result<()> {
        let Some(s) = info.signal() else {
            return Ok(());
        };
        let mut q = self.queue.lock();
        if !s.is_realtime() && self.bits().contains(s) {
            return Ok(());
        }
        let take = || {
            let cred = to.cred();
            // It was counted with the timer, and waits once. (Anybody may send what looks like a
            // timer's.)
            if from == From::Timer {
                return Ok(cred.ucounts().force(Kind::Signals, 0));
            }
            let most = limit.min(QUEUED_MAX);
            cred.ucounts().charge(Kind::Signals, 1, most).ok_or(EAGAIN)
        };
        let counted = match s.is_realtime().then(take) {
            None => None,
            Some(Ok(c)) => Some(c),
            // kill(2) does not fail: what it sends is pending at least once.
            Some(Err(_)) if info.code == SI_USER && !self.bits().contains(s) => None,
            Some(Err(_)) if info.code == SI_USER => return Ok(()),
            Some(Err(e)) => return Err(e),
        };
        q.push_back(Queued {
            info,
            _counted: counted,
        });
        self.bits.fetch_or(SigSet::of(s).0, Ordering::SeqCst);
        drop(q);
        self.wait.notify(Events::READABLE);
        Ok(())
    }
    /// Takes the next signal of `set`: faults first, then the lowest number, then the oldest.
    pub fn take(&self, set: SigSet) -> Option<SigInfo> {
        /// Signals of the thread's own doing come first (`SYNCHRONOUS_MASK`).
        const SYNCHRONOUS: SigSet = SigSet(
            SigSet::of(SIGSEGV).0
                | SigSet::of(SIGBUS).0
                | SigSet::of(SIGILL).0
                | SigSet::of(SIGTRAP).0
                | SigSet::of(SIGFPE).0
                | SigSet::of(SIGSYS).0,
        );
        if self.bits().0 & set.0 == 0 {
            return None;
        }
        let mut q = self.queue.lock();
        let candidates = SigSet(self.bits().0 & set.0);
        let s = SigSet(candidates.0 & SYNCHRONOUS.0)
            .first()
            .or(candidates.first())?;
        let at = q.iter().position(|i| i.info.signo == s.number())?;
        let info = q.remove(at)?.info;
        if !s.is_realtime() || !q.iter().any(|i| i.info.signo == s.number()) {
            self.bits.fetch_and(!SigSet::of(s).0, Ordering::SeqCst);
        }
        Some(info)
    }
    /// What waits, from the `skip`th on, `most` at most: it goes on waiting.
    #[must_use]
    pub fn peek(&self, skip: u64, most: usize) -> Vec<SigInfo> {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let q = self.queue.lock();
        q.iter().skip(skip).take(most).map(|i| i.info).collect()
    }
    /// Removes every signal of `set`.
    pub fn discard(&self, set: SigSet) {
        let mut q = self.queue.lock();
        q.retain(|i| i.info.signal().is_none_or(|s| !set.contains(s)));
        self.bits.fetch_and(!set.0, Ordering::SeqCst);
    }
}

/// `struct kernel_sigaction`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SigAction {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: SigSet,
}

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;
pub const SA_NOCLDSTOP: u64 = 1;
pub const SA_NOCLDWAIT: u64 = 2;
pub const SA_SIGINFO: u64 = 4;
pub const SA_RESTORER: u64 = 0x0400_0000;
pub const SA_ONSTACK: u64 = 0x0800_0000;
pub const SA_RESTART: u64 = 0x1000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;

/// The dispositions of all signals.
#[derive(Clone)]
pub struct Actions([SigAction; 64]);

impl Default for Actions {
    fn default() -> Self {
        Actions([SigAction::default(); 64])
    }
}

impl Actions {
    #[must_use]
    pub fn get(&self, s: Signal) -> SigAction {
        self.0[s.number() as usize - 1]
    }
    pub fn set(&mut self, s: Signal, a: SigAction) {
        self.0[s.number() as usize - 1] = a;
    }
    /// Whether sending `s` does nothing.
    #[must_use]
    pub fn ignores(&self, s: Signal) -> bool {
        match self.get(s).handler {
            SIG_IGN => true,
            SIG_DFL => default_action(s) == DefaultAction::Ignore,
            _ => false,
        }
    }
    /// execve(2): handlers become the default, ignored signals stay ignored.
    pub fn reset_for_exec(&mut self) {
        for a in &mut self.0 {
            let keep = a.handler == SIG_IGN;
            *a = SigAction {
                handler: if keep { SIG_IGN } else { SIG_DFL },
                ..SigAction::default()
            };
        }
    }
    /// `CLONE_CLEAR_SIGHAND`.
    pub fn clear_handlers(&mut self) {
        for a in &mut self.0 {
            if a.handler != SIG_IGN {
                *a = SigAction::default();
            }
        }
    }
}

/// What a signal does by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultAction {
    Terminate,
    Core,
    Ignore,
    Stop,
    Continue,
}

/// The default action (`signal(7)`).
#[must_use]
pub fn default_action(s: Signal) -> DefaultAction {
    match s {
        SIGCONT => DefaultAction::Continue,
        SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => DefaultAction::Stop,
        SIGCHLD | SIGURG | SIGWINCH => DefaultAction::Ignore,
        SIGQUIT | SIGILL | SIGTRAP | SIGABRT | SIGBUS | SIGFPE | SIGSEGV | SIGXCPU | SIGXFSZ
        | SIGSYS => DefaultAction::Core,
        _ => DefaultAction::Terminate,
    }
}

/// The signals that stop.
pub const STOP_SIGNALS: SigSet = SigSet(
    SigSet::of(SIGSTOP).0 | SigSet::of(SIGTSTP).0 | SigSet::of(SIGTTIN).0 | SigSet::of(SIGTTOU).0,
);

/// Whether `from` may signal a process with the credentials `to` (`kill_ok_by_cred`).
#[must_use]
pub fn may_signal(from: &vfs::Credentials, to: &vfs::Credentials) -> bool {
    from.euid == to.suid
        || from.euid == to.uid
        || from.uid == to.suid
        || from.uid == to.uid
        || from.has_in(&to.user_ns, Caps::KILL)
}

/// Where a signal comes from, for a process 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    /// Its own pid namespace, or below.
    Within,
    /// A timer of its own.
    Timer,
    /// Above, or the kernel.
    Above,
}

impl From {
    fn kernel(info: &SigInfo) -> From {
        if info.code == SI_TIMER {
            From::Timer
        } else {
            From::Above
        }
    }
}

/// Whether it tells a sender's pid and uid (`has_si_pid_and_uid`).
fn has_sender(i: &SigInfo) -> bool {
    const SI_SIGIO: i32 = -5;
    i.code <= 0 && i.code != SI_TIMER && i.code != SI_SIGIO
}

impl Kernel {
    /// What sending does before queueing: stops and continues. True if the signal is to be queued.
    fn prepare(&self, g: &Arc<ThreadGroup>, to: &Task, s: Signal, from: From) -> bool {
        if g.exit_status().is_some() {
            return s == SIGKILL;
        }
        if STOP_SIGNALS.contains(s) {
            self.discard_in_group(g, SigSet::of(SIGCONT));
        } else if s == SIGCONT {
            self.discard_in_group(g, STOP_SIGNALS);
            if g.end_stop() {
                self.tasks.lock().note_continued(g.tgid);
                self.notify_parent_of_stop(g, CLD_CONTINUED, SIGCONT.number());
                for t in self.tasks.lock().threads(g.tgid) {
                    t.kick();
                }
            }
            for t in self.tasks.lock().threads(g.tgid) {
                t.trap_notify();
            }
        }
        // A tracer wants to know what is ignored, too, or does nothing to a process 1.
        if to.trace.is_on() && s != SIGKILL {
            return true;
        }
        // Blocked signals are never ignored: their disposition may change.
        if to.mask().contains(s) {
            return true;
        }
        // Process 1 is protected from signals without a handler; SIGKILL and SIGSTOP from above its
        // namespace are obeyed (pid_namespaces(7), `sig_task_ignored`).
        if g.unkillable.load(Ordering::Relaxed)
            && g.actions().read().get(s).handler == SIG_DFL
            && !(from == From::Above && SigSet::UNBLOCKABLE.contains(s))
        {
            return false;
        }
        !g.actions().read().ignores(s)
    }

    fn discard_in_group(&self, g: &Arc<ThreadGroup>, set: SigSet) {
        g.shared.discard(set);
        for t in self.tasks.lock().threads(g.tgid) {
            t.pending.discard(set);
        }
    }

    /// Sends a process's signal: numbers become the receiver's (`send_signal_locked`).
    pub fn send_from(
        &self,
        sender: &Task,
        g: &Arc<ThreadGroup>,
        thread: Option<&Arc<Task>>,
        mut info: SigInfo,
    ) -> Result<()> {
        let mut from = From::Within;
        if has_sender(&info) {
            let seen = sender.group.pid.seen_in(&g.pid.ns) != 0;
            let mine = sender.cred().user_ns.clone();
            let other = thread
                .cloned()
                .or_else(|| self.tasks.lock().some_thread(g.tgid))
                .map(|t| t.cred().user_ns.clone());
            let uid = match other {
                Some(o) if o != mine => mine
                    .uid_from(info.uid())
                    .map_or(vfs::userns::OVERFLOW, |u| o.uid_shown(u)),
                _ => info.uid(),
            };
            let pid = if seen { info.pid() } else { 0 };
            info.fields[0] = (pid as u32 as u64) | (u64::from(uid) << 32);
            if !seen {
                from = From::Above;
            }
        }
        match thread {
            Some(t) => self.to_task(t, info, from),
            None => self.to_group(g, info, from),
        }
    }

    /// Sends a signal of the kernel's own to one thread.
    pub fn send_to_task(&self, t: &Arc<Task>, info: SigInfo) -> Result<()> {
        self.to_task(t, info, From::kernel(&info))
    }

    fn to_task(&self, t: &Arc<Task>, info: SigInfo, from: From) -> Result<()> {
        let Some(s) = info.signal() else {
            return Ok(());
        };
        if !self.prepare(&t.group, t, s, from) {
            return Ok(());
        }
        let at_once = || !t.trace.is_on() && takes(t, s) && is_fatal(&t.group, s);
        if s == SIGKILL || at_once() {
            self.kill_group(&t.group, s.number());
            return Ok(());
        }
        self.queue(&t.pending, t, info, from)?;
        t.kick();
        Ok(())
    }

    /// Sends a signal of the kernel's own to a process: a thread that does not block it takes it.
    pub fn send_to_group(&self, g: &Arc<ThreadGroup>, info: SigInfo) -> Result<()> {
        self.to_group(g, info, From::kernel(&info))
    }

    fn to_group(&self, g: &Arc<ThreadGroup>, info: SigInfo, from: From) -> Result<()> {
        let Some(s) = info.signal() else {
            return Ok(());
        };
        let threads = self.tasks.lock().threads(g.tgid);
        let Some(main) = threads.iter().find(|t| t.is_leader()).or(threads.first()) else {
            return Ok(());
        };
        if !self.prepare(g, main, s, from) {
            return Ok(());
        }
        let at_once =
            || !main.trace.is_on() && is_fatal(g, s) && threads.iter().any(|t| takes(t, s));
        if s == SIGKILL || at_once() {
            self.kill_group(g, s.number());
            return Ok(());
        }
        self.queue(&g.shared, main, info, from)?;
        // Those that are there now: who comes later looks at the queue itself, who came meanwhile
        // did not see it.
        let threads = self.tasks.lock().threads(g.tgid);
        let main = threads.iter().find(|t| t.is_leader());
        // One that does not block it, the main thread first; a sleeper in sigwait is woken by the
        // queue.
        let one = main.into_iter().chain(&threads).find(|t| takes(t, s));
        if let Some(t) = one {
            t.kick();
            if takes(t, s) {
                return Ok(());
            }
        }
        // None takes it now: whoever blocks it no more, does.
        super::redistribute(&threads, SigSet::of(s));
        Ok(())
    }

    /// Queues within the receiver's RLIMIT_SIGPENDING.
    fn queue(&self, to: &Pending, t: &Task, info: SigInfo, from: From) -> Result<()> {
        let limit = t.group.limits.lock().0[super::limits::SIGPENDING].current;
        to.push(info, t, limit, from)
    }

    /// Sends to all that `members` finds. Of these none makes a child unseen meanwhile: one that
    /// has come so far before is found, and one that has not looks at its signals again, and takes
    /// this one before it has a child, or instead (`copy_process`). Nobody makes children as long
    /// as this takes: who is asked by a program, and holds no lock, takes its user's turn before
    /// ([`vfs::ucounts::Ucounts::turn`]).
    pub fn send_to_all(
        &self,
        members: impl FnOnce(&TaskList) -> Vec<Arc<ThreadGroup>>,
        mut send: impl FnMut(&Arc<ThreadGroup>),
    ) {
        let _alone = self.senders.lock();
        let _none_is_born = self.births.write();
        let groups = members(&self.tasks.lock());
        for g in &groups {
            g.sent_as_many.fetch_add(1, Ordering::SeqCst);
            send(g);
        }
    }

    /// Sends to every member of a process group. `false` if it has none.
    pub fn send_to_pgrp(&self, pgid: i32, info: SigInfo) -> bool {
        let mut any = false;
        self.send_to_all(
            |l| l.group_members(pgid),
            |g| {
                any = true;
                let _ = self.send_to_group(g, info);
            },
        );
        any
    }

    /// Ends a group with this wait status. Where it is leaving a core, only SIGKILL ends that, and is
    /// what it ends by (`complete_signal`): all but the writer are told already.
    pub fn kill_group(&self, g: &Arc<ThreadGroup>, status: i32) {
        // None is born until all are told: a birth looks under this lock whether it may be.
        let l = self.tasks.lock();
        if g.core.is_dumping() {
            if status != SIGKILL.number() {
                return;
            }
            g.end_core();
        }
        g.decide_exit(status);
        g.kills.fetch_add(1, Ordering::SeqCst);
        g.end_stop();
        l.threads(g.tgid).iter().for_each(|t| t.kill());
    }

    /// A signal that the thread itself caused: it cannot be blocked or ignored (`force_sig_info`).
    pub fn force(&self, t: &Arc<Task>, info: SigInfo) {
        let Some(s) = info.signal() else { return };
        let actions = t.group.actions();
        {
            let mut a = actions.write();
            if t.mask().contains(s) || a.get(s).handler == SIG_IGN {
                a.set(s, SigAction::default());
                let mut m = t.mask();
                m.remove(s);
                t.set_mask(m);
            }
            // Process 1 has no protection from its own faults, but where its tracer decides.
            if a.get(s).handler == SIG_DFL && !t.trace.is_on() {
                t.group.unkillable.store(false, Ordering::Relaxed);
            }
        }
        if s == SIGKILL {
            self.kill_group(&t.group, SIGKILL.number());
            return;
        }
        let _ = t.pending.push(info, t, u64::MAX, From::Within);
        t.kick();
    }
}

/// Whether a thread would take a signal sent to its process.
fn takes(t: &Task, s: Signal) -> bool {
    !t.mask().contains(s) && !t.is_killed()
}

/// Whether a signal ends the process whoever takes it, without a core: then it ends at once, even
/// where the thread that would take it sleeps uninterruptibly (`complete_signal`).
fn is_fatal(g: &ThreadGroup, s: Signal) -> bool {
    // Who is stopped takes nothing but SIGKILL until it goes on (`wants_signal`).
    default_action(s) == DefaultAction::Terminate
        && g.actions().read().get(s).handler == SIG_DFL
        && !g.is_stopping()
}

/// `CLD_*` codes of SIGCHLD.
pub const CLD_EXITED: i32 = 1;
pub const CLD_KILLED: i32 = 2;
pub const CLD_DUMPED: i32 = 3;
pub const CLD_TRAPPED: i32 = 4;
pub const CLD_STOPPED: i32 = 5;
pub const CLD_CONTINUED: i32 = 6;

/// The sender's side of kill(2) and its kin: permission, then sending.
pub fn check_permission(from: &Task, to: &Task, s: Option<Signal>) -> Result<()> {
    if Arc::ptr_eq(&from.group, &to.group) {
        return Ok(());
    }
    let (me, it) = (from.cred(), to.real_cred());
    // SIGCONT within a session needs no right.
    let continues = || {
        let l = from.kernel.tasks.lock();
        s == Some(SIGCONT) && l.sid(from.group.tgid) == l.sid(to.group.tgid)
    };
    if !may_signal(&me, &it) && !continues() {
        return Err(EPERM);
    }
    match is_kept_from(me.landlock.as_ref(), it.landlock.as_ref(), Scope::SIGNAL) {
        true => Err(EPERM),
        false => Ok(()),
    }
}
impl Task {
    /// Takes a pending signal of `set`, the thread's own first.
    #[must_use]
    pub fn take_signal(&self, set: SigSet) -> Option<SigInfo> {
        let mut info = self
            .pending
            .take(set)
            .or_else(|| self.group.shared.take(set))?;
        if info.code == SI_TIMER {
            self.group.timers.delivered(&mut info);
        } else if info.signo == SIGALRM.number() && info.code == SI_KERNEL {
            self.group.timers.real_delivered();
        }
        Some(info)
    }
}
