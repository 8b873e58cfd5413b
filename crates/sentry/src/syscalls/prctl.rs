//! What a process or a thread sets about itself: prctl, seccomp, arch_prctl, personality.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::access::CredGuard;
use crate::task::seccomp;
use ::seccomp::bpf;
use abi::Va;
use abi::errno::*;
use std::sync::atomic::Ordering;
use vfs::{Caps, Credentials};
use zerocopy::IntoBytes;

/// `prctl(option, …)`.
fn prctl(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let rest_zero = a.u64(2) == 0 && a.u64(3) == 0 && a.u64(4) == 0;
    match a.i32(0) {
        1 => {
            let s = a.u64(1);
            if s > 64 {
                return Err(EINVAL);
            }
            cx.pdeath_signal.store(s as i32, Ordering::Relaxed);
            Ok(0)
        }
        2 => mm
            .write_obj(a.va(1), &cx.pdeath_signal.load(Ordering::Relaxed))
            .map(|()| 0),
        3 => Ok(usize::from(mm.privacy().is_dumpable())),
        4 => {
            if a.u64(1) > 1 {
                return Err(EINVAL);
            }
            mm.privacy().set_dumpable(a.u64(1) == 1);
            Ok(0)
        }
        // PR_GET_KEEPCAPS, PR_SET_KEEPCAPS
        7 => Ok(usize::from(cx.cred().securebits & (1 << 4) != 0)),
        8 => {
            let on = a.u64(1);
            if on > 1 {
                return Err(EINVAL);
            }
            let mut c = (*cx.cred()).clone();
            if c.securebits & (1 << 5) != 0 {
                return Err(EPERM);
            }
            c.securebits = (c.securebits & !(1 << 4)) | ((on as u32) << 4);
            cx.task.commit_cred(c);
            Ok(0)
        }
        // PR_GET_TIMING: statistical; PR_SET_TIMING likewise only
        13 => Ok(0),
        14 => {
            if a.u64(1) == 0 {
                Ok(0)
            } else {
                Err(EINVAL)
            }
        }
        15 => {
            let mut b = [0u8; 16];
            let s = mm.read_cstr(a.va(1), 16).or_else(|e| {
                // Longer names are cut.
                if e == ENAMETOOLONG {
                    mm.copy_in(a.va(1), &mut b)?;
                    Ok(b.to_vec())
                } else {
                    Err(e)
                }
            })?;
            cx.task.set_comm(&s);
            Ok(0)
        }
        16 => {
            let mut b = [0u8; 16];
            let c = cx.comm();
            b[..c.len()].copy_from_slice(&c);
            mm.copy_out(a.va(1), &b).map(|()| 0)
        }
        // PR_GET_SECCOMP; strict mode does not let it come here
        21 => Ok(cx.seccomp.mode() as usize),
        // PR_SET_SECCOMP
        22 => match a.u64(1) {
            1 => seccomp::set_strict(cx).map(|()| 0),
            2 => add_filter(cx, a.va(2), 0),
            _ => Err(EINVAL),
        },
        // PR_CAPBSET_READ, PR_CAPBSET_DROP
        23 | 24 => {
            let n = a.u64(1);
            if n > 40 {
                return Err(EINVAL);
            }
            let bit = Caps::from_bits_retain(1 << n);
            let c = cx.cred();
            if a.i32(0) == 23 {
                return Ok(usize::from(c.bounding.contains(bit)));
            }
            if !c.has_own(Caps::SETPCAP) {
                return Err(EPERM);
            }
            let mut c = (*c).clone();
            c.bounding.remove(bit);
            cx.task.commit_cred(c);
            Ok(0)
        }
        // PR_GET_TSC: allowed
        25 => mm.write_obj(a.va(1), &1i32).map(|()| 0),
        26 => {
            if a.u64(1) == 1 {
                Ok(0)
            } else {
                Err(EINVAL)
            }
        }
        27 => Ok(cx.cred().securebits as usize),
        28 => {
            let old = cx.cred();
            if !old.has_own(Caps::SETPCAP) {
                return Err(EPERM);
            }
            let mut c = (*old).clone();
            let new = a.u32(1);
            // Locked bits stay, and unknown ones are refused.
            let locked = (old.securebits & 0xaa) >> 1;
            if new & !0xff != 0
                || (old.securebits ^ new) & locked != 0
                || old.securebits & !new & 0xaa != 0
            {
                return Err(EPERM);
            }
            c.securebits = new;
            cx.task.commit_cred(c);
            Ok(0)
        }
        29 => {
            cx.set_timer_slack(a.u64(1));
            Ok(0)
        }
        30 => Ok(cx.timer_slack.load(Ordering::Relaxed) as usize),
        36 => {
            cx.group.subreaper.store(a.u64(1) != 0, Ordering::Relaxed);
            Ok(0)
        }
        37 => mm
            .write_obj(
                a.va(1),
                &i32::from(cx.group.subreaper.load(Ordering::Relaxed)),
            )
            .map(|()| 0),
        38 => {
            if a.u64(1) != 1 || !rest_zero {
                return Err(EINVAL);
            }
            cx.no_new_privs.store(true, Ordering::Relaxed);
            Ok(0)
        }
        39 => {
            if a.u64(1) != 0 || !rest_zero {
                return Err(EINVAL);
            }
            Ok(usize::from(cx.no_new_privs.load(Ordering::Relaxed)))
        }
        // PR_GET_THP_DISABLE
        42 => Ok(0),
        41 => Ok(0),
        // PR_CAP_AMBIENT
        47 => ambient(cx, a),
        // PR_SET_VMA: names for anonymous memory are not kept (as without CONFIG_ANON_VMA_NAME)
        0x5356_4d41 => Err(EINVAL),
        _ => Err(EINVAL),
    }
}

