//! Tracing: ptrace(2). What its requests do is in [`trace`].

use super::SysResult;
use super::args::*;
use crate::task::trace::registers::{NT_PRFPREG, NT_PRSTATUS, NT_X86_XSTATE};
use crate::task::trace::requests::{self as ask, CallStop, Resume, Set};
use crate::task::trace::{By, Mode, Options};
use crate::task::{Context, Task, seccomp};
use ::seccomp::bpf::ARCH;
use abi::errno::*;
use abi::ptrace::*;
use abi::signal::{SI_USER, SIGKILL};
use abi::{Result, SigInfo, SigSet, Va};
use platform::Regs;
use std::sync::Arc;
use vfs::Caps;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

named! {
    /// What ptrace(2) does.
    struct Request(i64) {
        PTRACE_TRACEME = PTRACE_TRACEME as i64,
        PTRACE_PEEKTEXT = PTRACE_PEEKTEXT as i64,
        PTRACE_PEEKDATA = PTRACE_PEEKDATA as i64,
        PTRACE_PEEKUSR = PTRACE_PEEKUSR as i64,
        PTRACE_POKETEXT = PTRACE_POKETEXT as i64,
        PTRACE_POKEDATA = PTRACE_POKEDATA as i64,
        PTRACE_POKEUSR = PTRACE_POKEUSR as i64,
        PTRACE_CONT = PTRACE_CONT as i64,
        PTRACE_KILL = PTRACE_KILL as i64,
        PTRACE_SINGLESTEP = PTRACE_SINGLESTEP as i64,
        PTRACE_GETREGS = PTRACE_GETREGS as i64,
        PTRACE_SETREGS = PTRACE_SETREGS as i64,
        PTRACE_GETFPREGS = PTRACE_GETFPREGS as i64,
        PTRACE_SETFPREGS = PTRACE_SETFPREGS as i64,
        PTRACE_ATTACH = PTRACE_ATTACH as i64,
        PTRACE_DETACH = PTRACE_DETACH as i64,
        PTRACE_OLDSETOPTIONS = PTRACE_OLDSETOPTIONS as i64,
        PTRACE_SYSCALL = PTRACE_SYSCALL as i64,
        PTRACE_ARCH_PRCTL = PTRACE_ARCH_PRCTL as i64,
        PTRACE_SYSEMU = PTRACE_SYSEMU as i64,
        PTRACE_SYSEMU_SINGLESTEP = PTRACE_SYSEMU_SINGLESTEP as i64,
        PTRACE_SETOPTIONS = PTRACE_SETOPTIONS as i64,
        PTRACE_GETEVENTMSG = PTRACE_GETEVENTMSG as i64,
        PTRACE_GETSIGINFO = PTRACE_GETSIGINFO as i64,
        PTRACE_SETSIGINFO = PTRACE_SETSIGINFO as i64,
        PTRACE_GETREGSET = PTRACE_GETREGSET as i64,
        PTRACE_SETREGSET = PTRACE_SETREGSET as i64,
        PTRACE_SEIZE = PTRACE_SEIZE as i64,
        PTRACE_INTERRUPT = PTRACE_INTERRUPT as i64,
        PTRACE_LISTEN = PTRACE_LISTEN as i64,
        PTRACE_PEEKSIGINFO = PTRACE_PEEKSIGINFO as i64,
        PTRACE_GETSIGMASK = PTRACE_GETSIGMASK as i64,
        PTRACE_SETSIGMASK = PTRACE_SETSIGMASK as i64,
        PTRACE_SECCOMP_GET_FILTER = PTRACE_SECCOMP_GET_FILTER as i64,
        PTRACE_SECCOMP_GET_METADATA = PTRACE_SECCOMP_GET_METADATA as i64,
        PTRACE_GET_SYSCALL_INFO = PTRACE_GET_SYSCALL_INFO as i64,
        PTRACE_GET_RSEQ_CONFIGURATION = PTRACE_GET_RSEQ_CONFIGURATION as i64,
        PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG = PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG as i64,
        PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG = PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG as i64,
        PTRACE_SET_SYSCALL_INFO = PTRACE_SET_SYSCALL_INFO as i64,
    }
}

