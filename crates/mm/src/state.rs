//! What an [`Mm`](crate::Mm)'s lock protects.

use crate::info::Layout;
use crate::pma::Pma;
use crate::types::Limits;
use crate::vma::{FileRef, Vma, VmaFlags};
use abi::errno::ESRCH;
use clas::{Cla, Clas, MappingObserver};
use gap_tree::GapTree;
use platform::{AddressSpace, MapOp, Prot, USER_MAX, USER_MIN};
use std::sync::{Arc, Weak};

/// Pages of each kind, as Linux's `mm_struct` counts them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) total: u64,
    pub(crate) data: u64,
    pub(crate) stack: u64,
    pub(crate) exec: u64,
    pub(crate) locked: u64,
    /// The highest `total` has been.
    pub(crate) peak: u64,
}

/// Invariants, where no operation is in progress: every PMA lies in VMAs; every entry of `host` lies in
/// PMAs and is what the host has mapped there; `ops` and the dead lists are empty.
pub(crate) struct State {
    /// The `Mm` itself, for files.
    pub(crate) me: Weak<dyn MappingObserver>,
    pub(crate) clas: Arc<Clas>,
    pub(crate) space: Arc<dyn AddressSpace>,
    pub(crate) vmas: GapTree<Vma>,
    pub(crate) pmas: GapTree<Pma>,
    /// What the host has mapped, with which protection.
    pub(crate) host: GapTree<Prot>,
    /// Host changes that `flush` will make.
    pub(crate) ops: Vec<MapOp>,
    /// Frames to give back, and files to drop, once the host changes are made and the lock is released.
    pub(crate) dead_frames: Vec<(Cla, u64)>,
    pub(crate) dead_files: Vec<Arc<FileRef>>,
    pub(crate) layout: Layout,
    pub(crate) limits: Limits,
    pub(crate) counts: Counts,
    /// `mlockall(MCL_FUTURE)`: flags that new mappings get.
    pub(crate) def_flags: VmaFlags,
    pub(crate) max_map_count: usize,
    pub(crate) faults: u64,
    /// Where the last fault of an unknown kind found nothing missing.
    pub(crate) suspect: Option<u64>,
    pub(crate) random_drop: RandomDrop,
}

impl State {
    pub(crate) fn new(
        me: Weak<dyn MappingObserver>,
        clas: Arc<Clas>,
        space: Arc<dyn AddressSpace>,
    ) -> State {
        State {
            me,
            clas,
            space,
            vmas: GapTree::new(),
            pmas: GapTree::new(),
            host: GapTree::new(),
            ops: Vec::new(),
            dead_frames: Vec::new(),
            dead_files: Vec::new(),
            layout: Layout::default(),
            limits: Limits::default(),
            counts: Counts::default(),
            def_flags: VmaFlags::empty(),
            max_map_count: crate::MAX_MAP_COUNT,
            faults: 0,
            suspect: None,
            random_drop: RandomDrop::default(),
        }
    }

    /// Makes the host changes; whether they could be made. If not, nothing is mapped any more.
    pub(crate) fn flush(&mut self) -> bool {
        if self.ops.is_empty() {
            return true;
        }
        let done = self.space.apply(&self.ops);
        self.ops.clear();
        match done {
            Ok(()) => true,
            // The application side is gone, and its mappings with it.
            Err(ESRCH) => {
                self.host.clear();
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
        let all = MapOp::Unmap {
            va: USER_MIN,
            len: USER_MAX - USER_MIN,
        };
        if let Err(e) = self.space.apply(&[all])
            && e != ESRCH
        {
            // What is still mapped may be given to others: nothing may run on it.
            self.space.kill();
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
