//! Frames whose contents are elsewhere.
//!
//! A frame is *here* (in the memory file, or never touched), *away* (in the store), or *coming*
//! (somebody brings it in now). A frame that is away keeps its address and its references: what
//! shares it by copy-on-write goes on sharing it, and it is stored once.
//!
//! # Invariants
//!
//! - A frame that is away has no page of the memory file, does not count for the limit, and nobody
//!   has it mapped or looks at it. Who holds a reference knows that it may be away (`mm`: a PMA of
//!   kind `Swapped`) and calls [`Clas::bring_in`] first.
//! - [`Clas::send_out`] is called for frames that have one reference, by who holds it, with what
//!   keeps all others from taking a second one: so nobody else can look at them meanwhile.
//! - Contents are in the store before the page of the file goes, and in the file before the slot
//!   goes. A store that is full, or fails to take a page, leaves that frame here. One that fails
//!   to give a page back leaves it away: who needs it is told `EIO`.
//! - Pages of zeros take nothing of the store, nor of the limit: most were never touched. How many
//!   frames are away is bounded all the same ([`TABLE_MAX`]).
//! - A frame that is freed takes its slot along.
//!
//! The table's lock is a leaf, and so are a store's.

mod file;
mod pool;
mod refusing;

use crate::{Cla, Clas};
use abi::errno::{EINTR, EIO, ENOMEM};
use abi::{PAGE_SIZE, Result};
use hostcall::{HostFd, MemSlice};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A page, as an array has it.
const PAGE: usize = PAGE_SIZE as usize;
/// Pages that go or come at once.
const BATCH: usize = 16;

/// So many times the limit may be away with the pages of zeros: the table takes four bytes for
/// each.
pub(crate) const TABLE_MAX: u64 = 16;

/// What a store gave for a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// `None` where there are no more numbers.
    fn new(number: u32) -> Option<Slot> {
        let above = number.checked_add(1 + State::FIRST)?;
        Some(Slot(NonZeroU32::new(above)?))
    }

    fn number(self) -> u32 {
        self.0.get() - 1 - State::FIRST
    }
}

/// Where pages go.
pub(crate) trait Store: Send + Sync {
    /// Takes a page; `None` where it cannot.
    fn put(&self, page: &[u8; PAGE]) -> Option<Slot>;
    /// Reads a page, which it keeps. `EIO` where it cannot.
    fn get(&self, slot: Slot, page: &mut [u8; PAGE]) -> Result<()>;
    /// Forgets a page.
    fn free(&self, slot: Slot);
    /// Bytes of memory that it takes itself.
    fn memory(&self) -> u64;
}

/// What is known of a frame; one that is here is not in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Here,
    Coming,
    Zeros,
    Away(Slot),
}

impl State {
    /// Numbers up to this are no slots'.
    const FIRST: u32 = 2;

    fn word(self) -> u32 {
        match self {
            State::Here => 0,
            State::Coming => 1,
            State::Zeros => State::FIRST,
            State::Away(slot) => slot.0.get(),
        }
    }

    fn of(word: u32) -> State {
        match (word, NonZeroU32::new(word)) {
            (1, _) => State::Coming,
            (State::FIRST, _) => State::Zeros,
            (_, Some(n)) => State::Away(Slot(n)),
            (_, None) => State::Here,
        }
    }
}

/// Frames of one entry of the table.
const CHUNK: usize = 512;

/// What is not here.
#[derive(Debug, Default)]
struct Table(HashMap<u64, Chunk>);

#[derive(Debug)]
struct Chunk {
    words: Box<[u32; CHUNK]>,
    /// How many are not zero.
    count: usize,
}

impl Table {
    fn get(&self, page: u64) -> State {
        let chunk = self.0.get(&(page / CHUNK as u64));
        chunk.map_or(State::Here, |c| State::of(c.words[page as usize % CHUNK]))
    }

