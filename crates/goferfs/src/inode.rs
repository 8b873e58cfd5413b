//! Inodes over the Gofer.

mod attributes;
mod descriptors;
mod directory;
mod known;
mod order;

use crate::locks::AttrLock;
use crate::open::{HostMappable, OpenHostDir, OpenHostFile};
use crate::{GoferFs, Listed};
use abi::Result;
use abi::errno::{EINVAL, EIO, ENODATA, ENOENT, EXDEV};
use attributes::Cached;
use clas::MappingRegistry;
use descriptors::Fds;
use gofer::proto::{Attr, Entry};
use gofer::wire::MAX_NAMES;
use gofer::{Handle, WalkPurpose, Walked};
pub(crate) use known::Version;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::acl::{Acl, acl_permission};
use vfs::file::{FileOps, O_ACCMODE, O_RDONLY};
use vfs::inode::{InodeExt, Looked, NextNames, ReadAhead, Seen, downcast};
use vfs::mode::Want;
use vfs::ucounts::{Charge, Ucounts};
use vfs::{Caller, FileType, Inode, NewNode, Perm, RenameFlags, SetAttr, Stat};

/// Bytes: a shorter file is freed within a request of somebody else, which its handle rides on.
const LONG: u64 = 1 << 20;

/// A file of the host.
pub struct GoferInode {
    me: Weak<GoferInode>,
    pub(crate) fs: Arc<GoferFs>,
    pub(crate) handle: Handle,
    kind: FileType,
    /// As on the host, with the device of the host.
    key: (u64, u64),
    dev: u64,
    cached: Mutex<Cached>,
    /// Where a symbolic link leads; it never changes.
    target: Option<Vec<u8>>,
    fds: Mutex<Fds>,
    /// The names of a directory, in exclusive mode.
    listing: Mutex<Option<(Arc<[Entry]>, Listed)>>,
    /// The same, for a name's siblings.
    order: Mutex<order::Order>,
    /// In shared mode.
    known: Mutex<known::Known>,
    /// Whether a descriptor was used since the ring of [`Kept`](crate::Kept) last looked.
    used: AtomicBool,
    /// How often it was asked for something that a descriptor would tell, up to
    /// [`HOT`](descriptors::HOT); or [`NEVER`](descriptors::NEVER).
    asked: AtomicU32,
    /// Files of it that are open for writing.
    writers: AtomicU32,
    /// The ACL that it had at a change time; `None` in it where it turned out to have none.
    acl: Mutex<Option<(i64, Option<Arc<Acl>>)>>,
    /// Held by writes and changes of size. The length, where it is known and nobody else changes
    /// it.
    pub(crate) write_lock: Mutex<Option<u64>>,
    pub(crate) mappings: MappingRegistry,
    pub(crate) mappable: Mutex<Weak<HostMappable>>,
    /// Mapped writable and shared: the application changes it without a call.
    pub(crate) mapped_writable: AtomicBool,
    /// It has grown to [`LONG`] or more since its size was asked for.
    long: AtomicBool,
    /// Made with the first change of attributes.
    attr_lock: OnceLock<AttrLock>,
    ext: InodeExt,
    /// For its handle: of the user that looked it up first.
    charge: Charge,
}

