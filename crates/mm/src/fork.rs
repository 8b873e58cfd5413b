//! fork(2).

use crate::pma::Pma;
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use crate::{Mm, PAGE, Result};
use abi::Errno;
use clas::{Backing, Cla};
use platform::AddressSpace;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::ucounts::Ucounts;

/// Who may write to an address space while it is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// Nobody: its only thread is in fork(2).
    None,
    /// Other threads run. A page that they write meanwhile is in the child as it was at one
    /// moment, as on Linux; so nothing is copied before it is write-protected.
    Others,
}

impl Mm {
    /// A copy in `space`, which is empty: private memory is shared until either side writes,
    /// shared memory is shared for good. Where earlier children of this family faulted, the child
    /// has host mappings from the start, and both have their own frames of what those wrote. It is
    /// charged to `user`.
    pub fn fork(
        &self,
        space: Arc<dyn AddressSpace>,
        writers: Writers,
        user: Option<&Arc<Ucounts>>,
    ) -> Result<Arc<Mm>> {
        let child = Mm::new(self.clas.clone(), space);
        child.privacy.inherit(&self.privacy);
        child.barriers.register(self.barriers.registered());
        if let Some(user) = user {
            child.charge_to(user);
        }
        let unpinned = self.pins.write();
        self.with(|st| {
            let mut to = child.state.lock();
            let serves = self.serves.load(Ordering::Relaxed);
            child.serves.store(serves, Ordering::Relaxed);
            let entries = st.vmas.len() + st.pmas.len();
            to.quota.take(&self.clas, st.vmas.len(), entries)?;
            if !st.patches.is_empty()
                && let (Some(parent), Some(copy)) = (self.space.lanes(), child.space.lanes())
            {
                copy.inherit_sites(&parent.sites())?;
            }
            st.fork_into(&mut to, writers);
            to.kin = st.kin.clone();
            st.kin.add([&self.me, &child.me]);
            to.keep_inherited(&st.patches);
            st.patches.forked();
            // Before the child can run or be seen: nobody writes to what is shared now.
            st.host.flush();
            to.host.flush();
            Ok::<(), Errno>(())
        })?;
        drop(unpinned);
        Ok(child)
    }
}

impl State {
    fn fork_into(&mut self, to: &mut State, writers: Writers) {
        let spots = self.predictor.forks.fork(&mut to.predictor.forks);
        let mut copies = match writers {
            Writers::None => self.copies_for_fork(&spots),
            Writers::Others => Vec::new(),
        };
        to.room.inherit(&self.room);
        to.quota.inherit(&self.quota);
        to.names = self.names.clone();
        to.bounds.set(self.bounds.get().inherited());
        to.pmas.inherit_foreign(&self.pmas);
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
                let kept = |e: &Range<u64>| copies.iter().any(|c| c.0 == *e);
                if self.pmas.share(r.clone(), kept) {
                    self.host_protect(r.clone());
                }
                for (pr, p) in self.pmas.range(r.clone()) {
                    let x = pr.start.max(r.start)..pr.end.min(r.end);
                    if x == pr
                        && let Some(i) = copies.iter().position(|c| c.0 == pr)
                    {
                        to.pmas.inherit(x, Pma::anon(copies.swap_remove(i).1));
                        continue;
                    }
                    let p = p.after(x.start - pr.start);
                    let pages = (x.end - x.start) / PAGE;
                    if let Some(at) = p.frames() {
                        shared.push((at, pages));
                    } else if let Some((theirs, at)) = self.pmas.foreign_frames(p.backing) {
                        theirs.incref(at, pages);
                    }
                    to.pmas.inherit(x, p);
                }
            }
            to.vmas.inherit(r, vma);
        }
        self.clas.incref_all(&shared);
        // Copies of what the child does not have.
        for (r, at) in copies {
            let pages = (r.end - r.start) / PAGE;
            self.pmas.release(Backing::Frames(at), pages);
        }
        for (spot, write) in spots {
            if write {
                to.host_map_hole(spot);
                continue;
            }
            for (e, _) in self.host.range(spot) {
                to.host_map_hole(e);
            }
        }
    }
}
