//! Futexes (`futex(2)`, `kernel/futex/`).
//!
//! Waiters hang in a table of buckets by key. The check of the word and the queueing are one step
//! under the bucket's lock, and a waker takes the same lock after the application changed the word;
//! so a wake-up cannot fall between. The same holds for the check of `FUTEX_CMP_REQUEUE` and the
//! change of `FUTEX_WAKE_OP`, under the locks of both keys' buckets.
//!
//! A bucket is shared by all processes, and an address space's lock is held as long as its threads
//! like: so nothing waits for the latter with the former (`at_word`). Lock order: buckets by index
//! → a waiter's key.
//!
//! A wake-up where nobody waits may be done beside the program, without the Sentry: so who waits by
//! a private key is counted in the address space (`platform::lanes::SpaceLanes::count_waiter`)
//! *before* it looks at the word, and as long as it may be woken. The application changes the word,
//! then looks at the count: one of both sees the other. A requeue counts at the target first.

mod pi;
mod queue;

pub use pi::{IfTaken, lock_pi, requeue_pi, unlock_pi, wait_requeue_pi};
use pi::{OWNER_DIED, TID_MASK, WAITERS};

use queue::{Queue, Wanted};

use super::Task;
use abi::errno::*;
use abi::linux::{
    FUTEX_OP_ADD, FUTEX_OP_ANDN, FUTEX_OP_CMP_EQ, FUTEX_OP_CMP_GE, FUTEX_OP_CMP_GT,
    FUTEX_OP_CMP_LE, FUTEX_OP_CMP_LT, FUTEX_OP_CMP_NE, FUTEX_OP_OR, FUTEX_OP_SET, FUTEX_OP_XOR,
};
use abi::{Result, Va};
use mm::futex::FutexKey;
use mm::{Access, Mm};
use parking_lot::{Mutex, MutexGuard};
use std::collections::hash_map::{HashMap, RandomState};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;
use wait::{Blocker, Events, Listener};

const BUCKETS: usize = 256;

struct Waiter {
    /// Who is told: a task's parker, or a request.
    told: Arc<dyn Listener>,
    woken: AtomicBool,
    bitset: u32,
    /// The key that it waits on now: a requeue changes it. Written under both buckets' locks.
    key: Mutex<FutexKey>,
    /// Where it is in its key's queue. Written under that bucket's lock.
    place: AtomicU64,
    tid: i32,
    /// Of a wait that ends by a requeue to a PI futex alone.
    pi: Option<pi::Target>,
}

impl Waiter {
    fn new(task: &Task, key: FutexKey, bitset: u32) -> Arc<Waiter> {
        Waiter::telling(task, key, bitset, task.parker().clone())
    }
    fn telling(task: &Task, key: FutexKey, bitset: u32, told: Arc<dyn Listener>) -> Arc<Waiter> {
        Arc::new(Waiter::plain(task, key, bitset, told))
    }
    fn plain(task: &Task, key: FutexKey, bitset: u32, told: Arc<dyn Listener>) -> Waiter {
        Waiter {
            told,
            woken: AtomicBool::new(false),
            bitset,
            key: Mutex::new(key),
            place: AtomicU64::new(0),
            tid: task.tid,
            pi: None,
        }
    }
    /// Whether it waits for a requeue to a PI futex, at `key`: nothing else may wake or move it.
    fn awaits_requeue(&self, key: &FutexKey) -> bool {
        self.pi.as_ref().is_some_and(|p| p.key != *key)
    }
    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }
}

/// Counts who waits at a private key's word, whose memory this is.
fn count(mm: &Mm, key: &FutexKey, by: i32) {
    if let FutexKey::Private { va, .. } = key
        && let Some(l) = mm.address_space().lanes()
    {
        l.count_waiter(va.0, by);
    }
}

/// Somebody may be woken, and is counted as long: dropped when it is in no queue, so that its key
/// stays.
struct Counted<'a> {
    mm: &'a Mm,
    key: &'a Mutex<FutexKey>,
}

