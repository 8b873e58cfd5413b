//! The table of operations (`io_uring/opdef.c`).

use super::{
    Prepared, by, call, commands, files, net, paths, poll, receive, rings, rw, timeouts, waits,
};
use crate::task::Context;
use crate::task::uring::abi::op;
use crate::task::uring::{Ring, Sqe};
use bitflags::bitflags;
use std::sync::Arc;

bitflags! {
    /// What an operation can be asked.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) struct Traits: u8 {
        /// Its entry has a priority, or flags in its place.
        const IOPRIO = 1;
        /// It can be submitted to a ring with IOPOLL.
        const IOPOLL = 2;
        /// It takes a provided buffer.
        const SELECTS = 4;
    }
}

/// An operation.
pub(super) struct Def {
    pub prepare: fn(&mut Context, &Arc<Ring>, &Sqe) -> Prepared,
    traits: Traits,
}

impl Def {
    pub(super) fn has(&self, t: Traits) -> bool {
        self.traits.contains(t)
    }
}

const NONE: Traits = Traits::empty();
const RW: Traits = Traits::IOPRIO.union(Traits::IOPOLL);
const IOPRIO: Traits = Traits::IOPRIO;
const IOPOLL: Traits = Traits::IOPOLL;
const SELECTS: Traits = Traits::SELECTS;

/// The operation of a number, if there is one.
pub(super) fn find(opcode: u8) -> Option<Def> {
    let def = |prepare, traits| Some(Def { prepare, traits });
    match opcode {
        op::NOP => def(nop, IOPOLL),
        op::READV => def(rw::readv, RW.union(SELECTS)),
        op::WRITEV => def(rw::writev, RW),
        op::FSYNC => def(files::fsync, NONE),
        op::READ_FIXED => def(rw::read_fixed, RW),
        op::WRITE_FIXED => def(rw::write_fixed, RW),
        op::POLL_ADD => def(poll::add, NONE),
        op::POLL_REMOVE => def(poll::remove, NONE),
        op::SYNC_FILE_RANGE => def(files::sync_file_range, NONE),
        op::SENDMSG => def(net::sendmsg, IOPRIO),
        op::RECVMSG => def(receive::recvmsg, IOPRIO.union(SELECTS)),
        op::TIMEOUT => def(timeouts::timeout, NONE),
        op::TIMEOUT_REMOVE => def(timeouts::remove, NONE),
        op::ACCEPT => def(net::accept, IOPRIO),
        op::ASYNC_CANCEL => def(poll::cancel, NONE),
        op::LINK_TIMEOUT => def(timeouts::link_timeout, NONE),
        op::CONNECT => def(net::connect, NONE),
        op::FALLOCATE => def(files::fallocate, NONE),
        op::OPENAT => def(paths::openat, NONE),
        op::CLOSE => def(files::close, NONE),
        op::FILES_UPDATE => def(rings::files_update, IOPOLL),
        op::STATX => def(paths::statx, NONE),
        op::READ => def(rw::read, RW.union(SELECTS)),
        op::WRITE => def(rw::write, RW),
        op::FADVISE => def(files::fadvise, NONE),
        op::MADVISE => def(files::madvise, NONE),
        op::SEND => def(net::send, IOPRIO.union(SELECTS)),
        op::RECV => def(receive::recv, IOPRIO.union(SELECTS)),
        op::OPENAT2 => def(paths::openat2, NONE),
        op::EPOLL_CTL => def(files::epoll, NONE),
        op::SPLICE => def(files::splice, NONE),
        op::PROVIDE_BUFFERS => def(rings::provide, IOPOLL),
        op::REMOVE_BUFFERS => def(rings::remove, IOPOLL),
        op::TEE => def(files::tee, NONE),
        op::SHUTDOWN => def(net::shutdown, NONE),
        op::RENAMEAT => def(paths::renameat, NONE),
        op::UNLINKAT => def(paths::unlinkat, NONE),
        op::MKDIRAT => def(paths::mkdirat, NONE),
        op::SYMLINKAT => def(paths::symlinkat, NONE),
        op::LINKAT => def(paths::linkat, NONE),
        op::MSG_RING => def(rings::message, IOPOLL),
        op::FSETXATTR => def(files::fsetxattr, NONE),
        op::SETXATTR => def(files::setxattr, NONE),
        op::FGETXATTR => def(files::fgetxattr, NONE),
        op::GETXATTR => def(files::getxattr, NONE),
        op::SOCKET => def(net::socket, NONE),
        op::URING_CMD => def(commands::command, IOPOLL),
        op::SEND_ZC => def(net::send_zc, IOPRIO),
        op::SENDMSG_ZC => def(net::sendmsg_zc, IOPRIO),
        op::READ_MULTISHOT => def(rw::read_multishot, SELECTS),
        op::WAITID => def(waits::waitid, NONE),
        op::FUTEX_WAIT => def(waits::futex_wait, NONE),
        op::FUTEX_WAKE => def(waits::futex_wake, NONE),
        op::FUTEX_WAITV => def(waits::futex_waitv, NONE),
        op::FIXED_FD_INSTALL => def(files::fd_install, NONE),
        op::FTRUNCATE => def(files::ftruncate, NONE),
        op::BIND => def(net::bind, NONE),
        op::LISTEN => def(net::listen, NONE),
        _ => None,
    }
}

/// `IORING_OP_NOP`: gives what its entry says (`IORING_NOP_INJECT_RESULT`).
fn nop(_: &mut Context, _: &Arc<Ring>, e: &Sqe) -> Prepared {
    const INJECT_RESULT: u32 = 1;
    let (flags, result) = (e.op_flags, e.len as i32);
    if flags & !INJECT_RESULT != 0 {
        return Err(abi::errno::EINVAL);
    }
    if flags == 0 {
        return call(|_, _| Ok(0));
    }
    by(move |_, _| crate::task::uring::Outcome::Done(crate::task::uring::Done::plain(result)))
}

/// Its paths and values, at most, bytes: what an entry's request holds of the kernel's memory.
pub(super) fn weight(e: &Sqe) -> u64 {
    const PATH: u64 = 4096;
    let len = u64::from(e.len);
    match e.opcode {
        op::READV | op::WRITEV => 16 * len.min(1024),
        op::OPENAT | op::OPENAT2 | op::STATX | op::RENAMEAT..=op::LINKAT => 2 * PATH,
        op::FSETXATTR..=op::GETXATTR => 2 * PATH + len.min(64 << 10),
        op::FUTEX_WAITV => 192 * len.min(128),
        _ => 0,
    }
}
