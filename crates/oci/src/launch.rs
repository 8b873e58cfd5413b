//! The monitor's beginning: namespaces, hooks, the sandbox.

use crate::convert::{Network, Plan, Pod};
use crate::delete::{self, Reached};
use crate::monitor::{self, Monitor};
use crate::spec::Hooks;
use crate::state::{Dir, Record, Sandbox, Status};
use crate::{Failure, Log, Result, Runtime, Streams, Tried, client, files, hooks, terminal};
use config::{Config, ExecSpec, JoinSpec, Net, PlatformKind, Stdio, TraceConfig, limits};
use gofer::server::{Root, Server, Writable};
use hostcall::time::Laps;
use hostcall::{HostFd, RawFd, process, start as host};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandbox::{Access, EXIT_KILLED, Ending, GoferSide, JoinSide, Running, SentrySide, Spec};
use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

/// What a monitor begins with.
pub struct Start<'a> {
    pub runtime: &'a Runtime,
    pub dir: &'a Dir,
    pub record: &'a Record,
    pub plan: Plan,
    pub hooks: Hooks,
    pub console_socket: Option<PathBuf>,
    /// The caller's terminal, already in raw mode, where there is no console socket.
    pub own_terminal: bool,
    pub preserve_fds: u32,
    /// This process began in its cgroup of version 2.
    pub in_v2: bool,
    /// Where this process is since its beginning, if [`network_comes_later`].
    pub away: Option<sandbox::Away>,
    pub streams: Streams,
}

/// The Gofer's life, in its own process.
pub fn run_gofer(side: GoferSide) -> std::result::Result<Infallible, sandbox::Failure> {
    let failed = |what: &str, e: abi::Errno| sandbox::Failure(format!("could not {what}: {e}"));
    let roots = side.roots.into_iter().enumerate().map(|(i, (fd, access))| {
        let writable = match access {
            Access::ReadOnly => Writable::No,
            Access::Writable => Writable::Yes,
        };
        Root::from_fd(&i.to_string(), fd, writable)
    });
    let server = Server::new(roots.collect(), side.max_descriptors)
        .map_err(|e| failed("start", e))?
        .with_own_mounts(side.own_mounts)
        .with_network(side.network);
    (side.confine)().map_err(|e| failed("confine itself", e))?;
    server.run(side.channel)
}

/// Runs hooks and sandbox until the container ends; gives the exit status for this process. `on_ready` is
/// called when the container is created.
///
/// # Errors
///
/// The container never was.
pub fn run(start: Start<'_>, on_ready: Box<dyn FnOnce()>) -> Result<u8> {
    let mut laps = Laps::start(start.runtime.log.debug);
    let signals = monitor::signals()?;
    start.record.cgroups.enter(start.in_v2)?;
    let network = start.plan.network.clone();
    let later = network_comes_later(&start.plan, &start.hooks);
    if !later {
        enter_network(&network)?;
    }
    laps.lap("cgroups and network");
    let listener = listen(start.dir)?;
    run_hooks(&start)?;
    laps.lap("hooks");
    let slave = own_slave(&start)?;
    let given = Given::new(&start, slave.as_ref())?;
    let title = start.plan.init.argv.join(&0);
    let (runtime, sandbox) = (start.runtime, joined(&start.plan));
    let running = begin(start, given)?;
    laps.lap("processes");
    if later {
        enter_network(&network)?;
        laps.lap("network");
    }
    let mut log = runtime.log.clone();
    log.keep_open();
    // What is ended where it keeps a container that has left.
    let reached = match &sandbox {
        Some(s) => delete::reach(s.pid, s.pid_start)?,
        None => None,
    };
    let on_ready = told_in_log(laps, log.clone(), on_ready);
    let mut monitor = Monitor::new(listener, signals, slave, on_ready, log.clone());
    // For `docker top`, and whoever looks at the host's processes: this is the container's first program there.
    host::set_title(&title);
    running.confine()?;
    let ending = running.wait(&mut monitor);
    if let (true, Some(sandbox)) = (monitor.left, sandbox) {
        end_sandbox(&sandbox.id, reached, &log);
    }
    exit_status(&monitor, ending, &log)
}