impl<'a> Counted<'a> {
    fn new(mm: &'a Mm, key: &'a Mutex<FutexKey>) -> Counted<'a> {
        count(mm, &key.lock(), 1);
        Counted { mm, key }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        count(self.mm, &self.key.lock(), -1);
    }
}

/// Of each key.
type Waiters = HashMap<FutexKey, Queue>;
type Bucket = Mutex<Waiters>;

/// All waiters of a kernel.
pub struct Table {
    buckets: Vec<Bucket>,
    /// No program knows which bucket another's key is in.
    hasher: RandomState,
}

impl Table {
    #[must_use]
    pub fn new() -> Table {
        Table {
            buckets: (0..BUCKETS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }
    fn index(&self, key: &FutexKey) -> usize {
        self.hasher.hash_one(key) as usize % BUCKETS
    }
    fn bucket(&self, key: &FutexKey) -> &Bucket {
        &self.buckets[self.index(key)]
    }
    /// Locks the buckets of both keys, or the one bucket of both: by index, so that nobody holds
    /// them the other way round.
    fn lock_both(&self, first: &FutexKey, second: &FutexKey) -> Both<'_> {
        let (i, j) = (self.index(first), self.index(second));
        let low = self.buckets[i.min(j)].lock();
        let high = (i != j).then(|| self.buckets[i.max(j)].lock());
        Both {
            low,
            high,
            swapped: i > j,
        }
    }
    fn wake(&self, key: &FutexKey, max: usize, bitset: u32) -> Result<usize> {
        let _deferral = wait::wakes::defer();
        wake_in(&mut self.bucket(key).lock(), key, max, bitset)
    }
    /// Puts a waiter at the end of its key's, whose word is at `va`; `EAGAIN` if that is not
    /// `expected`.
    fn queue(&self, mm: &Mm, va: Va, w: &Arc<Waiter>, expected: u32) -> Result<()> {
        let key = *w.key.lock();
        let lock = || self.bucket(&key).lock();
        let (mut b, seen) = at_word(mm, va, Access::Read, lock, load)?;
        if seen != expected {
            return Err(EAGAIN);
        }
        b.entry(key).or_default().push(w.clone());
        Ok(())
    }
    fn remove(&self, w: &Arc<Waiter>) {
        loop {
            let key = *w.key.lock();
            let mut b = self.bucket(&key).lock();
            if *w.key.lock() != key {
                continue;
            }
            if let Some(q) = b.get_mut(&key) {
                q.remove(w);
                if q.is_empty() {
                    b.remove(&key);
                }
            }
            return;
        }
    }
}

/// Locks what `lock` says and calls `f` with the word at `va`, in one step.
fn at_word<L, R>(
    mm: &Mm,
    va: Va,
    access: Access,
    lock: impl Fn() -> L,
    f: impl Fn(&AtomicU32) -> R,
) -> Result<(L, R)> {
    loop {
        let locked = lock();
        if let Some(r) = mm.try_atomic_u32(va, access, &f) {
            return Ok((locked, r));
        }
        drop(locked);
        // Waits, makes the page present.
        mm.with_atomic_u32(va, access, |_| ())?;
    }
}

/// The locked buckets of two keys, which may be one.
struct Both<'a> {
    low: MutexGuard<'a, Waiters>,
    high: Option<MutexGuard<'a, Waiters>>,
    /// The first key's bucket is `high`.
    swapped: bool,
}

