//! What each request does.

use super::made::{self, Birth};
use super::table::{ACL_NAME, Node, attr, attr_at, open_file_has_acl, proc_name, version};
use super::{Server, component};
use crate::kernel_fs::{self, Kind};
use crate::proto::{ACL, Access, Attr, Entry, Handle, Named, Reply, Request, Seen, Step, Then};
use crate::wire::MAX_STRING;
use abi::Result;
use abi::attr::{NewNode, SetAttr, StatFs};
use abi::errno::{
    EACCES, EBUSY, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENODATA, ENOENT, ENOSYS, ENOTDIR, ENXIO,
    EOPNOTSUPP, EPERM, EROFS,
};
use hostcall::{HostFd, file, path};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

type Answer = Result<(Reply, Option<HostFd>)>;

/// One component below a directory, never through a link. (`RESOLVE_NO_XDEV` is missing on purpose: a
/// root may have host mounts in it.)
const RESOLVE: u64 = (abi::linux::RESOLVE_BENEATH
    | abi::linux::RESOLVE_NO_MAGICLINKS
    | abi::linux::RESOLVE_NO_SYMLINKS) as u64;
/// For the last component, which may itself be a link: `O_NOFOLLOW` stands at it.
pub(super) const RESOLVE_LINK: u64 =
    (abi::linux::RESOLVE_BENEATH | abi::linux::RESOLVE_NO_MAGICLINKS) as u64;

/// For looks at names beside the one that was asked for.
const BESIDE: Duration = Duration::from_millis(1);
/// Room for entries in one reply; the longest entry is far smaller than what is left.
const DENTS: usize = 32 << 10;
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// ext4, XFS, btrfs.
const FINE: [i64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];
/// f2fs, overlayfs; and tmpfs, where link(2) and unlink(2) give a directory the file's new time, which is no
/// finer than the clock's ticks though the directory's was looked at.
const LOCAL: [i64; 3] = [0xf2f5_2010, 0x794c_7630, 0x0102_1994];

/// Whether the times of a file system (`f_type`) are the host's own, and no coarser than its clock's ticks.
pub(super) fn is_stamped_here(fs: i64) -> bool {
    FINE.contains(&fs) || LOCAL.contains(&fs)
}

fn is_dir(n: &Node) -> Result<()> {
    if n.kind == libc::S_IFDIR {
        Ok(())
    } else {
        Err(ENOTDIR)
    }
}

fn writable(n: &Node) -> Result<()> {
    if n.writable { Ok(()) } else { Err(EROFS) }
}

fn timespec(t: Option<i64>) -> libc::timespec {
    match t {
        None => libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        Some(ns) => libc::timespec {
            tv_sec: ns.div_euclid(1_000_000_000),
            tv_nsec: ns.rem_euclid(1_000_000_000),
        },
    }
}

impl Server {
    /// Opens a regular file or a directory that is held by `O_PATH`.
    fn reopen(&self, n: &Node, flags: i32) -> Result<HostFd> {
        match n.kind {
            libc::S_IFREG | libc::S_IFDIR => {}
            libc::S_IFLNK => return Err(ELOOP),
            // A device, FIFO or socket of the host is never opened.
            _ => return Err(ENXIO),
        }
        n.check_opens()?;
        let flags = (flags | libc::O_NONBLOCK | libc::O_NOCTTY) as u64;
        path::openat2(self.proc_fd.raw(), &proc_name(&n.fd), flags, 0, 0)
    }

    fn dir_for_change(&self, h: Handle, name: &[u8]) -> Result<(Arc<Node>, CString)> {
        let dir = self.table.get(h)?;
        is_dir(&dir)?;
        writable(&dir)?;
        Ok((dir, component(name)?))
    }

    /// A handle to what was just made or found.
    fn look(&self, dir: &Node, name: &CStr) -> Result<(Attr, Handle)> {
        if !dir.fs.is_plain() {
            dir.check_opens()?;
            if dir.fs == Kind::ProcTop && !self.shows(dir, name.to_bytes()) {
                return Err(ENOENT);
            }
            if let (Kind::ProcTop, kernel_fs::NET) = (dir.fs, name.to_bytes()) {
                return self.insert(self.network.as_ref().ok_or(ENOENT)?.again(&self.proc_fd)?);
            }
        }
        let flags = (libc::O_PATH | libc::O_NOFOLLOW) as u64;
        let fd = path::openat2(dir.fd.raw(), name, flags, 0, RESOLVE_LINK)?;
        self.insert(Node::below(&self.proc_fd, dir, fd)?)
    }

