//! Inodes of tmpfs.

use super::content::Content;
use super::open::{OpenDir, OpenFile};
use super::{Tmpfs, shm};
use crate::caller::Caller;
use crate::cred::Credentials;
use crate::file::FileOps;
use crate::inode::{
    FileFlags, Inode, InodeExt, NewNode, RenameFlags, SetAttr, XattrMap, downcast, downcast_arc,
};
use crate::mode::{FileType, Perm};
use crate::ucounts::{Charge, Kind};
use crate::{Stat, now};
use abi::errno::{
    EFBIG, EINVAL, EMLINK, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, ENXIO, EOPNOTSUPP, EPERM, EXDEV,
};
use abi::{PAGE_SIZE, Result, Va};
use clas::{Access, Backing, Cla, Listed, Mappable, MappingObserver, MappingRegistry, Pageable};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Bytes of extended attributes that one file may have.
const XATTR_LIMIT: usize = 64 << 10;
/// What a directory's size counts for each name (`BOGO_DIRENT_SIZE`).
const DIRENT_SIZE: u64 = 20;
const DAY: i64 = 86_400 * 1_000_000_000;

pub(super) struct Meta {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub btime: i64,
    pub xattrs: Option<Box<XattrMap>>,
    /// What it takes of the kernel's memory, as its maker's.
    pub memory: Charge,
}

/// What an inode takes, with its name in a directory and a dentry, bytes; a further name.
const NODE: usize = 1024;
const NAME: usize = 512;

impl Meta {
    pub fn perm(&self) -> Perm {
        Perm {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
        }
    }
}

/// What a further name of an inode takes, as its linker's; the first one's is the inode's.
pub(crate) fn name_memory(cx: &Caller<'_>, name: &[u8]) -> Result<Charge> {
    cx.cred.kmem(NAME + name.len(), ENOSPC)
}

/// A name of a directory.
pub(super) struct Name {
    cookie: u64,
    pub node: Arc<Node>,
    /// Goes where the name goes; `None` for an inode's first name.
    memory: Option<Charge>,
}

/// The names of a directory.
pub(super) struct Dir {
    pub names: HashMap<Arc<[u8]>, Name>,
    /// In the order of their making: what `readdir` shows, by a cookie that never changes.
    pub order: BTreeMap<u64, Arc<[u8]>>,
    next: u64,
}

impl Default for Dir {
    fn default() -> Self {
        // 0 and 1 are the cookies of `.` and `..`.
        Dir {
            names: HashMap::new(),
            order: BTreeMap::new(),
            next: 2,
        }
    }
}

impl Dir {
    /// Gives what had the name.
    fn insert(
        &mut self,
        name: &[u8],
        node: Arc<Node>,
        memory: Option<Charge>,
    ) -> Option<Arc<Node>> {
        if let Some(e) = self.names.get_mut(name) {
            e.memory = memory;
            return Some(std::mem::replace(&mut e.node, node));
        }
        let key: Arc<[u8]> = Arc::from(name);
        let cookie = self.next;
        self.order.insert(cookie, key.clone());
        let e = Name {
            cookie,
            node,
            memory,
        };
        self.names.insert(key, e);
        self.next += 1;
        None
    }
    fn remove(&mut self, name: &[u8]) -> Option<Name> {
        let e = self.names.remove(name)?;
        self.order.remove(&e.cookie);
        Some(e)
    }
    fn take_memory(&mut self, name: &[u8]) -> Option<Charge> {
        self.names.get_mut(name)?.memory.take()
    }
}

/// A regular file's own things.
pub(super) struct Reg {
    pub content: Content,
    pub mappings: MappingRegistry,
    /// Held by writes and changes of size, as Linux's `i_rwsem`.
    pub write_lock: Mutex<()>,
    /// `F_SEAL_*`.
    pub seals: AtomicU32,
    /// Shared writable mappings; negative once F_SEAL_WRITE forbids them.
    pub writable_maps: AtomicI64,
    /// Where it can be swapped out.
    listed: OnceLock<Listed>,
    /// Who maps it as the contents of another file system's.
    mapped_as: OnceLock<Arc<MappingRegistry>>,
}

