//! Sets and their elements.

use super::{Message, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Transaction, unused, userdata};
use crate::attr::{Attrs, Bag};
use crate::expr::{Data, Expr, NAME, REGISTERS, Verdict};
use crate::set::{
    CATCHALL, CONCAT, CONSTANT, END, Element, Equal, INTERVAL, KNOWN, Key, MAP, Place, Set, Shape,
    TIMEOUT, start,
};
use crate::table::Table;
use abi::Result;
use abi::errno::{E2BIG, EBUSY, EEXIST, EINVAL, ENFILE, ENOENT, EOPNOTSUPP};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `NFT_DATA_VERDICT`.
pub(super) const VERDICT: u32 = 0xffff_ff00;
/// The most sets of a table.
const MOST: usize = 1 << 14;

impl Transaction {
    pub(super) fn new_set(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let place = self.place(m, &b, 1)?;
        let name = b.need_text(2, NAME)?;
        let key_len = b.need32(5)? as usize;
        let id = b.need32(10)?;
        if key_len == 0 || key_len > REGISTERS {
            return Err(EINVAL);
        }
        let flags = b.be32(3)?.unwrap_or(0);
        if flags & !KNOWN != 0 {
            return Err(EOPNOTSUPP);
        }
        if b.has(15) || b.has(17) || b.has(18) {
            return Err(EOPNOTSUPP);
        }
        let (data_type, data_len) = data_of(&b, flags)?;
        let (size, fields) = described(&b)?;
        if flags & CONCAT != 0 && !fields_fit(&fields, key_len) {
            return Err(EINVAL);
        }
        let table = self.table(place)?;
        if let Some(old) = table.set(name) {
            let is_same = same(&old.shape, flags, key_len, data_len);
            return match (m.is(NLM_F_EXCL), m.is(NLM_F_REPLACE)) {
                (false, true) => Err(EOPNOTSUPP),
                (false, false) if is_same => Ok(()),
                _ => self.fresh.blame(b.address(2), Err(EEXIST)),
            };
        }
        if !m.is(NLM_F_CREATE) {
            return Err(ENOENT);
        }
        if table.sets.len() >= MOST {
            return Err(ENFILE);
        }
        let shape = Shape {
            name: unused_name(table, name)?,
            handle: table.next_handle(),
            flags,
            key_type: b.be32(4)?.unwrap_or(0),
            key_len,
            data_type,
            data_len,
            timeout: b.be64(11)?.unwrap_or(0),
            gc: b.be32(12)?.unwrap_or(0),
            policy: b.be32(8)?.unwrap_or(0),
            size,
            fields,
            userdata: userdata(&b, 13)?,
        };
        let (of, handle) = (table.handle, shape.handle);
        table.set_names.insert(shape.name.clone(), handle);
        let set = Set {
            shape,
            elements: BTreeMap::new(),
            asked: 0,
        };
        table.sets.insert(handle, Arc::new(set));
        self.fresh.sets.insert((of, id), handle);
        Ok(())
    }

    /// The set that a message is to take away, if nothing asks it.
    fn set_there(&mut self, place: usize, b: &Bag<'_>) -> Result<Arc<Set>> {
        let table = self.table(place)?;
        let set = match b.be64(16)? {
            Some(h) => table.sets.get(&h),
            None => table.set(b.need_text(2, NAME)?),
        };
        let set = set.ok_or(ENOENT)?.clone();
        unused(set.asked)?;
        Ok(set)
    }

    pub(super) fn delete_set(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let place = self.place(m, &b, 1)?;
        let by = if b.has(16) { 16 } else { 2 };
        let set = self.set_there(place, &b);
        let set = self.fresh.blame(b.address(by), set)?;
        let table = self.table(place)?;
        leads(table, set.elements.values(), -1);
        table.sets.remove(&set.shape.handle);
        table.set_names.remove(&set.shape.name);
        Ok(())
    }

    fn set_of(&mut self, place: usize, b: &Bag<'_>) -> Result<u64> {
        let table = self.table(place)?;
        let of = table.handle;
        if let Some(s) = table.set(b.need_text(2, NAME)?) {
            return Ok(s.shape.handle);
        }
        let id = b.be32(4)?.ok_or(ENOENT)?;
        let handle = *self.fresh.sets.get(&(of, id)).ok_or(ENOENT)?;
        let known = self.table(place)?.sets.contains_key(&handle);
        if known { Ok(handle) } else { Err(ENOENT) }
    }

    /// The set whose elements a message changes: its table's place, its handle, its shape.
    fn changing(&mut self, m: &Message<'_>, b: &Bag<'_>) -> Result<(usize, u64, Shape)> {
        let place = self.place(m, b, 1)?;
        let handle = self.set_of(place, b);
        let handle = self.fresh.blame(b.address(2), handle)?;
        let set = self.table(place)?.sets.get(&handle).ok_or(ENOENT)?;
        if set.is(CONSTANT) && set.asked > 0 {
            return Err(EBUSY);
        }
        // (The set itself is not kept: then its elements would be copied for each message.)
        Ok((place, handle, set.shape.clone()))
    }

