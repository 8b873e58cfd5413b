//! Who pays for frames: the accounts of a container and of the control groups in it.
//!
//! Every frame that has a reference has an owner: the account of whose thread made it ([`Payer`]),
//! or brought it in from swap when its owner had no room for it. It counts for that account and for
//! all above it, up to the container's own ([`AccountId::ROOT`]). Forks that share a frame do not
//! pay for it; who copies it does, for the copy. A process that moves to another group leaves
//! behind what it has made, as on Linux.
//!
//! # Invariants
//!
//! - `used`, `away`, `stored` and `files` of an account are sums over the frames that it and all
//!   accounts below own; `own` is the number of those that it owns itself.
//! - An account is there while it is open, owns frames, or has accounts below. One that is closed
//!   goes on counting for those above it, but limits nothing. The container's is always there.
//! - Accounts nest [`DEPTH_MAX`] deep at most: that bounds what a charge costs.
//! - Who pays is asked under the lock, and is given another account before its own is closed: so
//!   nobody pays with one that is gone (else the container would). Numbers are not used again while
//!   their account is there.
//!
//! All of it is under the lock of [`Clas`]; units are pages.

mod peaks;

pub use peaks::PeakOf;

use crate::pressure::Stalls;
use crate::room::in_pages;
use crate::{Clas, Inner};
use abi::errno::EAGAIN;
use abi::{PAGE_SIZE, Result};
use peaks::Peak;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Accounts below the container's, one below the other.
const DEPTH_MAX: usize = 32;
/// Accounts of a container, those that are closed included: twice as many as there may be groups.
const ACCOUNTS_MAX: usize = 8192;

/// The number of an account, within its container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AccountId(pub(crate) u32);

impl AccountId {
    /// The container's own.
    pub const ROOT: AccountId = AccountId(0);

    /// The numbers that there are.
    const MOST: u32 = u32::MAX >> Owner::FLAGS;
}

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Private memory of address spaces.
    Anon,
    /// Contents of a file in memory, or shared memory.
    File,
}

/// The account that a frame counts for, as what, and whether its contents are confidential
/// ([`crate::scrub`]). One word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u32);

impl Owner {
    const FILE: u32 = 1;
    const CONFIDENTIAL: u32 = 2;
    /// Bits that are no part of the account's number.
    const FLAGS: u32 = 2;

    pub(crate) fn new(account: AccountId, what: Use) -> Owner {
        let flags = if what == Use::File { Owner::FILE } else { 0 };
        Owner(account.0 << Owner::FLAGS | flags)
    }

    pub(crate) fn account(self) -> AccountId {
        AccountId(self.0 >> Owner::FLAGS)
    }

    pub(crate) fn is_file(self) -> bool {
        self.0 & Owner::FILE != 0
    }

    pub(crate) fn is_confidential(self) -> bool {
        self.0 & Owner::CONFIDENTIAL != 0
    }

    /// The same frame, when its contents are.
    pub(crate) fn confidential(self) -> Owner {
        Owner(self.0 | Owner::CONFIDENTIAL)
    }

    /// The same frame, when another account pays for it.
    pub(crate) fn paid_by(self, account: AccountId) -> Owner {
        let flags = self.0 & ((1 << Owner::FLAGS) - 1);
        Owner(account.0 << Owner::FLAGS | flags)
    }
}

/// What an account may have, in pages; `u64::MAX` for no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Never more is here.
    pub(crate) max: u64,
    /// What is here above it is sent out.
    pub(crate) high: u64,
    /// Never more is in the swap's store.
    pub(crate) swap: u64,
    /// Who makes more while there is more in the store is held up.
    pub(crate) swap_high: u64,
}

impl Limits {
    const NONE: Limits = Limits {
        max: u64::MAX,
        high: u64::MAX,
        swap: u64::MAX,
        swap_high: u64::MAX,
    };
}

/// Who is told when a limit of swap was in the way.
#[derive(Default)]
struct OnSwapFail(Option<Box<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for OnSwapFail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnSwapFail")
            .field(&self.0.is_some())
            .finish()
    }
}

