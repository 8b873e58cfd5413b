//! What happens where a limit leaves no room.
//!
//! # Invariants
//!
//! - An allocation leaves no more frames in use, kept in memory or just being given back than the
//!   limit says. Any other frame has no page of the file: so the file never has more than that,
//!   touched or not.
//!   (A limit that is set below what is in use forbids allocations until enough is freed.)
//! - Where there is swap, some room is kept free ([`Room::reserve`]): the maker is told once when
//!   less is left, and sends frames out before anybody waits for it.
//! - Who waits for room holds no lock of this crate's, but may hold those of an address space and
//!   of a file. So what makes room takes these only where they are free, and every wait ends: when
//!   there is room, when the waiter itself is to die, when there is nothing left to be freed, or
//!   after [`LONGEST`].

use crate::refs::Freed;
use crate::{Clas, Inner};
use abi::errno::ENOMEM;
use abi::{PAGE_SIZE, Result};
use parking_lot::{Condvar, MutexGuard};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for room.
const LONGEST: Duration = Duration::from_secs(10);
/// The same where nobody makes room: for what ended address spaces give back.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How often a waiter looks: not all that frees frames wakes it.
const LOOK: Duration = Duration::from_millis(5);
/// Of the room that is left, one guess of what is touched next takes a part.
const PARTS: u64 = 16;
/// Where there is swap, this part of the limit is kept free, but so many pages at most.
const PARTS_FREE: u64 = 32;
const RESERVE_MAX: u64 = 2 << 20;

/// The limit, and what waiters share. The counts of frames are [`Inner`]'s.
pub(crate) struct Room {
    /// In pages; `u64::MAX` for none. Changed under the lock, read without it, too.
    limit: AtomicU64,
    /// There is more room, or no hope.
    changed: Condvar,
    /// Is told that somebody waits: never under a lock of this crate's, and does not wait itself.
    /// Immutable once set.
    maker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Waiters that found no room when they looked last.
    waiting: AtomicU64,
    /// How often the maker found nothing that it could free.
    hopeless: AtomicU64,
    /// The maker was told that little is left, and has not looked since.
    is_told: AtomicBool,
    /// Some have reached limits of their own, and nobody has looked since.
    some_exhausted: AtomicBool,
}

/// Who waits for room, as those see it who make some. Atomics, each for itself.
#[derive(Debug, Default)]
pub struct Waiter {
    /// It is to die, and waits for nothing.
    doomed: AtomicBool,
    /// It waits, with a lock held that others would need to free what it has.
    waits: AtomicBool,
    /// So many bytes it is to free itself.
    asked: AtomicU64,
    /// It has freed all that it could since it began.
    is_empty: AtomicBool,
    /// It needs more than a limit of its own allows.
    exhausted: AtomicBool,
}

impl Waiter {
    /// From now on it waits for nothing.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }

    /// It needs more than a limit of its own allows, and can give up nothing; or that has changed.
    pub fn set_exhausted(&self, is_exhausted: bool) {
        self.exhausted.store(is_exhausted, Ordering::Relaxed);
    }

    /// See [`Waiter::set_exhausted`].
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Whether it waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Asks it to free so many bytes of what it holds; whether it will.
    #[must_use]
    pub fn ask(&self, bytes: u64) -> bool {
        let can = self.waits() && !self.is_empty.load(Ordering::Relaxed);
        if can {
            self.asked.store(bytes, Ordering::Relaxed);
        }
        can
    }

    /// It begins to look for room, or has found that it can free nothing more.
    pub fn set_empty(&self, is_empty: bool) {
        self.is_empty.store(is_empty, Ordering::Relaxed);
    }
}

/// How much of memory that may never be touched is worth being made at once where so many bytes are
/// left: of at most `most` (a power of two).
#[must_use]
pub fn part_of_room(left: u64, most: u64) -> u64 {
    let part = (left / PARTS).clamp(PAGE_SIZE, most);
    1 << part.ilog2()
}

/// How many bytes are to be free below a limit: enough for what is wanted while some are sent out. Whole
/// pages.
#[must_use]
pub fn kept_free(limit: u64) -> u64 {
    (limit / PARTS_FREE).min(RESERVE_MAX) & !(PAGE_SIZE - 1)
}

