//! A toolkit for file systems whose contents are generated: proc, sysfs, cgroupfs.
//!
//! Implement [`DynDir`] and [`DynFile`] (and [`DynLink`]), and make a [`DynFs`] of the root
//! directory. Names are never cached: each walk asks the directory. Inode numbers follow from the
//! path, so that `readdir` and `stat` agree and numbers stay the same.
//!
//! ```ignore
//! struct Uptime(Arc<Kernel>);
//! impl DynFile for Uptime {
//!     fn generate(&self, _: &File) -> Result<Vec<u8>> { Ok(format!("{}\n", self.0.uptime()).into_bytes()) }
//! }
//! let root = StaticDir::new().file("uptime", Uptime(kernel));
//! let dentry = DynFs::mountable(&vfs, "proc", PROC_SUPER_MAGIC, Arc::new(root));
//! ```

use super::listing::Listing;
use crate::caller::Caller;
use crate::dentry::{Caching, Dentry, FileSystem, StatFs, SuperBlock};
use crate::file::{File, FileOps, IoctlContext, Sink, Source};
use crate::inode::{Follow, Inode, InodeExt, SetAttr};
use crate::mode::{FileType, Perm, Want, generic_permission};
use crate::notice::{Notice, Place, Subscription};
use crate::ucounts::Charge;
use crate::vfs::Vfs;
use crate::{DirEntry, Path, Stat, now};
use abi::Result;
use abi::errno::{EACCES, EINVAL, EISDIR, ENOENT, ENOMEM, ENOTTY, EPERM};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wait::{Events, WaitQueue};

/// A child of a generated directory.
#[derive(Clone)]
pub enum DynNode {
    Dir(Arc<dyn DynDir>),
    File(Arc<dyn DynFile>),
    Link(Arc<dyn DynLink>),
    /// An inode of another kind (a device).
    Inode(Arc<dyn Inode>),
}

impl DynNode {
    fn file_type(&self) -> FileType {
        match self {
            DynNode::Dir(_) => FileType::Directory,
            DynNode::File(_) => FileType::Regular,
            DynNode::Link(_) => FileType::Symlink,
            DynNode::Inode(i) => i.file_type(),
        }
    }
}

/// A name that a generated directory shows.
#[derive(Clone, Debug)]
pub struct DynEntry {
    pub name: Vec<u8>,
    pub kind: FileType,
}

impl DynEntry {
    #[must_use]
    pub fn new(name: impl Into<Vec<u8>>, kind: FileType) -> DynEntry {
        DynEntry {
            name: name.into(),
            kind,
        }
    }
}

/// The number that a name is, written as it is shown: without sign and leading zeros
/// (`name_to_int`).
#[must_use]
pub fn number(name: &[u8]) -> Option<i32> {
    let plain =
        name.iter().all(u8::is_ascii_digit) && (name.len() == 1 || name.first() != Some(&b'0'));
    let text = std::str::from_utf8(name).ok().filter(|_| plain)?;
    text.parse().ok()
}

/// A generated directory.
pub trait DynDir: Any + Send + Sync {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o555,
            uid: 0,
            gid: 0,
        }
    }
    /// As [`DynFile::set_attr`].
    fn set_attr(&self, _a: &SetAttr) -> Result<()> {
        Err(EPERM)
    }
    /// The child of this name; `ENOENT` where there is none.
    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> Result<DynNode>;
    /// Every child, in the order to show; asked when a directory is read from its start.
    fn list(&self, file: &File) -> Result<Vec<DynEntry>>;
    /// As [`DynDir::list`], for what a reader sees that another does not.
    fn list_as(&self, file: &File, _reader: &Caller<'_>) -> Result<Vec<DynEntry>> {
        self.list(file)
    }
    fn alive(&self) -> bool {
        true
    }
    fn identity(&self) -> u64 {
        0
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        generic_permission(self.perm(), FileType::Directory, cx.cred, want)
    }
    /// Whether it is there for something to be mounted on it (`is_empty_dir_inode`).
    fn is_always_empty(&self) -> bool {
        false
    }
    /// Subdirectories, for the link count; 0 where nobody counts.
    fn subdirs(&self) -> u32 {
        0
    }
    /// Directories that can be made in it (cgroupfs); they are found by `lookup` afterwards.
    fn mkdir(&self, _cx: &Caller<'_>, _name: &[u8], _mode: u32) -> Result<DynNode> {
        Err(EPERM)
    }
    fn rmdir(&self, _cx: &Caller<'_>, _name: &[u8]) -> Result<()> {
        Err(EPERM)
    }
}

