//! What an [`Mm`](crate::Mm)'s lock protects, in parts. Each part has private fields, and says in
//! its module what it keeps; operations (mmap, a fault, fork) are methods of [`State`] in files of
//! their own that use several.

pub(crate) mod pmas;

use crate::Mm;
use crate::Result;
use crate::absent::Absent;
use crate::ages::{Ages, Old};
use crate::bounds::Bounded;
use crate::chunk::Chunk;
use crate::hands::{Hands, Kin};
use crate::host_map::HostMap;
use crate::names::Names;
use crate::patches::Patches;
use crate::predict::Predictor;
use crate::quota::Quota;
use crate::room::Room;
use crate::vma::Vma;
use crate::vmas::Vmas;
use abi::errno::ENOMEM;
use clas::{Clas, MappingObserver, Waiter};
use platform::AddressSpace;
use pmas::{Freed, Pmas};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Invariants between the parts, where no operation is in progress: every PMA lies in VMAs; every
/// entry of `host` lies in PMAs and is what the host has mapped there; its batch is empty, and no
/// file or frame waits to be dropped (but frames of an application side that is gone). All of it
/// is protected by `Mm::state`.
pub(crate) struct State {
    /// Immutable.
    pub(crate) clas: Arc<Clas>,
    pub(crate) vmas: Vmas,
    pub(crate) pmas: Pmas,
    pub(crate) host: HostMap,
    pub(crate) room: Room,
    pub(crate) quota: Quota,
    /// What it knows of its family is shared with others, under a lock of its own, a leaf.
    pub(crate) predictor: Predictor,
    /// Of anonymous memory.
    pub(crate) names: Names,
    /// The call sites that are patched.
    pub(crate) patches: Patches,
    /// Faults served.
    pub(crate) faults: u64,
    /// How much of new anonymous memory is made at once where there is a limit.
    pub(crate) chunk: Chunk,
    /// How it waits for room, with the lock held. Shared with `Mm`, which asks without it.
    pub(crate) waiter: Arc<Waiter>,
    /// How much may be here, and how much stays. Shared with `Mm`, which changes it without the
    /// lock.
    pub(crate) bounds: Arc<Bounded>,
    /// Who needs room does not wait for it here, but without the lock ([`Bad::Room`]).
    ///
    /// [`Bad::Room`]: crate::types::Bad::Room
    pub(crate) waits_outside: bool,
    /// The memory of another container's file that there was no room in, where one was: to be waited
    /// for there.
    pub(crate) short_elsewhere: Option<Arc<Clas>>,
    /// What an operation found missing that ended with [`Bad::Absent`].
    ///
    /// [`Bad::Absent`]: crate::types::Bad::Absent
    pub(crate) absent: Option<Absent>,
    /// Where memory is sent out next, and brought in.
    pub(crate) swap: Hands,
    /// How long what was not used.
    pub(crate) ages: Ages,
    /// The same in sum. Shared with `Mm`, which tells it without the lock.
    pub(crate) old: Arc<Old>,
    /// Who may have frames of its own, too.
    pub(crate) kin: Arc<Kin>,
    /// To be let go of without the lock: some may be the last.
    pub(crate) met: Vec<Arc<Mm>>,
}

impl State {
    pub(crate) fn new(
        me: Weak<dyn MappingObserver>,
        clas: Arc<Clas>,
        space: Arc<dyn AddressSpace>,
    ) -> State {
        State {
            clas,
            vmas: Vmas::new(me),
            pmas: Pmas::default(),
            host: HostMap::new(space),
            room: Room::new(),
            quota: Quota::new(),
            predictor: Predictor::default(),
            names: Names::default(),
            patches: Patches::default(),
            faults: 0,
            chunk: Chunk::default(),
            waiter: Arc::default(),
            bounds: Arc::default(),
            waits_outside: false,
            short_elsewhere: None,
            absent: None,
            swap: Hands::default(),
            ages: Ages::default(),
            old: Arc::default(),
            kin: Arc::default(),
            met: Vec::new(),
        }
    }

    /// The frames that are to be given back without the lock, once the batch is made.
    pub(crate) fn take_freed(&mut self) -> Freed {
        if self.host.is_gone() {
            // Its threads may still run, for a moment.
            Freed::default()
        } else {
            self.pmas.take_freed()
        }
    }

    /// Makes sure that there may be one more VMA than there are now, plus `more`.
    pub(crate) fn reserve_vmas(&mut self, more: usize) -> Result<()> {
        let n = self.vmas.len() + more;
        if !self.quota.allows(n) {
            return Err(ENOMEM);
        }
        self.quota.take(&self.clas, n + 1, n + 1 + self.pmas.len())
    }

    /// Adds a VMA where there is none; what of the platform's is there makes way.
    pub(crate) fn vma_insert(&mut self, r: Range<u64>, vma: Vma) {
        self.make_way(&r);
        self.vmas.insert(r, vma);
    }

    /// Removes the VMAs of `r` with all that serves them.
    pub(crate) fn vma_remove(&mut self, r: Range<u64>) {
        self.retire(&r);
        self.pma_remove(r.clone());
        self.vmas.remove(r);
        let vmas = self.vmas.len();
        self.quota.spare(&self.clas, vmas, vmas + self.pmas.len());
    }
}
