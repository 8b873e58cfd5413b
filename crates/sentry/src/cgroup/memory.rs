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
use crate::{Kernel, Task};
use abi::errno::{EINVAL, ENODEV};
use abi::{PAGE_SIZE, Result};
use clas::{Account, AccountId, Clas};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

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

/// How often.
#[derive(Debug, Default)]
struct Events([AtomicU64; 6]);

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
    /// Here and below, and here alone.
    events: Events,
    own_events: Events,
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
    pub(super) fn below(parent: &Cgroup) -> Result<Arc<Memory>> {
        let clas = parent.clas.get().and_then(Weak::upgrade).ok_or(ENODEV)?;
        let above = parent.memory();
        Ok(Arc::new(Memory {
            account: clas.open_account(above.as_ref().map(|m| &m.account))?,
            words: Words::default(),
            oom_group: AtomicBool::new(false),
            events: Events::default(),
            own_events: Events::default(),
        }))
    }

    /// `memory.max`, bytes.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.words.max.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn oom_group(&self) -> bool {
        self.oom_group.load(Ordering::Relaxed)
    }

    /// Of what is here, so many bytes are protected.
    fn protected(&self, p: Protection) -> u64 {
        let min = self.words.min.load(Ordering::Relaxed);
        let low = self.words.low.load(Ordering::Relaxed);
        let bytes = if p == Protection::Min {
            min
        } else {
            min.max(low)
        };
        bytes.min(self.account.here())
    }

    fn is_above_high(&self) -> bool {
        self.account.here() > self.words.high.load(Ordering::Relaxed)
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
            _ => {}
        }
    }

    /// The text of one of its files.
    fn text(&self, name: &str) -> String {
        if let Some(w) = self.words.of(name) {
            return super::files::limit(w.load(Ordering::Relaxed));
        }
        let s = self.account.stats();
        match name {
            "memory.current" => format!("{}\n", s.here - self.account.untouched().min(s.here)),
            "memory.peak" => format!("{}\n", s.peak),
            "memory.swap.current" => format!("{}\n", s.swapped),
            "memory.swap.peak" => format!("{}\n", s.swapped_peak),
            "memory.events" => self.events.text(),
            "memory.events.local" => self.own_events.text(),
            "memory.swap.events" => "high 0\nmax 0\nfail 0\n".into(),
            "memory.oom.group" => format!("{}\n", u8::from(self.oom_group())),
            "memory.stat" => {
                let here = s.here - self.account.untouched().min(s.here);
                super::limits::memory_stat(here, s.files)
            }
            _ => String::new(),
        }
    }
}

/// A number of bytes as `page_counter_memparse` takes it: `max`, or with K, M, G and so on behind.
fn bytes(text: &str) -> Result<u64> {
    if text == "max" {
        return Ok(u64::MAX);
    }
    let unit = match text.bytes().last().map(|b| b.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        Some(b'P') => 50,
        Some(b'E') => 60,
        _ => 0,
    };
    let digits = &text[..text.len() - usize::from(unit > 0)];
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(EINVAL);
    }
    let n: u64 = digits.parse().map_err(|_| EINVAL)?;
    // (As much as there are pages for is no limit.)
    Ok(n.checked_mul(1 << unit)
        .filter(|n| *n < i64::MAX as u64)
        .unwrap_or(u64::MAX))
}

impl Cgroup {
    /// It is of the container that has this memory.
    pub fn is_of(&self, clas: &Arc<Clas>) {
        let _ = self.clas.set(Arc::downgrade(clas));
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
        let mut groups = self.upwards().filter_map(Cgroup::memory);
        if let Some(first) = groups.next() {
            first.own_events.count(e);
            first.events.count(e);
        }
        groups.for_each(|m| m.events.count(e));
    }

    /// Of so many bytes that a process in it has, those that nobody has who needs room in `domain`
    /// (a group above it; `None` for the container).
    ///
    /// Each group from below that one on is protected as far as its own words and those of the
    /// groups above it say; a process has its part of that.
    #[must_use]
    pub fn protected(&self, of: u64, domain: Option<&Cgroup>, p: Protection) -> u64 {
        let is_domain = |c: &&Cgroup| domain.is_some_and(|d| std::ptr::eq(*c, d));
        let mut least = u64::MAX;
        let mut nearest = None;
        for m in self.upwards().take_while(|c| !is_domain(c)) {
            if let Some(m) = m.memory() {
                nearest.get_or_insert(m.account.here());
                least = least.min(m.protected(p));
            }
        }
        match nearest {
            Some(all) if all > 0 => {
                let part = u128::from(least) * u128::from(of) / u128::from(all);
                u64::try_from(part).unwrap_or(of).min(of)
            }
            _ => 0,
        }
    }

    /// Counts, for each group that has more than its `memory.high`, that one of its processes makes
    /// more; whether there is one.
    pub fn count_above_high(&self) -> bool {
        let above = |c: &&Cgroup| c.memory().is_some_and(|m| m.is_above_high());
        let mut some = false;
        for c in self.upwards().filter(above) {
            c.memory_event(Event::High);
            some = true;
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
        by: &Task,
        name: &str,
        text: &str,
    ) -> Result<()> {
        let m = self.memory().ok_or(ENODEV)?;
        match name {
            "memory.oom.group" => {
                let n: i64 = text.parse().map_err(|_| EINVAL)?;
                let on = [0, 1].contains(&n).then_some(n == 1).ok_or(EINVAL)?;
                m.oom_group.store(on, Ordering::Relaxed);
            }
            "memory.reclaim" => {
                let (n, options) = text.split_once(' ').unwrap_or((text, ""));
                let n = bytes(n)?;
                for word in options.split_ascii_whitespace() {
                    let value = word.strip_prefix("swappiness=").ok_or(EINVAL)?;
                    let is_known = value == "max" || value.parse::<u8>().is_ok_and(|n| n <= 200);
                    is_known.then_some(()).ok_or(EINVAL)?;
                }
                return k.reclaim(self, by, n);
            }
            name if m.words.of(name).is_none() => return Err(EINVAL),
            name => {
                m.set(name, bytes(text)?);
                if name == "memory.max" {
                    await_shrunk(&m);
                }
            }
        }
        Ok(())
    }
}

/// Waits until a new limit is kept, but no longer than who writes it can be kept from its end: it is
/// in force in any case.
fn await_shrunk(m: &Memory) {
    const LONGEST: Duration = Duration::from_secs(1);
    const STEP: Duration = Duration::from_millis(1);
    let deadline = Instant::now() + LONGEST;
    while m.account.is_shrinking() && Instant::now() < deadline {
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
        assert_eq!(bytes("99999999999E"), Ok(u64::MAX));
        for wrong in ["", "-1", "x", "1 2", "12q", "K", "maxi"] {
            assert_eq!(bytes(wrong), Err(EINVAL), "{wrong}");
        }
    }
}
