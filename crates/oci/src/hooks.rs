//! Hooks: programs of the host that are run at moments of a container's life, with its state on
//! standard input.

use crate::spec::Hook;
use crate::state::{Record, Status};
use crate::{Error, Result, Tried, deadline, files};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs them in order; the first that fails is the failure of all.
pub fn run(name: &str, hooks: &[Hook], record: &Record, status: Status) -> Result<()> {
    for (n, h) in hooks.iter().enumerate() {
        one(h, record, status).map_err(|e| e.within(&format!("{name} hook #{n}")))?;
    }
    Ok(())
}

/// What a hook reads.
pub fn state(record: &Record, status: Status) -> Vec<u8> {
    let mut words = serde_json::json!({
        "ociVersion": record.oci_version,
        "id": record.id,
        "status": status,
        "bundle": record.bundle,
        "annotations": record.annotations,
    });
    if status != Status::Stopped {
        words["pid"] = record.pid.into();
    }
    words.to_string().into_bytes()
}

/// When a hook that begins now must have ended.
pub fn deadline(h: &Hook) -> Option<Instant> {
    // What no clock reaches is no limit.
    Instant::now().checked_add(Duration::from_secs(h.timeout?))
}

/// How it ended; `None` at the deadline.
fn end(child: &mut Child, deadline: Option<Instant>) -> std::io::Result<Option<ExitStatus>> {
    let flags = rustix::process::PidfdFlags::empty();
    let pidfd: OwnedFd =
        rustix::process::pidfd_open(rustix::process::Pid::from_child(child), flags)?;
    loop {
        if let Some(s) = child.try_wait()? {
            return Ok(Some(s));
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return Ok(None);
        }
        let mut fds = [libc::pollfd {
            fd: pidfd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        // Interrupted or not, it looks again.
        let _ = hostcall::file::poll(&mut fds, deadline::left(deadline));
    }
}

fn one(h: &Hook, record: &Record, status: Status) -> Result<()> {
    if !h.path.is_absolute() {
        return Err(Error::new(format!(
            "{} is not an absolute path",
            h.path.display()
        )));
    }
    let mut c = Command::new(&h.path);
    if let Some((name, args)) = h.args.split_first() {
        c.arg0(name).args(args);
    }
    c.env_clear();
    for e in &h.env {
        let (k, v) = e.split_once('=').unwrap_or((e, ""));
        c.env(k, v);
    }
    // Files: what it writes nobody need read while it runs, and nobody waits for it to read the
    // state.
    let input = files::in_memory(&state(record, status))?;
    let words = rustix::fs::memfd_create("hook", rustix::fs::MemfdFlags::CLOEXEC);
    let words = std::fs::File::from(words.tried("keep its words")?);
    c.stdin(input)
        .stdout(Stdio::null())
        .stderr(words.try_clone().tried("keep its words")?)
        .process_group(0);
    // The monitor, and `run`, block the signals that they pass on, and hold what `--preserve-fds`
    // gave.
    hostcall::start::begin_clean(&mut c);
    let deadline = deadline(h);
    let mut child = c.spawn().tried(&format!("run {}", h.path.display()))?;
    let ended = end(&mut child, deadline);
    let Ok(Some(ended)) = ended else {
        // With what it has started; its number is its group's until it is reaped.
        let group = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = child.kill();
        let _ = child.wait();
        ended.tried("wait for it")?;
        return Err(Error::new(format!(
            "{} did not end within {} s",
            h.path.display(),
            h.timeout.unwrap_or(0)
        )));
    };
    if ended.success() {
        return Ok(());
    }
    let mut text = vec![0; 1024];
    let n = words.read_at(&mut text, 0).unwrap_or(0);
    text.truncate(n);
    let how = match ended.signal() {
        Some(s) => format!("was ended by signal {s}"),
        None => format!("ended with status {}", ended.code().unwrap_or(-1)),
    };
    Err(Error::new(format!(
        "{} {how}: {}",
        h.path.display(),
        String::from_utf8_lossy(&text).trim()
    )))
}
