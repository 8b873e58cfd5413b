//! Operations on rings: messages to others, provided buffers, registered files.

use super::files::{install, unused};
use super::tables::update_files;
use super::{Prepared, call, ring_of};
use crate::task::Context;
use crate::task::uring::abi::SqeFlags;
use crate::task::uring::buffers::{LISTED, Provided};
use crate::task::uring::{Cqe, Ring, Sqe};
use abi::errno::*;
use std::sync::Arc;
use vfs::ucounts::Kind;

/// `IORING_MSG_RING_*`.
const CQE_SKIP: u32 = 1;
const FLAGS_PASS: u32 = 2;

/// `IORING_OP_MSG_RING`: a completion for another ring, perhaps with a registered file.
pub(super) fn message(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.buf_index.into(), e.personality.into()])?;
    if e.op_flags & !(CQE_SKIP | FLAGS_PASS) != 0 {
        return Err(EINVAL);
    }
    let e = *e;
    call(move |_, r| {
        let f = r.file()?;
        let to = &ring_of(&f).map_err(|_| EBADFD)?.ring;
        match e.addr {
            0 => data(to, &e),
            1 => send_file(&r.ring, to, &e),
            _ => Err(EINVAL),
        }
    })
}

fn data(to: &Ring, e: &Sqe) -> super::SysResult {
    let passes = e.op_flags & FLAGS_PASS != 0;
    if e.addr3 != 0 || e.op_flags & !FLAGS_PASS != 0 || !passes && e.file_index != 0 {
        return Err(EINVAL);
    }
    if to.is_disabled() {
        return Err(EBADFD);
    }
    tell(to, e, e.len as i32, if passes { e.file_index } else { 0 })
}

fn tell(to: &Ring, e: &Sqe, res: i32, flags: u32) -> super::SysResult {
    let told = to.complete_for(Cqe {
        user_data: e.off,
        res,
        flags,
        ..Cqe::default()
    });
    told.then_some(0).ok_or(EOVERFLOW)
}

fn send_file(from: &Ring, to: &Ring, e: &Sqe) -> super::SysResult {
    if e.len != 0 || std::ptr::eq(from, to) {
        return Err(EINVAL);
    }
    if to.is_disabled() {
        return Err(EBADFD);
    }
    let node = from.resources.files.get(e.addr3 as u32).ok_or(EBADF)?;
    if e.file_index == 0 {
        return Err(EINVAL);
    }
    let n = install(to, node.what().clone(), e.file_index)?;
    if e.op_flags & CQE_SKIP == 0 {
        tell(to, e, n as i32, 0)?;
    }
    Ok(n)
}

const MAX_BUFFERS: u64 = 1 << 16;

/// `IORING_OP_PROVIDE_BUFFERS`.
pub(super) fn provide(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.op_flags.into(), e.file_index.into()])?;
    let n = u64::try_from(e.fd).map_err(|_| E2BIG)?;
    if n == 0 || n > MAX_BUFFERS {
        return Err(E2BIG);
    }
    if e.off >= MAX_BUFFERS {
        return Err(E2BIG);
    }
    if e.off + n > MAX_BUFFERS || e.len == 0 {
        return Err(EINVAL);
    }
    let size = n * u64::from(e.len);
    if e.addr
        .checked_add(size)
        .is_none_or(|end| end > platform::USER_MAX)
    {
        return Err(EFAULT);
    }
    let e = *e;
    call(move |_, r| {
        let charge = || {
            let charge = r.ring.user.charge(Kind::Kmem, LISTED, u64::MAX);
            charge.ok_or(ENOMEM)
        };
        let own = charge()?;
        let mut all = Vec::new();
        for i in 0..n {
            let b = Provided {
                addr: e.addr + i * u64::from(e.len),
                len: e.len,
                bid: (e.off + i) as u16,
            };
            all.push((b, charge()?));
        }
        r.ring.groups.provide(e.buf_index, all, own).map(|()| 0)
    })
}

/// `IORING_OP_REMOVE_BUFFERS`.
pub(super) fn remove(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    unused(&[e.op_flags.into(), e.addr, e.len.into(), e.off])?;
    unused(&[e.file_index.into()])?;
    let n = u64::try_from(e.fd).unwrap_or(0);
    if n == 0 || n > MAX_BUFFERS {
        return Err(EINVAL);
    }
    let group = e.buf_index;
    call(move |_, r| r.ring.groups.remove(group, n as usize))
}

/// `IORING_OP_FILES_UPDATE`.
pub(super) fn files_update(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    if e.has(SqeFlags::FIXED_FILE) || e.has(SqeFlags::BUFFER_SELECT) {
        return Err(EINVAL);
    }
    unused(&[e.op_flags.into(), e.file_index.into()])?;
    if e.len == 0 {
        return Err(EINVAL);
    }
    let e = *e;
    call(move |cx, r| update_files(cx, &r.ring, e.off as u32, (e.addr, 0), e.len))
}
