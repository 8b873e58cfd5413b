//! The families of system calls.

pub mod events;
pub mod io;
pub mod memory;
pub mod paths;
pub mod poll;
pub mod process;
pub mod sched;
pub mod signals;
pub mod sockets;
pub mod sysv;
pub mod time;

use super::Call;

/// Every family's part of the table.
pub const ALL: &[&[Call]] = &[
    events::CALLS,
    io::CALLS,
    memory::CALLS,
    paths::CALLS,
    poll::CALLS,
    process::CALLS,
    sched::CALLS,
    signals::CALLS,
    sockets::CALLS,
    sysv::CALLS,
    time::CALLS,
];
