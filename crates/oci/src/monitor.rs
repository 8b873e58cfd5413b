//! The monitor's work while its container lives: clients, signals, the Sentry's answers.
//!
//! # Invariants
//!
//! - The Sentry is never waited for. What it has no room to read waits in the [`Outbox`]; what it
//!   is asked stays in `pending`, which is bounded, until it answers; what may take long (programs
//!   being made ready) leaves room there for the rest. That it does not answer is said by clients,
//!   and only after a time ([`client`]).
//! - What a client has asked for and given up, before it was read, is not done.
//! - SIGKILL for the first program ends the container, whatever the Sentry does: where it does not
//!   obey within [`limits::KILL`], the monitor ends, and with it all processes that it started. (A
//!   container in somebody else's sandbox has no Sentry of its own: its Gofer ends, and the Sentry,
//!   which learns it by its socket, is to say that the container has ended. Where it does not, the
//!   sandbox ends: see [`crate::launch`].)
//! - SIGKILL for a program of `exec` that has not ended in time is told again, with a ping. A
//!   Sentry that answers has ended what the program ran; what is left waits for the host, as an
//!   uninterruptible task of Linux does. One that does not answer ends as above.
//! - A program of `exec` runs when its client says so: see [`client`]. One without a client is
//!   killed.

use crate::client::{self, Reply, Request};
use crate::log::Log;
use crate::outbox::{Message, Outbox, QueuedMessage, Sender};
use crate::state::Status;
use crate::terminal;
use crate::{Error, Result, Tried};
use config::control::{Recipient, ToSentry};
use config::limits;
use hostcall::HostFd;
use hostcall::start::{self as host, SignalSet};
use sandbox::{Answer, Attendant, Running};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

/// Questions to the Sentry at one time; the monitor's own come on top, one for each kill at most.
const PENDING_MAX: usize = 1024;
/// Programs that it makes ready at one time, also for clients that have gone: each takes a thread
/// there.
const EXECS_MAX: usize = PENDING_MAX / 2;
/// Clients at one time.
const CLIENTS_MAX: usize = 1024;

/// Signals that go on to the first program.
const PASSED: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// Those that make a command give up what it waits for. [`signals`] blocks them.
pub fn interrupts() -> Result<HostFd> {
    let set = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
    let set = set.into_iter().fold(SignalSet::default(), SignalSet::with);
    host::signalfd(set).tried("watch signals")
}

/// Blocks them, and opens the descriptor that they are read from.
pub fn signals() -> Result<HostFd> {
    let set = PASSED
        .into_iter()
        .fold(SignalSet::default(), SignalSet::with);
    host::block_signals(set.with(libc::SIGTTOU).with(libc::SIGPIPE)).tried("block signals")?;
    host::signalfd(set).tried("watch signals")
}

struct Client {
    fd: OwnedFd,
    /// The process that it started, and is told of; it may have ended.
    process: Option<u32>,
    waits: bool,
    /// What it asked for waits in the outbox: nothing more is read of it meanwhile.
    is_held: bool,
}

/// A question to the Sentry: whose it is, and what it was.
struct Pending {
    client: Option<u64>,
    kind: ToSentry,
}

/// A program of `exec` that SIGKILL was sent to.
struct Kill {
    /// When it must have ended.
    deadline: Instant,
    /// Told again, as the Sentry may not have read it the first time, with this ping behind.
    again: Option<u32>,
}

/// What a client's signal goes to.
#[derive(Clone, Copy)]
enum Target {
    /// A process that some client started.
    Process(u32),
    All,
    /// The process that this client started, or else the first program.
    Own,
}

impl Target {
    fn of(process: u32, all: bool) -> Target {
        match process {
            1.. => Target::Process(process),
            0 if all => Target::All,
            0 => Target::Own,
        }
    }
}

/// So many processes that memory has ended are counted: the file is the host's memory.
const KILLS_COUNTED: u64 = 4096;

