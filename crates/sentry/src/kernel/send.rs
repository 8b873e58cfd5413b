//! Memory is sent out, as a container's policy has it (`container::replacement`): from whom is said there,
//! and done here.

use super::Kernel;
use super::memory::{Domain, ENOUGH, Holder};
use crate::cgroup::Cgroup;
use crate::cgroup::memory::{Event, Protection, Protections};
use crate::container::Container;
use crate::container::replacement::{Part, Policy, Share};
use clas::{AccountId, Shortage};
use mm::{Mm, Pick};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it is waited for a busy address space, and for all of them together.
const PATIENCE_FOR_ONE: Duration = Duration::from_millis(2);
const PATIENCE_FOR_ALL: Duration = Duration::from_millis(20);

impl Kernel {
    /// Has so much sent out. Each process gives its part; where that is too little, whoever has
    /// more, and what nobody touched is given back as well. What is protected as well as can be
    /// goes where there is nothing else, or has been nothing for long (`is_late`).
    pub(super) fn send_out(
        &self,
        c: &Arc<Container>,
        d: &Domain,
        s: Shortage,
        is_late: bool,
    ) -> u64 {
        let bytes = s.wanted;
        if bytes == 0 {
            return 0;
        }
        let holders = self.address_spaces(c);
        let by = Sender {
            policy: &*c.shortage.policy(),
            account: d.account,
            is_late,
            until: Instant::now() + PATIENCE_FOR_ALL,
        };
        // (Frames of a group may be with others: who moved away, or was forked.)
        let (within, beside): (Vec<_>, Vec<_>) = holders.into_iter().partition(|h| d.has(h));
        let mut low = Protections::within(d.group(), Protection::Low);
        let mut freed = send_planned(&by, &within, &mut low, bytes);
        if freed < bytes / 2 {
            freed += within.iter().filter_map(|h| h.mm.trim()).sum::<u64>();
        }
        let mut spare = || {
            within
                .iter()
                .map(|h| h.share(&mut low).above())
                .sum::<u64>()
        };
        // (Nobody waits for what is above `memory.high`, or for a reserve; and more comes of what
        // ends.)
        let is_needed = s.is_awaited && !c.clas.is_to_get_more();
        if freed == 0 && is_needed && (is_late || spare() < ENOUGH) {
            let mut min = Protections::within(d.group(), Protection::Min);
            freed = send_planned(&by, &within, &mut min, bytes);
            if freed > 0 {
                note_low(&within, &mut low, &mut min);
            }
        }
        if freed == 0 && d.group.is_some() && s.is_awaited {
            freed = send_planned(&by, &beside, &mut low, bytes);
        }
        freed
    }
}

/// How memory is sent out: by which policy, and of what account's.
struct Sender<'a> {
    policy: &'a dyn Policy,
    account: AccountId,
    /// Nothing could be sent out for long.
    is_late: bool,
    /// Until then it is waited for busy address spaces.
    until: Instant,
}

/// Has them send out so many bytes, as the policy says; how many went.
fn send_planned(by: &Sender<'_>, holders: &[Holder], p: &mut Protections<'_>, bytes: u64) -> u64 {
    let mut shares: Vec<Share> = holders.iter().map(|h| h.share(p)).collect();
    if by.policy.needs_ages(&shares, bytes) {
        for (h, s) in holders.iter().zip(&mut shares) {
            h.mm.age();
            s.old = h.mm.old();
        }
    }
    let mut freed = 0;
    let mut send = |parts: Vec<Part>, least: u64| {
        for part in parts {
            let most = shares[part.who].above().min(bytes.saturating_sub(freed));
            let n = part.bytes.max(least).min(most);
            freed += by.send(&holders[part.who].mm, n, part.pick);
        }
        freed
    };
    // Where that is too little, whoever has more.
    if send(by.policy.plan(&shares, bytes), ENOUGH) < bytes / 2 {
        send(by.policy.rest(&shares, by.is_late), 0);
    }
    freed
}

impl Sender<'_> {
    /// Has one send out so many bytes; how many went.
    fn send(&self, mm: &Mm, bytes: u64, pick: Pick) -> u64 {
        /// A lap may be long; it goes on the next time.
        const STEPS: u32 = 64;
        let mut freed = 0;
        for _ in 0..STEPS {
            if freed >= bytes {
                break;
            }
            let patience = self.until.saturating_duration_since(Instant::now());
            let patience = patience.min(PATIENCE_FOR_ONE);
            let sent = mm.send_out(bytes - freed, self.account, pick, patience);
            freed += sent.bytes;
            self.policy.gave(mm.id(), pick, sent);
            if sent.at_end {
                break;
            }
        }
        freed
    }
}

/// Counts for their groups that something of theirs went though `memory.low` speaks for them.
fn note_low(holders: &[Holder], low: &mut Protections<'_>, min: &mut Protections<'_>) {
    let mut seen: Vec<Arc<Cgroup>> = Vec::new();
    for h in holders {
        let group = &h.cgroup;
        if h.share(low).reserve > h.share(min).reserve
            && !seen.iter().any(|g| Arc::ptr_eq(g, group))
        {
            group.memory_event(Event::Low);
            seen.push(group.clone());
        }
    }
}
