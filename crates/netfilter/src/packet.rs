//! A packet as rules look at it.

use crate::conntrack::Track;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;
pub const SCTP: u8 = 132;
pub const UDPLITE: u8 = 136;
pub const DCCP: u8 = 33;

/// Of IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    V4,
    V6,
}

impl Version {
    #[must_use]
    pub fn of(ip: IpAddr) -> Version {
        match ip {
            IpAddr::V4(_) => Version::V4,
            IpAddr::V6(_) => Version::V6,
        }
    }
}

/// Where packets are looked at, by Linux's numbers (`enum nf_inet_hooks`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

impl Hook {
    pub const ALL: [Hook; 5] = [
        Hook::Prerouting,
        Hook::Input,
        Hook::Forward,
        Hook::Output,
        Hook::Postrouting,
    ];

    #[must_use]
    pub fn by_number(n: u32) -> Option<Hook> {
        Hook::ALL.get(n as usize).copied()
    }
}

/// A device that a packet came by or leaves by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device<'a> {
    pub index: u32,
    pub name: &'a str,
    /// `ARPHRD_*`.
    pub hardware: u16,
    /// One of the sandbox's own that leads outside.
    pub guarded: bool,
}

/// To how many a packet goes (`PACKET_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cast {
    #[default]
    Host = 0,
    Broadcast = 1,
    Multicast = 2,
    Loopback = 5,
}

/// What rules ask about this host.
pub trait Host {
    /// `RTN_*`: what an address is here.
    fn kind_of(&self, ip: IpAddr) -> u8;
    /// The largest packet towards an address; 0 where there is no way.
    fn mtu_towards(&self, ip: IpAddr) -> u32;
    /// The address of this host on a device, towards `to`.
    fn address_on(&self, device: u32, to: IpAddr) -> Option<IpAddr>;
}

/// What a packet carries from hook to hook.
#[derive(Clone, Default)]
pub struct Meta {
    pub mark: u32,
    pub track: Track,
    /// The most that a SYN is to ask for, as rules of this hook have it.
    pub mss: Option<u16>,
}

/// See the module.
pub struct Packet<'a> {
    /// From the IP header on: all headers at least.
    pub bytes: &'a [u8],
    /// Of the whole packet.
    pub len: usize,
    pub version: Version,
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    /// Where the transport's header begins; none in a fragment that is not the first.
    pub transport: Option<usize>,
    pub input: Option<Device<'a>>,
    pub output: Option<Device<'a>>,
    pub cast: Cast,
    /// The user and group of the socket that sends it.
    pub owner: Option<(u32, u32)>,
    /// Nanoseconds of the monotonic clock.
    pub now: u64,
    pub host: &'a dyn Host,
}

/// A word of the network's order.
pub(crate) fn be16(b: &[u8], at: usize) -> Option<u16> {
    let b = b.get(at..at + 2)?;
    Some(u16::from_be_bytes([b[0], b[1]]))
}

/// What an IP header says: ends, protocol, and where its transport's header begins.
#[must_use]
pub fn parse(b: &[u8]) -> Option<(IpAddr, IpAddr, u8, Option<usize>)> {
    match b.first()? >> 4 {
        4 => {
            let header = usize::from(b[0] & 15) * 4;
            if header < 20 || b.len() < header {
                return None;
            }
            let ip = |at: usize| Ipv4Addr::new(b[at], b[at + 1], b[at + 2], b[at + 3]);
            let first = be16(b, 6)? & 0x1fff == 0;
            Some((ip(12).into(), ip(16).into(), b[9], first.then_some(header)))
        }
        6 => parse_v6(b),
        _ => None,
    }
}

/// Whether a transport's header begins with two ports.
#[must_use]
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP | UDPLITE | DCCP)
}

fn parse_v6(b: &[u8]) -> Option<(IpAddr, IpAddr, u8, Option<usize>)> {
    let ip = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = b.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    let (from, to) = (ip(8)?, ip(24)?);
    let (mut next, mut at) = (b[6], 40);
    for _ in 0..8 {
        let Some(h) = b.get(at..at + 8) else { break };
        match next {
            0 | 43 | 60 | 135 => {
                next = h[0];
                at += (usize::from(h[1]) + 1) * 8;
            }
            51 => {
                next = h[0];
                at += (usize::from(h[1]) + 2) * 4;
            }
            44 => {
                next = h[0];
                if u16::from_be_bytes([h[2], h[3]]) & 0xfff8 != 0 {
                    return Some((from, to, next, None));
                }
                at += 8;
            }
            _ => break,
        }
    }
    Some((from, to, next, (at <= b.len()).then_some(at)))
}

impl<'a> Packet<'a> {
    /// Of bytes that begin with an IP header.
    #[must_use]
    pub fn new(bytes: &'a [u8], len: usize, now: u64, host: &'a dyn Host) -> Option<Packet<'a>> {
        let (from, to, protocol, transport) = parse(bytes)?;
        Some(Packet {
            bytes,
            len,
            version: Version::of(from),
            from,
            to,
            protocol,
            transport,
            input: None,
            output: None,
            cast: Cast::Host,
            owner: None,
            now,
            host,
        })
    }

    /// From the transport's header on.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        let at = self.transport.unwrap_or(usize::MAX);
        self.bytes.get(at..).unwrap_or_default()
    }

    /// Whether it is a fragment that is not the first.
    #[must_use]
    pub fn is_rest(&self) -> bool {
        self.transport.is_none()
    }

    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        let b = self.body();
        has_ports(self.protocol)
            .then(|| Some((be16(b, 0)?, be16(b, 2)?)))
            .flatten()
    }

    /// TCP's flags.
    #[must_use]
    pub fn tcp_flags(&self) -> Option<u8> {
        let flags = self.body().get(13).copied();
        flags.filter(|_| self.protocol == TCP)
    }

    #[must_use]
    pub fn tos(&self) -> u8 {
        let b = self.bytes;
        match (self.version, b) {
            (Version::V4, [_, tos, ..]) => *tos,
            (Version::V6, [a, b, ..]) => a << 4 | b >> 4,
            _ => 0,
        }
    }

    #[must_use]
    pub fn ttl(&self) -> u8 {
        let at = match self.version {
            Version::V4 => 8,
            Version::V6 => 7,
        };
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The bytes of the payload behind the transport's header.
    #[must_use]
    pub fn inner(&self) -> Option<usize> {
        let at = self.transport?;
        let header = match self.protocol {
            TCP => usize::from(self.body().get(12)? >> 4) * 4,
            UDP | UDPLITE => 8,
            _ => return None,
        };
        Some(at + header)
    }
}
