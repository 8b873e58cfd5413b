//! `/proc/PID/mem`: a process's memory as a file.

use super::Subject;
use abi::Result;
use abi::errno::EIO;
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::file::{File, FileOps};
use vfs::fs::dynamic::DynFile;
use vfs::{Caller, Perm, Sink, Source, Stat};

/// `/proc/PID/mem`.
pub(super) struct MemNode(pub(super) Subject);

impl DynFile for MemNode {
    fn perm(&self) -> Perm {
        self.0.perm(0o600)
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Err(EIO)
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, _: u32) -> Result<Option<Arc<dyn FileOps>>> {
        let mm = self.0.open_memory(cx)?;
        Ok(Some(Arc::new(MemFile {
            mm,
            me: self.0.clone(),
        })))
    }
}

struct MemFile {
    mm: Weak<mm::Mm>,
    me: Subject,
}

impl FileOps for MemFile {
    fn read(&self, _: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let Some(mm) = self.mm.upgrade() else {
            return Ok(0);
        };
        let mut done = 0;
        let mut buf = vec![0u8; dst.remaining().min(64 << 10)];
        while dst.remaining() > 0 {
            let want = dst.remaining().min(buf.len());
            let n = mm.read_forced(abi::Va(offset + done as u64), &mut buf[..want]);
            if n == 0 {
                return if done == 0 { Err(EIO) } else { Ok(done) };
            }
            done += dst.put(&buf[..n])?;
        }
        Ok(done)
    }
    fn write(&self, _: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        let Some(mm) = self.mm.upgrade() else {
            return Ok(0);
        };
        let mut done = 0;
        let mut buf = vec![0u8; src.remaining().min(64 << 10)];
        while src.remaining() > 0 {
            let want = src.remaining().min(buf.len());
            let got = src.take(&mut buf[..want])?;
            let n = mm.write_forced(abi::Va(offset + done as u64), &buf[..got]);
            done += n;
            if n < got {
                return if done == 0 { Err(EIO) } else { Ok(done) };
            }
        }
        Ok(done)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(self.me.open_stat(0o100_600))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
