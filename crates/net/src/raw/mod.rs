//! Raw sockets (`raw(7)`, `ipv6(7)`) and ping sockets (`icmp(7)`): IP packets, and ICMP echoes.
//!
//! What is sent to an address of this host goes to its own raw sockets, and an echo request is
//! answered, both here; all else goes by the stack. TCP and UDP inside make no packets, so raw
//! sockets see none of them.
//!
//! ```text
//! mod      a socket: what its calls do
//! receive  what comes to one, what is told of an error; packets of this host to itself
//! ```

mod receive;

use crate::addr::{Endpoint, family_of, parse_inet};
use crate::control::Control;
use crate::datagrams::{Course, DatagramSocket, Route, Wishes};
use crate::inet::{IP_MTU, IPV6_MTU};
use crate::interface::stays;
use crate::ip_packet::{ICMP_V4, ICMP_V6, sum_at, sum_icmp};
use crate::msgqueue::take_all;
use crate::ns::{NetNamespace, Way};
use crate::options::{Common, SO_ACCEPTCONN};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::receivers::Arrival;
use crate::receivers::RawReceiver;
use crate::sys::*;
use crate::user::Inside;
use crate::user::wire::{Datagrams, User};
use abi::errno::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EDESTADDRREQ, EINVAL, EMSGSIZE, ENETUNREACH,
    ENOPROTOOPT, ENOTCONN, EOPNOTSUPP, EPERM,
};
use abi::{Errno, Result};
use netstack::ip::Marks;
use parking_lot::Mutex;
pub(crate) use receive::failed;
use receive::{give, inside};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vfs::{Caps, Credentials, Sink, Source};
use wait::Events;

const SOL_RAW: i32 = 255;
const IPPROTO_RAW: u8 = 255;
const IP_HDRINCL: i32 = 3;
/// IPV6_CHECKSUM, at SOL_RAW or SOL_IPV6.
const IPV6_CHECKSUM: i32 = 7;
/// ICMP_FILTER at SOL_RAW, ICMPV6_FILTER at SOL_ICMPV6.
const ICMP_FILTER: i32 = 1;
const SOL_ICMPV6: i32 = 58;
/// The longest packet.
const MOST: usize = 65_535;
const ECHO_V4: u8 = 8;
const ECHO_V6: u8 = 128;

/// What it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ping,
    /// Packets of this protocol.
    Raw(u8),
}

/// A raw or a ping socket.
pub struct Raw {
    common: Arc<Common>,
    rx: Arc<RawRx>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where the checksum of a raw IPv6 socket goes.
    checksum_at: Option<usize>,
}

/// The receiving side.
pub(crate) struct RawRx {
    family: u16,
    kind: Kind,
    socket: DatagramSocket,
    ends: Mutex<Ends>,
    /// ICMP types that are not received: bit N for type N.
    filter: Mutex<[u32; 8]>,
    /// IP_HDRINCL.
    header_included: AtomicBool,
}

#[derive(Clone, Copy, Default)]
struct Ends {
    local: Option<IpAddr>,
    peer: Option<IpAddr>,
    /// A ping socket's number; 0 until bound.
    ident: u16,
}

/// Makes a ping socket: `EACCES` for those whose groups `net.ipv4.ping_group_range` does not have.
pub(crate) fn ping(ns: &Arc<NetNamespace>, family: u16, who: &Caller<'_>) -> Result<Parts> {
    let range = ns.kept.lock().get("ping_group_range").cloned();
    let (first, last) = match range.as_deref() {
        Some([a, b, ..]) => (*a, *b),
        _ => (1, 0),
    };
    let may = |g: &u32| (first..=last).contains(&i64::from(*g));
    if !may(&who.cred.egid) && !who.cred.groups.iter().any(may) {
        return Err(EACCES);
    }
    let protocol = if family == AF_INET {
        IPPROTO_ICMP
    } else {
        IPPROTO_ICMPV6
    };
    Ok(new(ns, family, SOCK_DGRAM, protocol, Kind::Ping))
}