/// What the monitor knows.
pub struct Monitor {
    listener: OwnedFd,
    signals: HostFd,
    /// Whose size is watched.
    terminal: Option<OwnedFd>,
    clients: BTreeMap<u64, Client>,
    /// So many that a descriptor is always left to accept, and hang up on, one more.
    clients_max: usize,
    outbox: Outbox,
    pending: BTreeMap<u32, Pending>,
    /// The client that started it, by the process inside.
    processes: BTreeMap<u32, u64>,
    kills: BTreeMap<u32, Kill>,
    next: u64,
    polled: Vec<u64>,
    pub phase: Status,
    /// A signal that ended what had not started.
    pub ended_by: Option<i32>,
    /// When the sandbox is ended, unless it has come to what it was told.
    deadline: Option<Instant>,
    /// That moment has come.
    pub overdue: bool,
    /// Somebody else's sandbox is left, and the container goes on there.
    pub left: bool,
    /// To be called once all is ready.
    on_ready: Option<Box<dyn FnOnce()>>,
    /// Where the processes are counted that were ended for lack of memory.
    kills_for_memory: std::fs::File,
    log: Log,
}

impl Monitor {
    pub fn new(
        listener: OwnedFd,
        signals: HostFd,
        terminal: Option<OwnedFd>,
        on_ready: Box<dyn FnOnce()>,
        kills_for_memory: std::fs::File,
        log: Log,
    ) -> Monitor {
        Monitor {
            log,
            kills_for_memory,
            listener,
            signals,
            terminal,
            clients: BTreeMap::new(),
            clients_max: host::rlimit(libc::RLIMIT_NOFILE).map_or(CLIENTS_MAX, |(soft, _)| {
                (soft as usize).saturating_sub(128).clamp(16, CLIENTS_MAX)
            }),
            outbox: Outbox::default(),
            pending: BTreeMap::new(),
            processes: BTreeMap::new(),
            kills: BTreeMap::new(),
            next: 1,
            polled: Vec::new(),
            phase: Status::Creating,
            ended_by: None,
            deadline: Some(Instant::now() + client::READY_LIMIT),
            overdue: false,
            left: false,
            on_ready: Some(on_ready),
        }
    }

    /// Starts the first program; with what its starter has given for it.
    fn start(&mut self, r: &Running, given: Vec<HostFd>) {
        self.phase = Status::Running;
        self.tell(r, Sender::OWN, Message::Begin { process: 0, given });
    }

    /// Tells the Sentry something, now or when it has room.
    fn tell(&mut self, r: &Running, sender: Sender, message: Message) {
        let put = self
            .outbox
            .put(QueuedMessage { sender, message }, |m| m.send(r));
        match (put, sender.client) {
            (Some((w, sent)), _) => self.told(&w, sent),
            (None, Some(id)) => {
                if let Some(c) = self.clients.get_mut(&id) {
                    c.is_held = true;
                }
            }
            (None, None) => {}
        }
    }

    /// A message has gone out, or cannot, as the Sentry has hung up.
    fn told(&mut self, w: &QueuedMessage, sent: abi::Result<()>) {
        if let (Message::Ask { number, .. }, Err(_)) = (&w.message, sent) {
            self.pending.remove(number);
        }
        let Some(id) = w.sender.client else { return };
        if let Some(c) = self.clients.get_mut(&id) {
            c.is_held = false;
        }
        match sent {
            Ok(()) => self.confirm(w.sender),
            Err(e) => self.reply(
                id,
                &Reply::Error(Error::new(format!("the Sentry cannot be told: {e}"))),
            ),
        }
    }

    /// What was asked for is done, as far as the client is concerned.
    fn confirm(&self, sender: Sender) {
        if let (Some(id), true) = (sender.client, sender.is_confirmed) {
            self.reply(id, &Reply::Done(0));
        }
    }

    /// Tells the waiting clients how it ended.
    pub fn tell_end(&self, status: i32) {
        for c in self.clients.values().filter(|c| c.waits) {
            client::write_reply(c.fd.as_raw_fd(), &Reply::Exited(status));
        }
    }

