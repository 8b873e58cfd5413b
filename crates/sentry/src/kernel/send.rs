//! Memory is sent out, as a container's policy has it (`container::replacement`): from whom is said
//! there, and done here.
//!
//! # Invariants
//!
//! - A turn takes no longer than [`Time`] says, however many address spaces there are and whoever
//!   holds them: others wait for it. What a policy's plan does not come to then, the next one does.
//! - Nobody gives more than what it has above its protection, however often a plan names it.
//! - Of what is wanted, files in memory give the part that they have of all that is here, as if all
//!   of it were of one age; a group's files nothing, where all that it has is protected.

use super::Kernel;
use super::memory::{Domain, ENOUGH, Holder};
use crate::cgroup::Cgroup;
use crate::cgroup::memory::{Event, Protection, Protections, part};
use crate::container::Container;
use crate::container::replacement::{Need, Part, Policy, Share};
use abi::PAGE_SIZE;
use clas::{AccountId, FilePick, Shortage};
use mm::{Mm, Pick};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it is waited for a busy address space, and for all of them together.
const PATIENCE_FOR_ONE: Duration = Duration::from_millis(2);
const PATIENCE_FOR_ALL: Duration = Duration::from_millis(20);
/// How long memory of one account is sent out, and of all of them together.
const ROUND: Duration = Duration::from_millis(50);
const TURN: Duration = Duration::from_millis(150);

/// How long a turn may take.
#[derive(Clone, Copy)]
pub(super) struct Time {
    /// Until then it is waited for busy address spaces.
    waits: Instant,
    ends: Instant,
}

impl Time {
    pub(super) fn of_turn() -> Time {
        let now = Instant::now();
        Time {
            waits: now + PATIENCE_FOR_ALL,
            ends: now + TURN,
        }
    }

    /// For one account, of what is left.
    fn of_round(self) -> Time {
        Time {
            ends: self.ends.min(Instant::now() + ROUND),
            ..self
        }
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.ends
    }

    /// How long it is waited for one address space now.
    fn patience(self) -> Duration {
        let left = self.waits.saturating_duration_since(Instant::now());
        left.min(PATIENCE_FOR_ONE)
    }
}

/// How urgent it is.
#[derive(Clone, Copy)]
pub(super) struct Urgency {
    pub(super) time: Time,
    /// Too little could be sent out for long: soon a process is ended.
    pub(super) is_late: bool,
}

impl Kernel {
    /// Has so much sent out. Each process gives its part; where that is too little, whoever has
    /// more, and what nobody touched is given back as well. What is protected as well as can be
    /// goes where there is nothing else, or has been too little for long.
    pub(super) fn send_out(&self, c: &Arc<Container>, d: &Domain, s: Shortage, u: Urgency) -> u64 {
        let bytes = s.wanted;
        if bytes == 0 {
            return 0;
        }
        let holders = self.address_spaces(c);
        let by = Sender {
            policy: &*c.shortage.policy(&c.clas, d.account),
            account: d.account,
            is_late: u.is_late,
            time: u.time.of_round(),
        };
        // (Frames of a group may be with others: who moved away, or was forked.)
        let (within, beside): (Vec<_>, Vec<_>) = holders.into_iter().partition(|h| d.has(h));
        let need = Need {
            bytes,
            here: c.clas.here_of(d.account),
        };
        let old = || within.iter().map(|h| h.mm.old().iter().sum::<u64>()).sum();
        if by.policy.needs_ages(need, old()) {
            let in_time = within.iter().take_while(|_| !by.time.is_over());
            in_time.for_each(|h| h.mm.age(by.time.ends));
        }
        let mut low = Protections::within(d.group(), Protection::Low);
        let mut freed = by.send_files(c, &mut low, by.part_of_files(c, need));
        freed += by.send_planned(&within, &mut low, bytes.saturating_sub(freed));
        if freed < bytes / 2 {
            freed += by.send_files(c, &mut low, bytes - freed);
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
        let is_too_little = freed == 0 || (u.is_late && freed < ENOUGH);
        if is_too_little && is_needed && (u.is_late || spare() < ENOUGH) {
            let mut min = Protections::within(d.group(), Protection::Min);
            let mut more = by.send_planned(&within, &mut min, bytes);
            more += by.send_files(c, &mut min, bytes.saturating_sub(more));
            if more > 0 {
                note_low(&within, &mut low, &mut min);
            }
            freed += more;
        }
        if freed == 0 && d.group.is_some() && s.is_awaited {
            freed = by.send_planned(&beside, &mut low, bytes);
        }
        freed
    }
}

/// How memory is sent out: by which policy, and of what account's.
struct Sender<'a> {
    policy: &'a dyn Policy,
    account: AccountId,
    is_late: bool,
    time: Time,
}

