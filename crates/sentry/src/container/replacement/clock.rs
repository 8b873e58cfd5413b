//! `clock`: one hand for the whole container. It goes round through one address space after the
//! other; what was not used since it came by the last time goes.
//!
//! So an idle process gives all that it has before a busy one gives what it uses, whatever their
//! shares; it is cheap, since nothing is remembered but the hand.

use super::{Part, Policy, Share, parts};
use mm::{Pick, SwapOut};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The address space that the hand is in, or the next one above. A leaf.
    hand: Mutex<u64>,
}

impl Clock {
    /// The hand goes round through these, twice: the first time, everything may have been used.
    pub(super) fn rounds(&self, all: &[Share], mut these: Vec<usize>) -> Vec<Part> {
        these.sort_by_key(|i| all[*i].id);
        let hand = *self.hand.lock();
        let at = these.partition_point(|i| all[*i].id < hand);
        these.rotate_left(at);
        let twice = these.iter().chain(&these).copied();
        parts(twice, |i| (all[i].above(), Pick::Lap))
    }
}

impl Policy for Clock {
    fn plan(&self, all: &[Share], _bytes: u64) -> Vec<Part> {
        self.rounds(all, (0..all.len()).collect())
    }

    fn gave(&self, id: u64, pick: Pick, sent: SwapOut) {
        if pick == Pick::Lap {
            *self.hand.lock() = id + u64::from(sent.at_end);
        }
    }
}
