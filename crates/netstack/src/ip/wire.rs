//! Bytes: headers that are written, checksums, addresses of Ethernet.

use smoltcp::wire::{IpProtocol, checksum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) type Mac = [u8; 6];

/// The length of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
pub(crate) const BROADCAST: Mac = [0xff; 6];

pub(crate) const TYPE_IPV4: u16 = 0x0800;
pub(crate) const TYPE_ARP: u16 = 0x0806;
pub(crate) const TYPE_VLAN: u16 = 0x8100;
pub(crate) const TYPE_IPV6: u16 = 0x86dd;
pub(crate) const TYPE_QINQ: u16 = 0x88a8;

pub(crate) const ICMP: u8 = 1;
pub(crate) const IGMP: u8 = 2;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

pub(crate) fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

pub(crate) fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// The sum of a pseudo header, as it stands in the field of a checksum that a device is to finish.
#[must_use]
pub fn pseudo_sum(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> u16 {
    Sum::pseudo(from, to, protocol, len).partial()
}

/// A checksum (RFC 1071) over several pieces, each of any length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    sum: u16,
    odd: bool,
}

impl Sum {
    /// Begins with the pseudo header of a transport of `len` bytes.
    pub(crate) fn pseudo(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Sum {
        let protocol = IpProtocol::from(protocol);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let sum = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                checksum::pseudo_header_v4(&from, &to, protocol, len)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                checksum::pseudo_header_v6(&from, &to, protocol, len)
            }
            _ => 0,
        };
        Sum { sum, odd: false }
    }

    pub(crate) fn add(mut self, bytes: &[u8]) -> Sum {
        // A 32-bit sum of 16-bit words has room for that many bytes.
        for piece in bytes.chunks(1 << 16) {
            let sum = checksum::data(piece);
            let sum = if self.odd { sum.swap_bytes() } else { sum };
            self.sum = checksum::combine(&[self.sum, sum]);
            self.odd ^= piece.len() % 2 == 1;
        }
        self
    }

    /// Not inverted: what NEEDS_CSUM wants in the field.
    pub(crate) fn partial(self) -> u16 {
        self.sum
    }

    pub(crate) fn finish(self) -> u16 {
        !self.sum
    }

    /// Whether what was added carries its right checksum.
    pub(crate) fn is_right(self) -> bool {
        self.sum == 0xffff
    }
}

/// The headers of a frame, from Ethernet's to the transport's, built where the stack is.
pub(crate) struct Head {
    bytes: [u8; Head::ROOM],
    len: usize,
}

impl Head {
    /// Ethernet, the longest IPv4 header or IPv6's with a fragment's, the longest TCP header.
    const ROOM: usize = 192;

    /// With room for Ethernet's header, which [`Head::ethernet`] writes.
    pub(crate) fn new() -> Head {
        Head {
            bytes: [0; Head::ROOM],
            len: ETHERNET,
        }
    }

    /// Adds bytes; callers add no more than the sum of the longest headers.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn ethernet(&mut self, to: Mac, from: Mac, ethertype: u16) {
        self.bytes[..6].copy_from_slice(&to);
        self.bytes[6..12].copy_from_slice(&from);
        self.bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// All behind Ethernet's header.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[ETHERNET..self.len]
    }

    /// The bytes of all headers so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// The fields of an IPv4 header.
#[derive(Clone, Copy)]
pub(crate) struct V4 {
    pub tos: u8,
    pub total: u16,
    pub id: u16,
    /// Flags and the fragment's offset, as they lie there.
    pub fragment: u16,
    pub ttl: u8,
    pub protocol: u8,
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
}

pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;

impl V4 {
    /// Writes it with its checksum. Of `options` the length is a multiple of 4, at most 40.
    pub(crate) fn write(&self, head: &mut Head, options: &[u8]) {
        let mut b = [0; 60];
        let len = 20 + options.len();
        b[0] = 0x40 | (len / 4) as u8;
        b[1] = self.tos;
        b[2..4].copy_from_slice(&self.total.to_be_bytes());
        b[4..6].copy_from_slice(&self.id.to_be_bytes());
        b[6..8].copy_from_slice(&self.fragment.to_be_bytes());
        b[8] = self.ttl;
        b[9] = self.protocol;
        b[12..16].copy_from_slice(&self.from.octets());
        b[16..20].copy_from_slice(&self.to.octets());
        b[20..len].copy_from_slice(options);
        let sum = Sum::default().add(&b[..len]).finish();
        b[10..12].copy_from_slice(&sum.to_be_bytes());
        head.push(&b[..len]);
    }
}

/// The fields of an IPv6 header.
#[derive(Clone, Copy)]
pub(crate) struct V6 {
    pub tos: u8,
    pub flow: u32,
    /// Of all behind the header.
    pub len: u16,
    pub next: u8,
    pub ttl: u8,
    pub from: Ipv6Addr,
    pub to: Ipv6Addr,
}

impl V6 {
    pub(crate) fn write(&self, head: &mut Head) {
        let first = 6 << 28 | u32::from(self.tos) << 20 | self.flow & 0xf_ffff;
        head.push(&first.to_be_bytes());
        head.push(&self.len.to_be_bytes());
        head.push(&[self.next, self.ttl]);
        head.push(&self.from.octets());
        head.push(&self.to.octets());
    }
}

/// The Ethernet address of a multicast group (RFC 1112, RFC 2464).
pub(crate) fn group_mac(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(g) => {
            let [_, b, c, d] = g.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(g) => {
            let o = g.octets();
            [0x33, 0x33, o[12], o[13], o[14], o[15]]
        }
    }
}

/// The group in which a holder of this address is asked for (RFC 4291 2.7.1).
pub(crate) fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let o = ip.octets();
    let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&o[13..]);
    Ipv6Addr::from(group)
}

/// fe80::/10.
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// An address as a number, its first bit the highest.
pub(crate) fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The bits of a prefix of this length.
pub(crate) fn mask(prefix: u8) -> u128 {
    match prefix {
        0 => 0,
        n => u128::MAX << 128u8.saturating_sub(n),
    }
}

pub(crate) fn is_within(ip: IpAddr, network: IpAddr, prefix: u8) -> bool {
    ip.is_ipv4() == network.is_ipv4() && (bits(ip) ^ bits(network)) & mask(prefix) == 0
}
