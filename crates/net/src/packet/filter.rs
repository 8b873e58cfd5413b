//! Filters of classic BPF on packets (`SO_ATTACH_FILTER` of `socket(7)`; Linux's
//! Documentation/networking/filter.rst).
//!
//! A program comes from an application. It is checked once: jumps go forward only and stay inside,
//! each path ends in a return, memory words are in range. So a run costs at most one step for each
//! instruction, and what it loads outside of the packet ends it with 0.

use abi::Result;
use abi::errno::EINVAL;

/// `BPF_MAXINSNS`.
pub const MOST: usize = 4096;
/// The bytes of `struct sock_filter`.
pub const INSN: usize = 8;
const WORDS: usize = 16;

/// `SKF_AD_OFF`, `SKF_NET_OFF`, `SKF_LL_OFF`: where what is not in the packet lies.
const AD_OFF: i64 = -0x1000;
const NET_OFF: i64 = -0x10_0000;
const LL_OFF: i64 = -0x20_0000;
/// `SKF_AD_MAX`, which SO_BPF_EXTENSIONS tells.
pub const EXTENSIONS: i32 = 64;

/// An instruction: `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
struct Insn {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// A checked program.
#[derive(Debug)]
pub struct Filter(Box<[Insn]>);

/// What a program may see.
pub struct Packet<'a> {
    /// From where the socket's packets begin.
    pub data: &'a [u8],
    /// The whole frame, and where its network header begins.
    pub frame: &'a [u8],
    pub network: usize,
    /// `ETH_P_*`.
    pub protocol: u16,
    /// `PACKET_*`.
    pub kind: u8,
    pub device: i32,
    /// `ARPHRD_*`.
    pub hardware: u16,
}

impl Filter {
    /// Of an array of `struct sock_filter`; `EINVAL` for what Linux refuses.
    pub fn new(bytes: &[u8]) -> Result<Filter> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(INSN) || bytes.len() / INSN > MOST {
            return Err(EINVAL);
        }
        let code: Vec<Insn> = bytes
            .as_chunks::<INSN>()
            .0
            .iter()
            .map(|b| Insn {
                code: u16::from_le_bytes([b[0], b[1]]),
                jt: b[2],
                jf: b[3],
                k: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            })
            .collect();
        for (pc, i) in code.iter().enumerate() {
            let left = (code.len() - pc - 1) as u64;
            if !is_allowed(i, left) {
                return Err(EINVAL);
            }
        }
        // BPF_RET with a constant or the accumulator.
        if !matches!(code.last().map(|i| i.code), Some(0x06 | 0x16)) {
            return Err(EINVAL);
        }
        check_memory(&code)?;
        Ok(Filter(code.into()))
    }

    /// How many bytes of the packet the socket gets; 0: none.
    pub fn run(&self, p: &Packet<'_>) -> u32 {
        self.steps(p).unwrap_or(0)
    }

    fn steps(&self, p: &Packet<'_>) -> Option<u32> {
        let (mut a, mut x) = (0u32, 0u32);
        let mut mem = [0u32; WORDS];
        let mut pc = 0;
        loop {
            let i = self.0.get(pc)?;
            pc += 1;
            let k = i.k;
            let word = (k as usize) % WORDS;
            let operand = if i.code & 8 == 0 { k } else { x };
            match i.code {
                0x20 | 0x28 | 0x30 => a = p.load(i64::from(k as i32), size_of(i.code), a, x)?,
                0x40 | 0x48 | 0x50 => {
                    let at = i64::from(x.wrapping_add(k) as i32);
                    a = p.load(at, size_of(i.code), a, x)?;
                }
                0x80 => a = p.data.len() as u32,
                0x81 => x = p.data.len() as u32,
                0x00 => a = k,
                0x01 => x = k,
                0x60 => a = mem[word],
                0x61 => x = mem[word],
                0xb1 => x = (p.load(i64::from(k as i32), 1, a, x)? & 15) << 2,
                0x02 => mem[word] = a,
                0x03 => mem[word] = x,
                c if c & 7 == 4 => a = compute(c, a, operand)?,
                0x05 => pc += k as usize,
                c if c & 7 == 5 => {
                    let holds = match c & 0xf0 {
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        _ => a & operand != 0,
                    };
                    pc += usize::from(if holds { i.jt } else { i.jf });
                }
                0x07 => x = a,
                0x87 => a = x,
                0x06 => return Some(k),
                0x16 => return Some(a),
                _ => return None,
            }
        }
    }
}

