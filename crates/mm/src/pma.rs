//! PMAs: what serves a mapping. [`State::resolve`] is the heart: it finds or makes the PMA for an access.

use crate::PAGE;
use crate::state::State;
use crate::types::Bad;
use crate::vma::{FileAt, Vma, VmaFlags};
use abi::errno::{EINTR, ENOMEM};
use abi::{Errno, Va};
use clas::{Access, Backing, Beside, Cla, Clas, Mappable, Wait};
use std::ops::Range;
use std::sync::Arc;

/// Mappings up to this size are served by one run of frames at once: frames are sparse, so that costs
/// nothing, and the host takes the faults.
pub(crate) const EAGER: u64 = 64 << 20;
/// Larger ones, and those with MAP_NORESERVE, by runs of this size.
const CHUNK: u64 = 2 << 20;

/// What a PMA's backing is, and whether it may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PmaKind {
    /// Frames of this address space alone (or pinned by the Sentry).
    Anon,
    /// Frames that others may share: written only after a look at their reference counts.
    AnonCow,
    /// The file's own: only read.
    File,
    /// The file's own, by a shared mapping: may be written.
    FileWritable,
}

/// Every PMA with frames, of the own CLAS or of another, holds a reference to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pma {
    pub(crate) backing: Backing,
    pub(crate) kind: PmaKind,
}

impl Pma {
    pub(crate) fn anon(at: Cla) -> Pma {
        Pma {
            backing: Backing::Frames(at),
            kind: PmaKind::Anon,
        }
    }

    /// The same, starting `n` bytes further on.
    pub(crate) fn after(self, n: u64) -> Pma {
        let backing = match self.backing {
            Backing::Frames(at) => Backing::Frames(at.add(n)),
            Backing::Host { fd, offset } => Backing::Host {
                fd,
                offset: offset + n,
            },
        };
        Pma {
            backing,
            kind: self.kind,
        }
    }

    pub(crate) fn frames(&self) -> Option<Cla> {
        match self.backing {
            Backing::Frames(at) => Some(at),
            Backing::Host { .. } => None,
        }
    }

    pub(crate) fn writable(&self) -> bool {
        matches!(self.kind, PmaKind::Anon | PmaKind::FileWritable)
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, PmaKind::File | PmaKind::FileWritable)
    }
}

/// The part of `within` in the aligned window of `size` bytes around `va`.
pub(crate) fn window(va: u64, size: u64, within: &Range<u64>) -> Range<u64> {
    let start = va & !(size - 1);
    start.max(within.start)..start.saturating_add(size).min(within.end)
}

impl State {
    /// Adds a PMA where there is none, and joins it with its neighbours.
    pub(crate) fn pma_insert(&mut self, r: Range<u64>, pma: Pma) {
        let free = self.pmas.insert(r.clone(), pma).is_ok();
        assert!(free, "two PMAs of the same address");
        self.pma_merge(r.start);
        self.pma_merge(r.end);
    }

    fn pma_merge(&mut self, at: u64) {
        if let Some((a, low)) = self.pmas.last_below(at)
            && a.end == at
            && let Some((b, high)) = self.pmas.get(at)
            && low.after(a.end - a.start) == *high
        {
            self.pmas.remove(b.start);
            self.pmas.resize(a.start, a.start..b.end);
        }
    }

    /// Makes the borders of `r` borders of PMAs.
    pub(crate) fn pma_cut(&mut self, r: &Range<u64>) {
        for at in [r.start, r.end] {
            self.pmas.split(at, |p, e| p.after(at - e.start));
        }
    }

    /// Takes the PMAs of `r` out, with their references; the host's mappings stay for the caller to see to.
    pub(crate) fn pma_take(&mut self, r: Range<u64>) -> Vec<(Range<u64>, Pma)> {
        self.pma_cut(&r);
        let mut out = Vec::new();
        while let Some((e, _)) = self.pmas.first_from(r.start)
            && e.start < r.end
        {
            out.extend(self.pmas.remove(e.start));
        }
        out
    }

    fn pma_kill(&mut self, r: Range<u64>) {
        self.pma_cut(&r);
        while let Some((e, p)) = self.pmas.first_from(r.start)
            && e.start < r.end
        {
            let p = *p;
            self.release(p.backing, (e.end - e.start) / PAGE);
            self.pmas.remove(e.start);
        }
    }

