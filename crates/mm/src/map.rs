//! mmap(2) and munmap(2).

use crate::place::Place;
use crate::resolve::Effort;
use crate::shared_anon::SharedAnon;
use crate::state::State;
use crate::types::{MapFile, MmapRequest};
use crate::vma::{FileAt, FileRef, Vma, VmaFlags};
use crate::{Mm, PAGE, Result, page_align};
use abi::Va;
use abi::errno::{EACCES, EAGAIN, EINVAL, ENOMEM, EOPNOTSUPP, EOVERFLOW, EPERM};
use abi::linux::{
    MADV_POPULATE_READ, MADV_POPULATE_WRITE, MAP_32BIT, MAP_ANONYMOUS, MAP_DENYWRITE,
    MAP_DROPPABLE, MAP_EXECUTABLE, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB,
    MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED,
    MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, MAP_UNINITIALIZED,
};
use platform::{Prot, USER_MAX};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `MAP_HUGE_MASK << MAP_HUGE_SHIFT`.
const MAP_HUGE_BITS: u32 = 0x3f << 26;
/// The flags that MAP_SHARED_VALIDATE knows without being told more (`LEGACY_MAP_MASK`).
const LEGACY: u32 = MAP_SHARED
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
        if req.file.as_ref().is_some_and(|f| f.mappable.is_served()) {
            self.serves.store(true, Ordering::Relaxed);
        }
        self.with(|st| st.mmap(req)).map(Va)
    }

    /// `munmap(2)`.
    pub fn munmap(&self, va: Va, len: u64) -> Result<()> {
        let r = user_range(va, len).ok_or(EINVAL)?;
        if r.is_empty() {
            return Err(EINVAL);
        }
        self.write_back(r.clone());
        self.with(|st| st.munmap(r))
    }
}

/// The pages of `[va, va + len)`, which must begin at a page and end below [`USER_MAX`].
pub(crate) fn user_range(va: Va, len: u64) -> Option<Range<u64>> {
    let end = va.0.checked_add(page_align(len)?)?;
    (va.is_page_aligned() && end <= USER_MAX).then_some(va.0..end)
}

/// The pages of a call that may name none (`None`): `EINVAL` where it does not begin at a page or
/// wraps around, `ENOMEM` where it ends beyond [`USER_MAX`].
pub(crate) fn some_range(va: Va, len: u64) -> Result<Option<Range<u64>>> {
    if !va.is_page_aligned() {
        return Err(EINVAL);
    }
    let pages = page_align(len).ok_or(EINVAL)?;
    va.0.checked_add(pages).ok_or(EINVAL)?;
    let r = user_range(va, len);
    if pages == 0 {
        Ok(None)
    } else {
        r.ok_or(ENOMEM).map(Some)
    }
}

impl State {
    fn mmap(&mut self, req: MmapRequest) -> Result<u64> {
        let len = checked_len(&req)?;
        let place = Place::of_flags(req.addr, req.flags);
        self.reserve_vmas(0)?;
        let start = place.find(len, &self.vmas, &self.room)?;
        let r = start..start + len;
        let replaces = matches!(place, Place::Fixed(_));
        let populates = req.flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE;
        let vma = self.new_vma(req, &r, replaces)?;
        // An error drops the VMA's file, which the caller has open.
        if replaces {
            self.munmap(r.clone())?;
        }
        let flags = vma.flags;
        let maps_file = vma.file.is_some() && !replaces;
        let at_once = vma.is_private_anon()
            && !flags.contains(VmaFlags::NORESERVE)
            && len <= crate::predict::STEP
            && self.will_touch();
        self.vma_insert(r.clone(), vma);
        let locked = flags.contains(VmaFlags::LOCKED) && !flags.contains(VmaFlags::LOCKONFAULT);
        if locked || populates {
            let _ = self.populate(r);
        } else if at_once {
            self.map_at_once(r);
        } else if maps_file {
            self.prefault_file(r);
        }
        Ok(start)
    }

