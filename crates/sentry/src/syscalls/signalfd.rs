//! signalfd(2) and signalfd4(2).

use super::SysResult;
use super::args::*;
use super::descriptors::install;
use crate::task::Context;
use crate::task::signalfd::SignalFd;
use abi::SigSet;
use abi::errno::EINVAL;
use abi::linux::O_RDWR;

flags! {
    /// Of signalfd4(2), which reads the mask first.
    struct SignalFdFlags: u32, kept {
        O_NONBLOCK,
        O_CLOEXEC,
    }
}

fn do_signalfd(
    cx: &Context,
    fd: Fd,
    mask: UserIn<SigSet>,
    size: usize,
    flags: SignalFdFlags,
) -> SysResult {
    /// Asks for a new one.
    const NEW: Fd = Fd(-1);
    if size != size_of::<SigSet>() {
        return Err(EINVAL);
    }
    let mask = mask.read(&cx.mm())?.minus(SigSet::UNBLOCKABLE);
    if !SignalFdFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    if fd == NEW {
        return install(cx, SignalFd::new(&cx.task, mask), O_RDWR, flags.bits());
    }
    let f = fd.file(cx)?;
    f.ops::<SignalFd>().ok_or(EINVAL)?.set_mask(mask);
    Ok(fd.0 as usize)
}
/// `signalfd(fd, mask, size)`.
fn signalfd(cx: &mut Context, fd: Fd, mask: UserIn<SigSet>, size: usize) -> SysResult {
    do_signalfd(cx, fd, mask, size, SignalFdFlags::empty())
}
/// `signalfd4(fd, mask, size, flags)`.
fn signalfd4(
    cx: &mut Context,
    fd: Fd,
    mask: UserIn<SigSet>,
    size: usize,
    flags: SignalFdFlags,
) -> SysResult {
    do_signalfd(cx, fd, mask, size, flags)
}

calls! {
    signalfd,
    signalfd4,
}
