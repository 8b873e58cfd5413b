//! Mount namespaces and the operations on mount trees. All of them hold
//! `Registry::lock` (Linux's `namespace_sem`), the *mount lock* here.
//!
//! A mount belongs to the tree that it hangs in: a namespace's, or a *detached* one, which hangs
//! nowhere and is held by the descriptor that made it ([`Detached`]; Linux's anonymous namespace).
//! Both have a [`Core`]: who may change it, who pays, how many mounts there are.
//!
//! Invariants, with the mount lock free:
//! - [`Mount::namespace`] is the number of the core that counts the mount, 0 for none;
//! - where a core is not alive, nobody but its owner's end changes its mounts. Others ask with
//!   [`Core::while_alive`], so the end need not have the mount lock: namespaces end wherever the
//!   last of their users does;
//! - a mount in no tree shares with nobody ([`crate::peers`]).
//!
//! | module | what it holds |
//! |---|---|
//! | `trees` | copies of trees, detached trees |
//! | `moving` | moving, and what goes to the peers of a mount |
//! | `attrs` | changing flags and propagation |
//! | `show` | mountinfo |
//! | `tell` | statmount(2), listmount(2) |

mod attrs;
mod moving;
mod registry;
mod show;
mod tell;
mod trees;

pub use attrs::AttrChange;
pub use moving::Beneath;
pub use registry::{Registry, Standpoint};
pub(crate) use show::subpath;
pub use tell::MountStat;
pub use trees::Detached;

use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags, NewFlags, Path};
use crate::notice::{Notice, Seen};
use crate::peers::{Copied, Peers};
use crate::ucounts::{Kind, Ucounts};
use crate::userns::{NsId, UserNs};
use abi::Result;
use abi::errno::{EAGAIN, EBUSY, EINVAL, ENOENT, ENOSPC, ENOTDIR};
use abi::linux::{MNT_DETACH, MNT_EXPIRE, MNT_FORCE};
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most mounts in one namespace (`fs.mount-max`).
const MOUNT_MAX: usize = 100_000;

/// A mount namespace: a tree of mounts.
pub struct MountNamespace {
    registry: Arc<Registry>,
    /// Newer ones have higher numbers.
    pub id: u64,
    ns: NsId,
    core: Arc<Core>,
    root: RwLock<Arc<Mount>>,
}

/// What a tree of mounts is besides its mounts (of Linux's `mnt_namespace`, which anonymous ones
/// have, too).
pub(crate) struct Core {
    pub id: u64,
    /// The user namespace whose administrators may change it.
    pub user: UserNs,
    /// How many mounts it has, each of which says whose it is. Changed under the mount lock.
    count: AtomicUsize,
    /// Whose memory they take. Each mount keeps its charge, so what stays of a tree that was taken
    /// out is still paid for.
    payer: Arc<Ucounts>,
    /// Of a detached tree alone: the namespace that it was copied from, 0 for what was mounted
    /// anew (`seq_origin`).
    origin: Option<u64>,
    /// Its mounts have changed (`touch_mnt_namespace`).
    changed: Arc<Notice>,
    /// False once its owner ends. Held while others change its mounts.
    alive: Mutex<bool>,
}

