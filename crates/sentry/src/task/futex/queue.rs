//! Who waits by one key, in the order in which they came. One of many leaves in O(log n): who is
//! woken elsewhere, or waits no more, may stand anywhere, and a bucket is everybody's.

use super::Waiter;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Waiters that are taken without an allocation: one, as a rule, under a lock of everybody's.
const FEW: usize = 8;
pub(super) type Taken = SmallVec<[Arc<Waiter>; FEW]>;

#[derive(Default)]
pub(super) struct Queue {
    /// By their places, which only grow.
    waiters: BTreeMap<u64, Arc<Waiter>>,
    next: u64,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.waiters.values()
    }
    pub(super) fn push(&mut self, w: Arc<Waiter>) {
        w.place.store(self.next, Ordering::Relaxed);
        self.waiters.insert(self.next, w);
        self.next += 1;
    }
    pub(super) fn pop(&mut self) -> Option<Arc<Waiter>> {
        self.waiters.pop_first().map(|(_, w)| w)
    }
    /// Takes it out, if it is there.
    pub(super) fn remove(&mut self, w: &Arc<Waiter>) {
        let place = w.place.load(Ordering::Relaxed);
        if self.waiters.get(&place).is_some_and(|x| Arc::ptr_eq(x, w)) {
            self.waiters.remove(&place);
        }
    }
    /// Takes out up to `max` of those that `f` wants, from the first on, as long as it goes on.
    pub(super) fn take(&mut self, max: usize, mut f: impl FnMut(&Waiter) -> Wanted) -> Taken {
        let mut places = SmallVec::<[u64; FEW]>::new();
        for (place, w) in &self.waiters {
            if places.len() == max {
                break;
            }
            match f(w) {
                Wanted::Yes => places.push(*place),
                Wanted::No => {}
                Wanted::Ends => break,
            }
        }
        let taken = places.iter().map(|p| self.waiters.remove(p));
        taken.flatten().collect()
    }
}

/// Of a waiter that [`Queue::take`] comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Yes,
    No,
    /// No further.
    Ends,
}
