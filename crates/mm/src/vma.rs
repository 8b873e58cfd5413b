//! VMAs: what the application asked for.

use crate::state::State;
use crate::types::{Access, MapName};
use crate::{PAGE, Result};
use abi::Va;
use abi::errno::ENOMEM;
use clas::Mappable;
use platform::Prot;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use vfs::ucounts::Charge;

/// Mappings are taken from the container's so many at a time.
const MAPPINGS_STEP: u64 = 1024;
/// So many VMAs and PMAs are what an address space costs anyway; more are charged to its user, this much each.
const OWN_ENTRIES: usize = 2048;
const ENTRY: u64 = 128;

/// What so many VMAs and PMAs are charged for: in steps, as most calls change their number.
fn entries_charged(n: usize) -> u64 {
    let more = n.saturating_sub(OWN_ENTRIES) as u64;
    more.next_multiple_of(MAPPINGS_STEP) * ENTRY
}

bitflags::bitflags! {
    /// Properties of a VMA besides its protection (`VM_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct VmaFlags: u32 {
        const SHARED = 1 << 0;
        /// A stack: grows towards lower addresses.
        const GROWSDOWN = 1 << 1;
        const NORESERVE = 1 << 2;
        const LOCKED = 1 << 3;
        const LOCKONFAULT = 1 << 4;
        const DONTFORK = 1 << 5;
        const WIPEONFORK = 1 << 6;
        const DONTDUMP = 1 << 7;
        /// `MAP_SHARED | MAP_ANONYMOUS`: its file is a `SharedAnon`.
        const ANON_SHARED = 1 << 8;
        /// Its pages may go away at any time (here they do not), and no child has them.
        const DROPPABLE = 1 << 9;
        /// Its NUMA policy, as [`crate::policy::Policy`] has it.
        const POLICY = 0xffff_fc00;
    }
}

/// A file as it is mapped.
pub(crate) struct FileRef {
    pub(crate) mappable: Arc<dyn Mappable>,
    pub(crate) name: Option<Arc<dyn MapName>>,
    pub(crate) keep: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether it counts as a shared mapping that may be written ([`Mappable::map_writable`]): the count goes
    /// with the last VMA that came from one mmap.
    pub(crate) counted: bool,
}

impl Drop for FileRef {
    fn drop(&mut self) {
        if self.counted {
            self.mappable.unmap_writable();
        }
    }
}

/// A file and where in it.
#[derive(Clone)]
pub(crate) struct FileAt {
    pub(crate) file: Arc<FileRef>,
    pub(crate) offset: u64,
}

#[derive(Clone)]
pub(crate) struct Vma {
    pub(crate) prot: Prot,
    /// What `mprotect` may give (`VM_MAY*`).
    pub(crate) max_prot: Prot,
    pub(crate) flags: VmaFlags,
    pub(crate) file: Option<FileAt>,
}

/// The address of a file's object: its identity.
pub(crate) fn identity(m: &Arc<dyn Mappable>) -> usize {
    Arc::as_ptr(m).cast::<()>().addr()
}

fn keep_identity(f: &FileRef) -> usize {
    f.keep
        .as_ref()
        .map_or(0, |k| Arc::as_ptr(k).cast::<()>().addr())
}

impl Vma {
    /// The same, starting `n` bytes further on.
    pub(crate) fn after(&self, n: u64) -> Vma {
        let mut v = self.clone();
        if let Some(f) = &mut v.file {
            f.offset += n;
        }
        v
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.flags.contains(VmaFlags::SHARED)
    }

    pub(crate) fn is_private_anon(&self) -> bool {
        self.file.is_none()
    }

    pub(crate) fn allows(&self, access: Access) -> bool {
        match access {
            // On x86, what can be written or executed can be read.
            Access::Read => self.prot != Prot::NONE,
            Access::Write => self.prot.contains(Prot::WRITE),
            Access::Exec => self.prot.contains(Prot::EXEC),
        }
    }

