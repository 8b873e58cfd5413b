//! Inodes of the root layer, and copy-up.

use super::dir::OpenOvlDir;
use super::file::{LayerMappable, OpenOvlFile};
use super::{Key, RootLayer, UPPER_BIT, new_node};
use crate::Stat;
use crate::caller::Caller;
use crate::file::{BufSink, File, FileOps, O_ACCMODE, O_RDONLY};
use crate::fs::tmpfs::{Node, Payer, name_memory};
use crate::inode::{
    FileFlags, Inode, InodeExt, Looked, NewNode, NextNames, RenameFlags, SetAttr, downcast,
    downcast_arc,
};
use crate::mode::{FileType, Perm};
use crate::ucounts::Charge;
use abi::Result;
use abi::errno::{EINVAL, ENOENT, EXDEV};
use clas::MappingRegistry;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// How a directory's names differ from what lies below: `None` hides a name.
pub(super) type Delta = HashMap<Arc<[u8]>, Option<Arc<LayerInode>>>;

#[derive(Default)]
pub(super) struct State {
    /// Attributes (and contents) of a changed or new file.
    pub upper: Option<Arc<Node>>,
    /// A regular file of which only the attributes were copied up.
    pub data_below: bool,
    pub delta: Delta,
    /// What names of the delta take that are not their inode's first.
    paid: HashMap<Arc<[u8]>, Charge>,
    /// Names that are known to be missing below, which never changes.
    absent: HashSet<Box<[u8]>>,
}

/// Missing names that one directory remembers, and all of a layer.
const MAX_ABSENT: usize = 1024;
const MAX_ALL_ABSENT: usize = 1 << 16;

/// A file of a root layer.
pub struct LayerInode {
    pub(super) me: Weak<LayerInode>,
    pub(super) fs: Arc<RootLayer>,
    pub(super) kind: FileType,
    pub(super) ino: u64,
    /// Its number below; `None` for a new file.
    key: Option<Key>,
    /// What lies below: nothing, a file, or directories to be merged, topmost first.
    pub(super) lowers: Vec<Arc<dyn Inode>>,
    pub(super) state: RwLock<State>,
    /// Held by a copy-up.
    copy_lock: Mutex<()>,
    pub(super) mappings: Arc<MappingRegistry>,
    pub(super) mappable: Mutex<Weak<LayerMappable>>,
    ext: InodeExt,
}

/// Bytes that a copy-up moves at once.
const CHUNK: usize = 256 << 10;

impl LayerInode {
    fn make(
        fs: &Arc<RootLayer>,
        kind: FileType,
        ino: u64,
        key: Option<Key>,
        lowers: Vec<Arc<dyn Inode>>,
        upper: Option<Arc<Node>>,
    ) -> Arc<LayerInode> {
        let data_below = upper.is_none() && kind == FileType::Regular;
        let mappings = Arc::new(MappingRegistry::new());
        upper.iter().for_each(|n| n.set_mappers(&mappings));
        Arc::new_cyclic(|me| LayerInode {
            me: me.clone(),
            fs: fs.clone(),
            kind,
            ino,
            key,
            lowers,
            state: RwLock::new(State {
                upper,
                data_below,
                ..State::default()
            }),
            copy_lock: Mutex::new(()),
            mappings,
            mappable: Mutex::default(),
            ext: InodeExt::default(),
        })
    }
    pub(super) fn from_below(
        fs: &Arc<RootLayer>,
        ino: u64,
        key: Key,
        lowers: Vec<Arc<dyn Inode>>,
    ) -> Arc<LayerInode> {
        let kind = lowers.first().map_or(FileType::Regular, |l| l.file_type());
        Self::make(fs, kind, ino, Some(key), lowers, None)
    }
    fn new_upper(fs: &Arc<RootLayer>, node: Arc<Node>) -> Arc<LayerInode> {
        let (kind, ino) = (node.file_type(), node.ino() | UPPER_BIT);
        Self::make(fs, kind, ino, None, Vec::new(), Some(node))
    }
    pub(super) fn key(&self) -> Option<Key> {
        self.key
    }
    pub(super) fn lower(&self) -> Result<&Arc<dyn Inode>> {
        self.lowers.first().ok_or(ENOENT)
    }
    fn upper(&self) -> Option<Arc<Node>> {
        self.state.read().upper.clone()
    }
    /// The tmpfs inode that holds the contents, if they were copied up.
    pub(super) fn data(&self) -> Option<Arc<Node>> {
        let s = self.state.read();
        if s.data_below { None } else { s.upper.clone() }
    }

