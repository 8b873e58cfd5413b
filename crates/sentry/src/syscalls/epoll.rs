//! epoll(7).

use super::SysResult;
use super::args::*;
use super::descriptors::install;
use super::poll::poll_wait;
use super::signals::{Ended, MaskArg, restore_mask, set_temporary_mask};
use super::time::timespec_arg;
use crate::task::Context;
use crate::task::epoll::control;
use abi::errno::*;
use abi::linux::O_RDWR;
use abi::time::Timespec;
use ipc::Epoll;
use ipc::epoll::{EpollEvent, Room};
use zerocopy::IntoBytes;

named! {
    /// What epoll_ctl(2) does.
    pub(super) struct EpollOp(u32) {
        EPOLL_CTL_ADD,
        EPOLL_CTL_DEL,
        EPOLL_CTL_MOD,
    }
}

/// `epoll_create(size)`: the size must be positive, and says nothing.
fn epoll_create(cx: &mut Context, size: i32) -> SysResult {
    if size <= 0 {
        return Err(EINVAL);
    }
    install(cx, Epoll::new(&cx.cred()), O_RDWR, 0)
}
/// `epoll_create1(flags)`.
fn epoll_create1(cx: &mut Context, flags: CloexecFlag) -> SysResult {
    install(cx, Epoll::new(&cx.cred()), O_RDWR, flags.bits())
}

/// `sizeof(struct epoll_event)`, which is packed on x86-64.
const EPOLL_EVENT: usize = 12;

/// `epoll_ctl(epfd, op, fd, event)`.
pub(super) fn epoll_ctl(
    cx: &mut Context,
    epfd: Fd,
    op: EpollOp,
    fd: Fd,
    event: UserIn<[u32; 3]>,
) -> SysResult {
    let fd = fd.0;
    let event = if op == EpollOp::EPOLL_CTL_DEL {
        EpollEvent {
            events: 0,
            data: 0,
            fd,
        }
    } else {
        let [events, low, high] = event.read(&cx.mm())?;
        EpollEvent {
            events,
            data: u64::from(low) | u64::from(high) << 32,
            fd,
        }
    };
    let ep = epfd.file(cx)?;
    control(&cx.task, &cx.files(), &ep, op.0, event, Room::Needed)?;
    crate::task::lanes::slots::after_change(cx, epfd.0, op.0, fd, event.events, &ep);
    Ok(0)
}

/// Where epoll_wait(2) and its kin put what happened, and how much has room.
#[derive(Clone, Copy)]
struct EventBuffer {
    events: UserArray<[u32; 3]>,
    max: i32,
}

fn do_epoll_wait(cx: &mut Context, epfd: Fd, out: EventBuffer, timeout: Option<i64>) -> SysResult {
    if out.max <= 0 || out.max as usize > i32::MAX as usize / EPOLL_EVENT {
        return Err(EINVAL);
    }
    let (to, max) = (out.events.va(), out.max as usize);
    if to
        .checked_add((max * EPOLL_EVENT) as u64)
        .is_none_or(|end| end.0 > 1 << 47)
    {
        return Err(EFAULT);
    }
    let f = epfd.file(cx)?;
    let ep = f.ops::<Epoll>().ok_or(EINVAL)?;
    let got = ep.wait(&*cx.task, max, poll_wait(timeout))?;
    let raw: Vec<[u32; 3]> = got
        .iter()
        .map(|e| [e.events, e.data as u32, (e.data >> 32) as u32])
        .collect();
    cx.mm().copy_out(to, raw.as_slice().as_bytes())?;
    let readable = got.iter().filter(|e| e.events & 1 != 0);
    crate::task::lanes::slots::after_wait(cx, readable.map(|e| e.fd));
    Ok(got.len())
}

/// Milliseconds, negative for ever.
fn millis(ms: i32) -> Option<i64> {
    (ms >= 0).then_some(i64::from(ms) * 1_000_000)
}

/// `epoll_wait(epfd, events, maxevents, timeout)`.
fn epoll_wait(
    cx: &mut Context,
    epfd: Fd,
    events: UserArray<[u32; 3]>,
    max: i32,
    timeout: i32,
) -> SysResult {
    do_epoll_wait(cx, epfd, EventBuffer { events, max }, millis(timeout))
}

fn epoll_pwait_with(
    cx: &mut Context,
    epfd: Fd,
    out: EventBuffer,
    timeout: Option<i64>,
    mask: MaskArg,
) -> SysResult {
    if let Some(m) = mask.read(cx)? {
        set_temporary_mask(cx, m);
    }
    let r = do_epoll_wait(cx, epfd, out, timeout);
    restore_mask(cx, Ended::with(&r, EINTR));
    r
}
/// `epoll_pwait(epfd, events, maxevents, timeout, sigmask, sigsetsize)`.
fn epoll_pwait(
    cx: &mut Context,
    epfd: Fd,
    events: UserArray<[u32; 3]>,
    max: i32,
    timeout: i32,
    mask: MaskArg,
) -> SysResult {
    epoll_pwait_with(cx, epfd, EventBuffer { events, max }, millis(timeout), mask)
}
/// `epoll_pwait2(epfd, events, maxevents, timeout, sigmask, sigsetsize)`.
fn epoll_pwait2(
    cx: &mut Context,
    epfd: Fd,
    events: UserArray<[u32; 3]>,
    max: i32,
    timeout: Option<UserIn<Timespec>>,
    mask: MaskArg,
) -> SysResult {
    let timeout = timespec_arg(cx, timeout)?;
    epoll_pwait_with(cx, epfd, EventBuffer { events, max }, timeout, mask)
}

calls! {
    epoll_create,
    epoll_create1,
    epoll_ctl,
    epoll_wait,
    epoll_pwait,
    epoll_pwait2,
}
