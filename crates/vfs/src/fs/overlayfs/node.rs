//! Files of an overlay: finding them in the layers, copying them up, changing names.

use super::open::{OpenUnionDir, OpenUnionFile};
use super::{Overlayfs, is_whiteout};
use crate::Stat;
use crate::caller::Caller;
use crate::context::{At, PathCx};
use crate::cred::Credentials;
use crate::file::{BufSink, BufSource, File, FileOps, O_ACCMODE, O_RDONLY, O_WRONLY};
use crate::inode::{FileFlags, Inode, InodeExt, NewNode, RenameFlags, SetAttr, downcast_arc};
use crate::mode::FileType;
use crate::mount::Path;
use crate::ops::file_flags;
use abi::Result;
use abi::errno::{
    EINVAL, EIO, ENODATA, ENOENT, ENOMEM, ENOTDIR, ENOTEMPTY, ENOTTY, EOPNOTSUPP, EOVERFLOW, EROFS,
    EXDEV,
};
use abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::sync::{Arc, Weak};

/// A file of an overlay.
pub struct OverlayNode {
    me: Weak<OverlayNode>,
    pub(super) fs: Arc<Overlayfs>,
    kind: FileType,
    ino: u64,
    /// Its directory and name there; `None` for the root, and when it has no name any more.
    place: Mutex<Option<(Arc<OverlayNode>, Vec<u8>)>>,
    is_root: bool,
    /// In the upper tree.
    upper: RwLock<Option<Path>>,
    /// What lies below: nothing, a file, or directories that are merged, topmost first.
    lowers: Vec<Path>,
    copying: Mutex<()>,
    ext: InodeExt,
}

/// Bytes that a copy-up moves at once.
const CHUNK: usize = 256 << 10;

pub(super) struct Entry {
    pub name: Vec<u8>,
    pub ino: u64,
    pub kind: u8,
}

/// Opens a layer's file for the overlay itself, which holds locks: it waits for nobody's lease or
/// permission, and nobody hears of it.
fn open_layer(cx: &PathCx<'_>, p: Path, flags: u32) -> Result<Arc<File>> {
    let ops = p.inode()?.clone().open(&cx.caller, flags)?;
    let file = File::new(ops, flags, Some(p), cx.cred().clone());
    file.set_quiet();
    Ok(file)
}

