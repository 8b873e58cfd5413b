//! A container's mount tree: its root with a writable layer, what the kernel provides, and what was
//! asked for.

use super::{Failure, or};
use crate::Kernel;
use crate::container::{Container, Root};
use abi::Result;
use abi::errno::{EEXIST, ENODEV, ENOENT};
use abi::linux::MS_BIND;
use clas::Clas;
use config::{
    Confidential, ContainerSpec, DeviceNode, IdRange, Layer, MountKind, MountSpec, Propagation,
};
use gofer::client::Client;
use goferfs::{GoferFs, IdMaps, Ids, Options, Sharing};
use hostcall::HostFd;
use std::sync::{Arc, Weak};
use vfs::dentry::ReadOnly;
use vfs::file::FileOps;
use vfs::fs::root_layer::RootLayer;
use vfs::fs::tmpfs::{self, Tmpfs, TmpfsType};
use vfs::namespace::{AttrChange, Recursive};
use vfs::params::{Param, Params};
use vfs::peers;
use vfs::vfs::{FsType, SpecialFiles};
use vfs::walk::Walk;
use vfs::{
    At, Caller, Credentials, Dentry, FileType, FsContext, MountFlags, MountNamespace, Path, PathCx,
    Slot, makedev,
};
use wait::Blocker;

struct Fifos;

impl SpecialFiles for Fifos {
    fn open_fifo(
        &self,
        slot: &Slot,
        flags: u32,
        cred: &vfs::Credentials,
        b: &dyn Blocker,
    ) -> Result<Arc<dyn FileOps>> {
        ipc::pipe::open_fifo(slot, flags, cred, b)
    }
}

/// Makes the kernel's own file systems known; once.
pub fn register(kernel: &Arc<Kernel>) {
    let vfs = &kernel.vfs;
    vfs.set_special_files(Arc::new(Fifos));
    vfs.devices.set_guard(kernel.cgroups.device_guard());
    let pages = kernel.total_memory / abi::PAGE_SIZE;
    for name in ["tmpfs", "devtmpfs"] {
        let kernel = Arc::downgrade(kernel);
        vfs.register_fs(
            name,
            Arc::new(OwnTmpfs {
                kernel,
                pages,
                name,
            }),
        );
    }
    crate::fs::proc::register(kernel);
    crate::fs::sys::register(kernel);
    crate::fs::mqueue::register(kernel);
    crate::fs::overlay::register(kernel);
    crate::fs::fuse::register(kernel);
    crate::cgroup::files::register(kernel);
    crate::fs::dev::register(kernel);
}

/// tmpfs in the memory of the container that mounts it.
struct OwnTmpfs {
    kernel: Weak<Kernel>,
    /// The machine's memory.
    pages: u64,
    name: &'static str,
}

impl OwnTmpfs {
    /// In the caller's memory.
    fn of(&self, cx: &Caller<'_>) -> Result<TmpfsType> {
        let kernel = self.kernel.upgrade().ok_or(ENOENT)?;
        Ok(TmpfsType {
            clas: kernel.container_of(cx.task).clas.clone(),
            default: tmpfs::Options {
                max_pages: self.pages / 2,
                max_inodes: self.pages / 2,
                ..Default::default()
            },
            total_pages: self.pages,
            name: self.name,
        })
    }
}

impl FsType for OwnTmpfs {
    fn mount(
        &self,
        vfs: &Arc<vfs::Vfs>,
        cx: &Caller<'_>,
        source: &str,
        params: &Params,
    ) -> Result<Arc<Dentry>> {
        self.of(cx)?.mount(vfs, cx, source, params)
    }
    fn parameters(&self) -> &'static [&'static str] {
        match self.name {
            "ramfs" => &["mode"],
            _ => tmpfs::PARAMETERS,
        }
    }
    fn parse(&self, cx: &Caller<'_>, p: Param) -> Result<Param> {
        self.of(cx)?.parse(cx, p)
    }
    fn ignores_unknown(&self) -> bool {
        self.name == "ramfs"
    }
}

/// What a tree is built of.
pub struct Builder<'a> {
    pub kernel: &'a Arc<Kernel>,
    pub container: &'a Arc<Container>,
    /// Its files on the host.
    pub client: &'a Arc<Client>,
    pub spec: &'a ContainerSpec,
}

type Tried<T> = core::result::Result<T, Failure>;

