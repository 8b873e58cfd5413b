//! Watching over a running sandbox until it ends.

use crate::control::{self, Answer, ChildMessage};
use crate::spawn::{Child, Who};
use crate::{EXIT_BROKEN, EXIT_KILLED, EXIT_NOT_STARTED, Error, privilege as own, step};
use abi::Result;
use config::control::{Recipient, ToSentry};
use config::limits;
use hostcall::bpf::{self, AllThreads};
use hostcall::table::Process;
use hostcall::{HostFd, RawFd, file, inet, process, time};
use std::time::Instant;

/// A started sandbox. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    control: HostFd,
    report: HostFd,
    sentry: Option<Child>,
    gofer: Option<Child>,
    broker: Option<Child>,
    /// A container in somebody else's sandbox: the Sentry is not ours.
    joined: bool,
    /// Memory files of containers with confidential memory.
    confidential: Vec<HostFd>,
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

/// Memory files that are kept: of each container that has confidential memory.
const CONFIDENTIAL_MAX: usize = 256;

/// The polled descriptors; the attendant's follow.
const CONTROL: usize = 0;
const REPORT: usize = 1;
const SENTRY: usize = 2;
const GOFER: usize = 3;
const BROKER: usize = 4;
const OWN: usize = 5;

/// A part of the watch over a sandbox: descriptors of its own, and the Sentry's answers.
pub trait Attendant {
    /// What it wants to be polled now.
    fn poll(&mut self, fds: &mut Vec<libc::pollfd>);
    /// Some of them may be ready; in the same order.
    fn ready(&mut self, running: &Running, fds: &[libc::pollfd]);
    /// Whether it has something to tell the Sentry that there was no room for.
    fn wants_room(&self) -> bool {
        false
    }
    /// There is room.
    fn room(&mut self, _: &Running) {}
    /// The Sentry said something.
    fn answer(&mut self, _: &Running, _: Answer) {}
    /// The Sentry has something for the person: a sentence.
    fn note(&mut self, _: &str) {}
    /// Inside, a process was ended for lack of memory: how many were so far, and a sentence.
    fn out_of_memory(&mut self, _kills: u64, text: &str) {
        self.note(text);
    }
    /// When [`Attendant::late`] is to be called; `None` for never.
    fn deadline(&self) -> Option<Instant> {
        None
    }
    /// That moment has come: afterwards there is a later one, or none, or it is over.
    fn late(&mut self, _: &Running) {}
    /// A container in somebody else's sandbox is over here, and the Sentry does not say that it has
    /// ended there.
    fn left(&mut self) {}
    /// Whether the sandbox is to end now.
    fn is_over(&self) -> bool {
        false
    }
}

impl Running {
    pub(crate) fn new(
        control: HostFd,
        report: HostFd,
        sentry: Child,
        gofer: Child,
        broker: Option<Child>,
    ) -> Running {
        Running {
            control,
            report,
            sentry: Some(sentry),
            gofer: Some(gofer),
            broker,
            joined: false,
            confidential: Vec::new(),
        }
    }

    pub(crate) fn joined(control: HostFd, report: HostFd, gofer: Child) -> Running {
        Running {
            control,
            report,
            sentry: None,
            gofer: Some(gofer),
            broker: None,
            joined: true,
            confidential: Vec::new(),
        }
    }

    /// Has the Sentry send a signal. `EAGAIN` where it has not read what was sent before.
    pub fn send_signal(&self, signal: i32, to: Recipient) -> Result<()> {
        let m = [signal.to_le_bytes(), u32::from(to).to_le_bytes()].concat();
        control::tell(self.control.raw(), ToSentry::Signal, &m, &[])
    }

    /// Tells the Sentry a terminal's new size: the first program's (0), or that of a process.
    pub fn send_window(&self, rows: u16, cols: u16, process: u32) -> Result<()> {
        let size = u32::from(rows) | u32::from(cols) << 16;
        let m = [size.to_le_bytes(), process.to_le_bytes()].concat();
        control::tell(self.control.raw(), ToSentry::Window, &m, &[])
    }

    /// Tells the Sentry limits that have changed: the body of [`ToSentry::Limits`].
    pub fn set_limits(&self, body: &[u8]) -> Result<()> {
        if body.len() > control::MAX - 4 {
            return Err(abi::errno::E2BIG);
        }
        control::tell(self.control.raw(), ToSentry::Limits, body, &[])
    }

