//! Descriptors of the host as the first program's standard streams.
//!
//! A regular file keeps its position on the host alone, since others share it (the shell's `>` for
//! several commands, at the same time even). Pipes, sockets and terminals are read and written only
//! when the host says that it can be done at once; a watcher thread, started when somebody first
//! waits, turns the host's readiness into notifications.

use abi::Result;
use abi::errno::{EAGAIN, EINVAL, EIO, ENOTTY};
use hostcall::HostFd;
use hostcall::file as host;
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::sync::{Arc, OnceLock};
use vfs::file::{DataOnly, File, FileOps, HostPosition, IoctlContext};
use vfs::{Sink, Source, Stat};
use wait::{Events, WaitQueue};

/// A host descriptor as an open file.
pub struct HostStream {
    shared: Arc<Shared>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Regular,
    Stream,
}

struct Shared {
    fd: HostFd,
    queue: WaitQueue,
    /// What is waited for; empty when nobody does.
    wanted: Mutex<Events>,
    changed: Condvar,
    watcher: OnceLock<()>,
}

impl HostStream {
    /// Takes the descriptor.
    pub fn new(fd: HostFd) -> Result<Arc<HostStream>> {
        let st = host::fstat(fd.raw())?;
        let kind = if st.st_mode & libc::S_IFMT == libc::S_IFREG {
            Kind::Regular
        } else {
            Kind::Stream
        };
        let shared = Arc::new(Shared {
            fd,
            queue: WaitQueue::new(),
            wanted: Mutex::new(Events::empty()),
            changed: Condvar::new(),
            watcher: OnceLock::new(),
        });
        Ok(Arc::new(HostStream { shared, kind }))
    }

    fn ready(&self, mask: Events) -> Events {
        let mut p = [libc::pollfd {
            fd: self.shared.fd.raw(),
            events: (mask.bits() & 0x7) as i16,
            revents: 0,
        }];
        if host::poll(&mut p, 0).is_err() {
            return Events::ERR;
        }
        let got = Events::from_bits_retain(u32::from(p[0].revents as u16));
        let mut out = got;
        if got.contains(Events::IN) {
            out |= Events::RDNORM;
        }
        if got.contains(Events::OUT) {
            out |= Events::WRNORM;
        }
        out & (mask | Events::ALWAYS)
    }

    /// Has the watcher look for these events.
    fn watch(&self, events: Events) {
        let s = &self.shared;
        s.watcher.get_or_init(|| {
            let weak = Arc::downgrade(s);
            let fd = s.fd.raw();
            let _ = std::thread::Builder::new()
                .name("host-stream".into())
                .stack_size(64 << 10)
                .spawn(move || {
                    loop {
                        let Some(s) = weak.upgrade() else { return };
                        let want = {
                            let mut w = s.wanted.lock();
                            while w.is_empty() {
                                let timeout = std::time::Duration::from_secs(1);
                                if s.changed.wait_for(&mut w, timeout).timed_out() && w.is_empty() {
                                    break;
                                }
                            }
                            *w
                        };
                        if want.is_empty() {
                            continue;
                        }
                        let mut p = [libc::pollfd {
                            fd,
                            events: (want.bits() & 7) as i16,
                            revents: 0,
                        }];
                        if let Ok(1..) = host::poll(&mut p, 1000) {
                            *s.wanted.lock() = Events::empty();
                            s.queue.notify(
                                Events::from_bits_retain(u32::from(p[0].revents as u16))
                                    | Events::READABLE
                                    | Events::WRITABLE,
                            );
                        }
                    }
                });
        });
        *s.wanted.lock() |= events;
        s.changed.notify_one();
    }
}

