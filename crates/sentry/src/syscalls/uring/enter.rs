//! io_uring_enter(2): entries become requests, and completions are waited for.

use super::super::SysResult;
use super::super::args::*;
use super::super::signals::{Ended, MaskArg, restore_mask, set_temporary_mask};
use super::{EnterFlags, ops};
use crate::task::Context;
use crate::task::futex::instant_of;
use crate::task::uring::abi::{Setup, SqeFlags, op};
use crate::task::uring::links::Order;
use crate::task::uring::memory::Word;
use crate::task::uring::{Request, Ring, Sqe, work};
use abi::errno::*;
use abi::time::Timespec;
use abi::{Result, Va};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wait::Events;

pub(super) fn enter(
    cx: &mut Context,
    ring: &Arc<Ring>,
    (to_submit, min_complete): (u32, u32),
    flags: EnterFlags,
    arg: BytesIn,
) -> SysResult {
    if ring.is_disabled() {
        return Err(EBADFD);
    }
    let mut submitted = 0;
    if ring.has(Setup::SQPOLL) {
        submitted = to_thread(cx, ring, to_submit, flags)?;
    } else if to_submit > 0 {
        if ring.has(Setup::SINGLE_ISSUER) && !ring.is_issuer(&cx.task) {
            return Err(EEXIST);
        }
        cx.task.uring.uses(ring);
        submitted = submit(cx, ring, to_submit)?;
        if submitted < to_submit as usize {
            return Ok(submitted);
        }
    }
    if !flags.contains(EnterFlags::IORING_ENTER_GETEVENTS) {
        return Ok(submitted);
    }
    let waited = GetEventsArg::new(cx, flags, arg)
        .and_then(|w| wait_for(cx, ring, min_complete, &w))
        .map(|()| 0);
    match submitted {
        0 => waited,
        n => Ok(n),
    }
}

/// A ring's thread submits: it is woken, or waited for.
fn to_thread(cx: &Context, ring: &Ring, n: u32, flags: EnterFlags) -> SysResult {
    let thread = ring.thread.lock().clone();
    let thread = thread.filter(|t| !t.is_gone()).ok_or(EOWNERDEAD)?;
    if flags.contains(EnterFlags::IORING_ENTER_SQ_WAKEUP) {
        thread.wake();
    }
    if flags.contains(EnterFlags::IORING_ENTER_SQ_WAIT) {
        let queues = [(&ring.queue, Events::WRITABLE)];
        let room = || match ring.sq_has_room() || thread.is_gone() {
            true => Ok(()),
            false => Err(EAGAIN),
        };
        // (A signal ends it, and the application sees that there is no room.)
        let _ = cx.task.block(&queues, None, room);
    }
    Ok(n as usize)
}

/// Entries that are linked, as far as they are collected.
struct Chain {
    head: Arc<Request>,
    last: Arc<Request>,
    len: u32,
    drains: bool,
    /// One of its entries is no good.
    failed: bool,
    /// There is no more memory for it: the rest is only counted.
    refused: bool,
}

/// Takes up to `most` entries of the submission ring: how many (`io_submit_sqes`).
pub(super) fn submit(cx: &mut Context, ring: &Arc<Ring>, most: u32) -> SysResult {
    let _turn = ring.turn.take(cx)?;
    let mut head = ring.sq_head();
    let n = ring.shared.submitted(head).min(most);
    let mut chain: Option<Chain> = None;
    let mut done = 0;
    while done < n && !cx.is_killed() {
        let sqe = ring.shared.sqe(head);
        head = head.wrapping_add(1);
        ring.set_sq_head(head);
        let Some(sqe) = sqe else {
            // No such entry: it is dropped, and the rest is for the next call.
            ring.shared.set(Word::SqHead, head);
            ring.shared.count(Word::SqDropped);
            break;
        };
        done += 1;
        let fine = submit_one(cx, ring, sqe, &mut chain);
        if !fine && !ring.has(Setup::SUBMIT_ALL) {
            break;
        }
    }
    if let Some(c) = chain {
        begin(cx, ring, c);
    }
    Ok(done as usize)
}

