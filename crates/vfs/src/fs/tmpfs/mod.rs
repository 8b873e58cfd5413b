//! tmpfs: files whose contents are frames of the container's memory (`tmpfs(5)`).
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the file system: limits, options, statfs |
//! | `node.rs` | [`Node`], its inodes |
//! | `content.rs` | the pages of regular files |
//! | `open.rs` | open files and directories |
//! | `secret.rs` | memory that only mappings show: memfd_secret |
//! | `shm.rs` | files without a name: memfd, shared anonymous memory |
//!
//! Lock order, inside what the crate's doc says: `Node::write_lock` → an address space's lock →
//! `Content::pages`; `Node::meta` and `Node::dir` are leaves, never held together with another
//! node's.

mod content;
mod node;
mod open;
mod secret;
mod shm;

pub(crate) use node::name_memory;
pub use node::{Node, Payer};
pub use secret::SecretFs;
pub use shm::{ShmFs, add_seals, get_seals};

use crate::caller::Caller;
use crate::dentry::{Dentry, FileSystem, StatFs, SuperBlock};
use crate::inode::{Inode, NewNode};
use crate::params::{Param, Params};
use crate::userns::UserNs;
use crate::vfs::{FsType, Vfs};
use abi::errno::{EINVAL, ENOSPC};
use abi::{PAGE_SIZE, Result};
use clas::Clas;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The options of a tmpfs mount.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// In pages; zero: no limit.
    pub max_pages: u64,
    /// Zero: no limit.
    pub max_inodes: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_pages: 0,
            max_inodes: 0,
            mode: 0o1777,
            uid: 0,
            gid: 0,
        }
    }
}

/// A number with `k`, `m`, `g`, `t` or `%` (of `total` pages) behind it, in bytes.
fn size(v: &str, total: u64) -> Result<u64> {
    if let Some(p) = v.strip_suffix('%') {
        let p: u64 = p.parse().map_err(|_| EINVAL)?;
        return Ok((total * PAGE_SIZE / 100).saturating_mul(p));
    }
    let (digits, shift) = match v.as_bytes().last() {
        Some(b'k' | b'K') => (&v[..v.len() - 1], 10),
        Some(b'm' | b'M') => (&v[..v.len() - 1], 20),
        Some(b'g' | b'G') => (&v[..v.len() - 1], 30),
        Some(b't' | b'T') => (&v[..v.len() - 1], 40),
        _ => (v, 0),
    };
    let n: u64 = digits.parse().map_err(|_| EINVAL)?;
    n.checked_mul(1 << shift).ok_or(EINVAL)
}

impl Options {
    /// From mount(2)'s data. `total`: the memory that percentages are of, in pages.
    pub fn parse(mut self, data: &str, total: u64) -> Result<Options> {
        for opt in data.split(',').filter(|o| !o.is_empty()) {
            let (key, v) = opt.split_once('=').unwrap_or((opt, ""));
            match key {
                "size" => self.max_pages = size(v, total)?.div_ceil(PAGE_SIZE),
                "nr_blocks" => self.max_pages = size(v, total)?,
                "nr_inodes" => self.max_inodes = size(v, total)?,
                "mode" => self.mode = u32::from_str_radix(v, 8).map_err(|_| EINVAL)? & 0o7777,
                "uid" => self.uid = v.parse().map_err(|_| EINVAL)?,
                "gid" => self.gid = v.parse().map_err(|_| EINVAL)?,
                "huge" | "mpol" | "inode32" | "inode64" | "noswap" | "rw" | "ro" | "seclabel" => {}
                _ => return Err(EINVAL),
            }
        }
        Ok(self)
    }
}

/// A tmpfs.
pub struct Tmpfs {
    pub(crate) clas: Arc<Clas>,
    dev: u64,
    max_pages: AtomicU64,
    used_pages: AtomicU64,
    max_inodes: AtomicU64,
    used_inodes: AtomicU64,
    next_ino: AtomicU64,
    /// What `statfs(2)` and `/proc/mounts` call it.
    name: &'static str,
    shown: Options,
    /// What was not asked for is not shown.
    default: Limits,
}

