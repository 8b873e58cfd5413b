//! The tracee's side: where it stops for its tracer, and how it goes on. All of it runs on the
//! tracee's own thread.

use super::{CpuCopy, Mode, Options, Stop, Traps, child_info, trap_info};
use crate::task::clone::{CloneArgs, CloneFlags};
use crate::task::signal::{CLD_STOPPED, CLD_TRAPPED, From, SA_NOCLDSTOP, SIG_IGN};
use crate::task::{Context, Sleep, Task, run};
use abi::errno::{EAGAIN, ENOSYS};
use abi::ptrace::*;
use abi::signal::{SI_KERNEL, SI_USER, SIGCHLD, SIGSTOP, SIGTRAP};
use abi::{SigInfo, Signal};
use platform::Event;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use wait::{Events, Steady, block_until, wakes};

/// The trap flag.
pub(super) const TF: u64 = 0x100;
/// `TRAP_BRKPT`, `TRAP_TRACE`.
const TRAP_BRKPT: i32 = 1;
pub const TRAP_TRACE: i32 = 2;
/// In the code of a stop at a system call, with PTRACE_O_TRACESYSGOOD.
const SYSGOOD: i32 = 0x80;
/// The segments of 64-bit code: there are no others.
const CS: u64 = 0x33;
const SS: u64 = 0x2b;

/// What only a tracee's own thread knows.
#[derive(Default)]
pub struct TraceeState {
    /// The trap flag is set for the tracer, not by the program.
    forced_tf: bool,
    /// The call that is being made: what `orig_rax` says of it.
    pub nr: u64,
}

/// What a stop is about.
struct About {
    code: i32,
    why: i32,
    info: Option<SigInfo>,
    message: u64,
    place: Place,
}

/// Where in its thread's life a stop is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Within a system call, which has no result yet, or has just got it.
    Call,
    /// At the boundary, where a call may wait to be made again.
    Boundary,
    /// At its end.
    Exit,
}

/// How a stop ended.
struct After {
    /// The signal to go on with, 0 for none.
    signal: i32,
    info: Option<SigInfo>,
}

/// A system call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub nr: u64,
    pub args: [u64; 6],
    pub ip: u64,
}

/// What becomes of a call after a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallAction {
    Make,
    /// It is not made; its result is in the registers.
    Skip,
}

/// Stands still for the tracer. `None` where there is none (any more), or the task must end.
fn stop(cx: &mut Context, a: About) -> Option<After> {
    if !cx.task.trace.is_on() {
        return None;
    }
    if cx.thread.fetch_regs() == Event::Gone {
        if a.place != Place::Exit && !cx.is_killed() {
            run::end_lost(cx);
        }
        return None;
    }
    let (place, why, code) = (a.place, a.why, a.code);
    let copy = copy(cx, place);
    let task = cx.task.clone();
    let tracer = {
        let mut state = task.trace.state.lock();
        let tracer = state.link.as_ref()?.tracer.clone();
        // At a thread's own end it is killed already.
        let late = match place {
            Place::Exit => tracer.is_killed(),
            _ => task.is_killed(),
        };
        if late {
            return None;
        }
        let stop = Stop {
            code,
            info: a.info,
            message: a.message,
            listening: false,
            resumed: None,
            at_exit: place == Place::Exit,
            copy,
        };
        let ends = match stop.is_event_stop() {
            true => Traps::all(),
            false => Traps::STOP,
        };
        task.trace.end_traps(ends);
        state.stop = Some(stop);
        tracer
    };
    wakes::without_deferral(|| {
        tell(&task, &tracer, why, code);
        drop(tracer);
        stand_still(&task, place);
    });
    go_on(cx, place)
}

/// What the tracer sees.
fn copy(cx: &Context, place: Place) -> CpuCopy {
    let mut regs = cx.thread.regs();
    if cx.tracee.forced_tf {
        regs.eflags &= !TF;
    }
    (regs.cs, regs.ss) = (CS, SS);
    (regs.ds, regs.es, regs.fs, regs.gs) = (0, 0, 0, 0);
    match place {
        Place::Boundary => cx.show_restart(&mut regs),
        Place::Call => regs.orig_rax = cx.tracee.nr,
        Place::Exit => {}
    }
    let mut fp = Vec::new();
    cx.thread.fp_state(&mut fp);
    CpuCopy {
        regs,
        regs_changed: false,
        fp,
        fp_changed: false,
        mask: cx.mask(),
        saved_mask: cx.saved_mask,
        mask_changed: false,
    }
}

