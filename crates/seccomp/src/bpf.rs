//! Classic BPF as seccomp filters use it: checked when installed, interpreted at each system call.
//!
//! A program cannot loop, for jumps go forward only (`bpf_check_classic`), reads nothing but
//! [`Data`], which is whole words of `struct seccomp_data` (`seccomp_check_filter`), and reads no
//! memory word that it has not written (`check_load_and_stores`). So a run costs at most one step
//! for each instruction.

use abi::Result;
use abi::errno::EINVAL;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct sock_filter`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct Insn {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// The most instructions of a program (`BPF_MAXINSNS`).
pub const MAX_INSNS: usize = 4096;

/// `struct seccomp_data`, as the words that a program may load.
pub type Data = [u32; 16];
/// Its size in bytes.
const DATA_SIZE: u32 = 64;
/// `AUDIT_ARCH_X86_64`.
pub const ARCH: u32 = 0xc000_003e;

const MEM_WORDS: u32 = 16;

// The instructions that seccomp knows (`seccomp_check_filter`).
pub const LD_ABS: u16 = 0x20;
const LD_LEN: u16 = 0x80;
const LDX_LEN: u16 = 0x81;
const LD_IMM: u16 = 0x00;
const LDX_IMM: u16 = 0x01;
const LD_MEM: u16 = 0x60;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ADD_K: u16 = 0x04;
const ADD_X: u16 = 0x0c;
const SUB_K: u16 = 0x14;
const SUB_X: u16 = 0x1c;
const MUL_K: u16 = 0x24;
const MUL_X: u16 = 0x2c;
const DIV_K: u16 = 0x34;
const DIV_X: u16 = 0x3c;
const OR_K: u16 = 0x44;
const OR_X: u16 = 0x4c;
pub const AND_K: u16 = 0x54;
const AND_X: u16 = 0x5c;
const LSH_K: u16 = 0x64;
const LSH_X: u16 = 0x6c;
const RSH_K: u16 = 0x74;
const RSH_X: u16 = 0x7c;
const NEG: u16 = 0x84;
const XOR_K: u16 = 0xa4;
const XOR_X: u16 = 0xac;
pub const JA: u16 = 0x05;
pub const JEQ_K: u16 = 0x15;
const JEQ_X: u16 = 0x1d;
pub const JGT_K: u16 = 0x25;
const JGT_X: u16 = 0x2d;
pub const JGE_K: u16 = 0x35;
const JGE_X: u16 = 0x3d;
const JSET_K: u16 = 0x45;
const JSET_X: u16 = 0x4d;
pub const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;

/// A checked program.
#[derive(Debug)]
pub struct Program(Box<[Insn]>);

impl Program {
    /// Checks a program as Linux does; `EINVAL` for what it refuses.
    pub fn new(code: &[Insn]) -> Result<Program> {
        let len = code.len();
        if len == 0 || len > MAX_INSNS {
            return Err(EINVAL);
        }
        for (pc, i) in code.iter().enumerate() {
            let left = (len - pc - 1) as u64;
            let ok = match i.code {
                LD_ABS => i.k < DATA_SIZE && i.k & 3 == 0,
                LD_LEN | LDX_LEN | LD_IMM | LDX_IMM | RET_K | RET_A | TAX | TXA => true,
                LD_MEM | LDX_MEM | ST | STX => i.k < MEM_WORDS,
                DIV_K => i.k != 0,
                LSH_K | RSH_K => i.k < 32,
                ADD_K | ADD_X | SUB_K | SUB_X | MUL_K | MUL_X | DIV_X | OR_K | OR_X | AND_K
                | AND_X | LSH_X | RSH_X | NEG | XOR_K | XOR_X => true,
                JA => u64::from(i.k) < left,
                JEQ_K | JEQ_X | JGT_K | JGT_X | JGE_K | JGE_X | JSET_K | JSET_X => {
                    u64::from(i.jt) < left && u64::from(i.jf) < left
                }
                _ => false,
            };
            if !ok {
                return Err(EINVAL);
            }
        }
        if !matches!(code[len - 1].code, RET_K | RET_A) {
            return Err(EINVAL);
        }
        check_memory(code)?;
        Ok(Program(code.into()))
    }

    /// How many instructions Linux counts it as: those of its own machine, to which it translates
    /// programs (`bpf_convert_filter`).
    #[must_use]
    pub fn weight(&self) -> usize {
        let of = |i: &Insn| match i.code {
            RET_K => 2,
            DIV_X => 4,
            JA => 1,
            c if c & 7 == 5 && i.jt != 0 && i.jf != 0 => 2,
            _ => 1,
        };
        3 + self.0.iter().map(of).sum::<usize>()
    }

    /// What the program says of a system call.
    #[must_use]
    pub fn run(&self, data: &Data) -> u32 {
        let (mut a, mut x) = (0u32, 0u32);
        let mut mem = [0u32; MEM_WORDS as usize];
        let mut pc = 0;
        // The check made sure that every path ends in a return; 0 is KILL_THREAD.
        while let Some(i) = self.0.get(pc) {
            pc += 1;
            let k = i.k;
            let mut jump = |cond: bool| pc += usize::from(if cond { i.jt } else { i.jf });
            match i.code {
                LD_ABS => a = data[(k / 4) as usize % data.len()],
                LD_LEN => a = DATA_SIZE,
                LDX_LEN => x = DATA_SIZE,
                LD_IMM => a = k,
                LDX_IMM => x = k,
                LD_MEM => a = mem[(k % MEM_WORDS) as usize],
                LDX_MEM => x = mem[(k % MEM_WORDS) as usize],
                ST => mem[(k % MEM_WORDS) as usize] = a,
                STX => mem[(k % MEM_WORDS) as usize] = x,
                ADD_K => a = a.wrapping_add(k),
                ADD_X => a = a.wrapping_add(x),
                SUB_K => a = a.wrapping_sub(k),
                SUB_X => a = a.wrapping_sub(x),
                MUL_K => a = a.wrapping_mul(k),
                MUL_X => a = a.wrapping_mul(x),
                DIV_K => a = a.checked_div(k).unwrap_or(0),
                // A division by zero ends the program with 0.
                DIV_X => match a.checked_div(x) {
                    Some(q) => a = q,
                    None => return 0,
                },
                OR_K => a |= k,
                OR_X => a |= x,
                AND_K => a &= k,
                AND_X => a &= x,
                LSH_K => a = a.wrapping_shl(k),
                LSH_X => a = a.wrapping_shl(x),
                RSH_K => a = a.wrapping_shr(k),
                RSH_X => a = a.wrapping_shr(x),
                NEG => a = a.wrapping_neg(),
                XOR_K => a ^= k,
                XOR_X => a ^= x,
                JA => pc += k as usize,
                JEQ_K => jump(a == k),
                JEQ_X => jump(a == x),
                JGT_K => jump(a > k),
                JGT_X => jump(a > x),
                JGE_K => jump(a >= k),
                JGE_X => jump(a >= x),
                JSET_K => jump(a & k != 0),
                JSET_X => jump(a & x != 0),
                TAX => x = a,
                TXA => a = x,
                RET_K => return k,
                RET_A => return a,
                _ => return 0,
            }
        }
        0
    }

    /// What the program says of every call with this number, whatever its arguments, where that can
    /// be told by following the tests of the number alone (`seccomp_is_const_allow`).
    #[must_use]
    pub fn constant(&self, nr: u32) -> Option<u32> {
        let (mut a, mut pc) = (0u32, 0);
        loop {
            let i = self.0.get(pc)?;
            pc += 1;
            let mut jump = |cond: bool| pc += usize::from(if cond { i.jt } else { i.jf });
            match i.code {
                LD_ABS if i.k == 0 => a = nr,
                LD_ABS if i.k == 4 => a = ARCH,
                AND_K => a &= i.k,
                JA => pc += i.k as usize,
                JEQ_K => jump(a == i.k),
                JGT_K => jump(a > i.k),
                JGE_K => jump(a >= i.k),
                JSET_K => jump(a & i.k != 0),
                RET_K => return Some(i.k),
                _ => return None,
            }
        }
    }
}

/// No path may load a memory word that it did not store.
fn check_memory(code: &[Insn]) -> Result<()> {
    // What is stored on all jumps to an instruction.
    let mut at = vec![u16::MAX; code.len()];
    let mut stored = 0u16;
    for (pc, i) in code.iter().enumerate() {
        stored &= at[pc];
        match i.code {
            ST | STX => stored |= 1 << i.k,
            LD_MEM | LDX_MEM if stored & 1 << i.k == 0 => return Err(EINVAL),
            JA => {
                at[pc + 1 + i.k as usize] &= stored;
                stored = u16::MAX;
            }
            c if c & 7 == 5 => {
                at[pc + 1 + usize::from(i.jt)] &= stored;
                at[pc + 1 + usize::from(i.jf)] &= stored;
                stored = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn i(code: u16, jt: u8, jf: u8, k: u32) -> Insn {
        Insn { code, jt, jf, k }
    }
    fn run(code: &[Insn]) -> u32 {
        let mut d: Data = std::array::from_fn(|n| n as u32 * 0x11);
        d[1] = ARCH;
        Program::new(code).unwrap().run(&d)
    }

    #[test]
    fn refuses_what_linux_refuses() {
        let bad: &[&[Insn]] = &[
            &[],
            &[i(LD_IMM, 0, 0, 1)],
            &[i(LD_ABS, 0, 0, 64), i(RET_A, 0, 0, 0)],
            &[i(LD_ABS, 0, 0, 2), i(RET_A, 0, 0, 0)],
            // Halfwords and bytes, network loads, ancillary data, modulo: no seccomp instructions.
            &[i(0x28, 0, 0, 0), i(RET_A, 0, 0, 0)],
            &[i(0x30, 0, 0, 0), i(RET_A, 0, 0, 0)],
            &[i(0x40, 0, 0, 0), i(RET_A, 0, 0, 0)],
            &[i(0xb1, 0, 0, 0), i(RET_A, 0, 0, 0)],
            &[i(0x94, 0, 0, 1), i(RET_A, 0, 0, 0)],
            &[i(LD_ABS, 0, 0, 0xffff_f000), i(RET_A, 0, 0, 0)],
            &[i(DIV_K, 0, 0, 0), i(RET_A, 0, 0, 0)],
            &[i(LSH_K, 0, 0, 32), i(RET_A, 0, 0, 0)],
            &[i(ST, 0, 0, 16), i(RET_A, 0, 0, 0)],
            &[i(LD_MEM, 0, 0, 3), i(RET_A, 0, 0, 0)],
            &[i(JA, 0, 0, 1), i(RET_A, 0, 0, 0)],
            &[i(JA, 0, 0, u32::MAX), i(RET_A, 0, 0, 0)],
            &[i(JEQ_K, 0, 1, 0), i(RET_A, 0, 0, 0)],
            // One of two ways to the load stores nothing.
            &[
                i(JEQ_K, 0, 1, 0),
                i(ST, 0, 0, 0),
                i(LD_MEM, 0, 0, 0),
                i(RET_A, 0, 0, 0),
            ],
        ];
        for b in bad {
            assert_eq!(Program::new(b).err(), Some(EINVAL), "{b:?}");
        }
        assert!(Program::new(&vec![i(RET_K, 0, 0, 0); MAX_INSNS]).is_ok());
        assert!(Program::new(&vec![i(RET_K, 0, 0, 0); MAX_INSNS + 1]).is_err());
    }

    #[test]
    fn computes() {
        assert_eq!(run(&[i(LD_ABS, 0, 0, 12), i(RET_A, 0, 0, 0)]), 0x33);
        assert_eq!(
            run(&[i(LDX_LEN, 0, 0, 0), i(TXA, 0, 0, 0), i(RET_A, 0, 0, 0)]),
            64
        );
        let alu = |code, a, x| {
            run(&[
                i(LDX_IMM, 0, 0, x),
                i(LD_IMM, 0, 0, a),
                i(code, 0, 0, x),
                i(RET_A, 0, 0, 0),
            ])
        };
        for (code, a, x, want) in [
            (ADD_X, u32::MAX, 2, 1),
            (SUB_K, 1, 2, u32::MAX),
            (MUL_X, 1 << 31, 2, 0),
            (DIV_X, 7, 2, 3),
            (DIV_X, 7, 0, 0),
            (NEG, 1, 0, u32::MAX),
            (LSH_X, 1, 33, 2),
            (RSH_K, 8, 2, 2),
            (XOR_K, 6, 3, 5),
        ] {
            assert_eq!(alu(code, a, x), want, "{code:#x} {a} {x}");
        }
        // Memory, and jumps to both sides.
        assert_eq!(
            run(&[
                i(LD_IMM, 0, 0, 5),
                i(ST, 0, 0, 15),
                i(LD_IMM, 0, 0, 0),
                i(LDX_MEM, 0, 0, 15),
                i(TXA, 0, 0, 0),
                i(JGE_K, 1, 0, 6),
                i(RET_K, 0, 0, 1),
                i(RET_K, 0, 0, 2),
            ]),
            1
        );
    }

    #[test]
    fn constants_are_known_without_running() {
        let p = Program::new(&[
            i(LD_ABS, 0, 0, 4),
            i(JEQ_K, 1, 0, ARCH),
            i(RET_K, 0, 0, 0),
            i(LD_ABS, 0, 0, 0),
            i(JEQ_K, 0, 1, 39),
            i(RET_K, 0, 0, 0x7fff_0000),
            i(LD_ABS, 0, 0, 16),
            i(RET_A, 0, 0, 0),
        ])
        .unwrap();
        assert_eq!(p.constant(39), Some(0x7fff_0000));
        assert_eq!(p.constant(40), None);
    }
}
