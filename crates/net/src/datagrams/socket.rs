//! The shared part of a socket of datagrams.

use super::groups::{Memberships, Which};
use super::queue::{DatagramQueue, control_for};
use super::sources::{self, Change, Mode};
use crate::addr::Endpoint;
use crate::errors::{ErrorQueue, Report};
use crate::inet::*;
use crate::options::{Common, int_of};
use crate::protocol::Received;
use crate::receivers::Quote;
use crate::sys::*;
use abi::errno::{
    EADDRNOTAVAIL, EINVAL, EMSGSIZE, ENOBUFS, ENODEV, ENOPROTOOPT, ENOTCONN, EOPNOTSUPP,
};
use abi::{Errno, Result};
use netstack::ip::{ErrorKind, Marks, Path, Pmtu, SendError, Sent, Severity};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use vfs::{Credentials, Sink};
use wait::Events;

/// Whether what failed was sent to a socket's only peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Connected,
    Any,
}

/// The destination, the bound source and the device that a path is for.
type PathKey = (IpAddr, Option<IpAddr>, i32);

/// See the module. Nobody who brings something waits for a program: no lock here is held while
/// application memory is touched.
pub(crate) struct DatagramSocket {
    pub common: Arc<Common>,
    pub options: InetOptions,
    pub queue: DatagramQueue,
    pub groups: Memberships,
    pub errors: ErrorQueue,
    /// IP_MULTICAST_IF. Leaf lock, as is the next one.
    pub(super) multicast_if: Mutex<Which>,
    /// The path of the last datagram.
    pub(super) last: Mutex<Option<(PathKey, Path)>>,
}

impl DatagramSocket {
    pub fn new(common: &Arc<Common>) -> DatagramSocket {
        let options = InetOptions::default();
        if common.family == AF_INET6 {
            // A socket of IPv6 gets those of IPv4 that it is a member of only.
            options.keep(SOL_IP, IP_MULTICAST_ALL, 0);
        }
        DatagramSocket {
            common: common.clone(),
            options,
            queue: DatagramQueue::new(common),
            groups: Memberships::default(),
            errors: ErrorQueue::new(common),
            multicast_if: Mutex::new(Which::by_index(0)),
            last: Mutex::new(None),
        }
    }

    /// The index of the only device that it uses; 0: all.
    pub fn device(&self) -> i32 {
        self.common.device()
    }

    /// Whether it takes what comes by a device from `from` to `to`.
    pub fn admits(&self, from: IpAddr, to: IpAddr, device: i32) -> bool {
        if !matches!(self.device(), 0) && self.device() != device {
            return false;
        }
        let (level, name) = match to {
            IpAddr::V4(_) => (SOL_IP, IP_MULTICAST_ALL),
            IpAddr::V6(_) => (SOL_IPV6, IPV6_MULTICAST_ALL),
        };
        !to.is_multicast()
            || self
                .groups
                .take(from, (to, device), || self.options.on(level, name))
    }

    /// Whether its own multicasts come back to members of this host.
    pub fn loops(&self, to: IpAddr) -> bool {
        match to {
            IpAddr::V4(_) if to.is_multicast() => self.options.on(SOL_IP, IP_MULTICAST_LOOP),
            IpAddr::V4(_) => true,
            IpAddr::V6(_) => self.options.on(SOL_IPV6, IPV6_MULTICAST_LOOP),
        }
    }

    /// IP_RECVERR, or for IPv6 IPV6_RECVERR.
    pub fn wants_errors(&self, to: IpAddr) -> bool {
        match to {
            IpAddr::V4(_) => self.options.on(SOL_IP, IP_RECVERR),
            IpAddr::V6(_) => self.options.on(SOL_IPV6, IPV6_RECVERR),
        }
    }

    /// A receive, from its queue or from that of errors.
    pub fn receive(&self, dst: &mut dyn Sink, flags: u32) -> Result<Received> {
        if flags & MSG_ERRQUEUE != 0 {
            let (common, options) = (&self.common, &self.options);
            let more = |came, c: &mut _| control_for(common, options, came, c);
            return self.errors.receive(dst, more);
        }
        self.common.take_error()?;
        self.queue.receive(dst, flags, &self.options)
    }

