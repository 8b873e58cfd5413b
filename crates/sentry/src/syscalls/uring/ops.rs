//! The table of operations (`io_uring/opdef.c`).

use super::{
    Prepared, by, call, commands, files, net, paths, poll, receive, rings, rw, timeouts, waits,
};
use crate::task::Context;
use crate::task::uring::abi::FUTEX_WAITV;
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

pub(super) const LINK_TIMEOUT: u8 = 15;
/// `IORING_OP_LAST`.
pub(super) const LAST: u8 = 58;

const NONE: Traits = Traits::empty();
const RW: Traits = Traits::IOPRIO.union(Traits::IOPOLL);
const IOPRIO: Traits = Traits::IOPRIO;
const IOPOLL: Traits = Traits::IOPOLL;
const SELECTS: Traits = Traits::SELECTS;

/// The operation of a number, if there is one.
pub(super) fn find(opcode: u8) -> Option<Def> {
    let def = |prepare, traits| Some(Def { prepare, traits });
    match opcode {
        0 => def(nop, IOPOLL),
        1 => def(rw::readv, RW.union(SELECTS)),
        2 => def(rw::writev, RW),
        3 => def(files::fsync, NONE),
        4 => def(rw::read_fixed, RW),
        5 => def(rw::write_fixed, RW),
        6 => def(poll::add, NONE),
        7 => def(poll::remove, NONE),
        8 => def(files::sync_file_range, NONE),
        9 => def(net::sendmsg, IOPRIO),
        10 => def(receive::recvmsg, IOPRIO.union(SELECTS)),
        11 => def(timeouts::timeout, NONE),
        12 => def(timeouts::remove, NONE),
        13 => def(net::accept, IOPRIO),
        14 => def(poll::cancel, NONE),
        LINK_TIMEOUT => def(timeouts::link_timeout, NONE),
        16 => def(net::connect, NONE),
        17 => def(files::fallocate, NONE),
        18 => def(paths::openat, NONE),
        19 => def(files::close, NONE),
        20 => def(rings::files_update, IOPOLL),
        21 => def(paths::statx, NONE),
        22 => def(rw::read, RW.union(SELECTS)),
        23 => def(rw::write, RW),
        24 => def(files::fadvise, NONE),
        25 => def(files::madvise, NONE),
        26 => def(net::send, IOPRIO.union(SELECTS)),
        27 => def(receive::recv, IOPRIO.union(SELECTS)),
        28 => def(paths::openat2, NONE),
        29 => def(files::epoll, NONE),
        30 => def(files::splice, NONE),
        31 => def(rings::provide, IOPOLL),
        32 => def(rings::remove, IOPOLL),
        33 => def(files::tee, NONE),
        34 => def(net::shutdown, NONE),
        35 => def(paths::renameat, NONE),
        36 => def(paths::unlinkat, NONE),
        37 => def(paths::mkdirat, NONE),
        38 => def(paths::symlinkat, NONE),
        39 => def(paths::linkat, NONE),
        40 => def(rings::message, IOPOLL),
        41 => def(files::fsetxattr, NONE),
        42 => def(files::setxattr, NONE),
        43 => def(files::fgetxattr, NONE),
        44 => def(files::getxattr, NONE),
        45 => def(net::socket, NONE),
        46 => def(commands::command, IOPOLL),
        47 => def(net::send_zc, IOPRIO),
        48 => def(net::sendmsg_zc, IOPRIO),
        49 => def(rw::read_multishot, SELECTS),
        50 => def(waits::waitid, NONE),
        51 => def(waits::futex_wait, NONE),
        52 => def(waits::futex_wake, NONE),
        53 => def(waits::futex_waitv, NONE),
        54 => def(files::fd_install, NONE),
        55 => def(files::ftruncate, NONE),
        56 => def(net::bind, NONE),
        57 => def(net::listen, NONE),
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
        // READV, WRITEV.
        1 | 2 => 16 * len.min(1024),
        // OPENAT, STATX, OPENAT2, RENAMEAT, UNLINKAT, MKDIRAT, SYMLINKAT, LINKAT.
        18 | 21 | 28 | 35..=39 => 2 * PATH,
        // FSETXATTR, SETXATTR, FGETXATTR, GETXATTR.
        41..=44 => 2 * PATH + len.min(64 << 10),
        FUTEX_WAITV => 192 * len.min(128),
        _ => 0,
    }
}
