//! Frames that programs make.

use super::{ADDRESS, NO_HEADER, PacketSocket, send_room};
use crate::msgqueue::take_all;
use crate::sys::{MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_RAW};
use abi::Result;
use abi::errno::{EINVAL, EMSGSIZE, ENETDOWN, ENOBUFS, ENXIO};
use vfs::Source;

/// An Ethernet header, and how much longer a frame with a VLAN tag is.
const HEADER: usize = 14;

impl PacketSocket {
    /// As `packet_snd`. The frame goes to the device as it is, or not at all.
    pub(super) fn send_frame(
        &self,
        src: &mut dyn Source,
        dest: Option<&[u8]>,
        flags: u32,
    ) -> Result<usize> {
        let _ = flags & (MSG_DONTWAIT | MSG_NOSIGNAL);
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
        let ns = &self.common.ns;
        let i = ns.interface(device).ok_or(ENXIO)?;
        if !i.is_up() {
            return Err(ENETDOWN);
        }
        let bare = i.hardware_kind() == NO_HEADER;
        let raw = self.common.kind == SOCK_RAW && !bare;
        let n = src.remaining();
        let most = i.mtu as usize + if raw { HEADER } else { 0 };
        if n > most {
            return Err(EMSGSIZE);
        }
        if n > send_room(&self.common) {
            return Err(ENOBUFS);
        }
        let frame = if raw {
            if n < HEADER {
                return Err(EINVAL);
            }
            take_all(src)?
        } else {
            // `dev_hard_header`: who has no address gets it nowhere.
            let to: [u8; 6] = match mac {
                Some(mac) => *mac.first_chunk().ok_or(EINVAL)?,
                None => [0; 6],
            };
            let mut frame = [&to[..], &i.mac, &protocol.to_be_bytes()].concat();
            frame.extend_from_slice(&take_all(src)?);
            frame
        };
        ns.send_frame(&i, self.common.ino, &frame)?;
        Ok(n)
    }
}
