//! Mounts.

use super::SysResult;
use super::args::*;
use super::paths::with;
use crate::task::Context;
use abi::Result;
use abi::Va;
use abi::errno::{EINVAL, ENODEV, ENOSYS, ENOTBLK};
use vfs::ops::MountArgs;

flags! {
    /// Of mount(2); the VFS checks them.
    struct MountFlags: u64, kept {
        MS_RDONLY,
        MS_NOSUID,
        MS_NODEV,
        MS_NOEXEC,
        MS_SYNCHRONOUS,
        MS_REMOUNT,
        MS_MANDLOCK,
        MS_DIRSYNC,
        MS_NOSYMFOLLOW,
        MS_NOATIME,
        MS_NODIRATIME,
        MS_BIND,
        MS_MOVE,
        MS_REC,
        MS_SILENT,
        MS_POSIXACL,
        MS_UNBINDABLE,
        MS_PRIVATE,
        MS_SLAVE,
        MS_SHARED,
        MS_RELATIME,
        MS_STRICTATIME,
        MS_LAZYTIME,
    }
}

flags! {
    /// Of umount2(2); the VFS checks them.
    struct UmountFlags: u32, kept {
        MNT_FORCE,
        MNT_DETACH,
        MNT_EXPIRE,
        UMOUNT_NOFOLLOW,
    }
}

/// `mount(source, target, type, flags, data)`.
fn mount(
    cx: &mut Context,
    source: StrPtr,
    target: PathPtr,
    fs_type: StrPtr,
    flags: MountFlags,
    data: Va,
) -> SysResult {
    let text = |s: StrPtr| {
        if s.0.is_null() {
            Ok(Vec::new())
        } else {
            cx.mm().read_cstr(s.0, vfs::PATH_MAX)
        }
    };
    let (source, fs_type, data) = (text(source)?, text(fs_type)?, text(StrPtr(data))?);
    let target = target.read(cx)?;
    let args = MountArgs {
        source: &source,
        fs_type: &fs_type,
        data: &data,
    };
    cx.task
        .with_paths(|p| p.mount(&target, flags.bits(), args))
        .map(|()| 0)
}
fn umount2(cx: &mut Context, path: PathPtr, flags: UmountFlags) -> SysResult {
    with(cx, DirFd::CWD, path, |p, _, path| {
        p.umount(path, flags.bits())
    })
    .map(|()| 0)
}
fn pivot_root(cx: &mut Context, new: PathPtr, old: PathPtr) -> SysResult {
    let (new, old) = (new.read(cx)?, old.read(cx)?);
    cx.task.with_paths(|p| p.pivot_root(&new, &old)).map(|()| 0)
}

/// `ustat(dev, buf)`: of a file system that is mounted where the caller is.
fn ustat(cx: &mut Context, dev: u32, out: UserOut<[u64; 4]>) -> SysResult {
    let mounts = cx.fs().ns().mounts();
    let of = mounts.iter().map(|m| m.sb());
    let sb = of
        .into_iter()
        .find(|s| s.dev == u64::from(dev))
        .ok_or(EINVAL)?;
    let s = sb.fs.stat_fs()?;
    // `f_tfree` is an int; the names that follow the free inodes are empty.
    out.write(&cx.mm(), &[s.bfree as u32 as u64, s.ffree, 0, 0])?;
    Ok(0)
}

/// `sysfs(option, ...)`: the types of file systems.
fn sysfs(cx: &mut Context, option: i32, arg1: u64, arg2: Va) -> SysResult {
    let list = cx.kernel.vfs.filesystems();
    let mut names = list.lines().filter_map(|l| l.split('\t').next_back());
    match option {
        1 => {
            let name = StrPtr(Va(arg1)).0;
            let name = cx.mm().read_cstr(name, vfs::PATH_MAX)?;
            names.position(|n| n.as_bytes() == name).ok_or(EINVAL)
        }
        2 => {
            let name = names.nth(arg1 as u32 as usize).ok_or(EINVAL)?;
            cx.mm().copy_out(arg2, &[name.as_bytes(), &[0]].concat())?;
            Ok(0)
        }
        3 => Ok(names.count()),
        _ => Err(EINVAL),
    }
}

/// A command of quotactl(2), without its type.
const Q_SYNC: u32 = 0x0080_0001;

/// `EINVAL` for a type of quotas that there is not.
fn quota_command(cmd: u32) -> Result<u32> {
    const TYPES: u32 = 3;
    if cmd & 0xff >= TYPES {
        return Err(EINVAL);
    }
    Ok(cmd >> 8)
}

/// `quotactl(cmd, device, id, addr)`: there are no block devices with quotas.
fn quotactl(cx: &mut Context, cmd: u32, device: Option<PathPtr>, _id: u32) -> SysResult {
    let cmd = quota_command(cmd)?;
    let Some(device) = device else {
        return if cmd == Q_SYNC { Ok(0) } else { Err(ENODEV) };
    };
    let kind = with(cx, DirFd::CWD, device, |p, at, path| {
        Ok(p.stat(at, path, 0)?.mode)
    })?;
    match kind & abi::linux::S_IFMT {
        abi::linux::S_IFBLK => Err(ENODEV),
        _ => Err(ENOTBLK),
    }
}

/// `quotactl_fd(fd, cmd, id, addr)`: no file system here has quotas.
fn quotactl_fd(cx: &mut Context, fd: Fd, cmd: u32) -> SysResult {
    fd.any_file(cx)?;
    quota_command(cmd)?;
    Err(ENOSYS)
}

calls! {
    quotactl: "as a kernel with quotas, of which no file system has any",
    quotactl_fd: "as a kernel with quotas, of which no file system has any",
    ustat,
    sysfs,
    pivot_root,
    mount,
    umount2,
}
