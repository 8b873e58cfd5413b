//! Directories: the one that a process works in, its root, and what is in one.

use super::SysResult;
use super::args::*;
use super::paths::with;
use crate::task::Context;
use abi::errno::*;

fn getcwd(cx: &mut Context, buf: BytesOut) -> SysResult {
    let mut p = cx.task.with_paths(|p| p.getcwd())?;
    p.push(0);
    if p.len() > buf.len {
        return Err(ERANGE);
    }
    cx.mm().copy_out(buf.va, &p)?;
    Ok(p.len())
}
fn chdir(cx: &mut Context, path: PathPtr) -> SysResult {
    with(cx, DirFd::CWD, path, |p, _, path| p.chdir(path)).map(|()| 0)
}
fn fchdir(cx: &mut Context, fd: Fd) -> SysResult {
    let f = fd.any_file(cx)?;
    cx.task.with_paths(|p| p.fchdir(&f)).map(|()| 0)
}
fn chroot(cx: &mut Context, path: PathPtr) -> SysResult {
    with(cx, DirFd::CWD, path, |p, _, path| p.chroot(path)).map(|()| 0)
}

/// How a directory entry is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// getdents(2)'s, with the type at the end.
    Old,
    /// getdents64(2)'s.
    New,
}

/// Writes directory entries.
fn dirents(cx: &Context, fd: Fd, to: BytesOut<u32>, layout: Layout) -> SysResult {
    let f = fd.file(cx)?;
    // A directory that was removed (`IS_DEADDIR`).
    if let Some(p) = &f.path
        && p.dentry.is_unhashed()
        && p.is_dir()
        && p.inode()?.stat()?.nlink == 0
    {
        return Err(ENOENT);
    }
    f.may_read(cx)?;
    let old = layout == Layout::Old;
    let room = (to.len as usize).min(1 << 20);
    let mut out: Vec<u8> = Vec::with_capacity(room.min(32 << 10));
    let mut too_small = false;
    let asked = mm::UserRange {
        va: to.va,
        len: room as u64,
    };
    cx.mm().ask_for(&[asked]);
    let mut pos = f.lock_position();
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
    cx.mm().copy_out_now(to.va, &out)?;
    *pos = p;
    drop(pos);
    f.accessed();
    Ok(out.len())
}
fn getdents(cx: &mut Context, fd: Fd, entries: BytesOut<u32>) -> SysResult {
    dirents(cx, fd, entries, Layout::Old)
}
fn getdents64(cx: &mut Context, fd: Fd, entries: BytesOut<u32>) -> SysResult {
    dirents(cx, fd, entries, Layout::New)
}

calls! {
    getdents,
    getcwd,
    chdir,
    fchdir,
    chroot,
    getdents64,
}
