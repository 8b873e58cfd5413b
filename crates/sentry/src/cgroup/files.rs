//! The files of a control group.

use super::memory::OwnPeak;
use super::{Cgroup, Controls, Hierarchy, NO_LIMIT, no_threads};
use crate::fs::made_by::MadeBy;
use crate::fs::pressure::Alarm;
use crate::task::list::PID_MAX;
use crate::task::task_of;
use crate::{Kernel, Task};
use abi::Result;
use abi::errno::{EINVAL, ENODEV, ENOENT, EOPNOTSUPP, EPERM, ERANGE, ESRCH};
use clas::PeakOf;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynFile, DynFs, DynInode, DynNode};
use vfs::inode::SetAttr;
use vfs::mode::{Want, generic_permission};
use vfs::notice::Notice;
use vfs::{Caller, Caps, Credentials, FileType, Perm};
use wait::Events;

/// `CGROUP2_SUPER_MAGIC`.
const MAGIC: u64 = 0x6367_7270;

/// What it may be mounted with (`cgroup2_fs_parameters`). What they say holds for the initial
/// namespace's mount alone, which is the host's.
const PARAMETERS: &[&str] = &[
    "nsdelegate",
    "favordynmods",
    "memory_localevents",
    "memory_recursiveprot",
    "memory_hugetlb_accounting",
    "pids_localevents",
];

/// Registers the file system: it shows the tree below the root of the mounter's cgroup namespace.
pub fn register(k: &Arc<Kernel>) {
    let kernel = Arc::downgrade(k);
    k.vfs.register_fs(
        "cgroup2",
        Arc::new(MadeBy(
            move |vfs: &Arc<vfs::Vfs>, cx: &Caller<'_>| {
                let k = kernel.upgrade().ok_or(ENOENT)?;
                let ns = task_of(cx.task).map_or_else(
                    || k.container_of(cx.task).ns.cgroup.clone(),
                    |t| t.ns().cgroup.clone(),
                );
                if !cx.cred.has_in(&ns.user, Caps::SYS_ADMIN) {
                    return Err(EPERM);
                }
                let dir = CgroupDir {
                    kernel: kernel.clone(),
                    group: Arc::clone(&ns),
                };
                Ok(DynFs::mountable(vfs, "cgroup2", MAGIC, Arc::new(dir)))
            },
            PARAMETERS,
        )),
    );
}

/// A group as a directory.
pub struct CgroupDir {
    kernel: Weak<Kernel>,
    pub group: Arc<Cgroup>,
}

impl CgroupDir {
    /// The group that an open directory is; `None` for others.
    #[must_use]
    pub fn of(f: &File) -> Option<Arc<Cgroup>> {
        let inode = f.path.as_ref()?.dentry.inode().ok()?;
        let DynNode::Dir(d) = &vfs::inode::downcast::<DynInode>(inode)?.node else {
            return None;
        };
        let any: &dyn Any = &**d;
        Some(any.downcast_ref::<CgroupDir>()?.group.clone())
    }
}

/// A kind of file: its name, its mode, where it is.
struct Kind {
    name: &'static str,
    mode: u32,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Everywhere,
    NotRoot,
    /// At the root of a container's tree, as at that of a cgroup namespace, and where this
    /// controller is.
    RootAnd(Controls),
}

const PIDS: Place = Place::RootAnd(Controls::PIDS);
const MEMORY: Place = Place::RootAnd(Controls::MEMORY);
const CPU: Place = Place::RootAnd(Controls::CPU);
const CPUSET: Place = Place::RootAnd(Controls::CPUSET);

const PRESSURE: &str = "memory.pressure";

/// The name of the directory itself, of which files have none.
const DIRECTORY: &str = "";

const fn kind(name: &'static str, mode: u32, place: Place) -> Kind {
    Kind { name, mode, place }
}

