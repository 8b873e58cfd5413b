//! Tables and chains.

use super::{Message, NLM_F_EXCL, NLM_F_NONREC, NLM_F_REPLACE, Transaction, unused, userdata};
use crate::attr::Bag;
use crate::expr::NAME;
use crate::packet::Hook;
use crate::table::{Base, Chain, ChainType, Counter, DORMANT, Table};
use abi::Result;
use abi::errno::{EBUSY, EEXIST, EINVAL, ENOENT, EOPNOTSUPP};
use std::collections::BTreeMap;
use std::sync::Arc;

const CHAIN_BASE: u32 = 1;
const CHAIN_BINDING: u32 = 4;

impl Transaction {
    pub(super) fn new_table(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let name = b.need_text(1, NAME)?;
        let family = m.family()?;
        let flags = b.be32(2)?.unwrap_or(0);
        if flags & !DORMANT != 0 {
            return Err(EOPNOTSUPP);
        }
        if let Some(at) = self.rules.place(family, name) {
            if m.is(NLM_F_EXCL) {
                return self.fresh.blame(b.address(1), Err(EEXIST));
            }
            if m.is(NLM_F_REPLACE) {
                return Err(EOPNOTSUPP);
            }
            if b.has(2) {
                self.table(at)?.flags = flags;
            }
            return Ok(());
        }
        let userdata = userdata(&b, 6)?;
        self.rules.last_table += 1;
        let handle = self.rules.last_table;
        self.rules.tables.push(Arc::new(Table {
            name: name.into(),
            family,
            handle,
            flags,
            userdata,
            last: 0,
            chains: BTreeMap::new(),
            chain_names: BTreeMap::new(),
            sets: BTreeMap::new(),
            set_names: BTreeMap::new(),
        }));
        Ok(())
    }

    pub(super) fn delete_table(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let name = b.text(1, NAME)?;
        let handle = b.be64(4)?;
        if name.is_none() && handle.is_none() {
            // All of a family, or of all.
            let family = match m.family {
                0 => None,
                _ => Some(m.family()?),
            };
            self.rules
                .tables
                .retain(|t| family.is_some_and(|f| f != t.family));
            return Ok(());
        }
        let family = m.family()?;
        let at = match (handle, name) {
            (Some(h), _) => {
                let is = |t: &Arc<Table>| t.family == family && t.handle == h;
                self.rules.tables.iter().position(is)
            }
            (None, Some(n)) => self.rules.place(family, n),
            (None, None) => None,
        };
        let by = if handle.is_some() { 4 } else { 1 };
        let at = self.fresh.blame(b.address(by), at.ok_or(ENOENT))?;
        let is_empty = |t: &Arc<Table>| t.chains.is_empty() && t.sets.is_empty();
        if m.is(NLM_F_NONREC) && !self.rules.tables.get(at).is_some_and(is_empty) {
            return Err(EBUSY);
        }
        self.rules.tables.remove(at);
        Ok(())
    }

    pub(super) fn new_chain(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let place = self.place(m, &b, 1)?;
        let name = b.text(3, NAME)?;
        let policy = match b.be32(5)? {
            None => None,
            Some(0) => Some(false),
            Some(1) => Some(true),
            Some(_) => return Err(EINVAL),
        };
        let table = self.table(place)?;
        let found = match (b.be64(2)?, name) {
            (Some(h), _) => Some(*table.chains.get_key_value(&h).ok_or(ENOENT)?.0),
            (None, Some(n)) => table.chain_names.get(n).copied(),
            (None, None) if b.has(11) => None,
            (None, None) => return Err(EINVAL),
        };
        if let Some(handle) = found {
            let rename = name.filter(|_| b.has(2));
            return self.change_chain(m, &b, place, (handle, rename), policy);
        }
        let base = match b.nested(4) {
            Some(h) => Some(base(&b, &h, policy.unwrap_or(true))?),
            None if policy.is_some() => return Err(EOPNOTSUPP),
            None => None,
        };
        let flags = b.be32(10)?.unwrap_or(0);
        if flags & !(CHAIN_BASE | CHAIN_BINDING) != 0 {
            return Err(EOPNOTSUPP);
        }
        let bound = flags & CHAIN_BINDING != 0;
        if bound && base.is_some() || name.is_none() && !bound {
            return Err(EINVAL);
        }
        let userdata = userdata(&b, 12)?;
        let id = b.be32(11)?;
        let table = self.table(place)?;
        let handle = table.next_handle();
        let name = name.map_or_else(|| format!("__chain{handle}"), str::to_owned);
        if table.chain_names.contains_key(&name) {
            return Err(EEXIST);
        }
        table.chain_names.insert(name.clone(), handle);
        let chain = Chain {
            name,
            handle,
            base,
            rules: Vec::new(),
            userdata,
            bound,
            led: 0,
        };
        table.chains.insert(handle, Arc::new(chain));
        let of = table.handle;
        if let Some(id) = id {
            self.fresh.chains.insert((of, id), handle);
        }
        Ok(())
    }

