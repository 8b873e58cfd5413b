//! The memory of a ring, which the kernel and those that map it share: a packet socket's, or that
//! of asynchronous I/O, or io_uring's.

use crate::ucounts::Charge;
use abi::errno::{EFAULT, ENOMEM};
use abi::{PAGE_SIZE, Result, Va};
use clas::{Access, Backing, Cla, Clas, Mappable, MappingObserver};
use hostcall::MemSlice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Frames in one run. An application may write anything into them at any time.
pub struct RingMemory {
    clas: Arc<Clas>,
    at: Cla,
    len: u64,
    /// How many mappings there are.
    mapped: AtomicUsize,
    _charge: Option<Charge>,
}

impl RingMemory {
    /// `len` is a multiple of the page size, and not 0.
    pub fn new(clas: &Arc<Clas>, len: u64, charge: Option<Charge>) -> Result<Arc<RingMemory>> {
        let near = clas.allocate_near(len / PAGE_SIZE, None, None, Va(0));
        Ok(Arc::new(RingMemory {
            at: near.map_err(|_| ENOMEM)?,
            clas: clas.clone(),
            len,
            mapped: AtomicUsize::new(0),
            _charge: charge,
        }))
    }

    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapped.load(Ordering::Relaxed) > 0
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.len
    }

    /// The part `[at, at + len)`, cut at the end.
    #[must_use]
    pub fn slice(&self, at: u64, len: usize) -> MemSlice<'_> {
        let at = at.min(self.len);
        let len = len.min((self.len - at) as usize);
        self.clas.slice(self.at.add(at), len)
    }
}

/// Its words, 32 bits each, by their place. The memory is a page at least: there are some.
impl RingMemory {
    #[must_use]
    pub fn word(&self, place: u64) -> Option<&AtomicU32> {
        self.slice(place * 4, 4).atomic_u32()
    }
    #[must_use]
    pub fn load(&self, place: u64) -> u32 {
        self.word(place).map_or(0, |a| a.load(Ordering::Acquire))
    }
    pub fn store(&self, place: u64, n: u32) {
        if let Some(a) = self.word(place) {
            a.store(n, Ordering::Release);
        }
    }
}

impl Mappable for RingMemory {
    fn memory(&self) -> Option<&Arc<Clas>> {
        Some(&self.clas)
    }
    fn backing(&self, offset: u64, len: u64, _: Access) -> Result<(Backing, u64)> {
        if offset >= self.len {
            return Err(EFAULT);
        }
        let len = len.min(self.len - offset);
        let at = self.at.add(offset);
        self.clas.incref(at, len / PAGE_SIZE);
        Ok((Backing::Frames(at), len))
    }
    // Nothing is ever cut off.
    fn add_mapping(&self, _: Weak<dyn MappingObserver>, _: Va, _: u64, _: u64) {
        self.mapped.fetch_add(1, Ordering::Relaxed);
    }
    fn remove_mapping(&self, _: &Weak<dyn MappingObserver>, _: Va, _: u64, _: u64) {
        let less = |n: usize| n.checked_sub(1);
        let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.mapped.fetch_update(done, failed, less);
    }
}

/// Two rings that are mapped as one, one behind the other: those of a socket that receives and
/// sends.
pub struct RingPair(Arc<RingMemory>, Arc<RingMemory>);

impl RingPair {
    #[must_use]
    pub fn new(first: Arc<RingMemory>, second: Arc<RingMemory>) -> RingPair {
        RingPair(first, second)
    }
}

impl Mappable for RingPair {
    fn memory(&self) -> Option<&Arc<Clas>> {
        self.0.memory()
    }
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)> {
        match offset.checked_sub(self.0.len) {
            None => self.0.backing(offset, len, access),
            Some(offset) => self.1.backing(offset, len, access),
        }
    }
    fn add_mapping(&self, o: Weak<dyn MappingObserver>, at: Va, from: u64, to: u64) {
        self.0.add_mapping(o.clone(), at, from, to);
        self.1.add_mapping(o, at, from, to);
    }
    fn remove_mapping(&self, o: &Weak<dyn MappingObserver>, at: Va, from: u64, to: u64) {
        self.0.remove_mapping(o, at, from, to);
        self.1.remove_mapping(o, at, from, to);
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        self.clas.decref(self.at, self.len / PAGE_SIZE);
    }
}
