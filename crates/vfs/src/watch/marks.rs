//! Marks: what a group (of `fanotify(7)`) wants to hear of a file, a mount or a file system
//! (Linux's `fs/notify/fsnotify.c`, `mark.c` and the first half of `fanotify.c`).
//!
//! What happened is told to a group once, with all of its marks that it concerns: those of the
//! file, of its directory, of the mount and of the file system. Each may ask for events, and each
//! may have some ignored.
//!
//! Invariants:
//! - [`Marks::all`] is what any mark of the list is interested in: where an event is not, the list
//!   is not looked at.
//! - A mark is in one list, and its group knows it; it leaves both at once, or its list ended,
//!   which the group is told (also when a file leaves memory that an evictable mark did not keep).
//! - A list's lock is taken before its marks', which are leaves; nothing is told under them. Groups
//!   are told under whatever locks those hold to whom it happened; they are asked without any.

use super::kept::Counted;
use super::{
    FAN_ACCESS_PERM, FAN_OPEN_EXEC_PERM, FAN_OPEN_PERM, FS_RENAME, Happening, IN_ISDIR, IN_MODIFY,
    Watched, existing, keep, watchers_at,
};
use crate::attachments::Attachable;
use crate::dentry::SuperBlock;
use crate::mode::FileType;
use crate::mount::Path;
use abi::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use wait::Blocker;

/// A mark of a directory is one of the files in it, too.
pub const ON_CHILD: u32 = 0x0800_0000;
/// Flags among events: what they say is when the others hold.
const FLAGS: u32 = ON_CHILD | IN_ISDIR;
/// Flags of fanotify_init(2) by which a group hears of files, or of the directories they are in.
pub const REPORT_FID: u32 = 0x200;
pub const REPORT_DIR_FID: u32 = 0x400;
pub const REPORT_NAME: u32 = 0x800;
pub const REPORT_TARGET_FID: u32 = 0x1000;
pub const REPORT_ANY_FID: u32 = REPORT_FID | REPORT_DIR_FID | REPORT_NAME | REPORT_TARGET_FID;
/// Events that wait for an answer.
pub const PERMISSION: u32 = FAN_OPEN_PERM | FAN_ACCESS_PERM | FAN_OPEN_EXEC_PERM;

/// By which of its marks a group hears of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Via {
    /// The file's, or of a change of names the directory's.
    Inode,
    /// The directory's that the file is in.
    Parent,
    Mount,
    FileSystem,
    /// The directory's to which a file was renamed.
    Target,
}

bitflags::bitflags! {
    /// Which marks matched.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Matched: u8 {
        const INODE = 1 << Via::Inode as u8;
        const PARENT = 1 << Via::Parent as u8;
        const MOUNT = 1 << Via::Mount as u8;
        const FILE_SYSTEM = 1 << Via::FileSystem as u8;
        const TARGET = 1 << Via::Target as u8;
    }
}

