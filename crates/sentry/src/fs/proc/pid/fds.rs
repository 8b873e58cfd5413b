//! `/proc/PID/fd` and `/proc/PID/fdinfo`.

use super::Subject;
use crate::ns::nsfs::NsFile;
use crate::task::task_of;
use abi::Result;
use abi::errno::{EACCES, EINVAL, ENOENT, ENXIO};
use std::sync::Arc;
use vfs::file::{File, FileOps};
use vfs::fs::dynamic::{self, DynDir, DynEntry, DynFile, DynLink, DynNode};
use vfs::{Caller, FileType, Path, Perm, Stat};

/// `fd` and `fdinfo`.
pub(super) struct FdDir {
    pub(super) me: Subject,
    pub(super) info: bool,
}

impl DynDir for FdDir {
    fn perm(&self) -> Perm {
        self.me.perm(if self.info { 0o555 } else { 0o500 })
    }
    fn permission(&self, cx: &Caller<'_>, want: vfs::mode::Want) -> Result<()> {
        // One's own descriptors can always be looked at (`proc_fd_permission`,
        // `proc_fdinfo_permission`).
        if !self.info && self.me.is_own(cx) {
            return Ok(());
        }
        if self.info {
            self.me.check(cx)?;
        }
        vfs::mode::generic_permission(self.perm(), FileType::Directory, cx.cred, want)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let fd = dynamic::number(name).ok_or(ENOENT)?;
        let f = self.me.task()?.fd(fd).map_err(|_| ENOENT)?;
        Ok(if self.info {
            DynNode::File(Arc::new(FdInfo {
                me: self.me.clone(),
                fd,
            }))
        } else {
            DynNode::Link(Arc::new(FdLink {
                me: self.me.clone(),
                fd,
                id: f.id,
                flags: f.flags(),
            }))
        })
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let kind = if self.info {
            FileType::Regular
        } else {
            FileType::Symlink
        };
        let fds = self.me.task()?.files().list(0);
        Ok(fds
            .into_iter()
            .map(|n| DynEntry::new(n.to_string(), kind))
            .collect())
    }
}

struct FdLink {
    me: Subject,
    fd: i32,
    id: u64,
    flags: u32,
}

impl FdLink {
    fn file(&self, cx: &Caller<'_>) -> Result<Arc<File>> {
        self.me.guarded(cx, |t| t.fd(self.fd).map_err(|_| ENOENT))
    }
}

impl DynLink for FdLink {
    fn perm(&self) -> Perm {
        let bits = match self.flags & vfs::file::O_ACCMODE {
            0 => 0o500,
            1 => 0o300,
            _ => 0o700,
        };
        self.me.perm(bits)
    }
    fn identity(&self) -> u64 {
        self.id
    }
    fn takes_no_mounts(&self) -> bool {
        true
    }
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        let f = self.file(cx)?;
        let root = task_of(cx.task).ok_or(EACCES)?.fs().root();
        Ok(match &f.path {
            Some(p) if f.ops::<NsFile>().is_none() => p.describe(&root).display(),
            _ => f.ops.describe().into_bytes(),
        })
    }
    fn jump(&self, cx: &Caller<'_>) -> Result<Option<Path>> {
        let f = self.file(cx)?;
        match &f.path {
            Some(p) => Ok(Some(p.clone())),
            // Pipes and sockets: the VFS opens the file anew by `reopen`.
            None => Ok(Some(dynamic::detached(
                &self.me.kernel()?.vfs,
                "pipefs",
                vfs::ops::anonymous_magic(&f),
                DynNode::File(Arc::new(Reopen(f))),
            ))),
        }
    }
}

/// A file without a path, opened by way of `/proc/PID/fd/N`: a pipe gets a new end, others the same
/// object.
struct Reopen(Arc<File>);

impl DynFile for Reopen {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o600,
            uid: self.0.cred.fsuid,
            gid: self.0.cred.fsgid,
        }
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Err(EINVAL)
    }
    fn stat(&self) -> Option<Result<Stat>> {
        Some(self.0.ops.stat())
    }
    fn open(self: Arc<Self>, _: &Caller<'_>, flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        if let Some(p) = self.0.ops::<ipc::pipe::PipeEnd>() {
            let end: Arc<dyn FileOps> = p.reopen(flags)?;
            return Ok(Some(end));
        }
        // Sockets and anonymous files cannot be opened again (`no_open`).
        if matches!(self.0.ops.stat()?.mode & 0o170_000, 0o140_000 | 0) {
            return Err(ENXIO);
        }
        Ok(Some(self.0.ops.clone()))
    }
}

struct FdInfo {
    me: Subject,
    fd: i32,
}

impl DynFile for FdInfo {
    fn takes_no_mounts(&self) -> bool {
        true
    }
    fn perm(&self) -> Perm {
        self.me.perm(0o444)
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        let task = self.me.task()?;
        crate::task::lanes::slots::look(&task);
        let files = task.files();
        let f = files.get(self.fd).map_err(|_| ENOENT)?;
        let cloexec = files.cloexec(self.fd)? == vfs::fd_table::CloseOnExec::Yes;
        drop(files);
        let flags = f.flags_told() | if cloexec { vfs::file::O_CLOEXEC } else { 0 };
        let ino = f.ops.stat().map_or(0, |s| s.ino);
        let mnt = f.path.as_ref().map_or(0, |p| p.mnt.id);
        let pos = f.shown_position()?;
        let more = match f.ops::<crate::task::pidfd::PidFd>() {
            Some(p) => p.info(&self.me.ns),
            None => f.ops.fdinfo(),
        };
        Ok(
            format!("pos:\t{pos}\nflags:\t0{flags:o}\nmnt_id:\t{mnt}\nino:\t{ino}\n{more}")
                .into_bytes(),
        )
    }
}
