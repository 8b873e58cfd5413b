//! Open regular files of the root layer, and mappings of them. Each use looks where the contents
//! are now, so that a copy-up is seen by what was opened and mapped before it.

use super::inode::LayerInode;
use crate::Stat;
use crate::file::{DataOnly, File, FileOps, Sink, Source};
use crate::inode::Inode;
use abi::errno::{EACCES, EIO};
use abi::{PAGE_SIZE, Result, Va};
use clas::{Access, Backing, Mappable, MappingObserver};
use std::any::Any;
use std::sync::{Arc, Weak};

/// An open file.
pub struct OpenOvlFile {
    pub(super) inode: Arc<LayerInode>,
    /// The file below, where it had not been copied up when this was opened.
    pub(super) below: Option<Arc<dyn FileOps>>,
}

impl OpenOvlFile {
    /// Where to read.
    fn ops(&self) -> Result<Arc<dyn FileOps>> {
        match self.inode.data() {
            Some(n) => Ok(n.open_ops()),
            None => self.below.clone().ok_or(EIO),
        }
    }
    /// Where to write.
    fn upper(&self) -> Result<Arc<dyn FileOps>> {
        Ok(self.inode.copy_up_data(u64::MAX)?.open_ops())
    }
    fn shrunk(&self, from: u64) {
        let from = from.next_multiple_of(PAGE_SIZE);
        self.inode.mappings.truncated(from);
    }
}

impl FileOps for OpenOvlFile {
    fn read(&self, file: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        self.ops()?.read(file, dst, offset)
    }
    fn write(&self, file: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        self.upper()?.write(file, src, offset)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn seek_from(&self, whence: u32, offset: i64) -> Result<u64> {
        self.ops()?.seek_from(whence, offset)
    }
    fn append(&self, file: &File, src: &mut dyn Source) -> Result<(usize, u64)> {
        self.upper()?.append(file, src)
    }
    fn append_offset(&self) -> Result<u64> {
        self.ops()?.append_offset()
    }
    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        // Once the contents were copied up, all its mappers share one object: it names the file.
        let below = match &self.below {
            Some(ops) if self.inode.data().is_none() => Some(ops.mappable()?),
            _ => None,
        };
        let mut slot = self.inode.mappable.lock();
        if let Some(m) = slot.upgrade()
            && (m.below.is_some() || below.is_none())
        {
            return Ok(m);
        }
        let m = Arc::new(LayerMappable {
            inode: self.inode.clone(),
            below,
        });
        *slot = Arc::downgrade(&m);
        Ok(m)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.inode.copy_up_data(size)?.open_ops().truncate(size)?;
        self.shrunk(size);
        Ok(())
    }
    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<()> {
        self.upper()?.allocate(mode, offset, len)?;
        // A punched hole lost its frames.
        self.inode
            .mappings
            .invalidate(offset & !(PAGE_SIZE - 1), len.saturating_add(PAGE_SIZE));
        Ok(())
    }
    fn sync(&self, _: DataOnly) -> Result<()> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A mapped file of the root layer.
pub struct LayerMappable {
    inode: Arc<LayerInode>,
    /// What maps the file below, until it is copied up.
    below: Option<Arc<dyn Mappable>>,
}

impl Mappable for LayerMappable {
    fn memory(&self) -> Option<&Arc<clas::Clas>> {
        Some(&self.inode.fs.upper.clas)
    }
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)> {
        match (self.inode.data(), &self.below) {
            (Some(n), _) => n.backing(offset, len, access),
            (None, Some(b)) if access == Access::Read => b.backing(offset, len, access),
            // A writer has opened the file for writing, and so copied it up.
            (None, _) => Err(EACCES),
        }
    }
    fn add_mapping(&self, observer: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.inode.mappings.add(observer, va, offset, len);
    }
    fn remove_mapping(&self, o: &Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.inode.mappings.remove(o, va, offset, len);
    }
    fn mark_confidential(&self, offset: u64, len: u64) -> Result<()> {
        let data = self.inode.data();
        data.map_or(Ok(()), |n| n.mark_confidential(offset, len))
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.inode.data().ok_or(EACCES)?.punch_hole(offset, len)?;
        self.inode.mappings.invalidate(offset, len);
        Ok(())
    }
}
