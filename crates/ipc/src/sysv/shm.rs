//! Shared memory segments (`shmget(2)`, `shmat(2)`).
//!
//! A segment is an unnamed file; each `shmat(2)` maps it and keeps an [`Attachment`] for as long as
//! anything of that mapping is left, in any process. A removed segment goes with its last
//! attachment.

use super::{IpcNamespace, Limit, Numbers, Object, Perm, READ, WRITE, now};
use abi::errno::EINVAL;
use abi::{PAGE_SIZE, Result};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::{Credentials, File};

pub const SHM_RDONLY: u32 = 0o10000;
pub const SHM_RND: u32 = 0o20000;
pub const SHM_REMAP: u32 = 0o40000;
pub const SHM_EXEC: u32 = 0o100_000;
pub const SHM_HUGETLB: u32 = 0o4000;
pub const SHM_LOCK: u32 = 11;
pub const SHM_UNLOCK: u32 = 12;
pub const SHM_STAT: u32 = 13;
pub const SHM_INFO: u32 = 14;
pub const SHM_STAT_ANY: u32 = 15;
/// In `shm_perm.mode`: it goes with its last attachment; it is locked.
const SHM_DEST: u32 = 0o1000;
const SHM_LOCKED: u32 = 0o2000;

/// `kernel.shmmax` and `kernel.shmall` at first.
pub const SHMMAX: u64 = u64::MAX - (1 << 24);
pub const SHMALL: u64 = SHMMAX;

/// A segment.
pub struct Shm {
    pub id: i32,
    pub size: u64,
    pub file: Arc<File>,
    ns: Weak<IpcNamespace>,
    state: Mutex<State>,
}

struct State {
    perm: Perm,
    atime: i64,
    dtime: i64,
    ctime: i64,
    cpid: i32,
    lpid: i32,
    /// Mappings that were made and not yet wholly undone.
    attached: usize,
}

/// One `shmat(2)`.
pub struct Attachment {
    pub shm: Arc<Shm>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let last = {
            let mut s = self.shm.state.lock();
            s.attached -= 1;
            s.dtime = now();
            s.attached == 0 && s.perm.mode & SHM_DEST != 0
        };
        if last && let Some(ns) = self.shm.ns.upgrade() {
            ns.shm.remove(self.shm.id);
        }
    }
}

impl Object for Shm {
    fn perm<R>(&self, f: impl FnOnce(&Perm) -> R) -> R {
        f(&self.state.lock().perm)
    }
    fn removed(&self) {
        if let Some(ns) = self.ns.upgrade() {
            ns.shm_pages.fetch_sub(pages(self.size), Ordering::Relaxed);
        }
    }
}

fn pages(size: u64) -> u64 {
    size.div_ceil(PAGE_SIZE)
}

/// Whether a segment bears the mark of SHM_LOCK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    No,
    Yes,
}

impl Shm {
    /// `ENOSPC` where the namespace has as many pages as it may.
    pub fn new(
        ns: &IpcNamespace,
        id: i32,
        perm: Perm,
        size: u64,
        file: Arc<File>,
        pid: i32,
    ) -> Result<Arc<Shm>> {
        ns.count(&ns.shm_pages, pages(size), Limit::ShmAll)?;
        Ok(Arc::new(Shm {
            id,
            size,
            file,
            ns: ns.me.clone(),
            state: Mutex::new(State {
                perm,
                atime: 0,
                dtime: 0,
                ctime: now(),
                cpid: pid,
                lpid: 0,
                attached: 0,
            }),
        }))
    }
    /// `EINVAL` where an existing segment is smaller than asked.
    pub fn fits(&self, size: u64) -> Result<()> {
        if self.size < size {
            Err(EINVAL)
        } else {
            Ok(())
        }
    }
    /// `shmat(2)`: the caller maps the file and keeps the attachment with the mapping.
    pub fn attach(
        self: &Arc<Shm>,
        cred: &Credentials,
        flags: u32,
        pid: i32,
    ) -> Result<Arc<Attachment>> {
        let mut asked = READ;
        if flags & SHM_RDONLY == 0 {
            asked |= WRITE;
        }
        if flags & SHM_EXEC != 0 {
            asked |= 0o111;
        }
        let mut s = self.state.lock();
        s.perm.check(cred, asked)?;
        s.attached += 1;
        s.atime = now();
        s.lpid = pid;
        drop(s);
        Ok(Arc::new(Attachment { shm: self.clone() }))
    }
    /// Who detached last.
    pub fn detached_by(&self, pid: i32) {
        self.state.lock().lpid = pid;
    }
    /// IPC_RMID.
    pub fn remove(&self, cred: &Credentials) -> Result<()> {
        let unused = {
            let mut s = self.state.lock();
            s.perm.check_owner(cred)?;
            s.perm.mode |= SHM_DEST;
            s.perm.key = super::IPC_PRIVATE;
            s.attached == 0
        };
        if let Some(ns) = self.ns.upgrade() {
            if unused {
                ns.shm.remove(self.id);
            } else {
                ns.shm.forget_key(self.id);
            }
        }
        Ok(())
    }
    /// IPC_SET.
    pub fn set(&self, cred: &Credentials, raw: &[u8; Perm::SIZE]) -> Result<()> {
        let mut s = self.state.lock();
        s.perm.check_owner(cred)?;
        s.perm.set(raw);
        s.ctime = now();
        Ok(())
    }
    /// SHM_LOCK and SHM_UNLOCK: nothing is pinned, the mark is kept. The caller checks
    /// RLIMIT_MEMLOCK.
    pub fn set_locked(&self, cred: &Credentials, to: Locked) -> Result<()> {
        let mut s = self.state.lock();
        if !cred.has(vfs::Caps::IPC_LOCK) {
            s.perm.check_owner(cred)?;
        }
        s.perm.mode = (s.perm.mode & !SHM_LOCKED) | if to == Locked::Yes { SHM_LOCKED } else { 0 };
        Ok(())
    }
    /// `struct shmid64_ds`. `nattch`: how many mappings there are, which the caller counts.
    #[must_use]
    pub fn encode(&self, nattch: u64) -> Vec<u8> {
        let s = self.state.lock();
        let mut v = s.perm.encode();
        v.extend_from_slice(&self.size.to_le_bytes());
        for t in [s.atime, s.dtime, s.ctime] {
            v.extend_from_slice(&t.to_le_bytes());
        }
        v.extend_from_slice(&s.cpid.to_le_bytes());
        v.extend_from_slice(&s.lpid.to_le_bytes());
        v.extend_from_slice(&nattch.to_le_bytes());
        v.resize(112, 0);
        v
    }
    /// Its line of `/proc/sysvipc/shm`; `nattch` as for [`Shm::encode`]. Which of its pages there
    /// are is not told.
    #[must_use]
    pub fn line(&self, nattch: u64, to: &dyn Numbers) -> String {
        let s = self.state.lock();
        let (head, owners) = s.perm.columns(self.id, to);
        let [creator, last] = [s.cpid, s.lpid].map(|p| to.process(p));
        format!(
            "{head} {:21} {creator:5} {last:5}  {nattch:5} {owners} {:10} {:10} {:10} {:21} {:21}\n",
            self.size, s.atime, s.dtime, s.ctime, 0, 0
        )
    }
    /// Whether any mapping is left.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.state.lock().attached > 0
    }
}
