//! Thread groups: processes.

use super::limits::Limits;
use super::signal::{Actions, Pending};
use crate::cgroup::Cgroup;
use crate::container::Container;
use crate::ns::pid::Pid;
use abi::Signal;
use abi::linux::CLOCK_BOOTTIME;
use abi::signal::SIGKILL;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wait::WaitQueue;

/// What the threads of a process share. The words are those of [`super::Task`]; *one-way* flags are
/// set and never cleared.
pub struct ThreadGroup {
    /// The id; `pid` has its numbers. Immutable, as the three below.
    pub tgid: i32,
    pub pid: Arc<Pid>,
    pub container: Arc<Container>,
    /// When its first thread began, nanoseconds of CLOCK_BOOTTIME: also when another has become the
    /// main one.
    pub start: i64,
    /// Signals that it has no handler for do not end or stop it, but for SIGKILL and SIGSTOP from
    /// above its pid namespace (`SIGNAL_UNKILLABLE`): process 1 of a container or a namespace.
    /// Atomic: true from the start or never, until a fault of its own ends it.
    pub unkillable: AtomicBool,
    /// Changed under the task list's lock. `None` before it is listed.
    cgroup: Mutex<Option<Arc<Cgroup>>>,
    /// Its control group is frozen. Changed under the task list's lock, with `cgroup`; then its
    /// threads are kicked.
    pub frozen: AtomicBool,
    /// Signal dispositions; `CLONE_SIGHAND` children share them. A cell, replaced by execve(2) when
    /// one thread is left.
    pub actions: RwLock<Arc<RwLock<Actions>>>,
    /// Signals for the process: any of its threads may take one. Has a lock of its own.
    pub shared: Pending,
    /// How often it was sent a signal as one of many. Counts up, under [`crate::Kernel::births`].
    pub sent_as_many: AtomicU64,
    /// Notified when a child changes state, and with `IN` for pidfds when this process ends.
    pub child_wait: WaitQueue,
    /// Notified when one of its threads has ended.
    pub exit_wait: WaitQueue,
    /// A leaf.
    pub limits: Mutex<Limits>,
    /// What of its memory may be here, and what stays: for whatever program it will be. A leaf.
    pub memory: Mutex<mm::Bounds>,
    /// The wait status that the group ends with, once decided (`SIGNAL_GROUP_EXIT`). Invariant:
    /// decided once, but for the bit of a core, and SIGKILL in its place while that is written.
    exit_status: Mutex<Option<i32>>,
    /// See [`super::coredump`].
    pub core: super::coredump::Slot,
    /// The wait status that it was reaped with.
    pub reaped_status: OnceLock<i32>,
    /// The wait status of the main thread's own exit(2). Written by that thread.
    leader_status: AtomicI32,
    /// The signal of the job-control stop that is in force, 0 if none. Begun and ended by one
    /// exchange.
    stopped: AtomicI32,
    /// The signal of the last stop, in force or not. Atomic, written before `stop_number`.
    stop_signal: AtomicI32,
    /// How many stops have begun: a traced thread shows each once. Counts up before the stop is in
    /// force.
    stop_number: AtomicU32,
    /// How often it was told to end. Counts up, then its threads are kicked.
    pub kills: AtomicU32,
    /// See [`super::access`].
    pub cred_mutex: super::access::CredMutex,
    /// See [`super::access`].
    pub exec_update: RwLock<()>,
    /// How many programs it has been (`self_exec_id`). Changed under `exec_update`.
    pub exec_id: AtomicU64,
    /// It gave its session's terminal up for itself (`TIOCNOTTY` of who does not lead the session).
    /// Atomic.
    pub without_terminal: AtomicBool,
    /// `prctl(PR_SET_CHILD_SUBREAPER)`. Atomic.
    pub subreaper: AtomicBool,
    /// Timers of the process. Have locks of their own.
    pub timers: crate::task::jobs::Timers,
    /// See [`super::cpu_timers`].
    pub cpu_watch: super::cpu_timers::CpuWatch,
    /// The program, for /proc/PID/exe. A leaf.
    pub exe: RwLock<Option<vfs::Path>>,
    /// CPU time of ended threads and left address spaces, and of waited-for children. Sums of
    /// atomics.
    pub cpu_ended: super::cpu::CpuSum,
    pub cpu_children: super::cpu::CpuSum,
    /// Of its CPU time, what its control groups have counted: those that it left, and the last at
    /// its end. A leaf.
    pub cpu_counted: Mutex<super::cpu::Cpu>,
    /// Keeps the program's file from being written. A leaf; what is taken out is dropped without
    /// it.
    pub exe_guard: Mutex<Vec<vfs::ops::ExecGuard>>,
    /// From which account its memory is paid: that of its control group, or of the nearest one
    /// above that has one. Changed with that group; read by its threads.
    pub payer: Arc<clas::Payer>,
    /// `oom_score_adj`: see [`crate::kernel`]'s `memory`. Atomic.
    pub oom_score_adj: AtomicI32,
    /// The least that an unprivileged process may set. Atomic.
    pub oom_score_adj_min: AtomicI32,
    /// Whether it, or one above, was started beside the container's first (`exec`): see
    /// [`super::quota`]. Set before it is listed.
    pub from_outside: AtomicBool,
}

