//! `create`: from a bundle to a container's monitor.

use crate::cgroup::{Begun, Cgroups, PathWords, Wanted};
use crate::container::Container;
use crate::convert::{self, Converted, PlanRequest};
use crate::delete::clean_up;
use crate::launch::{self, Beginning, OwnTerminal};
use crate::reach::end_process;
use crate::spec::{self, Hooks, Spec};
use crate::state::{self, Dir, Lock, Record, Sandbox, Status, check_id};
use crate::{
    Error, Leaving, OVERLAY_ANNOTATION, Overlay, Result, Runtime, Tried, client, files, leaving,
    memory,
};
use config::Stdio;
use hostcall::start::{self as host, Side};
use hostcall::time::Laps;
use hostcall::{HostFd, RawFd, process, sock};
use std::path::{Path, PathBuf};

/// What `create` and `run` are told.
#[derive(Clone, Debug, Default)]
pub struct Create {
    pub id: String,
    pub bundle: PathBuf,
    pub pid_file: Option<PathBuf>,
    pub console_socket: Option<PathBuf>,
    pub preserve_fds: u32,
    /// Where there is no terminal.
    pub stdio: Stdio<RawFd>,
}

/// A created container's monitor, a child of this process.
pub struct Created {
    pub pid: i32,
    pub warnings: Vec<String>,
}

/// `create`.
pub fn create(rt: &Runtime, c: &Create) -> Result<Created> {
    start_monitor(rt, c, OwnTerminal::Unused)
}

/// Creates a container. `terminal` tells where the terminal leads that its program may want.
pub fn start_monitor(rt: &Runtime, c: &Create, terminal: OwnTerminal) -> Result<Created> {
    let mut laps = rt.log.debug.then(Laps::start).unwrap_or_default();
    check_id(&c.id)?;
    let mut bundle = Bundle::read(rt, c)?;
    bundle.check_terminal(c, terminal)?;
    let (dir, lock) = Dir::create(&rt.root, &c.id)?;
    let mut record = bundle.record(&c.id);
    let mut warnings = std::mem::take(&mut bundle.converted.warnings);
    let grouped = bundle.group(rt, &dir, &mut record, &mut warnings);
    laps.lap("bundle, state and cgroups");
    let result = grouped.and_then(|()| {
        let terminal = if bundle.has_terminal() {
            terminal
        } else {
            OwnTerminal::Unused
        };
        let monitor = Monitor {
            rt,
            create: c,
            dir: &dir,
            lock: &lock,
            record: &mut record,
            bundle: bundle.converted,
            hooks: bundle.spec.hooks.unwrap_or_default(),
            terminal,
        };
        monitor.fork()
    });
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
        undo(rt, &dir, &record);
    }
    drop(lock);
    result
}

/// Takes away what a container that could not be created has left.
fn undo(rt: &Runtime, dir: &Dir, record: &Record) {
    // (No program has run: its Sentry lets go of it some time, and is not waited for.)
    let ended = end_process(record.pid, record.pid_start);
    if let Err(e) = ended.and_then(|()| clean_up(dir, record)) {
        rt.log.warning(&e.to_string());
    }
}

/// A bundle that was read, and what it becomes.
struct Bundle {
    path: PathBuf,
    spec: Spec,
    converted: Converted,
    /// What it joins.
    sandbox: Option<Sandbox>,
    /// What may leave by its devices.
    leaving: Leaving,
}

