//! A monitor as a process of the host: found by its number and its beginning, and ended.

use crate::{Error, Result, Tried, deadline, state};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a monitor that was killed may take to be gone.
pub const END_LIMIT: Duration = Duration::from_secs(10);

/// Kills a monitor, and with it the sandbox; waits until it is gone.
pub fn end_process(pid: i32, started: u64) -> Result<()> {
    reach(pid, started)?.map_or(Ok(()), |m| m.end())
}

/// A monitor that was alive, whatever becomes of its number.
pub struct Reached {
    pid: i32,
    fd: OwnedFd,
}

/// Finds a monitor by its pid and when that began; `None` where it has ended.
pub fn reach(pid: i32, started: u64) -> Result<Option<Reached>> {
    let is_alive = || state::look(pid, started).tried("look for the container's monitor");
    if !is_alive()? {
        return Ok(None);
    }
    // (Of what is alive, the number is a pid.)
    let Some(number) = Pid::from_raw(pid) else {
        return Ok(None);
    };
    let fd = match pidfd_open(number, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        r => r.tried("reach the container's monitor")?,
    };
    // It may have ended, and the number be another's, between the look and the open.
    Ok(is_alive()?.then_some(Reached { pid, fd }))
}

impl Reached {
    /// Its pidfd.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Kills it, and waits for its end.
    pub fn end(&self) -> Result<()> {
        match pidfd_send_signal(&self.fd, Signal::KILL) {
            Err(Errno::SRCH) => return Ok(()),
            r => r.tried("kill the container's monitor")?,
        }
        let deadline = Instant::now() + END_LIMIT;
        loop {
            let mut fds = [libc::pollfd {
                fd: self.fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            match hostcall::file::poll(&mut fds, deadline::left(Some(deadline))) {
                Ok(1..) => return Ok(()),
                _ if Instant::now() >= deadline => {
                    return Err(Error::new(format!(
                        "the container's monitor, process {}, was killed and does not end: nothing was deleted",
                        self.pid
                    )));
                }
                _ => {}
            }
        }
    }
}
