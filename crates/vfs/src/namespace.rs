//! Mount namespaces and the operations on mount trees. All of them hold `Vfs::mount_lock`.
//!
//! Mounts are private: nothing propagates between namespaces or binds, as after
//! `mount --make-rprivate /`. Requests to change propagation are accepted; only `unbindable` has an
//! effect.

use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags, Path};
use crate::ucounts::{Kind, Ucounts};
use crate::userns::{NsId, UserNs};
use crate::vfs::Vfs;
use abi::Result;
use abi::errno::{EAGAIN, EBUSY, EINVAL, ELOOP, ENOENT, ENOSPC, ENOTDIR, EPERM};
use abi::linux::{MNT_DETACH, MNT_EXPIRE, MNT_FORCE};
use parking_lot::RwLock;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most mounts in one namespace (`fs.mount-max`).
const MOUNT_MAX: usize = 100_000;

/// A mount namespace: a tree of mounts.
pub struct MountNamespace {
    vfs: Arc<Vfs>,
    /// Newer ones have higher numbers.
    pub id: u64,
    ns: NsId,
    user: UserNs,
    root: RwLock<Arc<Mount>>,
    /// How many mounts it has, each of which says whose it is. Changed under the mount lock.
    count: AtomicUsize,
    /// Whose memory they take. Each mount keeps its charge, so what stays of a tree that was taken
    /// out is still paid for.
    payer: Arc<Ucounts>,
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

/// Whether a mount may be bound elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bindable {
    Yes,
    No,
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
        vfs: &Arc<Vfs>,
        root: Arc<Dentry>,
        flags: MountFlags,
        source: &str,
    ) -> Arc<MountNamespace> {
        let m = Mount::new(vfs.new_id(), root, flags, source);
        let ns = MountNamespace {
            vfs: vfs.clone(),
            id: vfs.new_id(),
            count: AtomicUsize::new(0),
            payer: payer(&UserNs::default()),
            ns: NsId::initial(0xf000_0000),
            user: UserNs::default(),
            root: RwLock::new(m.clone()),
        };
        ns.enter(&[m]);
        Arc::new(ns)
    }
    /// As `/proc/PID/ns/mnt` shows it.
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.ns.ino
    }
    /// The user namespace whose administrators may mount in it.
    #[must_use]
    pub fn user(&self) -> &UserNs {
        &self.user
    }
    #[must_use]
    pub fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
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
    /// Mounts that hang together come. Under the mount lock.
    fn enter(&self, all: &[Arc<Mount>]) {
        for m in all {
            m.set_namespace(self.id);
            m.set_charge(self.payer.force(Kind::Kmem, MOUNT));
            m.set_held(&self.payer);
        }
        self.count.fetch_add(all.len(), Ordering::Relaxed);
    }
    /// A mount leaves with all below it, each of which is on its own then, but for those that are
    /// locked to what they cover: what they hide stays hidden (`umount_tree`). Gives them, to be
    /// dropped without the mount lock.
    fn leave(&self, top: &Arc<Mount>) -> Vec<Arc<Mount>> {
        let all = subtree(top);
        for m in &all {
            m.set_namespace(0);
            if Arc::ptr_eq(m, top) || !m.is_locked() {
                m.detach();
            }
        }
        self.count.fetch_sub(all.len(), Ordering::Relaxed);
        all
    }
    /// Every mount, parents before children.
    #[must_use]
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        subtree(&self.root_mount())
    }
    /// A namespace's file, which is on no mount, can be mounted; a mount namespace's only in an
    /// older one, so that none holds itself (`mnt_ns_loop`).
    fn may_show_namespace(&self, d: &Arc<Dentry>) -> bool {
        holds_mounts(d).is_some_and(|n| n == 0 || n > self.id)
    }
    /// Whether `more` mounts have room beside what is here, at the cost of `payer`.
    fn room(&self, payer: &Ucounts, more: usize) -> Result<()> {
        let all = self.count.load(Ordering::Relaxed) + more;
        if all > MOUNT_MAX || !payer.has_room(Kind::Kmem, more as u64 * MOUNT) {
            Err(ENOSPC)
        } else {
            Ok(())
        }
    }

    /// The checks that every new place for a mount must pass. `dir`: what is mounted is a
    /// directory.
    fn target(&self, target: &Path, dir: bool) -> Result<Path> {
        let mut t = target.clone();
        t.follow_down();
        if !self.owns(&t.mnt) {
            return Err(EINVAL);
        }
        if t.dentry.is_unhashed() && !t.is_mount_root() {
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
        flags: MountFlags,
        source: &str,
    ) -> Result<Arc<Mount>> {
        let _g = self.vfs.mount_lock.lock();
        self.room(&self.payer, 1)?;
        let t = self.target(target, root.is_dir())?;
        // The same file system twice in a row on the same place.
        if t.is_mount_root() && Arc::ptr_eq(&t.dentry, &root) {
            return Err(EBUSY);
        }
        let m = Mount::new(self.vfs.new_id(), root, flags, source);
        m.attach(&t.mnt, &t.dentry);
        self.enter(std::slice::from_ref(&m));
        Ok(m)
    }

    /// `MS_BIND`, with everything below it for [`Recursive::Yes`].
    pub fn bind(&self, from: &Path, to: &Path, recursive: Recursive) -> Result<Arc<Mount>> {
        let _g = self.vfs.mount_lock.lock();
        let t = self.target(to, from.is_dir())?;
        if from.mnt.flags().contains(MountFlags::UNBINDABLE) {
            return Err(EINVAL);
        }
        if !self.owns(&from.mnt) && !self.may_show_namespace(&from.dentry) {
            return Err(EINVAL);
        }
        if recursive == Recursive::No && from.mnt.has_locked_below(&from.dentry) {
            return Err(EINVAL);
        }
        let (m, _) = self.copy_tree(&from.mnt, &from.dentry, recursive, &self.payer)?;
        m.attach(&t.mnt, &t.dentry);
        self.enter(&subtree(&m));
        Ok(m)
    }

    /// What a copy of `m` from `root` down has besides `m`, parents before children.
    fn copied_below(m: &Arc<Mount>, root: &Arc<Dentry>) -> Vec<Arc<Mount>> {
        let mut copied = HashSet::from([m.id]);
        let mut all = subtree(m);
        all.retain(|old| {
            let Some((parent, at)) = old.parent() else {
                return false;
            };
            let names_mounts = holds_mounts(&old.root).is_some_and(|n| n > 0);
            copied.contains(&parent.id)
                && !old.flags().contains(MountFlags::UNBINDABLE)
                && !names_mounts
                && (!Arc::ptr_eq(&parent, m) || at.is_below(root))
                && copied.insert(old.id)
        });
        all
    }

    /// A copy of the mount `m` with `root` as its root, and of what is mounted below `root`, at the
    /// cost of `payer`.
    fn copy_tree(
        &self,
        m: &Arc<Mount>,
        root: &Arc<Dentry>,
        recursive: Recursive,
        payer: &Ucounts,
    ) -> Result<(Arc<Mount>, ById)> {
        let below = match recursive {
            Recursive::Yes => Self::copied_below(m, root),
            Recursive::No => Vec::new(),
        };
        self.room(payer, below.len() + 1)?;
        let make = |m: &Mount, root: Arc<Dentry>| {
            let flags = m.flags() - MountFlags::UNBINDABLE;
            let new = Mount::new(self.vfs.new_id(), root, flags, &m.source);
            new.keep(m.kept());
            new
        };
        let top = make(m, root.clone());
        top.set_flags(top.flags() - MountFlags::LOCKED);
        let mut map = HashMap::from([(m.id, top.clone())]);
        for old in &below {
            let Some((parent, at)) = old.parent() else {
                continue;
            };
            if let Some(new_parent) = map.get(&parent.id) {
                let new = make(old, old.root.clone());
                new.attach(new_parent, &at);
                map.insert(old.id, new);
            }
        }
        Ok((top, map))
    }

    /// `MS_MOVE`.
    pub fn move_mount(&self, from: &Path, to: &Path) -> Result<()> {
        let _g = self.vfs.mount_lock.lock();
        if from.mnt.is_locked() {
            return Err(EINVAL);
        }
        let t = self.target(to, from.is_dir())?;
        if !from.is_mount_root() || !self.owns(&from.mnt) || from.mnt.parent().is_none() {
            return Err(EINVAL);
        }
        // Not into itself.
        let mut up = Some(t.mnt.clone());
        while let Some(m) = up {
            if Arc::ptr_eq(&m, &from.mnt) {
                return Err(ELOOP);
            }
            up = m.parent().map(|p| p.0);
        }
        from.mnt.detach();
        from.mnt.attach(&t.mnt, &t.dentry);
        Ok(())
    }

    /// `umount2(2)`; `path` is what was walked to, and nothing else of the caller may hold its
    /// mount.
    pub fn umount(&self, mut path: Path, flags: u32) -> Result<()> {
        if flags & MNT_EXPIRE != 0 && flags & (MNT_FORCE | MNT_DETACH) != 0 {
            return Err(EINVAL);
        }
        let guard = self.vfs.mount_lock.lock();
        path.follow_down();
        if !path.is_mount_root() || !self.owns(&path.mnt) || path.mnt.is_locked() {
            return Err(EINVAL);
        }
        let mnt = path.mnt;
        if mnt.parent().is_none() {
            // The namespace's root stays, as Linux's rootfs does.
            return Err(EINVAL);
        }
        if flags & MNT_DETACH == 0 {
            // Held by its parent and by us.
            if Arc::strong_count(&mnt) > 2 || !mnt.children.read().is_empty() {
                return Err(EBUSY);
            }
            if flags & MNT_EXPIRE != 0 {
                return Err(EAGAIN);
            }
        }
        let gone = self.leave(&mnt);
        drop(guard);
        drop(gone);
        if flags & MNT_DETACH == 0 {
            mnt.sb().fs.sync()?;
        }
        Ok(())
    }

    /// `MS_REMOUNT|MS_BIND`: changes one mount's flags. (How access times go stays as it is if
    /// `new` was not asked to say it: [`MountFlags::remounted`].)
    pub fn set_flags(&self, path: &Path, flags: MountFlags) -> Result<()> {
        let _g = self.vfs.mount_lock.lock();
        if !path.is_mount_root() || !self.owns(&path.mnt) {
            return Err(EINVAL);
        }
        let (old, kept) = (path.mnt.flags(), path.mnt.kept());
        let access = old.symmetric_difference(flags) & ATIME;
        if !flags.contains(kept - ATIME) || !kept.is_empty() && !access.is_empty() {
            return Err(EPERM);
        }
        let keep = old & (MountFlags::UNBINDABLE | MountFlags::LOCKED);
        path.mnt.set_flags(flags | keep);
        Ok(())
    }

    /// `MS_UNBINDABLE`, or any other propagation, for one mount or a tree.
    pub fn set_bindable(&self, path: &Path, to: Bindable, recursive: Recursive) -> Result<()> {
        let _g = self.vfs.mount_lock.lock();
        if !path.is_mount_root() || !self.owns(&path.mnt) {
            return Err(EINVAL);
        }
        let all = match recursive {
            Recursive::Yes => subtree(&path.mnt),
            Recursive::No => vec![path.mnt.clone()],
        };
        for m in all {
            let mut f = m.flags();
            f.set(MountFlags::UNBINDABLE, to == Bindable::No);
            m.set_flags(f);
        }
        Ok(())
    }

    /// Whether a mount of this type shows all of itself, so that another may be made by whom no
    /// capability of the initial namespace lets (`mnt_already_visible`): `flags` are the new one's.
    #[must_use]
    pub fn shows_all(&self, fs: &str, flags: MountFlags) -> bool {
        let _g = self.vfs.mount_lock.lock();
        self.mounts().iter().any(|m| {
            m.sb().fs.name() == fs
                && m.root.parent().is_none()
                && flags.contains(m.kept() & MountFlags::RDONLY)
                && (!m.sb().is_read_only() || flags.contains(MountFlags::RDONLY))
                && !m.children().iter().any(|c| c.is_locked())
        })
    }

    /// `pivot_root(2)`: `root` is the caller's root directory.
    pub fn pivot_root(&self, root: &Path, new: &Path, put_old: &Path) -> Result<()> {
        let _g = self.vfs.mount_lock.lock();
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
        if new.mnt.is_locked() {
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
        for s in self.vfs.standpoints() {
            s.replace(root, new);
        }
        Ok(())
    }

    /// A copy of the whole namespace that `user` owns, and which mount became which (by the old
    /// one's id).
    pub fn copy(&self, ns: NsId, user: &UserNs) -> Result<(Arc<MountNamespace>, ById)> {
        let _g = self.vfs.mount_lock.lock();
        let (root, payer) = (self.root_mount(), payer(user));
        let (top, map) = self.copy_tree(&root, &root.root, Recursive::Yes, &payer)?;
        // A user that had no say over the mounts before cannot take one from another, nor a flag
        // (`lock_mnt_tree`).
        if *user != self.user {
            const FLAGS: MountFlags = MountFlags::RDONLY
                .union(MountFlags::NOSUID)
                .union(MountFlags::NODEV)
                .union(MountFlags::NOEXEC);
            for m in subtree(&top) {
                m.keep(m.flags() & FLAGS | ATIME);
                if !Arc::ptr_eq(&m, &top) {
                    m.set_flags(m.flags() | MountFlags::LOCKED);
                }
            }
        }
        let all = subtree(&top);
        let ns = MountNamespace {
            vfs: self.vfs.clone(),
            id: self.vfs.new_id(),
            ns,
            user: user.clone(),
            root: RwLock::new(top),
            count: AtomicUsize::new(0),
            payer,
        };
        ns.enter(&all);
        Ok((Arc::new(ns), map))
    }

    /// `/proc/PID/mountinfo`, as seen from `root`.
    #[must_use]
    pub fn mountinfo(&self, root: &Path) -> Vec<u8> {
        self.table(root, |out, m, at, opts| {
            let parent = m.parent().map_or(m.id, |p| p.0.id);
            let (ma, mi) = (crate::major(m.sb().dev), crate::minor(m.sb().dev));
            out.extend_from_slice(format!("{} {parent} {ma}:{mi} ", m.id).as_bytes());
            out.extend(escape(&subpath(&m.root)));
            out.push(b' ');
            out.extend(escape(at));
            let (fs, src) = (m.sb().fs.name(), &m.source);
            let ro = if m.sb().is_read_only() { "ro" } else { "rw" };
            let line = format!(
                " {opts} - {fs} {} {ro}{}\n",
                plain(src),
                m.sb().fs.options()
            );
            out.extend_from_slice(line.as_bytes());
        })
    }

    /// `/proc/PID/mounts`, as seen from `root`.
    #[must_use]
    pub fn proc_mounts(&self, root: &Path) -> Vec<u8> {
        self.table(root, |out, m, at, opts| {
            out.extend_from_slice(plain(&m.source).as_bytes());
            out.push(b' ');
            out.extend(escape(at));
            let line = format!(" {} {opts}{} 0 0\n", m.sb().fs.name(), m.sb().fs.options());
            out.extend_from_slice(line.as_bytes());
        })
    }

    fn table(&self, root: &Path, line: impl Fn(&mut Vec<u8>, &Arc<Mount>, &[u8], &str)) -> Vec<u8> {
        let mut out = Vec::new();
        let mut mounts = self.mounts();
        // In the order in which they were made (`mnt_add_to_ns`), wherever they hang.
        mounts.sort_by_key(|m| m.id);
        for m in mounts {
            let name = Path::root_of(&m).describe(root);
            if !name.reachable {
                continue;
            }
            let mut flags = m.flags();
            flags.set(MountFlags::RDONLY, m.is_read_only());
            line(&mut out, &m, &name.name, &flags.describe());
        }
        out
    }
}

impl Drop for MountNamespace {
    /// Its mounts end, those that files are open in as by `MNT_DETACH` (`put_mnt_ns`). Without the
    /// mount lock: nobody else changes a tree whose namespace is gone, and namespaces end wherever
    /// the last of their mounts' namespaces does.
    fn drop(&mut self) {
        end(self.leave(&self.root_mount()));
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

/// The path of `d` inside its file system.
fn subpath(d: &Arc<Dentry>) -> Vec<u8> {
    let fs = &d.sb().fs;
    let above = fs.shown_root().trim_end_matches('/').as_bytes();
    match (above, below_root(d)) {
        (b"", below) => below,
        (above, below) if below == b"/" => above.to_vec(),
        (above, below) => [above, &below].concat(),
    }
}

fn below_root(d: &Arc<Dentry>) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut d = d.clone();
    while let Some(p) = d.parent() {
        parts.push(d.name());
        d = p;
    }
    if parts.is_empty() {
        return b"/".to_vec();
    }
    parts
        .iter()
        .rev()
        .flat_map(|p| std::iter::once(b'/').chain(p.iter().copied()))
        .collect()
}

/// Space, tab, newline and backslash as octal, as `/proc/mounts` does.
fn escape(s: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(s.len());
    for &b in s {
        if matches!(b, b' ' | b'\t' | b'\n' | b'\\') {
            out.extend_from_slice(format!("\\{b:03o}").as_bytes());
        } else {
            out.push(b);
        }
    }
    out
}

fn plain(source: &str) -> String {
    if source.is_empty() {
        return String::from("none");
    }
    String::from_utf8_lossy(&escape(source.as_bytes())).into_owned()
}
