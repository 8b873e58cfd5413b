//! Pipes and FIFOs (`pipe(7)`, `fifo(7)`; Linux's `fs/pipe.c`).
//!
//! A [`Pipe`] is shared by its [`PipeEnd`]s, which are the open files. A write of at most `PIPE_BUF` bytes
//! is taken whole or not at all. A pipe is writable, for poll, while another `PIPE_BUF` bytes fit.
//!
//! In packet mode (`O_DIRECT` on the write end) each write is a packet of its own: a read takes one, and
//! drops what does not fit. Bytes and packets may be mixed; boundaries are kept only while there are packets.

use crate::ring::ByteRing;
use crate::{FIONREAD, PIPEFS_DEV, next_ino};
use abi::errno::{EAGAIN, EBADF, EBUSY, EINVAL, ENOTTY, ENXIO, EPERM, EPIPE};
use abi::{Result, Va};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::file::{IoctlContext, O_ACCMODE, O_DIRECT, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY};
use vfs::{File, FileOps, Sink, Slot, Source, Stat};
use wait::{Blocker, Events, WaitQueue, block_until};

/// Writes up to this size are atomic.
pub const PIPE_BUF: usize = 4096;
/// A new pipe's capacity in bytes.
pub const DEFAULT_CAPACITY: usize = 65536;
/// `/proc/sys/fs/pipe-max-size`: what an unprivileged `F_SETPIPE_SZ` may ask.
pub const MAX_CAPACITY: usize = 1 << 20;

/// A run of bytes in the ring.
#[derive(Clone, Copy)]
struct Seg {
    len: usize,
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
    /// Empty unless there are packets; then it covers the whole ring.
    segs: VecDeque<Seg>,
    packets: usize,
    /// Bytes that lie in packets.
    packet_bytes: usize,
    capacity: usize,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    /// How often the read side, the write side, was opened.
    read_opens: u64,
    write_opens: u64,
}

