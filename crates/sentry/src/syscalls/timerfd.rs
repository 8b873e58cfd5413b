//! timerfd_create(2), timerfd_settime(2), timerfd_gettime(2).

use super::SysResult;
use super::args::*;
use super::descriptors::install;
use super::time::{ItimerSpec, timer_value};
use crate::task::Context;
use abi::errno::{EINVAL, EPERM};
use abi::linux::O_RDWR;
use ipc::TimerFd;
use vfs::Caps;

opaque! { ItimerSpec }

flags! {
    /// Of timerfd_settime(2), which reads the time first.
    struct SetTimeFlags: u32, kept {
        TFD_TIMER_ABSTIME,
        TFD_TIMER_CANCEL_ON_SET,
    }
}

/// `timerfd_create(clockid, flags)`.
fn timerfd_create(cx: &mut Context, clock: ClockId, flags: NewFileFlags) -> SysResult {
    const CAP_WAKE_ALARM: Caps = Caps::from_bits_retain(1 << 35);
    let t = TimerFd::new(&cx.kernel.timers, clock.0)?;
    let wakes = matches!(
        clock,
        ClockId::CLOCK_REALTIME_ALARM | ClockId::CLOCK_BOOTTIME_ALARM
    );
    if wakes && !cx.cred().has(CAP_WAKE_ALARM) {
        return Err(EPERM);
    }
    install(cx, t, O_RDWR, flags.bits())
}

/// `timerfd_settime(fd, flags, new, old)`.
fn timerfd_settime(
    cx: &mut Context,
    fd: Fd,
    flags: SetTimeFlags,
    new: UserIn<ItimerSpec>,
    old: Option<UserOut<ItimerSpec>>,
) -> SysResult {
    let mm = cx.mm();
    let mut new = new.read(&mm)?.setting()?;
    if !SetTimeFlags::all().contains(flags) {
        return Err(EINVAL);
    }
    let f = fd.file(cx)?;
    let t = f.ops::<TimerFd>().ok_or(EINVAL)?;
    if flags.contains(SetTimeFlags::TFD_TIMER_ABSTIME) {
        new.value = timer_value(cx, t.clock_id(), new.value);
    }
    let before = t.set(new, flags.bits())?;
    if let Some(old) = old {
        old.write(&mm, &ItimerSpec::of(before))?;
    }
    Ok(0)
}

/// `timerfd_gettime(fd, value)`.
fn timerfd_gettime(cx: &mut Context, fd: Fd, value: UserOut<ItimerSpec>) -> SysResult {
    let f = fd.file(cx)?;
    let s = f.ops::<TimerFd>().ok_or(EINVAL)?.get();
    value.write(&cx.mm(), &ItimerSpec::of(s))?;
    Ok(0)
}

calls! {
    timerfd_create,
    timerfd_settime: "TFD_TIMER_CANCEL_ON_SET has no effect: the clock cannot be set",
    timerfd_gettime,
}
