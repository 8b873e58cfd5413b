//! Open files: what a descriptor stands for.
//!
//! [`FileOps`] is implemented by every kind of open file (regular files of each file system,
//! directories, pipes, sockets, event files, terminals). [`File`] is Linux's `struct file`: the ops
//! with the status flags and the position that `dup(2)` and `fork(2)` share.
//!
//! Operations never block: `EAGAIN` says "not now", and the caller waits on [`FileOps::wait_queue`]
//! (see the `wait` crate). The exceptions are [`FileOps::read_as`] and [`FileOps::write_as`], which
//! are a caller's whole call on a stream, with its waits; they block as the caller lets them
//! ([`Io`]).

use crate::caller::Caller;
use crate::cred::Credentials;
use crate::landlock::Denied;
use crate::locks::FileLocks;
use crate::ucounts::{Charge, Kind};
use abi::Result;
use abi::errno::{EINVAL, ENODEV, ENOTDIR, ENOTTY, ESPIPE};
use clas::Mappable;
use parking_lot::Mutex;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use wait::read_slots::SlotSource;
use wait::{Events, WaitQueue};

mod io;
pub use io::{BufSink, BufSource, Io, IoCaller, Sink, Source};

/// A position that the host keeps, since others outside share it: that of an inherited descriptor.
pub trait HostPosition {
    fn get(&self) -> Result<u64>;
    /// `lseek(2)`, with the host's checks and errors.
    fn seek(&self, offset: i64, whence: u32) -> Result<u64>;
    /// Reads there and moves it, in one step towards the others.
    fn read(&self, dst: &mut dyn Sink) -> Result<usize>;
    /// Writes there and moves it, in one step towards the others.
    fn write(&self, src: &mut dyn Source) -> Result<usize>;
}

