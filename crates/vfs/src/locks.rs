//! Advisory locks: flock(2), POSIX record locks and open-file-description locks.
//!
//! POSIX locks belong to a descriptor table, and go at *any* close of the file through it; the
//! other two kinds belong to the open file. Only POSIX locks have deadlock detection, as in Linux.

use crate::file::File;
use crate::ucounts::{Charge, Kind, Ucounts};
use abi::Result;
use abi::errno::{EAGAIN, EDEADLK, EINVAL, ENOLCK, EOVERFLOW};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wait::{Blocker, Events, WaitQueue, block_until};

/// The last byte that a lock can cover (`OFFSET_MAX`).
pub const OFFSET_MAX: u64 = i64::MAX as u64;
/// Ranges that one file may have locked.
const MAX_RANGES: usize = 1 << 18;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    Read,
    Write,
}

impl LockKind {
    fn conflicts(self, o: LockKind) -> bool {
        self == LockKind::Write || o == LockKind::Write
    }
}

/// Whose record lock it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    /// A descriptor table ([`crate::FdTable::id`]).
    Posix(u64),
    /// An open file ([`File::id`]).
    OpenFile(u64),
}

/// Bytes `start..=end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    pub start: u64,
    pub end: u64,
}

impl LockRange {
    /// From `struct flock`: `base` is what `l_whence` means (0, the position, or the size).
    pub fn new(base: u64, start: i64, len: i64) -> Result<LockRange> {
        let start = i64::try_from(base)
            .map_err(|_| EOVERFLOW)?
            .checked_add(start)
            .ok_or(EOVERFLOW)?;
        if start < 0 {
            return Err(EINVAL);
        }
        let (start, end) = if len > 0 {
            (start, start.checked_add(len - 1).ok_or(EOVERFLOW)?)
        } else if len < 0 {
            let first = start.checked_add(len).ok_or(EINVAL)?;
            if first < 0 {
                return Err(EINVAL);
            }
            (first, start - 1)
        } else {
            (start, i64::MAX)
        };
        Ok(LockRange {
            start: start as u64,
            end: end as u64,
        })
    }
}

/// A lock that stands in the way, for `F_GETLK`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub kind: LockKind,
    pub range: LockRange,
    /// The process that took it; -1 for an open file's.
    pub pid: i32,
    pub owner: Owner,
}

#[derive(Clone, Copy)]
struct RangeLock {
    end: u64,
    kind: LockKind,
    pid: i32,
}

#[derive(Default)]
struct Inner {
    /// By the open file's id, with the process that took it.
    flock: HashMap<u64, (LockKind, i32)>,
    /// By owner; each one's ranges are disjoint, by start.
    records: HashMap<Owner, BTreeMap<u64, RangeLock>>,
    /// What an owner's ranges take of the kernel's memory, as its user's.
    memory: HashMap<Owner, Charge>,
}

/// What a locked range takes, bytes.
const RANGE: u64 = 128;