    fn reply(&self, client: u64, r: &Reply) {
        if let Some(c) = self.clients.get(&client) {
            client::write_reply(c.fd.as_raw_fd(), r);
        }
    }

    /// Asks the Sentry, for a client or for itself; gives the question's number.
    fn ask(&mut self, r: &Running, client: Option<u64>, kind: ToSentry, given: Vec<HostFd>) -> u32 {
        let number = self.next as u32;
        self.next += 1;
        if let Some(c) = client
            && self.pending.len() >= PENDING_MAX
        {
            let text = "the container has too many questions to answer";
            self.reply(c, &Reply::Error(Error::new(text)));
            return number;
        }
        self.pending.insert(number, Pending { client, kind });
        let message = Message::Ask {
            kind,
            number,
            given,
        };
        self.tell(r, client.map_or(Sender::OWN, Sender::silent), message);
        number
    }

    /// Sends a signal to the first program or to all.
    fn signal(&mut self, r: &Running, sender: Sender, signal: i32, to: Recipient) {
        if matches!(self.phase, Status::Creating | Status::Created) {
            // As a process that has not come to its program: most signals end it.
            if !matches!(
                signal,
                0 | libc::SIGCHLD
                    | libc::SIGCONT
                    | libc::SIGURG
                    | libc::SIGWINCH
                    | libc::SIGSTOP
                    | libc::SIGTSTP
                    | libc::SIGTTIN
                    | libc::SIGTTOU
            ) {
                self.ended_by.get_or_insert(signal);
            }
            return self.confirm(sender);
        }
        if signal == libc::SIGKILL {
            let limit = Instant::now() + limits::KILL;
            self.deadline = Some(self.deadline.map_or(limit, |d| d.min(limit)));
            return self.kill(r, sender, to);
        }
        self.tell(r, sender, Message::Signal { signal, to });
    }

    /// Sends a signal to a program of `exec`.
    fn signal_process(&mut self, r: &Running, sender: Sender, signal: i32, process: u32) {
        let to = Recipient::Process(process);
        if signal == libc::SIGKILL {
            self.kills.entry(process).or_insert_with(|| Kill {
                deadline: Instant::now() + limits::KILL,
                again: None,
            });
            return self.kill(r, sender, to);
        }
        self.tell(r, sender, Message::Signal { signal, to });
    }

    /// Sends SIGKILL. Read or not, the end comes: that is the monitor's business from here on.
    fn kill(&mut self, r: &Running, sender: Sender, to: Recipient) {
        let signal = libc::SIGKILL;
        self.tell(r, Sender::OWN, Message::Signal { signal, to });
        self.confirm(sender);
    }

    /// The process of a client's own, as long as it has not ended.
    fn own(&self, id: u64) -> Option<u32> {
        let process = self.clients.get(&id)?.process?;
        self.processes.contains_key(&process).then_some(process)
    }