impl Both<'_> {
    fn first(&mut self) -> &mut Waiters {
        match &mut self.high {
            Some(h) if self.swapped => h,
            _ => &mut self.low,
        }
    }
    fn second(&mut self) -> &mut Waiters {
        match &mut self.high {
            Some(h) if !self.swapped => h,
            _ => &mut self.low,
        }
    }

    /// Moves up to `max` waiters from the first key to the second: how many. `EINVAL`, and none is
    /// moved, where one of them waits for another kind of requeue.
    fn requeue(
        &mut self,
        mm: &Mm,
        (from, to): (&FutexKey, &FutexKey),
        max: usize,
    ) -> Result<usize> {
        let q = self.first().get(from);
        if q.is_some_and(|q| q.iter().take(max).any(|w| w.awaits_requeue(from))) {
            return Err(EINVAL);
        }
        Ok(self.move_waiters(mm, (from, to), max))
    }

    /// Wakes the first key's first waiter.
    fn take_first(&mut self, from: &FutexKey) {
        let Some(q) = self.first().get_mut(from) else {
            return;
        };
        if let Some(w) = q.pop() {
            w.woken.store(true, Ordering::SeqCst);
            w.told.notify(Events::IN);
        }
        if q.is_empty() {
            self.first().remove(from);
        }
    }

    fn move_waiters(&mut self, mm: &Mm, (from, to): (&FutexKey, &FutexKey), max: usize) -> usize {
        let Some(q) = self.first().get_mut(from) else {
            return 0;
        };
        let n = max.min(q.len());
        // Where it is one key they stay in their order; Linux counts them as well.
        if n == 0 || from == to {
            return n;
        }
        let moved = q.take(n, |_| Wanted::Yes);
        if q.is_empty() {
            self.first().remove(from);
        }
        for w in &moved {
            // Private keys of both are of the same memory.
            count(mm, to, 1);
            let before = std::mem::replace(&mut *w.key.lock(), *to);
            count(mm, &before, -1);
        }
        let target = self.second().entry(*to).or_default();
        moved.into_iter().for_each(|w| target.push(w));
        n
    }
}

/// Wakes up to `max` of a key's waiters, those in `bitset` only: how many. `EINVAL` at one that
/// waits for a requeue.
fn wake_in(b: &mut Waiters, key: &FutexKey, max: usize, bitset: u32) -> Result<usize> {
    let Some(q) = b.get_mut(key) else {
        return Ok(0);
    };
    // From the front, and no further than needed: waking one of thousands is usual.
    let mut refused = false;
    let woken = q.take(max, |w| {
        refused = w.awaits_requeue(key);
        match w.bitset & bitset {
            _ if refused => Wanted::Ends,
            0 => Wanted::No,
            _ => Wanted::Yes,
        }
    });
    for w in &woken {
        w.woken.store(true, Ordering::SeqCst);
        w.told.notify(Events::IN);
    }
    if q.is_empty() {
        b.remove(key);
    }
    if refused {
        Err(EINVAL)
    } else {
        Ok(woken.len())
    }
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

/// Whether the futex is used within one process only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    Private,
    Shared,
}

fn key(mm: &Mm, va: Va, scope: Scope, access: Access) -> Result<FutexKey> {
    match scope {
        Scope::Private => mm.futex_key_private(va),
        Scope::Shared => mm.futex_key_shared(va, access),
    }
}

fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::SeqCst)
}

/// `FUTEX_WAIT_BITSET`: `EAGAIN` if the word is not `expected`, `ETIMEDOUT`, `ERESTARTSYS`.
pub fn wait(
    task: &Task,
    va: Va,
    scope: Scope,
    expected: u32,
    bitset: u32,
    deadline: Option<Instant>,
) -> Result<()> {
    if bitset == 0 {
        return Err(EINVAL);
    }
    let mm = task.mm();
    let table = &task.kernel.futexes;
    let w = Waiter::new(task, key(&mm, va, scope, Access::Read)?, bitset);
    // Before it looks at the word.
    let _counted = Counted::new(&mm, &w.key);
    table.queue(&mm, va, &w, expected)?;
    let woken = || match w.is_woken() {
        true => Ok(()),
        false => Err(EAGAIN),
    };
    let r = task.block(&[], deadline, woken);
    if r.is_err() {
        table.remove(&w);
        // A wake-up that came with the signal counts: the waker was told that it woke somebody.
        if w.is_woken() {
            return Ok(());
        }
    }
    r
}

/// A wait at a word that no thread sleeps for: somebody is told when it is woken. Dropped, it is
/// over.
///
/// It keeps neither the kernel nor the memory, which may keep it: by a mapped ring.
pub struct Queued {
    kernel: Weak<crate::Kernel>,
    mm: Weak<Mm>,
    waiter: Arc<Waiter>,
}

