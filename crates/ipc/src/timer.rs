//! Timers: one service thread for all of a sandbox's timer files, POSIX timers and interval timers.
//!
//! A [`Timer`] expires once per arming; its callback runs in the service thread, without locks. A
//! periodic timer whose callback says [`Rearm::Later`] stands still until [`Timer::rearm`], which
//! counts the periods that went by: as Linux does it for timerfd (rearmed by read) and POSIX timers
//! (rearmed when the signal is delivered), so that a nanosecond interval costs no more than its
//! user can take.
//!
//! The thread starts with the first armed timer.
//!
//! What a timer follows, and who expires it, is its [`Base`]: the service and one of the host's
//! clocks, or a clock of the kernel's own (CPU time).

use hostcall::time::clock_nanos;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A clock that timers can follow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Clock {
    Monotonic,
    Realtime,
    Boottime,
}

const CLOCKS: [Clock; 3] = [Clock::Monotonic, Clock::Realtime, Clock::Boottime];

impl Clock {
    /// From `clockid_t`; the ALARM clocks count as those they are made of (there is no suspend to
    /// wake from).
    #[must_use]
    pub const fn from_id(id: i32) -> Option<Clock> {
        match id {
            1 => Some(Clock::Monotonic),
            0 | 8 | 11 => Some(Clock::Realtime),
            7 | 9 => Some(Clock::Boottime),
            _ => None,
        }
    }
    /// Its `clockid_t`.
    #[must_use]
    pub const fn id(self) -> i32 {
        match self {
            Clock::Monotonic => 1,
            Clock::Realtime => 0,
            Clock::Boottime => 7,
        }
    }
    /// Nanoseconds since the clock's epoch.
    #[must_use]
    pub fn now(self) -> i64 {
        clock_nanos(self.id())
    }
}

/// What a timer is set to: nanoseconds. `value` 0 disarms; `interval` 0 is a single shot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    pub value: i64,
    pub interval: i64,
}

/// How [`Timer::set`] reads `value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    Now,
    Epoch,
}

/// What the callback is told.
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// Periods that ended, at least 1.
    pub count: u64,
    /// The arming that expired: stale if it is not what the last [`Timer::set`] gave.
    pub generation: u64,
}

/// What the callback wants of a periodic timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rearm {
    /// Go on at once (periods shorter than 50 us are served in batches).
    Now,
    /// Go on, but at most once in so many nanoseconds, however short the period: where nobody was
    /// told.
    After(i64),
    /// Stand still until [`Timer::rearm`].
    Later,
}

/// A clock, and what expires timers when it has come so far (Linux's clock bases).
///
/// `arm` and `disarm` are called with the timer's lock held; so a base takes its own lock after a
/// timer's, and calls [`Armed::expire`] without it.
pub trait Base: Send + Sync {
    /// Nanoseconds since the clock's epoch.
    fn now(&self) -> i64;
    /// The timer is to expire at `expiry`, or soon after.
    fn arm(&self, timer: &Arc<Armed>, expiry: i64);
    /// What was armed for `expiry` is not to expire any more. It may just have.
    fn disarm(&self, timer: &Armed, expiry: i64);
}

/// One of the host's clocks.
struct HostClock {
    service: Arc<Shared>,
    clock: Clock,
}

impl Base for HostClock {
    fn now(&self) -> i64 {
        self.clock.now()
    }
    fn arm(&self, timer: &Arc<Armed>, expiry: i64) {
        self.service.arm(self.clock, timer, expiry);
    }
    fn disarm(&self, timer: &Armed, expiry: i64) {
        let key = (self.clock, expiry, timer.number);
        self.service.state.lock().armed.remove(&key);
    }
}

type Callback = Box<dyn Fn(Expiry) -> Rearm + Send + Sync>;

/// The shortest sleep between two expiries of one periodic timer that goes on by itself.
pub const MIN_PERIOD: i64 = 50_000;
/// How long the thread sleeps at most while CLOCK_REALTIME timers are armed: that clock can be set.
const REALTIME_RECHECK: Duration = Duration::from_secs(5);

