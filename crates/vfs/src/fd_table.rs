//! File descriptors: Linux's `files_struct`.
//!
//! The lowest free number is found in a hierarchy of bit maps, each 64 times coarser than the one
//! below: a set bit on an upper level says that 64 bits below are all set. So that is O(log n)
//! whatever is open.
//!
//! A file fills its descriptor's read slot ([`FdTable::holding`]) under the table's lock; where a
//! descriptor stands for it no more, the slot is revoked under that lock: so a number never reads
//! what another file put there. Lock order: the table, the socket's state, its queue, the slots'
//! area.
//!
//! A slot can be *reserved* before its file exists, as Linux does: `open(2)` fails with `EMFILE`
//! before it creates anything.

use crate::cred::Credentials;
use crate::file::File;
use crate::locks;
use crate::ucounts::{Charge, Kind};
use abi::Result;
use abi::errno::{EBADF, EBUSY, EINVAL, EMFILE, ENOMEM};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// `fs.nr_open`: the highest limit that `RLIMIT_NOFILE` can have, and above all numbers.
pub static NR_OPEN: AtomicI64 = AtomicI64::new(1 << 20);

/// The same, as far as tables reach.
#[must_use]
pub fn nr_open() -> u64 {
    (NR_OPEN.load(Ordering::Relaxed) as u64).min(1 << 24)
}

/// Whether a descriptor is closed at execve(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseOnExec {
    No,
    Yes,
}

impl CloseOnExec {
    /// From open flags: `O_CLOEXEC`, which is also `SOCK_CLOEXEC` and `EFD_CLOEXEC`.
    #[must_use]
    pub const fn from_flags(flags: u32) -> CloseOnExec {
        if flags & crate::file::O_CLOEXEC != 0 {
            CloseOnExec::Yes
        } else {
            CloseOnExec::No
        }
    }
}

/// Four levels of 64 reach 16 million.
const LEVELS: usize = 4;

#[derive(Default, Clone)]
struct Bits {
    levels: [Vec<u64>; LEVELS],
}

impl Bits {
    fn set(&mut self, mut n: usize) {
        for level in &mut self.levels {
            let (w, b) = (n / 64, n % 64);
            if level.len() <= w {
                level.resize(w + 1, 0);
            }
            level[w] |= 1 << b;
            if level[w] != !0 {
                break;
            }
            n = w;
        }
    }
    fn clear(&mut self, mut n: usize) {
        for level in &mut self.levels {
            let (w, b) = (n / 64, n % 64);
            if let Some(word) = level.get_mut(w) {
                *word &= !(1 << b);
            }
            n = w;
        }
    }
    fn get(&self, n: usize) -> bool {
        self.levels[0]
            .get(n / 64)
            .is_some_and(|w| w >> (n % 64) & 1 != 0)
    }
    /// The lowest clear bit from `min` on.
    fn first_clear(&self, min: usize) -> usize {
        // Up until a word has a clear bit at or after the place, then down to that bit.
        let mut n = min;
        let mut level = 0;
        loop {
            let word = self.levels[level].get(n / 64).copied().unwrap_or(0);
            let free = !word & (!0u64 << (n % 64));
            if free != 0 {
                n = n / 64 * 64 + free.trailing_zeros() as usize;
                break;
            }
            // Nothing here: the next word, seen from above.
            n = n / 64 + 1;
            level += 1;
            if level == LEVELS {
                return usize::MAX;
            }
        }
        while level > 0 {
            level -= 1;
            let word = self.levels[level].get(n).copied().unwrap_or(0);
            n = n * 64 + (!word).trailing_zeros() as usize;
        }
        n
    }
}

#[derive(Default)]
struct Inner {
    files: Vec<Option<Arc<File>>>,
    /// Taken or reserved.
    used: Bits,
    cloexec: Vec<u64>,
    changed: ChangedFds,
    /// What a large table takes, of each user that made it larger.
    memory: Vec<Charge>,
}

/// A table of so many descriptors is charged with its process.
const SMALL: usize = 4096;

/// How far a table may grow, and at whose cost.
pub struct Room {
    /// `RLIMIT_NOFILE`.
    pub limit: u64,
    /// The caller's, not the files' openers'.
    pub cred: Arc<Credentials>,
}

const SLOT: usize = size_of::<Option<Arc<File>>>();