    /// Copies the attributes up: afterwards it has a tmpfs inode.
    pub(super) fn copy_up(&self) -> Result<Arc<Node>> {
        if let Some(n) = self.upper() {
            return Ok(n);
        }
        let _c = self.copy_lock.lock();
        self.copy_up_locked()
    }

    fn copy_up_locked(&self) -> Result<Arc<Node>> {
        if let Some(n) = self.upper() {
            return Ok(n);
        }
        let below = self.lower()?;
        let s = below.stat()?;
        let target = match self.kind {
            FileType::Symlink => below.readlink(&self.fs.caller())?,
            _ => Vec::new(),
        };
        let new = NewNode {
            mode: s.mode & 0o7777,
            uid: s.uid,
            gid: s.gid,
        };
        let node = new_node(&self.fs, self.kind, s.rdev, new, &target, Payer::Owner)?;
        for name in below.list_xattr().unwrap_or_default() {
            let ours = name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.");
            if !ours && let Ok(v) = below.get_xattr(&name) {
                node.set_xattr(&name, &v, 0)?;
            }
        }
        node.set_nlink(s.nlink);
        node.set_times(s.atime, s.mtime, s.ctime);
        let me = self.me.upgrade().ok_or(ENOENT)?;
        node.set_mappers(&self.mappings);
        self.state.write().upper = Some(node.clone());
        self.fs.pin(&me);
        Ok(node)
    }

    /// Copies the contents up too, up to `limit` bytes: what a truncation cuts off is not copied.
    pub(super) fn copy_up_data(&self, limit: u64) -> Result<Arc<Node>> {
        if let Some(n) = self.data() {
            return Ok(n);
        }
        let _c = self.copy_lock.lock();
        let node = self.copy_up_locked()?;
        if !self.state.read().data_below {
            return Ok(node);
        }
        let below = self.lower()?;
        let s = node.stat()?;
        let size = below.stat()?.size.min(limit);
        let ops = below.clone().open(&self.fs.caller(), O_RDONLY)?;
        let file = File::new(ops, O_RDONLY, None, self.fs.cred.clone());
        let mut buf = vec![0u8; CHUNK];
        let mut at = 0;
        while at < size {
            let want = CHUNK.min(usize::try_from(size - at).unwrap_or(CHUNK));
            let mut sink = BufSink::new(&mut buf[..want]);
            let n = file.ops.read(&file, &mut sink, at)?;
            if n == 0 {
                break;
            }
            // Pages of zeros become holes.
            for (i, page) in buf[..n].chunks(abi::PAGE_SIZE as usize).enumerate() {
                if page.iter().any(|b| *b != 0) {
                    node.write_at(at + (i as u64) * abi::PAGE_SIZE, page)?;
                }
            }
            at += n as u64;
        }
        node.extend_to(size)?;
        node.set_times(s.atime, s.mtime, s.ctime);
        self.state.write().data_below = false;
        // A mapper of the file below shall see what is written from now on.
        self.mappings.invalidate(0, u64::MAX);
        Ok(node)
    }

