//! Telling those who watch inodes (`inotify(7)`; Linux's `fsnotify`).
//!
//! An inode that is watched holds an [`InodeWatch`]. Operations call [`changed`] and its kin after they
//! succeeded, with no lock held. A super block without any watch costs one load.

use crate::dentry::Dentry;
use crate::inode::Inode;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
pub const IN_ISDIR: u32 = 0x4000_0000;

/// Who watches one inode.
pub trait InodeWatch: Send + Sync {
    /// `name`: of the entry in this directory, empty for the inode itself. `cookie` joins the two halves of
    /// a rename.
    fn event(&self, mask: u32, cookie: u32, name: &[u8]);
    /// The inode is gone for good.
    fn end(&self);
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

fn is_quiet(d: &Dentry) -> bool {
    !d.sb().watched.load(Ordering::Relaxed)
}

fn tell(inode: &Arc<dyn Inode>, mask: u32, cookie: u32, name: &[u8]) {
    if let Some(w) = inode.ext().watch.get() {
        w.event(mask, cookie, name);
    }
}

fn dir_bit(d: &Dentry) -> u32 {
    if d.is_dir() { IN_ISDIR } else { 0 }
}

/// Something happened to what `d` names: the directory it is in hears of it, then the inode itself.
pub fn changed(d: &Dentry, mask: u32) {
    if is_quiet(d) {
        return;
    }
    let mask = mask | dir_bit(d);
    if let Some(p) = d.parent()
        && let Ok(i) = p.inode()
    {
        tell(i, mask, 0, &d.name());
    }
    if let Ok(i) = d.inode() {
        tell(i, mask, 0, &[]);
    }
}

/// Something happened to the inode alone.
pub fn inode_changed(d: &Dentry, mask: u32) {
    if !is_quiet(d)
        && let Ok(i) = d.inode()
    {
        tell(i, mask | dir_bit(d), 0, &[]);
    }
}

/// A name was made in (IN_CREATE) or removed from (IN_DELETE) a directory.
pub fn entry(dir: &Dentry, name: &[u8], is_dir: IsDir, mask: u32) {
    if is_quiet(dir) {
        return;
    }
    if let Ok(i) = dir.inode() {
        tell(i, mask | if is_dir == IsDir::Yes { IN_ISDIR } else { 0 }, 0, name);
    }
}

/// A removed name was the last: IN_DELETE_SELF, and the watches end. Linux waits for the last descriptor to
/// be closed too; here an open file's watch ends at its unlink.
pub fn gone(d: &Dentry) {
    if is_quiet(d) {
        return;
    }
    let Ok(i) = d.inode() else { return };
    if let Some(w) = i.ext().watch.get()
        && i.stat().map_or(true, |s| s.nlink == 0 || d.is_dir())
    {
        w.event(IN_DELETE_SELF, 0, &[]);
        w.end();
    }
}

/// Whether an entry is a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsDir {
    No,
    Yes,
}

impl IsDir {
    #[must_use]
    pub fn of(d: &Dentry) -> IsDir {
        if d.is_dir() { IsDir::Yes } else { IsDir::No }
    }
}

static NEXT_COOKIE: AtomicU32 = AtomicU32::new(1);

/// `d` was renamed from `old` in `from` to `new` in `to`.
pub fn moved(from: &Dentry, old: &[u8], to: &Dentry, new: &[u8], d: &Dentry) {
    if is_quiet(d) {
        return;
    }
    let cookie = NEXT_COOKIE.fetch_add(1, Ordering::Relaxed);
    let dir = dir_bit(d);
    if let (Ok(f), Ok(t)) = (from.inode(), to.inode()) {
        tell(f, IN_MOVED_FROM | dir, cookie, old);
        tell(t, IN_MOVED_TO | dir, cookie, new);
    }
    // IN_ISDIR does not go with the events of the inode itself.
    if let Ok(i) = d.inode() {
        tell(i, IN_MOVE_SELF, 0, &[]);
    }
}
