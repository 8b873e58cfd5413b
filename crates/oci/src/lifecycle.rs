//! The commands: create, start, state, kill, run, ps, list, pause, resume, events, update, tar, wait.

use crate::cgroup::{Cgroups, Wanted};
use crate::client::{self, Reply, Request};
use crate::container::{Container, Info};
use crate::convert;
use crate::delete::{clean_up, delete, end_process};
use crate::launch::{self, Start, exit_code};
use crate::spec::{self, Hooks, Spec};
use crate::state::{self, Dir, Lock, Record, Sandbox, Status, check_id};
use crate::{
    Failure, OVERLAY_ANNOTATION, Overlay, Result, Runtime, Streams, Tried, exec, files, hooks,
};
use hostcall::start::{self as host, Side};
use hostcall::time::Laps;
use hostcall::{HostFd, process, sock};
use sentry::boot::config::{Census, Limits};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Bytes of the pipe that an archive comes through, where an ordinary user may have as many.
const ARCHIVE_PIPE: usize = 1 << 20;

/// What `create` and `run` are told.
#[derive(Clone, Debug, Default)]
pub struct Create {
    pub id: String,
    pub bundle: PathBuf,
    pub pid_file: Option<PathBuf>,
    pub console_socket: Option<PathBuf>,
    pub preserve_fds: u32,
    /// Where there is no terminal.
    pub streams: Streams,
}

/// A created container's monitor, a child of this process.
pub struct Created {
    pub pid: i32,
    pub warnings: Vec<String>,
}

/// `create`.
pub fn create(rt: &Runtime, c: &Create) -> Result<Created> {
    start_monitor(rt, c, false)
}

fn start_monitor(rt: &Runtime, c: &Create, own_terminal: bool) -> Result<Created> {
    let mut laps = Laps::start(rt.log.debug);
    check_id(&c.id)?;
    let bundle = c
        .bundle
        .canonicalize()
        .tried(&format!("find the bundle {}", c.bundle.display()))?;
    let (spec, unknown): (Spec, _) = spec::read(&bundle.join("config.json"))?;
    let overlay = overlay(rt, &spec)?;
    let sandbox = match convert::sandbox_id(&spec)? {
        Some(id) if rt.annotated.pod => Some(running_sandbox(rt, id)?),
        Some(id) => {
            return Err(Failure::new(format!(
                "annotations may not choose to join the sandbox {id}: allow it with --annotations=pod"
            )));
        }
        None => None,
    };
    let mut plan = convert::plan(&bundle, &spec, overlay, rt.host_network, sandbox.clone())?;
    let unknown = unknown
        .into_iter()
        .map(|w| format!("{w} is not known to this version"));
    plan.warnings.extend(unknown);
    let terminal = spec.process.as_ref().is_some_and(|p| p.terminal);
    match (terminal, &c.console_socket) {
        (true, None) if !own_terminal => {
            return Err(Failure::new(
                "process.terminal is set: name a socket for the terminal with --console-socket",
            ));
        }
        (false, Some(_)) => {
            return Err(Failure::new(
                "--console-socket is given, but process.terminal is not set",
            ));
        }
        _ => {}
    }
    let hooks = spec.hooks.clone().unwrap_or_default();
    let (dir, lock) = Dir::create(&rt.root, &c.id)?;
    let mut record = Record {
        id: c.id.clone(),
        bundle,
        rootfs: plan.rootfs.clone(),
        annotations: spec.annotations.clone(),
        start_container: hooks.start_container.clone(),
        poststart: hooks.poststart.clone(),
        poststop: hooks.poststop.clone(),
        process: spec.process.clone().unwrap_or_default(),
        sandbox,
        ..Record::new()
    };
    let own_terminal = own_terminal && terminal;
    let linux = spec.linux.clone().unwrap_or_default();
    let mut warnings = std::mem::take(&mut plan.warnings);
    let path = &linux.cgroups_path;
    let grouped = Cgroups::plan(path, &c.id, rt.systemd_cgroup, &mut warnings).and_then(|g| {
        record.cgroups = g;
        dir.save(&record)?;
        let asked = !path.is_empty() || linux.resources.is_some();
        let wanted = if asked { Wanted::Yes } else { Wanted::No };
        record.cgroups.make(path, wanted, &mut warnings)?;
        record
            .cgroups
            .apply(&linux.resources.unwrap_or_default(), &mut warnings)
    });
    laps.lap("bundle, state and cgroups");
    let result = grouped
        .and_then(|()| fork_monitor(rt, c, &dir, &lock, &mut record, plan, hooks, own_terminal));
    let result = result.and_then(|pid| {
        if let Some(f) = &c.pid_file {
            files::write_pid(f, pid)?;
        }
        Ok(Created { pid, warnings })
    });
    laps.lap("monitor");
    rt.log
        .debug(&format!("the command's start: {}", laps.told()));
    if result.is_err() {
        // (No program has run: its Sentry lets go of it some time, and is not waited for.)
        let ended = end_process(record.pid, record.pid_start);
        if let Err(e) = ended.and_then(|()| clean_up(&dir, &record)) {
            rt.log.warning(&e.text);
        }
    }
    drop(lock);
    result
}

