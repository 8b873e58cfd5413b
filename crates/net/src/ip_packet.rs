//! IP packets, taken apart and made.

use netstack::ip::Info;
use std::net::IpAddr;

/// Protocols.
pub(crate) const ICMP_V4: u8 = 1;
pub(crate) const ICMP_V6: u8 = 58;

/// An IP packet, taken apart.
pub(crate) struct Packet<'a> {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    pub payload: &'a [u8],
    /// With its header, as IPv4 sockets get it.
    pub whole: &'a [u8],
}

pub(crate) fn take_apart<'a>(whole: &'a [u8], info: &Info) -> Option<Packet<'a>> {
    let payload = whole.get(usize::from(info.header)..)?;
    let (from, to) = match whole.first()? >> 4 {
        4 => {
            let a: [u8; 8] = whole.get(12..20)?.try_into().ok()?;
            let [a, b, c, d, e, f, g, h] = a;
            (IpAddr::from([a, b, c, d]), IpAddr::from([e, f, g, h]))
        }
        _ => {
            let a: [u8; 16] = whole.get(8..24)?.try_into().ok()?;
            let b: [u8; 16] = whole.get(24..40)?.try_into().ok()?;
            (IpAddr::from(a), IpAddr::from(b))
        }
    };
    Some(Packet {
        from,
        to,
        protocol: info.protocol,
        payload,
        whole,
    })
}

/// The Internet checksum (RFC 1071) of these pieces, each but the last of an even length.
pub(crate) fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for p in pieces {
        for w in p.chunks(2) {
            sum += u64::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Fills the checksum of an ICMP message in.
pub(crate) fn sum_icmp(message: &mut [u8], from: IpAddr, to: IpAddr) {
    sum_at(message, 2, ICMP_V6, from, to);
}

pub(crate) fn sum_at(message: &mut [u8], at: usize, protocol: u8, from: IpAddr, to: IpAddr) {
    if message.len() < at + 2 {
        return;
    }
    message[at..at + 2].fill(0);
    let n = message.len() as u32;
    let sum = match (from, to) {
        (IpAddr::V6(a), IpAddr::V6(b)) => checksum(&[
            &a.octets(),
            &b.octets(),
            &n.to_be_bytes(),
            &[0, 0, 0, protocol],
            message,
        ]),
        _ => checksum(&[message]),
    };
    message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv4 header of 20 bytes for a payload, as inside packets have it.
pub(crate) fn header_v4(
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    ttl: u8,
    tos: u8,
    n: usize,
) -> Vec<u8> {
    let (IpAddr::V4(a), IpAddr::V4(b)) = (from, to) else {
        return Vec::new();
    };
    let mut h = vec![0x45, tos];
    h.extend_from_slice(&((20 + n) as u16).to_be_bytes());
    h.extend_from_slice(&[0, 0, 0x40, 0, ttl, protocol, 0, 0]);
    h.extend_from_slice(&a.octets());
    h.extend_from_slice(&b.octets());
    let sum = checksum(&[&h]);
    h[10..12].copy_from_slice(&sum.to_be_bytes());
    h
}
