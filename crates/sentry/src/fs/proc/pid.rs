//! `/proc/PID` and `/proc/PID/task/TID`: the directories, and who their files are about.

mod fds;
mod links;
mod maps;
mod mem;
mod status;
mod texts;

pub use texts::command_line;

use super::global;
use crate::fs::terminals::task_of;
use crate::ns::pid::PidNs;
use crate::{Kernel, Task, ThreadGroup};
use abi::Result;
use abi::errno::{EACCES, ENOENT, ESRCH};
use fds::FdDir;
use links::{NsDir, PlaceLink};
use mem::MemNode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use texts::{About, FILES};
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynNode};
use vfs::userns::UserNs;
use vfs::{Caller, Caps, FileType, Perm};

/// A process's or a thread's directory.
pub struct PidDir {
    me: Subject,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Process,
    Thread,
}

/// Who a file is about. Weak: an open file keeps nobody alive.
#[derive(Clone)]
pub struct Subject {
    kernel: Weak<Kernel>,
    /// Whose numbers this /proc shows.
    ns: Arc<PidNs>,
    group: Weak<ThreadGroup>,
    task: Weak<Task>,
    tgid: i32,
    tid: i32,
    uid: u32,
    gid: u32,
    /// Who reads: whose numbers are shown.
    viewer: UserNs,
    reader: Weak<Task>,
}

impl Subject {
    fn kernel(&self) -> Result<Arc<Kernel>> {
        self.kernel.upgrade().ok_or(ESRCH)
    }
    fn group(&self) -> Result<Arc<ThreadGroup>> {
        self.group.upgrade().ok_or(ESRCH)
    }
    /// A live thread: the one meant, or any of the process.
    fn task(&self) -> Result<Arc<Task>> {
        let k = self.kernel()?;
        let l = k.tasks.lock();
        l.task(self.tid)
            .or_else(|| l.some_thread(self.tgid))
            .ok_or(ESRCH)
    }
    fn perm(&self, mode: u32) -> Perm {
        Perm {
            mode,
            uid: self.uid,
            gid: self.gid,
        }
    }
    /// Whether the caller may look inside (`ptrace_may_access`).
    fn may_inspect(&self, caller: &Task) -> Result<()> {
        if caller.group.tgid == self.tgid {
            return Ok(());
        }
        may_inspect(caller, &*self.task()?)
    }
    fn check(&self, cx: &Caller<'_>) -> Result<()> {
        self.may_inspect(task_of(cx.task).ok_or(EACCES)?)
    }
}

/// Whether a task may look inside another (`ptrace_may_access` with PTRACE_MODE_READ_FSCREDS).
pub fn may_inspect(caller: &Task, other: &Task) -> Result<()> {
    if Arc::ptr_eq(&caller.group, &other.group) {
        return Ok(());
    }
    let (c, t) = (caller.cred(), other.cred());
    let same = [t.uid, t.euid, t.suid].iter().all(|u| *u == c.fsuid)
        && [t.gid, t.egid, t.sgid].iter().all(|g| *g == c.fsgid);
    let dumpable = other.group.dumpable.load(Ordering::Relaxed) == 1;
    // Who has more rights, or has them elsewhere, is not looked into by its user either (`cap_ptrace_access_check`).
    let no_more = c.user_ns == t.user_ns && c.effective.contains(t.permitted);
    if same && dumpable && no_more || c.has_in(&t.user_ns, Caps::SYS_PTRACE) {
        Ok(())
    } else {
        Err(EACCES)
    }
}

impl PidDir {
    #[must_use]
    pub fn process(
        k: &Arc<Kernel>,
        ns: &Arc<PidNs>,
        g: &Arc<ThreadGroup>,
        task: Option<Arc<Task>>,
    ) -> PidDir {
        PidDir {
            me: Self::subject(k, ns, g, task),
            kind: Kind::Process,
        }
    }
    fn subject(
        k: &Arc<Kernel>,
        ns: &Arc<PidNs>,
        g: &Arc<ThreadGroup>,
        task: Option<Arc<Task>>,
    ) -> Subject {
        let cred = task.as_ref().map(|t| t.cred());
        let dumpable = g.dumpable.load(Ordering::Relaxed) == 1;
        let owner = cred.filter(|_| dumpable);
        Subject {
            kernel: Arc::downgrade(k),
            ns: ns.clone(),
            group: Arc::downgrade(g),
            task: task.as_ref().map(Arc::downgrade).unwrap_or_default(),
            tgid: g.tgid,
            tid: task.map_or(g.tgid, |t| t.tid),
            uid: owner.as_ref().map_or(0, |c| c.euid),
            gid: owner.as_ref().map_or(0, |c| c.egid),
            viewer: UserNs::default(),
            reader: Weak::new(),
        }
    }
}