impl Bundle {
    fn read(rt: &Runtime, c: &Create) -> Result<Bundle> {
        let path = c.bundle.canonicalize();
        let path = path.tried(&format!("find the bundle {}", c.bundle.display()))?;
        let (spec, unknown): (Spec, _) = spec::read(&path.join("config.json"))?;
        let overlay = overlay(rt, &spec)?;
        let sandbox = sandbox(rt, &spec)?;
        let leaving = leaving::of_bundle(rt, &spec, sandbox.as_ref())?;
        let mut converted = convert::convert(&PlanRequest {
            bundle: &path,
            spec: &spec,
            overlay,
            net: rt.net,
            sandbox: sandbox.as_ref(),
        })?;
        let warnings = &mut converted.warnings;
        let beside = memory::of_bundle(rt, &spec, sandbox.as_ref(), warnings)?;
        let limits = &mut converted.plan.container.limits;
        limits.swap = beside.swap.and_then(|n| i64::try_from(n).ok());
        limits.replacement = beside.replacement;
        limits.process = beside.process.and_then(|n| i64::try_from(n).ok());
        converted.swap_dir = beside.swap_dir.filter(|_| beside.swap.is_some());
        let unknown = unknown
            .into_iter()
            .map(|w| format!("{w} is not known to this version"));
        converted.warnings.extend(unknown);
        Ok(Bundle {
            path,
            spec,
            converted,
            sandbox,
            leaving,
        })
    }

    fn has_terminal(&self) -> bool {
        self.spec.process.as_ref().is_some_and(|p| p.terminal)
    }

    /// Fails where the terminal has no place to go to, or the socket for one nothing to carry.
    fn check_terminal(&self, c: &Create, terminal: OwnTerminal) -> Result<()> {
        match (self.has_terminal(), &c.console_socket) {
            (true, None) if terminal == OwnTerminal::Unused => Err(Error::new(
                "process.terminal is set: name a socket for the terminal with --console-socket",
            )),
            (false, Some(_)) => Err(Error::new(
                "--console-socket is given, but process.terminal is not set",
            )),
            _ => Ok(()),
        }
    }

    /// The record of a container without a monitor and without cgroups.
    fn record(&self, id: &str) -> Record {
        let hooks = self.spec.hooks.clone().unwrap_or_default();
        Record {
            id: id.to_owned(),
            bundle: self.path.clone(),
            rootfs: self.converted.rootfs.clone(),
            annotations: self.spec.annotations.clone(),
            start_container: hooks.start_container,
            poststart: hooks.poststart,
            poststop: hooks.poststop,
            process: self.spec.process.clone().unwrap_or_default(),
            sandbox: self.sandbox.clone(),
            devices: self.converted.devices.clone(),
            leaving: Leaving {
                pcap: self.leaving.pcap.as_ref().map(|p| named(p, id)),
                ..self.leaving.clone()
            },
            ..Record::new()
        }
    }

    /// Makes the container's cgroups with its limits; what is about to be made is in the saved
    /// record.
    fn group(
        &self,
        rt: &Runtime,
        dir: &Dir,
        record: &mut Record,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let linux = self.spec.linux.as_ref();
        let path = linux.map_or("", |l| l.cgroups_path.as_str());
        let resources = linux.and_then(|l| l.resources.as_ref());
        let words = if rt.systemd_cgroup {
            PathWords::Systemd
        } else {
            PathWords::Path
        };
        record.cgroups = Cgroups::plan(path, &record.id, words, warnings)?;
        let in_memory = self.converted.swap_dir.is_none();
        let limits = &self.converted.plan.container.limits;
        let swap = limits.swap_max().filter(|_| in_memory);
        record.cgroups.set_own_swap(swap.unwrap_or(0));
        dir.save(record)?;
        let asked = !path.is_empty() || resources.is_some();
        let wanted = if asked { Wanted::Yes } else { Wanted::No };
        record.cgroups.make(path, wanted, warnings)?;
        let none = spec::Resources::default();
        record.cgroups.apply(resources.unwrap_or(&none), warnings)
    }
}

/// A path with the container's name in the place of `%i`.
fn named(path: &Path, id: &str) -> PathBuf {
    match path.to_str() {
        Some(p) => p.replace("%i", id).into(),
        None => path.to_owned(),
    }
}

/// The sandbox that a container joins, as far as annotations may choose one.
fn sandbox(rt: &Runtime, spec: &Spec) -> Result<Option<Sandbox>> {
    match convert::sandbox_id(spec)? {
        Some(id) if rt.annotated.pod => running_sandbox(rt, id).map(Some),
        Some(id) => Err(Error::new(format!(
            "annotations may not choose to join the sandbox {id}: allow it with --annotations=pod"
        ))),
        None => Ok(None),
    }
}

