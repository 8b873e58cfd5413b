//! What a file system implements: [`Inode`], one object a file.
//!
//! The VFS calls these methods after it has checked names, types, permissions, mounts and sticky
//! bits, and with the directory's lock held for everything that changes or looks up names. A file
//! system checks only what it alone knows (space, quotas, what its host says).

use crate::acl::{Acl, acl_permission};
use crate::attachments::Attachments;
use crate::caller::Caller;
use crate::file::FileOps;
use crate::locks::FileLocks;
use crate::mode::{FileType, Want};
use crate::{Dentry, Path};
use abi::Result;
use abi::attr::Stat;
pub use abi::attr::{NewNode, Perm, SetAttr};
use abi::errno::{EACCES, EINVAL, ENODATA, ENOTDIR, ENOTTY, EOPNOTSUPP, EPERM, ETXTBSY};
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

bitflags::bitflags! {
    /// `renameat2(2)`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct RenameFlags: u32 {
        const NOREPLACE = 1;
        const EXCHANGE = 2;
        const WHITEOUT = 4;
    }
}

bitflags::bitflags! {
    /// What chattr(1) sets, as `FS_IOC_GETFLAGS` numbers it: as much as tmpfs has.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FileFlags: u32 {
        /// Neither it nor its names can be changed.
        const IMMUTABLE = 0x10;
        /// Bytes can only be added to it; names, only made in it.
        const APPEND = 0x20;
        const NODUMP = 0x40;
        const NOATIME = 0x80;
        /// What a new file has of its directory's.
        const INHERITED = 0x40 | 0x80;
    }
}

/// Where a symbolic link leads.
pub enum Follow {
    /// A path name, walked from the link's directory.
    Target(Vec<u8>),
    /// A magic link: a place of its own, whatever its name (`/proc/PID/fd/N`).
    Jump(Path),
}

/// What was made to be opened, and what it was opened as, if making did that.
pub type Opened = (Arc<dyn Inode>, Option<Arc<dyn FileOps>>);

/// A name that was read ahead; `None` for a missing one.
pub type ReadAhead = (Vec<u8>, Option<Arc<dyn Inode>>);

/// What a look-up found, and what it found on the way further down: each name is in the directory
/// before it; `None` is a missing one, and the last.
pub struct Looked {
    pub inode: Arc<dyn Inode>,
    pub read_ahead: Vec<ReadAhead>,
    /// Other names of the same directory.
    pub siblings: Vec<(Vec<u8>, Arc<dyn Inode>)>,
}

/// What a walk will want after a name: a file system whose questions are dear may read ahead.
#[derive(Clone, Copy, Default)]
pub struct NextNames<'a> {
    /// Path text.
    pub rest: &'a [u8],
    /// The file at the end of `rest` is to be opened for reading.
    pub reads: bool,
    /// How many other names of the directory may be looked up on the way.
    pub siblings: usize,
}

/// What a directory knows of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It still is the file that it was.
    Same,
    /// There is none.
    Missing,
    Unknown,
}

