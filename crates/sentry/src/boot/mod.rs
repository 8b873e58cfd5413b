//! Starting the kernel: from a [`config::Config`] to the first program.
//!
//! Order: the platform first, because the zygote is cloned while the process has one thread; then memory and
//! file systems; then `seal` (the empty root, no capabilities, the allow-list); then the first program and
//! the service threads.

pub mod config;
mod mounts;

pub use mounts::Made;

use crate::fs::console;
use crate::fs::host_stream::HostStream;
use crate::fs::terminals::Terminals;
use crate::kernel::{Kernel, Parts};
use crate::strace::Strace;
use crate::task::exec::{ExecRequest, prepare};
use crate::task::limits::{COUNT, Limit, Limits};
use crate::task::list::Process;
use crate::task::signal::{Actions, AltStack};
use crate::task::{Task, ThreadGroup, clone};
use abi::errno::{EACCES, EINTR, ENOENT};
use abi::{Result, SigInfo, Signal};
use clas::Clas;
use config::{Config, InitProcess, PlatformKind, Stdio, control};
use gofer::client::Client;
use ipc::timer::TimerService;
use parking_lot::RwLock;
use platform::Platform;
use std::sync::Arc;
use std::time::Duration;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, O_RDWR};
use vfs::walk::Walk;
use vfs::{At, Caller, Caps, Credentials, FdTable, FsContext, PathCx, Vfs};
use wait::{Blocker, Parker};

/// The exit status of a Sentry that could not start its program.
const CANNOT_START: i32 = 1;

/// Runs the Sentry in this process. Never returns.
pub fn run(config: Config) -> ! {
    hostcall::process::settle_allocator();
    let control = config.control.duplicate();
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| start(config)));
    let (kind, why) = match r {
        Ok(Ok(kernel)) => (control::CRASH, serve(&kernel)),
        Ok(Err(e)) => (control::ERROR, e),
        Err(_) => (
            control::CRASH,
            "the Sentry failed while it started (a bug in Cloister); the trace is above".into(),
        ),
    };
    if let Ok(c) = control {
        let mut m = kind.to_le_bytes().to_vec();
        m.extend_from_slice(why.as_bytes());
        let _ = hostcall::file::write(c.raw(), &m);
    }
    hostcall::process::exit_group(CANNOT_START)
}

/// What went wrong, in one sentence for the person.
type Failure = String;

fn or<T>(r: Result<T>, what: &str) -> core::result::Result<T, Failure> {
    r.map_err(|e| format!("cannot {what}: {e}"))
}

/// The signal of nobody: waits at boot are never interrupted.
struct Boot(Arc<Parker>);

impl Blocker for Boot {
    fn parker(&self) -> &Arc<Parker> {
        &self.0
    }
    fn interrupted(&self) -> bool {
        false
    }
}

fn start(config: Config) -> core::result::Result<Arc<Kernel>, Failure> {
    let platform: Arc<dyn Platform> = match config.platform {
        PlatformKind::Notify => Arc::new(or(
            platform::notify::Notify::new(),
            "start the notify platform (Linux 5.19 or later with seccomp is needed; try --platform=ptrace)",
        )?),
        PlatformKind::Ptrace => Arc::new(or(
            platform::ptrace::Ptrace::new(),
            "start the ptrace platform",
        )?),
    };
    let clas = or(Clas::new(), "make the memory file")?;
    let total_memory = hostcall::process::total_memory();
    let cpus = hostcall::process::cpu_count();
    // Needs one thread, and the zygote cloned before.
    or((config.seal)(), "close the Sentry's walls")?;
    let strace = config.trace.strace.then(|| {
        Arc::new(Strace::new(
            config.trace.log_fd.unwrap_or(2),
            config.trace.filter.clone(),
        ))
    });
    let client = or(
        Client::connect(
            &config.gofer,
            Box::new(|| {
                // Without the Gofer no file can be found any more: end, the starter says why.
                hostcall::process::exit_group(71);
            }),
        ),
        "reach the Gofer",
    )?;
    let vfs = Vfs::new();
    let kernel = Kernel::new(Parts {
        platform,
        clas,
        vfs,
        net: net::NetNamespace::new(),
        timers: TimerService::new(),
        terminals: Terminals::new(),
        strace,
        control: config.control,
        hostname: config.hostname,
        random_drop: config.random_drop,
        cpus,
        total_memory,
        drain: config.drain,
    });
    kernel.terminals.attach(&kernel);
    let ns = mounts::tree(&kernel, &client, &config.binds)?;
    let fs = FsContext::new(&ns);
    first_program(&kernel, fs, config.init, config.stdio)?;
    Ok(kernel)
}

