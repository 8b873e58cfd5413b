//! Where the memory of a container, or of a control group in it, ends: room is made by giving back
//! what nobody touched, or by sending out what was not used lately; else by ending a process
//! (Linux: mm/vmscan.c, mm/oom_kill.c).
//!
//! # Invariants
//!
//! - An allocation that waits for room may hold an address space's lock and a file's. So this runs
//!   on a thread of its own, which is there only while somebody waits, and takes an address
//!   space's lock only where it is free. Who waits with such a lock held sends out its own part
//!   itself, when it is asked.
//! - What is sent out is taken as the policy says (`container::replacement`). Nobody gives what is
//!   reserved for it, nor what its group is protected by from others (`memory.min`; `memory.low` as
//!   long as there is something else).
//! - For a group's limit ([`Domain`]) only frames go that are paid from its account or one below,
//!   and only processes of it and of groups below are asked, or ended.
//! - A process that has reached a limit of its own makes room itself ([`mm::Bounds`]); where it
//!   cannot, it alone is ended.
//! - What is reserved is no more than there can be, together: else it is refused.
//! - Else it ends processes of this container, or group, alone, and only while somebody waits who
//!   has given up all that it could itself: none while one that is to die is still on its way out,
//!   for [`PATIENCE`] at most.
//! - A process that it ends gets no more memory, and waits for none: it can go.
//! - The kernel's own memory for a container's objects counts within its limit. Who makes too much
//!   of it may hold locks: it waits before its program goes on (`task::run`), and what it has made
//!   counts where it is chosen who ends.

use super::Kernel;
use super::reclaim::thread;
use super::send::{Time, Urgency};
use crate::cgroup::Cgroup;
use crate::cgroup::memory::{Event, Memory, Protections};
use crate::container::Container;
use crate::container::log::Level;
use crate::container::replacement::Share;
use crate::task::{Task, ThreadGroup};
use abi::PAGE_SIZE;
use abi::errno::{EAGAIN, EINTR};
use abi::signal::SIGKILL;
use clas::{AccountId, Shortage};
use config::control::ToStarter;
use config::{LEAST_MEMORY, MemoryProcess, MemoryReport};
use mm::{Bounds, Mm};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So much is worth a round; less could be had again and again, one page at a time.
pub(super) const ENOUGH: u64 = 32 * PAGE_SIZE;
/// How long a process may take to go before the next one is ended, too: it may be held up by a lock
/// of who waits for its memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long address spaces may be too busy to be asked for what they have not touched.
const BUSY_MAX: Duration = Duration::from_millis(200);
/// So many rounds are made in vain for an account that nobody waits for.
const IN_VAIN: u32 = 20;
/// So many times little can be sent out before that is believed; a tenth of them where each takes
/// long.
const STUCK: u32 = 100;
const STUCK_LONG: Duration = Duration::from_secs(2);
/// How long nobody was on the way out before somebody is ended: the last steps of one are not seen.
const SETTLED: Duration = Duration::from_millis(10);
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the thread stays after the last shortage.
const STAY: Duration = Duration::from_millis(200);
/// `OOM_SCORE_ADJ_MIN`: never ended for lack of memory.
const NEVER: i32 = -1000;

/// Processes that are on their way out, and have not given enough back.
#[derive(Debug, Default)]
struct Going {
    /// Since when they are awaited.
    since: Option<Instant>,
    /// When some were seen last.
    seen: Option<Instant>,
    /// Since when nothing was found that could be given back, and not all could be asked.
    busy_since: Option<Instant>,
    /// How often nothing was sent out that nobody waited for.
    in_vain: u32,
    /// Since when, and how often, little was sent out though there is swap.
    stuck_since: Option<(Instant, u32)>,
}

impl Going {
    /// Little could be sent out this time: whether that is so for long, and again and again (this
    /// thread may have had no CPU).
    fn is_stuck(&mut self) -> bool {
        let (since, times) = self.stuck_since.get_or_insert_with(|| (Instant::now(), 0));
        *times += 1;
        let is_long = since.elapsed() > STUCK_LONG && *times > STUCK / 10;
        is_long || (since.elapsed() > BUSY_MAX && *times > STUCK)
    }

