//! FUSE: file systems that programs inside serve to others inside (`/dev/fuse` and mount(2)'s type
//! `fuse`; fuse(4), Linux's fs/fuse, whose protocol is `linux/fuse.h`).
//!
//! | module | what it holds |
//! |---|---|
//! | [`mount`] | mount(2): its options, the file system |
//! | [`device`] | `/dev/fuse`: where a server reads requests and writes answers |
//! | `inode`, `attributes` | files: names; attributes, and changes of data |
//! | `file`, `dir` | what is open |
//! | `pages` | pages of files that are mapped |
//! | `known` | what was told of a file, and for how long that holds |
//! | `connection` | requests on their way, waiting for answers |
//! | `proto` | the protocol's structs |
//!
//! # Invariants
//!
//! - A server is a program as any other: it may answer late, never, twice, with anything. What it
//!   writes is copied once, bounded by what was asked for, and checked.
//! - Threads wait for a server in `Connection::call` and `call_to_the_end`, and for writes on their
//!   way in `FuseInode::settle`, and nowhere else. Whoever waits there is a task
//!   ([`vfs::caller::Client`]) that is woken by its end, at once: it leaves its request behind. (At
//!   an end of its own will it waits a little for its files to be flushed.) A signal makes an
//!   INTERRUPT and the wait goes on, as on Linux. Threads of the kernel's own never wait: `EIO`.
//! - Who waits holds no lock but those of this file system's names (`Dentry::dir_lock`, by which
//!   Linux's readers and writers wait as well), of attributes, of one file's appends, and of the
//!   position of its own open file. No lock of this crate but the one for appends.
//! - What the kernel wants to know for others' lists (maps, locks, watches) is what is known
//!   already (`known_stat`, `perm`), never asked for.
//! - What a request takes is its caller's memory; its bytes go when the server has read them.
//! - A thread looks at a page of a mapped file only after the page was filled, and an address space
//!   never waits for that with its lock held ([`clas::Mappable::fill`]).
//!
//! # Lock order
//!
//! `FuseInode::appends` → (the server) · `Pages::store` → an address space's lock → `Pages::have` →
//! tmpfs' content. `Connection::state`, `Connection::inodes`, `FuseInode::known`, the others: leaves.
//!
//! # What is not there
//!
//! Locks stay in the kernel (`FUSE_POSIX_LOCKS` and `FUSE_FLOCK_LOCKS` are not offered); names that
//! are missing are not remembered; what is read is kept as long as it is mapped, and beside that
//! only ahead of who reads on; FUSE_POLL, READDIRPLUS, COPY_FILE_RANGE, DAX, passthrough, and
//! requests by io_uring.
#![forbid(unsafe_code)]

mod attributes;
mod connection;
pub mod device;
mod dir;
mod file;
#[cfg(any(test, fuzzing))]
pub mod harness;
mod inode;
mod known;
pub mod mount;
mod pages;
mod proto;
#[cfg(test)]
mod tests;
