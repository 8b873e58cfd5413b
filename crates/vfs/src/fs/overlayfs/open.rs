//! Open files and directories of an overlay.

use super::node::{Entry, OverlayNode};
use crate::file::{DataOnly, File, FileOps, IoctlContext, O_RDONLY, Sink, Source};
use crate::fs::Listing;
use crate::inode::Inode;
use crate::{DirEntry, Path, Stat};
use abi::Result;
use abi::errno::{EINVAL, EISDIR};
use clas::Mappable;
use std::any::Any;
use std::sync::{Arc, OnceLock};
use wait::{Events, WaitQueue};

/// An open file.
pub struct OpenUnionFile {
    pub(super) inode: Arc<OverlayNode>,
    /// In the layer that it was in when it was opened.
    pub(super) real: Arc<File>,
    /// The copy, where it was copied up since.
    pub(super) copied: OnceLock<Arc<File>>,
}

impl OpenUnionFile {
    /// Where to read (`ovl_real_file`): a writer has copied up before.
    fn current(&self) -> Result<Arc<File>> {
        if let Some(f) = self.copied.get() {
            return Ok(f.clone());
        }
        let Some(p) = self.inode.upper() else {
            return Ok(self.real.clone());
        };
        let same = |a: &Path| Arc::ptr_eq(&a.dentry, &p.dentry);
        if self.real.path.as_ref().is_some_and(same) {
            return Ok(self.real.clone());
        }
        let fs = &self.inode.fs;
        let ops = p.inode()?.clone().open(&fs.caller(), O_RDONLY)?;
        let f = File::new(ops, O_RDONLY, Some(p), fs.cred.clone());
        Ok(self.copied.get_or_init(|| f).clone())
    }
}

impl FileOps for OpenUnionFile {
    fn read(&self, _: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let f = self.current()?;
        f.ops.read(&f, dst, offset)
    }
    fn write(&self, _: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        self.real.ops.write(&self.real, src, offset)
    }
    fn seekable(&self) -> bool {
        self.real.ops.seekable()
    }
    fn append(&self, _: &File, src: &mut dyn Source) -> Result<(usize, u64)> {
        self.real.ops.append(&self.real, src)
    }
    fn append_offset(&self) -> Result<u64> {
        self.current()?.ops.append_offset()
    }
    fn seek_from(&self, whence: u32, offset: i64) -> Result<u64> {
        self.current()?.ops.seek_from(whence, offset)
    }
    fn stat(&self) -> Result<Stat> {
        // The attributes of the file that is open, under this file system's numbers.
        let s = self.current()?.ops.stat()?;
        let n = self.inode.stat()?;
        Ok(Stat {
            dev: n.dev,
            ino: n.ino,
            nlink: n.nlink,
            ..s
        })
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        self.real.ops.poll(&self.real, mask)
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        self.real.ops.wait_queue()
    }
    fn io_queue(&self) -> Option<&WaitQueue> {
        self.real.ops.io_queue()
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        self.real.ops.ioctl(&self.real, cx, cmd, arg)
    }
    fn may_map_shared(&self) -> Result<()> {
        self.real.ops.may_map_shared()
    }
    fn short_is_final(&self) -> bool {
        self.real.ops.short_is_final()
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        self.real.ops.mappable()
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.real.ops.truncate(size)
    }
    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<()> {
        self.real.ops.allocate(mode, offset, len)
    }
    fn sync(&self, data_only: DataOnly) -> Result<()> {
        self.real.ops.sync(data_only)
    }
    fn flags_changed(&self, file: &File, _: u32) {
        self.real.set_flags(file.flags());
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An open directory: it shows the names that there were when it was last read from its start.
pub struct OpenUnionDir {
    inode: Arc<OverlayNode>,
    list: Listing<Entry>,
}

impl OpenUnionDir {
    pub(super) fn new(inode: Arc<OverlayNode>) -> OpenUnionDir {
        OpenUnionDir {
            inode,
            list: Listing::default(),
        }
    }
}

impl FileOps for OpenUnionDir {
    fn read(&self, _: &File, _: &mut dyn Sink, _: u64) -> Result<usize> {
        Err(EISDIR)
    }
    fn read_dir(
        &self,
        file: &File,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.list.read(
            file,
            self.inode.stat()?.ino,
            pos,
            emit,
            || Ok(self.inode.entries()?.into()),
            |e| (e.ino, e.kind, &e.name),
        )
    }
    fn seekable(&self) -> bool {
        true
    }
    fn seek_from(&self, _: u32, _: i64) -> Result<u64> {
        Err(EINVAL)
    }
    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }
    fn sync(&self, _: DataOnly) -> Result<()> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
