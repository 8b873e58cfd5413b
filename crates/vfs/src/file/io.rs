//! What a read or write moves, and its caller.

use super::File;
use crate::cred::Credentials;
use abi::Result;
use abi::errno::{EAGAIN, EINTR, EPIPE, ERESTARTSYS, ETIMEDOUT};
use hostcall::MemSlice;
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::{Blocker, Events, WaitQueue, block_until, deadline_after};

/// Where read bytes go: application memory (a `readv` list) or a kernel buffer.
pub trait Sink {
    /// Room left, in bytes.
    fn remaining(&self) -> usize;
    /// Copies as much of `src` as fits and advances. `EFAULT` only if nothing could be copied.
    fn put(&mut self, src: &[u8]) -> Result<usize>;
    /// Offers up to `max` bytes of the destination itself, in order, to `fill` (a host read, a copy
    /// between frames); advances by what `fill` says it filled.
    fn fill(
        &mut self,
        max: usize,
        fill: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize>;
    /// Fills up to `n` bytes with zeros and advances.
    fn put_zeros(&mut self, n: usize) -> Result<usize> {
        let n = n.min(self.remaining());
        self.fill(n, &mut |iov| {
            Ok(iov
                .iter()
                .map(|s| {
                    s.zero();
                    s.len()
                })
                .sum())
        })
    }
}

/// Where written bytes come from.
pub trait Source {
    /// Bytes left.
    fn remaining(&self) -> usize;
    /// Copies up to `dst.len()` bytes out, once, and advances. `EFAULT` only if nothing could be
    /// copied.
    fn take(&mut self, dst: &mut [u8]) -> Result<usize>;
    /// Offers up to `max` bytes of the source itself, in order, to `drain`; advances by what it
    /// says.
    fn drain(
        &mut self,
        max: usize,
        drain: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize>;
}

/// A [`Sink`] into our own buffer.
pub struct BufSink<'a> {
    buf: &'a mut [u8],
    done: usize,
}

impl<'a> BufSink<'a> {
    #[must_use]
    pub fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, done: 0 }
    }
    /// Bytes put so far.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done
    }
}

impl Sink for BufSink<'_> {
    fn remaining(&self) -> usize {
        self.buf.len() - self.done
    }
    fn put(&mut self, src: &[u8]) -> Result<usize> {
        let n = src.len().min(self.remaining());
        self.buf[self.done..self.done + n].copy_from_slice(&src[..n]);
        self.done += n;
        Ok(n)
    }
    fn fill(
        &mut self,
        max: usize,
        fill: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        let n = max.min(self.remaining());
        let r =
            hostcall::mem::with_slice_mut(&mut self.buf[self.done..self.done + n], |s| fill(&[s]))?;
        self.done += r.min(n);
        Ok(r)
    }
}

/// A [`Source`] from our own buffer.
pub struct BufSource<'a> {
    buf: &'a [u8],
}

impl<'a> BufSource<'a> {
    #[must_use]
    pub fn new(buf: &'a [u8]) -> Self {
        Self { buf }
    }
}

impl Source for BufSource<'_> {
    fn remaining(&self) -> usize {
        self.buf.len()
    }
    fn take(&mut self, dst: &mut [u8]) -> Result<usize> {
        let n = dst.len().min(self.buf.len());
        dst[..n].copy_from_slice(&self.buf[..n]);
        self.buf = &self.buf[n..];
        Ok(n)
    }
    fn drain(
        &mut self,
        max: usize,
        drain: &mut dyn FnMut(&[MemSlice<'_>]) -> Result<usize>,
    ) -> Result<usize> {
        let mut copy = self.buf[..max.min(self.buf.len())].to_vec();
        let r = hostcall::mem::with_slice_mut(&mut copy, |s| drain(&[s]))?;
        self.buf = &self.buf[r.min(self.buf.len())..];
        Ok(r)
    }
}

/// The reader or writer of a stream: a task, as files see it.
pub trait IoCaller: Blocker {
    /// The task, for job control and signal queues: downcast in the Sentry.
    fn task(&self) -> &dyn Any;
    fn credentials(&self) -> Arc<Credentials>;
    /// Its process's id, and the number that the process has for itself.
    fn process(&self) -> (i32, i32);
    /// It wrote where nobody reads any more: SIGPIPE.
    fn broken_pipe(&self);
}

/// One call that reads or writes a stream.
#[derive(Clone, Copy)]
pub struct Io<'a> {
    pub file: &'a File,
    pub caller: &'a dyn IoCaller,
    /// `O_NONBLOCK`, or what the call says of itself (`RWF_NOWAIT`, `MSG_DONTWAIT`).
    pub nonblocking: bool,
}

impl Io<'_> {
    /// Runs `attempt` until it gives something other than `EAGAIN`; once only where the caller does
    /// not wait.
    ///
    /// `limit` is the file's own limit of a wait (`SO_RCVTIMEO`): `EAGAIN` when it is over; and an
    /// interrupted call with one gives `EINTR`, since a restart would wait for the whole time again
    /// (`sk_wait_event`).
    pub fn wait<T>(
        &self,
        events: Events,
        limit: Option<Duration>,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let queue = self.file.ops.io_queue().filter(|_| !self.nonblocking);
        let Some(q) = queue else { return attempt() };
        let deadline = limit.and_then(deadline_after);
        match self.block(&[(q, events)], deadline, attempt) {
            Err(ETIMEDOUT) if deadline.is_some_and(|d| Instant::now() >= d) => Err(EAGAIN),
            Err(ERESTARTSYS) if limit.is_some() => Err(EINTR),
            r => r,
        }
    }

    /// As [`block_until`], as the caller: for a file whose readers wait on more than its queue.
    pub fn block<T>(
        &self,
        queues: &[(&WaitQueue, Events)],
        deadline: Option<Instant>,
        attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        block_until(self.caller, queues, deadline, attempt)
    }

    /// Writes all of `src` where the caller waits for that; else what is taken at once.
    pub fn write_all(&self, src: &mut dyn Source) -> Result<usize> {
        let total = src.remaining();
        let mut done = 0;
        let r = self.wait(Events::WRITABLE, None, || {
            loop {
                match self.file.write(src) {
                    Ok(n) => {
                        done += n;
                        if self.nonblocking || n == 0 || done >= total {
                            return Ok(done);
                        }
                    }
                    Err(EAGAIN) => return Err(EAGAIN),
                    Err(e) => return if done > 0 { Ok(done) } else { Err(e) },
                }
            }
        });
        match r {
            Err(_) if done > 0 => Ok(done),
            Err(EPIPE) => {
                self.caller.broken_pipe();
                Err(EPIPE)
            }
            r => r,
        }
    }
}
