//! The task loop: application code → event → Sentry → application code.
//!
//! At the top of the loop the host thread's stack holds nothing. A blocking system call that is
//! interrupted unwinds to here with a restart code; it is either dispatched again (no handler ran)
//! or rewound in the application's registers (a handler runs first), as `arch/x86/kernel/signal.c`
//! does.

use super::lanes::{self, Lanes};
use super::signal::{DefaultAction, SA_RESETHAND, SA_RESTART, SIG_DFL, SIG_IGN, default_action};
use super::trace::stops::{self, Call, CallAction};
use super::{Sleep, Task, notice, seccomp};
use crate::syscalls::{self, SysResult};
use abi::errno::*;
use abi::signal::*;
use abi::{AltStack, SigInfo, SigSet, Signal, nr};
use platform::{AppThread, Event, Regs, SpaceEnd};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vfs::caller::{Acting, Actor};
use wait::{later, wakes};

/// What only the task's own host thread touches.
pub struct Context {
    pub task: Arc<Task>,
    pub thread: Box<dyn AppThread>,
    /// In application code it is where the application changes it itself.
    pub altstack: AltStack,
    /// The mask to put back when the handler that interrupted returns (`sigsuspend(2)`,
    /// `ppoll(2)`).
    pub saved_mask: Option<SigSet>,
    /// The system call whose result is not final: how it asked to be restarted.
    restart: Option<Restart>,
    /// How to go on after `restart_syscall(2)`.
    pub restart_block: Option<RestartBlock>,
    /// Set by execve(2) and rt_sigreturn(2): the registers are all set, the result is not written.
    pub regs_final: bool,
    /// The last exception that became a signal.
    pub trap: Trap,
    /// The task is to end with this wait status (`exit(2)`).
    pub exit: Option<i32>,
    /// What it knows of its fast paths.
    pub(super) lanes: lanes::Known,
    /// What it knows of being traced.
    pub(super) tracee: stops::TraceeState,
}

/// An exception of the processor, as every signal frame tells of the last one (`setup_sigcontext`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trap {
    pub number: u64,
    pub error: u64,
    pub address: u64,
}

/// A continuation of an interrupted call with a relative time.
pub type RestartBlock = Box<dyn FnMut(&mut Context) -> SysResult + Send>;

struct Restart {
    code: Errno,
    nr: u64,
    args: [u64; 6],
    ip: u64,
}

impl Restart {
    /// A handler with these flags runs first: the registers that it returns to.
    fn below_handler(&self, regs: &mut Regs, flags: u64) {
        let again = match self.code {
            ERESTARTNOINTR => true,
            ERESTARTSYS => flags & SA_RESTART != 0,
            _ => false,
        };
        if again {
            self.rewind(regs, self.nr);
        } else {
            regs.rax = neg(EINTR);
        }
    }

    /// The registers with which the application makes the call again itself.
    fn rewind(&self, regs: &mut Regs, nr: u64) {
        // The instruction is two bytes long: `syscall`.
        regs.rip = self.ip.wrapping_sub(2);
        regs.rax = nr;
    }

    /// The call that is made then, where no handler has run.
    fn call_again(&self) -> u64 {
        match self.code {
            ERESTART_RESTARTBLOCK => nr::RESTART_SYSCALL.into(),
            _ => self.nr,
        }
    }
}

use abi::Errno;

impl Deref for Context {
    type Target = Arc<Task>;
    fn deref(&self) -> &Arc<Task> {
        &self.task
    }
}

/// The application side ended.
struct AppEnded;

/// Whether the loop goes on.
#[derive(PartialEq, Eq)]
enum Flow {
    Go,
    End,
}

impl Context {
    #[must_use]
    pub fn new(task: Arc<Task>, thread: Box<dyn AppThread>) -> Context {
        *task.interrupter.lock() = Some(thread.interrupter());
        task.cpu.begin(thread.cpu_clock());
        Context {
            task,
            thread,
            altstack: AltStack::FIRST,
            saved_mask: None,
            restart: None,
            restart_block: None,
            regs_final: false,
            trap: Trap::default(),
            exit: None,
            lanes: lanes::Known::default(),
            tracee: stops::TraceeState::default(),
        }
    }

