//! Processes: making, replacing, ending and waiting for them; their ids, groups and sessions.

use super::limits::rusage;
use crate::syscalls::{Arg, Args, Call, SysResult, path_arg, read_sized};
use crate::task::Context;
use crate::task::clone::{CloneArgs, clone as make_task};
use crate::task::exec::{ByFd, ExecRequest, exec};
use crate::task::exit::exited;
use crate::task::limits;
use crate::task::wait4::{Change, Who, wait};
use abi::errno::*;
use abi::linux::*;
use abi::signal::SIGCHLD;
use abi::{Result, SigInfo, Va};
use std::sync::atomic::Ordering;
use vfs::At;
use vfs::walk::Walk;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const CLONE_NAMES: &[(u64, &str)] = &[
    (CLONE_VM as u64, "CLONE_VM"),
    (CLONE_FS as u64, "CLONE_FS"),
    (CLONE_FILES as u64, "CLONE_FILES"),
    (CLONE_SIGHAND as u64, "CLONE_SIGHAND"),
    (CLONE_VFORK as u64, "CLONE_VFORK"),
    (CLONE_THREAD as u64, "CLONE_THREAD"),
    (CLONE_SETTLS as u64, "CLONE_SETTLS"),
    (CLONE_PARENT_SETTID as u64, "CLONE_PARENT_SETTID"),
    (CLONE_CHILD_SETTID as u64, "CLONE_CHILD_SETTID"),
    (CLONE_CHILD_CLEARTID as u64, "CLONE_CHILD_CLEARTID"),
    (17, "SIGCHLD"),
];

/// `clone(flags, stack, parent_tid, child_tid, tls)`.
fn clone(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u64(0) & 0xffff_ffff;
    let args = CloneArgs {
        flags: flags & !0xff,
        exit_signal: flags & 0xff,
        stack: a.u64(1),
        parent_tid: a.u64(2),
        child_tid: a.u64(3),
        tls: a.u64(4),
        pidfd: a.u64(2),
        set_tid: None,
        cgroup: None,
    };
    let both = u64::from(CLONE_PIDFD | CLONE_PARENT_SETTID);
    if flags & both == both {
        return Err(EINVAL);
    }
    make_task(cx, &args)
}

fn fork(cx: &mut Context, _: &Args) -> SysResult {
    make_task(
        cx,
        &CloneArgs {
            exit_signal: SIGCHLD.number() as u64,
            ..CloneArgs::default()
        },
    )
}

fn vfork(cx: &mut Context, _: &Args) -> SysResult {
    let flags = u64::from(CLONE_VFORK | CLONE_VM);
    make_task(
        cx,
        &CloneArgs {
            flags,
            exit_signal: SIGCHLD.number() as u64,
            ..CloneArgs::default()
        },
    )
}

/// `struct clone_args`, version 2.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawCloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// `clone3(args, size)`.
fn clone3(cx: &mut Context, a: &Args) -> SysResult {
    let size = a.usize(1);
    if size > 4096 {
        return Err(E2BIG);
    }
    if size < 64 {
        return Err(EINVAL);
    }
    let mut raw = [0u8; 88];
    read_sized(cx, a.va(0), size, &mut raw)?;
    let r = RawCloneArgs::read_from_bytes(&raw).map_err(|_| EINVAL)?;
    // CLONE_DETACHED, and the exit signal in the flags, belong to clone(2).
    if r.flags & !(0xffff_ff00 | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP) != 0
        || r.flags & u64::from(CLONE_DETACHED) != 0
        || r.exit_signal > 64
    {
        return Err(EINVAL);
    }
    if r.flags & u64::from(CLONE_THREAD | CLONE_PARENT) != 0 && r.exit_signal != 0 {
        return Err(EINVAL);
    }
    if (r.stack == 0) != (r.stack_size == 0) {
        return Err(EINVAL);
    }
    if r.set_tid_size != 0 {
        // Needs CAP_CHECKPOINT_RESTORE; not implemented.
        return Err(if r.set_tid_size > 32 || r.set_tid == 0 {
            EINVAL
        } else {
            EPERM
        });
    }
    let cgroup = if r.flags & CLONE_INTO_CGROUP != 0 {
        if size < 88 {
            return Err(EINVAL);
        }
        Some(i32::try_from(r.cgroup).map_err(|_| EINVAL)?)
    } else {
        None
    };
    let args = CloneArgs {
        flags: r.flags,
        exit_signal: r.exit_signal,
        stack: r.stack.wrapping_add(r.stack_size),
        parent_tid: r.parent_tid,
        child_tid: r.child_tid,
        tls: r.tls,
        pidfd: r.pidfd,
        set_tid: None,
        cgroup,
    };
    make_task(cx, &args)
}

