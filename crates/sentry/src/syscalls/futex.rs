//! Futexes, and what a thread's end finds in memory: where its id goes, and its robust list.

use super::SysResult;
use super::args::*;
use super::time::timespec_arg;
use crate::task::Context;
use crate::task::access::{By, guarded};
use crate::task::futex::{self, Place, Scope, WakeOp, instant_of};
use abi::errno::*;
use abi::linux::*;
use abi::time::Timespec;
use abi::{Result, Va};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

fn set_tid_address(cx: &mut Context, tid: Va) -> SysResult {
    cx.clear_child_tid.store(tid.0, Ordering::Relaxed);
    Ok(cx.pid.own() as usize)
}

fn set_robust_list(cx: &mut Context, head: Va, len: usize) -> SysResult {
    if len != 24 {
        return Err(EINVAL);
    }
    cx.robust_list.store(head.0, Ordering::Relaxed);
    Ok(0)
}

fn get_robust_list(cx: &mut Context, tid: Tid, head: UserOut<u64>, len: UserOut<u64>) -> SysResult {
    let t = tid.task_or_caller(&cx.task)?;
    let at = guarded(cx, &t, By::Real, || {
        Ok(t.robust_list.load(Ordering::Relaxed))
    })?;
    let mm = cx.mm();
    head.write(&mm, &at)?;
    len.write(&mm, &24u64)?;
    Ok(0)
}

named! {
    /// What futex(2) does.
    struct FutexCmd(u32) {
        FUTEX_WAIT,
        FUTEX_WAKE,
        FUTEX_REQUEUE,
        FUTEX_CMP_REQUEUE,
        FUTEX_WAKE_OP,
        FUTEX_LOCK_PI,
        FUTEX_UNLOCK_PI,
        FUTEX_TRYLOCK_PI,
        FUTEX_WAIT_BITSET,
        FUTEX_WAKE_BITSET,
        FUTEX_WAIT_REQUEUE_PI,
        FUTEX_CMP_REQUEUE_PI,
        FUTEX_LOCK_PI2,
    }
}

/// futex(2)'s operation: what to do, in which scope, and by which clock a deadline is.
///
/// ```text
///  31              9    8      7    6         0
/// +----------------+-------+-------+-----------+
/// |     (none)     | CLOCK | PRIV. |  command  |
/// +----------------+-------+-------+-----------+
///                      |       +-- FUTEX_PRIVATE_FLAG: used within one address space
///                      +-- FUTEX_CLOCK_REALTIME: else CLOCK_MONOTONIC
/// ```
///
/// Bits above are part of the command: there is none with them (`FUTEX_CMD_MASK`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FutexOp {
    cmd: FutexCmd,
    scope: Scope,
    clock: ClockId,
}

impl FutexOp {
    fn new(word: u32) -> FutexOp {
        FutexOp {
            cmd: FutexCmd(word & FUTEX_CMD_MASK as u32),
            scope: if word & FUTEX_PRIVATE_FLAG != 0 {
                Scope::Private
            } else {
                Scope::Shared
            },
            clock: if word & FUTEX_CLOCK_REALTIME != 0 {
                ClockId::CLOCK_REALTIME
            } else {
                ClockId::CLOCK_MONOTONIC
            },
        }
    }

    /// `ENOSYS` where the command has no deadline by the clock of the day.
    fn checked(self) -> Result<FutexOp> {
        match self.cmd {
            FutexCmd::FUTEX_WAIT_BITSET
            | FutexCmd::FUTEX_WAIT_REQUEUE_PI
            | FutexCmd::FUTEX_LOCK_PI2 => Ok(self),
            _ if self.clock == ClockId::CLOCK_REALTIME => Err(ENOSYS),
            _ => Ok(self),
        }
    }
}

impl Argument for FutexOp {
    const SHOW: Show = Show::Words(|raw| {
        let op = FutexOp::new(raw[0] as u32);
        let mut s = match FutexCmd::SHOW {
            Show::Words(show) => show(&[op.cmd.0.into()]),
            Show::Read(_) | Show::Written(_) => text::hex(raw[0]),
        };
        if op.scope == Scope::Private {
            s += "_PRIVATE";
        }
        if op.clock == ClockId::CLOCK_REALTIME {
            s += "|FUTEX_CLOCK_REALTIME";
        }
        s
    });
    #[inline(always)]
    fn decode(raw: &[u64]) -> Result<Self> {
        Ok(FutexOp::new(raw[0] as u32))
    }
}

