//! The memory manager: one application address space.
//!
//! Linux keeps VMAs ("what the application asked for") and page tables ("which frame serves it").
//! Here:
//!
//! ```text
//! VMA:       VA ──► file:offset, or anonymous    what the application asked for    `vmas`
//! PMA:       VA ──► frames, or a host file       what serves it                    `pmas`
//! host map:  VA ──► the same, in the stub        a cache of the PMA                `host_map`
//! ```
//!
//! **The central invariant: a host mapping is a cache entry of a PMA.** It may be dropped at any
//! moment, and the next fault rebuilds it. It never grants more than VMA and PMA together allow:
//! in particular no write to frames that others may share. When the host runs out of mappings, all
//! of this address space's are dropped at once ([`Mm::drop_host_mappings`]).
//!
//! The Sentry reads and writes application memory by PMAs, through the CLAS's own mapping, never
//! through the host mapping.
//!
//! # Copy-on-write
//!
//! ```text
//!             fork                      write, alone
//!   Anon ───────────────► AnonCow ─────────────────────► Anon
//!    ▲                       │ write, shared: copy 16 KiB or more
//!    └───────────────────────┘
//!   File (private) ── write: copy 64 KiB or more ──► Anon
//!   Anon, AnonCow ── long unused, alone ──► Swapped ── access ──► Anon, or AnonCow if shared since
//!   File (shared)  ── write: ask the file for Access::Write ──► FileWritable
//! ```
//!
//! # Prediction
//!
//! When to map and how much is a guess, by what the application did before. `predict` makes plans
//! of history; `prefault` does what they say, and looks at what became of it.
//!
//! # Where what is
//!
//! `State` has parts with private fields, which keep what can be kept by one of them alone:
//!
//! | part | holds |
//! |---|---|
//! | `vmas` | the VMAs, their counts, and the files to be dropped |
//! | `pmas` | the PMAs, and the frames to be given back |
//! | `host_map` | what the host has mapped, and the batch of changes |
//! | `room` | the limits and the layout of the image |
//! | `quota` | what is taken of the container's mappings and the user's memory |
//! | `bounds` | how much memory may be here, and how much stays |
//! | `predict` | what history tells |
//! | `chunk`, `waiter` | how much is made at once under a limit, and how it waits for room |
//! | `swap`, `ages` | where it is swapped next; how long what was not used (`Mm` tells the sums) |
//! | `names` | names of anonymous memory |
//! | `absent` | what must be asked for without the lock |
//! | `kin` | who may have its frames, too |
//! | `patches` | the patched call sites |
//!
//! Below them are single VMAs (`vma`), PMAs (`pma`) and what goes in and out (`types`). Above them
//! are operations: `resolve` finds or makes the PMA for an access; `host` makes the cache agree
//! with VMAs and PMAs; `place` finds an address; and there is a file for each group of calls
//! (`map`, `remap`, `protect`, `seal`, `brk`, `advise`, `lock`, `policy`, `fork`), for faults
//! (`fault`, `stack`), for giving back what nobody touched (`trim`) and for what is swapped out
//! (`swap`) and how long it was not used (`age`), for the Sentry's accesses (`copy`, `user`,
//! `futex`), for code (`patch`) and for `/proc` (`info`). Beside these: what is kept from others
//! (`privacy`, `secret`, `confidential`), shared memory without a file (`shared_anon`), names
//! (`naming`), membarrier(2) (`barriers`), where a call site's second jump lies (`padding`),
//! what `swap` keeps (`hands`), and faults that found nothing missing (`suspects`).
//! An operation ends in `Mm::with`: the batch is made, then, without the lock, frames are given
//! back and files dropped.
//!
//! # Lock order
//!
//! ```text
//! file position (vfs)
//!   Mm::seen                (what others are told of its size)
//!   Mm::pins                (shared: an access in progress; exclusive: fork)
//!     Mm::state             (parent before child in fork; a second one by trying only)
//!       Mappable::backing's lock, MappingRegistry
//!         Clas
//!       AddressSpace::apply
//!       the family's hot places (`predict`)
//! ```
//!
//! `Mm::state` is never held while a file's last reference is dropped, nor while a
//! `MappingRegistry` calls observers (they take it), nor while a file is synced.
#![forbid(unsafe_code)]

