//! What passes by the loopback device, as frames for packet sockets: nothing inside makes packets,
//! so they are made here, and only where somebody looks.

use crate::addr::Endpoint;
use crate::frames::{headers, tcp_frame, udp_frame};
use crate::ns::NetNamespace;
use crate::taps::{At, Way};
use netstack::ip::FrameMeta;
use std::net::IpAddr;

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
        numbers: (u32, u32),
        flags: u8,
        data: &[u8],
    ) {
        if from.ip.is_ipv4() != to.ip.is_ipv4() {
            return;
        }
        let f = tcp_frame((from, to), numbers, flags, data);
        let start = if from.ip.is_ipv4() { 34 } else { 54 };
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