/// Where writes to the root go: as the bundle's annotation says, as far as annotations may.
fn overlay(rt: &Runtime, spec: &Spec) -> Result<Overlay> {
    let Some(word) = spec.annotations.get(OVERLAY_ANNOTATION) else {
        return Ok(rt.overlay.clone());
    };
    let refused = |e: &str| Failure::new(format!("annotation {OVERLAY_ANNOTATION}: {e}"));
    match word.parse().map_err(|e: String| refused(&e))? {
        Overlay::Dir(d) if !rt.annotated.overlay_dir => Err(refused(&format!(
            "annotations may not choose a directory of the host ({}): allow it with --annotations=overlay-dir",
            d.display()
        ))),
        _ if !rt.annotated.overlay => Err(refused(
            "annotations may not choose where writes go: allow it with --annotations=overlay",
        )),
        chosen => Ok(chosen),
    }
}

/// A sandbox that can be joined.
fn running_sandbox(rt: &Runtime, id: &str) -> Result<Sandbox> {
    let c = open(rt, id)?;
    match c.status() {
        Status::Created | Status::Running => Ok(Sandbox {
            id: id.to_owned(),
            pid: c.record.pid,
            pid_start: c.record.pid_start,
        }),
        s => Err(Failure::new(format!(
            "cannot join the sandbox {id}: it is in the {s} state"
        ))),
    }
}

fn fork_monitor(
    rt: &Runtime,
    c: &Create,
    dir: &Dir,
    lock: &Lock,
    record: &mut Record,
    plan: convert::Plan,
    hooks: Hooks,
    own_terminal: bool,
) -> Result<i32> {
    let (ours, theirs) = sock::seqpacket_pair().tried("make a channel")?;
    let (side, in_v2) = record.cgroups.clone_process().tried("start the monitor")?;
    match side {
        Side::Parent { pid, .. } => {
            drop(theirs);
            record.pid = pid;
            // (Without the word below the monitor ends by itself.)
            record.pid_start = state::start_time(pid)?;
            dir.save(record)?;
            // It waits for the state to be there: its hooks may ask for it.
            let _ = sock::send(ours.raw(), b"go", &[]);
            let lost = || Err(Failure::new("the container's monitor ended unexpectedly"));
            let ready = client::hear_first(ours.raw()).unwrap_or_else(lost);
            ready.map(|_| pid)
        }
        Side::Child => {
            drop(ours);
            lock.leave_to_parent();
            let code = monitor(rt, c, dir, record, plan, hooks, own_terminal, in_v2, theirs);
            process::exit_group(i32::from(code))
        }
    }
}

/// The monitor's life.
fn monitor(
    rt: &Runtime,
    c: &Create,
    dir: &Dir,
    record: &mut Record,
    plan: convert::Plan,
    hooks: Hooks,
    own_terminal: bool,
    in_v2: bool,
    report: HostFd,
) -> u8 {
    let failed = |e: &Failure| {
        client::say_first(report.raw(), &Err(e.clone()));
    };
    // While the state is being written.
    let away = if launch::network_comes_later(&plan, &hooks) {
        sandbox::go_ahead()
    } else {
        Ok(None)
    };
    // Read also where that failed: who leaves a word unread is not heard any more.
    let mut go = [0; 8];
    if !matches!(sock::recv(report.raw(), &mut go), Ok((n, _)) if n > 0) {
        return sandbox::EXIT_NOT_STARTED;
    }
    let away = match away {
        Ok(a) => a,
        Err(e) => {
            failed(&e.into());
            return sandbox::EXIT_NOT_STARTED;
        }
    };
    let _ = host::setsid();
    record.pid = std::process::id() as i32;
    let start = Start {
        runtime: rt,
        dir,
        record,
        plan,
        hooks,
        console_socket: c.console_socket.clone(),
        own_terminal,
        preserve_fds: c.preserve_fds,
        in_v2,
        away,
        streams: c.streams,
    };
    let word = report.duplicate();
    let ready = move || {
        if !word.is_ok_and(|w| client::say_first(w.raw(), &Ok(1))) {
            // Who created this is gone, and nobody knows of it.
            process::exit_group(i32::from(sandbox::EXIT_NOT_STARTED));
        }
    };
    match launch::run(start, Box::new(ready)) {
        Ok(code) => code,
        Err(e) => {
            failed(&e);
            sandbox::EXIT_NOT_STARTED
        }
    }
}

