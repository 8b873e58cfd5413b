//! Programs that are started from outside: the first one, and those of `exec`.

use super::{Failure, mounts, or};
use crate::container::Container;
use crate::fs::console;
use crate::fs::host_stream::HostStream;
use crate::kernel::Kernel;
use crate::ns::change::Fresh;
use crate::task::birth::{Attributes, Inherit};
use crate::task::exec::ExecRequest;
use crate::task::launch::{Launch, Unready};
use crate::task::limits::{COUNT, Limit, Limits};
use crate::task::list::Process;
use crate::task::quota::Counted;
use crate::task::signal::{Actions, SIG_IGN, SigAction};
use crate::task::{Task, ThreadGroup, exec, seccomp};
use abi::errno::{EACCES, EAGAIN, ENOENT, ENOEXEC, ENOMEM, ENOTDIR, ESRCH};
use abi::{Result, SigSet, Signal};
use config::control::ToStarter;
use config::{ProcessSpec, Stdio};
use hostcall::HostFd;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::fd_table::{CloseOnExec, Room};
use vfs::file::{File, O_RDWR};
use vfs::userns::UserNs;
use vfs::walk::Walk;
use vfs::{At, Caller, Caps, Credentials, FdTable, FsContext, PathCx};
use wait::UntilKilled;

fn credentials(p: &ProcessSpec) -> Credentials {
    let mut c = Credentials::user(p.uid, p.gid, p.groups.clone());
    match p.caps {
        Some(s) => {
            // An ambient capability is permitted and inheritable (capabilities(7)).
            let set = |bits: u64| Caps::from_bits_retain(bits) & Caps::FULL;
            c.bounding = set(s.bounding);
            c.inheritable = set(s.inheritable);
            c.permitted = set(s.permitted);
            c.effective = set(s.effective) & c.permitted;
            c.ambient = set(s.ambient) & c.permitted & c.inheritable;
        }
        // What a container without special rights may do at most; root inside has it.
        None if p.uid == 0 => {
            c.permitted = Caps::FULL;
            c.effective = Caps::FULL;
        }
        None => {}
    }
    c
}

fn limits(p: &ProcessSpec) -> Limits {
    let mut l = Limits::default();
    for (n, soft, hard) in &p.rlimits {
        if let Some(l) = l.0.get_mut(*n as usize).filter(|_| (*n as usize) < COUNT) {
            *l = Limit {
                current: *soft,
                max: *hard,
            };
        }
    }
    l
}

/// What is to run, and with which files.
pub struct Program {
    spec: ProcessSpec,
    stdio: Stdio<HostFd>,
    /// From descriptor 3 on.
    preserved: Vec<HostFd>,
}

impl Program {
    #[must_use]
    pub fn new(spec: ProcessSpec, stdio: Stdio<HostFd>, preserved: Vec<HostFd>) -> Program {
        Program {
            spec,
            stdio,
            preserved,
        }
    }
}

/// Makes the process, up to its first instruction. `made` hears of its task, and says whether it
/// is still wanted.
pub fn prepare(
    kernel: &Arc<Kernel>,
    container: &Arc<Container>,
    program: Program,
    made: impl FnOnce(&Arc<Task>) -> bool,
) -> core::result::Result<Launch, Failure> {
    let Program {
        spec,
        stdio,
        preserved,
    } = program;
    let mut cred = credentials(&spec);
    cred.user_ns = UserNs::of_container(container.clas.number());
    let name = String::from_utf8_lossy(spec.argv.first().map_or(b"", Vec::as_slice)).into_owned();
    let (task, is_first) = process(kernel, container, &spec, &cred)?;
    let unready = Unready::new(&task);
    if !made(&task) {
        return Err("it was given up".into());
    }
    let (fs, files) = (task.fs(), task.files());
    let [cred, root] = [cred, Credentials::root()].map(Arc::new);
    // Nothing interrupts its waits but that it is given up.
    let boot = UntilKilled(&*task);
    let as_user = |cred| PathCx {
        vfs: &kernel.vfs,
        fs: &fs,
        caller: Caller { cred, task: &task },
        blocker: &boot,
    };
    let (cx, as_root) = (as_user(&cred), as_user(&root));
    or(
        enter(&cx, &as_root, &spec)?,
        &format!("change to directory {}", String::from_utf8_lossy(&spec.cwd)),
    )?;
    streams(&task, &files, stdio, &as_root, is_first)?;
    for (n, fd) in preserved.into_iter().enumerate() {
        let f = inherited(&task, fd)?;
        let n = 3 + n as i32;
        let room = Room {
            limit: n as u64 + 1,
            cred: f.cred.clone(),
        };
        let put = files.install_at(n, f, CloseOnExec::No, &room);
        or(put.map(|_| ()), "install a preserved descriptor")?;
    }
    let cannot_run = |e| cannot_run(&name, e);
    let path = find_program(&cx, &spec).map_err(cannot_run)?;
    let req = ExecRequest {
        at: At::Cwd,
        path,
        walk: Walk::FOLLOW,
        by_fd: None,
        argv: spec.argv,
        envp: spec.envp,
    };
    let thread = exec::prepare(&task, &req).map_err(cannot_run)?;
    let filter = &container.seccomp;
    if !filter.is_empty() && seccomp::install(&task, filter, 0, None).is_err() {
        return Err("the seccomp filter cannot be installed".into());
    }
    Ok(unready.ready(thread))
}

