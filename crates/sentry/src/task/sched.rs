//! When a task runs, by what it asked for (sched(7)): kept, told and inherited. The host schedules.

use super::Task;
use abi::Result;
use abi::errno::{EAGAIN, EBUSY};
use std::sync::Arc;

/// Policies.
pub const SCHED_OTHER: i32 = 0;
pub const SCHED_FIFO: i32 = 1;
pub const SCHED_RR: i32 = 2;
pub const SCHED_BATCH: i32 = 3;
pub const SCHED_IDLE: i32 = 5;
pub const SCHED_DEADLINE: i32 = 6;

/// Beside a policy: no child inherits a priority.
pub const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;

/// The highest priority of FIFO and RR.
pub const PRIORITY_MAX: u32 = 99;

/// What SCHED_DEADLINE asks for, in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Deadline {
    pub runtime: u64,
    pub deadline: u64,
    /// Never 0: the deadline, where none was given.
    pub period: u64,
    /// `SCHED_FLAG_RECLAIM`, `SCHED_FLAG_DL_OVERRUN`.
    pub flags: u64,
}

impl Deadline {
    /// Whether Linux takes it (`__checkparam_dl`).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        /// What is below one step of a share, and the bounds of a period.
        const STEP: u64 = 1 << 10;
        const PERIODS: std::ops::RangeInclusive<u64> = 100_000..=(1 << 22) * 1000;
        let period = match self.period {
            0 => self.deadline,
            n => n,
        };
        self.deadline != 0
            && self.runtime >= STEP
            && (self.deadline | self.period) >> 63 == 0
            && self.runtime <= self.deadline
            && self.deadline <= period
            && PERIODS.contains(&period)
    }

    /// Its share of a CPU, in parts of [`Deadline::CPU`] (`to_ratio`).
    fn share(&self) -> u64 {
        let share = u128::from(self.runtime) << 20;
        (share / u128::from(self.period.max(1))) as u64
    }

    /// A whole CPU.
    const CPU: u64 = 1 << 20;
}

/// A policy with its parameters, but for the nice value. The default is SCHED_OTHER.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Scheduling {
    pub policy: i32,
    pub resets_on_fork: bool,
    /// 1 to 99 with FIFO and RR, else 0.
    pub priority: u32,
    /// Of SCHED_DEADLINE; else all 0.
    pub deadline: Deadline,
}

impl Scheduling {
    /// The policy as sched_getscheduler(2) tells it.
    #[must_use]
    pub fn word(&self) -> i32 {
        match self.resets_on_fork {
            true => self.policy | SCHED_RESET_ON_FORK,
            false => self.policy,
        }
    }

    #[must_use]
    pub fn is_real_time(&self) -> bool {
        matches!(self.policy, SCHED_FIFO | SCHED_RR)
    }

    #[must_use]
    pub fn is_deadline(&self) -> bool {
        self.policy == SCHED_DEADLINE
    }

    /// Linux's `task->prio`: less is more urgent.
    #[must_use]
    pub fn urgency(&self, nice: i32) -> i32 {
        match self.policy {
            SCHED_DEADLINE => -1,
            SCHED_FIFO | SCHED_RR => PRIORITY_MAX as i32 - self.priority as i32,
            _ => 120 + nice,
        }
    }

    /// What a child begins with, and its nice value (`sched_fork`).
    fn inherited(self, nice: i32) -> (Scheduling, i32) {
        match self.resets_on_fork {
            false => (self, nice),
            true if self.is_real_time() || self.is_deadline() => (Scheduling::default(), 0),
            true => {
                let resets_on_fork = false;
                (
                    Scheduling {
                        resets_on_fork,
                        ..self
                    },
                    nice.max(0),
                )
            }
        }
    }
}

impl Task {
    /// What a child begins with.
    pub(super) fn inherited_scheduling(&self) -> (Scheduling, i32) {
        let nice = self.nice.load(std::sync::atomic::Ordering::Relaxed);
        self.scheduling.read().inherited(nice)
    }

    /// A task with a share of its own makes no other (`sched_fork`).
    pub(super) fn may_fork(&self) -> Result<()> {
        match self.inherited_scheduling().0.is_deadline() {
            true => Err(EAGAIN),
            false => Ok(()),
        }
    }
}

/// Gives a task a policy that is valid, if there is so much of the CPUs left (`sched_dl_overflow`).
/// The task list is locked where somebody has, or is to have, a share.
pub fn set(t: &Arc<Task>, to: Scheduling) -> Result<()> {
    if !to.is_deadline() {
        *t.scheduling.write() = to;
        return Ok(());
    }
    let list = t.kernel.tasks.lock();
    let share = |t: &Task| t.scheduling.read().deadline.share();
    let others: u64 = list
        .processes()
        .filter(|p| Arc::ptr_eq(&p.group.container, &t.group.container))
        .flat_map(|p| p.threads.values())
        .filter(|other| !Arc::ptr_eq(other, t))
        .map(|t| share(t))
        .sum();
    // `sched_rt_runtime_us` of `sched_rt_period_us`, of each CPU.
    let all = u64::from(t.kernel.cpus) * (Deadline::CPU * 95 / 100);
    if to.deadline.share() != share(t) && others + to.deadline.share() > all {
        return Err(EBUSY);
    }
    *t.scheduling.write() = to;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(runtime: u64, deadline: u64, period: u64) -> Deadline {
        Deadline {
            runtime,
            deadline,
            period,
            flags: 0,
        }
    }

    #[test]
    fn deadlines_are_checked() {
        assert!(deadline(10_000_000, 30_000_000, 30_000_000).is_valid());
        assert!(deadline(10_000_000, 30_000_000, 0).is_valid());
        assert!(!deadline(1023, 30_000_000, 0).is_valid());
        assert!(!deadline(10_000_000, 9_000_000, 0).is_valid());
        assert!(!deadline(10_000_000, 30_000_000, 20_000_000).is_valid());
        assert!(!deadline(10_000, 50_000, 0).is_valid());
        assert!(!deadline(10_000, 1 << 63, 0).is_valid());
        assert!(!deadline(10_000, 5_000_000_000, 0).is_valid());
    }

    #[test]
    fn children_start_anew_if_asked_for() {
        let fifo = Scheduling {
            policy: SCHED_FIFO,
            priority: 5,
            ..Scheduling::default()
        };
        assert_eq!(fifo.inherited(3), (fifo, 3));
        assert_eq!(fifo.urgency(3), 94);
        let resets = Scheduling {
            resets_on_fork: true,
            ..fifo
        };
        assert_eq!(resets.inherited(3), (Scheduling::default(), 0));
        let batch = Scheduling {
            policy: SCHED_BATCH,
            resets_on_fork: true,
            ..Scheduling::default()
        };
        assert_eq!(batch.inherited(-3).1, 0);
        assert_eq!(batch.inherited(-3).0.word(), SCHED_BATCH);
        assert_eq!(batch.inherited(7).1, 7);
    }
}
