//! The cache of host mappings.

use crate::pma::{Pma, PmaKind};
use crate::state::State;
use crate::vma::{Vma, VmaFlags};
use clas::Backing;
use gap_tree::GapTree;
use platform::{MapOp, Prot, Sharing, USER_MAX};
use smallvec::SmallVec;
use std::ops::Range;

/// The most that a host mapping of this PMA in this VMA may allow.
pub(crate) fn effective(vma: &Vma, pma: &Pma) -> Prot {
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

fn clear(host: &mut GapTree<Prot>, r: Range<u64>) {
    host.split(r.start, |p, _| *p);
    host.split(r.end, |p, _| *p);
    while let Some((e, _)) = host.first_from(r.start)
        && e.start < r.end
    {
        host.remove(e.start);
    }
}

fn set(host: &mut GapTree<Prot>, r: Range<u64>, prot: Prot) {
    clear(host, r.clone());
    let (mut start, mut end) = (r.start, r.end);
    if let Some((e, &p)) = host.last_below(start)
        && e.end == start
        && p == prot
    {
        start = e.start;
        host.remove(e.start);
    }
    if let Some((e, &p)) = host.get(end)
        && p == prot
    {
        end = e.end;
        host.remove(e.start);
    }
    let free = host.insert(start..end, prot).is_ok();
    debug_assert!(free);
}

type Pieces = SmallVec<[(Range<u64>, Prot, Backing, Sharing); 8]>;

impl State {
    /// The parts of `r` that have a PMA, and what may be mapped there.
    fn pieces(&self, r: &Range<u64>) -> Pieces {
        let mut out = Pieces::new();
        for (pr, pma) in self.pmas.range(r.clone()) {
            let p = pr.start.max(r.start)..pr.end.min(r.end);
            for (vr, vma) in self.vmas.range(p.clone()) {
                let x = vr.start.max(p.start)..vr.end.min(p.end);
                let sharing = match pma.backing {
                    Backing::Host { .. } if !vma.flags.contains(VmaFlags::SHARED) => {
                        Sharing::Private
                    }
                    _ => Sharing::Shared,
                };
                let backing = pma.after(x.start - pr.start).backing;
                out.push((x, effective(vma, pma), backing, sharing));
            }
        }
        out
    }

    /// Unmaps what is mapped of `r`.
    pub(crate) fn host_unmap(&mut self, r: Range<u64>) {
        let mut hull: Option<Range<u64>> = None;
        for (e, _) in self.host.range(r.clone()) {
            let (s, e) = (e.start.max(r.start), e.end.min(r.end));
            hull = Some(hull.map_or(s, |h| h.start)..e);
        }
        if let Some(h) = hull {
            self.ops.push(MapOp::Unmap {
                va: h.start,
                len: h.end - h.start,
            });
            clear(&mut self.host, h);
        }
    }

    /// Maps what PMAs there are in `r`, replacing what is mapped there.
    pub(crate) fn host_map(&mut self, r: Range<u64>) {
        let memory = self.clas.memory_fd();
        for (x, prot, backing, sharing) in self.pieces(&r) {
            if prot == Prot::NONE || x.end > USER_MAX {
                self.host_unmap(x);
                continue;
            }
            let (fd, offset) = match backing {
                Backing::Frames(at) => (memory, at.0),
                Backing::Host { fd, offset } => (fd, offset),
            };
            set(&mut self.host, x.clone(), prot);
            let (va, len) = (x.start, x.end - x.start);
            if let Some(MapOp::Map {
                va: v,
                len: l,
                prot: p,
                fd: f,
                offset: o,
                sharing: s,
            }) = self.ops.last_mut()
                && *v + *l == va
                && *o + *l == offset
                && (*p, *f, *s) == (prot, fd, sharing)
            {
                *l += len;
                continue;
            }
            self.ops.push(MapOp::Map {
                va,
                len,
                prot,
                fd,
                offset,
                sharing,
            });
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
            for (x, prot, _, _) in self.pieces(&m) {
                if prot == old {
                    continue;
                }
                if prot == Prot::NONE {
                    self.host_unmap(x);
                    continue;
                }
                set(&mut self.host, x.clone(), prot);
                let (va, len) = (x.start, x.end - x.start);
                if let Some(MapOp::Protect {
                    va: v,
                    len: l,
                    prot: p,
                }) = self.ops.last_mut()
                    && *v + *l == va
                    && *p == prot
                {
                    *l += len;
                    continue;
                }
                self.ops.push(MapOp::Protect { va, len, prot });
            }
        }
    }

    /// The part of `r` around `va` where nothing is mapped; `Err` with the mapped part if `va` is mapped.
    pub(crate) fn host_hole(
        &self,
        va: u64,
        r: Range<u64>,
    ) -> Result<Range<u64>, (Range<u64>, Prot)> {
        let mut hole = r.clone();
        if let Some((e, p)) = self.host.first_from(va) {
            if e.start <= va {
                return Err((e.start.max(r.start)..e.end.min(r.end), *p));
            }
            hole.end = hole.end.min(e.start);
        }
        if let Some((e, _)) = self.host.last_below(va) {
            hole.start = hole.start.max(e.end);
        }
        Ok(hole)
    }
}
