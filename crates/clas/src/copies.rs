//! Copies of frames, for copy-on-write.

use crate::{Cla, Clas, Wait};
use abi::errno::EINTR;
use abi::{PAGE_SIZE, Result};

/// Where new frames are best: so that they end before `before`, or else start at `after`, for host
/// mappings to merge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    pub before: Option<Cla>,
    pub after: Option<Cla>,
}

impl Clas {
    /// New frames for a private copy, and whether they are in memory already: a place `beside`
    /// others, or small ones that were just in use, or packed with the rest.
    fn allocate_copy(&self, pages: u64, beside: Beside, wait: Wait) -> Result<(Cla, bool)> {
        let mut kept = false;
        let at = self.allocate_with(pages, wait, |inner| {
            kept = false;
            if let Some(end) = beside.before.map(Cla::page)
                && let Some(start) = end.checked_sub(pages)
                && inner.free.covers(start, end)
            {
                return Some(start);
            }
            if let Some(start) = beside.after.map(Cla::page)
                && inner.free.covers(start, start + pages)
            {
                return Some(start);
            }
            if let Some(start) = inner.kept.fit(pages) {
                kept = true;
                return Some(start);
            }
            inner.free.best_fit(pages)
        })?;
        Ok((at, kept))
    }

    /// New frames with the contents of `pages` frames from `from` on.
    pub fn copy_of(&self, from: Cla, pages: u64, beside: Beside, wait: Wait) -> Result<Cla> {
        let (to, kept) = self.allocate_copy(pages, beside, wait)?;
        let len = (pages * PAGE_SIZE) as usize;
        let src = self.slice(from, len);
        let mut done = 0;
        // By a write to the file: that makes pages without clearing them first, and without a fault
        // for each.
        while !kept && done < len {
            let rest = src.sub(done, len - done);
            match hostcall::file::pwritev(self.file.raw(), &[rest], to.0 + done as u64) {
                Ok(n) if n > 0 => done += n,
                Err(EINTR) => {}
                _ => break,
            }
        }
        if done < len {
            let rest = src.sub(done, len - done);
            self.slice(to.add(done as u64), len - done)
                .copy_from_mem(rest);
        }
        Ok(to)
    }

    /// New frames that read as zeros, for the contents of a file.
    pub fn allocate_beside(&self, pages: u64, beside: Beside, wait: Wait) -> Result<Cla> {
        Ok(self.allocate_copy(pages, beside, wait)?.0)
    }
}
