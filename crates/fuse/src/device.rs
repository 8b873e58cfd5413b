//! `/dev/fuse` (fuse(4)): a server reads requests here, one a read, and writes answers, one a write,
//! and what it tells unasked.

use crate::connection::Connection;
use crate::proto::{
    NotifyDeleteOut, NotifyEntryOut, NotifyInodeOut, NotifyStoreOut, OutHeader, notify, parse,
};
use abi::errno::{EFAULT, EINVAL, ENOENT, ENOTTY, EPERM};
use abi::{Result, Va};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::file::IoctlContext;
use vfs::vfs::DeviceOpen;
use vfs::{Dentry, File, FileOps, Sink, Source, Stat};
use wait::{Events, WaitQueue};
use zerocopy::FromBytes;

/// `FUSE_DEV_IOC_CLONE`: this device becomes one more of another's connection.
const CLONE: u32 = 0x8004_e500;

/// Devices have numbers of their own: who has read a request is who may answer it.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// An open `/dev/fuse`.
pub struct Device {
    number: u64,
    connection: OnceLock<Arc<Connection>>,
    /// Servers that wait for requests here.
    readers: Arc<WaitQueue>,
    /// Held while it gets its connection.
    attaching: Mutex<()>,
}

/// Opens `/dev/fuse`.
pub struct OpenDevice;

impl vfs::vfs::Device for OpenDevice {
    fn open(&self, _: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(Device {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            connection: OnceLock::new(),
            readers: Arc::default(),
            attaching: Mutex::new(()),
        }))
    }
}

impl Device {
    /// Gives it a connection, which `make` makes with this as its only device. `e` where it has one.
    pub(crate) fn attach(
        &self,
        e: abi::Errno,
        make: impl FnOnce((u64, Arc<WaitQueue>)) -> Arc<Connection>,
    ) -> Result<Arc<Connection>> {
        let _one = self.attaching.lock();
        if self.connection.get().is_some() {
            return Err(e);
        }
        let me = (self.number, self.readers.clone());
        Ok(self.connection.get_or_init(|| make(me)).clone())
    }
    /// The root of what its connection serves, where it has one: `EINVAL` where that is mounted
    /// nowhere any more.
    pub(crate) fn root(&self) -> Option<Result<Arc<Dentry>>> {
        let root = self.connection.get()?.root.get().and_then(Weak::upgrade);
        Some(root.filter(|d| d.sb().is_mounted()).ok_or(EINVAL))
    }
    /// `EPERM` where nothing is mounted yet.
    fn connection(&self) -> Result<&Arc<Connection>> {
        self.connection.get().ok_or(EPERM)
    }
    /// What a server tells unasked (`fuse_notify`); `code` is the header's.
    fn told(&self, c: &Connection, code: i32, src: &mut dyn Source) -> Result<()> {
        match code {
            // (Nobody waits: files are always ready.)
            notify::POLL => Ok(()),
            notify::INVAL_INODE => {
                let body = take(src, size_of::<NotifyInodeOut>())?;
                let (n, rest) = notice::<NotifyInodeOut>(&body)?;
                exactly(rest, 0)?;
                c.invalidate(n.node, n.offset, n.len)
            }
            notify::INVAL_ENTRY => {
                let body = take(src, NAMED)?;
                let (n, name) = notice::<NotifyEntryOut>(&body)?;
                exactly(name, n.namelen as usize + 1)?;
                c.forget_names(n.parent)
            }
            notify::DELETE => {
                let body = take(src, NAMED)?;
                let (n, name) = notice::<NotifyDeleteOut>(&body)?;
                exactly(name, n.namelen as usize + 1)?;
                c.forget_names(n.parent)
            }
            // The pages are got when they are wanted.
            notify::STORE => {
                let body = take(src, size_of::<NotifyStoreOut>())?;
                let (n, _) = notice::<NotifyStoreOut>(&body)?;
                let offset = i64::try_from(n.offset).map_err(|_| EINVAL)?;
                c.stored(n.node, offset, i64::from(n.size))
            }
            _ => Err(EINVAL),
        }
    }
}

