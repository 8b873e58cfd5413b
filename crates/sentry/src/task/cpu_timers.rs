//! Timers on CPU clocks: ITIMER_VIRTUAL and _PROF, RLIMIT_CPU, POSIX timers, sleeps
//! (`kernel/time/posix-cpu-timers.c`).
//!
//! CPU time cannot run faster than the CPUs. So a process that has such timers is looked at by one
//! wall-clock timer, set for the earliest moment at which any of them could be due ([`Watch`]).
//!
//! - A *process's* clock is read by the look itself. Looks have a service thread of their own: who
//!   has many of them delays CPU timers, and no others. A look that comes late waits as long
//!   again, and one that finds no progress twice as long as the last.
//! - A *thread's* clock is told on the host only within its process, which is the application's and
//!   may be slow to tell. So the thread reads its own, at its boundary ([`look`]); the process's
//!   look only asks for that, once the process has used what the thread still lacks.
//! - Where no thread is in application code there is nothing to look for: the look is *parked*.
//!   Each thread is asked to look before it next goes there, which sets the look again. That none
//!   is missed is [`notice`]'s way, as for signals.
//!
//! Locks: a timer's, then the watch's, then the service's. The watch's is never held while a timer
//! expires or a clock is read.

use super::cpu::Cpu;
use super::{Context, Task, ThreadGroup, notice};
use crate::Kernel;
use ipc::timer::{Armed, Base, Clock, From, Rearm, Setting, Timer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The shortest time between two looks, ns: Linux looks at each tick (1 to 10 ms).
const LOOK_MIN: i64 = 1_000_000;
/// The longest between two that found no progress, ns.
const LOOK_IDLE: i64 = 64_000_000;
/// The longest of all, ns: limits may be very far.
const LOOK_MAX: i64 = 86_400_000_000_000;

/// What counts as used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuKind {
    /// In application code (CPUCLOCK_VIRT).
    User,
    /// There, and in the kernel (CPUCLOCK_PROF and _SCHED).
    Total,
}

impl CpuKind {
    /// Nanoseconds.
    #[must_use]
    pub const fn of(self, c: Cpu) -> i64 {
        (match self {
            CpuKind::User => c.user,
            CpuKind::Total => c.total(),
        }) as i64
    }
}

/// Whose clock.
#[derive(Clone)]
enum Whose {
    Process(Weak<ThreadGroup>),
    Thread(Weak<Task>),
}

/// A process, and the thread of it whose clock it is about.
type Watched = (Arc<ThreadGroup>, Option<Arc<Task>>);

fn is_there(k: &Kernel, (g, t): &Watched) -> bool {
    match t {
        None => k.tasks.lock().group(g.tgid).is_some(),
        Some(t) => !t.is_killed() || k.tasks.lock().task(t.tid).is_some(),
    }
}

/// A CPU clock that timers can follow.
#[derive(Clone)]
pub struct CpuClock {
    kernel: Weak<Kernel>,
    whose: Whose,
    kind: CpuKind,
}

impl CpuClock {
    #[must_use]
    pub fn of_process(k: &Arc<Kernel>, g: &Arc<ThreadGroup>, kind: CpuKind) -> CpuClock {
        CpuClock {
            kernel: Arc::downgrade(k),
            whose: Whose::Process(Arc::downgrade(g)),
            kind,
        }
    }

    #[must_use]
    pub fn of_thread(t: &Arc<Task>, kind: CpuKind) -> CpuClock {
        CpuClock {
            kernel: Arc::downgrade(&t.kernel),
            whose: Whose::Thread(Arc::downgrade(t)),
            kind,
        }
    }

    /// Nanoseconds; `None` of what is no more.
    #[must_use]
    pub fn read(&self) -> Option<i64> {
        let k = self.kernel.upgrade()?;
        let (g, t) = self.watched().filter(|w| is_there(&k, w))?;
        let used = t.map_or_else(|| k.cpu_time(&g), |t| t.cpu.get());
        Some(self.kind.of(used))
    }

