//! Ending: a thread, then its group; telling the parent (`kernel/exit.c`).

use super::seccomp::Mode;
use super::signal::{
    CLD_CONTINUED, CLD_DUMPED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, SA_NOCLDSTOP, SA_NOCLDWAIT,
    SIG_IGN,
};
use super::{Context, Task, ThreadGroup};
use crate::Kernel;
use abi::signal::{SIGCHLD, SIGCONT, SIGHUP};
use abi::{SigInfo, SigSet, Signal, Va};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wait::{Events, Steady, later};

/// The wait status of an exit code.
#[must_use]
pub const fn exited(code: i32) -> i32 {
    (code & 0xff) << 8
}

/// Sets the word of CLONE_CHILD_CLEARTID to 0 and wakes a waiter: only if someone shares the
/// memory, as Linux does (`mm_release`).
pub(super) fn clear_child_tid(task: &Task) {
    use super::futex::{Scope, wake};
    let at = Va(task.clear_child_tid.swap(0, Ordering::Relaxed));
    let mm = task.mm();
    // The task's own reference and this one.
    if at.0 != 0 && Arc::strong_count(&mm) > 2 && mm.write_obj(at, &0i32).is_ok() {
        let _ = wake(task, at, Scope::Shared, 1, !0);
        let _ = wake(task, at, Scope::Private, 1, !0);
    }
}

/// The task's end. Runs on its host thread, which ends afterwards.
pub fn finish(mut cx: Context) {
    // An end may be long, and what it wakes is to run.
    assert!(!wait::wakes::is_deferring());
    super::coredump::join(&mut cx);
    let task = cx.task.clone();
    let kernel = task.kernel.clone();
    let group = task.group.clone();
    let mm = task.mm();

    let own = cx.exit.unwrap_or(0);
    let status = group.exit_status().unwrap_or(own);
    super::trace::stops::at_exit(&mut cx, status);
    // From now on it is nobody's choice for a signal to the process.
    task.kill();
    task.leave_signals(SigSet::ALL);
    if task.seccomp.mode() == Mode::Filter {
        let list = kernel.tasks.lock();
        let filter = task.seccomp.release();
        drop(list);
        drop(filter);
    }
    super::futex::exit_robust_list(&task);
    clear_child_tid(&task);
    kernel.account(&task);
    let (is_last, filter) = {
        let mut list = kernel.tasks.lock();
        // (Another thread may have given it one meanwhile.)
        (list.leave(&task), task.seccomp.release())
    };
    drop(filter);
    if is_last {
        group.timers.clear();
        kernel.account_space(&task, &mm);
        kernel.account_group(&group);
    }
    // The application's thread ends before its number may be used again.
    drop(cx);
    // With its files, as Linux does (`io_uring_files_cancel`).
    task.leave_uring(super::uring::work::Leaves::AtExit);
    // Its parent goes on before files are closed, which may take time.
    task.end_vfork();
    if status & 0x7f == 0 {
        task.may_take_its_time();
    }
    drop(task.take_files());
    // What it kept is given back before anybody hears of the end.
    later::run();
    drop(task.take_keyrings());
    // While the memory is there, as Linux does (`exit_aio`).
    drop(task.leave_aio());
    mm.forget_thread();
    if is_last {
        mm.write_back_all();
    }
    // Each does so before it is removed: what they had mapped is let go of before anybody is told.
    drop(task.replace_mm(kernel.no_memory.clone()));
    drop(mm);
    later::run();

    // Nobody begins to trace for it any more: it leaves.
    kernel.untrace_all(&task);
    task.trace.set_status(group.exit_status().unwrap_or(own));
    let remaining = kernel.tasks.lock().remove_task(&task);
    kernel.tell_tracer_of_thread(&task);
    if task.is_leader() {
        group.set_leader_status(own);
    }
    if remaining == 0 {
        task.ns().ipc.process_ended(group.tgid);
        if group.pid.is_init() {
            kernel.end_namespace(&group, &Steady(task.parker.clone()));
        }
        // The main thread's own status counts if nothing ended the group as a whole.
        let status = group.exit_status().unwrap_or(group.leader_status());
        kernel.end_group(&group, status, &task);
    } else {
        // execve may wait until it is alone.
        group.exit_wait.notify(Events::IN);
    }
}

