//! Options of the IP, IPv6, TCP and UDP levels (`ip(7)`, `ipv6(7)`, `tcp(7)`, `udp(7)`): numbers
//! that are checked, kept and told. What they mean for packets of ours is in `stack::options`;
//! what is joined in memory has none.

use crate::addr::Endpoint;
use crate::bindings::{BindRequest, Families, PortRange};
use crate::fast_open::Keys;
use crate::ns::NetNamespace;
use crate::options::{Common, int_of};
use crate::sys::{AF_INET, SOL_IP, SOL_IPV6, SOL_TCP, SOL_UDP};
use abi::errno::{EINVAL, ENODEV, ENOPROTOOPT, EOPNOTSUPP, EPERM, EPROTO};
use abi::{Errno, Result};
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    /// As `Bool`, for those with CAP_NET_ADMIN or CAP_NET_RAW where it is on.
    Privileged,
    /// The lowest eight bits.
    Byte,
    /// As `Int`, but not kept.
    Unkept(i32, i32),
    /// From, to.
    Int(i32, i32),
}
use Kind::{Bool, Byte, Int, Privileged, Unkept};

const ANY: Kind = Int(i32::MIN, i32::MAX);

pub const IP_TTL: i32 = 2;
pub const IP_TOS: i32 = 1;
pub const IP_PKTINFO: i32 = 8;
pub const IP_MTU_DISCOVER: i32 = 10;
pub const IP_RECVERR: i32 = 11;
pub const IP_RECVTTL: i32 = 12;
pub const IP_RECVTOS: i32 = 13;
pub const IP_MTU: i32 = 14;
pub const IP_FREEBIND: i32 = 15;
pub const IP_TRANSPARENT: i32 = 19;
pub const IP_RECVORIGDSTADDR: i32 = 20;
pub const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
pub const IP_MULTICAST_IF: i32 = 32;
pub const IP_MULTICAST_TTL: i32 = 33;
pub const IP_MULTICAST_LOOP: i32 = 34;
pub const IP_ADD_MEMBERSHIP: i32 = 35;
pub const IP_DROP_MEMBERSHIP: i32 = 36;
pub const IP_UNBLOCK_SOURCE: i32 = 37;
pub const IP_BLOCK_SOURCE: i32 = 38;
pub const IP_ADD_SOURCE_MEMBERSHIP: i32 = 39;
pub const IP_DROP_SOURCE_MEMBERSHIP: i32 = 40;
pub const IP_MSFILTER: i32 = 41;
pub const IP_MULTICAST_ALL: i32 = 49;
pub const IP_UNICAST_IF: i32 = 50;
pub const IP_LOCAL_PORT_RANGE: i32 = 51;
pub const IP_PROTOCOL: i32 = 52;
/// At both levels.
pub const MCAST_JOIN_GROUP: i32 = 42;
pub const MCAST_BLOCK_SOURCE: i32 = 43;
pub const MCAST_UNBLOCK_SOURCE: i32 = 44;
pub const MCAST_LEAVE_GROUP: i32 = 45;
pub const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
pub const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;
pub const MCAST_MSFILTER: i32 = 48;
/// What RFC 2292 had.
pub const IPV6_2292PKTINFO: i32 = 2;
pub const IPV6_2292HOPLIMIT: i32 = 8;
pub const IPV6_UNICAST_HOPS: i32 = 16;
pub const IPV6_MULTICAST_IF: i32 = 17;
pub const IPV6_MULTICAST_HOPS: i32 = 18;
pub const IPV6_MULTICAST_LOOP: i32 = 19;
pub const IPV6_ADD_MEMBERSHIP: i32 = 20;
pub const IPV6_DROP_MEMBERSHIP: i32 = 21;
pub const IPV6_MTU_DISCOVER: i32 = 23;
pub const IPV6_MTU: i32 = 24;
pub const IPV6_RECVERR: i32 = 25;
pub const IPV6_V6ONLY: i32 = 26;
pub const IPV6_MULTICAST_ALL: i32 = 29;
pub const IPV6_RECVPKTINFO: i32 = 49;
pub const IPV6_PKTINFO: i32 = 50;
pub const IPV6_RECVHOPLIMIT: i32 = 51;
pub const IPV6_HOPLIMIT: i32 = 52;
pub const IPV6_DONTFRAG: i32 = 62;
pub const IPV6_RECVTCLASS: i32 = 66;
pub const IPV6_TCLASS: i32 = 67;
pub const IPV6_RECVORIGDSTADDR: i32 = 74;
pub const IPV6_TRANSPARENT: i32 = 75;
pub const IPV6_UNICAST_IF: i32 = 76;
pub const IPV6_FREEBIND: i32 = 78;
pub const TCP_MAXSEG: i32 = 2;
pub const TCP_LINGER2: i32 = 8;
pub const TCP_DEFER_ACCEPT: i32 = 9;
pub const TCP_WINDOW_CLAMP: i32 = 10;
pub(crate) const TCP_FASTOPEN: i32 = 23;
const TCP_TIMESTAMP: i32 = 24;
pub const TCP_SAVE_SYN: i32 = 27;
pub const TCP_SAVED_SYN: i32 = 28;
pub(crate) const TCP_FASTOPEN_CONNECT: i32 = 30;
pub(crate) const TCP_FASTOPEN_KEY: i32 = 33;
pub(crate) const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
const TCP_TX_DELAY: i32 = 37;
pub(crate) const TCP_KEEPIDLE: i32 = 4;
pub(crate) const TCP_KEEPINTVL: i32 = 5;
pub(crate) const TCP_KEEPCNT: i32 = 6;
pub(crate) const TCP_SYNCNT: i32 = 7;
pub const TCP_CONGESTION: i32 = 13;
/// Its control message has the same number.
pub const TCP_INQ: i32 = 36;
pub const UDP_CORK: i32 = 1;
pub const UDP_ENCAP: i32 = 100;
pub const UDP_SEGMENT: i32 = 103;