    /// What poll(2) tells of its queues.
    pub fn poll(&self) -> Events {
        let mut e = Events::WRITABLE;
        let (some, shut) = self.queue.status();
        if some || shut {
            e |= Events::READABLE;
        }
        if shut {
            e |= Events::RDHUP;
        }
        e | self.poll_errors()
    }

    /// Its error, and what is in its error queue, as poll(2) tells it.
    fn poll_errors(&self) -> Events {
        const SO_SELECT_ERR_QUEUE: i32 = 45;
        let mut e = Events::empty();
        if self.common.has_error() || !self.errors.is_empty() {
            e |= Events::ERR;
            if self.common.flag(SO_SELECT_ERR_QUEUE) {
                e |= Events::PRI;
            }
        }
        e
    }

    /// What it sent to `to` did not arrive (`udp_err`, `ping_err`, `raw_err`).
    pub fn failed(&self, to: Endpoint, peer: Peer, q: &Quote<'_>, payload: &[u8]) {
        let mut hard = q.error.severity == Severity::Hard;
        match q.error.kind {
            ErrorKind::SourceQuench => return,
            ErrorKind::PacketTooBig(_) => {
                hard = crate::stack::marks(&self.common, &self.options, to.ip).pmtu != Pmtu::Dont;
                if !hard && to.ip.is_ipv4() {
                    return;
                }
            }
            _ => {}
        }
        if self.wants_errors(to.ip) {
            let report = Report::icmp(&q.error, to, q.offender, payload, q.came);
            self.errors.put(report);
        } else if !hard || peer == Peer::Any {
            return;
        }
        self.tell(q.error.errno);
    }

    /// Has the next call fail with this.
    pub fn tell(&self, e: Errno) {
        self.common.set_error(e);
        self.common
            .notify(Events::ERR | Events::READABLE | Events::WRITABLE);
    }

    /// What a send by the stack comes to: one that finds no room is lost, and told only to those
    /// that ask for errors.
    ///
    /// # Errors
    ///
    /// As of the send; `ENOBUFS` where there is no room.
    pub fn sent(
        &self,
        to: Endpoint,
        peer: Option<Endpoint>,
        r: std::result::Result<Sent, SendError>,
    ) -> Result<()> {
        let wants = self.wants_errors(to.ip);
        match r {
            Ok(Sent::Yes) => Ok(()),
            Ok(Sent::Full) | Err(SendError::NoBuffers) if wants => Err(ENOBUFS),
            Ok(Sent::Full) | Err(SendError::NoBuffers) => Ok(()),
            Err(SendError::TooBig(mtu)) => {
                if wants {
                    // The address is the datagram's, the port the peer's (`ip_local_error`).
                    let port = match to.ip {
                        IpAddr::V4(_) => peer.map_or(0, |p| p.port),
                        IpAddr::V6(_) => to.port,
                    };
                    let to = Endpoint { ip: to.ip, port };
                    self.errors.put(Report::too_big(to, mtu));
                }
                Err(EMSGSIZE)
            }
            Err(e) => Err(e.errno()),
        }
    }

    /// Takes the pending error before a datagram of `len` bytes with all headers, unless that is
    /// refused anyway because it is too large (`ip_append_data` looks at the length first).
    pub fn take_error_before(&self, path: Option<&Path>, marks: &Marks, len: usize) -> Result<()> {
        let limit = match (path, marks.pmtu) {
            (Some(p), Pmtu::Do) => p.mtu,
            (Some(p), Pmtu::Probe | Pmtu::Interface) => p.link_mtu,
            _ => u32::from(u16::MAX),
        };
        if len > limit as usize {
            return Ok(());
        }
        self.common.take_error()
    }

    /// IP_MTU of a socket that is connected to `peer`.
    pub fn mtu(&self, local: Option<IpAddr>, peer: Option<Endpoint>) -> Result<Vec<u8>> {
        let peer = peer.ok_or(ENOTCONN)?;
        let route = self.route(local, peer, &Default::default());
        let path = route.ok().and_then(|r| r.course.path().copied());
        let mtu = path.map_or(65_535, |p| p.mtu as i32);
        Ok(mtu.to_le_bytes().to_vec())
    }

