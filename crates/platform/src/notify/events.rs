//! What comes from a thread: notifications, made events.

use super::in_stub;
use super::thread::{From, Thread, Waits};
use crate::lanes::LOCAL;
use crate::lanes::spin::CallPlace;
use crate::lanes::unwind::{Stopped, Why, outside};
use crate::lanes::words::mailbox;
use crate::process::{KICK, recv};
use crate::{Event, Lanes, Regs};
use hostcall::process as host;

/// What a signal frame says of the signal.
struct Stop {
    signal: i32,
    code: i32,
    addr: u64,
    /// Of SIGSYS: the architecture that the call was made for.
    arch: u32,
    /// The processor's error code.
    error: u64,
}

impl Thread {
    /// The next notification but those of parked threads, which look again. `None`: it is gone.
    pub(super) fn receive(&mut self) -> Option<libc::seccomp_notif> {
        loop {
            let n = recv(self.listener()).ok()?;
            let d = &n.data;
            let parked = d.args[0] == stub::EVENT_PARK && d.nr == stub::EVENT_NR as i32;
            if !parked || !in_stub(d.instruction_pointer) {
                return Some(n);
            }
            host::notif_send(self.listener().raw(), n.id, 0).ok()?;
        }
    }

    /// `due`: the kick had been sent before the thread went on. `pending`: the result of a call
    /// from the mailbox that it has not been given.
    pub(super) fn next(&mut self, due: bool, pending: Option<u64>) -> Event {
        if self.spin.spins
            && pending.is_none()
            && let Some(e) = self.spin()
        {
            return e;
        }
        loop {
            let got = self.receive();
            let event = match got {
                Some(n) => self.received(&n, due, pending),
                None => {
                    self.waits = Waits::Gone;
                    Some(Event::Gone)
                }
            };
            if let Some(e) = event {
                self.left();
                return e;
            }
            // It goes step by step, and was between two steps.
            if self.answer(&mut None).is_err() {
                self.left();
                self.waits = Waits::Gone;
                return Event::Gone;
            }
        }
    }

    /// What a notification says; `None` where the thread is to go on as it is.
    fn received(
        &mut self,
        n: &libc::seccomp_notif,
        due: bool,
        pending: Option<u64>,
    ) -> Option<Event> {
        let ip = n.data.instruction_pointer;
        let made = match ip == stub::lane::called() {
            true => CallPlace::InLane,
            false => CallPlace::AtSite,
        };
        if made == CallPlace::AtSite && in_stub(ip) {
            return self.stopped(n, pending);
        }
        if due {
            // The kick was sent before the thread went on, and is taken before anything else
            // unless the application blocked it by a frame of its own.
            return Some(self.broken());
        }
        Some(self.called(n, made))
    }

    /// A system call without registers.
    fn called(&mut self, n: &libc::seccomp_notif, made: CallPlace) -> Event {
        let d = &n.data;
        let lanes = self.process.factory.lanes;
        let soon = lanes >= Lanes::All
            && self.spin.called(made)
            && self.process.factory.spinners.has_idle_cpu();
        let ip = if made == CallPlace::InLane {
            self.from = From::Patched;
            self.view().back()
        } else {
            self.from = From::Site(d.instruction_pointer);
            // Where a lane may help.
            let local = || LOCAL.contains(&(d.nr as u32));
            if soon || lanes != Lanes::None && local() {
                self.hot.note(d.instruction_pointer);
            } else if lanes == Lanes::Mailbox {
                self.hot.found = Some(d.instruction_pointer);
            }
            d.instruction_pointer
        };
        let nr = u64::from(d.nr as u32);
        self.waits = Waits::Call { id: n.id, nr };
        let args = d.args;
        Event::Syscall { nr, args, ip }
    }