pub(super) enum Body {
    Reg(Reg),
    Dir(Mutex<Dir>),
    Symlink(Box<[u8]>),
    Special(u64),
}

/// Takes the count of an inode back that could not be made.
struct Counted<'a>(&'a Tmpfs);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.give_inode();
    }
}

impl Meta {
    /// Without an attribute, and what it takes.
    fn remove_xattr(&mut self, name: &[u8]) -> Result<()> {
        let attributes = self.xattrs.as_mut().ok_or(abi::errno::ENODATA)?;
        let old = attributes.size();
        attributes.remove(name)?;
        let gone = (old - attributes.size()) as u64;
        self.memory.set(self.memory.amount() - gone);
        Ok(())
    }
}

/// The payer of a new inode.
#[derive(Clone, Copy)]
pub enum Payer<'a> {
    /// Its maker, whatever owner it gets: an id of a namespace is no user of its own.
    Caller(&'a Credentials),
    /// Its owner: what the kernel makes of another file.
    Owner,
}

/// An inode of tmpfs.
pub struct Node {
    pub(super) fs: Arc<Tmpfs>,
    ino: u64,
    kind: FileType,
    pub(super) meta: Mutex<Meta>,
    pub(super) body: Body,
    ext: InodeExt,
}

impl Node {
    /// An inode that has been counted (`Tmpfs::take_inode`), which this takes back after an error.
    /// Its link count is that of one name.
    pub(super) fn new(
        fs: &Arc<Tmpfs>,
        kind: FileType,
        rdev: u64,
        new: NewNode,
        target: Box<[u8]>,
        payer: Payer<'_>,
    ) -> Result<Arc<Node>> {
        let counted = Counted(fs);
        let bytes = NODE + target.len();
        let user = match payer {
            // Files stay when namespaces end.
            Payer::Caller(cred) => cred.ucounts().outermost(),
            Payer::Owner => fs.users().ucounts(new.uid),
        };
        let memory = user
            .charge(Kind::Kmem, bytes as u64, u64::MAX)
            .ok_or(ENOSPC)?;
        std::mem::forget(counted);
        Ok(Node::with(fs, kind, rdev, new, target, memory))
    }
    fn with(
        fs: &Arc<Tmpfs>,
        kind: FileType,
        rdev: u64,
        new: NewNode,
        target: Box<[u8]>,
        memory: Charge,
    ) -> Arc<Node> {
        let t = now();
        let body = match kind {
            FileType::Regular => Body::Reg(Reg {
                content: Content::new(fs),
                mappings: MappingRegistry::new(),
                write_lock: Mutex::new(()),
                seals: AtomicU32::new(abi::linux::F_SEAL_SEAL),
                writable_maps: AtomicI64::new(0),
                listed: OnceLock::new(),
                mapped_as: OnceLock::new(),
            }),
            FileType::Directory => Body::Dir(Mutex::default()),
            FileType::Symlink => Body::Symlink(target),
            _ => Body::Special(rdev),
        };
        let node = Arc::new(Node {
            fs: fs.clone(),
            ino: fs.next_ino(),
            kind,
            meta: Mutex::new(Meta {
                mode: new.mode,
                uid: new.uid,
                gid: new.gid,
                nlink: if kind == FileType::Directory { 2 } else { 1 },
                atime: t,
                mtime: t,
                ctime: t,
                btime: t,
                xattrs: None,
                memory,
            }),
            body,
            ext: InodeExt::default(),
        });
        if let Body::Reg(r) = &node.body
            && !fs.is_secret()
        {
            let file: Weak<Node> = Arc::downgrade(&node);
            fs.clas.list_file(file).map(|l| r.listed.set(l));
        }
        node
    }
    /// A file system's root directory, which a mounter may make.
    pub(super) fn root(fs: &Arc<Tmpfs>, new: NewNode) -> Arc<Node> {
        let memory = fs.users().ucounts(new.uid).force(Kind::Kmem, NODE as u64);
        Node::with(fs, FileType::Directory, 0, new, Box::default(), memory)
    }
    /// An inode that no directory names: for a file system that keeps names of its own (the root
    /// layer).
    pub fn detached(
        fs: &Arc<Tmpfs>,
        kind: FileType,
        rdev: u64,
        new: NewNode,
        target: &[u8],
        payer: Payer<'_>,
    ) -> Result<Arc<Node>> {
        fs.take_inode()?;
        Node::new(fs, kind, rdev, new, target.into(), payer)
    }
    /// Says who maps a detached inode, once for all: who keeps its name maps it for others.
    pub fn set_mappers(&self, mappers: &Arc<MappingRegistry>) {
        if let Some(r) = self.reg() {
            let _ = r.mapped_as.set(mappers.clone());
        }
    }
    /// Sets what the name-keeper of a detached inode knows.
    pub fn set_nlink(&self, nlink: u32) {
        let mut m = self.meta.lock();
        m.nlink = nlink;
        m.ctime = now();
    }
    /// Sets the mode, as whose inode it is.
    pub fn set_mode(&self, mode: u32) {
        let mut m = self.meta.lock();
        m.mode = mode & 0o7777;
        m.ctime = now();
    }
    /// Sets all times, for a copy of another file.
    pub fn set_times(&self, atime: i64, mtime: i64, ctime: i64) {
        let mut m = self.meta.lock();
        (m.atime, m.mtime, m.ctime) = (atime, mtime, ctime);
    }
    /// Writes our own bytes, as a copy from another file: no times, no limits but the memory's.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let r = self.reg().ok_or(EINVAL)?;
        let mut done = 0;
        let mut copy = bytes.to_vec();
        while done < copy.len() {
            let at = offset + done as u64;
            let rest = &mut copy[done..];
            match hostcall::mem::with_slice_mut(rest, |s| r.content.write(at, &[s]))? {
                0 => return Err(abi::errno::ENOSPC),
                n => done += n,
            }
        }
        Ok(())
    }
    /// Takes it out of who maps it there: they look again what is there.
    pub fn unmap(&self, offset: u64, len: u64) {
        if let Some(r) = self.reg() {
            r.mappings.invalidate(offset, len);
        }
    }
    /// Reads for ourselves, up to the end of the file: gives how much.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let r = self.reg().ok_or(EINVAL)?;
        hostcall::mem::with_slice_mut(bytes, |s| r.content.read(offset, &[s]))
    }
    /// Makes a file at least `size` bytes long.
    pub fn extend_to(&self, size: u64) -> Result<()> {
        let r = self.reg().ok_or(EINVAL)?;
        let _w = r.write_lock.lock();
        if r.content.size() < size {
            self.resize(r, size)
        } else {
            Ok(())
        }
    }
    /// The operations of an open regular file.
    pub fn open_ops(self: &Arc<Self>) -> Arc<dyn FileOps> {
        Arc::new(OpenFile(self.clone()))
    }
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }
    /// The names that lead from this directory to the file with this number: by a look at all of
    /// them, one directory's at a time.
    pub(super) fn find(&self, number: u64) -> Option<Vec<Arc<[u8]>>> {
        if self.ino == number {
            return Some(Vec::new());
        }
        struct Seen {
            dir: Option<Arc<Node>>,
            above: usize,
            name: Arc<[u8]>,
        }
        // Each with the place of the one above it, this one's first.
        let mut seen = vec![Seen {
            dir: None,
            above: 0,
            name: Arc::from(&b""[..]),
        }];
        let mut at = 0;
        while at < seen.len() {
            let dir = seen[at].dir.clone();
            let names = dir.as_deref().unwrap_or(self).dir().ok()?.lock();
            for (name, e) in &names.names {
                if e.node.ino == number {
                    let mut path = vec![name.clone()];
                    while at != 0 {
                        path.push(seen[at].name.clone());
                        at = seen[at].above;
                    }
                    path.reverse();
                    return Some(path);
                }
                if e.node.kind == FileType::Directory {
                    seen.push(Seen {
                        dir: Some(e.node.clone()),
                        above: at,
                        name: name.clone(),
                    });
                }
            }
            drop(names);
            at += 1;
        }
        None
    }
    pub(super) fn reg(&self) -> Option<&Reg> {
        match &self.body {
            Body::Reg(r) => Some(r),
            _ => None,
        }
    }
    pub(super) fn dir(&self) -> Result<&Mutex<Dir>> {
        match &self.body {
            Body::Dir(d) => Ok(d),
            _ => Err(ENOTDIR),
        }
    }
    /// A change of contents: the modification and change times.
    pub(crate) fn modified(&self) {
        let t = now();
        let mut m = self.meta.lock();
        m.mtime = t;
        m.ctime = t;
    }
    /// A name more; `EMLINK` where there are as many as can be counted.
    pub(crate) fn add_name(&self) -> Result<()> {
        let mut m = self.meta.lock();
        m.nlink = m.nlink.checked_add(1).ok_or(EMLINK)?;
        m.ctime = now();
        Ok(())
    }
    pub(crate) fn add_links(&self, n: i32) {
        let mut m = self.meta.lock();
        m.nlink = m.nlink.saturating_add_signed(n);
        m.ctime = now();
    }

    fn add(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        rdev: u64,
        new: NewNode,
        target: Box<[u8]>,
    ) -> Result<Arc<dyn Inode>> {
        let dir = self.dir()?;
        self.fs.take_inode()?;
        let payer = Payer::Caller(cx.cred);
        let node = Node::new(&self.fs, kind, rdev, new, target, payer)?;
        dir.lock().insert(name, node.clone(), None);
        if kind == FileType::Directory {
            self.add_links(1);
        }
        self.modified();
        Ok(node)
    }

    fn check_empty(&self) -> Result<()> {
        if self.dir()?.lock().names.is_empty() {
            Ok(())
        } else {
            Err(ENOTEMPTY)
        }
    }

    /// Sets a regular file's size, with seals and mappings. The write lock is held.
    pub(super) fn resize(&self, r: &Reg, size: u64) -> Result<()> {
        use abi::linux::{F_SEAL_GROW, F_SEAL_SHRINK};
        if size > i64::MAX as u64 {
            return Err(EFBIG);
        }
        let old = r.content.size();
        // A secret's size is given once.
        if old != 0 && self.fs.is_secret() {
            return Err(EINVAL);
        }
        let seals = r.seals.load(Ordering::Acquire);
        if (size < old && seals & F_SEAL_SHRINK != 0) || (size > old && seals & F_SEAL_GROW != 0) {
            return Err(EPERM);
        }
        let freed = r.content.truncate(size)?;
        if size < old {
            let from = size.next_multiple_of(PAGE_SIZE);
            r.mappings.truncated(from);
        }
        r.content.free(freed);
        Ok(())
    }

    /// Frees a range, with seals and mappings. The write lock is held.
    pub(super) fn punch(&self, r: &Reg, range: Range<u64>) -> Result<()> {
        use abi::linux::{F_SEAL_FUTURE_WRITE, F_SEAL_WRITE};
        if r.seals.load(Ordering::Acquire) & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) != 0 {
            return Err(EPERM);
        }
        let from = range.start.next_multiple_of(PAGE_SIZE);
        let to = range.end & !(PAGE_SIZE - 1);
        let freed = r.content.punch(range)?;
        if from < to {
            r.mappings.invalidate(from, to - from);
        }
        r.content.free(freed);
        Ok(())
    }
}