mod absent;
mod advise;
mod age;
mod ages;
mod barriers;
mod bounds;
mod brk;
mod chunk;
mod confidential;
mod copy;
mod fault;
mod fork;
pub mod futex;
mod hands;
mod host;
mod host_map;
mod info;
mod lock;
mod map;
pub mod names;
mod naming;
#[cfg(fuzzing)]
pub mod padding;
#[cfg(not(fuzzing))]
mod padding;
mod patch;
mod patches;
mod place;
mod pma;
pub mod policy;
mod predict;
mod prefault;
mod privacy;
mod protect;
mod quota;
mod remap;
mod resolve;
mod room;
mod seal;
mod secret;
mod shared_anon;
mod stack;
mod state;
mod suspects;
mod swap;
mod trim;
mod types;
mod user;
mod vma;
mod vmas;

use abi::errno::ESRCH;
use abi::{Errno, Va};
use ages::Old;
use bounds::Bounded;
use clas::{Clas, MappingObserver, Waiter};
use parking_lot::{Mutex, RwLock};
use platform::{AddressSpace, AppThread, MapOp};
use state::State;
use state::pmas::Charged;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::ucounts::Ucounts;

pub use ages::AGES;
pub use barriers::Barriers;
pub use bounds::Bounds;
pub use fork::Writers;
pub use futex::FutexKey;
pub use info::{Footprint, Usage, VmaInfo, VmaUsage};
pub use platform::{Prot, USER_MAX, USER_MIN};
pub use privacy::{Dumpable, Privacy};
pub use room::Layout;
pub use swap::{Pick, SwapOut};
pub use types::{Access, Fault, FaultInfo, Limits, MapFile, MapName, MmapRequest};
pub use user::{UserIo, UserRange};
pub use vma::VmaFlags;

/// `vm.max_map_count`, at first as distributions for large programs set it. The host's does not
/// matter: its mappings are a cache. Beyond [`OWN_MAPPINGS`], an address space has them from what
/// the container has for all ([`clas::MAPPINGS`]): each costs the Sentry memory.
pub static MAX_MAP_COUNT: AtomicI64 = AtomicI64::new(1 << 20);
/// What every address space may have: Linux's own default.
pub const OWN_MAPPINGS: usize = 65_530;
/// Pages kept free below a stack (`stack_guard_gap`).
pub const STACK_GUARD_PAGES: u64 = 256;

/// One application address space. See the crate's documentation.
pub struct Mm {
    /// Immutable; unique for ever.
    id: u64,
    /// Immutable.
    me: Weak<Mm>,
    /// Immutable.
    clas: Arc<Clas>,
    /// Immutable. What is mapped there is changed under `state`.
    space: Arc<dyn AddressSpace>,
    /// All else: see [`State`].
    state: Mutex<State>,
    /// Held shared while an access uses frames without `state`, exclusive by fork: what such an
    /// access writes must not end in the child.
    pins: RwLock<()>,
    /// Has atomics, and a leaf, of its own.
    privacy: Privacy,
    /// Atomic.
    barriers: Barriers,
    /// See [`State`]. Atomic.
    waiter: Arc<Waiter>,
    /// Counted by the PMAs. Atomics.
    charged: Arc<Charged>,
    /// See [`State`]. Atomics.
    bounds: Arc<Bounded>,
    /// See [`State`]. Atomics.
    old: Arc<Old>,
    /// Taken before `state`.
    seen: Mutex<Option<info::Seen>>,
    /// Whether it ever mapped a file that a program serves.
    serves: AtomicBool,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Mm {
    /// An empty address space. `space` must have nothing mapped below [`USER_MAX`].
    #[must_use]
    pub fn new(clas: Arc<Clas>, space: Arc<dyn AddressSpace>) -> Arc<Mm> {
        Arc::new_cyclic(|me: &Weak<Mm>| {
            let own = me.clone();
            let me: Weak<dyn MappingObserver> = me.clone();
            let state = State::new(me, clas.clone(), space.clone());
            Mm {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                me: own,
                waiter: state.waiter.clone(),
                charged: state.pmas.charged().clone(),
                bounds: state.bounds.clone(),
                old: state.old.clone(),
                state: Mutex::new(state),
                clas,
                space,
                pins: RwLock::new(()),
                privacy: Privacy::default(),
                barriers: Barriers::default(),
                seen: Mutex::new(None),
                serves: AtomicBool::new(false),
            }
        })
    }

    /// What it takes of the kernel's memory is this user's from now on.
    pub fn charge_to(&self, user: &Arc<Ucounts>) {
        self.state.lock().quota.charge_to(user);
    }

    /// Who may look into it.
    #[must_use]
    pub fn privacy(&self) -> &Privacy {
        &self.privacy
    }

    /// What membarrier(2) knows of it.
    #[must_use]
    pub fn barriers(&self) -> &Barriers {
        &self.barriers
    }

    /// What a process has that has none any more: nothing can be mapped or run there.
    #[must_use]
    pub fn none(clas: Arc<Clas>) -> Arc<Mm> {
        Mm::new(clas, Arc::new(NoSpace))
    }

    /// A number that no other address space has had.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where its application code runs.
    #[must_use]
    pub fn address_space(&self) -> &Arc<dyn AddressSpace> {
        &self.space
    }

    #[must_use]
    pub fn clas(&self) -> &Arc<Clas> {
        &self.clas
    }

    /// The resource limits that its operations check from now on: call it when they (or the
    /// capability behind `memlock`) change.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().room.set_limits(limits);
    }

