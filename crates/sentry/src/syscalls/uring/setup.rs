//! io_uring_setup(2): rings are made.

use super::super::SysResult;
use super::super::args::*;
use crate::task::Context;
use crate::task::uring::abi::{FEATURES, Params, Setup};
use crate::task::uring::memory::Sizes;
use crate::task::uring::{Maker, Ring, RingFile};
use abi::Result;
use abi::errno::{EINVAL, ENXIO, EPERM};
use abi::linux::O_RDWR;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::fd_table::CloseOnExec;
use vfs::{Caps, File};

/// `kernel.io_uring_disabled` and `kernel.io_uring_group` (`io_uring_allowed`).
fn check_allowed(cx: &Context) -> Result<()> {
    let cred = cx.cred();
    let c = &cx.group.container;
    let group = c.uring_group.load(Ordering::Relaxed);
    let is_member = || {
        let gid = u32::try_from(group).ok();
        gid.is_some_and(|g| cred.egid == g || cred.groups.contains(&g))
    };
    match c.uring_disabled.load(Ordering::Relaxed) {
        0 => Ok(()),
        1 if cred.has(Caps::SYS_ADMIN) || is_member() => Ok(()),
        _ => Err(EPERM),
    }
}

pub(super) fn setup(cx: &mut Context, entries: u32, params: UserPtr<Params>) -> SysResult {
    check_allowed(cx)?;
    let mm = cx.mm();
    let mut p = params.read(&mm)?;
    if p.resv != [0; 3] {
        return Err(EINVAL);
    }
    let setup = Setup::from_bits(p.flags).ok_or(EINVAL)?;
    check(setup)?;
    let sizes = Sizes::new(entries, &p, setup)?;
    let ring = Ring::new(
        sizes,
        &Maker {
            clas: mm.clas(),
            user: cx.cred().ucounts(),
            setup,
        },
    )?;
    // From here on its end is the file's.
    let ops = Arc::new(RingFile { ring: ring.clone() });
    let file = File::new(ops, O_RDWR, None, cx.cred());
    if setup.contains(Setup::SINGLE_ISSUER) && !setup.contains(Setup::R_DISABLED) {
        ring.is_issuer(&cx.task);
    }
    if setup.contains(Setup::SQPOLL) {
        super::sqthread::begin(cx, &ring, &p)?;
    } else if setup.contains(Setup::ATTACH_WQ) {
        let f = attached(cx, &p)?;
        super::ring_of(&f).map_err(|_| EINVAL)?;
    }
    sizes.tell(&mut p);
    p.features = FEATURES;
    params.write(&mm, &p)?;
    let fd = cx.files().install(file, CloseOnExec::Yes, &cx.room())?;
    Ok(fd as usize)
}

/// The ring whose workers, or thread, are to be shared.
pub(super) fn attached(cx: &Context, p: &Params) -> Result<Arc<File>> {
    Fd(p.wq_fd as i32).file(cx).map_err(|_| ENXIO)
}

/// Flags that exclude each other (`io_uring_create`).
fn check(s: Setup) -> Result<()> {
    let has = |f| s.contains(f);
    let bad = has(Setup::SQ_AFF) && !has(Setup::SQPOLL)
        || has(Setup::SQPOLL)
            && s.intersects(Setup::COOP_TASKRUN | Setup::TASKRUN_FLAG | Setup::DEFER_TASKRUN)
        || has(Setup::TASKRUN_FLAG) && !s.intersects(Setup::COOP_TASKRUN | Setup::DEFER_TASKRUN)
        || has(Setup::DEFER_TASKRUN) && !has(Setup::SINGLE_ISSUER);
    if bad { Err(EINVAL) } else { Ok(()) }
}
