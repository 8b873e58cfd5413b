//! What happens where a limit leaves no room.
//!
//! # Invariants
//!
//! - An allocation leaves no more frames in use, kept in memory or just being given back than the
//!   limit says. Any other frame has no page of the file: so the file never has more than that,
//!   touched or not.
//!   (A limit that is set below what is in use forbids allocations until enough is freed.)
//! - The same goes for the limit of an account ([`crate::accounts`]), but for what is kept: that is
//!   nobody's but the container's.
//! - Where there is swap, some room is kept free ([`Room::reserve`]): the maker is told once when
//!   less is left, and sends frames out before anybody waits for it.
//! - Who waits for room holds no lock of this crate's, but may hold those of an address space and
//!   of a file. So what makes room takes these only where they are free, and every wait ends: when
//!   there is room, when the waiter itself is to die, when there is nothing left to be freed, or
//!   after [`LONGEST`].

use crate::accounts::{AccountId, Entry};
use crate::refs::Runs;
use crate::{Clas, Inner};
use abi::errno::ENOMEM;
use abi::{PAGE_SIZE, Result};
use parking_lot::{Condvar, MutexGuard};
use smallvec::SmallVec;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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

/// The container's limit, and what waiters share. The counts of frames, and who waits, are
/// [`Inner`]'s.
pub(crate) struct Room {
    /// The container account's, to be read without the lock; changed under it.
    limit: AtomicU64,
    /// There is more room, or no hope.
    changed: Condvar,
    /// Is told that somebody waits: never under a lock of this crate's, and does not wait itself.
    /// Immutable once set.
    maker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Threads that wait, for whichever limit.
    waiting: AtomicU64,
    /// Some account has, or had, a limit.
    limits_inside: AtomicBool,
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
    /// So many bytes it is to free itself, of what this account pays for ([`AccountId`]).
    asked: AtomicU64,
    asked_of: AtomicU32,
    /// It has freed all that it could since it began.
    is_empty: AtomicBool,
    /// It needs more than a limit of its own allows.
    exhausted: AtomicBool,
}

impl Waiter {
    /// From now on it waits for nothing; whether that was so already.
    pub fn doom(&self) -> bool {
        self.doomed.swap(true, Ordering::Relaxed)
    }

    /// It needs more than a limit of its own allows, and can give up nothing.
    pub fn exhaust(&self) {
        self.exhausted.store(true, Ordering::Relaxed);
    }

    /// Its limits are others now.
    pub fn recover(&self) {
        self.exhausted.store(false, Ordering::Relaxed);
    }

    /// See [`Waiter::exhaust`].
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Whether it waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Asks it to free so many bytes of what it holds and this account pays for; whether it will.
    #[must_use]
    pub fn ask(&self, bytes: u64, of: AccountId) -> bool {
        let can = self.waits() && !self.is_empty.load(Ordering::Relaxed);
        if can {
            self.asked_of.store(of.0, Ordering::Relaxed);
            self.asked.store(bytes, Ordering::Relaxed);
        }
        can
    }

    /// It begins to look for room: it may be asked.
    pub fn begin_search(&self) {
        self.is_empty.store(false, Ordering::Relaxed);
    }

    /// It has found that it can free nothing more.
    pub fn give_up(&self) {
        self.is_empty.store(true, Ordering::Relaxed);
    }
}

/// An account that somebody is to look after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    pub account: AccountId,
    /// So many bytes are to be sent out of what it has.
    pub wanted: u64,
    /// Somebody waits for room in it and could not go on now; or it has more than its limit.
    pub is_awaited: bool,
}

/// How much of memory that may never be touched is worth being made at once where so many bytes are
/// left: of at most `most` (a power of two).
#[must_use]
pub fn part_of_room(left: u64, most: u64) -> u64 {
    let part = (left / PARTS).clamp(PAGE_SIZE, most);
    1 << part.ilog2()
}

