//! Patched call sites: `syscall` instructions that are run often become jumps to the platform's
//! lanes.
//!
//! What is patched is a private copy of the page; the file's own page is what others see. A page
//! changes while nothing can run on it: it is unmapped on the host first. So a thread executes
//! either the old bytes or the new; one that stood before the `syscall` instruction finds an
//! `int3` there, which the platform knows.
//!
//! Two kinds of sites are done. **P**: the instruction before is at least five bytes long and
//! loads a constant or an address. It, or what does the same there, is displaced to the
//! trampoline; in its place, and over the `syscall` instruction, comes one jump, made as long as
//! both. **K**: over the `syscall` instruction comes a short jump to a slot, padding near by that
//! nothing reaches ([`crate::padding`]). A seven-byte jump lies there.
//!
//! # Invariants
//!
//! - A site, with its slot, lies within one page, in a private mapping that cannot be written.
//! - The entries of [`Patches`] are the platform's live sites ([`platform::lanes::sites`]): both
//!   begin before the bytes are written; both end ([`State::retire`]) before what is there changes
//!   in any other way than by a fault.
//! - So whatever takes code away or lets it be changed comes here first: [`State::unpatch`] where
//!   what is there stays, puts the original back (mprotect to PROT_WRITE, mremap, a debugger that
//!   attaches, its write, MADV_DONTNEED, the table's addresses mapped); [`State::retire`] where it
//!   goes (munmap, what is mapped over it, a file cut short). A fork's child has copies of both;
//!   exec begins with none.
//! - Between the unmapping of a page and what comes there next every thread in application code is
//!   sent a kick. One that stands at a slot is put back to its call by that; a P site has one
//!   instruction, so none stands within it. The application can keep a thread from its kick, so
//!   none is waited for: others wait for this lock ([`platform::lanes::sites`]).
//! - A page that has been given back is patched once more, and then no more: who changes code
//!   again and again pays for two rounds only.
//! - What the application has the Sentry read of such a page is the original
//!   ([`Patches::show_original`]).

use crate::copy::Mode;
use crate::padding::{JUMP, slot};
use crate::patches::{LONGEST, Patch, Patches, SYSCALL, displaceable, patch};
use crate::resolve::Effort;
use crate::state::State;
use crate::{Mm, PAGE};
use abi::Va;
use platform::lanes::sites::{DISPLACED_MAX, Site, jump};
use platform::{Prot, stub_table};
use smallvec::SmallVec;
use std::ops::Range;

impl Mm {
    /// Patches the site of the system call that returns to `back`, which the application was seen
    /// to make with `nr` and `args`, if that can be done.
    pub fn patch_call(&self, back: Va, nr: u64, args: &[u64; 6]) -> bool {
        self.with(|st| st.patch_call(back.0, nr, args).is_some())
    }

    /// A debugger looks at this program: all its calls are system calls from now on, and its code
    /// is its own.
    pub fn end_patches(&self) {
        self.with(State::end_patches);
    }
}