/// Adds the filter of a `struct sock_fprog`. With TSYNC, the id of a thread that stands against it.
fn add_filter(cx: &Context, va: Va, flags: u64) -> SysResult {
    let mm = cx.mm();
    let [len, code]: [u64; 2] = mm.read_obj(va)?;
    let len = usize::from(len as u16);
    if len == 0 || len > bpf::MAX_INSNS {
        return Err(EINVAL);
    }
    seccomp::may_install(cx)?;
    let mut insns = vec![<bpf::Insn as zerocopy::FromZeros>::new_zeroed(); len];
    mm.copy_in(Va(code), insns.as_mut_slice().as_mut_bytes())?;
    // What the other threads may become must not change while one of them computes it.
    let guard = match flags & seccomp::FLAG_TSYNC {
        0 => None,
        _ => Some(CredGuard::lock(cx)?),
    };
    let installed = seccomp::install(cx, &insns, flags);
    drop(guard);
    match installed {
        Ok(()) => Ok(0),
        Err(seccomp::Refused::Thread(tid)) => Ok(cx.number_of(tid) as usize),
        Err(seccomp::Refused::Errno(e)) => Err(e),
    }
}

/// `seccomp(operation, flags, args)`.
fn sys_seccomp(cx: &mut Context, a: &Args) -> SysResult {
    let (flags, va) = (u64::from(a.u32(1)), a.va(2));
    match a.u32(0) {
        // SECCOMP_SET_MODE_STRICT
        0 if flags == 0 && va.is_null() => seccomp::set_strict(cx).map(|()| 0),
        // SECCOMP_SET_MODE_FILTER. NEW_LISTENER is refused as by kernels that do not know it.
        1 => {
            let known = seccomp::FLAG_TSYNC
                | seccomp::FLAG_LOG
                | seccomp::FLAG_SPEC_ALLOW
                | seccomp::FLAG_TSYNC_ESRCH;
            if flags & !known != 0 {
                return Err(EINVAL);
            }
            add_filter(cx, va, flags)
        }
        // SECCOMP_GET_ACTION_AVAIL
        2 if flags == 0 => {
            let action: u32 = cx.mm().read_obj(va)?;
            if seccomp::action_available(action) {
                Ok(0)
            } else {
                Err(EOPNOTSUPP)
            }
        }
        _ => Err(EINVAL),
    }
}

fn ambient(cx: &Context, a: &Args) -> SysResult {
    let (op, n) = (a.u64(1), a.u64(2));
    if a.u64(3) != 0 || a.u64(4) != 0 {
        return Err(EINVAL);
    }
    let mut c: Credentials = (*cx.cred()).clone();
    if op == 4 {
        if n != 0 {
            return Err(EINVAL);
        }
        c.ambient = Caps::empty();
        cx.task.commit_cred(c);
        return Ok(0);
    }
    if n > 40 {
        return Err(EINVAL);
    }
    let bit = Caps::from_bits_retain(1 << n);
    match op {
        1 => return Ok(usize::from(c.ambient.contains(bit))),
        2 => {
            if !c.permitted.contains(bit)
                || !c.inheritable.contains(bit)
                || c.securebits & (1 << 6) != 0
            {
                return Err(EPERM);
            }
            c.ambient |= bit;
        }
        3 => c.ambient.remove(bit),
        _ => return Err(EINVAL),
    }
    cx.task.commit_cred(c);
    Ok(0)
}

/// `arch_prctl(op, addr)`.
fn arch_prctl(cx: &mut Context, a: &Args) -> SysResult {
    let mut r = cx.regs();
    let v = a.u64(1);
    match a.u32(0) {
        // ARCH_SET_GS, ARCH_SET_FS
        0x1001 | 0x1002 if v >= platform::USER_MAX => return Err(EPERM),
        0x1001 => r.gs_base = v,
        0x1002 => r.fs_base = v,
        0x1003 => return cx.mm().write_obj(Va(v), &r.fs_base).map(|()| 0),
        0x1004 => return cx.mm().write_obj(Va(v), &r.gs_base).map(|()| 0),
        // ARCH_GET_CPUID: not faulting
        0x1011 => return Ok(1),
        _ => return Err(EINVAL),
    }
    cx.thread.set_regs(&r);
    Ok(0)
}

fn personality(_cx: &mut Context, a: &Args) -> SysResult {
    // Only PER_LINUX; 0xffffffff asks.
    match a.u32(0) {
        0 | u32::MAX => Ok(0),
        _ => Err(EINVAL),
    }
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(135, "personality", &[Arg::Hex], personality).note("PER_LINUX only"),
    Call::new(
        157,
        "prctl",
        &[Arg::Int, Arg::Hex, Arg::Hex, Arg::Hex, Arg::Hex],
        prctl,
    )
    .note("no names of memory"),
    Call::new(158, "arch_prctl", &[Arg::Hex, Arg::Hex], arch_prctl),
    Call::new(317, "seccomp", &[Arg::Int, Arg::Hex, Arg::Ptr], sys_seccomp)
        .note("no listeners (SECCOMP_FILTER_FLAG_NEW_LISTENER), nothing is logged"),
];
