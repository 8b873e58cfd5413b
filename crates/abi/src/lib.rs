//! Linux's numbers, flags and structs as types. No logic, no host calls.
//!
//! Constants come from `linux-raw-sys` (re-exported as [`linux`]); this crate adds what the rest of
//! Cloister wants as types: [`Errno`], [`Va`], [`Signal`], [`SigSet`], the attributes of files
//! ([`attr`]) and the structs that are copied to and from the application.
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

pub mod attr;
pub mod errno;
pub mod own;
pub mod signal;
pub mod syscalls;
pub mod time;
pub mod va;
mod words;

pub use errno::{Errno, Result};
pub use linux_raw_sys as raw;
pub use linux_raw_sys::general as linux;
pub use linux_raw_sys::ptrace;
pub use signal::{AltStack, SigInfo, SigSet, Signal};
pub use syscalls::nr;
pub use va::{PAGE_SIZE, Va, VaRange};
