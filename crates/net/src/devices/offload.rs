//! What a program and its device tell each other of a packet (`struct virtio_net_hdr`), and what is
//! done here where one of them does not: transports' checksums, and the cutting of super-segments.
//!
//! What a program says is hostile: it is taken only where it is what the packet itself says.

use super::tun::ETHERNET;
use crate::ip_packet::checksum;
use abi::Result;
use abi::errno::EINVAL;
use bytes::Bytes;
use netstack::ip::FrameMeta;

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN_PSH: u8 = 9;
const CWR: u8 = 0x80;

/// Where a frame's transport is, and what it is. (IPv6's extension headers are not looked behind.)
struct Transport {
    v4: bool,
    at: usize,
    protocol: u8,
}

impl Transport {
    fn of(frame: &[u8]) -> Option<Transport> {
        let byte = |at: usize| frame.get(at).copied();
        match frame.get(12..14)? {
            [8, 0] => {
                let header = usize::from(byte(ETHERNET)? & 15) * 4;
                (header >= 20).then_some(())?;
                Some(Transport {
                    v4: true,
                    at: ETHERNET + header,
                    protocol: byte(ETHERNET + 9)?,
                })
            }
            [0x86, 0xdd] => Some(Transport {
                v4: false,
                at: ETHERNET + 40,
                protocol: byte(ETHERNET + 6)?,
            }),
            _ => None,
        }
    }

    /// Where its checksum is, from its start.
    fn sum_at(&self) -> Option<u16> {
        match self.protocol {
            TCP => Some(16),
            UDP => Some(6),
            _ => None,
        }
    }

    /// The checksum of a frame's transport, with its pseudo header.
    fn checksum(&self, frame: &[u8]) -> u16 {
        let addresses = match self.v4 {
            true => ETHERNET + 12..ETHERNET + 20,
            false => ETHERNET + 8..ETHERNET + 40,
        };
        let body = &frame[self.at..];
        let len = (body.len() as u32).to_be_bytes();
        checksum(&[&frame[addresses], &len, &[0, self.protocol], body])
    }
}

/// A checksum as it is sent: 0 would say that there is none.
fn as_sent(sum: u16) -> [u8; 2] {
    match sum {
        0 => [0xff; 2],
        n => n.to_be_bytes(),
    }
}

/// A frame whose transport's checksum is whole.
pub(super) fn finished(meta: &FrameMeta, frame: &Bytes) -> Bytes {
    let start = usize::from(meta.csum_start);
    let at = start + usize::from(meta.csum_offset);
    if meta.flags & FrameMeta::NEEDS_CSUM == 0 || at + 2 > frame.len() {
        return frame.clone();
    }
    let mut whole = frame.to_vec();
    let sum = as_sent(checksum(&[&whole[start..]]));
    whole[at..at + 2].copy_from_slice(&sum);
    whole.into()
}

/// What a program says of the packet that is in `frame` from `before` on; with the frame, whose
/// checksum may have been made whole. `EINVAL` as Linux's `virtio_net_hdr_to_skb`.
pub(super) fn told(
    header: &[u8; FrameMeta::LEN],
    frame: Bytes,
    before: usize,
) -> Result<(FrameMeta, Bytes)> {
    let mut meta = FrameMeta::from_bytes(header);
    let len = frame.len() - before;
    let sum_end = usize::from(meta.csum_start) + usize::from(meta.csum_offset) + 2;
    let needs_sum = meta.flags & FrameMeta::NEEDS_CSUM != 0;
    if needs_sum && sum_end > len || usize::from(meta.hdr_len) > len {
        return Err(EINVAL);
    }
    let transport = Transport::of(&frame);
    let is = |v4, protocol| {
        let fits = |t: &Transport| t.v4 == v4 && t.protocol == protocol;
        transport.as_ref().is_some_and(fits)
    };
    let fits = match meta.gso_kind() {
        FrameMeta::GSO_NONE => true,
        FrameMeta::GSO_TCPV4 => is(true, TCP),
        FrameMeta::GSO_TCPV6 => is(false, TCP),
        FrameMeta::GSO_UDP_L4 => is(true, UDP) || is(false, UDP),
        _ => false,
    };
    let is_cut = meta.gso_kind() != FrameMeta::GSO_NONE;
    if !fits || is_cut && meta.gso_size == 0 {
        return Err(EINVAL);
    }
    meta.csum_start = meta.csum_start.saturating_add(before as u16);
    let usual = transport.as_ref().is_some_and(|t| {
        usize::from(meta.csum_start) == t.at && Some(meta.csum_offset) == t.sum_at()
    });
    // (That a sum is right is not taken from a program: Linux does not, either.)
    let mut known = FrameMeta::default();
    let frame = match (needs_sum, usual) {
        (true, false) => finished(&meta, &frame),
        _ => frame,
    };
    if needs_sum && usual {
        known.flags = FrameMeta::NEEDS_CSUM;
        (known.csum_start, known.csum_offset) = (meta.csum_start, meta.csum_offset);
    }
    if is_cut {
        (known.gso_type, known.gso_size) = (meta.gso_type, meta.gso_size);
        let headers = transport.and_then(|t| headers(&t, &frame));
        known.hdr_len = headers.unwrap_or(0) as u16;
    }
    Ok((known, frame))
}

