//! Descriptors of processes: opening them, signals through them, files out of them.

use super::SysResult;
use super::args::*;
use super::memory::Advice;
use crate::task::access::{self, By};
use crate::task::{Context, Task, ThreadGroup};
use abi::errno::*;
use abi::linux::{MADV_COLD, MADV_COLLAPSE, MADV_PAGEOUT, MADV_WILLNEED};
use abi::{Result, SigInfo};
use std::sync::Arc;
use vfs::Caps;

flags! {
    /// Of pidfd_open(2).
    struct PidfdFlags: u32, refused {
        PIDFD_NONBLOCK = vfs::file::O_NONBLOCK,
    }
}

/// `pidfd_open(pid, flags)`.
fn pidfd_open(cx: &mut Context, tid: Tid, flags: PidfdFlags) -> SysResult {
    let pid = tid.0;
    if pid <= 0 {
        return Err(EINVAL);
    }
    let g = {
        let l = cx.kernel.tasks.lock();
        let id = cx.id_of(pid)?;
        match l.group(id) {
            Some(g) => g,
            None if l.task(id).is_some() => return Err(EINVAL),
            None => return Err(ESRCH),
        }
    };
    crate::task::pidfd::open(cx, &g, flags.bits()).map(|fd| fd as usize)
}

/// A descriptor of a process, by its kernel-wide id; `ESRCH` where it is gone.
pub(super) fn of_process(cx: &Context, id: i32) -> Result<i32> {
    let g = cx.kernel.tasks.lock().group(id).ok_or(ESRCH)?;
    crate::task::pidfd::open(cx, &g, 0)
}

/// `pidfd_send_signal(pidfd, sig, info, flags)`.
fn pidfd_send_signal(
    cx: &mut Context,
    pidfd: Fd,
    signal: SignalNumber,
    info: Option<UserIn<SigInfo>>,
    flags: u32,
) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let f = pidfd.any_file(cx)?;
    let p = f.ops::<crate::task::pidfd::PidFd>().ok_or(EBADF)?;
    let pid = p.pid();
    let (g, t) = {
        let l = cx.kernel.tasks.lock();
        let g = p.group(&l).ok_or(ESRCH)?;
        (g, l.some_thread(pid))
    };
    // A zombie may be signalled, to no effect.
    // Only downwards (`access_pidfd_pidns`).
    if g.pid.seen_in(&cx.pid.ns) == 0 {
        return Err(EINVAL);
    }
    let s = signal.signal_or_none()?;
    let Some(t) = t else { return Ok(0) };
    crate::task::signal::check_permission(cx, &t, s)?;
    let Some(s) = s else { return Ok(0) };
    let info = match info {
        None => super::signals::sender_info(cx, s, abi::signal::SI_USER),
        Some(va) => {
            let i = va.read(&cx.mm())?;
            if i.signo != s.number() {
                return Err(EINVAL);
            }
            if (i.code >= 0 || i.code == abi::signal::SI_TKILL) && pid != cx.group.tgid {
                return Err(EPERM);
            }
            i
        }
    };
    cx.kernel.send_from(cx, &g, None, info)?;
    Ok(0)
}

/// `pidfd_getfd(pidfd, fd, flags)`.
fn pidfd_getfd(cx: &mut Context, pidfd: Fd, fd: Fd, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let f = pidfd.any_file(cx)?;
    let p = f.ops::<crate::task::pidfd::PidFd>().ok_or(EBADF)?;
    let pid = p.pid();
    let t = {
        let l = cx.kernel.tasks.lock();
        p.group(&l).and_then(|_| l.some_thread(pid)).ok_or(ESRCH)?
    };
    let got = access::guarded(cx, &t, By::Real, || fd.any_file(&t))?;
    crate::task::lanes::slots::taken(&t, &got);
    let fd = cx
        .files()
        .install(got, vfs::fd_table::CloseOnExec::Yes, &cx.room())?;
    Ok(fd as usize)
}

/// The process behind a pidfd, and one of its threads; `ESRCH` where it has ended.
fn process_of(cx: &Context, pidfd: Fd) -> Result<(Arc<ThreadGroup>, Arc<Task>)> {
    let f = pidfd.any_file(cx)?;
    let p = f.ops::<crate::task::pidfd::PidFd>().ok_or(EBADF)?;
    let l = cx.kernel.tasks.lock();
    let g = p.group(&l).ok_or(ESRCH)?;
    let t = l.some_thread(p.pid()).ok_or(ESRCH)?;
    Ok((g, t))
}

/// `process_madvise(pidfd, iovec, vlen, advice, flags)`: how many bytes were advised.
fn process_madvise(
    cx: &mut Context,
    pidfd: Fd,
    ranges: IovecIn,
    advice: Advice,
    flags: u32,
) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let own = cx.mm();
    let ranges = super::io::user_ranges(&own, ranges.va, ranges.len)?;
    let (_, t) = process_of(cx, pidfd)?;
    let mm = access::memory(cx, &t, By::Fs).map_err(|_| EACCES)?;
    if !Arc::ptr_eq(&mm, &own) {
        // What costs another nothing but time (`process_madvise_remote_valid`).
        const OTHERS: [u32; 4] = [MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_COLLAPSE];
        if !OTHERS.contains(&advice.0) {
            return Err(EINVAL);
        }
        if !cx.cred().has(Caps::SYS_NICE) {
            return Err(EPERM);
        }
    }
    let mut done = 0;
    for r in ranges {
        match mm.madvise(r.va, r.len, advice.0) {
            Ok(()) => done += r.len as usize,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// `process_mrelease(pidfd, flags)`: of a process that is about to end, whose memory goes with it
/// here.
fn process_mrelease(cx: &mut Context, pidfd: Fd, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    match process_of(cx, pidfd)?.0.exit_status() {
        Some(_) => Ok(0),
        None => Err(EINVAL),
    }
}

calls! {
    process_madvise,
    process_mrelease,
    pidfd_send_signal,
    pidfd_open,
    pidfd_getfd,
}