    /// Has a program begin that was made ready: the first (0), or one of `exec`. The first may get
    /// devices: the descriptors that [`ToSentry::Start`] tells of.
    pub fn begin(&self, process: u32, given: &[RawFd]) -> Result<()> {
        self.ask(ToSentry::Start, process, given)
    }

    /// Asks the Sentry for something; `number` comes back with the answer.
    pub fn ask(&self, kind: ToSentry, number: u32, given: &[RawFd]) -> Result<()> {
        control::tell(self.control.raw(), kind, &number.to_le_bytes(), given)
    }

    /// The host's process ids of the Sentry and the Gofer: for tests and for people.
    #[must_use]
    pub fn pids(&self) -> (i32, i32) {
        let pid = |c: &Option<Child>| c.as_ref().map_or(0, |c| c.pid);
        (pid(&self.sentry), pid(&self.gofer))
    }

    /// Confines the caller, which watches over the sandbox from now on: no capability but that to
    /// end its children, which are other users', and only the calls that [`Running::wait`] and a
    /// container's monitor make. To be called once, with one thread.
    pub fn confine(&self) -> std::result::Result<(), Error> {
        let confined = own::keep_capabilities(own::CAP_KILL)
            .and_then(|()| process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0))
            .and_then(|_| {
                let children = [&self.sentry, &self.gofer, &self.broker];
                let children: Vec<i32> = children.into_iter().flatten().map(|c| c.pid).collect();
                let list = bpf::allow_list_with(Process::Monitor, &children);
                bpf::install(&list, AllThreads::Yes)
            });
        step("confine the monitor", confined)
    }

    /// Waits for the end, and cleans up.
    pub fn wait(mut self, attendant: &mut dyn Attendant) -> Ending {
        let mut w = Watch::over(&self);
        while self.sentry.is_some() || self.joined {
            let late_in = attendant.deadline().map(|d| {
                let left = d.saturating_duration_since(Instant::now());
                // Not a moment too early: that would be a turn for nothing.
                i64::try_from(left.as_millis()).map_or(i64::MAX, |ms| ms.saturating_add(1))
            });
            let left = w.until.map(|d| d - now()).into_iter().chain(late_in).min();
            let wait = left.map_or(-1, |ms| ms.clamp(0, 60_000) as i32);
            w.fds.truncate(OWN);
            attendant.poll(&mut w.fds);
            if attendant.wants_room() {
                w.fds[CONTROL].events |= libc::POLLOUT;
            }
            match file::poll_at_length(&mut w.fds, wait) {
                Ok(_) if !w.is_over() => {}
                Err(abi::errno::EINTR) if !w.is_over() => continue,
                _ => break,
            }
            if w.fds[CONTROL].revents & libc::POLLOUT != 0 {
                attendant.room(&self);
            }
            w.fds[CONTROL].events = libc::POLLIN;
            w.fds[CONTROL].revents &= !libc::POLLOUT;
            attendant.ready(&self, &w.fds[OWN..]);
            if attendant.deadline().is_some_and(|d| d <= Instant::now()) {
                attendant.late(&self);
            }
            if attendant.is_over() {
                break;
            }
            w.hear(&mut self, attendant);
            if self.joined && (w.seen.exit.is_some() || w.fds[CONTROL].fd == -1) {
                break;
            }
            if w.take_note_of_ends(&mut self) {
                break;
            }
        }
        let mut seen = w.seen;
        if self.joined && seen.exit.is_none() && w.fds[CONTROL].fd != -1 {
            let (ended, status) = self.leave();
            if !ended {
                attendant.left();
            }
            // (Where the Gofer went first, that is what ended it.)
            seen.exit = status.filter(|_| seen.gofer.is_none());
        }
        if !self.joined
            && seen.text.is_some()
            && seen.exit.is_none()
            && self.gofer.as_ref().is_some_and(|g| ends_within(g, GRACE))
        {
            seen.gofer = reap(&mut self.gofer);
        }
        seen.ending(&mut self)
    }

    /// Leaves somebody else's sandbox: hangs up on the Sentry, which ends the container then, and
    /// waits until it says so: whether it did, and the status that it told. (What waits for the
    /// Gofer goes on, as that ends.)
    fn leave(&mut self) -> (bool, Option<i32>) {
        if inet::shutdown(self.control.raw(), libc::SHUT_WR).is_err() {
            return (true, None);
        }
        if let Some(gofer) = &self.gofer {
            // Not reaped yet, so that the number is still its own. Its end is not waited for: it
            // may take long.
            let _ = process::kill(gofer.pid, libc::SIGKILL);
        }
        let deadline = now() + limits::KILL.as_millis() as i64;
        let mut fds = [libc::pollfd {
            fd: self.control.raw(),
            events: libc::POLLIN,
            revents: 0,
        }];
        loop {
            let left = deadline - now();
            if left <= 0 {
                return (false, None);
            }
            match file::poll(&mut fds, left as i32) {
                Ok(1..) => {}
                Ok(_) | Err(abi::errno::EINTR) => continue,
                Err(_) => return (false, None),
            }
            match control::receive(self.control.raw()).0 {
                ChildMessage::Exit(status) => return (true, Some(status)),
                ChildMessage::HungUp => return (true, None),
                // Said before it was hung up on: it tries once more.
                ChildMessage::Failed(..)
                | ChildMessage::Answer(_)
                | ChildMessage::Note(_)
                | ChildMessage::OutOfMemory(..)
                | ChildMessage::Confidential
                | ChildMessage::Nothing => {}
            }
        }
    }
}

