//! mprotect(2).

use crate::map::user_range;
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use crate::{Mm, Result, page_align};
use abi::Va;
use abi::errno::{EACCES, EINVAL, ENOMEM, EPERM};
use abi::linux::{PROT_GROWSDOWN, PROT_GROWSUP, PROT_SEM};
use platform::Prot;
use std::ops::Range;

impl Mm {
    /// `mprotect(2)`. As on Linux, a failure may leave the lower part changed.
    pub fn mprotect(&self, va: Va, len: u64, prot: u32) -> Result<()> {
        self.mprotect_implying(va, len, prot, 0)
    }

    /// The same; what `implied` says is added where a mapping may have it.
    pub fn mprotect_implying(&self, va: Va, len: u64, prot: u32, implied: u32) -> Result<()> {
        let grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
        let prot = prot & !(PROT_GROWSDOWN | PROT_GROWSUP);
        if grows == PROT_GROWSDOWN | PROT_GROWSUP || !va.is_page_aligned() {
            return Err(EINVAL);
        }
        if len == 0 {
            return Ok(());
        }
        if page_align(len).is_none_or(|l| va.0.checked_add(l).is_none()) {
            return Err(ENOMEM);
        }
        if prot & !(7 | PROT_SEM) != 0 || grows == PROT_GROWSUP {
            return Err(EINVAL);
        }
        let r = user_range(va, len).ok_or(ENOMEM)?;
        let (prot, implied) = (Prot(prot & 7), Prot(implied & 7));
        self.with(|st| st.mprotect(r, prot, implied, grows != 0))
    }
}

impl State {
    fn mprotect(
        &mut self,
        mut r: Range<u64>,
        prot: Prot,
        implied: Prot,
        grows: bool,
    ) -> Result<()> {
        let (e, first) = self.vmas.first_from(r.start).ok_or(ENOMEM)?;
        if grows {
            if e.start >= r.end {
                return Err(ENOMEM);
            }
            if !first.flags.contains(VmaFlags::GROWSDOWN) {
                return Err(EINVAL);
            }
            r.start = e.start;
        } else if e.start > r.start {
            return Err(ENOMEM);
        }
        let mut at = r.start;
        while at < r.end {
            let Some((e, vma)) = self.vmas.get(at) else {
                return Err(ENOMEM);
            };
            let part = at..e.end.min(r.end);
            at = part.end;
            let prot = Prot(prot.0 | implied.0 & vma.max_prot.0);
            if !vma.max_prot.contains(prot) {
                return Err(EACCES);
            }
            if vma.is_sealed() {
                return Err(EPERM);
            }
            if vma.prot == prot {
                continue;
            }
            let becomes_data = Vma::is_data(prot, vma.flags) && !Vma::is_data(vma.prot, vma.flags);
            if becomes_data
                && !self
                    .room
                    .may_add_data(self.vmas.counts(), part.end - part.start)
            {
                return Err(ENOMEM);
            }
            self.reserve_vmas(self.vmas.cuts(&part))?;
            if prot.contains(Prot::WRITE) {
                self.unpatch(&part);
            }
            self.vmas.change(part.clone(), |p, _| *p = prot);
            self.host_protect(part);
        }
        Ok(())
    }
}
