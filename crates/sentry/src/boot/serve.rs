//! The main thread's work once the kernel runs: what the starter asks for.
//!
//! Nothing that can wait for a file or a task is done on this thread: signals must always get
//! through.

use super::launch;
use super::{Failure, attach, changes, join, network, or};
use crate::container::{Container, PendingExec};
use crate::kernel::Kernel;
use crate::task::ThreadGroup;
use crate::task::launch::Launch;
use abi::errno::EINTR;
use abi::{SigInfo, Signal};
use config::control::{Recipient, ToSentry, ToStarter};
use config::{Census, CensusProcess, DevicesSpec, ExecSpec, MemoryChange, Spinning, Turns};
use hostcall::HostFd;
use std::sync::Arc;
use wait::spin::Kind;

/// The longest body that is read from a descriptor.
const BODY_MAX: usize = 16 << 20;

const UNKNOWN: &str = "this version does not know that request";

/// Serves the root container's starter until the end; gives the reason.
pub fn serve(kernel: &Arc<Kernel>, held: Option<Launch>) -> String {
    let mut server = Server {
        kernel: kernel.clone(),
        container: kernel.root.clone(),
        held,
    };
    let mut fds = [
        kernel.root.control().raw(),
        kernel.platform.end().unwrap_or(-1),
    ]
    .map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        if hostcall::file::poll_at_length(&mut fds, -1) == Err(EINTR) {
            continue;
        }
        if fds[1].revents != 0 {
            return "a process that the sandbox needs was killed: the sandbox has ended".into();
        }
        match server.next() {
            // The starter is gone; nobody waits for us.
            Ok(Heard::Gone) => hostcall::process::exit_group(72),
            Ok(Heard::Word) => {}
            Err(why) => return why,
        }
    }
}

/// Serves the starter of a container that has joined, until one of them ends. `lock` tells others,
/// starter or not, that programs of it may still run.
pub fn serve_joined(kernel: Arc<Kernel>, container: Arc<Container>, held: Launch, lock: HostFd) {
    let mut server = Server {
        kernel,
        container,
        held: Some(held),
    };
    while matches!(server.next(), Ok(Heard::Word)) {}
    // Nobody is left who could speak for it. (Its monitor may still listen for its end.)
    drop(server.held.take());
    let killed = abi::signal::SIGKILL.number();
    if !server.kernel.end_container(&server.container, killed) {
        // Held until this process ends.
        let _ = lock.into_raw();
    }
}

/// What came from a starter.
enum Heard {
    Word,
    /// It has closed its end.
    Gone,
}

struct Server {
    kernel: Arc<Kernel>,
    container: Arc<Container>,
    held: Option<Launch>,
}

impl Server {
    /// Does what the next packet asks for. An error is a reason to end the sandbox.
    fn next(&mut self) -> core::result::Result<Heard, String> {
        let mut m = [0u8; 2048];
        let (n, given) = match hostcall::sock::recv(self.container.control().raw(), &mut m) {
            Ok((0, _)) => return Ok(Heard::Gone),
            Ok(r) => r,
            Err(EINTR) => return Ok(Heard::Word),
            Err(e) => return Err(format!("the starter cannot be heard: {e}")),
        };
        self.obey(&m[..n], given)?;
        Ok(Heard::Word)
    }