/// One account; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Entry {
    parent: Option<AccountId>,
    /// Accounts directly below.
    below: u32,
    is_open: bool,
    /// Frames with a reference.
    pub(crate) used: u64,
    /// Of `used`, those that are swapped out; of those, what is in the store.
    pub(crate) away: u64,
    stored: u64,
    /// Of `used`, contents of files; of those, what is swapped out.
    files: u64,
    files_away: u64,
    own: u64,
    /// The kernel's memory for objects, bytes: the container's account alone has it.
    kernel: i64,
    /// The most that was here, and in the store, at a time.
    pub(crate) peak: Peak,
    stored_peak: Peak,
    /// Pages that went, and that came back, ever; how often its limit of swap was in the way, and
    /// who is told when it is.
    out: u64,
    back: u64,
    swap_fails: u64,
    on_swap_fail: OnSwapFail,
    pub(crate) limits: Limits,
    /// Threads that wait for room in it.
    pub(crate) waiting: u64,
    /// How often nothing was found that could be freed of it.
    pub(crate) hopeless: u64,
    /// It was said that it has little room, or more than `high`, and nobody has looked since.
    pub(crate) is_told: bool,
    /// It has more than its new limit: that is to go, though nobody waits for it.
    pub(crate) shrinks: bool,
    pub(crate) stalls: Stalls,
}

impl Entry {
    fn new(parent: Option<AccountId>) -> Entry {
        Entry {
            parent,
            below: 0,
            is_open: true,
            used: 0,
            away: 0,
            stored: 0,
            files: 0,
            files_away: 0,
            own: 0,
            kernel: 0,
            peak: Peak::default(),
            stored_peak: Peak::default(),
            out: 0,
            back: 0,
            swap_fails: 0,
            on_swap_fail: OnSwapFail::default(),
            limits: Limits::NONE,
            waiting: 0,
            hopeless: 0,
            is_told: false,
            shrinks: false,
            stalls: Stalls::new(),
        }
    }

    /// Frames that are not swapped out, and the kernel's memory: what the limit counts.
    pub(crate) fn here(&self) -> u64 {
        self.used - self.away + self.kernel_pages()
    }

    /// (What is counted in parts may be less than nothing for a while.)
    pub(crate) fn kernel_pages(&self) -> u64 {
        u64::try_from(self.kernel).map_or(0, |n| n.div_ceil(PAGE_SIZE))
    }

    /// The same of contents of files.
    fn files_here(&self) -> u64 {
        self.files - self.files_away
    }

    /// Whether so many pages more are within the limit.
    pub(crate) fn has_room(&self, pages: u64) -> bool {
        (self.here().checked_add(pages)).is_some_and(|n| n <= self.limits.max)
    }

    /// What is here above `high`.
    pub(crate) fn above_high(&self) -> u64 {
        self.here().saturating_sub(self.limits.high)
    }

    /// The same as a part of `high`, or of that of swap; of nothing, all that there is.
    pub(crate) fn over_high(&self) -> f64 {
        let part = |is: u64, high: u64| is.saturating_sub(high) as f64 / high.max(1) as f64;
        let swap = part(self.stored, self.limits.swap_high);
        part(self.here(), self.limits.high).max(swap)
    }

    /// How many pages more may be stored, and how many away with those of zeros.
    fn swap_room(&self) -> u64 {
        let most = self.limits.swap.saturating_mul(crate::swap::TABLE_MAX);
        let stored = self.limits.swap.saturating_sub(self.stored);
        stored.min(most.saturating_sub(self.away))
    }

    fn peak_of(&self, of: PeakOf) -> Peak {
        match of {
            PeakOf::Here => self.peak,
            PeakOf::Stored => self.stored_peak,
        }
    }

    fn note_peaks(&mut self) {
        self.peak.note(self.here());
        self.stored_peak.note(self.stored);
    }
}

/// All accounts of a container.
#[derive(Debug)]
pub(crate) struct Accounts {
    root: Entry,
    others: BTreeMap<AccountId, Entry>,
    last: u32,
    /// Those that somebody is to look after: see [`Clas::shortages`].
    pub(crate) asking: BTreeSet<AccountId>,
}

impl Accounts {
    /// The container's alone, which may have so many pages.
    pub(crate) fn new(max: u64) -> Accounts {
        let mut root = Entry::new(None);
        root.limits.max = max;
        Accounts {
            root,
            others: BTreeMap::new(),
            last: 0,
            asking: BTreeSet::new(),
        }
    }

    pub(crate) fn root(&self) -> &Entry {
        &self.root
    }

    pub(crate) fn get(&self, id: AccountId) -> Option<&Entry> {
        if id == AccountId::ROOT {
            Some(&self.root)
        } else {
            self.others.get(&id)
        }
    }

