//! The table of operations (`io_uring/opdef.c`).

use super::{Prepared, by, call, files, poll, rw, timeouts};
use crate::task::Context;
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
const IOPOLL: Traits = Traits::IOPOLL;

/// The operation of a number, if there is one.
pub(super) fn find(opcode: u8) -> Option<Def> {
    let def = |prepare, traits| Some(Def { prepare, traits });
    match opcode {
        0 => def(nop, IOPOLL),
        1 => def(rw::readv, RW.union(Traits::SELECTS)),
        2 => def(rw::writev, RW),
        3 => def(files::fsync, NONE),
        4 => def(rw::read_fixed, RW),
        5 => def(rw::write_fixed, RW),
        6 => def(poll::add, NONE),
        7 => def(poll::remove, NONE),
        11 => def(timeouts::timeout, NONE),
        12 => def(timeouts::remove, NONE),
        14 => def(poll::cancel, NONE),
        LINK_TIMEOUT => def(timeouts::link_timeout, NONE),
        19 => def(files::close, NONE),
        22 => def(rw::read, RW.union(Traits::SELECTS)),
        23 => def(rw::write, RW),
        49 => def(rw::read_multishot, Traits::SELECTS),
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
