//! Namespaces as files (`ioctl_ns(2)`): an open one, or a mount of one, keeps it alive.

use super::pid::PidNs;
use super::time::TimeNs;
use super::{CgroupNs, IpcNs, NetNs, UtsNs};
use crate::Task;
use crate::task::task_of;
use abi::errno::{EINVAL, ENOTTY, EPERM, ESRCH};
use abi::linux::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME,
    CLONE_NEWUSER, CLONE_NEWUTS,
};
use abi::{Result, Va};
use std::any::Any;
use std::sync::Arc;
use vfs::fd_table::CloseOnExec;
use vfs::file::{File, FileOps, IoctlContext};
use vfs::fs::dynamic::{self, DynFile, DynNode};
use vfs::mode::{Want, generic_permission};
use vfs::userns::UserNs;
use vfs::{Caller, FileType, MountNamespace, Path, Perm, Stat};

/// `st_dev` of every namespace.
const NSFS_DEV: u64 = 4;

/// A namespace of any kind.
#[derive(Clone)]
pub enum NsRef {
    User(UserNs),
    Pid(Arc<PidNs>),
    Uts(Arc<UtsNs>),
    Ipc(Arc<IpcNs>),
    Net(Arc<NetNs>),
    Mnt(Arc<MountNamespace>),
    Cgroup(Arc<CgroupNs>),
    Time(Arc<TimeNs>),
}

impl NsRef {
    /// A task's namespace, by its name in `/proc/PID/ns`. `None` for other names, and for a pid
    /// namespace for children that has no process yet.
    #[must_use]
    pub fn of(t: &Task, name: &[u8]) -> Option<NsRef> {
        let ns = t.ns();
        Some(match name {
            b"user" => NsRef::User(t.cred().user_ns.clone()),
            b"pid" => NsRef::Pid(t.pid.ns.clone()),
            b"pid_for_children" if ns.pid_for_children.init() == 0 => return None,
            b"pid_for_children" => NsRef::Pid(ns.pid_for_children.clone()),
            b"uts" => NsRef::Uts(ns.uts.clone()),
            b"ipc" => NsRef::Ipc(ns.ipc.clone()),
            b"net" => NsRef::Net(ns.net.clone()),
            b"mnt" => NsRef::Mnt(t.fs().ns()),
            b"cgroup" => NsRef::Cgroup(ns.cgroup.clone()),
            b"time" => NsRef::Time(ns.time.clone()),
            b"time_for_children" => NsRef::Time(ns.time_for_children.clone()),
            _ => return None,
        })
    }
    /// The names in `/proc/PID/ns`.
    pub const NAMES: [&str; 10] = [
        "cgroup",
        "ipc",
        "mnt",
        "net",
        "pid",
        "pid_for_children",
        "time",
        "time_for_children",
        "user",
        "uts",
    ];
    #[must_use]
    pub fn ino(&self) -> u32 {
        match self {
            NsRef::User(n) => n.ino(),
            NsRef::Pid(n) => n.ino(),
            NsRef::Uts(n) => n.id.ino,
            NsRef::Ipc(n) => n.id.ino,
            NsRef::Net(n) => n.id.ino,
            NsRef::Mnt(n) => n.ino(),
            NsRef::Cgroup(n) => n.id.ino,
            NsRef::Time(n) => n.id.ino,
        }
    }
    #[must_use]
    pub fn clone_flag(&self) -> u32 {
        match self {
            NsRef::User(_) => CLONE_NEWUSER,
            NsRef::Pid(_) => CLONE_NEWPID,
            NsRef::Uts(_) => CLONE_NEWUTS,
            NsRef::Ipc(_) => CLONE_NEWIPC,
            NsRef::Net(_) => CLONE_NEWNET,
            NsRef::Mnt(_) => CLONE_NEWNS,
            NsRef::Cgroup(_) => CLONE_NEWCGROUP,
            NsRef::Time(_) => CLONE_NEWTIME,
        }
    }
    /// As its link shows it: `net:[4026531840]`.
    #[must_use]
    pub fn text(&self) -> String {
        let kind = match self {
            NsRef::User(_) => "user",
            NsRef::Pid(_) => "pid",
            NsRef::Uts(_) => "uts",
            NsRef::Ipc(_) => "ipc",
            NsRef::Net(_) => "net",
            NsRef::Mnt(_) => "mnt",
            NsRef::Cgroup(_) => "cgroup",
            NsRef::Time(_) => "time",
        };
        format!("{kind}:[{}]", self.ino())
    }
    /// The user namespace that it belongs to; a user namespace's is its parent. `None` above the
    /// initial one.
    fn owner(&self) -> Option<UserNs> {
        match self {
            NsRef::User(n) => n.parent(),
            NsRef::Pid(n) => Some(n.user.clone()),
            NsRef::Uts(n) => Some(n.user.clone()),
            NsRef::Ipc(n) => Some(n.user.clone()),
            NsRef::Net(n) => Some(n.user.clone()),
            NsRef::Mnt(n) => Some(n.user().clone()),
            NsRef::Cgroup(n) => Some(n.user.clone()),
            NsRef::Time(n) => Some(n.user.clone()),
        }
    }
    /// The place in no tree that a magic link leads to.
    #[must_use]
    pub fn place(&self, vfs: &vfs::Vfs) -> Path {
        let node = DynNode::File(Arc::new(NsNode(self.clone())));
        /// `NSFS_MAGIC`.
        const MAGIC: u64 = 0x6e73_6673;
        dynamic::detached(vfs, "nsfs", MAGIC, node)
    }
    fn open(&self) -> Arc<dyn FileOps> {
        Arc::new(NsFile(self.clone()))
    }
}

