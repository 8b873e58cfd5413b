//! Scheduling: what is asked is answered; the host schedules.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::Result;
use abi::errno::*;
use abi::time::Timespec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Caps;

fn task_of(cx: &Context, pid: i32) -> Result<Arc<crate::Task>> {
    match pid {
        0 => Ok(cx.task.clone()),
        n if n < 0 => Err(EINVAL),
        n => cx.find_task(n),
    }
}

fn sched_yield(_cx: &mut Context, _: &Args) -> SysResult {
    std::thread::yield_now();
    Ok(0)
}

/// All CPUs of the sandbox, as bytes of a `cpu_set_t`.
fn cpu_mask(cx: &Context) -> Vec<u8> {
    let n = cx.kernel.cpus.max(1) as usize;
    let mut m = vec![0u8; n.div_ceil(64) * 8];
    for i in 0..n {
        m[i / 8] |= 1 << (i % 8);
    }
    m
}

fn sched_getaffinity(cx: &mut Context, a: &Args) -> SysResult {
    task_of(cx, a.i32(0))?;
    let m = cpu_mask(cx);
    let len = a.usize(1);
    if !len.is_multiple_of(8) || len < m.len() {
        return Err(EINVAL);
    }
    cx.mm().copy_out(a.va(2), &m)?;
    Ok(m.len())
}

/// Accepted where it names a CPU that is there; threads are not bound to it.
fn sched_setaffinity(cx: &mut Context, a: &Args) -> SysResult {
    task_of(cx, a.i32(0))?;
    let all = cpu_mask(cx);
    let mut m = vec![0u8; a.usize(1).min(all.len())];
    cx.mm().copy_in(a.va(2), &mut m)?;
    if m.iter().zip(&all).all(|(x, y)| x & y == 0) {
        return Err(EINVAL);
    }
    Ok(0)
}

fn getcpu(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    if let Some(va) = a.va_opt(0) {
        mm.write_obj(va, &0u32)?;
    }
    if let Some(va) = a.va_opt(1) {
        mm.write_obj(va, &0u32)?;
    }
    Ok(0)
}

fn sched_getscheduler(cx: &mut Context, a: &Args) -> SysResult {
    Ok(task_of(cx, a.i32(0))?.policy.load(Ordering::Relaxed) as usize)
}

fn sched_getparam(cx: &mut Context, a: &Args) -> SysResult {
    task_of(cx, a.i32(0))?;
    cx.mm().write_obj(a.va(1), &0i32)?;
    Ok(0)
}

/// Only the policies without priority: OTHER, BATCH, IDLE.
fn set_policy(cx: &Context, pid: i32, policy: u32, priority: i32) -> SysResult {
    let t = task_of(cx, pid)?;
    match policy & !0x4000_0000 {
        0 | 3 | 5 if priority == 0 => {
            t.policy
                .store((policy & !0x4000_0000) as i32, Ordering::Relaxed);
            Ok(0)
        }
        1 | 2 if (1..=99).contains(&priority) => Err(EPERM),
        _ => Err(EINVAL),
    }
}

fn sched_setscheduler(cx: &mut Context, a: &Args) -> SysResult {
    let priority: i32 = cx.mm().read_obj(a.va(2))?;
    set_policy(cx, a.i32(0), a.u32(1), priority)
}

fn sched_setparam(cx: &mut Context, a: &Args) -> SysResult {
    let priority: i32 = cx.mm().read_obj(a.va(1))?;
    let policy = task_of(cx, a.i32(0))?.policy.load(Ordering::Relaxed) as u32;
    set_policy(cx, a.i32(0), policy, priority)
}

fn priority_bounds(a: &Args, bound: usize) -> SysResult {
    match a.u32(0) {
        0 | 3 | 5 | 6 => Ok(0),
        1 | 2 => Ok(bound),
        _ => Err(EINVAL),
    }
}
fn sched_get_priority_max(_cx: &mut Context, a: &Args) -> SysResult {
    priority_bounds(a, 99)
}
fn sched_get_priority_min(_cx: &mut Context, a: &Args) -> SysResult {
    priority_bounds(a, 1)
}
fn sched_rr_get_interval(cx: &mut Context, a: &Args) -> SysResult {
    task_of(cx, a.i32(0))?;
    cx.mm().write_obj(
        a.va(1),
        &Timespec {
            sec: 0,
            nsec: 4_000_000,
        },
    )?;
    Ok(0)
}

/// The tasks that `getpriority(2)`'s which and who mean.
fn tasks_of(cx: &Context, which: u32, who: i32) -> Result<Vec<Arc<crate::Task>>> {
    let l = cx.kernel.tasks.lock();
    let v: Vec<_> = match which {
        0 if who == 0 => vec![cx.task.clone()],
        0 => l.task(cx.id_of(who)?).into_iter().collect(),
        1 => {
            let pgid = if who == 0 {
                l.pgid(cx.group.tgid)
            } else {
                cx.id_of(who)?
            };
            l.group_members(pgid)
                .iter()
                .flat_map(|g| l.threads(g.tgid))
                .collect()
        }
        2 => {
            let uid = if who == 0 {
                cx.cred().uid
            } else {
                cx.cred().user_ns.uid_from(who as u32).map_err(|_| ESRCH)?
            };
            l.processes()
                .flat_map(|p| p.threads.values().cloned())
                .filter(|t| t.cred().uid == uid)
                .collect()
        }
        _ => return Err(EINVAL),
    };
    if v.is_empty() { Err(ESRCH) } else { Ok(v) }
}

