//! How much memory is made at once.

use crate::PAGE;
use crate::pma::window;
use std::ops::Range;

/// The longest run of new frames.
pub(crate) const CHUNK: u64 = 2 << 20;

/// How much of new anonymous memory is made at once where there is a limit: what is made and not
/// touched has to be found, and given back, before anybody is ended. Memory that is touched here
/// and there is made by pages then, what is filled from one end to the other in growing pieces.
/// (Without it, touching 40 MB of 1 GB under a limit of 64 MB takes 20 times as long.)
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Bytes, a power of two.
    len: u64,
    /// Where the last one ended.
    end: u64,
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk {
            len: Chunk::MOST,
            end: 0,
        }
    }
}

impl Chunk {
    const MOST: u64 = CHUNK;

    /// What is made for a touch at `va`, of `hole`; `most` says how much of what it would like may
    /// be made.
    pub(crate) fn next(
        &mut self,
        most: impl Fn(u64) -> u64,
        va: u64,
        hole: &Range<u64>,
    ) -> Range<u64> {
        if va & !(PAGE - 1) == self.end {
            self.len = (self.len * 2).min(Chunk::MOST);
        }
        let r = window(va, most(self.len), hole);
        self.end = r.end;
        r
    }

    /// Some of it was not touched.
    pub(crate) fn was_too_much(&mut self) {
        self.len = (self.len / 4).max(PAGE);
    }
}
