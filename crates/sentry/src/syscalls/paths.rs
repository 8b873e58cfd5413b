//! Files by name: opening, making, removing, renaming, links.

use super::args::*;
use super::time::sleep_until;
use super::{SysResult, read_sized};
use crate::task::Context;
use abi::errno::*;
use abi::linux::{O_CREAT, O_NONBLOCK, O_TRUNC, O_WRONLY};
use abi::{Result, Va};
use std::time::{Duration, Instant};
use vfs::fd_table::CloseOnExec;
use vfs::ops::OpenHow;
use vfs::walk::Walk;
use vfs::{At, PathCx};
use zerocopy::FromBytes;

flags! {
    /// What access(2) asks; the VFS checks it.
    struct AccessMode: u32, kept {
        F_OK,
        R_OK,
        W_OK,
        X_OK,
    }
}

flags! {
    /// Of unlinkat(2).
    struct UnlinkFlags: u32, refused {
        AT_REMOVEDIR,
    }
}

flags! {
    /// Of renameat2(2); the VFS checks them.
    struct RenameFlags: u32, kept {
        RENAME_NOREPLACE,
        RENAME_EXCHANGE,
        RENAME_WHITEOUT,
    }
}

/// Runs a path operation on a directory and a path.
pub(super) fn with<R>(
    cx: &Context,
    dirfd: DirFd,
    path: PathPtr,
    f: impl FnOnce(&PathCx<'_>, &At, &[u8]) -> Result<R>,
) -> Result<R> {
    let path = path.read(cx)?;
    with_path(cx, dirfd, &path, f)
}

/// The same with a path that has been read.
pub(super) fn with_path<R>(
    cx: &Context,
    dirfd: DirFd,
    path: &[u8],
    f: impl FnOnce(&PathCx<'_>, &At, &[u8]) -> Result<R>,
) -> Result<R> {
    let at = At::new(&cx.files(), dirfd.0, path)?;
    cx.task.with_paths(|p| f(p, &at, path))
}

/// Where a path that is to be opened begins.
pub(super) fn open_at(cx: &Context, dirfd: DirFd, path: &[u8], how: &OpenHow) -> Result<At> {
    let files = cx.files();
    match how.resolve.intersects(Walk::BENEATH | Walk::IN_ROOT) {
        true => At::scoped(&files, dirfd.0),
        false => At::new(&files, dirfd.0, path),
    }
}

/// How often an open that a lease of the host delays is tried again.
const LEASE_POLL: Duration = Duration::from_millis(10);

fn do_open(cx: &Context, dirfd: DirFd, path: PathPtr, how: OpenHow) -> SysResult {
    let files = cx.files();
    let path = path.read(cx)?;
    let scoped = how.resolve.intersects(Walk::BENEATH | Walk::IN_ROOT);
    let at = open_at(cx, dirfd, &path, &how)?;
    // The number first: a full table must not leave a new file behind.
    cx.cred().may_take_more(ENFILE)?;
    let slot = files.reserve(&cx.room())?;
    let f = loop {
        match cx.task.with_paths(|p| p.open(&at, &path, how)) {
            // Somebody on the host has a lease on the file (fcntl(2)). The host has asked for it
            // back, and takes it after `fs.lease-break-time`. (Of a walk that may not leave a
            // directory, openat2(2) says it of a race, too: the caller's to try again.)
            Err(EAGAIN) if how.flags & O_NONBLOCK == 0 && !scoped => {
                sleep_until(cx, Some(Instant::now() + LEASE_POLL))?;
            }
            r => break r?,
        }
    };
    cx.task.heed_confidential(&f)?;
    Ok(slot.install(f, CloseOnExec::from_flags(how.flags)) as usize)
}

fn open(cx: &mut Context, path: PathPtr, flags: OpenFlags, mode: Mode) -> SysResult {
    do_open(cx, DirFd::CWD, path, OpenHow::new(flags.bits(), mode.0))
}
fn openat(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    flags: OpenFlags,
    mode: Mode,
) -> SysResult {
    do_open(cx, dirfd, path, OpenHow::new(flags.bits(), mode.0))
}
fn creat(cx: &mut Context, path: PathPtr, mode: Mode) -> SysResult {
    do_open(
        cx,
        DirFd::CWD,
        path,
        OpenHow::new(O_CREAT | O_WRONLY | O_TRUNC, mode.0),
    )
}
fn openat2(cx: &mut Context, dirfd: DirFd, path: PathPtr, how: Va, size: usize) -> SysResult {
    let how = open_how(cx, how, size)?;
    do_open(cx, dirfd, path, how)
}

/// `VALID_RESOLVE_FLAGS`.
const ALL_RESOLVE: u64 = 0x3f;

/// openat2(2)'s `struct open_how`.
pub(super) fn open_how(cx: &Context, how: Va, size: usize) -> Result<OpenHow> {
    if size < 24 {
        return Err(EINVAL);
    }
    if size > 4096 {
        return Err(E2BIG);
    }
    let mut raw = [0u8; 24];
    read_sized(cx, how, size, &mut raw)?;
    let [flags, mode, resolve] = <[u64; 3]>::read_from_bytes(&raw).map_err(|_| EINVAL)?;
    // Before what of them is asked for.
    if resolve & !ALL_RESOLVE != 0 {
        return Err(EINVAL);
    }
    OpenHow::strict(flags, mode, resolve)
}

fn access(cx: &mut Context, path: PathPtr, mode: AccessMode) -> SysResult {
    with(cx, DirFd::CWD, path, |p, at, path| {
        p.access(at, path, mode.bits(), 0)
    })
    .map(|()| 0)
}
fn faccessat(cx: &mut Context, dirfd: DirFd, path: PathPtr, mode: AccessMode) -> SysResult {
    with(cx, dirfd, path, |p, at, path| {
        p.access(at, path, mode.bits(), 0)
    })
    .map(|()| 0)
}
fn faccessat2(
    cx: &mut Context,
    dirfd: DirFd,
    path: PathPtr,
    mode: AccessMode,
    flags: AtFlags,
) -> SysResult {
    with(cx, dirfd, path, |p, at, path| {
        p.access(at, path, mode.bits(), flags.bits())
    })
    .map(|()| 0)
}

fn mkdir(cx: &mut Context, path: PathPtr, mode: Mode) -> SysResult {
    with(cx, DirFd::CWD, path, |p, at, path| {
        p.mkdir(at, path, mode.0)
    })
    .map(|_| 0)
}
fn mkdirat(cx: &mut Context, dirfd: DirFd, path: PathPtr, mode: Mode) -> SysResult {
    with(cx, dirfd, path, |p, at, path| p.mkdir(at, path, mode.0)).map(|_| 0)
}
/// mknod's device number has 32 bits: (major << 8) | minor, with the rest of the minor above.
fn mknod_dev(raw: u32) -> u64 {
    vfs::makedev((raw >> 8) & 0xfff, (raw & 0xff) | ((raw >> 12) & 0xf_ff00))
}
fn mknod(cx: &mut Context, path: PathPtr, mode: Mode, dev: u32) -> SysResult {
    with(cx, DirFd::CWD, path, |p, at, path| {
        p.mknod(at, path, mode.0, mknod_dev(dev))
    })
    .map(|_| 0)
}
fn mknodat(cx: &mut Context, dirfd: DirFd, path: PathPtr, mode: Mode, dev: u32) -> SysResult {
    with(cx, dirfd, path, |p, at, path| {
        p.mknod(at, path, mode.0, mknod_dev(dev))
    })
    .map(|_| 0)
}
fn rmdir(cx: &mut Context, path: PathPtr) -> SysResult {
    with(cx, DirFd::CWD, path, |p, at, path| p.rmdir(at, path)).map(|()| 0)
}
fn unlink(cx: &mut Context, path: PathPtr) -> SysResult {
    with(cx, DirFd::CWD, path, |p, at, path| p.unlink(at, path)).map(|()| 0)
}
fn unlinkat(cx: &mut Context, dirfd: DirFd, path: PathPtr, flags: UnlinkFlags) -> SysResult {
    with(cx, dirfd, path, |p, at, path| {
        if flags.contains(UnlinkFlags::AT_REMOVEDIR) {
            p.rmdir(at, path)
        } else {
            p.unlink(at, path)
        }
    })
    .map(|()| 0)
}

fn do_rename(
    cx: &Context,
    (old_dir, old): (DirFd, PathPtr),
    (new_dir, new): (DirFd, PathPtr),
    flags: RenameFlags,
) -> SysResult {
    let (old, new) = (old.read(cx)?, new.read(cx)?);
    rename_paths(cx, (old_dir, &old), (new_dir, &new), flags.bits())
}

pub(super) fn rename_paths(
    cx: &Context,
    (old_dir, old): (DirFd, &[u8]),
    (new_dir, new): (DirFd, &[u8]),
    flags: u32,
) -> SysResult {
    let files = cx.files();
    let from = At::new(&files, old_dir.0, old)?;
    let to = At::new(&files, new_dir.0, new)?;
    cx.task
        .with_paths(|p| p.rename(&from, old, &to, new, flags))
        .map(|()| 0)
}
fn rename(cx: &mut Context, old: PathPtr, new: PathPtr) -> SysResult {
    do_rename(
        cx,
        (DirFd::CWD, old),
        (DirFd::CWD, new),
        RenameFlags::empty(),
    )
}
fn renameat(
    cx: &mut Context,
    old_dir: DirFd,
    old: PathPtr,
    new_dir: DirFd,
    new: PathPtr,
) -> SysResult {
    do_rename(cx, (old_dir, old), (new_dir, new), RenameFlags::empty())
}
fn renameat2(
    cx: &mut Context,
    old_dir: DirFd,
    old: PathPtr,
    new_dir: DirFd,
    new: PathPtr,
    flags: RenameFlags,
) -> SysResult {
    do_rename(cx, (old_dir, old), (new_dir, new), flags)
}

fn do_link(
    cx: &Context,
    (old_dir, old): (DirFd, PathPtr),
    (new_dir, new): (DirFd, PathPtr),
    flags: AtFlags,
) -> SysResult {
    let (old, new) = (old.read(cx)?, new.read(cx)?);
    link_paths(cx, (old_dir, &old), (new_dir, &new), flags.bits())
}

pub(super) fn link_paths(
    cx: &Context,
    (old_dir, old): (DirFd, &[u8]),
    (new_dir, new): (DirFd, &[u8]),
    flags: u32,
) -> SysResult {
    let files = cx.files();
    let from = At::new(&files, old_dir.0, old)?;
    let to = At::new(&files, new_dir.0, new)?;
    cx.task
        .with_paths(|p| p.link(&from, old, &to, new, flags))
        .map(|()| 0)
}
fn link(cx: &mut Context, old: PathPtr, new: PathPtr) -> SysResult {
    do_link(cx, (DirFd::CWD, old), (DirFd::CWD, new), AtFlags::empty())
}
fn linkat(
    cx: &mut Context,
    old_dir: DirFd,
    old: PathPtr,
    new_dir: DirFd,
    new: PathPtr,
    flags: AtFlags,
) -> SysResult {
    do_link(cx, (old_dir, old), (new_dir, new), flags)
}
fn symlink(cx: &mut Context, target: PathPtr, link: PathPtr) -> SysResult {
    let target = target.read(cx)?;
    with(cx, DirFd::CWD, link, |p, at, path| {
        p.symlink(&target, at, path)
    })
    .map(|()| 0)
}
fn symlinkat(cx: &mut Context, target: PathPtr, dirfd: DirFd, link: PathPtr) -> SysResult {
    let target = target.read(cx)?;
    with(cx, dirfd, link, |p, at, path| p.symlink(&target, at, path)).map(|()| 0)
}

fn do_readlink(cx: &Context, dirfd: DirFd, path: PathPtr, buf: BytesOut<i32>) -> SysResult {
    if buf.len <= 0 {
        return Err(EINVAL);
    }
    let t = with(cx, dirfd, path, |p, at, path| p.readlink(at, path))?;
    let n = t.len().min(buf.len as usize);
    cx.mm().copy_out(buf.va, &t[..n])?;
    Ok(n)
}
fn readlink(cx: &mut Context, path: PathPtr, buf: BytesOut<i32>) -> SysResult {
    do_readlink(cx, DirFd::CWD, path, buf)
}
fn readlinkat(cx: &mut Context, dirfd: DirFd, path: PathPtr, buf: BytesOut<i32>) -> SysResult {
    do_readlink(cx, dirfd, path, buf)
}

calls! {
    open,
    access,
    rename,
    mkdir,
    rmdir,
    creat,
    link,
    unlink,
    symlink,
    readlink,
    mknod,
    openat,
    mkdirat,
    mknodat,
    unlinkat,
    renameat,
    linkat,
    symlinkat,
    readlinkat,
    faccessat,
    renameat2,
    openat2,
    faccessat2,
}