fn credentials(i: &InitProcess) -> Credentials {
    let mut c = Credentials::user(i.uid, i.gid, i.groups.clone());
    // What a container without special rights may do at most; root inside has it.
    if i.uid == 0 {
        c.permitted = Caps::FULL;
        c.effective = Caps::FULL;
    }
    c
}

fn limits(i: &InitProcess) -> Limits {
    let mut l = Limits::default();
    for (n, soft, hard) in &i.rlimits {
        if (*n as usize) < COUNT {
            l.0[*n as usize] = Limit {
                current: *soft,
                max: *hard,
            };
        }
    }
    l
}

fn first_program(
    kernel: &Arc<Kernel>,
    fs: Arc<FsContext>,
    init: InitProcess,
    stdio: Stdio,
) -> core::result::Result<(), Failure> {
    let cred = credentials(&init);
    let name = String::from_utf8_lossy(init.argv.first().map_or(b"", Vec::as_slice)).into_owned();
    fs.set_umask(init.umask);
    let files = FdTable::new();
    let space = or(kernel.platform.new_address_space(), "make an address space")?;
    let mm = mm::Mm::new(kernel.clas.clone(), space);
    let tgid = or(kernel.tasks.lock().new_tid(), "number the first process")?;
    let group = ThreadGroup::new(
        tgid,
        Arc::new(RwLock::new(Actions::default())),
        limits(&init),
    );
    let task = Task::first(
        kernel,
        group.clone(),
        mm,
        fs.clone(),
        files.clone(),
        cred.clone(),
    );
    {
        let mut l = kernel.tasks.lock();
        l.add_process(Process {
            group,
            parent: 0,
            children: Default::default(),
            pgid: tgid,
            sid: tgid,
            threads: Default::default(),
            zombie: None,
            stop_report: None,
            continue_report: false,
            exit_signal: abi::signal::SIGCHLD.number(),
            has_execed: false,
            uid: cred.uid,
            cpu: Default::default(),
        });
        l.add_task(&task);
    }
    let cred = Arc::new(cred);
    let boot = Boot(Arc::default());
    let cx = PathCx {
        vfs: &kernel.vfs,
        fs: &fs,
        caller: Caller {
            cred: &cred,
            task: &task,
        },
        blocker: &boot,
    };
    or(
        cx.chdir(&init.cwd),
        &format!("change to directory {}", String::from_utf8_lossy(&init.cwd)),
    )?;
    streams(kernel, &task, &files, stdio)?;
    let path =
        find_program(&cx, &init).map_err(|e| format!("cannot run {name}: {}", explain(e)))?;
    let req = ExecRequest {
        at: At::Cwd,
        path,
        walk: Walk::FOLLOW,
        by_fd: None,
        argv: init.argv,
        envp: init.envp,
    };
    let thread = prepare(&task, &req).map_err(|e| format!("cannot run {name}: {}", explain(e)))?;
    or(
        clone::start(task, thread, AltStack::default()),
        "start the first thread",
    )
}

fn explain(e: abi::Errno) -> String {
    match e {
        ENOENT => "no such program in the sandbox".into(),
        EACCES => "it may not be executed".into(),
        e => e.to_string(),
    }
}