/// Its inode.
struct NsNode(NsRef);

fn stat(ns: &NsRef) -> Stat {
    Stat {
        dev: NSFS_DEV,
        ino: u64::from(ns.ino()),
        mode: 0o100_444,
        nlink: 1,
        blksize: 4096,
        ..Stat::default()
    }
}

impl DynFile for NsNode {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o444,
            uid: 0,
            gid: 0,
        }
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Err(EINVAL)
    }
    fn stat(&self) -> Option<Result<Stat>> {
        Some(Ok(stat(&self.0)))
    }
    fn identity(&self) -> u64 {
        match &self.0 {
            NsRef::Mnt(m) => m.id,
            _ => 0,
        }
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        // As an immutable file.
        if want.contains(Want::WRITE) {
            return Err(EPERM);
        }
        generic_permission(self.perm(), FileType::Regular, cx.cred, want)
    }
    fn open(self: Arc<Self>, _: &Caller<'_>, _: u32) -> Result<Option<Arc<dyn FileOps>>> {
        Ok(Some(self.0.open()))
    }
}

/// An open namespace.
pub struct NsFile(pub NsRef);

impl FileOps for NsFile {
    fn stat(&self) -> Result<Stat> {
        Ok(stat(&self.0))
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        let t = task_of(cx.task()).ok_or(ESRCH)?;
        let mine = t.cred().user_ns.clone();
        // Who is not below the caller's own is not to be found this way.
        let visible = |n: Option<UserNs>| {
            n.filter(|n| n.is_below(&mine))
                .map(NsRef::User)
                .ok_or(EPERM)
        };
        match cmd {
            // NS_GET_USERNS
            0xb701 => give(t, &visible(self.0.owner())?),
            // NS_GET_PARENT
            0xb702 => match &self.0 {
                NsRef::User(n) => give(t, &visible(n.parent())?),
                NsRef::Pid(n) => {
                    let p = n.parent().filter(|p| p.is_below(&t.pid.ns)).ok_or(EPERM)?;
                    give(t, &NsRef::Pid(p))
                }
                _ => Err(EINVAL),
            },
            // NS_GET_NSTYPE
            0xb703 => Ok(u64::from(self.0.clone_flag())),
            // NS_GET_OWNER_UID
            0xb704 => match &self.0 {
                NsRef::User(n) => {
                    let uid = mine.uid_shown(n.owner());
                    cx.copy_out(Va(arg), &uid.to_le_bytes()).map(|()| 0)
                }
                _ => Err(EINVAL),
            },
            // NS_GET_MNTNS_ID
            0x8008_b705 => match &self.0 {
                NsRef::Mnt(n) => cx.copy_out(Va(arg), &n.id.to_le_bytes()).map(|()| 0),
                _ => Err(EINVAL),
            },
            _ => Err(ENOTTY),
        }
    }
    fn describe(&self) -> String {
        self.0.text()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Installs an open namespace in the caller's table.
fn give(t: &Arc<Task>, ns: &NsRef) -> Result<u64> {
    let f = File::new(ns.open(), 0, Some(ns.place(&t.kernel.vfs)), t.cred());
    let fd = t.files().install(f, CloseOnExec::Yes, &t.room())?;
    Ok(fd as u64)
}