    /// Does what a packet asks for. What has a number is asked by [`Server::ask`].
    fn obey(&mut self, m: &[u8], given: Vec<HostFd>) -> core::result::Result<(), String> {
        let word = |at: usize| {
            let bytes = m.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().expect("4")))
        };
        let (kernel, container) = (&self.kernel, &self.container);
        let Some(kind) = word(0) else { return Ok(()) };
        let number = word(4).unwrap_or(0);
        match ToSentry::try_from(kind) {
            Ok(ToSentry::Window) => {
                let process = word(8).unwrap_or(0) as i32;
                container.resize_terminal(process, number as u16, (number >> 16) as u16);
            }
            Ok(ToSentry::Signal) => {
                if let Some(s) = Signal::new(number as i32) {
                    signal(kernel, container, s, word(8).unwrap_or(0).into());
                }
            }
            Ok(ToSentry::Start) if number != 0 => {
                let pid = number as i32;
                if let Some(l) = container.release(pid)
                    && l.start().is_err()
                {
                    container.tell_exited(pid, 0x7e00);
                }
            }
            Ok(ToSentry::Start) => {
                if let Some(first) = self.held.take() {
                    self.attach(given).map_err(|e| e.text)?;
                    first
                        .start()
                        .map_err(|e| format!("cannot start the first thread: {e}"))?;
                }
            }
            Ok(ToSentry::Limits) => {
                if let Ok(new) = serde_json::from_slice(&m[4..]) {
                    container.update_limits(new);
                }
            }
            Ok(ToSentry::GiveUp) => container.give_up(number),
            Ok(kind) => self.ask(kind, number, given),
            // From this number on, what is unknown may be a question.
            Err(kind) if kind >= ToSentry::Start as u32 => self.request(number).refuse(UNKNOWN),
            Err(_) => {}
        }
        Ok(())
    }

    fn request(&self, number: u32) -> Request {
        Request {
            kernel: self.kernel.clone(),
            container: self.container.clone(),
            number,
        }
    }

    /// Does what has an answer, by its number.
    fn ask(&self, kind: ToSentry, number: u32, given: Vec<HostFd>) {
        let (kernel, container) = (&self.kernel, &self.container);
        let request = self.request(number);
        match kind {
            ToSentry::Ping => request.done(0),
            ToSentry::Pause => {
                kernel.freeze(container);
                request.done(0);
            }
            ToSentry::Resume => {
                kernel.thaw(container);
                request.done(0);
            }
            ToSentry::Exec => {
                let asked = container.asked(number);
                request.aside(move |r| {
                    let ready = execute(r, given, &asked)?;
                    let held = r.container.hold(ready, |pid| r.try_done(pid as u32));
                    held.map_err(|_| "the container has ended, or its monitor does not listen")?;
                    Ok(None)
                })
            }
            ToSentry::Join if Arc::ptr_eq(container, &kernel.root) => {
                request.aside(move |r| {
                    join::join(&r.kernel, given)?;
                    Ok(Some(0))
                });
            }
            ToSentry::Changes => request.aside(move |r| {
                let root = r.container.root().ok_or("the container is not ready")?;
                if root.overlay.is_none() {
                    return Err(
                        "the container writes to its root directory itself: its changes are there"
                            .into(),
                    );
                }
                let out = given.first().ok_or("there is nowhere to write to")?;
                Ok(Some(or(changes::write(root, out), "write the changes")?))
            }),
            ToSentry::Census => request.aside(move |r| {
                let body = serde_json::to_vec(&census(r)).map_err(|e| e.to_string())?;
                for fd in &given {
                    or(write_all(fd, &body), "write the census")?;
                }
                Ok(Some(0))
            }),
            ToSentry::Network => request.tell(given, "the network", |r| {
                serde_json::to_vec(&network::report(&r.kernel, &r.container))
            }),
            ToSentry::Memory => request.tell(given, "the memory", |r| {
                serde_json::to_vec(&r.kernel.memory_report(&r.container))
            }),
            ToSentry::Map => request.tell(given, "the memory", |r| {
                serde_json::to_vec(&r.kernel.memory_map(&r.container))
            }),
            ToSentry::Bounds => request.aside(move |r| change_memory(r, &given)),
            // (They are the sandbox's: who joins it has no say.)
            ToSentry::Rules if Arc::ptr_eq(container, &kernel.root) => {
                request.aside(move |r| {
                    let body = given.first().ok_or("the request has no body")?;
                    network::change_rules(&r.kernel, &or(read_all(body), "read of the rules")?)?;
                    Ok(Some(0))
                });
            }
            // (The devices are the root container's.)
            ToSentry::Refresh if Arc::ptr_eq(container, &kernel.root) => {
                request.aside(move |r| network::change_devices(&r.kernel, given).map(|()| Some(0)));
            }
            // (What has no answer does not come here.)
            ToSentry::Join
            | ToSentry::Rules
            | ToSentry::Refresh
            | ToSentry::Window
            | ToSentry::Signal
            | ToSentry::Start
            | ToSentry::Limits
            | ToSentry::GiveUp => request.refuse(UNKNOWN),
        }
    }
}

