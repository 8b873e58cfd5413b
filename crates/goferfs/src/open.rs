//! Open files and directories of the host.

use crate::inode::GoferInode;
use abi::errno::{EACCES, EBADF, EFAULT, EINVAL, EISDIR, EOPNOTSUPP};
use abi::{PAGE_SIZE, Result, Va};
use clas::{Access, Backing, Mappable, MappingObserver};
use gofer::proto::Entry;
use hostcall::{HostFd, MemSlice, file as host};
use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use vfs::file::{DataOnly, File, FileOps, Sink, Source};
use vfs::fs::Listing;
use vfs::{DirEntry, Inode, Stat};

/// An open regular file.
pub struct OpenHostFile {
    pub(crate) inode: Arc<GoferInode>,
    /// `None` only while dropped.
    pub(crate) fd: Option<Arc<HostFd>>,
    pub(crate) writes: bool,
}

impl OpenHostFile {
    fn fd(&self) -> &Arc<HostFd> {
        self.fd.as_ref().expect("until drop")
    }
}

impl Drop for OpenHostFile {
    fn drop(&mut self) {
        self.fd = None;
        if self.writes {
            self.inode.writer_left();
        }
    }
}

/// Runs one vectored call after the other over pieces of any number, until one falls short.
fn all(
    iov: &[MemSlice<'_>],
    mut call: impl FnMut(&[MemSlice<'_>], u64) -> Result<usize>,
) -> Result<usize> {
    let mut done = 0;
    for part in iov.chunks(host::IOV_MAX) {
        let want: usize = part.iter().map(MemSlice::len).sum();
        match call(part, done as u64) {
            Ok(n) => {
                done += n;
                if n < want {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

impl FileOps for OpenHostFile {
    fn read(&self, _: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let n = dst.remaining();
        if n == 0 {
            return Ok(0);
        }
        let mut at = offset;
        let r = dst.fill(n, &mut |iov| {
            let n = all(iov, |part, skip| {
                host::preadv(self.fd().raw(), part, at + skip)
            })?;
            at += n as u64;
            Ok(n)
        });
        // At the end nothing is written to the caller's memory.
        if r == Err(EFAULT) && host::fstat(self.fd().raw())?.st_size as u64 <= offset {
            return Ok(0);
        }
        r
    }
    fn write(&self, _: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        let n = src.remaining();
        if n == 0 {
            return Ok(0);
        }
        let mut length = self.inode.write_lock.lock();
        let mut at = offset;
        let r = src.drain(n, &mut |iov| {
            let n = all(iov, |part, skip| {
                host::pwritev(self.fd().raw(), part, at + skip)
            })?;
            at += n as u64;
            Ok(n)
        });
        self.inode.grew(at);
        self.inode.changed();
        if let Some(l) = &mut *length {
            *l = at.max(*l);
        }
        r
    }
    fn append(&self, file: &File, src: &mut dyn Source) -> Result<(usize, u64)> {
        let fd = self.fd().raw();
        let mut length = self.inode.write_lock.lock();
        let old = length.take();
        let r = src.drain(src.remaining(), &mut |iov| {
            all(iov, |part, _| host::append(fd, part))
        });
        self.inode.changed();
        let n = match r {
            Err(EOPNOTSUPP) => {
                drop(length);
                let at = self.append_offset()?;
                let n = self.write(file, src, at)?;
                return Ok((n, at + n as u64));
            }
            r => r?,
        };
        // All who append by this descriptor hold the lock: its position is behind what was written
        // here.
        let end = match old {
            Some(l) => l + n as u64,
            None => host::position(fd)?,
        };
        self.inode.grew(end);
        if self.inode.fs.exclusive() {
            *length = Some(end);
        }
        Ok((n, end))
    }
    fn seekable(&self) -> bool {
        true
    }
    fn append_offset(&self) -> Result<u64> {
        Ok(host::fstat(self.fd().raw())?.st_size as u64)
    }
    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        let mut slot = self.inode.mappable.lock();
        let m = match slot.upgrade() {
            Some(m) => m,
            None => {
                let m = Arc::new(HostMappable {
                    inode: self.inode.clone(),
                    read: self.fd().clone(),
                    write: OnceLock::new(),
                });
                *slot = Arc::downgrade(&m);
                m
            }
        };
        if self.writes {
            let _ = m.write.set(self.fd().clone());
        }
        Ok(m)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.inode.resize(size)
    }
    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<()> {
        let mut length = self.inode.write_lock.lock();
        *length = None;
        host::fallocate(self.fd().raw(), mode, offset, len)?;
        self.inode.grew(offset.saturating_add(len));
        self.inode.changed();
        Ok(())
    }
    fn sync(&self, data: DataOnly) -> Result<()> {
        match data {
            DataOnly::Yes => host::fdatasync(self.fd().raw()),
            DataOnly::No => host::fsync(self.fd().raw()),
        }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A mapped host file. It holds its descriptors: what `backing` gave stays what it was.
pub struct HostMappable {
    inode: Arc<GoferInode>,
    read: Arc<HostFd>,
    /// Set once it is mapped by one that may write.
    write: OnceLock<Arc<HostFd>>,
}

impl Mappable for HostMappable {
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)> {
        let fd = match access {
            Access::Read => &self.read,
            Access::Write => {
                self.inode.mapped_writable.store(true, Ordering::Relaxed);
                self.write.get().ok_or(EACCES)?
            }
        };
        // What nobody else changes is known.
        let size = if self.inode.fs.exclusive() {
            self.inode.attrs()?.stat.size
        } else {
            host::fstat(fd.raw())?.st_size as u64
        };
        let end = size.checked_next_multiple_of(PAGE_SIZE).ok_or(EFAULT)?;
        if offset >= end {
            return Err(EFAULT);
        }
        let len = len.next_multiple_of(PAGE_SIZE).min(end - offset);
        Ok((
            Backing::Host {
                fd: fd.raw(),
                offset,
            },
            len,
        ))
    }
    fn add_mapping(&self, observer: Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.inode.mappings.add(observer, va, offset, len);
    }
    fn remove_mapping(&self, o: &Weak<dyn MappingObserver>, va: Va, offset: u64, len: u64) {
        self.inode.mappings.remove(o, va, offset, len);
    }
    fn sync(&self, _: u64, _: u64) -> Result<()> {
        match self.write.get() {
            Some(fd) => host::fdatasync(fd.raw()),
            None => Ok(()),
        }
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        let fd = self.write.get().ok_or(EBADF)?;
        hostcall::mem::punch_hole(fd.raw(), offset, len)?;
        self.inode.changed();
        Ok(())
    }
}

/// An open directory: it shows the names that were there when it was last read from its start.
pub struct OpenHostDir {
    inode: Arc<GoferInode>,
    list: Listing<Entry>,
}

impl OpenHostDir {
    pub(crate) fn new(inode: Arc<GoferInode>) -> OpenHostDir {
        OpenHostDir {
            inode,
            list: Listing::default(),
        }
    }
}

impl FileOps for OpenHostDir {
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
            self.inode.attrs()?.stat.ino,
            pos,
            emit,
            || self.inode.entries(),
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
        self.inode.fs.client().sync(self.inode.handle)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
