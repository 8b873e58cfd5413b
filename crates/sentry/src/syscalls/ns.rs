//! Namespaces: leaving them for new ones, joining those of others.

use super::SysResult;
use super::args::*;
use crate::task::Context;
use abi::errno::*;

flags! {
    /// What unshare(2) leaves, and what setns(2) joins; [`crate::ns::change`] checks them.
    struct NsFlags: u32, kept {
        CLONE_NEWTIME,
        CLONE_VM,
        CLONE_FS,
        CLONE_FILES,
        CLONE_SIGHAND,
        CLONE_THREAD,
        CLONE_NEWNS,
        CLONE_SYSVSEM,
        CLONE_NEWCGROUP,
        CLONE_NEWUTS,
        CLONE_NEWIPC,
        CLONE_NEWUSER,
        CLONE_NEWPID,
        CLONE_NEWNET,
    }
}

/// `unshare(flags)`.
fn unshare(cx: &mut Context, flags: NsFlags) -> SysResult {
    crate::ns::change::unshare(cx, flags.bits()).map(|()| 0)
}

/// `setns(fd, type)`.
fn setns(cx: &mut Context, fd: Fd, flags: NsFlags) -> SysResult {
    use crate::ns::{change, nsfs::NsFile};
    let f = fd.any_file(cx)?;
    let target = if let Some(n) = f.ops::<NsFile>() {
        change::Target::One(n.0.clone())
    } else if let Some(p) = f.ops::<crate::task::pidfd::PidFd>() {
        let l = cx.kernel.tasks.lock();
        let t = p.group(&l).and_then(|g| l.some_thread(g.tgid));
        change::Target::Of(t.ok_or(ESRCH)?)
    } else {
        return Err(EINVAL);
    };
    change::setns(cx, &target, flags.bits()).map(|()| 0)
}

calls! {
    unshare,
    setns,
}