/// What one kind of open file does. The defaults are Linux's answers for a file without that
/// operation.
pub trait FileOps: Any + Send + Sync {
    /// Reads at `offset` (ignored by streams). 0 at the end. `EAGAIN` where a stream has nothing
    /// yet.
    fn read(&self, _file: &File, _dst: &mut dyn Sink, _offset: u64) -> Result<usize> {
        Err(EINVAL)
    }
    /// Writes at `offset` (ignored by streams), with `O_APPEND`, too: that is for
    /// [`FileOps::append`].
    fn write(&self, _file: &File, _src: &mut dyn Source, _offset: u64) -> Result<usize> {
        Err(EINVAL)
    }
    /// A caller's whole read of a stream: waits where it may. Kinds that must know the reader, or
    /// wait by rules of their own, have their own.
    fn read_as(&self, io: &Io<'_>, dst: &mut dyn Sink) -> Result<usize> {
        io.wait(Events::READABLE, None, || io.file.read(dst))
    }
    /// A caller's whole write to a stream: waits where it may, until all is taken. SIGPIPE is the
    /// stream's to raise ([`IoCaller::broken_pipe`]).
    fn write_as(&self, io: &Io<'_>, src: &mut dyn Source) -> Result<usize> {
        io.write_all(src)
    }
    /// Whether there is a position: pread, pwrite and lseek work.
    fn seekable(&self) -> bool {
        false
    }
    /// Where the position is not [`File`]'s own.
    fn host_position(&self) -> Option<&dyn HostPosition> {
        None
    }
    /// Whether splice(2) can read from it (Linux's `splice_read`).
    fn can_splice(&self) -> bool {
        self.seekable()
    }
    /// Whether splice(2) and sendfile(2) can write to it (`splice_write`).
    fn takes_splices(&self) -> bool {
        self.can_splice()
    }
    /// Whether lseek(2) succeeds and does nothing (`noop_llseek`).
    fn ignores_seek(&self) -> bool {
        false
    }
    /// Where the next write of an `O_APPEND` file goes, if nobody else appends.
    fn append_offset(&self) -> Result<u64> {
        Ok(self.stat()?.size)
    }
    /// Writes at the end, in one step with others who do. Gives how much, and the position behind
    /// it. Only where there is a position, and something to write.
    fn append(&self, file: &File, src: &mut dyn Source) -> Result<(usize, u64)> {
        let at = self.append_offset()?;
        let n = self.write(file, src, at)?;
        Ok((n, at + n as u64))
    }
    /// The new position for `lseek(2)` with SEEK_END (2), SEEK_DATA (3) or SEEK_HOLE (4).
    fn seek_from(&self, whence: u32, offset: i64) -> Result<u64> {
        let size = self.stat()?.size;
        match whence {
            2 => size.checked_add_signed(offset).ok_or(EINVAL),
            3 if (offset as u64) < size => Ok(offset as u64),
            4 if (offset as u64) < size => Ok(size),
            3 | 4 => Err(abi::errno::ENXIO),
            _ => Err(EINVAL),
        }
    }
    /// What `fstat(2)` says; anonymous files too have an answer.
    fn stat(&self) -> Result<crate::Stat>;
    /// Directory entries from `*pos` on (an opaque cookie, 0 at the start): calls `emit` with each,
    /// and stops when it gives false. Updates `*pos`.
    fn read_dir(
        &self,
        _file: &File,
        _pos: &mut u64,
        _emit: &mut dyn FnMut(crate::DirEntry<'_>) -> bool,
    ) -> Result<()> {
        Err(ENOTDIR)
    }
    /// As [`FileOps::read_dir`], for what a reader sees that another does not.
    fn read_dir_as(
        &self,
        file: &File,
        _reader: &Caller<'_>,
        pos: &mut u64,
        emit: &mut dyn FnMut(crate::DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.read_dir(file, pos, emit)
    }
    /// Whether [`FileOps::ioctl`] knows what chattr(1) and lsattr(1) ask for.
    fn answers_flag_ioctls(&self) -> bool {
        false
    }
    /// Whether a write that takes a part is over: the rest is not what it seems, or would be asked
    /// for again.
    fn short_is_final(&self) -> bool {
        false
    }
    /// Whether a read or a write is one message, which splice(2) must not part.
    fn moves_messages(&self) -> bool {
        false
    }
    /// Which of `mask` (and ERR, HUP) hold now.
    fn poll(&self, _file: &File, mask: Events) -> Events {
        mask & (Events::READABLE | Events::WRITABLE)
    }
    /// Notified when `poll` may change; `None` for files that are always ready.
    fn wait_queue(&self) -> Option<&WaitQueue> {
        None
    }
    /// Where reads and writes wait that give `EAGAIN`; `None` for files whose callers get it, as
    /// those of which poll(2) tells something else than whether they are ready.
    fn io_queue(&self) -> Option<&WaitQueue> {
        self.wait_queue()
    }
    /// Whether O_ASYNC has an effect: its owner is signalled when it becomes ready
    /// (`f_op->fasync`).
    fn signals_owner(&self) -> bool {
        false
    }
    /// `ioctl(2)` that this kind of file knows; `mem` reaches the caller's memory.
    fn ioctl(&self, _file: &File, _cx: &dyn IoctlContext, _cmd: u32, _arg: u64) -> Result<u64> {
        Err(ENOTTY)
    }
    /// Whether it can be mapped shared: `ENODEV` where its pages are kept by nobody.
    fn may_map_shared(&self) -> Result<()> {
        Ok(())
    }
    /// What `mmap(2)` maps.
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        Err(ENODEV)
    }
    /// How many pages from `first` to before `end` are in memory (`cachestat(2)`).
    fn cached_pages(&self, _first: u64, _end: u64) -> Result<u64> {
        Err(abi::errno::EOPNOTSUPP)
    }
    fn truncate(&self, _size: u64) -> Result<()> {
        Err(EINVAL)
    }
    fn allocate(&self, _mode: i32, _offset: u64, _len: u64) -> Result<()> {
        Err(ENODEV)
    }
    fn sync(&self, _data_only: DataOnly) -> Result<()> {
        Err(EINVAL)
    }
    /// Called at each `close(2)` of a descriptor, before the last one drops the object; `table` is
    /// the number of the closer's descriptors ([`crate::FdTable::id`]).
    fn flush(&self, _file: &File, _table: u64) -> Result<()> {
        Ok(())
    }
    /// The status flags changed by `fcntl(F_SETFL)`.
    fn flags_changed(&self, _file: &File, _old: u32) {}
    /// Where reads of it may be answered beside the Sentry; `None`: nowhere.
    fn slot_source(&self) -> Option<&dyn SlotSource> {
        None
    }
    /// For downcasts: `file.ops::<Pipe>()`.
    fn as_any(&self) -> &dyn Any;
    /// What `/proc/PID/fd/N` shows for files without a path: `pipe:[123]`,
    /// `anon_inode:[eventpoll]`.
    fn describe(&self) -> String {
        String::from("anon_inode:[file]")
    }
    /// Extra lines of `/proc/PID/fdinfo/N`.
    fn fdinfo(&self) -> String {
        String::new()
    }
}

/// `st_dev` of anonymous inodes.
pub const ANON_DEV: u64 = 15;

/// `fstat(2)` of event files, timers, epoll: an inode without a type.
#[must_use]
pub fn anon_stat() -> crate::Stat {
    crate::Stat {
        dev: ANON_DEV,
        ino: 1,
        mode: 0o600,
        nlink: 1,
        blksize: 4096,
        ..Default::default()
    }
}

/// Whether a sync may leave metadata behind (`fdatasync(2)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataOnly {
    No,
    Yes,
}

