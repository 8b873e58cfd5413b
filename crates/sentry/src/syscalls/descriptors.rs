//! Descriptors: closing, duplicating, fcntl; files that only descriptors reach (memfd).

use super::locks::fcntl_lock;
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::Result;
use abi::errno::*;
use abi::linux::*;
use vfs::fd_table::CloseOnExec;
use vfs::fs::tmpfs;

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
        crate::task::lanes::slots::end_offers(&cx.mm());
        let own = cx.files().fork(&cx.cred())?;
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
        .install(f, CloseOnExec::No, &cx.room())
        .map(|n| n as usize)
}
fn dup2(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if a.i32(0) == a.i32(1) {
        return Ok(a.usize(1));
    }
    cx.files()
        .install_at(a.i32(1), f, CloseOnExec::No, &cx.room())?;
    Ok(a.i32(1) as usize)
}
fn dup3(cx: &mut Context, a: &Args) -> SysResult {
    if a.u32(2) & !O_CLOEXEC != 0 || a.i32(0) == a.i32(1) {
        return Err(EINVAL);
    }
    let f = cx.fd(a.i32(0))?;
    cx.files()
        .install_at(a.i32(1), f, CloseOnExec::from_flags(a.u32(2)), &cx.room())?;
    Ok(a.i32(1) as usize)
}

/// The owner that a number means: a process, or negative a process group. `ESRCH` for one that is not to be seen.
pub(super) fn owner_id(cx: &Context, n: i32) -> Result<i32> {
    let id = cx.id_of(n.checked_abs().ok_or(EINVAL)?);
    match n {
        0 => Ok(0),
        1.. => id,
        _ => Ok(-id?),
    }
}

/// The other way round; 0 where it is not to be seen.
pub(super) fn owner_number(cx: &Context, id: i32) -> i32 {
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
            let room = &cx.room();
            if a.i32(2) < 0 || a.u64(2) >= room.limit {
                return Err(EINVAL);
            }
            let c = if cmd == F_DUPFD {
                CloseOnExec::No
            } else {
                CloseOnExec::Yes
            };
            files.install_from(a.i32(2), f, c, room).map(|n| n as usize)
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
        F_GETFL => Ok(f.flags_told() as usize),
        F_SETFL => {
            // Append-only files are not kept.
            let new = a.u32(2);
            if new & O_NOATIME & !f.flags() != 0
                && let Some(p) = &f.path
                && !vfs::mode::owner_or_capable(p.inode()?.perm()?, &cx.cred())
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
    cx.files().install(f, c, &cx.room()).map(|n| n as usize)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(3, "close", &[Arg::Fd], close),
    Call::new(32, "dup", &[Arg::Fd], dup),
    Call::new(33, "dup2", &[Arg::Fd, Arg::Fd], dup2),
    Call::new(72, "fcntl", &[Arg::Fd, Arg::Int, Arg::Hex], fcntl).note("no leases, no dnotify"),
    Call::new(292, "dup3", &[Arg::Fd, Arg::Fd, Arg::OpenFlags], dup3),
    Call::new(319, "memfd_create", &[Arg::Path, Arg::Hex], memfd_create),
    Call::new(
        436,
        "close_range",
        &[Arg::Fd, Arg::Fd, Arg::Hex],
        close_range,
    ),
];
