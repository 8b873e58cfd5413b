//! What a domain says of TCP's ports (`security/landlock/net.c`).

use crate::addr::{family_of, is_inet};
use crate::options::Common;
use crate::sys::{AF_INET, AF_INET6, AF_UNSPEC, SOCK_STREAM};
use abi::Result;
use abi::errno::{EACCES, EAFNOSUPPORT, EINVAL};
use vfs::Credentials;
use vfs::landlock::{Domain, NetAccess};

/// The shortest `struct sockaddr_in` and `sockaddr_in6`.
const INET: usize = 16;
const INET6: usize = 24;

/// The caller's domain, if it has a say about this socket.
fn domain<'a>(socket: &Common, cred: &'a Credentials) -> Option<&'a Domain> {
    let tcp = socket.kind == SOCK_STREAM && is_inet(socket.family);
    let domain = cred.landlock.as_ref().filter(|_| tcp);
    domain.filter(|d| d.confines_ports())
}

/// `EACCES` for a port that the caller may not bind.
pub fn may_bind(socket: &Common, cred: &Credentials, addr: &[u8]) -> Result<()> {
    let Some(domain) = domain(socket, cred) else {
        return Ok(());
    };
    if family_of(addr)? == AF_UNSPEC {
        // Means any address of IPv4.
        let ip = addr.get(4..8).filter(|_| addr.len() >= INET);
        if socket.family != AF_INET {
            return Err(EINVAL);
        }
        if ip.ok_or(EINVAL)? != [0; 4] {
            return Err(EAFNOSUPPORT);
        }
        return of_port(domain, port(addr)?, NetAccess::BIND_TCP);
    }
    check(domain, socket, addr, NetAccess::BIND_TCP)
}

/// `EACCES` for a port that the caller may not connect to. Ending a connection is allowed.
pub fn may_connect(socket: &Common, cred: &Credentials, addr: &[u8]) -> Result<()> {
    match domain(socket, cred) {
        Some(d) if family_of(addr)? != AF_UNSPEC => check(d, socket, addr, NetAccess::CONNECT_TCP),
        _ => Ok(()),
    }
}

fn check(domain: &Domain, socket: &Common, addr: &[u8], access: NetAccess) -> Result<()> {
    let family = family_of(addr)?;
    let least = match family {
        AF_INET => INET,
        AF_INET6 => INET6,
        // The protocol says what it thinks of it.
        _ => return Ok(()),
    };
    if addr.len() < least || family != socket.family {
        return Err(EINVAL);
    }
    of_port(domain, port(addr)?, access)
}

fn port(addr: &[u8]) -> Result<u16> {
    let port = addr.get(2..4).ok_or(EINVAL)?;
    Ok(u16::from_be_bytes([port[0], port[1]]))
}

fn of_port(domain: &Domain, port: u16, access: NetAccess) -> Result<()> {
    match domain.allows_port(port, access) {
        true => Ok(()),
        false => Err(EACCES),
    }
}