    /// Whether what it follows is no more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let watched = self.kernel.upgrade().zip(self.watched());
        !watched.is_some_and(|(k, w)| is_there(&k, &w))
    }

    /// A disarmed timer on it.
    pub fn timer(
        &self,
        callback: impl Fn(ipc::timer::Expiry) -> Rearm + Send + Sync + 'static,
    ) -> Timer {
        Timer::on(Arc::new(self.clone()), callback)
    }

    /// Who is looked at for it, and which thread of theirs has the clock.
    fn watched(&self) -> Option<Watched> {
        match &self.whose {
            Whose::Process(g) => Some((g.upgrade()?, None)),
            Whose::Thread(t) => {
                let t = t.upgrade()?;
                Some((t.group.clone(), Some(t)))
            }
        }
    }
}

impl Base for CpuClock {
    fn now(&self) -> i64 {
        self.read().unwrap_or(0)
    }
    fn arm(&self, timer: &Arc<Armed>, expiry: i64) {
        let (Some(k), Some((g, t))) = (self.kernel.upgrade(), self.watched()) else {
            return;
        };
        let mut w = g.cpu_watch.0.lock();
        let q = match &t {
            None => &mut w.process,
            Some(t) => {
                let new = || ThreadWatch {
                    task: Arc::downgrade(t),
                    timers: Queue::default(),
                    look_at: 0,
                    asked: false,
                };
                let w = w.threads.entry(t.tid).or_insert_with(new);
                w.look_at = 0;
                &mut w.timers
            }
        };
        q.of(self.kind)
            .insert((expiry, timer.number()), Arc::downgrade(timer));
        w.look_soon(&k, &g);
    }
    fn disarm(&self, timer: &Armed, expiry: i64) {
        let Some((g, t)) = self.watched() else {
            return;
        };
        let mut w = g.cpu_watch.0.lock();
        let q = match &t {
            None => Some(&mut w.process),
            Some(t) => w.threads.get_mut(&t.tid).map(|w| &mut w.timers),
        };
        if let Some(q) = q {
            q.of(self.kind).remove(&(expiry, timer.number()));
        }
    }
}

/// A process's look at its CPU clocks.
#[derive(Default)]
pub struct CpuWatch(Mutex<Watch>);

#[derive(Default)]
struct Watch {
    process: Queue,
    /// By thread id, where a thread's clock has timers.
    threads: BTreeMap<i32, ThreadWatch>,
    alarm: Option<Timer>,
    /// When the alarm comes, on CLOCK_MONOTONIC.
    alarm_at: Option<i64>,
    /// No thread used CPU time: the next that does sets the alarm.
    parked: bool,
    /// What the process had used at the last look, and how long it then waited.
    used: i64,
    pause: i64,
}

struct ThreadWatch {
    task: Weak<Task>,
    timers: Queue,
    /// It is to look when its process has used so much.
    look_at: i64,
    /// It was asked to, and has not yet.
    asked: bool,
}

/// Timers by expiry and number, of both kinds of clock.
#[derive(Default)]
struct Queue([BTreeMap<(i64, u64), Weak<Armed>>; 2]);

const KINDS: [CpuKind; 2] = [CpuKind::User, CpuKind::Total];

impl Queue {
    fn of(&mut self, kind: CpuKind) -> &mut BTreeMap<(i64, u64), Weak<Armed>> {
        &mut self.0[kind as usize]
    }
    /// Takes out what is due.
    fn take_due(&mut self, now: Cpu) -> Vec<(Weak<Armed>, i64)> {
        let mut due = Vec::new();
        for kind in KINDS {
            let now = kind.of(now);
            while let Some(e) = self.of(kind).first_entry().filter(|e| e.key().0 <= now) {
                let ((expiry, _), t) = e.remove_entry();
                due.push((t, expiry));
            }
        }
        due
    }
    /// How much must be used until the next is due.
    fn left(&self, now: Cpu) -> Option<i64> {
        let of = |kind: CpuKind| {
            let (first, _) = self.0[kind as usize].first_key_value()?;
            Some(first.0.saturating_sub(kind.of(now)).max(0))
        };
        KINDS.into_iter().filter_map(of).min()
    }
}