/// A generated file.
pub trait DynFile: Any + Send + Sync {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o444,
            uid: 0,
            gid: 0,
        }
    }
    /// All of its contents, asked when it is read from its start (as seq_file does): what follows
    /// comes from the same picture. `file` tells its opener.
    fn generate(&self, file: &File) -> Result<Vec<u8>>;
    /// Who is told when it changes. `None`: it cannot be waited for.
    fn notice(&self) -> Option<&Arc<Notice>> {
        None
    }
    /// What poll(2) says more to who has seen so many of its changes.
    fn poll(&self, seen: &AtomicU64) -> Events {
        let more = self.notice().map(|n| n.poll(seen));
        more.unwrap_or_default()
    }
    /// What is written, all of one write(2). Gives how much was taken.
    fn write(&self, _file: &File, _data: &[u8], _offset: u64) -> Result<usize> {
        Err(EINVAL)
    }
    /// What ioctl(2) does.
    fn ioctl(&self, _cx: &dyn IoctlContext, _cmd: u32, _arg: u64) -> Result<u64> {
        Err(ENOTTY)
    }
    /// Nothing can be mounted on it: its name stands for something that may be another's soon.
    fn takes_no_mounts(&self) -> bool {
        false
    }
    /// What an open file of it is instead, where that depends on its opener, or on the time.
    fn bound(&self, _cx: &Caller<'_>) -> Result<Option<Arc<dyn DynFile>>> {
        Ok(None)
    }
    /// Opens it; override for files that are no text (`/proc/PID/mem`), or to look at the caller.
    fn open(self: Arc<Self>, _cx: &Caller<'_>, _flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        Ok(None)
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        generic_permission(self.perm(), FileType::Regular, cx.cred, want)
    }
    /// chmod(2) and chown(2), which were permitted. `EPERM`: they change nothing here.
    fn set_attr(&self, _a: &SetAttr) -> Result<()> {
        Err(EPERM)
    }
    /// As `st_size`.
    fn size(&self) -> u64 {
        0
    }
    fn identity(&self) -> u64 {
        0
    }
    /// Attributes of its own, where it stands for something that is no generated file.
    fn stat(&self) -> Option<Result<Stat>> {
        None
    }
}

/// A generated symbolic link.
pub trait DynLink: Any + Send + Sync {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o777,
            uid: 0,
            gid: 0,
        }
    }
    /// Its text, as the caller sees it.
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>>;
    /// For magic links: the place itself. `None`: the text is walked.
    fn jump(&self, _cx: &Caller<'_>) -> Result<Option<Path>> {
        Ok(None)
    }
    fn identity(&self) -> u64 {
        0
    }
    /// As [`DynFile::takes_no_mounts`].
    fn takes_no_mounts(&self) -> bool {
        false
    }
}

/// A file system of generated files.
pub struct DynFs {
    name: &'static str,
    magic: u64,
    dev: u64,
    /// When it was made: the times of everything on it that has none of its own.
    born: i64,
    /// What was asked for at mount(2).
    options: Option<Arc<dyn DynOptions>>,
}

/// The options of a generated file system.
pub trait DynOptions: Send + Sync {
    /// As [`FileSystem::options`].
    fn shown(&self) -> String;
    /// As [`FileSystem::remount`].
    fn change(&self, data: &str) -> Result<()>;
}