/// What a program is told of a packet that is in a frame from `before` on.
pub(super) fn tells(meta: &FrameMeta, before: usize) -> [u8; FrameMeta::LEN] {
    let less = |n: u16| n.saturating_sub(before as u16);
    FrameMeta {
        hdr_len: less(meta.hdr_len),
        csum_start: less(meta.csum_start),
        ..*meta
    }
    .to_bytes()
}

/// The length of all headers, up to the transport's.
fn headers(t: &Transport, frame: &[u8]) -> Option<usize> {
    let own = match t.protocol {
        TCP => usize::from(frame.get(t.at + 12)? >> 4) * 4,
        _ => 8,
    };
    let all = t.at + own;
    (all <= frame.len() && own >= 8).then_some(all)
}

/// The pieces of a super-segment, each with its headers and whole checksums; none where it is not
/// what it is said to be.
pub(super) fn cut(meta: &FrameMeta, frame: &Bytes) -> impl Iterator<Item = Bytes> {
    let size = usize::from(meta.gso_size);
    let kind = meta.gso_kind();
    let found = Transport::of(frame).filter(|t| match t.protocol {
        TCP => matches!(kind, FrameMeta::GSO_TCPV4 | FrameMeta::GSO_TCPV6),
        UDP => kind == FrameMeta::GSO_UDP_L4,
        _ => false,
    });
    let found = found.filter(|_| size > 0);
    let found = found.and_then(|t| headers(&t, frame).map(|h| (t, h)));
    let frame = frame.clone();
    found.into_iter().flat_map(move |(t, h)| {
        let frame = frame.clone();
        let count = (frame.len() - h).div_ceil(size);
        (0..count).map(move |i| piece(&t, &frame, h, size, i))
    })
}

