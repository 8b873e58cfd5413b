//! Which keys a task possesses: those that a search of its own keyrings finds
//! (`lookup_user_key_possessed`).
//!
//! Of one key it is asked from below: the keyrings that hold it, those that hold these, and so on,
//! as far as a search goes. Where too many hold it, it is asked from above. Where there are too
//! many both ways ([`VISITS_MAX`]), it is not possessed.

use crate::access::Ref;
use crate::act::Act;
use crate::key::{Key, SEARCH, Serial};
use crate::search::{Query, Target};
use crate::state::{DEPTH_MAX, VISITS_MAX};
use std::collections::{BTreeSet, VecDeque};

/// What a task possesses of keyrings, to tell of many keys whether it possesses them.
pub(crate) struct Possessed {
    own: Vec<Serial>,
    /// Those whose links a search looks at.
    looked_at: BTreeSet<Serial>,
}

impl Act<'_> {
    /// Whether a search of what is possessed goes through a key, or finds it.
    fn may_search(&self, k: Serial) -> bool {
        self.permits(Ref::possessed(k), SEARCH).is_ok()
    }
    /// Whether it looks at a keyring's links.
    fn looks_into(&self, ring: Serial) -> bool {
        let is_good = |key: &Key| !key.revoked && !key.invalidated;
        self.state.key(ring).is_ok_and(is_good) && self.may_search(ring)
    }
    /// Whether the task possesses a key.
    pub(crate) fn possesses(&self, k: Serial) -> bool {
        if !self.may_search(k) {
            return false;
        }
        self.is_below_own(k).unwrap_or_else(|| {
            let query = Query {
                target: Target::Exactly(k),
                checks_state: false,
                skips_expired: false,
            };
            self.search_own(&query).is_ok()
        })
    }
    /// Whether a way leads from a key up to one of the task's own keyrings; `None` where too many
    /// keyrings are above it.
    fn is_below_own(&self, k: Serial) -> Option<bool> {
        let own: Vec<Serial> = self.own_rings().collect();
        if own.contains(&k) {
            return Some(true);
        }
        let (mut seen, mut visits) = (BTreeSet::new(), 0);
        // By height, so that each is looked at where it is nearest.
        let mut look = VecDeque::from([(k, 0)]);
        while let Some((below, height)) = look.pop_front() {
            let parents = self.state.key(below).map(|key| &key.parents);
            for ring in parents.into_iter().flatten().copied() {
                visits += 1;
                if visits > VISITS_MAX {
                    return None;
                }
                if !seen.insert(ring) || !self.looks_into(ring) {
                    continue;
                }
                if own.contains(&ring) {
                    return Some(true);
                }
                if height < DEPTH_MAX {
                    look.push_back((ring, height + 1));
                }
            }
        }
        Some(false)
    }
    /// What the task possesses of keyrings.
    pub(crate) fn possessed(&self) -> Possessed {
        let own: Vec<Serial> = self.own_rings().collect();
        let mut looked_at = BTreeSet::new();
        let mut look: VecDeque<(Serial, usize)> = own.iter().map(|r| (*r, 0)).collect();
        let mut visits = 0;
        while let Some((k, depth)) = look.pop_front() {
            if !self.looks_into(k) || !looked_at.insert(k) || depth >= DEPTH_MAX {
                continue;
            }
            let Ok(key) = self.state.key(k) else { continue };
            for below in self.state.rings_in(key).take(VISITS_MAX - visits) {
                visits += 1;
                look.push_back((below, depth + 1));
            }
        }
        Possessed { own, looked_at }
    }
    /// Whether a key is among what is possessed. It costs what the task has, not what others have.
    pub(crate) fn is_among(&self, k: Serial, key: &Key, all: &Possessed) -> bool {
        let (some, others) = match key.parents.len() <= all.looked_at.len() {
            true => (&key.parents, &all.looked_at),
            false => (&all.looked_at, &key.parents),
        };
        self.may_search(k) && (all.own.contains(&k) || some.iter().any(|r| others.contains(r)))
    }
}
