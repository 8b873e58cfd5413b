//! clone(2), clone3(2), fork(2), vfork(2).

use super::list::Process;
use super::quota::Counted;
use super::run::{self, Context};
use super::signal::{Actions, From};
use super::{Pending, Task, ThreadGroup, VforkDone};
use crate::cgroup::Cgroup;
use crate::ns::NsProxy;
use crate::ns::change::Fresh;
use crate::ns::pid::Pid;
use abi::errno::{EAGAIN, EINVAL, ENODEV, EOPNOTSUPP, EPERM, ERESTARTNOINTR, ESRCH};
use abi::linux::*;
use abi::{AltStack, Result, Va};
use parking_lot::{Mutex, RwLock};
use platform::AppThread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use vfs::{FdTable, FsContext};
use wait::Events;

/// What is asked for, from either system call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneArgs {
    /// Without the exit signal.
    pub flags: u64,
    pub exit_signal: u64,
    /// The new stack pointer; 0 keeps the parent's.
    pub stack: u64,
    pub parent_tid: u64,
    pub child_tid: u64,
    pub tls: u64,
    /// Where `CLONE_PIDFD` puts the descriptor.
    pub pidfd: u64,
    pub set_tid: Option<i32>,
    /// `CLONE_INTO_CGROUP`: the descriptor.
    pub cgroup: Option<i32>,
}

impl CloneArgs {
    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }

    /// What Linux refuses by looking at the flags and the caller alone (`copy_process`).
    fn check(&self, cx: &Context) -> Result<()> {
        let has = |f| self.has(f);
        // A thread has its process's namespaces of pids and users.
        let elsewhere = || !Arc::ptr_eq(&cx.ns().pid_for_children, &cx.pid.ns);
        let first = || cx.group.tgid == 1 || cx.group.unkillable.load(Ordering::Relaxed);
        let bad = (has(CLONE_THREAD) && !has(CLONE_SIGHAND))
            || (has(CLONE_SIGHAND) && !has(CLONE_VM))
            || (has(CLONE_NEWNS) && has(CLONE_FS))
            || (has(CLONE_PIDFD) && has(CLONE_THREAD) && has(CLONE_DETACHED))
            || (has(CLONE_SIGHAND) && self.flags & CLONE_CLEAR_SIGHAND != 0)
            || (has(CLONE_FS) && has(CLONE_NEWUSER))
            || (has(CLONE_NEWIPC) && has(CLONE_SYSVSEM))
            || (has(CLONE_THREAD) && (has(CLONE_NEWUSER) || has(CLONE_NEWPID) || elsewhere()))
            || self.exit_signal > 64
            || (has(CLONE_THREAD) && self.exit_signal != 0 && has(CLONE_PARENT))
            || (has(CLONE_PARENT) && first());
        if bad { Err(EINVAL) } else { Ok(()) }
    }
}

/// What a child is made of: its parent's, or copies.
struct Made {
    new: Fresh,
    /// The cgroup that it is to be in, if that is another than its parent's.
    into: Option<Arc<Cgroup>>,
    counted: Counted,
    mm: Arc<mm::Mm>,
    thread: Box<dyn AppThread>,
    fs: Arc<FsContext>,
    files: Arc<FdTable>,
    actions: Arc<RwLock<Actions>>,
    vfork: Option<Arc<VforkDone>>,
}

/// Makes the child; gives its tid. The registers are known (the call trapped).
pub fn clone(cx: &mut Context, a: &CloneArgs) -> Result<usize> {
    a.check(cx)?;
    // What is sent from here on to it as one of many is looked for when the child is listed; what was sent before is taken
    // first.
    let sent_as_many = cx.group.sent_as_many.load(Ordering::SeqCst);
    if cx.has_work() {
        return Err(ERESTARTNOINTR);
    }
    let parent_mm = cx.mm();
    let made = make(cx, a, &parent_mm)?;
    let vfork = made.vfork.clone();
    let (child, thread) = list(cx, a, made, sent_as_many)?;
    let number = child.pid.seen_in(&cx.pid.ns);
    let altstack = if a.has(CLONE_VM) && !a.has(CLONE_VFORK) {
        AltStack::RESET
    } else {
        cx.altstack
    };
    let begun =
        tell(cx, a, &child, &parent_mm).and_then(|()| start(child.clone(), thread, altstack));
    if let Err(e) = begun {
        abandon(&child);
        return Err(e);
    }
    if let Some(v) = vfork {
        wait_vfork(cx, &v);
    }
    Ok(number as usize)
}

