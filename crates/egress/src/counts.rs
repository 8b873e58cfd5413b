//! How often what was allowed and refused.

use crate::refusal::{Reason, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most names that are counted apart: what others there are is counted together.
pub const NAMES_MOST: usize = 512;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Questions for names that were asked, and those that were refused.
    pub names_asked: u64,
    pub names_refused: u64,
    /// Peers that were allowed (connections; datagrams, or flows of them), and refused.
    pub peers_allowed: u64,
    pub peers_refused: u64,
    /// Refusals by their reasons.
    pub reasons: BTreeMap<Reason, u64>,
    pub by_name: BTreeMap<String, OfName>,
    /// Of names beyond [`NAMES_MOST`].
    pub other_names: OfName,
}

/// Of a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OfName {
    pub asked: u64,
    pub allowed: u64,
    pub refused: u64,
}

impl Counts {
    fn of(&mut self, name: &str) -> &mut OfName {
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= NAMES_MOST {
                return &mut self.other_names;
            }
            self.by_name.insert(name.to_owned(), OfName::default());
        }
        self.by_name.get_mut(name).expect("it is there")
    }

    pub(crate) fn asked(&mut self, name: &str) {
        self.names_asked += 1;
        self.of(name).asked += 1;
    }

    pub(crate) fn allowed(&mut self, names: &[&str]) {
        self.peers_allowed += 1;
        for n in names {
            self.of(n).allowed += 1;
        }
    }

    /// Of names that nobody allowed only how many there were is kept: a program makes up as many as
    /// it likes.
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        let reason = match refusal {
            Refusal::Name { reason, .. } => {
                self.names_refused += 1;
                *reason
            }
            Refusal::Peer { reason, names, .. } => {
                self.peers_refused += 1;
                for n in names {
                    self.of(n).refused += 1;
                }
                *reason
            }
        };
        *self.reasons.entry(reason).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let mut c = Counts::default();
        for n in 0..2 * NAMES_MOST {
            c.asked(&format!("{n}.example.org"));
        }
        assert_eq!(c.by_name.len(), NAMES_MOST);
        assert_eq!(c.names_asked, 2 * NAMES_MOST as u64);
        assert_eq!(c.other_names.asked, NAMES_MOST as u64);
    }
}
