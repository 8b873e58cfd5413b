//! What the application will do next, judged by what it did: history in, plans out. Nothing here
//! looks at memory or changes it; `prefault` asks for plans, does what they say, and tells what
//! became of it. Nothing relies on a plan: a wrong guess costs a fault, or a mapping that nobody
//! uses.
//!
//! - *New anonymous memory* ([`Touch`]): mapped at once if what was mapped so last has been
//!   written by now, else when it is touched. A program that maps and does not touch pays for no
//!   host call; one that touches what it maps, for no fault.
//! - *Files* ([`Files`]): mapped at once if those before were read soon.
//! - *Memory that is filled from one end to the other* ([`Filling`]): mapped in growing steps, and
//!   in huge pages. A large mapping that is touched here and there is mapped in small parts, and
//!   takes no more memory than it touches.
//! - *Copies on write* ([`Copies`]) that follow each other grow, too.
//! - *fork(2)* ([`AfterFork`]): where earlier children and their parents faulted ([`Hot`]) the
//!   next child gets its own copies, and host mappings, from the start.
//! - *Libraries*: the first fault in one of a library's mappings serves all of them. That needs no
//!   history: `prefault`.

use crate::PAGE;
use crate::pma::window;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// New mappings up to this length may be mapped at once; of longer ones this much by a fault.
pub(crate) const STEP: u64 = clas::HUGE;
/// Private parts of files are read from the host in larger pieces.
pub(crate) const COPY_FILE: u64 = 64 << 10;

/// What one address space's history tells.
#[derive(Default)]
pub(crate) struct Predictor {
    pub(crate) touch: Touch,
    pub(crate) files: Files,
    pub(crate) filling: Filling,
    pub(crate) copies: Copies,
    pub(crate) forks: AfterFork,
    /// A program is being loaded: nothing touches its memory yet.
    pub(crate) loading: bool,
}

/// Whether new anonymous memory will be touched soon.
pub(crate) struct Touch {
    /// From `-MOST` to `MOST`; below zero it will not.
    score: i8,
    /// When that is at its highest, one of [`Touch::TEST`] is judged.
    count: u8,
    /// What was mapped at once last, of frames that were not in memory: so that one can see
    /// whether they are written.
    last: Option<Range<u64>>,
    /// So many in a row could not be judged like that, up to [`Touch::UNSEEN_MAX`]: then one is
    /// not mapped, to see whether it is touched.
    unseen: u8,
    probe: Option<Range<u64>>,
    /// How many were written as a whole, one after the other; up to 2.
    full: u8,
}

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

/// What became of memory that was mapped at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Untouched,
    Written,
    /// All its pages are in memory, and it is of a length that counts ([`Touch::may_be_filled`]).
    Filled,
}

/// What is done with new memory that is expected to be touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtOnce {
    /// Nothing: to see whether it is touched.
    Probe,
    Map,
    /// It is mapped with all its pages.
    MapFilled,
}

impl Touch {
    const MOST: i8 = 2;
    const TEST: u8 = 4;
    const UNSEEN_MAX: u8 = 32;
    /// The longest new memory that is made as a whole, with all its pages.
    const FULL_MAX: u64 = 1 << 20;
    /// Of less, the host's faults cost no more.
    const FULL_MIN: u64 = 32 << 10;

    /// There is new memory: whether what was mapped before is to be judged first.
    pub(crate) fn is_due(&mut self) -> bool {
        self.count = (self.count + 1) % Self::TEST;
        let sure = self.score == Self::MOST && self.count != 0;
        if sure {
            (self.last, self.probe) = (None, None);
        }
        !sure
    }

    /// Whether new memory is expected to be touched.
    pub(crate) fn is_expected(&self) -> bool {
        self.score >= 0
    }

    /// What is done with `r`, which is new and expected to be touched.
    pub(crate) fn plan(&mut self, r: &Range<u64>) -> AtOnce {
        if self.unseen >= Self::UNSEEN_MAX {
            self.unseen = 0;
            self.probe = Some(r.clone());
            return AtOnce::Probe;
        }
        let len = r.end - r.start;
        if self.full >= 2 && (Self::FULL_MIN..=Self::FULL_MAX).contains(&len) {
            AtOnce::MapFilled
        } else {
            AtOnce::Map
        }
    }

