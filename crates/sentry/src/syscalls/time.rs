//! Clocks, sleeping, timers.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use crate::task::cpu_timers::{CpuClock, CpuKind};
use crate::task::futex::instant_of;
use crate::task::jobs::{Notify, TimerClock};
use abi::errno::*;
use abi::signal::SIGALRM;
use abi::time::{Timespec, Timeval};
use abi::{Result, Signal};
use hostcall::time::clock_nanos;
use ipc::timer::{Clock, From, Rearm, Setting};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wait::{Events, WaitQueue};
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

/// Somebody's CPU clock (`pid_for_clock`): of this process, of this thread, or by the inverted id,
/// whether a thread's, and CPUCLOCK_*. `EINVAL` for what is none.
fn cpu_clock(cx: &Context, clock: ClockId) -> Result<CpuClock> {
    let of_process = |g, kind| Ok(CpuClock::of_process(&cx.kernel, g, kind));
    match clock {
        ClockId::CLOCK_PROCESS_CPUTIME_ID => return of_process(&cx.group, CpuKind::Total),
        ClockId::CLOCK_THREAD_CPUTIME_ID => {
            return Ok(CpuClock::of_thread(&cx.task, CpuKind::Total));
        }
        ClockId(0..) => return Err(EINVAL),
        ClockId(_) => {}
    }
    let pid = !(clock.0 >> 3);
    let kind = match clock.0 & 3 {
        1 => CpuKind::User,
        0 | 2 => CpuKind::Total,
        _ => return Err(EINVAL),
    };
    if clock.0 & 4 == 0 {
        return match pid {
            0 => of_process(&cx.group, kind),
            _ => of_process(&cx.find_group(pid).map_err(|_| EINVAL)?, kind),
        };
    }
    let t = match pid {
        0 => cx.task.clone(),
        _ => cx.find_task(pid).map_err(|_| EINVAL)?,
    };
    // Only one's own threads.
    match Arc::ptr_eq(&t.group, &cx.group) {
        true => Ok(CpuClock::of_thread(&t, kind)),
        false => Err(EINVAL),
    }
}

