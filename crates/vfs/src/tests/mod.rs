//! Tests that work as system calls would, on a tmpfs.

mod fds;
mod locks;
mod mounts;
mod names;
mod root_layer;
mod tmpfs;
mod walk;

use crate::file::{BufSink, BufSource};
use crate::fs::tmpfs::{Options, Tmpfs};
use crate::mount::MountFlags;
use crate::ops::OpenHow;
use crate::{At, Caller, Credentials, File, FsContext, MountNamespace, PathCx, Vfs};
use abi::Result;
use clas::Clas;
use std::sync::Arc;
use wait::{Blocker, Parker};

pub(crate) struct NoSignals(Arc<Parker>);

impl NoSignals {
    pub(crate) fn new() -> NoSignals {
        NoSignals(Arc::new(Parker::new()))
    }
}

impl Blocker for NoSignals {
    fn parker(&self) -> &Arc<Parker> {
        &self.0
    }
    fn interrupted(&self) -> bool {
        false
    }
}

/// A kernel's worth of VFS.
pub(crate) struct Rig {
    pub vfs: Arc<Vfs>,
    pub clas: Arc<Clas>,
    pub ns: Arc<MountNamespace>,
    pub fs: Arc<FsContext>,
    pub cred: Arc<Credentials>,
    blocker: NoSignals,
}

impl Rig {
    pub fn new() -> Rig {
        Self::with(Options {
            mode: 0o755,
            ..Options::default()
        })
    }
    pub fn with(o: Options) -> Rig {
        let vfs = Vfs::new();
        crate::fs::dev::register_memory_devices(&vfs.devices);
        let clas = Clas::new().unwrap();
        let root = Tmpfs::mountable(&vfs, &clas, o);
        Self::on(vfs, clas, root)
    }
    pub fn on(vfs: Arc<Vfs>, clas: Arc<Clas>, root: Arc<crate::Dentry>) -> Rig {
        let ns = MountNamespace::new(&vfs.mounts, root, MountFlags::from_ms(0), "none");
        let fs = FsContext::new(&ns);
        let cred = Arc::new(Credentials::root());
        Rig {
            vfs,
            clas,
            ns,
            fs,
            cred,
            blocker: NoSignals::new(),
        }
    }
    pub fn cx(&self) -> PathCx<'_> {
        PathCx {
            vfs: &self.vfs,
            fs: &self.fs,
            caller: Caller {
                cred: &self.cred,
                task: &(),
            },
            blocker: &self.blocker,
        }
    }
    /// The same kernel, seen by someone else.
    pub fn user(&self, uid: u32, gid: u32) -> Rig {
        Rig {
            vfs: self.vfs.clone(),
            clas: self.clas.clone(),
            ns: self.ns.clone(),
            fs: self.fs.fork(),
            cred: Arc::new(Credentials::user(uid, gid, vec![])),
            blocker: NoSignals::new(),
        }
    }
    pub fn open(&self, path: &str, flags: u32) -> Result<Arc<File>> {
        self.cx()
            .open(&At::Cwd, path.as_bytes(), OpenHow::new(flags, 0o666))
    }
    pub fn mkdir(&self, path: &str) -> Result<()> {
        self.cx()
            .mkdir(&At::Cwd, path.as_bytes(), 0o777)
            .map(|_| ())
    }
    pub fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.cx()
            .symlink(target.as_bytes(), &At::Cwd, path.as_bytes())
    }
    pub fn put(&self, path: &str, text: &[u8]) -> Result<()> {
        let f = self.open(
            path,
            abi::linux::O_WRONLY | abi::linux::O_CREAT | abi::linux::O_TRUNC,
        )?;
        write(&f, text).map(|_| ())
    }
    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        let f = self.open(path, 0)?;
        let mut all = Vec::new();
        loop {
            let b = read(&f, 1000)?;
            if b.is_empty() {
                return Ok(all);
            }
            all.extend(b);
        }
    }
    pub fn unlink(&self, path: &str) -> Result<()> {
        self.cx().unlink(&At::Cwd, path.as_bytes())
    }
    pub fn rmdir(&self, path: &str) -> Result<()> {
        self.cx().rmdir(&At::Cwd, path.as_bytes())
    }
    pub fn rename(&self, a: &str, b: &str, flags: u32) -> Result<()> {
        self.cx()
            .rename(&At::Cwd, a.as_bytes(), &At::Cwd, b.as_bytes(), flags)
    }
    pub fn link(&self, a: &str, b: &str) -> Result<()> {
        self.cx()
            .link(&At::Cwd, a.as_bytes(), &At::Cwd, b.as_bytes(), 0)
    }
    pub fn stat(&self, path: &str) -> Result<crate::Stat> {
        self.cx().stat(&At::Cwd, path.as_bytes(), 0)
    }
    pub fn lstat(&self, path: &str) -> Result<crate::Stat> {
        self.cx()
            .stat(&At::Cwd, path.as_bytes(), abi::linux::AT_SYMLINK_NOFOLLOW)
    }
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let f = self.open(path, abi::linux::O_DIRECTORY)?;
        list(&f)
    }
}

pub(crate) fn write(f: &Arc<File>, text: &[u8]) -> Result<usize> {
    f.write(&mut BufSource::new(text))
}

pub(crate) fn read(f: &Arc<File>, n: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0; n];
    let n = f.read(&mut BufSink::new(&mut buf))?;
    buf.truncate(n);
    Ok(buf)
}

/// The names of an open directory, two at a time, sorted, without the dots.
pub(crate) fn list(f: &Arc<File>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut pos = 0;
    loop {
        let mut room = 2;
        let before = names.len();
        f.ops.read_dir(f, &mut pos, &mut |e| {
            if room == 0 {
                return false;
            }
            room -= 1;
            names.push(String::from_utf8_lossy(e.name).into_owned());
            true
        })?;
        if names.len() == before {
            break;
        }
    }
    assert!(names.contains(&String::from(".")) && names.contains(&String::from("..")));
    names.retain(|n| n != "." && n != "..");
    names.sort();
    Ok(names)
}
