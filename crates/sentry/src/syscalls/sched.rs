//! Scheduling: what is asked is answered; the host schedules.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::{Context, SCHED_RESET_ON_FORK, limits};
use abi::errno::*;
use abi::time::Timespec;
use abi::{Result, Va};
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

/// As [`task_of`], where a negative number is one that nobody has.
fn affinity_of(cx: &Context, pid: i32) -> Result<Arc<crate::Task>> {
    match pid {
        0 => Ok(cx.task.clone()),
        n => cx.find_task(n),
    }
}

fn sched_getaffinity(cx: &mut Context, a: &Args) -> SysResult {
    let len = a.u32(1) as usize;
    if !len.is_multiple_of(8) || len < cx.cpu_mask().len() {
        return Err(EINVAL);
    }
    let m = affinity_of(cx, a.i32(0))?.allowed_cpus();
    if len < m.len() {
        return Err(EINVAL);
    }
    cx.mm().copy_out(a.va(2), &m)?;
    Ok(m.len())
}

/// Accepted where it names a CPU that is there, and told; threads are not bound to it.
fn sched_setaffinity(cx: &mut Context, a: &Args) -> SysResult {
    let all = cx.cpu_mask();
    let mut m = vec![0u8; a.usize(1).min(all.len())];
    cx.mm().copy_in(a.va(2), &mut m)?;
    let t = affinity_of(cx, a.i32(0))?;
    if !same_owner(cx, &t) && !cx.cred().has_in(&t.cred().user_ns, Caps::SYS_NICE) {
        return Err(EPERM);
    }
    is_safe(cx, &t)?;
    if m.iter().zip(&all).all(|(x, y)| x & y == 0) {
        return Err(EINVAL);
    }
    *t.affinity.write() = Some(m.into());
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
    let param = param(a, 1)?;
    task_of(cx, a.i32(0))?;
    cx.mm().write_obj(param, &0i32)?;
    Ok(0)
}

/// A `struct sched_param`, which is looked at before the task is.
fn param(a: &Args, at: usize) -> Result<Va> {
    if a.i32(0) < 0 {
        return Err(EINVAL);
    }
    a.va_opt(at).ok_or(EINVAL)
}

/// Whether the caller is the task's user (`check_same_owner`).
fn same_owner(cx: &Context, t: &crate::Task) -> bool {
    let c = t.cred();
    [c.uid, c.euid].contains(&cx.cred().euid)
}