/// A limit of bytes, in pages.
fn in_pages(limit: u64) -> u64 {
    if limit == u64::MAX {
        u64::MAX
    } else {
        limit / PAGE_SIZE
    }
}

impl Room {
    pub(crate) fn new(limit: u64) -> Room {
        Room {
            limit: AtomicU64::new(in_pages(limit)),
            changed: Condvar::new(),
            maker: OnceLock::new(),
            waiting: AtomicU64::new(0),
            hopeless: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
            some_exhausted: AtomicBool::new(false),
        }
    }

    /// So many frames are to be free.
    fn reserve(&self) -> u64 {
        kept_free(self.limit().saturating_mul(PAGE_SIZE)) / PAGE_SIZE
    }

    /// In pages.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether `pages` more frames are within the limit.
    pub(crate) fn is_enough(&self, inner: &Inner, pages: u64) -> bool {
        self.is_enough_beside(inner, pages, inner.kept.pages())
    }

    /// Whether they are once nothing is kept.
    fn can_be_enough(&self, inner: &Inner, pages: u64) -> bool {
        self.is_enough_beside(inner, pages, 0)
    }

    fn is_enough_beside(&self, inner: &Inner, pages: u64, kept: u64) -> bool {
        let then = inner.here().checked_add(pages);
        then.and_then(|n| n.checked_add(kept + inner.leaving))
            .is_some_and(|n| n <= self.limit())
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Room({:?})", self.limit)
    }
}

impl Clas {
    /// Changes the limit, in bytes; `u64::MAX` for none. What is allocated above it stays.
    pub fn set_limit(&self, limit: u64) {
        let _inner = self.inner.lock();
        self.room.limit.store(in_pages(limit), Ordering::Relaxed);
        self.room.changed.notify_all();
    }

    /// Has `maker` told, once for all, whenever an allocation waits for room: it frees frames,
    /// elsewhere, or says that it cannot ([`Clas::no_hope`]).
    pub fn on_shortage(&self, maker: Box<dyn Fn() + Send + Sync>) {
        let _ = self.room.maker.set(maker);
    }

    /// Those that wait now wait in vain.
    pub fn no_hope(&self) {
        let _inner = self.inner.lock();
        self.room.hopeless.fetch_add(1, Ordering::Relaxed);
        self.room.changed.notify_all();
    }

