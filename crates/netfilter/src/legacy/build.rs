//! A table of a blob: its checks in Linux's order (`translate_table`), then its rules.

use super::entry::{Entry, Header, Layout, PART, Part};
use super::graph::{self, Way};
use super::{Kind, Legacy, NOWHERE};
use crate::expr::{Data, Expr, Fresh, Scope, Verdict, Xt};
use crate::packet::{Hook, Version};
use crate::table::{Base, Chain, Counter, Family, Rule, Table};
use crate::xt::{self, Place, Role};
use abi::Result;
use abi::errno::EINVAL;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a program says of its blob (`struct ipt_replace`).
pub(super) struct Said {
    pub hooks: u32,
    pub entries: usize,
    pub begins: [u32; 5],
    pub policies: [u32; 5],
}

/// The table that a blob describes.
///
/// # Errors
///
/// `EINVAL` for what is malformed or may not be in this table, `ELOOP` for chains without an end,
/// those of [`xt::find`] for matches and targets that there are not.
pub(super) fn table(name: &str, family: Family, said: &Said, blob: &[u8]) -> Result<Tabled> {
    let layout = Layout::of(family);
    let entries = split(blob, layout, said.entries)?;
    let (begins, policies) = bases(&entries, said)?;
    let ways: Vec<Way> = entries.iter().map(|e| way(&entries, e)).collect();
    let hooks = graph::hooks(&ways, &begins)?;
    let nothing = Table::unnamed(family);
    let mut rules = Vec::with_capacity(entries.len());
    let counters: Vec<Arc<Counter>> = entries.iter().map(|_| Arc::default()).collect();
    for (n, e) in entries.iter().enumerate() {
        let to = Making {
            name,
            hooks: hooks[n],
            table: &nothing,
            entries: &entries,
        };
        rules.push(to.rule(e, &counters[n])?);
    }
    let mut told = blob.to_vec();
    for (e, hooks) in entries.iter().zip(&hooks) {
        clean(&mut told, e, layout, *hooks);
    }
    Ok(Tabled {
        places: entries.iter().map(|e| e.at as u32).collect(),
        begins,
        policies,
        ways,
        hooks,
        told: told.into(),
        rules,
        counters,
    })
}

/// A blob that has passed its checks.
pub(super) struct Tabled {
    places: Vec<u32>,
    /// The entries where hooks begin, and those that are their policies.
    begins: Vec<(Hook, usize)>,
    policies: Vec<(usize, bool)>,
    ways: Vec<Way>,
    /// What leads to each.
    hooks: Vec<u8>,
    told: Box<[u8]>,
    rules: Vec<Vec<Expr>>,
    counters: Vec<Arc<Counter>>,
}

fn split(blob: &[u8], layout: Layout, said: usize) -> Result<Vec<Entry<'_>>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < blob.len() {
        let e = Entry::read(blob, at, layout)?;
        at += e.len();
        all.push(e);
    }
    if all.len() != said {
        return Err(EINVAL);
    }
    Ok(all)
}

/// Which entries hooks begin with, and their policies.
type Bases = (Vec<(Hook, usize)>, Vec<(usize, bool)>);

