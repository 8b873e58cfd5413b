//! `lru`: what was not used for longest goes first, whose it may be (Linux's multi-generation LRU,
//! mm/vmscan.c, in the large).
//!
//! Ages are those of [`mm::Mm::age`]. A generation ends where nothing is left that is older than
//! the last one, but only after a part of all memory went since: looking at it costs as much as
//! there is.

use super::clock::Clock;
use super::{Need, Part, Policy, Share, parts};
use mm::{AGES, Pick, SwapOut};
use std::sync::atomic::{AtomicU64, Ordering};

/// A generation ends after this part of what is here went, at the earliest.
const PARTS: u64 = 16;

#[derive(Debug, Default)]
pub(super) struct Lru {
    /// Takes what is left to be taken where all is young.
    clock: Clock,
    /// Bytes that went since the last generation ended. Atomic.
    went: AtomicU64,
}

impl Policy for Lru {
    fn plan(&self, all: &[Share], bytes: u64) -> Vec<Part> {
        let mut out = oldest_first(all);
        out.extend(self.clock.plan(all, bytes));
        out
    }

    fn has_ages(&self) -> bool {
        true
    }

    fn needs_ages(&self, need: Need, old: u64) -> bool {
        let went = self.went.load(Ordering::Relaxed);
        let ends = old < need.bytes && went >= need.here / PARTS;
        if ends {
            self.went.store(0, Ordering::Relaxed);
        }
        ends
    }

    fn gave(&self, id: u64, pick: Pick, sent: SwapOut) {
        self.went.fetch_add(sent.bytes, Ordering::Relaxed);
        self.clock.gave(id, pick, sent);
    }
}

/// Everybody's oldest memory, then everybody's next.
fn oldest_first(all: &[Share]) -> Vec<Part> {
    let ages = (1..=AGES as u32).rev();
    ages.flat_map(|age| parts(0..all.len(), |i| (all[i].older(age), Pick::Older(age))))
        .collect()
}
