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
            Va(st.room.layout().brk)
        })
    }
}

impl State {
    /// Moves the break; `None` where it stays.
    fn brk(&mut self, to: u64) -> Option<()> {
        let l = self.room.layout();
        if to < l.start_brk || to > USER_MAX {
            return None;
        }
        let data = (to - l.start_brk).saturating_add(l.end_data.saturating_sub(l.start_data));
        let most = self.room.limits().data;
        if most != u64::MAX && data > most {
            return None;
        }
        let old = page_align(l.brk)?;
        let new = page_align(to)?;
        if new < old {
            self.munmap(new..old).ok()?;
        } else if new > old {
            let flags = self.room.default_flags();
            let now = self.vmas.counts();
            if !self.room.may_lock(now, flags, new - old)
                // One page stays free above it.
                || !self.vmas.is_free(old, new - old + PAGE)
                || !self.room.may_expand(now, Prot::RW, flags, new - old)
            {
                return None;
            }
            self.reserve_vmas(0).ok()?;
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
        self.room.layout_mut().brk = to;
        Some(())
    }
}
