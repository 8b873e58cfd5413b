//! What an [`Mm`](crate::Mm)'s lock protects.

use crate::Result;
use crate::pma::Pma;
use crate::predict::{Files, Hot, Run, Touch};
use crate::quota::Quota;
use crate::room::Room;
use crate::vma::Vma;
use crate::vmas::Vmas;
use abi::errno::{ENOMEM, ESRCH};
use clas::{Cla, Clas, MappingObserver};
use gap_tree::GapTree;
use parking_lot::Mutex;
use platform::{AddressSpace, MapOp, Prot, USER_MAX, USER_MIN};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

/// Invariants, where no operation is in progress: every PMA lies in VMAs; every entry of `host` lies in
/// PMAs and is what the host has mapped there; `ops` and the dead lists are empty.
pub(crate) struct State {
    pub(crate) clas: Arc<Clas>,
    /// Others that files mapped here have had frames of. Those stay while a PMA may have some: a PMA knows its
    /// frames' CLAS by its descriptor only.
    pub(crate) foreign: Vec<Arc<Clas>>,
    pub(crate) space: Arc<dyn AddressSpace>,
    pub(crate) vmas: Vmas,
    pub(crate) room: Room,
    pub(crate) quota: Quota,
    pub(crate) pmas: GapTree<Pma>,
    /// What the host has mapped, with which protection.
    pub(crate) host: GapTree<Prot>,
    /// Host changes that `flush` will make.
    pub(crate) ops: Vec<MapOp>,
    /// Frames to give back, once the host changes are made and the lock is released. Where the
    /// application side is `gone`, frames stay here until nothing of it can run any more.
    pub(crate) dead_frames: Vec<(Cla, u64)>,
    pub(crate) dead_foreign: Vec<(Arc<Clas>, Cla, u64)>,
    /// The application side was ended, and changes of its mappings are not made any more.
    pub(crate) gone: bool,
    /// What is done now is a guess: it waits for nothing.
    pub(crate) guessing: bool,
    pub(crate) faults: u64,
    /// Where faults of an unknown kind found nothing missing.
    pub(crate) suspects: Suspects,
    pub(crate) random_drop: RandomDrop,
    /// Not while a program is loaded: nothing touches its memory yet.
    pub(crate) running: bool,
    pub(crate) touch: Touch,
    pub(crate) files: Files,
    /// Steps of memory that is being filled, and of copies on write.
    pub(crate) grown: Run,
    pub(crate) copied: Run,
    /// Shared with all that came from the same program by fork. Its lock is a leaf.
    pub(crate) family: Arc<Mutex<Hot>>,
    /// So many faults are still noted there.
    pub(crate) watched: u8,
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
            foreign: Vec::new(),
            space,
            vmas: Vmas::new(me),
            room: Room::new(),
            quota: Quota::new(),
            pmas: GapTree::new(),
            host: GapTree::new(),
            ops: Vec::new(),
            dead_frames: Vec::new(),
            dead_foreign: Vec::new(),
            gone: false,
            guessing: false,
            faults: 0,
            suspects: Suspects::default(),
            random_drop: RandomDrop::default(),
            running: true,
            touch: Touch::default(),
            files: Files::default(),
            grown: Run::default(),
            copied: Run::default(),
            family: Arc::default(),
            watched: 0,
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

    /// Makes the host changes; whether they could be made. If not, nothing is mapped any more.
    pub(crate) fn flush(&mut self) -> bool {
        if self.ops.is_empty() {
            return true;
        }
        let done = self.space.apply(&self.ops);
        self.suspects.clear_changed(&self.ops);
        self.ops.clear();
        match done {
            Ok(()) => true,
            // The application side is gone, and its mappings with it, soon.
            Err(ESRCH) => {
                self.host.clear();
                self.gone = true;
                true
            }
            Err(_) => {
                self.host_reset();
                false
            }
        }
    }

    /// Drops every host mapping, whatever state they are in.
    pub(crate) fn host_reset(&mut self) {
        self.ops.clear();
        self.host.clear();
        self.suspects = Suspects::default();
        let all = MapOp::Unmap {
            va: USER_MIN,
            len: USER_MAX - USER_MIN,
        };
        if self.space.apply(&[all]).is_err() {
            // What is still mapped may be given to others: nothing may run on it.
            self.space.kill();
            self.gone = true;
        }
    }

    pub(crate) fn debug_drop(&mut self) {
        if let Some(point) = self.random_drop.next()
            && let Some((r, _)) = self
                .host
                .first_from(point % USER_MAX)
                .or_else(|| self.host.iter().next())
        {
            self.host_unmap(r);
        }
    }
}

/// Threads and where each of them faulted last, though all that is allowed was mapped there. (An application's
/// thread is served by one thread of the Sentry's.)
#[derive(Default)]
pub(crate) struct Suspects(VecDeque<(ThreadId, u64)>);

impl Suspects {
    /// Beyond, the oldest is forgotten: its thread just faults once more.
    const MAX: usize = 64;

    /// Whether the caller is suspected at `va`; it is not any more.
    pub(crate) fn take(&mut self, va: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let me = std::thread::current().id();
        let found = self.0.iter().position(|s| s.0 == me);
        found
            .and_then(|i| self.0.remove(i))
            .is_some_and(|s| s.1 == va)
    }

    pub(crate) fn add(&mut self, va: u64) {
        if self.0.len() == Self::MAX {
            self.0.pop_front();
        }
        self.0.push_back((std::thread::current().id(), va));
    }

    /// The caller will serve another application's thread.
    pub(crate) fn forget(&mut self) {
        let me = std::thread::current().id();
        self.0.retain(|s| s.0 != me);
    }

    /// A fault where one of these took something away says nothing.
    fn clear_changed(&mut self, ops: &[MapOp]) {
        if self.0.is_empty() {
            return;
        }
        for op in ops {
            if let MapOp::Unmap { va, len } | MapOp::Protect { va, len, .. } = *op {
                self.0.retain(|s| s.1 < va || s.1 - va >= len);
            }
        }
    }
}

/// When to drop a host mapping for no reason.
#[derive(Default)]
pub(crate) struct RandomDrop {
    seed: u64,
    every: u32,
    count: u32,
    /// Set by faults: what they have mapped must stay until the application gets to use it.
    pub(crate) hold: bool,
}

impl RandomDrop {
    pub(crate) fn new(seed: u64, every: u32) -> Self {
        RandomDrop {
            seed: seed | 1,
            every,
            count: 0,
            hold: false,
        }
    }

    /// An address, every so often.
    fn next(&mut self) -> Option<u64> {
        if self.every == 0 || std::mem::take(&mut self.hold) {
            return None;
        }
        self.count += 1;
        if self.count < self.every {
            return None;
        }
        self.count = 0;
        // Xorshift.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        Some(self.seed)
    }
}
