//! What is waited for through descriptors: pipes, event files, timers, signal files, inotify,
//! epoll.

use super::SysResult;
use super::args::*;
use super::poll::poll_wait;
use super::signals::{Ended, MaskArg, restore_mask, set_temporary_mask};
use super::time::{ItimerSpec, timespec_arg};
use crate::task::Context;
use crate::task::epoll::control;
use crate::task::signalfd::SignalFd;
use abi::SigSet;
use abi::errno::*;
use abi::linux::{O_DIRECT, O_EXCL, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY};
use abi::time::Timespec;
use ipc::epoll::{EpollEvent, Room};
use ipc::inotify::{Inotify, WatchList};
use ipc::{Epoll, EventFd, TimerFd, new_pipe};
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, FileOps};
use vfs::mode::Want;
use vfs::walk::Walk;
use vfs::{At, Caps};
use zerocopy::IntoBytes;

flags! {
    /// Of pipe2(2). O_NOTIFICATION_PIPE is O_EXCL.
    struct PipeFlags: u32, refused {
        O_NOTIFICATION_PIPE = O_EXCL,
        O_NONBLOCK,
        O_DIRECT,
        O_CLOEXEC,
    }
}

flags! {
    /// Of eventfd2(2).
    struct EventFdFlags: u32, refused {
        EFD_SEMAPHORE,
        O_NONBLOCK,
        O_CLOEXEC,
    }
}

flags! {
    /// Of signalfd4(2), which reads the mask first.
    struct SignalFdFlags: u32, kept {
        O_NONBLOCK,
        O_CLOEXEC,
    }
}

opaque! { ItimerSpec }

flags! {
    /// Of timerfd_settime(2), which reads the time first.
    struct SetTimeFlags: u32, kept {
        TFD_TIMER_ABSTIME,
        TFD_TIMER_CANCEL_ON_SET,
    }
}

named! {
    /// What epoll_ctl(2) does.
    struct EpollOp(u32) {
        EPOLL_CTL_ADD,
        EPOLL_CTL_DEL,
        EPOLL_CTL_MOD,
    }
}