/// Which descriptors stand for another file, or for none, since that was last asked.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ChangedFds {
    #[default]
    None,
    One(i32),
    Many,
}

impl ChangedFds {
    fn add(&mut self, fd: usize) {
        *self = match *self {
            ChangedFds::None => ChangedFds::One(fd as i32),
            g @ ChangedFds::One(n) if n as usize == fd => g,
            _ => ChangedFds::Many,
        };
    }
}

impl Inner {
    /// Makes the table reach `fd`; `ENOMEM` where it is a large one, and the caller's user has no
    /// more memory.
    fn reach(&mut self, fd: usize, cred: &Credentials) -> Result<()> {
        if fd < self.files.len() {
            return Ok(());
        }
        if fd >= self.files.capacity() {
            let all = (fd + 1).max(2 * self.files.capacity());
            if all > SMALL {
                let charged: u64 = self.memory.iter().map(Charge::amount).sum();
                let more = (all * SLOT).saturating_sub(charged as usize);
                self.memory.push(cred.kmem(more, ENOMEM)?);
            }
            self.files.reserve_exact(all - self.files.len());
        }
        self.files.resize_with(fd + 1, || None);
        Ok(())
    }
    fn set_cloexec(&mut self, fd: usize, on: CloseOnExec) {
        let (w, b) = (fd / 64, fd % 64);
        if self.cloexec.len() <= w {
            if on == CloseOnExec::No {
                return;
            }
            self.cloexec.resize(w + 1, 0);
        }
        match on {
            CloseOnExec::Yes => self.cloexec[w] |= 1 << b,
            CloseOnExec::No => self.cloexec[w] &= !(1 << b),
        }
    }
    fn cloexec(&self, fd: usize) -> CloseOnExec {
        if self
            .cloexec
            .get(fd / 64)
            .is_some_and(|w| w >> (fd % 64) & 1 != 0)
        {
            CloseOnExec::Yes
        } else {
            CloseOnExec::No
        }
    }
    /// Within what the table reaches.
    fn put(&mut self, fd: usize, file: Arc<File>, cloexec: CloseOnExec) -> Option<Arc<File>> {
        self.used.set(fd);
        self.set_cloexec(fd, cloexec);
        let old = self.files[fd].replace(file);
        if let Some(old) = &old {
            old.revoke_slot();
            self.changed.add(fd);
        }
        old
    }
    fn take(&mut self, fd: usize) -> Option<Arc<File>> {
        let f = self.files.get_mut(fd)?.take()?;
        f.revoke_slot();
        self.changed.add(fd);
        self.used.clear(fd);
        self.set_cloexec(fd, CloseOnExec::No);
        Some(f)
    }
    fn reserve(&mut self, min: usize, room: &Room) -> Result<usize> {
        let fd = self.used.first_clear(min);
        if fd as u64 >= room.limit.min(nr_open()) {
            return Err(EMFILE);
        }
        self.reach(fd, &room.cred)?;
        self.used.set(fd);
        Ok(fd)
    }
}

