//! Open directories.

use crate::file::{Handle, ioctl};
use crate::inode::FuseInode;
use crate::proto::{Dirent, NAME_MAX, Op, parse};
use abi::errno::{EINVAL, EIO, EISDIR};
use abi::{PAGE_SIZE, Result};
use std::any::Any;
use std::sync::Arc;
use vfs::file::{DataOnly, IoctlContext};
use vfs::{DirEntry, File, FileOps, Inode, Sink, Stat};

/// An open directory.
pub struct OpenDir {
    inode: Arc<FuseInode>,
    handle: Handle,
}

impl OpenDir {
    pub fn new(inode: Arc<FuseInode>, handle: Handle) -> OpenDir {
        OpenDir { inode, handle }
    }
}

/// An entry, and what follows it; `None` where it is not whole. `EIO` for what is no name.
fn entry(bytes: &[u8]) -> Result<Option<(DirEntry<'_>, &[u8])>> {
    let Ok((d, rest)) = parse::<Dirent>(bytes) else {
        return Ok(None);
    };
    let len = d.namelen as usize;
    if len == 0 || len > NAME_MAX {
        return Err(EIO);
    }
    let whole = (size_of::<Dirent>() + len).next_multiple_of(8);
    if whole > bytes.len() {
        return Ok(None);
    }
    let name = &rest[..len];
    if name.contains(&b'/') {
        return Err(EIO);
    }
    let e = DirEntry {
        ino: d.ino,
        next: d.off,
        kind: d.kind as u8,
        name,
    };
    Ok(Some((e, &bytes[whole..])))
}

impl FileOps for OpenDir {
    fn read(&self, _: &File, _: &mut dyn Sink, _: u64) -> Result<usize> {
        Err(EISDIR)
    }
    fn read_dir(
        &self,
        file: &File,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut told = false;
        loop {
            let r = self
                .handle
                .read_as(Op::Readdir, *pos, PAGE_SIZE as usize, file.flags());
            let bytes = match r {
                // What was told is told.
                Err(_) if told => return Ok(()),
                r => r?,
            };
            let (mut rest, begin) = (&bytes[..], *pos);
            while let Some((e, after)) = entry(rest)? {
                let next = e.next;
                if !emit(e) {
                    return Ok(());
                }
                (told, rest, *pos) = (true, after, next);
            }
            if rest.len() == bytes.len() || *pos == begin {
                return Ok(());
            }
        }
    }
    fn seekable(&self) -> bool {
        self.handle.seekable()
    }
    fn seek_from(&self, whence: u32, offset: i64) -> Result<u64> {
        let size = self.inode.known_stat()?.size;
        match whence {
            2 => size.checked_add_signed(offset).ok_or(EINVAL),
            _ => Err(EINVAL),
        }
    }
    fn stat(&self) -> Result<Stat> {
        self.inode.known_stat()
    }
    fn sync(&self, data_only: DataOnly) -> Result<()> {
        self.handle.sync(Op::Fsyncdir, data_only)
    }
    fn answers_flag_ioctls(&self) -> bool {
        true
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        ioctl(&self.inode, self.handle.fh, cx, cmd, arg)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
