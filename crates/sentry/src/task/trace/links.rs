//! Who traces whom: a part of the task list, under its lock.
//!
//! A link stays until the tracer lets go, ends, or has waited for the tracee's end. A thread that
//! ends while it is traced leaves a [`Dead`] for its tracer to wait for; a main thread's is its
//! process's zombie, which its parent sees when the tracer has seen it. What the dead take is
//! charged to the tracer's user: where that has no more, a thread ends as one that nobody traces.

use super::{By, Link, Options, State, Traps};
use crate::Kernel;
use crate::task::list::TaskList;
use crate::task::{Task, ThreadGroup};
use abi::errno::ENOMEM;
use abi::signal::SIGKILL;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vfs::Credentials;
use vfs::ucounts::Charge;

/// All links.
#[derive(Default)]
pub struct Links {
    /// The tracees of each tracer, by their ids.
    tracees: HashMap<i32, BTreeSet<i32>>,
    /// The tracer of each tracee.
    tracers: HashMap<i32, i32>,
    /// Traced threads that have ended, but for main threads.
    dead: HashMap<i32, Dead>,
    /// How many of them each process has.
    dead_of: HashMap<i32, usize>,
}

/// A traced thread that has ended.
pub struct Dead {
    pub group: Arc<ThreadGroup>,
    pub status: i32,
    pub cred: Arc<Credentials>,
    /// What it has in its pid namespaces.
    pub pid: Arc<crate::ns::pid::Pid>,
    _memory: Charge,
}

/// What the end of one takes of the kernel's memory, bytes.
const DEAD: usize = 512;

impl Links {
    /// Whether nobody traces.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tracers.is_empty()
    }
    /// Whether an id is that of a thread that its tracer has not waited for.
    #[must_use]
    pub fn has_dead(&self, id: i32) -> bool {
        self.dead.contains_key(&id)
    }
    /// As that.
    #[must_use]
    pub fn dead(&self, id: i32) -> Option<&Dead> {
        self.dead.get(&id)
    }
    /// Whether some of a process's threads are such.
    #[must_use]
    pub fn has_dead_of(&self, tgid: i32) -> bool {
        self.dead_of.contains_key(&tgid)
    }
    /// Who traces.
    #[must_use]
    pub fn tracer(&self, tracee: i32) -> Option<i32> {
        self.tracers.get(&tracee).copied()
    }
    /// Those whom a thread traces.
    pub fn tracees(&self, tracer: i32) -> impl Iterator<Item = i32> {
        self.tracees.get(&tracer).into_iter().flatten().copied()
    }
    fn insert(&mut self, tracer: i32, tracee: i32) {
        self.tracers.insert(tracee, tracer);
        self.tracees.entry(tracer).or_default().insert(tracee);
    }
    /// Takes a link out.
    pub fn remove(&mut self, tracee: i32) {
        let Some(tracer) = self.tracers.remove(&tracee) else {
            return;
        };
        if let Some(all) = self.tracees.get_mut(&tracer) {
            all.remove(&tracee);
            if all.is_empty() {
                self.tracees.remove(&tracer);
            }
        }
    }
    /// A thread has ended, and its id may be used again unless its tracer is to wait for it. Main
    /// threads keep their link as long as their process is there.
    pub fn ended(&mut self, t: &Task) {
        let state = t.trace.state.lock();
        let Some(link) = &state.link else { return };
        if t.is_leader() {
            return;
        }
        let Ok(memory) = link.tracer.cred().kmem(DEAD, ENOMEM) else {
            let id = t.tid;
            drop(state);
            self.remove(id);
            return;
        };
        let dead = Dead {
            group: t.group.clone(),
            status: state.status,
            cred: t.cred(),
            pid: t.pid.clone(),
            _memory: memory,
        };
        self.dead.insert(t.tid, dead);
        *self.dead_of.entry(t.group.tgid).or_default() += 1;
    }
    /// Its tracer has waited for it, or waits for nobody.
    fn bury(&mut self, id: i32) -> Option<Dead> {
        self.remove(id);
        let d = self.dead.remove(&id)?;
        if let Some(n) = self.dead_of.get_mut(&d.group.tgid) {
            *n -= 1;
            if *n == 0 {
                self.dead_of.remove(&d.group.tgid);
            }
        }
        Some(d)
    }
}

impl State {
    /// Ends the link, and the stop with it; the signal that its stop was about is delivered unless
    /// the tracer had been told of it.
    fn unlink(&mut self, t: &Task) -> Option<Link> {
        let link = self.link.take();
        t.trace.on.store(false, SeqCst);
        t.trace.mode.store(0, SeqCst);
        t.trace.end_traps(Traps::all());
        if let Some(s) = &mut self.stop
            && s.resumed.is_none()
        {
            s.resumed = Some(s.code);
        }
        link
    }
}

