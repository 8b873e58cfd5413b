//! The end of stub processes, and their second life.
//!
//! What a process had is taken down by the *reaper*, a thread that nobody waits for: it unmaps what
//! is mapped, or waits until the process is gone, and only then has the frames given back. A
//! process whose threads have all ended goes on in the *pool*: for the next program it has its
//! service thread up, and an application thread that waits at its start.
//!
//! ## Why a second life is safe
//!
//! The next program may be another user's. Application code can change nothing of its process but
//! memory, which is unmapped as a whole, thread areas, which are emptied, and its own threads,
//! which have ended (the host said so by their listeners). It makes no call of its own: signal
//! actions, the filters, the descriptor table and the like are as the zygote left them. The spawner
//! and the service thread use no memory that it can write. The command page, which it can read, is
//! emptied of addresses. Trampolines of patched call sites, which it can run and not write, are
//! unmapped, and their unit is given back.
//!
//! ## How much waits
//!
//! What a process had stays in memory until it is taken down. So who ends one that had much, or
//! where much waits already, does it itself, as on Linux. A process that does not end (it waits for
//! a device of the host's) holds up nobody: the reaper looks at all that are dying at once. What it
//! had is not given to others before it is gone.
//!
//! Memory that the allocator keeps after ends is given back to the host, once it is quiet. Where
//! that lasts, what the kernel remembers without need goes first ([`crate::Platform::when_quiet`]):
//! names in caches lie between what was freed, and keep its pages.
//!
//! Lock order: the queue's and the pool's locks are leaves. A process is made ready again without a
//! lock of these.

use crate::process::{Drive, Factory, Process, readable_within};
use hostcall::RawFd;
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Processes that wait for a program at most; each is some tens of KB of the host's.
const POOL: usize = 4;
/// Ended ones that wait for the reaper at most.
const QUEUE: usize = 32;
/// And bytes that they had, touched or not.
const BYTES: u64 = 256 << 20;
/// How long who ends a process waits for its end, where it does that itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nothing has ended for so long after many ends, or after a few: the allocator's free memory is
/// given back to the host. By then the threads that served the last tasks have ended, too, with
/// what the allocator kept for them.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_AFTER_FEW: Duration = Duration::from_secs(12);
const MANY: u64 = 16;
/// How often the reaper looks for others while some die: the longest interval, in milliseconds.
const LOOK_MAX: i32 = 64;
/// How long the end of the platform waits for the last.
const END_MAX: Duration = Duration::from_secs(5);

type OnUnmapped = Box<dyn FnOnce() + Send>;

/// A process as an address space holds it: dropped, it goes to the reaper.
pub struct ProcessHandle {
    /// `None` only while dropped.
    process: Option<Arc<Process>>,
    then: Mutex<(u64, Vec<OnUnmapped>)>,
}

impl ProcessHandle {
    pub fn new(p: Process) -> ProcessHandle {
        ProcessHandle {
            process: Some(Arc::new(p)),
            then: Mutex::default(),
        }
    }

    /// See [`crate::AddressSpace::retire`].
    pub fn retire(&self, bytes: u64, then: OnUnmapped) {
        let mut t = self.then.lock();
        t.0 = t.0.saturating_add(bytes);
        t.1.push(then);
    }
}

impl Deref for ProcessHandle {
    type Target = Arc<Process>;
    fn deref(&self) -> &Arc<Process> {
        self.process.as_ref().expect("until drop")
    }
}

impl Drop for ProcessHandle {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let (bytes, then) = std::mem::take(self.then.get_mut());
            let factory = process.factory.clone();
            factory.reaper.take(Remains {
                process,
                then,
                bytes,
            });
        }
    }
}

/// What is left of an address space.
struct Remains {
    process: Arc<Process>,
    then: Vec<OnUnmapped>,
    bytes: u64,
}

impl Remains {
    /// Empties the process, or begins to end it: then it is given back.
    fn clear(self) -> Option<Remains> {
        let p = &self.process;
        let again = p.factory.drive == Drive::Notify && p.is_idle();
        if !again || p.unmap_all().is_err() {
            p.kill();
            return Some(self);
        }
        if let Ok(p) = Arc::try_unwrap(self.done()) {
            let factory = p.factory.clone();
            factory.pool.put(p);
        }
        None
    }

    /// Nothing of it is mapped any more.
    fn done(self) -> Arc<Process> {
        for f in self.then {
            f();
        }
        self.process
    }
}

