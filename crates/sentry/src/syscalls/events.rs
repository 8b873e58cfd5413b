//! What is waited for through descriptors: pipes, event files, timers, signal files, inotify, epoll.

use super::poll::poll_wait;
use super::signals::{mask_arg, restore_mask, set_temporary_mask};
use super::time::{ItimerSpec, timespec_arg};
use crate::fs::signalfd::SignalFd;
use crate::syscalls::{Arg, Args, Call, SysResult, path_arg};
use crate::task::Context;
use crate::task::epoll::control;
use abi::errno::*;
use abi::linux::{O_CLOEXEC, O_DIRECT, O_EXCL, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
use abi::{Result, SigSet, Va};
use ipc::epoll::{EPOLL_CTL_DEL, EpollEvent, Room};
use ipc::eventfd::EFD_SEMAPHORE;
use ipc::inotify::{Inotify, WatchList};
use ipc::{Epoll, EventFd, TimerFd, new_pipe};
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, FileOps};
use vfs::mode::Want;
use vfs::walk::Walk;
use vfs::{At, Caps};
use zerocopy::IntoBytes;

/// The open file behind a descriptor; `EBADF` also for those that only name a place (O_PATH).
pub fn real_fd(cx: &Context, fd: i32) -> Result<Arc<File>> {
    let f = cx.fd(fd)?;
    if f.flags() & O_PATH != 0 {
        Err(EBADF)
    } else {
        Ok(f)
    }
}

/// Installs an anonymous file; O_NONBLOCK and O_CLOEXEC are taken from `flags`.
pub fn install(cx: &Context, ops: Arc<dyn FileOps>, mode: u32, flags: u32) -> SysResult {
    let f = File::new(ops, mode | (flags & O_NONBLOCK), None, cx.cred());
    cx.files()
        .install(f, CloseOnExec::from_flags(flags), &cx.room())
        .map(|n| n as usize)
}

/// Writes two descriptors' numbers to the application, and installs the files when that worked.
pub fn install_pair(cx: &Context, out: Va, files: [Arc<File>; 2], flags: u32) -> SysResult {
    files.iter().try_for_each(|f| f.may_stay())?;
    let (table, limit) = (cx.files(), &cx.room());
    let (a, b) = (table.reserve(limit)?, table.reserve(limit)?);
    cx.mm().write_obj(out, &[a.number(), b.number()])?;
    let [x, y] = files;
    let c = CloseOnExec::from_flags(flags);
    a.install(x, c);
    b.install(y, c);
    Ok(0)
}

fn do_pipe(cx: &Context, out: Va, flags: u32) -> SysResult {
    // O_NOTIFICATION_PIPE is O_EXCL.
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_EXCL) != 0 {
        return Err(EINVAL);
    }
    if flags & O_EXCL != 0 {
        return Err(ENOPKG);
    }
    let (r, w) = new_pipe(&cx.cred())?;
    let r = File::new(r, O_RDONLY | (flags & O_NONBLOCK), None, cx.cred());
    let w = File::new(
        w,
        O_WRONLY | (flags & (O_NONBLOCK | O_DIRECT)),
        None,
        cx.cred(),
    );
    install_pair(cx, out, [r, w], flags)
}
/// `pipe(fds)`.
fn pipe(cx: &mut Context, a: &Args) -> SysResult {
    do_pipe(cx, a.va(0), 0)
}
/// `pipe2(fds, flags)`.
fn pipe2(cx: &mut Context, a: &Args) -> SysResult {
    do_pipe(cx, a.va(0), a.u32(1))
}

fn do_eventfd(cx: &Context, initial: u32, flags: u32) -> SysResult {
    if flags & !(EFD_SEMAPHORE | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(EINVAL);
    }
    install(cx, EventFd::new(initial, flags), O_RDWR, flags)
}
/// `eventfd(initval)`.
fn eventfd(cx: &mut Context, a: &Args) -> SysResult {
    do_eventfd(cx, a.u32(0), 0)
}
/// `eventfd2(initval, flags)`.
fn eventfd2(cx: &mut Context, a: &Args) -> SysResult {
    do_eventfd(cx, a.u32(0), a.u32(1))
}

/// `timerfd_create(clockid, flags)`.
fn timerfd_create(cx: &mut Context, a: &Args) -> SysResult {
    const CAP_WAKE_ALARM: Caps = Caps::from_bits_retain(1 << 35);
    let flags = a.u32(1);
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(EINVAL);
    }
    let t = TimerFd::new(&cx.kernel.timers, a.i32(0))?;
    if matches!(a.i32(0), 8 | 9) && !cx.cred().has(CAP_WAKE_ALARM) {
        return Err(EPERM);
    }
    install(cx, t, O_RDWR, flags)
}

