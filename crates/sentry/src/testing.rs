//! A kernel for unit tests: a platform whose application threads say what a test has written down,
//! a root in memory, and processes without programs. What needs no application code can be tested
//! with it, system calls and the task's loop among them.

use crate::kernel::Parts;
use crate::ns::change::Fresh;
use crate::task::birth::{Attributes, Inherit};
use crate::task::limits::Limits;
use crate::task::list::Process;
use crate::task::quota::Counted;
use crate::task::signal::Actions;
use crate::{Context, Kernel, Task, ThreadGroup};
use abi::Result;
use hostcall::HostFd;
use parking_lot::{Mutex, RwLock};
use platform::{AddressSpace, AppThread, CpuClock, Event, Interrupter, MapOp, Platform, Regs};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::fs::tmpfs::{Options, Tmpfs};
use vfs::mount::MountFlags;
use vfs::{Credentials, FdTable, FsContext, MountNamespace, Vfs};

struct Fake;

impl Platform for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn new_address_space(&self) -> Result<Arc<dyn AddressSpace>> {
        Ok(Arc::new(Fake))
    }
}

impl AddressSpace for Fake {
    fn apply(&self, _: &[MapOp]) -> Result<()> {
        Ok(())
    }
    fn new_thread(&self) -> Result<Box<dyn AppThread>> {
        Ok(Box::<FakeThread>::default())
    }
    fn kill(&self) {}
    fn retire(&self, _: u64, then: Box<dyn FnOnce() + Send>) {
        then();
    }
}

/// How often a thread was interrupted.
#[derive(Default)]
pub(crate) struct Interrupts(AtomicU64);

impl Interrupter for Interrupts {
    fn interrupt(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What an application thread got as the results of its calls.
pub(crate) type Results = Arc<Mutex<Vec<u64>>>;

/// An application thread that stops with these events, one after the other, and is gone then.
#[derive(Default)]
pub(crate) struct FakeThread {
    events: VecDeque<Event>,
    results: Results,
    regs: Regs,
    interrupts: Arc<Interrupts>,
}

impl AppThread for FakeThread {
    fn run(&mut self) -> Event {
        self.events.pop_front().unwrap_or(Event::Gone)
    }
    fn set_return(&mut self, value: u64) {
        self.results.lock().push(value);
        self.regs.rax = value;
    }
    fn has_regs(&self) -> bool {
        true
    }
    fn fetch_regs(&mut self) -> Event {
        Event::Interrupted
    }
    fn regs(&self) -> Regs {
        self.regs
    }
    fn set_regs(&mut self, regs: &Regs) {
        self.regs = *regs;
    }
    fn fp_state(&self, _: &mut Vec<u8>) {}
    fn set_fp_state(&mut self, _: Option<&[u8]>) -> Result<()> {
        Ok(())
    }
    fn interrupter(&self) -> Arc<dyn Interrupter> {
        self.interrupts.clone()
    }
    fn cpu_clock(&self) -> CpuClock {
        CpuClock::new(|| 0)
    }
}

/// A kernel whose only container has an empty root in memory.
pub(crate) fn kernel() -> Arc<Kernel> {
    let vfs = Vfs::new();
    let clas = clas::Clas::new().unwrap();
    let root = Tmpfs::mountable(&vfs, &clas, Options::default());
    let kernel = Kernel::new(Parts {
        platform: Arc::new(Fake),
        clas,
        vfs: vfs.clone(),
        net: net::NetNamespace::new(),
        timers: ipc::timer::TimerService::new(),
        terminals: crate::fs::terminals::Terminals::new(),
        strace: None,
        control: HostFd::from_raw(-1),
        time: None,
        hostname: "test".into(),
        random_drop: 0,
        cpus: 1,
        total_memory: 1 << 30,
        kept_files: goferfs::Kept::for_limit(64, 64),
        tasks_max: 64,
        drain: std::time::Duration::ZERO,
        is_container: false,
        seccomp: Vec::new(),
        limits: config::Limits::default(),
        memory_bound: u64::MAX,
    });
    let mounts = MountNamespace::new(&vfs.mounts, root, MountFlags::from_ms(0), "none");
    kernel.root.set_root(crate::container::Root {
        mounts,
        gofer: None,
        overlay: None,
        ids: Default::default(),
        is_confidential: false,
    });
    kernel
}

/// A process of root's with one thread, a child of `parent` (0: of nobody), which sends
/// `exit_signal` when it ends.
pub(crate) fn process(k: &Arc<Kernel>, parent: i32, exit_signal: i32) -> Arc<Task> {
    let container = &k.root;
    let space = k.platform.new_address_space().unwrap();
    let cred = Credentials::root();
    let mut list = k.tasks.lock();
    let number = list.take_number(&container.ns.pid_for_children).unwrap();
    let pid = number.keep();
    let charge = container.ns.cgroup.try_charge().unwrap();
    let actions = Arc::new(RwLock::new(Actions::default()));
    let group = ThreadGroup::new(pid.clone(), container, actions, Limits::default());
    let task = Task::new(
        k,
        Inherit {
            aio: Arc::default(),
            pid,
            group: group.clone(),
            mm: mm::Mm::new(container.clas.clone(), space),
            fs: FsContext::new(&container.root().unwrap().mounts),
            files: FdTable::new(),
            counted: Counted::force(&cred),
            new: Fresh {
                cred: Arc::new(cred),
                proxy: container.ns.clone(),
            },
            attributes: Attributes::default(),
        },
    );
    crate::cgroup::begin(&list, &group, &charge.keep());
    list.add_process(Process {
        parent,
        exit_signal,
        ..Process::leading(group)
    });
    list.add_task(&task);
    task
}

/// What runs a task, whose application thread stops with these events.
pub(crate) fn context(task: &Arc<Task>, events: &[Event]) -> (Context, Results) {
    let thread = FakeThread {
        events: events.iter().copied().collect(),
        ..FakeThread::default()
    };
    let results = thread.results.clone();
    (Context::new(task.clone(), Box::new(thread)), results)
}

/// A system call as an event.
pub(crate) fn call(nr: u32, args: &[u64]) -> Event {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    Event::Syscall {
        nr: nr.into(),
        args: all,
        ip: 0x1000,
    }
}
