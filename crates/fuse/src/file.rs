//! Open regular files.

use crate::connection::{Answer, Charged, Limits, REQUEST};
use crate::inode::FuseInode;
use crate::pages::Pages;
use crate::proto::{
    FSYNC_DATA, FallocateIn, FlushIn, FsyncIn, IOCTL_DIR, IOCTL_RETRY, IoctlIn, IoctlOut, LseekIn,
    LseekOut, Op, OpenFlags, OpenOut, ReadIn, WRITE_CACHE, WriteIn, WriteOut, parse,
};
use abi::errno::{EFAULT, EINVAL, EIO, ENODEV, ENOMEM, ENOSYS, ENOTTY, ENXIO, EOPNOTSUPP};
use abi::linux::{O_DIRECT, O_DSYNC, O_SYNC, SEEK_DATA, SEEK_HOLE};
use abi::{PAGE_SIZE, Result, Va};
use clas::Mappable;
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::file::{DataOnly, IoctlContext};
use vfs::ucounts::{Charge, Kind};
use vfs::{Credentials, File, FileOps, FileType, Inode, SetAttr, Sink, Source, Stat};
use zerocopy::IntoBytes;

/// What the server has open: told when it goes (RELEASE).
pub struct Handle {
    inode: Arc<FuseInode>,
    pub fh: u64,
    how: OpenFlags,
    /// open(2)'s.
    flags: u32,
    /// The server is told when it goes: what that takes.
    release: Option<Charge>,
}

impl Handle {
    pub fn new(inode: &Arc<FuseInode>, out: OpenOut, flags: u32) -> Handle {
        Handle {
            inode: inode.clone(),
            fh: out.fh,
            how: OpenFlags::from_bits_retain(out.flags),
            flags,
            release: Some(owes(REQUEST)),
        }
    }
    /// Of a server that need not know what is open (`no_open`).
    pub fn none(inode: &Arc<FuseInode>, flags: u32) -> Handle {
        Handle {
            inode: inode.clone(),
            fh: 0,
            how: OpenFlags::KEEP_CACHE,
            flags,
            release: None,
        }
    }
    /// Whether what was read before still holds.
    pub fn keeps_data(&self) -> bool {
        self.how.contains(OpenFlags::KEEP_CACHE)
    }
    /// Whether every read asks the server.
    pub fn is_direct(&self) -> bool {
        self.how.contains(OpenFlags::DIRECT_IO)
    }
    pub fn seekable(&self) -> bool {
        !self
            .how
            .intersects(OpenFlags::NONSEEKABLE | OpenFlags::STREAM)
    }
    /// Reads up to `n` bytes, which are not more than the server takes at once. Less: at the end.
    pub fn read(&self, offset: u64, n: usize) -> Result<Vec<u8>> {
        self.read_as(Op::Read, offset, n, self.flags)
    }
    /// READ, READDIR.
    pub fn read_as(&self, op: Op, offset: u64, n: usize, flags: u32) -> Result<Vec<u8>> {
        let question = ReadIn {
            fh: self.fh,
            offset,
            size: n as u32,
            flags,
            ..ReadIn::default()
        };
        if op == Op::Read {
            self.inode.settle()?;
        }
        self.inode
            .call(None, op, &[question.as_bytes()], Answer::UpTo(n))
    }
    /// Writes bytes, which are not more than the server takes at once; gives how many it took.
    pub fn write(&self, offset: u64, data: &[u8], flags: u32) -> Result<usize> {
        let question = self.write_in(offset, data.len(), 0, flags);
        let parts = [question.as_bytes(), data];
        let call = self.inode.question(Op::Write, &parts, WRITTEN)?;
        taken(&self.inode.conn.call(None, &call)?, data)
    }
    /// As [`Handle::write`], of pages: the server gets it in any case.
    pub fn write_back(&self, offset: u64, data: &[u8]) -> Result<usize> {
        let question = self.write_in(offset, data.len(), WRITE_CACHE, self.flags);
        let parts = [question.as_bytes(), data];
        let call = self.inode.question(Op::Write, &parts, WRITTEN)?;
        taken(&self.inode.conn.call_to_the_end(&call)?, data)
    }
    /// As [`Handle::write_back`], without waiting for it ([`FuseInode::settle`]). `ENOMEM`: whom the
    /// thread acts for has no memory for it.
    pub fn post_write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let question = self.write_in(offset, data.len(), WRITE_CACHE, self.flags);
        let parts = [question.as_bytes(), data];
        let call = self.inode.question(Op::Write, &parts, WRITTEN)?;
        let cred = vfs::caller::client()?.credentials();
        let charged = Charged {
            charge: Some(cred.kmem(data.len() + REQUEST, ENOMEM)?),
            writes: Some(self.inode.clone()),
        };
        self.inode.posts();
        self.inode.conn.post(&call, charged);
        Ok(())
    }
    fn write_in(&self, offset: u64, n: usize, write_flags: u32, flags: u32) -> WriteIn {
        WriteIn {
            fh: self.fh,
            offset,
            size: n as u32,
            write_flags,
            flags,
            ..WriteIn::default()
        }
    }
    /// FSYNC, FSYNCDIR.
    pub fn sync(&self, op: Op, data_only: DataOnly) -> Result<()> {
        let question = FsyncIn {
            fh: self.fh,
            flags: match data_only {
                DataOnly::Yes => FSYNC_DATA,
                DataOnly::No => 0,
            },
            unused: 0,
        };
        let parts = [question.as_bytes()];
        let none = Answer::Exactly(0);
        optional(self.inode.call_known(None, op, &parts, none, ENOSYS))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let (open, op) = match self.inode.file_type() {
            FileType::Directory => (Op::Opendir, Op::Releasedir),
            _ => (Op::Open, Op::Release),
        };
        if let Some(charge) = self.release.take()
            && self.inode.conn.knows(open)
        {
            let (conn, node) = (&self.inode.conn, self.inode.node);
            conn.release(op, node, self.fh, self.flags, Some(charge));
        }
    }
}