/// Runs timers.
pub struct TimerService {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<Service>,
    wake: Condvar,
}

#[derive(Default)]
struct Service {
    /// Armed timers: (clock, expiry, number) → timer.
    armed: BTreeMap<(Clock, i64, u64), Weak<Armed>>,
    running: bool,
    stop: bool,
    /// Until when the thread sleeps; `None` while it is awake or sleeps for ever.
    sleeps_until: Option<Instant>,
    asleep: bool,
}

/// One timer. Dropping it disarms it; a callback may still be running then.
pub struct Timer {
    inner: Arc<Armed>,
}

/// A timer as its base holds it.
pub struct Armed {
    base: Arc<dyn Base>,
    number: u64,
    callback: Callback,
    /// Taken before the base's lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// On the clock; `None` when disarmed or expired for good.
    expiry: Option<i64>,
    interval: i64,
    /// For when it is in the base's books, at `expiry` or later; `None` where it is not, as a
    /// periodic timer that expired and waits for `rearm`.
    armed: Option<i64>,
    generation: u64,
}

impl TimerService {
    #[must_use]
    pub fn new() -> Arc<TimerService> {
        Arc::new(TimerService {
            shared: Arc::new(Shared {
                state: Mutex::new(Service::default()),
                wake: Condvar::new(),
            }),
        })
    }
}

impl Drop for TimerService {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn arm(self: &Arc<Shared>, clock: Clock, timer: &Arc<Armed>, expiry: i64) {
        let mut s = self.state.lock();
        if s.stop {
            return;
        }
        s.armed
            .insert((clock, expiry, timer.number), Arc::downgrade(timer));
        if !s.running {
            s.running = true;
            let me = self.clone();
            let spawned = std::thread::Builder::new()
                .name("timers".into())
                .spawn(move || me.run());
            if spawned.is_err() {
                s.running = false;
            }
            return;
        }
        if s.asleep {
            let delta = expiry.saturating_sub(clock.now()).max(0) as u64;
            let at = Instant::now().checked_add(Duration::from_nanos(delta));
            let earlier = match (at, s.sleeps_until) {
                (Some(a), Some(u)) => a < u,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if earlier {
                self.wake.notify_one();
            }
        }
    }

    /// The service thread.
    fn run(self: Arc<Shared>) {
        let mut s = self.state.lock();
        while !s.stop {
            let mut due = Vec::new();
            let mut sleep: Option<Duration> = None;
            for clock in CLOCKS {
                let range = (clock, i64::MIN, 0)..=(clock, i64::MAX, u64::MAX);
                if s.armed.range(range.clone()).next().is_none() {
                    continue;
                }
                let now = clock.now();
                while let Some((&key, _)) = s.armed.range(range.clone()).next() {
                    if key.1 > now {
                        let mut d = Duration::from_nanos((key.1 - now) as u64);
                        if clock == Clock::Realtime {
                            d = d.min(REALTIME_RECHECK);
                        }
                        sleep = Some(sleep.map_or(d, |x| x.min(d)));
                        break;
                    }
                    if let Some(t) = s.armed.remove(&key) {
                        due.push((t, key.1));
                    }
                }
            }
            if !due.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut s, || {
                    for (t, expiry) in due {
                        if let Some(t) = t.upgrade() {
                            t.expire(expiry);
                        }
                    }
                });
                continue;
            }
            s.asleep = true;
            match sleep.and_then(|d| Instant::now().checked_add(d)) {
                Some(until) => {
                    s.sleeps_until = Some(until);
                    self.wake.wait_until(&mut s, until);
                }
                None => {
                    s.sleeps_until = None;
                    self.wake.wait(&mut s);
                }
            }
            s.asleep = false;
        }
        s.armed.clear();
        s.running = false;
    }
}

/// How many periods ended by `now`, at least one, and when the next ends.
fn periods(expiry: i64, interval: i64, now: i64) -> (u64, i64) {
    let n = now.saturating_sub(expiry).max(0) / interval + 1;
    (n as u64, expiry.saturating_add(n.saturating_mul(interval)))
}

