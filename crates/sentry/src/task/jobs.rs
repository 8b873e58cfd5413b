//! A process's timers: interval timers (`setitimer(2)`) and POSIX timers (`timer_create(2)`).

use super::cpu_timers::{CpuClock, CpuKind};
use super::{Task, ThreadGroup};
use abi::errno::{EAGAIN, EINVAL, ESRCH};
use abi::signal::{SI_KERNEL, SI_TIMER, SIGALRM, SIGPROF, SIGVTALRM};
use abi::{Result, SigInfo, Signal};
use ipc::timer::{Clock, Expiry, From, Rearm, Setting, Timer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, Kind, Ucounts};

/// All timers of a process.
#[derive(Default)]
pub struct Timers {
    real: Mutex<Option<Timer>>,
    /// ITIMER_VIRTUAL and ITIMER_PROF.
    cpu: [Mutex<Option<CpuInterval>>; 2],
    posix: Mutex<BTreeMap<i32, Arc<PosixTimer>>>,
    /// Looks at RLIMIT_CPU, where one is set.
    limit: Mutex<Option<Timer>>,
}

/// The most POSIX timers of a process, whatever RLIMIT_SIGPENDING says.
const POSIX_MAX: usize = 4096;

/// A POSIX timer. It stands still from the moment that its signal is queued until that is taken
/// ([`Timers::delivered`]); what expired meanwhile is the overrun.
pub struct PosixTimer {
    timer: Timer,
    /// The clock that it follows.
    clock: TimerClock,
    /// Expirations beyond the one whose signal was delivered.
    pub overrun: AtomicU64,
    notify: Notify,
    /// Its signal, which its user may have so many of.
    _counted: Charge,
}

/// What a POSIX timer follows.
pub enum TimerClock {
    Host(Clock),
    Cpu(CpuClock),
}

impl PosixTimer {
    fn is_lost(&self) -> bool {
        matches!(&self.clock, TimerClock::Cpu(c) if c.is_lost())
    }
    /// The host's clock that it follows, if it follows one.
    #[must_use]
    pub fn host_clock(&self) -> Option<Clock> {
        match self.clock {
            TimerClock::Host(c) => Some(c),
            TimerClock::Cpu(_) => None,
        }
    }
    /// `timer_settime(2)`: gives the old setting. `ESRCH` where whose CPU time it follows is no
    /// more.
    pub fn set(&self, new: Setting, from: From) -> Result<Setting> {
        if self.is_lost() {
            return Err(ESRCH);
        }
        self.overrun.store(0, Ordering::Relaxed);
        Ok(self.timer.set(new, from).0)
    }
    /// `timer_gettime(2)`.
    #[must_use]
    pub fn get(&self) -> Setting {
        match self.is_lost() {
            true => Setting::default(),
            false => self.timer.get(),
        }
    }
}

/// ITIMER_VIRTUAL or ITIMER_PROF. Disarmed, it still tells the interval that it was set to.
struct CpuInterval {
    timer: Timer,
    interval: i64,
}

impl CpuInterval {
    fn shown(&self, s: Setting) -> Setting {
        let interval = if s.value == 0 {
            self.interval
        } else {
            s.interval
        };
        Setting { interval, ..s }
    }
}

impl Notify {
    fn signal(self) -> Option<Signal> {
        match self {
            Notify::None => None,
            Notify::Signal { signal, .. } | Notify::Thread { signal, .. } => Some(signal),
        }
    }
}

/// Enforces RLIMIT_CPU (`check_process_timers`): SIGKILL at the hard limit, SIGXCPU at the soft
/// one and every second from then on. Gives the CPU time at which to look again; `None` without a
/// limit.
fn cpu_limit(k: &Arc<crate::Kernel>, g: &Arc<ThreadGroup>) -> Option<i64> {
    const SECOND: u64 = 1_000_000_000;
    // No time at all means a second.
    let nanos = |seconds: u64| seconds.max(1).saturating_mul(SECOND);
    let now = k.cpu_time(g).total();
    let (signal, next) = {
        let mut limits = g.limits.lock();
        let l = &mut limits.0[super::limits::CPU];
        if l.current == u64::MAX && l.max == u64::MAX {
            return None;
        }
        let signal = if now >= nanos(l.max) {
            Some(abi::signal::SIGKILL)
        } else if now >= nanos(l.current) {
            l.current = now / SECOND + 1;
            Some(abi::signal::SIGXCPU)
        } else {
            None
        };
        (signal, nanos(l.current.min(l.max)))
    };
    if let Some(s) = signal {
        let _ = k.send_to_group(g, SigInfo::new(s, SI_KERNEL));
    }
    // Where a limit stands behind, after the signal that tells of it.
    Some(i64::try_from(next.max(now + 1)).unwrap_or(i64::MAX))
}