/// What TCP_CONGESTION takes; the option is kept as the place here.
pub const CONGESTION: [&str; 2] = ["cubic", "reno"];
/// The setting of a namespace that says with which of them sockets begin.
pub(crate) const DEFAULT_CONGESTION: &str = "tcp_congestion_control";
/// How long `struct tcp_info` is on Linux 6.18: programs ask for as much as they know.
pub(crate) const INFO_LEN: usize = 280;
/// Settings of a namespace (`net.ipv4.*`), and the options of TCP that begin with them.
pub(crate) const BY_SETTING: [(&str, i32); 4] = [
    (DEFAULT_CONGESTION, TCP_CONGESTION),
    ("tcp_keepalive_time", TCP_KEEPIDLE),
    ("tcp_keepalive_intvl", TCP_KEEPINTVL),
    ("tcp_keepalive_probes", TCP_KEEPCNT),
];

/// The name of a congestion control, by its place.
pub fn congestion(place: usize) -> &'static str {
    CONGESTION.get(place).unwrap_or(&CONGESTION[0])
}

/// Level, name, what it takes, its default.
const TABLE: &[(i32, i32, Kind, i32)] = &[
    (SOL_IP, IP_TOS, Byte, 0),
    (SOL_IP, IP_TTL, Int(-1, 255), 64),
    (SOL_IP, 6, Bool, 0),
    (SOL_IP, 7, Bool, 0),
    (SOL_IP, IP_PKTINFO, Bool, 0),
    (SOL_IP, IP_MTU_DISCOVER, Int(0, 5), 1),
    (SOL_IP, IP_RECVERR, Bool, 0),
    (SOL_IP, IP_RECVTTL, Bool, 0),
    (SOL_IP, IP_RECVTOS, Bool, 0),
    (SOL_IP, IP_FREEBIND, Bool, 0),
    (SOL_IP, 18, Bool, 0),
    (SOL_IP, IP_TRANSPARENT, Privileged, 0),
    (SOL_IP, IP_RECVORIGDSTADDR, Bool, 0),
    (SOL_IP, 21, Int(0, 255), 0),
    (SOL_IP, IP_BIND_ADDRESS_NO_PORT, Bool, 0),
    (SOL_IP, 25, Bool, 0),
    (SOL_IP, 23, Bool, 0),
    (SOL_IP, 26, Int(0, 1), 0),
    (SOL_IP, IP_MULTICAST_TTL, Int(-1, 255), 1),
    (SOL_IP, IP_MULTICAST_LOOP, Bool, 1),
    (SOL_IP, IP_MULTICAST_ALL, Int(0, 1), 1),
    (SOL_IP, IP_UNICAST_IF, ANY, 0),
    (SOL_IP, IP_LOCAL_PORT_RANGE, ANY, 0),
    (SOL_IPV6, IPV6_2292PKTINFO, Bool, 0),
    (SOL_IPV6, IPV6_2292HOPLIMIT, Bool, 0),
    (SOL_IPV6, 11, Bool, 0),
    (SOL_IPV6, IPV6_UNICAST_HOPS, Int(-1, 255), 64),
    (SOL_IPV6, IPV6_MULTICAST_IF, Int(0, 1), 0),
    (SOL_IPV6, IPV6_MULTICAST_HOPS, Int(-1, 255), 1),
    (SOL_IPV6, IPV6_MULTICAST_LOOP, Int(0, 1), 1),
    (SOL_IPV6, IPV6_MTU_DISCOVER, Int(0, 5), 1),
    (SOL_IPV6, IPV6_RECVERR, Bool, 0),
    (SOL_IPV6, IPV6_V6ONLY, Bool, 0),
    (SOL_IPV6, IPV6_MULTICAST_ALL, Bool, 1),
    (SOL_IPV6, 31, Int(0, 1), 0),
    (SOL_IPV6, 33, Bool, 0),
    (SOL_IPV6, IPV6_RECVPKTINFO, Bool, 0),
    (SOL_IPV6, IPV6_RECVHOPLIMIT, Bool, 0),
    (SOL_IPV6, 53, Bool, 0),
    (SOL_IPV6, 56, Bool, 0),
    (SOL_IPV6, 58, Bool, 0),
    (SOL_IPV6, 60, Bool, 0),
    (SOL_IPV6, IPV6_DONTFRAG, Bool, 0),
    (SOL_IPV6, IPV6_RECVTCLASS, Bool, 0),
    (SOL_IPV6, IPV6_TCLASS, Int(-1, 255), 0),
    (SOL_IPV6, 70, Bool, 1),
    (SOL_IPV6, 72, ANY, 2),
    (SOL_IPV6, 73, Int(0, 255), 0),
    (SOL_IPV6, IPV6_RECVORIGDSTADDR, Bool, 0),
    (SOL_IPV6, IPV6_TRANSPARENT, Privileged, 0),
    (SOL_IPV6, IPV6_UNICAST_IF, ANY, 0),
    (SOL_IPV6, IPV6_FREEBIND, Bool, 0),
    // NODELAY, MAXSEG, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2
    (SOL_TCP, 1, Bool, 0),
    (SOL_TCP, TCP_MAXSEG, Int(0, 32767), 0),
    (SOL_TCP, 3, Bool, 0),
    (SOL_TCP, TCP_KEEPIDLE, Int(1, 32767), 7200),
    (SOL_TCP, TCP_KEEPINTVL, Int(1, 32767), 75),
    (SOL_TCP, TCP_KEEPCNT, Int(1, 127), 9),
    (SOL_TCP, TCP_SYNCNT, Int(1, 127), 6),
    (SOL_TCP, TCP_LINGER2, ANY, 60),
    (SOL_TCP, TCP_DEFER_ACCEPT, ANY, 0),
    // WINDOW_CLAMP, QUICKACK, THIN_LINEAR_TIMEOUTS, THIN_DUPACK, USER_TIMEOUT, FASTOPEN, TIMESTAMP,
    // NOTSENT_LOWAT, FASTOPEN_CONNECT, FASTOPEN_NO_COOKIE, INQ. (TX_DELAY is for a queue
    // discipline that no device here has.)
    (SOL_TCP, TCP_WINDOW_CLAMP, ANY, 0),
    (SOL_TCP, 12, Bool, 1),
    (SOL_TCP, 16, Int(0, 1), 0),
    (SOL_TCP, 17, Unkept(0, 1), 0),
    (SOL_TCP, 18, Int(0, i32::MAX), 0),
    (SOL_TCP, TCP_FASTOPEN, Int(0, i32::MAX), 0),
    (SOL_TCP, 24, Int(1, 0), 0),
    (SOL_TCP, 25, ANY, 0),
    (SOL_TCP, TCP_FASTOPEN_CONNECT, Int(0, 1), 0),
    (SOL_TCP, TCP_FASTOPEN_NO_COOKIE, Int(0, 1), 0),
    (SOL_TCP, TCP_SAVE_SYN, Int(0, 1), 0),
    (SOL_TCP, TCP_TX_DELAY, Int(0, (1 << 28) - 1), 0),
    (SOL_TCP, TCP_INQ, Int(0, 1), 0),
    (SOL_UDP, UDP_CORK, Bool, 0),
    (SOL_UDP, 101, Bool, 0),
    (SOL_UDP, 102, Bool, 0),
    (SOL_UDP, UDP_SEGMENT, Int(0, 65535), 0),
    (SOL_UDP, 104, Bool, 0),
];

