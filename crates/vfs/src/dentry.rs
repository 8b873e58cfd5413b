//! The cache of names.
//!
//! A [`Dentry`] is a name in a directory: with an inode, or *negative* (known to be missing). A
//! dentry holds its parent; a parent knows its children weakly. What keeps unused dentries alive is
//! the ring of their [`SuperBlock`], bounded, with a second chance for those that were used (clock
//! replacement). So a dentry that anyone holds is the only one of its name, which is what mounts
//! and working directories rest on, and memory is bounded whatever an application looks up.
//!
//! A dentry's inode never changes: making a file replaces the negative dentry, and removing one
//! takes the dentry out of its directory ("unhashed") and leaves the inode to those who still hold
//! it.

use crate::attachments::Attachments;
use crate::caller::Caller;
use crate::inode::{Inode, NextNames, ReadAhead, Seen};
use crate::mode::{FileType, Want};
use crate::userns::UserNs;
use abi::Result;
pub use abi::attr::StatFs;
use abi::errno::{ELOOP, ENOENT};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// How far a file system's names may be remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// Nobody else changes names: found and missing ones are kept.
    Owned,
    /// Others change names: each use asks [`Inode::revalidate`]. Whether a name is there is what
    /// making it tells.
    Revalidate,
    /// As `Revalidate`, and a name is looked for before it is made.
    Asked,
    /// Names are generated: as `Revalidate`, and unused dentries are not kept.
    Never,
}

/// A file system as a whole.
pub trait FileSystem: Any + Send + Sync {
    /// As in `/proc/filesystems`.
    fn name(&self) -> &'static str;
    /// What of its kind it is, shown behind the name (`fuse.sshfs`).
    fn subtype(&self) -> Option<&str> {
        None
    }
    fn stat_fs(&self) -> Result<StatFs>;
    /// `f_type` alone, without asking who serves it.
    fn magic(&self) -> Result<u64> {
        Ok(self.stat_fs()?.magic)
    }
    fn caching(&self) -> Caching {
        Caching::Owned
    }
    /// Whether names that are missing are worth remembering: not where a look costs as little
    /// (Linux's `simple_dentry_operations`).
    fn remembers_missing(&self) -> bool {
        true
    }
    /// Dentries that are kept though nobody uses them: no more are added than this says then.
    fn max_cached(&self) -> usize {
        1 << 15
    }
    /// Forgets what it remembers of files in use without need; their unused dentries are gone.
    fn shrink(&self) {}
    /// Writes everything back.
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    /// The options of its own for `/proc/mounts`, each with a comma before it: `,size=64k`. What a
    /// user named is escaped ([`crate::params::Params::shown`]).
    fn options(&self) -> String {
        String::new()
    }
    /// Where its root lies in what it is a part of: a bind mount's, of the host's file system.
    /// Empty for `/`.
    fn shown_root(&self) -> &str {
        ""
    }
    /// `mount -o remount` with new options.
    fn remount(&self, _data: &str) -> Result<()> {
        Ok(())
    }
    /// How many file systems made of others it is a stack of (`s_stack_depth`).
    fn stack_depth(&self) -> u32 {
        0
    }
    /// The number by which [`FileSystem::find`] finds a file again; `None` where files have no
    /// handles.
    fn handle(&self, _file: &dyn Inode) -> Option<u64> {
        None
    }
    /// The names that lead from the root to the file with this number, whoever may read them.
    fn find(&self, _root: &dyn Inode, _number: u64) -> Option<Vec<Arc<[u8]>>> {
        None
    }
    /// The last mount of it went: let go of what would keep it alive.
    fn shut_down(&self) {}
    /// It is unmounted by force (`umount_begin`): who waits for it is to wait no longer.
    fn abort(&self) {}
    /// Whether files on it may be executed or opened as devices (proc says no).
    fn no_exec(&self) -> bool {
        false
    }
}

/// Those that remember names. A leaf; lists of ended ones are cleared when it is full.
static SUPER_BLOCKS: Mutex<Vec<Weak<SuperBlock>>> = Mutex::new(Vec::new());

/// Forgets the unused dentries of all file systems (`drop_caches`).
pub fn shrink_all() {
    let all: Vec<_> = SUPER_BLOCKS
        .lock()
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    for sb in all {
        sb.shrink();
    }
}

