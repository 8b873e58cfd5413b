//! The kick: the signal that stops application code, and what happens where it is not taken.
//!
//! Hostile code can block the kick by returning from a signal with a frame of its own. Nobody else
//! is harmed by that, but its process could not be ended any more. Two things notice it: a system
//! call that comes from a thread that should have taken the kick first (see `notify`), and for one
//! that makes no calls the watchdog, which ends a process that went on computing for seconds with a
//! kick unanswered.

use crate::lanes::RemoteLanes;
use crate::lanes::area::ThreadArea;
use crate::lanes::sites::Sites;
use crate::process::{KICK, Process, Unit};
use crate::{Interrupter, Lanes};
use hostcall::process as host;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often the watchdog looks while a kick is unanswered.
const LOOK: Duration = Duration::from_millis(250);
/// A process that a kick finds computing is given this long, by the clock and in CPU time, the
/// latter more with many threads, which take turns: a host thread that is ready to run gets a CPU
/// sooner than that.
const PATIENCE: Duration = Duration::from_secs(3);
const PATIENCE_CPU: u64 = 2_000_000_000;
const PATIENCE_CPU_THREAD: u64 = 10_000_000;

const IDLE: u8 = 0;
const ASKED: u8 = 1;
const SENT: u8 = 2;

/// Stops a thread by the kick signal, as long as it lives.
pub struct Kick {
    me: Weak<Kick>,
    tgid: i32,
    tid: i32,
    process: Weak<Process>,
    /// Its area.
    unit: Unit,
    live: AtomicBool,
    /// Serialises senders: between ASKED and SENT is one sender only. And whoever looks at its
    /// area.
    sending: Mutex<()>,
    /// IDLE, ASKED or SENT; the thread itself sets it back.
    state: AtomicU8,
    /// Odd while in application code.
    stays: AtomicU64,
    /// The sites before the first end of one in this stay in application code; whether there was
    /// one.
    before: Mutex<Option<Arc<Sites>>>,
    remembers: AtomicBool,
    watched: AtomicBool,
}