/// Listens on the control socket.
fn listen(dir: &Dir) -> Result<OwnedFd> {
    let listener = client::socket()?;
    rustix::net::bind(&listener, &client::address(dir)?).tried("bind the control socket")?;
    rustix::net::listen(&listener, 128).tried("listen on the control socket")?;
    Ok(listener)
}

/// Runs the hooks that come before the container is created.
fn run_hooks(start: &Start<'_>) -> Result<()> {
    let h = &start.hooks;
    for (name, hooks) in [
        ("prestart", &h.prestart),
        ("createRuntime", &h.create_runtime),
        ("createContainer", &h.create_container),
    ] {
        hooks::run(name, hooks, start.record, Status::Creating)?;
    }
    Ok(())
}

/// The terminal of a container with a console socket, its master handed over; the controlling one
/// of this process.
fn own_slave(start: &Start<'_>) -> Result<Option<OwnedFd>> {
    let (Some(socket), Some(size)) = (&start.console_socket, start.plan.terminal) else {
        return Ok(None);
    };
    let slave = terminal::hand_over(socket, size)?;
    terminal::control(&slave)?;
    Ok(Some(slave))
}

/// The sandbox that the container joins.
fn joined(plan: &Plan) -> Option<Sandbox> {
    plan.pod.as_ref().map(|p| p.sandbox.clone())
}

/// Starts the container: in a sandbox of its own, or in the pod's.
fn begin(mut start: Start<'_>, given: Given) -> Result<Running> {
    let spec = Spec {
        roots: std::mem::take(&mut start.plan.roots),
        descriptors: given.all(),
        host_network: start.plan.host_network,
        traces: start.runtime.platform == PlatformKind::Ptrace,
    };
    let running = match start.plan.pod.take() {
        Some(pod) => begin_joined(start, pod, &spec, &given),
        None => begin_alone(start, &spec, &given),
    }?;
    given.let_go();
    Ok(running)
}

fn begin_joined(start: Start<'_>, pod: Pod, spec: &Spec, given: &Given) -> Result<Running> {
    let (terminal, streams) = given.kind.words();
    let join = JoinSpec {
        container: start.plan.container,
        first: ExecSpec {
            process: start.plan.init,
            terminal,
            streams,
            preserved: given.preserved.len() as u32,
        },
        own_pids: pod.own_pids,
        own_uts: pod.own_uts,
        own_ipc: pod.own_ipc,
        own_net: pod.own_net,
        has_layer: given.layer.is_some(),
    };
    let dir = Dir::open(&start.runtime.root, &pod.sandbox.id)?;
    let fds = given.for_sandbox();
    sandbox::join(spec, run_gofer, |side| {
        hand_over(&dir, start.dir, &join, &side, &fds)
    })
}

fn begin_alone(start: Start<'_>, spec: &Spec, given: &Given) -> Result<Running> {
    let interfaces = if spec.host_network {
        sandbox::interfaces()
    } else {
        Vec::new()
    };
    let (runtime, kind) = (start.runtime, given.kind);
    let (logs, has_layer) = (given.log.is_some(), given.layer.is_some());
    let (container, init) = (start.plan.container, start.plan.init);
    let running = sandbox::start(start.away, spec, run_gofer, move |side: SentrySide| {
        // In the order of `Given::all`.
        let mut given = side.descriptors.into_iter();
        let stdio = kind.stdio(&mut given);
        let log_fd = logs.then(|| given.next().map(HostFd::into_raw)).flatten();
        let layer = if has_layer { given.next() } else { None };
        sentry::boot::run(Config {
            platform: runtime.platform,
            lanes: runtime.lanes,
            gofer: side.gofer,
            container,
            layer,
            net: match side.broker {
                Some(broker) => Net::Host { broker, interfaces },
                None => Net::None,
            },
            stdio,
            preserved: given.collect(),
            control: side.control,
            init,
            held: true,
            trace: TraceConfig {
                strace: runtime.strace.is_some(),
                filter: runtime.strace.clone().unwrap_or_default(),
                log_fd,
                verbosity: u8::from(runtime.log.debug),
            },
            random_drop: runtime.debug_drop,
            drain: limits::DRAIN,
            seal: side.seal,
        })
    })?;
    Ok(running)
}

