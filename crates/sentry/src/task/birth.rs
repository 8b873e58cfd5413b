//! How a task is made: one constructor for a container's first task, a child of clone(2), and the
//! main thread that execve(2) makes of another thread.
//!
//! [`Inherit`] has what each of them must say. [`Attributes`] has what a task hands on: its
//! defaults are the first task's, and each of the other two ways to be made is one function here,
//! so that a new attribute of a task has one place where it is decided who gets it. A task is
//! complete when it is made: nothing is set afterwards.

use super::clone::{CloneArgs, CloneFlags};
use super::keyrings::NewTask;
use super::quota::Counted;
use super::sched::Scheduling;
use super::seccomp::Seccomp;
use super::signal::{From, Pending};
use super::{Context, Task, ThreadGroup, VforkDone};
use crate::ns::change::Fresh;
use crate::ns::pid::Pid;
use abi::SigSet;
use abi::linux::CLOCK_BOOTTIME;
use keys::Rings;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use vfs::{FdTable, FsContext};

/// What a new task is made of.
pub struct Inherit {
    pub pid: Arc<Pid>,
    pub group: Arc<ThreadGroup>,
    pub mm: Arc<mm::Mm>,
    /// Shared where the memory is.
    pub aio: Arc<super::aio::Contexts>,
    pub fs: Arc<FsContext>,
    pub files: Arc<FdTable>,
    /// Its credentials and its namespaces.
    pub new: Fresh,
    /// Its part of what its user holds.
    pub counted: Counted,
    pub attributes: Attributes,
}

/// What a task hands on to another. The default: nothing from anybody.
pub struct Attributes {
    pub mask: SigSet,
    pub no_new_privs: bool,
    pub comm: Vec<u8>,
    pub seccomp: Seccomp,
    pub keyrings: Rings,
    pub over_limit: bool,
    pub clear_child_tid: u64,
    pub robust_list: u64,
    pub pdeath_signal: i32,
    pub vfork_done: Option<Arc<VforkDone>>,
    pub nice: i32,
    pub scheduling: Scheduling,
    pub affinity: Option<Box<[u8]>>,
    pub io_priority: i32,
    pub numa_policy: u32,
    pub persona: u32,
    pub timer_slack: u64,
    pub default_timer_slack: u64,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            mask: SigSet::EMPTY,
            no_new_privs: false,
            comm: Vec::new(),
            seccomp: Seccomp::default(),
            keyrings: Rings::default(),
            over_limit: false,
            clear_child_tid: 0,
            robust_list: 0,
            pdeath_signal: 0,
            vfork_done: None,
            nice: 0,
            scheduling: Scheduling::default(),
            affinity: None,
            io_priority: 0,
            numa_policy: 0,
            persona: 0,
            timer_slack: super::TIMER_SLACK,
            default_timer_slack: super::TIMER_SLACK,
        }
    }
}

impl Attributes {
    /// What every other task has of the one that it comes from.
    fn of(t: &Task) -> Attributes {
        Attributes {
            mask: t.mask(),
            no_new_privs: t.no_new_privs.load(Relaxed),
            comm: t.comm(),
            seccomp: t.seccomp.inherit(),
            keyrings: t.shared_keyrings(),
            over_limit: t.over_limit.load(Relaxed),
            nice: t.nice.load(Relaxed),
            scheduling: *t.scheduling.read(),
            affinity: t.affinity.read().clone(),
            io_priority: t.io_priority.load(Relaxed),
            numa_policy: t.numa_policy.load(Relaxed),
            persona: t.persona.load(Relaxed),
            timer_slack: t.timer_slack.load(Relaxed),
            default_timer_slack: t.default_timer_slack,
            ..Attributes::default()
        }
    }

    /// A child's. Under the task list's lock: so are changes of the filters.
    pub(super) fn of_child(
        maker: &Task,
        a: &CloneArgs,
        vfork_done: Option<Arc<VforkDone>>,
    ) -> Attributes {
        let (scheduling, nice) = maker.inherited_scheduling();
        let clears = a.flags.contains(CloneFlags::CLONE_CHILD_CLEARTID);
        Attributes {
            keyrings: maker.keyrings_of(NewTask::by(a.flags)),
            clear_child_tid: if clears { a.child_tid } else { 0 },
            vfork_done,
            nice,
            scheduling,
            default_timer_slack: maker.timer_slack.load(Relaxed),
            ..Attributes::of(maker)
        }
    }

    /// Those of a thread without an application: no signal is its.
    pub(super) fn of_kernel_thread(maker: &Task, comm: &[u8]) -> Attributes {
        Attributes {
            mask: SigSet::ALL,
            scheduling: maker.inherited_scheduling().0,
            comm: comm[..comm.len().min(15)].to_vec(),
            ..Attributes::of(maker)
        }
    }

