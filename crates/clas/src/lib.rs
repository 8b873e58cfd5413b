//! The container-level address space (CLAS): every page of a container in one memory file.
//!
//! A *frame* is a page of the memory file, named by its [`Cla`]. Frames are allocated in runs,
//! counted by reference (copy-on-write shares them between address spaces), and given back to the
//! host when the last reference goes. The Sentry maps the whole file, so that copying to and from
//! application memory is a memcpy.
//!
//! The file is sparse: a frame that nobody touched costs nothing, so callers allocate generously.
//! It grows in steps of 1 GiB, each mapped into a range of the Sentry that was reserved once; what
//! is mapped there never moves and never shrinks, which is what makes [`MemSlice`]s of it sound.
//!
//! A free frame reads as zeros. Most free frames are holes of the file; small runs that were just
//! in use are overwritten and stay in memory for the next to come (`kept`).
//!
//! Frames are counted for who made them (`accounts`), and so is the time that the lack of them
//! costs (`pressure`).
//!
//! | module | what it holds |
//! |---|---|
//! | `refs`, `free`, `kept` | reference counts; free frames; those that stay in memory |
//! | `map`, `registry` | what can be mapped; who has mapped a file |
//! | `room`, `high` | the limits: who waits for room; how long `memory.high` holds up its maker |
//! | `swap`, `files` | frames whose contents are elsewhere; what goes of files in memory |
//! | `copies`, `huge`, `scrub` | where copies go; huge pages; overwriting what was confidential |
//!
//! Lock order: `Clas::inner` and the lock of a [`MappingRegistry`] are leaves; nothing is called
//! with them held. Before them come an `Mm`'s lock and then a file's own lock (see the `mm` crate).

mod accounts;
mod copies;
mod files;
mod free;
mod high;
mod huge;
mod kept;
mod map;
mod pressure;
mod refs;
mod registry;
mod room;
mod scrub;
mod swap;

use abi::errno::ENOMEM;
use abi::{PAGE_SIZE, Result, Va};
use accounts::{Accounts, Owner, Use};
use free::FreeRuns;
use hostcall::mem::{Mapping, has_data, memfd, next_hole, punch_hole};
use hostcall::{HostFd, MemSlice, RawFd};
use kept::Kept;
use parking_lot::Mutex;
use refs::{Freed, RefCounts, Runs};
use smallvec::SmallVec;
use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use accounts::{Account, AccountId, AccountStats, Payer, PeakOf, pay_with};
pub use copies::{JUST_COPIED, PlacementHint};
pub use files::{Ahead, FilePick, Listed, Pageable};
pub use high::{is_held_up, take_above_high, take_over_limit};
pub use huge::LEN as HUGE;
pub use map::{Map, Place};
pub use pressure::{Part, Pressure, Stall, StallTime, Threshold, Trigger};
pub use registry::MappingRegistry;
pub use room::{Shortage, Waiter, kept_free, part_of_room};
pub use swap::SwapStats;

/// A container-level address: a byte offset in the memory file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cla(pub u64);

impl Cla {
    /// The address `bytes` further on.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Cla {
        Cla(self.0 + bytes)
    }
    const fn page(self) -> u64 {
        self.0 / PAGE_SIZE
    }
}

/// The file grows in steps of this many bytes.
const STEP: u64 = 1 << 30;
/// Mappings (VMAs) that a container's address spaces may have together, beyond what each may have
/// of its own. The Sentry's memory for one is in `docs/decisions/0013`.
pub const MAPPINGS: u64 = 1 << 20;
/// Address space to reserve, in bytes: the first size that the host grants.
const RESERVE: [usize; 4] = [1 << 40, 1 << 38, 1 << 36, 1 << 33];
/// Where the largest free run is shorter, in pages, the file grows rather than be cut up.
const APART_MIN: u64 = (128 << 20) / PAGE_SIZE;
/// Of how many pages the host is asked at once whether they are in memory.
const PAGES_SEEN: usize = 1024;

/// One run more, which comes behind the others.
fn push_run(runs: &mut Vec<(Cla, u64)>, at: Cla, pages: u64) {
    match runs.last_mut() {
        Some((last, n)) if last.0 + *n * PAGE_SIZE == at.0 => *n += pages,
        _ => runs.push((at, pages)),
    }
}

