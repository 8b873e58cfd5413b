//! Padding between functions, where a call site's second jump can lie.
//!
//! What must not happen is that something runs through it, or that something else than padding is
//! taken for it. So a slot is used only where all of this holds:
//!
//! - decoding from the call on comes to a return or a jump, and behind it to nothing but `nop` and
//!   `int3` up to the next address that is a multiple of 16, where something begins; the slot ends
//!   there;
//! - that is how assemblers fill up: all of it `int3`, or few long `nop`s. What
//!   `-fpatchable-function-entry` leaves, single bytes that are run, is not like that; what begins
//!   at a multiple of 16 is a function's entry, not padding;
//! - nothing on the page jumps there: neither the code around, decoded, nor any bytes that could
//!   be a jump with a 32-bit distance.

use std::ops::Range;
use yaxpeax_arch::LengthedInstruction;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand};

/// How long the jump to a trampoline is.
pub const JUMP: usize = 7;
/// The `syscall` instruction's length.
const CALL: usize = 2;
/// What begins somewhere begins at a multiple of it.
const ALIGN: usize = 16;
/// Long `nop`s that fill up to a multiple of 16; a few.
const FEW: usize = 3;
/// As far as a short jump goes.
const SHORT: usize = 128;

/// Where in a page of code a jump can lie for the call at `call`, in reach of a short jump.
#[must_use]
pub fn slot(page: &[u8], call: usize) -> Option<usize> {
    let padding = padding(page, call + CALL)?;
    let slot = padding.end - JUMP;
    (slot - (call + CALL) <= i8::MAX as usize && !is_reached(page, call, &padding)).then_some(slot)
}

/// The instruction at a place of the page, and where the next one begins.
fn decode(page: &[u8], at: usize) -> Option<(Instruction, usize)> {
    let i = InstDecoder::default().decode_slice(page.get(at..)?).ok()?;
    Some((i, at + i.len().to_const() as usize))
}

/// Where in the page an instruction jumps to, if it says that itself; what follows it begins at
/// `next`.
fn jumps_to(i: &Instruction, next: usize) -> Option<usize> {
    use Opcode::*;
    let by = match (i.opcode(), i.operand(0)) {
        (
            JO | JNO | JB | JNB | JZ | JNZ | JNA | JA | JS | JNS | JP | JNP | JL | JGE | JLE | JG
            | JRCXZ | JECXZ | LOOP | LOOPZ | LOOPNZ | JMP | CALL | XBEGIN,
            to,
        ) => match to {
            Operand::ImmediateI8 { imm } => i64::from(imm),
            Operand::ImmediateI32 { imm } => i64::from(imm),
            _ => return None,
        },
        _ => return None,
    };
    usize::try_from(next as i64 + by).ok()
}

/// The first padding behind `begin` that is long enough, up to the multiple of 16.
fn padding(page: &[u8], begin: usize) -> Option<Range<usize>> {
    let mut at = begin;
    while at < begin + SHORT {
        let (i, next) = decode(page, at)?;
        at = next;
        let ends = matches!(
            i.opcode(),
            Opcode::RETURN | Opcode::JMP | Opcode::UD2 | Opcode::HLT
        );
        let end = at.next_multiple_of(ALIGN);
        if ends && end - at >= JUMP && is_padding(page, at..end) {
            return Some(at..end);
        }
    }
    None
}

fn is_padding(page: &[u8], r: Range<usize>) -> bool {
    let Some(bytes) = page.get(r.clone()) else {
        return false;
    };
    if bytes.iter().all(|b| *b == 0xcc) {
        return true;
    }
    let (mut at, mut n) = (r.start, 0);
    while at < r.end {
        match decode(page, at) {
            Some((i, next)) if i.opcode() == Opcode::NOP => at = next,
            _ => return false,
        }
        n += 1;
    }
    n <= FEW
}