    fn note_absent(&self, name: &[u8]) {
        if self.lowers.is_empty() {
            return;
        }
        let mut s = self.state.write();
        if s.absent.len() >= MAX_ABSENT {
            self.fs.absent.fetch_sub(s.absent.len(), Ordering::Relaxed);
            s.absent.clear();
        }
        let all = &self.fs.absent;
        if all.load(Ordering::Relaxed) < MAX_ALL_ABSENT && s.absent.insert(name.into()) {
            all.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets which names are missing.
    pub(super) fn forget_absent(&self) {
        let gone = std::mem::take(&mut self.state.write().absent);
        self.fs.absent.fetch_sub(gone.len(), Ordering::Relaxed);
    }

    /// What lies below under this name, apart from the delta.
    pub(super) fn below(&self, cx: &Caller<'_>, name: &[u8]) -> Result<Arc<LayerInode>> {
        if self.state.read().absent.contains(name) {
            return Err(ENOENT);
        }
        let mut found: Vec<Arc<dyn Inode>> = Vec::new();
        for l in &self.lowers {
            let i = match l.lookup(cx, name) {
                Ok(i) => i,
                Err(ENOENT) => continue,
                Err(e) => return Err(e),
            };
            if self.fs.layered && super::is_whiteout(&i) {
                break;
            }
            let dir = i.file_type() == FileType::Directory;
            if !dir && !found.is_empty() {
                break;
            }
            let last = !dir || (self.fs.layered && super::is_opaque(&i));
            found.push(i);
            if last {
                break;
            }
        }
        if found.is_empty() {
            self.note_absent(name);
            return Err(ENOENT);
        }
        self.fs.wrap(found)
    }

    /// Sets what `name` is, and what it takes unless it is the inode's first.
    fn set_name(&self, name: &[u8], to: Arc<LayerInode>, paid: Option<Charge>) -> Result<()> {
        self.copy_up()?;
        let key: Arc<[u8]> = Arc::from(name);
        let mut s = self.state.write();
        let _was = match paid {
            Some(c) => s.paid.insert(key.clone(), c),
            None => s.paid.remove(name),
        };
        let _old = s.delta.insert(key, Some(to));
        drop(s);
        Ok(())
    }

    /// Removes a name: hides it where it is below. Gives what it took.
    fn clear_name(&self, cx: &Caller<'_>, name: &[u8]) -> Result<Option<Charge>> {
        self.copy_up()?;
        let hide = match self.below(cx, name) {
            Ok(_) => true,
            Err(ENOENT) => false,
            Err(e) => return Err(e),
        };
        let mut s = self.state.write();
        let _old = if hide {
            s.delta.insert(Arc::from(name), None)
        } else {
            s.delta.remove(name)
        };
        Ok(s.paid.remove(name))
    }

    /// A name of it went.
    fn lost_name(&self) -> Result<()> {
        let node = self.copy_up()?;
        if self.kind == FileType::Directory {
            node.set_nlink(0);
        } else {
            node.add_links(-1);
        }
        if node.stat()?.nlink == 0 {
            self.fs.unpin(self);
        }
        Ok(())
    }

    fn modified(&self, subdirs: i32) -> Result<()> {
        let node = self.copy_up()?;
        node.modified();
        // Merged directories do not count theirs.
        if subdirs != 0 && self.lowers.is_empty() {
            node.add_links(subdirs);
        }
        Ok(())
    }

    fn add(&self, name: &[u8], node: Arc<Node>) -> Result<Arc<dyn Inode>> {
        let dir = node.file_type() == FileType::Directory;
        let i = LayerInode::new_upper(&self.fs, node);
        self.set_name(name, i.clone(), None)?;
        self.modified(i32::from(dir))?;
        Ok(i)
    }
}

fn own(i: &Arc<dyn Inode>) -> Result<Arc<LayerInode>> {
    downcast_arc(i).ok_or(EXDEV)
}

impl RootLayer {
    pub(super) fn caller(&self) -> Caller<'_> {
        Caller {
            cred: &self.cred,
            task: &(),
        }
    }
}

impl Inode for LayerInode {
    fn file_type(&self) -> FileType {
        self.kind
    }
    fn ext(&self) -> &InodeExt {
        &self.ext
    }
    fn stat(&self) -> Result<Stat> {
        let (upper, data_below) = {
            let s = self.state.read();
            (s.upper.clone(), s.data_below)
        };
        let mut s = match upper {
            None => self.lower()?.stat()?,
            Some(n) => {
                let mut s = n.stat()?;
                if data_below {
                    let b = self.lower()?.stat()?;
                    (s.size, s.blocks) = (b.size, b.blocks);
                }
                if self.kind == FileType::Directory && !self.lowers.is_empty() && s.nlink != 0 {
                    // As overlayfs says for merged directories: nobody counted.
                    s.nlink = 1;
                }
                s
            }
        };
        s.dev = self.fs.dev;
        s.ino = self.ino;
        Ok(s)
    }
    fn host_user(&self) -> Option<Arc<crate::ucounts::Ucounts>> {
        self.lowers.first()?.host_user()
    }
    fn stat_at_once(&self) -> Result<Stat> {
        let real = match self.upper() {
            Some(n) => n.stat_at_once()?,
            None => self.lower()?.stat_at_once()?,
        };
        Ok(self.stat()?.owned_as(&real))
    }
    fn acl(&self) -> Option<Arc<crate::acl::Acl>> {
        // It stays the file's when that is copied up: nothing here changes it.
        self.lowers.first()?.acl()
    }
    fn perm(&self) -> Result<Perm> {
        if let Some(n) = &self.state.read().upper {
            return n.perm();
        }
        self.lower()?.perm()
    }

