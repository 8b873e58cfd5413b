//! The locks of host files' attributes: see [`vfs::Inode::lock_attributes`].
//!
//! A directory of the host may be mounted more than once, and be another Gofer's, too: each has an
//! inode of its own. So the locks are by the host's device and number, one for each file of which
//! attributes were changed, and go with the last inode. A lock is held while the Gofer is asked to
//! change the file, and no other: its waiter wants to change the same file.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

type Key = (u64, u64);

static LOCKS: LazyLock<Mutex<HashMap<Key, Weak<Mutex<()>>>>> = LazyLock::new(Mutex::default);

/// An inode's share in the lock of its file.
pub struct AttrLock {
    key: Key,
    lock: Arc<Mutex<()>>,
}

impl AttrLock {
    pub fn of(key: Key) -> AttrLock {
        let mut all = LOCKS.lock();
        let lock = all.get(&key).and_then(Weak::upgrade).unwrap_or_default();
        all.insert(key, Arc::downgrade(&lock));
        drop(all);
        AttrLock { key, lock }
    }
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }
}

impl Drop for AttrLock {
    fn drop(&mut self) {
        // Others take a share only under this lock.
        let mut all = LOCKS.lock();
        if Arc::strong_count(&self.lock) == 1 {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_lock_as_long_as_it_is_used() {
        let (a, b) = (AttrLock::of((1, 2)), AttrLock::of((1, 2)));
        let other = AttrLock::of((1, 3));
        let held = a.lock();
        assert!(b.lock.try_lock().is_none() && other.lock.try_lock().is_some());
        drop(held);
        drop(a);
        let again = AttrLock::of((1, 2));
        assert!(Arc::ptr_eq(&b.lock, &again.lock));
        drop((again, b));
        assert!(!LOCKS.lock().contains_key(&(1, 2)));
    }
}
