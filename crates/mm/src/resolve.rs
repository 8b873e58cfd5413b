//! Which PMA serves an access. [`State::resolve`] is the heart: it finds it, or makes it.

use crate::PAGE;
use crate::absent::Absent;
use crate::chunk::CHUNK;
use crate::hands::CLUSTER;
use crate::pma::{Pma, PmaKind, window};
use crate::state::State;
use crate::types::Bad;
use crate::vma::{FileAt, Vma, VmaFlags};
use abi::Va;
use abi::errno::{EAGAIN, ENOMEM};
use clas::{Access, Backing, PlacementHint};
use std::ops::Range;
use std::sync::Arc;

/// So much is mapped at once at most, of what is there already: the host takes the faults.
pub(crate) const EAGER: u64 = 64 << 20;

/// What is done for memory that is to serve an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// The access is being made: it waits for memory, and does with a page.
    Needed,
    /// Nobody needs it yet: it waits for nothing, and does with nothing rather than little.
    Guess,
}

impl State {
    /// Removes the PMAs of `r` and what the host has mapped of them.
    pub(crate) fn pma_remove(&mut self, r: Range<u64>) {
        self.pmas.remove(r, &mut self.host);
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

    /// As [`State::forget_file`], and private copies of what the files no longer have go too. The
    /// files are asked, page by page where need be: what is mapped in `r` may be another file by
    /// now.
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
                let file = &*f.file.mappable;
                let len = part.end - at;
                match self
                    .pmas
                    .backing(&self.clas, file, offset, len, Access::Read)
                {
                    Ok((backing, got)) => {
                        let got = got.min(part.end - at) & !(PAGE - 1);
                        self.pmas.release(backing, got / PAGE);
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
        if self.pmas.replace(r.clone(), pma, &self.host) {
            self.host_map(r);
        }
    }

    /// The PMA that serves `va` in the VMA `vma` at `vr`, clipped to it; made if there is none.
    /// With `write`, one that may be written. The caller has checked the VMA's protection. Where
    /// the limit is reached, frames that nobody has touched go, the caller's others, too; at its
    /// own limit what else can ([`crate::bounds`]).
    pub(crate) fn resolve(
        &mut self,
        va: u64,
        vr: &Range<u64>,
        vma: &Vma,
        write: bool,
        effort: Effort,
    ) -> Result<(Range<u64>, Pma), Bad> {
        /// Where there is room, others have taken what was there; or something else is missing.
        const TRIES: u32 = 100;
        let mut tries = 0;
        self.waiter.begin_search();
        while tries < TRIES {
            match self.resolve_now(va, vr, vma, write, effort) {
                Err(Bad::Limit) => {
                    self.at_own_limit(effort)?;
                    tries += 1;
                    continue;
                }
                Err(Bad::Memory) if effort == Effort::Needed => {}
                r => return r,
            }
            // (What nobody touched goes out as well, for nothing.)
            if !self.clas.can_swap() {
                self.trim();
            }
            if self.waits_outside {
                return Err(Bad::Room);
            }
            if let Some(theirs) = self.short_elsewhere.take() {
                let room = theirs.await_room(PAGE, &self.waiter);
                room.map_err(|_| Bad::Memory)?;
                tries += 1;
                continue;
            }
            let room = self.clas.await_room_holding(&self.waiter);
            match room.map_err(|_| Bad::Memory)? {
                (0, _) => tries += 1,
                (bytes, of) => self.free_some(bytes, of),
            }
        }
        Err(Bad::Memory)
    }

    fn resolve_now(
        &mut self,
        va: u64,
        vr: &Range<u64>,
        vma: &Vma,
        write: bool,
        effort: Effort,
    ) -> Result<(Range<u64>, Pma), Bad> {
        // Fetching, or bringing in, then copying: two steps at most; a file that changes its mind
        // ends as SIGBUS.
        for _ in 0..4 {
            let Some((pr, pma)) = self.pmas.get(va).map(|(r, p)| (r, *p)) else {
                self.fetch(va, vr, vma, write, effort)?;
                continue;
            };
            let r = pr.start.max(vr.start)..pr.end.min(vr.end);
            if !pma.is_here() {
                self.bring_in(va, r)?;
                continue;
            }
            if !write || pma.writable() {
                return Ok((r.clone(), pma.after(r.start - pr.start)));
            }
            let pma = pma.after(r.start - pr.start);
            match pma.kind {
                PmaKind::File if vma.is_shared() => self.pma_remove(r),
                _ => self.unshare(va, &r, pma, None, effort)?,
            }
        }
        Err(Bad::Bus)
    }

    /// Makes private frames of a part around `va` of the PMA `pma` at `r`: `most` bytes if they
    /// must be copied, or as many as are expected to be written.
    pub(crate) fn unshare(
        &mut self,
        va: u64,
        r: &Range<u64>,
        pma: Pma,
        most: Option<u64>,
        effort: Effort,
    ) -> Result<(), Bad> {
        if pma.kind == PmaKind::AnonCow
            && let Some(at) = pma.frames()
            && let Some((lo, hi)) =
                self.clas
                    .exclusive_run(at.add(va - r.start), at, at.add(r.end - r.start))
        {
            // Nobody else has them (any more): take them over without a copy.
            let mine = r.start + (lo.0 - at.0)..r.start + (hi.0 - at.0);
            self.pmas.own(&mine);
            self.host_protect(mine);
            return Ok(());
        }
        let least = match pma.backing {
            Backing::Frames(_) => 0,
            Backing::Host { .. } => crate::predict::COPY_FILE,
        };
        let mut part = match most {
            Some(most) => window(va, most, r),
            None => self.predictor.copies.plan(va, r, least),
        };
        // What it has frames of already counts.
        if pma.frames().is_none() {
            self.fits(PAGE)?;
            if part.end - part.start > self.own_room() {
                part = window(va, PAGE, r);
            }
        }
        let mut from = pma.after(part.start - r.start);
        let hint = self.pmas.placement_hint(&part);
        let to = match from.copy(&self.clas, part.end - part.start, hint) {
            Err(ENOMEM) if part.end - part.start > PAGE && effort == Effort::Needed => {
                let page = Va(va).page_down().0;
                from = from.after(page - part.start);
                part = page..page + PAGE;
                from.copy(&self.clas, PAGE, PlacementHint::default())
            }
            r => r,
        };
        let to = to.map_err(|e| if e == ENOMEM { Bad::Memory } else { Bad::Bus })?;
        if let Some((_, vma)) = self.vmas.get(va) {
            self.mark_new(&part, &Pma::anon(to), vma);
        }
        self.pma_replace(part, Pma::anon(to));
        Ok(())
    }

    /// Makes a PMA for `va`, which has none.
    fn fetch(
        &mut self,
        va: u64,
        vr: &Range<u64>,
        vma: &Vma,
        write: bool,
        effort: Effort,
    ) -> Result<(), Bad> {
        let around = self.pmas.hole(va);
        let hole = around.within(vr);
        match &vma.file {
            None => {
                self.fits(PAGE)?;
                let own = self.own_at_once(CHUNK);
                let most = |n: u64| self.clas.at_once(n.min(own));
                let r = self.chunk.next(most, va, &hole);
                let hint = around.placement_hint(&r);
                let pages = (r.end - r.start) / PAGE;
                let (at, r) = match self.clas.allocate_anon(pages, hint, Va(r.start)) {
                    Ok(at) => (at, r),
                    Err(_) if effort == Effort::Guess => return Err(Bad::Memory),
                    Err(_) => {
                        let page = Va(va).page_down().0;
                        let at = self.clas.allocate_hinted(1, PlacementHint::default());
                        let at = at.map_err(|_| Bad::Memory)?;
                        (at, page..page + PAGE)
                    }
                };
                self.mark_new(&r, &Pma::anon(at), vma);
                self.pmas.insert(r, Pma::anon(at));
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
        let are_some_away = self.clas.are_some_away();
        // What the host keeps does not count. Where memory is short it matters what is mapped.
        let size = match f.file.mappable.memory() {
            Some(_) if are_some_away => self.own_at_once(CLUSTER),
            Some(_) => self.own_at_once(size),
            None => size,
        };
        let page = Va(va).page_down().0;
        let around = window(va, size, &hole);
        // First around the fault; then, if the file's run there ends before it, from it on. What is
        // swapped out comes for the fault alone.
        let first = match are_some_away {
            true => page,
            false => around.start,
        };
        for start in [first, page] {
            let offset = f.offset + (start - vr.start);
            let len = around.end - start;
            let file = &*f.file.mappable;
            match self.pmas.backing(&self.clas, file, offset, len, access) {
                Ok((backing, got)) => {
                    let got = got.min(len) & !(PAGE - 1);
                    if got == 0 {
                        return Err(Bad::Bus);
                    }
                    let r = start..start + got;
                    let counts = matches!(backing, Backing::Frames(_));
                    if counts && let Err(bad) = self.fits(got) {
                        self.pmas.release(backing, got / PAGE);
                        return Err(bad);
                    }
                    if self.pmas.overlaps(r.clone()) {
                        // The first try served a part already.
                        self.pmas.release(backing, got / PAGE);
                        return Err(Bad::Bus);
                    }
                    self.mark_new(&r, &Pma { backing, kind }, vma);
                    self.pmas.insert(r.clone(), Pma { backing, kind });
                    if r.contains(&va) {
                        return Ok(());
                    }
                }
                Err(EAGAIN) if start == page => {
                    let file = f.file.clone();
                    self.absent = Some(Absent { file, offset });
                    return Err(Bad::Absent);
                }
                Err(e) if start == page => {
                    let theirs = file.memory().filter(|m| !Arc::ptr_eq(m, &self.clas));
                    self.short_elsewhere = theirs.filter(|_| e == ENOMEM).cloned();
                    return Err(if e == ENOMEM { Bad::Memory } else { Bad::Bus });
                }
                Err(_) => {}
            }
        }
        Err(Bad::Bus)
    }

    /// Makes PMAs and host mappings for all of `r` that is private anonymous memory of one VMA, as
    /// far as memory goes: a head start that nobody relies on.
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