impl Sender<'_> {
    /// Has them send out so many bytes, as the policy says; how many went.
    fn send_planned(&self, holders: &[Holder], p: &mut Protections<'_>, bytes: u64) -> u64 {
        let shares: Vec<Share> = holders.iter().map(|h| h.share(p)).collect();
        let mut left: Vec<u64> = shares.iter().map(|s| s.above()).collect();
        let mut freed = 0;
        let mut send = |parts: Vec<Part>, least: u64| {
            for part in parts {
                if freed >= bytes || self.time.is_over() {
                    break;
                }
                let left = &mut left[part.who];
                let n = part.bytes.max(least).min(*left).min(bytes - freed);
                let sent = self.send(&holders[part.who].mm, n, part.pick);
                *left = left.saturating_sub(sent);
                freed += sent;
            }
            freed
        };
        // Where that is too little, whoever has more.
        if send(self.policy.plan(&shares, bytes), ENOUGH) < bytes / 2 {
            send(self.policy.rest(&shares, self.is_late), 0);
        }
        // (These count for nobody.)
        if freed < ENOUGH.min(bytes) {
            freed += self.send_strays(holders, bytes - freed);
        }
        freed
    }

    /// Has them send out so many bytes of what others have brought in and left; how many went.
    fn send_strays(&self, holders: &[Holder], bytes: u64) -> u64 {
        let mut freed = 0;
        for h in holders {
            if freed >= bytes || self.time.is_over() {
                break;
            }
            let (left, patience) = (bytes - freed, self.time.patience());
            let sent = (h.mm).send_out(left, self.account, Pick::Strays, patience);
            freed += sent.bytes;
        }
        freed
    }

    /// Of what is needed, what files in memory are to give.
    fn part_of_files(&self, c: &Container, need: Need) -> u64 {
        let files = c.clas.files_here(self.account);
        part(need.bytes, files, need.here).min(need.bytes) & !(PAGE_SIZE - 1)
    }

    /// Has files in memory send out so many bytes; how many went.
    fn send_files(&self, c: &Container, p: &mut Protections<'_>, bytes: u64) -> u64 {
        // (Processes are asked, too, however many have mapped the files.)
        let left = (self.time.ends).saturating_duration_since(Instant::now());
        let until = Instant::now() + left / 2;
        let mut known: HashMap<AccountId, bool> = HashMap::new();
        let mut may_go = |id: AccountId| {
            *known.entry(id).or_insert_with(|| {
                let group = c.ns.cgroup.with_account(id);
                !group.is_some_and(|g| p.covers(&g))
            })
        };
        let pick = FilePick {
            of: self.account,
            may_go: &mut may_go,
            is_over: &|| Instant::now() >= until,
        };
        c.clas.send_files(bytes, pick)
    }

    /// Has one send out so many bytes; how many went.
    fn send(&self, mm: &Mm, bytes: u64, pick: Pick) -> u64 {
        let mut freed = 0;
        while freed < bytes && !self.time.is_over() {
            let sent = mm.send_out(bytes - freed, self.account, pick, self.time.patience());
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
