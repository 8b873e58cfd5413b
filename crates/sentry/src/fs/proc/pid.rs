//! `/proc/PID` and `/proc/PID/task/TID`.

use super::global;
use crate::fs::terminals::task_of;
use crate::ns::nsfs::{NsFile, NsRef};
use crate::ns::pid::PidNs;
use crate::task::limits;
use crate::{Kernel, Task, ThreadGroup};
use abi::Result;
use abi::errno::{EACCES, EINVAL, EIO, ENOENT, ENXIO, EPERM, ESRCH};
use std::any::Any;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::file::{File, FileOps};
use vfs::fs::dynamic::{self, DynDir, DynEntry, DynFile, DynLink, DynNode};
use vfs::userns::{IdKind, UserNs};
use vfs::{Caller, Caps, FileType, Path, Perm, Sink, Source, Stat};

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

type Make = fn(&Subject) -> Result<Vec<u8>>;

/// A text about a process.
struct About {
    me: Subject,
    name: &'static str,
    mode: u32,
    make: Make,
    /// Only for those who may look inside.
    private: bool,
}

impl DynFile for About {
    fn perm(&self) -> Perm {
        self.me.perm(self.mode)
    }
    fn bound(&self, cx: &Caller<'_>) -> Option<Arc<dyn DynFile>> {
        let reader = task_of(cx.task).map(Arc::downgrade).unwrap_or_default();
        Some(Arc::new(About {
            me: Subject {
                reader,
                ..self.me.clone()
            },
            ..*self
        }))
    }
    fn generate(&self, file: &File) -> Result<Vec<u8>> {
        let me = Subject {
            viewer: file.cred.user_ns.clone(),
            ..self.me.clone()
        };
        (self.make)(&me)
    }
    fn write(&self, file: &File, data: &[u8], offset: u64) -> Result<usize> {
        let map = match self.name {
            "uid_map" => Some(IdKind::User),
            "gid_map" => Some(IdKind::Group),
            "projid_map" => Some(IdKind::Project),
            _ => None,
        };
        if map.is_some() || self.name == "setgroups" {
            if offset != 0 {
                return Err(EINVAL);
            }
            let ns = self.me.task()?.cred().user_ns.clone();
            match map {
                Some(kind) => ns.set_map(kind, &file.cred, data)?,
                None if !file.cred.has_in(&ns, Caps::SYS_ADMIN) => return Err(EPERM),
                None if data.len() >= 8 => return Err(EINVAL),
                None => ns.set_setgroups(data)?,
            }
            return Ok(data.len());
        }
        let text = std::str::from_utf8(data).map_err(|_| EINVAL)?.trim_end();
        if self.name == "comm" {
            self.me.task()?.set_comm(text.as_bytes());
            return Ok(data.len());
        }
        if self.name == "oom_score_adj" {
            let v: i32 = text.parse().map_err(|_| EINVAL)?;
            if !(-1000..=1000).contains(&v) {
                return Err(EINVAL);
            }
            self.me.group()?.oom_score_adj.store(v, Ordering::Relaxed);
            return Ok(data.len());
        }
        Err(EPERM)
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        if self.private {
            self.me.check(cx)?;
        }
        let writes = flags & vfs::file::O_ACCMODE != 0;
        if writes && self.name == "setgroups" {
            let ns = self.me.task()?.cred().user_ns.clone();
            if !cx.cred.has_in(&ns, Caps::SYS_ADMIN) {
                return Err(EACCES);
            }
        }
        Ok(None)
    }
}

