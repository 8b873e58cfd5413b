//! What is registered with a ring: files and buffers, each with a tag that is told when the last
//! request that uses it has ended (`io_uring/rsrc.c`, `filetable.c`).

use super::{Cqe, Ring};
use abi::errno::{EBUSY, EFAULT, EINVAL, ENFILE, ENXIO, EOVERFLOW};
use abi::{Result, Va};
use mm::{Mm, UserRange};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use vfs::File;
use vfs::ucounts::Charge;

/// `IORING_MAX_FIXED_FILES`, `IORING_MAX_REG_BUFFERS`.
pub const MAX_FILES: u32 = 1 << 20;
pub const MAX_BUFFERS: u32 = 1 << 14;

/// Something registered: dropped, it tells its tag.
pub struct Node<T> {
    what: T,
    tag: u64,
    ring: Weak<Ring>,
}

impl<T> Node<T> {
    #[must_use]
    pub fn what(&self) -> &T {
        &self.what
    }
}

impl<T> Drop for Node<T> {
    fn drop(&mut self) {
        if self.tag != 0
            && let Some(r) = self.ring.upgrade()
        {
            r.complete_for(Cqe {
                user_data: self.tag,
                ..Cqe::default()
            });
        }
    }
}

/// A registered buffer: where it is in whose memory. Linux pins its pages; here it is found anew
/// at each use, so that it is what is mapped there then.
pub struct Buffer {
    pub range: UserRange,
    pub mm: Weak<Mm>,
    pub _locked: Option<Charge>,
}

impl Buffer {
    /// A part of it (`io_import_fixed`); `EFAULT` where it is none.
    pub fn part(&self, va: Va, len: u64) -> Result<UserRange> {
        let end = va.checked_add(len).ok_or(EFAULT)?;
        let all = self.range;
        if va < all.va || end.0 > all.va.0 + all.len {
            return Err(EFAULT);
        }
        Ok(UserRange { va, len })
    }
}

/// A table of registered things.
pub struct Table<T> {
    ring: Weak<Ring>,
    slots: Mutex<Option<Slots<T>>>,
}

struct Slots<T> {
    all: Vec<Option<Arc<Node<T>>>>,
    /// Where free slots are chosen, and where to begin to look.
    range: (u32, u32),
    hint: u32,
    _charge: Charge,
}

