//! What the thread of a ring with `SQPOLL` does.

use super::enter::submit;
use super::{ring_of, setup};
use crate::task::uring::abi::{Params, SQ_NEED_WAKEUP, Setup};
use crate::task::uring::sqpoll::Thread;
use crate::task::uring::{Ring, work};
use crate::task::{Context, Sleep, clone};
use abi::Result;
use abi::errno::*;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use wait::{Events, later};

/// So long it looks for entries after the last one, at most.
const LOOKS: Duration = Duration::from_micros(200);
/// So often it looks whether its process has other threads.
const ALONE: Duration = Duration::from_secs(1);
/// The most entries of one of several rings before the next has its turn
/// (`IORING_SQPOLL_CAP_ENTRIES_VALUE`).
const CAP: u32 = 8;

/// Gives a ring its thread: that of another ring (`ATTACH_WQ`), or a new one.
pub(super) fn begin(cx: &mut Context, ring: &Arc<Ring>, p: &Params) -> Result<()> {
    if ring.has(Setup::SQ_AFF) && p.sq_thread_cpu >= cx.kernel.cpus {
        return Err(EINVAL);
    }
    if ring.has(Setup::ATTACH_WQ)
        && let Some(t) = attach(cx, p)?
        && t.join(ring)
    {
        *ring.thread.lock() = Some(t);
        return Ok(());
    }
    let t = Thread::new(cx.group.tgid, cx.cred());
    t.join(ring);
    *ring.thread.lock() = Some(t.clone());
    let comm = format!("iou-sqp-{}", cx.pid.own());
    clone::kernel_thread(cx, comm.as_bytes(), move |cx| serve(cx, &t))
}

/// The thread of the ring that is named, if it may be shared: it is the same process's, and acts as
/// the caller.
fn attach(cx: &Context, p: &Params) -> Result<Option<Arc<Thread>>> {
    let f = setup::attached(cx, p)?;
    let other = &ring_of(&f).map_err(|_| EINVAL)?.ring;
    let t = other.thread.lock().clone().ok_or(EINVAL)?;
    let same = t.tgid == cx.group.tgid && Arc::ptr_eq(&t.cred, &cx.cred());
    Ok(same.then_some(t))
}

/// Until its rings, or its process, end.
fn serve(cx: &mut Context, t: &Arc<Thread>) {
    let mut last = Instant::now();
    while !cx.is_killed() {
        stand_still(cx);
        later::run();
        work::run(cx);
        let rings = t.rings();
        if rings.is_empty() && t.end_if_unused() {
            break;
        }
        if submit_all(cx, &rings) {
            last = Instant::now();
        } else if last.elapsed() < LOOKS {
            std::thread::yield_now();
        } else {
            sleep(cx, t, &rings);
            last = Instant::now();
            if is_alone(cx) {
                break;
            }
        }
    }
    t.end();
}

/// Takes of each ring what there is. Whether there was something.
fn submit_all(cx: &mut Context, rings: &[Arc<Ring>]) -> bool {
    let mut some = false;
    for ring in rings {
        if ring.is_dead() || ring.is_disabled() || !has_entries(ring) {
            continue;
        }
        cx.task.uring.uses(ring);
        let most = if rings.len() > 1 { CAP } else { u32::MAX };
        some |= submit(cx, ring, most).is_ok_and(|n| n > 0);
        ring.queue.notify(Events::WRITABLE);
        work::run(cx);
    }
    some
}

fn has_entries(ring: &Ring) -> bool {
    ring.shared.submitted(ring.sq_head()) > 0
}

/// Sleeps until it is woken, for new entries or work.
fn sleep(cx: &Context, t: &Thread, rings: &[Arc<Ring>]) {
    for r in rings {
        r.shared.raise(SQ_NEED_WAKEUP);
    }
    // The application stores its tail and then looks at the flag.
    fence(Ordering::SeqCst);
    let ready = |r: &Arc<Ring>| !r.is_dead() && !r.is_disabled() && has_entries(r);
    let until = Instant::now().checked_add(ALONE);
    let _ = cx.task.block(&[(&t.queue, Events::IN)], until, || {
        match t.take_woken() || rings.iter().any(ready) {
            true => Ok(()),
            false => Err(EAGAIN),
        }
    });
    for r in rings {
        r.shared.clear(SQ_NEED_WAKEUP);
    }
}

/// As long as its process is stopped, or everything is frozen.
fn stand_still(cx: &Context) {
    let go_on = || {
        let hold = cx.must_hold();
        cx.held.store(hold, Ordering::SeqCst);
        match hold || cx.must_stop() {
            true => Err(EAGAIN),
            false => Ok(()),
        }
    };
    if go_on() == Err(EAGAIN) {
        let _ = cx.block_as(Sleep::Still, &[], None, go_on);
        cx.held.store(false, Ordering::SeqCst);
    }
}

/// Whether its process has only such threads.
fn is_alone(cx: &Context) -> bool {
    let threads = cx.kernel.tasks.lock().threads(cx.group.tgid);
    threads.iter().all(|t| t.uring.is_thread())
}
