//! UDP: between sockets of one namespace, and with others by the way out.

use crate::addr::{Endpoint, family_of, parse_inet};
use crate::control::Control;
use crate::datagrams::{Arrival, DatagramQueue};
use crate::inet::*;
use crate::msgqueue::take_all;
use crate::ns::{Binding, NetNamespace, Rule};
use crate::options::{Common, SO_ACCEPTCONN, SO_BROADCAST};
use crate::protocol::{Block, Caller, Parts, Protocol, Received, Shutdown};
use crate::stack::Stack;
use crate::sys::*;
use crate::tcp::{bindable, route};
use crate::user::wire::Datagrams;
use crate::user::{Inside, UserNetwork};
use abi::Result;
use abi::errno::{
    EACCES, EAFNOSUPPORT, ECONNREFUSED, EDESTADDRREQ, EINVAL, EMSGSIZE, ENETUNREACH, ENOPROTOOPT,
    ENOTCONN, EOPNOTSUPP, EPIPE,
};
use bytes::Bytes;
use netstack::ip::Info;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Credentials, Sink, Source};
use wait::Events;

/// The largest payload of one datagram.
const MAX_PAYLOAD: usize = 65527;
/// The same by IPv4, whose header counts.
const MAX_PAYLOAD_V4: usize = 65507;
/// The most datagrams that one UDP_SEGMENT send makes.
const MAX_SEGMENTS: usize = 128;

/// A UDP socket.
pub struct Udp {
    common: Arc<Common>,
    options: InetOptions,
    rx: Arc<UdpRx>,
    state: Mutex<State>,
    shut_write: AtomicBool,
}

#[derive(Default)]
struct State {
    local: Option<Endpoint>,
    /// Bound by the program, not by the first send.
    chosen: bool,
    binding: Option<Arc<Binding<UdpRx>>>,
}

/// The receiving side, as senders see it.
pub struct UdpRx {
    common: Arc<Common>,
    /// Only datagrams from there are taken. Leaf lock.
    peer: Mutex<Option<Endpoint>>,
    queue: DatagramQueue,
}

/// A datagram came by a device; whether anybody takes it.
pub(crate) fn arrived(
    ns: &NetNamespace,
    from: Endpoint,
    to: Endpoint,
    data: &[u8],
    info: &Info,
) -> bool {
    let Some(rx) = ns.udp.lookup(to, |rx| rx.takes(from)) else {
        return false;
    };
    // A piece of a large frame would keep the whole.
    let data = Bytes::copy_from_slice(data);
    rx.queue.put(data, from, Arrival::outside(to.ip, info));
    true
}

/// What was sent from `local` to `remote` did not arrive.
pub(crate) fn failed(ns: &NetNamespace, local: Endpoint, remote: Endpoint, e: abi::Errno) {
    if let Some(rx) = ns.udp.lookup(local, |rx| rx.takes(remote)) {
        Inside::failed(&*rx, remote, e);
    }
}

impl UdpRx {
    /// How well it fits what comes from there; `None`: not at all.
    fn takes(&self, from: Endpoint) -> Option<u32> {
        match *self.peer.lock() {
            Some(p) if p != from => None,
            Some(_) => Some(8),
            None => Some(0),
        }
    }
}

impl Inside for UdpRx {
    fn number(&self) -> u64 {
        self.common.ino
    }
    fn user(&self) -> u32 {
        self.common.outermost_user()
    }
    fn received(&self, from: Endpoint, data: &[u8]) {
        if self.peer.lock().is_some_and(|p| p != from) {
            return;
        }
        let to = self.common.ns.source_for(from.ip);
        let data = Bytes::copy_from_slice(data);
        self.queue.put(data, from, Arrival::inside(to, 0));
    }
    /// A connected socket is told.
    fn failed(&self, to: Endpoint, e: abi::Errno) {
        if *self.peer.lock() == Some(to) {
            self.common.set_error(e);
            self.common
                .notify(Events::ERR | Events::READABLE | Events::WRITABLE);
        }
    }
}

pub fn new(ns: &Arc<NetNamespace>, family: u16) -> Parts {
    let common = Common::new(ns, family, SOCK_DGRAM, IPPROTO_UDP);
    let rx = Arc::new(UdpRx {
        common: common.clone(),
        peer: Mutex::new(None),
        queue: DatagramQueue::new(&common),
    });
    let udp = Arc::new(Udp {
        common: common.clone(),
        options: InetOptions::default(),
        rx,
        state: Mutex::new(State::default()),
        shut_write: AtomicBool::new(false),
    });
    Parts::new(common, udp)
}

