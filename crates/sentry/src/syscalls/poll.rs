//! Waiting for many descriptors: poll(2), select(2) and their kin (`fs/select.c`).

use super::SysResult;
use super::args::*;
use super::signals::{Ended, MaskArg, restore_mask, set_temporary_mask};
use crate::task::Context;
use crate::task::lanes::slots::after_wait;
use crate::task::persona::Persona;
use crate::task::signalfd::SignalFd;
use abi::Result;
use abi::errno::*;
use abi::linux::O_PATH;
use abi::time::{NSEC_PER_SEC, Timespec, Timeval};
use ipc::poll::{PollItem, Wait};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;
use vfs::File;
use wait::Events;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

opaque! { PollFd }

/// Bits of descriptors, as many as the call's first argument says.
type FdSet = UserArray<u64>;

/// `struct pollfd`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PollFd {
    fd: i32,
    events: u16,
    revents: u16,
}

/// Milliseconds, or a timespec, as poll's way of waiting.
pub(super) fn poll_wait(nanos: Option<i64>) -> ipc::poll::Wait {
    match nanos {
        None => ipc::poll::Wait::Forever,
        Some(0) => ipc::poll::Wait::No,
        Some(n) => wait::deadline_after(std::time::Duration::from_nanos(n as u64))
            .map_or(ipc::poll::Wait::Forever, ipc::poll::Wait::Until),
    }
}

/// The file to ask; a signalfd is asked on behalf of the caller. `None` gives POLLNVAL.
fn pollable(cx: &Context, fd: i32) -> Option<Arc<File>> {
    let f = cx.fd(fd).ok().filter(|f| f.flags() & O_PATH == 0)?;
    match f.ops::<SignalFd>() {
        Some(s) => Some(s.view(&cx.task, &f)),
        None => Some(f),
    }
}

