//! Making, removing and renaming names, and what is seen of a directory afterwards.

use super::made::{self, Birth};
use super::ops::{Answer, RESOLVE, RESOLVE_LINK, is_dir, writable};
use super::table::{Node, attr_at, open_file_has_acl, proc_name, version};
use super::{Server, component};
use crate::proto::{Attr, Handle, NameTarget, Reply, Seen};
use abi::Result;
use abi::attr::NewNode;
use abi::errno::{EINVAL, ENAMETOOLONG, ENOENT, EPERM};
use hostcall::{HostFd, file, path};
use std::ffi::{CStr, CString};
use std::sync::Arc;

impl Server {
    fn dir_for_change(&self, h: Handle, name: &[u8]) -> Result<(Arc<Node>, CString)> {
        let dir = self.table.get(h)?;
        is_dir(&dir)?;
        writable(&dir)?;
        Ok((dir, component(name)?))
    }

    /// What is to be seen of a directory, where the client remembers its names; `first` tells of
    /// the name that was changed, and is asked **after** the version was read.
    fn seen(dir: &Node, also: &[Vec<u8>], first: impl FnOnce() -> NameTarget) -> Option<Seen> {
        Self::seen_at(dir, version(dir)?, also, first)
    }

    /// As [`Server::seen`], for a version that was read before.
    pub(super) fn seen_at(
        dir: &Node,
        version: i64,
        also: &[Vec<u8>],
        first: impl FnOnce() -> NameTarget,
    ) -> Option<Seen> {
        let other =
            |n: &Vec<u8>| component(n).map_or(NameTarget::Unknown, |n| Self::named(dir, &n));
        let names = std::iter::once(first())
            .chain(also.iter().map(other))
            .collect();
        Some(Seen { version, names })
    }

    fn named(dir: &Node, name: &CStr) -> NameTarget {
        match attr_at(&dir.fd, name, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(a) => NameTarget::File(a.dev, a.ino),
            Err(ENOENT) => NameTarget::Missing,
            Err(_) => NameTarget::Unknown,
        }
    }

    pub(super) fn create(
        &self,
        dir: Handle,
        name: &[u8],
        new: NewNode,
        also: &[Vec<u8>],
    ) -> Answer {
        let (dir, name) = self.dir_for_change(dir, name)?;
        let flags = (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW) as u64;
        let mode = u64::from(new.mode & 0o7777);
        let fd = path::openat2(dir.fd.raw(), &name, flags, mode, RESOLVE)?;
        let made = self.own_fd(&fd, new).and_then(|()| {
            let version = version(&dir);
            // By the name, which is cheaper; but it may lead elsewhere by now.
            if let Some((attr, held)) = self.held(&dir, &name, &fd) {
                let file = || NameTarget::File(attr.stat.dev, attr.stat.ino);
                let seen = version.and_then(|v| Self::seen_at(&dir, v, also, file));
                return Ok((attr, self.table.insert(held)?, seen));
            }
            let flags = libc::O_PATH as u64;
            let held = path::openat2(self.proc_fd.raw(), &proc_name(&fd), flags, 0, 0)?;
            let (attr, handle) = self.insert(Node::below(&self.proc_fd, &dir, held)?)?;
            Ok((attr, handle, None))
        });
        match made {
            Ok((attr, handle, dir)) => {
                let reply = Reply::Node {
                    attr,
                    handle,
                    writable: true,
                    dir,
                };
                Ok((reply, Some(fd)))
            }
            Err(e) => {
                if let Ok(s) = file::fstat(fd.raw()) {
                    made::remove(&dir, &name, |a| (a.dev, a.ino) == (s.st_dev, s.st_ino));
                }
                Err(e)
            }
        }
    }

    /// The open file, held by its name, if it is still the one that this leads to.
    fn held(&self, dir: &Node, name: &CStr, fd: &HostFd) -> Option<(Attr, Node)> {
        let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
        let held = path::openat2(dir.fd.raw(), name, flags, 0, RESOLVE_LINK).ok()?;
        let stat = attr_at(&held, c"", libc::AT_EMPTY_PATH).ok()?;
        let open = file::fstat(fd.raw()).ok()?;
        if (stat.dev, stat.ino) != (open.st_dev, open.st_ino) {
            return None;
        }
        // By the descriptor, which leads there without a walk.
        let acl = open_file_has_acl(fd);
        let node = Node::found(dir, held, &stat).ok()?;
        Some((Attr { stat, acl }, node))
    }

    fn own_fd(&self, fd: &HostFd, new: NewNode) -> Result<()> {
        if new.uid == u32::MAX && new.gid == u32::MAX {
            return Ok(());
        }
        match path::fchownat(fd.raw(), c"", new.uid, new.gid, libc::AT_EMPTY_PATH) {
            Err(EPERM) if self.uid != 0 => return Ok(()),
            r => r?,
        }
        // A change of owner takes set-id bits away.
        if new.mode & 0o6000 != 0 {
            let name = proc_name(fd);
            path::fchmodat(self.proc_fd.raw(), &name, new.mode & 0o7777)?;
        }
        Ok(())
    }