/// A mounted file system's share of the VFS.
pub struct SuperBlock {
    /// `st_dev`.
    pub dev: u64,
    pub fs: Arc<dyn FileSystem>,
    caching: Caching,
    remembers_missing: bool,
    /// `mount -o ro` of the file system as a whole.
    read_only: AtomicBool,
    /// The mounter's user namespace (`s_user_ns`).
    owner: OnceLock<UserNs>,
    /// Held while a dentry moves to another directory.
    rename_lock: Mutex<()>,
    ring: Mutex<Ring>,
    /// Watches and marks of it, its mounts and its files that there are now. Atomic: who makes the
    /// first looks afterwards at what others change.
    watches: AtomicUsize,
    /// Told of files whose last users go, from the first watch on.
    unused: OnceLock<fn(Unused)>,
    /// [`crate::watch::marks::Marks`] of it as a whole, and what keeps its files for their watches.
    pub(crate) attachments: Attachments,
    /// Marks of it and its files whose groups may forbid what is done with them.
    forbidders: AtomicUsize,
    /// Files that are open for writing by its mounts. Atomic, as [`crate::Mount`]'s.
    writers: AtomicUsize,
    /// Mounts of it. When the last goes, the ring is emptied: it would hold the super block for
    /// ever.
    mounts: AtomicUsize,
}

impl SuperBlock {
    /// The users that may change it as a whole.
    #[must_use]
    pub fn owner(&self) -> UserNs {
        self.owner.get().cloned().unwrap_or_default()
    }
    /// Once, when it is first mounted.
    pub fn set_owner(&self, user: &UserNs) {
        let _ = self.owner.set(user.clone());
    }
    #[must_use]
    pub fn new(dev: u64, fs: Arc<dyn FileSystem>) -> Arc<SuperBlock> {
        let caching = fs.caching();
        let remembers_missing = caching == Caching::Owned && fs.remembers_missing();
        let sb = Arc::new(SuperBlock {
            dev,
            fs,
            caching,
            remembers_missing,
            read_only: AtomicBool::new(false),
            owner: OnceLock::new(),
            rename_lock: Mutex::new(()),
            ring: Mutex::default(),
            watches: AtomicUsize::new(0),
            unused: OnceLock::new(),
            attachments: Attachments::default(),
            forbidders: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            mounts: AtomicUsize::new(0),
        });
        if caching != Caching::Never {
            let mut all = SUPER_BLOCKS.lock();
            if all.len() == all.capacity() {
                all.retain(|s| s.strong_count() != 0);
            }
            all.push(Arc::downgrade(&sb));
        }
        sb
    }
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }
    pub fn set_read_only(&self, ro: ReadOnly) {
        self.read_only.store(ro == ReadOnly::Yes, Ordering::Relaxed);
    }
    pub(crate) fn lock_rename(&self) -> MutexGuard<'_, ()> {
        self.rename_lock.lock()
    }
    pub(crate) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
    }
    pub(crate) fn drop_writer(&self) {
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }
    /// Whether a file is open for writing by a mount of it.
    pub(crate) fn has_writers(&self) -> bool {
        self.writers.load(Ordering::SeqCst) != 0
    }
    pub(crate) fn mounted(&self) {
        self.mounts.fetch_add(1, Ordering::AcqRel);
    }
    pub(crate) fn unmounted(&self) {
        if self.mounts.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.attachments.gone();
            self.shrink();
            self.fs.shut_down();
        }
    }
    /// Whether it is mounted anywhere.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.mounts.load(Ordering::Acquire) != 0
    }
    /// Whether others change names here, too, so that a name is asked for again.
    pub(crate) fn revalidates(&self) -> bool {
        matches!(self.caching, Caching::Revalidate | Caching::Asked)
    }
    /// Whether making a name tells whether it is there, so that it need not be looked for.
    pub(crate) fn tells_by_making(&self) -> bool {
        self.caching == Caching::Revalidate
    }
    /// Forgets all unused dentries, and what the file system remembers beside them.
    pub fn shrink(&self) {
        let gone = std::mem::take(&mut *self.ring.lock());
        for d in gone.slots.iter().flatten() {
            d.slot.store(NO_SLOT, Ordering::Relaxed);
        }
        // `gone` goes without the lock: what drops with it may take long.
        drop(gone);
        self.fs.shrink();
    }
    /// Whether anybody watches anything of it.
    pub(crate) fn is_watched(&self) -> bool {
        self.watches.load(Ordering::Relaxed) != 0
    }
    /// One watch more; `unused` is told of files whose last users go.
    pub(crate) fn begin_watch(&self, unused: fn(Unused)) {
        self.unused.get_or_init(|| unused);
        self.watches.fetch_add(1, Ordering::SeqCst);
    }
    pub(crate) fn end_watch(&self) {
        self.watches.fetch_sub(1, Ordering::SeqCst);
    }
    pub(crate) fn add_forbidder(&self) {
        self.forbidders.fetch_add(1, Ordering::SeqCst);
    }
    pub(crate) fn drop_forbidder(&self) {
        self.forbidders.fetch_sub(1, Ordering::SeqCst);
    }
    /// Whether somebody may forbid what is done with its files.
    pub(crate) fn may_be_forbidden(&self) -> bool {
        self.forbidders.load(Ordering::SeqCst) != 0
    }
    fn keep(&self, d: &Arc<Dentry>) {
        if self.caching == Caching::Never {
            return;
        }
        let max = self.fs.max_cached().max(16);
        let _gone = self.ring.lock().insert(d, max);
    }
    /// An unhashed dentry lives only as long as its users: its file's memory goes with them.
    fn let_go(&self, d: &Dentry) {
        let _gone = self.ring.lock().remove(d);
    }
}