impl FileSystem for DynFs {
    fn name(&self) -> &'static str {
        self.name
    }
    fn stat_fs(&self) -> Result<StatFs> {
        Ok(StatFs {
            magic: self.magic,
            bsize: 4096,
            namelen: 255,
            fsid: self.dev,
            ..StatFs::default()
        })
    }
    fn caching(&self) -> Caching {
        Caching::Never
    }
    fn no_exec(&self) -> bool {
        self.name == "proc" || self.name == "sysfs"
    }
    fn options(&self) -> String {
        self.options.as_ref().map(|o| o.shown()).unwrap_or_default()
    }
    fn remount(&self, data: &str) -> Result<()> {
        self.options.as_ref().map_or(Ok(()), |o| o.change(data))
    }
}

impl DynFs {
    /// A file system with this root, ready to be mounted.
    #[must_use]
    pub fn mountable(
        vfs: &Vfs,
        name: &'static str,
        magic: u64,
        root: Arc<dyn DynDir>,
    ) -> Arc<Dentry> {
        Self::with_options(vfs, name, magic, root, None)
    }
    /// As [`DynFs::mountable`], with options of its own.
    #[must_use]
    pub fn with_options(
        vfs: &Vfs,
        name: &'static str,
        magic: u64,
        root: Arc<dyn DynDir>,
        options: Option<Arc<dyn DynOptions>>,
    ) -> Arc<Dentry> {
        let dev = vfs.new_dev();
        let fs = Arc::new(DynFs {
            name,
            magic,
            dev,
            born: now(),
            options,
        });
        let inode = DynInode::wrap(&fs, 1, DynNode::Dir(root));
        Dentry::new_root(&SuperBlock::new(dev, fs), inode)
    }
}

/// A place in no tree for one generated node: where a magic link leads that stands for an object
/// without a path.
#[must_use]
pub fn detached(vfs: &Vfs, name: &'static str, magic: u64, node: DynNode) -> Path {
    let dev = vfs.new_dev();
    let fs = Arc::new(DynFs {
        name,
        magic,
        dev,
        born: now(),
        options: None,
    });
    let inode = DynInode::wrap(&fs, 1, node);
    let root = Dentry::new_root(&SuperBlock::new(dev, fs), inode);
    Path::root_of(&vfs.kernel_mount(root))
}

/// The inode of a generated node.
pub struct DynInode {
    fs: Arc<DynFs>,
    ino: u64,
    pub node: DynNode,
    ext: InodeExt,
    /// Where it is listed for changes, from its first use on.
    told: OnceLock<Option<Box<Subscription>>>,
}

fn child_ino(dir: u64, name: &[u8]) -> u64 {
    let mut h = DefaultHasher::new();
    (dir, name).hash(&mut h);
    // Never the root's, and small enough for programs that print it as a signed number.
    (h.finish() >> 16) | (1 << 32)
}

impl DynInode {
    fn wrap(fs: &Arc<DynFs>, ino: u64, node: DynNode) -> Arc<dyn Inode> {
        match node {
            DynNode::Inode(i) => i,
            node => Arc::new(DynInode {
                fs: fs.clone(),
                ino,
                node,
                ext: InodeExt::default(),
                told: OnceLock::new(),
            }),
        }
    }
    fn dir(&self) -> Result<&Arc<dyn DynDir>> {
        match &self.node {
            DynNode::Dir(d) => Ok(d),
            _ => Err(abi::errno::ENOTDIR),
        }
    }
}

