//! `/proc/PID` and `/proc/PID/task/TID`: the directories, and who their files are about.

mod fds;
mod links;
mod map_query;
mod maps;
mod mem;
mod pagemap;
mod status;
mod texts;

pub use texts::command_line;

use super::global;
use super::options::{ProcMount, Target};
use crate::ns::pid::PidNs;
use crate::task::access::{self, By};
use crate::task::list::Ended;
use crate::task::task_of;
use crate::{Kernel, Task, ThreadGroup};
use abi::errno::{EACCES, ENOENT, EPERM, ESRCH};
use abi::{Errno, Result};
use fds::FdDir;
use links::{NsDir, PlaceLink};
use mem::MemNode;
use pagemap::PageMapNode;
use std::sync::{Arc, Weak};
use texts::{About, FILES};
use vfs::file::File;
use vfs::fs::dynamic::{DynDir, DynEntry, DynNode, number};
use vfs::mode::{Want, generic_permission};
use vfs::userns::UserNs;
use vfs::{Caller, FileType, Perm};

/// A process's or a thread's directory.
pub struct PidDir {
    me: Subject,
    kind: Kind,
    /// Says who may enter; a thread's directory is within one that does.
    mount: Option<Arc<ProcMount>>,
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
    /// The memory as it was when the file was opened, where the file is about memory.
    mm: Option<Weak<mm::Mm>>,
    /// Whether the reader may look into the process.
    shows_all: bool,
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
    /// What is told of the task, or of the process after its end.
    fn told(&self) -> Result<Arc<Ended>> {
        if let Some(t) = self.task().ok().or_else(|| self.task.upgrade()) {
            return Ok(Ended::new(&t));
        }
        let k = self.kernel()?;
        let l = k.tasks.lock();
        l.process(self.tgid)
            .and_then(|p| p.ended.clone())
            .ok_or(ESRCH)
    }
    /// What `fstat` tells of an open file of the process's that is no text.
    fn open_stat(&self, mode: u32) -> vfs::Stat {
        let p = self.perm(mode);
        vfs::Stat {
            mode: p.mode,
            uid: p.uid,
            gid: p.gid,
            nlink: 1,
            blksize: 1024,
            ..vfs::Stat::default()
        }
    }
    /// The owner that its files have now (`task_dump_owner`): one's own processes' are root's where
    /// one may not look into them. A directory that shows nothing secret always tells the user.
    fn perm(&self, mode: u32) -> Perm {
        let Ok(t) = self.task() else {
            let uid = if mode == 0o555 { self.zombie_uid() } else { 0 };
            return Perm { mode, uid, gid: 0 };
        };
        let mm = t.mm();
        if mode == 0o555 || mm.privacy().is_dumpable() {
            let c = t.cred();
            let (uid, gid) = (c.euid, c.egid);
            return Perm { mode, uid, gid };
        }
        let ns = mm.privacy().user_ns();
        Perm {
            mode,
            uid: ns.uid_from(0).unwrap_or(0),
            gid: ns.gid_from(0).unwrap_or(0),
        }
    }
    fn zombie_uid(&self) -> u32 {
        self.kernel().map_or(0, |k| {
            let l = k.tasks.lock();
            l.process(self.tgid).map_or(0, |p| p.uid())
        })
    }
    /// Whether the caller is of the process itself.
    fn is_own(&self, cx: &Caller<'_>) -> bool {
        task_of(cx.task).is_some_and(|t| t.group.tgid == self.tgid)
    }
    /// What `read` gives of the task, if the caller may look inside; `EACCES`.
    fn guarded<T>(&self, cx: &Caller<'_>, read: impl FnOnce(&Task) -> Result<T>) -> Result<T> {
        let (caller, task) = (task_of(cx.task).ok_or(EACCES)?, self.task()?);
        access::guarded(caller, &task, By::Fs, || read(&task)).map_err(no_access)
    }
    fn check(&self, cx: &Caller<'_>) -> Result<()> {
        self.guarded(cx, |_| Ok(()))
    }
    /// The memory that a file is to be about for as long as it is open (`proc_mem_open`).
    fn open_memory(&self, cx: &Caller<'_>) -> Result<Weak<mm::Mm>> {
        let (caller, task) = (task_of(cx.task).ok_or(EACCES)?, self.task()?);
        let mm = access::memory(caller, &task, By::Fs).map_err(no_access)?;
        Ok(Arc::downgrade(&mm))
    }
    /// The memory that an open file is about, while anybody runs in it.
    fn pinned(&self) -> Option<Arc<mm::Mm>> {
        self.mm.as_ref()?.upgrade()
    }
    /// Whether whoever opened a file may look inside now.
    fn shows_all(&self, file: &File) -> bool {
        let (reader, task) = (self.reader.upgrade(), self.task());
        task.is_ok_and(|t| {
            reader.is_some_and(|r| Arc::ptr_eq(&r.group, &t.group))
                || access::may_access_as(&file.cred, &t, By::Fs).is_ok()
        })
    }
}

