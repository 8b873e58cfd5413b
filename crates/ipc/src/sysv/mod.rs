//! System V IPC (`sysvipc(7)`; Linux's `ipc/`): shared memory, semaphores, message queues.
//!
//! An [`IpcNamespace`] holds the objects of a container (the POSIX message queues are
//! [`crate::mqueue`]'s), each kind in a [`Registry`] by number and
//! by key. An identifier is `seq << 15 | index`, so that one of a removed object is not one of its
//! successor's. The application's structures are laid out here ([`Perm::encode`] and each object's
//! `encode`).
//!
//! Lock order: `Registry` → an object's state → wait queues. An object that is removed while
//! someone waits for it says so by `EIDRM`.

mod limits;
pub mod msg;
pub mod sem;
pub mod shm;

pub use limits::{Limit, Limits};

use abi::Result;
use abi::errno::{EACCES, EEXIST, EINVAL, ENOENT, ENOSPC, EPERM};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::ucounts::{Charge, Kind};
use vfs::userns::UserNs;
use vfs::{Caps, Credentials};

pub const IPC_CREAT: u32 = 0o1000;
pub const IPC_EXCL: u32 = 0o2000;
pub const IPC_NOWAIT: u32 = 0o4000;
pub const IPC_PRIVATE: i32 = 0;

pub const IPC_RMID: u32 = 0;
pub const IPC_SET: u32 = 1;
pub const IPC_STAT: u32 = 2;
pub const IPC_INFO: u32 = 3;

/// Rights that are asked for, in all three places of a mode.
pub const READ: u32 = 0o444;
pub const WRITE: u32 = 0o222;

/// The most objects of one kind, whatever the namespace allows (`IPCMNI`).
pub const MAX_OBJECTS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 15;

/// Seconds since the epoch.
pub(crate) fn now() -> i64 {
    vfs::now() / 1_000_000_000
}

/// Who owns an object, and who may use it.
#[derive(Clone, Debug)]
pub struct Perm {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
    /// Whose administrators may all.
    pub user: UserNs,
    seq: u16,
}

impl Perm {
    /// `sizeof(struct ipc64_perm)`.
    pub const SIZE: usize = 48;

    /// `ipcperms`: `EACCES` unless every right of `flags` is granted.
    pub fn check(&self, cred: &Credentials, flags: u32) -> Result<()> {
        let asked = (flags >> 6 | flags >> 3 | flags) & 7;
        let mut granted = self.mode;
        if cred.euid == self.cuid || cred.euid == self.uid {
            granted >>= 6;
        } else if self.in_group(cred, self.cgid) || self.in_group(cred, self.gid) {
            granted >>= 3;
        }
        if asked & !granted & 7 != 0 && !cred.has_in(&self.user, Caps::IPC_OWNER) {
            return Err(EACCES);
        }
        Ok(())
    }
    fn in_group(&self, cred: &Credentials, gid: u32) -> bool {
        cred.egid == gid || cred.groups.binary_search(&gid).is_ok()
    }
    /// Removing and changing: the owner, the creator, the administrator.
    pub fn check_owner(&self, cred: &Credentials) -> Result<()> {
        if cred.euid == self.cuid
            || cred.euid == self.uid
            || cred.has_in(&self.user, Caps::SYS_ADMIN)
        {
            Ok(())
        } else {
            Err(EPERM)
        }
    }
    /// IPC_SET, from the application's `struct ipc64_perm`.
    pub fn set(&mut self, raw: &[u8; Self::SIZE]) {
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        self.uid = word(4);
        self.gid = word(8);
        self.mode = (self.mode & !0o777) | (word(20) & 0o777);
    }
    /// The columns of `/proc/sysvipc` that each kind begins with, and those of the owners.
    fn columns(&self, id: i32, to: &dyn Numbers) -> (String, String) {
        let owners = format!(
            "{:5} {:5} {:5} {:5}",
            to.uid(self.uid),
            to.gid(self.gid),
            to.uid(self.cuid),
            to.gid(self.cgid)
        );
        (format!("{:10} {id:10}  {:4o}", self.key, self.mode), owners)
    }
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut v = self.key.to_le_bytes().to_vec();
        for n in [self.uid, self.gid, self.cuid, self.cgid, self.mode] {
            v.extend_from_slice(&n.to_le_bytes());
        }
        v.extend_from_slice(&self.seq.to_le_bytes());
        v.resize(Self::SIZE, 0);
        v
    }
}

/// How the reader of `/proc/sysvipc` sees owners and processes.
pub trait Numbers {
    fn uid(&self, id: u32) -> u32;
    fn gid(&self, id: u32) -> u32;
    fn process(&self, id: i32) -> i32;
}

