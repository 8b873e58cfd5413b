//! What files hold: written out to where they lie, room made for it, advice about it.

use super::io::check_size;
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;
use vfs::file::DataOnly;

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
    cx.task
        .with_paths(|p| p.fallocate(&f, a.i32(1), offset as u64, len as u64))
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

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
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
        277,
        "sync_file_range",
        &[Arg::Fd, Arg::Uint, Arg::Uint, Arg::Hex],
        sync_file_range,
    ),
    Call::new(
        285,
        "fallocate",
        &[Arg::Fd, Arg::Hex, Arg::Uint, Arg::Uint],
        fallocate,
    ),
    Call::new(306, "syncfs", &[Arg::Fd], syncfs),
];