    fn request(&mut self, r: &Running, id: u64, request: Request, given: Vec<HostFd>) {
        match request {
            Request::Status => self.reply(id, &Reply::Status(self.phase)),
            Request::Ping => self.ask_for(r, id, ToSentry::Ping, Vec::new()),
            Request::Start => self.start_for(r, id, given),
            Request::Signal {
                signal,
                all,
                process,
            } => self.signal_for(r, id, signal, Target::of(process, all)),
            Request::Window { rows, cols } => {
                let own = self.clients.get(&id).and_then(|c| c.process);
                let process = own.unwrap_or(0);
                let message = Message::Window {
                    rows,
                    cols,
                    process,
                };
                self.tell(r, Sender::silent(id), message);
            }
            Request::Exec => self.exec_for(r, id, given),
            Request::Join if matches!(self.phase, Status::Running | Status::Created) => {
                self.ask_for(r, id, ToSentry::Join, given);
            }
            Request::Pause if self.phase == Status::Running => {
                self.ask_for(r, id, ToSentry::Pause, Vec::new());
            }
            Request::Resume if self.phase == Status::Paused => {
                self.ask_for(r, id, ToSentry::Resume, Vec::new());
            }
            Request::Refresh if matches!(self.phase, Status::Running | Status::Paused) => {
                self.ask_for(r, id, ToSentry::Refresh, given);
            }
            Request::Join | Request::Pause | Request::Resume | Request::Refresh => {
                self.refuse_in_phase(id);
            }
            Request::Limits(new) => {
                let body = serde_json::to_vec(&new).unwrap_or_default();
                self.tell(r, Sender::confirmed(id), Message::Limits(body));
            }
            Request::Census => self.ask_for(r, id, ToSentry::Census, given),
            Request::Network => self.ask_for(r, id, ToSentry::Network, given),
            Request::Rules => self.ask_for(r, id, ToSentry::Rules, given),
            Request::Memory => self.ask_for(r, id, ToSentry::Memory, given),
            Request::Map => self.ask_for(r, id, ToSentry::Map, given),
            Request::Bounds => self.ask_for(r, id, ToSentry::Bounds, given),
            Request::Changes => self.ask_for(r, id, ToSentry::Changes, given),
            Request::Wait => {
                if let Some(c) = self.clients.get_mut(&id) {
                    c.waits = true;
                }
            }
        }
    }

    fn refuse(&self, id: u64, text: impl Into<String>) {
        self.reply(id, &Reply::Error(Error::new(text)));
    }

    fn refuse_in_phase(&self, id: u64) {
        self.refuse(id, format!("cannot do that in the {} state", self.phase));
    }

    /// Asks the Sentry for a client.
    fn ask_for(&mut self, r: &Running, id: u64, kind: ToSentry, given: Vec<HostFd>) {
        self.ask(r, Some(id), kind, given);
    }

    /// Whether this client has made a program ready; it may have ended.
    fn has_process(&self, id: u64) -> bool {
        self.clients.get(&id).is_some_and(|c| c.process.is_some())
    }

    /// Starts what the client made ready; or else the first program.
    fn start_for(&mut self, r: &Running, id: u64, given: Vec<HostFd>) {
        if self.has_process(id) {
            if let Some(p) = self.own(id) {
                let given = Vec::new();
                let message = Message::Begin { process: p, given };
                self.tell(r, Sender::silent(id), message);
            }
            return;
        }
        match self.phase {
            Status::Created => {
                self.start(r, given);
                self.reply(id, &Reply::Done(0));
            }
            Status::Creating => {
                self.refuse(id, "cannot start a container that has not been created");
            }
            _ => self.refuse(id, "cannot start a container that has been started"),
        }
    }

    fn signal_for(&mut self, r: &Running, id: u64, signal: i32, target: Target) {
        if !(0..=64).contains(&signal) {
            return self.refuse(id, format!("there is no signal {signal}"));
        }
        match target {
            Target::Process(p) if self.processes.contains_key(&p) => {
                self.signal_process(r, Sender::confirmed(id), signal, p);
            }
            Target::Process(_) => self.reply(id, &Reply::Error(Error::NoProcess)),
            Target::All => self.signal(r, Sender::confirmed(id), signal, Recipient::All),
            // A client that started a process sends its signals without waiting.
            Target::Own if self.has_process(id) => {
                if let Some(p) = self.own(id) {
                    self.signal_process(r, Sender::silent(id), signal, p);
                }
            }
            Target::Own => self.signal(r, Sender::confirmed(id), signal, Recipient::First),
        }
    }

    /// Has a program made ready. What a connection started ends with it: it can be one program
    /// only.
    fn exec_for(&mut self, r: &Running, id: u64, given: Vec<HostFd>) {
        if self.started_one(id) {
            self.refuse(id, "this connection has started a program already");
        } else if !matches!(self.phase, Status::Running | Status::Created) {
            self.refuse_in_phase(id);
        } else if self.are_execs_full() {
            self.refuse(
                id,
                "too many programs are being made ready in the container",
            );
        } else {
            self.ask_for(r, id, ToSentry::Exec, given);
        }
    }

