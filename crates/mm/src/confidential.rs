//! Confidential memory (ContainerVisor, section III.D): what is in it is overwritten as soon as it
//! is given up, and goes nowhere else meanwhile ([`clas::Clas::mark_confidential`]).
//!
//! # Invariants
//!
//! - What serves a VMA with [`VmaFlags::CONFIDENTIAL`] is marked before anybody can write to it:
//!   what is there when the VMA becomes so, and what PMAs are made of later
//!   ([`State::mark_new`]). That are private frames, and those of files in memory that it shares,
//!   another container's, too. Files that the host keeps are the host's.
//! - Such a VMA is not dumped, and what it has is not swapped out. What is swapped out already is
//!   brought in first, also what of a file is mapped nowhere.
//! - fork(2) and mremap(2) keep the flag; a copy of a marked frame is marked.
//! - Where all of a process is confidential ([`Mm::set_confidential`]), new VMAs are, and the same
//!   holds for its children and the programs that it becomes.
//! - A process that has a descriptor of a confidential file, by whatever way, is confidential: it
//!   is marked before the descriptor is installed (`Task::heed_confidential`, by each call that
//!   gives somebody a file), and a fork or an exec copies the table of descriptors before it looks
//!   at the mark. (Whose program is such a file is marked before it is loaded. Who shares the table
//!   but not the memory is not marked: docs/decisions/0031.)

use crate::pma::{Pma, PmaKind};
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use crate::{Mm, PAGE, Result};
use abi::errno::ENOMEM;
use std::ops::Range;

impl Mm {
    /// All of its memory is confidential from now on; `ENOMEM` where something that is swapped out
    /// finds no room.
    pub fn set_confidential(&self) -> Result<()> {
        self.with(|st| {
            if st.is_confidential() {
                return Ok(());
            }
            let all: Vec<(Range<u64>, Vma)> = st.vmas.iter().map(|(r, v)| (r, v.clone())).collect();
            for (r, vma) in all {
                st.make_confidential(r, &vma)?;
            }
            // (What comes while it is tried finds the lock taken.)
            st.room
                .add_default(VmaFlags::CONFIDENTIAL | VmaFlags::DONTDUMP);
            Ok(())
        })
    }

    /// Whether all of its memory is confidential.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.with(|st| st.is_confidential())
    }
}

impl State {
    fn is_confidential(&self) -> bool {
        let flags = self.room.default_flags();
        flags.contains(VmaFlags::CONFIDENTIAL)
    }

    /// What serves `r`, a part of one VMA, is confidential from now on, and so is what will.
    pub(crate) fn make_confidential(&mut self, r: Range<u64>, vma: &Vma) -> Result<()> {
        const FLAGS: VmaFlags = VmaFlags::CONFIDENTIAL.union(VmaFlags::DONTDUMP);
        if !vma.flags.contains(FLAGS) {
            self.reserve_vmas(self.vmas.cuts(&r))?;
            self.vmas.change(r.clone(), |_, flags| *flags |= FLAGS);
        }
        let mut at = r.start;
        while at < r.end
            && let Some((e, pma)) = self.pmas.first_from(at).map(|(e, p)| (e, *p))
            && e.start < r.end
        {
            let part = e.start.max(at)..e.end.min(r.end);
            if !pma.is_here() {
                // (A part of it is something else then.)
                self.bring_in(part.start, part.clone())
                    .map_err(|_| ENOMEM)?;
                continue;
            }
            self.mark(&part, &pma.after(part.start - e.start), vma);
            at = part.end;
        }
        // What a file has that nobody has mapped, and what of it is swapped out.
        match self
            .vmas
            .get(r.start)
            .map(|(e, v)| v.after(r.start - e.start))
        {
            Some(Vma { file: Some(f), .. }) if vma.is_shared() => {
                f.file.mappable.mark_confidential(f.offset, r.end - r.start)
            }
            _ => Ok(()),
        }
    }

    /// Marks what will serve `r` of this VMA, if that is confidential.
    pub(crate) fn mark_new(&self, r: &Range<u64>, pma: &Pma, vma: &Vma) {
        if vma.flags.contains(VmaFlags::CONFIDENTIAL) {
            self.mark(r, pma, vma);
        }
    }

    /// Marks what serves `r` of a confidential VMA.
    fn mark(&self, r: &Range<u64>, pma: &Pma, vma: &Vma) {
        let is_its = match pma.kind {
            PmaKind::Anon | PmaKind::AnonCow => true,
            PmaKind::File | PmaKind::FileWritable => vma.is_shared(),
            PmaKind::Swapped => false,
        };
        if !is_its {
            return;
        }
        let pages = (r.end - r.start) / PAGE;
        if let Some(at) = pma.frames() {
            self.clas.mark_confidential(at, pages);
        } else if let Some((theirs, at)) = self.pmas.foreign_frames(pma.backing) {
            theirs.mark_confidential(at, pages);
        }
    }
}
