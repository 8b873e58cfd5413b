//! Descriptors of processes: opening them, signals through them, files out of them.

use super::SysResult;
use super::args::*;
use super::memory::Advice;
use super::signals::{send_many, send_process, sender_info};
use crate::fs::proc::pid::PidDir;
use crate::task::access::{self, By};
use crate::task::pidfd::PidFd;
use crate::task::signal::check_permission;
use crate::task::{Context, Task, ThreadGroup};
use abi::errno::*;
use abi::linux::{MADV_COLD, MADV_COLLAPSE, MADV_PAGEOUT, MADV_WILLNEED};
use abi::signal::{SI_TKILL, SI_USER};
use abi::{Result, SigInfo};
use std::sync::Arc;
use vfs::Caps;
use vfs::fs::dynamic::OpenDynDir;

flags! {
    /// Of pidfd_open(2).
    struct PidfdFlags: u32, refused {
        PIDFD_NONBLOCK = vfs::file::O_NONBLOCK,
    }
}

flags! {
    /// Of pidfd_send_signal(2).
    struct PidfdSignalFlags: u32, refused {
        PIDFD_SIGNAL_THREAD = 1,
        PIDFD_SIGNAL_THREAD_GROUP = 2,
        PIDFD_SIGNAL_PROCESS_GROUP = 4,
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

/// Whom a signal by a pidfd is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Process,
    /// The thread that the pidfd is of: the first one.
    Thread,
    /// The process group that this process leads, or led.
    ProcessGroup,
}

impl PidfdSignalFlags {
    /// `EINVAL` for more than one.
    fn scope(self) -> Result<Scope> {
        if self.is_empty() || self == Self::PIDFD_SIGNAL_THREAD_GROUP {
            Ok(Scope::Process)
        } else if self == Self::PIDFD_SIGNAL_THREAD {
            Ok(Scope::Thread)
        } else if self == Self::PIDFD_SIGNAL_PROCESS_GROUP {
            Ok(Scope::ProcessGroup)
        } else {
            Err(EINVAL)
        }
    }
}

/// The process that a pidfd is of, or a directory of /proc (`pidfd_to_pid`).
fn signalled(cx: &Context, pidfd: Fd) -> Result<Arc<ThreadGroup>> {
    let f = pidfd.any_file(cx)?;
    let l = cx.kernel.tasks.lock();
    if let Some(p) = f.ops::<PidFd>() {
        return p.group(&l).ok_or(ESRCH);
    }
    let dir = f.ops::<OpenDynDir>().and_then(OpenDynDir::of::<PidDir>);
    let group = dir.and_then(PidDir::group).ok_or(EBADF)?;
    let group = group.upgrade().ok_or(ESRCH)?;
    let there = l.group(group.tgid);
    there.filter(|g| Arc::ptr_eq(g, &group)).ok_or(ESRCH)
}

/// `pidfd_send_signal(pidfd, sig, info, flags)`.
fn pidfd_send_signal(
    cx: &mut Context,
    pidfd: Fd,
    signal: SignalNumber,
    info: Option<UserIn<SigInfo>>,
    flags: PidfdSignalFlags,
) -> SysResult {
    let scope = flags.scope()?;
    let g = signalled(cx, pidfd)?;
    // Only downwards (`access_pidfd_pidns`).
    if g.pid.seen_in(&cx.pid.ns) == 0 {
        return Err(EINVAL);
    }
    let given = info.map(|va| va.read(&cx.mm())).transpose()?;
    if let Some(i) = given {
        if i.signo != signal.0 {
            return Err(EINVAL);
        }
        let own = cx.tid == g.tgid && scope != Scope::ProcessGroup;
        if !own && (i.code >= 0 || i.code == SI_TKILL) {
            return Err(EPERM);
        }
    }
    let code = match scope {
        Scope::Thread => SI_TKILL,
        Scope::Process | Scope::ProcessGroup => SI_USER,
    };
    let about = |s| given.unwrap_or_else(|| sender_info(cx, s, code));
    match scope {
        Scope::Process => send_process(cx, &g, signal.signal_or_none()?, &about).map(|()| 0),
        Scope::ProcessGroup => send_many(cx, signal.signal_or_none(), &about, |l| {
            l.group_members(g.tgid)
        }),
        Scope::Thread => {
            let s = signal.signal_or_none()?;
            // Where it has ended before the others, to no effect.
            let t = cx.kernel.tasks.lock().task(g.tgid);
            let Some(t) = t.filter(|t| Arc::ptr_eq(&t.group, &g)) else {
                return Ok(0);
            };
            check_permission(cx, &t, s)?;
            if let Some(s) = s {
                cx.kernel.send_from(cx, &g, Some(&t), about(s))?;
            }
            Ok(0)
        }
    }
}

/// `pidfd_getfd(pidfd, fd, flags)`.
fn pidfd_getfd(cx: &mut Context, pidfd: Fd, fd: Fd, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(EINVAL);
    }
    let f = pidfd.any_file(cx)?;
    let p = f.ops::<PidFd>().ok_or(EBADF)?;
    let pid = p.pid();
    let t = {
        let l = cx.kernel.tasks.lock();
        p.group(&l).and_then(|_| l.some_thread(pid)).ok_or(ESRCH)?
    };
    let got = access::guarded(cx, &t, By::Real, || fd.any_file(&t))?;
    cx.task.heed_confidential(&got)?;
    crate::task::lanes::slots::taken(&t, &got);
    let fd = cx
        .files()
        .install(got, vfs::fd_table::CloseOnExec::Yes, &cx.room())?;
    Ok(fd as usize)
}

/// The process behind a pidfd, and one of its threads; `ESRCH` where it has ended.
fn process_of(cx: &Context, pidfd: Fd) -> Result<(Arc<ThreadGroup>, Arc<Task>)> {
    let f = pidfd.any_file(cx)?;
    let p = f.ops::<PidFd>().ok_or(EBADF)?;
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