/// `timerfd_settime(fd, flags, new, old)`.
fn timerfd_settime(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let new = mm.read_obj::<ItimerSpec>(a.va(2))?.setting()?;
    if a.u32(1) & !3 != 0 {
        return Err(EINVAL);
    }
    let f = real_fd(cx, a.i32(0))?;
    let old = f.ops::<TimerFd>().ok_or(EINVAL)?.set(new, a.u32(1))?;
    if let Some(va) = a.va_opt(3) {
        mm.write_obj(va, &ItimerSpec::of(old))?;
    }
    Ok(0)
}

/// `timerfd_gettime(fd, value)`.
fn timerfd_gettime(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    let s = f.ops::<TimerFd>().ok_or(EINVAL)?.get();
    cx.mm().write_obj(a.va(1), &ItimerSpec::of(s))?;
    Ok(0)
}

fn do_signalfd(cx: &Context, fd: i32, mask: Va, size: usize, flags: u32) -> SysResult {
    if size != size_of::<SigSet>() {
        return Err(EINVAL);
    }
    let mask: SigSet = cx.mm().read_obj(mask)?;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(EINVAL);
    }
    let mask = mask.minus(SigSet::UNBLOCKABLE);
    if fd == -1 {
        return install(cx, SignalFd::new(&cx.task, mask), O_RDWR, flags);
    }
    let f = real_fd(cx, fd)?;
    f.ops::<SignalFd>().ok_or(EINVAL)?.set_mask(mask);
    Ok(fd as usize)
}
/// `signalfd(fd, mask, size)`.
fn signalfd(cx: &mut Context, a: &Args) -> SysResult {
    do_signalfd(cx, a.i32(0), a.va(1), a.usize(2), 0)
}
/// `signalfd4(fd, mask, size, flags)`.
fn signalfd4(cx: &mut Context, a: &Args) -> SysResult {
    do_signalfd(cx, a.i32(0), a.va(1), a.usize(2), a.u32(3))
}

/// `inotify_init()`.
fn inotify_init(cx: &mut Context, _: &Args) -> SysResult {
    install(cx, Inotify::new(&cx.cred())?, O_RDONLY, 0)
}
/// `inotify_init1(flags)`.
fn inotify_init1(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(0) & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(EINVAL);
    }
    install(cx, Inotify::new(&cx.cred())?, O_RDONLY, a.u32(0))
}

/// `inotify_add_watch(fd, path, mask)`.
fn inotify_add_watch(cx: &mut Context, a: &Args) -> SysResult {
    const IN_ONLYDIR: u32 = 0x0100_0000;
    const IN_DONT_FOLLOW: u32 = 0x0200_0000;
    /// ALL_INOTIFY_BITS.
    const KNOWN: u32 = 0x0fff | 0xe000 | 0xf700_0000;
    let mask = a.u32(2);
    if mask & KNOWN == 0 {
        return Err(EINVAL);
    }
    let f = real_fd(cx, a.i32(0))?;
    if mask & 0x3000_0000 == 0x3000_0000 {
        return Err(EINVAL);
    }
    let inotify = f.ops::<Inotify>().ok_or(EINVAL)?;
    let path = path_arg(cx, a.va(1))?;
    let mut walk = Walk::empty();
    if mask & IN_DONT_FOLLOW == 0 {
        walk |= Walk::FOLLOW;
    }
    if mask & IN_ONLYDIR != 0 {
        walk |= Walk::DIRECTORY;
    }
    cx.task
        .with_paths(|p| {
            let at = p.resolve(&At::Cwd, &path, walk)?;
            p.permission(&at, Want::READ)?;
            let list = WatchList::of(&at)?;
            let held = p.cred().hold(at.inode()?.host_user())?;
            inotify.add_watch(&list, mask, held)
        })
        .map(|wd| wd as usize)
}

/// `inotify_rm_watch(fd, wd)`.
fn inotify_rm_watch(cx: &mut Context, a: &Args) -> SysResult {
    let f = real_fd(cx, a.i32(0))?;
    f.ops::<Inotify>()
        .ok_or(EINVAL)?
        .remove_watch(a.i32(1))
        .map(|()| 0)
}

/// `epoll_create(size)`: the size must be positive, and says nothing.
fn epoll_create(cx: &mut Context, a: &Args) -> SysResult {
    if a.i32(0) <= 0 {
        return Err(EINVAL);
    }
    install(cx, Epoll::new(&cx.cred()), O_RDWR, 0)
}
/// `epoll_create1(flags)`.
fn epoll_create1(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(0) & !O_CLOEXEC != 0 {
        return Err(EINVAL);
    }
    install(cx, Epoll::new(&cx.cred()), O_RDWR, a.u32(0))
}