impl Armed {
    /// What tells it from others of its base.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The base took the arming for `armed_for` out of its own books: the clock has come so far.
    pub fn expire(self: &Arc<Armed>, armed_for: i64) {
        let what = {
            let mut s = self.state.lock();
            if s.armed != Some(armed_for) {
                return; // Set again meanwhile.
            }
            s.armed = None;
            let mut count = 1;
            if s.interval > 0 {
                // Already now: who is told may call `rearm` before the callback has returned.
                let due = s.expiry.unwrap_or(armed_for);
                let (n, next) = periods(due, s.interval, self.base.now());
                count = n;
                s.expiry = Some(next);
            } else {
                s.expiry = None;
            }
            Expiry {
                count,
                generation: s.generation,
            }
        };
        let rearm = (self.callback)(what);
        let mut s = self.state.lock();
        if s.generation != what.generation || s.armed.is_some() || s.interval == 0 {
            return;
        }
        let least = match rearm {
            Rearm::Now => MIN_PERIOD,
            Rearm::After(n) => n.max(MIN_PERIOD),
            Rearm::Later => return,
        };
        if let Some(next) = s.expiry {
            let at = match s.interval < least {
                true => next.max(self.base.now().saturating_add(least)),
                false => next,
            };
            s.armed = Some(at);
            self.base.arm(self, at);
        }
    }
}

impl Timer {
    /// A disarmed timer. `callback` runs in the service thread and may take any lock that no caller
    /// of this timer's methods holds.
    #[must_use]
    pub fn new(
        service: &Arc<TimerService>,
        clock: Clock,
        callback: impl Fn(Expiry) -> Rearm + Send + Sync + 'static,
    ) -> Timer {
        let service = service.shared.clone();
        Timer::on(Arc::new(HostClock { service, clock }), callback)
    }

    /// A disarmed timer of another base, whose rules tell where `callback` runs.
    #[must_use]
    pub fn on(
        base: Arc<dyn Base>,
        callback: impl Fn(Expiry) -> Rearm + Send + Sync + 'static,
    ) -> Timer {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Timer {
            inner: Arc::new(Armed {
                base,
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                callback: Box::new(callback),
                state: Mutex::new(State::default()),
            }),
        }
    }

    /// Arms or disarms. Gives what it was set to and the number of the new arming (see [`Expiry`]).
    pub fn set(&self, new: Setting, from: From) -> (Setting, u64) {
        let t = &self.inner;
        let mut s = t.state.lock();
        let now = t.base.now();
        let old = Self::remaining(&s, now);
        if let Some(at) = s.armed.take() {
            t.base.disarm(t, at);
        }
        s.generation += 1;
        s.interval = new.interval.max(0);
        s.expiry = None;
        if new.value > 0 {
            let e = match from {
                From::Epoch => new.value,
                From::Now => now.saturating_add(new.value),
            };
            s.expiry = Some(e);
            s.armed = Some(e);
            t.base.arm(t, e);
        } else {
            s.interval = 0;
        }
        (old, s.generation)
    }

    fn remaining(s: &State, now: i64) -> Setting {
        match s.expiry {
            None => Setting {
                value: 0,
                interval: s.interval,
            },
            Some(e) => {
                let e = if e <= now && s.interval > 0 {
                    periods(e, s.interval, now).1
                } else {
                    e
                };
                // A timer that is armed is never seen at zero.
                Setting {
                    value: e.saturating_sub(now).max(1),
                    interval: s.interval,
                }
            }
        }
    }

    /// Time to the next expiry and the interval.
    #[must_use]
    pub fn get(&self) -> Setting {
        Self::remaining(&self.inner.state.lock(), self.inner.base.now())
    }

