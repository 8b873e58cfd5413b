//! overlay as mount(2) makes it (`Documentation/filesystems/overlayfs.rst`): directory trees laid
//! over each other, with what changes kept in an upper *tree*, in Linux's format.
//!
//! The container's own root has [`super::root_layer`], which keeps changes by inode and knows
//! nothing of trees. Here a name that is gone is a whiteout (a character device 0:0) in the upper
//! tree, a directory that hides those below has the attribute `trusted.overlay.opaque`, and a file
//! is copied up whole before it is changed. As there, a mapping made before a copy-up goes on
//! showing the old file, and a directory from below cannot be renamed (`EXDEV`). There are no
//! redirects, indexes or metadata-only copies.
//!
//! Layers are reached by mounts of our own, which see nothing mounted on them, with the rights of
//! the overlay's mounter; all changes go through the layer's own directory entries, so that its
//! users see them.
//!
//! Lock order: the overlay's directories → [`OverlayNode`]'s `copying`, a parent's before its
//! child's → the layers. `place`, `upper` and `inodes` are leaves.

mod node;
mod open;

pub use node::OverlayNode;

use crate::Stat;
use crate::caller::Caller;
use crate::context::{At, FsContext, PathCx};
use crate::cred::Credentials;
use crate::dentry::{Dentry, FileSystem, ReadOnly, StatFs, SuperBlock};
use crate::file::{File, FileOps, O_PATH};
use crate::inode::{FileFlags, Inode};
use crate::mode::{FileType, Want};
use crate::mount::{Mount, MountFlags, Path};
use crate::namespace::MountNamespace;
use crate::ucounts::Charge;
use crate::vfs::Vfs;
use crate::walk::Walk;
use abi::Result;
use abi::errno::{EBADF, EEXIST, EINVAL, ENODATA, ENOMEM};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use wait::Steady;

/// The most layers below (`OVL_MAX_STACK`).
pub const LAYERS_MAX: usize = 500;

/// What each takes of the kernel's memory, bytes.
const LAYER: usize = 1 << 10;

/// How many may lie over each other (`FILESYSTEM_MAX_STACK_DEPTH`): each look-up asks the one
/// below.
const DEPTH_MAX: u32 = 2;

/// What an overlay is made of.
pub struct Layers {
    /// Topmost first.
    pub lowers: Vec<Path>,
    /// The upper and the working directory, of one mount.
    pub upper: Option<(Path, Path)>,
    /// `userxattr`: marks are `user.overlay.*`.
    pub user_xattrs: bool,
    /// For `/proc/mounts`.
    pub options: String,
}

impl Layers {
    /// What Linux refuses: `EINVAL`. Gives how many file systems lie over each other then.
    fn check(&self, vfs: &Vfs) -> Result<u32> {
        let upper = self.upper.iter().flat_map(|u| [&u.0, &u.1]);
        for d in self.lowers.iter().chain(upper) {
            // Layers show what is mounted over (`clone_private_mount`).
            let _g = vfs.mounts.lock.lock();
            if !d.is_dir()
                || d.mnt.flags().contains(MountFlags::UNBINDABLE)
                || d.mnt.has_locked_below(&d.dentry)
            {
                return Err(EINVAL);
            }
        }
        let lowers = self.lowers.len();
        if lowers == 0 || lowers > LAYERS_MAX || self.upper.is_none() && lowers < 2 {
            return Err(EINVAL);
        }
        if let Some((up, work)) = &self.upper {
            let within = |a: &Path, b: &Path| a.dentry.is_below(&b.dentry);
            if !Arc::ptr_eq(&up.mnt, &work.mnt)
                || within(up, work)
                || within(work, up)
                || up.mnt.sb().fs.name() == "overlay"
                || up.mnt.is_read_only()
            {
                return Err(EINVAL);
            }
        }
        let dirs = self.lowers.iter().chain(self.upper.iter().map(|u| &u.0));
        let below = dirs.map(|d| d.mnt.sb().fs.stack_depth()).max();
        let depth = 1 + below.unwrap_or(0);
        if depth > DEPTH_MAX {
            return Err(EINVAL);
        }
        Ok(depth)
    }
}

