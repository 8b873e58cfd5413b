//! Descriptors: reading, writing, positions, duplicating, fcntl, ioctl.

use crate::fs::signalfd::SignalFd;
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;
use abi::signal::{SIGPIPE, SIGXFSZ};
use abi::time::Timespec;
use abi::{Result, SigInfo, Va};
use mm::{UserIo, UserRange};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::{DataOnly, File, IoctlContext, O_APPEND, Sink, Source};
use vfs::fs::tmpfs;
use vfs::locks::{LockKind, LockRange, Owner};
use vfs::ops::Wait;
use wait::{Events, block_until};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most bytes of one read or write (`MAX_RW_COUNT`).
const MAX_RW: usize = 0x7fff_f000;
/// The most entries of an iovec array.
const UIO_MAXIOV: usize = 1024;

/// Blocks until a file operation can go on; at once with O_NONBLOCK (or RWF_NOWAIT).
pub fn blocking<T>(
    cx: &Context,
    f: &File,
    events: Events,
    nonblocking: bool,
    mut op: impl FnMut() -> Result<T>,
) -> Result<T> {
    match op() {
        Err(EAGAIN) if !nonblocking => {}
        r => return r,
    }
    let Some(q) = f.ops.wait_queue() else {
        return Err(EAGAIN);
    };
    cx.sleeping
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let r = block_until(&*cx.task, &[(q, events)], None, op);
    cx.sleeping
        .store(false, std::sync::atomic::Ordering::Relaxed);
    r
}

/// Where a transfer happens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Position,
    Offset(u64),
}

const RWF_KNOWN: u32 = 0x1f;
const RWF_NOWAIT: u32 = 8;
const RWF_APPEND: u32 = 16;

fn do_read(cx: &Context, f: &Arc<File>, dst: &mut UserIo<'_>, at: At, flags: u32) -> SysResult {
    if !f.readable() {
        return Err(EBADF);
    }
    if at != At::Position && !f.ops.seekable() {
        return Err(ESPIPE);
    }
    if dst.is_empty() {
        return Ok(0);
    }
    let nb = f.nonblocking() || flags & RWF_NOWAIT != 0;
    let r = if f.ops.seekable() {
        read_file(f, dst, at)
    } else {
        read_stream(cx, f, dst, nb)
    };
    if let (At::Offset(_), Ok(1..)) = (at, &r) {
        f.accessed();
    }
    r
}

/// Files with a position never block. A list of buffers is filled in several steps where they lie in memory of
/// different kinds.
fn read_file(f: &Arc<File>, dst: &mut UserIo<'_>, at: At) -> SysResult {
    let mut done = 0;
    loop {
        let r = match at {
            At::Position => f.read(dst),
            At::Offset(o) => f.ops.read(f, dst, o + done as u64),
        };
        match r {
            Ok(n) => {
                done += n;
                if n == 0 || dst.is_empty() || !dst.is_vectored() {
                    return Ok(done);
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(e) => return Err(e),
        }
    }
}

/// Streams: some kinds must know who reads.
fn read_stream(cx: &Context, f: &Arc<File>, dst: &mut UserIo<'_>, nb: bool) -> SysResult {
    let ops = f.ops.as_any();
    if ops.is::<net::Socket>() {
        return super::sockets::read(cx, f, dst, nb);
    }
    if let Some(s) = ops.downcast_ref::<SignalFd>() {
        return s.read_as(cx, nb, dst);
    }
    if let Some(tty) = ops.downcast_ref::<tty::Slave>() {
        tty.check_read(&cx.task)?;
        if !nb {
            cx.sleeping
                .store(true, std::sync::atomic::Ordering::Relaxed);
            let r = tty.read_blocking(&*cx.task, dst);
            cx.sleeping
                .store(false, std::sync::atomic::Ordering::Relaxed);
            return r;
        }
    }
    blocking(cx, f, Events::READABLE, nb, || f.read(dst))
}

fn do_write(cx: &Context, f: &Arc<File>, src: &mut UserIo<'_>, at: At, flags: u32) -> SysResult {
    if !f.writable() {
        return Err(EBADF);
    }
    if at != At::Position && !f.ops.seekable() {
        return Err(ESPIPE);
    }
    if let Some(room) = room_in_file(cx, f, at)? {
        src.limit(usize::try_from(room).unwrap_or(usize::MAX));
    }
    let nb = f.nonblocking() || flags & RWF_NOWAIT != 0;
    if f.ops.as_any().is::<net::Socket>() {
        return super::sockets::write(cx, f, src, nb);
    }
    if let Some(tty) = f.ops::<tty::Slave>() {
        tty.check_write(&cx.task)?;
    }
    let r = write_all(cx, f, src, at, flags, nb);
    if let (At::Offset(_), Ok(1..)) = (at, &r) {
        f.modified();
    }
    r
}

fn write_all(
    cx: &Context,
    f: &Arc<File>,
    src: &mut UserIo<'_>,
    at: At,
    flags: u32,
    nb: bool,
) -> SysResult {
    let total = src.len();
    let mut done = 0;
    let r = blocking(cx, f, Events::WRITABLE, nb, || {
        // A stream may take a part: a blocking write goes on until all is taken.
        loop {
            let r = match at {
                At::Position if flags & RWF_APPEND == 0 => f.write(src),
                // Appending at an offset leaves the position alone.
                At::Offset(_)
                    if !src.is_empty()
                        && (flags & RWF_APPEND != 0 || f.flags() & O_APPEND != 0) =>
                {
                    f.ops.append(f, src).map(|(n, _)| n)
                }
                At::Position if !f.ops.seekable() => f.write(src),
                At::Position => f.append(src),
                At::Offset(o) => f.ops.write(f, src, o + done as u64),
            };
            match r {
                Ok(n) => {
                    done += n;
                    if (nb && !f.ops.seekable()) || n == 0 || done >= total {
                        return Ok(done);
                    }
                }
                Err(EAGAIN) => return Err(EAGAIN),
                Err(e) => return if done > 0 { Ok(done) } else { Err(e) },
            }
        }
    });
    match r {
        Err(_) if done > 0 => Ok(done),
        Err(EPIPE) => {
            let _ = cx.kernel.send_to_task(
                &cx.task,
                super::signals::sender_info(cx, SIGPIPE, abi::signal::SI_USER),
            );
            Err(EPIPE)
        }
        r => r,
    }
}

/// A change of a regular file's size to `size`: `EFBIG` and SIGXFSZ beyond RLIMIT_FSIZE.
pub fn check_size(cx: &Context, size: i64) -> Result<()> {
    let limit = cx.group.limits.lock().0[crate::task::limits::FSIZE].current;
    if size < 0 || size as u64 <= limit {
        return Ok(());
    }
    let _ = cx
        .kernel
        .send_to_task(&cx.task, SigInfo::new(SIGXFSZ, abi::signal::SI_KERNEL));
    Err(EFBIG)
}

/// RLIMIT_FSIZE: how much may be written there; `EFBIG` and SIGXFSZ where nothing. `None` without a limit.
fn room_in_file(cx: &Context, f: &File, at: At) -> Result<Option<u64>> {
    let limit = cx.group.limits.lock().0[crate::task::limits::FSIZE].current;
    if limit == u64::MAX || !f.ops.seekable() {
        return Ok(None);
    }
    let offset = match at {
        At::Offset(o) => o,
        At::Position if f.flags() & O_APPEND != 0 => f.ops.append_offset()?,
        At::Position => *f.pos.lock(),
    };
    if offset >= limit {
        let _ = cx
            .kernel
            .send_to_task(&cx.task, SigInfo::new(SIGXFSZ, abi::signal::SI_KERNEL));
        return Err(EFBIG);
    }
    Ok(Some(limit - offset))
}

/// `max`, or less where RLIMIT_FSIZE leaves less room.
fn within_limit(cx: &Context, f: &File, at: At, max: usize) -> Result<usize> {
    let room = room_in_file(cx, f, at)?;
    Ok(room.map_or(max, |r| max.min(usize::try_from(r).unwrap_or(max))))
}

/// The buffer of `read(2)` and `write(2)`; `EFAULT` where it is not in the application's part of the address
/// space at all (`access_ok`).
fn buffer<'a>(mm: &'a mm::Mm, a: &Args) -> Result<UserIo<'a>> {
    let (va, len) = (a.va(1), a.usize(2));
    access_ok(va, len as u64)?;
    Ok(UserIo::new(mm, va, len.min(MAX_RW)))
}

