//! The socket options of iptables (`nf_getsockopt`, `nf_setsockopt`): tables of rules that are read
//! and replaced as a whole. [`netfilter::legacy`] knows what they mean.
//!
//! Any IP socket has them at the level of its family, and an IPv6 one that is not raw has IPv4's,
//! too. Who asks needs CAP_NET_ADMIN in the user namespace of the socket's network namespace. A
//! table is there from the first time that somebody asks for it; its memory, as that of all rules,
//! is that of the last user who has changed any.

use crate::options::Common;
use crate::socket::Socket;
use crate::sys::{AF_INET, AF_INET6, SOCK_RAW, SOL_IP, SOL_IPV6};
use abi::Result;
use abi::errno::{E2BIG, EINVAL, ELOOP, EMLINK, ENOENT, ENOMEM, EOPNOTSUPP, EPERM};
use netfilter::engine::Change;
use netfilter::legacy::{self, Get, Kind, Legacy, Replacement, Set};
use netfilter::packet::Version;
use netfilter::table::{Family, Ruleset};
use netfilter::xt::Role;
use std::sync::Arc;
use vfs::{Caps, Credentials};

/// An option that reads.
pub struct TableQuery<'a> {
    common: &'a Common,
    family: Family,
    get: Get,
}

/// An option that changes something.
pub struct TableChange<'a> {
    common: &'a Common,
    family: Family,
    set: Set,
}

/// What is to be written to the program's memory once a table is in place: the other one's
/// counters, and where.
pub struct OldCounters {
    pub to: u64,
    pub bytes: Vec<u8>,
}

impl Socket {
    /// Whose rules a level's options are about.
    fn rules_family(&self, level: i32) -> Option<Family> {
        let c = &self.common;
        let family = match (c.family, level) {
            (AF_INET, SOL_IP) => Family::V4,
            (AF_INET6, SOL_IPV6) => Family::V6,
            (AF_INET6, SOL_IP) if c.kind != SOCK_RAW => Family::V4,
            _ => return None,
        };
        c.ns.takes_rules().then_some(family)
    }

    /// What is asked of tables by an option of getsockopt(2), if it is one of these.
    #[must_use]
    pub fn table_query(&self, level: i32, name: i32) -> Option<TableQuery<'_>> {
        let family = self.rules_family(level)?;
        Some(TableQuery {
            common: &self.common,
            family,
            get: Get::by_number(family, name)?,
        })
    }

    /// The same of setsockopt(2).
    #[must_use]
    pub fn table_change(&self, level: i32, name: i32) -> Option<TableChange<'_>> {
        let family = self.rules_family(level)?;
        Some(TableChange {
            common: &self.common,
            family,
            set: Set::by_number(name)?,
        })
    }
}

fn may(common: &Common, cred: &Credentials) -> Result<()> {
    if cred.has_in(&common.ns.user, Caps::NET_ADMIN) {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// Errors of the engine's as Linux has them here.
fn of_tables(r: Result<()>) -> Result<()> {
    r.map_err(|e| match e {
        EMLINK => ELOOP,
        E2BIG => ENOMEM,
        EOPNOTSUPP => EINVAL,
        e => e,
    })
}

fn commit(common: &Common, change: &Change<'_>, new: Ruleset) -> Result<()> {
    let owner = common.user.get();
    let r = common
        .ns
        .charge_rules(new, owner, |new| change.commit_legacy(new));
    of_tables(r)
}

/// A table, which is made if it is not there yet (`xt_request_find_table_lock`).
fn table(common: &Common, change: &Change<'_>, family: Family, kind: Kind) -> Result<Arc<Legacy>> {
    let old = change.rules();
    if let Some(t) = old.legacy(family, kind) {
        return Ok(t.clone());
    }
    let t = Arc::new(Legacy::empty(kind, family)?);
    let mut new = (*old).clone();
    new.legacy.insert(0, t.clone());
    commit(common, change, new)?;
    Ok(t)
}

impl TableQuery<'_> {
    /// How many bytes are asked with, of a value that has room for `room`.
    ///
    /// # Errors
    ///
    /// `EPERM`; `EINVAL` for another length than the option's.
    pub fn asks(&self, cred: &Credentials, room: usize) -> Result<usize> {
        may(self.common, cred)?;
        self.get.asks(room)
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EAGAIN`, `EINVAL`, `EPROTONOSUPPORT`: see [`netfilter::legacy`].
    pub fn value(&self, asked: &[u8], room: usize) -> Result<Vec<u8>> {
        let (common, family) = (self.common, self.family);
        let rules = &common.ns.rules;
        match self.get {
            Get::Info => {
                let kind = legacy::named(asked)?;
                let t = table(common, &rules.change(), family, kind)?;
                Ok(legacy::info(asked, &t))
            }
            Get::Entries => {
                let size = legacy::entries_asked(asked, room)?;
                let rules = rules.rules();
                let found = rules.legacy(family, legacy::named(asked)?);
                legacy::entries(asked, size, found.ok_or(ENOENT)?)
            }
            Get::Match | Get::Target => {
                legacy::revision(asked, family, self.get)?;
                Ok(asked.to_vec())
            }
        }
    }
}

impl TableChange<'_> {
    /// The longest value: for a longer one there is no memory.
    pub const MOST: usize = legacy::MOST + 4096;
    /// How many bytes are needed for a while for each byte of a value.
    pub const WORK: u64 = 8;

    /// # Errors
    ///
    /// `EPERM`.
    pub fn may(&self, cred: &Credentials) -> Result<()> {
        may(self.common, cred)
    }

    /// Does what a value says.
    ///
    /// # Errors
    ///
    /// Those of [`Replacement::read`] and [`Replacement::instead_of`]; `ENOENT`: there is no such
    /// table; `ENOMEM`: it costs too much.
    pub fn apply(&self, v: &[u8]) -> Result<Option<OldCounters>> {
        match self.set {
            Set::Replace => self.replace(v).map(Some),
            Set::AddCounters => {
                legacy::check_counters(v)?;
                let rules = self.common.ns.rules.rules();
                let found = rules.legacy(self.family, legacy::named(v)?);
                legacy::add_counters(v, found.ok_or(ENOENT)?)?;
                Ok(None)
            }
        }
    }

    fn replace(&self, v: &[u8]) -> Result<OldCounters> {
        let new = Replacement::read(self.family, v)?;
        let to = new.counters_to;
        let kind = new.kind()?;
        let change = self.common.ns.rules.change();
        let old = table(self.common, &change, self.family, kind)?;
        let new = Arc::new(new.instead_of(&old)?);
        let mut rules = (*change.rules()).clone();
        let is_old = |t: &&mut Arc<Legacy>| Arc::ptr_eq(t, &old);
        *rules.legacy.iter_mut().find(is_old).ok_or(ENOENT)? = new;
        commit(self.common, &change, rules)?;
        drop(change);
        let bytes = old.counters();
        Ok(OldCounters { to, bytes })
    }
}

/// `/proc/net/ip_tables_names` and its kin, for a family.
pub(crate) fn proc_names(rules: &Ruleset, family: Family) -> String {
    let all = rules.legacy.iter().filter(|t| t.family == family);
    all.map(|t| format!("{}\n", t.kind.name())).collect()
}

/// `ip_tables_matches` and `ip_tables_targets`, and their kin.
pub(crate) fn proc_known(version: Version, role: Role) -> String {
    let all = netfilter::xt::all(version, role);
    all.filter(|k| !k.name.is_empty())
        .map(|k| format!("{}\n", k.name))
        .collect()
}
