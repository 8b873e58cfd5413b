//! Network interfaces, as programs are told of them.

use netstack::ip::Path;
use std::net::IpAddr;

/// The index of the loopback interface.
pub(crate) const LO_INDEX: i32 = 1;

/// `ARPHRD_*`: kinds of link headers.
pub(crate) const ETHERNET: u16 = 1;
pub(crate) const LOOPBACK: u16 = 772;
/// Of devices without link headers. Inside, their frames have empty ones.
pub(crate) const NO_HEADER: u16 = 0xfffe;

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
            LOOPBACK
        } else if self.flags & IFF_POINTOPOINT != 0 {
            NO_HEADER
        } else {
            ETHERNET
        }
    }
}

/// Whether what goes by a path stays on this host. (What rules send elsewhere is asked for again:
/// `Ports::permits`.)
pub(crate) fn stays(path: &Path) -> bool {
    path.index == LO_INDEX as u32
}