/// What a POSIX timer does (`sigevent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    None,
    Signal {
        signal: Signal,
        value: u64,
    },
    Thread {
        signal: Signal,
        value: u64,
        tid: i32,
    },
}

/// A timer has come that nobody is told of. All such timers of a user come no more often, together,
/// than one would: the thread that serves them is everybody's. It has at most as many as it has
/// POSIX timers, which count as signals, and processes, each with one of setitimer(2).
fn nobody_told(user: &Ucounts) -> Rearm {
    let timers = user.count(Kind::Signals).max(1) + user.count(Kind::Processes);
    Rearm::After(ipc::timer::MIN_PERIOD.saturating_mul(timers))
}

impl Timers {
    /// `setitimer(ITIMER_REAL)`: gives the old setting.
    pub fn set_real(&self, task: &Task, new: Setting) -> Setting {
        let mut t = self.real.lock();
        let timer = t.get_or_insert_with(|| {
            let (kernel, group) = (Arc::downgrade(&task.kernel), Arc::downgrade(&task.group));
            let user = task.cred().ucounts().outermost();
            Timer::new(&task.kernel.timers, Clock::Monotonic, move |_| {
                let (Some(k), Some(g)) = (kernel.upgrade(), group.upgrade()) else {
                    return Rearm::Later;
                };
                // Once told of, it stands still until its signal is taken (`it_real_fn`): else the
                // shortest intervals of many processes would keep the timers' thread from
                // everybody else's.
                let waits = |g: &ThreadGroup| g.shared.bits().contains(SIGALRM);
                if waits(&g) {
                    return nobody_told(&user);
                }
                let _ = k.send_to_group(&g, SigInfo::new(SIGALRM, SI_KERNEL));
                match waits(&g) {
                    true => Rearm::Later,
                    false => nobody_told(&user),
                }
            })
        });
        timer.set(new, From::Now).0
    }
    #[must_use]
    pub fn real(&self) -> Setting {
        self.real
            .lock()
            .as_ref()
            .map_or(Setting::default(), Timer::get)
    }
    /// `setitimer(ITIMER_VIRTUAL)` and `(ITIMER_PROF)`: gives the old setting.
    pub fn set_cpu(&self, task: &Task, kind: CpuKind, new: Setting) -> Setting {
        let mut slot = self.cpu[kind as usize].lock();
        let t = slot.get_or_insert_with(|| {
            let (kernel, group) = (Arc::downgrade(&task.kernel), Arc::downgrade(&task.group));
            let signal = match kind {
                CpuKind::User => SIGVTALRM,
                CpuKind::Total => SIGPROF,
            };
            let clock = CpuClock::of_process(&task.kernel, &task.group, kind);
            let timer = clock.timer(move |_| {
                if let (Some(k), Some(g)) = (kernel.upgrade(), group.upgrade()) {
                    let _ = k.send_to_group(&g, SigInfo::new(signal, SI_KERNEL));
                }
                Rearm::Now
            });
            CpuInterval { timer, interval: 0 }
        });
        let old = t.shown(t.timer.set(new, From::Now).0);
        t.interval = new.interval;
        old
    }
    /// The setting of a CPU-time interval timer.
    #[must_use]
    pub fn cpu(&self, kind: CpuKind) -> Setting {
        let slot = self.cpu[kind as usize].lock();
        let shown = |t: &CpuInterval| t.shown(t.timer.get());
        slot.as_ref().map_or(Setting::default(), shown)
    }
    /// Begins to watch RLIMIT_CPU, or stops it: after it was set, and when a process with one
    /// begins.
    pub fn watch_cpu_limit(&self, k: &Arc<crate::Kernel>, g: &Arc<ThreadGroup>) {
        let at = |value| Setting { value, interval: 0 };
        let old = match cpu_limit(k, g) {
            None => self.limit.lock().take(),
            Some(next) => {
                let (kernel, group) = (Arc::downgrade(k), Arc::downgrade(g));
                let timer = CpuClock::of_process(k, g, CpuKind::Total).timer(move |_| {
                    if let (Some(k), Some(g)) = (kernel.upgrade(), group.upgrade())
                        && let Some(next) = cpu_limit(&k, &g)
                        && let Some(t) = &*g.timers.limit.lock()
                    {
                        t.set(at(next), From::Epoch);
                    }
                    Rearm::Now
                });
                let mut slot = self.limit.lock();
                timer.set(at(next), From::Epoch);
                slot.replace(timer)
            }
        };
        drop(old);
    }
    /// `timer_create(2)`.
    pub fn create(&self, task: &Task, clock: TimerClock, notify: Notify) -> Result<i32> {
        let mut p = self.posix.lock();
        if p.len() >= POSIX_MAX {
            return Err(EAGAIN);
        }
        let limit = task.group.limits.lock().0[super::limits::SIGPENDING].current;
        let cred = task.cred();
        let counted = cred.ucounts().charge(Kind::Signals, 1, limit);
        let counted = counted.ok_or(EAGAIN)?;
        let id = (0..)
            .find(|i| !p.contains_key(i))
            .expect("fewer than POSIX_MAX");
        let kernel = Arc::downgrade(&task.kernel);
        let group: Weak<ThreadGroup> = Arc::downgrade(&task.group);
        let user = cred.ucounts().outermost();
        let expired = move |e: Expiry| {
            let (Some(k), Some(g), Some(signal)) =
                (kernel.upgrade(), group.upgrade(), notify.signal())
            else {
                return nobody_told(&user);
            };
            let (value, to) = match notify {
                Notify::Thread { value, tid, .. } => {
                    let t = k.tasks.lock().task(tid);
                    match t.filter(|t| t.group.tgid == g.tgid) {
                        Some(t) => (value, Some(t)),
                        None => return nobody_told(&user),
                    }
                }
                Notify::Signal { value, .. } => (value, None),
                Notify::None => return nobody_told(&user),
            };
            let queue = to.as_ref().map_or(&g.shared, |t| &t.pending);
            // Where nothing will be taken, nobody would start the timer again.
            let waits = !signal.is_realtime() && queue.bits().contains(signal);
            if waits || g.actions().read().ignores(signal) {
                return nobody_told(&user);
            }
            let mut i = SigInfo::new(signal, SI_TIMER);
            i.fields[0] = (id as u64) | ((e.count.saturating_sub(1)) << 32);
            i.fields[1] = value;
            let sent = match &to {
                Some(t) => k.send_to_task(t, i),
                None => k.send_to_group(&g, i),
            };
            match sent {
                Ok(()) => Rearm::Later,
                Err(_) => nobody_told(&user),
            }
        };
        let timer = match &clock {
            TimerClock::Host(c) => Timer::new(&task.kernel.timers, *c, expired),
            TimerClock::Cpu(c) => c.timer(expired),
        };
        let overrun = AtomicU64::new(0);
        let t = PosixTimer {
            timer,
            clock,
            overrun,
            notify,
            _counted: counted,
        };
        p.insert(id, Arc::new(t));
        Ok(id)
    }
    /// ITIMER_REAL's signal was taken or dropped: it goes on.
    pub fn real_delivered(&self) {
        if let Some(t) = &*self.real.lock() {
            t.rearm();
        }
    }
    /// A timer's signal was taken: it says how many expirations were missed, and the timer goes on.
    pub fn delivered(&self, info: &mut SigInfo) {
        let Ok(t) = self.posix(info.fields[0] as u32 as i32) else {
            return;
        };
        let n = (info.fields[0] >> 32).saturating_add(t.timer.rearm());
        let n = n.min(i32::MAX as u64);
        info.fields[0] = (info.fields[0] & 0xffff_ffff) | n << 32;
        t.overrun.store(n, Ordering::Relaxed);
    }
    /// Pending signals of this kind were dropped: timers that waited for their delivery go on.
    pub fn dropped(&self, signal: Signal) {
        if signal == SIGALRM {
            self.real_delivered();
        }
        let p = self.posix.lock();
        for t in p.values().filter(|t| t.notify.signal() == Some(signal)) {
            t.timer.rearm();
        }
    }
    pub fn posix(&self, id: i32) -> Result<Arc<PosixTimer>> {
        self.posix.lock().get(&id).cloned().ok_or(EINVAL)
    }
    pub fn delete(&self, id: i32) -> Result<()> {
        let old = self.posix.lock().remove(&id);
        old.map(|_| ()).ok_or(EINVAL)
    }
    /// execve(2) keeps interval timers and drops POSIX timers.
    pub fn clear_posix(&self) {
        let old = std::mem::take(&mut *self.posix.lock());
        drop(old);
    }
    pub fn clear(&self) {
        self.clear_posix();
        let old = (self.real.lock().take(), self.limit.lock().take());
        drop(old);
        for c in &self.cpu {
            let old = c.lock().take();
            drop(old);
        }
    }
}