/// What a registry asks of its objects.
pub trait Object {
    /// Runs `f` with its permissions.
    fn perm<R>(&self, f: impl FnOnce(&Perm) -> R) -> R;
    /// It is out of the registry: waiters learn it.
    fn removed(&self);
}

/// The index in an identifier.
const fn index_of(id: i32) -> u32 {
    id as u32 & ((1 << INDEX_BITS) - 1)
}

struct Entry<T> {
    id: i32,
    key: i32,
    object: Arc<T>,
    _counted: Charge,
}

struct Inner<T> {
    by_index: BTreeMap<u32, Entry<T>>,
    by_key: HashMap<i32, i32>,
    /// The index that was given last.
    last: Option<u32>,
    seq: u16,
    /// The identifier that the next object is to have (`kernel.shm_next_id` and its kin).
    next_id: Option<i32>,
}

impl<T> Inner<T> {
    /// An index and a sequence number for one more object (`ipc_idr_alloc`): the indexes are used
    /// in turns, and each turn has another sequence number.
    fn take_index(&mut self) -> Result<(u32, u16)> {
        /// Indexes of a turn, at least (`ipc_min_cycle`).
        const TURN: usize = 64;
        if let Some(id) = self.next_id.take() {
            let index = self.free_from(index_of(id));
            return match index as usize {
                MAX_OBJECTS.. => Err(ENOSPC),
                _ => Ok((index, (id >> INDEX_BITS) as u16)),
            };
        }
        let end = (self.by_index.len() * 3 / 2).clamp(TURN, MAX_OBJECTS) as u32;
        let mut index = self.free_from(self.last.map_or(0, |last| last + 1));
        if index >= end {
            index = self.free_from(0);
        }
        if index >= end {
            return Err(ENOSPC);
        }
        if self.last.is_some_and(|last| index <= last) {
            // Modulo the sequence numbers that an identifier has room for.
            self.seq = (self.seq + 1) & 0x7fff;
        }
        self.last = Some(index);
        Ok((index, self.seq))
    }

    /// The first free index from there on.
    fn free_from(&self, mut index: u32) -> u32 {
        for used in self.by_index.range(index..).map(|(n, _)| *n) {
            if used != index {
                break;
            }
            index += 1;
        }
        index
    }
}

/// All objects of one kind.
pub struct Registry<T> {
    kind: Kind,
    limits: Arc<Limits>,
    user: UserNs,
    inner: Mutex<Inner<T>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self::owned_by(&UserNs::default(), Kind::ShmIds, &Arc::default())
    }
}

impl<T> Registry<T> {
    fn owned_by(user: &UserNs, kind: Kind, limits: &Arc<Limits>) -> Self {
        Registry {
            kind,
            limits: limits.clone(),
            user: user.clone(),
            inner: Mutex::new(Inner {
                by_index: BTreeMap::new(),
                by_key: HashMap::new(),
                last: None,
                seq: 0,
                next_id: None,
            }),
        }
    }

    /// How many objects the namespace allows.
    fn most(&self) -> usize {
        let limit = match self.kind {
            Kind::SemIds => Limit::SemMni,
            Kind::MsgIds => Limit::MsgMni,
            _ => Limit::ShmMni,
        };
        self.limits.bounded(limit).min(MAX_OBJECTS)
    }

    /// The identifier that the next object is to have, -1 for any.
    #[must_use]
    pub fn next_id(&self) -> i32 {
        self.inner.lock().next_id.unwrap_or(-1)
    }
    /// `EINVAL` for a negative one.
    pub fn set_next_id(&self, id: i32) -> Result<()> {
        if id < 0 {
            return Err(EINVAL);
        }
        self.inner.lock().next_id = Some(id);
        Ok(())
    }
}

