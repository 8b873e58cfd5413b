//! The commands on a container that exists: start, state, kill, ps, list, pause, resume, events,
//! update, tar, wait; and `run`.

use crate::cgroup::Cgroups;
use crate::client::{Reply, Request};
use crate::container::{Container, Info};
use crate::create::{Create, start_monitor};
use crate::delete::{Force, delete};
use crate::launch::{OwnTerminal, exit_code};
use crate::state::{self, Dir, KILLS_FOR_MEMORY, Owner, Status};
use crate::{Error, Result, Runtime, Tried, convert, exec, files, hooks, leaving, network, spec};
use config::{Census, Limits, MemoryChange, MemoryMap, MemoryReport};
use egress::Rules;
use hostcall::{HostFd, process};
use net::report::Report;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Bytes of the pipe that an archive comes through, where an ordinary user may have as many.
const ARCHIVE_PIPE: usize = 1 << 20;

/// An existing container.
fn open(rt: &Runtime, id: &str) -> Result<Container> {
    Container::open(&rt.root, id)
}

/// `start`.
pub fn start(rt: &Runtime, id: &str) -> Result<()> {
    start_attended(rt, id, None, || Ok(()))
}

/// The same; one of `signals` ends the wait for startContainer hooks. `begins` is called before the
/// program runs.
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
            return Err(Error::new("cannot start a container that has stopped"));
        }
        s => {
            return Err(Error::new(format!(
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
    network::start(rt, &c)?;
    // It runs: hooks that take long keep nobody from it.
    drop(lock);
    let poststart = &c.record.poststart;
    if let Err(e) = hooks::run("poststart", poststart, &c.record, Status::Running) {
        rt.log.warning(&e.to_string());
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

/// What a signal goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The first program.
    First,
    /// All processes of the container.
    All,
}

/// `kill`.
///
/// # Errors
///
/// There is no such container, or it does not run; with [`Scope::All`] the latter is none.
pub fn kill(rt: &Runtime, id: &str, signal: i32, scope: Scope) -> Result<()> {
    let all = scope == Scope::All;
    let c = open(rt, id)?;
    if c.status() == Status::Stopped {
        // As with runc: with --all there may simply be nobody left.
        return if all { Ok(()) } else { Err(Error::NotRunning) };
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

/// The file in which the processes of a container are counted that its own limit of memory has
/// ended: a byte for each of the first thousands.
pub fn kills_for_memory(rt: &Runtime, id: &str) -> Result<PathBuf> {
    Dir::open(&rt.root, id)?;
    Ok(rt.root.join(id).join(KILLS_FOR_MEMORY))
}

fn simple(rt: &Runtime, id: &str, r: &Request) -> Result<()> {
    let c = open(rt, id)?;
    if c.status() == Status::Stopped {
        return Err(Error::NotRunning);
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
    let census = asked(&c, &Request::Census, "the census")?;
    Ok(Ps {
        monitor: c.record.pid,
        census,
    })
}

/// `network show`.
pub fn network_report(rt: &Runtime, id: &str) -> Result<Report> {
    let what = "what the sandbox tells of its network";
    asked(&open(rt, id)?, &Request::Network, what)
}

/// `network set`: from now on these rules say what may leave by a container's devices, and no
/// others.
pub fn set_rules(rt: &Runtime, id: &str, mut rules: Rules) -> Result<()> {
    let c = open(rt, id)?;
    if c.record.sandbox.is_some() {
        return Err(Error::new(
            "the network is that of the pod's first container: change the rules there",
        ));
    }
    if rules.resolvers.is_empty() {
        rules.resolvers = c.record.leaving.rules.resolvers.clone();
    }
    leaving::complete(&mut rules)?;
    say(&c, &Request::Rules, &rules, "the rules")
}

/// `network refresh`: a running container follows what has become of its network namespace.
pub fn refresh_network(rt: &Runtime, id: &str) -> Result<()> {
    let c = open(rt, id)?;
    let _lock = c.dir.lock()?;
    if c.record.sandbox.is_some() {
        return Err(Error::new(
            "the network is that of the pod's first container: refresh that",
        ));
    }
    if c.record.devices == Owner::Host {
        return Err(Error::new(
            "the container has no devices of a network namespace (--net=none, --net=host)",
        ));
    }
    match c.status() {
        Status::Running | Status::Paused => network::refresh(rt, &c),
        s => Err(Error::new(format!(
            "cannot refresh the network of a container in the {s} state"
        ))),
    }
}

/// `memory show`: who has a container's memory.
pub fn memory_report(rt: &Runtime, id: &str) -> Result<MemoryReport> {
    let what = "what the sandbox tells of its memory";
    asked(&open(rt, id)?, &Request::Memory, what)
}

/// `memory map`: what lies where in a container's memory.
pub fn memory_map(rt: &Runtime, id: &str) -> Result<MemoryMap> {
    let what = "what the sandbox tells of its memory";
    asked(&open(rt, id)?, &Request::Map, what)
}

/// `memory set`: from now on a process may have so much of its container's memory.
pub fn change_memory(rt: &Runtime, id: &str, change: &MemoryChange) -> Result<()> {
    say(&open(rt, id)?, &Request::Bounds, change, "the limits")
}

/// Asks for something, with this as the request's body.
fn say(c: &Container, r: &Request, body: &impl serde::Serialize, what: &str) -> Result<()> {
    let text = serde_json::to_vec(body).tried(&format!("describe {what}"))?;
    let body = files::in_memory(&text)?;
    c.ask(r, &[body.as_raw_fd()]).map(drop)
}

/// What the Sentry writes where it is asked for this. It is bounded, and only to be shown.
fn asked<T: serde::de::DeserializeOwned>(c: &Container, r: &Request, what: &str) -> Result<T> {
    const MOST: u64 = 16 << 20;
    let file = files::in_memory(&[])?;
    c.connect()?.ask(r, &[file.as_raw_fd()])?;
    let mut f = std::fs::File::from(file);
    std::io::Seek::rewind(&mut f).tried("read the answer")?;
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(f, MOST), &mut text)
        .tried("read the answer")?;
    serde_json::from_slice(&text).tried(&format!("understand {what}"))
}

/// `tar`: what the container changed in its root, as a layer of an image. Gives how many changes
/// have no place in one.
///
/// The Sentry gets a pipe, and nothing that it could reach behind: what it writes is only bytes to
/// copy. It ends with its reader, too.
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
    let network = network_report(rt, id)?;
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
            "spinning": census.spinning,
        },
        "network": network.policy.map(|p| p.counts),
    }))
}

/// `update`: sets limits of the running container.
pub fn update(rt: &Runtime, id: &str, r: &spec::Resources) -> Result<Vec<String>> {
    let c = open(rt, id)?;
    let _lock = c.dir.lock()?;
    if c.status() == Status::Stopped {
        return Err(Error::NotRunning);
    }
    let mut warnings = Vec::new();
    c.record.cgroups.apply(r, &mut warnings)?;
    let limits = convert::limits(r);
    if limits != Limits::default() {
        c.ask(&Request::Limits(Box::new(limits)), &[])?;
    }
    Ok(warnings)
}

/// `wait`: the exit status.
pub fn wait(rt: &Runtime, id: &str) -> Result<u8> {
    let c = open(rt, id)?.connect()?;
    c.send(&Request::Wait, &[])?;
    match c.receive()? {
        Reply::Exited(status) => Ok(exit_code(status)),
        other => Err(Error::new(format!(
            "the container's monitor said {other:?}"
        ))),
    }
}

/// What `run` does with a container that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    Delete,
    Keep,
}

