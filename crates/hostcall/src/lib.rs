//! Every host system call that Cloister's own processes make, typed.
//!
//! [`table`] lists the calls with the processes that may make them and why; a call can be made only
//! by naming its entry ([`HostCall`]), and the seccomp allow-lists are generated from the same
//! table, so the list and the code cannot disagree. The standard library's own calls (threads,
//! memory, exit) are listed with the reason `std`.
//!
//! This crate may use `unsafe`: it is where memory and file descriptors cross into the host.

pub mod auxv;
pub mod bpf;
pub mod cpu;
pub mod fd;
pub mod file;
pub mod inet;
pub mod landlock;
pub mod mem;
pub mod packet;
pub mod path;
pub mod probe;
pub mod process;
pub mod raw;
pub mod scrub;
pub mod sock;
pub mod start;
pub mod table;
pub mod term;
pub mod time;

pub use abi::{Errno, Result};
pub use fd::{HostFd, RawFd};
pub use mem::MemSlice;
pub use table::HostCall;
