//! mlock(2) and its relatives. The Sentry pins nothing on the host; it keeps Linux's accounts, and
//! makes the pages so that later accesses do not fail.

use crate::map::user_range;
use crate::state::State;
use crate::vma::VmaFlags;
use crate::{Mm, PAGE, Result};
use abi::Va;
use abi::errno::{EINVAL, ENOMEM, EPERM};
use abi::linux::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};
use platform::USER_MAX;
use std::ops::Range;

const BOTH: VmaFlags = VmaFlags::LOCKED.union(VmaFlags::LOCKONFAULT);

/// The pages that `[va, va + len)` touches.
fn touched(va: Va, len: u64) -> Result<Range<u64>> {
    let start = va.page_down();
    let len = len.checked_add(va.0 - start.0).ok_or(EINVAL)?;
    let end = start
        .0
        .checked_add(crate::page_align(len).ok_or(EINVAL)?)
        .ok_or(EINVAL)?;
    if end <= USER_MAX {
        user_range(start, end - start.0).ok_or(ENOMEM)
    } else {
        Err(ENOMEM)
    }
}

impl Mm {
    /// `mlock(2)` (`flags` 0) and `mlock2(2)`.
    pub fn mlock(&self, va: Va, len: u64, flags: u32) -> Result<()> {
        if flags & !MLOCK_ONFAULT != 0 {
            return Err(EINVAL);
        }
        let set = if flags == 0 { VmaFlags::LOCKED } else { BOTH };
        if flags == 0
            && let Ok(r) = touched(va, len)
        {
            self.ask(r);
        }
        self.with_filled(|st| {
            if st.room.limits().memlock == 0 {
                return Err(EPERM);
            }
            let r = touched(va, len)?;
            let already: u64 = st
                .vmas
                .range(r.clone())
                .filter(|(_, v)| v.flags.contains(VmaFlags::LOCKED))
                .map(|(e, _)| e.end.min(r.end) - e.start.max(r.start))
                .sum();
            let would = (st.vmas.counts().locked * PAGE).saturating_add(r.end - r.start) - already;
            if would > st.room.limits().memlock {
                return Err(ENOMEM);
            }
            st.set_locked(r.clone(), set)?;
            if flags == 0 {
                st.populate(r).map_err(|_| ENOMEM)?;
            }
            Ok(())
        })
    }

    /// `munlock(2)`.
    pub fn munlock(&self, va: Va, len: u64) -> Result<()> {
        self.with(|st| st.set_locked(touched(va, len)?, VmaFlags::empty()))
    }

    /// `mlockall(2)`.
    pub fn mlockall(&self, flags: u32) -> Result<()> {
        if flags == 0
            || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0
            || flags == MCL_ONFAULT
        {
            return Err(EINVAL);
        }
        let set = if flags & MCL_ONFAULT != 0 {
            BOTH
        } else {
            VmaFlags::LOCKED
        };
        self.with_filled(|st| {
            if st.room.limits().memlock == 0 {
                return Err(EPERM);
            }
            let total = st.vmas.counts().total * PAGE;
            if flags & MCL_CURRENT != 0 && total > st.room.limits().memlock {
                return Err(ENOMEM);
            }
            st.room.lock_new(if flags & MCL_FUTURE != 0 {
                set
            } else {
                VmaFlags::empty()
            });
            if flags & MCL_CURRENT != 0 {
                let all: Vec<Range<u64>> = st.vmas.iter().map(|(r, _)| r).collect();
                for r in all {
                    let _ = st.set_locked(r.clone(), set);
                    if flags & MCL_ONFAULT == 0 {
                        let _ = st.populate(r);
                    }
                }
            }
            Ok(())
        })
    }

    /// `munlockall(2)`.
    pub fn munlockall(&self) {
        self.with(|st| {
            st.room.lock_new(VmaFlags::empty());
            let all: Vec<Range<u64>> = st.vmas.iter().map(|(r, _)| r).collect();
            for r in all {
                let _ = st.set_locked(r, VmaFlags::empty());
            }
        });
    }
}

impl State {
    /// Gives all VMAs of `r` these lock flags; `ENOMEM` at the first hole.
    fn set_locked(&mut self, r: Range<u64>, set: VmaFlags) -> Result<()> {
        let mut at = r.start;
        while at < r.end {
            let (e, v) = self.vmas.get(at).ok_or(ENOMEM)?;
            let part = at..e.end.min(r.end);
            at = part.end;
            // What is droppable is not locked, what is secret always, and nobody is told
            // (`mlock_fixup`).
            const KEPT: VmaFlags = VmaFlags::DROPPABLE.union(VmaFlags::SECRET);
            if v.flags & BOTH != set && !v.flags.intersects(KEPT) {
                self.reserve_vmas(self.vmas.cuts(&part))?;
                self.vmas
                    .change(part, |_, flags| *flags = (*flags - BOTH) | set);
            }
        }
        Ok(())
    }
}