impl State {
    fn patch_call(&mut self, back: u64, nr: u64, args: &[u64; 6]) -> Option<()> {
        if std::mem::take(&mut self.patches.forks) > Patches::FEW_FORKS {
            return None;
        }
        let call = back.checked_sub(2)?;
        let page = Va(call).page_down().0;
        if call + 2 > page + PAGE || !self.patches.may_patch(page) {
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
        self.patches.show_original(page, &mut code[..n]);
        let before = &code[at.saturating_sub(DISPLACED_MAX + 1)..at];
        let (site, len) = if let Some((len, moved)) = displaceable(before, call, nr, args) {
            let start = call - len as u64;
            if self.patches.touch(start, len as u64) {
                return None;
            }
            (Site::new(start, back, &moved)?, len)
        } else {
            let slot = page + slot(&code[..n], at)? as u64;
            if self.patches.touch(slot, JUMP as u64) {
                return None;
            }
            (Site::by_slot(call, slot), 0)
        };
        // A private copy of this page alone.
        let (r, pma) = self.resolve(call, &vr, &vma, false, Effort::Needed).ok()?;
        if !pma.writable() {
            self.unshare(call, &r, pma, Some(PAGE), Effort::Needed)
                .ok()?;
        }
        let Some(entry) = self.host.space().lanes().and_then(|l| l.add_site(site)) else {
            // None can be had any more.
            self.patches.full = true;
            return None;
        };
        // Addresses and what comes there.
        let mut changes: SmallVec<[(u64, SmallVec<[u8; LONGEST]>); 2]> = SmallVec::new();
        if len != 0 {
            let (new, total) = patch(len, entry);
            changes.push((site.start, SmallVec::from_slice(&new[..total])));
        } else {
            let slot = site.slot();
            changes.push((slot, SmallVec::from_slice(&jump(entry))));
            changes.push((call, SmallVec::from_slice(&[0xeb, (slot - back) as u8])));
        }
        let parts: SmallVec<[(u64, &[u8]); 2]> =
            changes.iter().map(|(at, b)| (*at, &b[..])).collect();
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
        self.host.unmap(page..page + PAGE);
        // Where that fails, nothing at all is mapped any more.
        self.host.flush();
        self.write_code(page, &parts);
        Some(())
    }

    /// Writes to a private page of code that is not mapped, and maps it.
    fn write_code(&mut self, page: u64, parts: &[(u64, &[u8])]) {
        for (at, bytes) in parts {
            if self.write(*at, bytes, Mode::ForceWrite) != bytes.len() {
                // There is no memory for a copy: half a jump must not be run.
                self.host.space().kill();
            }
        }
        self.host_map(page..page + PAGE);
    }

    /// Ends the sites on the pages of `r`, which are not mapped on the host when this returns;
    /// what is in memory there is left as it is. The caller takes it away, or maps it again by a
    /// fault, with the original put back.
    pub(crate) fn retire(&mut self, r: &Range<u64>) -> SmallVec<[(u64, Patch); 8]> {
        let mut ended = SmallVec::new();
        if self.patches.is_empty() {
            return ended;
        }
        // Whole pages: a site and its slot go together.
        let pages = self.patches.pages(&(r.start & !(PAGE - 1)..up(r.end)));
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return ended;
        };
        let hull = *first..*last + PAGE;
        for page in &pages {
            self.host.unmap(*page..*page + PAGE);
        }
        self.host.flush();
        // All that lie between are among them.
        if let Some(l) = self.host.space().lanes() {
            l.retire_sites(hull.clone());
        }
        ended.extend(self.patches.overlapping(&hull));
        for (at, _) in &ended {
            self.patches.sites.remove(at);
        }
        ended
    }

    /// Puts the original code back in the pages of `r`: the application is about to move or to
    /// change it.
    pub(crate) fn unpatch(&mut self, r: &Range<u64>) {
        let ended = self.retire(r);
        for on_page in ended.chunk_by(|a, b| a.0 / PAGE == b.0 / PAGE) {
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
            self.write_code(page, &parts);
            self.patches.gave_back(page);
        }
    }

    /// In a fork's child, which has nothing mapped yet: the sites whose code it has not got end.
    pub(crate) fn keep_inherited(&mut self, parent: &Patches) {
        self.patches = parent.clone();
        let gone = |at: &u64| self.pmas.get(*at).is_none();
        let gone: Vec<u64> = parent.sites.keys().copied().filter(gone).collect();
        for at in gone {
            self.retire(&(at..at + 1));
        }
    }

    /// The application is about to map `r`: where the lanes need that, they end.
    pub(crate) fn make_way(&mut self, r: &Range<u64>) {
        let table = stub_table();
        if r.start < table.end && table.start < r.end {
            self.end_patches();
        }
    }

    /// Nothing is patched here any more, for as long as it lives.
    fn end_patches(&mut self) {
        if self.patches.off {
            return;
        }
        self.unpatch(&(0..u64::MAX));
        self.patches.off = true;
        if let Some(l) = self.host.space().lanes() {
            l.drop_sites();
        }
    }
}

/// The next page's start.
fn up(at: u64) -> u64 {
    at.checked_add(PAGE - 1)
        .map_or(u64::MAX, |a| a & !(PAGE - 1))
}
