//! The families of system calls.

pub mod attributes;
pub mod creds;
pub mod descriptors;
pub mod directories;
pub mod events;
pub mod futex;
pub mod io;
pub mod ioctl;
pub mod limits;
pub mod locks;
pub mod memory;
pub mod mempolicy;
pub mod mounts;
pub mod ns;
pub mod paths;
pub mod pidfd;
pub mod poll;
pub mod prctl;
pub mod process;
pub mod sched;
pub mod signals;
pub mod sockets;
pub mod splice;
pub mod stat;
pub mod sync;
pub mod system;
pub mod sysv;
pub mod time;
pub mod xattrs;

use super::Call;

/// Every family's part of the table.
pub const ALL: &[&[Call]] = &[
    attributes::CALLS,
    creds::CALLS,
    descriptors::CALLS,
    directories::CALLS,
    events::CALLS,
    futex::CALLS,
    io::CALLS,
    ioctl::CALLS,
    limits::CALLS,
    locks::CALLS,
    memory::CALLS,
    mempolicy::CALLS,
    mounts::CALLS,
    ns::CALLS,
    paths::CALLS,
    pidfd::CALLS,
    poll::CALLS,
    prctl::CALLS,
    process::CALLS,
    sched::CALLS,
    signals::CALLS,
    sockets::CALLS,
    splice::CALLS,
    stat::CALLS,
    sync::CALLS,
    system::CALLS,
    sysv::CALLS,
    time::CALLS,
    xattrs::CALLS,
];