impl Core {
    fn new(registry: &Registry, user: &UserNs, origin: Option<u64>) -> Arc<Core> {
        let core = Arc::new(Core {
            id: registry.new_id(),
            user: user.clone(),
            count: AtomicUsize::new(0),
            payer: payer(user),
            origin,
            changed: Notice::new(Seen::AtPoll),
            alive: Mutex::new(true),
        });
        registry.cores.lock().insert(core.id, Arc::downgrade(&core));
        core
    }
    /// Does something to its mounts, if its owner has not ended.
    fn while_alive<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let alive = self.alive.lock();
        alive.then(f)
    }
    /// Mounts that hang together come. Under the mount lock.
    fn enter(&self, all: &[Arc<Mount>]) {
        for m in all {
            m.set_namespace(self.id);
            m.set_charge(self.payer.force(Kind::Kmem, MOUNT));
            m.set_held(&self.payer);
        }
        self.count.fetch_add(all.len(), Ordering::Relaxed);
        self.changed.tell();
    }
    /// A mount leaves with all below it. Each is on its own then with [`Parting::Cut`], but for
    /// those that are locked to what they cover: what they hide stays hidden (`umount_tree`). Gives
    /// them, to be dropped without the mount lock.
    fn leave(&self, peers: &Peers, top: &Arc<Mount>, parting: Parting) -> Vec<Arc<Mount>> {
        let all = subtree(top);
        for m in &all {
            m.set_namespace(0);
            peers.leave(m);
            if Arc::ptr_eq(m, top) || parting == Parting::Cut && !m.is_locked() {
                m.detach();
            }
        }
        self.count.fetch_sub(all.len(), Ordering::Relaxed);
        self.changed.tell();
        all
    }
    /// So many mounts went to another tree.
    fn give_up(&self, n: usize) {
        self.count.fetch_sub(n, Ordering::Relaxed);
    }
    /// Whether `more` mounts may be here.
    fn places(&self, more: usize) -> Result<()> {
        if self.count.load(Ordering::Relaxed).saturating_add(more) > MOUNT_MAX {
            Err(ENOSPC)
        } else {
            Ok(())
        }
    }
    /// Whether `more` mounts have room beside what is here, at the cost of `payer`.
    fn room(&self, payer: &Ucounts, more: usize) -> Result<()> {
        self.places(more)?;
        if payer.has_room(Kind::Kmem, more as u64 * MOUNT) {
            Ok(())
        } else {
            Err(ENOSPC)
        }
    }
    /// The owner ends: nobody else touches its mounts afterwards. Gives them.
    fn end(&self, registry: &Registry, root: &Arc<Mount>, parting: Parting) -> Vec<Arc<Mount>> {
        *self.alive.lock() = false;
        registry.cores.lock().remove(&self.id);
        self.leave(&registry.peers, root, parting)
    }
}

/// Whether mounts that go stay together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parting {
    Cut,
    Together,
}

/// What a mount takes of the kernel's memory, bytes.
const MOUNT: u64 = 1024;

/// The user that a namespace's mounts count for: the maker of its user namespace.
fn payer(user: &UserNs) -> Arc<Ucounts> {
    match user.parent() {
        Some(p) => p.ucounts(user.owner()),
        None => user.ucounts(0),
    }
}

/// The rules for access times.
const ATIME: MountFlags = MountFlags::ATIME;

/// Mounts of a copy, by the ids of what they are copies of.
pub type ById = HashMap<u64, Arc<Mount>>;

/// Whether a copy has the mounts that are unbindable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    No,
    Yes,
}

/// Whether what lies below is meant too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recursive {
    No,
    Yes,
}

