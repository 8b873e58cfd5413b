//! Signals: sending, dispositions, masks, waiting for them.

use super::SysResult;
use super::args::*;
use super::time::timespec_arg;
use crate::ThreadGroup;
use crate::task::list::TaskList;
use crate::task::signal::{SigAction, check_permission};
use crate::task::{Context, frame};
use abi::errno::*;
use abi::signal::*;
use abi::time::Timespec;
use abi::{AltStack, Errno, Result, SigInfo, SigSet, Signal, Va};
use std::sync::Arc;
use std::time::Duration;
use wait::Events;

opaque! { SigInfo SigAction AltStack }

named! {
    /// What rt_sigprocmask(2) does with its set.
    struct MaskHow(u32) {
        SIG_BLOCK,
        SIG_UNBLOCK,
        SIG_SETMASK,
    }
}

/// The size that every `sigset_t` argument must have.
const SIGSET: usize = 8;

/// What kill(2) and its kin tell of the sender, as it sees itself.
pub fn sender_info(cx: &Context, s: Signal, code: i32) -> SigInfo {
    let c = cx.cred();
    SigInfo::from_sender(s, code, cx.group.pid.own(), c.user_ns.uid_shown(c.uid))
}

/// What a call says of the signal that it sends.
pub(super) type About<'a> = &'a dyn Fn(Signal) -> SigInfo;

/// Sends a signal, or only asks whether it might (`None`), to one process.
pub(super) fn send_process(
    cx: &Context,
    g: &Arc<ThreadGroup>,
    s: Option<Signal>,
    about: About<'_>,
) -> Result<()> {
    let t = cx.kernel.tasks.lock().some_thread(g.tgid);
    // A zombie may be signalled, to no effect.
    let Some(t) = t else { return Ok(()) };
    check_permission(cx, &t, s)?;
    match s {
        Some(s) => cx.kernel.send_from(cx, g, None, about(s)),
        None => Ok(()),
    }
}

/// Who waits for its user's turn looks so often whether it is to end. (Not by `Task::block`: this
/// lock goes to who waits for it, also where another takes it again and again.)
const LOOK_UP: Duration = Duration::from_millis(10);

/// As [`send_process`], to all that `members` finds.
pub(super) fn send_many(
    cx: &Context,
    s: Result<Option<Signal>>,
    about: About<'_>,
    members: impl FnOnce(&TaskList) -> Vec<Arc<ThreadGroup>>,
) -> SysResult {
    let (mut any, mut last) = (false, ESRCH);
    let send = |g: &Arc<ThreadGroup>| match s.and_then(|s| send_process(cx, g, s, about)) {
        Ok(()) => any = true,
        Err(e) => last = e,
    };
    if s == Ok(None) {
        // Who is born meanwhile need not be asked.
        let all = members(&cx.kernel.tasks.lock());
        all.iter().for_each(send);
    } else {
        let user = cx.cred().ucounts().outermost();
        let _turn = loop {
            if let Some(turn) = user.turn().try_lock_for(LOOK_UP) {
                break turn;
            }
            if cx.is_killed() {
                return Err(ERESTARTNOINTR);
            }
        };
        cx.kernel.send_to_all(members, send);
    }
    if any { Ok(0) } else { Err(last) }
}

/// A process by its number; a thread's means its process (`kill_pid_info`).
fn process_of(cx: &Context, pid: i32) -> Result<Arc<ThreadGroup>> {
    let l = cx.kernel.tasks.lock();
    let id = cx.id_of(pid)?;
    let of_thread = || l.task(id).map(|t| t.group.clone());
    l.group(id).or_else(of_thread).ok_or(ESRCH)
}

