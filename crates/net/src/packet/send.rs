//! Frames that programs make.

use super::transmit::{Offset, OnBadFrame};
use super::{ADDRESS, NO_HEADER, PacketSocket, send_room};
use crate::interface::Interface;
use crate::msgqueue::take_all;
use crate::protocol::Caller;
use crate::sys::SOCK_RAW;
use abi::Result;
use abi::errno::{EINVAL, EMSGSIZE, ENETDOWN, ENOBUFS, ENXIO};
use vfs::Source;

/// An Ethernet header, and how much longer a frame with a VLAN tag is.
const HEADER: usize = 14;

/// Where frames go, and as what.
pub(super) struct Way {
    interface: Interface,
    protocol: u16,
    mac: Option<[u8; 6]>,
    /// Programs make the link header.
    raw: bool,
}

impl Way {
    /// The most bytes of a frame.
    pub fn most(&self) -> usize {
        self.interface.mtu as usize + if self.raw { HEADER } else { 0 }
    }

    /// Whether so many bytes may be sent.
    pub fn check(&self, n: usize) -> Result<()> {
        if n > self.most() {
            return Err(EMSGSIZE);
        }
        if self.raw && n < HEADER {
            return Err(EINVAL);
        }
        Ok(())
    }
}

impl PacketSocket {
    pub(super) fn is_raw(&self) -> bool {
        self.common.kind == SOCK_RAW
    }

    /// As `packet_snd` and `tpacket_snd`. A frame goes to the device as it is, or not at all.
    pub(super) fn send_frame(
        &self,
        who: &Caller<'_>,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
    ) -> Result<usize> {
        if self.tx.lock().is_some() {
            let s = self.settings.lock();
            let lost = match s.loses() {
                true => OnBadFrame::GoesOn,
                false => OnBadFrame::Ends,
            };
            let offset = match s.has_offset() {
                true => Offset::Said,
                false => Offset::Fixed,
            };
            drop(s);
            return self.send_ring(who, dest, lost, offset);
        }
        let way = self.way(dest)?;
        let n = src.remaining();
        if n <= way.interface.mtu as usize && n > send_room(&self.common) {
            return Err(ENOBUFS);
        }
        way.check(n)?;
        self.give(&way, take_all(src)?)?;
        Ok(n)
    }

    /// Where what is sent goes.
    pub(super) fn way(&self, dest: Option<&[u8]>) -> Result<Way> {
        let bound = *self.rx.bound.read();
        let (device, protocol, mac) = match dest {
            None => (bound.device, bound.protocol, None),
            Some(d) => {
                if crate::addr::family_of(d)? != crate::sys::AF_PACKET || d.len() < ADDRESS - 8 {
                    return Err(EINVAL);
                }
                let len = usize::from(d[11]);
                let mac = d.get(12..12 + len).ok_or(EINVAL)?;
                let device = i32::from_le_bytes([d[4], d[5], d[6], d[7]]);
                (device, u16::from_be_bytes([d[2], d[3]]), Some(mac))
            }
        };
        let interface = self.common.ns.interface(device).ok_or(ENXIO)?;
        if !interface.is_up() {
            return Err(ENETDOWN);
        }
        let raw = self.is_raw() && interface.hardware_kind() != NO_HEADER;
        let mac = match mac {
            Some(m) if !raw => Some(*m.first_chunk().ok_or(EINVAL)?),
            _ => None,
        };
        Ok(Way {
            interface,
            protocol,
            mac,
            raw,
        })
    }

    /// Gives a frame to its device, with a link header where the program makes none.
    pub(super) fn give(&self, way: &Way, data: Vec<u8>) -> Result<()> {
        let frame = match way.raw {
            true => data,
            false => {
                // `dev_hard_header`: who has no address gets it nowhere.
                let to = way.mac.unwrap_or([0; 6]);
                let own = way.interface.mac;
                let mut frame = [&to[..], &own, &way.protocol.to_be_bytes()].concat();
                frame.extend_from_slice(&data);
                frame
            }
        };
        let by = self.common.ino;
        self.common.ns.send_frame(&way.interface, by, &frame)
    }
}