    /// Whether it nearly is.
    fn is_nearly_stuck(&self) -> bool {
        self.stuck_since
            .is_some_and(|(since, times)| since.elapsed() > BUSY_MAX / 2 && times > STUCK / 20)
    }

    /// `some_go`: whether there are some now.
    fn is_to_be_awaited(&mut self, some_go: bool) -> bool {
        let now = Instant::now();
        if some_go {
            self.seen = Some(now);
        }
        let since = *self.since.get_or_insert(now);
        let recent = self.seen.is_some_and(|s| now - s < SETTLED);
        let wait = recent && now - since < PATIENCE;
        if !wait {
            (self.since, self.seen, self.busy_since) = (None, None, None);
        }
        wait
    }
}

/// A process that has memory.
pub(super) struct Holder {
    pub(super) group: Arc<ThreadGroup>,
    /// Where it was when it was found: under the lock that moves take, as who pays for it changes.
    pub(super) cgroup: Arc<Cgroup>,
    pub(super) mm: Arc<Mm>,
}

impl Holder {
    /// What it has, and what of that nobody takes.
    pub(super) fn share(&self, p: &mut Protections<'_>) -> Share {
        let here = self.mm.charged_here();
        Share {
            id: self.mm.id(),
            here,
            reserve: (self.mm.bounds().reserve).max(p.part(&self.cgroup, here)),
            old: self.mm.old(),
            adj: self.group.oom_score_adj(),
        }
    }

    /// What it has of the kernel's memory, as far as that is known.
    fn kernel_memory(&self, c: &Container) -> u64 {
        (self.group.payer.kernel_memory()).min(c.clas.kernel_memory())
    }

    fn is_dying(&self) -> bool {
        self.group.needs_no_kill()
    }

    pub(super) fn command(&self, k: &Kernel) -> String {
        let task = k.tasks.lock().some_thread(self.group.tgid);
        task.map_or_else(String::new, |t| crate::fs::proc::command_line(&t))
    }
}

/// Whose limit it is that somebody needs room within.
#[derive(Clone)]
pub(super) struct Domain {
    pub(super) account: AccountId,
    /// `None` for the container.
    pub(super) group: Option<Arc<Cgroup>>,
}

impl Domain {
    /// `None` where the group is gone.
    fn of(c: &Container, account: AccountId) -> Option<Domain> {
        let group = match account {
            AccountId::ROOT => None,
            id => Some(c.ns.cgroup.with_account(id)?),
        };
        Some(Domain { account, group })
    }

    pub(super) fn group(&self) -> Option<&Cgroup> {
        self.group.as_deref()
    }

    pub(super) fn has(&self, h: &Holder) -> bool {
        let of = |d: &Arc<Cgroup>| h.cgroup.is_below(d);
        self.group.as_ref().is_none_or(of)
    }

    /// The limit, bytes.
    fn limit(&self, c: &Container) -> u64 {
        let own = self.group.as_ref().and_then(|g| g.memory());
        own.map_or(c.clas.stats().limit, |m| m.max())
    }

    /// The same with the swap that it may have.
    fn limit_with_swap(&self, c: &Container) -> u64 {
        let own = self.group.as_ref().and_then(|g| g.memory());
        let swap = own.map_or(u64::MAX, |m| m.swap_max());
        let swap = swap.min(c.clas.swap_stats().limit);
        self.limit(c).saturating_add(swap)
    }

    fn count(&self, c: &Container, e: Event) {
        self.group().unwrap_or(&c.ns.cgroup).memory_event(e);
    }
}

/// Why a process is ended.
#[derive(Clone, Copy)]
enum Why<'a> {
    /// The limit of the container, or of a group in it.
    Domain(&'a Domain),
    /// Its own.
    Own,
}