impl Inner {
    fn flock_conflict(&self, id: u64, kind: LockKind) -> bool {
        match kind {
            LockKind::Write => self.flock.keys().any(|&o| o != id),
            LockKind::Read => self
                .flock
                .iter()
                .any(|(&o, &(k, _))| o != id && k == LockKind::Write),
        }
    }
    fn conflict(&self, owner: Owner, kind: LockKind, r: LockRange) -> Option<Conflict> {
        let mut best: Option<Conflict> = None;
        for (&o, ranges) in &self.records {
            if o == owner {
                continue;
            }
            let before = ranges.range(..r.start).next_back();
            for (&start, h) in before.into_iter().chain(ranges.range(r.start..=r.end)) {
                if h.end >= r.start && h.kind.conflicts(kind) {
                    if best.is_none_or(|b| start < b.range.start) {
                        let range = LockRange { start, end: h.end };
                        best = Some(Conflict {
                            kind: h.kind,
                            range,
                            pid: h.pid,
                            owner: o,
                        });
                    }
                    break;
                }
            }
        }
        best
    }
    /// Sets (or with `None`, clears) a range of one owner; gives whether something was let go.
    fn set(
        &mut self,
        owner: Owner,
        kind: Option<LockKind>,
        r: LockRange,
        pid: i32,
    ) -> Result<bool> {
        let total: usize = self.records.values().map(BTreeMap::len).sum();
        if total + 2 > MAX_RANGES && kind.is_some() {
            return Err(ENOLCK);
        }
        if kind.is_none() && !self.records.contains_key(&owner) {
            return Ok(false);
        }
        let ranges = self.records.entry(owner).or_default();
        let mut freed = false;
        let mut put = LockRange {
            start: r.start,
            end: r.end,
        };
        // What overlaps, and (to be merged) what touches.
        let from = ranges
            .range(..r.start)
            .next_back()
            .map_or(r.start, |(&s, _)| s);
        let to = r.end.saturating_add(1);
        let near: Vec<(u64, RangeLock)> = ranges.range(from..=to).map(|(&s, &h)| (s, h)).collect();
        for (s, h) in near {
            let overlaps = s <= r.end && h.end >= r.start;
            let touches = s == to || h.end.checked_add(1) == Some(r.start);
            if !overlaps && !touches {
                continue;
            }
            if kind == Some(h.kind) {
                ranges.remove(&s);
                put = LockRange {
                    start: put.start.min(s),
                    end: put.end.max(h.end),
                };
            } else if overlaps {
                freed = true;
                ranges.remove(&s);
                if s < r.start {
                    ranges.insert(
                        s,
                        RangeLock {
                            end: r.start - 1,
                            ..h
                        },
                    );
                }
                if h.end > r.end {
                    ranges.insert(r.end + 1, h);
                }
            }
        }
        if let Some(kind) = kind {
            ranges.insert(
                put.start,
                RangeLock {
                    end: put.end,
                    kind,
                    pid,
                },
            );
        } else if ranges.is_empty() {
            self.records.remove(&owner);
        }
        Ok(freed)
    }
    /// After a change of an owner's ranges.
    fn recount(&mut self, owner: Owner, user: Option<&Arc<Ucounts>>) {
        let n = self.records.get(&owner).map_or(0, BTreeMap::len) as u64;
        if n == 0 {
            self.memory.remove(&owner);
        } else if let Some(c) = self.memory.get_mut(&owner) {
            c.set(n * RANGE);
        } else if let Some(u) = user {
            self.memory.insert(owner, u.force(Kind::Kmem, n * RANGE));
        }
    }
    /// Locks a range that nothing is in the way of.
    fn take(
        &mut self,
        owner: Owner,
        kind: LockKind,
        r: LockRange,
        pid: i32,
        user: &Arc<Ucounts>,
    ) -> Result<bool> {
        let freed = self.set(owner, Some(kind), r, pid)?;
        self.recount(owner, Some(user));
        Ok(freed)
    }
}

/// The locks on one file.
#[derive(Default)]
pub struct FileLocks {
    inner: Mutex<Inner>,
    queue: WaitQueue,
}