const NO_SLOT: usize = usize::MAX;

/// The dentries that are kept, in a ring that a hand goes around (clock replacement).
#[derive(Default)]
struct Ring {
    slots: Vec<Option<Arc<Dentry>>>,
    free: Vec<usize>,
    hand: usize,
}

impl Ring {
    /// Puts a dentry in; gives the one that had to go.
    fn insert(&mut self, d: &Arc<Dentry>, max: usize) -> Option<Arc<Dentry>> {
        let mut gone = None;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < max => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => {
                // Each used dentry gets one more round; bounded, so that one insertion stays cheap.
                for _ in 0..64 {
                    self.hand = (self.hand + 1) % self.slots.len();
                    let used = |d: &Arc<Dentry>| d.used.swap(false, Ordering::Relaxed);
                    if !self.slots[self.hand].as_ref().is_some_and(used) {
                        break;
                    }
                }
                gone = self.slots[self.hand].take();
                if let Some(g) = &gone {
                    g.slot.store(NO_SLOT, Ordering::Relaxed);
                }
                self.hand
            }
        };
        d.slot.store(slot, Ordering::Relaxed);
        self.slots[slot] = Some(d.clone());
        gone
    }
    fn remove(&mut self, d: &Dentry) -> Option<Arc<Dentry>> {
        let slot = d.slot.swap(NO_SLOT, Ordering::Relaxed);
        let gone = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(gone)
    }
}

/// Whether something may not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOnly {
    No,
    Yes,
}

struct Place {
    /// `None` for a root, and for files without a name.
    parent: Option<Arc<Dentry>>,
    name: Arc<[u8]>,
}

/// A file whose last user by a name that was removed is gone.
pub(crate) struct Unused {
    pub sb: Arc<SuperBlock>,
    pub inode: Arc<dyn Inode>,
    pub name: Arc<[u8]>,
}

/// A name in a directory.
pub struct Dentry {
    /// Immutable.
    sb: Arc<SuperBlock>,
    /// Immutable; `None`: known to be missing.
    inode: Option<Arc<dyn Inode>>,
    /// Changed under the `dir_lock` of each directory that it leaves or comes to. A leaf.
    place: RwLock<Place>,
    /// It is in its directory no more. Set under the directory's `dir_lock`; stays so.
    unhashed: AtomicBool,
    /// Nobody need be told when its last user goes. Set by who knows that, in [`crate::watch`].
    pub(crate) quiet: AtomicBool,
    /// For the ring's second chance. Atomic: it only guides.
    used: AtomicBool,
    /// Where it is in the super block's ring; changed under the ring's lock.
    slot: AtomicUsize,
    /// Mounts on it, in any namespace. Changed under the mount lock, or when a tree that nobody has
    /// any more ends.
    pub(crate) mounts: AtomicUsize,
    /// Changed under `dir_lock`, but for entries whose dentry is gone. A leaf.
    children: RwLock<HashMap<Box<[u8]>, Weak<Dentry>>>,
    /// Changes of this directory, and look-ups that miss.
    dir_lock: Mutex<()>,
    /// Only of directories in which much is looked up. A leaf.
    siblings: Mutex<Option<Box<Siblings>>>,
    /// Names that were looked up here and not known. Atomic: it only guides.
    unknown: AtomicU32,
}

