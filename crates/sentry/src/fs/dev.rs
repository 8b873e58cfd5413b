//! /dev: the standard nodes, terminals.

use crate::Kernel;
use crate::task::task_of;
use abi::Result;
use abi::errno::{EEXIST, EINVAL, ENOENT, ENOSPC, ENXIO};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tty::{Devpts, Master, Pty, SlaveDevice};
use vfs::file::{File, FileOps};
use vfs::fs::dev::{LINKS, STANDARD};
use vfs::fs::dynamic::{DynDir, DynEntry, DynFs, DynNode, DynOptions, number};
use vfs::fs::tmpfs::{self, Node, Payer, Tmpfs};
use vfs::inode::Inode;
use vfs::params::{Param, Params};
use vfs::vfs::{Device, DeviceOpen, FsType};
use vfs::{At, Caller, FileType, NewNode, PathCx, Perm, makedev};

/// `/dev/tty` (5:0): the caller's controlling terminal.
struct ControllingTerminal;

/// `/dev/net/tun` (10:200): devices of the opener's network namespace.
struct TunDevice;

impl Device for TunDevice {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        let t = task_of(open.caller.task).ok_or(ENXIO)?;
        let net = t.ns().net.clone();
        Ok(net::TunFile::open(&net))
    }
}

impl Device for ControllingTerminal {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        let t = task_of(open.caller.task).ok_or(ENXIO)?;
        let sid = t.kernel.tasks.lock().sid(t.group.tgid);
        let pty = t.kernel.terminals.of(&t.group, sid).ok_or(ENXIO)?;
        let s = pty.open(open.flags | vfs::file::O_NOCTTY, open.caller.task)?;
        Ok(s)
    }
}

/// The options of a devpts mount (`Documentation/filesystems/devpts.rst`). Ids are the kernel's.
#[derive(Clone, Copy, Debug)]
struct PtsOptions {
    /// Whose new slaves are; those who open the master own them where nothing is said.
    uid: Option<u32>,
    gid: Option<u32>,
    mode: u32,
    ptmx_mode: u32,
    max: u32,
}

/// `NR_UNIX98_PTY_MAX`.
const PTY_MAX: u32 = 1 << 20;

impl Default for PtsOptions {
    fn default() -> PtsOptions {
        PtsOptions {
            uid: None,
            gid: None,
            mode: 0o600,
            ptmx_mode: 0,
            max: PTY_MAX,
        }
    }
}

impl PtsOptions {
    fn parse(data: &str, ns: &vfs::userns::UserNs) -> Result<PtsOptions> {
        let mut o = PtsOptions::default();
        let number = |v: &str| v.parse::<u32>().map_err(|_| EINVAL);
        let mode = |v: &str| {
            let m = u32::from_str_radix(v, 8).map_err(|_| EINVAL)?;
            Ok::<_, abi::Errno>(m & 0o7777)
        };
        for word in data.split(',').filter(|w| !w.is_empty()) {
            match word.split_once('=') {
                Some(("uid", v)) => o.uid = Some(ns.uid_from(number(v)?)?),
                Some(("gid", v)) => o.gid = Some(ns.gid_from(number(v)?)?),
                Some(("mode", v)) => o.mode = mode(v)?,
                Some(("ptmxmode", v)) => o.ptmx_mode = mode(v)?,
                Some(("max", v)) => {
                    o.max = number(v).ok().filter(|n| *n <= PTY_MAX).ok_or(EINVAL)?
                }
                // It does nothing, as on Linux since 4.7.
                None if word == "newinstance" => {}
                _ => return Err(EINVAL),
            }
        }
        Ok(o)
    }
}

/// A devpts mount.
struct PtsMount {
    /// What it was asked for, until a remount asks for something else.
    options: Mutex<PtsOptions>,
    ns: vfs::userns::UserNs,
    /// Made by the mount, as its maker's (`mknod_ptmx`).
    ptmx: Arc<Node>,
    /// The terminals that were opened by its ptmx, and some that are gone.
    opened: Mutex<Vec<Weak<Pty>>>,
}

impl PtsMount {
    /// A new terminal by this mount's ptmx; `ENOSPC` where it has as many as it may have.
    fn open(&self, open: impl FnOnce() -> Result<Arc<Master>>) -> Result<Arc<Master>> {
        // None is as many as there can be (`ida_alloc_max`).
        let max = match self.options.lock().max {
            0 => PTY_MAX,
            n => n,
        };
        let mut opened = self.opened.lock();
        if opened.len() == opened.capacity() || opened.len() >= max as usize {
            opened.retain(|p| p.strong_count() > 0);
        }
        if opened.len() >= max as usize {
            return Err(ENOSPC);
        }
        let master = open()?;
        opened.push(Arc::downgrade(master.pty()));
        Ok(master)
    }
}

