//! Seccomp listeners: whose they are, and what they receive.
//!
//! All stub processes share one descriptor table with the Sentry, and a thread that starts tells
//! its listener's number in memory that its application can write. So the number is a claim. What
//! proves it is the listener's first notification: the host says which thread made it.
//!
//! ## Invariants
//!
//! - A listener in use is in [`State::owned`]; its number is closed under the same lock that takes
//!   it out. So a number that is checked under the lock stays what it is.
//! - A listener comes into use only with a notification of the thread that it is claimed for.
//! - Only a thread's first notification is received by whoever claims its listener. Where another
//!   had claimed it, falsely, both wait in [`State::strays`] for the start that they belong to.
//! - The lock is a leaf, held for calls that do not sleep. Nobody waits for one start to let
//!   another begin.
//!
//! ## Pace
//!
//! A listener keeps its filter, and the host frees a filter's code in a kernel worker, some
//! thousands a second. Where more than 1,024 of these jobs wait on a CPU, Linux (6.18) locks up:
//! the one that holds the lock of all BPF code waits for another job of the same queue. Then no
//! thread of the host can install a filter any more (docs/decisions/0020). So [`BURST`] listeners
//! are closed in a millisecond; what is more waits for a thread that closes the rest at that pace.
//! They stay in [`State::owned`] until then.

use abi::Result;
use abi::errno::{EINTR, ENOENT};
use hostcall::{HostFd, RawFd, process as host};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many listeners are closed in each [`PERIOD`] at most.
const BURST: u32 = 8;
const PERIOD: Duration = Duration::from_millis(1);

/// The listeners of all application and service threads.
#[derive(Clone, Default)]
pub(super) struct Listeners(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    owned: HashSet<RawFd>,
    /// By the id of the thread that has made the notification.
    strays: HashMap<i32, (RawFd, libc::seccomp_notif)>,
    /// Those to be closed later. Where there are some, a thread closes them.
    late: VecDeque<RawFd>,
    pace: Pace,
}

/// How many listeners were closed in the period that has begun then.
#[derive(Default)]
struct Pace {
    begun: Option<Instant>,
    closed: u32,
}

impl Pace {
    /// Whether one more may be closed now. It counts as closed.
    fn allows(&mut self, now: Instant) -> bool {
        if self.begun.is_none_or(|t| now.duration_since(t) >= PERIOD) {
            (self.begun, self.closed) = (Some(now), 0);
        }
        let allowed = self.closed < BURST;
        self.closed += u32::from(allowed);
        allowed
    }
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
    fd: RawFd,
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
            fd,
            all: self.clone(),
        }
    }

    /// Closes the listeners with numbers from `from` to `to` that nobody owns and whose threads
    /// have ended: those that hostile applications hid.
    pub(super) fn sweep(&self, from: RawFd, to: RawFd) {
        for fd in from..to {
            let mut s = self.0.lock();
            if s.owned.contains(&fd) || !host::is_listener(fd) || events(fd) & libc::POLLHUP == 0 {
                continue;
            }
            s.strays.retain(|_, (stray, _)| *stray != fd);
            s.owned.insert(fd);
            self.close(&mut s, fd);
        }
    }

    /// Closes a listener that is owned: now, or soon where many were closed just now.
    fn close(&self, s: &mut State, fd: RawFd) {
        if s.late.is_empty() && s.pace.allows(Instant::now()) {
            return s.close_now(fd);
        }
        s.late.push_back(fd);
        if s.late.len() == 1 {
            let all = self.clone();
            let thread = std::thread::Builder::new().name("closer".into());
            if thread.spawn(move || all.close_late()).is_err() {
                // The host has no thread for it.
                s.late.clear();
                s.close_now(fd);
            }
        }
    }

    /// Closes what waits to be closed.
    fn close_late(&self) {
        loop {
            std::thread::sleep(PERIOD);
            let mut s = self.0.lock();
            for _ in 0..BURST {
                let Some(fd) = s.late.front().copied() else {
                    break;
                };
                s.close_now(fd);
                s.late.pop_front();
            }
            if s.late.is_empty() {
                return;
            }
        }
    }
}

impl State {
    fn close_now(&mut self, fd: RawFd) {
        drop(HostFd::from_raw(fd));
        self.owned.remove(&fd);
    }
}

impl Listener {
    pub fn raw(&self) -> RawFd {
        self.fd
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.all.close(&mut self.all.0.lock(), self.fd);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_a_burst() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        for _ in 0..BURST {
            assert!(pace.allows(begun));
        }
        assert!(!pace.allows(begun + PERIOD / 2));
        assert!(pace.allows(begun + PERIOD));
    }

    #[test]
    fn what_is_late_is_owned_until_it_is_closed() {
        let all = Listeners::default();
        let open: Vec<Listener> = (0..10 * BURST)
            .map(|_| {
                let fd = hostcall::mem::memfd(c"listener").unwrap();
                let fd = std::mem::ManuallyDrop::new(fd).raw();
                all.own(&mut all.0.lock(), fd)
            })
            .collect();
        let fds: Vec<RawFd> = open.iter().map(Listener::raw).collect();
        // All in one period, but for a stall.
        let begun = Some(Instant::now() + Duration::from_secs(60));
        all.0.lock().pace = Pace { begun, closed: 0 };
        drop(open);
        {
            let s = all.0.lock();
            let closed = fds.iter().filter(|fd| !s.owned.contains(fd)).count();
            assert!(closed >= BURST as usize);
            assert_eq!(closed + s.late.len(), fds.len());
        }
        while !all.0.lock().late.is_empty() {
            std::thread::yield_now();
        }
        assert!(all.0.lock().owned.is_empty());
    }
}