const KINDS: &[Kind] = &[
    kind("cgroup.controllers", 0o444, Place::Everywhere),
    kind("cgroup.events", 0o444, Place::NotRoot),
    kind("cgroup.freeze", 0o644, Place::NotRoot),
    kind("cgroup.kill", 0o200, Place::NotRoot),
    kind("cgroup.max.depth", 0o644, Place::Everywhere),
    kind("cgroup.max.descendants", 0o644, Place::Everywhere),
    kind("cgroup.procs", 0o644, Place::Everywhere),
    kind("cgroup.stat", 0o444, Place::Everywhere),
    kind("cgroup.subtree_control", 0o644, Place::Everywhere),
    kind("cgroup.threads", 0o644, Place::Everywhere),
    kind("cgroup.type", 0o644, Place::NotRoot),
    kind("cpu.max", 0o644, CPU),
    kind("cpu.stat", 0o444, Place::Everywhere),
    kind("cpu.weight", 0o644, CPU),
    kind("cpuset.cpus", 0o644, CPUSET),
    kind("cpuset.cpus.effective", 0o444, CPUSET),
    kind("cpuset.mems", 0o644, CPUSET),
    kind("cpuset.mems.effective", 0o444, CPUSET),
    kind("memory.current", 0o444, MEMORY),
    kind("memory.events", 0o444, MEMORY),
    kind("memory.events.local", 0o444, MEMORY),
    kind("memory.high", 0o644, MEMORY),
    kind("memory.low", 0o644, MEMORY),
    kind("memory.max", 0o644, MEMORY),
    kind("memory.min", 0o644, MEMORY),
    kind("memory.oom.group", 0o644, MEMORY),
    kind("memory.peak", 0o644, MEMORY),
    kind("memory.pressure", 0o644, MEMORY),
    kind("memory.reclaim", 0o200, MEMORY),
    kind("memory.stat", 0o444, MEMORY),
    kind("memory.swap.current", 0o444, MEMORY),
    kind("memory.swap.events", 0o444, MEMORY),
    kind("memory.swap.high", 0o644, MEMORY),
    kind("memory.swap.max", 0o644, MEMORY),
    kind("memory.swap.peak", 0o644, MEMORY),
    kind("pids.current", 0o444, PIDS),
    kind("pids.events", 0o444, PIDS),
    kind("pids.events.local", 0o444, PIDS),
    kind("pids.max", 0o644, PIDS),
    kind("pids.peak", 0o444, PIDS),
];

impl Kind {
    fn is_in(&self, c: &Cgroup) -> bool {
        match self.place {
            Place::Everywhere => true,
            Place::NotRoot => !c.is_root(),
            Place::RootAnd(what) => c.controllers().contains(what),
        }
    }
}

impl DynDir for CgroupDir {
    fn perm(&self) -> Perm {
        self.group.perm(DIRECTORY, 0o755)
    }
    fn set_attr(&self, a: &SetAttr) -> Result<()> {
        self.group.set_perm(DIRECTORY, 0o755, a)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let node = |group: Arc<Cgroup>| CgroupDir {
            kernel: self.kernel.clone(),
            group,
        };
        if let Some(k) = KINDS
            .iter()
            .find(|k| k.name.as_bytes() == name && k.is_in(&self.group))
        {
            let f = CgroupFile {
                kernel: self.kernel.clone(),
                group: self.group.clone(),
                kind: k,
                by: None,
                own: OpenState::Nothing,
            };
            return Ok(DynNode::File(Arc::new(f)));
        }
        let c = self.group.child(name).ok_or(ENOENT)?;
        Ok(DynNode::Dir(Arc::new(node(c))))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let files = KINDS
            .iter()
            .filter(|k| k.is_in(&self.group))
            .map(|k| DynEntry::new(k.name, FileType::Regular));
        let below = self.group.children();
        let dirs = below
            .into_iter()
            .map(|(n, _)| DynEntry::new(n, FileType::Directory));
        Ok(files.chain(dirs).collect())
    }
    fn alive(&self) -> bool {
        !self.group.is_dead()
    }
    fn identity(&self) -> u64 {
        self.group.id
    }
    fn subdirs(&self) -> u32 {
        self.group.children().len() as u32
    }
    fn mkdir(&self, cx: &Caller<'_>, name: &[u8], _: u32) -> Result<DynNode> {
        let k = self.kernel.upgrade().ok_or(ENODEV)?;
        let (uid, gid) = (cx.cred.fsuid, cx.cred.fsgid);
        let group = k.cgroups.make(&self.group, name, uid, gid)?;
        Ok(DynNode::Dir(Arc::new(CgroupDir {
            kernel: self.kernel.clone(),
            group,
        })))
    }
    fn rmdir(&self, _: &Caller<'_>, name: &[u8]) -> Result<()> {
        // A file of its own, by that name, is not a directory: the walk has seen to that.
        let k = self.kernel.upgrade().ok_or(ENODEV)?;
        k.cgroups.remove(&k, &self.group, name)
    }
}