const LINKS: &[&str] = &["cwd", "exe", "root"];
const DIRS: &[&str] = &["fd", "fdinfo", "net", "ns", "task"];

impl DynDir for PidDir {
    fn perm(&self) -> Perm {
        self.me.perm(0o555)
    }
    fn identity(&self) -> u64 {
        self.me.tgid as u64
    }
    fn alive(&self) -> bool {
        let Ok(k) = self.me.kernel() else {
            return false;
        };
        let l = k.tasks.lock();
        match self.kind {
            Kind::Process => l.process(self.me.tgid).is_some(),
            Kind::Thread => l.task(self.me.tid).is_some(),
        }
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        if let Some((name, mode, private, make)) = FILES.iter().find(|f| f.0.as_bytes() == name) {
            let f = About {
                me: self.me.clone(),
                name,
                mode: *mode,
                make: *make,
                private: *private,
            };
            return Ok(DynNode::File(Arc::new(f)));
        }
        Ok(match name {
            b"cwd" | b"exe" | b"root" => DynNode::Link(Arc::new(PlaceLink {
                me: self.me.clone(),
                what: name[0],
            })),
            b"fd" => DynNode::Dir(Arc::new(FdDir {
                me: self.me.clone(),
                info: false,
            })),
            b"fdinfo" => DynNode::Dir(Arc::new(FdDir {
                me: self.me.clone(),
                info: true,
            })),
            b"mem" => DynNode::File(Arc::new(MemNode(self.me.clone()))),
            b"net" => DynNode::Dir(Arc::new(global::net(&self.me.task()?.ns().net))),
            b"ns" => DynNode::Dir(Arc::new(NsDir(self.me.clone()))),
            b"task" if self.kind == Kind::Process => {
                DynNode::Dir(Arc::new(TaskDir(self.me.clone())))
            }
            _ => return Err(ENOENT),
        })
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let dirs = DIRS
            .iter()
            .filter(|d| self.kind == Kind::Process || **d != "task");
        Ok(FILES
            .iter()
            .map(|f| DynEntry::new(f.0, FileType::Regular))
            .chain([DynEntry::new("mem", FileType::Regular)])
            .chain(LINKS.iter().map(|n| DynEntry::new(*n, FileType::Symlink)))
            .chain(dirs.map(|n| DynEntry::new(*n, FileType::Directory)))
            .collect())
    }
}

struct TaskDir(Subject);

impl DynDir for TaskDir {
    fn perm(&self) -> Perm {
        self.0.perm(0o555)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let tid: i32 = std::str::from_utf8(name)
            .ok()
            .and_then(|s| s.parse().ok())
            .ok_or(ENOENT)?;
        let k = self.0.kernel()?;
        let t = k
            .tasks
            .lock()
            .task(self.0.ns.id_of(tid).ok_or(ENOENT)?)
            .filter(|t| t.group.tgid == self.0.tgid)
            .ok_or(ENOENT)?;
        let me = PidDir::subject(&k, &self.0.ns, &t.group.clone(), Some(t));
        Ok(DynNode::Dir(Arc::new(PidDir {
            me,
            kind: Kind::Thread,
        })))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let k = self.0.kernel()?;
        let threads = k.tasks.lock().threads(self.0.tgid);
        Ok(threads
            .iter()
            .map(|t| DynEntry::new(t.pid.seen_in(&self.0.ns).to_string(), FileType::Directory))
            .collect())
    }
    fn subdirs(&self) -> u32 {
        self.0
            .kernel()
            .map_or(0, |k| k.tasks.lock().threads(self.0.tgid).len() as u32)
    }
}
