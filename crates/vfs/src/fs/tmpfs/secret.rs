//! Files whose memory only their mappings show: memfd_secret(2) (Linux's `mm/secretmem.c`).
//!
//! Their pages are a tmpfs' of its own, [`Tmpfs::is_secret`]. What maps one is confidential
//! ([`Mappable::is_secret`], the `mm` crate): its frames are overwritten where they are given up,
//! and nobody reads them but by the addresses of a process that has them mapped.

use super::node::{Node, Payer};
use super::{Options, Tmpfs};
use crate::cred::Credentials;
use crate::dentry::{Dentry, SuperBlock};
use crate::file::{File, FileOps, O_LARGEFILE, O_RDWR};
use crate::inode::{Inode, NewNode};
use crate::mode::FileType;
use crate::mount::{Mount, MountFlags, Path};
use crate::vfs::Vfs;
use abi::Result;
use abi::attr::Stat;
use abi::errno::{EINVAL, EOPNOTSUPP};
use clas::{Clas, Mappable};
use std::any::Any;
use std::sync::Arc;

/// What statfs(2) calls it (`SECRETMEM_MAGIC`).
pub(super) const MAGIC: u64 = 0x5345_434d;
/// Its name, by which a tmpfs is one.
pub(super) const NAME: &str = "secretmem";

/// The tmpfs of secrets, mounted nowhere.
pub struct SecretFs {
    fs: Arc<Tmpfs>,
    mnt: Arc<Mount>,
}

impl SecretFs {
    #[must_use]
    pub fn new(vfs: &Vfs, clas: &Arc<Clas>) -> SecretFs {
        let dev = vfs.new_dev();
        let (fs, root) = Tmpfs::named(NAME, dev, clas, Options::default());
        let sb = SuperBlock::new(dev, fs.clone());
        let mnt = vfs.kernel_mount(Dentry::new_root(&sb, root));
        mnt.set_flags(mnt.flags() | MountFlags::NOEXEC);
        SecretFs { fs, mnt }
    }

    /// `memfd_secret(2)`.
    pub fn file(&self, cred: &Arc<Credentials>) -> Result<Arc<File>> {
        let new = NewNode {
            mode: 0o600,
            uid: cred.fsuid,
            gid: cred.fsgid,
        };
        let payer = Payer::Caller(cred);
        let node = Node::detached(&self.fs, FileType::Regular, 0, new, &[], payer)?;
        node.set_nlink(1);
        let dentry = Dentry::new_unnamed(self.mnt.sb(), node.clone(), NAME.as_bytes());
        let path = Path {
            mnt: self.mnt.clone(),
            dentry,
        };
        let ops = Arc::new(SecretFile(node));
        Ok(File::new(
            ops,
            O_RDWR | O_LARGEFILE,
            Some(path),
            cred.clone(),
        ))
    }
}

/// An open one: it can be mapped and, once, be given a size.
struct SecretFile(Arc<Node>);

impl FileOps for SecretFile {
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        Ok(self.0.clone())
    }
    fn truncate(&self, size: u64) -> Result<()> {
        let r = self.0.reg().ok_or(EINVAL)?;
        let _w = r.write_lock.lock();
        self.0.resize(r, size)
    }
    fn allocate(&self, _: i32, _: u64, _: u64) -> Result<()> {
        Err(EOPNOTSUPP)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