impl DynOptions for PtsMount {
    fn shown(&self) -> String {
        let o = *self.options.lock();
        let mut s = String::new();
        if let Some(n) = o.uid {
            s += &format!(",uid={n}");
        }
        if let Some(n) = o.gid {
            s += &format!(",gid={n}");
        }
        s += &format!(",mode={:03o},ptmxmode={:03o}", o.mode, o.ptmx_mode);
        if o.max < PTY_MAX {
            s += &format!(",max={}", o.max);
        }
        s
    }
    fn change(&self, data: &str) -> Result<()> {
        let mut o = self.options.lock();
        *o = PtsOptions::parse(data, &self.ns)?;
        self.ptmx.set_mode(o.ptmx_mode);
        Ok(())
    }
}

/// A node, and the terminal that it stands for.
type Made = (Weak<Pty>, Arc<dyn Inode>);

/// `/dev/pts`.
struct PtsDir {
    devpts: Arc<Devpts>,
    mount: Arc<PtsMount>,
    /// Holds the nodes' inodes.
    nodes: Arc<Tmpfs>,
    /// A node stays the same as long as its terminal, with its number, mode and owner (ttyname(3)
    /// compares them). By number; the terminal says which of those that have had it.
    made: Mutex<HashMap<u32, Made>>,
}

/// For the kernel's own: terminals are paid for by who opens them.
fn node(fs: &Arc<Tmpfs>, mode: u32, (uid, gid): (u32, u32), rdev: u64) -> Result<Arc<Node>> {
    let new = NewNode { mode, uid, gid };
    Node::detached(fs, FileType::Char, rdev, new, &[], Payer::Owner)
}

impl PtsDir {
    /// The node of a terminal.
    fn slave(&self, pty: &Arc<Pty>, o: PtsOptions) -> Result<Arc<dyn Inode>> {
        let mut made = self.made.lock();
        if let Some((of, node)) = made.get(&pty.index)
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(pty))
        {
            return Ok(node.clone());
        }
        // Those of terminals that are gone.
        made.retain(|_, (of, _)| of.strong_count() > 0);
        let (uid, gid) = pty.opener();
        let owner = (o.uid.unwrap_or(uid), o.gid.unwrap_or(gid));
        let node: Arc<dyn Inode> = node(&self.nodes, o.mode, owner, makedev(136, pty.index))?;
        pty.add_node(&node);
        made.insert(pty.index, (Arc::downgrade(pty), node.clone()));
        Ok(node)
    }

    /// A terminal that this mount shows: whoever mounts devpts chooses modes and owners, and may do
    /// so for what is of the own user namespace only. (On Linux each mount has terminals of its
    /// own.)
    fn find(&self, n: u32) -> Option<Arc<Pty>> {
        self.devpts.find(n).filter(|p| p.is_of(&self.mount.ns))
    }
}

impl DynDir for PtsDir {
    fn perm(&self) -> Perm {
        // The root's of the user namespace that it was mounted in.
        let ns = &self.mount.ns;
        Perm {
            mode: 0o755,
            uid: ns.uid_from(0).unwrap_or(u32::MAX),
            gid: ns.gid_from(0).unwrap_or(u32::MAX),
        }
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        if name == b"ptmx" {
            return Ok(DynNode::Inode(self.mount.ptmx.clone()));
        }
        let o = *self.mount.options.lock();
        let n = number(name).ok_or(ENOENT)?;
        let Some(pty) = self.find(n.unsigned_abs()) else {
            return Err(ENOENT);
        };
        Ok(DynNode::Inode(self.slave(&pty, o)?))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let shown = |n: &u32| self.find(*n).is_some();
        let numbers = self.devpts.list().into_iter().filter(shown);
        let numbers = numbers.map(|n| n.to_string());
        Ok(numbers
            .chain(["ptmx".to_string()])
            .map(|n| DynEntry::new(n, FileType::Char))
            .collect())
    }
}

/// The devpts mounts, by their device numbers.
type PtsMounts = Mutex<HashMap<u64, Weak<PtsMount>>>;

/// The terminals of the caller's container.
enum Which {
    Ptmx(Arc<PtsMounts>),
    Slave,
}

impl Device for Which {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        let t = task_of(open.caller.task).ok_or(ENXIO)?;
        let devpts = t.group.container.devpts.clone();
        match self {
            Which::Ptmx(mounts) => {
                let (dev, new) = (open.path.mnt.sb().dev, || {
                    devpts.open_master_as(open.caller.cred)
                });
                let mount = mounts.lock().get(&dev).and_then(Weak::upgrade);
                Ok(match mount {
                    Some(m) => m.open(new)?,
                    None => new()?,
                })
            }
            Which::Slave => SlaveDevice(devpts).open(open),
        }
    }
}

