//! What the commands say to a monitor: one JSON packet each way on its socket, descriptors beside
//! it.
//!
//! Only the owner of the state directory reaches the socket.
//!
//! # Invariants
//!
//! - A client that is told of a failure does not get what it asked for later: what a client has
//!   given up before the monitor read it is not read. (What the Sentry has been asked may still
//!   come, where it did not answer in time.)
//! - A program of `exec` runs only once its client, which has learnt its process, says so
//!   ([`Connection::begin`]); one whose client has gone never does.
//! - Whatever takes long by its nature is waited for as long as the Sentry answers a
//!   [`Request::Ping`].

use crate::state::{Dir, Status};
use crate::{Error, Result, Tried, deadline};
use abi::errno::{ECONNRESET, EPIPE};
use config::Limits;
use hostcall::{HostFd, RawFd, sock, start as host};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The longest packet.
pub const MAX: usize = 16 << 10;
/// How long a container may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a monitor may take to tell its status.
const STATUS_PATIENCE: Duration = Duration::from_secs(5);
/// How long the Sentry may take to be ready for the start: it reads the root file system, which
/// may be far away.
pub const READY_LIMIT: Duration = Duration::from_secs(120);

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    Status,
    /// The first program; or the one that this client made ready by `Exec`, which is not answered.
    /// For the first there may be devices: the descriptors that the Sentry wants then
    /// ([`config::control::ToSentry::Start`]).
    Start,
    /// Whether the Sentry is there.
    Ping,
    /// To all, or to a process that a client started, by its pid inside; for 0, to this client's,
    /// or else to the first program.
    Signal {
        signal: i32,
        all: bool,
        #[serde(default)]
        process: u32,
    },
    Window {
        rows: u16,
        cols: u16,
    },
    /// Makes a program ready: with the body in a file, and the program's descriptors.
    Exec,
    Pause,
    Resume,
    /// What the sandbox is told of limits that have changed.
    Limits(Box<Limits>),
    /// One more container, with the descriptors that the Sentry wants.
    Join,
    /// Into the descriptor.
    Census,
    /// The same, of the network.
    Network,
    /// Rules of the network, in the descriptor.
    Rules,
    /// Devices have come, changed or gone: the descriptors that the Sentry wants then
    /// ([`config::control::ToSentry::Refresh`]).
    Refresh,
    /// As `Census`, of the memory.
    Memory,
    /// The same, by places.
    Map,
    /// Bounds of a process's memory, in the descriptor.
    Bounds,
    Changes,
    /// Answered when the container ends.
    Wait,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    Status(Status),
    /// Done; for `Exec`, the process id inside.
    Done(u32),
    Error(Error),
    /// A wait status.
    Exited(i32),
}

/// A connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

pub fn address(dir: &Dir) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(dir.socket()).tried("name the container's socket")
}

pub fn socket() -> Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .tried("make a socket")
}

/// Of a monitor that is stopped, or of a Sentry that does not do what it is asked.
fn no_answer(within: Duration) -> Error {
    Error::new(format!(
        "the container did not answer within {} s: delete it with --force",
        within.as_secs()
    ))
}

impl Connection {
    /// Fails where no monitor listens.
    pub fn open(dir: &Dir) -> Result<Connection> {
        Connection::to(dir)?.map_err(|e| match e {
            Errno::AGAIN => no_answer(PATIENCE),
            _ => Error::NotRunning,
        })
    }

    /// `EAGAIN` where a monitor does not accept, and many wait for it.
    fn to(dir: &Dir) -> Result<rustix::io::Result<Connection>> {
        let s = socket()?;
        // It holds for connect(2), too (unix(7) does not tell; the kernel's unix_stream_connect()
        // does).
        set_socket_timeout(&s, Timeout::Send, Some(STATUS_PATIENCE)).tried("limit a socket")?;
        let to = address(dir)?;
        Ok(rustix::net::connect(&s, &to).map(|()| Connection(s)))
    }

    pub fn send(&self, r: &Request, given: &[RawFd]) -> Result<()> {
        let text = serde_json::to_vec(r).tried("ask")?;
        if given.len() > sock::MAX_FDS {
            return Err(Error::new(format!(
                "{} descriptors cannot be given to a container: at most {} can",
                given.len(),
                sock::MAX_FDS
            )));
        }
        match sock::send(self.0.as_raw_fd(), &text, given) {
            Ok(_) => Ok(()),
            // The monitor has hung up: it may have said why.
            Err(EPIPE | ECONNRESET) => Err(match self.receive() {
                Ok(Reply::Error(e)) => e,
                _ => Error::NotRunning,
            }),
            Err(_) => Err(Error::NotRunning),
        }
    }

    /// Whether there is an answer, or the connection's end, in time. An error where one of
    /// `signals` comes before.
    pub fn answers_until(
        &self,
        deadline: Option<Instant>,
        signals: Option<&HostFd>,
    ) -> Result<bool> {
        loop {
            let mut fds =
                [self.0.as_raw_fd(), signals.map_or(-1, HostFd::raw)].map(|fd| libc::pollfd {
                    fd,
                    events: libc::POLLIN,
                    revents: 0,
                });
            let polled = hostcall::file::poll(&mut fds, deadline::left(deadline));
            if let (Ok(1..), Some(s)) = (polled, signals)
                && let Ok(n) = host::next_signal(s)
            {
                return Err(Error::Interrupted(u8::try_from(n).unwrap_or(u8::MAX)));
            }
            match polled {
                Ok(1..) if fds[0].revents != 0 => return Ok(true),
                _ if deadline.is_some_and(|d| Instant::now() >= d) => return Ok(false),
                // A part of a millisecond may be left.
                _ => {}
            }
        }
    }

