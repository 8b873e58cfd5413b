//! Containers of a sandbox. Most sandboxes have one; those of a pod have several, which share the
//! kernel and, as their bundles say, namespaces.
//!
//! The *root* container is the sandbox's first: its first process is process 1 of the initial pid
//! namespace, and with it the sandbox ends. Others join ([`crate::boot::join`]) and end alone.
//!
//! # Invariants
//!
//! - A process belongs to its parent's container for ever; what is started from outside belongs to
//!   the one that it is started in.
//! - A container's starter speaks on a socket of its own, and reaches that container only.
//! - Once a container has ended ([`crate::Kernel::close_container`]) it gets no more processes;
//!   that, and the making of one, happen under the task list's lock.
//! - After [`crate::Kernel::end_container`] has told the end, no process of the container runs
//!   application code. Where one cannot be ended, that is told instead, and the starter ends the
//!   sandbox.
//! - A program of `exec` runs only when its asker, who has been told its process, says so. Until
//!   then it is in `waiting`, which takes none once the container has ended. No lock is taken under
//!   that of `waiting`.
//! - Until it is ready, application code can hold it up (`FAN_OPEN_EXEC_PERM`, a lease): it is in
//!   `making`, and is killed there when its asker gives it up.

pub mod log;
pub(crate) mod replacement;
pub mod shortage;

use self::shortage::Shortage;
use crate::Task;
use crate::ns::NsProxy;
use crate::task::launch::Launch;
use crate::task::quota::{OF_CONTAINER, TASKS_MAX};
use abi::signal::SIGKILL;
use clas::Clas;
use config::control::ToStarter;
use config::{IdRange, Limits};
use hostcall::{HostFd, RawFd};
use parking_lot::Mutex;
use seccomp::bpf::Insn;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tty::Devpts;
use vfs::MountNamespace;

/// The person's terminal: has its last output delivered at the end.
pub trait Console: Send + Sync {
    /// Waits until what was written is on the host's side, at most this long.
    fn drain(&self, limit: Duration);
}

/// A terminal that is joined to the host's.
type Joined = (Arc<dyn Console>, Arc<tty::Master>);

/// How far a program of `exec` is that is not ready.
enum Making {
    Requested,
    Made(Weak<Task>),
    GivenUp,
}

/// A program of `exec` that is being made ready.
pub(crate) struct PendingExec {
    container: Arc<Container>,
    number: u32,
}

impl PendingExec {
    /// It has a task; whether it is still wanted.
    pub(crate) fn made(&self, t: &Arc<Task>) -> bool {
        match self.container.making.lock().get_mut(&self.number) {
            Some(m @ Making::Requested) => *m = Making::Made(Arc::downgrade(t)),
            _ => return false,
        }
        true
    }
}

impl Drop for PendingExec {
    fn drop(&mut self) {
        let gone = self.container.making.lock().remove(&self.number);
        drop(gone);
    }
}

/// A container.
pub struct Container {
    /// Its memory. Immutable, as the four below.
    pub clas: Arc<Clas>,
    /// What its programs from outside begin with.
    pub ns: Arc<NsProxy>,
    pub devpts: Arc<Devpts>,
    /// The seccomp filter of those programs; empty for none.
    pub seccomp: Vec<Insn>,
    /// As a container manager expects it: the first process is protected from signals that it does
    /// not handle, and has its terminal at /dev/console.
    pub is_managed: bool,
    /// Set once, by boot.
    root: OnceLock<Root>,
    /// The channel to the starter. Immutable; each message is one call of the host.
    control: HostFd,
    /// The id of the first process; 0 before there is one. Set under the task list's lock.
    first: AtomicI32,
    /// The terminals that are joined to the host's, by the process that leads each. A leaf.
    consoles: Mutex<HashMap<i32, Joined>>,
    /// Programs of `exec` that are ready and have not been told to run. A leaf; what is taken out
    /// is dropped, or started, without it.
    waiting: Mutex<Vec<Launch>>,
    /// Programs of `exec` that are being made ready, by their requests' numbers. A leaf.
    making: Mutex<HashMap<u32, Making>>,
    /// Tasks wait at the system-call boundary while it is set. Who changes it kicks them then.
    frozen: AtomicBool,
    /// It gets no more processes. Set under the task list's lock; stays so.
    closed: AtomicBool,
    /// Immutable: see [`Parts`].
    pub memory_bound: u64,
    /// Tasks that there may be: atomic. And that there are: changed under the task list's lock.
    task_limit: AtomicU32,
    tasks: AtomicU32,
    /// Whether others share the sandbox. Atomic.
    shares: AtomicBool,
    /// Whether its starter knows that the host ends processes. By one exchange: it is told once.
    told_of_loss: AtomicBool,
    /// Requests that its contexts of asynchronous I/O are made for. Atomic.
    pub aio_requests: Arc<AtomicU64>,
    /// What is missing in `kernel.seccomp.actions_logged`, a bit for each of the actions. Atomic.
    pub seccomp_not_logged: Arc<AtomicI64>,
    /// Keys of its users. Has a lock of its own, a leaf.
    pub keys: Arc<keys::Keys>,
    /// Of core files.
    pub core: crate::task::coredump::Settings,
    /// `kernel.io_uring_disabled` and `kernel.io_uring_group`. Atomic.
    pub uring_disabled: Arc<AtomicI64>,
    pub uring_group: Arc<AtomicI64>,
    /// Programs of its processes'. Has a lock of its own, a leaf.
    pub programs: Arc<crate::programs::Programs>,
    /// Of memory. Has a lock of its own, a leaf.
    pub shortage: Arc<Shortage>,
    /// What dmesg(1) shows.
    pub log: log::KernelLog,
}