/// `ptrace(request, pid, addr, data)`.
fn ptrace(cx: &mut Context, request: Request, tid: Tid, addr: Va, data: Va) -> SysResult {
    if request == Request::PTRACE_TRACEME {
        return ask::trace_me(cx).map(|()| 0);
    }
    let attaches = matches!(request, Request::PTRACE_ATTACH | Request::PTRACE_SEIZE);
    let t = match tid.task(cx) {
        Ok(t) => t,
        // Of a process that has ended there is nothing to trace.
        Err(_) if attaches && cx.find_group(tid.0).is_ok() => return Err(EPERM),
        Err(e) => return Err(e),
    };
    match request {
        Request::PTRACE_ATTACH => attach(cx, &t, By::Attaching, Options::empty()),
        Request::PTRACE_SEIZE => {
            // Unknown options are another error than elsewhere.
            if addr.0 != 0 || data.0 & !u64::from(PTRACE_O_MASK) != 0 {
                return Err(EIO);
            }
            attach(cx, &t, By::Seizing, ask::options(cx, data.0)?)
        }
        Request::PTRACE_KILL => {
            ask::is_tracer(cx, &t)?;
            let info = SigInfo::new(SIGKILL, SI_USER);
            cx.kernel.send_to_task(&t, info).map(|()| 0)
        }
        Request::PTRACE_INTERRUPT => ask::interrupt(cx, &t).map(|()| 0),
        _ => {
            ask::is_stopped(cx, &t)?;
            of_stopped(cx, request, &t, addr, data)
        }
    }
}

fn attach(cx: &Context, t: &Arc<Task>, by: By, options: Options) -> SysResult {
    ask::attach(cx, t, by, options).map(|()| 0)
}

/// The requests that want the tracee to stand still.
fn of_stopped(cx: &Context, request: Request, t: &Arc<Task>, addr: Va, data: Va) -> SysResult {
    let mm = cx.mm();
    let done = |()| 0;
    match request {
        Request::PTRACE_PEEKTEXT | Request::PTRACE_PEEKDATA => {
            mm.write_obj(data, &ask::peek(cx, t, addr)?).map(done)
        }
        Request::PTRACE_POKETEXT | Request::PTRACE_POKEDATA => {
            ask::poke(cx, t, addr, data.0).map(done)
        }
        Request::PTRACE_PEEKUSR => {
            let word = ask::peek_user(cx, t, addr.0)?;
            mm.write_obj(data, &word).map(done)
        }
        Request::PTRACE_POKEUSR => ask::poke_user(cx, t, addr.0, data.0).map(done),
        Request::PTRACE_CONT => resume(cx, t, Mode::empty(), data.0),
        Request::PTRACE_SYSCALL => resume(cx, t, Mode::SYSCALL, data.0),
        Request::PTRACE_SYSEMU => resume(cx, t, Mode::EMULATE, data.0),
        Request::PTRACE_SINGLESTEP => resume(cx, t, Mode::STEP, data.0),
        Request::PTRACE_SYSEMU_SINGLESTEP => resume(cx, t, Mode::EMULATE | Mode::STEP, data.0),
        Request::PTRACE_DETACH => ask::detach(cx, t, signal(data.0)?).map(done),
        Request::PTRACE_LISTEN => ask::listen(cx, t).map(done),
        Request::PTRACE_SETOPTIONS | Request::PTRACE_OLDSETOPTIONS => {
            ask::set_options(cx, t, ask::options(cx, data.0)?).map(done)
        }
        Request::PTRACE_GETEVENTMSG => mm.write_obj(data, &ask::message(cx, t)?).map(done),
        Request::PTRACE_GETSIGINFO => mm.copy_out(data, ask::info(cx, t)?.as_bytes()).map(done),
        Request::PTRACE_SETSIGINFO => {
            let new: SigInfo = mm.read_obj(data)?;
            ask::set_info(cx, t, new).map(done)
        }
        Request::PTRACE_PEEKSIGINFO => peek_signals(cx, t, addr, data),
        Request::PTRACE_GETSIGMASK | Request::PTRACE_SETSIGMASK => {
            if addr.0 != size_of::<SigSet>() as u64 {
                return Err(EINVAL);
            }
            if request == Request::PTRACE_GETSIGMASK {
                return mm.write_obj(data, &ask::mask(cx, t)?.0).map(done);
            }
            ask::set_mask(cx, t, SigSet(mm.read_obj(data)?)).map(done)
        }
        Request::PTRACE_ARCH_PRCTL => arch_prctl(cx, t, data.0, addr),
        _ => of_registers(cx, request, t, addr, data),
    }
}