    pub(super) fn new_elements(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let (place, handle, shape) = self.changing(m, &b)?;
        self.sweep(place, handle, &shape)?;
        let now = self.now;
        for (_, one) in Attrs(b.need(3)?) {
            let read = self.element(place, &shape, &Bag::new(one));
            let (key, e) = self.fresh.blame(one.as_ptr().addr(), read)?;
            self.added = self.added.saturating_add(256 + e.userdata.len());
            if self.added > super::MOST_BYTES {
                return Err(abi::errno::ENOMEM);
            }
            let to = e.data.clone();
            let table = self.table(place)?;
            let s = table.set_mut(handle).ok_or(ENOENT)?;
            let old = s.elements.get(&key).and_then(|e| e.data.clone());
            let equal = match m.is(NLM_F_EXCL) {
                true => Equal::Refuses,
                false => Equal::Stays,
            };
            let added = s.add(key, e, equal, now);
            if self.fresh.blame(one.as_ptr().addr(), added)? {
                let table = self.table(place)?;
                lead(table, old.as_ref(), -1);
                lead(table, to.as_ref(), 1);
            }
        }
        Ok(())
    }

    /// Elements that have ended make room, once in a transaction.
    fn sweep(&mut self, place: usize, handle: u64, shape: &Shape) -> Result<()> {
        let now = self.now;
        let table = self.table(place)?;
        let of = table.handle;
        if shape.flags & TIMEOUT != 0 && self.swept.insert((of, handle)) {
            let table = self.table(place)?;
            let s = table.set_mut(handle).ok_or(ENOENT)?;
            let over = s.sweep(now);
            leads(table, over.iter(), -1);
        }
        Ok(())
    }

    pub(super) fn delete_elements(&mut self, m: &Message<'_>) -> Result<()> {
        let b = Bag::new(m.attrs);
        let (place, handle, shape) = self.changing(m, &b)?;
        let Some(list) = b.get(3) else {
            let table = self.table(place)?;
            let s = table.set_mut(handle).ok_or(ENOENT)?;
            let old = std::mem::take(&mut s.elements);
            leads(table, old.values(), -1);
            return Ok(());
        };
        let now = self.now;
        for (_, one) in Attrs(list) {
            let key = key_of(&shape, &Bag::new(one))?;
            let table = self.table(place)?;
            let s = table.set_mut(handle).ok_or(ENOENT)?;
            match s.elements.remove(&key) {
                Some(old) => {
                    lead(table, old.data.as_ref(), -1);
                    if !old.lives(now) && !m.destroys() {
                        return self.fresh.blame(one.as_ptr().addr(), Err(ENOENT));
                    }
                }
                None if m.destroys() => {}
                None => return self.fresh.blame(one.as_ptr().addr(), Err(ENOENT)),
            }
        }
        Ok(())
    }

    fn element(&self, place: usize, shape: &Shape, b: &Bag<'_>) -> Result<(Key, Element)> {
        let key = key_of(shape, b)?;
        let is_end = key.place == Place::End;
        if b.has(8) {
            return Err(EOPNOTSUPP);
        }
        let scope = self.scope(place, None, None)?;
        let data = match (b.nested(2), shape.flags & MAP != 0) {
            (Some(_), false) => return Err(EINVAL),
            (Some(_), true) if is_end => return Err(EINVAL),
            (Some(d), true) => Some(data(&scope, shape, &d)?),
            (None, true) if !is_end => return Err(EINVAL),
            (None, _) => None,
        };
        let exprs = match (b.get(7), b.get(11)) {
            (Some(one), _) => vec![Expr::read(&scope, one)?],
            (None, Some(list)) => Attrs(list)
                .take(3)
                .map(|(_, one)| Expr::read(&scope, one))
                .collect::<Result<Vec<_>>>()?,
            (None, None) => Vec::new(),
        };
        // Those that keep a state of their own.
        let stateful = |e: &Expr| matches!(e, Expr::Counter(_) | Expr::Limit(_) | Expr::Quota(_));
        if !exprs.iter().all(stateful) {
            return Err(EOPNOTSUPP);
        }
        let timeout = b.be64(4)?;
        if (timeout.is_some() || b.has(5)) && shape.flags & TIMEOUT == 0 {
            return Err(EINVAL);
        }
        let lives = timeout.or(Some(shape.timeout).filter(|t| *t != 0));
        let left = b.be64(5)?.or(lives);
        let expires = left.map(|ms| self.now.saturating_add(ms.saturating_mul(1_000_000)));
        let userdata = userdata(b, 6)?;
        let e = Element {
            data,
            userdata,
            exprs: exprs.into(),
            timeout,
            expires: expires.filter(|_| shape.flags & TIMEOUT != 0),
        };
        Ok((key, e))
    }
}

