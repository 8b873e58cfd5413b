//! What lies where in the memory file, by cells.

use crate::accounts::Owner;
use crate::{Cla, Clas};
use abi::PAGE_SIZE;
use std::collections::BTreeMap;

/// Pages of frames that somebody has, in a part of the memory file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub frames: u64,
    /// What of them has a page, and what is swapped out.
    pub resident: u64,
    pub swapped: u64,
    /// What has more than one reference.
    pub shared: u64,
    /// Contents of files, and shared memory.
    pub files: u64,
    pub confidential: u64,
}

impl Place {
    fn add(&mut self, o: &Place) {
        self.frames += o.frames;
        self.resident += o.resident;
        self.swapped += o.swapped;
        self.shared += o.shared;
        self.files += o.files;
        self.confidential += o.confidential;
    }
}

/// Cells by their numbers, all of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Bytes of one, a power of two.
    pub cell: u64,
    pub cells: BTreeMap<u64, Place>,
}

/// No smaller cells are made: what is sent out as one.
const LEAST: u64 = 64 << 10;

impl Map {
    /// The cells that `pages` frames from `at` on lie in: their numbers, and how many pages each
    /// has of them.
    pub fn cells_of(&self, at: Cla, pages: u64) -> impl Iterator<Item = (u64, u64)> {
        let cell = self.cell / PAGE_SIZE;
        let (first, end) = (at.page(), at.page() + pages);
        (first / cell..end.div_ceil(cell))
            .map(move |n| (n, end.min((n + 1) * cell) - first.max(n * cell)))
    }

    fn add(&mut self, number: u64, c: &Place, most: usize) {
        self.cells.entry(number).or_default().add(c);
        while self.cells.len() > most {
            self.cell *= 2;
            let old = std::mem::take(&mut self.cells);
            for (n, c) in old {
                self.cells.entry(n / 2).or_default().add(&c);
            }
        }
    }
}

impl Clas {
    /// What lies where, in `most` cells or fewer. It costs a look at every frame; only one looks at
    /// a time.
    #[must_use]
    pub fn map(&self, most: usize) -> Map {
        /// Runs that are looked at under one lock.
        const STEP: usize = 64;
        let _one = self.looks.lock();
        let mut map = Map {
            cell: LEAST,
            cells: BTreeMap::new(),
        };
        let mut at = 0;
        loop {
            let inner = self.inner.lock();
            let runs: Vec<(u64, u64, Owner, u32)> = (inner.refs.from(at).take(STEP))
                .map(|(s, e, o)| (s, e, o, inner.refs.shared_prefix(s, e).0))
                .collect();
            drop(inner);
            let Some(last) = runs.last() else {
                return map;
            };
            at = last.1;
            for (start, end, owner, refs) in runs {
                self.map_run(&mut map, start..end, owner, refs, most.max(1));
            }
        }
    }

    fn map_run(
        &self,
        map: &mut Map,
        run: std::ops::Range<u64>,
        owner: Owner,
        refs: u32,
        most: usize,
    ) {
        let mut start = run.start;
        while start < run.end {
            let at = Cla(start * PAGE_SIZE);
            // (One by one: their size may grow.)
            let Some((number, n)) = map.cells_of(at, run.end - start).next() else {
                break;
            };
            let swapped = self.away_of(start, start + n);
            let empty: u64 = self.holes(at, n).iter().map(|h| h.1).sum();
            let part = |is: bool| if is { n } else { 0 };
            let cell = Place {
                frames: n,
                resident: n - empty.min(n),
                swapped,
                shared: part(refs > 1),
                files: part(owner.is_file()),
                confidential: part(owner.is_confidential()),
            };
            map.add(number, &cell, most);
            start += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_SIZE;

    #[test]
    fn every_frame_is_in_a_cell() {
        let c = Clas::new().unwrap();
        c.swap_in_memory(100 * P).unwrap();
        let a = c.allocate(40, None).unwrap();
        let b = c
            .allocate_anon(20, crate::PlacementHint::default(), abi::Va(0))
            .unwrap();
        c.slice(a, 3 * P as usize)
            .copy_from(&vec![1; 3 * P as usize]);
        c.slice(b, 4 * P as usize)
            .copy_from(&vec![1; 4 * P as usize]);
        c.incref(b, 5);
        c.mark_confidential(b.add(10 * P), 2);
        assert_eq!(c.send_out(a, 2), 2);
        let sum = |m: &Map| {
            let mut all = Place::default();
            m.cells.values().for_each(|c| all.add(c));
            all
        };
        let want = Place {
            frames: 60,
            resident: 5,
            swapped: 2,
            shared: 5,
            files: 40,
            confidential: 2,
        };
        let m = c.map(1000);
        assert_eq!((m.cell, sum(&m)), (LEAST, want));
        assert!(m.cells_of(b, 20).all(|c| m.cells.contains_key(&c.0)));
        assert_eq!(m.cells_of(b, 20).map(|c| c.1).sum::<u64>(), 20);
        // In fewer cells, which are larger.
        let m = c.map(2);
        assert!(m.cells.len() <= 2 && m.cell > LEAST);
        assert_eq!(sum(&m), want);
        c.decref(b, 5);
        c.decref(b, 20);
        c.decref(a, 40);
        assert_eq!(c.map(10).cells.len(), 0);
    }
}
