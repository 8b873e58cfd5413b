//! What the cache of host mappings is to hold: what PMAs there are, as far as VMA and PMA allow.

use crate::host_map::Target;
use crate::pma::{Pma, PmaKind};
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use clas::Backing;
use platform::{Prot, Sharing, USER_MAX};
use smallvec::SmallVec;
use std::ops::Range;

/// The most that a host mapping of this PMA in this VMA may allow.
pub(crate) fn effective(vma: &Vma, pma: &Pma) -> Prot {
    if !pma.is_here() {
        return Prot::NONE;
    }
    let mut p = vma.prot;
    if p.contains(Prot::WRITE) {
        // On x86, what can be written can be read.
        p = p.union(Prot::READ);
        if !matches!(pma.kind, PmaKind::Anon | PmaKind::FileWritable) {
            p = p.without(Prot::WRITE);
        }
    }
    p
}

/// A part of an address space that could be mapped.
struct Piece {
    range: Range<u64>,
    prot: Prot,
    backing: Backing,
    sharing: Sharing,
}

type Pieces = SmallVec<[Piece; 8]>;

impl State {
    /// The parts of `r` that have a PMA, and what may be mapped there.
    fn pieces(&self, r: &Range<u64>) -> Pieces {
        let mut out = Pieces::new();
        for (pr, pma) in self.pmas.range(r.clone()) {
            let p = pr.start.max(r.start)..pr.end.min(r.end);
            for (vr, vma) in self.vmas.range(p.clone()) {
                let range = vr.start.max(p.start)..vr.end.min(p.end);
                let sharing = match pma.backing {
                    Backing::Host { .. } if !vma.flags.contains(VmaFlags::SHARED) => {
                        Sharing::Private
                    }
                    _ => Sharing::Shared,
                };
                out.push(Piece {
                    prot: effective(vma, pma),
                    backing: pma.after(range.start - pr.start).backing,
                    sharing,
                    range,
                });
            }
        }
        out
    }

    /// Maps what PMAs there are in `r`, replacing what is mapped there.
    pub(crate) fn host_map(&mut self, r: Range<u64>) {
        let memory = self.clas.memory_fd();
        for x in self.pieces(&r) {
            if x.prot == Prot::NONE || x.range.end > USER_MAX {
                self.host.unmap(x.range);
                continue;
            }
            let (fd, offset) = match x.backing {
                Backing::Frames(at) => (memory, at.0),
                Backing::Host { fd, offset } => (fd, offset),
            };
            let to = Target {
                prot: x.prot,
                fd,
                offset,
                sharing: x.sharing,
            };
            self.host.map(x.range, to);
        }
    }

    /// Maps what PMAs there are in the parts of `r` where nothing is mapped.
    pub(crate) fn host_map_hole(&mut self, r: Range<u64>) {
        let mut at = r.start;
        while at < r.end {
            match self.host.first_from(at).map(|(e, _)| e) {
                Some(e) if e.start <= at => at = e.end,
                next => {
                    let end = next.map_or(r.end, |e| e.start.min(r.end));
                    self.host_map(at..end);
                    at = end;
                }
            }
        }
    }

    /// Makes the protection of what is mapped of `r` agree with VMAs and PMAs again.
    pub(crate) fn host_protect(&mut self, r: Range<u64>) {
        let mapped: SmallVec<[(Range<u64>, Prot); 8]> = self
            .host
            .range(r.clone())
            .map(|(e, p)| (e.start.max(r.start)..e.end.min(r.end), *p))
            .collect();
        for (m, old) in mapped {
            for x in self.pieces(&m) {
                if x.prot == old {
                    continue;
                }
                if x.prot == Prot::NONE {
                    self.host.unmap(x.range);
                } else {
                    self.host.protect(x.range, x.prot);
                }
            }
        }
    }
}
