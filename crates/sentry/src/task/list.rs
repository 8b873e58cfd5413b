//! The task list: who there is and how they are related. One lock, `Kernel::tasks`, protects all of
//! it (Linux's `tasklist_lock`).

use super::trace::links::Links;
use super::{Task, ThreadGroup};
use crate::ns::pid::{Pid, PidNs};
use abi::errno::{EAGAIN, EEXIST, EPERM, ESRCH};
use abi::{Result, SigSet};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Credentials;

/// The highest thread id (`kernel.pid_max`).
pub const PID_MAX: i32 = 4_194_304;
/// Where numbering goes on after a wrap (`RESERVED_PIDS`).
const RESERVED: i32 = 300;

/// A process in the list, until it is waited for.
pub struct Process {
    pub group: Arc<ThreadGroup>,
    /// The parent's tgid; 0 for the first process.
    pub parent: i32,
    pub children: BTreeSet<i32>,
    /// Changed by [`TaskList::set_group`] and [`TaskList::new_session`] only, which keep the index.
    pub pgid: i32,
    pub sid: i32,
    /// Threads that have not ended.
    pub threads: BTreeMap<i32, Arc<Task>>,
    /// Those of them whose end has begun ([`TaskList::leave`]).
    pub leaving: BTreeSet<i32>,
    /// The wait status, once all threads have ended.
    pub zombie: Option<i32>,
    /// A stop that the parent has not been told of by wait4(2): the signal.
    pub stop_report: Option<i32>,
    /// A continuation, likewise.
    pub continue_report: bool,
    /// The signal for the parent at exit; 0 for none.
    pub exit_signal: i32,
    /// The thread of the parent's that made it.
    pub maker: i32,
    /// The parent's [`ThreadGroup::exec_id`] when it agreed to that signal.
    pub parent_exec_id: u64,
    /// Whether it has called execve(2): setpgid(2) then says `EACCES`.
    pub has_execed: bool,
    /// What zombies tell: who they were, and CPU time.
    pub ended: Option<Arc<Ended>>,
    /// What a zombie counts for its user.
    pub counted: Option<super::quota::Counted>,
    pub cpu: super::cpu::Cpu,
}

impl Process {
    /// One without a parent, that leads a group and a session of its own.
    #[must_use]
    pub fn leading(group: Arc<ThreadGroup>) -> Process {
        let id = group.tgid;
        Process {
            group,
            parent: 0,
            children: BTreeSet::new(),
            pgid: id,
            sid: id,
            threads: BTreeMap::new(),
            leaving: BTreeSet::new(),
            zombie: None,
            stop_report: None,
            continue_report: false,
            exit_signal: abi::signal::SIGCHLD.number(),
            maker: 0,
            parent_exec_id: 0,
            has_execed: false,
            ended: None,
            counted: None,
            cpu: super::cpu::Cpu::default(),
        }
    }
}

/// What is told of a process that has ended: as its last thread was.
pub struct Ended {
    pub cred: Arc<Credentials>,
    pub comm: Vec<u8>,
    pub nice: i32,
    /// See [`Task::start`].
    pub start: i64,
    pub mask: SigSet,
    pub no_new_privs: bool,
    /// Its mode, and how many filters.
    pub seccomp: (u8, usize),
    /// See [`Task::affinity`].
    pub cpus: Vec<u8>,
}

impl Ended {
    /// As a task is now.
    #[must_use]
    pub fn new(last: &Task) -> Arc<Ended> {
        Arc::new(Ended {
            cred: last.cred(),
            comm: last.comm(),
            nice: last.nice.load(Ordering::Relaxed),
            start: last.start,
            mask: last.mask(),
            no_new_privs: last.no_new_privs.load(Ordering::Relaxed),
            seccomp: (last.seccomp.mode() as u8, last.seccomp.count()),
            cpus: last.allowed_cpus(),
        })
    }
}