impl Queued {
    /// Begins to wait: `EAGAIN` if the word is not `expected`.
    pub fn begin(
        task: &Task,
        place: Place,
        expected: u32,
        bitset: u32,
        told: Arc<dyn Listener>,
    ) -> Result<Queued> {
        if bitset == 0 {
            return Err(EINVAL);
        }
        let mm = task.mm();
        let waiter = Waiter::telling(task, place.key(&mm, Access::Read)?, bitset, told);
        // Before it looks at the word.
        count(&mm, &waiter.key.lock(), 1);
        let q = Queued {
            kernel: Arc::downgrade(&task.kernel),
            mm: Arc::downgrade(&mm),
            waiter,
        };
        let table = &task.kernel.futexes;
        table.queue(&mm, place.va, &q.waiter, expected)?;
        Ok(q)
    }
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.waiter.is_woken()
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if let Some(k) = self.kernel.upgrade() {
            k.futexes.remove(&self.waiter);
        }
        if let Some(mm) = self.mm.upgrade() {
            count(&mm, &self.waiter.key.lock(), -1);
        }
    }
}

/// Where a futex is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub va: Va,
    pub scope: Scope,
}

impl Place {
    fn key(self, mm: &Mm, access: Access) -> Result<FutexKey> {
        key(mm, self.va, self.scope, access)
    }
}

/// `futex_waitv(2)`: waits at all of these words, each with what it should be. Which was woken; the
/// last, if there are several. Errors as [`wait`]'s.
pub fn wait_any(task: &Task, words: &[(Place, u32)], deadline: Option<Instant>) -> Result<usize> {
    let mm = task.mm();
    let table = &task.kernel.futexes;
    let waiters: Vec<_> = words
        .iter()
        .map(|(p, _)| Ok(Waiter::new(task, p.key(&mm, Access::Read)?, !0)))
        .collect::<Result<_>>()?;
    // Before it looks at the words.
    let _counted: Vec<_> = waiters.iter().map(|w| Counted::new(&mm, &w.key)).collect();
    let leave = |queued: &[Arc<Waiter>]| {
        queued.iter().for_each(|w| table.remove(w));
        queued.iter().rposition(|w| w.is_woken())
    };
    for (i, ((place, expected), w)) in words.iter().zip(&waiters).enumerate() {
        if let Err(e) = table.queue(&mm, place.va, w, *expected) {
            return leave(&waiters[..i]).ok_or(e);
        }
    }
    let r = task.block(&[], deadline, || {
        match waiters.iter().any(|w| w.is_woken()) {
            true => Ok(()),
            false => Err(EAGAIN),
        }
    });
    match leave(&waiters) {
        Some(i) => Ok(i),
        None => Err(r.err().unwrap_or(EAGAIN)),
    }
}

/// Linux counts after it has woken one.
fn at_least_one(max: i32) -> usize {
    max.max(1) as usize
}

/// `FUTEX_WAKE_BITSET`: how many were woken.
pub fn wake(task: &Task, va: Va, scope: Scope, max: i32, bitset: u32) -> Result<usize> {
    if bitset == 0 {
        return Err(EINVAL);
    }
    let mm = task.mm();
    let key = key(&mm, va, scope, Access::Read)?;
    task.kernel.futexes.wake(&key, at_least_one(max), bitset)
}

/// `futex_wake(2)`: as [`wake`], but none where `max` is 0.
pub fn wake_exactly(task: &Task, place: Place, max: i32, bitset: u32) -> Result<usize> {
    if bitset != 0 && max == 0 {
        return place.key(&task.mm(), Access::Read).map(|_| 0);
    }
    wake(task, place.va, place.scope, max, bitset)
}