    fn answers_within(&self, limit: Duration) -> bool {
        // (Without signals nothing fails.)
        matches!(
            self.answers_until(Some(Instant::now() + limit), None),
            Ok(true)
        )
    }

    /// The next answer, however long it takes.
    pub fn receive(&self) -> Result<Reply> {
        let mut buf = vec![0; MAX];
        let fd = self.0.as_raw_fd();
        let received = match sock::recv(fd, &mut buf) {
            // Told once, and first, where the other side has not read all; its last words are
            // behind.
            Err(ECONNRESET) => sock::recv(fd, &mut buf),
            r => r,
        };
        match received {
            Ok((n, _)) if n > 0 => {
                serde_json::from_slice(&buf[..n]).tried("understand the container's monitor")
            }
            _ => Err(Error::NotRunning),
        }
    }

    /// Has a program made ready, however long that takes, as long as the Sentry answers other
    /// questions; but not longer than until `deadline`, nor if one of `signals` comes. Gives its
    /// process, which waits for [`Connection::begin`].
    pub fn exec(
        &self,
        given: &[RawFd],
        deadline: Option<Instant>,
        signals: Option<&HostFd>,
    ) -> Result<u32> {
        self.send(&Request::Exec, given)?;
        let mut asked = false;
        loop {
            let patience = Instant::now() + PATIENCE;
            let until = deadline.map_or(patience, |d| d.min(patience));
            if self.answers_until(Some(until), signals)? {
                match self.done()? {
                    // No process: the answer to the question below.
                    0 => asked = false,
                    process => return Ok(process),
                }
            } else if deadline.is_some_and(|d| d <= until) {
                return Err(Error::new("the program was not ready in time"));
            } else if asked {
                return Err(no_answer(PATIENCE));
            } else {
                self.send(&Request::Ping, &[])?;
                asked = true;
            }
        }
    }

    /// Runs what [`Connection::exec`] made ready. From here on it counts as run, whatever becomes
    /// of it.
    pub fn begin(&self) -> Result<()> {
        self.send(&Request::Start, &[])
    }

    /// Asks, and gives what `Done` carries. Dropping the connection takes back what was asked for.
    pub fn ask(&self, r: &Request, given: &[RawFd]) -> Result<u32> {
        self.send(r, given)?;
        let patience = match r {
            // Its root may be far away.
            Request::Join => READY_LIMIT,
            _ => PATIENCE,
        };
        if !self.answers_within(patience) {
            return Err(no_answer(patience));
        }
        self.done()
    }

    /// What a `Done` carries that is still to come.
    pub fn done(&self) -> Result<u32> {
        match self.receive()? {
            Reply::Done(n) => Ok(n),
            Reply::Error(e) => Err(e),
            other => Err(Error::new(format!(
                "the container's monitor said {other:?}"
            ))),
        }
    }
}

/// The status that a monitor tells, `None` if it does not answer in time; an error where there is
/// none.
pub fn status(dir: &Dir) -> Result<Option<Status>> {
    let c = match Connection::to(dir)? {
        Ok(c) => c,
        Err(Errno::AGAIN) => return Ok(None),
        Err(_) => return Err(Error::NotRunning),
    };
    c.send(&Request::Status, &[])?;
    if !c.answers_within(STATUS_PATIENCE) {
        return Ok(None);
    }
    match c.receive()? {
        Reply::Status(s) => Ok(Some(s)),
        other => Err(Error::new(format!(
            "the container's monitor said {other:?}"
        ))),
    }
}

/// Reads a packet of a client: `None` at the end, or where it makes no sense.
pub fn read_request(fd: RawFd) -> Option<(Request, Vec<HostFd>)> {
    let mut buf = vec![0; MAX];
    match sock::try_recv(fd, &mut buf) {
        Ok((n, given)) if n > 0 => Some((serde_json::from_slice(&buf[..n]).ok()?, given)),
        _ => None,
    }
}

/// Whether a packet is a request that this version knows: what a monitor finds out first.
#[must_use]
pub fn check_request(packet: &[u8]) -> bool {
    serde_json::from_slice::<Request>(packet).is_ok()
}

/// What a monitor says first to the command that it is a copy of: the process that is ready, or why
/// there is none.
pub type FirstWord = Result<u32>;

/// `false` where the command is gone.
pub fn say_first(fd: RawFd, word: &FirstWord) -> bool {
    let word = word.clone().map_err(Error::fit);
    serde_json::to_vec(&word).is_ok_and(|text| sock::send(fd, &text, &[]).is_ok())
}

/// `None` where the monitor has ended without it.
pub fn hear_first(fd: RawFd) -> Option<FirstWord> {
    let mut buf = vec![0; MAX];
    match sock::recv(fd, &mut buf) {
        Ok((n, _)) if n > 0 => serde_json::from_slice(&buf[..n]).ok(),
        _ => None,
    }
}

pub fn write_reply(fd: RawFd, r: &Reply) {
    // A client that is gone needs no answer; one that does not read, or was stopped, is not waited
    // for.
    if let Ok(text) = serde_json::to_vec(r) {
        let _ = sock::try_send(fd, &text, &[]);
    }
}
