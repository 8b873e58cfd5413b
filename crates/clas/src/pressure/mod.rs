//! How much time is lost for lack of memory (pressure stall information; Linux:
//! Documentation/accounting/psi.rst, kernel/sched/psi.c).
//!
//! A thread *stalls* while it waits for room, makes room itself, brings something in from swap, or
//! is held up above `memory.high`. *some* is the time in which a thread of an account, or of one
//! below, stalls; *full* that in which none of its tasks runs meanwhile.
//!
//! # Invariants
//!
//! - A [`Stall`] counts for its thread's account, as it is when it begins, and for all above; at
//!   its end for the same ones, those that are gone excepted. A thread has one at a time.
//! - *some* is exact. Who else runs is only looked at now and then, by a watcher
//!   ([`Clas::on_stall`]) that is there as long as there are stalls: *full* is the part of *some*
//!   in which it found nobody.
//! - Averages have Linux's form: each 2 s what was lost is taken in, with less weight the older it
//!   is. Who reads them, and the watcher, take in what was lost since.
//!
//! All of it is under the lock of [`Clas`], which the clock is read under: so no account has lost
//! less than one below it. Who is told when much is lost: [`triggers`].

mod triggers;

pub use triggers::{Part, Threshold, Trigger};

use crate::accounts::AccountId;
use crate::{Account, Clas, Inner};
use smallvec::SmallVec;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often what was lost is taken into the averages.
const PERIOD: Duration = Duration::from_secs(2);
/// What is left of an average after a period: of those over 10, 60 and 300 s. (e^(-PERIOD/span),
/// as the kernel's `EXP_10s` and so on: a call of `exp` has each start load a library for it.)
const DECAYS: [f64; 3] = [
    0.818_730_753_077_981_8,
    0.967_216_100_482_005_9,
    0.993_355_506_255_034_4,
];
/// A look at who runs counts so much of what *full* is thought to be, where there is none yet 1.
const LOOK_WEIGHT: f64 = 1.0 / 8.0;

/// One of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StallTime {
    /// In percent, over 10, 60 and 300 seconds.
    pub averages: [f64; 3],
    /// Ever.
    pub total: Duration,
}

/// What an account has lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    pub some: StallTime,
    pub full: StallTime,
}

/// As the files say it (`psi_show`).
impl std::fmt::Display for Pressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, lost) in [("some", self.some), ("full", self.full)] {
            let [ten, sixty, long] = lost.averages;
            let total = lost.total.as_micros();
            writeln!(
                f,
                "{name} avg10={ten:.2} avg60={sixty:.2} avg300={long:.2} total={total}"
            )?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Line {
    lost: StallTime,
    /// Of `total`, what the averages have.
    taken: Duration,
}

impl Line {
    /// So many periods are over, as one.
    fn take(&mut self, periods: i32) {
        let new = (self.lost.total - self.taken).as_secs_f64();
        let part = 100.0 * (new / (f64::from(periods) * PERIOD.as_secs_f64())).min(1.0);
        for (average, decay) in self.lost.averages.iter_mut().zip(DECAYS) {
            let old = decay.powi(periods);
            *average = *average * old + part * (1.0 - old);
        }
        self.taken = self.lost.total;
    }
}

/// The stalls of an account.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// Threads that stall now, those of them that are held up and do not look as if they ran, and
    /// since when there are some.
    now: u32,
    held_up: u32,
    since: Instant,
    some: Line,
    full: Line,
    /// Of `some`, what `full` has its part of.
    shared: Duration,
    /// That part; `None` before somebody has looked.
    full_part: Option<f64>,
    /// The averages are of this time.
    at: Instant,
}

impl Stalls {
    pub(crate) fn new() -> Stalls {
        let now = Instant::now();
        Stalls {
            now: 0,
            held_up: 0,
            since: now,
            some: Line::default(),
            full: Line::default(),
            shared: Duration::ZERO,
            full_part: None,
            at: now,
        }
    }

    fn begin(&mut self, at: Instant, is_held_up: bool) {
        if self.now == 0 {
            self.since = at;
        }
        self.now += 1;
        self.held_up += u32::from(is_held_up);
    }

