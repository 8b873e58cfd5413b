//! Processes: making, replacing, ending and waiting for them; their ids, groups and sessions.

use super::args::*;
use super::limits::rusage;
use super::{SysResult, read_sized};
use crate::task::Context;
use crate::task::clone::{CloneArgs, CloneFlags, SET_TID_MAX, clone as make_task};
use crate::task::exec::{ByFd, ExecRequest, exec};
use crate::task::exit::exited;
use crate::task::limits;
use crate::task::wait4::{Change, Who, wait};
use abi::errno::*;
use abi::linux::WEXITED;
use abi::signal::SIGCHLD;
use abi::{Result, SigInfo, Signal, Va};
use std::sync::atomic::Ordering;
use vfs::At;
use vfs::walk::Walk;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

flags! {
    /// Of wait4(2).
    struct WaitOptions: u32, refused {
        WNOHANG,
        WUNTRACED,
        WCONTINUED,
        __WNOTHREAD,
        __WALL,
        __WCLONE,
    }
}

flags! {
    /// Of waitid(2).
    pub(super) struct WaitIdOptions: u32, refused {
        WNOHANG,
        WSTOPPED,
        WEXITED,
        WCONTINUED,
        WNOWAIT,
        __WNOTHREAD,
        __WALL,
        __WCLONE,
    }
}

named! {
    /// What waitid(2)'s number is.
    pub(super) struct WaitFor(u32) {
        P_ALL,
        P_PID,
        P_PGID,
        P_PIDFD,
    }
}

/// clone(2)'s first word. Its upper half is not looked at.
///
/// ```text
///  31                      8 7              0
/// +-------------------------+----------------+
/// | CLONE_VM, CLONE_FS, ... | signal at exit |
/// +-------------------------+----------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CloneWord {
    flags: CloneFlags,
    exit_signal: u8,
}

impl CloneWord {
    const fn new(raw: u64) -> CloneWord {
        CloneWord {
            flags: CloneFlags::from_bits_retain(raw & 0xffff_ff00),
            exit_signal: raw as u8,
        }
    }
}

impl Argument for CloneWord {
    const SHOW: Show = Show::Words(|raw| {
        let word = CloneWord::new(raw[0]);
        let names = <CloneFlags as bitflags::Flags>::FLAGS.iter();
        let names = names.map(|f| (f.value().bits(), f.name()));
        let flags = text::flags(word.flags.bits(), names);
        match Signal::new(word.exit_signal.into()) {
            Some(s) if word.flags.is_empty() => format!("{s:?}"),
            Some(s) => format!("{flags}|{s:?}"),
            None => flags,
        }
    });
    fn decode(raw: &[u64]) -> Result<Self> {
        Ok(CloneWord::new(raw[0]))
    }
}

/// `clone(flags, stack, parent_tid, child_tid, tls)`.
fn clone(
    cx: &mut Context,
    word: CloneWord,
    stack: Va,
    parent_tid: Va,
    child_tid: Va,
    tls: Bits,
) -> SysResult {
    // Both would lie in the same place.
    let both = CloneFlags::CLONE_PIDFD | CloneFlags::CLONE_PARENT_SETTID;
    if word.flags.contains(both) {
        return Err(EINVAL);
    }
    let args = CloneArgs {
        flags: word.flags,
        exit_signal: word.exit_signal.into(),
        stack: stack.0,
        parent_tid: parent_tid.0,
        child_tid: child_tid.0,
        tls: tls.0,
        pidfd: parent_tid.0,
        set_tid: Default::default(),
        cgroup: None,
    };
    make_task(cx, &args)
}

fn fork(cx: &mut Context) -> SysResult {
    make_task(
        cx,
        &CloneArgs {
            exit_signal: SIGCHLD.number() as u64,
            ..CloneArgs::default()
        },
    )
}