struct CgroupFile {
    kernel: Weak<Kernel>,
    group: Arc<Cgroup>,
    kind: &'static Kind,
    /// Who opened it: numbers of processes are its.
    by: Option<Weak<Task>>,
    own: OpenState,
}

/// What an open file has for itself.
#[derive(Default)]
enum OpenState {
    #[default]
    Nothing,
    /// Of `memory.pressure`.
    Alarm(Arc<Alarm>),
    /// Of `memory.peak` and `memory.swap.peak`.
    Peak(PeakOf, Arc<OwnPeak>),
}

impl OpenState {
    fn of(name: &str) -> OpenState {
        match name {
            PRESSURE => OpenState::Alarm(Arc::default()),
            "memory.peak" => OpenState::Peak(PeakOf::Here, Arc::default()),
            "memory.swap.peak" => OpenState::Peak(PeakOf::Stored, Arc::default()),
            _ => OpenState::Nothing,
        }
    }
}

/// What `cgroup.subtree_control` is told to give, and to take back: the last word on each counts.
fn controls(text: &str) -> Result<[Controls; 2]> {
    let [mut on, mut off] = [Controls::empty(); 2];
    for word in text.split_ascii_whitespace() {
        let (sign, name) = word.split_at_checked(1).ok_or(EINVAL)?;
        let which = match name {
            "pids" => Controls::PIDS,
            "memory" => Controls::MEMORY,
            "cpu" => Controls::CPU,
            "cpuset" => Controls::CPUSET,
            _ => return Err(EINVAL),
        };
        match sign {
            "+" => (on, off) = (on | which, off - which),
            "-" => (on, off) = (on - which, off | which),
            _ => return Err(EINVAL),
        }
    }
    Ok([on, off])
}

fn number(text: &str) -> Result<u64> {
    if text == "max" {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| EINVAL)
}

/// A limit, as files tell it.
pub(super) fn limit(n: u64) -> String {
    if n == u64::MAX {
        "max\n".into()
    } else {
        format!("{n}\n")
    }
}

impl CgroupFile {
    fn opener(&self) -> Result<Arc<Task>> {
        self.by.as_ref().and_then(Weak::upgrade).ok_or(ESRCH)
    }
    fn set_alarm(&self, alarm: &Arc<Alarm>, file: &File, text: &str) -> Result<()> {
        let clas = self.group.clas().ok_or(ENODEV)?;
        let account = self.group.own_account().ok_or(ENODEV)?;
        alarm.set(Some((&clas, account)), file, text)?;
        self.group.add_alarm(alarm, account);
        Ok(())
    }
    /// Moves the process with this number, or its writer's own for 0.
    fn attach(&self, k: &Kernel, file: &File, text: &str) -> Result<()> {
        let n: i32 = text.parse().map_err(|_| EINVAL)?;
        let by = self.opener()?;
        let g = match n {
            0 => by.group.clone(),
            1.. => {
                let l = k.tasks.lock();
                let id = by.id_of(n)?;
                let t = l.task(id).map(|t| t.group.clone());
                t.or_else(|| l.group(id)).ok_or(ESRCH)?
            }
            _ => return Err(EINVAL),
        };
        let from = g.cgroup();
        may_move(&file.cred, &from, &self.group)?;
        if self.kind.name == "cgroup.threads" {
            // Only within the same domain, and here every group is its own.
            return if Arc::ptr_eq(&from, &self.group) {
                Ok(())
            } else {
                no_threads()
            };
        }
        k.cgroups.migrate(k, &g, &self.group)
    }
}