/// Pages and inodes.
type Limits = (u64, u64);

impl Tmpfs {
    /// Whether its files are memfd_secret(2)'s.
    fn is_secret(&self) -> bool {
        self.name == secret::NAME
    }
    /// Those whose inodes these are: a file's owner is an id of the initial namespace.
    fn users(&self) -> UserNs {
        UserNs::of_container(self.clas.number())
    }
    /// A file system and its root directory.
    #[must_use]
    pub fn new(dev: u64, clas: &Arc<Clas>, o: Options) -> (Arc<Tmpfs>, Arc<Node>) {
        Self::named("tmpfs", dev, clas, o)
    }
    /// As [`Tmpfs::new`], with another name in `/proc/mounts`: `devtmpfs`.
    #[must_use]
    pub fn named(
        name: &'static str,
        dev: u64,
        clas: &Arc<Clas>,
        o: Options,
    ) -> (Arc<Tmpfs>, Arc<Node>) {
        Self::with_default(name, dev, clas, o, (0, 0))
    }
    /// As [`Tmpfs::named`], where a mount that says nothing has these limits.
    fn with_default(
        name: &'static str,
        dev: u64,
        clas: &Arc<Clas>,
        o: Options,
        default: Limits,
    ) -> (Arc<Tmpfs>, Arc<Node>) {
        let fs = Arc::new(Tmpfs {
            clas: clas.clone(),
            dev,
            max_pages: AtomicU64::new(o.max_pages),
            used_pages: AtomicU64::new(0),
            max_inodes: AtomicU64::new(o.max_inodes),
            used_inodes: AtomicU64::new(1),
            next_ino: AtomicU64::new(1),
            name,
            shown: o,
            default,
        });
        let new = NewNode {
            mode: o.mode,
            uid: o.uid,
            gid: o.gid,
        };
        let root = Node::root(&fs, new);
        (fs, root)
    }
    /// A file system ready to be mounted.
    #[must_use]
    pub fn mountable(vfs: &Vfs, clas: &Arc<Clas>, o: Options) -> Arc<Dentry> {
        let dev = vfs.new_dev();
        let (fs, root) = Self::new(dev, clas, o);
        Dentry::new_root(&SuperBlock::new(dev, fs), root)
    }
    #[must_use]
    pub fn dev(&self) -> u64 {
        self.dev
    }
    fn next_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }
    fn take_inode(&self) -> Result<()> {
        take(
            &self.used_inodes,
            1,
            self.max_inodes.load(Ordering::Relaxed),
        )
    }
    fn give_inode(&self) {
        self.used_inodes.fetch_sub(1, Ordering::Relaxed);
    }
    fn take_pages(&self, n: u64) -> Result<()> {
        take(&self.used_pages, n, self.max_pages.load(Ordering::Relaxed))
    }
    fn give_pages(&self, n: u64) {
        self.used_pages.fetch_sub(n, Ordering::Relaxed);
    }
}

fn take(used: &AtomicU64, n: u64, max: u64) -> Result<()> {
    let more = |u: u64| u.checked_add(n).filter(|u| max == 0 || *u <= max);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .map(|_| ())
        .map_err(|_| ENOSPC)
}