fn vfork(cx: &mut Context) -> SysResult {
    let flags = CloneFlags::CLONE_VFORK | CloneFlags::CLONE_VM;
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

/// The numbers that clone3(2) is asked for.
fn set_tid(cx: &Context, at: u64, count: u64) -> Result<(usize, [i32; SET_TID_MAX])> {
    let mut all = [0; SET_TID_MAX];
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    if count > SET_TID_MAX || (at == 0) != (count == 0) {
        return Err(EINVAL);
    }
    cx.mm().copy_in(Va(at), all[..count].as_mut_bytes())?;
    Ok((count, all))
}

/// `clone3(args, size)`.
fn clone3(cx: &mut Context, args: Va, size: usize) -> SysResult {
    if size > 4096 {
        return Err(E2BIG);
    }
    if size < 64 {
        return Err(EINVAL);
    }
    let mut raw = [0u8; 88];
    read_sized(cx, args, size, &mut raw)?;
    let r = RawCloneArgs::read_from_bytes(&raw).map_err(|_| EINVAL)?;
    // CLONE_DETACHED, and the exit signal in the flags, belong to clone(2).
    let flags = CloneFlags::from_bits(r.flags).ok_or(EINVAL)?;
    if flags.contains(CloneFlags::CLONE_DETACHED) || r.exit_signal > 64 {
        return Err(EINVAL);
    }
    let of_parent = CloneFlags::CLONE_THREAD | CloneFlags::CLONE_PARENT;
    if flags.intersects(of_parent) && r.exit_signal != 0 {
        return Err(EINVAL);
    }
    if (r.stack == 0) != (r.stack_size == 0) {
        return Err(EINVAL);
    }
    let set_tid = set_tid(cx, r.set_tid, r.set_tid_size)?;
    let cgroup = if flags.contains(CloneFlags::CLONE_INTO_CGROUP) {
        if size < 88 {
            return Err(EINVAL);
        }
        Some(i32::try_from(r.cgroup).map_err(|_| EINVAL)?)
    } else {
        None
    };
    let args = CloneArgs {
        flags,
        exit_signal: r.exit_signal,
        stack: r.stack.wrapping_add(r.stack_size),
        parent_tid: r.parent_tid,
        child_tid: r.child_tid,
        tls: r.tls,
        pidfd: r.pidfd,
        set_tid,
        cgroup,
    };
    make_task(cx, &args)
}

/// Reads a null-terminated array of strings.
fn strings(cx: &Context, list: StringsPtr) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    let va = list.0;
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
fn execve(cx: &mut Context, path: PathPtr, argv: StringsPtr, envp: Va) -> SysResult {
    let path = path.read(cx)?;
    let req = ExecRequest {
        at: At::Cwd,
        path,
        walk: Walk::FOLLOW,
        by_fd: None,
        argv: argv_of(cx, argv)?,
        envp: strings(cx, StringsPtr(envp))?,
    };
    exec(cx, req).map(|()| 0)
}

/// An empty argv becomes one empty string, as Linux 5.18 does.
fn argv_of(cx: &Context, list: StringsPtr) -> Result<Vec<Vec<u8>>> {
    let mut v = strings(cx, list)?;
    if v.is_empty() {
        v.push(Vec::new());
    }
    Ok(v)
}

/// `execveat(dirfd, path, argv, envp, flags)`.
fn execveat(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    argv: StringsPtr,
    envp: Va,
    flags: AtFlags,
) -> SysResult {
    let path = path.read(cx)?;
    if path.is_empty() && !flags.contains(AtFlags::AT_EMPTY_PATH) {
        return Err(ENOENT);
    }
    if !(AtFlags::AT_EMPTY_PATH | AtFlags::AT_SYMLINK_NOFOLLOW).contains(flags) {
        return Err(EINVAL);
    }
    let mut walk = if flags.contains(AtFlags::AT_SYMLINK_NOFOLLOW) {
        Walk::empty()
    } else {
        Walk::FOLLOW
    };
    let files = cx.files();
    let by_fd = match path.is_empty() {
        true => Some(ByFd {
            name: format!("/dev/fd/{}", dirfd.0).into_bytes(),
            closes: files.cloexec(dirfd.0)? == vfs::fd_table::CloseOnExec::Yes,
        }),
        false => None,
    };
    if by_fd.is_some() {
        walk |= Walk::EMPTY;
    }
    let req = ExecRequest {
        at: At::new(&files, dirfd.0, &path)?,
        path,
        walk,
        by_fd,
        argv: argv_of(cx, argv)?,
        envp: strings(cx, StringsPtr(envp))?,
    };
    exec(cx, req).map(|()| 0)
}

fn exit(cx: &mut Context, status: i32) -> SysResult {
    cx.exit = Some(exited(status));
    Ok(0)
}

fn exit_group(cx: &mut Context, status: i32) -> SysResult {
    let status = exited(status);
    let kernel = cx.kernel.clone();
    kernel.kill_group(&cx.group, status);
    cx.exit = Some(status);
    Ok(0)
}

fn wait4(
    cx: &mut Context,
    tid: Tid,
    status: Option<UserOut<i32>>,
    options: WaitOptions,
    usage: Option<UserOut<[u64; 18]>>,
) -> SysResult {
    let who = match tid.0 {
        -1 => Who::Any,
        0 => Who::Group(cx.kernel.tasks.lock().pgid(cx.group.tgid)),
        i32::MIN => return Err(ESRCH),
        p if p < 0 => Who::Group(cx.id_of(-p).map_err(|_| ECHILD)?),
        p => Who::Pid(cx.id_of(p).map_err(|_| ECHILD)?),
    };
    let Some(c) = wait(cx, who, options.bits() | WEXITED)? else {
        return Ok(0);
    };
    let mm = cx.mm();
    if let Some(status) = status {
        status.write(&mm, &c.status)?;
    }
    if let Some(usage) = usage {
        usage.write(&mm, &rusage(c.cpu, 0))?;
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
pub(super) fn waitid(
    cx: &mut Context,
    which: WaitFor,
    id: i32,
    info: Option<Va>,
    options: WaitIdOptions,
    usage: Option<UserOut<[u64; 18]>>,
) -> SysResult {
    let kinds = WaitIdOptions::WEXITED | WaitIdOptions::WSTOPPED | WaitIdOptions::WCONTINUED;
    if !options.intersects(kinds) {
        return Err(EINVAL);
    }
    let who = waited_for(cx, which, id)?;
    // A pidfd may say, too, that nobody waits: then that is an error.
    let waits = which != WaitFor::P_PIDFD || !Fd(id).any_file(cx)?.nonblocking();
    let no_hang = if waits {
        0
    } else {
        WaitIdOptions::WNOHANG.bits()
    };
    let r = match wait(cx, who, options.bits() | no_hang) {
        Ok(None) if !waits && !options.contains(WaitIdOptions::WNOHANG) => Err(EAGAIN),
        r => r,
    };
    let mm = cx.mm();
    if let (Err(e), Some(va)) = (&r, info) {
        // The info is written even where the call fails (`kernel/exit.c`).
        put_info(&mm, va, None)?;
        return Err(*e);
    }
    let c: Option<Change> = r?;
    if let (Some(va), Some(c)) = (usage, &c) {
        va.write(&mm, &rusage(c.cpu, 0))?;
    }
    if let Some(va) = info {
        put_info(&mm, va, c.as_ref())?;
    }
    Ok(0)
}

/// Whether there is a change of a child that waitid(2) would tell of now.
pub(super) fn has_change(
    cx: &Context,
    which: WaitFor,
    id: i32,
    options: WaitIdOptions,
) -> Result<bool> {
    let kinds = WaitIdOptions::WEXITED | WaitIdOptions::WSTOPPED | WaitIdOptions::WCONTINUED;
    if !options.intersects(kinds) {
        return Err(EINVAL);
    }
    let who = waited_for(cx, which, id)?;
    wait(cx, who, options.bits()).map(|c| c.is_some())
}

/// Whom waitid(2)'s numbers mean.
fn waited_for(cx: &Context, which: WaitFor, id: i32) -> Result<Who> {
    Ok(match which {
        WaitFor::P_ALL => Who::Any,
        WaitFor::P_PID if id > 0 => Who::Pid(cx.id_of(id).map_err(|_| ECHILD)?),
        WaitFor::P_PGID if id == 0 => Who::Group(cx.kernel.tasks.lock().pgid(cx.group.tgid)),
        WaitFor::P_PGID if id > 0 => Who::Group(cx.id_of(id).map_err(|_| ECHILD)?),
        WaitFor::P_PIDFD => {
            let f = Fd(id).any_file(cx)?;
            let p = f.ops::<crate::task::pidfd::PidFd>().ok_or(EBADF)?;
            let l = cx.kernel.tasks.lock();
            Who::Pid(p.group(&l).ok_or(ECHILD)?.tgid)
        }
        _ => return Err(EINVAL),
    })
}

fn getpid(cx: &mut Context) -> SysResult {
    Ok(cx.group.pid.own() as usize)
}
fn gettid(cx: &mut Context) -> SysResult {
    Ok(cx.pid.own() as usize)
}
fn getppid(cx: &mut Context) -> SysResult {
    let l = cx.kernel.tasks.lock();
    Ok(l.number(l.parent(cx.group.tgid), &cx.pid.ns) as usize)
}
fn getpgrp(cx: &mut Context) -> SysResult {
    let l = cx.kernel.tasks.lock();
    Ok(l.number(l.pgid(cx.group.tgid), &cx.pid.ns) as usize)
}
fn getpgid(cx: &mut Context, tid: Tid) -> SysResult {
    id_of(cx, tid, |p| p.pgid)
}
fn getsid(cx: &mut Context, tid: Tid) -> SysResult {
    id_of(cx, tid, |p| p.sid)
}
fn id_of(cx: &Context, tid: Tid, f: fn(&crate::task::list::Process) -> i32) -> SysResult {
    let l = cx.kernel.tasks.lock();
    let tgid = if tid.0 == 0 {
        cx.group.tgid
    } else {
        let id = cx.id_of(tid.0)?;
        l.task(id).map_or(id, |t| t.group.tgid)
    };
    let id = l.process(tgid).map(f).ok_or(ESRCH)?;
    Ok(l.number(id, &cx.pid.ns) as usize)
}
fn setsid(cx: &mut Context) -> SysResult {
    cx.kernel.tasks.lock().new_session(cx.group.tgid)?;
    cx.group.without_terminal.store(false, Ordering::Relaxed);
    Ok(cx.group.pid.own() as usize)
}

/// `setpgid(pid, pgid)`.
fn setpgid(cx: &mut Context, tid: Tid, pgid: Tid) -> SysResult {
    let (pid, pgid) = (tid.0, pgid.0);
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

calls! {
    getpid,
    clone,
    fork,
    vfork,
    execve,
    exit,
    wait4,
    setpgid,
    getppid,
    getpgrp,
    setsid,
    getpgid,
    getsid,
    gettid,
    exit_group,
    waitid,
    execveat,
    clone3,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_word_is_flags_and_a_signal() {
        const VM: u64 = CloneFlags::CLONE_VM.bits();
        let word = CloneWord::new(VM | 17 | 1 << 40);
        assert_eq!(word.flags, CloneFlags::CLONE_VM);
        assert_eq!(word.exit_signal, 17);
        let Show::Words(show) = CloneWord::SHOW else {
            panic!("it shows memory");
        };
        assert_eq!(show(&[17]), "SIGCHLD");
        assert_eq!(show(&[VM | 17]), "CLONE_VM|SIGCHLD");
        assert_eq!(show(&[VM]), "CLONE_VM");
    }
}
