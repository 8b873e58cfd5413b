//! The families of system calls.

pub mod io;
pub mod memory;
pub mod paths;
pub mod process;
pub mod sched;
pub mod signals;
pub mod time;

use super::Call;

/// Every family's part of the table.
pub const ALL: &[&[Call]] = &[
    io::CALLS,
    memory::CALLS,
    paths::CALLS,
    process::CALLS,
    sched::CALLS,
    signals::CALLS,
    time::CALLS,
];