impl<T: Object> Registry<T> {
    /// `shmget(2)` and its kin: the object with this key, or a new one.
    pub fn get_or_make(
        &self,
        key: i32,
        flags: u32,
        cred: &Credentials,
        fits: impl FnOnce(&T) -> Result<()>,
        make: impl FnOnce(i32, Perm) -> Result<Arc<T>>,
    ) -> Result<i32> {
        let mut i = self.inner.lock();
        if key != IPC_PRIVATE
            && let Some(&id) = i.by_key.get(&key)
        {
            if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 {
                return Err(EEXIST);
            }
            let t = &i.by_index.get(&index_of(id)).ok_or(ENOENT)?.object;
            fits(t)?;
            t.perm(|p| p.check(cred, flags & 0o777))?;
            return Ok(id);
        }
        if key != IPC_PRIVATE && flags & IPC_CREAT == 0 {
            return Err(ENOENT);
        }
        let all = self.most();
        if i.by_index.len() >= all {
            return Err(ENOSPC);
        }
        // One user who does not pass limits has half of them. (On Linux one user can take all.)
        let most = if cred.passes_limits() {
            u64::MAX
        } else {
            all.div_ceil(2) as u64
        };
        let counted = cred.ucounts().charge(self.kind, 1, most).ok_or(ENOSPC)?;
        let before = (i.next_id, i.last, i.seq);
        let (index, seq) = i.take_index()?;
        let id = (i32::from(seq) << INDEX_BITS | index as i32) & i32::MAX;
        let perm = Perm {
            key,
            uid: cred.euid,
            gid: cred.egid,
            cuid: cred.euid,
            cgid: cred.egid,
            mode: flags & 0o777,
            user: self.user.clone(),
            seq,
        };
        let t = make(id, perm).inspect_err(|_| (i.next_id, i.last, i.seq) = before)?;
        i.by_index.insert(
            index,
            Entry {
                id,
                key,
                object: t,
                _counted: counted,
            },
        );
        if key != IPC_PRIVATE {
            i.by_key.insert(key, id);
        }
        Ok(id)
    }
    /// The object; `EINVAL` if there is none.
    pub fn get(&self, id: i32) -> Result<Arc<T>> {
        match self.inner.lock().by_index.get(&index_of(id)) {
            Some(e) if e.id == id => Ok(e.object.clone()),
            _ => Err(EINVAL),
        }
    }
    /// By its place in the table (SHM_STAT and its kin), with its identifier.
    pub fn at(&self, index: i32) -> Result<(i32, Arc<T>)> {
        let i = self.inner.lock();
        let e = i.by_index.get(&index_of(index)).ok_or(EINVAL)?;
        Ok((e.id, e.object.clone()))
    }
    /// Takes it out; nobody finds it any more.
    pub fn remove(&self, id: i32) {
        let gone = {
            let mut i = self.inner.lock();
            let index = index_of(id);
            let Some(e) = i.by_index.get(&index).filter(|e| e.id == id) else {
                return;
            };
            let key = e.key;
            i.by_key.remove(&key);
            i.by_index.remove(&index)
        };
        if let Some(e) = gone {
            e.object.removed();
        }
    }
    /// Its key finds it no longer, its number does (a segment that is to go with its last user).
    pub fn forget_key(&self, id: i32) {
        let mut i = self.inner.lock();
        if let Some(e) = i.by_index.get_mut(&index_of(id)).filter(|e| e.id == id) {
            let key = std::mem::replace(&mut e.key, IPC_PRIVATE);
            i.by_key.remove(&key);
        }
    }
    /// The highest index in use, 0 if none: what IPC_INFO gives.
    pub fn highest(&self) -> usize {
        let i = self.inner.lock();
        i.by_index.keys().next_back().map_or(0, |i| *i as usize)
    }
    /// All of them.
    pub fn all(&self) -> Vec<Arc<T>> {
        let i = self.inner.lock();
        i.by_index.values().map(|e| e.object.clone()).collect()
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lock().by_index.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An ipc namespace: its System V objects, and its POSIX message queues.
pub struct IpcNamespace {
    pub mqueue: crate::mqueue::Queues,
    pub shm: Registry<shm::Shm>,
    pub sem: Registry<sem::SemSet>,
    pub msg: Registry<msg::MsgQueue>,
    pub limits: Arc<Limits>,
    /// How many pages all segments have, and semaphores all sets. Grown under the registry's lock.
    pub(crate) shm_pages: AtomicU64,
    pub(crate) sems: AtomicU64,
    pub(crate) undo_users: std::sync::atomic::AtomicUsize,
    me: Weak<IpcNamespace>,
}

impl IpcNamespace {
    #[must_use]
    pub fn new() -> Arc<IpcNamespace> {
        Self::made_by(&Credentials::root())
    }
    /// A namespace that belongs to its maker's user namespace.
    #[must_use]
    pub fn made_by(maker: &Credentials) -> Arc<IpcNamespace> {
        let user = &maker.user_ns;
        let limits = Arc::<Limits>::default();
        Arc::new_cyclic(|me| IpcNamespace {
            mqueue: crate::mqueue::Queues::made_by(maker),
            shm: Registry::owned_by(user, Kind::ShmIds, &limits),
            sem: Registry::owned_by(user, Kind::SemIds, &limits),
            msg: Registry::owned_by(user, Kind::MsgIds, &limits),
            limits,
            shm_pages: AtomicU64::new(0),
            sems: AtomicU64::new(0),
            undo_users: std::sync::atomic::AtomicUsize::new(0),
            me: me.clone(),
        })
    }
    /// Adds to what all objects of a kind have together; `ENOSPC` beyond the limit.
    fn count(&self, used: &AtomicU64, n: u64, limit: Limit) -> Result<()> {
        let most = self.limits.get(limit);
        let more = |used: u64| used.checked_add(n).filter(|all| *all <= most);
        let counted = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map(|_| ()).map_err(|_| ENOSPC)
    }
}

#[cfg(test)]
mod tests;
