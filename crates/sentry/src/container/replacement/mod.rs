//! Which memory goes where a container, or a control group in it, has too little: replacement
//! policies, one file each (docs/replacement.md tells how to write one).
//!
//! # Invariants
//!
//! - A policy only plans: from whom, how much, and what of it ([`mm::Pick`]). It takes no locks but
//!   its own, and asks no address space. `kernel::send` carries its plans out; `kernel::reclaim`
//!   those that nobody asked for.
//! - Whatever it plans, nobody gives of what is reserved for it, and what goes is not mapped on the
//!   host: a bad plan costs time, never contents or promises.
//! - Where a plan yields too little, there is [`rest`]: everybody's, by second chance.

mod clock;
mod lru;
mod priority;
mod reservation;
mod working_set;

use config::Replacement;
use mm::{AGES, Pick, SwapOut};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// What a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    /// Its address space ([`mm::Mm::id`]).
    pub id: u64,
    /// Bytes that are here.
    pub here: u64,
    /// Bytes that stay.
    pub reserve: u64,
    /// Bytes of what is here that were not used for 1, 2, and 3 or more generations; nothing where
    /// no policy has asked for ages.
    pub old: [u64; AGES],
    /// `oom_score_adj`: the higher, the less important.
    pub adj: i32,
}

impl Share {
    /// Δ: what can be taken.
    pub(crate) fn above(self) -> u64 {
        self.here.saturating_sub(self.reserve)
    }

    /// Bytes that were not used for so many generations.
    fn older(self, age: u32) -> u64 {
        let old: u64 = self.old[age as usize - 1..].iter().sum();
        old.min(self.above())
    }
}

/// What an account has too little of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    /// Bytes that are to go.
    pub bytes: u64,
    /// Bytes that it has here.
    pub here: u64,
}

/// One process is asked for so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Where it is among those that were told.
    pub who: usize,
    pub bytes: u64,
    pub pick: Pick,
}

/// See the module's documentation. There is one of its own for each account that has too little.
pub(crate) trait Policy: Debug + Send + Sync {
    /// Who is asked for how much, in this order, until `bytes` went.
    fn plan(&self, all: &[Share], bytes: u64) -> Vec<Part>;

    /// Who is asked where that was much too little; `is_late`: it has been for long, and soon a
    /// process is ended.
    fn rest(&self, all: &[Share], _is_late: bool) -> Vec<Part> {
        rest(all)
    }

    /// Whether a generation ends before the plan is made ([`mm::Mm::age`]); so much is old already.
    fn needs_ages(&self, _need: Need, _old: u64) -> bool {
        false
    }

    /// This went of the address space with this [`Share::id`], which was asked like this; not of
    /// what went unasked.
    fn gave(&self, _id: u64, _pick: Pick, _sent: SwapOut) {}

    /// How often it has memory sent out that nobody needs; a generation ends each time.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Whether ages are asked for at all.
    fn has_ages(&self) -> bool {
        false
    }

    /// What then, where threads have stalled for lack of memory for this part of the period.
    fn unasked(&self, _all: &[Share], _stalled: f64) -> Vec<Part> {
        Vec::new()
    }
}

/// All that everybody has above what is reserved.
pub(crate) fn rest(all: &[Share]) -> Vec<Part> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(all[*i].above()));
    parts(order, |i| (all[i].above(), Pick::SecondChance))
}

/// These are asked for so much, but for those that have nothing.
fn parts(order: impl IntoIterator<Item = usize>, part: impl Fn(usize) -> (u64, Pick)) -> Vec<Part> {
    let all = order.into_iter().map(|who| {
        let (bytes, pick) = part(who);
        Part { who, bytes, pick }
    });
    all.filter(|p| p.bytes > 0).collect()
}

/// The policy of this name.
pub(crate) fn policy(name: Replacement) -> Arc<dyn Policy> {
    match name {
        Replacement::Reservation => Arc::<reservation::Reservation>::default(),
        Replacement::Lru => Arc::<lru::Lru>::default(),
        Replacement::Clock => Arc::<clock::Clock>::default(),
        Replacement::Priority => Arc::<priority::Priority>::default(),
        Replacement::WorkingSet => Arc::<working_set::WorkingSet>::default(),
    }
}

#[cfg(test)]
mod tests;
