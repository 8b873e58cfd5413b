//! Clocks, sleeping, timers.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::futex::instant_of;
use crate::task::jobs::Notify;
use abi::errno::*;
use abi::linux::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE,
    CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPUTIME_ID, CLOCK_REALTIME, CLOCK_REALTIME_ALARM,
    CLOCK_REALTIME_COARSE, CLOCK_TAI, CLOCK_THREAD_CPUTIME_ID, TIMER_ABSTIME,
};
use abi::signal::SIGALRM;
use abi::time::{Timespec, Timeval};
use abi::{Result, Signal, Va};
use hostcall::time::clock_nanos;
use ipc::timer::{Clock, From, Setting};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Reads an optional `struct timespec`.
pub(super) fn timespec_arg(cx: &Context, va: Option<Va>) -> Result<Option<i64>> {
    match va {
        None => Ok(None),
        Some(va) => Ok(Some(
            cx.mm().read_obj::<Timespec>(va)?.to_nanos().ok_or(EINVAL)?,
        )),
    }
}

/// Reads a clock, nanoseconds.
fn read_clock(cx: &Context, id: i32) -> Result<i64> {
    match id as u32 {
        CLOCK_REALTIME
        | CLOCK_MONOTONIC
        | CLOCK_MONOTONIC_RAW
        | CLOCK_REALTIME_COARSE
        | CLOCK_MONOTONIC_COARSE
        | CLOCK_BOOTTIME
        | CLOCK_TAI => Ok(clock_nanos(id)),
        CLOCK_REALTIME_ALARM => Ok(clock_nanos(0)),
        CLOCK_BOOTTIME_ALARM => Ok(clock_nanos(7)),
        CLOCK_PROCESS_CPUTIME_ID => Ok(cx.kernel.cpu_time(&cx.group).total() as i64),
        CLOCK_THREAD_CPUTIME_ID => Ok(cx.cpu.get().total() as i64),
        _ if id < 0 => {
            // Somebody's CPU clock: the inverted id, whether a thread's, and CPUCLOCK_*.
            let pid = !(id >> 3);
            let of = |c: crate::task::cpu::Cpu| match id & 3 {
                1 => Ok(c.user as i64),
                0 | 2 => Ok(c.total() as i64),
                _ => Err(EINVAL),
            };
            if id & 4 != 0 {
                let t = match pid {
                    0 => cx.task.clone(),
                    _ => cx.find_task(pid).map_err(|_| EINVAL)?,
                };
                // Only one's own threads.
                if !std::sync::Arc::ptr_eq(&t.group, &cx.group) {
                    return Err(EINVAL);
                }
                return of(t.cpu.get());
            }
            let g = match pid {
                0 => cx.group.clone(),
                _ => cx.find_group(pid).map_err(|_| EINVAL)?,
            };
            of(cx.kernel.cpu_time(&g))
        }
        _ => Err(EINVAL),
    }
}

fn clock_gettime(cx: &mut Context, a: &Args) -> SysResult {
    let t = read_clock(cx, a.i32(0))?;
    cx.mm().write_obj(a.va(1), &Timespec::from_nanos(t))?;
    Ok(0)
}

fn clock_getres(cx: &mut Context, a: &Args) -> SysResult {
    read_clock(cx, a.i32(0))?;
    let ns = match a.u32(0) {
        CLOCK_REALTIME_COARSE | CLOCK_MONOTONIC_COARSE => 4_000_000,
        _ => 1,
    };
    if let Some(va) = a.va_opt(1) {
        cx.mm().write_obj(va, &Timespec::from_nanos(ns))?;
    }
    Ok(0)
}

fn clock_settime(cx: &mut Context, a: &Args) -> SysResult {
    cx.mm()
        .read_obj::<Timespec>(a.va(1))?
        .to_nanos()
        .ok_or(EINVAL)?;
    if a.u32(0) != CLOCK_REALTIME {
        return Err(EINVAL);
    }
    Err(EPERM)
}

fn gettimeofday(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    if let Some(va) = a.va_opt(0) {
        mm.write_obj(va, &Timeval::from_nanos(clock_nanos(0)))?;
    }
    if let Some(va) = a.va_opt(1) {
        mm.write_obj(va, &[0i32, 0])?;
    }
    Ok(0)
}

