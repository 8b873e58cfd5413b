//! Instructions (`struct bpf_insn`; RFC 9669, sections 3 to 5).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Insn {
    pub code: u8,
    /// The destination in the lower half, the source in the upper one.
    pub regs: u8,
    pub off: i16,
    pub imm: i32,
}

/// What a well-formed instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sets the destination to itself changed by `by`.
    Alu {
        op: Alu,
        width: Width,
        by: Operand,
    },
    /// Loads from where the source points.
    Load {
        size: Size,
    },
    /// Sets the destination to 64 bits, half of which stand in the next instruction.
    LoadWide,
    /// Stores where the destination points.
    Store,
    /// Leaves out so many instructions.
    Jump {
        to: usize,
    },
    /// Leaves out so many where the destination and `by` compare so.
    Branch {
        test: Test,
        width: Width,
        by: Operand,
        to: usize,
    },
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Word,
    Double,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Register(u8),
    Immediate(u64),
}

/// Bytes of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Byte = 1,
    Half = 2,
    Word = 4,
    Double = 8,
}

impl Size {
    pub(super) fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self as u32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    SignedDiv,
    Or,
    And,
    Lsh,
    Rsh,
    Neg,
    Mod,
    SignedMod,
    Xor,
    Mov,
    /// Of so many bits.
    MovSigned(u8),
    Arsh,
    ToLittle(u8),
    ToBig(u8),
    Swap(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    Above,
    AboveOrEqual,
    AnyBit,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Below,
    BelowOrEqual,
    Less,
    LessOrEqual,
}

const CLASS: u8 = 0x07;
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
/// The operand is a register's.
const X: u8 = 0x08;
const SIZE: u8 = 0x18;
const MODE: u8 = 0xe0;
const MEM: u8 = 0x60;
const DOUBLE: u8 = 0x18;
const OP: u8 = 0xf0;
const NEG: u8 = 0x80;
const END: u8 = 0xd0;
const JA: u8 = 0x00;
const EXIT: u8 = 0x90;

impl Insn {
    pub(super) fn dst(&self) -> usize {
        usize::from(self.regs & 15)
    }
    pub(super) fn src(&self) -> usize {
        usize::from(self.regs >> 4)
    }
    fn immediate(&self) -> u64 {
        i64::from(self.imm) as u64
    }
    /// The number of a [`Kind::LoadWide`] whose second half this is followed by.
    pub(super) fn wide(&self, half: &Insn) -> u64 {
        u64::from(self.imm as u32) | u64::from(half.imm as u32) << 32
    }
    /// The second half of [`Kind::LoadWide`], but for its number.
    pub(super) fn is_second_half(&self) -> bool {
        self.code == 0 && self.regs == 0 && self.off == 0
    }
    /// What it does; `None` for what there is not, what is not supported, and what has something in
    /// fields that it does not use. The registers' numbers are not looked at.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self.code & CLASS {
            LD => {
                let wide = self.code == LD | DOUBLE && self.src() == 0 && self.off == 0;
                wide.then_some(Kind::LoadWide)
            }
            LDX => {
                let plain = self.code & MODE == MEM && self.imm == 0;
                let size = match self.code & SIZE {
                    0x00 => Size::Word,
                    0x08 => Size::Half,
                    0x10 => Size::Byte,
                    _ => Size::Double,
                };
                plain.then_some(Kind::Load { size })
            }
            ST => (self.code & MODE == MEM && self.src() == 0).then_some(Kind::Store),
            STX => (self.code & MODE == MEM && self.imm == 0).then_some(Kind::Store),
            ALU => self.alu(Width::Word),
            ALU64 => self.alu(Width::Double),
            JMP => self.jump(Width::Double),
            JMP32 => self.jump(Width::Word),
            _ => None,
        }
    }
    /// The operand, where the field of the other sort is empty.
    fn operand(&self) -> Option<Operand> {
        if self.code & X != 0 {
            (self.imm == 0).then_some(Operand::Register(self.src() as u8))
        } else {
            (self.src() == 0).then(|| Operand::Immediate(self.immediate()))
        }
    }
    fn alu(&self, width: Width) -> Option<Kind> {
        let by = match self.code & OP {
            END => return self.end(width),
            NEG => {
                let empty = self.code & X == 0 && self.regs >> 4 == 0 && self.imm == 0;
                empty.then_some(Operand::Immediate(0))?
            }
            _ => self.operand()?,
        };
        let op = match (self.code & OP, self.off) {
            (0x30, 1) => Alu::SignedDiv,
            (0x90, 1) => Alu::SignedMod,
            (0xb0, 8 | 16) if self.code & X != 0 => Alu::MovSigned(self.off as u8),
            (0xb0, 32) if self.code & X != 0 && width == Width::Double => Alu::MovSigned(32),
            (op, 0) => plain(op)?,
            _ => return None,
        };
        let bits = match width {
            Width::Word => 32,
            Width::Double => 64,
        };
        let makes_sense = match (op, by) {
            (Alu::Div | Alu::Mod | Alu::SignedDiv | Alu::SignedMod, Operand::Immediate(v)) => {
                v != 0
            }
            (Alu::Lsh | Alu::Rsh | Alu::Arsh, Operand::Immediate(v)) => v < bits,
            _ => true,
        };
        makes_sense.then_some(Kind::Alu { op, width, by })
    }
    fn end(&self, width: Width) -> Option<Kind> {
        let bits = match self.imm {
            16 => 16,
            32 => 32,
            64 => 64,
            _ => return None,
        };
        let op = match (width, self.code & X != 0) {
            (Width::Word, false) => Alu::ToLittle(bits),
            (Width::Word, true) => Alu::ToBig(bits),
            (Width::Double, false) => Alu::Swap(bits),
            (Width::Double, true) => return None,
        };
        let by = Operand::Immediate(0);
        // Whatever its class, its result is of `bits`.
        let width = Width::Double;
        (self.src() == 0 && self.off == 0).then_some(Kind::Alu { op, width, by })
    }
    fn jump(&self, width: Width) -> Option<Kind> {
        let empty = self.regs == 0 && self.code & X == 0;
        match (self.code & OP, width) {
            (JA, Width::Double) => {
                let to = usize::try_from(self.off).ok()?;
                (empty && self.imm == 0).then_some(Kind::Jump { to })
            }
            (JA, Width::Word) => {
                let to = usize::try_from(self.imm).ok()?;
                (empty && self.off == 0).then_some(Kind::Jump { to })
            }
            (EXIT, Width::Double) => {
                (empty && self.imm == 0 && self.off == 0).then_some(Kind::Exit)
            }
            (op, _) => {
                let (test, by) = (test(op)?, self.operand()?);
                let to = usize::try_from(self.off).ok()?;
                Some(Kind::Branch {
                    test,
                    width,
                    by,
                    to,
                })
            }
        }
    }
}

fn plain(op: u8) -> Option<Alu> {
    Some(match op {
        0x00 => Alu::Add,
        0x10 => Alu::Sub,
        0x20 => Alu::Mul,
        0x30 => Alu::Div,
        0x40 => Alu::Or,
        0x50 => Alu::And,
        0x60 => Alu::Lsh,
        0x70 => Alu::Rsh,
        NEG => Alu::Neg,
        0x90 => Alu::Mod,
        0xa0 => Alu::Xor,
        0xb0 => Alu::Mov,
        0xc0 => Alu::Arsh,
        _ => return None,
    })
}

fn test(op: u8) -> Option<Test> {
    Some(match op {
        0x10 => Test::Equal,
        0x20 => Test::Above,
        0x30 => Test::AboveOrEqual,
        0x40 => Test::AnyBit,
        0x50 => Test::NotEqual,
        0x60 => Test::Greater,
        0x70 => Test::GreaterOrEqual,
        0xa0 => Test::Below,
        0xb0 => Test::BelowOrEqual,
        0xc0 => Test::Less,
        0xd0 => Test::LessOrEqual,
        _ => return None,
    })
}
