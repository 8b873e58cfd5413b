//! How long memory was not used, by clusters ([`crate::hands`]).
//!
//! What the host has mapped was used since its mapping was dropped the last time: an access of
//! what is not mapped costs a fault, which maps a cluster around it. [`Mm::age`] looks at each
//! cluster and drops the mappings that it finds; each call of it ends a *generation*. What stays
//! unmapped becomes older by one each time (Linux's multi-generation LRU does the same by access
//! bits: mm/vmscan.c).
//!
//! # Invariants
//!
//! - Ages are hints: a cluster that has none was used just now. Whatever they say, what is sent out
//!   is not mapped on the host, and brought back by the next access ([`crate::swap`]).
//! - What is used again and again costs a fault less and less often: a cluster that was used in
//!   each of n looks after its mapping was dropped is looked at again 2^n generations later, 32 at
//!   most ([`crate::ages`]).

use crate::ages::{AGES, Runs, index, next};
use crate::hands::{CLUSTER, clusters};
use crate::state::State;
use crate::swap::is_private;
use crate::{Mm, PAGE};
use platform::USER_MAX;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Clusters that are looked at under one lock.
const SLICE: usize = 1024;
/// How long it is waited for a busy address space that was begun with.
const PATIENCE: Duration = Duration::from_millis(2);

impl Mm {
    /// Ends a generation, or goes on with that where `until` came before its end.
    pub fn age(&self, until: Instant) {
        let mut st = self.state.try_lock();
        while let Some(mut locked) = st.take() {
            if locked.age_slice() {
                self.old.set(locked.ages.old);
                break;
            }
            drop(locked);
            if Instant::now() >= until {
                break;
            }
            st = self.state.try_lock_for(PATIENCE);
        }
    }

    /// No policy asks for ages any more.
    pub fn forget_ages(&self) {
        let mut st = self.state.lock();
        st.ages.forget();
        st.charge_ages();
        drop(st);
        self.old.set([0; AGES]);
    }

    /// How many bytes that could be sent out were not used for one generation, for two, and for
    /// more.
    #[must_use]
    pub fn old(&self) -> [u64; AGES] {
        self.old.get()
    }
}

impl State {
    /// Looks at the next clusters; whether they were the last.
    fn age_slice(&mut self) -> bool {
        let at = self.ages.at;
        if at == 0 {
            self.ages.generation += 1;
            self.ages.old = [0; AGES];
        }
        self.swap.matters = true;
        let (generation, mut old) = (self.ages.generation, self.ages.old);
        let mut made = Runs::default();
        let mut dropped: Vec<Range<u64>> = Vec::new();
        let (mut looked, mut last, mut end) = (0, None, None);
        let all = self.pmas.range(at..USER_MAX).filter(|(_, p)| is_private(p));
        let parts = all.flat_map(|(r, _)| clusters(r.start.max(at)..r.end));
        for part in parts.filter(|p| !self.stays(p)) {
            let key = part.start / CLUSTER;
            // (Several PMAs may lie in one cluster.)
            if last != Some(key) {
                looked += 1;
                if looked > SLICE {
                    end = Some(key);
                    break;
                }
            }
            last = Some(key);
            let is_mapped = self.host.overlaps(part.clone());
            let s = match made.last(key) {
                Some(s) if is_mapped => s.used_in(generation),
                Some(s) => s,
                None => next(self.ages.get(key), generation, is_mapped),
            };
            if is_mapped && s.dropped {
                dropped.push(part);
            } else if !is_mapped && s.used < generation {
                old[index((generation - s.used) as u32)] += part.end - part.start;
            }
            made.put(key, s);
        }
        for part in dropped {
            self.host.unmap(part);
        }
        self.host.flush();
        let to = end.unwrap_or(u64::MAX / CLUSTER);
        self.ages.replace(at / CLUSTER..to, made);
        if !self.charge_ages() {
            self.ages.forget();
            self.charge_ages();
        }
        self.ages.old = old;
        self.ages.at = end.map_or(0, |key| key * CLUSTER);
        end.is_none()
    }

    /// Has what is known of ages counted for the user; false where that is too much.
    fn charge_ages(&mut self) -> bool {
        let entries = self.vmas.len() + self.pmas.len();
        self.quota.take_ages(entries, self.ages.entries())
    }

    /// Sends out up to so many bytes of what was not used for so many generations and is not
    /// mapped.
    pub(crate) fn send_older(&mut self, bytes: u64, age: u32) -> u64 {
        let bytes = self.spare(bytes.next_multiple_of(PAGE));
        if bytes == 0 || !self.can_send() {
            return 0;
        }
        let found = self.look_older(bytes, age);
        let done = self.send_unused(&found, bytes);
        self.old
            .went(age, if done < bytes { u64::MAX } else { done });
        done
    }
}