fn time(cx: &mut Context, a: &Args) -> SysResult {
    let t = clock_nanos(0) / abi::time::NSEC_PER_SEC;
    if let Some(va) = a.va_opt(0) {
        cx.mm().write_obj(va, &t)?;
    }
    Ok(t as usize)
}

/// Sleeps until `deadline`. `ERESTARTSYS` if a signal interrupts.
pub(super) fn sleep_until(cx: &Context, deadline: Option<Instant>) -> Result<()> {
    // The time that is over counts before a signal that has come.
    let over = || match deadline.is_some_and(|d| Instant::now() >= d) {
        true => Ok(()),
        false => Err(EAGAIN),
    };
    match cx.block(&[], deadline, over) {
        Err(ETIMEDOUT) => Ok(()),
        r => r,
    }
}

/// Sleeps for a relative time, and goes on after an interruption where it stopped.
fn sleep_relative(cx: &mut Context, deadline: Option<Instant>, remain: Option<Va>) -> SysResult {
    match sleep_until(cx, deadline) {
        Ok(()) => Ok(0),
        Err(_) => {
            let left = deadline.map_or(0, |d| {
                d.saturating_duration_since(Instant::now()).as_nanos()
            });
            if let Some(va) = remain {
                cx.mm().write_obj(va, &Timespec::from_nanos(left as i64))?;
            }
            cx.restart_block = Some(Box::new(move |cx| sleep_relative(cx, deadline, remain)));
            Err(ERESTART_RESTARTBLOCK)
        }
    }
}

fn nanosleep(cx: &mut Context, a: &Args) -> SysResult {
    let ns = cx
        .mm()
        .read_obj::<Timespec>(a.va(0))?
        .to_nanos()
        .ok_or(EINVAL)?;
    let deadline = wait::deadline_after(Duration::from_nanos(ns as u64));
    sleep_relative(cx, deadline, a.va_opt(1))
}

fn clock_nanosleep(cx: &mut Context, a: &Args) -> SysResult {
    let (id, flags) = (a.i32(0), a.u32(1));
    match id as u32 {
        CLOCK_REALTIME | CLOCK_MONOTONIC | CLOCK_BOOTTIME | CLOCK_TAI | CLOCK_REALTIME_ALARM
        | CLOCK_BOOTTIME_ALARM => {}
        CLOCK_PROCESS_CPUTIME_ID => return Err(EOPNOTSUPP),
        CLOCK_THREAD_CPUTIME_ID => return Err(EINVAL),
        _ => {
            return Err(if read_clock(cx, id).is_ok() {
                EOPNOTSUPP
            } else {
                EINVAL
            });
        }
    }
    let ns = cx
        .mm()
        .read_obj::<Timespec>(a.va(2))?
        .to_nanos()
        .ok_or(EINVAL)?;
    if flags & TIMER_ABSTIME != 0 {
        sleep_until(cx, instant_of(id, ns)).map_err(|_| ERESTARTNOHAND)?;
        return Ok(0);
    }
    let deadline = wait::deadline_after(Duration::from_nanos(ns as u64));
    sleep_relative(cx, deadline, a.va_opt(3))
}

fn restart_syscall(cx: &mut Context, _: &Args) -> SysResult {
    match cx.restart_block.take() {
        Some(mut f) => f(cx),
        None => Err(EINTR),
    }
}

/// `struct itimerval`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ItimerVal {
    interval: Timeval,
    value: Timeval,
}

impl ItimerVal {
    fn of(s: Setting) -> ItimerVal {
        // Rounded up, so that an armed timer does not read as a disarmed one.
        let up = |n: i64| Timeval::from_nanos(n.saturating_add(999));
        ItimerVal {
            interval: up(s.interval),
            value: if s.value == 0 {
                Timeval::default()
            } else {
                up(s.value)
            },
        }
    }
    fn setting(self) -> Result<Setting> {
        Ok(Setting {
            value: self.value.to_nanos().ok_or(EINVAL)?,
            interval: self.interval.to_nanos().ok_or(EINVAL)?,
        })
    }
}

