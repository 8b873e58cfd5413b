//! Signals: sending, dispositions, masks, waiting for them.

use crate::ThreadGroup;
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::list::TaskList;
use crate::task::signal::{SA_NODEFER, SigAction, check_permission};
use crate::task::{Context, frame};
use abi::errno::*;
use abi::signal::*;
use abi::time::Timespec;
use abi::{AltStack, Result, SigInfo, SigSet, Signal, Va};
use std::sync::Arc;
use std::time::Duration;
use wait::Events;

/// The size that every `sigset_t` argument must have.
const SIGSET: usize = 8;

fn signal_or_zero(n: i32) -> Result<Option<Signal>> {
    if n == 0 {
        Ok(None)
    } else {
        Signal::new(n).map(Some).ok_or(EINVAL)
    }
}

/// What kill(2) and its kin tell of the sender, as it sees itself.
pub fn sender_info(cx: &Context, s: Signal, code: i32) -> SigInfo {
    let c = cx.cred();
    SigInfo::from_sender(s, code, cx.group.pid.own(), c.user_ns.uid_shown(c.uid))
}

/// Sends a signal, or only asks whether it might (`None`), to one process.
fn send_process(cx: &Context, g: &Arc<ThreadGroup>, s: Option<Signal>) -> Result<()> {
    let t = cx.kernel.tasks.lock().some_thread(g.tgid);
    // A zombie may be signalled, to no effect.
    let Some(t) = t else { return Ok(()) };
    check_permission(cx, &t, s)?;
    match s {
        Some(s) => cx
            .kernel
            .send_from(cx, g, None, sender_info(cx, s, SI_USER)),
        None => Ok(()),
    }
}

/// As [`send_process`], to all that `members` finds.
fn send_many(
    cx: &Context,
    s: Option<Signal>,
    members: impl FnOnce(&TaskList) -> Vec<Arc<ThreadGroup>>,
) -> SysResult {
    let (mut any, mut last) = (false, ESRCH);
    let send = |g: &Arc<ThreadGroup>| match send_process(cx, g, s) {
        Ok(()) => any = true,
        Err(e) => last = e,
    };
    cx.kernel.send_to_all(members, send);
    if any { Ok(0) } else { Err(last) }
}

/// `kill(pid, sig)`.
fn kill(cx: &mut Context, a: &Args) -> SysResult {
    let (pid, s) = (a.i32(0), signal_or_zero(a.i32(1))?);
    match pid {
        1.. => {
            let g = {
                let l = cx.kernel.tasks.lock();
                // A thread's id means its process.
                let id = cx.id_of(pid)?;
                l.group(id).or_else(|| l.task(id).map(|t| t.group.clone()))
            };
            send_process(cx, &g.ok_or(ESRCH)?, s).map(|()| 0)
        }
        0 => {
            let pgid = cx.kernel.tasks.lock().pgid(cx.group.tgid);
            send_many(cx, s, |l| l.group_members(pgid))
        }
        -1 => {
            let others =
                |g: &Arc<ThreadGroup>| g.pid.seen_in(&cx.pid.ns) > 1 && g.tgid != cx.group.tgid;
            send_many(cx, s, |l| {
                let groups = l.processes().map(|p| p.group.clone());
                groups.filter(others).collect()
            })
        }
        i32::MIN => Err(ESRCH),
        _ => {
            let pgid = cx.id_of(-pid)?;
            send_many(cx, s, |l| l.group_members(pgid))
        }
    }
}

fn send_thread(
    cx: &Context,
    tgid: Option<i32>,
    tid: i32,
    s: Option<Signal>,
    info: SigInfo,
) -> SysResult {
    if tid <= 0 || tgid.is_some_and(|t| t <= 0) {
        return Err(EINVAL);
    }
    let t = cx.find_task(tid)?;
    if tgid.is_some_and(|g| g != t.group.pid.seen_in(&cx.pid.ns)) {
        return Err(ESRCH);
    }
    check_permission(cx, &t, s)?;
    if s.is_some() {
        cx.kernel.send_from(cx, &t.group, Some(&t), info)?;
    }
    Ok(0)
}

/// `tgkill(tgid, tid, sig)`.
fn tgkill(cx: &mut Context, a: &Args) -> SysResult {
    let s = signal_or_zero(a.i32(2))?;
    let info = s.map_or(SigInfo::new(SIGKILL, 0), |s| sender_info(cx, s, SI_TKILL));
    send_thread(cx, Some(a.i32(0)), a.i32(1), s, info)
}

/// `tkill(tid, sig)`.
fn tkill(cx: &mut Context, a: &Args) -> SysResult {
    let s = signal_or_zero(a.i32(1))?;
    let info = s.map_or(SigInfo::new(SIGKILL, 0), |s| sender_info(cx, s, SI_TKILL));
    send_thread(cx, None, a.i32(0), s, info)
}

