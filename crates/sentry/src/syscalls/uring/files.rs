//! Operations on files and paths.

use super::super::args::*;
use super::{Prepared, call};
use crate::task::Context;
use crate::task::uring::{Ring, Sqe};
use abi::errno::*;
use std::sync::Arc;
use vfs::file::DataOnly;

/// `IORING_OP_FSYNC`.
pub(super) fn fsync(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    const DATASYNC: u32 = 1;
    if e.addr != 0 || e.buf_index != 0 || e.file_index != 0 || e.op_flags & !DATASYNC != 0 {
        return Err(EINVAL);
    }
    let data_only = match e.op_flags {
        0 => DataOnly::No,
        _ => DataOnly::Yes,
    };
    call(move |_, r| r.file()?.ops.sync(data_only).map(|()| 0))
}

/// `IORING_OP_CLOSE`: of a descriptor, or a registered file.
pub(super) fn close(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    if e.off != 0 || e.addr != 0 || e.len != 0 || e.op_flags != 0 || e.buf_index != 0 {
        return Err(EINVAL);
    }
    if e.has(crate::task::uring::abi::SqeFlags::FIXED_FILE) {
        return Err(EBADF);
    }
    let (fd, slot) = (e.fd, e.file_index);
    if slot != 0 && fd != 0 {
        return Err(EINVAL);
    }
    call(move |cx, r| {
        if slot != 0 {
            return match r.ring.resources.files.set(slot - 1, None)? {
                true => Ok(0),
                false => Err(EBADF),
            };
        }
        let f = Fd(fd).any_file(cx)?;
        // Rings are not closed so.
        if f.ops::<crate::task::uring::RingFile>().is_some() {
            return Err(EBADF);
        }
        drop(f);
        cx.files().close(fd).map(|()| 0)
    })
}
