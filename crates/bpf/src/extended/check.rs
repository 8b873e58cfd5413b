//! Whether a program may run. As jumps go forward only, one look at each instruction, in their
//! order, knows what all ways to it have left in the registers: what two ways leave is joined where
//! they meet. (Linux follows each way by itself, and so takes a few programs more.)

use super::insn::{Alu, Insn, Kind, Operand, Size, Width};
use super::{Purpose, load};
use abi::Result;
use abi::errno::{EACCES, EINVAL};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Registers: 0 is the answer, 1 begins as a pointer to what the program is told, 10 is the frame
/// pointer, which nothing can be done with here.
const REGISTERS: usize = 11;
const FRAME: usize = 10;

/// What is known of a register.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reg {
    /// Not set on some way here.
    Unset,
    /// To what it is told.
    Context,
    Frame,
    Number(RangeInclusive<u64>),
}

type Regs = [Reg; REGISTERS];

fn join(a: Regs, b: &Regs) -> Regs {
    let mut b = b.iter();
    a.map(|a| match (a, b.next()) {
        (a, Some(b)) if a == *b => a,
        (Reg::Number(a), Some(Reg::Number(b))) => {
            let (least, most) = (a.start().min(b.start()), a.end().max(b.end()));
            Reg::Number(*least..=*most)
        }
        _ => Reg::Unset,
    })
}

/// See [`super::Program::new`].
pub(super) fn check(purpose: Purpose, insns: &[Insn]) -> Result<()> {
    form(insns)?;
    let mut c = Checker {
        purpose,
        now: Some(first()),
        ahead: BTreeMap::new(),
    };
    let mut pc = 0;
    while let Some(insn) = insns.get(pc) {
        c.arrive(pc);
        pc += c.step(insns, pc, insn)?;
    }
    Ok(())
}

fn first() -> Regs {
    let mut regs = [const { Reg::Unset }; REGISTERS];
    regs[1] = Reg::Context;
    regs[FRAME] = Reg::Frame;
    regs
}

/// All are well-formed, are reached, and end within the program.
fn form(insns: &[Insn]) -> Result<()> {
    let mut reached = vec![false; insns.len()];
    let mut flows = true;
    let mut pc = 0;
    while let Some(insn) = insns.get(pc) {
        let kind = insn.kind().ok_or(EINVAL)?;
        if !flows && !reached[pc] {
            return Err(EINVAL);
        }
        let registers = [insn.dst(), insn.src()];
        if registers.iter().any(|r| *r >= REGISTERS) {
            return Err(EINVAL);
        }
        let mut reach = |at: usize| {
            let r = reached.get_mut(at).ok_or(EINVAL)?;
            *r = true;
            Ok(())
        };
        flows = match kind {
            Kind::Jump { to } => {
                reach(pc + 1 + to)?;
                false
            }
            Kind::Branch { to, .. } => {
                reach(pc + 1 + to)?;
                true
            }
            Kind::Exit => false,
            _ => true,
        };
        pc += 1;
        if kind == Kind::LoadWide {
            // Nothing jumps into it.
            let half = insns.get(pc).filter(|i| i.is_second_half());
            if half.is_none() || reached[pc] {
                return Err(EINVAL);
            }
            pc += 1;
        }
    }
    if flows { Err(EINVAL) } else { Ok(()) }
}

struct Checker {
    purpose: Purpose,
    /// After the instruction before this one, if that leads here.
    now: Option<Regs>,
    /// By jumps to instructions that are still to be looked at.
    ahead: BTreeMap<usize, Regs>,
}

