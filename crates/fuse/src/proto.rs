//! The protocol's structs, as they lie in requests and answers (`linux/fuse.h`), of version 7.12 and
//! later. Numbers are the processor's.

use abi::Result;
use abi::errno::EIO;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version that is spoken (what 7.39 to 7.45 add is not there), and the oldest that is
/// understood: before it, structs are shorter.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 38;
pub const MINOR_LEAST: u32 = 12;
/// The root's node.
pub const ROOT: u64 = 1;
/// A server's buffer for requests has at least so many bytes (`FUSE_MIN_READ_BUFFER`).
pub const READ_BUFFER_LEAST: usize = 8192;
/// The longest name that a server may tell (`FUSE_NAME_MAX`).
pub const NAME_MAX: usize = 1024;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Op {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Flush = 25,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Fsyncdir = 30,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    Ioctl = 39,
    BatchForget = 42,
    Fallocate = 43,
    Rename2 = 45,
    Lseek = 46,
    Tmpfile = 51,
}

bitflags::bitflags! {
    /// What a server and the kernel can do, of INIT.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct InitFlags: u32 {
        const ASYNC_READ = 1 << 0;
        const ATOMIC_O_TRUNC = 1 << 3;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const NO_OPEN_SUPPORT = 1 << 17;
        const ABORT_ERROR = 1 << 21;
        const MAX_PAGES = 1 << 22;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
    }
}

bitflags::bitflags! {
    /// What an open file is like (`FOPEN_*`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct OpenFlags: u32 {
        const DIRECT_IO = 1 << 0;
        const KEEP_CACHE = 1 << 1;
        const NONSEEKABLE = 1 << 2;
        const STREAM = 1 << 4;
        const NOFLUSH = 1 << 5;
        const _ = !0;
    }
}

/// `FATTR_*`.
pub mod fattr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 2;
    pub const GID: u32 = 4;
    pub const SIZE: u32 = 8;
    pub const ATIME: u32 = 16;
    pub const MTIME: u32 = 32;
    pub const FH: u32 = 64;
    pub const ATIME_NOW: u32 = 128;
    pub const MTIME_NOW: u32 = 256;
}

/// Set in an INTERRUPT's unique beside that of its request (`FUSE_INT_REQ_BIT`).
pub const INTERRUPT_BIT: u64 = 1;
/// Servers before know no BATCH_FORGET.
pub const MINOR_BATCH_FORGET: u32 = 16;
/// `FUSE_WRITE_CACHE`: from pages, not from a call.
pub const WRITE_CACHE: u32 = 1;
/// `FUSE_FSYNC_FDATASYNC`.
pub const FSYNC_DATA: u32 = 1;
/// `FUSE_IOCTL_DIR`, `FUSE_IOCTL_RETRY`.
pub const IOCTL_DIR: u32 = 16;
pub const IOCTL_RETRY: u32 = 4;

/// What a server tells unasked (`FUSE_NOTIFY_*`).
pub mod notify {
    pub const POLL: i32 = 1;
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const DELETE: i32 = 6;
}

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $t:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $t),* }
    )*};
}

wire! {
    InHeader { len: u32, op: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32, extensions: u32 }
    OutHeader { len: u32, error: i32, unique: u64 }
    /// `struct fuse_attr`.
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { valid: u64, valid_nsec: u32, unused: u32, attr: Attr }
    ForgetIn { lookups: u64 }
    BatchForgetIn { count: u32, unused: u32 }
    ForgetOne { node: u64, lookups: u64 }
    GetattrIn { flags: u32, unused: u32, fh: u64 }
    SetattrIn {
        valid: u32, unused: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, unused: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { dir: u64 }
    Rename2In { dir: u64, flags: u32, unused: u32 }
    LinkIn { node: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { fh: u64, flags: u32, unused: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, unused2: u32, lock_owner: u64 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, unused: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, unused: u32 }
    WriteOut { size: u32, unused: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        unused: [u32; 7],
    }
    FsyncIn { fh: u64, flags: u32, unused: u32 }
    /// Without what `FUSE_SETXATTR_EXT` adds.
    SetxattrIn { size: u32, flags: u32 }
    GetxattrIn { size: u32, unused: u32 }
    AccessIn { mask: u32, unused: u32 }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    InterruptIn { unique: u64 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, unused: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, unused: u32 }
    LseekOut { offset: u64 }
    /// Before a name, which is padded to 8 bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    NotifyInodeOut { node: u64, offset: i64, len: i64 }
    NotifyEntryOut { parent: u64, namelen: u32, flags: u32 }
    NotifyDeleteOut { parent: u64, child: u64, namelen: u32, unused: u32 }
    NotifyStoreOut { node: u64, offset: u64, size: u32, unused: u32 }
}

/// What an answer, or a part of one, begins with.
pub fn parse<T: FromBytes>(bytes: &[u8]) -> Result<(T, &[u8])> {
    T::read_from_prefix(bytes).map_err(|_| EIO)
}

/// A name as requests have it.
pub fn with_nul(name: &[u8]) -> Vec<u8> {
    [name, &[0]].concat()
}
