//! The files that `/proc/locks` looks at: those that have, or had, locks or leases, in the order of
//! their first one.

use crate::attachments::Attachable;
use crate::inode::Inode;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// By their numbers. A leaf.
static LISTED: Mutex<BTreeMap<u64, Weak<dyn Inode>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// An inode's number in the list, from its first lock on until the inode goes.
#[derive(Default)]
struct Listed(OnceLock<u64>);

impl Attachable for Listed {}

impl Drop for Listed {
    fn drop(&mut self) {
        let gone = self.0.get().and_then(|n| LISTED.lock().remove(n));
        drop(gone);
    }
}

/// Has a file shown in `/proc/locks`, from its first lock on.
pub(crate) fn list(inode: &Arc<dyn Inode>) {
    let listed = inode.ext().attachments.get_or_make::<Listed>();
    listed.0.get_or_init(|| {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        LISTED.lock().insert(n, Arc::downgrade(inode));
        n
    });
}

/// Calls `f` with those that live, some at a time: others wait for the list meanwhile.
pub fn for_each(mut f: impl FnMut(&dyn Inode)) {
    const AT_ONCE: usize = 64;
    let mut next = 0;
    loop {
        let some: Vec<_> = {
            let all = LISTED.lock();
            let from = all.range(next..).take(AT_ONCE);
            from.map(|(n, i)| (*n, i.upgrade())).collect()
        };
        let Some((last, _)) = some.last() else { return };
        next = last + 1;
        some.iter()
            .filter_map(|(_, i)| i.as_ref())
            .for_each(|i| f(&**i));
    }
}
