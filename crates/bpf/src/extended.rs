//! Extended BPF (`bpf(2)`, RFC 9669), as much as a program needs that decides by numbers it is told
//! (`BPF_PROG_TYPE_CGROUP_DEVICE`): all arithmetic and all jumps forward, loads from what it is
//! told, and an answer of 0 or 1. Calls, maps, loops and memory of its own there are none.
//!
//! | module | what it does |
//! |---|---|
//! | [`insn`] | what an instruction is, and which are well-formed |
//! | [`check`] | whether a program may run (Linux's `kernel/bpf/verifier.c`) |
//!
//! Invariants, which [`Program::new`] sees to and [`Program::run`] relies on for nothing but its
//! answer: jumps go forward only, so a run costs at most one step for each instruction; no
//! register is read that was not set; what ends is 0 or 1.

mod check;
mod insn;

pub use insn::Insn;

use abi::Result;
use abi::errno::E2BIG;
use insn::{Alu, Kind, Operand, Size, Test, Width};

/// As many instructions as Linux lets a program without privileges have (`BPF_MAXINSNS`).
pub const MAX: usize = 4096;

/// What a program is told, as `struct bpf_cgroup_dev_ctx` has it: the kind and the access, the
/// major and the minor number.
pub type DeviceContext = [u32; 3];

/// What a program is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To say whether a device may be used (`BPF_PROG_TYPE_CGROUP_DEVICE`).
    Device,
    /// To say whether a packet may come in (`BPF_PROG_TYPE_CGROUP_SKB`), of which it is told
    /// nothing: such are loaded to ask whether there are programs.
    Packet,
}

/// A program that may run.
#[derive(Debug)]
pub struct Program(Box<[Insn]>);

impl Program {
    /// Checks it. `E2BIG` for none or too many instructions, `EINVAL` for what is malformed, loops,
    /// is never reached, is not there, or may answer something else than 0 or 1; `EACCES` where it
    /// uses what it may not.
    pub fn new(purpose: Purpose, insns: Vec<Insn>) -> Result<Program> {
        if insns.is_empty() || insns.len() > MAX {
            return Err(E2BIG);
        }
        check::check(purpose, &insns)?;
        Ok(Program(insns.into()))
    }
    #[must_use]
    pub fn insns(&self) -> &[Insn] {
        &self.0
    }
    /// Its answer.
    #[must_use]
    pub fn run(&self, told: &DeviceContext) -> u64 {
        let mut regs = [0u64; 16];
        let mut pc = 0;
        while let Some(insn) = self.0.get(pc) {
            pc += 1;
            let Some(kind) = insn.kind() else { break };
            let value = |o: Operand| match o {
                Operand::Register(r) => regs[usize::from(r & 15)],
                Operand::Immediate(v) => v,
            };
            let set = match kind {
                Kind::Alu { op, width, by } => Some(op.apply(width, regs[insn.dst()], value(by))),
                Kind::Load { size } => Some(load(told, insn.off, size)),
                Kind::LoadWide => {
                    let half = self.0.get(pc);
                    pc += 1;
                    half.map(|half| insn.wide(half))
                }
                Kind::Store => None,
                Kind::Jump { to } => {
                    pc += to;
                    None
                }
                Kind::Branch {
                    test,
                    width,
                    by,
                    to,
                } => {
                    if test.holds(width, regs[insn.dst()], value(by)) {
                        pc += to;
                    }
                    None
                }
                Kind::Exit => return regs[0],
            };
            if let Some(v) = set {
                regs[insn.dst()] = v;
            }
        }
        0
    }
}

/// What stands at an offset of what it is told; 0 beyond it.
fn load(told: &DeviceContext, off: i16, size: Size) -> u64 {
    let Ok(off) = usize::try_from(off) else {
        return 0;
    };
    let word = told.get(off / 4).copied().unwrap_or(0);
    u64::from(word >> (8 * (off % 4) as u32)) & size.mask()
}

impl Alu {
    /// `a` changed by `b`. Nothing traps: what is divided by 0 is 0, its rest `a`.
    fn apply(self, width: Width, a: u64, b: u64) -> u64 {
        match width {
            Width::Double => self.apply64(a, b),
            Width::Word => u64::from(self.apply32(a as u32, b as u32)),
        }
    }
    fn apply64(self, a: u64, b: u64) -> u64 {
        let (x, y) = (a as i64, b as i64);
        match self {
            Alu::Add => a.wrapping_add(b),
            Alu::Sub => a.wrapping_sub(b),
            Alu::Mul => a.wrapping_mul(b),
            Alu::Div => a.checked_div(b).unwrap_or(0),
            Alu::Mod => a.checked_rem(b).unwrap_or(a),
            Alu::SignedDiv if y == 0 => 0,
            Alu::SignedDiv => x.wrapping_div(y) as u64,
            Alu::SignedMod if y == 0 => a,
            Alu::SignedMod => x.wrapping_rem(y) as u64,
            Alu::Or => a | b,
            Alu::And => a & b,
            Alu::Xor => a ^ b,
            Alu::Lsh => a.wrapping_shl(b as u32),
            Alu::Rsh => a.wrapping_shr(b as u32),
            Alu::Arsh => x.wrapping_shr(b as u32) as u64,
            Alu::Neg => x.wrapping_neg() as u64,
            Alu::Mov => b,
            Alu::MovSigned(bits) => sign_extended(b, bits),
            Alu::ToLittle(bits) => cut(a, bits),
            Alu::ToBig(bits) | Alu::Swap(bits) => a.swap_bytes() >> (64 - u32::from(bits)),
        }
    }
    fn apply32(self, a: u32, b: u32) -> u32 {
        let (x, y) = (a as i32, b as i32);
        match self {
            Alu::Div => a.checked_div(b).unwrap_or(0),
            Alu::Mod => a.checked_rem(b).unwrap_or(a),
            Alu::SignedDiv if y == 0 => 0,
            Alu::SignedDiv => x.wrapping_div(y) as u32,
            Alu::SignedMod if y == 0 => a,
            Alu::SignedMod => x.wrapping_rem(y) as u32,
            Alu::Lsh => a.wrapping_shl(b),
            Alu::Rsh => a.wrapping_shr(b),
            Alu::Arsh => x.wrapping_shr(b) as u32,
            // The low half of the result is that of the low halves.
            _ => self.apply64(u64::from(a), u64::from(b)) as u32,
        }
    }
}

fn cut(v: u64, bits: u8) -> u64 {
    v & u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or(0)
}

fn sign_extended(v: u64, bits: u8) -> u64 {
    let unused = 64 - u32::from(bits);
    ((v << unused) as i64 >> unused) as u64
}

impl Test {
    fn holds(self, width: Width, a: u64, b: u64) -> bool {
        let (a, b, x, y) = match width {
            Width::Double => (a, b, a as i64, b as i64),
            Width::Word => {
                let (x, y) = (i64::from(a as i32), i64::from(b as i32));
                (u64::from(a as u32), u64::from(b as u32), x, y)
            }
        };
        match self {
            Test::Equal => a == b,
            Test::NotEqual => a != b,
            Test::Above => a > b,
            Test::AboveOrEqual => a >= b,
            Test::Below => a < b,
            Test::BelowOrEqual => a <= b,
            Test::AnyBit => a & b != 0,
            Test::Greater => x > y,
            Test::GreaterOrEqual => x >= y,
            Test::Less => x < y,
            Test::LessOrEqual => x <= y,
        }
    }
}

#[cfg(test)]
mod tests;
