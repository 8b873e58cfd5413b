//! The ptrace platform: small, clear, slow; the reference to test the others against.
//!
//! The stub process is the notify platform's, with its service thread; application threads are
//! traced by the Sentry thread that drives them (`PTRACE_SYSEMU`: the host executes none of their
//! system calls), and registers are always known. Tracing begins with the first [`AppThread::run`],
//! because the tracer is a thread, not a process.

use crate::frame::merge_fp;
use crate::process::kick::Kick;
use crate::process::recycle::ProcessHandle;
use crate::process::{Drive, Factory, KICK, Process, RawThread};
use crate::{
    AddressSpace, AppThread, ERROR_UNKNOWN, Event, Interrupter, MapOp, Platform, Regs, SpaceEnd,
};
use abi::Result;
use abi::errno::{EINTR, EINVAL};
use abi::syscalls::X32;
use hostcall::process as host;
use std::sync::Arc;

/// The platform that `--platform=ptrace` names.
pub struct Ptrace(Arc<Factory>);

impl Ptrace {
    /// Must be called while the process has one thread.
    pub fn new() -> Result<Ptrace> {
        Ok(Ptrace(Factory::new(Drive::Ptrace, crate::Lanes::None)?))
    }
}

impl Platform for Ptrace {
    fn name(&self) -> &'static str {
        "ptrace"
    }
    fn new_address_space(&self) -> Result<Arc<dyn AddressSpace>> {
        Ok(Arc::new(Space(self.0.process()?)))
    }
    fn host_vdso(&self) -> Option<u64> {
        self.0.host_vdso
    }
    fn has_own_clocks(&self) -> bool {
        self.0.has_own_clocks()
    }
    fn end(&self) -> Option<hostcall::RawFd> {
        Some(self.0.zygote_end.raw())
    }
    fn when_quiet(&self, f: Box<dyn Fn() + Send + Sync>) {
        self.0.reaper.when_quiet(f);
    }
    fn wait_unmapped(&self, limit: std::time::Duration) -> bool {
        self.0.reaper.wait_unmapped(limit)
    }
}

impl Drop for Ptrace {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Space(ProcessHandle);

impl AddressSpace for Space {
    fn apply(&self, ops: &[MapOp]) -> Result<()> {
        self.0.apply(ops)
    }
    fn new_thread(&self) -> Result<Box<dyn AppThread>> {
        let raw = self.0.new_thread()?;
        Ok(Box::new(Thread {
            kick: Kick::new(self.0.pid, raw.tid, raw.unit, std::sync::Weak::new()),
            process: self.0.clone(),
            raw: Some(raw),
            state: State::New,
            regs: Regs {
                eflags: 0x202,
                ..Regs::default()
            },
            regs_changed: true,
            fp: None,
        }))
    }
    fn kill(&self) {
        self.0.kill();
    }
    fn end(&self) -> SpaceEnd {
        self.0.ended()
    }
    fn retire(&self, bytes: u64, then: Box<dyn FnOnce() + Send>) {
        self.0.retire(bytes, then);
    }
    fn cpu_nanos(&self) -> u64 {
        self.0.cpu_nanos()
    }
    fn own_clocks(&self) -> Result<()> {
        self.0.own_clocks()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not traced yet.
    New,
    /// In a ptrace stop of ours.
    Stopped,
    Gone,
}

struct Thread {
    process: Arc<Process>,
    raw: Option<RawThread>,
    kick: Arc<Kick>,
    state: State,
    regs: Regs,
    regs_changed: bool,
    /// FP state to be set before the thread first runs.
    fp: Option<Vec<u8>>,
}

/// `struct iovec` for the regset requests.
#[repr(C)]
struct Iovec {
    base: *mut u8,
    len: usize,
}

/// Room for every XSAVE component that x86-64 has.
const XSTATE_MAX: usize = 16384;
/// Sets the signals that a stopped thread blocks (`include/uapi/linux/ptrace.h`).
const PTRACE_SETSIGMASK: u32 = 0x420b;
/// The regset with the XSAVE area (`include/uapi/linux/elf.h`).
const NT_X86_XSTATE: usize = 0x202;

impl Thread {
    fn tid(&self) -> i32 {
        self.raw.as_ref().map_or(-1, |r| r.tid)
    }

    fn gone(&mut self) -> Event {
        self.state = State::Gone;
        Event::Gone
    }

    /// Waits for the next stop: the status word's high half, `None` when the thread has ended.
    fn wait(&mut self) -> Option<i32> {
        loop {
            match host::wait(self.tid(), libc::__WALL) {
                Ok((_, status)) if libc::WIFSTOPPED(status) => return Some(status >> 8),
                Err(EINTR) => {}
                _ => return None,
            }
        }
    }

