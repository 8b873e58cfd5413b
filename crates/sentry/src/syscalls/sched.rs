//! Scheduling: what is asked is answered; the host schedules.

use super::SysResult;
use super::args::*;
use crate::task::sched::{
    Deadline, PRIORITY_MAX, SCHED_BATCH, SCHED_DEADLINE, SCHED_FIFO, SCHED_IDLE, SCHED_OTHER,
    SCHED_RESET_ON_FORK, SCHED_RR, Scheduling,
};
use crate::task::{Context, limits};
use abi::errno::*;
use abi::time::Timespec;
use abi::{Result, Va};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Caps;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

named! {
    /// Whom getpriority(2) means.
    struct PriorityOf(u32) {
        PRIO_PROCESS,
        PRIO_PGRP,
        PRIO_USER,
    }
}

named! {
    /// Whom ioprio_get(2) means.
    struct IoPriorityOf(u32) {
        IOPRIO_WHO_PROCESS = 1,
        IOPRIO_WHO_PGRP = 2,
        IOPRIO_WHO_USER = 3,
    }
}

named! {
    /// What membarrier(2) does.
    struct MembarrierCmd(u32) {
        MEMBARRIER_CMD_QUERY = 0,
        MEMBARRIER_CMD_GLOBAL = 1 << 0,
        MEMBARRIER_CMD_GLOBAL_EXPEDITED = 1 << 1,
        MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED = 1 << 2,
        MEMBARRIER_CMD_PRIVATE_EXPEDITED = 1 << 3,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED = 1 << 4,
        MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE = 1 << 5,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE = 1 << 6,
        MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ = 1 << 7,
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ = 1 << 8,
        MEMBARRIER_CMD_GET_REGISTRATIONS = 1 << 9,
    }
}

/// `EINVAL` for a negative number.
fn task_of(cx: &Context, tid: Tid) -> Result<Arc<crate::Task>> {
    if tid.0 < 0 {
        return Err(EINVAL);
    }
    tid.task_or_caller(&cx.task)
}

fn sched_yield(_cx: &mut Context) -> SysResult {
    std::thread::yield_now();
    Ok(0)
}

fn sched_getaffinity(cx: &mut Context, tid: Tid, len: u32, mask: Va) -> SysResult {
    let len = len as usize;
    if !len.is_multiple_of(8) || len < cx.cpu_mask().len() {
        return Err(EINVAL);
    }
    let m = tid.task_or_caller(&cx.task)?.allowed_cpus();
    if len < m.len() {
        return Err(EINVAL);
    }
    cx.mm().copy_out(mask, &m)?;
    Ok(m.len())
}

/// Accepted where it names a CPU that is there, and told; threads are not bound to it.
fn sched_setaffinity(cx: &mut Context, tid: Tid, len: usize, mask: Va) -> SysResult {
    let all = cx.cpu_mask();
    let mut m = vec![0u8; len.min(all.len())];
    cx.mm().copy_in(mask, &mut m)?;
    let t = tid.task_or_caller(&cx.task)?;
    if !same_owner(cx, &t) && !cx.cred().has_in(&t.cred().user_ns, Caps::SYS_NICE) {
        return Err(EPERM);
    }
    is_safe(cx, &t)?;
    if m.iter().zip(&all).all(|(x, y)| x & y == 0) {
        return Err(EINVAL);
    }
    // Shares are of all CPUs together (`dl_task_check_affinity`).
    if t.scheduling.read().is_deadline() && !runs_everywhere(cx, &m) {
        return Err(EBUSY);
    }
    *t.affinity.write() = Some(m.into());
    Ok(0)
}

fn getcpu(cx: &mut Context, cpu: Option<UserOut<u32>>, node: Option<UserOut<u32>>) -> SysResult {
    let mm = cx.mm();
    // Which CPU it is, is the host's. It is one of those that the task may use.
    let allowed = cx.allowed_cpus();
    let first = allowed
        .iter()
        .enumerate()
        .find(|(_, bits)| **bits != 0)
        .map_or(0, |(i, bits)| i as u32 * 8 + bits.trailing_zeros());
    if let Some(cpu) = cpu {
        cpu.write(&mm, &first)?;
    }
    if let Some(node) = node {
        node.write(&mm, &0u32)?;
    }
    Ok(0)
}

fn sched_getscheduler(cx: &mut Context, tid: Tid) -> SysResult {
    Ok(task_of(cx, tid)?.scheduling.read().word() as usize)
}

fn sched_getparam(cx: &mut Context, tid: Tid, param: Option<UserOut<i32>>) -> SysResult {
    let param = checked(tid, param)?;
    let priority = task_of(cx, tid)?.scheduling.read().priority;
    param.write(&cx.mm(), &(priority as i32))?;
    Ok(0)
}

