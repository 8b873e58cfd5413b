//! Signal frames: what a handler finds on its stack (`arch/x86/kernel/signal_64.c`).

use super::Context;
use super::run::Trap;
use super::signal::{SA_NODEFER, SA_ONSTACK, SA_RESTORER, SigAction};
use abi::errno::EFAULT;
use abi::signal::SS_AUTODISARM;
use abi::{AltStack, Result, SigInfo, SigSet, Va};
use platform::Regs;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct sigcontext_64`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SigContext {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    eflags: u64,
    cs: u16,
    gs: u16,
    fs: u16,
    ss: u16,
    err: u64,
    trapno: u64,
    oldmask: u64,
    cr2: u64,
    fpstate: u64,
    reserved: [u64; 8],
}

/// `struct ucontext` as the kernel lays it out.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UContext {
    flags: u64,
    link: u64,
    stack: AltStack,
    mcontext: SigContext,
    sigmask: SigSet,
}

/// `struct rt_sigframe`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RtSigFrame {
    pretcode: u64,
    uc: UContext,
    info: SigInfo,
}

/// UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
const UC_FLAGS: u64 = 7;
const FP_MAGIC1: u32 = 0x4650_5853;
const FP_MAGIC2: u32 = 0x4650_5845;
/// Offset of `struct _fpx_sw_bytes` in the legacy area.
const SW_BYTES: usize = 464;
/// The stack below rsp that code may use without moving it.
const RED_ZONE: u64 = 128;
/// DF, RF, TF: cleared when a handler starts.
const CLEARED_FLAGS: u64 = 0x400 | 0x1_0000 | 0x100;

/// Pushes a frame and points the registers at the handler.
pub fn push(cx: &mut Context, info: &SigInfo, action: &SigAction) -> Result<()> {
    // Without a restorer there is no way back; x86-64 requires one.
    if action.flags & SA_RESTORER == 0 {
        return Err(EFAULT);
    }
    let regs = cx.thread.regs();
    let mut sp = regs.rsp.wrapping_sub(RED_ZONE);
    let on_alt = cx.altstack.holds(regs.rsp);
    // (By what is below the red zone, as Linux decides: `get_sigframe`.)
    let entering =
        action.flags & SA_ONSTACK != 0 && !cx.altstack.holds(sp) && !cx.altstack.is_disabled();
    if entering {
        sp = cx.altstack.sp.wrapping_add(cx.altstack.size);
    }
    let mut fp = Vec::with_capacity(4096);
    cx.thread.fp_state(&mut fp);
    if fp.len() >= SW_BYTES + 4 && fp[SW_BYTES..SW_BYTES + 4] == FP_MAGIC1.to_le_bytes() {
        fp.extend_from_slice(&FP_MAGIC2.to_le_bytes());
    }
    let fp_at = if fp.is_empty() {
        0
    } else {
        sp.wrapping_sub(fp.len() as u64) & !63
    };
    let below = if fp.is_empty() { sp } else { fp_at };
    let at = (below.wrapping_sub(size_of::<RtSigFrame>() as u64) & !15).wrapping_sub(8);
    if (on_alt || entering) && !cx.altstack.contains(at) {
        return Err(EFAULT);
    }
    let mask = cx.saved_mask.take().unwrap_or(cx.mask());
    let frame = RtSigFrame {
        pretcode: action.restorer,
        uc: UContext {
            flags: UC_FLAGS,
            link: 0,
            stack: cx.altstack,
            mcontext: context_of(&regs, fp_at, cx.mask(), &cx.trap),
            sigmask: mask,
        },
        info: *info,
    };
    let mm = cx.mm();
    if !fp.is_empty() {
        mm.copy_out(Va(fp_at), &fp)?;
    }
    mm.copy_out(Va(at), frame.as_bytes())?;
    // Whatever stack the handler is on (`signal_delivered`).
    if cx.altstack.flags & SS_AUTODISARM != 0 {
        cx.altstack = AltStack::RESET;
    }
    let mut blocked = cx.mask().union(action.mask);
    if action.flags & SA_NODEFER == 0
        && let Some(s) = info.signal()
    {
        blocked.insert(s);
    }
    cx.task.set_mask(blocked);
    let mut r = regs;
    r.rdi = info.signo as u64;
    r.rsi = at + std::mem::offset_of!(RtSigFrame, info) as u64;
    r.rdx = at + std::mem::offset_of!(RtSigFrame, uc) as u64;
    r.rax = 0;
    r.rsp = at;
    r.rip = action.handler;
    r.eflags &= !CLEARED_FLAGS;
    cx.thread.set_regs(&r);
    Ok(())
}

fn context_of(r: &Regs, fpstate: u64, mask: SigSet, trap: &Trap) -> SigContext {
    SigContext {
        r8: r.r8,
        r9: r.r9,
        r10: r.r10,
        r11: r.r11,
        r12: r.r12,
        r13: r.r13,
        r14: r.r14,
        r15: r.r15,
        rdi: r.rdi,
        rsi: r.rsi,
        rbp: r.rbp,
        rbx: r.rbx,
        rdx: r.rdx,
        rax: r.rax,
        rcx: r.rcx,
        rsp: r.rsp,
        rip: r.rip,
        eflags: r.eflags,
        cs: 0x33,
        gs: 0,
        fs: 0,
        ss: 0x2b,
        err: trap.error,
        trapno: trap.number,
        oldmask: mask.0,
        cr2: trap.address,
        fpstate,
        reserved: [0; 8],
    }
}

/// `rt_sigreturn(2)`: puts back what the frame holds. `EFAULT` for a bad frame.
pub fn pop(cx: &mut Context) -> Result<()> {
    let mut r = cx.thread.regs();
    let mm = cx.mm();
    // The handler's return popped the restorer's address.
    let uc: UContext = mm.read_obj(Va(r.rsp))?;
    let c = &uc.mcontext;
    let fp = if c.fpstate == 0 {
        None
    } else {
        let mut fp = vec![0u8; 512];
        mm.copy_in(Va(c.fpstate), &mut fp)?;
        let sw = |at: usize| {
            u32::from_le_bytes(fp[SW_BYTES + at..SW_BYTES + at + 4].try_into().expect("4"))
        };
        let len = sw(16) as usize;
        if sw(0) == FP_MAGIC1 && (576..=16384).contains(&len) {
            fp.resize(len, 0);
            mm.copy_in(Va(c.fpstate + 512), &mut fp[512..])?;
        }
        Some(fp)
    };
    r.r8 = c.r8;
    r.r9 = c.r9;
    r.r10 = c.r10;
    r.r11 = c.r11;
    r.r12 = c.r12;
    r.r13 = c.r13;
    r.r14 = c.r14;
    r.r15 = c.r15;
    r.rdi = c.rdi;
    r.rsi = c.rsi;
    r.rbp = c.rbp;
    r.rbx = c.rbx;
    r.rdx = c.rdx;
    r.rax = c.rax;
    r.rcx = c.rcx;
    r.rsp = c.rsp;
    r.rip = c.rip;
    r.eflags = c.eflags;
    r.orig_rax = u64::MAX;
    // A non-canonical address would fault in the host's return instead of the application's.
    if r.rip >= 1 << 47 {
        return Err(EFAULT);
    }
    cx.task.set_mask(uc.sigmask);
    // As by sigaltstack(2), but that nobody is told what was wrong (`restore_altstack`).
    if !cx.altstack.holds(r.rsp)
        && let Ok(alt) = uc.stack.checked(&cx.altstack)
    {
        cx.altstack = alt;
    }
    cx.thread.set_fp_state(fp.as_deref()).map_err(|_| EFAULT)?;
    cx.thread.set_regs(&r);
    Ok(())
}