    /// Whether `next`, which begins `len` bytes further on, continues this one.
    fn continues(&self, len: u64, next: &Vma) -> bool {
        let files = match (&self.file, &next.file) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.offset.checked_add(len) == Some(b.offset)
                    && identity(&a.file.mappable) == identity(&b.file.mappable)
                    && keep_identity(&a.file) == keep_identity(&b.file)
            }
            _ => false,
        };
        files
            && self.prot == next.prot
            && self.max_prot == next.max_prot
            && self.flags == next.flags
    }

    /// Whether it counts for `RLIMIT_DATA`: private, writable, not a stack.
    pub(crate) fn is_data(prot: Prot, flags: VmaFlags) -> bool {
        prot.contains(Prot::WRITE) && !flags.intersects(VmaFlags::SHARED | VmaFlags::GROWSDOWN)
    }
}

impl State {
    /// Counts `len` bytes of `vma` in or, if `sign` is negative, out.
    pub(crate) fn account(&mut self, vma: &Vma, len: u64, sign: i64) {
        let pages = (len / PAGE) as i64 * sign;
        let add = |n: &mut u64| *n = n.saturating_add_signed(pages);
        let c = &mut self.counts;
        add(&mut c.total);
        if Vma::is_data(vma.prot, vma.flags) {
            add(&mut c.data);
        } else if vma.flags.contains(VmaFlags::GROWSDOWN) {
            add(&mut c.stack);
        } else if vma.prot.contains(Prot::EXEC) && !vma.prot.contains(Prot::WRITE) {
            add(&mut c.exec);
        }
        if vma.flags.contains(VmaFlags::LOCKED) {
            add(&mut c.locked);
        }
        c.peak = c.peak.max(c.total);
    }

    /// Whether `RLIMIT_AS` and `RLIMIT_DATA` let `len` more bytes in (`may_expand_vm`).
    pub(crate) fn may_expand(&self, prot: Prot, flags: VmaFlags, len: u64) -> bool {
        let fits = |pages: u64, limit: u64| pages + len / PAGE <= limit / PAGE;
        fits(self.counts.total, self.limits.address_space)
            && (!Vma::is_data(prot, flags) || fits(self.counts.data, self.limits.data))
    }

    /// Makes `at` a border between VMAs.
    pub(crate) fn vma_split(&mut self, at: u64) {
        self.vmas.split(at, |v, r| v.after(at - r.start));
    }

    /// How many more VMAs there would be if `r` were cut out.
    pub(crate) fn cuts(&self, r: &Range<u64>) -> usize {
        let cut = |at: u64| usize::from(self.vmas.get(at).is_some_and(|(e, _)| e.start < at));
        cut(r.start) + cut(r.end)
    }

    /// Whether one more VMA than there are now, plus `more`, is too many.
    pub(crate) fn too_many(&mut self, more: usize) -> Result<()> {
        let n = self.vmas.len() + more;
        if n > self.max_map_count {
            return Err(ENOMEM);
        }
        // One more than asked for: that is what its caller is about to add.
        self.take_mappings(n + 1)
    }

    /// Makes sure that its user may have so many VMAs and PMAs.
    pub(crate) fn charge_entries(&mut self, n: usize) -> Result<()> {
        let bytes = entries_charged(n);
        let fits = |c: &mut Charge| bytes <= c.amount() || c.resize(bytes);
        if self.kmem.as_mut().is_none_or(fits) {
            Ok(())
        } else {
            Err(ENOMEM)
        }
    }

    /// Makes sure that there may be `n` VMAs.
    pub(crate) fn take_mappings(&mut self, n: usize) -> Result<()> {
        self.charge_entries(n + self.pmas.len())?;
        let beyond = n.saturating_sub(crate::OWN_MAPPINGS) as u64;
        if beyond > self.extra {
            // Some at a time; the last ones are asked for one by one.
            let missing = beyond - self.extra;
            let step = missing.next_multiple_of(MAPPINGS_STEP);
            let got = [step, missing]
                .into_iter()
                .find(|n| self.clas.take_mappings(*n));
            self.extra += got.ok_or(ENOMEM)?;
        }
        Ok(())
    }