/// `FUTEX_REQUEUE` and `FUTEX_CMP_REQUEUE`: how many were woken, and moved.
pub fn requeue(
    task: &Task,
    (from, to): (Place, Place),
    (wake, max): (i32, i32),
    expected: Option<u32>,
) -> Result<(usize, usize)> {
    if wake < 0 || max < 0 {
        return Err(EINVAL);
    }
    let mm = task.mm();
    let (k1, k2) = (from.key(&mm, Access::Read)?, to.key(&mm, Access::Write)?);
    let _deferral = wait::wakes::defer();
    let lock = || task.kernel.futexes.lock_both(&k1, &k2);
    let mut both = match expected {
        None => lock(),
        Some(expected) => {
            let (both, seen) = at_word(&mm, from.va, Access::Read, lock, load)?;
            if seen != expected {
                return Err(EAGAIN);
            }
            both
        }
    };
    let woken = wake_in(both.first(), &k1, wake as usize, !0)?;
    Ok((woken, both.requeue(&mm, (&k1, &k2), max as usize)?))
}

/// What `FUTEX_WAKE_OP` does to a word, and what of the word's old value wakes its waiters.
///
/// ```text
///  31   30    28 27    24 23         12 11          0
/// +----+--------+--------+-------------+-------------+
/// | SH |   op   |  cmp   |    oparg    |   cmparg    |
/// +----+--------+--------+-------------+-------------+
/// ```
///
/// `SH`: the argument is `1 << oparg`. Both arguments are signed. Linux finds an unknown `op` when
/// it is at the word, and an unknown `cmp` after the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeOp(pub u32);

impl WakeOp {
    /// The twelve bits from `shift` on, with their sign.
    const fn argument(self, shift: u32) -> i32 {
        ((self.0 as i32) << (20 - shift)) >> 20
    }

    /// The word's new value; `None` for an operation that there is not.
    const fn apply(self, word: u32) -> Option<u32> {
        let arg = match self.0 >> 31 {
            0 => self.argument(12) as u32,
            _ => 1u32.wrapping_shl(self.argument(12) as u32 & 31),
        };
        Some(match (self.0 >> 28) & 7 {
            FUTEX_OP_SET => arg,
            FUTEX_OP_ADD => word.wrapping_add(arg),
            FUTEX_OP_OR => word | arg,
            FUTEX_OP_ANDN => word & !arg,
            FUTEX_OP_XOR => word ^ arg,
            _ => return None,
        })
    }

    /// Whether the word's waiters are woken, by its old value; `ENOSYS` for a comparison that there
    /// is not.
    fn wakes(self, old: u32) -> Result<bool> {
        let (old, arg) = (old as i32, self.argument(0));
        Ok(match (self.0 >> 24) & 15 {
            FUTEX_OP_CMP_EQ => old == arg,
            FUTEX_OP_CMP_NE => old != arg,
            FUTEX_OP_CMP_LT => old < arg,
            FUTEX_OP_CMP_LE => old <= arg,
            FUTEX_OP_CMP_GT => old > arg,
            FUTEX_OP_CMP_GE => old >= arg,
            _ => return Err(ENOSYS),
        })
    }
}

/// `FUTEX_WAKE_OP`.
pub fn wake_op(
    task: &Task,
    (va1, va2): (Va, Va),
    scope: Scope,
    (wake1, wake2): (i32, i32),
    op: WakeOp,
) -> Result<usize> {
    let mm = task.mm();
    let k1 = key(&mm, va1, scope, Access::Read)?;
    let k2 = key(&mm, va2, scope, Access::Write)?;
    let _deferral = wait::wakes::defer();
    let lock = || task.kernel.futexes.lock_both(&k1, &k2);
    let (mut both, old) = at_word(&mm, va2, Access::Write, lock, |w| {
        w.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |v| op.apply(v))
    })?;
    let Ok(old) = old else { return Err(ENOSYS) };
    let holds = op.wakes(old)?;
    let mut n = wake_in(both.first(), &k1, at_least_one(wake1), !0)?;
    if holds {
        n += wake_in(both.second(), &k2, at_least_one(wake2), !0)?;
    }
    Ok(n)
}

/// The most entries of a robust list that are looked at (`ROBUST_LIST_LIMIT`).
const ROBUST_LIMIT: usize = 2048;

