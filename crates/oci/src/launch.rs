//! The monitor's beginning: namespaces, hooks, the sandbox.

use crate::cgroup::Begun;
use crate::convert::{Converted, Network};
use crate::monitor::{self, Monitor};
use crate::reach::{self, Reached};
use crate::spec::Hooks;
use crate::start::{self, Begins, Member, Place, SentryFds, Start};
use crate::state::{Dir, KILLS_FOR_MEMORY, Record, Status};
use crate::{Error, Log, Result, Runtime, Tried, client, hooks, terminal};
use config::Stdio;
use hostcall::time::Laps;
use hostcall::{HostFd, RawFd, process, start as host, term};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandbox::{EXIT_KILLED, Ending, Outside, Running};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

/// What a monitor begins with.
pub struct Beginning<'a> {
    pub runtime: &'a Runtime,
    pub dir: &'a Dir,
    pub record: &'a Record,
    pub bundle: Converted,
    pub hooks: Hooks,
    pub console_socket: Option<PathBuf>,
    pub terminal: OwnTerminal,
    pub preserve_fds: u32,
    pub begun: Begun,
    /// Where this process is since its beginning, if [`network_comes_later`].
    pub away: Option<sandbox::Away>,
    pub stdio: Stdio<RawFd>,
}

/// Whether a program is joined to the caller's own terminal, which is in raw mode then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnTerminal {
    Used,
    Unused,
}

/// Runs hooks and sandbox until the container ends; gives the exit status for this process.
/// `on_ready` is called when the container is created.
///
/// # Errors
///
/// The container never was.
pub fn run(begin: Beginning<'_>, on_ready: Box<dyn FnOnce()>) -> Result<u8> {
    let mut laps = begin
        .runtime
        .log
        .debug
        .then(Laps::start)
        .unwrap_or_default();
    let signals = monitor::signals()?;
    begin.record.cgroups.enter(begin.begun)?;
    let network = begin.bundle.network.clone();
    let later = network_comes_later(&begin.bundle, &begin.hooks);
    if !later {
        enter_network(&network)?;
    }
    laps.lap("cgroups and network");
    let listener = listen(begin.dir)?;
    let kills = begin.dir.new_file(KILLS_FOR_MEMORY)?;
    run_hooks(&begin)?;
    laps.lap("hooks");
    let slave = own_slave(&begin)?;
    let streams = Streams::take(&begin, slave.as_ref());
    let title = begin.bundle.plan.init.argv.join(&0);
    let runtime = begin.runtime;
    let sandbox = begin.bundle.pod.as_ref().map(|p| p.sandbox.clone());
    let running = start(begin, streams)?;
    laps.lap("processes");
    if later {
        enter_network(&network)?;
        laps.lap("network");
    }
    let mut log = runtime.log.clone();
    log.keep_open();
    // What is ended where it keeps a container that has left.
    let reached = match &sandbox {
        Some(s) => reach::reach(s.pid, s.pid_start)?,
        None => None,
    };
    let on_ready = told_in_log(laps, log.clone(), on_ready);
    let mut monitor = Monitor::new(listener, signals, slave, on_ready, kills, log.clone());
    // For `docker top`, and other readers of the host's processes: this is the container's first
    // program there.
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
fn run_hooks(b: &Beginning<'_>) -> Result<()> {
    let h = &b.hooks;
    for (name, hooks) in [
        ("prestart", &h.prestart),
        ("createRuntime", &h.create_runtime),
        ("createContainer", &h.create_container),
    ] {
        hooks::run(name, hooks, b.record, Status::Creating)?;
    }
    Ok(())
}

/// The terminal of a container with a console socket, its master handed over; the controlling one
/// of this process.
fn own_slave(b: &Beginning<'_>) -> Result<Option<OwnedFd>> {
    let (Some(socket), Some(size)) = (&b.console_socket, b.bundle.terminal) else {
        return Ok(None);
    };
    let slave = terminal::hand_over(socket, size)?;
    terminal::control(&slave)?;
    Ok(Some(slave))
}

/// Starts the container: in a sandbox of its own, or in the pod's.
fn start(b: Beginning<'_>, streams: Streams) -> Result<Running> {
    let runtime = b.runtime;
    let logs = runtime.kernel.strace.is_some() || runtime.log.debug;
    let given = SentryFds {
        stdio: streams.stdio,
        log: log_file(&runtime.log, logs),
        layer: b.bundle.layer_file()?,
        swap: b.bundle.swap_file()?,
        preserved: (3..3 + b.preserve_fds as RawFd).collect(),
    };
    let place = match b.bundle.pod {
        Some(pod) => Place::Pod(Member {
            first: Dir::open(&runtime.root, &pod.sandbox.id)?,
            pod,
            own: b.dir,
        }),
        None => Place::Own { away: b.away },
    };
    let running = start::start(Start {
        plan: b.bundle.plan,
        kernel: &runtime.kernel,
        given: &given,
        begins: Begins::WhenTold,
        place,
    })?;
    // Ours by the caller's word; the Sentry has its copies.
    for fd in given.preserved {
        drop(HostFd::from_raw(fd));
    }
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
        log.error(&e.to_string());
    }
}

