//! Frames of what passes inside, where nothing is packets: made only for packet sockets and
//! programs that look at them.

use crate::addr::Endpoint;
use crate::filters::{Filter, Packet};
use crate::interface::{LO_INDEX, LOOPBACK};
use crate::ip_packet::header_v4;
use crate::receivers::Arrival;
use netstack::ip::pseudo_sum;
use std::net::IpAddr;

const SYN: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Link and IP headers of a packet.
pub(crate) fn headers(from: IpAddr, to: IpAddr, protocol: u8, tos: u8, len: usize) -> Vec<u8> {
    let mut f = vec![0; 12];
    match (from, to) {
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            f.extend_from_slice(&[0x86, 0xdd, 0x60 | tos >> 4, tos << 4, 0, 0]);
            f.extend_from_slice(&(len as u16).to_be_bytes());
            f.extend_from_slice(&[protocol, 64]);
            f.extend_from_slice(&a.octets());
            f.extend_from_slice(&b.octets());
        }
        _ => {
            f.extend_from_slice(&[8, 0]);
            f.extend_from_slice(&header_v4(from, to, protocol, 64, tos, len));
        }
    }
    f
}

/// A packet that comes to a socket, with all its headers: made only where a program looks at it.
pub(crate) struct Framed {
    frame: Vec<u8>,
    device: i32,
}

/// The bytes of an Ethernet header.
const LINK: usize = 14;
const ETHERNET: u16 = 1;

impl Framed {
    /// Of a packet from its IP header on.
    pub fn whole(packet: &[u8], device: i32) -> Framed {
        let kind = match packet.first() {
            Some(b) if b >> 4 == 6 => [0x86, 0xdd],
            _ => [8, 0],
        };
        let frame = [&[0; 12][..], &kind, packet].concat();
        Framed { frame, device }
    }

    /// Of what follows its IP header.
    pub fn of(from: IpAddr, came: &Arrival, protocol: u8, payload: &[u8]) -> Framed {
        let mut frame = headers(from, came.to, protocol, came.tos, payload.len());
        let ttl = LINK + if frame[LINK] >> 4 == 4 { 8 } else { 7 };
        frame[ttl] = came.ttl;
        frame.extend_from_slice(payload);
        let device = came.device;
        Framed { frame, device }
    }

    /// Of a datagram's bytes.
    pub fn udp(from: Endpoint, came: &Arrival, data: &[u8]) -> Framed {
        let to = Endpoint::new(came.to, came.port);
        let f = udp_frame((from, to), came.tos, data);
        let header = LINK + if f[LINK] >> 4 == 4 { 20 } else { 40 };
        Framed::of(from.ip, came, UDP, &f[header..])
    }

    /// As the socket's program sees it: from so many bytes behind its IP header on; or, where that
    /// is none, from there.
    pub fn seen(&self, behind: Option<usize>) -> Packet<'_> {
        let header = if self.is_v4() { 20 } else { 40 };
        self.behind(behind.map_or(0, |n| header + n))
    }

    fn is_v4(&self) -> bool {
        self.frame.get(LINK).is_some_and(|b| b >> 4 == 4)
    }

    /// The same, from so many bytes behind the beginning of its IP header on.
    pub fn behind(&self, n: usize) -> Packet<'_> {
        let v4 = self.is_v4();
        Packet {
            data: self.frame.get(LINK + n..).unwrap_or_default(),
            frame: &self.frame,
            network: LINK,
            protocol: if v4 { 0x800 } else { 0x86dd },
            kind: 0,
            device: self.device,
            hardware: match self.device == LO_INDEX {
                true => LOOPBACK,
                false => ETHERNET,
            },
        }
    }
}

/// A datagram with all its headers, as it goes by this device.
pub(crate) fn udp_frame((from, to): (Endpoint, Endpoint), tos: u8, data: &[u8]) -> Vec<u8> {
    let len = 8 + data.len();
    let mut f = headers(from.ip, to.ip, UDP, tos, len);
    f.extend_from_slice(&from.port.to_be_bytes());
    f.extend_from_slice(&to.port.to_be_bytes());
    f.extend_from_slice(&(len as u16).to_be_bytes());
    f.extend_from_slice(&pseudo_sum(from.ip, to.ip, UDP, len).to_be_bytes());
    f.extend_from_slice(data);
    f
}

/// A segment of TCP, as it goes by this device.
pub(crate) fn tcp_frame(
    (from, to): (Endpoint, Endpoint),
    (seq, ack): (u32, u32),
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    /// MSS, as this device has it.
    const OPTION: [u8; 4] = [2, 4, 0xff, 0xd7];
    let option: &[u8] = if flags & SYN != 0 { &OPTION } else { &[] };
    let len = 20 + option.len() + data.len();
    let mut f = headers(from.ip, to.ip, TCP, 0, len);
    f.extend_from_slice(&from.port.to_be_bytes());
    f.extend_from_slice(&to.port.to_be_bytes());
    f.extend_from_slice(&seq.to_be_bytes());
    f.extend_from_slice(&ack.to_be_bytes());
    f.extend_from_slice(&[((20 + option.len()) as u8) << 2, flags, 0xff, 0xff]);
    f.extend_from_slice(&pseudo_sum(from.ip, to.ip, TCP, len).to_be_bytes());
    f.extend_from_slice(&[0, 0]);
    f.extend_from_slice(option);
    f.extend_from_slice(data);
    f
}

/// A segment with bytes, as it leaves by a device: with timestamps, as most have them.
pub(crate) fn sent_tcp_frame(from: Endpoint, to: Endpoint, data: &[u8]) -> Vec<u8> {
    const HEADER: usize = 32;
    const PSH_ACK: u8 = 0x18;
    let mut f = headers(from.ip, to.ip, TCP, 0, HEADER + data.len());
    f.extend_from_slice(&from.port.to_be_bytes());
    f.extend_from_slice(&to.port.to_be_bytes());
    f.extend_from_slice(&[0; 8]);
    f.extend_from_slice(&[(HEADER as u8) << 2, PSH_ACK, 0xff, 0xff, 0, 0, 0, 0]);
    f.extend_from_slice(&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0]);
    f.extend_from_slice(data);
    f
}

/// What a program that chooses a listener says of a connection inside.
pub(crate) fn ask_of_syn(f: &Filter, from: Endpoint, to: Endpoint) -> u32 {
    let frame = tcp_frame((from, to), (1, 0), SYN, &[]);
    let made = Framed {
        frame,
        device: LO_INDEX,
    };
    f.run(&made.seen(Some(24)))
}
