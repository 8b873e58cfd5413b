//! The Sentry's side.

use crate::line::{BUFFER, Line};
use crate::proto::{Access, Attr, Entry, Handle, Reply, Request, Seen, Step, WalkPurpose};
use crate::wire::{Hello, MAX_ALSO, MAX_CLOSES, connection_of};
use abi::Result;
use abi::attr::{NewNode, SetAttr, StatFs};
use abi::errno::{EBADMSG, EIO, ENFILE};
use hostcall::{HostFd, sock};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The longest name in a directory (`NAME_MAX`).
const MAX_NAME: usize = 255;
/// Closed handles that wait for a request to ride on; beyond, they get one of their own.
const MAX_PENDING: usize = 1024;

/// A connection to a Gofer; any number of threads may use it.
///
/// When the Gofer dies, every call gives `EIO`, and the callback is called once.
pub struct Client {
    hello: Hello,
    free: Mutex<Free>,
    /// A connection became free.
    freed: Condvar,
    /// As `freed`, for requests that change something.
    may_change: Condvar,
    pending: Mutex<Vec<Handle>>,
    dead: AtomicBool,
    requests: AtomicU64,
    attached: AtomicUsize,
    on_death: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// The connections that nobody uses.
///
/// Requests that change something take at most half of all: a host's file system lets them wait,
/// for its journal or until a large file is freed (seconds), and a caller that only opens files of
/// other directories does not wait for them.
struct Free {
    /// Each in its place: the one for the caller's CPU is taken first.
    places: Vec<Option<Connection>>,
    /// Requests under way that change something.
    changing: usize,
}

impl Free {
    fn take(&mut self, changes: bool) -> Option<(usize, Connection)> {
        let n = self.places.len();
        if changes && self.changing >= (n / 2).max(1) {
            return None;
        }
        let best = connection_of(hostcall::process::current_cpu(), n);
        let mut places = (0..n).map(|i| (best + i) % n);
        let found = places.find_map(|p| Some((p, self.places[p].take()?)))?;
        self.changing += usize::from(changes);
        Some(found)
    }
    fn put(&mut self, place: usize, c: Connection, changes: bool) {
        self.places[place] = Some(c);
        self.changing -= usize::from(changes);
    }
}

/// One connection to the server, and what belongs to it.
struct Connection {
    line: Line,
    /// Made with the first request.
    buf: Vec<u8>,
}

impl Connection {
    /// Sends a request and receives the reply to it.
    fn exchange(
        &mut self,
        message: &[u8],
        brings_fd: bool,
    ) -> Result<(Result<Reply>, Vec<HostFd>)> {
        self.line.send(message)?;
        self.buf.resize(BUFFER, 0);
        let (reply, fds) = if brings_fd {
            self.line.receive_with(&mut self.buf)?
        } else {
            (self.line.receive(&mut self.buf)?, Vec::new())
        };
        Ok((Reply::decode(reply), fds))
    }
}

/// A file that was made.
#[derive(Clone, Debug)]
pub struct CreatedFile {
    pub attr: Attr,
    pub handle: Handle,
    /// Of the directory that it was made in.
    pub dir: Option<Seen>,
}

/// A directory in which a name is changed, and others that are looked at afterwards.
#[derive(Clone, Copy, Debug)]
pub struct In<'a> {
    pub dir: Handle,
    /// At most [`MAX_ALSO`] of them.
    pub also: &'a [Vec<u8>],
}

impl From<Handle> for In<'_> {
    fn from(dir: Handle) -> Self {
        In { dir, also: &[] }
    }
}

/// How far a walk went.
#[derive(Debug)]
pub struct Walked {
    pub steps: Vec<Step>,
    /// The error that stopped it.
    pub stopped: Option<abi::Errno>,
    /// What the other names are, in their order; `None` where that was not found out.
    pub siblings: Vec<Option<Step>>,
    /// For reading the file at the end: a gift, which may be missing.
    pub fd: Option<HostFd>,
}

fn made(reply: Reply) -> Result<CreatedFile> {
    match reply {
        Reply::Node {
            attr, handle, dir, ..
        } => Ok(CreatedFile { attr, handle, dir }),
        _ => Err(EIO),
    }
}

