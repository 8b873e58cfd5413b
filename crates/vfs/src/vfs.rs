//! The root object of the VFS: device numbers, registries and hooks. One in a Sentry.

use crate::caller::Caller;
use crate::dentry::Dentry;
use crate::file::FileOps;
use crate::inode::Slot;
use crate::locks::WaitGraph;
use crate::mode::FileType;
use crate::mount::{Mount, MountFlags, Path};
use crate::namespace::Registry;
use crate::params::{Param, Params};
use crate::{major, makedev, minor};
use abi::Result;
use abi::errno::{EINVAL, ENODEV, ENXIO};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wait::Blocker;

/// What the pipe's author plugs in.
pub trait SpecialFiles: Send + Sync {
    /// Opens a FIFO: finds or makes the pipe in `slot` and waits for the other end, as fifo(7)
    /// says. `EAGAIN` waits are made with `blocker`.
    fn open_fifo(
        &self,
        slot: &Slot,
        flags: u32,
        cred: &crate::Credentials,
        blocker: &dyn Blocker,
    ) -> Result<Arc<dyn FileOps>>;
}

/// A device that is being opened.
pub struct DeviceOpen<'a> {
    pub rdev: u64,
    pub path: &'a Path,
    /// `O_*`.
    pub flags: u32,
    pub caller: Caller<'a>,
}

/// Opens character devices of some numbers.
pub trait Device: Send + Sync {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>>;
}

bitflags::bitflags! {
    /// What somebody does with a device; numbers as `BPF_DEVCG_ACC_*` are.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DeviceWant: u32 {
        /// Makes a node of it.
        const MKNOD = 1;
        const READ = 2;
        const WRITE = 4;
    }
}

/// A device that somebody wants to use, or to make a node of.
pub struct DeviceUse<'a> {
    /// [`FileType::Char`] or [`FileType::Block`].
    pub kind: FileType,
    pub rdev: u64,
    pub want: DeviceWant,
    pub caller: Caller<'a>,
}

/// Who says which devices may be used, whatever their nodes' modes say: control groups
/// (`devcgroup_inode_permission`).
pub trait DeviceGuard: Send + Sync {
    /// Whether it forbids any: nothing is asked of it otherwise.
    fn is_on(&self) -> bool;
    /// `EPERM` for what may not be.
    fn may(&self, u: &DeviceUse<'_>) -> Result<()>;
}

/// A major and a minor number.
type Numbers = (u32, Option<u32>);

/// Character devices by number.
#[derive(Default)]
pub struct DeviceRegistry {
    /// By major and minor number; a minor of `None` stands for all of that major.
    devices: RwLock<BTreeMap<Numbers, Arc<dyn Device>>>,
    guard: OnceLock<Arc<dyn DeviceGuard>>,
}

impl DeviceRegistry {
    pub fn register(&self, major: u32, minor: Option<u32>, device: Arc<dyn Device>) {
        self.devices.write().insert((major, minor), device);
    }
    /// Once, before there are callers.
    pub fn set_guard(&self, g: Arc<dyn DeviceGuard>) {
        let _ = self.guard.set(g);
    }
    /// Asks the guard of the device that `what` gives.
    pub(crate) fn may<'a>(&self, what: impl FnOnce() -> Result<DeviceUse<'a>>) -> Result<()> {
        match self.guard.get() {
            Some(g) if g.is_on() => g.may(&what()?),
            _ => Ok(()),
        }
    }
    /// Opens a device; `ENXIO` where nobody registered its number.
    pub fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        let (ma, mi) = (major(open.rdev), minor(open.rdev));
        let device = {
            let d = self.devices.read();
            d.get(&(ma, Some(mi)))
                .or_else(|| d.get(&(ma, None)))
                .cloned()
        };
        device.ok_or(ENXIO)?.open(open)
    }
}

/// The parameter that tells what of its kind a file system is.
const SUBTYPE: &str = "subtype";

/// A type's name, and what of its kind is behind the dot: `fuse.sshfs`.
#[must_use]
pub fn split_subtype(name: &str) -> (&str, Option<&str>) {
    match name.split_once('.') {
        Some((base, sub)) => (base, Some(sub)),
        None => (name, None),
    }
}

/// A type of file systems, for `mount(2)`.
pub trait FsType: Send + Sync {
    /// Makes (or finds) a file system; gives its root. The parameters are those that
    /// [`FsType::parameters`] names, each as [`FsType::parse`] gave it.
    fn mount(
        &self,
        vfs: &Arc<Vfs>,
        cx: &Caller<'_>,
        source: &str,
        params: &Params,
    ) -> Result<Arc<Dentry>>;
    /// The parameters that it knows, besides those that all know (`fs_parameter_spec`).
    fn parameters(&self) -> &'static [&'static str] {
        &[]
    }
    /// Looks at a parameter by itself, when it is given: `EINVAL` for a bad value.
    fn parse(&self, _cx: &Caller<'_>, p: Param) -> Result<Param> {
        Ok(p)
    }
    /// Whether parameters that it does not know are passed over.
    fn ignores_unknown(&self) -> bool {
        false
    }
    /// Where mount(2)'s text has a parameter's end: at a comma, which a backslash keeps for some.
    fn escapes_commas(&self) -> bool {
        false
    }
    /// `nodev` in `/proc/filesystems`.
    fn needs_device(&self) -> bool {
        false
    }
}