impl Process {
    /// The real user: of its threads, or of the last.
    #[must_use]
    pub fn uid(&self) -> u32 {
        let live = self.threads.values().next().map(|t| t.cred().uid);
        live.or_else(|| self.ended.as_ref().map(|e| e.cred.uid))
            .unwrap_or(0)
    }
}

/// All processes, by tgid.
#[derive(Default)]
pub struct TaskList {
    processes: BTreeMap<i32, Process>,
    /// Every live thread.
    tasks: HashMap<i32, Arc<Task>>,
    /// The members of each process group, zombies included.
    groups: HashMap<i32, BTreeSet<i32>>,
    /// How many processes each session has. An id that is in use here or as a group's is not given
    /// out.
    sessions: HashMap<i32, usize>,
    /// Who traces whom.
    pub(crate) links: Links,
    /// The numbers of every id in use.
    pids: HashMap<i32, Numbered>,
    last: i32,
    /// How many ids were given out.
    given: u64,
}

/// An id in use.
struct Numbered {
    pid: Arc<Pid>,
    /// Tells it from the same id that something had before.
    birth: u64,
}

/// The numbers of a task that is about to be listed. Dropped before they are kept, they are free
/// again.
pub struct NewPid<'a> {
    list: &'a mut TaskList,
    pid: Arc<Pid>,
    kept: bool,
}

impl NewPid<'_> {
    #[must_use]
    pub fn pid(&self) -> &Arc<Pid> {
        &self.pid
    }
    #[must_use]
    pub fn list(&self) -> &TaskList {
        self.list
    }
    /// The task that has them enters the list before its lock is let go.
    #[must_use]
    pub fn keep(mut self) -> Arc<Pid> {
        self.kept = true;
        self.pid.clone()
    }
}

impl Drop for NewPid<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.list.release(self.pid.id);
        }
    }
}