fn access_ok(va: Va, len: u64) -> Result<()> {
    /// The end of user space as Linux has it: what lies above ours faults when it is touched.
    const TASK_SIZE_MAX: u64 = (1 << 47) - abi::PAGE_SIZE;
    match va.checked_add(len) {
        Some(end) if end.0 <= TASK_SIZE_MAX => Ok(()),
        _ => Err(EFAULT),
    }
}

/// Reads an iovec array: `EINVAL` for too many or too long.
pub fn iovec<'a>(mm: &'a mm::Mm, va: Va, count: usize) -> Result<UserIo<'a>> {
    if count > UIO_MAXIOV {
        return Err(EINVAL);
    }
    let mut raw: SmallVec<[[u64; 2]; 8]> = SmallVec::new();
    raw.resize(count, [0, 0]);
    mm.copy_in(va, raw.as_mut_slice().as_mut_bytes())?;
    let mut left = MAX_RW as u64;
    let mut ranges: SmallVec<[UserRange; 8]> = SmallVec::new();
    for [base, len] in raw {
        if len > i64::MAX as u64 {
            return Err(EINVAL);
        }
        let len = len.min(left);
        access_ok(Va(base), len)?;
        left -= len;
        if len > 0 {
            ranges.push(UserRange { va: Va(base), len });
        }
    }
    Ok(UserIo::vectored(mm, ranges))
}

fn offset_arg(raw: i64) -> Result<At> {
    u64::try_from(raw).map(At::Offset).map_err(|_| EINVAL)
}