/// A file of a file system.
pub trait Inode: Any + Send + Sync {
    /// Its type, which never changes.
    fn file_type(&self) -> FileType;
    /// What `stat(2)` tells.
    fn stat(&self) -> Result<Stat>;
    /// What the VFS keeps at every inode.
    fn ext(&self) -> &InodeExt;
    /// Somebody opens or watches it by this name. For files that change by other means than the
    /// VFS's.
    fn is_used_at(&self, _d: &Arc<Dentry>) {}
    /// The user charged for the descriptor of the host that it holds; `None` where it holds none
    /// ([`crate::ucounts::Kind::HostFiles`]).
    fn host_user(&self) -> Option<Arc<crate::ucounts::Ucounts>> {
        None
    }
    /// Held from the look at owner and mode by which a change of them is decided until it is done
    /// (`inode_lock` around `notify_change`). The same one for all inodes that are one file.
    fn lock_attributes(&self) -> MutexGuard<'_, ()> {
        self.ext().attributes.lock()
    }
    /// As [`Inode::stat`], with owner and mode as they were at one moment: for set-id bits. With
    /// the lock of [`Inode::lock_attributes`] held.
    fn stat_at_once(&self) -> Result<Stat> {
        self.stat()
    }
    /// Whether it has lost all its names.
    fn is_nameless(&self) -> Result<bool> {
        Ok(self.stat()?.nlink == 0)
    }
    /// Owner and mode, asked at each step of a walk: cheap.
    fn perm(&self) -> Result<Perm> {
        Ok(self.stat()?.perm())
    }
    /// Whether the caller may do `want`. The default is Linux's `generic_permission`.
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        let acl = || self.acl();
        acl_permission(self.perm()?, self.file_type(), cx.cred, want, acl)
    }
    /// As [`Inode::permission`], where access(2), chdir(2) or chroot(2) ask (`MAY_ACCESS`,
    /// `MAY_CHDIR`).
    fn access(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        self.permission(cx, want)
    }
    /// As [`Inode::stat`], as far as it is known: for lists of the kernel's, whose readers must not
    /// wait for who serves a file.
    fn known_stat(&self) -> Result<Stat> {
        self.stat()
    }
    /// Its POSIX ACL, if it has one that says more than the mode. Asked right after
    /// [`Inode::perm`].
    fn acl(&self) -> Option<Arc<Acl>> {
        None
    }

    /// Whether nothing can be mounted on it (`cant_mount`).
    fn takes_no_mounts(&self) -> bool {
        false
    }
    /// What a generated file says it stands for. Of a file of nsfs: the mount namespace's number,
    /// 0 for the other kinds.
    fn identity(&self) -> Option<u64> {
        None
    }

    // Directories

    /// Whether a directory is there only for something to be mounted on it, and hides nothing then.
    fn is_always_empty(&self) -> bool {
        false
    }
    /// The file of this name; `ENOENT` where there is none.
    fn lookup(&self, _cx: &Caller<'_>, _name: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(ENOTDIR)
    }
    /// As [`Inode::lookup`], where the walk goes on. What is read ahead is only cached.
    fn lookup_read_ahead(&self, cx: &Caller<'_>, name: &[u8], _: NextNames<'_>) -> Result<Looked> {
        Ok(Looked {
            inode: self.lookup(cx, name)?,
            read_ahead: Vec::new(),
            siblings: Vec::new(),
        })
    }
    /// Whether `name` still is `child` (`None`: still missing). Asked only where names are not
    /// owned.
    fn revalidate(&self, _cx: &Caller<'_>, _name: &[u8], _child: Option<&Arc<dyn Inode>>) -> bool {
        true
    }
    /// What is known of `name`, remembered as `child`, without asking anybody. Only where names are
    /// not owned.
    fn peek(&self, _name: &[u8], _child: Option<&Arc<dyn Inode>>) -> Seen {
        Seen::Unknown
    }
    /// A step of a walk where names are not owned: permission to search, and whether `name` still
    /// is `child` or is known to be missing. Both at once, since they may be one question to the
    /// host.
    fn search(&self, cx: &Caller<'_>, name: &[u8], child: Option<&Arc<dyn Inode>>) -> Result<Seen> {
        self.permission(cx, Want::EXEC)?;
        Ok(if child.is_some() && self.revalidate(cx, name, child) {
            Seen::Same
        } else {
            Seen::Unknown
        })
    }
    /// Makes a regular file.
    fn create(&self, _cx: &Caller<'_>, _name: &[u8], _new: NewNode) -> Result<Arc<dyn Inode>> {
        // As where the operation is missing (`lookup_open`).
        Err(EACCES)
    }
    fn mkdir(&self, _cx: &Caller<'_>, _name: &[u8], _new: NewNode) -> Result<Arc<dyn Inode>> {
        Err(EPERM)
    }
    /// Makes a device, FIFO or socket.
    fn mknod(
        &self,
        _cx: &Caller<'_>,
        _name: &[u8],
        _kind: FileType,
        _rdev: u64,
        _new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        Err(EPERM)
    }
    fn symlink(
        &self,
        _cx: &Caller<'_>,
        _name: &[u8],
        _target: &[u8],
        _new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        Err(EPERM)
    }
    /// A second name for `target`, which is of the same file system.
    fn link(&self, _cx: &Caller<'_>, _name: &[u8], _target: &Arc<dyn Inode>) -> Result<()> {
        Err(EPERM)
    }
    fn unlink(&self, _cx: &Caller<'_>, _name: &[u8], _child: &Arc<dyn Inode>) -> Result<()> {
        Err(EPERM)
    }
    /// `ENOTEMPTY` where it has entries.
    fn rmdir(&self, _cx: &Caller<'_>, _name: &[u8], _child: &Arc<dyn Inode>) -> Result<()> {
        Err(EPERM)
    }
    /// Moves `child` from `name` here to `new_name` in `new_dir`, over `target` if there is one.
    /// With EXCHANGE, `target` takes the old place. Types are checked; emptiness of `target` is
    /// not.
    #[allow(clippy::too_many_arguments)]
    fn rename(
        &self,
        _cx: &Caller<'_>,
        _name: &[u8],
        _child: &Arc<dyn Inode>,
        _new_dir: &Arc<dyn Inode>,
        _new_name: &[u8],
        _target: Option<&Arc<dyn Inode>>,
        _flags: RenameFlags,
    ) -> Result<()> {
        Err(EPERM)
    }
    /// Whether what is made in it gets its mode without what the umask takes: not where who serves
    /// it does that (`SB_POSIXACL`).
    fn takes_umask(&self) -> bool {
        true
    }
    /// A regular file without a name (`O_TMPFILE`).
    fn tmpfile(&self, _cx: &Caller<'_>, _new: NewNode) -> Result<Arc<dyn Inode>> {
        Err(EOPNOTSUPP)
    }
    /// As [`Inode::create`], for open(2) with these flags: it may have been opened by that.
    fn create_open(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        new: NewNode,
        _flags: u32,
    ) -> Result<Opened> {
        Ok((self.create(cx, name, new)?, None))
    }
    /// As [`Inode::tmpfile`], for open(2) with these flags.
    fn tmpfile_open(&self, cx: &Caller<'_>, new: NewNode, _flags: u32) -> Result<Opened> {
        Ok((self.tmpfile(cx, new)?, None))
    }
    /// Whether opening it with O_TRUNC truncates it; else that is done before.
    fn truncates_when_opened(&self) -> bool {
        false
    }

    // Links

    /// The text of a symbolic link.
    fn readlink(&self, _cx: &Caller<'_>) -> Result<Vec<u8>> {
        Err(EINVAL)
    }
    /// Where the link leads. A magic link may lead where its text does not.
    fn follow(&self, cx: &Caller<'_>) -> Result<Follow> {
        Ok(Follow::Target(self.readlink(cx)?))
    }

    // Everything

    /// Opens a regular file or a directory. Devices, FIFOs and sockets never come here. `flags` are
    /// the `O_*` flags, already checked.
    fn open(self: Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Arc<dyn FileOps>>;
    /// Whether who serves it decides who may change owner, mode and times, and not this kernel.
    fn decides_changes(&self) -> bool {
        false
    }
    /// Whether it has attributes of any name, not only of the known spaces.
    fn takes_any_xattr(&self) -> bool {
        false
    }
    fn set_attr(&self, _cx: &Caller<'_>, _attr: &SetAttr) -> Result<()> {
        Err(EPERM)
    }
    /// Whether it can have [`FileFlags`]; those that it has are [`InodeExt::flags`].
    fn has_flags(&self) -> bool {
        false
    }
    /// Sets them (`fileattr_set`).
    fn set_flags(&self, _: FileFlags) -> Result<()> {
        Err(ENOTTY)
    }
    /// Notes an access now, as the mount's rules allow (`touch_atime`).
    fn touch(&self) {}
    fn get_xattr(&self, _name: &[u8]) -> Result<Vec<u8>> {
        Err(EOPNOTSUPP)
    }
    /// `flags`: `XATTR_CREATE`, `XATTR_REPLACE`.
    fn set_xattr(&self, _name: &[u8], _value: &[u8], _flags: u32) -> Result<()> {
        Err(EOPNOTSUPP)
    }
    fn remove_xattr(&self, _name: &[u8]) -> Result<()> {
        Err(EOPNOTSUPP)
    }
    /// Drops the capabilities that the file gives a program, since what it runs has changed, or its
    /// owner (`cap_inode_killpriv`). Nothing to do where the host does it.
    fn forget_capabilities(&self) {}
    /// The names.
    fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
}

