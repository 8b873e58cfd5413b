//! What is told of rules.

use super::Message;
use super::kind::*;
use super::sets::{VERDICT, key_of};
use crate::attr::{Answer, Attrs, Bag, Out, Selection};
use crate::expr::{NAME, put_value};
use crate::set::{CATCHALL, END, Element, Key, Place, Set};
use crate::table::{Chain, Family, Rule, Ruleset, Table};
use abi::Result;
use abi::errno::{EINVAL, ENOENT, EOPNOTSUPP};
use std::sync::Arc;

pub(super) fn answer(kind: u8, family: Family, o: Out) -> Answer {
    Answer {
        kind,
        family: family as u8,
        attrs: o.0,
    }
}

/// How many bytes of elements one message has.
const ELEMENTS: usize = 16_000;

/// The answers to a message that asks. `pid`, `name`: who asks.
pub fn ask(
    r: &Ruleset,
    m: &Message<'_>,
    asked: Selection,
    now: u64,
    (pid, name): (u32, &str),
) -> Result<Vec<Answer>> {
    let (b, all) = (Bag::new(m.attrs), asked == Selection::All);
    match m.kind {
        GETGEN => Ok(vec![generation(r.generation, m.family, (pid, name))]),
        GETTABLE if all => Ok(tables(r, m).map(table).collect()),
        GETTABLE => Ok(vec![table(one_table(r, m, &b)?)]),
        GETCHAIN if all => {
            let named = b.text(1, NAME)?;
            let all = tables(r, m).filter(|t| named.is_none_or(|n| n == t.name));
            Ok(all
                .flat_map(|t| t.chains.values().map(|c| chain(t, c)))
                .collect())
        }
        GETCHAIN => {
            let t = one_table(r, m, &b)?;
            let c = match b.be64(2)? {
                Some(h) => t.chains.get(&h),
                None => t.chain(b.need_text(3, NAME)?),
            };
            Ok(vec![chain(t, c.ok_or(ENOENT)?)])
        }
        GETRULE | GETRULE_RESET => rules(r, m, &b, asked),
        GETSET if all => {
            let named = b.text(1, NAME)?;
            let all = tables(r, m).filter(|t| named.is_none_or(|n| n == t.name));
            Ok(all
                .flat_map(|t| t.sets.values().map(|s| set(t, s)))
                .collect())
        }
        GETSET => {
            let t = one_table(r, m, &b)?;
            let s = match b.be64(16)? {
                Some(h) => t.sets.get(&h),
                None => t.set(b.need_text(2, NAME)?),
            };
            Ok(vec![set(t, s.ok_or(ENOENT)?)])
        }
        GETSETELEM | GETSETELEM_RESET => elements(r, m, &b, asked, now),
        // There are none.
        GETOBJ | GETOBJ_RESET | GETFLOWTABLE if all => Ok(Vec::new()),
        GETOBJ | GETOBJ_RESET | GETFLOWTABLE => Err(ENOENT),
        _ => Err(EOPNOTSUPP),
    }
}

/// Which generation of rules it is; who has made it, or asks.
#[must_use]
pub fn generation(n: u32, family: u8, (pid, name): (u32, &str)) -> Answer {
    let mut o = Out::default();
    o.be32(1, n);
    o.be32(2, pid);
    o.text(3, name);
    Answer {
        kind: NEWGEN,
        family,
        attrs: o.0,
    }
}

fn tables<'a>(r: &'a Ruleset, m: &Message<'_>) -> impl Iterator<Item = &'a Arc<Table>> {
    let family = m.family;
    r.tables
        .iter()
        .filter(move |t| family == 0 || t.family as u8 == family)
}

fn one_table<'a>(r: &'a Ruleset, m: &Message<'_>, b: &Bag<'_>) -> Result<&'a Arc<Table>> {
    let name = b.need_text(1, NAME)?;
    r.table(m.family()?, name).ok_or(ENOENT)
}

