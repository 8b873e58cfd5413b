//! The Sentry: a Linux kernel in user space.
//!
//! | module | what it holds |
//! |---|---|
//! | [`kernel`] | the root object: everything hangs from it |
//! | [`boot`] | from what the command says to the first process; the requests that come later |
//! | [`container`] | the containers of a sandbox |
//! | [`cgroup`] | control groups |
//! | [`ns`] | pid, time and UTS namespaces; nsfs, unshare, setns (others are `vfs`'s, `net`'s) |
//! | [`programs`] | programs of bpf(2) |
//! | [`task`] | tasks, thread groups, signals; the loop that drives an application thread |
//! | [`syscalls`] | the table, and one file per family |
//! | [`fs`] | proc, sys and the devices that know tasks |
//! | [`strace`] | decoding system calls for people |
//!
//! DESIGN.md has the order of these modules.
//!
//! The life of a system call: `platform` gives an event → [`task::run`] (the task loop) →
//! [`syscalls::dispatch`] → the call's function → the object. The result goes back the same way.
//!
//! # Lock order
//!
//! [`ThreadGroup::cred_mutex`] (execve, TSYNC, ptrace's attach) and `Hierarchy::change` of control
//! groups → `ThreadGroup::exec_update` → a task's `mm` and `cred` cells.
//!
//! A user's turn ([`vfs::ucounts::Ucounts::turn`]) → [`Kernel::senders`] → [`Kernel::births`], buckets of futexes →
//! `TaskList` → a group's locks (`actions`, `shared`) → a task's locks
//! (`pending`) → objects (see `vfs`, `mm`, `ipc`, `net`, `tty`) → wait queues → parkers. A task's
//! `mm`, `files`, `fs` and `cred` cells are leaves: clone the `Arc` and let go.
#![forbid(unsafe_code)]

pub mod boot;
pub mod cgroup;
pub mod container;
pub mod fs;
pub mod kernel;
pub mod ns;
pub mod programs;
pub mod strace;
pub mod syscalls;
pub mod task;
#[cfg(test)]
mod testing;

pub use kernel::Kernel;
pub use task::{Context, Task, ThreadGroup};
