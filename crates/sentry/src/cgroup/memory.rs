//! The `memory` controller of groups below a container's root (Documentation/admin-guide/
//! cgroup-v2.rst, mm/memcontrol.c).
//!
//! A group has an account of frames ([`clas::Account`]), which keeps its limits. What happens where
//! one is reached is [`crate::kernel`]'s `memory`; here are what the files say, and the words that
//! are written to them. What the container as a whole may have is its root's ([`super::limits`]).
//!
//! What counts is what frames are: private memory, files in memory, shared memory. The kernel's
//! objects count for users, not for groups.

use super::Cgroup;
use crate::fs::pressure::Alarm;
use crate::{Kernel, Task};
use abi::errno::{EAGAIN, EINVAL, ENODEV, ERANGE};
use abi::{PAGE_SIZE, Result};
use clas::{Account, AccountId, Clas, PeakOf};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use vfs::file::File;
use vfs::notice::Notice;

/// What happened, in the order of `memory.events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Low,
    High,
    Max,
    Oom,
    OomKill,
    OomGroupKill,
}

/// How often. Atomics.
#[derive(Debug, Default)]
struct Events([AtomicU64; 6]);

/// What happened in a group and below, and in it alone.
#[derive(Debug, Default)]
pub(super) struct Happened {
    all: Events,
    own: Events,
}

impl Happened {
    /// `memory.events` or `memory.events.local`.
    pub(super) fn text(&self, name: &str) -> String {
        let events = match name {
            "memory.events" => &self.all,
            _ => &self.own,
        };
        events.text()
    }
}

impl Events {
    fn count(&self, e: Event) {
        self.0[e as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn text(&self) -> String {
        let names = ["low", "high", "max", "oom", "oom_kill", "oom_group_kill"];
        let all = names.iter().zip(&self.0);
        all.map(|(name, n)| format!("{name} {}\n", n.load(Ordering::Relaxed)))
            .collect()
    }
}

/// What was written to the files, in bytes; `u64::MAX` for no limit. Atomics, each for itself.
#[derive(Debug)]
struct Words {
    min: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
    max: AtomicU64,
    swap_high: AtomicU64,
    swap_max: AtomicU64,
}

impl Default for Words {
    fn default() -> Words {
        let [high, max, swap_high, swap_max] = [u64::MAX; 4].map(AtomicU64::new);
        Words {
            min: AtomicU64::new(0),
            low: AtomicU64::new(0),
            high,
            max,
            swap_high,
            swap_max,
        }
    }
}

impl Words {
    fn of(&self, name: &str) -> Option<&AtomicU64> {
        Some(match name {
            "memory.min" => &self.min,
            "memory.low" => &self.low,
            "memory.high" => &self.high,
            "memory.max" => &self.max,
            "memory.swap.high" => &self.swap_high,
            "memory.swap.max" => &self.swap_max,
            _ => return None,
        })
    }
}

/// The controller of one group.
#[derive(Debug)]
pub struct Memory {
    pub account: Account,
    words: Words,
    /// `memory.oom.group`: all its processes end together. Atomic.
    oom_group: AtomicBool,
    happened: Happened,
    /// How often who made memory here was held up for `memory.swap.high`. Atomic.
    swap_high_events: AtomicU64,
    /// Who has `memory.peak` and `memory.swap.peak` open, and wrote to it.
    peaks: Peaks,
    swapped_peaks: Peaks,
}

/// Open files that forget what was highest before they were written to.
#[derive(Debug, Default)]
struct Peaks(Mutex<Vec<Weak<OwnPeak>>>);

/// What was highest since an open file was written to, bytes; `None` before that. What the account
/// has as its recent peak comes on top.
#[derive(Debug, Default)]
pub(super) struct OwnPeak(Mutex<Option<u64>>);

impl Peaks {
    /// `own` forgets, and no other.
    fn restart(&self, account: &Account, of: PeakOf, own: &Arc<OwnPeak>) {
        let mut all = self.0.lock();
        let before = account.restart_peak(of);
        all.retain(|o| {
            let Some(other) = o.upgrade().filter(|o| !Arc::ptr_eq(o, own)) else {
                return false;
            };
            if let Some(n) = &mut *other.0.lock() {
                *n = before.max(*n);
            }
            true
        });
        *own.0.lock() = Some(0);
        all.push(Arc::downgrade(own));
    }
}

/// Which of a group's memory others cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// `memory.min`, never.
    Min,
    /// `memory.low` as well, unless nothing else is left.
    Low,
}

impl Memory {
    /// That of a new group below `parent`.
    pub(super) fn below(parent: &Cgroup, swap: &Arc<Notice>) -> Result<Arc<Memory>> {
        let clas = parent.clas().ok_or(ENODEV)?;
        let above = parent.memory();
        let account = clas.open_account(above.as_ref().map(|m| &m.account))?;
        let swap = swap.clone();
        account.on_swap_fail(move || swap.tell());
        Ok(Arc::new(Memory {
            account,
            words: Words::default(),
            oom_group: AtomicBool::new(false),
            happened: Happened::default(),
            swap_high_events: AtomicU64::new(0),
            peaks: Peaks::default(),
            swapped_peaks: Peaks::default(),
        }))
    }