/// One entry: it begins, or is linked. False where it is no good, and ends a chain or is alone.
fn submit_one(cx: &mut Context, ring: &Arc<Ring>, sqe: Sqe, chain: &mut Option<Chain>) -> bool {
    let is_refused = chain.as_ref().is_some_and(|c| c.refused);
    let prepared = match is_refused {
        // (Nothing more is held for it.)
        true => Err(ENOMEM),
        false => prepare(cx, ring, &sqe, chain.as_ref()),
    };
    // All that it names was read: its place is free, before its completion may be seen.
    ring.shared.set(Word::SqHead, ring.sq_head());
    let (op, identity) = match prepared {
        Ok((op, identity)) => (super::weighed(ops::weight(&sqe), Ok(op)), identity),
        Err(e) => (Err(e), None),
    };
    let mut r = Request::new(ring, &cx.task, sqe, op, identity);
    let links = r.has(SqeFlags::IO_LINK) || r.has(SqeFlags::IO_HARDLINK);
    // What waits behind another takes memory as what waits itself.
    let mut refused = is_refused;
    if (links || chain.is_some()) && r.charge().is_err() {
        refused = true;
        r = Request::new(ring, &cx.task, sqe, Err(ENOMEM), None);
    }
    let failed = r.fault.is_some();
    let whole = match chain.take() {
        None => Chain {
            head: r.clone(),
            last: r.clone(),
            len: 1,
            drains: r.has(SqeFlags::IO_DRAIN),
            failed,
            refused,
        },
        Some(c) => {
            c.last.set_next(r.clone());
            Chain {
                head: c.head,
                len: c.len + 1,
                drains: c.drains || r.has(SqeFlags::IO_DRAIN),
                failed: c.failed || failed,
                refused,
                last: r.clone(),
            }
        }
    };
    if links {
        *chain = Some(whole);
        return true;
    }
    begin(cx, ring, whole);
    !failed
}

/// A chain begins, or waits for its turn, or is no good.
fn begin(cx: &mut Context, ring: &Arc<Ring>, c: Chain) {
    if c.failed {
        ring.begins(c.len);
        c.head.end_unissued();
        return;
    }
    // Behind a chain with a drain in it, what comes next is one, too.
    let drains = c.drains
        | ring
            .drain_next
            .swap(c.drains && c.len > 1, Ordering::Relaxed);
    let order = match drains {
        true => Order::Drain,
        false => Order::Any,
    };
    if ring.may_begin(&c.head, c.len, order) {
        c.head.run(cx);
    }
}

type Decoded = (
    Box<dyn crate::task::uring::Operation>,
    Option<Arc<vfs::Credentials>>,
);

/// What is checked of an entry before it is a request (`io_init_req`).
fn prepare(
    cx: &mut Context,
    ring: &Arc<Ring>,
    sqe: &Sqe,
    chain: Option<&Chain>,
) -> Result<Decoded> {
    let def = ops::find(sqe.opcode).ok_or(EINVAL)?;
    let flags = SqeFlags::from_bits(sqe.flags).ok_or(EINVAL)?;
    if flags.contains(SqeFlags::BUFFER_SELECT) && !def.has(ops::Traits::SELECTS) {
        return Err(EOPNOTSUPP);
    }
    if flags.contains(SqeFlags::CQE_SKIP_SUCCESS) {
        ring.skips.store(true, Ordering::Relaxed);
    }
    if flags.contains(SqeFlags::IO_DRAIN) && ring.skips.load(Ordering::Relaxed) {
        return Err(EOPNOTSUPP);
    }
    if let Some(r) = &*ring.restrictions.lock()
        && r.holds
    {
        let allowed = r.ops >> sqe.opcode & 1 != 0
            && sqe.flags & r.flags_required == r.flags_required
            && sqe.flags & !(r.flags_allowed | r.flags_required) == 0;
        if !allowed {
            return Err(EACCES);
        }
    }
    if sqe.ioprio != 0 && !def.has(ops::Traits::IOPRIO)
        || ring.has(Setup::IOPOLL) && !def.has(ops::Traits::IOPOLL)
    {
        return Err(EINVAL);
    }
    let identity = match sqe.personality {
        0 => None,
        n => {
            let all = ring.personalities.lock();
            Some(all.all.get(&n).ok_or(EINVAL)?.0.clone())
        }
    };
    if sqe.opcode == op::LINK_TIMEOUT {
        let behind = chain.ok_or(EINVAL)?;
        if behind.last.sqe.opcode == op::LINK_TIMEOUT {
            return Err(EINVAL);
        }
    }
    let op = (def.prepare)(cx, ring, sqe)?;
    Ok((op, identity))
}

/// What is asked of a wait (`struct io_uring_getevents_arg`).
struct GetEventsArg {
    mask: Option<abi::SigSet>,
    deadline: Option<Instant>,
    /// Until then for all that is wanted, afterwards for one.
    min_wait: Option<Instant>,
}

