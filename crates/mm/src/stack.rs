//! Stacks that grow (`expand_stack`).

use crate::state::State;
use crate::types::Bad;
use crate::vma::VmaFlags;
use crate::{PAGE, STACK_GUARD_PAGES};
use abi::Va;
use platform::{Prot, USER_MIN};

/// A stack grows by up to this much at a time: only how soon differs from Linux, which grows page
/// by page.
const STEP: u64 = 64 << 10;

impl State {
    /// Grows the stack above `va`, if there is one, to hold it.
    pub(crate) fn grow_stack(&mut self, va: u64) -> Result<(), Bad> {
        let Some((r, vma)) = self.vmas.first_from(va) else {
            return Err(Bad::Unmapped);
        };
        if !vma.flags.contains(VmaFlags::GROWSDOWN) {
            return Err(Bad::Unmapped);
        }
        let vma = vma.clone();
        let lowest = match self.vmas.last_below(r.start) {
            // Another stack or an area without access may lie close.
            Some((e, below))
                if below.flags.contains(VmaFlags::GROWSDOWN) || below.prot == Prot::NONE =>
            {
                e.end
            }
            Some((e, _)) => e.end + STACK_GUARD_PAGES * PAGE,
            None => USER_MIN,
        };
        let exact = Va(va).page_down().0;
        for start in [(va & !(STEP - 1)).max(lowest).min(exact), exact] {
            let more = r.start - start;
            let now = self.vmas.counts();
            if start >= lowest
                && r.end - start <= self.room.limits().stack
                && self.room.may_lock(now, vma.flags, more)
                && self.room.may_expand(now, vma.prot, vma.flags, more)
                && self.vmas.grow_down(&r, start)
            {
                self.make_way(&(start..r.start));
                return Ok(());
            }
        }
        Err(Bad::Unmapped)
    }
}
