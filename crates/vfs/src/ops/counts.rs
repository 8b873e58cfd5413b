//! How often a file is open, and for what: counts of an inode while it is being opened, and while
//! it runs.

use crate::file::File;
use crate::inode::Inode;
use abi::Result;
use std::sync::Arc;

/// A count in `InodeExt::writers`, until a [`File`] takes it over.
pub(super) struct WriteAccess(Option<Arc<dyn Inode>>);

impl WriteAccess {
    pub(super) fn new(inode: &Arc<dyn Inode>) -> Result<WriteAccess> {
        inode.ext().get_write_access()?;
        Ok(WriteAccess(Some(inode.clone())))
    }
    pub(super) fn give_to(mut self, file: &File) {
        self.0 = None;
        file.holds_write_access();
    }
}

impl Drop for WriteAccess {
    fn drop(&mut self) {
        if let Some(i) = &self.0 {
            i.ext().put_write_access();
        }
    }
}

/// A count in `InodeExt::readers`, until a [`File`] takes it over.
pub(super) struct ReadAccess(Option<Arc<dyn Inode>>);

impl ReadAccess {
    pub(super) fn new(inode: &Arc<dyn Inode>) -> ReadAccess {
        inode.ext().get_read_access();
        ReadAccess(Some(inode.clone()))
    }
    pub(super) fn give_to(mut self, file: &File) {
        self.0 = None;
        file.holds_read_access();
    }
}

impl Drop for ReadAccess {
    fn drop(&mut self) {
        if let Some(i) = &self.0 {
            i.ext().put_read_access();
        }
    }
}

/// Keeps a running program's file from being written (`deny_write_access`).
pub struct ExecGuard(Arc<dyn Inode>);

impl ExecGuard {
    pub(super) fn new(inode: &Arc<dyn Inode>) -> Result<ExecGuard> {
        inode.ext().deny_write_access()?;
        Ok(ExecGuard(inode.clone()))
    }
}

impl Clone for ExecGuard {
    fn clone(&self) -> Self {
        // Already denied, so it cannot fail.
        let _ = self.0.ext().deny_write_access();
        ExecGuard(self.0.clone())
    }
}

impl Drop for ExecGuard {
    fn drop(&mut self) {
        self.0.ext().allow_write_access();
    }
}
