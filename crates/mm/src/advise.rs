//! madvise(2), msync(2) and mincore(2).

use crate::map::{some_range, user_range};
use crate::pma::PmaKind;
use crate::resolve::Effort;
use crate::state::State;
use crate::types::Bad;
use crate::vma::{FileRef, Vma, VmaFlags};
use crate::{Mm, PAGE, Result};
use abi::Va;
use abi::errno::{EACCES, EBUSY, EFAULT, EINVAL, ENOMEM, EPERM};
use abi::linux::{
    MADV_COLD, MADV_COLLAPSE, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK,
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_MERGEABLE,
    MADV_NOHUGEPAGE, MADV_NORMAL, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
    MADV_RANDOM, MADV_REMOVE, MADV_SEQUENTIAL, MADV_UNMERGEABLE, MADV_WILLNEED, MADV_WIPEONFORK,
    MS_ASYNC, MS_INVALIDATE, MS_SYNC,
};
use abi::own::MADV_CONFIDENTIAL;
use clas::Backing;
use platform::Prot;
use std::ops::Range;
use std::sync::Arc;

impl Mm {
    /// `madvise(2)`. Unmapped parts give `ENOMEM`, after the rest is done.
    pub fn madvise(&self, va: Va, len: u64, advice: u32) -> Result<()> {
        match advice {
            MADV_NORMAL..=MADV_DONTNEED | MADV_FREE..=MADV_COLLAPSE | MADV_CONFIDENTIAL => {}
            _ => return Err(EINVAL),
        }
        let Some(r) = some_range(va, len)? else {
            return Ok(());
        };
        if advice == MADV_REMOVE {
            return self.remove(r);
        }
        let what = match advice {
            MADV_POPULATE_READ => PopulateFor::Read,
            MADV_POPULATE_WRITE => PopulateFor::Write,
            _ => return self.with(|st| st.madvise(r, advice)),
        };
        self.ask(r.clone());
        self.with_filled(|st| st.populate_strictly(r.clone(), what))
    }

    /// MADV_REMOVE: frees a part of the files that are mapped; they invalidate what maps it.
    fn remove(&self, r: Range<u64>) -> Result<()> {
        let files = self.with(|st| {
            let parts = st.parts(&r);
            let mut files: Vec<(Arc<FileRef>, u64, u64)> = Vec::new();
            for (part, vma) in &parts.found {
                if vma.is_sealed_against(MADV_REMOVE) {
                    return (files, Err(EPERM));
                }
                if vma.flags.contains(VmaFlags::LOCKED) {
                    return (files, Err(EINVAL));
                }
                let Some(f) = &vma.file else {
                    return (files, Err(EINVAL));
                };
                if !vma.is_shared() || !vma.prot.contains(Prot::WRITE) {
                    return (files, Err(EACCES));
                }
                files.push((f.file.clone(), f.offset, part.end - part.start));
            }
            (files, parts.whole())
        });
        for (f, offset, len) in files.0 {
            f.mappable.punch_hole(offset, len)?;
        }
        files.1
    }

    /// `msync(2)`.
    pub fn msync(&self, va: Va, len: u64, flags: u32) -> Result<()> {
        if flags & !(MS_ASYNC | MS_INVALIDATE | MS_SYNC) != 0
            || !va.is_page_aligned()
            || flags & (MS_ASYNC | MS_SYNC) == MS_ASYNC | MS_SYNC
        {
            return Err(EINVAL);
        }
        let r = user_range(va, len).ok_or(ENOMEM)?;
        if r.is_empty() {
            return Ok(());
        }
        let (files, result) = self.with(|st| {
            let parts = st.parts(&r);
            let mut files: Vec<(Arc<FileRef>, u64, u64)> = Vec::new();
            for (part, vma) in &parts.found {
                if flags & MS_INVALIDATE != 0 && vma.flags.contains(VmaFlags::LOCKED) {
                    return (files, Err(EBUSY));
                }
                if let Some(f) = vma
                    .file
                    .as_ref()
                    .filter(|_| flags & MS_SYNC != 0 && vma.is_shared())
                {
                    files.push((f.file.clone(), f.offset, part.end - part.start));
                }
            }
            (files, parts.whole())
        });
        for (f, offset, len) in files {
            f.mappable.sync(offset, len)?;
        }
        result
    }

