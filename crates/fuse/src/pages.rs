//! Pages of a file that is mapped: in a file of the container's memory, which nobody else sees.
//!
//! # Invariants
//!
//! - `have` tells which pages were filled. No mapping gets another one: `backing` says `EAGAIN`, and
//!   who wanted it comes back with `fill`, without locks.
//! - Contents change under `store` alone: those that the server sent (`fill`), what calls write
//!   (`put`), what goes (`forget`, `cut`). What goes counts one round more; an answer to a question of
//!   an earlier round is void, for the file may have changed since.
//! - Pages go from `have` first, then from mappings, then their frames, all under `store`: who
//!   faults meanwhile does not find them.
//! - Pages that may be written through a mapping are in `written`, with a hash of what they had. What
//!   differs is not known to the server: it stays, whatever the server says of the file, until it
//!   was written back.
//!
//! They go with the last mapping.

use crate::file::Handle;
use crate::inode::FuseInode;
use crate::proto::WRITE_CACHE;
use abi::errno::{EAGAIN, EFAULT, EINTR, EIO};
use abi::{PAGE_SIZE, Result, Va};
use clas::{Access, Backing, Clas, Mappable, MappingObserver};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::{Arc, Weak};
use vfs::fs::tmpfs::{Node, Payer};
use vfs::{FileType, NewNode};

/// Whole pages.
const PAGE: usize = PAGE_SIZE as usize;

#[derive(Default)]
struct Have {
    /// Pages that were filled: first and end. Disjoint, not adjacent.
    filled: BTreeMap<u64, u64>,
    /// Pages that may be written through a mapping, and the hash of what the server has.
    written: BTreeMap<u64, u64>,
}

impl Have {
    /// The end of the filled run that a page is in.
    fn run(&self, page: u64) -> Option<u64> {
        let (_, &end) = self.filled.range(..=page).next_back()?;
        (page < end).then_some(end)
    }
    /// The first page from `page` on that is not filled, and where it ends that nothing is.
    fn hole(&self, page: u64) -> Range<u64> {
        let first = self.run(page).unwrap_or(page);
        let next = self.filled.range(first..).next().map(|(&s, _)| s);
        first..next.unwrap_or(u64::MAX)
    }
    fn insert(&mut self, mut r: Range<u64>) {
        if let Some((&s, &e)) = self.filled.range(..=r.start).next_back()
            && e >= r.start
        {
            r.start = s;
            r.end = r.end.max(e);
        }
        let inside: Vec<_> = self
            .filled
            .range(r.start..=r.end)
            .map(|(&s, &e)| (s, e))
            .collect();
        for (s, e) in inside {
            self.filled.remove(&s);
            r.end = r.end.max(e);
        }
        self.filled.insert(r.start, r.end);
    }
    fn remove(&mut self, r: Range<u64>) {
        if r.is_empty() {
            return;
        }
        let from = self
            .filled
            .range(..=r.start)
            .next_back()
            .map_or(r.start, |(&s, _)| s);
        let hit: Vec<_> = self
            .filled
            .range(from..r.end)
            .filter(|(_, e)| **e > r.start)
            .map(|(&s, &e)| (s, e))
            .collect();
        for (s, e) in hit {
            self.filled.remove(&s);
            if s < r.start {
                self.filled.insert(s, r.start);
            }
            if e > r.end {
                self.filled.insert(r.end, e);
            }
        }
    }
}

/// See the module.
pub struct Pages {
    inode: Arc<FuseInode>,
    /// By which they are read.
    handle: Arc<Handle>,
    node: Arc<Node>,
    /// The round.
    store: Mutex<u64>,
    have: Mutex<Have>,
}

fn hash(page: &[u8]) -> u64 {
    let mut h = SipHasher13::new_with_keys(0x5bd1_e995, page.len() as u64);
    h.write(page);
    h.finish()
}

/// The pages of a range of bytes, those that it has a part of, too.
fn pages_of(offset: u64, len: u64) -> Range<u64> {
    let end = offset.saturating_add(len);
    offset / PAGE_SIZE..end.div_ceil(PAGE_SIZE)
}

impl Pages {
    /// None yet.
    pub fn new(inode: &Arc<FuseInode>, handle: &Arc<Handle>) -> Result<Arc<Pages>> {
        let new = NewNode {
            mode: 0o600,
            uid: 0,
            gid: 0,
        };
        let cred = vfs::caller::client()?.credentials();
        let payer = Payer::Caller(&cred);
        let cache = &inode.conn.cache;
        Ok(Arc::new(Pages {
            inode: inode.clone(),
            handle: handle.clone(),
            node: Node::detached(cache, FileType::Regular, 0, new, &[], payer)?,
            store: Mutex::new(0),
            have: Mutex::default(),
        }))
    }

