//! The rules of a namespace, and a packet's way through them.

use crate::conntrack::Flows;
use crate::expr::{REGISTERS, Run, Step, Verdict};
use crate::log::Logs;
use crate::nat::{Manip, Rewrite, rewritten};
use crate::packet::{Hook, Meta, Packet, Version};
use crate::reject::Reject;
use crate::rewrite::{Checksum, apply};
use crate::table::{Chain, ChainType, Entry, Ruleset};
use crate::validate::{self, DEEPEST};
use abi::Result;
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It goes on, written anew where that is said.
    Accept(Option<Rewrite>),
    Drop,
    /// Its sender is told.
    Reject(Reject),
}

/// The priority at which connections are looked for (`NF_IP_PRI_CONNTRACK`), and those of
/// translations.
const TRACKING: i32 = -200;
const NAT_DESTINATION: i32 = -100;
const NAT_SOURCE: i32 = 100;

/// Rules as packets go by them.
#[derive(Default)]
struct Active {
    ruleset: Arc<Ruleset>,
    /// By version and hook.
    hooks: [[Vec<Entry>; 5]; 2],
    tracks: bool,
}

impl Active {
    fn new(ruleset: Arc<Ruleset>) -> Active {
        let of = |v: Version| Hook::ALL.map(|h| ruleset.entries(v, h));
        Active {
            hooks: [of(Version::V4), of(Version::V6)],
            tracks: ruleset.tracks(),
            ruleset: ruleset.clone(),
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Engine {
    on: AtomicBool,
    active: ArcSwap<Active>,
    change: Mutex<()>,
    pub flows: Flows,
    pub logs: Logs,
}

/// Who changes the rules; nobody else does meanwhile.
pub struct Change<'a> {
    engine: &'a Engine,
    _lock: MutexGuard<'a, ()>,
}

impl Change<'_> {
    /// The rules as they are.
    #[must_use]
    pub fn rules(&self) -> Arc<Ruleset> {
        self.engine.rules()
    }

    /// Whether other rules could hold.
    ///
    /// # Errors
    ///
    /// Those of [`Change::commit`].
    pub fn check(&self, new: &Ruleset) -> Result<()> {
        validate::all(new)
    }

    /// Has other rules hold, if they can.
    ///
    /// # Errors
    ///
    /// `EMLINK`, `E2BIG`, `EOPNOTSUPP`: see [`crate::validate`].
    pub fn commit(&self, mut new: Ruleset) -> Result<()> {
        validate::all(&new)?;
        new.generation = new.generation.wrapping_add(1).max(1);
        self.begin(new);
        Ok(())
    }

    /// The same for a change of old tables, of which those who read nf_tables' rules do not hear.
    ///
    /// # Errors
    ///
    /// Those of [`Change::commit`].
    pub fn commit_legacy(&self, new: Ruleset) -> Result<()> {
        validate::all(&new)?;
        self.begin(new);
        Ok(())
    }

    fn begin(&self, new: Ruleset) {
        let active = Active::new(Arc::new(new));
        let is_on = active.hooks.iter().flatten().any(|h| !h.is_empty());
        self.engine.active.store(Arc::new(active));
        self.engine.on.store(is_on, Relaxed);
    }
}

impl Engine {
    /// Whether there is anything that packets must be shown.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    #[must_use]
    pub fn rules(&self) -> Arc<Ruleset> {
        self.active.load().ruleset.clone()
    }

    /// Begins a change.
    pub fn change(&self) -> Change<'_> {
        Change {
            _lock: self.change.lock(),
            engine: self,
        }
    }

    /// Leads a packet through a hook.
    pub fn run(&self, hook: Hook, p: &Packet<'_>, meta: &mut Meta) -> Outcome {
        let outcome = self.pass(hook, p, meta);
        match (outcome, meta.mss.take()) {
            (Outcome::Accept(r), mss @ Some(_)) => {
                let r = r.unwrap_or_else(|| Rewrite::same(p));
                Outcome::Accept(Some(Rewrite { mss, ..r }))
            }
            (outcome, _) => outcome,
        }
    }

    fn pass(&self, hook: Hook, p: &Packet<'_>, meta: &mut Meta) -> Outcome {
        let active = self.active.load();
        let entries = &active.hooks[p.version as usize][hook as usize];
        let mut way = Way {
            engine: self,
            hook,
            meta,
        };
        let begins = matches!(hook, Hook::Prerouting | Hook::Output) && active.tracks;
        let ends = matches!(hook, Hook::Input | Hook::Postrouting);
        let manip = Manip::of(hook).filter(|_| active.tracks);
        let nat_at = match manip {
            Some(Manip::Source) => NAT_SOURCE,
            _ => NAT_DESTINATION,
        };
        let filters = || entries.iter().filter(|e| e.kind != ChainType::Nat);
        let before = |at: i32| filters().filter(move |e| e.priority < at);
        if begins {
            if let Some(o) = way.chains(p, before(TRACKING)) {
                return o;
            }
            self.flows.track(p, way.meta);
        }
        let first = if begins { TRACKING } else { i32::MIN };
        let Some(manip) = manip else {
            let rest = filters().filter(|e| e.priority >= first);
            return way.chains(p, rest).unwrap_or(Outcome::Accept(None));
        };
        let middle = before(nat_at).filter(|e| e.priority >= first);
        if let Some(o) = way.chains(p, middle) {
            return o;
        }
        let nat = entries.iter().filter(|e| e.kind == ChainType::Nat);
        if let Some(o) = way.translate(p, manip, nat) {
            return o;
        }
        let rewrite = rewritten(p, &way.meta.track, manip);
        let after = filters().filter(|e| e.priority >= nat_at);
        let outcome = match rewrite {
            Some(r) => way.chains_anew(p, &r, after),
            None => way.chains(p, after),
        };
        if let Some(o) = outcome {
            return o;
        }
        if ends && !self.flows.confirm(&way.meta.track, p.now) {
            return Outcome::Drop;
        }
        Outcome::Accept(rewrite)
    }
}