impl Builder<'_> {
    /// Builds the tree. `layer_file`: where changes of the root go, if not to memory.
    pub fn tree(&self, layer_file: Option<HostFd>) -> Tried<Root> {
        let (vfs, spec) = (&self.kernel.vfs, self.spec);
        let (root, layer) = self.root(layer_file)?;
        let ns = MountNamespace::new(&vfs.mounts, root, MountFlags::RELATIME, "overlay");
        let fs = FsContext::new(&ns);
        let cred = Arc::new(Credentials::root());
        let boot = wait::Steady::default();
        let cx = PathCx {
            vfs,
            fs: &fs,
            caller: Caller {
                cred: &cred,
                task: self.container,
            },
            blocker: &boot,
        };
        // The Gofer makes no devices in a root that is the host's directory itself.
        let has_dev = |m: &MountSpec| m.target.trim_end_matches('/') == "/dev";
        if spec.standard_devices && layer.is_none() && !spec.mounts.iter().any(has_dev) {
            or(
                layer_over_dev(&cx, &ns, &self.container.clas),
                "lay a writable layer over /dev",
            )?;
        }
        for m in &spec.mounts {
            self.mount(&cx, &ns, m)?;
        }
        if spec.standard_devices {
            or(crate::fs::dev::populate(&cx), "fill /dev")?;
        }
        for d in &spec.devices {
            or(node(&cx, d), &format!("make {}", d.path))?;
        }
        for (name, value) in &spec.sysctls {
            or(sysctl(&cx, name, value), &format!("set {name}"))?;
        }
        protect(&cx, &ns, spec)?;
        Ok(Root {
            mounts: ns,
            gofer: Some(self.client.clone()),
            overlay: layer,
            ids: [spec.uids.clone(), spec.gids.clone()],
            is_confidential: spec.confidential == Confidential::All,
        })
    }

    /// The root of one of the Gofer's trees.
    fn attach(&self, root: u32, sharing: Sharing, shown: &str) -> Tried<Arc<Dentry>> {
        let o = Options {
            shown: shown.to_owned(),
            sharing,
            ids: ids(self.spec),
            kept: self.kernel.kept_files.clone(),
        };
        or(
            GoferFs::mountable(&self.kernel.vfs, self.client, &root.to_string(), o),
            "show the host's files",
        )
    }

    /// The same under a layer in memory: what is written is gone with the container.
    fn layered(&self, root: u32, memory: &Arc<Clas>, what: &str) -> Tried<Arc<Dentry>> {
        let lower = self.attach(root, Sharing::Exclusive, "")?;
        // As much as a tmpfs has where nothing is said.
        let half = self.kernel.total_memory / abi::PAGE_SIZE / 2;
        let in_memory = Arc::ptr_eq(memory, &self.container.clas);
        let limits = tmpfs::Options {
            max_pages: if in_memory { half } else { 0 },
            max_inodes: half,
            ..Default::default()
        };
        let (upper, _) = Tmpfs::new(self.kernel.vfs.new_dev(), memory, limits);
        or(RootLayer::over(&self.kernel.vfs, &[lower], &upper), what)
    }

    /// The root file system, and again if it is an overlay.
    fn root(&self, layer_file: Option<HostFd>) -> Tried<(Arc<Dentry>, Option<Arc<Dentry>>)> {
        let spec = &self.spec.root;
        // Who wants the writes on the host wants to see the host's, too.
        if spec.layer == Layer::None {
            return Ok((self.attach(spec.root, Sharing::Shared, "")?, None));
        }
        let own = &self.container.clas;
        let memory = match layer_file {
            Some(f) => or(Clas::on_disk(f, own), "use the file for the root's changes")?,
            None => own.clone(),
        };
        let over = self.layered(spec.root, &memory, "lay a writable layer over the root")?;
        Ok((over.clone(), Some(over)))
    }

    /// One of the mounts that were asked for.
    fn mount(&self, cx: &PathCx<'_>, ns: &Arc<MountNamespace>, m: &MountSpec) -> Tried<()> {
        let what = format!("mount {}", m.target);
        let made = match &m.kind {
            MountKind::Host { root, exclusive } => {
                let sharing = if *exclusive {
                    Sharing::Exclusive
                } else {
                    Sharing::Shared
                };
                Ok(self.attach(*root, sharing, &m.source)?)
            }
            MountKind::Layered { root } => Ok(self.layered(*root, &self.container.clas, &what)?),
            MountKind::Devices => fs_root(cx, "devtmpfs", &m.data),
            MountKind::Fs(kind) => fs_root(cx, kind, &m.data),
        };
        let dentry = or(made, &what)?;
        let Some(at) = or(mount_point(cx, m, &dentry), &what)? else {
            return Ok(());
        };
        let flags = MountFlags::from_ms(m.flags);
        // As mount(2) does; a tmpfs is made for what the bundle mounts in it, and read-only only
        // where it is mounted.
        if let MountKind::Fs(kind) = &m.kind
            && kind != "tmpfs"
            && !dentry.sb().is_mounted()
            && flags.contains(MountFlags::RDONLY)
        {
            dentry.sb().set_read_only(ReadOnly::Yes);
        }
        or(ns.mount(&at, dentry, flags, &m.source), &what)?;
        if m.kind == MountKind::Devices {
            or(crate::fs::dev::populate(cx), "fill /dev")?;
            or(crate::fs::dev::add_devices(cx), "fill /dev")?;
        }
        Ok(())
    }
}