/// Looks the program up in PATH, as execvp(3) does.
fn find_program(cx: &PathCx<'_>, i: &InitProcess) -> Result<Vec<u8>> {
    let name = i.argv.first().ok_or(ENOENT)?;
    if name.contains(&b'/') {
        return Ok(name.clone());
    }
    let path = i
        .envp
        .iter()
        .find_map(|e| e.strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let mut last = ENOENT;
    for dir in path.split(|b| *b == b':') {
        let mut p = if dir.is_empty() {
            b".".to_vec()
        } else {
            dir.to_vec()
        };
        p.push(b'/');
        p.extend_from_slice(name);
        match cx.open_exec(&At::Cwd, &p, Walk::FOLLOW) {
            Ok(_) => return Ok(p),
            Err(ENOENT) => {}
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A descriptor of the host as an open file.
fn inherited(task: &Task, fd: hostcall::HostFd) -> core::result::Result<Arc<File>, Failure> {
    let flags = or(
        hostcall::file::status_flags(fd.raw()),
        "look at a standard stream",
    )?;
    let (ops, pos) = or(HostStream::new(fd), "take over a standard stream")?;
    let f = File::new(ops, flags, None, task.cred());
    *f.pos.lock() = pos;
    Ok(f)
}

fn streams(
    kernel: &Arc<Kernel>,
    task: &Arc<Task>,
    files: &Arc<FdTable>,
    stdio: Stdio,
) -> core::result::Result<(), Failure> {
    let install = |n: i32, f: Arc<File>| files.install_at(n, f, CloseOnExec::No, 3);
    match stdio {
        Stdio::Inherited(fds) => {
            let mut seen: Vec<(vfs::Stat, u32, u64, Arc<File>)> = Vec::new();
            for (n, fd) in fds.into_iter().enumerate() {
                let Some(fd) = fd else { continue };
                let f = inherited(task, fd)?;
                // `>file 2>&1` is one open file with one position. Who it is cannot be asked of the host from
                // here: the same file, opened alike, at the same position is taken for it.
                let (st, pos) = (
                    or(f.ops.stat(), "look at a standard stream")?,
                    *f.pos.lock(),
                );
                let twin = seen.iter().find(|(s, flags, p, _)| {
                    (s.dev, s.ino, *flags, *p) == (st.dev, st.ino, f.flags(), pos)
                });
                let f = twin.map_or(f, |t| t.3.clone());
                seen.push((st, f.flags(), pos, f.clone()));
                or(
                    install(n as i32, f).map(|_| ()),
                    "install a standard stream",
                )?;
            }
        }
        Stdio::Terminal {
            host,
            rows,
            cols,
            stderr,
        } => {
            let devpts = &kernel.terminals.devpts;
            let master = or(devpts.open_master(), "make a terminal")?;
            master.unlock();
            master.set_window_size(rows, cols, 0, 0);
            kernel.terminals.adopt(task.tid, master.pty());
            let at = At::Cwd;
            let path = format!("/dev/pts/{}", master.pty().index);
            let f = task.with_paths(|p| {
                p.open(
                    &at,
                    path.as_bytes(),
                    vfs::ops::OpenHow::new(O_RDWR | vfs::file::O_NOCTTY, 0),
                )
            });
            let f = or(f, "open the terminal")?;
            for n in 0..3 {
                or(install(n, f.clone()).map(|_| ()), "install the terminal")?;
            }
            if let Some(fd) = stderr {
                or(
                    install(2, inherited(task, fd)?).map(|_| ()),
                    "install standard error",
                )?;
            }
            kernel.set_terminal(&master);
            kernel.set_console(console::start(host, master));
        }
    }
    Ok(())
}

/// The main thread's work from now on: the starter's messages. Gives the reason to end.
fn serve(kernel: &Arc<Kernel>) -> Failure {
    let mut m = [0u8; 64];
    let mut fds =
        [kernel.control.raw(), kernel.platform.end().unwrap_or(-1)].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
    loop {
        if hostcall::file::poll(&mut fds, -1) == Err(EINTR) {
            continue;
        }
        if fds[1].revents != 0 {
            return "a process that the sandbox needs was killed: the sandbox has ended".into();
        }
        let n = match hostcall::file::read(kernel.control.raw(), &mut m) {
            Ok(0) => {
                // The starter is gone; nobody waits for us.
                hostcall::process::exit_group(72)
            }
            Ok(n) => n,
            Err(EINTR) => continue,
            Err(e) => return format!("the starter cannot be heard: {e}"),
        };
        let word = |at: usize| {
            (n >= at + 4).then(|| u32::from_le_bytes(m[at..at + 4].try_into().expect("4")))
        };
        match word(0) {
            Some(control::WINDOW) => {
                if let Some(w) = word(4) {
                    kernel.resize_terminal(w as u16, (w >> 16) as u16);
                }
            }
            Some(control::SIGNAL) => {
                let s = word(4).and_then(|s| Signal::new(s as i32));
                let g = kernel.tasks.lock().group(1);
                if let (Some(s), Some(g)) = (s, g) {
                    let _ = kernel.send_to_group(&g, SigInfo::new(s, abi::signal::SI_USER));
                }
            }
            _ => {}
        }
    }
}

/// The time that output gets to drain at the end, where the starter does not say.
pub const DRAIN: Duration = Duration::from_secs(2);