/// Who hears of it.
pub trait Group: Send + Sync {
    /// Those of fanotify_init(2).
    fn flags(&self) -> u32;
    /// Who has a higher number is told first.
    fn priority(&self) -> u8;
    /// It happened, and these events of it concern the group. May run under any lock but its own.
    fn tell(&self, h: &Happening<'_>, events: u32, matched: Matched, fsid: u64);
    /// It is about to happen; the group's answer.
    fn ask(&self, h: &Happening<'_>, events: u32, fsid: u64, blocker: &dyn Blocker) -> Result<()>;
    /// What was marked is gone. May run under any lock but its own.
    fn forget(&self, mark: &Arc<Mark>);
}

/// What a mark asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asks {
    pub events: u32,
    pub ignored: u32,
    /// What is ignored stays so when the file is modified.
    pub survives: bool,
    /// `ignored` has flags of its own (FAN_MARK_IGNORE).
    pub own_flags: bool,
    /// The file need not stay in memory.
    pub evictable: bool,
}

impl Asks {
    /// `fsnotify_calc_mask`.
    fn interest(&self) -> u32 {
        let mut all = self.events;
        if self.ignored & !FLAGS != 0 {
            all |= self.ignored;
            if !self.survives {
                all |= IN_MODIFY;
            }
        }
        all
    }
    /// `fsnotify_effective_ignore_mask`.
    fn ignores(&self, to_dir: bool, via: Via) -> u32 {
        let events = self.ignored & !FLAGS;
        if events == 0 || !to_dir && via != Via::Parent {
            return events;
        }
        let flags = match self.own_flags {
            true => self.ignored,
            false => IN_ISDIR | self.events & ON_CHILD,
        };
        if applies(flags, to_dir, via) {
            events
        } else {
            0
        }
    }
}

/// Whether a mask holds for what happened there (`fsnotify_mask_applicable`).
const fn applies(mask: u32, to_dir: bool, via: Via) -> bool {
    !(to_dir && mask & IN_ISDIR == 0 || matches!(via, Via::Parent) && mask & ON_CHILD == 0)
}

/// A file system's marks of groups that may forbid.
struct Forbids(Weak<SuperBlock>);

impl Forbids {
    fn new(sb: &Arc<SuperBlock>) -> Forbids {
        sb.add_forbidder();
        Forbids(Arc::downgrade(sb))
    }
}

impl Drop for Forbids {
    fn drop(&mut self) {
        if let Some(sb) = self.0.upgrade() {
            sb.drop_forbidder();
        }
    }
}

/// One group's interest in one thing.
pub struct Mark {
    /// A number of its own, for its group.
    pub number: u64,
    pub group: Weak<dyn Group>,
    /// The file system's number, as the group is told it.
    pub fsid: u64,
    list: Weak<Marks>,
    /// Changed under the list's lock, too. A leaf.
    asks: Mutex<Asks>,
    _counted: Counted,
    _forbids: Option<Forbids>,
}

impl Mark {
    #[must_use]
    pub fn asks(&self) -> Asks {
        *self.asks.lock()
    }
    /// Changes what it asks for.
    pub fn change<R>(&self, f: impl FnOnce(&mut Asks) -> R) -> R {
        let Some(all) = self.list.upgrade() else {
            return f(&mut self.asks.lock());
        };
        let list = all.list.lock();
        let r = f(&mut self.asks.lock());
        all.recount(&list);
        r
    }
    /// Takes it out of its list.
    pub fn detach(self: &Arc<Self>) {
        if let Some(all) = self.list.upgrade() {
            let mut list = all.list.lock();
            list.retain(|m| !Arc::ptr_eq(m, self));
            all.recount(&list);
        }
    }
}

static NEXT_MARK: AtomicU64 = AtomicU64::new(0);

/// The marks of one thing. Their groups hear of its end.
#[derive(Default)]
pub struct Marks {
    /// Stored under the list's lock; who asks before an event needs none.
    all: AtomicU32,
    /// In the order in which they came. Taken before a mark's `asks`.
    list: Mutex<Vec<Arc<Mark>>>,
}

impl Marks {
    fn recount(&self, list: &[Arc<Mark>]) {
        let all = list.iter().fold(0, |all, m| all | m.asks.lock().interest());
        self.all.store(all, Ordering::SeqCst);
    }
    fn interest(&self) -> u32 {
        self.all.load(Ordering::SeqCst)
    }
    /// The mark of a group.
    #[must_use]
    pub fn find(&self, group: &Weak<dyn Group>) -> Option<Arc<Mark>> {
        let list = self.list.lock();
        list.iter().find(|m| is_same(&m.group, group)).cloned()
    }
    /// Adds a mark that asks for nothing yet. (A group holds a lock of its own, so that there are
    /// not two of it.)
    pub fn add(
        self: &Arc<Self>,
        group: &Weak<dyn Group>,
        sb: &Arc<SuperBlock>,
        fsid: u64,
    ) -> Arc<Mark> {
        let forbids = group.upgrade().is_some_and(|g| g.priority() > 0);
        let new = Arc::new(Mark {
            number: NEXT_MARK.fetch_add(1, Ordering::Relaxed),
            group: group.clone(),
            fsid,
            list: Arc::downgrade(self),
            asks: Mutex::default(),
            _counted: Counted::new(sb),
            _forbids: forbids.then(|| Forbids::new(sb)),
        });
        self.list.lock().push(new.clone());
        new
    }
}

impl Attachable for Marks {
    fn gone(&self) {
        self.end();
    }
}

impl Marks {
    /// What they are of is gone.
    pub(super) fn end(&self) {
        let mut list = self.list.lock();
        let gone = std::mem::take(&mut *list);
        self.all.store(0, Ordering::SeqCst);
        drop(list);
        forgotten(gone);
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        forgotten(std::mem::take(self.list.get_mut()));
    }
}

/// What these marks were of is gone. Without locks of theirs.
fn forgotten(gone: Vec<Arc<Mark>>) {
    for m in gone {
        if let Some(g) = m.group.upgrade() {
            g.forget(&m);
        }
    }
}

fn address(group: &Weak<dyn Group>) -> usize {
    group.as_ptr().cast::<()>().addr()
}

fn is_same(a: &Weak<dyn Group>, b: &Weak<dyn Group>) -> bool {
    address(a) == address(b)
}

/// What is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Inode,
    Mount,
    FileSystem,
}

/// The marks of what is at `p`, made if there are none, and what keeps a file for one of them
/// ([`Keep::Yes`]).
pub fn marks_at(p: &Path, kind: Kind, keeps: Keep) -> Result<(Arc<Marks>, Option<Watched>)> {
    Ok(match (kind, keeps) {
        (Kind::Inode, Keep::Yes) => {
            let (all, kept) = keep(p)?;
            (all.marks.clone(), Some(kept))
        }
        (Kind::Inode, Keep::No) => (watchers_at(p)?.marks.clone(), None),
        (Kind::Mount, _) => (p.mnt.attachments.get_or_make(), None),
        (Kind::FileSystem, _) => (p.mnt.sb().attachments.get_or_make(), None),
    })
}

/// Whether a mark keeps its file in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    No,
    Yes,
}

