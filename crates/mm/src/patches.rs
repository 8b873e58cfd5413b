//! The patched call sites of an address space: what was at each, and what is there now.
//!
//! An entry says what was there, and what was written; only where the memory still has what was
//! written is it put back. What the application has the Sentry read of such a page is the original
//! ([`Patches::show_original`]). [`crate::patch`] changes the code, and says what always holds.

use crate::PAGE;
use crate::padding::JUMP;
use platform::lanes::sites::{DISPLACED_MAX, MOVED_MAX, jump};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// The `syscall` instruction.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The longest patch.
pub(crate) const LONGEST: usize = DISPLACED_MAX + SYSCALL.len();

/// What was there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    pub(crate) original: [u8; LONGEST],
    /// What is there now, unless the application has thrown the page away or mapped something
    /// else.
    pub(crate) new: [u8; LONGEST],
    pub(crate) len: usize,
}

/// The patched sites of an address space, by the address that their patch starts at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patches {
    pub(crate) sites: BTreeMap<u64, Patch>,
    /// Pages that were given back, and how often.
    given_back: BTreeMap<u64, u8>,
    /// Forks since something was to be patched last.
    pub(crate) forks: u32,
    /// No more can be patched.
    pub(crate) full: bool,
    /// The application uses the addresses that the lanes need, or a debugger is, or was, attached.
    pub(crate) off: bool,
}

impl Patches {
    pub(crate) fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    pub(crate) fn overlapping(&self, r: &Range<u64>) -> impl Iterator<Item = (u64, Patch)> {
        let from = r.start.saturating_sub(LONGEST as u64 - 1);
        let start = r.start;
        self.sites
            .range(from..r.end.max(from))
            .filter(move |(at, p)| *at + p.len as u64 > start)
            .map(|(at, p)| (*at, *p))
    }

    /// The pages of `r` that have patches.
    pub(crate) fn pages(&self, r: &Range<u64>) -> SmallVec<[u64; 4]> {
        let mut pages: SmallVec<[u64; 4]> = self
            .overlapping(r)
            .map(|(at, _)| at & !(PAGE - 1))
            .collect();
        pages.dedup();
        pages
    }

    /// Whether something that the Sentry reads there is not what it was.
    pub(crate) fn touch(&self, va: u64, len: u64) -> bool {
        !self.sites.is_empty()
            && self
                .overlapping(&(va..va.saturating_add(len)))
                .next()
                .is_some()
    }

    /// Whether the page may be patched.
    pub(crate) fn may_patch(&self, page: u64) -> bool {
        !self.off && !self.full && self.given_back.get(&page).is_none_or(|n| *n < Self::ROUNDS)
    }

    /// A fork's child costs the more the more is patched: who makes many is left alone.
    pub(crate) fn forked(&mut self) {
        self.forks = self.forks.saturating_add(1);
    }

    /// Forks between two sites that were used often: beyond, patching does not pay.
    pub(crate) const FEW_FORKS: u32 = 4;

    /// How often a page is given back before it is left alone, and of how many pages that is
    /// remembered.
    const ROUNDS: u8 = 2;
    const REMEMBERED: usize = 4096;

    pub(crate) fn gave_back(&mut self, page: u64) {
        if self.given_back.len() < Self::REMEMBERED || self.given_back.contains_key(&page) {
            let n = self.given_back.entry(page).or_default();
            *n = n.saturating_add(1);
        } else {
            // Somebody writes code all the time.
            self.full = true;
        }
    }

    /// Shows in `bytes`, read from `va`, what was there before.
    pub(crate) fn show_original(&self, va: u64, bytes: &mut [u8]) {
        if self.sites.is_empty() {
            return;
        }
        for (at, p) in self.overlapping(&(va..va.saturating_add(bytes.len() as u64))) {
            let place = |i: usize| (at + i as u64).wrapping_sub(va) as usize;
            let there = |i: usize| bytes.get(place(i)).is_none_or(|b| *b == p.new[i]);
            if !(0..p.len).all(there) {
                continue;
            }
            for i in 0..p.len {
                if let Some(to) = bytes.get_mut(place(i)) {
                    *to = p.original[i];
                }
            }
        }
    }
}

/// The instruction before a `syscall` that can be displaced: its length, and what does the same at
/// any other place. `before` ends where the call is, at `call`. What it loads must be what the
/// call was seen with: the bytes could be the end of a longer instruction.
pub(crate) fn displaceable(
    before: &[u8],
    call: u64,
    nr: u64,
    args: &[u64; 6],
) -> Option<(usize, SmallVec<[u8; MOVED_MAX]>)> {
    let imm = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let prefixed = |len: usize| {
        let at = before.len().checked_sub(len + 1);
        // REX, operand and address size.
        at.is_none_or(|i| matches!(before[i], 0x40..=0x4f | 0x66 | 0x67))
    };
    let tail = |n: usize| before.len().checked_sub(n).map(|i| &before[i..]);
    let as_it_is = |b: &[u8]| Some((b.len(), SmallVec::from_slice(b)));
    if let Some(b) = tail(7)
        && b[..3] == [0x48, 0xc7, 0xc0]
        && imm(&b[3..]) == nr as u32
    {
        return as_it_is(b);
    }
    // lea of an address relative to rip, which is the call's: a constant (the masks of
    // pthread_create).
    if let Some(b) = tail(7)
        && !prefixed(7)
        && let Some((n, [rex, op])) = match b[..3] {
            [0x48, 0x8d, 0x3d] => Some((0, [0x48, 0xbf])),
            [0x48, 0x8d, 0x35] => Some((1, [0x48, 0xbe])),
            [0x48, 0x8d, 0x15] => Some((2, [0x48, 0xba])),
            [0x4c, 0x8d, 0x15] => Some((3, [0x49, 0xba])),
            _ => None,
        }
        && call.wrapping_add_signed((imm(&b[3..]) as i32).into()) == args[n]
    {
        let mut moved = SmallVec::from_slice(&[rex, op]);
        moved.extend_from_slice(&args[n].to_le_bytes());
        return Some((7, moved));
    }
    if let Some(b) = tail(6)
        && b[..2] == [0x41, 0xba]
        && imm(&b[2..]) == args[3] as u32
    {
        return as_it_is(b);
    }
    let b = tail(5)?;
    let loads = match b[0] {
        0xb8 => imm(&b[1..]) == nr as u32,
        0xbf => imm(&b[1..]) == args[0] as u32,
        _ => false,
    };
    // The other: mov r9, [rsp + 8], as in syscall(2)'s wrapper.
    if loads && !prefixed(5) || b == [0x4c, 0x8b, 0x4c, 0x24, 0x08] {
        return as_it_is(b);
    }
    None
}