    /// Replaces the application thread (execve).
    pub fn replace_thread(&mut self, thread: Box<dyn AppThread>) {
        *self.task.interrupter.lock() = Some(thread.interrupter());
        self.task.cpu.begin(thread.cpu_clock());
        let old = std::mem::replace(&mut self.thread, thread);
        drop(old);
        self.lanes = lanes::Known::default();
        lanes::slots::forget(&self.task);
        self.task.local_is_stale();
    }

    /// The registers. Only in calls that trap with them: clone, execve, rt_sigreturn, and the like.
    #[must_use]
    pub fn regs(&self) -> Regs {
        self.thread.regs()
    }

    /// The call has no result yet, as who looks meanwhile is to see it.
    pub(super) fn no_result(&mut self, e: Errno) {
        self.thread.set_return(neg(e));
    }

    /// Shows a call that is to be made again as Linux keeps it in the registers.
    pub(super) fn show_restart(&self, regs: &mut Regs) {
        if let Some(r) = &self.restart {
            (regs.rax, regs.orig_rax) = (neg(r.code), r.nr);
        }
    }

    /// What a tracer leaves in the registers says whether a call is made again, and which
    /// (`arch_do_signal_or_restart`).
    pub(super) fn take_restart(&mut self, regs: &mut Regs) {
        let code = (regs.rax as i64)
            .checked_neg()
            .and_then(|e| i32::try_from(e).ok());
        let code = code.and_then(Errno::new).filter(|e| e.is_restart());
        self.restart = code
            .filter(|_| regs.orig_rax as i32 != -1)
            .map(|code| Restart {
                code,
                nr: regs.orig_rax,
                args: [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9],
                ip: regs.rip,
            });
        if self.restart.is_some() {
            regs.rax = neg(EINTR);
        }
    }
}

/// Its thread acts for the task, as those who watch files are told.
fn acting_for(cx: &Context) -> Acting {
    Acting::new(Actor {
        thread: cx.pid.clone(),
        process: cx.group.pid.clone(),
        client: cx.task.clone(),
    })
}

/// Runs the task until it ends.
pub fn run(mut cx: Context) {
    let parker = cx.parker.clone();
    clas::pay_with(&cx.group.payer);
    parker.begins();
    let mut lanes = Lanes::default();
    let bounded = later::Bounded::by(cx.task.clone());
    let acting = acting_for(&cx);
    while boundary(&mut cx, &mut lanes) == Flow::Go {
        let Some(event) = enter_app(&mut cx, &mut lanes) else {
            continue;
        };
        match event {
            Event::Syscall { nr, args, ip } => {
                system_call(&mut cx, nr, args, ip);
                lanes.called(&mut cx, nr, &args);
            }
            Event::Fault {
                signal,
                code,
                addr,
                error,
            } => fault(&mut cx, signal, code, addr, error),
            Event::Interrupted => {}
            Event::ForeignSyscall => {
                // No 32-bit or x32 application: as a kernel without them.
                cx.thread.set_return(neg(ENOSYS));
            }
            Event::Gone => {
                if !cx.is_killed() {
                    end_lost(&cx);
                }
            }
        }
        if clas::is_held_up() {
            hold_up(&cx);
        }
    }
    drop(lanes);
    super::exit::finish(cx);
    drop(bounded);
    drop(acting);
    parker.ends();
}

/// Runs a thread that has no application side, until `body` returns.
pub(super) fn run_kernel(mut cx: Context, body: impl FnOnce(&mut Context)) {
    let parker = cx.parker.clone();
    clas::pay_with(&cx.group.payer);
    parker.begins();
    let bounded = later::Bounded::by(cx.task.clone());
    let acting = acting_for(&cx);
    body(&mut cx);
    drop(bounded);
    super::exit::finish(cx);
    drop(acting);
    parker.ends();
}

/// How often it is looked whether there is less memory by now.
const LOOK: Duration = Duration::from_millis(5);