/// Whether a process may be moved (`cgroup_procs_write_permission`): the mover may write
/// `cgroup.procs` of the nearest group above both. (As mounted without `nsdelegate`: a cgroup
/// namespace hides, and forbids nothing.)
fn may_move(cred: &Credentials, from: &Cgroup, to: &Cgroup) -> Result<()> {
    let common = from.upwards().find(|c| to.is_below(c)).ok_or(ENOENT)?;
    let perm = common.perm("cgroup.procs", 0o644);
    generic_permission(perm, FileType::Regular, cred, Want::WRITE)
}

impl DynFile for CgroupFile {
    fn perm(&self) -> Perm {
        self.group.perm(self.kind.name, self.kind.mode)
    }
    fn set_attr(&self, a: &SetAttr) -> Result<()> {
        self.group.set_perm(self.kind.name, self.kind.mode, a)
    }
    fn notice(&self) -> Option<&Arc<Notice>> {
        Some(match &self.own {
            OpenState::Alarm(a) => a.notice(),
            _ => self.group.notices.of(self.kind.name),
        })
    }
    fn poll(&self, seen: &AtomicU64) -> Events {
        match &self.own {
            OpenState::Alarm(a) => a.poll(seen),
            _ => self.group.notices.of(self.kind.name).poll(seen),
        }
    }
    fn bound(&self, cx: &Caller<'_>) -> Result<Option<Arc<dyn DynFile>>> {
        Ok(Some(Arc::new(CgroupFile {
            kernel: self.kernel.clone(),
            group: self.group.clone(),
            kind: self.kind,
            by: task_of(cx.task).map(Arc::downgrade),
            own: OpenState::of(self.kind.name),
        })))
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        let k = self.kernel.upgrade().ok_or(ENODEV)?;
        let c = &self.group;
        if c.is_dead() {
            return Err(ENODEV);
        }
        if let OpenState::Peak(of, own) = &self.own
            && let Some(n) = c.memory().and_then(|m| m.peak_since(*of, own))
        {
            return Ok(format!("{n}\n").into_bytes());
        }
        if self.kind.place == MEMORY && !c.is_root() {
            return Ok(c.memory_text(self.kind.name)?.into_bytes());
        }
        let p = &c.pids;
        let text = match self.kind.name {
            "cpu.stat" => c.cpu_stat(&k),
            name if c.is_root() && !name.starts_with("cgroup.") => {
                c.container_file(&k, &*self.opener()?, name)
            }
            "cgroup.controllers" => c.controllers().names(),
            "cgroup.subtree_control" => c.inner.lock().controls.names(),
            "cgroup.events" => format!(
                "populated {}\nfrozen {}\n",
                u8::from(c.is_populated()),
                u8::from(Hierarchy::is_frozen(&k, c))
            ),
            "cgroup.freeze" => format!("{}\n", u8::from(c.inner.lock().freeze)),
            "cgroup.max.depth" => limit(c.inner.lock().max_depth),
            "cgroup.max.descendants" => limit(c.inner.lock().max_descendants),
            "cgroup.procs" | "cgroup.threads" => {
                let ns = self.opener()?.pid.ns.clone();
                let mut numbers: Vec<i32> = Vec::new();
                for g in Hierarchy::procs(&k, c) {
                    if self.kind.name == "cgroup.procs" {
                        numbers.push(g.pid.seen_in(&ns));
                    } else {
                        let threads = k.tasks.lock().threads(g.tgid);
                        numbers.extend(threads.iter().map(|t| t.pid.seen_in(&ns)));
                    }
                }
                numbers.iter().map(|n| format!("{n}\n")).collect()
            }
            "cgroup.stat" => format!(
                "nr_descendants {}\nnr_dying_descendants 0\n",
                c.descendants()
            ),
            "cgroup.type" => "domain\n".into(),
            // The host's controllers do not act on groups below the container's root.
            "cpu.max" => "max 100000\n".into(),
            "cpu.weight" => format!("{}\n", c.weight.load(Ordering::Relaxed)),
            "cpuset.cpus" | "cpuset.mems" => "\n".into(),
            name if self.kind.place == CPUSET => {
                let root = c.upwards().last().unwrap_or(c);
                root.container_file(&k, &*self.opener()?, name)
            }
            "pids.current" => format!("{}\n", p.current.load(Ordering::Relaxed)),
            "pids.peak" => format!("{}\n", p.peak.load(Ordering::Relaxed)),
            "pids.max" => match p.max.load(Ordering::Relaxed) {
                NO_LIMIT => "max\n".into(),
                n => format!("{n}\n"),
            },
            "pids.events" => format!("max {}\n", p.events.load(Ordering::Relaxed)),
            "pids.events.local" => format!("max {}\n", p.own_events.load(Ordering::Relaxed)),
            _ => String::new(),
        };
        Ok(text.into_bytes())
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> Result<usize> {
        let k = self.kernel.upgrade().ok_or(ENODEV)?;
        let c = &self.group;
        if c.is_dead() {
            return Err(ENODEV);
        }
        let text = crate::fs::written(data)?;
        if let OpenState::Alarm(alarm) = &self.own {
            self.set_alarm(alarm, file, text)?;
            return Ok(data.len());
        }
        if let OpenState::Peak(of, own) = &self.own
            && !c.is_root()
        {
            c.memory().ok_or(ENODEV)?.restart_peak(*of, own);
            return Ok(data.len());
        }
        let text = text.trim();
        match self.kind.name {
            // The values are the host's.
            name if c.is_root() && !name.starts_with("cgroup.") => return Err(EPERM),
            name if self.kind.place == MEMORY => {
                c.write_memory(&k, (&*self.opener()?, file), name, text)?;
            }
            "cgroup.procs" | "cgroup.threads" => self.attach(&k, file, text)?,
            "cgroup.kill" => match text {
                "1" => Hierarchy::kill(&k, c),
                _ => {
                    return Err(if text.parse::<i64>().is_ok() {
                        ERANGE
                    } else {
                        EINVAL
                    });
                }
            },
            "cgroup.freeze" => match text {
                "0" => k.cgroups.freeze(&k, c, false),
                "1" => k.cgroups.freeze(&k, c, true),
                _ => {
                    return Err(if text.parse::<i64>().is_ok() {
                        ERANGE
                    } else {
                        EINVAL
                    });
                }
            },
            "cgroup.type" if text == "threaded" => return no_threads(),
            // Only what is so anyway.
            "cpu.max" if text == "max" || text == "max 100000" => {}
            "cpuset.cpus" | "cpuset.mems" if text.is_empty() => {}
            "cpu.weight" => match text.parse().map_err(|_| EINVAL)? {
                n @ 1..=10_000 => c.weight.store(n, Ordering::Relaxed),
                _ => return Err(ERANGE),
            },
            "cpu.max" | "cpuset.cpus" | "cpuset.mems" => return Err(EOPNOTSUPP),
            "cgroup.max.depth" => c.inner.lock().max_depth = number(text)?,
            "cgroup.max.descendants" => c.inner.lock().max_descendants = number(text)?,
            "cgroup.subtree_control" => {
                let [on, off] = controls(text)?;
                k.cgroups.set_controls(&k, c, on, off)?;
            }
            "pids.max" => {
                let n = match number(text)? {
                    u64::MAX => NO_LIMIT,
                    n if n <= PID_MAX as u64 => n as i64,
                    _ => return Err(EINVAL),
                };
                c.pids.max.store(n, Ordering::Relaxed);
            }
            _ => return Err(EINVAL),
        }
        Ok(data.len())
    }
}

/// The group that `CLONE_INTO_CGROUP` names, as far as the caller may put a child there.
pub fn target(t: &Task, f: &File) -> Result<Arc<Cgroup>> {
    let to = CgroupDir::of(f).ok_or(abi::errno::EBADF)?;
    if to.is_dead() {
        return Err(ENOENT);
    }
    may_move(&t.cred(), &t.group.cgroup(), &to)?;
    to.may_hold()?;
    Ok(to)
}
