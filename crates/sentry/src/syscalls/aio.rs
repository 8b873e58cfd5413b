//! Linux AIO: io_setup(2) and its kin. Contexts and what waits are [`crate::task::aio`]'s.
//!
//! A request is copied once; what Linux checks before it begins fails io_submit(2), all else is in
//! its event.

use super::SysResult;
use super::args::*;
use super::io::{At, RwFlags, buffer, do_read, do_write, iovec};
use super::sched::check_io_priority;
use super::signals::{Ended, MaskArg, restore_mask, set_temporary_mask};
use crate::task::aio::poll::{PollArgs, PollRequest, ResultFd};
use crate::task::aio::{AioContext, IoEvent, Maker};
use crate::task::{Context, Sleep};
use abi::errno::*;
use abi::time::Timespec;
use abi::{Result, Va};
use mm::{Mm, UserIo};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::File;
use vfs::file::DataOnly;
use wait::{Blocker, Events};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

named! {
    /// What a request is to do (`aio_lio_opcode`). 6 is IOCB_CMD_NOOP, which Linux has not.
    struct Opcode(u32) {
        IOCB_CMD_PREAD = 0,
        IOCB_CMD_PWRITE = 1,
        IOCB_CMD_FSYNC = 2,
        IOCB_CMD_FDSYNC = 3,
        IOCB_CMD_POLL = 5,
        IOCB_CMD_PREADV = 7,
        IOCB_CMD_PWRITEV = 8,
    }
}

/// `struct iocb`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: u16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}
opaque! { Iocb IoEvent }

/// `IOCB_FLAG_*`; others are not looked at.
const RESFD: u32 = 1;
const IOPRIO: u32 = 2;
/// Where `aio_key` lies, in which a request that was submitted has 0 (`KIOCB_KEY`).
const KEY: u64 = 8;

/// The context that is mapped at `at` (`lookup_ioctx`).
fn context(cx: &Context, at: Va) -> Result<Arc<AioContext>> {
    let id = cx.mm().read_obj::<u32>(at).map_err(|_| EINVAL)?;
    cx.task.aio().find(id, at).ok_or(EINVAL)
}

/// `io_setup(nr_events, ctxp)`.
fn io_setup(cx: &mut Context, requests: u32, to: UserPtr<u64>) -> SysResult {
    let mm = cx.mm();
    if to.read(&mm)? != 0 || requests == 0 {
        return Err(EINVAL);
    }
    let c = AioContext::new(
        requests,
        &Maker {
            clas: mm.clas(),
            user: cx.cred().ucounts(),
            count: &cx.group.container.aio_requests,
            cpus: cx.kernel.cpus,
        },
    )?;
    let at = c.ring.map(&mm)?;
    let all = cx.task.aio();
    all.add(&c);
    let r = to.write(&mm, &at.0);
    if r.is_err() {
        all.end(&c);
        c.ring.unmap(&mm);
    }
    r.map(|()| 0)
}

/// `io_destroy(ctx)`: returns when nothing is under way.
fn io_destroy(cx: &mut Context, at: Va) -> SysResult {
    let c = context(cx, at)?;
    if !cx.task.aio().end(&c) {
        return Err(EINVAL);
    }
    c.ring.unmap(&cx.mm());
    let queues = [(&c.queue, Events::READABLE)];
    // (What ends it early is the task's end.)
    let _ = cx.task.block_as(Sleep::Killable, &queues, None, || {
        if c.is_busy() { Err(EAGAIN) } else { Ok(()) }
    });
    Ok(0)
}

/// `io_submit(ctx, nr, iocbpp)`: how many began; an error only for the first.
fn io_submit(cx: &mut Context, at: Va, count: i64, list: UserArray<u64>) -> SysResult {
    let count = u64::try_from(count).map_err(|_| EINVAL)?;
    let c = context(cx, at)?;
    let count = count.min(c.ring.events.into());
    let _busy = c.enter();
    for n in 0..count {
        let one = list.at(n).read(&cx.mm());
        match one.and_then(|at| submit(cx, &c, Va(at))) {
            Ok(()) => {}
            Err(e) if n == 0 => return Err(e),
            Err(_) => return Ok(n as usize),
        }
        if cx.is_killed() {
            return Ok(n as usize + 1);
        }
    }
    Ok(count as usize)
}

/// `io_submit_one`.
fn submit(cx: &Context, c: &Arc<AioContext>, at: Va) -> Result<()> {
    let r: Iocb = cx.mm().read_obj(at)?;
    if r.reserved != 0 || r.len > i64::MAX as u64 {
        return Err(EINVAL);
    }
    c.take()?;
    let begun = begin(cx, c, &r, at);
    if begun.is_err() {
        c.give_back();
    }
    begun
}

