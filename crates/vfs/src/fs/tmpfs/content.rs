//! The pages of a regular file: runs of frames, with holes between them. Frames may be swapped out
//! ([`clas::Pageable`]), but not while the lock is held that says which they are.

use super::Tmpfs;
use abi::errno::{EFAULT, ENOMEM, ENXIO};
use abi::{PAGE_SIZE, Result, Va};
use clas::{Ahead, Cla};
use hostcall::MemSlice;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most pages that one fault on a hole fills.
const FAULT_PAGES: u64 = 512;

/// Frames that left a file: given back by [`Content::free`], after the mappings of them are gone.
#[must_use]
#[derive(Default)]
pub(super) struct Freed(Vec<(Cla, u64)>);

#[derive(Default)]
struct Pages {
    size: u64,
    /// By the file's page number: frames, and how many in a row. Disjoint.
    runs: BTreeMap<u64, (Cla, u64)>,
    count: u64,
}

pub(super) struct Content {
    fs: Arc<Tmpfs>,
    pages: RwLock<Pages>,
    /// It was read or written since somebody has asked.
    was_used: AtomicBool,
    ahead: Ahead,
}

fn page_of(offset: u64) -> u64 {
    offset / PAGE_SIZE
}
fn page_end(offset: u64) -> u64 {
    offset.div_ceil(PAGE_SIZE)
}

impl Pages {
    /// The frame of `page` and how many pages follow in its run, itself included.
    fn find(&self, page: u64) -> Option<(Cla, u64)> {
        let (&start, &(cla, n)) = self.runs.range(..=page).next_back()?;
        (page < start + n).then(|| (cla.add((page - start) * PAGE_SIZE), n - (page - start)))
    }
    /// The first run that starts after `page`.
    fn next_run(&self, page: u64) -> u64 {
        self.runs
            .range(page + 1..)
            .next()
            .map_or(u64::MAX, |(&p, _)| p)
    }
    /// Gives `[first, last)` frames where it has none; stops early where there is no more memory,
    /// with how far it came.
    fn fill(&mut self, fs: &Tmpfs, first: u64, last: u64) -> (u64, Result<()>) {
        let mut page = first;
        while page < last {
            if let Some((_, n)) = self.find(page) {
                page += n;
                continue;
            }
            let mut n = self.next_run(page).min(last) - page;
            // By halves, to the last page that there is room for.
            loop {
                match self.allocate(fs, page, n) {
                    Ok(()) => break,
                    Err(e) if n == 1 => return (page, Err(e)),
                    Err(_) => n /= 2,
                }
            }
            page += n;
        }
        (last, Ok(()))
    }
    /// The parts of `[first, last)` without frames.
    fn holes(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut page = first;
        while page < last {
            match self.find(page) {
                Some((_, n)) => page += n,
                None => {
                    let end = self.next_run(page).min(last);
                    holes.push((page, end));
                    page = end;
                }
            }
        }
        holes
    }
    fn allocate(&mut self, fs: &Tmpfs, page: u64, n: u64) -> Result<()> {
        fs.take_pages(n)?;
        let below = self
            .runs
            .range(..page)
            .next_back()
            .map(|(&p, &(c, n))| (p, c, n));
        let after = below
            .filter(|b| b.0 + b.2 == page)
            .map(|b| b.1.add(b.2 * PAGE_SIZE));
        let before = self.runs.get(&(page + n)).map(|r| r.0);
        // A file's first pages go where they fit best; one that grows stays in one run where it
        // can.
        // The caller waits for room, without the file's lock.
        let cla = if after.is_none() && before.is_none() && n < FAULT_PAGES {
            fs.clas.allocate(n, None)
        } else {
            fs.clas
                .allocate_near(n, before, after, Va(page * PAGE_SIZE))
        }
        .inspect_err(|_| fs.give_pages(n))?;
        self.count += n;
        match below {
            Some((p, c, len)) if after == Some(cla) => self.runs.insert(p, (c, len + n)),
            _ => self.runs.insert(page, (cla, n)),
        };
        Ok(())
    }
    /// Takes the frames of `[first, last)` out.
    fn remove(&mut self, fs: &Tmpfs, first: u64, last: u64) -> Freed {
        let mut freed = Freed::default();
        if first >= last {
            return freed;
        }
        let from = self
            .runs
            .range(..=first)
            .next_back()
            .map_or(first, |(&p, _)| p);
        let keys: Vec<u64> = self.runs.range(from..last).map(|(&p, _)| p).collect();
        for p in keys {
            let Some(&(cla, n)) = self.runs.get(&p) else {
                continue;
            };
            let (s, e) = (p.max(first), (p + n).min(last));
            if s >= e {
                continue;
            }
            self.runs.remove(&p);
            if p < s {
                self.runs.insert(p, (cla, s - p));
            }
            if e < p + n {
                self.runs
                    .insert(e, (cla.add((e - p) * PAGE_SIZE), p + n - e));
            }
            freed.0.push((cla.add((s - p) * PAGE_SIZE), e - s));
            self.count -= e - s;
            fs.give_pages(e - s);
        }
        freed
    }
    /// Zeros `[start, end)`, which lies in one page, if it has a frame. `ENOMEM` where that is
    /// swapped out and there is no room.
    fn zero_in_page(&self, fs: &Tmpfs, start: u64, end: u64) -> Result<()> {
        if start < end
            && let Some((cla, _)) = self.find(page_of(start))
        {
            fs.clas.bring_first(cla, 1, 1)?;
            fs.clas
                .slice(cla.add(start % PAGE_SIZE), (end - start) as usize)
                .zero();
        }
        Ok(())
    }
}