    /// `memory.max`, bytes.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.words.max.load(Ordering::Relaxed)
    }

    /// `memory.swap.max`, bytes.
    #[must_use]
    pub fn swap_max(&self) -> u64 {
        self.words.swap_max.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn oom_group(&self) -> bool {
        self.oom_group.load(Ordering::Relaxed)
    }

    /// Of so much that is here, so many bytes are protected by its own words.
    fn protected(&self, p: Protection, here: u64) -> u64 {
        let min = self.words.min.load(Ordering::Relaxed);
        let low = self.words.low.load(Ordering::Relaxed);
        let bytes = if p == Protection::Min {
            min
        } else {
            min.max(low)
        };
        bytes.min(here)
    }

    fn is_above_high(&self) -> bool {
        self.account.here() > self.words.high.load(Ordering::Relaxed)
    }

    fn is_above_swap_high(&self) -> bool {
        self.account.stats().swapped > self.words.swap_high.load(Ordering::Relaxed)
    }

    fn set(&self, name: &str, bytes: u64) {
        let bytes = match bytes {
            u64::MAX => bytes,
            n => n & !(PAGE_SIZE - 1),
        };
        if let Some(w) = self.words.of(name) {
            w.store(bytes, Ordering::Relaxed);
        }
        match name {
            "memory.max" => self.account.set_max(bytes),
            "memory.high" => self.account.set_high(bytes),
            "memory.swap.max" => self.account.set_swap_max(bytes),
            "memory.swap.high" => self.account.set_swap_high(bytes),
            _ => {}
        }
    }

    /// Of so much that is here, what was touched, bytes.
    fn touched(&self, here: u64) -> u64 {
        here.saturating_sub(self.account.untouched())
    }

    /// What is highest since `own` was written to; `None` where it was not.
    pub(super) fn peak_since(&self, of: PeakOf, own: &OwnPeak) -> Option<u64> {
        let own = (*own.0.lock())?;
        Some(own.max(self.account.recent_peak(of)))
    }

    /// A file of the peaks was written to.
    pub(super) fn restart_peak(&self, of: PeakOf, own: &Arc<OwnPeak>) {
        let all = match of {
            PeakOf::Here => &self.peaks,
            PeakOf::Stored => &self.swapped_peaks,
        };
        all.restart(&self.account, of, own);
    }

    /// The text of one of its files.
    fn text(&self, name: &str) -> String {
        if let Some(w) = self.words.of(name) {
            return super::files::limit(w.load(Ordering::Relaxed));
        }
        let s = self.account.stats();
        match name {
            "memory.current" => format!("{}\n", self.touched(s.here)),
            "memory.peak" => format!("{}\n", s.peak),
            "memory.pressure" => self.account.pressure().to_string(),
            "memory.swap.current" => format!("{}\n", s.swapped),
            "memory.swap.peak" => format!("{}\n", s.swapped_peak),
            "memory.events" | "memory.events.local" => self.happened.text(name),
            "memory.swap.events" => {
                let high = self.swap_high_events.load(Ordering::Relaxed);
                format!("high {high}\nmax {0}\nfail {0}\n", s.swap_fails)
            }
            "memory.oom.group" => format!("{}\n", u8::from(self.oom_group())),
            "memory.stat" => {
                let here = self.touched(s.here);
                super::limits::memory_stat(here, 0, s.files, s.pages_in, s.pages_out)
            }
            _ => String::new(),
        }
    }
}

/// A number as `simple_strtoull` reads it, and what follows: by 16, 8 or 10; 0 where there is none.
fn number(text: &str) -> (u64, &str) {
    let (base, digits) = match text.get(..2) {
        Some("0x" | "0X") => (16, &text[2..]),
        _ if text.starts_with('0') => (8, text),
        _ => (10, text),
    };
    let end = digits.find(|c: char| !c.is_digit(base));
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    let more = |n: u64, c: char| {
        let digit = u64::from(c.to_digit(base).unwrap_or(0));
        n.wrapping_mul(base.into()).wrapping_add(digit)
    };
    (digits.chars().fold(0, more), rest)
}

/// A number of bytes as `page_counter_memparse` takes it: `max`, or with K, M, G and so on behind.
fn bytes(text: &str) -> Result<u64> {
    if text == "max" {
        return Ok(u64::MAX);
    }
    let (n, unit) = number(text);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        "P" | "p" => 50,
        "E" | "e" => 60,
        _ => return Err(EINVAL),
    };
    // (Of so many pages the counter makes no limit.)
    let n = n.wrapping_shl(shift);
    let is_none = n / PAGE_SIZE >= i64::MAX as u64 / PAGE_SIZE;
    Ok(if is_none { u64::MAX } else { n })
}