    pub fn close(&self) {
        self.groups.leave_all(&self.common.ns);
        self.queue.clear();
        self.errors.clear();
    }

    pub fn set_option(&self, cred: &Credentials, level: i32, name: i32, v: &[u8]) -> Result<()> {
        match (level, name) {
            (SOL_IP, IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP) => {
                let (group, which) = mreq(v)?;
                self.change(name == IP_ADD_MEMBERSHIP, group, which)
            }
            (SOL_IPV6, IPV6_ADD_MEMBERSHIP | IPV6_DROP_MEMBERSHIP) => {
                let (group, device) = v.split_first_chunk::<16>().ok_or(EINVAL)?;
                let which = Which::by_index(int_of(device)?);
                let group = IpAddr::V6(Ipv6Addr::from(*group));
                self.change(name == IPV6_ADD_MEMBERSHIP, group, which)
            }
            (SOL_IP | SOL_IPV6, MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP) => {
                let family = if level == SOL_IP { AF_INET } else { AF_INET6 };
                let (group, which) = group_req(v, family)?;
                self.change(name == MCAST_JOIN_GROUP, group, which)
            }
            (SOL_IP, IP_UNBLOCK_SOURCE..=IP_MSFILTER) => self.set_sources(level, name, v),
            (
                SOL_IP | SOL_IPV6,
                MCAST_BLOCK_SOURCE
                | MCAST_UNBLOCK_SOURCE
                | MCAST_JOIN_SOURCE_GROUP..=MCAST_MSFILTER,
            ) => self.set_sources(level, name, v),
            // Only the device of it lasts.
            (SOL_IPV6, IPV6_PKTINFO) => {
                let device = match v {
                    [] => 0,
                    v => int_of(v.get(16..).ok_or(EINVAL)?)?,
                };
                if device != 0 {
                    self.fits(device)?;
                }
                self.options.keep(level, name, device);
                Ok(())
            }
            (SOL_IP, IP_MULTICAST_IF) => self.set_multicast_if(v),
            (SOL_IPV6, IPV6_MULTICAST_IF) => {
                let device = int_of(v)?;
                if device != 0 {
                    self.fits(device)?;
                    self.known(device).map_err(|_| ENODEV)?;
                }
                self.options.keep(level, name, device);
                Ok(())
            }
            (SOL_IP, IP_UNICAST_IF) | (SOL_IPV6, IPV6_UNICAST_IF) => {
                let device = i32::from_be(int_of(v)?);
                if device != 0 {
                    self.known(device)?;
                    self.fits(device)?;
                }
                self.options.keep(level, name, device.to_be());
                Ok(())
            }
            _ => {
                let may_mark = || self.common.may_mark(cred);
                self.options.set(level, name, v, &may_mark)?;
                let off = matches!(
                    (level, name),
                    (SOL_IP, IP_RECVERR) | (SOL_IPV6, IPV6_RECVERR)
                ) && !self.options.on(level, name);
                if off {
                    self.errors.clear();
                }
                Ok(())
            }
        }
    }