/// Takes away what the container may not write, see or bind.
fn protect(cx: &PathCx<'_>, ns: &Arc<MountNamespace>, spec: &ContainerSpec) -> Tried<()> {
    for p in &spec.read_only {
        or(read_only(cx, ns, p), &format!("protect {p}"))?;
    }
    for p in &spec.masked {
        or(mask(cx, ns, p), &format!("hide {p}"))?;
    }
    if spec.root.read_only {
        or(
            ns.set_flags(&ns.root(), MountFlags::RDONLY),
            "make the root read-only",
        )?;
    }
    // After the root's own: each place becomes a mount, by a bind, which has the flags of where it is.
    if let Confidential::Files(places) = &spec.confidential {
        for p in places {
            let marked = mark_confidential(cx, ns, p);
            or(marked, &format!("mark {p} as confidential"))?;
        }
    }
    let below = match spec.propagation {
        Propagation::Private => None,
        Propagation::Unbindable => Some(Recursive::No),
        Propagation::AllUnbindable => Some(Recursive::Yes),
    };
    if let Some(recursive) = below {
        or(
            ns.set_propagation(&ns.root(), peers::Propagation::Unbindable, recursive),
            "make the root unbindable",
        )?;
    }
    Ok(())
}

/// How many pages, and files, the layer over a root's /dev takes: 64 MiB, as runc's tmpfs there.
const DEV_PAGES: u64 = (64 << 20) / abi::PAGE_SIZE;

/// Has what is made in /dev in memory, over what the root has there.
fn layer_over_dev(cx: &PathCx<'_>, ns: &Arc<MountNamespace>, memory: &Arc<Clas>) -> Result<()> {
    let at = make_dirs(cx, "/dev")?;
    // Devices and links: little.
    let limits = tmpfs::Options {
        max_pages: DEV_PAGES,
        max_inodes: DEV_PAGES,
        ..Default::default()
    };
    let (upper, _) = Tmpfs::new(cx.vfs.new_dev(), memory, limits);
    let over = RootLayer::over(cx.vfs, std::slice::from_ref(&at.dentry), &upper)?;
    ns.mount(&at, over, MountFlags::RELATIME, "overlay")?;
    Ok(())
}

fn ids(spec: &ContainerSpec) -> Ids {
    if spec.uids.is_empty() && spec.gids.is_empty() {
        return Ids::AsIs;
    }
    let map = |r: &[IdRange]| {
        r.iter()
            .map(|r| (r.inside, r.outside, r.count))
            .collect::<Vec<_>>()
    };
    Ids::Mapped(Arc::new(IdMaps {
        uids: map(&spec.uids),
        gids: map(&spec.gids),
    }))
}

fn fs_root(cx: &PathCx<'_>, kind: &str, data: &str) -> Result<Arc<Dentry>> {
    cx.vfs
        .fs_type(kind)?
        .mount_with(cx.vfs, &cx.caller, (kind, kind), data)
}

/// Where to mount; made if it is missing. `None` where the mount is optional.
fn mount_point(cx: &PathCx<'_>, m: &MountSpec, dentry: &Arc<Dentry>) -> Result<Option<Path>> {
    match cx.resolve(&At::Cwd, m.target.as_bytes(), Walk::FOLLOW) {
        Err(ENOENT) if m.optional => Ok(None),
        Err(ENOENT) if dentry.is_dir() => make_dirs(cx, &m.target).map(Some),
        Err(ENOENT) => make_file(cx, &m.target).map(Some),
        r => r.map(Some),
    }
}

/// Makes a directory with its parents.
pub fn make_dirs(cx: &PathCx<'_>, path: &str) -> Result<Path> {
    let mut at = String::new();
    for part in path.split('/').filter(|p| !p.is_empty()) {
        at.push('/');
        at.push_str(part);
        match cx.mkdir(&At::Cwd, at.as_bytes(), 0o755) {
            Ok(_) | Err(EEXIST) => {}
            // A read-only file system may have it all the same.
            Err(e) => {
                cx.resolve(&At::Cwd, at.as_bytes(), Walk::FOLLOW)
                    .map_err(|_| e)?;
            }
        }
    }
    cx.resolve(&At::Cwd, path.as_bytes(), Walk::FOLLOW)
}