impl Inode for DynInode {
    fn file_type(&self) -> FileType {
        self.node.file_type()
    }
    fn ext(&self) -> &InodeExt {
        &self.ext
    }
    fn takes_no_mounts(&self) -> bool {
        match &self.node {
            DynNode::File(f) => f.takes_no_mounts(),
            DynNode::Link(l) => l.takes_no_mounts(),
            DynNode::Dir(_) | DynNode::Inode(_) => false,
        }
    }
    fn is_always_empty(&self) -> bool {
        matches!(&self.node, DynNode::Dir(d) if d.is_always_empty())
    }
    fn identity(&self) -> Option<u64> {
        Some(match &self.node {
            DynNode::Dir(d) => d.identity(),
            DynNode::File(f) => f.identity(),
            DynNode::Link(l) => l.identity(),
            DynNode::Inode(_) => 0,
        })
    }
    fn perm(&self) -> Result<Perm> {
        Ok(match &self.node {
            DynNode::Dir(d) => d.perm(),
            DynNode::File(f) => f.perm(),
            DynNode::Link(l) => l.perm(),
            DynNode::Inode(i) => i.perm()?,
        })
    }
    fn stat(&self) -> Result<Stat> {
        if let DynNode::File(f) = &self.node
            && let Some(own) = f.stat()
        {
            return own;
        }
        let p = self.perm()?;
        let (nlink, size) = match &self.node {
            DynNode::Dir(d) => (2 + d.subdirs(), 0),
            DynNode::File(f) => (1, f.size()),
            _ => (1, 0),
        };
        Ok(Stat {
            dev: self.fs.dev,
            ino: self.ino,
            mode: self.file_type().bits() | p.mode,
            nlink,
            uid: p.uid,
            gid: p.gid,
            size,
            blksize: 4096,
            atime: self.fs.born,
            mtime: self.fs.born,
            ctime: self.fs.born,
            ..Stat::default()
        })
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        match &self.node {
            DynNode::Dir(d) => d.permission(cx, want),
            DynNode::File(f) => f.permission(cx, want),
            DynNode::Link(_) => Ok(()),
            DynNode::Inode(i) => i.permission(cx, want),
        }
    }
    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let d = self.dir()?;
        if !d.alive() {
            return Err(ENOENT);
        }
        let node = d.lookup(cx, name)?;
        Ok(Self::wrap(&self.fs, child_ino(self.ino, name), node))
    }
    fn revalidate(&self, cx: &Caller<'_>, name: &[u8], child: Option<&Arc<dyn Inode>>) -> bool {
        let (Ok(new), Some(old)) = (self.lookup(cx, name), child) else {
            return false;
        };
        let (a, b) = (
            crate::inode::downcast::<DynInode>(&new),
            crate::inode::downcast::<DynInode>(old),
        );
        match (a, b) {
            (Some(a), Some(b)) => {
                a.file_type() == b.file_type() && a.identity() == b.identity() && b.is_alive()
            }
            (None, None) => Arc::ptr_eq(&new, old),
            _ => false,
        }
    }
    fn mkdir(&self, cx: &Caller<'_>, name: &[u8], new: crate::NewNode) -> Result<Arc<dyn Inode>> {
        let node = self.dir()?.mkdir(cx, name, new.mode)?;
        Ok(Self::wrap(&self.fs, child_ino(self.ino, name), node))
    }
    fn rmdir(&self, cx: &Caller<'_>, name: &[u8], _: &Arc<dyn Inode>) -> Result<()> {
        self.dir()?.rmdir(cx, name)
    }
    fn readlink(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        match &self.node {
            DynNode::Link(l) => l.read(cx),
            _ => Err(EINVAL),
        }
    }
    fn follow(&self, cx: &Caller<'_>) -> Result<Follow> {
        if let DynNode::Link(l) = &self.node
            && let Some(p) = l.jump(cx)?
        {
            return Ok(Follow::Jump(p));
        }
        Ok(Follow::Target(self.readlink(cx)?))
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Arc<dyn FileOps>> {
        match &self.node {
            DynNode::Dir(_) => Ok(Arc::new(OpenDynDir {
                inode: self,
                list: Listing::default(),
            })),
            DynNode::File(f) => {
                if let Some(ops) = f.clone().open(cx, flags)? {
                    return Ok(ops);
                }
                let file = f.bound(cx)?.unwrap_or_else(|| f.clone());
                let seen = file.notice().map(|n| n.seen_at_open());
                Ok(Arc::new(OpenDynFile {
                    file,
                    inode: self,
                    text: Mutex::default(),
                    seen: seen.unwrap_or_default(),
                }))
            }
            _ => Err(EACCES),
        }
    }
    fn is_used_at(&self, d: &Arc<Dentry>) {
        if let DynNode::File(f) = &self.node
            && let Some(n) = f.notice()
        {
            self.told.get_or_init(|| {
                let place: Arc<dyn Place> = d.clone();
                n.used_at(&place).map(Box::new)
            });
        }
    }
    fn set_attr(&self, _: &Caller<'_>, a: &SetAttr) -> Result<()> {
        // O_TRUNC on a generated file says nothing.
        if a.mode.is_none() && a.uid.is_none() && a.gid.is_none() && a.size == Some(0) {
            return Ok(());
        }
        match &self.node {
            DynNode::Dir(d) => d.set_attr(a),
            DynNode::File(f) => f.set_attr(a),
            _ => Err(EPERM),
        }
    }
}