/// Registers the devices and devpts.
pub fn register(k: &Arc<Kernel>) {
    let mounts = Arc::<PtsMounts>::default();
    let ptmx = Which::Ptmx(mounts.clone());
    for (major, minor, which) in [(5, Some(2), ptmx), (136, None, Which::Slave)] {
        k.vfs.devices.register(major, minor, Arc::new(which));
    }
    k.vfs
        .devices
        .register(5, Some(0), Arc::new(ControllingTerminal));
    k.vfs.devices.register(10, Some(200), Arc::new(TunDevice));
    let kernel = Arc::downgrade(k);
    k.vfs
        .register_fs("devpts", Arc::new(PtsType { kernel, mounts }));
}

struct PtsType {
    kernel: Weak<Kernel>,
    mounts: Arc<PtsMounts>,
}

impl FsType for PtsType {
    fn parameters(&self) -> &'static [&'static str] {
        &["uid", "gid", "mode", "ptmxmode", "max", "newinstance"]
    }
    fn parse(&self, caller: &Caller<'_>, p: Param) -> Result<Param> {
        PtsOptions::parse(&p.word(), &caller.cred.user_ns)?;
        Ok(p)
    }
    fn mount(
        &self,
        vfs: &Arc<vfs::Vfs>,
        caller: &Caller<'_>,
        _: &str,
        params: &Params,
    ) -> Result<Arc<vfs::Dentry>> {
        let kernel = self.kernel.upgrade().ok_or(ENXIO)?;
        let c = kernel.container_of(caller.task);
        let ns = caller.cred.user_ns.clone();
        let options = PtsOptions::parse(&params.joined(), &ns)?;
        let (nodes, _) = Tmpfs::new(vfs.new_dev(), &c.clas, tmpfs::Options::default());
        let owner = (caller.cred.fsuid, caller.cred.fsgid);
        let ptmx = node(&nodes, options.ptmx_mode, owner, makedev(5, 2))?;
        let mount = Arc::new(PtsMount {
            options: Mutex::new(options),
            ns,
            ptmx,
            opened: Mutex::default(),
        });
        let dir = PtsDir {
            devpts: c.devpts.clone(),
            mount: mount.clone(),
            nodes,
            made: Mutex::default(),
        };
        let root = DynFs::with_options(vfs, "devpts", 0x1cd1, Arc::new(dir), Some(mount.clone()));
        let mut mounts = self.mounts.lock();
        mounts.retain(|_, m| m.strong_count() > 0);
        mounts.insert(root.sb().dev, Arc::downgrade(&mount));
        Ok(root)
    }
}

/// Fills /dev; what is there already stays.
pub fn populate(cx: &PathCx<'_>) -> Result<()> {
    with_exact_modes(cx, make_nodes)
}

/// `/dev/net/tun` and `/dev/fuse`, as a machine has them and a container does not.
pub fn add_devices(cx: &PathCx<'_>) -> Result<()> {
    with_exact_modes(cx, |cx| {
        cx.mkdir(&At::Cwd, b"/dev/net", 0o755)?;
        let dev = makedev(10, 200);
        cx.mknod(&At::Cwd, b"/dev/net/tun", 0o20_666, dev)?;
        cx.mknod(&At::Cwd, b"/dev/fuse", 0o20_666, makedev(10, 229))?;
        Ok(())
    })
}

fn with_exact_modes(cx: &PathCx<'_>, f: impl Fn(&PathCx<'_>) -> Result<()>) -> Result<()> {
    let old = cx.fs.set_umask(0);
    let r = f(cx);
    cx.fs.set_umask(old);
    r
}

fn make_nodes(cx: &PathCx<'_>) -> Result<()> {
    let there_is = |r: Result<()>| match r {
        Err(EEXIST) => Ok(()),
        r => r,
    };
    there_is(cx.mkdir(&At::Cwd, b"/dev", 0o755).map(|_| ()))?;
    for (name, major, minor) in STANDARD {
        let path = format!("/dev/{name}");
        let dev = makedev(major, minor);
        there_is(
            cx.mknod(&At::Cwd, path.as_bytes(), 0o20_666, dev)
                .map(|_| ()),
        )?;
    }
    for (name, target) in LINKS {
        let path = format!("/dev/{name}");
        there_is(cx.symlink(target.as_bytes(), &At::Cwd, path.as_bytes()))?;
    }
    for dir in ["pts", "shm", "mqueue"] {
        let path = format!("/dev/{dir}");
        there_is(cx.mkdir(&At::Cwd, path.as_bytes(), 0o755).map(|_| ()))?;
    }
    Ok(())
}
