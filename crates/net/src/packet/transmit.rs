//! Rings of frames to be sent (PACKET_TX_RING of `packet(7)`; `tpacket_snd`).
//!
//! # What holds
//!
//! - Which frame is next is kept here. Of the memory a frame's status, length and offset are read,
//!   once, and checked before its bytes are copied.
//! - A frame that was looked at is given back: as sent, or as one of a wrong form, where the
//!   sending ends unless PACKET_LOSS says to go on.

use super::ring::Ring;
use super::send::Way;
use super::{PacketSocket, ring};
use crate::protocol::Caller;
use abi::Result;
use abi::errno::{EINVAL, EMSGSIZE};
use hostcall::MemSlice;
use std::sync::atomic::Ordering;

/// `TP_STATUS_*` of frames to be sent.
const AVAILABLE: u32 = 0;
const SEND_REQUEST: u32 = 1;
const WRONG_FORMAT: u32 = 4;

/// After how many frames it is looked whether the caller has got a signal.
const LOOKS: u32 = 64;

fn word(m: MemSlice<'_>, at: usize) -> u32 {
    if at + 4 > m.len() {
        return 0;
    }
    let mut b = [0; 4];
    m.sub(at, 4).copy_to(&mut b);
    u32::from_le_bytes(b)
}

impl PacketSocket {
    /// Sends all frames of the ring that are to be sent, or as many as there is time for until the
    /// caller gets a signal; how many bytes they were.
    pub(super) fn send_ring(
        &self,
        who: &Caller<'_>,
        dest: Option<&[u8]>,
        goes_on: OnBadFrame,
        has_offset: Offset,
    ) -> Result<usize> {
        let way = self.way(dest)?;
        let mut sent = 0;
        // What a program puts in meanwhile is another call's.
        let most = self.tx.lock().as_ref().map_or(0, Ring::frames);
        for i in 0..most {
            // There may be millions of them.
            if i % LOOKS == LOOKS - 1 && (who.has_signal)() {
                break;
            }
            // No lock is held while a frame goes: it may come to this very socket.
            let mut ring = self.tx.lock();
            let Some(r) = ring.as_mut() else { break };
            let m = r.head_slot();
            let at = r.status_at();
            let status = m.sub(at, 4).atomic_u32();
            if status.is_none_or(|s| s.load(Ordering::Acquire) != SEND_REQUEST) {
                break;
            }
            let frame = bytes_of(r, m, has_offset, (self.is_raw(), &way));
            let said = match (&frame, goes_on) {
                (Err(_), OnBadFrame::Ends) => WRONG_FORMAT,
                _ => AVAILABLE,
            };
            ring::set_status(m, at, said);
            if said == AVAILABLE {
                r.advance();
            }
            drop(ring);
            match frame {
                Ok(b) => {
                    let n = b.len();
                    self.give(&way, b)?;
                    sent += n;
                }
                Err(_) if goes_on == OnBadFrame::GoesOn => {}
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }
}

/// PACKET_LOSS: what becomes of a ring that has a frame of a wrong form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnBadFrame {
    Ends,
    GoesOn,
}

/// PACKET_TX_HAS_OFF: whether frames say where their bytes begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offset {
    Fixed,
    Said,
}

/// The bytes of a frame (`tpacket_parse_header`).
fn bytes_of(
    r: &Ring,
    m: MemSlice<'_>,
    offset: Offset,
    (is_raw, way): (bool, &Way),
) -> Result<Vec<u8>> {
    let (len, places) = r.lengths_at();
    let least = r.header().next_multiple_of(16);
    // Of the third kind frames are of one size, too.
    if r.has_next_offset() && word(m, 0) != 0 {
        return Err(EINVAL);
    }
    let n = word(m, len) as usize;
    let room = m.len().checked_sub(least).ok_or(EINVAL)?;
    if n > room.min(way.most()) {
        return Err(EMSGSIZE);
    }
    let at = match offset {
        Offset::Fixed => least,
        Offset::Said => {
            let both = word(m, places);
            let at = if is_raw { both & 0xffff } else { both >> 16 } as usize;
            if !(least..=m.len() - n).contains(&at) {
                return Err(EINVAL);
            }
            at
        }
    };
    way.check(n)?;
    let mut b = vec![0; n];
    m.sub(at, n).copy_to(&mut b);
    Ok(b)
}
