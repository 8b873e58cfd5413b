//! mqueue: the file system of POSIX message queues (`mq_overview(7)`; Linux's `ipc/mqueue.c`).
//!
//! An ipc namespace has one, whatever mounts it: mq_open(2) opens its files without a mount, and
//! what is mounted shows the same files. A queue lives as long as its name or an open descriptor.
//! Where its namespace has ended, a mount of it makes no more files.
//!
//! Lock order: a directory's names, then nothing; a file's attributes are a leaf, below the queue.

use crate::Kernel;
use crate::ns::IpcNs;
use crate::ns::pid::{Pid, PidNs};
use crate::task::task_of;
use crate::task::{Task, ThreadGroup};
use abi::errno::{EACCES, EINVAL, EISDIR, EMFILE, ENOENT, ENOMEM, EOPNOTSUPP, EPERM};
use abi::signal::SI_MESGQ;
use abi::{PAGE_SIZE, Result, SigInfo, Signal};
use ipc::mqueue::{Attr, Limits, Privilege, Queue};
use net::NetlinkInbox;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::dentry::{FileSystem, StatFs, SuperBlock};
use vfs::file::{File, FileOps, Sink};
use vfs::fs::Listing;
use vfs::inode::{InodeExt, NewNode, SetAttr};
use vfs::params::Params;
use vfs::ucounts::{Charge, Kind};
use vfs::userns::UserNs;
use vfs::vfs::{FsType, Vfs};
use vfs::{Caller, Caps, Dentry, DirEntry, FileType, Inode, Path, Perm, Stat};
use wait::{Events, WaitQueue};

/// `MQUEUE_MAGIC`.
const MAGIC: u64 = 0x1980_0202;
/// What a directory's size counts for each name, and the size of a queue's text.
const DIRENT_SIZE: u64 = 20;
const TEXT_SIZE: u64 = 80;
/// What a queue takes of the kernel's memory, with its name and a dentry, bytes.
const NODE: usize = 1024;

/// Makes it known.
pub fn register(k: &Arc<Kernel>) {
    k.vfs
        .register_fs("mqueue", Arc::new(MqueueType(Arc::downgrade(k))));
}

struct MqueueType(Weak<Kernel>);

impl FsType for MqueueType {
    /// That of the caller's ipc namespace, whose administrator the caller must be.
    fn mount(&self, vfs: &Arc<Vfs>, cx: &Caller<'_>, _: &str, _: &Params) -> Result<Arc<Dentry>> {
        let k = self.0.upgrade().ok_or(ENOENT)?;
        let ns = match task_of(cx.task) {
            Some(t) => t.ns().ipc.clone(),
            None => k.container_of(cx.task).ns.ipc.clone(),
        };
        if !cx.cred.has_in(&ns.user, Caps::SYS_ADMIN) {
            return Err(EPERM);
        }
        Ok(root(vfs, &ns).dentry)
    }
}

/// The root of a namespace's.
pub fn root(vfs: &Arc<Vfs>, ns: &IpcNs) -> Path {
    ns.mqueue.root(|| {
        let fs = Arc::new(Mqueue {
            dev: vfs.new_dev(),
            limits: Arc::downgrade(&ns.mqueue.limits),
            next_ino: AtomicU64::new(1),
        });
        let (uid, gid) = ns.mqueue.owner;
        let new = NewNode {
            mode: 0o1777,
            uid,
            gid,
        };
        let dir = Directory {
            base: Base::new(&fs, new, 2, 2 * DIRENT_SIZE),
            names: Mutex::default(),
        };
        let sb = SuperBlock::new(fs.dev, fs);
        sb.set_owner(&ns.user);
        Path::root_of(&vfs.kernel_mount(Dentry::new_root(&sb, Arc::new(dir))))
    })
}

/// The file system.
struct Mqueue {
    dev: u64,
    /// The namespace's; gone with it.
    limits: Weak<Limits>,
    next_ino: AtomicU64,
}

impl FileSystem for Mqueue {
    fn name(&self) -> &'static str {
        "mqueue"
    }
    fn remembers_missing(&self) -> bool {
        false
    }
    fn stat_fs(&self) -> Result<StatFs> {
        Ok(StatFs {
            magic: MAGIC,
            bsize: PAGE_SIZE,
            namelen: 255,
            fsid: self.dev,
            ..StatFs::default()
        })
    }
}

/// What every inode has.
struct Base {
    fs: Arc<Mqueue>,
    ino: u64,
    meta: Mutex<Meta>,
    ext: InodeExt,
}

struct Meta {
    perm: Perm,
    nlink: u32,
    size: u64,
    atime: i64,
    mtime: i64,
    ctime: i64,
    btime: i64,
}

