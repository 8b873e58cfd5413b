//! The notify platform: seccomp user notification with synchronous wake-up.
//!
//! Each application thread has its own filter with its own listener, so that one Sentry thread waits for it
//! alone. A system call is a notification: number, arguments and instruction pointer, no registers. Calls
//! that need the registers, faults and interrupts go through the stub's signal handler, which makes the
//! *event call*, another notification, whose arguments say where the register frame lies.
//!
//! `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` holds signals back while a received call waits for its answer;
//! so a kick sent before the answer is taken right after the call returns, before any application
//! instruction. That is how registers are fetched after a plain notification.

use crate::frame::Frame;
use crate::kick::Kick;
use crate::process::{Drive, Factory, KICK, Listener, Process, RawThread, recv, release_after};
use crate::recycle::Held;
use crate::{AddressSpace, AppThread, Event, Interrupter, MapOp, Platform, Regs};
use abi::Result;
use abi::errno::{EINVAL, ESRCH};
use hostcall::process as host;
use std::sync::Arc;

/// The platform that `--platform=notify` names.
pub struct Notify(Arc<Factory>);

impl Notify {
    /// Must be called while the process has one thread.
    pub fn new() -> Result<Notify> {
        Ok(Notify(Factory::new(Drive::Notify)?))
    }
}

impl Platform for Notify {
    fn name(&self) -> &'static str {
        "notify"
    }
    fn new_address_space(&self) -> Result<Arc<dyn AddressSpace>> {
        Ok(Arc::new(Space(self.0.process()?)))
    }
    fn host_vdso(&self) -> Option<u64> {
        self.0.host_vdso
    }
    fn end(&self) -> Option<hostcall::RawFd> {
        Some(self.0.zygote_end.raw())
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.0.pool.close();
        self.0.reaper.close();
    }
}

struct Space(Held);

impl AddressSpace for Space {
    fn apply(&self, ops: &[MapOp]) -> Result<()> {
        self.0.apply(ops)
    }
    fn new_thread(&self) -> Result<Box<dyn AppThread>> {
        Ok(Box::new(Thread::new(self.0.clone(), self.0.new_thread()?)?))
    }
    fn kill(&self) {
        self.0.kill();
    }
    fn retire(&self, then: Box<dyn FnOnce() + Send>) {
        self.0.retire(then);
    }
    fn cpu_nanos(&self) -> u64 {
        self.0.cpu_nanos()
    }
}

/// What the thread waits in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// A plain notification of a system call.
    Call {
        id: u64,
        nr: u64,
    },
    /// The event call: its register frame is at this stub address.
    Event {
        id: u64,
        uc: u64,
    },
    Gone,
}

struct Thread {
    process: Arc<Process>,
    raw: Option<RawThread>,
    /// `None` only while dropped.
    listener: Option<Listener>,
    kick: Arc<Kick>,
    waits: Waits,
    ret: u64,
    /// Valid while in `Waits::Event`.
    regs: Regs,
    regs_changed: bool,
    bases_changed: bool,
}

impl Thread {
    fn new(process: Arc<Process>, mut raw: RawThread) -> Result<Thread> {
        let listener = raw.listener.take().ok_or(EINVAL)?;
        let raw_tid = raw.tid;
        let kick = Kick::new(process.pid, raw_tid, Arc::downgrade(&process));
        let mut t = Thread {
            process,
            raw: Some(raw),
            listener: Some(listener),
            kick,
            waits: Waits::Gone,
            ret: 0,
            regs: Regs::default(),
            regs_changed: false,
            bases_changed: false,
        };
        // The start event; its frame is laid out here.
        let n = recv(t.listener()).map_err(|_| ESRCH)?;
        let uc = {
            let (area, base) = t.area();
            Frame::fresh(area, base).address()
        };
        let [what, _, said, ..] = n.data.args;
        if (n.pid as i32, what, said) != (raw_tid, stub::EVENT_START, uc) {
            // Another thread's listener, or none that waits at its start: the number was false.
            t.process.kill();
            return Err(ESRCH);
        }
        t.waits = Waits::Event { id: n.id, uc };
        t.regs.eflags = 0x202;
        t.bases_changed = true;
        t.regs_changed = true;
        Ok(t)
    }

    fn area(&self) -> (hostcall::MemSlice<'_>, u64) {
        let raw = self.raw.as_ref().expect("until drop");
        self.process.area(raw.area_no, raw.unit)
    }

    fn listener(&self) -> &Listener {
        self.listener.as_ref().expect("until drop")
    }

