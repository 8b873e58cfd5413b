//! A PMA: what serves a mapping.

use crate::{PAGE, Result};
use abi::errno::EINTR;
use clas::{Backing, Cla, Clas, PlacementHint};
use std::ops::Range;

/// What a PMA's backing is, and whether it may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PmaKind {
    /// Frames of this address space alone (or pinned by the Sentry).
    Anon,
    /// Frames that others may share: written only after a look at their reference counts.
    AnonCow,
    /// The file's own: only read.
    File,
    /// The file's own, by a shared mapping: may be written.
    FileWritable,
    /// Private frames that were swapped out, and may be still: nothing of them is mapped, and who
    /// accesses them brings them in first ([`State::bring_in`]).
    ///
    /// [`State::bring_in`]: crate::state::State::bring_in
    Swapped,
}

/// Every PMA with frames, of the own CLAS or of another, holds a reference to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pma {
    pub(crate) backing: Backing,
    pub(crate) kind: PmaKind,
}

impl Pma {
    pub(crate) fn anon(at: Cla) -> Pma {
        Pma {
            backing: Backing::Frames(at),
            kind: PmaKind::Anon,
        }
    }

    /// The same, starting `n` bytes further on.
    pub(crate) fn after(self, n: u64) -> Pma {
        let backing = match self.backing {
            Backing::Frames(at) => Backing::Frames(at.add(n)),
            Backing::Host { fd, offset } => Backing::Host {
                fd,
                offset: offset + n,
            },
        };
        Pma {
            backing,
            kind: self.kind,
        }
    }

    pub(crate) fn frames(&self) -> Option<Cla> {
        match self.backing {
            Backing::Frames(at) => Some(at),
            Backing::Host { .. } => None,
        }
    }

    pub(crate) fn writable(&self) -> bool {
        matches!(self.kind, PmaKind::Anon | PmaKind::FileWritable)
    }

    /// Whether its contents are where its backing says.
    pub(crate) fn is_here(&self) -> bool {
        self.kind != PmaKind::Swapped
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, PmaKind::File | PmaKind::FileWritable)
    }

    /// New frames with the contents of the first `len` bytes.
    pub(crate) fn copy(&self, clas: &Clas, len: u64, hint: PlacementHint) -> Result<Cla> {
        let pages = len / PAGE;
        match self.backing {
            Backing::Frames(at) => clas.copy_of(at, pages, hint),
            Backing::Host { fd, offset } => {
                let to = clas.allocate_hinted(pages, hint)?;
                read_host(clas, fd, offset, to, len as usize)
                    .inspect_err(|_| clas.decref(to, pages))?;
                Ok(to)
            }
        }
    }
}

/// Fills new frames from a host file; past its end they stay zero.
fn read_host(clas: &Clas, fd: i32, offset: u64, to: Cla, len: usize) -> Result<()> {
    let slice = clas.slice(to, len);
    let mut done = 0;
    while done < len {
        match hostcall::file::preadv(fd, &[slice.sub(done, len - done)], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n.min(len - done),
            Err(EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The part of `within` in the aligned window of `size` bytes around `va`.
pub(crate) fn window(va: u64, size: u64, within: &Range<u64>) -> Range<u64> {
    let start = va & !(size - 1);
    start.max(within.start)..start.saturating_add(size).min(within.end)
}