    /// Whether there is room for so many bytes.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.room
            .can_be_enough(&self.inner.lock(), bytes / PAGE_SIZE)
    }

    /// Bytes of frames that are made and not swapped out: what the limit counts.
    #[must_use]
    pub fn here(&self) -> u64 {
        self.inner.lock().here() * PAGE_SIZE
    }

    /// Whether somebody waits for room, and could not go on now.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let inner = self.inner.lock();
        self.room.waiting.load(Ordering::Relaxed) > 0 && !self.room.can_be_enough(&inner, 1)
    }

    /// How much of memory that may never be touched is worth being made at once, of at most `most`
    /// bytes (a power of two): little where a limit is near.
    #[must_use]
    pub fn at_once(&self, most: u64) -> u64 {
        if !self.is_limited() {
            return most;
        }
        let used = self.inner.lock().here();
        let left = self.room.limit().saturating_sub(used) * PAGE_SIZE;
        part_of_room(left, most)
    }

    /// Tells the maker that somebody may have more than a limit of its own allows
    /// ([`Waiter::set_exhausted`]).
    pub fn tell_of_exhausted(&self) {
        self.room.some_exhausted.store(true, Ordering::Release);
        if let Some(maker) = self.room.maker.get() {
            maker();
        }
    }

    /// Whether somebody told so since it was asked the last time.
    #[must_use]
    pub fn take_exhausted(&self) -> bool {
        self.room.some_exhausted.swap(false, Ordering::Acquire)
    }

    /// Waits for the end of who is exhausted; whether it has more room instead.
    #[must_use]
    pub fn await_more(&self, who: &Waiter) -> bool {
        let deadline = Instant::now() + LONGEST;
        while who.is_exhausted() {
            if who.doomed.load(Ordering::Relaxed) || Instant::now() >= deadline {
                return false;
            }
            self.room.changed.wait_for(&mut self.inner.lock(), LOOK);
        }
        true
    }

    /// Waits with a lock held, as [`Clas::await_room`], for a page; gives how many bytes the caller
    /// is to free itself first, if any.
    pub fn await_room_holding(&self, who: &Waiter) -> Result<u64> {
        who.waits.store(true, Ordering::Relaxed);
        let room = self.await_room(PAGE_SIZE, who);
        who.waits.store(false, Ordering::Relaxed);
        room.map(|()| who.asked.swap(0, Ordering::Relaxed))
    }

    /// Waits until there is room for so many bytes, or until `who` is asked to free some itself;
    /// `ENOMEM` where room does not come, or `who` is to die.
    pub fn await_room(&self, bytes: u64, who: &Waiter) -> Result<()> {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let maker = self.room.maker.get();
        let longest = if maker.is_some() { LONGEST } else { ENDING_MAX };
        let deadline = Instant::now() + longest;
        let hopeless = self.room.hopeless.load(Ordering::Relaxed);
        let mut inner = self.inner.lock();
        loop {
            // (An allocation gives back what is kept.)
            let is_asked = who.asked.load(Ordering::Relaxed) > 0;
            if is_asked || self.room.can_be_enough(&inner, pages) {
                return Ok(());
            }
            let is_vain = self.room.hopeless.load(Ordering::Relaxed) != hopeless
                || (maker.is_none() && inner.ending == 0)
                || self.room.limit() < pages;
            if is_vain || who.doomed.load(Ordering::Relaxed) || Instant::now() >= deadline {
                return Err(ENOMEM);
            }
            self.room.waiting.fetch_add(1, Ordering::Relaxed);
            if let Some(maker) = maker {
                MutexGuard::unlocked(&mut inner, maker);
            }
            if !self.room.can_be_enough(&inner, pages) {
                self.room.changed.wait_for(&mut inner, LOOK);
            }
            self.room.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Has those that wait look again.
    pub fn wake_waiters(&self) {
        let _inner = self.inner.lock();
        self.room.changed.notify_all();
    }

    /// Whether there is room for `pages` more frames, once nothing is kept if need be: `ENOMEM`.
    pub(crate) fn find_room(&self, inner: &mut MutexGuard<'_, Inner>, pages: u64) -> Result<()> {
        if !self.room.is_enough(inner, pages) {
            self.shed_kept(inner);
        }
        if self.room.is_enough(inner, pages) {
            Ok(())
        } else {
            Err(ENOMEM)
        }
    }

    /// Counts `pages` frames that were swapped out as here again, if there is room.
    pub(crate) fn take_room(&self, pages: u64) -> bool {
        let mut inner = self.inner.lock();
        if self.find_room(&mut inner, pages).is_err() {
            return false;
        }
        inner.away -= pages;
        inner.peak = inner.peak.max(inner.here());
        self.tell_if_low(inner);
        true
    }

    /// Frames are swapped out, and their pages gone.
    pub(crate) fn room_came(&self, pages: u64) {
        self.inner.lock().away += pages;
        if self.room.waiting.load(Ordering::Relaxed) > 0 {
            self.room.changed.notify_all();
        }
    }

    /// Tells the maker, once, where little is left and something can be sent out.
    pub(crate) fn tell_if_low(&self, inner: MutexGuard<'_, Inner>) {
        let low = self.has_swap() && !self.room.is_enough(&inner, self.room.reserve());
        drop(inner);
        if low
            && self.can_swap()
            && !self.room.is_told.swap(true, Ordering::Relaxed)
            && let Some(maker) = self.room.maker.get()
        {
            maker();
        }
    }

    /// How many bytes are to be sent out for the reserve to be whole, and as much again; 0 where
    /// it is. (The maker has looked.)
    #[must_use]
    pub fn wants_out(&self) -> u64 {
        if !self.can_swap() {
            return 0;
        }
        self.room.is_told.store(false, Ordering::Relaxed);
        let inner = self.inner.lock();
        let reserve = self.room.reserve();
        if self.room.can_be_enough(&inner, reserve) {
            return 0;
        }
        let taken = inner.here() + inner.leaving + 2 * reserve;
        taken.saturating_sub(self.room.limit()) * PAGE_SIZE
    }

    /// Gives back what is free and in memory.
    pub(crate) fn shed_kept(&self, inner: &mut MutexGuard<'_, Inner>) {
        let kept = inner.take_kept();
        if !kept.is_empty() {
            MutexGuard::unlocked(inner, || self.give_back_all(kept));
        }
    }

    /// Whether address spaces have ended whose frames are still to come.
    #[must_use]
    pub fn is_to_get_more(&self) -> bool {
        self.inner.lock().ending > 0
    }

    /// Whether there is a limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.room.limit() != u64::MAX
    }

    /// An address space ends, and will soon give its frames back: until [`Clas::has_ended`], who
    /// finds no room waits for them.
    pub fn is_ending(&self) {
        self.inner.lock().ending += 1;
    }

    /// See [`Clas::is_ending`].
    pub fn has_ended(&self) {
        self.inner.lock().ending -= 1;
        self.room.changed.notify_all();
    }
}

