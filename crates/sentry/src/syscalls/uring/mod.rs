//! io_uring_setup(2), io_uring_enter(2), io_uring_register(2). Rings and requests are
//! [`crate::task::uring`]'s; what operations do is here, by the functions that the system calls
//! themselves use.

mod commands;
mod enter;
mod files;
mod net;
mod ops;
mod paths;
mod poll;
mod receive;
mod register;
mod rings;
mod rw;
mod setup;
mod sqthread;
mod tables;
mod timeouts;
mod waits;

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::uring::abi::Params;
use crate::task::uring::{Operation, Outcome, Request, RingFile};
use abi::errno::{EBADF, EINVAL, EOPNOTSUPP};
use abi::{Result, Va};
use std::any::Any;
use std::sync::Arc;
use vfs::File;

opaque! { Params }

flags! {
    /// Of io_uring_enter(2).
    struct EnterFlags: u32, refused {
        IORING_ENTER_GETEVENTS = 1,
        IORING_ENTER_SQ_WAKEUP = 2,
        IORING_ENTER_SQ_WAIT = 4,
        IORING_ENTER_EXT_ARG = 8,
        IORING_ENTER_REGISTERED_RING = 16,
        IORING_ENTER_ABS_TIMER = 32,
    }
}

/// An operation that is one function.
struct Once<F>(F);

impl<F> Operation for Once<F>
where
    F: Fn(&mut Context, &Arc<Request>) -> Outcome + Send + Sync + 'static,
{
    fn issue(&self, cx: &mut Context, r: &Arc<Request>) -> Outcome {
        (self.0)(cx, r)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An operation that holds memory of the kernel's.
struct Weighed {
    op: Box<dyn Operation>,
    weight: u64,
}

impl Operation for Weighed {
    fn issue(&self, cx: &mut Context, r: &Arc<Request>) -> Outcome {
        self.op.issue(cx, r)
    }
    fn leave(&self, r: &Request) {
        self.op.leave(r);
    }
    fn weight(&self) -> u64 {
        self.weight + self.op.weight()
    }
    fn as_any(&self) -> &dyn Any {
        self.op.as_any()
    }
}

/// The same operation, which holds so many bytes.
fn weighed(weight: u64, op: Prepared) -> Prepared {
    let op = op?;
    Ok(match weight {
        0 => op,
        weight => Box::new(Weighed { op, weight }),
    })
}

/// What an entry asks for, decoded.
type Prepared = Result<Box<dyn Operation>>;

/// An operation that `f` is.
fn by<F>(f: F) -> Prepared
where
    F: Fn(&mut Context, &Arc<Request>) -> Outcome + Send + Sync + 'static,
{
    Ok(Box::new(Once(f)))
}

/// One that is done at once, with a result as a system call's.
fn call<F>(f: F) -> Prepared
where
    F: Fn(&mut Context, &Arc<Request>) -> SysResult + Send + Sync + 'static,
{
    by(move |cx, r| f(cx, r).into())
}

/// The file of a ring, by its descriptor or as the task registered it.
fn ring_file(cx: &Context, fd: Fd, registered: bool) -> Result<Arc<File>> {
    if !registered {
        return fd.file(cx);
    }
    if fd.0 as u32 as usize >= crate::task::uring::work::RING_FDS {
        return Err(EINVAL);
    }
    cx.task.uring.registered(fd.0 as usize).ok_or(EBADF)
}

fn ring_of(f: &File) -> Result<&RingFile> {
    f.ops::<RingFile>().ok_or(EOPNOTSUPP)
}

/// `io_uring_setup(entries, params)`.
fn io_uring_setup(cx: &mut Context, entries: u32, params: UserPtr<Params>) -> SysResult {
    setup::setup(cx, entries, params)
}

/// `io_uring_enter(fd, to_submit, min_complete, flags, argp, argsz)`.
fn io_uring_enter(
    cx: &mut Context,
    fd: Fd,
    to_submit: u32,
    min_complete: u32,
    flags: EnterFlags,
    arg: BytesIn,
) -> SysResult {
    let registered = flags.contains(EnterFlags::IORING_ENTER_REGISTERED_RING);
    let f = ring_file(cx, fd, registered)?;
    let ring = ring_of(&f)?.ring.clone();
    enter::enter(cx, &ring, (to_submit, min_complete), flags, arg)
}

/// `io_uring_register(fd, opcode, arg, nr_args)`.
fn io_uring_register(
    cx: &mut Context,
    fd: Fd,
    op: register::RegisterOp,
    arg: Va,
    count: u32,
) -> SysResult {
    register::register(cx, fd, op, arg, count)
}

calls! {
    io_uring_setup: "no IORING_SETUP_NO_MMAP; IOPOLL finds no file that can be polled so",
    io_uring_enter: "what no queue tells of is done in the call, as by IOSQE_ASYNC, too; no IORING_RECVSEND_BUNDLE, no IOU_PBUF_RING_INC",
    io_uring_register: "no NAPI, no CLONE_BUFFERS; workers' numbers and CPUs are kept, and without effect",
}
