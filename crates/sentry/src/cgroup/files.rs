//! The files of a control group.

use super::memory::OwnPeak;
use super::{Cgroup, Controls, Hierarchy, NO_LIMIT, Notices, no_threads};
use crate::fs::made_by::MadeBy;
use crate::fs::pressure::Alarm;
use crate::task::ThreadGroup;
use crate::task::list::PID_MAX;
use crate::task::task_of;
use crate::{Kernel, Task};
use abi::Result;
use abi::errno::{EINVAL, ENODEV, ENOENT, EOPNOTSUPP, EPERM, ERANGE, ESRCH};
use clas::PeakOf;
use std::any::Any;
use std::fmt::Display;
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

    fn node(&self, group: Arc<Cgroup>) -> DynNode {
        let kernel = self.kernel.clone();
        DynNode::Dir(Arc::new(CgroupDir { kernel, group }))
    }
}

/// A kind of file.
struct Kind {
    name: &'static str,
    mode: u32,
    place: Place,
    /// (At a container's root, files of controllers are read by [`CgroupFile::container_file`].)
    read: fn(&CgroupFile, &Kernel) -> Result<String>,
    /// With the text, space around it taken away.
    write: fn(&CgroupFile, &Kernel, &File, &str) -> Result<()>,
    /// What tells when it changes.
    notice: fn(&Notices) -> &Arc<Notice>,
    opened: fn() -> OpenState,
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

/// The name of the directory itself, of which files have none.
const DIRECTORY: &str = "";

const fn kind(name: &'static str, mode: u32, place: Place) -> Kind {
    Kind {
        name,
        mode,
        place,
        read: |_, _| Ok(String::new()),
        write: |_, _, _, _| Err(EINVAL),
        notice: |n| &n.silent,
        opened: || OpenState::Nothing,
    }
}

const fn memory(name: &'static str, mode: u32) -> Kind {
    kind(name, mode, MEMORY)
        .read(|f, _| f.group.memory_text(f.kind.name))
        .write(|f, k, file, text| {
            let by = (&*f.opener()?, file);
            f.group.write_memory(k, by, f.kind.name, text)
        })
}

const fn cpuset(name: &'static str) -> Kind {
    kind(name, 0o644, CPUSET)
        .read(|_, _| Ok("\n".into()))
        .write(|_, _, _, text| text.is_empty().then_some(()).ok_or(EOPNOTSUPP))
}

const KINDS: &[Kind] = &[
    kind("cgroup.controllers", 0o444, Place::Everywhere)
        .read(|f, _| Ok(f.group.controllers().names())),
    kind("cgroup.events", 0o444, Place::NotRoot)
        .read(|f, k| {
            let populated = u8::from(f.group.is_populated());
            let frozen = u8::from(Hierarchy::is_frozen(k, &f.group));
            Ok(format!("populated {populated}\nfrozen {frozen}\n"))
        })
        .notice(|n| &n.state),
    kind("cgroup.freeze", 0o644, Place::NotRoot)
        .read(|f, _| Ok(line(u8::from(f.group.inner.lock().freeze))))
        .write(|f, k, _, text| {
            k.cgroups.freeze(k, &f.group, switch(text)?);
            Ok(())
        }),
    kind("cgroup.kill", 0o200, Place::NotRoot).write(|f, k, _, text| {
        switch(text)?.then_some(()).ok_or(ERANGE)?;
        Hierarchy::kill(k, &f.group);
        Ok(())
    }),
    kind("cgroup.max.depth", 0o644, Place::Everywhere)
        .read(|f, _| Ok(limit(f.group.inner.lock().max_depth)))
        .write(|f, _, _, text| set(&mut f.group.inner.lock().max_depth, text)),
    kind("cgroup.max.descendants", 0o644, Place::Everywhere)
        .read(|f, _| Ok(limit(f.group.inner.lock().max_descendants)))
        .write(|f, _, _, text| set(&mut f.group.inner.lock().max_descendants, text)),
    kind("cgroup.procs", 0o644, Place::Everywhere)
        .read(|f, k| {
            let ns = f.opener()?.pid.ns.clone();
            let all = Hierarchy::procs(k, &f.group);
            Ok(all.iter().map(|g| line(g.pid.seen_in(&ns))).collect())
        })
        .write(|f, k, file, text| k.cgroups.migrate(k, &f.movable(k, file, text)?, &f.group)),
    kind("cgroup.stat", 0o444, Place::Everywhere).read(|f, _| {
        let n = f.group.descendants();
        Ok(format!("nr_descendants {n}\nnr_dying_descendants 0\n"))
    }),
    kind("cgroup.subtree_control", 0o644, Place::Everywhere)
        .read(|f, _| Ok(f.group.inner.lock().controls.names()))
        .write(|f, k, _, text| {
            let [on, off] = controls(text)?;
            k.cgroups.set_controls(k, &f.group, on, off)
        }),
    kind("cgroup.threads", 0o644, Place::Everywhere)
        .read(|f, k| {
            let ns = f.opener()?.pid.ns.clone();
            let all = Hierarchy::procs(k, &f.group);
            let threads = all.iter().flat_map(|g| k.tasks.lock().threads(g.tgid));
            Ok(threads.map(|t| line(t.pid.seen_in(&ns))).collect())
        })
        .write(|f, k, file, text| match f.movable(k, file, text)? {
            // Only within the same domain, and here every group is its own.
            g if Arc::ptr_eq(&g.cgroup(), &f.group) => Ok(()),
            _ => no_threads(),
        }),
    kind("cgroup.type", 0o644, Place::NotRoot)
        .read(|_, _| Ok("domain\n".into()))
        .write(|_, _, _, text| match text {
            "threaded" => no_threads(),
            _ => Err(EINVAL),
        }),
    // The host's controllers do not act on groups below the container's root: only what is so
    // anyway can be written.
    kind("cpu.max", 0o644, CPU)
        .read(|_, _| Ok("max 100000\n".into()))
        .write(|_, _, _, text| match text {
            "max" | "max 100000" => Ok(()),
            _ => Err(EOPNOTSUPP),
        }),
    kind("cpu.stat", 0o444, Place::Everywhere).read(|f, k| Ok(f.group.cpu_stat(k))),
    kind("cpu.weight", 0o644, CPU)
        .read(|f, _| Ok(line(f.group.weight.load(Ordering::Relaxed))))
        .write(|f, _, _, text| {
            let n = text.parse().map_err(|_| EINVAL)?;
            let n = Some(n).filter(|n| (1..=10_000).contains(n));
            f.group.weight.store(n.ok_or(ERANGE)?, Ordering::Relaxed);
            Ok(())
        }),
    cpuset("cpuset.cpus"),
    kind("cpuset.cpus.effective", 0o444, CPUSET).read(|f, k| f.container_file(k)),
    cpuset("cpuset.mems"),
    kind("cpuset.mems.effective", 0o444, CPUSET).read(|f, k| f.container_file(k)),
    memory("memory.current", 0o444),
    memory("memory.events", 0o444).notice(|n| &n.memory),
    memory("memory.events.local", 0o444).notice(|n| &n.own_memory),
    memory("memory.high", 0o644),
    memory("memory.low", 0o644),
    memory("memory.max", 0o644),
    memory("memory.min", 0o644),
    memory("memory.oom.group", 0o644),
    memory("memory.peak", 0o644).opened(|| OpenState::Peak(PeakOf::Here, Arc::default())),
    memory("memory.pressure", 0o644).opened(|| OpenState::Alarm(Arc::default())),
    memory("memory.reclaim", 0o200),
    memory("memory.stat", 0o444),
    memory("memory.swap.current", 0o444),
    memory("memory.swap.events", 0o444).notice(|n| &n.swap),
    memory("memory.swap.high", 0o644),
    memory("memory.swap.max", 0o644),
    memory("memory.swap.peak", 0o644).opened(|| OpenState::Peak(PeakOf::Stored, Arc::default())),
    kind("pids.current", 0o444, PIDS)
        .read(|f, _| Ok(line(f.group.pids.current.load(Ordering::Relaxed)))),
    kind("pids.events", 0o444, PIDS)
        .read(|f, _| Ok(refused(&f.group.pids.events)))
        .notice(|n| &n.pids),
    kind("pids.events.local", 0o444, PIDS)
        .read(|f, _| Ok(refused(&f.group.pids.own_events)))
        .notice(|n| &n.own_pids),
    kind("pids.max", 0o644, PIDS)
        .read(|f, _| match f.group.pids.max.load(Ordering::Relaxed) {
            NO_LIMIT => Ok("max\n".into()),
            n => Ok(line(n)),
        })
        .write(|f, _, _, text| {
            let n = match number(text)? {
                u64::MAX => NO_LIMIT,
                n if n <= PID_MAX as u64 => n as i64,
                _ => return Err(EINVAL),
            };
            f.group.pids.max.store(n, Ordering::Relaxed);
            Ok(())
        }),
    kind("pids.peak", 0o444, PIDS).read(|f, _| Ok(line(f.group.pids.peak.load(Ordering::Relaxed)))),
];

impl Kind {
    const fn read(self, read: fn(&CgroupFile, &Kernel) -> Result<String>) -> Kind {
        Kind { read, ..self }
    }
    const fn write(self, write: fn(&CgroupFile, &Kernel, &File, &str) -> Result<()>) -> Kind {
        Kind { write, ..self }
    }
    const fn notice(self, notice: fn(&Notices) -> &Arc<Notice>) -> Kind {
        Kind { notice, ..self }
    }
    const fn opened(self, opened: fn() -> OpenState) -> Kind {
        Kind { opened, ..self }
    }
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
        Ok(self.node(self.group.child(name).ok_or(ENOENT)?))
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
        let made = k.cgroups.make(&self.group, name, uid, gid)?;
        Ok(self.node(made))
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
enum OpenState {
    Nothing,
    /// Of `memory.pressure`.
    Alarm(Arc<Alarm>),
    /// Of `memory.peak` and `memory.swap.peak`.
    Peak(PeakOf, Arc<OwnPeak>),
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

fn set(n: &mut u64, text: &str) -> Result<()> {
    *n = number(text)?;
    Ok(())
}

fn switch(text: &str) -> Result<bool> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ if text.parse::<i64>().is_ok() => Err(ERANGE),
        _ => Err(EINVAL),
    }
}

fn line(n: impl Display) -> String {
    format!("{n}\n")
}

fn refused(n: &AtomicU64) -> String {
    format!("max {}\n", n.load(Ordering::Relaxed))
}

/// A limit, as files tell it.
pub(super) fn limit(n: u64) -> String {
    match n {
        u64::MAX => "max\n".into(),
        _ => line(n),
    }
}

impl CgroupFile {
    fn opener(&self) -> Result<Arc<Task>> {
        self.by.as_ref().and_then(Weak::upgrade).ok_or(ESRCH)
    }
    /// `ENODEV` once the group is gone.
    fn kernel(&self) -> Result<Arc<Kernel>> {
        let k = self.kernel.upgrade().filter(|_| !self.group.is_dead());
        k.ok_or(ENODEV)
    }
    fn set_alarm(&self, alarm: &Arc<Alarm>, file: &File, text: &str) -> Result<()> {
        let clas = self.group.clas().ok_or(ENODEV)?;
        let account = self.group.own_account().ok_or(ENODEV)?;
        alarm.set(Some((&clas, account)), file, text)?;
        self.group.add_alarm(alarm, account);
        Ok(())
    }
    /// The text that the root of the container's tree has.
    fn container_file(&self, k: &Kernel) -> Result<String> {
        let root = self.group.upwards().last().unwrap_or(&self.group);
        Ok(root.container_file(k, &*self.opener()?, self.kind.name))
    }
    /// The process with this number, or the writer's own for 0, if it may be moved here.
    fn movable(&self, k: &Kernel, file: &File, text: &str) -> Result<Arc<ThreadGroup>> {
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
        may_move(&file.cred, &g.cgroup(), &self.group)?;
        Ok(g)
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
            _ => (self.kind.notice)(&self.group.notices),
        })
    }
    fn poll(&self, seen: &AtomicU64) -> Events {
        match &self.own {
            OpenState::Alarm(a) => a.poll(seen),
            _ => (self.kind.notice)(&self.group.notices).poll(seen),
        }
    }
    fn bound(&self, cx: &Caller<'_>) -> Result<Option<Arc<dyn DynFile>>> {
        Ok(Some(Arc::new(CgroupFile {
            kernel: self.kernel.clone(),
            group: self.group.clone(),
            kind: self.kind,
            by: task_of(cx.task).map(Arc::downgrade),
            own: (self.kind.opened)(),
        })))
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        let k = self.kernel()?;
        if let OpenState::Peak(of, own) = &self.own
            && let Some(n) = self.group.memory().and_then(|m| m.peak_since(*of, own))
        {
            return Ok(line(n).into_bytes());
        }
        let text = match self.kind.place {
            Place::RootAnd(_) if self.group.is_root() => self.container_file(&k)?,
            _ => (self.kind.read)(self, &k)?,
        };
        Ok(text.into_bytes())
    }
    fn write(&self, file: &File, data: &[u8], _: u64) -> Result<usize> {
        let (k, c) = (self.kernel()?, &self.group);
        let text = crate::fs::written(data)?;
        match &self.own {
            OpenState::Alarm(alarm) => self.set_alarm(alarm, file, text)?,
            // The values are the host's.
            _ if c.is_root() && !self.kind.name.starts_with("cgroup.") => return Err(EPERM),
            OpenState::Peak(of, own) => c.memory().ok_or(ENODEV)?.restart_peak(*of, own),
            OpenState::Nothing => (self.kind.write)(self, &k, file, text.trim())?,
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
