//! System calls: the table and the dispatcher.
//!
//! Each file holds what a part of Linux does, and ends in its part of the table, `calls!`. A
//! function opens with what the call does; its parameters have the types of [`args`]; it hands on
//! to the object that does the work. What is not in the table gives `ENOSYS`.

mod aio;
pub mod args;
mod attributes;
mod bpf;
mod creds;
mod descriptors;
mod directories;
mod epoll;
mod eventfd;
mod fanotify;
mod futex;
mod handles;
mod inotify;
mod io;
mod ioctl;
mod kcmp;
mod keys;
mod landlock;
mod limits;
mod locks;
mod memory;
mod mempolicy;
mod messages;
mod mount_api;
mod mounts;
mod mqueue;
mod ns;
mod paths;
mod pidfd;
mod pipe;
mod poll;
mod prctl;
mod privileged;
mod process;
mod ptrace;
mod sched;
mod seccomp;
mod signalfd;
mod signals;
mod sockets;
mod splice;
mod stat;
mod statmount;
mod sync;
mod system;
mod sysv;
mod time;
mod timerfd;
mod uring;
mod xattrs;

use crate::strace;
use crate::task::Context;
use abi::errno::{E2BIG, ENOSYS};
use abi::{Errno, Result, Va};
use args::{Param, Raw};

/// What a system call gives.
pub type SysResult = core::result::Result<usize, Errno>;

/// An entry of the table. A file's rows are made by [`args::calls!`].
pub struct Call {
    pub nr: u32,
    pub name: &'static str,
    pub params: &'static [Param],
    /// Decodes the words and calls the function.
    pub handler: fn(&mut Context, &Raw) -> SysResult,
    /// For the compatibility page: what is missing, empty if nothing.
    pub note: &'static str,
}

/// The parts of the table.
const ALL: &[&[Call]] = &[
    aio::CALLS,
    attributes::CALLS,
    bpf::CALLS,
    creds::CALLS,
    descriptors::CALLS,
    directories::CALLS,
    epoll::CALLS,
    eventfd::CALLS,
    fanotify::CALLS,
    futex::CALLS,
    handles::CALLS,
    inotify::CALLS,
    io::CALLS,
    ioctl::CALLS,
    kcmp::CALLS,
    keys::CALLS,
    landlock::CALLS,
    limits::CALLS,
    locks::CALLS,
    memory::CALLS,
    mempolicy::CALLS,
    messages::CALLS,
    mount_api::CALLS,
    mounts::CALLS,
    mqueue::CALLS,
    ns::CALLS,
    paths::CALLS,
    pidfd::CALLS,
    pipe::CALLS,
    poll::CALLS,
    prctl::CALLS,
    privileged::CALLS,
    process::CALLS,
    ptrace::CALLS,
    sched::CALLS,
    seccomp::CALLS,
    signalfd::CALLS,
    signals::CALLS,
    sockets::CALLS,
    splice::CALLS,
    stat::CALLS,
    statmount::CALLS,
    sync::CALLS,
    system::CALLS,
    sysv::CALLS,
    time::CALLS,
    timerfd::CALLS,
    uring::CALLS,
    xattrs::CALLS,
];

/// Slots of the table: above the highest number.
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
pub fn dispatch(cx: &mut Context, nr: u64, args: &Raw) -> SysResult {
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

/// Reads a struct whose size the caller names: longer ones must be zero at the end
/// (`copy_struct_from_user`).
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