    fn are_execs_full(&self) -> bool {
        let execs = self.pending.values().filter(|p| p.kind == ToSentry::Exec);
        execs.count() >= EXECS_MAX
    }

    fn started_one(&self, id: u64) -> bool {
        let starts = |p: &Pending| p.client == Some(id) && p.kind == ToSentry::Exec;
        self.pending.values().any(starts) || self.has_process(id)
    }

    fn accept(&mut self) {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let Ok(fd) = rustix::net::accept_with(&self.listener, flags) else {
            return;
        };
        if self.clients.len() < self.clients_max {
            let c = Client {
                fd,
                process: None,
                waits: false,
                is_held: false,
            };
            self.clients.insert(self.next, c);
            self.next += 1;
        } else {
            let text = "the container has too many clients";
            client::write_reply(fd.as_raw_fd(), &Reply::Error(Error::new(text)));
        }
    }

    fn hung_up(&mut self, r: &Running, id: u64) {
        // Of these the answer still counts: a program that nobody waits for is to be ended, and
        // what is paused is known to be.
        let counts = |kind| matches!(kind, ToSentry::Exec | ToSentry::Pause | ToSentry::Resume);
        self.pending
            .retain(|_, p| p.client != Some(id) || counts(p.kind));
        for number in self.outbox.forget(id) {
            self.pending.remove(&number);
        }
        // What went out is given up: the application can hold it up.
        let execs = self.pending.iter();
        let execs = execs.filter(|(_, p)| p.client == Some(id) && p.kind == ToSentry::Exec);
        let execs: Vec<u32> = execs.map(|(n, _)| *n).collect();
        for number in execs {
            let (kind, given) = (ToSentry::GiveUp, Vec::new());
            let message = Message::Ask {
                kind,
                number,
                given,
            };
            self.tell(r, Sender::OWN, message);
        }
        if let Some(p) = self.clients.remove(&id).and_then(|c| c.process) {
            // Nobody can learn of its end: as if its process on the host had been killed.
            if self.processes.remove(&p).is_some() {
                self.signal_process(r, Sender::OWN, libc::SIGKILL, p);
            }
        }
    }

    fn own_signal(&mut self, r: &Running, signal: i32) {
        match (signal, &self.terminal) {
            (libc::SIGWINCH, Some(t)) => {
                if let Some((rows, cols)) = terminal::size(t) {
                    let message = Message::Window {
                        rows,
                        cols,
                        process: 0,
                    };
                    self.tell(r, Sender::OWN, message);
                }
            }
            (libc::SIGWINCH, None) => {}
            (s, _) => self.signal(r, Sender::OWN, s, Recipient::First),
        }
    }
}

impl Monitor {
    /// The Sentry has done what it was asked.
    fn done(&mut self, r: &Running, p: &Pending, number: u32, result: u32) {
        match p.kind {
            // It has read what was told before.
            ToSentry::Ping if p.client.is_none() => {
                self.kills.retain(|_, k| k.again != Some(number));
            }
            ToSentry::Pause => self.phase = Status::Paused,
            ToSentry::Resume => self.phase = Status::Running,
            ToSentry::Exec => self.made_ready(r, p.client, result),
            _ => {}
        }
        if let Some(c) = p.client {
            self.reply(c, &Reply::Done(result));
        }
    }

    /// A program of `exec` is ready. One without a client is not run.
    fn made_ready(&mut self, r: &Running, client: Option<u64>, process: u32) {
        let client = client.and_then(|id| Some((id, self.clients.get_mut(&id)?)));
        if let Some((id, c)) = client {
            c.process = Some(process);
            self.processes.insert(process, id);
        } else {
            self.signal_process(r, Sender::OWN, libc::SIGKILL, process);
        }
    }
}

impl Attendant for Monitor {
    fn note(&mut self, text: &str) {
        self.log.error(text);
    }

    fn out_of_memory(&mut self, kills: u64, text: &str) {
        use std::io::Write;
        self.log.error(text);
        // A byte for each: it is looked at by its length.
        if kills <= KILLS_COUNTED
            && let Err(e) = self.kills_for_memory.write_all(b".")
        {
            self.log
                .error(&format!("could not count what memory ended: {e}"));
        }
    }