/// Ends processes in the background.
#[derive(Default)]
pub struct Reaper(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    more: Condvar,
    less: Condvar,
    when_quiet: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct QueueState {
    /// Its thread runs.
    up: bool,
    /// No platform is left: the thread ends when all is done.
    closed: bool,
    /// What was given to it, and is not done, by number; the next number.
    open: BTreeSet<u64>,
    next: u64,
    /// The bytes of those.
    bytes: u64,
    /// Those that it has not begun with.
    remains: VecDeque<(u64, Remains)>,
}

impl Reaper {
    fn take(&self, r: Remains) {
        let many =
            |s: &QueueState| s.open.len() >= QUEUE || s.bytes.saturating_add(r.bytes) > BYTES;
        let here = {
            let s = self.0.state.lock();
            s.closed || many(&s)
        };
        if !here {
            return self.queue(r);
        }
        let Some(r) = r.clear() else { return };
        if r.process.wait_gone(PATIENCE) {
            drop(r.done());
        } else {
            self.queue(r);
        }
    }

    fn queue(&self, r: Remains) {
        let mut s = self.0.state.lock();
        if !s.up {
            let queue = self.0.clone();
            let thread = std::thread::Builder::new().name("reaper".into());
            s.up = thread.spawn(move || queue.run()).is_ok();
        }
        let mut r = r;
        if !s.up {
            // The host has no thread for it.
            drop(s);
            match r.clear() {
                None => return,
                Some(left) if left.process.wait_gone(PATIENCE) => return drop(left.done()),
                // The next to come tries again.
                Some(left) => r = left,
            }
            s = self.0.state.lock();
        }
        let n = s.next;
        s.next += 1;
        s.open.insert(n);
        s.bytes += r.bytes;
        s.remains.push_back((n, r));
        drop(s);
        self.0.more.notify_one();
    }

    /// See [`crate::Platform::when_quiet`].
    pub fn when_quiet(&self, f: Box<dyn Fn() + Send + Sync>) {
        let _ = self.0.when_quiet.set(f);
    }

    /// See [`crate::Platform::wait_unmapped`].
    pub fn wait_unmapped(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut s = self.0.state.lock();
        let end = s.next;
        while s.open.first().is_some_and(|first| *first < end) {
            if self.0.less.wait_until(&mut s, until).timed_out() {
                return s.open.first().is_none_or(|first| *first >= end);
            }
        }
        true
    }

    /// Nobody makes processes any more.
    fn close(&self, limit: Duration) {
        self.0.state.lock().closed = true;
        self.0.more.notify_one();
        self.wait_unmapped(limit);
    }
}

impl Queue {
    fn run(&self) {
        let mut dying: Vec<(u64, Remains)> = Vec::new();
        let mut look = 1;
        let mut trimmed = 0;
        loop {
            let next = {
                let mut s = self.state.lock();
                while s.remains.is_empty() && dying.is_empty() {
                    if s.closed {
                        s.up = false;
                        return;
                    }
                    let quiet = match s.next - trimmed {
                        0 => {
                            self.more.wait(&mut s);
                            continue;
                        }
                        1..MANY => QUIET_AFTER_FEW,
                        MANY.. => QUIET,
                    };
                    if self.more.wait_for(&mut s, quiet).timed_out() {
                        // Once more after this, for what ends later than processes do.
                        let many = s.next - trimmed >= MANY;
                        trimmed = s.next - u64::from(many);
                        MutexGuard::unlocked(&mut s, || {
                            if let Some(f) = self.when_quiet.get().filter(|_| !many) {
                                f();
                            }
                            hostcall::process::trim_allocator();
                        });
                    }
                }
                s.remains.pop_front()
            };
            if let Some((n, r)) = next {
                let bytes = r.bytes;
                match r.clear() {
                    Some(r) => dying.push((n, r)),
                    None => self.done(n, bytes),
                }
                look = 1;
                continue;
            }
            let ends: SmallVec<[RawFd; 16]> = dying.iter().map(|d| d.1.process.end()).collect();
            if !readable_within(&ends, look) {
                look = (look * 2).min(LOOK_MAX);
                continue;
            }
            look = 1;
            let gone = |d: &mut (u64, Remains)| readable_within(&[d.1.process.end()], 0);
            for (n, r) in dying.extract_if(.., gone) {
                let bytes = r.bytes;
                drop(r.done());
                self.done(n, bytes);
            }
        }
    }

    fn done(&self, n: u64, bytes: u64) {
        let mut s = self.state.lock();
        s.open.remove(&n);
        s.bytes -= bytes;
        drop(s);
        self.less.notify_all();
    }
}

/// Processes without a program.
#[derive(Default)]
pub struct Pool(Mutex<Pooled>);

#[derive(Default)]
struct Pooled {
    /// No platform is left that could use them.
    closed: bool,
    processes: Vec<Process>,
}

impl Pool {
    pub fn take(&self) -> Option<Process> {
        loop {
            let p = self.0.lock().processes.pop()?;
            if p.is_alive() {
                return Some(p);
            }
        }
    }

    fn put(&self, p: Process) {
        let full = |s: &Pooled| s.closed || s.processes.len() >= POOL;
        if full(&self.0.lock()) || !p.renew() {
            return;
        }
        let mut s = self.0.lock();
        if !full(&s) {
            s.processes.push(p);
        }
    }

    pub fn close(&self) {
        let all = {
            let mut s = self.0.lock();
            s.closed = true;
            std::mem::take(&mut s.processes)
        };
        drop(all);
    }
}

impl Factory {
    /// The platform ends.
    pub fn end(&self) {
        self.pool.close();
        self.reaper.close(END_MAX);
    }

    /// A process without anything mapped: one that served before, or a new one.
    pub fn process(self: &Arc<Self>) -> abi::Result<ProcessHandle> {
        let p = match self.pool.take() {
            Some(p) => p,
            None => self.new_process()?,
        };
        Ok(ProcessHandle::new(p))
    }
}
