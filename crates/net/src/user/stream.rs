//! A TCP connection that the broker made: a descriptor of the host. What a socket does with it is
//! TCP's (`tcp::by_broker`).

use super::UserNetwork;
use crate::addr::Endpoint;
use crate::options::{Common, SO_ERROR, SO_KEEPALIVE, SO_LINGER};
use crate::readiness::Watched;
use crate::sys::{SOL_SOCKET, SOL_TCP};
use abi::errno::EINVAL;
use abi::{Errno, Result};
use hostcall::HostFd;
use hostcall::inet as host;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::ucounts::Charge;

const TCP_INFO: i32 = 11;
/// States of `tcp_info.tcpi_state`.
const SYN_SENT: u8 = 2;
const CLOSED: u8 = 7;

/// See the module.
pub(crate) struct Stream {
    network: Arc<UserNetwork>,
    common: Arc<Common>,
    fd: HostFd,
    pub local: Endpoint,
    pub remote: Endpoint,
    /// Whether a connect call has told of it.
    announced: AtomicBool,
    _watched: Watched,
    /// The descriptor is its maker's, of few.
    _charge: Option<Charge>,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    Connecting,
    Connected,
    /// Refused, reset, or over.
    Closed,
}

impl Stream {
    /// Has the broker connect to `remote`. `EACCES` where the policy does not allow it
    /// (`connect(2)`).
    pub fn connect(
        network: &Arc<UserNetwork>,
        common: &Arc<Common>,
        remote: Endpoint,
    ) -> Result<Arc<Stream>> {
        let (fd, at) = network.connect(common.outermost_user(), remote)?;
        let ip = network.address(remote.ip).unwrap_or(at.ip);
        let local = Endpoint { ip, port: at.port };
        Self::new(network, common, fd, local, remote, false)
    }

    /// A connection that the broker has taken for a published port.
    pub fn accepted(
        network: &Arc<UserNetwork>,
        common: &Arc<Common>,
        fd: HostFd,
        local: Endpoint,
        remote: Endpoint,
    ) -> Result<Arc<Stream>> {
        Self::new(network, common, fd, local, remote, true)
    }

    fn new(
        network: &Arc<UserNetwork>,
        common: &Arc<Common>,
        fd: HostFd,
        local: Endpoint,
        remote: Endpoint,
        announced: bool,
    ) -> Result<Arc<Stream>> {
        let charge = common.charge_descriptor()?;
        let watched = network.readiness.watch(&fd, common)?;
        let stream = Arc::new(Stream {
            network: network.clone(),
            common: common.clone(),
            fd,
            local,
            remote,
            announced: AtomicBool::new(announced),
            _watched: watched,
            _charge: charge,
        });
        let known = Arc::downgrade(&stream);
        network.streams.lock().insert(stream.fd.raw(), known);
        Ok(stream)
    }

    pub fn common(&self) -> &Arc<Common> {
        &self.common
    }

    pub fn progress(&self) -> Progress {
        match host::option(self.fd.raw(), SOL_TCP, TCP_INFO, 8).as_deref() {
            Ok([SYN_SENT, ..]) => Progress::Connecting,
            Ok([CLOSED, ..]) => Progress::Closed,
            // (The broker's resolver is no TCP socket.)
            Ok(_) | Err(_) => Progress::Connected,
        }
    }

    /// Whether this is the first call that tells of the connection.
    pub fn announce(&self) -> bool {
        !self.announced.swap(true, Ordering::Relaxed)
    }

    /// The descriptor: connected, and nowhere else (see [`super`]).
    pub fn fd(&self) -> &HostFd {
        &self.fd
    }

    /// Sets an option, where it is one that the host's socket has to know.
    pub fn set_option(&self, level: i32, name: i32, v: &[u8]) -> Result<()> {
        if !is_hosts(level, name) {
            return Ok(());
        }
        if v.len() > super::wire::OPTION_MAX {
            return Err(EINVAL);
        }
        self.network.set_option(&self.fd, level, name, v)
    }

    /// Has its end be a reset: as SO_LINGER with a time of zero asks.
    pub fn reset(&self) {
        let on = [1i32.to_ne_bytes(), [0; 4]].concat();
        let _ = self
            .network
            .set_option(&self.fd, SOL_SOCKET, SO_LINGER, &on);
    }

    /// SO_ERROR: why it is over; taken.
    pub fn take_error(&self) -> Option<Errno> {
        let v = host::option(self.fd.raw(), SOL_SOCKET, SO_ERROR, 4).ok()?;
        Errno::new(i32::from_ne_bytes(v.try_into().ok()?))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // (The descriptor is still open: its number is nobody else's.)
        self.network.streams.lock().remove(&self.fd.raw());
    }
}

/// Options that the broker sets on a connection; all others are kept here only.
#[must_use]
pub fn is_hosts(level: i32, name: i32) -> bool {
    match level {
        SOL_SOCKET => matches!(name, SO_KEEPALIVE | SO_LINGER),
        // NODELAY, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, LINGER2, WINDOW_CLAMP, QUICKACK,
        // USER_TIMEOUT, NOTSENT_LOWAT.
        SOL_TCP => matches!(name, 1 | 3..=6 | 8 | 10 | 12 | 18 | 25),
        _ => false,
    }
}