impl Kernel {
    /// Has the container's limit of memory kept by its own processes.
    pub fn govern_memory(self: &Arc<Self>, c: &Arc<Container>) {
        self.watch_pressure(c);
        vfs::ucounts::count_in(&c.clas);
        self.choose_replacement(c, c.ns.cgroup.replacement());
        let (kernel, container) = (Arc::downgrade(self), Arc::downgrade(c));
        c.clas.on_shortage(Box::new(move || {
            if let (Some(k), Some(c)) = (kernel.upgrade(), container.upgrade()) {
                k.memory_is_short(c);
            }
        }));
        // The sandbox's own starter, which alone sees the Sentry's end.
        let (kernel, fd) = (Arc::downgrade(self), c.clas.memory_fd());
        c.clas.on_confidential(Box::new(move || {
            (kernel.upgrade()).is_some_and(|k| k.root.tell_of_confidential(fd))
        }));
    }

    fn memory_is_short(self: &Arc<Self>, c: Arc<Container>) {
        {
            let mut worker = c.shortage.worker.lock();
            worker.is_asked = true;
            if std::mem::replace(&mut worker.runs, true) {
                c.shortage.asked.notify_one();
                return;
            }
        }
        let (k, own) = (self.clone(), c.clone());
        if !thread("memory", move || k.clone().guard(|| k.make_room(&own))) {
            c.shortage.worker.lock().runs = false;
            c.clas.no_hope(AccountId::ROOT);
        }
    }

    /// Rounds, as long as somebody waits.
    fn make_room(&self, c: &Arc<Container>) {
        let mut all: HashMap<AccountId, (Domain, Going)> = HashMap::new();
        // How many other accounts than the container's were served.
        let mut next = 0;
        let mut asked = Instant::now();
        let mut again = false;
        loop {
            {
                let mut worker = c.shortage.worker.lock();
                if std::mem::take(&mut worker.is_asked) || again {
                    asked = Instant::now();
                } else if asked.elapsed() > STAY {
                    worker.runs = false;
                    return;
                }
            }
            if c.clas.take_exhausted() || again {
                again = !self.keep_own_limits(c);
            }
            let shortages = c.clas.shortages();
            all.retain(|id, _| shortages.iter().any(|s| s.account == *id));
            let mut some_freed = false;
            let time = Time::of_turn();
            for s in in_turn(shortages, next) {
                if s.account != AccountId::ROOT {
                    if time.is_over() {
                        break;
                    }
                    next += 1;
                }
                if !all.contains_key(&s.account)
                    && let Some(d) = Domain::of(c, s.account)
                {
                    all.insert(s.account, (d, Going::default()));
                }
                match all.get_mut(&s.account) {
                    Some(of) => some_freed |= self.serve(c, of, s, time),
                    // Its limits are gone as well.
                    None => c.clas.no_hope(s.account),
                }
                if s.is_awaited {
                    asked = Instant::now();
                }
            }
            if some_freed {
                asked = Instant::now();
                continue;
            }
            let mut worker = c.shortage.worker.lock();
            if !worker.is_asked {
                c.shortage.asked.wait_for(&mut worker, PAUSE);
            }
        }
    }

    /// One round for one limit; whether enough could be sent out that the next is worth it at once.
    fn serve(
        &self,
        c: &Arc<Container>,
        (d, going): &mut (Domain, Going),
        s: Shortage,
        time: Time,
    ) -> bool {
        if s.is_awaited {
            d.count(c, Event::Max);
        }
        let is_late = going.is_nearly_stuck();
        let freed = self.send_out(c, d, s, Urgency { time, is_late });
        // (A few pages that come back at once are no progress.)
        if freed >= ENOUGH {
            going.stuck_since = None;
            going.in_vain = 0;
            return true;
        }
        if !s.is_awaited {
            going.since = None;
            going.stuck_since = None;
            going.in_vain = if freed > 0 { 0 } else { going.in_vain + 1 };
            if going.in_vain > IN_VAIN {
                c.clas.leave(s.account);
            }
        } else if s.wanted == 0 || going.is_stuck() {
            self.round(c, d, going);
        }
        false
    }

    /// Has what the kernel remembers without need forgotten, where its memory is a good part of what
    /// the container has; whether that goes on. On a thread of its own: others hold locks that it
    /// takes.
    fn shrinks_caches(&self, c: &Arc<Container>, d: &Domain) -> bool {
        if d.group.is_some() || c.clas.kernel_memory() < d.limit(c) / 16 {
            return false;
        }
        if c.shortage.caches.lock().begin() {
            let own = c.clone();
            let shrink = move || {
                vfs::dentry::shrink_all();
                own.shortage.caches.lock().end();
            };
            if !thread("shrink", shrink) {
                c.shortage.caches.lock().end();
            }
        }
        c.shortage.caches.lock().is_shrinking()
    }