impl State {
    /// What counts against the capacity: a packet takes a page, whatever its size.
    fn used(&self) -> usize {
        self.ring.len() - self.packet_bytes + self.packets * PIPE_BUF
    }
    pub(crate) fn free(&self) -> usize {
        self.capacity.saturating_sub(self.used())
    }
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }
    fn writable(&self) -> bool {
        self.free() >= PIPE_BUF
    }
    fn note_stream(&mut self, n: usize) {
        if self.segs.is_empty() || n == 0 {
            return;
        }
        match self.segs.back_mut() {
            Some(s) if !s.packet => s.len += n,
            _ => self.segs.push_back(Seg {
                len: n,
                packet: false,
            }),
        }
    }
    fn note_packet(&mut self, n: usize) {
        let before = self.ring.len() - n;
        if self.segs.is_empty() && before > 0 {
            self.segs.push_back(Seg {
                len: before,
                packet: false,
            });
        }
        self.segs.push_back(Seg {
            len: n,
            packet: true,
        });
        self.packets += 1;
        self.packet_bytes += n;
    }
    fn pop_front_seg(&mut self) {
        if let Some(s) = self.segs.pop_front()
            && s.packet
        {
            self.packets -= 1;
            self.packet_bytes -= s.len;
        }
        if self.packets == 0 {
            self.segs.clear();
        }
    }
    fn clear(&mut self) {
        self.ring.release();
        self.segs.clear();
        self.packets = 0;
        self.packet_bytes = 0;
    }

    fn write(&mut self, src: &mut dyn Source, packet: bool) -> Result<usize> {
        let n = src.remaining();
        if packet {
            let mut done = 0;
            while done < n {
                if !self.writable() {
                    return if done == 0 { Err(EAGAIN) } else { Ok(done) };
                }
                match self.ring.push_from(src, PIPE_BUF) {
                    Ok(0) => break,
                    Ok(k) => {
                        self.note_packet(k);
                        done += k;
                    }
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => break,
                }
            }
            return Ok(done);
        }
        let free = self.free();
        if free == 0 || (n <= PIPE_BUF && free < n) {
            return Err(EAGAIN);
        }
        let k = self.ring.push_from(src, n.min(free))?;
        self.note_stream(k);
        Ok(k)
    }

    pub(crate) fn read(&mut self, dst: &mut dyn Sink) -> Result<usize> {
        if self.segs.is_empty() {
            return self.ring.pop_into(dst, usize::MAX);
        }
        let mut done = 0;
        while let Some(s) = self.segs.front().copied() {
            match self.ring.peek_into(dst, 0, s.len) {
                Ok(k) if s.packet => {
                    self.ring.consume(s.len);
                    self.pop_front_seg();
                    return Ok(done + k);
                }
                Ok(k) => {
                    self.ring.consume(k);
                    done += k;
                    if k < s.len {
                        if let Some(f) = self.segs.front_mut() {
                            f.len -= k;
                        }
                        return Ok(done);
                    }
                    self.pop_front_seg();
                    if dst.remaining() == 0 {
                        return Ok(done);
                    }
                    if self.segs.is_empty() {
                        // Only stream bytes are left; their boundaries are not kept.
                        return Ok(done + self.ring.pop_into(dst, usize::MAX).unwrap_or(0));
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
        if let Some(s) = self.segs.front().copied() {
            max = max.min(s.len);
            let v = self.ring.pop_vec(max);
            if s.packet {
                self.ring.consume(s.len - max);
                self.pop_front_seg();
            } else if max == s.len {
                self.pop_front_seg();
            } else if let Some(f) = self.segs.front_mut() {
                f.len -= max;
            }
            return v;
        }
        self.ring.pop_vec(max)
    }

    /// Puts back what [`State::take`] gave; may go beyond the capacity for a moment.
    pub(crate) fn untake(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.ring.push_front(bytes);
        match self.segs.front_mut() {
            Some(s) if !s.packet => s.len += bytes.len(),
            Some(_) => self.segs.push_front(Seg {
                len: bytes.len(),
                packet: false,
            }),
            None => {}
        }
    }

    /// Appends bytes whatever the capacity.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.ring.push(bytes);
        self.note_stream(bytes.len());
    }
    pub(crate) fn append_copy(&mut self, from: &State, n: usize) {
        self.ring.push_copy(&from.ring, n);
        self.note_stream(n);
    }
}

impl Pipe {
    fn new() -> Arc<Pipe> {
        Arc::new(Pipe {
            state: Mutex::new(State {
                ring: ByteRing::new(),
                segs: VecDeque::new(),
                packets: 0,
                packet_bytes: 0,
                capacity: DEFAULT_CAPACITY,
                readers: 0,
                writers: 0,
                read_opens: 0,
                write_opens: 0,
            }),
            queue: WaitQueue::new(),
            ino: next_ino(),
        })
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
    #[must_use]
    pub fn for_fifo() -> Arc<Pipe> {
        Pipe::new()
    }

    /// Opens an end by FIFO's rules (`fifo(7)`): `ENXIO` for a non-blocking writer without a reader.
    pub fn open(self: &Arc<Pipe>, flags: u32) -> Result<PendingOpen> {
        let nonblock = flags & O_NONBLOCK != 0;
        let mut s = self.state.lock();
        if s.readers == 0 && s.writers == 0 {
            s.clear();
            s.capacity = DEFAULT_CAPACITY;
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
        self.queue.notify(Events::READABLE | Events::WRITABLE);
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

/// Opens the FIFO whose inode has this slot, and waits for the other side. `ERESTARTSYS` when a signal comes.
pub fn open_fifo(slot: &Slot, flags: u32, blocker: &dyn Blocker) -> Result<Arc<dyn FileOps>> {
    let mut open = slot.get_or_make(Pipe::for_fifo).open(flags)?;
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
    /// Opened to read without blocking when no writer was there: no POLLHUP until one came and went, that
    /// is, while the count of opens is still this.
    quiet: Option<u64>,
}

/// `pipe(2)`: the read end and the write end. The caller makes files of them with `O_RDONLY` and
/// `O_WRONLY`, and with `O_NONBLOCK` and `O_DIRECT` as asked.
#[must_use]
pub fn new_pipe() -> (Arc<PipeEnd>, Arc<PipeEnd>) {
    let pipe = Pipe::new();
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
    (end(true), end(false))
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
    /// Opens the same pipe again: `/proc/PID/fd/N`. Unlike a FIFO's, the open does not wait for the other
    /// side (Linux's fs/pipe.c, `fifo_open`).
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
        self.pipe.queue.notify(Events::READABLE | Events::WRITABLE);
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
        self.pipe.state.lock().capacity
    }
    /// `fcntl(F_SETPIPE_SZ)`: gives the capacity that was set. `privileged`: CAP_SYS_RESOURCE.
    pub fn set_capacity(&self, size: u32, privileged: Privileged) -> Result<usize> {
        if size > 1 << 31 {
            return Err(EINVAL);
        }
        let size = (size as usize).max(PIPE_BUF).next_power_of_two();
        let mut s = self.pipe.state.lock();
        if size > s.capacity && size > MAX_CAPACITY && privileged == Privileged::No {
            return Err(EPERM);
        }
        if s.used() > size {
            return Err(EBUSY);
        }
        let was = s.writable();
        s.capacity = size;
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
            if s.len() > 0 || s.packets > 0 {
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
        let (r, w) = new_pipe();
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
        let f = Pipe::for_fifo();
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