/// It has made memory that it is to sleep for.
fn hold_up(cx: &Context) {
    if clas::take_over_limit() {
        await_limit(cx);
    }
    if clas::is_held_up() {
        slow_down(cx);
    }
}

/// It has made more of the kernel's memory than its container's limit leaves: until there is less.
fn await_limit(cx: &Context) {
    /// What is too much may be nobody's who can be ended.
    const LONGEST: Duration = Duration::from_secs(5);
    let clas = &cx.group.container.clas;
    let until = Instant::now() + LONGEST;
    let _stall = clas.stall();
    while clas.is_over_limit() && Instant::now() < until && !cx.is_killed() {
        let look = Some(Instant::now() + LOOK);
        let _ = cx.block_as(Sleep::Killable, &[], look, || Err::<(), _>(EAGAIN));
    }
}

/// It has made memory above its group's `memory.high`: it sleeps for that, or until there is less.
fn slow_down(cx: &Context) {
    let clas = &cx.group.container.clas;
    let pages = clas::take_above_high();
    if !cx.group.cgroup().count_above_high() {
        return;
    }
    let start = Instant::now();
    let _stall = clas.high_delay(pages).map(|_| clas.hold_up());
    while let Some(delay) = clas.high_delay(pages)
        && let left = delay.saturating_sub(start.elapsed())
        && !left.is_zero()
        && !cx.is_killed()
    {
        let until = Instant::now() + left.min(LOOK);
        let _ = cx.block_as(Sleep::Killable, &[], Some(until), || Err::<(), _>(EAGAIN));
    }
}

/// Its process on the host is gone: by its own doing, it destroyed its stub; or by the host's,
/// whose memory was used up.
pub(super) fn end_lost(cx: &Context) {
    let s = match cx.mm().address_space().end() {
        SpaceEnd::Killed => SIGSEGV,
        SpaceEnd::Host(status) => {
            let how = match status {
                Some(s) if libc::WIFSIGNALED(s) => format!(" by signal {}", libc::WTERMSIG(s)),
                Some(s) => format!(" with wait status {s:#x}"),
                None => String::new(),
            };
            let comm = cx.task.comm();
            cx.group.container.tell_of_loss(&format!(
                "process {} ({}) was ended on the host{how}, as when memory runs out there",
                cx.group.tgid,
                String::from_utf8_lossy(&comm)
            ));
            SIGKILL
        }
    };
    cx.kernel.kill_group(&cx.group, s.number());
}

/// Runs application code until the next event; `None` if there is work first.
fn enter_app(cx: &mut Context, lanes: &mut Lanes) -> Option<Event> {
    lanes.before(cx);
    let t = &cx.task;
    let has_work = || t.has_work() || t.cpu.look.load(Ordering::SeqCst) || later::is_due();
    if !notice::enter(&t.in_app, &t.attention, has_work) {
        return None;
    }
    let event = lanes.run(cx);
    cx.task.in_app.store(false, Ordering::SeqCst);
    lanes.after(cx, &event);
    Some(event)
}

const fn neg(e: Errno) -> u64 {
    (-(e.raw() as i64)) as u64
}

/// What a call leaves.
enum Done {
    Result(SysResult),
    /// The registers are as they are to be, or the task ends.
    AsIs,
}

fn system_call(cx: &mut Context, nr: u64, args: [u64; 6], ip: u64) {
    cx.regs_final = false;
    if cx.task.trace.is_on() {
        return traced_call(cx, Call { nr, args, ip });
    }
    let mut call = Call { nr, args, ip };
    if let Done::Result(r) = make_call(cx, &mut call) {
        give(cx, &call, r);
    }
    // It came to be traced meanwhile, and has been let go on from an event.
    if stops::due_at_exit(cx) {
        stops::exit(cx);
    }
}