pub(super) fn table(t: &Arc<Table>) -> Answer {
    let mut o = Out::default();
    o.text(1, &t.name);
    o.be32(2, t.flags);
    o.be32(3, (t.chains.len() + t.sets.len()) as u32);
    o.be64(4, t.handle);
    if !t.userdata.is_empty() {
        o.put(6, &t.userdata);
    }
    answer(NEWTABLE, t.family, o)
}

pub(super) fn chain(t: &Table, c: &Chain) -> Answer {
    let mut o = Out::default();
    o.text(1, &t.name);
    o.be64(2, c.handle);
    o.text(3, &c.name);
    let mut flags = if c.bound { 4 } else { 0 };
    if let Some(b) = &c.base {
        o.nest(4, |o| {
            o.be32(1, b.hook as u32);
            o.be32(2, b.priority as u32);
        });
        o.be32(5, b.accepts.into());
        o.text(7, b.kind.name());
        if let Some(n) = &b.counter {
            let (packets, bytes) = n.get();
            o.nest(8, |o| {
                o.be64(1, bytes);
                o.be64(2, packets);
            });
        }
        flags |= 1;
    }
    if flags != 0 {
        o.be32(10, flags);
    }
    o.be32(6, c.led.saturating_add(c.rules.len() as u32));
    if !c.userdata.is_empty() {
        o.put(12, &c.userdata);
    }
    answer(NEWCHAIN, t.family, o)
}

pub(super) fn rule(t: &Table, c: &Chain, r: &Rule, before: Option<u64>) -> Answer {
    let mut o = Out::default();
    o.text(1, &t.name);
    o.text(2, &c.name);
    o.be64(3, r.handle);
    if let Some(h) = before {
        o.be64(6, h);
    }
    o.nest(4, |o| {
        for e in &r.exprs {
            o.nest(1, |o| e.write(o, t));
        }
    });
    if !r.userdata.is_empty() {
        o.put(7, &r.userdata);
    }
    answer(NEWRULE, t.family, o)
}

fn rules(r: &Ruleset, m: &Message<'_>, b: &Bag<'_>, asked: Selection) -> Result<Vec<Answer>> {
    let (of_table, of_chain) = (b.text(1, NAME)?, b.text(2, NAME)?);
    let reset = |r: &Rule| {
        if m.kind == GETRULE_RESET {
            r.exprs.iter().for_each(|e| e.reset());
        }
    };
    if asked == Selection::One {
        let t = one_table(r, m, b)?;
        let c = t.chain(of_chain.ok_or(EINVAL)?).ok_or(ENOENT)?;
        let handle = b.be64(3)?.ok_or(EINVAL)?;
        let found = c.rules.iter().find(|r| r.handle == handle).ok_or(ENOENT)?;
        let told = rule(t, c, found, None);
        reset(found);
        return Ok(vec![told]);
    }
    let mut told = Vec::new();
    for t in tables(r, m).filter(|t| of_table.is_none_or(|n| n == t.name)) {
        let named = of_chain.filter(|_| of_table.is_some());
        for c in t
            .chains
            .values()
            .filter(|c| named.is_none_or(|n| n == c.name))
        {
            let mut before = None;
            for r in &c.rules {
                told.push(rule(t, c, r, before));
                reset(r);
                before = Some(r.handle);
            }
        }
    }
    Ok(told)
}

pub(super) fn set(t: &Table, s: &Set) -> Answer {
    let mut o = Out::default();
    let f = &s.shape;
    o.text(1, &t.name);
    o.text(2, &f.name);
    o.be64(16, f.handle);
    if f.flags != 0 {
        o.be32(3, f.flags);
    }
    o.be32(4, f.key_type);
    o.be32(5, f.key_len as u32);
    if s.is(crate::set::MAP) {
        o.be32(6, f.data_type.unwrap_or(VERDICT));
        let of_verdict = size_of::<u64>() * 2;
        o.be32(7, f.data_type.map_or(of_verdict, |_| f.data_len) as u32);
    }
    if f.timeout != 0 {
        o.be64(11, f.timeout);
    }
    if f.gc != 0 {
        o.be32(12, f.gc);
    }
    if f.policy != 0 {
        o.be32(8, f.policy);
    }
    if !f.userdata.is_empty() {
        o.put(13, &f.userdata);
    }
    o.nest(9, |o| {
        if f.size != 0 {
            o.be32(1, f.size);
        }
        if f.fields.len() > 1 {
            o.nest(2, |o| {
                for n in &f.fields {
                    o.nest(1, |o| o.be32(1, *n));
                }
            });
        }
    });
    answer(NEWSET, t.family, o)
}