/// `kill(pid, sig)`. A number that is no signal is told once there is somebody
/// (`check_kill_permission`).
fn kill(cx: &mut Context, tid: Tid, signal: SignalNumber) -> SysResult {
    let (pid, s) = (tid.0, signal.signal_or_none());
    let about = |s| sender_info(cx, s, SI_USER);
    match pid {
        1.. => {
            let g = process_of(cx, pid)?;
            send_process(cx, &g, s?, &about).map(|()| 0)
        }
        0 => {
            let pgid = cx.kernel.tasks.lock().pgid(cx.group.tgid);
            send_many(cx, s, &about, |l| l.group_members(pgid))
        }
        -1 => {
            let others =
                |g: &Arc<ThreadGroup>| g.pid.seen_in(&cx.pid.ns) > 1 && g.tgid != cx.group.tgid;
            let sent = send_many(cx, s, &about, |l| {
                let groups = l.processes().map(|p| p.group.clone());
                groups.filter(others).collect()
            });
            // Who may signal none of them is told nothing (`kill_something_info`).
            sent.or_else(|e| if e == EPERM { Ok(0) } else { Err(e) })
        }
        i32::MIN => Err(ESRCH),
        _ => {
            let pgid = cx.id_of(-pid)?;
            send_many(cx, s, &about, |l| l.group_members(pgid))
        }
    }
}

/// Sends to one thread, of the process `tgid` if one is named; without a signal it only asks.
fn send_thread(
    cx: &Context,
    tgid: Option<Tid>,
    tid: Tid,
    signal: SignalNumber,
    info: impl FnOnce(Signal) -> SigInfo,
) -> SysResult {
    if tid.0 <= 0 || tgid.is_some_and(|t| t.0 <= 0) {
        return Err(EINVAL);
    }
    let t = tid.task(cx)?;
    if tgid.is_some_and(|g| g.0 != t.group.pid.seen_in(&cx.pid.ns)) {
        return Err(ESRCH);
    }
    let s = signal.signal_or_none()?;
    check_permission(cx, &t, s)?;
    if let Some(s) = s {
        cx.kernel.send_from(cx, &t.group, Some(&t), info(s))?;
    }
    Ok(0)
}

/// `tgkill(tgid, tid, sig)`.
fn tgkill(cx: &mut Context, tgid: Tid, tid: Tid, signal: SignalNumber) -> SysResult {
    let info = |s| sender_info(cx, s, SI_TKILL);
    send_thread(cx, Some(tgid), tid, signal, info)
}

/// `tkill(tid, sig)`.
fn tkill(cx: &mut Context, tid: Tid, signal: SignalNumber) -> SysResult {
    let info = |s| sender_info(cx, s, SI_TKILL);
    send_thread(cx, None, tid, signal, info)
}

/// Reads what is claimed of a signal's sender. Only the kernel and kill(2) may claim some codes to
/// others than the caller itself.
fn read_info(cx: &Context, from: UserIn<SigInfo>, tgid: Tid) -> Result<SigInfo> {
    let info = from.read(&cx.mm())?;
    let to_self = tgid.0 == cx.group.pid.own();
    if (info.code >= 0 || info.code == SI_TKILL) && !to_self {
        return Err(EPERM);
    }
    Ok(info)
}

/// `rt_sigqueueinfo(tgid, sig, info)`.
fn rt_sigqueueinfo(
    cx: &mut Context,
    tgid: Tid,
    signal: SignalNumber,
    info: UserIn<SigInfo>,
) -> SysResult {
    let info = read_info(cx, info, tgid)?;
    let g = process_of(cx, tgid.0)?;
    let s = signal.signal_or_none()?;
    let thread = cx.kernel.tasks.lock().some_thread(g.tgid);
    if let Some(t) = thread {
        check_permission(cx, &t, s)?;
    }
    if let Some(s) = s {
        cx.kernel.send_from(cx, &g, None, claimed(info, s))?;
    }
    Ok(0)
}

/// `rt_tgsigqueueinfo(tgid, tid, sig, info)`.
fn rt_tgsigqueueinfo(
    cx: &mut Context,
    tgid: Tid,
    tid: Tid,
    signal: SignalNumber,
    info: UserIn<SigInfo>,
) -> SysResult {
    let info = read_info(cx, info, tgid)?;
    send_thread(cx, Some(tgid), tid, signal, |s| claimed(info, s))
}

/// What is claimed of a signal, which is the one that is asked for.
fn claimed(mut info: SigInfo, s: Signal) -> SigInfo {
    info.signo = s.number();
    info
}

