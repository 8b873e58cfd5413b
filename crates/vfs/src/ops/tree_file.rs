//! The descriptor of a tree of mounts that hangs nowhere.

use super::PathOnly;
use crate::file::{DataOnly, File, FileOps, IoctlContext};
use crate::mount::Path;
use crate::namespace::Detached;
use crate::{Sink, Source, Stat};
use abi::Result;
use std::any::Any;
use std::sync::Arc;

/// The descriptor of a detached tree: its root as `O_PATH` names it.
pub struct TreeFile {
    place: PathOnly,
    /// Held for its end.
    _tree: Arc<Detached>,
}

impl TreeFile {
    pub fn new(tree: &Arc<Detached>, root: &Path) -> Result<TreeFile> {
        Ok(TreeFile {
            place: PathOnly::new(root.inode()?.clone()),
            _tree: tree.clone(),
        })
    }
}

impl FileOps for TreeFile {
    fn stat(&self) -> Result<Stat> {
        self.place.stat()
    }
    fn read(&self, f: &File, dst: &mut dyn Sink, at: u64) -> Result<usize> {
        self.place.read(f, dst, at)
    }
    fn write(&self, f: &File, src: &mut dyn Source, at: u64) -> Result<usize> {
        self.place.write(f, src, at)
    }
    fn ioctl(&self, f: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        self.place.ioctl(f, cx, cmd, arg)
    }
    fn mappable(&self) -> Result<Arc<dyn clas::Mappable>> {
        self.place.mappable()
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.place.truncate(size)
    }
    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<()> {
        self.place.allocate(mode, offset, len)
    }
    fn sync(&self, data_only: DataOnly) -> Result<()> {
        self.place.sync(data_only)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
