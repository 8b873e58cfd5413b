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

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;

/// New mappings up to this length may be mapped at once; of longer ones this much by a fault.
pub(crate) const STEP: u64 = clas::HUGE;
/// The longest step.
pub(crate) const STEP_MAX: u64 = 32 << 20;
/// Beyond what is filled one part in so many is mapped, and may be in memory before it is touched: a container may have
/// little more than it uses.
pub(crate) const AHEAD: u64 = 8;
/// What a fault copies at least, and how far that grows.
pub(crate) const COPY: u64 = 16 << 10;
pub(crate) const COPY_MAX: u64 = 512 << 10;
/// Private parts of files are read from the host in larger pieces.
pub(crate) const COPY_FILE: u64 = 64 << 10;
/// Bits of an address that do not matter to [`Hot`].
pub(crate) const SPOT: u64 = 16 << 10;
/// So many faults after a fork are noted, by each side.
pub(crate) const WATCHED: u8 = 24;
/// Neighbours of a library's mapping that are looked at, in each direction.
pub(crate) const NEIGHBOURS: usize = 4;
/// A library's data is written soon after it is mapped, if it is not more than this.
pub(crate) const DATA_MAX: u64 = 64 << 10;
/// Mappings of a new program that are looked at.
pub(crate) const ALL_MAX: usize = 64;

pub(crate) const TOUCH_MAX: i8 = 2;
/// See [`Touch`].
pub(crate) const TOUCH_TEST: u8 = 4;
/// See [`Touch::unseen`].
pub(crate) const UNSEEN_MAX: u8 = 32;

/// Whether new anonymous memory will be touched soon.
pub(crate) struct Touch {
    /// From `-TOUCH_MAX` to `TOUCH_MAX`; below zero it will not.
    pub(crate) score: i8,
    /// When that is at its highest, one of so many is judged.
    pub(crate) count: u8,
    /// What was mapped at once last, of frames that were not in memory: so that one can see whether they are written.
    pub(crate) last: Option<Range<u64>>,
    /// So many in a row could not be judged like that, up to `UNSEEN_MAX`: then one is not mapped, to see whether it
    /// is touched.
    pub(crate) unseen: u8,
    pub(crate) probe: Option<Range<u64>>,
    /// How many were written as a whole, one after the other; up to 2.
    pub(crate) full: u8,
}

/// Whether files that are mapped are read soon. Only small ones count, and no programs and libraries.
#[derive(Default)]
pub(crate) struct Files {
    /// From -2 to 3; from 2 on they are mapped at once.
    pub(crate) score: i8,
    /// What was mapped last, if nobody has touched it.
    pub(crate) last: Option<Range<u64>>,
    /// One of so many waits for its touch, to see whether things are still the same.
    pub(crate) count: u8,
}

/// The longest file mapping that may be mapped at once.
pub(crate) const FILE_MAX: u64 = 512 << 10;
/// See [`Files`].
pub(crate) const FILE_TEST: u8 = 8;
/// The longest new memory that is made as a whole, with all its pages.
pub(crate) const FULL_MAX: u64 = 1 << 20;
/// Of less, the host's faults cost no more.
pub(crate) const FULL_MIN: u64 = 32 << 10;

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
    pub(crate) end: u64,
    pub(crate) len: u64,
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
