//! The root object: all state of a sandbox's kernel hangs from one [`Kernel`].

use crate::boot::config::control;
use crate::ns::NsProxy;
use crate::strace::Strace;
use crate::task::clone::TASKS_MAX;
use crate::task::{futex, list::TaskList};
use abi::Va;
use clas::Clas;
use hostcall::HostFd;
use ipc::timer::TimerService;
use mm::Mm;
use parking_lot::Mutex;
use platform::Platform;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vfs::{MountNamespace, Vfs};

/// The host name and the domain name.
#[derive(Clone, Debug)]
pub struct Uts {
    pub nodename: Vec<u8>,
    pub domainname: Vec<u8>,
}

/// What `uname(2)` says of this kernel.
pub const RELEASE: &str = "6.12.0-cloister";
/// The build, as `uname -v` shows it.
pub const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC Cloister";

/// A sandbox's kernel.
pub struct Kernel {
    pub platform: Arc<dyn Platform>,
    pub clas: Arc<Clas>,
    pub vfs: Arc<Vfs>,
    pub tasks: Mutex<TaskList>,
    pub futexes: futex::Table,
    pub queued_signals: crate::task::signal::QueueCount,
    pub timers: Arc<TimerService>,
    /// The initial namespaces.
    pub initial: Arc<NsProxy>,
    pub cgroups: crate::cgroup::Hierarchy,
    /// Numbers namespaces.
    pub namespaces: vfs::userns::Registry,
    /// Anonymous files in memory: memfd_create(2), shared memory.
    pub shm: Arc<vfs::fs::tmpfs::ShmFs>,
    pub terminals: crate::fs::terminals::Terminals,
    pub strace: Option<Arc<Strace>>,
    /// The channel to the starter.
    pub control: HostFd,
    /// Whether process 1 is protected from signals that it does not handle, as a container's is.
    pub init_protected: bool,
    /// Start, nanoseconds of CLOCK_BOOTTIME.
    pub boot: i64,
    /// Debugging: see [`crate::boot::config::Config::random_drop`].
    random_drop: u32,
    drop_seed: AtomicU64,
    pub cpus: u32,
    /// The host's memory, bytes.
    pub total_memory: u64,
    /// `kernel.random.boot_id`.
    pub boot_id: [u8; 16],
    /// Number of forks since the start, for /proc/stat.
    pub forks: AtomicU32,
    /// The terminals that are joined to the host's, by the process that leads each.
    consoles: Mutex<HashMap<i32, (Arc<dyn Console>, Arc<tty::Master>)>>,
    /// The container's mount namespace.
    container: OnceLock<Arc<MountNamespace>>,
    /// Whether a first program's terminal is /dev/console.
    shows_console: bool,
    /// Tasks wait at the system-call boundary while it is set.
    frozen: AtomicBool,
    /// Tasks that there may be.
    task_limit: AtomicU32,
    drain: std::time::Duration,
}

/// The person's terminal: has its last output delivered at the end.
pub trait Console: Send + Sync {
    /// Waits until what was written is on the host's side, at most this long.
    fn drain(&self, limit: std::time::Duration);
}

/// What a [`Kernel`] is made of.
pub struct Parts {
    pub platform: Arc<dyn Platform>,
    pub clas: Arc<Clas>,
    pub vfs: Arc<Vfs>,
    pub net: Arc<net::NetNamespace>,
    pub timers: Arc<TimerService>,
    pub terminals: crate::fs::terminals::Terminals,
    pub strace: Option<Arc<Strace>>,
    pub control: HostFd,
    pub hostname: String,
    pub random_drop: u32,
    pub cpus: u32,
    pub total_memory: u64,
    pub drain: std::time::Duration,
    /// As a container manager expects it: process 1 is protected, and has its terminal at /dev/console.
    pub is_container: bool,
}

impl Kernel {
    #[must_use]
    pub fn new(p: Parts) -> Arc<Kernel> {
        let cgroups = crate::cgroup::Hierarchy::new();
        let mut boot_id = [0u8; 16];
        hostcall::time::random(&mut boot_id);
        Arc::new(Kernel {
            platform: p.platform,
            shm: Arc::new(vfs::fs::tmpfs::ShmFs::new(&p.vfs, &p.clas)),
            clas: p.clas,
            vfs: p.vfs,
            tasks: Mutex::default(),
            futexes: futex::Table::new(),
            queued_signals: Default::default(),
            timers: p.timers,
            initial: NsProxy::initial(
                Uts {
                    nodename: p.hostname.into_bytes(),
                    domainname: b"(none)".to_vec(),
                },
                p.net,
                cgroups.initial_namespace(),
            ),
            cgroups,
            namespaces: vfs::userns::Registry::default(),
            terminals: p.terminals,
            strace: p.strace,
            control: p.control,
            init_protected: p.is_container,
            boot: hostcall::time::clock_nanos(7),
            random_drop: p.random_drop,
            drop_seed: AtomicU64::new(1),
            cpus: p.cpus,
            total_memory: p.total_memory,
            boot_id,
            forks: AtomicU32::new(0),
            consoles: Mutex::default(),
            container: OnceLock::new(),
            shows_console: p.is_container,
            frozen: AtomicBool::new(false),
            task_limit: AtomicU32::new(TASKS_MAX as u32),
            drain: p.drain,
        })
    }

