//! What is told of a datagram that did not arrive.

use super::queue::Arrival;
use crate::addr::Endpoint;
use netstack::ip::IcmpError;
use std::net::IpAddr;

/// An ICMP message about a packet of ours, or what is told as if it were one.
pub(crate) struct Quote<'a> {
    pub error: IcmpError,
    /// Who tells of it.
    pub offender: IpAddr,
    /// The packet's source and destination. Of an echo the source's port is its number.
    pub from: Endpoint,
    pub to: Endpoint,
    pub protocol: u8,
    /// The packet's beginning, from its IP header on.
    pub packet: &'a [u8],
    /// Where its transport's header begins.
    pub header: usize,
    /// How the message came.
    pub came: Arrival,
}

impl Quote<'_> {
    /// The packet's beginning without `n` bytes of its transport's header.
    pub fn payload(&self, n: usize) -> &[u8] {
        self.packet.get(self.header + n..).unwrap_or_default()
    }
}
