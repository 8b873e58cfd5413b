//! Memory that the application may change under our hands, and the host's memory calls.

use crate::{HostFd, RawFd, sys};
use abi::Result;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A piece of memory shared with application code: the Sentry's own mapping of frames.
///
/// Nothing read from it stays the same: it may only be copied, once. Its mapping is valid and
/// writable for `'a`, and stays so whatever the application does, since the Sentry alone maps and
/// never shrinks the memory file. (A hole punched in it reads as zeros.)
#[derive(Clone, Copy)]
pub struct MemSlice<'a> {
    ptr: *mut u8,
    len: usize,
    life: PhantomData<&'a AtomicU8>,
}

// SAFETY: it is plain memory; every access is a copy or an atomic, and tearing is allowed for.
unsafe impl Send for MemSlice<'_> {}
// SAFETY: as above.
unsafe impl Sync for MemSlice<'_> {}

impl<'a> MemSlice<'a> {
    /// # Safety
    /// `[ptr, ptr + len)` is mapped readable and writable for `'a`, and no Rust reference to it
    /// exists.
    #[must_use]
    pub unsafe fn new(ptr: *mut u8, len: usize) -> MemSlice<'a> {
        MemSlice {
            ptr,
            len,
            life: PhantomData,
        }
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }
    /// The part `[from, from + len)`.
    ///
    /// # Panics
    /// Where that is not inside.
    #[must_use]
    pub fn sub(&self, from: usize, len: usize) -> MemSlice<'a> {
        assert!(from <= self.len && len <= self.len - from);
        // SAFETY: inside `self`.
        unsafe { MemSlice::new(self.ptr.add(from), len) }
    }
    /// Copies out of it into `dst`, as much as fits; gives the number of bytes.
    pub fn copy_to(&self, dst: &mut [u8]) -> usize {
        let n = self.len.min(dst.len());
        // SAFETY: both valid for n; they do not overlap, as no reference to shared memory exists.
        unsafe { core::ptr::copy_nonoverlapping(self.ptr, dst.as_mut_ptr(), n) };
        n
    }
    /// Copies `src` into it, as much as fits; gives the number of bytes.
    pub fn copy_from(&self, src: &[u8]) -> usize {
        let n = self.len.min(src.len());
        // SAFETY: as in `copy_to`.
        unsafe { core::ptr::copy_nonoverlapping(src.as_ptr(), self.ptr, n) };
        n
    }
    /// Copies from another piece (they may overlap); gives the number of bytes.
    pub fn copy_from_mem(&self, src: MemSlice<'_>) -> usize {
        let n = self.len.min(src.len);
        // SAFETY: both valid for n; `copy` allows overlap.
        unsafe { core::ptr::copy(src.ptr, self.ptr, n) };
        n
    }
    /// Fills it with zeros.
    pub fn zero(&self) {
        // SAFETY: valid for len.
        unsafe { core::ptr::write_bytes(self.ptr, 0, self.len) };
    }
    /// The `u32` at its start, for futexes; `None` if short or not aligned.
    #[must_use]
    pub fn atomic_u32(&self) -> Option<&'a AtomicU32> {
        (self.len >= 4 && self.ptr.addr().is_multiple_of(4))
            // SAFETY: valid, aligned, and only accessed atomically by us.
            .then(|| unsafe { AtomicU32::from_ptr(self.ptr.cast()) })
    }
    /// The `u64` at its start; `None` if short or not aligned.
    #[must_use]
    pub fn atomic_u64(&self) -> Option<&'a AtomicU64> {
        (self.len >= 8 && self.ptr.addr().is_multiple_of(8))
            // SAFETY: valid, aligned, and only accessed atomically by us.
            .then(|| unsafe { AtomicU64::from_ptr(self.ptr.cast()) })
    }
    /// Orders earlier writes before later ones as seen by the application.
    pub fn fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// A `MemSlice` is laid out as `struct iovec`, so that a slice of them can be handed to the host.
const _: () = assert!(size_of::<MemSlice<'_>>() == 16);

/// A mapping of ours, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: plain memory, accessed through `MemSlice` only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`, shared, readable and writable.
    pub fn shared(fd: RawFd, offset: u64, len: usize) -> Result<Mapping> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let p = unsafe { sys!(Mmap, 0, len, prot, libc::MAP_SHARED, fd, offset) }?;
        Ok(Mapping {
            ptr: p as *mut u8,
            len,
        })
    }
    /// Reserves `len` bytes of address space without access.
    pub fn reserve(len: usize) -> Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let p = unsafe { sys!(Mmap, 0, len, libc::PROT_NONE, flags, -1i32, 0) }?;
        Ok(Mapping {
            ptr: p as *mut u8,
            len,
        })
    }
    /// Replaces `[at, at + len)` of this reservation by `fd` from `offset`, shared, readable and
    /// writable.
    ///
    /// # Safety
    /// No [`MemSlice`] of that part exists.
    pub unsafe fn map_over(&self, at: usize, fd: RawFd, offset: u64, len: usize) -> Result<()> {
        assert!(at <= self.len && len <= self.len - at);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: inside our own mapping.
        unsafe {
            sys!(
                Mmap,
                self.ptr.add(at),
                len,
                prot,
                libc::MAP_SHARED | libc::MAP_FIXED,
                fd,
                offset
            )
        }?;
        Ok(())
    }
    #[must_use]
    pub fn slice(&self) -> MemSlice<'_> {
        // SAFETY: mapped until drop; only reached through MemSlice.
        unsafe { MemSlice::new(self.ptr, self.len) }
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; slices of it have ended by their lifetime.
        let _ = unsafe { sys!(Munmap, self.ptr, self.len) };
    }
}