    pub(super) fn insert(&self, (attr, node): (Attr, Node)) -> Result<(Attr, Handle)> {
        Ok((attr, self.table.insert(node)?))
    }

    /// Whether the top directory of a procfs has a name here.
    fn shows(&self, top: &Node, name: &[u8]) -> bool {
        match name {
            kernel_fs::NET => self.network.as_ref().is_some_and(|n| n.is_beside(top)),
            _ => kernel_fs::is_shown(name),
        }
    }

    /// Does what is asked; where names are changed, it looks at `also` afterwards.
    pub(super) fn handle(&self, request: Request, also: &[Vec<u8>]) -> Answer {
        let done = |()| (Reply::Done, None);
        let changed = |dir| (Reply::Changed { dir, old: None }, None);
        let node = |(attr, handle, dir)| {
            let reply = Reply::Node {
                attr,
                handle,
                writable: true,
                dir,
            };
            (reply, None)
        };
        match request {
            Request::Nop => Ok((Reply::Done, None)),
            Request::Attach { root } => self.attach(&root),
            Request::Walk {
                from,
                names,
                beside,
                then,
            } => self.walk(from, &names, &beside, then),
            Request::GetAttr { file } => Ok((
                Reply::Attr(attr(&self.proc_fd, &self.table.get(file)?.fd)?),
                None,
            )),
            Request::SetAttr { file, attr } => self.set_attr(file, &attr),
            Request::Open { file, access } => self.open(file, access),
            Request::Create { dir, name, new } => self.create(dir, &name, new, also),
            Request::TmpFile { dir, new } => self.tmpfile(dir, new),
            Request::Mkdir { dir, name, new } => self.mkdir(dir, &name, new, also).map(node),
            Request::Mknod { dir, name, new } => self.mknod(dir, &name, new, also).map(node),
            Request::Symlink {
                dir,
                name,
                target,
                new,
            } => self.symlink(dir, &name, target, new, also).map(node),
            Request::Link { file, dir, name } => self.link(file, dir, &name, also).map(changed),
            Request::Unlink { dir, name } => self.unlink(dir, &name, 0, also).map(changed),
            Request::Rmdir { dir, name } => {
                let flags = libc::AT_REMOVEDIR;
                self.unlink(dir, &name, flags, also).map(changed)
            }
            Request::Rename {
                dir,
                name,
                new_dir,
                new_name,
                flags,
            } => self.rename((dir, &name), (new_dir, &new_name), flags, also),
            Request::Readlink { file } => {
                let n = self.table.get(file)?;
                if n.kind != libc::S_IFLNK {
                    return Err(EINVAL);
                }
                Ok((Reply::Bytes(path::readlinkat(n.fd.raw(), c"")?), None))
            }
            Request::ReadDir { dir, cookie } => self.read_dir(dir, cookie),
            Request::StatFs { file } => self.stat_fs(file),
            Request::Sync { file } => {
                let n = self.table.get(file)?;
                let fd = self.reopen(&n, libc::O_RDONLY)?;
                file::fsync(fd.raw()).map(done)
            }
            Request::GetXattr { file, name } => self.get_xattr(file, &name),
            Request::SetXattr {
                file,
                name,
                value,
                flags,
            } => {
                let (fd, name) = self.xattr_for_change(file, &name)?;
                path::fsetxattr(fd.raw(), &name, &value, flags).map(done)
            }
            Request::ListXattr { file } => self.list_xattr(file),
            Request::RemoveXattr { file, name } => {
                let (fd, name) = self.xattr_for_change(file, &name)?;
                path::fremovexattr(fd.raw(), &name).map(done)
            }
        }
    }

    fn attach(&self, root: &[u8]) -> Answer {
        let (_, root) = self
            .roots
            .iter()
            .find(|r| r.0.as_bytes() == root)
            .ok_or(ENOENT)?;
        let (attr, handle) = self.insert(root.again(&self.proc_fd)?)?;
        Ok((
            Reply::Node {
                attr,
                handle,
                writable: root.writable,
                dir: None,
            },
            None,
        ))
    }

