//! What must not be done in the shim itself, a process of many threads: starting monitors, which
//! are copies of their starter, and running hooks, which are waited for. It runs this program anew
//! for each such order.
//!
//! The helper's standard input is a socket: one line with the order, one line with the answer; then
//! it stays until the socket closes. Meanwhile the monitor that it started is its child, so that
//! the shim can say where the end is told before it becomes the shim's. A monitor lets go of the
//! socket as of all standard streams.
//!
//! A program of `exec` runs only when the shim, which knows its monitor by the answer, says so with
//! one more byte: a helper that is killed before has started nothing that nobody knows of. Its own
//! last byte says that it has passed that on: the thread that started it waits for that, with whose
//! end it is killed.
//!
//! Its standard output is the FIFO that the program is to read, as the shim has opened it: opened
//! anew without blocking, after the client has gone, it would never report its end to poll(2) (the
//! kernel's `fifo_open`: "can't check for EPOLLHUP accurately").

use crate::args;
use crate::reaper::Reaper;
use crate::settings::Settings;
use oci::{Create, Exec};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;

/// The longest answer: a sentence.
const ANSWER_MAX: u64 = 64 << 10;
/// The longest order: a process with its arguments and environment.
const ORDER_MAX: u64 = 16 << 20;

/// What to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Work {
    Create {
        id: String,
        bundle: PathBuf,
        program: Program,
    },
    Start {
        id: String,
    },
    Exec {
        id: String,
        process: Box<oci::spec::Process>,
        program: Program,
    },
    /// One of this bundle that does not run; or whatever there is of it, by `force`.
    Delete {
        id: String,
        bundle: PathBuf,
        force: bool,
    },
}

/// Where a program's streams are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Standard input, output, error.
    pub files: [PathBuf; 3],
    /// Standard input is the helper's standard output.
    pub input_given: bool,
    /// The socket that gets a terminal instead.
    pub console: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    settings: Settings,
    work: Work,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// The monitor's.
    pub pid: i32,
    /// The program's own.
    pub inside: u32,
}

type Answer = Result<Done, oci::Error>;

/// Why it was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failed {
    /// The helper says so; it has left nothing half done.
    #[error("{0}")]
    Refused(oci::Error),
    /// There is no answer: it may have been done, or a part of it.
    #[error("{0}")]
    Lost(String),
}

impl Failed {
    /// By the shim itself, beforehand.
    pub fn nothing_done(text: String) -> Failed {
        Failed::Refused(oci::Error::new(text))
    }
}

/// Has a helper do it. `input` is the FIFO of a program that reads one. `claim` is to have the new
/// monitor watched: it has not been forgotten by then, whatever became of it and of the helper.
pub fn call(
    reaper: &Reaper,
    settings: &Settings,
    work: Work,
    input: Option<OwnedFd>,
    claim: impl FnOnce(Done),
) -> Result<Done, Failed> {
    let text = |e: std::io::Error| format!("could not run a helper: {e}");
    let before = |e| Failed::nothing_done(text(e));
    let lost = |e| Failed::Lost(text(e));
    let is_exec = matches!(work, Work::Exec { .. });
    let order = Order {
        settings: settings.clone(),
        work,
    };
    let mut order = serde_json::to_vec(&order).map_err(|e| Failed::nothing_done(e.to_string()))?;
    order.push(b'\n');
    let (ours, theirs) = UnixStream::pair().map_err(before)?;
    let _call = reaper.call();
    let child = reaper.spawn(
        args::anew()
            .args(["-socket", &std::process::id().to_string(), "helper"])
            .stdin(OwnedFd::from(theirs))
            .stdout(input.map_or_else(Stdio::null, Stdio::from)),
    );
    let child = child.map_err(before)?;
    (&ours).write_all(&order).map_err(lost)?;
    let mut line = String::new();
    let mut said = BufReader::new((&ours).take(ANSWER_MAX));
    said.read_line(&mut line).map_err(lost)?;
    // Never waited for: the reaper does.
    drop(child);
    let answer: Answer = serde_json::from_str(&line)
        .map_err(|_| Failed::Lost("the helper ended unexpectedly".into()))?;
    let done = answer.map_err(Failed::Refused)?;
    claim(done);
    if is_exec {
        // Where the helper is gone, the program never runs, and its monitor's end is told.
        let _ = (&ours)
            .write_all(GO)
            .and_then(|()| said.read_line(&mut line));
    }
    Ok(done)
}