fn read(cx: &mut Context, a: &Args) -> SysResult {
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    let r = do_read(cx, &f, &mut buffer(&mm, a)?, At::Position, 0);
    if let Ok(1..) | Err(EAGAIN) = r {
        crate::task::offers::after_read(cx, a.i32(0), &f);
    }
    r
}
fn write(cx: &mut Context, a: &Args) -> SysResult {
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_write(cx, &f, &mut buffer(&mm, a)?, At::Position, 0)
}
fn pread64(cx: &mut Context, a: &Args) -> SysResult {
    let at = offset_arg(a.i64(3))?;
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_read(cx, &f, &mut buffer(&mm, a)?, at, 0)
}
fn pwrite64(cx: &mut Context, a: &Args) -> SysResult {
    let at = offset_arg(a.i64(3))?;
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_write(cx, &f, &mut buffer(&mm, a)?, at, 0)
}
fn readv(cx: &mut Context, a: &Args) -> SysResult {
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_read(
        cx,
        &f,
        &mut iovec(&mm, a.va(1), a.usize(2))?,
        At::Position,
        0,
    )
}
fn writev(cx: &mut Context, a: &Args) -> SysResult {
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_write(
        cx,
        &f,
        &mut iovec(&mm, a.va(1), a.usize(2))?,
        At::Position,
        0,
    )
}
fn preadv(cx: &mut Context, a: &Args) -> SysResult {
    let at = offset_arg(a.i64(3))?;
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_read(cx, &f, &mut iovec(&mm, a.va(1), a.usize(2))?, at, 0)
}
fn pwritev(cx: &mut Context, a: &Args) -> SysResult {
    let at = offset_arg(a.i64(3))?;
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_write(cx, &f, &mut iovec(&mm, a.va(1), a.usize(2))?, at, 0)
}
/// The second versions: -1 means the position, and there are flags.
fn at2(a: &Args) -> Result<(At, u32)> {
    let flags = a.u32(5);
    if flags & !RWF_KNOWN != 0 {
        return Err(EOPNOTSUPP);
    }
    Ok((
        if a.i64(3) == -1 {
            At::Position
        } else {
            offset_arg(a.i64(3))?
        },
        flags,
    ))
}
fn preadv2(cx: &mut Context, a: &Args) -> SysResult {
    let (at, flags) = at2(a)?;
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_read(cx, &f, &mut iovec(&mm, a.va(1), a.usize(2))?, at, flags)
}
fn pwritev2(cx: &mut Context, a: &Args) -> SysResult {
    let (at, flags) = at2(a)?;
    let (f, mm) = (cx.fd(a.i32(0))?, cx.mm());
    do_write(cx, &f, &mut iovec(&mm, a.va(1), a.usize(2))?, at, flags)
}

fn lseek(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    if a.u32(2) > 4 {
        return Err(EINVAL);
    }
    f.seek(a.i64(1), a.u32(2)).map(|p| p as usize)
}

fn close(cx: &mut Context, a: &Args) -> SysResult {
    cx.files().close(a.i32(0)).map(|()| 0)
}

/// `close_range(first, last, flags)`.
fn close_range(cx: &mut Context, a: &Args) -> SysResult {
    let (first, last, flags) = (a.u32(0), a.u32(1), a.u32(2));
    if flags & !6 != 0 || first > last {
        return Err(EINVAL);
    }
    if flags & 2 != 0 {
        // CLOSE_RANGE_UNSHARE
        cx.mm().address_space().end_offers();
        let own = cx.files().fork();
        cx.task.set_files(own);
    }
    if flags & 4 != 0 {
        cx.files().cloexec_range(first, last);
    } else {
        cx.files().close_range(first, last);
    }
    Ok(0)
}

fn dup(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    cx.files()
        .install(f, CloseOnExec::No, cx.nofile_limit())
        .map(|n| n as usize)
}
fn dup2(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if a.i32(0) == a.i32(1) {
        return Ok(a.usize(1));
    }
    cx.files()
        .install_at(a.i32(1), f, CloseOnExec::No, cx.nofile_limit())?;
    Ok(a.i32(1) as usize)
}
fn dup3(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(2) & !O_CLOEXEC != 0 || a.i32(0) == a.i32(1) {
        return Err(EINVAL);
    }
    let f = cx.fd(a.i32(0))?;
    cx.files().install_at(
        a.i32(1),
        f,
        CloseOnExec::from_flags(a.u32(2)),
        cx.nofile_limit(),
    )?;
    Ok(a.i32(1) as usize)
}

/// `struct flock`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    pad: i32,
    start: i64,
    len: i64,
    pid: i32,
    pad2: i32,
}

fn lock_range(f: &File, l: &Flock) -> Result<LockRange> {
    let base = match l.whence {
        0 => 0,
        1 => *f.pos.lock(),
        2 => f.ops.stat()?.size,
        _ => return Err(EINVAL),
    };
    LockRange::new(base, l.start, l.len)
}

fn fcntl_lock(cx: &Context, fd: i32, f: &Arc<File>, cmd: u32, va: Va) -> SysResult {
    let mm = cx.mm();
    let mut l: Flock = mm.read_obj(va)?;
    let ofd = cmd >= F_OFD_GETLK;
    if ofd && l.pid != 0 {
        return Err(EINVAL);
    }
    let (owner, pid) = if ofd {
        (Owner::OpenFile(f.id), -1)
    } else {
        (Owner::Posix(cx.files().id()), cx.group.tgid)
    };
    let kind = match l.kind {
        0 => Some(LockKind::Read),
        1 => Some(LockKind::Write),
        2 => None,
        _ => return Err(EINVAL),
    };
    let range = lock_range(f, &l)?;
    if matches!(cmd, F_GETLK | F_OFD_GETLK) {
        let kind = kind.ok_or(EINVAL)?;
        match cx.task.with_paths(|p| p.get_lock(f, owner, kind, range))? {
            None => l.kind = 2,
            Some(c) => {
                l.kind = if c.kind == LockKind::Read { 0 } else { 1 };
                l.whence = 0;
                l.start = c.range.start as i64;
                l.len = if c.range.end >= i64::MAX as u64 {
                    0
                } else {
                    (c.range.end - c.range.start + 1) as i64
                };
                l.pid = if c.pid > 0 {
                    cx.number_of(c.pid)
                } else {
                    c.pid
                };
            }
        }
        mm.write_obj(va, &l)?;
        return Ok(0);
    }
    match kind {
        Some(LockKind::Read) if !f.readable() => return Err(EBADF),
        Some(LockKind::Write) if !f.writable() => return Err(EBADF),
        _ => {}
    }
    let wait = if matches!(cmd, F_SETLKW | F_OFD_SETLKW) {
        Wait::Yes
    } else {
        Wait::No
    };
    cx.task
        .with_paths(|p| p.set_lock(f, owner, kind, range, pid, wait))?;
    // A close of the descriptor in the meantime found nothing to let go.
    if !ofd && kind.is_some() && !cx.fd(fd).is_ok_and(|now| Arc::ptr_eq(&now, f)) {
        cx.task
            .with_paths(|p| p.set_lock(f, owner, None, range, pid, Wait::No))?;
        return Err(EBADF);
    }
    Ok(0)
}