/// The longest of what has a name.
const NAMED: usize = size_of::<NotifyDeleteOut>() + crate::proto::NAME_MAX + 1;

fn exactly(name: &[u8], len: usize) -> Result<()> {
    if name.len() == len {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// What a notice begins with.
fn notice<T: FromBytes>(bytes: &[u8]) -> Result<(T, &[u8])> {
    parse(bytes).map_err(|_| EINVAL)
}

/// Up to `most` bytes of a write.
fn take(src: &mut dyn Source, most: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; src.remaining().min(most)];
    let mut done = 0;
    while done < bytes.len() {
        match src.take(&mut bytes[done..])? {
            0 => return Err(EFAULT),
            n => done += n,
        }
    }
    Ok(bytes)
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(c) = self.connection.get() {
            c.remove_device(self.number);
        }
    }
}

impl FileOps for Device {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        let c = self.connection()?;
        let request = c.next(self.number, dst.remaining())?;
        let mut done = 0;
        while done < request.len() {
            match dst.put(&request[done..]) {
                Ok(n) if n > 0 => done += n,
                _ => {
                    c.not_read(&request);
                    return Err(EFAULT);
                }
            }
        }
        Ok(done)
    }
    fn write(&self, _: &File, src: &mut dyn Source, _: u64) -> Result<usize> {
        let c = self.connection()?;
        let len = src.remaining();
        if len < size_of::<OutHeader>() {
            return Err(EINVAL);
        }
        let head = take(src, size_of::<OutHeader>())?;
        let (h, _) = parse::<OutHeader>(&head)?;
        if h.len as usize != len {
            return Err(EINVAL);
        }
        if h.unique == 0 {
            self.told(c, h.error, src)?;
            return Ok(len);
        }
        let most = c.expects(self.number, &h)?;
        let body = take(src, most)?;
        c.answer(self.number, &h, body)?;
        Ok(len)
    }
    fn can_splice(&self) -> bool {
        true
    }
    /// A request, or an answer, is one.
    fn moves_messages(&self) -> bool {
        true
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        let now = self.connection().map_or(Events::ERR, |c| c.readiness());
        now & (mask | Events::ALWAYS)
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.readers)
    }
    fn signals_owner(&self) -> bool {
        true
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        if cmd != CLONE {
            return Err(ENOTTY);
        }
        let mut fd = [0; 4];
        cx.copy_in(Va(arg), &mut fd)?;
        let other = cx.file(i32::from_ne_bytes(fd)).map_err(|_| EINVAL)?;
        let theirs = other.ops::<Device>().ok_or(EINVAL)?;
        if other.cred.user_ns != cx.credentials().user_ns {
            return Err(EINVAL);
        }
        let c = theirs.connection()?;
        let made = self.attach(EINVAL, |(number, queue)| {
            c.add_device(number, &queue);
            c.clone()
        });
        made.map(|_| 0)
    }
    fn stat(&self) -> Result<Stat> {
        Ok(vfs::file::anon_stat())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What servers tell of files.
impl Connection {
    /// `FUSE_NOTIFY_INVAL_INODE`: attributes, and data from `offset` on (none where it is negative;
    /// all that follows where `len` is not above zero).
    fn invalidate(&self, node: u64, offset: i64, len: i64) -> Result<()> {
        let inode = self.find(node).ok_or(ENOENT)?;
        inode.attributes_changed();
        if let Ok(offset) = u64::try_from(offset) {
            let len = u64::try_from(len).ok().filter(|n| *n > 0);
            inode.data_changed(offset, len.unwrap_or(u64::MAX));
        }
        Ok(())
    }
    /// `FUSE_NOTIFY_STORE`.
    fn stored(&self, node: u64, offset: i64, len: i64) -> Result<()> {
        self.invalidate(node, offset, len)
    }
    /// `FUSE_NOTIFY_INVAL_ENTRY`, `FUSE_NOTIFY_DELETE`: all names of the directory are asked for
    /// again.
    fn forget_names(&self, parent: u64) -> Result<()> {
        let dir = self.find(parent).ok_or(ENOENT)?;
        dir.forget_names();
        Ok(())
    }
}