/// Its files.
pub struct Root {
    pub mounts: Arc<MountNamespace>,
    /// Who serves those of the host, if there are any: to hang up at the end.
    pub gofer: Option<Arc<gofer::client::Client>>,
    /// The root file system, if it is an overlay: what its changes are asked of.
    pub overlay: Option<Arc<vfs::Dentry>>,
    /// Its users and groups on the host, where the bundle maps them.
    pub ids: [Vec<IdRange>; 2],
    /// Whether the memory of all its processes is confidential.
    pub is_confidential: bool,
}

/// What a container is made of.
pub struct Parts {
    pub clas: Arc<Clas>,
    pub ns: Arc<NsProxy>,
    pub devpts: Arc<Devpts>,
    pub seccomp: Vec<Insn>,
    pub is_managed: bool,
    pub control: HostFd,
    pub limits: Limits,
    /// What it may have where no limit is said, bytes: what the host leaves to the sandbox.
    pub memory_bound: u64,
}

impl Container {
    #[must_use]
    pub fn new(p: Parts) -> Arc<Container> {
        let c = Container {
            clas: p.clas,
            ns: p.ns,
            devpts: p.devpts,
            seccomp: p.seccomp,
            is_managed: p.is_managed,
            root: OnceLock::new(),
            control: p.control,
            first: AtomicI32::new(0),
            consoles: Mutex::default(),
            waiting: Mutex::default(),
            making: Mutex::default(),
            frozen: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            memory_bound: p.memory_bound,
            task_limit: AtomicU32::new(TASKS_MAX as u32),
            tasks: AtomicU32::new(0),
            shares: AtomicBool::new(false),
            told_of_loss: AtomicBool::new(false),
            aio_requests: Arc::default(),
            seccomp_not_logged: Arc::default(),
            keys: Arc::default(),
            core: Default::default(),
            uring_disabled: Arc::default(),
            uring_group: Arc::new(AtomicI64::new(-1)),
            programs: Arc::default(),
            shortage: Arc::default(),
            log: log::KernelLog::begun(),
        };
        c.ns.cgroup.is_of(&c.clas);
        c.update_limits(p.limits);
        Arc::new(c)
    }

    /// Its files, once.
    pub fn set_root(&self, r: Root) {
        let _ = self.root.set(r);
    }
    /// `None` until its mounts are made.
    #[must_use]
    pub fn root(&self) -> Option<&Root> {
        self.root.get()
    }

