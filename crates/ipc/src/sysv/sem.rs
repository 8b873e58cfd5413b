//! Semaphore sets (`semget(2)`, `semop(2)`).

use super::{IPC_NOWAIT, IpcNamespace, Limit, Numbers, Object, Perm, READ, WRITE, now};
use abi::Result;
use abi::errno::{EAGAIN, EFBIG, EIDRM, EINTR, EINVAL, ENOMEM, ERANGE, ERESTARTSYS, ETIMEDOUT};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;
use vfs::Credentials;
use vfs::ucounts::Charge;
use wait::{Blocker, Events, WaitQueue, block_until};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const GETPID: u32 = 11;
pub const GETVAL: u32 = 12;
pub const GETALL: u32 = 13;
pub const GETNCNT: u32 = 14;
pub const GETZCNT: u32 = 15;
pub const SETVAL: u32 = 16;
pub const SETALL: u32 = 17;
pub const SEM_STAT: u32 = 18;
pub const SEM_INFO: u32 = 19;
pub const SEM_STAT_ANY: u32 = 20;
pub const SEM_UNDO: i16 = 0x1000;

/// `kernel.sem` at first: semaphores in a set, operations in a call; the highest value.
pub const SEMMSL: usize = 32_000;
pub const SEMOPM: usize = 500;
pub const SEMVMX: i32 = 32_767;

/// `struct sembuf`.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SemOp {
    pub num: u16,
    pub op: i16,
    pub flags: i16,
}

#[derive(Clone, Copy, Default)]
struct Sem {
    value: i32,
    /// Who changed it last.
    pid: i32,
}

/// A set.
pub struct SemSet {
    pub id: i32,
    ns: Weak<IpcNamespace>,
    state: Mutex<State>,
    queue: WaitQueue,
}

struct State {
    perm: Perm,
    sems: Vec<Sem>,
    otime: i64,
    ctime: i64,
    removed: bool,
    _memory: Charge,
    /// By process: what is added to each value at its end.
    undo: BTreeMap<i32, (Vec<i32>, Charge)>,
    /// Who sleeps, and for what: a semaphore's growth, or its zero.
    sleepers: BTreeMap<u64, (u16, For)>,
    next_sleeper: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Growth,
    Zero,
}

/// How an attempt at all operations ended.
enum Tried {
    Done,
    /// This operation must wait.
    Waits(SemOp),
}

impl Object for SemSet {
    fn perm<R>(&self, f: impl FnOnce(&Perm) -> R) -> R {
        f(&self.state.lock().perm)
    }
    fn removed(&self) {
        {
            let mut s = self.state.lock();
            s.removed = true;
            self.drop_undo(&mut s, |_| false);
            if let Some(ns) = self.ns.upgrade() {
                ns.sems.fetch_sub(s.sems.len() as u64, Ordering::Relaxed);
            }
        }
        self.queue.notify(Events::IN);
    }
}

impl SemSet {
    /// `ENOMEM` where its maker has no more of the kernel's memory, `ENOSPC` where the namespace
    /// has as many semaphores as it may.
    pub fn new(
        ns: &IpcNamespace,
        id: i32,
        perm: Perm,
        count: usize,
        cred: &Credentials,
    ) -> Result<Arc<SemSet>> {
        let memory = cred.kmem(size_of::<SemSet>() + count * size_of::<Sem>(), ENOMEM)?;
        ns.count(&ns.sems, count as u64, Limit::SemMns)?;
        Ok(Arc::new(SemSet {
            id,
            ns: ns.me.clone(),
            state: Mutex::new(State {
                perm,
                sems: vec![Sem::default(); count],
                otime: 0,
                ctime: now(),
                removed: false,
                _memory: memory,
                undo: BTreeMap::new(),
                sleepers: BTreeMap::new(),
                next_sleeper: 0,
            }),
            queue: WaitQueue::new(),
        }))
    }
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().sems.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps only the undo lists of processes for which `keep` says so.
    fn drop_undo(&self, s: &mut State, keep: impl Fn(i32) -> bool) {
        let before = s.undo.len();
        s.undo.retain(|pid, _| keep(*pid));
        if let Some(ns) = self.ns.upgrade() {
            ns.undo_users
                .fetch_sub(before - s.undo.len(), Ordering::Relaxed);
        }
    }