/// Waits; what holds is written back even when nothing does. `ERESTARTNOHAND` if a signal
/// interrupts.
fn do_poll(cx: &mut Context, at: UserArray<PollFd>, count: u32, wait: Wait) -> SysResult {
    if u64::from(count) > cx.nofile_limit() {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let mut fds = vec![PollFd::default(); count as usize];
    mm.copy_in(at.va(), fds.as_mut_slice().as_mut_bytes())?;
    let items: Vec<PollItem> = fds
        .iter()
        .map(|p| {
            let file = if p.fd < 0 { None } else { pollable(cx, p.fd) };
            let bad = p.fd >= 0 && file.is_none();
            PollItem {
                file,
                events: Events::from_bits_retain(u32::from(p.events)),
                ready: Cell::new(if bad { Events::NVAL } else { Events::empty() }),
            }
        })
        .collect();
    let r = ipc::poll::poll(&*cx.task, &items, wait);
    for (p, i) in fds.iter_mut().zip(&items) {
        p.revents = i.ready.get().bits() as u16;
    }
    mm.copy_out(at.va(), fds.as_slice().as_bytes())?;
    let readable = fds.iter().filter(|p| p.revents & 1 != 0);
    after_wait(cx, readable.map(|p| p.fd));
    r
}

/// `poll(fds, nfds, timeout)`.
fn poll(cx: &mut Context, fds: UserArray<PollFd>, count: u32, timeout: i32) -> SysResult {
    let wait = poll_wait((timeout >= 0).then_some(i64::from(timeout) * 1_000_000));
    poll_until(cx, fds, count, wait)
}

fn poll_until(cx: &mut Context, fds: UserArray<PollFd>, count: u32, wait: Wait) -> SysResult {
    match do_poll(cx, fds, count, wait) {
        Err(ERESTARTNOHAND) => {
            cx.restart_block = Some(Box::new(move |cx| poll_until(cx, fds, count, wait)));
            Err(ERESTART_RESTARTBLOCK)
        }
        r => r,
    }
}

/// Where a call with a timeout tells what is left of it.
#[derive(Clone, Copy)]
enum TimeLeft {
    Timespec(UserPtr<Timespec>),
    Timeval(UserPtr<Timeval>),
}

/// The end of a call with a timeout and a mask (`poll_select_finish`): the mask is put back unless
/// a handler is to run under the temporary one, and what is left of the time is written.
fn finish(cx: &mut Context, left: Option<TimeLeft>, wait: Wait, r: SysResult) -> SysResult {
    restore_mask(cx, Ended::with(&r, ERESTARTNOHAND));
    let (Some(left), Wait::Until(deadline)) = (left, wait) else {
        return r;
    };
    if cx.persona().contains(Persona::STICKY_TIMEOUTS) {
        return if r == Err(ERESTARTNOHAND) {
            Err(EINTR)
        } else {
            r
        };
    }
    let ns = deadline
        .saturating_duration_since(Instant::now())
        .as_nanos() as i64;
    let mm = cx.mm();
    let written = match left {
        TimeLeft::Timespec(at) => at.write(&mm, &Timespec::from_nanos(ns)),
        TimeLeft::Timeval(at) => at.write(&mm, &Timeval::from_nanos(ns)),
    };
    // A restart would wait for the whole time again where the rest could not be written.
    if written.is_err() && r == Err(ERESTARTNOHAND) {
        Err(EINTR)
    } else {
        r
    }
}

fn timespec(cx: &Context, from: Option<UserPtr<Timespec>>) -> Result<Wait> {
    let nanos = super::time::timespec_arg(cx, from.map(UserPtr::input))?;
    Ok(poll_wait(nanos))
}

/// `ppoll(fds, nfds, timeout, sigmask, sigsetsize)`.
fn ppoll(
    cx: &mut Context,
    fds: UserArray<PollFd>,
    count: u32,
    timeout: Option<UserPtr<Timespec>>,
    mask: MaskArg,
) -> SysResult {
    let wait = timespec(cx, timeout)?;
    if let Some(m) = mask.read(cx)? {
        set_temporary_mask(cx, m);
    }
    let r = do_poll(cx, fds, count, wait);
    finish(cx, timeout.map(TimeLeft::Timespec), wait, r)
}

/// What each of select's three sets means (`POLLIN_SET` and so on).
const SETS: [Events; 3] = [
    Events::READABLE
        .union(Events::RDBAND)
        .union(Events::HUP)
        .union(Events::ERR)
        .union(Events::NVAL),
    Events::WRITABLE
        .union(Events::WRBAND)
        .union(Events::ERR)
        .union(Events::NVAL),
    Events::PRI.union(Events::NVAL),
];

/// Waits on three sets of `n` bits. `ERESTARTNOHAND` if a signal interrupts: the sets are not
/// written then.
fn do_select(cx: &mut Context, n: i32, sets: [Option<FdSet>; 3], wait: Wait) -> SysResult {
    let n = usize::try_from(n)
        .map_err(|_| EINVAL)?
        .min(cx.files().capacity());
    let words = n.div_ceil(64);
    let mm = cx.mm();
    let mut bits = [const { Vec::<u64>::new() }; 3];
    for (set, at) in bits.iter_mut().zip(sets) {
        set.resize(words, 0);
        if let Some(at) = at {
            mm.copy_in(at.va(), set.as_mut_slice().as_mut_bytes())?;
        }
    }
    let has = |set: &[u64], fd: usize| set[fd / 64] >> (fd % 64) & 1 != 0;
    let mut fds = Vec::new();
    let mut items = Vec::new();
    for fd in 0..n {
        let mut events = Events::empty();
        for (set, meaning) in bits.iter().zip(SETS) {
            if has(set, fd) {
                events |= meaning;
            }
        }
        if events.is_empty() {
            continue;
        }
        // What is not open fails the call; what only names a place is ready with POLLNVAL.
        cx.fd(fd as i32)?;
        let file = pollable(cx, fd as i32);
        let ready = if file.is_none() {
            Events::NVAL & events
        } else {
            Events::empty()
        };
        items.push(PollItem {
            file,
            events,
            ready: Cell::new(ready),
        });
        fds.push(fd);
    }
    ipc::poll::select(&*cx.task, &items, wait)?;
    let mut count = 0;
    for (at, set) in bits.iter_mut().enumerate() {
        let asked = std::mem::replace(set, vec![0; words]);
        for (fd, i) in fds.iter().zip(&items) {
            if has(&asked, *fd) && i.ready.get().intersects(SETS[at]) {
                set[fd / 64] |= 1 << (fd % 64);
                count += 1;
            }
        }
    }
    for (set, at) in bits.iter().zip(sets) {
        if let Some(at) = at {
            mm.copy_out(at.va(), set.as_slice().as_bytes())?;
        }
    }
    let readable = fds.iter().filter(|fd| has(&bits[0], **fd));
    after_wait(cx, readable.map(|fd| *fd as i32));
    Ok(count)
}

/// `select(nfds, readfds, writefds, exceptfds, timeout)`.
fn select(
    cx: &mut Context,
    count: i32,
    read: Option<FdSet>,
    write: Option<FdSet>,
    except: Option<FdSet>,
    timeout: Option<UserPtr<Timeval>>,
) -> SysResult {
    let nanos = match timeout {
        None => None,
        Some(at) => {
            let t = at.read(&cx.mm())?;
            // Microseconds may be more than a second's, but neither may be negative.
            if t.sec < 0 || t.usec < 0 {
                return Err(EINVAL);
            }
            let whole = t.sec.saturating_add(t.usec / 1_000_000);
            Some(
                whole
                    .saturating_mul(NSEC_PER_SEC)
                    .saturating_add(t.usec % 1_000_000 * 1000),
            )
        }
    };
    let wait = poll_wait(nanos);
    let r = do_select(cx, count, [read, write, except], wait);
    finish(cx, timeout.map(TimeLeft::Timeval), wait, r)
}

/// `pselect6(nfds, readfds, writefds, exceptfds, timeout, {sigmask, sigsetsize})`.
fn pselect6(
    cx: &mut Context,
    count: i32,
    read: Option<FdSet>,
    write: Option<FdSet>,
    except: Option<FdSet>,
    timeout: Option<UserPtr<Timespec>>,
    mask: Option<UserIn<[u64; 2]>>,
) -> SysResult {
    let mask = match mask {
        None => MaskArg::new(None, 0),
        Some(at) => MaskArg::decode(&at.read(&cx.mm())?)?,
    };
    let wait = timespec(cx, timeout)?;
    if let Some(m) = mask.read(cx)? {
        set_temporary_mask(cx, m);
    }
    let r = do_select(cx, count, [read, write, except], wait);
    finish(cx, timeout.map(TimeLeft::Timespec), wait, r)
}

calls! {
    poll,
    select,
    pselect6,
    ppoll,
}
