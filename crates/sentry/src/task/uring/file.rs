//! A ring as an open file.

use super::Ring;
use abi::Result;
use abi::errno::{EFAULT, EINVAL, ENOMEM};
use clas::{Access, Backing, Clas, Mappable, MappingObserver};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::ring::RingMemory;
use vfs::{File, FileOps, Stat};
use wait::later::{self, Later};
use wait::{Events, WaitQueue};

/// Where the parts are mapped (`IORING_OFF_*`).
const CQ_RING: u64 = 0x800_0000;
const SQES: u64 = 0x1000_0000;
const PBUF_RING: u64 = 0x8000_0000;
const PBUF_SHIFT: u64 = 16;
const MASK: u64 = 0xf800_0000;

/// The last reference to a ring: its end is the ring's.
pub struct RingFile {
    pub ring: Arc<Ring>,
}

impl Drop for RingFile {
    /// Whoever drops a file may hold locks: the requests end elsewhere, as on Linux.
    fn drop(&mut self) {
        let end = Arc::new(End(self.ring.clone()));
        if !later::by_long_service(end) {
            self.ring.end();
        }
    }
}

struct End(Arc<Ring>);

impl Later for End {
    fn run(&self) {
        self.0.end();
    }
    fn elsewhere(self: Arc<Self>) {}
}

impl FileOps for RingFile {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            dev: ipc::ANON_DEV,
            ino: 1,
            mode: 0o600,
            nlink: 1,
            blksize: 4096,
            ..Stat::default()
        })
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let r = &self.ring;
        let mut e = Events::empty();
        if r.sq_has_room() {
            e |= Events::WRITABLE;
        }
        if r.cq_ready() > 0 || r.has_overflow() || r.has_local_work() {
            e |= Events::READABLE;
        }
        e & mask
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.ring.queue)
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        Ok(Arc::new(RingMap {
            ring: self.ring.clone(),
            buffers: Mutex::new(None),
        }))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:[io_uring]".into()
    }
    fn fdinfo(&self) -> String {
        self.ring.describe()
    }
}

/// The part of a ring that is mapped at an offset, and where in it that is.
fn part(ring: &Ring, offset: u64) -> Result<(Arc<RingMemory>, u64)> {
    let (memory, from) = match offset & MASK {
        0 => (ring.shared.rings.clone(), 0),
        CQ_RING => (ring.shared.rings.clone(), CQ_RING),
        SQES => (ring.shared.sqes.clone(), SQES),
        PBUF_RING => {
            // (The group is in the bits from 16 on; a mapping of less than 16 pages is inside.)
            let group = ((offset & !MASK) >> PBUF_SHIFT) as u16;
            let memory = ring.groups.memory(group).ok_or(EINVAL)?;
            (memory, PBUF_RING | u64::from(group) << PBUF_SHIFT)
        }
        _ => return Err(EINVAL),
    };
    Ok((memory, offset - from))
}

/// Whether a mapping of a ring is one: `ENOMEM` for a part that there is not
/// (`io_uring_get_unmapped_area`). Other files' are.
pub fn check_map(f: &File, offset: u64) -> Result<()> {
    match f.ops::<RingFile>() {
        Some(r) => part(&r.ring, offset).map(|_| ()).map_err(|_| ENOMEM),
        None => Ok(()),
    }
}

/// What is mapped of a ring.
struct RingMap {
    ring: Arc<Ring>,
    /// A ring of buffers stays where it is mapped, registered or not.
    buffers: Mutex<Option<(u64, Arc<RingMemory>)>>,
}

impl Mappable for RingMap {
    fn memory(&self) -> Option<&Arc<Clas>> {
        self.ring.shared.rings.memory()
    }
    fn backing(&self, offset: u64, len: u64, access: Access) -> Result<(Backing, u64)> {
        let kept = self.buffers.lock().clone();
        if let Some((from, memory)) = kept {
            let at = offset.checked_sub(from).ok_or(EFAULT)?;
            return memory.backing(at, len, access);
        }
        let (memory, at) = part(&self.ring, offset).map_err(|_| EFAULT)?;
        memory.backing(at, len, access)
    }
    fn add_mapping(&self, _: Weak<dyn MappingObserver>, _: abi::Va, offset: u64, _: u64) {
        if offset & MASK != PBUF_RING {
            return;
        }
        if let Ok((memory, at)) = part(&self.ring, offset) {
            let mut kept = self.buffers.lock();
            if kept.is_none() {
                *kept = Some((offset - at, memory));
            }
        }
    }
    fn remove_mapping(&self, _: &Weak<dyn MappingObserver>, _: abi::Va, _: u64, _: u64) {}
    fn is_fixed(&self) -> bool {
        true
    }
}