    /// Removes the PMAs of `r` and what the host has mapped of them.
    pub(crate) fn pma_remove(&mut self, r: Range<u64>) {
        self.host.unmap(r.clone());
        self.pma_kill(r);
    }

    /// Forgets what files serve in `r`; private copies stay.
    pub(crate) fn forget_file(&mut self, r: Range<u64>) {
        let found: Vec<Range<u64>> = self
            .pmas
            .range(r.clone())
            .filter(|(_, p)| p.is_file())
            .map(|(e, _)| e.start.max(r.start)..e.end.min(r.end))
            .collect();
        for e in found {
            self.pma_remove(e);
        }
    }

    /// As [`State::forget_file`], and private copies of what the files no longer have go too. The files are
    /// asked, page by page where need be: what is mapped in `r` may be another file by now.
    pub(crate) fn forget_behind_end(&mut self, r: Range<u64>) {
        self.forget_file(r.clone());
        let private: Vec<(Range<u64>, Vma)> = self
            .vmas
            .range(r.clone())
            .filter(|(_, v)| v.file.is_some() && !v.is_shared())
            .map(|(e, v)| {
                let s = e.start.max(r.start);
                (s..e.end.min(r.end), v.after(s - e.start))
            })
            .collect();
        for (part, vma) in private {
            let Some(f) = &vma.file else { continue };
            let mut at = part.start;
            while at < part.end && self.pmas.overlaps(at..part.end) {
                let offset = f.offset + (at - part.start);
                match self.backing(&*f.file.mappable, offset, part.end - at, Access::Read) {
                    Ok((backing, got)) => {
                        let got = got.min(part.end - at) & !(PAGE - 1);
                        self.release(backing, got / PAGE);
                        if got == 0 {
                            break;
                        }
                        at += got;
                    }
                    Err(_) => {
                        self.retire(&(at..part.end));
                        self.pma_remove(at..part.end);
                        break;
                    }
                }
            }
        }
    }

    /// Puts `pma` in the place of what serves `r`; what the host has mapped there follows.
    fn pma_replace(&mut self, r: Range<u64>, pma: Pma) {
        let mapped = self.host.overlaps(r.clone());
        self.pma_kill(r.clone());
        self.pma_insert(r.clone(), pma);
        if mapped {
            self.host_map(r);
        }
    }

    /// The PMA that serves `va` in the VMA `vma` at `vr`, clipped to it; made if there is none. With
    /// `write`, one that may be written. The caller has checked the VMA's protection.
    pub(crate) fn resolve(
        &mut self,
        va: u64,
        vr: &Range<u64>,
        vma: &Vma,
        write: bool,
    ) -> Result<(Range<u64>, Pma), Bad> {
        // Fetching, then copying: two steps at most; a file that changes its mind ends as SIGBUS.
        for _ in 0..4 {
            let Some((pr, pma)) = self.pmas.get(va).map(|(r, p)| (r, *p)) else {
                self.fetch(va, vr, vma, write)?;
                continue;
            };
            let r = pr.start.max(vr.start)..pr.end.min(vr.end);
            if !write || pma.writable() {
                return Ok((r.clone(), pma.after(r.start - pr.start)));
            }
            let pma = pma.after(r.start - pr.start);
            match pma.kind {
                PmaKind::File if vma.is_shared() => self.pma_remove(r),
                _ => self.unshare(va, &r, pma, None)?,
            }
        }
        Err(Bad::Bus)
    }

