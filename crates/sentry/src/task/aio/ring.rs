//! A context's ring: `struct aio_ring` and the events behind it, in memory that the application
//! maps. It may write anything there at any time.

use super::{EVENT, IoEvent};
use abi::errno::ENOMEM;
use abi::{Result, Va};
use clas::{Access, Backing, Clas, Mappable, MappingObserver};
use mm::{MapFile, MapName, Mm, MmapRequest};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::ring::RingMemory;
use vfs::ucounts::Charge;
use zerocopy::{FromZeros, IntoBytes};

/// `sizeof(struct aio_ring)`.
pub(super) const HEADER: u64 = 32;
/// `AIO_RING_MAGIC`.
const MAGIC: u32 = 0xa10a_10a1;

/// The words of the header, by their place.
#[derive(Clone, Copy)]
enum Word {
    Id = 0,
    Events = 1,
    Head = 2,
    Tail = 3,
    Magic = 4,
    Features = 5,
    HeaderLength = 7,
}

/// The memory, and where it is mapped.
pub struct AioRing {
    memory: Arc<RingMemory>,
    /// How many it holds; one stays empty.
    pub events: u32,
    /// Where its maker has it: mremap(2) moves it, and so the context's name (`aio_ring_mremap`).
    address: AtomicU64,
    /// Its maker's address space; a child's mappings name nothing.
    owner: OnceLock<usize>,
}

impl AioRing {
    pub(super) fn new(
        clas: &Arc<Clas>,
        len: u64,
        events: u32,
        charge: Charge,
    ) -> Result<Arc<AioRing>> {
        let ring = AioRing {
            memory: RingMemory::new(clas, len, Some(charge))?,
            events,
            address: AtomicU64::new(0),
            owner: OnceLock::new(),
        };
        // Nobody's until it has a number.
        ring.set(Word::Id, u32::MAX);
        ring.set(Word::Events, events);
        ring.set(Word::Magic, MAGIC);
        ring.set(Word::Features, 1);
        ring.set(Word::HeaderLength, HEADER as u32);
        Ok(Arc::new(ring))
    }

    /// Maps it into its maker's memory.
    pub fn map(self: &Arc<Self>, mm: &Mm) -> Result<Va> {
        let file = MapFile {
            mappable: self.clone(),
            name: Some(Arc::new(Name)),
            keep: None,
            readable: true,
            writable: true,
            noexec: true,
        };
        let request = MmapRequest {
            addr: Va(0),
            len: self.memory.size(),
            prot: abi::linux::PROT_READ | abi::linux::PROT_WRITE,
            flags: abi::linux::MAP_SHARED,
            offset: 0,
            file: Some(file),
        };
        mm.mmap(request).map_err(|_| ENOMEM)
    }

    /// Takes it out of its maker's memory, wherever it was moved to.
    pub fn unmap(&self, mm: &Mm) {
        let _ = mm.munmap(self.address(), self.memory.size());
    }

    /// Where it is mapped: the context's name.
    #[must_use]
    pub fn address(&self) -> Va {
        Va(self.address.load(Ordering::SeqCst))
    }

    fn get(&self, w: Word) -> u32 {
        self.memory.load(w as u64)
    }

    fn set(&self, w: Word, n: u32) {
        self.memory.store(w as u64, n);
    }

    pub(super) fn set_id(&self, id: u32) {
        self.set(Word::Id, id);
    }

    /// As the application says.
    pub(super) fn head(&self) -> u32 {
        self.get(Word::Head)
    }

    pub(super) fn set_tail(&self, tail: u32) {
        self.set(Word::Tail, tail);
    }

    fn slot(&self, n: u32) -> hostcall::MemSlice<'_> {
        let at = HEADER + u64::from(n % self.events) * EVENT;
        self.memory.slice(at, EVENT as usize)
    }

    pub(super) fn put(&self, n: u32, event: &IoEvent) {
        self.slot(n).copy_from(event.as_bytes());
    }

    /// The events from `head` on, at most `most`: the head that they were found with, and they.
    /// Nothing is taken yet ([`AioRing::taken`]).
    pub fn peek(&self, most: usize) -> (u32, Vec<IoEvent>) {
        let raw = self.get(Word::Head);
        let tail = self.get(Word::Tail);
        if raw == tail {
            return (raw, Vec::new());
        }
        let (head, tail) = (raw % self.events, tail % self.events);
        let there = (tail + self.events - head) % self.events;
        let n = (there as usize).min(most) as u32;
        let events = (0..n).map(|i| {
            let mut e = IoEvent::new_zeroed();
            self.slot(head + i).copy_to(e.as_mut_bytes());
            e
        });
        (raw, events.collect())
    }

    /// Takes the `n` events that were found with this head; whether nobody else took any.
    pub fn taken(&self, head: u32, n: usize) -> bool {
        let next = (head % self.events + n as u32) % self.events;
        self.memory.word(Word::Head as u64).is_some_and(|a| {
            let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
            a.compare_exchange(head, next, done, failed).is_ok()
        })
    }
}

impl Mappable for AioRing {
    fn memory(&self) -> Option<&Arc<Clas>> {
        self.memory.memory()
    }
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)> {
        self.memory.backing(offset, len, access)
    }
    fn add_mapping(&self, observer: Weak<dyn MappingObserver>, va: Va, offset: u64, _: u64) {
        let who = observer.as_ptr().cast::<()>().addr();
        if offset == 0 && *self.owner.get_or_init(|| who) == who {
            self.address.store(va.0, Ordering::SeqCst);
        }
    }
    fn remove_mapping(&self, _: &Weak<dyn MappingObserver>, _: Va, _: u64, _: u64) {}
    fn is_fixed(&self) -> bool {
        true
    }
}

/// As /proc/PID/maps shows it.
struct Name;

impl MapName for Name {
    fn path(&self) -> Vec<u8> {
        b"/[aio] (deleted)".to_vec()
    }
}
