//! From one descriptor to another: sendfile, copy_file_range, splice and its kin.

use super::io::{At, MAX_RW, blocking, do_read, do_write, iovec, within_limit, written};
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::{Result, Va};
use std::sync::Arc;
use vfs::file::{File, O_APPEND};
use wait::Events;

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

/// `EINVAL` where splice(2) cannot read from `from` (fs/splice.c, `do_splice_read`).
fn spliceable(from: &File) -> Result<()> {
    let is_dir = from.path.as_ref().is_some_and(|p| p.dentry.is_dir());
    (from.ops.can_splice() && !is_dir)
        .then_some(())
        .ok_or(EINVAL)
}

/// `sendfile(out, in, offset, count)`. Only into a pipe it reads from what has no position, as splice(2) does: else
/// bytes that the other side does not take would be lost (fs/splice.c, `splice_direct_to_actor`). Programs rely on the
/// error: Go's `io.Copy` goes on with reads and writes.
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
    let to_pipe = to.ops::<ipc::pipe::PipeEnd>().is_some();
    if !to_pipe && !from.ops.seekable() && !from.ops.ignores_seek() {
        return Err(EINVAL);
    }
    if a.i64(3) == 0 {
        return Ok(0);
    }
    spliceable(&from)?;
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
    match (start, back) {
        (Some(_), Some(va)) => cx.mm().write_obj(va, &((begin + n as u64) as i64))?,
        _ if from.ops.seekable() => from.set_position(begin + n as u64)?,
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
    let begin1 = o1.map_or_else(|| from.position(), Ok)?;
    let begin2 = o2.map_or_else(|| to.position(), Ok)?;
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
    if done > 0 {
        written(cx, &to)?;
    }
    let mm = cx.mm();
    match a.va_opt(1) {
        Some(va) => mm.write_obj(va, &(begin1 + done as u64))?,
        None => from.set_position(begin1 + done as u64)?,
    }
    match a.va_opt(3) {
        Some(va) => mm.write_obj(va, &(begin2 + done as u64))?,
        None => to.set_position(begin2 + done as u64)?,
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
    let placeless = |f: &File, offset: u64| offset != 0 && !f.ops.seekable();
    if placeless(&from, a.u64(1)) || placeless(&to, a.u64(3)) {
        return Err(EINVAL);
    }
    // What a pipe holds goes to a place, not to whatever the end is by then.
    if pi.is_some() && po.is_none() && to.flags() & O_APPEND != 0 {
        return Err(EINVAL);
    }
    let max = a.usize(4).min(MAX_RW);
    let nb = flags & 2 != 0;
    match (pi, po) {
        (Some(i), Some(o)) => {
            let (qi, qo) = (from.ops.wait_queue(), to.ops.wait_queue());
            let go = || ipc::splice::pipe_to_pipe(i, o, max);
            let block = !(nb || from.nonblocking() || to.nonblocking());
            match (block, qi, qo) {
                (true, Some(qi), Some(qo)) => {
                    cx.block(&[(qi, Events::READABLE), (qo, Events::WRITABLE)], None, go)
                }
                _ => go(),
            }
        }
        (None, Some(o)) => {
            let start = offset_at(cx, a.va_opt(1))?;
            spliceable(&from)?;
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
            if n > 0 {
                written(cx, &to)?;
            }
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

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(
        40,
        "sendfile",
        &[Arg::Fd, Arg::Fd, Arg::Ptr, Arg::Uint],
        sendfile,
    ),
    Call::new(
        275,
        "splice",
        &[Arg::Fd, Arg::Ptr, Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Hex],
        splice,
    ),
    Call::new(276, "tee", &[Arg::Fd, Arg::Fd, Arg::Uint, Arg::Hex], tee),
    Call::new(
        278,
        "vmsplice",
        &[Arg::Fd, Arg::Iovec(2), Arg::Uint, Arg::Hex],
        vmsplice,
    )
    .note("copies"),
    Call::new(
        326,
        "copy_file_range",
        &[Arg::Fd, Arg::Ptr, Arg::Fd, Arg::Ptr, Arg::Uint, Arg::Hex],
        copy_file_range,
    ),
];