/// Whether the task has no more rights than the caller, or the caller may schedule it all the same
/// (`cap_safe_nice`).
fn is_safe(cx: &Context, t: &crate::Task) -> Result<()> {
    let (me, c) = (cx.cred(), t.cred());
    if me.permitted.contains(c.permitted) || me.has_in(&c.user_ns, Caps::SYS_NICE) {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// Whether a nice value needs no privilege: it is no better, or RLIMIT_NICE allows it
/// (`is_nice_reduction`).
fn may_be_nice(t: &crate::Task, nice: i32) -> bool {
    let limit = t.group.limits.lock().0[limits::NICE].current;
    nice >= t.nice.load(Ordering::Relaxed) || (20 - nice) as u64 <= limit
}

const SCHED_IDLE: i32 = 5;

/// The policy alone.
fn policy_of(t: &crate::Task) -> i32 {
    t.policy.load(Ordering::Relaxed) & !SCHED_RESET_ON_FORK
}

/// Only the policies without priority: OTHER, BATCH, IDLE (`user_check_sched_setscheduler`).
fn set_policy(cx: &Context, pid: i32, word: i32, priority: i32) -> SysResult {
    let t = task_of(cx, pid)?;
    let policy = word & !SCHED_RESET_ON_FORK;
    match policy {
        0 | 3 | SCHED_IDLE if priority == 0 => {
            let old = policy_of(&t);
            // Leaving SCHED_IDLE is as a better nice value.
            let wakes = old == SCHED_IDLE && policy != SCHED_IDLE;
            let limit = t.group.limits.lock().0[limits::NICE].current;
            let nice = (20 - t.nice.load(Ordering::Relaxed)) as u64;
            let keeps = word | !t.policy.load(Ordering::Relaxed);
            let fine =
                same_owner(cx, &t) && (!wakes || nice <= limit) && keeps & SCHED_RESET_ON_FORK != 0;
            if !fine && !cx.cred().has(Caps::SYS_NICE) {
                return Err(EPERM);
            }
            is_safe(cx, &t)?;
            t.policy.store(word, Ordering::Relaxed);
            Ok(0)
        }
        1 | 2 if (1..=99).contains(&priority) => Err(EPERM),
        _ => Err(EINVAL),
    }
}

fn sched_setscheduler(cx: &mut Context, a: &Args) -> SysResult {
    if a.i32(1) < 0 {
        return Err(EINVAL);
    }
    let priority: i32 = cx.mm().read_obj(param(a, 2)?)?;
    set_policy(cx, a.i32(0), a.i32(1), priority)
}

fn sched_setparam(cx: &mut Context, a: &Args) -> SysResult {
    let priority: i32 = cx.mm().read_obj(param(a, 1)?)?;
    let word = task_of(cx, a.i32(0))?.policy.load(Ordering::Relaxed);
    set_policy(cx, a.i32(0), word, priority)
}

fn priority_bounds(a: &Args, bound: usize) -> SysResult {
    match a.u32(0) {
        // OTHER, BATCH, IDLE, DEADLINE, EXT.
        0 | 3 | 5 | 6 | 7 => Ok(0),
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
    let set = |t: &crate::Task| -> Result<()> {
        if !same_owner(cx, t) && !me.has_in(&t.cred().user_ns, Caps::SYS_NICE) {
            return Err(EPERM);
        }
        if !may_be_nice(t, nice) && !me.has(Caps::SYS_NICE) {
            return Err(EACCES);
        }
        is_safe(cx, t)?;
        t.nice.store(nice, Ordering::Relaxed);
        Ok(())
    };
    // All that may be are set; the last refusal is told.
    let all = tasks_of(cx, a.u32(0), a.i32(1))?;
    let mut result = Ok(0);
    for t in &all {
        result = set(t).map_or_else(Err, |()| result);
    }
    result
}

/// `IOPRIO_WHO_*`: the tasks meant, as getpriority(2)'s which counts them.
fn io_tasks(cx: &Context, a: &Args) -> Result<Vec<Arc<crate::Task>>> {
    match a.u32(0) {
        w @ 1..=3 => tasks_of(cx, w - 1, a.i32(1)),
        _ => Err(EINVAL),
    }
}

const IOPRIO_CLASS_BE: i32 = 2;
const IOPRIO_CLASS_IDLE: i32 = 3;
const IOPRIO_SHIFT: i32 = 13;

/// What a task's priority comes to: by its nice value, where none was set (`__get_task_ioprio`).
fn io_priority(t: &crate::Task) -> i32 {
    let nice = t.nice.load(Ordering::Relaxed);
    match t.io_priority.load(Ordering::Relaxed) {
        p if p >> IOPRIO_SHIFT != 0 => p,
        _ if policy_of(t) == SCHED_IDLE => IOPRIO_CLASS_IDLE << IOPRIO_SHIFT,
        _ => (IOPRIO_CLASS_BE << IOPRIO_SHIFT) | ((nice + 20) / 5),
    }
}

/// Of one task what was set, of several the best.
fn ioprio_get(cx: &mut Context, a: &Args) -> SysResult {
    let all = io_tasks(cx, a)?;
    let best = match all.as_slice() {
        [one] if a.u32(0) == 1 => one.io_priority.load(Ordering::Relaxed),
        all => all.iter().map(|t| io_priority(t)).min().unwrap_or(0),
    };
    Ok(best as usize)
}

/// Checked (`ioprio_check_cap`, `set_task_ioprio`), told, and without effect.
fn ioprio_set(cx: &mut Context, a: &Args) -> SysResult {
    const LEVELS: u32 = 8;
    let (class, level) = ((a.u32(2) >> 13) & 7, a.u32(2) & 7);
    let me = cx.cred();
    match class {
        1 if !me.has(Caps::SYS_ADMIN) && !me.has(Caps::SYS_NICE) => return Err(EPERM),
        1 | 2 if level < LEVELS => {}
        0 if level == 0 => {}
        3 => {}
        _ => return Err(EINVAL),
    }
    for t in io_tasks(cx, a)? {
        let owner = t.cred().uid;
        if ![me.euid, me.uid].contains(&owner) && !me.has(Caps::SYS_NICE) {
            return Err(EPERM);
        }
        is_safe(cx, &t)?;
        t.io_priority
            .store((a.u32(2) & 0xffff) as i32, Ordering::Relaxed);
    }
    Ok(0)
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

/// See [`super::ALL`].
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
    .note("told, without effect on the host"),
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
    .note("told, without effect"),
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
