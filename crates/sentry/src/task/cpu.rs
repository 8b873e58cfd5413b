//! CPU time: what application code used counts as user time, what the Sentry's thread used for it
//! as system time. What that thread spun away beside running application code does not count.
//!
//! The host keeps both clocks. A process's user time is its address space's; a thread's is that of
//! its thread there, and what it used in address spaces that it left by execve(2).

use super::{Task, ThreadGroup};
use crate::Kernel;
use parking_lot::Mutex;
use platform::CpuClock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub user: u64,
    pub system: u64,
}

impl Cpu {
    #[must_use]
    pub const fn total(self) -> u64 {
        self.user.saturating_add(self.system)
    }
}

impl std::ops::Sub for Cpu {
    type Output = Cpu;
    /// Not below zero: clocks of two moments may be read in the other order.
    fn sub(self, o: Cpu) -> Cpu {
        Cpu {
            user: self.user.saturating_sub(o.user),
            system: self.system.saturating_sub(o.system),
        }
    }
}

impl std::ops::Add for Cpu {
    type Output = Cpu;
    fn add(self, o: Cpu) -> Cpu {
        Cpu {
            user: self.user.saturating_add(o.user),
            system: self.system.saturating_add(o.system),
        }
    }
}

/// A sum that grows.
#[derive(Default)]
pub struct CpuSum {
    user: AtomicU64,
    system: AtomicU64,
}

impl CpuSum {
    pub fn add(&self, c: Cpu) {
        self.user.fetch_add(c.user, Ordering::Relaxed);
        self.system.fetch_add(c.system, Ordering::Relaxed);
    }
    #[must_use]
    pub fn get(&self) -> Cpu {
        Cpu {
            user: self.user.load(Ordering::Relaxed),
            system: self.system.load(Ordering::Relaxed),
        }
    }
}

/// What the platform counts of a task: changed as one, so that no part is missing or there twice
/// when it goes to another address space. A clock of application code is the application's, and may
/// be slow to tell: it is asked without the lock, and again if another came meanwhile.
#[derive(Default)]
struct Clocks {
    now: Option<CpuClock>,
    /// How many there were.
    number: u64,
    /// Of address spaces that it left: in application code, and spun.
    before: u64,
    spun_before: u64,
}

impl Clocks {
    fn spun(&self) -> u64 {
        let now = self.now.as_ref();
        self.spun_before + now.map_or(0, |c| c.spun.load(Ordering::Relaxed))
    }
}

/// A task's clocks.
#[derive(Default)]
pub struct TaskCpu {
    clocks: Mutex<Clocks>,
    /// The Sentry's thread, on the host; 0 before it runs.
    thread: AtomicI32,
    /// It is to look at its CPU timers: see [`super::cpu_timers`].
    pub(super) look: AtomicBool,
    /// What that thread had used for other tasks, before this one. Written before `thread`.
    at_start: AtomicU64,
    /// The most system time that anyone was told. Time that is being spun counts until it is known
    /// as such; a clock does not go back for it.
    told: AtomicU64,
}

/// CPU time of a host thread, of this process.
fn host_nanos(tid: i32) -> u64 {
    // Threads of one process may read each other's clocks. Of one that has ended, nothing is told.
    u64::try_from(hostcall::time::clock_nanos((!tid << 3) | 6)).unwrap_or(0)
}

