//! UDP: between sockets of one namespace, and with others by the way out.

mod cork;

use cork::Cork;

use crate::addr::{Endpoint, family_of, parse_inet};
use crate::bindings::{Binding, Coming, Rule};
use crate::control::Control;
use crate::datagrams::{Course, DatagramSocket, Peer, Route, Wishes};
use crate::filters::Filter;
use crate::frames::{Framed, udp_frame};
use crate::inet::{self, *};
use crate::interface::{LO_INDEX, stays};
use crate::ip_packet::Packet;
use crate::msgqueue::take_all;
use crate::ns::NetNamespace;
use crate::options::{
    Chosen, Common, SO_ACCEPTCONN, SO_ATTACH_REUSEPORT_CBPF, SO_DETACH_REUSEPORT_BPF,
};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::receivers::{Arrival, Quote, UdpReceiver};
use crate::sys::*;
use crate::tcp::bindable;
use crate::user::wire::Datagrams;
use crate::user::{Inside, UserNetwork};
use abi::Result;
use abi::errno::{
    EAFNOSUPPORT, ECONNREFUSED, EDESTADDRREQ, EINVAL, EMSGSIZE, ENOPROTOOPT, ENOTCONN, EOPNOTSUPP,
    EPIPE,
};
use bytes::Bytes;
use netstack::ip::{Cast, ErrorKind, IcmpError, Info, Marks, Origin, SendError, Severity, Taken};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::file::BufSource;
use vfs::{Credentials, Sink, Source};
use wait::Events;

/// The bytes of UDP's header.
const HEADER: usize = 8;
/// The longest message to an IPv4 address whose way is looked at.
const LONGEST_V4: usize = 65_535;
const LOOPBACK_MTU: u32 = 65_536;
/// The most datagrams that one UDP_SEGMENT send makes.
const MAX_SEGMENTS: usize = 128;

/// The largest payload of one datagram.
fn max_payload(to: IpAddr) -> usize {
    if to.is_ipv4() { 65_507 } else { 65_527 }
}

/// A UDP socket.
pub struct Udp {
    common: Arc<Common>,
    rx: Arc<UdpRx>,
    state: Mutex<State>,
    cork: Cork,
    shut_write: AtomicBool,
}

#[derive(Default)]
struct State {
    local: Option<Endpoint>,
    /// Bound by the program, not by the first send.
    chosen: bool,
    binding: Option<Arc<Binding<dyn UdpReceiver>>>,
}

/// The receiving side, as senders see it.
pub struct UdpRx {
    socket: DatagramSocket,
    /// Leaf lock.
    ends: Mutex<Ends>,
}

/// Of a connected socket.
#[derive(Clone, Copy, Default)]
struct Ends {
    /// Only datagrams from there are taken, and errors about those that go there.
    peer: Option<Endpoint>,
    /// The address that it has by the connection.
    local: Option<IpAddr>,
}

/// A datagram came by a device; whether anybody takes it.
pub(crate) fn arrived(
    ns: &NetNamespace,
    from: Endpoint,
    to: Endpoint,
    data: &[u8],
    info: &Info,
) -> Taken {
    let came = Arrival::outside(to.ip, info).at(to.port);
    if info.cast != Cast::Unicast {
        to_all(ns, from, to, data, came);
        return Taken::Yes;
    }
    let ask = |f: &Filter| ask_of(f, from, &came, data);
    let coming = Coming { from, ask: &ask };
    let found = ns
        .udp
        .lookup(to, Some(coming), |rx| rx.takes(from, to, came.device));
    let Some(rx) = found else {
        return Taken::No;
    };
    // A piece of a large frame would keep the whole.
    rx.put(Bytes::copy_from_slice(data), from, came)
}

/// What a program that chooses says of a datagram.
fn ask_of(f: &Filter, from: Endpoint, came: &Arrival, data: &[u8]) -> u32 {
    f.run(&Framed::udp(from, came, data).seen(Some(HEADER)))
}

/// A datagram to a group or to all of a network goes to each socket that fits.
fn to_all(ns: &NetNamespace, from: Endpoint, to: Endpoint, data: &[u8], came: Arrival) {
    let all = ns
        .udp
        .matching(to, |rx| rx.takes(from, to, came.device).is_some());
    let mut all = all.into_iter().peekable();
    if all.peek().is_none() {
        return;
    }
    let data = Bytes::copy_from_slice(data);
    for rx in all {
        rx.put(data.clone(), from, came);
    }
}