/// The size of the sets: `EINVAL` before anything else where it is not `sizeof(sigset_t)`.
#[derive(Clone, Copy)]
struct SigSetSize;

impl Argument for SigSetSize {
    const SHOW: Show = <usize as Argument>::SHOW;
    #[inline(always)]
    fn decode(raw: &[u64]) -> Result<Self> {
        if raw[0] == SIGSET as u64 {
            Ok(SigSetSize)
        } else {
            Err(EINVAL)
        }
    }
}

/// `rt_sigaction(sig, act, oldact, sigsetsize)`.
fn rt_sigaction(
    cx: &mut Context,
    signal: SignalNumber,
    new: Option<UserIn<SigAction>>,
    old: Option<UserOut<SigAction>>,
    _size: SigSetSize,
) -> SysResult {
    let s = signal.signal()?;
    let mm = cx.mm();
    let new = match new {
        None => None,
        Some(va) => {
            if SigSet::UNBLOCKABLE.contains(s) {
                return Err(EINVAL);
            }
            let mut act = va.read(&mm)?;
            act.mask = act.mask.minus(SigSet::UNBLOCKABLE);
            // Flags that the kernel knows; the rest reads back as zero (SA_UNSUPPORTED is how to
            // ask).
            act.flags &= 0xdc00_0807;
            Some(act)
        }
    };
    let actions = cx.group.actions();
    let before = actions.read().get(s);
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
    if let Some(old) = old {
        old.write(&mm, &before)?;
    }
    Ok(0)
}

/// `rt_sigprocmask(how, set, oldset, sigsetsize)`.
fn rt_sigprocmask(
    cx: &mut Context,
    how: MaskHow,
    new: Option<UserIn<SigSet>>,
    old: Option<UserOut<SigSet>>,
    _size: SigSetSize,
) -> SysResult {
    let mm = cx.mm();
    let before = cx.mask();
    if let Some(new) = new {
        let set = new.read(&mm)?;
        cx.task.set_mask(match how {
            MaskHow::SIG_BLOCK => before.union(set),
            MaskHow::SIG_UNBLOCK => before.minus(set),
            MaskHow::SIG_SETMASK => set,
            _ => return Err(EINVAL),
        });
    }
    if let Some(old) = old {
        old.write(&mm, &before)?;
    }
    Ok(0)
}

/// `rt_sigpending(set, sigsetsize)`.
fn rt_sigpending(cx: &mut Context, set: Va, size: usize) -> SysResult {
    if size > SIGSET {
        return Err(EINVAL);
    }
    let pending = cx.pending.bits().union(cx.group.shared.bits()).0 & cx.mask().0;
    cx.mm().copy_out(set, &pending.to_le_bytes()[..size])?;
    Ok(0)
}

/// Installs a mask until a handler returns, as `sigsuspend(2)`, `ppoll(2)` and the like do.
pub fn set_temporary_mask(cx: &mut Context, mask: SigSet) {
    cx.saved_mask.get_or_insert(cx.task.mask());
    cx.task.set_mask(mask);
}

/// How a call under a temporary mask ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    ByItself,
    BySignal,
}

impl Ended {
    /// `interrupted` is what the call gives where a signal interrupted it.
    #[must_use]
    pub fn with(r: &SysResult, interrupted: Errno) -> Ended {
        if *r == Err(interrupted) {
            Ended::BySignal
        } else {
            Ended::ByItself
        }
    }
}

/// Ends a temporary mask, unless a signal interrupted: then its handler still runs under it
/// (`restore_saved_sigmask_unless`).
pub fn restore_mask(cx: &mut Context, ended: Ended) {
    if ended == Ended::ByItself
        && let Some(m) = cx.saved_mask.take()
    {
        cx.task.set_mask(m);
    }
}

/// The `sigset_t` argument of `ppoll(2)` and its kin, with its size, which counts only where there
/// is a mask.
#[derive(Clone, Copy)]
pub struct MaskArg {
    mask: Option<UserIn<SigSet>>,
    size: usize,
}

