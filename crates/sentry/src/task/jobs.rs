//! A process's timers: interval timers (`setitimer(2)`) and POSIX timers (`timer_create(2)`).

use super::{Task, ThreadGroup};
use abi::errno::{EAGAIN, EINVAL};
use abi::signal::{SI_KERNEL, SI_TIMER, SIGALRM};
use abi::{Result, SigInfo, Signal};
use ipc::timer::{Clock, From, Rearm, Setting, Timer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// All timers of a process.
#[derive(Default)]
pub struct Timers {
    real: Mutex<Option<Timer>>,
    /// ITIMER_VIRTUAL and ITIMER_PROF. CPU time cannot run faster than the CPUs: each look is set for the
    /// earliest moment when it could be reached, and set again if it was not.
    cpu: [Arc<Mutex<CpuTimer>>; 2],
    posix: Mutex<BTreeMap<i32, Arc<PosixTimer>>>,
}

/// The most POSIX timers of a process; Linux bounds them by RLIMIT_SIGPENDING.
const POSIX_MAX: usize = 4096;

/// A POSIX timer.
pub struct PosixTimer {
    pub timer: Timer,
    /// Expirations beyond the one whose signal was delivered.
    pub overrun: Arc<AtomicU64>,
}

/// An interval timer on CPU time.
#[derive(Default)]
struct CpuTimer {
    timer: Option<Timer>,
    /// CPU time at which it expires; 0 when disarmed.
    target: i64,
    interval: i64,
}

/// CPU time of a process, nanoseconds.
fn cpu_now(k: &crate::Kernel, g: &ThreadGroup) -> i64 {
    k.cpu_time(g) as i64
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

impl Timers {
    /// `setitimer(ITIMER_REAL)`: gives the old setting.
    pub fn set_real(&self, task: &Task, new: Setting) -> Setting {
        let mut t = self.real.lock();
        let timer = t.get_or_insert_with(|| {
            let (kernel, group) = (Arc::downgrade(&task.kernel), Arc::downgrade(&task.group));
            Timer::new(&task.kernel.timers, Clock::Monotonic, move |_| {
                if let (Some(k), Some(g)) = (kernel.upgrade(), group.upgrade()) {
                    let _ = k.send_to_group(&g, SigInfo::new(SIGALRM, SI_KERNEL));
                }
                Rearm::Now
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
    /// `setitimer(ITIMER_VIRTUAL or ITIMER_PROF)`, which is 1 or 2.
    pub fn set_cpu(&self, task: &Task, which: u32, new: Setting) -> Setting {
        let slot = &self.cpu[usize::from(which == 2)];
        let old = self.cpu_setting(which, cpu_now(&task.kernel, &task.group));
        let signal = if which == 2 {
            abi::signal::SIGPROF
        } else {
            abi::signal::SIGVTALRM
        };
        let mut c = slot.lock();
        c.interval = new.interval;
        if new.value == 0 {
            c.target = 0;
            c.timer = None;
            return old;
        }
        c.target = cpu_now(&task.kernel, &task.group) + new.value;
        let cpus = i64::from(task.kernel.cpus.max(1));
        let (kernel, group) = (Arc::downgrade(&task.kernel), Arc::downgrade(&task.group));
        let me = Arc::downgrade(slot);
        let timer = Timer::new(&task.kernel.timers, Clock::Monotonic, move |_| {
            let (Some(k), Some(g), Some(me)) = (kernel.upgrade(), group.upgrade(), me.upgrade())
            else {
                return Rearm::Now;
            };
            let now = cpu_now(&k, &g);
            let mut c = me.lock();
            if c.target == 0 {
                return Rearm::Now;
            }
            let due = now >= c.target;
            if due {
                c.target = if c.interval == 0 { 0 } else { now + c.interval };
            }
            if c.target != 0
                && let Some(t) = &c.timer
            {
                let value = ((c.target - now) / cpus).max(1_000_000);
                t.set(Setting { value, interval: 0 }, From::Now);
            }
            drop(c);
            if due {
                let _ = k.send_to_group(&g, SigInfo::new(signal, SI_KERNEL));
            }
            Rearm::Now
        });
        timer.set(
            Setting {
                value: (new.value / cpus).max(1_000_000),
                interval: 0,
            },
            From::Now,
        );
        c.timer = Some(timer);
        old
    }
    fn cpu_setting(&self, which: u32, now: i64) -> Setting {
        let c = self.cpu[usize::from(which == 2)].lock();
        let value = if c.target == 0 {
            0
        } else {
            (c.target - now).max(1)
        };
        Setting {
            value,
            interval: c.interval,
        }
    }
    /// The setting of a CPU-time interval timer.
    #[must_use]
    pub fn cpu(&self, task: &Task, which: u32) -> Setting {
        self.cpu_setting(which, cpu_now(&task.kernel, &task.group))
    }
    /// `timer_create(2)`.
    pub fn create(&self, task: &Task, clock: Clock, notify: Notify) -> Result<i32> {
        let mut p = self.posix.lock();
        if p.len() >= POSIX_MAX {
            return Err(EAGAIN);
        }
        let id = (0..)
            .find(|i| !p.contains_key(i))
            .expect("fewer than POSIX_MAX");
        let overrun = Arc::new(AtomicU64::new(0));
        let count = overrun.clone();
        let kernel = Arc::downgrade(&task.kernel);
        let group: Weak<ThreadGroup> = Arc::downgrade(&task.group);
        let timer = Timer::new(&task.kernel.timers, clock, move |e| {
            count.store(e.count.saturating_sub(1), Ordering::Relaxed);
            let (Some(k), Some(g)) = (kernel.upgrade(), group.upgrade()) else {
                return Rearm::Now;
            };
            let info = |s: Signal, value: u64| {
                let mut i = SigInfo::new(s, SI_TIMER);
                i.fields[0] = (id as u64) | ((e.count.saturating_sub(1)) << 32);
                i.fields[1] = value;
                i
            };
            match notify {
                Notify::None => {}
                Notify::Signal { signal, value } => {
                    let _ = k.send_to_group(&g, info(signal, value));
                }
                Notify::Thread { signal, value, tid } => {
                    let t = k.tasks.lock().task(tid);
                    if let Some(t) = t.filter(|t| t.group.tgid == g.tgid) {
                        let _ = k.send_to_task(&t, info(signal, value));
                    }
                }
            }
            Rearm::Now
        });
        p.insert(id, Arc::new(PosixTimer { timer, overrun }));
        Ok(id)
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
        let old = self.real.lock().take();
        drop(old);
        for c in &self.cpu {
            let mut c = c.lock();
            c.target = 0;
            let old = c.timer.take();
            drop(c);
            drop(old);
        }
    }
}