impl Base {
    fn new(fs: &Arc<Mqueue>, new: NewNode, nlink: u32, size: u64) -> Base {
        let t = vfs::now();
        Base {
            fs: fs.clone(),
            ino: fs.next_ino.fetch_add(1, Ordering::Relaxed),
            meta: Mutex::new(Meta {
                perm: Perm {
                    mode: new.mode,
                    uid: new.uid,
                    gid: new.gid,
                },
                nlink,
                size,
                atime: t,
                mtime: t,
                ctime: t,
                btime: t,
            }),
            ext: InodeExt::default(),
        }
    }
    fn stat(&self, kind: FileType) -> Stat {
        let m = self.meta.lock();
        Stat {
            dev: self.fs.dev,
            ino: self.ino,
            mode: kind.bits() | m.perm.mode,
            nlink: m.nlink,
            uid: m.perm.uid,
            gid: m.perm.gid,
            size: m.size,
            blksize: PAGE_SIZE as u32,
            atime: m.atime,
            mtime: m.mtime,
            ctime: m.ctime,
            btime: m.btime,
            ..Stat::default()
        }
    }
    /// `simple_setattr`.
    fn set(&self, a: &SetAttr) {
        let t = vfs::now();
        let mut m = self.meta.lock();
        m.perm.mode = a.mode.map_or(m.perm.mode, |mode| mode & 0o7777);
        m.perm.uid = a.uid.unwrap_or(m.perm.uid);
        m.perm.gid = a.gid.unwrap_or(m.perm.gid);
        if let Some(size) = a.size {
            m.size = size;
            m.mtime = t;
        }
        m.atime = a.atime.unwrap_or(m.atime);
        m.mtime = a.mtime.unwrap_or(m.mtime);
        m.ctime = t;
    }
    /// Its names changed, or its messages.
    fn changed(&self) {
        let t = vfs::now();
        let mut m = self.meta.lock();
        (m.atime, m.mtime, m.ctime) = (t, t, t);
    }
    /// It was looked at.
    fn used(&self) {
        let t = vfs::now();
        let mut m = self.meta.lock();
        (m.atime, m.ctime) = (t, t);
    }
}

/// The root, its only directory.
struct Directory {
    base: Base,
    names: Mutex<BTreeMap<Box<[u8]>, Arc<QueueNode>>>,
}

impl Directory {
    fn resize(&self, by: i64) {
        let mut m = self.base.meta.lock();
        m.size = m.size.saturating_add_signed(by);
    }
    /// Makes a queue (`mqueue_create_attr`).
    fn make(
        &self,
        cx: &Caller<'_>,
        name: &[u8],
        new: NewNode,
        asked: QueueLimits,
    ) -> Result<Arc<dyn Inode>> {
        let limits = self.base.fs.limits.upgrade().ok_or(EACCES)?;
        let privilege = if cx.cred.has(Caps::SYS_RESOURCE) {
            Privilege::Resource
        } else {
            Privilege::None
        };
        limits.add_queue(privilege)?;
        let counted = CountedQueue(Arc::downgrade(&limits));
        let memory = cx.cred.kmem(NODE + name.len(), ENOMEM)?;
        let attr = limits.attr(asked.attr, privilege)?;
        let users = cx.cred.ucounts();
        let bytes = users.charge(Kind::MessageQueues, attr.counted()?, asked.limit);
        let node = Arc::new(QueueNode {
            base: Base::new(&self.base.fs, new, 1, TEXT_SIZE),
            queue: Queue::new(attr),
            _held: (counted, bytes.ok_or(EMFILE)?, memory),
        });
        self.names.lock().insert(name.into(), node.clone());
        self.resize(DIRENT_SIZE as i64);
        self.base.changed();
        Ok(node)
    }
}

/// A queue that the namespace counts.
struct CountedQueue(Weak<Limits>);

impl Drop for CountedQueue {
    fn drop(&mut self) {
        if let Some(l) = self.0.upgrade() {
            l.drop_queue();
        }
    }
}

/// What a new queue is to be.
#[derive(Clone, Copy)]
pub struct QueueLimits {
    /// Messages, and the size of each.
    pub attr: Option<(i64, i64)>,
    /// The caller's RLIMIT_MSGQUEUE.
    pub limit: u64,
}

impl QueueLimits {
    fn of(cx: &Caller<'_>) -> QueueLimits {
        let limit = task_of(cx.task).map(|t| message_limit(t));
        QueueLimits {
            attr: None,
            limit: limit.unwrap_or(u64::MAX),
        }
    }
}

/// RLIMIT_MSGQUEUE.
#[must_use]
pub fn message_limit(t: &Task) -> u64 {
    t.group.limits.lock().0[crate::task::limits::MSGQUEUE].current
}