/// What comes in the place of `len` bytes and a `syscall` instruction: one jump whose last two
/// bytes lie over that.
pub(crate) fn patch(len: usize, entry: u32) -> ([u8; LONGEST], usize) {
    // Prefixes that say nothing in 64-bit mode (CS) make it as long.
    let mut out = [0x2e; LONGEST];
    let total = len + SYSCALL.len();
    out[total - JUMP..total].copy_from_slice(&jump(entry));
    (out, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use yaxpeax_arch::LengthedInstruction;
    use yaxpeax_x86::long_mode::{InstDecoder, Instruction};

    fn decode(code: &[u8]) -> Instruction {
        InstDecoder::default().decode_slice(code).unwrap()
    }

    fn length(i: &Instruction) -> usize {
        i.len().to_const() as usize
    }

    #[test]
    fn only_what_was_seen_to_run_is_displaced() {
        let args = [7, 0, 0, 9, 0, 0];
        let yes = |b: &[u8]| {
            let found = displaceable(b, 0x1000, 39, &args);
            assert!(
                found
                    .as_ref()
                    .is_none_or(|(n, moved)| b.ends_with(moved) && moved.len() == *n)
            );
            found.map(|f| f.0)
        };
        assert_eq!(yes(&[0xc3, 0xb8, 39, 0, 0, 0]), Some(5));
        assert_eq!(yes(&[0xc3, 0xb8, 40, 0, 0, 0]), None);
        // mov r8d, 39
        assert_eq!(yes(&[0x41, 0xb8, 39, 0, 0, 0]), None);
        // Nothing is known of what stands before.
        assert_eq!(yes(&[0xb8, 39, 0, 0, 0]), None);
        assert_eq!(yes(&[0xc3, 0xbf, 7, 0, 0, 0]), Some(5));
        assert_eq!(yes(&[0xc3, 0x41, 0xba, 9, 0, 0, 0]), Some(6));
        assert_eq!(yes(&[0x48, 0xc7, 0xc0, 39, 0, 0, 0]), Some(7));
        assert_eq!(yes(&[0x4c, 0x8b, 0x4c, 0x24, 0x08]), Some(5));
        assert_eq!(yes(&[0xc3, 0x31, 0xc0]), None);
    }

    /// What is relative to rip is made absolute, and is what the call was seen with.
    #[test]
    fn addresses_relative_to_rip_are_moved() {
        use yaxpeax_x86::long_mode::{Opcode, Operand, RegSpec};
        let call = 0x7f00_0000_1234;
        let args = [call - 0x100, call + 0x10_0000, call, call - 1, 0, 0];
        let lea = [
            (0x48, 0x3d, RegSpec::rdi()),
            (0x48, 0x35, RegSpec::rsi()),
            (0x48, 0x15, RegSpec::rdx()),
            (0x4c, 0x15, RegSpec::r10()),
        ];
        for (n, (rex, modrm, reg)) in lea.into_iter().enumerate() {
            let code = |to: u64| {
                let [a, b, c, d] = (to.wrapping_sub(call) as u32).to_le_bytes();
                [0xc3, rex, 0x8d, modrm, a, b, c, d]
            };
            let before = code(args[n]);
            let was = decode(&before[1..]);
            let by = args[n].wrapping_sub(call) as i32;
            let base = RegSpec::rip();
            let from = match by {
                0 => Operand::MemDeref { base },
                disp => Operand::Disp { base, disp },
            };
            assert_eq!((was.opcode(), length(&was)), (Opcode::LEA, 7));
            assert_eq!(was.operand(0), Operand::Register { reg });
            assert_eq!(was.operand(1), from);
            let (len, moved) = displaceable(&before, call, 14, &args).unwrap();
            let now = decode(&moved);
            assert_eq!(
                (len, now.opcode(), length(&now)),
                (7, Opcode::MOV, moved.len())
            );
            assert_eq!(now.operand(0), Operand::Register { reg });
            let imm = args[n] as i64;
            assert_eq!(now.operand(1), Operand::ImmediateI64 { imm });
            assert!(displaceable(&code(args[n] + 1), call, 14, &args).is_none());
            let prefixed = [&[0x67], &before[1..]].concat();
            assert!(displaceable(&prefixed, call, 14, &args).is_none());
        }
    }

    #[test]
    fn the_jumps_last_bytes_lie_over_the_call() {
        for len in 5..=8 {
            let (bytes, total) = patch(len, 0x3fcc_0008);
            assert_eq!(total, len + 2);
            assert_eq!(bytes[total - 2..total], [0xcc, 0x3f]);
            assert_eq!(bytes[total - 7..total - 4], [0xff, 0x24, 0x25]);
            assert_eq!(length(&decode(&bytes[..total])), total);
        }
    }
}
