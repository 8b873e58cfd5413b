//! Descriptors of processes: opening them, signals through them, files out of them.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::access::{self, By};
use abi::errno::*;
use abi::{SigInfo, Signal};

/// `pidfd_open(pid, flags)`.
fn pidfd_open(cx: &mut Context, a: &Args) -> SysResult {
    let (pid, flags) = (a.i32(0), a.u32(1));
    if flags & !vfs::file::O_NONBLOCK != 0 || pid <= 0 {
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
    crate::fs::pidfd::open(cx, &g, flags).map(|fd| fd as usize)
}

/// `pidfd_send_signal(pidfd, sig, info, flags)`.
fn pidfd_send_signal(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(3) != 0 {
        return Err(EINVAL);
    }
    let f = cx.fd(a.i32(0))?;
    let p = f.ops::<crate::fs::pidfd::PidFd>().ok_or(EBADF)?;
    let pid = p.pid();
    let s = if a.i32(1) == 0 {
        None
    } else {
        Some(Signal::new(a.i32(1)).ok_or(EINVAL)?)
    };
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
    let Some(t) = t else { return Ok(0) };
    crate::task::signal::check_permission(cx, &t, s)?;
    let Some(s) = s else { return Ok(0) };
    let info = match a.va_opt(2) {
        None => super::signals::sender_info(cx, s, abi::signal::SI_USER),
        Some(va) => {
            let i: SigInfo = cx.mm().read_obj(va)?;
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
fn pidfd_getfd(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(2) != 0 {
        return Err(EINVAL);
    }
    let f = cx.fd(a.i32(0))?;
    let p = f.ops::<crate::fs::pidfd::PidFd>().ok_or(EBADF)?;
    let pid = p.pid();
    let t = {
        let l = cx.kernel.tasks.lock();
        p.group(&l).and_then(|_| l.some_thread(pid)).ok_or(ESRCH)?
    };
    let got = access::guarded(cx, &t, By::Real, || t.fd(a.i32(1)))?;
    crate::task::lanes::slots::taken(&t, &got);
    let fd = cx
        .files()
        .install(got, vfs::fd_table::CloseOnExec::Yes, &cx.room())?;
    Ok(fd as usize)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        424,
        "pidfd_send_signal",
        &[Arg::Fd, Arg::Signal, Arg::Ptr, Arg::Hex],
        pidfd_send_signal,
    ),
    Call::new(434, "pidfd_open", &[Arg::Int, Arg::Hex], pidfd_open),
    Call::new(
        438,
        "pidfd_getfd",
        &[Arg::Fd, Arg::Int, Arg::Hex],
        pidfd_getfd,
    ),
];
