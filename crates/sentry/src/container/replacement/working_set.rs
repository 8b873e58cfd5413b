//! `working-set`: as `lru`, and unasked: what was not used for some time goes before anybody needs
//! the room, so that a container shrinks to what it uses. Where threads stall for what comes back,
//! only what was not used for longer goes (as senpai has it).

use super::lru::Lru;
use super::{Part, Policy, Share, parts};
use mm::{Pick, SwapOut};
use std::time::Duration;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(10);
/// What was not used for so many periods goes.
const AGE: u32 = 2;
/// Threads may stall for this part of the time.
const STALLED_MAX: f64 = 0.001;

#[derive(Debug, Default)]
pub(super) struct WorkingSet {
    asked: Lru,
}

impl Policy for WorkingSet {
    fn plan(&self, all: &[Share], bytes: u64) -> Vec<Part> {
        self.asked.plan(all, bytes)
    }

    // (Generations are as long as periods: none ends because somebody needs room.)
    fn has_ages(&self) -> bool {
        true
    }

    fn gave(&self, id: u64, pick: Pick, sent: SwapOut) {
        self.asked.gave(id, pick, sent);
    }

    fn period(&self) -> Option<Duration> {
        Some(PERIOD)
    }

    fn unasked(&self, all: &[Share], stalled: f64) -> Vec<Part> {
        let age = if stalled > STALLED_MAX { AGE + 1 } else { AGE };
        parts(0..all.len(), |i| (all[i].older(age), Pick::Older(age)))
    }
}