fn size_of(code: u16) -> usize {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        _ => 1,
    }
}

/// BPF_ALU. A division by zero ends the program.
fn compute(code: u16, a: u32, by: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(by),
        0x10 => a.wrapping_sub(by),
        0x20 => a.wrapping_mul(by),
        0x30 => a.checked_div(by)?,
        0x40 => a | by,
        0x50 => a & by,
        0x60 => a.wrapping_shl(by),
        0x70 => a.wrapping_shr(by),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(by)?,
        0xa0 => a ^ by,
        _ => return None,
    })
}

/// `chk_code_allowed` and `bpf_check_classic`: `left` instructions follow.
fn is_allowed(i: &Insn, left: u64) -> bool {
    match i.code {
        0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0xb1 => {
            // What lies between the extensions' numbers is nothing.
            let ad = i64::from(i.k as i32) - AD_OFF;
            i.code >= 0x40 || !(0..0x1000).contains(&ad) || ad <= 60 && ad % 4 == 0
        }
        0x80 | 0x81 | 0x00 | 0x01 | 0x07 | 0x87 | 0x06 | 0x16 => true,
        0x60 | 0x61 | 0x02 | 0x03 => (i.k as usize) < WORDS,
        0x34 | 0x94 => i.k != 0,
        0x64 | 0x74 => i.k < 32,
        0x05 => u64::from(i.k) < left,
        c if c & 7 == 4 => c >> 4 <= 0xa && c != 0x8c,
        c if c & 7 == 5 => {
            let known = matches!(c & 0xfff0, 0x10 | 0x20 | 0x30 | 0x40);
            known && u64::from(i.jt) < left && u64::from(i.jf) < left
        }
        _ => false,
    }
}