/// Reads a null-terminated array of strings.
fn strings(cx: &Context, va: Va) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    if va.is_null() {
        return Ok(out);
    }
    let limit = loader::argument_limit(cx.group.limits.lock().0[limits::STACK].current);
    let mm = cx.mm();
    let mut total = 0u64;
    for i in 0u64.. {
        let p: u64 = mm.read_obj(va.offset(8 * i))?;
        if p == 0 {
            return Ok(out);
        }
        let s = mm
            .read_cstr(Va(p), loader::MAX_ARG_STRLEN)
            .map_err(|e| if e == ENAMETOOLONG { E2BIG } else { e })?;
        total += s.len() as u64 + 9;
        if total > limit as u64 {
            return Err(E2BIG);
        }
        out.push(s);
    }
    unreachable!("bounded by the limit")
}

/// `execve(path, argv, envp)`.
fn execve(cx: &mut Context, a: &Args) -> SysResult {
    let path = path_arg(cx, a.va(0))?;
    let req = ExecRequest {
        at: At::Cwd,
        path,
        walk: Walk::FOLLOW,
        by_fd: None,
        argv: argv(cx, a.va(1))?,
        envp: strings(cx, a.va(2))?,
    };
    exec(cx, req).map(|()| 0)
}

/// An empty argv becomes one empty string, as Linux 5.18 does.
fn argv(cx: &Context, va: Va) -> Result<Vec<Vec<u8>>> {
    let mut v = strings(cx, va)?;
    if v.is_empty() {
        v.push(Vec::new());
    }
    Ok(v)
}

/// `execveat(dirfd, path, argv, envp, flags)`.
fn execveat(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u32(4);
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(EINVAL);
    }
    let path = path_arg(cx, a.va(1))?;
    let walk = if flags & AT_SYMLINK_NOFOLLOW != 0 {
        Walk::empty()
    } else {
        Walk::FOLLOW
    };
    let dirfd = a.i32(0);
    let files = cx.files();
    let by_fd = match path.is_empty() {
        true if flags & AT_EMPTY_PATH == 0 => return Err(ENOENT),
        true => Some(ByFd {
            name: format!("/dev/fd/{dirfd}").into_bytes(),
            closes: files.cloexec(dirfd)? == vfs::fd_table::CloseOnExec::Yes,
        }),
        false => None,
    };
    let walk = if by_fd.is_some() {
        walk | Walk::EMPTY
    } else {
        walk
    };
    let req = ExecRequest {
        at: At::new(&files, dirfd, &path)?,
        path,
        walk,
        by_fd,
        argv: argv(cx, a.va(2))?,
        envp: strings(cx, a.va(3))?,
    };
    exec(cx, req).map(|()| 0)
}

fn exit(cx: &mut Context, a: &Args) -> SysResult {
    cx.exit = Some(exited(a.i32(0)));
    Ok(0)
}

fn exit_group(cx: &mut Context, a: &Args) -> SysResult {
    let status = exited(a.i32(0));
    let kernel = cx.kernel.clone();
    kernel.kill_group(&cx.group, status);
    cx.exit = Some(status);
    Ok(0)
}

