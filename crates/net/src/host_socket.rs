//! Sockets of the host's network ([`crate::host`]).
//!
//! The host's kernel keeps the state; here a descriptor stands for it. What an application may ask
//! of such a socket is listed here: options, flags and ancillary data that are not are refused.

use crate::control::Control;
use crate::host::HostNetwork;
use crate::ns::NetNamespace;
use crate::options::{Common, SO_LINGER};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::readiness::{self, Watched};
use crate::sys::*;
use abi::Result;
use abi::errno::{
    EACCES, EAGAIN, EALREADY, EBADF, EFAULT, EINPROGRESS, EINVAL, EMSGSIZE, ENOPROTOOPT,
};
use hostcall::inet as host;
use hostcall::{HostFd, file, mem};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Caps, Credentials, Sink, Source};
use wait::Events;

struct HostSocket {
    common: Arc<Common>,
    network: Arc<HostNetwork>,
    fd: HostFd,
    _watched: Watched,
}

/// `socket(2)`; the caller has checked family, type and protocol.
pub fn new(
    ns: &Arc<NetNamespace>,
    network: &Arc<HostNetwork>,
    family: u16,
    kind: u32,
    protocol: i32,
) -> Result<Parts> {
    let fd = network.socket(family, kind, protocol)?;
    let protocol = match (kind, protocol) {
        (SOCK_STREAM, 0) => IPPROTO_TCP,
        (SOCK_DGRAM, 0) => IPPROTO_UDP,
        (_, p) => p,
    };
    HostSocket::register(Common::new(ns, family, kind, protocol), network, fd)
}

impl HostSocket {
    fn register(common: Arc<Common>, network: &Arc<HostNetwork>, fd: HostFd) -> Result<Parts> {
        let watched = network.readiness.watch(&fd, &common)?;
        let s = HostSocket {
            common: common.clone(),
            network: network.clone(),
            fd,
            _watched: watched,
        };
        Ok(Parts::new(common, Arc::new(s)))
    }

    /// With SO_LINGER the host's close would wait, up to hours, where nobody can end the wait: what
    /// is unsent goes in the background, as it does with the sockets of our own network. A time of
    /// zero, a reset, stays.
    fn forget_linger(&self) {
        if self.is_stream()
            && let Ok(v) = host::option(self.fd.raw(), SOL_SOCKET, SO_LINGER, 8)
            && v.len() == 8
            && v[..4] != [0; 4]
            && v[4..] != [0; 4]
        {
            let _ = host::set_option(self.fd.raw(), SOL_SOCKET, SO_LINGER, &[0; 8]);
        }
    }

    fn is_stream(&self) -> bool {
        self.common.kind == SOCK_STREAM
    }
}

impl Drop for HostSocket {
    fn drop(&mut self) {
        self.forget_linger();
    }
}

/// Flags that go to the host.
const SEND_FLAGS: u32 = MSG_OOB | MSG_DONTROUTE | MSG_EOR | MSG_CONFIRM | MSG_MORE | MSG_FASTOPEN;
const MSG_CONFIRM: u32 = 0x800;
const RECEIVE_FLAGS: u32 = MSG_OOB | MSG_PEEK | MSG_TRUNC | MSG_ERRQUEUE;

/// Ancillary data that a send may carry: level and type.
const SEND_CONTROL: &[(i32, i32)] = &[
    (SOL_IP, 1),    // IP_TOS
    (SOL_IP, 2),    // IP_TTL
    (SOL_IP, 8),    // IP_PKTINFO
    (SOL_IPV6, 50), // IPV6_PKTINFO
    (SOL_IPV6, 52), // IPV6_HOPLIMIT
    (SOL_IPV6, 67), // IPV6_TCLASS
    (SOL_UDP, 103), // UDP_SEGMENT
];

/// Options at SOL_SOCKET that are the host's matter; the others are kept here.
const SOCKET_OPTIONS: &[i32] = &[
    2,  // SO_REUSEADDR
    4,  // SO_ERROR
    5,  // SO_DONTROUTE
    6,  // SO_BROADCAST
    7,  // SO_SNDBUF
    8,  // SO_RCVBUF
    9,  // SO_KEEPALIVE
    10, // SO_OOBINLINE
    12, // SO_PRIORITY
    SO_LINGER, 15, // SO_REUSEPORT
    25, // SO_BINDTODEVICE
    29, // SO_TIMESTAMP
    30, // SO_ACCEPTCONN
    35, // SO_TIMESTAMPNS
    40, // SO_RXQ_OVFL
];

/// Whether an option of a protocol goes to the host.
fn passes(level: i32, name: i32) -> bool {
    match level {
        SOL_IP => matches!(name, 1 | 2 | 8 | 10..=15 | 24 | 32..=36 | 49 | 51),
        SOL_IPV6 => matches!(name, 16..=21 | 23..=26 | 49 | 51 | 66 | 67 | 70 | 72),
        // Not MD5SIG, the REPAIR family and ULP.
        SOL_TCP => matches!(name, 1..=13 | 18 | 23..=25 | 30 | 33 | 34 | 36),
        SOL_UDP => matches!(name, 1 | 103 | 104),
        _ => false,
    }
}

