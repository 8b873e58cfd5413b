//! /dev: the standard nodes, terminals.

use super::terminals::task_of;
use crate::Kernel;
use crate::boot::MadeBy;
use abi::Result;
use abi::errno::{EEXIST, ENOENT, ENXIO};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tty::{Devpts, PtmxDevice, SlaveDevice};
use vfs::file::{File, FileOps};
use vfs::fs::dev::{LINKS, STANDARD};
use vfs::fs::dynamic::{DynDir, DynEntry, DynFs, DynNode};
use vfs::fs::tmpfs::{self, Node, Tmpfs};
use vfs::inode::Inode;
use vfs::vfs::{Device, DeviceOpen};
use vfs::{At, Caller, FileType, NewNode, PathCx, makedev};

/// `/dev/tty` (5:0): the caller's controlling terminal.
struct ControllingTerminal;

impl Device for ControllingTerminal {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        let t = task_of(open.caller.task).ok_or(ENXIO)?;
        let sid = t.kernel.tasks.lock().sid(t.group.tgid);
        let pty = t.kernel.terminals.of_session(sid).ok_or(ENXIO)?;
        let s = pty.open(open.flags | vfs::file::O_NOCTTY, open.caller.task)?;
        Ok(s)
    }
}

/// `/dev/pts`.
struct PtsDir {
    devpts: Arc<Devpts>,
    /// Holds the nodes' inodes.
    nodes: Arc<Tmpfs>,
    /// A node stays the same as long as its terminal, with its number, mode and owner (ttyname(3) compares
    /// them). By device number.
    made: Mutex<HashMap<u64, Arc<dyn Inode>>>,
}

impl PtsDir {
    fn node(&self, mode: u32, gid: u32, rdev: u64) -> Result<DynNode> {
        let mut made = self.made.lock();
        if let Some(n) = made.get(&rdev) {
            return Ok(DynNode::Inode(n.clone()));
        }
        // Those of terminals that are gone.
        let live = self.devpts.list();
        made.retain(|d, _| *d == makedev(5, 2) || live.iter().any(|n| makedev(136, *n) == *d));
        let new = NewNode { mode, uid: 0, gid };
        let node = Node::detached(&self.nodes, FileType::Char, rdev, new, &[])?;
        made.insert(rdev, node.clone());
        Ok(DynNode::Inode(node))
    }
}

impl DynDir for PtsDir {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        if name == b"ptmx" {
            return self.node(0o666, 0, makedev(5, 2));
        }
        let n: u32 = std::str::from_utf8(name)
            .ok()
            .and_then(|s| s.parse().ok())
            .ok_or(ENOENT)?;
        if !self.devpts.list().contains(&n) {
            self.made.lock().remove(&makedev(136, n));
            return Err(ENOENT);
        }
        self.node(self.devpts.mode, self.devpts.group, makedev(136, n))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let numbers = self.devpts.list().into_iter().map(|n| n.to_string());
        Ok(numbers
            .chain(["ptmx".to_string()])
            .map(|n| DynEntry::new(n, FileType::Char))
            .collect())
    }
}

/// The terminals of the caller's container.
enum Which {
    Ptmx,
    Slave,
}

impl Device for Which {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        let t = task_of(open.caller.task).ok_or(ENXIO)?;
        let devpts = t.group.container.devpts.clone();
        match self {
            Which::Ptmx => PtmxDevice(devpts).open(open),
            Which::Slave => SlaveDevice(devpts).open(open),
        }
    }
}

/// Registers the devices and devpts.
pub fn register(k: &Arc<Kernel>) {
    for (major, minor, which) in [(5, Some(2), Which::Ptmx), (136, None, Which::Slave)] {
        k.vfs.devices.register(major, minor, Arc::new(which));
    }
    k.vfs
        .devices
        .register(5, Some(0), Arc::new(ControllingTerminal));
    let kernel = Arc::downgrade(k);
    k.vfs.register_fs(
        "devpts",
        Arc::new(MadeBy(move |vfs: &Arc<vfs::Vfs>, caller: &Caller<'_>| {
            let kernel = kernel.upgrade().ok_or(ENXIO)?;
            let c = kernel.container_of(caller.task);
            let (nodes, _) = Tmpfs::new(vfs.new_dev(), &c.clas, tmpfs::Options::default());
            let dir = PtsDir {
                devpts: c.devpts.clone(),
                nodes,
                made: Mutex::default(),
            };
            Ok(DynFs::mountable(vfs, "devpts", 0x1cd1, Arc::new(dir)))
        })),
    );
}

/// Fills /dev; what is there already stays.
pub fn populate(cx: &PathCx<'_>) -> Result<()> {
    let old = cx.fs.set_umask(0);
    let r = make_nodes(cx);
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