/// `getitimer(which, value)`.
fn getitimer(cx: &mut Context, a: &Args) -> SysResult {
    let s = match a.u32(0) {
        0 => cx.group.timers.real(),
        1 | 2 => cx.group.timers.cpu(cx, a.u32(0)),
        _ => return Err(EINVAL),
    };
    cx.mm().write_obj(a.va(1), &ItimerVal::of(s))?;
    Ok(0)
}

/// `setitimer(which, new, old)`.
fn setitimer(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let new = match a.va_opt(1) {
        Some(va) => mm.read_obj::<ItimerVal>(va)?.setting()?,
        None => Setting::default(),
    };
    let old = match a.u32(0) {
        0 => cx.group.timers.set_real(cx, new),
        1 | 2 => cx.group.timers.set_cpu(cx, a.u32(0), new),
        _ => return Err(EINVAL),
    };
    if let Some(va) = a.va_opt(2) {
        mm.write_obj(va, &ItimerVal::of(old))?;
    }
    Ok(0)
}

fn alarm(cx: &mut Context, a: &Args) -> SysResult {
    let value = i64::from(a.u32(0)) * abi::time::NSEC_PER_SEC;
    let old = cx.group.timers.set_real(cx, Setting { value, interval: 0 });
    // Rounded, but never to zero while it runs.
    let s = (old.value + abi::time::NSEC_PER_SEC / 2) / abi::time::NSEC_PER_SEC;
    Ok(if old.value > 0 { s.max(1) as usize } else { 0 })
}

/// `struct itimerspec`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ItimerSpec {
    interval: Timespec,
    value: Timespec,
}

impl ItimerSpec {
    #[must_use]
    pub fn of(s: Setting) -> ItimerSpec {
        ItimerSpec {
            interval: Timespec::from_nanos(s.interval),
            value: Timespec::from_nanos(s.value),
        }
    }
    /// `EINVAL` for times that are none.
    pub fn setting(self) -> Result<Setting> {
        Ok(Setting {
            value: self.value.to_nanos().ok_or(EINVAL)?,
            interval: self.interval.to_nanos().ok_or(EINVAL)?,
        })
    }
}

/// `struct sigevent`, its used part.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SigEvent {
    value: u64,
    signo: i32,
    notify: i32,
    tid: i32,
    pad: [i32; 11],
}

/// `timer_create(clock, sevp, timerid)`.
fn timer_create(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    // CPU-time clocks cannot drive timers here.
    let clock = match a.i32(0) {
        2 | 3 => return Err(EOPNOTSUPP),
        id if id < 0 => return Err(EOPNOTSUPP),
        id => Clock::from_id(id).ok_or(EINVAL)?,
    };
    let id = match a.va_opt(1) {
        // The value defaults to the timer's id; glibc always passes a struct.
        None => cx.group.timers.create(
            cx,
            clock,
            Notify::Signal {
                signal: SIGALRM,
                value: 0,
            },
        )?,
        Some(va) => {
            let e: SigEvent = mm.read_obj(va)?;
            let signal = || Signal::new(e.signo).ok_or(EINVAL);
            let notify = match e.notify {
                0 | 2 => Notify::Signal {
                    signal: signal()?,
                    value: e.value,
                },
                1 => Notify::None,
                4 => {
                    let t = cx.find_task(e.tid).map_err(|_| EINVAL)?;
                    if t.group.tgid != cx.group.tgid {
                        return Err(EINVAL);
                    }
                    Notify::Thread {
                        signal: signal()?,
                        value: e.value,
                        tid: t.tid,
                    }
                }
                _ => return Err(EINVAL),
            };
            cx.group.timers.create(cx, clock, notify)?
        }
    };
    mm.write_obj(a.va(2), &id).inspect_err(|_| {
        let _ = cx.group.timers.delete(id);
    })?;
    Ok(0)
}