impl GoferInode {
    pub(crate) fn new(
        fs: &Arc<GoferFs>,
        attr: Attr,
        handle: Handle,
        target: Option<Vec<u8>>,
        charge: Charge,
    ) -> Arc<GoferInode> {
        fs.options.kept.handles.live.fetch_add(1, Ordering::Relaxed);
        Arc::new_cyclic(|me| GoferInode {
            me: me.clone(),
            fs: fs.clone(),
            handle,
            kind: FileType::from_mode(attr.stat.mode).unwrap_or(FileType::Regular),
            key: (attr.stat.dev, attr.stat.ino),
            dev: fs.map_dev(attr.stat.dev),
            cached: Mutex::new(Cached {
                attr: fs.seen(attr),
                stale: false,
                ids: (attr.stat.uid, attr.stat.gid),
                changes: 0,
            }),
            target,
            fds: Mutex::default(),
            listing: Mutex::default(),
            order: Mutex::default(),
            known: Mutex::default(),
            used: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            write_lock: Mutex::default(),
            mappings: MappingRegistry::new(),
            mappable: Mutex::default(),
            mapped_writable: AtomicBool::new(false),
            long: AtomicBool::new(false),
            writers: AtomicU32::new(0),
            acl: Mutex::default(),
            attr_lock: OnceLock::new(),
            ext: InodeExt::default(),
            charge,
        })
    }
    pub(crate) fn is_type(&self, mode: u32) -> bool {
        FileType::from_mode(mode) == Some(self.kind)
    }
    /// Bytes were written, or made room for, up to `end`.
    pub(crate) fn grew(&self, end: u64) {
        if end >= LONG && !self.long.load(Ordering::Relaxed) {
            self.long.store(true, Ordering::Relaxed);
        }
    }
    /// Whether the host may have much to free when this inode's handle is given back: it was
    /// removed, and is long.
    fn ends_slowly(&mut self) -> bool {
        let c = self.cached.get_mut();
        let removed = c.stale || c.attr.stat.nlink == 0;
        removed
            && self.kind == FileType::Regular
            && (*self.long.get_mut() || c.attr.stat.size >= LONG)
    }

    /// The names that a walk asks for: `name`, and what follows it in a path, where nobody else
    /// changes what is there.
    fn names_ahead(&self, name: &[u8], rest: &[u8]) -> Vec<Vec<u8>> {
        let mut names = vec![name.to_vec()];
        if self.fs.exclusive() {
            let more = rest
                .split(|b| *b == b'/')
                .filter(|n| !n.is_empty() && *n != b".");
            names.extend(
                more.take_while(|n| *n != b".." && n.len() <= vfs::NAME_MAX)
                    .take(MAX_NAMES - 1)
                    .map(<[u8]>::to_vec),
            );
        }
        names
    }
}

fn own(i: &Arc<dyn Inode>) -> Result<&GoferInode> {
    downcast(i).ok_or(EXDEV)
}

