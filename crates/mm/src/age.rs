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

use crate::ages::{AGES, Ages, Seen, index, next};
use crate::hands::{CLUSTER, clusters};
use crate::pma::PmaKind;
use crate::state::State;
use crate::{Mm, PAGE};
use std::collections::HashMap;
use std::ops::Range;

impl Mm {
    /// Begins a generation. False where somebody is busy with the address space.
    pub fn age(&self) -> bool {
        let Some(mut st) = self.state.try_lock() else {
            return false;
        };
        let old = st.age();
        self.old.set(old);
        true
    }

    /// How many bytes that could be sent out were not used for one generation, for two, and for more.
    #[must_use]
    pub fn old(&self) -> [u64; AGES] {
        self.old.get()
    }
}

impl State {
    fn age(&mut self) -> [u64; AGES] {
        self.swap.matters = true;
        let generation = self.ages.generation + 1;
        let mut seen: HashMap<u64, Seen> = HashMap::with_capacity(self.ages.seen.len());
        let mut dropped: Vec<Range<u64>> = Vec::new();
        let mut old = [0; AGES];
        for (r, pma) in self.pmas.iter() {
            if !matches!(pma.kind, PmaKind::Anon | PmaKind::AnonCow) {
                continue;
            }
            for part in clusters(r) {
                if self.stays(&part) {
                    continue;
                }
                let key = part.start / CLUSTER;
                let is_mapped = self.host.overlaps(part.clone());
                // (Several PMAs may lie in one cluster.)
                let s = match seen.get(&key) {
                    Some(s) if is_mapped => Seen {
                        used: generation,
                        ..*s
                    },
                    Some(s) => *s,
                    None => next(self.ages.seen.get(&key).copied(), generation, is_mapped),
                };
                let bytes = part.end - part.start;
                if is_mapped && s.dropped {
                    dropped.push(part);
                } else if !is_mapped && s.used < generation {
                    old[index((generation - s.used) as u32)] += bytes;
                }
                seen.insert(key, s);
            }
        }
        for part in dropped {
            self.host.unmap(part);
        }
        self.host.flush();
        self.ages = Ages { generation, seen };
        old
    }

    /// Sends out up to so many bytes of what was not used for so many generations and is not mapped.
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