/// `timer_settime(id, flags, new, old)`.
fn timer_settime(cx: &mut Context, a: &Args) -> SysResult {
    let mm = cx.mm();
    let new: ItimerSpec = mm.read_obj(a.va(2))?;
    let new = new.setting()?;
    let t = cx.group.timers.posix(a.i32(0))?;
    let from = if a.u32(1) & TIMER_ABSTIME != 0 {
        From::Epoch
    } else {
        From::Now
    };
    t.overrun.store(0, Ordering::Relaxed);
    let (old, _) = t.timer.set(new, from);
    if let Some(va) = a.va_opt(3) {
        mm.write_obj(va, &ItimerSpec::of(old))?;
    }
    Ok(0)
}

fn timer_gettime(cx: &mut Context, a: &Args) -> SysResult {
    let t = cx.group.timers.posix(a.i32(0))?;
    cx.mm().write_obj(a.va(1), &ItimerSpec::of(t.timer.get()))?;
    Ok(0)
}

fn timer_getoverrun(cx: &mut Context, a: &Args) -> SysResult {
    let t = cx.group.timers.posix(a.i32(0))?;
    Ok(t.overrun.load(Ordering::Relaxed).min(i32::MAX as u64) as usize)
}

fn timer_delete(cx: &mut Context, a: &Args) -> SysResult {
    cx.group.timers.delete(a.i32(0))?;
    Ok(0)
}

/// `struct tms`, in clock ticks of 10 ms.
fn times(cx: &mut Context, a: &Args) -> SysResult {
    const TICK: u64 = 10_000_000;
    if let Some(va) = a.va_opt(0) {
        let own = cx.kernel.cpu_time(&cx.group);
        let children = cx.group.cpu_children.get();
        let ticks = [own.user, own.system, children.user, children.system];
        cx.mm().write_obj(va, &ticks.map(|t| t / TICK))?;
    }
    Ok((clock_nanos(7) as u64 / TICK) as usize)
}

/// `adjtimex(2)`, read-only.
fn adjtimex(cx: &mut Context, a: &Args) -> SysResult {
    let modes: u32 = cx.mm().read_obj(a.va(0))?;
    // Setting needs CAP_SYS_TIME over the host's clock, which nobody here has; reading tells an
    // unsynchronized clock (TIME_ERROR).
    if modes != 0 {
        return Err(EPERM);
    }
    let mut tx = [0u64; 26];
    tx[5] = 0x40;
    cx.mm().write_obj(a.va(0), &tx)?;
    Ok(5)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(35, "nanosleep", &[Arg::Timespec, Arg::Ptr], nanosleep),
    Call::new(36, "getitimer", &[Arg::Int, Arg::Ptr], getitimer),
    Call::new(37, "alarm", &[Arg::Uint], alarm),
    Call::new(38, "setitimer", &[Arg::Int, Arg::Ptr, Arg::Ptr], setitimer),
    Call::new(96, "gettimeofday", &[Arg::Ptr, Arg::Ptr], gettimeofday),
    Call::new(100, "times", &[Arg::Ptr], times),
    Call::new(159, "adjtimex", &[Arg::Ptr], adjtimex).note("reading only"),
    Call::new(201, "time", &[Arg::Ptr], time),
    Call::new(219, "restart_syscall", &[], restart_syscall),
    Call::new(
        222,
        "timer_create",
        &[Arg::Int, Arg::Ptr, Arg::Ptr],
        timer_create,
    )
    .note("no CPU-time clocks"),
    Call::new(
        223,
        "timer_settime",
        &[Arg::Int, Arg::Hex, Arg::Ptr, Arg::Ptr],
        timer_settime,
    ),
    Call::new(224, "timer_gettime", &[Arg::Int, Arg::Ptr], timer_gettime),
    Call::new(225, "timer_getoverrun", &[Arg::Int], timer_getoverrun),
    Call::new(226, "timer_delete", &[Arg::Int], timer_delete),
    Call::new(
        227,
        "clock_settime",
        &[Arg::Int, Arg::Timespec],
        clock_settime,
    )
    .note("always EPERM"),
    Call::new(228, "clock_gettime", &[Arg::Int, Arg::Ptr], clock_gettime),
    Call::new(229, "clock_getres", &[Arg::Int, Arg::Ptr], clock_getres),
    Call::new(
        230,
        "clock_nanosleep",
        &[Arg::Int, Arg::Hex, Arg::Timespec, Arg::Ptr],
        clock_nanosleep,
    ),
];
