//! Processes: making, replacing, ending and waiting for them; ids, limits, prctl, futexes.

use crate::syscalls::{Arg, Args, Call, SysResult, path_arg};
use crate::task::clone::{CloneArgs, clone as make_task};
use crate::task::cpu::Cpu;
use crate::task::exec::{ByFd, ExecRequest, exec};
use crate::task::exit::exited;
use crate::task::futex::{self, Scope, instant_of};
use crate::task::limits::{self, Limit};
use crate::task::seccomp::{self, bpf};
use crate::task::wait4::{Change, Who, wait};
use crate::task::{Context, creds};
use abi::errno::*;
use abi::linux::*;
use abi::signal::SIGCHLD;
use abi::time::{Timespec, Timeval};
use abi::{Result, SigInfo, Signal, Va};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::walk::Walk;
use vfs::{At, Caps, Credentials};
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

/// Reads a struct whose size the caller names: longer ones must be zero at the end (`copy_struct_from_user`).
pub fn read_sized(cx: &Context, va: Va, size: usize, buf: &mut [u8]) -> Result<()> {
    let mm = cx.mm();
    let n = size.min(buf.len());
    mm.copy_in(va, &mut buf[..n])?;
    if size > buf.len() {
        let mut rest = vec![0u8; size - buf.len()];
        mm.copy_in(va.offset(buf.len() as u64), &mut rest)?;
        if rest.iter().any(|b| *b != 0) {
            return Err(E2BIG);
        }
    }
    Ok(())
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

/// `struct rusage`: times, then fourteen longs.
fn rusage(cpu: Cpu, maxrss_kib: u64) -> [u64; 18] {
    let mut r = [0u64; 18];
    for (at, ns) in [(0, cpu.user), (2, cpu.system)] {
        let t = Timeval::from_nanos(ns as i64);
        r[at] = t.sec as u64;
        r[at + 1] = t.usec as u64;
    }
    r[4] = maxrss_kib;
    r
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

macro_rules! id_calls {
    ($($name:ident = $field:ident, $shown:ident;)*) => {
        $(fn $name(cx: &mut Context, _: &Args) -> SysResult {
            let c = cx.cred();
            Ok(c.user_ns.$shown(c.$field) as usize)
        })*
    };
}
id_calls! {
    getuid = uid, uid_shown;
    geteuid = euid, uid_shown;
    getgid = gid, gid_shown;
    getegid = egid, gid_shown;
}

/// The user that an argument means; -1 leaves one as it is.
fn uid_arg(cx: &Context, n: u32) -> Result<u32> {
    match n {
        creds::KEEP => Ok(n),
        n => cx.cred().user_ns.uid_from(n),
    }
}
fn gid_arg(cx: &Context, n: u32) -> Result<u32> {
    match n {
        creds::KEEP => Ok(n),
        n => cx.cred().user_ns.gid_from(n),
    }
}

fn triple(cx: &Context, a: &Args, ids: [u32; 3]) -> SysResult {
    let mm = cx.mm();
    for (i, id) in ids.iter().enumerate() {
        mm.write_obj(a.va(i), id)?;
    }
    Ok(0)
}
fn getresuid(cx: &mut Context, a: &Args) -> SysResult {
    let c = cx.cred();
    triple(
        cx,
        a,
        [c.uid, c.euid, c.suid].map(|u| c.user_ns.uid_shown(u)),
    )
}
fn getresgid(cx: &mut Context, a: &Args) -> SysResult {
    let c = cx.cred();
    triple(
        cx,
        a,
        [c.gid, c.egid, c.sgid].map(|g| c.user_ns.gid_shown(g)),
    )
}
fn setuid(cx: &mut Context, a: &Args) -> SysResult {
    creds::setuid(cx, uid_arg(cx, a.u32(0))?).map(|()| 0)
}
fn setgid(cx: &mut Context, a: &Args) -> SysResult {
    creds::setgid(cx, gid_arg(cx, a.u32(0))?).map(|()| 0)
}
fn setreuid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| uid_arg(cx, a.u32(i));
    creds::setreuid(cx, arg(0)?, arg(1)?).map(|()| 0)
}
fn setregid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| gid_arg(cx, a.u32(i));
    creds::setregid(cx, arg(0)?, arg(1)?).map(|()| 0)
}
fn setresuid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| uid_arg(cx, a.u32(i));
    creds::setresuid(cx, arg(0)?, arg(1)?, arg(2)?).map(|()| 0)
}
fn setresgid(cx: &mut Context, a: &Args) -> SysResult {
    let arg = |i| gid_arg(cx, a.u32(i));
    creds::setresgid(cx, arg(0)?, arg(1)?, arg(2)?).map(|()| 0)
}
fn setfsuid(cx: &mut Context, a: &Args) -> SysResult {
    let ns = cx.cred().user_ns.clone();
    let old = match ns.uid_from(a.u32(0)) {
        Ok(n) => creds::setfsuid(cx, n),
        Err(_) => cx.cred().fsuid,
    };
    Ok(ns.uid_shown(old) as usize)
}
fn setfsgid(cx: &mut Context, a: &Args) -> SysResult {
    let ns = cx.cred().user_ns.clone();
    let old = match ns.gid_from(a.u32(0)) {
        Ok(n) => creds::setfsgid(cx, n),
        Err(_) => cx.cred().fsgid,
    };
    Ok(ns.gid_shown(old) as usize)
}

