//! Patched call sites: `syscall` instructions that are run often become jumps to the platform's lanes.
//!
//! What is patched is a private copy of the page; the file's own page is what others see. A page changes while
//! nothing can run on it: it is unmapped on the host first. So a thread executes either the old bytes or the
//! new; one that stood before the `syscall` instruction finds an `int3` there, which the platform knows.
//!
//! Two kinds of sites are done. **P**: the instruction before is at least five bytes long and does not depend on where
//! it stands. It is displaced to the trampoline; in its place, and over the `syscall` instruction, comes the
//! seven-byte jump. **K**: over the `syscall` instruction comes a short jump to a slot, padding near by that nothing
//! reaches: between an instruction after which nothing goes on and the aligned start of something else, found by
//! decoding from the call on. The seven-byte jump lies there.
//!
//! An entry of [`Patches`] says what was there, and what was written; the application may have thrown the page away
//! since, or have put something else there: only where the memory still has what was written is it put back.

use crate::copy::Mode;
use crate::state::State;
use crate::{Mm, PAGE};
use abi::Va;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use platform::lane::{DISPLACED_MAX, Site, jump};
use platform::{Prot, stub_table};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// The `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The longest patch.
const LONGEST: usize = DISPLACED_MAX + SYSCALL.len();

/// What was there before.
#[derive(Clone, Copy, Debug)]
struct Patch {
    original: [u8; LONGEST],
    /// What is there now, unless the application has thrown the page away or mapped something else.
    new: [u8; LONGEST],
    len: usize,
}

/// The patched sites of an address space, by the address that their patch starts at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patches {
    sites: BTreeMap<u64, Patch>,
    /// The application uses the addresses that the lanes need.
    off: bool,
}

impl Patches {
    pub(crate) fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    fn overlapping(&self, r: &Range<u64>) -> impl Iterator<Item = (u64, Patch)> {
        let from = r.start.saturating_sub(LONGEST as u64 - 1);
        let start = r.start;
        self.sites
            .range(from..r.end.max(from))
            .filter(move |(at, p)| *at + p.len as u64 > start)
            .map(|(at, p)| (*at, *p))
    }

    /// Forgets what is in `r`: it is not mapped any more.
    pub(crate) fn forget(&mut self, r: &Range<u64>) {
        if self.sites.is_empty() {
            return;
        }
        let gone: Vec<u64> = self.overlapping(r).map(|(at, _)| at).collect();
        for at in gone {
            self.sites.remove(&at);
        }
    }

