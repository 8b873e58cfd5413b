//! inotify(7).

use super::SysResult;
use super::args::*;
use super::descriptors::install;
use crate::task::Context;
use abi::errno::EINVAL;
use abi::linux::O_RDONLY;
use ipc::inotify::{Inotify, WatchList};
use vfs::At;
use vfs::mode::Want;
use vfs::walk::Walk;

flags! {
    /// Events and flags of inotify_add_watch(2).
    struct InotifyMask: u32, kept {
        IN_ACCESS,
        IN_MODIFY,
        IN_ATTRIB,
        IN_CLOSE_WRITE,
        IN_CLOSE_NOWRITE,
        IN_OPEN,
        IN_MOVED_FROM,
        IN_MOVED_TO,
        IN_CREATE,
        IN_DELETE,
        IN_DELETE_SELF,
        IN_MOVE_SELF,
        IN_UNMOUNT,
        IN_Q_OVERFLOW,
        IN_IGNORED,
        IN_ONLYDIR,
        IN_DONT_FOLLOW,
        IN_EXCL_UNLINK,
        IN_MASK_CREATE,
        IN_MASK_ADD,
        IN_ISDIR,
        IN_ONESHOT,
    }
}

/// `inotify_init()`.
fn inotify_init(cx: &mut Context) -> SysResult {
    install(cx, Inotify::new(&cx.cred())?, O_RDONLY, 0)
}
/// `inotify_init1(flags)`.
fn inotify_init1(cx: &mut Context, flags: NewFileFlags) -> SysResult {
    install(cx, Inotify::new(&cx.cred())?, O_RDONLY, flags.bits())
}

/// `inotify_add_watch(fd, path, mask)`.
fn inotify_add_watch(cx: &mut Context, fd: Fd, path: PathPtr, mask: InotifyMask) -> SysResult {
    if (mask & InotifyMask::all()).is_empty() {
        return Err(EINVAL);
    }
    let f = fd.file(cx)?;
    if mask.contains(InotifyMask::IN_MASK_ADD | InotifyMask::IN_MASK_CREATE) {
        return Err(EINVAL);
    }
    let inotify = f.ops::<Inotify>().ok_or(EINVAL)?;
    let path = path.read(cx)?;
    let mut walk = Walk::empty();
    if !mask.contains(InotifyMask::IN_DONT_FOLLOW) {
        walk |= Walk::FOLLOW;
    }
    if mask.contains(InotifyMask::IN_ONLYDIR) {
        walk |= Walk::DIRECTORY;
    }
    cx.task
        .with_paths(|p| {
            let at = p.resolve(&At::Cwd, &path, walk)?;
            p.permission(&at, Want::READ)?;
            let (list, kept) = WatchList::of(&at)?;
            let held = p.cred().hold(at.inode()?.host_user())?;
            inotify.add_watch((&list, kept), mask.bits(), held)
        })
        .map(|wd| wd as usize)
}

/// `inotify_rm_watch(fd, wd)`.
fn inotify_rm_watch(cx: &mut Context, fd: Fd, wd: i32) -> SysResult {
    let f = fd.file(cx)?;
    f.ops::<Inotify>()
        .ok_or(EINVAL)?
        .remove_watch(wd)
        .map(|()| 0)
}

calls! {
    inotify_init,
    inotify_init1,
    inotify_add_watch: "changes made outside of the sandbox are not seen",
    inotify_rm_watch,
}