/// The same of a thread that ends; nothing where its application side has gone.
pub(in crate::task) fn copy_at_end(cx: &mut Context) -> Option<CpuCopy> {
    let is_gone = !cx.thread.has_regs() && cx.thread.fetch_regs() == Event::Gone;
    (!is_gone).then(|| copy(cx, Place::Boundary))
}

/// The tracer is told of a stop (`do_notify_parent_cldstop`).
fn tell(task: &Task, tracer: &Arc<Task>, why: i32, code: i32) {
    let g = &tracer.group;
    let a = g.actions().read().get(SIGCHLD);
    if a.handler != SIG_IGN && a.flags & SA_NOCLDSTOP == 0 {
        let uid = tracer.cred().user_ns.uid_shown(task.cred().uid);
        let pid = task.pid.seen_in(&tracer.pid.ns);
        let info = child_info(why, pid, uid, code & 0x7f);
        let _ = task.kernel.send_to_group(g, info);
    }
    g.child_wait.notify(Events::IN);
}

/// Sleeps until the stop is over, or SIGKILL ends it.
fn stand_still(task: &Arc<Task>, place: Place) {
    let kills = task.group.kills.load(SeqCst);
    let over = || {
        task.held.store(task.must_hold(), SeqCst);
        let again = task.must_stop();
        let state = task.trace.state.lock();
        let over = state
            .stop
            .as_ref()
            .is_none_or(|s| s.resumed.is_some() || s.listening && again);
        if over { Ok(()) } else { Err(EAGAIN) }
    };
    let _ = match place {
        Place::Exit => {
            let ends = || {
                let killed = task.group.kills.load(SeqCst) != kills;
                match killed || task.group.container.is_closed() {
                    true => Ok(()),
                    false => over(),
                }
            };
            block_until(&Steady(task.parker.clone()), &[], None, ends)
        }
        _ => task.block_as(Sleep::Still, &[], None, over),
    };
    task.held.store(false, SeqCst);
}

/// Takes back what the tracer has changed.
fn go_on(cx: &mut Context, place: Place) -> Option<After> {
    let stop = cx.task.trace.state.lock().stop.take()?;
    if stop.resumed.is_none() && !stop.listening {
        // Killed: nothing of it counts.
        return None;
    }
    let mut c = stop.copy;
    let step = cx.task.trace.mode().contains(Mode::STEP);
    let forced = step && c.regs.eflags & TF == 0;
    let was_forced = std::mem::replace(&mut cx.tracee.forced_tf, forced);
    if forced {
        c.regs.eflags |= TF;
    }
    if c.regs_changed || forced || was_forced {
        match place {
            Place::Boundary => cx.take_restart(&mut c.regs),
            Place::Call => cx.tracee.nr = c.regs.orig_rax,
            Place::Exit => {}
        }
        cx.thread.set_regs(&c.regs);
    }
    if c.fp_changed {
        // It was checked when it was set.
        let _ = cx.thread.set_fp_state(Some(&c.fp));
    }
    if c.mask_changed {
        cx.task.set_mask(c.mask);
        cx.saved_mask = None;
    }
    Some(After {
        signal: stop.resumed.unwrap_or(0),
        info: stop.info,
    })
}

/// The info of a stop that no signal makes (`ptrace_do_notify`).
fn own_info(cx: &Context, code: i32) -> SigInfo {
    let c = cx.cred();
    trap_info(code, cx.pid.own(), c.user_ns.uid_shown(c.uid))
}

/// A stop that no signal makes.
fn notify(cx: &mut Context, code: i32, message: u64, place: Place) -> Option<After> {
    let info = Some(own_info(cx, code));
    let why = CLD_TRAPPED;
    stop(
        cx,
        About {
            code,
            why,
            info,
            message,
            place,
        },
    )
}

const fn event_code(event: u32) -> i32 {
    SIGTRAP.number() | (event as i32) << 8
}

