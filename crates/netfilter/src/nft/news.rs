//! What those are told who listen to changes of rules (`NFNLGRP_NFTABLES`, `nft monitor`).
//!
//! Two sets of rules are compared: parts that both share have not changed. What is gone is told
//! first, rules before what they ask and lead to; then what is new, in the order in which programs
//! make it. (Linux tells in the order of a batch's messages.)

use super::dump::{answer, chain, element, elements_of, rule, set, table};
use super::kind::*;
use super::{NLM_F_APPEND, NLM_F_CREATE};
use crate::attr::{Answer, Out};
use crate::set::Set;
use crate::table::{Chain, Rule, Ruleset, Table};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// With what a rule is told that another one takes the place of, and that other one.
const REPLACED: u16 = NLM_F_APPEND;

/// Who is told of a change: a message and its flags.
pub type Tell<'a> = &'a mut dyn FnMut(Answer, u16);

/// Tells of what has changed; elements' times are of `now`.
pub fn changes(old: &Ruleset, new: &Ruleset, now: u64, tell: Tell<'_>) {
    let by_handle = |r: &Ruleset| -> BTreeMap<u64, Arc<Table>> {
        let all = r.tables.iter().map(|t| (t.handle, t.clone()));
        all.collect()
    };
    let (before, after) = (by_handle(old), by_handle(new));
    for t in &old.tables {
        match after.get(&t.handle) {
            Some(n) if Arc::ptr_eq(n, t) => {}
            n => gone(t, n.map(|n| &**n), now, tell),
        }
    }
    for t in &new.tables {
        match before.get(&t.handle) {
            Some(o) if Arc::ptr_eq(o, t) => {}
            o => made(o.map(|o| &**o), t, now, tell),
        }
    }
}

/// A chain's rules, by where they are: one that takes another's place has its handle.
fn addresses(c: Option<&Arc<Chain>>) -> HashSet<*const Rule> {
    let all = c.iter().flat_map(|c| &c.rules);
    all.map(Arc::as_ptr).collect()
}

/// Whether a rule is at the place of another one, in a chain that is as long as before.
fn replaces(old: Option<&Arc<Chain>>, new: Option<&Arc<Chain>>, at: usize) -> bool {
    old.zip(new)
        .is_some_and(|(o, n)| at < o.rules.len() && o.rules.len() == n.rules.len())
}

fn gone(t: &Arc<Table>, new: Option<&Table>, now: u64, tell: Tell<'_>) {
    for c in t.chains.values() {
        let other = new.and_then(|n| n.chains.get(&c.handle));
        if other.is_some_and(|o| Arc::ptr_eq(o, c)) {
            continue;
        }
        let left = addresses(other);
        for (at, r) in c.rules.iter().enumerate() {
            if !left.contains(&Arc::as_ptr(r)) {
                let flags = if replaces(Some(c), other, at) {
                    REPLACED
                } else {
                    0
                };
                tell(of_kind(DELRULE, rule(t, c, r, None)), flags);
            }
        }
    }
    for s in t.sets.values() {
        match new.map(|n| n.sets.get(&s.shape.handle)) {
            Some(Some(n)) if Arc::ptr_eq(n, s) => {}
            Some(Some(n)) => elements(t, s, n, (DELSETELEM, 0), now, tell),
            _ => {
                let mut o = Out::default();
                o.text(1, &t.name);
                o.text(2, &s.shape.name);
                o.be64(16, s.shape.handle);
                tell(answer(DELSET, t.family, o), 0);
            }
        }
    }
    let left = |c: &&Arc<Chain>| new.is_none_or(|n| !n.chains.contains_key(&c.handle));
    for c in t.chains.values().filter(left) {
        let mut o = Out::default();
        o.text(1, &t.name);
        o.be64(2, c.handle);
        o.text(3, &c.name);
        tell(answer(DELCHAIN, t.family, o), 0);
    }
    if new.is_none() {
        let mut o = Out::default();
        o.text(1, &t.name);
        o.be64(4, t.handle);
        tell(answer(DELTABLE, t.family, o), 0);
    }
}

/// Elements of one set that another has not.
fn elements(t: &Table, s: &Set, other: &Set, how: (u8, u16), now: u64, tell: Tell<'_>) {
    for (key, e) in s.living(now) {
        if !other.elements.contains_key(key) {
            let one = element(t, s, key, e, now);
            tell(of_kind(how.0, elements_of(t, s, &[one])), how.1);
        }
    }
}

fn of_kind(kind: u8, a: Answer) -> Answer {
    Answer { kind, ..a }
}

/// Whether a chain itself has changed, not what is in it or leads to it.
fn is_changed(o: &Chain, n: &Chain) -> bool {
    let base = |c: &Chain| {
        let b = c.base.as_ref()?;
        Some((b.hook, b.priority, b.accepts))
    };
    o.name != n.name || base(o) != base(n) || o.userdata != n.userdata
}

fn made(old: Option<&Table>, t: &Arc<Table>, now: u64, tell: Tell<'_>) {
    if old.is_none_or(|o| o.flags != t.flags) {
        tell(table(t), 0);
    }
    for c in t.chains.values() {
        match old.and_then(|o| o.chains.get(&c.handle)) {
            None => tell(chain(t, c), NLM_F_CREATE),
            Some(o) if is_changed(o, c) => tell(chain(t, c), 0),
            Some(_) => {}
        }
    }
    for s in t.sets.values() {
        let other = old.and_then(|o| o.sets.get(&s.shape.handle));
        let how = (NEWSETELEM, NLM_F_CREATE);
        match other {
            Some(o) if Arc::ptr_eq(o, s) => {}
            Some(o) => elements(t, s, o, how, now, tell),
            None => {
                tell(set(t, s), NLM_F_CREATE);
                for (key, e) in s.living(now) {
                    let one = element(t, s, key, e, now);
                    tell(elements_of(t, s, &[one]), NLM_F_CREATE);
                }
            }
        }
    }
    for c in t.chains.values() {
        let other = old.and_then(|o| o.chains.get(&c.handle));
        if other.is_none_or(|o| !Arc::ptr_eq(o, c)) {
            rules(t, c, other, tell);
        }
    }
}

/// A chain's rules that are new.
fn rules(t: &Table, c: &Arc<Chain>, old: Option<&Arc<Chain>>, tell: Tell<'_>) {
    let there = addresses(old);
    // From where on none was there before: what is there has been appended.
    let last = c
        .rules
        .iter()
        .rposition(|r| there.contains(&Arc::as_ptr(r)));
    let mut before = None;
    for (at, r) in c.rules.iter().enumerate() {
        if !there.contains(&Arc::as_ptr(r)) {
            let flags = if replaces(old, Some(c), at) {
                REPLACED
            } else if last.is_some_and(|n| at < n) {
                NLM_F_CREATE
            } else {
                NLM_F_CREATE | NLM_F_APPEND
            };
            // (The first and the last one need no other to tell where they are.)
            let between = before.filter(|_| at + 1 < c.rules.len());
            tell(rule(t, c, r, between), flags);
        }
        before = Some(r.handle);
    }
}