    /// What is filled at `at`, up to `most` bytes; `None` where nothing is.
    pub fn read(&self, at: u64, most: usize) -> Option<Vec<u8>> {
        let page = at / PAGE_SIZE;
        let end = self.have.lock().run(page)?;
        let n = most.min(usize::try_from(end.saturating_mul(PAGE_SIZE) - at).unwrap_or(usize::MAX));
        let mut bytes = vec![0; n];
        // (What goes just now is asked for again.)
        let n = self.node.read_at(at, &mut bytes).ok().filter(|n| *n > 0)?;
        self.have.lock().run(page)?;
        bytes.truncate(n);
        Some(bytes)
    }

    /// A call has written: what is here of that follows.
    pub fn put(&self, offset: u64, data: &[u8]) {
        let mut round = self.store.lock();
        *round += 1;
        for page in pages_of(offset, data.len() as u64) {
            if self.have.lock().run(page).is_none() {
                continue;
            }
            let from = (page * PAGE_SIZE).max(offset);
            let to = ((page + 1) * PAGE_SIZE).min(offset + data.len() as u64);
            let part = &data[(from - offset) as usize..(to - offset) as usize];
            let before = self.is_dirty(page);
            if self.node.write_at(from, part).is_err() {
                self.have.lock().remove(page..page + 1);
            }
            if !before {
                self.note_written(page);
            }
        }
    }

    /// The server's data there are others now.
    pub fn forget(&self, offset: u64, len: u64) {
        let mut round = self.store.lock();
        *round += 1;
        self.drop_pages(pages_of(offset, len));
    }

    /// The file was cut short, or may have been before it grew again.
    pub fn cut(&self, size: u64) {
        let mut round = self.store.lock();
        *round += 1;
        let mut have = self.have.lock();
        have.remove(size.div_ceil(PAGE_SIZE)..u64::MAX);
        have.written.split_off(&size.div_ceil(PAGE_SIZE));
        drop(have);
        // (Where there is no room for a page that was swapped out, the rest of it stays.)
        let _ = self.node.open_ops().truncate(size);
    }

    /// Drops filled pages, but those of which the server does not know yet. Under `store`.
    fn drop_pages(&self, r: Range<u64>) {
        let runs: Vec<Range<u64>> = {
            let have = self.have.lock();
            let from = have
                .filled
                .range(..=r.start)
                .next_back()
                .map_or(r.start, |(&s, _)| s);
            have.filled
                .range(from..r.end)
                .map(|(&s, &e)| s.max(r.start)..e.min(r.end))
                .filter(|r| !r.is_empty())
                .collect()
        };
        for run in runs {
            let kept: Vec<u64> = {
                let have = self.have.lock();
                have.written.range(run.clone()).map(|(&p, _)| p).collect()
            };
            let kept: Vec<u64> = kept.into_iter().filter(|p| self.is_dirty(*p)).collect();
            let mut start = run.start;
            for end in kept.into_iter().chain([run.end]) {
                self.drop_run(start..end);
                start = end + 1;
            }
        }
    }
    fn drop_run(&self, r: Range<u64>) {
        if r.is_empty() {
            return;
        }
        {
            let mut have = self.have.lock();
            have.remove(r.clone());
            let behind = have.written.split_off(&r.start);
            have.written
                .extend(behind.into_iter().filter(|(p, _)| *p >= r.end));
        }
        let (offset, len) = (r.start * PAGE_SIZE, (r.end - r.start) * PAGE_SIZE);
        let _ = self.node.punch_hole(offset, len);
    }

    /// What a page has, up to the end of the file.
    fn page(&self, page: u64) -> Vec<u8> {
        let size = self.inode.known_size();
        let len = size.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE);
        let mut bytes = vec![0; len as usize];
        let n = self.node.read_at(page * PAGE_SIZE, &mut bytes).unwrap_or(0);
        bytes.truncate(n);
        bytes
    }
    fn is_dirty(&self, page: u64) -> bool {
        let clean = self.have.lock().written.get(&page).copied();
        clean.is_some_and(|h| h != hash(&self.page(page)))
    }
    /// The server has what the page has.
    fn note_written(&self, page: u64) {
        let now = hash(&self.page(page));
        if let Some(h) = self.have.lock().written.get_mut(&page) {
            *h = now;
        }
    }

    /// Has the server write what was written through mappings; waits for that where somebody can.
    pub fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        let r = pages_of(offset, len);
        let all: Vec<u64> = self.have.lock().written.range(r).map(|(&p, _)| p).collect();
        let most = self.inode.conn.limits().write / PAGE * PAGE;
        let mut result = Ok(());
        let (mut start, mut data) = (0, Vec::new());
        for page in all.into_iter().filter(|p| self.is_dirty(*p)) {
            let goes_on = start + data.len() as u64 == page * PAGE_SIZE;
            if !data.is_empty() && (!goes_on || data.len() >= most) {
                result = result.and(self.write_piece(start, &data));
                data.clear();
            }
            if data.is_empty() {
                start = page * PAGE_SIZE;
            }
            let bytes = self.page(page);
            // What comes meanwhile differs from this.
            if let Some(h) = self.have.lock().written.get_mut(&page) {
                *h = hash(&bytes);
            }
            data.extend_from_slice(&bytes);
        }
        if !data.is_empty() {
            result = result.and(self.write_piece(start, &data));
        }
        result
    }
    fn write_piece(&self, start: u64, data: &[u8]) -> Result<()> {
        let writer = self.inode.writers.lock().iter().find_map(Weak::upgrade);
        let writer = writer.ok_or(EIO)?;
        let waits = vfs::caller::client().is_ok_and(|c| !c.killed());
        if !waits {
            writer.post_write(start, data, WRITE_CACHE);
            return Ok(());
        }
        let mut done = 0;
        while done < data.len() {
            match writer.write(
                start + done as u64,
                &data[done..],
                WRITE_CACHE,
                writer.flags(),
            )? {
                0 => return Err(EIO),
                n => done += n,
            }
        }
        self.inode.attributes_changed();
        Ok(())
    }
}

