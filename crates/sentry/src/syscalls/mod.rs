//! System calls: the table and the dispatcher.
//!
//! Each file holds what a part of Linux does, and ends in its part of the table, `CALLS`. A function opens with what the call
//! does, decodes raw numbers into types on its first lines, and hands on to the object that does the work.
//! What is not in the table gives `ENOSYS`.

pub mod args;
mod attributes;
mod creds;
mod descriptors;
mod directories;
mod events;
mod futex;
mod io;
mod ioctl;
mod limits;
mod locks;
mod memory;
mod mempolicy;
mod mounts;
mod ns;
mod paths;
mod pidfd;
mod poll;
mod prctl;
mod process;
mod sched;
mod signals;
mod sockets;
mod splice;
mod stat;
mod sync;
mod system;
mod sysv;
mod time;
mod xattrs;

use crate::strace;
use crate::task::Context;
use abi::errno::{E2BIG, ENOSYS};
use abi::{Errno, Result, Va};
pub use args::Arg;

/// What a system call gives.
pub type SysResult = core::result::Result<usize, Errno>;

/// The six arguments, raw.
#[derive(Clone, Copy, Debug)]
pub struct Args(pub [u64; 6]);

impl Args {
    #[must_use]
    pub const fn u64(&self, i: usize) -> u64 {
        self.0[i]
    }
    #[must_use]
    pub const fn i64(&self, i: usize) -> i64 {
        self.0[i] as i64
    }
    #[must_use]
    pub const fn u32(&self, i: usize) -> u32 {
        self.0[i] as u32
    }
    #[must_use]
    pub const fn i32(&self, i: usize) -> i32 {
        self.0[i] as i32
    }
    #[must_use]
    pub const fn usize(&self, i: usize) -> usize {
        self.0[i] as usize
    }
    #[must_use]
    pub const fn va(&self, i: usize) -> Va {
        Va(self.0[i])
    }
    /// `None` for a null pointer.
    #[must_use]
    pub const fn va_opt(&self, i: usize) -> Option<Va> {
        if self.0[i] == 0 {
            None
        } else {
            Some(Va(self.0[i]))
        }
    }
}

/// What does a system call.
pub type Handler = fn(&mut Context, &Args) -> SysResult;

/// An entry of the table.
pub struct Call {
    pub nr: u32,
    pub name: &'static str,
    /// How its arguments are shown.
    pub args: &'static [Arg],
    pub handler: Handler,
    /// For the compatibility page: what is missing, empty if nothing.
    pub note: &'static str,
}

impl Call {
    #[must_use]
    pub const fn new(nr: u32, name: &'static str, args: &'static [Arg], handler: Handler) -> Call {
        Call {
            nr,
            name,
            args,
            handler,
            note: "",
        }
    }
    /// With what is missing, for the compatibility page.
    #[must_use]
    pub const fn note(mut self, note: &'static str) -> Call {
        self.note = note;
        self
    }
}

/// The parts of the table.
const ALL: &[&[Call]] = &[
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

/// The highest number in the table, plus one.
pub const MAX: usize = 512;

/// The table, by number.
pub static TABLE: [Option<&'static Call>; MAX] = build();

const fn build() -> [Option<&'static Call>; MAX] {
    let mut t: [Option<&'static Call>; MAX] = [None; MAX];
    let mut f = 0;
    while f < ALL.len() {
        let calls = ALL[f];
        let mut i = 0;
        while i < calls.len() {
            let nr = calls[i].nr as usize;
            assert!(t[nr].is_none(), "a system call stands twice in the table");
            t[nr] = Some(&calls[i]);
            i += 1;
        }
        f += 1;
    }
    t
}

/// The entry of a number.
#[must_use]
pub fn lookup(nr: u64) -> Option<&'static Call> {
    TABLE.get(usize::try_from(nr).ok()?).copied().flatten()
}

/// Does system call `nr`.
pub fn dispatch(cx: &mut Context, nr: u64, args: &Args) -> SysResult {
    let Some(call) = lookup(nr) else {
        strace::unknown(cx, nr, args);
        return Err(ENOSYS);
    };
    let Some(trace) = cx.kernel.strace.as_ref().filter(|t| t.wants(call)) else {
        return (call.handler)(cx, args);
    };
    let trace = trace.clone();
    let entered = trace.enter(cx, call, args);
    let r = (call.handler)(cx, args);
    trace.exit(cx, call, args, entered, &r);
    r
}

/// Reads a NUL-terminated path. `ENOENT` is left to the walk; `ENAMETOOLONG` past PATH_MAX.
pub fn path_arg(cx: &Context, va: Va) -> Result<Vec<u8>> {
    cx.mm().read_cstr(va, vfs::PATH_MAX)
}

/// Reads a struct whose size the caller names: longer ones must be zero at the end (`copy_struct_from_user`).
fn read_sized(cx: &Context, va: Va, size: usize, buf: &mut [u8]) -> Result<()> {
    let mm = cx.mm();
    let n = size.min(buf.len());
    mm.copy_in(va, &mut buf[..n])?;
    if size > buf.len() {
        let mut rest = vec![0u8; size - buf.len()];
        mm.copy_in(va.offset(buf.len() as u64), &mut rest)?;
        if rest.iter().any(|b| *b != 0) {
            return Err(E2BIG);
        }
    }
    Ok(())
}