/// How many bytes are to be free below a limit: enough for what is wanted while some are sent out.
/// Whole pages.
#[must_use]
pub fn kept_free(limit: u64) -> u64 {
    (limit / PARTS_FREE).min(RESERVE_MAX) & !(PAGE_SIZE - 1)
}

/// The same of a limit in pages.
fn reserve(limit: u64) -> u64 {
    kept_free(limit.saturating_mul(PAGE_SIZE)) / PAGE_SIZE
}

/// A limit of bytes, in pages.
pub(crate) fn in_pages(limit: u64) -> u64 {
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
            limits_inside: AtomicBool::new(false),
            some_exhausted: AtomicBool::new(false),
        }
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
        let then = inner.accounts.root().here().checked_add(pages);
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
        let mut inner = self.inner.lock();
        if let Some(root) = inner.accounts.get_mut(AccountId::ROOT) {
            root.limits.max = in_pages(limit);
        }
        self.room.limit.store(in_pages(limit), Ordering::Relaxed);
        self.wake();
    }

    /// Has `maker` told, once for all, whenever an allocation waits for room: it frees frames,
    /// elsewhere, or says that it cannot ([`Clas::no_hope`]).
    pub fn on_shortage(&self, maker: Box<dyn Fn() + Send + Sync>) {
        let _ = self.room.maker.set(maker);
    }

    /// Those that wait now for room in this account wait in vain; what is too much of it stays.
    pub fn no_hope(&self, account: AccountId) {
        let mut inner = self.inner.lock();
        if let Some(e) = inner.accounts.get_mut(account) {
            e.hopeless += 1;
            e.shrinks = false;
        }
        self.wake();
    }

    /// Whether there is room for so many bytes more of the calling thread's.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.short(&self.inner.lock(), self.payer(), bytes / PAGE_SIZE)
            .is_none()
    }

    /// Bytes of frames that are made and not swapped out: what the limit counts.
    #[must_use]
    pub fn here(&self) -> u64 {
        self.here_of(AccountId::ROOT)
    }

    /// The same of one account.
    #[must_use]
    pub fn here_of(&self, account: AccountId) -> u64 {
        let inner = self.inner.lock();
        inner.accounts.get(account).map_or(0, Entry::here) * PAGE_SIZE
    }

    /// Whether somebody waits for room in this account, and could not go on now; or whether it has
    /// more than its limit.
    #[must_use]
    pub fn is_awaited(&self, account: AccountId) -> bool {
        self.is_awaited_now(&self.inner.lock(), account)
    }

    fn is_awaited_now(&self, inner: &Inner, account: AccountId) -> bool {
        let Some(e) = inner.accounts.get(account) else {
            return false;
        };
        let is_full = |pages| !self.can_have(inner, account, e, pages);
        (e.waiting > 0 && is_full(1)) || (e.shrinks && is_full(0))
    }

    /// Whether an account may have so many pages more. (Of the container's, what is just being
    /// given back is still there.)
    fn can_have(&self, inner: &Inner, id: AccountId, e: &Entry, pages: u64) -> bool {
        match id {
            AccountId::ROOT => self.room.can_be_enough(inner, pages),
            _ => e.has_room(pages),
        }
    }

    /// How much of memory that may never be touched is worth being made at once, of at most `most`
    /// bytes (a power of two): little where a limit of the calling thread's is near.
    #[must_use]
    pub fn at_once(&self, most: u64) -> u64 {
        let payer = self.payer();
        let inner = self.inner.lock();
        let left = |(_, e): (AccountId, &Entry)| {
            let most = e.limits.max.min(e.limits.high);
            most.saturating_sub(e.here())
        };
        let left = inner.accounts.upwards(payer).map(left).min();
        part_of_room(left.unwrap_or(0).saturating_mul(PAGE_SIZE), most)
    }

    /// Tells the maker that somebody may have more than a limit of its own allows
    /// ([`Waiter::exhaust`]).
    pub fn tell_of_exhausted(&self) {
        self.room.some_exhausted.store(true, Ordering::Release);
        self.tell_maker();
    }

    /// Has the maker look. Without any lock of this crate's.
    pub(crate) fn tell_maker(&self) {
        if let Some(maker) = self.room.maker.get() {
            maker();
        }
    }

    /// Has those that wait look again. Under the lock.
    pub(crate) fn wake(&self) {
        self.room.changed.notify_all();
    }

    /// Accounts have limits from now on.
    pub(crate) fn note_limits_inside(&self) {
        self.room.limits_inside.store(true, Ordering::Relaxed);
    }

    /// The nearest account of those that `payer` pays from that so many pages more are too many
    /// for.
    fn short(&self, inner: &Inner, payer: AccountId, pages: u64) -> Option<AccountId> {
        let root = || (!self.room.can_be_enough(inner, pages)).then_some(AccountId::ROOT);
        inner.accounts.short(payer, pages).or_else(root)
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
    /// is to free itself first, if any, and of which account.
    pub fn await_room_holding(&self, who: &Waiter) -> Result<(u64, AccountId)> {
        // (What was asked of who did not wait any more is past.)
        who.asked.store(0, Ordering::Relaxed);
        who.waits.store(true, Ordering::Relaxed);
        let room = self.await_until(PAGE_SIZE, who, || who.asked.load(Ordering::Relaxed) > 0);
        who.waits.store(false, Ordering::Relaxed);
        room.map(|()| {
            let of = AccountId(who.asked_of.load(Ordering::Relaxed));
            (who.asked.swap(0, Ordering::Relaxed), of)
        })
    }

    /// Waits until there is room for so many bytes of the calling thread's; `ENOMEM` where room
    /// does not come, or `who` is to die.
    pub fn await_room(&self, bytes: u64, who: &Waiter) -> Result<()> {
        self.await_until(bytes, who, || false)
    }

    /// The same, or until `is_asked`.
    fn await_until(&self, bytes: u64, who: &Waiter, is_asked: impl Fn() -> bool) -> Result<()> {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let maker = self.room.maker.get();
        let longest = if maker.is_some() { LONGEST } else { ENDING_MAX };
        let deadline = Instant::now() + longest;
        // Of the account that was short when it looked last.
        let mut hopeless: Option<(AccountId, u64)> = None;
        let _stall = (!self.has_room(bytes)).then(|| self.stall());
        let mut inner = self.inner.lock();
        loop {
            // (It may have been moved to another group. An allocation gives back what is kept.)
            let payer = self.payer();
            let Some(short) = self.short(&inner, payer, pages) else {
                return Ok(());
            };
            if is_asked() {
                return Ok(());
            }
            let Some(e) = inner.accounts.get_mut(short) else {
                continue;
            };
            let limit = e.limits.max;
            let now = (short, e.hopeless);
            let before = *hopeless.filter(|h| h.0 == short).get_or_insert(now);
            hopeless = Some(before);
            e.waiting += 1;
            // (Where a group may not have a page, somebody is ended for it.)
            let is_too_much = limit < pages && (pages > 1 || short == AccountId::ROOT);
            let is_vain = before != now || is_too_much || (maker.is_none() && inner.ending == 0);
            let is_over = who.doomed.load(Ordering::Relaxed) || Instant::now() >= deadline;
            if !is_vain && !is_over {
                inner.accounts.asking.insert(short);
                self.sleep(&mut inner, pages);
            }
            if let Some(e) = inner.accounts.get_mut(short) {
                e.waiting -= 1;
            }
            if is_vain || is_over {
                return Err(ENOMEM);
            }
        }
    }

    /// Tells the maker, and sleeps for a while unless there is room then.
    fn sleep(&self, inner: &mut MutexGuard<'_, Inner>, pages: u64) {
        self.room.waiting.fetch_add(1, Ordering::Relaxed);
        if let Some(maker) = self.room.maker.get() {
            MutexGuard::unlocked(inner, maker);
        }
        if self.short(inner, self.payer(), pages).is_some() {
            self.room.changed.wait_for(inner, LOOK);
        }
        self.room.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Has those that wait look again.
    pub fn wake_waiters(&self) {
        let _inner = self.inner.lock();
        self.wake();
    }

    /// Makes sure that there is room for `pages` more frames, once nothing is kept if need be;
    /// gives who pays, as it is said under the lock that the caller goes on holding. `ENOMEM`.
    pub(crate) fn find_room(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        pages: u64,
        payer: impl FnOnce(&Inner) -> AccountId,
    ) -> Result<AccountId> {
        if !self.room.is_enough(inner, pages) {
            self.shed_kept(inner);
        }
        let payer = inner.accounts.payer(payer(inner));
        if self.room.is_enough(inner, pages) && inner.accounts.short(payer, pages).is_none() {
            Ok(payer)
        } else {
            Err(ENOMEM)
        }
    }

    /// Counts frames that were swapped out as here again, if there is room: which they are, and
    /// whether the store has them. Their owner goes on paying if it has the room, else the calling
    /// thread does from now on.
    pub(crate) fn take_room(&self, frames: &[(u64, bool)]) -> bool {
        let n = frames.len() as u64;
        let mut inner = self.inner.lock();
        let payer = |inner: &Inner| {
            let owner = |f: &(u64, bool)| inner.refs.owner(f.0).map(|o| o.account());
            let first = frames.first().and_then(owner);
            let may_stay = |id: &AccountId| {
                frames.iter().all(|f| owner(f) == Some(*id)) && inner.accounts.may_grow(*id, n)
            };
            first.filter(may_stay).unwrap_or_else(|| self.payer())
        };
        let Ok(payer) = self.find_room(&mut inner, n, payer) else {
            return false;
        };
        for &(page, was_stored) in frames {
            if let Some(owner) = inner.refs.owner(page) {
                let now = inner.accounts.came(owner, was_stored, payer);
                if now != owner {
                    inner.refs.change_owners(page, page + 1, |_| now);
                }
            }
        }
        self.tell_if_low(inner, payer, n);
        true
    }

    /// Counts the kernel's memory; whether it has grown beyond the limit.
    pub(crate) fn count_kernel_memory(&self, bytes: i64) -> bool {
        let mut inner = self.inner.lock();
        inner.accounts.add_kernel_memory(bytes);
        if bytes < 0 {
            if self.room.waiting.load(Ordering::Relaxed) > 0 {
                self.wake();
            }
            return false;
        }
        let is_over = !self.room.can_be_enough(&inner, 0);
        if is_over && let Some(root) = inner.accounts.get_mut(AccountId::ROOT) {
            root.shrinks = true;
            inner.accounts.asking.insert(AccountId::ROOT);
        }
        is_over
    }

    /// Whether the container has more than its limit.
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        !self.room.can_be_enough(&self.inner.lock(), 0)
    }

    /// Bytes of the kernel's memory that count for the container.
    #[must_use]
    pub fn kernel_memory(&self) -> u64 {
        self.inner.lock().accounts.root().kernel_pages() * PAGE_SIZE
    }

    /// Frames of one owner are swapped out, and their pages gone; so many are in the store.
    pub(crate) fn room_came(&self, first: u64, pages: u64, stored: u64) {
        let mut inner = self.inner.lock();
        if let Some(owner) = inner.refs.owner(first) {
            inner.accounts.went(owner, pages, stored);
        }
        if self.room.waiting.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    /// How many pages of the owner of frame `first` may be stored yet.
    pub(crate) fn swap_room(&self, first: u64) -> u64 {
        let mut inner = self.inner.lock();
        let owner = inner.refs.owner(first);
        owner.map_or(0, |o| inner.accounts.take_swap_room(o))
    }

    /// Whether an account has little room, and something can be sent out; or more than its `high`.
    fn is_low(&self, inner: &Inner, id: AccountId, e: &Entry) -> bool {
        if id == AccountId::ROOT {
            return self.can_swap() && !self.room.is_enough(inner, reserve(e.limits.max));
        }
        let can_swap = || self.can_swap() && inner.accounts.can_swap(id);
        e.above_high() > 0 || (!e.has_room(reserve(e.limits.max)) && can_swap())
    }

    /// After so many pages were made: tells the maker, once, of accounts that `payer` pays from
    /// that have little room, and notes what is above their `high`.
    pub(crate) fn tell_if_low(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        payer: AccountId,
        pages: u64,
    ) {
        let inside = self.room.limits_inside.load(Ordering::Relaxed);
        if !self.has_swap() && !inside {
            return;
        }
        if inside
            && inner
                .accounts
                .upwards(payer)
                .any(|(_, e)| e.over_high() > 0.0)
        {
            crate::high::note(pages);
        }
        let is_new = |(id, e): &(AccountId, &Entry)| !e.is_told && self.is_low(&inner, *id, e);
        let low: SmallVec<[AccountId; 4]> = (inner.accounts.upwards(payer).filter(is_new))
            .map(|(id, _)| id)
            .collect();
        for id in &low {
            if let Some(e) = inner.accounts.get_mut(*id) {
                e.is_told = true;
            }
            inner.accounts.asking.insert(*id);
        }
        drop(inner);
        if !low.is_empty() {
            self.tell_maker();
        }
    }

    /// The accounts that somebody is to look after. (The maker has looked.)
    #[must_use]
    pub fn shortages(&self) -> Vec<Shortage> {
        let mut inner = self.inner.lock();
        let asking: Vec<AccountId> = inner.accounts.asking.iter().copied().collect();
        let mut out = Vec::new();
        for account in asking {
            if let Some(e) = inner.accounts.get_mut(account) {
                e.is_told = false;
                e.shrinks &= !e.has_room(0);
            }
            let is_awaited = self.is_awaited_now(&inner, account);
            let wanted = self.wants_out(&inner, account) * PAGE_SIZE;
            if is_awaited || wanted > 0 {
                out.push(Shortage {
                    account,
                    wanted,
                    is_awaited,
                });
            } else {
                inner.accounts.asking.remove(&account);
            }
        }
        out
    }

    /// Nothing of an account could be sent out, and nobody waits for it: nobody looks after it
    /// until more is made in it.
    pub fn leave(&self, account: AccountId) {
        let mut inner = self.inner.lock();
        inner.accounts.asking.remove(&account);
        // (What was said since it was looked at is forgotten with it.)
        if let Some(e) = inner.accounts.get_mut(account) {
            e.is_told = false;
        }
    }

    /// How many pages are to be sent out for the reserve of an account to be whole, and as much
    /// again; 0 where it is. What is above `high` goes in any case.
    fn wants_out(&self, inner: &Inner, account: AccountId) -> u64 {
        let Some(e) = inner.accounts.get(account) else {
            return 0;
        };
        let free = reserve(e.limits.max);
        let is_whole = self.can_have(inner, account, e, free);
        let leaving = match account {
            AccountId::ROOT => inner.leaving,
            _ => 0,
        };
        let is_to_go = !is_whole && self.can_swap() && inner.accounts.can_swap(account);
        let out = (e.here() + leaving + 2 * free).saturating_sub(e.limits.max);
        e.above_high().max(if is_to_go { out } else { 0 })
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

    /// An address space ends, and will soon give its frames back: until [`Clas::has_ended`], who
    /// finds no room waits for them.
    pub fn is_ending(&self) {
        self.inner.lock().ending += 1;
    }

    /// See [`Clas::is_ending`].
    pub fn has_ended(&self) {
        self.inner.lock().ending -= 1;
        self.wake();
    }
}

impl Inner {
    /// Takes out what is free and in memory, to be given back.
    fn take_kept(&mut self) -> Runs {
        let mut out = Runs::new();
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
                _ => c.no_hope(AccountId::ROOT),
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