impl TaskList {
    /// Makes `tracer` trace `t`, which nobody traces.
    pub(super) fn link(&mut self, t: &Arc<Task>, link: Link) {
        self.links.insert(link.tracer.tid, t.tid);
        let mut state = t.trace.state.lock();
        // It shows a stop of its group that is in force.
        let before = t.group.stop_number().wrapping_sub(1);
        t.trace.seen_stop.store(before, SeqCst);
        state.link = Some(link);
        t.trace.on.store(true, SeqCst);
    }

    /// The child of a traced task is traced, too (`ptrace_init_task`).
    pub fn link_child(&mut self, maker: &Task, child: &Arc<Task>) {
        let link = maker.trace.state.lock().link.clone();
        let Some(link) = link else { return };
        // Suspending its filters is a tracer's privilege, asked for each tracee: it is kept.
        let by = link.by;
        self.link(child, link);
        match by {
            By::Seizing => child.trace.add_traps(Traps::STOP),
            By::Attaching => child.stop_first(),
        }
    }

    /// Ends the link of `t`, whatever it does; the caller kicks it.
    pub fn unlink(&mut self, t: &Task) -> Option<Link> {
        self.links.remove(t.tid);
        t.trace.state.lock().unlink(t)
    }

    /// A thread takes the main thread's id (execve(2)): its link and its tracees go with it, and
    /// the former main thread's link ends.
    pub fn links_succeed(&mut self, old: &Task, new: &Arc<Task>) {
        self.links.remove(new.tid);
        if let Some(tracer) = self.links.tracer(old.tid) {
            self.links.remove(old.tid);
            self.links.insert(tracer, new.tid);
        }
        new.trace.take_from(&old.trace);
        let tracees: Vec<i32> = self.links.tracees(old.tid).collect();
        for id in tracees {
            self.links.remove(id);
            self.links.insert(new.tid, id);
            if let Some(t) = self.task(id)
                && let Some(l) = &mut t.trace.state.lock().link
            {
                l.tracer = new.clone();
            }
        }
    }

    /// The group of a tracee's tracer.
    #[must_use]
    pub fn tracer_group(&self, tracee: i32) -> Option<Arc<ThreadGroup>> {
        self.task(self.links.tracer(tracee)?)
            .map(|t| t.group.clone())
    }

    /// A traced thread that has ended, and waits for its tracer.
    #[must_use]
    pub fn dead_thread(&self, id: i32) -> Option<&Dead> {
        self.links.dead(id)
    }

    /// A dead thread was waited for.
    #[must_use]
    pub fn bury(&mut self, id: i32) -> Option<Dead> {
        let d = self.links.bury(id);
        if d.is_some() {
            self.release(id);
        }
        d
    }

    /// The thread that made a process, for PTRACE_TRACEME: it, or another of its parent's that is
    /// not about to end.
    #[must_use]
    pub fn parent_thread(&self, tgid: i32) -> Option<Arc<Task>> {
        let p = self.process(tgid)?;
        let parent = self.process(p.parent)?;
        let mut there = parent
            .threads
            .iter()
            .filter(|(id, _)| !parent.leaving.contains(id));
        let maker = parent
            .threads
            .get(&p.maker)
            .filter(|t| !parent.leaving.contains(&t.tid));
        maker.or_else(|| there.next().map(|(_, t)| t)).cloned()
    }
}

impl Kernel {
    /// A tracer has ended, or lets all of its tracees go: they go on, or end if it wanted that
    /// (`exit_ptrace`).
    pub fn untrace_all(self: &Arc<Self>, tracer: &Arc<Task>) {
        let (mut gone, mut free, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut l = self.tasks.lock();
            let ids: Vec<i32> = l.links.tracees(tracer.tid).collect();
            for id in ids {
                if l.links.has_dead(id) {
                    gone.push(l.bury(id));
                } else if let Some(t) = l.task(id) {
                    let link = l.unlink(&t);
                    let kills = link.is_some_and(|l| l.options.contains(Options::EXITKILL));
                    free.push((t, kills));
                } else {
                    l.links.remove(id);
                    ended.push(id);
                }
            }
        }
        drop(gone);
        for (t, kills) in free {
            if kills {
                self.kill_group(&t.group, SIGKILL.number());
            }
            t.kick();
        }
        for id in ended {
            self.untraced_zombie(id, &tracer.group);
        }
    }

    /// A process's zombie was its tracer's to see first (`__ptrace_detach`).
    pub(crate) fn untraced_zombie(self: &Arc<Self>, tgid: i32, tracer: &ThreadGroup) {
        let told = {
            let l = self.tasks.lock();
            let p = l.process(tgid).filter(|p| p.zombie.is_some());
            p.map(|p| p.parent == tracer.tgid)
        };
        match told {
            None => {}
            // Its parent's group was told when it ended; what nobody will wait for goes now.
            Some(true) => self.forget_ignored(tgid),
            Some(false) => self.tell_parent_of_exit(tgid),
        }
    }
}
