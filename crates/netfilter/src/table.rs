//! Tables with their chains, rules and sets; a whole of them is never changed, but replaced.

use crate::expr::{Data, Expr, Verdict};
use crate::legacy::{self, Legacy};
use crate::packet::{Hook, Version};
use crate::set::Set;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `NFPROTO_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Family {
    Inet = 1,
    V4 = 2,
    V6 = 10,
}

impl Family {
    #[must_use]
    pub fn by_number(n: u8) -> Option<Family> {
        match n {
            1 => Some(Family::Inet),
            2 => Some(Family::V4),
            10 => Some(Family::V6),
            _ => None,
        }
    }

    fn has(self, version: Version) -> bool {
        match self {
            Family::Inet => true,
            Family::V4 => version == Version::V4,
            Family::V6 => version == Version::V6,
        }
    }

    /// Of which packets its matches and targets of iptables are: those of `inet` are IPv4's.
    #[must_use]
    pub fn version(self) -> Version {
        match self {
            Family::Inet | Family::V4 => Version::V4,
            Family::V6 => Version::V6,
        }
    }
}

/// Packets and bytes.
#[derive(Default)]
pub struct Counter {
    pub packets: AtomicU64,
    pub bytes: AtomicU64,
}

impl Counter {
    #[must_use]
    pub fn new(packets: u64, bytes: u64) -> Counter {
        Counter {
            packets: packets.into(),
            bytes: bytes.into(),
        }
    }

    pub fn count(&self, bytes: usize) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn get(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// A rule.
pub struct Rule {
    pub handle: u64,
    pub exprs: Vec<Expr>,
    pub userdata: Box<[u8]>,
}

impl Rule {
    /// The chains that it leads to by itself.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.exprs.iter().filter_map(|e| match e {
            Expr::Immediate(_, Data::Verdict(v)) => Some(v),
            _ => None,
        })
    }

    /// The sets that it asks.
    pub fn sets(&self) -> impl Iterator<Item = u64> {
        self.exprs.iter().filter_map(|e| match e {
            Expr::Lookup(l) => Some(l.set),
            _ => None,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        let exprs: usize = self.exprs.iter().map(Expr::bytes).sum();
        128 + self.userdata.len() + exprs
    }
}

/// `NFT_CHAIN_T_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainType {
    Filter,
    Route,
    Nat,
}

impl ChainType {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ChainType::Filter => "filter",
            ChainType::Route => "route",
            ChainType::Nat => "nat",
        }
    }
}

/// What makes a chain a base chain.
#[derive(Clone)]
pub struct Base {
    pub kind: ChainType,
    pub hook: Hook,
    pub priority: i32,
    pub accepts: bool,
    pub counter: Option<Arc<Counter>>,
}

/// A chain.
#[derive(Clone)]
pub struct Chain {
    pub name: String,
    pub handle: u64,
    pub base: Option<Base>,
    pub rules: Vec<Arc<Rule>>,
    pub userdata: Box<[u8]>,
    /// Of rules that have no name for it (`NFT_CHAIN_BINDING`).
    pub bound: bool,
    /// How often it is led to.
    pub led: u32,
}

pub const DORMANT: u32 = 1;

/// A table.
#[derive(Clone)]
pub struct Table {
    pub name: String,
    pub family: Family,
    pub handle: u64,
    pub flags: u32,
    pub userdata: Box<[u8]>,
    /// The last handle that was given.
    pub last: u64,
    pub chains: BTreeMap<u64, Arc<Chain>>,
    pub chain_names: BTreeMap<String, u64>,
    pub sets: BTreeMap<u64, Arc<Set>>,
    pub set_names: BTreeMap<String, u64>,
}

impl Table {
    /// One without chains, that has no name.
    pub(crate) fn unnamed(family: Family) -> Table {
        Table {
            name: String::new(),
            family,
            handle: 0,
            flags: 0,
            userdata: Box::default(),
            last: 0,
            chains: BTreeMap::new(),
            chain_names: BTreeMap::new(),
            sets: BTreeMap::new(),
            set_names: BTreeMap::new(),
        }
    }