/// Whether a file's size follows what it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    Stays,
    Grows,
}

impl Content {
    pub fn new(fs: &Arc<Tmpfs>) -> Content {
        Content {
            fs: fs.clone(),
            pages: RwLock::new(Pages::default()),
            was_used: AtomicBool::new(false),
            ahead: Ahead::default(),
        }
    }

    fn note_use(&self) {
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// As [`clas::Pageable::take_use`].
    pub fn take_use(&self) -> bool {
        self.was_used.swap(false, Ordering::Relaxed)
    }

    /// As [`clas::Pageable::each_run`].
    pub fn each_run(&self, page: u64, tell: &mut dyn FnMut(u64, Cla, u64) -> bool) {
        /// Who holds the lock copies, or makes frames.
        const PATIENCE: Duration = Duration::from_millis(1);
        let Some(p) = self.pages.try_write_for(PATIENCE) else {
            return;
        };
        let from = p.runs.range(..=page).next_back().map_or(page, |r| *r.0);
        let behind = |r: &(&u64, &(Cla, u64))| r.0 + r.1.1 > page;
        let mut runs = p.runs.range(from..).filter(behind);
        runs.all(|(&first, &(cla, n))| tell(first, cla, n));
    }

    pub fn size(&self) -> u64 {
        self.pages.read().size
    }
    pub fn size_and_pages(&self) -> (u64, u64) {
        let p = self.pages.read();
        (p.size, p.count)
    }

    /// Copies from `offset` to the pieces; gives how much, zero at the end. `EIO` only if nothing
    /// was read: what was swapped out is lost.
    pub fn read(&self, offset: u64, to: &[MemSlice<'_>]) -> Result<usize> {
        self.note_use();
        let p = self.pages.read();
        let mut at = offset;
        'all: for piece in to {
            let mut done = 0;
            while done < piece.len() && at < p.size {
                let left =
                    (piece.len() - done).min(usize::try_from(p.size - at).unwrap_or(usize::MAX));
                let page = page_of(at);
                let skip = at % PAGE_SIZE;
                let n = match p.find(page) {
                    Some((cla, pages)) => {
                        let n = left.min((pages * PAGE_SIZE - skip) as usize);
                        let to = piece.sub(done, n);
                        match self.fs.clas.read_out(cla.add(skip), to) {
                            Ok(n) => n,
                            Err(_) if at > offset => break 'all,
                            Err(e) => return Err(e),
                        }
                    }
                    None => {
                        let hole = p.next_run(page).saturating_mul(PAGE_SIZE) - at;
                        let n = left.min(usize::try_from(hole).unwrap_or(usize::MAX));
                        piece.sub(done, n).zero();
                        n
                    }
                };
                done += n;
                at += n as u64;
            }
        }
        Ok((at - offset) as usize)
    }

    /// Copies the pieces to `offset`, and makes the file longer where needed. `ENOSPC`, `ENOMEM`,
    /// `EIO` only if nothing was written.
    pub fn write(&self, offset: u64, from: &[MemSlice<'_>]) -> Result<usize> {
        let total: u64 = from.iter().map(|s| s.len() as u64).sum();
        if total == 0 {
            return Ok(0);
        }
        self.note_use();
        let mut p = self.pages.write();
        let (end, r) = p.fill(&self.fs, page_of(offset), page_end(offset + total));
        let end = end.saturating_mul(PAGE_SIZE).min(offset + total);
        if end <= offset {
            r?;
        }
        let mut at = offset;
        'all: for piece in from {
            let mut done = 0;
            while done < piece.len() {
                if at >= end {
                    break 'all;
                }
                let Some((cla, pages)) = p.find(page_of(at)) else {
                    break 'all;
                };
                let skip = at % PAGE_SIZE;
                let left = ((piece.len() - done) as u64).min(end - at);
                let pages = pages.min(page_end(skip + left));
                let here = match self.fs.clas.bring_first(cla, pages, pages) {
                    Ok(here) => here,
                    Err(_) if at > offset => break 'all,
                    Err(e) => return Err(e),
                };
                let n = left.min(here * PAGE_SIZE - skip);
                let to = self.fs.clas.slice(cla.add(skip), n as usize);
                to.copy_from_mem(piece.sub(done, n as usize));
                done += n as usize;
                at += n;
            }
        }
        p.size = p.size.max(at);
        Ok((at - offset) as usize)
    }

    /// Sets the size. The caller tells mappings of what lies behind it, then frees. `ENOMEM` where
    /// there is no room for what is swapped out and cut; nothing has changed then.
    pub fn truncate(&self, size: u64) -> Result<Freed> {
        let mut p = self.pages.write();
        if size < p.size {
            let rest = page_end(size) * PAGE_SIZE;
            p.zero_in_page(&self.fs, size, rest)?;
        }
        p.size = size;
        Ok(p.remove(&self.fs, page_end(size), u64::MAX))
    }

    /// Makes a range read as zeros, and frees its whole pages. `ENOMEM` as for
    /// [`Content::truncate`]: to be done again.
    pub fn punch(&self, Range { start, end }: Range<u64>) -> Result<Freed> {
        let mut p = self.pages.write();
        let (first, last) = (page_end(start), page_of(end));
        if first > last {
            p.zero_in_page(&self.fs, start, end)?;
            return Ok(Freed::default());
        }
        p.zero_in_page(&self.fs, start, first * PAGE_SIZE)?;
        p.zero_in_page(&self.fs, last * PAGE_SIZE, end)?;
        Ok(p.remove(&self.fs, first, last))
    }

    /// Gives a range frames; all of it, or an error. Where swap could make room for all of it, what
    /// was made before `ENOMEM` stays: the caller tries again when there is some.
    pub fn allocate(&self, Range { start, end }: Range<u64>, size: Size) -> Result<()> {
        let mut p = self.pages.write();
        let holes = p.holes(page_of(start), page_end(end));
        let missing: u64 = holes.iter().map(|(s, e)| e - s).sum();
        self.fs.take_pages(missing)?;
        self.fs.give_pages(missing);
        for &(s, e) in &holes {
            if let Err(err) = p.fill(&self.fs, s, e).1 {
                if err == ENOMEM && self.fs.clas.could_hold(missing * PAGE_SIZE) {
                    return Err(err);
                }
                // Nobody has seen them: the lock was held.
                for (s, e) in holes {
                    let new = p.remove(&self.fs, s, e);
                    self.free(new);
                }
                return Err(err);
            }
        }
        if size == Size::Grows {
            p.size = p.size.max(end);
        }
        Ok(())
    }

    /// Takes a reference to each of a run of `n` frames at this page of the file, as far as they
    /// are here, once the first is; gives for how many bytes.
    fn taken(&self, page: u64, cla: Cla, mut n: u64) -> Result<(Cla, u64)> {
        let clas = &self.fs.clas;
        if clas.are_some_away() {
            n = clas.bring_first(cla, n, self.ahead.plan(page))?;
        }
        clas.incref(cla, n);
        Ok((cla, n * PAGE_SIZE))
    }

    /// What backs the page at `offset`, with a reference on each frame, and for how many bytes.
    pub fn backing(&self, offset: u64, len: u64) -> Result<(Cla, u64)> {
        let page = page_of(offset);
        let wanted = page_end(len).max(1);
        {
            let p = self.pages.read();
            if page >= page_end(p.size) {
                return Err(EFAULT);
            }
            if let Some((cla, n)) = p.find(page) {
                return self.taken(page, cla, n.min(wanted));
            }
        }
        let mut p = self.pages.write();
        let end = page_end(p.size);
        if page >= end {
            return Err(EFAULT);
        }
        if p.find(page).is_none() {
            let n = wanted
                .min(FAULT_PAGES)
                .min(end - page)
                .min(p.next_run(page) - page);
            let (to, r) = p.fill(&self.fs, page, page + n);
            if to == page {
                // A full tmpfs is a SIGBUS.
                r.map_err(|e| if e == abi::errno::ENOSPC { EFAULT } else { e })?;
            }
        }
        let (cla, n) = p.find(page).ok_or(EFAULT)?;
        self.taken(page, cla, n.min(wanted))
    }

    /// As [`clas::Mappable::mark_confidential`].
    pub fn mark_confidential(&self, offset: u64, len: u64) -> Result<()> {
        let p = self.pages.read();
        let (mut page, end) = (page_of(offset), page_end(offset.saturating_add(len)));
        while page < end {
            match p.find(page) {
                Some((cla, n)) => {
                    let n = n.min(end - page);
                    self.fs.clas.bring_and_mark(cla, n)?;
                    page += n;
                }
                None => page = p.next_run(page),
            }
        }
        Ok(())
    }

    /// SEEK_DATA: the first byte at or after `offset` that has a frame.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        let p = self.pages.read();
        if offset >= p.size {
            return Err(ENXIO);
        }
        if p.find(page_of(offset)).is_some() {
            return Ok(offset);
        }
        let next = p.next_run(page_of(offset));
        next.checked_mul(PAGE_SIZE)
            .filter(|o| *o < p.size)
            .ok_or(ENXIO)
    }