impl Kick {
    pub fn new(tgid: i32, tid: i32, unit: Unit, process: Weak<Process>) -> Arc<Kick> {
        Arc::new_cyclic(|me| Kick {
            me: me.clone(),
            tgid,
            tid,
            process,
            unit,
            live: AtomicBool::new(true),
            sending: Mutex::new(()),
            state: AtomicU8::new(IDLE),
            stays: AtomicU64::new(0),
            before: Mutex::new(None),
            remembers: AtomicBool::new(false),
            watched: AtomicBool::new(false),
        })
    }
    /// The thread has ended: its number, and its area, may be given out again.
    pub fn end(&self) {
        let _one = self.sending.lock();
        self.live.store(false, Ordering::Release);
    }
    /// Looks at its area, as long as it is its own: later it may be part of another's process, and
    /// hold anything.
    fn with_area<R>(&self, f: impl FnOnce(ThreadArea<'_>) -> R) -> Option<R> {
        let _one = self.sending.lock();
        if !self.live.load(Ordering::Acquire) {
            return None;
        }
        let p = self.process.upgrade()?;
        (p.factory.lanes != Lanes::None).then(|| f(ThreadArea::of(p.factory.unit(self.unit))))
    }
    /// The kick was taken.
    pub fn served(&self) {
        self.state.store(IDLE, Ordering::SeqCst);
    }
    /// The thread is about to go on. Tells whether a kick has been sent that it must take first.
    pub fn entered(&self) -> bool {
        self.stays.fetch_or(1, Ordering::SeqCst);
        if self.remembers.load(Ordering::SeqCst) {
            // (Also if it was for this stay: nothing of what ended is mapped by now.)
            let mut before = self.before.lock();
            self.remembers.store(false, Ordering::SeqCst);
            *before = None;
        }
        let due = self.state.load(Ordering::SeqCst) == SENT;
        if due {
            self.watch();
        }
        due
    }
    /// Sites are about to end, whose pages are not mapped, while it is in application code: these
    /// there are.
    pub fn remember(&self, sites: &Arc<Sites>) {
        let mut before = self.before.lock();
        before.get_or_insert_with(|| sites.clone());
        self.remembers.store(true, Ordering::SeqCst);
    }
    /// What tells where it stands, if sites have ended since it went into application code.
    pub fn remembered(&self) -> Option<Arc<Sites>> {
        match self.remembers.load(Ordering::SeqCst) {
            true => self.before.lock().clone(),
            false => None,
        }
    }
    /// The thread stands still.
    pub fn left(&self) {
        let n = self.stays.load(Ordering::Relaxed);
        self.stays.store(n + (n & 1), Ordering::SeqCst);
    }
    fn watch(&self) {
        if !self.watched.swap(true, Ordering::SeqCst)
            && let Some(me) = self.me.upgrade()
            && let Some(p) = self.process.upgrade()
        {
            p.factory.watchdog.add(me);
        }
    }
    /// The stay in application code, if it is there.
    pub fn stay(&self) -> Option<u64> {
        let stay = self.stays.load(Ordering::SeqCst);
        (stay & 1 == 1 && self.live.load(Ordering::Acquire)).then_some(stay)
    }
    /// The stay in application code that has an unanswered kick.
    fn overdue(&self) -> Option<u64> {
        self.stay()
            .filter(|_| self.state.load(Ordering::SeqCst) == SENT)
    }
}

impl Interrupter for Kick {
    fn interrupt(&self) {
        {
            let _one = self.sending.lock();
            // Its number may be another's, or it may serve another task.
            if !self.live.load(Ordering::Acquire) {
                return;
            }
            self.state.store(ASKED, Ordering::SeqCst);
            let _ = host::tgkill(self.tgid, self.tid, KICK);
            // If it was taken meanwhile, nothing is pending.
            let _ = self
                .state
                .compare_exchange(ASKED, SENT, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.watch();
    }

    fn lanes(&self) -> Option<&dyn RemoteLanes> {
        Some(self)
    }
}

impl RemoteLanes for Kick {
    fn withdraw(&self) {
        self.with_area(|area| area.publish(None));
    }
    fn mask(&self) -> Option<u64> {
        self.with_area(|area| area.mask())
    }
    fn note_pending(&self, set: u64) {
        self.with_area(|area| area.note_pending(set));
    }
}

/// Ends processes that do not take their kicks.
#[derive(Default)]
pub struct Watchdog(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<Watched>,
    more: Condvar,
}

#[derive(Default)]
struct Watched {
    /// Its thread runs.
    up: bool,
    kicks: Vec<Entry>,
}

struct Entry {
    kick: Arc<Kick>,
    stay: u64,
    since: Instant,
    cpu: u64,
}

impl Watchdog {
    fn add(&self, kick: Arc<Kick>) {
        let mut s = self.0.state.lock();
        s.kicks.push(Entry {
            kick,
            stay: 0,
            since: Instant::now(),
            cpu: 0,
        });
        if !s.up {
            let shared = self.0.clone();
            let name = std::thread::Builder::new().name("watchdog".into());
            s.up = name.spawn(move || watch(&shared)).is_ok();
        } else if s.kicks.len() == 1 {
            self.0.more.notify_one();
        }
    }
}

fn watch(shared: &Shared) {
    let mut s = shared.state.lock();
    loop {
        while s.kicks.is_empty() {
            shared.more.wait(&mut s);
        }
        drop(s);
        std::thread::sleep(LOOK);
        let mut list = std::mem::take(&mut shared.state.lock().kicks);
        list.retain_mut(still_due);
        s = shared.state.lock();
        s.kicks.append(&mut list);
    }
}

fn still_due(e: &mut Entry) -> bool {
    let overdue = e.kick.overdue();
    let (Some(stay), Some(p)) = (overdue, e.kick.process.upgrade()) else {
        e.kick.watched.store(false, Ordering::SeqCst);
        // It may have gone on just now, seeing itself watched.
        return e.kick.overdue().is_some() && !e.kick.watched.swap(true, Ordering::SeqCst);
    };
    let cpu = p.cpu_nanos();
    let patience = PATIENCE_CPU + u64::from(p.thread_count()) * PATIENCE_CPU_THREAD;
    if stay != e.stay {
        (e.stay, e.since, e.cpu) = (stay, Instant::now(), cpu);
    } else if e.since.elapsed() >= PATIENCE && cpu.saturating_sub(e.cpu) >= patience {
        p.kill();
        return false;
    }
    true
}