/// A switch as `kstrtoint` reads it.
fn switch(text: &str) -> Result<bool> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (n, rest) = number(digits);
    if digits.is_empty() || !rest.is_empty() {
        return Err(EINVAL);
    }
    match n {
        0x8000_0000.. => Err(ERANGE),
        0 => Ok(false),
        1 if !is_negative => Ok(true),
        _ => Err(EINVAL),
    }
}

/// What of groups' memory nobody takes who needs room in a group above them
/// (`page_counter_calculate_protection`, with `memory_recursiveprot`).
pub struct Protections<'a> {
    domain: Option<&'a Cgroup>,
    what: Protection,
    /// Of groups, by number: what is protected, and what is here.
    known: HashMap<u64, (u64, u64)>,
}

impl<'a> Protections<'a> {
    /// For who needs room in `domain`; `None` is the container.
    #[must_use]
    pub fn within(domain: Option<&'a Cgroup>, what: Protection) -> Protections<'a> {
        Protections {
            domain,
            what,
            known: HashMap::new(),
        }
    }

    /// Of so many bytes that a process of `c` has, those that stay.
    pub fn part(&mut self, c: &Cgroup, of: u64) -> u64 {
        let (protected, here) = self.of(c).unwrap_or((0, 0));
        part(protected, of, here).min(protected)
    }

    /// Whether all that a group has is protected.
    pub fn covers(&mut self, c: &Cgroup) -> bool {
        self.of(c)
            .is_some_and(|(protected, here)| protected >= here)
    }

    /// The nearest group from `c` upwards that has the controller: what of its memory is protected,
    /// and how much it has; `None` where that is the domain, or above it.
    fn of(&mut self, c: &Cgroup) -> Option<(u64, u64)> {
        let is_domain = |c: &&Cgroup| self.domain.is_some_and(|d| std::ptr::eq(*c, d));
        let mut below = c.upwards().take_while(|c| !is_domain(c));
        let (c, m) = below.find_map(|c| Some((c, c.memory()?)))?;
        if let Some(known) = self.known.get(&c.id) {
            return Some(*known);
        }
        let here = m.account.here();
        let own = m.protected(self.what, here);
        let above = c.parent.as_deref().and_then(|p| Some((p, self.of(p)?)));
        let protected = match above {
            None => own,
            Some((parent, (given, parent_here))) => {
                let all: u64 = (parent.children().iter())
                    .filter_map(|(_, s)| s.memory())
                    .map(|m| m.protected(self.what, m.account.here()))
                    .sum();
                share(own, here, given, parent_here, all)
            }
        };
        self.known.insert(c.id, (protected, here));
        Some((protected, here))
    }
}

/// The part of `n` that `of` is of `whole`; nothing of nothing.
pub(crate) fn part(n: u64, of: u64, whole: u64) -> u64 {
    let part = (u128::from(n) * u128::from(of)).checked_div(whole.into());
    u64::try_from(part.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// What is protected of a group that has so much here and asks for `own`: of what its parent is
/// `given`, which has so much here itself and children that ask for `all` together.
fn share(own: u64, here: u64, given: u64, parent_here: u64, all: u64) -> u64 {
    if all > given {
        return part(own, given, all);
    }
    // What nobody asks for goes to all by what they have without protection.
    if given > all && parent_here > all && here > own {
        return (own + part(given - all, here - own, parent_here - all)).min(here);
    }
    own
}

impl Cgroup {
    /// It is of the container that has this memory.
    pub fn is_of(&self, clas: &Arc<Clas>) {
        let _ = self.clas.set(Arc::downgrade(clas));
    }

    /// The memory of its container.
    #[must_use]
    pub(super) fn clas(&self) -> Option<Arc<Clas>> {
        self.clas.get().and_then(Weak::upgrade)
    }

    /// The account that its files tell of; `None` where it has none.
    pub(super) fn own_account(&self) -> Option<AccountId> {
        if self.is_root() {
            return Some(AccountId::ROOT);
        }
        self.memory().map(|m| m.account.id())
    }

    /// It is told when this account is not the group's any more ([`Cgroup::end_alarms`]).
    pub(super) fn add_alarm(&self, a: &Arc<Alarm>, account: AccountId) {
        let mut all = self.alarms.lock();
        all.retain(|a| a.strong_count() > 0);
        all.push(Arc::downgrade(a));
        drop(all);
        if self.own_account() != Some(account) {
            a.end();
        }
    }

    /// Its controller is gone, or another: whoever waits for what it tells is told so.
    pub(super) fn end_alarms(&self) {
        let all = std::mem::take(&mut *self.alarms.lock());
        all.iter().filter_map(Weak::upgrade).for_each(|a| a.end());
    }

    /// Its `memory` controller, if it has one of its own.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<Memory>> {
        self.memory.lock().clone()
    }

    /// Who pays for what its processes make: it, or the nearest group above that has the
    /// controller.
    #[must_use]
    pub fn account(&self) -> AccountId {
        let own = self.upwards().find_map(Cgroup::memory);
        own.map_or(AccountId::ROOT, |m| m.account.id())
    }

    /// The group, of it and those below, that has this account.
    #[must_use]
    pub fn with_account(self: &Arc<Self>, id: AccountId) -> Option<Arc<Cgroup>> {
        let has = |c: &Arc<Cgroup>| c.memory().is_some_and(|m| m.account.id() == id);
        self.subtree().into_iter().find(has)
    }

    /// Something happened to the memory of its processes.
    pub fn memory_event(&self, e: Event) {
        let mut is_first = true;
        for c in self.upwards() {
            let memory = c.memory();
            let own = memory.as_ref().map(|m| &m.happened);
            let Some(h) = own.or_else(|| c.is_root().then_some(&c.happened)) else {
                continue;
            };
            if std::mem::take(&mut is_first) {
                h.own.count(e);
                c.notices.own_memory.tell();
            }
            h.all.count(e);
            c.notices.memory.tell();
        }
    }

    /// Counts, for each group that has more than its `memory.high`, that one of its processes makes
    /// more; whether there is one.
    pub fn count_above_high(&self) -> bool {
        let mut some = false;
        for c in self.upwards() {
            let Some(m) = c.memory() else { continue };
            if m.is_above_high() {
                c.memory_event(Event::High);
                some = true;
            }
            if m.is_above_swap_high() {
                m.swap_high_events.fetch_add(1, Ordering::Relaxed);
                c.notices.swap.tell();
                some = true;
            }
        }
        some
    }

    /// The topmost group from it up to `domain` whose processes end together, if there is one
    /// (`mem_cgroup_get_oom_group`).
    #[must_use]
    pub fn oom_group(&self, domain: Option<&Cgroup>) -> Option<&Cgroup> {
        let mut found = None;
        for c in self.upwards() {
            if c.memory().is_some_and(|m| m.oom_group()) {
                found = Some(c);
            }
            if domain.is_some_and(|d| std::ptr::eq(c, d)) {
                break;
            }
        }
        found
    }

    /// The text of a `memory` file.
    pub(super) fn memory_text(&self, name: &str) -> Result<String> {
        Ok(self.memory().ok_or(ENODEV)?.text(name))
    }

    /// Takes what was written to a `memory` file.
    pub(super) fn write_memory(
        self: &Arc<Self>,
        k: &Kernel,
        (by, file): (&Task, &File),
        name: &str,
        text: &str,
    ) -> Result<()> {
        let m = self.memory().ok_or(ENODEV)?;
        match name {
            "memory.oom.group" => m.oom_group.store(switch(text)?, Ordering::Relaxed),
            "memory.reclaim" => {
                let n = to_reclaim(text)?;
                return k.reclaim(self, &m, by, n);
            }
            name if m.words.of(name).is_none() => return Err(EINVAL),
            name => {
                m.set(name, bytes(text)?);
                let waits = file.flags() & abi::linux::O_NONBLOCK == 0;
                if waits && name == "memory.max" {
                    await_shrunk(&m, by);
                } else if waits && name == "memory.high" {
                    let high = m.words.high.load(Ordering::Relaxed);
                    let above = m.account.here().saturating_sub(high);
                    // What cannot go now is looked after when more is made.
                    let _ = k.reclaim(self, &m, by, above);
                }
            }
        }
        Ok(())
    }
}

/// How many bytes `memory.reclaim` is asked for.
fn to_reclaim(text: &str) -> Result<u64> {
    let (n, options) = text.split_once(' ').unwrap_or((text, ""));
    let n = bytes(n)?;
    if n == u64::MAX {
        return Err(EINVAL);
    }
    let mut takes_anon = true;
    for word in options.split_ascii_whitespace() {
        let value = word.strip_prefix("swappiness=").ok_or(EINVAL)?;
        let is_known = value == "max" || value.parse::<u8>().is_ok_and(|n| n <= 200);
        is_known.then_some(()).ok_or(EINVAL)?;
        takes_anon = value != "0";
    }
    // Nothing else is ever sent out.
    if n > 0 && !takes_anon {
        return Err(EAGAIN);
    }
    Ok(n)
}

/// Waits until a new limit is kept, but no longer than who writes it can be kept from its end: it
/// is in force in any case.
fn await_shrunk(m: &Memory, by: &Task) {
    const LONGEST: Duration = Duration::from_secs(1);
    const STEP: Duration = Duration::from_millis(1);
    let deadline = Instant::now() + LONGEST;
    while m.account.is_shrinking() && !by.has_work() && Instant::now() < deadline {
        std::thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_linux_reads_them() {
        assert_eq!(bytes("max"), Ok(u64::MAX));
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("3k"), Ok(3 << 10));
        assert_eq!(bytes("2G"), Ok(2 << 30));
        assert_eq!((bytes("0x10"), bytes("010")), (Ok(16), Ok(8)));
        assert_eq!((bytes(""), bytes("K"), bytes("0")), (Ok(0), Ok(0), Ok(0)));
        assert_eq!(bytes("9223372036854771712"), Ok(u64::MAX));
        for wrong in ["-1", "x", "1 2", "12q", "maxi", "1MB"] {
            assert_eq!(bytes(wrong), Err(EINVAL), "{wrong}");
        }
    }

    #[test]
    fn switches_are_read_as_linux_reads_them() {
        for (text, want) in [
            ("0", Ok(false)),
            ("1", Ok(true)),
            ("0x1", Ok(true)),
            ("2", Err(EINVAL)),
            ("-1", Err(EINVAL)),
            ("", Err(EINVAL)),
            ("x", Err(EINVAL)),
            ("4294967296", Err(ERANGE)),
        ] {
            assert_eq!(switch(text), want, "{text}");
        }
    }

    #[test]
    fn what_is_given_is_shared() {
        // Each has what it asks for where there is enough.
        assert_eq!(share(10, 50, 100, 100, 100), 10);
        // Else by what they ask for.
        assert_eq!(share(100, 100, 50, 200, 200), 25);
        // What nobody asks for goes to those that have more than is theirs.
        assert_eq!(share(0, 50, 60, 100, 0), 30);
        assert_eq!(share(20, 60, 60, 100, 20), 40);
    }
}
