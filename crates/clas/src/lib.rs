//! The container-level address space (CLAS): every page of a container in one memory file.
//!
//! A *frame* is a page of the memory file, named by its [`Cla`]. Frames are allocated in runs, counted by
//! reference (copy-on-write shares them between address spaces), and given back to the host when the last
//! reference goes. The Sentry maps the whole file, so that copying to and from application memory is a
//! memcpy.

use abi::{Result, Va};
use hostcall::{MemSlice, RawFd};
use std::sync::Arc;

/// A container-level address: a byte offset in the memory file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cla(pub u64);

/// One container's memory. (Contract only: the author of this room fills it in.)
pub struct Clas {}

impl Clas {
    pub fn new() -> Result<Arc<Clas>> {
        todo!()
    }
    /// The memory file's descriptor, for mapping into application address spaces.
    pub fn memory_fd(&self) -> RawFd {
        todo!()
    }
    /// A run of `pages` frames, reading as zeros, with one reference each. `hint_end`: the run should end
    /// there if it can, so that host mappings merge. `ENOMEM` past the limit.
    pub fn allocate(&self, _pages: u64, _hint_end: Option<Cla>) -> Result<Cla> {
        todo!()
    }
    /// One more reference on each of `pages` frames.
    pub fn incref(&self, _at: Cla, _pages: u64) {
        todo!()
    }
    /// One reference less; frames without any are given back.
    pub fn decref(&self, _at: Cla, _pages: u64) {
        todo!()
    }
    /// Whether every frame of the run has exactly one reference.
    pub fn is_exclusive(&self, _at: Cla, _pages: u64) -> bool {
        todo!()
    }
    /// The Sentry's own mapping of `[at, at + len)`, which lies in allocated frames.
    pub fn slice(&self, _at: Cla, _len: usize) -> MemSlice<'_> {
        todo!()
    }
}

/// What backs a piece of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Frames of the memory file (tmpfs, memfd, shm): they have a reference of the file's own.
    Frames(Cla),
    /// A host file, mapped from this descriptor at this offset. The descriptor lives as long as the
    /// [`Mappable`].
    Host { fd: RawFd, offset: u64 },
}

/// A file that can be mapped.
pub trait Mappable: Send + Sync {
    /// What backs the file from `offset` (page-aligned) on, and for how many bytes in one run (a multiple
    /// of the page size, at most `len`). `Write` gives backing that may be written through (a shared
    /// writable mapping): holes get frames. Past the page that holds the end of the file: `EFAULT`, which
    /// becomes SIGBUS.
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)>;
    /// A mapping of `[offset, offset + len)` appeared in `observer` at `va`: kept (weakly) until
    /// `remove_mapping`, so that truncation can drop host mappings.
    fn add_mapping(
        &self,
        observer: std::sync::Weak<dyn MappingObserver>,
        va: Va,
        offset: u64,
        len: u64,
    );
    fn remove_mapping(
        &self,
        observer: &std::sync::Weak<dyn MappingObserver>,
        va: Va,
        offset: u64,
        len: u64,
    );
    /// `msync(2)` and the end of a shared mapping: nothing to do where the page cache is shared.
    fn sync(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

/// Why backing is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
}

/// An address space that maps a file.
pub trait MappingObserver: Send + Sync {
    /// The file's bytes `[offset, offset + len)`, mapped at `va`, went away or changed their backing:
    /// forget what was looked up for them.
    fn invalidate(&self, va: Va, len: u64);
}
