//! Pipes and FIFOs (`pipe(7)`, `fifo(7)`; Linux's `fs/pipe.c`).
//!
//! A [`Pipe`] is shared by its [`PipeEnd`]s, which are the open files. A write of at most
//! `PIPE_BUF` bytes is taken whole or not at all. The bytes lie in one ring, but room is counted as
//! Linux does it, in pages: a write may fill up the last page, and begins new ones; a page is free
//! when its last byte was read. A pipe is writable, for poll, while a page is free.
//!
//! In packet mode (`O_DIRECT` on the write end) each write is a packet of its own: a read takes
//! one, and drops what does not fit. Bytes and packets may be mixed.

use crate::ring::ByteRing;
use crate::{FIONREAD, PIPEFS_DEV, next_ino};
use abi::errno::{EAGAIN, EBADF, EBUSY, EFAULT, EINVAL, ENFILE, ENOTTY, ENXIO, EPERM, EPIPE};
use abi::{Result, Va};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use vfs::file::{IoctlContext, O_ACCMODE, O_DIRECT, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY};
use vfs::ucounts::{Charge, Kind};
use vfs::{Caps, Credentials, File, FileOps, Sink, Slot, Source, Stat};
use wait::{Blocker, Events, WaitQueue, block_until};

/// Writes up to this size are atomic.
pub const PIPE_BUF: usize = 4096;
/// A new pipe's capacity in bytes.
pub const DEFAULT_CAPACITY: usize = 65536;
/// `fs.pipe-max-size`, in bytes: what an unprivileged `F_SETPIPE_SZ` may ask. A new pipe has no
/// more either.
pub static MAX_CAPACITY: AtomicI64 = AtomicI64::new(1 << 20);

/// What a pipe has that is made when its user has many, pages (`PIPE_MIN_DEF_BUFFERS`).
const MIN_PAGES: usize = 2;
/// `fs.pipe-user-pages-soft` and `-hard`: pages that the pipes of a user may fill; 0 for no limit.
pub static USER_PAGES_SOFT: AtomicI64 = AtomicI64::new(16_384);
pub static USER_PAGES_HARD: AtomicI64 = AtomicI64::new(0);

/// What a pipe has that is asked to have `size` bytes (`round_pipe_size`).
#[must_use]
pub fn rounded(size: u32) -> Option<usize> {
    (size <= 1 << 31).then(|| (size as usize).max(PIPE_BUF).next_power_of_two())
}

/// A page of the pipe: the next `len` bytes of the ring.
#[derive(Clone, Copy)]
struct Page {
    len: usize,
    /// Up to where it was filled; `PIPE_BUF` if nothing may be added.
    end: usize,
    packet: bool,
}

/// What the ends share.
pub struct Pipe {
    pub(crate) state: Mutex<State>,
    queue: WaitQueue,
    ino: u64,
}

pub(crate) struct State {
    ring: ByteRing,
    /// They cover the whole ring.
    pages: VecDeque<Page>,
    /// How many of them are packets.
    packets: usize,
    /// The most pages.
    limit: usize,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    /// How often the read side, the write side, was opened.
    read_opens: u64,
    write_opens: u64,
    /// The pages that it may fill, as its user's.
    counted: Charge,
}