impl Checker {
    fn arrive(&mut self, pc: usize) {
        if let Some(jumped) = self.ahead.remove(&pc) {
            self.now = Some(match self.now.take() {
                Some(flowed) => join(flowed, &jumped),
                None => jumped,
            });
        }
    }
    fn jump(&mut self, to: usize, regs: &Regs) {
        let met = match self.ahead.remove(&to) {
            Some(other) => join(other, regs),
            None => regs.clone(),
        };
        self.ahead.insert(to, met);
    }
    /// Looks at one; gives how many it takes.
    fn step(&mut self, insns: &[Insn], pc: usize, insn: &Insn) -> Result<usize> {
        let kind = insn.kind().ok_or(EINVAL)?;
        let mut regs = self.now.take().ok_or(EINVAL)?;
        match kind {
            Kind::Alu { op, width, by } => {
                let result = alu(&regs, insn.dst(), op, width, by)?;
                set(&mut regs, insn.dst(), result)?;
            }
            Kind::Load { size } => {
                let told = self.purpose == Purpose::Device && is_told(insn.off, size);
                if regs[insn.src()] != Reg::Context || !told {
                    return Err(EACCES);
                }
                let most = load(&[u32::MAX; 3], insn.off, size);
                set(&mut regs, insn.dst(), Reg::Number(0..=most))?;
            }
            Kind::LoadWide => {
                let v = insn.wide(insns.get(pc + 1).ok_or(EINVAL)?);
                set(&mut regs, insn.dst(), Reg::Number(v..=v))?;
                self.now = Some(regs);
                return Ok(2);
            }
            // What it is told is to be read, and memory of its own it has none.
            Kind::Store => return Err(EACCES),
            Kind::Jump { to } => {
                self.jump(pc + 1 + to, &regs);
                return Ok(1);
            }
            Kind::Branch { by, to, .. } => {
                number(&regs[insn.dst()])?;
                value(&regs, by)?;
                self.jump(pc + 1 + to, &regs);
            }
            Kind::Exit => {
                return match &regs[0] {
                    Reg::Unset => Err(EACCES),
                    Reg::Number(r) if *r.end() <= 1 => Ok(1),
                    _ => Err(EINVAL),
                };
            }
        }
        self.now = Some(regs);
        Ok(1)
    }
}

fn set(regs: &mut Regs, r: usize, to: Reg) -> Result<()> {
    if r == FRAME {
        return Err(EACCES);
    }
    regs[r] = to;
    Ok(())
}

/// The first word may be had in parts (`cgroup_dev_is_valid_access`).
fn is_told(off: i16, size: Size) -> bool {
    matches!(
        (off, size),
        (0 | 4 | 8, Size::Word) | (0 | 2, Size::Half) | (0..4, Size::Byte)
    )
}

fn number(r: &Reg) -> Result<RangeInclusive<u64>> {
    match r {
        Reg::Number(r) => Ok(r.clone()),
        _ => Err(EACCES),
    }
}

fn value(regs: &Regs, by: Operand) -> Result<RangeInclusive<u64>> {
    match by {
        Operand::Register(r) => number(&regs[usize::from(r)]),
        Operand::Immediate(v) => Ok(v..=v),
    }
}

/// What is known of the result.
fn alu(regs: &Regs, dst: usize, op: Alu, width: Width, by: Operand) -> Result<Reg> {
    if let (Alu::Mov, Width::Double, Operand::Register(r)) = (op, width, by) {
        return match &regs[usize::from(r)] {
            Reg::Unset => Err(EACCES),
            r => Ok(r.clone()),
        };
    }
    let b = value(regs, by)?;
    let a = match op {
        Alu::Mov | Alu::MovSigned(_) => 0..=0,
        _ => number(&regs[dst])?,
    };
    Ok(Reg::Number(range(op, width, &a, &b)))
}

fn range(
    op: Alu,
    width: Width,
    a: &RangeInclusive<u64>,
    b: &RangeInclusive<u64>,
) -> RangeInclusive<u64> {
    let exact = |r: &RangeInclusive<u64>| r.start() == r.end();
    if exact(a) && exact(b) {
        let v = op.apply(width, *a.start(), *b.start());
        return v..=v;
    }
    let limit = match width {
        Width::Word => u64::from(u32::MAX),
        Width::Double => u64::MAX,
    };
    let (most_a, most_b) = ((*a.end()).min(limit), (*b.end()).min(limit));
    let most = match op {
        Alu::Mov => most_b,
        Alu::And => most_a.min(most_b),
        // No bit above the highest of both.
        Alu::Or | Alu::Xor => u64::MAX
            .checked_shr((most_a | most_b).leading_zeros())
            .unwrap_or(0),
        Alu::Rsh if exact(b) => op.apply(width, most_a, *b.start()),
        _ => limit,
    };
    0..=most
}
