//! What is made and mapped before it is needed, as [`crate::predict`] has it.

use crate::PAGE;
use crate::pma::Pma;
use crate::predict::{AtOnce, Fate, Files, STEP, Touch};
use crate::resolve::Effort;
use crate::state::State;
use crate::types::Access;
use crate::vma::{Vma, VmaFlags, identity};
use abi::linux::MADV_POPULATE_WRITE;
use clas::{Cla, PlacementHint};
use platform::{Prot, USER_MAX};
use smallvec::SmallVec;
use std::ops::Range;

/// Neighbours of a library's mapping that are looked at, in each direction.
const NEIGHBOURS: usize = 4;
/// A library's data is written soon after it is mapped, if it is not more than this.
const DATA_MAX: u64 = 64 << 10;
/// Mappings of a new program that are looked at.
const ALL_MAX: usize = 64;

impl State {
    /// [`State::resolve`] where nobody needs it yet.
    pub(crate) fn guess_pma(
        &mut self,
        va: u64,
        vr: &Range<u64>,
        vma: &Vma,
        write: bool,
    ) -> Option<(Range<u64>, Pma)> {
        self.resolve(va, vr, vma, write, Effort::Guess).ok()
    }

    /// Whether new anonymous memory is to be mapped at once.
    pub(crate) fn will_touch(&mut self) -> bool {
        if self.predictor.touch.is_due() {
            self.judge_last();
        }
        !self.predictor.loading && self.predictor.touch.is_expected()
    }

    /// Maps new anonymous memory at once, with all its pages if those before were written as a
    /// whole.
    pub(crate) fn map_at_once(&mut self, r: Range<u64>) {
        let plan = self.predictor.touch.plan(&r);
        if plan == AtOnce::Probe {
            return;
        }
        self.populate_anon(r.clone());
        let is_whole = |(e, p): (Range<u64>, &Prot)| r.end <= e.end && *p == Prot::RW;
        let fill = plan == AtOnce::MapFilled && self.host.get(r.start).is_some_and(is_whole);
        if fill {
            self.host.advise(r.clone(), MADV_POPULATE_WRITE);
        }
        // Frames that were just in use, or are made now, are in memory whether they are touched or
        // not.
        let fresh = |(at, n)| !self.clas.was_written(at, n);
        if !fill && self.pmas.frames_of(&r).is_some_and(fresh) {
            self.predictor.touch.mapped(r);
        } else {
            self.predictor.touch.mapped_unseen();
        }
    }

    /// Before `r` goes: what became of it?
    pub(crate) fn judge_before(&mut self, r: &Range<u64>) {
        if self.predictor.touch.concerns(r) {
            self.judge_last();
        }
    }

    fn judge_last(&mut self) {
        let last = self.predictor.touch.take_unjudged();
        let Some((at, pages)) = last.and_then(|r| self.pmas.frames_of(&r)) else {
            return;
        };
        let fate = if !self.clas.was_written(at, pages) {
            Fate::Untouched
        } else if Touch::may_be_filled(pages * PAGE) && self.clas.is_full(at, pages) {
            Fate::Filled
        } else {
            Fate::Written
        };
        self.predictor.touch.judge(fate);
    }

    /// A new mapping of a file: mapped at once, if those before were read soon.
    pub(crate) fn file_mapped(&mut self, r: &Range<u64>, vma: &Vma) {
        if vma.is_shared()
            || vma.prot != Prot::READ
            || r.end - r.start > Files::MAX
            || self.predictor.loading
        {
            return;
        }
        if self.predictor.files.plan(r) {
            let _ = self.guess_pma(r.start, r, vma, false);
            self.host_map(r.clone());
        }
    }

    /// What is mapped for a touch at `va` of private anonymous memory, of which `hole` is not
    /// mapped: where it is being filled upwards, a longer step than the last, in huge pages; else
    /// what is around.
    pub(crate) fn step(
        &mut self,
        va: u64,
        vr: &Range<u64>,
        vma: &Vma,
        hole: Range<u64>,
    ) -> Range<u64> {
        let around = crate::pma::window(va, STEP, &hole);
        if hole.end - hole.start <= STEP {
            return around;
        }
        let below = self.pmas.last_below(around.start);
        let Some((below, pma)) = below.filter(|(r, _)| r.end >= around.start) else {
            return around;
        };
        let plan = self.predictor.filling.plan(around.start, below.start);
        if !self.is_filled(&plan.by, &pma.after(plan.by.start - below.start)) {
            return around;
        }
        let mut end = around.start;
        let mut first = None;
        let to = plan.to.min(hole.end);
        while end < to {
            let Some((r, pma)) = self.guess_pma(end, vr, vma, false) else {
                break;
            };
            if !pma.writable() {
                break;
            }
            first = first.or(pma.after(end - r.start).frames());
            end = r.end.min(to);
            // Cut up, or short: that is no memory to be generous with.
            if r.end - r.start < STEP && end < to {
                break;
            }
        }
        // What was made is one run, unless memory is cut up.
        if let Some(at) = first
            && let Some((r, p)) = self.pmas.get(around.start)
            && p.after(around.start - r.start).frames() == Some(at)
        {
            let run = r.end.min(end) - around.start;
            // (The host would keep small pages as they were.)
            if !self.clas.is_confidential(at, run / PAGE) {
                self.clas.make_huge(at, at.add(run));
            }
        }
        self.predictor.filling.grew(&plan, end);
        around.start..end.max(around.end)
    }