    /// `mincore(2)`: a byte a page, bit 0 for "in memory", handed to `emit` in pieces.
    pub fn mincore(
        &self,
        va: Va,
        len: u64,
        emit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if !va.is_page_aligned() {
            return Err(EINVAL);
        }
        let r = user_range(va, len).ok_or(ENOMEM)?;
        let mut at = r.start;
        while at < r.end {
            let end = r.end.min(at + 4096 * PAGE);
            let piece = self.with(|st| {
                st.parts(&(at..end)).whole()?;
                Ok(st.residency(at..end))
            })?;
            emit(&piece)?;
            at = end;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PopulateFor {
    Read,
    Write,
}

/// The mapped parts of a range, each with its VMA as if it began there.
pub(crate) struct Parts {
    pub(crate) found: Vec<(Range<u64>, Vma)>,
    holes: bool,
}

impl Parts {
    /// `ENOMEM` if something is unmapped.
    fn whole(&self) -> Result<()> {
        if self.holes { Err(ENOMEM) } else { Ok(()) }
    }
}

impl State {
    pub(crate) fn parts(&self, r: &Range<u64>) -> Parts {
        let mut at = r.start;
        let mut holes = false;
        let mut found = Vec::new();
        for (e, v) in self.vmas.range(r.clone()) {
            let (s, end) = (e.start.max(r.start), e.end.min(r.end));
            holes |= s > at;
            at = end;
            found.push((s..end, v.after(s - e.start)));
        }
        Parts {
            found,
            holes: holes || at < r.end,
        }
    }

    /// The flags of what is mapped there; `None` if something is not.
    pub(crate) fn mapped_parts(&self, r: &Range<u64>) -> Option<Vec<(Range<u64>, VmaFlags)>> {
        let parts = self.parts(r);
        parts.whole().ok()?;
        Some(parts.found.into_iter().map(|(r, v)| (r, v.flags)).collect())
    }

    /// As [`State::mapped_parts`]; `None` if nothing is mapped.
    pub(crate) fn some_parts(&self, r: &Range<u64>) -> Option<Vec<(Range<u64>, VmaFlags)>> {
        let found = self.parts(r).found;
        let parts: Vec<_> = found.into_iter().map(|(r, v)| (r, v.flags)).collect();
        (!parts.is_empty()).then_some(parts)
    }

    fn madvise(&mut self, r: Range<u64>, advice: u32) -> Result<()> {
        let parts = self.parts(&r);
        for (part, vma) in &parts.found {
            self.advise_one(part.clone(), vma, advice)?;
        }
        parts.whole()
    }

    fn advise_one(&mut self, part: Range<u64>, vma: &Vma, advice: u32) -> Result<()> {
        if vma.is_sealed_against(advice) {
            return Err(EPERM);
        }
        let locked = vma.flags.contains(VmaFlags::LOCKED);
        let (set, clear) = match advice {
            MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL | MADV_WILLNEED | MADV_HUGEPAGE
            | MADV_NOHUGEPAGE | MADV_MERGEABLE | MADV_UNMERGEABLE => return Ok(()),
            MADV_COLD | MADV_PAGEOUT if locked => return Err(EINVAL),
            MADV_COLD => return Ok(()),
            MADV_PAGEOUT => {
                self.page_out(part);
                return Ok(());
            }
            MADV_DONTNEED if locked => return Err(EINVAL),
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
                self.dont_need(part);
                return Ok(());
            }
            MADV_FREE => {
                if !vma.is_private_anon() || locked {
                    return Err(EINVAL);
                }
                self.dont_need(part);
                return Ok(());
            }
            // (The host would keep the small pages as they were.)
            MADV_COLLAPSE if vma.flags.contains(VmaFlags::CONFIDENTIAL) => return Ok(()),
            MADV_COLLAPSE => {
                self.collapse(part);
                return Ok(());
            }
            MADV_DONTFORK => (VmaFlags::DONTFORK, VmaFlags::empty()),
            MADV_DOFORK => (VmaFlags::empty(), VmaFlags::DONTFORK),
            // What is droppable does not become anything that lasts.
            MADV_DODUMP | MADV_KEEPONFORK if vma.flags.contains(VmaFlags::DROPPABLE) => {
                return Err(EINVAL);
            }
            // Nobody dumps what is secret, whatever it is advised.
            MADV_DODUMP if vma.flags.contains(VmaFlags::SECRET) => return Ok(()),
            MADV_DODUMP if vma.flags.contains(VmaFlags::CONFIDENTIAL) => return Err(EINVAL),
            MADV_CONFIDENTIAL => return self.make_confidential(part, vma),
            MADV_DONTDUMP => (VmaFlags::DONTDUMP, VmaFlags::empty()),
            MADV_DODUMP => (VmaFlags::empty(), VmaFlags::DONTDUMP),
            MADV_WIPEONFORK if !vma.is_private_anon() => return Err(EINVAL),
            MADV_WIPEONFORK => (VmaFlags::WIPEONFORK, VmaFlags::empty()),
            MADV_KEEPONFORK => (VmaFlags::empty(), VmaFlags::WIPEONFORK),
            _ => return Err(EINVAL),
        };
        if (vma.flags | set) - clear == vma.flags {
            return Ok(());
        }
        self.reserve_vmas(self.vmas.cuts(&part))?;
        self.vmas
            .change(part, |_, flags| *flags = (*flags | set) - clear);
        Ok(())
    }

    /// Throws private contents away: anonymous memory reads as zeros again, a private file mapping
    /// as the file. A shared mapping only loses its cache.
    fn dont_need(&mut self, part: Range<u64>) {
        self.unpatch(&part);
        let found: Vec<_> = self
            .pmas
            .range(part.clone())
            .map(|(e, p)| {
                let s = e.start.max(part.start);
                (s..e.end.min(part.end), p.after(s - e.start))
            })
            .collect();
        for (r, p) in found {
            let anonymous = self
                .vmas
                .get(r.start)
                .is_some_and(|(e, v)| v.is_private_anon() && r.end <= e.end);
            match (p.kind, p.backing) {
                // Frames of our own: empty them in place, with the mapping as it is, unless others
                // could write to them while they are overwritten. (Of the stack
                // of a thread that ends, nothing mostly was touched.)
                (PmaKind::Anon, Backing::Frames(at))
                    if anonymous && !self.clas.is_confidential(at, (r.end - r.start) / PAGE) =>
                {
                    let pages = (r.end - r.start) / PAGE;
                    if self.clas.was_written(at, pages) {
                        self.clas.discard(at, pages);
                    }
                }
                (PmaKind::Anon | PmaKind::AnonCow | PmaKind::Swapped, _) => self.pma_remove(r),
                _ => {}
            }
        }
    }

    fn collapse(&mut self, part: Range<u64>) {
        self.populate_anon(part.clone());
        if self.host.flush() {
            self.host.advise_now(part, |_| MADV_COLLAPSE);
        }
    }

    fn populate_strictly(&mut self, r: Range<u64>, what: PopulateFor) -> Result<()> {
        let parts = self.parts(&r);
        for (part, vma) in &parts.found {
            let allowed = match what {
                PopulateFor::Read => vma.prot != Prot::NONE,
                PopulateFor::Write => vma.prot.contains(Prot::WRITE),
            };
            if !allowed {
                return Err(EINVAL);
            }
            if what == PopulateFor::Write && vma.is_shared() {
                let mut at = part.start;
                while at < part.end {
                    let Some((vr, v)) = self.vmas.get(at).map(|(e, v)| (e, v.clone())) else {
                        return Err(ENOMEM);
                    };
                    at = self
                        .resolve(at, &vr, &v, true, Effort::Needed)
                        .map_err(populate_errno)?
                        .0
                        .end;
                }
            }
            self.populate(part.clone()).map_err(populate_errno)?;
        }
        parts.whole()
    }

    /// Which pages of `r` are in memory: a byte each.
    pub(crate) fn residency(&self, r: Range<u64>) -> Vec<u8> {
        let mut out = vec![0u8; ((r.end - r.start) / PAGE) as usize];
        for (e, p) in self.pmas.range(r.clone()) {
            let (s, end) = (e.start.max(r.start), e.end.min(r.end));
            let part = &mut out[((s - r.start) / PAGE) as usize..((end - r.start) / PAGE) as usize];
            match p.after(s - e.start).backing {
                Backing::Frames(at) => self.clas.residency(at, part),
                Backing::Host { .. } => part.fill(1),
            }
            for b in part {
                *b &= 1;
            }
        }
        out
    }
}

fn populate_errno(b: Bad) -> abi::Errno {
    match b {
        Bad::Unmapped | Bad::Memory | Bad::Room | Bad::Limit => ENOMEM,
        Bad::Forbidden => EINVAL,
        Bad::Bus | Bad::Absent => EFAULT,
    }
}