    pub fn next_handle(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn chain(&self, name: &str) -> Option<&Arc<Chain>> {
        self.chains.get(self.chain_names.get(name)?)
    }

    /// A chain to be changed: a copy of its own, where others have it, too.
    pub fn chain_mut(&mut self, handle: u64) -> Option<&mut Chain> {
        self.chains.get_mut(&handle).map(Arc::make_mut)
    }

    /// The same of a set.
    pub fn set_mut(&mut self, handle: u64) -> Option<&mut Set> {
        self.sets.get_mut(&handle).map(Arc::make_mut)
    }

    pub fn set(&self, name: &str) -> Option<&Arc<Set>> {
        self.sets.get(self.set_names.get(name)?)
    }

    pub fn chain_name(&self, handle: u64) -> &str {
        self.chains.get(&handle).map_or("", |c| &c.name)
    }

    /// A rule is there: what it leads to and asks is used.
    pub fn link(&mut self, rule: &Rule) {
        for to in rule.verdicts().filter_map(Verdict::chain) {
            self.lead(to, 1);
        }
        for set in rule.sets() {
            if let Some(s) = self.set_mut(set) {
                s.asked += 1;
            }
        }
    }

    /// A verdict leads to a chain, or does so no more.
    pub fn lead(&mut self, chain: u64, by: i32) {
        if let Some(c) = self.chain_mut(chain) {
            c.led = c.led.saturating_add_signed(by);
        }
    }

    /// A rule is gone, and with it sets and chains that were its alone.
    pub fn unlink(&mut self, rule: Arc<Rule>) {
        let mut rules = vec![rule];
        while let Some(rule) = rules.pop() {
            let mut to: Vec<u64> = rule.verdicts().filter_map(Verdict::chain).collect();
            for id in rule.sets() {
                let Some(set) = self.set_mut(id) else {
                    continue;
                };
                set.asked = set.asked.saturating_sub(1);
                if set.asked == 0 && set.is(crate::set::ANONYMOUS) {
                    to.extend(set_targets(set));
                    let name = set.shape.name.clone();
                    self.sets.remove(&id);
                    self.set_names.remove(&name);
                }
            }
            for id in to {
                self.lead(id, -1);
                if let Some(c) = self.chains.get(&id).filter(|c| c.bound && c.led == 0) {
                    let c = c.clone();
                    self.chains.remove(&id);
                    self.chain_names.remove(&c.name);
                    rules.extend(c.rules.iter().cloned());
                }
            }
        }
    }

    pub fn is_dormant(&self) -> bool {
        self.flags & DORMANT != 0
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let chain = |c: &Arc<Chain>| {
            let rules: usize = c.rules.iter().map(|r| r.bytes()).sum();
            512 + c.name.len() * 2 + c.userdata.len() + rules
        };
        let chains: usize = self.chains.values().map(chain).sum();
        let sets: usize = self.sets.values().map(|s| s.bytes()).sum();
        512 + self.userdata.len() + chains + sets
    }
}

pub(crate) fn set_targets(set: &Set) -> impl Iterator<Item = u64> {
    set.elements.values().filter_map(|e| match &e.data {
        Some(Data::Verdict(v)) => v.chain(),
        _ => None,
    })
}

/// A base chain in the order in which those of its hook are run.
#[derive(Clone)]
pub struct Entry {
    pub table: Arc<Table>,
    pub chain: Arc<Chain>,
    pub priority: i32,
    pub kind: ChainType,
}

/// All tables.
#[derive(Clone)]
pub struct Ruleset {
    pub tables: Vec<Arc<Table>>,
    /// Those of iptables' socket options, the newest first.
    pub legacy: Vec<Arc<Legacy>>,
    /// Changes with each transaction.
    pub generation: u32,
    pub last_table: u64,
}

impl Default for Ruleset {
    /// None, which is a generation, too.
    fn default() -> Ruleset {
        Ruleset {
            tables: Vec::new(),
            legacy: Vec::new(),
            generation: 1,
            last_table: 0,
        }
    }
}

impl Ruleset {
    pub fn place(&self, family: Family, name: &str) -> Option<usize> {
        let is = |t: &Arc<Table>| t.family == family && t.name == name;
        self.tables.iter().position(is)
    }

    /// A table of iptables' socket options.
    pub fn legacy(&self, family: Family, kind: legacy::Kind) -> Option<&Arc<Legacy>> {
        let mut all = self.legacy.iter();
        all.find(|t| t.family == family && t.kind == kind)
    }

    pub fn table(&self, family: Family, name: &str) -> Option<&Arc<Table>> {
        self.place(family, name).map(|n| &self.tables[n])
    }

    pub fn bytes(&self) -> usize {
        let tables: usize = self.tables.iter().map(|t| t.bytes()).sum();
        tables + self.legacy.iter().map(|t| t.bytes()).sum::<usize>()
    }

    /// All tables, of either kind.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Table>> {
        let legacy = self.legacy.iter().map(|t| t.rules());
        self.tables.iter().chain(legacy)
    }

    /// The base chains of a hook, in their order.
    pub fn entries(&self, version: Version, hook: Hook) -> Vec<Entry> {
        let mut all = Vec::new();
        let live = |t: &&Arc<Table>| t.family.has(version) && !t.is_dormant();
        for table in self.all().filter(live) {
            for chain in table.chains.values() {
                let Some(b) = chain.base.as_ref().filter(|b| b.hook == hook) else {
                    continue;
                };
                all.push(Entry {
                    table: table.clone(),
                    chain: chain.clone(),
                    priority: b.priority,
                    kind: b.kind,
                });
            }
        }
        all.sort_by_key(|e| e.priority);
        all
    }

    /// Whether any rule needs connections to be tracked.
    pub fn tracks(&self) -> bool {
        let live = self.all().filter(|t| !t.is_dormant());
        let mut chains = live.flat_map(|t| t.chains.values());
        chains.any(|c| {
            c.base.as_ref().is_some_and(|b| b.kind == ChainType::Nat)
                || c.rules.iter().any(|r| r.exprs.iter().any(Expr::tracks))
        })
    }
}