/// Makes a raw socket: `EPERM` without CAP_NET_RAW.
pub(crate) fn raw(
    ns: &Arc<NetNamespace>,
    family: u16,
    protocol: i32,
    who: &Caller<'_>,
) -> Result<Parts> {
    if !who.cred.has_in(&ns.user, Caps::NET_RAW) {
        return Err(EPERM);
    }
    let number = u8::try_from(protocol).map_err(|_| EINVAL)?;
    Ok(new(ns, family, SOCK_RAW, protocol, Kind::Raw(number)))
}

fn new(ns: &Arc<NetNamespace>, family: u16, kind: u32, protocol: i32, of: Kind) -> Parts {
    let common = Common::new(ns, family, kind, protocol);
    let rx = Arc::new(RawRx {
        family,
        kind: of,
        socket: DatagramSocket::new(&common),
        ends: Mutex::default(),
        filter: Mutex::default(),
        header_included: AtomicBool::new(of == Kind::Raw(IPPROTO_RAW)),
    });
    if of != Kind::Ping {
        let weak: Weak<RawRx> = Arc::downgrade(&rx);
        ns.raw.add(common.ino, weak);
    }
    let state = State {
        checksum_at: (of == Kind::Raw(ICMP_V6)).then_some(2),
    };
    let raw = Raw {
        common: common.clone(),
        rx,
        state: Mutex::new(state),
    };
    Parts::new(common, Arc::new(raw))
}

impl Raw {
    fn parse(&self, addr: &[u8]) -> Result<IpAddr> {
        if family_of(addr)? != self.common.family {
            return Err(EAFNOSUPPORT);
        }
        parse_inet(addr, self.common.family).map(|e| e.ip)
    }

    /// A ping socket has a number from its first use on.
    fn ensure_ident(&self, wanted: u16) -> Result<u16> {
        let mut e = self.rx.ends.lock();
        if e.ident != 0 {
            return Ok(e.ident);
        }
        let mut all = self.common.ns.raw.idents.lock();
        let family = self.common.family;
        let free = |n: u16| {
            let taken = all.get(&(family, n)).is_some_and(|w| w.strong_count() > 0);
            n != 0 && !taken
        };
        let ident = if wanted != 0 {
            free(wanted).then_some(wanted)
        } else {
            let mut seed = [0; 2];
            hostcall::time::random(&mut seed);
            let start = u16::from_ne_bytes(seed);
            (0..=u16::MAX)
                .map(|i| start.wrapping_add(i))
                .find(|n| free(*n))
        };
        let ident = ident.ok_or(EADDRINUSE)?;
        let weak: Weak<RawRx> = Arc::downgrade(&self.rx);
        all.insert((family, ident), weak);
        e.ident = ident;
        Ok(ident)
    }

    fn route(&self, to: IpAddr, w: &Wishes) -> Result<Route> {
        let local = self.rx.ends.lock().local;
        let to = Endpoint { ip: to, port: 0 };
        let route = self.rx.socket.route(local, to, w)?;
        // Of what is no connection the broker relays datagrams and pings only.
        match self.common.ns.way_to(route.to) {
            Some(Way::Broker(_)) if self.rx.kind != Kind::Ping => Err(ENETUNREACH),
            _ => Ok(route),
        }
    }

    fn send_ping(&self, route: &Route, mut data: Vec<u8>, how: (&Marks, u32)) -> Result<()> {
        let to = route.to.ip;
        let echo = if to.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
        if data.len() < 8 || data[0] != echo || data[1] != 0 {
            return Err(EINVAL);
        }
        let ident = self.ensure_ident(0)?;
        data[4..6].copy_from_slice(&ident.to_be_bytes());
        if let Some(Way::Broker(out)) = self.common.ns.way_to(route.to) {
            let rx: Arc<dyn Inside> = self.rx.clone();
            let to = Endpoint { ip: to, port: 0 };
            return out.send(&rx, Datagrams::Icmp, to, &data);
        }
        let protocol = if to.is_ipv4() { ICMP_V4 } else { ICMP_V6 };
        sum_icmp(&mut data, route.source, to);
        self.out(route, protocol, &data, how)
    }