/// An end's code and value, as SIGCHLD tells them.
fn how(status: i32) -> (i32, i32) {
    if status & 0x7f == 0 {
        (CLD_EXITED, status >> 8)
    } else if status & super::coredump::DUMPED != 0 {
        (CLD_DUMPED, status & 0x7f)
    } else {
        (CLD_KILLED, status & 0x7f)
    }
}

/// Whether nobody there waits for children (`ignoring_children`).
fn ignores_children(g: &ThreadGroup) -> bool {
    let a = g.actions().read().get(SIGCHLD);
    a.handler == SIG_IGN || a.flags & SA_NOCLDWAIT != 0
}

/// A user's number as a process sees it.
fn uid_for(l: &super::list::TaskList, viewer: &ThreadGroup, uid: u32) -> u32 {
    l.some_thread(viewer.tgid)
        .map_or(uid, |t| t.cred().user_ns.uid_shown(uid))
}

impl Kernel {
    /// The last thread of a group has ended: children go to the reaper, the parent is told.
    fn end_group(self: &Arc<Self>, group: &Arc<ThreadGroup>, status: i32, last: &Arc<super::Task>) {
        let tgid = group.tgid;
        *group.exe.write() = None;
        group.exe_guard.lock().clear();
        let mut hangup = Vec::new();
        let mut orphans = Vec::new();
        let mut bereaved = Vec::new();
        let (session_leader, sid);
        {
            let mut l = self.tasks.lock();
            let reaper = l.reaper(tgid);
            let (pgid, s) = (l.pgid(tgid), l.sid(tgid));
            sid = s;
            session_leader = s == tgid;
            // Groups of ours that become orphaned by this end, with stopped members, get SIGHUP and
            // SIGCONT.
            let children: Vec<i32> = l
                .process(tgid)
                .map(|p| p.children.iter().copied().collect())
                .unwrap_or_default();
            let before: Vec<(i32, bool)> = children
                .iter()
                .map(|c| l.pgid(*c))
                .chain([pgid])
                .map(|g| (g, l.is_orphaned(g, None)))
                .collect();
            let moved = l.reparent(tgid, reaper);
            if let Some(p) = l.process_mut(tgid) {
                p.zombie = Some(status);
                crate::cgroup::end(group);
                p.cpu = group.cpu_ended.get();
                p.ended = Some(super::list::Ended::new(last));
            }
            for (g, was) in before {
                if !was && l.is_orphaned(g, None) && l.has_stopped(g) && !hangup.contains(&g) {
                    hangup.push(g);
                }
            }
            for c in moved {
                if let Some(p) = l.process(c) {
                    if p.zombie.is_some() {
                        orphans.push(c);
                    }
                    bereaved.push(c);
                }
            }
        }
        for g in hangup {
            self.send_to_pgrp(g, SigInfo::new(SIGHUP, abi::signal::SI_KERNEL));
            self.send_to_pgrp(g, SigInfo::new(SIGCONT, abi::signal::SI_KERNEL));
        }
        for c in orphans {
            self.tell_parent_of_exit(c);
        }
        for c in bereaved {
            self.send_pdeath(c, last);
        }
        if session_leader {
            self.end_session(sid);
        }
        group.exit_wait.notify(Events::READABLE);
        if tgid == 1 {
            self.end_container(&group.container, status);
        }
        self.tell_parent_of_exit(tgid);
    }

    /// A traced thread has ended that is not its process's main one.
    fn tell_tracer_of_thread(&self, task: &Task) {
        let (tracer, info) = {
            let l = self.tasks.lock();
            let Some(d) = l.dead_thread(task.tid) else {
                return;
            };
            let Some(tracer) = l.tracer_group(task.tid) else {
                return;
            };
            let (code, value) = how(d.status);
            let uid = uid_for(&l, &tracer, d.cred.uid);
            let pid = d.pid.seen_in(&tracer.pid.ns);
            (tracer, SigInfo::child(code, pid, uid, value))
        };
        let _ = self.send_to_group(&tracer, info);
        tracer.child_wait.notify(Events::IN);
    }

    /// A zombie that its parent, which was its tracer, does not want to wait for.
    pub(super) fn forget_ignored(&self, tgid: i32) {
        let ignored = {
            let l = self.tasks.lock();
            let parent = l.group(l.parent(tgid));
            parent.is_some_and(|p| ignores_children(&p))
        };
        if ignored {
            self.reap(tgid);
        }
    }

