//! mmap(2) and munmap(2).

use crate::resolve::Effort;
use crate::shared_anon::SharedAnon;
use crate::state::State;
use crate::types::MmapRequest;
use crate::vma::{FileAt, FileRef, Vma, VmaFlags};
use crate::{Mm, PAGE, Result, page_align};
use abi::Va;
use abi::errno::{EACCES, EAGAIN, EEXIST, EINVAL, ENOMEM, EOPNOTSUPP, EOVERFLOW, EPERM};
use abi::linux::{
    MADV_POPULATE_READ, MADV_POPULATE_WRITE, MAP_32BIT, MAP_ANONYMOUS, MAP_DENYWRITE,
    MAP_DROPPABLE, MAP_EXECUTABLE, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB,
    MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED,
    MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, MAP_UNINITIALIZED,
};
use platform::{Prot, USER_MAX, USER_MIN};
use std::ops::Range;
use std::sync::Arc;

/// `MAP_HUGE_MASK << MAP_HUGE_SHIFT`.
const MAP_HUGE_BITS: u32 = 0x3f << 26;
/// The flags that MAP_SHARED_VALIDATE knows (`LEGACY_MAP_MASK`).
const KNOWN: u32 = MAP_SHARED
    | MAP_PRIVATE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_UNINITIALIZED
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | MAP_32BIT
    | MAP_HUGE_BITS;

impl Mm {
    /// `mmap(2)`: gives the address.
    pub fn mmap(&self, req: MmapRequest) -> Result<Va> {
        self.with(|st| st.mmap(req)).map(Va)
    }

    /// `munmap(2)`.
    pub fn munmap(&self, va: Va, len: u64) -> Result<()> {
        let r = user_range(va, len).ok_or(EINVAL)?;
        if r.is_empty() {
            return Err(EINVAL);
        }
        self.with(|st| st.munmap(r))
    }
}

/// The pages of `[va, va + len)`, which must begin at a page and end below [`USER_MAX`].
pub(crate) fn user_range(va: Va, len: u64) -> Option<Range<u64>> {
    let end = va.0.checked_add(page_align(len)?)?;
    (va.is_page_aligned() && end <= USER_MAX).then_some(va.0..end)
}

impl State {
    fn mmap(&mut self, req: MmapRequest) -> Result<u64> {
        let MmapRequest {
            addr,
            flags,
            offset,
            ..
        } = req;
        let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        if !offset.is_multiple_of(PAGE) {
            return Err(EINVAL);
        }
        if flags & MAP_HUGETLB != 0 {
            // No huge pages are reserved.
            return Err(match req.file {
                None if flags & MAP_TYPE != MAP_DROPPABLE => ENOMEM,
                _ => EINVAL,
            });
        }
        if req.len == 0 {
            return Err(EINVAL);
        }
        let len = page_align(req.len).ok_or(ENOMEM)?;
        if req.file.is_some() && offset.checked_add(len).is_none() {
            return Err(EOVERFLOW);
        }
        self.reserve_vmas(0)?;
        let start = self.place(addr, len, flags)?;
        let r = start..start + len;
        if flags & MAP_FIXED_NOREPLACE != 0 && self.vmas.overlaps(r.clone()) {
            return Err(EEXIST);
        }
        let prot = Prot(req.prot & 7);
        let (mut vma_flags, mut max_prot) = checked_flags(&req, prot)?;
        vma_flags |= self.room.default_flags();
        if flags & MAP_LOCKED != 0 {
            if self.room.limits().memlock == 0 {
                return Err(EPERM);
            }
            vma_flags |= VmaFlags::LOCKED;
        }
        if !self.room.may_lock(self.vmas.counts(), vma_flags, len) {
            return Err(EAGAIN);
        }
        self.check_room(&r, prot, vma_flags, fixed)?;
        // Nothing may fail between this and the `FileRef` that gives the count back.
        let counted = match &req.file {
            Some(f) if vma_flags.contains(VmaFlags::SHARED) && max_prot.contains(Prot::WRITE) => {
                match f.mappable.map_writable() {
                    Ok(()) => true,
                    Err(e) if prot.contains(Prot::WRITE) => return Err(e),
                    // Sealed: it may be mapped as long as it stays unwritten.
                    Err(_) => {
                        max_prot = max_prot.without(Prot::WRITE);
                        false
                    }
                }
            }
            _ => false,
        };
        let file = match req.file {
            Some(f) => Some(FileAt {
                file: Arc::new(FileRef {
                    mappable: f.mappable,
                    name: f.name,
                    keep: f.keep,
                    counted,
                }),
                offset,
            }),
            None if vma_flags.contains(VmaFlags::SHARED) => {
                let shared = SharedAnon::new(self.clas.clone(), len);
                Some(FileAt {
                    file: Arc::new(FileRef {
                        mappable: shared.clone(),
                        name: Some(shared),
                        keep: None,
                        counted: false,
                    }),
                    offset: 0,
                })
            }
            None => None,
        };
        // An error drops `file`, which the caller has open.
        if fixed {
            self.munmap(r.clone())?;
        }
        let vma = Vma {
            prot,
            max_prot,
            flags: vma_flags,
            file,
        };
        let is_file = vma.file.is_some() && flags & MAP_FIXED == 0;
        let eager = vma.is_private_anon()
            && !vma_flags.contains(VmaFlags::NORESERVE)
            && len <= crate::predict::STEP
            && self.will_touch();
        self.vma_insert(r.clone(), vma);
        let locked =
            vma_flags.contains(VmaFlags::LOCKED) && !vma_flags.contains(VmaFlags::LOCKONFAULT);
        if locked || flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE {
            let _ = self.populate(r);
        } else if eager {
            self.map_at_once(r);
        } else if is_file {
            self.map_file_ahead(r);
        }
        Ok(start)
    }