/// `memfd_create(2)`, close-on-exec.
pub fn memfd(name: &core::ffi::CStr) -> Result<HostFd> {
    // SAFETY: a NUL-terminated name.
    let fd = unsafe { sys!(MemfdCreate, name.as_ptr(), libc::MFD_CLOEXEC) }?;
    Ok(HostFd::from_raw(fd as RawFd))
}

/// Gives the pages of `[offset, offset + len)` back to the host; they read as zeros afterwards.
pub fn punch_hole(fd: RawFd, offset: u64, len: u64) -> Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointers.
    unsafe { sys!(Fallocate, fd, mode, offset, len) }?;
    Ok(())
}

/// Whether some byte of `[offset, end)` of a memory file may differ from zero: pages in memory or
/// swapped out. (What `mincore` says of a page that was swapped out is no answer.)
pub fn has_data(fd: RawFd, offset: u64, end: u64) -> bool {
    match crate::path::lseek(fd, offset as i64, libc::SEEK_DATA) {
        Ok(at) => at < end,
        Err(e) => e != abi::errno::ENXIO,
    }
}

/// The next part of a memory file in `[offset, end)` without pages, in memory or swapped out;
/// `None` if there is none.
pub fn next_hole(fd: RawFd, offset: u64, end: u64) -> Option<(u64, u64)> {
    let seek = |at: u64, what| crate::path::lseek(fd, at as i64, what);
    // (The end of the file counts as a hole.)
    let start = seek(offset, libc::SEEK_HOLE).ok().filter(|at| *at < end)?;
    let until = match seek(start, libc::SEEK_DATA) {
        Ok(at) => at.min(end),
        Err(abi::errno::ENXIO) => end,
        Err(_) => return None,
    };
    Some((start, until))
}

/// `madvise(MADV_COLLAPSE)` of our own mapping: makes its pages huge ones, also for those who map
/// them too.
pub fn collapse(mem: MemSlice<'_>) -> Result<()> {
    // SAFETY: contents and protection stay.
    unsafe { sys!(Madvise, mem.as_ptr(), mem.len(), libc::MADV_COLLAPSE) }?;
    Ok(())
}

/// `madvise(MADV_DONTNEED)` of our own shared mapping of a file: the next access maps its pages
/// again.
pub fn unmap_pages(mem: MemSlice<'_>) -> Result<()> {
    // SAFETY: of a shared mapping of a file, contents and protection stay.
    unsafe { sys!(Madvise, mem.as_ptr(), mem.len(), libc::MADV_DONTNEED) }?;
    Ok(())
}

/// So long a process waits, in milliseconds, before it calls [`unmap_program`]: longer than a short
/// program takes.
pub(crate) const AFTER_START: i32 = 1000;

/// Unmaps the pages of our own program and its constants that came by the start: the next access
/// maps its pages again, by the host's fault-around 16 at once. As a kernel lets go of its `__init`
/// code; these stay in the host's page cache, as others' that run the same program.
pub fn unmap_program() {
    /// # Safety
    ///
    /// `info` is a `dl_phdr_info`.
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        _: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: as dl_iterate_phdr(3) calls it; the headers are mapped as long as the program.
        let (base, headers) = unsafe {
            let i = &*info;
            let n = i.dlpi_phnum.into();
            (i.dlpi_addr, core::slice::from_raw_parts(i.dlpi_phdr, n))
        };
        let page = abi::PAGE_SIZE;
        for h in headers {
            if h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0 {
                let start = (base + h.p_vaddr) & !(page - 1);
                let end = (base + h.p_vaddr + h.p_memsz + page - 1) & !(page - 1);
                // SAFETY: a private mapping of a file that nothing has written to: what is mapped
                // again is the same. (Relocations are in segments with PF_W.)
                let _ = unsafe { sys!(Madvise, start, end - start, libc::MADV_DONTNEED) };
            }
        }
        // The program itself comes first; libraries are others', too.
        1
    }
    // SAFETY: `first` is of the type that is wanted.
    unsafe { libc::dl_iterate_phdr(Some(first), core::ptr::null_mut()) };
}

/// `mincore(2)` of our own mapping: one byte a page of `mem` (page-aligned), bit 0 for "in memory".
pub fn mincore(mem: MemSlice<'_>, out: &mut [u8]) -> Result<()> {
    assert!(out.len() >= mem.len().div_ceil(abi::PAGE_SIZE as usize));
    // SAFETY: room for a byte a page.
    unsafe { sys!(Mincore, mem.as_ptr(), mem.len(), out.as_mut_ptr()) }?;
    Ok(())
}

/// Runs `f` on our own buffer as a [`MemSlice`].
pub fn with_slice_mut<R>(buf: &mut [u8], f: impl FnOnce(MemSlice<'_>) -> R) -> R {
    // SAFETY: the exclusive borrow lasts for the call, and the slice does not outlive it.
    f(unsafe { MemSlice::new(buf.as_mut_ptr(), buf.len()) })
}