fn getgroups(cx: &mut Context, a: &Args) -> SysResult {
    let (n, c) = (a.i32(0), cx.cred());
    if n < 0 {
        return Err(EINVAL);
    }
    if n > 0 {
        if (n as usize) < c.groups.len() {
            return Err(EINVAL);
        }
        let mut shown: Vec<u32> = c.groups.iter().map(|g| c.user_ns.gid_shown(*g)).collect();
        shown.sort_unstable();
        cx.mm().copy_out(a.va(1), shown.as_bytes())?;
    }
    Ok(c.groups.len())
}

fn setgroups(cx: &mut Context, a: &Args) -> SysResult {
    const NGROUPS_MAX: u32 = 65_536;
    let n = a.u32(0);
    let ns = cx.cred().user_ns.clone();
    if !cx.cred().has_own(Caps::SETGID) || !ns.may_setgroups() {
        return Err(EPERM);
    }
    if n > NGROUPS_MAX {
        return Err(EINVAL);
    }
    let mut groups = vec![0u32; n as usize];
    cx.mm().copy_in(a.va(1), groups.as_mut_bytes())?;
    for g in &mut groups {
        *g = ns.gid_from(*g)?;
    }
    groups.sort_unstable();
    let mut c = (*cx.cred()).clone();
    c.groups = groups;
    cx.task.set_cred(c);
    Ok(0)
}

/// The capability header's versions and how many words each has.
fn cap_version(cx: &Context, va: Va) -> Result<(usize, i32)> {
    let [version, pid]: [u32; 2] = cx.mm().read_obj(va)?;
    let words = match version {
        0x1998_0330 => 1,
        0x2007_1026 | 0x2008_0522 => 2,
        _ => {
            cx.mm().write_obj(va, &0x2008_0522u32)?;
            return Err(EINVAL);
        }
    };
    Ok((words, pid as i32))
}

fn capget(cx: &mut Context, a: &Args) -> SysResult {
    let r = cap_version(cx, a.va(0));
    let Some(data) = a.va_opt(1) else {
        // Asking for the version only.
        return match r {
            Err(EINVAL) | Ok(_) => Ok(0),
            Err(e) => Err(e),
        };
    };
    let (words, pid) = r?;
    if pid < 0 {
        return Err(EINVAL);
    }
    let c = match pid {
        0 => cx.cred(),
        _ => cx.find_task(pid)?.cred(),
    };
    let mut out = [0u32; 6];
    for w in 0..words {
        for (i, set) in [c.effective, c.permitted, c.inheritable].iter().enumerate() {
            out[w * 3 + i] = (set.bits() >> (32 * w)) as u32;
        }
    }
    cx.mm().copy_out(data, &out.as_bytes()[..words * 12])?;
    Ok(0)
}

fn capset(cx: &mut Context, a: &Args) -> SysResult {
    let (words, pid) = cap_version(cx, a.va(0))?;
    if pid != 0 && pid != cx.pid.own() {
        return Err(EPERM);
    }
    let mut raw = [0u32; 6];
    cx.mm()
        .copy_in(a.va(1), &mut raw.as_mut_bytes()[..words * 12])?;
    let set = |i: usize| {
        let bits = u64::from(raw[i]) | (u64::from(raw[3 + i]) << 32);
        Caps::from_bits_retain(bits) & Caps::FULL
    };
    let (e, p, i) = (set(0), set(1), set(2));
    let old = cx.cred();
    let limit = if old.has_own(Caps::SETPCAP) {
        old.inheritable | old.bounding
    } else {
        old.inheritable | old.permitted
    };
    if !limit.contains(i & !old.inheritable) || !old.permitted.contains(p) || !p.contains(e) {
        return Err(EPERM);
    }
    let mut c = (*old).clone();
    c.effective = e;
    c.permitted = p;
    c.inheritable = i;
    c.ambient &= p & i;
    cx.task.set_cred(c);
    Ok(0)
}