    /// `r` was mapped at once, and one will see whether it is written.
    pub(crate) fn mapped(&mut self, r: Range<u64>) {
        (self.last, self.unseen) = (Some(r), 0);
    }

    /// Something was mapped at once whose frames are in memory whether it is written or not.
    pub(crate) fn mapped_unseen(&mut self) {
        (self.last, self.unseen) = (None, self.unseen + 1);
    }

    /// Whether `r` has something of what is to be judged.
    pub(crate) fn concerns(&self, r: &Range<u64>) -> bool {
        let hit = |l: &Range<u64>| l.start < r.end && r.start < l.end;
        self.last.iter().chain(&self.probe).any(hit)
    }

    /// Takes what is to be judged out: what was mapped at once last.
    pub(crate) fn take_unjudged(&mut self) -> Option<Range<u64>> {
        if self.probe.take().is_some() {
            // It has not been touched. Two of these, and it is not expected any more.
            self.score = (self.score - 2).max(-Self::MOST);
            self.unseen = Self::UNSEEN_MAX;
            self.full = 0;
        }
        self.last.take()
    }

    /// Whether memory of this length is judged by whether it is filled, too.
    pub(crate) fn may_be_filled(len: u64) -> bool {
        len >= Self::FULL_MIN
    }

    /// What [`Touch::take_unjudged`] gave has come to this.
    pub(crate) fn judge(&mut self, fate: Fate) {
        let step = if fate == Fate::Untouched { -1 } else { 1 };
        self.score = (self.score + step).clamp(-Self::MOST, Self::MOST);
        self.full = if fate == Fate::Filled {
            (self.full + 1).min(2)
        } else {
            0
        };
    }

    /// Memory that was not mapped is touched.
    pub(crate) fn touched_late(&mut self) {
        self.probe = None;
        self.score = (self.score + 2).min(Self::MOST);
    }
}

/// Whether files that are mapped are read soon. Only small ones count, and no programs and
/// libraries.
#[derive(Default)]
pub(crate) struct Files {
    /// From -2 to 3; from 2 on they are mapped at once.
    score: i8,
    /// What was mapped last, if nobody has touched it.
    last: Option<Range<u64>>,
    /// One of [`Files::TEST`] waits for its touch, to see whether things are still the same.
    count: u8,
}

impl Files {
    /// The longest file mapping that may be mapped at once.
    pub(crate) const MAX: u64 = 512 << 10;
    const TEST: u8 = 8;

    /// A file is mapped at `r`: whether it is to be mapped on the host at once.
    pub(crate) fn plan(&mut self, r: &Range<u64>) -> bool {
        if self.last.take().is_some() {
            self.score = (self.score - 1).max(-2);
        }
        self.count = (self.count + 1) % Self::TEST;
        let at_once = self.score >= 2 && self.count != 0;
        if !at_once {
            self.last = Some(r.clone());
        }
        at_once
    }

    /// Something of a file is touched that was not mapped.
    pub(crate) fn touched(&mut self, va: u64) {
        if self.last.as_ref().is_some_and(|r| r.contains(&va)) {
            self.last = None;
            self.score = (self.score + 1).min(3);
        }
    }
}

/// Where the last step of a kind ended, and how long it was.
#[derive(Default)]
struct Run {
    end: u64,
    len: u64,
}

/// Memory that is filled from one end to the other. Of its last run it knows how long all steps
/// were.
#[derive(Default)]
pub(crate) struct Filling(Run);

/// The next step, if memory is being filled.
pub(crate) struct Step {
    /// It is one if this is nearly all written.
    pub(crate) by: Range<u64>,
    /// How far it goes.
    pub(crate) to: u64,
    filled: u64,
}

impl Filling {
    /// The longest step.
    const MAX: u64 = 32 << 20;
    /// Beyond what is filled one part in so many is mapped, and may be in memory before it is
    /// touched: a container may have little more than it uses.
    const AHEAD: u64 = 8;