    /// All operations or none.
    fn attempt(&self, s: &mut State, ops: &[SemOp], pid: i32, cred: &Credentials) -> Result<Tried> {
        let undoes = ops.iter().any(|o| o.flags & SEM_UNDO != 0 && o.op != 0);
        // An own list for each process that asks, as long as the set.
        let list = if undoes && !s.undo.contains_key(&pid) {
            let n = s.sems.len();
            Some((vec![0; n], cred.kmem(n * size_of::<i32>() + 64, ENOMEM)?))
        } else {
            None
        };
        let mut done: Vec<(usize, i32)> = Vec::with_capacity(ops.len());
        let mut tried = Ok(Tried::Done);
        for o in ops {
            let at = usize::from(o.num);
            let old = s.sems[at].value;
            let op = i32::from(o.op);
            let new = old + op;
            if (op == 0 && old != 0) || new < 0 {
                tried = Ok(Tried::Waits(*o));
            } else if new > SEMVMX {
                tried = Err(ERANGE);
            } else if o.flags & SEM_UNDO != 0 {
                let pending: i32 = ops[..done.len()]
                    .iter()
                    .filter(|p| p.num == o.num && p.flags & SEM_UNDO != 0)
                    .map(|p| i32::from(p.op))
                    .sum();
                let adj = s.undo.get(&pid).map_or(0, |u| u.0[at]) - pending - op;
                if !(-SEMVMX - 1..=SEMVMX).contains(&adj) {
                    tried = Err(ERANGE);
                }
            }
            if !matches!(tried, Ok(Tried::Done)) {
                for (at, old) in done.iter().rev() {
                    s.sems[*at].value = *old;
                }
                return tried;
            }
            done.push((at, old));
            s.sems[at].value = new;
        }
        if let Some(list) = list {
            s.undo.insert(pid, list);
            if let Some(ns) = self.ns.upgrade() {
                ns.undo_users.fetch_add(1, Ordering::Relaxed);
            }
        }
        for o in ops {
            s.sems[usize::from(o.num)].pid = pid;
            if o.flags & SEM_UNDO != 0
                && let Some((u, _)) = s.undo.get_mut(&pid)
            {
                u[usize::from(o.num)] -= i32::from(o.op);
            }
        }
        s.otime = now();
        Ok(Tried::Done)
    }

    /// `semtimedop(2)`. The caller has bounded the number of operations.
    pub fn operate(
        &self,
        b: &dyn Blocker,
        cred: &Credentials,
        pid: i32,
        ops: &[SemOp],
        deadline: Option<Instant>,
    ) -> Result<()> {
        let alters = ops.iter().any(|o| o.op != 0);
        let ticket = {
            let mut s = self.state.lock();
            if ops.iter().any(|o| usize::from(o.num) >= s.sems.len()) {
                return Err(EFBIG);
            }
            s.perm.check(cred, if alters { WRITE } else { READ })?;
            s.next_sleeper += 1;
            s.next_sleeper
        };
        // EAGAIN means "sleep" to `block_until`, so the one that the caller wants goes inside.
        let r = block_until(b, &[(&self.queue, Events::IN)], deadline, || {
            let mut s = self.state.lock();
            s.sleepers.remove(&ticket);
            if s.removed {
                return Err(EIDRM);
            }
            match self.attempt(&mut s, ops, pid, cred)? {
                Tried::Done => Ok(Ok(())),
                Tried::Waits(o) if o.flags as u16 as u32 & IPC_NOWAIT != 0 => Ok(Err(EAGAIN)),
                Tried::Waits(o) => {
                    let what = if o.op == 0 { For::Zero } else { For::Growth };
                    s.sleepers.insert(ticket, (o.num, what));
                    Err(EAGAIN)
                }
            }
        });
        self.state.lock().sleepers.remove(&ticket);
        match r {
            Ok(r) => {
                if r.is_ok() && alters {
                    self.queue.notify(Events::IN);
                }
                r
            }
            Err(ETIMEDOUT) => Err(EAGAIN),
            Err(ERESTARTSYS) => Err(EINTR),
            Err(e) => Err(e),
        }
    }