    fn map_file_ahead(&mut self, r: Range<u64>) {
        let vma = self.vmas.get(r.start).filter(|(e, _)| *e == r);
        if let Some(vma) = vma.map(|(_, v)| v.clone()) {
            self.file_mapped(&r, &vma);
        }
    }

    /// Checks the limits for a new mapping that may replace others.
    fn check_room(&self, r: &Range<u64>, prot: Prot, flags: VmaFlags, fixed: bool) -> Result<()> {
        let len = r.end - r.start;
        let now = self.vmas.counts();
        if self.room.may_expand(now, prot, flags, len) {
            return Ok(());
        }
        // What it replaces makes room.
        let replaced: u64 = self
            .vmas
            .range(r.clone())
            .map(|(e, _)| e.end.min(r.end) - e.start.max(r.start))
            .sum();
        if fixed && self.room.may_expand(now, prot, flags, len - replaced) {
            return Ok(());
        }
        Err(ENOMEM)
    }

    /// Where a new mapping goes (`get_unmapped_area`).
    pub(crate) fn place(&self, addr: Va, len: u64, flags: u32) -> Result<u64> {
        if len > USER_MAX {
            return Err(ENOMEM);
        }
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            if addr.0 > USER_MAX - len {
                return Err(ENOMEM);
            }
            if !addr.is_page_aligned() {
                return Err(EINVAL);
            }
            if addr.0 < USER_MIN {
                return Err(EPERM);
            }
            return Ok(addr.0);
        }
        if addr.page_down().0 != 0 {
            let hint = addr.page_down().0.max(USER_MIN);
            if hint <= USER_MAX - len && self.vmas.find_highest(len, hint..hint + len).is_some() {
                return Ok(hint);
            }
        }
        if flags & MAP_32BIT != 0 {
            return self
                .vmas
                .find_lowest(len, 0x4000_0000..0x8000_0000)
                .ok_or(ENOMEM);
        }
        let base = self.room.layout().mmap_base.clamp(USER_MIN, USER_MAX);
        self.vmas
            .find_highest(len, USER_MIN..base)
            .or_else(|| {
                self.vmas
                    .find_lowest(len, (USER_MAX / 3) & !(PAGE - 1)..USER_MAX)
            })
            .ok_or(ENOMEM)
    }

    pub(crate) fn munmap(&mut self, r: Range<u64>) -> Result<()> {
        // Only a hole in the middle of a VMA makes one more.
        if self
            .vmas
            .get(r.start)
            .is_some_and(|(e, _)| e.start < r.start && r.end < e.end)
        {
            self.reserve_vmas(1)?;
        }
        self.judge_before(&r);
        self.vma_remove(r);
        Ok(())
    }

    /// Makes and maps all of `r`, as MAP_POPULATE and mlock do. Errors as madvise(MADV_POPULATE_READ).
    pub(crate) fn populate(&mut self, r: Range<u64>) -> std::result::Result<(), crate::types::Bad> {
        let mut at = r.start;
        let mut result = Ok(());
        while at < r.end {
            let Some((vr, vma)) = self.vmas.get(at).map(|(e, v)| (e, v.clone())) else {
                result = Err(crate::types::Bad::Unmapped);
                break;
            };
            if vma.prot == Prot::NONE {
                result = Err(crate::types::Bad::Forbidden);
                break;
            }
            let write = vma.prot.contains(Prot::WRITE) && !vma.is_shared();
            match self.resolve(at, &vr, &vma, write, Effort::Needed) {
                Ok((pr, _)) => {
                    let end = pr.end.min(r.end);
                    if self.host.get(at).is_none_or(|(e, _)| end > e.end) {
                        self.host_map(at..end);
                    }
                    at = end;
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        if self.host.flush() {
            self.host.advise_now(r.start..at, |p| {
                if p.contains(Prot::WRITE) {
                    MADV_POPULATE_WRITE
                } else {
                    MADV_POPULATE_READ
                }
            });
        }
        result
    }
}

/// The VMA's flags and the most that its protection can become.
fn checked_flags(req: &MmapRequest, prot: Prot) -> Result<(VmaFlags, Prot)> {
    let flags = req.flags;
    let mut out = VmaFlags::empty();
    let mut max = Prot(7);
    let kind = flags & MAP_TYPE;
    match &req.file {
        Some(f) => {
            match kind {
                MAP_SHARED | MAP_SHARED_VALIDATE => {
                    if kind == MAP_SHARED_VALIDATE
                        && flags & !(KNOWN | MAP_FIXED_NOREPLACE) & !MAP_TYPE != 0
                    {
                        return Err(EOPNOTSUPP);
                    }
                    if prot.contains(Prot::WRITE) && !f.writable {
                        return Err(EACCES);
                    }
                    if !f.writable {
                        max = max.without(Prot::WRITE);
                    }
                    out |= VmaFlags::SHARED;
                }
                MAP_PRIVATE => {}
                _ => return Err(EINVAL),
            }
            if !f.readable {
                return Err(EACCES);
            }
            if f.noexec {
                if prot.contains(Prot::EXEC) {
                    return Err(EPERM);
                }
                max = max.without(Prot::EXEC);
            }
            if flags & MAP_GROWSDOWN != 0 {
                return Err(EINVAL);
            }
        }
        None => match kind {
            MAP_SHARED => {
                if flags & MAP_GROWSDOWN != 0 {
                    return Err(EINVAL);
                }
                out |= VmaFlags::SHARED | VmaFlags::ANON_SHARED;
            }
            MAP_PRIVATE => {}
            MAP_DROPPABLE => {
                if flags & (MAP_LOCKED | MAP_GROWSDOWN) != 0 {
                    return Err(EINVAL);
                }
                out |= VmaFlags::DROPPABLE
                    | VmaFlags::NORESERVE
                    | VmaFlags::WIPEONFORK
                    | VmaFlags::DONTDUMP;
            }
            _ => return Err(EINVAL),
        },
    }
    if flags & MAP_GROWSDOWN != 0 {
        out |= VmaFlags::GROWSDOWN;
    }
    if flags & MAP_NORESERVE != 0 {
        out |= VmaFlags::NORESERVE;
    }
    Ok((out, max))
}
