//! Reading and writing by descriptor.

use crate::mem::{AFTER_START, MemSlice, unmap_program};
use crate::{RawFd, sys};
use abi::Result;
use abi::errno::EINVAL;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most pieces that one vectored call takes (`UIO_MAXIOV`).
pub const IOV_MAX: usize = 1024;

/// `preadv(2)`: fills the pieces from `offset`. At most [`IOV_MAX`] pieces are used.
pub fn preadv(fd: RawFd, iov: &[MemSlice<'_>], offset: u64) -> Result<usize> {
    // SAFETY: a MemSlice is an iovec of memory that stays mapped for the call.
    unsafe { sys!(Preadv, fd, iov.as_ptr(), iov.len().min(IOV_MAX), offset, 0) }
}
/// `pwritev(2)`.
pub fn pwritev(fd: RawFd, iov: &[MemSlice<'_>], offset: u64) -> Result<usize> {
    // -1 would be the descriptor's position.
    if i64::try_from(offset).is_err() {
        return Err(EINVAL);
    }
    pwritev2(fd, iov, offset, 0)
}
/// Writes at the end, wherever others have moved it by now (`RWF_APPEND`); the descriptor's
/// [`position`] is behind that afterwards. `EOPNOTSUPP` for files that cannot (of proc, say).
pub fn append(fd: RawFd, iov: &[MemSlice<'_>]) -> Result<usize> {
    pwritev2(fd, iov, u64::MAX, libc::RWF_APPEND)
}
fn pwritev2(fd: RawFd, iov: &[MemSlice<'_>], offset: u64, flags: i32) -> Result<usize> {
    let n = iov.len().min(IOV_MAX);
    // SAFETY: as above.
    unsafe { sys!(Pwritev2, fd, iov.as_ptr(), n, offset, 0, flags) }
}
/// `readv(2)`.
pub fn readv(fd: RawFd, iov: &[MemSlice<'_>]) -> Result<usize> {
    // SAFETY: as above.
    unsafe { sys!(Readv, fd, iov.as_ptr(), iov.len().min(IOV_MAX)) }
}
/// `writev(2)`.
pub fn writev(fd: RawFd, iov: &[MemSlice<'_>]) -> Result<usize> {
    // SAFETY: as above.
    unsafe { sys!(Writev, fd, iov.as_ptr(), iov.len().min(IOV_MAX)) }
}
/// `read(2)` into our own memory.
pub fn read(fd: RawFd, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is ours for the call.
    unsafe { sys!(Read, fd, buf.as_mut_ptr(), buf.len()) }
}
/// `write(2)` from our own memory.
pub fn write(fd: RawFd, buf: &[u8]) -> Result<usize> {
    // SAFETY: as above.
    unsafe { sys!(Write, fd, buf.as_ptr(), buf.len()) }
}
/// `pread64(2)` into our own memory.
pub fn pread(fd: RawFd, buf: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: as above.
    unsafe { sys!(Pread64, fd, buf.as_mut_ptr(), buf.len(), offset) }
}
/// `pwrite64(2)` from our own memory.
pub fn pwrite(fd: RawFd, buf: &[u8], offset: u64) -> Result<usize> {
    // SAFETY: as above.
    unsafe { sys!(Pwrite64, fd, buf.as_ptr(), buf.len(), offset) }
}
/// `ftruncate(2)`.
pub fn ftruncate(fd: RawFd, len: u64) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Ftruncate, fd, len) }?;
    Ok(())
}
/// `fsync(2)`.
pub fn fsync(fd: RawFd) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Fsync, fd) }?;
    Ok(())
}
/// `fdatasync(2)`.
pub fn fdatasync(fd: RawFd) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Fdatasync, fd) }?;
    Ok(())
}
/// `fallocate(2)`.
pub fn fallocate(fd: RawFd, mode: i32, offset: u64, len: u64) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Fallocate, fd, mode, offset, len) }?;
    Ok(())
}
/// What [`fstat`] tells.
pub type HostStat = libc::stat;