fn set_tid_address(cx: &mut Context, a: &Args) -> SysResult {
    cx.clear_child_tid.store(a.u64(0), Ordering::Relaxed);
    Ok(cx.pid.own() as usize)
}

fn set_robust_list(cx: &mut Context, a: &Args) -> SysResult {
    if a.u64(1) != 24 {
        return Err(EINVAL);
    }
    cx.robust_list.store(a.u64(0), Ordering::Relaxed);
    Ok(0)
}

fn get_robust_list(cx: &mut Context, a: &Args) -> SysResult {
    let t = match a.i32(0) {
        0 => cx.task.clone(),
        pid => cx.find_task(pid)?,
    };
    let (me, c) = (cx.cred(), t.cred());
    let same = [c.uid, c.euid, c.suid].iter().all(|i| *i == me.uid)
        && [c.gid, c.egid, c.sgid].iter().all(|i| *i == me.gid);
    if !Arc::ptr_eq(&t.group, &cx.group) && !same && !me.has_in(&c.user_ns, Caps::SYS_PTRACE) {
        return Err(EPERM);
    }
    let mm = cx.mm();
    mm.write_obj(a.va(1), &t.robust_list.load(Ordering::Relaxed))?;
    mm.write_obj(a.va(2), &24u64)?;
    Ok(0)
}

const FUTEX_NAMES: &[(u64, &str)] = &[
    (0, "FUTEX_WAIT"),
    (1, "FUTEX_WAKE"),
    (3, "FUTEX_REQUEUE"),
    (4, "FUTEX_CMP_REQUEUE"),
    (5, "FUTEX_WAKE_OP"),
    (128, "FUTEX_WAIT_PRIVATE"),
    (129, "FUTEX_WAKE_PRIVATE"),
    (132, "FUTEX_CMP_REQUEUE_PRIVATE"),
    (137, "FUTEX_WAIT_BITSET_PRIVATE"),
    (393, "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"),
];

/// `futex(uaddr, op, val, timeout or val2, uaddr2, val3)`.
fn sys_futex(cx: &mut Context, a: &Args) -> SysResult {
    let op = a.u32(1);
    let scope = if op & FUTEX_PRIVATE_FLAG != 0 {
        Scope::Private
    } else {
        Scope::Shared
    };
    let realtime = op & FUTEX_CLOCK_REALTIME != 0;
    let cmd = op & FUTEX_CMD_MASK as u32;
    if realtime
        && !matches!(
            cmd,
            FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2
        )
    {
        return Err(ENOSYS);
    }
    let (va, val, va2) = (a.va(0), a.u32(2), a.va(4));
    let timeout = || -> Result<Option<i64>> {
        match a.va_opt(3) {
            None => Ok(None),
            Some(t) => Ok(Some(
                cx.mm().read_obj::<Timespec>(t)?.to_nanos().ok_or(EINVAL)?,
            )),
        }
    };
    let clock = if realtime {
        CLOCK_REALTIME
    } else {
        CLOCK_MONOTONIC
    } as i32;
    match cmd {
        FUTEX_WAIT => {
            let t = timeout()?;
            let deadline =
                t.and_then(|n| wait::deadline_after(std::time::Duration::from_nanos(n as u64)));
            let r = futex::wait(cx, va, scope, val, !0, deadline);
            match r {
                Ok(()) => Ok(0),
                Err(ERESTARTSYS) if t.is_some() => {
                    cx.restart_block = Some(Box::new(move |cx| {
                        futex::wait(cx, va, scope, val, !0, deadline)
                            .map(|()| 0)
                            .map_err(|e| if e == ERESTARTSYS { EINTR } else { e })
                    }));
                    Err(ERESTART_RESTARTBLOCK)
                }
                Err(e) => Err(e),
            }
        }
        FUTEX_WAIT_BITSET => {
            let t = timeout()?;
            let deadline = t.and_then(|n| instant_of(clock, n));
            futex::wait(cx, va, scope, val, a.u32(5), deadline).map(|()| 0)
        }
        FUTEX_WAKE => futex::wake(cx, va, scope, val as i32, !0),
        FUTEX_WAKE_BITSET => futex::wake(cx, va, scope, val as i32, a.u32(5)),
        FUTEX_REQUEUE => {
            futex::requeue(cx, (va, va2), scope, (val as i32, a.i32(3)), None).map(|(w, m)| w + m)
        }
        FUTEX_CMP_REQUEUE => {
            futex::requeue(cx, (va, va2), scope, (val as i32, a.i32(3)), Some(a.u32(5)))
                .map(|(w, m)| w + m)
        }
        FUTEX_WAKE_OP => futex::wake_op(cx, (va, va2), scope, (val as i32, a.i32(3)), a.u32(5)),
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            let clock = if cmd == FUTEX_LOCK_PI {
                CLOCK_REALTIME as i32
            } else {
                clock
            };
            let deadline = timeout()?.and_then(|n| instant_of(clock, n));
            futex::lock_pi(cx, va, scope, futex::IfTaken::Wait(deadline)).map(|()| 0)
        }
        FUTEX_TRYLOCK_PI => futex::lock_pi(cx, va, scope, futex::IfTaken::Fail).map(|()| 0),
        FUTEX_UNLOCK_PI => futex::unlock_pi(cx, va, scope).map(|()| 0),
        _ => Err(ENOSYS),
    }
}