/// Copies what is to be the child's own.
fn make(cx: &mut Context, a: &CloneArgs, parent_mm: &Arc<mm::Mm>) -> Result<Made> {
    let into = match a.cgroup {
        Some(fd) => Some(crate::cgroup::files::target(cx, &*cx.fd(fd)?)?),
        None => None,
    };
    let kernel = cx.kernel.clone();
    let new = crate::ns::change::fresh(cx, a.flags as u32)?;
    let counted = super::quota::admit(cx, &kernel.tasks.lock(), &new.cred)?;
    // What does not come up in time (on a host without a free CPU) is gone to the platform, and a process takes
    // descriptors: clone(2) knows none of these errors.
    let not_up = |e| {
        if [ESRCH, abi::errno::EMFILE, abi::errno::ENFILE].contains(&e) {
            EAGAIN
        } else {
            e
        }
    };
    let mm = if a.has(CLONE_VM) {
        parent_mm.clone()
    } else {
        // The task's own reference and the caller's: no other thread, no vfork(2) parent.
        let writers = if Arc::strong_count(parent_mm) <= 2 {
            mm::Writers::None
        } else {
            mm::Writers::Others
        };
        let space = kernel.platform.new_address_space().map_err(not_up)?;
        let ucounts = Some(new.cred.ucounts());
        parent_mm.fork(space, writers, ucounts).map_err(not_up)?
    };
    let mut thread = mm.address_space().new_thread().map_err(not_up)?;
    child_state(cx, a, thread.as_mut())?;

    let fs = if a.has(CLONE_FS) {
        cx.fs()
    } else {
        cx.fs().fork()
    };
    if a.has(CLONE_NEWNS) {
        fs.unshare_ns(
            crate::ns::change::new_mounts(cx, &new.cred)?,
            &new.cred.user_ns,
        )?;
    }
    super::lanes::slots::end(&cx.task);
    // From now on a number stands for different files in one address space.
    if a.has(CLONE_VM) && !a.has(CLONE_FILES) {
        super::lanes::slots::end_offers(parent_mm);
    }
    let files = if a.has(CLONE_FILES) {
        cx.files()
    } else {
        cx.files().fork(&cx.cred())?
    };
    Ok(Made {
        new,
        into,
        counted,
        mm,
        thread,
        fs,
        files,
        actions: actions(cx, a),
        vfork: a.has(CLONE_VFORK).then(Arc::default),
    })
}

fn actions(cx: &Context, a: &CloneArgs) -> Arc<RwLock<Actions>> {
    if a.has(CLONE_SIGHAND) {
        return cx.group.actions();
    }
    let mut copy = cx.group.actions().read().clone();
    if a.flags & CLONE_CLEAR_SIGHAND != 0 {
        copy.clear_handlers();
    }
    Arc::new(RwLock::new(copy))
}

/// Puts the child into the list, unless something has come that the parent takes first.
fn list(
    cx: &Context,
    a: &CloneArgs,
    made: Made,
    sent_as_many: u64,
) -> Result<(Arc<Task>, Box<dyn AppThread>)> {
    let kernel = cx.kernel.clone();
    let births = kernel.births.read();
    let mut list = kernel.tasks.lock();
    // A group that is ending takes no new members (`fatal_signal_pending` in copy_process). And whoever sends to many has
    // not found the child. (Other signals do not begin it anew: a timer's would again and again.)
    let sent = || cx.group.sent_as_many.load(Ordering::SeqCst) != sent_as_many && cx.has_work();
    if cx.is_killed() || cx.group.container.is_closed() || sent() {
        return Err(ERESTARTNOINTR);
    }
    if a.has(CLONE_FS) && made.fs.in_exec() {
        return Err(EAGAIN);
    }
    let pid = list.new_pid(&made.new.proxy.pid_for_children)?;
    let tid = pid.id;
    let cgroup = cgroup_of(cx, a, made.into.as_ref()).and_then(|c| c.try_charge().map(|()| c));
    let cgroup = match cgroup {
        Ok(c) => c,
        Err(e) => {
            list.release(tid);
            return Err(e);
        }
    };
    let process = match list.process(cx.group.tgid) {
        _ if a.has(CLONE_THREAD) => None,
        Some(me) => {
            let group = new_group(cx, &pid, &made.actions);
            Some(new_process(cx, a, group, me))
        }
        None => {
            cgroup.uncharge(1);
            list.release(tid);
            return Err(EAGAIN);
        }
    };
    let group = process.as_ref().map_or(&cx.group, |p| &p.group).clone();
    let (child, thread) = new_task(cx, a, pid, group, made);
    if let Some(p) = process {
        crate::cgroup::begin(&list, &child.group, &cgroup);
        list.add_process(p);
    }
    list.add_task(&child);
    drop(list);
    drop(births);
    Ok((child, thread))
}