impl Inner {
    /// Frames with a reference that are not swapped out.
    pub(crate) fn here(&self) -> u64 {
        self.used - self.away
    }

    /// Takes out what is free and in memory, to be given back.
    fn take_kept(&mut self) -> Freed {
        let mut out = Freed::new();
        while let Some((start, end)) = self.kept.pop() {
            self.free.take(start, end);
            self.leaving += end - start;
            out.push((start, end));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cla;
    use std::sync::Arc;

    const P: u64 = PAGE_SIZE;
    fn never() -> Waiter {
        Waiter::default()
    }

    #[test]
    fn the_limit_holds_with_what_is_kept() {
        let c = Clas::with_limit(64 * P).unwrap();
        let a = c.allocate(40, None).unwrap();
        c.slice(a, 40 * P as usize)
            .copy_from(&vec![1; 40 * P as usize]);
        c.decref(a, 40);
        // They are free, and in memory.
        assert_eq!(c.stats().resident, 40 * P);
        let b = c.allocate(30, Some(Cla(a.0 + 100 * P))).unwrap();
        assert!(c.stats().resident <= 34 * P);
        assert_eq!(c.allocate(35, None), Err(ENOMEM));
        c.decref(b, 30);
    }

    #[test]
    fn guesses_are_small_where_the_limit_is_near() {
        let c = Clas::new().unwrap();
        assert_eq!(c.at_once(2 << 20), 2 << 20);
        c.set_limit(64 << 20);
        assert_eq!(c.at_once(2 << 20), 2 << 20);
        let a = c.allocate((48 << 20) / P, None).unwrap();
        assert_eq!(c.at_once(2 << 20), 1 << 20);
        let b = c.allocate((16 << 20) / P, None).unwrap();
        assert_eq!(c.at_once(2 << 20), P);
        c.decref(a, (48 << 20) / P);
        c.decref(b, (16 << 20) / P);
    }

    #[test]
    fn who_waits_asks_and_is_served_or_told() {
        let c = Clas::with_limit(10 * P).unwrap();
        let a = c.allocate(10, None).unwrap();
        // Nobody makes room.
        assert_eq!(c.await_room(P, &never()), Err(ENOMEM));
        let weak = Arc::downgrade(&c);
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        c.on_shortage(Box::new(move || {
            let c = weak.upgrade().unwrap();
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => {}
                1 => c.decref(a, 1),
                _ => c.no_hope(),
            }
        }));
        assert_eq!(c.allocate(1, None), Err(ENOMEM));
        c.await_room(P, &never()).unwrap();
        let b = c.allocate(1, None).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert_eq!(c.await_room(P, &never()), Err(ENOMEM));
        // Who is to die does not ask.
        let doomed = Waiter::default();
        doomed.doom();
        assert_eq!(c.await_room(P, &doomed), Err(ENOMEM));
        // More than the limit can never be had.
        assert_eq!(c.await_room(11 * P, &never()), Err(ENOMEM));
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        c.decref(b, 1);
        c.decref(Cla(a.0 + P), 9);
    }
}
