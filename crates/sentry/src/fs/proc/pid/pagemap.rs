//! `/proc/PID/pagemap`: eight bytes for each page (`Documentation/admin-guide/mm/pagemap.rst`).

use super::Subject;
use abi::errno::EINVAL;
use abi::{PAGE_SIZE, Result};
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::file::{File, FileOps};
use vfs::fs::dynamic::DynFile;
use vfs::{Caller, Perm, Sink, Stat};

/// Bytes for a page.
const ENTRY: u64 = 8;
/// Pages that are looked at in one step, under the address space's lock.
const STEP: usize = 4096;

pub(super) struct PageMapNode(pub(super) Subject);

impl DynFile for PageMapNode {
    fn perm(&self) -> Perm {
        self.0.perm(0o400)
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Err(EINVAL)
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, _: u32) -> Result<Option<Arc<dyn FileOps>>> {
        Ok(Some(Arc::new(PageMap {
            mm: self.0.open_memory(cx)?,
            me: self.0.clone(),
        })))
    }
}

struct PageMap {
    mm: Weak<mm::Mm>,
    me: Subject,
}

impl FileOps for PageMap {
    fn read(&self, _: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let Some(mm) = self.mm.upgrade() else {
            return Ok(0);
        };
        let want = dst.remaining() as u64;
        if !offset.is_multiple_of(ENTRY) || !want.is_multiple_of(ENTRY) {
            return Err(EINVAL);
        }
        let first = offset / ENTRY;
        let last = mm::USER_MAX / PAGE_SIZE;
        let n = (want / ENTRY).min(last.saturating_sub(first));
        let mut done = 0;
        let mut pages = vec![0u64; (n as usize).min(STEP)];
        while done < n as usize {
            let pages = &mut pages[..(n as usize - done).min(STEP)];
            mm.page_map((first + done as u64) * PAGE_SIZE, pages);
            let bytes: Vec<u8> = pages.iter().flat_map(|p| p.to_le_bytes()).collect();
            let put = dst.put(&bytes)?;
            done += put / ENTRY as usize;
            if put < bytes.len() {
                break;
            }
        }
        Ok(done * ENTRY as usize)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(self.me.open_stat(0o100_400))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