    /// What every new address space gets.
    pub fn prepare_mm(&self, mm: &Mm) {
        if self.random_drop != 0 {
            mm.set_random_drop(
                self.drop_seed.fetch_add(1, Ordering::Relaxed),
                self.random_drop,
            );
        }
    }

    /// Where the vDSO is in every program; a null address where there is none. See
    /// `docs/decisions/0002-vdso.md`.
    #[must_use]
    pub fn vdso(&self) -> Va {
        Va(self.platform.host_vdso().unwrap_or(0))
    }

    /// The container's mounts, once.
    pub fn set_container(&self, ns: Arc<MountNamespace>) {
        let _ = self.container.set(ns);
    }
    #[must_use]
    pub fn container(&self) -> Option<Arc<MountNamespace>> {
        self.container.get().cloned()
    }
    #[must_use]
    pub fn shows_console(&self) -> bool {
        self.shows_console
    }

    /// A process leads a session on a terminal that is joined to the host's.
    pub fn set_console(&self, pid: i32, c: Arc<dyn Console>, m: &Arc<tty::Master>) {
        self.consoles.lock().insert(pid, (c, m.clone()));
    }
    /// The host's window changed; process 0 is the first.
    pub fn resize_terminal(&self, pid: i32, rows: u16, cols: u16) {
        let master = self.consoles.lock().get(&pid.max(1)).map(|c| c.1.clone());
        if let Some(m) = master {
            m.set_window_size(rows, cols, 0, 0);
        }
    }
    /// Delivers the last output of a process's terminal, and lets the host's terminal go.
    fn close_console(&self, pid: i32) {
        let c = self.consoles.lock().remove(&pid);
        if let Some((c, _)) = c {
            c.drain(self.drain);
        }
    }

    /// How many tasks there may be (`pids.max`).
    #[must_use]
    pub fn task_limit(&self) -> usize {
        self.task_limit.load(Ordering::Relaxed) as usize
    }
    /// 0 for no limit but our own.
    pub fn set_task_limit(&self, n: u32) {
        let most = TASKS_MAX as u32;
        let n = if n == 0 { most } else { n.min(most) };
        self.task_limit.store(n, Ordering::Relaxed);
    }

    /// Whether tasks are held at the boundary.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }
    /// Holds every task at its next boundary, and has it come there. A task that sleeps in a system call
    /// restarts the call afterwards.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
        self.kick_all();
    }
    /// Lets them go on.
    pub fn thaw(&self) {
        self.frozen.store(false, Ordering::SeqCst);
        self.kick_all();
    }
    fn kick_all(&self) {
        for t in self.tasks.lock().all() {
            t.kick();
        }
    }

    /// Process 1 has ended: everything ends, the starter is told, and this process exits.
    pub fn end_sandbox(&self, status: i32) {
        let others: Vec<_> = {
            let l = self.tasks.lock();
            l.processes()
                .filter(|p| p.group.tgid != 1)
                .map(|p| p.group.clone())
                .collect()
        };
        for g in others {
            self.kill_group(&g, abi::signal::SIGKILL.number());
        }
        self.close_console(1);
        self.tell_starter(control::EXIT, &(status as u32).to_le_bytes());
        // The namespace's first process ends here, and everything in it.
        hostcall::process::exit_group(0);
    }

    /// A process that was started from outside has ended.
    pub fn tell_end_of_exec(&self, pid: i32, status: i32) {
        self.close_console(pid);
        let mut m = (pid as u32).to_le_bytes().to_vec();
        m.extend_from_slice(&(status as u32).to_le_bytes());
        self.tell_starter(control::EXITED, &m);
    }

    /// Sends the starter a message; a starter that is gone is no error.
    pub fn tell_starter(&self, kind: u32, payload: &[u8]) {
        let mut m = kind.to_le_bytes().to_vec();
        m.extend_from_slice(payload);
        let _ = hostcall::file::write(self.control.raw(), &m);
    }

    /// Runs a task's thread: a panic in it ends the sandbox with a sentence, never a hang.
    pub fn guard(&self, f: impl FnOnce()) {
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        if r.is_err() {
            self.fail("the Sentry failed (a bug in Cloister); the trace is above");
        }
    }

    /// Ends the sandbox because of ourselves.
    pub fn fail(&self, why: &str) -> ! {
        self.tell_starter(control::ERROR, why.as_bytes());
        hostcall::process::exit_group(70)
    }
}
