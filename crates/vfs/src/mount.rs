//! Mounts and places in the mount tree.

use crate::attachments::Attachments;
use crate::dentry::{Dentry, SuperBlock};
use crate::inode::Inode;
use crate::ucounts::{Charge, Ucounts};
use abi::Result;
use abi::errno::EROFS;
use abi::linux::{
    MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODEV, MOUNT_ATTR_NODIRATIME, MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID, MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR_RDONLY, MOUNT_ATTR_RELATIME,
    MOUNT_ATTR_STRICTATIME,
};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

bitflags::bitflags! {
    /// What a mount forbids, with the numbers of `MS_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct MountFlags: u32 {
        const RDONLY = 1;
        const NOSUID = 2;
        const NODEV = 4;
        const NOEXEC = 8;
        const NOSYMFOLLOW = 256;
        const NOATIME = 1024;
        const NODIRATIME = 2048;
        const RELATIME = 1 << 21;
        const UNBINDABLE = 1 << 17;
        /// Ours: of the kernel's own files, hung nowhere (`MNT_INTERNAL`).
        const INTERNAL = 1 << 30;
        /// Ours: it cannot be taken from what it covers (`MNT_LOCKED`).
        const LOCKED = 1 << 23;
        /// Ours: who opens a file there is confidential from then on. Nobody inside says it or
        /// takes it away, and copies of the mount have it.
        const CONFIDENTIAL = 1 << 29;
    }
}