    fn send_raw(
        &self,
        route: &Route,
        protocol: u8,
        mut data: Vec<u8>,
        how: (&Marks, u32),
    ) -> Result<()> {
        let to = route.to.ip;
        if self.rx.header_included.load(Ordering::Relaxed) {
            return self.out_whole(route, &data, how.0);
        }
        let sum = self.state.lock().checksum_at;
        if let (Some(at), IpAddr::V6(_)) = (sum, to) {
            if at + 2 > data.len() {
                return Err(EINVAL);
            }
            sum_at(&mut data, at, protocol, route.source, to);
        }
        self.out(route, protocol, &data, how)
    }

    fn out(&self, route: &Route, protocol: u8, payload: &[u8], how: (&Marks, u32)) -> Result<()> {
        let (marks, flags) = how;
        let (from, to) = (route.source, route.to.ip);
        let ns = &self.common.ns;
        let packet = netstack::ip::Raw::Payload {
            from,
            to,
            protocol,
            payload,
        };
        let (stack, path) = match &route.course {
            Course::Here => {
                inside(ns, from, to, protocol, payload);
                return Ok(());
            }
            Course::Nowhere => return Ok(()),
            Course::Stack(stack, path) => (stack, path),
            Course::All(device, out) => {
                let member = !to.is_multicast() || ns.groups.has(*device, to);
                if member && (out.is_none() || self.rx.socket.loops(to)) {
                    let came = Arrival::looped(to, *device, marks);
                    give(ns, (from, to), protocol, payload, came);
                }
                match out {
                    Some((stack, path)) if marks.ttl > 0 => (stack, path),
                    _ => return Ok(()),
                }
            }
        };
        let found = egress::packet::of_payload(to, protocol, payload);
        if !stays(path) {
            stack.gate.packet(to, found)?;
        }
        if flags & MSG_CONFIRM != 0 {
            stack.confirm(path);
        }
        let sent = stack.send_raw(path, packet, marks);
        // Linux's flow has the type and the code of an ICMPv6 message where ports are.
        let port = match *payload {
            [kind, code, ..] if protocol == ICMP_V6 => u16::from_be_bytes([kind, code]),
            _ => 0,
        };
        let to = Endpoint { ip: to, port };
        self.rx.socket.sent(to, self.peer(), sent)
    }

    fn out_whole(&self, route: &Route, packet: &[u8], marks: &Marks) -> Result<()> {
        let to = route.to.ip;
        if packet.len() < 20 || !to.is_ipv4() {
            return Err(EINVAL);
        }
        match &route.course {
            Course::Stack(stack, path) | Course::All(_, Some((stack, path))) => {
                let found = egress::packet::of_whole(packet);
                if !stays(path) {
                    stack.gate.packet(to, found)?;
                }
                let whole = netstack::ip::Raw::Whole(packet);
                let sent = stack.send_raw(path, whole, marks);
                self.rx.socket.sent(route.to, self.peer(), sent)
            }
            Course::Nowhere => Ok(()),
            Course::Here | Course::All(_, None) => {
                let header = usize::from(packet[0] & 15) * 4;
                let payload = packet.get(header..).ok_or(EINVAL)?;
                inside(&self.common.ns, route.source, to, packet[9], payload);
                Ok(())
            }
        }
    }

    fn peer(&self) -> Option<Endpoint> {
        let ip = self.rx.ends.lock().peer?;
        Some(Endpoint { ip, port: 0 })
    }
}

impl Protocol for Raw {
    fn bind(&self, _: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let at = parse_inet(addr, self.common.family)?;
        let ns = &self.common.ns;
        let to_all = at.ip.is_multicast() || ns.is_broadcast(at.ip);
        if !at.ip.is_unspecified() && !ns.is_local(at.ip) && !to_all {
            return Err(EADDRNOTAVAIL);
        }
        if self.rx.kind == Kind::Ping {
            if self.rx.ends.lock().ident != 0 {
                return Err(EINVAL);
            }
            self.ensure_ident(at.port)?;
        }
        self.rx.ends.lock().local = Some(at.ip).filter(|ip| !ip.is_unspecified());
        Ok(())
    }

