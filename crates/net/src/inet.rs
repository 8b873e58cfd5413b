//! Options of the IP, IPv6, TCP and UDP levels (`ip(7)`, `ipv6(7)`, `tcp(7)`, `udp(7)`): numbers
//! that are checked, kept and told. What they mean for packets of ours is in `stack::options`;
//! what is joined in memory has none.

use crate::addr::Endpoint;
use crate::bindings::{Asked, Families, PortRange};
use crate::ns::NetNamespace;
use crate::options::{Common, int_of};
use crate::sys::{SOL_IP, SOL_IPV6, SOL_TCP, SOL_UDP};
use abi::Result;
use abi::errno::{EINVAL, ENODEV, ENOPROTOOPT, EPERM, EPROTO};
use parking_lot::Mutex;
use std::sync::Arc;
use vfs::{Caps, Credentials};

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    /// From, to.
    Int(i32, i32),
    /// As `Int`, for those with CAP_NET_ADMIN.
    Admin(i32, i32),
}
use Kind::{Admin, Bool, Int};

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
pub const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
pub const IP_MULTICAST_IF: i32 = 32;
pub const IP_MULTICAST_TTL: i32 = 33;
pub const IP_MULTICAST_LOOP: i32 = 34;
pub const IP_ADD_MEMBERSHIP: i32 = 35;
pub const IP_DROP_MEMBERSHIP: i32 = 36;
pub const IP_MULTICAST_ALL: i32 = 49;
pub const IP_UNICAST_IF: i32 = 50;
pub const IP_LOCAL_PORT_RANGE: i32 = 51;
/// At both levels.
pub const MCAST_JOIN_GROUP: i32 = 42;
pub const MCAST_LEAVE_GROUP: i32 = 45;
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
pub const IPV6_UNICAST_IF: i32 = 76;
pub const IPV6_FREEBIND: i32 = 78;
pub const TCP_DEFER_ACCEPT: i32 = 9;
pub const TCP_CONGESTION: i32 = 13;
pub const UDP_SEGMENT: i32 = 103;

/// What TCP_CONGESTION takes; the option is kept as the place here.
pub const CONGESTION: [&str; 2] = ["cubic", "reno"];

/// The name of a congestion control, by its place.
pub fn congestion(place: usize) -> &'static str {
    CONGESTION.get(place).unwrap_or(&CONGESTION[0])
}