/// `TCP_FIN_TIMEOUT_MAX`, and half of `SOCK_MIN_RCVBUF`.
const LONGEST_LINGER2: i32 = 120;
const LEAST_CLAMP: i32 = 1152;

/// A value's number. The IP level takes single bytes, too, and nothing for 0; some of IPv6's take
/// what is too short for 0.
fn value_of(level: i32, name: i32, v: &[u8]) -> Result<i32> {
    match (level, name, v) {
        (SOL_IP, IP_LOCAL_PORT_RANGE, v) if v.len() != 4 => Err(EINVAL),
        (SOL_IP, 1 | 6..=8 | 10..=13 | 18 | 20 | 23..=26, []) => Ok(0),
        (SOL_IP, _, [b, ..]) if v.len() < 4 => Ok(i32::from(*b)),
        (SOL_IPV6, IPV6_DONTFRAG | 70, v) if v.len() < 4 => Ok(0),
        _ => int_of(v),
    }
}

/// What a socket of a family says that is asked for another protocol's option.
pub fn foreign(family: u16) -> Errno {
    if family == AF_INET {
        EOPNOTSUPP
    } else {
        ENOPROTOOPT
    }
}

/// How long a connection waits to be accepted that nothing comes by: as many of the time-outs of a
/// handshake as it takes, in seconds (`secs_to_retrans`, `retrans_to_secs`).
fn deferral(secs: i32) -> i32 {
    const LONGEST: i32 = 120;
    if secs <= 0 {
        return 0;
    }
    let (mut timeout, mut all) = (1, 1);
    for _ in 1..255 {
        if all >= secs {
            break;
        }
        timeout = (timeout * 2).min(LONGEST);
        all += timeout;
    }
    all
}