/// Of a regular file.
impl HostPosition for HostStream {
    fn get(&self) -> Result<u64> {
        host::position(self.shared.fd.raw())
    }
    fn seek(&self, offset: i64, whence: u32) -> Result<u64> {
        let whence = i32::try_from(whence).map_err(|_| EINVAL)?;
        hostcall::path::lseek(self.shared.fd.raw(), offset, whence)
    }
    fn read(&self, dst: &mut dyn Sink) -> Result<usize> {
        let fd = self.shared.fd.raw();
        dst.fill(dst.remaining(), &mut |iov| host::readv(fd, iov))
    }
    fn write(&self, src: &mut dyn Source) -> Result<usize> {
        let fd = self.shared.fd.raw();
        src.drain(src.remaining(), &mut |iov| host::writev(fd, iov))
    }
}

impl FileOps for HostStream {
    fn read(&self, _: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let fd = self.shared.fd.raw();
        let max = dst.remaining();
        if self.kind == Kind::Regular {
            return dst.fill(max, &mut |iov| host::preadv(fd, iov, offset));
        }
        if self.ready(Events::IN).is_empty() {
            self.watch(Events::IN);
            return Err(EAGAIN);
        }
        dst.fill(max, &mut |iov| host::readv(fd, iov))
    }
    fn write(&self, _: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        let fd = self.shared.fd.raw();
        let max = src.remaining();
        if self.kind == Kind::Regular {
            return src.drain(max, &mut |iov| host::pwritev(fd, iov, offset));
        }
        if self.ready(Events::OUT).is_empty() {
            self.watch(Events::OUT);
            return Err(EAGAIN);
        }
        // A pipe that is writable takes PIPE_BUF bytes at least without blocking.
        src.drain(max.min(4096), &mut |iov| host::writev(fd, iov))
    }
    fn seekable(&self) -> bool {
        self.kind == Kind::Regular
    }
    fn takes_splices(&self) -> bool {
        true
    }
    fn host_position(&self) -> Option<&dyn HostPosition> {
        (self.kind == Kind::Regular).then_some(self)
    }
    fn append(&self, _: &File, src: &mut dyn Source) -> Result<(usize, u64)> {
        let fd = self.shared.fd.raw();
        let n = src.drain(src.remaining(), &mut |iov| host::append(fd, iov))?;
        Ok((n, host::position(fd)?))
    }
    fn append_offset(&self) -> Result<u64> {
        Ok(host::fstat(self.shared.fd.raw())?.st_size as u64)
    }
    fn stat(&self) -> Result<Stat> {
        let s = host::fstat(self.shared.fd.raw()).map_err(|_| EIO)?;
        Ok(hostcall::file::attributes(&s))
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        if self.kind == Kind::Regular {
            return mask & (Events::READABLE | Events::WRITABLE);
        }
        let r = self.ready(mask);
        if r.is_empty() {
            self.watch(mask & (Events::IN | Events::OUT));
        }
        r
    }
    fn signals_owner(&self) -> bool {
        self.kind == Kind::Stream
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        (self.kind == Kind::Stream).then_some(&self.shared.queue)
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        // FIONREAD of pipes and sockets; terminal calls do not reach the host's terminal.
        if cmd == 0x541b && self.kind == Kind::Stream {
            let n = host::bytes_ready(self.shared.fd.raw())?;
            cx.copy_out(abi::Va(arg), &n.to_le_bytes())?;
            return Ok(0);
        }
        Err(ENOTTY)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        host::ftruncate(self.shared.fd.raw(), size)
    }
    fn sync(&self, data_only: DataOnly) -> Result<()> {
        match data_only {
            DataOnly::No => host::fsync(self.shared.fd.raw()),
            DataOnly::Yes => host::fdatasync(self.shared.fd.raw()),
        }
    }
    fn describe(&self) -> String {
        match (self.kind, host::fstat(self.shared.fd.raw())) {
            (Kind::Stream, Ok(s)) if s.st_mode & libc::S_IFMT == libc::S_IFIFO => {
                format!("pipe:[{}]", s.st_ino)
            }
            (Kind::Stream, Ok(s)) if s.st_mode & libc::S_IFMT == libc::S_IFSOCK => {
                format!("socket:[{}]", s.st_ino)
            }
            _ => "host:[stream]".into(),
        }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