/// What was sent did not arrive; whether it was somebody's here.
pub(crate) fn failed(ns: &NetNamespace, q: &Quote<'_>) -> bool {
    let found = ns.udp.lookup(q.from, None, |rx| match rx.peer() {
        Some(p) if p != q.to => None,
        p => Some(p.map_or(0, |_| 8)),
    });
    if let Some(rx) = &found {
        rx.failed(q);
    }
    found.is_some()
}

impl UdpReceiver for UdpRx {
    fn takes(&self, from: Endpoint, to: Endpoint, device: i32) -> Option<u32> {
        let only = u32::from(self.socket.device() != 0);
        let ends = *self.ends.lock();
        if ends.local.is_some_and(|ip| ip != to.ip) || !self.socket.admits(from.ip, to.ip, device) {
            return None;
        }
        match ends.peer {
            Some(p) if p != from => None,
            Some(_) => Some(8 + only),
            None => Some(only),
        }
    }

    fn put(&self, mut data: Bytes, from: Endpoint, came: Arrival) -> Taken {
        let filter = &self.socket.common.filter;
        if filter.is_on() {
            let made = Framed::udp(from, &came, &data);
            let Some(n) = filter.admits(&made.seen(Some(0)), HEADER) else {
                self.socket.queue.lose();
                return Taken::Refused;
            };
            data.truncate(n - HEADER);
        }
        match self.socket.queue.put(data, from, came) {
            true => Taken::Yes,
            false => Taken::Lost,
        }
    }

    fn failed(&self, q: &Quote<'_>) {
        let peer = match self.peer() {
            Some(_) => Peer::Connected,
            None => Peer::Any,
        };
        self.socket.failed(q.to, peer, q, q.payload(HEADER));
    }

    fn census(&self) -> (Option<IpAddr>, Option<Endpoint>, usize) {
        let e = *self.ends.lock();
        (e.local, e.peer, self.socket.queue.bytes())
    }

    fn peer(&self) -> Option<Endpoint> {
        self.ends.lock().peer
    }
}

impl Inside for UdpRx {
    fn number(&self) -> u64 {
        self.socket.common.ino
    }
    fn user(&self) -> u32 {
        self.socket.common.outermost_user()
    }
    fn received(&self, from: Endpoint, data: &[u8]) {
        if self.peer().is_some_and(|p| p != from) {
            return;
        }
        let to = self.socket.common.ns.source_for(from.ip);
        let data = Bytes::copy_from_slice(data);
        self.put(data, from, Arrival::inside(to, 0));
    }
    /// A connected socket is told.
    fn failed(&self, to: Endpoint, e: abi::Errno) {
        if self.peer() == Some(to) {
            self.socket.tell(e);
        }
    }
}

pub fn new(ns: &Arc<NetNamespace>, family: u16) -> Parts {
    let common = Common::new(ns, family, SOCK_DGRAM, IPPROTO_UDP);
    let rx = Arc::new(UdpRx {
        socket: DatagramSocket::new(&common),
        ends: Mutex::default(),
    });
    let udp = Arc::new(Udp {
        common: common.clone(),
        rx,
        state: Mutex::new(State::default()),
        cork: Cork::default(),
        shut_write: AtomicBool::new(false),
    });
    Parts::new(common, udp)
}

impl Udp {
    fn options(&self) -> &InetOptions {
        &self.rx.socket.options
    }

    fn take_port(&self, at: Endpoint, uid: u32) -> Result<Arc<Binding<dyn UdpReceiver>>> {
        let asked = self.options().asked(at, &self.common, uid);
        let table = &self.common.ns.udp;
        table.bind(&asked, Rule::Udp, Some(self.rx.clone()))
    }

    /// Binds to a free port if need be; gives the local endpoint.
    fn ensure_bound(&self, s: &mut State, uid: u32) -> Result<Endpoint> {
        if let (Some(l), Some(_)) = (s.local, &s.binding) {
            return Ok(l);
        }
        let any = Endpoint::any(self.common.family);
        let b = self.take_port(any, uid)?;
        let l = Endpoint {
            ip: any.ip,
            port: b.port,
        };
        s.binding = Some(b);
        s.local = Some(l);
        Ok(l)
    }