/// The type and the length of a map's values.
fn data_of(b: &Bag<'_>, flags: u32) -> Result<(Option<u32>, usize)> {
    let kind = b.be32(6)?;
    if kind.is_some() != (flags & MAP != 0) {
        return Err(EINVAL);
    }
    match kind {
        // A verdict's has none.
        None | Some(VERDICT) => Ok((None, 0)),
        Some(kind) => {
            let len = b.need32(7)? as usize;
            if len == 0 || len > REGISTERS {
                return Err(EINVAL);
            }
            Ok((Some(kind), len))
        }
    }
}

/// `NFTA_SET_DESC`: for how many elements it is made, and the fields of a key.
fn described(b: &Bag<'_>) -> Result<(u32, Vec<u32>)> {
    let Some(d) = b.nested(9) else {
        return Ok((0, Vec::new()));
    };
    let mut fields = Vec::new();
    for (_, one) in Attrs(d.get(2).unwrap_or_default()) {
        if fields.len() >= 16 {
            return Err(E2BIG);
        }
        fields.push(Bag::new(one).need32(1)?);
    }
    Ok((d.be32(1)?.unwrap_or(0), fields))
}

fn fields_fit(fields: &[u32], key_len: usize) -> bool {
    let one = |n: &u32| (1..=REGISTERS as u32).contains(n);
    let words = fields.iter().map(|n| (*n as usize).next_multiple_of(4));
    fields.iter().all(one) && words.sum::<usize>() == key_len.next_multiple_of(4)
}

fn same(old: &Shape, flags: u32, key_len: usize, data_len: usize) -> bool {
    (old.flags, old.key_len, old.data_len) == (flags, key_len, data_len)
}

/// `%d` in a name stands for a number that makes it unused.
fn unused_name(table: &Table, name: &str) -> Result<String> {
    let Some((before, after)) = name.split_once("%d") else {
        return Ok(name.into());
    };
    if after.contains('%') || before.contains('%') {
        return Err(EINVAL);
    }
    // The first try is free unless names of this kind were given by hand.
    let first = table.sets.len();
    let mut all = (0..first).rev().chain(first..=2 * first + 1);
    let name = |n: usize| format!("{before}{n}{after}");
    let free = |n: &usize| !table.set_names.contains_key(&name(*n));
    let found = [first].into_iter().find(free).or_else(|| all.find(free));
    found.map(name).ok_or(ENFILE)
}

/// Where an element is (`NFTA_SET_ELEM_KEY`, `_KEY_END`, `_FLAGS`).
pub(super) fn key_of(shape: &Shape, b: &Bag<'_>) -> Result<Key> {
    let flags = b.be32(3)?.unwrap_or(0);
    if flags & !(END | CATCHALL) != 0 || flags == (END | CATCHALL) {
        return Err(EOPNOTSUPP);
    }
    if flags & CATCHALL != 0 {
        if b.has(1) {
            return Err(EINVAL);
        }
        return Ok(Key {
            at: Box::default(),
            place: Place::CatchAll,
            last: None,
        });
    }
    let key = Data::value(b, 1, Some(shape.key_len))?;
    let last = match b.has(10) {
        true => Some(Data::value(b, 10, Some(shape.key_len))?),
        false => None,
    };
    let is_range = shape.flags & INTERVAL != 0;
    let ranges = shape.has_ranges();
    match (flags & END != 0, is_range) {
        (true, false) => Err(EINVAL),
        (true, true) if ranges => Err(EINVAL),
        (true, true) => Ok(Key {
            at: key,
            place: Place::End,
            last: None,
        }),
        (false, _) if ranges => Ok(Key {
            last: Some(last.unwrap_or_else(|| key.clone())),
            at: key,
            place: Place::Start,
        }),
        (false, _) if last.is_some() => Err(EINVAL),
        (false, _) => Ok(start(&key)),
    }
}

fn data(scope: &crate::expr::Scope<'_>, shape: &Shape, d: &Bag<'_>) -> Result<Data> {
    let data = Data::read(scope, d)?;
    let fits = match (&data, shape.data_type) {
        (Data::Verdict(_), None) => true,
        (Data::Value(v), Some(_)) => v.len() == shape.data_len,
        _ => false,
    };
    if fits { Ok(data) } else { Err(EINVAL) }
}

/// A value that leads to a chain is there, or is so no more.
fn lead(table: &mut Table, data: Option<&Data>, by: i32) {
    if let Some(Data::Verdict(v)) = data
        && let Some(to) = Verdict::chain(v)
    {
        table.lead(to, by);
    }
}

fn leads<'a>(table: &mut Table, all: impl Iterator<Item = &'a Element>, by: i32) {
    for e in all {
        lead(table, e.data.as_ref(), by);
    }
}
