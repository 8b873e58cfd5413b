//! Rules.

use super::{
    Message, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Transaction, userdata,
};
use crate::attr::Bag;
use crate::expr::{NAME, read_all};
use crate::table::{Rule, Table};
use abi::Result;
use abi::errno::{E2BIG, EEXIST, EINVAL, ENOENT, EOPNOTSUPP};
use std::sync::Arc;

/// The most rules of a chain.
const MOST: usize = 1 << 16;

/// Where a rule goes.
enum Where {
    Replace(usize),
    At(usize),
    Tail,
}

impl Transaction {
    /// The chain that a message about rules names.
    fn chain_of(&mut self, place: usize, b: &Bag<'_>) -> Result<Option<u64>> {
        let found = self.find_chain(place, b);
        self.fresh.blame(b.address(2), found)
    }

    fn find_chain(&mut self, place: usize, b: &Bag<'_>) -> Result<Option<u64>> {
        let id = b.be32(11)?;
        let name = b.text(2, NAME)?;
        let of = self.table(place)?.handle;
        match (name, id) {
            (Some(n), _) => {
                let table = self.table(place)?;
                Ok(Some(*table.chain_names.get(n).ok_or(ENOENT)?))
            }
            (None, Some(id)) => {
                let handle = *self.fresh.chains.get(&(of, id)).ok_or(ENOENT)?;
                let table = self.table(place)?;
                table
                    .chains
                    .get(&handle)
                    .map(|c| Some(c.handle))
                    .ok_or(ENOENT)
            }
            (None, None) => Ok(None),
        }
    }

    /// The rule of this transaction that a number stands for.
    fn fresh_rule(&mut self, place: usize, id: u32) -> Result<u64> {
        let of = self.table(place)?.handle;
        self.fresh.rules.get(&(of, id)).copied().ok_or(ENOENT)
    }

    /// The place of a rule in its chain.
    fn find(&mut self, place: usize, chain: u64, handle: u64) -> Result<usize> {
        let c = self.table(place)?.chains.get(&chain).ok_or(ENOENT)?;
        let found = c.rules.iter().position(|r| r.handle == handle);
        let looked = found.unwrap_or(c.rules.len());
        self.worked(looked + 1)?;
        found.ok_or(ENOENT)
    }

    pub(super) fn new_rule(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let place = self.place(m, &b, 1)?;
        let chain = self.chain_of(place, &b)?.ok_or(EINVAL)?;
        let at = self.where_to(m, &b, place, chain)?;
        let compat = match b.nested(5) {
            Some(c) => Some((c.need32(1)?, c.need32(2)?)),
            None => None,
        };
        let userdata = userdata(&b, 7)?;
        let exprs = {
            let table: &Table = self.rules.tables.get(place).ok_or(ENOENT)?;
            let base = table.chains.get(&chain).and_then(|c| c.base.clone());
            let scope = self.scope(place, base.as_ref(), compat)?;
            read_all(&scope, b.get(4).unwrap_or_default())?
        };
        let table = self.table(place)?;
        // (One that takes another's place has its handle, too.)
        let replaced = match at {
            Where::Replace(n) => table.chains.get(&chain).and_then(|c| c.rules.get(n)),
            _ => None,
        };
        let handle = match replaced.map(|r| r.handle) {
            Some(handle) => handle,
            None => table.next_handle(),
        };
        self.made = Some(handle);
        let rule = Arc::new(Rule {
            handle,
            exprs,
            userdata,
        });
        self.added = self.added.saturating_add(rule.bytes());
        let table = self.table(place)?;
        table.link(&rule);
        let c = table.chain_mut(chain).ok_or(ENOENT)?;
        if c.rules.len() >= MOST {
            return Err(E2BIG);
        }
        let mut moved = 0;
        let old = match at {
            Where::Replace(n) => c.rules.get_mut(n).map(|r| std::mem::replace(r, rule)),
            Where::At(n) => {
                moved = c.rules.len().saturating_sub(n) / 8;
                c.rules.insert(n.min(c.rules.len()), rule);
                None
            }
            Where::Tail => {
                c.rules.push(rule);
                None
            }
        };
        if let Some(old) = old {
            table.unlink(old);
        }
        let of = table.handle;
        self.worked(moved)?;
        if let Some(id) = b.be32(9)? {
            self.fresh.rules.insert((of, id), handle);
        }
        Ok(())
    }

    fn where_to(
        &mut self,
        m: &Message<'_>,
        b: &Bag<'_>,
        place: usize,
        chain: u64,
    ) -> Result<Where> {
        if let Some(handle) = b.be64(3)? {
            let at = self.find(place, chain, handle);
            let at = self.fresh.blame(b.address(3), at)?;
            return match (m.is(NLM_F_EXCL), m.is(NLM_F_REPLACE)) {
                (true, _) => Err(EEXIST),
                (_, true) => Ok(Where::Replace(at)),
                _ => Err(EOPNOTSUPP),
            };
        }
        if !m.is(NLM_F_CREATE) || m.is(NLM_F_REPLACE) {
            return Err(EINVAL);
        }
        let beside = match (b.be64(6)?, b.be32(10)?) {
            (Some(handle), _) => Some(handle),
            (None, Some(id)) => Some(self.fresh_rule(place, id)?),
            (None, None) => None,
        };
        let at = match beside {
            Some(handle) => {
                let at = self.find(place, chain, handle);
                Some(self.fresh.blame(b.address(6), at)?)
            }
            None => None,
        };
        Ok(match (at, m.is(NLM_F_APPEND)) {
            (Some(n), true) => Where::At(n + 1),
            (Some(n), false) => Where::At(n),
            (None, true) => Where::Tail,
            (None, false) => Where::At(0),
        })
    }

    pub(super) fn delete_rule(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let place = self.place(m, &b, 1)?;
        let Some(chain) = self.chain_of(place, &b)? else {
            if b.has(3) || b.has(9) {
                return Err(EINVAL);
            }
            let all: Vec<u64> = self.table(place)?.chains.keys().copied().collect();
            for c in all {
                self.empty(place, c)?;
            }
            return Ok(());
        };
        let handle = match (b.be64(3)?, b.be32(9)?) {
            (Some(h), _) => h,
            (None, Some(id)) => self.fresh_rule(place, id)?,
            (None, None) => return self.empty(place, chain),
        };
        let at = self.find(place, chain, handle);
        let at = self.fresh.blame(b.address(3), at)?;
        let table = self.table(place)?;
        let c = table.chain_mut(chain).ok_or(ENOENT)?;
        let rule = c.rules.remove(at);
        let moved = (c.rules.len() - at) / 8;
        table.unlink(rule);
        self.worked(moved)
    }

    fn empty(&mut self, place: usize, chain: u64) -> Result<()> {
        let table = self.table(place)?;
        let Some(c) = table.chain_mut(chain) else {
            return Ok(());
        };
        for r in std::mem::take(&mut c.rules) {
            table.unlink(r);
        }
        Ok(())
    }
}