/// Filters, and then the call itself.
fn make_call(cx: &mut Context, call: &mut Call) -> Done {
    if cx.seccomp.mode() != seccomp::Mode::Disabled {
        match filter(cx, call) {
            seccomp::Verdict::Go => {}
            seccomp::Verdict::Return(v) => {
                cx.thread.set_return(v);
                return Done::AsIs;
            }
            seccomp::Verdict::Interrupted(e) => return Done::Result(Err(e)),
            _ => return Done::AsIs,
        }
    }
    let r = syscalls::dispatch(cx, call.nr, &call.args);
    if cx.regs_final || cx.exit.is_some() {
        return Done::AsIs;
    }
    Done::Result(r)
}

/// What the filters say, and the tracer where they want to hear it.
fn filter(cx: &mut Context, call: &mut Call) -> seccomp::Verdict {
    use super::trace::Options;
    use seccomp::Verdict;
    if cx.task.trace.has(Options::SUSPEND_SECCOMP) {
        return Verdict::Go;
    }
    let data = match seccomp::check(cx, call.nr, &call.args, call.ip) {
        Verdict::Trace(data) => data,
        v => return v,
    };
    if !cx.task.trace.has(Options::SECCOMP) {
        return Verdict::Return(neg(ENOSYS));
    }
    cx.tracee.nr = call.nr;
    if stops::seccomp(cx, call, data.into()) == CallAction::Skip {
        return Verdict::End;
    }
    // The tracer may have made another of it, which is asked about, too.
    match seccomp::check(cx, call.nr, &call.args, call.ip) {
        Verdict::Trace(_) => Verdict::Go,
        v => v,
    }
}

/// Writes a call's result.
fn give(cx: &mut Context, call: &Call, r: SysResult) {
    match r {
        Ok(v) => cx.thread.set_return(v as u64),
        Err(code) if code.is_restart() => {
            cx.thread.set_return(neg(EINTR));
            cx.restart = Some(Restart {
                code,
                nr: call.nr,
                args: call.args,
                ip: call.ip,
            });
        }
        Err(e) => cx.thread.set_return(neg(e)),
    }
}

/// A system call of a traced task: its tracer sees both ends, where it wants to
/// (`syscall_trace_enter`, `syscall_exit_work`).
fn traced_call(cx: &mut Context, mut call: Call) {
    use super::trace::Mode;
    cx.tracee.nr = call.nr;
    let stops = cx
        .task
        .trace
        .mode()
        .intersects(Mode::SYSCALL | Mode::EMULATE);
    let done = match stops && stops::entry(cx, &mut call) == CallAction::Skip {
        true => Done::AsIs,
        false => make_call(cx, &mut call),
    };
    if cx.exit.is_some() || cx.is_killed() {
        return;
    }
    if cx.regs_final && call.nr == u64::from(nr::RT_SIGRETURN) {
        // What was interrupted was no call, or is one no more.
        cx.tracee.nr = u64::MAX;
    }
    let Done::Result(r) = done else {
        if stops::due_at_exit(cx) {
            stops::exit(cx);
        }
        return;
    };
    give(cx, &call, r);
    if !stops::due_at_exit(cx) {
        return;
    }
    let Some(code) = cx.restart.take().map(|r| r.code) else {
        return stops::exit(cx);
    };
    // The tracer sees that the call is to be made again, and may think otherwise.
    cx.no_result(code);
    stops::exit(cx);
    if !cx.thread.has_regs() {
        return;
    }
    let mut regs = cx.thread.regs();
    regs.orig_rax = cx.tracee.nr;
    cx.take_restart(&mut regs);
    cx.thread.set_regs(&regs);
}