impl TaskList {
    /// Numbers for a new task in a pid namespace, free again unless they are kept.
    pub fn take_number(&mut self, ns: &Arc<PidNs>) -> Result<NewPid<'_>> {
        self.take_numbers(ns, &[])
    }
    /// As [`TaskList::take_number`], with these numbers in `ns`, its parent, and so on; `EEXIST`
    /// where one is in use.
    pub fn take_numbers(&mut self, ns: &Arc<PidNs>, asked: &[i32]) -> Result<NewPid<'_>> {
        let pid = self.new_pid(ns, asked)?;
        Ok(NewPid {
            list: self,
            pid,
            kept: false,
        })
    }
    /// Numbers for a new task in a pid namespace. They are taken back when nothing has the id any
    /// more.
    fn new_pid(&mut self, ns: &Arc<PidNs>, asked: &[i32]) -> Result<Arc<Pid>> {
        // The last is the initial namespace's, where a number is the id.
        let id = match asked.get(ns.level() as usize) {
            Some(id) if self.is_used(*id) => return Err(EEXIST),
            Some(id) => *id,
            None => self.new_tid()?,
        };
        let pid = Pid::new(id, ns, asked)?;
        self.given += 1;
        let new = Numbered {
            pid: pid.clone(),
            birth: self.given,
        };
        self.pids.insert(id, new);
        Ok(pid)
    }
    /// Whether an id is a task's, a group's or a session's.
    #[must_use]
    pub fn is_used(&self, id: i32) -> bool {
        self.tasks.contains_key(&id)
            || self.processes.contains_key(&id)
            || self.group_exists(id)
            || self.sessions.contains_key(&id)
            || self.links.has_dead(id)
    }
    /// Takes the numbers of an id back if nothing has it.
    pub(super) fn release(&mut self, id: i32) {
        if !self.is_used(id)
            && let Some(p) = self.pids.remove(&id)
        {
            p.pid.release();
        }
    }
    /// What tells an id in use from the same id that something had before, or has later; 0 of one
    /// that is not in use.
    #[must_use]
    pub fn birth(&self, id: i32) -> u64 {
        self.pids.get(&id).map_or(0, |p| p.birth)
    }
    /// The number of an id in a namespace; 0 where it is not to be seen.
    #[must_use]
    pub fn number(&self, id: i32, ns: &PidNs) -> i32 {
        if ns.is_initial() {
            return id;
        }
        self.pids.get(&id).map_or(0, |p| p.pid.seen_in(ns))
    }
    /// The numbers of an id from a namespace's level down, for `/proc/PID/status`.
    #[must_use]
    pub fn numbers_from(&self, id: i32, ns: &PidNs) -> Vec<i32> {
        match self.pids.get(&id) {
            Some(p) => p.pid.from_level(ns),
            None if ns.is_initial() => vec![id],
            None => vec![],
        }
    }
    /// An unused thread id. Ids in use are at most a few for each process, so the search is short
    /// even where they follow each other.
    fn new_tid(&mut self) -> Result<i32> {
        for _ in 0..PID_MAX {
            self.last = if self.last + 1 >= PID_MAX {
                RESERVED
            } else {
                self.last + 1
            };
            let n = self.last;
            if !self.is_used(n) {
                return Ok(n);
            }
        }
        Err(EAGAIN)
    }
    pub fn add_process(&mut self, p: Process) {
        let (id, parent) = (p.group.tgid, p.parent);
        self.groups.entry(p.pgid).or_default().insert(id);
        *self.sessions.entry(p.sid).or_default() += 1;
        self.processes.insert(id, p);
        if let Some(parent) = self.processes.get_mut(&parent) {
            parent.children.insert(id);
        }
    }
    pub fn add_task(&mut self, t: &Arc<Task>) {
        self.tasks.insert(t.tid, t.clone());
        t.group.container.task_came();
        if let Some(p) = self.processes.get_mut(&t.group.tgid) {
            p.threads.insert(t.tid, t.clone());
        }
    }
    /// A thread's end begins. Whether it is its group's last: all others are removed, or on their
    /// way.
    pub fn leave(&mut self, t: &Task) -> bool {
        self.processes.get_mut(&t.group.tgid).is_some_and(|p| {
            p.leaving.insert(t.tid);
            p.leaving.len() == p.threads.len()
        })
    }
    /// The memory of a process: that of a thread that has not given it up on its way out.
    #[must_use]
    pub fn memory_of(&self, tgid: i32, none: &Arc<mm::Mm>) -> Option<Arc<mm::Mm>> {
        let threads = &self.processes.get(&tgid)?.threads;
        threads
            .values()
            .map(|t| t.mm())
            .find(|m| !Arc::ptr_eq(m, none))
    }
    /// Whether a thread's end has begun.
    #[must_use]
    pub fn leaves(&self, t: &Task) -> bool {
        self.processes
            .get(&t.group.tgid)
            .is_none_or(|p| p.leaving.contains(&t.tid))
    }
    /// Removes an ended thread; gives how many remain in its group.
    pub fn remove_task(&mut self, t: &Task) -> usize {
        self.links.ended(t);
        if self.tasks.remove(&t.tid).is_some() {
            t.group.container.task_went();
            if !t.is_leader() {
                t.group.cgroup().uncharge(1);
            }
        }
        let left = match self.processes.get_mut(&t.group.tgid) {
            Some(p) => {
                p.threads.remove(&t.tid);
                p.leaving.remove(&t.tid);
                let counted = t.take_counted();
                if t.is_leader() {
                    p.counted = counted.map(super::quota::Counted::into_zombie);
                }
                p.threads.len()
            }
            None => 0,
        };
        self.release(t.tid);
        left
    }
    #[must_use]
    pub fn task(&self, tid: i32) -> Option<Arc<Task>> {
        self.tasks.get(&tid).cloned()
    }
    #[must_use]
    pub fn process(&self, tgid: i32) -> Option<&Process> {
        self.processes.get(&tgid)
    }
    pub fn process_mut(&mut self, tgid: i32) -> Option<&mut Process> {
        self.processes.get_mut(&tgid)
    }
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }
    /// Every live thread.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.tasks.values()
    }
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }
    /// Processes, zombies included.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }
    #[must_use]
    pub fn last_pid(&self) -> i32 {
        self.last
    }
    /// The live threads of a process.
    #[must_use]
    pub fn threads(&self, tgid: i32) -> Vec<Arc<Task>> {
        self.processes
            .get(&tgid)
            .map(|p| p.threads.values().cloned().collect())
            .unwrap_or_default()
    }
    /// How many threads a process has, with a main one that has ended: that is there until it is
    /// waited for.
    #[must_use]
    pub fn thread_count(&self, tgid: i32) -> usize {
        self.processes.get(&tgid).map_or(0, |p| {
            p.threads.len() + usize::from(!p.threads.contains_key(&tgid))
        })
    }
    /// Any live thread of a process, the main one first.
    #[must_use]
    pub fn some_thread(&self, tgid: i32) -> Option<Arc<Task>> {
        let p = self.processes.get(&tgid)?;
        p.threads
            .get(&tgid)
            .or_else(|| p.threads.values().next())
            .cloned()
    }
    #[must_use]
    pub fn group(&self, tgid: i32) -> Option<Arc<ThreadGroup>> {
        self.processes.get(&tgid).map(|p| p.group.clone())
    }
    #[must_use]
    pub fn parent(&self, tgid: i32) -> i32 {
        self.processes.get(&tgid).map_or(0, |p| p.parent)
    }
    #[must_use]
    pub fn pgid(&self, tgid: i32) -> i32 {
        self.processes.get(&tgid).map_or(0, |p| p.pgid)
    }
    #[must_use]
    pub fn sid(&self, tgid: i32) -> i32 {
        self.processes.get(&tgid).map_or(0, |p| p.sid)
    }
    fn members(&self, pgid: i32) -> impl Iterator<Item = &Process> {
        let ids = self.groups.get(&pgid).into_iter().flatten();
        ids.filter_map(|id| self.processes.get(id))
    }
    /// The members of a process group that have not been reaped; zombies included.
    #[must_use]
    pub fn group_members(&self, pgid: i32) -> Vec<Arc<ThreadGroup>> {
        self.members(pgid).map(|p| p.group.clone()).collect()
    }
    #[must_use]
    pub fn group_exists(&self, pgid: i32) -> bool {
        self.groups.contains_key(&pgid)
    }
    /// The session that a process group belongs to.
    #[must_use]
    pub fn session_of_group(&self, pgid: i32) -> Option<i32> {
        self.members(pgid).next().map(|p| p.sid)
    }
    fn leave_group(&mut self, tgid: i32, pgid: i32) {
        if let Some(g) = self.groups.get_mut(&pgid) {
            g.remove(&tgid);
            if g.is_empty() {
                self.groups.remove(&pgid);
                self.release(pgid);
            }
        }
    }
    fn leave_session(&mut self, sid: i32) {
        if let Some(n) = self.sessions.get_mut(&sid) {
            *n -= 1;
            if *n == 0 {
                self.sessions.remove(&sid);
                self.release(sid);
            }
        }
    }
    /// `setpgid(2)`.
    pub fn set_group(&mut self, tgid: i32, pgid: i32) {
        let Some(p) = self.processes.get_mut(&tgid) else {
            return;
        };
        let old = std::mem::replace(&mut p.pgid, pgid);
        // Before the caller's call returns, and after the change: see `Task::withdraw_local`.
        p.threads.values().for_each(|t| t.withdraw_local());
        self.leave_group(tgid, old);
        self.groups.entry(pgid).or_default().insert(tgid);
    }
    /// Whether a process group is orphaned (`is_orphaned_pgrp`): no live member has a parent in
    /// another group of the same session. `except` is left out of account.
    #[must_use]
    pub fn is_orphaned(&self, pgid: i32, except: Option<i32>) -> bool {
        !self.members(pgid).any(|p| {
            p.zombie.is_none()
                && Some(p.group.tgid) != except
                && self
                    .processes
                    .get(&p.parent)
                    .is_some_and(|q| q.pgid != pgid && q.sid == p.sid && p.parent != 0)
        })
    }
    /// Whether a member of the group is stopped.
    #[must_use]
    pub fn has_stopped(&self, pgid: i32) -> bool {
        self.members(pgid).any(|p| p.group.is_stopping())
    }
    /// `setsid(2)`.
    pub fn new_session(&mut self, tgid: i32) -> Result<i32> {
        if self.group_exists(tgid) {
            return Err(EPERM);
        }
        let p = self.processes.get_mut(&tgid).ok_or(ESRCH)?;
        let old = std::mem::replace(&mut p.sid, tgid);
        self.leave_session(old);
        *self.sessions.entry(tgid).or_default() += 1;
        self.set_group(tgid, tgid);
        Ok(tgid)
    }
    /// Gives the children of an ending process to another.
    pub fn reparent(&mut self, from: i32, to: i32) -> Vec<i32> {
        let children = self
            .processes
            .get_mut(&from)
            .map(|p| std::mem::take(&mut p.children))
            .unwrap_or_default();
        for c in &children {
            if let Some(p) = self.processes.get_mut(c) {
                p.parent = to;
                // Before anybody can have waited for the old one.
                p.threads.values().for_each(|t| t.withdraw_local());
                // A new parent is always told by SIGCHLD.
                p.exit_signal = abi::signal::SIGCHLD.number();
            }
        }
        if let Some(p) = self.processes.get_mut(&to) {
            p.children.extend(children.iter().copied());
        }
        children.into_iter().collect()
    }
    /// Who takes the orphans (`find_new_reaper`): the nearest subreaper above in the same pid
    /// namespace, or its process 1.
    #[must_use]
    pub fn reaper(&self, tgid: i32) -> i32 {
        let Some(me) = self.processes.get(&tgid) else {
            return 1;
        };
        let ns = &me.group.pid.ns;
        let init = match ns.init() {
            0 => 1,
            n => n,
        };
        let mut at = me.parent;
        while at > 0 && at != init {
            let Some(p) = self.processes.get(&at) else {
                break;
            };
            if p.group.pid.ns.level() != ns.level() {
                break;
            }
            if p.zombie.is_none() && p.group.subreaper.load(std::sync::atomic::Ordering::Relaxed) {
                return at;
            }
            at = p.parent;
        }
        match init {
            1 if tgid == 1 => 0,
            n if n == tgid => me.parent,
            n => n,
        }
    }
    /// Removes a zombie; to be dropped without the list's lock, for all that is left of its
    /// container may go with it.
    #[must_use]
    pub fn reap(&mut self, tgid: i32) -> Option<Process> {
        let p = self.processes.remove(&tgid)?;
        if let Some(status) = p.zombie {
            let _ = p.group.reaped_status.set(status);
        }
        self.links.remove(tgid);
        self.leave_group(tgid, p.pgid);
        self.leave_session(p.sid);
        if let Some(q) = self.processes.get_mut(&p.parent) {
            q.children.remove(&tgid);
        }
        self.release(tgid);
        let c = p.group.cgroup();
        crate::cgroup::end(&p.group);
        c.uncharge(1);
        Some(p)
    }
    pub fn note_stopped(&mut self, tgid: i32, signal: i32) {
        if let Some(p) = self.processes.get_mut(&tgid) {
            p.stop_report = Some(signal);
            p.continue_report = false;
        }
    }
    pub fn note_continued(&mut self, tgid: i32) {
        if let Some(p) = self.processes.get_mut(&tgid) {
            p.stop_report = None;
            p.continue_report = true;
        }
    }
}

#[cfg(test)]
mod tests;