impl Inode for Node {
    fn file_type(&self) -> FileType {
        self.kind
    }
    fn ext(&self) -> &InodeExt {
        &self.ext
    }
    fn stat(&self) -> Result<Stat> {
        let (size, blocks, rdev) = match &self.body {
            Body::Reg(r) => {
                let (size, pages) = r.content.size_and_pages();
                (size, pages * (PAGE_SIZE / 512), 0)
            }
            Body::Dir(d) => ((d.lock().names.len() as u64 + 2) * DIRENT_SIZE, 0, 0),
            Body::Symlink(t) => (t.len() as u64, 0, 0),
            Body::Special(rdev) => (0, 0, *rdev),
        };
        let m = self.meta.lock();
        Ok(Stat {
            dev: self.fs.dev,
            ino: self.ino,
            mode: self.kind.bits() | m.mode,
            nlink: m.nlink,
            uid: m.uid,
            gid: m.gid,
            rdev,
            size,
            blksize: PAGE_SIZE as u32,
            blocks,
            atime: m.atime,
            mtime: m.mtime,
            ctime: m.ctime,
            btime: m.btime,
        })
    }
    fn perm(&self) -> Result<Perm> {
        Ok(self.meta.lock().perm())
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let node = self.dir()?.lock().names.get(name).map(|e| e.node.clone());
        Ok(node.ok_or(ENOENT)?)
    }
    fn create(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.add(cx, name, FileType::Regular, 0, new, Box::default())
    }
    fn mkdir(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.add(cx, name, FileType::Directory, 0, new, Box::default())
    }
    fn mknod(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        rdev: u64,
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        let rdev = if matches!(kind, FileType::Char | FileType::Block) {
            rdev
        } else {
            0
        };
        self.add(cx, name, kind, rdev, new, Box::default())
    }
    fn symlink(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        target: &[u8],
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        self.add(cx, name, FileType::Symlink, 0, new, target.into())
    }
    fn link(&self, cx: &Caller<'_>, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let node = downcast_arc::<Node>(target).ok_or(EXDEV)?;
        let dir = self.dir()?;
        let memory = name_memory(cx, name)?;
        node.add_name()?;
        dir.lock().insert(name, node, Some(memory));
        self.modified();
        Ok(())
    }
    fn unlink(&self, _: &Caller<'_>, name: &[u8], _: &Arc<dyn Inode>) -> Result<()> {
        let gone = self.dir()?.lock().remove(name).ok_or(ENOENT)?;
        gone.node.add_links(-1);
        self.modified();
        Ok(())
    }
    fn rmdir(&self, _: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        downcast::<Node>(child).ok_or(EXDEV)?.check_empty()?;
        let gone = self.dir()?.lock().remove(name).ok_or(ENOENT)?;
        gone.node.add_links(-2);
        self.add_links(-1);
        self.modified();
        Ok(())
    }
    fn rename(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        child: &Arc<dyn Inode>,
        new_dir: &Arc<dyn Inode>,
        new_name: &[u8],
        target: Option<&Arc<dyn Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        let to = downcast::<Node>(new_dir).ok_or(EXDEV)?;
        let node = downcast_arc::<Node>(child).ok_or(EXDEV)?;
        if !Arc::ptr_eq(&to.fs, &self.fs) {
            return Err(EXDEV);
        }
        let same = std::ptr::eq(self, to);
        let is_dir = |k: FileType| k == FileType::Directory;
        if flags.contains(RenameFlags::EXCHANGE) {
            let other = target.and_then(downcast_arc::<Node>).ok_or(ENOENT)?;
            let (a, b) = (self.dir()?, to.dir()?);
            let its = a.lock().take_memory(name);
            let others = b.lock().take_memory(new_name);
            a.lock().insert(name, other.clone(), others);
            b.lock().insert(new_name, node.clone(), its);
            if !same && is_dir(node.kind) != is_dir(other.kind) {
                let n = if is_dir(node.kind) { 1 } else { -1 };
                self.add_links(-n);
                to.add_links(n);
            }
            other.add_links(0);
        } else {
            if let Some(t) = target.filter(|t| is_dir(t.file_type())) {
                downcast::<Node>(t).ok_or(EXDEV)?.check_empty()?;
            }
            let whiteout = if flags.contains(RenameFlags::WHITEOUT) {
                self.fs.take_inode()?;
                let new = NewNode {
                    mode: 0,
                    uid: cx.cred.fsuid,
                    gid: self.perm()?.gid,
                };
                let target = Box::default();
                Some(Node::new(
                    &self.fs,
                    FileType::Char,
                    0,
                    new,
                    target,
                    Payer::Caller(cx.cred),
                )?)
            } else {
                None
            };
            let (a, b) = (self.dir()?, to.dir()?);
            let moved = a.lock().remove(name).ok_or(ENOENT)?;
            let old = b.lock().insert(new_name, node.clone(), moved.memory);
            if let Some(w) = whiteout {
                a.lock().insert(name, w, None);
            }
            if let Some(old) = old {
                old.add_links(if is_dir(old.kind) { -2 } else { -1 });
                if is_dir(old.kind) {
                    to.add_links(-1);
                }
            }
            if is_dir(node.kind) && !same {
                self.add_links(-1);
                to.add_links(1);
            }
        }
        node.add_links(0);
        self.modified();
        if !same {
            to.modified();
        }
        Ok(())
    }
    fn tmpfile(&self, cx: &Caller<'_>, new: NewNode) -> Result<Arc<dyn Inode>> {
        self.fs.take_inode()?;
        let (kind, payer) = (FileType::Regular, Payer::Caller(cx.cred));
        let node = Node::new(&self.fs, kind, 0, new, Box::default(), payer)?;
        node.meta.lock().nlink = 0;
        Ok(node)
    }
    fn readlink(&self, _: &Caller<'_>) -> Result<Vec<u8>> {
        match &self.body {
            Body::Symlink(t) => Ok(t.to_vec()),
            _ => Err(EINVAL),
        }
    }
    fn open(self: Arc<Self>, _: &Caller<'_>, _: u32) -> Result<Arc<dyn FileOps>> {
        match self.kind {
            FileType::Regular if self.fs.is_secret() => Err(ENXIO),
            FileType::Regular => Ok(Arc::new(OpenFile(self))),
            FileType::Directory => Ok(Arc::new(OpenDir(self))),
            _ => Err(EINVAL),
        }
    }
    fn set_attr(&self, _: &Caller<'_>, a: &SetAttr) -> Result<()> {
        if let Some(mode) = a.mode {
            shm::check_exec_seal(self, mode)?;
        }
        if let Some(size) = a.size {
            let r = self.reg().ok_or(EINVAL)?;
            let _w = r.write_lock.lock();
            self.resize(r, size)?;
        }
        let t = now();
        let mut m = self.meta.lock();
        if let Some(mode) = a.mode {
            m.mode = mode & 0o7777;
        }
        if let Some(uid) = a.uid {
            m.uid = uid;
        }
        if let Some(gid) = a.gid {
            m.gid = gid;
        }
        if a.size.is_some() {
            m.mtime = t;
        }
        if let Some(t) = a.atime {
            m.atime = t;
        }
        if let Some(t) = a.mtime {
            m.mtime = t;
        }
        m.ctime = t;
        Ok(())
    }
    fn has_flags(&self) -> bool {
        matches!(self.kind, FileType::Regular | FileType::Directory)
    }
    fn set_flags(&self, flags: FileFlags) -> Result<()> {
        self.ext.set_flags(flags);
        self.meta.lock().ctime = now();
        Ok(())
    }
    fn touch(&self) {
        if self.ext.flags().contains(FileFlags::NOATIME) {
            return;
        }
        // relatime: once after each change, and once a day.
        let t = now();
        let mut m = self.meta.lock();
        if m.atime <= m.mtime || m.atime <= m.ctime || t - m.atime >= DAY {
            m.atime = t;
        }
    }
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        let m = self.meta.lock();
        m.xattrs
            .as_ref()
            .map_or(Err(abi::errno::ENODATA), |x| x.get(name))
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let mut m = self.meta.lock();
        // What the new one takes, before the old one goes.
        if !m.memory.grow((name.len() + value.len()) as u64, u64::MAX) {
            return Err(ENOSPC);
        }
        let m = &mut *m;
        let old = m.xattrs.as_ref().map_or(0, |x| x.size());
        let attributes = m.xattrs.get_or_insert_default();
        let r = attributes.set(name, value, flags, XATTR_LIMIT);
        let more = attributes.size() as u64 + m.memory.amount();
        m.memory.set(more - (old + name.len() + value.len()) as u64);
        r?;
        m.ctime = now();
        Ok(())
    }
    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        let mut m = self.meta.lock();
        m.remove_xattr(name)?;
        m.ctime = now();
        Ok(())
    }
    fn forget_capabilities(&self) {
        let _ = self.meta.lock().remove_xattr(b"security.capability");
    }
    fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self
            .meta
            .lock()
            .xattrs
            .as_ref()
            .map_or_else(Vec::new, |x| x.names()))
    }
}