    fn set(&mut self, page: u64, state: State) {
        let (key, word) = (page / CHUNK as u64, state.word());
        let chunk = self.0.entry(key).or_insert_with(|| Chunk {
            words: Box::new([0; CHUNK]),
            count: 0,
        });
        let old = std::mem::replace(&mut chunk.words[page as usize % CHUNK], word);
        chunk.count += usize::from(word != 0);
        chunk.count -= usize::from(old != 0);
        if chunk.count == 0 {
            self.0.remove(&key);
        }
    }

    /// The first of `[start, end)` that is here, or that is not; a chunk is looked up once.
    fn first(&self, start: u64, end: u64, is_here: bool) -> Option<u64> {
        let mut page = start;
        while page < end {
            let next = ((page / CHUNK as u64 + 1) * CHUNK as u64).min(end);
            match self.0.get(&(page / CHUNK as u64)) {
                None if is_here => return Some(page),
                None => {}
                Some(c) => {
                    let fits =
                        |p: &u64| (c.words[*p as usize % CHUNK] == State::Here.word()) == is_here;
                    if let Some(p) = (page..next).find(fits) {
                        return Some(p);
                    }
                }
            }
            page = next;
        }
        None
    }

    /// Forgets `[start, end)`; gives what was there.
    fn take(&mut self, start: u64, end: u64) -> Vec<State> {
        let mut out = Vec::new();
        let mut page = start;
        while page < end {
            let next = (page / CHUNK as u64 + 1) * CHUNK as u64;
            if !self.0.contains_key(&(page / CHUNK as u64)) {
                page = next;
                continue;
            }
            for p in page..next.min(end) {
                let state = self.get(p);
                if state != State::Here {
                    self.set(p, State::Here);
                    out.push(state);
                }
            }
            page = next;
        }
        out
    }
}

/// A container's swap.
pub(crate) struct Swap {
    store: Box<dyn Store>,
    table: Mutex<Table>,
    /// Somebody has brought in what was coming.
    came: Condvar,
    /// Frames that may be stored, and how many are.
    limit: AtomicU64,
    stored: AtomicU64,
    /// Frames that are not here: those, and those of zeros.
    absent: AtomicU64,
    /// Pages that went, and that came, ever.
    out: AtomicU64,
    back: AtomicU64,
    /// Pages that others have, too, when somebody asked for them to come. It only tells whether
    /// there may be strays (`mm::swap`).
    came_shared: AtomicU64,
}

/// What [`Clas::swap_stats`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapStats {
    /// Bytes of frames that are stored, and that may be (pages of zeros are not).
    pub used: u64,
    pub limit: u64,
    /// Bytes of memory that the store takes.
    pub memory: u64,
    /// Pages that went out, and that came back, ever.
    pub pages_out: u64,
    pub pages_in: u64,
}

impl Swap {
    fn new(store: Box<dyn Store>, limit: u64) -> Swap {
        Swap {
            store,
            table: Mutex::default(),
            came: Condvar::new(),
            limit: AtomicU64::new(limit / PAGE_SIZE),
            stored: AtomicU64::new(0),
            absent: AtomicU64::new(0),
            out: AtomicU64::new(0),
            back: AtomicU64::new(0),
            came_shared: AtomicU64::new(0),
        }
    }

