//! What files hold: written out to where they lie, room made for it, advice about it.

use super::SysResult;
use super::args::*;
use super::io::check_size;
use crate::task::Context;
use abi::errno::*;
use std::sync::Arc;
use vfs::FileType;
use vfs::file::{DataOnly, File};

flags! {
    /// Of sync_file_range(2).
    pub(super) struct SyncRangeFlags: u32, kept {
        SYNC_FILE_RANGE_WAIT_BEFORE,
        SYNC_FILE_RANGE_WRITE,
        SYNC_FILE_RANGE_WAIT_AFTER,
    }
}

flags! {
    /// Of fallocate(2); the VFS checks them.
    pub(super) struct FallocMode: u32, kept {
        FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_PUNCH_HOLE,
        FALLOC_FL_COLLAPSE_RANGE,
        FALLOC_FL_ZERO_RANGE,
        FALLOC_FL_INSERT_RANGE,
        FALLOC_FL_UNSHARE_RANGE,
    }
}

named! {
    /// What fadvise64(2) says.
    pub(super) struct FileAdvice(u32) {
        POSIX_FADV_NORMAL,
        POSIX_FADV_RANDOM,
        POSIX_FADV_SEQUENTIAL,
        POSIX_FADV_WILLNEED,
        POSIX_FADV_DONTNEED,
        POSIX_FADV_NOREUSE,
    }
}

fn sync_file(cx: &Context, fd: Fd, data_only: DataOnly) -> SysResult {
    fd.file(cx)?.ops.sync(data_only).map(|()| 0)
}
fn fsync(cx: &mut Context, fd: Fd) -> SysResult {
    sync_file(cx, fd, DataOnly::No)
}
fn fdatasync(cx: &mut Context, fd: Fd) -> SysResult {
    sync_file(cx, fd, DataOnly::Yes)
}
fn sync_file_range(
    cx: &mut Context,
    fd: Fd,
    offset: i64,
    len: i64,
    flags: SyncRangeFlags,
) -> SysResult {
    sync_range(&*fd.file(cx)?, offset, len, flags)
}
pub(super) fn sync_range(f: &File, offset: i64, len: i64, flags: SyncRangeFlags) -> SysResult {
    let fine = SyncRangeFlags::all().contains(flags) && offset >= 0;
    if !fine || offset.checked_add(len).is_none_or(|end| end < offset) {
        return Err(EINVAL);
    }
    match FileType::from_mode(f.ops.stat()?.mode) {
        Some(FileType::Regular | FileType::Directory | FileType::Block | FileType::Symlink) => {}
        _ => return Err(ESPIPE),
    }
    f.ops.sync(DataOnly::Yes).map(|()| 0)
}
fn sync(_cx: &mut Context) -> SysResult {
    // What is dirty on the host is the host's to write; in memory nothing is.
    Ok(0)
}
fn syncfs(cx: &mut Context, fd: Fd) -> SysResult {
    let f = fd.any_file(cx)?;
    cx.task.with_paths(|p| p.syncfs(&f)).map(|()| 0)
}

fn fallocate(cx: &mut Context, fd: Fd, mode: FallocMode, offset: i64, len: i64) -> SysResult {
    allocate(cx, &fd.any_file(cx)?, mode, offset, len)
}
pub(super) fn allocate(
    cx: &Context,
    f: &Arc<File>,
    mode: FallocMode,
    offset: i64,
    len: i64,
) -> SysResult {
    if offset < 0 || len <= 0 {
        return Err(EINVAL);
    }
    if !f.writable() {
        return Err(EBADF);
    }
    if !f.ops.seekable() {
        match FileType::from_mode(f.ops.stat()?.mode) {
            Some(FileType::Regular) => {}
            Some(FileType::Fifo) => return Err(ESPIPE),
            _ => return Err(ENODEV),
        }
    }
    let end = offset.checked_add(len).ok_or(EFBIG)?;
    if !mode.contains(FallocMode::FALLOC_FL_KEEP_SIZE) && end as u64 > f.ops.stat()?.size {
        check_size(cx, end)?;
    }
    let mode = mode.bits() as i32;
    let make = || {
        cx.task
            .with_paths(|p| p.fallocate(f, mode, offset as u64, len as u64))
    };
    cx.task.with_room(make).map(|()| 0)
}

fn fadvise64(cx: &mut Context, fd: Fd, _offset: i64, len: i64, advice: FileAdvice) -> SysResult {
    advise(&*fd.any_file(cx)?, len, advice)
}
pub(super) fn advise(f: &File, len: i64, advice: FileAdvice) -> SysResult {
    if !f.ops.seekable() {
        return Err(ESPIPE);
    }
    // Advice: checked, and taken as read.
    if advice.0 > FileAdvice::POSIX_FADV_NOREUSE.0 || len < 0 {
        Err(EINVAL)
    } else {
        Ok(0)
    }
}
fn readahead(cx: &mut Context, fd: Fd, _offset: i64, _count: usize) -> SysResult {
    let f = fd.any_file(cx)?;
    if !f.readable() {
        return Err(EBADF);
    }
    if f.ops.stat()?.mode & abi::linux::S_IFMT != abi::linux::S_IFREG {
        Err(EINVAL)
    } else {
        Ok(0)
    }
}

calls! {
    fsync,
    fdatasync,
    sync,
    readahead: "advice, without effect",
    fadvise64: "advice, without effect",
    sync_file_range,
    fallocate,
    syncfs,
}
