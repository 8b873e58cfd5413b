//! Owned host descriptors.

use crate::sys;
use abi::Result;

/// A host file descriptor's number, not owned.
pub type RawFd = i32;

/// A host file descriptor, closed when dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct HostFd(RawFd);

impl HostFd {
    /// Takes ownership of `fd`: an open descriptor that nobody else closes.
    #[must_use]
    pub const fn from_raw(fd: RawFd) -> HostFd {
        HostFd(fd)
    }
    #[must_use]
    pub const fn raw(&self) -> RawFd {
        self.0
    }
    /// Gives ownership away.
    #[must_use]
    pub fn into_raw(self) -> RawFd {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
    /// A second descriptor for the same open file, close-on-exec.
    pub fn duplicate(&self) -> Result<HostFd> {
        // SAFETY: no pointers.
        let fd = unsafe { sys!(Fcntl, self.0, libc::F_DUPFD_CLOEXEC, 3) }?;
        Ok(HostFd(fd as RawFd))
    }
}

impl Drop for HostFd {
    fn drop(&mut self) {
        // SAFETY: we own the descriptor.
        let _ = unsafe { sys!(Close, self.0) };
    }
}