impl Udp {
    /// Binds to a free port if need be; gives the local endpoint.
    fn ensure_bound(&self, s: &mut State, uid: u32) -> Result<Endpoint> {
        if let (Some(l), Some(_)) = (s.local, &s.binding) {
            return Ok(l);
        }
        let any = Endpoint::any(self.common.family);
        let families = self.options.families();
        let rx = Some(self.rx.clone());
        let b = self
            .common
            .ns
            .udp
            .bind(any, families, &self.common, uid, Rule::Udp, rx)?;
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
                if mine == AF_INET6 && self.options.on(SOL_IPV6, IPV6_V6ONLY) {
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

    fn send_by(
        &self,
        stack: &Stack,
        from: Endpoint,
        to: Endpoint,
        data: &[u8],
        segment: Option<u16>,
    ) -> Result<()> {
        let marks = crate::stack::marks(&self.options, to.ip);
        stack.send_udp(from, to, data, segment, &marks)
    }

    fn deliver(&self, from: Endpoint, to: Endpoint, data: Vec<u8>, tos: u8, connected: bool) {
        // A wildcard's socket is for this host's addresses, not for others' that leave.
        if let Some(out) = self.common.ns.leaves(to.ip) {
            return self.send_out(out, to, &data);
        }
        let rx = self.common.ns.udp.lookup(to, |rx| rx.takes(from));
        let Some(rx) = rx else {
            if let Some(out) = self.common.ns.leaves_to(to) {
                return self.send_out(out, to, &data);
            }
            if let Some(names) = self.common.ns.names_at(to) {
                let rx: Arc<dyn Inside> = self.rx.clone();
                return names.ask(&rx, &data);
            }
            // The port-unreachable message that comes back tells only who wants to know.
            let wants =
                self.options.on(SOL_IP, IP_RECVERR) || self.options.on(SOL_IPV6, IPV6_RECVERR);
            if connected || wants {
                self.common.set_error(ECONNREFUSED);
                self.common
                    .notify(Events::ERR | Events::READABLE | Events::WRITABLE);
            }
            return;
        };
        rx.queue.put(data.into(), from, Arrival::inside(to.ip, tos));
    }
}

/// What a send's control data asks for: the source address and the segment size.
fn wishes(control: &Control) -> (Option<IpAddr>, Option<usize>) {
    let (mut source, mut segment) = (None, None);
    for (level, name, v) in &control.other {
        match (*level, *name) {
            (SOL_IP, IP_PKTINFO) if v.len() >= 12 => {
                let ip = Ipv4Addr::new(v[4], v[5], v[6], v[7]);
                if !ip.is_unspecified() {
                    source = Some(IpAddr::V4(ip));
                }
            }
            (SOL_IPV6, IPV6_PKTINFO) if v.len() >= 20 => {
                let mut o = [0; 16];
                o.copy_from_slice(&v[..16]);
                let ip = IpAddr::from(o).to_canonical();
                if !ip.is_unspecified() {
                    source = Some(ip);
                }
            }
            (SOL_UDP, UDP_SEGMENT) if v.len() >= 2 => {
                segment = Some(usize::from(u16::from_le_bytes([v[0], v[1]])));
            }
            _ => {}
        }
    }
    (source, segment)
}

impl Protocol for Udp {
    fn bind(&self, who: &Caller<'_>, addr: &[u8]) -> Result<()> {
        let at = bindable(&self.common, &self.options, who, addr)?;
        let mut s = self.state.lock();
        if s.binding.is_some() {
            return Err(EINVAL);
        }
        let families = self.options.families();
        let (uid, rx) = (who.cred.euid, Some(self.rx.clone()));
        let b = self
            .common
            .ns
            .udp
            .bind(at, families, &self.common, uid, Rule::Udp, rx)?;
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
            *self.rx.peer.lock() = None;
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
        let to = self.parse(addr)?;
        let bound = s.binding.as_ref().map(|b| Endpoint {
            ip: b.ip,
            port: b.port,
        });
        let (remote, source) = route(&self.common, &self.options, bound, to)?;
        let port = self.ensure_bound(&mut s, who.cred.euid)?.port;
        s.local = Some(Endpoint { ip: source, port });
        *self.rx.peer.lock() = Some(remote);
        Ok(())
    }

    fn local_name(&self) -> Result<Vec<u8>> {
        let l = self.state.lock().local;
        Ok(l.unwrap_or_else(|| Endpoint::any(self.common.family))
            .encode(self.common.family))
    }
    fn peer_name(&self) -> Result<Vec<u8>> {
        let p = self.rx.peer.lock().ok_or(ENOTCONN)?;
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
        if flags & MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        let len = src.remaining();
        if len > MAX_PAYLOAD {
            return Err(EMSGSIZE);
        }
        self.common.take_error()?;
        if self.shut_write.load(Ordering::Relaxed) {
            return Err(EPIPE);
        }
        let peer = *self.rx.peer.lock();
        let to = match dest {
            Some(d) => {
                let to = self.parse(d)?;
                if to.port == 0 {
                    return Err(EINVAL);
                }
                to
            }
            None => peer.ok_or(EDESTADDRREQ)?,
        };
        let ns = &self.common.ns;
        if to.ip == IpAddr::V4(Ipv4Addr::BROADCAST)
            || ns.stack().is_some_and(|s| s.ip.is_broadcast(to.ip))
        {
            if !self.common.flag(SO_BROADCAST) {
                return Err(EACCES);
            }
            if ns.stack().is_none() {
                return Err(ENETUNREACH);
            }
        }
        let local = self.ensure_bound(&mut self.state.lock(), who.cred.euid)?;
        let (remote, mut source) = route(&self.common, &self.options, Some(local), to)?;
        if remote.ip.is_ipv4() && len > MAX_PAYLOAD_V4 {
            return Err(EMSGSIZE);
        }
        let (wanted, segment) = wishes(&control);
        if let Some(ip) = wanted {
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
        let data = take_all(src)?;
        let tos = self.options.value(SOL_IP, IP_TOS) as u8;
        let connected = peer == Some(remote);
        let segment = segment.unwrap_or(self.options.value(SOL_UDP, UDP_SEGMENT) as usize);
        if segment > 0 && len > segment && len.div_ceil(segment) > MAX_SEGMENTS {
            return Err(EINVAL);
        }
        let parts = if segment > 0 { segment } else { len.max(1) };
        if let Some(stack) = self.common.ns.stack()
            && (remote.ip.is_multicast() || self.common.ns.is_outside(remote.ip))
        {
            let cut = (len > parts).then_some(parts as u16);
            self.send_by(stack, from, remote, &data, cut)?;
            return Ok(len);
        }
        if data.is_empty() {
            self.deliver(from, remote, data, tos, connected);
        } else {
            for part in data.chunks(parts) {
                self.deliver(from, remote, part.to_vec(), tos, connected);
            }
        }
        Ok(len)
    }

    fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        self.common.take_error()?;
        self.rx.queue.receive(dst, flags, 0, &self.options)
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        if self.rx.peer.lock().is_none() {
            return Err(ENOTCONN);
        }
        if how.read {
            self.rx.queue.shut();
        }
        if how.write {
            self.shut_write.store(true, Ordering::Relaxed);
        }
        self.common
            .notify(Events::READABLE | Events::WRITABLE | Events::HUP | Events::RDHUP);
        Ok(())
    }

    fn poll(&self) -> Events {
        let mut e = Events::WRITABLE;
        let (some, shut) = self.rx.queue.status();
        if some || shut {
            e |= Events::READABLE;
        }
        if shut {
            e |= Events::RDHUP;
            if self.shut_write.load(Ordering::Relaxed) {
                e |= Events::HUP;
            }
        }
        if self.common.has_error() {
            e |= Events::ERR;
        }
        e
    }

    fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        match (level, name) {
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(ENOPROTOOPT),
            (SOL_IPV6, IPV6_V6ONLY) if self.state.lock().binding.is_some() => Err(EINVAL),
            (SOL_TCP, _) => Err(ENOPROTOOPT),
            _ => self.options.set(level, name, v, cred),
        }
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        const IP_MTU: i32 = 14;
        const IPV6_MTU: i32 = 24;
        match (level, name) {
            (SOL_SOCKET, SO_ACCEPTCONN) => Ok(vec![0; 4]),
            (SOL_SOCKET | SOL_TCP, _) => Err(ENOPROTOOPT),
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(EOPNOTSUPP),
            (SOL_IP, IP_MTU) | (SOL_IPV6, IPV6_MTU) => {
                self.peer_name()?;
                Ok(65535i32.to_le_bytes().to_vec())
            }
            _ => self.options.get(level, name),
        }
    }

    fn unread(&self) -> Result<usize> {
        Ok(self.rx.queue.first_len())
    }

    fn close(&self) {
        if let Some(out) = &self.common.ns.way_out {
            out.close(self.rx.number());
        }
        let b = self.state.lock().binding.take();
        if let Some(b) = b {
            self.common.ns.udp.unbind(&b);
        }
        self.rx.queue.clear();
    }
}
