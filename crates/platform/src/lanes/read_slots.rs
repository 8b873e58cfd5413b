//! What is answered beside the Sentry: read slots of an address space, and the changes of an epoll
//! that lie there until the Sentry looks. See [`stub::lane`] for the other side,
//! [`stub::read_slots`] for the layout.
//!
//! ## Invariants
//!
//! - All that lies in the shared part the application can forge. Nothing is believed of it but the
//!   number of bytes taken of a slot, which the object that filled it bounds, and changes, which
//!   are checked as the system call's.
//! - A slot has one fill at a time: [`Slot::live`], which is the Sentry's own, says whose.
//! - The area is mapped from before [`stub::CMD_READ_SLOTS`] says so until its process has ended or
//!   serves another program. Its memory is given back when nobody has an [`Area`] any more: a
//!   filled slot may outlive the process.
//! - [`Area::end`] is final: after it, no claim of an application that does not forge succeeds.
//!
//! Lock order: `Area::taken` is held while changes are applied. What giving the memory back takes
//! is a leaf.

use crate::lanes::words::slot as words;
use crate::process::{Factory, Run, Unit};
use hostcall::MemSlice;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use stub::read_slots as at;
use wait::read_slots::{ReadSlots, Remainder};

/// The Sentry's side of it.
pub struct Area {
    factory: Arc<Factory>,
    run: Run,
    /// The process's command page: only as long as the process is there.
    command: Mutex<Option<Unit>>,
    ended: AtomicBool,
    slots: Vec<Slot>,
    /// How many fills there were.
    number: AtomicU32,
    /// The pieces that no fill has: a bit for each.
    free: AtomicU32,
    /// How much there is to be read is not told any more.
    untold: AtomicBool,
    /// How many changes have been taken.
    taken: Mutex<u32>,
    /// Descriptors that are read where a slot is looked at.
    wanted: [AtomicU64; (at::COUNT as usize).div_ceil(64)],
}

#[derive(Default)]
struct Slot {
    /// The number of the fill there; 0 for none.
    live: AtomicU32,
    /// Bits of the piece that the fill has; 0: its data are in the slot.
    piece: AtomicU32,
}

/// A change of an epoll's set as the application laid it there: nothing of it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub op: u32,
    pub fd: i32,
    pub events: u32,
    pub data: u64,
}

/// What may be done to a descriptor in the epoll's set without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSet {
    /// Nothing.
    Unknown,
    /// It may be added.
    No,
    /// It may be changed or taken out.
    Yes,
}

/// All pieces, and those of which there are more.
const ALL: u32 = (1 << (at::SMALL_COUNT + at::LARGE_COUNT)) - 1;
const SMALL: u32 = (1 << at::SMALL_COUNT) - 1;

/// Where a piece is, by its bit.
fn piece_at(bit: u32) -> u64 {
    let i = u64::from(bit.trailing_zeros());
    match i.checked_sub(at::SMALL_COUNT) {
        None => at::PIECES + i * at::SMALL,
        Some(large) => at::PIECES + at::SMALL_COUNT * at::SMALL + large * at::LARGE,
    }
}

impl Area {
    pub(crate) fn new(factory: Arc<Factory>, run: Run, command: Unit) -> Area {
        let a = Area {
            factory,
            run,
            command: Mutex::new(Some(command)),
            ended: AtomicBool::new(false),
            slots: (0..at::COUNT).map(|_| Slot::default()).collect(),
            number: AtomicU32::new(0),
            free: AtomicU32::new(ALL),
            untold: AtomicBool::new(false),
            taken: Mutex::new(0),
            wanted: Default::default(),
        };
        a.word(at::EPOLL).store(at::NO_EPOLL, Ordering::SeqCst);
        a
    }

    pub(crate) fn offset(&self) -> u64 {
        self.run.offset()
    }

    /// The process has it mapped.
    pub(crate) fn open(&self) {
        self.say(at::COUNT as u32);
    }

    /// The process has no use for it any more, and does not map it.
    pub(crate) fn unmapped(&self) {
        self.end();
        *self.command.lock() = None;
    }