    /// What a name in a directory is.
    fn step(&self, dir: &Node, name: &[u8]) -> Result<Step> {
        let (attr, handle) = self.look(dir, &component(name)?)?;
        let target = (attr.stat.mode & libc::S_IFMT == libc::S_IFLNK)
            .then(|| {
                let n = self.table.get(handle)?;
                path::readlinkat(n.fd.raw(), c"")
            })
            .transpose()
            .inspect_err(|_| self.table.remove(handle))?;
        Ok(Step {
            attr,
            handle,
            target,
        })
    }

    fn walk(&self, from: Handle, names: &[Vec<u8>], beside: &[Vec<u8>], then: Then) -> Answer {
        let first = self.table.get(from)?;
        is_dir(&first)?;
        let mut at = first.clone();
        let mut steps: Vec<Step> = Vec::new();
        let mut stopped = None;
        for name in names {
            match self.step(&at, name) {
                Ok(s) => {
                    let node = self.table.get(s.handle);
                    let kind = s.attr.stat.mode & libc::S_IFMT;
                    // A path of long links must fit into one message.
                    let full = steps.iter().any(|s| s.target.is_some());
                    steps.push(s);
                    match node {
                        Ok(n) if kind == libc::S_IFDIR && !full => at = n,
                        _ => break,
                    }
                }
                Err(e) => {
                    stopped = Some(e);
                    break;
                }
            }
        }
        let last = steps.last().filter(|s| {
            let whole = stopped.is_none() && steps.len() == names.len();
            then == Then::Read && whole && s.attr.stat.mode & libc::S_IFMT == libc::S_IFREG
        });
        // Whether it may be opened, and why not, is told to who opens.
        let fd = last.and_then(|s| {
            let n = self.table.get(s.handle).ok()?;
            self.reopen(&n, libc::O_RDONLY).ok()
        });
        // Links may be long, and all must fit into one message. And who asked for one name waits: where a look takes
        // long, others are not worth it.
        let mut room = MAX_STRING / 4;
        let begun = Instant::now();
        let beside = beside.iter().map(|name| {
            let s = (room > 0 && begun.elapsed() < BESIDE)
                .then(|| self.step(&first, name).ok())
                .flatten()?;
            room = room.saturating_sub(s.target.as_ref().map_or(0, Vec::len));
            Some(s)
        });
        let reply = Reply::Walked {
            steps,
            stopped,
            beside: beside.collect(),
        };
        Ok((reply, fd))
    }

    fn open(&self, h: Handle, access: Access) -> Answer {
        let n = self.table.get(h)?;
        match n.kind {
            _ if access == Access::Look => {}
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(EISDIR),
            _ => return Err(ENXIO),
        }
        let mut fine = false;
        let fd = match access {
            Access::Look => {
                let fd;
                (fd, fine) = self.look_at(&n)?;
                n.remembered.store(fine, Ordering::Relaxed);
                fd
            }
            Access::Read => self.reopen(&n, libc::O_RDONLY)?,
            Access::ReadWrite => {
                writable(&n)?;
                match self.reopen(&n, libc::O_RDWR) {
                    // A file that its owner may only write.
                    Err(EACCES) => self.reopen(&n, libc::O_WRONLY)?,
                    r => r?,
                }
            }
        };
        Ok((Reply::Opened { fine }, Some(fd)))
    }

    /// A descriptor by which the client sees a file's attributes, and a change of a directory's names by its
    /// change time. Only where Linux itself keeps that time, and where nobody can mount anything over a
    /// name, which changes no directory. And whether the time tells two changes apart that are seen one by
    /// one: since Linux 6.13 a change after the time was looked at has a finer one (multigrain timestamps).
    fn look_at(&self, n: &Node) -> Result<(HostFd, bool)> {
        let shown = matches!(n.kind, libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK);
        if !shown || !self.own_mounts {
            return Err(EOPNOTSUPP);
        }
        let fs = path::fstatfs(n.fd.raw())?.f_type;
        if !is_stamped_here(fs) {
            return Err(EOPNOTSUPP);
        }
        Ok((n.fd.duplicate()?, self.fine_times && FINE.contains(&fs)))
    }

