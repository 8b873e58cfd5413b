//! Making sockets: which family and type does what (`socket(2)`, `socketpair(2)`).

use crate::netlink::Subsystem;
use crate::ns::NetNamespace;
use crate::protocol::Caller;
use crate::socket::Socket;
use crate::sys::*;
use crate::unix::{self, UnixSock};
use crate::{host_socket, netlink, packet, raw, tcp, udp};
use abi::Result;
use abi::errno::{EAFNOSUPPORT, EINVAL, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT};
use std::sync::Arc;

/// `socket(2)`; `kind` without SOCK_NONBLOCK and SOCK_CLOEXEC.
pub fn socket(
    ns: &Arc<NetNamespace>,
    family: i32,
    kind: u32,
    protocol: i32,
    who: &Caller<'_>,
) -> Result<Arc<Socket>> {
    if !(0..46).contains(&family) {
        return Err(EAFNOSUPPORT);
    }
    // Of packet sockets the protocol is a link's.
    let known = family == i32::from(AF_PACKET) || (0..=262).contains(&protocol);
    if kind > 10 || !known {
        return Err(EINVAL);
    }
    let parts = match family as u16 {
        AF_UNIX => {
            if protocol != 0 && protocol != i32::from(AF_UNIX) {
                return Err(EPROTONOSUPPORT);
            }
            let kind = match kind {
                SOCK_STREAM | SOCK_DGRAM | SOCK_SEQPACKET => kind,
                SOCK_RAW => SOCK_DGRAM,
                _ => return Err(ESOCKTNOSUPPORT),
            };
            unix::new(ns, kind)
        }
        f @ (AF_INET | AF_INET6) => match (kind, protocol) {
            (SOCK_STREAM, 0 | IPPROTO_TCP)
            | (SOCK_DGRAM, 0 | IPPROTO_UDP | IPPROTO_ICMP | IPPROTO_ICMPV6)
                if let Some(h) = &ns.host =>
            {
                host_socket::new(ns, h, f, kind, protocol)?
            }
            (SOCK_STREAM, 0 | IPPROTO_TCP) => tcp::new(ns, f),
            (SOCK_DGRAM, 0 | IPPROTO_UDP) => udp::new(ns, f),
            (SOCK_DGRAM, IPPROTO_ICMP) if f == AF_INET => raw::ping(ns, f, who)?,
            (SOCK_DGRAM, IPPROTO_ICMPV6) if f == AF_INET6 => raw::ping(ns, f, who)?,
            (SOCK_STREAM | SOCK_DGRAM, _) => return Err(EPROTONOSUPPORT),
            (SOCK_RAW, _) if protocol == 0 => return Err(EPROTONOSUPPORT),
            (SOCK_RAW, _) if ns.host.is_some() => return Err(EPERM),
            (SOCK_RAW, n) => raw::raw(ns, f, n, who)?,
            _ => return Err(ESOCKTNOSUPPORT),
        },
        AF_NETLINK => match (kind, protocol) {
            (SOCK_RAW | SOCK_DGRAM, 0) => netlink::new(ns, kind, Subsystem::Route),
            (SOCK_RAW | SOCK_DGRAM, 4) => netlink::new(ns, kind, Subsystem::SockDiag),
            (SOCK_RAW | SOCK_DGRAM, 12) if ns.takes_rules() => {
                netlink::new(ns, kind, Subsystem::Netfilter)
            }
            (SOCK_RAW | SOCK_DGRAM, 15) => netlink::new(ns, kind, Subsystem::Uevent),
            (SOCK_RAW | SOCK_DGRAM, _) => return Err(EPROTONOSUPPORT),
            _ => return Err(ESOCKTNOSUPPORT),
        },
        AF_PACKET => packet::new(ns, kind, protocol, who)?,
        _ => return Err(EAFNOSUPPORT),
    };
    let _ = parts.common.creator.set(who.ucred());
    if let Some(d) = &who.cred.landlock {
        let _ = parts.common.landlock.set(d.clone());
    }
    let _ = parts.common.user.set(who.cred.ucounts().clone());
    Ok(Arc::new(Socket::new(parts)))
}

/// `socketpair(2)`.
pub fn socketpair(
    ns: &Arc<NetNamespace>,
    family: i32,
    kind: u32,
    protocol: i32,
    who: &Caller<'_>,
) -> Result<(Arc<Socket>, Arc<Socket>)> {
    let a = socket(ns, family, kind, protocol, who)?;
    let b = socket(ns, family, kind, protocol, who)?;
    match (a.downcast::<UnixSock>(), b.downcast::<UnixSock>()) {
        (Some(x), Some(y)) => {
            unix::join(x, y, who.ucred());
            a.common.set_peer(who.cred);
            b.common.set_peer(who.cred);
        }
        _ => return Err(EOPNOTSUPP),
    }
    Ok((a, b))
}
