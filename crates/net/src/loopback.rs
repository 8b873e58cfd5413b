//! What passes by the loopback device, as frames for packet sockets: nothing inside makes packets,
//! so they are made here, and only where somebody looks.

use crate::addr::Endpoint;
use crate::ip_packet::header_v4;
use crate::ns::NetNamespace;
use crate::taps::{At, Way};
use netstack::ip::{FrameMeta, pseudo_sum};
use std::net::IpAddr;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Link and IP headers of a packet.
fn headers(from: IpAddr, to: IpAddr, protocol: u8, tos: u8, len: usize) -> Vec<u8> {
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

impl NetNamespace {
    /// A frame goes out by the loopback device, and comes in by it.
    pub(crate) fn loop_frame(&self, way: Way, meta: &FrameMeta, frame: &[u8]) {
        self.taps.frame(At::LOOPBACK, way, meta, &[frame]);
        self.taps.frame(At::LOOPBACK, Way::In, meta, &[frame]);
    }

    /// An IP packet passes inside.
    pub(crate) fn loop_packet(
        &self,
        from: IpAddr,
        to: IpAddr,
        protocol: u8,
        tos: u8,
        payload: &[u8],
    ) {
        if self.taps.is_used() && from.is_ipv4() == to.is_ipv4() {
            let mut f = headers(from, to, protocol, tos, payload.len());
            f.extend_from_slice(payload);
            self.loop_frame(Way::Out, &FrameMeta::default(), &f);
        }
    }

    /// A segment of TCP passes inside; `numbers`: its sequence number and what it acknowledges.
    pub(crate) fn loop_tcp(
        &self,
        (from, to): (Endpoint, Endpoint),
        (seq, ack): (u32, u32),
        flags: u8,
        data: &[u8],
    ) {
        const SYN: u8 = 2;
        /// MSS, as this device has it.
        const OPTION: [u8; 4] = [2, 4, 0xff, 0xd7];
        if from.ip.is_ipv4() != to.ip.is_ipv4() {
            return;
        }
        let option: &[u8] = if flags & SYN != 0 { &OPTION } else { &[] };
        let len = 20 + option.len() + data.len();
        let mut f = headers(from.ip, to.ip, TCP, 0, len);
        let start = f.len() as u16;
        f.extend_from_slice(&from.port.to_be_bytes());
        f.extend_from_slice(&to.port.to_be_bytes());
        f.extend_from_slice(&seq.to_be_bytes());
        f.extend_from_slice(&ack.to_be_bytes());
        f.extend_from_slice(&[((20 + option.len()) as u8) << 2, flags, 0xff, 0xff]);
        f.extend_from_slice(&pseudo_sum(from.ip, to.ip, TCP, len).to_be_bytes());
        f.extend_from_slice(&[0, 0]);
        f.extend_from_slice(option);
        f.extend_from_slice(data);
        let meta = FrameMeta {
            flags: FrameMeta::NEEDS_CSUM,
            csum_start: start,
            csum_offset: 16,
            ..FrameMeta::default()
        };
        self.loop_frame(Way::Out, &meta, &f);
    }

    /// A datagram passes inside. Its checksum is left open, as Linux leaves it on this device.
    pub(crate) fn loop_udp(&self, from: Endpoint, to: Endpoint, tos: u8, data: &[u8]) {
        if !self.taps.is_used() || from.ip.is_ipv4() != to.ip.is_ipv4() {
            return;
        }
        let f = udp_frame((from, to), tos, data);
        let start = (f.len() - data.len() - 8) as u16;
        let meta = FrameMeta {
            flags: FrameMeta::NEEDS_CSUM,
            csum_start: start,
            csum_offset: 6,
            ..FrameMeta::default()
        };
        self.loop_frame(Way::Out, &meta, &f);
    }
}
