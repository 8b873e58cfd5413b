//! What the application will do next, judged by what it did. Nothing relies on it: a wrong guess costs a fault, or
//! a mapping that nobody uses.
//!
//! - *New anonymous memory*: mapped at once if what was mapped so last has been written by now, else when it is
//!   touched. A program that maps and does not touch pays for no host call; one that touches what it maps, for no
//!   fault.
//! - *Memory that is filled from one end to the other*: mapped in growing steps, and in huge pages. A large
//!   mapping that is touched here and there is mapped in small parts, and takes no more memory than it touches.
//! - *Copies on write* that follow each other grow, too.
//! - *fork(2)*: where earlier children and their parents faulted ([`Hot`]) the next child gets its own copies, and
//!   host mappings, from the start.
//! - *Libraries*: the first fault in one of a library's mappings serves all of them.

use crate::pma::Pma;
use crate::resolve::Effort;
use crate::state::State;
use crate::types::Access;
use crate::vma::{Vma, VmaFlags, identity};
use clas::{Beside, Cla, Wait};
use platform::{Prot, USER_MAX};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;

/// New mappings up to this length may be mapped at once; of longer ones this much by a fault.
pub(crate) const STEP: u64 = clas::HUGE;
/// The longest step.
const STEP_MAX: u64 = 32 << 20;
/// Beyond what is filled one part in so many is mapped, and may be in memory before it is touched: a container may have
/// little more than it uses.
const AHEAD: u64 = 8;
/// What a fault copies at least, and how far that grows.
const COPY: u64 = 16 << 10;
const COPY_MAX: u64 = 512 << 10;
/// Private parts of files are read from the host in larger pieces.
pub(crate) const COPY_FILE: u64 = 64 << 10;
/// Bits of an address that do not matter to [`Hot`].
const SPOT: u64 = 16 << 10;
/// So many faults after a fork are noted, by each side.
pub(crate) const WATCHED: u8 = 24;
/// Neighbours of a library's mapping that are looked at, in each direction.
const NEIGHBOURS: usize = 4;
/// A library's data is written soon after it is mapped, if it is not more than this.
const DATA_MAX: u64 = 64 << 10;
/// Mappings that [`State::map_all`] looks at.
const ALL_MAX: usize = 64;

const TOUCH_MAX: i8 = 2;
/// See [`Touch`].
const TOUCH_TEST: u8 = 4;
/// See [`Touch::unseen`].
const UNSEEN_MAX: u8 = 32;

/// Whether new anonymous memory will be touched soon.
pub(crate) struct Touch {
    /// From `-TOUCH_MAX` to `TOUCH_MAX`; below zero it will not.
    score: i8,
    /// When that is at its highest, one of so many is judged.
    count: u8,
    /// What was mapped at once last, of frames that were not in memory: so that one can see whether they are written.
    last: Option<Range<u64>>,
    /// So many in a row could not be judged like that, up to `UNSEEN_MAX`: then one is not mapped, to see whether it
    /// is touched.
    unseen: u8,
    probe: Option<Range<u64>>,
    /// How many were written as a whole, one after the other; up to 2.
    full: u8,
}

/// Whether files that are mapped are read soon. Only small ones count, and no programs and libraries.
#[derive(Default)]
pub(crate) struct Files {
    /// From -2 to 3; from 2 on they are mapped at once.
    score: i8,
    /// What was mapped last, if nobody has touched it.
    last: Option<Range<u64>>,
    /// One of so many waits for its touch, to see whether things are still the same.
    count: u8,
}

/// The longest file mapping that may be mapped at once.
const FILE_MAX: u64 = 512 << 10;
/// See [`Files`].
const FILE_TEST: u8 = 8;
/// The longest new memory that is made as a whole, with all its pages.
const FULL_MAX: u64 = 1 << 20;
/// Of less, the host's faults cost no more.
const FULL_MIN: u64 = 32 << 10;

impl Default for Touch {
    fn default() -> Self {
        Touch {
            score: 1,
            count: 0,
            last: None,
            unseen: 0,
            probe: None,
            full: 0,
        }
    }
}

/// Where the last step of a kind ended, and how long it was; of what is filled, how long all steps were.
#[derive(Default)]
pub(crate) struct Run {
    end: u64,
    len: u64,
}