/// The owner that a number means: a process, or negative a process group. `ESRCH` for one that is not to be seen.
fn owner_id(cx: &Context, n: i32) -> Result<i32> {
    let id = cx.id_of(n.checked_abs().ok_or(EINVAL)?);
    match n {
        0 => Ok(0),
        1.. => id,
        _ => Ok(-id?),
    }
}

/// The other way round; 0 where it is not to be seen.
fn owner_number(cx: &Context, id: i32) -> i32 {
    let n = cx.number_of(id.saturating_abs());
    if id < 0 { -n } else { n }
}

/// `fcntl(fd, cmd, arg)`.
fn fcntl(cx: &mut Context, a: &Args) -> SysResult {
    let (fd, cmd) = (a.i32(0), a.u32(1));
    let f = cx.fd(fd)?;
    if f.flags() & O_PATH != 0
        && !matches!(cmd, F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL)
    {
        return Err(EBADF);
    }
    let files = cx.files();
    match cmd {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            let limit = cx.nofile_limit();
            if a.i32(2) < 0 || a.u64(2) >= limit {
                return Err(EINVAL);
            }
            let c = if cmd == F_DUPFD {
                CloseOnExec::No
            } else {
                CloseOnExec::Yes
            };
            files
                .install_from(a.i32(2), f, c, limit)
                .map(|n| n as usize)
        }
        F_GETFD => Ok(usize::from(files.cloexec(fd)? == CloseOnExec::Yes)),
        F_SETFD => {
            let on = if a.u32(2) & FD_CLOEXEC != 0 {
                CloseOnExec::Yes
            } else {
                CloseOnExec::No
            };
            files.set_cloexec(fd, on).map(|()| 0)
        }
        F_GETFL => Ok((f.flags()
            | if f.flags() & O_PATH == 0 {
                O_LARGEFILE
            } else {
                0
            }) as usize),
        F_SETFL => {
            // Append-only files are not kept.
            let new = a.u32(2);
            if new & O_NOATIME & !f.flags() != 0
                && let Some(p) = &f.path
                && !vfs::inode::owner_or_capable(p.inode()?.perm()?, &cx.cred())
            {
                return Err(EPERM);
            }
            f.set_flags(new);
            Ok(0)
        }
        F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW => {
            fcntl_lock(cx, fd, &f, cmd, a.va(2))
        }
        F_SETOWN => {
            let owner = owner_id(cx, a.i32(2))?;
            f.owner.lock().0 = owner;
            Ok(0)
        }
        F_GETOWN => {
            let owner = f.owner.lock().0;
            Ok(owner_number(cx, owner) as usize)
        }
        F_SETOWN_EX => {
            let [kind, pid]: [i32; 2] = cx.mm().read_obj(a.va(2))?;
            let owner = owner_id(
                cx,
                match kind {
                    0 | 1 => pid,
                    2 => pid.checked_neg().ok_or(EINVAL)?,
                    _ => return Err(EINVAL),
                },
            )?;
            f.owner.lock().0 = owner;
            Ok(0)
        }
        F_GETOWN_EX => {
            let o = f.owner.lock().0;
            let o = owner_number(cx, o);
            let ex = if o < 0 { [2, -o] } else { [1, o] };
            cx.mm().write_obj(a.va(2), &ex)?;
            Ok(0)
        }
        F_SETSIG => {
            if a.u64(2) > 64 {
                return Err(EINVAL);
            }
            f.owner.lock().1 = a.i32(2);
            Ok(0)
        }
        F_GETSIG => Ok(f.owner.lock().1 as usize),
        // F_SETPIPE_SZ, F_GETPIPE_SZ
        1031 | 1032 => {
            let p = f.ops::<ipc::pipe::PipeEnd>().ok_or(EBADF)?;
            if cmd == 1032 {
                return Ok(p.capacity());
            }
            let privileged = if cx.cred().has(vfs::Caps::SYS_RESOURCE) {
                ipc::pipe::Privileged::Yes
            } else {
                ipc::pipe::Privileged::No
            };
            p.set_capacity(a.u32(2), privileged)
        }
        // F_ADD_SEALS, F_GET_SEALS
        1033 => tmpfs::add_seals(&f, a.u32(2)).map(|()| 0),
        1034 => tmpfs::get_seals(&f).map(|s| s as usize),
        // F_GETLEASE: none is held
        1025 => Ok(2),
        _ => Err(EINVAL),
    }
}

fn flock(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    let op = a.u32(1);
    let wait = if op & 4 != 0 { Wait::No } else { Wait::Yes };
    let kind = match op & !4 {
        1 => Some(LockKind::Read),
        2 => Some(LockKind::Write),
        8 => None,
        _ => return Err(EINVAL),
    };
    cx.task.with_paths(|p| p.flock(&f, kind, wait))?;
    Ok(0)
}