    /// Gives back what is not needed any more of what [`State::take_mappings`] took.
    fn spare_mappings(&mut self) {
        let few = self.vmas.len() + self.pmas.len() + 2 * MAPPINGS_STEP as usize;
        let most = entries_charged(few);
        if let Some(c) = self.kmem.as_mut().filter(|c| c.amount() > most) {
            c.set(most);
        }
        let beyond = (self.vmas.len() + 3).saturating_sub(crate::OWN_MAPPINGS) as u64;
        if self.extra > beyond + 2 * MAPPINGS_STEP {
            self.clas.give_mappings(self.extra - beyond);
            self.extra = beyond;
        }
    }

    /// Counts `r` as a part of `vma` from now on; what of the platform's is there makes way.
    pub(crate) fn occupy(&mut self, r: &Range<u64>, vma: &Vma) {
        self.make_way(r);
        self.account(vma, r.end - r.start, 1);
    }

    /// Adds a VMA where there is none, and joins it with its neighbours.
    pub(crate) fn vma_insert(&mut self, r: Range<u64>, vma: Vma) {
        self.occupy(&r, &vma);
        if let Some(f) = &vma.file {
            let m = &f.file.mappable;
            m.add_mapping(self.me.clone(), Va(r.start), f.offset, r.end - r.start);
        }
        let free = self.vmas.insert(r.clone(), vma).is_ok();
        assert!(free, "two mappings of the same address");
        self.vma_merge(r.start);
        self.vma_merge(r.end);
    }

    /// Joins the VMAs that meet at `at`, if they fit together.
    pub(crate) fn vma_merge(&mut self, at: u64) {
        let Some((a, low)) = self.vmas.last_below(at) else {
            return;
        };
        let Some((b, high)) = self.vmas.get(at) else {
            return;
        };
        if a.end != at || !low.continues(a.end - a.start, high) {
            return;
        }
        if let Some((_, v)) = self.vmas.remove(b.start) {
            self.dead_files.extend(v.file.map(|f| f.file));
        }
        self.vmas.resize(a.start, a.start..b.end);
    }

    /// Joins what can be joined in and around `r`.
    pub(crate) fn vma_merge_range(&mut self, r: Range<u64>) {
        self.vma_merge(r.end);
        let mut at = r.end;
        while let Some((e, _)) = self.vmas.last_below(at)
            && e.end > r.start
        {
            self.vma_merge(e.start);
            at = e.start;
        }
    }

    /// Removes the VMAs of `r` with all that serves them.
    pub(crate) fn vma_remove(&mut self, r: Range<u64>) {
        self.retire(&r);
        self.vma_split(r.start);
        self.vma_split(r.end);
        self.pma_remove(r.clone());
        while let Some((e, _)) = self.vmas.first_from(r.start)
            && e.start < r.end
        {
            let Some((e, vma)) = self.vmas.remove(e.start) else {
                return;
            };
            self.account(&vma, e.end - e.start, -1);
            if let Some(f) = vma.file {
                let m = &f.file.mappable;
                m.remove_mapping(&self.me, Va(e.start), f.offset, e.end - e.start);
                self.dead_files.push(f.file);
            }
        }
        self.spare_mappings();
    }

    /// Changes every VMA of `r` (which the caller has checked for room for two more), keeping count.
    pub(crate) fn vma_change(&mut self, r: Range<u64>, mut f: impl FnMut(&mut Vma)) {
        self.vma_split(r.start);
        self.vma_split(r.end);
        let mut counted: smallvec::SmallVec<[(Vma, u64, i64); 8]> = smallvec::SmallVec::new();
        self.vmas.for_each_mut(r.clone(), |e, v| {
            let len = e.end - e.start;
            let without_file = |v: &Vma| Vma {
                file: None,
                ..v.clone()
            };
            counted.push((without_file(v), len, -1));
            f(v);
            counted.push((without_file(v), len, 1));
        });
        for (v, len, sign) in counted {
            self.account(&v, len, sign);
        }
        self.vma_merge_range(r);
    }
}