    /// GETVAL, GETPID, GETNCNT, GETZCNT.
    pub fn get(&self, cred: &Credentials, num: i32, what: u32) -> Result<usize> {
        let s = self.state.lock();
        s.perm.check(cred, READ)?;
        let at = usize::try_from(num).map_err(|_| EINVAL)?;
        let sem = s.sems.get(at).ok_or(EINVAL)?;
        let sleepers = |w: For| {
            s.sleepers
                .values()
                .filter(|(n, x)| usize::from(*n) == at && *x == w)
                .count()
        };
        Ok(match what {
            GETVAL => sem.value as usize,
            GETPID => sem.pid as usize,
            GETNCNT => sleepers(For::Growth),
            _ => sleepers(For::Zero),
        })
    }
    /// GETALL.
    pub fn get_all(&self, cred: &Credentials) -> Result<Vec<u16>> {
        let s = self.state.lock();
        s.perm.check(cred, READ)?;
        Ok(s.sems.iter().map(|x| x.value as u16).collect())
    }
    /// SETVAL: what processes would undo of it is forgotten.
    pub fn set_value(&self, cred: &Credentials, num: i32, value: i32, pid: i32) -> Result<()> {
        if !(0..=SEMVMX).contains(&value) {
            return Err(ERANGE);
        }
        {
            let mut s = self.state.lock();
            s.perm.check(cred, WRITE)?;
            let at = usize::try_from(num).map_err(|_| EINVAL)?;
            *s.sems.get_mut(at).ok_or(EINVAL)? = Sem { value, pid };
            for (u, _) in s.undo.values_mut() {
                u[at] = 0;
            }
            s.ctime = now();
        }
        self.queue.notify(Events::IN);
        Ok(())
    }
    /// SETALL, with one value for each semaphore.
    pub fn set_all(&self, cred: &Credentials, values: &[u16], pid: i32) -> Result<()> {
        {
            let mut s = self.state.lock();
            s.perm.check(cred, WRITE)?;
            if values.len() != s.sems.len() {
                return Err(EINVAL);
            }
            if values.iter().any(|v| i32::from(*v) > SEMVMX) {
                return Err(ERANGE);
            }
            for (sem, v) in s.sems.iter_mut().zip(values) {
                *sem = Sem {
                    value: i32::from(*v),
                    pid,
                };
            }
            for (u, _) in s.undo.values_mut() {
                u.fill(0);
            }
            s.ctime = now();
        }
        self.queue.notify(Events::IN);
        Ok(())
    }
    /// IPC_RMID.
    pub fn remove(&self, cred: &Credentials) -> Result<()> {
        self.perm(|p| p.check_owner(cred))?;
        if let Some(ns) = self.ns.upgrade() {
            ns.sem.remove(self.id);
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
    /// `struct semid64_ds`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let s = self.state.lock();
        let mut v = s.perm.encode();
        for n in [s.otime, 0, s.ctime, 0, s.sems.len() as i64] {
            v.extend_from_slice(&n.to_le_bytes());
        }
        v.resize(104, 0);
        v
    }

    /// Its line of `/proc/sysvipc/sem`.
    #[must_use]
    pub fn line(&self, to: &dyn Numbers) -> String {
        let s = self.state.lock();
        let (head, owners) = s.perm.columns(self.id, to);
        let count = s.sems.len();
        format!("{head} {count:10} {owners} {:10} {:10}\n", s.otime, s.ctime)
    }

    fn has_undo(&self, pid: i32) -> bool {
        self.state.lock().undo.contains_key(&pid)
    }
    fn undo(&self, pid: i32) {
        {
            let mut s = self.state.lock();
            let Some((u, _)) = s.undo.get_mut(&pid) else {
                return;
            };
            let u = std::mem::take(u);
            for (sem, adj) in s.sems.iter_mut().zip(u) {
                if adj != 0 {
                    *sem = Sem {
                        value: (sem.value + adj).clamp(0, SEMVMX),
                        pid,
                    };
                }
            }
            s.otime = now();
            self.drop_undo(&mut s, |p| p != pid);
        }
        self.queue.notify(Events::IN);
    }
}

impl IpcNamespace {
    /// Whether a process has something to undo.
    #[must_use]
    pub fn has_undo(&self, pid: i32) -> bool {
        self.undo_users.load(Ordering::Relaxed) != 0
            && self.sem.all().iter().any(|s| s.has_undo(pid))
    }
    /// A process ends: what it did with SEM_UNDO is undone (`exit_sem`).
    pub fn process_ended(&self, pid: i32) {
        if self.undo_users.load(Ordering::Relaxed) == 0 {
            return;
        }
        for s in self.sem.all() {
            s.undo(pid);
        }
    }
}
