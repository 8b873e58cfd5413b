//! Telling those who watch files (`inotify(7)`): Linux's fsnotify.
//!
//! An inode holds at most one [`Watcher`], made when someone first watches it. Nobody watching
//! anything on a file system costs one atomic load an operation.

use crate::dentry::Dentry;
use crate::file::File;
use crate::inode::Watcher;
use crate::mode::FileType;
use crate::mount::Path;
use abi::Result;
use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

pub const IN_ACCESS: u32 = 0x1;
pub const IN_MODIFY: u32 = 0x2;
pub const IN_ATTRIB: u32 = 0x4;
pub const IN_CLOSE_WRITE: u32 = 0x8;
pub const IN_CLOSE_NOWRITE: u32 = 0x10;
pub const IN_OPEN: u32 = 0x20;
pub const IN_MOVED_FROM: u32 = 0x40;
pub const IN_MOVED_TO: u32 = 0x80;
pub const IN_CREATE: u32 = 0x100;
pub const IN_DELETE: u32 = 0x200;
pub const IN_DELETE_SELF: u32 = 0x400;
pub const IN_MOVE_SELF: u32 = 0x800;
const IN_ISDIR: u32 = 0x4000_0000;

/// A watched file stays in memory as long as there is one of these, and so do its watches. Dropped
/// without locks: it may be what keeps the file. By default of no file.
#[derive(Default)]
pub struct Watched(Weak<Dentry>);

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(d) = self.0.upgrade() {
            d.sb().drop_watched(&d);
        }
    }
}

/// The watcher of the file at `p`, made by `make` if it has none, and what keeps the file for the
/// watch that is to come.
pub fn watcher<T: Watcher>(
    p: &Path,
    make: impl FnOnce() -> Arc<T>,
) -> Result<Option<(Arc<T>, Watched)>> {
    let inode = p.inode()?;
    let w = inode.ext().watcher.get_or_init(|| make()).clone();
    inode.is_watched_by(&w);
    p.mnt.sb().keep_watched(&p.dentry);
    let kept = Watched(Arc::downgrade(&p.dentry));
    let any: Arc<dyn Any + Send + Sync> = w;
    Ok(any.downcast().ok().map(|w| (w, kept)))
}

fn tell(d: &Dentry, mask: u32, cookie: u32, name: &[u8]) {
    if let Ok(i) = d.inode()
        && let Some(w) = i.ext().watcher.get()
    {
        w.event(mask, cookie, name);
    }
}

fn dir_bit(d: &Dentry) -> u32 {
    if d.file_type() == Some(FileType::Directory) {
        IN_ISDIR
    } else {
        0
    }
}

/// `d` was changed or used: tells those who watch it, and those who watch its directory.
pub(crate) fn happened(d: &Arc<Dentry>, mask: u32) {
    if !d.sb().is_watched() {
        return;
    }
    let mask = mask | dir_bit(d);
    if let Some(parent) = d.parent().filter(|_| !d.is_unhashed()) {
        tell(&parent, mask, 0, &d.name());
    }
    tell(d, mask, 0, b"");
}

/// A name was made in `dir`.
pub(crate) fn created(dir: &Arc<Dentry>, child: &Arc<Dentry>) {
    if dir.sb().is_watched() {
        tell(dir, IN_CREATE | dir_bit(child), 0, &child.name());
    }
}

/// `child` was removed from `dir`.
pub(crate) fn removed(dir: &Arc<Dentry>, child: &Arc<Dentry>) {
    if !dir.sb().is_watched() {
        return;
    }
    // One link less: the file's own watchers hear it first.
    if child.file_type() != Some(FileType::Directory) {
        tell(child, IN_ATTRIB, 0, b"");
    }
    tell(dir, IN_DELETE | dir_bit(child), 0, &child.name());
    gone(child);
}

/// A name of `child` went; the last one ends its watches.
fn gone(child: &Arc<Dentry>) {
    let Ok(inode) = child.inode() else { return };
    let Some(w) = inode.ext().watcher.get() else {
        return;
    };
    if inode
        .stat()
        .is_ok_and(|s| s.nlink > 0 && inode.file_type() != FileType::Directory)
    {
        return;
    }
    w.event(IN_DELETE_SELF, 0, b"");
    w.end();
}

static NEXT_COOKIE: AtomicU32 = AtomicU32::new(1);

/// `child` moved from `old` in `from` to where it is now, over `target`.
pub(crate) fn moved(
    from: &Arc<Dentry>,
    old: &[u8],
    to: &Arc<Dentry>,
    child: &Arc<Dentry>,
    target: Option<&Arc<Dentry>>,
) {
    if !from.sb().is_watched() {
        return;
    }
    let cookie = NEXT_COOKIE.fetch_add(1, Ordering::Relaxed);
    let dir = dir_bit(child);
    tell(from, IN_MOVED_FROM | dir, cookie, old);
    tell(to, IN_MOVED_TO | dir, cookie, &child.name());
    // IN_ISDIR does not go with what happens to a directory itself being moved.
    tell(child, IN_MOVE_SELF, 0, b"");
    if let Some(t) = target {
        if t.file_type() != Some(FileType::Directory) {
            tell(t, IN_ATTRIB, 0, b"");
        }
        gone(t);
    }
}

impl File {
    fn happened(&self, mask: u32) {
        if let Some(p) = &self.path
            && self.flags() & crate::file::O_PATH == 0
        {
            happened(&p.dentry, mask);
        }
    }
    /// Something was read: for those who read through `ops` themselves (pread).
    pub fn accessed(&self) {
        self.happened(IN_ACCESS);
    }
    /// Something was written.
    pub fn modified(&self) {
        self.happened(IN_MODIFY);
    }
    pub(crate) fn closed(&self) {
        self.happened(if self.writable() {
            IN_CLOSE_WRITE
        } else {
            IN_CLOSE_NOWRITE
        });
    }
}