/// The caller's memory and identity, for ioctls.
pub trait IoctlContext {
    fn copy_in(&self, va: abi::Va, dst: &mut [u8]) -> Result<()>;
    fn copy_out(&self, va: abi::Va, src: &[u8]) -> Result<()>;
    fn credentials(&self) -> Arc<Credentials>;
    /// A descriptor of the caller's.
    fn file(&self, _fd: i32) -> Result<Arc<File>> {
        Err(abi::errno::EBADF)
    }
    /// The task, for terminals (sessions, job control): downcast in the Sentry.
    fn task(&self) -> &dyn Any;
}

/// Linux's `struct file`: what dup(2)ed and inherited descriptors share.
pub struct File {
    /// Immutable.
    pub ops: Arc<dyn FileOps>,
    /// O_* status flags and the access mode; creation flags are not kept. Atomic: the access mode
    /// never changes.
    flags: AtomicU32,
    /// The position; its lock makes reads and writes atomic towards each other, as `f_pos_lock`
    /// does. Unused where the host keeps it ([`FileOps::host_position`]): look with
    /// [`File::position`].
    pub pos: Mutex<u64>,
    /// Where the last transfer began. Atomic: for who cannot wait for the position.
    began_at: AtomicU64,
    /// Where it was opened; `None` for anonymous files. Immutable.
    pub path: Option<crate::Path>,
    /// Credentials of the opener. Immutable.
    pub cred: Arc<Credentials>,
    /// Whom it signals.
    pub sigio: crate::sigio::Sigio,
    /// A number of its own, for epoll and locks' owners. Immutable.
    pub id: u64,
    /// As what it is counted at its inode. Set before anybody else has the file.
    counted: AtomicU8,
    /// How it is told of: see the constants. Set before anybody else has the file.
    watched: AtomicU8,
    /// Whether dnotify's requests ever were made by it ([`crate::watch::dnotify`]).
    noted: AtomicBool,
    /// Opening made what it has open. Set before anybody else has the file.
    made: AtomicBool,
    /// What its opener's domain denies later ([`Denied`]). Set before anybody else has the file.
    landlock: AtomicU8,
    /// What it counts for where its file holds a descriptor of the host's that another is charged
    /// for. Immutable.
    _host: Option<Charge>,
    /// The listeners for the end of the last reference, each under a number of its own. A leaf.
    release: Mutex<Vec<(u64, Weak<dyn ReleaseListener>)>>,
    /// Its locks, where it has no inode that they could be at.
    own_locks: OnceLock<Box<FileLocks>>,
}

/// [`File::counted`]: not at all, as one that writes, as one that only reads.
const NOT_COUNTED: u8 = 0;
const WRITER: u8 = 1;
const READER: u8 = 2;

/// [`File::watched`]: nobody hears what is done by it; who may forbid it is asked before reads.
const QUIET: u8 = 1;
const ASKS: u8 = 2;

/// What an open file takes of the kernel's memory, with an object as a socket or a pipe's end
/// behind it, bytes: charged to its opener.
const FILE: u64 = 1024;

/// Told when a [`File`]'s last reference goes (Linux's `__fput`): epoll's entries vanish then.
pub trait ReleaseListener: Send + Sync {
    /// Runs before the ops are dropped, in the thread that dropped the file, under whatever locks
    /// it holds: may take only leaf locks.
    fn released(&self, file: &File, key: u64);
}

/// Flags that `fcntl(F_SETFL)` may change.
pub const SETFL_MASK: u32 = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME;
pub use abi::linux::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOATIME,
    O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_SYNC, O_TMPFILE, O_TRUNC,
    O_WRONLY,
};
/// `O_ASYNC`, which the kernel's headers call FASYNC.
pub const O_ASYNC: u32 = 0o20000;