/// What [`Running::wait`] looks at.
struct Watch {
    /// See [`CONTROL`] and the like.
    fds: Vec<libc::pollfd>,
    /// When it ends, in milliseconds of [`now`]. Set once the end is near: `None` waits for ever.
    until: Option<i64>,
    seen: Seen,
}

impl Watch {
    fn over(r: &Running) -> Watch {
        let fd = |c: &Option<Child>| c.as_ref().map_or(-1, |c| c.pidfd.raw());
        let fds = [
            r.control.raw(),
            r.report.raw(),
            fd(&r.sentry),
            fd(&r.gofer),
            fd(&r.broker),
        ]
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .to_vec();
        Watch {
            fds,
            until: None,
            seen: Seen::default(),
        }
    }

    /// The end comes in so many milliseconds at the latest.
    fn near(&mut self, ms: i64) {
        let at = now() + ms;
        self.until = Some(self.until.map_or(at, |d| d.min(at)));
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|d| d <= now())
    }

    /// What children have said.
    fn hear(&mut self, r: &mut Running, attendant: &mut dyn Attendant) {
        for (i, socket) in [(REPORT, r.report.raw()), (CONTROL, r.control.raw())] {
            if self.fds[i].revents == 0 {
                continue;
            }
            let (said, mut fds) = control::receive(socket);
            match said {
                ChildMessage::HungUp => self.fds[i].fd = -1,
                // Only the Sentry speaks for the program.
                ChildMessage::Exit(s) if i == CONTROL => {
                    self.seen.exit.get_or_insert(s);
                    self.near(SENTRY_GRACE);
                }
                ChildMessage::Failed(text, exit) => {
                    self.seen.text.get_or_insert((text, exit));
                    self.near(GRACE);
                }
                ChildMessage::Answer(a) if i == CONTROL => attendant.answer(r, a),
                ChildMessage::Note(text) if i == CONTROL => attendant.note(&text),
                ChildMessage::OutOfMemory(kills, text) if i == CONTROL => {
                    attendant.out_of_memory(kills, &text);
                }
                ChildMessage::Confidential if i == CONTROL => {
                    // (Only the sandbox's own starter sees the Sentry's end.)
                    if !r.joined && r.confidential.len() < CONFIDENTIAL_MAX {
                        r.confidential.extend(fds.pop());
                    }
                }
                ChildMessage::Exit(_)
                | ChildMessage::Answer(_)
                | ChildMessage::Note(_)
                | ChildMessage::OutOfMemory(..)
                | ChildMessage::Confidential
                | ChildMessage::Nothing => {}
            }
        }
    }

    /// Reaps children that have ended; whether that is all.
    fn take_note_of_ends(&mut self, r: &mut Running) -> bool {
        if self.fds[GOFER].revents != 0 {
            self.fds[GOFER].fd = -1;
            self.seen.gofer = reap(&mut r.gofer);
            if self.follows(self.seen.gofer) {
                return true;
            }
        }
        if self.fds[BROKER].revents != 0 {
            self.fds[BROKER].fd = -1;
            self.seen.broker = reap(&mut r.broker);
            if self.follows(self.seen.broker) {
                return true;
            }
        }
        if self.fds[SENTRY].revents != 0 {
            // What it said last is read before its end counts.
            self.near(GRACE);
            if self.fds[CONTROL].fd == -1 || file::poll(&mut self.fds[..=CONTROL], 0) == Ok(0) {
                self.seen.sentry = reap(&mut r.sentry);
            }
        }
        false
    }

    /// The Sentry ends after a child that has ended so: soon where it was without fault, as the
    /// Sentry has hung up then; else at once.
    fn follows(&mut self, child: Option<i32>) -> bool {
        self.near(if child == Some(0) { GRACE } else { 0 });
        self.is_over()
    }
}