    /// Takes in the time until `at`.
    fn catch_up(&mut self, at: Instant) {
        if self.now > 0 {
            self.some.lost.total += at.saturating_duration_since(self.since);
            self.since = at;
        }
        if let Some(part) = self.full_part {
            let new = self.some.lost.total - self.shared;
            self.full.lost.total += new.mul_f64(part);
            self.shared = self.some.lost.total;
        }
        let periods = at.saturating_duration_since(self.at).as_nanos() / PERIOD.as_nanos();
        if periods > 0 {
            let periods = i32::try_from(periods).unwrap_or(i32::MAX);
            self.some.take(periods);
            self.full.take(periods);
            self.at += PERIOD * periods.cast_unsigned();
        }
    }

    fn end(&mut self, at: Instant, was_held_up: bool) {
        self.catch_up(at);
        self.now = self.now.saturating_sub(1);
        self.held_up = self.held_up.saturating_sub(u32::from(was_held_up));
    }

    /// Somebody has looked, while some stalled.
    fn looked(&mut self, nobody_runs: bool) {
        let found = if nobody_runs { 1.0 } else { 0.0 };
        let part = self.full_part.get_or_insert(found);
        *part += (found - *part) * LOOK_WEIGHT;
    }

    fn pressure(&mut self) -> Pressure {
        self.catch_up(Instant::now());
        Pressure {
            some: self.some.lost,
            full: self.full.lost,
        }
    }
}

/// Who looks where there are stalls.
#[derive(Default)]
pub(crate) struct Watch {
    /// Immutable once set.
    watcher: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// It watches. Atomic.
    watches: AtomicBool,
    /// So many stalls pass before it is told again: it could not watch. Atomic.
    passes: AtomicU32,
    triggers: triggers::Triggers,
}

/// See [`Watch::passes`].
const PASSES: u32 = 1024;

impl Watch {
    fn tell(&self) {
        if self.watches.load(Ordering::Relaxed) {
            return;
        }
        if self.passes.load(Ordering::Relaxed) > 0 {
            self.passes.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        if !self.watches.swap(true, Ordering::Relaxed)
            && self.watcher.get().is_some_and(|tell| !tell())
        {
            self.passes.store(PASSES, Ordering::Relaxed);
            self.watches.store(false, Ordering::Relaxed);
        }
    }
}

/// The calling thread gets no further for lack of memory, until this is dropped.
#[must_use]
pub struct Stall<'a> {
    clas: &'a Clas,
    accounts: SmallVec<[AccountId; 4]>,
    is_held_up: bool,
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        let mut inner = self.clas.inner.lock();
        let now = Instant::now();
        for id in &self.accounts {
            if let Some(e) = inner.accounts.get_mut(*id) {
                e.stalls.end(now, self.is_held_up);
            }
        }
    }
}

impl Clas {
    /// See [`Stall`]. Without any lock of this crate's.
    pub fn stall(&self) -> Stall<'_> {
        self.begin_stall(false)
    }

    /// The same for a thread that sleeps for `memory.high`.
    pub fn hold_up(&self) -> Stall<'_> {
        self.begin_stall(true)
    }

    fn begin_stall(&self, is_held_up: bool) -> Stall<'_> {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let upwards = inner.accounts.upwards(self.payer());
        let accounts: SmallVec<[AccountId; 4]> = upwards.map(|(id, _)| id).collect();
        for id in &accounts {
            if let Some(e) = inner.accounts.get_mut(*id) {
                e.stalls.begin(now, is_held_up);
            }
        }
        drop(inner);
        self.watch.tell();
        Stall {
            clas: self,
            accounts,
            is_held_up,
        }
    }

    /// Has `watcher` told, once for all, when there are stalls and nobody watches: from then on it
    /// looks ([`Clas::stalled`], [`Clas::look_at_triggers`]), until it need not any more
    /// ([`Clas::may_end_watch`]); false where it cannot. Locks of address spaces may be held.
    pub fn on_stall(&self, watcher: Box<dyn Fn() -> bool + Send + Sync>) {
        let _ = self.watch.watcher.set(watcher);
    }

    /// Whether the watcher is to end: it is told of the next stall.
    #[must_use]
    pub fn may_end_watch(&self) -> bool {
        if self.watch.triggers.are_pending() {
            return false;
        }
        let inner = self.inner.lock();
        let is_quiet = inner.accounts.root().stalls.now == 0;
        if is_quiet {
            self.watch.watches.store(false, Ordering::Relaxed);
        }
        is_quiet
    }

    /// The accounts in which threads stall now, and how many of them look as if they ran.
    #[must_use]
    pub fn stalled(&self) -> Vec<(AccountId, u32)> {
        let inner = self.inner.lock();
        let all = inner.accounts.all();
        let stalled = all.filter(|(_, e)| e.stalls.now > 0);
        let running = |s: &Stalls| s.now - s.held_up;
        stalled.map(|(id, e)| (id, running(&e.stalls))).collect()
    }

    /// In each of these stalled some when somebody looked, and no other task ran, or one did.
    pub fn looked(&self, found: &[(AccountId, bool)]) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        for (id, nobody_runs) in found {
            if let Some(e) = inner.accounts.get_mut(*id) {
                e.stalls.looked(*nobody_runs);
                e.stalls.catch_up(now);
            }
        }
    }

    /// What the whole container has lost.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.pressure_of(AccountId::ROOT)
    }

    /// What an account has lost, with those below; nothing where it is gone.
    #[must_use]
    pub fn pressure_of(&self, id: AccountId) -> Pressure {
        self.inner.lock().pressure(id)
    }
}