    fn poll(&mut self, fds: &mut Vec<libc::pollfd>) {
        let mut add = |fd: i32, events| {
            fds.push(libc::pollfd {
                fd,
                events,
                revents: 0,
            });
        };
        add(self.signals.raw(), libc::POLLIN);
        add(self.listener.as_raw_fd(), libc::POLLIN);
        self.polled.clear();
        for (id, c) in &self.clients {
            self.polled.push(*id);
            // (That it hangs up is told whatever is waited for.)
            let events = if c.is_held { 0 } else { libc::POLLIN };
            add(c.fd.as_raw_fd(), events);
        }
    }

    fn ready(&mut self, r: &Running, fds: &[libc::pollfd]) {
        if fds[0].revents != 0 {
            while let Ok(s) = host::next_signal(&self.signals) {
                self.own_signal(r, s);
            }
        }
        let ready: Vec<(u64, bool)> = self
            .polled
            .iter()
            .zip(&fds[2..])
            .filter(|(_, f)| f.revents != 0)
            .map(|(id, f)| (*id, f.revents & libc::POLLHUP != 0))
            .collect();
        for (id, gone) in ready {
            let Some(fd) = self.clients.get(&id).map(|c| c.fd.as_raw_fd()) else {
                continue;
            };
            // (What it said before it went, and nobody has read, it has given up.)
            let request = if gone { None } else { client::read_request(fd) };
            match request {
                Some((request, given)) => self.request(r, id, request, given),
                None => self.hung_up(r, id),
            }
        }
        if fds[1].revents != 0 {
            self.accept();
        }
    }

    fn wants_room(&self) -> bool {
        !self.outbox.is_empty()
    }

    fn room(&mut self, r: &Running) {
        for (w, sent) in self.outbox.flush(|m| m.send(r)) {
            self.told(&w, sent);
        }
    }

    fn answer(&mut self, r: &Running, a: Answer) {
        match a {
            // Said again, it means nothing: a container never goes back.
            Answer::Ready if self.phase != Status::Creating => {}
            Answer::Ready => {
                self.phase = Status::Created;
                self.deadline = None;
                if let Some(f) = self.on_ready.take() {
                    f();
                }
            }
            Answer::Done { number, result } => {
                if let Some(p) = self.pending.remove(&number) {
                    self.done(r, &p, number, result);
                }
            }
            Answer::Refused { number, text } => {
                if let Some(c) = self.pending.remove(&number).and_then(|p| p.client) {
                    self.reply(c, &Reply::Error(Error::new(text)));
                }
            }
            Answer::Exited { pid, status } => {
                self.kills.remove(&pid);
                if let Some(id) = self.processes.remove(&pid) {
                    self.reply(id, &Reply::Exited(status));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let kills = self.kills.values().map(|k| k.deadline);
        kills.chain(self.deadline).min()
    }

    fn late(&mut self, r: &Running) {
        let now = Instant::now();
        self.overdue |= self.deadline.is_some_and(|d| d <= now);
        let late: Vec<u32> = self
            .kills
            .iter()
            .filter(|(_, k)| k.deadline <= now)
            .map(|(p, _)| *p)
            .collect();
        if late.is_empty() {
            return;
        }
        for process in &late {
            let signal = libc::SIGKILL;
            let to = Recipient::Process(*process);
            self.tell(r, Sender::OWN, Message::Signal { signal, to });
        }
        let ping = Some(self.ask(r, None, ToSentry::Ping, Vec::new()));
        for process in late {
            if let Some(k) = self.kills.get_mut(&process) {
                self.overdue |= k.again.is_some();
                (k.again, k.deadline) = (ping, now + limits::KILL);
            }
        }
    }

    fn left(&mut self) {
        self.left = true;
    }

    fn is_over(&self) -> bool {
        self.overdue || self.ended_by.is_some()
    }
}