    /// The VMA that a call asks for at `r`, if limits and its file allow it.
    fn new_vma(&self, req: MmapRequest, r: &Range<u64>, replaces: bool) -> Result<Vma> {
        let len = r.end - r.start;
        let prot = Prot(req.prot & 7);
        let (mut flags, mut max_prot) = checked_flags(&req, prot)?;
        flags |= self.room.default_flags();
        if let Some(f) = &req.file
            && f.mappable.is_secret()
        {
            flags |= crate::secret::flags(flags)?;
        }
        if req.flags & MAP_LOCKED != 0 {
            if self.room.limits().memlock == 0 {
                return Err(EPERM);
            }
            flags |= VmaFlags::LOCKED;
        }
        if !self.room.may_lock(self.vmas.counts(), flags, len) {
            return Err(EAGAIN);
        }
        self.check_room(r, prot, flags, replaces)?;
        let file = match req.file {
            Some(f) => Some(FileAt {
                file: file_to_map(f, prot, flags, &mut max_prot)?,
                offset: req.offset,
            }),
            None if flags.contains(VmaFlags::SHARED) => {
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
        Ok(Vma {
            prot,
            max_prot,
            flags,
            file,
        })
    }

    fn prefault_file(&mut self, r: Range<u64>) {
        let vma = self.vmas.get(r.start).filter(|(e, _)| *e == r);
        if let Some(vma) = vma.map(|(_, v)| v.clone()) {
            self.file_mapped(&r, &vma);
        }
    }

    /// Checks the limits for a new mapping that may replace others.
    fn check_room(
        &self,
        r: &Range<u64>,
        prot: Prot,
        flags: VmaFlags,
        replaces: bool,
    ) -> Result<()> {
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
        if replaces && self.room.may_expand(now, prot, flags, len - replaced) {
            return Ok(());
        }
        Err(ENOMEM)
    }

    pub(crate) fn munmap(&mut self, r: Range<u64>) -> Result<()> {
        self.may_change(&r)?;
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

    /// Makes and maps all of `r`, as MAP_POPULATE and mlock do. Errors as
    /// madvise(MADV_POPULATE_READ). (MAP_POPULATE gets nothing of what a program must be asked for.)
    pub(crate) fn populate(&mut self, r: Range<u64>) -> std::result::Result<(), crate::types::Bad> {
        let mut at = r.start;
        let mut result = Ok(());
        while at < r.end {
            let Some((vr, vma)) = self.vmas.get(at).map(|(e, v)| (e, v.clone())) else {
                result = Err(crate::types::Bad::Unmapped);
                break;
            };
            // Nobody but the program's own accesses make pages of a secret.
            if vma.flags.contains(VmaFlags::SECRET) {
                result = Err(crate::types::Bad::Forbidden);
                break;
            }
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

/// The length of a mapping that a call may ask for, in whole pages.
fn checked_len(req: &MmapRequest) -> Result<u64> {
    if !req.offset.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    if req.flags & MAP_HUGETLB != 0 {
        // No huge pages are reserved.
        return Err(match req.file {
            None if req.flags & MAP_TYPE != MAP_DROPPABLE => ENOMEM,
            _ => EINVAL,
        });
    }
    if req.len == 0 {
        return Err(EINVAL);
    }
    let len = page_align(req.len).ok_or(ENOMEM)?;
    if req.file.is_some() && req.offset.checked_add(len).is_none() {
        return Err(EOVERFLOW);
    }
    Ok(len)
}

/// A file as it is mapped, counted as written if it may be: then what is given has the count.
fn file_to_map(
    f: MapFile,
    prot: Prot,
    flags: VmaFlags,
    max_prot: &mut Prot,
) -> Result<Arc<FileRef>> {
    let mut counted = false;
    if flags.contains(VmaFlags::SHARED) && max_prot.contains(Prot::WRITE) {
        match f.mappable.map_writable() {
            Ok(()) => counted = true,
            Err(e) if prot.contains(Prot::WRITE) => return Err(e),
            // Sealed: it may be mapped as long as it stays unwritten.
            Err(_) => *max_prot = max_prot.without(Prot::WRITE),
        }
    }
    Ok(Arc::new(FileRef {
        mappable: f.mappable,
        name: f.name,
        keep: f.keep,
        counted,
    }))
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
                        && flags & !(LEGACY | MAP_FIXED_NOREPLACE) & !MAP_TYPE != 0
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
