//! `exec`: one more program in a running container.
//!
//! It is made ready, which may take long, and then run, by one word of its client's: see
//! [`client`]. The client says it when nothing of its own can fail any more, and its caller is
//! still there.

use crate::client::{self, Connection, Reply, Request};
use crate::container::Container;
use crate::convert;
use crate::launch::{close, exit_code, silence};
use crate::spec::{self, Hook};
use crate::state::{Dir, Status};
use crate::{Error, Result, Runtime, Tried, files, hooks, monitor, terminal};
use config::{ExecSpec, Follows, ProcessSpec, Stdio};
use hostcall::start::{self as host, Side};
use hostcall::{HostFd, RawFd, process, sock, term};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

/// What is to run.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    pub id: String,
    pub process: spec::Process,
    pub detach: bool,
    pub pid_file: Option<PathBuf>,
    pub console_socket: Option<PathBuf>,
    pub preserve_fds: u32,
    /// Where there is no terminal.
    pub stdio: Stdio<RawFd>,
}

/// A program that was left to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detached {
    /// Of its monitor, a child of this process, which ends as the program ends.
    pub pid: i32,
    /// The program's inside.
    pub inside: u32,
}

/// The process that a container was created with: what an `exec` on the command line begins with.
pub fn base(rt: &Runtime, id: &str) -> Result<spec::Process> {
    let dir = Dir::open(&rt.root, id)?;
    match dir.load()? {
        Some(r) => Ok(r.process),
        None => Err(Error::NotFound(id.to_owned())),
    }
}

/// Runs it; gives its exit status, or 0 at once with `detach`. `begins` is called before a program
/// that is waited for runs: until then, a signal ends the wait for it.
pub fn exec(rt: &Runtime, e: &Exec, begins: impl FnOnce() -> Result<()>) -> Result<u8> {
    if e.detach {
        return exec_detached(rt, e, |_| Ok(())).map(|_| 0);
    }
    let (dir, process) = prepare(rt, e)?;
    let ready = make_ready(&dir, e, process)?;
    if let Some(f) = &e.pid_file {
        files::write_pid(f, std::process::id() as i32)?;
    }
    begins()?;
    ready.run().map(exit_code)
}

fn prepare(rt: &Runtime, e: &Exec) -> Result<(Dir, ProcessSpec)> {
    let dir = Dir::open(&rt.root, &e.id)?;
    let record = dir.load()?.ok_or_else(|| Error::NotFound(e.id.clone()))?;
    let c = Container { dir, record };
    match c.status() {
        Status::Running | Status::Created => {}
        s => {
            return Err(Error::new(format!(
                "cannot exec in a container that is {s}"
            )));
        }
    }
    if e.process.terminal && e.console_socket.is_none() && e.detach {
        return Err(Error::new(
            "a detached program with a terminal needs --console-socket",
        ));
    }
    let mut warnings = Vec::new();
    let process = convert::process(&e.process, &mut warnings)?;
    for w in &warnings {
        rt.log.warning(w);
    }
    Ok((c.dir, process))
}

/// The exec monitor's first word to its parent; the pid inside follows.
/// The parent's word: nothing can fail any more.
const RUN: &[u8] = b"run";

/// Runs it, and leaves it to its monitor. Where `begins` fails, or this process ends in it, it
/// never runs.
pub fn exec_detached(
    rt: &Runtime,
    e: &Exec,
    begins: impl FnOnce(Detached) -> Result<()>,
) -> Result<Detached> {
    let (dir, process) = prepare(rt, e)?;
    let (ours, theirs) = sock::seqpacket_pair().tried("make a channel")?;
    match host::clone_process(0).tried("start the program's monitor")? {
        Side::Parent { pid, .. } => {
            drop(theirs);
            let lost = || Err(Error::new("the program's monitor ended unexpectedly"));
            let inside = client::hear_first(ours.raw()).unwrap_or_else(lost)?;
            if let Some(f) = &e.pid_file {
                files::write_pid(f, pid)?;
            }
            let program = Detached { pid, inside };
            let begun = begins(program).and_then(|()| {
                sock::send(ours.raw(), RUN, &[])
                    .map(|_| program)
                    .tried("start the program")
            });
            if let (Err(_), Some(f)) = (&begun, &e.pid_file) {
                let _ = std::fs::remove_file(f);
            }
            begun
        }
        Side::Child => {
            drop(ours);
            let _ = host::setsid();
            let mut told = false;
            let ended = make_ready(&dir, e, process).and_then(|r| {
                silence();
                close(e.stdio);
                // The command may have gone meanwhile.
                if !client::say_first(theirs.raw(), &Ok(r.inside)) {
                    return Err(Error::new("nobody waits for it any more"));
                }
                told = true;
                match sock::recv(theirs.raw(), &mut [0; 8]) {
                    Ok((n, _)) if n > 0 => r.run(),
                    _ => Err(Error::new("it was given up")),
                }
            });
            let code = match ended {
                Ok(status) => exit_code(status),
                // It is known, and may be waited for: what does not come to run, or has no end, was
                // killed.
                Err(_) if told => 128 + libc::SIGKILL as u8,
                Err(f) => {
                    client::say_first(theirs.raw(), &Err(f));
                    sandbox::EXIT_NOT_STARTED
                }
            };
            process::exit_group(i32::from(code))
        }
    }
}

/// A program that is ready, and this process is there for it. Dropped, it never runs.
struct Ready {
    connection: Connection,
    /// Its pid inside.
    inside: u32,
    signals: HostFd,
    /// Whose size is watched.
    terminal: Option<OwnedFd>,
    own_terminal: bool,
}

