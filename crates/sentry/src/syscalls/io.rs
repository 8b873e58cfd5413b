//! Reading and writing: buffers, lists of buffers, positions.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::errno::*;
use abi::signal::SIGXFSZ;
use abi::{Result, SigInfo, Va};
use mm::{UserIo, UserRange};
use smallvec::SmallVec;
use std::sync::Arc;
use vfs::Caps;
use vfs::file::{DataOnly, File, Io, IoCaller, O_APPEND, Sink, Source};
use wait::Events;
use zerocopy::IntoBytes;

flags! {
    /// Of preadv2(2) and pwritev2(2): others than these give `EOPNOTSUPP`.
    pub(super) struct RwFlags: u32, kept {
        RWF_HIPRI,
        RWF_DSYNC,
        RWF_SYNC,
        RWF_NOWAIT,
        RWF_APPEND,
    }
}

impl RwFlags {
    /// `EOPNOTSUPP` for those that there are not, where there is something to read or write.
    pub(super) fn check(self, bytes: usize) -> Result<()> {
        let fine = bytes == 0 || RwFlags::all().contains(self);
        fine.then_some(()).ok_or(EOPNOTSUPP)
    }
}

named! {
    /// Where lseek(2) counts from.
    struct Whence(u32) {
        SEEK_SET,
        SEEK_CUR,
        SEEK_END,
        SEEK_DATA,
        SEEK_HOLE,
    }
}

/// The most bytes of one read or write (`MAX_RW_COUNT`).
pub(super) const MAX_RW: usize = 0x7fff_f000;
/// The most entries of an iovec array.
const UIO_MAXIOV: usize = 1024;

/// Blocks until a file operation can go on; at once with O_NONBLOCK (or RWF_NOWAIT).
pub(super) fn blocking<T>(
    cx: &Context,
    f: &File,
    events: Events,
    nonblocking: bool,
    mut op: impl FnMut() -> Result<T>,
) -> Result<T> {
    call(cx, f, nonblocking).wait(events, None, || cx.task.with_room(&mut op))
}

/// This task's call on a stream.
pub(super) fn call<'a>(cx: &'a Context, file: &'a File, nonblocking: bool) -> Io<'a> {
    Io {
        file,
        caller: cx,
        nonblocking,
    }
}

/// Where a transfer happens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Position,
    Offset(u64),
}

impl At {
    /// So many bytes further.
    fn plus(self, n: usize) -> At {
        match self {
            At::Position => At::Position,
            At::Offset(o) => At::Offset(o + n as u64),
        }
    }
}

const RWF_NOWAIT: u32 = RwFlags::RWF_NOWAIT.bits();
const RWF_SYNC: u32 = RwFlags::RWF_SYNC.bits();
const RWF_DSYNC: u32 = RwFlags::RWF_DSYNC.bits();
const RWF_APPEND: u32 = RwFlags::RWF_APPEND.bits();

pub(super) fn do_read(
    cx: &Context,
    f: &Arc<File>,
    dst: &mut UserIo<'_>,
    at: At,
    flags: u32,
) -> SysResult {
    check_place(f, at)?;
    if !f.readable() {
        return Err(EBADF);
    }
    f.may_read(cx)?;
    if dst.is_empty() {
        return Ok(0);
    }
    if let At::Offset(o) = at {
        f.check_range(o, dst.len())?;
    }
    let nb = f.nonblocking() || flags & RWF_NOWAIT != 0;
    if !f.ops.seekable() {
        return f.ops.read_as(&call(cx, f, nb), dst);
    }
    if at == At::Position && dst.len() <= SHORT && !dst.is_vectored() {
        return read_file(f, dst, at);
    }
    let r = transfer(f, at, dst.len(), |at| read_pieces(cx, f, dst, at));
    if let Ok(1..) = r {
        f.accessed();
    }
    r
}

