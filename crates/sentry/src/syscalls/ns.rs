//! Namespaces: leaving them for new ones, joining those of others.

use crate::syscalls::{Arg, Args, Call, SysResult};
use crate::task::Context;
use abi::errno::*;

/// `unshare(flags)`.
fn unshare(cx: &mut Context, a: &Args) -> SysResult {
    crate::ns::change::unshare(cx, a.u32(0)).map(|()| 0)
}

/// `setns(fd, type)`.
fn setns(cx: &mut Context, a: &Args) -> SysResult {
    use crate::ns::{change, nsfs::NsFile};
    let f = cx.fd(a.i32(0))?;
    let target = if let Some(n) = f.ops::<NsFile>() {
        change::Target::One(n.0.clone())
    } else if let Some(p) = f.ops::<crate::fs::pidfd::PidFd>() {
        let l = cx.kernel.tasks.lock();
        let t = p.group(&l).and_then(|g| l.some_thread(g.tgid));
        change::Target::Of(t.ok_or(ESRCH)?)
    } else {
        return Err(EINVAL);
    };
    change::setns(cx, &target, a.u32(1)).map(|()| 0)
}

/// See [`super::ALL`].
pub const CALLS: &[Call] = &[
    Call::new(272, "unshare", &[Arg::Hex], unshare).note("no time namespaces"),
    Call::new(308, "setns", &[Arg::Fd, Arg::Hex], setns).note("time namespaces: one"),
];
