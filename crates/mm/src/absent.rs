//! Pages that a program must be asked for: those of files that it serves (FUSE).
//!
//! A file says `EAGAIN` of such a page ([`Mappable::backing`]); the operation fails with
//! [`Bad::Absent`], and leaves here what is missing. It is got without the address space's lock,
//! since the program may never answer; then the operation runs again.
//!
//! [`Mappable::backing`]: clas::Mappable::backing
//! [`Bad::Absent`]: crate::types::Bad::Absent

use crate::state::State;
use crate::vma::FileRef;
use crate::{Mm, Result};
use abi::errno::ENOMEM;
use std::sync::Arc;

/// What is missing of a file.
pub(crate) struct Absent {
    pub(crate) file: Arc<FileRef>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Mm {
    /// Gets what was missing; waits for room where it has none.
    pub(crate) fn fill(&self, absent: &Absent) -> Result<()> {
        match absent.file.mappable.fill(absent.offset, absent.len) {
            Err(ENOMEM) => self.await_room(),
            r => r,
        }
    }

    /// As `Mm::with`, for what touches pages: `f` runs again once what it found absent is there. So
    /// it does nothing before that it cannot do twice.
    pub(crate) fn with_filled<R>(&self, mut f: impl FnMut(&mut State) -> R) -> R {
        /// Others may take away again what was got.
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            let (r, absent) = self.with(|st| {
                st.absent = None;
                let r = f(st);
                (r, st.absent.take())
            });
            match absent {
                Some(a) if self.fill(&a).is_ok() => {}
                _ => return r,
            }
        }
        self.with(f)
    }
}
