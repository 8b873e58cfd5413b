//! `MAP_SHARED | MAP_ANONYMOUS`: a file without a name, shared by whoever inherits the mapping.

use crate::types::MapName;
use crate::{PAGE, Result};
use abi::Va;
use abi::errno::EFAULT;
use clas::{Access, Ahead, Backing, Cla, Clas, Listed, Mappable, MappingObserver};
use clas::{MappingRegistry, Pageable};
use gap_tree::GapTree;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Frames are allocated in runs of at most this size.
const RUN: u64 = 2 << 20;

pub(crate) struct SharedAnon {
    clas: Arc<Clas>,
    size: u64,
    ino: u64,
    /// By offset; each holds a reference to its frames. Lock order: before the CLAS only.
    frames: Mutex<GapTree<Cla>>,
    /// Where it can be swapped out; else nobody needs to know who maps it: nothing is ever cut off.
    listed: OnceLock<Listed>,
    mappings: MappingRegistry,
    ahead: Ahead,
}

static NEXT_INO: AtomicU64 = AtomicU64::new(1);

impl SharedAnon {
    pub(crate) fn new(clas: Arc<Clas>, size: u64) -> Arc<SharedAnon> {
        let new = Arc::new(SharedAnon {
            clas,
            size,
            ino: NEXT_INO.fetch_add(1, Ordering::Relaxed),
            frames: Mutex::new(GapTree::new()),
            listed: OnceLock::new(),
            mappings: MappingRegistry::new(),
            ahead: Ahead::default(),
        });
        let file: Weak<SharedAnon> = Arc::downgrade(&new);
        new.clas.list_file(file).map(|l| new.listed.set(l));
        new
    }
}

impl Pageable for SharedAnon {
    fn each_run(&self, page: u64, tell: &mut dyn FnMut(u64, Cla, u64) -> bool) {
        /// Who holds the lock makes frames.
        const PATIENCE: Duration = Duration::from_millis(1);
        let Some(frames) = self.frames.try_lock_for(PATIENCE) else {
            return;
        };
        let run = |(r, at): (Range<u64>, &Cla)| tell(r.start / PAGE, *at, (r.end - r.start) / PAGE);
        frames.range(page * PAGE..u64::MAX).all(run);
    }
    fn mappers(&self) -> Option<&MappingRegistry> {
        Some(&self.mappings)
    }
}

impl Mappable for SharedAnon {
    fn memory(&self) -> Option<&Arc<Clas>> {
        Some(&self.clas)
    }
    fn backing(&self, offset: u64, len: u64, _access: Access) -> Result<(Backing, u64)> {
        if offset >= self.size {
            return Err(EFAULT);
        }
        let end = offset.saturating_add(len).min(self.size);
        let mut frames = self.frames.lock();
        let found = frames.first_from(offset).map(|(r, at)| (r, *at));
        let (at, end) = match found {
            Some((r, at)) if r.start <= offset => (at.add(offset - r.start), r.end.min(end)),
            next => {
                let limit = next
                    .map_or(end, |(r, _)| r.start.min(end))
                    .min(offset + self.clas.at_once(RUN));
                let below = frames.last_below(offset).filter(|(r, _)| r.end == offset);
                let below = below.map(|(r, at)| at.add(r.end - r.start));
                let pages = (limit - offset) / PAGE;
                let (at, limit) = match self.clas.allocate_near(pages, None, below, Va(offset)) {
                    Ok(at) => (at, limit),
                    // The caller waits for room for one page.
                    Err(_) => (self.clas.allocate(1, None)?, offset + PAGE),
                };
                let free = frames.insert(offset..limit, at).is_ok();
                debug_assert!(free);
                (at, limit)
            }
        };
        let mut n = (end - offset) / PAGE;
        if self.clas.are_some_away() {
            n = self
                .clas
                .bring_first(at, n, self.ahead.plan(offset / PAGE))?;
        }
        self.clas.incref(at, n);
        Ok((Backing::Frames(at), n * PAGE))
    }
    fn trim(&self) {
        let mut frames = self.frames.lock();
        let mut found = Vec::new();
        for (r, at) in frames.iter() {
            for (hole, n) in self.clas.holes(*at, (r.end - r.start) / PAGE) {
                // Page by page: some may be mapped, or in use by a call, or swapped out.
                let free = (0..n).map(|i| hole.add(i * PAGE));
                let free = free.filter(|p| self.clas.is_exclusive(*p, 1));
                let free = free.filter(|p| self.clas.next_here(*p, 1).is_some());
                found.extend(free.map(|p| (r.start + (p.0 - at.0), p)));
            }
        }
        for (offset, at) in found {
            for cut in [offset, offset + PAGE] {
                frames.split(cut, |at, e| at.add(cut - e.start));
            }
            frames.remove(offset);
            self.clas.decref(at, 1);
        }
    }
    fn add_mapping(&self, o: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        if self.listed.get().is_some() {
            self.mappings.add(o, va, offset, len);
        }
    }
    fn remove_mapping(&self, o: &Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        if self.listed.get().is_some() {
            self.mappings.remove(o, va, offset, len);
        }
    }
    fn mark_confidential(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        for (r, at) in self.frames.lock().range(offset..end) {
            let (s, e) = (r.start.max(offset), r.end.min(end));
            self.clas
                .bring_and_mark(at.add(s - r.start), (e - s) / PAGE)?;
        }
        Ok(())
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        for (r, at) in self.frames.lock().range(offset..end) {
            let (s, e) = (r.start.max(offset), r.end.min(end));
            self.clas.discard(at.add(s - r.start), (e - s) / PAGE);
        }
        Ok(())
    }
}

impl MapName for SharedAnon {
    fn path(&self) -> Vec<u8> {
        b"/dev/zero (deleted)".to_vec()
    }
    fn dev_ino(&self) -> (u64, u64) {
        (1, self.ino)
    }
}

impl Drop for SharedAnon {
    fn drop(&mut self) {
        for (r, at) in self.frames.get_mut().iter() {
            self.clas.decref(*at, (r.end - r.start) / PAGE);
        }
    }
}
