//! What a TCP socket may be bound to, and what its connections are between.

use super::{State, Tcp};
use crate::addr::{Endpoint, parse_bind, parse_inet};
use crate::inet::{
    IP_FREEBIND, IP_TRANSPARENT, IPV6_FREEBIND, IPV6_TRANSPARENT, IPV6_V6ONLY, InetOptions,
};
use crate::options::Common;
use crate::protocol::Caller;
use crate::sys::*;
use abi::Result;
use abi::errno::{EACCES, EADDRNOTAVAIL, EINVAL, ENETUNREACH, ENOBUFS};
use netstack::tcp::Seq;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use vfs::Caps;

/// The address that a caller may bind (`EADDRNOTAVAIL`, `EACCES`), for TCP and UDP.
pub fn bindable(
    common: &Common,
    options: &InetOptions,
    who: &Caller<'_>,
    addr: &[u8],
) -> Result<Endpoint> {
    let at = parse_bind(addr, common.family)?;
    if common.family == AF_INET6 && at.ip.is_ipv4() && options.on(SOL_IPV6, IPV6_V6ONLY) {
        return Err(EINVAL);
    }
    let free = [
        (SOL_IP, IP_FREEBIND),
        (SOL_IP, IP_TRANSPARENT),
        (SOL_IPV6, IPV6_FREEBIND),
        (SOL_IPV6, IPV6_TRANSPARENT),
    ];
    let setting = match common.family {
        AF_INET => "ip_nonlocal_bind",
        _ => "ip_nonlocal_bind_v6",
    };
    let free = free
        .into_iter()
        .any(|(level, name)| options.on(level, name))
        || common.ns.kept_number(setting).is_some_and(|n| n != 0);
    let group =
        common.kind == SOCK_DGRAM && (at.ip.is_multicast() || common.ns.is_broadcast(at.ip));
    if !at.ip.is_unspecified() && !common.ns.is_local(at.ip) && !free && !group {
        return Err(EADDRNOTAVAIL);
    }
    let first = common.ns.unprivileged_port_start.load(Ordering::Relaxed);
    if at.port != 0 && at.port < first && !who.cred.has_in(&common.ns.user, Caps::NET_BIND_SERVICE)
    {
        return Err(EACCES);
    }
    Ok(at)
}

/// The destination that an address means, from a socket bound to `local`, and the source address.
pub fn route(
    common: &Common,
    options: &InetOptions,
    local: Option<Endpoint>,
    to: Endpoint,
) -> Result<(Endpoint, IpAddr)> {
    let mut ip = common.ns.resolve(to.ip);
    let bound = local.map(|l| l.ip).filter(|ip| !ip.is_unspecified());
    if to.ip.is_unspecified()
        && let Some(b) = bound
    {
        // "This host" from an address of one family stays in it.
        ip = if b.is_ipv4() == ip.is_ipv4() { ip } else { b };
    }
    let v6only = common.family == AF_INET6 && options.on(SOL_IPV6, IPV6_V6ONLY);
    if (ip.is_ipv4() && v6only) || !common.ns.reaches(ip) {
        common.ns.miss(ip);
        return Err(common.ns.why_unreached(ip));
    }
    if bound.is_some_and(|b| b.is_ipv4() != ip.is_ipv4()) {
        return Err(ENETUNREACH);
    }
    let source = bound.unwrap_or_else(|| common.ns.source_for(ip));
    Ok((Endpoint { ip, port: to.port }, source))
}

/// The ends of a connection that begins.
#[derive(Clone, Copy)]
pub(super) struct Between {
    pub local: Endpoint,
    pub remote: Endpoint,
    /// The least sequence number that it may begin with, where it follows one that is not
    /// forgotten.
    pub least: Option<Seq>,
}

/// What a connection is between, seen from the socket that connects.
pub(super) struct Ends {
    pub local: Endpoint,
    pub remote: Endpoint,
    /// The application knows of it.
    pub announced: bool,
}

impl Tcp {
    /// The ends of a connection to `addr`: this socket's own, bound by now, and the other one.
    pub(super) fn ends(&self, s: &mut State, who: &Caller<'_>, addr: &[u8]) -> Result<Between> {
        let to = parse_inet(addr, self.common.family)?;
        who.cred.may_take_more(ENOBUFS)?;
        let bound = s.bound.ip.map(|ip| Endpoint { ip, port: 0 });
        let (remote, ip) = route(&self.common, &self.options, bound, to)?;
        let (port, least) = self.take_port(s, who.cred.euid, ip, remote)?;
        let local = Endpoint { ip, port };
        s.local = Some(local);
        Ok(Between {
            local,
            remote,
            least,
        })
    }
}
