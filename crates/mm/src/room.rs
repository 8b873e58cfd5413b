//! What an address space may hold, and where the parts of its image lie.
//!
//! Nothing here changes what is mapped: it is asked before, with the counts as they are.

use crate::PAGE;
use crate::types::Limits;
use crate::vma::{Vma, VmaFlags};
use crate::vmas::Counts;
use platform::{Prot, USER_MAX};

const LOCKS: VmaFlags = VmaFlags::LOCKED.union(VmaFlags::LOCKONFAULT);

/// Where the parts of an image lie, as in Linux's `mm_struct`. Set by the loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// New mappings go below it.
    pub mmap_base: u64,
    pub start_brk: u64,
    pub brk: u64,
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
    /// The auxiliary vector, as it was put on the stack.
    pub auxv: Vec<(u64, u64)>,
    /// Where the vDSO is; zero for none.
    pub vdso: u64,
}

impl Layout {
    /// The auxiliary vector as it lies in memory.
    #[must_use]
    pub fn auxv_bytes(&self) -> Vec<u8> {
        let words = self.auxv.iter().flat_map(|&(k, v)| [k, v]);
        words.flat_map(u64::to_le_bytes).collect()
    }
}

impl Default for Layout {
    fn default() -> Self {
        Layout {
            mmap_base: USER_MAX - (128 << 20),
            start_brk: 0,
            brk: 0,
            start_code: 0,
            end_code: 0,
            start_data: 0,
            end_data: 0,
            start_stack: 0,
            arg_start: 0,
            arg_end: 0,
            env_start: 0,
            env_end: 0,
            auxv: Vec::new(),
            vdso: 0,
        }
    }
}

/// The limits of an address space, and where what lies.
pub(crate) struct Room {
    layout: Layout,
    limits: Limits,
    /// Flags that new mappings get: by `mlockall(MCL_FUTURE)`, or [`crate::confidential`].
    default_flags: VmaFlags,
}

impl Room {
    pub(crate) fn new() -> Room {
        Room {
            layout: Layout::default(),
            limits: Limits::default(),
            default_flags: VmaFlags::empty(),
        }
    }

    /// In a fork's child: as in the parent, but for locks.
    pub(crate) fn inherit(&mut self, parent: &Room) {
        self.layout = parent.layout.clone();
        self.limits = parent.limits;
        self.default_flags = parent.default_flags - LOCKS;
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The flags that new mappings get.
    pub(crate) fn default_flags(&self) -> VmaFlags {
        self.default_flags
    }

    /// New mappings are locked like this from now on.
    pub(crate) fn lock_new(&mut self, flags: VmaFlags) {
        self.default_flags = (self.default_flags - LOCKS) | (flags & LOCKS);
    }

    /// New mappings get these flags, too.
    pub(crate) fn add_default(&mut self, flags: VmaFlags) {
        self.default_flags |= flags;
    }

    /// Whether `RLIMIT_AS` and `RLIMIT_DATA` let `len` more bytes in (`may_expand_vm`).
    pub(crate) fn may_expand(&self, now: &Counts, prot: Prot, flags: VmaFlags, len: u64) -> bool {
        let total = now.total + len / PAGE <= self.limits.address_space / PAGE;
        total && (!Vma::is_data(prot, flags) || self.may_add_data(now, len))
    }

    /// Whether `RLIMIT_DATA` lets `len` more bytes in.
    pub(crate) fn may_add_data(&self, now: &Counts, len: u64) -> bool {
        now.data + len / PAGE <= self.limits.data / PAGE
    }

    /// Whether `RLIMIT_MEMLOCK` lets `len` more bytes with these flags in.
    pub(crate) fn may_lock(&self, now: &Counts, flags: VmaFlags, len: u64) -> bool {
        !flags.contains(VmaFlags::LOCKED) || now.locked * PAGE + len <= self.limits.memlock
    }
}
