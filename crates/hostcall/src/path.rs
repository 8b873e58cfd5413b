//! Calls on path names, always relative to a descriptor: the Gofer's.

use crate::{HostFd, RawFd, sys};
use abi::Result;
use core::ffi::CStr;

/// `openat2(2)`.
pub fn openat2(dir: RawFd, path: &CStr, flags: u64, mode: u64, resolve: u64) -> Result<HostFd> {
    let how = [flags | libc::O_CLOEXEC as u64, mode, resolve];
    // SAFETY: a NUL-terminated path and a struct open_how of its size.
    let fd = unsafe { sys!(Openat2, dir, path.as_ptr(), how.as_ptr(), 24) }?;
    Ok(HostFd::from_raw(fd as RawFd))
}

/// `statx(2)` with everything that the host knows.
pub fn statx(dir: RawFd, path: &CStr, flags: i32) -> Result<libc::statx> {
    let mut st = core::mem::MaybeUninit::<libc::statx>::zeroed();
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // SAFETY: room for a struct statx.
    unsafe { sys!(Statx, dir, path.as_ptr(), flags, mask, st.as_mut_ptr()) }?;
    // SAFETY: zeroed, then filled; all bit patterns are valid.
    Ok(unsafe { st.assume_init() })
}

/// `readlinkat(2)`; what does not fit is cut off.
pub fn readlinkat(dir: RawFd, path: &CStr) -> Result<Vec<u8>> {
    let mut buf = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the buffer is ours for the call.
    let n = unsafe { sys!(Readlinkat, dir, path.as_ptr(), buf.as_mut_ptr(), buf.len()) }?;
    buf.truncate(n);
    Ok(buf)
}

/// `getdents64(2)`.
pub fn getdents64(fd: RawFd, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is ours for the call.
    unsafe { sys!(Getdents64, fd, buf.as_mut_ptr(), buf.len()) }
}

/// `lseek(2)`.
pub fn lseek(fd: RawFd, offset: i64, whence: i32) -> Result<u64> {
    // SAFETY: no pointers.
    unsafe { sys!(Lseek, fd, offset, whence) }.map(|n| n as u64)
}

/// `mkdirat(2)`.
pub fn mkdirat(dir: RawFd, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Mkdirat, dir, path.as_ptr(), mode) }?;
    Ok(())
}

/// `mknodat(2)` of what is no device.
pub fn mknodat(dir: RawFd, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Mknodat, dir, path.as_ptr(), mode, 0) }?;
    Ok(())
}

/// `symlinkat(2)`.
pub fn symlinkat(target: &CStr, dir: RawFd, path: &CStr) -> Result<()> {
    // SAFETY: NUL-terminated paths.
    unsafe { sys!(Symlinkat, target.as_ptr(), dir, path.as_ptr()) }?;
    Ok(())
}

/// `linkat(2)`.
pub fn linkat(old_dir: RawFd, old: &CStr, dir: RawFd, path: &CStr, flags: i32) -> Result<()> {
    // SAFETY: NUL-terminated paths.
    unsafe { sys!(Linkat, old_dir, old.as_ptr(), dir, path.as_ptr(), flags) }?;
    Ok(())
}

/// `unlinkat(2)`.
pub fn unlinkat(dir: RawFd, path: &CStr, flags: i32) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Unlinkat, dir, path.as_ptr(), flags) }?;
    Ok(())
}

/// `renameat2(2)`.
pub fn renameat2(dir: RawFd, old: &CStr, new_dir: RawFd, new: &CStr, flags: u32) -> Result<()> {
    // SAFETY: NUL-terminated paths.
    unsafe { sys!(Renameat2, dir, old.as_ptr(), new_dir, new.as_ptr(), flags) }?;
    Ok(())
}

/// `fchmodat(2)`, following links.
pub fn fchmodat(dir: RawFd, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Fchmodat, dir, path.as_ptr(), mode) }?;
    Ok(())
}

/// `fchownat(2)`; `u32::MAX` leaves an id as it is.
pub fn fchownat(dir: RawFd, path: &CStr, uid: u32, gid: u32, flags: i32) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    unsafe { sys!(Fchownat, dir, path.as_ptr(), uid, gid, flags) }?;
    Ok(())
}

/// `utimensat(2)`.
pub fn utimensat(dir: RawFd, path: &CStr, times: [libc::timespec; 2], flags: i32) -> Result<()> {
    // SAFETY: a NUL-terminated path and two timespecs.
    unsafe { sys!(Utimensat, dir, path.as_ptr(), times.as_ptr(), flags) }?;
    Ok(())
}

/// `fstatfs(2)`.
pub fn fstatfs(fd: RawFd) -> Result<libc::statfs> {
    let mut st = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: room for a struct statfs.
    unsafe { sys!(Fstatfs, fd, st.as_mut_ptr()) }?;
    // SAFETY: zeroed, then filled; all bit patterns are valid.
    Ok(unsafe { st.assume_init() })
}

/// `fgetxattr(2)`: gives the size.
pub fn fgetxattr(fd: RawFd, name: &CStr, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: a NUL-terminated name; the buffer is ours for the call.
    unsafe { sys!(Fgetxattr, fd, name.as_ptr(), buf.as_mut_ptr(), buf.len()) }
}

/// `getxattrat(2)` of what a name leads to: gives the size. Linux 6.13.
pub fn getxattrat(dir: RawFd, path: &CStr, name: &CStr, buf: &mut [u8]) -> Result<usize> {
    #[repr(C)]
    struct XattrArgs {
        value: u64,
        size: u32,
        flags: u32,
    }
    let args = XattrArgs {
        value: buf.as_mut_ptr() as u64,
        size: u32::try_from(buf.len()).unwrap_or(u32::MAX),
        flags: 0,
    };
    // SAFETY: NUL-terminated names; the buffer is ours for the call.
    unsafe {
        sys!(
            Getxattrat,
            dir,
            path.as_ptr(),
            0,
            name.as_ptr(),
            &raw const args,
            size_of::<XattrArgs>()
        )
    }
}

/// `fsetxattr(2)`.
pub fn fsetxattr(fd: RawFd, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
    // SAFETY: a NUL-terminated name; the value outlives the call.
    unsafe {
        sys!(
            Fsetxattr,
            fd,
            name.as_ptr(),
            value.as_ptr(),
            value.len(),
            flags
        )
    }?;
    Ok(())
}

/// `flistxattr(2)`: gives the size.
pub fn flistxattr(fd: RawFd, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is ours for the call.
    unsafe { sys!(Flistxattr, fd, buf.as_mut_ptr(), buf.len()) }
}

/// `fremovexattr(2)`.
pub fn fremovexattr(fd: RawFd, name: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated name.
    unsafe { sys!(Fremovexattr, fd, name.as_ptr()) }?;
    Ok(())
}

/// `umask(2)`.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: no pointers; it cannot fail.
    unsafe { sys!(Umask, mask) }.unwrap_or(0) as u32
}

/// The process's effective user and group.
#[must_use]
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no arguments; they cannot fail.
    let (uid, gid) = unsafe { (sys!(Geteuid), sys!(Getegid)) };
    (uid.unwrap_or(0) as u32, gid.unwrap_or(0) as u32)
}