    /// Those of a main thread that takes another's place: what makes that thread itself goes along.
    fn of_successor(old: &Task) -> Attributes {
        Attributes {
            clear_child_tid: old.clear_child_tid.load(Relaxed),
            robust_list: old.robust_list.load(Relaxed),
            pdeath_signal: old.pdeath_signal.load(Relaxed),
            vfork_done: old.vfork_done.lock().take(),
            ..Attributes::of(old)
        }
    }
}

impl Task {
    /// A task that is in no list yet.
    #[must_use]
    pub fn new(kernel: &Arc<crate::Kernel>, from: Inherit) -> Arc<Task> {
        let Inherit {
            pid,
            group,
            new,
            attributes: a,
            ..
        } = from;
        // A main thread began with its process, whichever thread it was before.
        let start = match pid.id == group.tgid {
            true => group.start,
            false => hostcall::time::clock_nanos(CLOCK_BOOTTIME as i32),
        };
        Arc::new(Task {
            tid: pid.id,
            pid,
            group,
            ns: RwLock::new(new.proxy),
            kernel: kernel.clone(),
            mm: RwLock::new(from.mm),
            aio: RwLock::new(from.aio),
            uring: super::uring::TaskSide::default(),
            fs: RwLock::new(from.fs),
            files: RwLock::new(Some(from.files)),
            cred: RwLock::new(new.cred),
            keyrings: Mutex::new(a.keyrings),
            real_cred: RwLock::new(None),
            counted: Mutex::new(Some(from.counted)),
            over_limit: AtomicBool::new(a.over_limit),
            pending: Pending::default(),
            mask: AtomicU64::new(a.mask.minus(SigSet::UNBLOCKABLE).0),
            killed: AtomicBool::new(false),
            ends_until: OnceLock::new(),
            in_app: AtomicBool::new(false),
            attention: AtomicBool::new(true),
            parker: kernel.parker(),
            interrupter: Mutex::new(None),
            lanes: super::lanes::Shared::default(),
            comm: Mutex::new(a.comm),
            clear_child_tid: AtomicU64::new(a.clear_child_tid),
            robust_list: AtomicU64::new(a.robust_list),
            pdeath_signal: AtomicI32::new(a.pdeath_signal),
            no_new_privs: AtomicBool::new(a.no_new_privs),
            seccomp: a.seccomp,
            trace: super::trace::Trace::default(),
            vfork_done: Mutex::new(a.vfork_done),
            held: AtomicBool::new(false),
            killable_sleep: AtomicBool::new(false),
            has_joined_dump: AtomicBool::new(false),
            nice: AtomicI32::new(a.nice),
            scheduling: RwLock::new(a.scheduling),
            affinity: RwLock::new(a.affinity),
            io_priority: AtomicI32::new(a.io_priority),
            numa_policy: AtomicU32::new(a.numa_policy),
            persona: AtomicU32::new(a.persona),
            start,
            timer_slack: AtomicU64::new(a.timer_slack),
            default_timer_slack: a.default_timer_slack,
            cpu: Default::default(),
        })
    }

    /// execve(2) from another thread than the main one, when all others have ended: the caller goes
    /// on as the main thread (`de_thread`).
    pub fn become_leader(cx: &mut Context) {
        let old = cx.task.clone();
        let cred = old.cred();
        let from = Inherit {
            pid: old.group.pid.clone(),
            group: old.group.clone(),
            mm: old.mm(),
            aio: old.aio(),
            fs: old.fs(),
            files: old.files(),
            counted: Counted::force(&cred),
            new: Fresh {
                cred,
                proxy: old.ns(),
            },
            attributes: Attributes::of_successor(&old),
        };
        let new = Task::new(&old.kernel, from);
        for info in std::iter::from_fn(|| old.pending.take(SigSet::ALL)) {
            let _ = new.pending.push(info, &old, u64::MAX, From::Within);
        }
        drop(old.take_keyrings());
        let mut l = old.kernel.tasks.lock();
        l.links_succeed(&old, &new);
        l.remove_task(&old);
        l.add_task(&new);
        // (Who ended the process meanwhile has told the old one.)
        if old.is_killed() {
            new.kill();
        }
        // The leader that ended before counted as a zombie; the new one counts itself.
        if let Some(p) = l.process_mut(old.group.tgid) {
            p.counted = None;
        }
        let filter = old.seccomp.release();
        drop(l);
        drop(filter);
        *new.interrupter.lock() = old.interrupter.lock().take();
        new.cpu.take_from(&old.cpu);
        cx.task = new;
    }
}
