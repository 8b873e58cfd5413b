//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng), little-endian.

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const ETHERNET: u16 = 1;

/// Which way a frame goes, as who is on the device sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    In,
    Out,
}

/// A frame that passed.
pub struct Frame<'a> {
    /// In the order of [`head`].
    pub device: u32,
    /// Nanoseconds since 1970.
    pub nanos: u64,
    pub direction: Direction,
    /// As it was on the device.
    pub length: usize,
    pub bytes: &'a [u8],
}

/// Puts what is given into a block, with its lengths.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4).max(out.len()), 0);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    // (Blocks begin at multiples of four bytes, and so do options.)
    padded(out, value);
}

const END: [u8; 4] = [0; 4];

fn time(out: &mut Vec<u8>, nanos: u64) {
    out.extend_from_slice(&((nanos >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&(nanos as u32).to_le_bytes());
}

/// The beginning of a file about these devices.
pub fn head(devices: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    block(&mut out, SECTION, |b| {
        b.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        b.extend_from_slice(&1u16.to_le_bytes());
        b.extend_from_slice(&0u16.to_le_bytes());
        b.extend_from_slice(&u64::MAX.to_le_bytes());
        option(b, 4, b"cloister");
        b.extend_from_slice(&END);
    });
    for name in devices {
        block(&mut out, INTERFACE, |b| {
            b.extend_from_slice(&ETHERNET.to_le_bytes());
            // Reserved, and no limit of what is kept of a frame.
            b.extend_from_slice(&[0; 6]);
            option(b, 2, name.as_bytes());
            // Nanoseconds.
            option(b, 9, &[9]);
            b.extend_from_slice(&END);
        });
    }
    out
}

pub fn frame(out: &mut Vec<u8>, f: &Frame<'_>) {
    block(out, PACKET, |b| {
        b.extend_from_slice(&f.device.to_le_bytes());
        time(b, f.nanos);
        b.extend_from_slice(&(f.bytes.len() as u32).to_le_bytes());
        b.extend_from_slice(&(f.length as u32).to_le_bytes());
        padded(b, f.bytes);
        let direction: u32 = match f.direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        option(b, 2, &direction.to_le_bytes());
        b.extend_from_slice(&END);
    });
}

/// How many frames of a device were lost.
pub fn statistics(out: &mut Vec<u8>, device: u32, nanos: u64, lost: u64) {
    block(out, STATISTICS, |b| {
        b.extend_from_slice(&device.to_le_bytes());
        time(b, nanos);
        option(b, 5, &lost.to_le_bytes());
        b.extend_from_slice(&END);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks' kinds and bodies.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let length = word(4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(length - 4) as usize, length);
            all.push((word(0), bytes[8..length - 4].to_vec()));
            bytes = &bytes[length..];
        }
        all
    }

    #[test]
    fn blocks_have_their_lengths() {
        let mut out = head(&["eth0", "net1"]);
        for n in [0, 1, 14, 61] {
            let bytes = vec![7; n];
            frame(
                &mut out,
                &Frame {
                    device: 1,
                    nanos: 5 << 32 | 9,
                    direction: Direction::Out,
                    length: 1000,
                    bytes: &bytes,
                },
            );
        }
        statistics(&mut out, 0, 0, 3);
        let all = blocks(&out);
        let kinds: Vec<u32> = all.iter().map(|b| b.0).collect();
        assert_eq!(kinds, [SECTION, 1, 1, 6, 6, 6, 6, 5]);
        let last = &all[6].1;
        assert_eq!(
            last[..20],
            [
                1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 61, 0, 0, 0, 0xe8, 3, 0, 0
            ]
        );
        assert_eq!(last[20..81], [7; 61]);
        assert_eq!(last[84..92], [2, 0, 4, 0, 2, 0, 0, 0]);
    }
}