impl DynInode {
    fn is_alive(&self) -> bool {
        match &self.node {
            DynNode::Dir(d) => d.alive(),
            _ => true,
        }
    }
}

/// An open generated file: the text is a picture taken when it was last read from the start. Its
/// memory is the opener's.
struct OpenDynFile {
    file: Arc<dyn DynFile>,
    inode: Arc<DynInode>,
    text: Mutex<Option<(Arc<[u8]>, Charge)>>,
    /// The changes that were seen ([`Notice`]).
    seen: AtomicU64,
}

/// The most that one write(2) hands to [`DynFile::write`].
const MAX_WRITE: usize = 1 << 20;

impl FileOps for OpenDynFile {
    fn read(&self, file: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        if dst.remaining() == 0 {
            return Ok(0);
        }
        let old = if offset == 0 {
            None
        } else {
            self.text.lock().as_ref().map(|t| t.0.clone())
        };
        let text = match old {
            Some(t) => t,
            None => {
                let seen = self.file.notice().and_then(|n| n.seen_at_read());
                let t: Arc<[u8]> = self.file.generate(file)?.into();
                // (Linux takes it where it shows something.)
                if let Some(n) = seen.filter(|_| !t.is_empty()) {
                    self.seen.store(n, Ordering::SeqCst);
                }
                let charge = file.cred.kmem(t.len(), ENOMEM)?;
                *self.text.lock() = Some((t.clone(), charge));
                t
            }
        };
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(text.len());
        if from == text.len() {
            return Ok(0);
        }
        dst.put(&text[from..])
    }
    fn write(&self, file: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        let mut buf = vec![0; src.remaining().min(MAX_WRITE)];
        let n = src.take(&mut buf)?;
        let n = self.file.write(file, &buf[..n], offset)?;
        *self.text.lock() = None;
        Ok(n)
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        self.file.ioctl(cx, cmd, arg)
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let ready = mask & (Events::READABLE | Events::WRITABLE);
        ready | mask & self.file.poll(&self.seen)
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        self.file.notice().map(|n| n.queue())
    }
    fn io_queue(&self) -> Option<&WaitQueue> {
        None
    }
    fn seekable(&self) -> bool {
        true
    }
    fn append_offset(&self) -> Result<u64> {
        Ok(0)
    }
    fn seek_from(&self, whence: u32, offset: i64) -> Result<u64> {
        match whence {
            2 => self.file.size().checked_add_signed(offset).ok_or(EINVAL),
            _ => Err(EINVAL),
        }
    }
    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }
    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An open one.
pub struct OpenDynDir {
    inode: Arc<DynInode>,
    list: Listing<DynEntry>,
}

impl OpenDynDir {
    /// The directory, if it is a `T`.
    #[must_use]
    pub fn of<T: DynDir>(&self) -> Option<&T> {
        let any: &dyn Any = &**self.inode.dir().ok()?;
        any.downcast_ref()
    }
    fn read_list(
        &self,
        file: &File,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
        list: impl FnOnce(&dyn DynDir) -> Result<Vec<DynEntry>>,
    ) -> Result<()> {
        let dir = self.inode.dir()?;
        if !dir.alive() {
            return Err(ENOENT);
        }
        self.list.read(
            file,
            self.inode.ino,
            pos,
            emit,
            || Ok(list(&**dir)?.into()),
            |e| (child_ino(self.inode.ino, &e.name), e.kind.dt(), &e.name),
        )
    }
}