    /// How many pages there are from `first` to before `end`.
    pub fn pages_in(&self, first: u64, end: u64) -> u64 {
        let p = self.pages.read();
        let end = end.min(p.size.div_ceil(PAGE_SIZE));
        let (mut page, mut n) = (first, 0);
        while page < end {
            match p.find(page) {
                Some((_, run)) => {
                    let run = run.min(end - page);
                    (page, n) = (page + run, n + run);
                }
                None => page = p.next_run(page),
            }
        }
        n
    }

    /// SEEK_HOLE: the first byte at or after `offset` that has none; the end is a hole.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        let p = self.pages.read();
        if offset >= p.size {
            return Err(ENXIO);
        }
        let mut page = page_of(offset);
        let mut at = offset;
        while let Some((_, n)) = p.find(page) {
            page += n;
            at = page * PAGE_SIZE;
        }
        Ok(at.min(p.size))
    }

    /// Gives frames back that left the file.
    pub fn free(&self, freed: Freed) {
        for (cla, n) in freed.0 {
            self.fs.clas.decref(cla, n);
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let p = self.pages.get_mut();
        for (cla, n) in std::mem::take(&mut p.runs).into_values() {
            self.fs.clas.decref(cla, n);
            self.fs.give_pages(n);
        }
    }
}