fn read_info(cx: &Context, va: Va, s: Option<Signal>, to_self: bool) -> Result<SigInfo> {
    let mut info: SigInfo = cx.mm().read_obj(va)?;
    info.signo = s.map_or(0, Signal::number);
    // Only the kernel and kill(2) may claim these codes.
    if (info.code >= 0 || info.code == SI_TKILL) && !to_self {
        return Err(EPERM);
    }
    Ok(info)
}

/// `rt_sigqueueinfo(tgid, sig, info)`.
fn rt_sigqueueinfo(cx: &mut Context, a: &Args) -> SysResult {
    let (pid, s) = (a.i32(0), signal_or_zero(a.i32(1))?);
    let info = read_info(cx, a.va(2), s, pid == cx.group.pid.own())?;
    let g = cx.find_group(pid)?;
    let thread = cx.kernel.tasks.lock().some_thread(g.tgid);
    if let Some(t) = thread {
        check_permission(cx, &t, s)?;
    }
    if s.is_some() {
        cx.kernel.send_from(cx, &g, None, info)?;
    }
    Ok(0)
}

/// `rt_tgsigqueueinfo(tgid, tid, sig, info)`.
fn rt_tgsigqueueinfo(cx: &mut Context, a: &Args) -> SysResult {
    let s = signal_or_zero(a.i32(2))?;
    let info = read_info(cx, a.va(3), s, a.i32(0) == cx.group.pid.own())?;
    send_thread(cx, Some(a.i32(0)), a.i32(1), s, info)
}

/// `rt_sigaction(sig, act, oldact, sigsetsize)`.
fn rt_sigaction(cx: &mut Context, a: &Args) -> SysResult {
    if a.usize(3) != SIGSET {
        return Err(EINVAL);
    }
    let s = Signal::new(a.i32(0)).ok_or(EINVAL)?;
    let mm = cx.mm();
    let new = match a.va_opt(1) {
        None => None,
        Some(va) => {
            if SigSet::UNBLOCKABLE.contains(s) {
                return Err(EINVAL);
            }
            let mut act: SigAction = mm.read_obj(va)?;
            act.mask = act.mask.minus(SigSet::UNBLOCKABLE);
            // Flags that the kernel knows; the rest reads back as zero (SA_UNSUPPORTED is how to ask).
            act.flags &= 0xdc00_0807;
            let _ = SA_NODEFER;
            Some(act)
        }
    };
    let actions = cx.group.actions();
    let old = actions.read().get(s);
    if let Some(new) = new {
        let ignored = {
            let mut w = actions.write();
            w.set(s, new);
            w.ignores(s)
        };
        // A signal that is ignored from now on is no longer pending.
        if ignored {
            cx.group.shared.discard(SigSet::of(s));
            for t in cx.kernel.tasks.lock().threads(cx.group.tgid) {
                t.pending.discard(SigSet::of(s));
            }
            cx.group.timers.dropped(s);
        }
    }
    if let Some(va) = a.va_opt(2) {
        mm.write_obj(va, &old)?;
    }
    Ok(0)
}