    fn seize(&mut self) -> Option<()> {
        let tid = self.tid();
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        host::ptrace(libc::PTRACE_SEIZE, tid, 0, options as usize).ok()?;
        host::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).ok()?;
        self.wait()?;
        // The segments that the host's rt_sigreturn would give.
        let mut now = Regs::default();
        // SAFETY: Regs is laid out as user_regs_struct.
        unsafe { host::ptrace_data(libc::PTRACE_GETREGS, tid, 0, &raw mut now) }.ok()?;
        let mut r = self.regs;
        (r.cs, r.ss, r.ds, r.es, r.fs, r.gs) = (now.cs, now.ss, now.ds, now.es, now.fs, now.gs);
        self.regs = r;
        // All are blocked since it was cloned.
        let mut none = 0u64;
        let (request, len) = (PTRACE_SETSIGMASK, size_of_val(&none));
        // SAFETY: a sigset of 8 bytes.
        unsafe { host::ptrace_data(request, tid, len, &raw mut none) }.ok()?;
        self.state = State::Stopped;
        if let Some(fp) = self.fp.take() {
            let _ = self.write_fp(&fp);
        }
        Some(())
    }

    fn read_fp(&self) -> Option<Vec<u8>> {
        let mut buf = vec![0u8; XSTATE_MAX];
        let mut iov = Iovec {
            base: buf.as_mut_ptr(),
            len: buf.len(),
        };
        let set = NT_X86_XSTATE;
        // SAFETY: the iovec describes our buffer.
        unsafe { host::ptrace_data(libc::PTRACE_GETREGSET, self.tid(), set, &raw mut iov) }.ok()?;
        let len = iov.len.min(XSTATE_MAX);
        buf.truncate(len);
        // In a signal frame the software bytes say what follows (`struct _fpx_sw_bytes`); here the
        // kernel puts the known components into the first of them.
        if len >= 576 {
            let known: [u8; 8] = buf[464..472].try_into().expect("8 bytes");
            buf[464..468].copy_from_slice(&0x4650_5853u32.to_le_bytes());
            buf[468..472].copy_from_slice(&(len as u32 + 4).to_le_bytes());
            buf[472..480].copy_from_slice(&known);
            buf[480..484].copy_from_slice(&(len as u32).to_le_bytes());
        }
        Some(buf)
    }

    fn write_fp(&self, state: &[u8]) -> Result<()> {
        let mut host_fp = self.read_fp().ok_or(EINVAL)?;
        if state.len() < 512 {
            return Err(EINVAL);
        }
        merge_fp(&mut host_fp, state);
        let mut iov = Iovec {
            base: host_fp.as_mut_ptr(),
            len: host_fp.len(),
        };
        let set = NT_X86_XSTATE;
        // SAFETY: the iovec describes our buffer.
        unsafe { host::ptrace_data(libc::PTRACE_SETREGSET, self.tid(), set, &raw mut iov) }
    }

    fn resume(&mut self) -> Option<()> {
        let tid = self.tid();
        if self.regs_changed {
            let mut r = self.regs;
            // Never let the host restart a call of its own.
            r.orig_rax = u64::MAX;
            (r.cs, r.ss, r.ds, r.es, r.fs, r.gs) = (0x33, 0x2b, 0, 0, 0, 0);
            // What popf may change, the trap flag included.
            r.eflags = (r.eflags & 0x0005_4dd5) | 0x202;
            // SAFETY: Regs is laid out as user_regs_struct.
            unsafe { host::ptrace_data(libc::PTRACE_SETREGS, tid, 0, &raw mut r) }.ok()?;
            self.regs_changed = false;
        }
        host::ptrace(libc::PTRACE_SYSEMU, tid, 0, 0).ok()
    }

    fn next(&mut self) -> Option<Event> {
        loop {
            let stop = self.wait()?;
            let tid = self.tid();
            // SAFETY: Regs is laid out as user_regs_struct.
            unsafe { host::ptrace_data(libc::PTRACE_GETREGS, tid, 0, &raw mut self.regs) }.ok()?;
            let r = &self.regs;
            let signal = stop & 0xff;
            if signal == libc::SIGTRAP | 0x80 {
                let nr = r.orig_rax;
                if (stub::TEXT..stub::FILTERS).contains(&r.rip) {
                    // No code of ours runs traced: the application jumped there. It would loop in
                    // the spawner and clone without end; the notify platform's filter kills it for
                    // the same.
                    self.process.kill();
                    return None;
                }
                // int 0x80 and x32 come here as well: the former with a 32-bit number space.
                if self.is_foreign(nr) {
                    return Some(Event::ForeignSyscall);
                }
                let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
                return Some(Event::Syscall {
                    nr: u64::from(nr as u32),
                    args,
                    ip: r.rip,
                });
            }
            if stop >> 8 != 0 {
                // PTRACE_EVENT_STOP: the interrupt of the seizure, or a group stop; go on.
                host::ptrace(libc::PTRACE_SYSEMU, tid, 0, 0).ok()?;
                continue;
            }
            self.regs.orig_rax = u64::MAX;
            if signal == KICK {
                return Some(Event::Interrupted);
            }
            let mut si = [0u8; 128];
            // SAFETY: room for a siginfo.
            unsafe { host::ptrace_data(libc::PTRACE_GETSIGINFO, tid, 0, si.as_mut_ptr()) }.ok()?;
            let code = i32::from_le_bytes(si[8..12].try_into().expect("4 bytes"));
            let addr = u64::from_le_bytes(si[16..24].try_into().expect("8 bytes"));
            let rip = self.regs.rip;
            let error = if addr.wrapping_sub(rip) < 16 {
                0x10
            } else {
                ERROR_UNKNOWN
            };
            return Some(Event::Fault {
                signal,
                code,
                addr,
                error,
            });
        }
    }

