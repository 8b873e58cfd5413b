//! Running commands: with a time limit, and ended when the run is to stop.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::Result;

/// What is read of a command's output, about; more is passed over.
const MOST_OUTPUT: usize = 1 << 20;

/// Set once the run is to end early.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Set by SIGINT, SIGTERM and SIGHUP.
    pub fn on_signals() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for s in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            signal_hook::flag::register(s, flag.clone()).map_err(|e| format!("signals: {e}"))?;
        }
        Ok(Stop(flag))
    }

    /// Set when standard input ends.
    pub fn at_end_of_input() -> Stop {
        let flag = Arc::new(AtomicBool::new(false));
        let set = flag.clone();
        std::thread::spawn(move || {
            let mut byte = [0];
            while std::io::stdin().read(&mut byte).is_ok_and(|n| n > 0) {}
            set.store(true, Ordering::Relaxed);
        });
        Stop(flag)
    }

    /// For what is done in any case.
    pub fn never() -> Stop {
        Stop(Arc::new(AtomicBool::new(false)))
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a command ended.
pub struct Output {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    /// How much of the output had come, and when: seconds of CLOCK_MONOTONIC.
    came: Vec<(usize, f64)>,
}

impl Output {
    /// The output, or why there is none: its last words.
    pub fn ok(self, what: &str) -> Result<String> {
        if self.status.success() {
            Ok(self.out)
        } else {
            Err(self.words(what))
        }
    }

    /// When the first `bytes` of the output had come.
    pub fn told_at(&self, bytes: usize) -> Option<f64> {
        let found = self.came.iter().find(|(n, _)| *n >= bytes);
        found.map(|&(_, when)| when)
    }

    pub fn words(&self, what: &str) -> String {
        let all = if self.err.trim().is_empty() {
            &self.out
        } else {
            &self.err
        };
        let last = all
            .lines()
            .rev()
            .find(|l| !l.trim().is_empty())
            .unwrap_or("no message");
        let last: String = last.trim().chars().take(200).collect();
        format!("{what} ended with {}: {last}", self.status)
    }
}

/// A child that leads a process group of its own, all of which is killed when this is dropped.
pub struct Group(pub Child);

impl Group {
    pub fn start(command: &mut Command) -> Result<Group> {
        let name = command.get_program().to_string_lossy().into_owned();
        command
            .process_group(0)
            .spawn()
            .map(Group)
            .map_err(|e| format!("{name}: {e}"))
    }

    fn kill(&mut self) {
        kill_group(self.0.id());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let _ = self.0.wait();
    }
}

fn kill_group(leader: u32) {
    let pid = i32::try_from(leader)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

/// Runs a command to its end, or at most for `limit`.
pub fn run(command: &mut Command, limit: Duration, stop: &Stop) -> Result<Output> {
    if stop.is_set() {
        return Err("interrupted".to_owned());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let mut group = Group::start(command)?;
    let out = reader(group.0.stdout.take());
    let err = reader(group.0.stderr.take());
    let (done, ended) = channel::<()>();
    let (leader, watch) = (group.0.id(), stop.clone());
    // The leader is not yet waited for while this runs: its number is its own.
    let guard = std::thread::spawn(move || {
        loop {
            match ended.recv_timeout(Duration::from_millis(100)) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return None,
            }
            if watch.is_set() {
                kill_group(leader);
                return Some("interrupted".to_owned());
            }
            if start.elapsed() > limit {
                kill_group(leader);
                return Some(format!("took longer than {} s", limit.as_secs()));
            }
        }
    });
    let status = group.0.wait().map_err(|e| e.to_string())?;
    drop(done);
    if let Ok(Some(why)) = guard.join() {
        return Err(why);
    }
    let (out, came) = text(&out);
    Ok(Output {
        status,
        out,
        err: text(&err).0,
        came,
    })
}

/// What was read, and how much of it had come when.
type Came = (Vec<u8>, Vec<(usize, f64)>);

fn reader(from: Option<impl Read + Send + 'static>) -> Receiver<Came> {
    let (give, take) = channel();
    std::thread::spawn(move || {
        let (mut bytes, mut came) = (Vec::new(), Vec::new());
        if let Some(mut from) = from {
            let mut piece = [0; 1 << 14];
            while bytes.len() < MOST_OUTPUT {
                match from.read(&mut piece) {
                    Ok(n) if n > 0 => {
                        bytes.extend_from_slice(&piece[..n]);
                        came.push((bytes.len(), now()));
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    _ => break,
                }
            }
            let _ = give.send((bytes, came));
            // Nobody is to be stopped by a full pipe.
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
    });
    take
}

/// What was read. A process that outlives its parent may keep the stream open: it is not waited for
/// long.
fn text(from: &Receiver<Came>) -> (String, Vec<(usize, f64)>) {
    let (bytes, came) = from
        .recv_timeout(Duration::from_secs(5))
        .unwrap_or_default();
    (String::from_utf8_lossy(&bytes).into_owned(), came)
}

/// Seconds of CLOCK_MONOTONIC.
pub fn now() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// A command of the set-up: its output, or why it failed.
pub fn output(program: &str, args: &[&str], stop: &Stop) -> Result<String> {
    run(
        Command::new(program).args(args),
        Duration::from_secs(1800),
        stop,
    )?
    .ok(program)
}