    /// Whether `r`, which this PMA is, is ours alone, and nearly all written.
    fn is_filled(&self, r: &Range<u64>, pma: &Pma) -> bool {
        let len = r.end - r.start;
        let dense = |at| self.clas.is_dense(at, len);
        pma.writable() && len >= STEP / 2 && pma.frames().is_some_and(dense)
    }

    /// The mappings that belong to the same library as `vma` at `vr`, with it; empty if it is no
    /// library's, or was used already.
    pub(crate) fn library(&self, vr: &Range<u64>, vma: &Vma) -> SmallVec<[(Range<u64>, Vma); 8]> {
        let mut found: SmallVec<[(Range<u64>, Vma); 8]> = SmallVec::new();
        let Some(f) = vma.file.as_ref().filter(|_| !vma.is_shared()) else {
            return found;
        };
        if self.host.overlaps(vr.clone()) {
            return found;
        }
        let id = identity(&f.file.mappable);
        let belongs = |v: &Vma| match &v.file {
            Some(f) => identity(&f.file.mappable) == id && !v.is_shared(),
            None => v.prot == Prot::RW,
        };
        let mut at = vr.start;
        for _ in 0..NEIGHBOURS {
            match self.vmas.last_below(at) {
                Some((r, v)) if r.end == at && v.file.is_some() && belongs(v) => {
                    at = r.start;
                    found.push((r, v.clone()));
                }
                _ => break,
            }
        }
        found.push((vr.clone(), vma.clone()));
        let mut at = vr.end;
        for (r, v) in self.vmas.range(vr.end..USER_MAX).take(NEIGHBOURS) {
            if r.start != at || !belongs(v) {
                break;
            }
            at = r.end;
            let last = v.file.is_none();
            found.push((r, v.clone()));
            if last {
                break;
            }
        }
        if !found.iter().any(|(_, v)| v.prot.contains(Prot::EXEC)) {
            found.clear();
        }
        found
    }

    /// Maps these, as far as nothing of them is mapped.
    pub(crate) fn map_library(&mut self, all: &[(Range<u64>, Vma)]) {
        for (r, v) in all {
            if !self.host.overlaps(r.clone()) {
                self.map_ahead(r, v);
            }
        }
    }

    /// Finds what serves a mapping, with copies of small data that will be written, and maps it.
    fn map_ahead(&mut self, r: &Range<u64>, v: &Vma) {
        let len = r.end - r.start;
        if v.prot == Prot::NONE || v.is_shared() || len > crate::resolve::EAGER {
            return;
        }
        if v.file.is_none() {
            if len <= STEP && !v.flags.contains(VmaFlags::NORESERVE) {
                let _ = self.guess_pma(r.start, r, v, false);
            }
        } else {
            let _ = self.guess_pma(r.start, r, v, v.allows(Access::Write) && len <= DATA_MAX);
        }
        self.host_map(r.clone());
    }

    /// Maps what a new program has, in one hand-over.
    pub(crate) fn map_all(&mut self) {
        let all: Vec<(Range<u64>, Vma)> = self
            .vmas
            .iter()
            .take(ALL_MAX)
            .map(|(r, v)| (r, v.clone()))
            .collect();
        self.map_library(&all);
    }

    /// Copies of the places that are written after forks, for the child; what is ours alone stays
    /// so.
    pub(crate) fn copies_for_fork(
        &mut self,
        spots: &[(Range<u64>, bool)],
    ) -> Vec<(Range<u64>, Cla)> {
        let mut out = Vec::new();
        for (spot, _) in spots.iter().filter(|s| s.1) {
            let found: SmallVec<[(Range<u64>, Cla); 2]> = self
                .pmas
                .range(spot.clone())
                .filter(|(_, p)| !p.is_file() && p.is_here())
                .filter_map(|(r, p)| {
                    let part = r.start.max(spot.start)..r.end.min(spot.end);
                    let at = p.after(part.start - r.start).frames()?;
                    // Of one mapping, so that it is inherited as a whole or not at all.
                    let (v, _) = self.vmas.get(part.start)?;
                    (part.end <= v.end).then_some((part, at))
                })
                .collect();
            for (part, at) in found {
                let pages = (part.end - part.start) / PAGE;
                if !self.clas.was_written(at, pages) {
                    continue;
                }
                let Ok(to) = self.clas.copy_of(at, pages, PlacementHint::default()) else {
                    return out;
                };
                self.pmas.cut(&part);
                out.push((part, to));
            }
        }
        out
    }
}
