//! nf_tables as netlink speaks it (`NFNL_SUBSYS_NFTABLES`): messages that change rules, all of a
//! batch or none, and messages that ask.
//!
//! ```text
//! mod      a transaction; what all messages have in common
//! tables   tables and chains
//! rules    rules
//! sets     sets and their elements
//! dump     what is told
//! news     what is told of a change
//! ```

mod dump;
mod news;
mod rules;
mod sets;
mod tables;

pub use dump::{ask, generation};
pub use news::{Tell, changes};

use crate::attr::Bag;
use crate::expr::{Fresh, NAME, Scope};
use crate::table::{Base, Family, Ruleset, Table};
use abi::Result;
use abi::errno::{E2BIG, EAFNOSUPPORT, EBUSY, EINVAL, ENOENT, ENOMEM, EOPNOTSUPP};
use std::collections::HashSet;
use std::sync::Arc;

pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_EXCL: u16 = 0x200;
/// Of messages that delete: nothing that has something in it.
pub const NLM_F_NONREC: u16 = 0x100;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;

/// `enum nf_tables_msg_types`.
pub mod kind {
    pub const NEWTABLE: u8 = 0;
    pub const GETTABLE: u8 = 1;
    pub const DELTABLE: u8 = 2;
    pub const NEWCHAIN: u8 = 3;
    pub const GETCHAIN: u8 = 4;
    pub const DELCHAIN: u8 = 5;
    pub const NEWRULE: u8 = 6;
    pub const GETRULE: u8 = 7;
    pub const DELRULE: u8 = 8;
    pub const NEWSET: u8 = 9;
    pub const GETSET: u8 = 10;
    pub const DELSET: u8 = 11;
    pub const NEWSETELEM: u8 = 12;
    pub const GETSETELEM: u8 = 13;
    pub const DELSETELEM: u8 = 14;
    pub const NEWGEN: u8 = 15;
    pub const GETGEN: u8 = 16;
    pub const GETOBJ: u8 = 19;
    pub const GETOBJ_RESET: u8 = 21;
    pub const GETFLOWTABLE: u8 = 23;
    pub const GETRULE_RESET: u8 = 25;
    pub const DESTROYTABLE: u8 = 26;
    pub const DESTROYCHAIN: u8 = 27;
    pub const DESTROYRULE: u8 = 28;
    pub const DESTROYSET: u8 = 29;
    pub const DESTROYSETELEM: u8 = 30;
    pub const GETSETELEM_RESET: u8 = 33;
}
use kind::*;

/// A message without its netlink header.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// [`kind`].
    pub kind: u8,
    /// `NLM_F_*`.
    pub flags: u16,
    /// `NFPROTO_*`.
    pub family: u8,
    /// Behind `struct nfgenmsg`.
    pub attrs: &'a [u8],
}

impl Message<'_> {
    fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Of those that destroy, what is not there is no error.
    fn destroys(&self) -> bool {
        (DESTROYTABLE..=DESTROYSETELEM).contains(&self.kind)
    }

    fn family(&self) -> Result<Family> {
        Family::by_number(self.family).ok_or(EAFNOSUPPORT)
    }
}

/// The most bytes of all rules of a namespace.
pub const MOST_BYTES: usize = 64 << 20;
/// How many rules are looked at for a place in a chain by one transaction: chains are lists.
const MOST_WORK: usize = 1 << 27;
/// The longest user data (`NFT_USERDATA_MAXLEN`).
const USERDATA: usize = 256;

/// Changes that hold all together or not at all.
pub struct Transaction {
    rules: Ruleset,
    fresh: Fresh,
    now: u64,
    /// Sets that elements that have ended were taken out of.
    swept: HashSet<(u64, u64)>,
    /// The rule that the last message made.
    made: Option<u64>,
    work: usize,
    /// About how many bytes have been added.
    added: usize,
}

