//! NETLINK_SOCK_DIAG (`sock_diag(7)`): what sockets there are, as `ss` asks for them.

use super::message::{Builder, Request, word};
use crate::addr::{Endpoint, any_ip};
use crate::census::InetSocket;
use crate::ns::NetNamespace;
use crate::sys::*;
use crate::unix_names::UnixSocket;
use abi::Result;
use abi::errno::{EINVAL, ENOENT};
use std::net::IpAddr;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_MULTI: u16 = 2;

/// `struct inet_diag_req_v2`.
struct InetRequest {
    family: u16,
    protocol: u8,
    /// Bit N - 1 for the attribute N.
    extensions: u8,
    /// Bit N for the state N.
    states: u32,
    /// Of one socket.
    id: [u8; 48],
}

/// `INET_DIAG_*`.
const MEMINFO: u16 = 1;
const INFO: u16 = 2;
const CONG: u16 = 4;
const SKMEMINFO: u16 = 7;
const SHUTDOWN: u16 = 8;
const SKV6ONLY: u16 = 11;

fn inet_request(req: &Request<'_>) -> Result<InetRequest> {
    let b = req.body();
    let id = b.get(8..56).and_then(|id| id.try_into().ok());
    Ok(InetRequest {
        family: b.first().copied().unwrap_or(0).into(),
        protocol: b.get(1).copied().unwrap_or(0),
        extensions: b.get(2).copied().unwrap_or(0),
        states: word(b, 4),
        id: id.ok_or(EINVAL)?,
    })
}

/// The messages that answer a dump. `ENOENT`: there are no such sockets here.
pub(super) fn dump(ns: &NetNamespace, req: &Request<'_>, port: u32) -> Result<Vec<Vec<u8>>> {
    if req.kind != SOCK_DIAG_BY_FAMILY {
        return Err(EINVAL);
    }
    match u16::from(req.family()) {
        AF_INET | AF_INET6 => {
            let r = inet_request(req)?;
            let all = sockets(ns, &r)?.into_iter();
            let all = all.filter(|s| s.family == r.family && r.states & 1 << s.state != 0);
            Ok(all.map(|s| inet(req, NLM_F_MULTI, port, &r, &s)).collect())
        }
        AF_UNIX => {
            let (states, show) = (word(req.body(), 4), word(req.body(), 12));
            let all = ns.unix_sockets().into_iter();
            let all = all.filter(|s| states & 1 << s.state != 0);
            Ok(all
                .map(|s| unix(req, NLM_F_MULTI, port, show, &s))
                .collect())
        }
        _ => Err(ENOENT),
    }
}

/// One socket, by its addresses or its inode.
pub(super) fn one(ns: &NetNamespace, req: &Request<'_>, port: u32) -> Result<Vec<u8>> {
    if req.kind != SOCK_DIAG_BY_FAMILY {
        return Err(EINVAL);
    }
    match u16::from(req.family()) {
        AF_INET | AF_INET6 => {
            let r = inet_request(req)?;
            let mut all = sockets(ns, &r)?.into_iter();
            // Ports and addresses; without a remote one a listener is meant.
            let same = |s: &InetSocket| s.family == r.family && id(s)[..36] == r.id[..36];
            let found = all.find(same).ok_or(ENOENT)?;
            Ok(inet(req, 0, port, &r, &found))
        }
        AF_UNIX => {
            let (ino, show) = (word(req.body(), 8), word(req.body(), 12));
            let all = ns.unix_sockets();
            let found = all.iter().find(|s| s.ino as u32 == ino).ok_or(ENOENT)?;
            Ok(unix(req, 0, port, show, found))
        }
        _ => Err(ENOENT),
    }
}

fn sockets(ns: &NetNamespace, r: &InetRequest) -> Result<Vec<InetSocket>> {
    match r.protocol {
        6 => Ok(ns.tcp_sockets()),
        17 => Ok(ns.udp_sockets()),
        255 => Ok(ns.raw_sockets()),
        _ => Err(ENOENT),
    }
}

