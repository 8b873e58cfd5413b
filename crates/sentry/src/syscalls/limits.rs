//! Limits of resources, and what was used of them.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::cpu::Cpu;
use crate::task::limits::{self, Limit};
use abi::Result;
use abi::errno::*;
use abi::time::Timeval;
use std::sync::Arc;
use vfs::Caps;

fn prlimit(cx: &Context, t: &crate::Task, n: u32, new: Option<Limit>) -> Result<Limit> {
    if n as usize >= limits::COUNT {
        return Err(EINVAL);
    }
    let mut l = t.group.limits.lock();
    let old = l.0[n as usize];
    if let Some(new) = new {
        if new.current > new.max {
            return Err(EINVAL);
        }
        if n as usize == limits::NOFILE && new.max > vfs::fd_table::NR_OPEN {
            return Err(EPERM);
        }
        if new.max > old.max && !cx.cred().has(Caps::SYS_RESOURCE) {
            return Err(EPERM);
        }
        l.0[n as usize] = new;
        drop(l);
        if n as usize == limits::CPU {
            t.group.timers.watch_cpu_limit(&t.kernel, &t.group);
        } else {
            t.mm().set_limits(t.mm_limits());
        }
    }
    Ok(old)
}

fn getrlimit(cx: &mut Context, a: &Args) -> SysResult {
    let old = prlimit(cx, cx, a.u32(0), None)?;
    cx.mm().write_obj(a.va(1), &old)?;
    Ok(0)
}

fn setrlimit(cx: &mut Context, a: &Args) -> SysResult {
    let new: Limit = cx.mm().read_obj(a.va(1))?;
    prlimit(cx, cx, a.u32(0), Some(new))?;
    Ok(0)
}

fn prlimit64(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let new = match a.va_opt(2) {
        None => None,
        Some(va) => Some(mm.read_obj::<Limit>(va)?),
    };
    let t = match a.i32(0) {
        0 => cx.task.clone(),
        pid => {
            let t = cx.find_task(pid)?;
            let (me, c) = (cx.cred(), t.cred());
            let same = [c.uid, c.euid, c.suid].iter().all(|i| *i == me.uid)
                && [c.gid, c.egid, c.sgid].iter().all(|i| *i == me.gid);
            if !Arc::ptr_eq(&t.group, &cx.group)
                && !same
                && !me.has_in(&c.user_ns, Caps::SYS_RESOURCE)
            {
                return Err(EPERM);
            }
            t
        }
    };
    let old = prlimit(cx, &t, a.u32(1), new)?;
    if let Some(va) = a.va_opt(3) {
        mm.write_obj(va, &old)?;
    }
    Ok(0)
}

/// `struct rusage`: times, then fourteen longs.
pub(super) fn rusage(cpu: Cpu, maxrss_kib: u64) -> [u64; 18] {
    let mut r = [0u64; 18];
    for (at, ns) in [(0, cpu.user), (2, cpu.system)] {
        let t = Timeval::from_nanos(ns as i64);
        r[at] = t.sec as u64;
        r[at + 1] = t.usec as u64;
    }
    r[4] = maxrss_kib;
    r
}

fn getrusage(cx: &mut Context, a: &Args) -> SysResult {
    let cpu = match a.i32(0) {
        0 => cx.kernel.cpu_time(&cx.group),
        // RUSAGE_THREAD
        1 => cx.cpu.get(),
        -1 => cx.group.cpu_children.get(),
        _ => return Err(EINVAL),
    };
    let rss = if a.i32(0) == -1 {
        0
    } else {
        cx.mm().usage().rss / 1024
    };
    cx.mm().write_obj(a.va(1), &rusage(cpu, rss))?;
    Ok(0)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(97, "getrlimit", &[Arg::Int, Arg::Ptr], getrlimit),
    Call::new(98, "getrusage", &[Arg::Int, Arg::Ptr], getrusage),
    Call::new(160, "setrlimit", &[Arg::Int, Arg::Ptr], setrlimit),
    Call::new(
        302,
        "prlimit64",
        &[Arg::Int, Arg::Int, Arg::Ptr, Arg::Ptr],
        prlimit64,
    ),
];
