//! Classic BPF as seccomp filters use it ([`bpf`] checks and runs it): programs that read nothing
//! but [`Data`], which is whole words of `struct seccomp_data` (`seccomp_check_filter`).

use abi::Result;
use bpf::*;

pub use bpf::{AND_K, Insn, JA, JEQ_K, JGE_K, JGT_K, LD_ABS, MAX_INSNS, RET_K};

/// `struct seccomp_data`, as the words that a program may load.
pub type Data = [u32; 16];
/// Its size in bytes.
const DATA_SIZE: u32 = 64;
/// `AUDIT_ARCH_X86_64`.
pub const ARCH: u32 = 0xc000_003e;

/// A checked program.
#[derive(Debug)]
pub struct Program(Box<[Insn]>);

/// Whether seccomp has such an instruction.
fn is_known(i: &Insn) -> bool {
    match i.code {
        LD_ABS => i.k < DATA_SIZE && i.k & 3 == 0,
        LD_LEN | LDX_LEN | LD_IMM | LDX_IMM | LD_MEM | LDX_MEM | ST | STX => true,
        ADD_K | ADD_X | SUB_K | SUB_X | MUL_K | MUL_X | DIV_K | DIV_X | OR_K | OR_X | AND_K
        | AND_X | LSH_K | LSH_X | RSH_K | RSH_X | NEG | XOR_K | XOR_X => true,
        JA | JEQ_K | JEQ_X | JGT_K | JGT_X | JGE_K | JGE_X | JSET_K | JSET_X => true,
        RET_K | RET_A | TAX | TXA => true,
        _ => false,
    }
}

impl Program {
    /// Checks a program as Linux does; `EINVAL` for what it refuses.
    pub fn new(code: &[Insn]) -> Result<Program> {
        check(code, is_known)?;
        Ok(Program(code.into()))
    }

    /// As it was given.
    #[must_use]
    pub fn code(&self) -> &[Insn] {
        &self.0
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

    /// What the program says of a system call. (Of one that ends early 0, which is KILL_THREAD.)
    #[must_use]
    pub fn run(&self, data: &Data) -> u32 {
        let word = |i: &Insn, _, _| Some(data[(i.k / 4) as usize % data.len()]);
        run(&self.0, DATA_SIZE, word)
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

#[cfg(test)]
mod tests {
    use super::*;
    use abi::errno::EINVAL;

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
