//! The end of stub processes, and their second life.
//!
//! What a process had is taken down by the *reaper*, a thread that nobody waits for: it unmaps what is mapped, or
//! waits until the process is gone, and only then has the frames given back. A process whose threads have all
//! ended goes on in the *pool*: for the next program it has its service thread up, and an application thread that
//! waits at its start.
//!
//! ## Why a second life is safe
//!
//! The next program may be another user's. Application code can change nothing of its process but memory, which is
//! unmapped as a whole, thread areas, which are emptied, and its own threads, which have ended (the host said so by
//! their listeners). It makes no call of its own: signal actions, the filters, the descriptor table and the like
//! are as the zygote left them. The spawner and the service thread use no memory that it can write. The command
//! page, which it can read, is emptied of addresses. A process with patched call sites is not used again: its
//! trampolines are its own.
//!
//! Lock order: the queue's and the pool's locks are leaves.

use crate::process::{Drive, Factory, Process};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

/// Processes that wait for a program at most; each is some tens of KB of the host's.
const POOL: usize = 4;
/// Ended ones that wait for the reaper at most: beyond, who ends one does it itself.
const QUEUE: usize = 32;

type Then = Box<dyn FnOnce() + Send>;

/// A process as an address space holds it: dropped, it goes to the reaper.
pub struct Held {
    /// `None` only while dropped.
    process: Option<Arc<Process>>,
    then: Mutex<Vec<Then>>,
}

impl Held {
    pub fn new(p: Process) -> Held {
        Held {
            process: Some(Arc::new(p)),
            then: Mutex::default(),
        }
    }

    /// See [`crate::AddressSpace::retire`].
    pub fn retire(&self, then: Then) {
        self.then.lock().push(then);
    }
}

impl Deref for Held {
    type Target = Arc<Process>;
    fn deref(&self) -> &Arc<Process> {
        self.process.as_ref().expect("until drop")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let then = std::mem::take(self.then.get_mut());
            let factory = process.factory.clone();
            factory.reaper.take(Remains { process, then });
        }
    }
}

/// What is left of an address space.
struct Remains {
    process: Arc<Process>,
    then: Vec<Then>,
}

impl Remains {
    fn clear(self) {
        let p = self.process;
        let again = p.factory.drive == Drive::Notify && p.is_idle() && !p.has_sites();
        let empty = again && p.unmap_all().is_ok();
        if !empty {
            p.kill();
            p.wait_gone();
        }
        for f in self.then {
            f();
        }
        if empty && let Ok(p) = Arc::try_unwrap(p) {
            let factory = p.factory.clone();
            factory.pool.put(p);
        }
    }
}

/// Ends processes in the background.
#[derive(Default)]
pub struct Reaper(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Its thread runs.
    up: bool,
    /// It takes something down.
    busy: bool,
    /// No platform is left: who ends a process takes it down itself.
    closed: bool,
    remains: VecDeque<Remains>,
}

impl Reaper {
    fn take(&self, r: Remains) {
        let mut s = self.0.state.lock();
        if !s.up && !s.closed {
            let queue = self.0.clone();
            let thread = std::thread::Builder::new().name("reaper".into());
            s.up = thread.spawn(move || queue.run()).is_ok();
        }
        if !s.up || s.closed || s.remains.len() >= QUEUE {
            drop(s);
            return r.clear();
        }
        s.remains.push_back(r);
        drop(s);
        self.0.more.notify_all();
    }

    /// Waits until all is taken down; nothing is left to the thread from now on.
    pub fn close(&self) {
        let mut s = self.0.state.lock();
        s.closed = true;
        while s.busy || !s.remains.is_empty() {
            self.0.more.wait(&mut s);
        }
    }
}

impl Queue {
    fn run(&self) {
        loop {
            let mut s = self.state.lock();
            let r = loop {
                match s.remains.pop_front() {
                    Some(r) => break r,
                    None => self.more.wait(&mut s),
                }
            };
            s.busy = true;
            drop(s);
            r.clear();
            self.state.lock().busy = false;
            self.more.notify_all();
        }
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
    /// A process without anything mapped: one that served before, or a new one.
    pub fn process(self: &Arc<Self>) -> abi::Result<Held> {
        let p = match self.pool.take() {
            Some(p) => p,
            None => self.new_process()?,
        };
        Ok(Held::new(p))
    }
}
