//! Watching over a running sandbox until it ends.

use crate::EXIT_BROKEN;
use crate::control::{self, SIGNAL, Said, WINDOW};
use crate::spawn::{Child, Who};
use abi::Result;
use hostcall::{HostFd, file, process, start as host, time};

/// A started sandbox. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    control: HostFd,
    report: HostFd,
    sentry: Option<Child>,
    gofer: Option<Child>,
}

/// How a sandbox ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The program ended with this wait status. The sandbox may have something to say besides.
    Program { status: i32, note: Option<String> },
    /// It did not: what to tell the person, and the exit status for it.
    Broken { text: String, exit: u8 },
}

/// How long a process may take to end by itself once it is clear that it will, in milliseconds.
const GRACE: i64 = 500;
/// How long a Sentry may take to end after the first program has: output, logs.
const SENTRY_GRACE: i64 = 3000;

/// The polled descriptors.
const CONTROL: usize = 0;
const REPORT: usize = 1;
const SENTRY: usize = 2;
const GOFER: usize = 3;
const SIGNALS: usize = 4;

impl Running {
    pub(crate) fn new(control: HostFd, report: HostFd, sentry: Child, gofer: Child) -> Running {
        Running {
            control,
            report,
            sentry: Some(sentry),
            gofer: Some(gofer),
        }
    }

    /// Has the Sentry send a signal to the first program.
    pub fn send_signal(&self, signal: i32) {
        // A Sentry that is gone is found by `wait`.
        let _ = control::send(self.control.raw(), SIGNAL, &signal.to_le_bytes());
    }

    /// Tells the Sentry the terminal's new size.
    pub fn send_window(&self, rows: u16, cols: u16) {
        let [a, b] = rows.to_le_bytes();
        let [c, d] = cols.to_le_bytes();
        let _ = control::send(self.control.raw(), WINDOW, &[a, b, c, d]);
    }

    /// The host's process ids of the Sentry and the Gofer: for tests and for people who look.
    #[must_use]
    pub fn pids(&self) -> (i32, i32) {
        let pid = |c: &Option<Child>| c.as_ref().map_or(0, |c| c.pid);
        (pid(&self.sentry), pid(&self.gofer))
    }

    /// Waits for the end, and cleans up. `on_signal` gets the signals that come in on `signals`.
    pub fn wait(
        mut self,
        signals: Option<&HostFd>,
        on_signal: &mut dyn FnMut(&Running, i32),
    ) -> Ending {
        let mut seen = Seen::default();
        let fd = |c: &Option<Child>| c.as_ref().map_or(-1, |c| c.pidfd.raw());
        let mut fds = [
            self.control.raw(),
            self.report.raw(),
            fd(&self.sentry),
            fd(&self.gofer),
            signals.map_or(-1, HostFd::raw),
        ]
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // Set once the end is near: `None` waits for ever.
        let mut deadline: Option<i64> = None;
        let mut near = |ms: i64| {
            let at = now() + ms;
            deadline = Some(deadline.map_or(at, |d: i64| d.min(at)));
            deadline
        };
        let mut until: Option<i64> = None;
        while self.sentry.is_some() {
            let wait = match until {
                None => -1,
                Some(d) => (d - now()).clamp(0, 60_000) as i32,
            };
            match file::poll(&mut fds, wait) {
                Ok(_) | Err(abi::errno::EINTR) if until.is_none_or(|d| now() < d) => {}
                _ => break,
            }
            if fds[SIGNALS].revents != 0 {
                let next = || signals.and_then(|s| host::next_signal(s).ok());
                while let Some(s) = next() {
                    on_signal(&self, s);
                }
            }
            for (i, socket) in [(REPORT, self.report.raw()), (CONTROL, self.control.raw())] {
                if fds[i].revents == 0 {
                    continue;
                }
                match control::receive(socket) {
                    Said::HungUp => fds[i].fd = -1,
                    // Only the Sentry speaks for the program.
                    Said::Exit(s) if i == CONTROL => {
                        seen.exit.get_or_insert(s);
                        until = near(SENTRY_GRACE);
                    }
                    Said::Failed(text, exit) => {
                        seen.text.get_or_insert((text, exit));
                        until = near(GRACE);
                    }
                    Said::Exit(_) | Said::Nothing => {}
                }
            }
            if fds[GOFER].revents != 0 {
                fds[GOFER].fd = -1;
                // Without fault where the Sentry hung up first: then the Sentry is about to end.
                seen.gofer = reap(&mut self.gofer);
                until = near(if seen.gofer == Some(0) { GRACE } else { 0 });
                if until.is_some_and(|d| d <= now()) {
                    break;
                }
            }
            if fds[SENTRY].revents != 0 {
                // What it said last is read before its end counts.
                until = near(GRACE);
                if fds[CONTROL].fd == -1 || file::poll(&mut fds[..=CONTROL], 0) == Ok(0) {
                    seen.sentry = reap(&mut self.sentry);
                }
            }
        }
        seen.ending(&mut self)
    }
}