    fn lookup(&self, cx: &Caller<'_>, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if let Some(known) = self.state.read().delta.get(name) {
            return Ok(known.clone().ok_or(ENOENT)?);
        }
        Ok(self.below(cx, name)?)
    }
    fn lookup_read_ahead(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        next: NextNames<'_>,
    ) -> Result<Looked> {
        let known = self.state.read().delta.contains_key(name);
        let (false, [below]) = (known, &self.lowers[..]) else {
            return Ok(Looked {
                inode: self.lookup(cx, name)?,
                read_ahead: Vec::new(),
                siblings: Vec::new(),
            });
        };
        if self.state.read().absent.contains(name) {
            return Err(ENOENT);
        }
        let found = below.lookup_read_ahead(cx, name, next).inspect_err(|e| {
            if *e == ENOENT {
                self.note_absent(name);
            }
        })?;
        let first = self.fs.wrap(vec![found.inode])?;
        let mut dir = first.clone();
        let mut read_ahead: Vec<crate::inode::ReadAhead> = Vec::new();
        for (name, inode) in found.read_ahead {
            // What changed up here is looked up when the walk gets there.
            if dir.lowers.len() != 1 || dir.state.read().delta.contains_key(&name[..]) {
                break;
            }
            let Some(inode) = inode else {
                read_ahead.push((name, None));
                break;
            };
            let i = self.fs.wrap(vec![inode])?;
            read_ahead.push((name, Some(i.clone())));
            dir = i;
        }
        let siblings = {
            let s = self.state.read();
            let mut found = found.siblings;
            found.retain(|(name, _)| !s.delta.contains_key(&name[..]));
            found
        };
        // Nobody has asked for these.
        let siblings = siblings.into_iter().filter_map(|(name, inode)| {
            let inode: Arc<dyn Inode> = self.fs.wrap(vec![inode]).ok()?;
            Some((name, inode))
        });
        Ok(Looked {
            inode: first,
            read_ahead,
            siblings: siblings.collect(),
        })
    }