/// So much is nearly always read in one step: others see the position move once.
const SHORT: usize = 64 << 10;
/// So much of a file is read or written before a look at whether the task is to end.
const PIECE: usize = 8 << 20;

/// Reads or writes of more than a piece, or of several buffers, by `pieces`. At the position of a
/// regular file, the position is held for the whole call, so that two threads' calls neither share
/// nor leave out a part.
fn transfer(f: &File, at: At, len: usize, pieces: impl FnOnce(At) -> SysResult) -> SysResult {
    if at != At::Position || !f.has_atomic_position() {
        return pieces(at);
    }
    f.at_position(|offset| {
        f.check_range(offset, len)?;
        pieces(At::Offset(offset))
    })
}

/// A long call stops for SIGKILL (Linux looks after each page).
fn read_pieces(cx: &Context, f: &Arc<File>, dst: &mut UserIo<'_>, at: At) -> SysResult {
    let mut done = 0;
    while dst.len() > PIECE {
        if cx.is_killed() {
            return Ok(done);
        }
        match read_file(f, &mut dst.split(PIECE), at.plus(done)) {
            Ok(PIECE) => done += PIECE,
            Ok(n) => return Ok(done + n),
            Err(_) if done > 0 => return Ok(done),
            Err(e) => return Err(e),
        }
    }
    match read_file(f, dst, at.plus(done)) {
        Ok(n) => Ok(done + n),
        Err(_) if done > 0 => Ok(done),
        r => r,
    }
}

/// Files with a position never block. Buffers are filled in several steps where they lie in memory
/// of different kinds, or in many pieces.
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
                if n == 0 || dst.is_empty() || !dst.was_cut() {
                    return Ok(done);
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(e) => return Err(e),
        }
    }
}

pub(super) fn do_write(
    cx: &Context,
    f: &Arc<File>,
    src: &mut UserIo<'_>,
    at: At,
    flags: u32,
) -> SysResult {
    check_place(f, at)?;
    if !f.writable() {
        return Err(EBADF);
    }
    if let At::Offset(o) = at {
        f.check_range(o, src.len())?;
    }
    if let Some(room) = room_in_file(cx, f, at)? {
        src.limit(usize::try_from(room).unwrap_or(usize::MAX));
    }
    let nb = f.nonblocking() || flags & RWF_NOWAIT != 0;
    if !f.ops.seekable() {
        return f.ops.write_as(&call(cx, f, nb), src);
    }
    let appends = flags & RWF_APPEND != 0 || f.flags() & O_APPEND != 0;
    let long = src.len() > PIECE || src.is_vectored();
    let in_pieces = long && !appends;
    let r = if in_pieces {
        transfer(f, at, src.len(), |at| write_pieces(cx, f, src, at, flags))
    } else {
        write_all(cx, f, src, at, flags, nb)
    };
    if let Ok(1..) = r {
        if in_pieces || at != At::Position {
            f.modified();
        }
        written(cx, f)?;
        if flags & (RWF_SYNC | RWF_DSYNC) != 0 {
            let data_only = flags & RWF_SYNC == 0;
            f.ops.sync(if data_only {
                DataOnly::Yes
            } else {
                DataOnly::No
            })?;
        }
    }
    r
}

/// After a write: what the caller's writes take away, though the opener's would not.
pub(super) fn written(cx: &Context, f: &File) -> Result<()> {
    if opener_could_more(cx, f) {
        cx.task.with_paths(|p| p.contents_changed(f))?;
    }
    Ok(())
}

/// Whether the file was opened by somebody whose writes leave set-id bits, which the caller's do
/// not: file systems know the opener only.
fn opener_could_more(cx: &Context, f: &File) -> bool {
    f.cred.has(Caps::FSETID) && f.ops.seekable() && {
        let me = cx.cred();
        !Arc::ptr_eq(&me, &f.cred) && !me.has(Caps::FSETID)
    }
}

