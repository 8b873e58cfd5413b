//! Memory of memfd_secret(2): a program shows it to nobody (`mm/secretmem.c`).
//!
//! # Invariants
//!
//! - A mapping of such a file is shared, locked within RLIMIT_MEMLOCK, not dumped, and confidential
//!   ([`crate::confidential`]): its frames are not swapped out, and overwritten when they go.
//! - Its pages are found by the program's own addresses alone: its accesses, and system calls of
//!   its own that read or write there. Nothing is copied by another's hand ([`State::shown`]), nor
//!   are its pages given to a pipe or a ring.

use crate::state::State;
use crate::vma::VmaFlags;
use crate::{Mm, Result};
use abi::Va;
use abi::errno::EINVAL;

/// What a mapping of a secret is besides; `EINVAL` for a private one.
pub(crate) fn flags(asked: VmaFlags) -> Result<VmaFlags> {
    if !asked.contains(VmaFlags::SHARED) {
        return Err(EINVAL);
    }
    let kept = VmaFlags::CONFIDENTIAL | VmaFlags::DONTDUMP;
    Ok(VmaFlags::SECRET | VmaFlags::LOCKED | kept)
}

impl Mm {
    /// Whether something in `[va, va + len)` is secret: nobody may keep its pages.
    #[must_use]
    pub fn is_secret(&self, va: Va, len: u64) -> bool {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.with(|st| st.shown(va.0, len) < len)
    }
}

impl State {
    /// How many of `len` bytes from `va` on come before what is secret.
    pub(crate) fn shown(&self, va: u64, len: usize) -> usize {
        self.before(va, len, VmaFlags::SECRET)
    }

    /// How many of them come before the first VMA with any of these flags.
    pub(crate) fn before(&self, va: u64, len: usize, flags: VmaFlags) -> usize {
        let end = va.saturating_add(len as u64);
        let mut in_range = self.vmas.range(va..end);
        match in_range.find(|(_, v)| v.flags.intersects(flags)) {
            Some((r, _)) => (r.start.max(va) - va) as usize,
            None => len,
        }
    }
}