static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
/// How many are gone.
static CLOSED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// How many open files there are (`fs.file-nr`).
#[must_use]
pub fn open_files() -> u64 {
    // Those that are gone first: none is counted that has not been made.
    let gone = CLOSED.load(Ordering::Relaxed);
    (NEXT_ID.load(Ordering::Relaxed) - 1).saturating_sub(gone)
}

impl File {
    #[must_use]
    pub fn new(
        ops: Arc<dyn FileOps>,
        flags: u32,
        path: Option<crate::Path>,
        cred: Arc<Credentials>,
    ) -> Arc<File> {
        cred.ucounts().take(FILE);
        let inode = path.as_ref().and_then(|p| p.inode().ok());
        let host = inode.and_then(|i| cred.ucounts().hold(i.host_user()));
        let flags = flags & !(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC);
        Arc::new(File {
            ops,
            flags: AtomicU32::new(flags),
            pos: Mutex::new(0),
            began_at: AtomicU64::new(0),
            path,
            cred,
            sigio: crate::sigio::Sigio::default(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            counted: AtomicU8::new(NOT_COUNTED),
            watched: AtomicU8::new(0),
            noted: AtomicBool::new(false),
            made: AtomicBool::new(false),
            landlock: AtomicU8::new(0),
            _host: host,
            release: Mutex::new(Vec::new()),
            own_locks: OnceLock::new(),
        })
    }
    /// Its locks, as of a file without a path: the inode of Linux's is its own, too, but for the
    /// two ends of a pipe, which do not meet here, and for those of which Linux has one for all.
    pub(crate) fn own_locks(&self) -> &FileLocks {
        self.own_locks.get_or_init(Box::default)
    }
    pub(crate) fn existing_own_locks(&self) -> Option<&FileLocks> {
        self.own_locks.get().map(|b| &**b)
    }
    /// `ENFILE` where the opener's user has no more of the kernel's memory: such a file gets no
    /// descriptor by what makes files, nor by dup(2). dup2(2) and `F_DUPFD` do not ask: the file is
    /// open already.
    pub fn may_stay(&self) -> Result<()> {
        if self.cred.ucounts().is_over(Kind::Kmem) && !self.cred.passes_limits() {
            return Err(abi::errno::ENFILE);
        }
        Ok(())
    }
    /// It takes over a count of `InodeExt::get_read_access`.
    pub(crate) fn holds_read_access(&self) {
        self.counted.store(READER, Ordering::Relaxed);
    }
    /// It takes over a count of `InodeExt::get_write_access`.
    pub(crate) fn holds_write_access(&self) {
        self.counted.store(WRITER, Ordering::Relaxed);
        if let Some(p) = &self.path {
            p.mnt.add_writer();
        }
    }
    pub(crate) fn set_made(&self) {
        self.made.store(true, Ordering::Relaxed);
    }
    /// Whether opening it made it (`FMODE_CREATED`).
    #[must_use]
    pub fn made(&self) -> bool {
        self.made.load(Ordering::Relaxed)
    }
    /// It was opened for one who watches: nobody hears of it.
    pub(crate) fn set_quiet(&self) {
        self.watched.store(QUIET, Ordering::Relaxed);
    }
    /// As such a file's flags show how it was opened.
    pub(crate) fn show_cloexec(&self, flags: u32) {
        self.flags.fetch_or(flags & O_CLOEXEC, Ordering::Relaxed);
    }
    pub(crate) fn is_quiet(&self) -> bool {
        self.watched.load(Ordering::Relaxed) == QUIET
    }
    /// Somebody may forbid what is done on its file system, since before it was opened (as of Linux
    /// 6.14: what was open before is not asked about).
    pub(crate) fn set_asks(&self) {
        self.watched.store(ASKS, Ordering::Relaxed);
    }
    pub(crate) fn asks_before_reads(&self) -> bool {
        self.watched.load(Ordering::Relaxed) == ASKS
    }
    pub(crate) fn set_noted(&self) {
        self.noted.store(true, Ordering::SeqCst);
    }
    pub(crate) fn is_noted(&self) -> bool {
        self.noted.load(Ordering::SeqCst)
    }
    pub(crate) fn set_denied(&self, d: Denied) {
        self.landlock.store(d.bits(), Ordering::Relaxed);
    }
    /// What whoever opened it was denied of its later use.
    #[must_use]
    pub fn denied(&self) -> Denied {
        Denied::from_bits_retain(self.landlock.load(Ordering::Relaxed))
    }
    /// Asks that `listener` be told, with `key`, when the last reference goes.
    pub fn add_release_listener(&self, key: u64, listener: Weak<dyn ReleaseListener>) {
        self.release.lock().push((key, listener));
    }
    /// Takes back what [`File::add_release_listener`] asked with this key and listener.
    pub fn remove_release_listener(&self, key: u64, listener: &Weak<dyn ReleaseListener>) {
        self.release
            .lock()
            .retain(|(k, l)| *k != key || !Weak::ptr_eq(l, listener));
    }
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }
    /// `fcntl(F_SETFL)`: only the bits of [`SETFL_MASK`] change.
    pub fn set_flags(&self, new: u32) {
        let changed = |old| Some((old & !SETFL_MASK) | (new & SETFL_MASK));
        let order = Ordering::Relaxed;
        if let Ok(old) = self.flags.fetch_update(order, order, changed) {
            self.ops.flags_changed(self, old);
        }
    }
    /// Sets or clears `O_ASYNC`, which is no business of `ops`.
    pub(crate) fn set_async_flag(&self, on: bool) {
        match on {
            true => self.flags.fetch_or(O_ASYNC, Ordering::Relaxed),
            false => self.flags.fetch_and(!O_ASYNC, Ordering::Relaxed),
        };
    }
    #[must_use]
    pub fn nonblocking(&self) -> bool {
        self.flags() & O_NONBLOCK != 0
    }
    #[must_use]
    pub fn readable(&self) -> bool {
        let f = self.flags();
        f & O_PATH == 0 && matches!(f & O_ACCMODE, O_RDONLY | O_RDWR)
    }
    #[must_use]
    pub fn writable(&self) -> bool {
        let f = self.flags();
        f & O_PATH == 0 && matches!(f & O_ACCMODE, O_WRONLY | O_RDWR)
    }
    /// The ops as their own type.
    #[must_use]
    pub fn ops<T: FileOps>(&self) -> Option<&T> {
        self.ops.as_any().downcast_ref()
    }
    /// `lseek(2)`.
    pub fn seek(&self, offset: i64, whence: u32) -> Result<u64> {
        if self.ops.ignores_seek() {
            return Ok(0);
        }
        if !self.ops.seekable() {
            return Err(ESPIPE);
        }
        if let Some(host) = self.ops.host_position() {
            return host.seek(offset, whence);
        }
        let mut pos = self.lock_position();
        let new = match whence {
            0 => u64::try_from(offset).map_err(|_| EINVAL)?,
            1 => pos.checked_add_signed(offset).ok_or(EINVAL)?,
            _ => self.ops.seek_from(whence, offset)?,
        };
        if new > i64::MAX as u64 {
            return Err(EINVAL);
        }
        *pos = new;
        Ok(new)
    }
    /// Where the next read or write begins.
    pub fn position(&self) -> Result<u64> {
        match self.ops.host_position() {
            Some(host) => host.get(),
            None => Ok(*self.pos.lock()),
        }
    }
    /// The position, for a transfer that moves it.
    pub fn lock_position(&self) -> parking_lot::MutexGuard<'_, u64> {
        let pos = self.pos.lock();
        self.began_at.store(*pos, Ordering::Relaxed);
        pos
    }
    /// The same for lists of others': where a transfer began that is under way, which may wait for a
    /// program.
    pub fn shown_position(&self) -> Result<u64> {
        match self.ops.host_position() {
            Some(host) => host.get(),
            None => Ok(match self.pos.try_lock() {
                Some(pos) => *pos,
                None => self.began_at.load(Ordering::Relaxed),
            }),
        }
    }
    /// Moves the position to what a transfer at offsets has reached.
    pub fn set_position(&self, to: u64) -> Result<()> {
        match self.ops.host_position() {
            Some(host) => {
                let to = i64::try_from(to).map_err(|_| EINVAL)?;
                host.seek(to, 0)?;
            }
            None => *self.pos.lock() = to,
        }
        Ok(())
    }
    /// Reads at the position and moves it (streams have none). Access mode is checked by the
    /// caller.
    pub fn read(&self, dst: &mut dyn Sink) -> Result<usize> {
        if !self.ops.seekable() {
            let n = self.ops.read(self, dst, 0)?;
            self.accessed();
            return Ok(n);
        }
        let n = match self.ops.host_position() {
            Some(host) => host.read(dst)?,
            None => self.at_position(|pos| {
                self.check_range(pos, dst.remaining())?;
                self.ops.read(self, dst, pos)
            })?,
        };
        if n > 0 {
            self.accessed();
        }
        Ok(n)
    }
    /// Runs a transfer at the position, which nobody else moves meanwhile, and moves it by what was
    /// transferred. Not for a position of the host's.
    pub fn at_position(&self, transfer: impl FnOnce(u64) -> Result<usize>) -> Result<usize> {
        let mut pos = self.lock_position();
        let n = transfer(*pos)?;
        *pos += n as u64;
        Ok(n)
    }
    /// `EINVAL` where a transfer of so much would end beyond the largest offset (`rw_verify_area`).
    /// Addresses of memory may be beyond it.
    pub fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        const MAX: u64 = i64::MAX as u64;
        let beyond = offset <= MAX && offset.saturating_add(len as u64) > MAX;
        if beyond && self.has_atomic_position() {
            return Err(EINVAL);
        }
        Ok(())
    }
    /// The flags that are told: what open(2) has opened may be large (`force_o_largefile`).
    #[must_use]
    pub fn flags_told(&self) -> u32 {
        let flags = self.flags();
        let opened = self.path.is_some() && flags & O_PATH == 0;
        flags | if opened { O_LARGEFILE } else { 0 }
    }
    /// Whether calls that use the position take turns, each as a whole (Linux's
    /// `FMODE_ATOMIC_POS`).
    #[must_use]
    pub fn has_atomic_position(&self) -> bool {
        let inode = self.path.as_ref().and_then(|p| p.inode().ok());
        inode.is_some_and(|i| i.file_type() == crate::FileType::Regular)
    }
    /// Writes at the position, or at the end with O_APPEND, and moves it.
    pub fn write(&self, src: &mut dyn Source) -> Result<usize> {
        if !self.ops.seekable() {
            let n = self.ops.write(self, src, 0)?;
            self.modified();
            return Ok(n);
        }
        if self.flags() & O_APPEND != 0 {
            return self.append(src);
        }
        let n = match self.ops.host_position() {
            Some(host) => host.write(src)?,
            None => self.at_position(|pos| {
                self.check_range(pos, src.remaining())?;
                self.ops.write(self, src, pos)
            })?,
        };
        if n > 0 {
            self.modified();
        }
        Ok(n)
    }
    /// Writes at the end, and moves the position there (`RWF_APPEND`). Only where there is a
    /// position. Nothing is moved where there is nothing to write.
    pub fn append(&self, src: &mut dyn Source) -> Result<usize> {
        let mut pos = self.lock_position();
        if src.remaining() == 0 {
            return self.ops.write(self, src, *pos);
        }
        let (n, end) = self.ops.append(self, src)?;
        // The host has moved its own.
        if self.ops.host_position().is_none() {
            *pos = end;
        }
        drop(pos);
        if n > 0 {
            self.modified();
        }
        Ok(n)
    }
    /// A descriptor stands for it no more, or for something else: the read slot that it filled
    /// there is revoked.
    pub(crate) fn revoke_slot(&self) {
        if let Some(s) = self.ops.slot_source() {
            s.revoke_slot();
        }
    }
    #[must_use]
    pub fn poll(&self, mask: Events) -> Events {
        self.ops.poll(self, mask | Events::ALWAYS)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        CLOSED.fetch_add(1, Ordering::Relaxed);
        for (key, l) in std::mem::take(self.release.get_mut()) {
            if let Some(l) = l.upgrade() {
                l.released(self, key);
            }
        }
        crate::locks::release_file(self);
        crate::leases::release_file(self);
        self.closed();
        self.end_watch();
        self.end_count();
        self.cred.ucounts().give_back(FILE);
    }
}

impl File {
    /// It is dropped.
    fn end_count(&mut self) {
        let counted = *self.counted.get_mut();
        let Some(p) = self.path.as_ref().filter(|_| counted != NOT_COUNTED) else {
            return;
        };
        if counted == WRITER {
            p.mnt.drop_writer();
        }
        if let Ok(inode) = p.inode() {
            match counted {
                WRITER => inode.ext().put_write_access(),
                _ => inode.ext().put_read_access(),
            }
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({}, {})", self.id, self.ops.describe())
    }
}
