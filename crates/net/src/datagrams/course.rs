//! Where a datagram goes: to sockets of this host, by a device, or to all that are on one.

use super::groups::Which;
use super::socket::DatagramSocket;
use crate::addr::Endpoint;
use crate::control::Control;
use crate::inet::*;
use crate::interface::LO_INDEX;
use crate::ns::NetNamespace;
use crate::options::{Common, SO_BROADCAST, SO_MARK, SO_PRIORITY, SO_TXTIME};
use crate::stack::Stack;
use crate::stamps::{SO_TIMESTAMPING, SO_TIMESTAMPING_NEW, TX_RECORD};
use crate::sys::*;
use abi::Result;
use abi::errno::{EACCES, EINVAL, ENETUNREACH, ENODEV, EPERM};
use netstack::ip::{Marks, Path};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use vfs::Credentials;

/// What a send asks for beside its destination.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Wishes {
    /// The index of the device; 0: none is asked for.
    pub device: i32,
    pub source: Option<IpAddr>,
    /// UDP_SEGMENT.
    pub segment: Option<usize>,
    ttl: Option<u8>,
    tos: Option<u8>,
    mark: Option<u32>,
    /// SO_PRIORITY.
    pub priority: Option<i32>,
    /// Of SO_TIMESTAMPING, which times of it are told.
    pub stamps: Option<u32>,
}

/// What was found for a destination.
pub(crate) struct Route {
    /// A wildcard as destination is this host's loopback address.
    pub to: Endpoint,
    pub source: IpAddr,
    pub course: Course,
}

pub(crate) enum Course {
    /// A socket of this host, or what the broker or the name server leads to.
    Here,
    Stack(Arc<Stack>, Path),
    /// All on a device: those of this host, and those outside where there is a path.
    All(i32, Option<(Arc<Stack>, Path)>),
    /// By a device where nobody is.
    Nowhere,
}

/// The index of `struct in_pktinfo` or `in6_pktinfo`: below 0 it is none.
fn index(v: &[u8]) -> Result<i32> {
    let n = crate::options::int_of(v)?;
    if n < 0 { Err(EINVAL) } else { Ok(n) }
}

fn octet(v: &[u8]) -> Result<u8> {
    match v {
        [b] => Ok(*b),
        _ => u8::try_from(crate::options::int_of(v)?).map_err(|_| EINVAL),
    }
}

impl Course {
    /// The way out by the stack.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Course::Stack(_, p) | Course::All(_, Some((_, p))) => Some(p),
            _ => None,
        }
    }
}

impl Wishes {
    /// What a send's control data asks for (`ip_cmsg_send`, `ip6_datagram_send_ctl`,
    /// `__sock_cmsg_send`).
    pub fn read(control: &Control, common: &Common, cred: &Credentials) -> Result<Wishes> {
        let mut w = Wishes::default();
        for (level, name, v) in &control.other {
            match (*level, *name) {
                // No device here sends later (SCM_TXTIME).
                (SOL_SOCKET, SO_TXTIME) if v.len() == 8 && common.flag(SO_TXTIME) => {}
                (SOL_SOCKET, _) => w.read_common(*name, v, || common.may_mark(cred))?,
                (SOL_IP, IP_PKTINFO) if v.len() >= 12 => {
                    w.device = index(v)?;
                    let ip = Ipv4Addr::new(v[4], v[5], v[6], v[7]);
                    w.source = Some(ip).filter(|ip| !ip.is_unspecified()).map(IpAddr::V4);
                }
                (SOL_IPV6, IPV6_PKTINFO) if v.len() >= 20 => {
                    w.device = index(&v[16..])?;
                    let octets: [u8; 16] = v[..16].try_into().map_err(|_| EINVAL)?;
                    let ip = IpAddr::from(octets).to_canonical();
                    w.source = Some(ip).filter(|ip| !ip.is_unspecified());
                }
                (SOL_IP, IP_TTL) => match octet(v)? {
                    0 => return Err(EINVAL),
                    n => w.ttl = Some(n),
                },
                (SOL_IP, IP_TOS) => w.tos = Some(octet(v)?),
                (SOL_IPV6, IPV6_HOPLIMIT | IPV6_TCLASS) => {
                    let n = crate::options::int_of(v)?;
                    if !(-1..=255).contains(&n) {
                        return Err(EINVAL);
                    }
                    let n = u8::try_from(n).ok();
                    if *name == IPV6_HOPLIMIT {
                        w.ttl = n;
                    } else {
                        w.tos = n;
                    }
                }
                (SOL_UDP, UDP_SEGMENT) if v.len() >= 2 => {
                    w.segment = Some(usize::from(u16::from_le_bytes([v[0], v[1]])));
                }
                _ => {}
            }
        }
        Ok(w)
    }

