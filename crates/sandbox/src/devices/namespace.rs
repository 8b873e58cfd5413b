//! Network namespaces: which one this is, and going to another.

use crate::{Error, step};
use abi::Result;
use abi::errno::EIO;
use hostcall::{HostFd, inet, path, start as host};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;

/// A network namespace, as long as it exists: another may have its numbers later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Namespace {
    device: u64,
    inode: u64,
}

/// Of the calling thread.
const HERE: &CStr = c"/proc/thread-self/ns/net";

impl Namespace {
    /// That of the calling thread.
    pub fn here() -> std::result::Result<Namespace, Error> {
        step("find the network namespace", Namespace::of(HERE))
    }

    /// That of a file, which may be there for a process or for the namespace alone.
    pub fn of(file: &CStr) -> Result<Namespace> {
        Namespace::of_open(&path::openat2(libc::AT_FDCWD, file, 0, 0, 0)?)
    }

    /// That of an open file.
    pub fn of_open(file: &HostFd) -> Result<Namespace> {
        let s = hostcall::file::fstat(file.raw())?;
        Ok(Namespace {
            device: s.st_dev,
            inode: s.st_ino,
        })
    }
}

/// Whether this thread is in the machine's own network namespace.
///
/// Root of a container of somebody else's may not look at process 1; so it is asked in three ways.
pub fn is_initial() -> std::result::Result<bool, Error> {
    /// Its number since Linux 6.18 (`NET_NS_INIT_INO`); none of the others, which begin above
    /// 0xf0000000, was ever so low.
    const INODE: u64 = 0xeffffff9;
    let here = Namespace::here()?;
    let first = Namespace::of(c"/proc/1/ns/net").is_ok_and(|n| n == here);
    Ok(first || here.inode == INODE || cookie().is_ok_and(|c| c == 1))
}

/// The namespace's cookie. Before Linux 6.18 the first one that is given out, 1, is that of the
/// initial namespace; since then it is no other's.
fn cookie() -> Result<u64> {
    const SO_NETNS_COOKIE: i32 = 71;
    let s = inet::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
    let bytes = inet::option(s.raw(), libc::SOL_SOCKET, SO_NETNS_COOKIE, 8)?;
    bytes.try_into().map(u64::from_ne_bytes).map_err(|_| EIO)
}

/// Where a network namespace is found.
#[derive(Debug)]
pub enum Place {
    /// A process that is in it: its descriptor (`pidfd_open(2)`).
    Process(HostFd),
    /// A file of it.
    File(HostFd),
}

/// Does something in a network namespace, on a thread of its own: this one stays where it is, also
/// where there is no way back.
///
/// # Errors
///
/// `None` where this process may not go there. [`Error::HostsNetwork`] where it is the caller's own
/// namespace already: that is not only the container's.
pub fn inside<T: Send>(
    place: &Place,
    work: impl FnOnce() -> T + Send,
) -> std::result::Result<Option<T>, Error> {
    use abi::errno::{EACCES, EPERM};
    let own = Namespace::here()?;
    let fd = match place {
        Place::Process(fd) | Place::File(fd) => fd,
    };
    let there = || {
        match host::enter_network(fd) {
            Err(EPERM | EACCES) => return Ok(None),
            r => step("enter the container's network namespace", r)?,
        }
        if Namespace::here()? == own {
            return Err(Error::HostsNetwork);
        }
        Ok(Some(work()))
    };
    let ended = std::thread::scope(|s| s.spawn(there).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