    /// What is to be seen of a directory, where the client remembers its names; `first` tells of the name that was
    /// changed, and is asked **after** the version was read.
    fn seen(dir: &Node, also: &[Vec<u8>], first: impl FnOnce() -> Named) -> Option<Seen> {
        Self::seen_at(dir, version(dir)?, also, first)
    }
    /// As [`Server::seen`], for a version that was read before.
    pub(super) fn seen_at(
        dir: &Node,
        version: i64,
        also: &[Vec<u8>],
        first: impl FnOnce() -> Named,
    ) -> Option<Seen> {
        let other = |n: &Vec<u8>| component(n).map_or(Named::Unknown, |n| Self::named(dir, &n));
        let names = std::iter::once(first())
            .chain(also.iter().map(other))
            .collect();
        Some(Seen { version, names })
    }
    fn named(dir: &Node, name: &CStr) -> Named {
        match attr_at(&dir.fd, name, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(a) => Named::File(a.dev, a.ino),
            Err(ENOENT) => Named::Missing,
            Err(_) => Named::Unknown,
        }
    }

    fn create(&self, dir: Handle, name: &[u8], new: NewNode, also: &[Vec<u8>]) -> Answer {
        let (dir, name) = self.dir_for_change(dir, name)?;
        let flags = (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW) as u64;
        let mode = u64::from(new.mode & 0o7777);
        let fd = path::openat2(dir.fd.raw(), &name, flags, mode, RESOLVE)?;
        let made = self.own_fd(&fd, new).and_then(|()| {
            let version = version(&dir);
            // By the name, which is cheaper; but it may lead elsewhere by now.
            if let Some((attr, held)) = self.held(&dir, &name, &fd) {
                let file = || Named::File(attr.stat.dev, attr.stat.ino);
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

    fn tmpfile(&self, dir: Handle, new: NewNode) -> Answer {
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

    fn mkdir(
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

    fn mknod(
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

    fn symlink(
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

    fn link(&self, h: Handle, dir: Handle, name: &[u8], also: &[Vec<u8>]) -> Result<Option<Seen>> {
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

    fn unlink(
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

    fn rename(
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

    fn read_dir(&self, dir: Handle, cookie: u64) -> Answer {
        let node = self.table.get(dir)?;
        is_dir(&node)?;
        node.check_opens()?;
        let fd = path::openat2(
            node.fd.raw(),
            c".",
            (libc::O_RDONLY | libc::O_DIRECTORY) as u64,
            0,
            RESOLVE,
        )?;
        if cookie != 0 {
            path::lseek(
                fd.raw(),
                i64::try_from(cookie).map_err(|_| EINVAL)?,
                libc::SEEK_SET,
            )?;
        }
        let mut buf = vec![0u8; DENTS];
        let n = path::getdents64(fd.raw(), &mut buf)?;
        let mut list = Vec::new();
        let mut next = cookie;
        let mut rest = &buf[..n];
        // struct linux_dirent64: ino, off (8 bytes each), reclen (2), type (1), name with a NUL.
        while let (Some(ino), Some(off), Some(len), Some(kind)) = (
            rest.first_chunk::<8>(),
            rest.get(8..16),
            rest.get(16..18),
            rest.get(18),
        ) {
            let reclen = usize::from(u16::from_le_bytes([len[0], len[1]]));
            if reclen < 20 || reclen > rest.len() {
                break;
            }
            let name = rest[19..reclen]
                .split(|b| *b == 0)
                .next()
                .unwrap_or_default();
            let shown = node.fs != Kind::ProcTop || self.shows(&node, name);
            if name != b"." && name != b".." && shown {
                list.push(Entry {
                    ino: u64::from_le_bytes(*ino),
                    kind: if *kind == libc::DT_LNK && node.fs == Kind::ProcTop {
                        // `net`, of all that is shown.
                        libc::DT_DIR
                    } else {
                        *kind
                    },
                    name: name.to_vec(),
                });
            }
            next = off.try_into().map_or(next, u64::from_le_bytes);
            rest = &rest[reclen..];
        }
        Ok((
            Reply::Entries {
                list,
                next,
                end: n == 0,
            },
            None,
        ))
    }

    fn set_attr(&self, h: Handle, a: &SetAttr) -> Answer {
        let n = self.table.get(h)?;
        writable(&n)?;
        let now = || attr_at(&n.fd, c"", libc::AT_EMPTY_PATH);
        if let Some(before) = a.seen
            && now()?.perm() != before
        {
            return Err(EBUSY);
        }
        if let Some(size) = a.size {
            if n.kind != libc::S_IFREG {
                return Err(EINVAL);
            }
            let fd = self.reopen(&n, libc::O_WRONLY)?;
            file::ftruncate(fd.raw(), size)?;
        }
        if a.uid.is_some() || a.gid.is_some() {
            let (uid, gid) = (a.uid.unwrap_or(u32::MAX), a.gid.unwrap_or(u32::MAX));
            path::fchownat(n.fd.raw(), c"", uid, gid, libc::AT_EMPTY_PATH)?;
        }
        if let Some(mode) = a.mode {
            if n.kind == libc::S_IFLNK {
                return Err(EOPNOTSUPP);
            }
            let name = proc_name(&n.fd);
            path::fchmodat(self.proc_fd.raw(), &name, mode & 0o7777)?;
            // Somebody may have given it away meanwhile: the bits are not for the new owner. Both changes wait for each
            // other on the host, so this look is after theirs, or theirs takes the bits away.
            if let Some(b) = a.seen.filter(|_| mode & SET_ID != 0) {
                let owner = (a.uid.unwrap_or(b.uid), a.gid.unwrap_or(b.gid));
                let found = now()?;
                if found.mode & SET_ID != 0 && (found.uid, found.gid) != owner {
                    let left = found.mode & 0o7777 & !SET_ID;
                    path::fchmodat(self.proc_fd.raw(), &name, left)?;
                    return Err(EBUSY);
                }
            }
        }
        if a.atime.is_some() || a.mtime.is_some() {
            let times = [timespec(a.atime), timespec(a.mtime)];
            path::utimensat(n.fd.raw(), c"", times, libc::AT_EMPTY_PATH)?;
        }
        Ok((Reply::Attr(attr(&self.proc_fd, &n.fd)?), None))
    }

    fn stat_fs(&self, h: Handle) -> Answer {
        let s = path::fstatfs(self.table.get(h)?.fd.raw())?;
        let stat = StatFs {
            magic: s.f_type as u64,
            bsize: s.f_bsize as u64,
            blocks: s.f_blocks,
            bfree: s.f_bfree,
            bavail: s.f_bavail,
            files: s.f_files,
            ffree: s.f_ffree,
            namelen: s.f_namelen as u64,
            ..StatFs::default()
        };
        Ok((Reply::StatFs(stat), None))
    }

    /// Only `user.` attributes are the container's, and file capabilities can be read.
    fn xattr_name(name: &[u8]) -> Result<CString> {
        if name.len() > 255 {
            return Err(EINVAL);
        }
        CString::new(name).map_err(|_| EINVAL)
    }

    fn get_xattr(&self, h: Handle, name: &[u8]) -> Answer {
        let n = self.table.get(h)?;
        if name == ACL {
            let mut buf = vec![0u8; MAX_STRING.min(65536)];
            match path::getxattrat(self.proc_fd.raw(), &proc_name(&n.fd), ACL_NAME, &mut buf) {
                Err(ENOSYS) => {}
                len => {
                    buf.truncate(len?);
                    return Ok((Reply::Bytes(buf), None));
                }
            }
        } else if !name.starts_with(b"user.") && name != b"security.capability" {
            return Err(ENODATA);
        }
        let fd = self
            .reopen(&n, libc::O_RDONLY)
            .map_err(|e| if e == EACCES { e } else { ENODATA })?;
        let mut buf = vec![0u8; MAX_STRING.min(65536)];
        let len = path::fgetxattr(fd.raw(), &Self::xattr_name(name)?, &mut buf)?;
        buf.truncate(len);
        Ok((Reply::Bytes(buf), None))
    }

    fn xattr_for_change(&self, h: Handle, name: &[u8]) -> Result<(HostFd, CString)> {
        let n = self.table.get(h)?;
        writable(&n)?;
        if !name.starts_with(b"user.") {
            return Err(EPERM);
        }
        let fd = self.reopen(&n, libc::O_RDONLY)?;
        Ok((fd, Self::xattr_name(name)?))
    }

    fn list_xattr(&self, h: Handle) -> Answer {
        let n = self.table.get(h)?;
        if n.kind != libc::S_IFREG && n.kind != libc::S_IFDIR {
            return Ok((Reply::Bytes(Vec::new()), None));
        }
        let fd = self.reopen(&n, libc::O_RDONLY)?;
        let mut buf = vec![0u8; MAX_STRING.min(65536)];
        let len = path::flistxattr(fd.raw(), &mut buf)?;
        let mut names = Vec::new();
        for name in buf[..len].split(|b| *b == 0) {
            if name.starts_with(b"user.") || name == b"security.capability" {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        Ok((Reply::Bytes(names), None))
    }
}