impl MountNamespace {
    /// A namespace with one mount.
    #[must_use]
    pub fn new(
        registry: &Arc<Registry>,
        root: Arc<Dentry>,
        flags: MountFlags,
        source: &str,
    ) -> Arc<MountNamespace> {
        let m = Mount::new(registry.new_id(), root, flags, source);
        let core = Core::new(registry, &UserNs::default(), None);
        core.enter(std::slice::from_ref(&m));
        Self::of(registry, NsId::initial(0xf000_0000), core, m)
    }
    fn of(
        registry: &Arc<Registry>,
        ns: NsId,
        core: Arc<Core>,
        root: Arc<Mount>,
    ) -> Arc<MountNamespace> {
        let ns = Arc::new(MountNamespace {
            registry: registry.clone(),
            id: core.id,
            ns,
            core,
            root: RwLock::new(root),
        });
        registry
            .namespaces
            .lock()
            .insert(ns.id, Arc::downgrade(&ns));
        ns
    }
    /// As `/proc/PID/ns/mnt` shows it.
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.ns.ino
    }
    /// The user namespace whose administrators may mount in it.
    #[must_use]
    pub fn user(&self) -> &UserNs {
        &self.core.user
    }
    /// Whose administrators may change a mount, as seen from this namespace: of one of another
    /// namespace, the initial ones.
    #[must_use]
    pub fn owner_of(&self, m: &Mount) -> UserNs {
        match m.namespace() == self.id {
            true => self.user().clone(),
            false => UserNs::default(),
        }
    }
    /// Told of when its mounts change.
    #[must_use]
    pub fn changed(&self) -> &Arc<Notice> {
        &self.core.changed
    }
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
    #[must_use]
    pub fn root_mount(&self) -> Arc<Mount> {
        self.root.read().clone()
    }
    /// Its root directory, under everything that is mounted over it.
    #[must_use]
    pub fn root(&self) -> Path {
        let mut p = Path::root_of(&self.root_mount());
        p.follow_down();
        p
    }
    /// Whether a mount is one of this namespace's (`check_mnt`).
    #[must_use]
    pub fn owns(&self, m: &Arc<Mount>) -> bool {
        m.namespace() == self.id
    }
    /// Every mount, parents before children.
    #[must_use]
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        subtree(&self.root_mount())
    }
    /// Whether it is the file of this mount namespace or of an older one. Such a one is not mounted
    /// here, so that none holds itself (`mnt_ns_loop`).
    fn shows_older(&self, d: &Arc<Dentry>) -> bool {
        holds_mounts(d).is_some_and(|n| n > 0 && n <= self.id)
    }
    /// A mount in no tree.
    fn new_mount(&self, root: Arc<Dentry>, f: NewFlags, source: &str) -> Arc<Mount> {
        let m = Mount::new(self.registry.new_id(), root, f.flags, source);
        m.keep(f.kept);
        m
    }
    /// The core that a mount belongs to; `None` for a mount in no tree.
    pub(crate) fn core_of(&self, m: &Mount) -> Option<Arc<Core>> {
        self.registry.cores.lock().get(&m.namespace())?.upgrade()
    }
    /// Whether it is a mount of a detached tree that is of no namespace, or of this one
    /// (`check_anonymous_mnt`).
    fn may_use_detached(&self, m: &Arc<Mount>) -> bool {
        let origin = self.core_of(m).and_then(|c| c.origin);
        origin.is_some_and(|o| o == 0 || o == self.id)
    }
    /// The core of a detached tree, of which `m` is the root (`anon_ns_root`).
    fn detached_root(&self, m: &Arc<Mount>) -> Option<Arc<Core>> {
        let core = self.core_of(m)?;
        (core.origin.is_some() && m.parent().is_none()).then_some(core)
    }

    /// The checks that every new place for a mount must pass. `dir`: what is mounted is a
    /// directory.
    fn target(&self, target: &Path, dir: bool) -> Result<Path> {
        let mut t = target.clone();
        t.follow_down();
        if !self.owns(&t.mnt) {
            return Err(EINVAL);
        }
        if t.dentry.is_unhashed() && !t.is_mount_root() || t.inode()?.takes_no_mounts() {
            return Err(ENOENT);
        }
        if t.is_dir() != dir {
            return Err(ENOTDIR);
        }
        Ok(t)
    }

    /// Mounts the file system with this root on `target`.
    pub fn mount(
        &self,
        target: &Path,
        root: Arc<Dentry>,
        flags: impl Into<NewFlags>,
        source: &str,
    ) -> Result<Arc<Mount>> {
        let _g = self.registry.lock.lock();
        let t = self.target(target, root.is_dir())?;
        // The same file system twice in a row on the same place.
        if t.is_mount_root() && Arc::ptr_eq(&t.dentry, &root) {
            return Err(EBUSY);
        }
        let make = || self.new_mount(root.clone(), flags.into(), source);
        self.hang(&t, &root, 1, make)
    }

    /// `MS_BIND`, with everything below it for [`Recursive::Yes`].
    pub fn bind(&self, from: &Path, to: &Path, recursive: Recursive) -> Result<Arc<Mount>> {
        let _g = self.registry.lock.lock();
        let t = self.target(to, from.is_dir())?;
        self.may_copy(from, recursive)?;
        // Whichever tree it comes from.
        if self.shows_older(&from.dentry) {
            return Err(EINVAL);
        }
        let copy = trees::Copy {
            recursive,
            unbindable: Keep::No,
            how: Copied::Alike,
        };
        let below = Self::copied_below(from, copy)?;
        let make = || self.copy_tree(from, &below, copy).0;
        self.hang(&t, &from.dentry, below.len() + 1, make)
    }

    /// `umount2(2)`; `path` is what was walked to, and nothing else of the caller may hold its
    /// mount.
    pub fn umount(&self, mut path: Path, flags: u32) -> Result<()> {
        if flags & MNT_EXPIRE != 0 && flags & (MNT_FORCE | MNT_DETACH) != 0 {
            return Err(EINVAL);
        }
        let guard = self.registry.lock.lock();
        path.follow_down();
        if !path.is_mount_root() || !self.owns(&path.mnt) || path.mnt.is_locked() {
            return Err(EINVAL);
        }
        let mnt = path.mnt;
        if mnt.parent().is_none() {
            // The namespace's root stays, as Linux's rootfs does.
            return Err(EINVAL);
        }
        if flags & MNT_FORCE != 0 {
            mnt.sb().fs.abort();
        }
        if flags & MNT_DETACH == 0 {
            // Held by its parent and by us.
            if Arc::strong_count(&mnt) > 2 || !mnt.children.read().is_empty() {
                return Err(EBUSY);
            }
            self.peers_busy(&mnt)?;
            if flags & MNT_EXPIRE != 0 {
                return Err(EAGAIN);
            }
        }
        let gone = self.take_down(&mnt);
        drop(guard);
        drop(gone);
        if flags & MNT_DETACH == 0 {
            mnt.sb().fs.sync()?;
        }
        Ok(())
    }

    /// Whether a mount of this type shows all of itself, so that another may be made by whom no
    /// capability of the initial namespace lets (`mnt_already_visible`): `flags` are the new one's.
    /// It shows no more than that mount: gives what it keeps of its flags.
    #[must_use]
    pub fn shows_all(&self, fs: &str, flags: MountFlags) -> Option<MountFlags> {
        let _g = self.registry.lock.lock();
        let hides = |c: &Mount| {
            let at = c.parent().and_then(|(_, at)| at.inode().ok().cloned());
            !at.is_some_and(|i| i.is_always_empty())
        };
        let keeps = |m: &Arc<Mount>| {
            let mut kept = m.kept() & (MountFlags::RDONLY | ATIME);
            if m.sb().is_read_only() {
                kept |= MountFlags::RDONLY;
            }
            let access = m.flags().symmetric_difference(flags) & ATIME;
            let shown = m.sb().fs.name() == fs
                && m.root.parent().is_none()
                && flags.contains(kept & MountFlags::RDONLY)
                && (access.is_empty() || !kept.intersects(ATIME))
                && !m.children().iter().any(|c| c.is_locked() && hides(c));
            shown.then_some(kept)
        };
        self.mounts().iter().find_map(keeps)
    }

    /// `pivot_root(2)`: `root` is the caller's root directory.
    pub fn pivot_root(&self, root: &Path, new: &Path, put_old: &Path) -> Result<()> {
        let _g = self.registry.lock.lock();
        let mut old = put_old.clone();
        old.follow_down();
        if !self.owns(&new.mnt) || !self.owns(&root.mnt) || !self.owns(&old.mnt) {
            return Err(EINVAL);
        }
        if !new.is_dir() || !old.is_dir() {
            return Err(ENOTDIR);
        }
        if new.dentry.is_unhashed() && !new.is_mount_root() {
            return Err(ENOENT);
        }
        if Arc::ptr_eq(&new.mnt, &root.mnt) || Arc::ptr_eq(&old.mnt, &root.mnt) {
            return Err(EBUSY);
        }
        if !root.is_mount_root() || !new.is_mount_root() {
            return Err(EINVAL);
        }
        let shared_above = |m: &Arc<Mount>| m.parent().is_some_and(|(p, _)| p.is_shared());
        if new.mnt.is_locked()
            || old.mnt.is_shared()
            || shared_above(&new.mnt)
            || shared_above(&root.mnt)
        {
            return Err(EINVAL);
        }
        if !old.is_under(new) || !new.is_under(root) {
            return Err(EINVAL);
        }
        if root.mnt.is_locked() {
            new.mnt.set_flags(new.mnt.flags() | MountFlags::LOCKED);
            root.mnt.set_flags(root.mnt.flags() - MountFlags::LOCKED);
        }
        let above = root.mnt.parent();
        new.mnt.detach();
        root.mnt.detach();
        match above {
            Some((parent, at)) => new.mnt.attach(&parent, &at),
            // Linux refuses this for its rootfs; here the container's root has nothing under it.
            None => *self.root.write() = new.mnt.clone(),
        }
        root.mnt.attach(&old.mnt, &old.dentry);
        for s in self.registry.standpoints() {
            s.replace(root, new);
        }
        self.core.changed.tell();
        Ok(())
    }

    /// A copy of the whole namespace that `user` owns, and which mount became which (by the old
    /// one's id).
    pub fn copy(&self, ns: NsId, user: &UserNs) -> Result<(Arc<MountNamespace>, ById)> {
        let _g = self.registry.lock.lock();
        let (root, payer) = (Path::root_of(&self.root_mount()), payer(user));
        let other = *user != self.core.user;
        let copy = trees::Copy {
            recursive: Recursive::Yes,
            unbindable: Keep::Yes,
            how: if other { Copied::Slave } else { Copied::Alike },
        };
        let below = Self::copied_below(&root, copy)?;
        self.core.room(&payer, below.len() + 1)?;
        let (top, map) = self.copy_tree(&root, &below, copy);
        if other {
            lock_tree(&top);
        }
        let core = Core::new(&self.registry, user, None);
        core.enter(&subtree(&top));
        Ok((Self::of(&self.registry, ns, core, top), map))
    }
}