flags! {
    /// Events and flags of inotify_add_watch(2).
    struct InotifyMask: u32, kept {
        IN_ACCESS,
        IN_MODIFY,
        IN_ATTRIB,
        IN_CLOSE_WRITE,
        IN_CLOSE_NOWRITE,
        IN_OPEN,
        IN_MOVED_FROM,
        IN_MOVED_TO,
        IN_CREATE,
        IN_DELETE,
        IN_DELETE_SELF,
        IN_MOVE_SELF,
        IN_UNMOUNT,
        IN_Q_OVERFLOW,
        IN_IGNORED,
        IN_ONLYDIR,
        IN_DONT_FOLLOW,
        IN_EXCL_UNLINK,
        IN_MASK_CREATE,
        IN_MASK_ADD,
        IN_ISDIR,
        IN_ONESHOT,
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
pub fn install_pair(
    cx: &Context,
    out: UserOut<[i32; 2]>,
    files: [Arc<File>; 2],
    flags: u32,
) -> SysResult {
    files.iter().try_for_each(|f| f.may_stay())?;
    let (table, limit) = (cx.files(), &cx.room());
    let (a, b) = (table.reserve(limit)?, table.reserve(limit)?);
    out.write(&cx.mm(), &[a.number(), b.number()])?;
    let [x, y] = files;
    let c = CloseOnExec::from_flags(flags);
    a.install(x, c);
    b.install(y, c);
    Ok(0)
}

fn do_pipe(cx: &Context, out: UserOut<[i32; 2]>, flags: PipeFlags) -> SysResult {
    if flags.contains(PipeFlags::O_NOTIFICATION_PIPE) {
        return Err(ENOPKG);
    }
    let flags = flags.bits();
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
fn pipe(cx: &mut Context, fds: UserOut<[i32; 2]>) -> SysResult {
    do_pipe(cx, fds, PipeFlags::empty())
}
/// `pipe2(fds, flags)`.
fn pipe2(cx: &mut Context, fds: UserOut<[i32; 2]>, flags: PipeFlags) -> SysResult {
    do_pipe(cx, fds, flags)
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

/// `timerfd_create(clockid, flags)`.
fn timerfd_create(cx: &mut Context, clock: ClockId, flags: NewFileFlags) -> SysResult {
    const CAP_WAKE_ALARM: Caps = Caps::from_bits_retain(1 << 35);
    let t = TimerFd::new(&cx.kernel.timers, clock.0)?;
    let wakes = matches!(
        clock,
        ClockId::CLOCK_REALTIME_ALARM | ClockId::CLOCK_BOOTTIME_ALARM
    );
    if wakes && !cx.cred().has(CAP_WAKE_ALARM) {
        return Err(EPERM);
    }
    install(cx, t, O_RDWR, flags.bits())
}

/// `timerfd_settime(fd, flags, new, old)`.
fn timerfd_settime(
    cx: &mut Context,
    fd: Fd,
    flags: SetTimeFlags,
    new: UserIn<ItimerSpec>,
    old: Option<UserOut<ItimerSpec>>,
) -> SysResult {
    let mm = cx.mm();
    let new = new.read(&mm)?.setting()?;
    if !SetTimeFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    let f = fd.file(cx)?;
    let before = f.ops::<TimerFd>().ok_or(EINVAL)?.set(new, flags.bits())?;
    if let Some(old) = old {
        old.write(&mm, &ItimerSpec::of(before))?;
    }
    Ok(0)
}

/// `timerfd_gettime(fd, value)`.
fn timerfd_gettime(cx: &mut Context, fd: Fd, value: UserOut<ItimerSpec>) -> SysResult {
    let f = fd.file(cx)?;
    let s = f.ops::<TimerFd>().ok_or(EINVAL)?.get();
    value.write(&cx.mm(), &ItimerSpec::of(s))?;
    Ok(0)
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

/// `inotify_init()`.
fn inotify_init(cx: &mut Context) -> SysResult {
    install(cx, Inotify::new(&cx.cred())?, O_RDONLY, 0)
}
/// `inotify_init1(flags)`.
fn inotify_init1(cx: &mut Context, flags: NewFileFlags) -> SysResult {
    install(cx, Inotify::new(&cx.cred())?, O_RDONLY, flags.bits())
}

/// `inotify_add_watch(fd, path, mask)`.
fn inotify_add_watch(cx: &mut Context, fd: Fd, path: PathPtr, mask: InotifyMask) -> SysResult {
    if (mask & InotifyMask::all()).is_empty() {
        return Err(EINVAL);
    }
    let f = fd.file(cx)?;
    if mask.contains(InotifyMask::IN_MASK_ADD | InotifyMask::IN_MASK_CREATE) {
        return Err(EINVAL);
    }
    let inotify = f.ops::<Inotify>().ok_or(EINVAL)?;
    let path = path.read(cx)?;
    let mut walk = Walk::empty();
    if !mask.contains(InotifyMask::IN_DONT_FOLLOW) {
        walk |= Walk::FOLLOW;
    }
    if mask.contains(InotifyMask::IN_ONLYDIR) {
        walk |= Walk::DIRECTORY;
    }
    cx.task
        .with_paths(|p| {
            let at = p.resolve(&At::Cwd, &path, walk)?;
            p.permission(&at, Want::READ)?;
            let list = WatchList::of(&at)?;
            let held = p.cred().hold(at.inode()?.host_user())?;
            inotify.add_watch(&list, mask.bits(), held)
        })
        .map(|wd| wd as usize)
}

/// `inotify_rm_watch(fd, wd)`.
fn inotify_rm_watch(cx: &mut Context, fd: Fd, wd: i32) -> SysResult {
    let f = fd.file(cx)?;
    f.ops::<Inotify>()
        .ok_or(EINVAL)?
        .remove_watch(wd)
        .map(|()| 0)
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
fn epoll_ctl(
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
struct Found {
    events: UserArray<[u32; 3]>,
    max: i32,
}

fn do_epoll_wait(cx: &mut Context, epfd: Fd, out: Found, timeout: Option<i64>) -> SysResult {
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
    do_epoll_wait(cx, epfd, Found { events, max }, millis(timeout))
}

fn epoll_pwait_with(
    cx: &mut Context,
    epfd: Fd,
    out: Found,
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
    epoll_pwait_with(cx, epfd, Found { events, max }, millis(timeout), mask)
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
    epoll_pwait_with(cx, epfd, Found { events, max }, timeout, mask)
}

calls! {
    pipe,
    epoll_create,
    epoll_wait,
    epoll_ctl,
    inotify_init,
    inotify_add_watch: "changes made outside of the sandbox are not seen",
    inotify_rm_watch,
    epoll_pwait,
    signalfd,
    timerfd_create,
    eventfd,
    timerfd_settime: "TFD_TIMER_CANCEL_ON_SET has no effect: the clock cannot be set",
    timerfd_gettime,
    signalfd4,
    eventfd2,
    epoll_create1,
    pipe2,
    inotify_init1,
    epoll_pwait2,
}
