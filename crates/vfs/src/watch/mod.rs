//! Telling those who watch files (`inotify(7)`, [`dnotify`], `fanotify(7)`): Linux's
//! fsnotify.
//!
//! [`Watchers`] are attached to an inode when someone first watches it: they hold dnotify's
//! requests and fanotify's [`Marks`], and know inotify's list (`ipc::inotify::WatchList`), which is
//! attached beside them. Marks of a mount or a file system as a whole are attached to that. Nobody
//! watching anything on a file system costs one atomic load an operation.
//!
//! Who ends them: a watch or mark, its instance or group; dnotify's requests, a close of the file;
//! all of a file, the last user of its last name or the last mount of its file system (`kept`);
//! marks of a mount or a file system, the end of what they are of ([`Attachable::gone`]).

pub mod dnotify;
mod kept;
pub mod marks;

use crate::attachments::Attachable;
use crate::dentry::Dentry;
use crate::file::File;
use crate::inode::Inode;
use crate::mount::{Mount, Path};
use crate::notice::Place;
use abi::Result;
use dnotify::Requests;
pub use kept::Watched;
pub(crate) use kept::linked;
use kept::{Holders, keep, name_gone};
use marks::Marks;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};
use wait::Blocker;

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
pub const IN_UNMOUNT: u32 = 0x2000;
pub(crate) const IN_ISDIR: u32 = 0x4000_0000;
/// Of a file that has lost its name there; some do not want to hear of it.
pub const IN_EXCL_UNLINK: u32 = 0x0400_0000;
/// A program was opened to be run (fanotify's).
pub const FAN_OPEN_EXEC: u32 = 0x1000;
/// A name left the directory for another (fanotify's, dnotify's).
pub const FS_RENAME: u32 = 0x1000_0000;
/// Changes of a directory's names.
pub const DIRENT: u32 = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | FS_RENAME;
/// Who has marked may forbid it: opening, reading, opening to run.
pub const FAN_OPEN_PERM: u32 = 0x1_0000;
pub const FAN_ACCESS_PERM: u32 = 0x2_0000;
pub const FAN_OPEN_EXEC_PERM: u32 = 0x4_0000;

/// Who watches one inode by inotify.
pub trait Watcher: Attachable {
    /// Something happened to the inode (`name` empty), or to the entry `name` of the directory.
    /// `cookie` joins the two halves of a rename. Takes only leaf locks.
    fn event(&self, mask: u32, cookie: u32, name: &[u8]);
    /// The inode is gone: its watches end.
    fn end(&self);
}

/// Who watches one file.
#[derive(Default)]
pub struct Watchers {
    /// Set when the first such does.
    inotify: OnceLock<Arc<dyn Watcher>>,
    /// With a lock of its own.
    pub(crate) requests: Requests,
    /// With locks of its own; for its group, which holds it weakly.
    pub(crate) marks: Arc<Marks>,
}

impl Attachable for Watchers {}

impl Watchers {
    fn event(&self, mask: u32, cookie: u32, name: &[u8]) {
        const OTHERS: u32 = FS_RENAME | FAN_OPEN_EXEC;
        let only_others = mask & !(IN_ISDIR | IN_EXCL_UNLINK) & !OTHERS == 0;
        if let Some(w) = self.inotify.get().filter(|_| !only_others) {
            w.event(mask & !OTHERS, cookie, name);
        }
        self.requests.event(mask, name);
    }
    /// The file is gone, which is the last event.
    fn end(&self, event: u32) {
        if let Some(w) = self.inotify.get() {
            w.event(event, 0, b"");
            w.end();
        }
        self.marks.end();
    }
}

/// The watchers of the file at `p`, made if there are none.
fn watchers_at(p: &Path) -> Result<Arc<Watchers>> {
    let inode = p.inode()?;
    inode.is_used_at(&p.dentry);
    Ok(inode.ext().attachments.get_or_make())
}

/// Those that it has already.
fn existing(inode: &dyn Inode) -> Option<&Watchers> {
    inode.ext().attachments.get()
}

/// inotify's watcher of the file at `p`, made if it has none, and what keeps the file for the watch
/// that is to come.
pub fn watcher<T: Watcher + Default>(p: &Path) -> Result<(Arc<T>, Watched)> {
    let list = p.inode()?.ext().attachments.get_or_make::<T>();
    let (all, kept) = keep(p)?;
    all.inotify.get_or_init(|| list.clone());
    Ok((list, kept))
}

/// What happened.
#[derive(Clone, Copy)]
pub struct Happening<'a> {
    /// IN_ISDIR where it happened to a directory.
    pub mask: u32,
    /// To which file.
    pub what: &'a Arc<Dentry>,
    /// The directory in which, and the name there: of a change of names that directory, else the
    /// one that the file is in.
    pub dir: Option<(&'a Arc<Dentry>, &'a [u8])>,
    /// Of a rename, where it went.
    pub to: Option<(&'a Arc<Dentry>, &'a [u8])>,
    /// By which mount. Changes of attributes and names do not know.
    pub mnt: Option<&'a Arc<Mount>>,
}