    /// Takes room for up to `n` frames; how many.
    fn reserve(&self, n: u64) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        if self.absent.load(Ordering::Relaxed) / TABLE_MAX >= limit {
            return 0;
        }
        let mut got = 0;
        let more = |stored: u64| {
            got = n.min(limit.saturating_sub(stored));
            (got > 0).then_some(stored + got)
        };
        let _ = self
            .stored
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        got
    }

    fn release(&self, n: u64) {
        self.stored.fetch_sub(n, Ordering::Relaxed);
    }

    /// Stores what can be stored of these pages, from the first on.
    fn store(&self, pages: &[u8]) -> SmallVec<[State; BATCH]> {
        let mut out = SmallVec::new();
        for page in pages.as_chunks::<PAGE>().0 {
            if page.iter().all(|b| *b == 0) {
                out.push(State::Zeros);
                continue;
            }
            match self.store.put(page) {
                Some(slot) => out.push(State::Away(slot)),
                None => break,
            }
        }
        out
    }

    /// Marks what is away of `pages` frames as coming, once nobody else brings some of them in;
    /// gives which, and what they were.
    fn claim(&self, first: u64, pages: u64) -> SmallVec<[(u64, State); BATCH]> {
        let mut t = self.table.lock();
        while (first..first + pages).any(|p| t.get(p) == State::Coming) {
            self.came.wait(&mut t);
        }
        let away = (first..first + pages).map(|p| (p, t.get(p)));
        let away: SmallVec<[(u64, State); BATCH]> = away.filter(|s| s.1 != State::Here).collect();
        away.iter().for_each(|(p, _)| t.set(*p, State::Coming));
        away
    }

    /// Ends what [`Swap::claim`] began.
    fn end_claim(&self, states: impl Iterator<Item = (u64, State)>) {
        let mut t = self.table.lock();
        states.for_each(|(p, s)| t.set(p, s));
        drop(t);
        self.came.notify_all();
    }

    /// Frames `[start, end)` are freed; how many of them were away.
    pub(crate) fn forget(&self, start: u64, end: u64) -> FreedFrames {
        if self.absent.load(Ordering::Relaxed) == 0 {
            return FreedFrames::default();
        }
        let states = self.table.lock().take(start, end);
        let mut gone = FreedFrames {
            away: states.len() as u64,
            stored: 0,
        };
        for state in states {
            if let State::Away(slot) = state {
                self.store.free(slot);
                gone.stored += 1;
            }
        }
        self.release(gone.stored);
        self.absent.fetch_sub(gone.away, Ordering::Relaxed);
        gone
    }
}

/// Frames that were away when they were freed, and how many of them were stored.
#[derive(Clone, Copy, Default)]
pub(crate) struct FreedFrames {
    pub(crate) away: u64,
    pub(crate) stored: u64,
}

impl Clas {
    /// Gives it `bytes` of swap, in memory, compressed; once for all.
    pub fn swap_in_memory(&self, bytes: u64) -> Result<()> {
        self.swap_in(Box::new(pool::Pool::new()?), bytes);
        Ok(())
    }

    /// Gives it `bytes` of swap, encrypted, in an empty file of the host's that nobody else has;
    /// once for all.
    pub fn swap_in_file(&self, file: HostFd, bytes: u64) {
        self.swap_in(Box::new(file::SwapFile::new(file)), bytes);
    }

    fn swap_in(&self, mut store: Box<dyn Store>, bytes: u64) {
        if let Some(every) = self.swap_refuses.get() {
            store = Box::new(refusing::Refusing {
                store,
                every: every.get(),
                asked: AtomicU32::new(0),
            });
        }
        let _ = self.swap.set(Swap::new(store, bytes));
    }

    /// For tests, before there is swap: its store takes every so many pages none, as one that is
    /// full or broken.
    pub fn refuse_swap(&self, every: NonZeroU32) {
        let _ = self.swap_refuses.set(every);
    }

    /// Whether frames can be sent out.
    #[must_use]
    pub fn can_swap(&self) -> bool {
        let has_room = |s: &Swap| {
            let limit = s.limit.load(Ordering::Relaxed);
            s.stored.load(Ordering::Relaxed) < limit
                && s.absent.load(Ordering::Relaxed) / TABLE_MAX < limit
        };
        self.swap.get().is_some_and(has_room)
    }

    /// Whether so many bytes are within the limit and what the swap has left.
    #[must_use]
    pub fn could_hold(&self, bytes: u64) -> bool {
        let swap = self.swap_stats();
        let left = swap.limit.saturating_sub(swap.used);
        self.can_swap() && bytes / PAGE_SIZE <= self.room.limit().saturating_add(left / PAGE_SIZE)
    }