struct Caller<'a>(&'a Context);

impl IoctlContext for Caller<'_> {
    fn copy_in(&self, va: Va, dst: &mut [u8]) -> Result<()> {
        self.0.mm().copy_in(va, dst)
    }
    fn copy_out(&self, va: Va, src: &[u8]) -> Result<()> {
        self.0.mm().copy_out(va, src)
    }
    fn credentials(&self) -> Arc<vfs::Credentials> {
        self.0.cred()
    }
    fn task(&self) -> &dyn Any {
        &self.0.task
    }
}

const TIOCGPTPEER: u32 = 0x5441;

/// `ioctl(TIOCGPTPEER)`: opens the other side of a terminal, by its name where /dev/pts is mounted.
fn open_peer(cx: &Context, m: &tty::Master, flags: u32) -> SysResult {
    let files = cx.files();
    let slot = files.reserve(cx.nofile_limit())?;
    let flags = flags & (O_ACCMODE | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    let how = vfs::ops::OpenHow::new(flags, 0);
    let name = format!("/dev/pts/{}", m.pty().index);
    let is_peer = |f: &Arc<File>| {
        f.ops::<tty::Slave>()
            .is_some_and(|s| Arc::ptr_eq(s.pty(), m.pty()))
    };
    let named = cx
        .task
        .with_paths(|p| p.open(&vfs::At::Cwd, name.as_bytes(), how))
        .ok()
        .filter(is_peer);
    let f = match named {
        Some(f) => f,
        None => File::new(m.pty().open(flags, &cx.task)?, flags, None, cx.cred()),
    };
    Ok(slot.install(f, CloseOnExec::from_flags(flags)) as usize)
}

/// `ioctl(fd, cmd, arg)`: what concerns every descriptor is here, the rest is the file's.
fn ioctl(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    let cmd = a.u32(1);
    match cmd {
        // FIONCLEX, FIOCLEX
        0x5450 => {
            return cx
                .files()
                .set_cloexec(a.i32(0), CloseOnExec::No)
                .map(|()| 0);
        }
        0x5451 => {
            return cx
                .files()
                .set_cloexec(a.i32(0), CloseOnExec::Yes)
                .map(|()| 0);
        }
        // FIONBIO, FIOASYNC
        0x5421 | 0x5452 => {
            let on: i32 = cx.mm().read_obj(a.va(2))?;
            let bit = if cmd == 0x5421 {
                O_NONBLOCK
            } else {
                vfs::file::O_ASYNC
            };
            let flags = if on != 0 {
                f.flags() | bit
            } else {
                f.flags() & !bit
            };
            f.set_flags(flags);
            return Ok(0);
        }
        // FIOSETOWN, SIOCSPGRP; FIOGETOWN, SIOCGPGRP: of sockets only
        0x8901 | 0x8902 if f.ops::<net::Socket>().is_some() => {
            let owner = owner_id(cx, cx.mm().read_obj::<i32>(a.va(2))?)?;
            f.owner.lock().0 = owner;
            return Ok(0);
        }
        0x8903 | 0x8904 if f.ops::<net::Socket>().is_some() => {
            let owner = f.owner.lock().0;
            cx.mm().write_obj(a.va(2), &owner_number(cx, owner))?;
            return Ok(0);
        }
        TIOCGPTPEER => {
            if let Some(m) = f.ops::<tty::Master>() {
                return open_peer(cx, m, a.u32(2));
            }
        }
        _ => {}
    }
    let nb = f.nonblocking();
    blocking(cx, &f, Events::READABLE | Events::WRITABLE, nb, || {
        f.ops.ioctl(&f, &Caller(cx), cmd, a.u64(2))
    })
    .or_else(|e| {
        // FIONREAD of a regular file: what is left.
        if e == ENOTTY && cmd == 0x541b && f.ops.seekable() {
            let left = f.ops.stat()?.size as i64 - *f.pos.lock() as i64;
            cx.mm().write_obj(a.va(2), &(left as i32))?;
            return Ok(0);
        }
        Err(e)
    })
    .map(|v| v as usize)
}

fn sync_file(cx: &Context, fd: i32, data_only: DataOnly) -> SysResult {
    let f = cx.fd(fd)?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    f.ops.sync(data_only).map(|()| 0)
}
fn fsync(cx: &mut Context, a: &Args) -> SysResult {
    sync_file(cx, a.i32(0), DataOnly::No)
}
fn fdatasync(cx: &mut Context, a: &Args) -> SysResult {
    sync_file(cx, a.i32(0), DataOnly::Yes)
}
fn sync_file_range(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(3) & !7 != 0 || a.i64(1) < 0 || a.i64(2) < 0 {
        return Err(EINVAL);
    }
    let f = cx.fd(a.i32(0))?;
    if !f.ops.seekable() {
        return Err(ESPIPE);
    }
    f.ops.sync(DataOnly::Yes).map(|()| 0)
}
fn sync(_cx: &mut Context, _: &Args) -> SysResult {
    // What is dirty on the host is the host's to write; in memory nothing is.
    Ok(0)
}
fn syncfs(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    cx.task.with_paths(|p| p.syncfs(&f)).map(|()| 0)
}

fn fallocate(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    let (offset, len) = (a.i64(2), a.i64(3));
    if offset < 0 || len <= 0 {
        return Err(EINVAL);
    }
    if !f.writable() {
        return Err(EBADF);
    }
    if !f.ops.seekable() {
        return Err(ESPIPE);
    }
    let end = offset.checked_add(len).ok_or(EFBIG)?;
    if a.u32(1) & FALLOC_FL_KEEP_SIZE == 0 && end as u64 > f.ops.stat()?.size {
        check_size(cx, end)?;
    }
    f.ops
        .allocate(a.i32(1), offset as u64, len as u64)
        .map(|()| 0)
}

fn fadvise64(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if !f.ops.seekable() {
        return Err(ESPIPE);
    }
    // Advice: checked, and taken as read.
    if a.u32(3) > 5 || a.i64(2) < 0 {
        Err(EINVAL)
    } else {
        Ok(0)
    }
}
fn readahead(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if !f.readable() {
        return Err(EBADF);
    }
    if f.ops.mappable().is_err() {
        Err(EINVAL)
    } else {
        Ok(0)
    }
}

/// Copies between two files through a buffer; gives the bytes.
fn copy_between(
    cx: &Context,
    from: &Arc<File>,
    to: &Arc<File>,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    max: usize,
) -> SysResult {
    let mut buf = vec![0u8; max.min(128 << 10)];
    let mut done = 0;
    while done < max {
        let want = (max - done).min(buf.len());
        let n = match blocking(
            cx,
            from,
            Events::READABLE,
            from.nonblocking() || done > 0,
            || read(&mut buf[..want]),
        ) {
            Ok(0) => break,
            Ok(n) => n,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        };
        let mut src = vfs::file::BufSource::new(&buf[..n]);
        let mut put = 0;
        while put < n {
            match blocking(cx, to, Events::WRITABLE, to.nonblocking(), || {
                to.write(&mut src)
            }) {
                Ok(0) => break,
                Ok(w) => put += w,
                Err(e) if done + put == 0 => return Err(e),
                Err(_) => return Ok(done + put),
            }
        }
        done += put;
        if put < n || n < want && !from.ops.seekable() {
            break;
        }
    }
    Ok(done)
}

/// Takes an `off_t *` argument: `None` for a null pointer.
fn offset_at(cx: &Context, va: Option<Va>) -> Result<Option<u64>> {
    match va {
        None => Ok(None),
        Some(va) => {
            let o: i64 = cx.mm().read_obj(va)?;
            u64::try_from(o).map(Some).map_err(|_| EINVAL)
        }
    }
}

/// `sendfile(out, in, offset, count)`.
fn sendfile(cx: &mut Context, a: &Args) -> SysResult {
    if a.i64(3) < 0 {
        return Err(EINVAL);
    }
    let (to, from) = (cx.fd(a.i32(0))?, cx.fd(a.i32(1))?);
    if !from.readable() || !to.writable() {
        return Err(EBADF);
    }
    if to.flags() & O_APPEND != 0 {
        return Err(EINVAL);
    }
    let start = offset_at(cx, a.va_opt(2))?;
    if start.is_some() && !from.ops.seekable() {
        return Err(ESPIPE);
    }
    let max = within_limit(cx, &to, At::Position, a.usize(3).min(MAX_RW))?;
    transfer(cx, &from, &to, start, a.va_opt(2), max)
}

/// Reads at `start` (or the position) and writes at the other's position; only what was written moves.
fn transfer(
    cx: &Context,
    from: &Arc<File>,
    to: &Arc<File>,
    start: Option<u64>,
    back: Option<Va>,
    max: usize,
) -> SysResult {
    let begin = start.unwrap_or(if from.ops.seekable() {
        *from.pos.lock()
    } else {
        0
    });
    let mut at = begin;
    let n = copy_between(
        cx,
        from,
        to,
        |buf| {
            let mut sink = vfs::file::BufSink::new(buf);
            let n = from.ops.read(from, &mut sink, at)?;
            at += n as u64;
            Ok(n)
        },
        max,
    )?;
    match (start, back) {
        (Some(_), Some(va)) => cx.mm().write_obj(va, &((begin + n as u64) as i64))?,
        _ if from.ops.seekable() => *from.pos.lock() = begin + n as u64,
        _ => {}
    }
    Ok(n)
}

/// `copy_file_range(in, off_in, out, off_out, len, flags)`.
fn copy_file_range(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(5) != 0 {
        return Err(EINVAL);
    }
    let (from, to) = (cx.fd(a.i32(0))?, cx.fd(a.i32(2))?);
    if !from.readable() || !to.writable() || to.flags() & O_APPEND != 0 {
        return Err(EBADF);
    }
    let (s1, s2) = (from.ops.stat()?, to.ops.stat()?);
    for s in [&s1, &s2] {
        match s.mode & 0o170_000 {
            0o100_000 => {}
            0o040_000 => return Err(EISDIR),
            _ => return Err(EINVAL),
        }
    }
    let (o1, o2) = (offset_at(cx, a.va_opt(1))?, offset_at(cx, a.va_opt(3))?);
    let begin1 = o1.unwrap_or(*from.pos.lock());
    let begin2 = o2.unwrap_or(*to.pos.lock());
    let max = a.usize(4).min(MAX_RW);
    if (s1.dev, s1.ino) == (s2.dev, s2.ino)
        && begin1 < begin2.saturating_add(max as u64)
        && begin2 < begin1.saturating_add(max as u64)
    {
        return Err(EINVAL);
    }
    let max = within_limit(cx, &to, At::Offset(begin2), max)?;
    let mut buf = vec![0u8; max.min(128 << 10)];
    let mut done = 0usize;
    while done < max {
        let want = (max - done).min(buf.len());
        let mut sink = vfs::file::BufSink::new(&mut buf[..want]);
        let n = match from.ops.read(&from, &mut sink, begin1 + done as u64) {
            Ok(0) => break,
            Ok(n) => n,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        };
        let mut src = vfs::file::BufSource::new(&buf[..n]);
        let w = match to.ops.write(&to, &mut src, begin2 + done as u64) {
            Ok(w) => w,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        };
        done += w;
        if w < n {
            break;
        }
    }
    let mm = cx.mm();
    match a.va_opt(1) {
        Some(va) => mm.write_obj(va, &(begin1 + done as u64))?,
        None => *from.pos.lock() = begin1 + done as u64,
    }
    match a.va_opt(3) {
        Some(va) => mm.write_obj(va, &(begin2 + done as u64))?,
        None => *to.pos.lock() = begin2 + done as u64,
    }
    Ok(done)
}

/// `splice(in, off_in, out, off_out, len, flags)`: one side is a pipe.
fn splice(cx: &mut Context, a: &Args) -> SysResult {
    let flags = a.u32(5);
    if flags & !15 != 0 {
        return Err(EINVAL);
    }
    let (from, to) = (cx.fd(a.i32(0))?, cx.fd(a.i32(2))?);
    if !from.readable() || !to.writable() {
        return Err(EBADF);
    }
    let (pi, po) = (
        from.ops::<ipc::pipe::PipeEnd>(),
        to.ops::<ipc::pipe::PipeEnd>(),
    );
    if (pi.is_some() && a.u64(1) != 0) || (po.is_some() && a.u64(3) != 0) {
        return Err(ESPIPE);
    }
    let max = a.usize(4).min(MAX_RW);
    let nb = flags & 2 != 0;
    match (pi, po) {
        (Some(i), Some(o)) => {
            let (qi, qo) = (from.ops.wait_queue(), to.ops.wait_queue());
            let go = || ipc::splice::pipe_to_pipe(i, o, max);
            let block = !(nb || from.nonblocking() || to.nonblocking());
            match (block, qi, qo) {
                (true, Some(qi), Some(qo)) => block_until(
                    &*cx.task,
                    &[(qi, Events::READABLE), (qo, Events::WRITABLE)],
                    None,
                    go,
                ),
                _ => go(),
            }
        }
        (None, Some(o)) => {
            let start = offset_at(cx, a.va_opt(1))?;
            let room = blocking(cx, &to, Events::WRITABLE, nb || to.nonblocking(), || {
                ipc::splice::room(o)
            })?;
            transfer(cx, &from, &to, start, a.va_opt(1), max.min(room))
        }
        (Some(i), None) => {
            let start = offset_at(cx, a.va_opt(3))?;
            let max = within_limit(cx, &to, start.map_or(At::Position, At::Offset), max)?;
            let bytes = blocking(
                cx,
                &from,
                Events::READABLE,
                nb || from.nonblocking(),
                || ipc::splice::take(i, max),
            )?;
            let mut src = vfs::file::BufSource::new(&bytes);
            let r = blocking(
                cx,
                &to,
                Events::WRITABLE,
                to.nonblocking(),
                || match start {
                    Some(o) => to.ops.write(&to, &mut src, o),
                    None => to.write(&mut src),
                },
            );
            let n = r.as_ref().copied().unwrap_or(0);
            if n < bytes.len() {
                ipc::splice::give_back(i, &bytes[n..]);
            }
            if let (Some(va), Some(o)) = (a.va_opt(3), start) {
                cx.mm().write_obj(va, &(o + n as u64))?;
            }
            r
        }
        (None, None) => Err(EINVAL),
    }
}

/// `tee(in, out, len, flags)`.
fn tee(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(3) & !15 != 0 {
        return Err(EINVAL);
    }
    let (from, to) = (cx.fd(a.i32(0))?, cx.fd(a.i32(1))?);
    let i = from.ops::<ipc::pipe::PipeEnd>().ok_or(EINVAL)?;
    let o = to.ops::<ipc::pipe::PipeEnd>().ok_or(EINVAL)?;
    if !from.readable() || !to.writable() {
        return Err(EBADF);
    }
    let nb = a.u32(3) & 2 != 0 || from.nonblocking();
    blocking(cx, &from, Events::READABLE, nb, || {
        ipc::splice::tee(i, o, a.usize(2).min(MAX_RW))
    })
}

/// `vmsplice(fd, iov, count, flags)`: copies.
fn vmsplice(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(3) & !15 != 0 {
        return Err(EINVAL);
    }
    let f = cx.fd(a.i32(0))?;
    f.ops::<ipc::pipe::PipeEnd>().ok_or(EBADF)?;
    let mm = cx.mm();
    let mut io = iovec(&mm, a.va(1), a.usize(2))?;
    if f.writable() {
        do_write(cx, &f, &mut io, At::Position, 0)
    } else {
        do_read(cx, &f, &mut io, At::Position, 0)
    }
}

/// `memfd_create(name, flags)`.
fn memfd_create(cx: &mut Context, a: &Args) -> SysResult {
    let name = cx
        .mm()
        .read_cstr(a.va(0), 250)
        .map_err(|e| if e == ENAMETOOLONG { EINVAL } else { e })?;
    let f = cx.kernel.shm.memfd(&name, a.u32(1), &cx.cred())?;
    let c = if a.u32(1) & 1 != 0 {
        CloseOnExec::Yes
    } else {
        CloseOnExec::No
    };
    cx.files()
        .install(f, c, cx.nofile_limit())
        .map(|n| n as usize)
}

/// Bytes left, for the helpers above.
trait Left {
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
impl Left for UserIo<'_> {
    fn len(&self) -> usize {
        Sink::remaining(self).max(Source::remaining(self))
    }
}

/// Milliseconds, or a timespec, as poll's way of waiting.
pub fn poll_wait(nanos: Option<i64>) -> ipc::poll::Wait {
    match nanos {
        None => ipc::poll::Wait::Forever,
        Some(0) => ipc::poll::Wait::No,
        Some(n) => wait::deadline_after(std::time::Duration::from_nanos(n as u64))
            .map_or(ipc::poll::Wait::Forever, ipc::poll::Wait::Until),
    }
}

/// Reads an optional `struct timespec`.
pub fn timespec_arg(cx: &Context, va: Option<Va>) -> Result<Option<i64>> {
    match va {
        None => Ok(None),
        Some(va) => Ok(Some(
            cx.mm().read_obj::<Timespec>(va)?.to_nanos().ok_or(EINVAL)?,
        )),
    }
}

/// See [`crate::syscalls::families::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(0, "read", &[Arg::Fd, Arg::Out, Arg::Uint], read),
    Call::new(1, "write", &[Arg::Fd, Arg::In(2), Arg::Uint], write),
    Call::new(3, "close", &[Arg::Fd], close),
    Call::new(8, "lseek", &[Arg::Fd, Arg::Int, Arg::Int], lseek),
    Call::new(16, "ioctl", &[Arg::Fd, Arg::Hex, Arg::Hex], ioctl),
    Call::new(
        17,
        "pread64",
        &[Arg::Fd, Arg::Out, Arg::Uint, Arg::Uint],
        pread64,
    ),
    Call::new(
        18,
        "pwrite64",
        &[Arg::Fd, Arg::In(2), Arg::Uint, Arg::Uint],
        pwrite64,
    ),
    Call::new(19, "readv", &[Arg::Fd, Arg::Ptr, Arg::Uint], readv),
    Call::new(20, "writev", &[Arg::Fd, Arg::Iovec(2), Arg::Uint], writev),
    Call::new(32, "dup", &[Arg::Fd], dup),
    Call::new(33, "dup2", &[Arg::Fd, Arg::Fd], dup2),
    Call::new(
        40,
        "sendfile",
        &[Arg::Fd, Arg::Fd, Arg::Ptr, Arg::Uint],
        sendfile,
    ),
    Call::new(72, "fcntl", &[Arg::Fd, Arg::Int, Arg::Hex], fcntl).note("no leases, no dnotify"),
    Call::new(73, "flock", &[Arg::Fd, Arg::Hex], flock),
    Call::new(74, "fsync", &[Arg::Fd], fsync),
    Call::new(75, "fdatasync", &[Arg::Fd], fdatasync),
    Call::new(162, "sync", &[], sync),
    Call::new(
        187,
        "readahead",
        &[Arg::Fd, Arg::Uint, Arg::Uint],
        readahead,
    )
    .note("advice, without effect"),
    Call::new(
        221,
        "fadvise64",
        &[Arg::Fd, Arg::Uint, Arg::Uint, Arg::Int],
        fadvise64,
    )
    .note("advice, without effect"),
    Call::new(
        275,
        "splice",
        &[Arg::Fd, Arg::Ptr, Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Hex],
        splice,
    ),
    Call::new(276, "tee", &[Arg::Fd, Arg::Fd, Arg::Uint, Arg::Hex], tee),
    Call::new(
        277,
        "sync_file_range",
        &[Arg::Fd, Arg::Uint, Arg::Uint, Arg::Hex],
        sync_file_range,
    ),
    Call::new(
        278,
        "vmsplice",
        &[Arg::Fd, Arg::Iovec(2), Arg::Uint, Arg::Hex],
        vmsplice,
    )
    .note("copies"),
    Call::new(
        285,
        "fallocate",
        &[Arg::Fd, Arg::Hex, Arg::Uint, Arg::Uint],
        fallocate,
    ),
    Call::new(292, "dup3", &[Arg::Fd, Arg::Fd, Arg::OpenFlags], dup3),
    Call::new(
        295,
        "preadv",
        &[Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Uint],
        preadv,
    ),
    Call::new(
        296,
        "pwritev",
        &[Arg::Fd, Arg::Iovec(2), Arg::Uint, Arg::Uint],
        pwritev,
    ),
    Call::new(306, "syncfs", &[Arg::Fd], syncfs),
    Call::new(319, "memfd_create", &[Arg::Path, Arg::Hex], memfd_create),
    Call::new(
        326,
        "copy_file_range",
        &[Arg::Fd, Arg::Ptr, Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Hex],
        copy_file_range,
    ),
    Call::new(
        327,
        "preadv2",
        &[Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Uint, Arg::Uint, Arg::Hex],
        preadv2,
    ),
    Call::new(
        328,
        "pwritev2",
        &[
            Arg::Fd,
            Arg::Iovec(2),
            Arg::Uint,
            Arg::Uint,
            Arg::Uint,
            Arg::Hex,
        ],
        pwritev2,
    ),
    Call::new(
        436,
        "close_range",
        &[Arg::Fd, Arg::Fd, Arg::Hex],
        close_range,
    ),
];