    fn round(&self, c: &Arc<Container>, d: &Domain, going: &mut Going) {
        let (holders, beside): (Vec<_>, Vec<_>) =
            self.holders(c).into_iter().partition(|h| d.has(h));
        let (mut freed, mut some_busy) = (0, self.shrinks_caches(c, d));
        for h in &holders {
            match h.mm.trim() {
                Some(n) => freed += n,
                None => some_busy = true,
            }
        }
        if freed >= ENOUGH || !c.clas.is_awaited(d.account) {
            going.busy_since = None;
            return;
        }
        // The next time.
        if some_busy && going.busy_since.get_or_insert_with(Instant::now).elapsed() < BUSY_MAX {
            return;
        }
        going.busy_since = None;
        // (vfork(2) and its like: whose memory a process of somebody else has, too, goes on.)
        let of = |h: &Holder| Arc::as_ptr(&h.mm);
        let staying: HashSet<*const Mm> = (holders.iter().filter(|h| !h.is_dying()))
            .chain(&beside)
            .map(of)
            .collect();
        let borrowed: HashSet<*const Mm> = beside.iter().map(of).collect();
        let ending = |h: &&Holder| h.is_dying() && !staying.contains(&of(h));
        holders.iter().filter(ending).for_each(|h| h.mm.doom());
        let some_go = holders.iter().any(Holder::is_dying) || c.clas.is_to_get_more();
        if going.is_to_be_awaited(some_go) {
            return;
        }
        d.count(c, Event::Oom);
        let limit = d.limit_with_swap(c);
        let score = |h: &&Holder| {
            let bytes = h.mm.charged().saturating_sub(h.mm.bounds().reserve);
            // (Linux does not count the kernel's, and ends whoever else is large for it.)
            let bytes = bytes + h.kernel_memory(c);
            badness(bytes, h.group.oom_score_adj(), limit)
        };
        let victim = holders
            .iter()
            .filter(|h| !h.is_dying() && h.group.oom_score_adj() != NEVER)
            .filter(|h| !borrowed.contains(&of(h)))
            .max_by_key(score);
        match victim {
            Some(v) => {
                self.end_group_for_memory(c, v, &holders, d);
                going.is_to_be_awaited(true);
            }
            None => c.clas.no_hope(d.account),
        }
    }

    /// Ends a process, and with it all of its group whose processes end together
    /// (`memory.oom.group`).
    fn end_group_for_memory(
        &self,
        c: &Arc<Container>,
        victim: &Holder,
        all: &[Holder],
        d: &Domain,
    ) {
        self.end_for_memory(c, victim, all, Why::Domain(d));
        let Some(group) = victim.cgroup.oom_group(d.group()) else {
            return;
        };
        group.memory_event(Event::OomGroupKill);
        let rest = all.iter().filter(|h| {
            h.cgroup.is_below(group)
                && !h.is_dying()
                && h.group.oom_score_adj() != NEVER
                && !Arc::ptr_eq(&h.group, &victim.group)
        });
        rest.for_each(|h| self.end_for_memory(c, h, all, Why::Domain(d)));
    }

    /// `memory.reclaim`: has so many bytes of a group sent out, which this is the controller of.
    /// `EAGAIN` where fewer could be.
    pub fn reclaim(
        &self,
        group: &Arc<Cgroup>,
        m: &Memory,
        by: &Task,
        bytes: u64,
    ) -> abi::Result<()> {
        /// At a time, and so often in vain.
        const STEP: u64 = 4 << 20;
        const TRIES: u32 = 16;
        let c = &by.group.container;
        let account = m.account.id();
        let d = Domain {
            account,
            group: Some(group.clone()),
        };
        let (mut done, mut tries) = (0, 0);
        // More than there is now would take what others make meanwhile.
        let most = m.account.here();
        while done < bytes {
            if by.has_work() {
                return Err(EINTR);
            }
            if done >= most {
                return Err(EAGAIN);
            }
            let s = Shortage {
                account,
                wanted: STEP.min(bytes - done),
                is_awaited: false,
            };
            let u = Urgency {
                time: Time::of_turn(),
                is_late: false,
            };
            let freed = self.send_out(c, &d, s, u);
            tries += u32::from(freed == 0);
            if tries > TRIES {
                return Err(EAGAIN);
            }
            done += freed;
        }
        Ok(())
    }

