//! Where a limit is reached: giving back frames that were made for a guess and never touched.
//!
//! # Invariant
//!
//! A reference to a frame is given back only if nobody can have written to it by this address
//! space: the frame has no page after the host's mapping of it here is gone, and the lock is held,
//! which every access of the Sentry's needs to find it. What the Sentry writes without the lock has
//! one more reference: of frames that are this address space's alone such are left.

use crate::pma::PmaKind;
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use crate::{Mm, PAGE, Result};
use clas::Cla;
use std::ops::Range;

impl Mm {
    /// Gives untouched frames back: how many bytes; `None` where somebody is busy with the address
    /// space, who does not wait for room itself.
    pub fn trim(&self) -> Option<u64> {
        match self.state.try_lock() {
            Some(mut st) => Some(st.trim()),
            // It has given them back before it waited.
            None if self.waiter.waits() => Some(0),
            None => None,
        }
    }

    /// Bytes of frames that its mappings have, its own, shared and of files in memory, touched or
    /// not.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.charged.all()
    }

    /// Waits until there is room for a page; `ENOMEM` where that does not come.
    pub fn await_room(&self) -> Result<()> {
        let elsewhere = self.state.lock().short_elsewhere.take();
        let clas = elsewhere.as_ref().unwrap_or(&self.clas);
        clas.await_room(PAGE, &self.waiter)
    }

    /// Its process dies for lack of memory: from now on it waits for none, and its frames are
    /// expected.
    pub fn doom(&self) {
        if !self.waiter.doom() {
            self.clas.is_ending();
        }
    }
}

impl State {
    /// Gives untouched frames back; how many bytes it has less.
    pub(crate) fn trim(&mut self) -> u64 {
        if self.host.is_gone() {
            return 0;
        }
        let untouched = self.untouched();
        if untouched.is_empty() {
            return 0;
        }
        for (r, _) in &untouched {
            self.host.unmap(r.clone());
        }
        // Where the host cannot unmap them, it unmaps all, or ends the process.
        if !self.host.flush() || self.host.is_gone() {
            return 0;
        }
        let mut bytes = 0;
        for (r, at) in untouched {
            // What was touched before it was unmapped stays.
            for (hole, n) in self.clas.holes(at, (r.end - r.start) / PAGE) {
                let start = r.start + (hole.0 - at.0);
                self.pma_remove(start..start + n * PAGE);
                bytes += n * PAGE;
            }
        }
        if bytes > 0 {
            self.chunk.was_too_much();
        }
        self.pmas.take_freed().decref(&self.clas);
        for (_, vma) in self.vmas.iter().filter(|(_, v)| is_shared_anon(v)) {
            if let Some(f) = &vma.file {
                f.file.mappable.trim();
            }
        }
        bytes
    }

    /// Where it has frames without a page now, and which.
    fn untouched(&self) -> Vec<(Range<u64>, Cla)> {
        let mut out = Vec::new();
        for (r, pma) in self.pmas.iter() {
            let Some(at) = pma.frames() else { continue };
            let is_mine = match pma.kind {
                PmaKind::Anon | PmaKind::AnonCow => true,
                PmaKind::File | PmaKind::Swapped => false,
                PmaKind::FileWritable => {
                    self.vmas.get(r.start).is_some_and(|v| is_shared_anon(v.1))
                }
            };
            if !is_mine {
                continue;
            }
            for (hole, n) in self.clas.holes(at, (r.end - r.start) / PAGE) {
                // The Sentry may be about to write what is ours alone. What is shared stays where
                // it is, for others.
                if pma.kind != PmaKind::Anon || self.clas.is_exclusive(hole, n) {
                    let start = r.start + (hole.0 - at.0);
                    out.push((start..start + n * PAGE, hole));
                }
            }
        }
        out
    }
}

fn is_shared_anon(vma: &Vma) -> bool {
    vma.flags.contains(VmaFlags::ANON_SHARED)
}
