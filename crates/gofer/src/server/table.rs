//! The handles of a client.

use super::Writable;
use crate::kernel_fs::{self, Device, Kind};
use crate::proto::{Attr, Handle};
use abi::Result;
use abi::attr::Stat;
use abi::errno::{EACCES, EBADF, EMFILE, ENODATA, ENOSYS, EOPNOTSUPP};
use hostcall::{HostFd, path};
use parking_lot::RwLock;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file below a root, held by `O_PATH`.
pub struct Node {
    pub fd: HostFd,
    /// The `S_IFMT` bits, which never change.
    pub kind: u32,
    pub writable: bool,
    pub fs: Kind,
    dev: u64,
    /// A directory whose names the client remembers by its change time, which is fine.
    pub remembered: AtomicBool,
}

impl Node {
    /// A root. One that lies within a procfs was allowed by its namer.
    pub fn root(proc: &HostFd, fd: HostFd, writable: Writable) -> Result<Node> {
        let attr = attr(proc, &fd)?;
        let fs = kernel_fs::of(&fd)?.0;
        Ok(Self::new(fd, &attr.stat, writable == Writable::Yes, fs))
    }
    /// What was found in a directory.
    pub fn below(proc: &HostFd, dir: &Node, fd: HostFd) -> Result<(Attr, Node)> {
        let attr = attr(proc, &fd)?;
        let node = Self::found(dir, fd, &attr.stat)?;
        Ok((attr, node))
    }
    /// As [`Node::below`], with the attributes that it has.
    pub fn found(dir: &Node, fd: HostFd, attr: &Stat) -> Result<Node> {
        let device = if attr.dev == dir.dev {
            Device::Same
        } else {
            Device::Other
        };
        let fs = dir.fs.below(&fd, device)?;
        Ok(Self::new(fd, attr, dir.writable, fs))
    }
    /// The same file.
    pub fn again(&self, proc: &HostFd) -> Result<(Attr, Node)> {
        let fd = self.fd.duplicate()?;
        let attr = attr(proc, &fd)?;
        let node = Self::new(fd, &attr.stat, self.writable, self.fs);
        Ok((attr, node))
    }
    fn new(fd: HostFd, attr: &Stat, writable: bool, fs: Kind) -> Node {
        Node {
            fd,
            kind: attr.mode & libc::S_IFMT,
            writable: writable && fs.is_plain(),
            fs,
            dev: attr.dev,
            remembered: AtomicBool::new(false),
        }
    }
    /// Whether both are on one file system.
    pub fn is_on_same_fs(&self, other: &Node) -> bool {
        self.dev == other.dev
    }
    /// Whether it may be opened, or searched: see [`kernel_fs`].
    pub fn check_opens(&self) -> Result<()> {
        let mode = || attr_at(&self.fd, c"", libc::AT_EMPTY_PATH).map(|a| a.mode);
        if self.fs.is_plain() || self.fs.opens(mode()?) {
            Ok(())
        } else {
            Err(EACCES)
        }
    }
}

/// The attributes of a file; `proc` is `/proc/self/fd`.
pub fn attr(proc: &HostFd, fd: &HostFd) -> Result<Attr> {
    let stat = attr_at(fd, c"", libc::AT_EMPTY_PATH)?;
    let acl = has_acl(proc, fd, stat.mode);
    Ok(Attr { stat, acl })
}

/// The name of a descriptor below `/proc/self/fd`.
pub fn proc_name(fd: &HostFd) -> CString {
    // Digits have no NUL.
    CString::new(fd.raw().to_string()).unwrap_or_default()
}

/// Whether a file, which is held by `O_PATH`, has a POSIX ACL.
fn has_acl(proc: &HostFd, fd: &HostFd, mode: u32) -> Option<bool> {
    if mode & libc::S_IFMT == libc::S_IFLNK {
        return Some(false);
    }
    /// Set on Linux before 6.13.
    static MISSING: AtomicBool = AtomicBool::new(false);
    if MISSING.load(Ordering::Relaxed) {
        return None;
    }
    let asked = path::getxattrat(proc.raw(), &proc_name(fd), ACL_NAME, &mut []);
    if asked == Err(ENOSYS) {
        MISSING.store(true, Ordering::Relaxed);
    }
    acl_there(asked)
}

/// Whether an open file has a POSIX ACL, which it has from its directory.
pub fn open_file_has_acl(fd: &HostFd) -> Option<bool> {
    acl_there(path::fgetxattr(fd.raw(), ACL_NAME, &mut []))
}

fn acl_there(asked: Result<usize>) -> Option<bool> {
    match asked {
        Ok(_) => Some(true),
        Err(ENODATA | EOPNOTSUPP) => Some(false),
        Err(_) => None,
    }
}

pub const ACL_NAME: &CStr = c"system.posix_acl_access";

/// The attributes of what a name leads to, with flags of `statx(2)`.
pub fn attr_at(fd: &HostFd, name: &CStr, flags: i32) -> Result<Stat> {
    let s = path::statx(fd.raw(), name, flags)?;
    let dev = |ma: u32, mi: u32| libc::makedev(ma, mi);
    let time = |t: libc::statx_timestamp| {
        t.tv_sec
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(t.tv_nsec))
    };
    Ok(Stat {
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
    let a = attr_at(&dir.fd, c"", libc::AT_EMPTY_PATH).ok()?;
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