/// Makes an empty file to mount a file on.
pub fn make_file(cx: &PathCx<'_>, path: &str) -> Result<Path> {
    make_parents(cx, path)?;
    cx.mknod(&At::Cwd, path.as_bytes(), 0o100_644, 0)?;
    cx.resolve(&At::Cwd, path.as_bytes(), Walk::FOLLOW)
}

fn make_parents(cx: &PathCx<'_>, path: &str) -> Result<()> {
    match path.rsplit_once('/') {
        Some((dir, _)) if !dir.is_empty() => make_dirs(cx, dir).map(|_| ()),
        _ => Ok(()),
    }
}

/// A device node. What the kernel has no driver for can be made, and gives `ENXIO` when it is
/// opened.
fn node(cx: &PathCx<'_>, d: &DeviceNode) -> Result<()> {
    make_parents(cx, &d.path)?;
    let path = d.path.as_bytes();
    let old = cx.fs.set_umask(0);
    let made = cx.mknod(&At::Cwd, path, d.mode, makedev(d.major, d.minor));
    cx.fs.set_umask(old);
    match made {
        Err(EEXIST) => return Ok(()),
        r => r?,
    };
    cx.chown(&At::Cwd, path, Some(d.uid), Some(d.gid), 0)
}

/// Writes to a file below /proc/sys.
fn sysctl(cx: &PathCx<'_>, name: &str, value: &str) -> Result<()> {
    // A slash and a dot may both separate, as sysctl(8) has it.
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let how = vfs::ops::OpenHow::new(vfs::file::O_WRONLY, 0);
    let f = cx.open(&At::Cwd, path.as_bytes(), how)?;
    let mut bytes = value.as_bytes();
    let mut from = vfs::file::BufSource::new(bytes);
    let n = f.write(&mut from)?;
    bytes = &bytes[n.min(bytes.len())..];
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(abi::errno::EINVAL)
    }
}

/// What is not there needs no protection.
fn there(cx: &PathCx<'_>, path: &str) -> Result<Option<Path>> {
    match cx.resolve(&At::Cwd, path.as_bytes(), Walk::FOLLOW) {
        Ok(p) => Ok(Some(p)),
        Err(ENOENT | abi::errno::ENOTDIR) => Ok(None),
        Err(e) => Err(e),
    }
}

fn read_only(cx: &PathCx<'_>, ns: &MountNamespace, path: &str) -> Result<()> {
    let Some(at) = there(cx, path)? else {
        return Ok(());
    };
    let m = ns.bind(&at, &at, Recursive::Yes)?;
    let flags = at.mnt.flags() | MountFlags::RDONLY;
    ns.set_flags(&Path::root_of(&m), flags)
}

/// A place that is no mount becomes one of itself, which nobody inside takes away: what is below
/// is not seen without it.
fn mark_confidential(cx: &PathCx<'_>, ns: &MountNamespace, path: &str) -> Result<()> {
    let mut at = there(cx, path)?.ok_or(ENOENT)?;
    if !at.is_mount_root() {
        at = Path::root_of(&ns.bind(&at, &at, Recursive::Yes)?);
    }
    let marks = AttrChange {
        set: MountFlags::CONFIDENTIAL | MountFlags::LOCKED,
        clear: MountFlags::empty(),
        propagation: None,
    };
    ns.change(&at, marks, Recursive::Yes)
}

fn mask(cx: &PathCx<'_>, ns: &MountNamespace, path: &str) -> Result<()> {
    let Some(at) = there(cx, path)? else {
        return Ok(());
    };
    if at.is_dir() {
        let dentry = fs_root(cx, "tmpfs", "size=0k,mode=755")?;
        ns.mount(&at, dentry, MountFlags::RDONLY, "tmpfs")?;
    } else {
        // The image may have put something else there, or a link to it: it would be shown instead
        // of nothing.
        let null = cx.resolve(&At::Cwd, b"/dev/null", Walk::empty())?;
        let inode = null.dentry.inode()?;
        if inode.file_type() != FileType::Char || inode.stat()?.rdev != makedev(1, 3) {
            return Err(ENODEV);
        }
        ns.bind(&null, &at, Recursive::No)?;
    }
    Ok(())
}

/// Shows one file at another place, as /dev/console shows a terminal.
pub fn show_at(cx: &PathCx<'_>, what: &str, place: &str) -> Result<()> {
    match make_file(cx, place) {
        Ok(_) | Err(EEXIST) => {}
        Err(e) => return Err(e),
    }
    let args = vfs::ops::MountArgs {
        source: what.as_bytes(),
        ..Default::default()
    };
    cx.mount(place.as_bytes(), u64::from(MS_BIND), args)
}