/// A signal is about to be delivered: what its tracer makes of it, `None` for nothing
/// (`ptrace_signal`).
pub fn signal(cx: &mut Context, info: SigInfo) -> Option<SigInfo> {
    let about = About {
        code: info.signo,
        why: CLD_TRAPPED,
        info: Some(info),
        message: 0,
        place: Place::Boundary,
    };
    let Some(after) = stop(cx, about) else {
        return (!cx.is_killed()).then_some(info);
    };
    let s = Signal::new(after.signal)?;
    let mut info = after.info.unwrap_or(info);
    if info.signo != s.number() {
        let (pid, uid) = cx.task.trace.tracer().map_or((0, 0), |t| {
            let uid = cx.cred().user_ns.uid_shown(t.cred().uid);
            (t.pid.seen_in(&cx.pid.ns), uid)
        });
        info = SigInfo::from_sender(s, SI_USER, pid, uid);
    }
    if cx.mask().contains(s) {
        let _ = cx.pending.push(info, cx, u64::MAX, From::Within);
        return None;
    }
    Some(info)
}

/// Stops for its group, or because its tracer wants that (`do_jobctl_trap`).
pub fn trap(cx: &mut Context) {
    let t = cx.task.clone();
    t.trace.end_traps(Traps::all());
    // In this order: a stop that begins meanwhile is shown, now or next.
    let number = t.group.stop_number();
    t.trace.seen_stop.store(number, SeqCst);
    let stopped = t.group.stop_signal();
    let signal = stopped.unwrap_or(SIGTRAP.number());
    let (code, info) = if t.trace.is_seized() {
        let code = signal | (PTRACE_EVENT_STOP as i32) << 8;
        let mut info = own_info(cx, code);
        info.signo = signal;
        (code, Some(info))
    } else if stopped.is_some() {
        (signal, None)
    } else {
        return;
    };
    let about = About {
        code,
        why: CLD_STOPPED,
        info,
        message: 0,
        place: Place::Boundary,
    };
    let _ = stop(cx, about);
}

/// What a tracer sends at a stop of a system call is sent to the tracee anew.
fn resend(cx: &Context, after: &After) {
    if let Some(s) = Signal::new(after.signal) {
        let _ = cx.kernel.send_to_task(cx, SigInfo::new(s, SI_KERNEL));
    }
}

fn call_code(cx: &Context) -> i32 {
    let good = cx.task.trace.has(Options::SYSGOOD);
    SIGTRAP.number() | if good { SYSGOOD } else { 0 }
}

/// What the registers say of the call.
fn reload(cx: &Context, call: &mut Call) -> CallAction {
    let r = cx.thread.regs();
    call.nr = u64::from(cx.tracee.nr as u32);
    call.args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    call.ip = r.rip;
    if cx.tracee.nr as i32 == -1 || cx.is_killed() {
        CallAction::Skip
    } else {
        CallAction::Make
    }
}

/// A system call begins (`ptrace_report_syscall_entry`), which the tracer may change.
pub fn entry(cx: &mut Context, call: &mut Call) -> CallAction {
    let emulates = cx.task.trace.mode().contains(Mode::EMULATE);
    cx.no_result(ENOSYS);
    let code = call_code(cx);
    let message = u64::from(PTRACE_EVENTMSG_SYSCALL_ENTRY);
    let Some(after) = notify(cx, code, message, Place::Call) else {
        return if cx.is_killed() || emulates {
            CallAction::Skip
        } else {
            CallAction::Make
        };
    };
    resend(cx, &after);
    match reload(cx, call) {
        CallAction::Make if !emulates => CallAction::Make,
        _ => CallAction::Skip,
    }
}

/// A filter wants the tracer to decide (`SECCOMP_RET_TRACE`). Only where [`Options::SECCOMP`] is.
pub fn seccomp(cx: &mut Context, call: &mut Call, data: u32) -> CallAction {
    cx.no_result(ENOSYS);
    let code = event_code(PTRACE_EVENT_SECCOMP);
    match notify(cx, code, data.into(), Place::Call) {
        Some(_) => reload(cx, call),
        None => CallAction::Skip,
    }
}

/// What is due where a call has its result: a stop, or a step's signal.
#[must_use]
pub fn due_at_exit(cx: &Context) -> bool {
    let t = &cx.task.trace;
    t.is_on() && t.mode().intersects(Mode::SYSCALL | Mode::STEP)
}