    /// Writes there as an application may.
    #[cfg(fuzzing)]
    pub fn forge(&self, offset: u64, bytes: &[u8]) {
        let m = self.memory();
        let at = offset as usize % m.len();
        let n = bytes.len().min(m.len() - at);
        m.sub(at, n).copy_from(&bytes[..n]);
    }

    fn say(&self, count: u32) {
        if let Some(u) = *self.command.lock() {
            let word = self.factory.unit(u).sub(stub::CMD_READ_SLOTS as usize, 4);
            word.atomic_u32()
                .expect("aligned")
                .store(count, Ordering::SeqCst);
        }
    }

    fn memory(&self) -> MemSlice<'_> {
        self.factory.run(&self.run)
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        let m = self.memory().sub(offset as usize, 4);
        m.atomic_u32().expect("aligned")
    }

    fn slot(&self, slot: u32) -> (MemSlice<'_>, &AtomicU64) {
        let offset = at::SLOTS + u64::from(slot) * at::SLOT_LEN;
        let m = self.memory().sub(offset as usize, at::SLOT_LEN as usize);
        (m, m.sub(0, 8).atomic_u64().expect("aligned"))
    }

    /// No slot is filled any more, and no changes are taken: from now on the Sentry is asked.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.say(0);
        self.defer_for(None);
        for (i, s) in self.slots.iter().enumerate() {
            if s.live.load(Ordering::SeqCst) != 0 {
                words::close(self.slot(i as u32).1);
            }
        }
    }

    /// From now on the Sentry is asked how much there is to be read.
    pub fn end_counts(&self) {
        self.untold.store(true, Ordering::SeqCst);
        for slot in 0..at::COUNT as u32 {
            self.behind(slot).store(at::UNTOLD, Ordering::SeqCst);
        }
    }

    fn behind(&self, slot: u32) -> &AtomicU32 {
        let m = self.slot(slot).0.sub(at::SLOT_BEHIND as usize, 4);
        m.atomic_u32().expect("aligned")
    }

    /// Room for so many bytes: 0 for the slot's own, or the bit of a piece.
    fn take_piece(&self, len: u64) -> Option<u32> {
        if len <= at::OWN {
            return Some(0);
        }
        let fit = if len <= at::SMALL { ALL } else { ALL & !SMALL };
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            let bit = (free & fit) & (free & fit).wrapping_neg();
            if bit == 0 || len > at::MAX {
                return None;
            }
            let left = free & !bit;
            match self
                .free
                .compare_exchange_weak(free, left, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return Some(bit),
                Err(now) => free = now,
            }
        }
    }

    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// A descriptor is read where a slot is looked at.
    pub fn want(&self, fd: i32) {
        if (0..at::COUNT as i32).contains(&fd) {
            let word = &self.wanted[fd as usize / 64];
            let bit = 1 << (fd % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Whether [`Area::want`] was told of it.
    #[must_use]
    pub fn wants(&self, fd: i32) -> bool {
        (0..at::COUNT as i32).contains(&fd)
            && self.wanted[fd as usize / 64].load(Ordering::Relaxed) >> (fd % 64) & 1 != 0
    }

    /// Lets changes of the epoll behind this descriptor be laid here, or of none: then every state
    /// is forgotten.
    pub fn defer_for(&self, epfd: Option<i32>) {
        if epfd.is_some() {
            // What others have laid here while nothing was deferred is nobody's.
            let mut taken = self.taken.lock();
            *taken = self.word(at::LAID).load(Ordering::SeqCst);
            self.word(at::TAKEN).store(*taken, Ordering::SeqCst);
        }
        let fd = epfd.map_or(at::NO_EPOLL, |fd| fd as u32);
        self.word(at::EPOLL).store(fd, Ordering::SeqCst);
        if epfd.is_none() {
            self.memory()
                .sub(at::STATES as usize, at::COUNT as usize)
                .zero();
        }
    }

    /// Says what may be done to a descriptor. Its thread stands still.
    pub fn set_state(&self, fd: i32, state: InSet) {
        if (0..at::COUNT as i32).contains(&fd) {
            let state = match state {
                InSet::Unknown => at::ASK,
                InSet::No => at::OUT,
                InSet::Yes => at::IN,
            };
            let offset = at::STATES as usize + fd as usize;
            self.memory().sub(offset, 1).copy_from(&[state]);
        }
    }

    /// Takes the changes that lie here, and gives each to `f` in order. One at a time: what was
    /// laid first has been done when this returns.
    pub fn take_changes(&self, mut f: impl FnMut(Change)) {
        let mut taken = self.taken.lock();
        let laid = self.word(at::LAID).load(Ordering::SeqCst);
        if laid == *taken {
            return;
        }
        let n = u64::from(laid.wrapping_sub(*taken)).min(at::RING_LEN);
        for i in 0..n {
            let i = u64::from(taken.wrapping_add(i as u32)) % at::RING_LEN;
            let mut b = [0; at::RING_ENTRY as usize];
            let offset = at::RING + i * at::RING_ENTRY;
            self.memory().sub(offset as usize, b.len()).copy_to(&mut b);
            let word = |at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("4 bytes"));
            let data = at::RING_DATA as usize;
            f(Change {
                op: word(0),
                fd: word(4) as i32,
                events: word(8),
                data: u64::from(word(data)) | u64::from(word(data + 4)) << 32,
            });
        }
        *taken = laid;
        self.word(at::TAKEN).store(laid, Ordering::SeqCst);
    }
}

/// The highest bit of a fill's number, which is always set, and the others.
const NUMBER_BIT: u32 = 63 - at::NUMBER_SHIFT as u32;
const NUMBER_MASK: u32 = (1 << NUMBER_BIT) - 1;

impl ReadSlots for Area {
    fn fill(&self, slot: u32, parts: [&[u8]; 2], then: Remainder) -> Option<u32> {
        let len = parts[0].len() + parts[1].len();
        let own = self.slots.get(slot as usize)?;
        if self.has_ended() {
            return None;
        }
        let piece = self.take_piece(len as u64)?;
        // Never 0.
        let number = self.number.fetch_add(1, Ordering::Relaxed) & NUMBER_MASK | 1 << NUMBER_BIT;
        let claimed = own
            .live
            .compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed);
        if claimed.is_err() {
            self.free.fetch_or(piece, Ordering::SeqCst);
            return None;
        }
        own.piece.store(piece, Ordering::Relaxed);
        let (m, word) = self.slot(slot);
        let data = match piece {
            0 => at::SLOTS + u64::from(slot) * at::SLOT_LEN + at::SLOT_DATA,
            bit => piece_at(bit),
        };
        let place = self.memory().sub(data as usize, len);
        place.sub(0, parts[0].len()).copy_from(parts[0]);
        place
            .sub(parts[0].len(), parts[1].len())
            .copy_from(parts[1]);
        m.sub(at::SLOT_AT as usize, 4)
            .copy_from(&(data as u32).to_le_bytes());
        let (then, behind) = match then {
            Remainder::Ask => (0, 0),
            Remainder::Empty => (at::THEN_EMPTY, 0),
            Remainder::More(behind) => (at::THEN_MORE, behind),
        };
        self.behind(slot).store(behind, Ordering::SeqCst);
        // Who ends counts sees this, or is seen here.
        if self.untold.load(Ordering::SeqCst) {
            self.behind(slot).store(at::UNTOLD, Ordering::SeqCst);
        }
        let w =
            at::LIVE | then | (len as u64) << at::LEN_SHIFT | u64::from(number) << at::NUMBER_SHIFT;
        if !words::fill(word, w, || self.has_ended()) {
            own.piece.store(0, Ordering::Relaxed);
            own.live.store(0, Ordering::SeqCst);
            self.free.fetch_or(piece, Ordering::SeqCst);
            return None;
        }
        Some(number)
    }

    fn revoke(&self, slot: u32, number: u32) -> usize {
        let Some(own) = self.slots.get(slot as usize) else {
            return 0;
        };
        // (No fill has the number 0, which stands for none.)
        if number == 0 || own.live.load(Ordering::SeqCst) != number {
            return 0;
        }
        let taken = words::revoke(self.slot(slot).1);
        let piece = own.piece.swap(0, Ordering::Relaxed);
        own.live.store(0, Ordering::SeqCst);
        self.free.fetch_or(piece, Ordering::SeqCst);
        taken as usize
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        self.factory.give_run(&self.run);
    }
}

#[cfg(test)]
mod tests;
