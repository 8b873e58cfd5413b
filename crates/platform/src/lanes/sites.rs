//! The patched call sites of an address space: their trampolines, and which of them there are
//! still.
//!
//! ## Invariants
//!
//! - A trampoline, once handed out, is not changed as long as the address space lives: a thread may
//!   be anywhere in it. Its record stays as long.
//! - A site is *live* from before its bytes are written until they are gone: put back, unmapped, or
//!   thrown away. Only of a live site are the places known where a thread may stand or trap that
//!   the original code has not: the `int3` over its `syscall` instruction, and its slot. What
//!   happens at the place of another is the application's own.
//! - A site ends ([`crate::lanes::SpaceLanes::retire_sites`]) while its page is not mapped. A thread
//!   that is in application code then keeps the sites as they were before the first end
//!   ([`crate::process::kick::Kick::remember`]): by these it is known where it stands, or has just
//!   trapped. And it is sent a kick, which it takes before it runs an instruction of what comes
//!   there next; so these are right until it has come out, also for what was added while it was
//!   there. (One that has the kick blocked, by a frame of its own, can mistake its own code for a
//!   site's, and nothing else. Nobody waits for it.)
//! - [`Sites`] is never changed, but replaced by another: who drives a thread keeps the one that it
//!   knows, and compares a number to learn of the next. So no event waits for a lock, and finding a
//!   place takes O(log n).

use hostcall::MemSlice;
use std::ops::Range;
use stub::lane::{TABLE, TABLE_LEN, TRAMPOLINE_LEN, TRAMPOLINES_MAX};

/// The longest that is displaced from a site to its trampoline.
pub const DISPLACED_MAX: usize = 8;
/// The longest that stands there for it.
pub const MOVED_MAX: usize = 10;

/// rdgsbase r11; rorx rcx, r11, 30; lea ecx, [rcx - (AREAS >> 30)]; jrcxz +1; int3: the last is for
/// a GS base of the application's own.
const FIND_AREA: [u8; 20] = {
    let [a, b, c, d] = (-((stub::AREAS >> 30) as i32)).to_le_bytes();
    [
        0xf3, 0x49, 0x0f, 0xae, 0xcb, 0xc4, 0xc3, 0xfb, 0xf0, 0xcb, 30, 0x8d, 0x89, a, b, c, d,
        0xe3, 1, 0xcc,
    ]
};

/// What a site's bytes become: `jmp qword ptr [entry]`.
#[must_use]
pub fn jump(entry: u32) -> [u8; 7] {
    let [a, b, c, d] = entry.to_le_bytes();
    [0xff, 0x24, 0x25, a, b, c, d]
}

/// One trampoline as its maker remembers it: the application's memory cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the displaced instruction was.
    pub start: u64,
    /// Where the call returns to: behind the `syscall` instruction.
    pub back: u64,
    /// Where a jump lies that the site jumps to first; 0 where it has none.
    slot: u64,
    moved: [u8; MOVED_MAX],
    moved_len: u8,
}

impl Site {
    /// A site whose instruction before the call is displaced. `moved` does the same at any place;
    /// `None` if it is too long.
    #[must_use]
    pub fn new(start: u64, back: u64, moved: &[u8]) -> Option<Site> {
        let mut bytes = [0; MOVED_MAX];
        bytes.get_mut(..moved.len())?.copy_from_slice(moved);
        Some(Site {
            start,
            back,
            slot: 0,
            moved: bytes,
            moved_len: moved.len() as u8,
        })
    }

    /// A site where only the `syscall` instruction is replaced, by a short jump to `slot`.
    #[must_use]
    pub fn by_slot(call: u64, slot: u64) -> Site {
        Site {
            start: call,
            back: call + 2,
            slot,
            moved: [0; MOVED_MAX],
            moved_len: 0,
        }
    }

    /// Where its `syscall` instruction was.
    #[must_use]
    pub fn call(&self) -> u64 {
        self.back.wrapping_sub(2)
    }

