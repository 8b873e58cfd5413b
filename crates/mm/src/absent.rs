//! Pages that a program must be asked for: those of files that it serves (FUSE).
//!
//! A file says `EAGAIN` of such a page ([`Mappable::backing`]), and the operation ends with
//! [`Bad::Absent`]. The program may never answer, so it is asked without the address space's lock, and
//! by no thread that holds another lock:
//!
//! - a fault of application code, and copies of the arguments of system calls, leave here what is
//!   missing, have it got and run again (`Mm::with_filled`);
//! - data of reads and writes are touched by objects under their locks. What is missing of them is
//!   asked for before ([`Mm::ask_for`]); what is missing then is a fault.
//!
//! [`Mappable::backing`]: clas::Mappable::backing
//! [`Bad::Absent`]: crate::types::Bad::Absent

use crate::state::State;
use crate::user::UserRange;
use crate::vma::FileRef;
use crate::{Mm, PAGE, Result};
use abi::errno::ENOMEM;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// So often the same page is asked for: others may take away again what was got.
const TRIES: u32 = 1000;

/// What is asked for at once of a transfer's memory, bytes: it may end sooner.
pub(crate) const PIECE: u64 = 1 << 20;

/// A page that is missing of a file.
pub(crate) struct Absent {
    pub(crate) file: Arc<FileRef>,
    pub(crate) offset: u64,
}

impl Absent {
    /// Which page of which file.
    fn place(&self) -> (usize, u64) {
        (Arc::as_ptr(&self.file).addr(), self.offset)
    }
}

/// A mapped part of a served file.
type Part = (Arc<FileRef>, Range<u64>);

impl Mm {
    /// Gets what was missing; waits for room where it has none.
    pub(crate) fn fill(&self, absent: &Absent) -> Result<()> {
        match absent.file.mappable.fill(absent.offset) {
            Err(ENOMEM) => self.await_room(),
            r => r,
        }
    }

    /// As `Mm::with`, for what touches pages: `f` runs again once what it found absent is there. So
    /// it does nothing before that it cannot do twice. The caller holds no lock.
    pub(crate) fn with_filled<R>(&self, mut f: impl FnMut(&mut State) -> R) -> R {
        let (mut last, mut tries) = (None, 0);
        loop {
            let (r, absent) = self.with(|st| {
                let r = f(st);
                (r, st.absent.take())
            });
            let Some(a) = absent else { return r };
            tries = if last == Some(a.place()) {
                tries + 1
            } else {
                0
            };
            last = Some(a.place());
            if tries == TRIES || self.fill(&a).is_err() {
                return r;
            }
        }
    }

    /// Asks for what is missing of the first bytes of these ranges (a mebibyte), as far as programs
    /// answer. The caller holds no lock.
    pub fn ask_for(&self, ranges: &[UserRange]) {
        if !self.serves.load(Ordering::Relaxed) {
            return;
        }
        let mut left = PIECE;
        for r in ranges {
            let len = r.len.min(left);
            left -= len;
            self.ask(r.va.0..r.va.0.saturating_add(len));
        }
    }
    /// Asks for all that is missing of a range.
    pub(crate) fn ask(&self, r: Range<u64>) {
        if !self.serves.load(Ordering::Relaxed) {
            return;
        }
        for (file, part) in self.served(r) {
            let mut at = part.start;
            // (A program may take away again what it gave.)
            let mut tries = u64::from(TRIES) + (part.end - part.start) / PAGE;
            while let Some(offset) = file.mappable.first_absent(at, part.end)
                && tries > 0
            {
                let file = file.clone();
                if self.fill(&Absent { file, offset }).is_err() {
                    // (It may not be needed.)
                    break;
                }
                (at, tries) = (offset, tries - 1);
            }
        }
    }

    /// Has programs write what was written through mappings of a range, before it is unmapped.
    pub(crate) fn write_back(&self, r: Range<u64>) {
        if !self.serves.load(Ordering::Relaxed) {
            return;
        }
        for (file, part) in self.served(r) {
            file.mappable.write_back(part.start, part.end - part.start);
        }
    }

    /// Has programs write all that was written: its last thread ends.
    pub fn write_back_all(&self) {
        self.write_back(0..platform::USER_MAX);
    }

    /// The parts of files that programs serve, which are mapped in a range.
    fn served(&self, r: Range<u64>) -> Vec<Part> {
        let st = self.state.lock();
        let parts = st.parts(&r).found.into_iter();
        let of_file = |(part, vma): (Range<u64>, crate::vma::Vma)| {
            let f = vma.file?;
            let len = part.end - part.start;
            let served = f.file.mappable.is_served();
            served.then(|| (f.file.clone(), f.offset..f.offset + len))
        };
        parts.filter_map(of_file).collect()
    }
}