    /// Whether it has swap, if only a full one.
    #[must_use]
    pub fn has_swap(&self) -> bool {
        self.swap.get().is_some()
    }

    /// How many of the frames `[start, end)` are not here.
    pub(crate) fn away_of(&self, start: u64, end: u64) -> u64 {
        let Some(swap) = self.swap.get() else {
            return 0;
        };
        let t = swap.table.lock();
        let mut away = 0;
        let mut at = start;
        while let Some(first) = t.first(at, end, false) {
            at = t.first(first, end, true).unwrap_or(end);
            away += at - first;
        }
        away
    }

    /// Of `pages` frames the first in a row that are here, counted from `at` on.
    #[must_use]
    pub fn next_here(&self, at: Cla, pages: u64) -> Option<Range<u64>> {
        let (first, last) = (at.page(), at.page() + pages);
        let Some(swap) = self.swap.get() else {
            return (pages > 0).then_some(0..pages);
        };
        let t = swap.table.lock();
        let start = t.first(first, last, true)?;
        let end = t.first(start, last, false).unwrap_or(last);
        Some(start - first..end - first)
    }

    /// The first of `pages` frames that is here, counted from `at` on.
    pub(crate) fn first_here(&self, at: Cla, pages: u64) -> Option<u64> {
        let Some(swap) = self.swap.get() else {
            return (pages > 0).then_some(0);
        };
        let t = swap.table.lock();
        let first = t.first(at.page(), at.page() + pages, true)?;
        Some(first - at.page())
    }

    /// How many frames somebody has asked to come, ever, that had more than one reference.
    #[must_use]
    pub fn came_shared(&self) -> u64 {
        self.swap
            .get()
            .map_or(0, |s| s.came_shared.load(Ordering::Relaxed))
    }

    #[must_use]
    pub fn swap_stats(&self) -> SwapStats {
        let Some(s) = self.swap.get() else {
            return SwapStats::default();
        };
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        SwapStats {
            used: of(&s.stored) * PAGE_SIZE,
            limit: of(&s.limit) * PAGE_SIZE,
            memory: s.store.memory(),
            pages_out: of(&s.out),
            pages_in: of(&s.back),
        }
    }

    /// Sends frames of one owner out, from the first on; gives how many went: fewer where the
    /// store takes no more. See the module's invariants for who may call it. Never mapped by an
    /// application, nor looked at by anybody, from before this call on.
    pub fn send_out(&self, at: Cla, pages: u64) -> u64 {
        let Some(swap) = self.swap.get() else {
            return 0;
        };
        let mut done = 0;
        let mut buf = vec![0; BATCH * PAGE];
        while done < pages {
            let from = at.add(done * PAGE_SIZE);
            let want = self.open_prefix(from, (pages - done).min(BATCH as u64));
            let n = swap.reserve(want.min(self.swap_room(from.page())));
            let (went, stored) = self.send_batch(swap, from, &mut buf[..n as usize * PAGE]);
            swap.release(n - stored);
            done += went;
            if went < want || want == 0 {
                break;
            }
        }
        swap.out.fetch_add(done, Ordering::Relaxed);
        done
    }

    /// How many of the frames that `buf` has room for went, and how many of them are stored.
    fn send_batch(&self, swap: &Swap, at: Cla, buf: &mut [u8]) -> (u64, u64) {
        let pages = match self.read_frames(at, buf) {
            Ok(()) => swap.store(buf),
            Err(_) => return (0, 0),
        };
        let n = pages.len() as u64;
        let stored = pages.iter().filter(|p| **p != State::Zeros).count() as u64;
        if n == 0 || hostcall::mem::punch_hole(self.file.raw(), at.0, n * PAGE_SIZE).is_err() {
            for p in pages {
                if let State::Away(slot) = p {
                    swap.store.free(slot);
                }
            }
            return (0, 0);
        }
        swap.absent.fetch_add(n, Ordering::Relaxed);
        let mut t = swap.table.lock();
        for (page, state) in (at.page()..).zip(pages) {
            t.set(page, state);
        }
        drop(t);
        self.room_came(at.page(), n, stored);
        (n, stored)
    }

