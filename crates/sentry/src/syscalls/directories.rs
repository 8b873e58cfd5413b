//! Directories: the one that a process works in, its root, and what is in one.

use super::paths::{CWD, with};
use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;
use abi::linux::*;

fn getcwd(cx: &mut Context, a: &Args) -> SysResult {
    let mut p = cx.task.with_paths(|p| p.getcwd())?;
    p.push(0);
    if p.len() > a.usize(1) {
        return Err(ERANGE);
    }
    cx.mm().copy_out(a.va(0), &p)?;
    Ok(p.len())
}
fn chdir(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, _, path| p.chdir(path)).map(|()| 0)
}
fn fchdir(cx: &mut Context, a: &Args) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    cx.task.with_paths(|p| p.fchdir(&f)).map(|()| 0)
}
fn chroot(cx: &mut Context, a: &Args) -> SysResult {
    with(cx, CWD, a.va(0), |p, _, path| p.chroot(path)).map(|()| 0)
}

/// Writes directory entries; `old` is getdents(2)'s layout, with the type at the end.
fn dirents(cx: &Context, a: &Args, old: bool) -> SysResult {
    let f = cx.fd(a.i32(0))?;
    if f.flags() & O_PATH != 0 {
        return Err(EBADF);
    }
    // A directory that was removed (`IS_DEADDIR`).
    if let Some(p) = &f.path
        && p.dentry.is_unhashed()
        && p.is_dir()
        && p.inode()?.stat()?.nlink == 0
    {
        return Err(ENOENT);
    }
    let room = (a.u64(2) as u32 as usize).min(1 << 20);
    let mut out: Vec<u8> = Vec::with_capacity(room.min(32 << 10));
    let mut too_small = false;
    let mut pos = f.pos.lock();
    let mut p = *pos;
    let cred = cx.cred();
    let reader = vfs::Caller {
        cred: &cred,
        task: &cx.task,
    };
    f.ops.read_dir_as(&f, &reader, &mut p, &mut |e| {
        let head = if old { 18 } else { 19 };
        let len = (head + e.name.len() + 1 + usize::from(old)).next_multiple_of(8);
        if out.len() + len > room {
            too_small = out.is_empty();
            return false;
        }
        let at = out.len();
        out.resize(at + len, 0);
        out[at..at + 8].copy_from_slice(&e.ino.to_le_bytes());
        out[at + 8..at + 16].copy_from_slice(&e.next.to_le_bytes());
        out[at + 16..at + 18].copy_from_slice(&(len as u16).to_le_bytes());
        if old {
            out[at + 18..at + 18 + e.name.len()].copy_from_slice(e.name);
            out[at + len - 1] = e.kind;
        } else {
            out[at + 18] = e.kind;
            out[at + 19..at + 19 + e.name.len()].copy_from_slice(e.name);
        }
        true
    })?;
    if too_small {
        return Err(EINVAL);
    }
    cx.mm().copy_out(a.va(1), &out)?;
    *pos = p;
    Ok(out.len())
}
fn getdents(cx: &mut Context, a: &Args) -> SysResult {
    dirents(cx, a, true)
}
fn getdents64(cx: &mut Context, a: &Args) -> SysResult {
    dirents(cx, a, false)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(78, "getdents", &[Arg::Fd, Arg::Ptr, Arg::Uint], getdents),
    Call::new(79, "getcwd", &[Arg::Out, Arg::Uint], getcwd),
    Call::new(80, "chdir", &[Arg::Path], chdir),
    Call::new(81, "fchdir", &[Arg::Fd], fchdir),
    Call::new(161, "chroot", &[Arg::Path], chroot),
    Call::new(
        217,
        "getdents64",
        &[Arg::Fd, Arg::Ptr, Arg::Uint],
        getdents64,
    ),
];