    pub(crate) fn get_mut(&mut self, id: AccountId) -> Option<&mut Entry> {
        if id == AccountId::ROOT {
            Some(&mut self.root)
        } else {
            self.others.get_mut(&id)
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (AccountId, &Entry)> {
        let others = self.others.iter().map(|(id, e)| (*id, e));
        std::iter::once((AccountId::ROOT, &self.root)).chain(others)
    }

    /// It and all above it, with their numbers; from the container's on where it is gone.
    pub(crate) fn upwards(&self, id: AccountId) -> impl Iterator<Item = (AccountId, &Entry)> {
        let entry = |id: AccountId| self.get(id).map(|e| (id, e));
        std::iter::successors(
            entry(id).or(Some((AccountId::ROOT, &self.root))),
            move |(_, e)| e.parent.and_then(entry),
        )
    }

    fn each_upwards(&mut self, id: AccountId, mut change: impl FnMut(&mut Entry)) {
        let mut next = Some(id);
        while let Some(e) = next.and_then(|id| self.get_mut(id)) {
            change(e);
            e.note_peaks();
            next = e.parent;
        }
    }

    /// Whether `id` is `above` or below it.
    pub(crate) fn is_below(&self, id: AccountId, above: AccountId) -> bool {
        above == AccountId::ROOT || self.upwards(id).any(|(i, _)| i == above)
    }

    /// The nearest account, but the container's, that so many pages more are too many for.
    pub(crate) fn short(&self, payer: AccountId, pages: u64) -> Option<AccountId> {
        let full = self
            .upwards(payer)
            .find(|(id, e)| *id != AccountId::ROOT && !e.has_room(pages));
        full.map(|(id, _)| id)
    }

    /// Whether an account is open, and has room for so many pages.
    pub(crate) fn may_grow(&self, id: AccountId, pages: u64) -> bool {
        self.get(id).is_some_and(|e| e.is_open) && self.short(id, pages).is_none()
    }

    /// The account that pays where `id` was asked for.
    pub(crate) fn payer(&self, id: AccountId) -> AccountId {
        if self.get(id).is_some() {
            id
        } else {
            AccountId::ROOT
        }
    }

    /// The kernel's memory for a container's objects grows, or shrinks.
    pub(crate) fn add_kernel_memory(&mut self, bytes: i64) {
        self.root.kernel += bytes;
        self.root.note_peaks();
    }

    /// New frames.
    pub(crate) fn charge(&mut self, owner: Owner, pages: u64) {
        let files = if owner.is_file() { pages } else { 0 };
        self.each_upwards(owner.account(), |e| {
            e.used += pages;
            e.files += files;
        });
        if let Some(e) = self.get_mut(owner.account()) {
            e.own += pages;
        }
    }

    /// Frames go, of which so many were away, and stored.
    pub(crate) fn uncharge(&mut self, owner: Owner, pages: u64, away: u64, stored: u64) {
        let of_files = |n| if owner.is_file() { n } else { 0 };
        self.each_upwards(owner.account(), |e| {
            e.used -= pages;
            e.away -= away;
            e.stored -= stored;
            e.files -= of_files(pages);
            e.files_away -= of_files(away);
        });
        if let Some(e) = self.get_mut(owner.account()) {
            e.own -= pages;
        }
        self.sweep(owner.account());
    }

    /// Frames are swapped out; so many of them are stored.
    pub(crate) fn went(&mut self, owner: Owner, pages: u64, stored: u64) {
        let files = if owner.is_file() { pages } else { 0 };
        self.each_upwards(owner.account(), |e| {
            e.away += pages;
            e.stored += stored;
            e.out += pages;
            e.files_away += files;
        });
    }

    /// Frames that are away are stored no more: they read as zeros.
    pub(crate) fn blanked(&mut self, owner: Owner, stored: u64) {
        self.each_upwards(owner.account(), |e| e.stored -= stored);
    }

    /// A frame comes back, which `payer` has room for and pays for from now on; gives its owner.
    pub(crate) fn came(&mut self, owner: Owner, was_stored: bool, payer: AccountId) -> Owner {
        let stored = u64::from(was_stored);
        self.each_upwards(owner.account(), |e| e.back += 1);
        let now = owner.paid_by(payer);
        if now == owner {
            let files = u64::from(owner.is_file());
            self.each_upwards(payer, |e| {
                e.away -= 1;
                e.stored -= stored;
                e.files_away -= files;
            });
        } else {
            self.charge(now, 1);
            self.uncharge(owner, 1, 1, stored);
        }
        now
    }

    /// How many pages of this owner's may be stored yet; where none, that counts.
    pub(crate) fn take_swap_room(&mut self, owner: Owner) -> u64 {
        let rooms = self.upwards(owner.account()).map(|(_, e)| e.swap_room());
        let room = rooms.min().unwrap_or(0);
        if room == 0 {
            self.each_upwards(owner.account(), |e| {
                e.swap_fails += 1;
                e.on_swap_fail.0.as_ref().inspect(|tell| tell());
            });
        }
        room
    }

    /// Whether its limits of swap leave room.
    pub(crate) fn can_swap(&self, id: AccountId) -> bool {
        self.upwards(id).all(|(_, e)| e.swap_room() > 0)
    }

    /// Forgets accounts that nothing needs any more, from `id` upwards.
    fn sweep(&mut self, id: AccountId) {
        let mut next = Some(id);
        while let Some(id) = next
            && let Some(e) = self.others.get(&id)
            && !e.is_open
            && e.own == 0
            && e.below == 0
        {
            next = e.parent;
            self.others.remove(&id);
            self.asking.remove(&id);
            if let Some(above) = next.and_then(|p| self.get_mut(p)) {
                above.below -= 1;
            }
        }
    }

    fn open(&mut self, parent: AccountId) -> Result<AccountId> {
        if self.upwards(parent).count() > DEPTH_MAX || self.others.len() >= ACCOUNTS_MAX {
            return Err(EAGAIN);
        }
        let parent = self.payer(parent);
        loop {
            self.last = if self.last >= AccountId::MOST {
                1
            } else {
                self.last + 1
            };
            let id = AccountId(self.last);
            if let btree_map::Entry::Vacant(free) = self.others.entry(id) {
                free.insert(Entry::new(Some(parent)));
                if let Some(above) = self.get_mut(parent) {
                    above.below += 1;
                }
                return Ok(id);
            }
        }
    }

    fn close(&mut self, id: AccountId) {
        if let Some(e) = self.get_mut(id) {
            e.is_open = false;
            e.limits = Limits::NONE;
        }
        self.sweep(id);
    }
}

/// From which account the frames are paid that a thread makes. Threads of one process have one.
#[derive(Debug)]
pub struct Payer {
    /// The container that the account is of.
    container: u32,
    account: AtomicU32,
    /// What its threads have added to the kernel's memory, in bytes, less what they took from it:
    /// never less than nothing, since that may have been others'.
    kernel: AtomicI64,
}

impl Payer {
    /// At first the container's own account.
    #[must_use]
    pub fn new(clas: &Clas) -> Payer {
        Payer {
            container: clas.number(),
            account: AtomicU32::new(AccountId::ROOT.0),
            kernel: AtomicI64::new(0),
        }
    }

    /// Another account pays from now on.
    pub fn set(&self, account: AccountId) {
        self.account.store(account.0, Ordering::Relaxed);
    }

    #[must_use]
    pub fn account(&self) -> AccountId {
        AccountId(self.account.load(Ordering::Relaxed))
    }

    /// Bytes of the kernel's memory that its threads have made and not given back. What is made by
    /// one process and ended by another makes it too much: never believe more than there is.
    #[must_use]
    pub fn kernel_memory(&self) -> u64 {
        u64::try_from(self.kernel.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

thread_local! {
    /// Who pays for what this host thread makes: the process that it runs; as `current` on Linux.
    static PAYER: RefCell<Option<Arc<Payer>>> = const { RefCell::new(None) };
}

/// The calling thread makes frames for this process from now on.
pub fn pay_with(payer: &Arc<Payer>) {
    PAYER.set(Some(payer.clone()));
}

/// What [`Account::stats`] tells, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountStats {
    /// In frames that are made and not swapped out: what the limit counts.
    pub here: u64,
    /// The highest that has been.
    pub peak: u64,
    /// Of `here`, contents of files in memory, and shared memory.
    pub files: u64,
    /// In the swap's store, and the highest that has been.
    pub swapped: u64,
    pub swapped_peak: u64,
    /// Pages that went out, and that came back, ever.
    pub pages_out: u64,
    pub pages_in: u64,
    /// How often a limit of swap was in the way.
    pub swap_fails: u64,
}

/// An account of a control group, until it is dropped.
#[derive(Debug)]
pub struct Account {
    clas: Weak<Clas>,
    id: AccountId,
    /// See [`Account::untouched`].
    untouched: AtomicU64,
}

impl Account {
    #[must_use]
    pub fn id(&self) -> AccountId {
        self.id
    }

    pub(crate) fn change<T: Default>(&self, f: impl FnOnce(&Clas, &mut Inner) -> T) -> T {
        let Some(clas) = self.clas.upgrade() else {
            return T::default();
        };
        let mut inner = clas.inner.lock();
        f(&clas, &mut inner)
    }

    fn look<T: Default>(&self, f: impl FnOnce(&Entry) -> T) -> T {
        self.change(|_, inner| inner.accounts.get(self.id).map(f).unwrap_or_default())
    }

    /// Changes limits; `change` says whether somebody is to look after the account now.
    fn limit(&self, change: impl FnOnce(&mut Entry) -> bool) {
        let is_asking = self.change(|clas, inner| {
            clas.note_limits_inside();
            let is_asking = inner.accounts.get_mut(self.id).is_some_and(change);
            if is_asking {
                inner.accounts.asking.insert(self.id);
            }
            clas.wake();
            is_asking
        });
        if is_asking && let Some(clas) = self.clas.upgrade() {
            clas.tell_maker();
        }
    }

    /// Never more than so many bytes are here from now on; what is here above them is to go
    /// ([`Account::is_shrinking`]).
    pub fn set_max(&self, bytes: u64) {
        self.limit(|e| {
            e.limits.max = in_pages(bytes);
            e.shrinks = !e.has_room(0);
            e.shrinks
        });
    }

    /// What is here above so many bytes is sent out from now on.
    pub fn set_high(&self, bytes: u64) {
        self.limit(|e| {
            e.limits.high = in_pages(bytes);
            e.above_high() > 0
        });
    }

    /// Who makes more while more bytes are in the swap's store is held up from now on.
    pub fn set_swap_high(&self, bytes: u64) {
        self.limit(|e| {
            e.limits.swap_high = in_pages(bytes);
            false
        });
    }

    /// Never more than so many bytes come into the swap's store from now on.
    pub fn set_swap_max(&self, bytes: u64) {
        self.change(|_, inner| {
            if let Some(e) = inner.accounts.get_mut(self.id) {
                e.limits.swap = in_pages(bytes);
            }
        });
    }

    /// Whether there is more than the limit, and something is being done about it.
    #[must_use]
    pub fn is_shrinking(&self) -> bool {
        self.look(|e| e.shrinks && !e.has_room(0))
    }

    /// Bytes that are here.
    #[must_use]
    pub fn here(&self) -> u64 {
        self.look(|e| e.here() * PAGE_SIZE)
    }

    #[must_use]
    pub fn stats(&self) -> AccountStats {
        self.look(|e| AccountStats {
            here: e.here() * PAGE_SIZE,
            peak: e.peak.ever * PAGE_SIZE,
            files: e.files_here() * PAGE_SIZE,
            swapped: e.stored * PAGE_SIZE,
            swapped_peak: e.stored_peak.ever * PAGE_SIZE,
            pages_out: e.out,
            pages_in: e.back,
            swap_fails: e.swap_fails,
        })
    }

    /// The highest since the last [`Account::restart_peak`], in bytes.
    #[must_use]
    pub fn recent_peak(&self, of: PeakOf) -> u64 {
        self.look(|e| e.peak_of(of).recent * PAGE_SIZE)
    }

    /// Begins with what there is now; gives what [`Account::recent_peak`] was.
    pub fn restart_peak(&self, of: PeakOf) -> u64 {
        let pages = self.change(|_, inner| {
            let e = inner.accounts.get_mut(self.id)?;
            Some(match of {
                PeakOf::Here => e.peak.restart(e.here()),
                PeakOf::Stored => e.stored_peak.restart(e.stored),
            })
        });
        pages.unwrap_or(0) * PAGE_SIZE
    }

    /// Has `tell` called when a limit of swap is in the way, its own or one above. Locks of this
    /// crate are held: it must take none of those that are held by who calls it.
    pub fn on_swap_fail(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.change(|_, inner| {
            if let Some(e) = inner.accounts.get_mut(self.id) {
                e.on_swap_fail = OnSwapFail(Some(Box::new(tell)));
            }
        });
    }

    /// Of what is here, bytes of frames that nobody has touched: they have no page. It costs a look
    /// at every frame of the container: where somebody else looks already, it is what was found
    /// last.
    #[must_use]
    pub fn untouched(&self) -> u64 {
        let Some(clas) = self.clas.upgrade() else {
            return 0;
        };
        if let Some(_one) = clas.looks.try_lock() {
            let found = clas.untouched_of(self.id);
            self.untouched.store(found, Ordering::Relaxed);
        }
        self.untouched.load(Ordering::Relaxed)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.change(|clas, inner| {
            inner.accounts.close(self.id);
            clas.wake();
        });
    }
}

impl Clas {
    /// A new account below `above`, or the container's. `EAGAIN` where they would nest too deep.
    pub fn open_account(self: &Arc<Self>, above: Option<&Account>) -> Result<Account> {
        let above = above.map_or(AccountId::ROOT, |a| a.id);
        let id = self.inner.lock().accounts.open(above)?;
        Ok(Account {
            clas: Arc::downgrade(self),
            id,
            untouched: AtomicU64::new(0),
        })
    }

    /// Whether there is such an account.
    #[must_use]
    pub fn has_account(&self, id: AccountId) -> bool {
        self.inner.lock().accounts.get(id).is_some()
    }

    /// An account, and all above it.
    #[must_use]
    pub fn upwards(&self, id: AccountId) -> Vec<AccountId> {
        let inner = self.inner.lock();
        inner.accounts.upwards(id).map(|(id, _)| id).collect()
    }

    /// Bytes of frames of an account that are contents of files, or shared memory, and here.
    #[must_use]
    pub fn files_here(&self, id: AccountId) -> u64 {
        let inner = self.inner.lock();
        inner.accounts.get(id).map_or(0, Entry::files_here) * PAGE_SIZE
    }

    /// The most bytes that were in the swap's store at a time.
    #[must_use]
    pub fn swap_peak(&self) -> u64 {
        self.inner.lock().accounts.root().stored_peak.ever * PAGE_SIZE
    }

    /// The kernel's memory for this container's objects has grown by so many bytes, or shrunk. Who
    /// makes more than the limit leaves takes a note of it ([`crate::take_over_limit`]): locks may be
    /// held. Without any of this crate's.
    pub fn add_kernel_memory(&self, bytes: i64) {
        // (A thread that ends may have none any more.)
        let _ = PAYER.try_with(|p| {
            if let Some(p) = p.borrow().as_ref().filter(|p| p.container == self.number) {
                let then = |n: i64| Some(n.saturating_add(bytes).max(0));
                let _ = (p.kernel).fetch_update(Ordering::Relaxed, Ordering::Relaxed, then);
            }
        });
        if self.count_kernel_memory(bytes) {
            crate::high::note_over_limit();
            self.tell_maker();
        }
    }

    /// Who pays for what the calling thread makes here.
    pub(crate) fn payer(&self) -> AccountId {
        // (A thread that ends may have none any more.)
        let own = PAYER.try_with(|p| {
            let p = p.borrow();
            let own = p.as_ref().filter(|p| p.container == self.number);
            own.map(|p| p.account())
        });
        own.ok().flatten().unwrap_or(AccountId::ROOT)
    }

    /// See [`Account::untouched`].
    fn untouched_of(&self, id: AccountId) -> u64 {
        /// Runs that are looked at under one lock, and pages of one that are at once.
        const STEP: usize = 64;
        const PIECE: u64 = (4 << 20) / PAGE_SIZE;
        let (mut at, mut pages) = (0, 0);
        loop {
            let inner = self.inner.lock();
            let runs: Vec<_> = inner.refs.from(at).take(STEP).collect();
            let Some(last) = runs.last() else {
                return pages * PAGE_SIZE;
            };
            at = last.1;
            let is_of = |a: AccountId| a == id || inner.accounts.is_below(a, id);
            let of: Vec<(u64, u64)> = runs
                .iter()
                .filter(|r| is_of(r.2.account()))
                .map(|r| (r.0, r.1))
                .collect();
            drop(inner);
            let pieces = of.into_iter().flat_map(|(start, end)| {
                let starts = (start..end).step_by(PIECE as usize);
                starts.map(move |s| (s, end.min(s + PIECE)))
            });
            for (start, end) in pieces {
                let holes = self.holes(crate::Cla(start * PAGE_SIZE), end - start);
                let empty: u64 = holes.iter().map(|h| h.1).sum();
                // What is swapped out has no page either, and is not here.
                pages += empty.saturating_sub(self.away_of(start, end));
            }
        }
    }
}

#[cfg(test)]
mod tests;
