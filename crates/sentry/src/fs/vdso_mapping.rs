//! The vDSO in application address spaces: one read-only copy in the memory file, mapped by all.

use crate::kernel::Vdso;
use abi::errno::ENODEV;
use abi::{Result, Va};
use clas::{Access, Backing, Cla, Clas, Mappable, MappingObserver};
use mm::{MapFile, MapName, Mm, MmapRequest};
use std::sync::{Arc, Weak};

/// The image as something to map.
struct Image {
    clas: Arc<Clas>,
    at: Cla,
    len: u64,
}

impl Mappable for Image {
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)> {
        if access == Access::Write || offset >= self.len {
            return Err(abi::errno::EFAULT);
        }
        let len = len.min(self.len - offset);
        let at = Cla(self.at.0 + offset);
        self.clas.incref(at, len / abi::PAGE_SIZE);
        Ok((Backing::Frames(at), len))
    }
    fn add_mapping(&self, _: Weak<dyn MappingObserver>, _: Va, _: u64, _: u64) {}
    fn remove_mapping(&self, _: &Weak<dyn MappingObserver>, _: Va, _: u64, _: u64) {}
}

impl MapName for Image {
    fn path(&self) -> Vec<u8> {
        b"[vdso]".to_vec()
    }
}

/// Maps it; gives its address.
pub fn map(mm: &Mm, v: &Vdso) -> Result<Va> {
    let image = Arc::new(Image { clas: mm.clas().clone(), at: v.at, len: v.len });
    mm.mmap(MmapRequest {
        addr: Va::NULL,
        len: v.len,
        prot: 5,
        flags: 2,
        offset: 0,
        file: Some(MapFile {
            mappable: image.clone(),
            name: Some(image),
            keep: None,
            readable: true,
            writable: false,
            noexec: false,
        }),
    })
    .map_err(|_| ENODEV)
}