    /// Its policy, its counters or its name; all else stays (`nf_tables_updchain`).
    fn change_chain(
        &mut self,
        m: &Message<'_>,
        b: &Bag<'_>,
        place: usize,
        (handle, rename): (u64, Option<&str>),
        policy: Option<bool>,
    ) -> Result<()> {
        if m.is(NLM_F_EXCL) {
            return self.fresh.blame(b.address(3), Err(EEXIST));
        }
        if m.is(NLM_F_REPLACE) {
            return Err(EOPNOTSUPP);
        }
        let table = self.table(place)?;
        let chain = table.chains.get(&handle).ok_or(ENOENT)?;
        if let Some(h) = b.nested(4) {
            let is = chain.base.as_ref().ok_or(EEXIST)?;
            let want = base(b, &h, is.accepts)?;
            if (want.kind, want.hook, want.priority) != (is.kind, is.hook, is.priority) {
                return Err(EEXIST);
            }
        }
        let old = chain.name.clone();
        if let Some(new) = rename.filter(|n| *n != old) {
            if table.chain_names.contains_key(new) {
                return Err(EEXIST);
            }
            table.chain_names.remove(&old);
            table.chain_names.insert(new.into(), handle);
        }
        let counter = counter(b)?;
        let Some(c) = table.chains.get_mut(&handle).map(Arc::make_mut) else {
            return Err(ENOENT);
        };
        if let Some(new) = rename {
            c.name = new.into();
        }
        match &mut c.base {
            Some(base) => {
                base.accepts = policy.unwrap_or(base.accepts);
                if counter.is_some() {
                    base.counter = counter;
                }
                Ok(())
            }
            None if policy.is_some() => Err(EOPNOTSUPP),
            None => Ok(()),
        }
    }

    /// The chain that a message is to take away, if nothing leads there.
    fn chain_there(&mut self, place: usize, b: &Bag<'_>, empty_only: bool) -> Result<Arc<Chain>> {
        let table = self.table(place)?;
        let handle = match b.be64(2)? {
            Some(h) => h,
            None => *table.chain_names.get(b.need_text(3, NAME)?).ok_or(ENOENT)?,
        };
        let chain = table.chains.get(&handle).ok_or(ENOENT)?.clone();
        unused(chain.led)?;
        if empty_only && !chain.rules.is_empty() {
            return Err(EBUSY);
        }
        Ok(chain)
    }

    pub(super) fn delete_chain(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let place = self.place(m, &b, 1)?;
        let by = if b.has(2) { 2 } else { 3 };
        let chain = self.chain_there(place, &b, m.is(NLM_F_NONREC));
        let chain = self.fresh.blame(b.address(by), chain)?;
        let table = self.table(place)?;
        let handle = chain.handle;
        if chain.bound {
            return Err(EBUSY);
        }
        // (Its rules go with it, as Linux has it.)
        for r in &chain.rules {
            table.unlink(r.clone());
        }
        table.chains.remove(&handle);
        table.chain_names.remove(&chain.name);
        Ok(())
    }
}

/// The hook of a base chain (`NFTA_HOOK_*`).
fn base(b: &Bag<'_>, h: &Bag<'_>, accepts: bool) -> Result<Base> {
    let kind = match b.text(7, 32)?.unwrap_or("filter") {
        "filter" => ChainType::Filter,
        "route" => ChainType::Route,
        "nat" => ChainType::Nat,
        _ => return Err(ENOENT),
    };
    let hook = Hook::by_number(h.need32(1)?).ok_or(EOPNOTSUPP)?;
    let priority = h.need32(2)? as i32;
    if h.has(3) || h.has(4) {
        return Err(EOPNOTSUPP);
    }
    let fits = match kind {
        ChainType::Filter => true,
        ChainType::Route => hook == Hook::Output,
        // Below that connections are not known yet.
        ChainType::Nat if hook == Hook::Forward || priority <= -200 => false,
        ChainType::Nat => true,
    };
    if !fits {
        return Err(EOPNOTSUPP);
    }
    Ok(Base {
        kind,
        hook,
        priority,
        accepts,
        counter: counter(b)?,
    })
}

fn counter(b: &Bag<'_>) -> Result<Option<Arc<Counter>>> {
    let Some(c) = b.nested(8) else {
        return Ok(None);
    };
    let n = |kind| -> Result<u64> { Ok(c.be64(kind)?.unwrap_or(0)) };
    Ok(Some(Arc::new(Counter::new(n(2)?, n(1)?))))
}