fn prlimit(cx: &Context, t: &crate::Task, n: u32, new: Option<Limit>) -> Result<Limit> {
    if n as usize >= limits::COUNT {
        return Err(EINVAL);
    }
    let mut l = t.group.limits.lock();
    let old = l.0[n as usize];
    if let Some(new) = new {
        if new.current > new.max {
            return Err(EINVAL);
        }
        if n as usize == limits::NOFILE && new.max > vfs::fd_table::NR_OPEN {
            return Err(EPERM);
        }
        if new.max > old.max && !cx.cred().has(Caps::SYS_RESOURCE) {
            return Err(EPERM);
        }
        l.0[n as usize] = new;
        drop(l);
        if n as usize == limits::CPU {
            t.group.timers.watch_cpu_limit(&t.kernel, &t.group);
        } else {
            t.mm().set_limits(t.mm_limits());
        }
    }
    Ok(old)
}

fn getrlimit(cx: &mut Context, a: &Args) -> SysResult {
    let old = prlimit(cx, cx, a.u32(0), None)?;
    cx.mm().write_obj(a.va(1), &old)?;
    Ok(0)
}

fn setrlimit(cx: &mut Context, a: &Args) -> SysResult {
    let new: Limit = cx.mm().read_obj(a.va(1))?;
    prlimit(cx, cx, a.u32(0), Some(new))?;
    Ok(0)
}

fn prlimit64(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let new = match a.va_opt(2) {
        None => None,
        Some(va) => Some(mm.read_obj::<Limit>(va)?),
    };
    let t = match a.i32(0) {
        0 => cx.task.clone(),
        pid => {
            let t = cx.find_task(pid)?;
            let (me, c) = (cx.cred(), t.cred());
            let same = [c.uid, c.euid, c.suid].iter().all(|i| *i == me.uid)
                && [c.gid, c.egid, c.sgid].iter().all(|i| *i == me.gid);
            if !Arc::ptr_eq(&t.group, &cx.group)
                && !same
                && !me.has_in(&c.user_ns, Caps::SYS_RESOURCE)
            {
                return Err(EPERM);
            }
            t
        }
    };
    let old = prlimit(cx, &t, a.u32(1), new)?;
    if let Some(va) = a.va_opt(3) {
        mm.write_obj(va, &old)?;
    }
    Ok(0)
}

fn getrusage(cx: &mut Context, a: &Args) -> SysResult {
    let cpu = match a.i32(0) {
        0 => cx.kernel.cpu_time(&cx.group),
        // RUSAGE_THREAD
        1 => cx.cpu.get(),
        -1 => cx.group.cpu_children.get(),
        _ => return Err(EINVAL),
    };
    let rss = if a.i32(0) == -1 {
        0
    } else {
        cx.mm().usage().rss / 1024
    };
    cx.mm().write_obj(a.va(1), &rusage(cpu, rss))?;
    Ok(0)
}

fn uname(cx: &mut Context, a: &Args) -> SysResult {
    let names = cx.ns().uts.get().utsname();
    cx.mm().copy_out(a.va(0), &names)?;
    Ok(0)
}

