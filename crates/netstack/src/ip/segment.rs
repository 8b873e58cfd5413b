//! TCP headers, read and written. smoltcp's know three SACK blocks and no unscaled values.

use super::wire::{be16, be32};
use crate::tcp::fast_open::{FastOpen, Form};
use crate::tcp::{Flags, Header, Options, Seq, Timestamps};

/// The kind of Fast Open's option; before it had one: that of experiments, and its magic
/// (RFC 6994).
const FAST_OPEN: u8 = 34;
const EXPERIMENT: u8 = 254;
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];

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
    let flags = Flags::from_bits_retain(b[13]);
    let header = Header {
        seq: Seq(be32(b, 4)),
        ack: Seq(be32(b, 8)),
        flags,
        window: be16(b, 14),
        urgent: be16(b, 18),
        options: read_options(&b[20..len], flags.contains(Flags::SYN)),
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
/// a length that cannot be ends them. Some count in a SYN only (`is_syn`).
fn read_options(mut b: &[u8], is_syn: bool) -> Options {
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
            (FAST_OPEN, n) if is_syn && n % 2 == 0 => {
                o.fast_open = FastOpen::read(body, Form::Standard)
            }
            (EXPERIMENT, n) if is_syn && n % 2 == 0 && body.starts_with(&FAST_OPEN_MAGIC) => {
                o.fast_open = FastOpen::read(&body[2..], Form::Experimental);
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
    n += fast_open(o, n).map_or(0, |f| f.header_len());
    let blocks = sack_blocks(o, n);
    n + if blocks == 0 { 0 } else { 4 + 8 * blocks }
}

/// Fast Open's option, where there is room behind `used` bytes of other options.
fn fast_open(o: &Options, used: usize) -> Option<FastOpen> {
    o.fast_open
        .filter(|f| used + f.header_len() <= LONGEST - 20)
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
    if let Some(f) = fast_open(o, used) {
        put_fast_open(&f, &mut put);
        used += f.header_len();
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

fn put_fast_open(f: &FastOpen, put: &mut impl FnMut(&[u8])) {
    let cookie = f.cookie.as_ref().map_or(&[][..], |c| c.bytes());
    let len = f.unpadded();
    match f.form {
        Form::Standard => put(&[FAST_OPEN, len as u8]),
        Form::Experimental => {
            put(&[EXPERIMENT, len as u8]);
            put(&FAST_OPEN_MAGIC);
        }
    }
    put(cookie);
    put(&[1; 3][..f.header_len() - len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::fast_open::Cookie;
    use proptest::prelude::*;

    fn options() -> impl Strategy<Value = Options> {
        (
            any::<Option<u16>>(),
            any::<Option<u8>>(),
            any::<bool>(),
            proptest::collection::vec(any::<(u32, u32)>(), 0..=4),
            any::<Option<(u32, u32)>>(),
            any::<Option<(bool, u8)>>(),
        )
            .prop_map(|(mss, window_scale, sack_permitted, blocks, t, fast)| {
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
                    fast_open: fast.map(|(is_new, n)| FastOpen {
                        cookie: Cookie::new(&[n; 16][..usize::from(n % 17)]),
                        form: if is_new {
                            Form::Standard
                        } else {
                            Form::Experimental
                        },
                    }),
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
            // (The first takes its kind and its length, too.)
            let least = if read == 0 { 12 } else { 8 };
            prop_assert!(read == blocks || len + least > LONGEST);
            kept.options.sack[read..].fill(None);
            let had_room = back.header.options.fast_open.is_some();
            let is_syn = header.flags.contains(Flags::SYN);
            let others = Options { fast_open: None, sack: [None; 4], ..options };
            let room = LONGEST - 20 - options_len(&others);
            let fits = options.fast_open.is_some_and(|f| f.header_len() <= room);
            prop_assert_eq!(had_room, is_syn && fits);
            kept.options.fast_open = kept.options.fast_open.filter(|_| had_room);
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