impl FileOps for OpenDynDir {
    fn read(&self, _: &File, _: &mut dyn Sink, _: u64) -> Result<usize> {
        Err(EISDIR)
    }
    fn read_dir(
        &self,
        file: &File,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.read_list(file, pos, emit, |dir| dir.list(file))
    }
    fn read_dir_as(
        &self,
        file: &File,
        reader: &Caller<'_>,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.read_list(file, pos, emit, |dir| dir.list_as(file, reader))
    }
    fn seekable(&self) -> bool {
        true
    }
    fn seek_from(&self, _: u32, _: i64) -> Result<u64> {
        Err(EINVAL)
    }
    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A directory whose children are always the same.
#[derive(Default)]
pub struct StaticDir {
    nodes: BTreeMap<Vec<u8>, DynNode>,
    mode: Option<u32>,
    identity: u64,
}

impl StaticDir {
    #[must_use]
    pub fn new() -> StaticDir {
        StaticDir::default()
    }
    #[must_use]
    pub fn node(mut self, name: &str, node: DynNode) -> StaticDir {
        self.nodes.insert(name.as_bytes().to_vec(), node);
        self
    }
    #[must_use]
    pub fn file(self, name: &str, f: impl DynFile) -> StaticDir {
        self.node(name, DynNode::File(Arc::new(f)))
    }
    #[must_use]
    pub fn dir(self, name: &str, d: impl DynDir) -> StaticDir {
        self.node(name, DynNode::Dir(Arc::new(d)))
    }
    #[must_use]
    pub fn link(self, name: &str, target: &str) -> StaticDir {
        self.node(
            name,
            DynNode::Link(Arc::new(StaticLink(target.as_bytes().to_vec()))),
        )
    }
    /// A file whose text never changes.
    #[must_use]
    pub fn text(self, name: &str, text: impl Into<Vec<u8>>) -> StaticDir {
        let text: Vec<u8> = text.into();
        self.file(name, TextFile(move |_: &File| Ok(text.clone())))
    }
    /// Tells it from others that were found under the same name (another namespace's).
    #[must_use]
    pub fn with_identity(mut self, identity: u64) -> StaticDir {
        self.identity = identity;
        self
    }
    #[must_use]
    pub fn mode(mut self, mode: u32) -> StaticDir {
        self.mode = Some(mode);
        self
    }
    /// Its children, for directories that add to them.
    pub fn get(&self, name: &[u8]) -> Option<&DynNode> {
        self.nodes.get(name)
    }
    /// Their names.
    pub fn entries(&self) -> Vec<DynEntry> {
        self.nodes
            .iter()
            .map(|(n, d)| DynEntry::new(n.clone(), d.file_type()))
            .collect()
    }
}

impl DynDir for StaticDir {
    fn perm(&self) -> Perm {
        Perm {
            mode: self.mode.unwrap_or(0o555),
            uid: 0,
            gid: 0,
        }
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        self.nodes.get(name).cloned().ok_or(ENOENT)
    }
    fn is_always_empty(&self) -> bool {
        self.nodes.is_empty()
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        Ok(self.entries())
    }
    fn identity(&self) -> u64 {
        self.identity
    }
    fn subdirs(&self) -> u32 {
        self.nodes
            .values()
            .filter(|n| n.file_type() == FileType::Directory)
            .count() as u32
    }
}

struct StaticLink(Vec<u8>);

impl DynLink for StaticLink {
    fn read(&self, _: &Caller<'_>) -> Result<Vec<u8>> {
        Ok(self.0.clone())
    }
}

/// A read-only file made by a function: `TextFile(|_| Ok(...))`.
pub struct TextFile<F>(pub F);

impl<F: Fn(&File) -> Result<Vec<u8>> + Send + Sync + 'static> DynFile for TextFile<F> {
    fn generate(&self, file: &File) -> Result<Vec<u8>> {
        (self.0)(file)
    }
}