/// What /proc says where ptrace(2) says `EPERM`.
fn no_access(e: Errno) -> Errno {
    if e == EPERM { EACCES } else { e }
}

impl PidDir {
    #[must_use]
    pub fn process(
        k: &Arc<Kernel>,
        ns: &Arc<PidNs>,
        g: &Arc<ThreadGroup>,
        task: Option<Arc<Task>>,
        mount: Arc<ProcMount>,
    ) -> PidDir {
        PidDir {
            me: Self::subject(k, ns, g, task),
            kind: Kind::Process,
            mount: Some(mount),
        }
    }
    /// The process, where this is its directory, not that of a thread (`tgid_pidfd_to_pid`).
    #[must_use]
    pub fn group(&self) -> Option<Weak<ThreadGroup>> {
        (self.kind == Kind::Process).then(|| self.me.group.clone())
    }
    fn subject(
        k: &Arc<Kernel>,
        ns: &Arc<PidNs>,
        g: &Arc<ThreadGroup>,
        task: Option<Arc<Task>>,
    ) -> Subject {
        Subject {
            kernel: Arc::downgrade(k),
            ns: ns.clone(),
            group: Arc::downgrade(g),
            task: task.as_ref().map(Arc::downgrade).unwrap_or_default(),
            tgid: g.tgid,
            tid: task.map_or(g.tgid, |t| t.tid),
            mm: None,
            shows_all: false,
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
            Kind::Thread if self.me.tid != self.me.tgid => l.task(self.me.tid).is_some(),
            // The main thread is there until the process is waited for.
            Kind::Process | Kind::Thread => l.process(self.me.tgid).is_some(),
        }
    }
    fn permission(&self, cx: &Caller<'_>, want: Want) -> Result<()> {
        if let (Some(m), Ok(k)) = (&self.mount, self.me.kernel())
            && !m.opens(cx, || Target::new(&k, self.me.tgid, self.me.tid))
        {
            return Err(EPERM);
        }
        generic_permission(self.perm(), FileType::Directory, cx.cred, want)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        if let Some(entry) = FILES.iter().find(|f| f.0.as_bytes() == name) {
            return Ok(DynNode::File(Arc::new(About {
                me: self.me.clone(),
                kind: self.kind,
                entry,
                text: None,
                notice: None,
            })));
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
            b"pagemap" => DynNode::File(Arc::new(PageMapNode(self.me.clone()))),
            b"net" => {
                let t = self.me.task()?;
                DynNode::Dir(Arc::new(global::net(&t.ns().net, t.kernel.cpus)))
            }
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
            .chain(["mem", "pagemap"].map(|n| DynEntry::new(n, FileType::Regular)))
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
        let tid = number(name).ok_or(ENOENT)?;
        let k = self.0.kernel()?;
        let tid = self.0.ns.id_of(tid).ok_or(ENOENT)?;
        let task = k.tasks.lock().task(tid);
        let task = task.filter(|t| t.group.tgid == self.0.tgid);
        // The main thread is there until the process is waited for.
        if task.is_none() && tid != self.0.tgid {
            return Err(ENOENT);
        }
        let me = PidDir::subject(&k, &self.0.ns, &self.0.group()?, task);
        Ok(DynNode::Dir(Arc::new(PidDir {
            me,
            kind: Kind::Thread,
            mount: None,
        })))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let k = self.0.kernel()?;
        let threads = k.tasks.lock().threads(self.0.tgid);
        let others = threads.iter().filter(|t| t.tid != self.0.tgid);
        Ok(std::iter::once(self.0.group()?.pid.clone())
            .chain(others.map(|t| t.pid.clone()))
            .map(|pid| DynEntry::new(pid.seen_in(&self.0.ns).to_string(), FileType::Directory))
            .collect())
    }
    fn subdirs(&self) -> u32 {
        self.0
            .kernel()
            .map_or(0, |k| k.tasks.lock().thread_count(self.0.tgid) as u32)
    }
}
