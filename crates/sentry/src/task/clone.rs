//! clone(2), clone3(2), fork(2), vfork(2).
//!
//! Three steps: [`CloneArgs::check`] looks at what is asked for; [`prepare`] makes what is to be
//! the child's, which nobody sees yet; [`commit`] lists it, under the list's lock. Until that is
//! done, each part gives back by being dropped what it took: the user's count, the number, the
//! cgroup's.

use super::birth::{Attributes, Inherit};
use super::list::Process;
use super::quota::Counted;
use super::run::{self, Context};
use super::signal::Actions;
use super::trace::stops;
use super::{Sleep, Task, ThreadGroup, VforkDone};
use crate::cgroup::Cgroup;
use crate::ns::change::Fresh;
use crate::ns::pid::Pid;
use abi::errno::{EAGAIN, EINVAL, ENODEV, EOPNOTSUPP, EPERM, ERESTARTNOINTR, ESRCH};
use abi::linux::*;
use abi::{AltStack, Result, Va};
use bitflags::bitflags;
use parking_lot::RwLock;
use platform::AppThread;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{FdTable, FsContext};
use wait::Events;

bitflags! {
    /// What a child shares with its parent, and what is told of it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct CloneFlags: u64 {
        const CLONE_VM = CLONE_VM as u64;
        const CLONE_FS = CLONE_FS as u64;
        const CLONE_FILES = CLONE_FILES as u64;
        const CLONE_SIGHAND = CLONE_SIGHAND as u64;
        const CLONE_PIDFD = CLONE_PIDFD as u64;
        const CLONE_PTRACE = CLONE_PTRACE as u64;
        const CLONE_VFORK = CLONE_VFORK as u64;
        const CLONE_PARENT = CLONE_PARENT as u64;
        const CLONE_THREAD = CLONE_THREAD as u64;
        const CLONE_NEWNS = CLONE_NEWNS as u64;
        const CLONE_SYSVSEM = CLONE_SYSVSEM as u64;
        const CLONE_SETTLS = CLONE_SETTLS as u64;
        const CLONE_PARENT_SETTID = CLONE_PARENT_SETTID as u64;
        const CLONE_CHILD_CLEARTID = CLONE_CHILD_CLEARTID as u64;
        const CLONE_DETACHED = CLONE_DETACHED as u64;
        const CLONE_UNTRACED = CLONE_UNTRACED as u64;
        const CLONE_CHILD_SETTID = CLONE_CHILD_SETTID as u64;
        const CLONE_NEWCGROUP = CLONE_NEWCGROUP as u64;
        const CLONE_NEWUTS = CLONE_NEWUTS as u64;
        const CLONE_NEWIPC = CLONE_NEWIPC as u64;
        const CLONE_NEWUSER = CLONE_NEWUSER as u64;
        const CLONE_NEWPID = CLONE_NEWPID as u64;
        const CLONE_NEWNET = CLONE_NEWNET as u64;
        /// Of clone3(2) alone: in clone(2) it is a part of the signal.
        const CLONE_NEWTIME = CLONE_NEWTIME as u64;
        const CLONE_IO = CLONE_IO as u64;
        const CLONE_CLEAR_SIGHAND = CLONE_CLEAR_SIGHAND;
        const CLONE_INTO_CGROUP = CLONE_INTO_CGROUP;
    }
}

/// The most numbers that clone3(2) takes (`MAX_PID_NS_LEVEL`).
pub const SET_TID_MAX: usize = 32;

/// What is asked for, from either system call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneArgs {
    pub flags: CloneFlags,
    pub exit_signal: u64,
    /// The new stack pointer; 0 keeps the parent's.
    pub stack: u64,
    pub parent_tid: u64,
    pub child_tid: u64,
    pub tls: u64,
    /// Where `CLONE_PIDFD` puts the descriptor.
    pub pidfd: u64,
    /// The numbers that the child is to have: how many, and they.
    pub set_tid: (usize, [i32; SET_TID_MAX]),
    /// `CLONE_INTO_CGROUP`: the descriptor.
    pub cgroup: Option<i32>,
}

impl CloneArgs {
    fn has(&self, flag: CloneFlags) -> bool {
        self.flags.contains(flag)
    }

