//! The root object: all state of a sandbox's kernel hangs from one [`Kernel`].

mod containers;
mod map;
pub mod memory;
mod reclaim;
mod send;

use crate::container::{self, Container};
use crate::ns::NsProxy;
use crate::ns::time::Offsets;
use crate::ns::uts::Uts;
use crate::strace::Strace;
use crate::task::{futex, list::TaskList};
use abi::Va;
use clas::Clas;
use config::control::ToStarter;
use hostcall::HostFd;
use ipc::timer::TimerService;
use mm::Mm;
use parking_lot::{Mutex, RwLock};
use platform::Platform;
use seccomp::bpf::Insn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::Vfs;

/// A sandbox's kernel. What is not said to change is immutable; objects behind an `Arc` have locks
/// of their own.
pub struct Kernel {
    pub platform: Arc<dyn Platform>,
    pub vfs: Arc<Vfs>,
    /// Who there is, and how they are related: the lock is Linux's `tasklist_lock`.
    pub tasks: Mutex<TaskList>,
    /// Who makes a process reads it, from the last look at its signals until the child is in the
    /// list. Who sends to many writes it: see [`Kernel::send_to_all`]. Before the list's lock.
    pub births: RwLock<()>,
    /// Who sends to many waits for others who do here, and not for births: who makes a process waits
    /// for one of them.
    pub senders: Mutex<()>,
    /// What a task has for memory when its process has ended.
    pub no_memory: Arc<Mm>,
    /// What runs them. Has a lock of its own, a leaf.
    pub threads: crate::task::threads::TaskThreads,
    /// A lock for each bucket; two are taken by address.
    pub futexes: futex::Table,
    pub timers: Arc<TimerService>,
    /// Looks at CPU clocks alone: see [`crate::task::cpu_timers`].
    pub cpu_timers: Arc<TimerService>,
    /// The initial namespaces.
    pub initial: Arc<NsProxy>,
    /// Has a lock of its own for changes, before the task list's.
    pub cgroups: crate::cgroup::Hierarchy,
    /// Numbers namespaces. Atomics.
    pub namespaces: vfs::userns::Registry,
    /// Anonymous files in memory: memfd_create(2), shared memory.
    pub shm: Arc<vfs::fs::tmpfs::ShmFs>,
    /// memfd_secret(2)'s files.
    pub secrets: vfs::fs::tmpfs::SecretFs,
    /// Has a lock of its own.
    pub terminals: crate::fs::terminals::Terminals,
    pub strace: Option<Arc<Strace>>,
    /// The sandbox's first container.
    pub root: Arc<Container>,
    /// Start, nanoseconds of CLOCK_BOOTTIME.
    pub boot: i64,
    /// Debugging: see [`config::Config::random_drop`].
    random_drop: u32,
    /// Atomic: any order will do.
    drop_seed: AtomicU64,
    pub cpus: u32,
    /// The host's memory, bytes.
    pub total_memory: u64,
    /// The host's descriptors that file systems keep for the next use.
    pub kept_files: Arc<goferfs::Kept>,
    /// How many tasks there may be ([`crate::task::quota::tasks_for`]).
    pub tasks_max: usize,
    /// `kernel.random.boot_id`.
    pub boot_id: [u8; 16],
    /// How long what a terminal's program has written is shown after its end.
    pub drain: std::time::Duration,
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
    /// Of a time namespace that the root container has.
    pub time: Option<Offsets>,
    pub random_drop: u32,
    pub cpus: u32,
    pub total_memory: u64,
    pub kept_files: goferfs::Kept,
    pub tasks_max: usize,
    pub drain: std::time::Duration,
    /// As a container manager expects it: process 1 is protected, and has its terminal at
    /// /dev/console.
    pub is_container: bool,
    /// The root container's seccomp filter and limits.
    pub seccomp: Vec<Insn>,
    pub limits: config::Limits,
    /// See [`container::Parts`].
    pub memory_bound: u64,
}

/// How much of the kernel's memory one user may have whose limits hold: a part of all, so that some
/// users do not end the sandbox.
fn user_memory(total: u64) -> i64 {
    (total / 16).clamp(32 << 20, 384 << 20) as i64
}

impl Kernel {
    #[must_use]
    pub fn new(p: Parts) -> Arc<Kernel> {
        let cgroups = crate::cgroup::Hierarchy::new();
        let limits = vfs::userns::UserNs::default();
        limits
            .limits()
            .set(vfs::ucounts::Kind::Kmem, user_memory(p.total_memory));
        let mut boot_id = [0u8; 16];
        hostcall::time::random(&mut boot_id);
        let initial = NsProxy::initial(
            Uts {
                nodename: p.hostname.into_bytes(),
                domainname: b"(none)".to_vec(),
            },
            p.net,
            cgroups.initial_namespace(),
        );
        let root = Container::new(container::Parts {
            clas: p.clas.clone(),
            ns: match p.time {
                Some(offsets) => initial.with_first_time(offsets),
                None => initial.clone(),
            },
            devpts: p.terminals.new_devpts(),
            seccomp: p.seccomp,
            is_managed: p.is_container,
            control: p.control,
            limits: p.limits,
            memory_bound: p.memory_bound,
        });
        // Names that nobody uses would keep the allocator's pages.
        p.platform.when_quiet(Box::new(vfs::dentry::shrink_all));
        Arc::new(Kernel {
            platform: p.platform,
            shm: Arc::new(vfs::fs::tmpfs::ShmFs::new(&p.vfs, &p.clas)),
            secrets: vfs::fs::tmpfs::SecretFs::new(&p.vfs, &p.clas),
            vfs: p.vfs,
            no_memory: Mm::none(p.clas),
            tasks: Mutex::default(),
            births: RwLock::default(),
            senders: Mutex::default(),
            futexes: futex::Table::new(),
            timers: p.timers,
            cpu_timers: TimerService::new(),
            initial,
            cgroups,
            namespaces: vfs::userns::Registry::default(),
            terminals: p.terminals,
            strace: p.strace,
            root,
            boot: hostcall::time::clock_nanos(7),
            random_drop: p.random_drop,
            threads: crate::task::threads::TaskThreads::default(),
            drop_seed: AtomicU64::new(1),
            cpus: p.cpus,
            total_memory: p.total_memory,
            kept_files: Arc::new(p.kept_files),
            tasks_max: p.tasks_max,
            boot_id,
            drain: p.drain,
        })
    }

    /// Tells a container's programs something, in its log.
    pub fn log(&self, c: &Container, level: crate::container::log::Level, line: &str) {
        let boottime = abi::linux::CLOCK_BOOTTIME as i32;
        let at = hostcall::time::clock_nanos(boottime) - self.boot;
        c.log.tell(level, at, line);
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

    /// Where a task's thread sleeps.
    #[must_use]
    pub fn parker(&self) -> Arc<wait::Parker> {
        Arc::new(wait::Parker::of_task(self.platform.spinners()))
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
        self.root.tell(ToStarter::Error, why.as_bytes());
        hostcall::process::exit_group(70)
    }
}