/// A new container's number.
fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One container's memory.
pub struct Clas {
    number: u32,
    file: HostFd,
    /// The file lies on a disk, which can be full: frames have their blocks from the start.
    on_disk: bool,
    /// The whole reservation; from `skew` on, which is what makes addresses and frames congruent
    /// modulo a huge page, the first `mapped` bytes are the file's.
    mapping: Mapping,
    skew: usize,
    mapped: AtomicU64,
    huge: huge::Pays,
    view: View,
    inner: Mutex<Inner>,
    room: room::Room,
    watch: pressure::Watch,
    /// Held by who looks which frames were touched: one at a time.
    looks: Mutex<()>,
    /// Where frames go that there is no room for; set at the start, if at all.
    swap: OnceLock<swap::Swap>,
    swap_refuses: OnceLock<NonZeroU32>,
    files: Mutex<files::Files>,
    /// What is taken of [`MAPPINGS`].
    mappings: AtomicU64,
    secrets: scrub::Secrets,
}

impl Drop for Clas {
    fn drop(&mut self) {
        self.scrub_all();
    }
}

/// How much of the frames the Sentry has in its own page tables.
///
/// What calls fill for an application counts there as the Sentry's memory, and where a container's
/// memory is limited, the host's OOM killer takes the largest: that must not be the Sentry, which
/// all processes lose. So a process that has touched much drops the view; each thread counts for
/// itself. Mapping it again costs as much as filling it, a fault a page.
struct View(AtomicU64);

impl Default for View {
    fn default() -> View {
        View(AtomicU64::new(u64::MAX))
    }
}

impl View {
    /// Notes that `len` bytes are touched, a page at least; whether the view is to be dropped
    /// first.
    fn is_due(&self, len: usize) -> bool {
        // The host thread's: it bounds what all of them have together, whichever task each runs.
        thread_local!(static TOUCHED: Cell<u64> = const { Cell::new(0) });
        let most = self.0.load(Ordering::Relaxed);
        if most == u64::MAX {
            return false;
        }
        let now = (len as u64).max(PAGE_SIZE);
        let touched = TOUCHED.get().saturating_add(now);
        let is_due = touched > most;
        TOUCHED.set(if is_due { now } else { touched });
        is_due
    }
}

struct Inner {
    free: FreeRuns,
    /// Of `free`, what stays in memory.
    kept: Kept,
    /// Neither free nor used: pages that are being given back.
    leaving: u64,
    refs: RefCounts,
    accounts: Accounts,
    /// Address spaces that have ended, and whose frames are still to come.
    ending: usize,
}

/// What [`Clas::stats`] tells, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// In allocated frames, touched, swapped out or not.
    pub allocated: u64,
    /// The highest `allocated` has been, without what is swapped out.
    pub peak: u64,
    /// In frames that the host holds in memory (or swap) now.
    pub resident: u64,
    pub limit: u64,
}

impl Clas {
    /// The container that it belongs to, from 0 on: what is a container's is told apart by it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A new memory file without a limit of its own.
    pub fn new() -> Result<Arc<Clas>> {
        Self::with_limit(u64::MAX)
    }

    /// A new memory file of which at most `limit` bytes may be allocated at a time.
    pub fn with_limit(limit: u64) -> Result<Arc<Clas>> {
        Self::of(memfd(c"cloister-memory")?, limit, false, next())
    }

    /// Frames in an empty file of the host, which nobody else has and which this fills. Allocations
    /// are `ENOSPC` where the disk is full, so that no access to a frame can fail for it. It
    /// belongs to the container that `memory` is of.
    pub fn on_disk(file: HostFd, memory: &Clas) -> Result<Arc<Clas>> {
        Self::of(file, u64::MAX, true, memory.number)
    }

    /// Frames in an empty memory file that somebody else made.
    pub fn in_memory(file: HostFd) -> Result<Arc<Clas>> {
        Self::of(file, u64::MAX, false, next())
    }

