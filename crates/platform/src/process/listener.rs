//! Seccomp listeners: whose they are, and what they receive.
//!
//! All stub processes share one descriptor table with the Sentry, and a thread that starts tells its listener's number
//! in memory that its application can write. So the number is a claim. What proves it is the listener's first
//! notification: the host says which thread made it.
//!
//! ## Invariants
//!
//! - A listener in use is in [`State::owned`]; its number is closed under the same lock that takes it out. So a number
//!   that is checked under the lock stays what it is.
//! - A listener comes into use only with a notification of the thread that it is claimed for.
//! - Only a thread's first notification is received by whoever claims its listener. Where another had claimed it, falsely,
//!   both wait in [`State::strays`] for the start that they belong to.
//! - The lock is a leaf, held for calls that do not sleep. Nobody waits for one start to let another begin.

use abi::Result;
use abi::errno::{EINTR, ENOENT};
use hostcall::{HostFd, RawFd, process as host};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The listeners of all application and service threads.
#[derive(Clone, Default)]
pub(super) struct Listeners(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    owned: HashSet<RawFd>,
    /// By the id of the thread that has made the notification.
    strays: HashMap<i32, (RawFd, libc::seccomp_notif)>,
}

/// What a claimed number turned out to be.
pub(super) enum Claim {
    /// The thread's own listener, and its first notification.
    Own(Listener, libc::seccomp_notif),
    /// Nothing to be received yet.
    Silent,
    /// Anything else.
    False,
}

/// A seccomp listener that is ours.
pub struct Listener {
    /// `None` only while dropped.
    fd: Option<HostFd>,
    all: Listeners,
}

impl Listeners {
    /// Whether `fd` is the listener of the thread `tid`, which lives.
    pub(super) fn claim(&self, fd: RawFd, tid: i32) -> Claim {
        let mut s = self.0.lock();
        if let Some((stray, n)) = s.strays.remove(&tid) {
            // The thread that had this id before may have left it.
            if events(stray) & libc::POLLHUP == 0 {
                return Claim::Own(self.own(&mut s, stray), n);
            }
            drop(HostFd::from_raw(stray));
        }
        if s.owned.contains(&fd) || s.strays.values().any(|(stray, _)| *stray == fd) {
            return Claim::False;
        }
        let ready = events(fd);
        if ready & libc::POLLIN == 0 {
            return match ready {
                0 => Claim::Silent,
                _ => Claim::False,
            };
        }
        let mut n = zeroed_notif();
        match host::notif_recv(fd, &mut n) {
            Ok(()) if n.pid as i32 == tid => Claim::Own(self.own(&mut s, fd), n),
            Ok(()) => {
                if let Some((old, _)) = s.strays.insert(n.pid as i32, (fd, n)) {
                    drop(HostFd::from_raw(old));
                }
                Claim::False
            }
            // Interrupted, or the thread was just ended.
            Err(EINTR | ENOENT) => Claim::Silent,
            Err(_) => Claim::False,
        }
    }

    fn own(&self, s: &mut State, fd: RawFd) -> Listener {
        s.owned.insert(fd);
        Listener {
            fd: Some(HostFd::from_raw(fd)),
            all: self.clone(),
        }
    }

    /// Closes the listeners with numbers from `from` to `to` that nobody owns and whose threads have ended: those that
    /// hostile applications hid.
    pub(super) fn sweep(&self, from: RawFd, to: RawFd) {
        for fd in from..to {
            let mut s = self.0.lock();
            if s.owned.contains(&fd) || !host::is_listener(fd) || events(fd) & libc::POLLHUP == 0 {
                continue;
            }
            s.strays.retain(|_, (stray, _)| *stray != fd);
            drop(HostFd::from_raw(fd));
        }
    }
}

impl Listener {
    pub fn raw(&self) -> RawFd {
        self.fd.as_ref().expect("until drop").raw()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let all = self.all.clone();
        let mut s = all.0.lock();
        let fd = self.raw();
        self.fd = None;
        s.owned.remove(&fd);
    }
}

/// What poll(2) says of a descriptor at once.
fn events(fd: RawFd) -> i16 {
    let mut p = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    // (An error of the call is none of the descriptor's: the caller asks again.)
    hostcall::file::poll(&mut p, 0).map_or(0, |_| p[0].revents)
}

/// Receives the next notification. `ENOENT` when nobody is left who could send one.
pub fn recv(listener: &Listener) -> Result<libc::seccomp_notif> {
    loop {
        let mut n = zeroed_notif();
        match host::notif_recv(listener.raw(), &mut n) {
            Ok(()) => return Ok(n),
            Err(EINTR) => {}
            Err(ENOENT) => {
                if events(listener.raw()) & libc::POLLHUP != 0 {
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