    /// Where its second jump lies; 0 where it has none.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.slot
    }

    pub(crate) fn displaces(&self) -> bool {
        self.moved_len != 0
    }

    /// The one place where a thread may stand or trap that the original code has not.
    fn place(&self) -> u64 {
        if self.slot == 0 {
            self.call()
        } else {
            self.slot
        }
    }

    fn code(&self, at: u64) -> [u8; TRAMPOLINE_LEN as usize] {
        let mut out = Vec::with_capacity(TRAMPOLINE_LEN as usize);
        out.extend_from_slice(&self.moved[..usize::from(self.moved_len)]);
        out.extend_from_slice(&FIND_AREA);
        // movabs rcx, back; jmp lane
        out.extend_from_slice(&[0x48, 0xb9]);
        out.extend_from_slice(&self.back.to_le_bytes());
        out.push(0xe9);
        let from = at + out.len() as u64 + 4;
        let distance = stub::lane::entry().wrapping_sub(from) as i64;
        out.extend_from_slice(&i32::try_from(distance).expect("near").to_le_bytes());
        out.resize(TRAMPOLINE_LEN as usize, 0xcc);
        out.try_into().expect("it fits")
    }

    /// Whether `offset` in its trampoline is behind the `int3`.
    pub(crate) fn is_trap(&self, offset: u64) -> bool {
        offset == u64::from(self.moved_len) + FIND_AREA.len() as u64
    }
}

// AREAS is aligned so that the trampolines' test of the GS base is exact.
const _: () = assert!(stub::AREAS.is_multiple_of(1 << 30) && stub::HIGH - stub::AREAS >= 1 << 30);

/// Where trampoline `i` is.
fn trampoline(i: usize) -> u64 {
    stub::TRAMPOLINES + i as u64 * TRAMPOLINE_LEN
}

/// The trampolines of an address space, written to its unit: the table first, then the code.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    all: Vec<Site>,
    /// Of the live ones: their place, and which it is. Sorted.
    places: Vec<(u64, u16)>,
}

impl Sites {
    /// Whether there never was one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds one, which is live now; gives the address of its entry in the table.
    pub fn add(&mut self, unit: MemSlice<'_>, site: Site) -> Option<u32> {
        let i = self.all.iter().position(|s| *s == site).or_else(|| {
            let i = self.all.len();
            (i < TRAMPOLINES_MAX).then(|| {
                self.write(unit, i, &site);
                self.all.push(site);
                i
            })
        })?;
        match self.places.binary_search_by_key(&site.place(), |p| p.0) {
            Ok(at) => self.places[at].1 = i as u16,
            Err(at) => self.places.insert(at, (site.place(), i as u16)),
        }
        Some((TABLE + 8 * i as u64) as u32)
    }

    /// The sites of `r` are live no more; whether there were any.
    pub fn retire(&mut self, r: &Range<u64>) -> bool {
        let before = self.places.len();
        self.places.retain(|p| !r.contains(&p.0));
        self.places.len() != before
    }

    /// Whether [`Sites::retire`] would find any.
    #[must_use]
    pub fn has_live(&self, r: &Range<u64>) -> bool {
        let from = self.places.partition_point(|p| p.0 < r.start);
        self.places.get(from).is_some_and(|p| p.0 < r.end)
    }

    fn write(&self, unit: MemSlice<'_>, i: usize, site: &Site) {
        let at = trampoline(i);
        let offset = (TABLE_LEN + at - stub::TRAMPOLINES) as usize;
        unit.sub(offset, TRAMPOLINE_LEN as usize)
            .copy_from(&site.code(at));
        unit.sub(8 * i, 8).copy_from(&at.to_le_bytes());
    }

    /// The same in another address space's unit.
    pub fn copy_to(&self, unit: MemSlice<'_>) {
        for (i, s) in self.all.iter().enumerate() {
            self.write(unit, i, s);
        }
    }

    fn live(&self, place: u64) -> Option<&Site> {
        let at = self.places.binary_search_by_key(&place, |p| p.0).ok()?;
        self.all.get(usize::from(self.places[at].1))
    }

    /// The live site that has its `int3` at `at`, where its `syscall` instruction was.
    pub(crate) fn traps(&self, at: u64) -> Option<&Site> {
        self.live(at).filter(|s| s.slot == 0)
    }

    /// The live site whose slot is at `at`.
    pub(crate) fn slot(&self, at: u64) -> Option<&Site> {
        self.live(at).filter(|s| s.slot != 0)
    }

    /// The site, live or not, whose trampoline `ip` is in, and the offset there.
    pub(crate) fn trampoline(&self, ip: u64) -> Option<(Site, u64)> {
        let offset = ip.checked_sub(stub::TRAMPOLINES)?;
        let site = self.all.get((offset / TRAMPOLINE_LEN) as usize)?;
        Some((*site, offset % TRAMPOLINE_LEN))
    }
}

#[cfg(test)]
mod tests;