    fn of(file: HostFd, limit: u64, on_disk: bool, number: u32) -> Result<Arc<Clas>> {
        let mut mapping = Err(ENOMEM);
        for len in RESERVE {
            mapping = Mapping::reserve(len);
            if mapping.is_ok() {
                break;
            }
        }
        let mapping = mapping?;
        let skew = mapping.slice().as_ptr().addr().wrapping_neg() % huge::LEN as usize;
        Ok(Arc::new(Clas {
            number,
            file,
            on_disk,
            mapping,
            skew,
            mapped: AtomicU64::new(0),
            huge: huge::Pays::default(),
            view: View::default(),
            inner: Mutex::new(Inner {
                free: FreeRuns::default(),
                kept: Kept::default(),
                leaving: 0,
                refs: RefCounts::default(),
                accounts: Accounts::new(room::in_pages(limit)),
                ending: 0,
            }),
            room: room::Room::new(limit),
            watch: pressure::Watch::default(),
            looks: Mutex::new(()),
            swap: OnceLock::new(),
            swap_refuses: OnceLock::new(),
            files: Mutex::default(),
            mappings: AtomicU64::new(0),
            secrets: scrub::Secrets::default(),
        }))
    }

    /// The memory file's descriptor, for mapping into application address spaces.
    #[must_use]
    pub fn memory_fd(&self) -> RawFd {
        self.file.raw()
    }

    /// A run of `pages` frames, reading as zeros, with one reference each. `hint_end`: the run
    /// should end there if it can, so that host mappings merge. `ENOMEM` past the limit: it never
    /// waits ([`Clas::await_room`] does). It is for contents of files, or shared memory.
    pub fn allocate(&self, pages: u64, hint_end: Option<Cla>) -> Result<Cla> {
        self.allocate_with(pages, Use::File, |inner| {
            if let Some(end) = hint_end.map(Cla::page)
                && let Some(start) = end.checked_sub(pages)
                && inner.free.covers(start, end)
            {
                return Some(start);
            }
            inner.free.best_fit(pages)
        })
    }

    /// As [`Clas::allocate`], for what is mapped at `va`: the run should end at `before` (the
    /// frame of what is mapped above it), or else start at `after` (where the frames of what is
    /// mapped below it end). If it can do neither, it is placed with free space around it, so that
    /// neighbours that come later can; and congruent to `va` modulo 2 MiB, so that the host can use
    /// huge pages.
    pub fn allocate_near(
        &self,
        pages: u64,
        before: Option<Cla>,
        after: Option<Cla>,
        va: Va,
    ) -> Result<Cla> {
        self.allocate_at(pages, Use::File, PlacementHint { before, after }, va)
    }

    /// As [`Clas::allocate_near`], for private memory.
    pub fn allocate_anon(&self, pages: u64, hint: PlacementHint, va: Va) -> Result<Cla> {
        self.allocate_at(pages, Use::Anon, hint, va)
    }

    fn allocate_at(&self, pages: u64, what: Use, hint: PlacementHint, va: Va) -> Result<Cla> {
        let PlacementHint { before, after } = hint;
        self.allocate_with(pages, what, |inner| {
            if let Some(end) = before.map(Cla::page)
                && let Some(start) = end.checked_sub(pages)
                && inner.free.covers(start, end)
            {
                return Some(start);
            }
            if let Some(start) = after.map(Cla::page)
                && inner.free.covers(start, start + pages)
            {
                return Some(start);
            }
            let wanted = pages.saturating_mul(2).max(APART_MIN);
            if inner.free.largest() < wanted {
                // Growing may fail; then the space that there is must do.
                let _ = self.grow(inner, wanted);
            }
            inner.free.apart(pages, va.0 / PAGE_SIZE)
        })
    }

    fn allocate_with(
        &self,
        pages: u64,
        what: Use,
        mut place: impl FnMut(&mut Inner) -> Option<u64>,
    ) -> Result<Cla> {
        assert!(pages > 0, "an allocation of no frames");
        let mut inner = self.inner.lock();
        let payer = self.find_room(&mut inner, pages, |_| self.payer())?;
        let start = match place(&mut inner) {
            Some(start) => start,
            None => {
                self.grow(&mut inner, pages)?;
                place(&mut inner).ok_or(ENOMEM)?
            }
        };
        inner.free.take(start, start + pages);
        inner.kept.remove(start, start + pages);
        let owner = Owner::new(payer, what);
        inner.refs.insert(start, start + pages, owner);
        inner.accounts.charge(owner, pages);
        self.tell_if_low(inner, payer, pages);
        let at = Cla(start * PAGE_SIZE);
        if self.on_disk
            && let Err(e) = hostcall::file::fallocate(self.file.raw(), 0, at.0, pages * PAGE_SIZE)
        {
            self.decref(at, pages);
            return Err(e);
        }
        Ok(at)
    }

