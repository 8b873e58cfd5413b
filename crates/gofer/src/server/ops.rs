//! What each request does.

use super::table::{Node, attr, attr_at, proc_name};
use super::{Server, component};
use crate::kernel_fs::{self, Kind};
use crate::proto::{Access, Attr, Entry, Handle, Reply, Request, Step, WalkPurpose};
use crate::wire::MAX_STRING;
use abi::Result;
use abi::attr::{SetAttr, StatFs};
use abi::errno::{EACCES, EBUSY, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO, EOPNOTSUPP, EROFS};
use hostcall::{HostFd, file, path};
use std::ffi::CStr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A reply, and the descriptor that goes with it.
pub(super) type Answer = Result<(Reply, Option<HostFd>)>;

/// One component below a directory, never through a link. (`RESOLVE_NO_XDEV` is missing on
/// purpose: a root may have host mounts in it.)
pub(super) const RESOLVE: u64 = (abi::linux::RESOLVE_BENEATH
    | abi::linux::RESOLVE_NO_MAGICLINKS
    | abi::linux::RESOLVE_NO_SYMLINKS) as u64;
/// For the last component, which may itself be a link: `O_NOFOLLOW` stands at it.
pub(super) const RESOLVE_LINK: u64 =
    (abi::linux::RESOLVE_BENEATH | abi::linux::RESOLVE_NO_MAGICLINKS) as u64;

/// For looks at siblings of the name that was asked for.
const BESIDE: Duration = Duration::from_millis(1);
/// Room for entries in one reply; the longest entry is far smaller than what is left.
const DENTS: usize = 32 << 10;
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// ext4, XFS, btrfs.
const FINE: [i64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];
/// f2fs, overlayfs; and tmpfs, where link(2) and unlink(2) give a directory the file's new time,
/// which is no finer than the clock's ticks though the directory's was looked at.
const LOCAL: [i64; 3] = [0xf2f5_2010, 0x794c_7630, 0x0102_1994];

/// Whether the times of a file system (`f_type`) are the host's own, and no coarser than its
/// clock's ticks.
pub(super) fn is_stamped_here(fs: i64) -> bool {
    FINE.contains(&fs) || LOCAL.contains(&fs)
}

pub(super) fn is_dir(n: &Node) -> Result<()> {
    if n.kind == libc::S_IFDIR {
        Ok(())
    } else {
        Err(ENOTDIR)
    }
}

pub(super) fn writable(n: &Node) -> Result<()> {
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
    pub(super) fn reopen(&self, n: &Node, flags: i32) -> Result<HostFd> {
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
            kernel_fs::NET => self.network.as_ref().is_some_and(|n| n.is_on_same_fs(top)),
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
                siblings,
                then,
            } => self.walk(from, &names, &siblings, then),
            Request::GetAttr { file } => self.get_attr(file),
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
            Request::Readlink { file } => self.readlink(file),
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

    fn walk(
        &self,
        from: Handle,
        names: &[Vec<u8>],
        siblings: &[Vec<u8>],
        then: WalkPurpose,
    ) -> Answer {
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
            then == WalkPurpose::Read && whole && s.attr.stat.mode & libc::S_IFMT == libc::S_IFREG
        });
        // Whether it may be opened, and why not, is told to the opener.
        let fd = last.and_then(|s| {
            let n = self.table.get(s.handle).ok()?;
            self.reopen(&n, libc::O_RDONLY).ok()
        });
        // Links may be long, and all must fit into one message. And the caller, which asked for one
        // name, waits: where a look takes long, others are not worth it.
        let mut room = MAX_STRING / 4;
        let begun = Instant::now();
        let siblings = siblings.iter().map(|name| {
            let s = (room > 0 && begun.elapsed() < BESIDE)
                .then(|| self.step(&first, name).ok())
                .flatten()?;
            room = room.saturating_sub(s.target.as_ref().map_or(0, Vec::len));
            Some(s)
        });
        let reply = Reply::Walked {
            steps,
            stopped,
            siblings: siblings.collect(),
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

    /// A descriptor by which the client sees a file's attributes, and a change of a directory's
    /// names by its change time. Only where Linux itself keeps that time, and where nobody can
    /// mount anything over a name, which changes no directory. And whether the time tells two
    /// changes apart that are seen one by one: since Linux 6.13 a change after the time was looked
    /// at has a finer one (multigrain timestamps).
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

    fn readlink(&self, h: Handle) -> Answer {
        let n = self.table.get(h)?;
        if n.kind != libc::S_IFLNK {
            return Err(EINVAL);
        }
        Ok((Reply::Bytes(path::readlinkat(n.fd.raw(), c"")?), None))
    }

    fn get_attr(&self, h: Handle) -> Answer {
        let n = self.table.get(h)?;
        Ok((Reply::Attr(attr(&self.proc_fd, &n.fd)?), None))
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
            // Somebody may have given it away meanwhile: the bits are not for the new owner. Both
            // changes wait for each other on the host, so this look is after theirs, or theirs
            // takes the bits away.
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
}