impl dyn FsType {
    /// As mount(2) makes one, from its text: `EINVAL` for what the type does not know. `name` is
    /// what it was asked for by.
    pub fn mount_with(
        &self,
        vfs: &Arc<Vfs>,
        cx: &Caller<'_>,
        (name, source): (&str, &str),
        data: &str,
    ) -> Result<Arc<Dentry>> {
        let escape = self.escapes_commas().then_some('\\');
        let mut params = Params::default();
        if let (_, Some(sub)) = split_subtype(name) {
            if sub.is_empty() {
                return Err(EINVAL);
            }
            let sub = Param::new(SUBTYPE, Some(sub));
            params.0.push(self.parse(cx, sub)?);
        }
        for p in Params::split(data, escape).0 {
            let twice = p.key == SUBTYPE && params.0.iter().any(|o| o.key == SUBTYPE);
            if twice {
                return Err(EINVAL);
            }
            if self.parameters().contains(&p.key.as_str()) {
                params.0.push(self.parse(cx, p)?);
            } else if !self.ignores_unknown() && !matches!(&*p.key, "ro" | "rw" | "source") {
                return Err(EINVAL);
            }
        }
        self.mount(vfs, cx, source, &params)
    }
}

/// How far a sticky directory that everybody may write to protects its users from each other
/// (`fs.protected_*`). Links are 0 or 1, the others up to 2.
#[derive(Debug)]
pub struct Protections {
    pub hardlinks: AtomicU8,
    pub symlinks: AtomicU8,
    pub fifos: AtomicU8,
    pub regular: AtomicU8,
}

impl Default for Protections {
    /// As distributions set them.
    fn default() -> Protections {
        Protections {
            hardlinks: AtomicU8::new(1),
            symlinks: AtomicU8::new(1),
            fifos: AtomicU8::new(1),
            regular: AtomicU8::new(2),
        }
    }
}

/// The root object.
pub struct Vfs {
    next_dev: AtomicU64,
    /// What mount namespaces share.
    pub mounts: Arc<Registry>,
    pub devices: DeviceRegistry,
    fs_types: RwLock<BTreeMap<String, Arc<dyn FsType>>>,
    special: RwLock<Option<Arc<dyn SpecialFiles>>>,
    /// The waiters for record locks, and the locks' owners.
    pub(crate) lock_waits: WaitGraph,
    pub protections: Protections,
}

impl Vfs {
    /// One without devices and file systems: see [`crate::fs::dev::register_memory_devices`].
    #[must_use]
    pub fn new() -> Arc<Vfs> {
        Arc::new(Vfs {
            next_dev: AtomicU64::new(1),
            mounts: Arc::default(),
            devices: DeviceRegistry::default(),
            fs_types: RwLock::new(BTreeMap::new()),
            special: RwLock::new(None),
            lock_waits: WaitGraph::default(),
            protections: Protections::default(),
        })
    }
    /// An unused `st_dev` with major number 0.
    pub fn new_dev(&self) -> u64 {
        makedev(0, self.next_dev.fetch_add(1, Ordering::Relaxed) as u32)
    }
    /// A number that nothing else of the VFS has: mounts, lock owners.
    pub fn new_id(&self) -> u64 {
        self.mounts.new_id()
    }
    pub fn register_fs(&self, name: &str, t: Arc<dyn FsType>) {
        self.fs_types.write().insert(name.to_owned(), t);
    }
    /// `ENODEV` for a type that is not registered, and for a kind of one that has none
    /// (`get_fs_type`).
    pub fn fs_type(&self, name: &str) -> Result<Arc<dyn FsType>> {
        let (base, sub) = split_subtype(name);
        let t = self.fs_types.read().get(base).cloned().ok_or(ENODEV)?;
        let fits = sub.is_none() || t.parameters().contains(&SUBTYPE);
        if fits { Ok(t) } else { Err(ENODEV) }
    }
    /// `/proc/filesystems`.
    #[must_use]
    pub fn filesystems(&self) -> String {
        let mut s = String::new();
        for (name, t) in self.fs_types.read().iter() {
            s.push_str(if t.needs_device() { "" } else { "nodev" });
            s.push('\t');
            s.push_str(name);
            s.push('\n');
        }
        s
    }
    pub fn set_special_files(&self, s: Arc<dyn SpecialFiles>) {
        *self.special.write() = Some(s);
    }
    pub(crate) fn special(&self) -> Result<Arc<dyn SpecialFiles>> {
        self.special.read().clone().ok_or(ENXIO)
    }
    /// A mount that hangs nowhere: for files that the kernel itself makes (memfd, pipes with a
    /// path).
    #[must_use]
    pub fn kernel_mount(&self, root: Arc<Dentry>) -> Arc<Mount> {
        Mount::new(self.new_id(), root, MountFlags::INTERNAL, "none")
    }
}
