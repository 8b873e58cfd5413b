//! One child process: its descriptors, and its end.

use crate::control;
use crate::privilege::{self, Namespaces, Standing};
use crate::{EXIT_BROKEN, EXIT_NOT_STARTED, Error, running, step};
use abi::Result;
use abi::errno::{EBUSY, EINVAL, ENOSPC, ENOSYS, EPERM, EPIPE, EUSERS};
use config::control::ToStarter;
use hostcall::start::{self as host, Side};
use hostcall::{HostFd, RawFd, process, sock};
use std::convert::Infallible;
use std::fmt;

/// A process of the sandbox that the starter started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    Sentry,
    Gofer,
    /// Of `--net=host`.
    Broker,
    /// Of `--pcap`.
    Capture,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Sentry => "Sentry",
            Who::Gofer => "Gofer",
            Who::Broker => "broker of sockets",
            Who::Capture => "writer of packets",
        })
    }
}

/// A running child; not yet reaped.
#[derive(Debug)]
pub struct Child {
    pub pid: i32,
    pub pidfd: HostFd,
    /// Whether it has the namespaces that were wished.
    pub has_wished: bool,
}

/// The starter's first word to a child of root's.
const ADMITTED: [u8; 8] = *b"admitted";

impl Child {
    /// Does for a child of root's what it cannot do itself in a user namespace of its own, and
    /// lets it go on.
    pub fn admit(self, standing: Standing, socket: &HostFd) -> std::result::Result<Child, Error> {
        if standing != Standing::Privileged {
            return Ok(self);
        }
        privilege::raise_limits(standing, self.pid);
        let mapped = if self.has_wished {
            privilege::map_as_here(self.pid)
        } else {
            Ok(())
        };
        let told = mapped.and_then(|()| sock::send(socket.raw(), &ADMITTED, &[]));
        match told {
            // What has ended by now says why.
            Ok(_) | Err(EPIPE) => Ok(self),
            Err(e) => {
                running::abandon(self);
                Err(Error::step("admit a process of the sandbox", e))
            }
        }
    }
}

/// Waits until its limits and its ids are set.
pub fn await_admission(socket: &HostFd) -> std::result::Result<(), Error> {
    let mut word = [0; ADMITTED.len()];
    step("wait for the starter", sock::recv(socket.raw(), &mut word))?;
    if word == ADMITTED {
        Ok(())
    } else {
        Err(Error::NotAdmitted)
    }
}

/// Where a child finds its report socket.
pub const REPORT: RawFd = 3;

/// An open `/dev/null`.
pub fn null() -> std::result::Result<HostFd, Error> {
    use std::os::fd::IntoRawFd;
    let f = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null");
    f.map(|f| HostFd::from_raw(f.into_raw_fd()))
        .map_err(|e| Error::file("open /dev/null", e))
}

/// Clones a child that holds nothing but standard error and copies of `wanted` (its report socket
/// first), and runs `main` there with them.
pub fn child(
    who: Who,
    namespaces: Namespaces,
    null: &HostFd,
    wanted: &[RawFd],
    main: impl FnOnce(Vec<HostFd>) -> std::result::Result<Infallible, Error>,
) -> std::result::Result<Child, Error> {
    let Namespaces { needed, wished } = namespaces;
    let mut has_wished = wished != 0;
    let cloned = match host::clone_process(needed | wished) {
        Err(EPERM | ENOSPC | EUSERS | EINVAL) if has_wished => {
            has_wished = false;
            host::clone_process(needed)
        }
        r => r,
    };
    match cloned {
        Ok(Side::Parent { pid, pidfd }) => Ok(Child {
            pid,
            pidfd,
            has_wished,
        }),
        Ok(Side::Child) => {
            let r = step("arrange descriptors", take_over(null.raw(), wanted));
            let e = match r.and_then(|fds| {
                fail_loudly(who);
                main(fds)
            }) {
                Ok(never) => match never {},
                Err(e) => e,
            };
            let text = format!("the {who} {e}");
            let _ = control::send(REPORT, ToStarter::Error, text.as_bytes());
            process::exit_group(i32::from(EXIT_NOT_STARTED))
        }
        Err(errno @ (EPERM | ENOSPC | EUSERS | ENOSYS)) => Err(Error::NoNamespaces { who, errno }),
        Err(EBUSY) => Err(Error::NotAlone(who)),
        Err(e) => Err(Error::step(&format!("start the {who}"), e)),
    }
}

/// Puts standard error on 1 and 2, nothing on 0, `wanted` on the numbers from 3 on, and closes the
/// rest.
fn take_over(null: RawFd, wanted: &[RawFd]) -> Result<Vec<HostFd>> {
    let sources: Vec<RawFd> = [null, 2, 2].iter().chain(wanted).copied().collect();
    let end = sources.len() as RawFd;
    // First out of the way of the numbers to come, then there.
    let copies = sources
        .iter()
        // A closed standard error is nothing, too.
        .map(|fd| host::dup_above(*fd, end).or_else(|_| host::dup_above(null, end)))
        .collect::<Result<Vec<_>>>()?;
    let mut placed = Vec::new();
    for (number, copy) in (0..end).zip(copies) {
        placed.push(process::dup_onto(copy.into_raw(), number)?);
    }
    process::close_from(end)?;
    let given = placed.split_off(3);
    // The standard streams stay open for ever.
    placed.into_iter().for_each(|fd| {
        let _ = fd.into_raw();
    });
    Ok(given)
}

/// A panic in any thread ends the process at once, and the person learns where it was.
fn fail_loudly(who: Who) {
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let what = text
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = format!("the {who} failed at {place}: {what}");
        let _ = control::send(REPORT, ToStarter::Crash, text.as_bytes());
        process::exit_group(i32::from(EXIT_BROKEN))
    }));
}