/// Makes a queue in the root directory of its file system, whose lock is held.
pub fn make(
    root: &Path,
    cx: &Caller<'_>,
    name: &[u8],
    new: NewNode,
    asked: QueueLimits,
) -> Result<Arc<dyn Inode>> {
    let dir = root.inode()?;
    let dir = vfs::inode::downcast::<Directory>(dir).ok_or(EACCES)?;
    dir.make(cx, name, new, asked)
}

impl Inode for Directory {
    fn file_type(&self) -> FileType {
        FileType::Directory
    }
    fn ext(&self) -> &InodeExt {
        &self.base.ext
    }
    fn stat(&self) -> Result<Stat> {
        Ok(self.base.stat(FileType::Directory))
    }
    fn perm(&self) -> Result<Perm> {
        Ok(self.base.meta.lock().perm)
    }
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let node = self.names.lock().get(name).cloned();
        Ok(node.ok_or(ENOENT)?)
    }
    fn create(&self, cx: &Caller<'_>, name: &[u8], new: NewNode) -> Result<Arc<dyn Inode>> {
        self.make(cx, name, new, QueueLimits::of(cx))
    }
    fn unlink(&self, _: &Caller<'_>, name: &[u8], _: &Arc<dyn Inode>) -> Result<()> {
        let gone = self.names.lock().remove(name).ok_or(ENOENT)?;
        let mut m = gone.base.meta.lock();
        m.nlink = m.nlink.saturating_sub(1);
        m.ctime = vfs::now();
        drop(m);
        self.resize(-(DIRENT_SIZE as i64));
        self.base.changed();
        Ok(())
    }
    fn open(self: Arc<Self>, _: &Caller<'_>, _: u32) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(OpenDirectory {
            dir: self,
            list: Listing::default(),
        }))
    }
    fn set_attr(&self, _: &Caller<'_>, a: &SetAttr) -> Result<()> {
        self.base.set(a);
        Ok(())
    }
}

struct OpenDirectory {
    dir: Arc<Directory>,
    list: Listing<(u64, Box<[u8]>)>,
}

impl FileOps for OpenDirectory {
    fn read(&self, _: &File, _: &mut dyn Sink, _: u64) -> Result<usize> {
        Err(EISDIR)
    }
    fn read_dir(
        &self,
        file: &File,
        pos: &mut u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let list = || {
            let names = self.dir.names.lock();
            Ok(names.iter().map(|(n, q)| (q.base.ino, n.clone())).collect())
        };
        let kind = abi::linux::DT_REG as u8;
        self.list
            .read(file, self.dir.base.ino, pos, emit, list, |e| {
                (e.0, kind, &e.1)
            })
    }
    fn seekable(&self) -> bool {
        true
    }
    fn seek_from(&self, _: u32, _: i64) -> Result<u64> {
        Err(EINVAL)
    }
    fn sync(&self, _: vfs::file::DataOnly) -> Result<()> {
        Ok(())
    }
    fn stat(&self) -> Result<Stat> {
        Inode::stat(&*self.dir)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A queue as a file.
pub struct QueueNode {
    base: Base,
    queue: Queue<Notification>,
    /// What it counts for its namespace and its maker.
    _held: (CountedQueue, Charge, Charge),
}

impl Inode for QueueNode {
    fn file_type(&self) -> FileType {
        FileType::Regular
    }
    fn ext(&self) -> &InodeExt {
        &self.base.ext
    }
    fn stat(&self) -> Result<Stat> {
        Ok(self.base.stat(FileType::Regular))
    }
    fn perm(&self) -> Result<Perm> {
        Ok(self.base.meta.lock().perm)
    }
    fn open(self: Arc<Self>, cx: &Caller<'_>, _: u32) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(OpenQueue {
            node: self,
            reader: task_of(cx.task).map(|t| t.pid.ns.clone()),
        }))
    }
    fn set_attr(&self, _: &Caller<'_>, a: &SetAttr) -> Result<()> {
        self.base.set(a);
        Ok(())
    }
}

/// A queue's descriptor.
pub struct OpenQueue {
    node: Arc<QueueNode>,
    /// Where the opener is: it is shown that namespace's numbers.
    reader: Option<Arc<PidNs>>,
}