    /// Runs `f` on the state, then does what it put off: host mappings first; then, without the
    /// lock, giving frames back and dropping files.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut st = self.state.lock();
        let r = f(&mut st);
        st.host.drop_at_random();
        st.host.flush();
        let freed = st.take_freed();
        let files = st.vmas.take_dropped();
        let met = std::mem::take(&mut st.met);
        let absent = st.absent.take();
        drop(st);
        freed.decref(&self.clas);
        drop((files, met, absent));
        r
    }

    /// Drops all host mappings: the application's next accesses rebuild what it needs.
    pub fn drop_host_mappings(&self) {
        self.with(|st| st.host.unmap(0..USER_MAX));
    }

    /// Drops the host mappings of `[va, va + len)`.
    pub fn drop_host_range(&self, va: Va, len: u64) {
        self.with(|st| st.host.unmap(va.0..va.0.saturating_add(len).min(USER_MAX)));
    }

    /// For tests of the central invariant: every `every`th operation drops a host mapping at
    /// random. Zero ends it.
    pub fn set_random_drop(&self, seed: u64, every: u32) {
        self.state.lock().host.set_random_drop(seed, every);
    }

    /// The calling thread serves no thread of this address space any more.
    pub fn forget_thread(&self) {
        self.state.lock().host.suspects().forget();
    }

    /// A program is about to be loaded: nothing is mapped on the host until [`Mm::loaded`].
    pub fn begin_loading(&self) {
        self.state.lock().predictor.loading = true;
    }

    /// The program is loaded: maps all that it has, in one hand-over.
    pub fn loaded(&self) {
        self.with(|st| {
            st.predictor.loading = false;
            st.host.hold();
            st.map_all();
        });
    }
}

struct NoSpace;

impl AddressSpace for NoSpace {
    fn apply(&self, _ops: &[MapOp]) -> Result<()> {
        Err(ESRCH)
    }
    fn new_thread(&self) -> Result<Box<dyn AppThread>> {
        Err(ESRCH)
    }
    fn kill(&self) {}
    fn retire(&self, _bytes: u64, then: Box<dyn FnOnce() + Send>) {
        then();
    }
}

impl Drop for Mm {
    fn drop(&mut self) {
        self.release();
    }
}

impl Mm {
    /// Gives everything back. Files go at once: others may wait for their last user. Frames go
    /// when nothing of them is mapped any more, which the platform tells: nobody waits for that.
    fn release(&self) {
        // Before nobody has it any more who could be asked; who was doomed is expected already.
        self.doom();
        let mut st = self.state.lock();
        // The application side goes as a whole, and its patched sites with it.
        st.patches = patches::Patches::default();
        st.host.forget();
        st.vma_remove(0..u64::MAX);
        let freed = st.pmas.take_freed();
        let files = st.vmas.take_dropped();
        st.quota.give_back(&self.clas);
        drop(st);
        let clas = self.clas.clone();
        let pages = freed.own_pages();
        let then = Box::new(move || {
            freed.decref(&clas);
            clas.has_ended();
        });
        self.space.retire(pages * PAGE, then);
        drop(files);
    }
}

impl MappingObserver for Mm {
    fn invalidate(&self, places: &[(Va, u64)]) {
        self.with(|st| {
            for (va, len) in places {
                st.forget_file(va.0..va.0.saturating_add(*len));
            }
        });
    }
    fn truncated(&self, places: &[(Va, u64)]) {
        self.with(|st| {
            for (va, len) in places {
                st.forget_behind_end(va.0..va.0.saturating_add(*len));
            }
        });
    }
    fn release(&self, places: &[(Va, u64)]) {
        self.give_files(places);
    }
}

impl std::fmt::Debug for Mm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mm({})", self.id)
    }
}

/// Rounds a length up to pages; `None` past the end.
const fn page_align(len: u64) -> Option<u64> {
    match len.checked_add(abi::PAGE_SIZE - 1) {
        Some(v) => Some(v & !(abi::PAGE_SIZE - 1)),
        None => None,
    }
}

const PAGE: u64 = abi::PAGE_SIZE;

type Result<T> = core::result::Result<T, Errno>;

#[cfg(test)]
mod tests;