/// A process's descriptors.
pub struct FdTable {
    /// The owner of POSIX locks.
    id: u64,
    inner: RwLock<Inner>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn index(fd: i32) -> Result<usize> {
    usize::try_from(fd).map_err(|_| EBADF)
}

impl FdTable {
    #[must_use]
    pub fn new() -> Arc<FdTable> {
        Arc::new(Self::with(Inner::default()))
    }
    fn with(inner: Inner) -> FdTable {
        FdTable {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            inner: RwLock::new(inner),
        }
    }
    /// What POSIX locks taken through this table belong to, and what a process asked of files to be
    /// told.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
    /// The open file; `EBADF` where there is none.
    pub fn get(&self, fd: i32) -> Result<Arc<File>> {
        let i = index(fd)?;
        self.inner
            .read()
            .files
            .get(i)
            .and_then(Clone::clone)
            .ok_or(EBADF)
    }
    /// Calls `f` with the open file, if there is one, while the descriptor goes on to stand for it.
    /// `f` is short.
    pub fn holding(&self, fd: i32, f: impl FnOnce(&Arc<File>)) {
        let Ok(i) = index(fd) else { return };
        if let Some(Some(file)) = self.inner.read().files.get(i) {
            f(file);
        }
    }
    /// Which descriptors stand for another file, or for none, since this was last called.
    pub fn take_changed(&self) -> ChangedFds {
        if self.inner.read().changed == ChangedFds::None {
            return ChangedFds::None;
        }
        std::mem::take(&mut self.inner.write().changed)
    }
    /// `fcntl(F_GETFD)`.
    pub fn cloexec(&self, fd: i32) -> Result<CloseOnExec> {
        let i = index(fd)?;
        let inner = self.inner.read();
        match inner.files.get(i) {
            Some(Some(_)) => Ok(inner.cloexec(i)),
            _ => Err(EBADF),
        }
    }
    /// `fcntl(F_SETFD)`.
    pub fn set_cloexec(&self, fd: i32, on: CloseOnExec) -> Result<()> {
        let i = index(fd)?;
        let mut inner = self.inner.write();
        match inner.files.get(i) {
            Some(Some(_)) => {
                inner.set_cloexec(i, on);
                Ok(())
            }
            _ => Err(EBADF),
        }
    }
    /// Puts a file at the lowest free number.
    pub fn install(&self, file: Arc<File>, cloexec: CloseOnExec, room: &Room) -> Result<i32> {
        file.may_stay()?;
        let mut inner = self.inner.write();
        let fd = inner.reserve(0, room)?;
        inner.put(fd, file, cloexec);
        Ok(fd as i32)
    }
    /// `fcntl(F_DUPFD)`: the lowest free number from `min` on. `EINVAL` where that is above the
    /// limit.
    pub fn install_from(
        &self,
        min: i32,
        file: Arc<File>,
        cloexec: CloseOnExec,
        room: &Room,
    ) -> Result<i32> {
        let min = usize::try_from(min).map_err(|_| EINVAL)?;
        if min as u64 >= room.limit {
            return Err(EINVAL);
        }
        let mut inner = self.inner.write();
        let fd = inner.reserve(min, room)?;
        inner.put(fd, file, cloexec);
        Ok(fd as i32)
    }
    /// Takes the lowest free number for a file that is still to be made.
    pub fn reserve(&self, room: &Room) -> Result<Reserved<'_>> {
        let fd = self.inner.write().reserve(0, room)?;
        Ok(Reserved {
            table: self,
            fd,
            used: false,
        })
    }
    /// `dup2(2)` and `dup3(2)`, after the case of equal numbers: `new` becomes `file`; what was
    /// there is closed. `EBADF` where `new` is above the limit, `EBUSY` where another thread has
    /// reserved it.
    pub fn install_at(
        &self,
        new: i32,
        file: Arc<File>,
        cloexec: CloseOnExec,
        room: &Room,
    ) -> Result<i32> {
        let i = index(new)?;
        if i as u64 >= room.limit.min(nr_open()) {
            return Err(EBADF);
        }
        let old = {
            let mut inner = self.inner.write();
            if inner.used.get(i) && inner.files.get(i).is_none_or(Option::is_none) {
                return Err(EBUSY);
            }
            inner.reach(i, &room.cred)?;
            inner.put(i, file, cloexec)
        };
        if let Some(old) = old {
            // dup2(2) does not tell the errors of this close.
            let _ = self.closed(&old);
        }
        Ok(new)
    }
    /// `close(2)`: the descriptor is gone even if this gives an error.
    pub fn close(&self, fd: i32) -> Result<()> {
        self.take(fd)?.1
    }
    /// The same, with the file for who lets go of it, and what its close gives.
    pub fn take(&self, fd: i32) -> Result<(Arc<File>, Result<()>)> {
        let i = index(fd)?;
        let file = self.inner.write().take(i).ok_or(EBADF)?;
        let r = self.closed(&file);
        Ok((file, r))
    }
    /// What happens at each close: POSIX locks and dnotify's requests of this table on the file go,
    /// the file is flushed.
    fn closed(&self, file: &Arc<File>) -> Result<()> {
        let r = file.ops.flush(file, self.id);
        locks::release_posix(file, self.id);
        file.end_requests(self.id);
        r
    }
    /// `close_range(2)` without its flags: closes `[first, last]`.
    pub fn close_range(&self, first: u32, last: u32) {
        drop(self.take_range(first, last));
    }
    /// The same, with the files for who lets go of them.
    #[must_use]
    pub fn take_range(&self, first: u32, last: u32) -> Vec<Arc<File>> {
        let gone: Vec<Arc<File>> = {
            let mut inner = self.inner.write();
            let end = inner.files.len().min((last as usize).saturating_add(1));
            (first as usize..end)
                .filter_map(|fd| inner.take(fd))
                .collect()
        };
        for f in &gone {
            let _ = self.closed(f);
        }
        gone
    }
    /// `close_range(CLOSE_RANGE_CLOEXEC)`.
    pub fn cloexec_range(&self, first: u32, last: u32) {
        let mut inner = self.inner.write();
        let end = inner.files.len().min((last as usize).saturating_add(1));
        for fd in first as usize..end {
            if inner.files[fd].is_some() {
                inner.set_cloexec(fd, CloseOnExec::Yes);
            }
        }
    }
    /// A copy, for fork(2) without `CLONE_FILES` and `unshare(CLONE_FILES)`; `ENOMEM`, and `EMFILE`
    /// where numbers are taken that there may be no more (`alloc_fdtable`).
    pub fn fork(&self, cred: &Credentials) -> Result<Arc<FdTable>> {
        self.copy(nr_open(), |bytes| cred.kmem(bytes, ENOMEM))
    }
    /// A copy whatever the limits: for execve(2), which cannot fail any more.
    #[must_use]
    pub fn fork_for_exec(&self, cred: &Credentials) -> Arc<FdTable> {
        let force = |bytes| Ok(cred.ucounts().force(Kind::Kmem, bytes as u64));
        self.copy(u64::MAX, force)
            .unwrap_or_else(|_| FdTable::new())
    }
    /// A copy of what has numbers below `limit`, or below the end of its word of bits.
    pub(crate) fn copy(
        &self,
        limit: u64,
        charge: impl Fn(usize) -> Result<Charge>,
    ) -> Result<Arc<FdTable>> {
        let inner = self.inner.read();
        let last = inner.files.iter().rposition(Option::is_some);
        let files = &inner.files[..last.map_or(0, |n| n + 1)];
        // A word of bits is the smallest step.
        if files.len().div_ceil(64) as u64 > limit.div_ceil(64) {
            return Err(EMFILE);
        }
        let mut memory = Vec::new();
        if files.len() > SMALL {
            memory.push(charge(files.len() * SLOT)?);
        }
        let mut used = Bits::default();
        for (fd, f) in files.iter().enumerate() {
            if f.is_some() {
                used.set(fd);
            }
        }
        let copy = Inner {
            files: files.to_vec(),
            used,
            cloexec: inner.cloexec.clone(),
            changed: ChangedFds::Many,
            memory,
        };
        drop(inner);
        Ok(Arc::new(Self::with(copy)))
    }
    /// execve(2): closes what is marked.
    pub fn exec(&self) {
        let gone: Vec<Arc<File>> = {
            let mut inner = self.inner.write();
            let mut v = Vec::new();
            for w in 0..inner.cloexec.len() {
                let mut bits = inner.cloexec[w];
                while bits != 0 {
                    let fd = w * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    v.extend(inner.take(fd));
                }
            }
            v
        };
        for f in gone {
            let _ = self.closed(&f);
        }
    }
    /// Closes everything: the process's end. (Dropping the table does it too.)
    pub fn close_all(&self) {
        self.close_range(0, u32::MAX);
    }
    /// The open descriptors from `from` on, for `/proc/PID/fd`.
    #[must_use]
    pub fn list(&self, from: i32) -> Vec<i32> {
        let inner = self.inner.read();
        let from = usize::try_from(from).unwrap_or(0);
        (from..inner.files.len())
            .filter(|&i| inner.files[i].is_some())
            .map(|i| i as i32)
            .collect()
    }
    /// Room for this many descriptors, as `FDSize` in `/proc/PID/status`.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.read().files.len().next_multiple_of(64).max(64)
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// A number that was taken for a file to come; given back if none does.
pub struct Reserved<'a> {
    table: &'a FdTable,
    fd: usize,
    used: bool,
}

impl Reserved<'_> {
    #[must_use]
    pub fn number(&self) -> i32 {
        self.fd as i32
    }
    /// Puts the file there.
    pub fn install(mut self, file: Arc<File>, cloexec: CloseOnExec) -> i32 {
        self.used = true;
        self.table.inner.write().put(self.fd, file, cloexec);
        self.fd as i32
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.table.inner.write().used.clear(self.fd);
        }
    }
}