impl MaskArg {
    #[must_use]
    pub const fn new(mask: Option<UserIn<SigSet>>, size: usize) -> MaskArg {
        MaskArg { mask, size }
    }
    /// `None` for a null pointer.
    pub fn read(self, cx: &Context) -> Result<Option<SigSet>> {
        match self.mask {
            None => Ok(None),
            Some(_) if self.size != SIGSET => Err(EINVAL),
            Some(mask) => mask.read(&cx.mm()).map(Some),
        }
    }
}

impl Argument for MaskArg {
    const WORDS: usize = 2;
    const SHOW: Show = Show::Read(|mm, raw| match UserIn::<SigSet>::SHOW {
        Show::Read(show) => format!("{}, {}", show(mm, raw), raw[1]),
        Show::Words(_) | Show::Written(_) => text::pointer(raw[0]),
    });
    #[inline(always)]
    fn decode(raw: &[u64]) -> Result<Self> {
        Ok(MaskArg::new(Option::decode(raw)?, raw[1] as usize))
    }
}

/// `rt_sigsuspend(mask, sigsetsize)`.
fn rt_sigsuspend(cx: &mut Context, mask: UserIn<SigSet>, _size: SigSetSize) -> SysResult {
    let mask = mask.read(&cx.mm())?;
    set_temporary_mask(cx, mask);
    sleep_for_signal(cx)
}

fn sleep_for_signal(cx: &Context) -> SysResult {
    let never = || Err(EAGAIN);
    cx.block(&[], None, never).map_err(|_| ERESTARTNOHAND)
}

/// `pause()`.
fn pause(cx: &mut Context) -> SysResult {
    sleep_for_signal(cx)
}

/// `rt_sigtimedwait(set, info, timeout, sigsetsize)`.
fn rt_sigtimedwait(
    cx: &mut Context,
    set: UserIn<SigSet>,
    info: Option<UserOut<SigInfo>>,
    timeout: Option<UserIn<Timespec>>,
    _size: SigSetSize,
) -> SysResult {
    let mm = cx.mm();
    let set = set.read(&mm)?.minus(SigSet::UNBLOCKABLE);
    let timeout = timespec_arg(cx, timeout)?;
    let deadline = timeout.and_then(|n| wait::deadline_after(Duration::from_nanos(n as u64)));
    let got = if timeout == Some(0) {
        cx.take_signal(set)
    } else {
        // While it waits, the signals of the set count as unblocked for the sender's choice of a
        // thread; they are taken here, because the queues' listeners wake us before the boundary is
        // reached.
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
    let got = got.ok_or(EAGAIN)?;
    if let Some(info) = info {
        info.write(&mm, &got)?;
    }
    Ok(got.signo as usize)
}

/// `sigaltstack(ss, old_ss)`. Traps, for it depends on the stack pointer; or is answered where it
/// is made (`stub::lane`).
fn sigaltstack(
    cx: &mut Context,
    new: Option<UserIn<AltStack>>,
    old: Option<UserOut<AltStack>>,
) -> SysResult {
    let mm = cx.mm();
    let sp = cx.regs().rsp;
    let before = cx.altstack;
    if let Some(new) = new {
        let new = new.read(&mm)?;
        if before.holds(sp) {
            return Err(EPERM);
        }
        cx.altstack = new.checked(&before)?;
    }
    if let Some(old) = old {
        old.write(&mm, &before.shown(sp))?;
    }
    Ok(0)
}

/// `rt_sigreturn()`.
fn rt_sigreturn(cx: &mut Context) -> SysResult {
    if frame::pop(cx).is_err() {
        let segv = SigInfo::new(SIGSEGV, SI_KERNEL);
        cx.kernel.force(&cx.task, segv);
    }
    cx.regs_final = true;
    Ok(0)
}

calls! {
    rt_sigaction,
    rt_sigprocmask,
    rt_sigreturn,
    pause,
    kill,
    rt_sigpending,
    rt_sigtimedwait,
    rt_sigqueueinfo,
    rt_sigsuspend,
    sigaltstack,
    tkill,
    tgkill,
    rt_tgsigqueueinfo,
}
