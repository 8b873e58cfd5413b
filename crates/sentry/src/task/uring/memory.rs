//! The memory that a ring shares with the application: `struct io_rings` with the completion
//! entries and the index array behind it, and the submission entries. The application may write
//! anything there at any time; the kernel reads of it the two words that are the application's
//! (the submission ring's tail, the completion ring's head), the completion ring's flags, the index
//! array and the entries, each once.
//!
//! ```text
//!   0  sq.head  sq.tail  cq.head  cq.tail  sq_mask  cq_mask  sq_entries  cq_entries
//!  32  sq_dropped  sq_flags  cq_flags  cq_overflow  -
//!  64  completion entries, 16 or 32 bytes each
//!   …  index array: u32 for each submission entry (not with NO_SQARRAY)
//! ```

use super::abi::{CqOffsets, Cqe, MAX_CQ_ENTRIES, MAX_ENTRIES, Params, Setup, SqOffsets, Sqe};
use abi::errno::EINVAL;
use abi::{PAGE_SIZE, Result};
use clas::Clas;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::ring::RingMemory;
use vfs::ucounts::Charge;
use zerocopy::IntoBytes;

/// The words of the header, by their place.
#[derive(Clone, Copy)]
pub enum Word {
    SqHead = 0,
    SqTail = 1,
    CqHead = 2,
    CqTail = 3,
    SqMask = 4,
    CqMask = 5,
    SqEntries = 6,
    CqEntries = 7,
    SqDropped = 8,
    SqFlags = 9,
    CqFlags = 10,
    CqOverflow = 11,
}

const CQES: u64 = 64;
/// Where the index array may begin (a cache line).
const LINE: u64 = 64;

/// How large a ring's parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub sqe: u64,
    pub cqe: u64,
    /// Where the index array begins; `None` where there is none.
    pub array: Option<u64>,
    /// Bytes, whole pages.
    pub rings: u64,
    pub sqes: u64,
}

impl Sizes {
    /// Of what is asked for (`io_uring_create`, `rings_size`).
    pub fn new(entries: u32, p: &Params, setup: Setup) -> Result<Sizes> {
        let clamp = setup.contains(Setup::CLAMP);
        let within = |n: u32, most: u32| match n {
            0 => Err(EINVAL),
            n if n <= most => Ok(n),
            _ if clamp => Ok(most),
            _ => Err(EINVAL),
        };
        let sq_entries = within(entries, MAX_ENTRIES)?.next_power_of_two();
        let cq_entries = if setup.contains(Setup::CQSIZE) {
            let n = within(p.cq_entries, MAX_CQ_ENTRIES)?.next_power_of_two();
            if n < sq_entries {
                return Err(EINVAL);
            }
            n
        } else {
            2 * sq_entries
        };
        let cqe = if setup.contains(Setup::CQE32) { 32 } else { 16 };
        let sqe = if setup.contains(Setup::SQE128) {
            128
        } else {
            64
        };
        let end = CQES + u64::from(cq_entries) * cqe;
        let (array, end) = if setup.contains(Setup::NO_SQARRAY) {
            (None, end)
        } else {
            let at = end.next_multiple_of(LINE);
            (Some(at), at + u64::from(sq_entries) * 4)
        };
        Ok(Sizes {
            sq_entries,
            cq_entries,
            sqe,
            cqe,
            array,
            rings: end.next_multiple_of(PAGE_SIZE),
            sqes: (u64::from(sq_entries) * sqe).next_multiple_of(PAGE_SIZE),
        })
    }

    /// What the application is told of it.
    pub fn tell(&self, p: &mut Params) {
        let at = |w: Word| w as u32 * 4;
        p.sq_entries = self.sq_entries;
        p.cq_entries = self.cq_entries;
        p.sq_off = SqOffsets {
            head: at(Word::SqHead),
            tail: at(Word::SqTail),
            ring_mask: at(Word::SqMask),
            ring_entries: at(Word::SqEntries),
            flags: at(Word::SqFlags),
            dropped: at(Word::SqDropped),
            array: self.array.unwrap_or(0) as u32,
            ..SqOffsets::default()
        };
        p.cq_off = CqOffsets {
            head: at(Word::CqHead),
            tail: at(Word::CqTail),
            ring_mask: at(Word::CqMask),
            ring_entries: at(Word::CqEntries),
            overflow: at(Word::CqOverflow),
            cqes: CQES as u32,
            flags: at(Word::CqFlags),
            ..CqOffsets::default()
        };
    }
}

/// A ring's memory. No lock: who writes a part is said where it is called.
pub struct Shared {
    pub rings: Arc<RingMemory>,
    pub sqes: Arc<RingMemory>,
    pub sizes: Sizes,
}