    /// Starts a periodic timer that stands still since its callback said [`Rearm::Later`]; gives
    /// the periods that ended since then (the overrun).
    pub fn rearm(&self) -> u64 {
        let t = &self.inner;
        let mut s = t.state.lock();
        let (None, Some(e)) = (s.armed, s.expiry) else {
            return 0;
        };
        if s.interval == 0 {
            return 0;
        }
        let now = t.base.now();
        let (missed, next) = if e <= now {
            periods(e, s.interval, now)
        } else {
            (0, e)
        };
        s.expiry = Some(next);
        s.armed = Some(next);
        t.base.arm(t, next);
        missed
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.set(Setting::default(), From::Now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn wait_for(f: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !f() {
            assert!(Instant::now() < end, "timed out");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    #[test]
    fn single_periodic_and_earlier_ones() {
        let svc = TimerService::new();
        let hits = Arc::new(AtomicU64::new(0));
        let count = |r: Rearm| {
            let h = hits.clone();
            Timer::new(&svc, Clock::Monotonic, move |e| {
                h.fetch_add(e.count, Ordering::SeqCst);
                r
            })
        };
        assert!(!svc.shared.state.lock().running);
        let far = count(Rearm::Now);
        far.set(
            Setting {
                value: 3_600_000 * MS,
                interval: 0,
            },
            From::Now,
        );
        let near = count(Rearm::Now);
        near.set(
            Setting {
                value: 2 * MS,
                interval: 0,
            },
            From::Now,
        );
        wait_for(|| hits.load(Ordering::SeqCst) == 1);
        assert_eq!(near.get(), Setting::default());
        assert!(far.get().value > 3_599_000 * MS);
        let (old, _) = far.set(Setting::default(), From::Now);
        assert!(old.value > 0);
        let p = count(Rearm::Now);
        p.set(
            Setting {
                value: 1,
                interval: MS,
            },
            From::Now,
        );
        wait_for(|| hits.load(Ordering::SeqCst) >= 6);
        drop(p);
        // A nanosecond interval cannot keep the thread busy for ever before others.
        let fast = count(Rearm::Now);
        fast.set(
            Setting {
                value: 1,
                interval: 1,
            },
            From::Now,
        );
        let near = count(Rearm::Now);
        let before = hits.load(Ordering::SeqCst);
        near.set(
            Setting {
                value: MS,
                interval: 0,
            },
            From::Now,
        );
        wait_for(|| hits.load(Ordering::SeqCst) > before + 1000 && near.get().value == 0);
    }

    /// Nobody was told: it comes no more often than it may, and keeps its phase.
    #[test]
    fn who_tells_nobody_comes_seldom() {
        let svc = TimerService::new();
        let (calls, periods) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (c, p) = (calls.clone(), periods.clone());
        let t = Timer::new(&svc, Clock::Monotonic, move |e| {
            c.fetch_add(1, Ordering::SeqCst);
            p.fetch_add(e.count, Ordering::SeqCst);
            Rearm::After(20 * MS)
        });
        let begin = Instant::now();
        t.set(
            Setting {
                value: 1,
                interval: MS,
            },
            From::Now,
        );
        wait_for(|| {
            assert!(t.get().value <= MS);
            periods.load(Ordering::SeqCst) >= 100
        });
        let most = begin.elapsed().as_millis() as u64 / 20 + 1;
        assert!(calls.load(Ordering::SeqCst) <= most);
    }

    #[test]
    fn later_counts_overruns() {
        let svc = TimerService::new();
        let hits = Arc::new(AtomicU64::new(0));
        let h = hits.clone();
        let t = Timer::new(&svc, Clock::Realtime, move |e| {
            h.fetch_add(e.count, Ordering::SeqCst);
            Rearm::Later
        });
        let now = Clock::Realtime.now();
        t.set(
            Setting {
                value: now + MS,
                interval: MS,
            },
            From::Epoch,
        );
        wait_for(|| hits.load(Ordering::SeqCst) >= 1);
        std::thread::sleep(Duration::from_millis(5));
        let told = hits.load(Ordering::SeqCst);
        assert!(t.rearm() >= 4);
        wait_for(|| hits.load(Ordering::SeqCst) > told);
    }
}