    /// Ends processes that need more than their own limits allow, and can give up nothing; whether
    /// all could be asked.
    fn keep_own_limits(&self, c: &Arc<Container>) -> bool {
        let holders = self.holders(c);
        let mut all = true;
        for h in &holders {
            let has_room = match h.mm.shrink() {
                Some(within) => within && !h.mm.is_exhausted(),
                None => {
                    all = false;
                    continue;
                }
            };
            if h.is_dying() {
                h.mm.doom();
            } else if !has_room {
                self.end_for_memory(c, h, &holders, Why::Own);
            }
        }
        all
    }

    /// Changes what a process, by its number in the container, may have here and what stays here;
    /// `None` leaves it. A sentence where that cannot be.
    pub fn set_bounds(
        &self,
        c: &Arc<Container>,
        pid: i32,
        limit: Option<u64>,
        reserve: Option<u64>,
    ) -> Result<(), String> {
        let _one = c.shortage.bounds.lock();
        let ns = &c.ns.pid_for_children;
        let holders = self.holders(c);
        let (own, others): (Vec<_>, Vec<_>) =
            holders.iter().partition(|h| h.group.pid.seen_in(ns) == pid);
        let h = own.first().ok_or("there is no such process")?;
        let old = *h.group.memory.lock();
        let new = Bounds {
            limit: limit.unwrap_or(old.limit),
            reserve: reserve.unwrap_or(old.reserve),
        };
        if new.limit < LEAST_MEMORY || new.limit < new.reserve {
            return Err(format!(
                "a limit is {} MB at least, and no less than what is reserved",
                LEAST_MEMORY >> 20
            ));
        }
        let reserved: u64 = others.iter().map(|h| h.mm.bounds().reserve).sum();
        let free = c.clas.stats().limit.saturating_sub(reserved);
        if new.reserve > old.reserve && new.reserve > free {
            return Err(format!(
                "{} MB cannot be reserved: of the container's memory, {} MB are not",
                new.reserve >> 20,
                free >> 20
            ));
        }
        *h.group.memory.lock() = new;
        // (Whichever it has by now.)
        let l = self.tasks.lock();
        let mm = l.memory_of(h.group.tgid, &self.no_memory);
        drop(l);
        mm.unwrap_or_else(|| h.mm.clone()).set_bounds(new);
        c.clas.tell_of_exhausted();
        Ok(())
    }

    /// Who has a container's memory.
    pub fn memory_report(&self, c: &Arc<Container>) -> MemoryReport {
        let (all, swap) = (c.clas.stats(), c.clas.swap_stats());
        let limit = |n: u64| (n != u64::MAX).then_some(n);
        let mut report = MemoryReport {
            limit: limit(c.ns.cgroup.frames_max().unwrap_or(u64::MAX)),
            counted: c.clas.here(),
            kernel: c.clas.kernel_memory(),
            resident: all.resident,
            swap_limit: swap.limit,
            swapped: swap.used,
            swap_memory: swap.memory,
            replacement: c.shortage.replacement(),
            pressure: told(c.clas.pressure()),
            ended: c.shortage.kills.load(Ordering::Relaxed),
            processes: Vec::new(),
        };
        let ns = &c.ns.pid_for_children;
        for h in self.holders(c) {
            let (f, bounds) = (h.mm.footprint(), h.mm.bounds());
            report.processes.push(MemoryProcess {
                pid: h.group.pid.seen_in(ns),
                command: h.command(self),
                size: f.size,
                counted: h.mm.charged_here(),
                resident: f.resident,
                shared: f.shared,
                proportional: f.proportional,
                swapped: f.swapped,
                reserved: bounds.reserve,
                limit: limit(bounds.limit),
            });
        }
        report
    }

