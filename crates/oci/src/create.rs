//! `create`: from a bundle to a container's monitor.

use crate::cgroup::{Cgroups, Wanted};
use crate::container::Container;
use crate::delete::{clean_up, end_process};
use crate::launch::{self, Start};
use crate::spec::{self, Hooks, Spec};
use crate::state::{self, Dir, Lock, Record, Sandbox, Status, check_id};
use crate::{
    Failure, OVERLAY_ANNOTATION, Overlay, Result, Runtime, Streams, Tried, client, convert, files,
};
use hostcall::start::{self as host, Side};
use hostcall::time::Laps;
use hostcall::{HostFd, process, sock};
use std::path::PathBuf;

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

/// Creates a container. With `own_terminal` its program's terminal is joined to this process's own.
pub fn start_monitor(rt: &Runtime, c: &Create, own_terminal: bool) -> Result<Created> {
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
    let c = Container::open(&rt.root, id)?;
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