/// `run` in the foreground: gives the exit status. `begins` is called before the program runs:
/// until then, a signal ends the wait for hooks. `size` tells the caller's window, where the
/// program has a terminal joined to it.
pub fn run(
    rt: &Runtime,
    c: &Create,
    after: After,
    begins: impl FnOnce() -> Result<()>,
    size: &dyn Fn() -> Option<(u16, u16)>,
) -> Result<u8> {
    let terminal = match c.console_socket {
        Some(_) => OwnTerminal::Unused,
        None => OwnTerminal::Used,
    };
    let created = start_monitor(rt, c, terminal)?;
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
            let _lock = container.dir.lock()?;
            // Its monitor says whether it can be started.
            begins()?;
            network::start(rt, &container)?;
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
        && let Err(e) = delete(rt, &c.id, Force::Yes)
    {
        // What went wrong first is the answer.
        rt.log.warning(&format!("cannot delete the container: {e}"));
    }
    let status = process::wait(created.pid, 0).map_or(0, |(_, s)| s);
    if after == After::Delete && ended.is_ok() {
        delete(rt, &c.id, Force::Yes)?;
    }
    match ended? {
        // The connection broke before it told: the monitor's own status says.
        -1 => Ok(exit_code(status)),
        s => Ok(exit_code(s)),
    }
}