fn expire(due: Vec<(Weak<Armed>, i64)>) {
    for (t, expiry) in due {
        if let Some(t) = t.upgrade() {
            t.expire(expiry);
        }
    }
}

impl Watch {
    /// Sets the look, unless an earlier one is set.
    fn look_in(&mut self, k: &Arc<Kernel>, g: &Arc<ThreadGroup>, delay: i64) {
        self.parked = false;
        let at = Clock::Monotonic.now().saturating_add(delay);
        if self.alarm_at.is_some_and(|a| a <= at) {
            return;
        }
        self.alarm_at = Some(at);
        let alarm = self.alarm.get_or_insert_with(|| {
            let service = &k.cpu_timers;
            let (k, g) = (Arc::downgrade(k), Arc::downgrade(g));
            Timer::new(service, Clock::Monotonic, move |_| {
                if let (Some(k), Some(g)) = (k.upgrade(), g.upgrade()) {
                    look_at_process(&k, &g);
                }
                Rearm::Now
            })
        });
        let one = Setting {
            value: at,
            interval: 0,
        };
        alarm.set(one, From::Epoch);
    }

    fn look_soon(&mut self, k: &Arc<Kernel>, g: &Arc<ThreadGroup>) {
        self.pause = LOOK_MIN;
        self.look_in(k, g, LOOK_MIN);
    }

    /// Threads that are to look at their own clocks, now that their process has used `total`.
    fn take_askers(&mut self, total: i64) -> Vec<Arc<Task>> {
        let mut ask = Vec::new();
        self.threads.retain(|_, w| {
            let Some(t) = w.task.upgrade() else {
                return false;
            };
            if !w.asked && w.look_at <= total {
                w.asked = true;
                ask.push(t);
            }
            true
        });
        ask
    }

    /// How long until something can be due; `None` where nothing is to be waited for.
    fn wait(&mut self, used: Cpu, cpus: i64, late: i64) -> Option<i64> {
        let total = CpuKind::Total.of(used);
        let threads = self.threads.values();
        let threads = threads.filter(|w| !w.asked && w.timers.left(used).is_some());
        let threads = threads.map(|w| w.look_at.saturating_sub(total));
        let left = self.process.left(used).into_iter().chain(threads).min()?;
        let idle = total == std::mem::replace(&mut self.used, total);
        self.pause = match idle {
            true => self.pause.saturating_mul(2).min(LOOK_IDLE),
            false => LOOK_MIN,
        };
        let wait = (left / cpus).max(self.pause).max(late);
        Some(wait.clamp(LOOK_MIN, LOOK_MAX))
    }
}

/// In the service thread, without locks: expires what is due on the process's clocks, asks threads
/// to look at theirs, and sets the next look.
fn look_at_process(k: &Arc<Kernel>, g: &Arc<ThreadGroup>) {
    let used = k.cpu_time(g);
    let (due, ask, late) = {
        let mut w = g.cpu_watch.0.lock();
        let at = w.alarm_at.take();
        let late = at.map_or(0, |at| Clock::Monotonic.now() - at);
        let ask = w.take_askers(CpuKind::Total.of(used));
        (w.process.take_due(used), ask, late)
    };
    for t in &ask {
        t.ask_for_cpu_look();
    }
    expire(due);
    let wait = {
        let mut w = g.cpu_watch.0.lock();
        // What expired may have been armed again, which set a look.
        if w.alarm_at.is_some() {
            return;
        }
        let Some(wait) = w.wait(used, i64::from(k.cpus.max(1)), late) else {
            return;
        };
        w.parked = true;
        wait
    };
    let threads = k.tasks.lock().threads(g.tgid);
    let runs = |t: &Arc<Task>| t.in_app.load(Ordering::SeqCst);
    let asked = |t: &Arc<Task>| {
        t.cpu.look.store(true, Ordering::SeqCst);
        notice::kick(&t.in_app, &t.attention)
    };
    if threads.iter().any(runs) || threads.iter().any(asked) {
        let mut w = g.cpu_watch.0.lock();
        if w.parked {
            w.look_in(k, g, wait);
        }
    }
}