    /// Makes private frames of a part around `va` of the PMA `pma` at `r`: `most` bytes if they must be copied, or as
    /// many as are expected to be written.
    pub(crate) fn unshare(
        &mut self,
        va: u64,
        r: &Range<u64>,
        pma: Pma,
        most: Option<u64>,
    ) -> Result<(), Bad> {
        if pma.kind == PmaKind::AnonCow
            && let Some(at) = pma.frames()
            && let Some((lo, hi)) =
                self.clas
                    .exclusive_run(at.add(va - r.start), at, at.add(r.end - r.start))
        {
            // Nobody else has them (any more): take them over without a copy.
            let mine = r.start + (lo.0 - at.0)..r.start + (hi.0 - at.0);
            self.pma_cut(&mine);
            if let Some((_, p)) = self.pmas.get_mut(mine.start) {
                p.kind = PmaKind::Anon;
            }
            self.pma_merge(mine.start);
            self.pma_merge(mine.end);
            self.host_protect(mine);
            return Ok(());
        }
        let least = match pma.backing {
            Backing::Frames(_) => 0,
            Backing::Host { .. } => crate::predict::COPY_FILE,
        };
        let mut part = match most {
            Some(most) => window(va, most, r),
            None => self.copy_part(va, r, least),
        };
        let mut from = pma.after(part.start - r.start);
        let before = self
            .pmas
            .get(part.end)
            .and_then(|(e, p)| (e.start == part.end).then(|| p.frames())?);
        let below = self.pmas.last_below(part.start);
        let after = below
            .filter(|(e, _)| e.end == part.start)
            .and_then(|(e, p)| p.after(e.end - e.start).frames());
        let beside = Beside { before, after };
        let to = match self.private_copy(from, part.end - part.start, beside) {
            Err(ENOMEM) if part.end - part.start > PAGE && !self.guessing => {
                let page = Va(va).page_down().0;
                from = from.after(page - part.start);
                part = page..page + PAGE;
                self.private_copy(from, PAGE, Beside::default())
            }
            r => r,
        };
        let to = to.map_err(|e| if e == ENOMEM { Bad::Memory } else { Bad::Bus })?;
        self.pma_replace(part, Pma::anon(to));
        Ok(())
    }

    /// New frames with the contents of `len` bytes of what serves a mapping.
    fn private_copy(&self, from: Pma, len: u64, beside: Beside) -> Result<Cla, Errno> {
        let pages = len / PAGE;
        // More than a page is a guess.
        let wait = if pages > 1 || self.guessing {
            Wait::No
        } else {
            Wait::ForEnding
        };
        match from.backing {
            Backing::Frames(at) => self.clas.copy_of(at, pages, beside, wait),
            Backing::Host { fd, offset } => {
                let to = self.clas.allocate_beside(pages, beside, wait)?;
                self.read_host(fd, offset, to, len as usize)
                    .inspect_err(|_| self.clas.decref(to, pages))?;
                Ok(to)
            }
        }
    }

