//! The task loop: application code → event → Sentry → application code.
//!
//! At the top of the loop the host thread's stack holds nothing. A blocking system call that is
//! interrupted unwinds to here with a restart code; it is either dispatched again (no handler ran)
//! or rewound in the application's registers (a handler runs first), as `arch/x86/kernel/signal.c`
//! does.

use super::lanes::{self, Lanes};
use super::signal::{DefaultAction, SA_RESETHAND, SA_RESTART, SIG_DFL, SIG_IGN, default_action};
use super::{Sleep, Task, notice};
use crate::syscalls::{self, SysResult};
use abi::errno::*;
use abi::signal::*;
use abi::{AltStack, SigInfo, SigSet, Signal, nr};
use platform::{AppThread, Event, Regs, SpaceEnd};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wait::wakes;

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
            // The instruction is two bytes long: `syscall`.
            regs.rip = self.ip.wrapping_sub(2);
            regs.rax = self.nr;
        } else {
            regs.rax = neg(EINTR);
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
struct Gone;

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
}

/// Runs the task until it ends.
pub fn run(mut cx: Context) {
    let parker = cx.parker.clone();
    parker.begins();
    let mut lanes = Lanes::default();
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
    }
    drop(lanes);
    super::exit::finish(cx);
    parker.ends();
}

/// Its process on the host is gone: by its own doing, it destroyed its stub; or by the host's,
/// whose memory was used up.
fn end_lost(cx: &Context) {
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
    let has_work = || t.has_work() || t.cpu.look.load(Ordering::SeqCst);
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

fn system_call(cx: &mut Context, nr: u64, args: [u64; 6], ip: u64) {
    cx.regs_final = false;
    if cx.seccomp.mode() != super::seccomp::Mode::Disabled {
        match super::seccomp::check(cx, nr, &args, ip) {
            super::seccomp::Verdict::Go => {}
            super::seccomp::Verdict::Return(v) => return cx.thread.set_return(v),
            super::seccomp::Verdict::End => return,
        }
    }
    let r = syscalls::dispatch(cx, nr, &args);
    if cx.regs_final || cx.exit.is_some() {
        return;
    }
    match r {
        Ok(v) => cx.thread.set_return(v as u64),
        Err(code) if code.is_restart() => {
            cx.thread.set_return(neg(EINTR));
            cx.restart = Some(Restart { code, nr, args, ip });
        }
        Err(e) => cx.thread.set_return(neg(e)),
    }
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
            let nr = if r.code == ERESTART_RESTARTBLOCK {
                nr::RESTART_SYSCALL.into()
            } else {
                r.nr
            };
            system_call(cx, nr, r.args, r.ip);
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
    assert!(!wakes::is_held());
    loop {
        if cx.is_killed() {
            return Flow::End;
        }
        if cx.group.is_stopping() || cx.must_hold() {
            if stop_here(cx).is_err() {
                end_lost(cx);
            }
            continue;
        }
        let deliverable = SigSet(!cx.mask().0);
        let Some(info) = cx.take_signal(deliverable) else {
            return Flow::Go;
        };
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
                // The core bit is set where a core would be written; RLIMIT_CORE is 0 by default.
                DefaultAction::Terminate | DefaultAction::Core => {
                    cx.kernel.kill_group(&cx.group, s.number());
                }
            },
            _ => {
                if action.flags & SA_RESETHAND != 0 {
                    actions.write().set(s, super::signal::SigAction::default());
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
) -> core::result::Result<(), Gone> {
    if !cx.thread.has_regs() && cx.thread.fetch_regs() == Event::Gone {
        end_lost(cx);
        return Err(Gone);
    }
    if let Some(r) = cx.restart.take() {
        let mut regs = cx.thread.regs();
        r.below_handler(&mut regs, action.flags);
        cx.thread.set_regs(&regs);
    }
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
    }
    Ok(())
}

/// Sleeps as long as the group is stopped, or everything is frozen. `Err` if there is no
/// application side any more.
fn stop_here(cx: &mut Context) -> core::result::Result<(), Gone> {
    if cx.thread.hold() == Event::Gone {
        return Err(Gone);
    }
    let go_on = || {
        let hold = cx.must_hold();
        cx.held.store(hold, Ordering::SeqCst);
        match hold || cx.group.is_stopping() {
            true => Err(EAGAIN),
            false => Ok(()),
        }
    };
    let _ = cx.block_as(Sleep::Still, &[], None, go_on);
    cx.held.store(false, Ordering::SeqCst);
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