/// An inode as its own type.
pub fn downcast<T: Inode>(inode: &Arc<dyn Inode>) -> Option<&T> {
    let any: &dyn Any = &**inode;
    any.downcast_ref()
}

/// An inode as a counted reference to its own type.
#[must_use]
pub fn downcast_arc<T: Inode>(inode: &Arc<dyn Inode>) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = inode.clone();
    any.downcast().ok()
}

/// A place for an object that lives as long as its users: a FIFO's pipe, a socket bound to a name.
#[derive(Default)]
pub struct Slot(Mutex<Option<Weak<dyn Any + Send + Sync>>>);

impl Slot {
    /// The object, if one lives there and is a `T`.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.lock().as_ref()?.upgrade()?.downcast().ok()
    }
    /// The object, made by `make` if none lives there.
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        match self.try_get_or_make(|| Ok::<_, std::convert::Infallible>(make())) {
            Ok(t) => t,
            Err(never) => match never {},
        }
    }
    /// As above, where it may be that none can be made.
    pub fn try_get_or_make<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> core::result::Result<Arc<T>, E>,
    ) -> core::result::Result<Arc<T>, E> {
        let mut slot = self.0.lock();
        if let Some(live) = slot.as_ref().and_then(Weak::upgrade)
            && let Ok(t) = live.downcast()
        {
            return Ok(t);
        }
        let t = make()?;
        let any: Arc<dyn Any + Send + Sync> = t.clone();
        *slot = Some(Arc::downgrade(&any));
        Ok(t)
    }
    /// Puts an object there.
    pub fn set(&self, object: Weak<dyn Any + Send + Sync>) {
        *self.0.lock() = Some(object);
    }
    /// The object, whatever it is.
    #[must_use]
    pub fn any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.lock().as_ref()?.upgrade()
    }
}

