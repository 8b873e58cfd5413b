//! mseal(2): mappings that stay as they are.
//!
//! What a sealed VMA refuses, with `EPERM` (Linux: mm/mseal.c): to be unmapped or replaced, to
//! move or to change its size, another protection, and advice that would empty private memory
//! which cannot be written. A seal is never taken away; execve(2) and the process's end take the
//! address space as a whole. A fork's child has it, too.

use crate::map::some_range;
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use crate::{Mm, Result};
use abi::Va;
use abi::errno::{EINVAL, ENOMEM, EPERM};
use abi::linux::{
    MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_REMOVE, MADV_WIPEONFORK,
};
use std::ops::Range;

impl Mm {
    /// `mseal(2)`: `ENOMEM`, and nothing is sealed, where something of it is not mapped.
    pub fn mseal(&self, va: Va, len: u64, flags: u64) -> Result<()> {
        if flags != 0 {
            return Err(EINVAL);
        }
        let Some(r) = some_range(va, len)? else {
            return Ok(());
        };
        self.with(|st| {
            st.mapped_parts(&r).ok_or(ENOMEM)?;
            st.reserve_vmas(st.vmas.cuts(&r))?;
            st.vmas.change(r, |_, flags| *flags |= VmaFlags::SEALED);
            Ok(())
        })
    }
}

impl State {
    /// `EPERM` where a part of `r` is sealed.
    pub(crate) fn may_change(&self, r: &Range<u64>) -> Result<()> {
        let mut vmas = self.vmas.range(r.clone());
        if vmas.any(|(_, v)| v.is_sealed()) {
            return Err(EPERM);
        }
        Ok(())
    }
}

impl Vma {
    pub(crate) fn is_sealed(&self) -> bool {
        self.flags.contains(VmaFlags::SEALED)
    }

    /// Whether a seal forbids this advice of madvise(2).
    pub(crate) fn is_sealed_against(&self, advice: u32) -> bool {
        let discards = matches!(
            advice,
            MADV_DONTNEED
                | MADV_DONTNEED_LOCKED
                | MADV_FREE
                | MADV_REMOVE
                | MADV_DONTFORK
                | MADV_WIPEONFORK
        );
        self.is_sealed()
            && discards
            && self.is_private_anon()
            && !self.prot.contains(platform::Prot::WRITE)
    }
}