fn wait4(cx: &mut Context, a: &Args) -> SysResult {
    let pid = a.i32(0);
    let who = match pid {
        -1 => Who::Any,
        0 => Who::Group(cx.kernel.tasks.lock().pgid(cx.group.tgid)),
        i32::MIN => return Err(ESRCH),
        p if p < 0 => Who::Group(cx.id_of(-p).map_err(|_| ECHILD)?),
        p => Who::Pid(cx.id_of(p).map_err(|_| ECHILD)?),
    };
    let options = a.u32(2);
    if options & !(WNOHANG | WUNTRACED | WCONTINUED | __WNOTHREAD | __WCLONE | __WALL) != 0 {
        return Err(EINVAL);
    }
    let Some(c) = wait(cx, who, options | WEXITED)? else {
        return Ok(0);
    };
    let mm = cx.mm();
    if let Some(va) = a.va_opt(1) {
        mm.write_obj(va, &c.status)?;
    }
    if let Some(va) = a.va_opt(3) {
        mm.write_obj(va, &rusage(c.cpu, 0))?;
    }
    Ok(c.pid as usize)
}

/// The fields of waitid(2)'s `siginfo_t` that it writes; zeros for no change.
fn put_info(mm: &mm::Mm, va: Va, c: Option<&Change>) -> Result<()> {
    let info = c.map_or([0u8; size_of::<SigInfo>()], |c| {
        let mut b = [0u8; size_of::<SigInfo>()];
        b.copy_from_slice(c.info().as_bytes());
        b
    });
    mm.copy_out(va, &info[..12])?;
    mm.copy_out(va.offset(16), &info[16..28])
}

/// `waitid(which, id, info, options, rusage)`.
fn waitid(cx: &mut Context, a: &Args) -> SysResult {
    let (id, options) = (a.i32(1), a.u32(3));
    if options & (WEXITED | WSTOPPED | WCONTINUED) == 0 {
        return Err(EINVAL);
    }
    let who = match a.u32(0) {
        0 => Who::Any,
        1 if id > 0 => Who::Pid(cx.id_of(id).map_err(|_| ECHILD)?),
        2 if id >= 0 => Who::Group(if id == 0 {
            cx.kernel.tasks.lock().pgid(cx.group.tgid)
        } else {
            cx.id_of(id).map_err(|_| ECHILD)?
        }),
        3 => {
            let f = cx.fd(id)?;
            let p = f.ops::<crate::fs::pidfd::PidFd>().ok_or(EBADF)?;
            let l = cx.kernel.tasks.lock();
            Who::Pid(p.group(&l).ok_or(ECHILD)?.tgid)
        }
        _ => return Err(EINVAL),
    };
    let r = wait(cx, who, options);
    let mm = cx.mm();
    if let (Err(e), Some(va)) = (&r, a.va_opt(2)) {
        // The info is written even where the call fails (`kernel/exit.c`).
        put_info(&mm, va, None)?;
        return Err(*e);
    }
    let c: Option<Change> = r?;
    if let (Some(va), Some(c)) = (a.va_opt(4), &c) {
        mm.write_obj(va, &rusage(c.cpu, 0))?;
    }
    if let Some(va) = a.va_opt(2) {
        put_info(&mm, va, c.as_ref())?;
    }
    Ok(0)
}

