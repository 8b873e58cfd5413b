//! Owner and mode of what was just made by a name: a directory, a FIFO, a socket, a link.
//!
//! Another process that may write to the directory can put another file under the name before the
//! server comes back to it. So the file is held first; what is held must be what the server itself
//! has made a moment ago, and is then changed by the descriptor alone. What it is not is left as it
//! is, and nothing was made: somebody has taken it away.
//!
//! What remains: a file that the server has made at the very same time for somebody else, as empty
//! and as young.

use super::Server;
use super::ops::{RESOLVE_LINK, is_stamped_here};
use super::table::{Node, attr_at, proc_name};
use crate::proto::{Attr, Handle, NameTarget, Seen};
use abi::Result;
use abi::attr::{NewNode, Stat};
use abi::errno::{ENOENT, EPERM};
use hostcall::{HostFd, path};
use std::ffi::CStr;

/// What a file must be like to have been made since.
pub(super) struct Birth {
    kind: u32,
    /// On the clock that the host stamps files by.
    since: i64,
}

impl Birth {
    /// To be asked for before the file is made.
    pub(super) fn now(kind: u32) -> Birth {
        let since = hostcall::time::clock_nanos(libc::CLOCK_REALTIME_COARSE);
        Birth { kind, since }
    }

    /// Whether it can be the file: all that its attributes tell.
    fn fits(&self, a: &Stat, uid: u32) -> bool {
        let alone = match self.kind {
            libc::S_IFDIR => a.nlink <= 2,
            libc::S_IFLNK => a.nlink == 1,
            _ => a.nlink == 1 && a.size == 0,
        };
        a.mode & libc::S_IFMT == self.kind && a.uid == uid && alone
    }

    /// Whether it is as young.
    fn is_young(&self, a: &Stat) -> bool {
        a.btime >= self.since
    }

    /// Where the time of birth does not tell: the clock is another's, or it is not kept. Then a
    /// directory must have nothing in it.
    fn may_be_old(&self, fd: &HostFd, a: &Stat) -> Result<bool> {
        if a.btime != 0 && is_stamped_here(path::fstatfs(fd.raw())?.f_type) {
            return Ok(false);
        }
        Ok(self.kind != libc::S_IFDIR || is_empty(fd)?)
    }
}

fn is_empty(dir: &HostFd) -> Result<bool> {
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY) as u64;
    let fd = path::openat2(dir.raw(), c".", flags, 0, RESOLVE_LINK)?;
    let mut buf = [0; 1024];
    // Each of `.` and `..` takes 24 bytes.
    Ok(path::getdents64(fd.raw(), &mut buf)? <= 48)
}

/// Takes a name away that still leads to what was made, as far as can be told.
pub(super) fn remove(dir: &Node, name: &CStr, same: impl FnOnce(&Stat) -> bool) {
    let Ok(a) = attr_at(&dir.fd, name, libc::AT_SYMLINK_NOFOLLOW) else {
        return;
    };
    if same(&a) {
        let is_dir = a.mode & libc::S_IFMT == libc::S_IFDIR;
        let flags = if is_dir { libc::AT_REMOVEDIR } else { 0 };
        let _ = path::unlinkat(dir.fd.raw(), name, flags);
    }
}

impl Server {
    /// Gives what was just made its owner and mode: a handle to it, and what was seen in its
    /// directory then.
    pub(super) fn made(
        &self,
        dir: &Node,
        name: &CStr,
        new: NewNode,
        birth: &Birth,
        also: &[Vec<u8>],
    ) -> Result<(Attr, Handle, Option<Seen>)> {
        let version = super::table::version(dir);
        let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
        let held = path::openat2(dir.fd.raw(), name, flags, 0, RESOLVE_LINK);
        let fd = held.inspect_err(|_| {
            remove(dir, name, |a| birth.fits(a, self.uid) && birth.is_young(a));
        })?;
        let first = attr_at(&fd, c"", libc::AT_EMPTY_PATH)?;
        let own = birth.fits(&first, self.uid) && birth.is_young(&first);
        let is_ours = |a: &Stat| own && (a.dev, a.ino) == (first.dev, first.ino);
        let made = self
            .give_attributes(&fd, &first, new, birth)
            .and_then(|()| self.insert(Node::below(&self.proc_fd, dir, fd)?));
        let (attr, handle) = made.inspect_err(|_| {
            remove(dir, name, is_ours);
        })?;
        let file = || NameTarget::File(attr.stat.dev, attr.stat.ino);
        let seen = version.and_then(|v| Self::seen_at(dir, v, also, file));
        Ok((attr, handle, seen))
    }

    /// `ENOENT` where it is another file.
    fn give_attributes(
        &self,
        fd: &HostFd,
        first: &Stat,
        new: NewNode,
        birth: &Birth,
    ) -> Result<()> {
        let chown = new.uid != u32::MAX || new.gid != u32::MAX;
        // mkdir(2) drops bits that the application's file shall have, and chown(2) drops some of
        // others.
        let chmod = match birth.kind {
            libc::S_IFLNK => false,
            libc::S_IFDIR => first.mode & 0o7777 != new.mode & 0o7777,
            _ => chown && new.mode & 0o6000 != 0,
        };
        if !chown && !chmod {
            return Ok(());
        }
        let same = birth.fits(first, self.uid)
            && (birth.is_young(first) || birth.may_be_old(fd, first)?);
        if !same {
            return Err(ENOENT);
        }
        if chown {
            match path::fchownat(fd.raw(), c"", new.uid, new.gid, libc::AT_EMPTY_PATH) {
                // Where the server may not, the host's choice stays: rootless, every file is the
                // server's.
                Err(EPERM) if self.uid != 0 => {}
                r => r?,
            }
        }
        if chmod {
            path::fchmodat(self.proc_fd.raw(), &proc_name(fd), new.mode & 0o7777)?;
        }
        Ok(())
    }
}
