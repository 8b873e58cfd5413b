//! PI futexes: locks whose word has the owner's number, and condition variables that pass their
//! waiters on to one.
//!
//! There are no priorities to inherit: a lock is fair, no more. The word is changed by atomic
//! operations alone: the bit that says that somebody waits is set before a waiter is queued at the
//! word's key, and who frees the word wakes that key's waiters afterwards.
//!
//! A waiter of `FUTEX_WAIT_REQUEUE_PI` is at its first word until `FUTEX_CMP_REQUEUE_PI`, under the
//! locks of both keys' buckets, gives it the lock ([`Target::owns`]) or moves it to the lock's key.
//! What wakes it there is the lock's being free: it takes the lock as everybody does.

use super::{Counted, Place, Scope, Waiter, at_word, load, wait, wake};
use crate::task::Task;
use abi::errno::*;
use abi::{Result, Va};
use mm::Access;
use mm::futex::FutexKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;
use wait::Blocker;

pub(super) const WAITERS: u32 = 0x8000_0000;
pub(super) const OWNER_DIED: u32 = 0x4000_0000;
pub(super) const TID_MASK: u32 = 0x3fff_ffff;

/// What to do where a PI futex is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfTaken {
    Wait(Option<Instant>),
    Fail,
}

/// `FUTEX_LOCK_PI` and `FUTEX_TRYLOCK_PI`. There are no priorities to inherit: it is a fair lock.
pub fn lock_pi(task: &Task, va: Va, scope: Scope, if_taken: IfTaken) -> Result<()> {
    let me = task.pid.own() as u32;
    loop {
        let mm = task.mm();
        // Free: take it, keeping the bit that says who waits. Taken: say that somebody waits.
        let seen = mm.with_atomic_u32(va, Access::Write, |w| {
            w.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |v| {
                if v & TID_MASK == 0 {
                    Some((v & (WAITERS | OWNER_DIED)) | me)
                } else if if_taken == IfTaken::Fail {
                    None
                } else {
                    Some(v | WAITERS)
                }
            })
        })?;
        let old = match seen {
            Ok(v) | Err(v) => v,
        };
        match old & TID_MASK {
            0 => return Ok(()),
            t if t == me => return Err(EDEADLK),
            t if task.find_task(t as i32).is_err() => return Err(ESRCH),
            _ => {}
        }
        let IfTaken::Wait(deadline) = if_taken else {
            return Err(EAGAIN);
        };
        match wait(task, va, scope, old | WAITERS, !0, deadline) {
            Ok(()) | Err(EAGAIN) => {}
            Err(e) => return Err(if e == ERESTARTSYS { ERESTARTNOINTR } else { e }),
        }
    }
}

/// `FUTEX_UNLOCK_PI`.
pub fn unlock_pi(task: &Task, va: Va, scope: Scope) -> Result<()> {
    let mm = task.mm();
    let me = task.pid.own() as u32;
    if mm.load_u32(va)? & TID_MASK != me {
        return Err(EPERM);
    }
    // Whoever wakes takes it; the waiters' bit stays if more than one waits, set again by them.
    mm.with_atomic_u32(va, Access::Write, |w| w.store(0, Ordering::SeqCst))?;
    wake(task, va, scope, i32::MAX, !0)?;
    Ok(())
}

/// Where a waiter of `FUTEX_WAIT_REQUEUE_PI` goes on.
pub(super) struct Target {
    /// The lock's.
    pub key: FutexKey,
    /// The number that the lock's word has where the waiter owns it.
    number: u32,
    /// It was given the lock. Set before it is woken, under its bucket's lock.
    owns: AtomicBool,
}

