//! From one descriptor to another: sendfile, copy_file_range, splice and its kin.

use super::SysResult;
use super::args::*;
use super::io::{At, MAX_RW, blocking, user_ranges, within_limit, written};
use crate::task::Context;
use abi::Result;
use abi::errno::*;
use ipc::pipe::PipeEnd;
use mm::UserIo;
use net::sys::SOCK_STREAM;
use std::sync::Arc;
use vfs::FileFlags;
use vfs::file::{File, IoCaller, O_APPEND, Source};
use wait::Events;

flags! {
    /// Of splice(2), tee(2) and vmsplice(2).
    struct SpliceFlags: u32, kept {
        SPLICE_F_MOVE,
        SPLICE_F_NONBLOCK,
        SPLICE_F_MORE,
        SPLICE_F_GIFT,
    }
}

impl SpliceFlags {
    /// `EINVAL` for those that there are not.
    fn check(self) -> Result<()> {
        SpliceFlags::all()
            .contains(self)
            .then_some(())
            .ok_or(EINVAL)
    }
}

/// What splice(2) and tee(2) wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    AsOpened,
    /// Not for pipes (`SPLICE_F_NONBLOCK`).
    NotForPipes,
    /// A request does not wait.
    Never,
}

impl Waits {
    fn of(flags: SpliceFlags) -> Waits {
        match flags.contains(SpliceFlags::SPLICE_F_NONBLOCK) {
            true => Waits::NotForPipes,
            false => Waits::AsOpened,
        }
    }
    fn for_pipe(self, f: &File) -> bool {
        self == Waits::AsOpened && !f.nonblocking()
    }
    fn for_other(self, f: &File) -> bool {
        self != Waits::Never && !f.nonblocking()
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
    while done < max && !cx.is_killed() {
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
        // Only once there is something to write (`do_splice_from`).
        if !to.ops.takes_splices() {
            return Err(EINVAL);
        }
        let mut src = vfs::file::BufSource::new(&buf[..n]);
        let mut put = 0;
        while put < n {
            match blocking(cx, to, Events::WRITABLE, to.nonblocking(), || {
                to.write(&mut src)
            }) {
                Ok(0) => break,
                Ok(w) => {
                    written(cx, to)?;
                    put += w;
                }
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

/// Where an `off_t` argument lies.
type OffsetPtr = UserPtr<i64>;

/// Reads an `off_t *` argument: `None` for a null pointer.
fn offset_at(cx: &Context, at: Option<OffsetPtr>) -> Result<Option<u64>> {
    at.map(|at| u64::try_from(at.read(&cx.mm())?).map_err(|_| EINVAL))
        .transpose()
}

/// `EINVAL` where splice(2) cannot read from `from` (fs/splice.c, `do_splice_read`).
fn spliceable(from: &File) -> Result<()> {
    let is_dir = from.path.as_ref().is_some_and(|p| p.dentry.is_dir());
    (from.ops.can_splice() && !is_dir)
        .then_some(())
        .ok_or(EINVAL)
}

/// A caller that moved bytes where nobody reads any more hears of it by SIGPIPE, too.
fn with_signal<T>(cx: &Context, to: &File, r: Result<T>) -> Result<T> {
    let socket = to.ops::<net::Socket>();
    if r.as_ref().err() == Some(&EPIPE) && socket.is_none_or(|s| s.kind() == SOCK_STREAM) {
        cx.broken_pipe();
    }
    r
}

/// `sendfile(out, in, offset, count)`. Only into a pipe it reads from what has no position, as
/// splice(2) does: else bytes that the other side does not take would be lost (fs/splice.c,
/// `splice_direct_to_actor`). Programs rely on the error: Go's `io.Copy` goes on with reads and
/// writes.
fn sendfile(
    cx: &mut Context,
    to: Fd,
    from: Fd,
    offset: Option<OffsetPtr>,
    count: i64,
) -> SysResult {
    if count < 0 {
        return Err(EINVAL);
    }
    let (to, from) = (to.any_file(cx)?, from.any_file(cx)?);
    if !from.readable() || !to.writable() {
        return Err(EBADF);
    }
    if to.flags() & O_APPEND != 0 {
        return Err(EINVAL);
    }
    let start = offset_at(cx, offset)?;
    if start.is_some() && !from.ops.seekable() {
        return Err(ESPIPE);
    }
    let to_pipe = to.ops::<PipeEnd>().is_some();
    if !to_pipe && !from.ops.seekable() && !from.ops.ignores_seek() {
        return Err(EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    spliceable(&from)?;
    let max = within_limit(cx, &to, At::Position, (count as usize).min(MAX_RW))?;
    let n = with_signal(cx, &to, transfer(cx, &from, &to, start, max))?;
    put_offset(cx, offset, start, n)?;
    Ok(n)
}

/// Reads at `start` (or the position, which moves) and writes at the other's position; only what
/// was written moves.
fn transfer(
    cx: &Context,
    from: &Arc<File>,
    to: &Arc<File>,
    start: Option<u64>,
    max: usize,
) -> SysResult {
    from.may_read(cx)?;
    let begin = start.unwrap_or(if from.ops.seekable() {
        from.position()?
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
    if start.is_none() && from.ops.seekable() {
        from.set_position(begin + n as u64)?;
    }
    if n > 0 {
        from.accessed();
    }
    Ok(n)
}

/// Tells where a transfer from an offset has come to.
fn put_offset(cx: &Context, at: Option<OffsetPtr>, start: Option<u64>, n: usize) -> Result<()> {
    match at.zip(start) {
        Some((at, o)) => at.write(&cx.mm(), &((o + n as u64) as i64)),
        None => Ok(()),
    }
}

/// `copy_file_range(in, off_in, out, off_out, len, flags)`.
fn copy_file_range(
    cx: &mut Context,
    from: Fd,
    from_offset: Option<OffsetPtr>,
    to: Fd,
    to_offset: Option<OffsetPtr>,
    len: usize,
    flags: u32,
) -> SysResult {
    let (from, to) = (from.any_file(cx)?, to.any_file(cx)?);
    let (o1, o2) = (offset_at(cx, from_offset)?, offset_at(cx, to_offset)?);
    if flags != 0 {
        return Err(EINVAL);
    }
    let (s1, s2) = (from.ops.stat()?, to.ops.stat()?);
    for s in [&s1, &s2] {
        match s.mode & 0o170_000 {
            0o100_000 => {}
            0o040_000 => return Err(EISDIR),
            _ => return Err(EINVAL),
        }
    }
    if !from.readable() || !to.writable() || to.flags() & O_APPEND != 0 {
        return Err(EBADF);
    }
    if to.is_flagged(FileFlags::IMMUTABLE) {
        return Err(EPERM);
    }
    from.may_read(cx)?;
    let begin1 = o1.map_or_else(|| from.position(), Ok)?;
    let begin2 = o2.map_or_else(|| to.position(), Ok)?;
    let max = len.min(MAX_RW);
    if (s1.dev, s1.ino) == (s2.dev, s2.ino)
        && begin1 < begin2.saturating_add(max as u64)
        && begin2 < begin1.saturating_add(max as u64)
    {
        return Err(EINVAL);
    }
    let max = within_limit(cx, &to, At::Offset(begin2), max)?;
    let mut buf = vec![0u8; max.min(128 << 10)];
    let mut done = 0usize;
    while done < max && !cx.is_killed() {
        let want = (max - done).min(buf.len());
        let mut sink = vfs::file::BufSink::new(&mut buf[..want]);
        let n = match from.ops.read(&from, &mut sink, begin1 + done as u64) {
            Ok(0) => break,
            Ok(n) => n,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        };
        let mut src = vfs::file::BufSource::new(&buf[..n]);
        let mut put = || to.ops.write(&to, &mut src, begin2 + done as u64);
        let w = match cx.task.with_room(&mut put) {
            Ok(w) => w,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        };
        done += w;
        if w < n {
            break;
        }
    }
    if done > 0 {
        from.accessed();
        to.modified();
        written(cx, &to)?;
    }
    let mm = cx.mm();
    match from_offset {
        Some(at) => at.write(&mm, &((begin1 + done as u64) as i64))?,
        None => from.set_position(begin1 + done as u64)?,
    }
    match to_offset {
        Some(at) => at.write(&mm, &((begin2 + done as u64) as i64))?,
        None => to.set_position(begin2 + done as u64)?,
    }
    Ok(done)
}

/// `splice(in, off_in, out, off_out, len, flags)`: one side is a pipe.
fn splice(
    cx: &mut Context,
    from: Fd,
    from_offset: Option<OffsetPtr>,
    to: Fd,
    to_offset: Option<OffsetPtr>,
    len: usize,
    flags: SpliceFlags,
) -> SysResult {
    // Before all else, the files, too (`sys_splice`).
    if len == 0 {
        return Ok(0);
    }
    flags.check()?;
    let (from, to) = (from.any_file(cx)?, to.any_file(cx)?);
    let pipes = [&from, &to].map(|f| f.ops::<PipeEnd>().is_some());
    let offsets = [from_offset, to_offset];
    if !from.readable() || !to.writable() {
        return Err(EBADF);
    }
    if (0..2).any(|i| pipes[i] && offsets[i].is_some()) {
        return Err(ESPIPE);
    }
    let placeless = |f: &File, offset: Option<OffsetPtr>| offset.is_some() && !f.ops.seekable();
    if placeless(&from, from_offset) || placeless(&to, to_offset) {
        return Err(EINVAL);
    }
    let starts = (offset_at(cx, from_offset)?, offset_at(cx, to_offset)?);
    let waits = Waits::of(flags);
    let n = splice_files(cx, (&from, &to), starts, len, waits)?;
    put_offset(cx, from_offset, starts.0, n)?;
    put_offset(cx, to_offset, starts.1, n)?;
    Ok(n)
}

/// The same with files and offsets in them.
pub(super) fn splice_files(
    cx: &Context,
    (from, to): (&Arc<File>, &Arc<File>),
    starts: (Option<u64>, Option<u64>),
    len: usize,
    waits: Waits,
) -> SysResult {
    if !from.readable() || !to.writable() {
        return Err(EBADF);
    }
    let (pi, po) = (from.ops::<PipeEnd>(), to.ops::<PipeEnd>());
    if pi.is_some() && starts.0.is_some() || po.is_some() && starts.1.is_some() {
        return Err(ESPIPE);
    }
    if starts.0.is_some() && !from.ops.seekable() || starts.1.is_some() && !to.ops.seekable() {
        return Err(EINVAL);
    }
    // What a pipe holds goes to a place, not to whatever the end is by then.
    if pi.is_some() && po.is_none() && to.flags() & O_APPEND != 0 {
        return Err(EINVAL);
    }
    let max = len.min(MAX_RW);
    let r = move_bytes(cx, (from, pi), (to, po), starts, max, waits);
    with_signal(cx, to, r)
}

/// Between two files, of which one at least is a pipe.
fn move_bytes(
    cx: &Context,
    (from, pi): (&Arc<File>, Option<&PipeEnd>),
    (to, po): (&Arc<File>, Option<&PipeEnd>),
    starts: (Option<u64>, Option<u64>),
    max: usize,
    waits: Waits,
) -> SysResult {
    match (pi, po) {
        (Some(i), Some(o)) => {
            let (qi, qo) = (from.ops.wait_queue(), to.ops.wait_queue());
            let go = || ipc::splice::pipe_to_pipe(i, o, max);
            let block = waits.for_pipe(from) && waits.for_pipe(to);
            match (block, qi, qo) {
                (true, Some(qi), Some(qo)) => {
                    cx.block(&[(qi, Events::READABLE), (qo, Events::WRITABLE)], None, go)
                }
                _ => go(),
            }
        }
        (None, Some(o)) => {
            spliceable(from)?;
            let room = blocking(cx, to, Events::WRITABLE, !waits.for_pipe(to), || {
                ipc::splice::room(o, ipc::splice::PIECE)
            })?;
            if waits == Waits::Never && from.ops.wait_queue().is_some() {
                let ready = from.poll(Events::READABLE);
                if (ready & (Events::READABLE | Events::ALWAYS)).is_empty() {
                    return Err(EAGAIN);
                }
            }
            if from.ops.moves_messages() {
                return message_to_pipe(cx, from, o, max, waits);
            }
            transfer(cx, from, to, starts.0, max.min(room))
        }
        (Some(i), None) => out_of_pipe(cx, (from, i), (to, starts.1), max, waits),
        (None, None) => Err(EINVAL),
    }
}

/// A message goes to a pipe, where there is room for it.
fn message_to_pipe(
    cx: &Context,
    from: &Arc<File>,
    to: &PipeEnd,
    max: usize,
    waits: Waits,
) -> SysResult {
    let mut buf = vec![0; max.min(ipc::splice::room(to, max)?)];
    let nb = !waits.for_other(from);
    let n = blocking(cx, from, Events::READABLE, nb, || {
        // Others may have filled it while this waited.
        let room = ipc::splice::room(to, buf.len()).map_err(|_| EINVAL)?;
        let mut sink = vfs::file::BufSink::new(&mut buf[..room]);
        from.ops.read(from, &mut sink, 0)
    })?;
    ipc::splice::append(to, &buf[..n]);
    Ok(n)
}

/// What a pipe holds goes to a place: what that does not take goes back into the pipe.
fn out_of_pipe(
    cx: &Context,
    (from, pipe): (&Arc<File>, &PipeEnd),
    (to, start): (&Arc<File>, Option<u64>),
    max: usize,
    waits: Waits,
) -> SysResult {
    if !to.ops.takes_splices() {
        return Err(EINVAL);
    }
    let max = within_limit(cx, to, start.map_or(At::Position, At::Offset), max)?;
    let piece = match to.ops.moves_messages() {
        true => max,
        false => ipc::splice::PIECE,
    };
    let nb = !waits.for_pipe(from);
    let bytes = blocking(cx, from, Events::READABLE, nb, || {
        ipc::splice::take(pipe, max.min(piece))
    })?;
    let mut src = vfs::file::BufSource::new(&bytes);
    let nb = !waits.for_other(to);
    let r = blocking(cx, to, Events::WRITABLE, nb, || match start {
        Some(o) => to.ops.write(to, &mut src, o),
        None => to.write(&mut src),
    });
    let n = r.as_ref().copied().unwrap_or(0);
    if n > 0 {
        written(cx, to)?;
    }
    if n < bytes.len() {
        ipc::splice::give_back(pipe, &bytes[n..]);
    }
    r
}

/// `tee(in, out, len, flags)`.
fn tee(cx: &mut Context, from: Fd, to: Fd, len: usize, flags: SpliceFlags) -> SysResult {
    flags.check()?;
    if len == 0 {
        return Ok(0);
    }
    let (from, to) = (from.any_file(cx)?, to.any_file(cx)?);
    tee_files(cx, &from, &to, len, Waits::of(flags))
}

pub(super) fn tee_files(
    cx: &Context,
    from: &Arc<File>,
    to: &Arc<File>,
    len: usize,
    waits: Waits,
) -> SysResult {
    let i = from.ops::<PipeEnd>().ok_or(EINVAL)?;
    let o = to.ops::<PipeEnd>().ok_or(EINVAL)?;
    if !from.readable() || !to.writable() {
        return Err(EBADF);
    }
    let r = blocking(cx, from, Events::READABLE, !waits.for_pipe(from), || {
        ipc::splice::tee(i, o, len.min(MAX_RW))
    });
    with_signal(cx, to, r)
}

/// `vmsplice(fd, iov, count, flags)`: copies. It waits for room once, and then takes what fits
/// (`vmsplice_to_pipe`); whether the descriptor waits does not count, only the call's flag.
fn vmsplice(cx: &mut Context, fd: Fd, list: IovecIn, flags: SpliceFlags) -> SysResult {
    flags.check()?;
    let f = fd.any_file(cx)?;
    if !f.writable() && !f.readable() {
        return Err(EBADF);
    }
    let mm = cx.mm();
    let ranges = user_ranges(&mm, list.va, list.len)?;
    let secret = ranges.iter().any(|r| mm.is_secret(r.va, r.len));
    let mut io = UserIo::vectored(&mm, ranges);
    if Source::remaining(&io) == 0 {
        return Ok(0);
    }
    f.ops::<PipeEnd>().ok_or(EBADF)?;
    let nb = flags.contains(SpliceFlags::SPLICE_F_NONBLOCK);
    if f.writable() {
        // Pages of a secret are nobody's to have.
        if secret {
            return Err(EFAULT);
        }
        let r = blocking(cx, &f, Events::WRITABLE, nb, || f.write(&mut io));
        with_signal(cx, &f, r)
    } else {
        blocking(cx, &f, Events::READABLE, nb, || f.read(&mut io))
    }
}

calls! {
    sendfile,
    splice,
    tee,
    vmsplice: "copies",
    copy_file_range,
}