/// Name, mode, whether private, and the text.
const FILES: &[(&str, u32, bool, Make)] = &[
    ("auxv", 0o400, true, auxv),
    ("cgroup", 0o444, false, cgroup),
    ("cmdline", 0o444, false, cmdline),
    ("comm", 0o644, false, comm),
    ("coredump_filter", 0o644, false, |_| {
        Ok(b"00000033\n".to_vec())
    }),
    ("environ", 0o400, true, environ),
    ("gid_map", 0o644, false, |s| id_map(s, IdKind::Group)),
    ("io", 0o400, true, io),
    ("limits", 0o444, false, limits_text),
    ("loginuid", 0o644, false, |_| Ok(b"4294967295".to_vec())),
    ("maps", 0o444, true, maps),
    ("mountinfo", 0o444, false, mountinfo),
    ("mounts", 0o444, false, mounts),
    ("oom_adj", 0o644, false, |_| Ok(b"0\n".to_vec())),
    ("oom_score", 0o444, false, |_| Ok(b"0\n".to_vec())),
    ("oom_score_adj", 0o644, false, oom_score_adj),
    ("personality", 0o400, true, |_| Ok(b"00000000\n".to_vec())),
    ("projid_map", 0o644, false, |s| id_map(s, IdKind::Project)),
    ("sessionid", 0o444, false, |_| Ok(b"4294967295".to_vec())),
    ("setgroups", 0o644, false, |s| {
        let allowed = s.task()?.cred().user_ns.setgroups_allowed();
        Ok(if allowed {
            b"allow\n".to_vec()
        } else {
            b"deny\n".to_vec()
        })
    }),
    ("smaps", 0o444, true, smaps),
    ("smaps_rollup", 0o444, true, smaps_rollup),
    ("stat", 0o444, false, stat),
    ("statm", 0o444, false, statm),
    ("status", 0o444, false, status),
    ("uid_map", 0o644, false, |s| id_map(s, IdKind::User)),
    ("wchan", 0o444, false, |_| Ok(b"0".to_vec())),
];

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

/// `ns`.
struct NsDir(Subject);

impl DynDir for NsDir {
    fn perm(&self) -> Perm {
        self.0.perm(0o511)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let name = NsRef::NAMES
            .into_iter()
            .find(|n| n.as_bytes() == name)
            .ok_or(ENOENT)?;
        Ok(DynNode::Link(Arc::new(NsLink(self.0.clone(), name))))
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        Ok(NsRef::NAMES
            .into_iter()
            .map(|n| DynEntry::new(n, FileType::Symlink))
            .collect())
    }
}