fn begin(cx: &Context, c: &Arc<AioContext>, r: &Iocb, at: Va) -> Result<()> {
    let file = Fd(r.fd as i32).file(cx)?;
    let told = if r.flags & RESFD != 0 {
        ResultFd::by(Fd(r.resfd as i32).file(cx)?)?
    } else {
        ResultFd::default()
    };
    cx.mm().write_obj(at.offset(KEY), &0u32)?;
    let event = IoEvent {
        data: r.data,
        request: at.0,
        ..IoEvent::default()
    };
    let result = match Opcode(r.opcode.into()) {
        Opcode::IOCB_CMD_PREAD | Opcode::IOCB_CMD_PREADV => read(cx, &file, r)?,
        Opcode::IOCB_CMD_PWRITE | Opcode::IOCB_CMD_PWRITEV => write(cx, &file, r)?,
        Opcode::IOCB_CMD_FSYNC => sync(&file, r, DataOnly::No)?,
        Opcode::IOCB_CMD_FDSYNC => sync(&file, r, DataOnly::Yes)?,
        Opcode::IOCB_CMD_POLL => return poll(cx, c, r, file, event, told),
        _ => return Err(EINVAL),
    };
    let result = match result {
        Ok(n) => n as i64,
        // A request is not restarted (`aio_rw_done`).
        Err(e) if e.is_restart() => -i64::from(EINTR.raw()),
        Err(e) => -i64::from(e.raw()),
    };
    c.complete(&IoEvent { result, ..event });
    told.tell();
    Ok(())
}

/// What Linux checks of a read or write before it begins (`aio_prep_rw`, `aio_setup_rw`,
/// `rw_verify_area`); its buffers, and where it is in the file.
fn prepare<'a>(mm: &'a Mm, f: &File, r: &Iocb) -> Result<(UserIo<'a>, At)> {
    let is_vector = matches!(
        Opcode(r.opcode.into()),
        Opcode::IOCB_CMD_PREADV | Opcode::IOCB_CMD_PWRITEV
    );
    let (va, len) = (Va(r.buf), r.len as usize);
    let buf = match is_vector {
        true => iovec(mm, va, len)?,
        false => buffer(mm, va, len)?,
    };
    let offset = u64::try_from(r.offset).map_err(|_| EINVAL)?;
    if !f.ops.seekable() {
        return Ok((buf, At::Position));
    }
    f.check_range(offset, vfs::Sink::remaining(&buf))?;
    Ok((buf, At::Offset(offset)))
}

fn flags(cx: &Context, r: &Iocb) -> Result<u32> {
    if r.flags & IOPRIO != 0 {
        check_io_priority(cx, r.priority.into())?;
    }
    let flags = RwFlags::from_bits_retain(r.rw_flags);
    flags.check(1)?;
    Ok(flags.bits())
}

/// Whether a file can be read and written by requests: not a directory, nor what has only the plain
/// calls (epoll, inotify, fanotify).
fn has_requests(f: &File) -> bool {
    let special = f.ops::<ipc::Epoll>().is_some()
        || f.ops::<ipc::inotify::Inotify>().is_some()
        || f.ops::<ipc::fanotify::Fanotify>().is_some();
    let inode = f.path.as_ref().and_then(|p| p.inode().ok());
    !special && inode.is_none_or(|i| i.file_type() != vfs::FileType::Directory)
}