    pub(crate) fn read_frames(&self, at: Cla, buf: &mut [u8]) -> Result<()> {
        read_all(&self.file, buf, at.0)
    }

    /// Brings in what is away of `pages` frames (16 at most); the caller holds references. Whether
    /// nobody else has any of them; `ENOMEM` where the limit leaves no room for all of them, `EIO`
    /// where one is lost.
    pub fn bring_in(&self, at: Cla, pages: u64) -> Result<bool> {
        let Some(swap) = self.swap.get() else {
            return Ok(self.is_exclusive(at, pages));
        };
        self.bring_claimed(swap, at, pages.min(BATCH as u64))?;
        let alone = self.is_exclusive(at, pages);
        if !alone {
            swap.came_shared.fetch_add(pages, Ordering::Relaxed);
        }
        Ok(alone)
    }

    fn bring_claimed(&self, swap: &Swap, at: Cla, pages: u64) -> Result<()> {
        let claimed = swap.claim(at.page(), pages);
        if claimed.is_empty() {
            return Ok(());
        }
        let _stall = self.stall();
        let n = claimed.len() as u64;
        let is_stored = |s: &State| matches!(s, State::Away(_));
        let frames: SmallVec<[(u64, bool); BATCH]> =
            claimed.iter().map(|(p, s)| (*p, is_stored(s))).collect();
        if !self.take_room(&frames) {
            swap.end_claim(claimed.into_iter());
            return Err(ENOMEM);
        }
        let mut result = Ok(());
        let mut lost = 0;
        let mut states = claimed.clone();
        for (page, state) in &mut states {
            match self.fetch(swap, *page, *state) {
                Ok(()) => *state = State::Here,
                Err(e) => {
                    lost += 1;
                    self.room_came(*page, 1, u64::from(is_stored(state)));
                    result = Err(e);
                }
            }
        }
        swap.end_claim(states.iter().copied());
        for ((_, was), (_, is)) in claimed.iter().zip(&states) {
            if let (State::Away(slot), State::Here) = (was, is) {
                swap.store.free(*slot);
                swap.release(1);
            }
        }
        swap.absent.fetch_sub(n - lost, Ordering::Relaxed);
        swap.back.fetch_add(n - lost, Ordering::Relaxed);
        result
    }

    /// The swap, if some frames are away.
    fn swap_in_use(&self) -> Option<&Swap> {
        let swap = self.swap.get()?;
        (swap.absent.load(Ordering::Relaxed) > 0).then_some(swap)
    }

    /// Whether some frames are away.
    #[must_use]
    pub fn are_some_away(&self) -> bool {
        self.swap_in_use().is_some()
    }

    /// Has the first of `pages` frames here, and with it up to `ahead` of those that follow and are
    /// away; gives how many are here in a row. The caller holds references, and what keeps them from
    /// being sent out. `ENOMEM` where there is no room, `EIO` where the first is lost.
    pub fn bring_first(&self, at: Cla, pages: u64, ahead: u64) -> Result<u64> {
        while self.swap_in_use().is_some() {
            let here = self.next_here(at, pages).unwrap_or(pages..pages);
            if here.start == 0 {
                return Ok(here.end);
            }
            let n = here.start.min(ahead.clamp(1, BATCH as u64));
            match self.bring_in(at, n) {
                Err(_) if n > 1 => self.bring_in(at, 1)?,
                r => r?,
            };
        }
        Ok(pages)
    }

    /// Brings all of `pages` frames in that are away, and marks them as confidential; conditions and
    /// errors as for [`Clas::bring_first`].
    pub fn bring_and_mark(&self, at: Cla, pages: u64) -> Result<()> {
        let mut done = 0;
        while done < pages {
            let from = at.add(done * PAGE_SIZE);
            let here = self.bring_first(from, pages - done, BATCH as u64)?;
            self.mark_confidential(from, here);
            done += here;
        }
        Ok(())
    }