impl<'a> Happening<'a> {
    const fn to(what: &'a Arc<Dentry>, mask: u32) -> Happening<'a> {
        Happening {
            mask,
            what,
            dir: None,
            to: None,
            mnt: None,
        }
    }
    /// Whether it is a change of a directory's names.
    #[must_use]
    pub const fn is_dirent(&self) -> bool {
        self.mask & DIRENT != 0
    }
    #[must_use]
    pub const fn is_to_dir(&self) -> bool {
        self.mask & IN_ISDIR != 0
    }
    fn tell(&self) {
        marks::tell(self);
    }
}

fn tell(d: &Dentry, mask: u32, cookie: u32, name: &[u8]) {
    if let Ok(i) = d.inode()
        && let Some(w) = existing(&**i)
    {
        w.event(mask, cookie, name);
    }
}

fn dir_bit(d: &Dentry) -> u32 {
    if d.is_dir() { IN_ISDIR } else { 0 }
}

/// `d` was changed or used: tells those who watch it, and those who watch its directory.
pub(crate) fn happened(d: &Arc<Dentry>, mask: u32) {
    happened_by(d, None, mask);
}

impl Place for Dentry {
    fn modified(self: Arc<Self>) {
        happened(&self, IN_MODIFY);
    }
}

/// The same of what was done by an open file, or an opening.
pub(crate) fn used(p: &Path, mask: u32) {
    happened_by(&p.dentry, Some(&p.mnt), mask);
}

fn happened_by(d: &Arc<Dentry>, mnt: Option<&Arc<Mount>>, mask: u32) {
    if !d.sb().is_watched() {
        return;
    }
    let mask = mask | dir_bit(d);
    let parent = d.parent();
    let name = d.name();
    if let Some(parent) = parent.as_ref() {
        let gone = if d.is_unhashed() { IN_EXCL_UNLINK } else { 0 };
        tell(parent, mask | gone, 0, &name);
    }
    tell(d, mask, 0, b"");
    Happening {
        dir: parent.as_ref().map(|p| (p, &*name)),
        mnt,
        ..Happening::to(d, mask)
    }
    .tell();
}

/// The file itself was changed, whatever its names.
pub(crate) fn changed(d: &Arc<Dentry>, mask: u32) {
    if d.sb().is_watched() {
        tell(d, mask, 0, b"");
        Happening::to(d, mask).tell();
    }
}

/// A change of names in `dir`.
fn names(dir: &Arc<Dentry>, child: &Arc<Dentry>, name: &[u8], mask: u32, cookie: u32) {
    let mask = mask | dir_bit(child);
    tell(dir, mask, cookie, name);
    Happening {
        dir: Some((dir, name)),
        ..Happening::to(child, mask)
    }
    .tell();
}

/// A name was made in `dir`.
pub(crate) fn created(dir: &Arc<Dentry>, child: &Arc<Dentry>) {
    if dir.sb().is_watched() {
        names(dir, child, &child.name(), IN_CREATE, 0);
    }
}

/// Whether anybody watches, after a name was taken or made: who adds a watch looks at the names
/// afterwards ([`kept`]).
fn is_watched_after(d: &Dentry) -> bool {
    fence(Ordering::SeqCst);
    d.sb().is_watched()
}

/// `child` was removed from `dir`; the caller holds it once.
pub(crate) fn removed(dir: &Arc<Dentry>, child: &Arc<Dentry>) {
    if !is_watched_after(dir) {
        return;
    }
    // One link less: the file's own watchers hear it first.
    if !child.is_dir() {
        changed(child, IN_ATTRIB);
    }
    name_gone(child, Holders::Caller);
    names(dir, child, &child.name(), IN_DELETE, 0);
}

/// The file of `d` is gone, and its watches end.
fn ended(d: &Arc<Dentry>) {
    Happening::to(d, IN_DELETE_SELF | dir_bit(d)).tell();
    if let Some(w) = d.inode().ok().and_then(|i| existing(&**i)) {
        w.end(IN_DELETE_SELF);
    }
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
    if !is_watched_after(from) {
        return;
    }
    let cookie = NEXT_COOKIE.fetch_add(1, Ordering::Relaxed);
    let (dir, new) = (dir_bit(child), child.name());
    if Arc::ptr_eq(from, to) {
        tell(from, FS_RENAME | dir, 0, old);
    }
    Happening {
        dir: Some((from, old)),
        to: Some((to, &new)),
        ..Happening::to(child, FS_RENAME | dir)
    }
    .tell();
    names(from, child, old, IN_MOVED_FROM, cookie);
    names(to, child, &new, IN_MOVED_TO, cookie);
    if let Some(t) = target.filter(|t| !t.is_dir()) {
        changed(t, IN_ATTRIB);
    }
    // IN_ISDIR does not go with what happens to a directory itself being moved.
    tell(child, IN_MOVE_SELF, 0, b"");
    Happening::to(child, IN_MOVE_SELF | dir).tell();
    if let Some(t) = target {
        name_gone(t, Holders::Others);
    }
}

/// Asks those who may forbid it, one after the other; the caller holds no lock, and waits as only
/// its end ends it.
pub(crate) fn may(p: &Path, mask: u32, blocker: &dyn Blocker) -> Result<()> {
    if !p.mnt.sb().may_be_forbidden() {
        return Ok(());
    }
    let (parent, name) = (p.dentry.parent(), p.dentry.name());
    let h = Happening {
        dir: parent.as_ref().map(|d| (d, &*name)),
        mnt: Some(&p.mnt),
        ..Happening::to(&p.dentry, mask | dir_bit(&p.dentry))
    };
    marks::ask(&h, blocker)
}

impl File {
    fn happened(&self, mask: u32) {
        if let Some(p) = &self.path
            && self.flags() & crate::file::O_PATH == 0
            && !self.is_quiet()
        {
            used(p, mask);
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
    /// Before something is read of it, by a caller that holds no lock.
    pub fn may_read(&self, blocker: &dyn Blocker) -> Result<()> {
        match &self.path {
            Some(p) if self.asks_before_reads() => may(p, FAN_ACCESS_PERM, blocker),
            _ => Ok(()),
        }
    }
}