/// The file system.
pub struct Overlayfs {
    vfs: Arc<Vfs>,
    dev: u64,
    /// What path operations in the layers start from.
    context: Arc<FsContext>,
    /// Where copies are made.
    work: Option<Path>,
    cred: Arc<Credentials>,
    opaque: &'static [u8],
    options: String,
    /// Of its layers and their text.
    _memory: Charge,
    devs: Mutex<Vec<u64>>,
    inodes: Mutex<HashMap<(u64, u64), Weak<OverlayNode>>>,
    next_temporary: AtomicU64,
    top: Path,
    depth: u32,
}

/// A place as a descriptor would name it.
struct Place;

impl FileOps for Place {
    fn stat(&self) -> Result<Stat> {
        Err(EBADF)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn root_of(d: &Arc<Dentry>) -> Arc<Dentry> {
    let mut d = d.clone();
    while let Some(p) = d.parent() {
        d = p;
    }
    d
}

/// The flags that are kept in an attribute, and its name.
const PROTECTED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);
const PROTATTR: &[u8] = b"protattr";

impl Overlayfs {
    /// The name of an attribute of overlayfs itself.
    fn mark(&self, name: &[u8]) -> Vec<u8> {
        let space = self.opaque.len() - b"opaque".len();
        [&self.opaque[..space], name].concat()
    }
    /// Flags that would keep overlayfs from changing what is beneath stand in an attribute
    /// (`ovl_set_protattr`): `i`, `a`.
    fn keep_flags(&self, upper: &dyn Inode, flags: FileFlags) -> Result<()> {
        upper.set_flags(flags - PROTECTED)?;
        let mut text = Vec::new();
        text.extend(flags.contains(FileFlags::IMMUTABLE).then_some(b'i'));
        text.extend(flags.contains(FileFlags::APPEND).then_some(b'a'));
        let name = self.mark(PROTATTR);
        if !text.is_empty() {
            return upper.set_xattr(&name, &text, 0);
        }
        match upper.remove_xattr(&name) {
            Err(ENODATA) => Ok(()),
            r => r,
        }
    }
    /// The same, as they are kept (`ovl_check_protattr`).
    fn protection(&self, real: &dyn Inode) -> FileFlags {
        let mut flags = FileFlags::empty();
        if !real.has_flags() {
            return flags;
        }
        if let Ok(text) = real.get_xattr(&self.mark(PROTATTR)) {
            flags.set(FileFlags::IMMUTABLE, text.contains(&b'i'));
            flags.set(FileFlags::APPEND, text.contains(&b'a'));
        }
        flags
    }
    /// Lays the trees over each other; gives the root, ready to be mounted.
    pub fn mountable(vfs: &Arc<Vfs>, cred: &Arc<Credentials>, l: Layers) -> Result<Arc<Dentry>> {
        let depth = l.check(vfs)?;
        let base = l.upper.as_ref().map_or(&l.lowers[0], |u| &u.0);
        let ns = MountNamespace::new(
            &vfs.mounts,
            root_of(&base.dentry),
            MountFlags::empty(),
            "overlay",
        );
        let mnt: Arc<Mount> = ns.root_mount();
        let here = |p: &Path| Path::new(mnt.clone(), p.dentry.clone());
        let context = FsContext::new(&ns);
        context.set_umask(0);
        let kernel_mount = |p: &Path| Path::root_of(&vfs.kernel_mount(p.dentry.clone()));
        let lowers = l.lowers.iter().map(kernel_mount).collect();
        let dev = vfs.new_dev();
        let mut fs = Overlayfs {
            vfs: vfs.clone(),
            dev,
            context,
            work: None,
            // What the mounter is confined to is asked of whoever comes by the overlay.
            cred: cred.unconfined(),
            opaque: if l.user_xattrs {
                b"user.overlay.opaque"
            } else {
                b"trusted.overlay.opaque"
            },
            top: here(base),
            _memory: cred.kmem(l.options.len() + LAYER * (1 + l.lowers.len()), ENOMEM)?,
            options: l.options,
            devs: Mutex::default(),
            inodes: Mutex::default(),
            next_temporary: AtomicU64::new(0),
            depth,
        };
        if let Some((_, work)) = &l.upper {
            fs.work = Some(fs.make_work(&here(work))?);
        }
        let upper = l.upper.as_ref().map(|(up, _)| here(up));
        let read_only = upper.is_none();
        let fs = Arc::new(fs);
        let root = OverlayNode::root(&fs, upper, lowers)?;
        let sb = SuperBlock::new(dev, fs);
        if read_only {
            sb.set_read_only(ReadOnly::Yes);
        }
        Ok(Dentry::new_root(&sb, root))
    }

