//! The virtual file system: mounts, the path walk, open files and the file systems that live in
//! memory.
//!
//! # Modules
//!
//! Each stands on those below it. Five arrows run upwards, as the types hold each other: inodes,
//! locks and leases know open files ([`inode`], [`locks`] and [`leases`] to [file](mod@file)), and
//! users, their namespaces and their counts are one knot ([`cred`] and [`ucounts`] to [`userns`]).
//! (A link of `/proc` leads to a [`Path`], and an inode may hear by which dentry it is used: these
//! two, too, only as types.)
//!
//! | module | what it holds |
//! |---|---|
//! | [`fs`] | tmpfs, root layer, overlayfs, devices, and the toolkit for generated file systems |
//! | [`ops`] | the operations that system calls are made of: methods of [`PathCx`] |
//! | [`walk`] | from a path name to a [`Path`] |
//! | [`context`] | from where somebody asks: root, working directory, descriptors |
//! | [`vfs`] | the root object: numbers, registries |
//! | [`namespace`] | the mount tree's operations |
//! | [`watch`] | telling who watches files: inotify(7), [`watch::dnotify`], fanotify(7) |
//! | [`peers`] | which mounts share what is mounted below them |
//! | [`params`] | what a file system is mounted with |
//! | [`fd_table`] | descriptors |
//! | [file](mod@file) | open files |
//! | [`mount`] | [`Mount`], [`Path`] |
//! | [`leases`] | leases |
//! | [`listed`] | the files that `/proc/locks` looks at |
//! | [`dentry`] | [`Dentry`] and [`SuperBlock`]: the cache of names |
//! | [`inode`] | [`Inode`]: what a file system implements |
//! | [`notice`] | generated files that tell when they change |
//! | [`acl`], [`mode`] | POSIX ACLs; types of files, permissions |
//! | [`caller`] | the caller |
//! | [`userns`] | user namespaces |
//! | [`cred`], [`sigio`] | credentials and capabilities; whom an open file signals |
//! | [`landlock`] | what processes forbid themselves: files by place, ports, whom they reach |
//! | [`locks`] | flock(2), POSIX and open-file-description locks |
//! | [`attachments`] | what other modules keep at inodes, mounts and super blocks |
//! | [`ring`], [`ida`] | bytes in a ring; numbers of which the lowest free one is given |
//! | [`ucounts`] | what each user holds: limits, the kernel's memory |
//!
//! # Lock order
//!
//! From the outside in; a thread that holds a lock takes only locks further down.
//!
//! 1. `namespace::Registry::lock`: changes of mount trees
//! 2. `SuperBlock::rename_lock`: renames between directories of one file system
//! 3. `Dentry::dir_lock`: changes of one directory and look-ups that miss. Two of them only in a
//!    rename, an ancestor before its descendant, else by address
//! 4. [`Inode::lock_attributes`], before 2-4 of the trees that a file system is made of
//! 5. locks of a file system's inodes (root layer and overlayfs before what they are made of)
//! 6. inotify's lists and fanotify's groups, before the lists of marks, before a mark (see `ipc`)
//! 7. leaves: `Dentry::{children, place}`, `Mount::{children, attached}`, `Peers`, the dentry ring,
//!    the files that are kept for their watches, slots, tables of locks, `LISTED`, requests of
//!    dnotify, places of notices, `clas`. `Core::alive` is taken before those of mounts, a list of
//!    leases before an open file's owner.
//!
//! Application memory (`Sink`, `Source`) is never touched with a lock of 2-7 held outside of the
//! closures given to `fill` and `drain`: resolving it may call back into a file's `Mappable`. The
//! descriptor table's lock is held across nothing.
#![forbid(unsafe_code)]

pub mod acl;
pub mod attachments;
pub mod caller;
pub mod context;
pub mod cred;
pub mod dentry;
pub mod fd_table;
pub mod file;
pub mod fs;
pub mod ida;
pub mod inode;
pub mod landlock;
pub mod leases;
pub mod listed;
pub mod locks;
pub mod mode;
pub mod mount;
pub mod namespace;
pub mod notice;
pub mod ops;
pub mod params;
pub mod peers;
pub mod ring;
pub mod sigio;
pub mod ucounts;
pub mod userns;
pub mod vfs;
pub mod walk;
pub mod watch;

pub use abi::attr::{NewNode, Perm, SetAttr, Stat, StatFs};
pub use caller::Caller;
pub use context::{At, FsContext, PathCx};
pub use cred::{Caps, Credentials};
pub use dentry::{Caching, Dentry, FileSystem, SuperBlock};
pub use fd_table::FdTable;
pub use file::{File, FileOps, Sink, Source};
pub use inode::{FileFlags, Follow, Inode, InodeExt, Looked, RenameFlags, Slot};
pub use mode::FileType;
pub use mount::{Mount, MountFlags, Path};
pub use namespace::MountNamespace;
pub use vfs::Vfs;

/// The longest path name, with its final NUL.
pub const PATH_MAX: usize = 4096;
/// The longest name in a directory.
pub const NAME_MAX: usize = 255;

/// One entry for `getdents64(2)`.
pub struct DirEntry<'a> {
    pub ino: u64,
    /// The cookie that continues after this entry (`d_off`).
    pub next: u64,
    /// `DT_*`.
    pub kind: u8,
    pub name: &'a [u8],
}

/// A device number as `stat(2)` shows it (`new_encode_dev`).
#[must_use]
pub const fn makedev(major: u32, minor: u32) -> u64 {
    let (ma, mi) = (major as u64, minor as u64);
    (mi & 0xff) | ((ma & 0xfff) << 8) | ((mi & !0xff) << 12) | ((ma & !0xfff) << 32)
}
/// The major number of `dev`.
#[must_use]
pub const fn major(dev: u64) -> u32 {
    (((dev >> 8) & 0xfff) | ((dev >> 32) & 0xffff_f000)) as u32
}
/// The minor number of `dev`.
#[must_use]
pub const fn minor(dev: u64) -> u32 {
    ((dev & 0xff) | ((dev >> 12) & 0xffff_ff00)) as u32
}

/// The time that files are stamped with, in nanoseconds since the epoch: the coarse clock, as in
/// Linux.
#[must_use]
pub fn now() -> i64 {
    hostcall::time::clock_nanos(abi::linux::CLOCK_REALTIME_COARSE as i32)
}

#[cfg(test)]
mod tests;
