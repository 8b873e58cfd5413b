//! Who may look into an address space (`mm_struct::flags` and `mm_struct::user_ns`).
//!
//! It goes with the memory, not with a process: `CLONE_VM` shares it, fork(2) copies it, execve(2)
//! begins anew.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vfs::userns::UserNs;

/// Whether processes of the same user may look in, and whose capability always may.
pub struct Privacy {
    /// `SUID_DUMP_USER`; without it the memory is for CAP_SYS_PTRACE in `user_ns` only.
    dumpable: AtomicBool,
    /// Changed before the memory is anybody's, and by nobody afterwards.
    user_ns: Mutex<UserNs>,
    /// `/proc/PID/coredump_filter`: a program keeps that of the one before.
    dump_filter: AtomicU32,
}

/// What of a memory is in a core: private and shared memory without a file, the beginnings of ELF
/// files, huge private pages (`MMF_DUMP_FILTER_DEFAULT`).
const DUMP_FILTER: u32 = 0x33;
/// All bits that there are (`MMF_DUMP_FILTER_BITS`).
const DUMP_FILTER_ALL: u32 = 0x1ff;

impl Default for Privacy {
    fn default() -> Privacy {
        Privacy {
            dumpable: AtomicBool::new(true),
            user_ns: Mutex::default(),
            dump_filter: AtomicU32::new(DUMP_FILTER),
        }
    }
}

/// Whether a memory may be looked into and dumped (`PR_SET_DUMPABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dumpable {
    No,
    Yes,
}

impl Privacy {
    #[must_use]
    pub fn is_dumpable(&self) -> bool {
        self.dumpable.load(Ordering::SeqCst)
    }
    pub fn set_dumpable(&self, to: Dumpable) {
        self.dumpable.store(to == Dumpable::Yes, Ordering::SeqCst);
    }
    /// The user namespace that owns the memory.
    #[must_use]
    pub fn user_ns(&self) -> UserNs {
        self.user_ns.lock().clone()
    }
    /// Before anybody else can see the memory.
    pub fn set_user_ns(&self, ns: UserNs) {
        *self.user_ns.lock() = ns;
    }
    #[must_use]
    pub fn dump_filter(&self) -> u32 {
        self.dump_filter.load(Ordering::Relaxed)
    }
    /// Bits that stand for nothing are not kept.
    pub fn set_dump_filter(&self, bits: u32) {
        self.dump_filter
            .store(bits & DUMP_FILTER_ALL, Ordering::Relaxed);
    }
    /// As that of the memory that this is a copy of.
    pub(crate) fn inherit(&self, from: &Privacy) {
        self.dumpable.store(from.is_dumpable(), Ordering::SeqCst);
        self.set_user_ns(from.user_ns());
        self.set_dump_filter(from.dump_filter());
    }
}
