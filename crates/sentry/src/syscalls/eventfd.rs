//! eventfd(2) and eventfd2(2).

use super::SysResult;
use super::args::*;
use super::descriptors::install;
use crate::task::Context;
use abi::linux::O_RDWR;
use ipc::EventFd;

flags! {
    /// Of eventfd2(2).
    struct EventFdFlags: u32, refused {
        EFD_SEMAPHORE,
        O_NONBLOCK,
        O_CLOEXEC,
    }
}

fn do_eventfd(cx: &Context, initial: u32, flags: EventFdFlags) -> SysResult {
    let flags = flags.bits();
    install(cx, EventFd::new(initial, flags), O_RDWR, flags)
}
/// `eventfd(initval)`.
fn eventfd(cx: &mut Context, initial: u32) -> SysResult {
    do_eventfd(cx, initial, EventFdFlags::empty())
}
/// `eventfd2(initval, flags)`.
fn eventfd2(cx: &mut Context, initial: u32, flags: EventFdFlags) -> SysResult {
    do_eventfd(cx, initial, flags)
}

calls! {
    eventfd,
    eventfd2,
}
