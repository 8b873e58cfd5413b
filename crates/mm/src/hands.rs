//! Where an address space's memory is sent out next, what came in last, and who may have its
//! frames, too: what [`crate::swap`] keeps.

use crate::{Mm, PAGE};
use clas::AccountId;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// What goes, or gets its chance, as one: bytes, a power of two.
pub(crate) const CLUSTER: u64 = 64 << 10;
/// Of a larger family, what several have is not sent out: each would be asked for each.
const KIN_MAX: usize = 64;
/// What is brought in at once, at most.
const INWARD: u64 = 16 * PAGE;

/// Where the next is sent out, and what came in last.
#[derive(Debug)]
pub(crate) struct Hands {
    pub(crate) out: u64,
    /// Somebody has looked at what was used: from then on it matters what is mapped.
    pub(crate) matters: bool,
    /// Whose frames are sent out.
    pub(crate) of: AccountId,
    /// How many frames had come that others have, too ([`clas::Clas::came_shared`]), when no stray
    /// was found.
    pub(crate) no_strays_at: u64,
    /// Where the last part that was brought in ended, and how long it was.
    came: Range<u64>,
}

impl Default for Hands {
    fn default() -> Hands {
        Hands {
            out: 0,
            matters: false,
            of: AccountId::ROOT,
            no_strays_at: 0,
            came: 0..0,
        }
    }
}

impl Hands {
    /// What of `r` is brought in for an access at `va`: its page, and twice as much as the last
    /// time where that has just been used up.
    pub(crate) fn inward(&mut self, va: u64, r: &Range<u64>) -> Range<u64> {
        let page = va & !(PAGE - 1);
        let len = if page == self.came.end {
            (2 * (self.came.end - self.came.start)).clamp(PAGE, INWARD)
        } else {
            PAGE
        };
        let part = page..(page + len).min(r.end);
        self.came = part.clone();
        part
    }
}

/// Address spaces that descend from one by fork(2), while there is more than one.
#[derive(Debug, Default)]
pub(crate) struct Kin(Mutex<Vec<Weak<Mm>>>);

impl Kin {
    /// Adds a parent and its child.
    pub(crate) fn add(&self, both: [&Weak<Mm>; 2]) {
        let mut all = self.0.lock();
        // Now and then, so that each costs little.
        if all.len().is_power_of_two() {
            all.retain(|m| m.strong_count() > 0);
        }
        for m in both {
            if !all.iter().any(|o| o.ptr_eq(m)) {
                all.push(m.clone());
            }
        }
    }

    /// Those that there are; none where they are too many to be asked.
    pub(crate) fn all(&self) -> Vec<Arc<Mm>> {
        let all = self.0.lock();
        // (One that goes meanwhile must not go here.)
        let living = all.iter().filter(|m| m.strong_count() > 0);
        if living.count() > KIN_MAX {
            return Vec::new();
        }
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The parts of `r` that lie in one cluster each.
pub(crate) fn clusters(r: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (first, end) = (r.start & !(CLUSTER - 1), r.end);
    let all = (first..end).step_by(CLUSTER as usize);
    all.map(move |c| c.max(r.start)..c.saturating_add(CLUSTER).min(end))
}