/// `futex(uaddr, op, val, timeout or val2, uaddr2, val3)`.
fn futex(
    cx: &mut Context,
    va: Va,
    op: FutexOp,
    val: u32,
    arg4: Timeout,
    va2: Va,
    val3: u32,
) -> SysResult {
    let FutexOp { cmd, scope, clock } = op.checked()?;
    let count = val as i32;
    let count2 = arg4.count();
    let both = (va, va2);
    let places = (Place { va, scope }, Place { va: va2, scope });
    match cmd {
        FutexCmd::FUTEX_WAIT => wait_relative(cx, va, scope, val, arg4.nanos(cx)?),
        FutexCmd::FUTEX_WAIT_BITSET => {
            let deadline = arg4.nanos(cx)?.and_then(|n| deadline_of(cx, clock, n));
            futex::wait(cx, va, scope, val, val3, deadline).map(|()| 0)
        }
        FutexCmd::FUTEX_WAKE => futex::wake(cx, va, scope, count, !0),
        FutexCmd::FUTEX_WAKE_BITSET => futex::wake(cx, va, scope, count, val3),
        FutexCmd::FUTEX_REQUEUE => {
            futex::requeue(cx, places, (count, count2), None).map(|(w, m)| w + m)
        }
        FutexCmd::FUTEX_CMP_REQUEUE => {
            futex::requeue(cx, places, (count, count2), Some(val3)).map(|(w, m)| w + m)
        }
        FutexCmd::FUTEX_WAKE_OP => futex::wake_op(cx, both, scope, (count, count2), WakeOp(val3)),
        FutexCmd::FUTEX_LOCK_PI => lock_pi(cx, va, scope, ClockId::CLOCK_REALTIME, arg4),
        FutexCmd::FUTEX_LOCK_PI2 => lock_pi(cx, va, scope, clock, arg4),
        FutexCmd::FUTEX_TRYLOCK_PI => {
            futex::lock_pi(cx, va, scope, futex::IfTaken::Fail).map(|()| 0)
        }
        FutexCmd::FUTEX_UNLOCK_PI => futex::unlock_pi(cx, va, scope).map(|()| 0),
        FutexCmd::FUTEX_WAIT_REQUEUE_PI => {
            let deadline = arg4.nanos(cx)?.and_then(|n| deadline_of(cx, clock, n));
            futex::wait_requeue_pi(cx, places, val, deadline).map(|()| 0)
        }
        FutexCmd::FUTEX_CMP_REQUEUE_PI => futex::requeue_pi(cx, places, (count, count2), val3),
        _ => Err(ENOSYS),
    }
}

/// The fourth argument: where a time lies, or for some commands a second count.
#[derive(Clone, Copy)]
struct Timeout(u64);

impl Timeout {
    const fn count(self) -> i32 {
        self.0 as i32
    }
    fn nanos(self, cx: &Context) -> Result<Option<i64>> {
        timespec_arg(cx, Option::decode(&[self.0])?)
    }
}

impl Argument for Timeout {
    const SHOW: Show = Show::Words(|raw| text::pointer(raw[0]));
    #[inline(always)]
    fn decode(raw: &[u64]) -> Result<Self> {
        Ok(Timeout(raw[0]))
    }
}

/// Waits for a time that begins now, and goes on after an interruption until that time's end.
fn wait_relative(
    cx: &mut Context,
    va: Va,
    scope: Scope,
    val: u32,
    nanos: Option<i64>,
) -> SysResult {
    let after = |n| wait::deadline_after(Duration::from_nanos(n as u64));
    let deadline = nanos.and_then(after);
    match nanos {
        Some(_) => wait_until(cx, va, scope, val, deadline),
        None => futex::wait(cx, va, scope, val, !0, None).map(|()| 0),
    }
}

/// As often as it is interrupted, it waits until the same moment (`futex_wait_restart`).
fn wait_until(
    cx: &mut Context,
    va: Va,
    scope: Scope,
    val: u32,
    deadline: Option<Instant>,
) -> SysResult {
    match futex::wait(cx, va, scope, val, !0, deadline) {
        Err(ERESTARTSYS) => {
            cx.restart_block = Some(Box::new(move |cx| wait_until(cx, va, scope, val, deadline)));
            Err(ERESTART_RESTARTBLOCK)
        }
        r => r.map(|()| 0),
    }
}

fn lock_pi(cx: &Context, va: Va, scope: Scope, clock: ClockId, until: Timeout) -> SysResult {
    let deadline = until.nanos(cx)?.and_then(|n| deadline_of(cx, clock, n));
    futex::lock_pi(cx, va, scope, futex::IfTaken::Wait(deadline)).map(|()| 0)
}

/// The flags of a futex of futex_waitv(2) and its family: `FUTEX2_*`. There are words of 32 bits
/// only, and one node of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flags2(pub(super) u32);

impl Flags2 {
    pub(super) fn scope(self) -> Result<Scope> {
        match self.0 {
            FUTEX2_SIZE_U32 => Ok(Scope::Shared),
            f if f == FUTEX2_SIZE_U32 | FUTEX2_PRIVATE => Ok(Scope::Private),
            _ => Err(EINVAL),
        }
    }
}

impl Argument for Flags2 {
    const SHOW: Show = Show::Words(|raw| text::hex(raw[0]));
    fn decode(raw: &[u64]) -> Result<Self> {
        Ok(Flags2(raw[0] as u32))
    }
}

/// `struct futex_waitv`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Waitv {
    val: u64,
    uaddr: u64,
    flags: u32,
    reserved: u32,
}