    pub(super) fn tmpfile(&self, dir: Handle, new: NewNode) -> Answer {
        let dir = self.table.get(dir)?;
        is_dir(&dir)?;
        writable(&dir)?;
        let flags = (libc::O_RDWR | libc::O_TMPFILE) as u64;
        let mode = u64::from(new.mode & 0o7777);
        let fd = path::openat2(dir.fd.raw(), c".", flags, mode, RESOLVE)?;
        self.own_fd(&fd, new)?;
        let (attr, handle) = self.insert(Node::below(&self.proc_fd, &dir, fd.duplicate()?)?)?;
        Ok((
            Reply::Node {
                attr,
                handle,
                writable: true,
                dir: None,
            },
            Some(fd),
        ))
    }

    pub(super) fn mkdir(
        &self,
        dir: Handle,
        name: &[u8],
        new: NewNode,
        also: &[Vec<u8>],
    ) -> Result<(Attr, Handle, Option<Seen>)> {
        let (dir, name) = self.dir_for_change(dir, name)?;
        let birth = Birth::now(libc::S_IFDIR);
        path::mkdirat(dir.fd.raw(), &name, new.mode & 0o7777)?;
        self.made(&dir, &name, new, &birth, also)
    }

    pub(super) fn mknod(
        &self,
        dir: Handle,
        name: &[u8],
        new: NewNode,
        also: &[Vec<u8>],
    ) -> Result<(Attr, Handle, Option<Seen>)> {
        let (dir, name) = self.dir_for_change(dir, name)?;
        let kind = new.mode & libc::S_IFMT;
        match kind {
            libc::S_IFIFO | libc::S_IFSOCK => {}
            // A device of the host's is nothing that a container may make.
            _ => return Err(EPERM),
        }
        let birth = Birth::now(kind);
        path::mknodat(dir.fd.raw(), &name, kind | new.mode & 0o7777)?;
        self.made(&dir, &name, new, &birth, also)
    }

    pub(super) fn symlink(
        &self,
        dir: Handle,
        name: &[u8],
        target: Vec<u8>,
        new: NewNode,
        also: &[Vec<u8>],
    ) -> Result<(Attr, Handle, Option<Seen>)> {
        let (dir, name) = self.dir_for_change(dir, name)?;
        if target.len() >= libc::PATH_MAX as usize {
            return Err(ENAMETOOLONG);
        }
        let target = CString::new(target).map_err(|_| EINVAL)?;
        let birth = Birth::now(libc::S_IFLNK);
        path::symlinkat(&target, dir.fd.raw(), &name)?;
        self.made(&dir, &name, new, &birth, also)
    }

    pub(super) fn link(
        &self,
        h: Handle,
        dir: Handle,
        name: &[u8],
        also: &[Vec<u8>],
    ) -> Result<Option<Seen>> {
        let (dir, name) = self.dir_for_change(dir, name)?;
        let n = self.table.get(h)?;
        // From one root into another would be a way around a read-only one.
        if n.kind == libc::S_IFDIR || !n.writable {
            return Err(EPERM);
        }
        let source = proc_name(&n.fd);
        let flags = libc::AT_SYMLINK_FOLLOW;
        path::linkat(self.proc_fd.raw(), &source, dir.fd.raw(), &name, flags)?;
        Ok(Self::seen(&dir, also, || Self::named(&dir, &name)))
    }

    pub(super) fn unlink(
        &self,
        dir: Handle,
        name: &[u8],
        flags: i32,
        also: &[Vec<u8>],
    ) -> Result<Option<Seen>> {
        let (dir, name) = self.dir_for_change(dir, name)?;
        path::unlinkat(dir.fd.raw(), &name, flags)?;
        Ok(Self::seen(&dir, also, || Self::named(&dir, &name)))
    }

    pub(super) fn rename(
        &self,
        from: (Handle, &[u8]),
        to: (Handle, &[u8]),
        flags: u32,
        also: &[Vec<u8>],
    ) -> Answer {
        let (dir, name) = self.dir_for_change(from.0, from.1)?;
        let (new_dir, new_name) = self.dir_for_change(to.0, to.1)?;
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(EINVAL);
        }
        path::renameat2(dir.fd.raw(), &name, new_dir.fd.raw(), &new_name, flags)?;
        let new_version = version(&new_dir);
        let old_version = if Arc::ptr_eq(&dir, &new_dir) {
            new_version
        } else {
            version(&dir)
        };
        let seen = |dir: &Node, version: Option<i64>, name: &CStr, also: &[Vec<u8>]| {
            Self::seen_at(dir, version?, also, || Self::named(dir, name))
        };
        let reply = Reply::Changed {
            dir: seen(&new_dir, new_version, &new_name, also),
            old: seen(&dir, old_version, &name, &[]),
        };
        Ok((reply, None))
    }
}