    /// The step at `at`, up to which memory is served from `below` on.
    pub(crate) fn plan(&self, at: u64, below: u64) -> Step {
        // (What lay below may have been unmapped since.)
        let filled = if self.0.end == at {
            self.0.len.min(at - below)
        } else {
            STEP
        };
        // About as long as the last step was, too.
        let len = ((filled / Self::AHEAD) & !(STEP - 1)).clamp(STEP, Self::MAX);
        Step {
            by: below.max(at.saturating_sub(len))..at,
            to: (at & !(STEP - 1)).saturating_add(len),
            filled,
        }
    }

    /// `plan` was carried out, up to `end`.
    pub(crate) fn grew(&mut self, plan: &Step, end: u64) {
        let len = plan.filled + end.saturating_sub(plan.by.end);
        self.0 = Run { end, len };
    }
}

/// Copies on write.
#[derive(Default)]
pub(crate) struct Copies(Run);

const _: () = assert!(Copies::LEAST > clas::JUST_COPIED * PAGE);

impl Copies {
    /// What is copied at least, and how far that grows.
    const LEAST: u64 = 16 << 10;
    const MAX: u64 = 512 << 10;

    /// How much a copy on write at `va` copies of `r`.
    pub(crate) fn plan(&mut self, va: u64, r: &Range<u64>, least: u64) -> Range<u64> {
        let page = va & !(PAGE - 1);
        let least = least.max(Self::LEAST);
        let part = if self.0.end == page {
            let len = (self.0.len * 2).min(Self::MAX);
            page..r.end.min(page.saturating_add(len))
        } else {
            window(va, least, r)
        };
        self.0 = Run {
            end: part.end,
            len: (part.end - part.start).max(least),
        };
        part
    }
}

/// What a family of processes does after forks.
#[derive(Default)]
pub(crate) struct AfterFork {
    /// Shared with all that came from the same program by fork. Its lock is a leaf.
    family: Arc<Mutex<Hot>>,
    /// So many faults are still noted there.
    watched: u8,
}

/// Places, each with whether it is written.
pub(crate) type Spots = SmallVec<[(Range<u64>, bool); 16]>;

impl AfterFork {
    /// So many faults after a fork are noted, by each side.
    const WATCHED: u8 = 24;

    /// A child is forked: gives the places where it and its parent are expected to fault.
    pub(crate) fn fork(&mut self, child: &mut AfterFork) -> Spots {
        child.family = self.family.clone();
        self.watched = Self::WATCHED;
        child.watched = Self::WATCHED;
        self.family.lock().for_fork()
    }

    /// Notes a fault, if it is one of the first after a fork.
    pub(crate) fn note(&mut self, va: u64, write: bool) {
        if let Some(n) = self.watched.checked_sub(1) {
            self.watched = n;
            self.family.lock().note(va, write);
        }
    }
}

/// Where processes of a family fault after a fork.
#[derive(Default)]
struct Hot(VecDeque<Spot>);

struct Spot {
    at: u64,
    write: bool,
    /// Forks until it is forgotten, unless a fault is seen there again.
    life: u8,
}

impl Hot {
    const MAX: usize = 40;
    /// Bits of an address that do not matter.
    const SPOT: u64 = 16 << 10;
    const LIFE: u8 = 64;

