//! What is looked at before a set of rules holds: circles, depth, cost, and whether expressions are
//! where they may be. All of it in time that grows with the rules, not with the ways through them.

use crate::expr::{Expr, Verdict};
use crate::table::{ChainType, Ruleset, Table};
use abi::Result;
use abi::errno::{E2BIG, EMLINK, EOPNOTSUPP};
use std::collections::{HashMap, HashSet};

/// How deep chains may lead to chains (`NFT_JUMP_STACK_SIZE`).
pub const DEEPEST: usize = 16;
/// How many steps a packet may take through the chains of a hook: a step is an expression (a look
/// at routes is many), or so many elements of a set that are looked at one by one. (Linux bounds
/// depth alone, so that sixteen chains with a hundred jumps each keep a processor busy for ever.)
pub const MOST_STEPS: u64 = 1 << 16;
/// The most base chains of a namespace.
const MOST_BASES: usize = 256;
/// The most tables.
const MOST_TABLES: usize = 256;

/// Where a chain's rules may be run: a bit for each type and hook.
pub(crate) type Places = u32;

/// The bit of a type and a hook.
pub(crate) fn place(kind: ChainType, hook: crate::packet::Hook) -> Places {
    1 << (kind as u32 * 5 + hook as u32)
}

pub(crate) fn all(r: &Ruleset) -> Result<()> {
    if r.tables.len() > MOST_TABLES {
        return Err(E2BIG);
    }
    let mut bases = 0;
    let mut steps: HashMap<crate::packet::Hook, u64> = HashMap::new();
    for t in r.all() {
        let order = order(t)?;
        let costs = costs(t, &order)?;
        places(t, &order)?;
        for c in t.chains.values() {
            let Some(b) = &c.base else { continue };
            bases += 1;
            let n = steps.entry(b.hook).or_default();
            *n = n.saturating_add(costs.get(&c.handle).map_or(0, |c| c.1));
        }
    }
    if bases > MOST_BASES || steps.values().any(|n| *n > MOST_STEPS) {
        return Err(E2BIG);
    }
    Ok(())
}

/// The chains, those that are led to before those that lead there.
fn order(t: &Table) -> Result<Vec<u64>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Entered,
        Left,
    }
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    let mut order = Vec::with_capacity(t.chains.len());
    let mut maps = Maps::default();
    for first in t.chains.keys() {
        if seen.contains_key(first) {
            continue;
        }
        let mut stack = vec![(*first, maps.targets(t, *first), 0)];
        seen.insert(*first, Seen::Entered);
        while let Some((chain, to, at)) = stack.last_mut() {
            let Some(next) = to.get(*at).copied() else {
                seen.insert(*chain, Seen::Left);
                order.push(*chain);
                stack.pop();
                continue;
            };
            *at += 1;
            match seen.get(&next) {
                // (It has no end: Linux sees that it is too deep.)
                Some(Seen::Entered) => return Err(EMLINK),
                Some(Seen::Left) => {}
                None => {
                    seen.insert(next, Seen::Entered);
                    stack.push((next, maps.targets(t, next), 0));
                }
            }
        }
    }
    Ok(order)
}

/// Where the maps of a table lead, each looked at once.
#[derive(Default)]
struct Maps(HashMap<u64, Vec<u64>>);

impl Maps {
    /// Where a chain leads, each once.
    fn targets(&mut self, t: &Table, chain: u64) -> Vec<u64> {
        let Some(c) = t.chains.get(&chain) else {
            return Vec::new();
        };
        let verdicts = c.rules.iter().flat_map(|r| r.verdicts());
        let mut to: Vec<u64> = verdicts.filter_map(Verdict::chain).collect();
        let sets: HashSet<u64> = c.rules.iter().flat_map(|r| r.sets()).collect();
        for (id, set) in sets.iter().filter_map(|id| Some((*id, t.sets.get(id)?))) {
            let of_set = self
                .0
                .entry(id)
                .or_insert_with(|| once(crate::table::set_targets(set)));
            to.extend_from_slice(of_set);
        }
        once(to.into_iter())
    }
}

fn once(all: impl Iterator<Item = u64>) -> Vec<u64> {
    let all: HashSet<u64> = all.collect();
    let mut all: Vec<u64> = all.into_iter().collect();
    all.sort_unstable();
    all
}

/// Of each chain how deep it leads, and how many steps a packet takes in it at most.
fn costs(t: &Table, order: &[u64]) -> Result<HashMap<u64, (usize, u64)>> {
    let mut all: HashMap<u64, (usize, u64)> = HashMap::new();
    // What leads on from a set: the deepest and the dearest of all that it leads to.
    let mut of_sets: HashMap<u64, (usize, u64)> = HashMap::new();
    for handle in order {
        let Some(c) = t.chains.get(handle) else {
            continue;
        };
        let (mut depth, mut steps) = (0, 0u64);
        for r in &c.rules {
            let own: u64 = r.exprs.iter().map(Expr::steps).sum();
            steps = steps.saturating_add(own.max(1));
            let mut add = |(d, s): (usize, u64)| {
                depth = depth.max(d);
                steps = steps.saturating_add(s);
            };
            for to in r.verdicts().filter_map(|v| v.chain()) {
                add(all.get(&to).copied().unwrap_or_default());
            }
            for id in r.sets() {
                let Some(set) = t.sets.get(&id) else { continue };
                let found = *of_sets.entry(id).or_insert_with(|| {
                    let worst = crate::table::set_targets(set)
                        .filter_map(|to| all.get(&to))
                        .fold((0, 0), |a: (usize, u64), b| (a.0.max(b.0), a.1.max(b.1)));
                    (worst.0, worst.1.saturating_add(set.steps()))
                });
                add(found);
            }
        }
        // (A base chain is not one that is jumped to.)
        if depth > DEEPEST {
            return Err(EMLINK);
        }
        all.insert(*handle, (depth + 1, steps));
    }
    Ok(all)
}

/// Whether all expressions are in chains that they may be in, by all ways that lead there.
fn places(t: &Table, order: &[u64]) -> Result<()> {
    let mut all: HashMap<u64, Places> = HashMap::new();
    let mut maps = Maps::default();
    for handle in order.iter().rev() {
        let Some(c) = t.chains.get(handle) else {
            continue;
        };
        let own = c.base.as_ref().map_or(0, |b| place(b.kind, b.hook));
        let here = all.get(handle).copied().unwrap_or(0) | own;
        if here == 0 {
            continue;
        }
        for r in &c.rules {
            if r.exprs.iter().any(|e: &Expr| here & !e.places() != 0) {
                return Err(EOPNOTSUPP);
            }
        }
        for to in maps.targets(t, *handle) {
            *all.entry(to).or_default() |= here;
        }
    }
    Ok(())
}