    /// Of those that are for all sockets.
    fn read_common(&mut self, name: i32, v: &[u8], may_mark: impl Fn() -> bool) -> Result<()> {
        let v: [u8; 4] = v.try_into().map_err(|_| EINVAL)?;
        let n = u32::from_le_bytes(v);
        match name {
            SO_MARK if !may_mark() => return Err(EPERM),
            SO_MARK => self.mark = Some(n),
            SO_PRIORITY if n > 6 && !may_mark() => return Err(EPERM),
            SO_PRIORITY => self.priority = Some(n as i32),
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW if n & !TX_RECORD == 0 => self.stamps = Some(n),
            _ => return Err(EINVAL),
        }
        Ok(())
    }

    /// The same, with the device that a link-local destination names (`sin6_scope_id`).
    #[must_use]
    pub fn with_scope(mut self, addr: &[u8]) -> Wishes {
        if let (Ok(AF_INET6), Some(octets), Some(scope)) = (
            crate::addr::family_of(addr),
            addr.get(8..24),
            addr.get(24..28),
        ) {
            let octets: [u8; 16] = octets.try_into().unwrap_or_default();
            let ip = Ipv6Addr::from(octets);
            let is_of_link = ip.is_unicast_link_local() || ip.is_multicast() && octets[1] & 15 <= 2;
            let scope = crate::options::int_of(scope).unwrap_or(0);
            if is_of_link && scope > 0 && self.device == 0 {
                self.device = scope;
            }
        }
        self
    }

    /// What its packets carry: by the socket's options, unless this send says otherwise.
    pub fn marks(&self, socket: &DatagramSocket, to: IpAddr) -> Marks {
        let mut m = crate::stack::marks(&socket.common, &socket.options, to);
        m.ttl = self.ttl.unwrap_or(m.ttl);
        m.tos = self.tos.unwrap_or(m.tos);
        m.mark = self.mark.unwrap_or(m.mark);
        m
    }
}

impl DatagramSocket {
    /// The way to a destination for a socket that is bound to `local`.
    pub fn route(&self, local: Option<IpAddr>, to: Endpoint, w: &Wishes) -> Result<Route> {
        let ns = &self.common.ns;
        if w.device != 0 && self.device() != 0 && w.device != self.device() {
            return Err(EINVAL);
        }
        // Who is bound to a group or to all has no address of its own by that.
        let is_one = |ip: &IpAddr| {
            !ip.is_unspecified() && !ip.is_multicast() && !self.common.ns.is_broadcast(*ip)
        };
        let bound = local.filter(is_one);
        if bound.is_some_and(|b| b.is_ipv4() != to.ip.is_ipv4()) && !to.ip.is_unspecified() {
            return Err(ENETUNREACH);
        }
        if to.ip.is_ipv4() && self.is_v6_only() {
            return Err(ENETUNREACH);
        }
        let lasting = match to.ip {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => self.options.value(SOL_IPV6, IPV6_PKTINFO),
        };
        let all = [w.device, self.device(), lasting].into_iter();
        let asked = all.into_iter().find(|d| *d != 0).unwrap_or(0);
        if to.ip.is_multicast() || ns.is_broadcast(to.ip) {
            return self.route_to_all(w.source.or(bound), to, asked);
        }
        let device = if asked != 0 {
            asked
        } else {
            self.unicast_device(to.ip)
        };
        let inside = Endpoint {
            ip: ns.resolve(to.ip),
            port: to.port,
        };
        if let Some(stack) = ns.packets_to(inside) {
            let path = self.path(stack, inside.ip, bound, device)?;
            return Ok(Route {
                to: inside,
                source: bound.unwrap_or(path.source),
                course: Course::Stack(stack.clone(), path),
            });
        }
        let stack = ns.stack().filter(|_| ns.is_outside(to.ip));
        let Some(stack) = stack else {
            let local = local.map(|ip| Endpoint { ip, port: 0 });
            let (to, source) = crate::tcp::route(&self.common, &self.options, local, to)?;
            let elsewhere = device != 0 && device != LO_INDEX && to.ip.is_loopback();
            return Ok(Route {
                to,
                source,
                course: if elsewhere {
                    Course::Nowhere
                } else {
                    Course::Here
                },
            });
        };
        if device == LO_INDEX {
            let source = bound.unwrap_or_else(|| ns.source_for(to.ip));
            let course = Course::Nowhere;
            return Ok(Route { to, source, course });
        }
        let path = self.path(stack, to.ip, bound, device)?;
        Ok(Route {
            to,
            source: bound.unwrap_or(path.source),
            course: Course::Stack(stack.clone(), path),
        })
    }

