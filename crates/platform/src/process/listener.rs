//! Seccomp listeners: whose they are, and what they receive.

use abi::Result;
use abi::errno::{EINTR, ENOENT};
use hostcall::{HostFd, RawFd, process as host};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// The numbers of the listeners in use.
pub(super) type Claimed = Arc<Mutex<HashSet<RawFd>>>;

/// A seccomp listener that is ours.
pub struct Listener {
    /// `None` only while dropped.
    fd: Option<HostFd>,
    claimed: Claimed,
}

impl Listener {
    /// A number read from an application's memory is believed only if the host says that it is a listener
    /// and nobody has claimed it.
    pub(super) fn claim(fd: RawFd, claimed: &Claimed) -> Option<Listener> {
        let mut numbers = claimed.lock();
        (host::is_listener(fd) && numbers.insert(fd)).then(|| Listener {
            fd: Some(HostFd::from_raw(fd)),
            claimed: claimed.clone(),
        })
    }

    pub fn raw(&self) -> RawFd {
        self.fd.as_ref().expect("until drop").raw()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Under the lock: forgotten first it could be claimed once more, closed first its number could be
        // given out again.
        let claimed = self.claimed.clone();
        let mut numbers = claimed.lock();
        let fd = self.raw();
        self.fd = None;
        numbers.remove(&fd);
    }
}

/// Receives the next notification. `ENOENT` when nobody is left who could send one.
pub fn recv(listener: &Listener) -> Result<libc::seccomp_notif> {
    loop {
        let mut n = zeroed_notif();
        match host::notif_recv(listener.raw(), &mut n) {
            Ok(()) => return Ok(n),
            Err(EINTR) => {}
            Err(ENOENT) => {
                let mut p = [libc::pollfd {
                    fd: listener.raw(),
                    events: libc::POLLIN,
                    revents: 0,
                }];
                hostcall::file::poll(&mut p, 0)?;
                if p[0].revents & libc::POLLHUP != 0 {
                    return Err(ENOENT);
                }
            }
            Err(e) => return Err(e),
        }
    }
}

pub(super) fn zeroed_notif() -> libc::seccomp_notif {
    libc::seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: libc::seccomp_data {
            nr: 0,
            arch: 0,
            instruction_pointer: 0,
            args: [0; 6],
        },
    }
}