impl OverlayNode {
    pub(super) fn root(
        fs: &Arc<Overlayfs>,
        upper: Option<Path>,
        lowers: Vec<Path>,
    ) -> Result<Arc<OverlayNode>> {
        Self::make(fs, None, upper, lowers)
    }
    fn make(
        fs: &Arc<Overlayfs>,
        place: Option<(Arc<OverlayNode>, Vec<u8>)>,
        upper: Option<Path>,
        lowers: Vec<Path>,
    ) -> Result<Arc<OverlayNode>> {
        let real = upper.as_ref().or(lowers.first()).ok_or(ENOENT)?;
        let s = real.inode()?.stat()?;
        let key = (s.dev, s.ino);
        let kind = real.inode()?.file_type();
        let mut all = fs.inodes.lock();
        // Another name of a file that is in the upper tree.
        if kind != FileType::Directory
            && upper.is_some()
            && let Some(n) = all.get(&key).and_then(Weak::upgrade)
        {
            return Ok(n);
        }
        let from = lowers.first().unwrap_or(real).inode()?.stat()?;
        let ino = fs.number(from.dev, from.ino);
        let protected = fs.protection(&**real.inode()?);
        let flags = real.inode()?.ext().flags() | protected;
        let n = Arc::new_cyclic(|me| OverlayNode {
            me: me.clone(),
            fs: fs.clone(),
            kind,
            ino,
            is_root: place.is_none(),
            place: Mutex::new(place),
            upper: RwLock::new(upper),
            lowers,
            copying: Mutex::new(()),
            ext: InodeExt::default(),
        });
        n.ext.set_flags(flags);
        if all.len() > 64 && all.len() == all.capacity() {
            all.retain(|_, w| w.strong_count() > 0);
        }
        all.insert(key, Arc::downgrade(&n));
        Ok(n)
    }
    /// Where it is in the upper tree, if it is.
    pub(super) fn upper(&self) -> Option<Path> {
        self.upper.read().clone()
    }
    /// Where it is now.
    fn real(&self) -> Result<Path> {
        self.upper()
            .or_else(|| self.lowers.first().cloned())
            .ok_or(ENOENT)
    }
    fn node(i: &Arc<dyn Inode>) -> Result<Arc<OverlayNode>> {
        downcast_arc::<OverlayNode>(i).ok_or(EXDEV)
    }
    /// Whether a layer below has the name.
    fn is_below(&self, name: &[u8]) -> bool {
        for l in &self.lowers {
            if let Ok(p) = self.fs.find(l, name) {
                return !is_whiteout(&p);
            }
        }
        false
    }
    /// Takes a whiteout away from the upper tree; gives whether there was one.
    fn uncover(&self, dir: &Path, name: &[u8]) -> Result<bool> {
        match self.fs.find(dir, name) {
            Ok(p) if is_whiteout(&p) => {
                self.fs.with(|cx| cx.unlink(&self.fs.at(dir), name))?;
                Ok(true)
            }
            Ok(_) | Err(ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }
    fn whiteout(&self, dir: &Path, name: &[u8]) -> Result<()> {
        let at = self.fs.at(dir);
        self.fs
            .with(|cx| cx.mknod(&at, name, 0o20_000, 0))
            .map(|_| ())
    }
    fn set_opaque(&self, p: &Path) -> Result<()> {
        p.inode()?.set_xattr(self.fs.opaque, b"y", 0)
    }

    /// Brings it into the upper tree; gives the place there.
    pub(super) fn copy_up(&self) -> Result<Path> {
        if let Some(p) = self.upper() {
            return Ok(p);
        }
        // Its directories first. Not by recursion: they nest as deep as the application likes.
        let mut above = Vec::new();
        let mut at = self.parent()?;
        while at.upper().is_none() {
            let next = at.parent()?;
            above.push(std::mem::replace(&mut at, next));
        }
        for dir in above.iter().rev() {
            dir.copy_up_here()?;
        }
        self.copy_up_here()
    }
    fn parent(&self) -> Result<Arc<OverlayNode>> {
        // There are none above the root, which has its place in the upper tree if there is one.
        self.fs.work.as_ref().ok_or(EROFS)?;
        let place = self.place.lock();
        place.as_ref().map(|p| p.0.clone()).ok_or(ENOENT)
    }
    /// As [`OverlayNode::copy_up`]; its directory is there already.
    fn copy_up_here(&self) -> Result<Path> {
        let work = self.fs.work.clone().ok_or(EROFS)?;
        let (parent, name) = self.place.lock().clone().ok_or(ENOENT)?;
        let dir = parent.upper().ok_or(ENOENT)?;
        let _c = self.copying.lock();
        if let Some(p) = self.upper() {
            return Ok(p);
        }
        let lower = self.lowers.first().ok_or(ENOENT)?;
        let (at, temporary) = (self.fs.at(&work), self.fs.temporary());
        let made = self.fs.with(|cx| self.copy(cx, lower, &at, &temporary));
        let moved = made.and_then(|()| {
            let to = self.fs.at(&dir);
            self.fs.with(|cx| cx.rename(&at, &temporary, &to, &name, 0))
        });
        if let Err(e) = moved {
            let _ = self.fs.with(|cx| match self.kind {
                FileType::Directory => cx.rmdir(&at, &temporary),
                _ => cx.unlink(&at, &temporary),
            });
            return Err(e);
        }
        let p = self.fs.find(&dir, &name)?;
        *self.upper.write() = Some(p.clone());
        if let (Ok(s), Some(me)) = (p.inode()?.stat(), self.me.upgrade()) {
            self.fs
                .inodes
                .lock()
                .insert((s.dev, s.ino), Arc::downgrade(&me));
        }
        Ok(p)
    }
    /// Makes the copy in the working directory.
    fn copy(&self, cx: &PathCx<'_>, lower: &Path, at: &At, name: &[u8]) -> Result<()> {
        let from = lower.inode()?;
        let s = from.stat()?;
        // No files of users that are nobody to the mounter.
        let ns = &cx.cred().user_ns;
        if ns.uid_number(s.uid).is_none() || ns.gid_number(s.gid).is_none() {
            return Err(EOVERFLOW);
        }
        if self.kind == FileType::Regular {
            self.fs.may_read(&**from)?;
        }
        match self.kind {
            FileType::Directory => {
                cx.mkdir(at, name, 0o700)?;
            }
            FileType::Regular => {
                let to = cx.mknod(at, name, FileType::Regular.bits() | 0o600, 0)?;
                let to = open_layer(cx, to, O_WRONLY)?;
                let file = open_layer(cx, lower.clone(), O_RDONLY)?;
                let mut buf = vec![0u8; CHUNK.min((s.size as usize).max(4096))];
                let mut done = 0u64;
                loop {
                    let mut sink = BufSink::new(&mut buf);
                    let n = file.ops.read(&file, &mut sink, done)?;
                    if n == 0 {
                        break;
                    }
                    let mut put = 0;
                    while put < n {
                        let mut src = BufSource::new(&buf[put..n]);
                        match to.ops.write(&to, &mut src, done + put as u64)? {
                            0 => return Err(EIO),
                            w => put += w,
                        }
                    }
                    done += n as u64;
                }
            }
            FileType::Symlink => cx.symlink(&from.readlink(&cx.caller)?, at, name)?,
            _ => {
                cx.mknod(at, name, s.mode & !0o7777 | 0o600, s.rdev)?;
            }
        }
        let p = cx.resolve(at, name, crate::walk::Walk::empty())?;
        let to = p.inode()?;
        for x in from.list_xattr()? {
            if !self.is_mark(&x) {
                to.set_xattr(&x, &from.get_xattr(&x)?, 0)?;
            }
        }
        if !self.ext.flags().is_empty() {
            match self.fs.keep_flags(&**to, self.ext.flags()) {
                // The upper tree has none.
                Err(ENOTTY | EOPNOTSUPP) | Ok(()) => {}
                Err(e) => return Err(e),
            }
        }
        let link = self.kind == FileType::Symlink;
        // The copy has no ACL.
        let mode = from.acl().map_or(s.mode, |a| a.without(s.mode));
        cx.chown(at, name, Some(s.uid), Some(s.gid), AT_SYMLINK_NOFOLLOW)?;
        to.set_attr(
            &cx.caller,
            &SetAttr {
                mode: (!link).then_some(mode & 0o7777),
                atime: Some(s.atime),
                mtime: Some(s.mtime),
                ..SetAttr::default()
            },
        )
    }
    /// The file in the upper tree, if it has no flags that forbid to change it: who has that tree
    /// may have given it some.
    fn changeable(&self) -> Result<Path> {
        let p = self.copy_up()?;
        file_flags::may_change(&**p.inode()?)?;
        Ok(p)
    }
    /// An attribute of overlayfs itself.
    fn is_mark(&self, name: &[u8]) -> bool {
        let space = self.fs.opaque.len() - b"opaque".len();
        name.starts_with(&self.fs.opaque[..space])
    }

    /// Makes a new file under a name that there is none of.
    fn add(
        &self,
        name: &[u8],
        kind: FileType,
        new: NewNode,
        make: impl FnOnce(&PathCx<'_>, &At) -> Result<()>,
    ) -> Result<Arc<dyn Inode>> {
        let dir = self.copy_up()?;
        let at = self.fs.at(&dir);
        let covered = self.uncover(&dir, name)?;
        // It is the caller's, made with the mounter's rights.
        let cred = Arc::new(Credentials {
            fsuid: new.uid,
            fsgid: new.gid,
            ..Credentials::clone(&self.fs.cred)
        });
        let made = self.fs.with_cred(&cred, |cx| make(cx, &at));
        if let Err(e) = made {
            if covered {
                let _ = self.whiteout(&dir, name);
            }
            return Err(e);
        }
        let p = self.fs.find(&dir, name)?;
        if kind == FileType::Directory && (covered || self.is_below(name)) {
            self.set_opaque(&p)?;
        }
        let i = p.inode()?;
        let s = i.stat()?;
        let mode = (kind != FileType::Symlink && s.mode & 0o7777 != new.mode).then_some(new.mode);
        let gid = (s.gid != new.gid).then_some(new.gid);
        if mode.is_some() || gid.is_some() {
            i.set_attr(
                &self.fs.caller(),
                &SetAttr {
                    mode,
                    gid,
                    ..SetAttr::default()
                },
            )?;
        }
        let me = self.me.upgrade().ok_or(ENOENT)?;
        let n = Self::make(&self.fs, Some((me, name.to_vec())), Some(p), Vec::new())?;
        Ok(n)
    }

    /// Every name that shows.
    pub(super) fn entries(&self) -> Result<Vec<Entry>> {
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        let mut all = Vec::new();
        let layers = self.upper().into_iter().chain(self.lowers.iter().cloned());
        for l in layers {
            let dev = l.inode()?.stat()?.dev;
            for e in self.names(&l)? {
                if !seen.insert(e.name.clone()) {
                    continue;
                }
                if e.kind == FileType::Char.dt()
                    && self.fs.find(&l, &e.name).is_ok_and(|p| is_whiteout(&p))
                {
                    continue;
                }
                let ino = self.fs.number(dev, e.ino);
                all.push(Entry { ino, ..e });
            }
        }
        Ok(all)
    }
    /// The names of one layer's directory: as many as the mounter has memory for, since a program
    /// may serve a layer, and tell names without end.
    fn names(&self, dir: &Path) -> Result<Vec<Entry>> {
        let inode = dir.inode()?;
        self.fs.may_read(&**inode)?;
        let ops = inode
            .clone()
            .open(&self.fs.caller(), crate::file::O_DIRECTORY)?;
        let file = File::new(
            ops,
            crate::file::O_DIRECTORY,
            Some(dir.clone()),
            self.fs.cred.clone(),
        );
        /// What is charged at once, bytes.
        const STEP: usize = 64 << 10;
        let (mut pos, mut found) = (0, Vec::new());
        let (mut charges, mut room) = (Vec::new(), 0);
        loop {
            let before = pos;
            let mut full = false;
            file.ops.read_dir(&file, &mut pos, &mut |e| {
                let bytes = size_of::<Entry>() + e.name.len();
                if room < bytes {
                    match self.fs.cred.kmem(STEP, ENOMEM) {
                        Ok(c) => charges.push(c),
                        Err(_) => {
                            full = true;
                            return false;
                        }
                    }
                    room += STEP;
                }
                room -= bytes;
                if e.name != b"." && e.name != b".." {
                    found.push(Entry {
                        name: e.name.to_vec(),
                        ino: e.ino,
                        kind: e.kind,
                    });
                }
                true
            })?;
            if full {
                return Err(ENOMEM);
            }
            if pos == before {
                return Ok(found);
            }
        }
    }
    /// Removes a directory, in which nothing shows, from the upper tree.
    fn remove_dir(&self, dir: &Path, name: &[u8]) -> Result<()> {
        if let Some(p) = self.upper() {
            for e in self.names(&p)? {
                self.fs.with(|cx| cx.unlink(&self.fs.at(&p), &e.name))?;
            }
            self.fs.with(|cx| cx.rmdir(&self.fs.at(dir), name))?;
        }
        Ok(())
    }
    fn is_placeless(&self) -> bool {
        !self.is_root && self.place.lock().is_none()
    }
    fn moved(&self, dir: &OverlayNode, name: &[u8]) {
        if let Some(d) = dir.me.upgrade() {
            *self.place.lock() = Some((d, name.to_vec()));
        }
    }
}

impl Inode for OverlayNode {
    fn host_user(&self) -> Option<Arc<crate::ucounts::Ucounts>> {
        self.real().ok()?.inode().ok()?.host_user()
    }
    fn file_type(&self) -> FileType {
        self.kind
    }
    fn ext(&self) -> &InodeExt {
        &self.ext
    }
    fn stat(&self) -> Result<Stat> {
        let s = self.real()?.inode()?.stat()?;
        let merged = self.kind == FileType::Directory && !self.lowers.is_empty();
        // A file that is open and has no name any more is counted so.
        let gone = self.is_placeless() && self.upper().is_none();
        Ok(Stat {
            dev: self.fs.dev,
            ino: self.ino,
            nlink: match (gone, merged) {
                (true, _) => 0,
                (_, true) => 1,
                _ => s.nlink,
            },
            ..s
        })
    }
    fn is_nameless(&self) -> Result<bool> {
        // The count of a directory that is in several trees is always 1.
        if self.kind == FileType::Directory {
            return Ok(self.is_placeless());
        }
        Ok(self.stat()?.nlink == 0)
    }
    fn stat_at_once(&self) -> Result<Stat> {
        let real = self.real()?.inode()?.stat_at_once()?;
        Ok(self.stat()?.owned_as(&real))
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let (mut upper, mut lowers, mut more) = (None, Vec::new(), true);
        if let Some(u) = self.upper() {
            match self.fs.find(&u, name) {
                Ok(p) if is_whiteout(&p) => return Err(ENOENT),
                Ok(p) => {
                    more = p.is_dir() && !self.fs.is_opaque(&p);
                    upper = Some(p);
                }
                Err(ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        for l in self
            .lowers
            .iter()
            .filter(|_| self.kind == FileType::Directory)
        {
            if !more {
                break;
            }
            match self.fs.find(l, name) {
                Ok(p) if is_whiteout(&p) => break,
                Ok(p) if p.is_dir() => {
                    more = !self.fs.is_opaque(&p);
                    lowers.push(p);
                }
                Ok(p) => {
                    if upper.is_none() && lowers.is_empty() {
                        lowers.push(p);
                    }
                    break;
                }
                Err(ENOENT | ENOTDIR) => {}
                Err(e) => return Err(e),
            }
        }
        if upper.is_none() && lowers.is_empty() {
            return Err(ENOENT);
        }
        let me = self.me.upgrade().ok_or(ENOENT)?;
        let n = Self::make(&self.fs, Some((me, name.to_vec())), upper, lowers)?;
        Ok(n)
    }
    fn create(&self, _: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.add(name, FileType::Regular, new, |cx, at| {
            let mode = FileType::Regular.bits() | new.mode;
            cx.mknod(at, name, mode, 0).map(|_| ())
        })
    }
    fn mkdir(&self, _: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.add(name, FileType::Directory, new, |cx, at| {
            cx.mkdir(at, name, new.mode).map(|_| ())
        })
    }
    fn mknod(
        &self,
        _: &Caller<'_>,
        name: &[u8],
        kind: FileType,
        rdev: u64,
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        // It would be a whiteout.
        if kind == FileType::Char && rdev == 0 {
            return Err(abi::errno::EPERM);
        }
        self.add(name, kind, new, |cx, at| {
            cx.mknod(at, name, kind.bits() | new.mode, rdev).map(|_| ())
        })
    }
    fn symlink(
        &self,
        _: &Caller<'_>,
        name: &[u8],
        target: &[u8],
        new: NewNode,
    ) -> Result<Arc<dyn Inode>> {
        self.add(name, FileType::Symlink, new, |cx, at| {
            cx.symlink(target, at, name)
        })
    }
    fn link(&self, _: &Caller<'_>, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let from = Self::node(target)?.copy_up()?;
        let dir = self.copy_up()?;
        let covered = self.uncover(&dir, name)?;
        let (old, new) = (self.fs.at(&from), self.fs.at(&dir));
        let r = self
            .fs
            .with(|cx| cx.link(&old, b"", &new, name, AT_EMPTY_PATH));
        if r.is_err() && covered {
            let _ = self.whiteout(&dir, name);
        }
        r
    }
    fn unlink(&self, _: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        let child = Self::node(child)?;
        let dir = self.copy_up()?;
        if child.upper().is_some() {
            self.fs.with(|cx| cx.unlink(&self.fs.at(&dir), name))?;
        }
        if self.is_below(name) {
            self.whiteout(&dir, name)?;
        }
        *child.place.lock() = None;
        Ok(())
    }
    fn rmdir(&self, _: &Caller<'_>, name: &[u8], child: &Arc<dyn Inode>) -> Result<()> {
        let child = Self::node(child)?;
        if !child.entries()?.is_empty() {
            return Err(ENOTEMPTY);
        }
        let dir = self.copy_up()?;
        child.remove_dir(&dir, name)?;
        if self.is_below(name) {
            self.whiteout(&dir, name)?;
        }
        *child.place.lock() = None;
        Ok(())
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
        let (child, to) = (Self::node(child)?, Self::node(new_dir)?);
        let target = target.map(Self::node).transpose()?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let fixed = |n: &OverlayNode| n.kind == FileType::Directory && !n.lowers.is_empty();
        if fixed(&child) || exchange && target.as_ref().is_some_and(|t| fixed(t)) {
            return Err(EXDEV);
        }
        let (old, new) = (self.copy_up()?, to.copy_up()?);
        let source = child.copy_up()?;
        let (old_at, new_at) = (self.fs.at(&old), self.fs.at(&new));
        let (was_below, is_below) = (self.is_below(name), to.is_below(new_name));
        if child.kind == FileType::Directory && is_below {
            self.set_opaque(&source)?;
        }
        if exchange {
            let other = target.ok_or(ENOENT)?;
            let p = other.copy_up()?;
            if other.kind == FileType::Directory && was_below {
                self.set_opaque(&p)?;
            }
            self.fs.with(|cx| {
                cx.rename(
                    &old_at,
                    name,
                    &new_at,
                    new_name,
                    RenameFlags::EXCHANGE.bits(),
                )
            })?;
            child.moved(&to, new_name);
            other.moved(self, name);
            return Ok(());
        }
        if let Some(t) = &target
            && t.kind == FileType::Directory
        {
            if !t.entries()?.is_empty() {
                return Err(ENOTEMPTY);
            }
            t.remove_dir(&new, new_name)?;
        }
        let covered = child.kind == FileType::Directory && to.uncover(&new, new_name)?;
        let r = self
            .fs
            .with(|cx| cx.rename(&old_at, name, &new_at, new_name, 0));
        if let Err(e) = r {
            if covered {
                let _ = to.whiteout(&new, new_name);
            }
            return Err(e);
        }
        if was_below {
            self.whiteout(&old, name)?;
        }
        if let Some(t) = target {
            *t.place.lock() = None;
        }
        child.moved(&to, new_name);
        Ok(())
    }
    fn readlink(&self, _: &Caller<'_>) -> Result<Vec<u8>> {
        self.real()?.inode()?.readlink(&self.fs.caller())
    }
    fn open(self: Arc<Self>, _: &Caller<'_>, flags: u32) -> Result<Arc<dyn FileOps>> {
        if self.kind == FileType::Directory {
            return Ok(Arc::new(OpenUnionDir::new(self)));
        }
        let real = if flags & O_ACCMODE == O_RDONLY && flags & crate::file::O_TRUNC == 0 {
            self.real()?
        } else {
            self.copy_up()?
        };
        let inode = real.inode()?;
        if flags & O_ACCMODE != O_WRONLY {
            self.fs.may_read(&**inode)?;
        }
        // It may have flags that who has the upper tree gave it.
        if flags & O_ACCMODE != O_RDONLY {
            file_flags::not_immutable(&**inode)?;
        }
        let ops = inode.clone().open(&self.fs.caller(), flags)?;
        let cred = self.fs.cred.clone();
        Ok(Arc::new(OpenUnionFile {
            real: File::new(ops, flags, Some(real), cred),
            copied: Default::default(),
            inode: self,
        }))
    }
    fn set_attr(&self, _: &Caller<'_>, a: &SetAttr) -> Result<()> {
        self.changeable()?.inode()?.set_attr(&self.fs.caller(), a)
    }
    fn has_flags(&self) -> bool {
        let real = self.real();
        real.is_ok_and(|p| p.inode().is_ok_and(|i| i.has_flags()))
    }
    fn set_flags(&self, flags: FileFlags) -> Result<()> {
        self.fs.keep_flags(&**self.copy_up()?.inode()?, flags)?;
        self.ext.set_flags(flags);
        Ok(())
    }
    fn acl(&self) -> Option<Arc<crate::acl::Acl>> {
        self.real().ok()?.inode().ok()?.acl()
    }
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if self.is_mark(name) {
            return Err(ENODATA);
        }
        self.real()?.inode()?.get_xattr(name)
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        if self.is_mark(name) {
            return Err(abi::errno::EPERM);
        }
        self.changeable()?.inode()?.set_xattr(name, value, flags)
    }
    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        if self.is_mark(name) {
            return Err(abi::errno::EPERM);
        }
        // What is not there needs no copy.
        self.get_xattr(name)?;
        self.changeable()?.inode()?.remove_xattr(name)
    }
    fn forget_capabilities(&self) {
        if let Ok(p) = self.real()
            && let Ok(i) = p.inode()
        {
            i.forget_capabilities();
        }
    }
    fn list_xattr(&self) -> Result<Vec<Vec<u8>>> {
        let mut v = self.real()?.inode()?.list_xattr()?;
        v.retain(|n| !self.is_mark(n));
        Ok(v)
    }
}