/// Those about registers, and what is rarely asked.
fn of_registers(cx: &Context, request: Request, t: &Arc<Task>, addr: Va, data: Va) -> SysResult {
    let mm = cx.mm();
    let done = |()| 0;
    match request {
        Request::PTRACE_GETREGS => get(cx, t, Set::General, data),
        Request::PTRACE_GETFPREGS => get(cx, t, Set::Float, data),
        Request::PTRACE_SETREGS => set(cx, t, Set::General, data),
        Request::PTRACE_SETFPREGS => set(cx, t, Set::Float, data),
        Request::PTRACE_GETREGSET | Request::PTRACE_SETREGSET => {
            register_set(cx, request, t, addr.0, data)
        }
        Request::PTRACE_GET_SYSCALL_INFO => call_info(cx, t, addr.0, data),
        Request::PTRACE_SET_SYSCALL_INFO => set_call_info(cx, t, addr.0, data),
        Request::PTRACE_SECCOMP_GET_FILTER => {
            may_see_filters(cx)?;
            let code = seccomp::code(t, addr.0)?;
            if data.0 != 0 {
                mm.copy_out(data, &code)?;
            }
            Ok(code.len() / size_of::<::seccomp::bpf::Insn>())
        }
        Request::PTRACE_SECCOMP_GET_METADATA => {
            may_see_filters(cx)?;
            let size = addr.0.min(16) as usize;
            if size < 8 {
                return Err(EINVAL);
            }
            let mut meta = [0u8; 16];
            mm.copy_in(data, &mut meta[..8])?;
            let number = u64::from_le_bytes(meta[..8].try_into().expect("8 bytes"));
            seccomp::code(t, number)?;
            // No filter is to be logged.
            mm.copy_out(data, &meta[..size])?;
            Ok(size)
        }
        Request::PTRACE_GET_RSEQ_CONFIGURATION => {
            // None has any.
            let none = [0u8; 24];
            let n = addr.0.min(24) as usize;
            mm.copy_out(data, &none[..n])?;
            Ok(none.len())
        }
        Request::PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG => match addr.0 {
            32 => mm.copy_out(data, &[0u8; 32]).map(done),
            _ => Err(EINVAL),
        },
        Request::PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG => {
            let mut config = [0u8; 32];
            if addr.0 != 32 {
                return Err(EINVAL);
            }
            mm.copy_in(data, &mut config)?;
            // Off, and nothing else.
            match config.iter().all(|b| *b == 0) {
                true => Ok(0),
                false => Err(EINVAL),
            }
        }
        _ => Err(EIO),
    }
}

/// A signal to go on with, or none.
fn signal(raw: u64) -> Result<i32> {
    if raw > 64 {
        return Err(EIO);
    }
    Ok(raw as i32)
}

fn resume(cx: &Context, t: &Arc<Task>, mode: Mode, data: u64) -> SysResult {
    let signal = signal(data)?;
    ask::resume(cx, t, Resume { mode, signal }).map(|()| 0)
}