/// Those are entries, in the hooks' order (`xt_check_table_hooks`).
fn bases(entries: &[Entry<'_>], said: &Said) -> Result<Bases> {
    let (mut begins, mut policies) = (Vec::new(), Vec::new());
    for hook in Hook::ALL {
        if said.hooks & 1 << hook as u32 == 0 {
            continue;
        }
        let begin = place(entries, said.begins[hook as usize]).ok_or(EINVAL)?;
        let policy = place(entries, said.policies[hook as usize]).ok_or(EINVAL)?;
        let accepts = entries[policy].policy().ok_or(EINVAL)?;
        let (last, last_policy) = (begins.last(), policies.last());
        if last.is_some_and(|(_, n)| *n >= begin) || last_policy.is_some_and(|(n, _)| *n >= policy)
        {
            return Err(EINVAL);
        }
        begins.push((hook, begin));
        policies.push((policy, accepts));
    }
    Ok((begins, policies))
}

/// The entry that begins there.
fn place(entries: &[Entry<'_>], at: u32) -> Option<usize> {
    entries.binary_search_by_key(&(at as usize), |e| e.at).ok()
}

fn way(entries: &[Entry<'_>], e: &Entry<'_>) -> Way {
    match e.verdict() {
        _ if e.goes_on() => Way::On,
        Some(v) if v > 0 => Way::Leads(place(entries, v as u32)),
        Some(_) if e.ends() => Way::Ends,
        _ => Way::On,
    }
}

/// What a rule is made for.
struct Making<'a> {
    name: &'a str,
    /// What leads to it.
    hooks: u8,
    table: &'a Table,
    entries: &'a [Entry<'a>],
}

impl Making<'_> {
    /// (`find_check_entry`)
    fn rule(&self, e: &Entry<'_>, counter: &Arc<Counter>) -> Result<Vec<Expr>> {
        let (protocol, inverted) = e.protocol();
        let place = Place {
            table: self.name,
            hooks: self.hooks,
            protocol: u8::try_from(protocol).unwrap_or(0),
            inverted,
        };
        let mut rule = Vec::new();
        if e.header().iter().any(|b| *b != 0) {
            rule.push(Expr::Header(Box::new(Header::read(e))));
        }
        for m in e.matches() {
            let what = self.read(&m, &place, Role::Match)?;
            if !matches!(what, xt::What::Match(xt::Match::Comment)) {
                rule.push(Expr::Match(Xt::untold(what)));
            }
        }
        rule.push(Expr::Counter(counter.clone()));
        let t = e.target();
        let verdict = match e.verdict() {
            Some(v) => {
                known(&t, &place, self.version(), Role::Target)?;
                Some(self.verdict(e, v))
            }
            None if e.is_error() => {
                known(&t, &place, self.version(), Role::Target)?;
                Some(Verdict::Drop)
            }
            None => None,
        };
        match verdict {
            // (It only counts: another chain for what follows would cost at each.)
            Some(_) if e.goes_on() => {}
            Some(v) => rule.push(Expr::Immediate(None, Data::Verdict(v))),
            None => {
                let what = self.read(&t, &place, Role::Target)?;
                if t.name()? == "TCPMSS" {
                    xt::check_mss(t.info(), place.hooks, e.matches().any(|m| is_of_syns(&m)))?;
                }
                rule.push(Expr::Target(Xt::untold(what)));
            }
        }
        rule.shrink_to_fit();
        Ok(rule)
    }

    fn version(&self) -> Version {
        self.table.family.version()
    }

    fn read(&self, p: &Part<'_>, place: &Place<'_>, role: Role) -> Result<xt::What> {
        known(p, place, self.version(), role)?;
        let inverted = if place.inverted { xt::INVERTED } else { 0 };
        let scope = Scope {
            table: self.table,
            family: self.table.family,
            base: None,
            fresh: &Fresh::default(),
            compat: Some((place.protocol.into(), inverted)),
            now: 0,
        };
        let revision = p.revision().into();
        xt::read(&scope, p.name()?, revision, p.info(), role)
    }

    fn verdict(&self, e: &Entry<'_>, v: i32) -> Verdict {
        match v {
            -1 => Verdict::Drop,
            -2 => Verdict::Accept,
            // To nobody's queue, which drops it.
            -4 => Verdict::Drop,
            -5 => Verdict::Return,
            // (What leads to no entry is not led to by itself.)
            to => match place(self.entries, to as u32) {
                None => Verdict::Drop,
                Some(n) if e.is_goto() => Verdict::Goto(handle(n)),
                Some(n) => Verdict::Jump(handle(n)),
            },
        }
    }
}

/// Whether a match lets nothing but SYNs through (`find_syn_match`).
fn is_of_syns(m: &Part<'_>) -> bool {
    const SYN: u8 = 2;
    const INVERTED: u8 = 4;
    let at = |n: usize| m.info().get(n).copied().unwrap_or(0);
    m.name() == Ok("tcp") && at(10) & SYN != 0 && at(11) & INVERTED == 0
}

/// A match or target that may be in such a rule, with its length.
fn known(
    p: &Part<'_>,
    place: &Place<'_>,
    version: Version,
    role: Role,
) -> Result<&'static xt::Known> {
    let known = xt::find(p.name()?, p.revision().into(), version, role)?;
    if usize::from(known.size).next_multiple_of(8) != p.info().len() {
        return Err(EINVAL);
    }
    known.check(place)?;
    Ok(known)
}

/// Leaves of an entry what programs are told again (`copy_entries_to_user`).
fn clean(told: &mut [u8], e: &Entry<'_>, layout: Layout, hooks: u8) {
    let head = &mut told[e.at..];
    head[layout.hooks..layout.hooks + 4].copy_from_slice(&u32::from(hooks).to_ne_bytes());
    head[layout.counters..layout.counters + 16].fill(0);
    let version = layout.family.version();
    let mut part = |p: &Part<'_>, role: Role| {
        let name = p.name().ok()?;
        let found = xt::find(name, p.revision().into(), version, role);
        let told_of = found.map_or(0, |k| usize::from(k.told));
        told[p.at + 2 + name.len()..p.at + PART - 1].fill(0);
        told[p.at + PART + told_of..p.at + p.len()].fill(0);
        Some(p.at + p.len())
    };
    e.matches().for_each(|m| {
        part(&m, Role::Match);
    });
    if let Some(end) = part(&e.target(), Role::Target) {
        told[end..e.at + e.len()].fill(0);
    }
}

