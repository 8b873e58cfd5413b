//! Tables of files and buffers that are registered (`io_uring/rsrc.c`).

use super::super::SysResult;
use super::super::args::*;
use super::register::{RegisterArg, table_charge};
use crate::task::Context;
use crate::task::uring::abi::FILE_INDEX_ALLOC;
use crate::task::uring::resources::{Buffer, MAX_BUFFERS, MAX_FILES};
use crate::task::uring::{Ring, RingFile};
use abi::errno::*;
use abi::{PAGE_SIZE, Result, Va};
use mm::{Access, UserRange};
use std::sync::Arc;
use vfs::File;
use vfs::ucounts::Kind;

/// `struct io_uring_rsrc_register`: files or buffers with tags, or none yet.
pub(super) fn rsrc(
    cx: &mut Context,
    ring: &Arc<Ring>,
    given: RegisterArg,
    f: fn(&mut Context, &Arc<Ring>, RegisterArg, Va) -> SysResult,
) -> SysResult {
    const SPARSE: u32 = 1;
    if given.n != 32 {
        return Err(EINVAL);
    }
    let [first, resv, data, tags] = cx.mm().read_obj::<[u64; 4]>(given.at)?;
    let (n, flags) = (first as u32, (first >> 32) as u32);
    if n == 0 || resv != 0 || flags & !SPARSE != 0 {
        return Err(EINVAL);
    }
    if flags & SPARSE != 0 && data != 0 {
        return Err(EINVAL);
    }
    f(cx, ring, RegisterArg { at: Va(data), n }, Va(tags))
}

/// Reads an array of tags, if there is one.
fn tag(cx: &Context, tags: Va, i: u32) -> Result<u64> {
    match tags.0 {
        0 => Ok(0),
        _ => cx.mm().read_obj(tags.offset(u64::from(i) * 8)),
    }
}

/// A file that may be registered (`io_sqe_files_register`).
fn registered_file(cx: &Context, fd: i32) -> Result<Arc<File>> {
    let f = Fd(fd).file(cx)?;
    // Nobody could tell when its requests end.
    match f.ops::<RingFile>() {
        Some(_) => Err(EBADF),
        None => Ok(f),
    }
}

pub(super) fn files(cx: &mut Context, ring: &Arc<Ring>, given: RegisterArg, tags: Va) -> SysResult {
    let table = &ring.resources.files;
    if table.is_registered() {
        return Err(EBUSY);
    }
    if given.n == 0 {
        return Err(EINVAL);
    }
    let nofile = cx.nofile_limit();
    if given.n > MAX_FILES || u64::from(given.n) > nofile {
        return Err(EMFILE);
    }
    let charge = table_charge(ring, given.n)?;
    let mm = cx.mm();
    let mut all = Vec::new();
    for i in 0..given.n {
        let tag = tag(cx, tags, i)?;
        let fd = match given.at.0 {
            0 => -1,
            _ => mm.read_obj::<i32>(given.at.offset(u64::from(i) * 4))?,
        };
        if fd == -1 {
            if tag != 0 {
                return Err(EINVAL);
            }
            all.push(None);
            continue;
        }
        all.push(Some((registered_file(cx, fd)?, tag)));
    }
    table.register(all, charge).map(|()| 0)
}

/// A buffer that may be registered, with its tag: its pages are there and may be written
/// (`io_sqe_buffer_register`). None has no tag.
fn registered_buffer(
    cx: &Context,
    [base, len]: [u64; 2],
    tag: u64,
) -> Result<Option<(Buffer, u64)>> {
    const MOST: u64 = 1 << 30;
    if base == 0 {
        return match (len, tag) {
            (0, 0) => Ok(None),
            (0, _) => Err(EINVAL),
            _ => Err(EFAULT),
        };
    }
    if len == 0 || len > MOST {
        return Err(EFAULT);
    }
    if base.checked_add(len.next_multiple_of(PAGE_SIZE)).is_none() {
        return Err(EOVERFLOW);
    }
    let mm = cx.mm();
    if mm.is_secret(Va(base), len) || mm.prefault(Va(base), len, Access::Write) < len {
        return Err(EFAULT);
    }
    let pages = (base + len).div_ceil(PAGE_SIZE) - base / PAGE_SIZE;
    let locked = match cx.mm_limits().memlock {
        u64::MAX => None,
        limit => {
            let user = cx.cred().ucounts().clone();
            let charge = user.charge(Kind::LockedPages, pages, limit / PAGE_SIZE);
            Some(charge.ok_or(ENOMEM)?)
        }
    };
    let buffer = Buffer {
        range: UserRange { va: Va(base), len },
        mm: Arc::downgrade(&mm),
        _locked: locked,
    };
    Ok(Some((buffer, tag)))
}