impl TaskCpu {
    /// The calling host thread is the task's; its application thread is the one with this clock.
    pub fn begin(&self, clock: CpuClock) {
        let tid = hostcall::process::gettid();
        if self.thread.load(Ordering::Relaxed) != tid {
            self.at_start.store(host_nanos(tid), Ordering::Relaxed);
            self.thread.store(tid, Ordering::Release);
        }
        let (before, number) = self.application();
        let mut clocks = self.clocks.lock();
        let new = Clocks {
            before,
            spun_before: clocks.spun(),
            now: Some(clock),
            number: number + 1,
        };
        let old = std::mem::replace(&mut *clocks, new);
        drop(clocks);
        // (With it, perhaps, the last of its process.)
        drop(old);
    }
    /// Its time in application code, and the number of the clock that told it.
    fn application(&self) -> (u64, u64) {
        loop {
            let (clock, before, number) = {
                let c = self.clocks.lock();
                (c.now.clone(), c.before, c.number)
            };
            let now = clock.map_or(0, |c| (c.application)());
            if self.clocks.lock().number == number {
                return (before + now, number);
            }
        }
    }
    /// Another task goes on as this one (execve of a thread that does not lead).
    pub fn take_from(&self, o: &TaskCpu) {
        let theirs = std::mem::take(&mut *o.clocks.lock());
        let old = {
            let mut clocks = self.clocks.lock();
            let number = clocks.number.max(theirs.number) + 1;
            std::mem::replace(&mut *clocks, Clocks { number, ..theirs })
        };
        drop(old);
        let taken = [(&self.at_start, &o.at_start), (&self.told, &o.told)];
        for (to, from) in taken {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.thread
            .store(o.thread.swap(0, Ordering::Relaxed), Ordering::Release);
    }
    fn system(&self) -> u64 {
        match self.thread.load(Ordering::Acquire) {
            0 => 0,
            // Read first: what is spun by then is among what the thread has used.
            tid => {
                let spun = self.clocks.lock().spun();
                let not_its = spun + self.at_start.load(Ordering::Relaxed);
                let now = host_nanos(tid).saturating_sub(not_its);
                self.told.fetch_max(now, Ordering::Relaxed).max(now)
            }
        }
    }
    /// The task's host thread is about to end: its system time moves to the process's sum.
    fn end(&self) -> Cpu {
        let system = self.system();
        self.thread.store(0, Ordering::Relaxed);
        let old = {
            let mut clocks = self.clocks.lock();
            clocks.number += 1;
            clocks.now.take()
        };
        drop(old);
        Cpu { user: 0, system }
    }
    /// What the thread has used.
    #[must_use]
    pub fn get(&self) -> Cpu {
        Cpu {
            user: self.application().0,
            system: self.system(),
        }
    }
}

impl ThreadGroup {
    /// Of so much that it has used by now, what its groups have not counted: they do now.
    pub fn count_cpu(&self, used: Cpu) -> Cpu {
        let mut counted = self.cpu_counted.lock();
        let new = used - *counted;
        *counted = *counted + new;
        new
    }
}

impl Kernel {
    /// Takes note of an ending thread's CPU time; called by the thread itself.
    pub fn account(&self, t: &Task) {
        t.group.cpu_ended.add(t.cpu.end());
    }

    /// Keeps the CPU time of an address space that a process leaves.
    pub fn account_space(&self, t: &Task, mm: &mm::Mm) {
        // A vfork child's is its parent's.
        if !t.borrows_memory() {
            let user = mm.address_space().cpu_nanos();
            t.group.cpu_ended.add(Cpu { user, system: 0 });
        }
    }

    /// The process has ended: its group keeps what it used.
    pub fn account_group(&self, g: &ThreadGroup) {
        g.cgroup().add_cpu(g.count_cpu(g.cpu_ended.get()));
    }

    /// CPU time of a process and its ended threads.
    #[must_use]
    pub fn cpu_time(&self, g: &ThreadGroup) -> Cpu {
        let (threads, mm) = {
            let l = self.tasks.lock();
            (l.threads(g.tgid), l.memory_of(g.tgid, &self.no_memory))
        };
        let user = mm.map_or(0, |m| m.address_space().cpu_nanos());
        let system = threads.iter().map(|t| t.cpu.system()).sum();
        g.cpu_ended.get() + Cpu { user, system }
    }
}

impl Task {
    /// All CPUs of a task's container, as bytes of a `cpu_set_t`.
    pub fn cpu_mask(&self) -> Vec<u8> {
        let all = self.kernel.cpus.max(1);
        let n = self.group.container.ns.cgroup.cpus(all) as usize;
        let mut m = vec![0u8; n.div_ceil(64) * 8];
        for i in 0..n {
            m[i / 8] |= 1 << (i % 8);
        }
        m
    }

    /// Those of them that it may run on, as it is told.
    #[must_use]
    pub fn allowed_cpus(&self) -> Vec<u8> {
        let mut m = self.cpu_mask();
        if let Some(asked) = &*self.affinity.read() {
            let mut both = m.clone();
            for (i, b) in both.iter_mut().enumerate() {
                *b &= asked.get(i).copied().unwrap_or(0);
            }
            // The container may have fewer by now.
            if both.iter().any(|b| *b != 0) {
                m = both;
            }
        }
        m
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Until the calling thread has used two milliseconds more.
    fn burn() {
        let tid = hostcall::process::gettid();
        let end = host_nanos(tid) + 2_000_000;
        while host_nanos(tid) < end {}
    }

    #[test]
    fn what_was_spun_away_does_not_count() {
        let (cpu, clock) = (TaskCpu::default(), CpuClock::new(|| 7));
        let spun = clock.spun.clone();
        cpu.begin(clock);
        burn();
        spun.store(1_000_000_000, Ordering::Relaxed);
        assert_eq!(cpu.get(), Cpu { user: 7, system: 0 });
        // Also by an address space that it has left.
        cpu.begin(CpuClock::new(|| 1));
        assert_eq!(cpu.get(), Cpu { user: 8, system: 0 });
    }

    #[test]
    fn a_clock_does_not_go_back_for_it() {
        let (cpu, clock) = (TaskCpu::default(), CpuClock::new(|| 0));
        let spun = clock.spun.clone();
        cpu.begin(clock);
        burn();
        let told = cpu.get().system;
        assert!(told >= 2_000_000);
        spun.store(told, Ordering::Relaxed);
        assert_eq!(cpu.get().system, told);
    }
}
