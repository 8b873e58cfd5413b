//! Netlink sockets: NETLINK_ROUTE (`rtnetlink(7)`: what can be asked about interfaces, addresses,
//! routes and neighbours, and what can be set of the loopback interface) and NETLINK_SOCK_DIAG
//! ([`diag`]).
//!
//! What answers a dump and finds no room in the receive queue waits for its reader, as its owner's
//! memory.

mod diag;
mod message;

use crate::control::{Control, Ucred};
use crate::interface::{Interface, LO_INDEX};
use crate::msgqueue::{Msg, MsgQueue, take_all};
use crate::ns::{LOOPBACKS, Link, NetNamespace};
use crate::options::{Common, SO_ACCEPTCONN};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::route::Route;
use crate::stream::Take;
use crate::sys::*;
use abi::Result;
use abi::errno::{
    EEXIST, EINVAL, EMSGSIZE, ENETUNREACH, ENOBUFS, ENODEV, ENOPROTOOPT, EOPNOTSUPP, EPERM, Errno,
};
use message::{Builder, HEADER, Request, word};
use netstack::ip::{DeviceCounts, NeighbourInfo};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::ucounts::{Charge, Kind};
use vfs::{Caps, Credentials, Sink, Source};
use wait::Events;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_MIN_TYPE: u16 = 16;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;

/// Which subsystem a socket talks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subsystem {
    Route = 0,
    SockDiag = 4,
}

/// The most that one send may carry.
const MAX_REQUEST: usize = 65536;
/// How full a message with several answers may be.
const BATCH: usize = 3800;

/// A netlink socket.
pub struct Netlink {
    common: Arc<Common>,
    subsystem: Subsystem,
    rx: Arc<MsgQueue>,
    state: Mutex<State>,
    /// Before the receive queue's lock.
    pending: Mutex<Pending>,
}

/// Answers that wait for room.
#[derive(Default)]
struct Pending {
    all: VecDeque<Vec<u8>>,
    memory: Option<Charge>,
}

#[derive(Default)]
struct State {
    /// Its address; 0 until bound.
    port: u32,
    groups: u32,
    /// Options of SOL_NETLINK that are only kept: bit N for option N.
    options: u32,
    connected: bool,
}

pub fn new(ns: &Arc<NetNamespace>, kind: u32, subsystem: Subsystem) -> Parts {
    let common = Common::new(ns, AF_NETLINK, kind, subsystem as i32);
    let rx = MsgQueue::new(&common, 0);
    let nl = Netlink {
        common: common.clone(),
        subsystem,
        rx,
        state: Mutex::new(State::default()),
        pending: Mutex::default(),
    };
    Parts::new(common, Arc::new(nl))
}

fn sockaddr(port: u32, groups: u32) -> Vec<u8> {
    let mut v = u32::from(AF_NETLINK).to_le_bytes().to_vec();
    v.extend_from_slice(&port.to_le_bytes());
    v.extend_from_slice(&groups.to_le_bytes());
    v
}

fn parse(addr: &[u8]) -> Result<(u32, u32)> {
    if addr.len() < 12 || crate::addr::family_of(addr)? != AF_NETLINK {
        return Err(EINVAL);
    }
    Ok((word(addr, 4), word(addr, 8)))
}