fn get(cx: &Context, t: &Task, set: Set, data: Va) -> SysResult {
    let bytes = ask::registers(cx, t, set)?;
    cx.mm().copy_out(data, &bytes).map(|()| 0)
}

fn set(cx: &Context, t: &Task, set: Set, data: Va) -> SysResult {
    let mut bytes = vec![0; set.size()];
    cx.mm().copy_in(data, &mut bytes)?;
    ask::set_registers(cx, t, set, &bytes).map(|()| 0)
}

const NT_386_IOPERM: u32 = 0x201;
const NT_X86_SHSTK: u32 = 0x204;

/// PTRACE_GETREGSET and PTRACE_SETREGSET (`ptrace_regset`).
fn register_set(cx: &Context, request: Request, t: &Task, kind: u64, iov: Va) -> SysResult {
    let mm = cx.mm();
    let [base, len]: [u64; 2] = mm.read_obj(iov)?;
    let gets = request == Request::PTRACE_GETREGSET;
    // (It is an `unsigned int` there.)
    let kind = kind as u32;
    let (set, unit) = match kind {
        NT_PRSTATUS => (Some(Set::General), 8),
        NT_PRFPREG => (Some(Set::Float), 8),
        NT_X86_XSTATE => (Some(Set::Extended), 8),
        // Ports: nobody has any. Shadow stacks: there are none.
        NT_386_IOPERM => (None, 8),
        NT_X86_SHSTK => (None, 8),
        _ => return Err(EINVAL),
    };
    if len % unit != 0 {
        return Err(EINVAL);
    }
    let Some(set) = set else {
        return Err(match kind {
            NT_X86_SHSTK => ENODEV,
            _ if gets => ENXIO,
            _ => EOPNOTSUPP,
        });
    };
    let n = (len as usize).min(set.size());
    if gets {
        let bytes = ask::registers(cx, t, set)?;
        mm.copy_out(Va(base), &bytes[..n])?;
    } else {
        let mut bytes = vec![0; n];
        mm.copy_in(Va(base), &mut bytes)?;
        ask::set_registers(cx, t, set, &bytes)?;
    }
    mm.write_obj(iov.offset(8), &(n as u64)).map(|()| 0)
}

/// `struct ptrace_peeksiginfo_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PeekArgs {
    from: u64,
    flags: u32,
    count: i32,
}

/// PTRACE_PEEKSIGINFO: how many were told.
fn peek_signals(cx: &Context, t: &Task, args: Va, data: Va) -> SysResult {
    /// Of so many infos at a time; as many as there may be take as many turns.
    const TURN: usize = 64;
    let mm = cx.mm();
    let a: PeekArgs = mm.read_obj(args)?;
    if a.flags & !PTRACE_PEEKSIGINFO_SHARED != 0 || a.count < 0 {
        return Err(EINVAL);
    }
    let queue = match a.flags {
        0 => &t.pending,
        _ => &t.group.shared,
    };
    let mut done = 0;
    while done < a.count as usize {
        let Some(from) = a.from.checked_add(done as u64) else {
            break;
        };
        let some = queue.peek(from, TURN.min(a.count as usize - done));
        if some.is_empty() {
            break;
        }
        for info in some {
            let to = data.offset((done * size_of::<SigInfo>()) as u64);
            match mm.copy_out(to, info.as_bytes()) {
                Ok(()) => done += 1,
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
        }
        if cx.has_work() {
            break;
        }
    }
    Ok(done)
}

/// PTRACE_ARCH_PRCTL.
fn arch_prctl(cx: &Context, t: &Task, op: u64, addr: Va) -> SysResult {
    use std::mem::offset_of;
    let (fs, gs) = (offset_of!(Regs, fs_base), offset_of!(Regs, gs_base));
    let (at, gets) = match op {
        0x1001 => (gs, false),
        0x1002 => (fs, false),
        0x1003 => (fs, true),
        0x1004 => (gs, true),
        _ => return Err(EINVAL),
    };
    if gets {
        let base = ask::peek_user(cx, t, at as u64)?;
        return cx.mm().write_obj(addr, &base).map(|()| 0);
    }
    if addr.0 >= platform::USER_MAX {
        return Err(EPERM);
    }
    ask::poke_user(cx, t, at as u64, addr.0).map(|()| 0)
}

/// `struct ptrace_syscall_info`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct CallInfo {
    op: u8,
    reserved: u8,
    flags: u16,
    arch: u32,
    ip: u64,
    sp: u64,
    /// The number and the arguments; or the result, and whether it is an error's.
    words: [u64; 7],
    /// The filter's.
    data: u32,
    more: u32,
}

