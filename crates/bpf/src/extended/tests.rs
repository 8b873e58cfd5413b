use super::Purpose::Device;
use super::{Insn, Program};
use abi::errno::{E2BIG, EACCES, EINVAL};
use proptest::prelude::*;

fn insn(code: u8, regs: u8, off: i16, imm: i32) -> Insn {
    Insn {
        code,
        regs,
        off,
        imm,
    }
}
fn mov(r: u8, imm: i32) -> Insn {
    insn(0xb7, r, 0, imm)
}
const EXIT: Insn = Insn {
    code: 0x95,
    regs: 0,
    off: 0,
    imm: 0,
};

#[test]
fn answers_by_what_it_is_told() {
    // r2 = major; r0 = 1; if r2 == 5 goto exit; r0 = 0; exit
    let p = vec![
        insn(0x61, 0x12, 4, 0),
        mov(0, 1),
        insn(0x15, 2, 1, 5),
        mov(0, 0),
        EXIT,
    ];
    let p = Program::new(Device, p).expect("well-formed");
    assert_eq!(p.run(&[0, 5, 1]), 1);
    assert_eq!(p.run(&[0, 6, 1]), 0);
}

#[test]
fn what_it_may_not_be() {
    assert_eq!(Program::new(Device, vec![]).err(), Some(E2BIG));
    let long = vec![mov(0, 1); super::MAX];
    assert_eq!(Program::new(Device, long.clone()).err(), Some(EINVAL));
    assert_eq!(
        Program::new(Device, [long, vec![EXIT]].concat()).err(),
        Some(E2BIG)
    );
    assert_eq!(Program::new(Device, vec![EXIT]).err(), Some(EACCES));
    assert_eq!(
        Program::new(Device, vec![mov(0, 2), EXIT]).err(),
        Some(EINVAL)
    );
    // A loop.
    let looped = vec![mov(0, 1), insn(0x05, 0, -2, 0), EXIT];
    assert_eq!(Program::new(Device, looped).err(), Some(EINVAL));
    // Set on one way only.
    let unset = vec![insn(0x61, 0x12, 0, 0), insn(0x15, 2, 1, 5), mov(0, 0), EXIT];
    assert_eq!(Program::new(Device, unset).err(), Some(EACCES));
}

/// Mostly well-formed instructions, of few registers.
fn some() -> impl Strategy<Value = Insn> {
    const ALU: &[u8] = &[
        0x07, 0x17, 0x27, 0x37, 0x47, 0x57, 0x67, 0x77, 0x97, 0xa7, 0xb7, 0xc7,
    ];
    let numbers = prop_oneof![0..3i32, any::<i32>()];
    prop_oneof![
        (prop::sample::select(ALU), 0..4u8, 0..64i32).prop_map(|(c, r, i)| insn(c, r, 0, i)),
        (prop::sample::select(ALU), 0..4u8, 0..4u8).prop_map(|(c, d, s)| insn(
            c | 8,
            d | s << 4,
            0,
            0
        )),
        (prop::sample::select(ALU), 0..4u8, 0..32i32).prop_map(|(c, r, i)| insn(c & !3, r, 0, i)),
        (0..4u8, numbers).prop_map(|(r, i)| mov(r, i)),
        (0..4u8, 0..3i16).prop_map(|(r, w)| insn(0x61, r | 0x10, 4 * w, 0)),
        (0x1..0xdu8, 0..4u8, 0..4i16, 0..9i32).prop_map(|(o, r, off, i)| insn(
            o << 4 | 5,
            r,
            off,
            i
        )),
        Just(EXIT),
        (any::<u8>(), any::<u8>(), any::<i16>(), any::<i32>())
            .prop_map(|(c, r, o, i)| insn(c, r, o, i)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Whatever it is made of: it ends, and what was allowed answers 0 or 1.
    #[test]
    fn what_may_run_answers_yes_or_no(
        body in prop::collection::vec(some(), 0..12),
        told in any::<[u32; 3]>(),
    ) {
        let begin = [mov(0, 1), mov(2, 5), mov(3, 1)];
        let insns = [&begin[..], &body, &[EXIT]].concat();
        if let Ok(p) = Program::new(Device, insns) {
            prop_assert!(p.run(&told) <= 1);
        }
    }

    /// Unchecked, too, nothing panics.
    #[test]
    fn nothing_panics(
        insns in prop::collection::vec(some(), 1..12),
        told in any::<[u32; 3]>(),
    ) {
        let _ = Program(insns.into()).run(&told);
    }
}
