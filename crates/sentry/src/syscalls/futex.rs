//! Futexes, and what a thread's end finds in memory: where its id goes, and its robust list.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use crate::task::access::{By, guarded};
use crate::task::futex::{self, Scope, instant_of};
use abi::Result;
use abi::errno::*;
use abi::linux::*;
use abi::time::Timespec;
use std::sync::atomic::Ordering;

fn set_tid_address(cx: &mut Context, a: &Args) -> SysResult {
    cx.clear_child_tid.store(a.u64(0), Ordering::Relaxed);
    Ok(cx.pid.own() as usize)
}

fn set_robust_list(cx: &mut Context, a: &Args) -> SysResult {
    if a.u64(1) != 24 {
        return Err(EINVAL);
    }
    cx.robust_list.store(a.u64(0), Ordering::Relaxed);
    Ok(0)
}

fn get_robust_list(cx: &mut Context, a: &Args) -> SysResult {
    let t = match a.i32(0) {
        0 => cx.task.clone(),
        pid => cx.find_task(pid)?,
    };
    let head = guarded(cx, &t, By::Real, || {
        Ok(t.robust_list.load(Ordering::Relaxed))
    })?;
    let mm = cx.mm();
    mm.write_obj(a.va(1), &head)?;
    mm.write_obj(a.va(2), &24u64)?;
    Ok(0)
}

const FUTEX_NAMES: &[(u64, &str)] = &[
    (0, "FUTEX_WAIT"),
    (1, "FUTEX_WAKE"),
    (3, "FUTEX_REQUEUE"),
    (4, "FUTEX_CMP_REQUEUE"),
    (5, "FUTEX_WAKE_OP"),
    (128, "FUTEX_WAIT_PRIVATE"),
    (129, "FUTEX_WAKE_PRIVATE"),
    (132, "FUTEX_CMP_REQUEUE_PRIVATE"),
    (137, "FUTEX_WAIT_BITSET_PRIVATE"),
    (393, "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"),
];

/// `futex(uaddr, op, val, timeout or val2, uaddr2, val3)`.
fn sys_futex(cx: &mut Context, a: &Args) -> SysResult {
    let op = a.u32(1);
    let scope = if op & FUTEX_PRIVATE_FLAG != 0 {
        Scope::Private
    } else {
        Scope::Shared
    };
    let realtime = op & FUTEX_CLOCK_REALTIME != 0;
    let cmd = op & FUTEX_CMD_MASK as u32;
    if realtime
        && !matches!(
            cmd,
            FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2
        )
    {
        return Err(ENOSYS);
    }
    let (va, val, va2) = (a.va(0), a.u32(2), a.va(4));
    let timeout = || -> Result<Option<i64>> {
        match a.va_opt(3) {
            None => Ok(None),
            Some(t) => Ok(Some(
                cx.mm().read_obj::<Timespec>(t)?.to_nanos().ok_or(EINVAL)?,
            )),
        }
    };
    let clock = if realtime {
        CLOCK_REALTIME
    } else {
        CLOCK_MONOTONIC
    } as i32;
    match cmd {
        FUTEX_WAIT => {
            let t = timeout()?;
            let deadline =
                t.and_then(|n| wait::deadline_after(std::time::Duration::from_nanos(n as u64)));
            let r = futex::wait(cx, va, scope, val, !0, deadline);
            match r {
                Ok(()) => Ok(0),
                Err(ERESTARTSYS) if t.is_some() => {
                    cx.restart_block = Some(Box::new(move |cx| {
                        futex::wait(cx, va, scope, val, !0, deadline)
                            .map(|()| 0)
                            .map_err(|e| if e == ERESTARTSYS { EINTR } else { e })
                    }));
                    Err(ERESTART_RESTARTBLOCK)
                }
                Err(e) => Err(e),
            }
        }
        FUTEX_WAIT_BITSET => {
            let t = timeout()?;
            let deadline = t.and_then(|n| instant_of(clock, n));
            futex::wait(cx, va, scope, val, a.u32(5), deadline).map(|()| 0)
        }
        FUTEX_WAKE => futex::wake(cx, va, scope, val as i32, !0),
        FUTEX_WAKE_BITSET => futex::wake(cx, va, scope, val as i32, a.u32(5)),
        FUTEX_REQUEUE => {
            futex::requeue(cx, (va, va2), scope, (val as i32, a.i32(3)), None).map(|(w, m)| w + m)
        }
        FUTEX_CMP_REQUEUE => {
            futex::requeue(cx, (va, va2), scope, (val as i32, a.i32(3)), Some(a.u32(5)))
                .map(|(w, m)| w + m)
        }
        FUTEX_WAKE_OP => futex::wake_op(cx, (va, va2), scope, (val as i32, a.i32(3)), a.u32(5)),
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            let clock = if cmd == FUTEX_LOCK_PI {
                CLOCK_REALTIME as i32
            } else {
                clock
            };
            let deadline = timeout()?.and_then(|n| instant_of(clock, n));
            futex::lock_pi(cx, va, scope, futex::IfTaken::Wait(deadline)).map(|()| 0)
        }
        FUTEX_TRYLOCK_PI => futex::lock_pi(cx, va, scope, futex::IfTaken::Fail).map(|()| 0),
        FUTEX_UNLOCK_PI => futex::unlock_pi(cx, va, scope).map(|()| 0),
        _ => Err(ENOSYS),
    }
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        202,
        "futex",
        &[
            Arg::Ptr,
            Arg::Enum(FUTEX_NAMES),
            Arg::Uint,
            Arg::Ptr,
            Arg::Ptr,
            Arg::Hex,
        ],
        sys_futex,
    )
    .note("PI futexes without priorities; no requeue to PI"),
    Call::new(218, "set_tid_address", &[Arg::Ptr], set_tid_address),
    Call::new(
        273,
        "set_robust_list",
        &[Arg::Ptr, Arg::Uint],
        set_robust_list,
    ),
    Call::new(
        274,
        "get_robust_list",
        &[Arg::Int, Arg::Ptr, Arg::Ptr],
        get_robust_list,
    ),
];