impl Client {
    /// Greets the server at the other end of `channel`.
    pub fn connect(channel: &HostFd, on_death: Box<dyn FnOnce() + Send>) -> Result<Arc<Client>> {
        let mut buf = [0u8; 256];
        let (n, fds) = sock::recv(channel.raw(), &mut buf)?;
        let lines = Line::from_fds(fds);
        if n == 0 || lines.is_empty() {
            return Err(EIO);
        }
        let hello = Hello::decode(&buf[..n])?;
        let connection = |line| {
            let buf = Vec::new();
            Some(Connection { line, buf })
        };
        Ok(Arc::new(Client {
            hello,
            free: Mutex::new(Free {
                places: lines.into_iter().map(connection).collect(),
                changing: 0,
            }),
            freed: Condvar::new(),
            may_change: Condvar::new(),
            pending: Mutex::new(Vec::new()),
            dead: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            attached: AtomicUsize::new(0),
            on_death: Mutex::new(Some(on_death)),
        }))
    }
    /// What the server said of itself.
    #[must_use]
    pub fn server(&self) -> Hello {
        self.hello
    }
    /// How often it was asked.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
    /// How many roots were attached to.
    #[must_use]
    pub fn attached(&self) -> usize {
        self.attached.load(Ordering::Relaxed)
    }
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    fn died(&self) {
        {
            // A caller that has looked whether it lives, and found no connection, waits by now.
            let _looked = self.free.lock();
            self.dead.store(true, Ordering::Release);
        }
        self.freed.notify_all();
        self.may_change.notify_all();
        let callback = self.on_death.lock().take();
        if let Some(f) = callback {
            f();
        }
    }

    /// A free connection, and its place; waits for one.
    fn take(&self, changes: bool) -> Result<(usize, Connection)> {
        let mut free = self.free.lock();
        loop {
            if self.is_dead() {
                return Err(EIO);
            }
            if let Some(c) = free.take(changes) {
                return Ok(c);
            }
            let what = if changes {
                &self.may_change
            } else {
                &self.freed
            };
            what.wait(&mut free);
        }
    }
    /// Both kinds of waiters are told: a late one waits again, and is told by the first.
    fn put(&self, place: usize, c: Connection, changes: bool) {
        self.free.lock().put(place, c, changes);
        self.freed.notify_one();
        self.may_change.notify_one();
    }

    /// Lets go of the connections that nobody uses, as this process is about to end: the server's
    /// threads at their other ends need not wait for that. Requests under way come to their ends;
    /// whoever has another one waits from now on.
    pub fn hang_up(&self) {
        let mut free = self.free.lock();
        let idle: Vec<_> = free.places.iter_mut().filter_map(Option::take).collect();
        drop(free);
        drop(idle);
    }

    fn call(&self, request: &Request) -> Result<(Reply, Vec<HostFd>)> {
        self.call_with(request, &[])
    }
    fn call_with(&self, request: &Request, also: &[Vec<u8>]) -> Result<(Reply, Vec<HostFd>)> {
        let also = &also[..also.len().min(MAX_ALSO)];
        self.exchange(request, request.changes(), also, || {
            let mut p = self.pending.lock();
            let keep = p.len().saturating_sub(MAX_CLOSES);
            p.split_off(keep)
        })
    }
    /// On a connection of its turn, with handles to close that are asked for when that has come.
    fn exchange(
        &self,
        request: &Request,
        changes: bool,
        also: &[Vec<u8>],
        closes: impl FnOnce() -> Vec<Handle>,
    ) -> Result<(Reply, Vec<HostFd>)> {
        let (place, mut conn) = self.take(changes)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let r = conn.exchange(&request.encode_with(&closes(), also), request.brings_fd());
        match r {
            Ok((reply, fds)) => {
                self.put(place, conn, changes);
                // A malformed reply, or one of another kind, says nothing about the file: an I/O
                // error for the application.
                match reply {
                    Ok(reply) if request.is_answered_by(&reply) => Ok((reply, fds)),
                    Ok(_) | Err(EBADMSG) => Err(EIO),
                    Err(e) => Err(e),
                }
            }
            Err(_) => {
                self.died();
                Err(EIO)
            }
        }
    }