impl Account {
    /// What it has lost, with those below.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.change(|_, inner| inner.pressure(self.id()))
    }
}

impl Inner {
    fn pressure(&mut self, id: AccountId) -> Pressure {
        let entry = self.accounts.get_mut(id);
        entry.map(|e| e.stalls.pressure()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Payer, pay_with};
    use std::sync::Arc;

    fn after(s: &Stalls, seconds: f64) -> Instant {
        s.at + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn averages_follow_what_is_lost() {
        let mut s = Stalls::new();
        s.looked(true);
        // Half of each of thirty periods.
        for _ in 0..30 {
            let begin = s.at;
            s.begin(begin, false);
            s.end(begin + PERIOD / 2, false);
            s.catch_up(begin + PERIOD);
        }
        let [ten, sixty, long] = s.some.lost.averages;
        assert!((49.0..50.1).contains(&ten), "{ten}");
        assert!((31.0..32.5).contains(&sixty), "{sixty}");
        assert!((8.5..9.5).contains(&long), "{long}");
        assert_eq!(s.some.lost.total, PERIOD * 15);
        assert_eq!(s.full.lost.total, s.some.lost.total);
        // It goes by.
        let later = after(&s, 20.0);
        s.catch_up(later);
        assert!((6.0..7.0).contains(&s.some.lost.averages[0]));
    }

    #[test]
    fn files_say_it_as_linux_does() {
        let some = StallTime {
            averages: [1.234, 0.5, 0.0],
            total: Duration::from_micros(1_234_567),
        };
        let p = Pressure {
            some,
            full: StallTime::default(),
        };
        let text = "some avg10=1.23 avg60=0.50 avg300=0.00 total=1234567\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(p.to_string(), text);
    }

    #[test]
    fn one_thread_more_loses_no_more_of_some() {
        let mut s = Stalls::new();
        let begin = s.at;
        s.begin(begin, false);
        s.begin(begin + PERIOD / 8, false);
        s.end(begin + PERIOD / 4, false);
        s.looked(false);
        s.end(begin + PERIOD / 2, false);
        assert_eq!(s.some.lost.total, PERIOD / 2);
        // (Somebody ran whenever it was looked at.)
        assert_eq!(s.full.lost.total, Duration::ZERO);
    }

    #[test]
    fn a_group_loses_and_those_above_it() {
        let c = Clas::new().unwrap();
        let (a, b) = (c.open_account(None).unwrap(), c.open_account(None).unwrap());
        let below = c.open_account(Some(&a)).unwrap();
        let payer = Arc::new(Payer::new(&c));
        payer.set(below.id());
        pay_with(&payer);
        let stall = c.stall();
        assert_eq!(c.stalled().len(), 3);
        // It moves away, and its group goes.
        payer.set(b.id());
        drop(below);
        std::thread::sleep(Duration::from_millis(2));
        drop(stall);
        assert!(c.stalled().is_empty());
        let lost = |p: Pressure| p.some.total.as_millis() >= 2;
        assert!(lost(a.pressure()) && lost(c.pressure()) && !lost(b.pressure()));
    }
}