fn set_name(cx: &Context, a: &Args) -> Result<Vec<u8>> {
    if !cx.cred().has_in(&cx.ns().uts.user, Caps::SYS_ADMIN) {
        return Err(EPERM);
    }
    let len = a.i32(1);
    if !(0..=64).contains(&len) {
        return Err(EINVAL);
    }
    let mut b = vec![0u8; len as usize];
    cx.mm().copy_in(a.va(0), &mut b)?;
    Ok(b)
}
fn sethostname(cx: &mut Context, a: &Args) -> SysResult {
    let n = set_name(cx, a)?;
    cx.ns().uts.change(&cx.kernel, |u| u.nodename = n);
    Ok(0)
}
fn setdomainname(cx: &mut Context, a: &Args) -> SysResult {
    let n = set_name(cx, a)?;
    cx.ns().uts.change(&cx.kernel, |u| u.domainname = n);
    Ok(0)
}

/// `prctl(option, …)`.
fn prctl(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let rest_zero = a.u64(2) == 0 && a.u64(3) == 0 && a.u64(4) == 0;
    match a.i32(0) {
        1 => {
            let s = a.u64(1);
            if s > 64 {
                return Err(EINVAL);
            }
            cx.pdeath_signal.store(s as i32, Ordering::Relaxed);
            Ok(0)
        }
        2 => mm
            .write_obj(a.va(1), &cx.pdeath_signal.load(Ordering::Relaxed))
            .map(|()| 0),
        3 => Ok(cx.group.dumpable.load(Ordering::Relaxed) as usize),
        4 => {
            if a.u64(1) > 1 {
                return Err(EINVAL);
            }
            cx.group.dumpable.store(a.i32(1), Ordering::Relaxed);
            Ok(0)
        }
        // PR_GET_KEEPCAPS, PR_SET_KEEPCAPS
        7 => Ok(usize::from(cx.cred().securebits & (1 << 4) != 0)),
        8 => {
            let on = a.u64(1);
            if on > 1 {
                return Err(EINVAL);
            }
            let mut c = (*cx.cred()).clone();
            if c.securebits & (1 << 5) != 0 {
                return Err(EPERM);
            }
            c.securebits = (c.securebits & !(1 << 4)) | ((on as u32) << 4);
            cx.task.set_cred(c);
            Ok(0)
        }
        // PR_GET_TIMING: statistical; PR_SET_TIMING likewise only
        13 => Ok(0),
        14 => {
            if a.u64(1) == 0 {
                Ok(0)
            } else {
                Err(EINVAL)
            }
        }
        15 => {
            let mut b = [0u8; 16];
            let s = mm.read_cstr(a.va(1), 16).or_else(|e| {
                // Longer names are cut.
                if e == ENAMETOOLONG {
                    mm.copy_in(a.va(1), &mut b)?;
                    Ok(b.to_vec())
                } else {
                    Err(e)
                }
            })?;
            cx.task.set_comm(&s);
            Ok(0)
        }
        16 => {
            let mut b = [0u8; 16];
            let c = cx.comm();
            b[..c.len()].copy_from_slice(&c);
            mm.copy_out(a.va(1), &b).map(|()| 0)
        }
        // PR_GET_SECCOMP; strict mode does not let it come here
        21 => Ok(cx.seccomp.mode() as usize),
        // PR_SET_SECCOMP
        22 => match a.u64(1) {
            1 => seccomp::set_strict(cx).map(|()| 0),
            2 => add_filter(cx, a.va(2), 0),
            _ => Err(EINVAL),
        },
        // PR_CAPBSET_READ, PR_CAPBSET_DROP
        23 | 24 => {
            let n = a.u64(1);
            if n > 40 {
                return Err(EINVAL);
            }
            let bit = Caps::from_bits_retain(1 << n);
            let c = cx.cred();
            if a.i32(0) == 23 {
                return Ok(usize::from(c.bounding.contains(bit)));
            }
            if !c.has_own(Caps::SETPCAP) {
                return Err(EPERM);
            }
            let mut c = (*c).clone();
            c.bounding.remove(bit);
            cx.task.set_cred(c);
            Ok(0)
        }
        // PR_GET_TSC: allowed
        25 => mm.write_obj(a.va(1), &1i32).map(|()| 0),
        26 => {
            if a.u64(1) == 1 {
                Ok(0)
            } else {
                Err(EINVAL)
            }
        }
        27 => Ok(cx.cred().securebits as usize),
        28 => {
            let old = cx.cred();
            if !old.has_own(Caps::SETPCAP) {
                return Err(EPERM);
            }
            let mut c = (*old).clone();
            let new = a.u32(1);
            // Locked bits stay, and unknown ones are refused.
            let locked = (old.securebits & 0xaa) >> 1;
            if new & !0xff != 0
                || (old.securebits ^ new) & locked != 0
                || old.securebits & !new & 0xaa != 0
            {
                return Err(EPERM);
            }
            c.securebits = new;
            cx.task.set_cred(c);
            Ok(0)
        }
        29 => {
            let ns = a.u64(1);
            cx.timer_slack
                .store(if ns == 0 { 50_000 } else { ns }, Ordering::Relaxed);
            Ok(0)
        }
        30 => Ok(cx.timer_slack.load(Ordering::Relaxed) as usize),
        36 => {
            cx.group.subreaper.store(a.u64(1) != 0, Ordering::Relaxed);
            Ok(0)
        }
        37 => mm
            .write_obj(
                a.va(1),
                &i32::from(cx.group.subreaper.load(Ordering::Relaxed)),
            )
            .map(|()| 0),
        38 => {
            if a.u64(1) != 1 || !rest_zero {
                return Err(EINVAL);
            }
            cx.no_new_privs.store(true, Ordering::Relaxed);
            Ok(0)
        }
        39 => {
            if a.u64(1) != 0 || !rest_zero {
                return Err(EINVAL);
            }
            Ok(usize::from(cx.no_new_privs.load(Ordering::Relaxed)))
        }
        // PR_GET_THP_DISABLE
        42 => Ok(0),
        41 => Ok(0),
        // PR_CAP_AMBIENT
        47 => ambient(cx, a),
        // PR_SET_VMA: names for anonymous memory are not kept (as without CONFIG_ANON_VMA_NAME)
        0x5356_4d41 => Err(EINVAL),
        _ => Err(EINVAL),
    }
}

