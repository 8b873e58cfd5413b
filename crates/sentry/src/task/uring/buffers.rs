//! Provided buffers: groups of them, of which a request takes one when it has something to put
//! there (`io_uring/kbuf.c`). A group is a list, or a ring that lies in memory of the application's
//! (`struct io_uring_buf_ring`): that the kernel maps for it, or that it registered.
//!
//! ```text
//!   entry  addr: u64   len: u32   bid: u16   (in the first entry: the tail)
//! ```

use super::abi::{CQE_BUFFER, CQE_BUFFER_SHIFT};
use abi::errno::{EEXIST, EFAULT, EINVAL, ENOBUFS, ENOENT};
use abi::{Result, Va};
use mm::Mm;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use vfs::ring::RingMemory;
use vfs::ucounts::Charge;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct io_uring_buf`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    addr: u64,
    len: u32,
    bid: u16,
    tail: u16,
}

/// `sizeof(struct io_uring_buf)`, and where the ring's tail is.
pub const ENTRY: u64 = 16;
const TAIL: u64 = 14;
/// What a buffer of a list takes of the kernel's memory.
pub const LISTED: u64 = 64;
/// The most buffers that lists of one group may have (`MAX_BIDS_PER_BGID`).
const MAX_LISTED: usize = 1 << 16;

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provided {
    pub addr: u64,
    pub len: u32,
    pub bid: u16,
}

/// A buffer that was taken of a group.
pub struct SelectedBuffer {
    pub group: u16,
    pub buffer: Provided,
    charge: Option<Charge>,
}

impl SelectedBuffer {
    /// As a completion tells it.
    #[must_use]
    pub fn flags(&self) -> u32 {
        CQE_BUFFER | u32::from(self.buffer.bid) << CQE_BUFFER_SHIFT
    }
}

/// Where a ring of buffers lies.
#[derive(Clone)]
pub enum Place {
    /// The application's own.
    User(Weak<Mm>, Va),
    /// The kernel's, which the application maps (`IOU_PBUF_RING_MMAP`).
    Kernel(Arc<RingMemory>),
}

impl Place {
    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        match self {
            Place::User(mm, va) => {
                let mm = mm.upgrade().ok_or(ENOBUFS)?;
                // A secret may have been mapped there since.
                match mm.read_shown(va.offset(at), out) == out.len() {
                    true => Ok(()),
                    false => Err(EFAULT),
                }
            }
            Place::Kernel(m) => {
                m.slice(at, out.len()).copy_to(out);
                Ok(())
            }
        }
    }
}

enum Group {
    List {
        all: VecDeque<(Provided, Charge)>,
        _charge: Charge,
    },
    Ring {
        place: Place,
        entries: u32,
        head: u16,
        /// What was taken and not used.
        returned: Vec<Provided>,
        _charge: Charge,
    },
}

/// The groups of a ring.
#[derive(Default)]
pub struct Groups(Mutex<BTreeMap<u16, Group>>);

impl Groups {
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
    /// Takes a buffer; `ENOBUFS` where there is none.
    pub fn take(&self, group: u16) -> Result<SelectedBuffer> {
        let taken = |buffer, charge| SelectedBuffer {
            group,
            buffer,
            charge,
        };
        // The application's memory is read without the lock; who took the buffer meanwhile is
        // seen by the head.
        loop {
            let (place, entries, at) = {
                let mut all = self.0.lock();
                match all.get_mut(&group).ok_or(ENOBUFS)? {
                    Group::List { all: l, .. } => {
                        let (b, charge) = l.pop_front().ok_or(ENOBUFS)?;
                        return Ok(taken(b, Some(charge)));
                    }
                    Group::Ring { returned, .. } if !returned.is_empty() => {
                        let b = returned.pop().ok_or(ENOBUFS)?;
                        return Ok(taken(b, None));
                    }
                    Group::Ring {
                        place,
                        entries,
                        head,
                        ..
                    } => (place.clone(), *entries, *head),
                }
            };
            let mut tail = [0; 2];
            place.read(TAIL, &mut tail).map_err(|_| ENOBUFS)?;
            if u16::from_le_bytes(tail) == at {
                return Err(ENOBUFS);
            }
            let mut e = Entry::default();
            let index = u64::from(at) & u64::from(entries - 1);
            place
                .read(index * ENTRY, e.as_mut_bytes())
                .map_err(|_| ENOBUFS)?;
            let mut all = self.0.lock();
            if let Some(Group::Ring { head, .. }) = all.get_mut(&group)
                && *head == at
            {
                *head = at.wrapping_add(1);
                let b = Provided {
                    addr: e.addr,
                    len: e.len,
                    bid: e.bid,
                };
                return Ok(taken(b, None));
            }
        }
    }
    /// Gives one back that was not used: the next one takes it.
    pub fn give_back(&self, t: SelectedBuffer) {
        let mut all = self.0.lock();
        match all.get_mut(&t.group) {
            Some(Group::List { all: l, .. }) => {
                if let Some(charge) = t.charge {
                    l.push_front((t.buffer, charge));
                }
            }
            Some(Group::Ring { returned, .. }) => returned.push(t.buffer),
            None => {}
        }
    }
    /// Adds buffers to a list, made if there is none; `EINVAL` where the group is a ring.
    pub fn provide(&self, group: u16, new: Vec<(Provided, Charge)>, own: Charge) -> Result<()> {
        let mut all = self.0.lock();
        match all.entry(group).or_insert_with(|| Group::List {
            all: VecDeque::new(),
            _charge: own,
        }) {
            Group::List { all: l, .. } if l.len() + new.len() <= MAX_LISTED => {
                l.extend(new);
                Ok(())
            }
            Group::List { .. } => Err(abi::errno::EOVERFLOW),
            Group::Ring { .. } => Err(EINVAL),
        }
    }
    /// Removes so many of a list: how many there were. `ENOENT`, `EINVAL`.
    pub fn remove(&self, group: u16, n: usize) -> Result<usize> {
        let mut all = self.0.lock();
        match all.get_mut(&group).ok_or(ENOENT)? {
            Group::List { all: l, .. } => {
                let n = n.min(l.len());
                let old: Vec<_> = l.drain(..n).collect();
                drop(all);
                drop(old);
                Ok(n)
            }
            Group::Ring { .. } => Err(EINVAL),
        }
    }
    /// Registers a ring; `EEXIST` where the group has buffers.
    pub fn register(&self, group: u16, place: Place, entries: u32, charge: Charge) -> Result<()> {
        let mut all = self.0.lock();
        match all.get(&group) {
            Some(Group::List { all: l, .. }) if l.is_empty() => {}
            Some(_) => return Err(EEXIST),
            None => {}
        }
        let new = Group::Ring {
            place,
            entries,
            head: 0,
            returned: Vec::new(),
            _charge: charge,
        };
        all.insert(group, new);
        Ok(())
    }
    /// Takes a ring back; `ENOENT`, or `EINVAL` where it is a list.
    pub fn unregister(&self, group: u16) -> Result<()> {
        let mut all = self.0.lock();
        match all.get(&group) {
            None => Err(ENOENT),
            Some(Group::List { .. }) => Err(EINVAL),
            Some(Group::Ring { .. }) => {
                let old = all.remove(&group);
                drop(all);
                drop(old);
                Ok(())
            }
        }
    }
    /// Where the kernel is in a ring; `ENOENT`, `EINVAL`.
    pub fn head(&self, group: u16) -> Result<u16> {
        match self.0.lock().get(&group).ok_or(ENOENT)? {
            Group::Ring { head, returned, .. } => Ok(head.wrapping_sub(returned.len() as u16)),
            Group::List { .. } => Err(EINVAL),
        }
    }
    /// The memory of a ring that the kernel made.
    #[must_use]
    pub fn memory(&self, group: u16) -> Option<Arc<RingMemory>> {
        match self.0.lock().get(&group)? {
            Group::Ring {
                place: Place::Kernel(m),
                ..
            } => Some(m.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::Credentials;
    use vfs::ucounts::Kind;

    fn charge() -> Charge {
        let root = Credentials::root();
        root.ucounts().force(Kind::Kmem, LISTED)
    }

    #[test]
    fn what_was_not_used_is_taken_next() {
        let g = Groups::default();
        assert_eq!(g.take(1).err(), Some(ENOBUFS));
        let buffer = |bid| Provided {
            addr: 0x1000,
            len: 16,
            bid,
        };
        let new = (0..3).map(|i| (buffer(i), charge())).collect();
        g.provide(1, new, charge()).unwrap();
        let first = g.take(1).unwrap();
        assert_eq!(first.buffer, buffer(0));
        assert_eq!(g.take(1).unwrap().buffer, buffer(1));
        g.give_back(first);
        assert_eq!(g.take(1).unwrap().flags(), CQE_BUFFER);
        assert_eq!(g.remove(1, 10), Ok(1));
        assert_eq!((g.remove(1, 10), g.remove(2, 1)), (Ok(0), Err(ENOENT)));
        assert_eq!(
            (g.unregister(1), g.unregister(2)),
            (Err(EINVAL), Err(ENOENT))
        );
        assert_eq!((g.head(1), g.head(2)), (Err(EINVAL), Err(ENOENT)));
    }
}