/// A user that had no say over the mounts before cannot take one from another, nor a flag
/// (`lock_mnt_tree`).
fn lock_tree(top: &Arc<Mount>) {
    const FLAGS: MountFlags = MountFlags::RDONLY
        .union(MountFlags::NOSUID)
        .union(MountFlags::NODEV)
        .union(MountFlags::NOEXEC);
    for m in subtree(top) {
        m.keep(m.flags() & FLAGS | ATIME);
        if !Arc::ptr_eq(&m, top) {
            m.set_flags(m.flags() | MountFlags::LOCKED);
        }
    }
}

impl Drop for MountNamespace {
    /// Its mounts end, those that files are open in as by `MNT_DETACH` (`put_mnt_ns`). Without the
    /// mount lock: nobody else changes a tree whose namespace is gone, and namespaces end wherever
    /// the last of their mounts' namespaces does.
    fn drop(&mut self) {
        self.registry.namespaces.lock().remove(&self.id);
        end(self
            .core
            .end(&self.registry, &self.root_mount(), Parting::Cut));
    }
}

thread_local! {
    /// Mounts whose end waits for that of others, while there is such an end. The thread's: it is a
    /// loop's list, empty again when the outermost [`end`] returns.
    static ENDING: RefCell<Option<Vec<Arc<Mount>>>> = const { RefCell::new(None) };
}