impl GetEventsArg {
    fn new(cx: &mut Context, flags: EnterFlags, arg: BytesIn) -> Result<GetEventsArg> {
        if !flags.contains(EnterFlags::IORING_ENTER_EXT_ARG) {
            let mask = (arg.va.0 != 0).then(|| UserIn::new(arg.va));
            return Ok(GetEventsArg {
                mask: MaskArg::new(mask, arg.len).read(cx)?,
                deadline: None,
                min_wait: None,
            });
        }
        if arg.len != 24 {
            return Err(EINVAL);
        }
        let [mask, sizes, time] = cx.mm().read_obj::<[u64; 3]>(arg.va)?;
        let time = match time {
            0 => None,
            // Any time will do, the past, too.
            at => {
                let t: Timespec = UserIn::new(Va(at)).read(&cx.mm())?;
                let nanos = t.sec.saturating_mul(1_000_000_000);
                Some(nanos.saturating_add(t.nsec).max(0))
            }
        };
        let deadline = time.and_then(|n: i64| {
            if flags.contains(EnterFlags::IORING_ENTER_ABS_TIMER) {
                return instant_of(1, n);
            }
            wait::deadline_after(Duration::from_nanos(n as u64))
        });
        let micros = sizes >> 32;
        let min_wait = (micros != 0).then(|| Duration::from_micros(micros));
        let mask = (mask != 0).then(|| UserIn::new(Va(mask)));
        Ok(GetEventsArg {
            mask: MaskArg::new(mask, sizes as u32 as usize).read(cx)?,
            deadline,
            min_wait: min_wait.and_then(wait::deadline_after),
        })
    }
}

/// Waits for completions (`io_cqring_wait`).
fn wait_for(cx: &mut Context, ring: &Arc<Ring>, least: u32, w: &GetEventsArg) -> Result<()> {
    if ring.has(Setup::DEFER_TASKRUN) && !ring.is_issuer(&cx.task) {
        return Err(EEXIST);
    }
    do_work(cx, ring);
    ring.flush_overflow();
    if ring.take_dropped() {
        return Err(EBADR);
    }
    let least = least.min(ring.shared.sizes.cq_entries);
    if ring.cq_ready() >= least || ring.has(Setup::IOPOLL) {
        return Ok(());
    }
    if let Some(m) = w.mask {
        set_temporary_mask(cx, m);
    }
    let r = sleep(cx, ring, least, w);
    let ended = match r {
        Err(EINTR) => Ended::BySignal,
        _ => Ended::ByItself,
    };
    restore_mask(cx, ended);
    if r.is_err() && r != Err(EBADR) && ring.cq_ready() > 0 {
        return Ok(());
    }
    r
}

/// Sleeps until there are so many, or a timeout came, or the time is over, or a signal.
fn sleep(cx: &mut Context, ring: &Arc<Ring>, least: u32, w: &GetEventsArg) -> Result<()> {
    let timeouts = ring.cq_timeouts();
    let target = ring.shared.get(Word::CqHead).wrapping_add(least);
    let least_wait = w.min_wait;
    loop {
        let enough = || {
            let is_enough = ring.cq_tail().wrapping_sub(target) < 1 << 31;
            is_enough || ring.cq_timeouts() != timeouts
        };
        let something = || {
            let some = enough() || ring.has_local_work() || cx.task.uring.is_due();
            if some || ring.has_overflow() {
                Ok(())
            } else {
                Err(EAGAIN)
            }
        };
        let queues = [(&ring.queue, Events::READABLE)];
        let until = least_wait.or(w.deadline);
        let r = cx.task.block(&queues, until, something);
        do_work(cx, ring);
        ring.flush_overflow();
        if ring.take_dropped() {
            return Err(EBADR);
        }
        if enough() {
            return Ok(());
        }
        match r {
            Err(ETIMEDOUT) if least_wait.is_some_and(|l| Instant::now() >= l) => {
                // From now on one is enough.
                if ring.cq_ready() > 0 {
                    return Ok(());
                }
                return sleep(
                    cx,
                    ring,
                    1,
                    &GetEventsArg {
                        mask: None,
                        min_wait: None,
                        deadline: w.deadline,
                    },
                );
            }
            Err(ETIMEDOUT) => return Err(ETIME),
            Ok(()) | Err(ERESTARTSYS) if cx.has_signal_work() => return Err(EINTR),
            Ok(()) | Err(ERESTARTSYS | EAGAIN) => {}
            Err(e) => return Err(e),
        }
        // An overflow that cannot be brought in: the application is to take some first.
        if ring.has_overflow() && ring.cq_ready() >= ring.shared.sizes.cq_entries {
            return Ok(());
        }
    }
}

/// Does what there is to do for this task.
fn do_work(cx: &mut Context, ring: &Arc<Ring>) {
    work::run(cx);
    if ring.has(Setup::DEFER_TASKRUN) && ring.is_issuer(&cx.task) {
        // What it does may make more, which is done as well; not for ever.
        for _ in 0..16 {
            if !work::run_local(cx, ring) {
                break;
            }
        }
    }
}