fn fault(cx: &mut Context, signal: i32, code: i32, addr: u64, error: u64) {
    let is_memory = signal == SIGSEGV.number() || signal == SIGBUS.number();
    // A code above zero is the hardware's; SI_KERNEL is a general protection fault.
    if is_memory && code > 0 && code != SI_KERNEL {
        let mm = cx.mm();
        let info = mm::FaultInfo::from_event(signal, addr, error);
        match mm.handle_fault(info) {
            Ok(()) => return,
            Err(f) => {
                cx.trap = Trap {
                    number: 14,
                    // Write, user, fetch. (Whether the page was there says nothing: host mappings
                    // come and go.)
                    error: error & 0x12 | 4,
                    address: f.addr.0,
                };
                let si = SigInfo::fault(f.signal, f.code, f.addr.0);
                cx.kernel.force(&cx.task, si);
                return;
            }
        }
    }
    let Some(s) = Signal::new(signal) else { return };
    if s == SIGTRAP && code == stops::TRAP_TRACE && stops::is_stale_step(cx) {
        return;
    }
    cx.trap = Trap {
        number: match (s, code) {
            (SIGILL, _) => 6,
            // int3; the others come by #DB.
            (SIGTRAP, SI_KERNEL) => 3,
            (SIGTRAP, _) => 1,
            (SIGSEGV | SIGBUS, _) => 13,
            _ => 0,
        },
        error: 0,
        ..cx.trap
    };
    cx.kernel.force(&cx.task, SigInfo::fault(s, code, addr));
}

/// The system-call boundary: ends, stops and signals. `End` if the task is to end.
///
/// A loop and not a recursion: a sender could interrupt a sleep as often as it likes by signals
/// that do nothing.
fn boundary(cx: &mut Context, lanes: &mut Lanes) -> Flow {
    let mut look = cx.restart.is_some() || cx.saved_mask.is_some();
    loop {
        if cx.exit.is_some() {
            return Flow::End;
        }
        if !cx.task.attention.swap(false, Ordering::SeqCst) && !look {
            return Flow::Go;
        }
        look = true;
        lanes.wake();
        later::run();
        super::uring::work::run(cx);
        if cx.cpu.look.swap(false, Ordering::SeqCst) {
            super::cpu_timers::look(cx);
        }
        if take_signals(cx) == Flow::End {
            return Flow::End;
        }
        // No handler ran for it: do the call again, without the application.
        if let Some(r) = cx.restart.take() {
            if cx.has_work() {
                cx.restart = Some(r);
                continue;
            }
            if let Some(m) = cx.saved_mask.take() {
                cx.task.set_mask(m);
            }
            let nr = r.call_again();
            if !cx.task.trace.is_on() {
                system_call(cx, nr, r.args, r.ip);
                continue;
            }
            // Its tracer is to see that it makes the call again.
            if cx.thread.fetch_regs() == Event::Gone {
                end_lost(cx);
                continue;
            }
            let mut regs = cx.thread.regs();
            r.rewind(&mut regs, nr);
            cx.thread.set_regs(&regs);
            continue;
        }
        let Some(m) = cx.saved_mask.take() else {
            return Flow::Go;
        };
        cx.task.set_mask(m);
    }
}

/// Takes every signal that can be delivered now; stops as long as the group is stopped.
fn take_signals(cx: &mut Context) -> Flow {
    // A stop may be long.
    assert!(!wakes::is_deferring());
    loop {
        if cx.is_killed() {
            return Flow::End;
        }
        let must_stop = cx.must_stop();
        if must_stop && cx.task.trace.is_on() {
            stops::trap(cx);
            continue;
        }
        if must_stop || cx.must_hold() {
            if stop_here(cx).is_err() {
                end_lost(cx);
            }
            continue;
        }
        let deliverable = SigSet(!cx.mask().0);
        let Some(mut info) = cx.take_signal(deliverable) else {
            return Flow::Go;
        };
        if cx.task.trace.is_on() {
            match stops::signal(cx, info) {
                Some(i) => info = i,
                None => continue,
            }
        }
        if let Some(s) = &cx.kernel.strace {
            s.signal(cx.tid, &info);
        }
        let Some(s) = info.signal() else { continue };
        let actions = cx.group.actions();
        let action = actions.read().get(s);
        match action.handler {
            SIG_IGN => {}
            // What was blocked while it was sent (`get_signal`).
            SIG_DFL
                if cx.group.unkillable.load(Ordering::Relaxed)
                    && !SigSet::UNBLOCKABLE.contains(s) => {}
            SIG_DFL => match default_action(s) {
                DefaultAction::Ignore | DefaultAction::Continue => {}
                DefaultAction::Stop => {
                    // The terminal's stop signals do nothing to an orphaned group.
                    let orphaned = s != SIGSTOP && {
                        let l = cx.kernel.tasks.lock();
                        l.is_orphaned(l.pgid(cx.group.tgid), None)
                    };
                    if !orphaned {
                        cx.kernel.stop_group(&cx.group, s);
                    }
                }
                DefaultAction::Terminate => cx.kernel.kill_group(&cx.group, s.number()),
                DefaultAction::Core => super::coredump::end_by(cx, &info),
            },
            _ => {
                if action.flags & SA_RESETHAND != 0 {
                    // The rest of the action stays, for sigaction(2) to tell.
                    let reset = super::signal::SigAction {
                        handler: SIG_DFL,
                        ..action
                    };
                    actions.write().set(s, reset);
                }
                // The next signal interrupts the handler's first instruction: as on Linux, frames
                // are stacked.
                if deliver(cx, &info, &action).is_err() {
                    return Flow::End;
                }
            }
        }
    }
}