    fn connect(&self, _: &Caller<'_>, addr: &[u8], _: Block) -> Result<()> {
        if family_of(addr)? == AF_UNSPEC {
            self.rx.ends.lock().peer = None;
            return Ok(());
        }
        let route = self.route(self.parse(addr)?, &Wishes::default().with_scope(addr))?;
        if self.rx.kind == Kind::Ping {
            self.ensure_ident(0)?;
        }
        let mut e = self.rx.ends.lock();
        e.local = Some(route.source);
        e.peer = Some(route.to.ip);
        Ok(())
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        let e = *self.rx.ends.lock();
        let ip = e
            .local
            .unwrap_or_else(|| Endpoint::any(self.common.family).ip);
        let port = match self.rx.kind {
            Kind::Ping => e.ident,
            Kind::Raw(n) => n.into(),
        };
        Ok(Endpoint { ip, port }.encode(self.common.family))
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        let ip = self.rx.ends.lock().peer.ok_or(ENOTCONN)?;
        Ok(Endpoint { ip, port: 0 }.encode(self.common.family))
    }

    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        if flags & MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        let n = src.remaining();
        if n > MOST {
            return Err(EMSGSIZE);
        }
        let mut wishes = Wishes::read(&control, &self.common, who.cred)?;
        let to = match dest {
            Some(d) => {
                wishes = wishes.with_scope(d);
                self.parse(d)?
            }
            None => self.rx.ends.lock().peer.ok_or(EDESTADDRREQ)?,
        };
        let route = self.route(to, &wishes)?;
        let data = take_all(src)?;
        let marks = wishes.marks(&self.rx.socket, route.to.ip);
        let how = (&marks, flags);
        let headers = if to.is_ipv4() { 20 } else { 40 };
        let path = route.course.path();
        let socket = &self.rx.socket;
        socket.take_error_before(path, &marks, n + headers)?;
        match self.rx.kind {
            Kind::Ping => self.send_ping(&route, data, how)?,
            Kind::Raw(protocol) => self.send_raw(&route, protocol, data, how)?,
        }
        Ok(n)
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        self.rx.socket.receive(dst, flags)
    }

    fn has_error_queue(&self) -> bool {
        true
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        if self.rx.ends.lock().peer.is_none() {
            return Err(ENOTCONN);
        }
        if how.read {
            self.rx.socket.queue.shut();
            self.common.notify(Events::READABLE | Events::RDHUP);
        }
        Ok(())
    }

    fn poll(&self) -> Events {
        self.rx.socket.poll()
    }

    fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        match (level, name) {
            (SOL_IP, _) if self.common.family == AF_INET6 => Err(ENOPROTOOPT),
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(ENOPROTOOPT),
            (SOL_RAW, ICMP_FILTER) if self.rx.kind == Kind::Raw(ICMP_V4) => {
                let word = v.first_chunk().ok_or(EINVAL)?;
                self.rx.filter.lock()[0] = u32::from_ne_bytes(*word);
                Ok(())
            }
            (SOL_ICMPV6, ICMP_FILTER) if self.rx.kind == Kind::Raw(ICMP_V6) => {
                let mut f = self.rx.filter.lock();
                for (to, from) in f.iter_mut().zip(v.as_chunks().0) {
                    *to = u32::from_ne_bytes(*from);
                }
                Ok(())
            }
            (SOL_RAW | SOL_IPV6, IPV6_CHECKSUM) if self.common.family == AF_INET6 => {
                let at = crate::options::int_of(v)?;
                // An odd place is refused, and at one level an ICMPv6 socket's.
                let icmp = level == SOL_IPV6 && self.rx.kind == Kind::Raw(ICMP_V6);
                if at > 0 && at % 2 == 1 || icmp {
                    return Err(EINVAL);
                }
                if self.rx.kind != Kind::Raw(ICMP_V6) {
                    self.state.lock().checksum_at = usize::try_from(at).ok();
                }
                Ok(())
            }
            (SOL_IP, IP_HDRINCL) if self.rx.kind != Kind::Ping => {
                let on = crate::options::int_of(v)? != 0;
                self.rx.header_included.store(on, Ordering::Relaxed);
                Ok(())
            }
            (SOL_TCP | SOL_UDP | SOL_RAW | SOL_ICMPV6, _) => Err(ENOPROTOOPT),
            _ => self.rx.socket.set_option(cred, level, name, v),
        }
    }

    fn option_of(&self, level: i32, name: i32, v: &[u8]) -> Option<Result<Vec<u8>>> {
        self.rx.socket.option_of(level, name, v)
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        let int = |n: i32| Ok(n.to_le_bytes().to_vec());
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => int(0),
            (SOL_IP, _) if self.common.family == AF_INET6 => Err(ENOPROTOOPT),
            (SOL_TCP | SOL_UDP, _) => Err(crate::inet::foreign(self.common.family)),
            (SOL_RAW, ICMP_FILTER) if self.rx.kind == Kind::Raw(ICMP_V4) => {
                Ok(self.rx.filter.lock()[0].to_ne_bytes().to_vec())
            }
            (SOL_ICMPV6, ICMP_FILTER) if self.rx.kind == Kind::Raw(ICMP_V6) => {
                let f = *self.rx.filter.lock();
                Ok(f.iter().flat_map(|w| w.to_ne_bytes()).collect())
            }
            (SOL_RAW | SOL_IPV6, IPV6_CHECKSUM) if self.common.family == AF_INET6 => {
                int(self.state.lock().checksum_at.map_or(-1, |n| n as i32))
            }
            (SOL_IP, IP_HDRINCL) if self.rx.kind != Kind::Ping => {
                int(self.rx.header_included.load(Ordering::Relaxed).into())
            }
            (SOL_SOCKET | SOL_RAW | SOL_ICMPV6, _) => Err(ENOPROTOOPT),
            (SOL_IP, IP_MTU) | (SOL_IPV6, IPV6_MTU) => {
                let e = *self.rx.ends.lock();
                let peer = e.peer.map(|ip| Endpoint { ip, port: 0 });
                self.rx.socket.mtu(e.local, peer)
            }
            _ => self.rx.socket.get_option(level, name),
        }
    }

    fn unread(&self) -> Result<usize> {
        Ok(self.rx.socket.queue.first_len())
    }

    fn close(&self) {
        let raw = &self.common.ns.raw;
        if self.rx.kind != Kind::Ping {
            raw.remove(self.common.ino);
        }
        let ident = self.rx.ends.lock().ident;
        if ident != 0 {
            raw.idents.lock().remove(&(self.common.family, ident));
        }
        if let Some(out) = &self.common.ns.way_out {
            out.close(self.common.ino);
        }
        self.rx.socket.close();
    }
}

/// A ping socket, as the broker's news reach it.
impl Inside for RawRx {
    fn number(&self) -> u64 {
        self.socket.common.ino
    }

    fn user(&self) -> User {
        self.socket.common.outermost_user()
    }

    /// An echo: the host's socket had a number of its own.
    fn received(&self, from: Endpoint, data: &[u8]) {
        let reply = if from.ip.is_ipv4() { 0 } else { ECHO_V6 + 1 };
        let e = *self.ends.lock();
        if data.len() < 8 || data[0] != reply || e.peer.is_some_and(|p| p != from.ip) {
            return;
        }
        let to = self.socket.common.ns.source_for(from.ip);
        let mut message = data.to_vec();
        message[4..6].copy_from_slice(&e.ident.to_be_bytes());
        sum_icmp(&mut message, from.ip, to);
        let from = Endpoint {
            ip: from.ip,
            port: 0,
        };
        RawReceiver::put(self, message.into(), from.ip, Arrival::inside(to, 0));
    }

    /// That it may not is always told: a ping waits long for an answer.
    fn failed(&self, to: Endpoint, e: Errno) {
        if e == EACCES || self.ends.lock().peer == Some(to.ip) {
            self.socket.tell(e);
        }
    }
}