impl Pointee for Waitv {}

impl Waitv {
    /// The word, and what it should be.
    pub(super) fn checked(self) -> Result<(Place, u32)> {
        let scope = Flags2(self.flags).scope()?;
        if self.reserved != 0 {
            return Err(EINVAL);
        }
        let va = Va(self.uaddr);
        Ok((Place { va, scope }, word(self.val)?))
    }
}

/// A value of a word, or bits of its mask.
pub(super) fn word(v: u64) -> Result<u32> {
    v.try_into().map_err(|_| EINVAL)
}

/// The most that one call waits for (`FUTEX_WAITV_MAX`).
const WAITV_MAX: u32 = 128;

/// The instant of an absolute time of the caller's.
fn deadline_of(cx: &Context, clock: ClockId, nanos: i64) -> Option<Instant> {
    instant_of(clock.0, cx.to_host(clock.0, nanos))
}

/// An absolute time of either clock (`futex2_setup_timeout`).
fn deadline2(
    cx: &Context,
    at: Option<UserIn<Timespec>>,
    clock: ClockId,
) -> Result<Option<Instant>> {
    let known = [ClockId::CLOCK_REALTIME, ClockId::CLOCK_MONOTONIC];
    if at.is_some() && !known.contains(&clock) {
        return Err(EINVAL);
    }
    Ok(timespec_arg(cx, at)?.and_then(|n| deadline_of(cx, clock, n)))
}

/// `futex_waitv(waiters, nr_futexes, flags, timeout, clockid)`.
fn futex_waitv(
    cx: &mut Context,
    waiters: Option<UserArray<Waitv>>,
    count: u32,
    flags: u32,
    until: Option<UserIn<Timespec>>,
    clock: ClockId,
) -> SysResult {
    let waiters = waiters.filter(|_| flags == 0 && (1..=WAITV_MAX).contains(&count));
    let waiters = waiters.ok_or(EINVAL)?;
    let deadline = deadline2(cx, until, clock)?;
    let mm = cx.mm();
    let words: Vec<_> = (0..count.into())
        .map(|i| waiters.at(i).read(&mm)?.checked())
        .collect::<Result<_>>()?;
    futex::wait_any(cx, &words, deadline)
}

/// `futex_wake(uaddr, mask, nr, flags)`.
fn futex_wake(cx: &mut Context, va: Va, mask: u64, count: i32, flags: Flags2) -> SysResult {
    let scope = flags.scope()?;
    futex::wake_exactly(cx, Place { va, scope }, count, word(mask)?)
}

/// `futex_wait(uaddr, val, mask, flags, timeout, clockid)`.
fn futex_wait(
    cx: &mut Context,
    va: Va,
    val: u64,
    mask: u64,
    flags: Flags2,
    until: Option<UserIn<Timespec>>,
    clock: ClockId,
) -> SysResult {
    let (scope, val, mask) = (flags.scope()?, word(val)?, word(mask)?);
    let deadline = deadline2(cx, until, clock)?;
    futex::wait(cx, va, scope, val, mask, deadline).map(|()| 0)
}

/// `futex_requeue(waiters, flags, nr_wake, nr_requeue)`.
fn futex_requeue(
    cx: &mut Context,
    waiters: Option<UserArray<Waitv>>,
    flags: u32,
    wake: i32,
    max: i32,
) -> SysResult {
    let waiters = waiters.filter(|_| flags == 0).ok_or(EINVAL)?;
    let mm = cx.mm();
    let [from, to] = [0, 1].map(|i| waiters.at(i).read(&mm)?.checked());
    let ((from, expected), (to, _)) = (from?, to?);
    futex::requeue(cx, (from, to), (wake, max), Some(expected)).map(|(w, m)| w + m)
}

calls! {
    futex_waitv,
    futex_wake,
    futex_wait,
    futex_requeue,
    futex: "PI futexes without priorities",
    set_tid_address,
    set_robust_list,
    get_robust_list,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_a_command_a_scope_and_a_clock() {
        let op = FutexOp::new(9 | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
        assert_eq!(op.cmd, FutexCmd::FUTEX_WAIT_BITSET);
        assert_eq!(op.scope, Scope::Private);
        assert_eq!(op.clock, ClockId::CLOCK_REALTIME);
        assert_eq!(op.checked(), Ok(op));
        // A wake has no deadline.
        assert_eq!(
            FutexOp::new(1 | FUTEX_CLOCK_REALTIME).checked(),
            Err(ENOSYS)
        );
        // Higher bits are part of the command: there is none with them.
        assert_eq!(FutexOp::new(1 << 9 | 1).cmd, FutexCmd(513));
    }

    #[test]
    fn an_operation_looks_as_strace_shows_it() {
        let Show::Words(show) = FutexOp::SHOW else {
            panic!("it shows memory");
        };
        assert_eq!(show(&[1]), "FUTEX_WAKE");
        assert_eq!(
            show(&[393]),
            "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"
        );
    }
}