/// As `on_ready`, and tells how long the parts of the start took.
fn told_in_log(mut laps: Laps, log: Log, on_ready: Box<dyn FnOnce()>) -> Box<dyn FnOnce()> {
    Box::new(move || {
        laps.lap("the Sentry's start");
        if !laps.told().is_empty() {
            log.debug(&format!("the monitor's start: {}", laps.told()));
        }
        on_ready();
    })
}

/// What was killed must be gone before that is told: with all others of the pod, if need be.
fn end_sandbox(id: &str, reached: Option<Reached>, log: &Log) {
    log.error(&format!(
        "the Sentry did not end the container: the sandbox {id} was ended"
    ));
    if let Some(Err(e)) = reached.map(|r| r.end()) {
        log.error(&e.text);
    }
}

/// Tells clients and the log how the container ended; gives the exit status for this process.
fn exit_status(monitor: &Monitor, ending: Ending, log: &Log) -> Result<u8> {
    if let Some(s) = monitor.ended_by {
        if monitor.phase == Status::Creating {
            return Err(Failure::new(format!(
                "signal {s} ended the container before it was created"
            )));
        }
        monitor.tell_end(s);
        return Ok((128 + s) as u8);
    }
    match ending {
        Ending::Program { status, note } => {
            if let Some(text) = note {
                log.error(&text);
            }
            monitor.tell_end(status);
            Ok(exit_code(status))
        }
        Ending::Broken { text, .. } if monitor.phase == Status::Creating => Err(Failure::new(text)),
        Ending::Broken { .. } if monitor.overdue => {
            let text = "the Sentry did not obey SIGKILL: the container was ended";
            log.error(text);
            monitor.tell_end(libc::SIGKILL);
            Ok(exit_code(libc::SIGKILL))
        }
        Ending::Broken { text, exit } => {
            log.error(&text);
            // Killed from outside, or because the memory that it may have ran out: as a program would be.
            let code = if exit == EXIT_KILLED { 128 + 9 } else { exit };
            monitor.tell_end(i32::from(code) << 8);
            Ok(code)
        }
    }
}

/// A new namespace takes long to make: where nobody needs it before, it is made while the sandbox starts.
pub fn network_comes_later(plan: &Plan, hooks: &Hooks) -> bool {
    plan.network == Network::New
        && !plan.host_network
        && plan.pod.is_none()
        && hooks.prestart.is_empty()
        && hooks.create_runtime.is_empty()
        && hooks.create_container.is_empty()
}

/// Gives a container to the Sentry of a running sandbox.
fn hand_over(
    sandbox: &Dir,
    own: &Dir,
    spec: &JoinSpec,
    side: &JoinSide,
    given: &[RawFd],
) -> Result<()> {
    let body = files::in_memory(&serde_json::to_vec(spec).tried("describe the container")?)?;
    let memory = hostcall::mem::memfd(c"cloister-memory").tried("make the memory file")?;
    // From here on it is the Sentry's alone: this process's copy ends before the container does.
    let lock = own.lock_for_sandbox()?;
    let fds = [
        body.as_raw_fd(),
        side.gofer.raw(),
        side.control.raw(),
        memory.raw(),
        lock.as_raw_fd(),
    ];
    let c = client::Connection::open(sandbox)?;
    c.ask(&client::Request::Join, &[&fds, given].concat())
        .map(drop)
}

/// A wait status as a shell tells it.
#[must_use]
pub fn exit_code(status: i32) -> u8 {
    if libc::WIFSIGNALED(status) {
        (128 + libc::WTERMSIG(status)) as u8
    } else {
        libc::WEXITSTATUS(status) as u8
    }
}

fn enter_network(n: &Network) -> Result<()> {
    let privileged = rustix::process::geteuid().is_root();
    match n {
        Network::Host => Ok(()),
        // An ordinary user's Sentry makes its own with its user namespace.
        Network::New if !privileged => Ok(()),
        Network::New => host::unshare(libc::CLONE_NEWNET).tried("make a network namespace"),
        Network::Join(path) => {
            let what = format!("join the network namespace {}", path.display());
            let f = std::fs::File::open(path).tried(&what)?;
            move_into_link_name_space(f.as_fd(), Some(LinkNameSpaceType::Network)).tried(&what)
        }
    }
}

fn log_file(log: &Log, wanted: bool) -> Option<std::fs::File> {
    let path = log.path.as_ref().filter(|_| wanted)?;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .ok()
}