/// A system call has its result (`ptrace_report_syscall_exit`).
pub fn exit(cx: &mut Context) {
    let mode = cx.task.trace.mode();
    if mode.contains(Mode::STEP) {
        if !mode.contains(Mode::EMULATE) && cx.thread.fetch_regs() != Event::Gone {
            let ip = cx.thread.regs().rip;
            let info = SigInfo::fault(SIGTRAP, TRAP_BRKPT, ip);
            cx.kernel.force(&cx.task, info);
        }
    } else {
        let code = call_code(cx);
        let message = u64::from(PTRACE_EVENTMSG_SYSCALL_EXIT);
        if let Some(after) = notify(cx, code, message, Place::Call) {
            resend(cx, &after);
        }
    }
}

/// A step of a tracer that is gone by now: the program goes on without.
pub fn is_stale_step(cx: &mut Context) -> bool {
    if !cx.tracee.forced_tf || cx.task.trace.is_on() {
        return false;
    }
    end_step(cx)
}

/// Takes the trap flag out of the registers, which are known, where it is the tracer's.
fn end_step(cx: &mut Context) -> bool {
    if !std::mem::take(&mut cx.tracee.forced_tf) {
        return false;
    }
    let mut r = cx.thread.regs();
    r.eflags &= !TF;
    cx.thread.set_regs(&r);
    true
}

/// Before a handler's frame is made: whether the thread goes step by step. What the handler returns
/// to does not.
pub fn before_handler(cx: &mut Context) -> bool {
    end_step(cx) && cx.task.trace.is_on()
}

/// A step into a handler ends before its first instruction (`signal_delivered`).
pub fn in_handler(cx: &mut Context) {
    notify(cx, SIGTRAP.number(), 0, Place::Boundary);
}

/// What a clone that is about to be made is to its maker's tracer (`kernel_clone`).
#[must_use]
pub fn birth(cx: &Context, a: &CloneArgs) -> Option<u32> {
    if a.flags.contains(CloneFlags::CLONE_UNTRACED) {
        return None;
    }
    let (event, option) = if a.flags.contains(CloneFlags::CLONE_VFORK) {
        (PTRACE_EVENT_VFORK, Options::VFORK)
    } else if a.exit_signal != SIGCHLD.number() as u64 {
        (PTRACE_EVENT_CLONE, Options::CLONE)
    } else {
        (PTRACE_EVENT_FORK, Options::FORK)
    };
    cx.task.trace.has(option).then_some(event)
}

/// An event of a clone; `child` is told by its number.
pub fn clone_event(cx: &mut Context, event: u32, child: &Arc<Task>) {
    number_event(cx, event, &child.pid);
}

fn number_event(cx: &mut Context, event: u32, pid: &crate::ns::pid::Pid) {
    let Some(tracer) = cx.task.trace.tracer() else {
        return;
    };
    let number = pid.seen_in(&tracer.pid.ns);
    drop(tracer);
    cx.no_result(ENOSYS);
    notify(cx, event_code(event), number as u64, Place::Call);
}

/// A vfork(2) child lets the memory go.
pub fn vfork_done(cx: &mut Context, child: &Arc<Task>) {
    if cx.task.trace.has(Options::VFORK_DONE) {
        number_event(cx, PTRACE_EVENT_VFORK_DONE, &child.pid);
    }
}

/// It runs another program. `before` has the numbers that it had.
pub fn exec(cx: &mut Context, before: &crate::ns::pid::Pid) {
    if !cx.task.trace.is_on() {
        return;
    }
    cx.mm().end_patches();
    if cx.task.trace.has(Options::EXEC) {
        number_event(cx, PTRACE_EVENT_EXEC, before);
        cx.thread.set_return(0);
    } else if !cx.task.trace.is_seized() {
        let c = cx.cred();
        let uid = c.user_ns.uid_shown(c.uid);
        let info = SigInfo::from_sender(SIGTRAP, SI_USER, cx.group.pid.own(), uid);
        let _ = cx.kernel.send_to_task(cx, info);
    }
}

/// It is about to end with this wait status (`PTRACE_EVENT_EXIT`).
pub fn at_exit(cx: &mut Context, status: i32) {
    if cx.task.trace.has(Options::EXIT) {
        let code = event_code(PTRACE_EVENT_EXIT);
        notify(cx, code, status as u32 as u64, Place::Exit);
    }
}

impl Task {
    /// Before it runs: the first thing that it takes is SIGSTOP.
    pub(super) fn stop_first(&self) {
        let info = SigInfo::new(SIGSTOP, SI_USER);
        let _ = self.pending.push(info, self, u64::MAX, From::Within);
    }
}
