//! The registry behind `/dev/pts` and `/dev/ptmx`: one for each devpts mount (`newinstance`).

use crate::pty::{Master, Pty, Slave};
use crate::{JobControl, Process};
use abi::Result;
use abi::errno::{EBUSY, EIO, ENOSPC, ENXIO};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use vfs::FileOps;
use vfs::file::{O_ACCMODE, O_NOCTTY, O_WRONLY};
use vfs::vfs::{Device, DeviceOpen};

/// `kernel.pty.max`.
const MAX: u32 = 4096;

/// See the module.
pub struct Devpts {
    me: Weak<Devpts>,
    jobs: Arc<dyn JobControl>,
    state: Mutex<BTreeMap<u32, Weak<Pty>>>,
    /// Owner, group and mode of new slaves: mount options `gid=5,mode=620`.
    pub group: u32,
    pub mode: u32,
}

impl Devpts {
    #[must_use]
    pub fn new(jobs: Arc<dyn JobControl>) -> Arc<Devpts> {
        Arc::new_cyclic(|me| Devpts {
            me: me.clone(),
            jobs,
            state: Mutex::new(BTreeMap::new()),
            group: 5,
            mode: 0o620,
        })
    }

    /// A new pair: the open of `/dev/ptmx`. The slave is locked until TIOCSPTLCK.
    pub fn open_master(&self) -> Result<Arc<Master>> {
        let mut s = self.state.lock();
        let index = (0..MAX).find(|i| !s.contains_key(i)).ok_or(ENOSPC)?;
        let pty = Pty::new(index, self.jobs.clone(), self.me.clone());
        s.insert(index, Arc::downgrade(&pty));
        Ok(Master::new(pty))
    }

    /// Opens `/dev/pts/N`, and makes it the caller's controlling terminal where Linux does.
    pub fn open_slave(&self, index: u32, flags: u32, task: &dyn Any) -> Result<Arc<Slave>> {
        let pty = self
            .state
            .lock()
            .get(&index)
            .and_then(Weak::upgrade)
            .ok_or(ENXIO)?;
        open_slave(&pty, flags, task)
    }

    /// The numbers that `/dev/pts` lists.
    #[must_use]
    pub fn list(&self) -> Vec<u32> {
        self.state.lock().keys().copied().collect()
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
    let may_control = flags & O_NOCTTY == 0 && flags & O_ACCMODE != O_WRONLY && p.leader;
    if may_control && pty.session().is_none() && pty.jobs.controlling(task).is_none() {
        pty.adopt(p.session, p.group);
        pty.jobs.set_controlling(task, Some(pty.clone()));
    }
    Ok(slave)
}

impl Pty {
    /// Opens the slave side again: `/dev/tty` of a process that this terminal controls, or the peer of a
    /// master (`TIOCGPTPEER`).
    pub fn open(self: &Arc<Pty>, flags: u32, task: &dyn Any) -> Result<Arc<Slave>> {
        open_slave(self, flags, task)
    }
}

/// `/dev/ptmx`: character device 5:2.
pub struct PtmxDevice(pub Arc<Devpts>);

impl Device for PtmxDevice {
    fn open(&self, _: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        Ok(self.0.open_master()?)
    }
}

/// `/dev/pts/N`: character devices 136:N.
pub struct SlaveDevice(pub Arc<Devpts>);

impl Device for SlaveDevice {
    fn open(&self, open: &DeviceOpen<'_>) -> Result<Arc<dyn FileOps>> {
        Ok(self
            .0
            .open_slave(vfs::minor(open.rdev), open.flags, open.caller.task)?)
    }
}