fn link(req: &Request<'_>, flags: u16, port: u32, i: &Interface, counts: &DeviceCounts) -> Vec<u8> {
    let stats = stats(counts);
    let narrow: Vec<u8> = stats[..24]
        .iter()
        .flat_map(|n| (*n as u32).to_le_bytes())
        .collect();
    let wide: Vec<u8> = stats.iter().flat_map(|n| n.to_le_bytes()).collect();
    const IFF_UP: u32 = 1;
    const IFF_LOOPBACK: u32 = 8;
    const IFF_LOWER_UP: u32 = 0x1_0000;
    const ARPHRD_ETHER: u16 = 1;
    const ARPHRD_LOOPBACK: u16 = 772;
    let kind = if i.flags & IFF_LOOPBACK != 0 {
        ARPHRD_LOOPBACK
    } else {
        ARPHRD_ETHER
    };
    let mut info = vec![0, 0];
    info.extend_from_slice(&kind.to_le_bytes());
    info.extend_from_slice(&i.index.to_le_bytes());
    let up = i.flags & IFF_UP != 0;
    let broadcast = [if kind == ARPHRD_ETHER { 0xff } else { 0 }; 6];
    let lower = if up { IFF_LOWER_UP } else { 0 };
    // Unknown, as Linux has it for lo; down; up.
    let state = match (kind, up) {
        (ARPHRD_LOOPBACK, true) => 0,
        (_, false) => 2,
        (_, true) => 6,
    };
    info.extend_from_slice(&(i.flags | lower).to_le_bytes());
    info.extend_from_slice(&[0; 4]);
    Builder::new(RTM_NEWLINK, flags, req, port)
        .bytes(&info)
        .attr(3, &with_zero(&i.name)) // IFNAME
        .attr32(13, 1000) // TXQLEN
        .attr(16, &[state]) // OPERSTATE
        .attr(17, &[0]) // LINKMODE
        .attr32(4, i.mtu) // MTU
        .attr32(27, 0) // GROUP
        .attr32(30, 0) // PROMISCUITY
        .attr32(31, 1) // NUM_TX_QUEUES
        .attr32(40, 65535) // GSO_MAX_SEGS
        .attr32(41, 65536) // GSO_MAX_SIZE
        .attr32(32, 1) // NUM_RX_QUEUES
        .attr(33, &[1]) // CARRIER
        .attr(6, b"noqueue\0") // QDISC
        .attr(1, &i.mac) // ADDRESS
        .attr(2, &broadcast) // BROADCAST
        .attr(23, &wide) // STATS64
        .attr(7, &narrow) // STATS
        .finish()
}

/// `struct rtnl_link_stats64`.
fn stats(c: &DeviceCounts) -> [u64; 25] {
    let mut all = [0; 25];
    all[..9].copy_from_slice(&[
        c.rx_packets,
        c.tx_packets,
        c.rx_bytes,
        c.tx_bytes,
        c.rx_errors,
        0,
        c.rx_dropped,
        c.tx_dropped,
        c.multicast,
    ]);
    all
}

/// `struct ndmsg` and its attributes.
fn neighbour(req: &Request<'_>, flags: u16, port: u32, n: &NeighbourInfo) -> Vec<u8> {
    const NTF_ROUTER: u8 = 0x80;
    const TYPE_UNICAST: u8 = 1;
    let router = if n.router { NTF_ROUTER } else { 0 };
    let mut b = Builder::new(RTM_NEWNEIGH, flags, req, port)
        .bytes(&[inet_of(n.ip), 0, 0, 0])
        .bytes(&n.device.to_le_bytes())
        .bytes(&(n.state as u16).to_le_bytes())
        .bytes(&[router, TYPE_UNICAST])
        .attr(1, &octets(n.ip)); // DST
    if let Some(mac) = n.mac {
        b = b.attr(2, &mac); // LLADDR
    }
    b.attr(3, &[0; 16]).attr32(4, 0).finish() // CACHEINFO, PROBES
}

fn with_zero(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0"].concat()
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn inet_of(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { AF_INET } else { AF_INET6 }) as u8
}

