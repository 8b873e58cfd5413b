//! Hooks: programs of the host that are run at moments of a container's life, with its state on standard
//! input.

use crate::spec::Hook;
use crate::state::{Record, Status};
use crate::{Failure, Result, Tried};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs them in order; the first that fails is the failure of all.
pub fn run(name: &str, hooks: &[Hook], record: &Record, status: Status) -> Result<()> {
    for (n, h) in hooks.iter().enumerate() {
        one(h, record, status).map_err(|e| Failure(format!("{name} hook #{n}: {e}")))?;
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

fn one(h: &Hook, record: &Record, status: Status) -> Result<()> {
    if !h.path.is_absolute() {
        return Err(Failure(format!(
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
    // A file: nobody need read it while the hook runs.
    let words = rustix::fs::memfd_create("hook", rustix::fs::MemfdFlags::CLOEXEC);
    let words = std::fs::File::from(words.tried("keep its words")?);
    c.stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(words.try_clone().tried("keep its words")?)
        .process_group(0);
    let mut child = c.spawn().tried(&format!("run {}", h.path.display()))?;
    if let Some(mut i) = child.stdin.take() {
        // It need not read it.
        let _ = i.write_all(&state(record, status));
    }
    let deadline = h.timeout.map(|s| Instant::now() + Duration::from_secs(s));
    let ended = loop {
        match child.try_wait().tried("wait for it")? {
            Some(s) => break s,
            None if deadline.is_some_and(|d| Instant::now() >= d) => {
                // With what it has started; its number is its group's until it is reaped.
                if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
                    let _ =
                        rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure(format!(
                    "{} did not end within {} s",
                    h.path.display(),
                    h.timeout.unwrap_or(0)
                )));
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
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
    Err(Failure(format!(
        "{} {how}: {}",
        h.path.display(),
        String::from_utf8_lossy(&text).trim()
    )))
}
