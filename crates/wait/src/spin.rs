//! Spinning: waiting for something that comes soon by looking again and again. One budget for all
//! of it.
//!
//! Waking an idle CPU costs more than most system calls (25 to 200 us on a virtual machine, whose
//! host has to be asked for it). A CPU that spins need not be woken, but nobody else has it
//! meanwhile. Decision 14 has the figures. All numbers are in [`table`].
//!
//! ## What spins
//!
//! | use | who waits for what | the most at once |
//! |---|---|---|
//! | [`table::SLEEP`] | a task about to sleep, for its wake-up ([`crate::Parker`]) | 50 us |
//! | [`table::MAILBOX`] | the Sentry's thread, for the next call of its application thread (`platform::lanes`) | 100 us |
//! | [`table::DEFERRED`] | nobody: a wake-up waits for the answer to its waker (`sentry::task::lanes`) | one call |
//!
//! The application's side of a mailbox looks for its answer, too: `stub::lane::PATIENCE` rounds, at
//! its own expense.
//!
//! ## Who pays
//!
//! Each thread has a [`SpinBudget`] for each use. What is spun in vain is paid from it; what
//! spinning has saved, or would have saved, is earned. So a thread never loses more by spinning
//! than it has saved by it, but for the sum that it begins with. The time is also the task's system
//! time. A deferred wake-up spends the sleeper's time in place of a CPU's; one that was late costs
//! the whole budget.
//!
//! ## What is measured
//!
//! - How soon the awaited came, whether it was spun for or slept for: each use's [`Use::soon`].
//! - Which CPU a sleeper's waker ran on: a sleeper that spins on its waker's CPU only keeps it from
//!   there.
//! - For a whole Sentry ([`Spinners`]): awake tasks, spinning threads, when all CPUs were last
//!   wanted, and when others on the host last took one.
//! - Where no CPU is idle, which of both ways gets more calls done (`throughput`). The comparison
//!   does not replace the budget: it only raises the number of CPUs that [`Spinners::enter`]
//!   believes in.
//!
//! ## When it stops
//!
//! - What was waited for has come, or the use's limit or the budget is spent.
//! - Awake tasks and spinning threads are more than the CPUs. A waker counts the task that it wakes
//!   before it asks the host to run it, so a woken task finds its CPU free. Where there is one CPU,
//!   nobody spins.
//! - A gap between two looks shows that others on the host wanted the CPU. Then all of this Sentry
//!   stop for a while, longer each time ([`table::BACK_OFF`]).
//! - Spinning for a mailbox moves the application's thread to another CPU. So it begins only where
//!   a CPU has been idle for a while ([`Spinners::has_idle_cpu`]).
//!
//! ## What hostile code can do
//!
//! Words in stub memory are hostile. By the state word of its mailbox an application ends or
//! prolongs the spinning of its own Sentry thread; each call that it forges there is a call that it
//! makes. By calls it earns a budget that it does not deserve, [`table::BUDGET_MOST`] at most; by
//! the count of those answered beside the Sentry, of which [`table::BESIDE_MOST`] are believed at
//! once, it sways the comparison. Both spend the CPU time of its own sandbox, within the CPUs that
//! this may use. No word says how long to spin, and nothing depends on these counts but how much is
//! spun.
//!
//! ## What was spun
//!
//! Each budget counts for itself and adds to the Sentry's totals ([`Spinners::turns`]) now and then
//! (`cloister events --stats` shows them): no cache line is shared for each turn.

mod budget;
mod spinners;
pub mod table;
mod throughput;

pub use budget::{Kind, SpinBudget, Turns, Use};
pub use spinners::{End, MaySpin, Spinners};
pub use throughput::{CallCount, SeenAwake};