/// Comes back after changes of the file's owner and mode that are under way on the host, as
/// `lseek(2)` for data does: it waits for the inode's lock (on XFS for the one that such a change
/// holds, too). The descriptor is for reading, and its position is nobody's.
pub fn await_changes(fd: RawFd) {
    // SAFETY: no pointers. A file without data is as good.
    let _ = unsafe { sys!(Lseek, fd, 0, libc::SEEK_DATA) };
}

/// `fstat(2)`.
pub fn fstat(fd: RawFd) -> Result<libc::stat> {
    let mut st = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for a struct stat.
    unsafe { sys!(Fstat, fd, st.as_mut_ptr()) }?;
    // SAFETY: zeroed, then filled; all bit patterns are valid.
    Ok(unsafe { st.assume_init() })
}

/// The same as the VFS has it; when the file was made, fstat(2) does not tell (0).
#[must_use]
pub fn attributes(s: &HostStat) -> abi::attr::Stat {
    let ns = |sec: i64, nsec: i64| sec.saturating_mul(1_000_000_000).saturating_add(nsec);
    abi::attr::Stat {
        dev: s.st_dev,
        ino: s.st_ino,
        mode: s.st_mode,
        nlink: s.st_nlink as u32,
        uid: s.st_uid,
        gid: s.st_gid,
        rdev: s.st_rdev,
        size: s.st_size as u64,
        blksize: s.st_blksize as u32,
        blocks: s.st_blocks as u64,
        atime: ns(s.st_atime, s.st_atime_nsec),
        mtime: ns(s.st_mtime, s.st_mtime_nsec),
        ctime: ns(s.st_ctime, s.st_ctime_nsec),
        btime: 0,
    }
}

/// What [`poll`] asks for and tells.
pub type PollFd = libc::pollfd;

/// `poll(2)`, `timeout` in milliseconds, negative without limit.
pub fn poll(fds: &mut [libc::pollfd], timeout: i32) -> Result<usize> {
    // SAFETY: the slice is ours for the call.
    unsafe { sys!(Poll, fds.as_mut_ptr(), fds.len(), timeout) }
}

/// As [`poll`], in a process that waits while programs run: where that is for more than
/// [`AFTER_START`], it unmaps its own code, once ([`unmap_program`]), whichever thread comes first.
pub fn poll_at_length(fds: &mut [PollFd], timeout: i32) -> Result<usize> {
    static UNMAPPED: AtomicBool = AtomicBool::new(false);
    let is_short = (0..=AFTER_START).contains(&timeout);
    if is_short || UNMAPPED.load(Ordering::Relaxed) {
        return poll(fds, timeout);
    }
    let rest = if timeout < 0 {
        -1
    } else {
        timeout - AFTER_START
    };
    match poll(fds, AFTER_START) {
        Ok(0) => {}
        told => return told,
    }
    if UNMAPPED.swap(true, Ordering::Relaxed) {
        return poll(fds, rest);
    }
    unmap_program();
    poll(fds, rest)
}

/// The position of a seekable descriptor.
pub fn position(fd: RawFd) -> Result<u64> {
    // SAFETY: no pointers.
    unsafe { sys!(Lseek, fd, 0, libc::SEEK_CUR) }.map(|p| p as u64)
}
/// Moves the position.
pub fn set_position(fd: RawFd, to: u64) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(Lseek, fd, to, libc::SEEK_SET) }?;
    Ok(())
}
/// `FIONREAD`: bytes that can be read at once.
pub fn bytes_ready(fd: RawFd) -> Result<i32> {
    let mut n = 0i32;
    // SAFETY: room for an int.
    unsafe { sys!(Ioctl, fd, libc::FIONREAD, &raw mut n) }?;
    Ok(n)
}
/// The seals of a memory file (`F_GET_SEALS`); `EINVAL` for any other.
pub fn seals(fd: RawFd) -> Result<u32> {
    // SAFETY: no pointers.
    unsafe { sys!(Fcntl, fd, libc::F_GET_SEALS, 0) }.map(|s| s as u32)
}

/// The open flags (`F_GETFL`).
pub fn status_flags(fd: RawFd) -> Result<u32> {
    // SAFETY: no pointers.
    unsafe { sys!(Fcntl, fd, libc::F_GETFL, 0) }.map(|f| f as u32)
}