/// A `struct sched_param`, which is looked at before the task is.
fn checked<P>(tid: Tid, param: Option<P>) -> Result<P> {
    if tid.0 < 0 {
        return Err(EINVAL);
    }
    param.ok_or(EINVAL)
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

/// What the caller of a call that sets a policy wants of it.
struct PolicyRequest {
    to: Scheduling,
    /// `None` keeps it.
    nice: Option<i32>,
}

/// Whether that is no more than every user may do (`user_check_sched_setscheduler`).
fn needs_no_rights(cx: &Context, t: &crate::Task, wanted: &PolicyRequest) -> bool {
    let (now, to) = (*t.scheduling.read(), wanted.to);
    let limit = |which: usize| t.group.limits.lock().0[which].current;
    let at_most = limit(limits::RTPRIO);
    let real_time = !to.is_real_time()
        || ((to.policy == now.policy || at_most != 0)
            && (to.priority <= now.priority || u64::from(to.priority) <= at_most));
    // Leaving SCHED_IDLE is as a better nice value.
    let wakes = now.policy == SCHED_IDLE && to.policy != SCHED_IDLE;
    let nice = (20 - t.nice.load(Ordering::Relaxed)) as u64;
    real_time
        && !to.is_deadline()
        && (!wakes || nice <= limit(limits::NICE))
        && same_owner(cx, t)
        && (to.resets_on_fork || !now.resets_on_fork)
        && wanted.nice.is_none_or(|to| may_be_nice(t, to))
}

/// What Linux refuses whoever asks.
fn check_attr(to: &Scheduling) -> Result<()> {
    let is_known = matches!(
        to.policy,
        SCHED_OTHER..=SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE
    );
    if !is_known
        || to.priority > PRIORITY_MAX
        || (to.is_deadline() && !to.deadline.is_valid())
        || to.is_real_time() != (to.priority != 0)
    {
        return Err(EINVAL);
    }
    Ok(())
}

/// Gives a task a policy, which is kept and told (`__sched_setscheduler`).
fn set_policy(cx: &Context, t: &Arc<crate::Task>, wanted: &PolicyRequest) -> Result<()> {
    let to = wanted.to;
    check_attr(&to)?;
    if !needs_no_rights(cx, t, wanted) && !cx.cred().has(Caps::SYS_NICE) {
        return Err(EPERM);
    }
    is_safe(cx, t)?;
    // Who has a share of its own may use every CPU.
    if to.is_deadline() && !runs_everywhere(cx, &t.allowed_cpus()) {
        return Err(EPERM);
    }
    crate::task::sched::set(t, to)?;
    if let Some(nice) = wanted.nice {
        t.nice.store(nice, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether a mask names all CPUs that there are.
fn runs_everywhere(cx: &Context, mask: &[u8]) -> bool {
    let all = cx.cpu_mask();
    all.iter().enumerate().all(|(i, all)| {
        let named = mask.get(i).copied().unwrap_or(0);
        named & all == *all
    })
}

fn sched_setscheduler(
    cx: &mut Context,
    tid: Tid,
    policy: i32,
    param: Option<UserIn<i32>>,
) -> SysResult {
    if policy < 0 {
        return Err(EINVAL);
    }
    let priority = checked(tid, param)?.read(&cx.mm())?;
    let t = task_of(cx, tid)?;
    let to = Scheduling {
        policy: policy & !SCHED_RESET_ON_FORK,
        resets_on_fork: policy & SCHED_RESET_ON_FORK != 0,
        // A negative one is as one that is too high.
        priority: priority as u32,
        deadline: Deadline::default(),
    };
    set_policy(cx, &t, &PolicyRequest { to, nice: None })?;
    Ok(0)
}

fn sched_setparam(cx: &mut Context, tid: Tid, param: Option<UserIn<i32>>) -> SysResult {
    let priority = checked(tid, param)?.read(&cx.mm())?;
    let t = task_of(cx, tid)?;
    let to = Scheduling {
        priority: priority as u32,
        deadline: Deadline::default(),
        ..*t.scheduling.read()
    };
    set_policy(cx, &t, &PolicyRequest { to, nice: None })?;
    Ok(0)
}

/// `struct sched_attr`.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: i32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

impl SchedAttr {
    /// What it says of SCHED_DEADLINE (`__setparam_dl`).
    fn deadline(&self) -> Deadline {
        Deadline {
            runtime: self.runtime,
            deadline: self.deadline,
            period: match self.period {
                0 => self.deadline,
                n => n,
            },
            flags: self.flags & FLAGS_DEADLINE,
        }
    }
}

/// Bytes of the first `struct sched_attr`, and of that with bounds of utilisation.
const ATTR_FIRST: u32 = 48;
const ATTR: u32 = size_of::<SchedAttr>() as u32;

const FLAG_RESET_ON_FORK: u64 = 0x01;
/// RECLAIM and DL_OVERRUN.
const FLAGS_DEADLINE: u64 = 0x06;
const FLAG_KEEP_POLICY: u64 = 0x08;
const FLAG_KEEP_PARAMS: u64 = 0x10;
const FLAG_UTIL_CLAMP: u64 = 0x60;
const FLAG_ALL: u64 = 0x7f;

/// `sched_setattr(pid, attr, flags)`: all that there is to a policy, and the nice value
/// (`__sched_setscheduler`).
fn sched_setattr(cx: &mut Context, tid: Tid, attr: Va, flags: u32) -> SysResult {
    if attr.0 == 0 || tid.0 < 0 || flags != 0 {
        return Err(EINVAL);
    }
    let mut a = attr_in(cx, attr)?;
    if a.policy < 0 {
        return Err(EINVAL);
    }
    let t = task_of(cx, tid)?;
    let now = *t.scheduling.read();
    let flags = a.flags;
    let keeps = |flag| flags & flag != 0;
    if keeps(FLAG_KEEP_PARAMS) {
        a.nice = t.nice.load(Ordering::Relaxed);
        a.priority = now.priority;
        (a.runtime, a.deadline, a.period) = (
            now.deadline.runtime,
            now.deadline.deadline,
            now.deadline.period,
        );
    }
    let (policy, resets_on_fork) = match keeps(FLAG_KEEP_POLICY) {
        false => (a.policy, keeps(FLAG_RESET_ON_FORK)),
        true => (now.policy, now.resets_on_fork),
    };
    if flags & !FLAG_ALL != 0 {
        return Err(EINVAL);
    }
    let mut to = Scheduling {
        policy,
        resets_on_fork,
        priority: a.priority,
        deadline: Deadline::default(),
    };
    if to.is_deadline() {
        to.deadline = a.deadline();
    }
    // Bounds of utilisation are not built in: that is told once the rest is known to be right.
    check_attr(&to)?;
    if keeps(FLAG_UTIL_CLAMP) {
        return Err(EOPNOTSUPP);
    }
    // The policy is a parameter, too (`__setscheduler_params`).
    if keeps(FLAG_KEEP_PARAMS) {
        to = Scheduling {
            resets_on_fork,
            ..now
        };
    }
    // An idle task keeps its own (`fair_policy`).
    let nice = matches!(to.policy, SCHED_OTHER | SCHED_BATCH).then_some(a.nice);
    set_policy(cx, &t, &PolicyRequest { to, nice })?;
    Ok(0)
}

/// Reads it by its own size (`sched_copy_attr`): what is beyond what is known must be zero, else
/// the caller is told how much that is.
fn attr_in(cx: &Context, at: Va) -> Result<SchedAttr> {
    let mm = cx.mm();
    let mut size = [0; 4];
    mm.copy_in(at, &mut size)?;
    let size = match u32::from_ne_bytes(size) {
        0 => ATTR_FIRST,
        n => n,
    };
    let mut a = SchedAttr::default();
    let too_big = || {
        mm.copy_out(at, &ATTR.to_ne_bytes())?;
        Err(E2BIG)
    };
    if !(ATTR_FIRST..=abi::PAGE_SIZE as u32).contains(&size) {
        return too_big();
    }
    match super::read_sized(cx, at, size as usize, a.as_mut_bytes()) {
        Err(E2BIG) => return too_big(),
        r => r?,
    }
    if a.flags & FLAG_UTIL_CLAMP != 0 && size < ATTR {
        return Err(EINVAL);
    }
    a.nice = a.nice.clamp(-20, 19);
    Ok(a)
}

/// `sched_getattr(pid, attr, size, flags)`.
fn sched_getattr(cx: &mut Context, tid: Tid, attr: Va, size: u32, flags: u32) -> SysResult {
    let fits = (ATTR_FIRST..=abi::PAGE_SIZE as u32).contains(&size);
    if attr.0 == 0 || tid.0 < 0 || !fits || flags != 0 {
        return Err(EINVAL);
    }
    let t = task_of(cx, tid)?;
    let now = *t.scheduling.read();
    let mut a = SchedAttr {
        size: size.min(ATTR),
        policy: now.policy,
        priority: now.priority,
        flags: if now.resets_on_fork {
            FLAG_RESET_ON_FORK
        } else {
            0
        },
        ..SchedAttr::default()
    };
    if now.is_deadline() {
        let d = now.deadline;
        (a.runtime, a.deadline, a.period) = (d.runtime, d.deadline, d.period);
        a.flags |= d.flags;
    } else if !now.is_real_time() {
        // What a task may run before it is looked at again.
        a.runtime = SLICE;
        a.nice = t.nice.load(Ordering::Relaxed);
    }
    let mut out = vec![0; size as usize];
    let n = out.len().min(size_of::<SchedAttr>());
    out[..n].copy_from_slice(&a.as_bytes()[..n]);
    cx.mm().copy_out(attr, &out)?;
    Ok(0)
}

/// Nanoseconds: `base_slice_ns` of two CPUs.
const SLICE: u64 = 1_400_000;

fn priority_bounds(policy: u32, bound: usize) -> SysResult {
    match policy {
        // OTHER, BATCH, IDLE, DEADLINE, EXT.
        0 | 3 | 5 | 6 | 7 => Ok(0),
        1 | 2 => Ok(bound),
        _ => Err(EINVAL),
    }
}
fn sched_get_priority_max(_cx: &mut Context, policy: u32) -> SysResult {
    priority_bounds(policy, 99)
}
fn sched_get_priority_min(_cx: &mut Context, policy: u32) -> SysResult {
    priority_bounds(policy, 1)
}
fn sched_rr_get_interval(cx: &mut Context, tid: Tid, interval: UserOut<Timespec>) -> SysResult {
    // RR's is `sched_rr_timeslice_ms`; FIFO and DEADLINE have none.
    let slice = match task_of(cx, tid)?.scheduling.read().policy {
        SCHED_RR => 100_000_000,
        SCHED_FIFO | SCHED_DEADLINE => 0,
        _ => 4_000_000,
    };
    interval.write(&cx.mm(), &Timespec::from_nanos(slice))?;
    Ok(0)
}

/// The tasks that `getpriority(2)`'s which and who mean.
fn tasks_of(cx: &Context, which: PriorityOf, who: i32) -> Result<Vec<Arc<crate::Task>>> {
    let l = cx.kernel.tasks.lock();
    let v: Vec<_> = match which {
        PriorityOf::PRIO_PROCESS if who == 0 => vec![cx.task.clone()],
        PriorityOf::PRIO_PROCESS => l.task(cx.id_of(who)?).into_iter().collect(),
        PriorityOf::PRIO_PGRP => {
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
        PriorityOf::PRIO_USER => {
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

fn getpriority(cx: &mut Context, which: PriorityOf, who: i32) -> SysResult {
    let t = tasks_of(cx, which, who)?;
    let nice = t
        .iter()
        .map(|t| t.nice.load(Ordering::Relaxed))
        .min()
        .unwrap_or(0);
    // Shifted, so that it is never negative.
    Ok((20 - nice) as usize)
}

fn setpriority(cx: &mut Context, which: PriorityOf, who: i32, nice: i32) -> SysResult {
    let nice = nice.clamp(-20, 19);
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
    let all = tasks_of(cx, which, who)?;
    let mut result = Ok(0);
    for t in &all {
        result = set(t).map_or_else(Err, |()| result);
    }
    result
}

/// The tasks that ioprio_get(2)'s which and who mean.
fn io_tasks(cx: &Context, which: IoPriorityOf, who: i32) -> Result<Vec<Arc<crate::Task>>> {
    let which = match which {
        IoPriorityOf::IOPRIO_WHO_PROCESS => PriorityOf::PRIO_PROCESS,
        IoPriorityOf::IOPRIO_WHO_PGRP => PriorityOf::PRIO_PGRP,
        IoPriorityOf::IOPRIO_WHO_USER => PriorityOf::PRIO_USER,
        _ => return Err(EINVAL),
    };
    tasks_of(cx, which, who)
}

const IOPRIO_CLASS_RT: i32 = 1;
const IOPRIO_CLASS_BE: i32 = 2;
const IOPRIO_CLASS_IDLE: i32 = 3;
const IOPRIO_SHIFT: i32 = 13;

/// What a task's priority comes to: by its nice value, where none was set (`__get_task_ioprio`).
fn io_priority(t: &crate::Task) -> i32 {
    let level = (t.nice.load(Ordering::Relaxed) + 20) / 5;
    let now = *t.scheduling.read();
    match t.io_priority.load(Ordering::Relaxed) {
        p if p >> IOPRIO_SHIFT != 0 => p,
        _ if now.policy == SCHED_IDLE => IOPRIO_CLASS_IDLE << IOPRIO_SHIFT | level,
        _ if now.is_real_time() || now.is_deadline() => IOPRIO_CLASS_RT << IOPRIO_SHIFT | level,
        _ => (IOPRIO_CLASS_BE << IOPRIO_SHIFT) | level,
    }
}

/// Of one task what was set, of several the best.
fn ioprio_get(cx: &mut Context, which: IoPriorityOf, who: i32) -> SysResult {
    let all = io_tasks(cx, which, who)?;
    let best = match all.as_slice() {
        [one] if which == IoPriorityOf::IOPRIO_WHO_PROCESS => {
            one.io_priority.load(Ordering::Relaxed)
        }
        all => all.iter().map(|t| io_priority(t)).min().unwrap_or(0),
    };
    Ok(best as usize)
}

/// Whether the caller may have that priority (`ioprio_check_cap`).
pub(super) fn check_io_priority(cx: &Context, priority: u32) -> Result<()> {
    let (class, level) = ((priority >> 13) & 7, priority & 7);
    let me = cx.cred();
    match class {
        1 if !me.has(Caps::SYS_ADMIN) && !me.has(Caps::SYS_NICE) => Err(EPERM),
        1..=3 => Ok(()),
        0 if level == 0 => Ok(()),
        _ => Err(EINVAL),
    }
}

/// Checked (`ioprio_check_cap`, `set_task_ioprio`), told, and without effect.
fn ioprio_set(cx: &mut Context, which: IoPriorityOf, who: i32, priority: u32) -> SysResult {
    check_io_priority(cx, priority)?;
    let me = cx.cred();
    for t in io_tasks(cx, which, who)? {
        let owner = t.cred().uid;
        if ![me.euid, me.uid].contains(&owner) && !me.has(Caps::SYS_NICE) {
            return Err(EPERM);
        }
        is_safe(cx, &t)?;
        t.io_priority
            .store((priority & 0xffff) as i32, Ordering::Relaxed);
    }
    Ok(0)
}

/// `membarrier(cmd, flags, cpu)`.
fn membarrier(cx: &mut Context, cmd: MembarrierCmd, flags: u32, cpu: i32) -> SysResult {
    use MembarrierCmd as M;
    /// `MEMBARRIER_CMD_FLAG_CPU`.
    const ONE_CPU: u32 = 1;
    let may_name_cpu = cmd == M::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ && flags == ONE_CPU;
    if flags != 0 && !may_name_cpu {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    match cmd {
        // All of them, but this one.
        M::MEMBARRIER_CMD_QUERY => return Ok((1 << 10) - 1),
        M::MEMBARRIER_CMD_GET_REGISTRATIONS => return Ok(mm.barriers().registered() as usize),
        M::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED
        | M::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
        | M::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
        | M::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ => {
            mm.barriers().register(cmd.0);
            return Ok(0);
        }
        M::MEMBARRIER_CMD_GLOBAL | M::MEMBARRIER_CMD_GLOBAL_EXPEDITED => {}
        M::MEMBARRIER_CMD_PRIVATE_EXPEDITED
        | M::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE
        | M::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ => {
            // The bit that registers for a command is the next.
            if mm.barriers().registered() & (cmd.0 << 1) == 0 {
                return Err(EPERM);
            }
            if may_name_cpu && usize::try_from(cpu).is_ok_and(|n| n >= cx.kernel.cpus as usize) {
                return Ok(0);
            }
        }
        _ => return Err(EINVAL),
    }
    if cmd == M::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE {
        // Those that run application code come out of it, and go on by an instruction that
        // serializes.
        let threads = cx.kernel.tasks.lock().threads(cx.group.tgid);
        threads
            .iter()
            .filter(|t| !Arc::ptr_eq(t, &cx.task))
            .for_each(|t| t.kick());
    }
    // Every thread on the host passes a barrier: slow (some ms), and right. There are no sections
    // of rseq(2) that it would have to end.
    hostcall::process::membarrier_global()?;
    Ok(0)
}

calls! {
    sched_yield,
    getpriority,
    setpriority: "reported, without effect on the host",
    sched_setparam: "told, without effect on the host",
    sched_getparam,
    sched_setscheduler: "told, without effect on the host; RLIMIT_RTTIME has none",
    sched_getscheduler,
    sched_setattr: "told, without effect on the host; no bounds of utilisation",
    sched_getattr,
    sched_get_priority_max,
    sched_get_priority_min,
    sched_rr_get_interval,
    sched_setaffinity: "told, without effect on the host",
    sched_getaffinity,
    ioprio_set: "told, without effect",
    ioprio_get,
    getcpu,
    membarrier,
}