/// What the VFS keeps at every inode.
#[derive(Default)]
pub struct InodeExt {
    /// See [`Inode::lock_attributes`].
    attributes: Mutex<()>,
    /// [`FileFlags`]; changed with that lock held.
    flags: AtomicU32,
    locks: OnceLock<Box<FileLocks>>,
    /// The pipe behind a FIFO.
    pub fifo: Slot,
    /// The socket bound to this name.
    pub socket: Slot,
    /// [`crate::watch::Watchers`], [`crate::leases::Leases`], and its place in [`crate::listed`].
    pub(crate) attachments: Attachments,
    /// Without a name, but one may be given (O_TMPFILE without O_EXCL).
    pub(crate) linkable: AtomicBool,
    /// Open for writing (positive), or running (negative): `i_writecount`.
    writers: AtomicI32,
    /// Open for reading only: `i_readcount`.
    readers: AtomicI32,
    /// How many leases there are (see [`crate::leases`]).
    pub(crate) leased: AtomicU32,
}

impl InodeExt {
    /// The flags that it has.
    #[must_use]
    pub fn flags(&self) -> FileFlags {
        FileFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }
    /// For a file system that has checked them.
    pub fn set_flags(&self, flags: FileFlags) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }
    /// The locks, made at first use.
    pub fn locks(&self) -> &FileLocks {
        self.locks.get_or_init(Box::default)
    }
    /// The locks, if there ever were any.
    #[must_use]
    pub fn existing_locks(&self) -> Option<&FileLocks> {
        self.locks.get().map(|b| &**b)
    }
    #[must_use]
    pub fn is_open_for_write(&self) -> bool {
        self.opens().0 > 0
    }
    /// How often it is open for writing (negative: it runs), and for reading only.
    pub(crate) fn opens(&self) -> (i32, i32) {
        let (w, r) = (&self.writers, &self.readers);
        (w.load(Ordering::SeqCst), r.load(Ordering::SeqCst))
    }
    /// Counts who opens it for reading only.
    pub(crate) fn get_read_access(&self) {
        self.readers.fetch_add(1, Ordering::SeqCst);
    }
    pub(crate) fn put_read_access(&self) {
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }
    /// Counts a writer; `ETXTBSY` while the file is being run.
    pub fn get_write_access(&self) -> Result<()> {
        self.writers
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
                (n >= 0).then_some(n + 1)
            })
            .map(|_| ())
            .map_err(|_| ETXTBSY)
    }
    pub fn put_write_access(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }
    /// Keeps writers out while the file runs; `ETXTBSY` while it is open for writing.
    pub fn deny_write_access(&self) -> Result<()> {
        self.writers
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
                (n <= 0).then_some(n - 1)
            })
            .map(|_| ())
            .map_err(|_| ETXTBSY)
    }
    pub fn allow_write_access(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }
}

/// Extended attributes in memory.
#[derive(Default, Clone)]
pub struct XattrMap(std::collections::BTreeMap<Vec<u8>, Vec<u8>>);

impl XattrMap {
    pub fn get(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.0.get(name).cloned().ok_or(ENODATA)
    }
    /// `limit` bounds names and values together, in bytes (`ENOSPC`).
    pub fn set(&mut self, name: &[u8], value: &[u8], flags: u32, limit: usize) -> Result<()> {
        let old = self.0.get(name);
        if flags & abi::linux::XATTR_CREATE != 0 && old.is_some() {
            return Err(abi::errno::EEXIST);
        }
        if flags & abi::linux::XATTR_REPLACE != 0 && old.is_none() {
            return Err(ENODATA);
        }
        let used: usize = self
            .0
            .iter()
            .filter(|(k, _)| *k != name)
            .map(|(k, v)| k.len() + v.len())
            .sum();
        if used + name.len() + value.len() > limit {
            return Err(abi::errno::ENOSPC);
        }
        self.0.insert(name.to_vec(), value.to_vec());
        Ok(())
    }
    /// Bytes of names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.iter().map(|(k, v)| k.len() + v.len()).sum()
    }
    pub fn remove(&mut self, name: &[u8]) -> Result<()> {
        self.0.remove(name).map(|_| ()).ok_or(ENODATA)
    }
    #[must_use]
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.0.keys().cloned().collect()
    }
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.0.contains_key(name)
    }
}