/// Where writes to the root go: as the bundle's annotation says, as far as annotations may.
fn overlay(rt: &Runtime, spec: &Spec) -> Result<Overlay> {
    let Some(word) = spec.annotations.get(OVERLAY_ANNOTATION) else {
        return Ok(rt.overlay.clone());
    };
    let refused = |e: &str| Error::new(format!("annotation {OVERLAY_ANNOTATION}: {e}"));
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
        s => Err(Error::new(format!(
            "cannot join the sandbox {id}: it is in the {s} state"
        ))),
    }
}

/// A monitor that is about to start.
struct Monitor<'a> {
    rt: &'a Runtime,
    create: &'a Create,
    dir: &'a Dir,
    lock: &'a Lock,
    record: &'a mut Record,
    bundle: Converted,
    hooks: Hooks,
    terminal: OwnTerminal,
}

impl Monitor<'_> {
    /// Starts it, and waits until the container is created; gives its pid, which is in the record
    /// from early on.
    fn fork(self) -> Result<i32> {
        let (ours, theirs) = sock::seqpacket_pair().tried("make a channel")?;
        let cloned = self.record.cgroups.clone_process();
        let (side, begun) = cloned.tried("start the monitor")?;
        match side {
            Side::Parent { pid, .. } => {
                drop(theirs);
                self.record.pid = pid;
                // (Without the word below the monitor ends by itself.)
                self.record.pid_start = state::start_time(pid)?;
                self.dir.save(self.record)?;
                // It waits for the state to be there: its hooks may ask for it.
                let _ = sock::send(ours.raw(), b"go", &[]);
                let lost = || Err(Error::new("the container's monitor ended unexpectedly"));
                let ready = client::hear_first(ours.raw()).unwrap_or_else(lost);
                ready.map(|_| pid)
            }
            Side::Child => {
                drop(ours);
                self.lock.leave_to_parent();
                let code = self.live(begun, &theirs);
                process::exit_group(i32::from(code))
            }
        }
    }

    /// Its life, in its own process; gives its exit status. What fails before the container is
    /// created is reported.
    fn live(self, begun: Begun, report: &HostFd) -> u8 {
        let failed = |e: Error| {
            client::say_first(report.raw(), &Err(e));
            sandbox::EXIT_NOT_STARTED
        };
        // While the state is being written.
        let away = if launch::network_comes_later(&self.bundle, &self.hooks) {
            sandbox::go_ahead()
        } else {
            Ok(None)
        };
        // Read also where that failed: a process that leaves a word unread is not heard any more.
        let mut go = [0; 8];
        if !matches!(sock::recv(report.raw(), &mut go), Ok((n, _)) if n > 0) {
            return sandbox::EXIT_NOT_STARTED;
        }
        let away = match away {
            Ok(a) => a,
            Err(e) => return failed(e.into()),
        };
        let _ = host::setsid();
        self.record.pid = std::process::id() as i32;
        let begin = Beginning {
            runtime: self.rt,
            dir: self.dir,
            record: self.record,
            bundle: self.bundle,
            hooks: self.hooks,
            console_socket: self.create.console_socket.clone(),
            terminal: self.terminal,
            preserve_fds: self.create.preserve_fds,
            begun,
            away,
            stdio: self.create.stdio,
        };
        launch::run(begin, tells_ready(report)).unwrap_or_else(failed)
    }
}

/// Tells the command that the container is created. A monitor whose command is gone ends.
fn tells_ready(report: &HostFd) -> Box<dyn FnOnce()> {
    let word = report.duplicate();
    Box::new(move || {
        if !word.is_ok_and(|w| client::say_first(w.raw(), &Ok(1))) {
            // The command is gone, and nobody knows of the container.
            process::exit_group(i32::from(sandbox::EXIT_NOT_STARTED));
        }
    })
}