impl Server {
    /// Gives the sandbox the devices that came with the start, if any did; only its root container
    /// can bring some.
    fn attach(&self, given: Vec<HostFd>) -> core::result::Result<(), Failure> {
        let mut given = given.into_iter();
        let body = given.next();
        let Some(body) = body.filter(|_| Arc::ptr_eq(&self.container, &self.kernel.root)) else {
            return Ok(());
        };
        let body = or(read_all(&body), "read of the network's devices")?;
        let spec: DevicesSpec = serde_json::from_slice(&body)
            .map_err(|e| format!("the network's devices are not understood: {e}"))?;
        let devices = spec.with_sockets(given.collect());
        let devices = devices.ok_or("the network's devices are not all there")?;
        attach(&self.kernel, devices)
    }
}

/// Changes how the container's memory is governed.
fn change_memory(r: &Request, given: &[HostFd]) -> core::result::Result<Option<u32>, Failure> {
    let body = given.first().ok_or("the request has no body")?;
    let body = or(read_all(body), "read of the limits")?;
    let change: MemoryChange =
        serde_json::from_slice(&body).map_err(|e| format!("the limits are not understood: {e}"))?;
    if let Some(b) = change.process {
        r.kernel
            .set_bounds(&r.container, b.pid, b.limit, b.reserve)?;
    }
    if let Some(name) = change.replacement {
        r.kernel.choose_replacement(&r.container, name);
    }
    Ok(Some(0))
}

/// Answers with this JSON, into the descriptor that came.
fn answer(
    body: serde_json::Result<Vec<u8>>,
    given: &[HostFd],
    what: &str,
) -> core::result::Result<Option<u32>, Failure> {
    let body = body.map_err(|e| e.to_string())?;
    let out = given.first().ok_or("there is nowhere to write to")?;
    or(write_all(out, &body), &format!("write of {what}"))?;
    Ok(Some(0))
}

/// Who asks, and where the answer goes.
struct Request {
    kernel: Arc<Kernel>,
    container: Arc<Container>,
    number: u32,
}

impl Request {
    fn done(&self, result: u32) {
        let m = [self.number.to_le_bytes(), result.to_le_bytes()].concat();
        self.container.tell(ToStarter::Done, &m);
    }

    /// The same, without waiting for a starter that does not listen: whether it was told.
    fn try_done(&self, result: u32) -> bool {
        let numbers = [self.number, result].map(u32::to_le_bytes);
        let m = [&ToStarter::Done.to_le_bytes(), numbers.as_flattened()].concat();
        hostcall::sock::try_send(self.container.control().raw(), &m, &[]).is_ok()
    }

    fn refuse(&self, why: &str) {
        let mut m = self.number.to_le_bytes().to_vec();
        m.extend_from_slice(&why.as_bytes()[..why.len().min(1024)]);
        self.container.tell(ToStarter::Refused, &m);
    }

    /// Writes the JSON that `f` makes where it was asked for.
    fn tell(
        self,
        given: Vec<HostFd>,
        what: &'static str,
        f: impl FnOnce(&Request) -> serde_json::Result<Vec<u8>> + Send + 'static,
    ) {
        self.aside(move |r| answer(f(r), &given, what));
    }

    /// Does it on a thread of its own; `Some` result is told.
    fn aside<F>(self, f: F)
    where
        F: FnOnce(&Request) -> core::result::Result<Option<u32>, Failure> + Send + 'static,
    {
        let (kernel, container, number) =
            (self.kernel.clone(), self.container.clone(), self.number);
        let made = std::thread::Builder::new()
            .name("request".into())
            .stack_size(512 << 10)
            .spawn(move || {
                let k = self.kernel.clone();
                k.guard(|| match f(&self) {
                    Ok(Some(r)) => self.done(r),
                    Ok(None) => {}
                    Err(e) => self.refuse(&e.text),
                });
            });
        if made.is_err() {
            let r = Request {
                kernel,
                container,
                number,
            };
            r.refuse("no more threads can be made");
        }
    }
}

/// Sends a signal to processes of this container only.
fn signal(kernel: &Arc<Kernel>, container: &Arc<Container>, s: Signal, to: Recipient) {
    let wanted = match to {
        Recipient::First => Some(container.first()),
        Recipient::Process(pid) => Some(pid as i32),
        Recipient::All => None,
    };
    let mut groups = kernel.members(container);
    groups.retain(|g| wanted.is_none_or(|pid| g.tgid == pid));
    if s == abi::signal::SIGKILL {
        container.withdraw(wanted);
        let more = groups.iter().filter(|g| !g.needs_no_kill());
        enforce(kernel, more.cloned().collect());
    }
    if to == Recipient::All && s == abi::signal::SIGKILL {
        return kernel.kill_container(container);
    }
    for g in groups {
        // These two are obeyed from outside also by a process 1.
        match s {
            abi::signal::SIGKILL => kernel.kill_group(&g, s.number()),
            abi::signal::SIGSTOP => kernel.stop_group(&g, s),
            _ => {}
        }
        let _ = kernel.send_to_group(&g, SigInfo::new(s, abi::signal::SI_USER));
    }
}

