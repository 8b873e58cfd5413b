//! Open files and directories of tmpfs.

use super::content::Size;
use super::node::{Node, Reg};
use crate::file::{DataOnly, File, FileOps, O_NOATIME, Sink, Source};
use crate::inode::Inode;
use crate::mount::{MountFlags, Path};
use crate::{DirEntry, Stat, now};
use abi::PAGE_SIZE;
use abi::Result;
use abi::errno::{EFBIG, EINVAL, EISDIR, EOPNOTSUPP, EPERM};
use abi::linux::{
    F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_WRITE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_ZERO_RANGE, S_ISGID, S_ISUID,
};
use clas::Mappable;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whether reading through `file` shall leave the access time alone.
pub(crate) fn no_atime(file: &File) -> bool {
    file.flags() & O_NOATIME != 0
        || file
            .path
            .as_ref()
            .is_some_and(|p| p.mnt.flags().contains(MountFlags::NOATIME) || p.mnt.is_read_only())
}

/// `.` and `..`, with the cookies 0 and 1, for a directory opened by `file`. Gives whether to go
/// on.
pub(crate) fn emit_dots(
    file: &File,
    ino: u64,
    pos: &mut u64,
    emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
) -> bool {
    let dir = abi::linux::DT_DIR as u8;
    if *pos == 0 {
        if !emit(DirEntry {
            ino,
            next: 1,
            kind: dir,
            name: b".",
        }) {
            return false;
        }
        *pos = 1;
    }
    if *pos == 1 {
        let up = file.path.as_ref().and_then(|p| {
            let up = p.up(&Path::root_of(&p.mnt.top()))?;
            up.inode().ok()?.known_stat().ok().map(|s| s.ino)
        });
        if !emit(DirEntry {
            ino: up.unwrap_or(ino),
            next: 2,
            kind: dir,
            name: b"..",
        }) {
            return false;
        }
        *pos = 2;
    }
    true
}

pub struct OpenFile(pub(super) Arc<Node>);

impl OpenFile {
    fn reg(&self) -> Result<&Reg> {
        self.0.reg().ok_or(EINVAL)
    }
    /// Writes there, or at the end. Gives how much, and the position behind it.
    fn put(&self, file: &File, src: &mut dyn Source, at: Option<u64>) -> Result<(usize, u64)> {
        let r = self.reg()?;
        let _w = r.write_lock.lock();
        let size = r.content.size();
        let offset = at.unwrap_or(size);
        let mut n = src.remaining();
        if n == 0 {
            return Ok((0, offset));
        }
        let room = (i64::MAX as u64).saturating_sub(offset);
        if room == 0 {
            return Err(EFBIG);
        }
        n = n.min(usize::try_from(room).unwrap_or(usize::MAX));
        let seals = r.seals.load(Ordering::Acquire);
        if seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) != 0 {
            return Err(EPERM);
        }
        if seals & F_SEAL_GROW != 0 && offset + n as u64 > size {
            // By pages, up to the one that would make it larger (`shmem_write_begin`).
            let whole = (size & !(PAGE_SIZE - 1)).saturating_sub(offset);
            if whole == 0 {
                return Err(EPERM);
            }
            n = whole as usize;
        }
        let mut at = offset;
        let done = src.drain(n, &mut |iov| {
            let k = r.content.write(at, iov)?;
            at += k as u64;
            Ok(k)
        })?;
        let t = now();
        let mut m = self.0.meta.lock();
        m.mtime = t;
        m.ctime = t;
        if m.mode & (S_ISUID | S_ISGID) != 0
            && let Some(mode) = crate::ops::without_privileges(m.perm(), &file.cred)
        {
            m.mode = mode;
        }
        if let Some(x) = &mut m.xattrs {
            let _ = x.remove(b"security.capability");
        }
        Ok((done, at))
    }
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.0
    }
}

impl FileOps for OpenFile {
    fn read(&self, file: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let r = self.reg()?;
        let left = r.content.size().saturating_sub(offset);
        let n = dst
            .remaining()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        if n == 0 {
            return Ok(0);
        }
        let mut at = offset;
        let done = dst.fill(n, &mut |iov| {
            let k = r.content.read(at, iov)?;
            at += k as u64;
            Ok(k)
        })?;
        if !no_atime(file) {
            self.0.touch();
        }
        Ok(done)
    }