/// No memory word is read that not every path has written (`check_load_and_stores`).
fn check_memory(code: &[Insn]) -> Result<()> {
    let mut at = vec![u16::MAX; code.len()];
    let mut written = 0u16;
    for (pc, i) in code.iter().enumerate() {
        written &= at[pc];
        let word = 1u16 << (i.k % WORDS as u32);
        match i.code {
            0x02 | 0x03 => written |= word,
            0x60 | 0x61 if written & word == 0 => return Err(EINVAL),
            0x05 => {
                at[pc + 1 + i.k as usize] &= written;
                written = u16::MAX;
            }
            c if c & 7 == 5 => {
                at[pc + 1 + usize::from(i.jt)] &= written;
                at[pc + 1 + usize::from(i.jf)] &= written;
                written = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

impl Packet<'_> {
    fn load(&self, at: i64, size: usize, a: u32, x: u32) -> Option<u32> {
        let (from, at) = match at {
            0.. => (self.data, at),
            AD_OFF..0 => return self.extension(at - AD_OFF, a, x),
            NET_OFF..AD_OFF => (self.frame.get(self.network..)?, at - NET_OFF),
            LL_OFF..NET_OFF => (self.frame, at - LL_OFF),
            _ => return None,
        };
        let at = usize::try_from(at).ok()?;
        let b = from.get(at..at.checked_add(size)?)?;
        Some(b.iter().fold(0, |n, b| n << 8 | u32::from(*b)))
    }

    /// `SKF_AD_*`.
    fn extension(&self, which: i64, a: u32, x: u32) -> Option<u32> {
        Some(match which {
            0 => u32::from(self.protocol),
            4 => u32::from(self.kind),
            8 => self.device as u32,
            28 => u32::from(self.hardware),
            40 => a ^ x,
            52 => self.network as u32,
            56 => {
                let mut b = [0; 4];
                hostcall::time::random(&mut b);
                u32::from_ne_bytes(b)
            }
            // Marks, queues, processors and VLAN tags: none.
            _ => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(code: &[(u16, u8, u8, u32)]) -> Vec<u8> {
        let of = |(code, jt, jf, k): &(u16, u8, u8, u32)| {
            [&code.to_le_bytes()[..], &[*jt, *jf], &k.to_le_bytes()].concat()
        };
        code.iter().flat_map(of).collect()
    }

    fn packet(frame: &[u8]) -> Packet<'_> {
        Packet {
            data: frame,
            frame,
            network: 14,
            protocol: 0x800,
            kind: 4,
            device: 7,
            hardware: 1,
        }
    }

    #[test]
    fn a_port_is_compared() {
        // tcpdump -d "udp port 68" for IPv4, shortened.
        let code = program(&[
            (0x28, 0, 0, 12),
            (0x15, 0, 6, 0x800),
            (0x30, 0, 0, 23),
            (0x15, 0, 4, 17),
            (0xb1, 0, 0, 14),
            (0x48, 0, 0, 16),
            (0x15, 0, 1, 68),
            (0x06, 0, 0, 262_144),
            (0x06, 0, 0, 0),
        ]);
        let f = Filter::new(&code).unwrap();
        let mut frame = vec![0; 60];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[23] = 17;
        frame[37] = 68;
        assert_eq!(f.run(&packet(&frame)), 262_144);
        frame[37] = 67;
        assert_eq!(f.run(&packet(&frame)), 0);
        // What lies beyond the packet is never read.
        assert_eq!(f.run(&packet(&frame[..20])), 0);
    }

    #[test]
    fn extensions_tell_of_the_frame() {
        let of = |n: i64| {
            let code = program(&[(0x20, 0, 0, (AD_OFF + n) as i32 as u32), (0x16, 0, 0, 0)]);
            Filter::new(&code).map(|f| f.run(&packet(&[0; 60])))
        };
        assert_eq!(of(0), Ok(0x800));
        assert_eq!(of(4), Ok(4));
        assert_eq!(of(8), Ok(7));
        assert_eq!(of(48), Ok(0));
        assert_eq!(of(64), Err(EINVAL));
    }

    proptest::proptest! {
        /// Whatever an application says ends, and touches nothing.
        #[test]
        fn any_program_ends(
            code in proptest::collection::vec(
                (0u16..0x100, 0u8..6, 0u8..6, proptest::prelude::any::<u32>()), 1..30),
            small in proptest::collection::vec(0u32..20, 30),
            frame in proptest::collection::vec(proptest::prelude::any::<u8>(), 14..80),
        ) {
            // Numbers that programs have, and some that they do not.
            let mut code = code;
            for (i, n) in code.iter_mut().zip(small) {
                if n > 4 {
                    i.3 = n;
                }
            }
            code.push((0x16, 0, 0, 0));
            if let Ok(f) = Filter::new(&program(&code)) {
                f.run(&packet(&frame));
            }
        }
    }

    #[test]
    fn what_linux_refuses() {
        for bad in [
            &[(0x06u16, 0u8, 0u8, 1u32), (0x00, 0, 0, 0)][..],
            &[(0x05, 0, 0, 1), (0x06, 0, 0, 0)],
            &[(0x15, 0, 2, 1), (0x06, 0, 0, 0)],
            &[(0x60, 0, 0, 3), (0x16, 0, 0, 0)],
            &[(0x34, 0, 0, 0), (0x06, 0, 0, 0)],
            &[(0x64, 0, 0, 32), (0x06, 0, 0, 0)],
            &[(0xb4, 0, 0, 1), (0x06, 0, 0, 0)],
            &[(0x02, 0, 0, 16), (0x06, 0, 0, 0)],
            &[(0xffff, 0, 0, 0), (0x06, 0, 0, 0)],
        ] {
            assert!(Filter::new(&program(bad)).is_err(), "{bad:?}");
        }
        assert!(Filter::new(&[]).is_err());
    }
}