/// Drops mounts, not by recursion: a mount may hold a namespace (its file), whose mounts hold the
/// next.
fn end(mounts: Vec<Arc<Mount>>) {
    let first = ENDING.try_with(|e| match &mut *e.borrow_mut() {
        Some(waiting) => {
            waiting.extend(mounts);
            false
        }
        none => {
            *none = Some(mounts);
            true
        }
    });
    let next = || {
        ENDING.try_with(|e| {
            let mut e = e.borrow_mut();
            let m = e.as_mut().and_then(Vec::pop);
            if m.is_none() {
                *e = None;
            }
            m
        })
    };
    if first == Ok(true) {
        while let Ok(Some(m)) = next() {
            drop(m);
        }
    }
}

/// `m` and everything below it, each mount before those below it, and those before the next beside
/// it (`next_mnt`).
fn subtree(m: &Arc<Mount>) -> Vec<Arc<Mount>> {
    let mut all = Vec::new();
    let mut next = vec![m.clone()];
    while let Some(m) = next.pop() {
        next.extend(m.children().into_iter().rev());
        all.push(m);
    }
    all
}

/// For a namespace's file: the mount namespace's number, 0 for the other kinds.
fn holds_mounts(d: &Arc<Dentry>) -> Option<u64> {
    if d.sb().fs.name() != "nsfs" {
        return None;
    }
    d.inode().ok()?.identity()
}