/// A packet on its way through a hook.
struct Way<'a> {
    engine: &'a Engine,
    hook: Hook,
    meta: &'a mut Meta,
}

impl Way<'_> {
    /// Through base chains; none: it goes on.
    fn chains<'e>(
        &mut self,
        p: &Packet<'_>,
        all: impl Iterator<Item = &'e Entry>,
    ) -> Option<Outcome> {
        for e in all {
            match self.chain(p, e) {
                Outcome::Accept(_) => {}
                other => return Some(other),
            }
        }
        None
    }

    /// The same for a packet that has just been translated.
    fn chains_anew<'e>(
        &mut self,
        p: &Packet<'_>,
        r: &Rewrite,
        all: impl Iterator<Item = &'e Entry>,
    ) -> Option<Outcome> {
        let mut all = all.peekable();
        all.peek()?;
        let mut bytes = p.bytes.to_vec();
        apply(&mut bytes, r, Checksum::Whole)?;
        let mut anew = Packet::new(&bytes, p.len, p.now, p.host)?;
        (anew.input, anew.output) = (p.input, p.output);
        (anew.cast, anew.owner) = (p.cast, p.owner);
        self.chains(&anew, all)
    }

    /// A connection's first packet is asked where it is to be translated to.
    fn translate<'e>(
        &mut self,
        p: &Packet<'_>,
        manip: Manip,
        all: impl Iterator<Item = &'e Entry>,
    ) -> Option<Outcome> {
        let flows = &self.engine.flows;
        for e in all {
            if !flows.is_undecided(&self.meta.track, manip) {
                return None;
            }
            match self.chain(p, e) {
                Outcome::Accept(_) => {}
                other => return Some(other),
            }
        }
        (!flows.bind_null(&self.meta.track, manip)).then_some(Outcome::Drop)
    }

    /// Through one base chain and those that it leads to.
    fn chain(&mut self, p: &Packet<'_>, e: &Entry) -> Outcome {
        let mut run = Run {
            regs: [0; REGISTERS],
            packet: p,
            meta: self.meta,
            table: &e.table,
            hook: self.hook,
            flows: &self.engine.flows,
            logs: &self.engine.logs,
            reject: None,
        };
        let verdict = evaluate(&mut run, &e.chain);
        let reject = run.reject;
        let accepts = verdict.unwrap_or_else(|| {
            let base = e.chain.base.as_ref();
            if let Some(c) = base.and_then(|b| b.counter.as_ref()) {
                c.count(p.len);
            }
            base.is_none_or(|b| b.accepts)
        });
        match (accepts, reject) {
            (true, _) => Outcome::Accept(None),
            (false, None) => Outcome::Drop,
            (false, Some(r)) => Outcome::Reject(r),
        }
    }
}

/// Where a packet goes on once a chain has ended.
#[derive(Default)]
struct Stack<'a> {
    all: [Option<(&'a Chain, usize)>; DEEPEST],
    len: usize,
}

impl<'a> Stack<'a> {
    /// Whether there was room.
    fn push(&mut self, place: (&'a Chain, usize)) -> bool {
        let Some(top) = self.all.get_mut(self.len) else {
            return false;
        };
        *top = Some(place);
        self.len += 1;
        true
    }

    fn pop(&mut self) -> Option<(&'a Chain, usize)> {
        self.len = self.len.checked_sub(1)?;
        self.all[self.len]
    }
}

/// Whether a packet is accepted by a chain; none: its policy says.
fn evaluate(run: &mut Run<'_, '_>, base: &Chain) -> Option<bool> {
    let table = run.table;
    let mut stack = Stack::default();
    let (mut chain, mut at) = (base, 0);
    loop {
        let Some(rule) = chain.rules.get(at) else {
            (chain, at) = stack.pop()?;
            continue;
        };
        at += 1;
        let mut verdict = None;
        run.regs = [0; REGISTERS];
        for e in &rule.exprs {
            match e.run(run) {
                Step::Next => {}
                Step::Break => break,
                Step::Verdict(v) => {
                    verdict = Some(v);
                    break;
                }
            }
        }
        match verdict {
            None | Some(Verdict::Continue | Verdict::Break) => {}
            Some(Verdict::Accept) => return Some(true),
            Some(Verdict::Drop) => return Some(false),
            Some(Verdict::Return) => (chain, at) = stack.pop()?,
            Some(Verdict::Jump(to)) => {
                // (Depth is bounded when rules are made.)
                if !stack.push((chain, at)) {
                    return Some(false);
                }
                (chain, at) = (table.chains.get(&to)?, 0);
            }
            Some(Verdict::Goto(to)) => (chain, at) = (table.chains.get(&to)?, 0),
        }
    }
}