    /// The processes of a container that have memory.
    pub(super) fn holders(&self, c: &Arc<Container>) -> Vec<Holder> {
        let l = self.tasks.lock();
        let of = |group: Arc<ThreadGroup>| {
            let mm = l.memory_of(group.tgid, &self.no_memory)?;
            let cgroup = group.cgroup();
            Some(Holder { group, cgroup, mm })
        };
        l.processes()
            .filter(|p| Arc::ptr_eq(&p.group.container, c))
            .filter_map(|p| of(p.group.clone()))
            .collect()
    }

    /// The same, each address space once.
    pub(super) fn address_spaces(&self, c: &Arc<Container>) -> Vec<Holder> {
        let mut holders = self.holders(c);
        holders.sort_by_key(|h| h.mm.id());
        holders.dedup_by(|a, b| Arc::ptr_eq(&a.mm, &b.mm));
        holders
    }

    /// Ends a process, and all that share its memory.
    fn end_for_memory(&self, c: &Arc<Container>, victim: &Holder, all: &[Holder], why: Why<'_>) {
        let id = victim.group.tgid;
        let size = victim.mm.charged() + victim.kernel_memory(c);
        let name = self.tasks.lock().task(id).map(|t| t.comm());
        let name = String::from_utf8_lossy(&name.unwrap_or_default()).into_owned();
        for h in all.iter().filter(|h| Arc::ptr_eq(&h.mm, &victim.mm)) {
            h.mm.doom();
            self.kill_group(&h.group, SIGKILL.number());
        }
        victim.cgroup.memory_event(Event::OomKill);
        let kills = c.shortage.kills.fetch_add(1, Ordering::Relaxed) + 1;
        let mb = |n: u64| n.div_ceil(1 << 20);
        let (limit, whose) = match why {
            Why::Domain(d) if d.group.is_some() => (d.limit(c), "its control group"),
            Why::Domain(d) => (d.limit(c), "the container"),
            Why::Own => (victim.mm.bounds().limit, "it"),
        };
        let text = format!(
            "out of memory: process {id} ({name}) is ended, which has {} MB of the {} MB that \
             {whose} may have{}",
            mb(size),
            mb(limit),
            match c.clas.swap_stats().limit {
                0 => String::new(),
                n => format!(", and {} MB of swap", mb(n)),
            }
        );
        self.log(c, Level::Error, &text);
        let m = [&kills.to_le_bytes(), text.as_bytes()].concat();
        c.try_tell(ToStarter::OutOfMemory, &m);
    }
}

/// As they are served this time: the container first, then the others in turn, so that many cannot
/// keep one from it; only so many.
fn in_turn(mut all: Vec<Shortage>, next: usize) -> Vec<Shortage> {
    const MOST: usize = 16;
    let root = usize::from(all.first().is_some_and(|s| s.account == AccountId::ROOT));
    let others = all.len() - root;
    if others > 0 {
        all[root..].rotate_left(next % others);
    }
    all.truncate(root + MOST);
    all
}

fn told(p: clas::Pressure) -> config::Pressure {
    let lost = |l: clas::StallTime| config::StallTime {
        averages: l.averages,
        total_us: l.total.as_micros() as u64,
    };
    config::Pressure {
        some: lost(p.some),
        full: lost(p.full),
    }
}

/// What speaks for ending a process with so many bytes (`oom_badness`): `adj` is in thousandths of
/// the limit.
fn badness(charged: u64, adj: i32, limit: u64) -> i64 {
    let pages = |bytes: u64| i64::try_from(bytes / PAGE_SIZE).unwrap_or(i64::MAX);
    let limit = if limit == u64::MAX { 0 } else { pages(limit) };
    pages(charged).saturating_add(limit / 1000 * i64::from(adj))
}

#[cfg(test)]
mod tests {
    use super::badness;

    #[test]
    fn the_largest_goes_but_for_what_was_said() {
        let limit = 1000 << 20;
        let of = |mb: u64, adj| badness(mb << 20, adj, limit);
        assert!(of(300, 0) > of(200, 0));
        assert!(of(200, 200) > of(300, 0));
        assert!(of(300, -999) < of(1, 0));
        assert!(badness(2 << 20, 0, u64::MAX) > badness(1 << 20, 1000, u64::MAX));
    }
}