    fn reap(&self, tgid: i32) {
        let gone = self.tasks.lock().reap(tgid);
        drop(gone);
    }

    /// Sends the signals that a process asked for at its parent's death, as far as the parent may
    /// (`reparent_leader`).
    fn send_pdeath(&self, tgid: i32, parent: &super::Task) {
        let threads = self.tasks.lock().threads(tgid);
        for t in threads {
            if let Some(s) = Signal::new(t.pdeath_signal.load(Ordering::Relaxed))
                && super::signal::check_permission(parent, &t, Some(s)).is_ok()
            {
                let _ = self.send_to_task(&t, SigInfo::new(s, abi::signal::SI_USER));
            }
        }
    }

    /// Tells the parent of a zombie; one that nobody will wait for is reaped at once.
    pub(super) fn tell_parent_of_exit(&self, tgid: i32) {
        let (parent, info, signal, auto) = {
            let l = self.tasks.lock();
            let Some(p) = l.process(tgid) else { return };
            let Some(status) = p.zombie else { return };
            let Some(parent) = l.group(p.parent) else {
                // Started from outside: the starter is who waits for it, whoever traces it.
                let group = p.group.clone();
                drop(l);
                self.reap(tgid);
                self.end_outsider(&group, status);
                return;
            };
            // Its tracer sees it first, and lets the parent see it.
            let tracer = l.tracer_group(tgid);
            let traced = tracer.is_some();
            let (parent, mine) = match tracer {
                Some(t) if !Arc::ptr_eq(&t, &parent) => (t, false),
                _ => (parent, true),
            };
            let (code, value) = how(status);
            let pid = p.group.pid.seen_in(&parent.pid.ns);
            let mut info = SigInfo::child(code, pid, uid_for(&l, &parent, p.uid()), value);
            info.signo = match mine {
                true => p.exit_signal,
                false => SIGCHLD.number(),
            };
            // The program that agreed to another signal is gone, and the new one may have more
            // rights.
            if mine && p.parent_exec_id != parent.exec_id.load(Ordering::SeqCst) {
                info.signo = SIGCHLD.number();
            }
            let plain = info.signo == SIGCHLD.number();
            let a = parent.actions().read().get(SIGCHLD);
            let ignored = a.handler == SIG_IGN || a.flags & SA_NOCLDWAIT != 0;
            let auto = !traced && plain && ignored;
            let quiet = plain && a.handler == SIG_IGN;
            (parent, info, (info.signo, quiet), auto)
        };
        if auto {
            self.reap(tgid);
        }
        let (number, quiet) = signal;
        if number != 0 && !quiet {
            let _ = self.send_to_group(&parent, info);
        }
        parent.child_wait.notify(Events::IN);
    }

    /// Stops a group: by the thread that took the signal.
    pub fn stop_group(&self, g: &Arc<ThreadGroup>, s: Signal) {
        if !g.begin_stop(s) {
            // Of those that it stopped, a tracer has let this one go on.
            for t in self.tasks.lock().threads(g.tgid) {
                t.kick();
            }
            return;
        }
        self.tasks.lock().note_stopped(g.tgid, s.number());
        for t in self.tasks.lock().threads(g.tgid) {
            t.kick();
        }
        self.notify_parent_of_stop(g, CLD_STOPPED, s.number());
    }

    /// SIGCHLD for a stop or a continuation.
    pub fn notify_parent_of_stop(&self, g: &ThreadGroup, code: i32, value: i32) {
        debug_assert!(code == CLD_STOPPED || code == CLD_CONTINUED);
        let (parent, uid) = {
            let l = self.tasks.lock();
            let uid = l.some_thread(g.tgid).map_or(0, |t| t.cred().uid);
            let parent = l.group(l.parent(g.tgid));
            let uid = parent.as_ref().map_or(uid, |p| uid_for(&l, p, uid));
            (parent, uid)
        };
        let Some(parent) = parent else { return };
        let a = parent.actions().read().get(SIGCHLD);
        if a.handler != SIG_IGN && a.flags & SA_NOCLDSTOP == 0 {
            let pid = g.pid.seen_in(&parent.pid.ns);
            let _ = self.send_to_group(&parent, SigInfo::child(code, pid, uid, value));
        }
        parent.child_wait.notify(Events::IN);
    }
}