impl FileSystem for Tmpfs {
    fn name(&self) -> &'static str {
        self.name
    }
    fn remembers_missing(&self) -> bool {
        false
    }
    fn stat_fs(&self) -> Result<StatFs> {
        let (blocks, used) = (
            self.max_pages.load(Ordering::Relaxed),
            self.used_pages.load(Ordering::Relaxed),
        );
        let (files, used_files) = (
            self.max_inodes.load(Ordering::Relaxed),
            self.used_inodes.load(Ordering::Relaxed),
        );
        Ok(StatFs {
            magic: match self.is_secret() {
                true => secret::MAGIC,
                false => u64::from(abi::linux::TMPFS_MAGIC),
            },
            bsize: PAGE_SIZE,
            frsize: PAGE_SIZE,
            blocks,
            bfree: blocks.saturating_sub(used),
            bavail: blocks.saturating_sub(used),
            files,
            ffree: files.saturating_sub(used_files),
            fsid: self.dev,
            namelen: 255,
            flags: 0,
        })
    }
    fn options(&self) -> String {
        let mut s = String::new();
        let pages = self.max_pages.load(Ordering::Relaxed);
        if pages != self.default.0 {
            s += &format!(",size={}k", pages * (PAGE_SIZE / 1024));
        }
        let inodes = self.max_inodes.load(Ordering::Relaxed);
        if inodes != self.default.1 {
            s += &format!(",nr_inodes={inodes}");
        }
        if self.shown.mode != 0o1777 {
            s += &format!(",mode={:03o}", self.shown.mode);
        }
        if self.shown.uid != 0 {
            s += &format!(",uid={}", self.shown.uid);
        }
        if self.shown.gid != 0 {
            s += &format!(",gid={}", self.shown.gid);
        }
        s
    }
    fn handle(&self, file: &dyn Inode) -> Option<u64> {
        let node = (file as &dyn Any).downcast_ref::<Node>()?;
        (self.name == "tmpfs").then(|| node.ino())
    }
    fn find(&self, root: &dyn Inode, number: u64) -> Option<Vec<Arc<[u8]>>> {
        (root as &dyn Any).downcast_ref::<Node>()?.find(number)
    }
    fn remount(&self, data: &str) -> Result<()> {
        let now = Options {
            max_pages: self.max_pages.load(Ordering::Relaxed),
            max_inodes: self.max_inodes.load(Ordering::Relaxed),
            ..self.shown
        };
        let o = now.parse(data, now.max_pages)?;
        let too_small = |max: u64, used: &AtomicU64| max != 0 && max < used.load(Ordering::Relaxed);
        if too_small(o.max_pages, &self.used_pages) || too_small(o.max_inodes, &self.used_inodes) {
            return Err(EINVAL);
        }
        self.max_pages.store(o.max_pages, Ordering::Relaxed);
        self.max_inodes.store(o.max_inodes, Ordering::Relaxed);
        Ok(())
    }
}

/// What tmpfs is mounted with (tmpfs(5)).
pub const PARAMETERS: &[&str] = &[
    "size",
    "nr_blocks",
    "nr_inodes",
    "mode",
    "uid",
    "gid",
    "huge",
    "mpol",
    "inode32",
    "inode64",
    "noswap",
    "seclabel",
];

/// tmpfs as a type for mount(2).
pub struct TmpfsType {
    pub clas: Arc<Clas>,
    /// Limits where the mount names none: Linux takes half of the machine's memory.
    pub default: Options,
    /// What percentages are of, in pages.
    pub total_pages: u64,
    /// `tmpfs`, `devtmpfs`, `ramfs`.
    pub name: &'static str,
}

impl FsType for TmpfsType {
    fn parameters(&self) -> &'static [&'static str] {
        PARAMETERS
    }
    fn parse(&self, _: &Caller<'_>, p: Param) -> Result<Param> {
        Options::default().parse(&p.word(), self.total_pages)?;
        Ok(p)
    }
    fn mount(
        &self,
        vfs: &Arc<Vfs>,
        cx: &Caller<'_>,
        _: &str,
        params: &Params,
    ) -> Result<Arc<Dentry>> {
        let ns = &cx.cred.user_ns;
        let (uid, gid) = (cx.cred.fsuid, cx.cred.fsgid);
        let own = Options {
            uid: ns.uid_shown(uid),
            gid: ns.gid_shown(gid),
            ..self.default
        };
        let mut o = own.parse(&params.joined(), self.total_pages)?;
        // The caller's own need no number in its namespace.
        o.uid = if o.uid == own.uid {
            uid
        } else {
            ns.uid_from(o.uid)?
        };
        o.gid = if o.gid == own.gid {
            gid
        } else {
            ns.gid_from(o.gid)?
        };
        let dev = vfs.new_dev();
        let default = (self.default.max_pages, self.default.max_inodes);
        let (fs, root) = Tmpfs::with_default(self.name, dev, &self.clas, o, default);
        Ok(Dentry::new_root(&SuperBlock::new(dev, fs), root))
    }
}

pub(crate) use open::emit_dots;