/// Adds the filter of a `struct sock_fprog`. With TSYNC, the id of a thread that stands against it.
fn add_filter(cx: &Context, va: Va, flags: u64) -> SysResult {
    let mm = cx.mm();
    let [len, code]: [u64; 2] = mm.read_obj(va)?;
    let len = usize::from(len as u16);
    if len == 0 || len > bpf::MAX_INSNS {
        return Err(EINVAL);
    }
    seccomp::may_install(cx)?;
    let mut insns = vec![<bpf::Insn as zerocopy::FromZeros>::new_zeroed(); len];
    mm.copy_in(Va(code), insns.as_mut_slice().as_mut_bytes())?;
    match seccomp::install(cx, &insns, flags) {
        Ok(()) => Ok(0),
        Err(seccomp::Refused::Thread(tid)) => Ok(cx.number_of(tid) as usize),
        Err(seccomp::Refused::Errno(e)) => Err(e),
    }
}

/// `seccomp(operation, flags, args)`.
fn sys_seccomp(cx: &mut Context, a: &Args) -> SysResult {
    let (flags, va) = (u64::from(a.u32(1)), a.va(2));
    match a.u32(0) {
        // SECCOMP_SET_MODE_STRICT
        0 if flags == 0 && va.is_null() => seccomp::set_strict(cx).map(|()| 0),
        // SECCOMP_SET_MODE_FILTER. NEW_LISTENER is refused as by kernels that do not know it.
        1 => {
            let known = seccomp::FLAG_TSYNC
                | seccomp::FLAG_LOG
                | seccomp::FLAG_SPEC_ALLOW
                | seccomp::FLAG_TSYNC_ESRCH;
            if flags & !known != 0 {
                return Err(EINVAL);
            }
            add_filter(cx, va, flags)
        }
        // SECCOMP_GET_ACTION_AVAIL
        2 if flags == 0 => {
            let action: u32 = cx.mm().read_obj(va)?;
            if seccomp::action_available(action) {
                Ok(0)
            } else {
                Err(EOPNOTSUPP)
            }
        }
        _ => Err(EINVAL),
    }
}

fn ambient(cx: &Context, a: &Args) -> SysResult {
    let (op, n) = (a.u64(1), a.u64(2));
    if a.u64(3) != 0 || a.u64(4) != 0 {
        return Err(EINVAL);
    }
    let mut c: Credentials = (*cx.cred()).clone();
    if op == 4 {
        if n != 0 {
            return Err(EINVAL);
        }
        c.ambient = Caps::empty();
        cx.task.set_cred(c);
        return Ok(0);
    }
    if n > 40 {
        return Err(EINVAL);
    }
    let bit = Caps::from_bits_retain(1 << n);
    match op {
        1 => return Ok(usize::from(c.ambient.contains(bit))),
        2 => {
            if !c.permitted.contains(bit)
                || !c.inheritable.contains(bit)
                || c.securebits & (1 << 6) != 0
            {
                return Err(EPERM);
            }
            c.ambient |= bit;
        }
        3 => c.ambient.remove(bit),
        _ => return Err(EINVAL),
    }
    cx.task.set_cred(c);
    Ok(0)
}

