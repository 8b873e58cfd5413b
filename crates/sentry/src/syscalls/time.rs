//! Clocks, sleeping, timers.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::futex::instant_of;
use crate::task::jobs::Notify;
use abi::errno::*;
use abi::signal::SIGALRM;
use abi::time::{Timespec, Timeval};
use abi::{Result, Signal};
use hostcall::time::clock_nanos;
use ipc::timer::{Clock, From, Setting};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

opaque! { ItimerVal SigEvent }

named! {
    /// Which interval timer.
    struct Itimer(u32) {
        ITIMER_REAL,
        ITIMER_VIRTUAL,
        ITIMER_PROF,
    }
}

/// Reads an optional `struct timespec`, in nanoseconds; `EINVAL` for what is none.
pub(super) fn timespec_arg(cx: &Context, from: Option<UserIn<Timespec>>) -> Result<Option<i64>> {
    from.map(|t| t.read(&cx.mm())?.to_nanos().ok_or(EINVAL))
        .transpose()
}

/// Reads a clock, nanoseconds.
fn read_clock(cx: &Context, clock: ClockId) -> Result<i64> {
    let id = clock.0;
    match clock {
        ClockId::CLOCK_REALTIME
        | ClockId::CLOCK_MONOTONIC
        | ClockId::CLOCK_MONOTONIC_RAW
        | ClockId::CLOCK_REALTIME_COARSE
        | ClockId::CLOCK_MONOTONIC_COARSE
        | ClockId::CLOCK_BOOTTIME
        | ClockId::CLOCK_TAI => Ok(clock_nanos(id)),
        ClockId::CLOCK_REALTIME_ALARM => Ok(clock_nanos(0)),
        ClockId::CLOCK_BOOTTIME_ALARM => Ok(clock_nanos(7)),
        ClockId::CLOCK_PROCESS_CPUTIME_ID => Ok(cx.kernel.cpu_time(&cx.group).total() as i64),
        ClockId::CLOCK_THREAD_CPUTIME_ID => Ok(cx.cpu.get().total() as i64),
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

fn clock_gettime(cx: &mut Context, clock: ClockId, out: UserOut<Timespec>) -> SysResult {
    let t = read_clock(cx, clock)?;
    out.write(&cx.mm(), &Timespec::from_nanos(t))?;
    Ok(0)
}

fn clock_getres(cx: &mut Context, clock: ClockId, out: Option<UserOut<Timespec>>) -> SysResult {
    read_clock(cx, clock)?;
    let ns = match clock {
        ClockId::CLOCK_REALTIME_COARSE | ClockId::CLOCK_MONOTONIC_COARSE => 4_000_000,
        _ => 1,
    };
    if let Some(out) = out {
        out.write(&cx.mm(), &Timespec::from_nanos(ns))?;
    }
    Ok(0)
}

fn clock_settime(cx: &mut Context, clock: ClockId, new: UserIn<Timespec>) -> SysResult {
    new.read(&cx.mm())?.to_nanos().ok_or(EINVAL)?;
    if clock != ClockId::CLOCK_REALTIME {
        return Err(EINVAL);
    }
    Err(EPERM)
}

fn gettimeofday(
    cx: &mut Context,
    out: Option<UserOut<Timeval>>,
    zone: Option<UserOut<[i32; 2]>>,
) -> SysResult {
    let mm = cx.mm();
    if let Some(out) = out {
        out.write(&mm, &Timeval::from_nanos(clock_nanos(0)))?;
    }
    if let Some(zone) = zone {
        zone.write(&mm, &[0i32, 0])?;
    }
    Ok(0)
}

fn time(cx: &mut Context, out: Option<UserOut<i64>>) -> SysResult {
    let t = clock_nanos(0) / abi::time::NSEC_PER_SEC;
    if let Some(out) = out {
        out.write(&cx.mm(), &t)?;
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
fn sleep_relative(
    cx: &mut Context,
    deadline: Option<Instant>,
    remain: Option<UserOut<Timespec>>,
) -> SysResult {
    match sleep_until(cx, deadline) {
        Ok(()) => Ok(0),
        Err(_) => {
            let left = deadline.map_or(0, |d| {
                d.saturating_duration_since(Instant::now()).as_nanos()
            });
            if let Some(out) = remain {
                out.write(&cx.mm(), &Timespec::from_nanos(left as i64))?;
            }
            cx.restart_block = Some(Box::new(move |cx| sleep_relative(cx, deadline, remain)));
            Err(ERESTART_RESTARTBLOCK)
        }
    }
}

fn nanosleep(
    cx: &mut Context,
    wanted: UserIn<Timespec>,
    left: Option<UserOut<Timespec>>,
) -> SysResult {
    let ns = wanted.read(&cx.mm())?.to_nanos().ok_or(EINVAL)?;
    let deadline = wait::deadline_after(Duration::from_nanos(ns as u64));
    sleep_relative(cx, deadline, left)
}

fn clock_nanosleep(
    cx: &mut Context,
    clock: ClockId,
    flags: TimerFlags,
    wanted: UserIn<Timespec>,
    left: Option<UserOut<Timespec>>,
) -> SysResult {
    match clock {
        ClockId::CLOCK_REALTIME
        | ClockId::CLOCK_MONOTONIC
        | ClockId::CLOCK_BOOTTIME
        | ClockId::CLOCK_TAI
        | ClockId::CLOCK_REALTIME_ALARM
        | ClockId::CLOCK_BOOTTIME_ALARM => {}
        ClockId::CLOCK_PROCESS_CPUTIME_ID => return Err(EOPNOTSUPP),
        ClockId::CLOCK_THREAD_CPUTIME_ID => return Err(EINVAL),
        _ => {
            return Err(if read_clock(cx, clock).is_ok() {
                EOPNOTSUPP
            } else {
                EINVAL
            });
        }
    }
    let ns = wanted.read(&cx.mm())?.to_nanos().ok_or(EINVAL)?;
    if flags.contains(TimerFlags::TIMER_ABSTIME) {
        sleep_until(cx, instant_of(clock.0, ns)).map_err(|_| ERESTARTNOHAND)?;
        return Ok(0);
    }
    let deadline = wait::deadline_after(Duration::from_nanos(ns as u64));
    sleep_relative(cx, deadline, left)
}

fn restart_syscall(cx: &mut Context) -> SysResult {
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
fn getitimer(cx: &mut Context, which: Itimer, out: UserOut<ItimerVal>) -> SysResult {
    let s = match which {
        Itimer::ITIMER_REAL => cx.group.timers.real(),
        Itimer::ITIMER_VIRTUAL | Itimer::ITIMER_PROF => cx.group.timers.cpu(cx, which.0),
        _ => return Err(EINVAL),
    };
    out.write(&cx.mm(), &ItimerVal::of(s))?;
    Ok(0)
}

/// `setitimer(which, new, old)`.
fn setitimer(
    cx: &mut Context,
    which: Itimer,
    new: Option<UserIn<ItimerVal>>,
    old: Option<UserOut<ItimerVal>>,
) -> SysResult {
    let mm = cx.mm();
    let new = match new {
        Some(va) => va.read(&mm)?.setting()?,
        None => Setting::default(),
    };
    let before = match which {
        Itimer::ITIMER_REAL => cx.group.timers.set_real(cx, new),
        Itimer::ITIMER_VIRTUAL | Itimer::ITIMER_PROF => cx.group.timers.set_cpu(cx, which.0, new),
        _ => return Err(EINVAL),
    };
    if let Some(old) = old {
        old.write(&mm, &ItimerVal::of(before))?;
    }
    Ok(0)
}

fn alarm(cx: &mut Context, seconds: u32) -> SysResult {
    let value = i64::from(seconds) * abi::time::NSEC_PER_SEC;
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
pub(super) struct SigEvent {
    pub value: u64,
    pub signo: i32,
    pub notify: i32,
    tid: i32,
    pad: [i32; 11],
}

/// `timer_create(clock, sevp, timerid)`.
fn timer_create(
    cx: &mut Context,
    clock: ClockId,
    event: Option<UserIn<SigEvent>>,
    id: UserOut<i32>,
) -> SysResult {
    let mm = cx.mm();
    // CPU-time clocks cannot drive timers here.
    let clock = match clock {
        ClockId::CLOCK_PROCESS_CPUTIME_ID | ClockId::CLOCK_THREAD_CPUTIME_ID => {
            return Err(EOPNOTSUPP);
        }
        ClockId(n) if n < 0 => return Err(EOPNOTSUPP),
        ClockId(n) => Clock::from_id(n).ok_or(EINVAL)?,
    };
    let new = match event {
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
            let e = va.read(&mm)?;
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
    id.write(&mm, &new).inspect_err(|_| {
        let _ = cx.group.timers.delete(new);
    })?;
    Ok(0)
}

/// `timer_settime(id, flags, new, old)`.
fn timer_settime(
    cx: &mut Context,
    id: i32,
    flags: TimerFlags,
    new: UserIn<ItimerSpec>,
    old: Option<UserOut<ItimerSpec>>,
) -> SysResult {
    let mm = cx.mm();
    let new = new.read(&mm)?.setting()?;
    let t = cx.group.timers.posix(id)?;
    let from = if flags.contains(TimerFlags::TIMER_ABSTIME) {
        From::Epoch
    } else {
        From::Now
    };
    t.overrun.store(0, Ordering::Relaxed);
    let (before, _) = t.timer.set(new, from);
    if let Some(old) = old {
        old.write(&mm, &ItimerSpec::of(before))?;
    }
    Ok(0)
}

fn timer_gettime(cx: &mut Context, id: i32, out: UserOut<ItimerSpec>) -> SysResult {
    let t = cx.group.timers.posix(id)?;
    out.write(&cx.mm(), &ItimerSpec::of(t.timer.get()))?;
    Ok(0)
}

fn timer_getoverrun(cx: &mut Context, id: i32) -> SysResult {
    let t = cx.group.timers.posix(id)?;
    Ok(t.overrun.load(Ordering::Relaxed).min(i32::MAX as u64) as usize)
}

fn timer_delete(cx: &mut Context, id: i32) -> SysResult {
    cx.group.timers.delete(id)?;
    Ok(0)
}

/// `struct tms`, in clock ticks of 10 ms.
fn times(cx: &mut Context, out: Option<UserOut<[u64; 4]>>) -> SysResult {
    const TICK: u64 = 10_000_000;
    if let Some(va) = out {
        let own = cx.kernel.cpu_time(&cx.group);
        let children = cx.group.cpu_children.get();
        let ticks = [own.user, own.system, children.user, children.system];
        va.write(&cx.mm(), &ticks.map(|t| t / TICK))?;
    }
    Ok((clock_nanos(7) as u64 / TICK) as usize)
}

/// `adjtimex(2)`, read-only.
fn adjtimex(cx: &mut Context, tx: UserPtr<[u64; 26]>) -> SysResult {
    let modes = tx.read(&cx.mm())?[0] as u32;
    // Setting needs CAP_SYS_TIME over the host's clock, which nobody here has; reading tells an
    // unsynchronized clock (TIME_ERROR).
    if modes != 0 {
        return Err(EPERM);
    }
    let mut told = [0u64; 26];
    told[5] = 0x40;
    tx.write(&cx.mm(), &told)?;
    Ok(5)
}

calls! {
    nanosleep,
    getitimer,
    alarm,
    setitimer,
    gettimeofday,
    times,
    adjtimex: "reading only",
    time,
    restart_syscall,
    timer_create: "no CPU-time clocks",
    timer_settime,
    timer_gettime,
    timer_getoverrun,
    timer_delete,
    clock_settime: "always EPERM",
    clock_gettime,
    clock_getres,
    clock_nanosleep,
}