    /// Whether the call came by another gate than `syscall`: the instruction before says so.
    fn is_foreign(&self, nr: u64) -> bool {
        if nr as u32 >= X32 {
            return true;
        }
        let mut info = [0u8; 88];
        let (tid, size) = (self.tid(), info.len());
        // SAFETY: room for struct ptrace_syscall_info.
        let r = unsafe {
            host::ptrace_data(libc::PTRACE_GET_SYSCALL_INFO, tid, size, info.as_mut_ptr())
        };
        r.is_ok()
            && u32::from_le_bytes(info[4..8].try_into().expect("4 bytes"))
                != hostcall::bpf::ARCH_X86_64
    }
}

impl AppThread for Thread {
    fn run(&mut self) -> Event {
        if self.state == State::Gone || (self.state == State::New && self.seize().is_none()) {
            return self.gone();
        }
        if self.resume().is_none() {
            return self.gone();
        }
        match self.next() {
            Some(e) => e,
            None => self.gone(),
        }
    }
    fn set_return(&mut self, value: u64) {
        self.regs.rax = value;
        self.regs_changed = true;
    }
    fn has_regs(&self) -> bool {
        true
    }
    fn fetch_regs(&mut self) -> Event {
        if self.state == State::Gone {
            Event::Gone
        } else {
            Event::Interrupted
        }
    }
    fn regs(&self) -> Regs {
        self.regs
    }
    fn set_regs(&mut self, regs: &Regs) {
        self.regs = *regs;
        self.regs_changed = true;
    }
    fn fp_state(&self, out: &mut Vec<u8>) {
        if self.state == State::New {
            // Not traced yet: what it begins with.
            out.extend_from_slice(self.fp.as_deref().unwrap_or_default());
        } else if let Some(fp) = self.read_fp() {
            out.extend_from_slice(&fp);
        }
    }
    fn set_fp_state(&mut self, state: Option<&[u8]>) -> Result<()> {
        match (self.state, state) {
            (State::New, s) => {
                self.fp = s.map(<[u8]>::to_vec);
                Ok(())
            }
            (State::Gone, _) => Ok(()),
            (State::Stopped, Some(s)) => self.write_fp(s),
            (State::Stopped, None) => {
                // The initial state: control words as after FNINIT, no components.
                let mut init = vec![0u8; 576];
                init[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
                init[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
                self.write_fp(&init)
            }
        }
    }
    fn interrupter(&self) -> Arc<dyn Interrupter> {
        self.kick.clone()
    }

    fn cpu_clock(&self) -> crate::CpuClock {
        let raw = self.raw.as_ref().expect("until drop");
        crate::CpuClock::new(self.process.thread_clock(raw))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.kick.end();
        let tid = self.tid();
        let raw = self.raw.take().expect("only here");
        if self.state == State::New {
            // Never seized: it sleeps in the stub until its process ends.
            return;
        }
        let resumed = self.state == State::Stopped && {
            // Run the stub's exit by putting the thread there; the host executes it, since
            // PTRACE_CONT does not emulate.
            let mut r = self.regs;
            r.rip = stub::address(stub::Symbol::Exit);
            r.orig_rax = u64::MAX;
            (r.cs, r.ss, r.ds, r.es, r.fs, r.gs) = (0x33, 0x2b, 0, 0, 0, 0);
            // SAFETY: Regs is laid out as user_regs_struct.
            let set = unsafe { host::ptrace_data(libc::PTRACE_SETREGS, tid, 0, &raw mut r) };
            set.is_ok() && host::ptrace(libc::PTRACE_CONT, tid, 0, 0).is_ok()
        };
        if !resumed {
            self.process.kill();
        }
        // Its end is ours to take note of: a traced thread stays a zombie until its tracer waits
        // for it, and its process with it. (`ECHILD`: it was done.)
        loop {
            match host::wait(tid, libc::__WALL) {
                Ok((_, s)) if libc::WIFSTOPPED(s) => {
                    let _ = host::ptrace(libc::PTRACE_CONT, tid, 0, 0);
                }
                Err(EINTR) => {}
                _ => break,
            }
        }
        self.process.give_area(raw.area_no);
    }
}
