//! Limits of resources, and what was used of them.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::cpu::Cpu;
use crate::task::limits::{self, Limit};
use abi::Result;
use abi::errno::*;
use abi::time::Timeval;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Caps;

opaque! { Limit }

named! {
    /// A limit of resources.
    struct Resource(u32) {
        RLIMIT_CPU,
        RLIMIT_FSIZE,
        RLIMIT_DATA,
        RLIMIT_STACK,
        RLIMIT_CORE,
        RLIMIT_RSS,
        RLIMIT_NPROC,
        RLIMIT_NOFILE,
        RLIMIT_MEMLOCK,
        RLIMIT_AS,
        RLIMIT_LOCKS,
        RLIMIT_SIGPENDING,
        RLIMIT_MSGQUEUE,
        RLIMIT_NICE,
        RLIMIT_RTPRIO,
        RLIMIT_RTTIME,
    }
}

named! {
    /// Whose usage getrusage(2) tells.
    struct UsageOf(i32) {
        RUSAGE_SELF,
        RUSAGE_CHILDREN,
        RUSAGE_THREAD,
    }
}

fn prlimit(cx: &Context, t: &crate::Task, resource: Resource, new: Option<Limit>) -> Result<Limit> {
    let n = resource.0 as usize;
    if n >= limits::COUNT {
        return Err(EINVAL);
    }
    let mut l = t.group.limits.lock();
    let old = l.0[n];
    if let Some(new) = new {
        if new.current > new.max {
            return Err(EINVAL);
        }
        let most = vfs::fd_table::NR_OPEN.load(Ordering::Relaxed);
        if n == limits::NOFILE && new.max > most as u64 {
            return Err(EPERM);
        }
        if new.max > old.max && !cx.cred().has(Caps::SYS_RESOURCE) {
            return Err(EPERM);
        }
        l.0[n] = new;
        drop(l);
        if n == limits::CPU {
            t.group.timers.watch_cpu_limit(&t.kernel, &t.group);
        } else {
            t.mm().set_limits(t.mm_limits());
        }
    }
    Ok(old)
}

fn getrlimit(cx: &mut Context, resource: Resource, limit: UserOut<Limit>) -> SysResult {
    let old = prlimit(cx, cx, resource, None)?;
    limit.write(&cx.mm(), &old)?;
    Ok(0)
}

fn setrlimit(cx: &mut Context, resource: Resource, limit: UserIn<Limit>) -> SysResult {
    let new = limit.read(&cx.mm())?;
    prlimit(cx, cx, resource, Some(new))?;
    Ok(0)
}

fn prlimit64(
    cx: &mut Context,
    tid: Tid,
    resource: Resource,
    new: Option<UserIn<Limit>>,
    old: Option<UserOut<Limit>>,
) -> SysResult {
    let mm = cx.mm();
    let new = new.map(|new| new.read(&mm)).transpose()?;
    let t = tid.task_or_caller(&cx.task)?;
    if tid.0 != 0 {
        let (me, c) = (cx.cred(), t.cred());
        let same = [c.uid, c.euid, c.suid].iter().all(|i| *i == me.uid)
            && [c.gid, c.egid, c.sgid].iter().all(|i| *i == me.gid);
        if !Arc::ptr_eq(&t.group, &cx.group) && !same && !me.has_in(&c.user_ns, Caps::SYS_RESOURCE)
        {
            return Err(EPERM);
        }
    }
    let before = prlimit(cx, &t, resource, new)?;
    if let Some(old) = old {
        old.write(&mm, &before)?;
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

fn getrusage(cx: &mut Context, who: UsageOf, usage: UserOut<[u64; 18]>) -> SysResult {
    let cpu = match who {
        UsageOf::RUSAGE_SELF => cx.kernel.cpu_time(&cx.group),
        UsageOf::RUSAGE_THREAD => cx.cpu.get(),
        UsageOf::RUSAGE_CHILDREN => cx.group.cpu_children.get(),
        _ => return Err(EINVAL),
    };
    let rss = match who {
        UsageOf::RUSAGE_CHILDREN => 0,
        _ => cx.mm().usage().rss / 1024,
    };
    usage.write(&cx.mm(), &rusage(cpu, rss))?;
    Ok(0)
}

calls! {
    getrlimit,
    getrusage,
    setrlimit,
    prlimit64,
}
