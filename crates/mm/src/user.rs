//! Application memory as a [`Sink`] and a [`Source`] for files.

use crate::types::Access;
use crate::{Mm, Result};
use abi::Va;
use abi::errno::EFAULT;
use hostcall::MemSlice;
use smallvec::SmallVec;
use vfs::{Sink, Source};

/// A range of application memory: an `iovec`, only alleged until it is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserRange {
    pub va: Va,
    pub len: u64,
}

/// A list of ranges of application memory, read or written from its start on. What programs must be
/// asked for of that is asked for when it is made, without locks; what they take away again later
/// ends a transfer as memory that is not there.
pub struct UserIo<'a> {
    mm: &'a Mm,
    /// What is left; the first is never empty.
    ranges: SmallVec<[UserRange; 4]>,
    /// The index of the first range with something left.
    first: usize,
    left: usize,
    was_cut: bool,
}

impl<'a> UserIo<'a> {
    /// One range.
    #[must_use]
    pub fn new(mm: &'a Mm, va: Va, len: usize) -> Self {
        Self::vectored(
            mm,
            [UserRange {
                va,
                len: len as u64,
            }],
        )
    }

    /// Several, one after the other. Their sum must not overflow (the system call checks it).
    #[must_use]
    pub fn vectored(mm: &'a Mm, ranges: impl IntoIterator<Item = UserRange>) -> Self {
        let ranges: SmallVec<[UserRange; 4]> = ranges.into_iter().collect();
        mm.ask_for(&ranges);
        let left = ranges.iter().fold(0u64, |n, r| n.saturating_add(r.len)) as usize;
        UserIo {
            mm,
            ranges,
            first: 0,
            left,
            was_cut: false,
        }
    }

    /// Whether the last transfer used up what it was offered, which was a part: memory of different
    /// kinds, or in many pieces, is offered step by step.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.was_cut
    }

    /// Whether there is more than one range.
    #[must_use]
    pub fn is_vectored(&self) -> bool {
        self.ranges.len() > 1
    }

    /// Cuts it to at most `n` bytes.
    pub fn limit(&mut self, n: usize) {
        let mut left = n.min(self.left);
        self.left = left;
        for r in &mut self.ranges[self.first..] {
            r.len = r.len.min(left as u64);
            left -= r.len as usize;
        }
    }

    /// Takes the first `n` bytes of it as a list of their own.
    #[must_use]
    pub fn split(&mut self, n: usize) -> UserIo<'a> {
        let mut front = UserIo {
            mm: self.mm,
            ranges: self.ranges[self.first..].iter().copied().collect(),
            first: 0,
            left: self.left,
            was_cut: false,
        };
        front.limit(n);
        self.advance(front.left);
        self.mm.ask_for(&front.ranges);
        front
    }

    fn advance(&mut self, n: usize) {
        let mut n = n.min(self.left);
        self.left -= n;
        while n > 0 && self.first < self.ranges.len() {
            let r = &mut self.ranges[self.first];
            let step = r.len.min(n as u64);
            r.va = r.va.offset(step);
            r.len -= step;
            n -= step as usize;
            if r.len == 0 {
                self.first += 1;
            }
        }
    }

    fn transfer(
        &mut self,
        max: usize,
        access: Access,
        f: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        let max = max.min(self.left);
        self.was_cut = false;
        if max == 0 {
            return f(&[]);
        }
        let mut offered = 0;
        let mut offer = |iov: &[MemSlice<'_>]| {
            offered = iov.iter().map(MemSlice::len).sum();
            f(iov)
        };
        let n = self
            .mm
            .with_ranges(&self.ranges[self.first..], max, access, &mut offer)?;
        self.was_cut = n == offered && n < max;
        self.advance(n);
        Ok(n)
    }

    /// Copies with `step`, which does as much of a range as it can.
    fn copy(
        &mut self,
        len: usize,
        mut step: impl FnMut(&Mm, Va, usize, usize) -> usize,
    ) -> Result<usize> {
        let len = len.min(self.left);
        let mut done = 0;
        while done < len {
            let r = self.ranges[self.first];
            let n = r.len.min((len - done) as u64) as usize;
            if n == 0 {
                self.first += 1;
                continue;
            }
            let got = step(self.mm, r.va, done, n);
            self.advance(got);
            done += got;
            if got < n {
                return if done == 0 { Err(EFAULT) } else { Ok(done) };
            }
        }
        Ok(done)
    }
}

impl Sink for UserIo<'_> {
    fn remaining(&self) -> usize {
        self.left
    }
    fn put(&mut self, src: &[u8]) -> Result<usize> {
        self.copy(src.len(), |mm, va, from, n| {
            mm.write_now(va, &src[from..from + n])
        })
    }
    fn fill(
        &mut self,
        max: usize,
        fill: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        self.transfer(max, Access::Write, fill)
    }
}

impl Source for UserIo<'_> {
    fn remaining(&self) -> usize {
        self.left
    }
    fn take(&mut self, dst: &mut [u8]) -> Result<usize> {
        let len = dst.len();
        self.copy(len, |mm, va, from, n| {
            mm.read_now(va, &mut dst[from..from + n])
        })
    }
    fn drain(
        &mut self,
        max: usize,
        drain: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        self.transfer(max, Access::Read, drain)
    }
}