pub(super) fn element(t: &Table, s: &Set, key: &Key, e: &Element, now: u64) -> Out {
    let mut o = Out::default();
    if key.place != Place::CatchAll {
        put_value(&mut o, 1, &key.at);
    }
    if let Some(last) = &key.last {
        put_value(&mut o, 10, last);
    }
    if let Some(d) = &e.data {
        o.nest(2, |o| d.write(o, t));
    }
    match &e.exprs[..] {
        [] => {}
        [one] => o.nest(7, |o| one.write(o, t)),
        all => o.nest(11, |o| {
            for x in all {
                o.nest(1, |o| x.write(o, t));
            }
        }),
    }
    match key.place {
        Place::End => o.be32(3, END),
        Place::CatchAll => o.be32(3, CATCHALL),
        Place::Start => {}
    }
    if let Some(n) = e.timeout.filter(|n| *n != s.shape.timeout) {
        o.be64(4, n);
    }
    if let Some(at) = e.expires {
        o.be64(5, at.saturating_sub(now) / 1_000_000);
    }
    if !e.userdata.is_empty() {
        o.put(6, &e.userdata);
    }
    o
}

fn elements(
    r: &Ruleset,
    m: &Message<'_>,
    b: &Bag<'_>,
    asked: Selection,
    now: u64,
) -> Result<Vec<Answer>> {
    let t = one_table(r, m, b)?;
    let s = t.set(b.need_text(2, NAME)?).ok_or(ENOENT)?;
    let message = |list: &[Out]| elements_of(t, s, list);
    let reset = |e: &Element| {
        if m.kind == GETSETELEM_RESET {
            e.exprs.iter().for_each(|x| x.reset());
        }
    };
    if asked == Selection::One {
        let mut told = Vec::new();
        for (_, one) in Attrs(b.need(3)?) {
            let key = key_of(&s.shape, &Bag::new(one))?;
            let (key, e) = get(s, &key, now).ok_or(ENOENT)?;
            told.push(message(&[element(t, s, key, e, now)]));
            reset(e);
        }
        return Ok(told);
    }
    let mut told = Vec::new();
    let (mut list, mut bytes) = (Vec::new(), 0);
    for (key, e) in s.living(now) {
        let one = element(t, s, key, e, now);
        reset(e);
        bytes += one.0.len() + 4;
        list.push(one);
        if bytes > ELEMENTS {
            told.push(message(&list));
            (list, bytes) = (Vec::new(), 0);
        }
    }
    if !list.is_empty() || told.is_empty() {
        told.push(message(&list));
    }
    Ok(told)
}

pub(super) fn elements_of(t: &Table, s: &Set, list: &[Out]) -> Answer {
    let mut o = Out::default();
    o.text(1, &t.name);
    o.text(2, &s.shape.name);
    o.nest(3, |o| {
        for e in list {
            o.put(1 | 0x8000, &e.0);
        }
    });
    answer(NEWSETELEM, t.family, o)
}

/// The element that is there, or the interval's that a key is in.
fn get<'a>(s: &'a Set, key: &Key, now: u64) -> Option<(&'a Key, &'a Element)> {
    let exact = s.elements.get_key_value(key);
    let within = || {
        let mut before = s.elements.range::<Key, _>(..key);
        let last = before.next_back().filter(|(k, _)| k.place == Place::Start);
        last.filter(|_| s.is(crate::set::INTERVAL) && key.place == Place::Start)
    };
    exact.or_else(within).filter(|(_, e)| e.lives(now))
}