/// `arch_prctl(op, addr)`.
fn arch_prctl(cx: &mut Context, a: &Args) -> SysResult {
    let mut r = cx.regs();
    let v = a.u64(1);
    match a.u32(0) {
        // ARCH_SET_GS, ARCH_SET_FS
        0x1001 | 0x1002 if v >= platform::USER_MAX => return Err(EPERM),
        0x1001 => r.gs_base = v,
        0x1002 => r.fs_base = v,
        0x1003 => return cx.mm().write_obj(Va(v), &r.fs_base).map(|()| 0),
        0x1004 => return cx.mm().write_obj(Va(v), &r.gs_base).map(|()| 0),
        // ARCH_GET_CPUID: not faulting
        0x1011 => return Ok(1),
        _ => return Err(EINVAL),
    }
    cx.thread.set_regs(&r);
    Ok(0)
}

fn personality(_cx: &mut Context, a: &Args) -> SysResult {
    // Only PER_LINUX; 0xffffffff asks.
    match a.u32(0) {
        0 | u32::MAX => Ok(0),
        _ => Err(EINVAL),
    }
}

fn getrandom(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u32(2);
    if flags & !7 != 0 || flags & 6 == 6 {
        return Err(EINVAL);
    }
    let len = a.usize(1).min(32 << 20);
    let mm = cx.mm();
    let mut done = 0;
    let mut buf = [0u8; 1024];
    while done < len {
        let n = (len - done).min(buf.len());
        hostcall::time::random(&mut buf[..n]);
        let w = mm.write_bytes(a.va(0).offset(done as u64), &buf[..n]);
        done += w;
        if w < n {
            break;
        }
    }
    if done == 0 && len > 0 {
        Err(EFAULT)
    } else {
        Ok(done)
    }
}

fn sysinfo(cx: &mut Context, a: &Args) -> SysResult {
    let (total, free) = crate::fs::meminfo(&cx.kernel);
    let up = (hostcall::time::clock_nanos(CLOCK_BOOTTIME as i32) - cx.kernel.boot)
        / abi::time::NSEC_PER_SEC;
    let procs = cx.kernel.tasks.lock().task_count() as u64;
    let mut s = [0u64; 14];
    s[0] = up as u64;
    s[4] = total;
    s[5] = free;
    // procs is a u16 after eleven longs; mem_unit a u32 after totalhigh and freehigh.
    s[10] = procs & 0xffff;
    s[13] = 1;
    cx.mm().write_obj(a.va(0), &s)?;
    Ok(0)
}

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

/// `setns(fd, type)`.
fn setns(cx: &mut Context, a: &Args) -> SysResult {
    use crate::ns::{change, nsfs::NsFile};
    let f = cx.fd(a.i32(0))?;
    let target = if let Some(n) = f.ops::<NsFile>() {
        change::Target::One(n.0.clone())
    } else if let Some(p) = f.ops::<crate::fs::pidfd::PidFd>() {
        let l = cx.kernel.tasks.lock();
        let t = p.group(&l).and_then(|g| l.some_thread(g.tgid));
        change::Target::Of(t.ok_or(ESRCH)?)
    } else {
        return Err(EINVAL);
    };
    change::setns(cx, &target, a.u32(1)).map(|()| 0)
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
    super::memory::may_access(cx, &t)?;
    let got = t.fd(a.i32(1))?;
    crate::task::offers::taken(&t, &got);
    let fd = cx
        .files()
        .install(got, vfs::fd_table::CloseOnExec::Yes, cx.nofile_limit())?;
    Ok(fd as usize)
}