fn octets(ip: IpAddr, family: u16) -> [u8; 16] {
    let mut o = [0; 16];
    match (ip, family) {
        (IpAddr::V4(a), AF_INET) => o[..4].copy_from_slice(&a.octets()),
        (IpAddr::V4(a), _) if a.is_unspecified() => {}
        (IpAddr::V4(a), _) => o = a.to_ipv6_mapped().octets(),
        (IpAddr::V6(a), _) => o = a.octets(),
    }
    o
}

/// `struct inet_diag_sockid`.
fn id(s: &InetSocket) -> Vec<u8> {
    let none = Endpoint {
        ip: any_ip(s.family),
        port: 0,
    };
    let remote = s.remote.unwrap_or(none);
    let mut v = s.local.port.to_be_bytes().to_vec();
    v.extend_from_slice(&remote.port.to_be_bytes());
    v.extend_from_slice(&octets(s.local.ip, s.family));
    v.extend_from_slice(&octets(remote.ip, s.family));
    v.extend_from_slice(&s.device.to_le_bytes());
    v.extend_from_slice(&s.ino.to_le_bytes());
    v
}

/// `struct inet_diag_msg` and its attributes.
fn inet(req: &Request<'_>, flags: u16, port: u32, r: &InetRequest, s: &InetSocket) -> Vec<u8> {
    let wants = |attr: u16| r.extensions & 1 << (attr - 1) != 0;
    let mut b = Builder::new(SOCK_DIAG_BY_FAMILY, flags, req, port)
        .bytes(&[s.family as u8, s.state, 0, 0])
        .bytes(&id(s));
    for n in [0, s.receive_queue, s.send_queue, s.uid, s.ino as u32] {
        b = b.bytes(&n.to_le_bytes());
    }
    b = b.attr(SHUTDOWN, &[0]);
    if s.family == AF_INET6 && matches!(s.state, 7 | 10) {
        b = b.attr(SKV6ONLY, &[s.v6_only.into()]);
    }
    let memory = [s.receive_queue, 0, 0, s.send_queue];
    if wants(MEMINFO) {
        b = b.attr(MEMINFO, &memory.map(u32::to_le_bytes).concat());
    }
    if wants(SKMEMINFO) {
        let (send, receive) = s.buffers;
        let all = [s.receive_queue, receive, s.send_queue, send, 0, 0, 0, 0, 0];
        b = b.attr(SKMEMINFO, &all.map(u32::to_le_bytes).concat());
    }
    if let Some(info) = s.info.as_deref().filter(|_| wants(INFO)) {
        b = b.attr(INFO, info);
    }
    if r.protocol == 6 && wants(CONG) {
        b = b.attr(CONG, &[s.congestion.as_bytes(), b"\0"].concat());
    }
    b.finish()
}

/// `struct unix_diag_msg` and its attributes.
fn unix(req: &Request<'_>, flags: u16, port: u32, show: u32, s: &UnixSocket) -> Vec<u8> {
    let shows = |bit: u32| show & 1 << bit != 0;
    let mut b = Builder::new(SOCK_DIAG_BY_FAMILY, flags, req, port)
        .bytes(&[AF_UNIX as u8, s.kind as u8, s.state, 0])
        .bytes(&(s.ino as u32).to_le_bytes())
        .bytes(&s.ino.to_le_bytes());
    if shows(0) && !s.name.is_empty() {
        b = b.attr(0, &s.name);
    }
    if let (true, Some(peer)) = (shows(2), s.peer) {
        b = b.attr32(2, peer as u32);
    }
    if shows(4) {
        let queues = [s.receive_queue, s.send_queue];
        b = b.attr(4, &queues.map(u32::to_le_bytes).concat());
    }
    if shows(6) {
        b = b.attr32(7, s.uid);
    }
    b.attr(6, &[0]).finish()
}
