//! What keeps files in memory for their watches, as Linux's marks keep inodes.
//!
//! A file is kept by one of its dentries as long as it is watched and has a name. Its last name
//! gone, its watches keep it no more: they end with the last user of that name, who may hold it as
//! an open file, a mapping or a working directory. Without users that is at once; else the dentry
//! tells when it is dropped ([`Unused`]). With the last mount of the file system all watches end.
//!
//! Invariants:
//! - A file without a name is not kept. Who adds a watch counts it, and looks for names afterwards;
//!   who takes a name unhashes it, and looks at the count afterwards: one of the two sees the
//!   other. The same holds for linkat(2), which may give a file its first name.
//! - The lock is a leaf: no dentry is dropped under it.

use super::{IN_DELETE_SELF, IN_UNMOUNT, Watchers, dir_bit, ended, existing, is_watched_after};
use super::{marks, watchers_at};
use crate::attachments::Attachable;
use crate::dentry::{Dentry, SuperBlock, Unused};
use crate::mount::Path;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use wait::later::{self, Later};

/// A watch or mark that there is, counted at its file system.
pub(super) struct Counted(Weak<SuperBlock>);

impl Counted {
    pub(super) fn new(sb: &Arc<SuperBlock>) -> Counted {
        sb.begin_watch(unused);
        Counted(Arc::downgrade(sb))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(sb) = self.0.upgrade() {
            sb.end_watch();
        }
    }
}

/// A watched file with a name stays in memory as long as there is one of these, and so do its
/// watches. Dropped without locks: it may be what keeps the file. By default of no file.
#[derive(Default)]
pub struct Watched {
    /// What was watched.
    dentry: Weak<Dentry>,
    watchers: Weak<Watchers>,
    counted: Option<Counted>,
}

impl Watched {
    /// The file.
    #[must_use]
    pub fn file(&self) -> Option<Arc<Dentry>> {
        self.dentry.upgrade().or_else(|| {
            let kept = self.kept()?;
            kept.0.lock().get(&key(&self.watchers))?.dentry.clone()
        })
    }
    fn kept(&self) -> Option<Arc<Kept>> {
        let sb = self.counted.as_ref()?.0.upgrade()?;
        Some(sb.attachments.get_or_make())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(kept) = self.kept() {
            kept.remove(key(&self.watchers));
        }
    }
}

/// The files of a file system that are kept.
#[derive(Default)]
pub(super) struct Kept(Mutex<HashMap<usize, File>>);

struct File {
    /// `None` while it has no name.
    dentry: Option<Arc<Dentry>>,
    watches: usize,
    /// It is watched by a mount that programs have. Nobody hears of the end of the kernel's own, as
    /// a pipe's.
    hears: bool,
}

/// A file's watchers by their address: it is not given again as long as a watch is there.
fn key(w: &Weak<Watchers>) -> usize {
    w.as_ptr().addr()
}

/// What was kept goes. Where nothing else holds it Linux has let go of it with its name, and has
/// told then whom it concerned.
fn let_go(d: Option<Arc<Dentry>>) {
    if let Some(d) = d.and_then(Arc::into_inner) {
        d.quiet.store(true, Ordering::Relaxed);
    }
}

impl Kept {
    fn add(&self, key: usize, p: &Path) {
        let mut all = self.0.lock();
        let file = all.entry(key).or_insert(File {
            dentry: None,
            watches: 0,
            hears: false,
        });
        file.watches += 1;
        file.hears |= !p.mnt.is_internal();
        file.dentry.get_or_insert_with(|| p.dentry.clone());
    }
    fn remove(&self, key: usize) {
        let mut all = self.0.lock();
        let Entry::Occupied(mut e) = all.entry(key) else {
            return;
        };
        e.get_mut().watches -= 1;
        let gone = (e.get().watches == 0).then(|| e.remove());
        drop(all);
        let_go(gone.and_then(|f| f.dentry));
    }
    /// The file has no name more. Gives what kept it, if `fits`.
    fn release(&self, key: usize, fits: impl FnOnce(&Arc<Dentry>) -> bool) -> Option<Arc<Dentry>> {
        let mut all = self.0.lock();
        let dentry = &mut all.get_mut(&key)?.dentry;
        dentry.take_if(|d| fits(d))
    }
    /// It has a name again, or another than the one that keeps it and is gone.
    fn rename(&self, key: usize, d: &Arc<Dentry>) -> Option<Arc<Dentry>> {
        let mut all = self.0.lock();
        let dentry = &mut all.get_mut(&key)?.dentry;
        match dentry {
            Some(old) if !old.is_unhashed() => None,
            _ => dentry.replace(d.clone()),
        }
    }
}