/// A process of the container's without a program, and its task, in the list; whether it is the
/// container's first.
fn process(
    kernel: &Arc<Kernel>,
    container: &Arc<Container>,
    spec: &ProcessSpec,
    cred: &Credentials,
) -> core::result::Result<(Arc<Task>, bool), Failure> {
    let root = container.root().ok_or("the container is not ready")?;
    let fs = FsContext::new(&root.mounts);
    fs.set_umask(spec.umask);
    let space = or(kernel.platform.new_address_space(), "make an address space")?;
    if !container.ns.time.is_initial() {
        or(space.own_clocks(), "give it clocks of its own")?;
    }
    let mm = mm::Mm::new(container.clas.clone(), space);
    mm.charge_to(cred.ucounts());
    if root.is_confidential {
        or(mm.set_confidential(), "mark its memory as confidential")?;
    }
    let mut list = kernel.tasks.lock();
    if container.is_closed() {
        return Err("the container has ended".into());
    }
    let ns = &container.ns.pid_for_children;
    let number = or(list.take_number(ns), "number the process")?;
    // Its container's root, which has no limit.
    let charge = or(container.ns.cgroup.try_charge(), "count the process")?;
    let pid = number.keep();
    let tgid = pid.id;
    let actions = Arc::new(RwLock::new(actions(spec)));
    let group = ThreadGroup::new(pid, container, actions, limits(spec));
    let is_first = container.note_first(tgid);
    let bounds = mm::Bounds {
        limit: container.ns.cgroup.process_max().unwrap_or(u64::MAX),
        reserve: 0,
    };
    *group.memory.lock() = bounds;
    mm.set_bounds(bounds);
    group.from_outside.store(!is_first, Ordering::Relaxed);
    // Process 1 of a namespace below the initial one is protected anyway.
    if tgid == 1 && container.is_managed {
        group.unkillable.store(true, Ordering::Relaxed);
    }
    for o in [&group.oom_score_adj, &group.oom_score_adj_min] {
        o.store(spec.oom_score_adj, Ordering::Relaxed);
    }
    let from = Inherit {
        aio: Arc::default(),
        pid: group.pid.clone(),
        group: group.clone(),
        mm,
        fs,
        files: FdTable::new(),
        new: Fresh {
            cred: Arc::new(cred.clone()),
            proxy: container.ns.clone(),
        },
        counted: Counted::force(cred),
        attributes: Attributes {
            mask: SigSet(spec.blocked),
            no_new_privs: spec.no_new_privs,
            ..Attributes::default()
        },
    };
    let task = Task::new(kernel, from);
    let cgroup = charge.keep();
    crate::cgroup::begin(&list, &group, &cgroup);
    list.add_process(Process::leading(group));
    list.add_task(&task);
    Ok((task, is_first))
}

/// Changes to the working directory, which is made where that is asked for.
fn enter(
    cx: &PathCx<'_>,
    as_root: &PathCx<'_>,
    spec: &ProcessSpec,
) -> core::result::Result<Result<()>, Failure> {
    Ok(match cx.chdir(&spec.cwd) {
        Err(ENOENT) if spec.make_cwd => {
            let cwd = String::from_utf8_lossy(&spec.cwd);
            let made = mounts::make_dirs(as_root, &cwd);
            or(made, &format!("make the working directory {cwd}"))?;
            cx.chdir(&spec.cwd)
        }
        // As root's where the user may not go: what runc does, too.
        Err(EACCES) if spec.make_cwd => as_root.chdir(&spec.cwd),
        r => r,
    })
}

fn actions(p: &ProcessSpec) -> Actions {
    let ignore = SigAction {
        handler: SIG_IGN,
        ..SigAction::default()
    };
    let mut a = Actions::default();
    for s in (1..=64).filter_map(Signal::new) {
        if p.ignored >> (s.number() - 1) & 1 != 0 && !SigSet::UNBLOCKABLE.contains(s) {
            a.set(s, ignore);
        }
    }
    a
}

