//! The tracer's side: becoming one, and what it asks of a tracee that stands still.
//!
//! Everything here works on the copy of the tracee's state that lies in its stop (see the
//! [module](super)), and never on a tracee that runs: `ESRCH`.

use super::registers::GENERAL;
use super::{By, CpuCopy, Link, Mode, Options, State, Stop, Traps};
use crate::task::access::{self, CredMutex};
use crate::task::seccomp;
use crate::task::{Context, Sleep, Task};
use abi::errno::{EAGAIN, EINVAL, EIO, EPERM, ESRCH};
use abi::ptrace::PTRACE_O_MASK;
use abi::signal::{SI_KERNEL, SIGSTOP};
use abi::{Result, SigInfo, SigSet, Va};
use platform::Regs;
use std::sync::Arc;
use vfs::Caps;
use wait::Events;

/// What PTRACE_GET_SYSCALL_INFO tells of where a tracee stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStop {
    /// At no system call.
    None,
    Entry,
    Exit,
    /// Its filter's data.
    Seccomp(u32),
}

/// How a tracee goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resume {
    pub mode: Mode,
    /// With this signal, 0 for none.
    pub signal: i32,
}

/// PTRACE_TRACEME: the caller's parent traces it.
pub fn trace_me(cx: &Context) -> Result<()> {
    {
        let mut l = cx.kernel.tasks.lock();
        if cx.trace.is_on() {
            return Err(EPERM);
        }
        // Somebody outside, or one that is about to end: nobody traces.
        let Some(parent) = l.parent_thread(cx.group.tgid) else {
            return Ok(());
        };
        let (me, it) = (cx.cred(), parent.cred());
        let no_more = me.user_ns == it.user_ns && it.permitted.contains(me.permitted);
        if !no_more && !it.has_in(&me.user_ns, Caps::SYS_PTRACE) {
            return Err(EPERM);
        }
        if !vfs::landlock::may_trace(it.landlock.as_ref(), me.landlock.as_ref()) {
            return Err(EPERM);
        }
        let link = Link {
            tracer: parent,
            // The tracer did not ask for it: its privileges do not count.
            cred: me,
            by: By::Attaching,
            options: Options::empty(),
        };
        l.link(cx, link);
    }
    cx.mm().end_patches();
    Ok(())
}

/// The options of a request (`check_ptrace_options`).
pub fn options(cx: &Context, raw: u64) -> Result<Options> {
    if raw & !u64::from(PTRACE_O_MASK) != 0 {
        return Err(EINVAL);
    }
    let o = Options::from_bits_truncate(raw as u32);
    if o.contains(Options::SUSPEND_SECCOMP) {
        let plain =
            cx.seccomp.mode() == seccomp::Mode::Disabled && !cx.trace.has(Options::SUSPEND_SECCOMP);
        if !cx.cred().has(Caps::SYS_ADMIN) || !plain {
            return Err(EPERM);
        }
    }
    Ok(o)
}

/// PTRACE_ATTACH and PTRACE_SEIZE (`ptrace_attach`).
pub fn attach(cx: &Context, t: &Arc<Task>, by: By, options: Options) -> Result<()> {
    // (A ring's thread runs no program, and stops for nobody.)
    if Arc::ptr_eq(&t.group, &cx.group) || t.uring.is_thread() {
        return Err(EPERM);
    }
    // No program begins between the check and the link.
    let guard = CredMutex::lock_of(cx, &t.group)?;
    access::may_access(cx, t, access::By::Real)?;
    {
        let mut l = cx.kernel.tasks.lock();
        let there = l.task(t.tid).is_some_and(|now| Arc::ptr_eq(&now, t)) && !l.leaves(t);
        if !there || t.trace.is_on() {
            return Err(EPERM);
        }
        let link = Link {
            tracer: cx.task.clone(),
            cred: cx.cred(),
            by,
            options,
        };
        l.link(t, link);
    }
    t.mm().end_patches();
    drop(guard);
    if by == By::Attaching {
        let _ = cx.kernel.send_to_task(t, SigInfo::new(SIGSTOP, SI_KERNEL));
    }
    t.kick();
    await_stop(cx, t);
    Ok(())
}

/// One whose process stands still already is to be found so by the tracer's next wait.
fn await_stop(cx: &Context, t: &Arc<Task>) {
    let shown = || {
        let waits = t.group.is_stopping() && t.must_stop() && !t.is_killed() && !t.must_hold();
        if waits { Err(EAGAIN) } else { Ok(()) }
    };
    let queue = [(&cx.group.child_wait, Events::IN)];
    let _ = cx.block_as(Sleep::Killable, &queue, None, shown);
}