/// What the standard streams become.
#[derive(Clone, Copy)]
enum Kind {
    Terminal(u16, u16),
    Streams([bool; 3]),
}

impl Kind {
    /// As [`ExecSpec`] says it.
    fn words(self) -> (Option<(u16, u16)>, [bool; 3]) {
        match self {
            Kind::Terminal(rows, cols) => (Some((rows, cols)), [false; 3]),
            Kind::Streams(open) => (None, open),
        }
    }
    fn stdio(self, given: &mut impl Iterator<Item = HostFd>) -> Stdio {
        match self {
            Kind::Terminal(rows, cols) => match given.next() {
                Some(host) => Stdio::Terminal {
                    host,
                    rows,
                    cols,
                    stderr: None,
                },
                None => Stdio::Inherited([None, None, None]),
            },
            Kind::Streams(open) => {
                Stdio::Inherited(open.map(|o| if o { given.next() } else { None }))
            }
        }
    }
}

/// The descriptors that the Sentry gets.
struct Given {
    kind: Kind,
    /// The standard streams, out of this process's way.
    streams: Vec<RawFd>,
    /// Copies of them that are this process's.
    copies: Vec<HostFd>,
    log: Option<std::fs::File>,
    /// The file for the root's changes.
    layer: Option<OwnedFd>,
    /// The caller's, which its program gets by the same numbers.
    preserved: Vec<RawFd>,
}

impl Given {
    fn new(start: &Start<'_>, slave: Option<&OwnedFd>) -> Result<Given> {
        let mut g = Given {
            kind: Kind::Streams([false; 3]),
            streams: Vec::new(),
            copies: Vec::new(),
            log: None,
            layer: None,
            preserved: (3..3 + start.preserve_fds as RawFd).collect(),
        };
        g.take_streams(start, slave);
        silence();
        start.streams.let_go();
        let runtime = start.runtime;
        let logs = runtime.strace.is_some() || runtime.log.debug;
        g.log = log_file(&runtime.log, logs);
        g.layer = start.plan.layer_file()?;
        Ok(g)
    }

    fn take_streams(&mut self, start: &Start<'_>, slave: Option<&OwnedFd>) {
        if let (Some(s), Some((rows, cols))) = (slave, start.plan.terminal) {
            self.kind = Kind::Terminal(rows, cols);
            self.streams.push(s.as_raw_fd());
        } else if start.own_terminal
            && let Ok(terminal) = host::dup_above(0, OUT_OF_THE_WAY)
        {
            let (rows, cols) = hostcall::term::window(0).unwrap_or((24, 80));
            self.kind = Kind::Terminal(rows, cols);
            self.streams.push(terminal.raw());
            self.copies.push(terminal);
        } else {
            let copies = start
                .streams
                .descriptors()
                .map(|fd| host::dup_above(fd?, OUT_OF_THE_WAY).ok());
            self.kind = Kind::Streams([0, 1, 2].map(|i: usize| copies[i].is_some()));
            for c in copies.into_iter().flatten() {
                self.streams.push(c.raw());
                self.copies.push(c);
            }
        }
    }

    /// All, as the Sentry of a sandbox of its own gets them.
    fn all(&self) -> Vec<RawFd> {
        let mut fds = self.streams.clone();
        fds.extend(self.log.as_ref().map(AsRawFd::as_raw_fd));
        fds.extend(self.layer.as_ref().map(AsRawFd::as_raw_fd));
        fds.extend(&self.preserved);
        fds
    }

    /// As a sandbox that is joined gets them.
    fn for_sandbox(&self) -> Vec<RawFd> {
        let mut fds: Vec<RawFd> = self.layer.iter().map(AsRawFd::as_raw_fd).collect();
        fds.extend(&self.streams);
        fds.extend(&self.preserved);
        fds
    }

    /// Closes them: the Sentry has its copies.
    fn let_go(self) {
        // Ours by the caller's word.
        for fd in self.preserved {
            drop(HostFd::from_raw(fd));
        }
    }
}

/// Above the numbers of preserved descriptors that anyone uses.
const OUT_OF_THE_WAY: RawFd = 256;

/// Lets go of the standard streams: who reads their other ends must see the container's end.
pub fn silence() {
    if let Ok(null) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        for n in 0..3 {
            let _ = process::dup_onto(null.as_raw_fd(), n).map(HostFd::into_raw);
        }
    }
}
