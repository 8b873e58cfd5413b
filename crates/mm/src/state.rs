//! What an [`Mm`](crate::Mm)'s lock protects.

use crate::Result;
use crate::host_map::HostMap;
use crate::pmas::Pmas;
use crate::predict::Predictor;
use crate::quota::Quota;
use crate::room::Room;
use crate::vma::Vma;
use crate::vmas::Vmas;
use abi::errno::ENOMEM;
use clas::{Clas, MappingObserver};
use platform::AddressSpace;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Invariants, where no operation is in progress: every PMA lies in VMAs; every entry of `host` lies in
/// PMAs and is what the host has mapped there; `ops` and the dead lists are empty.
pub(crate) struct State {
    pub(crate) clas: Arc<Clas>,
    pub(crate) vmas: Vmas,
    pub(crate) room: Room,
    pub(crate) quota: Quota,
    pub(crate) pmas: Pmas,
    pub(crate) host: HostMap,
    pub(crate) faults: u64,
    pub(crate) predictor: Predictor,
    /// The call sites that are patched.
    pub(crate) patches: crate::patches::Patches,
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
            room: Room::new(),
            quota: Quota::new(),
            pmas: Pmas::default(),
            host: HostMap::new(space),
            faults: 0,
            predictor: Predictor::default(),
            patches: crate::patches::Patches::default(),
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