    /// What Linux refuses by looking at the flags and the caller alone (`copy_process`).
    fn check(&self, cx: &Context) -> Result<()> {
        let has = |f| self.has(f);
        // A thread has its process's namespaces of pids and users.
        let elsewhere = || !Arc::ptr_eq(&cx.ns().pid_for_children, &cx.pid.ns);
        let first = || cx.group.tgid == 1 || cx.group.unkillable.load(Ordering::Relaxed);
        let bad = (has(CloneFlags::CLONE_THREAD) && !has(CloneFlags::CLONE_SIGHAND))
            || (has(CloneFlags::CLONE_SIGHAND) && !has(CloneFlags::CLONE_VM))
            || (has(CloneFlags::CLONE_NEWNS) && has(CloneFlags::CLONE_FS))
            || (has(CloneFlags::CLONE_PIDFD)
                && has(CloneFlags::CLONE_THREAD)
                && has(CloneFlags::CLONE_DETACHED))
            || (has(CloneFlags::CLONE_SIGHAND) && has(CloneFlags::CLONE_CLEAR_SIGHAND))
            || (has(CloneFlags::CLONE_FS) && has(CloneFlags::CLONE_NEWUSER))
            || (has(CloneFlags::CLONE_NEWIPC) && has(CloneFlags::CLONE_SYSVSEM))
            || (has(CloneFlags::CLONE_THREAD)
                && (has(CloneFlags::CLONE_NEWUSER)
                    || has(CloneFlags::CLONE_NEWPID)
                    || elsewhere()))
            || (has(CloneFlags::CLONE_THREAD)
                && self.exit_signal != 0
                && has(CloneFlags::CLONE_PARENT))
            || (has(CloneFlags::CLONE_PARENT) && first());
        if bad { Err(EINVAL) } else { Ok(()) }
    }
}

