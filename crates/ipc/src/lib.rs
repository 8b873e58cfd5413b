//! Kernel objects that processes talk and wait through: pipes and FIFOs, event files, timers,
//! epoll, poll, inotify, fanotify, POSIX message queues and System V IPC.
//!
//! They are open files (`vfs::FileOps`) that never block: `EAGAIN` says "not now", and the caller
//! waits on the file's queue and tries again (see the `wait` crate). **Writes may be short**: where
//! Linux's `write(2)` on a blocking pipe goes on until all is written, the caller calls again with
//! the rest.
//!
//! # Lock order
//!
//! ```text
//! epoll's loop check → Epoll::items (outer before the inner of a nested epoll)
//!   → the watched object's own locks (poll) → its wait queue → Epoll::ready → Epoll's wait queue
//! Pipe::state (two pipes: by address) → application memory (Source, Sink)
//! a message queue's state → a waiter's place
//! Fanotify::entries → the VFS's lists of marks → a mark (Fanotify::state is a leaf)
//! WatchList::watchers → Inotify::state
//! TimerFd::state → Timer::state → TimerService::state
//! ```
//!
//! Timer callbacks run without any of these locks. A file's last reference is never dropped under
//! one.
#![forbid(unsafe_code)]

pub mod epoll;
pub mod eventfd;
pub mod fanotify;
pub mod inotify;
pub mod mqueue;
pub mod pipe;
pub mod poll;
pub mod ring;
pub mod splice;
pub mod sysv;
pub mod timer;
pub mod timerfd;

pub use epoll::Epoll;
pub use eventfd::EventFd;
pub use pipe::{Pipe, PipeEnd, new_pipe};
pub use timer::{Clock, Timer, TimerService};
pub use timerfd::TimerFd;

use std::sync::atomic::{AtomicU64, Ordering};

/// `st_dev` of pipes, as Linux numbers its pipefs on common systems.
const PIPEFS_DEV: u64 = 14;
static NEXT_INO: AtomicU64 = AtomicU64::new(1000);

fn next_ino() -> u64 {
    NEXT_INO.fetch_add(1, Ordering::Relaxed)
}

pub use vfs::file::ANON_DEV;
use vfs::file::anon_stat;

/// `ioctl(FIONREAD)`, also called `TIOCINQ` and `SIOCINQ`.
const FIONREAD: u32 = 0x541B;

#[cfg(test)]
mod testing {
    use std::sync::Arc;
    use vfs::file::{BufSink, BufSource};
    use vfs::{Credentials, File, FileOps};
    use wait::{Blocker, Parker};

    pub fn file(ops: Arc<dyn FileOps>, flags: u32) -> Arc<File> {
        File::new(ops, flags, None, Arc::new(Credentials::root()))
    }
    pub fn write(f: &File, b: &[u8]) -> abi::Result<usize> {
        f.write(&mut BufSource::new(b))
    }
    pub fn read(f: &File, n: usize) -> abi::Result<Vec<u8>> {
        let mut v = vec![0; n];
        let n = f.read(&mut BufSink::new(&mut v))?;
        v.truncate(n);
        Ok(v)
    }
    pub struct Me(pub Arc<Parker>);
    impl Me {
        pub fn new() -> Me {
            Me(Arc::new(Parker::new()))
        }
    }
    impl Blocker for Me {
        fn parker(&self) -> &Arc<Parker> {
            &self.0
        }
        fn interrupted(&self) -> bool {
            false
        }
    }
}
