//! The virtual file system: mounts, the path walk, open files and the file systems that live in memory.
#![forbid(unsafe_code)]

pub mod cred;
pub mod file;

pub use cred::{Caps, Credentials};
pub use file::{File, FileOps, Sink, Source};

/// What `stat(2)` and `statx(2)` tell. Times are nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blksize: u32,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    /// Zero where the file system does not keep it.
    pub btime: i64,
}

/// One entry for `getdents64(2)`.
pub struct DirEntry<'a> {
    pub ino: u64,
    /// The cookie that continues after this entry (`d_off`).
    pub next: u64,
    /// `DT_*`.
    pub kind: u8,
    pub name: &'a [u8],
}

/// A place in the mount tree: Linux's `struct path`. (The VFS's author fills this in.)
#[derive(Clone)]
pub struct Path;
