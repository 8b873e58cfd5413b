//! `IORING_OP_URING_CMD`: of files, sockets alone have some.

use super::super::SysResult;
use super::super::args::*;
use super::super::sockets::{OptionLevel, option_of, set_option, socket_of};
use super::{Prepared, call};
use crate::task::Context;
use crate::task::uring::{Ring, Sqe};
use abi::errno::*;
use abi::{Result, Va};
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use vfs::file::IoctlContext;
use vfs::{Credentials, File};

/// `SOCKET_URING_OP_*`.
const INQ: u32 = 0;
const OUTQ: u32 = 1;
const GETSOCKOPT: u32 = 2;
const SETSOCKOPT: u32 = 3;

pub(super) fn command(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    if e.off >> 32 != 0 || e.op_flags != 0 {
        return Err(EINVAL);
    }
    let e = *e;
    call(move |cx, r| {
        let f = r.file()?;
        let s = socket_of(&f).map_err(|_| EOPNOTSUPP)?;
        let (level, name) = (OptionLevel(e.addr as i32), (e.addr >> 32) as i32);
        match e.off as u32 {
            INQ => queued(cx, &f, 0x541b),
            OUTQ => queued(cx, &f, 0x5411),
            GETSOCKOPT if level == OptionLevel::SOL_SOCKET => {
                let v = option_of(cx, s, level, name)?;
                let n = v.len().min(e.file_index as usize);
                cx.mm().copy_out(Va(e.addr3), &v[..n])?;
                Ok(n)
            }
            SETSOCKOPT => {
                let value = BytesIn {
                    va: Va(e.addr3),
                    len: e.file_index as i32,
                };
                set_option(cx, s, level, name, value)
            }
            _ => Err(EOPNOTSUPP),
        }
    })
}

/// What an ioctl would write to the caller's memory.
struct IoctlResult<'a> {
    cx: &'a Context,
    value: Cell<[u8; 4]>,
}

impl IoctlContext for IoctlResult<'_> {
    fn copy_in(&self, _: Va, _: &mut [u8]) -> Result<()> {
        Err(EFAULT)
    }
    fn copy_out(&self, _: Va, src: &[u8]) -> Result<()> {
        self.value.set(src.try_into().map_err(|_| EFAULT)?);
        Ok(())
    }
    fn credentials(&self) -> Arc<Credentials> {
        self.cx.cred()
    }
    fn task(&self) -> &dyn Any {
        &self.cx.task
    }
}

fn queued(cx: &Context, f: &File, cmd: u32) -> SysResult {
    let told = IoctlResult {
        cx,
        value: Cell::default(),
    };
    f.ops.ioctl(f, &told, cmd, 0)?;
    Ok(i32::from_le_bytes(told.value.get()) as usize)
}
