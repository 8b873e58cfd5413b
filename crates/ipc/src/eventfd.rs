//! `eventfd(2)`.

use crate::anon_stat;
use abi::Result;
use abi::errno::{EAGAIN, EINVAL};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use vfs::{File, FileOps, Sink, Source, Stat};
use wait::{Events, WaitQueue};

/// `EFD_SEMAPHORE`; the other flags are `O_CLOEXEC` and `O_NONBLOCK`.
pub const EFD_SEMAPHORE: u32 = 1;

/// A counter that reads take and writes add to.
pub struct EventFd {
    count: Mutex<u64>,
    semaphore: bool,
    queue: WaitQueue,
    id: u64,
}

impl EventFd {
    /// `flags`: EFD_SEMAPHORE alone matters here.
    #[must_use]
    pub fn new(initial: u32, flags: u32) -> Arc<EventFd> {
        Arc::new(EventFd {
            count: Mutex::new(u64::from(initial)),
            semaphore: flags & EFD_SEMAPHORE != 0,
            queue: WaitQueue::new(),
            id: crate::next_ino(),
        })
    }
    /// Adds from inside the kernel; saturates, which poll shows as POLLERR.
    pub fn signal(&self, n: u64) {
        {
            let mut c = self.count.lock();
            *c = c.saturating_add(n);
        }
        self.queue.notify(Events::READABLE);
    }
}

/// The source's first 8 bytes, left in it: a write that must wait is tried again with the same
/// source.
fn peek8(src: &mut dyn Source) -> Result<[u8; 8]> {
    let mut b = [0; 8];
    let mut got = 0;
    src.drain(8, &mut |iov| {
        for s in iov {
            got += s.copy_to(&mut b[got..]);
        }
        Ok(0)
    })?;
    if got == 8 {
        Ok(b)
    } else {
        Err(abi::errno::EFAULT)
    }
}

impl FileOps for EventFd {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        if dst.remaining() < 8 {
            return Err(EINVAL);
        }
        let got = {
            let mut c = self.count.lock();
            if *c == 0 {
                return Err(EAGAIN);
            }
            let got = if self.semaphore { 1 } else { *c };
            *c -= got;
            got
        };
        // (The count is taken, too, where it cannot be given out: as on Linux.)
        let put = dst.put(&got.to_le_bytes());
        self.queue.notify(Events::WRITABLE);
        put
    }
    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        // More is refused, too (since Linux 6.10).
        if src.remaining() != 8 {
            return Err(EINVAL);
        }
        let n = u64::from_le_bytes(peek8(src)?);
        if n == u64::MAX {
            return Err(EINVAL);
        }
        {
            let mut c = self.count.lock();
            match c.checked_add(n) {
                Some(v) if v < u64::MAX => *c = v,
                _ => return Err(EAGAIN),
            }
        }
        let _ = src.take(&mut [0; 8]);
        self.queue.notify(Events::READABLE);
        Ok(8)
    }
    fn ignores_seek(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let c = *self.count.lock();
        let mut e = Events::empty();
        if c > 0 {
            e |= Events::IN;
        }
        if c < u64::MAX - 1 {
            e |= Events::OUT;
        }
        if c == u64::MAX {
            e |= Events::ERR;
        }
        e & (mask | Events::ALWAYS)
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:[eventfd]".into()
    }
    fn fdinfo(&self) -> String {
        format!(
            "eventfd-count: {:16x}\neventfd-id: {}\neventfd-semaphore: {}\n",
            *self.count.lock(),
            self.id,
            u8::from(self.semaphore)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use vfs::file::O_RDWR;

    #[test]
    fn counts() {
        let f = file(EventFd::new(2, 0), O_RDWR);
        assert_eq!(write(&f, &5u64.to_le_bytes()), Ok(8));
        assert_eq!(read(&f, 8).unwrap(), 7u64.to_le_bytes());
        assert_eq!(read(&f, 8), Err(EAGAIN));
        assert_eq!(read(&f, 7), Err(EINVAL));
        assert_eq!(write(&f, &u64::MAX.to_le_bytes()), Err(EINVAL));
        assert_eq!(write(&f, &(u64::MAX - 1).to_le_bytes()), Ok(8));
        assert_eq!(f.poll(Events::IN | Events::OUT), Events::IN);
        assert_eq!(write(&f, &1u64.to_le_bytes()), Err(EAGAIN));
        let s = file(EventFd::new(2, EFD_SEMAPHORE), O_RDWR);
        assert_eq!(read(&s, 8).unwrap(), 1u64.to_le_bytes());
        assert_eq!(read(&s, 8).unwrap(), 1u64.to_le_bytes());
        assert_eq!(read(&s, 8), Err(EAGAIN));
    }
}