impl Mappable for Pages {
    fn memory(&self) -> Option<&Arc<Clas>> {
        self.node.memory()
    }
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)> {
        let page = offset / PAGE_SIZE;
        let pages = self.inode.known_size().div_ceil(PAGE_SIZE);
        if page >= pages {
            return Err(EFAULT);
        }
        let mut have = self.have.lock();
        let end = have.run(page).ok_or(EAGAIN)?.min(pages);
        let most = (end - page) * PAGE_SIZE;
        let (backing, n) = self.node.backing(offset, len.min(most), access)?;
        if access == Access::Write {
            for p in page..page + n / PAGE_SIZE {
                let clean = || hash(&self.page(p));
                have.written.entry(p).or_insert_with(clean);
            }
        }
        Ok((backing, n))
    }
    /// Asks the server for the page at `offset` and for what follows, to the end of what it sends at
    /// once.
    fn fill(&self, offset: u64, _: u64) -> Result<()> {
        /// The file changes all the time.
        const TRIES: u32 = 100;
        let page = offset / PAGE_SIZE;
        for _ in 0..TRIES {
            let round = *self.store.lock();
            let pages = self.inode.known_size().div_ceil(PAGE_SIZE);
            let hole = self.have.lock().hole(page);
            if hole.start != page || page >= pages {
                return Ok(());
            }
            let limits = self.inode.conn.limits();
            let most = (limits.read.min(limits.ahead.max(PAGE)) / PAGE) as u64;
            let part = page..hole.end.min(pages).min(page + most);
            let n = (part.end - part.start) as usize * PAGE;
            let bytes = self.handle.read(page * PAGE_SIZE, n)?;
            let now = self.store.lock();
            if *now != round {
                continue;
            }
            // Behind what came are zeros.
            self.node.write_at(page * PAGE_SIZE, &bytes)?;
            let size = self.inode.known_size().min(part.end * PAGE_SIZE);
            self.node.extend_to(size)?;
            self.have.lock().insert(part);
            return Ok(());
        }
        Err(EIO)
    }
    fn add_mapping(&self, observer: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.node.add_mapping(observer, va, offset, len);
    }
    fn remove_mapping(&self, o: &Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.node.remove_mapping(o, va, offset, len);
    }
    fn mark_confidential(&self, offset: u64, len: u64) -> Result<()> {
        self.node.mark_confidential(offset, len)
    }
    fn sync(&self, offset: u64, len: u64) -> Result<()> {
        self.write_back(offset, len)?;
        self.handle
            .sync(crate::proto::Op::Fsync, vfs::file::DataOnly::No)
    }
    fn map_writable(&self) -> Result<()> {
        self.node.map_writable()
    }
    /// What was written goes to the server (`fuse_vma_close`). Without locks.
    fn unmap_writable(&self) {
        self.node.unmap_writable();
        match self.write_back(0, u64::MAX) {
            Ok(()) | Err(EINTR) => {}
            // As of a disk that fails: nobody is there to be told.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Have;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        (0u64..40, 1u64..12, any::<bool>()).prop_map(|(s, n, insert)| match insert {
            true => Step::Insert(s, s + n),
            false => Step::Remove(s, s + n),
        })
    }

    proptest! {
        #[test]
        fn runs_are_as_a_set_of_pages(steps in proptest::collection::vec(step(), 0..40)) {
            let (mut have, mut set) = (Have::default(), BTreeSet::new());
            for s in steps {
                match s {
                    Step::Insert(s, e) => {
                        have.insert(s..e);
                        set.extend(s..e);
                    }
                    Step::Remove(s, e) => {
                        have.remove(s..e);
                        set.retain(|p| !(s..e).contains(p));
                    }
                }
                for p in 0..60 {
                    let end = (p..).find(|q| !set.contains(q));
                    prop_assert_eq!(have.run(p), end.filter(|e| *e > p));
                    let hole = have.hole(p);
                    prop_assert_eq!(Some(hole.start), end);
                    let next = set.range(hole.start..).next().copied();
                    prop_assert_eq!(hole.end, next.unwrap_or(u64::MAX));
                }
                prop_assert!(have.filled.iter().zip(have.filled.iter().skip(1)).all(|(a, b)| *a.1 < *b.0));
            }
        }
    }
}