impl Protocol for HostSocket {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        if let [_, _, high, low, ..] = addr {
            let port = u16::from_be_bytes([*high, *low]);
            let free = self
                .common
                .ns
                .unprivileged_port_start
                .load(Ordering::Relaxed);
            if port != 0 && port < free && !who.cred.has(Caps::NET_BIND_SERVICE) {
                return Err(EACCES);
            }
        }
        self.network.bind(&self.fd, addr)
    }

    /// The host's socket knows whether it is connecting; asked again, it tells how that went.
    fn connect(&self, _: &Caller<'_>, addr: &[u8], block: Block) -> Result<()> {
        match (host::connect(self.fd.raw(), addr), block) {
            (Err(EINPROGRESS | EALREADY), Block::Yes) => Err(EAGAIN),
            (r, _) => r,
        }
    }

    fn listen(&self, _: &Caller<'_>, backlog: i32) -> Result<()> {
        host::listen(self.fd.raw(), backlog)
    }

    fn accept(&self) -> Result<Parts> {
        let fd = host::accept(self.fd.raw())?;
        HostSocket::register(
            Common::inherit(&self.common, &self.common),
            &self.network,
            fd,
        )
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        host::local_name(self.fd.raw())
    }
    fn peer_name(&self) -> Result<Vec<u8>> {
        host::peer_name(self.fd.raw())
    }

    fn send(
        &self,
        _: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        if control
            .other
            .iter()
            .any(|(l, t, _)| !SEND_CONTROL.contains(&(*l, *t)))
        {
            return Err(EINVAL);
        }
        let control = Control {
            other: control.other,
            ..Control::default()
        };
        let (control, cut) = control.encode(host::CONTROL_MAX, &mut |_| Err(EBADF));
        if cut {
            return Err(EINVAL);
        }
        let flags = (flags & SEND_FLAGS) as i32;
        let fd = self.fd.raw();
        let len = src.remaining();
        if self.is_stream() && len > 0 {
            return src.drain(len, &mut |data| host::send(fd, data, dest, &control, flags));
        }
        // A message must go as one, and is copied once: the host sees what was checked.
        if len > 0xffff {
            return Err(EMSGSIZE);
        }
        let mut message = vec![0; len];
        if src.take(&mut message)? < len {
            return Err(EFAULT);
        }
        mem::with_slice_mut(&mut message, |m| {
            host::send(fd, &[m], dest, &control, flags)
        })
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        let fd = self.fd.raw();
        let host_flags = (flags & RECEIVE_FLAGS) as i32;
        let room = dst.remaining();
        let mut got = host::Message::default();
        let n;
        if self.is_stream() && room > 0 && flags & (MSG_TRUNC | MSG_ERRQUEUE) == 0 {
            n = dst.fill(room, &mut |data| {
                got = host::receive(fd, data, host_flags)?;
                Ok(got.n)
            })?;
        } else {
            let mut message = vec![0; room.min(1 << 16)];
            let r = mem::with_slice_mut(&mut message, |m| host::receive(fd, &[m], host_flags));
            got = r?;
            let here = got.n.min(message.len());
            if !(self.is_stream() && flags & MSG_TRUNC != 0) && dst.put(&message[..here])? < here {
                return Err(EFAULT);
            }
            n = got.n;
        }
        let control = Control::parse(&got.control, &mut |_| Err(EBADF)).unwrap_or_default();
        Ok(Received {
            n,
            addr: got.from,
            control,
            flags: got.flags as u32 & (MSG_TRUNC | MSG_OOB | MSG_EOR | MSG_ERRQUEUE | MSG_CTRUNC),
            ends: false,
        })
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        host::shutdown(self.fd.raw(), how.number())
    }

    fn poll(&self) -> Events {
        readiness::now(&self.fd)
    }

    fn set_socket_option(&self, name: i32, v: &[u8]) -> Option<Result<()>> {
        SOCKET_OPTIONS
            .contains(&name)
            .then(|| host::set_option(self.fd.raw(), SOL_SOCKET, name, v))
    }
    fn socket_option(&self, name: i32) -> Option<Result<Vec<u8>>> {
        SOCKET_OPTIONS
            .contains(&name)
            .then(|| host::option(self.fd.raw(), SOL_SOCKET, name, 64))
    }
    fn set_option(&self, _: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        if !passes(level, name) {
            return Err(ENOPROTOOPT);
        }
        host::set_option(self.fd.raw(), level, name, v)
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        if !passes(level, name) {
            return Err(ENOPROTOOPT);
        }
        host::option(self.fd.raw(), level, name, 512)
    }
    fn has_error_queue(&self) -> bool {
        true
    }
    fn unread(&self) -> Result<usize> {
        file::bytes_ready(self.fd.raw()).map(|n| n.max(0) as usize)
    }
    /// The descriptor goes with the last reference.
    fn close(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall::inet::Edges;
    use hostcall::sock;
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::fd::IntoRawFd;
    use std::time::{Duration, Instant};

    #[test]
    fn a_close_does_not_wait_for_the_peer() {
        let (broker, _other) = sock::seqpacket_pair().unwrap();
        let network = HostNetwork::new(broker, Edges::new().unwrap(), Vec::new());
        let ns = NetNamespace::of_host(network.clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_peer, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        // More than the peer takes without reading.
        while (&client).write(&[0; 1 << 16]).is_ok() {}
        let fd = HostFd::from_raw(client.into_raw_fd());
        let seconds = 8i32.to_ne_bytes();
        let linger = [1i32.to_ne_bytes(), seconds].concat();
        host::set_option(fd.raw(), SOL_SOCKET, SO_LINGER, &linger).unwrap();
        let common = Common::new(&ns, AF_INET, SOCK_STREAM, IPPROTO_TCP);
        let s = HostSocket::register(common, &network, fd).unwrap();
        let start = Instant::now();
        drop(s);
        assert!(start.elapsed() < Duration::from_secs(4));
    }
}
