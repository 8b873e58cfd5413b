//! Who wants to be told when an account loses much (Linux: kernel/sched/psi.c, "triggers").
//!
//! # Invariants
//!
//! - The watcher looks at all triggers ([`Clas::look_at_triggers`]) as long as it watches, and it
//!   watches as long as one has something to tell. So what stalls tell is told, at most a look
//!   late.
//! - A trigger tells once in its window. What it would tell meanwhile it tells at the window's end.
//! - The list's lock comes before that of [`Clas`]. Nobody is told while it is held.

use super::{Pressure, StallTime};
use crate::Clas;
use crate::accounts::AccountId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Which line of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Some,
    Full,
}

impl Part {
    fn total(self, p: Pressure) -> Duration {
        let StallTime { total, .. } = match self {
            Part::Some => p.some,
            Part::Full => p.full,
        };
        total
    }
}

/// When to tell: so much was lost within so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threshold {
    pub part: Part,
    pub lost: Duration,
    pub window: Duration,
}

type Tell = Arc<dyn Fn() + Send + Sync>;

/// A window that moves: the part of the last one that it still covers is thought to have been lost
/// evenly.
#[derive(Debug)]
struct Window {
    since: Instant,
    /// The total when it began.
    total: Duration,
    /// What was lost in the one before.
    last: Duration,
}

impl Window {
    /// What was lost in the last `size`, where `total` was ever.
    fn lost(&mut self, size: Duration, now: Instant, total: Duration) -> Duration {
        let elapsed = now.saturating_duration_since(self.since);
        let new = total.saturating_sub(self.total);
        if elapsed > size {
            *self = Window {
                since: now,
                total,
                last: new,
            };
            return new;
        }
        new + self.last.mul_f64((size - elapsed).div_duration_f64(size))
    }
}

struct Set {
    threshold: Threshold,
    window: Window,
    told_at: Option<Instant>,
    is_pending: bool,
    tell: Tell,
}

impl Set {
    /// Whether it is to be told now.
    fn look(&mut self, now: Instant, total: Duration) -> bool {
        let t = self.threshold;
        self.is_pending |= self.window.lost(t.window, now, total) >= t.lost;
        let may = self.told_at.is_none_or(|at| now >= at + t.window);
        if !self.is_pending || !may {
            return false;
        }
        self.is_pending = false;
        self.told_at = Some(now);
        true
    }
}

/// All triggers, by account.
#[derive(Default)]
pub(super) struct Triggers(Mutex<List>);

#[derive(Default)]
struct List {
    all: BTreeMap<(AccountId, u64), Set>,
    next: u64,
}

impl Triggers {
    /// Whether one has something to tell yet.
    pub(super) fn are_pending(&self) -> bool {
        self.0.lock().all.values().any(|s| s.is_pending)
    }
}

/// Somebody is told, until this is dropped.
pub struct Trigger {
    clas: Weak<Clas>,
    key: (AccountId, u64),
}

impl std::fmt::Debug for Trigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trigger({:?})", self.key)
    }
}

impl Drop for Trigger {
    fn drop(&mut self) {
        if let Some(c) = self.clas.upgrade() {
            let gone = c.watch.triggers.0.lock().all.remove(&self.key);
            drop(gone);
        }
    }
}

impl Clas {
    /// Has `tell` called when an account loses so much. It is called by the watcher, and must not
    /// wait.
    pub fn add_trigger(
        self: &Arc<Self>,
        id: AccountId,
        threshold: Threshold,
        tell: impl Fn() + Send + Sync + 'static,
    ) -> Trigger {
        let mut list = self.watch.triggers.0.lock();
        let key = (id, list.next);
        list.next += 1;
        let window = Window {
            since: Instant::now(),
            total: threshold.part.total(self.pressure_of(id)),
            last: Duration::ZERO,
        };
        let set = Set {
            threshold,
            window,
            told_at: None,
            is_pending: false,
            tell: Arc::new(tell),
        };
        list.all.insert(key, set);
        Trigger {
            clas: Arc::downgrade(self),
            key,
        }
    }

    /// Tells whom it is to be told now.
    pub fn look_at_triggers(&self) {
        let mut due: Vec<Tell> = Vec::new();
        let mut list = self.watch.triggers.0.lock();
        let now = Instant::now();
        let mut of: Option<(AccountId, Pressure)> = None;
        for ((id, _), set) in &mut list.all {
            let pressure = match of {
                Some((known, p)) if known == *id => p,
                _ => self.pressure_of(*id),
            };
            of = Some((*id, pressure));
            if set.look(now, set.threshold.part.total(pressure)) {
                due.push(set.tell.clone());
            }
        }
        drop(list);
        due.iter().for_each(|tell| tell());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(2);

    fn set(lost: Duration) -> Set {
        let threshold = Threshold {
            part: Part::Some,
            lost,
            window: WINDOW,
        };
        let window = Window {
            since: Instant::now(),
            total: Duration::ZERO,
            last: Duration::ZERO,
        };
        Set {
            threshold,
            window,
            told_at: None,
            is_pending: false,
            tell: Arc::new(|| ()),
        }
    }

    /// So many milliseconds after its window began.
    fn clock(s: &Set) -> impl Fn(u64) -> Instant + use<> {
        let start = s.window.since;
        move |ms| start + Duration::from_millis(ms)
    }

    #[test]
    fn it_is_told_once_in_a_window() {
        let mut s = set(Duration::from_millis(100));
        let at = clock(&s);
        let lost = Duration::from_millis;
        assert!(!s.look(at(100), lost(99)));
        assert!(s.look(at(200), lost(100)));
        // More, but too early: it is told at the end, if nothing is lost any more, too.
        assert!(!s.look(at(300), lost(200)));
        assert!(!s.look(at(2_100), lost(200)));
        assert!(s.look(at(2_200), lost(200)));
        assert!(!s.look(at(5_000), lost(200)));
        assert!(!s.is_pending);
    }

    #[test]
    fn the_last_window_counts_as_far_as_it_reaches() {
        let mut s = set(Duration::from_millis(100));
        let at = clock(&s);
        let lost = Duration::from_millis;
        // 80 ms in the first; then 50 more in a quarter of the next: 60 + 50.
        assert!(!s.look(at(2_001), lost(80)));
        assert!(s.look(at(2_501), lost(130)));
    }

    #[test]
    fn who_drops_it_is_told_no_more() {
        let c = Clas::new().unwrap();
        let threshold = set(Duration::ZERO).threshold;
        let told = Arc::new(Mutex::new(0));
        let count = told.clone();
        let t = c.add_trigger(AccountId::ROOT, threshold, move || *count.lock() += 1);
        c.look_at_triggers();
        c.look_at_triggers();
        assert_eq!(*told.lock(), 1);
        assert!(c.watch.triggers.are_pending());
        drop(t);
        assert!(!c.watch.triggers.are_pending());
    }
}