impl Attachable for Kept {
    /// The file system was unmounted.
    fn gone(&self) {
        let mut all = self.0.lock();
        let kept = all.values_mut();
        let kept: Vec<_> = kept
            .filter_map(|f| Some((f.dentry.take()?, f.hears)))
            .collect();
        drop(all);
        if !kept.is_empty() {
            later::put(Arc::new(Unmounted(Mutex::new(kept))));
        }
    }
}

/// What keeps the file at `p` for a watch that is to come.
pub(super) fn keep(p: &Path) -> abi::Result<(Arc<Watchers>, Watched)> {
    let (sb, d) = (p.mnt.sb(), &p.dentry);
    let watchers = watchers_at(p)?;
    let watched = Watched {
        dentry: Arc::downgrade(d),
        watchers: Arc::downgrade(&watchers),
        counted: Some(Counted::new(sb)),
    };
    let kept = sb.attachments.get_or_make::<Kept>();
    let key = key(&watched.watchers);
    kept.add(key, p);
    fence(Ordering::SeqCst);
    if d.is_unhashed() && p.inode()?.is_nameless() == Ok(true) {
        let_go(kept.release(key, |by| Arc::ptr_eq(by, d)));
    }
    Ok((watchers, watched))
}

/// A name of `child` went, which only the caller holds if nobody uses the file by it: the last one
/// ends its watches, at once or with the last user.
pub(super) fn name_gone(child: &Arc<Dentry>, holders: Holders) {
    let Ok(inode) = child.inode() else { return };
    let watchers = existing(&**inode);
    // (How many names are left may be a question to the host.)
    if watchers.is_none() && !marks::of_file_system_want(child.sb(), IN_DELETE_SELF) {
        return;
    }
    if inode.is_nameless() == Ok(false) {
        return;
    }
    let kept = child.sb().attachments.get::<Kept>();
    if let Some((k, w)) = kept.zip(watchers) {
        let_go(k.release(std::ptr::from_ref(w).addr(), |_| true));
    }
    if holders == Holders::Caller && Arc::strong_count(child) == 1 {
        child.quiet.store(true, Ordering::Relaxed);
        ended(child);
    }
}

/// Who holds the dentry of a name that went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holders {
    /// The caller, once, and those who use the file.
    Caller,
    /// Perhaps others, too.
    Others,
}

/// The file of `source` has the name `made`, too.
pub(crate) fn linked(source: &Dentry, made: &Arc<Dentry>) {
    if is_watched_after(made)
        && let Ok(inode) = source.inode()
        && let Some(w) = existing(&**inode)
        && let Some(kept) = made.sb().attachments.get::<Kept>()
    {
        let_go(kept.rename(std::ptr::from_ref(w).addr(), made));
    }
}

/// The last user of a file's name that had been removed went. Any lock may be held.
fn unused(file: Unused) {
    let watched = existing(&*file.inode).is_some();
    if watched || marks::of_file_system_want(&file.sb, IN_DELETE_SELF) {
        later::put(Arc::new(LastUse(Mutex::new(Some(file)))));
    }
}

/// A file whose watches end, if it has no name.
struct LastUse(Mutex<Option<Unused>>);

impl Later for LastUse {
    fn run(&self) {
        let Some(Unused { sb, inode, name }) = self.0.lock().take() else {
            return;
        };
        if inode.is_nameless() == Ok(true) {
            let d = Dentry::new_unnamed(&sb, inode, &name);
            d.quiet.store(true, Ordering::Relaxed);
            ended(&d);
        }
    }
    fn elsewhere(self: Arc<Self>) {
        // (Where there is no thread nobody is told.)
        let _ = later::by_long_service(self);
    }
}

/// The files that were kept when their file system was unmounted, and whether their watchers hear
/// of it.
struct Unmounted(Mutex<Vec<(Arc<Dentry>, bool)>>);

impl Later for Unmounted {
    fn run(&self) {
        for (d, hears) in std::mem::take(&mut *self.0.lock()) {
            let watchers = d.inode().ok().and_then(|i| existing(&**i));
            if let Some(w) = watchers.filter(|_| hears) {
                w.end(IN_UNMOUNT | dir_bit(&d));
            }
            let_go(Some(d));
        }
    }
    fn elsewhere(self: Arc<Self>) {
        let _ = later::by_long_service(self);
    }
}