fn known(level: i32, name: i32) -> Option<(Kind, i32)> {
    TABLE
        .iter()
        .find(|r| r.0 == level && r.1 == name)
        .map(|r| (r.2, r.3))
}

/// The values that were set.
#[derive(Default)]
pub struct InetOptions {
    values: Mutex<Vec<(i32, i32, i32)>>,
    /// TCP_FASTOPEN_KEY; a listener's alone.
    fast_open_keys: Mutex<Option<Box<Keys>>>,
}

impl InetOptions {
    /// A copy, for accepted connections.
    pub fn duplicate(&self) -> InetOptions {
        InetOptions {
            values: Mutex::new(self.values.lock().clone()),
            fast_open_keys: Mutex::default(),
        }
    }
    /// The value of a known option.
    pub fn value(&self, level: i32, name: i32) -> i32 {
        let v = self.values.lock();
        v.iter()
            .find(|r| r.0 == level && r.1 == name)
            .map_or_else(|| known(level, name).map_or(0, |k| k.1), |r| r.2)
    }
    /// Keeps a value that was checked elsewhere.
    pub fn keep(&self, level: i32, name: i32, value: i32) {
        let mut values = self.values.lock();
        values.retain(|r| r.0 != level || r.1 != name);
        values.push((level, name, value));
    }
    pub(crate) fn fast_open_keys(&self) -> Option<Keys> {
        self.fast_open_keys.lock().as_deref().copied()
    }
    pub(crate) fn keep_fast_open_keys(&self, keys: Keys) {
        *self.fast_open_keys.lock() = Some(Box::new(keys));
    }
    /// All that were set: level, name, value.
    pub fn set_values(&self) -> Vec<(i32, i32, i32)> {
        self.values.lock().clone()
    }
    pub fn on(&self, level: i32, name: i32) -> bool {
        self.value(level, name) != 0
    }
    /// Among which ports one is chosen.
    fn local_ports(&self, ns: &NetNamespace) -> PortRange {
        let asked = self.value(SOL_IP, IP_LOCAL_PORT_RANGE) as u32;
        ns.local_ports().narrowed(asked)
    }
    /// What a socket with these options asks for, that wants `at`.
    pub fn asked<'a>(&self, at: Endpoint, common: &'a Arc<Common>, uid: u32) -> BindRequest<'a> {
        BindRequest {
            at,
            ports: self.local_ports(&common.ns),
            families: self.families(),
            common,
            uid,
        }
    }
    /// What a bind takes.
    pub fn families(&self) -> Families {
        if self.on(SOL_IPV6, IPV6_V6ONLY) {
            Families::V6Only
        } else {
            Families::Both
        }
    }

    /// `may_mark`: whether the caller has [`Common::may_mark`]'s right.
    pub fn set(&self, level: i32, name: i32, v: &[u8], may_mark: &dyn Fn() -> bool) -> Result<()> {
        match (level, name) {
            // A stream is in no group.
            (SOL_IP, 37..=41 | 43 | 44 | 46..=48) | (SOL_IPV6, 27 | 28 | 43 | 44 | 46..=48) => {
                return Err(if v.len() < 12 { EINVAL } else { ENODEV });
            }
            (SOL_IP | SOL_IPV6, MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP) if v.len() < 136 => {
                return Err(EINVAL);
            }
            (SOL_IP, IP_MULTICAST_IF) => return Err(EINVAL),
            (SOL_IPV6, IPV6_ADD_MEMBERSHIP | IPV6_DROP_MEMBERSHIP) if v.len() < 20 => {
                return Err(EINVAL);
            }
            (SOL_IP, IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP)
            | (SOL_IPV6, IPV6_ADD_MEMBERSHIP | IPV6_DROP_MEMBERSHIP)
            | (SOL_IP | SOL_IPV6, MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP) => return Err(EPROTO),
            _ => {}
        }
        let (kind, default) = known(level, name).ok_or(ENOPROTOOPT)?;
        let int = value_of(level, name, v)?;
        let val = match kind {
            Bool => i32::from(int != 0),
            Privileged if int != 0 && !may_mark() => {
                return Err(EPERM);
            }
            Privileged => i32::from(int != 0),
            Byte => int & 0xff,
            Unkept(a, b) if (a..=b).contains(&int) => return Ok(()),
            Unkept(..) => return Err(EINVAL),
            Int(..) if (level, name) == (SOL_TCP, TCP_TIMESTAMP) => return Err(EPERM),
            Int(a, b) => {
                if !(a..=b).contains(&int) {
                    return Err(EINVAL);
                }
                if (level, name, int) == (SOL_IP, IP_TTL, 0) {
                    return Err(EINVAL);
                }
                if (level, name) == (SOL_IP, IP_LOCAL_PORT_RANGE) {
                    let (low, high) = (int & 0xffff, int as u32 >> 16);
                    if high != 0 && low as u32 > high {
                        return Err(EINVAL);
                    }
                }
                match (level, name) {
                    _ if int == -1 && a == -1 => default,
                    (SOL_TCP, TCP_DEFER_ACCEPT) => deferral(int),
                    // Linux's least (TCP_MIN_MSS); 0 takes it back.
                    (SOL_TCP, TCP_MAXSEG) if (1..88).contains(&int) => return Err(EINVAL),
                    (SOL_TCP, TCP_LINGER2) if int == 0 => default,
                    (SOL_TCP, TCP_LINGER2) => int.clamp(-1, LONGEST_LINGER2),
                    (SOL_TCP, TCP_WINDOW_CLAMP) if int != 0 => int.max(LEAST_CLAMP),
                    _ => int,
                }
            }
        };
        self.keep(level, name, val);
        Ok(())
    }

    pub fn get(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match (level, name) {
            (SOL_IP, 4) => return Ok(Vec::new()),
            // Of raw sockets: HDRINCL, ROUTER_ALERT, NODEFRAG.
            (SOL_IP, 3 | 5 | 22) => return Ok(vec![0; 4]),
            (SOL_IP, IP_MULTICAST_IF) => return Ok(vec![0; 4]),
            _ => {}
        }
        known(level, name).ok_or(ENOPROTOOPT)?;
        Ok(self.value(level, name).to_le_bytes().to_vec())
    }
}