/// As env(1) and shells tell it: nothing of that name, or something that does not run.
fn cannot_run(name: &str, e: abi::Errno) -> Failure {
    let kind = match e {
        ENOENT | ENOTDIR => ToStarter::NotFound,
        // Not the program's fault.
        ESRCH | EAGAIN | ENOMEM => ToStarter::Error,
        _ => ToStarter::NotExecutable,
    };
    Failure {
        kind,
        text: format!("cannot run {name}: {}", explain(e, name)),
    }
}

/// Container managers look for these words to choose the exit status 127 or 126.
fn explain(e: abi::Errno, name: &str) -> String {
    match e {
        ENOENT if !name.contains('/') => "executable file not found in $PATH".into(),
        ENOENT | ENOTDIR => "no such file or directory".into(),
        EACCES => "permission denied".into(),
        ENOEXEC => "exec format error".into(),
        e => e.words().to_lowercase(),
    }
}

/// Looks the program up in PATH, as execvp(3) does.
fn find_program(cx: &PathCx<'_>, p: &ProcessSpec) -> Result<Vec<u8>> {
    let name = p.argv.first().ok_or(ENOENT)?;
    if name.contains(&b'/') {
        return Ok(name.clone());
    }
    let path = p
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
        match cx.find_exec(&At::Cwd, &p, Walk::FOLLOW) {
            Ok(_) => return Ok(p),
            Err(ENOENT | ENOTDIR) => {}
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A descriptor of the host as an open file.
fn inherited(task: &Task, fd: HostFd) -> core::result::Result<Arc<File>, Failure> {
    let flags = or(
        hostcall::file::status_flags(fd.raw()),
        "look at a standard stream",
    )?;
    let ops = or(HostStream::new(fd), "take over a standard stream")?;
    Ok(File::new(ops, flags, None, task.cred()))
}

fn streams(
    task: &Arc<Task>,
    files: &Arc<FdTable>,
    stdio: Stdio<HostFd>,
    root: &PathCx<'_>,
    is_first: bool,
) -> core::result::Result<(), Failure> {
    let install = |n: i32, f: Arc<File>| {
        let cred = f.cred.clone();
        files.install_at(n, f, CloseOnExec::No, &Room { limit: 3, cred })
    };
    match stdio {
        Stdio::Inherited(fds) => {
            let mut seen: Vec<(vfs::Stat, u32, u64, Arc<File>)> = Vec::new();
            for (n, fd) in fds.into_iter().enumerate() {
                let Some(fd) = fd else { continue };
                let f = inherited(task, fd)?;
                // `>file 2>&1` is one open file, which shares its flags. Who it is cannot be asked
                // of the host from here: the same file, opened alike, at the same position is taken
                // for it.
                let st = or(f.ops.stat(), "look at a standard stream")?;
                let pos = match f.ops.seekable() {
                    true => or(f.position(), "look at a standard stream")?,
                    false => 0,
                };
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
            let container = &task.group.container;
            let master = or(container.devpts.open_master(), "make a terminal")?;
            master.unlock();
            master.set_window_size(rows, cols, 0, 0);
            task.kernel.terminals.adopt(task.tid, master.pty());
            let path = format!("/dev/pts/{}", master.pty().index);
            let how = vfs::ops::OpenHow::new(O_RDWR | vfs::file::O_NOCTTY, 0);
            let f = match root.open(&At::Cwd, path.as_bytes(), how) {
                Ok(f) => {
                    let owner = task.cred().uid;
                    // As login programs do; a container's user opens it by name, too.
                    let _ = root.chown(&At::Cwd, path.as_bytes(), Some(owner), None, 0);
                    if is_first && container.is_managed {
                        let _ = mounts::show_at(root, &path, "/dev/console");
                    }
                    f
                }
                // A container without a devpts.
                Err(_) => {
                    let s = master.pty().open(O_RDWR | vfs::file::O_NOCTTY, task);
                    File::new(or(s, "open the terminal")?, O_RDWR, None, task.cred())
                }
            };
            for n in 0..3 {
                or(install(n, f.clone()).map(|_| ()), "install the terminal")?;
            }
            if let Some(fd) = stderr {
                or(
                    install(2, inherited(task, fd)?).map(|_| ()),
                    "install standard error",
                )?;
            }
            let console = console::start(host, master.clone());
            container.set_console(task.tid, console, &master);
        }
    }
    Ok(())
}