struct NsLink(Subject, &'static str);

impl NsLink {
    fn namespace(&self, cx: &Caller<'_>) -> Result<NsRef> {
        self.0.check(cx)?;
        let t = self.0.task()?;
        NsRef::of(&t, self.1.as_bytes()).ok_or(ENOENT)
    }
}

impl DynLink for NsLink {
    fn perm(&self) -> Perm {
        self.0.perm(0o777)
    }
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        self.namespace(cx).map(|n| n.text().into_bytes())
    }
    fn jump(&self, cx: &Caller<'_>) -> Result<Option<Path>> {
        let n = self.namespace(cx)?;
        Ok(Some(n.place(&self.0.kernel()?.vfs)))
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

/// `cwd`, `exe`, `root`.
struct PlaceLink {
    me: Subject,
    what: u8,
}

impl PlaceLink {
    fn place(&self, cx: &Caller<'_>) -> Result<Path> {
        self.me.check(cx)?;
        match self.what {
            b'e' => self.me.group()?.exe.read().clone().ok_or(ENOENT),
            b'c' => Ok(self.me.task()?.fs().cwd()),
            _ => Ok(self.me.task()?.fs().root()),
        }
    }
}

impl DynLink for PlaceLink {
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        let p = self.place(cx)?;
        let root = task_of(cx.task).ok_or(EACCES)?.fs().root();
        Ok(p.describe(&root).display())
    }
    fn jump(&self, cx: &Caller<'_>) -> Result<Option<Path>> {
        self.place(cx).map(Some)
    }
}

/// `fd` and `fdinfo`.
struct FdDir {
    me: Subject,
    info: bool,
}

impl DynDir for FdDir {
    fn perm(&self) -> Perm {
        self.me.perm(if self.info { 0o555 } else { 0o500 })
    }
    fn permission(&self, cx: &Caller<'_>, want: vfs::inode::Want) -> Result<()> {
        // One's own descriptors can always be looked at.
        if task_of(cx.task).is_some_and(|t| t.group.tgid == self.me.tgid) {
            return Ok(());
        }
        self.me.check(cx)?;
        vfs::inode::generic_permission(self.perm(), FileType::Directory, cx.cred, want)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<DynNode> {
        let fd: i32 = std::str::from_utf8(name)
            .ok()
            .and_then(|s| s.parse().ok())
            .ok_or(ENOENT)?;
        let f = self.me.task()?.fd(fd).map_err(|_| ENOENT)?;
        Ok(if self.info {
            DynNode::File(Arc::new(FdInfo {
                me: self.me.clone(),
                fd,
            }))
        } else {
            DynNode::Link(Arc::new(FdLink {
                me: self.me.clone(),
                fd,
                id: f.id,
                flags: f.flags(),
            }))
        })
    }
    fn list(&self, _: &File) -> Result<Vec<DynEntry>> {
        let kind = if self.info {
            FileType::Regular
        } else {
            FileType::Symlink
        };
        let fds = self.me.task()?.files().list(0);
        Ok(fds
            .into_iter()
            .map(|n| DynEntry::new(n.to_string(), kind))
            .collect())
    }
}

struct FdLink {
    me: Subject,
    fd: i32,
    id: u64,
    flags: u32,
}

impl DynLink for FdLink {
    fn perm(&self) -> Perm {
        let bits = match self.flags & vfs::file::O_ACCMODE {
            0 => 0o500,
            1 => 0o300,
            _ => 0o700,
        };
        self.me.perm(bits)
    }
    fn identity(&self) -> u64 {
        self.id
    }
    fn read(&self, cx: &Caller<'_>) -> Result<Vec<u8>> {
        let f = self.me.task()?.fd(self.fd).map_err(|_| ENOENT)?;
        let root = task_of(cx.task).ok_or(EACCES)?.fs().root();
        Ok(match &f.path {
            Some(p) if f.ops::<NsFile>().is_none() => p.describe(&root).display(),
            _ => f.ops.describe().into_bytes(),
        })
    }
    fn jump(&self, _: &Caller<'_>) -> Result<Option<Path>> {
        let f = self.me.task()?.fd(self.fd).map_err(|_| ENOENT)?;
        match &f.path {
            Some(p) => Ok(Some(p.clone())),
            // Pipes and sockets: the VFS opens the file anew by `reopen`.
            None => Ok(Some(dynamic::detached(
                &self.me.kernel()?.vfs,
                "pipefs",
                DynNode::File(Arc::new(Reopen(f))),
            ))),
        }
    }
}

/// A file without a path, opened by way of `/proc/PID/fd/N`: a pipe gets a new end, others the same object.
struct Reopen(Arc<File>);

impl DynFile for Reopen {
    fn perm(&self) -> Perm {
        Perm {
            mode: 0o600,
            uid: self.0.cred.fsuid,
            gid: self.0.cred.fsgid,
        }
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Err(EINVAL)
    }
    fn stat(&self) -> Option<Result<Stat>> {
        Some(self.0.ops.stat())
    }
    fn open(self: Arc<Self>, _: &Caller<'_>, flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        if let Some(p) = self.0.ops::<ipc::pipe::PipeEnd>() {
            let end: Arc<dyn FileOps> = p.reopen(flags)?;
            return Ok(Some(end));
        }
        // Sockets cannot be opened again.
        if self.0.ops.stat()?.mode & 0o170_000 == 0o140_000 {
            return Err(ENXIO);
        }
        Ok(Some(self.0.ops.clone()))
    }
}

struct FdInfo {
    me: Subject,
    fd: i32,
}

impl DynFile for FdInfo {
    fn perm(&self) -> Perm {
        self.me.perm(0o400)
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        let task = self.me.task()?;
        crate::task::offers::look(&task);
        let files = task.files();
        let f = files.get(self.fd).map_err(|_| ENOENT)?;
        let cloexec = files.cloexec(self.fd)? == vfs::fd_table::CloseOnExec::Yes;
        let flags =
            f.flags() | vfs::file::O_LARGEFILE | if cloexec { vfs::file::O_CLOEXEC } else { 0 };
        let ino = f.ops.stat().map_or(0, |s| s.ino);
        let mnt = f.path.as_ref().map_or(0, |p| p.mnt.id);
        let pos = *f.pos.lock();
        let more = match f.ops::<crate::fs::pidfd::PidFd>() {
            Some(p) => p.info(&self.me.ns),
            None => f.ops.fdinfo(),
        };
        Ok(
            format!("pos:\t{pos}\nflags:\t0{flags:o}\nmnt_id:\t{mnt}\nino:\t{ino}\n{more}")
                .into_bytes(),
        )
    }
}

/// `/proc/PID/mem`.
struct MemNode(Subject);

impl DynFile for MemNode {
    fn perm(&self) -> Perm {
        self.0.perm(0o600)
    }
    fn generate(&self, _: &File) -> Result<Vec<u8>> {
        Err(EIO)
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, _: u32) -> Result<Option<Arc<dyn FileOps>>> {
        self.0.check(cx)?;
        let mm = Arc::downgrade(&self.0.task()?.mm());
        Ok(Some(Arc::new(MemFile {
            mm,
            me: self.0.clone(),
        })))
    }
}

struct MemFile {
    mm: Weak<mm::Mm>,
    me: Subject,
}

impl FileOps for MemFile {
    fn read(&self, _: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let Some(mm) = self.mm.upgrade() else {
            return Ok(0);
        };
        let mut done = 0;
        let mut buf = vec![0u8; dst.remaining().min(64 << 10)];
        while dst.remaining() > 0 {
            let want = dst.remaining().min(buf.len());
            let n = mm.read_forced(abi::Va(offset + done as u64), &mut buf[..want]);
            if n == 0 {
                return if done == 0 { Err(EIO) } else { Ok(done) };
            }
            done += dst.put(&buf[..n])?;
        }
        Ok(done)
    }
    fn write(&self, _: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        let Some(mm) = self.mm.upgrade() else {
            return Ok(0);
        };
        let mut done = 0;
        let mut buf = vec![0u8; src.remaining().min(64 << 10)];
        while src.remaining() > 0 {
            let want = src.remaining().min(buf.len());
            let got = src.take(&mut buf[..want])?;
            let n = mm.write_forced(abi::Va(offset + done as u64), &buf[..got]);
            done += n;
            if n < got {
                return if done == 0 { Err(EIO) } else { Ok(done) };
            }
        }
        Ok(done)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        let p = self.me.perm(0o100_600);
        Ok(Stat {
            mode: p.mode,
            uid: p.uid,
            gid: p.gid,
            nlink: 1,
            blksize: 1024,
            ..Stat::default()
        })
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A range of the process's own memory: its arguments, its environment.
fn range(me: &Subject, f: fn(&mm::Layout) -> (u64, u64)) -> Result<Vec<u8>> {
    let mm = me.task()?.mm();
    let (start, end) = f(&mm.layout());
    let mut b = vec![0u8; end.saturating_sub(start).min(2 << 20) as usize];
    let n = mm.read_forced(abi::Va(start), &mut b);
    b.truncate(n);
    Ok(b)
}
/// A process's command line as one line of text.
pub fn command_line(t: &Arc<Task>) -> String {
    let mm = t.mm();
    let l = mm.layout();
    let mut b = vec![0u8; l.arg_end.saturating_sub(l.arg_start).min(4096) as usize];
    let n = mm.read_forced(abi::Va(l.arg_start), &mut b);
    b.truncate(n);
    let text = String::from_utf8_lossy(&b).replace('\0', " ");
    if text.trim().is_empty() {
        format!("[{}]", String::from_utf8_lossy(&t.comm()))
    } else {
        text.trim_end().to_owned()
    }
}

fn cmdline(me: &Subject) -> Result<Vec<u8>> {
    // A zombie has none.
    Ok(range(me, |l| (l.arg_start, l.arg_end)).unwrap_or_default())
}
fn environ(me: &Subject) -> Result<Vec<u8>> {
    range(me, |l| (l.env_start, l.env_end))
}
fn auxv(me: &Subject) -> Result<Vec<u8>> {
    let l = me.task()?.mm().layout();
    let mut out = Vec::new();
    for (k, v) in l.auxv {
        out.extend_from_slice(&k.to_le_bytes());
        out.extend_from_slice(&v.to_le_bytes());
    }
    Ok(out)
}
fn comm(me: &Subject) -> Result<Vec<u8>> {
    let mut c = me.task()?.comm();
    c.push(b'\n');
    Ok(c)
}
fn oom_score_adj(me: &Subject) -> Result<Vec<u8>> {
    Ok(format!("{}\n", me.group()?.oom_score_adj.load(Ordering::Relaxed)).into_bytes())
}
/// As the task sees it that opened the file.
fn cgroup(me: &Subject) -> Result<Vec<u8>> {
    let k = me.kernel()?;
    let root = me
        .reader
        .upgrade()
        .map_or_else(|| k.initial.cgroup.clone(), |t| t.ns().cgroup.clone());
    let mut text = b"0::".to_vec();
    text.extend(me.group()?.cgroup().path_from(&root));
    text.push(b'\n');
    Ok(text)
}
fn id_map(me: &Subject, kind: IdKind) -> Result<Vec<u8>> {
    let ns = me.task()?.cred().user_ns.clone();
    Ok(ns.map_text(kind, &me.viewer).into_bytes())
}
fn io(_: &Subject) -> Result<Vec<u8>> {
    Ok(b"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n".to_vec())
}
fn mountinfo(me: &Subject) -> Result<Vec<u8>> {
    let fs = me.task()?.fs();
    Ok(fs.ns().mountinfo(&fs.root()))
}
fn mounts(me: &Subject) -> Result<Vec<u8>> {
    let fs = me.task()?.fs();
    Ok(fs.ns().proc_mounts(&fs.root()))
}

fn limits_text(me: &Subject) -> Result<Vec<u8>> {
    const NAMES: [(&str, &str); limits::COUNT] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let l = me.group()?.limits.lock().clone();
    let show = |v: u64| {
        if v == u64::MAX {
            "unlimited".to_string()
        } else {
            v.to_string()
        }
    };
    let mut s = format!(
        "{:<25} {:<20} {:<20} {:<10}\n",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    );
    for (n, l) in NAMES.iter().zip(l.0) {
        let _ = writeln!(
            s,
            "{:<25} {:<20} {:<20} {}",
            n.0,
            show(l.current),
            show(l.max),
            // Priorities have no unit, and no room for one.
            if n.1.is_empty() {
                String::new()
            } else {
                format!("{:<10}", n.1)
            }
        );
    }
    Ok(s.into_bytes())
}

fn map_line(v: &mm::VmaInfo) -> Vec<u8> {
    let (dev, ino) = v.dev_ino();
    let perms = v.perms();
    let head = format!(
        "{:08x}-{:08x} {} {:08x} {:02x}:{:02x} {} ",
        v.start,
        v.end,
        String::from_utf8_lossy(&perms),
        v.offset,
        vfs::major(dev),
        vfs::minor(dev),
        ino
    );
    let name = v.name();
    let mut line = head.into_bytes();
    if name.is_empty() {
        line.pop();
        line.push(b' ');
    } else {
        while line.len() < 73 {
            line.push(b' ');
        }
        for b in name {
            if b == b'\n' {
                line.extend_from_slice(b"\\012")
            } else {
                line.push(b)
            }
        }
    }
    line.push(b'\n');
    line
}

fn maps(me: &Subject) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    me.task()?.mm().for_each_vma(|v| out.extend(map_line(v)));
    Ok(out)
}

fn usage_lines(rss: u64, anonymous: u64, shared: u64) -> String {
    let (r, a, s) = (rss / 1024, anonymous / 1024, shared / 1024);
    let clean = r.saturating_sub(a);
    format!(
        "Rss:            {r:8} kB\nPss:            {r:8} kB\nShared_Clean:   {clean:8} kB\nShared_Dirty:   {s:8} kB\nPrivate_Clean:  {:8} kB\nPrivate_Dirty:  {:8} kB\nReferenced:     {r:8} kB\nAnonymous:      {a:8} kB\nLazyFree:       {:8} kB\nAnonHugePages:  {:8} kB\nSwap:           {:8} kB\nSwapPss:        {:8} kB\nLocked:         {:8} kB\n",
        0,
        a.saturating_sub(s),
        0,
        0,
        0,
        0,
        0
    )
}

fn smaps(me: &Subject) -> Result<Vec<u8>> {
    let mm = me.task()?.mm();
    let mut out = Vec::new();
    for v in mm.vmas() {
        out.extend(map_line(&v));
        let u = mm.vma_usage(v.start, v.end);
        let size = (v.end - v.start) / 1024;
        out.extend_from_slice(
            format!("Size:           {size:8} kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\n").as_bytes(),
        );
        out.extend_from_slice(usage_lines(u.rss, u.anonymous, u.shared).as_bytes());
        out.extend_from_slice(b"THPeligible:           0\nVmFlags: \n");
    }
    Ok(out)
}
fn smaps_rollup(me: &Subject) -> Result<Vec<u8>> {
    let mm = me.task()?.mm();
    let (mut r, mut a, mut s) = (0, 0, 0);
    let vmas = mm.vmas();
    for v in &vmas {
        let u = mm.vma_usage(v.start, v.end);
        r += u.rss;
        a += u.anonymous;
        s += u.shared;
    }
    let (start, end) = (
        vmas.first().map_or(0, |v| v.start),
        vmas.last().map_or(0, |v| v.end),
    );
    let mut out = format!("{start:08x}-{end:08x} ---p 00000000 00:00 0 [rollup]\n");
    out.push_str(&usage_lines(r, a, s));
    Ok(out.into_bytes())
}

/// `R`, `S`, `T` or `Z`.
fn state(k: &Kernel, me: &Subject) -> char {
    let l = k.tasks.lock();
    match l.process(me.tgid) {
        Some(p) if p.zombie.is_some() => 'Z',
        Some(p) if p.group.is_stopping() => 'T',
        _ => match l.task(me.tid) {
            Some(t) if t.sleeping.load(Ordering::Relaxed) => 'S',
            _ => 'R',
        },
    }
}

fn stat(me: &Subject) -> Result<Vec<u8>> {
    let k = me.kernel()?;
    let st = state(&k, me);
    let t = me.task().ok().or_else(|| me.task.upgrade());
    let (ppid, pgid, sid, threads) = {
        let l = k.tasks.lock();
        (
            l.parent(me.tgid),
            l.pgid(me.tgid),
            l.sid(me.tgid),
            l.threads(me.tgid).len(),
        )
    };
    let number = |id| k.tasks.lock().number(id, &me.ns);
    let tty = k.terminals.of_session(sid);
    let [ppid, pgid, sid] = [ppid, pgid, sid].map(number);
    let tty_nr = tty
        .as_ref()
        .map_or(0, |p| vfs::makedev(136, p.index) as i64);
    let tpgid = tty.as_ref().and_then(|p| p.foreground()).map_or(-1, number);
    let comm = t.as_ref().map(|t| t.comm()).unwrap_or_default();
    let g = me.group()?;
    let cpu = k.cpu_time(&g);
    let children = g.cpu_children.get();
    let [utime, stime, cutime, cstime] =
        [cpu.user, cpu.system, children.user, children.system].map(|n| n / 10_000_000);
    let (size, rss, layout) = match (&t, st) {
        (Some(t), s) if s != 'Z' => {
            let mm = t.mm();
            let u = mm.usage();
            (u.size, u.rss / 4096, mm.layout())
        }
        _ => (0, 0, mm::Layout::default()),
    };
    let nice = t.as_ref().map_or(0, |t| t.nice.load(Ordering::Relaxed));
    let start = t
        .as_ref()
        .map_or(0, |t| (t.start - k.boot).max(0) / 10_000_000);
    let rsslim = g.limits.lock().0[limits::RSS].current;
    let mask = t.as_ref().map_or(0, |t| t.mask().0);
    let pending = t.as_ref().map_or(0, |t| t.pending.bits().0);
    let exit_signal = 17;
    let s = format!(
        "{} ({}) {st} {ppid} {pgid} {sid} {tty_nr} {tpgid} 0 0 0 0 0 {utime} {stime} {cutime} {cstime} {} {nice} {threads} 0 {start} {size} {rss} {rsslim} {} {} {} 0 0 {pending} {mask} 0 0 0 0 0 {exit_signal} 0 0 0 0 0 0 {} {} {} {} {} {} {} 0\n",
        number(me.tid),
        String::from_utf8_lossy(&comm),
        20 + nice,
        layout.start_code,
        layout.end_code,
        layout.start_stack,
        layout.start_data,
        layout.end_data,
        layout.start_brk,
        layout.arg_start,
        layout.arg_end,
        layout.env_start,
        layout.env_end,
    );
    Ok(s.into_bytes())
}

fn statm(me: &Subject) -> Result<Vec<u8>> {
    let Ok(t) = me.task() else {
        return Ok(b"0 0 0 0 0 0 0\n".to_vec());
    };
    let u = t.mm().usage();
    let p = |b: u64| b / 4096;
    let shared = u.rss.saturating_sub(u.rss_anon);
    Ok(format!(
        "{} {} {} {} 0 {} 0\n",
        p(u.size),
        p(u.rss),
        p(shared),
        p(u.exec),
        p(u.data)
    )
    .into_bytes())
}

fn status(me: &Subject) -> Result<Vec<u8>> {
    let k = me.kernel()?;
    let st = state(&k, me);
    let t = me.task().ok().or_else(|| me.task.upgrade()).ok_or(ESRCH)?;
    let c = t.cred();
    let (ppid, threads, tgid, pid, numbers) = {
        let l = k.tasks.lock();
        let ids = [me.tgid, me.tid, l.pgid(me.tgid), l.sid(me.tgid)];
        (
            l.number(l.parent(me.tgid), &me.ns),
            l.threads(me.tgid).len(),
            l.number(me.tgid, &me.ns),
            l.number(me.tid, &me.ns),
            ids.map(|i| {
                let v = l.numbers_from(i, &me.ns);
                let all: Vec<String> = v.iter().map(ToString::to_string).collect();
                all.join("\t")
            }),
        )
    };
    let long = match st {
        'R' => "running",
        'S' => "sleeping",
        'T' => "stopped",
        _ => "zombie",
    };
    let mut s = String::new();
    let _ = writeln!(s, "Name:\t{}", String::from_utf8_lossy(&t.comm()));
    let _ = writeln!(s, "Umask:\t{:04o}", t.fs().umask());
    let _ = writeln!(s, "State:\t{st} ({long})");
    let _ = writeln!(
        s,
        "Tgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t{ppid}\nTracerPid:\t0",
        tgid, pid
    );
    let [u, e, v, f] = [c.uid, c.euid, c.suid, c.fsuid].map(|u| me.viewer.uid_shown(u));
    let _ = writeln!(s, "Uid:\t{u}\t{e}\t{v}\t{f}");
    let [u, e, v, f] = [c.gid, c.egid, c.sgid, c.fsgid].map(|g| me.viewer.gid_shown(g));
    let _ = writeln!(s, "Gid:\t{u}\t{e}\t{v}\t{f}");
    let size = t.files().capacity();
    let groups: String = c
        .groups
        .iter()
        .map(|g| format!("{} ", me.viewer.gid_shown(*g)))
        .collect();
    let _ = writeln!(s, "FDSize:\t{size}\nGroups:\t{groups}");
    let _ = writeln!(
        s,
        "NStgid:\t{}\nNSpid:\t{}\nNSpgid:\t{}\nNSsid:\t{}",
        numbers[0], numbers[1], numbers[2], numbers[3]
    );
    if st != 'Z' {
        let u = t.mm().usage();
        let kb = |b: u64| b / 1024;
        let lib = 0;
        let _ = writeln!(
            s,
            "VmPeak:\t{:8} kB\nVmSize:\t{:8} kB\nVmLck:\t{:8} kB\nVmPin:\t{:8} kB\nVmHWM:\t{:8} kB\nVmRSS:\t{:8} kB\nRssAnon:\t{:8} kB\nRssFile:\t{:8} kB\nRssShmem:\t{:8} kB\nVmData:\t{:8} kB\nVmStk:\t{:8} kB\nVmExe:\t{:8} kB\nVmLib:\t{lib:8} kB\nVmPTE:\t{:8} kB\nVmSwap:\t{:8} kB",
            kb(u.peak),
            kb(u.size),
            kb(u.locked),
            0,
            kb(u.rss),
            kb(u.rss),
            kb(u.rss_anon),
            kb(u.rss.saturating_sub(u.rss_anon)),
            0,
            kb(u.data),
            kb(u.stack),
            kb(u.exec),
            4,
            0
        );
    }
    let _ = writeln!(s, "CoreDumping:\t0\nTHP_enabled:\t1\nThreads:\t{threads}");
    let limit = t.group.limits.lock().0[limits::SIGPENDING].current;
    let actions = t.group.actions();
    let (mut ign, mut cgt) = (0u64, 0u64);
    for n in 1..=64 {
        let Some(sig) = abi::Signal::new(n) else {
            continue;
        };
        match actions.read().get(sig).handler {
            0 => {}
            1 => ign |= 1 << (n - 1),
            _ => cgt |= 1 << (n - 1),
        }
    }
    let _ = writeln!(
        s,
        "SigQ:\t0/{limit}\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{:016x}\nSigIgn:\t{ign:016x}\nSigCgt:\t{cgt:016x}",
        t.pending.bits().0,
        t.group.shared.bits().0,
        t.mask().0
    );
    let _ = writeln!(
        s,
        "CapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}",
        c.inheritable.bits(),
        c.permitted.bits(),
        c.effective.bits(),
        c.bounding.bits(),
        c.ambient.bits()
    );
    let cpus = k.cpus.max(1);
    let mask = if cpus >= 64 {
        u64::MAX
    } else {
        (1u64 << cpus) - 1
    };
    let list = if cpus == 1 {
        "0".into()
    } else {
        format!("0-{}", cpus - 1)
    };
    let _ = writeln!(
        s,
        "NoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\nSpeculation_Store_Bypass:\tvulnerable\nCpus_allowed:\t{mask:x}\nCpus_allowed_list:\t{list}\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0",
        i32::from(t.no_new_privs.load(Ordering::Relaxed)),
        t.seccomp.mode() as u8,
        t.seccomp.count()
    );
    Ok(s.into_bytes())
}