    fn create(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.add(
            name,
            new_node(
                &self.fs,
                FileType::Regular,
                0,
                new,
                &[],
                Payer::Caller(cx.cred),
            )?,
        )
    }
    fn mkdir(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.add(
            name,
            new_node(
                &self.fs,
                FileType::Directory,
                0,
                new,
                &[],
                Payer::Caller(cx.cred),
            )?,
        )
    }
    fn mknod(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        rdev: u64,
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        self.add(
            name,
            new_node(&self.fs, kind, rdev, new, &[], Payer::Caller(cx.cred))?,
        )
    }
    fn symlink(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        target: &[u8],
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        self.add(
            name,
            new_node(
                &self.fs,
                FileType::Symlink,
                0,
                new,
                target,
                Payer::Caller(cx.cred),
            )?,
        )
    }
    fn tmpfile(&self, cx: &Caller<'_>, new: NewNode) -> Result<Arc<dyn Inode>> {
        let node = new_node(
            &self.fs,
            FileType::Regular,
            0,
            new,
            &[],
            Payer::Caller(cx.cred),
        )?;
        node.set_nlink(0);
        Ok(LayerInode::new_upper(&self.fs, node))
    }
    fn link(&self, cx: &Caller<'_>, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let t = own(target)?;
        let node = t.copy_up()?;
        self.copy_up()?;
        let memory = name_memory(cx, name)?;
        node.add_name()?;
        self.set_name(name, t.clone(), Some(memory))?;
        self.fs.pin(&t);
        self.modified(0)
    }
    fn unlink(&self, cx: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        let c = own(child)?;
        c.copy_up()?;
        self.clear_name(cx, name)?;
        c.lost_name()?;
        self.modified(0)
    }
    fn rmdir(&self, cx: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        let c = own(child)?;
        c.check_empty()?;
        c.copy_up()?;
        self.clear_name(cx, name)?;
        c.lost_name()?;
        self.modified(-1)
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
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(EINVAL);
        }
        let to = downcast::<LayerInode>(new_dir).ok_or(EXDEV)?;
        let c = own(child)?;
        let is_dir = |i: &LayerInode| i32::from(i.kind == FileType::Directory);
        // What can fail for lack of memory comes first.
        c.copy_up()?.add_links(0);
        self.copy_up()?;
        to.copy_up()?;
        if flags.contains(RenameFlags::EXCHANGE) {
            let t = own(target.ok_or(ENOENT)?)?;
            t.copy_up()?.add_links(0);
            let its = self.state.write().paid.remove(name);
            let others = to.state.write().paid.remove(new_name);
            self.set_name(name, t.clone(), others)?;
            to.set_name(new_name, c.clone(), its)?;
            self.modified(is_dir(&t) - is_dir(&c))?;
            return to.modified(is_dir(&c) - is_dir(&t));
        }
        let old = target.map(own).transpose()?;
        if let Some(t) = &old {
            if t.kind == FileType::Directory {
                t.check_empty()?;
            }
            t.copy_up()?;
        }
        let paid = self.clear_name(cx, name)?;
        to.set_name(new_name, c.clone(), paid)?;
        if let Some(t) = &old {
            t.lost_name()?;
        }
        self.modified(-is_dir(&c))?;
        to.modified(is_dir(&c) - old.map_or(0, |t| is_dir(&t)))
    }

    fn readlink(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        match self.upper() {
            Some(n) => n.readlink(cx),
            None => self.lower()?.readlink(cx),
        }
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Arc<dyn FileOps>> {
        if self.kind == FileType::Directory {
            return Ok(Arc::new(OpenOvlDir::new(self)));
        }
        if flags & O_ACCMODE != O_RDONLY {
            self.copy_up_data(u64::MAX)?;
        }
        let below = match self.data() {
            Some(_) => None,
            None => Some(self.lower()?.clone().open(cx, O_RDONLY)?),
        };
        Ok(Arc::new(OpenOvlFile { inode: self, below }))
    }
    fn set_attr(&self, cx: &Caller<'_>, a: &SetAttr) -> Result<()> {
        let node = match a.size {
            Some(size) => self.copy_up_data(size)?,
            None => self.copy_up()?,
        };
        node.set_attr(cx, a)?;
        if let Some(size) = a.size {
            let from = size.next_multiple_of(abi::PAGE_SIZE);
            self.mappings.truncated(from);
        }
        Ok(())
    }
    fn has_flags(&self) -> bool {
        matches!(self.kind, FileType::Regular | FileType::Directory)
    }
    fn set_flags(&self, flags: FileFlags) -> Result<()> {
        // Once it is copied up, this inode stays.
        self.copy_up()?.set_flags(flags)?;
        self.ext.set_flags(flags);
        Ok(())
    }
    fn touch(&self) {
        if let Some(n) = self.upper() {
            n.touch();
        }
    }
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        match self.upper() {
            Some(n) => n.get_xattr(name),
            None => self.lower()?.get_xattr(name),
        }
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.copy_up()?.set_xattr(name, value, flags)
    }
    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.get_xattr(name)?;
        self.copy_up()?.remove_xattr(name)
    }
    fn forget_capabilities(&self) {
        // Whatever calls this has copied the file up.
        if let Some(n) = self.upper() {
            n.forget_capabilities();
        }
    }
    fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        match self.upper() {
            Some(n) => n.list_xattr(),
            None => self.lower()?.list_xattr(),
        }
    }
}

impl LayerInode {
    fn take_children(&mut self) -> Vec<Arc<LayerInode>> {
        std::mem::take(&mut self.state.get_mut().delta)
            .into_values()
            .flatten()
            .collect()
    }
}

impl Drop for LayerInode {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.fs.forget(key);
        }
        self.forget_absent();
        // Not by recursion: directories nest as deep as the application likes.
        let mut stack = self.take_children();
        while let Some(i) = stack.pop() {
            if let Some(mut i) = Arc::into_inner(i) {
                stack.append(&mut i.take_children());
            }
        }
    }
}