impl Inode for GoferInode {
    fn file_type(&self) -> FileType {
        self.kind
    }
    fn ext(&self) -> &InodeExt {
        &self.ext
    }
    fn host_user(&self) -> Option<Arc<Ucounts>> {
        Some(self.charge.user().clone())
    }
    fn lock_attributes(&self) -> MutexGuard<'_, ()> {
        self.attr_lock.get_or_init(|| AttrLock::of(self.key)).lock()
    }
    fn perm(&self) -> Result<Perm> {
        let c = self.cached.lock();
        let (attr, stale) = (c.attr, c.stale);
        drop(c);
        // Without a descriptor the walk has just asked for them (but for its start: a mount's
        // root, a working directory).
        let a = if !self.fs.exclusive() && (stale || self.any_fd().is_some()) {
            self.attrs()?
        } else {
            attr
        };
        Ok(a.stat.perm())
    }
    fn acl(&self) -> Option<Arc<Acl>> {
        let a = self.cached.lock().attr;
        if a.acl == Some(false) || self.kind == FileType::Symlink {
            return None;
        }
        if let Some((ctime, acl)) = &*self.acl.lock()
            && *ctime == a.stat.ctime
        {
            return acl.clone();
        }
        let acl = self.fetch_acl();
        *self.acl.lock() = Some((a.stat.ctime, acl.clone()));
        acl
    }
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            dev: self.dev,
            ..self.attrs()?.stat
        })
    }
    /// fstat(2) takes no lock of the host's inode: it may see the new owner of a chown(2) that has
    /// not yet taken the set-id bits away, or the mode of before with the owner of after. Two
    /// looks are equal and wrong, too, where the one who changes is stopped between them (measured
    /// on ext4: 153 of 635000, one look 3569 of 1883000). With a call between them that waits for
    /// that one, equal looks, change time included, were never wrong (of 434000, and of 639000 on
    /// tmpfs), but for once in months of tests. A change that finds its time already there leaves
    /// it (`inode_set_ctime_current`), even where a look has asked for the time in between: two
    /// such looks may be equal, three are not.
    fn stat_at_once(&self) -> Result<Stat> {
        /// A program that changes a file as often gets no set-id program from it.
        const TRIES: u32 = 8;
        /// Looks that tell the same as the one before.
        const EQUAL: u32 = 2;
        let set_id = abi::linux::S_ISUID | abi::linux::S_ISGID;
        let mut seen = self.stat()?;
        if self.fs.exclusive() || seen.mode & set_id == 0 {
            return Ok(seen);
        }
        let fd = self.read_fd()?;
        let mut equal = 0;
        for _ in 0..TRIES {
            hostcall::file::await_changes(fd.raw());
            let again = self.stat()?;
            let what = |s: &Stat| (s.uid, s.gid, s.mode, s.ctime);
            equal = if what(&again) == what(&seen) {
                equal + 1
            } else {
                0
            };
            seen = again;
            if equal == EQUAL {
                return Ok(seen);
            }
        }
        seen.mode &= !set_id;
        Ok(seen)
    }

    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(self
            .lookup_read_ahead(cx, name, NextNames::default())?
            .inode)
    }
    fn lookup_read_ahead(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        next: NextNames<'_>,
    ) -> Result<Looked> {
        let version = self.version();
        if let Some(v) = version
            && matches!(self.known(v, name), Some(None))
        {
            return Err(ENOENT);
        }
        let names = self.names_ahead(name, next.rest);
        let all = next.rest.split(|b| *b == b'/').filter(|n| !n.is_empty());
        let then = if next.reads && all.count() + 1 == names.len() {
            WalkPurpose::Read
        } else {
            WalkPurpose::Nothing
        };
        self.fs.may_hold(cx)?;
        let since = self.fs.changes.load(Ordering::Relaxed);
        let alone = next.rest.is_empty() && self.fs.exclusive() && next.siblings > 0;
        let others = if alone {
            self.sibling_names(name, next.siblings.min(MAX_NAMES))
        } else {
            Vec::new()
        };
        let walked = self
            .fs
            .client
            .walk(self.handle, names.clone(), others.clone(), then)?;
        let Walked {
            steps,
            stopped,
            siblings,
            mut fd,
        } = walked;
        let mut names = names.into_iter();
        let mut found: Vec<ReadAhead> = Vec::new();
        let last = steps.len();
        for (i, s) in steps.into_iter().enumerate() {
            let Some(name) = names.next() else { break };
            let inode = self.fs.inode(s.attr, s.handle, s.target, since, cx.cred);
            if i + 1 == last
                && inode.kind == FileType::Regular
                && let Some(fd) = fd.take()
            {
                inode.donated(fd);
            }
            self.asked_for(version, &name, Some(&inode));
            found.push((name, Some(inode)));
        }
        if stopped == Some(ENOENT)
            && let Some(missing) = names.next()
        {
            self.asked_for(version, &missing, None);
            found.push((missing, None));
        }
        let siblings = others.into_iter().zip(siblings).filter_map(|(name, s)| {
            let s = s?;
            let inode: Arc<dyn Inode> = self.fs.inode(s.attr, s.handle, s.target, since, cx.cred);
            Some((name, inode))
        });
        let siblings = siblings.collect();
        let mut found = found.into_iter();
        match found.next() {
            Some((_, Some(inode))) => Ok(Looked {
                inode,
                read_ahead: found.collect(),
                siblings,
            }),
            _ => Err(stopped.unwrap_or(EIO)),
        }
    }
    fn revalidate(&self, cx: &Caller<'_>, name: &[u8], child: Option<&Arc<dyn Inode>>) -> bool {
        let child = child.and_then(downcast::<GoferInode>);
        let version = self.version();
        let same = |v| self.seen_at(v, name, child) == Seen::Same;
        version.is_some_and(same) || self.ask_again(cx, version, name, child)
    }
    fn peek(&self, name: &[u8], child: Option<&Arc<dyn Inode>>) -> Seen {
        let child = child.and_then(downcast::<GoferInode>);
        self.version()
            .map_or(Seen::Unknown, |v| self.seen_at(v, name, child))
    }
    fn search(&self, cx: &Caller<'_>, name: &[u8], child: Option<&Arc<dyn Inode>>) -> Result<Seen> {
        // One look at the directory tells its permissions and its version.
        let now = self.look_now();
        match &now {
            Some((a, _)) => {
                let acl = || self.acl();
                acl_permission(a.stat.perm(), self.kind, cx.cred, Want::EXEC, acl)?;
            }
            None => self.permission(cx, Want::EXEC)?,
        }
        let version = now.and_then(|(_, v)| v);
        let child = child.and_then(downcast::<GoferInode>);
        let seen = version.map_or(Seen::Unknown, |v| self.seen_at(v, name, child));
        if seen == Seen::Unknown && child.is_some() && self.ask_again(cx, version, name, child) {
            return Ok(Seen::Same);
        }
        Ok(seen)
    }

    fn create(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.fs.may_hold(cx)?;
        let new = self.new_ids(new, 0)?;
        let also = self.also(name);
        let (node, fd) = self.fs.client.create(self.with(&also), name, new)?;
        let inode = self.made(cx, name, node, None, &also);
        inode.keep(|fds| fds.write = Some(Arc::new(fd)));
        Ok(inode)
    }
    fn tmpfile(&self, cx: &Caller<'_>, new: NewNode) -> Result<Arc<dyn Inode>> {
        self.fs.may_hold(cx)?;
        let (node, fd) = self.fs.client.tmpfile(self.handle, self.new_ids(new, 0)?)?;
        let since = self.fs.changes.load(Ordering::Relaxed);
        let inode = self.fs.inode(node.attr, node.handle, None, since, cx.cred);
        inode.keep(|fds| fds.write = Some(Arc::new(fd)));
        Ok(inode)
    }
    fn mkdir(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.fs.may_hold(cx)?;
        let (new, also) = (self.new_ids(new, 0)?, self.also(name));
        let node = self.fs.client.mkdir(self.with(&also), name, new)?;
        Ok(self.made(cx, name, node, None, &also))
    }
    fn mknod(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        _: u64,
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        self.fs.may_hold(cx)?;
        let (new, also) = (self.new_ids(new, kind.bits())?, self.also(name));
        let node = self.fs.client.mknod(self.with(&also), name, new)?;
        Ok(self.made(cx, name, node, None, &also))
    }
    fn symlink(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        target: &[u8],
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        self.fs.may_hold(cx)?;
        let (new, also) = (self.new_ids(new, 0)?, self.also(name));
        let client = &self.fs.client;
        let node = client.symlink(self.with(&also), name, target, new)?;
        Ok(self.made(cx, name, node, Some(target.to_vec()), &also))
    }
    fn link(&self, _: &Caller<'_>, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let t = own(target)?;
        let also = self.also(name);
        let seen = self.fs.client.link(t.handle, self.with(&also), name)?;
        t.changed();
        self.names_changed();
        self.told(seen, name, &also);
        Ok(())
    }
    fn unlink(&self, _: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        let also = self.also(name);
        let seen = self.fs.client.unlink(self.with(&also), name)?;
        self.removed(name, child, seen, &also)
    }
    fn rmdir(&self, _: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        let also = self.also(name);
        let seen = self.fs.client.rmdir(self.with(&also), name)?;
        self.removed(name, child, seen, &also)
    }
    fn rename(
        &self,
        _: &Caller<'_>,
        name: &[u8],
        child: &Arc<dyn Inode>,
        new_dir: &Arc<dyn Inode>,
        new_name: &[u8],
        target: Option<&Arc<dyn Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(EINVAL);
        }
        let to = own(new_dir)?;
        let client = &self.fs.client;
        let also = to.also(new_name);
        let (seen, old) =
            client.rename(self.handle, name, to.with(&also), new_name, flags.bits())?;
        own(child)?.changed();
        if let Some(t) = target {
            own(t)?.changed();
        }
        self.names_changed();
        to.names_changed();
        self.told(old, name, &[]);
        to.told(seen, new_name, &also);
        Ok(())
    }

    fn readlink(&self, _: &Caller<'_>) -> Result<Vec<u8>> {
        match &self.target {
            Some(t) => Ok(t.clone()),
            None if self.kind == FileType::Symlink => self.fs.client.readlink(self.handle),
            None => Err(EINVAL),
        }
    }
    fn open(self: Arc<Self>, _: &Caller<'_>, flags: u32) -> Result<Arc<dyn FileOps>> {
        if self.kind == FileType::Directory {
            return Ok(Arc::new(OpenHostDir::new(self)));
        }
        let writes = flags & O_ACCMODE != O_RDONLY;
        let fd = if writes {
            self.writer_came();
            self.write_fd().inspect_err(|_| self.writer_left())?
        } else {
            self.read_fd()?
        };
        Ok(Arc::new(OpenHostFile {
            inode: self,
            fd: Some(fd),
            writes,
        }))
    }
    fn set_attr(&self, _: &Caller<'_>, a: &SetAttr) -> Result<()> {
        let before = match a.seen.filter(|_| !self.fs.exclusive()) {
            Some(seen) => Some(self.before(seen)?),
            None => None,
        };
        if let Some(size) = a.size {
            self.resize(size)?;
        }
        let host = SetAttr {
            uid: a.uid.map(|u| self.fs.host_uid(u)).transpose()?,
            gid: a.gid.map(|g| self.fs.host_gid(g)).transpose()?,
            size: None,
            seen: None,
            ..*a
        };
        if host != SetAttr::default() {
            let host = SetAttr {
                seen: before,
                ..host
            };
            let since = self.fs.changes.load(Ordering::Relaxed);
            match self.fs.client.set_attr(self.handle, host) {
                Ok(new) => self.set_changed(new, since),
                Err(e) => {
                    // Some of it may have been done.
                    self.changed();
                    return Err(e);
                }
            }
        }
        Ok(())
    }
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if !matches!(self.kind, FileType::Regular | FileType::Directory) {
            return Err(ENODATA);
        }
        self.fs.client.get_xattr(self.handle, name)
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let r = self.fs.client.set_xattr(self.handle, name, value, flags);
        self.changed();
        r
    }
    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        let r = self.fs.client.remove_xattr(self.handle, name);
        self.changed();
        r
    }
    fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        self.fs.client.list_xattr(self.handle)
    }
}

impl Drop for GoferInode {
    fn drop(&mut self) {
        self.fs
            .options
            .kept
            .handles
            .live
            .fetch_sub(1, Ordering::Relaxed);
        self.forget_known();
        if self.fds.get_mut().ringed {
            self.fs.options.kept.end();
        }
        {
            let mut inodes = self.fs.inodes.lock();
            // A younger inode of the same number may have taken the place.
            if inodes.get(&self.key).is_some_and(|w| w.strong_count() == 0) {
                inodes.remove(&self.key);
            }
        }
        if self.ends_slowly() {
            // Before our own descriptors: the holder of the last one frees it, this thread where it
            // can be.
            self.fs.client.close_now(self.handle);
        } else {
            self.fs.client.close(self.handle);
        }
    }
}