/// Tells clients and the log how the container ended; gives the exit status for this process.
fn exit_status(monitor: &Monitor, ending: Ending, log: &Log) -> Result<u8> {
    if let Some(s) = monitor.ended_by {
        if monitor.phase == Status::Creating {
            return Err(Error::new(format!(
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
        Ending::Broken { text, .. } if monitor.phase == Status::Creating => Err(Error::new(text)),
        Ending::Broken { .. } if monitor.overdue => {
            let text = "the Sentry did not obey SIGKILL: the container was ended";
            log.error(text);
            monitor.tell_end(libc::SIGKILL);
            Ok(exit_code(libc::SIGKILL))
        }
        Ending::Broken { text, exit } => {
            log.error(&text);
            // Killed from outside, or because the memory that it may have ran out: as a program
            // would be.
            let code = if exit == EXIT_KILLED { 128 + 9 } else { exit };
            monitor.tell_end(i32::from(code) << 8);
            Ok(code)
        }
    }
}

/// A new namespace takes long to make: where nobody needs it before, it is made while the sandbox
/// starts.
pub fn network_comes_later(bundle: &Converted, hooks: &Hooks) -> bool {
    bundle.network == Network::New
        && matches!(bundle.plan.network, Outside::Nowhere)
        && bundle.pod.is_none()
        && hooks.prestart.is_empty()
        && hooks.create_runtime.is_empty()
        && hooks.create_container.is_empty()
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

/// The program's standard streams, out of the way of what it gets as 3 and up.
struct Streams {
    stdio: Stdio<RawFd>,
    /// Those of them that are this process's own copies.
    _copies: Vec<HostFd>,
}

impl Streams {
    /// Takes them over: the caller's are let go of.
    fn take(b: &Beginning<'_>, slave: Option<&OwnedFd>) -> Streams {
        let mut copies = Vec::new();
        let copy = |fd| {
            let copy = host::dup_above(fd, OUT_OF_THE_WAY).ok()?;
            let number = copy.raw();
            copies.push(copy);
            Some(number)
        };
        let stdio = match (slave, b.bundle.terminal, b.terminal) {
            (Some(s), Some(size), _) => terminal::stdio(s.as_raw_fd(), size),
            (_, _, OwnTerminal::Used) => {
                let size = term::window(0).unwrap_or(term::DEFAULT_WINDOW);
                terminal::stdio(0, size).filter_map(copy)
            }
            _ => b.stdio.filter_map(copy),
        };
        silence();
        close(b.stdio);
        Streams {
            stdio,
            _copies: copies,
        }
    }
}

/// Closes streams that were given to this process: readers of their other ends must see the
/// program's end. Its own three stay open for ever: see [`silence`].
pub fn close(stdio: Stdio<RawFd>) {
    let mut fds: Vec<RawFd> = stdio.descriptors().filter(|fd| *fd > 2).collect();
    // One descriptor may be two streams.
    fds.sort_unstable();
    fds.dedup();
    for fd in fds {
        drop(HostFd::from_raw(fd));
    }
}

/// Above the numbers of preserved descriptors that anyone uses.
const OUT_OF_THE_WAY: RawFd = 256;

/// Lets go of the standard streams: readers of their other ends must see the container's end.
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
