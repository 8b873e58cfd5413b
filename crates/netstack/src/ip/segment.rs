//! TCP headers, read and written. smoltcp's know three SACK blocks and no unscaled values.

use super::wire::{be16, be32};
use crate::tcp::{Flags, Header, Options, Seq, Timestamps};

/// The longest header.
pub(crate) const LONGEST: usize = 60;

/// A header as it was read: ports, the header itself, its length.
pub(crate) struct Read {
    pub from: u16,
    pub to: u16,
    pub header: Header,
    pub len: usize,
}

/// Reads the header in front of a segment; none where it is cut or says that it is too short.
pub(crate) fn read(b: &[u8]) -> Option<Read> {
    if b.len() < 20 {
        return None;
    }
    let len = usize::from(b[12] >> 4) * 4;
    if len < 20 || len > b.len() {
        return None;
    }
    let header = Header {
        seq: Seq(be32(b, 4)),
        ack: Seq(be32(b, 8)),
        flags: Flags::from_bits_retain(b[13]),
        window: be16(b, 14),
        urgent: be16(b, 18),
        options: read_options(&b[20..len]),
        can_be_marked: false,
    };
    Some(Read {
        from: be16(b, 0),
        to: be16(b, 2),
        header,
        len,
    })
}

/// As Linux's `tcp_parse_options`: what has another length than its kind wants is passed over, and
/// a length that cannot be ends them.
fn read_options(mut b: &[u8]) -> Options {
    let mut o = Options::default();
    while let Some((&kind, rest)) = b.split_first() {
        match kind {
            0 => break,
            1 => {
                b = rest;
                continue;
            }
            _ => {}
        }
        let len = rest.first().map_or(0, |n| usize::from(*n));
        if len < 2 || len > b.len() {
            break;
        }
        let (option, behind) = b.split_at(len);
        let body = &option[2..];
        match (kind, body.len()) {
            (2, 2) => o.mss = Some(be16(body, 0)),
            (3, 1) => o.window_scale = Some(body[0]),
            (4, 0) => o.sack_permitted = true,
            (5, n) if n >= 8 && n % 8 == 0 => {
                for (block, to) in body.chunks_exact(8).zip(&mut o.sack) {
                    *to = Some((Seq(be32(block, 0)), Seq(be32(block, 4))));
                }
            }
            (8, 8) => {
                o.timestamps = Some(Timestamps {
                    value: be32(body, 0),
                    echo: be32(body, 4),
                });
            }
            _ => {}
        }
        b = behind;
    }
    o
}

/// The length of a header as [`write`] makes it.
#[must_use]
pub fn tcp_header_len(header: &Header) -> usize {
    20 + options_len(&header.options)
}

fn options_len(o: &Options) -> usize {
    let mut n = 0;
    n += if o.mss.is_some() { 4 } else { 0 };
    n += match (o.sack_permitted, o.timestamps.is_some()) {
        (_, true) => 12,
        (true, false) => 4,
        (false, false) => 0,
    };
    n += if o.window_scale.is_some() { 4 } else { 0 };
    let blocks = sack_blocks(o, n);
    n + if blocks == 0 { 0 } else { 4 + 8 * blocks }
}

/// How many blocks have room behind `used` bytes of other options.
fn sack_blocks(o: &Options, used: usize) -> usize {
    let room = (LONGEST - 20 - used).saturating_sub(4) / 8;
    o.sack.iter().take_while(|b| b.is_some()).count().min(room)
}

/// Writes a header into `b`, the checksum field 0, and tells its length. SACK blocks for which
/// there is no room beside the other options (one of four, with timestamps) are left out.
pub(crate) fn write(header: &Header, from: u16, to: u16, b: &mut [u8; LONGEST]) -> usize {
    let o = &header.options;
    let mut at = 20;
    let mut put = |bytes: &[u8]| {
        b[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    let mut used = 0;
    if let Some(mss) = o.mss {
        let [x, y] = mss.to_be_bytes();
        put(&[2, 4, x, y]);
        used += 4;
    }
    match (o.sack_permitted, o.timestamps) {
        (permitted, Some(t)) => {
            put(if permitted { &[4, 2] } else { &[1, 1] });
            put(&[8, 10]);
            put(&t.value.to_be_bytes());
            put(&t.echo.to_be_bytes());
            used += 12;
        }
        (true, None) => {
            put(&[1, 1, 4, 2]);
            used += 4;
        }
        (false, None) => {}
    }
    if let Some(scale) = o.window_scale {
        put(&[1, 3, 3, scale]);
        used += 4;
    }
    let blocks = sack_blocks(o, used);
    if blocks > 0 {
        put(&[1, 1, 5, (2 + 8 * blocks) as u8]);
        for (left, right) in o.sack.iter().flatten().take(blocks) {
            put(&left.0.to_be_bytes());
            put(&right.0.to_be_bytes());
        }
    }
    b[0..2].copy_from_slice(&from.to_be_bytes());
    b[2..4].copy_from_slice(&to.to_be_bytes());
    b[4..8].copy_from_slice(&header.seq.0.to_be_bytes());
    b[8..12].copy_from_slice(&header.ack.0.to_be_bytes());
    b[12] = ((at / 4) << 4) as u8;
    b[13] = header.flags.bits();
    b[14..16].copy_from_slice(&header.window.to_be_bytes());
    b[16..18].fill(0);
    b[18..20].copy_from_slice(&header.urgent.to_be_bytes());
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options() -> impl Strategy<Value = Options> {
        (
            any::<Option<u16>>(),
            any::<Option<u8>>(),
            any::<bool>(),
            proptest::collection::vec(any::<(u32, u32)>(), 0..=4),
            any::<Option<(u32, u32)>>(),
        )
            .prop_map(|(mss, window_scale, sack_permitted, blocks, t)| {
                let mut sack = [None; 4];
                for (b, to) in blocks.into_iter().zip(&mut sack) {
                    *to = Some((Seq(b.0), Seq(b.1)));
                }
                let timestamps = t.map(|(value, echo)| Timestamps { value, echo });
                Options {
                    mss,
                    window_scale,
                    sack_permitted,
                    sack,
                    timestamps,
                }
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            options in options(), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16,
        ) {
            let header = Header {
                seq: Seq(seq),
                ack: Seq(ack),
                flags: Flags::from_bits_retain(flags),
                window,
                urgent,
                options,
                can_be_marked: false,
            };
            let mut b = [0xee; LONGEST];
            let len = write(&header, 7, 9, &mut b);
            prop_assert_eq!(len, tcp_header_len(&header));
            let back = read(&b[..len]).expect("a header");
            prop_assert_eq!((back.from, back.to, back.len), (7, 9, len));
            let mut kept = header;
            let blocks = kept.options.sack.iter().flatten().count();
            let read = back.header.options.sack.iter().flatten().count();
            prop_assert!(read == blocks || len == LONGEST || len + 8 > LONGEST);
            kept.options.sack[read..].fill(None);
            prop_assert_eq!(back.header, kept);
        }

        #[test]
        fn any_bytes_are_read(b in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&b);
        }
    }

    #[test]
    fn options_that_cannot_be_are_passed_over() {
        // A length of 0 ends them; an MSS of another length counts for nothing.
        let mut b = [0; 32];
        b[12] = 8 << 4;
        b[20..32].copy_from_slice(&[2, 3, 9, 3, 3, 7, 99, 0, 2, 4, 5, 180]);
        let o = read(&b).expect("a header").header.options;
        assert_eq!((o.mss, o.window_scale), (None, Some(7)));
    }
}