/// Piece `i` of those of `size` bytes behind headers of `h` bytes.
fn piece(t: &Transport, frame: &[u8], h: usize, size: usize, i: usize) -> Bytes {
    let (from, end) = (h + i * size, (h + (i + 1) * size).min(frame.len()));
    let mut p = [&frame[..h], &frame[from..end]].concat();
    let len = p.len() - ETHERNET;
    if t.v4 {
        let id = u16::from_be_bytes([p[ETHERNET + 4], p[ETHERNET + 5]]).wrapping_add(i as u16);
        p[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&(len as u16).to_be_bytes());
        p[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&id.to_be_bytes());
        p[ETHERNET + 10..ETHERNET + 12].fill(0);
        let sum = checksum(&[&p[ETHERNET..t.at]]);
        p[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        p[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    }
    let at = t.at;
    if t.protocol == TCP {
        let seq = u32::from_be_bytes([p[at + 4], p[at + 5], p[at + 6], p[at + 7]]);
        let seq = seq.wrapping_add((i * size) as u32);
        p[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
        if end < frame.len() {
            p[at + 13] &= !FIN_PSH;
        }
        if i > 0 {
            p[at + 13] &= !CWR;
        }
    } else {
        let len = (p.len() - at) as u16;
        p[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
    }
    let sum_at = at + usize::from(t.sum_at().unwrap_or(6));
    p[sum_at..sum_at + 2].fill(0);
    let whole = as_sent(t.checksum(&p));
    p[sum_at..sum_at + 2].copy_from_slice(&whole);
    p.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP super-segment over IPv4, or a UDP one over IPv6, with this payload.
    fn frame(tcp: bool, payload: usize) -> Vec<u8> {
        let mut f = vec![0; 12];
        let own = if tcp { 20 } else { 8 };
        if tcp {
            f.extend_from_slice(&[8, 0, 0x45, 0]);
            f.extend_from_slice(&((20 + own + payload) as u16).to_be_bytes());
            f.extend_from_slice(&[0xff, 0xff, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            f.extend_from_slice(&[0, 1, 0, 2, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x50, 0x99]);
            f.extend_from_slice(&[1, 0, 0, 0, 0, 0]);
        } else {
            f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            f.extend_from_slice(&((own + payload) as u16).to_be_bytes());
            f.extend_from_slice(&[UDP, 64]);
            f.extend_from_slice(&[1; 32]);
            f.extend_from_slice(&[0, 1, 0, 2, 0, 0, 0, 0]);
        }
        f.extend((0..payload).map(|i| i as u8));
        f
    }

    fn is_right(p: &[u8]) -> bool {
        let t = Transport::of(p).unwrap();
        let ip = !t.v4 || checksum(&[&p[ETHERNET..t.at]]) == 0;
        ip && t.checksum(p) == 0
    }

    #[test]
    fn pieces_are_what_was_whole() {
        for (tcp, kind) in [(true, FrameMeta::GSO_TCPV4), (false, FrameMeta::GSO_UDP_L4)] {
            let whole: Bytes = frame(tcp, 2500).into();
            let h = whole.len() - 2500;
            let meta = FrameMeta {
                gso_type: kind,
                gso_size: 1000,
                ..FrameMeta::default()
            };
            let all: Vec<Bytes> = cut(&meta, &whole).collect();
            let lens: Vec<usize> = all.iter().map(|p| p.len() - h).collect();
            assert_eq!(lens, [1000, 1000, 500]);
            assert!(all.iter().all(|p| is_right(p)));
            let payload: Vec<u8> = all.iter().flat_map(|p| p[h..].to_vec()).collect();
            assert_eq!(payload, whole[h..]);
            if tcp {
                let seq = |p: &Bytes| u32::from_be_bytes(p[38..42].try_into().unwrap());
                assert_eq!(seq(&all[1]), 0xffff_fff0u32.wrapping_add(1000));
                // CWR in the first alone, FIN and PSH in the last.
                let flags: Vec<u8> = all.iter().map(|p| p[47]).collect();
                assert_eq!(flags, [0x90, 0x10, 0x19]);
                assert_eq!([all[0][18], all[1][18]], [0xff, 0]);
            }
            // What it is not is not cut.
            let other = FrameMeta {
                gso_type: FrameMeta::GSO_UDP,
                ..meta
            };
            assert_eq!(cut(&other, &whole).count(), 0);
            let none = FrameMeta {
                gso_size: 0,
                ..meta
            };
            assert_eq!(cut(&none, &whole).count(), 0);
        }
    }

    #[test]
    fn what_a_program_says_is_looked_at() {
        let whole: Bytes = frame(true, 2500).into();
        let says = |m: FrameMeta| told(&m.to_bytes(), whole.clone(), ETHERNET);
        let usual = FrameMeta {
            flags: FrameMeta::NEEDS_CSUM,
            gso_type: FrameMeta::GSO_TCPV4,
            hdr_len: 40,
            gso_size: 1000,
            csum_start: 20,
            csum_offset: 16,
        };
        let (meta, same) = says(usual).unwrap();
        assert_eq!((meta.csum_start, meta.hdr_len, &same), (34, 54, &whole));
        assert_eq!(tells(&meta, ETHERNET), usual.to_bytes());
        for wrong in [
            FrameMeta {
                gso_size: 0,
                ..usual
            },
            FrameMeta {
                gso_type: FrameMeta::GSO_TCPV6,
                ..usual
            },
            FrameMeta {
                gso_type: 7,
                ..usual
            },
            FrameMeta {
                hdr_len: 3000,
                ..usual
            },
            FrameMeta {
                csum_start: 2540,
                ..usual
            },
        ] {
            assert_eq!(says(wrong).err(), Some(EINVAL), "{wrong:?}");
        }
        // A sum somewhere else is made, and nobody is told of it.
        let odd = FrameMeta {
            csum_start: 24,
            gso_type: 0,
            gso_size: 0,
            ..usual
        };
        let (meta, frame) = says(odd).unwrap();
        assert!(meta == FrameMeta::default() && frame != whole);
    }
}
