//! The registry behind `/dev/pts` and `/dev/ptmx`: one for each devpts mount (`newinstance`).

use crate::pty::{Master, Pty, Slave};
use crate::{JobControl, Process};
use abi::Result;
use abi::errno::{EBUSY, EIO, ENOMEM, ENOSPC, ENXIO};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use vfs::file::{O_ACCMODE, O_NOCTTY, O_RDONLY, O_RDWR};
use vfs::ucounts::Charge;
use vfs::userns::UserNs;
use vfs::vfs::{Device, DeviceOpen};
use vfs::{Credentials, FileOps};

/// `kernel.pty.max`.
const MAX: u32 = 4096;
/// What is kept of these for root, and for programs that are started from outside
/// (`kernel.pty.reserve`).
const RESERVE: u32 = 1024;
/// What a pair takes of the kernel's memory with all buffers full, bytes.
const PAIR: usize = 80 << 10;

/// See the module.
pub struct Devpts {
    me: Weak<Devpts>,
    jobs: Arc<dyn JobControl>,
    state: Mutex<BTreeMap<u32, Weak<Pty>>>,
}

impl Devpts {
    #[must_use]
    pub fn new(jobs: Arc<dyn JobControl>) -> Arc<Devpts> {
        Arc::new_cyclic(|me| Devpts {
            me: me.clone(),
            jobs,
            state: Mutex::new(BTreeMap::new()),
        })
    }

    /// A new pair of root's: see [`Devpts::open_master_as`].
    pub fn open_master(&self) -> Result<Arc<Master>> {
        self.make(((0, 0), UserNs::default()), None, MAX)
    }

    /// A new pair: the open of `/dev/ptmx` by who has these credentials. The slave is locked until
    /// TIOCSPTLCK.
    pub fn open_master_as(&self, cred: &Credentials) -> Result<Arc<Master>> {
        let memory = cred.kmem(PAIR, ENOMEM)?;
        let opener = ((cred.fsuid, cred.fsgid), cred.user_ns.clone());
        let most = if cred.passes_limits() {
            MAX
        } else {
            MAX - RESERVE
        };
        self.make(opener, Some(memory), most)
    }

    fn make(
        &self,
        opener: ((u32, u32), UserNs),
        memory: Option<Charge>,
        most: u32,
    ) -> Result<Arc<Master>> {
        let mut s = self.state.lock();
        let index = (0..most).find(|i| !s.contains_key(i)).ok_or(ENOSPC)?;
        let pty = Pty::new(index, opener, self.jobs.clone(), self.me.clone(), memory);
        s.insert(index, Arc::downgrade(&pty));
        Ok(Master::new(pty))
    }

    /// Opens `/dev/pts/N`, and makes it the caller's controlling terminal where Linux does.
    pub fn open_slave(&self, index: u32, flags: u32, task: &dyn Any) -> Result<Arc<Slave>> {
        let pty = self.find(index).ok_or(ENXIO)?;
        open_slave(&pty, flags, task)
    }

    /// The numbers that `/dev/pts` lists.
    #[must_use]
    pub fn list(&self) -> Vec<u32> {
        self.state.lock().keys().copied().collect()
    }

    /// The pair with this number.
    #[must_use]
    pub fn find(&self, index: u32) -> Option<Arc<Pty>> {
        self.state.lock().get(&index)?.upgrade()
    }

    pub(crate) fn forget(&self, index: u32) {
        self.state.lock().remove(&index);
    }
}

/// Opens the slave side: `/dev/pts/N`, `TIOCGPTPEER`, or `/dev/tty`.
pub(crate) fn open_slave(pty: &Arc<Pty>, flags: u32, task: &dyn Any) -> Result<Arc<Slave>> {
    let p: Process = pty.jobs.process(task);
    {
        let s = pty.state.lock();
        if !s.master_open || s.locked {
            return Err(EIO);
        }
        if s.exclusive && !p.admin {
            return Err(EBUSY);
        }
    }
    let slave = Slave::new(pty);
    // A terminal that can be written only gives nobody the rights of a controlling one
    // (`tty_open_proc_set_tty`).
    let reads = matches!(flags & O_ACCMODE, O_RDONLY | O_RDWR);
    let may_control = flags & O_NOCTTY == 0 && reads && p.leader;
    if may_control && pty.session().is_none() && pty.jobs.controlling(task).is_none() {
        pty.adopt(p.session, p.group);
        pty.jobs.set_controlling(task, Some(pty.clone()));
    }
    Ok(slave)
}

impl Pty {
    /// Opens the slave side again: `/dev/tty` of a process that this terminal controls, or the peer
    /// of a master (`TIOCGPTPEER`).
    pub fn open(self: &Arc<Pty>, flags: u32, task: &dyn Any) -> Result<Arc<Slave>> {
        open_slave(self, flags, task)
    }
}

/// `/dev/pts/N`: character devices 136:N.
pub struct SlaveDevice(pub Arc<Devpts>);

impl Device for SlaveDevice {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        let pty = self.0.find(vfs::minor(open.rdev)).ok_or(ENXIO)?;
        // The number may be another's by now, and a node that somebody made is none of devpts's.
        if !pty.has_node(open.path.inode()?) {
            return Err(EIO);
        }
        Ok(open_slave(&pty, open.flags, open.caller.task)?)
    }
}