/// What was learnt.
#[derive(Default)]
struct Seen {
    exit: Option<i32>,
    text: Option<(String, u8)>,
    sentry: Option<i32>,
    gofer: Option<i32>,
}

impl Seen {
    fn ending(self, running: &mut Running) -> Ending {
        running.end();
        if let Some(status) = self.exit {
            let note = self.text.map(|(t, _)| t);
            return Ending::Program { status, note };
        }
        if let Some((text, exit)) = self.text {
            return Ending::Broken { text, exit };
        }
        let (who, status) = match (self.gofer, self.sentry) {
            (Some(g), _) if g != 0 => (Who::Gofer, Some(g)),
            (_, s) => (Who::Sentry, s),
        };
        Ending::Broken {
            text: format!("the {who} {}: the sandbox has ended", how(status)),
            exit: EXIT_BROKEN,
        }
    }
}

/// A wait status in words.
fn how(status: Option<i32>) -> String {
    match status {
        None => "stopped answering".into(),
        Some(s) if libc::WIFSIGNALED(s) => match libc::WTERMSIG(s) {
            libc::SIGKILL => "was killed (by a person, or because memory ran out)".into(),
            libc::SIGSYS => "made a host call that is not on its list (please report it)".into(),
            n => format!("was ended by signal {n}"),
        },
        Some(s) => format!("ended unexpectedly with status {}", libc::WEXITSTATUS(s)),
    }
}

fn now() -> i64 {
    time::clock_nanos(libc::CLOCK_MONOTONIC) / 1_000_000
}

/// Reaps a child that has ended; its wait status.
fn reap(child: &mut Option<Child>) -> Option<i32> {
    let c = child.take()?;
    loop {
        match process::wait(c.pid, 0) {
            Ok((_, status)) => return Some(status),
            Err(abi::errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Ends a child that was started in vain.
pub(crate) fn abandon(child: Child) {
    let _ = finish(&mut Some(child), 0);
}

/// Waits for the end of a child whose reasons to live are gone, then makes it.
fn finish(child: &mut Option<Child>, grace: i64) -> Result<()> {
    let Some(c) = child else { return Ok(()) };
    let mut fds = [libc::pollfd {
        fd: c.pidfd.raw(),
        events: libc::POLLIN,
        revents: 0,
    }];
    let deadline = now() + grace;
    loop {
        let left = (deadline - now()).max(0);
        match file::poll(&mut fds, left as i32) {
            Ok(0) if left == 0 => break,
            Ok(0) | Err(abi::errno::EINTR) => {}
            _ => break,
        }
    }
    if fds[0].revents == 0 {
        // Not reaped yet, so that the number is still its own.
        process::kill(c.pid, libc::SIGKILL)?;
    }
    reap(child);
    Ok(())
}

impl Running {
    /// Ends and reaps what is left: the Sentry and, with its pid namespace, all stub processes; then the
    /// Gofer, which sees its channel hang up.
    fn end(&mut self) {
        let _ = finish(&mut self.sentry, 0);
        let _ = finish(&mut self.gofer, GRACE);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