    /// Shows in `bytes`, read from `va`, what was there before.
    pub(crate) fn show_original(&self, va: u64, bytes: &mut [u8]) {
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

/// The length of the instruction before a `syscall` that can be displaced; `before` ends where that starts. What
/// it loads must be what the call was seen with: the bytes could be the end of a longer instruction.
fn displaceable(before: &[u8], nr: u64, args: &[u64; 6]) -> Option<usize> {
    let imm = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let prefixed = |len: usize| {
        let at = before.len().checked_sub(len + 1);
        // REX, operand and address size.
        at.is_none_or(|i| matches!(before[i], 0x40..=0x4f | 0x66 | 0x67))
    };
    let tail = |n: usize| before.len().checked_sub(n).map(|i| &before[i..]);
    if let Some(b) = tail(7)
        && b[..3] == [0x48, 0xc7, 0xc0]
        && imm(&b[3..]) == nr as u32
    {
        return Some(7);
    }
    if let Some(b) = tail(6)
        && b[..2] == [0x41, 0xba]
        && imm(&b[2..]) == args[3] as u32
    {
        return Some(6);
    }
    let b = tail(5)?;
    let loads = match b[0] {
        0xb8 => imm(&b[1..]) == nr as u32,
        0xbf => imm(&b[1..]) == args[0] as u32,
        _ => false,
    };
    if loads && !prefixed(5) {
        return Some(5);
    }
    // mov r9, [rsp + 8], as in syscall(2)'s wrapper.
    (b == [0x4c, 0x8b, 0x4c, 0x24, 0x08]).then_some(5)
}

/// What comes in the place of `len` bytes and a `syscall` instruction: the jump's last two bytes lie over that.
fn patch(len: usize, entry: u32) -> ([u8; LONGEST], usize) {
    let mut out = [0x90; LONGEST];
    let total = len + SYSCALL.len();
    let j = jump(entry);
    out[total - j.len()..total].copy_from_slice(&j);
    // One instruction, whatever its length: mov edi, edi would not do, it clears the upper half.
    match total - j.len() {
        2 => out[..2].copy_from_slice(&[0x66, 0x90]),
        3 => out[..3].copy_from_slice(&[0x0f, 0x1f, 0x00]),
        _ => {}
    }
    (out, total)
}

/// How long the jump to a trampoline is.
const JUMP: usize = 7;

/// Where in a page of code a jump can lie for the call at `call`, in reach of a short jump: the end of padding
/// that nothing reaches.
fn slot(page: &[u8], call: usize) -> Option<usize> {
    let begin = call + SYSCALL.len();
    let reach = begin + i8::MAX as usize;
    let mut decoder = Decoder::with_ip(64, page.get(begin..)?, 0, DecoderOptions::NONE);
    let mut at = begin;
    // Where padding begins that is not reached from above.
    let mut padding = None;
    while at < reach && decoder.can_decode() {
        let i = decoder.decode();
        match i.mnemonic() {
            Mnemonic::Nop | Mnemonic::Int3 => {}
            _ => {
                if let Some(from) = padding.take()
                    && at.is_multiple_of(16)
                    && at - from >= JUMP
                {
                    return Some(at - JUMP);
                }
                // Data, perhaps.
                if i.is_invalid() {
                    return None;
                }
            }
        }
        at += i.len();
        if matches!(
            i.mnemonic(),
            Mnemonic::Ret | Mnemonic::Jmp | Mnemonic::Ud2 | Mnemonic::Hlt
        ) {
            padding = Some(at);
        }
    }
    // Up to the page's end: something begins there, too.
    let from = padding.filter(|_| at == page.len())?;
    (at - from >= JUMP).then(|| at - JUMP)
}

impl Mm {
    /// Patches the site of the system call that returns to `back`, which the application was seen to make with
    /// `nr` and `args`, if that can be done.
    pub fn patch_call(&self, back: Va, nr: u64, args: &[u64; 6]) -> bool {
        self.with(|st| st.patch_call(back.0, nr, args).is_some())
    }
}

impl State {
    fn patch_call(&mut self, back: u64, nr: u64, args: &[u64; 6]) -> Option<()> {
        if self.patches.off {
            return None;
        }
        let call = back.checked_sub(2)?;
        let page = Va(call).page_down().0;
        if call + 2 > page + PAGE {
            return None;
        }
        let (vr, vma) = self.vmas.get(call).map(|(r, v)| (r, v.clone()))?;
        let code = vma.prot.contains(Prot::EXEC) && !vma.prot.contains(Prot::WRITE);
        if !code || vma.is_shared() {
            return None;
        }
        let mut code = vec![0u8; PAGE as usize];
        let n = self.read(page, &mut code, Mode::ForceRead);
        let at = (call - page) as usize;
        if n < at + 2 || code[at..at + 2] != SYSCALL {
            return None;
        }
        let before = &code[at.saturating_sub(DISPLACED_MAX + 1)..at];
        // Addresses and what comes there.
        let mut changes: SmallVec<[(u64, SmallVec<[u8; LONGEST]>); 2]> = SmallVec::new();
        if let Some(len) = displaceable(before, nr, args) {
            let start = call - len as u64;
            let displaced = &before[before.len() - len..];
            let entry = self.space.add_site(Site::new(start, back, displaced)?)?;
            let (new, total) = patch(len, entry);
            changes.push((start, SmallVec::from_slice(&new[..total])));
        } else {
            let slot = page + slot(&code[..n], at)? as u64;
            if self
                .patches
                .overlapping(&(slot..slot + JUMP as u64))
                .next()
                .is_some()
            {
                return None;
            }
            let entry = self.space.add_site(Site::by_slot(call, slot))?;
            changes.push((slot, SmallVec::from_slice(&jump(entry))));
            let distance = i8::try_from(slot - back).ok()? as u8;
            changes.push((call, SmallVec::from_slice(&[0xeb, distance])));
        }
        // A private copy of this page alone.
        let (r, pma) = self.resolve(call, &vr, &vma, false).ok()?;
        if !pma.writable() {
            self.unshare(call, &r, pma, Some(PAGE)).ok()?;
        }
        let parts: SmallVec<[(u64, &[u8]); 2]> =
            changes.iter().map(|(at, b)| (*at, &b[..])).collect();
        self.change_code(page, &parts)?;
        for (at, new) in &changes {
            let mut original = [0; LONGEST];
            let from = (at - page) as usize;
            original[..new.len()].copy_from_slice(&code[from..from + new.len()]);
            let mut bytes = [0; LONGEST];
            bytes[..new.len()].copy_from_slice(new);
            let patch = Patch {
                original,
                new: bytes,
                len: new.len(),
            };
            self.patches.sites.insert(*at, patch);
        }
        Some(())
    }

    /// Writes to a private page of code while nothing runs on it.
    fn change_code(&mut self, page: u64, parts: &[(u64, &[u8])]) -> Option<()> {
        let page = page..page + PAGE;
        self.host_unmap(page.clone());
        // Where that fails, nothing at all is mapped any more.
        self.flush();
        let mut done = true;
        for (at, bytes) in parts {
            done &= self.write(*at, bytes, Mode::ForceWrite) == bytes.len();
        }
        self.host_map(page);
        done.then_some(())
    }

    /// Puts the original code back in the pages of `r`: the application is about to move or to change it.
    pub(crate) fn unpatch(&mut self, r: &Range<u64>) {
        if self.patches.is_empty() {
            return;
        }
        // Whole pages: a site and its slot go together.
        let pages = r.start & !(PAGE - 1)..r.end.saturating_add(PAGE - 1) & !(PAGE - 1);
        let found: Vec<(u64, Patch)> = self.patches.overlapping(&pages).collect();
        for on_page in found.chunk_by(|a, b| a.0 / PAGE == b.0 / PAGE) {
            let page = on_page[0].0 & !(PAGE - 1);
            let mut parts: SmallVec<[(u64, &[u8]); 8]> = SmallVec::new();
            for (at, p) in on_page {
                let mut there = [0; LONGEST];
                let there = &mut there[..p.len];
                let n = self.read(*at, there, Mode::ForceRead);
                if n == p.len && there[..] == p.new[..p.len] {
                    parts.push((*at, &p.original[..p.len]));
                }
            }
            if !parts.is_empty() && self.change_code(page, &parts).is_none() {
                // There is no memory for a copy: a jump that leads nowhere must not be run.
                self.space.kill();
            }
            for (at, _) in on_page {
                self.patches.sites.remove(at);
            }
        }
    }

    /// The application is about to map `r`: where the lanes need that, they end.
    pub(crate) fn make_way(&mut self, r: &Range<u64>) {
        let table = stub_table();
        if r.start < table.end && table.start < r.end && !self.patches.off {
            self.unpatch(&(0..u64::MAX));
            self.patches.off = true;
            self.space.drop_sites();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_to_run_is_displaced() {
        let args = [7, 0, 0, 9, 0, 0];
        let yes = |b: &[u8]| displaceable(b, 39, &args);
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

    #[test]
    fn a_slot_is_padding_that_nothing_reaches() {
        let page = |after: &[u8], rest: u8| {
            let mut p = vec![rest; 4096];
            p[0x100..0x102].copy_from_slice(&SYSCALL);
            p[0x102..0x102 + after.len()].copy_from_slice(after);
            p
        };
        let push = 0x55;
        // ret, then 13 bytes of padding up to 0x110.
        let nops = [
            0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x66, 0x90,
        ];
        let with = |first: &[u8]| page(&[first, &nops].concat(), push);
        assert_eq!(slot(&with(&[0xc3]), 0x100), Some(0x109));
        // A function's int3, as Go has it.
        let mut go = page(&[0xc3], push);
        go[0x103..0x120].fill(0xcc);
        assert_eq!(slot(&go, 0x100), Some(0x119));
        // Reached: the c3 is a move's last byte. Not aligned; too short; data.
        assert_eq!(
            slot(
                &page(&[&[0x48, 0x89, 0xc3][..], &nops[2..]].concat(), push),
                0x100
            ),
            None
        );
        assert_eq!(
            slot(&page(&[&[0x90, 0xc3][..], &nops].concat(), push), 0x100),
            None
        );
        assert_eq!(
            slot(
                &page(
                    &[
                        0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3, 0x0f, 0x1f, 0x44, 0,
                        0
                    ],
                    push
                ),
                0x100
            ),
            None
        );
        assert_eq!(slot(&page(&[0x06, 0xc3], 0x90), 0x100), None);
        // Out of reach, and at the page's end.
        assert_eq!(slot(&page(&[], push), 0x100), None);
        let mut end = vec![0x90; 4096];
        end[4090..4092].copy_from_slice(&SYSCALL);
        end[4092] = 0xc3;
        assert_eq!(slot(&end, 4090), None);
        let mut end = vec![0xcc; 4096];
        end[4080..4083].copy_from_slice(&[0x0f, 0x05, 0xc3]);
        assert_eq!(slot(&end, 4080), Some(4089));
    }

    #[test]
    fn the_jumps_last_bytes_lie_over_the_call() {
        for len in 5..=8 {
            let (bytes, total) = patch(len, 0x3fcc_0008);
            assert_eq!(total, len + 2);
            assert_eq!(bytes[total - 2..total], [0xcc, 0x3f]);
            assert_eq!(bytes[total - 7..total - 4], [0xff, 0x24, 0x25]);
        }
    }
}