impl Shared {
    pub fn new(clas: &Arc<Clas>, sizes: Sizes, charges: [Charge; 2]) -> Result<Shared> {
        let [of_rings, of_sqes] = charges;
        let s = Shared {
            rings: RingMemory::new(clas, sizes.rings, Some(of_rings))?,
            sqes: RingMemory::new(clas, sizes.sqes, Some(of_sqes))?,
            sizes,
        };
        s.set(Word::SqMask, sizes.sq_entries - 1);
        s.set(Word::CqMask, sizes.cq_entries - 1);
        s.set(Word::SqEntries, sizes.sq_entries);
        s.set(Word::CqEntries, sizes.cq_entries);
        Ok(s)
    }

    #[must_use]
    pub fn get(&self, w: Word) -> u32 {
        self.rings.load(w as u64)
    }
    pub fn set(&self, w: Word, n: u32) {
        self.rings.store(w as u64, n);
    }
    /// One more, of a count that the application reads.
    pub fn count(&self, w: Word) {
        if let Some(a) = self.rings.word(w as u64) {
            a.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// Sets a bit of the submission ring's flags, sequentially consistent: the application stores
    /// its tail and then looks at the flag, the kernel the other way round.
    pub fn raise(&self, bit: u32) {
        if let Some(a) = self.rings.word(Word::SqFlags as u64) {
            a.fetch_or(bit, Ordering::SeqCst);
        }
    }
    /// Clears such a bit, as [`raise`](Self::raise) sets it.
    pub fn clear(&self, bit: u32) {
        if let Some(a) = self.rings.word(Word::SqFlags as u64) {
            a.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// How many entries wait behind `head`, at most the ring's size whatever the tail says.
    #[must_use]
    pub fn submitted(&self, head: u32) -> u32 {
        let tail = self.get(Word::SqTail);
        tail.wrapping_sub(head).min(self.sizes.sq_entries)
    }

    /// A copy of the entry at `head`; `None` where the index array has no such entry.
    #[must_use]
    pub fn sqe(&self, head: u32) -> Option<Sqe> {
        let at = head & (self.sizes.sq_entries - 1);
        let index = match self.sizes.array {
            None => at,
            Some(array) => {
                let word = self.rings.slice(array + u64::from(at) * 4, 4);
                word.atomic_u32()?.load(Ordering::Relaxed)
            }
        };
        if index >= self.sizes.sq_entries {
            return None;
        }
        let mut e = Sqe::default();
        let from = u64::from(index) * self.sizes.sqe;
        let slice = self.sqes.slice(from, size_of::<Sqe>());
        slice.copy_to(e.as_mut_bytes());
        Some(e)
    }

    /// Writes an entry at the completion ring's `tail`; the caller publishes the tail after it.
    pub fn put(&self, tail: u32, c: &Cqe) {
        let at = u64::from(tail & (self.sizes.cq_entries - 1)) * self.sizes.cqe;
        let mut raw = [0u64; 4];
        raw[0] = c.user_data;
        raw[1] = u64::from(c.res as u32) | u64::from(c.flags) << 32;
        raw[2..].copy_from_slice(&c.extra);
        let len = self.sizes.cqe as usize;
        let slice = self.rings.slice(CQES + at, len);
        slice.copy_from(&raw.as_bytes()[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::uring::abi::Params;

    fn sizes(entries: u32, cq: u32, setup: Setup) -> Result<Sizes> {
        let p = Params {
            cq_entries: cq,
            ..Params::default()
        };
        Sizes::new(entries, &p, setup)
    }

    #[test]
    fn rings_are_as_large_as_on_linux() {
        let s = sizes(5, 0, Setup::empty()).unwrap();
        assert_eq!((s.sq_entries, s.cq_entries), (8, 16));
        assert_eq!(s.array, Some(64 + 16 * 16));
        assert_eq!((s.rings, s.sqes), (4096, 4096));
        assert_eq!(sizes(0, 0, Setup::empty()), Err(EINVAL));
        assert_eq!(sizes(0, 0, Setup::CLAMP), Err(EINVAL));
        assert_eq!(sizes(32769, 0, Setup::empty()), Err(EINVAL));
        let s = sizes(1 << 20, 0, Setup::CLAMP).unwrap();
        assert_eq!((s.sq_entries, s.cq_entries), (32768, 65536));
        assert_eq!(sizes(8, 4, Setup::CQSIZE), Err(EINVAL));
        assert_eq!(sizes(8, 0, Setup::CQSIZE), Err(EINVAL));
        assert_eq!(sizes(8, 9, Setup::CQSIZE).unwrap().cq_entries, 16);
        let wide = Setup::CQE32 | Setup::SQE128 | Setup::NO_SQARRAY;
        let s = sizes(64, 0, wide).unwrap();
        assert_eq!((s.array, s.rings, s.sqes), (None, 8192, 8192));
    }
}