/// `FUTEX_WAIT_REQUEUE_PI`: waits at the first place until a requeue, then for the lock at the
/// second. `EAGAIN` also where a signal came after the requeue: the first word may be another by
/// now.
pub fn wait_requeue_pi(
    task: &Task,
    (at, lock): (Place, Place),
    expected: u32,
    deadline: Option<Instant>,
) -> Result<()> {
    if at.va == lock.va {
        return Err(EINVAL);
    }
    let mm = task.mm();
    let table = &task.kernel.futexes;
    let target = lock.key(&mm, Access::Write)?;
    let first = at.key(&mm, Access::Read)?;
    let mut w = Waiter::plain(task, first, !0, task.parker().clone());
    w.pi = Some(Target {
        key: target,
        number: task.pid.own() as u32,
        owns: AtomicBool::new(false),
    });
    let w = Arc::new(w);
    let _counted = Counted::new(&mm, &w.key);
    table.queue(&mm, at.va, &w, expected)?;
    if first == target {
        table.remove(&w);
        return Err(EINVAL);
    }
    let woken = || if w.is_woken() { Ok(()) } else { Err(EAGAIN) };
    let r = task.block(&[], deadline, woken);
    if r.is_err() {
        table.remove(&w);
    }
    if w.pi.as_ref().is_some_and(|p| p.owns.load(Ordering::SeqCst)) {
        return Ok(());
    }
    let moved = *w.key.lock() == target;
    let r = match r {
        Err(e) if !w.is_woken() => Err(e),
        _ => lock_pi(task, lock.va, lock.scope, IfTaken::Wait(deadline)),
    };
    match r {
        Err(ERESTARTSYS | ERESTARTNOINTR) if moved => Err(EAGAIN),
        Err(ERESTARTSYS) => Err(ERESTARTNOINTR),
        r => r,
    }
}

/// What a requeue finds at the lock's word.
enum Lock {
    /// It was free, and is the first waiter's now.
    Given,
    /// It is taken, and says that somebody waits.
    Taken(u32),
}

/// `FUTEX_CMP_REQUEUE_PI`: gives the lock to the first waiter if it is free, and moves up to `max`
/// others to it: how many of both.
pub fn requeue_pi(
    task: &Task,
    (from, to): (Place, Place),
    (wake_count, max): (i32, i32),
    expected: u32,
) -> Result<usize> {
    if wake_count < 0 || max < 0 || from.va == to.va || wake_count != 1 {
        return Err(EINVAL);
    }
    let mm = task.mm();
    let (k1, k2) = (from.key(&mm, Access::Read)?, to.key(&mm, Access::Write)?);
    if k1 == k2 {
        return Err(EINVAL);
    }
    let _deferral = wait::wakes::defer();
    loop {
        let lock = || task.kernel.futexes.lock_both(&k1, &k2);
        let (mut both, seen) = at_word(&mm, from.va, Access::Read, lock, load)?;
        if seen != expected {
            return Err(EAGAIN);
        }
        let Some(q) = both.first().get(&k1) else {
            return Ok(0);
        };
        // One that is given the lock, or none, and as many as are asked for.
        let all: Vec<_> = q.iter().take(max as usize + 1).cloned().collect();
        let goes = |w: &Arc<Waiter>| w.pi.as_ref().is_some_and(|p| p.key == k2);
        let good = all.iter().take_while(|w| goes(w)).count();
        let (Some(top), true) = (all.first(), good > 0) else {
            return Err(EINVAL);
        };
        let Some(number) = top.pi.as_ref().map(|p| p.number) else {
            return Err(EINVAL);
        };
        let take = |w: &AtomicU32| {
            let (order, more) = (Ordering::SeqCst, if all.len() > 1 { WAITERS } else { 0 });
            let r = w.fetch_update(order, order, |v| match v & TID_MASK {
                0 => Some((v & (WAITERS | OWNER_DIED)) | number | more),
                t if t == number => None,
                _ => Some(v | WAITERS),
            });
            match r {
                Ok(v) if v & TID_MASK == 0 => Lock::Given,
                Ok(v) | Err(v) => Lock::Taken(v & TID_MASK),
            }
        };
        let found = mm.try_atomic_u32(to.va, Access::Write, take);
        let Some(found) = found else {
            drop(both);
            // Waits, makes the page present.
            mm.with_atomic_u32(to.va, Access::Write, |_| ())?;
            continue;
        };
        let given = match found {
            Lock::Given => {
                if let Some(p) = &top.pi {
                    p.owns.store(true, Ordering::SeqCst);
                }
                both.take_first(&k1);
                1
            }
            Lock::Taken(owner) if owner == number => return Err(EDEADLK),
            Lock::Taken(owner) if task.find_task(owner as i32).is_err() => return Err(ESRCH),
            Lock::Taken(_) => 0,
        };
        let moved = both.move_waiters(&mm, (&k1, &k2), good - given);
        return if good < all.len() {
            Err(EINVAL)
        } else {
            Ok(given + moved)
        };
    }
}