/// The answer to WRITE.
const WRITTEN: Answer = Answer::Exactly(size_of::<WriteOut>());

/// How much of the data a server took.
fn taken(answer: &[u8], data: &[u8]) -> Result<usize> {
    let n = parse::<WriteOut>(answer)?.0.size as usize;
    if n > data.len() { Err(EIO) } else { Ok(n) }
}

/// So much of the kernel's memory is whom this thread acts for's, whether there is room or not.
pub fn owes(bytes: usize) -> Charge {
    let client = vfs::caller::client();
    let cred = client.map_or_else(|_| Arc::new(Credentials::root()), |c| c.credentials());
    cred.ucounts().force(Kind::Kmem, bytes as u64)
}

/// What a server does not know has happened.
fn optional(r: Result<Vec<u8>>) -> Result<()> {
    match r {
        Err(ENOSYS) => Ok(()),
        r => r.map(|_| ()),
    }
}

/// What was read ahead of who reads on.
#[derive(Default)]
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
    /// [`FuseInode::changes`] when it was asked for.
    changes: u64,
    /// Where who reads on goes on.
    next: u64,
    /// For the bytes.
    _charge: Option<Charge>,
}

/// An open file.
pub struct OpenFile {
    inode: Arc<FuseInode>,
    handle: Arc<Handle>,
    /// Not held while the server is asked.
    ahead: Mutex<Ahead>,
}

impl OpenFile {
    pub fn open(inode: Arc<FuseInode>, handle: Handle) -> Arc<dyn FileOps> {
        use abi::linux::{O_ACCMODE, O_RDONLY};
        let handle = Arc::new(handle);
        if handle.flags & O_ACCMODE != O_RDONLY {
            let mut all = inode.writers.lock();
            all.retain(|w| w.strong_count() > 0);
            all.push(Arc::downgrade(&handle));
        }
        Arc::new(OpenFile {
            inode,
            handle,
            ahead: Mutex::default(),
        })
    }
    fn limits(&self) -> Limits {
        self.inode.conn.limits()
    }

