//! fork(2).

use crate::pma::PmaKind;
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use crate::{Mm, PAGE, Result};
use abi::{Errno, Va};
use clas::Cla;
use platform::AddressSpace;
use std::ops::Range;
use std::sync::Arc;

impl Mm {
    /// A copy in `space`, which is empty: private memory is shared until either side writes, shared memory
    /// is shared for good. No host mappings are made in the child: its faults do that.
    pub fn fork(&self, space: Arc<dyn AddressSpace>) -> Result<Arc<Mm>> {
        let child = Mm::new(self.clas.clone(), space);
        let alone = self.pins.write();
        self.with(|st| {
            let mut to = child.state.lock();
            if !st.patches.is_empty()
                && let Some(sites) = self.space.sites()
            {
                child.space.inherit_sites(&sites)?;
            }
            st.fork_into(&mut to);
            to.keep_inherited(&st.patches);
            st.patches.forked();
            // Before the child can run or be seen: nobody writes to what is shared now.
            st.flush();
            Ok::<(), Errno>(())
        })?;
        drop(alone);
        Ok(child)
    }
}

impl State {
    fn fork_into(&mut self, to: &mut State) {
        to.layout = self.layout.clone();
        to.limits = self.limits;
        to.max_map_count = self.max_map_count;
        to.foreign = self.foreign.clone();
        let vmas: Vec<(Range<u64>, Vma)> = self
            .vmas
            .iter()
            .filter(|(_, v)| !v.flags.contains(VmaFlags::DONTFORK))
            .map(|(r, v)| (r, v.clone()))
            .collect();
        let mut shared: Vec<(Cla, u64)> = Vec::new();
        for (r, mut vma) in vmas {
            // Locks are not inherited.
            vma.flags -= VmaFlags::LOCKED | VmaFlags::LOCKONFAULT;
            if !vma.flags.contains(VmaFlags::WIPEONFORK) {
                let mut hid = false;
                self.pmas.for_each_mut(r.clone(), |_, p| {
                    // A PMA may reach over several VMAs: one before may have marked it already.
                    hid |= !p.is_file();
                    if p.kind == PmaKind::Anon {
                        p.kind = PmaKind::AnonCow;
                    }
                });
                if hid {
                    self.host_protect(r.clone());
                }
                for (pr, p) in self.pmas.range(r.clone()) {
                    let x = pr.start.max(r.start)..pr.end.min(r.end);
                    let p = p.after(x.start - pr.start);
                    let pages = (x.end - x.start) / PAGE;
                    if let Some(at) = p.frames() {
                        shared.push((at, pages));
                    } else if let Some((theirs, at)) = self.foreign_frames(p.backing) {
                        theirs.incref(at, pages);
                    }
                    let free = to.pmas.insert(x, p).is_ok();
                    debug_assert!(free);
                }
            }
            to.account(&vma, r.end - r.start, 1);
            if let Some(f) = &vma.file {
                let m = &f.file.mappable;
                m.add_mapping(to.me.clone(), Va(r.start), f.offset, r.end - r.start);
            }
            let free = to.vmas.insert(r, vma).is_ok();
            debug_assert!(free);
        }
        self.clas.incref_all(&shared);
    }
}
