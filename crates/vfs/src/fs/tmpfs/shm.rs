//! Files without a name: memfd_create(2), shared anonymous memory, System V shared memory; and
//! seals.

use super::node::{Node, Payer};
use super::open::OpenFile;
use super::{Options, Tmpfs};
use crate::cred::Credentials;
use crate::dentry::{Dentry, SuperBlock};
use crate::file::{File, O_LARGEFILE, O_RDWR};
use crate::inode::NewNode;
use crate::mode::FileType;
use crate::mount::{Mount, Path};
use crate::vfs::Vfs;
use abi::Result;
use abi::errno::{EBUSY, EINVAL, ENODEV, EPERM};
use abi::linux::{
    F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE,
    MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC, MFD_HUGETLB, MFD_NOEXEC_SEAL,
};
use clas::{Clas, Mappable};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The tmpfs that is mounted nowhere, for files without a name (Linux's `shm_mnt`).
pub struct ShmFs {
    fs: Arc<Tmpfs>,
    mnt: Arc<Mount>,
}

/// The longest name of a memfd: `memfd:` stands before it.
const MEMFD_NAME_MAX: usize = 255 - 6;

impl ShmFs {
    #[must_use]
    pub fn new(vfs: &Vfs, clas: &Arc<Clas>) -> ShmFs {
        let dev = vfs.new_dev();
        let (fs, root) = Tmpfs::new(dev, clas, Options::default());
        let sb = SuperBlock::new(dev, fs.clone());
        ShmFs {
            fs,
            mnt: vfs.kernel_mount(Dentry::new_root(&sb, root)),
        }
    }

    fn node(&self, cred: &Credentials, mode: u32) -> Result<Arc<Node>> {
        let new = NewNode {
            mode,
            uid: cred.fsuid,
            gid: cred.fsgid,
        };
        let node = Node::detached(
            &self.fs,
            FileType::Regular,
            0,
            new,
            &[],
            Payer::Caller(cred),
        )?;
        node.set_nlink(0);
        Ok(node)
    }

    fn open(&self, node: Arc<Node>, name: &[u8], cred: &Arc<Credentials>) -> Arc<File> {
        let dentry = Dentry::new_unnamed(self.mnt.sb(), node.clone(), name);
        let path = Path {
            mnt: self.mnt.clone(),
            dentry,
        };
        File::new(
            Arc::new(OpenFile(node)),
            O_RDWR | O_LARGEFILE,
            Some(path),
            cred.clone(),
        )
    }

    /// `memfd_create(2)`. `MFD_CLOEXEC` is for the caller. `ENODEV` for huge pages, of which there
    /// is no size.
    pub fn memfd(&self, name: &[u8], flags: u32, cred: &Arc<Credentials>) -> Result<Arc<File>> {
        /// Their size, as a power of two.
        const HUGE_SIZE: u32 = 0x3f << 26;
        let is_huge = flags & MFD_HUGETLB != 0;
        let known = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC | MFD_HUGETLB;
        if flags & !(known | if is_huge { HUGE_SIZE } else { 0 }) != 0
            || flags & (MFD_EXEC | MFD_NOEXEC_SEAL) == MFD_EXEC | MFD_NOEXEC_SEAL
            || name.len() > MEMFD_NAME_MAX
        {
            return Err(EINVAL);
        }
        if is_huge {
            return Err(ENODEV);
        }
        let no_exec = flags & MFD_NOEXEC_SEAL != 0;
        let node = self.node(cred, if no_exec { 0o666 } else { 0o777 })?;
        if let Some(r) = node.reg() {
            let seals = if no_exec {
                F_SEAL_EXEC
            } else if flags & MFD_ALLOW_SEALING != 0 {
                0
            } else {
                F_SEAL_SEAL
            };
            r.seals.store(seals, Ordering::Release);
        }
        Ok(self.open(node, &[b"memfd:", name].concat(), cred))
    }

    /// A file of `size` bytes: `MAP_SHARED|MAP_ANONYMOUS` is `/dev/zero (deleted)`, System V's
    /// segments are `SYSV...`.
    pub fn file(&self, name: &[u8], size: u64, cred: &Arc<Credentials>) -> Result<Arc<File>> {
        let node = self.node(cred, 0o600)?;
        if let Some(r) = node.reg() {
            node.resize(r, size)?;
        }
        Ok(self.open(node, name, cred))
    }

    /// As [`ShmFs::file`], where nobody asks for its name.
    pub fn memory(&self, size: u64, cred: &Credentials) -> Result<Arc<dyn Mappable>> {
        let node = self.node(cred, 0o600)?;
        if let Some(r) = node.reg() {
            node.resize(r, size)?;
        }
        Ok(node)
    }
}

const ALL_SEALS: u32 =
    F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_EXEC;

/// `fcntl(F_GET_SEALS)`; `EINVAL` for files that cannot be sealed.
pub fn get_seals(file: &File) -> Result<u32> {
    let f: &OpenFile = file.ops().ok_or(EINVAL)?;
    Ok(f.node().reg().ok_or(EINVAL)?.seals.load(Ordering::Acquire))
}

/// `fcntl(F_ADD_SEALS)`.
pub fn add_seals(file: &File, seals: u32) -> Result<()> {
    if !file.writable() {
        return Err(EPERM);
    }
    if seals & !ALL_SEALS != 0 {
        return Err(EINVAL);
    }
    let f: &OpenFile = file.ops().ok_or(EINVAL)?;
    let r = f.node().reg().ok_or(EINVAL)?;
    let _w = r.write_lock.lock();
    let old = r.seals.load(Ordering::Acquire);
    if old & F_SEAL_SEAL != 0 {
        return Err(EPERM);
    }
    let mut seals = seals;
    if seals & F_SEAL_EXEC != 0 && f.node().meta.lock().mode & 0o111 != 0 {
        seals |= F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
    }
    if seals & F_SEAL_WRITE != 0 && old & F_SEAL_WRITE == 0 {
        // Below zero nobody can add a writable mapping any more.
        r.writable_maps
            .compare_exchange(0, i64::MIN / 2, Ordering::AcqRel, Ordering::Acquire)
            .map_err(|_| EBUSY)?;
    }
    r.seals.fetch_or(seals, Ordering::AcqRel);
    Ok(())
}

/// A chmod of a file with `F_SEAL_EXEC` must leave the execute bits alone.
pub(super) fn check_exec_seal(node: &Node, mode: u32) -> Result<()> {
    let Some(r) = node.reg() else { return Ok(()) };
    if r.seals.load(Ordering::Acquire) & F_SEAL_EXEC != 0
        && (node.meta.lock().mode ^ mode) & 0o111 != 0
    {
        return Err(EPERM);
    }
    Ok(())
}