/// At the boundary of a thread that was asked: it looks at its own clock, and its process is looked
/// at again.
pub fn look(cx: &Context) {
    let g = &cx.group;
    {
        let mut w = g.cpu_watch.0.lock();
        if w.parked {
            w.look_soon(&cx.kernel, g);
        }
        if !w.threads.contains_key(&cx.tid) {
            return;
        }
    }
    let (own, used) = (cx.cpu.get(), cx.kernel.cpu_time(g));
    let due = {
        let mut w = g.cpu_watch.0.lock();
        let Some(t) = w.threads.get_mut(&cx.tid) else {
            return;
        };
        let due = t.timers.take_due(own);
        t.asked = false;
        let left = t.timers.left(own);
        t.look_at = CpuKind::Total.of(used).saturating_add(left.unwrap_or(0));
        match left {
            Some(_) => w.look_soon(&cx.kernel, g),
            None => drop(w.threads.remove(&cx.tid)),
        }
        due
    };
    expire(due);
}

impl Task {
    /// The task is to [`look`], at once if it uses CPU time. One that sleeps sleeps on.
    fn ask_for_cpu_look(&self) {
        self.cpu.look.store(true, Ordering::SeqCst);
        self.stop_app();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn used(user: u64, system: u64) -> Cpu {
        Cpu { user, system }
    }

    #[test]
    fn what_is_due_is_told_by_its_own_kind() {
        struct Nothing;
        impl Base for Nothing {
            fn now(&self) -> i64 {
                0
            }
            fn arm(&self, t: &Arc<Armed>, expiry: i64) {
                QUEUE
                    .lock()
                    .of(CpuKind::User)
                    .insert((expiry, t.number()), Arc::downgrade(t));
            }
            fn disarm(&self, t: &Armed, expiry: i64) {
                QUEUE.lock().of(CpuKind::User).remove(&(expiry, t.number()));
            }
        }
        static QUEUE: Mutex<Queue> = Mutex::new(Queue([BTreeMap::new(), BTreeMap::new()]));
        static HITS: AtomicU64 = AtomicU64::new(0);
        let t = Timer::on(Arc::new(Nothing), |e| {
            HITS.fetch_add(e.count, Ordering::Relaxed);
            Rearm::Later
        });
        let at = |value| Setting { value, interval: 0 };
        t.set(at(10), From::Epoch);
        assert_eq!(QUEUE.lock().left(used(4, 100)), Some(6));
        assert!(QUEUE.lock().take_due(used(9, 100)).is_empty());
        let due = QUEUE.lock().take_due(used(10, 0));
        assert_eq!(due.len(), 1);
        expire(due);
        assert_eq!(HITS.load(Ordering::Relaxed), 1);
        assert_eq!(QUEUE.lock().left(used(20, 0)), None);
        // One that is set again meanwhile does not expire by its old arming.
        t.set(at(30), From::Epoch);
        let due = QUEUE.lock().take_due(used(30, 0));
        t.set(at(40), From::Epoch);
        expire(due);
        assert_eq!(HITS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn looks_wait_for_what_is_possible() {
        let mut w = Watch {
            pause: LOOK_MIN,
            ..Watch::default()
        };
        assert_eq!(w.wait(used(5, 0), 2, 0), None);
        let key = (1_000_000_000, 1);
        w.process.of(CpuKind::Total).insert(key, Weak::new());
        // Two CPUs are as fast again.
        assert_eq!(w.wait(used(200_000_000, 0), 2, 0), Some(400_000_000));
        // Nearly there, and without progress: it looks more seldom.
        let near = used(999_999_999, 0);
        assert_eq!(w.wait(near, 2, 0), Some(LOOK_MIN));
        assert_eq!(w.wait(near, 2, 0), Some(2 * LOOK_MIN));
        for _ in 0..20 {
            w.wait(near, 2, 0);
        }
        assert_eq!(w.wait(near, 2, 0), Some(LOOK_IDLE));
        // A service thread that is behind is left alone as long.
        assert_eq!(
            w.wait(used(999_999_998, 0), 2, 7 * LOOK_MIN),
            Some(7 * LOOK_MIN)
        );
    }
}