/// As [`read_pieces`].
fn write_pieces(
    cx: &Context,
    f: &Arc<File>,
    src: &mut UserIo<'_>,
    at: At,
    flags: u32,
) -> SysResult {
    let mut done = 0;
    while !src.is_empty() && !cx.is_killed() {
        let mut piece = src.split(PIECE);
        let len = piece.len();
        match write_all(cx, f, &mut piece, at.plus(done), flags, false) {
            Ok(n) => {
                done += n;
                if n < len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
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
        // A file may take a part: goes on until all is taken.
        loop {
            // (What was written before there was no room is no reason to stop.)
            let r = cx.task.with_room(|| match at {
                At::Position if flags & RWF_APPEND == 0 => f.write(src),
                // Appending at an offset leaves the position alone.
                At::Offset(_)
                    if !src.is_empty()
                        && (flags & RWF_APPEND != 0 || f.flags() & O_APPEND != 0) =>
                {
                    f.ops.append(f, src).map(|(n, _)| n)
                }
                At::Position => f.append(src),
                At::Offset(o) => f.ops.write(f, src, o + done as u64),
            });
            match r {
                Ok(n) => {
                    done += n;
                    if n == 0 || done >= total || f.ops.short_is_final() {
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
            cx.broken_pipe();
            Err(EPIPE)
        }
        r => r,
    }
}

/// A change of a regular file's size to `size`: `EFBIG` and SIGXFSZ beyond RLIMIT_FSIZE.
pub(super) fn check_size(cx: &Context, size: i64) -> Result<()> {
    let limit = cx.group.limits.lock().0[crate::task::limits::FSIZE].current;
    if size < 0 || size as u64 <= limit {
        return Ok(());
    }
    let _ = cx
        .kernel
        .send_to_task(&cx.task, SigInfo::new(SIGXFSZ, abi::signal::SI_KERNEL));
    Err(EFBIG)
}

/// RLIMIT_FSIZE: how much may be written there; `EFBIG` and SIGXFSZ where nothing. `None` without a
/// limit.
fn room_in_file(cx: &Context, f: &File, at: At) -> Result<Option<u64>> {
    let limit = cx.group.limits.lock().0[crate::task::limits::FSIZE].current;
    if limit == u64::MAX || !f.ops.seekable() {
        return Ok(None);
    }
    let offset = match at {
        At::Offset(o) => o,
        At::Position if f.flags() & O_APPEND != 0 => f.ops.append_offset()?,
        At::Position => f.position()?,
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
pub(super) fn within_limit(cx: &Context, f: &File, at: At, max: usize) -> Result<usize> {
    let room = room_in_file(cx, f, at)?;
    Ok(room.map_or(max, |r| max.min(usize::try_from(r).unwrap_or(max))))
}

/// The buffer of `read(2)` and `write(2)`; `EFAULT` where it is not in the application's part of
/// the address space at all (`access_ok`).
pub(super) fn buffer(mm: &mm::Mm, va: Va, len: usize) -> Result<UserIo<'_>> {
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
pub(super) fn iovec<'a>(mm: &'a mm::Mm, va: Va, count: usize) -> Result<UserIo<'a>> {
    user_ranges(mm, va, count).map(|r| UserIo::vectored(mm, r))
}

/// The ranges of an iovec array that are not empty.
pub(super) fn user_ranges(mm: &mm::Mm, va: Va, count: usize) -> Result<SmallVec<[UserRange; 8]>> {
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
    Ok(ranges)
}

/// `ESPIPE` for an offset where there is none, whatever the file is open for (`FMODE_PREAD`).
fn check_place(f: &File, at: At) -> Result<()> {
    if at != At::Position && !f.ops.seekable() {
        return Err(ESPIPE);
    }
    Ok(())
}

fn offset_arg(raw: i64) -> Result<At> {
    u64::try_from(raw).map(At::Offset).map_err(|_| EINVAL)
}

fn read(cx: &mut Context, fd: Fd, buf: BytesOut) -> SysResult {
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    let r = do_read(cx, &f, &mut buffer(&mm, buf.va, buf.len)?, At::Position, 0);
    if let Ok(1..) | Err(EAGAIN) = r {
        crate::task::lanes::slots::after_read(cx, fd.0, &f);
    }
    r
}
fn write(cx: &mut Context, fd: Fd, buf: BytesIn) -> SysResult {
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    do_write(cx, &f, &mut buffer(&mm, buf.va, buf.len)?, At::Position, 0)
}
fn pread64(cx: &mut Context, fd: Fd, buf: BytesOut, offset: i64) -> SysResult {
    let at = offset_arg(offset)?;
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    do_read(cx, &f, &mut buffer(&mm, buf.va, buf.len)?, at, 0)
}
fn pwrite64(cx: &mut Context, fd: Fd, buf: BytesIn, offset: i64) -> SysResult {
    let at = offset_arg(offset)?;
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    do_write(cx, &f, &mut buffer(&mm, buf.va, buf.len)?, at, 0)
}
fn readv(cx: &mut Context, fd: Fd, list: IovecOut) -> SysResult {
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    do_read(cx, &f, &mut iovec(&mm, list.va, list.len)?, At::Position, 0)
}
fn writev(cx: &mut Context, fd: Fd, list: IovecIn) -> SysResult {
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    do_write(cx, &f, &mut iovec(&mm, list.va, list.len)?, At::Position, 0)
}
fn preadv(cx: &mut Context, fd: Fd, list: IovecOut, offset: i64, _high: u64) -> SysResult {
    let at = offset_arg(offset)?;
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    do_read(cx, &f, &mut iovec(&mm, list.va, list.len)?, at, 0)
}
fn pwritev(cx: &mut Context, fd: Fd, list: IovecIn, offset: i64, _high: u64) -> SysResult {
    let at = offset_arg(offset)?;
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    do_write(cx, &f, &mut iovec(&mm, list.va, list.len)?, at, 0)
}
/// The second versions: -1 means the position, and there are flags.
fn at2(offset: i64) -> Result<At> {
    match offset {
        -1 => Ok(At::Position),
        _ => offset_arg(offset),
    }
}
fn preadv2(
    cx: &mut Context,
    fd: Fd,
    list: IovecOut,
    offset: i64,
    _high: u64,
    flags: RwFlags,
) -> SysResult {
    let at = at2(offset)?;
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    check_place(&f, at)?;
    if !f.readable() {
        return Err(EBADF);
    }
    let mut to = iovec(&mm, list.va, list.len)?;
    flags.check(vfs::Sink::remaining(&to))?;
    do_read(cx, &f, &mut to, at, flags.bits())
}
fn pwritev2(
    cx: &mut Context,
    fd: Fd,
    list: IovecIn,
    offset: i64,
    _high: u64,
    flags: RwFlags,
) -> SysResult {
    let at = at2(offset)?;
    let (f, mm) = (fd.any_file(cx)?, cx.mm());
    check_place(&f, at)?;
    if !f.writable() {
        return Err(EBADF);
    }
    let mut from = iovec(&mm, list.va, list.len)?;
    flags.check(vfs::Source::remaining(&from))?;
    do_write(cx, &f, &mut from, at, flags.bits())
}

fn lseek(cx: &mut Context, fd: Fd, offset: i64, whence: Whence) -> SysResult {
    let f = fd.file(cx)?;
    if whence.0 > Whence::SEEK_HOLE.0 {
        return Err(EINVAL);
    }
    f.seek(offset, whence.0).map(|p| p as usize)
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

calls! {
    read,
    write,
    lseek,
    pread64,
    pwrite64,
    readv,
    writev,
    preadv,
    pwritev,
    preadv2,
    pwritev2,
}