/// An existing container.
fn open(rt: &Runtime, id: &str) -> Result<Container> {
    Container::open(&rt.root, id)
}

/// `start`.
pub fn start(rt: &Runtime, id: &str) -> Result<()> {
    start_attended(rt, id, None, || Ok(()))
}

/// The same; one of `signals` ends the wait for startContainer hooks. `begins` is called before the program runs.
fn start_attended(
    rt: &Runtime,
    id: &str,
    signals: Option<&HostFd>,
    begins: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let c = open(rt, id)?;
    let lock = c.dir.lock()?;
    match c.status() {
        Status::Created => {}
        Status::Stopped => {
            return Err(Failure::new("cannot start a container that has stopped"));
        }
        s => {
            return Err(Failure::new(format!(
                "cannot start a container in the {s} state"
            )));
        }
    }
    for (n, h) in c.record.start_container.iter().enumerate() {
        if let Err(e) = exec::hook(&c, h, signals) {
            // The container is not to run (runc ends it, too).
            let kill = Request::Signal {
                signal: libc::SIGKILL,
                all: true,
                process: 0,
            };
            let _ = c.ask(&kill, &[]);
            return Err(e.within(&format!("startContainer hook #{n}")));
        }
    }
    begins()?;
    c.ask(&Request::Start, &[])?;
    // It runs: hooks that take long keep nobody from it.
    drop(lock);
    let poststart = &c.record.poststart;
    if let Err(e) = hooks::run("poststart", poststart, &c.record, Status::Running) {
        rt.log.warning(&e.text);
    }
    Ok(())
}

/// `state`.
pub fn state(rt: &Runtime, id: &str) -> Result<Info> {
    Ok(open(rt, id)?.info())
}

/// `list`: those that can be read.
pub fn list(rt: &Runtime) -> Vec<Info> {
    state::all(&rt.root)
        .into_iter()
        .filter_map(|dir| {
            let record = dir.load().ok()??;
            Some(Container { dir, record }.info())
        })
        .collect()
}

/// `kill`.
pub fn kill(rt: &Runtime, id: &str, signal: i32, all: bool) -> Result<()> {
    let c = open(rt, id)?;
    if c.status() == Status::Stopped {
        // As with runc: with --all there may simply be nobody left.
        return if all {
            Ok(())
        } else {
            Err(Failure::not_running())
        };
    }
    let request = Request::Signal {
        signal,
        all,
        process: 0,
    };
    c.ask(&request, &[]).map(|_| ())
}

/// Sends a signal to a process that `exec` started: by its pid inside.
pub fn kill_process(rt: &Runtime, id: &str, signal: i32, process: u32) -> Result<()> {
    simple(
        rt,
        id,
        &Request::Signal {
            signal,
            all: false,
            process,
        },
    )
}

/// The host's cgroups that hold a container.
pub fn cgroups(rt: &Runtime, id: &str) -> Result<Cgroups> {
    Ok(open(rt, id)?.record.cgroups)
}

fn simple(rt: &Runtime, id: &str, r: &Request) -> Result<()> {
    let c = open(rt, id)?;
    if c.status() == Status::Stopped {
        return Err(Failure::not_running());
    }
    c.ask(r, &[]).map(|_| ())
}

/// `pause`.
pub fn pause(rt: &Runtime, id: &str) -> Result<()> {
    simple(rt, id, &Request::Pause)
}

/// `resume`.
pub fn resume(rt: &Runtime, id: &str) -> Result<()> {
    simple(rt, id, &Request::Resume)
}

/// What `ps` tells.
#[derive(Debug)]
pub struct Ps {
    /// The container's process on the host.
    pub monitor: i32,
    /// What runs inside, by the pids inside.
    pub census: Census,
}

/// `ps`.
pub fn ps(rt: &Runtime, id: &str) -> Result<Ps> {
    let c = open(rt, id)?;
    let connection = c.connect()?;
    let file = files::in_memory(&[])?;
    connection.ask(&Request::Census, &[file.as_raw_fd()])?;
    let mut f = std::fs::File::from(file);
    std::io::Seek::rewind(&mut f).tried("read the census")?;
    // Said by the Sentry: bounded, and only shown.
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(f, 16 << 20), &mut text)
        .tried("read the census")?;
    let census = serde_json::from_slice(&text).tried("understand the census")?;
    Ok(Ps {
        monitor: c.record.pid,
        census,
    })
}

