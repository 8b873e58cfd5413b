//! mremap(2), remap_file_pages(2).

use crate::map::user_range;
use crate::place::Place;
use crate::state::State;
use crate::vma::{FileAt, Vma, VmaFlags};
use crate::{Mm, PAGE, Result, page_align};
use abi::Va;
use abi::errno::{EAGAIN, EFAULT, EINVAL, ENOMEM, EOVERFLOW, EPERM};
use abi::linux::{MAP_NONBLOCK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use platform::{USER_MAX, USER_MIN};
use std::ops::Range;
use std::sync::Arc;

impl Mm {
    /// `remap_file_pages(2)`: shows another part of the file that is mapped at `va`, by a mapping
    /// of its own, as Linux does since 4.0. `pgoff`: in pages.
    pub fn remap_file_pages(&self, va: Va, len: u64, pgoff: u64, flags: u32) -> Result<()> {
        let (start, len) = (va.0 & !(PAGE - 1), len & !(PAGE - 1));
        let end = start
            .checked_add(len)
            .filter(|e| *e > start)
            .ok_or(EINVAL)?;
        pgoff.checked_add(len / PAGE).ok_or(EINVAL)?;
        let offset = pgoff.checked_mul(PAGE).ok_or(EOVERFLOW)?;
        offset.checked_add(len).ok_or(EOVERFLOW)?;
        self.with(|st| {
            let (r, v) = st.vmas.get(start).ok_or(EINVAL)?;
            let file = v.file.clone().filter(|_| v.is_shared()).ok_or(EINVAL)?;
            // What follows must be the same file, mapped alike (it is where it was moved before).
            let mut at = r.end;
            while at < end {
                let (next, w) = st.vmas.get(at).ok_or(EINVAL)?;
                let same = w
                    .file
                    .as_ref()
                    .is_some_and(|f| Arc::ptr_eq(&f.file, &file.file));
                if !same || w.prot != v.prot || w.flags != v.flags {
                    return Err(EINVAL);
                }
                at = next.end;
            }
            let mut new = v.clone();
            new.file = Some(FileAt {
                file: file.file,
                offset,
            });
            st.may_change(&(start..end))?;
            st.reserve_vmas(2)?;
            st.munmap(start..end)?;
            st.vma_insert(start..end, new);
            if flags & MAP_NONBLOCK == 0 {
                let _ = st.populate(start..end);
            }
            Ok(())
        })
    }

    /// `mremap(2)`: gives the new address. `new_va` counts with MREMAP_FIXED, and is a hint with
    /// MREMAP_DONTUNMAP.
    pub fn mremap(
        &self,
        old: Va,
        old_len: u64,
        new_len: u64,
        flags: u32,
        new_va: Va,
    ) -> Result<Va> {
        if flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0
            || flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 && flags & MREMAP_MAYMOVE == 0
            || flags & MREMAP_DONTUNMAP != 0 && old_len != new_len
            || !old.is_page_aligned()
        {
            return Err(EINVAL);
        }
        let old_len = page_align(old_len).ok_or(EINVAL)?;
        let new_len = page_align(new_len)
            .filter(|n| *n > 0 && *n <= USER_MAX)
            .ok_or(EINVAL)?;
        self.with(|st| st.mremap(old.0, old_len, new_len, flags, new_va))
            .map(Va)
    }
}

impl State {
    fn mremap(
        &mut self,
        old: u64,
        mut old_len: u64,
        new_len: u64,
        flags: u32,
        new_va: Va,
    ) -> Result<u64> {
        let dontunmap = flags & MREMAP_DONTUNMAP != 0;
        let (_, vma) = self.vmas.get(old).ok_or(EFAULT)?;
        if dontunmap && vma.is_fixed() {
            return Err(EINVAL);
        }
        if vma.is_sealed() {
            return Err(EPERM);
        }
        if flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 {
            if flags & MREMAP_FIXED != 0 {
                let to = user_range(new_va, new_len).ok_or(EINVAL)?;
                if to.start < old.saturating_add(old_len) && old < to.end {
                    return Err(EINVAL);
                }
                if to.start < USER_MIN {
                    return Err(EPERM);
                }
                self.reserve_vmas(2)?;
                self.munmap(to)?;
            }
            if old_len > new_len {
                let r = user_range(Va(old), old_len).ok_or(EINVAL)?;
                self.munmap(old + new_len..r.end)?;
                old_len = new_len;
            }
            let vma = self.resizable(old, old_len, new_len)?;
            if dontunmap
                && !self
                    .room
                    .may_expand(self.vmas.counts(), vma.prot, vma.flags, new_len)
            {
                return Err(ENOMEM);
            }
            let to = if flags & MREMAP_FIXED != 0 {
                new_va.0
            } else {
                Place::Hint(new_va).find(new_len, &self.vmas, &self.room)?
            };
            return self.move_vma(old..old + old_len, to, new_len, vma, dontunmap);
        }
        if old_len >= new_len {
            // Shrinking may go over several VMAs, but not over the end of memory.
            let r = user_range(Va(old), old_len).ok_or(EINVAL)?;
            if old_len > new_len {
                self.munmap(old + new_len..r.end)?;
            }
            return Ok(old);
        }
        let vma = self.resizable(old, old_len, new_len)?;
        let end = old + old_len;
        let more = new_len - old_len;
        let at_end = self.vmas.get(old).is_some_and(|(e, _)| e.end == end);
        if old_len > 0 && at_end && self.vmas.is_free(end, more) {
            let mut tail = vma.clone();
            if let Some(f) = &mut tail.file {
                f.offset += old_len;
            }
            self.vma_insert(end..end + more, tail);
            if vma.flags.contains(VmaFlags::LOCKED) {
                let _ = self.populate(end..end + more);
            } else if vma.is_private_anon() && self.pmas.get(end - 1).is_some() {
                self.populate_anon(end..end + more.min(crate::resolve::EAGER));
            }
            return Ok(old);
        }
        if flags & MREMAP_MAYMOVE == 0 {
            return Err(ENOMEM);
        }
        let to = Place::Anywhere.find(new_len, &self.vmas, &self.room)?;
        self.move_vma(old..end, to, new_len, vma, false)
    }

    /// The VMA at `old`, as if it began there, if `old_len` bytes of it may become `new_len`
    /// (`vma_to_resize`).
    fn resizable(&self, old: u64, old_len: u64, new_len: u64) -> Result<Vma> {
        let (e, vma) = self.vmas.get(old).ok_or(EFAULT)?;
        if old_len == 0 && !vma.is_shared() {
            return Err(EINVAL);
        }
        if old_len > e.end - old {
            return Err(EFAULT);
        }
        let vma = vma.after(old - e.start);
        if new_len > old_len {
            if vma.is_fixed() {
                return Err(EFAULT);
            }
            let more = new_len - old_len;
            if vma
                .file
                .as_ref()
                .is_some_and(|f| f.offset.checked_add(new_len).is_none())
            {
                return Err(EINVAL);
            }
            let now = self.vmas.counts();
            if !self.room.may_lock(now, vma.flags, more) {
                return Err(EAGAIN);
            }
            if !self.room.may_expand(now, vma.prot, vma.flags, more) {
                return Err(ENOMEM);
            }
        }
        Ok(vma)
    }

    /// Moves `from` (part of one VMA, empty to duplicate a shared one) to the free `[to, to +
    /// new_len)`.
    fn move_vma(
        &mut self,
        from: Range<u64>,
        to: u64,
        new_len: u64,
        vma: Vma,
        dontunmap: bool,
    ) -> Result<u64> {
        self.reserve_vmas(3)?;
        self.unpatch(&from);
        let pmas = self.pmas.take(from.clone(), &mut self.host);
        self.vma_insert(to..to + new_len, vma.clone());
        for (r, pma) in pmas {
            let at = to + (r.start - from.start);
            self.pmas.insert(at..at + (r.end - r.start), pma);
        }
        if dontunmap {
            self.vmas.change(from, |_, flags| {
                *flags -= VmaFlags::LOCKED | VmaFlags::LOCKONFAULT;
            });
        } else if !from.is_empty() {
            self.vma_remove(from);
        }
        if vma.flags.contains(VmaFlags::LOCKED) {
            let _ = self.populate(to..to + new_len);
        } else {
            // What was mapped is in use: one hand-over for all of it now, rather than faults.
            self.host_map(to..to + new_len.min(crate::resolve::EAGER));
        }
        Ok(to)
    }
}