impl State {
    /// How many bytes can be added in pages of their own.
    pub(crate) fn free(&self) -> usize {
        self.limit.saturating_sub(self.pages.len()) * PIPE_BUF
    }
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }
    fn writable(&self) -> bool {
        !self.ring.is_stuck() && self.pages.len() < self.limit
    }
    fn clear(&mut self) {
        self.ring.release();
        self.pages.clear();
        self.packets = 0;
    }
    /// New pages for `n` bytes that are at the end of the ring. Nothing is added to closed ones.
    fn note(&mut self, mut n: usize, packet: bool, closed: bool) {
        while n > 0 {
            let len = n.min(PIPE_BUF);
            self.pages.push_back(Page {
                len,
                end: if closed { PIPE_BUF } else { len },
                packet,
            });
            self.packets += usize::from(packet);
            n -= len;
        }
    }
    fn pop_page(&mut self) {
        if self.pages.pop_front().is_some_and(|p| p.packet) {
            self.packets -= 1;
        }
    }
    /// `n` bytes left the ring.
    fn forget(&mut self, mut n: usize) {
        while n > 0 {
            let Some(p) = self.pages.front_mut() else {
                return;
            };
            if p.len > n {
                p.len -= n;
                return;
            }
            n -= p.len;
            self.pop_page();
        }
    }

    /// As `pipe_write`: what does not fill a page goes first, into the last page, if it fits there
    /// whole. A page that the application's memory cannot fill is not written.
    fn write(&mut self, src: &mut dyn Source, packet: bool) -> Result<usize> {
        let n = src.remaining();
        let rest = n % PIPE_BUF;
        let merge = match self.pages.back() {
            Some(p) if !packet && !p.packet && p.end + rest <= PIPE_BUF => rest,
            _ => 0,
        };
        let want = n.min(merge + self.free());
        if want == 0 {
            return Err(EAGAIN);
        }
        let pages_of = |k: usize| {
            k.checked_sub(merge)
                .map_or(0, |k| merge + k / PIPE_BUF * PIPE_BUF)
        };
        let room = self.ring.make_room(want, PIPE_BUF)?;
        let want = if room < want { pages_of(room) } else { want };
        if want == 0 {
            self.ring.set_stuck();
            return Err(EAGAIN);
        }
        let mut k = self.ring.push_from(src, want)?;
        if k < want {
            let whole = pages_of(k);
            self.ring.drop_back(k - whole);
            k = whole;
        }
        if k == 0 {
            return Err(EFAULT);
        }
        if let Some(p) = self.pages.back_mut() {
            p.len += merge;
            p.end += merge;
        }
        self.note(k - merge, packet, false);
        Ok(k)
    }

    pub(crate) fn read(&mut self, dst: &mut dyn Sink) -> Result<usize> {
        if self.packets == 0 {
            let k = self.ring.pop_into(dst, usize::MAX)?;
            self.forget(k);
            return Ok(k);
        }
        let mut done = 0;
        while let Some(p) = self.pages.front().copied() {
            match self.ring.peek_into(dst, 0, p.len) {
                Ok(k) if p.packet => {
                    self.ring.consume(p.len);
                    self.pop_page();
                    return Ok(done + k);
                }
                Ok(k) => {
                    self.ring.consume(k);
                    self.forget(k);
                    done += k;
                    if k < p.len || dst.remaining() == 0 {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Takes up to `max` bytes out as they stand (for splice).
    pub(crate) fn take(&mut self, max: usize) -> Vec<u8> {
        let mut max = max.min(self.ring.len());
        if self.packets > 0 {
            max = max.min(self.pages.front().map_or(0, |p| p.len));
        }
        let v = self.ring.pop_vec(max);
        self.forget(v.len());
        v
    }

    /// Puts back what [`State::take`] gave; may go beyond the capacity for a moment.
    pub(crate) fn untake(&mut self, bytes: &[u8]) {
        self.ring.push_front(bytes);
        for part in bytes.rchunks(PIPE_BUF) {
            self.pages.push_front(Page {
                len: part.len(),
                end: PIPE_BUF,
                packet: false,
            });
        }
    }

    /// Appends bytes whatever the capacity.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.ring.push(bytes);
        self.note(bytes.len(), false, true);
    }
    pub(crate) fn append_copy(&mut self, from: &State, n: usize) {
        self.ring.push_copy(&from.ring, n);
        self.note(n, false, true);
    }
}

impl Pipe {
    /// A pipe of the usual size; a small one where the user has many (`fs.pipe-user-pages-soft`),
    /// and `ENFILE` beyond that, where there is such a limit (`alloc_pipe_info`).
    fn new(cred: &Credentials) -> Result<Arc<Pipe>> {
        let user = cred.ucounts();
        let mut pages = DEFAULT_CAPACITY / PIPE_BUF;
        if !cred.has(Caps::SYS_RESOURCE) {
            pages = pages.min(MAX_CAPACITY.load(Ordering::Relaxed) as usize / PIPE_BUF);
        }
        if !cred.passes_limits() {
            let held = user.most(Kind::PipePages);
            let over = |limit: &AtomicI64, more: usize| {
                let most = limit.load(Ordering::Relaxed);
                most > 0 && held + more as i64 > most
            };
            if over(&USER_PAGES_SOFT, pages) {
                pages = MIN_PAGES;
            }
            if over(&USER_PAGES_HARD, pages) {
                return Err(ENFILE);
            }
        }
        let counted = user.force(Kind::PipePages, pages as u64);
        Ok(Arc::new(Pipe {
            state: Mutex::new(State {
                ring: ByteRing::of(user),
                counted,
                pages: VecDeque::new(),
                packets: 0,
                limit: pages,
                readers: 0,
                writers: 0,
                read_opens: 0,
                write_opens: 0,
            }),
            queue: WaitQueue::new(),
            ino: next_ino(),
        }))
    }

    pub(crate) fn notify_data(&self) {
        self.queue.notify(Events::READABLE);
    }
    /// After bytes left: tells the writers if room for an atomic write appeared.
    pub(crate) fn notify_room(&self, was_writable: bool, is_writable: bool) {
        if !was_writable && is_writable {
            self.queue.notify(Events::WRITABLE);
        }
    }
    /// Changes the state as a reader does, and tells the writers.
    pub(crate) fn consume<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut s = self.state.lock();
        let was = s.writable();
        let r = f(&mut s);
        let is = s.writable();
        drop(s);
        self.notify_room(was, is);
        r
    }

    /// The pipe behind a FIFO. Its inode refers to it weakly: the pipe lives while it is open.
    pub fn for_fifo(cred: &Credentials) -> Result<Arc<Pipe>> {
        Pipe::new(cred)
    }

    /// Opens an end by FIFO's rules (`fifo(7)`): `ENXIO` for a non-blocking writer without a
    /// reader.
    pub fn open(self: &Arc<Pipe>, flags: u32) -> Result<PendingOpen> {
        let nonblock = flags & O_NONBLOCK != 0;
        let mut s = self.state.lock();
        if s.readers == 0 && s.writers == 0 {
            s.clear();
            s.limit = s.limit.min(DEFAULT_CAPACITY / PIPE_BUF);
            let pages = s.limit as u64;
            s.counted.set(pages);
        }
        let (mut reads, mut writes, mut wait, mut quiet) = (false, false, None, None);
        match flags & O_ACCMODE {
            O_RDONLY => {
                reads = true;
                if s.writers == 0 {
                    if nonblock {
                        quiet = Some(s.write_opens);
                    } else {
                        wait = Some(Partner::Writer(s.write_opens));
                    }
                }
            }
            O_WRONLY => {
                if s.readers == 0 {
                    if nonblock {
                        return Err(ENXIO);
                    }
                    wait = Some(Partner::Reader(s.read_opens));
                }
                writes = true;
            }
            O_RDWR => {
                reads = true;
                writes = true;
            }
            _ => return Err(EINVAL),
        }
        if reads {
            s.readers += 1;
            s.read_opens += 1;
        }
        if writes {
            s.writers += 1;
            s.write_opens += 1;
        }
        drop(s);
        self.queue.notify(OPENED);
        let end = PipeEnd {
            pipe: self.clone(),
            reads,
            writes,
            quiet,
        };
        Ok(PendingOpen {
            pipe: self.clone(),
            end: Some(Arc::new(end)),
            wait,
        })
    }
}

/// Opens the FIFO whose inode has this slot, and waits for the other side. `ERESTARTSYS` when a
/// signal comes.
pub fn open_fifo(
    slot: &Slot,
    flags: u32,
    cred: &Credentials,
    blocker: &dyn Blocker,
) -> Result<Arc<dyn FileOps>> {
    let mut open = slot.try_get_or_make(|| Pipe::for_fifo(cred))?.open(flags)?;
    let pipe = open.pipe.clone();
    let both = Events::READABLE | Events::WRITABLE;
    block_until(blocker, &[(&pipe.queue, both)], None, || open.finish())
        .map(|end| end as Arc<dyn FileOps>)
}

/// One open file on a pipe. Dropping it closes that end.
pub struct PipeEnd {
    pub(crate) pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
    /// Opened to read without blocking when no writer was there: no POLLHUP until one came and
    /// went, that is, while the count of opens is still this.
    quiet: Option<u64>,
}

/// `pipe(2)`: the read end and the write end. The caller makes files of them with `O_RDONLY` and
/// `O_WRONLY`, and with `O_NONBLOCK` and `O_DIRECT` as asked.
pub fn new_pipe(cred: &Credentials) -> Result<(Arc<PipeEnd>, Arc<PipeEnd>)> {
    let pipe = Pipe::new(cred)?;
    {
        let mut s = pipe.state.lock();
        (s.readers, s.writers, s.read_opens, s.write_opens) = (1, 1, 1, 1);
    }
    let end = |reads| {
        Arc::new(PipeEnd {
            pipe: pipe.clone(),
            reads,
            writes: !reads,
            quiet: None,
        })
    };
    Ok((end(true), end(false)))
}

enum Partner {
    Reader(u64),
    Writer(u64),
}

/// An `open(2)` of a FIFO that may have to wait for the other side. Dropping it gives the open up.
pub struct PendingOpen {
    pipe: Arc<Pipe>,
    /// `None` after it was given to the caller.
    end: Option<Arc<PipeEnd>>,
    wait: Option<Partner>,
}

impl PendingOpen {
    /// The open file; `EAGAIN` while the other side is not there. Gives it once.
    pub fn finish(&mut self) -> Result<Arc<PipeEnd>> {
        let s = self.pipe.state.lock();
        let there = match self.wait {
            None => true,
            Some(Partner::Reader(seen)) => s.read_opens != seen,
            Some(Partner::Writer(seen)) => s.write_opens != seen,
        };
        if there {
            self.end.take().ok_or(EINVAL)
        } else {
            Err(EAGAIN)
        }
    }
    /// Notified (of IN and OUT) when the other side comes.
    #[must_use]
    pub fn wait_queue(&self) -> &WaitQueue {
        &self.pipe.queue
    }
}

impl PipeEnd {
    /// Opens the same pipe again: `/proc/PID/fd/N`. Unlike a FIFO's, the open does not wait for the
    /// other side (Linux's fs/pipe.c, `fifo_open`).
    pub fn reopen(&self, flags: u32) -> Result<Arc<PipeEnd>> {
        let (reads, writes) = match flags & O_ACCMODE {
            O_RDONLY => (true, false),
            O_WRONLY => (false, true),
            O_RDWR => (true, true),
            _ => return Err(EINVAL),
        };
        let mut s = self.pipe.state.lock();
        if reads {
            s.readers += 1;
            s.read_opens += 1;
        }
        if writes {
            s.writers += 1;
            s.write_opens += 1;
        }
        drop(s);
        self.pipe.queue.notify(OPENED);
        Ok(Arc::new(PipeEnd {
            pipe: self.pipe.clone(),
            reads,
            writes,
            quiet: None,
        }))
    }
    /// `fcntl(F_GETPIPE_SZ)`.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pipe.state.lock().limit * PIPE_BUF
    }
    /// `fcntl(F_SETPIPE_SZ)`: gives the capacity that was set. `privileged`: CAP_SYS_RESOURCE.
    pub fn set_capacity(&self, size: u32, privileged: Privileged) -> Result<usize> {
        let size = rounded(size).ok_or(EINVAL)?;
        let mut s = self.pipe.state.lock();
        let most = MAX_CAPACITY.load(Ordering::Relaxed) as usize;
        if size > s.limit * PIPE_BUF && size > most && privileged == Privileged::No {
            return Err(EPERM);
        }
        let pages = size / PIPE_BUF;
        if pages > s.limit && privileged == Privileged::No {
            let others = s.counted.user().most(Kind::PipePages) - s.counted.amount() as i64;
            let over = |limit: &AtomicI64| {
                let most = limit.load(Ordering::Relaxed);
                most > 0 && others + pages as i64 > most
            };
            if over(&USER_PAGES_SOFT) || over(&USER_PAGES_HARD) {
                return Err(EPERM);
            }
        }
        if s.pages.len() > pages {
            return Err(EBUSY);
        }
        s.counted.set(pages as u64);
        let was = s.writable();
        s.limit = size / PIPE_BUF;
        let is = s.writable();
        drop(s);
        self.pipe.notify_room(was, is);
        Ok(size)
    }
    #[must_use]
    pub fn can_read(&self) -> bool {
        self.reads
    }
    #[must_use]
    pub fn can_write(&self) -> bool {
        self.writes
    }
}

/// Those who wait for another end look again.
const OPENED: Events = Events::READABLE
    .union(Events::WRITABLE)
    .union(Events::OPENED);

/// Whether the caller has the capability that lifts a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileged {
    No,
    Yes,
}