/// Sees to it that processes that are being killed do end.
fn enforce(kernel: &Arc<Kernel>, groups: Vec<Arc<ThreadGroup>>) {
    if groups.is_empty() {
        return;
    }
    let k = kernel.clone();
    let thread = std::thread::Builder::new()
        .name("kill".into())
        .stack_size(128 << 10);
    // Where there is no thread for it, the starter's patience ends all the same.
    let _ = thread.spawn(move || {
        let guard = k.clone();
        guard.guard(|| {
            k.see_off(&groups);
        });
    });
}

/// Prepares what `exec` asks for.
fn execute(
    r: &Request,
    given: Vec<HostFd>,
    asked: &PendingExec,
) -> core::result::Result<Launch, Failure> {
    let mut given = given.into_iter();
    let body = given.next().ok_or("the request has no body")?;
    let body = or(read_all(&body), "read the request")?;
    let spec: ExecSpec =
        serde_json::from_slice(&body).map_err(|e| format!("the request is not understood: {e}"))?;
    let stdio = spec.stdio.take(&mut given);
    let stdio = stdio.ok_or("the request has too few descriptors")?;
    let preserved = given.take(spec.preserved as usize).collect();
    let program = launch::Program::new(spec.process, stdio, preserved);
    launch::prepare(&r.kernel, &r.container, program, |t| asked.made(t))
}

pub fn read_all(fd: &HostFd) -> abi::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buf = vec![0u8; 64 << 10];
    loop {
        match hostcall::file::pread(fd.raw(), &mut buf, all.len() as u64)? {
            0 => return Ok(all),
            n if all.len() + n > BODY_MAX => return Err(abi::errno::E2BIG),
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

fn write_all(fd: &HostFd, mut bytes: &[u8]) -> abi::Result<()> {
    while !bytes.is_empty() {
        match hostcall::file::write(fd.raw(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn spinning(all: &wait::Spinners) -> Spinning {
    let of = |kind| {
        let t = all.turns(kind);
        Turns {
            begun: t.begun(),
            won: t.won,
            given_up: t.given_up,
            nanos: t.nanos,
        }
    };
    Spinning {
        sleep: of(Kind::Sleep),
        mailbox: of(Kind::Mailbox),
    }
}

fn census(r: &Request) -> Census {
    let (kernel, container) = (&r.kernel, &r.container);
    let ns = &container.ns.pid_for_children;
    let groups: Vec<_> = {
        let l = kernel.tasks.lock();
        l.processes()
            .filter(|p| p.zombie.is_none() && Arc::ptr_eq(&p.group.container, container))
            .map(|p| {
                let parent = l.group(p.parent).map_or(0, |g| g.pid.seen_in(ns));
                (p.group.clone(), parent, p.sid, p.threads.len() as u32)
            })
            .collect()
    };
    // Seconds since the Epoch when CLOCK_BOOTTIME was 0.
    let epoch = (hostcall::time::clock_nanos(libc::CLOCK_REALTIME)
        - hostcall::time::clock_nanos(libc::CLOCK_BOOTTIME))
        / 1_000_000_000;
    let mut c = Census {
        memory: container.clas.stats().resident,
        spinning: kernel.platform.spinners().map(|s| spinning(&s)),
        ..Census::default()
    };
    for (g, ppid, sid, threads) in groups {
        let cpu = kernel.cpu_time(&g).total();
        c.cpu += cpu;
        c.threads += u64::from(threads);
        let Some(t) = kernel.tasks.lock().some_thread(g.tgid) else {
            continue;
        };
        let tty = kernel
            .terminals
            .of(&g, sid)
            .map_or_else(|| "?".into(), |p| format!("pts/{}", p.index));
        c.processes.push(CensusProcess {
            pid: g.pid.seen_in(ns),
            ppid,
            uid: t.cred().euid,
            threads,
            cpu,
            start: epoch + t.start / 1_000_000_000,
            tty,
            command: crate::fs::proc::command_line(&t),
        });
    }
    c
}