    /// Copies the bytes from `at` on to `to`, of frames that are here or away; gives how many. The
    /// caller holds references, and what keeps them from being sent out. What is away comes back
    /// if there is room. `EIO` where the first byte's is lost.
    pub fn read_out(&self, at: Cla, to: MemSlice<'_>) -> Result<usize> {
        let Some(swap) = self.swap_in_use() else {
            to.copy_from_mem(self.slice(at, to.len()));
            return Ok(to.len());
        };
        let mut done = 0;
        while done < to.len() {
            let from = at.add(done as u64);
            let skip = from.0 % PAGE_SIZE;
            let page = Cla(from.0 - skip);
            let left = skip + (to.len() - done) as u64;
            let pages = left.div_ceil(PAGE_SIZE);
            let r = match self.bring_first(page, pages, pages) {
                Ok(here) => {
                    let n = (left.min(here * PAGE_SIZE) - skip) as usize;
                    to.sub(done, n).copy_from_mem(self.slice(from, n));
                    Ok(n)
                }
                Err(ENOMEM) => {
                    let n = (left.min(PAGE_SIZE) - skip) as usize;
                    self.read_away(swap, from, to.sub(done, n)).map(|()| n)
                }
                Err(e) => Err(e),
            };
            match r {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Copies a part of a frame to `to`, from where it is.
    fn read_away(&self, swap: &Swap, at: Cla, to: MemSlice<'_>) -> Result<()> {
        let claimed = swap.claim(at.page(), 1);
        let Some((_, state)) = claimed.first() else {
            to.copy_from_mem(self.slice(at, to.len()));
            return Ok(());
        };
        let mut contents = [0; PAGE];
        let r = match state {
            State::Away(slot) => swap.store.get(*slot, &mut contents),
            _ => Ok(()),
        };
        swap.end_claim(claimed.into_iter());
        r?;
        to.copy_from(&contents[(at.0 % PAGE_SIZE) as usize..][..to.len()]);
        Ok(())
    }

    /// What is away of these frames reads as zeros from now on.
    pub(crate) fn blank(&self, at: Cla, pages: u64) {
        let Some(swap) = self.swap_in_use() else {
            return;
        };
        let mut slots = Vec::new();
        let mut t = swap.table.lock();
        let end = at.page() + pages;
        let mut page = at.page();
        while let Some(p) = t.first(page, end, false) {
            if let State::Away(slot) = t.get(p) {
                t.set(p, State::Zeros);
                slots.push((p, slot));
            }
            page = p + 1;
        }
        drop(t);
        let mut inner = self.inner.lock();
        for (p, _) in &slots {
            if let Some(owner) = inner.refs.owner(*p) {
                inner.accounts.blanked(owner, 1);
            }
        }
        drop(inner);
        swap.release(slots.len() as u64);
        slots.into_iter().for_each(|(_, s)| swap.store.free(s));
    }

    fn fetch(&self, swap: &Swap, page: u64, state: State) -> Result<()> {
        let State::Away(slot) = state else {
            return Ok(());
        };
        let mut contents = [0; PAGE];
        swap.store.get(slot, &mut contents)?;
        write_all(&self.file, &contents, page * PAGE_SIZE)
    }
}

/// `EIO` where the file is shorter.
fn read_all(file: &HostFd, buf: &mut [u8], at: u64) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match hostcall::file::pread(file.raw(), &mut buf[done..], at + done as u64) {
            Ok(0) => return Err(EIO),
            Ok(n) => done += n,
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn write_all(file: &HostFd, bytes: &[u8], at: u64) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match hostcall::file::pwrite(file.raw(), &bytes[done..], at + done as u64) {
            Ok(0) => return Err(EIO),
            Ok(n) => done += n,
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