/// The attributes of mount_setattr(2), but for the rule for access times.
const ATTRS: [(u32, MountFlags); 6] = [
    (MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
    (MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
    (MOUNT_ATTR_NODEV, MountFlags::NODEV),
    (MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
    (MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
    (MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
];

impl MountFlags {
    /// What a mount has for attributes, without the rule for access times but
    /// `MOUNT_ATTR_NODIRATIME` (`attr_flags_to_mnt_flags`).
    #[must_use]
    pub fn from_attrs(attrs: u64) -> MountFlags {
        let has = |a: u32| attrs & u64::from(a) != 0;
        let set = ATTRS.into_iter().filter(|(a, _)| has(*a));
        set.map(|(_, flag)| flag).collect()
    }
    /// As statmount(2) tells them (`mnt_to_attr_flags`).
    #[must_use]
    pub fn attrs(self) -> u64 {
        let set = ATTRS.into_iter().filter(|(_, flag)| self.contains(*flag));
        let plain = set.fold(0, |all, (a, _)| all | a);
        let atime = if self.contains(MountFlags::NOATIME) {
            MOUNT_ATTR_NOATIME
        } else if self.contains(MountFlags::RELATIME) {
            MOUNT_ATTR_RELATIME
        } else {
            MOUNT_ATTR_STRICTATIME
        };
        u64::from(plain | atime)
    }
    /// How access times go.
    pub const ATIME: MountFlags = MountFlags::NOATIME
        .union(MountFlags::NODIRATIME)
        .union(MountFlags::RELATIME);
    /// What no program asks for: the kernel has these flags set, and they stay.
    pub const OURS: MountFlags = MountFlags::UNBINDABLE
        .union(MountFlags::LOCKED)
        .union(MountFlags::INTERNAL)
        .union(MountFlags::CONFIDENTIAL);
    /// The flags that `MS_*` ask for; the access times' rule is relatime where nothing else is
    /// said.
    #[must_use]
    pub fn from_ms(ms: u32) -> MountFlags {
        let mut f = MountFlags::from_bits_truncate(ms) - MountFlags::OURS;
        if ms & (abi::linux::MS_STRICTATIME | abi::linux::MS_NOATIME) == 0 {
            f |= MountFlags::RELATIME;
        } else {
            f -= MountFlags::RELATIME;
        }
        f
    }
    /// What a remount with these flags of mount(2) makes of what a mount had: a remount that says
    /// nothing about access times leaves them (fs/namespace.c, `path_mount`).
    #[must_use]
    pub fn remounted(self, ms: u32) -> MountFlags {
        let told = abi::linux::MS_STRICTATIME
            | abi::linux::MS_NOATIME
            | abi::linux::MS_NODIRATIME
            | abi::linux::MS_RELATIME;
        let new = MountFlags::from_ms(ms);
        if ms & told != 0 {
            return new;
        }
        (new - MountFlags::ATIME) | (self & MountFlags::ATIME)
    }
    /// As `/proc/mounts` writes them: `rw,nosuid,relatime`.
    #[must_use]
    pub fn describe(self) -> String {
        let mut s = String::from(if self.contains(MountFlags::RDONLY) {
            "ro"
        } else {
            "rw"
        });
        for (f, name) in [
            (MountFlags::NOSUID, ",nosuid"),
            (MountFlags::NODEV, ",nodev"),
            (MountFlags::NOEXEC, ",noexec"),
            (MountFlags::NOATIME, ",noatime"),
            (MountFlags::NODIRATIME, ",nodiratime"),
            (MountFlags::RELATIME, ",relatime"),
            (MountFlags::NOSYMFOLLOW, ",nosymfollow"),
        ] {
            if self.contains(f) {
                s.push_str(name);
            }
        }
        s
    }
}

/// Unique ids are above this one.
pub const UNIQUE: u64 = 1 << 31;

/// The flags of a new mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFlags {
    pub flags: MountFlags,
    /// Those that cannot be taken away (`MNT_LOCK_*`); any of [`MountFlags::ATIME`]: the rule for
    /// access times.
    pub kept: MountFlags,
}

impl From<MountFlags> for NewFlags {
    fn from(flags: MountFlags) -> NewFlags {
        NewFlags {
            flags,
            kept: MountFlags::empty(),
        }
    }
}

pub(crate) struct Attached {
    pub parent: Weak<Mount>,
    pub at: Arc<Dentry>,
}

/// The group that a mount is in, and the one that is its master; 0 for none. As mountinfo shows
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    pub group: u32,
    pub master: u32,
}

/// One mount: a tree of dentries, hung at a place of another mount.
///
/// A mount holds its children; a child knows its parent weakly. The tree changes only under
/// `Registry::lock`.
pub struct Mount {
    /// As in `/proc/PID/mountinfo`.
    pub id: u64,
    pub root: Arc<Dentry>,
    /// The device or source that was named at `mount(2)`.
    pub source: String,
    flags: AtomicU32,
    /// Flags that cannot be taken away: the mount came from a more privileged namespace
    /// (`MNT_LOCK_*`).
    kept: AtomicU32,
    /// The number of the mount namespace that it is in, 0 for none: a tree that is copied, or was
    /// taken out.
    namespace: AtomicU64,
    /// What it takes of the kernel's memory, as long as it is there. Set when it comes into its
    /// namespace.
    charge: OnceLock<Charge>,
    /// For its root's descriptor, where another is charged for that.
    held: OnceLock<Charge>,
    /// With whom it shares what is mounted below it. Changed by [`crate::peers`] alone.
    sharing: RwLock<Sharing>,
    /// Files that are open for writing by it (`mnt_writers`). Atomic: who makes it read-only looks
    /// afterwards, who opens looks at the flag afterwards.
    writers: AtomicUsize,
    /// [`crate::watch::marks::Marks`] of it.
    pub(crate) attachments: Attachments,
    pub(crate) attached: RwLock<Option<Attached>>,
    /// By the address of the dentry that each is mounted on, which the child holds.
    pub(crate) children: RwLock<BTreeMap<usize, Arc<Mount>>>,
}

pub(crate) fn key(d: &Arc<Dentry>) -> usize {
    Arc::as_ptr(d).addr()
}

impl Mount {
    pub(crate) fn new(id: u64, root: Arc<Dentry>, flags: MountFlags, source: &str) -> Arc<Mount> {
        root.sb().mounted();
        Arc::new(Mount {
            id,
            root,
            source: source.to_owned(),
            flags: AtomicU32::new(flags.bits()),
            kept: AtomicU32::new(0),
            namespace: AtomicU64::new(0),
            charge: OnceLock::new(),
            held: OnceLock::new(),
            sharing: RwLock::default(),
            writers: AtomicUsize::new(0),
            attachments: Attachments::default(),
            attached: RwLock::new(None),
            children: RwLock::new(BTreeMap::new()),
        })
    }
    #[must_use]
    pub fn sb(&self) -> &Arc<SuperBlock> {
        self.root.sb()
    }
    #[must_use]
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }
    pub(crate) fn kept(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.kept.load(Ordering::Relaxed))
    }
    pub(crate) fn keep(&self, f: MountFlags) {
        self.kept.fetch_or(f.bits(), Ordering::Relaxed);
    }
    pub(crate) fn namespace(&self) -> u64 {
        self.namespace.load(Ordering::Relaxed)
    }
    pub(crate) fn set_namespace(&self, id: u64) {
        self.namespace.store(id, Ordering::Relaxed);
    }
    pub(crate) fn set_charge(&self, c: Charge) {
        let _ = self.charge.set(c);
    }
    /// See [`crate::Credentials::hold`].
    pub(crate) fn set_held(&self, payer: &Arc<Ucounts>) {
        if self.held.get().is_none()
            && let Ok(inode) = self.root.inode()
            && let Some(c) = payer.hold(inode.host_user())
        {
            let _ = self.held.set(c);
        }
    }
    /// See [`crate::peers`].
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        *self.sharing.read()
    }
    pub(crate) fn set_sharing(&self, s: Sharing) {
        *self.sharing.write() = s;
    }
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.sharing().group != 0
    }
    pub(crate) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
        self.sb().add_writer();
    }
    pub(crate) fn drop_writer(&self) {
        self.writers.fetch_sub(1, Ordering::SeqCst);
        self.sb().drop_writer();
    }
    /// Whether a file is open for writing by it.
    pub(crate) fn has_writers(&self) -> bool {
        self.writers.load(Ordering::SeqCst) != 0
    }
    /// The number that never comes again, which statx(2), statmount(2) and listmount(2) have: above
    /// all that mountinfo could show (`MNT_UNIQUE_ID_OFFSET`).
    #[must_use]
    pub fn unique_id(&self) -> u64 {
        UNIQUE + self.id
    }
    /// Whether it is the kernel's own, which nobody can mount (`MNT_INTERNAL`).
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.flags().contains(MountFlags::INTERNAL)
    }
    /// Whether it is locked to what it covers.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.flags().contains(MountFlags::LOCKED)
    }
    /// Whether a mount that is locked to what it covers lies at `root` or below: what it hides must
    /// not come to light (`has_locked_children`). Under the mount lock.
    pub(crate) fn has_locked_below(&self, root: &Arc<Dentry>) -> bool {
        self.children()
            .iter()
            .any(|c| c.is_locked() && c.parent().is_some_and(|(_, at)| at.is_below(root)))
    }
    pub(crate) fn set_flags(&self, f: MountFlags) {
        self.flags.store(f.bits(), Ordering::SeqCst);
    }
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.flags().contains(MountFlags::RDONLY) || self.sb().is_read_only()
    }
    /// The mount that it hangs in, and where; `None` for a root and after a lazy unmount.
    #[must_use]
    pub fn parent(&self) -> Option<(Arc<Mount>, Arc<Dentry>)> {
        let a = self.attached.read();
        let a = a.as_ref()?;
        Some((a.parent.upgrade()?, a.at.clone()))
    }
    /// What is mounted on `at` of this mount.
    #[must_use]
    pub fn child_at(&self, at: &Arc<Dentry>) -> Option<Arc<Mount>> {
        self.children.read().get(&key(at)).cloned()
    }
    /// Its children, oldest first.
    #[must_use]
    pub fn children(&self) -> Vec<Arc<Mount>> {
        let mut v: Vec<_> = self.children.read().values().cloned().collect();
        v.sort_by_key(|m| m.id);
        v
    }
    /// The root of the tree that it hangs in.
    #[must_use]
    pub fn top(self: &Arc<Self>) -> Arc<Mount> {
        let mut m = self.clone();
        while let Some((p, _)) = m.parent() {
            m = p;
        }
        m
    }
    pub(crate) fn attach(self: &Arc<Self>, parent: &Arc<Mount>, at: &Arc<Dentry>) {
        at.mounts.fetch_add(1, Ordering::AcqRel);
        *self.attached.write() = Some(Attached {
            parent: Arc::downgrade(parent),
            at: at.clone(),
        });
        parent.children.write().insert(key(at), self.clone());
    }
    pub(crate) fn detach(self: &Arc<Self>) {
        let Some(a) = self.attached.write().take() else {
            return;
        };
        a.at.mounts.fetch_sub(1, Ordering::AcqRel);
        if let Some(p) = a.parent.upgrade() {
            p.children.write().remove(&key(&a.at));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.attachments.gone();
        if let Some(a) = self.attached.get_mut().take() {
            a.at.mounts.fetch_sub(1, Ordering::AcqRel);
        }
        // Not by recursion: mounts nest as deep as the application likes.
        let mut stack: Vec<Arc<Mount>> = std::mem::take(self.children.get_mut())
            .into_values()
            .collect();
        while let Some(m) = stack.pop() {
            if let Some(mut m) = Arc::into_inner(m) {
                stack.extend(std::mem::take(m.children.get_mut()).into_values());
            }
        }
        self.root.sb().unmounted();
    }
}

