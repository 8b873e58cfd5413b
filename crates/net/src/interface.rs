//! Network interfaces, as programs are told of them.

use crate::packet;
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

impl Interface {
    pub(crate) fn is_up(&self) -> bool {
        const IFF_UP: u32 = 1;
        self.flags & IFF_UP != 0
    }
    pub(crate) fn is_loopback(&self) -> bool {
        const IFF_LOOPBACK: u32 = 8;
        self.flags & IFF_LOOPBACK != 0
    }
    /// `ARPHRD_*`.
    pub(crate) fn hardware_kind(&self) -> u16 {
        const IFF_POINTOPOINT: u32 = 0x10;
        if self.is_loopback() {
            packet::LOOPBACK
        } else if self.flags & IFF_POINTOPOINT != 0 {
            packet::NO_HEADER
        } else {
            packet::ETHERNET
        }
    }
}