/// What a child is made of: its parent's, or copies. Dropped, it gives all of it back.
struct Prepared {
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
    // What is sent from here on to it as one of many is looked for when the child is listed; what
    // was sent before is taken first.
    let sent_as_many = cx.group.sent_as_many.load(Ordering::SeqCst);
    if cx.has_work() {
        return Err(ERESTARTNOINTR);
    }
    let parent_mm = cx.mm();
    let event = stops::birth(cx, a);
    let prepared = prepare(cx, a, &parent_mm)?;
    let vfork = prepared.vfork.clone();
    let (child, thread) = commit(cx, a, prepared, sent_as_many, event)?;
    let number = child.pid.seen_in(&cx.pid.ns);
    let altstack = if a.has(CloneFlags::CLONE_VM) && !a.has(CloneFlags::CLONE_VFORK) {
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
    if let Some(e) = event {
        stops::clone_event(cx, e, &child);
    }
    if let Some(v) = vfork {
        wait_vfork(cx, &v);
        stops::vfork_done(cx, &child);
    }
    Ok(number as usize)
}

/// Copies what is to be the child's own.
fn prepare(cx: &mut Context, a: &CloneArgs, parent_mm: &Arc<mm::Mm>) -> Result<Prepared> {
    let into = match a.cgroup {
        Some(fd) => Some(crate::cgroup::files::target(cx, &*cx.fd(fd)?)?),
        None => None,
    };
    let kernel = cx.kernel.clone();
    let mut new = crate::ns::change::fresh(cx, a.flags.bits() as u32)?;
    // Whoever shares memory stays in its time.
    if !a.has(CloneFlags::CLONE_VM) {
        new.proxy = new.proxy.with_childrens_time();
    }
    let counted = super::quota::admit(cx, &kernel.tasks.lock(), &new.cred)?;
    cx.may_fork()?;
    // What does not come up in time (on a host without a free CPU) is gone to the platform, and a
    // process takes descriptors: clone(2) knows none of these errors.
    let not_up = |e| {
        if [ESRCH, abi::errno::EMFILE, abi::errno::ENFILE].contains(&e) {
            EAGAIN
        } else {
            e
        }
    };
    let mm = if a.has(CloneFlags::CLONE_VM) {
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
        let mm = parent_mm.fork(space, writers, ucounts).map_err(not_up)?;
        if !new.proxy.time.is_initial() {
            mm.address_space().own_clocks().map_err(not_up)?;
        }
        mm
    };
    let mut thread = mm.address_space().new_thread().map_err(not_up)?;
    child_state(cx, a, thread.as_mut())?;

    let fs = if a.has(CloneFlags::CLONE_FS) {
        cx.fs()
    } else {
        cx.fs().fork()
    };
    if a.has(CloneFlags::CLONE_NEWNS) {
        fs.unshare_ns(
            crate::ns::change::new_mounts(cx, &new.cred)?,
            &new.cred.user_ns,
        )?;
    }
    super::lanes::slots::end(&cx.task);
    // From now on a number stands for different files in one address space.
    if a.has(CloneFlags::CLONE_VM) && !a.has(CloneFlags::CLONE_FILES) {
        super::lanes::slots::end_read_slots(parent_mm);
    }
    let files = if a.has(CloneFlags::CLONE_FILES) {
        cx.files()
    } else {
        cx.files().fork(&cx.cred())?
    };
    // Another thread may have opened something since the memory was copied.
    if parent_mm.is_confidential() {
        mm.set_confidential()?;
    }
    Ok(Prepared {
        new,
        into,
        counted,
        mm,
        thread,
        fs,
        files,
        actions: actions(cx, a),
        vfork: a.has(CloneFlags::CLONE_VFORK).then(Arc::default),
    })
}

fn actions(cx: &Context, a: &CloneArgs) -> Arc<RwLock<Actions>> {
    if a.has(CloneFlags::CLONE_SIGHAND) {
        return cx.group.actions();
    }
    let mut copy = cx.group.actions().read().clone();
    if a.has(CloneFlags::CLONE_CLEAR_SIGHAND) {
        copy.clear_handlers();
    }
    Arc::new(RwLock::new(copy))
}

/// Puts the child into the list, unless something has come that the parent takes first. Nothing can
/// fail once the child is in it; what was taken for it until then goes back by itself.
fn commit(
    cx: &Context,
    a: &CloneArgs,
    made: Prepared,
    sent_as_many: u64,
    event: Option<u32>,
) -> Result<(Arc<Task>, Box<dyn AppThread>)> {
    let kernel = cx.kernel.clone();
    let births = kernel.births.read();
    let mut list = kernel.tasks.lock();
    // A group that is ending takes no new members (`fatal_signal_pending` in copy_process). And
    // whoever sends to many has not found the child. (Other signals do not begin it anew: a timer's
    // would again and again.)
    let sent = || cx.group.sent_as_many.load(Ordering::SeqCst) != sent_as_many && cx.has_work();
    if cx.is_killed() || cx.group.container.is_closed() || sent() {
        return Err(ERESTARTNOINTR);
    }
    if a.has(CloneFlags::CLONE_FS) && made.fs.in_exec() {
        return Err(EAGAIN);
    }
    let (asked, ns) = (
        &a.set_tid.1[..a.set_tid.0],
        &made.new.proxy.pid_for_children,
    );
    ns.check_numbers(asked, &cx.cred())?;
    let number = list.take_numbers(ns, asked)?;
    let charge = cgroup_of(cx, a, made.into.as_ref())?.try_charge()?;
    let process = if a.has(CloneFlags::CLONE_THREAD) {
        None
    } else {
        let me = number.list().process(cx.group.tgid).ok_or(EAGAIN)?;
        let group = new_group(cx, number.pid(), &made.actions);
        Some(new_process(cx, a, group, me))
    };
    let pid = number.keep();
    let group = process.as_ref().map_or(&cx.group, |p| &p.group).clone();
    let from = Inherit {
        pid,
        group,
        aio: if a.has(CloneFlags::CLONE_VM) {
            cx.task.aio()
        } else {
            Arc::default()
        },
        mm: made.mm,
        fs: made.fs,
        files: made.files,
        new: made.new,
        counted: made.counted,
        attributes: Attributes::of_child(cx, a, made.vfork),
    };
    let child = Task::new(&kernel, from);
    let cgroup = charge.keep();
    if let Some(p) = process {
        crate::cgroup::begin(&list, &child.group, &cgroup);
        list.add_process(p);
    }
    list.add_task(&child);
    if event.is_some() || a.has(CloneFlags::CLONE_PTRACE) {
        list.link_child(cx, &child);
    }
    drop(list);
    drop(births);
    Ok((child, made.thread))
}

/// The child's cgroup.
fn cgroup_of(cx: &Context, a: &CloneArgs, into: Option<&Arc<Cgroup>>) -> Result<Arc<Cgroup>> {
    match into {
        // It may have gone meanwhile.
        Some(c) if c.is_dead() => Err(ENODEV),
        // Threads are where their process is.
        Some(c) if a.has(CloneFlags::CLONE_THREAD) && !Arc::ptr_eq(c, &cx.group.cgroup()) => {
            Err(EOPNOTSUPP)
        }
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
    *g.memory.lock() = old.memory.lock().inherited();
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
    let (parent, exit_signal, parent_exec_id) = if a.has(CloneFlags::CLONE_PARENT) {
        (me.parent, me.exit_signal, me.parent_exec_id)
    } else {
        let exec_id = cx.group.exec_id.load(Ordering::SeqCst);
        (cx.group.tgid, a.exit_signal as i32, exec_id)
    };
    Process {
        parent,
        maker: match a.has(CloneFlags::CLONE_PARENT) {
            true => me.maker,
            false => cx.tid,
        },
        pgid: me.pgid,
        sid: me.sid,
        exit_signal,
        parent_exec_id,
        ..Process::leading(group)
    }
}

/// Writes what the flags ask for: the child's number, a descriptor of it.
fn tell(cx: &Context, a: &CloneArgs, child: &Arc<Task>, parent_mm: &mm::Mm) -> Result<()> {
    if a.has(CloneFlags::CLONE_PARENT_SETTID) {
        let number = child.pid.seen_in(&cx.pid.ns);
        let _ = parent_mm.write_obj(Va(a.parent_tid), &number);
    }
    if a.has(CloneFlags::CLONE_CHILD_SETTID) {
        let _ = child.mm().write_obj(Va(a.child_tid), &child.pid.own());
    }
    if a.has(CloneFlags::CLONE_PIDFD) {
        let fd = super::pidfd::open(cx, &child.group, 0)?;
        parent_mm.write_obj(Va(a.pidfd), &fd)?;
    }
    Ok(())
}

/// Takes a child back that never ran.
fn abandon(child: &Arc<Task>) {
    super::coredump::abandoned(child);
    let mut l = child.kernel.tasks.lock();
    l.unlink(child);
    let last = l.remove_task(child) == 0 && child.is_leader();
    let gone = last.then(|| l.reap(child.tid));
    drop(l);
    drop(gone);
}

/// The child's registers: the parent's, with its own stack, thread pointer and result.
fn child_state(cx: &Context, a: &CloneArgs, thread: &mut dyn AppThread) -> Result<()> {
    let mut r = cx.regs();
    r.rax = 0;
    if a.stack != 0 {
        r.rsp = a.stack;
    }
    if a.has(CloneFlags::CLONE_SETTLS) {
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

/// Makes a thread of the caller's process that never runs the application's code
/// (`create_io_thread`): it shares all that threads share, acts as the caller does now, and takes
/// no signals. It ends when `body` returns.
pub fn kernel_thread(
    cx: &mut Context,
    comm: &[u8],
    body: impl FnOnce(&mut Context) + Send + 'static,
) -> Result<()> {
    let kernel = cx.kernel.clone();
    let new = crate::ns::change::fresh(cx, 0)?;
    let counted = super::quota::admit(cx, &kernel.tasks.lock(), &new.cred)?;
    cx.may_fork()?;
    let births = kernel.births.read();
    let mut list = kernel.tasks.lock();
    if cx.is_killed() || cx.group.container.is_closed() {
        return Err(EAGAIN);
    }
    let number = list.take_number(&new.proxy.pid_for_children)?;
    let charge = cx.group.cgroup().try_charge()?;
    let from = Inherit {
        pid: number.keep(),
        group: cx.group.clone(),
        aio: cx.task.aio(),
        mm: cx.mm(),
        fs: cx.fs(),
        files: cx.files(),
        new,
        counted,
        attributes: Attributes::of_kernel_thread(cx, comm),
    };
    let task = Task::new(&kernel, from);
    task.uring.become_thread();
    charge.keep();
    list.add_task(&task);
    drop(list);
    drop(births);
    let (k, t) = (kernel.clone(), task.clone());
    let begun = kernel.threads.run(Box::new(move || {
        k.guard(|| run::run_kernel(Context::new(t, Box::new(super::uring::sqpoll::NoApp)), body));
    }));
    if begun.is_err() {
        abandon(&task);
    }
    begun
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
    let done = || match v.done.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(EAGAIN),
    };
    let queue = [(&v.queue, Events::IN)];
    let _ = cx.block_as(Sleep::Killable, &queue, None, done);
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
}