/// Reads a clock, nanoseconds.
fn read_clock(cx: &Context, clock: ClockId) -> Result<i64> {
    match clock {
        ClockId::CLOCK_REALTIME
        | ClockId::CLOCK_MONOTONIC
        | ClockId::CLOCK_MONOTONIC_RAW
        | ClockId::CLOCK_REALTIME_COARSE
        | ClockId::CLOCK_MONOTONIC_COARSE
        | ClockId::CLOCK_BOOTTIME
        | ClockId::CLOCK_TAI => Ok(clock_nanos(clock.0) + cx.clock_offset(clock.0)),
        ClockId::CLOCK_REALTIME_ALARM => Ok(clock_nanos(0)),
        ClockId::CLOCK_BOOTTIME_ALARM => Ok(clock_nanos(7) + cx.clock_offset(7)),
        // A process is found by its thread's number, too, where it is its own.
        ClockId(id) if id < 0 && id & 4 == 0 && !(id >> 3) == cx.pid.own() => {
            let own = ClockId(id | !0 << 3);
            cpu_clock(cx, own)?.read().ok_or(EINVAL)
        }
        _ => cpu_clock(cx, clock)?.read().ok_or(EINVAL),
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

/// `clock_settime(clock, time)`: checked, and refused. The clock is the host's, and nobody here has
/// CAP_SYS_TIME over it.
fn clock_settime(cx: &mut Context, clock: ClockId, new: UserIn<Timespec>) -> SysResult {
    // Clocks of CPU time can be named, and not set.
    if clock.0 >= 0 && clock != ClockId::CLOCK_REALTIME {
        return Err(EINVAL);
    }
    new.read(&cx.mm())?.to_nanos().ok_or(EINVAL)?;
    Err(EPERM)
}

/// `settimeofday(time, zone)`: as [`clock_settime`].
fn settimeofday(
    cx: &mut Context,
    new: Option<UserIn<Timeval>>,
    zone: Option<UserIn<[i32; 2]>>,
) -> SysResult {
    let mm = cx.mm();
    let new = new.map(|t| t.read(&mm)).transpose()?;
    if new.is_some_and(|t| !(0..1_000_000).contains(&t.usec)) {
        return Err(EINVAL);
    }
    zone.map(|z| z.read(&mm)).transpose()?;
    if new.is_some_and(|t| t.sec < 0) {
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
        ClockId::CLOCK_MONOTONIC_RAW
        | ClockId::CLOCK_REALTIME_COARSE
        | ClockId::CLOCK_MONOTONIC_COARSE
        | ClockId::CLOCK_THREAD_CPUTIME_ID => return Err(EOPNOTSUPP),
        _ => return cpu_nanosleep(cx, clock, flags, wanted, left),
    }
    let ns = wanted.read(&cx.mm())?.to_nanos().ok_or(EINVAL)?;
    if flags.contains(TimerFlags::TIMER_ABSTIME) {
        let ns = cx.to_host(clock.0, ns);
        sleep_until(cx, instant_of(clock.0, ns)).map_err(|_| ERESTARTNOHAND)?;
        return Ok(0);
    }
    let deadline = wait::deadline_after(Duration::from_nanos(ns as u64));
    sleep_relative(cx, deadline, left)
}

/// Sleeps until somebody has used CPU time (`posix_cpu_nsleep`).
fn cpu_nanosleep(
    cx: &mut Context,
    clock: ClockId,
    flags: TimerFlags,
    wanted: UserIn<Timespec>,
    left: Option<UserOut<Timespec>>,
) -> SysResult {
    let ns = match clock {
        // A file's clock (CLOCKFD), by which nobody sleeps.
        ClockId(id) if id < 0 && id & 7 == 3 => return Err(EOPNOTSUPP),
        ClockId::CLOCK_PROCESS_CPUTIME_ID | ClockId(..0) => wanted.read(&cx.mm())?,
        _ => return Err(EINVAL),
    };
    let ns = ns.to_nanos().ok_or(EINVAL)?;
    // Nobody waits for oneself.
    let of_thread = clock.0 < 0 && clock.0 & 4 != 0;
    if of_thread && [0, cx.pid.own()].contains(&!(clock.0 >> 3)) {
        return Err(EINVAL);
    }
    let clock = cpu_clock(cx, clock)?;
    if !flags.contains(TimerFlags::TIMER_ABSTIME) {
        let until = clock.read().ok_or(EINVAL)?.saturating_add(ns);
        return cpu_sleep(cx, &clock, until, left);
    }
    match cpu_sleep_until(cx, &clock, ns) {
        Ok(()) => Ok(0),
        Err(_) => Err(ERESTARTNOHAND),
    }
}

/// The relative sleep: it goes on after an interruption where it stopped.
fn cpu_sleep(
    cx: &mut Context,
    clock: &CpuClock,
    until: i64,
    remain: Option<UserOut<Timespec>>,
) -> SysResult {
    if cpu_sleep_until(cx, clock, until).is_ok() {
        return Ok(0);
    }
    let used = clock.read().unwrap_or(until);
    let left = until.saturating_sub(used);
    if left <= 0 {
        return Ok(0);
    }
    if let Some(out) = remain {
        out.write(&cx.mm(), &Timespec::from_nanos(left))?;
    }
    let clock = clock.clone();
    cx.restart_block = Some(Box::new(move |cx| cpu_sleep(cx, &clock, until, remain)));
    Err(ERESTART_RESTARTBLOCK)
}

fn cpu_sleep_until(cx: &Context, clock: &CpuClock, until: i64) -> Result<()> {
    if clock.read().is_some_and(|now| now >= until) {
        return Ok(());
    }
    let over = Arc::new((AtomicBool::new(false), WaitQueue::new()));
    let tell = over.clone();
    let timer = clock.timer(move |_| {
        tell.0.store(true, Ordering::SeqCst);
        tell.1.notify(Events::READABLE);
        Rearm::Now
    });
    let one = Setting {
        value: until,
        interval: 0,
    };
    timer.set(one, From::Epoch);
    cx.block(&[(&over.1, Events::READABLE)], None, || {
        match over.0.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(EAGAIN),
        }
    })
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
        Itimer::ITIMER_VIRTUAL => cx.group.timers.cpu(CpuKind::User),
        Itimer::ITIMER_PROF => cx.group.timers.cpu(CpuKind::Total),
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
        Itimer::ITIMER_VIRTUAL => cx.group.timers.set_cpu(cx, CpuKind::User, new),
        Itimer::ITIMER_PROF => cx.group.timers.set_cpu(cx, CpuKind::Total, new),
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
    let clock = match clock {
        ClockId::CLOCK_MONOTONIC_RAW
        | ClockId::CLOCK_REALTIME_COARSE
        | ClockId::CLOCK_MONOTONIC_COARSE => return Err(EOPNOTSUPP),
        ClockId(n) => match Clock::from_id(n) {
            Some(c) => TimerClock::Host(c),
            None => TimerClock::Cpu(cpu_clock(cx, clock)?),
        },
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

/// An absolute time that a timer is set to, as the host has it: what is over is not nothing.
pub(super) fn timer_value(cx: &Context, clock: i32, value: i64) -> i64 {
    match value {
        0 => 0,
        n => cx.to_host(clock, n).max(1),
    }
}

/// `timer_settime(id, flags, new, old)`.
fn timer_settime(
    cx: &mut Context,
    id: i32,
    flags: TimerFlags,
    new: Option<UserIn<ItimerSpec>>,
    old: Option<UserOut<ItimerSpec>>,
) -> SysResult {
    let mm = cx.mm();
    let mut new = new.ok_or(EINVAL)?.read(&mm)?.setting()?;
    let t = cx.group.timers.posix(id)?;
    let from = if flags.contains(TimerFlags::TIMER_ABSTIME) {
        From::Epoch
    } else {
        From::Now
    };
    if from == From::Epoch
        && let Some(clock) = t.host_clock()
    {
        new.value = timer_value(cx, clock.id(), new.value);
    }
    let before = t.set(new, from)?;
    if let Some(old) = old {
        old.write(&mm, &ItimerSpec::of(before))?;
    }
    Ok(0)
}

fn timer_gettime(cx: &mut Context, id: i32, out: UserOut<ItimerSpec>) -> SysResult {
    let t = cx.group.timers.posix(id)?;
    out.write(&cx.mm(), &ItimerSpec::of(t.get()))?;
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

/// Words of `struct timex` that are told, by their place.
mod timex {
    pub const MAXERROR: usize = 3;
    pub const ESTERROR: usize = 4;
    pub const STATUS: usize = 5;
    pub const CONSTANT: usize = 6;
    pub const PRECISION: usize = 7;
    pub const TOLERANCE: usize = 8;
    pub const SECONDS: usize = 9;
    pub const MICROSECONDS: usize = 10;
    pub const TICK: usize = 11;
    pub const WORDS: usize = 26;
}

/// What `modes` may ask without a capability over the clock (`timekeeping_validate_timex`): nothing
/// is set, or adjtime(3)'s offset is read.
fn check_adjust(modes: u32) -> Result<()> {
    const ADJ_ADJTIME: u32 = 0x8000;
    const ADJ_OFFSET_READONLY: u32 = 0x2000;
    const ADJ_OFFSET_SINGLESHOT: u32 = 1;
    let may = if modes & ADJ_ADJTIME != 0 {
        if modes & ADJ_OFFSET_SINGLESHOT == 0 {
            return Err(EINVAL);
        }
        modes & ADJ_OFFSET_READONLY != 0
    } else {
        modes == 0
    };
    if may { Ok(()) } else { Err(EPERM) }
}

/// Setting needs CAP_SYS_TIME over the host's clock, which nobody here has; reading tells an
/// unsynchronized clock, as after a machine's start.
fn adjust(cx: &Context, tx: UserPtr<[u64; timex::WORDS]>) -> SysResult {
    const STA_UNSYNC: u64 = 0x40;
    const NOT_KNOWN: u64 = 16_000_000;
    const TOLERANCE: u64 = 500 << 16;
    const TIME_ERROR: usize = 5;
    let mut words = tx.read(&cx.mm())?;
    check_adjust(words[0] as u32)?;
    // The first is the modes, as they were.
    words[1..].fill(0);
    words[timex::MAXERROR] = NOT_KNOWN;
    words[timex::ESTERROR] = NOT_KNOWN;
    words[timex::STATUS] = STA_UNSYNC;
    words[timex::CONSTANT] = 2;
    words[timex::PRECISION] = 1;
    words[timex::TOLERANCE] = TOLERANCE;
    let now = Timeval::from_nanos(clock_nanos(0));
    words[timex::SECONDS] = now.sec as u64;
    words[timex::MICROSECONDS] = now.usec as u64;
    words[timex::TICK] = 10_000;
    tx.write(&cx.mm(), &words)?;
    Ok(TIME_ERROR)
}

/// `adjtimex(tx)`.
fn adjtimex(cx: &mut Context, tx: UserPtr<[u64; timex::WORDS]>) -> SysResult {
    adjust(cx, tx)
}

/// `clock_adjtime(clock, tx)`: of the clock of the day alone.
fn clock_adjtime(cx: &mut Context, clock: ClockId, tx: UserPtr<[u64; timex::WORDS]>) -> SysResult {
    tx.read(&cx.mm())?;
    match clock {
        ClockId::CLOCK_REALTIME => adjust(cx, tx),
        ClockId(0..=9 | 11) => Err(EOPNOTSUPP),
        // A process's or a thread's; what is left would be a device's.
        ClockId(n) if n < 0 && n & 7 != 3 => Err(EOPNOTSUPP),
        _ => Err(EINVAL),
    }
}

calls! {
    nanosleep,
    getitimer,
    alarm,
    setitimer,
    gettimeofday,
    times,
    adjtimex: "reading only: setting gives EPERM, as without CAP_SYS_TIME",
    time,
    restart_syscall,
    timer_create,
    timer_settime,
    timer_gettime,
    timer_getoverrun,
    timer_delete,
    clock_settime: "always EPERM, as without CAP_SYS_TIME",
    settimeofday: "always EPERM, as without CAP_SYS_TIME",
    clock_adjtime: "reading only, as adjtimex",
    clock_gettime,
    clock_getres,
    clock_nanosleep,
}
