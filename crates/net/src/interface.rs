//! Network interfaces, as programs are told of them.

use std::net::IpAddr;

/// The index of the loopback interface.
pub(crate) const LO_INDEX: i32 = 1;

/// An interface; one of the host's as it was when the sandbox started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub index: i32,
    /// `IFF_*`.
    pub flags: u32,
    pub mtu: u32,
    /// Its hardware address; zeros where it has none.
    pub mac: [u8; 6],
    pub addresses: Vec<(IpAddr, u8)>,
}