    /// The directory where copies are made, in the working directory.
    fn make_work(&self, within: &Path) -> Result<Path> {
        let at = self.at(within);
        match self.with(|cx| cx.mkdir(&at, b"work", 0)) {
            Ok(_) | Err(EEXIST) => self.with(|cx| cx.resolve(&at, b"work", Walk::DIRECTORY)),
            Err(e) => Err(e),
        }
    }

    /// Does something in the layers with the mounter's rights.
    fn with<R>(&self, f: impl FnOnce(&PathCx<'_>) -> R) -> R {
        self.with_cred(&self.cred, f)
    }
    fn with_cred<R>(&self, cred: &Arc<Credentials>, f: impl FnOnce(&PathCx<'_>) -> R) -> R {
        let quiet = Steady::default();
        f(&PathCx {
            vfs: &self.vfs,
            fs: &self.context,
            caller: Caller { cred, task: &() },
            blocker: &quiet,
        })
    }
    fn at(&self, p: &Path) -> At {
        At::File(File::new(
            Arc::new(Place),
            O_PATH,
            Some(p.clone()),
            self.cred.clone(),
        ))
    }
    /// Whether the mounter may read a layer's file: what is copied, shown or opened is so with its
    /// rights.
    fn may_read(&self, i: &dyn Inode) -> Result<()> {
        i.permission(&self.caller(), Want::READ)
    }
    fn caller(&self) -> Caller<'_> {
        Caller {
            cred: &self.cred,
            task: &(),
        }
    }
    /// What is under this name in a layer's directory; `ENOENT`.
    fn find(&self, dir: &Path, name: &[u8]) -> Result<Path> {
        self.with(|cx| cx.resolve(&self.at(dir), name, Walk::empty()))
    }
    /// A number that stays the same as long as the file's layer keeps it.
    fn number(&self, dev: u64, ino: u64) -> u64 {
        let mut devs = self.devs.lock();
        let i = devs.iter().position(|d| *d == dev).unwrap_or_else(|| {
            devs.push(dev);
            devs.len() - 1
        });
        ino ^ ((i as u64 & 31) << 48)
    }
    fn temporary(&self) -> Vec<u8> {
        format!("#{:x}", self.next_temporary.fetch_add(1, Ordering::Relaxed)).into_bytes()
    }
    fn is_opaque(&self, p: &Path) -> bool {
        p.inode()
            .and_then(|i| i.get_xattr(self.opaque))
            .is_ok_and(|v| v == b"y")
    }
}

/// Whether a name of a layer says that there is none.
fn is_whiteout(p: &Path) -> bool {
    p.inode()
        .is_ok_and(|i| i.file_type() == FileType::Char && i.stat().is_ok_and(|s| s.rdev == 0))
}

impl FileSystem for Overlayfs {
    fn name(&self) -> &'static str {
        "overlay"
    }
    fn stat_fs(&self) -> Result<StatFs> {
        let mut s = self.top.mnt.sb().fs.stat_fs()?;
        s.magic = u64::from(abi::linux::OVERLAYFS_SUPER_MAGIC);
        s.fsid = self.dev;
        Ok(s)
    }
    fn stack_depth(&self) -> u32 {
        self.depth
    }
    fn options(&self) -> String {
        self.options.clone()
    }
    fn sync(&self) -> Result<()> {
        self.top.mnt.sb().fs.sync()
    }
}
