//! The sandbox's mount tree: the host's root with a writable layer in memory, and what the kernel provides.

use super::config::BindMount;
use super::{Failure, or};
use crate::Kernel;
use gofer::client::Client;
use goferfs::{GoferFs, Ids, Options, Sharing};
use std::sync::Arc;
use vfs::file::FileOps;
use vfs::fs::overlay::Overlay;
use vfs::fs::tmpfs::{self, Tmpfs, TmpfsType};
use vfs::vfs::{FsType, SpecialFiles};
use vfs::walk::Walk;
use vfs::{At, Caller, Credentials, FsContext, MountFlags, MountNamespace, PathCx, Slot};
use wait::Blocker;

struct Fifos;

impl SpecialFiles for Fifos {
    fn open_fifo(&self, slot: &Slot, flags: u32, b: &dyn Blocker) -> abi::Result<Arc<dyn FileOps>> {
        ipc::pipe::open_fifo(slot, flags, b)
    }
}

/// Builds the tree.
pub fn tree(
    kernel: &Arc<Kernel>,
    client: &Arc<Client>,
    binds: &[BindMount],
) -> core::result::Result<Arc<MountNamespace>, Failure> {
    let vfs = &kernel.vfs;
    vfs.set_special_files(Arc::new(Fifos));
    let pages = kernel.total_memory / abi::PAGE_SIZE;
    for name in ["tmpfs", "devtmpfs"] {
        let t = TmpfsType {
            clas: kernel.clas.clone(),
            default: vfs::fs::tmpfs::Options {
                max_pages: pages / 2,
                ..Default::default()
            },
            total_pages: pages,
            name,
        };
        vfs.register_fs(name, Arc::new(t));
    }
    crate::fs::proc::register(kernel);
    crate::fs::sys::register(kernel);
    crate::fs::dev::register(kernel);

    let attach = |name: &str, sharing: Sharing| {
        let o = Options {
            sharing,
            ids: Ids::AsIs,
            ..Options::default()
        };
        or(
            GoferFs::mountable(vfs, client, name, o),
            "show the host's files",
        )
    };
    let lower = attach("0", Sharing::Exclusive)?;
    // The writable layer: in memory, gone with the sandbox.
    let (upper, _) = Tmpfs::new(vfs.new_dev(), &kernel.clas, tmpfs::Options::default());
    let root = or(
        Overlay::over(vfs, &[lower], &upper),
        "lay a writable layer over the host's root",
    )?;
    let ns = MountNamespace::new(vfs, root, MountFlags::empty(), "overlay");
    let fs = FsContext::new(&ns);
    let cred = Arc::new(Credentials::root());
    let boot = super::Boot(Arc::default());
    let cx = PathCx {
        vfs,
        fs: &fs,
        caller: Caller {
            cred: &cred,
            task: &(),
        },
        blocker: &boot,
    };

    let mount = |target: &str, kind: &str, data: &str, flags: MountFlags| {
        // A host without the directory simply has no such mount.
        let Ok(at) = cx.resolve(&At::Cwd, target.as_bytes(), Walk::FOLLOW | Walk::DIRECTORY) else {
            return Ok(());
        };
        let made = vfs
            .fs_type(kind)
            .and_then(|t| t.mount(vfs, &cx.caller, kind, data));
        let root = or(made, &format!("make {target}"))?;
        or(
            ns.mount(&at, root, flags, kind).map(|_| ()),
            &format!("mount {target}"),
        )
    };
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    mount("/proc", "proc", "", quiet | MountFlags::NOEXEC)?;
    mount(
        "/sys",
        "sysfs",
        "",
        quiet | MountFlags::NOEXEC | MountFlags::RDONLY,
    )?;
    mount("/dev", "devtmpfs", "mode=755", MountFlags::NOSUID)?;
    or(crate::fs::dev::populate(&cx), "fill /dev")?;
    mount(
        "/dev/pts",
        "devpts",
        "",
        MountFlags::NOSUID | MountFlags::NOEXEC,
    )?;
    mount("/dev/shm", "tmpfs", "mode=1777", quiet)?;
    mount("/dev/mqueue", "tmpfs", "mode=1777", quiet)?;
    mount("/tmp", "tmpfs", "mode=1777", quiet)?;
    for b in binds {
        let dentry = attach(&b.root.to_string(), Sharing::Shared)?;
        let place = cx.resolve(&At::Cwd, b.target.as_bytes(), Walk::FOLLOW);
        let place = match place {
            Err(abi::errno::ENOENT) if dentry.is_dir() => make_dirs(&cx, &b.target),
            Err(abi::errno::ENOENT) => make_file(&cx, &b.target),
            r => r,
        };
        let at = or(place, &format!("find {} to mount on", b.target))?;
        let flags = if b.writable {
            MountFlags::empty()
        } else {
            MountFlags::RDONLY
        };
        or(
            ns.mount(&at, dentry, flags, "host").map(|_| ()),
            &format!("mount {}", b.target),
        )?;
    }
    Ok(ns)
}

/// Makes a directory with its parents, in the writable layer.
fn make_dirs(cx: &PathCx<'_>, path: &str) -> abi::Result<vfs::Path> {
    let mut at = String::new();
    for part in path.split('/').filter(|p| !p.is_empty()) {
        at.push('/');
        at.push_str(part);
        match cx.mkdir(&At::Cwd, at.as_bytes(), 0o755) {
            Ok(_) | Err(abi::errno::EEXIST) => {}
            Err(e) => return Err(e),
        }
    }
    cx.resolve(&At::Cwd, path.as_bytes(), Walk::FOLLOW)
}

/// Makes an empty file to mount a file on.
fn make_file(cx: &PathCx<'_>, path: &str) -> abi::Result<vfs::Path> {
    if let Some((dir, _)) = path.rsplit_once('/').filter(|(d, _)| !d.is_empty()) {
        make_dirs(cx, dir)?;
    }
    cx.mknod(&At::Cwd, path.as_bytes(), 0o100_644, 0)?;
    cx.resolve(&At::Cwd, path.as_bytes(), Walk::FOLLOW)
}

/// A type of file systems whose root is made by a function.
pub struct Made<F>(pub F);

impl<F> FsType for Made<F>
where
    F: Fn(&Arc<vfs::Vfs>) -> abi::Result<Arc<vfs::Dentry>> + Send + Sync,
{
    fn mount(
        &self,
        vfs: &Arc<vfs::Vfs>,
        _: &Caller<'_>,
        _: &str,
        _: &str,
    ) -> abi::Result<Arc<vfs::Dentry>> {
        (self.0)(vfs)
    }
}