fn address(
    req: &Request<'_>,
    flags: u16,
    port: u32,
    i: &Interface,
    (ip, prefix): (IpAddr, u8),
) -> Vec<u8> {
    const PERMANENT: u8 = 0x80;
    const SCOPE_GLOBAL: u8 = 0;
    const SCOPE_LINK: u8 = 253;
    const SCOPE_HOST: u8 = 254;
    let scope = match ip {
        _ if ip.is_loopback() => SCOPE_HOST,
        IpAddr::V4(a) if a.is_link_local() => SCOPE_LINK,
        IpAddr::V6(a) if a.is_unicast_link_local() => SCOPE_LINK,
        _ => SCOPE_GLOBAL,
    };
    let mut b = Builder::new(RTM_NEWADDR, flags, req, port)
        .bytes(&[inet_of(ip), prefix, PERMANENT, scope])
        .bytes(&i.index.to_le_bytes())
        .attr(1, &octets(ip)); // ADDRESS
    if let IpAddr::V4(a) = ip {
        b = b.attr(2, &octets(ip)); // LOCAL
        if !ip.is_loopback() && prefix < 31 {
            let last = a.to_bits() | (u32::MAX >> prefix);
            b = b.attr(4, &last.to_be_bytes()); // BROADCAST
        }
        b = b.attr(3, &with_zero(&i.name)); // LABEL
    }
    let mut cache = vec![0xff; 8]; // Valid and preferred for ever.
    cache.extend_from_slice(&[0; 8]);
    b.attr32(8, u32::from(PERMANENT)).attr(6, &cache).finish() // FLAGS, CACHEINFO
}

fn route(req: &Request<'_>, flags: u16, port: u32, r: &Route) -> Vec<u8> {
    let mut b = Builder::new(RTM_NEWROUTE, flags, req, port)
        .bytes(&[
            inet_of(r.to),
            r.prefix,
            0,
            0,
            r.table,
            r.protocol,
            r.scope,
            r.kind,
        ])
        .bytes(&r.flags.to_le_bytes())
        .attr32(15, u32::from(r.table)); // TABLE
    if r.prefix > 0 {
        b = b.attr(1, &octets(r.to)); // DST
    }
    if let Some(via) = r.via {
        b = b.attr(5, &octets(via)); // GATEWAY
    }
    if let Some(source) = r.source {
        b = b.attr(7, &octets(source)); // PREFSRC
    }
    if r.metric > 0 {
        b = b.attr32(6, r.metric); // PRIORITY
    }
    if r.to.is_ipv6() {
        b = b.attr(20, &[0]); // PREF: medium
    }
    b.attr(4, &r.device.to_le_bytes()).finish() // OIF
}

impl Netlink {
    fn port(&self, pid: i32) -> u32 {
        let mut s = self.state.lock();
        if s.port == 0 {
            s.port = if pid > 0 {
                pid as u32
            } else {
                self.common
                    .ns
                    .next_netlink_port
                    .fetch_add(1, Ordering::Relaxed)
            };
        }
        s.port
    }

    fn counts(&self, i: &Interface) -> DeviceCounts {
        self.common.ns.device_counts(i.index)
    }

    /// Has answers read, one after the other.
    fn queue(&self, answers: Vec<Vec<u8>>) -> Result<()> {
        let mut p = self.pending.lock();
        let n: usize = answers.iter().map(Vec::len).sum();
        if p.memory.is_none() {
            p.memory = self.common.user.get().map(|u| u.force(Kind::Kmem, 0));
        }
        let memory = p.memory.as_mut();
        if memory.is_some_and(|m| !m.grow(n as u64, u64::MAX)) {
            return Err(ENOBUFS);
        }
        p.all.extend(answers);
        drop(p);
        self.refill();
        Ok(())
    }

    /// Moves answers that wait to the receive queue, as far as there is room.
    fn refill(&self) {
        let mut p = self.pending.lock();
        while let Some(next) = p.all.front() {
            let room = self.common.rcvbuf.load(Ordering::Relaxed) as usize / 2;
            if self.rx.len() > 0 && self.rx.bytes() + next.len() > room {
                return;
            }
            let Some(data) = p.all.pop_front() else {
                return;
            };
            self.reply(data);
        }
        p.memory = None;
    }