fn getpriority(cx: &mut Context, a: &Args) -> SysResult {
    let t = tasks_of(cx, a.u32(0), a.i32(1))?;
    let nice = t
        .iter()
        .map(|t| t.nice.load(Ordering::Relaxed))
        .min()
        .unwrap_or(0);
    // Shifted, so that it is never negative.
    Ok((20 - nice) as usize)
}

fn setpriority(cx: &mut Context, a: &Args) -> SysResult {
    let nice = a.i32(2).clamp(-20, 19);
    let me = cx.cred();
    for t in tasks_of(cx, a.u32(0), a.i32(1))? {
        let c = t.cred();
        if me.euid != c.uid && me.euid != c.euid && !me.has_in(&c.user_ns, Caps::SYS_NICE) {
            return Err(EPERM);
        }
        if nice < t.nice.load(Ordering::Relaxed) && !me.has(Caps::SYS_NICE) {
            return Err(EACCES);
        }
        t.nice.store(nice, Ordering::Relaxed);
    }
    Ok(0)
}

fn ioprio_get(cx: &mut Context, a: &Args) -> SysResult {
    match a.u32(0) {
        1 => task_of(cx, a.i32(1)).map(|_| 0),
        2 | 3 => Ok(0),
        _ => Err(EINVAL),
    }
}
fn ioprio_set(cx: &mut Context, a: &Args) -> SysResult {
    match a.u32(0) {
        1 => task_of(cx, a.i32(1)).map(|_| 0),
        2 | 3 => Ok(0),
        _ => Err(EINVAL),
    }
}

/// `membarrier(cmd, flags, cpu)`.
fn membarrier(_cx: &mut Context, a: &Args) -> SysResult {
    const GLOBAL: u32 = 1;
    const PRIVATE_EXPEDITED: u32 = 8;
    const REGISTER_PRIVATE_EXPEDITED: u32 = 16;
    if a.u32(1) != 0 {
        return Err(EINVAL);
    }
    match a.u32(0) {
        0 => Ok((GLOBAL | PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED) as usize),
        REGISTER_PRIVATE_EXPEDITED => Ok(0),
        GLOBAL | PRIVATE_EXPEDITED => {
            // Every thread on the host passes a barrier: slow (some ms), and right.
            hostcall::process::membarrier_global()?;
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// See [`crate::syscalls::families::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(24, "sched_yield", &[], sched_yield),
    Call::new(140, "getpriority", &[Arg::Int, Arg::Int], getpriority),
    Call::new(
        141,
        "setpriority",
        &[Arg::Int, Arg::Int, Arg::Int],
        setpriority,
    )
    .note("reported, without effect on the host"),
    Call::new(142, "sched_setparam", &[Arg::Int, Arg::Ptr], sched_setparam),
    Call::new(143, "sched_getparam", &[Arg::Int, Arg::Ptr], sched_getparam),
    Call::new(
        144,
        "sched_setscheduler",
        &[Arg::Int, Arg::Int, Arg::Ptr],
        sched_setscheduler,
    )
    .note("no real-time policies"),
    Call::new(145, "sched_getscheduler", &[Arg::Int], sched_getscheduler),
    Call::new(
        146,
        "sched_get_priority_max",
        &[Arg::Int],
        sched_get_priority_max,
    ),
    Call::new(
        147,
        "sched_get_priority_min",
        &[Arg::Int],
        sched_get_priority_min,
    ),
    Call::new(
        148,
        "sched_rr_get_interval",
        &[Arg::Int, Arg::Ptr],
        sched_rr_get_interval,
    ),
    Call::new(
        203,
        "sched_setaffinity",
        &[Arg::Int, Arg::Uint, Arg::Ptr],
        sched_setaffinity,
    )
    .note("checked, without effect on the host"),
    Call::new(
        204,
        "sched_getaffinity",
        &[Arg::Int, Arg::Uint, Arg::Ptr],
        sched_getaffinity,
    ),
    Call::new(
        251,
        "ioprio_set",
        &[Arg::Int, Arg::Int, Arg::Hex],
        ioprio_set,
    )
    .note("without effect"),
    Call::new(252, "ioprio_get", &[Arg::Int, Arg::Int], ioprio_get),
    Call::new(309, "getcpu", &[Arg::Ptr, Arg::Ptr], getcpu),
    Call::new(
        324,
        "membarrier",
        &[Arg::Int, Arg::Hex, Arg::Int],
        membarrier,
    )
    .note("GLOBAL and PRIVATE_EXPEDITED"),
];
