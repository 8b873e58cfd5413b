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
//!   faults meanwhile does not find them, and who had them mapped has written for the last time when
//!   they are looked at.
//! - Pages that may be written through a mapping are in `written`, with a hash of what the server
//!   has. What differs is not known to the server: it stays, whatever the server says of the file,
//!   until it was written back. It counts as known when the server has said so, or when a request
//!   is on its way that everybody waits for who asks about the file ([`FuseInode::settle`]).
//! - What is kept is whole pages, zeros behind the end of the file: the file may grow.
//!
//! They go with the last mapping.

use crate::file::Handle;
use crate::inode::FuseInode;
use abi::errno::{EAGAIN, EFAULT, EIO};
use abi::{PAGE_SIZE, Result, Va};
use clas::{Access, Backing, Clas, Mappable, MappingObserver};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::ops::Range;
use std::sync::{Arc, Weak};
use vfs::caller::Client;
use vfs::fs::tmpfs::{Node, Payer};
use vfs::{FileType, NewNode};

/// Whole pages.
const PAGE: usize = PAGE_SIZE as usize;

#[derive(Default)]
struct Have {
    /// Pages that were filled: first and end. Disjoint, not adjacent.
    filled: BTreeMap<u64, u64>,
    /// Pages that may be written through a mapping, and the hash of what the server has. Some are
    /// being dropped, and come back if they differ.
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
    /// They are gone, and what was known of them.
    fn remove(&mut self, r: Range<u64>) {
        self.hide(r.clone());
        let behind = self.written.split_off(&r.start);
        self.written
            .extend(behind.into_iter().filter(|(p, _)| *p >= r.end));
    }
    /// Nobody finds them.
    fn hide(&mut self, r: Range<u64>) {
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

/// Changes of contents, by rounds: the last ones, and where they were.
#[derive(Default)]
struct Changes {
    round: u64,
    last: VecDeque<Range<u64>>,
}

impl Changes {
    /// So many are remembered; of who is slower it is not known what has changed.
    const LAST: usize = 32;

    /// A change of these pages.
    fn changed(&mut self, pages: Range<u64>) {
        self.round += 1;
        if self.last.len() == Changes::LAST {
            self.last.pop_front();
        }
        self.last.push_back(pages);
    }
    /// Whether none of these pages has changed since a round.
    fn none_since(&self, round: u64, pages: &Range<u64>) -> bool {
        let since = usize::try_from(self.round - round).unwrap_or(usize::MAX);
        let apart = |r: &Range<u64>| r.end <= pages.start || pages.end <= r.start;
        since <= self.last.len() && self.last.iter().rev().take(since).all(apart)
    }
}

/// See the module.
pub struct Pages {
    inode: Arc<FuseInode>,
    /// By which they are read.
    handle: Arc<Handle>,
    node: Arc<Node>,
    /// Held by who changes contents.
    store: Mutex<Changes>,
    have: Mutex<Have>,
}

/// Of a whole page.
fn hash(page: &[u8]) -> u64 {
    let mut h = SipHasher13::new();
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
            store: Mutex::default(),
            have: Mutex::default(),
        }))
    }

    /// What is filled at `at`, up to `most` bytes; `None` where nothing is.
    pub fn read(&self, at: u64, most: usize) -> Option<Vec<u8>> {
        // Nothing goes meanwhile.
        let _store = self.store.lock();
        let end = self.have.lock().run(at / PAGE_SIZE)?;
        let left = end.saturating_mul(PAGE_SIZE) - at;
        let mut bytes = vec![0; most.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let n = self.node.read_at(at, &mut bytes).ok().filter(|n| *n > 0)?;
        bytes.truncate(n);
        Some(bytes)
    }

    /// How many bytes from `at` on are not filled.
    pub fn missing(&self, at: u64) -> u64 {
        let hole = self.have.lock().hole(at / PAGE_SIZE);
        match hole.start == at / PAGE_SIZE {
            true => hole.end.saturating_mul(PAGE_SIZE) - at,
            false => 0,
        }
    }

    /// A call has written: what is here of that follows.
    pub fn put(&self, offset: u64, data: &[u8]) {
        let mut store = self.store.lock();
        store.changed(pages_of(offset, data.len() as u64));
        for page in pages_of(offset, data.len() as u64) {
            if self.have.lock().run(page).is_none() {
                continue;
            }
            let start = page * PAGE_SIZE;
            let from = start.max(offset);
            let to = (start + PAGE_SIZE).min(offset + data.len() as u64);
            let part = &data[(from - offset) as usize..(to - offset) as usize];
            // What the server has now, if it had what was here.
            let mut expected = self.page(page);
            let clean = self.have.lock().written.get(&page).copied();
            let was_clean = clean == Some(hash(&expected));
            let skip = (from - start) as usize;
            expected[skip..skip + part.len()].copy_from_slice(part);
            if self.node.write_at(from, part).is_err() {
                self.node.unmap(start, PAGE_SIZE);
                self.drop_run(page..page + 1);
            } else if was_clean {
                self.note_clean(page, hash(&expected));
            }
        }
    }

    /// The server's data there are others now.
    pub fn forget(&self, offset: u64, len: u64) {
        let mut store = self.store.lock();
        store.changed(pages_of(offset, len));
        self.drop_pages(pages_of(offset, len));
    }

    /// The file was cut short, or may have been before it grew again.
    pub fn cut(&self, size: u64) {
        let mut store = self.store.lock();
        store.changed(size / PAGE_SIZE..u64::MAX);
        let last = size.div_ceil(PAGE_SIZE);
        self.have.lock().remove(last..u64::MAX);
        let (page, clean) = (size / PAGE_SIZE, self.is_clean(size / PAGE_SIZE));
        // (Where there is no room for a page that was swapped out, the rest of it stays.)
        let _ = self.node.open_ops().truncate(size);
        let _ = self.node.extend_to(last * PAGE_SIZE);
        if clean && page < last {
            self.note_clean(page, hash(&self.page(page)));
        }
    }

    /// Drops filled pages, but those of which the server does not know yet. Under `store`.
    fn drop_pages(&self, r: Range<u64>) {
        let runs: Vec<Range<u64>> = {
            let mut have = self.have.lock();
            let from = have.filled.range(..=r.start).next_back();
            let from = from.map_or(r.start, |(&s, _)| s);
            let runs = have
                .filled
                .range(from..r.end)
                .map(|(&s, &e)| s.max(r.start)..e.min(r.end))
                .filter(|r| !r.is_empty())
                .collect();
            have.hide(r);
            runs
        };
        for run in runs {
            let (offset, len) = (run.start * PAGE_SIZE, (run.end - run.start) * PAGE_SIZE);
            self.node.unmap(offset, len);
            let written: Vec<u64> = {
                let have = self.have.lock();
                have.written.range(run.clone()).map(|(&p, _)| p).collect()
            };
            let kept = written.into_iter().filter(|p| !self.is_clean(*p));
            let mut start = run.start;
            for end in kept.collect::<Vec<_>>().into_iter().chain([run.end]) {
                if start < end {
                    self.drop_run(start..end);
                }
                if end < run.end {
                    self.have.lock().insert(end..end + 1);
                }
                start = end + 1;
            }
        }
    }

    /// Drops pages that nobody has mapped. Under `store`.
    fn drop_run(&self, r: Range<u64>) {
        let (offset, len) = (r.start * PAGE_SIZE, (r.end - r.start) * PAGE_SIZE);
        self.have.lock().remove(r);
        let _ = self.node.punch_hole(offset, len);
    }

    /// What a page has; zeros for what is not there.
    fn page(&self, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        let n = self.node.read_at(page * PAGE_SIZE, &mut bytes).unwrap_or(0);
        bytes[n..].fill(0);
        bytes
    }
    /// Whether the server has what the page has, as far as mappings go.
    fn is_clean(&self, page: u64) -> bool {
        let clean = self.have.lock().written.get(&page).copied();
        clean.is_none_or(|h| h == hash(&self.page(page)))
    }
    /// The server has a page with this hash.
    fn note_clean(&self, page: u64, now: u64) {
        if let Some(h) = self.have.lock().written.get_mut(&page) {
            *h = now;
        }
    }

    /// Has the server write what was written through mappings, and waits for that.
    pub fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        self.each_dirty(offset, len, |writer, start, data| {
            let mut done = 0;
            while done < data.len() {
                let (at, rest) = (start + done as u64, &data[done..]);
                match writer.write_back(at, rest)? {
                    0 => return Err(EIO),
                    n => done += n,
                }
            }
            Ok(())
        })
    }
    /// The same for whoever must not wait.
    fn post_back(&self) -> Result<()> {
        let post = |writer: &Handle, start, data: &[u8]| writer.post_write(start, data);
        self.each_dirty(0, u64::MAX, post)
    }
    /// Runs of dirty pages, each as much as the server takes at once: `write` gives them to the
    /// server, by a file that is open for writing. The first error, after all were tried.
    fn each_dirty(
        &self,
        offset: u64,
        len: u64,
        write: impl Fn(&Handle, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let r = pages_of(offset, len);
        let all: Vec<u64> = {
            let have = self.have.lock();
            have.written.range(r).map(|(&p, _)| p).collect()
        };
        let mut dirty = all.into_iter().filter(|p| !self.is_clean(*p)).peekable();
        if dirty.peek().is_none() {
            return Ok(());
        }
        let writer = self.inode.writers.lock().iter().find_map(Weak::upgrade);
        let writer = writer.ok_or(EIO)?;
        let most = (self.inode.conn.limits().write / PAGE).max(1);
        let mut result = Ok(());
        while let Some(first) = dirty.next() {
            let mut data = self.page(first);
            let mut hashes = vec![(first, hash(&data))];
            while hashes.len() < most
                && let Some(next) = dirty.next_if_eq(&(first + hashes.len() as u64))
            {
                let bytes = self.page(next);
                hashes.push((next, hash(&bytes)));
                data.extend_from_slice(&bytes);
            }
            // Nothing behind the end of the file.
            let left = self.inode.known_size().saturating_sub(first * PAGE_SIZE);
            data.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            if data.is_empty() {
                continue;
            }
            let written = write(&writer, first * PAGE_SIZE, &data);
            self.inode.pages_were_written();
            match written {
                // What comes meanwhile differs from this.
                Ok(()) => hashes.iter().for_each(|(p, h)| self.note_clean(*p, *h)),
                e => result = result.and(e),
            }
        }
        result
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
    fn is_served(&self) -> bool {
        true
    }
    fn first_absent(&self, offset: u64, end: u64) -> Option<u64> {
        let hole = self.have.lock().hole(offset / PAGE_SIZE);
        let size = self.inode.known_size().next_multiple_of(PAGE_SIZE);
        let at = hole.start.saturating_mul(PAGE_SIZE).max(offset);
        (at < end.min(size)).then_some(at)
    }
    fn write_back(&self, offset: u64, len: u64) {
        let waits = |c: &dyn Client| !c.killed() || c.waits_at_end();
        if !vfs::caller::client().is_ok_and(|c| waits(&*c)) {
            return;
        }
        if Pages::write_back(self, offset, len).is_err() {
            self.inode.lost_writes();
        }
    }
    /// Asks the server for the page at `offset` and for what follows, to the end of what it sends at
    /// once.
    fn fill(&self, offset: u64) -> Result<()> {
        /// The file changes all the time.
        const TRIES: u32 = 100;
        let page = offset / PAGE_SIZE;
        for _ in 0..TRIES {
            let round = self.store.lock().round;
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
            // Others may have got some of it, and written there.
            let hole = self.have.lock().hole(page);
            if hole.start != page {
                return Ok(());
            }
            let part = page..part.end.min(hole.end);
            if !now.none_since(round, &part) {
                continue;
            }
            let most = (part.end - part.start) as usize * PAGE;
            let bytes = &bytes[..bytes.len().min(most)];
            // Behind what came are zeros.
            self.node.write_at(page * PAGE_SIZE, bytes)?;
            self.node.extend_to(part.end * PAGE_SIZE)?;
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
        Pages::write_back(self, offset, len)?;
        self.inode.settle()?;
        self.handle
            .sync(crate::proto::Op::Fsync, vfs::file::DataOnly::No)
    }
    fn map_writable(&self) -> Result<()> {
        self.node.map_writable()
    }
    /// What is left to write goes to the server.
    fn unmap_writable(&self) {
        self.node.unmap_writable();
        if self.post_back().is_err() {
            self.inode.lost_writes();
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