/// The handle of the chain that begins with an entry.
fn handle(entry: usize) -> u64 {
    entry as u64 + 1
}

impl Tabled {
    /// The table of this kind, which has chains at these hooks.
    pub fn of_kind(self, kind: Kind, family: Family) -> Legacy {
        let (mut begins, mut policies) = ([NOWHERE; 5], [NOWHERE; 5]);
        for ((hook, begin), (policy, _)) in self.begins.iter().zip(&self.policies) {
            begins[*hook as usize] = self.places[*begin];
            policies[*hook as usize] = self.places[*policy];
        }
        let bases = self.begins.iter().zip(&self.policies);
        let bases = bases.map(|((hook, begin), (policy, accepts))| {
            let (chain, priority) = kind.chain(*hook);
            let base = Base {
                kind: chain,
                hook: *hook,
                priority,
                accepts: *accepts,
                counter: Some(self.counters[*policy].clone()),
            };
            (*begin, base)
        });
        let bases: BTreeMap<usize, Base> = bases.collect();
        let ways = self.ways.iter().zip(&self.hooks);
        let ways: Vec<_> = ways.map(|(w, h)| (*h != 0).then_some(*w)).collect();
        let chains = chains(&ways, self.rules, bases);
        let mut rules = Table::unnamed(family);
        rules.chains = chains;
        Legacy {
            kind,
            family,
            begins,
            policies,
            blob: self.told,
            places: self.places,
            counters: self.counters,
            rules: Arc::new(rules),
        }
    }
}

/// A chain for each entry that a hook begins with or that another entry leads to. Where nothing
/// leads to is no way, and no rule.
fn chains(
    ways: &[Option<Way>],
    rules: Vec<Vec<Expr>>,
    mut bases: BTreeMap<usize, Base>,
) -> BTreeMap<u64, Arc<Chain>> {
    let mut begins = vec![false; ways.len()];
    bases.keys().for_each(|n| begins[*n] = true);
    for to in ways {
        if let Some(Way::Leads(Some(n))) = to {
            begins[*n] = true;
        }
    }
    let mut all = BTreeMap::new();
    let mut now: Option<Chain> = None;
    for (n, exprs) in rules.into_iter().enumerate() {
        if begins[n] {
            if let Some(mut before) = now.take() {
                let on = Expr::Immediate(None, Data::Verdict(Verdict::Goto(handle(n))));
                before.rules.push(rule(vec![on]));
                all.insert(before.handle, Arc::new(before));
            }
            now = Some(Chain {
                name: String::new(),
                handle: handle(n),
                base: bases.remove(&n),
                rules: Vec::new(),
                userdata: Box::default(),
                bound: false,
                led: 0,
            });
        }
        // (What comes before something that nothing leads to has ended.)
        let Some(chain) = now.as_mut().filter(|_| ways[n].is_some()) else {
            continue;
        };
        chain.rules.push(rule(exprs));
        if ways[n] == Some(Way::Ends)
            && let Some(ended) = now.take()
        {
            all.insert(ended.handle, Arc::new(ended));
        }
    }
    if let Some(last) = now {
        all.insert(last.handle, Arc::new(last));
    }
    all
}

fn rule(exprs: Vec<Expr>) -> Arc<Rule> {
    Arc::new(Rule {
        handle: 0,
        exprs,
        userdata: Box::default(),
    })
}

/// A policy for each hook, and the end (`ipt_alloc_initial_table`).
pub(super) fn empty(kind: Kind, family: Family) -> Result<Legacy> {
    let layout = Layout::of(family);
    let one = |name: &[u8], info: &[u8]| {
        let len = layout.size + PART + info.len();
        let mut b = vec![0; len];
        let mut put = |at: usize, v: &[u8]| b[at..at + v.len()].copy_from_slice(v);
        put(layout.target_offset, &(layout.size as u16).to_ne_bytes());
        put(layout.target_offset + 2, &(len as u16).to_ne_bytes());
        put(layout.size, &((PART + info.len()) as u16).to_ne_bytes());
        put(layout.size + 2, name);
        put(layout.size + PART, info);
        b
    };
    let mut verdict = [0; 8];
    verdict[..4].copy_from_slice(&(-2i32).to_ne_bytes());
    let mut text = [0; 32];
    text[..5].copy_from_slice(b"ERROR");
    let (mut blob, mut begins) = (Vec::new(), [NOWHERE; 5]);
    for hook in kind.hooks() {
        begins[*hook as usize] = blob.len() as u32;
        blob.extend(one(b"", &verdict));
    }
    blob.extend(one(b"ERROR", &text));
    let said = Said {
        hooks: kind.valid_hooks(),
        entries: kind.hooks().len() + 1,
        begins,
        policies: begins,
    };
    Ok(table(kind.name(), family, &said, &blob)?.of_kind(kind, family))
}