    /// The same for a group, and for all of a network.
    fn route_to_all(&self, bound: Option<IpAddr>, to: Endpoint, asked: i32) -> Result<Route> {
        let ns = &self.common.ns;
        let multicast = to.ip.is_multicast();
        let (mut device, mut source) = (asked, bound);
        if multicast {
            let chosen = self.multicast_interface(to.ip);
            if device == 0 {
                device = chosen.device;
            }
            if source.is_none() && !chosen.address.is_unspecified() {
                source = Some(IpAddr::V4(chosen.address));
            }
        } else if device == 0 {
            device = self.unicast_device(to.ip);
        }
        if device == 0 && (to.ip == NetNamespace::LOOPBACK_BROADCAST || is_loopback(source)) {
            device = LO_INDEX;
        }
        if device == LO_INDEX {
            if !ns.is_up() {
                return Err(ENETUNREACH);
            }
            let source = source.unwrap_or_else(|| ns.loopback_source(to.ip));
            self.allow_broadcast(multicast)?;
            let course = Course::All(LO_INDEX, None);
            return Ok(Route { to, source, course });
        }
        let Some(stack) = ns.stack() else {
            ns.miss(to.ip);
            return Err(ENETUNREACH);
        };
        let from = source.filter(|ip| !ip.is_loopback());
        let path = self.path(stack, to.ip, from, device)?;
        self.allow_broadcast(multicast)?;
        Ok(Route {
            to,
            source: source.unwrap_or(path.source),
            course: Course::All(path.index as i32, Some((stack.clone(), path))),
        })
    }

    fn allow_broadcast(&self, is_multicast: bool) -> Result<()> {
        if is_multicast || self.common.flag(SO_BROADCAST) {
            Ok(())
        } else {
            Err(EACCES)
        }
    }

    /// A path by the stack: that of the last datagram, while it holds.
    fn path(&self, stack: &Stack, to: IpAddr, from: Option<IpAddr>, device: i32) -> Result<Path> {
        let key = (to, from, device);
        let mut last = self.last.lock();
        if let Some((k, p)) = &*last
            && *k == key
            && stack.holds(p, crate::clock::now)
        {
            return Ok(*p);
        }
        let device = u32::try_from(device).ok().filter(|d| *d != 0);
        let path = stack
            .ip
            .path(to, from, device)
            .map_err(|e| match e.errno() {
                ENODEV => ENETUNREACH,
                e => e,
            })?;
        *last = Some((key, path));
        Ok(path)
    }

    /// The device and the address that IP_MULTICAST_IF and IPV6_MULTICAST_IF say.
    fn multicast_interface(&self, to: IpAddr) -> Which {
        match to {
            IpAddr::V4(_) => *self.multicast_if.lock(),
            IpAddr::V6(_) => Which::by_index(self.options.value(SOL_IPV6, IPV6_MULTICAST_IF)),
        }
    }

    /// IP_UNICAST_IF and IPV6_UNICAST_IF, which are in the network's byte order.
    fn unicast_device(&self, to: IpAddr) -> i32 {
        let (level, name) = match to {
            IpAddr::V4(_) => (SOL_IP, IP_UNICAST_IF),
            IpAddr::V6(_) => (SOL_IPV6, IPV6_UNICAST_IF),
        };
        i32::from_be(self.options.value(level, name))
    }

    fn is_v6_only(&self) -> bool {
        self.common.family == AF_INET6 && self.options.on(SOL_IPV6, IPV6_V6ONLY)
    }
}

fn is_loopback(ip: Option<IpAddr>) -> bool {
    ip.is_some_and(|ip| ip.is_loopback())
}