impl Mappable for Node {
    fn sync(&self, _: u64, _: u64) -> Result<()> {
        match self.fs.is_secret() {
            true => Err(EINVAL),
            false => Ok(()),
        }
    }
    fn is_secret(&self) -> bool {
        self.fs.is_secret()
    }
    fn memory(&self) -> Option<&Arc<clas::Clas>> {
        Some(&self.fs.clas)
    }
    fn backing(&self, offset: u64, len: u64, _: Access) -> Result<(Backing, u64)> {
        let r = self.reg().ok_or(EINVAL)?;
        // A hole that is read gets a frame too: Linux's shmem_fault does the same.
        let (cla, n) = r.content.backing(offset, len)?;
        Ok((Backing::Frames(cla), n))
    }
    fn add_mapping(&self, observer: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        if let Some(r) = self.reg() {
            r.mappings.add(observer, va, offset, len);
        }
    }
    fn remove_mapping(&self, o: &Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        if let Some(r) = self.reg() {
            r.mappings.remove(o, va, offset, len);
        }
    }
    fn mark_confidential(&self, offset: u64, len: u64) -> Result<()> {
        let content = self.reg().map(|r| &r.content);
        content.map_or(Ok(()), |c| c.mark_confidential(offset, len))
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        let r = self
            .reg()
            .filter(|_| !self.fs.is_secret())
            .ok_or(EOPNOTSUPP)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        let _w = r.write_lock.lock();
        self.punch(r, offset..end)
    }
    fn map_writable(&self) -> Result<()> {
        let r = self.reg().ok_or(EINVAL)?;
        let seals = r.seals.load(Ordering::Acquire);
        if seals & (abi::linux::F_SEAL_WRITE | abi::linux::F_SEAL_FUTURE_WRITE) != 0 {
            return Err(EPERM);
        }
        r.writable_maps
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n >= 0).then_some(n + 1)
            })
            .map(|_| ())
            .map_err(|_| EPERM)
    }
    fn unmap_writable(&self) {
        if let Some(r) = self.reg() {
            r.writable_maps.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Pageable for Node {
    fn each_run(&self, page: u64, tell: &mut dyn FnMut(u64, Cla, u64) -> bool) {
        if let Some(r) = self.reg() {
            r.content.each_run(page, tell);
        }
    }
    fn mappers(&self) -> Option<&MappingRegistry> {
        (self.reg()).map(|r| r.mapped_as.get().map_or(&r.mappings, |m| &**m))
    }
    fn take_use(&self) -> bool {
        self.reg().is_some_and(|r| r.content.take_use())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.fs.give_inode();
        // Not by recursion: directories nest as deep as the application likes.
        let mut stack = self.take_children();
        while let Some(n) = stack.pop() {
            if let Some(mut n) = Arc::into_inner(n) {
                stack.append(&mut n.take_children());
            }
        }
    }
}

impl Node {
    fn take_children(&mut self) -> Vec<Arc<Node>> {
        match &mut self.body {
            Body::Dir(d) => std::mem::take(d.get_mut())
                .names
                .into_values()
                .map(|e| e.node)
                .collect(),
            _ => Vec::new(),
        }
    }
}
