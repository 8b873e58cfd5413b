//! brk(2).

use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use crate::{Mm, PAGE, page_align};
use abi::Va;
use platform::{Prot, USER_MAX};

impl Mm {
    /// `brk(2)`: gives the break, the new one or, where that is impossible, the old.
    pub fn brk(&self, to: Va) -> Va {
        self.with(|st| {
            st.brk(to.0);
            Va(st.layout.brk)
        })
    }
}

impl State {
    /// Moves the break; `None` where it stays.
    fn brk(&mut self, to: u64) -> Option<()> {
        let l = &self.layout;
        if to < l.start_brk || to > USER_MAX {
            return None;
        }
        let data = (to - l.start_brk).saturating_add(l.end_data.saturating_sub(l.start_data));
        if self.limits.data != u64::MAX && data > self.limits.data {
            return None;
        }
        let old = page_align(l.brk)?;
        let new = page_align(to)?;
        if new < old {
            self.munmap(new..old).ok()?;
        } else if new > old {
            let mut flags = self.def_flags;
            if flags.contains(VmaFlags::LOCKED)
                && self.counts.locked * PAGE + (new - old) > self.limits.memlock
            {
                return None;
            }
            flags -= VmaFlags::GROWSDOWN;
            // One page stays free above it.
            if !self.is_free(old, new - old + PAGE) || !self.may_expand(Prot::RW, flags, new - old)
            {
                return None;
            }
            self.too_many(0).ok()?;
            let vma = Vma {
                prot: Prot::RW,
                max_prot: Prot(7),
                flags,
                file: None,
            };
            self.vma_insert(old..new, vma);
            if flags.contains(VmaFlags::LOCKED) {
                let _ = self.populate(old..new);
            } else if new - old <= crate::predict::STEP && self.will_touch() {
                self.map_at_once(old..new);
            }
        }
        self.layout.brk = to;
        Some(())
    }
}