fn make_ready(dir: &Dir, e: &Exec, process: ProcessSpec) -> Result<Ready> {
    let signals = monitor::signals()?;
    let size = convert::window(&e.process);
    let wanted = e.console_socket.as_ref().filter(|_| e.process.terminal);
    let slave = wanted.map(|s| terminal::hand_over(s, size)).transpose()?;
    if let (Some(s), true) = (&slave, e.detach) {
        terminal::control(s)?;
    }
    let own_terminal = e.process.terminal && slave.is_none();
    let stdio = match &slave {
        Some(s) => terminal::stdio(s.as_raw_fd(), size),
        None if own_terminal => terminal::stdio(0, term::window(0).unwrap_or(term::DEFAULT_WINDOW)),
        None => {
            let open = |fd: &RawFd| hostcall::file::fstat(*fd).is_ok();
            e.stdio.filter_map(|fd| Some(fd).filter(open))
        }
    };
    let spec = ExecSpec {
        process,
        stdio: stdio.follows(),
        preserved: e.preserve_fds,
    };
    let body = files::in_memory(&serde_json::to_vec(&spec).tried("ask for the program")?)?;
    let mut given = vec![body.as_raw_fd()];
    given.extend(stdio.descriptors());
    given.extend(3..3 + e.preserve_fds as RawFd);
    let connection = Connection::open(dir)?;
    let interrupts = monitor::interrupts()?;
    let inside = connection.exec(&given, None, Some(&interrupts))?;
    Ok(Ready {
        connection,
        inside,
        signals,
        terminal: slave,
        own_terminal,
    })
}

impl Ready {
    /// Runs it, and passes signals and window sizes on until it ends; gives its wait status.
    fn run(self) -> Result<i32> {
        self.connection.begin()?;
        attend(
            &self.connection,
            &self.signals,
            &|| match &self.terminal {
                Some(t) => terminal::size(t),
                None if self.own_terminal => term::window(0).ok(),
                None => None,
            },
            &mut |c| match c.receive() {
                Ok(Reply::Exited(status)) => Ok(Some(status)),
                Ok(Reply::Error(e)) => Err(e),
                Ok(_) => Ok(None),
                // The container has ended, and takes its programs with it as a pid namespace does.
                Err(_) => Ok(Some(libc::SIGKILL)),
            },
        )
    }
}

/// Passes signals and window sizes on; `ready` is called when the monitor says something.
pub fn attend(
    c: &Connection,
    signals: &HostFd,
    size: &dyn Fn() -> Option<(u16, u16)>,
    ready: &mut dyn FnMut(&Connection) -> Result<Option<i32>>,
) -> Result<i32> {
    loop {
        let mut fds = [c.as_raw_fd(), signals.raw()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        if hostcall::file::poll_at_length(&mut fds, -1).is_err() {
            continue;
        }
        if fds[1].revents != 0 {
            while let Ok(s) = host::next_signal(signals) {
                let r = match (s, size()) {
                    (libc::SIGWINCH, Some((rows, cols))) => Request::Window { rows, cols },
                    (libc::SIGWINCH, None) => continue,
                    (signal, _) => Request::Signal {
                        signal,
                        all: false,
                        process: 0,
                    },
                };
                let _ = c.send(&r, &[]);
            }
        }
        if fds[0].revents != 0
            && let Some(status) = ready(c)?
        {
            return Ok(status);
        }
    }
}

/// Runs a startContainer hook: inside, with the state on standard input; but not longer than until
/// one of `signals` comes.
pub fn hook(container: &Container, h: &Hook, signals: Option<&HostFd>) -> Result<()> {
    let record = &container.record;
    let path = h.path.display().to_string();
    let args = if h.args.is_empty() {
        vec![path.clone()]
    } else {
        h.args.clone()
    };
    let p = spec::Process {
        // The program is the path; its name for itself may be another.
        args: [vec![path.clone()], args[1..].to_vec()].concat(),
        env: h.env.clone(),
        cwd: "/".into(),
        ..record.process.clone()
    };
    let mut process = convert::process(&p, &mut Vec::new())?;
    process.uid = 0;
    process.gid = 0;
    process.caps = None;
    let spec = ExecSpec {
        process,
        stdio: Stdio::Inherited([Some(Follows::Next), None, None]),
        preserved: 0,
    };
    let body = files::in_memory(&serde_json::to_vec(&spec).tried("ask for the hook")?)?;
    let input = files::in_memory(&hooks::state(record, Status::Created))?;
    let deadline = hooks::deadline(h);
    let c = container.connect()?;
    let late = || {
        Error::new(format!(
            "{path} did not end within {} s",
            h.timeout.unwrap_or(0)
        ))
    };
    let is_late = || deadline.is_some_and(|d| Instant::now() >= d);
    let made = c.exec(&[body.as_raw_fd(), input.as_raw_fd()], deadline, signals);
    made.map_err(|e| if is_late() { late() } else { e })?;
    c.begin()?;
    loop {
        // Closing the connection ends it.
        if !c.answers_until(deadline, signals)? {
            return Err(late());
        }
        match c.receive()? {
            Reply::Exited(status) => match exit_code(status) {
                0 => return Ok(()),
                code => return Err(Error::new(format!("{path} ended with status {code}"))),
            },
            Reply::Error(e) => return Err(e),
            _ => {}
        }
    }
}