/// Where processes of a family fault after a fork.
#[derive(Default)]
pub(crate) struct Hot(VecDeque<Spot>);

struct Spot {
    at: u64,
    write: bool,
    /// Forks until it is forgotten, unless a fault is seen there again.
    life: u8,
}

impl Hot {
    const MAX: usize = 40;
    const LIFE: u8 = 64;

    pub(crate) fn note(&mut self, va: u64, write: bool) {
        let at = va & !(SPOT - 1);
        if let Some(s) = self.0.iter_mut().find(|s| s.at == at) {
            s.write |= write;
            s.life = Self::LIFE;
            return;
        }
        if self.0.len() == Self::MAX {
            self.0.pop_front();
        }
        let life = Self::LIFE;
        self.0.push_back(Spot { at, write, life });
    }

    /// The places, each with whether it is written.
    pub(crate) fn for_fork(&mut self) -> SmallVec<[(Range<u64>, bool); 16]> {
        let all = self
            .0
            .iter()
            .map(|s| (s.at..s.at + SPOT, s.write))
            .collect();
        self.0.retain_mut(|s| {
            s.life -= 1;
            s.life > 0
        });
        all
    }
}

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
        let t = &mut self.touch;
        t.count = (t.count + 1) % TOUCH_TEST;
        if t.score == TOUCH_MAX && t.count != 0 {
            // Sure enough.
            (t.last, t.probe) = (None, None);
        } else {
            self.judge_last();
        }
        self.running && self.touch.score >= 0
    }

    /// Maps new anonymous memory at once, with all its pages if those before were written as a whole.
    pub(crate) fn map_at_once(&mut self, r: Range<u64>) {
        let t = &mut self.touch;
        if t.unseen >= UNSEEN_MAX {
            t.unseen = 0;
            t.probe = Some(r);
            return;
        }
        self.populate_anon(r.clone());
        let mut made = false;
        let len = r.end - r.start;
        if self.touch.full >= 2
            && (FULL_MIN..=FULL_MAX).contains(&len)
            && self
                .host
                .get(r.start)
                .is_some_and(|(e, p)| r.end <= e.end && *p == Prot::RW)
        {
            made = true;
            self.host.advise(r.clone(), abi::linux::MADV_POPULATE_WRITE);
        }
        // Frames that were just in use, or are made now, are in memory whoever touches them.
        let fresh = |(at, n)| !self.clas.was_written(at, n);
        let seen = !made && self.pmas.frames_of(&r).is_some_and(fresh);
        let t = &mut self.touch;
        (t.last, t.unseen) = if seen {
            (Some(r), 0)
        } else {
            (None, t.unseen + 1)
        };
    }

    /// A new mapping of a file: mapped at once, if those before were read soon.
    pub(crate) fn file_mapped(&mut self, r: &Range<u64>, vma: &Vma) {
        if vma.is_shared() || vma.prot != Prot::READ || r.end - r.start > FILE_MAX || !self.running
        {
            return;
        }
        let f = &mut self.files;
        if f.last.take().is_some() {
            f.score = (f.score - 1).max(-2);
        }
        f.count = (f.count + 1) % FILE_TEST;
        if f.score >= 2 && f.count != 0 {
            let _ = self.guess_pma(r.start, r, vma, false);
            self.host_map(r.clone());
        } else {
            f.last = Some(r.clone());
        }
    }

    /// Something of a file is touched that was not mapped.
    pub(crate) fn file_touched(&mut self, va: u64) {
        let f = &mut self.files;
        if f.last.as_ref().is_some_and(|r| r.contains(&va)) {
            f.last = None;
            f.score = (f.score + 1).min(3);
        }
    }

    /// Memory that was not mapped is touched.
    pub(crate) fn touched_late(&mut self) {
        self.touch.probe = None;
        self.touch.score = (self.touch.score + 2).min(TOUCH_MAX);
    }

    /// Before `r` goes: what became of it?
    pub(crate) fn judge_before(&mut self, r: &Range<u64>) {
        let hit = |l: &Range<u64>| l.start < r.end && r.start < l.end;
        let t = &self.touch;
        if t.last.iter().chain(&t.probe).any(hit) {
            self.judge_last();
        }
    }

    fn judge_last(&mut self) {
        let t = &mut self.touch;
        if t.probe.take().is_some() {
            // Two of these, and it is not expected any more.
            t.score = (t.score - 2).max(-TOUCH_MAX);
            t.unseen = UNSEEN_MAX;
            t.full = 0;
        }
        let Some(last) = self.touch.last.take() else {
            return;
        };
        let Some((at, pages)) = self.pmas.frames_of(&last) else {
            return;
        };
        let step = if !self.clas.was_written(at, pages) {
            -1
        } else {
            1
        };
        let large = pages * crate::PAGE >= FULL_MIN;
        self.touch.full = if step > 0 && large && self.clas.is_full(at, pages) {
            (self.touch.full + 1).min(2)
        } else {
            0
        };
        self.touch.score = (self.touch.score + step).clamp(-TOUCH_MAX, TOUCH_MAX);
    }

    /// How much a copy on write at `va` copies of `r`.
    pub(crate) fn copy_part(&mut self, va: u64, r: &Range<u64>, least: u64) -> Range<u64> {
        let page = va & !(crate::PAGE - 1);
        let least = least.max(COPY);
        let part = if self.copied.end == page {
            let len = (self.copied.len * 2).min(COPY_MAX);
            page..r.end.min(page.saturating_add(len))
        } else {
            crate::pma::window(va, least, r)
        };
        self.copied = Run {
            end: part.end,
            len: (part.end - part.start).max(least),
        };
        part
    }

    /// What is mapped for a touch at `va` of private anonymous memory, of which `hole` is not mapped: where it is
    /// being filled upwards, a longer step than the last, in huge pages; else what is around.
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
        // (What lay below may have been unmapped since.)
        let filled = if self.grown.end == around.start {
            self.grown.len.min(around.start - below.start)
        } else {
            STEP
        };
        // About as long as the last step was, too.
        let len = ((filled / AHEAD) & !(STEP - 1)).clamp(STEP, STEP_MAX);
        let last = below.start.max(around.start.saturating_sub(len))..around.start;
        if !self.is_filled(&last, &pma.after(last.start - below.start)) {
            return around;
        }
        let mut end = around.start;
        let mut first = None;
        let to = (around.start & !(STEP - 1))
            .saturating_add(len)
            .min(hole.end);
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
            self.clas.make_huge(at, at.add(run));
        }
        let len = filled + end.saturating_sub(around.start);
        self.grown = Run { end, len };
        around.start..end.max(around.end)
    }

    /// Whether `r`, which this PMA is, is ours alone, and nearly all written.
    fn is_filled(&self, r: &Range<u64>, pma: &Pma) -> bool {
        let len = r.end - r.start;
        let dense = |at| self.clas.is_dense(at, len);
        pma.writable() && len >= STEP / 2 && pma.frames().is_some_and(dense)
    }

    /// The mappings that belong to the same library as `vma` at `vr`, with it; empty if it is no library's, or
    /// was used already.
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

    /// Notes a fault, if it is one of the first after a fork.
    pub(crate) fn note_fault(&mut self, va: u64, access: Access) {
        if let Some(n) = self.watched.checked_sub(1) {
            self.watched = n;
            self.family.lock().note(va, access == Access::Write);
        }
    }

    /// Copies of the places that are written after forks, for the child; what is ours alone stays so.
    pub(crate) fn copies_for_fork(
        &mut self,
        spots: &[(Range<u64>, bool)],
    ) -> Vec<(Range<u64>, Cla)> {
        let mut out = Vec::new();
        for (spot, _) in spots.iter().filter(|s| s.1) {
            let found: SmallVec<[(Range<u64>, Cla); 2]> = self
                .pmas
                .range(spot.clone())
                .filter(|(_, p)| !p.is_file())
                .filter_map(|(r, p)| {
                    let part = r.start.max(spot.start)..r.end.min(spot.end);
                    let at = p.after(part.start - r.start).frames()?;
                    // Of one mapping, so that it is inherited as a whole or not at all.
                    let (v, _) = self.vmas.get(part.start)?;
                    (part.end <= v.end).then_some((part, at))
                })
                .collect();
            for (part, at) in found {
                let pages = (part.end - part.start) / crate::PAGE;
                if !self.clas.was_written(at, pages) {
                    continue;
                }
                let Ok(to) = self.clas.copy_of(at, pages, Beside::default(), Wait::No) else {
                    return out;
                };
                self.pmas.cut(&part);
                out.push((part, to));
            }
        }
        out
    }
}
