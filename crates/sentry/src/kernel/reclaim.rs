//! What is done about a container's memory while nobody waits for it: what was not used for long is
//! sent out, where its policy says so (`container::replacement`), and it is looked who runs while
//! others stall for lack of memory ([`clas::Pressure`]).
//!
//! # Invariant
//!
//! Each is done by a thread of its own, which holds neither the kernel nor the container while it
//! waits: it ends soon after them.

use super::Kernel;
use crate::cgroup::memory::{Protection, Protections};
use crate::container::Container;
use crate::container::replacement::{Policy, Share};
use crate::container::shortage::Shortage;
use clas::AccountId;
use config::Replacement;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What is sent out at a time: an address space is busy meanwhile.
const STEP: u64 = 1 << 20;
/// How long it is waited for a busy address space.
const STEP_WAITS: Duration = Duration::from_millis(2);
/// How often it is looked who runs, at most.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_LONG: Duration = Duration::from_secs(1);
/// Neither takes more than this part of the time.
const PARTS: u32 = 100;
/// How long one address space is looked through.
const LONGEST: Duration = Duration::from_millis(200);
/// Nobody looks any more after so long without stalls.
const QUIET: Duration = Duration::from_secs(4);

/// Has `f` done by a thread of its own; false where there can be none.
pub(super) fn thread(name: &str, f: impl FnOnce() + Send + 'static) -> bool {
    let b = std::thread::Builder::new().name(name.into());
    b.stack_size(256 << 10).spawn(f).is_ok()
}

impl Kernel {
    /// Has what goes where a container has too little chosen by this policy, from now on.
    pub fn choose_replacement(self: &Arc<Self>, c: &Arc<Container>, name: Replacement) {
        if c.shortage.choose(name) {
            let (k, own) = (Arc::downgrade(self), Arc::downgrade(c));
            let shortage = c.shortage.clone();
            if !thread("reclaim", move || periods(&k, &own, &shortage)) {
                // (Less is sent out.)
                c.shortage.has_no_thread();
            }
        }
        if !c.shortage.policy(&c.clas, AccountId::ROOT).has_ages() {
            for h in self.address_spaces(c) {
                h.mm.forget_ages();
            }
        }
    }

    /// Has it looked who runs while threads of a container stall.
    pub(super) fn watch_pressure(self: &Arc<Self>, c: &Arc<Container>) {
        let (k, own) = (Arc::downgrade(self), Arc::downgrade(c));
        c.clas.on_stall(Box::new(move || {
            let (k, c) = (k.clone(), own.clone());
            thread("pressure", move || watch(&k, &c))
        }));
    }

    /// A generation ends, and what the policy says is sent out. `stalled` is the part of the last
    /// one in which threads stalled.
    fn send_unasked(&self, c: &Arc<Container>, policy: &dyn Policy, stalled: f64) {
        if !c.clas.can_swap() {
            return;
        }
        let holders = self.address_spaces(c);
        for h in &holders {
            h.mm.age(Instant::now() + LONGEST);
        }
        let mut low = Protections::within(None, Protection::Low);
        let shares: Vec<Share> = holders.iter().map(|h| h.share(&mut low)).collect();
        for part in policy.unasked(&shares, stalled) {
            let mm = &holders[part.who].mm;
            let mut left = part.bytes;
            while left > 0 {
                let sent = mm.send_out(left.min(STEP), AccountId::ROOT, part.pick, STEP_WAITS);
                if sent.bytes == 0 {
                    break;
                }
                left = left.saturating_sub(sent.bytes);
            }
        }
    }

    /// In each of these accounts so many threads stall; whether nothing else of it runs.
    fn looks_idle(&self, c: &Container, stalled: &[(AccountId, u32)]) -> Vec<(AccountId, bool)> {
        let mut running: HashMap<AccountId, u32> = HashMap::new();
        let l = self.tasks.lock();
        let own = l
            .processes()
            .filter(|p| std::ptr::eq(&*p.group.container, c));
        for p in own {
            let n = p
                .threads
                .values()
                .filter(|t| t.state_letter() == 'R')
                .count();
            *running.entry(p.group.payer.account()).or_default() += n as u32;
        }
        drop(l);
        let mut below: HashMap<AccountId, u32> = HashMap::new();
        for (id, n) in running {
            for above in c.clas.upwards(id) {
                *below.entry(above).or_default() += n;
            }
        }
        let runs = |id| below.get(id).copied().unwrap_or(0);
        stalled
            .iter()
            .map(|(id, n)| (*id, runs(id) <= *n))
            .collect()
    }
}

/// Does what a policy has done now and then, until it has nothing like that.
fn periods(kernel: &Weak<Kernel>, container: &Weak<Container>, shortage: &Shortage) {
    let mut lost = Duration::ZERO;
    let mut since = Instant::now();
    let mut pause = Duration::ZERO;
    while let Some(policy) = shortage.await_period(pause)
        && let (Some(k), Some(c)) = (kernel.upgrade(), container.upgrade())
    {
        let now = c.clas.pressure().some.total;
        let stalled = (now - lost).as_secs_f64() / since.elapsed().as_secs_f64().max(1e-3);
        (lost, since) = (now, Instant::now());
        k.guard(|| k.send_unasked(&c, &*policy, stalled));
        pause = since.elapsed() * PARTS;
    }
}

/// Looks again and again, until there are no stalls.
fn watch(kernel: &Weak<Kernel>, container: &Weak<Container>) {
    let (mut last, mut pause) = (Instant::now(), LOOK);
    loop {
        std::thread::sleep(pause);
        let (Some(k), Some(c)) = (kernel.upgrade(), container.upgrade()) else {
            return;
        };
        let start = Instant::now();
        let stalled = c.clas.stalled();
        if !stalled.is_empty() {
            k.guard(|| c.clas.looked(&k.looks_idle(&c, &stalled)));
            last = start;
        }
        c.clas.look_at_triggers();
        if stalled.is_empty() && last.elapsed() > QUIET && c.clas.may_end_watch() {
            return;
        }
        pause = (start.elapsed() * PARTS).clamp(LOOK, LOOK_LONG);
    }
}