/// See [`crate::syscalls::families::ALL`].
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
    Call::new(63, "uname", &[Arg::Ptr], uname),
    Call::new(97, "getrlimit", &[Arg::Int, Arg::Ptr], getrlimit),
    Call::new(98, "getrusage", &[Arg::Int, Arg::Ptr], getrusage),
    Call::new(99, "sysinfo", &[Arg::Ptr], sysinfo),
    Call::new(102, "getuid", &[], getuid),
    Call::new(104, "getgid", &[], getgid),
    Call::new(105, "setuid", &[Arg::Uint], setuid),
    Call::new(106, "setgid", &[Arg::Uint], setgid),
    Call::new(107, "geteuid", &[], geteuid),
    Call::new(108, "getegid", &[], getegid),
    Call::new(109, "setpgid", &[Arg::Int, Arg::Int], setpgid),
    Call::new(110, "getppid", &[], getppid),
    Call::new(111, "getpgrp", &[], getpgrp),
    Call::new(112, "setsid", &[], setsid),
    Call::new(113, "setreuid", &[Arg::Int, Arg::Int], setreuid),
    Call::new(114, "setregid", &[Arg::Int, Arg::Int], setregid),
    Call::new(115, "getgroups", &[Arg::Int, Arg::Ptr], getgroups),
    Call::new(116, "setgroups", &[Arg::Int, Arg::Ptr], setgroups),
    Call::new(117, "setresuid", &[Arg::Int, Arg::Int, Arg::Int], setresuid),
    Call::new(118, "getresuid", &[Arg::Ptr, Arg::Ptr, Arg::Ptr], getresuid),
    Call::new(119, "setresgid", &[Arg::Int, Arg::Int, Arg::Int], setresgid),
    Call::new(120, "getresgid", &[Arg::Ptr, Arg::Ptr, Arg::Ptr], getresgid),
    Call::new(121, "getpgid", &[Arg::Int], getpgid),
    Call::new(122, "setfsuid", &[Arg::Int], setfsuid),
    Call::new(123, "setfsgid", &[Arg::Int], setfsgid),
    Call::new(124, "getsid", &[Arg::Int], getsid),
    Call::new(125, "capget", &[Arg::Ptr, Arg::Ptr], capget),
    Call::new(126, "capset", &[Arg::Ptr, Arg::Ptr], capset),
    Call::new(135, "personality", &[Arg::Hex], personality).note("PER_LINUX only"),
    Call::new(
        157,
        "prctl",
        &[Arg::Int, Arg::Hex, Arg::Hex, Arg::Hex, Arg::Hex],
        prctl,
    )
    .note("no names of memory"),
    Call::new(158, "arch_prctl", &[Arg::Hex, Arg::Hex], arch_prctl),
    Call::new(160, "setrlimit", &[Arg::Int, Arg::Ptr], setrlimit),
    Call::new(170, "sethostname", &[Arg::In(1), Arg::Int], sethostname),
    Call::new(171, "setdomainname", &[Arg::In(1), Arg::Int], setdomainname),
    Call::new(186, "gettid", &[], gettid),
    Call::new(
        202,
        "futex",
        &[
            Arg::Ptr,
            Arg::Enum(FUTEX_NAMES),
            Arg::Uint,
            Arg::Ptr,
            Arg::Ptr,
            Arg::Hex,
        ],
        sys_futex,
    )
    .note("PI futexes without priorities; no requeue to PI"),
    Call::new(218, "set_tid_address", &[Arg::Ptr], set_tid_address),
    Call::new(231, "exit_group", &[Arg::Int], exit_group),
    Call::new(
        247,
        "waitid",
        &[Arg::Int, Arg::Int, Arg::Ptr, Arg::Hex, Arg::Ptr],
        waitid,
    ),
    Call::new(
        273,
        "set_robust_list",
        &[Arg::Ptr, Arg::Uint],
        set_robust_list,
    ),
    Call::new(
        274,
        "get_robust_list",
        &[Arg::Int, Arg::Ptr, Arg::Ptr],
        get_robust_list,
    ),
    Call::new(
        302,
        "prlimit64",
        &[Arg::Int, Arg::Int, Arg::Ptr, Arg::Ptr],
        prlimit64,
    ),
    Call::new(308, "setns", &[Arg::Fd, Arg::Hex], setns).note("time namespaces: one"),
    Call::new(317, "seccomp", &[Arg::Int, Arg::Hex, Arg::Ptr], sys_seccomp)
        .note("no listeners (SECCOMP_FILTER_FLAG_NEW_LISTENER), nothing is logged"),
    Call::new(
        318,
        "getrandom",
        &[Arg::Out, Arg::Uint, Arg::Hex],
        getrandom,
    ),
    Call::new(
        322,
        "execveat",
        &[Arg::DirFd, Arg::Path, Arg::Strings, Arg::Ptr, Arg::Hex],
        execveat,
    ),
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
    Call::new(435, "clone3", &[Arg::Ptr, Arg::Uint], clone3).note("no set_tid; no time namespaces"),
];