impl FileOps for PipeEnd {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        if !self.reads {
            return Err(EBADF);
        }
        if dst.remaining() == 0 {
            return Ok(0);
        }
        self.pipe.consume(|s| {
            if s.len() > 0 {
                return s.read(dst);
            }
            if s.writers == 0 { Ok(0) } else { Err(EAGAIN) }
        })
    }

    /// `EPIPE` without a reader: the caller raises SIGPIPE.
    fn write(&self, file: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        if !self.writes {
            return Err(EBADF);
        }
        if src.remaining() == 0 {
            return Ok(0);
        }
        let n = {
            let mut s = self.pipe.state.lock();
            if s.readers == 0 {
                return Err(EPIPE);
            }
            s.write(src, file.flags() & O_DIRECT != 0)?
        };
        self.pipe.notify_data();
        Ok(n)
    }

    /// Of an anonymous pipe; a FIFO's is its inode's.
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            dev: PIPEFS_DEV,
            ino: self.pipe.ino,
            mode: 0o010_600,
            nlink: 1,
            blksize: 4096,
            ..Stat::default()
        })
    }

    fn takes_splices(&self) -> bool {
        true
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let s = self.pipe.state.lock();
        let mut e = Events::empty();
        if self.reads {
            if s.len() > 0 {
                e |= Events::READABLE;
            }
            if s.writers == 0 && self.quiet != Some(s.write_opens) {
                e |= Events::HUP;
            }
        }
        if self.writes {
            if s.writable() {
                e |= Events::WRITABLE;
            }
            if s.readers == 0 {
                e |= Events::ERR;
            }
        }
        e & (mask | Events::ALWAYS)
    }

    fn signals_owner(&self) -> bool {
        true
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.pipe.queue)
    }

    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        match cmd {
            FIONREAD => {
                let n = self.pipe.state.lock().len() as i32;
                cx.copy_out(Va(arg), &n.to_le_bytes())?;
                Ok(0)
            }
            _ => Err(ENOTTY),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        format!("pipe:[{}]", self.pipe.ino)
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let mut s = self.pipe.state.lock();
        let mut e = Events::empty();
        if self.reads {
            s.readers -= 1;
            if s.readers == 0 {
                e |= Events::ERR | Events::WRITABLE;
            }
        }
        if self.writes {
            s.writers -= 1;
            if s.writers == 0 {
                e |= Events::HUP | Events::READABLE;
            }
        }
        if s.readers == 0 && s.writers == 0 {
            s.clear();
        }
        drop(s);
        if !e.is_empty() {
            self.pipe.queue.notify(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn pair(flags: u32) -> (Arc<File>, Arc<File>) {
        let (r, w) = new_pipe(&vfs::Credentials::root()).unwrap();
        (file(r, O_RDONLY | flags), file(w, O_WRONLY | flags))
    }
    fn end(f: &File) -> &PipeEnd {
        f.ops::<PipeEnd>().unwrap()
    }

    #[test]
    fn small_writes_are_whole_or_nothing() {
        let (r, w) = pair(0);
        assert_eq!(write(&w, &[1; 65536 - 10]), Ok(65526));
        assert_eq!(write(&w, &[2; 11]), Err(EAGAIN));
        assert!(!w.poll(Events::OUT).contains(Events::OUT));
        assert_eq!(write(&w, &[2; 10]), Ok(10));
        assert_eq!(read(&r, 4095).unwrap().len(), 4095);
        assert!(!w.poll(Events::OUT).contains(Events::OUT));
        assert_eq!(read(&r, 1).unwrap().len(), 1);
        assert!(w.poll(Events::OUT).contains(Events::OUT));
        // A larger write takes what fits.
        assert_eq!(write(&w, &[3; 5000]), Ok(4096));
        assert_eq!(write(&w, &[3; 904]), Err(EAGAIN));
        // A page is free when it is empty, though bytes of it were read.
        assert_eq!(read(&r, 100).unwrap().len(), 100);
        assert_eq!(write(&w, &[4; 1]), Err(EAGAIN));
    }

    #[test]
    fn ends_close() {
        let (r, w) = pair(0);
        assert_eq!(read(&r, 5), Err(EAGAIN));
        write(&w, b"abc").unwrap();
        drop(w);
        assert_eq!(r.poll(Events::IN), Events::IN | Events::HUP);
        assert_eq!(read(&r, 5).unwrap(), b"abc");
        assert_eq!(read(&r, 5).unwrap(), b"");
        assert_eq!(r.poll(Events::IN), Events::HUP);
        let (r, w) = pair(0);
        drop(r);
        assert_eq!(write(&w, b"x"), Err(EPIPE));
        assert_eq!(w.poll(Events::OUT), Events::OUT | Events::ERR);
    }

    #[test]
    fn packets_keep_their_boundaries() {
        let (r, w) = pair(O_DIRECT);
        write(&w, b"first").unwrap();
        write(&w, b"second").unwrap();
        w.set_flags(0);
        write(&w, b"stream").unwrap();
        write(&w, b"more").unwrap();
        assert_eq!(read(&r, 3).unwrap(), b"fir");
        assert_eq!(read(&r, 100).unwrap(), b"second");
        assert_eq!(read(&r, 100).unwrap(), b"streammore");
        w.set_flags(O_DIRECT);
        for _ in 0..16 {
            assert_eq!(write(&w, b"p"), Ok(1));
        }
        assert_eq!(write(&w, b"p"), Err(EAGAIN));
        assert_eq!(read(&r, 9).unwrap(), b"p");
        assert_eq!(write(&w, &[0; 5000]), Ok(4096));
    }

    #[test]
    fn capacity() {
        let (r, w) = pair(0);
        assert_eq!(end(&w).set_capacity(5000, Privileged::No), Ok(8192));
        assert_eq!(end(&w).set_capacity(1 << 21, Privileged::No), Err(EPERM));
        assert_eq!(end(&w).set_capacity(0, Privileged::No), Ok(4096));
        assert_eq!(write(&w, &[0; 9000]), Ok(4096));
        assert_eq!(end(&w).set_capacity(1 << 21, Privileged::Yes), Ok(1 << 21));
        assert_eq!(write(&w, &[0; 90000]), Ok(90000));
        assert_eq!(end(&r).set_capacity(65536, Privileged::No), Err(EBUSY));
    }

    #[test]
    fn fifos_wait_for_their_partner() {
        let f = Pipe::for_fifo(&vfs::Credentials::root()).unwrap();
        assert_eq!(f.open(O_WRONLY | O_NONBLOCK).err(), Some(ENXIO));
        let mut r = f.open(O_RDONLY).unwrap();
        assert_eq!(r.finish().err(), Some(EAGAIN));
        let mut w = f.open(O_WRONLY).unwrap();
        let r = file(r.finish().unwrap(), O_RDONLY);
        let w = file(w.finish().unwrap(), O_WRONLY);
        write(&w, b"hi").unwrap();
        assert_eq!(read(&r, 9).unwrap(), b"hi");
        drop((r, w));
        // A reader that came first and did not wait sees no hang-up until a writer came and went.
        let r = file(
            f.open(O_RDONLY | O_NONBLOCK).unwrap().finish().unwrap(),
            O_RDONLY,
        );
        assert_eq!(r.poll(Events::IN), Events::empty());
        assert_eq!(read(&r, 1).unwrap(), b"");
        let w = f.open(O_WRONLY).unwrap();
        drop(w);
        assert_eq!(r.poll(Events::IN), Events::HUP);
    }
}
