//! An allocator that can leave nothing behind.
//!
//! What the Sentry copies for an application lies in its own memory for a while: socket buffers,
//! pipes, arguments of calls. Where a container has confidential memory, that is overwritten when
//! it is freed, since it may be a copy ([`begin`]). Before, and elsewhere, it costs one load.
//!
//! What lies on stacks and in registers is not reached.
//!
//! And the end of a memory file whose owner could not do it any more ([`memory_file`]).

use crate::{RawFd, Result, file, mem};
use abi::errno::{EINTR, EINVAL};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

static SCRUBS: AtomicBool = AtomicBool::new(false);

/// From now on what is freed is overwritten first.
pub fn begin() {
    SCRUBS.store(true, Ordering::Relaxed);
}

/// `TMPFS_MAGIC`.
const TMPFS: i64 = 0x0102_1994;

/// Overwrites all that a memory file has: nobody maps it any more. `EINVAL` for what is no such
/// file: a call on it could wait.
pub fn memory_file(fd: RawFd) -> Result<()> {
    // (First what asks no server.)
    file::seals(fd)?;
    let size = file::fstat(fd)?.st_size as u64;
    if crate::path::fstatfs(fd)?.f_type != TMPFS {
        return Err(EINVAL);
    }
    part(fd, 0, size)
}

/// Overwrites what a part of a memory file has: by writes, which need no page of it mapped.
pub fn part(fd: RawFd, from: u64, to: u64) -> Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut at = from;
    while at < to && mem::has_data(fd, at, to) {
        let (hole, end) = mem::next_hole(fd, at, to).unwrap_or((to, to));
        while at < hole {
            let n = (hole - at).min(ZEROS.len() as u64) as usize;
            match file::pwrite(fd, &ZEROS[..n], at) {
                Ok(0) => return Ok(()),
                Ok(n) => at += n as u64,
                Err(EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        at = end;
    }
    Ok(())
}

/// Whether [`begin`] was called.
#[must_use]
pub fn has_begun() -> bool {
    SCRUBS.load(Ordering::Relaxed)
}

/// The C library's, which scrubs once [`begin`] was called.
pub struct Allocator;

/// Overwrites memory that nobody reads any more, in a way that no compiler takes out.
///
/// # Safety
/// `[at, at + len)` is writable, and nobody else accesses it.
unsafe fn wipe(at: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { std::ptr::write_bytes(at, 0, len) };
    // SAFETY: it reads nothing and changes nothing; the compiler has to think that it may read what
    // `at` points to.
    unsafe { std::arch::asm!("/* {0} */", in(reg) at, options(nostack, preserves_flags)) };
}

// SAFETY: memory is the system allocator's, with the same layouts; what is freed is only written to
// before it goes back.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if SCRUBS.load(Ordering::Relaxed) {
            // SAFETY: it is the caller's, who gives it up.
            unsafe { wipe(at, layout.size()) };
        }
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !SCRUBS.load(Ordering::Relaxed) {
            // SAFETY: the caller's.
            return unsafe { System.realloc(at, layout, size) };
        }
        // The system's would leave a copy where it was.
        // SAFETY: `size` is what the caller may ask for with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as above; both are at least as long as what is copied, and are not the same.
        unsafe {
            let to = System.alloc(new);
            if !to.is_null() {
                std::ptr::copy_nonoverlapping(at, to, layout.size().min(size));
                self.dealloc(at, layout);
            }
            to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_file_is_overwritten_and_nothing_else() {
        let f = mem::memfd(c"scrub").unwrap();
        file::ftruncate(f.raw(), 1 << 30).unwrap();
        let places = [0u64, 5 << 20, (1 << 30) - 6];
        for at in places {
            file::pwrite(f.raw(), b"secret", at).unwrap();
        }
        let blocks = file::fstat(f.raw()).unwrap().st_blocks;
        memory_file(f.raw()).unwrap();
        for at in places {
            let mut b = [1; 6];
            file::pread(f.raw(), &mut b, at).unwrap();
            assert_eq!(b, [0; 6]);
        }
        // What had no page has none.
        assert_eq!(file::fstat(f.raw()).unwrap().st_blocks, blocks);
        let other = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(
            memory_file(std::os::fd::AsRawFd::as_raw_fd(&other)),
            Err(EINVAL)
        );
    }

    #[test]
    fn what_is_freed_is_wiped_once_it_has_begun() {
        let layout = Layout::from_size_align(64, 8).unwrap();
        let mut room = [7u8; 64];
        // SAFETY: the array is this test's alone.
        unsafe { wipe(room.as_mut_ptr(), 64) };
        assert_eq!(room, [0; 64]);
        begin();
        // SAFETY: allocated and freed with the same layouts, and written within them.
        unsafe {
            let at = Allocator.alloc(layout);
            at.write_bytes(9, 64);
            let more = Allocator.realloc(at, layout, 4096);
            assert_eq!(std::slice::from_raw_parts(more, 64), [9; 64]);
            let larger = Layout::from_size_align(4096, 8).unwrap();
            Allocator.dealloc(more, larger);
        }
    }
}