impl State {
    fn is_mine(&self, cx: &Context) -> bool {
        self.link
            .as_ref()
            .is_some_and(|l| Arc::ptr_eq(&l.tracer, &cx.task))
    }
    fn is_seized(&self) -> bool {
        self.link.as_ref().is_some_and(|l| l.by == By::Seizing)
    }
}

/// Does something to the caller's tracee while it stands still; `ESRCH` where it does not.
fn with_stop<R>(
    cx: &Context,
    t: &Task,
    f: impl FnOnce(&mut Stop, &mut Option<Link>) -> Result<R>,
) -> Result<R> {
    let mut state = t.trace.state.lock();
    if !state.is_mine(cx) {
        return Err(ESRCH);
    }
    let State { link, stop, .. } = &mut *state;
    let stop = stop.as_mut().filter(|s| s.is_still()).ok_or(ESRCH)?;
    if t.is_killed() && !stop.at_exit {
        return Err(ESRCH);
    }
    f(stop, link)
}

/// Whether the caller traces `t`, which need not stand still; `ESRCH`.
pub fn is_tracer(cx: &Context, t: &Task) -> Result<()> {
    match t.trace.state.lock().is_mine(cx) {
        true => Ok(()),
        false => Err(ESRCH),
    }
}

/// Whether the caller traces `t`, and that stands still; `ESRCH`.
pub fn is_stopped(cx: &Context, t: &Task) -> Result<()> {
    with_stop(cx, t, |_, _| Ok(()))
}

/// Lets it go on (`ptrace_resume`).
pub fn resume(cx: &Context, t: &Arc<Task>, how: Resume) -> Result<()> {
    with_stop(cx, t, |stop, _| {
        t.trace.set_mode(how.mode);
        stop.resumed = Some(how.signal);
        Ok(())
    })?;
    t.kick();
    Ok(())
}

/// Lets it go (`ptrace_detach`).
pub fn detach(cx: &Context, t: &Arc<Task>, signal: i32) -> Result<()> {
    {
        let mut l = cx.kernel.tasks.lock();
        with_stop(cx, t, |stop, _| {
            stop.resumed = Some(signal);
            Ok(())
        })?;
        l.unlink(t);
    }
    t.kick();
    Ok(())
}

/// PTRACE_INTERRUPT.
pub fn interrupt(cx: &Context, t: &Arc<Task>) -> Result<()> {
    {
        let state = t.trace.state.lock();
        if !state.is_mine(cx) {
            return Err(ESRCH);
        }
        if !state.is_seized() {
            return Err(EIO);
        }
        t.trace.add_traps(Traps::STOP);
    }
    t.kick();
    Ok(())
}

/// PTRACE_LISTEN.
pub fn listen(cx: &Context, t: &Arc<Task>) -> Result<()> {
    with_stop(cx, t, |stop, link| {
        let seized = link.as_ref().is_some_and(|l| l.by == By::Seizing);
        if !seized || !stop.is_event_stop() {
            return Err(EIO);
        }
        stop.listening = true;
        Ok(())
    })?;
    // Something may have changed already.
    t.kick();
    Ok(())
}

/// PTRACE_SETOPTIONS.
pub fn set_options(cx: &Context, t: &Task, o: Options) -> Result<()> {
    with_stop(cx, t, |_, link| {
        if let Some(l) = link {
            l.options = o;
        }
        Ok(())
    })
}

/// PTRACE_GETEVENTMSG.
pub fn message(cx: &Context, t: &Task) -> Result<u64> {
    with_stop(cx, t, |s, _| Ok(s.message))
}

/// PTRACE_GETSIGINFO.
pub fn info(cx: &Context, t: &Task) -> Result<SigInfo> {
    with_stop(cx, t, |s, _| s.info.ok_or(EINVAL))
}

/// PTRACE_SETSIGINFO.
pub fn set_info(cx: &Context, t: &Task, new: SigInfo) -> Result<()> {
    with_stop(cx, t, |s, _| {
        *s.info.as_mut().ok_or(EINVAL)? = new;
        Ok(())
    })
}

/// PTRACE_GETSIGMASK: what is blocked when the call that waits with another mask is over.
pub fn mask(cx: &Context, t: &Task) -> Result<SigSet> {
    with_stop(cx, t, |s, _| Ok(s.copy.saved_mask.unwrap_or(s.copy.mask)))
}