/// Blocks where the file does, as on Linux.
fn read(cx: &Context, f: &Arc<File>, r: &Iocb) -> Result<SysResult> {
    let flags = flags(cx, r)?;
    if !f.readable() {
        return Err(EBADF);
    }
    if !has_requests(f) {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let (mut to, at) = prepare(&mm, f, r)?;
    Ok(do_read(cx, f, &mut to, at, flags))
}

fn write(cx: &Context, f: &Arc<File>, r: &Iocb) -> Result<SysResult> {
    let flags = flags(cx, r)?;
    if !f.writable() {
        return Err(EBADF);
    }
    if !has_requests(f) {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let (mut from, at) = prepare(&mm, f, r)?;
    Ok(do_write(cx, f, &mut from, at, flags))
}

/// Done at once; Linux has another thread do it.
fn sync(f: &File, r: &Iocb, data_only: DataOnly) -> Result<SysResult> {
    if r.buf != 0 || r.offset != 0 || r.len != 0 || r.rw_flags != 0 {
        return Err(EINVAL);
    }
    match f.ops.sync(data_only) {
        // It has no such operation.
        Err(EINVAL) => Err(EINVAL),
        done => Ok(done.map(|()| 0)),
    }
}

fn poll(
    cx: &Context,
    c: &Arc<AioContext>,
    r: &Iocb,
    file: Arc<File>,
    event: IoEvent,
    told: ResultFd,
) -> Result<()> {
    let events = u16::try_from(r.buf).map_err(|_| EINVAL)?;
    if r.offset != 0 || r.len != 0 || r.rw_flags != 0 {
        return Err(EINVAL);
    }
    let asked = PollArgs {
        file,
        events: Events::from_bits_retain(events.into()) | Events::ALWAYS,
        event,
        told,
    };
    PollRequest::begin(c, cx.cred().ucounts(), asked)
}

/// `io_cancel(ctx, iocb, result)`: of what waits, the event comes by the ring (`EINPROGRESS`).
fn io_cancel(cx: &mut Context, at: Va, request: Va, _result: Va) -> SysResult {
    let key: u32 = cx.mm().read_obj(request.offset(KEY))?;
    if key != 0 {
        return Err(EINVAL);
    }
    let c = context(cx, at)?;
    let found = c.find_poll(request.0).ok_or(EINVAL)?;
    found.finish(&c, 0);
    Err(EINPROGRESS)
}

/// What a call of io_getevents(2) asks.
#[derive(Clone, Copy)]
struct WaitArgs {
    context: Va,
    least: i64,
    most: i64,
    to: Va,
    timeout: Option<Timespec>,
}

impl WaitArgs {
    /// `None` for ever. Linux takes any time: for one below zero it waits for ever, too (its timer
    /// overflows: `ktime_add_safe`).
    fn patience(&self) -> Option<Duration> {
        let t = self.timeout?;
        let nanos = i128::from(t.sec) * 1_000_000_000 + i128::from(t.nsec);
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }
}

/// Copies events out until there is none or there are enough (`aio_read_events_ring`).
fn take_events(cx: &Context, c: &AioContext, to: Va, most: usize) -> SysResult {
    /// Copied at a time.
    const PART: usize = 128;
    /// After so many others that took events first, it is the application that plays.
    const TRIES: u32 = 1000;
    let mm = cx.mm();
    let (mut got, mut tries) = (0, 0);
    while got < most {
        let (head, events) = c.ring.peek((most - got).min(PART));
        if events.is_empty() {
            break;
        }
        let to = to.offset((got * size_of::<IoEvent>()) as u64);
        match mm.copy_out(to, events.as_slice().as_bytes()) {
            Ok(()) if c.ring.taken(head, events.len()) => got += events.len(),
            Ok(()) if tries < TRIES => tries += 1,
            Ok(()) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// `read_events`: how many events; 0 as well where a signal came first.
fn get_events(cx: &Context, w: WaitArgs) -> SysResult {
    let c = context(cx, w.context)?;
    if w.least < 0 || w.least > w.most {
        return Err(EINVAL);
    }
    let (least, most) = (w.least as usize, w.most as usize);
    let mut got = 0;
    let mut attempt = || {
        let to = w.to.offset((got * size_of::<IoEvent>()) as u64);
        match take_events(cx, &c, to, most - got) {
            Ok(n) => got += n,
            Err(e) if got == 0 => return Err(e),
            Err(_) => return Ok(()),
        }
        match c.is_dead() {
            true if got == 0 => Err(EINVAL),
            false if got < least => Err(EAGAIN),
            _ => Ok(()),
        }
    };
    let patience = w.patience();
    let r = if patience == Some(Duration::ZERO) {
        attempt()
    } else {
        let deadline = patience.and_then(|p| Instant::now().checked_add(p));
        let queues = [(&c.queue, Events::READABLE)];
        cx.task.block(&queues, deadline, attempt)
    };
    match r {
        Ok(()) | Err(EAGAIN | ETIMEDOUT | ERESTARTSYS) => Ok(got),
        Err(e) => Err(e),
    }
}

/// `io_getevents(ctx, min_nr, nr, events, timeout)`.
fn io_getevents(
    cx: &mut Context,
    context: Va,
    least: i64,
    most: i64,
    to: UserArray<IoEvent>,
    timeout: Option<UserIn<Timespec>>,
) -> SysResult {
    let timeout = timeout.map(|t| t.read(&cx.mm())).transpose()?;
    let wanted = WaitArgs {
        context,
        least,
        most,
        to: to.va(),
        timeout,
    };
    match get_events(cx, wanted) {
        Ok(0) if cx.interrupted() => Err(EINTR),
        r => r,
    }
}

/// `io_pgetevents(ctx, min_nr, nr, events, timeout, {sigmask, sigsetsize})`.
fn io_pgetevents(
    cx: &mut Context,
    context: Va,
    least: i64,
    most: i64,
    to: UserArray<IoEvent>,
    timeout: Option<UserIn<Timespec>>,
    mask: Option<UserIn<[u64; 2]>>,
) -> SysResult {
    let timeout = timeout.map(|t| t.read(&cx.mm())).transpose()?;
    let mask = match mask {
        None => MaskArg::new(None, 0),
        Some(at) => MaskArg::decode(&at.read(&cx.mm())?)?,
    };
    if let Some(m) = mask.read(cx)? {
        set_temporary_mask(cx, m);
    }
    let wanted = WaitArgs {
        context,
        least,
        most,
        to: to.va(),
        timeout,
    };
    let r = get_events(cx, wanted);
    // (Events or not: a signal that came runs its handler under the temporary mask.)
    let interrupted = cx.interrupted();
    let ended = if interrupted {
        Ended::BySignal
    } else {
        Ended::ByItself
    };
    restore_mask(cx, ended);
    match r {
        Ok(0) if interrupted => Err(ERESTARTNOHAND),
        r => r,
    }
}

calls! {
    io_setup,
    io_destroy,
    io_getevents,
    io_submit: "no IOCB_FLAG_IOPRIO's effect; reads, writes and syncs are done in the call",
    io_cancel,
    io_pgetevents,
}
