//! Copies of frames, for copy-on-write.

use crate::accounts::Use;
use crate::{Cla, Clas};
use abi::errno::EINTR;
use abi::{PAGE_SIZE, Result};

/// Up to so many pages are copied without asking which of them there are: to ask takes as long, and
/// holes get pages then. A fault of a longer area copies more (`mm::predict`), so that a sparse heap
/// does not fill up.
pub const JUST_COPIED: u64 = 3;

/// Where new frames are best: so that they end before `before`, or else start at `after`, for host
/// mappings to merge.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlacementHint {
    pub before: Option<Cla>,
    pub after: Option<Cla>,
}

impl Clas {
    /// New frames for a private copy, and whether they are in memory already: a place by `hint`,
    /// beside others, or small ones that were just in use, or packed with the rest.
    fn allocate_copy(&self, pages: u64, hint: PlacementHint) -> Result<(Cla, bool)> {
        let mut kept = false;
        let at = self.allocate_with(pages, Use::Anon, |inner| {
            kept = false;
            if let Some(end) = hint.before.map(Cla::page)
                && let Some(start) = end.checked_sub(pages)
                && inner.free.covers(start, end)
            {
                return Some(start);
            }
            if let Some(start) = hint.after.map(Cla::page)
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
    pub fn copy_of(&self, from: Cla, pages: u64, hint: PlacementHint) -> Result<Cla> {
        let (to, kept) = self.allocate_copy(pages, hint)?;
        if self.is_confidential(from, pages) {
            self.mark_confidential(to, pages);
        }
        // Of more, what has no page gets none: it could be given back where the limit is reached.
        let mut done = from;
        let end = Cla(from.0 + pages * PAGE_SIZE);
        let holes = match pages {
            ..=JUST_COPIED => Vec::new(),
            _ => self.holes(from, pages),
        };
        for (hole, n) in holes.into_iter().chain([(end, 0)]) {
            let len = hole.0 - done.0;
            self.copy(done, Cla(to.0 + (done.0 - from.0)), len as usize, kept);
            done = hole.add(n * PAGE_SIZE);
        }
        Ok(to)
    }

    /// Copies between frames; `are_there`: those that it goes to are in memory.
    fn copy(&self, from: Cla, to: Cla, len: usize, are_there: bool) {
        let src = self.slice(from, len);
        let mut done = 0;
        // By a write to the file: that makes pages without clearing them first, and without a fault
        // for each.
        while !are_there && done < len {
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
    }

    /// New private frames that read as zeros.
    pub fn allocate_hinted(&self, pages: u64, hint: PlacementHint) -> Result<Cla> {
        Ok(self.allocate_copy(pages, hint)?.0)
    }
}