/// Which siblings of a name were read ahead, for a program that goes through all of a directory:
/// twice as many the next time where half of them were used, else half as many.
struct Siblings {
    window: usize,
    last: Vec<Weak<Dentry>>,
}

impl Siblings {
    /// Looks in one directory before which nothing is guessed.
    const AFTER: u32 = 8;
    const LEAST: usize = 4;
    const MOST: usize = 31;

    /// How many at the next look, which is the `n`th.
    fn next(&mut self, n: u32) -> usize {
        let last = std::mem::take(&mut self.last);
        let used = |d: &Weak<Dentry>| d.upgrade().is_some_and(|d| d.used.load(Ordering::Relaxed));
        if !last.is_empty() {
            let used = last.iter().filter(|d| used(d)).count();
            self.window = if used * 2 >= last.len() {
                (self.window * 2).min(Self::MOST)
            } else {
                self.window / 2
            };
        }
        if self.window == 0 && n.is_multiple_of(64) {
            self.window = Self::LEAST;
        }
        self.window
    }
}

impl Dentry {
    fn make(sb: &Arc<SuperBlock>, inode: Option<Arc<dyn Inode>>, place: Place) -> Arc<Dentry> {
        Arc::new(Dentry {
            sb: sb.clone(),
            inode,
            place: RwLock::new(place),
            unhashed: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            used: AtomicBool::new(false),
            slot: AtomicUsize::new(NO_SLOT),
            mounts: AtomicUsize::new(0),
            children: RwLock::new(HashMap::new()),
            dir_lock: Mutex::new(()),
            siblings: Mutex::default(),
            unknown: AtomicU32::new(0),
        })
    }
    /// A file system's root.
    #[must_use]
    pub fn new_root(sb: &Arc<SuperBlock>, inode: Arc<dyn Inode>) -> Arc<Dentry> {
        Self::make(
            sb,
            Some(inode),
            Place {
                parent: None,
                name: Arc::from(&b"/"[..]),
            },
        )
    }
    /// A file without a name in any directory; `name` is what `/proc` shows.
    #[must_use]
    pub fn new_unnamed(sb: &Arc<SuperBlock>, inode: Arc<dyn Inode>, name: &[u8]) -> Arc<Dentry> {
        let d = Self::make(
            sb,
            Some(inode),
            Place {
                parent: None,
                name: Arc::from(name),
            },
        );
        d.unhashed.store(true, Ordering::Release);
        d
    }
    /// As [`Dentry::new_unnamed`], with a directory as its parent: what `O_TMPFILE` makes.
    #[must_use]
    pub fn new_unnamed_in(dir: &Arc<Dentry>, inode: Arc<dyn Inode>, name: &[u8]) -> Arc<Dentry> {
        let place = Place {
            parent: Some(dir.clone()),
            name: Arc::from(name),
        };
        let d = Self::make(&dir.sb, Some(inode), place);
        d.unhashed.store(true, Ordering::Release);
        d
    }
    #[must_use]
    pub fn sb(&self) -> &Arc<SuperBlock> {
        &self.sb
    }
    /// The file; `ENOENT` for a negative dentry.
    pub fn inode(&self) -> Result<&Arc<dyn Inode>> {
        self.inode.as_ref().ok_or(ENOENT)
    }
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.inode.is_none()
    }
    #[must_use]
    pub fn file_type(&self) -> Option<FileType> {
        self.inode.as_ref().map(|i| i.file_type())
    }
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }
    #[must_use]
    pub fn parent(&self) -> Option<Arc<Dentry>> {
        self.place.read().parent.clone()
    }
    #[must_use]
    pub fn name(&self) -> Arc<[u8]> {
        self.place.read().name.clone()
    }
    /// Whether its name was removed.
    #[must_use]
    pub fn is_unhashed(&self) -> bool {
        self.unhashed.load(Ordering::Acquire)
    }
    #[must_use]
    pub fn is_mountpoint(&self) -> bool {
        self.mounts.load(Ordering::Acquire) != 0
    }
    /// Whether `self` is `other` or lies below it.
    #[must_use]
    pub fn is_below(self: &Arc<Self>, other: &Arc<Dentry>) -> bool {
        let mut d = self.clone();
        loop {
            if Arc::ptr_eq(&d, other) {
                return true;
            }
            match d.parent() {
                Some(p) => d = p,
                None => return false,
            }
        }
    }
    /// Locks the directory against changes of its names.
    pub(crate) fn lock_dir(&self) -> MutexGuard<'_, ()> {
        self.dir_lock.lock()
    }

    fn cached(&self, name: &[u8]) -> Option<Arc<Dentry>> {
        self.children.read().get(name)?.upgrade()
    }

    /// A cached child that is still true.
    fn cached_valid(&self, cx: &Caller<'_>, name: &[u8]) -> Option<Arc<Dentry>> {
        let d = self.cached(name)?;
        let valid = self.sb.caching == Caching::Owned
            || d.is_mountpoint()
            || self.inode.as_ref()?.revalidate(cx, name, d.inode.as_ref());
        if valid {
            d.used.store(true, Ordering::Relaxed);
            Some(d)
        } else {
            self.detach(&d);
            None
        }
    }

    /// The child of this name, negative where there is none. The caller has checked the name and
    /// the permission to search.
    pub fn lookup(self: &Arc<Self>, cx: &Caller<'_>, name: &[u8]) -> Result<Arc<Dentry>> {
        if let Some(d) = self.cached_valid(cx, name) {
            return Ok(d);
        }
        let _dir = self.lock_dir();
        self.look(cx, name, NextNames::default())
    }

    /// As [`Dentry::lookup`], for a step of a walk, with permission to search. The caller has
    /// checked that it is a directory, and the name.
    pub fn search(
        self: &Arc<Self>,
        cx: &Caller<'_>,
        name: &[u8],
        next: NextNames<'_>,
    ) -> Result<Arc<Dentry>> {
        let inode = self.inode()?;
        let cached = self.cached(name);
        let sure = |d: &Arc<Dentry>| self.sb.caching == Caching::Owned || d.is_mountpoint();
        if self.sb.caching == Caching::Owned || cached.as_ref().is_some_and(sure) {
            inode.permission(cx, Want::EXEC)?;
            if let Some(d) = cached {
                d.used.store(true, Ordering::Relaxed);
                return Ok(d);
            }
        } else {
            let child = cached.as_ref().and_then(|d| d.inode.as_ref());
            let seen = inode.search(cx, name, child)?;
            match (cached, seen) {
                (Some(d), Seen::Same) => {
                    d.used.store(true, Ordering::Relaxed);
                    return Ok(d);
                }
                (Some(d), _) => self.detach(&d),
                (None, _) => {}
            }
            if seen == Seen::Missing {
                return Ok(self.missing(name));
            }
        }
        let _dir = self.lock_dir();
        self.look(cx, name, next)
    }

    /// What is known to be there under this name without asking anybody, where names are not owned.
    pub(crate) fn peek(&self, name: &[u8]) -> Option<Arc<Dentry>> {
        let d = self.cached(name)?;
        let here =
            d.is_mountpoint() || self.inode.as_ref()?.peek(name, d.inode.as_ref()) == Seen::Same;
        here.then_some(d)
    }

    /// A name that is missing now, and not remembered.
    fn missing(self: &Arc<Self>, name: &[u8]) -> Arc<Dentry> {
        let place = Place {
            parent: Some(self.clone()),
            name: Arc::from(name),
        };
        Self::make(&self.sb, None, place)
    }

    /// As [`Dentry::lookup`], with this directory's lock held.
    pub(crate) fn lookup_locked(
        self: &Arc<Self>,
        cx: &Caller<'_>,
        name: &[u8],
    ) -> Result<Arc<Dentry>> {
        self.look(cx, name, NextNames::default())
    }

    fn look(
        self: &Arc<Self>,
        cx: &Caller<'_>,
        name: &[u8],
        next: NextNames<'_>,
    ) -> Result<Arc<Dentry>> {
        if let Some(d) = self.cached_valid(cx, name) {
            return Ok(d);
        }
        let owned = self.sb.caching == Caching::Owned;
        let siblings = if owned { self.sibling_count() } else { 0 };
        let next = NextNames { siblings, ..next };
        match self.inode()?.lookup_read_ahead(cx, name, next) {
            // A directory below itself would be a chain without end.
            Ok(found) if self.is_served_within(&found.inode) => Err(ELOOP),
            Ok(found) => {
                let d = self.attach(name, Some(found.inode));
                d.used.store(true, Ordering::Relaxed);
                if owned {
                    self.attach_siblings(found.siblings);
                    d.attach_read_ahead(found.read_ahead);
                }
                Ok(d)
            }
            Err(ENOENT) if self.sb.remembers_missing && !self.is_unhashed() => {
                Ok(self.attach(name, None))
            }
            Err(ENOENT) => Ok(self.missing(name)),
            Err(e) => Err(e),
        }
    }

    /// Whether it is this directory's, or lies below it, where a program says what is where.
    fn is_served_within(self: &Arc<Self>, dir: &Arc<dyn Inode>) -> bool {
        if self.sb.caching != Caching::Asked || dir.file_type() != FileType::Directory {
            return false;
        }
        let mut at = Some(self.clone());
        while let Some(d) = at {
            if d.inode.as_ref().is_some_and(|i| Arc::ptr_eq(i, dir)) {
                return true;
            }
            at = d.parent();
        }
        false
    }

    /// How many siblings may be read ahead with a name that is not known.
    fn sibling_count(&self) -> usize {
        let n = self.unknown.fetch_add(1, Ordering::Relaxed);
        if n < Siblings::AFTER {
            return 0;
        }
        let mut siblings = self.siblings.lock();
        let first = || {
            Box::new(Siblings {
                window: Siblings::LEAST,
                last: Vec::new(),
            })
        };
        siblings.get_or_insert_with(first).next(n)
    }

    /// Caches what was read ahead. This directory's lock is held.
    fn attach_siblings(self: &Arc<Self>, siblings: Vec<(Vec<u8>, Arc<dyn Inode>)>) {
        if siblings.is_empty() {
            return;
        }
        let mut last = Vec::with_capacity(siblings.len());
        for (name, inode) in siblings {
            if self.cached(&name).is_none() {
                last.push(Arc::downgrade(&self.attach(&name, Some(inode))));
            }
        }
        if let Some(n) = &mut *self.siblings.lock() {
            n.last = last;
        }
    }

    /// Caches what was looked up below this new dentry. (Its parent's lock is held: an ancestor's
    /// first.)
    fn attach_read_ahead(self: &Arc<Self>, read_ahead: Vec<ReadAhead>) {
        let mut d = self.clone();
        for (name, inode) in read_ahead {
            let next = {
                let _dir = d.lock_dir();
                if d.cached(&name).is_some() {
                    break;
                }
                d.attach(&name, inode)
            };
            if next.is_negative() {
                break;
            }
            d = next;
        }
    }

    /// Puts `name` with its inode into this directory, in the place of what was known of it.
    pub(crate) fn attach(
        self: &Arc<Self>,
        name: &[u8],
        inode: Option<Arc<dyn Inode>>,
    ) -> Arc<Dentry> {
        let place = Place {
            parent: Some(self.clone()),
            name: Arc::from(name),
        };
        let d = Self::make(&self.sb, inode, place);
        let old = self
            .children
            .write()
            .insert(name.into(), Arc::downgrade(&d));
        if let Some(old) = old.and_then(|w| w.upgrade()) {
            old.unhash();
        }
        self.sb.keep(&d);
        d
    }

    fn unhash(&self) {
        self.unhashed.store(true, Ordering::Release);
        self.sb.let_go(self);
    }

    /// Takes `child` out of this directory: its name is gone, its file lives on with those who hold
    /// it.
    pub(crate) fn detach(&self, child: &Arc<Dentry>) {
        child.unhash();
        let name = child.name();
        let mut children = self.children.write();
        if children
            .get(&*name)
            .is_some_and(|w| w.as_ptr() == Arc::as_ptr(child))
        {
            children.remove(&*name);
        }
    }

    /// After a removal: `child` goes, and names that are worth it are remembered as missing. A
    /// directory's lock is held.
    pub(crate) fn removed(self: &Arc<Self>, child: &Arc<Dentry>) {
        let name = child.name();
        self.detach(child);
        child.forget_missing();
        if self.sb.remembers_missing && !self.is_unhashed() {
            self.attach(&name, None);
        }
    }

    /// After a rename: `child` is `name` of `new_dir` now. Both directories are locked.
    pub(crate) fn moved(self: &Arc<Self>, child: &Arc<Dentry>, new_dir: &Arc<Dentry>, name: &[u8]) {
        let old = child.name();
        {
            let mut children = self.children.write();
            if children
                .get(&*old)
                .is_some_and(|w| w.as_ptr() == Arc::as_ptr(child))
            {
                children.remove(&*old);
            }
        }
        let before = std::mem::replace(
            &mut *child.place.write(),
            Place {
                parent: Some(new_dir.clone()),
                name: Arc::from(name),
            },
        );
        let replaced = new_dir
            .children
            .write()
            .insert(name.into(), Arc::downgrade(child));
        if let Some(r) = replaced.and_then(|w| w.upgrade())
            && !Arc::ptr_eq(&r, child)
        {
            r.unhash();
            r.forget_missing();
        }
        if self.sb.remembers_missing && !self.is_unhashed() && self.cached(&old).is_none() {
            self.attach(&old, None);
        }
        drop(before);
    }

    /// After an exchange: each has the other's place.
    pub(crate) fn exchanged(a: &Arc<Dentry>, b: &Arc<Dentry>) {
        let (pa, pb) = (a.parent(), b.parent());
        let (na, nb) = (a.name(), b.name());
        *a.place.write() = Place {
            parent: pb.clone(),
            name: nb.clone(),
        };
        *b.place.write() = Place {
            parent: pa.clone(),
            name: na.clone(),
        };
        if let Some(p) = pa {
            p.children.write().insert((&*na).into(), Arc::downgrade(b));
        }
        if let Some(p) = pb {
            p.children.write().insert((&*nb).into(), Arc::downgrade(a));
        }
    }

    /// Forgets what is known of one name.
    pub(crate) fn forget(&self, name: &[u8]) {
        if let Some(d) = self.cached(name) {
            self.detach(&d);
        }
    }

    /// What was remembered of a directory that is gone, and empty: it would keep the directory and
    /// its inode. No more comes, since the directory is unhashed.
    fn forget_missing(&self) {
        if self.is_dir() {
            self.forget_children();
        }
    }

    /// Forgets what is known of the directory's names, where they changed behind the VFS's back.
    pub fn forget_children(&self) {
        let all: Vec<Arc<Dentry>> = self
            .children
            .read()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for d in all {
            if !d.is_mountpoint() {
                self.detach(&d);
            }
        }
    }
}