    /// Adds at least `pages` frames at the file's end.
    fn grow(&self, inner: &mut Inner, pages: u64) -> Result<()> {
        let old = self.mapped.load(Ordering::Relaxed);
        let room = (self.mapping.len() - self.skew) as u64 - old;
        let need = pages
            .checked_mul(PAGE_SIZE)
            .filter(|n| *n <= room)
            .ok_or(ENOMEM)?;
        let len = need.next_multiple_of(STEP).min(room);
        hostcall::file::ftruncate(self.file.raw(), old + len)?;
        // SAFETY: slices are given for what lies below `mapped` only, so none exists of this part.
        unsafe {
            self.mapping
                .map_over(self.skew + old as usize, self.file.raw(), old, len as usize)
        }?;
        self.mapped.store(old + len, Ordering::Release);
        inner.free.insert(old / PAGE_SIZE, (old + len) / PAGE_SIZE);
        Ok(())
    }

    /// One more reference on each of `pages` frames.
    ///
    /// # Panics
    /// Where one of them is not allocated.
    pub fn incref(&self, at: Cla, pages: u64) {
        if pages > 0 {
            self.inner.lock().refs.incref(at.page(), at.page() + pages);
        }
    }

    /// As [`Clas::incref`], for many runs at once.
    pub fn incref_all(&self, runs: &[(Cla, u64)]) {
        let mut inner = self.inner.lock();
        for &(at, pages) in runs.iter().filter(|r| r.1 > 0) {
            inner.refs.incref(at.page(), at.page() + pages);
        }
    }

    /// As [`Clas::decref`], for many runs.
    pub fn decref_all(&self, runs: &[(Cla, u64)]) {
        for &(at, pages) in runs {
            self.decref(at, pages);
        }
    }

    /// One reference less; frames without any are given back.
    ///
    /// # Panics
    /// Where one of them is not allocated.
    pub fn decref(&self, at: Cla, pages: u64) {
        if pages == 0 {
            return;
        }
        let freed = self.inner.lock().refs.decref(at.page(), at.page() + pages);
        if freed.is_empty() {
            return;
        }
        // Without the lock: until they are in the free runs, nobody else knows these frames.
        let ends: SmallVec<[(swap::FreedFrames, bool); 4]> = freed
            .iter()
            .map(|f| {
                let swap = self.swap.get();
                let gone = swap.map(|s| s.forget(f.start, f.end));
                (gone.unwrap_or_default(), self.clear(f))
            })
            .collect();
        let mut excess = Runs::new();
        let mut inner = self.inner.lock();
        for (f, (gone, kept)) in freed.iter().zip(ends) {
            let pages = f.end - f.start;
            (inner.accounts).uncharge(f.owner, pages, gone.away, gone.stored);
            inner.free.insert(f.start, f.end);
            if kept {
                inner.kept.insert(f.start, f.end);
            }
        }
        while let Some((start, end)) = inner.kept.excess() {
            inner.free.take(start, end);
            inner.leaving += end - start;
            excess.push((start, end));
        }
        drop(inner);
        self.give_back_all(excess);
    }

    /// Gives the memory of frames back that were taken out of the free ones, and puts them back.
    fn give_back_all(&self, runs: Runs) {
        for &(start, end) in &runs {
            self.give_back(start, end);
        }
        if !runs.is_empty() {
            let mut inner = self.inner.lock();
            for (start, end) in runs {
                inner.leaving -= end - start;
                inner.free.insert(start, end);
            }
        }
    }

    /// Makes frames that nobody has any more read as zeros; whether they stay in memory.
    fn clear(&self, f: &Freed) -> bool {
        let &Freed { start, end, owner } = f;
        let (at, to) = (start * PAGE_SIZE, end * PAGE_SIZE);
        if !self.on_disk {
            if !has_data(self.file.raw(), at, to) {
                return false;
            }
            if end - start <= kept::RUN && self.is_full(Cla(at), end - start) {
                self.slice(Cla(at), (to - at) as usize).zero();
                return true;
            }
        }
        if self.is_to_scrub(owner) {
            self.scrub(at, to);
        }
        self.give_back(start, end);
        false
    }