/// The child's cgroup.
fn cgroup_of(cx: &Context, a: &CloneArgs, into: Option<&Arc<Cgroup>>) -> Result<Arc<Cgroup>> {
    match into {
        // It may have gone meanwhile.
        Some(c) if c.is_dead() => Err(ENODEV),
        // Threads are where their process is.
        Some(c) if a.has(CLONE_THREAD) && !Arc::ptr_eq(c, &cx.group.cgroup()) => Err(EOPNOTSUPP),
        Some(c) => Ok(c.clone()),
        None => Ok(cx.group.cgroup()),
    }
}

fn new_group(cx: &Context, pid: &Arc<Pid>, actions: &Arc<RwLock<Actions>>) -> Arc<ThreadGroup> {
    let old = &cx.group;
    let limits = old.limits.lock().clone();
    let g = ThreadGroup::new(pid.clone(), &old.container, actions.clone(), limits);
    *g.exe.write() = old.exe.read().clone();
    *g.exe_guard.lock() = old.exe_guard.lock().clone();
    for (to, from) in [
        (&g.from_outside, &old.from_outside),
        (&g.without_terminal, &old.without_terminal),
    ] {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for (to, from) in [
        (&g.oom_score_adj, &old.oom_score_adj),
        (&g.oom_score_adj_min, &old.oom_score_adj_min),
    ] {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    g
}

/// The child's entry in the list; `me` is its maker's.
fn new_process(cx: &Context, a: &CloneArgs, group: Arc<ThreadGroup>, me: &Process) -> Process {
    let (parent, exit_signal, parent_exec_id) = if a.has(CLONE_PARENT) {
        (me.parent, me.exit_signal, me.parent_exec_id)
    } else {
        let exec_id = cx.group.exec_id.load(Ordering::SeqCst);
        (cx.group.tgid, a.exit_signal as i32, exec_id)
    };
    Process {
        parent,
        pgid: me.pgid,
        sid: me.sid,
        exit_signal,
        parent_exec_id,
        ..Process::leading(group)
    }
}

fn new_task(
    cx: &Context,
    a: &CloneArgs,
    pid: Arc<Pid>,
    group: Arc<ThreadGroup>,
    made: Made,
) -> (Arc<Task>, Box<dyn AppThread>) {
    let same = |n: &AtomicI32| AtomicI32::new(n.load(Ordering::Relaxed));
    let mut t = Task::new(
        &cx.kernel,
        pid,
        group,
        made.mm,
        made.fs,
        made.files,
        made.new,
        made.counted,
    );
    t.over_limit = AtomicBool::new(cx.over_limit.load(Ordering::Relaxed));
    t.mask = AtomicU64::new(cx.mask().0);
    t.comm = Mutex::new(cx.comm());
    if a.has(CLONE_CHILD_CLEARTID) {
        t.clear_child_tid = AtomicU64::new(a.child_tid);
    }
    t.no_new_privs = AtomicBool::new(cx.no_new_privs.load(Ordering::Relaxed));
    t.seccomp = cx.seccomp.inherit();
    t.vfork_done = Mutex::new(made.vfork);
    let (policy, nice) = cx.inherited_priority();
    t.nice = AtomicI32::new(nice);
    t.policy = AtomicI32::new(policy);
    t.io_priority = same(&cx.io_priority);
    t.affinity = RwLock::new(cx.affinity.read().clone());
    t.numa_policy = AtomicU32::new(cx.numa_policy.load(Ordering::Relaxed));
    t.timer_slack = AtomicU64::new(cx.timer_slack.load(Ordering::Relaxed));
    (Arc::new(t), made.thread)
}

/// Writes what the flags ask for: the child's number, a descriptor of it.
fn tell(cx: &Context, a: &CloneArgs, child: &Arc<Task>, parent_mm: &mm::Mm) -> Result<()> {
    if a.has(CLONE_PARENT_SETTID) {
        let number = child.pid.seen_in(&cx.pid.ns);
        let _ = parent_mm.write_obj(Va(a.parent_tid), &number);
    }
    if a.has(CLONE_CHILD_SETTID) {
        let _ = child.mm().write_obj(Va(a.child_tid), &child.pid.own());
    }
    if a.has(CLONE_PIDFD) {
        let fd = crate::fs::pidfd::open(cx, &child.group, 0)?;
        parent_mm.write_obj(Va(a.pidfd), &fd)?;
    }
    Ok(())
}

/// Takes a child back that never ran.
fn abandon(child: &Arc<Task>) {
    let mut l = child.kernel.tasks.lock();
    let last = l.remove_task(child) == 0 && child.is_leader();
    let gone = last.then(|| l.reap(child.tid));
    drop(l);
    drop(gone);
}

/// The child's registers: the parent's, with its own stack, thread pointer and result.
fn child_state(cx: &Context, a: &CloneArgs, thread: &mut dyn AppThread) -> Result<()> {
    let mut r = cx.regs();
    r.rax = 0;
    r.orig_rax = u64::MAX;
    if a.stack != 0 {
        r.rsp = a.stack;
    }
    if a.flags & u64::from(CLONE_SETTLS) != 0 {
        if a.tls >= platform::USER_MAX {
            return Err(EPERM);
        }
        r.fs_base = a.tls;
    }
    let mut fp = Vec::new();
    cx.thread.fp_state(&mut fp);
    thread.set_regs(&r);
    if !fp.is_empty() {
        thread.set_fp_state(Some(&fp))?;
    }
    Ok(())
}

/// Starts the host thread of a task.
pub fn start(task: Arc<Task>, thread: Box<dyn AppThread>, altstack: AltStack) -> Result<()> {
    let kernel = task.kernel.clone();
    if task.is_leader() {
        task.group.timers.watch_cpu_limit(&kernel, &task.group);
    }
    let threads = &task.kernel.clone().threads;
    threads.run(Box::new(move || {
        kernel.guard(|| {
            let mut cx = Context::new(task, thread);
            cx.altstack = altstack;
            run::run(cx);
        });
    }))
}

/// Waits until the vfork child lets go of the memory. Only SIGKILL ends the wait early.
fn wait_vfork(cx: &Context, v: &VforkDone) {
    use wait::{Blocker, Listener};
    let parker = cx.task.parker();
    let t = v
        .queue
        .register(parker.clone() as Arc<dyn Listener>, Events::IN);
    let _state = cx.task.sleeps_killably();
    while !v.done.load(Ordering::SeqCst) && !cx.is_killed() {
        parker.park(None);
    }
    v.queue.unregister(t);
    // Signals that arrived meanwhile are looked at now.
    cx.task.attention.store(true, Ordering::SeqCst);
}

impl Task {
    /// Whether a vfork parent waits for the memory.
    #[must_use]
    pub fn borrows_memory(&self) -> bool {
        self.vfork_done.lock().is_some()
    }

    /// Lets the vfork parent go on, at execve and at exit.
    pub fn end_vfork(&self) {
        if let Some(v) = self.vfork_done.lock().take() {
            v.done.store(true, Ordering::SeqCst);
            v.queue.notify(Events::IN);
        }
    }

    /// A task that nothing is told of but what it must have.
    #[allow(clippy::too_many_arguments)]
    fn new(
        kernel: &Arc<crate::Kernel>,
        pid: Arc<Pid>,
        group: Arc<ThreadGroup>,
        mm: Arc<mm::Mm>,
        fs: Arc<FsContext>,
        files: Arc<FdTable>,
        new: Fresh,
        counted: Counted,
    ) -> Task {
        let start = match pid.id == group.tgid {
            true => group.start,
            false => hostcall::time::clock_nanos(CLOCK_BOOTTIME as i32),
        };
        Task {
            tid: pid.id,
            pid,
            group,
            ns: RwLock::new(new.proxy),
            kernel: kernel.clone(),
            mm: RwLock::new(mm),
            fs: RwLock::new(fs),
            files: RwLock::new(Some(files)),
            cred: RwLock::new(new.cred),
            counted: Mutex::new(Some(counted)),
            over_limit: AtomicBool::new(false),
            pending: Pending::default(),
            mask: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            in_app: AtomicBool::new(false),
            attention: AtomicBool::new(true),
            parker: kernel.parker(),
            interrupter: Mutex::new(None),
            lanes: super::lanes::Shared::default(),
            comm: Mutex::new(Vec::new()),
            clear_child_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            pdeath_signal: AtomicI32::new(0),
            no_new_privs: AtomicBool::new(false),
            seccomp: super::seccomp::Seccomp::default(),
            vfork_done: Mutex::new(None),
            held: AtomicBool::new(false),
            killable_sleep: AtomicBool::new(false),
            nice: AtomicI32::new(0),
            policy: AtomicI32::new(0),
            affinity: RwLock::default(),
            io_priority: AtomicI32::new(0),
            numa_policy: AtomicU32::new(0),
            start,
            timer_slack: AtomicU64::new(super::TIMER_SLACK),
            cpu: Default::default(),
        }
    }

    /// The first task of a sandbox.
    pub fn first(
        kernel: &Arc<crate::Kernel>,
        group: Arc<ThreadGroup>,
        mm: Arc<mm::Mm>,
        fs: Arc<FsContext>,
        files: Arc<FdTable>,
        cred: vfs::Credentials,
        proxy: Arc<NsProxy>,
    ) -> Arc<Task> {
        let counted = Counted::force(&cred);
        let new = Fresh {
            cred: Arc::new(cred),
            proxy,
        };
        let pid = group.pid.clone();
        Arc::new(Task::new(kernel, pid, group, mm, fs, files, new, counted))
    }

    /// execve(2) from another thread than the main one: the caller goes on as the main thread.
    pub fn become_leader(cx: &mut Context) {
        let old = cx.task.clone();
        let mut new = Task::first(
            &old.kernel,
            old.group.clone(),
            old.mm(),
            old.fs(),
            old.files(),
            (*old.cred()).clone(),
            old.ns(),
        );
        // Nobody else has it yet.
        if let Some(t) = Arc::get_mut(&mut new) {
            t.seccomp = old.seccomp.inherit();
            t.timer_slack = AtomicU64::new(old.timer_slack.load(Ordering::Relaxed));
        }
        new.set_mask(old.mask());
        new.set_comm(&old.comm());
        for info in std::iter::from_fn(|| old.pending.take(abi::SigSet::ALL)) {
            let _ = new.pending.push(info, &old, u64::MAX, From::Within);
        }
        for (to, from) in [
            (&new.pdeath_signal, &old.pdeath_signal),
            (&new.nice, &old.nice),
            (&new.policy, &old.policy),
            (&new.io_priority, &old.io_priority),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        *new.affinity.write() = old.affinity.read().clone();
        new.numa_policy
            .store(old.numa_policy.load(Ordering::Relaxed), Ordering::Relaxed);
        new.no_new_privs
            .store(old.no_new_privs.load(Ordering::Relaxed), Ordering::Relaxed);
        new.clear_child_tid.store(
            old.clear_child_tid.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        *new.vfork_done.lock() = old.vfork_done.lock().take();
        let mut l = old.kernel.tasks.lock();
        l.remove_task(&old);
        l.add_task(&new);
        // The leader that ended before counted as a zombie; the new one counts itself.
        if let Some(p) = l.process_mut(old.group.tgid) {
            p.counted = None;
        }
        drop(l);
        *new.interrupter.lock() = old.interrupter.lock().take();
        new.cpu.take_from(&old.cpu);
        cx.task = new;
    }

    /// Replaces the memory (execve); gives the old one.
    pub fn replace_mm(&self, mm: Arc<mm::Mm>) -> Arc<mm::Mm> {
        std::mem::replace(&mut *self.mm.write(), mm)
    }
    /// Lets the descriptor table go (exit); gives it.
    pub fn take_files(&self) -> Option<Arc<FdTable>> {
        self.files.write().take()
    }
}