    fn reply(&self, data: Vec<u8>) {
        let (cred, from) = (Ucred::default(), sockaddr(0, 0));
        self.rx.push(Msg {
            data,
            cred,
            files: None,
            from,
        });
    }

    fn status(&self, req: &Request<'_>, port: u32, error: i32) {
        let mut b = Builder::new(NLMSG_ERROR, 0, req, port).bytes(&(-error).to_le_bytes());
        b = if error == 0 {
            b.bytes(&req.whole[..HEADER])
        } else {
            b.bytes(req.whole)
        };
        self.reply(b.finish());
    }

    /// Whether all objects of a kind are asked for. (Where something is made, the same bits are
    /// others.)
    fn is_dump(&self, req: &Request<'_>) -> bool {
        let asks = match self.subsystem {
            Subsystem::Route => req.kind % 4 == 2,
            Subsystem::SockDiag => true,
        };
        asks && req.flags & NLM_F_DUMP != 0
    }

    /// The messages that answer a dump; `None` for a kind of object that cannot be asked for.
    fn dump(&self, req: &Request<'_>, port: u32) -> Option<Vec<Vec<u8>>> {
        let f = NLM_F_MULTI;
        let family = u16::from(req.family());
        let wanted = |ip: &IpAddr| family == AF_UNSPEC || family == u16::from(inet_of(*ip));
        let there = self.common.ns.has_addresses();
        let ips = LOOPBACKS.iter().filter(|(ip, _)| there && wanted(ip));
        let all = self.common.ns.interfaces();
        match req.kind {
            RTM_GETLINK => {
                let of = |i: &Interface| link(req, f, port, i, &self.counts(i));
                Some(all.iter().map(of).collect())
            }
            RTM_GETNEIGH => {
                let device = word(req.body(), 4);
                let all = self.common.ns.neighbours().into_iter();
                let all = all.filter(|n| wanted(&n.ip) && (device == 0 || device == n.device));
                Some(all.map(|n| neighbour(req, f, port, &n)).collect())
            }
            RTM_GETADDR => Some(
                all.iter()
                    .flat_map(|i| i.addresses.iter().map(move |a| (i, *a)))
                    .filter(|(_, (ip, _))| wanted(ip))
                    .map(|(i, a)| address(req, f, port, i, a))
                    .collect(),
            ),
            RTM_GETROUTE => Some(
                ips.map(|(ip, p)| {
                    let net = if ip.is_ipv4() {
                        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0))
                    } else {
                        *ip
                    };
                    Route::to_loopback(net, *p)
                })
                .chain(
                    self.common
                        .ns
                        .routes()
                        .into_iter()
                        .filter(|r| wanted(&r.to)),
                )
                .map(|r| route(req, f, port, &r))
                .collect(),
            ),
            // Rules, queueing disciplines, …: there are none.
            k if k >= NLMSG_MIN_TYPE && k % 4 == 2 => Some(Vec::new()),
            _ => None,
        }
    }

    fn handle(
        &self,
        who: &Caller<'_>,
        req: &Request<'_>,
        port: u32,
    ) -> core::result::Result<(), Errno> {
        if self.subsystem == Subsystem::SockDiag {
            if self.is_dump(req) {
                return self.answer_dump(req, port);
            }
            self.reply(diag::one(&self.common.ns, req, port)?);
            return Ok(());
        }
        if req.kind % 4 == 2 {
            return match req.kind {
                _ if self.is_dump(req) => self.answer_dump(req, port),
                RTM_GETLINK => self.get_link(req, port),
                RTM_GETROUTE => self.get_route(req, port),
                _ => Err(EOPNOTSUPP),
            };
        }
        if !who.cred.has_in(&self.common.ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        match req.kind {
            RTM_NEWLINK | RTM_SETLINK if word(req.body(), 4) as i32 == LO_INDEX => {
                // `ifi_flags` and `ifi_change`; no change mask means all.
                let (flags, change) = (word(req.body(), 8), word(req.body(), 12));
                if (change == 0 && flags != 0) || change & 1 != 0 {
                    self.common.ns.set_loopback(Link::of_flags(flags))?;
                }
                Ok(())
            }
            RTM_NEWADDR if word(req.body(), 4) as i32 == LO_INDEX => self.add_address(req),
            _ => Err(EOPNOTSUPP),
        }
    }

    fn answer_dump(&self, req: &Request<'_>, port: u32) -> core::result::Result<(), Errno> {
        let parts = match self.subsystem {
            Subsystem::Route => self.dump(req, port).ok_or(EOPNOTSUPP)?,
            Subsystem::SockDiag => diag::dump(&self.common.ns, req, port)?,
        };
        let (mut answers, mut batch) = (Vec::new(), Vec::new());
        for p in parts {
            if !batch.is_empty() && batch.len() + p.len() > BATCH {
                answers.push(std::mem::take(&mut batch));
            }
            batch.extend_from_slice(&p);
        }
        if !batch.is_empty() {
            answers.push(batch);
        }
        answers.push(
            Builder::new(NLMSG_DONE, NLM_F_MULTI, req, port)
                .bytes(&[0; 4])
                .finish(),
        );
        self.queue(answers)
    }

    fn get_link(&self, req: &Request<'_>, port: u32) -> core::result::Result<(), Errno> {
        let index = word(req.body(), 4) as i32;
        let name = req.attr(16, 3).or_else(|| req.attr(16, 53));
        let name = name.and_then(|n| n.split(|&b| b == 0).next());
        let all = self.common.ns.interfaces();
        let found = all.iter().find(|i| match index {
            0 => Some(i.name.as_bytes()) == name,
            _ => i.index == index,
        });
        let found = found.ok_or(ENODEV)?;
        self.reply(link(req, 0, port, found, &self.counts(found)));
        Ok(())
    }

    fn get_route(&self, req: &Request<'_>, port: u32) -> core::result::Result<(), Errno> {
        let ip = match req.attr(12, 1) {
            Some([a, b, c, d]) => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
            Some(b) if b.len() == 16 => {
                let mut o = [0; 16];
                o.copy_from_slice(b);
                IpAddr::from(o)
            }
            _ => return Err(EINVAL),
        };
        if !self.common.ns.reaches(ip) {
            return Err(ENETUNREACH);
        }
        let r = self.common.ns.route_to(ip);
        self.reply(route(req, 0, port, &r));
        Ok(())
    }

    /// Adds an address to the loopback: it has its own from the first time that it is up, and no
    /// others.
    fn add_address(&self, req: &Request<'_>) -> core::result::Result<(), Errno> {
        let bytes = req.attr(8, 2).or_else(|| req.attr(8, 1)).ok_or(EINVAL)?;
        let prefix = req.body()[1];
        let is_own = |(ip, p): &(IpAddr, u8)| {
            u16::from(req.family()) == u16::from(inet_of(*ip))
                && prefix == *p
                && octets(*ip) == bytes
        };
        if !LOOPBACKS.iter().any(is_own) {
            return Err(EOPNOTSUPP);
        }
        if self.common.ns.set_addressed() {
            return Err(EEXIST);
        }
        Ok(())
    }
}