/// A place in the mount tree: Linux's `struct path`.
#[derive(Clone)]
pub struct Path {
    pub mnt: Arc<Mount>,
    pub dentry: Arc<Dentry>,
}

impl PartialEq for Path {
    fn eq(&self, o: &Path) -> bool {
        Arc::ptr_eq(&self.mnt, &o.mnt) && Arc::ptr_eq(&self.dentry, &o.dentry)
    }
}
impl Eq for Path {}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Path({}:{})",
            self.mnt.id,
            String::from_utf8_lossy(&self.dentry.name())
        )
    }
}

impl Path {
    #[must_use]
    pub fn new(mnt: Arc<Mount>, dentry: Arc<Dentry>) -> Path {
        Path { mnt, dentry }
    }
    /// The root of a mount.
    #[must_use]
    pub fn root_of(mnt: &Arc<Mount>) -> Path {
        Path {
            mnt: mnt.clone(),
            dentry: mnt.root.clone(),
        }
    }
    /// The file; `ENOENT` for a missing one.
    pub fn inode(&self) -> Result<&Arc<dyn Inode>> {
        self.dentry.inode()
    }
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.dentry.is_dir()
    }
    #[must_use]
    pub fn is_mount_root(&self) -> bool {
        Arc::ptr_eq(&self.dentry, &self.mnt.root)
    }
    /// `EROFS` where nothing may be changed.
    pub fn want_write(&self) -> Result<()> {
        if self.mnt.is_read_only() {
            Err(EROFS)
        } else {
            Ok(())
        }
    }
    /// Steps onto what is mounted here, as deep as it goes; gives whether it did.
    pub fn follow_down(&mut self) -> bool {
        let mut moved = false;
        while self.dentry.is_mountpoint() {
            let Some(m) = self.mnt.child_at(&self.dentry) else {
                break;
            };
            self.dentry = m.root.clone();
            self.mnt = m;
            moved = true;
        }
        moved
    }
    /// The parent directory, over mounts, not above `root`. Gives `None` where there is nothing
    /// above.
    #[must_use]
    pub fn up(&self, root: &Path) -> Option<Path> {
        let mut p = self.clone();
        loop {
            if p == *root {
                return None;
            }
            if !p.is_mount_root() {
                p.dentry = p.dentry.parent()?;
                return Some(p);
            }
            let (mnt, at) = p.mnt.parent()?;
            p = Path { mnt, dentry: at };
        }
    }
    /// Whether this place is `root` or below it.
    #[must_use]
    pub fn is_under(&self, root: &Path) -> bool {
        let mut mnt = self.mnt.clone();
        let mut d = self.dentry.clone();
        while !Arc::ptr_eq(&mnt, &root.mnt) {
            let Some((m, at)) = mnt.parent() else {
                return false;
            };
            mnt = m;
            d = at;
        }
        d.is_below(&root.dentry)
    }
    /// Its path name as seen from `root`.
    #[must_use]
    pub fn describe(&self, root: &Path) -> PathName {
        let mut parts: Vec<Arc<[u8]>> = Vec::new();
        let mut p = self.clone();
        let mut reachable = true;
        while p != *root {
            if p.is_mount_root() {
                match p.mnt.parent() {
                    Some((mnt, at)) => p = Path { mnt, dentry: at },
                    None => {
                        reachable = false;
                        break;
                    }
                }
            } else {
                parts.push(p.dentry.name());
                match p.dentry.parent() {
                    Some(d) => p.dentry = d,
                    None => break,
                }
            }
        }
        let mut name = Vec::new();
        for part in parts.iter().rev() {
            name.push(b'/');
            name.extend_from_slice(part);
        }
        if name.is_empty() {
            name.push(b'/');
        }
        PathName {
            name,
            reachable,
            deleted: self.dentry.is_unhashed() && !self.is_mount_root(),
        }
    }
}

/// A path name made from a [`Path`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathName {
    /// Absolute.
    pub name: Vec<u8>,
    /// Whether the place can be reached from the root that was asked for.
    pub reachable: bool,
    /// Whether its name was removed.
    pub deleted: bool,
}

impl PathName {
    /// As `/proc/PID/fd/N` shows it: `/tmp/x (deleted)`.
    #[must_use]
    pub fn display(&self) -> Vec<u8> {
        let mut v = self.name.clone();
        if self.deleted {
            v.extend_from_slice(b" (deleted)");
        }
        v
    }
}