/// Sets up a handler's frame. `Err` if the task ends instead.
fn deliver(
    cx: &mut Context,
    info: &SigInfo,
    action: &super::signal::SigAction,
) -> core::result::Result<(), AppEnded> {
    if !cx.thread.has_regs() && cx.thread.fetch_regs() == Event::Gone {
        end_lost(cx);
        return Err(AppEnded);
    }
    if let Some(r) = cx.restart.take() {
        let mut regs = cx.thread.regs();
        r.below_handler(&mut regs, action.flags);
        cx.thread.set_regs(&regs);
    }
    let stepping = stops::before_handler(cx);
    if super::frame::push(cx, info, action).is_err() {
        // No room for the frame: SIGSEGV, and if that was the signal, the end.
        let segv = SigInfo::new(SIGSEGV, SI_KERNEL);
        if info.signal() == Some(SIGSEGV) {
            cx.group
                .actions()
                .write()
                .set(SIGSEGV, super::signal::SigAction::default());
        }
        cx.kernel.force(&cx.task, segv);
    } else if stepping {
        stops::in_handler(cx);
    }
    Ok(())
}

/// Sleeps as long as the group is stopped, or everything is frozen. `Err` if there is no
/// application side any more.
fn stop_here(cx: &mut Context) -> core::result::Result<(), AppEnded> {
    if cx.thread.hold() == Event::Gone {
        return Err(AppEnded);
    }
    let go_on = || {
        let hold = cx.must_hold();
        if cx.held.swap(hold, Ordering::SeqCst) != hold {
            cx.group.cgroup().task_held();
        }
        let (must_stop, traced) = (cx.must_stop(), cx.task.trace.is_on());
        match (hold, must_stop, traced) {
            // It stands still for its tracer instead.
            (_, true, true) | (false, false, _) => Ok(()),
            _ => Err(EAGAIN),
        }
    };
    let _ = cx.block_as(Sleep::Still, &[], None, go_on);
    if cx.held.swap(false, Ordering::SeqCst) {
        cx.group.cgroup().task_held();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which calls are made again behind a handler (signal(7)).
    #[test]
    fn restarts_below_a_handler() {
        for (code, flags, again) in [
            (ERESTARTNOINTR, 0, true),
            (ERESTARTNOINTR, SA_RESTART, true),
            (ERESTARTSYS, 0, false),
            (ERESTARTSYS, SA_RESTART, true),
            (ERESTARTNOHAND, SA_RESTART, false),
            (ERESTART_RESTARTBLOCK, SA_RESTART, false),
        ] {
            let r = Restart {
                code,
                nr: 7,
                args: [0; 6],
                ip: 0x1002,
            };
            let mut regs = Regs {
                rip: 0x1002,
                ..Regs::default()
            };
            r.below_handler(&mut regs, flags);
            let expected = if again {
                (0x1000, 7)
            } else {
                (0x1002, neg(EINTR))
            };
            assert_eq!((regs.rip, regs.rax), expected, "{code:?} {flags:x}");
        }
    }
}