/// What was learnt.
#[derive(Default)]
struct Seen {
    exit: Option<i32>,
    text: Option<(String, u8)>,
    sentry: Option<i32>,
    gofer: Option<i32>,
    broker: Option<i32>,
}

impl Seen {
    fn ending(self, running: &mut Running) -> Ending {
        running.end();
        if let Some(status) = self.exit {
            let note = self.text.map(|(t, _)| t);
            return Ending::Program { status, note };
        }
        // A Sentry that lost its Gofer or broker says so, and may be heard before their end is
        // seen. (One that ended with these has said why itself.)
        let told = [EXIT_NOT_STARTED, EXIT_BROKEN].map(|e| i32::from(e) << 8);
        let faulty = |s: Option<i32>| s.is_some_and(|s| s != 0 && !told.contains(&s));
        if let Some((text, exit)) = self.text
            && (running.joined || !faulty(self.gofer) && !faulty(self.broker))
        {
            return Ending::Broken { text, exit };
        }
        if running.joined && self.gofer.is_none_or(|g| g == 0) {
            return Ending::Broken {
                text: "the sandbox that the container was in has ended".into(),
                exit: EXIT_KILLED,
            };
        }
        let (who, status) = match (self.gofer, self.sentry) {
            (Some(g), _) if g != 0 => (Who::Gofer, Some(g)),
            _ if self.broker.is_some_and(|b| b != 0) => (Who::Broker, self.broker),
            (_, s) => (Who::Sentry, s),
        };
        let killed =
            status.is_some_and(|s| libc::WIFSIGNALED(s) && libc::WTERMSIG(s) == libc::SIGKILL);
        Ending::Broken {
            text: format!("the {who} {}: the sandbox has ended", how(status)),
            exit: if killed { EXIT_KILLED } else { EXIT_BROKEN },
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
    finish(&mut Some(child), 0);
}

/// Waits for the end of a child whose reasons to live are gone, then makes it. What the host holds
/// on to all the same (it waits for a disk, or a file server) is left to be reaped by init.
fn finish(child: &mut Option<Child>, grace: i64) {
    let Some(c) = child else { return };
    if !ends_within(c, grace) {
        // Not reaped yet, so that the number is still its own.
        let _ = process::kill(c.pid, libc::SIGKILL);
        if !ends_within(c, GRACE) {
            *child = None;
            return;
        }
    }
    reap(child);
}

fn ends_within(c: &Child, grace: i64) -> bool {
    let mut fds = [libc::pollfd {
        fd: c.pidfd.raw(),
        events: libc::POLLIN,
        revents: 0,
    }];
    let deadline = now() + grace;
    loop {
        let left = (deadline - now()).max(0);
        match file::poll(&mut fds, left as i32) {
            Ok(0) if left == 0 => return false,
            Ok(0) | Err(abi::errno::EINTR) => {}
            r => return r.is_ok(),
        }
    }
}

impl Running {
    /// Ends and reaps what is left: the Sentry and, with its pid namespace, all stub processes;
    /// then the Gofer and the broker, which see their channels hang up.
    ///
    /// The Sentry's end is waited for without a limit: what ends with it must be gone before that
    /// is told, and only it knows. (It ends late where one of its threads waits for the host.)
    fn end(&mut self) {
        if let Some(s) = &self.sentry {
            // Not reaped yet, so that the number is still its own.
            let _ = process::kill(s.pid, libc::SIGKILL);
        }
        reap(&mut self.sentry);
        finish(&mut self.gofer, GRACE);
        finish(&mut self.broker, GRACE);
        for f in self.confidential.drain(..) {
            // (What is no memory file is not touched.)
            let _ = hostcall::scrub::memory_file(f.raw());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
