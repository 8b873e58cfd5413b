//! Classic BPF (Linux's Documentation/networking/filter.rst): programs are checked when they are
//! installed, and interpreted. What a program may load is its user's: the words that tell of a
//! system call (`seccomp`), or a packet (`net`).
//!
//! A program cannot loop, for jumps go forward only (`bpf_check_classic`), and reads no memory word
//! that it has not written (`check_load_and_stores`). So a run costs at most one step for each
//! instruction.
#![forbid(unsafe_code)]

pub mod extended;

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

impl From<[u8; 8]> for Insn {
    /// As an application has it in memory.
    fn from(bytes: [u8; 8]) -> Insn {
        zerocopy::transmute!(bytes)
    }
}

impl From<Insn> for [u8; 8] {
    fn from(i: Insn) -> [u8; 8] {
        zerocopy::transmute!(i)
    }
}

/// The most instructions of a program (`BPF_MAXINSNS`).
pub const MAX_INSNS: usize = 4096;

const MEM_WORDS: u32 = 16;

// Instructions (`linux/bpf_common.h`). `_K` takes the constant, `_X` the index register.
pub const LD_ABS: u16 = 0x20;
pub const LD_ABS_HALF: u16 = 0x28;
pub const LD_ABS_BYTE: u16 = 0x30;
pub const LD_IND: u16 = 0x40;
pub const LD_IND_HALF: u16 = 0x48;
pub const LD_IND_BYTE: u16 = 0x50;
pub const LDX_MSH: u16 = 0xb1;
pub const LD_LEN: u16 = 0x80;
pub const LDX_LEN: u16 = 0x81;
pub const LD_IMM: u16 = 0x00;
pub const LDX_IMM: u16 = 0x01;
pub const LD_MEM: u16 = 0x60;
pub const LDX_MEM: u16 = 0x61;
pub const ST: u16 = 0x02;
pub const STX: u16 = 0x03;
pub const ADD_K: u16 = 0x04;
pub const ADD_X: u16 = 0x0c;
pub const SUB_K: u16 = 0x14;
pub const SUB_X: u16 = 0x1c;
pub const MUL_K: u16 = 0x24;
pub const MUL_X: u16 = 0x2c;
pub const DIV_K: u16 = 0x34;
pub const DIV_X: u16 = 0x3c;
pub const OR_K: u16 = 0x44;
pub const OR_X: u16 = 0x4c;
pub const AND_K: u16 = 0x54;
pub const AND_X: u16 = 0x5c;
pub const LSH_K: u16 = 0x64;
pub const LSH_X: u16 = 0x6c;
pub const RSH_K: u16 = 0x74;
pub const RSH_X: u16 = 0x7c;
pub const NEG: u16 = 0x84;
pub const MOD_K: u16 = 0x94;
pub const MOD_X: u16 = 0x9c;
pub const XOR_K: u16 = 0xa4;
pub const XOR_X: u16 = 0xac;
pub const JA: u16 = 0x05;
pub const JEQ_K: u16 = 0x15;
pub const JEQ_X: u16 = 0x1d;
pub const JGT_K: u16 = 0x25;
pub const JGT_X: u16 = 0x2d;
pub const JGE_K: u16 = 0x35;
pub const JGE_X: u16 = 0x3d;
pub const JSET_K: u16 = 0x45;
pub const JSET_X: u16 = 0x4d;
pub const RET_K: u16 = 0x06;
pub const RET_A: u16 = 0x16;
pub const TAX: u16 = 0x07;
pub const TXA: u16 = 0x87;

/// Checks a program as Linux does; `EINVAL` for what it refuses. `is_known`: whether there is such
/// an instruction for this kind of program; where it leads is looked at here.
pub fn check(code: &[Insn], is_known: impl Fn(&Insn) -> bool) -> Result<()> {
    if code.len() > MAX_INSNS {
        return Err(EINVAL);
    }
    let left = |pc: usize| (code.len() - pc - 1) as u64;
    let mut all = code.iter().enumerate();
    if !all.all(|(pc, i)| is_known(i) && stays_inside(i, left(pc))) {
        return Err(EINVAL);
    }
    if !matches!(code.last().map(|i| i.code), Some(RET_K | RET_A)) {
        return Err(EINVAL);
    }
    check_memory(code)
}

/// `left` instructions follow.
fn stays_inside(i: &Insn, left: u64) -> bool {
    match i.code {
        LD_MEM | LDX_MEM | ST | STX => i.k < MEM_WORDS,
        DIV_K | MOD_K => i.k != 0,
        LSH_K | RSH_K => i.k < 32,
        JA => u64::from(i.k) < left,
        c if c & 7 == 5 => u64::from(i.jt) < left && u64::from(i.jf) < left,
        _ => true,
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

/// What a checked program returns, of data of `len` bytes; `load` does its loads, with both
/// registers at hand. A load that there is nothing for ends the program with 0, as a division by
/// zero does.
#[inline]
pub fn run(code: &[Insn], len: u32, load: impl Fn(&Insn, u32, u32) -> Option<u32>) -> u32 {
    steps(code, len, load).unwrap_or(0)
}

#[inline]
fn steps(code: &[Insn], len: u32, load: impl Fn(&Insn, u32, u32) -> Option<u32>) -> Option<u32> {
    let (mut a, mut x) = (0u32, 0u32);
    let mut mem = [0u32; MEM_WORDS as usize];
    let mut pc = 0;
    // The check made sure that every path ends in a return.
    while let Some(i) = code.get(pc) {
        pc += 1;
        let k = i.k;
        let mut jump = |cond: bool| pc += usize::from(if cond { i.jt } else { i.jf });
        match i.code {
            LD_ABS | LD_ABS_HALF | LD_ABS_BYTE | LD_IND | LD_IND_HALF | LD_IND_BYTE => {
                a = load(i, a, x)?;
            }
            LDX_MSH => x = load(i, a, x)?,
            LD_LEN => a = len,
            LDX_LEN => x = len,
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
            DIV_K => a = a.checked_div(k)?,
            DIV_X => a = a.checked_div(x)?,
            MOD_K => a = a.checked_rem(k)?,
            MOD_X => a = a.checked_rem(x)?,
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
            RET_K => return Some(k),
            RET_A => return Some(a),
            _ => return None,
        }
    }
    None
}
