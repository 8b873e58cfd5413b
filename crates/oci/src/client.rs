//! What the commands say to a monitor: one JSON packet each way on its socket, descriptors beside it.
//!
//! Only the owner of the state directory reaches the socket.
//!
//! # Invariants
//!
//! - What was told to have failed does not happen later. Above all, a program of `exec` runs only once its client,
//!   which has learnt its process, says so ([`Connection::begin`]); one whose client has gone never does.
//! - Whatever takes long by its nature is waited for as long as the Sentry answers a [`Request::Ping`].

use crate::state::{Dir, Status};
use crate::{Failure, NOT_RUNNING, Result, Tried};
use hostcall::{HostFd, RawFd, sock};
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

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    Status,
    /// The first program; or the one that this client made ready by `Exec`, which is not answered.
    Start,
    /// Whether the Sentry is there.
    Ping,
    /// To all, or to a process that a client started, by its pid inside; for 0, to this client's, or else to
    /// the first program.
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
    /// Tasks inside, at most; 0 for no limit.
    PidsLimit {
        limit: u32,
    },
    /// One more container, with the descriptors that the Sentry wants.
    Join,
    /// Into the descriptor.
    Census,
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
    Error(String),
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
fn no_answer(within: Duration) -> Failure {
    Failure(format!(
        "the container did not answer within {} s: delete it with --force",
        within.as_secs()
    ))
}

impl Connection {
    /// Fails where no monitor listens.
    pub fn open(dir: &Dir) -> Result<Connection> {
        Connection::to(dir)?.map_err(|e| match e {
            Errno::AGAIN => no_answer(PATIENCE),
            _ => Failure(NOT_RUNNING.into()),
        })
    }

    /// `EAGAIN` where a monitor does not accept, and many wait for it.
    fn to(dir: &Dir) -> Result<rustix::io::Result<Connection>> {
        let s = socket()?;
        // It holds for connect(2), too (unix(7) does not tell; the kernel's unix_stream_connect() does).
        set_socket_timeout(&s, Timeout::Send, Some(STATUS_PATIENCE)).tried("limit a socket")?;
        let to = address(dir)?;
        Ok(rustix::net::connect(&s, &to).map(|()| Connection(s)))
    }

    pub fn send(&self, r: &Request, given: &[RawFd]) -> Result<()> {
        let text = serde_json::to_vec(r).tried("ask")?;
        if given.len() > sock::MAX_FDS {
            return Err(Failure(format!(
                "{} descriptors cannot be given to a container: at most {} can",
                given.len(),
                sock::MAX_FDS
            )));
        }
        sock::send(self.0.as_raw_fd(), &text, given)
            .map(|_| ())
            .map_err(|_| Failure(NOT_RUNNING.into()))
    }

    /// Whether there is an answer, or the connection's end, within a time.
    fn answers_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [libc::pollfd {
                fd: self.0.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            match hostcall::file::poll(&mut fds, left.as_millis() as i32) {
                Ok(0) if left.is_zero() => return false,
                // A part of a millisecond may be left.
                Ok(0) => {}
                Ok(_) => return true,
                Err(_) if left.is_zero() => return false,
                Err(_) => {}
            }
        }
    }

    /// The next answer, however long it takes.
    pub fn receive(&self) -> Result<Reply> {
        let mut buf = vec![0; MAX];
        match sock::recv(self.0.as_raw_fd(), &mut buf) {
            Ok((n, _)) if n > 0 => {
                serde_json::from_slice(&buf[..n]).tried("understand the container's monitor")
            }
            _ => Err(Failure(NOT_RUNNING.into())),
        }
    }

    /// Has a program made ready, however long that takes (but until `deadline`, if there is one), as long as the
    /// Sentry answers others. Gives its process, which waits for [`Connection::begin`].
    pub fn exec(&self, dir: &Dir, given: &[RawFd], deadline: Option<Instant>) -> Result<u32> {
        self.send(&Request::Exec, given)?;
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if self.answers_within(left.map_or(PATIENCE, |l| l.min(PATIENCE))) {
                return self.done();
            }
            if left.is_some_and(|l| l <= PATIENCE) {
                return Err(Failure("the program was not ready in time".into()));
            }
            Connection::open(dir)?.ask(&Request::Ping, &[])?;
        }
    }

    /// Runs what [`Connection::exec`] made ready. From here on it counts as run, whatever becomes of it.
    pub fn begin(&self) -> Result<()> {
        self.send(&Request::Start, &[])
    }

    /// Asks, and gives what `Done` carries. Who drops the connection takes back what was asked for.
    pub fn ask(&self, r: &Request, given: &[RawFd]) -> Result<u32> {
        self.send(r, given)?;
        let patience = match r {
            // An archive takes as long as its reader does.
            Request::Changes => None,
            // Its root may be far away.
            Request::Join => Some(crate::monitor::READY_LIMIT),
            _ => Some(PATIENCE),
        };
        if let Some(p) = patience
            && !self.answers_within(p)
        {
            return Err(no_answer(p));
        }
        self.done()
    }

    fn done(&self) -> Result<u32> {
        match self.receive()? {
            Reply::Done(n) => Ok(n),
            Reply::Error(e) => Err(Failure(e)),
            other => Err(Failure(format!("the container's monitor said {other:?}"))),
        }
    }
}

/// The status that a monitor tells, `None` if it does not answer in time; an error where there is none.
pub fn status(dir: &Dir) -> Result<Option<Status>> {
    let c = match Connection::to(dir)? {
        Ok(c) => c,
        Err(Errno::AGAIN) => return Ok(None),
        Err(_) => return Err(Failure(NOT_RUNNING.into())),
    };
    c.send(&Request::Status, &[])?;
    if !c.answers_within(STATUS_PATIENCE) {
        return Ok(None);
    }
    match c.receive()? {
        Reply::Status(s) => Ok(Some(s)),
        other => Err(Failure(format!("the container's monitor said {other:?}"))),
    }
}

/// A file in memory with these bytes, to be passed on, and read from its beginning.
pub fn body(bytes: &[u8]) -> Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("request", rustix::fs::MemfdFlags::CLOEXEC)
        .tried("make a file in memory")?;
    let mut f = std::fs::File::from(fd);
    std::io::Write::write_all(&mut f, bytes)
        .and_then(|()| std::io::Seek::rewind(&mut f))
        .tried("write a file in memory")?;
    Ok(f.into())
}

/// Reads a packet of a client: `None` at the end, or where it makes no sense.
pub fn read_request(fd: RawFd) -> Option<(Request, Vec<HostFd>)> {
    let mut buf = vec![0; MAX];
    match sock::try_recv(fd, &mut buf) {
        Ok((n, given)) if n > 0 => Some((serde_json::from_slice(&buf[..n]).ok()?, given)),
        _ => None,
    }
}

pub fn write_reply(fd: RawFd, r: &Reply) {
    // A client that is gone needs no answer; one that does not read, or was stopped, is not waited for.
    if let Ok(text) = serde_json::to_vec(r) {
        let _ = sock::try_send(fd, &text, &[]);
    }
}