    /// Gives the memory of frames that nobody has back to the host.
    fn give_back(&self, start: u64, end: u64) {
        let (at, len) = (start * PAGE_SIZE, (end - start) * PAGE_SIZE);
        // A frame that is reused must read as zeros. The host frees memory even under pressure, so
        // this fails only by a signal; then the zeros are written.
        if punch_hole(self.file.raw(), at, len).is_err() {
            self.slice(Cla(at), len as usize).zero();
        }
    }

    /// Whether all of `pages` frames are in memory, but at most 256 of them: only a hint.
    #[must_use]
    pub fn is_full(&self, at: Cla, pages: u64) -> bool {
        let mut found = [0u8; 256];
        let found = &mut found[..pages.min(256) as usize];
        self.residency(at, found);
        found.iter().all(|b| b & 1 != 0)
    }

    /// Whether some byte of `pages` frames may differ from zero.
    #[must_use]
    pub fn was_written(&self, at: Cla, pages: u64) -> bool {
        self.on_disk || has_data(self.file.raw(), at.0, at.0 + pages * PAGE_SIZE)
    }

    /// The runs of `pages` frames from `at` on that have no page of the file now: they read as
    /// zeros, and take no memory.
    #[must_use]
    pub fn holes(&self, at: Cla, pages: u64) -> Vec<(Cla, u64)> {
        let mut out = Vec::new();
        if self.on_disk {
            return out;
        }
        let end = at.0 + pages * PAGE_SIZE;
        let mut from = at.0;
        while from < end {
            let mut seen = [0; PAGES_SEEN];
            let seen = &mut seen[..PAGES_SEEN.min(((end - from) / PAGE_SIZE) as usize)];
            let first = from;
            from += seen.len() as u64 * PAGE_SIZE;
            self.residency(Cla(first), seen);
            // What is not in memory may have been swapped out by the host: the file knows. (It is
            // not asked of the rest: SEEK_HOLE goes through all pages that follow.)
            let mut n = 0;
            for run in seen.chunk_by(|a, b| a & 1 == b & 1) {
                let mut at = first + n * PAGE_SIZE;
                n += run.len() as u64;
                let until = first + n * PAGE_SIZE;
                while run[0] & 1 == 0
                    && at < until
                    && let Some((s, e)) = next_hole(self.file.raw(), at, until)
                {
                    push_run(&mut out, Cla(s), (e - s) / PAGE_SIZE);
                    at = e;
                }
            }
        }
        out
    }

    /// Gives the memory of `pages` frames back while they stay allocated: they read as zeros
    /// afterwards. Nobody brings them in meanwhile.
    pub fn discard(&self, at: Cla, pages: u64) {
        let len = pages * PAGE_SIZE;
        self.scrub_some(at, pages);
        self.blank(at, pages);
        if len > 0 && punch_hole(self.file.raw(), at.0, len).is_err() {
            self.slice(at, len as usize).zero();
        }
    }

    /// Takes `n` of the container's [`MAPPINGS`]; whether there are so many.
    #[must_use]
    pub fn take_mappings(&self, n: u64) -> bool {
        let more = |had: u64| had.checked_add(n).filter(|h| *h <= MAPPINGS);
        let taken = self
            .mappings
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }

    /// Gives them back.
    pub fn give_mappings(&self, n: u64) {
        self.mappings.fetch_sub(n, Ordering::Relaxed);
    }

    /// Whether every frame of the run has exactly one reference.
    #[must_use]
    pub fn is_exclusive(&self, at: Cla, pages: u64) -> bool {
        self.exclusive_prefix(at, pages) == pages
    }

    /// How many bytes of `pages` frames have a page.
    #[must_use]
    pub fn resident(&self, at: Cla, pages: u64) -> u64 {
        let mut here = pages;
        self.holes(at, pages)
            .into_iter()
            .for_each(|(_, n)| here -= n);
        here * PAGE_SIZE
    }

    /// How many references the first of `pages` frames has, and how many from it on have as many
    /// and count for the same account.
    #[must_use]
    pub fn shared_prefix(&self, at: Cla, pages: u64) -> (u32, u64) {
        let inner = self.inner.lock();
        inner.refs.shared_prefix(at.page(), at.page() + pages)
    }

    /// Whether the frame counts for this account, or for one below it.
    #[must_use]
    pub fn is_paid_by(&self, at: Cla, account: AccountId) -> bool {
        account == AccountId::ROOT || self.payer_within(at, account).is_some()
    }