/// PTRACE_SETSIGMASK.
pub fn set_mask(cx: &Context, t: &Task, mask: SigSet) -> Result<()> {
    with_stop(cx, t, |s, _| {
        let c = &mut s.copy;
        (c.mask, c.saved_mask, c.mask_changed) = (mask.minus(SigSet::UNBLOCKABLE), None, true);
        Ok(())
    })
}

/// A word of `struct user`.
pub fn peek_user(cx: &Context, t: &Task, at: u64) -> Result<u64> {
    with_stop(cx, t, |s, _| s.copy.peek_user(at))
}

/// Sets one.
pub fn poke_user(cx: &Context, t: &Task, at: u64, value: u64) -> Result<()> {
    with_stop(cx, t, |s, _| s.copy.poke_user(at, value))
}

/// A set of registers (`struct user_regset`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    General,
    Float,
    Extended,
}

impl Set {
    /// Its length in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Set::General => GENERAL,
            Set::Float => platform::xstate::LEGACY,
            Set::Extended => platform::xstate::XState::host().size,
        }
    }
}

/// The bytes of a set of registers.
pub fn registers(cx: &Context, t: &Task, set: Set) -> Result<Vec<u8>> {
    with_stop(cx, t, |s, _| Ok(bytes(&s.copy, set)))
}

fn bytes(c: &CpuCopy, set: Set) -> Vec<u8> {
    match set {
        Set::General => c.general().to_vec(),
        Set::Float => c.fxsave().to_vec(),
        Set::Extended => c.xstate(),
    }
}

/// Sets them.
pub fn set_registers(cx: &Context, t: &Task, set: Set, new: &[u8]) -> Result<()> {
    with_stop(cx, t, |s, _| match set {
        Set::General => s.copy.set_general(new),
        Set::Float => s.copy.set_fxsave(new),
        Set::Extended => s.copy.set_xstate(new),
    })
}

/// Where it stands, and its registers there.
pub fn call_stop(cx: &Context, t: &Task) -> Result<(CallStop, Regs)> {
    with_stop(cx, t, |s, _| Ok((place(s), s.copy.regs)))
}

fn place(s: &Stop) -> CallStop {
    use abi::ptrace::{
        PTRACE_EVENT_SECCOMP, PTRACE_EVENTMSG_SYSCALL_ENTRY, PTRACE_EVENTMSG_SYSCALL_EXIT,
    };
    const GOOD: i32 = 5 | 0x80;
    const SECCOMP: i32 = 5 | (PTRACE_EVENT_SECCOMP as i32) << 8;
    match (s.info.map_or(0, |i| i.code), s.message as u32) {
        (GOOD, PTRACE_EVENTMSG_SYSCALL_ENTRY) => CallStop::Entry,
        (GOOD, PTRACE_EVENTMSG_SYSCALL_EXIT) => CallStop::Exit,
        (SECCOMP, data) => CallStop::Seccomp(data),
        _ => CallStop::None,
    }
}

/// Changes its registers where it stands at the same kind of stop as `at`; `EINVAL`.
pub fn change_call(
    cx: &Context,
    t: &Task,
    same: impl FnOnce(CallStop) -> bool,
    change: impl FnOnce(&mut Regs) -> Result<()>,
) -> Result<()> {
    with_stop(cx, t, |s, _| {
        if !same(place(s)) {
            return Err(EINVAL);
        }
        change(&mut s.copy.regs)?;
        s.copy.regs_changed = true;
        Ok(())
    })
}

/// The word at an address of its memory (`ptrace_access_vm`).
pub fn peek(cx: &Context, t: &Task, va: Va) -> Result<u64> {
    let mut b = [0; 8];
    match memory(cx, t)?.read_forced(va, &mut b) {
        8 => Ok(u64::from_le_bytes(b)),
        _ => Err(EIO),
    }
}

/// Sets it.
pub fn poke(cx: &Context, t: &Task, va: Va, value: u64) -> Result<()> {
    match memory(cx, t)?.write_forced(va, &value.to_le_bytes()) {
        8 => Ok(()),
        _ => Err(EIO),
    }
}

/// The memory of a tracee that stands still. One that has become private since is for those who may
/// look in; the tracer's own privileges count, as they were when it became that.
fn memory(cx: &Context, t: &Task) -> Result<Arc<mm::Mm>> {
    let mm = t.mm();
    let privacy = mm.privacy();
    let owner = (!privacy.is_dumpable()).then(|| privacy.user_ns());
    let may = with_stop(cx, t, |_, link| {
        Ok(link.as_ref().is_some_and(|l| {
            owner
                .as_ref()
                .is_none_or(|ns| l.cred.has_in(ns, Caps::SYS_PTRACE))
        }))
    })?;
    if may { Ok(mm) } else { Err(EIO) }
}
