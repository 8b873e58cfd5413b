//! Taking over the devices of a network namespace: the sandbox's own TCP/IP stack speaks for them
//! from then on, and the host answers nothing.
//!
//! All of it happens in the network namespace of the calling thread, before any allow-list.
//! [`inside`] brings a thread to another one.
//!
//! # Order
//!
//! 1. What there is is read ([`Setup`]): devices, addresses, routes, permanent neighbours.
//! 2. A packet socket is opened for each device. Up to here nothing has changed.
//! 3. What was there is handed to the caller to keep ([`Kept`]).
//! 4. IPv6 of the devices is turned off and their addresses go, and with them their routes. Where
//!    this fails, all is put back.
//!
//! Later [`refresh`] does the same for what has come since, and finds what has gone.
//!
//! # Invariants
//!
//! - The initial network namespace is never touched: the machine would be cut off.
//! - An error means that the namespace is as it was, as far as the host let it.
//! - Between the sockets' opening and the addresses' end the host may still answer; afterwards it
//!   has no address to answer for. (It resets connections that it does not know otherwise.)

mod difference;
mod kept;
mod namespace;
mod read;
mod refresh;
mod rtnetlink;
#[cfg(test)]
mod tests;

pub use hostcall::packet::Link;
pub use kept::Kept;
pub use namespace::{Namespace, Place, inside};
pub use netstack::setup::Setup;
pub use refresh::{Change, refresh};

use crate::{Error, step};
use abi::errno::{EACCES, EPERM};
use config::DEVICES_MAX;
use hostcall::HostFd;
use rtnetlink::Rtnetlink;
use std::net::UdpSocket;
use std::os::fd::{IntoRawFd, OwnedFd};

/// What came of it.
#[derive(Debug)]
pub enum Outcome {
    Taken(Box<OwnedDevices>),
    /// There is no device beside the loopback.
    Nothing,
    /// This process has no right to.
    NotAllowed,
}

/// Devices that are this process's.
#[derive(Debug)]
pub struct OwnedDevices {
    pub setup: Setup,
    /// In the order of the setup's devices.
    pub links: Vec<Link>,
    /// A socket that is connected to Docker's name server, where that listens in the namespace.
    pub names: Option<HostFd>,
    pub kept: Kept,
    /// What is not as it was on the host, a sentence each.
    pub warnings: Vec<String>,
}

/// Takes over the devices of this network namespace. `keep` is called before anything changes, with
/// what is to be put back some time ([`Kept::put_back`]).
///
/// # Errors
///
/// Nothing was taken. [`Error::HostsNetwork`] for the initial namespace.
pub fn take_over<E: From<Error>>(
    keep: impl FnOnce(&Kept) -> std::result::Result<(), E>,
) -> std::result::Result<Outcome, E> {
    if namespace::is_initial()? {
        return Err(Error::HostsNetwork.into());
    }
    let mut host = step("ask for the network's devices", Rtnetlink::open())?;
    let mut seen = read::see(&mut host)?;
    if seen.setup.devices.is_empty() {
        return Ok(Outcome::Nothing);
    }
    let count = seen.setup.devices.len();
    if count > DEVICES_MAX {
        return Err(Error::TooManyDevices { count }.into());
    }
    let links = match open(&seen.setup) {
        Err((_, EPERM | EACCES)) => return Ok(Outcome::NotAllowed),
        Err((name, errno)) => {
            return Err(Error::step(&format!("open the device {name}"), errno).into());
        }
        Ok(links) => links,
    };
    match host.may_change() {
        Err(EPERM | EACCES) => return Ok(Outcome::NotAllowed),
        r => step("ask for the right to change devices", r)?,
    }
    let names = names();
    seen.kept.has_names = names.is_some();
    keep(&seen.kept)?;
    let mut warnings = seen.warnings;
    if let Err(e) = seen.kept.clear(&mut host, &mut warnings) {
        // What fails on the way back is less than what failed before.
        let _ = seen.kept.put_back();
        return Err(e.into());
    }
    Ok(Outcome::Taken(Box::new(OwnedDevices {
        setup: seen.setup,
        links,
        names,
        kept: seen.kept,
        warnings,
    })))
}

/// A socket to Docker's name server. It listens on the loopback device of its containers'
/// namespaces, at ports of its own that their address translation leads to.
fn names() -> Option<HostFd> {
    /// As `/proc/net/udp` has it.
    const SERVER: &str = " 0B00007F:";
    let bound = std::fs::read_to_string("/proc/thread-self/net/udp").ok()?;
    if !bound.contains(SERVER) {
        return None;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.connect("127.0.0.11:53").ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(HostFd::from_raw(OwnedFd::from(socket).into_raw_fd()))
}

/// Whether the network namespace of this thread is the machine's own.
pub fn is_hosts() -> std::result::Result<bool, Error> {
    namespace::is_initial()
}

/// Whether the network namespace of this thread has no device but the loopback.
pub fn is_alone() -> std::result::Result<bool, Error> {
    let mut host = step("ask for the network's devices", Rtnetlink::open())?;
    read::is_alone(&mut host)
}

fn open(setup: &Setup) -> std::result::Result<Vec<Link>, (String, abi::Errno)> {
    let open = |d: &netstack::setup::Device| {
        hostcall::packet::open(d.index).map_err(|e| (d.name.clone(), e))
    };
    setup.devices.iter().map(open).collect()
}