impl Drop for Dentry {
    fn drop(&mut self) {
        self.end_use();
        // Not by recursion: an application can nest directories without limit.
        let mut next = self.leave();
        while let Some(parent) = next {
            next = Arc::into_inner(parent).and_then(|mut p| p.leave());
        }
    }
}

impl Dentry {
    /// Its last user went: who watches the file may have to hear that it is gone (Linux's
    /// `dentry_unlink_inode`).
    fn end_use(&mut self) {
        if !self.sb.is_watched() || !*self.unhashed.get_mut() || *self.quiet.get_mut() {
            return;
        }
        if let Some(tell) = self.sb.unused.get()
            && let Some(inode) = self.inode.take()
        {
            tell(Unused {
                sb: self.sb.clone(),
                inode,
                name: self.place.get_mut().name.clone(),
            });
        }
    }

    /// Takes itself out of its parent's children and gives the parent.
    fn leave(&mut self) -> Option<Arc<Dentry>> {
        let place = self.place.get_mut();
        let parent = place.parent.take()?;
        let mut children = parent.children.write();
        // Only a dead entry: it is ours, or another dead one's, and not a younger dentry's of the
        // same name.
        if children
            .get(&*place.name)
            .is_some_and(|w| w.strong_count() == 0)
        {
            children.remove(&*place.name);
        }
        drop(children);
        Some(parent)
    }
}