/// The helper's life; `parent` is the shim's pid.
pub fn run(parent: &str) -> Result<(), String> {
    // A monitor, which is a copy, would keep whatever the shim's starter left open.
    hostcall::process::close_from(3).map_err(|e| e.to_string())?;
    // A shim that is killed takes it along; what it may have left, `delete` finds.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| e.to_string())?;
    let now = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get());
    if now.to_string() != parent {
        return Err("this is for the shim itself".into());
    }
    let mut line = Vec::new();
    // Not buffered beyond the line: the socket is asked again at the end.
    BufReader::new(std::io::stdin().lock().take(ORDER_MAX))
        .read_until(b'\n', &mut line)
        .map_err(|e| e.to_string())?;
    let order: Order = serde_json::from_slice(&line).map_err(|e| e.to_string())?;
    let mut told = false;
    let answer = work(&order, &mut |done| {
        told = true;
        tell(&Ok(done))?;
        match heard() {
            1.. => Ok(()),
            _ => Err("the shim is gone".into()),
        }
    });
    if told {
        say(GO)?;
    } else {
        tell(&answer)?;
    }
    while heard() > 0 {}
    Ok(())
}

/// The shim's word: the program may run. The helper's: it does, or never will.
const GO: &[u8] = b"\n";

fn tell(answer: &Answer) -> Result<(), String> {
    let text = serde_json::to_string(answer).map_err(|e| e.to_string())? + "\n";
    say(text.as_bytes())
}

fn say(bytes: &[u8]) -> Result<(), String> {
    let written = rustix::io::write(rustix::stdio::stdin(), bytes);
    written.map(drop).map_err(|e| e.to_string())
}

/// Bytes that the shim has said; 0 at the end.
fn heard() -> usize {
    let mut byte = [0];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
            Err(rustix::io::Errno::INTR) => {}
            r => return r.unwrap_or(0),
        }
    }
}

/// `begins` is called before a program of `exec` runs, with the answer; where it fails, the program
/// never does.
fn work(o: &Order, begins: &mut dyn FnMut(Done) -> Result<(), String>) -> Answer {
    let rt = o.settings.runtime().map_err(oci::Error::new)?;
    match &o.work {
        Work::Create {
            id,
            bundle,
            program,
        } => {
            let c = oci::create(
                &rt,
                &Create {
                    id: id.clone(),
                    bundle: bundle.clone(),
                    console_socket: program.console.clone(),
                    stdio: streams(program).map_err(oci::Error::new)?,
                    ..Create::default()
                },
            )?;
            c.warnings.iter().for_each(|w| rt.log.warning(w));
            Ok(Done {
                pid: c.pid,
                inside: 1,
            })
        }
        Work::Start { id } => oci::start(&rt, id).map(|()| Done::default()),
        Work::Exec {
            id,
            process,
            program,
        } => {
            let done = |d: oci::Detached| Done {
                pid: d.pid,
                inside: d.inside,
            };
            let d = oci::exec_detached(
                &rt,
                &Exec {
                    id: id.clone(),
                    process: (**process).clone(),
                    detach: true,
                    console_socket: program.console.clone(),
                    stdio: streams(program).map_err(oci::Error::new)?,
                    ..Exec::default()
                },
                |d| begins(done(d)).map_err(oci::Error::new),
            )?;
            Ok(done(d))
        }
        Work::Delete { id, bundle, force } => {
            oci::delete_of(&rt, id, (*force).into(), Some(bundle)).map(|()| Done::default())
        }
    }
}

/// Opens a program's streams. The shim holds the other ends of FIFOs: nothing blocks.
fn streams(p: &Program) -> Result<config::Stdio<i32>, String> {
    if p.console.is_some() {
        return Ok(config::Stdio::default());
    }
    // The program is to see a plain stream.
    let plain = |fd: OwnedFd| {
        let flags = rustix::fs::fcntl_getfl(&fd)? - OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&fd, flags)?;
        Ok(Some(fd.into_raw_fd()))
    };
    let open = |n: usize| {
        let path = &p.files[n];
        let null = path.as_os_str().is_empty();
        let way = match n {
            // A client may not be there yet.
            0 => OFlags::RDONLY | OFlags::NONBLOCK,
            // A log file is continued. (For a FIFO the flag means nothing.)
            _ if !null => OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
            _ => OFlags::WRONLY,
        };
        let path = if null {
            "/dev/null".as_ref()
        } else {
            path.as_path()
        };
        let flags = way | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))
            .and_then(plain)
            .map_err(|e| format!("could not open {}: {e}", path.display()))
    };
    let input = if p.input_given {
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)
            .and_then(plain)
            .map_err(|e| format!("could not take over standard input: {e}"))?
    } else {
        open(0)?
    };
    Ok(config::Stdio::Inherited([input, open(1)?, open(2)?]))
}