/// The mark of a group that what is at `p` has already.
#[must_use]
pub fn mark_at(p: &Path, kind: Kind, group: &Weak<dyn Group>) -> Option<Arc<Mark>> {
    let marks = match kind {
        Kind::Inode => of_file(&p.dentry),
        Kind::Mount => p.mnt.attachments.get(),
        Kind::FileSystem => p.mnt.sb().attachments.get(),
    };
    marks?.find(group)
}

/// A group, and its marks that something concerns.
struct Concerned {
    group: Arc<dyn Group>,
    key: usize,
    marks: Vec<(Via, Arc<Mark>)>,
}

type All = Vec<Concerned>;

/// Adds those who have marks there.
fn gather(all: &mut All, marks: Option<&Marks>, via: Via, mask: u32) {
    let Some(m) = marks.filter(|m| m.interest() & mask & !FLAGS != 0) else {
        return;
    };
    let list: Vec<Arc<Mark>> = m.list.lock().clone();
    for mark in list {
        let key = address(&mark.group);
        if let Some(c) = all.iter_mut().find(|c| c.key == key) {
            c.marks.push((via, mark));
        } else if let Some(group) = mark.group.upgrade() {
            let marks = vec![(via, mark)];
            all.push(Concerned { group, key, marks });
        }
    }
}

fn of_file(d: &crate::Dentry) -> Option<&Marks> {
    let w = existing(&**d.inode().ok()?)?;
    Some(&w.marks)
}

/// Whether a group wants to hear such things of a whole file system.
pub(super) fn of_file_system_want(sb: &SuperBlock, mask: u32) -> bool {
    let marks = sb.attachments.get::<Marks>();
    marks.is_some_and(|m| m.interest() & mask != 0)
}

/// Whom it concerns, who is to be told first before others (`fsnotify`).
fn concerned(h: &Happening<'_>) -> All {
    let mut all = All::new();
    let dir = h.dir.map(|(d, _)| d);
    if h.is_dirent() {
        gather(&mut all, dir.and_then(|d| of_file(d)), Via::Inode, h.mask);
        // (Within one directory its marks are of both.)
        let other = h.to.map(|(d, _)| d).filter(|_| h.mask & FS_RENAME != 0);
        gather(
            &mut all,
            other.and_then(|d| of_file(d)),
            Via::Target,
            h.mask,
        );
    } else {
        gather(&mut all, of_file(h.what), Via::Inode, h.mask);
        let parent = dir.and_then(|d| of_file(d));
        let watches = parent.filter(|m| m.interest() & ON_CHILD != 0);
        gather(&mut all, watches, Via::Parent, h.mask);
    }
    gather(
        &mut all,
        h.mnt.and_then(|m| m.attachments.get()),
        Via::Mount,
        h.mask,
    );
    let whole = h.what.sb().attachments.get();
    gather(&mut all, whole, Via::FileSystem, h.mask);
    all.sort_by_key(|c| std::cmp::Reverse(c.group.priority()));
    all
}

impl Concerned {
    /// What of it the group wants to hear, by which marks (`send_to_group`,
    /// `fanotify_group_event_mask`).
    fn wants(&self, h: &Happening<'_>) -> Option<(u32, Matched, u64)> {
        let (fids, to_dir) = (self.group.flags() & REPORT_ANY_FID, h.is_to_dir());
        if h.mask & IN_MODIFY != 0 {
            self.forget_ignored();
        }
        let kind = h.what.file_type();
        let tellable = if fids == 0 {
            h.mnt.is_some() && matches!(kind, Some(FileType::Regular | FileType::Directory))
        } else {
            fids & REPORT_FID != 0 || h.dir.is_some() || to_dir
        };
        let (mut events, mut ignored, mut matched) = (0, 0, Matched::empty());
        for (via, m) in &self.marks {
            let asks = m.asks();
            ignored |= asks.ignores(to_dir, *via);
            if applies(asks.events, to_dir, *via) {
                events |= asks.events;
                matched |= Matched::from_bits_retain(1 << *via as u8);
            }
        }
        let told = h.mask & events & !ignored;
        if !tellable || told & !FLAGS == 0 {
            return None;
        }
        let fsid = self.marks.first().map_or(0, |(_, m)| m.fsid);
        let flags = if fids == 0 { 0 } else { told & IN_ISDIR };
        Some((told & !FLAGS | flags, matched, fsid))
    }

    /// The file was modified: nothing is ignored any more that does not survive it.
    fn forget_ignored(&self) {
        for (_, m) in &self.marks {
            let asks = m.asks();
            if asks.ignored != 0 && !asks.survives {
                m.change(|a| a.ignored = 0);
            }
        }
    }
}

/// Tells all groups that it concerns.
pub(super) fn tell(h: &Happening<'_>) {
    for c in concerned(h) {
        if let Some((events, matched, fsid)) = c.wants(h) {
            c.group.tell(h, events, matched, fsid);
        }
    }
}

/// Asks all groups that it concerns, until one forbids it.
pub(super) fn ask(h: &Happening<'_>, blocker: &dyn Blocker) -> Result<()> {
    for c in concerned(h) {
        if let Some((events, _, fsid)) = c.wants(h) {
            c.group.ask(h, events, fsid, blocker)?;
        }
    }
    Ok(())
}