    /// The id of the first process.
    #[must_use]
    pub fn first(&self) -> i32 {
        self.first.load(Ordering::Relaxed)
    }
    /// A process was made from outside: the first is *the* first.
    pub fn note_first(&self, id: i32) -> bool {
        let none = self
            .first
            .compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed);
        none.is_ok()
    }
    /// The first process did not come to be.
    pub fn forget_first(&self, id: i32) {
        let _ = self
            .first
            .compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A process leads a session on a terminal that is joined to the host's.
    pub fn set_console(&self, id: i32, c: Arc<dyn Console>, m: &Arc<tty::Master>) {
        self.consoles.lock().insert(id, (c, m.clone()));
    }
    /// The host's window changed; process 0 is the first.
    pub fn resize_terminal(&self, id: i32, rows: u16, cols: u16) {
        let id = if id == 0 { self.first() } else { id };
        let master = self.consoles.lock().get(&id).map(|c| c.1.clone());
        if let Some(m) = master {
            m.set_window_size(rows, cols, 0, 0);
        }
    }
    /// Delivers the last output of a process's terminal, and lets the host's terminal go.
    pub fn close_console(&self, id: i32, drain: Duration) {
        let c = self.consoles.lock().remove(&id);
        if let Some((c, _)) = c {
            c.drain(drain);
        }
    }

    /// Keeps a program until it is told to run; `told` says to whoever asked that it is ready,
    /// before its end can be told. Gives it back where the container has ended, or the asker could
    /// not be told (it never waits).
    pub(crate) fn hold(
        &self,
        l: Launch,
        told: impl FnOnce(i32) -> bool,
    ) -> core::result::Result<(), Launch> {
        let mut waiting = self.waiting.lock();
        // (Set before what waits is taken away.)
        if self.is_closed() || !told(l.pid()) {
            return Err(l);
        }
        waiting.push(l);
        Ok(())
    }
    /// One is asked for.
    pub(crate) fn asked(self: &Arc<Self>, number: u32) -> PendingExec {
        self.making.lock().insert(number, Making::Requested);
        PendingExec {
            container: self.clone(),
            number,
        }
    }
    /// Nobody wants it any more, if it is not ready yet.
    pub(crate) fn give_up(&self, number: u32) {
        let old = match self.making.lock().get_mut(&number) {
            Some(m) => std::mem::replace(m, Making::GivenUp),
            None => return,
        };
        if let Making::Made(t) = old
            && let Some(t) = t.upgrade()
        {
            t.kill();
        }
    }
    /// One that waits, to be run.
    pub(crate) fn release(&self, pid: i32) -> Option<Launch> {
        let mut waiting = self.waiting.lock();
        let at = waiting.iter().position(|l| l.pid() == pid)?;
        Some(waiting.swap_remove(at))
    }
    /// Takes away those that wait (one, or all): they never run, and their ends are told.
    pub(crate) fn withdraw(&self, pid: Option<i32>) {
        let gone = match pid {
            Some(p) => self.release(p).into_iter().collect(),
            None => std::mem::take(&mut *self.waiting.lock()),
        };
        for l in gone {
            let pid = l.pid();
            drop(l);
            self.tell_exited(pid, SIGKILL.number());
        }
    }
    /// Tells that a program of `exec` has ended.
    pub(crate) fn tell_exited(&self, pid: i32, status: i32) {
        let m = [pid.to_le_bytes(), status.to_le_bytes()].concat();
        self.tell(ToStarter::Exited, &m);
    }

    /// Keeps the limit of tasks, and shows what the host keeps of the others.
    pub fn update_limits(&self, new: Limits) {
        if new.pids.is_some() {
            let most = TASKS_MAX as u32;
            let n = match new.task_limit() {
                0 => most,
                n => n.min(most),
            };
            self.task_limit.store(n, Ordering::Relaxed);
        }
        self.ns.cgroup.update_limits(new);
        let memory = self.ns.cgroup.memory_max().unwrap_or(self.memory_bound);
        let frames = self.ns.cgroup.frames_max().unwrap_or(self.memory_bound);
        self.clas.set_limit(frames);
        // Of application processes the host's killer thinks that they have half of the limit more
        // than they do.
        self.clas.limit_view(if memory == u64::MAX {
            memory
        } else {
            memory / 4
        });
    }
    /// Whether one more task would be too many (`pids.max`). Under the task list's lock.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let mut most = self.task_limit.load(Ordering::Relaxed);
        if self.shares.load(Ordering::Relaxed) {
            most = most.min(OF_CONTAINER as u32);
        }
        self.tasks.load(Ordering::Relaxed) >= most
    }
    /// From now on it leaves some tasks to others.
    pub fn share(&self) {
        self.shares.store(true, Ordering::Relaxed);
    }
    /// A task came; under the task list's lock.
    pub fn task_came(&self) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
    }
    /// A task went; under the task list's lock.
    pub fn task_went(&self) {
        self.tasks.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether it has ended, and gets no more processes. Under the task list's lock.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// It gets no more processes from now on. Under the task list's lock.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Its tasks are held at the boundary from now on.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
    }
    /// Its tasks are not held at the boundary any more.
    pub fn thaw(&self) {
        self.frozen.store(false, Ordering::SeqCst);
    }
    /// Whether its tasks are held at the boundary.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    /// Sends the starter a message; a starter that is gone is no error.
    pub fn tell(&self, kind: ToStarter, payload: &[u8]) {
        let _ = hostcall::file::write(self.control.raw(), &message(kind, payload));
    }
    /// Tells the starter that the host has ended a process of it: once, as there may be many, and
    /// without waiting.
    pub fn tell_of_loss(&self, process: &str) {
        if !self.told_of_loss.swap(true, Ordering::Relaxed) {
            let text = format!("{process} (said once)");
            self.try_tell(ToStarter::Note, text.as_bytes());
        }
    }
    /// Gives the starter a memory file, without waiting, to be overwritten at an end that the
    /// Sentry does not see; whether it has it.
    pub fn tell_of_confidential(&self, file: RawFd) -> bool {
        let m = message(ToStarter::Confidential, &[]);
        hostcall::sock::try_send(self.control.raw(), &m, &[file]).is_ok()
    }
    /// As [`Container::tell`], without waiting: what a starter has no room for is lost.
    pub fn try_tell(&self, kind: ToStarter, payload: &[u8]) {
        let _ = hostcall::sock::try_send(self.control.raw(), &message(kind, payload), &[]);
    }
    /// Where the starter is heard.
    #[must_use]
    pub fn control(&self) -> &HostFd {
        &self.control
    }
}

/// As starters are told something.
fn message(kind: ToStarter, payload: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes(), payload].concat()
}

impl Drop for Container {
    fn drop(&mut self) {
        self.ns.cgroup.dismantle();
    }
}
