//! Host descriptors of a file: for data, and for attributes.

use super::GoferInode;
use abi::Result;
use gofer::proto::Access;
use hostcall::HostFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Uses after which a shared file's attributes are worth a descriptor.
const HOT: u32 = 2;
/// The Gofer gives no such descriptor.
const NEVER: u32 = u32::MAX;

/// A descriptor for attributes alone.
#[derive(Clone)]
pub(super) struct Look {
    pub(super) fd: Arc<HostFd>,
    /// Each change that is seen has a change time of its own ([`gofer::proto::Reply::Opened`]).
    pub(super) fine: bool,
}

/// Host descriptors of a file.
#[derive(Clone, Default)]
pub(super) struct Fds {
    read: Option<Arc<HostFd>>,
    /// For reading and writing.
    pub(super) write: Option<Arc<HostFd>>,
    /// For attributes alone.
    pub(super) look: Option<Look>,
    /// The inode is in the ring of [`Kept`](crate::Kept).
    pub(super) ringed: bool,
}

impl GoferInode {
    /// Whether a descriptor was used since this was last asked.
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
    /// Gives up descriptors that are only kept in case they are needed again.
    pub(crate) fn drop_fds(&self) {
        let _old = std::mem::take(&mut *self.fds.lock());
        self.forget_known();
    }
    /// A descriptor for reading. On a shared mount that is never one for writing, too: see
    /// [`GoferInode::write_fd`].
    pub(crate) fn read_fd(&self) -> Result<Arc<HostFd>> {
        let made = {
            let mut f = self.fds.lock();
            let write = f.write.as_ref().filter(|_| self.fs.exclusive());
            if let Some(fd) = f.read.as_ref().or(write) {
                self.used.store(true, Ordering::Relaxed);
                return Ok(fd.clone());
            }
            // That of a file just made, which nobody opens for writing.
            let unused = self.writers.load(Ordering::SeqCst) == 0;
            unused.then(|| f.write.take()).flatten()
        };
        let fd = match self.fs.client.open(self.handle, Access::Read) {
            Ok((fd, ..)) => Arc::new(fd),
            // Made so that even its owner may not open it: its maker may read it.
            Err(e) => return made.ok_or(e),
        };
        self.keep(|fds| fds.read = Some(fd.clone()));
        Ok(fd)
    }
    /// A descriptor for reading that came with a walk.
    pub(super) fn donated(&self, fd: HostFd) {
        let fd = Arc::new(fd);
        self.keep(|fds| {
            fds.read.get_or_insert(fd);
        });
    }
    /// A descriptor for reading and writing. On a shared mount it is kept only while a file is
    /// open for writing: the host runs no program that somebody can write to (`ETXTBSY`).
    pub(crate) fn write_fd(&self) -> Result<Arc<HostFd>> {
        if let Some(fd) = &self.fds.lock().write {
            self.used.store(true, Ordering::Relaxed);
            return Ok(fd.clone());
        }
        let fd = Arc::new(self.fs.client.open(self.handle, Access::ReadWrite)?.0);
        self.keep(|fds| {
            if self.fs.exclusive() || self.writers.load(Ordering::SeqCst) > 0 {
                fds.write = Some(fd.clone());
            }
        });
        Ok(fd)
    }
    /// A file is opened for writing; until [`GoferInode::writer_left`].
    pub(super) fn writer_came(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
    }
    /// It is closed: the caller has let go of its descriptor.
    pub(crate) fn writer_left(&self) {
        if self.writers.fetch_sub(1, Ordering::SeqCst) > 1 || self.fs.exclusive() {
            return;
        }
        let mut fds = self.fds.lock();
        // Another may have come meanwhile, and has or will have one of its own.
        if self.writers.load(Ordering::SeqCst) == 0 {
            let old = fds.write.take();
            drop(fds);
            drop(old);
        }
    }
    /// Stores a descriptor; if it is the first, this inode is one of those that hold some.
    pub(super) fn keep(&self, store: impl FnOnce(&mut Fds)) {
        let (old, first) = {
            let mut fds = self.fds.lock();
            let old = fds.clone();
            store(&mut fds);
            (old, !std::mem::replace(&mut fds.ringed, true))
        };
        drop(old);
        if first && let Some(me) = self.me.upgrade() {
            self.fs.options.kept.add(&me);
        }
    }
    pub(super) fn any_fd(&self) -> Option<Arc<HostFd>> {
        let f = self.fds.lock();
        let look = f.look.as_ref().map(|l| &l.fd);
        f.write.as_ref().or(f.read.as_ref()).or(look).cloned()
    }
    /// A descriptor for attributes, of a shared file that was used before.
    pub(super) fn look(&self) -> Option<Look> {
        if self.fs.exclusive() {
            return None;
        }
        if let Some(look) = &self.fds.lock().look {
            self.used.store(true, Ordering::Relaxed);
            return Some(look.clone());
        }
        match self.asked.load(Ordering::Relaxed) {
            NEVER => return None,
            n if n < HOT => {
                self.asked.store(n + 1, Ordering::Relaxed);
                return None;
            }
            _ => {}
        }
        let Ok((fd, fine)) = self.fs.client.open(self.handle, Access::Look) else {
            self.asked.store(NEVER, Ordering::Relaxed);
            return None;
        };
        let fd = Arc::new(fd);
        let look = Look { fd, fine };
        self.keep(|fds| fds.look = Some(look.clone()));
        Some(look)
    }
}