/// A thread ends that may hold robust locks: marks them and wakes a waiter (`exit_robust_list`).
pub fn exit_robust_list(task: &Task) {
    let head = task.robust_list.load(Ordering::Relaxed);
    if head == 0 {
        return;
    }
    let mm = task.mm();
    let word = |va: u64| mm.read_obj::<u64>(Va(va));
    let behind = |n: u64| word(head.wrapping_add(n));
    let (Ok(mut entry), Ok(offset), Ok(pending)) = (word(head), behind(8), behind(16)) else {
        return;
    };
    let handle = |e: u64, is_pending: bool| {
        let (e, pi) = (e & !1, e & 1 != 0);
        if e != 0 {
            let _ = handle_death(task, &mm, Va(e.wrapping_add(offset)), pi, is_pending);
        }
    };
    for _ in 0..ROBUST_LIMIT {
        if entry & !1 == head {
            break;
        }
        let next = word(entry & !1);
        if entry & !1 != pending & !1 {
            handle(entry, false);
        }
        match next {
            Ok(n) => entry = n,
            Err(_) => break,
        }
    }
    if pending & !1 != 0 {
        handle(pending, true);
    }
}

fn handle_death(task: &Task, mm: &Mm, va: Va, pi: bool, pending: bool) -> Result<()> {
    let me = task.pid.own() as u32;
    let r = mm.with_atomic_u32(va, Access::Write, |w| {
        w.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |v| {
            (v & TID_MASK == me).then_some((v & WAITERS) | OWNER_DIED)
        })
    })?;
    let wake_one = match r {
        Ok(old) => old & WAITERS != 0 || pi,
        // The unlock may have been done, and its wake-up not.
        Err(v) => pending && v & TID_MASK == 0,
    };
    if wake_one {
        wake(task, va, Scope::Shared, 1, !0)?;
        wake(task, va, Scope::Private, 1, !0)?;
    }
    Ok(())
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter({})", self.tid)
    }
}

/// The instant of an absolute time of a clock.
#[must_use]
pub fn instant_of(clock: i32, nanos: i64) -> Option<Instant> {
    let left = nanos.saturating_sub(hostcall::time::clock_nanos(clock));
    let now = Instant::now();
    if left <= 0 {
        Some(now)
    } else {
        now.checked_add(std::time::Duration::from_nanos(left as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FUTEX_OP` of linux/futex.h.
    const fn encode(op: u32, oparg: i32, cmp: u32, cmparg: i32) -> WakeOp {
        let (oparg, cmparg) = (oparg as u32 & 0xfff, cmparg as u32 & 0xfff);
        WakeOp(op << 28 | cmp << 24 | oparg << 12 | cmparg)
    }

    #[test]
    fn a_wake_op_changes_the_word() {
        let apply = |op, oparg, word| encode(op, oparg, 0, 0).apply(word);
        assert_eq!(apply(0, -1, 7), Some(u32::MAX));
        assert_eq!(apply(1, -2, 1), Some(u32::MAX));
        assert_eq!(apply(2, 4, 1), Some(5));
        assert_eq!(apply(3, 5, 7), Some(2));
        assert_eq!(apply(4, 1, 3), Some(2));
        assert_eq!(apply(5, 0, 0), None);
        // Shifted: the argument is a bit's number, of which five bits count.
        assert_eq!(apply(8, 33, 0), Some(2));
    }

    #[test]
    fn a_wake_op_compares_the_old_value_with_its_sign() {
        let wakes = |cmp, cmparg, old: i32| encode(0, 0, cmp, cmparg).wakes(old as u32);
        assert_eq!(wakes(0, -1, -1), Ok(true));
        assert_eq!(wakes(1, -1, -1), Ok(false));
        assert_eq!(wakes(2, 0, -5), Ok(true));
        assert_eq!(wakes(3, -5, -5), Ok(true));
        assert_eq!(wakes(4, -1, 0), Ok(true));
        assert_eq!(wakes(5, 1, 0), Ok(false));
        assert_eq!(wakes(6, 0, 0), Err(ENOSYS));
    }
}