impl Transaction {
    /// `now`: nanoseconds of the monotonic clock.
    #[must_use]
    pub fn new(rules: &Ruleset, now: u64) -> Transaction {
        Transaction {
            rules: rules.clone(),
            fresh: Fresh::default(),
            now,
            swept: HashSet::new(),
            made: None,
            work: 0,
            added: 0,
        }
    }

    /// The rules after it, which are still to be committed.
    #[must_use]
    pub fn finish(self) -> Ruleset {
        self.rules
    }

    /// The handle of the rule that the last message made.
    #[must_use]
    pub fn made(&self) -> Option<u64> {
        self.made
    }

    /// Where in a message the attribute lies that its error is about, from its first byte: its
    /// header, not its data. (`NLMSGERR_ATTR_OFFS`.)
    #[must_use]
    pub fn blamed(&self, message: &[u8]) -> Option<usize> {
        let at = self.fresh.blamed.get().checked_sub(4)?;
        let at = at.checked_sub(message.as_ptr().addr())?;
        (at < message.len()).then_some(at)
    }

    /// Does what a message says.
    pub fn apply(&mut self, m: &Message<'_>) -> Result<()> {
        self.fresh.blamed.set(0);
        self.made = None;
        self.added = self.added.saturating_add(m.attrs.len());
        if self.added > MOST_BYTES {
            return Err(ENOMEM);
        }
        let done = match m.kind {
            NEWTABLE => self.new_table(m),
            DELTABLE | DESTROYTABLE => self.delete_table(m),
            NEWCHAIN => self.new_chain(m),
            DELCHAIN | DESTROYCHAIN => self.delete_chain(m),
            NEWRULE => self.new_rule(m),
            DELRULE | DESTROYRULE => self.delete_rule(m),
            NEWSET => self.new_set(m),
            DELSET | DESTROYSET => self.delete_set(m),
            NEWSETELEM => self.new_elements(m),
            DELSETELEM | DESTROYSETELEM => self.delete_elements(m),
            // Objects and flow tables are not there.
            18 | 20 | 22 | 24 | 31 | 32 => Err(EOPNOTSUPP),
            _ => Err(EINVAL),
        };
        match done {
            Err(ENOENT) if m.destroys() => Ok(()),
            other => other,
        }
    }

    /// The place of a message's table.
    fn place(&self, m: &Message<'_>, b: &Bag<'_>, kind: u16) -> Result<usize> {
        let name = b.need_text(kind, NAME)?;
        let place = self.rules.place(m.family()?, name).ok_or(ENOENT);
        self.fresh.blame(b.address(kind), place)
    }

    fn table(&mut self, place: usize) -> Result<&mut Table> {
        self.rules
            .tables
            .get_mut(place)
            .map(Arc::make_mut)
            .ok_or(ENOENT)
    }

    /// So much has been looked at.
    fn worked(&mut self, n: usize) -> Result<()> {
        self.work = self.work.saturating_add(n);
        if self.work > MOST_WORK {
            Err(E2BIG)
        } else {
            Ok(())
        }
    }

    fn scope<'a>(
        &'a self,
        place: usize,
        base: Option<&'a Base>,
        compat: Option<(u32, u32)>,
    ) -> Result<Scope<'a>> {
        let table: &Table = self.rules.tables.get(place).ok_or(ENOENT)?;
        Ok(Scope {
            table,
            family: table.family,
            base,
            fresh: &self.fresh,
            compat,
            now: self.now,
        })
    }
}

fn userdata(b: &Bag<'_>, kind: u16) -> Result<Box<[u8]>> {
    match b.get(kind) {
        Some(d) if d.len() > USERDATA => Err(EINVAL),
        d => Ok(d.unwrap_or_default().into()),
    }
}

/// What is still used is not taken away.
fn unused(n: u32) -> Result<()> {
    if n == 0 { Ok(()) } else { Err(EBUSY) }
}
