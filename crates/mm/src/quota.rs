//! What an address space takes of what others have, too: mappings of the container's, kernel
//! memory of its user's.
//!
//! # Invariants
//!
//! - What is taken covers the VMAs and PMAs that there are: it is taken before they are made
//!   ([`Quota::take`]), and given back after they are gone ([`Quota::spare`]), both in steps.
//! - What is known of ages counts as VMAs and PMAs do; where there is no room for it, nothing is
//!   known.
//! - All of it is given back at the end ([`Quota::give_back`]).

use crate::{OWN_MAPPINGS, Result};
use abi::errno::ENOMEM;
use clas::Clas;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::ucounts::{Charge, Kind, Ucounts};

/// Mappings are taken from the container's so many at a time.
const STEP: u64 = 1024;
/// So many VMAs and PMAs are what an address space costs anyway; more are charged to its user,
/// this much each.
const OWN_ENTRIES: usize = 2048;
const ENTRY: u64 = 128;

/// What so many VMAs and PMAs are charged for: in steps, as most calls change their number.
fn entries_charged(n: usize) -> u64 {
    let more = n.saturating_sub(OWN_ENTRIES) as u64;
    more.next_multiple_of(STEP) * ENTRY
}

/// See the module's documentation.
pub(crate) struct Quota {
    /// In place of `vm.max_map_count`.
    max: Option<usize>,
    /// Mappings that it has taken from the container's.
    extra: u64,
    /// What its VMAs and PMAs take of the kernel's memory, from a user's; `None` where nobody
    /// counts.
    kmem: Option<Charge>,
    /// Of that, so many entries are what is known of ages.
    ages: usize,
}

impl Quota {
    pub(crate) fn new() -> Quota {
        Quota {
            max: None,
            extra: 0,
            kmem: None,
            ages: 0,
        }
    }

    /// What it takes of the kernel's memory is this user's from now on.
    pub(crate) fn charge_to(&mut self, user: &Arc<Ucounts>) {
        let bytes = self.kmem.as_ref().map_or(0, Charge::amount);
        self.kmem = Some(user.force(Kind::Kmem, bytes));
    }

    pub(crate) fn set_max(&mut self, n: usize) {
        self.max = Some(n);
    }

    /// In a fork's child: the limit is its parent's.
    pub(crate) fn inherit(&mut self, parent: &Quota) {
        self.max = parent.max;
    }

    /// Whether there may be `n` VMAs.
    pub(crate) fn allows(&self, n: usize) -> bool {
        let all = || crate::MAX_MAP_COUNT.load(Ordering::Relaxed) as usize;
        n <= self.max.unwrap_or_else(all)
    }

    /// Makes sure that there may be so many VMAs, and so many VMAs and PMAs.
    pub(crate) fn take(&mut self, clas: &Clas, vmas: usize, entries: usize) -> Result<()> {
        if !self.charge(entries) {
            return Err(ENOMEM);
        }
        let beyond = vmas.saturating_sub(OWN_MAPPINGS) as u64;
        if beyond > self.extra {
            // Some at a time; the last ones are asked for one by one.
            let missing = beyond - self.extra;
            let step = missing.next_multiple_of(STEP);
            let got = [step, missing].into_iter().find(|n| clas.take_mappings(*n));
            self.extra += got.ok_or(ENOMEM)?;
        }
        Ok(())
    }

    /// Makes sure that so many VMAs and PMAs are charged for, with what is known of ages.
    fn charge(&mut self, entries: usize) -> bool {
        let bytes = entries_charged(entries + self.ages);
        let fits = |c: &mut Charge| bytes <= c.amount() || c.resize(bytes);
        self.kmem.as_mut().is_none_or(fits)
    }

    /// What is known of ages takes so many entries now; false where that is too much. (Less is
    /// given back by [`Quota::spare`].)
    pub(crate) fn take_ages(&mut self, entries: usize, ages: usize) -> bool {
        self.ages = ages;
        self.charge(entries)
    }

    /// Gives back what so many do not need any more of what [`Quota::take`] took.
    pub(crate) fn spare(&mut self, clas: &Clas, vmas: usize, entries: usize) {
        let most = entries_charged(entries + self.ages + 2 * STEP as usize);
        if let Some(c) = self.kmem.as_mut().filter(|c| c.amount() > most) {
            c.set(most);
        }
        let beyond = (vmas + 3).saturating_sub(OWN_MAPPINGS) as u64;
        if self.extra > beyond + 2 * STEP {
            clas.give_mappings(self.extra - beyond);
            self.extra = beyond;
        }
    }

    /// Gives all back.
    pub(crate) fn give_back(&mut self, clas: &Clas) {
        clas.give_mappings(std::mem::take(&mut self.extra));
        self.kmem = None;
    }
}