    /// Reads a destination: an IPv6 socket takes an IPv4 one too.
    fn parse(&self, addr: &[u8]) -> Result<Endpoint> {
        let mine = self.common.family;
        match family_of(addr)? {
            AF_INET => {
                if mine == AF_INET6 && self.options().on(SOL_IPV6, IPV6_V6ONLY) {
                    return Err(EAFNOSUPPORT);
                }
                parse_inet(addr, AF_INET)
            }
            AF_INET6 if mine == AF_INET6 => parse_inet(addr, AF_INET6),
            AF_UNSPEC if mine == AF_INET => {
                let mut a = addr.to_vec();
                a[..2].copy_from_slice(&AF_INET.to_le_bytes());
                parse_inet(&a, AF_INET)
            }
            _ => Err(EAFNOSUPPORT),
        }
    }

    /// What the broker does not take is lost, as datagrams may be.
    fn send_out(&self, out: &UserNetwork, to: Endpoint, data: &[u8]) {
        let rx: Arc<dyn Inside> = self.rx.clone();
        let _ = out.send(&rx, Datagrams::Udp, to, data);
    }

    fn deliver(&self, from: Endpoint, to: Endpoint, data: Vec<u8>, came: Arrival, peer: Peer) {
        // A wildcard's socket is for this host's addresses, not for others' that leave.
        if let Some(out) = self.common.ns.leaves(to.ip) {
            return self.send_out(out, to, &data);
        }
        let ask = |f: &Filter| ask_of(f, from, &came, &data);
        let coming = Some(Coming { from, ask: &ask });
        let table = &self.common.ns.udp;
        let rx = table.lookup(to, coming, |rx| rx.takes(from, to, LO_INDEX));
        let Some(rx) = rx else {
            if let Some(out) = self.common.ns.leaves_to(to) {
                return self.send_out(out, to, &data);
            }
            if let Some((stack, names)) = self.common.ns.names_at(to) {
                let rx: Arc<dyn Inside> = self.rx.clone();
                return stack.ask_docker(names, &rx, &data);
            }
            self.common.ns.loop_udp(from, to, came.tos, &data);
            self.show_raw(from, to, &data, came);
            return self.refused(from, to, &data, peer);
        };
        self.common.ns.loop_udp(from, to, came.tos, &data);
        self.show_raw(from, to, &data, came);
        rx.put(data.into(), from, came);
    }

    /// Raw sockets see what passes inside, too.
    fn show_raw(&self, from: Endpoint, to: Endpoint, data: &[u8], came: Arrival) {
        let raw = &self.common.ns.raw;
        if !raw.is_used() || from.ip.is_ipv4() != to.ip.is_ipv4() {
            return;
        }
        let made = Framed::udp(from, &came, data);
        let (whole, payload) = (made.seen(None).data, made.seen(Some(0)).data);
        let packet = Packet {
            from: from.ip,
            to: to.ip,
            protocol: IPPROTO_UDP as u8,
            payload,
            whole,
        };
        raw.deliver(&packet, came);
    }

    /// Nobody is at a port of this host: as if its "port unreachable" had come back.
    fn refused(&self, from: Endpoint, to: Endpoint, data: &[u8], peer: Peer) {
        let (icmp_type, code) = if to.ip.is_ipv4() { (3, 3) } else { (1, 4) };
        let quote = Quote {
            error: IcmpError {
                kind: ErrorKind::Unreachable,
                errno: ECONNREFUSED,
                severity: Severity::Hard,
                origin: Origin::Icmp,
                icmp_type,
                code,
                info: 0,
            },
            offender: to.ip,
            from,
            to,
            protocol: 17,
            packet: data,
            header: 0,
            came: Arrival::inside(from.ip, if to.ip.is_ipv4() { 0xc0 } else { 0 }),
        };
        // As much as an ICMP message quotes, which has 28 bytes of headers before it, or 48.
        let most = if to.ip.is_ipv4() { 576 - 56 } else { 1280 - 96 };
        let data = &data[..data.len().min(most)];
        self.rx.socket.failed(to, peer, &quote, data);
    }

