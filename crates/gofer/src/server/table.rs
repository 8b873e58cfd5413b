//! The handles of a client.

use crate::proto::{Attr, Handle};
use abi::Result;
use abi::errno::{EBADF, EMFILE};
use hostcall::{HostFd, path};
use parking_lot::RwLock;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file below a root, held by `O_PATH`.
pub struct Node {
    pub fd: HostFd,
    /// The `S_IFMT` bits, which never change.
    pub kind: u32,
    pub writable: bool,
    /// A directory whose names the client remembers by its change time, which is fine.
    pub remembered: AtomicBool,
}

impl Node {
    pub fn new(fd: HostFd, writable: bool) -> Result<(Attr, Node)> {
        let attr = attr(&fd)?;
        let node = Node {
            fd,
            kind: attr.mode & libc::S_IFMT,
            writable,
            remembered: AtomicBool::new(false),
        };
        Ok((attr, node))
    }
}

/// The attributes of a file.
pub fn attr(fd: &HostFd) -> Result<Attr> {
    attr_at(fd, c"", libc::AT_EMPTY_PATH)
}

/// The attributes of what a name leads to, with flags of `statx(2)`.
pub fn attr_at(fd: &HostFd, name: &CStr, flags: i32) -> Result<Attr> {
    let s = path::statx(fd.raw(), name, flags)?;
    let dev = |ma: u32, mi: u32| libc::makedev(ma, mi);
    let time = |t: libc::statx_timestamp| {
        t.tv_sec
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(t.tv_nsec))
    };
    Ok(Attr {
        dev: dev(s.stx_dev_major, s.stx_dev_minor),
        ino: s.stx_ino,
        mode: u32::from(s.stx_mode),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        rdev: dev(s.stx_rdev_major, s.stx_rdev_minor),
        size: s.stx_size,
        blksize: s.stx_blksize,
        blocks: s.stx_blocks,
        atime: time(s.stx_atime),
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        btime: if s.stx_mask & libc::STATX_BTIME != 0 {
            time(s.stx_btime)
        } else {
            0
        },
    })
}

/// The change time of a directory whose names the client remembers by it.
pub fn version(dir: &Node) -> Option<i64> {
    if !dir.remembered.load(Ordering::Relaxed) {
        return None;
    }
    let a = attr(&dir.fd).ok()?;
    // Whole seconds: the file system keeps no more.
    (a.nlink > 0 && a.ctime % 1_000_000_000 != 0).then_some(a.ctime)
}

#[derive(Default)]
struct Slots {
    /// Generation and node.
    slots: Vec<(u32, Option<Arc<Node>>)>,
    free: Vec<u32>,
}

pub struct Table {
    slots: RwLock<Slots>,
    limit: u32,
}

impl Table {
    pub fn new(limit: u32) -> Table {
        Table {
            slots: RwLock::default(),
            limit,
        }
    }
    pub fn limit(&self) -> u32 {
        self.limit
    }
    pub fn insert(&self, node: Node) -> Result<Handle> {
        let mut t = self.slots.write();
        let i = match t.free.pop() {
            Some(i) => i,
            None if t.slots.len() < self.limit as usize => {
                t.slots.push((1, None));
                t.slots.len() as u32 - 1
            }
            None => return Err(EMFILE),
        };
        let slot = &mut t.slots[i as usize];
        slot.1 = Some(Arc::new(node));
        Ok(Handle(u64::from(slot.0) << 32 | u64::from(i)))
    }
    pub fn get(&self, h: Handle) -> Result<Arc<Node>> {
        let t = self.slots.read();
        let (generation, node) = t.slots.get((h.0 & 0xffff_ffff) as usize).ok_or(EBADF)?;
        if u64::from(*generation) != h.0 >> 32 {
            return Err(EBADF);
        }
        node.clone().ok_or(EBADF)
    }
    /// Closes a handle; one that is not open is no error.
    pub fn remove(&self, h: Handle) {
        let i = (h.0 & 0xffff_ffff) as u32;
        let mut t = self.slots.write();
        let Some(slot) = t.slots.get_mut(i as usize) else {
            return;
        };
        if u64::from(slot.0) != h.0 >> 32 {
            return;
        }
        let gone = slot.1.take();
        if gone.is_some() {
            // Zero is no generation: handles are never zero.
            slot.0 = slot.0.wrapping_add(1).max(1);
            t.free.push(i);
        }
        drop(t);
    }
}