/// Level, name, what it takes, its default.
const TABLE: &[(i32, i32, Kind, i32)] = &[
    (SOL_IP, IP_TOS, Int(0, 255), 0),
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
    (SOL_IP, 19, Admin(0, 1), 0),
    (SOL_IP, 20, Bool, 0),
    (SOL_IP, 21, Int(0, 255), 0),
    (SOL_IP, IP_BIND_ADDRESS_NO_PORT, Bool, 0),
    (SOL_IP, 25, Bool, 0),
    (SOL_IP, 26, Bool, 0),
    (SOL_IP, IP_MULTICAST_TTL, Int(-1, 255), 1),
    (SOL_IP, IP_MULTICAST_LOOP, Bool, 1),
    (SOL_IP, IP_MULTICAST_ALL, Int(0, 1), 1),
    (SOL_IP, IP_UNICAST_IF, ANY, 0),
    (SOL_IP, IP_LOCAL_PORT_RANGE, ANY, 0),
    (SOL_IPV6, IPV6_2292PKTINFO, Bool, 0),
    (SOL_IPV6, IPV6_2292HOPLIMIT, Bool, 0),
    (SOL_IPV6, 11, ANY, 0),
    (SOL_IPV6, IPV6_UNICAST_HOPS, Int(-1, 255), 64),
    (SOL_IPV6, IPV6_MULTICAST_IF, Int(0, 1), 0),
    (SOL_IPV6, IPV6_MULTICAST_HOPS, Int(-1, 255), 1),
    (SOL_IPV6, IPV6_MULTICAST_LOOP, Int(0, 1), 1),
    (SOL_IPV6, IPV6_MTU_DISCOVER, Int(0, 5), 1),
    (SOL_IPV6, IPV6_RECVERR, Bool, 0),
    (SOL_IPV6, IPV6_V6ONLY, Bool, 0),
    (SOL_IPV6, IPV6_MULTICAST_ALL, Bool, 1),
    (SOL_IPV6, 31, Bool, 0),
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
    (SOL_IPV6, 74, Bool, 0),
    (SOL_IPV6, 75, Admin(0, 1), 0),
    (SOL_IPV6, IPV6_UNICAST_IF, ANY, 0),
    (SOL_IPV6, IPV6_FREEBIND, Bool, 0),
    // NODELAY, MAXSEG, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2
    (SOL_TCP, 1, Bool, 0),
    (SOL_TCP, 2, Int(88, 32767), 65483),
    (SOL_TCP, 3, Bool, 0),
    (SOL_TCP, 4, Int(1, 32767), 7200),
    (SOL_TCP, 5, Int(1, 32767), 75),
    (SOL_TCP, 6, Int(1, 127), 9),
    (SOL_TCP, 7, Int(1, 127), 6),
    (SOL_TCP, 8, Int(i32::MIN, 120), 60),
    (SOL_TCP, TCP_DEFER_ACCEPT, ANY, 0),
    // WINDOW_CLAMP, QUICKACK, THIN_LINEAR_TIMEOUTS, THIN_DUPACK, USER_TIMEOUT, FASTOPEN, TIMESTAMP,
    // NOTSENT_LOWAT, SAVE_SYN, FASTOPEN_CONNECT, FASTOPEN_NO_COOKIE, INQ, TX_DELAY
    (SOL_TCP, 10, Int(0, i32::MAX), 0),
    (SOL_TCP, 12, ANY, 1),
    (SOL_TCP, 16, Int(0, 1), 0),
    (SOL_TCP, 17, Int(0, 1), 0),
    (SOL_TCP, 18, Int(0, i32::MAX), 0),
    (SOL_TCP, 23, Int(0, i32::MAX), 0),
    (SOL_TCP, 24, ANY, 0),
    (SOL_TCP, 25, ANY, 0),
    (SOL_TCP, 27, Int(0, 2), 0),
    (SOL_TCP, 30, Int(0, 1), 0),
    (SOL_TCP, 34, Int(0, 1), 0),
    (SOL_TCP, 36, Int(0, 1), 0),
    (SOL_TCP, 37, ANY, 0),
    (SOL_UDP, 1, Int(0, 0), 0),
    (SOL_UDP, 101, Bool, 0),
    (SOL_UDP, 102, Bool, 0),
    (SOL_UDP, UDP_SEGMENT, Int(0, 65535), 0),
    (SOL_UDP, 104, Bool, 0),
];

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
}

impl InetOptions {
    /// A copy, for accepted connections.
    pub fn duplicate(&self) -> InetOptions {
        InetOptions {
            values: Mutex::new(self.values.lock().clone()),
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
    pub fn asked<'a>(&self, at: Endpoint, common: &'a Arc<Common>, uid: u32) -> Asked<'a> {
        Asked {
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

    pub fn set(&self, level: i32, name: i32, v: &[u8], cred: &Credentials) -> Result<()> {
        match (level, name) {
            // Groups of sources are not kept apart.
            (SOL_IP, 37..=41 | 43 | 44 | 46..=48) | (SOL_IPV6, 27 | 28 | 43 | 44 | 46..=48) => {
                return Err(if v.len() < 8 { EINVAL } else { ENODEV });
            }
            // A stream is in no group.
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
        // The IP level takes single bytes too.
        let int = match v {
            [b] if level == SOL_IP => i32::from(*b),
            _ => int_of(v)?,
        };
        let val = match kind {
            Bool => i32::from(int != 0),
            Admin(..) if !cred.has(Caps::NET_ADMIN) => return Err(EPERM),
            Int(a, b) | Admin(a, b) => {
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
                if int == -1 && a == -1 { default } else { int }
            }
        };
        self.keep(level, name, val);
        Ok(())
    }

    pub fn get(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match (level, name) {
            (SOL_IP, 4) => return Ok(Vec::new()),
            (SOL_IP, IP_MULTICAST_IF) => return Ok(vec![0; 4]),
            _ => {}
        }
        known(level, name).ok_or(ENOPROTOOPT)?;
        Ok(self.value(level, name).to_le_bytes().to_vec())
    }
}
