//! Which requests a cancellation means (`io_uring/cancel.c`).

use super::Ring;
use super::abi::op;
use super::request::Request;
use abi::Result;
use abi::errno::{EALREADY, EINVAL, ENOENT};
use bitflags::bitflags;
use std::sync::Arc;
use vfs::File;

/// Waits for children and futexes: Linux counts one of them, too (`io_futex_cancel`).
pub(super) const COUNTED: [u8; 3] = [op::WAITID, op::FUTEX_WAIT, op::FUTEX_WAITV];

bitflags! {
    /// `IORING_ASYNC_CANCEL_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct CancelFlags: u32 {
        const ALL = 1;
        const FD = 2;
        const ANY = 4;
        const FD_FIXED = 8;
        const USERDATA = 16;
        const OP = 32;
    }
}

/// What is to be cancelled.
pub struct CancelTarget {
    pub flags: CancelFlags,
    pub user_data: u64,
    pub file: Option<Arc<File>>,
    pub opcode: u8,
    /// The cancellation itself.
    pub but: u64,
}

impl CancelTarget {
    /// `EINVAL` for flags that exclude each other.
    pub fn check(flags: CancelFlags) -> Result<()> {
        use CancelFlags as F;
        let bad = flags.contains(F::ANY) && flags.intersects(F::FD | F::OP);
        (!bad).then_some(()).ok_or(EINVAL)
    }

    fn means(&self, r: &Request) -> bool {
        use CancelFlags as F;
        let f = self.flags;
        if r.number == self.but {
            return false;
        }
        if f.contains(F::ANY) {
            return true;
        }
        let by_data = !f.intersects(F::FD | F::OP) || f.contains(F::USERDATA);
        let is_its = |f: &Arc<File>| r.has_file(f);
        if f.contains(F::FD) && !self.file.as_ref().is_some_and(is_its) {
            return false;
        }
        if f.contains(F::OP) && r.sqe.opcode != self.opcode {
            return false;
        }
        !by_data || r.sqe.user_data == self.user_data
    }

    /// Cancels what is meant, for a request perhaps, whose end is told first: how many with ALL or
    /// ANY, else 0 for the one; `ENOENT`, `EALREADY`.
    pub fn cancel(&self, ring: &Ring, by: Option<&Request>) -> Result<usize> {
        let all = self.flags.intersects(CancelFlags::ALL | CancelFlags::ANY);
        let found = match (all, self.flags.is_empty()) {
            (true, _) => ring.find(usize::MAX, |r| self.means(r)),
            (false, true) => {
                let one = ring.find_named(self.user_data, |r| self.means(r));
                one.into_iter().collect()
            }
            (false, false) => ring.find(1, |r| self.means(r)),
        };
        let (mut n, mut last, mut counts) = (0, ENOENT, false);
        for r in found {
            let done = match by {
                Some(by) => r.cancel_after(by),
                None => r.cancel(),
            };
            counts |= COUNTED.contains(&r.sqe.opcode);
            match done {
                Ok(()) => n += 1,
                // It is busy, and sees that it is to end.
                Err(EALREADY) if all => n += 1,
                Err(e) => last = e,
            }
        }
        match (all, n) {
            (true, n) => Ok(n),
            (false, 0) => Err(last),
            (false, n) => Ok(if counts { n } else { 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_are_not_those_of_a_file() {
        use CancelFlags as F;
        for (flags, fine) in [
            (F::empty(), true),
            (F::ALL | F::FD, true),
            (F::ANY | F::ALL, true),
            (F::ANY | F::FD, false),
            (F::ANY | F::OP, false),
        ] {
            assert_eq!(CancelTarget::check(flags).is_ok(), fine, "{flags:?}");
        }
    }
}
