//! The tables of iptables' socket options (`iptables-legacy`): Linux's x_tables.
//!
//! Linux has five tables of each family (`filter`, `nat`, `mangle`, `raw`, `security`). One is
//! there from the first time that somebody asks for it by name, and has a chain for each of its
//! hooks. A program replaces a table as a whole: it gives a blob of entries, each of which has a
//! header (addresses, devices, protocol), matches, and a target. A target may be a verdict, and a
//! verdict may be the place of another entry: so chains are made, whose names are those of `ERROR`
//! targets before them. A policy (`underflow`) is an entry, too.
//!
//! ```text
//! entry    entries as they lie in a blob; their headers, which packets are compared with
//! graph    by which hooks an entry is reached; circles
//! build    a blob's checks, and the engine's rules that are made of it
//! options  the structures of the socket options
//! ```
//!
//! # What holds
//!
//! - A blob is hostile: its entries are read by [`entry::Entry::read`] alone, each once and before
//!   anything else is asked of it. Its length is at most [`MOST`].
//! - A blob that is accepted becomes rules of the engine ([`Legacy::rules`]). A run of entries that
//!   something leads to is a chain; where it ends at another one's beginning, it leads on to that.
//!   What no hook leads to has no rules.
//! - The blob is kept as programs are told it again. Counters are not in it: each entry has one,
//!   which its rule counts, and that of a hook's policy is also the chain's own, for packets that
//!   return from it.
//! - A table is never changed, but replaced, by [`crate::engine::Change::commit_legacy`]. Counters
//!   alone are changed in place.
//!
//! Beyond Linux's bounds are those of all rules ([`crate::validate`]): a table that is too deep is
//! `ELOOP`, one that costs too much `ENOMEM`.

mod build;
mod entry;
mod graph;
mod options;
#[cfg(test)]
mod tests;

pub use entry::Header;
pub use options::{
    Get, Replacement, Set, add_counters, check_counters, entries, entries_asked, info, named,
    revision,
};

use crate::packet::Hook;
use crate::table::{ChainType, Counter, Family, Table};
use abi::Result;
use std::sync::Arc;

/// The longest blob.
pub const MOST: usize = 8 << 20;

/// One of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Filter,
    Nat,
    Mangle,
    Raw,
    Security,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Filter,
        Kind::Nat,
        Kind::Mangle,
        Kind::Raw,
        Kind::Security,
    ];

    #[must_use]
    pub fn by_name(name: &[u8]) -> Option<Kind> {
        let mut all = Kind::ALL.into_iter();
        all.find(|k| k.name().as_bytes() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Filter => "filter",
            Kind::Nat => "nat",
            Kind::Mangle => "mangle",
            Kind::Raw => "raw",
            Kind::Security => "security",
        }
    }

    /// Where it has chains.
    #[must_use]
    pub fn hooks(self) -> &'static [Hook] {
        use Hook::{Forward, Input, Output, Postrouting, Prerouting};
        match self {
            Kind::Filter | Kind::Security => &[Input, Forward, Output],
            Kind::Nat => &[Prerouting, Input, Output, Postrouting],
            Kind::Mangle => &Hook::ALL,
            Kind::Raw => &[Prerouting, Output],
        }
    }

    /// The same, a bit for each.
    #[must_use]
    pub fn valid_hooks(self) -> u32 {
        self.hooks().iter().fold(0, |all, h| all | 1 << *h as u32)
    }

    /// Of what type a chain is, and when it is run (`enum nf_ip_hook_priorities`).
    #[must_use]
    fn chain(self, hook: Hook) -> (ChainType, i32) {
        match (self, hook) {
            (Kind::Filter, _) => (ChainType::Filter, 0),
            (Kind::Nat, Hook::Prerouting | Hook::Output) => (ChainType::Nat, -100),
            (Kind::Nat, _) => (ChainType::Nat, 100),
            (Kind::Mangle, Hook::Output) => (ChainType::Route, -150),
            (Kind::Mangle, _) => (ChainType::Filter, -150),
            (Kind::Raw, _) => (ChainType::Filter, -300),
            (Kind::Security, _) => (ChainType::Filter, 50),
        }
    }
}

/// A table: see the module.
pub struct Legacy {
    pub kind: Kind,
    pub family: Family,
    /// Where each hook's entries begin and where its policy is; [`NOWHERE`] for hooks that it has
    /// not.
    begins: [u32; 5],
    policies: [u32; 5],
    /// As programs are told it, without counters.
    blob: Box<[u8]>,
    /// Where its entries begin.
    places: Vec<u32>,
    counters: Vec<Arc<Counter>>,
    rules: Arc<Table>,
}

/// `hook_entry` and `underflow` of a hook that a table has not.
const NOWHERE: u32 = u32::MAX;

impl Legacy {
    /// As it is before a program has said anything: all is accepted.
    ///
    /// # Errors
    ///
    /// None that are known.
    pub fn empty(kind: Kind, family: Family) -> Result<Legacy> {
        build::empty(kind, family)
    }

    /// As the engine runs it.
    #[must_use]
    pub fn rules(&self) -> &Arc<Table> {
        &self.rules
    }

    /// About how much memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let each = size_of::<Counter>() + 32;
        self.blob.len() + self.places.len() * each + self.rules.bytes()
    }
}
