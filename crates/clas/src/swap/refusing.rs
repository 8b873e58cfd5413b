//! A store that refuses pages for no reason, for tests: see [`crate::Clas::refuse_swap`].

use super::{PAGE, Slot, Store};
use abi::Result;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct Refusing {
    pub(super) store: Box<dyn Store>,
    /// Every so many pages it takes none.
    pub(super) every: u32,
    pub(super) asked: AtomicU32,
}

impl Store for Refusing {
    fn put(&self, page: &[u8; PAGE]) -> Option<Slot> {
        let n = self.asked.fetch_add(1, Ordering::Relaxed);
        let takes = n % self.every != self.every - 1;
        takes.then(|| self.store.put(page)).flatten()
    }
    fn get(&self, slot: Slot, page: &mut [u8; PAGE]) -> Result<()> {
        self.store.get(slot, page)
    }
    fn free(&self, slot: Slot) {
        self.store.free(slot);
    }
    fn memory(&self) -> u64 {
        self.store.memory()
    }
}
