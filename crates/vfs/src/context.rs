//! From where somebody asks: what every path operation needs to know besides its [`Caller`].

use crate::caller::Caller;
use crate::cred::Credentials;
use crate::fd_table::FdTable;
use crate::file::File;
use crate::mount::Path;
use crate::namespace::{MountNamespace, Standpoint};
use crate::userns::{NsId, UserNs};
use crate::vfs::Vfs;
use abi::Result;
use abi::errno::{EBADF, ENOTDIR};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use wait::Blocker;

/// The root, the working directory and the umask: Linux's `fs_struct`, shared with `CLONE_FS`.
pub struct FsContext {
    places: RwLock<(Path, Path)>,
    umask: AtomicU32,
    ns: RwLock<Arc<MountNamespace>>,
    in_exec: AtomicBool,
}

impl FsContext {
    /// A context at the root of `ns`, umask 022.
    #[must_use]
    pub fn new(ns: &Arc<MountNamespace>) -> Arc<FsContext> {
        let root = ns.root();
        let cx = Arc::new(FsContext {
            places: RwLock::new((root.clone(), root)),
            umask: AtomicU32::new(0o022),
            ns: RwLock::new(ns.clone()),
            in_exec: AtomicBool::new(false),
        });
        cx.register(ns);
        cx
    }
    /// A copy of its own, for fork(2) without `CLONE_FS`.
    #[must_use]
    pub fn fork(&self) -> Arc<FsContext> {
        let cx = Arc::new(FsContext {
            places: RwLock::new(self.places.read().clone()),
            umask: AtomicU32::new(self.umask()),
            ns: RwLock::new(self.ns()),
            in_exec: AtomicBool::new(false),
        });
        cx.register(&self.ns());
        cx
    }
    /// Whether a program with more rights is about to run with it: nobody may begin to share it.
    #[must_use]
    pub fn in_exec(&self) -> bool {
        self.in_exec.load(Ordering::SeqCst)
    }
    pub fn begin_exec(&self) {
        self.in_exec.store(true, Ordering::SeqCst);
    }
    pub fn end_exec(&self) {
        self.in_exec.store(false, Ordering::SeqCst);
    }
    #[must_use]
    pub fn root(&self) -> Path {
        self.places.read().0.clone()
    }
    #[must_use]
    pub fn cwd(&self) -> Path {
        self.places.read().1.clone()
    }
    pub fn set_root(&self, p: Path) {
        // The old one is dropped after the lock.
        let _old = std::mem::replace(&mut self.places.write().0, p);
    }
    pub fn set_cwd(&self, p: Path) {
        let _old = std::mem::replace(&mut self.places.write().1, p);
    }
    #[must_use]
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }
    /// `umask(2)`: gives the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }
    #[must_use]
    pub fn ns(&self) -> Arc<MountNamespace> {
        self.ns.read().clone()
    }
    /// `unshare(CLONE_NEWNS)`, and clone(2) with it: moves this context to a copy of its namespace
    /// that `user` owns.
    pub fn unshare_ns(&self, ns: NsId, user: &UserNs) -> Result<()> {
        let (ns, map) = self.ns().copy(ns, user)?;
        let translate = |p: &Path| Path {
            mnt: map.get(&p.mnt.id).cloned().unwrap_or_else(|| p.mnt.clone()),
            dentry: p.dentry.clone(),
        };
        let mut places = self.places.write();
        *places = (translate(&places.0), translate(&places.1));
        drop(places);
        *self.ns.write() = ns;
        Ok(())
    }
    /// `setns(2)` to a mount namespace: root and working directory become its root.
    pub fn set_ns(&self, ns: &Arc<MountNamespace>) {
        let root = ns.root();
        *self.places.write() = (root.clone(), root);
        *self.ns.write() = ns.clone();
    }
    fn register(self: &Arc<Self>, ns: &MountNamespace) {
        let weak = Arc::downgrade(self);
        ns.registry().register_standpoint(weak);
    }
}

impl Standpoint for FsContext {
    fn replace(&self, old: &Path, new: &Path) {
        let mut p = self.places.write();
        if p.0 == *old {
            p.0 = new.clone();
        }
        if p.1 == *old {
            p.1 = new.clone();
        }
    }
}

/// Where a relative path name starts.
#[derive(Clone)]
pub enum At {
    /// The working directory (`AT_FDCWD`).
    Cwd,
    /// An open file; a directory, where a name follows.
    File(Arc<File>),
}

impl At {
    /// From a system call's `dirfd`. An absolute `path` does not look at it, as Linux does not.
    pub fn new(fds: &FdTable, dirfd: i32, path: &[u8]) -> Result<At> {
        if dirfd == abi::linux::AT_FDCWD || path.first() == Some(&b'/') {
            return Ok(At::Cwd);
        }
        Ok(At::File(fds.get(dirfd)?))
    }
    /// As [`At::new`] for `openat2(2)`'s scoped look-ups, where an absolute path too starts at
    /// `dirfd`.
    pub fn scoped(fds: &FdTable, dirfd: i32) -> Result<At> {
        if dirfd == abi::linux::AT_FDCWD {
            Ok(At::Cwd)
        } else {
            Ok(At::File(fds.get(dirfd)?))
        }
    }
    /// The place; `ENOTDIR` for files without one.
    pub(crate) fn path(&self, fs: &FsContext) -> Result<Path> {
        match self {
            At::Cwd => Ok(fs.cwd()),
            At::File(f) => f.path.clone().ok_or(ENOTDIR),
        }
    }
    /// The open file itself, for `AT_EMPTY_PATH`.
    pub fn file(&self) -> Result<&Arc<File>> {
        match self {
            At::File(f) => Ok(f),
            At::Cwd => Err(EBADF),
        }
    }
}

/// What path operations run with; their methods are in [`crate::ops`] and [`crate::walk`].
#[derive(Clone, Copy)]
pub struct PathCx<'a> {
    pub vfs: &'a Arc<Vfs>,
    pub fs: &'a FsContext,
    pub caller: Caller<'a>,
    /// For what can block: opening a FIFO, waiting for a lock.
    pub blocker: &'a dyn Blocker,
}

impl<'a> PathCx<'a> {
    #[must_use]
    pub fn cred(&self) -> &'a Arc<Credentials> {
        self.caller.cred
    }
}