    fn note(&mut self, va: u64, write: bool) {
        let at = va & !(Self::SPOT - 1);
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
    fn for_fork(&mut self) -> Spots {
        let all = self
            .0
            .iter()
            .map(|s| (s.at..s.at + Self::SPOT, s.write))
            .collect();
        self.0.retain_mut(|s| {
            s.life -= 1;
            s.life > 0
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE;

    /// What is done with new memory, and what comes of it.
    fn map(t: &mut Touch, r: &Range<u64>, fate: Fate) -> Option<AtOnce> {
        if t.is_due() && t.take_unjudged().is_some() {
            t.judge(fate);
        }
        let plan = t.is_expected().then(|| t.plan(r));
        if matches!(plan, Some(AtOnce::Map | AtOnce::MapFilled)) {
            t.mapped(r.clone());
        }
        plan
    }

    #[test]
    fn memory_that_is_not_touched_is_not_mapped_until_some_is() {
        let mut t = Touch::default();
        let r = 0..4 * P;
        let mapped = |t: &mut Touch| map(t, &r, Fate::Untouched).is_some();
        assert_eq!((0..8).filter(|_| mapped(&mut t)).count(), 2);
        t.touched_late();
        assert!(mapped(&mut t));
    }

    #[test]
    fn memory_is_filled_where_that_before_was() {
        let mut t = Touch::default();
        let r = 0..16 * P;
        let plans: Vec<_> = (0..8)
            .filter_map(|_| map(&mut t, &r, Fate::Filled))
            .collect();
        assert_eq!(plans[0], AtOnce::Map);
        assert_eq!(plans.last(), Some(&AtOnce::MapFilled));
        // Too short, too long.
        for len in [P, 2 << 20] {
            assert_eq!(t.plan(&(0..len)), AtOnce::Map);
        }
        t.judge(Fate::Written);
        assert_eq!(t.plan(&r), AtOnce::Map);
    }

    #[test]
    fn what_cannot_be_seen_is_tried_without() {
        let mut t = Touch::default();
        let r = P..2 * P;
        for _ in 0..Touch::UNSEEN_MAX {
            assert_eq!(t.plan(&r), AtOnce::Map);
            t.mapped_unseen();
        }
        assert_eq!(t.plan(&r), AtOnce::Probe);
        assert!(t.concerns(&r) && !t.concerns(&(0..P)));
        // It was not touched.
        assert_eq!((t.take_unjudged(), t.is_expected()), (None, false));
        assert!(!t.concerns(&r));
    }

    #[test]
    fn files_are_mapped_at_once_where_those_before_were_read() {
        let mut f = Files::default();
        let r = 0..P;
        assert!(!(0..20).any(|_| f.plan(&r)));
        for _ in 0..20 {
            f.plan(&r);
            f.touched(17);
        }
        assert!((0..8).filter(|_| f.plan(&r)).count() >= 6);
        // Some wait for their touch: that is how one sees that it does not come any more.
        for _ in 0..40 {
            f.plan(&r);
        }
        assert!(!(0..20).any(|_| f.plan(&r)));
    }

    #[test]
    fn steps_are_an_eighth_of_what_is_filled() {
        let mut f = Filling::default();
        let mut at = STEP;
        for _ in 0..100 {
            let s = f.plan(at, 0);
            let len = s.to - at;
            assert!((STEP..=Filling::MAX).contains(&len));
            assert!(len <= STEP.max(at / Filling::AHEAD));
            assert_eq!(s.by, at - len..at);
            f.grew(&s, s.to);
            at = s.to;
        }
        assert_eq!(f.plan(at, 0).to, at + Filling::MAX);
        // Elsewhere it begins anew; so it does where what lay below has gone.
        assert_eq!(f.plan(at + STEP, 0).to, at + 2 * STEP);
        let s = f.plan(at, at - STEP);
        assert_eq!((s.by, s.to), (at - STEP..at, at + STEP));
    }

    #[test]
    fn copies_that_follow_each_other_grow() {
        let mut c = Copies::default();
        let r = 0..64 << 20;
        let mut at = 1 << 20;
        let mut last = 0;
        for _ in 0..10 {
            let part = c.plan(at + 5, &r, 0);
            let len = part.end - part.start;
            assert!(part.start == at && len >= last && len <= Copies::MAX);
            (at, last) = (part.end, len);
        }
        assert_eq!(last, Copies::MAX);
        let part = c.plan(7 * P, &r, COPY_FILE);
        assert_eq!(part, 0..COPY_FILE);
    }

    #[test]
    fn places_are_forgotten_and_family_is_shared() {
        let (mut a, mut b) = (AfterFork::default(), AfterFork::default());
        // Not watched.
        a.note(0, true);
        assert!(a.fork(&mut b).is_empty());
        b.note(Hot::SPOT + 1, false);
        b.note(Hot::SPOT + P, true);
        let mut c = AfterFork::default();
        let spots = a.fork(&mut c);
        assert_eq!(spots[..], [(Hot::SPOT..2 * Hot::SPOT, true)]);
        for i in 0..100 {
            c.note(i * Hot::SPOT, false);
        }
        assert!(a.fork(&mut b).len() <= AfterFork::WATCHED as usize + 1);
        for _ in 0..Hot::LIFE {
            a.fork(&mut b);
        }
        assert!(a.fork(&mut b).is_empty());
    }
}