/// `sizeof(struct epoll_event)`, which is packed on x86-64.
const EPOLL_EVENT: usize = 12;

/// `epoll_ctl(epfd, op, fd, event)`.
fn epoll_ctl(cx: &mut Context, a: &Args) -> SysResult {
    let (epfd, op, fd) = (a.i32(0), a.u32(1), a.i32(2));
    let event = if op == EPOLL_CTL_DEL {
        EpollEvent {
            events: 0,
            data: 0,
            fd,
        }
    } else {
        let [events, low, high]: [u32; 3] = cx.mm().read_obj(a.va(3))?;
        EpollEvent {
            events,
            data: u64::from(low) | u64::from(high) << 32,
            fd,
        }
    };
    let ep = real_fd(cx, epfd)?;
    control(&cx.task, &cx.files(), &ep, op, event, Room::Needed)?;
    crate::task::lanes::slots::after_change(cx, epfd, op, fd, event.events, &ep);
    Ok(0)
}

fn do_epoll_wait(
    cx: &mut Context,
    epfd: i32,
    out: Va,
    max: i32,
    timeout: Option<i64>,
) -> SysResult {
    if max <= 0 || max as usize > i32::MAX as usize / EPOLL_EVENT {
        return Err(EINVAL);
    }
    if out
        .0
        .checked_add(max as u64 * EPOLL_EVENT as u64)
        .is_none_or(|end| end > 1 << 47)
    {
        return Err(EFAULT);
    }
    let f = real_fd(cx, epfd)?;
    let ep = f.ops::<Epoll>().ok_or(EINVAL)?;
    let got = ep.wait(&*cx.task, max as usize, poll_wait(timeout))?;
    let raw: Vec<[u32; 3]> = got
        .iter()
        .map(|e| [e.events, e.data as u32, (e.data >> 32) as u32])
        .collect();
    cx.mm().copy_out(out, raw.as_slice().as_bytes())?;
    let readable = got.iter().filter(|e| e.events & 1 != 0);
    crate::task::lanes::slots::after_wait(cx, readable.map(|e| e.fd));
    Ok(got.len())
}

/// Milliseconds, negative for ever.
fn millis(ms: i32) -> Option<i64> {
    (ms >= 0).then_some(i64::from(ms) * 1_000_000)
}

/// `epoll_wait(epfd, events, maxevents, timeout)`.
fn epoll_wait(cx: &mut Context, a: &Args) -> SysResult {
    do_epoll_wait(cx, a.i32(0), a.va(1), a.i32(2), millis(a.i32(3)))
}

fn epoll_pwait_with(cx: &mut Context, a: &Args, timeout: Option<i64>) -> SysResult {
    if let Some(m) = mask_arg(cx, a.va(4), a.usize(5))? {
        set_temporary_mask(cx, m);
    }
    let r = do_epoll_wait(cx, a.i32(0), a.va(1), a.i32(2), timeout);
    restore_mask(cx, r == Err(EINTR));
    r
}
/// `epoll_pwait(epfd, events, maxevents, timeout, sigmask, sigsetsize)`.
fn epoll_pwait(cx: &mut Context, a: &Args) -> SysResult {
    epoll_pwait_with(cx, a, millis(a.i32(3)))
}
/// `epoll_pwait2(epfd, events, maxevents, timeout, sigmask, sigsetsize)`.
fn epoll_pwait2(cx: &mut Context, a: &Args) -> SysResult {
    let timeout = timespec_arg(cx, a.va_opt(3))?;
    epoll_pwait_with(cx, a, timeout)
}