    fn read_direct(&self, dst: &mut dyn Sink, offset: u64, flags: u32) -> Result<usize> {
        if let Some(p) = self.inode.pages() {
            p.write_back(offset, dst.remaining() as u64)?;
        }
        let most = self.limits().read;
        let mut done = 0;
        while dst.remaining() > 0 {
            let n = dst.remaining().min(most);
            let r = self
                .handle
                .read_as(Op::Read, offset + done as u64, n, flags);
            let bytes = match r {
                Err(_) if done > 0 => break,
                r => r?,
            };
            let put = if bytes.is_empty() {
                0
            } else {
                dst.put(&bytes)?
            };
            done += put;
            if put < n {
                break;
            }
        }
        Ok(done)
    }

    /// The bytes at `at`, if they are known: of a page that is mapped, or read ahead.
    fn known(&self, at: u64, most: usize) -> Option<Vec<u8>> {
        if let Some(bytes) = self.inode.pages().and_then(|p| p.read(at, most)) {
            return Some(bytes);
        }
        let a = self.ahead.lock();
        let skip = usize::try_from(at.checked_sub(a.start)?).ok()?;
        let rest = a.bytes.get(skip..).filter(|r| !r.is_empty())?;
        let holds = a.changes == self.inode.changes.load(Ordering::Relaxed);
        holds.then(|| rest[..most.min(rest.len())].to_vec())
    }

    /// Asks for the bytes at `at`: so many at least, unless the file ends; whole pages, and more for
    /// who reads on. Empty at the end.
    fn fetch(&self, at: u64, want: usize, size: u64) -> Result<Vec<u8>> {
        let page = PAGE_SIZE as usize;
        let limits = self.limits();
        let start = at & !(PAGE_SIZE - 1);
        let skip = (at - start) as usize;
        let goes_on = at == 0 || at == self.ahead.lock().next;
        let least = if goes_on { limits.ahead } else { 0 };
        let rest = (size - start).next_multiple_of(PAGE_SIZE);
        let n = (want + skip)
            .max(least)
            .next_multiple_of(page)
            .min(limits.read & !(page - 1))
            .min(usize::try_from(rest).unwrap_or(usize::MAX));
        let changes = self.inode.changes.load(Ordering::Relaxed);
        let bytes = self.handle.read(start, n)?;
        if bytes.len() < n {
            self.inode.ends_at(start + bytes.len() as u64, changes);
        }
        let found = bytes.get(skip..).unwrap_or_default();
        let found = found[..want.min(found.len())].to_vec();
        let next = start + bytes.len() as u64;
        // Where there is no memory for it, nothing is kept.
        let charge = vfs::caller::client()?
            .credentials()
            .kmem(bytes.len(), ENOMEM);
        let bytes = if charge.is_ok() { bytes } else { Vec::new() };
        *self.ahead.lock() = Ahead {
            start,
            next,
            bytes,
            changes,
            _charge: charge.ok(),
        };
        Ok(found)
    }