    /// Fills new frames from a host file; past its end they stay zero.
    fn read_host(&self, fd: i32, offset: u64, to: Cla, len: usize) -> Result<(), Errno> {
        let slice = self.clas.slice(to, len);
        let mut done = 0;
        while done < len {
            match hostcall::file::preadv(fd, &[slice.sub(done, len - done)], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n.min(len - done),
                Err(EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// What backs a part of a file. Frames of another CLAS are given as what they are on the host, a part of a
    /// file; with their references, for [`State::release`] to give back: what maps them may move, or be copied
    /// by fork(2), while who cuts the file short looks for it.
    fn backing(
        &mut self,
        file: &dyn Mappable,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<(Backing, u64), Errno> {
        let (backing, got) = file.backing(offset, len, access)?;
        let (Backing::Frames(at), Some(theirs)) = (backing, file.memory()) else {
            return Ok((backing, got));
        };
        if Arc::ptr_eq(theirs, &self.clas) {
            return Ok((backing, got));
        }
        if !self.foreign.iter().any(|c| Arc::ptr_eq(c, theirs)) {
            self.foreign.push(theirs.clone());
        }
        let host = Backing::Host {
            fd: theirs.memory_fd(),
            offset: at.0,
        };
        Ok((host, got))
    }

    /// Whose frames a part of a host file is, if it is memory of another container or on a disk.
    pub(crate) fn foreign_frames(&self, b: Backing) -> Option<(&Arc<Clas>, Cla)> {
        let Backing::Host { fd, offset } = b else {
            return None;
        };
        let theirs = self.foreign.iter().find(|c| c.memory_fd() == fd)?;
        Some((theirs, Cla(offset)))
    }

    /// Gives the references of a PMA's frames back, later.
    pub(crate) fn release(&mut self, b: Backing, pages: u64) {
        if let Backing::Frames(at) = b {
            self.dead_frames.push((at, pages));
        } else if let Some((theirs, at)) = self.foreign_frames(b) {
            let dead = (theirs.clone(), at, pages);
            self.dead_foreign.push(dead);
        }
    }

    /// Makes a PMA for `va`, which has none.
    fn fetch(&mut self, va: u64, vr: &Range<u64>, vma: &Vma, write: bool) -> Result<(), Bad> {
        let mut hole = vr.clone();
        let above = self.pmas.first_from(va).map(|(e, p)| (e, *p));
        let below = self.pmas.last_below(va).map(|(e, p)| (e, *p));
        if let Some((e, _)) = &above {
            hole.end = hole.end.min(e.start);
        }
        if let Some((e, _)) = &below {
            hole.start = hole.start.max(e.end);
        }
        match &vma.file {
            None => {
                let eager = !vma.flags.contains(VmaFlags::NORESERVE) && vr.end - vr.start <= EAGER;
                let r = if eager {
                    hole
                } else {
                    window(va, CHUNK, &hole)
                };
                let next = above
                    .filter(|(e, _)| e.start == r.end)
                    .and_then(|(_, p)| p.frames());
                let last = below.filter(|(e, _)| e.end == r.start);
                let last = last.and_then(|(e, p)| p.after(e.end - e.start).frames());
                let (at, r) = match self.clas.allocate_near(
                    (r.end - r.start) / PAGE,
                    next,
                    last,
                    Va(r.start),
                    Wait::No,
                ) {
                    Ok(at) => (at, r),
                    Err(_) if self.guessing => return Err(Bad::Memory),
                    Err(_) => {
                        let page = Va(va).page_down().0;
                        let at = self.clas.allocate(1, None).map_err(|_| Bad::Memory)?;
                        (at, page..page + PAGE)
                    }
                };
                self.pma_insert(r, Pma::anon(at));
                Ok(())
            }
            Some(f) => self.fetch_file(va, vr, vma, f, hole, write),
        }
    }

    fn fetch_file(
        &mut self,
        va: u64,
        vr: &Range<u64>,
        vma: &Vma,
        f: &FileAt,
        hole: Range<u64>,
        write: bool,
    ) -> Result<(), Bad> {
        let for_write = vma.is_shared() && (write || vma.flags.contains(VmaFlags::ANON_SHARED));
        let (access, kind, size) = if for_write {
            (Access::Write, PmaKind::FileWritable, CHUNK)
        } else {
            (Access::Read, PmaKind::File, EAGER)
        };
        let page = Va(va).page_down().0;
        let around = window(va, size, &hole);
        // First around the fault; then, if the file's run there ends before it, from it on.
        for start in [around.start, page] {
            let offset = f.offset + (start - vr.start);
            let len = around.end - start;
            match self.backing(&*f.file.mappable, offset, len, access) {
                Ok((backing, got)) => {
                    let got = got.min(len) & !(PAGE - 1);
                    if got == 0 {
                        return Err(Bad::Bus);
                    }
                    let r = start..start + got;
                    if self.pmas.overlaps(r.clone()) {
                        // The first try served a part already.
                        self.release(backing, got / PAGE);
                        return Err(Bad::Bus);
                    }
                    self.pma_insert(r.clone(), Pma { backing, kind });
                    if r.contains(&va) {
                        return Ok(());
                    }
                }
                Err(e) if start == page => {
                    return Err(if e == ENOMEM { Bad::Memory } else { Bad::Bus });
                }
                Err(_) => {}
            }
        }
        Err(Bad::Bus)
    }

    /// Makes PMAs and host mappings for all of `r` that is private anonymous memory of one VMA, as far as
    /// memory goes: a head start that nobody relies on.
    pub(crate) fn populate_anon(&mut self, r: Range<u64>) {
        let Some((vr, vma)) = self.vmas.get(r.start).map(|(e, v)| (e, v.clone())) else {
            return;
        };
        if !vma.is_private_anon() || vma.prot == platform::Prot::NONE {
            return;
        }
        let mut at = r.start;
        while at < r.end {
            let Some((pr, _)) = self.guess_pma(at, &vr, &vma, false) else {
                return;
            };
            let part = at..pr.end.min(r.end);
            if !self.host.overlaps(part.clone()) {
                self.host_map(part);
            }
            at = pr.end;
        }
    }
}