    fn done(&self, request: &Request) -> Result<()> {
        match self.call(request)?.0 {
            Reply::Done => Ok(()),
            _ => Err(EIO),
        }
    }
    fn bytes(&self, request: &Request) -> Result<Vec<u8>> {
        match self.call(request)?.0 {
            Reply::Bytes(b) => Ok(b),
            _ => Err(EIO),
        }
    }
    /// What the new directory was seen to hold, and the old one of a rename.
    fn changed(&self, request: &Request, also: &[Vec<u8>]) -> Result<(Option<Seen>, Option<Seen>)> {
        match self.call_with(request, also)?.0 {
            Reply::Changed { dir, old } => Ok((dir, old)),
            _ => Err(EIO),
        }
    }
    fn node(&self, request: &Request, also: &[Vec<u8>]) -> Result<CreatedFile> {
        made(self.call_with(request, also)?.0)
    }
    fn node_and_fd(&self, request: &Request, also: &[Vec<u8>]) -> Result<(CreatedFile, HostFd)> {
        let (reply, mut fds) = self.call_with(request, also)?;
        let node = made(reply)?;
        match fds.pop() {
            Some(fd) => Ok((node, fd)),
            None => {
                self.close(node.handle);
                Err(ENFILE)
            }
        }
    }

    /// Gives a handle back, some time soon.
    pub fn close(&self, h: Handle) {
        let many = {
            let mut p = self.pending.lock();
            p.push(h);
            p.len() >= MAX_PENDING
        };
        while many && !self.is_dead() && !self.pending.lock().is_empty() {
            if self.done(&Request::Nop).is_err() {
                break;
            }
        }
    }
    /// Gives a handle back now: of a file whose end takes the host time. It waits for its turn as
    /// what changes something does, and is piggybacked on no request meanwhile: the next caller
    /// would wait for the host.
    pub fn close_now(&self, h: Handle) {
        // What fails here has ended the connection, and with it all handles.
        let _ = self.exchange(&Request::Nop, true, &[], || vec![h]);
    }