    fn read_known(&self, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        /// What is copied at once.
        const PIECE: usize = 128 << 10;
        let end = offset.saturating_add(dst.remaining() as u64);
        let auto = !self.limits().explicit;
        let size = if auto || end > self.inode.known_size() {
            self.inode.size()?
        } else {
            self.inode.known_size()
        };
        let mut done = 0;
        while dst.remaining() > 0 && offset + (done as u64) < size {
            let at = offset + done as u64;
            let left = usize::try_from(size - at).unwrap_or(usize::MAX);
            let want = dst.remaining().min(left).min(PIECE);
            // What is mapped may be newer than what the server has.
            let pages = self.inode.pages();
            let missing = pages.as_ref().map_or(u64::MAX, |p| p.missing(at));
            let want = match missing {
                0 => want,
                n => want.min(usize::try_from(n).unwrap_or(usize::MAX)),
            };
            let bytes = match self.known(at, want) {
                Some(bytes) => Ok(bytes),
                None => self.fetch(at, want, size),
            };
            let bytes = match bytes {
                Err(_) if done > 0 => break,
                r => r?,
            };
            if bytes.is_empty() {
                break;
            }
            match dst.put(&bytes) {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes there, or at the end. Gives how much, and the position behind it.
    fn put(&self, file: &File, src: &mut dyn Source, at: Option<u64>) -> Result<(usize, u64)> {
        let most = self.limits().write;
        self.drop_privileges(file)?;
        let mut end = at.unwrap_or(0);
        let mut done = 0;
        while src.remaining() > 0 || done == 0 {
            let mut data = vec![0; src.remaining().min(most)];
            if data.is_empty() {
                break;
            }
            // Application memory is looked at before anything is locked.
            match take(src, &mut data) {
                Err(_) if done > 0 => break,
                r => data.truncate(r?),
            }
            let _end = at.is_none().then(|| self.inode.appends.lock());
            if at.is_none() {
                end = self.inode.size()?;
            }
            let n = match self.handle.write(end, &data, file.flags()) {
                Err(_) if done > 0 => break,
                r => r?,
            };
            if n == 0 && done == 0 && !self.handle.is_direct() {
                return Err(EIO);
            }
            self.inode.written(end, &data[..n]);
            (done, end) = (done + n, end + n as u64);
            if n < data.len() {
                break;
            }
        }
        if done > 0 && file.flags() & O_DSYNC != 0 {
            let data_only = match file.flags() & O_SYNC == O_SYNC {
                true => DataOnly::No,
                false => DataOnly::Yes,
            };
            self.handle.sync(Op::Fsync, data_only)?;
        }
        Ok((done, end))
    }

    /// A write takes set-id bits away (`file_remove_privs`).
    fn drop_privileges(&self, file: &File) -> Result<()> {
        let p = self.inode.known_stat()?.perm();
        if let Some(mode) = vfs::ops::without_privileges(p, &file.cred) {
            let a = SetAttr {
                mode: Some(mode),
                ..SetAttr::default()
            };
            self.inode.change(None, &a, None)?;
        }
        Ok(())
    }
}

/// Fills a buffer from a source; gives how far.
fn take(src: &mut dyn Source, data: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < data.len() {
        match src.take(&mut data[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    if done == 0 { Err(EFAULT) } else { Ok(done) }
}

impl FileOps for OpenFile {
    fn read(&self, file: &File, dst: &mut dyn Sink, offset: u64) -> Result<usize> {
        if self.handle.is_direct() || file.flags() & O_DIRECT != 0 {
            self.read_direct(dst, offset, file.flags())
        } else {
            self.read_known(dst, offset)
        }
    }
    fn write(&self, file: &File, src: &mut dyn Source, offset: u64) -> Result<usize> {
        Ok(self.put(file, src, Some(offset))?.0)
    }
    fn append(&self, file: &File, src: &mut dyn Source) -> Result<(usize, u64)> {
        self.put(file, src, None)
    }
    fn append_offset(&self) -> Result<u64> {
        self.inode.size()
    }
    fn seekable(&self) -> bool {
        self.handle.seekable()
    }
    fn seek_from(&self, whence: u32, offset: i64) -> Result<u64> {
        if whence == 2 {
            return self.inode.size()?.checked_add_signed(offset).ok_or(EINVAL);
        }
        if !matches!(whence, SEEK_DATA | SEEK_HOLE) {
            return Err(EINVAL);
        }
        let at = u64::try_from(offset).map_err(|_| ENXIO)?;
        let question = LseekIn {
            fh: self.handle.fh,
            offset: at,
            whence,
            unused: 0,
        };
        let answer = Answer::Exactly(size_of::<LseekOut>());
        let parts = [question.as_bytes()];
        match self
            .inode
            .call_known(None, Op::Lseek, &parts, answer, ENOSYS)
        {
            Err(ENOSYS) => {
                let size = self.inode.size()?;
                match whence {
                    _ if at >= size => Err(ENXIO),
                    SEEK_DATA => Ok(at),
                    _ => Ok(size),
                }
            }
            r => Ok(parse::<LseekOut>(&r?)?.0.offset),
        }
    }
    /// What is known: descriptors are asked about by their path.
    fn stat(&self) -> Result<Stat> {
        self.inode.known_stat()
    }
    fn mappable(&self) -> Result<Arc<dyn Mappable>> {
        Ok(self
            .inode
            .pages_or(|| Pages::new(&self.inode, &self.handle))?)
    }
    fn may_map_shared(&self) -> Result<()> {
        if self.handle.is_direct() {
            Err(ENODEV)
        } else {
            Ok(())
        }
    }
    fn truncate(&self, size: u64) -> Result<()> {
        let a = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.inode.change(None, &a, Some(self.handle.fh))
    }
    fn allocate(&self, mode: i32, offset: u64, length: u64) -> Result<()> {
        use abi::linux::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
        let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
        if mode as u32 & !known != 0 {
            return Err(EOPNOTSUPP);
        }
        let question = FallocateIn {
            fh: self.handle.fh,
            offset,
            length,
            mode: mode as u32,
            unused: 0,
        };
        let parts = [question.as_bytes()];
        let none = Answer::Exactly(0);
        self.inode
            .call_known(None, Op::Fallocate, &parts, none, EOPNOTSUPP)?;
        match mode as u32 & FALLOC_FL_KEEP_SIZE {
            0 => self.inode.grew_to(offset.saturating_add(length)),
            _ => self.inode.attributes_changed(),
        }
        self.inode.data_changed(offset, length);
        Ok(())
    }
    fn sync(&self, data_only: DataOnly) -> Result<()> {
        if let Some(p) = self.inode.pages() {
            p.write_back(0, u64::MAX)?;
        }
        self.inode.settle()?;
        let r = self.handle.sync(Op::Fsync, data_only);
        self.inode.take_error().and(r)
    }
    fn short_is_final(&self) -> bool {
        true
    }
    fn answers_flag_ioctls(&self) -> bool {
        true
    }
    /// FLUSH: at each close, waited for.
    fn flush(&self, _: &File, table: u64) -> Result<()> {
        self.inode.good()?;
        if self.handle.how.contains(OpenFlags::NOFLUSH) {
            return Ok(());
        }
        if let Some(p) = self.inode.pages() {
            Mappable::write_back(&*p, 0, u64::MAX);
        }
        let written = self.inode.take_error();
        let question = FlushIn {
            fh: self.handle.fh,
            lock_owner: table,
            ..FlushIn::default()
        };
        let parts = [question.as_bytes()];
        let call = self.inode.question(Op::Flush, &parts, Answer::Exactly(0))?;
        let conn = &self.inode.conn;
        let told = conn.if_known(Op::Flush, ENOSYS, || conn.call_to_the_end(&call));
        written.and(optional(told))
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        ioctl(&self.inode, self.handle.fh, cx, cmd, arg)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a server says to an ioctl(2): its number tells what is copied (`fuse_do_ioctl`, restricted).
pub fn ioctl(inode: &FuseInode, fh: u64, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
    let size = (cmd >> 16 & 0x3fff) as usize;
    let (writes, reads) = (cmd >> 30 & 1 != 0, cmd >> 31 & 1 != 0);
    let is_dir = inode.file_type() == FileType::Directory;
    if is_dir && !inode.conn.limits().ioctl_dir {
        return Err(ENOTTY);
    }
    let mut data = vec![0; if writes { size } else { 0 }];
    cx.copy_in(Va(arg), &mut data)?;
    let question = IoctlIn {
        fh,
        flags: if is_dir { IOCTL_DIR } else { 0 },
        cmd,
        arg,
        in_size: data.len() as u32,
        out_size: if reads { size as u32 } else { 0 },
    };
    let answer = Answer::UpTo(size_of::<IoctlOut>() + question.out_size as usize);
    let parts = [question.as_bytes(), &data];
    let a = inode.call_known(None, Op::Ioctl, &parts, answer, ENOTTY)?;
    let (out, data) = parse::<IoctlOut>(&a)?;
    // It may not choose what is copied.
    if out.flags & IOCTL_RETRY != 0 {
        return Err(EIO);
    }
    if let Ok(value) = u64::try_from(out.result) {
        cx.copy_out(Va(arg), data)?;
        return Ok(value);
    }
    Err(abi::Errno::new(out.result.saturating_neg()).unwrap_or(EIO))
}