/// `tar`: what the container changed in its root, as a layer of an image. Gives how many changes have no place in one.
///
/// The Sentry gets a pipe, and nothing that it could reach behind: what it writes is only bytes to copy. It ends with
/// its reader, too.
pub fn tar(rt: &Runtime, id: &str, out: &mut impl Write) -> Result<u32> {
    let connection = open(rt, id)?.connect()?;
    let (reader, writer) = std::io::pipe().tried("make a pipe")?;
    // (Where it cannot be larger, it stays as it is.)
    let _ = rustix::pipe::fcntl_setpipe_size(&reader, ARCHIVE_PIPE);
    connection.send(&Request::Changes, &[writer.as_raw_fd()])?;
    drop(writer);
    std::io::copy(&mut &reader, out).tried("write the archive")?;
    connection.done()
}

/// `events --stats`, as runc words it; what the Sentry tells of itself besides.
pub fn events(rt: &Runtime, id: &str) -> Result<serde_json::Value> {
    let census = ps(rt, id)?.census;
    let record = open(rt, id)?.record;
    Ok(serde_json::json!({
        "type": "stats",
        "id": id,
        "data": record.cgroups.stats(),
        "inside": {
            "cpu": census.cpu,
            "memory": census.memory,
            "processes": census.processes.len(),
            "threads": census.threads,
        },
    }))
}

/// `update`: sets limits of the running container.
pub fn update(rt: &Runtime, id: &str, r: &spec::Resources) -> Result<Vec<String>> {
    let c = open(rt, id)?;
    let _lock = c.dir.lock()?;
    if c.status() == Status::Stopped {
        return Err(Failure::not_running());
    }
    let mut warnings = Vec::new();
    c.record.cgroups.apply(r, &mut warnings)?;
    let limits = convert::limits(r);
    if limits != Limits::default() {
        c.ask(&Request::Limits(limits), &[])?;
    }
    Ok(warnings)
}

/// `wait`: the exit status.
pub fn wait(rt: &Runtime, id: &str) -> Result<u8> {
    let c = open(rt, id)?.connect()?;
    c.send(&Request::Wait, &[])?;
    match c.receive()? {
        Reply::Exited(status) => Ok(exit_code(status)),
        other => Err(Failure::new(format!(
            "the container's monitor said {other:?}"
        ))),
    }
}

/// `run` in the foreground: gives the exit status. `begins` is called before the program runs: until then, a signal
/// ends the wait for hooks. `size` tells the caller's window, where the program has a terminal joined to it.
pub fn run(
    rt: &Runtime,
    c: &Create,
    keep: bool,
    begins: impl FnOnce() -> Result<()>,
    size: &dyn Fn() -> Option<(u16, u16)>,
) -> Result<u8> {
    let created = start_monitor(rt, c, c.console_socket.is_none())?;
    for w in &created.warnings {
        rt.log.warning(w);
    }
    // Before the start: a program that ends at once takes its monitor with it.
    let waiting = crate::monitor::signals().and_then(|signals| {
        let container = open(rt, &c.id)?;
        let connection = container.connect()?;
        connection.send(&Request::Wait, &[])?;
        Ok((signals, connection, container))
    });
    let ended = waiting.and_then(|(signals, connection, container)| {
        let record = &container.record;
        if record.start_container.is_empty() && record.poststart.is_empty() {
            // Its monitor says whether it can be started.
            begins()?;
            container.ask(&Request::Start, &[])?;
        } else {
            let interrupts = crate::monitor::interrupts()?;
            start_attended(rt, &c.id, Some(&interrupts), begins)?;
        }
        exec::attend(&connection, &signals, size, &mut |c| match c.receive() {
            Ok(Reply::Exited(status)) => Ok(Some(status)),
            Ok(Reply::Error(e)) => Err(e),
            Ok(_) => Ok(None),
            // It has ended: its own status is the container's.
            Err(_) => Ok(Some(-1)),
        })
    });
    if ended.is_err()
        && let Err(e) = delete(rt, &c.id, true)
    {
        // What went wrong first is the answer.
        rt.log.warning(&format!("cannot delete the container: {e}"));
    }
    let status = process::wait(created.pid, 0).map_or(0, |(_, s)| s);
    if !keep && ended.is_ok() {
        delete(rt, &c.id, true)?;
    }
    match ended? {
        // The connection broke before it told: the monitor's own status says.
        -1 => Ok(exit_code(status)),
        s => Ok(exit_code(s)),
    }
}