    fn write(&self, file: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        Ok(self.put(file, src, Some(offset))?.0)
    }
    fn append(&self, file: &File, src: &mut dyn Source) -> Result<(usize, u64)> {
        self.put(file, src, None)
    }

    fn seekable(&self) -> bool {
        true
    }
    fn seek_from(&self, whence: u32, offset: i64) -> Result<u64> {
        let c = &self.reg()?.content;
        match whence {
            2 => c.size().checked_add_signed(offset).ok_or(EINVAL),
            3 => c.seek_data(u64::try_from(offset).map_err(|_| abi::errno::ENXIO)?),
            4 => c.seek_hole(u64::try_from(offset).map_err(|_| abi::errno::ENXIO)?),
            _ => Err(EINVAL),
        }
    }
    fn cached_pages(&self, first: u64, end: u64) -> Result<u64> {
        Ok(self.reg()?.content.pages_in(first, end))
    }
    fn append_offset(&self) -> Result<u64> {
        Ok(self.reg()?.content.size())
    }
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        Ok(self.0.clone())
    }
    fn truncate(&self, size: u64) -> Result<()> {
        let r = self.reg()?;
        let _w = r.write_lock.lock();
        self.0.resize(r, size)?;
        self.0.modified();
        Ok(())
    }
    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<()> {
        let r = self.reg()?;
        let mode = mode as u32;
        if mode & !(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0 {
            return Err(EOPNOTSUPP);
        }
        let end = offset
            .checked_add(len)
            .filter(|e| *e <= i64::MAX as u64)
            .ok_or(EFBIG)?;
        if len == 0 {
            return Err(EINVAL);
        }
        let _w = r.write_lock.lock();
        let keep = mode & FALLOC_FL_KEEP_SIZE != 0;
        if mode & FALLOC_FL_PUNCH_HOLE != 0 {
            if mode != FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE {
                return Err(EOPNOTSUPP);
            }
            self.0.punch(r, offset..end)?;
        } else {
            let seals = r.seals.load(Ordering::Acquire);
            if seals & F_SEAL_GROW != 0 && !keep && end > r.content.size() {
                return Err(EPERM);
            }
            if mode & FALLOC_FL_ZERO_RANGE != 0 {
                self.0.punch(r, offset..end)?;
            }
            let size = if keep { Size::Stays } else { Size::Grows };
            r.content.allocate(offset..end, size)?;
        }
        self.0.modified();
        Ok(())
    }
    fn sync(&self, _: DataOnly) -> Result<()> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub struct OpenDir(pub(super) Arc<Node>);

/// Entries that are copied out of the directory at once, so that its lock is not held while they
/// are shown.
const BATCH: usize = 64;

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
        if !emit_dots(file, self.0.ino(), pos, emit) {
            return Ok(());
        }
        loop {
            let batch: Vec<(u64, Arc<[u8]>, u64, u8)> = {
                let d = self.0.dir()?.lock();
                d.order
                    .range(*pos..)
                    .take(BATCH)
                    .filter_map(|(&cookie, name)| {
                        let n = &d.names.get(name)?.node;
                        Some((cookie, name.clone(), n.ino(), n.file_type().dt()))
                    })
                    .collect()
            };
            if batch.is_empty() {
                break;
            }
            for (cookie, name, ino, kind) in batch {
                if !emit(DirEntry {
                    ino,
                    next: cookie + 1,
                    kind,
                    name: &name,
                }) {
                    return Ok(());
                }
                *pos = cookie + 1;
            }
        }
        if !no_atime(file) {
            self.0.touch();
        }
        Ok(())
    }
    fn seekable(&self) -> bool {
        true
    }
    fn seek_from(&self, whence: u32, _: i64) -> Result<u64> {
        // The end of a directory: behind the last cookie.
        if whence == 2 {
            Ok(i64::MAX as u64)
        } else {
            Err(EINVAL)
        }
    }
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }
    fn sync(&self, _: DataOnly) -> Result<()> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