    /// Sends by the stack, and to those of this host that are on the device.
    fn send_by_device(
        &self,
        route: &Route,
        from: Endpoint,
        data: &[u8],
        cut: Option<u16>,
        how: (&Marks, u32),
    ) -> Result<()> {
        let (marks, flags) = how;
        let socket = &self.rx.socket;
        let (stack, path) = match &route.course {
            Course::Stack(stack, path) => (stack, path),
            Course::All(device, out) => {
                let ip = route.to.ip;
                let ns = &self.common.ns;
                let member = !ip.is_multicast() || ns.groups.has(*device, ip);
                let pieces = data.chunks(cut.map_or(data.len().max(1), usize::from));
                let came = Arrival::looped(ip, *device, marks).at(route.to.port);
                if out.is_none() {
                    ns.loop_udp(from, route.to, marks.tos, data);
                }
                if member && (out.is_none() || socket.loops(ip)) {
                    let empty = data.is_empty().then_some(data);
                    for piece in pieces.chain(empty) {
                        to_all(ns, from, route.to, piece, came);
                    }
                }
                match out {
                    // What may make no step stays on this host.
                    Some((stack, path)) if marks.ttl > 0 => (stack, path),
                    _ => return Ok(()),
                }
            }
            Course::Here | Course::Nowhere => return Ok(()),
        };
        let leaves = !stays(path);
        if leaves && stack.gate.resolves(route.to) {
            let rx: Arc<dyn Inside> = self.rx.clone();
            for piece in data.chunks(cut.map_or(data.len().max(1), usize::from)) {
                stack.ask_name(&rx, route.to, piece);
            }
            return Ok(());
        }
        if leaves {
            stack.gate.datagram(from.port, route.to)?;
        }
        if flags & MSG_CONFIRM != 0 {
            stack.confirm(path);
        }
        let sent = stack.send_udp(path, from, route.to, data, cut, marks);
        socket.sent(route.to, self.rx.peer(), sent)
    }
}

/// What a send asks for, beside the bytes.
#[derive(Clone, Copy)]
struct Message {
    to: Endpoint,
    wishes: Wishes,
    flags: u32,
}

impl Udp {
    /// Where a send goes, and what it asks for.
    fn message(
        &self,
        who: &Caller<'_>,
        dest: Option<&[u8]>,
        control: &Control,
        flags: u32,
    ) -> Result<Message> {
        let wishes = Wishes::read(control, &self.common, who.cred)?;
        let (to, wishes) = match dest {
            Some(d) => {
                let to = self.parse(d)?;
                if to.port == 0 {
                    return Err(EINVAL);
                }
                (to, wishes.with_scope(d))
            }
            None => (self.rx.peer().ok_or(EDESTADDRREQ)?, wishes),
        };
        Ok(Message { to, wishes, flags })
    }

    /// A send while there is a cork, by the socket's option or by MSG_MORE: the bytes of several
    /// become one datagram, which goes where the first said (`udp_sendmsg`, `do_append_data`).
    fn send_corked(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: &Control,
        flags: u32,
    ) -> Result<usize> {
        let len = src.remaining();
        if len > LONGEST_V4 {
            return Err(EMSGSIZE);
        }
        let begins = !self.cork.is_used();
        if begins {
            let m = self.message(who, dest, control, flags)?;
            let local = self.ensure_bound(&mut self.state.lock(), who.cred.euid)?;
            self.rx.socket.route(Some(local.ip), m.to, &m.wishes)?;
            self.cork.begin(m);
        }
        let data = take_all(src).inspect_err(|_| drop(self.cork.take()))?;
        let corks = flags & MSG_MORE != 0 || self.options().on(SOL_UDP, UDP_CORK);
        self.cork.add(&self.common, &data)?;
        if !corks {
            self.uncork(who.cred.euid)?;
        }
        Ok(len)
    }

    /// Sends what is held back.
    fn uncork(&self, uid: u32) -> Result<()> {
        match self.cork.take() {
            Some((m, data)) => self.transmit(uid, &m, &mut BufSource::new(&data)).map(drop),
            None => Ok(()),
        }
    }

