//! How long a thread of a stub process may take to start, or to end.
//!
//! Hostile code can make both last: it may hide the word that a start is told by, or keep a thread from its end. So
//! both have a limit, after which the process is ended. A host without a free CPU makes them last, too, and that is
//! not the application's fault. So after the limit the process must have had the CPU to go on: its threads take turns, and
//! one that is ready to run has had its turn when all of them together have computed for [`CPU_LIMIT`]. Whoever waits is a thread of the same program, and the end of the process ends the wait.

use super::Process;
use std::time::{Duration, Instant};

/// What a process computes, in nanoseconds, until each of its threads has had a CPU, and more with many threads.
const CPU_LIMIT: u64 = 2_000_000_000;
const CPU_LIMIT_THREAD: u64 = 10_000_000;
/// A process that computes nothing, and does not do what is waited for, is not waited for longer than this.
const LIMIT_MAX: Duration = Duration::from_secs(120);

/// How long something may take that begins now.
#[derive(Clone, Copy)]
pub struct Patience {
    begun: Instant,
    limit: Duration,
    cpu: Cpu,
}

/// What the process's CPU time has to do with it.
#[derive(Clone, Copy)]
enum Cpu {
    /// Nothing.
    Ignored,
    /// It counts once the limit is over: asking for it is a call of the host's.
    Unread,
    /// It counts from this on, in nanoseconds.
    Since(u64),
}

impl Patience {
    /// The time of the clock alone: for where it harms nobody to give up.
    pub fn strict(limit: Duration) -> Patience {
        Patience {
            begun: Instant::now(),
            limit,
            cpu: Cpu::Ignored,
        }
    }

    /// At least `limit`, and until the process has had a CPU.
    pub fn fair(limit: Duration) -> Patience {
        Patience {
            cpu: Cpu::Unread,
            ..Patience::strict(limit)
        }
    }

    /// Whether the process has had its time.
    pub fn is_over(&mut self, p: &Process) -> bool {
        let cpu = || (p.cpu_nanos(), p.thread_count());
        self.is_over_at(Instant::now(), cpu)
    }

    /// `cpu`: what the process has used, and how many threads it has.
    fn is_over_at(&mut self, now: Instant, cpu: impl FnOnce() -> (u64, u32)) -> bool {
        let elapsed = now.saturating_duration_since(self.begun);
        if elapsed <= self.limit {
            return false;
        }
        match self.cpu {
            Cpu::Ignored => true,
            _ if elapsed > LIMIT_MAX => true,
            Cpu::Unread => {
                self.cpu = Cpu::Since(cpu().0);
                false
            }
            Cpu::Since(before) => {
                let (used, threads) = cpu();
                used.saturating_sub(before) > CPU_LIMIT + CPU_LIMIT_THREAD * u64::from(threads)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_cpu_is_waited_for() {
        let limit = Duration::from_secs(1);
        let mut p = Patience::fair(limit);
        let begun = p.begun;
        let after = |secs| begun + Duration::from_secs(secs);
        assert!(!p.is_over_at(after(1), || (u64::MAX, 0)));
        assert!(!p.is_over_at(after(2), || (5, 0)));
        assert!(!p.is_over_at(after(60), || (5 + CPU_LIMIT, 0)));
        assert!(p.is_over_at(after(60), || (6 + CPU_LIMIT, 0)));
        assert!(!p.is_over_at(after(60), || (6 + CPU_LIMIT, 1)));
        assert!(p.is_over_at(after(121), || (5, 0)));
        let mut strict = Patience::strict(limit);
        assert!(strict.is_over_at(strict.begun + 2 * limit, || (0, 0)));
    }
}