impl Protocol for Netlink {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let (port, groups) = parse(addr)?;
        let mut s = self.state.lock();
        if s.port != 0 && port != s.port {
            return Err(EINVAL);
        }
        if port != 0 {
            s.port = port;
        }
        s.groups = groups;
        drop(s);
        self.port(who.number);
        Ok(())
    }
    fn connect(&self, who: &Caller<'_>, addr: &[u8], _: Block) -> Result<()> {
        if crate::addr::family_of(addr)? == AF_UNSPEC {
            self.state.lock().connected = false;
            return Ok(());
        }
        let (port, _) = parse(addr)?;
        if port != 0 && !who.cred.has_in(&self.common.ns.user, Caps::NET_ADMIN) {
            return Err(EPERM);
        }
        self.port(who.number);
        self.state.lock().connected = true;
        Ok(())
    }
    fn local_name(&self) -> Result<Vec<u8>> {
        let s = self.state.lock();
        Ok(sockaddr(s.port, s.groups))
    }
    fn peer_name(&self) -> Result<Vec<u8>> {
        Ok(sockaddr(0, 0))
    }
    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        _control: Control,
        flags: u32,
    ) -> Result<usize> {
        if flags & MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        if let Some(d) = dest
            && parse(d)?.0 != 0
        {
            // Other processes' netlink sockets cannot be reached.
            return Err(abi::errno::ECONNREFUSED);
        }
        if src.remaining() > MAX_REQUEST {
            return Err(EMSGSIZE);
        }
        let port = self.port(who.number);
        let data = take_all(src)?;
        let mut rest = &data[..];
        while rest.len() >= HEADER {
            let len = word(rest, 0) as usize;
            if len < HEADER || len > rest.len() {
                break;
            }
            let req = Request {
                kind: u16::from_le_bytes([rest[4], rest[5]]),
                flags: u16::from_le_bytes([rest[6], rest[7]]),
                seq: word(rest, 8),
                whole: &rest[..len],
            };
            if req.flags & NLM_F_REQUEST != 0 && req.kind >= NLMSG_MIN_TYPE {
                match self.handle(who, &req, port) {
                    Err(e) => self.status(&req, port, e.raw()),
                    Ok(()) if req.flags & NLM_F_ACK != 0 && !self.is_dump(&req) => {
                        self.status(&req, port, 0);
                    }
                    Ok(()) => {}
                }
            } else if req.flags & NLM_F_ACK != 0 {
                self.status(&req, port, 0);
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
            // Answers are bounded like any receive buffer.
            if self.rx.bytes() > self.common.rcvbuf.load(Ordering::Relaxed) as usize {
                return Err(abi::errno::ENOBUFS);
            }
        }
        Ok(data.len())
    }
    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        let take = if flags & MSG_PEEK != 0 {
            Take::Peek
        } else {
            Take::Out
        };
        let Some(t) = self.rx.receive(dst, take)? else {
            return Ok(Received::default());
        };
        self.refill();
        Ok(Received {
            n: if flags & MSG_TRUNC != 0 { t.len } else { t.n },
            addr: t.from,
            flags: if t.n < t.len { MSG_TRUNC } else { 0 },
            ..Received::default()
        })
    }
    fn shutdown(&self, _: Shutdown) -> Result<()> {
        Err(EOPNOTSUPP)
    }
    fn poll(&self) -> Events {
        let mut e = Events::WRITABLE;
        if self.rx.len() > 0 {
            e |= Events::READABLE;
        }
        e
    }
    fn set_option(&self, _: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        match (level, name) {
            // ADD_MEMBERSHIP, DROP_MEMBERSHIP: nothing ever changes, so nothing is announced.
            (SOL_NETLINK, 1 | 2) => crate::options::int_of(v).map(|_| ()),
            (SOL_NETLINK, 3..=5 | 8 | 10..=12) => {
                let on = crate::options::int_of(v)? != 0;
                let mut s = self.state.lock();
                s.options = (s.options & !(1 << name)) | (u32::from(on) << name);
                Ok(())
            }
            _ => Err(ENOPROTOOPT),
        }
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => Ok(vec![0; 4]),
            (SOL_NETLINK, 3..=5 | 8 | 10..=12) => {
                let on = self.state.lock().options >> name & 1;
                Ok(on.to_le_bytes().to_vec())
            }
            _ => Err(ENOPROTOOPT),
        }
    }
    fn unread(&self) -> Result<usize> {
        Ok(self.rx.first_len())
    }
    fn close(&self) {
        let left = std::mem::take(&mut *self.pending.lock());
        drop(left);
        self.rx.close();
    }
}