/// `rt_sigprocmask(how, set, oldset, sigsetsize)`.
fn rt_sigprocmask(cx: &mut Context, a: &Args) -> SysResult {
    if a.usize(3) != SIGSET {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let old = cx.mask();
    if let Some(va) = a.va_opt(1) {
        let set: SigSet = mm.read_obj(va)?;
        cx.task.set_mask(match a.i32(0) {
            0 => old.union(set),
            1 => old.minus(set),
            2 => set,
            _ => return Err(EINVAL),
        });
    }
    if let Some(va) = a.va_opt(2) {
        mm.write_obj(va, &old)?;
    }
    Ok(0)
}

/// `rt_sigpending(set, sigsetsize)`.
fn rt_sigpending(cx: &mut Context, a: &Args) -> SysResult {
    let len = a.usize(1);
    if len > SIGSET {
        return Err(EINVAL);
    }
    let set = cx.pending.bits().union(cx.group.shared.bits()).0 & cx.mask().0;
    cx.mm().copy_out(a.va(0), &set.to_le_bytes()[..len])?;
    Ok(0)
}

/// Installs a mask until a handler returns, as `sigsuspend(2)`, `ppoll(2)` and the like do.
pub fn set_temporary_mask(cx: &mut Context, mask: SigSet) {
    cx.saved_mask.get_or_insert(cx.task.mask());
    cx.task.set_mask(mask);
}

/// Ends a temporary mask, unless a signal interrupted: then its handler still runs under it
/// (`restore_saved_sigmask_unless`).
pub fn restore_mask(cx: &mut Context, interrupted: bool) {
    if !interrupted && let Some(m) = cx.saved_mask.take() {
        cx.task.set_mask(m);
    }
}

/// Reads the `sigset_t` argument of `ppoll(2)` and its kin; `None` for a null pointer.
pub fn mask_arg(cx: &Context, va: Va, len: usize) -> Result<Option<SigSet>> {
    if va.is_null() {
        return Ok(None);
    }
    if len != SIGSET {
        return Err(EINVAL);
    }
    Ok(Some(cx.mm().read_obj(va)?))
}

/// `rt_sigsuspend(mask, sigsetsize)`.
fn rt_sigsuspend(cx: &mut Context, a: &Args) -> SysResult {
    if a.usize(1) != SIGSET {
        return Err(EINVAL);
    }
    let mask: SigSet = cx.mm().read_obj(a.va(0))?;
    set_temporary_mask(cx, mask);
    sleep_for_signal(cx)
}

fn sleep_for_signal(cx: &Context) -> SysResult {
    let never = || Err(EAGAIN);
    cx.block(&[], None, never).map_err(|_| ERESTARTNOHAND)
}

/// `pause()`.
fn pause(cx: &mut Context, _: &Args) -> SysResult {
    sleep_for_signal(cx)
}

/// `rt_sigtimedwait(set, info, timeout, sigsetsize)`.
fn rt_sigtimedwait(cx: &mut Context, a: &Args) -> SysResult {
    if a.usize(3) != SIGSET {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let set: SigSet = mm.read_obj(a.va(0))?;
    let set = set.minus(SigSet::UNBLOCKABLE);
    let timeout = match a.va_opt(2) {
        None => None,
        Some(va) => Some(mm.read_obj::<Timespec>(va)?.to_nanos().ok_or(EINVAL)?),
    };
    let deadline = timeout.and_then(|n| wait::deadline_after(Duration::from_nanos(n as u64)));
    let got = if timeout == Some(0) {
        cx.take_signal(set)
    } else {
        // While it waits, the signals of the set count as unblocked for the sender's choice of a thread;
        // they are taken here, because the queues' listeners wake us before the boundary is reached.
        let own = cx.task.clone();
        let q = [
            (&own.pending.wait, Events::READABLE),
            (&own.group.shared.wait, Events::READABLE),
        ];
        match own.block(&q, deadline, || own.take_signal(set).ok_or(EAGAIN)) {
            Ok(i) => Some(i),
            Err(ETIMEDOUT) => None,
            Err(_) => return Err(EINTR),
        }
    };
    let info = got.ok_or(EAGAIN)?;
    if let Some(va) = a.va_opt(1) {
        mm.write_obj(va, &info)?;
    }
    Ok(info.signo as usize)
}

/// `sigaltstack(ss, old_ss)`. Traps, for it depends on the stack pointer; or is answered where it is made
/// (`stub::lane`).
fn sigaltstack(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let sp = cx.regs().rsp;
    let old = cx.altstack;
    if let Some(va) = a.va_opt(0) {
        let new: AltStack = mm.read_obj(va)?;
        if old.holds(sp) {
            return Err(EPERM);
        }
        cx.altstack = new.checked(&old)?;
    }
    if let Some(va) = a.va_opt(1) {
        mm.write_obj(va, &old.shown(sp))?;
    }
    Ok(0)
}

/// `rt_sigreturn()`.
fn rt_sigreturn(cx: &mut Context, _: &Args) -> SysResult {
    if frame::pop(cx).is_err() {
        let segv = SigInfo::new(SIGSEGV, SI_KERNEL);
        cx.kernel.force(&cx.task, segv);
    }
    cx.regs_final = true;
    Ok(0)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        13,
        "rt_sigaction",
        &[Arg::Signal, Arg::Ptr, Arg::Ptr, Arg::Uint],
        rt_sigaction,
    ),
    Call::new(
        14,
        "rt_sigprocmask",
        &[Arg::Int, Arg::SigSet, Arg::Ptr, Arg::Uint],
        rt_sigprocmask,
    ),
    Call::new(15, "rt_sigreturn", &[], rt_sigreturn),
    Call::new(34, "pause", &[], pause),
    Call::new(62, "kill", &[Arg::Int, Arg::Signal], kill),
    Call::new(127, "rt_sigpending", &[Arg::Ptr, Arg::Uint], rt_sigpending),
    Call::new(
        128,
        "rt_sigtimedwait",
        &[Arg::SigSet, Arg::Ptr, Arg::Timespec, Arg::Uint],
        rt_sigtimedwait,
    ),
    Call::new(
        129,
        "rt_sigqueueinfo",
        &[Arg::Int, Arg::Signal, Arg::Ptr],
        rt_sigqueueinfo,
    ),
    Call::new(
        130,
        "rt_sigsuspend",
        &[Arg::SigSet, Arg::Uint],
        rt_sigsuspend,
    ),
    Call::new(131, "sigaltstack", &[Arg::Ptr, Arg::Ptr], sigaltstack),
    Call::new(200, "tkill", &[Arg::Int, Arg::Signal], tkill),
    Call::new(234, "tgkill", &[Arg::Int, Arg::Int, Arg::Signal], tgkill),
    Call::new(
        297,
        "rt_tgsigqueueinfo",
        &[Arg::Int, Arg::Int, Arg::Signal, Arg::Ptr],
        rt_tgsigqueueinfo,
    ),
];