impl FileLocks {
    fn freed(&self) {
        self.queue.notify(Events::IN);
    }
    /// `flock(2)`: `None` unlocks. A conversion is not atomic: the old lock goes first, as Linux
    /// says. `pid` is the caller's process. Without a blocker, gives `EAGAIN` (`EWOULDBLOCK`) on
    /// conflict.
    pub fn flock(
        &self,
        id: u64,
        kind: Option<LockKind>,
        pid: i32,
        blocker: Option<&dyn Blocker>,
    ) -> Result<()> {
        let Some(kind) = kind else {
            if self.inner.lock().flock.remove(&id).is_some() {
                self.freed();
            }
            return Ok(());
        };
        {
            let mut inner = self.inner.lock();
            if inner.flock.get(&id).is_some_and(|h| h.0 == kind) {
                return Ok(());
            }
            if inner.flock.remove(&id).is_some() {
                drop(inner);
                self.freed();
            }
        }
        let attempt = || {
            let mut inner = self.inner.lock();
            if inner.flock_conflict(id, kind) {
                return Err(EAGAIN);
            }
            inner.flock.insert(id, (kind, pid));
            Ok(())
        };
        match blocker {
            None => attempt(),
            Some(b) => block_until(b, &[(&self.queue, Events::IN)], None, attempt),
        }
    }
    /// `F_GETLK`: the first lock in the way.
    #[must_use]
    pub fn test(&self, owner: Owner, kind: LockKind, r: LockRange) -> Option<Conflict> {
        self.inner.lock().conflict(owner, kind, r)
    }
    /// Unlocks a range.
    pub fn unlock(&self, owner: Owner, r: LockRange) -> Result<()> {
        let mut inner = self.inner.lock();
        let freed = inner.set(owner, None, r, 0)?;
        inner.recount(owner, None);
        drop(inner);
        if freed {
            self.freed();
        }
        Ok(())
    }
    /// `F_SETLK`: `EAGAIN` on conflict. `user` pays for the record, as it does below.
    pub fn lock(
        &self,
        owner: Owner,
        kind: LockKind,
        r: LockRange,
        pid: i32,
        user: &Arc<Ucounts>,
    ) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.conflict(owner, kind, r).is_some() {
            return Err(EAGAIN);
        }
        let freed = inner.take(owner, kind, r, pid, user)?;
        drop(inner);
        // From a write lock to a read lock: others may read now.
        if freed {
            self.freed();
        }
        Ok(())
    }
    /// `F_SETLKW`: waits; `EDEADLK` where POSIX owners would wait for each other for ever.
    pub fn lock_wait(
        &self,
        owner: Owner,
        kind: LockKind,
        r: LockRange,
        pid: i32,
        user: &Arc<Ucounts>,
        graph: &WaitGraph,
        blocker: &dyn Blocker,
    ) -> Result<()> {
        let edge = graph.edge(owner);
        let result = block_until(blocker, &[(&self.queue, Events::IN)], None, || {
            let mut inner = self.inner.lock();
            if let Some(c) = inner.conflict(owner, kind, r) {
                if matches!(owner, Owner::Posix(_)) {
                    edge.wait_for(c.owner)?;
                }
                return Err(EAGAIN);
            }
            inner.take(owner, kind, r, pid, user)
        });
        drop(edge);
        if result? {
            self.freed();
        }
        Ok(())
    }
    /// Lets go of everything that `owner` has.
    pub fn release(&self, owner: Owner) {
        let mut inner = self.inner.lock();
        let had = inner.records.remove(&owner).is_some();
        inner.memory.remove(&owner);
        drop(inner);
        if had {
            self.freed();
        }
    }
    fn release_file(&self, id: u64) {
        let mut inner = self.inner.lock();
        let a = inner.flock.remove(&id).is_some();
        let b = inner.records.remove(&Owner::OpenFile(id)).is_some();
        inner.memory.remove(&Owner::OpenFile(id));
        drop(inner);
        if a || b {
            self.freed();
        }
    }
    /// Whether someone waits for a lock here.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.queue.is_watched()
    }
    /// Every lock, for `/proc/locks`: flocks as `None` ranges, those of open files with the process
    /// -1.
    #[must_use]
    pub fn all(&self) -> Vec<(Option<LockRange>, LockKind, i32)> {
        let inner = self.inner.lock();
        let flocks = inner.flock.values().map(|&(k, pid)| (None, k, pid));
        let mut v: Vec<_> = flocks.collect();
        for ranges in inner.records.values() {
            for (&start, h) in ranges {
                v.push((Some(LockRange { start, end: h.end }), h.kind, h.pid));
            }
        }
        v
    }
}

fn locks_of(file: &File) -> Option<&FileLocks> {
    match &file.path {
        Some(p) => p.inode().ok()?.ext().existing_locks(),
        None => file.existing_own_locks(),
    }
}

/// A close(2) through the table `table`: its POSIX locks on the file go.
pub(crate) fn release_posix(file: &Arc<File>, table: u64) {
    if let Some(l) = locks_of(file) {
        l.release(Owner::Posix(table));
    }
}

/// The last reference to an open file went.
pub(crate) fn release_file(file: &File) {
    if let Some(l) = locks_of(file) {
        l.release_file(file.id);
    }
}

/// The owners that wait, and those they wait for.
#[derive(Default)]
pub struct WaitGraph {
    edges: Mutex<HashMap<Owner, Vec<(u64, Owner)>>>,
    next: AtomicU64,
}

impl WaitGraph {
    fn edge(&self, from: Owner) -> Edge<'_> {
        Edge {
            graph: self,
            from,
            id: self.next.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// One waiting thread; its edge goes when it stops waiting.
struct Edge<'a> {
    graph: &'a WaitGraph,
    from: Owner,
    id: u64,
}

impl Edge<'_> {
    /// Notes that `from` waits for `to`; `EDEADLK` where `to` already waits for `from`.
    fn wait_for(&self, to: Owner) -> Result<()> {
        let mut edges = self.graph.edges.lock();
        remove(&mut edges, self.from, self.id);
        let mut seen = HashSet::new();
        let mut stack = vec![to];
        while let Some(o) = stack.pop() {
            if o == self.from {
                return Err(EDEADLK);
            }
            if seen.insert(o) {
                stack.extend(edges.get(&o).into_iter().flatten().map(|e| e.1));
            }
        }
        edges.entry(self.from).or_default().push((self.id, to));
        Ok(())
    }
}

fn remove(edges: &mut HashMap<Owner, Vec<(u64, Owner)>>, from: Owner, id: u64) {
    if let Some(v) = edges.get_mut(&from) {
        v.retain(|e| e.0 != id);
        if v.is_empty() {
            edges.remove(&from);
        }
    }
}

impl Drop for Edge<'_> {
    fn drop(&mut self) {
        remove(&mut self.graph.edges.lock(), self.from, self.id);
    }
}