    /// The account that the frame counts for, if that is this one or below it.
    pub(crate) fn payer_within(&self, at: Cla, account: AccountId) -> Option<AccountId> {
        let inner = self.inner.lock();
        let owner = inner.refs.owner(at.page())?.account();
        inner.accounts.is_below(owner, account).then_some(owner)
    }

    /// How many of the first of `pages` frames have exactly one reference.
    #[must_use]
    pub fn exclusive_prefix(&self, at: Cla, pages: u64) -> u64 {
        self.inner
            .lock()
            .refs
            .exclusive_prefix(at.page(), at.page() + pages)
    }

    /// The frames around `at`, but only of `[lo, hi)`, that have exactly one reference; `None` if
    /// `at` has more.
    #[must_use]
    pub fn exclusive_run(&self, at: Cla, lo: Cla, hi: Cla) -> Option<(Cla, Cla)> {
        let (s, e) = self.inner.lock().refs.exclusive_run(at.page())?;
        Some((lo.max(Cla(s * PAGE_SIZE)), hi.min(Cla(e * PAGE_SIZE))))
    }

    /// Which of the frames from `at` on are in memory now: bit 0 of a byte a page. (Nothing of them
    /// gets into the Sentry's view.)
    pub fn residency(&self, at: Cla, out: &mut [u8]) {
        let len = out.len() * PAGE_SIZE as usize;
        let slice = self.mapping.slice().sub(self.skew + at.0 as usize, len);
        if hostcall::mem::mincore(slice, out).is_err() {
            out.fill(0);
        }
    }

    /// The Sentry's own mapping of `[at, at + len)`, which lies in allocated frames.
    ///
    /// # Panics
    /// Where it lies outside of the file.
    #[must_use]
    pub fn slice(&self, at: Cla, len: usize) -> MemSlice<'_> {
        let end = at.0.checked_add(len as u64);
        assert!(
            end.is_some_and(|e| e <= self.mapped.load(Ordering::Acquire)),
            "a frame outside of the memory file"
        );
        if self.view.is_due(len) {
            self.drop_view();
        }
        self.mapping.slice().sub(self.skew + at.0 as usize, len)
    }

    /// How many bytes of frames a thread touches before the Sentry's view of them is dropped; at
    /// first it never is.
    pub fn limit_view(&self, bytes: u64) {
        self.view.0.store(bytes, Ordering::Relaxed);
    }

    /// Unmaps the Sentry's view of all frames: the next access maps what it needs. Contents stay,
    /// as others' mappings do.
    fn drop_view(&self) {
        let mapped = self.mapped.load(Ordering::Acquire) as usize;
        // (Where the host cannot, it stays: nothing depends on it.)
        let _ = hostcall::mem::unmap_pages(self.mapping.slice().sub(self.skew, mapped));
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        let resident =
            hostcall::file::fstat(self.file.raw()).map_or(0, |st| st.st_blocks as u64 * 512);
        let inner = self.inner.lock();
        Stats {
            allocated: inner.accounts.root().used * PAGE_SIZE,
            peak: inner.accounts.root().peak.ever * PAGE_SIZE,
            resident,
            limit: self.room.limit().saturating_mul(PAGE_SIZE),
        }
    }
}

/// What backs a piece of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Frames of the memory file (tmpfs, memfd, shm). Each comes with a reference for the caller,
    /// taken under the file's lock, so that a truncation at the same time cannot free it first; the
    /// caller gives it back with [`Clas::decref`].
    Frames(Cla),
    /// A host file, mapped from this descriptor at this offset. The descriptor lives as long as the
    /// [`Mappable`].
    Host { fd: RawFd, offset: u64 },
}