    /// Sends a datagram, or as many as UDP_SEGMENT makes of it.
    fn transmit(&self, uid: u32, m: &Message, src: &mut dyn Source) -> Result<usize> {
        let (to, wishes, len) = (m.to, &m.wishes, src.remaining());
        if to.ip.is_ipv4() && len > LONGEST_V4 {
            return Err(EMSGSIZE);
        }
        let peer = self.rx.peer();
        let local = self.ensure_bound(&mut self.state.lock(), uid)?;
        let route = self.rx.socket.route(Some(local.ip), to, wishes)?;
        let (remote, mut source) = (route.to, route.source);
        if let Some(ip) = wishes.source {
            let own = self.common.ns.is_local(ip) && self.common.ns.reaches(ip);
            if !own || ip.is_ipv4() != remote.ip.is_ipv4() {
                return Err(EINVAL);
            }
            source = ip;
        }
        let from = Endpoint {
            ip: source,
            port: local.port,
        };
        let segment = wishes.segment;
        let segment = segment.unwrap_or(self.options().value(SOL_UDP, UDP_SEGMENT) as usize);
        if segment > 0 && len > segment && len.div_ceil(segment) > MAX_SEGMENTS {
            return Err(EINVAL);
        }
        let parts = if segment > 0 { segment } else { len.max(1) };
        let marks = wishes.marks(&self.rx.socket, remote.ip);
        let headers = if remote.ip.is_ipv4() { 28 } else { 48 };
        let path = route.course.path();
        let socket = &self.rx.socket;
        socket.take_error_before(path, &marks, len + headers)?;
        if len > max_payload(remote.ip) {
            let mtu = path.map_or(LOOPBACK_MTU, |p| p.mtu);
            socket.sent(remote, peer, Err(SendError::TooBig(mtu)))?;
        }
        let data = take_all(src)?;
        let device = path.map_or(LO_INDEX, |p| p.index as i32);
        let stamps = socket.stamps(wishes);
        stamps.queued();
        if matches!(route.course, Course::Here) {
            let peer = match peer {
                Some(p) if p == remote => Peer::Connected,
                _ => Peer::Any,
            };
            let priority = wishes.priority.unwrap_or(self.common.priority());
            let came = Arrival {
                priority,
                ..Arrival::looped(remote.ip, LO_INDEX, &marks).at(remote.port)
            };
            let empty = data.is_empty().then_some(&[][..]);
            for part in data.chunks(parts).chain(empty) {
                self.deliver(from, remote, part.to_vec(), came, peer);
            }
        } else {
            let cut = (len > parts).then_some(parts as u16);
            self.send_by_device(&route, from, &data, cut, (&marks, m.flags))?;
        }
        let came = Arrival::looped(remote.ip, device, &marks).at(remote.port);
        stamps.sent(source, came, || {
            udp_frame((from, remote), marks.tos, &data).into()
        });
        Ok(len)
    }
}

