//! For which commands of membarrier(2) an address space is registered (`mm->membarrier_state`). A
//! child has what its parent had; execve(2) makes a new address space, which has none.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bits of `MEMBARRIER_CMD_REGISTER_*`. Atomic: a registration only adds.
#[derive(Default)]
pub struct Barriers(AtomicU32);

impl Barriers {
    #[must_use]
    pub fn registered(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
    pub fn register(&self, command: u32) {
        self.0.fetch_or(command, Ordering::SeqCst);
    }
}