    /// The event call: a signal stopped it. `None` where it is to go on as it is.
    fn stopped(&mut self, n: &libc::seccomp_notif, pending: Option<u64>) -> Option<Event> {
        let Some((stop, mut regs)) = self.stop(n) else {
            return Some(self.broken());
        };
        if self.process.sites_number() != self.sites.1 {
            self.sites = self.process.sites();
        }
        let why = Why::of(stop.signal, stop.code);
        let before = self.kick.remembered();
        let sites = before.as_deref().unwrap_or(&self.sites.0);
        let stopped = if sites.is_empty() {
            Stopped::Outside
        } else {
            outside(self.view(), sites, &mut regs, why, pending)
        };
        if stopped == Stopped::Between {
            return None;
        }
        self.regs = regs;
        if stopped != Stopped::Outside {
            self.regs_changed = true;
            // What it was about to ask, or was being answered, is over.
            mailbox::reset(self.view().state());
            self.stop_spinning();
        }
        match stopped {
            Stopped::Trap => {
                self.missed = (why == Why::Access).then_some((stop.addr, stop.error));
                Some(self.trapped())
            }
            Stopped::Look => Some(Event::Interrupted),
            _ => Some(self.signalled(&stop, stopped)),
        }
    }

    /// What the signal says that stopped it, and its registers; `None` where what the handler tells
    /// cannot be.
    fn stop(&mut self, n: &libc::seccomp_notif) -> Option<(Stop, Regs)> {
        let [signal, info, uc, fs, gs, _] = n.data.args;
        self.waits = Waits::Event { id: n.id, uc };
        let (f, signal) = (self.frame()?, i32::try_from(signal).ok()?);
        let mut regs = f.regs();
        let error = f.error_code();
        regs.fs_base = fs;
        let (area, base) = self.area();
        regs.gs_base = if gs == base && self.process.factory.lanes != Lanes::None {
            0
        } else {
            gs
        };
        regs.orig_rax = u64::MAX;
        // siginfo lies behind the ucontext on the same stack.
        let at = info.wrapping_sub(base);
        if at >= area.len() as u64 - 128 {
            return None;
        }
        let mut si = [0u8; 32];
        area.sub(at as usize, 32).copy_to(&mut si);
        let word = |at: usize| <[u8; 4]>::try_from(&si[at..at + 4]).expect("4 bytes");
        let stop = Stop {
            signal,
            code: i32::from_le_bytes(word(8)),
            addr: u64::from_le_bytes(si[16..24].try_into().expect("8 bytes")),
            arch: u32::from_le_bytes(word(28)),
            error,
        };
        Some((stop, regs))
    }

    /// The event that a signal makes, of a thread whose registers are the application's.
    fn signalled(&mut self, s: &Stop, stopped: Stopped) -> Event {
        if s.signal == KICK {
            self.kick.served();
            return Event::Interrupted;
        }
        if s.signal == libc::SIGSYS {
            if s.arch != hostcall::bpf::ARCH_X86_64 {
                return Event::ForeignSyscall;
            }
            if stopped == Stopped::Outside {
                self.note_trapped();
            }
            return self.trapped();
        }
        Event::Fault {
            signal: s.signal,
            code: s.code,
            addr: s.addr,
            error: s.error,
        }
    }

    /// A call that traps has come from a site that is not patched. Threads make those that a lane
    /// may help once or twice each: all of a program are counted together.
    fn note_trapped(&mut self) {
        let lanes = self.process.factory.lanes;
        let r = &self.regs;
        if lanes != Lanes::None && LOCAL.contains(&(r.rax as u32)) {
            let mut hot = self.process.trapped.lock();
            hot.note(r.rip);
            self.hot.found = match lanes {
                Lanes::Mailbox => Some(r.rip),
                _ => hot.found.take(),
            };
        }
    }

    /// The system call that its registers are those of.
    fn trapped(&mut self) -> Event {
        self.from = From::Patched;
        self.regs.orig_rax = self.regs.rax;
        let r = &self.regs;
        Event::Syscall {
            // The kernel looks at the low half only.
            nr: u64::from(r.rax as u32),
            args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
            ip: r.rip,
        }
    }
}