impl Protocol for Udp {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let is_bound = self.state.lock().binding.is_some();
        if is_bound && family_of(addr).is_ok_and(crate::addr::is_inet) {
            return Err(EINVAL);
        }
        let at = bindable(&self.common, self.options(), who, addr)?;
        let mut s = self.state.lock();
        if s.binding.is_some() {
            return Err(EINVAL);
        }
        let b = self.take_port(at, who.cred.euid)?;
        s.local = Some(Endpoint {
            ip: at.ip,
            port: b.port,
        });
        s.chosen = true;
        s.binding = Some(b);
        Ok(())
    }

    fn connect(&self, who: &Caller<'_>, addr: &[u8], _: Block) -> Result<()> {
        let mut s = self.state.lock();
        if family_of(addr)? == AF_UNSPEC {
            *self.rx.ends.lock() = Ends::default();
            if let Some(b) = &s.binding {
                if s.chosen {
                    s.local = Some(Endpoint {
                        ip: b.ip,
                        port: b.port,
                    });
                } else {
                    self.common.ns.udp.unbind(b);
                    s.binding = None;
                    s.local = None;
                }
            }
            return Ok(());
        }
        // (One that fails has a port all the same.)
        let had = s.binding.as_ref().map(|b| b.ip);
        let port = self.ensure_bound(&mut s, who.cred.euid)?.port;
        let to = self.parse(addr)?;
        let wishes = Wishes::default().with_scope(addr);
        let route = self.rx.socket.route(had, to, &wishes)?;
        let ip = route.source;
        s.local = Some(Endpoint { ip, port });
        *self.rx.ends.lock() = Ends {
            peer: Some(route.to),
            local: Some(ip).filter(|ip| !ip.is_unspecified()),
        };
        Ok(())
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        let l = self.state.lock().local;
        Ok(l.unwrap_or_else(|| Endpoint::any(self.common.family))
            .encode(self.common.family))
    }
    fn peer_name(&self) -> Result<Vec<u8>> {
        let p = self.rx.peer().ok_or(ENOTCONN)?;
        Ok(p.encode(self.common.family))
    }

    fn send(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        control: Control,
        flags: u32,
    ) -> Result<usize> {
        // (Linux looks for it with IPv4 only.)
        if flags & MSG_OOB != 0 && self.common.family == AF_INET {
            return Err(EOPNOTSUPP);
        }
        if self.shut_write.load(Ordering::Relaxed) {
            return Err(EPIPE);
        }
        let corks = flags & MSG_MORE != 0 || self.options().on(SOL_UDP, UDP_CORK);
        if self.cork.is_used() || corks {
            return self.send_corked(who, src, dest, &control, flags);
        }
        let m = self.message(who, dest, &control, flags)?;
        self.transmit(who.cred.euid, &m, src)
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        self.rx.socket.receive(dst, flags)
    }

    fn has_error_queue(&self) -> bool {
        true
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        if self.rx.peer().is_none() {
            return Err(ENOTCONN);
        }
        if how.read {
            self.rx.socket.queue.shut();
        }
        if how.write {
            self.shut_write.store(true, Ordering::Relaxed);
        }
        self.common
            .notify(Events::READABLE | Events::WRITABLE | Events::HUP | Events::RDHUP);
        Ok(())
    }

    fn poll(&self) -> Events {
        let mut e = self.rx.socket.poll();
        if e.contains(Events::RDHUP) && self.shut_write.load(Ordering::Relaxed) {
            e |= Events::HUP;
        }
        e
    }

    fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        match (level, name) {
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(ENOPROTOOPT),
            (SOL_IPV6, IPV6_V6ONLY) if self.state.lock().binding.is_some() => Err(EINVAL),
            (SOL_TCP, _) => Err(ENOPROTOOPT),
            (SOL_UDP, _) if v.len() < 4 => Err(EINVAL),
            // No protocol is taken out of datagrams here.
            (SOL_UDP, UDP_ENCAP) if v[..4] == [0; 4] => Ok(()),
            _ => {
                self.rx.socket.set_option(cred, level, name, v)?;
                if (level, name) == (SOL_UDP, UDP_CORK) && !self.options().on(level, name) {
                    // What becomes of it nobody is told.
                    let _ = self.uncork(cred.euid);
                }
                Ok(())
            }
        }
    }
    fn set_socket_option(&self, name: i32, v: &[u8]) -> Option<Result<()>> {
        if !matches!(name, SO_ATTACH_REUSEPORT_CBPF | SO_DETACH_REUSEPORT_BPF) {
            return None;
        }
        let bound = match self.state.lock().binding {
            Some(_) => Chosen::After,
            None => Chosen::Before,
        };
        Some(self.common.set_chooser(name, v, bound))
    }

    fn option_of(&self, level: i32, name: i32, v: &[u8]) -> Option<Result<Vec<u8>>> {
        self.rx.socket.option_of(level, name, v)
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => Ok(vec![0; 4]),
            (other, _) if ![SOL_SOCKET, SOL_IP, SOL_IPV6, SOL_UDP].contains(&other) => {
                Err(inet::foreign(self.common.family))
            }
            (SOL_UDP, UDP_ENCAP) => Ok(vec![0; 4]),
            (SOL_IP, IP_PROTOCOL) => {
                let port = self.state.lock().local.map_or(0, |l| l.port);
                Ok(i32::from(port).to_le_bytes().to_vec())
            }
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(EOPNOTSUPP),
            (SOL_IP, IP_MTU) | (SOL_IPV6, IPV6_MTU) => {
                let local = self.state.lock().local.map(|l| l.ip);
                self.rx.socket.mtu(local, self.rx.peer())
            }
            _ => self.rx.socket.get_option(level, name),
        }
    }

    fn unread(&self) -> Result<usize> {
        Ok(self.rx.socket.queue.first_len())
    }

    fn lost(&self) -> u32 {
        self.rx.socket.queue.lost()
    }

    fn close(&self) {
        self.cork.take();
        if let Some(out) = &self.common.ns.way_out {
            out.close(self.rx.number());
        }
        let b = self.state.lock().binding.take();
        if let Some(b) = b {
            self.common.ns.udp.unbind(&b);
        }
        self.rx.socket.close();
    }
}