impl OpenQueue {
    #[must_use]
    pub fn queue(&self) -> &Queue<Notification> {
        &self.node.queue
    }
    #[must_use]
    pub fn attr(&self) -> Attr {
        self.node.queue.attr()
    }
    /// A message came, or went.
    pub fn changed(&self) {
        self.node.base.changed();
    }
    /// It was looked at, or asked something.
    pub fn used(&self) {
        self.node.base.used();
    }
    /// What a read of it gives.
    fn text(&self) -> String {
        let bytes = self.node.queue.usage().1;
        let (kind, signal, owner) = self.node.queue.asked(|n| {
            n.map_or((0, 0, 0), |n| {
                let owner = self.reader.as_ref().map_or(0, |ns| n.owner.seen_in(ns));
                (n.event.kind(), n.event.signal(), owner)
            })
        });
        format!("QSIZE:{bytes:<10} NOTIFY:{kind:<5} SIGNO:{signal:<5} NOTIFY_PID:{owner:<6}\n")
    }
}

impl FileOps for OpenQueue {
    fn read(&self, _: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        let text = self.text();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = text.as_bytes().get(from..).unwrap_or_default();
        if rest.is_empty() || dst.remaining() == 0 {
            return Ok(0);
        }
        let n = dst.put(rest)?;
        self.used();
        Ok(n)
    }
    fn seekable(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Inode::stat(&*self.node)
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        self.node.queue.poll() & (mask | Events::ALWAYS)
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(self.node.queue.watchers())
    }
    fn allocate(&self, _: i32, _: u64, _: u64) -> Result<()> {
        Err(EOPNOTSUPP)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.node.base.set(&SetAttr {
            size: Some(size),
            ..SetAttr::default()
        });
        Ok(())
    }
    /// A process that asked to be told, and closes a descriptor of the queue, is not told.
    fn flush(&self, _: &File, table: u64) -> Result<()> {
        if let Some(n) = self.node.queue.take_back(|n| n.table == table) {
            n.removed();
        }
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a process asked for by mq_notify(2).
pub struct Notification {
    /// The number of its descriptors.
    table: u64,
    owner: Arc<Pid>,
    group: Weak<ThreadGroup>,
    user_ns: UserNs,
    /// Which of the programs that it has been asked.
    exec_id: u64,
    event: Event,
}

/// How it is to be told.
pub enum Event {
    /// `SIGEV_NONE`.
    None,
    /// `SIGEV_SIGNAL`. Linux takes signal 0, and sends nothing.
    Signal { signal: Option<Signal>, value: u64 },
    /// `SIGEV_THREAD`: the C library's thread reads a netlink socket.
    Thread {
        inbox: NetlinkInbox,
        cookie: [u8; COOKIE],
    },
}

/// `NOTIFY_COOKIE_LEN`.
pub const COOKIE: usize = 32;
/// `NOTIFY_WOKENUP` and `NOTIFY_REMOVED`, in a cookie's last byte.
const WOKEN_UP: u8 = 1;
const REMOVED: u8 = 2;

impl Event {
    /// `SIGEV_*`.
    const fn kind(&self) -> i32 {
        match self {
            Event::Signal { .. } => 0,
            Event::None => 1,
            Event::Thread { .. } => 2,
        }
    }
    fn signal(&self) -> i32 {
        match self {
            Event::Signal { signal, .. } => signal.map_or(0, Signal::number),
            _ => 0,
        }
    }
    fn send_cookie(self, code: u8) {
        if let Event::Thread { inbox, mut cookie } = self {
            cookie[COOKIE - 1] = code;
            inbox.send(cookie.to_vec());
        }
    }
}

impl Notification {
    #[must_use]
    pub fn new(t: &Task, event: Event) -> Notification {
        Notification {
            table: t.files().id(),
            owner: t.group.pid.clone(),
            group: Arc::downgrade(&t.group),
            user_ns: t.cred().user_ns.clone(),
            exec_id: t.group.exec_id.load(Ordering::SeqCst),
            event,
        }
    }
    /// Whether this process asked for it.
    #[must_use]
    pub fn is_of(&self, t: &Task) -> bool {
        self.owner.id == t.group.tgid
    }
    /// A message has come, from `sender` (`__do_notify`).
    pub fn deliver(self, sender: &Task) {
        let Event::Signal { signal, value } = self.event else {
            self.event.send_cookie(WOKEN_UP);
            return;
        };
        let (Some(signal), Some(g)) = (signal, self.group.upgrade()) else {
            return;
        };
        // Another program does not expect it.
        if g.exec_id.load(Ordering::SeqCst) != self.exec_id {
            return;
        }
        let pid = sender.group.pid.seen_in(&self.owner.ns);
        let uid = self.user_ns.uid_shown(sender.cred().uid);
        let mut info = SigInfo::from_sender(signal, SI_MESGQ, pid, uid);
        info.fields[1] = value;
        let _ = sender.kernel.send_to_group(&g, info);
    }
    /// It was taken back.
    pub fn removed(self) {
        self.event.send_cookie(REMOVED);
    }
}