/// Whether something on the page may jump to the padding.
fn is_reached(page: &[u8], call: usize, padding: &Range<usize>) -> bool {
    let jumps = |i: &Instruction, next| jumps_to(i, next).is_some_and(|to| padding.contains(&to));
    // From the call to the padding, and behind it: there instructions are known to begin.
    let known = |from: usize, end: usize| {
        let mut at = from;
        while at < end {
            let Some((i, next)) = decode(page, at) else {
                break;
            };
            if jumps(&i, next) {
                return true;
            }
            at = next;
        }
        false
    };
    if known(call + CALL, padding.start) || known(padding.end, padding.end + SHORT) {
        return true;
    }
    // Before the call, wherever an instruction could begin so that the call is one.
    for from in call.saturating_sub(SHORT)..call.saturating_sub(SHORT - ALIGN) {
        let (mut at, mut jumped) = (from, false);
        while at < call {
            let Some((i, next)) = decode(page, at) else {
                break;
            };
            jumped |= jumps(&i, next);
            at = next;
        }
        if at == call && jumped {
            return true;
        }
    }
    // From anywhere: call, jmp, and jcc with 32-bit distances.
    page.windows(6).enumerate().any(|(i, w)| {
        let to = |at: usize| {
            let d = i32::from_le_bytes([w[at], w[at + 1], w[at + 2], w[at + 3]]);
            ((i + at + 4) as i64 + i64::from(d)) as u64
        };
        let inside = |to: u64| padding.contains(&(to as usize));
        matches!(w[0], 0xe8 | 0xe9) && inside(to(1))
            || w[0] == 0x0f && matches!(w[1], 0x80..=0x8f) && inside(to(2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of `rest` with a call at 0x100 and `after` behind it.
    fn page(after: &[u8], rest: u8) -> Vec<u8> {
        let mut p = vec![rest; 4096];
        p[0x100..0x102].copy_from_slice(&[0x0f, 0x05]);
        p[0x102..0x102 + after.len()].copy_from_slice(after);
        p
    }

    const PUSH: u8 = 0x55;
    /// 13 bytes: behind a return up to 0x110.
    const NOPS: [u8; 13] = [
        0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x66, 0x90,
    ];

    fn with(first: &[u8], nops: &[u8]) -> Vec<u8> {
        page(&[first, nops].concat(), PUSH)
    }

    #[test]
    fn a_slot_is_padding_that_nothing_reaches() {
        assert_eq!(slot(&with(&[0xc3], &NOPS), 0x100), Some(0x109));
        // A function's int3, as Go has it.
        let mut go = page(&[0xc3], PUSH);
        go[0x103..0x120].fill(0xcc);
        assert_eq!(slot(&go, 0x100), Some(0x109));
        // Reached: the c3 is a move's last byte.
        let moved = with(&[0x48, 0x89, 0xc3], &NOPS[2..]);
        assert_eq!(slot(&moved, 0x100), None);
        // Not aligned; too short; data; out of reach.
        assert_eq!(slot(&with(&[0x90, 0xc3], &NOPS), 0x100), Some(0x109));
        assert_eq!(slot(&with(&[0xc3], &NOPS[..11]), 0x100), None);
        let short = [
            0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        assert_eq!(slot(&page(&short, PUSH), 0x100), None);
        assert_eq!(slot(&page(&[0x06, 0xc3], 0x90), 0x100), None);
        assert_eq!(slot(&page(&[], PUSH), 0x100), None);
        // At the page's end.
        let mut end = vec![0x90; 4096];
        end[4090..4092].copy_from_slice(&[0x0f, 0x05]);
        end[4092] = 0xc3;
        assert_eq!(slot(&end, 4090), None);
        let mut end = vec![0xcc; 4096];
        end[4080..4083].copy_from_slice(&[0x0f, 0x05, 0xc3]);
        assert_eq!(slot(&end, 4080), Some(4089));
    }

    #[test]
    fn what_a_function_begins_with_is_no_padding() {
        // -fpatchable-function-entry: nops of one byte each, at an entry that is not aligned; one
        // that is.
        assert_eq!(slot(&with(&[0xc3], &[0x90; 13]), 0x100), None);
        let mut aligned = page(&[], PUSH);
        aligned[0x10f] = 0xc3;
        for b in &mut aligned[0x102..0x10f] {
            *b = 0x50;
        }
        aligned[0x110..0x120].fill(0x90);
        assert_eq!(slot(&aligned, 0x100), None);
        aligned[0x110..0x119].copy_from_slice(&[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]);
        aligned[0x119..0x120].copy_from_slice(&[0x0f, 0x1f, 0x80, 0, 0, 0, 0]);
        assert_eq!(slot(&aligned, 0x100), None);
    }

    #[test]
    fn what_is_jumped_to_is_no_padding() {
        let good = with(&[0xc3], &NOPS);
        // call +, from far before; jcc, from behind; both to 0x109.
        let mut p = good.clone();
        p[0x40] = 0xe8;
        p[0x41..0x45].copy_from_slice(&(0x109i32 - 0x45).to_le_bytes());
        assert_eq!(slot(&p, 0x100), None);
        let mut p = good.clone();
        p[0x800..0x802].copy_from_slice(&[0x0f, 0x84]);
        p[0x802..0x806].copy_from_slice(&(0x109i32 - 0x806).to_le_bytes());
        assert_eq!(slot(&p, 0x100), None);
        // Short ones: before the call, between, behind.
        for at in [0xf8usize, 0x118] {
            let mut p = good.clone();
            p[at] = 0x75;
            p[at + 1] = (0x103 - (at as i64 + 2)) as u8;
            assert_eq!(slot(&p, 0x100), None, "{at:#x}");
            // To the function behind, it is none of ours.
            p[at + 1] = (0x110 - (at as i64 + 2)) as u8;
            assert_eq!(slot(&p, 0x100), Some(0x109), "{at:#x}");
        }
        let between = with(&[0x74, 1, 0xc3], &NOPS[2..]);
        assert_eq!(slot(&between, 0x100), None);
    }
}