const EVENT_FLAGS: &[(u64, &str)] = &[
    (1, "EFD_SEMAPHORE"),
    (0o4000, "O_NONBLOCK"),
    (0o2000000, "O_CLOEXEC"),
];
const FILE_FLAGS: &[(u64, &str)] = &[
    (0o200, "O_NOTIFICATION_PIPE"),
    (0o4000, "O_NONBLOCK"),
    (0o40000, "O_DIRECT"),
    (0o2000000, "O_CLOEXEC"),
];
const CLOCKS: &[(u64, &str)] = &[
    (0, "CLOCK_REALTIME"),
    (1, "CLOCK_MONOTONIC"),
    (7, "CLOCK_BOOTTIME"),
    (8, "CLOCK_REALTIME_ALARM"),
    (9, "CLOCK_BOOTTIME_ALARM"),
];
const SETTIME: &[(u64, &str)] = &[(1, "TFD_TIMER_ABSTIME"), (2, "TFD_TIMER_CANCEL_ON_SET")];
const EPOLL_OPS: &[(u64, &str)] = &[
    (1, "EPOLL_CTL_ADD"),
    (2, "EPOLL_CTL_DEL"),
    (3, "EPOLL_CTL_MOD"),
];
const INOTIFY: &[(u64, &str)] = &[
    (1, "IN_ACCESS"),
    (2, "IN_MODIFY"),
    (4, "IN_ATTRIB"),
    (8, "IN_CLOSE_WRITE"),
    (0x10, "IN_CLOSE_NOWRITE"),
    (0x20, "IN_OPEN"),
    (0x40, "IN_MOVED_FROM"),
    (0x80, "IN_MOVED_TO"),
    (0x100, "IN_CREATE"),
    (0x200, "IN_DELETE"),
    (0x400, "IN_DELETE_SELF"),
    (0x800, "IN_MOVE_SELF"),
    (0x0100_0000, "IN_ONLYDIR"),
    (0x0200_0000, "IN_DONT_FOLLOW"),
    (0x0400_0000, "IN_EXCL_UNLINK"),
    (0x1000_0000, "IN_MASK_CREATE"),
    (0x2000_0000, "IN_MASK_ADD"),
    (0x8000_0000, "IN_ONESHOT"),
];

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(22, "pipe", &[Arg::FdPair], pipe),
    Call::new(213, "epoll_create", &[Arg::Int], epoll_create),
    Call::new(
        232,
        "epoll_wait",
        &[Arg::Fd, Arg::Ptr, Arg::Int, Arg::Int],
        epoll_wait,
    ),
    Call::new(
        233,
        "epoll_ctl",
        &[Arg::Fd, Arg::Enum(EPOLL_OPS), Arg::Fd, Arg::Ptr],
        epoll_ctl,
    ),
    Call::new(253, "inotify_init", &[], inotify_init),
    Call::new(
        254,
        "inotify_add_watch",
        &[Arg::Fd, Arg::Path, Arg::Flags(INOTIFY)],
        inotify_add_watch,
    )
    .note("changes made outside of the sandbox are not seen"),
    Call::new(
        255,
        "inotify_rm_watch",
        &[Arg::Fd, Arg::Int],
        inotify_rm_watch,
    ),
    Call::new(
        281,
        "epoll_pwait",
        &[
            Arg::Fd,
            Arg::Ptr,
            Arg::Int,
            Arg::Int,
            Arg::SigSet,
            Arg::Uint,
        ],
        epoll_pwait,
    ),
    Call::new(
        282,
        "signalfd",
        &[Arg::Fd, Arg::SigSet, Arg::Uint],
        signalfd,
    ),
    Call::new(
        283,
        "timerfd_create",
        &[Arg::Enum(CLOCKS), Arg::Flags(FILE_FLAGS)],
        timerfd_create,
    ),
    Call::new(284, "eventfd", &[Arg::Uint], eventfd),
    Call::new(
        286,
        "timerfd_settime",
        &[Arg::Fd, Arg::Flags(SETTIME), Arg::Ptr, Arg::Ptr],
        timerfd_settime,
    )
    .note("TFD_TIMER_CANCEL_ON_SET has no effect: the clock cannot be set"),
    Call::new(
        287,
        "timerfd_gettime",
        &[Arg::Fd, Arg::Ptr],
        timerfd_gettime,
    ),
    Call::new(
        289,
        "signalfd4",
        &[Arg::Fd, Arg::SigSet, Arg::Uint, Arg::Flags(FILE_FLAGS)],
        signalfd4,
    ),
    Call::new(
        290,
        "eventfd2",
        &[Arg::Uint, Arg::Flags(EVENT_FLAGS)],
        eventfd2,
    ),
    Call::new(
        291,
        "epoll_create1",
        &[Arg::Flags(FILE_FLAGS)],
        epoll_create1,
    ),
    Call::new(293, "pipe2", &[Arg::FdPair, Arg::Flags(FILE_FLAGS)], pipe2),
    Call::new(
        294,
        "inotify_init1",
        &[Arg::Flags(FILE_FLAGS)],
        inotify_init1,
    ),
    Call::new(
        441,
        "epoll_pwait2",
        &[
            Arg::Fd,
            Arg::Ptr,
            Arg::Int,
            Arg::Timespec,
            Arg::SigSet,
            Arg::Uint,
        ],
        epoll_pwait2,
    ),
];