    fn frame(&self) -> Option<Frame<'_>> {
        let Waits::Event { uc, .. } = self.waits else {
            return None;
        };
        let (area, base) = self.area();
        Frame::new(area, base, uc)
    }

    /// Lets the thread go on with what was set.
    fn answer(&mut self) -> Result<()> {
        let (id, val) = match self.waits {
            Waits::Gone => return Err(ESRCH),
            Waits::Call { id, .. } => (id, self.ret),
            Waits::Event { id, .. } => {
                if self.regs_changed
                    && let Some(f) = self.frame()
                {
                    f.set_regs(&self.regs);
                }
                let mut val = 0;
                if self.bases_changed {
                    let (area, _) = self.area();
                    let put = |at: u64, v: u64| {
                        area.sub(at as usize, 8).copy_from(&v.to_le_bytes());
                    };
                    put(stub::area::FS_BASE, self.regs.fs_base);
                    put(stub::area::GS_BASE, self.regs.gs_base);
                    val |= stub::REPLY_BASES;
                }
                (id, val)
            }
        };
        self.regs_changed = false;
        self.bases_changed = false;
        self.ret = 0;
        host::notif_send(self.listener().raw(), id, val as i64)
    }

    /// The application destroyed its own stub: end it.
    fn broken(&mut self) -> Event {
        self.process.kill();
        self.waits = Waits::Gone;
        Event::Gone
    }

    /// `due`: the kick had been sent before the thread went on.
    fn next(&mut self, due: bool) -> Event {
        let got = recv(self.listener());
        self.kick.left();
        let Ok(n) = got else {
            self.waits = Waits::Gone;
            return Event::Gone;
        };
        let d = &n.data;
        if !(stub::TEXT..stub::FILTERS).contains(&d.instruction_pointer) {
            if due {
                // The kick was sent before the thread went on, and is taken before anything else unless the
                // application blocked it by a frame of its own.
                return self.broken();
            }
            let nr = u64::from(d.nr as u32);
            self.waits = Waits::Call { id: n.id, nr };
            return Event::Syscall {
                nr,
                args: d.args,
                ip: d.instruction_pointer,
            };
        }
        let [signal, info, uc, fs, gs, _] = d.args;
        self.waits = Waits::Event { id: n.id, uc };
        let Some(f) = self.frame() else {
            return self.broken();
        };
        let mut regs = f.regs();
        let error = f.error_code();
        regs.fs_base = fs;
        regs.gs_base = gs;
        regs.orig_rax = u64::MAX;
        self.regs = regs;
        let Ok(signal) = i32::try_from(signal) else {
            return self.broken();
        };
        if signal == KICK {
            self.kick.served();
            return Event::Interrupted;
        }
        // siginfo lies behind the ucontext on the same stack.
        let (area, base) = self.area();
        let at = info.wrapping_sub(base);
        if at >= area.len() as u64 - 128 {
            return self.broken();
        }
        let mut si = [0u8; 32];
        area.sub(at as usize, 32).copy_to(&mut si);
        let code = i32::from_le_bytes(si[8..12].try_into().expect("4 bytes"));
        let addr = u64::from_le_bytes(si[16..24].try_into().expect("8 bytes"));
        if signal == libc::SIGSYS {
            let arch = u32::from_le_bytes(si[28..32].try_into().expect("4 bytes"));
            // The kernel looks at the low half only.
            let nr = u64::from(self.regs.rax as u32);
            if arch != hostcall::bpf::ARCH_X86_64 {
                return Event::ForeignSyscall;
            }
            self.regs.orig_rax = self.regs.rax;
            let r = &self.regs;
            return Event::Syscall {
                nr,
                args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
                ip: r.rip,
            };
        }
        Event::Fault {
            signal,
            code,
            addr,
            error,
        }
    }
}

impl AppThread for Thread {
    fn run(&mut self) -> Event {
        let due = self.kick.entered();
        if self.answer().is_err() {
            self.kick.left();
            self.waits = Waits::Gone;
            return Event::Gone;
        }
        self.next(due)
    }

    fn set_return(&mut self, value: u64) {
        match self.waits {
            Waits::Event { .. } => {
                self.regs.rax = value;
                self.regs_changed = true;
            }
            _ => self.ret = value,
        }
    }

    fn has_regs(&self) -> bool {
        !matches!(self.waits, Waits::Call { .. })
    }

    fn fetch_regs(&mut self) -> Event {
        let Waits::Call { nr, .. } = self.waits else {
            return if self.waits == Waits::Gone {
                Event::Gone
            } else {
                Event::Interrupted
            };
        };
        self.kick.interrupt();
        match self.run() {
            Event::Interrupted => {
                self.regs.orig_rax = nr;
                Event::Interrupted
            }
            Event::Gone => Event::Gone,
            // Only an application that blocked the kick signal by a frame of its own gets here.
            _ => self.broken(),
        }
    }

    fn regs(&self) -> Regs {
        assert!(self.has_regs(), "registers are not known");
        self.regs
    }

    fn set_regs(&mut self, regs: &Regs) {
        assert!(self.has_regs(), "registers are not known");
        self.bases_changed |=
            regs.fs_base != self.regs.fs_base || regs.gs_base != self.regs.gs_base;
        self.regs = *regs;
        self.regs_changed = true;
    }

    fn fp_state(&self, out: &mut Vec<u8>) {
        if let Some(f) = self.frame() {
            f.fp_state(out);
        }
    }

    fn set_fp_state(&mut self, state: Option<&[u8]>) -> Result<()> {
        match self.frame() {
            Some(f) => f.set_fp_state(state),
            None => Ok(()),
        }
    }

    fn interrupter(&self) -> Arc<dyn Interrupter> {
        self.kick.clone()
    }

    fn cpu_clock(&self) -> crate::CpuClock {
        let raw = self.raw.as_ref().expect("until drop");
        self.process.thread_clock(raw)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Ask the thread to end, in the handler; a thread in application code is kicked there first.
        let ended = match self.waits {
            Waits::Gone => true,
            Waits::Event { id, .. } => {
                host::notif_send(self.listener().raw(), id, stub::REPLY_EXIT as i64).is_err()
            }
            Waits::Call { id, .. } => {
                self.kick.interrupt();
                self.kick.entered();
                let _ = host::notif_send(self.listener().raw(), id, 0);
                // What hostile code sends next is answered as if it were the handler: another call of its
                // own returns, and the wait below tells that the thread has not ended.
                match recv(self.listener()) {
                    Ok(n) => host::notif_send(self.listener().raw(), n.id, stub::REPLY_EXIT as i64)
                        .is_err(),
                    Err(_) => true,
                }
            }
        };
        self.kick.left();
        self.kick.end();
        let raw = self.raw.take().expect("only here");
        let listener = self.listener.take().expect("only here");
        release_after(&self.process, raw, listener, ended);
    }
}