impl ThreadGroup {
    #[must_use]
    pub fn new(
        pid: Arc<Pid>,
        container: &Arc<Container>,
        actions: Arc<RwLock<Actions>>,
        limits: Limits,
    ) -> Arc<ThreadGroup> {
        Arc::new(ThreadGroup {
            tgid: pid.id,
            cgroup: Mutex::new(None),
            frozen: AtomicBool::new(false),
            unkillable: AtomicBool::new(pid.is_init()),
            pid,
            container: container.clone(),
            start: hostcall::time::clock_nanos(CLOCK_BOOTTIME as i32),
            actions: RwLock::new(actions),
            shared: Pending::default(),
            sent_as_many: AtomicU64::new(0),
            child_wait: WaitQueue::new(),
            exit_wait: WaitQueue::new(),
            limits: Mutex::new(limits),
            memory: Mutex::default(),
            exit_status: Mutex::new(None),
            core: Default::default(),
            reaped_status: OnceLock::new(),
            leader_status: AtomicI32::new(0),
            stopped: AtomicI32::new(0),
            stop_signal: AtomicI32::new(0),
            stop_number: AtomicU32::new(0),
            kills: AtomicU32::new(0),
            cred_mutex: Default::default(),
            exec_update: RwLock::new(()),
            exec_id: AtomicU64::new(0),
            without_terminal: AtomicBool::new(false),
            subreaper: AtomicBool::new(false),
            timers: crate::task::jobs::Timers::default(),
            cpu_watch: Default::default(),
            exe: RwLock::new(None),
            cpu_ended: Default::default(),
            cpu_children: Default::default(),
            cpu_counted: Default::default(),
            exe_guard: Mutex::new(Vec::new()),
            payer: Arc::new(clas::Payer::new(&container.clas)),
            oom_score_adj: AtomicI32::new(0),
            oom_score_adj_min: AtomicI32::new(0),
            from_outside: AtomicBool::new(false),
        })
    }
    /// Its control group. Asked only of processes that are in the task list, or were.
    #[must_use]
    pub fn cgroup(&self) -> Arc<Cgroup> {
        let c = self.cgroup.lock().clone();
        c.unwrap_or_else(Cgroup::nowhere)
    }
    pub fn set_cgroup(&self, c: Arc<Cgroup>) {
        *self.cgroup.lock() = Some(c);
    }
    #[must_use]
    pub fn actions(&self) -> Arc<RwLock<Actions>> {
        self.actions.read().clone()
    }
    /// Decides the wait status of the group's end; false if one is in force.
    pub fn decide_exit(&self, status: i32) -> bool {
        let mut decided = self.exit_status.lock();
        let is_new = decided.is_none();
        decided.get_or_insert(status);
        is_new
    }
    /// Whether all its threads are told to end. Of a process that leaves a core one is not, though
    /// its end is decided: who ends processes has to end that, too.
    #[must_use]
    pub fn needs_no_kill(&self) -> bool {
        self.exit_status().is_some() && !self.core.is_dumping()
    }
    /// The core for this signal is there: the wait status says so.
    pub fn note_core(&self, signal: i32) {
        if let Some(status) = &mut *self.exit_status.lock()
            && *status == signal
        {
            *status |= super::coredump::DUMPED;
        }
    }
    /// SIGKILL comes while it is being written.
    pub fn end_core(&self) {
        *self.exit_status.lock() = Some(SIGKILL.number());
    }
    #[must_use]
    pub fn oom_score_adj(&self) -> i32 {
        self.oom_score_adj.load(Ordering::Relaxed)
    }
    #[must_use]
    pub fn exit_status(&self) -> Option<i32> {
        *self.exit_status.lock()
    }
    pub fn set_leader_status(&self, status: i32) {
        self.leader_status.store(status, Ordering::SeqCst);
    }
    #[must_use]
    pub fn leader_status(&self) -> i32 {
        self.leader_status.load(Ordering::SeqCst)
    }
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) != 0
    }
    /// Begins a job-control stop. False if one is in force: traced threads show it again.
    pub fn begin_stop(&self, s: Signal) -> bool {
        self.stop_signal.store(s.number(), Ordering::SeqCst);
        self.stop_number.fetch_add(1, Ordering::SeqCst);
        self.stopped
            .compare_exchange(0, s.number(), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
    /// How many stops have begun.
    #[must_use]
    pub fn stop_number(&self) -> u32 {
        self.stop_number.load(Ordering::SeqCst)
    }
    /// The signal of the stop that is in force.
    #[must_use]
    pub fn stop_signal(&self) -> Option<i32> {
        self.is_stopping()
            .then(|| self.stop_signal.load(Ordering::SeqCst))
    }
    /// Ends it. True if one was in force.
    pub fn end_stop(&self) -> bool {
        self.stopped.swap(0, Ordering::SeqCst) != 0
    }
}