impl<T> Table<T> {
    fn new(ring: Weak<Ring>) -> Table<T> {
        Table {
            ring,
            slots: Mutex::new(None),
        }
    }
    #[must_use]
    pub fn count(&self) -> usize {
        self.slots.lock().as_ref().map_or(0, |s| s.all.len())
    }
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.slots.lock().is_some()
    }
    /// What is in a slot.
    #[must_use]
    pub fn get(&self, at: u32) -> Option<Arc<Node<T>>> {
        self.slots.lock().as_ref()?.all.get(at as usize)?.clone()
    }
    /// Registers a table, each with its tag; `EBUSY` where there is one.
    pub fn register(&self, all: Vec<Option<(T, u64)>>, charge: Charge) -> Result<()> {
        let node = |(what, tag)| self.node(what, tag);
        let all: Vec<_> = all.into_iter().map(|x| x.map(node)).collect();
        let mut s = self.slots.lock();
        if s.is_some() {
            drop(s);
            drop(all);
            return Err(EBUSY);
        }
        let n = all.len() as u32;
        *s = Some(Slots {
            all,
            range: (0, n),
            hint: 0,
            _charge: charge,
        });
        Ok(())
    }
    fn node(&self, what: T, tag: u64) -> Arc<Node<T>> {
        Arc::new(Node {
            what,
            tag,
            ring: self.ring.clone(),
        })
    }
    /// Takes the table back; `ENXIO` where there is none.
    pub fn unregister(&self) -> Result<()> {
        let old = self.slots.lock().take();
        let found = old.is_some();
        drop(old);
        found.then_some(()).ok_or(ENXIO)
    }
    /// Puts something into a slot, or takes it out; gives whether there was something. `ENXIO`
    /// where there is no table, `EINVAL` for no slot of it.
    pub fn set(&self, at: u32, what: Option<(T, u64)>) -> Result<bool> {
        let new = what.map(|(what, tag)| self.node(what, tag));
        let mut s = self.slots.lock();
        let slots = s.as_mut().ok_or(ENXIO);
        let slot = slots.and_then(|s| s.all.get_mut(at as usize).ok_or(EINVAL));
        let old = match slot {
            Ok(slot) => std::mem::replace(slot, new),
            Err(e) => {
                drop(s);
                drop(new);
                return Err(e);
            }
        };
        drop(s);
        Ok(old.is_some())
    }
    /// Puts something into a free slot: which. `ENFILE` where there is none.
    pub fn put_free(&self, what: T) -> Result<u32> {
        let new = self.node(what, 0);
        let mut s = self.slots.lock();
        let found = s.as_mut().and_then(|s| {
            let (from, to) = s.range;
            let free = |i: &u32| s.all.get(*i as usize).is_some_and(Option::is_none);
            let hint = s.hint.clamp(from, to);
            let at = (hint..to).chain(from..hint).find(free)?;
            s.all[at as usize] = Some(new.clone());
            s.hint = at + 1;
            Some(at)
        });
        drop(s);
        found.ok_or(ENFILE)
    }
    /// Where free slots are chosen from now on (`io_register_file_alloc_range`).
    pub fn set_range(&self, from: u32, len: u32) -> Result<()> {
        let end = from.checked_add(len).ok_or(EOVERFLOW)?;
        let mut s = self.slots.lock();
        let s = s.as_mut().filter(|s| end as usize <= s.all.len());
        let s = s.ok_or(EINVAL)?;
        s.range = (from, end);
        s.hint = from;
        Ok(())
    }
}

/// All that is registered.
pub struct Resources {
    pub files: Table<Arc<File>>,
    pub buffers: Table<Buffer>,
}

impl Resources {
    #[must_use]
    pub fn new(ring: Weak<Ring>) -> Resources {
        Resources {
            files: Table::new(ring.clone()),
            buffers: Table::new(ring),
        }
    }
    pub fn clear(&self) {
        let _ = self.files.unregister();
        let _ = self.buffers.unregister();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::Credentials;
    use vfs::ucounts::Kind;

    fn table(n: usize) -> Table<u8> {
        let t = Table::new(Weak::new());
        let charge = Credentials::root().ucounts().force(Kind::Kmem, 1);
        t.register((0..n).map(|_| None).collect(), charge).unwrap();
        t
    }

    #[test]
    fn free_slots_are_of_a_range() {
        let t = table(4);
        assert_eq!(t.set_range(3, 2), Err(EINVAL));
        assert_eq!(t.set_range(u32::MAX, 2), Err(EOVERFLOW));
        t.set_range(1, 2).unwrap();
        assert_eq!((t.put_free(7), t.put_free(8)), (Ok(1), Ok(2)));
        assert_eq!(t.put_free(9), Err(ENFILE));
        assert_eq!(t.set(1, None), Ok(true));
        assert_eq!(t.put_free(9), Ok(1));
        assert_eq!(t.get(1).map(|n| *n.what()), Some(9));
        assert_eq!((t.set(4, None), t.get(4).is_some()), (Err(EINVAL), false));
        t.unregister().unwrap();
        assert_eq!((t.set(0, None), t.put_free(1)), (Err(ENXIO), Err(ENFILE)));
    }

    #[test]
    fn parts_of_buffers_are_inside() {
        let b = Buffer {
            range: UserRange {
                va: Va(0x1000),
                len: 0x100,
            },
            mm: Weak::new(),
            _locked: None,
        };
        assert!(b.part(Va(0x1000), 0x100).is_ok() && b.part(Va(0x1100), 0).is_ok());
        for (va, len) in [(0xfff, 1), (0x1001, 0x100), (u64::MAX, 2), (0x2000, 0)] {
            assert_eq!(b.part(Va(va), len).err(), Some(EFAULT), "{va:x}");
        }
    }
}