    pub fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match (level, name) {
            (SOL_SOCKET, _) => Err(ENOPROTOOPT),
            (SOL_IPV6, _) if self.common.family == AF_INET => Err(EOPNOTSUPP),
            (SOL_IPV6, IPV6_PKTINFO) => {
                let device = self.options.value(level, name).to_le_bytes();
                Ok([&[0; 16][..], &device].concat())
            }
            (SOL_IP, IP_MULTICAST_IF) => Ok(self.multicast_if.lock().address.octets().to_vec()),
            _ => self.options.get(level, name),
        }
    }

    /// An option that is asked for with a value: the filter of a group.
    pub fn option_of(&self, level: i32, name: i32, v: &[u8]) -> Option<Result<Vec<u8>>> {
        let family = if level == SOL_IP { AF_INET } else { AF_INET6 };
        let asked = match (level, name) {
            (SOL_IP, IP_MSFILTER) => sources::asked_msfilter(v),
            (SOL_IP | SOL_IPV6, MCAST_MSFILTER) => sources::asked_group_filter(v, family),
            _ => return None,
        };
        Some(asked.and_then(|(group, which)| {
            let f = self.groups.filter(&self.common.ns, group, which)?;
            Ok(match name {
                IP_MSFILTER => sources::told_msfilter(v, &f),
                _ => sources::told_group_filter(v, &f),
            })
        }))
    }

    /// What concerns sources of a group.
    fn set_sources(&self, level: i32, name: i32, v: &[u8]) -> Result<()> {
        let (ns, groups) = (&self.common.ns, &self.groups);
        let family = if level == SOL_IP { AF_INET } else { AF_INET6 };
        let what = match name {
            IP_UNBLOCK_SOURCE | MCAST_UNBLOCK_SOURCE => Change::Unblock,
            IP_BLOCK_SOURCE | MCAST_BLOCK_SOURCE => Change::Block,
            IP_ADD_SOURCE_MEMBERSHIP | MCAST_JOIN_SOURCE_GROUP => Change::Join,
            IP_DROP_SOURCE_MEMBERSHIP | MCAST_LEAVE_SOURCE_GROUP => Change::Leave,
            _ => {
                let (group, which, filter) = match name {
                    IP_MSFILTER => sources::msfilter(v)?,
                    _ => sources::group_filter(v, family)?,
                };
                return groups.set_filter(ns, (group, which), filter);
            }
        };
        let (group, which, source) = match name {
            IP_UNBLOCK_SOURCE..=IP_DROP_SOURCE_MEMBERSHIP => sources::mreq_source(v)?,
            _ => sources::group_source_req(v, family)?,
        };
        groups.change_source(ns, (group, which), what, source)
    }

    fn change(&self, joins: bool, group: IpAddr, which: Which) -> Result<()> {
        let ns = &self.common.ns;
        if joins {
            self.groups.join(ns, group, which, Mode::Exclude)
        } else {
            self.groups.leave(ns, group, which)
        }
    }

    fn known(&self, device: i32) -> Result<()> {
        if self.common.ns.has_device(device) {
            Ok(())
        } else {
            Err(EADDRNOTAVAIL)
        }
    }

    /// A socket of one device uses no other.
    fn fits(&self, device: i32) -> Result<()> {
        if matches!(self.device(), 0) || self.device() == device {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    fn set_multicast_if(&self, v: &[u8]) -> Result<()> {
        let address = |b: &[u8]| match b {
            [a, b, c, d, ..] => Ok(Ipv4Addr::new(*a, *b, *c, *d)),
            _ => Err(EINVAL),
        };
        let mut which = Which::by_index(0);
        if v.len() >= 12 {
            which.device = int_of(&v[8..])?;
        }
        which.address = address(if v.len() >= 8 { &v[4..] } else { v })?;
        if which.device != 0 {
            self.known(which.device)?;
        } else if !which.address.is_unspecified() {
            let found = self.common.ns.device_of(IpAddr::V4(which.address));
            which.device = found.ok_or(EADDRNOTAVAIL)?;
        }
        if which.device != 0 {
            self.fits(which.device)?;
        }
        *self.multicast_if.lock() = which;
        Ok(())
    }
}

/// `struct ip_mreq` or `ip_mreqn`.
fn mreq(v: &[u8]) -> Result<(IpAddr, Which)> {
    let [a, b, c, d, e, f, g, h, rest @ ..] = v else {
        return Err(EINVAL);
    };
    let which = Which {
        device: int_of(rest).unwrap_or(0),
        address: Ipv4Addr::new(*e, *f, *g, *h),
    };
    Ok((IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)), which))
}

/// `struct group_req`.
fn group_req(v: &[u8], family: u16) -> Result<(IpAddr, Which)> {
    const LEN: usize = 136;
    let v = v.get(..LEN).ok_or(EINVAL)?;
    let device = int_of(v)?;
    let group = &v[8..];
    if crate::addr::family_of(group)? != family {
        return Err(match family {
            AF_INET => EINVAL,
            _ => EADDRNOTAVAIL,
        });
    }
    let ip = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::new(group[4], group[5], group[6], group[7])),
        _ => {
            let octets: [u8; 16] = group[8..24].try_into().map_err(|_| EINVAL)?;
            IpAddr::V6(Ipv6Addr::from(octets))
        }
    };
    Ok((ip, Which::by_index(device)))
}