pub(super) fn buffers(
    cx: &mut Context,
    ring: &Arc<Ring>,
    given: RegisterArg,
    tags: Va,
) -> SysResult {
    let table = &ring.resources.buffers;
    if table.is_registered() {
        return Err(EBUSY);
    }
    if given.n == 0 || given.n > MAX_BUFFERS {
        return Err(EINVAL);
    }
    let charge = table_charge(ring, given.n)?;
    let mm = cx.mm();
    let mut all = Vec::new();
    for i in 0..given.n {
        if cx.is_killed() {
            return Err(EINTR);
        }
        let tag = tag(cx, tags, i)?;
        let [base, len] = match given.at.0 {
            0 => [0, 0],
            _ => mm.read_obj::<[u64; 2]>(given.at.offset(u64::from(i) * 16))?,
        };
        all.push(registered_buffer(cx, [base, len], tag)?);
    }
    table.register(all, charge).map(|()| 0)
}

/// `struct io_uring_rsrc_update2`.
pub(super) struct Update {
    pub(super) offset: u32,
    pub(super) data: u64,
    pub(super) tags: u64,
    pub(super) n: u32,
}

impl Update {
    pub(super) fn read_short(cx: &Context, at: Va) -> Result<Update> {
        let [first, data] = cx.mm().read_obj::<[u64; 2]>(at)?;
        if first >> 32 != 0 {
            return Err(EINVAL);
        }
        Ok(Update {
            offset: first as u32,
            data,
            tags: 0,
            n: 0,
        })
    }
    pub(super) fn read(cx: &Context, given: RegisterArg) -> Result<Update> {
        if given.n != 32 {
            return Err(EINVAL);
        }
        let [first, data, tags, last] = cx.mm().read_obj::<[u64; 4]>(given.at)?;
        let n = last as u32;
        if first >> 32 != 0 || last >> 32 != 0 || n == 0 {
            return Err(EINVAL);
        }
        Ok(Update {
            offset: first as u32,
            data,
            tags,
            n,
        })
    }
}

/// Replaces registered files: how many (`__io_sqe_files_update`).
pub(super) fn update_files(
    cx: &Context,
    ring: &Ring,
    offset: u32,
    (fds, tags): (u64, u64),
    n: u32,
) -> SysResult {
    const SKIP: i32 = -2;
    let table = &ring.resources.files;
    if !table.is_registered() {
        return Err(ENXIO);
    }
    let mm = cx.mm();
    let alloc = offset == FILE_INDEX_ALLOC;
    if !alloc {
        let end = offset.checked_add(n).ok_or(EOVERFLOW)?;
        if end as usize > table.count() {
            return Err(EINVAL);
        }
    }
    let one = |i: u32| -> Result<()> {
        let tag = tag(cx, Va(tags), i)?;
        let at = Va(fds).offset(u64::from(i) * 4);
        let fd: i32 = mm.read_obj(at)?;
        if alloc {
            let slot = table.put_free(registered_file(cx, fd)?)?;
            if let Err(e) = mm.write_obj(at, &slot) {
                let _ = table.set(slot, None);
                return Err(e);
            }
            return Ok(());
        }
        match fd {
            SKIP => return Ok(()),
            -1 if tag != 0 => return Err(EINVAL),
            -1 => {
                table.set(offset + i, None)?;
            }
            fd => {
                table.set(offset + i, Some((registered_file(cx, fd)?, tag)))?;
            }
        }
        Ok(())
    };
    one_by_one(cx, n, one)
}

/// Does so many things: how many, until one fails; its error where that is the first.
pub(super) fn one_by_one(cx: &Context, n: u32, one: impl Fn(u32) -> Result<()>) -> SysResult {
    for i in 0..n {
        if cx.is_killed() {
            return Err(EINTR);
        }
        match one(i) {
            Ok(()) => {}
            Err(e) if i == 0 => return Err(e),
            Err(_) => return Ok(i as usize),
        }
    }
    Ok(n as usize)
}

pub(super) fn update_buffers(cx: &Context, ring: &Ring, u: &Update) -> SysResult {
    let table = &ring.resources.buffers;
    if !table.is_registered() {
        return Err(ENXIO);
    }
    let end = u.offset.checked_add(u.n).ok_or(EOVERFLOW)?;
    if end as usize > table.count() {
        return Err(EINVAL);
    }
    let mm = cx.mm();
    let one = |i: u32| -> Result<()> {
        let tag = tag(cx, Va(u.tags), i)?;
        let at = Va(u.data).offset(u64::from(i) * 16);
        let [base, len] = mm.read_obj::<[u64; 2]>(at)?;
        let b = registered_buffer(cx, [base, len], tag)?;
        table.set(u.offset + i, b).map(|_| ())
    };
    one_by_one(cx, u.n, one)
}