    /// The root of this name, and whether it may be changed.
    pub fn attach(&self, root: &str) -> Result<(Attr, Handle, bool)> {
        match self
            .call(&Request::Attach {
                root: root.as_bytes().to_vec(),
            })?
            .0
        {
            Reply::Node {
                attr,
                handle,
                writable,
                ..
            } => {
                self.attached.fetch_add(1, Ordering::Relaxed);
                Ok((attr, handle, writable))
            }
            _ => Err(EIO),
        }
    }
    /// Walks `names` (at most [`crate::wire::MAX_NAMES`]) as far as it goes. It stops without an
    /// error behind a file that is no directory. `siblings` are other names in `from` (as many at
    /// most), which are found on the way, or not.
    pub fn walk(
        &self,
        from: Handle,
        names: Vec<Vec<u8>>,
        siblings: Vec<Vec<u8>>,
        then: WalkPurpose,
    ) -> Result<Walked> {
        let (n, others) = (names.len(), siblings.len());
        let request = Request::Walk {
            from,
            names,
            siblings,
            then,
        };
        match self.call(&request)? {
            (
                Reply::Walked {
                    steps,
                    stopped,
                    siblings,
                },
                mut fds,
            ) if steps.len() <= n && siblings.len() <= others => {
                let whole = then == WalkPurpose::Read && steps.len() == n && stopped.is_none();
                Ok(Walked {
                    steps,
                    stopped,
                    siblings,
                    fd: fds.pop().filter(|_| whole),
                })
            }
            _ => Err(EIO),
        }
    }
    pub fn get_attr(&self, file: Handle) -> Result<Attr> {
        match self.call(&Request::GetAttr { file })?.0 {
            Reply::Attr(a) => Ok(a),
            _ => Err(EIO),
        }
    }
    /// Gives the attributes afterwards.
    pub fn set_attr(&self, file: Handle, attr: SetAttr) -> Result<Attr> {
        match self.call(&Request::SetAttr { file, attr })?.0 {
            Reply::Attr(a) => Ok(a),
            _ => Err(EIO),
        }
    }
    /// A host descriptor; and for [`Access::Look`], whether change times are fine
    /// ([`Reply::Opened`]). `EOPNOTSUPP` for it where attributes would not tell of every change.
    pub fn open(&self, file: Handle, access: Access) -> Result<(HostFd, bool)> {
        match self.call(&Request::Open { file, access })? {
            // Without a descriptor: the server gave one, but this process's table is full.
            (Reply::Opened { fine }, mut fds) => Ok((fds.pop().ok_or(ENFILE)?, fine)),
            _ => Err(EIO),
        }
    }
    /// Makes a regular file; the descriptor can read and write.
    pub fn create<'a>(
        &self,
        dir: impl Into<In<'a>>,
        name: &[u8],
        new: NewNode,
    ) -> Result<(CreatedFile, HostFd)> {
        let In { dir, also } = dir.into();
        let name = name.to_vec();
        self.node_and_fd(&Request::Create { dir, name, new }, also)
    }
    /// A regular file without a name.
    pub fn tmpfile(&self, dir: Handle, new: NewNode) -> Result<(CreatedFile, HostFd)> {
        self.node_and_fd(&Request::TmpFile { dir, new }, &[])
    }
    pub fn mkdir<'a>(
        &self,
        dir: impl Into<In<'a>>,
        name: &[u8],
        new: NewNode,
    ) -> Result<CreatedFile> {
        let In { dir, also } = dir.into();
        let name = name.to_vec();
        self.node(&Request::Mkdir { dir, name, new }, also)
    }
    pub fn mknod<'a>(
        &self,
        dir: impl Into<In<'a>>,
        name: &[u8],
        new: NewNode,
    ) -> Result<CreatedFile> {
        let In { dir, also } = dir.into();
        let name = name.to_vec();
        self.node(&Request::Mknod { dir, name, new }, also)
    }
    pub fn symlink<'a>(
        &self,
        dir: impl Into<In<'a>>,
        name: &[u8],
        target: &[u8],
        new: NewNode,
    ) -> Result<CreatedFile> {
        let In { dir, also } = dir.into();
        let request = Request::Symlink {
            dir,
            name: name.to_vec(),
            target: target.to_vec(),
            new,
        };
        self.node(&request, also)
    }
    pub fn link<'a>(
        &self,
        file: Handle,
        dir: impl Into<In<'a>>,
        name: &[u8],
    ) -> Result<Option<Seen>> {
        let In { dir, also } = dir.into();
        let name = name.to_vec();
        Ok(self.changed(&Request::Link { file, dir, name }, also)?.0)
    }
    pub fn unlink<'a>(&self, dir: impl Into<In<'a>>, name: &[u8]) -> Result<Option<Seen>> {
        let In { dir, also } = dir.into();
        let name = name.to_vec();
        Ok(self.changed(&Request::Unlink { dir, name }, also)?.0)
    }
    pub fn rmdir<'a>(&self, dir: impl Into<In<'a>>, name: &[u8]) -> Result<Option<Seen>> {
        let In { dir, also } = dir.into();
        let name = name.to_vec();
        Ok(self.changed(&Request::Rmdir { dir, name }, also)?.0)
    }
    /// Gives what was seen of the new directory, and of the old one.
    pub fn rename<'a>(
        &self,
        dir: Handle,
        name: &[u8],
        new: impl Into<In<'a>>,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(Option<Seen>, Option<Seen>)> {
        let new = new.into();
        let request = Request::Rename {
            dir,
            name: name.to_vec(),
            new_dir: new.dir,
            new_name: new_name.to_vec(),
            flags,
        };
        self.changed(&request, new.also)
    }
    pub fn readlink(&self, file: Handle) -> Result<Vec<u8>> {
        self.bytes(&Request::Readlink { file })
    }
    /// Some entries from a cookie on, the next cookie, and whether that was all.
    pub fn read_dir(&self, dir: Handle, cookie: u64) -> Result<(Vec<Entry>, u64, bool)> {
        match self.call(&Request::ReadDir { dir, cookie })?.0 {
            Reply::Entries { list, next, end } if list.iter().all(|e| e.name.len() <= MAX_NAME) => {
                Ok((list, next, end))
            }
            _ => Err(EIO),
        }
    }
    pub fn stat_fs(&self, file: Handle) -> Result<StatFs> {
        match self.call(&Request::StatFs { file })?.0 {
            Reply::StatFs(s) => Ok(s),
            _ => Err(EIO),
        }
    }
    /// fsync(2) of a file or a directory.
    pub fn sync(&self, file: Handle) -> Result<()> {
        self.done(&Request::Sync { file })
    }
    pub fn get_xattr(&self, file: Handle, name: &[u8]) -> Result<Vec<u8>> {
        self.bytes(&Request::GetXattr {
            file,
            name: name.to_vec(),
        })
    }
    pub fn set_xattr(&self, file: Handle, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        self.done(&Request::SetXattr {
            file,
            name: name.to_vec(),
            value: value.to_vec(),
            flags,
        })
    }
    pub fn list_xattr(&self, file: Handle) -> Result<Vec<Vec<u8>>> {
        let all = self.bytes(&Request::ListXattr { file })?;
        Ok(all
            .split(|b| *b == 0)
            .filter(|n| !n.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }
    pub fn remove_xattr(&self, file: Handle, name: &[u8]) -> Result<()> {
        self.done(&Request::RemoveXattr {
            file,
            name: name.to_vec(),
        })
    }
}