/// A file that can be mapped. The same file always gives the same object: its address names the
/// file for shared futexes and for the merging of mappings.
///
/// An address space's lock comes *before* the lock that [`Mappable::backing`] takes. So a file must
/// never hold that lock while it copies from or to application memory (`Source`, `Sink`); inside
/// the closures of `fill` and `drain` it may take it.
pub trait Mappable: Send + Sync {
    /// What backs the file from `offset` (page-aligned) on, and for how many bytes in one run (a
    /// multiple of the page size, at most `len`). `Write` gives backing that may be written through
    /// (a shared writable mapping): holes get frames. Past the page that holds the end of the file:
    /// `EFAULT`, which becomes SIGBUS.
    ///
    /// Called with the address space's lock held: it must not copy from or to application memory,
    /// nor call [`MappingObserver`]s, nor wait for a program: `EAGAIN` where one must be asked
    /// first ([`Mappable::fill`]).
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)>;
    /// Whether a program serves the file: it is asked for pages.
    fn is_served(&self) -> bool {
        false
    }
    /// Of such a file, the first page from `offset` (of any byte of it) to before `end` that
    /// [`Mappable::backing`] has not there.
    fn first_absent(&self, _offset: u64, _end: u64) -> Option<u64> {
        None
    }
    /// Gets such a page, and some behind it. Called without locks: it may wait, as long as the caller
    /// is not to end.
    fn fill(&self, _offset: u64) -> Result<()> {
        Err(abi::errno::EFAULT)
    }
    /// Has what was written through mappings written to where the file is, before they go, and waits
    /// for it. Called without locks.
    fn write_back(&self, _offset: u64, _len: u64) {}
    /// Whose frames [`Mappable::backing`] gives, where it gives frames. Those of another
    /// container's memory, or on a disk, are mapped like a host file's pages.
    fn memory(&self) -> Option<&Arc<Clas>> {
        None
    }
    /// A mapping of `[offset, offset + len)` appeared in `observer` at `va`: kept (weakly) until
    /// `remove_mapping`, so that truncation can drop host mappings. [`MappingRegistry`] does it.
    /// Called, as is `remove_mapping`, with the address space's lock held: only to take note.
    fn add_mapping(
        &self,
        observer: std::sync::Weak<dyn MappingObserver>,
        va: Va,
        offset: u64,
        len: u64,
    );
    /// The opposite, for all of a mapping or for a part of it.
    fn remove_mapping(
        &self,
        observer: &std::sync::Weak<dyn MappingObserver>,
        va: Va,
        offset: u64,
        len: u64,
    );
    /// Whether its mappings keep their size (`VM_DONTEXPAND`).
    fn is_fixed(&self) -> bool {
        false
    }
    /// Whether nobody reads it but by its mappings, which are shared (memfd_secret(2)).
    fn is_secret(&self) -> bool {
        false
    }
    /// Gives back frames that nobody has touched and nobody maps any more. Called, as
    /// [`Mappable::backing`], with the address space's lock held.
    fn trim(&self) {}
    /// `msync(2)`: nothing to do where the page cache is shared. Called without locks.
    fn sync(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// A shared mapping that may become writable is about to be added: `EPERM` where the file is
    /// sealed against it. Each `Ok` is followed by one [`Mappable::unmap_writable`] when that
    /// mapping goes (a split or a copy of it counts as one more).
    fn map_writable(&self) -> Result<()> {
        Ok(())
    }
    /// The opposite of [`Mappable::map_writable`]. Called without locks, by whoever lets go of it
    /// last: it waits for nobody.
    fn unmap_writable(&self) {}
    /// What the file has there in memory is confidential from now on ([`Clas::mark_confidential`]),
    /// brought in if it was swapped out. `ENOMEM` where there is no room. Called with the address
    /// space's lock held.
    fn mark_confidential(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// `madvise(MADV_REMOVE)`: frees the backing of a range; its bytes read as zeros. Called
    /// without the address space's lock.
    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(abi::errno::EOPNOTSUPP)
    }
}

/// Why backing is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
}

/// An address space that maps a file.
pub trait MappingObserver: Send + Sync {
    /// What of a file is mapped at these places (addresses and lengths) went away or changed its
    /// backing: forget what was looked up for it. Takes the address space's lock: never call it
    /// with a lock held that [`Mappable::backing`] takes.
    fn invalidate(&self, places: &[(Va, u64)]);
    /// The file was cut short before what is mapped at these places: private copies of what was
    /// there go too.
    fn truncated(&self, places: &[(Va, u64)]) {
        self.invalidate(places);
    }
    /// What is mapped at these places is wanted elsewhere ([`files`]): forget
    /// it as for [`MappingObserver::invalidate`], as far as that can be now and it need not stay. It
    /// waits for nobody.
    fn release(&self, _places: &[(Va, u64)]) {}
}

#[cfg(test)]
mod tests;