fn getpid(cx: &mut Context, _: &Args) -> SysResult {
    Ok(cx.group.pid.own() as usize)
}
fn gettid(cx: &mut Context, _: &Args) -> SysResult {
    Ok(cx.pid.own() as usize)
}
fn getppid(cx: &mut Context, _: &Args) -> SysResult {
    let l = cx.kernel.tasks.lock();
    Ok(l.number(l.parent(cx.group.tgid), &cx.pid.ns) as usize)
}
fn getpgrp(cx: &mut Context, _: &Args) -> SysResult {
    let l = cx.kernel.tasks.lock();
    Ok(l.number(l.pgid(cx.group.tgid), &cx.pid.ns) as usize)
}
fn getpgid(cx: &mut Context, a: &Args) -> SysResult {
    id_of(cx, a.i32(0), |p| p.pgid)
}
fn getsid(cx: &mut Context, a: &Args) -> SysResult {
    id_of(cx, a.i32(0), |p| p.sid)
}
fn id_of(cx: &Context, pid: i32, f: fn(&crate::task::list::Process) -> i32) -> SysResult {
    let l = cx.kernel.tasks.lock();
    let tgid = if pid == 0 {
        cx.group.tgid
    } else {
        let id = cx.id_of(pid)?;
        l.task(id).map_or(id, |t| t.group.tgid)
    };
    let id = l.process(tgid).map(f).ok_or(ESRCH)?;
    Ok(l.number(id, &cx.pid.ns) as usize)
}
fn setsid(cx: &mut Context, _: &Args) -> SysResult {
    cx.kernel.tasks.lock().new_session(cx.group.tgid)?;
    cx.group.without_terminal.store(false, Ordering::Relaxed);
    Ok(cx.group.pid.own() as usize)
}

/// `setpgid(pid, pgid)`.
fn setpgid(cx: &mut Context, a: &Args) -> SysResult {
    let (pid, pgid) = (a.i32(0), a.i32(1));
    if pgid < 0 {
        return Err(EINVAL);
    }
    let me = cx.group.tgid;
    let pid = if pid == 0 { me } else { cx.id_of(pid)? };
    let pgid = if pgid == 0 {
        pid
    } else {
        cx.id_of(pgid).map_err(|_| EPERM)?
    };
    let mut l = cx.kernel.tasks.lock();
    let my_sid = l.sid(me);
    let p = l.process(pid).ok_or(ESRCH)?;
    if pid != me {
        if p.parent != me {
            return Err(ESRCH);
        }
        if p.sid != my_sid {
            return Err(EPERM);
        }
        if p.has_execed {
            return Err(EACCES);
        }
    }
    if p.sid == pid {
        return Err(EPERM);
    }
    if pgid != pid && l.session_of_group(pgid) != Some(my_sid) {
        return Err(EPERM);
    }
    l.set_group(pid, pgid);
    Ok(0)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(39, "getpid", &[], getpid),
    Call::new(
        56,
        "clone",
        &[
            Arg::Flags(CLONE_NAMES),
            Arg::Ptr,
            Arg::Ptr,
            Arg::Ptr,
            Arg::Hex,
        ],
        clone,
    )
    .note("no time namespaces"),
    Call::new(57, "fork", &[], fork),
    Call::new(58, "vfork", &[], vfork),
    Call::new(59, "execve", &[Arg::Path, Arg::Strings, Arg::Ptr], execve),
    Call::new(60, "exit", &[Arg::Int], exit),
    Call::new(
        61,
        "wait4",
        &[Arg::Int, Arg::IntOut, Arg::Hex, Arg::Ptr],
        wait4,
    ),
    Call::new(109, "setpgid", &[Arg::Int, Arg::Int], setpgid),
    Call::new(110, "getppid", &[], getppid),
    Call::new(111, "getpgrp", &[], getpgrp),
    Call::new(112, "setsid", &[], setsid),
    Call::new(121, "getpgid", &[Arg::Int], getpgid),
    Call::new(124, "getsid", &[Arg::Int], getsid),
    Call::new(186, "gettid", &[], gettid),
    Call::new(231, "exit_group", &[Arg::Int], exit_group),
    Call::new(
        247,
        "waitid",
        &[Arg::Int, Arg::Int, Arg::Ptr, Arg::Hex, Arg::Ptr],
        waitid,
    ),
    Call::new(
        322,
        "execveat",
        &[Arg::DirFd, Arg::Path, Arg::Strings, Arg::Ptr, Arg::Hex],
        execveat,
    ),
    Call::new(435, "clone3", &[Arg::Ptr, Arg::Uint], clone3).note("no set_tid; no time namespaces"),
];
