//! A VMA: what the application asked for.

use crate::types::{Access, MapName};
use clas::Mappable;
use platform::Prot;
use std::any::Any;
use std::sync::Arc;

bitflags::bitflags! {
    /// Properties of a VMA besides its protection (`VM_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct VmaFlags: u64 {
        const SHARED = 1 << 0;
        /// A stack: grows towards lower addresses.
        const GROWSDOWN = 1 << 1;
        const NORESERVE = 1 << 2;
        const LOCKED = 1 << 3;
        const LOCKONFAULT = 1 << 4;
        const DONTFORK = 1 << 5;
        const WIPEONFORK = 1 << 6;
        const DONTDUMP = 1 << 7;
        /// `MAP_SHARED | MAP_ANONYMOUS`: its file is a `SharedAnon`.
        const ANON_SHARED = 1 << 8;
        /// Its pages may go away at any time (here they do not), and no child has them.
        const DROPPABLE = 1 << 9;
        /// Its NUMA policy, as [`crate::policy::Policy`] has it.
        const POLICY = 0xffff_fc00;
        /// mseal(2): see [`crate::seal`].
        const SEALED = 1 << 32;
        /// See [`crate::confidential`].
        const CONFIDENTIAL = 1 << 33;
        /// The number of its name: see [`crate::names`].
        const NAME = 0x7ff << 34;
        /// Of a file that only its mappings show: see [`crate::secret`].
        const SECRET = 1 << 45;
    }
}

impl VmaFlags {
    /// What is in no core.
    pub const NOT_DUMPED: VmaFlags = VmaFlags::DONTDUMP
        .union(VmaFlags::CONFIDENTIAL)
        .union(VmaFlags::SECRET);
}

// No two share a bit: new ones go from bit 46 on.
const _: () = {
    let (all, mut ones, mut i) = (<VmaFlags as bitflags::Flags>::FLAGS, 0, 0);
    while i < all.len() {
        ones += all[i].value().bits().count_ones();
        i += 1;
    }
    assert!(ones == VmaFlags::all().bits().count_ones());
};

/// A file as it is mapped.
pub(crate) struct FileRef {
    pub(crate) mappable: Arc<dyn Mappable>,
    pub(crate) name: Option<Arc<dyn MapName>>,
    pub(crate) keep: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether it counts as a shared mapping that may be written ([`Mappable::map_writable`]): the
    /// count goes with the last VMA that came from one mmap.
    pub(crate) counted: bool,
}

impl Drop for FileRef {
    fn drop(&mut self) {
        if self.counted {
            self.mappable.unmap_writable();
        }
    }
}

/// A file and where in it.
#[derive(Clone)]
pub(crate) struct FileAt {
    pub(crate) file: Arc<FileRef>,
    pub(crate) offset: u64,
}

#[derive(Clone)]
pub(crate) struct Vma {
    pub(crate) prot: Prot,
    /// What `mprotect` may give (`VM_MAY*`).
    pub(crate) max_prot: Prot,
    pub(crate) flags: VmaFlags,
    pub(crate) file: Option<FileAt>,
}

/// The address of a file's object: its identity.
pub(crate) fn identity(m: &Arc<dyn Mappable>) -> usize {
    Arc::as_ptr(m).cast::<()>().addr()
}

fn keep_identity(f: &FileRef) -> usize {
    f.keep
        .as_ref()
        .map_or(0, |k| Arc::as_ptr(k).cast::<()>().addr())
}

impl Vma {
    /// The same, starting `n` bytes further on.
    pub(crate) fn after(&self, n: u64) -> Vma {
        let mut v = self.clone();
        if let Some(f) = &mut v.file {
            f.offset += n;
        }
        v
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.flags.contains(VmaFlags::SHARED)
    }

    /// `VM_DONTEXPAND`.
    pub(crate) fn is_fixed(&self) -> bool {
        self.file
            .as_ref()
            .is_some_and(|f| f.file.mappable.is_fixed())
    }

    pub(crate) fn is_private_anon(&self) -> bool {
        self.file.is_none()
    }

    pub(crate) fn allows(&self, access: Access) -> bool {
        match access {
            // On x86, what can be written or executed can be read.
            Access::Read => self.prot != Prot::NONE,
            Access::Write => self.prot.contains(Prot::WRITE),
            Access::Exec => self.prot.contains(Prot::EXEC),
        }
    }

    /// Whether `next`, which begins `len` bytes further on, continues this one.
    pub(crate) fn continues(&self, len: u64, next: &Vma) -> bool {
        let files = match (&self.file, &next.file) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.offset.checked_add(len) == Some(b.offset)
                    && identity(&a.file.mappable) == identity(&b.file.mappable)
                    && keep_identity(&a.file) == keep_identity(&b.file)
            }
            _ => false,
        };
        files
            && self.prot == next.prot
            && self.max_prot == next.max_prot
            && self.flags == next.flags
    }

    /// Whether it counts for `RLIMIT_DATA`: private, writable, not a stack.
    pub(crate) fn is_data(prot: Prot, flags: VmaFlags) -> bool {
        prot.contains(Prot::WRITE) && !flags.intersects(VmaFlags::SHARED | VmaFlags::GROWSDOWN)
    }
}
