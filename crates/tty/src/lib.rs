//! Pseudo-terminals (`pty(7)`, `tty_ioctl(2)`) with Linux's line discipline
//! (`drivers/tty/n_tty.c`).
//!
//! ```text
//! master.write ──► Line::receive: editing, echo, signals ──► input ──► slave.read
//! master.read  ◄── output ◄── Line::write: OPOST ◄──────────────────── slave.write
//! ```
//!
//! A [`Pty`] is shared by the open files of its two sides, [`Master`] and [`Slave`]. Sessions and
//! process groups are the Sentry's: it implements [`JobControl`].
//!
//! Files never block: `EAGAIN` says "not now". A caller's read or write of a [`Slave`] comes by
//! `FileOps::read_as` and `write_as`: they check background jobs, and a read knows VMIN and VTIME.
//!
//! # Lock order
//!
//! `Devpts::state` → `Pty::state` → wait queues. [`JobControl`] is never called under them.
#![forbid(unsafe_code)]

mod devpts;
mod ioctl;
mod line;
mod pty;
pub mod termios;

pub use devpts::{Devpts, SlaveDevice};
pub use pty::{Master, Pty, Slave};
pub use termios::Termios;

use abi::Signal;
use std::any::Any;
use std::sync::Arc;

/// The terminal of which an open file is a side.
#[must_use]
pub fn of(f: &vfs::File) -> Option<&Arc<Pty>> {
    let master = f.ops::<Master>().map(Master::pty);
    master.or_else(|| f.ops::<Slave>().map(Slave::pty))
}

/// What a terminal needs to know about a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Process {
    pub session: i32,
    pub group: i32,
    /// Whether it leads its session.
    pub leader: bool,
    /// Whether its process group is orphaned.
    pub orphaned: bool,
    /// CAP_SYS_ADMIN.
    pub admin: bool,
}

/// Sessions, process groups and signals, as the Sentry has them. `task` is what
/// `IoctlContext::task` and `vfs::Caller::task` give. Session and group numbers are those of the
/// sandbox's root pid namespace.
pub trait JobControl: Send + Sync {
    fn process(&self, task: &dyn Any) -> Process;
    /// Whether the caller blocks or ignores the signal.
    fn ignores(&self, task: &dyn Any, signal: Signal) -> bool;
    /// Sends a signal from the kernel to all of a process group.
    fn signal_group(&self, group: i32, signal: Signal);
    /// The session that a process group belongs to.
    fn session_of(&self, group: i32) -> Option<i32>;
    /// The caller's controlling terminal.
    fn controlling(&self, task: &dyn Any) -> Option<Arc<Pty>>;
    /// Sets or clears it.
    fn set_controlling(&self, task: &dyn Any, tty: Option<Arc<Pty>>);
    /// The session loses its controlling terminal.
    fn clear_session(&self, session: i32);
    /// The terminal hung up: the session loses it and its leader gets SIGHUP and SIGCONT. The
    /// leader remembers `foreground`, which gets both signals when it exits.
    fn hang_up(&self, session: i32, foreground: i32);
    /// A process group's or session's number as the caller sees it; 0 if it does not.
    fn number_for(&self, _task: &dyn Any, id: i32) -> i32 {
        id
    }
    /// The other way round.
    fn number_from(&self, _task: &dyn Any, id: i32) -> i32 {
        id
    }
}

#[cfg(test)]
mod tests;