const fn kind(at: CallStop) -> u32 {
    match at {
        CallStop::None => PTRACE_SYSCALL_INFO_NONE,
        CallStop::Entry => PTRACE_SYSCALL_INFO_ENTRY,
        CallStop::Exit => PTRACE_SYSCALL_INFO_EXIT,
        CallStop::Seccomp(_) => PTRACE_SYSCALL_INFO_SECCOMP,
    }
}

/// PTRACE_GET_SYSCALL_INFO: its length.
fn call_info(cx: &Context, t: &Task, size: u64, data: Va) -> SysResult {
    let (at, r) = ask::call_stop(cx, t)?;
    let mut info = CallInfo {
        op: kind(at) as u8,
        arch: ARCH,
        ip: r.rip,
        sp: r.rsp,
        ..CallInfo::default()
    };
    let len = match at {
        CallStop::None => 24,
        CallStop::Exit => {
            let is_error = (r.rax as i64) < 0 && (r.rax as i64) >= -4095;
            info.words[0] = r.rax;
            info.words[1] = is_error.into();
            33
        }
        CallStop::Entry | CallStop::Seccomp(_) => {
            let nr = i64::from(r.orig_rax as i32) as u64;
            info.words = [nr, r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
            match at {
                CallStop::Seccomp(d) => {
                    info.data = d;
                    SECCOMP_LEN
                }
                _ => 80,
            }
        }
    };
    let n = len.min(usize::try_from(size).unwrap_or(usize::MAX));
    cx.mm().copy_out(data, &info.as_bytes()[..n])?;
    Ok(len)
}

/// How much is told of a filter's stop: with what is reserved behind it (Linux 6.16).
const SECCOMP_LEN: usize = 88;

/// PTRACE_SET_SYSCALL_INFO (Linux 6.16).
fn set_call_info(cx: &Context, t: &Task, size: u64, data: Va) -> SysResult {
    if size < size_of::<CallInfo>() as u64 {
        return Err(EINVAL);
    }
    let mut raw = [0; size_of::<CallInfo>()];
    cx.mm().copy_in(data, &mut raw)?;
    let i = CallInfo::read_from_bytes(&raw).map_err(|_| EINVAL)?;
    if i.flags != 0 || i.reserved != 0 {
        return Err(EINVAL);
    }
    let op = u32::from(i.op);
    let same = |at| kind(at) == op && at != CallStop::None;
    let change = |r: &mut Regs| {
        let w = i.words;
        if op == PTRACE_SYSCALL_INFO_EXIT {
            r.rax = w[0];
            return Ok(());
        }
        let nr = i32::try_from(w[0] as i64).map_err(|_| ERANGE)?;
        r.orig_rax = i64::from(nr) as u64;
        if nr != -1 {
            [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = [w[1], w[2], w[3], w[4], w[5], w[6]];
        }
        Ok(())
    };
    ask::change_call(cx, t, same, change).map(|()| 0)
}

/// Filters are shown to those only who are not under any.
fn may_see_filters(cx: &Context) -> Result<()> {
    let free = cx.seccomp.mode() == seccomp::Mode::Disabled;
    if free && cx.cred().has(Caps::SYS_ADMIN) {
        Ok(())
    } else {
        Err(EACCES)
    }
}

calls! {
    ptrace: "no hardware breakpoints, block steps or 32-bit code",
}
